"""From noisy unary bits to a level: three ways to read an entry off the bits along its columns.

Every step of the walk along the columns weighs one bit; the estimate is read off the height after each step.

- 'prefix' (Algorithm 3): +1 for a one, -1 for a zero; the average of all highest points.
- 'likelihood': with flip probability p and a share c of a column's places taken by other entries, a bit above the
  entry's level is one with probability r = p + c (1 - 2p), and a bit up to it with 1 - p. The steps are
  ln((1 - p) / r) for a one and ln(p / (1 - r)) for a zero, so that the highest point is the likeliest level; the middle
  between the first and the last. The share c of each column is estimated from what was released: the share of ones in
  it is near p + c (1 - 2p).
- 'posterior': the same steps, and the median of the value where half of all entries asked about are zeros, and others
  have values x in proportion to x^-1.5: at levels and half way between them, where such values are possible, which
  are at either level with probability 1/2. This prior is public and fixed.

Steps are whole numbers, so that sums are the same on every machine: multiples of 1/1024 for 'posterior', and of 1/12 of
ln((1 - p) / p) for 'likelihood', rounded towards lower levels. This coarse unit costs nothing: it makes ties, whose
middle is nearer to the truth on average, and most entries are small.
"""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from dpsieve.errors import InvalidValue
from dpsieve.types import Floats, Ints, Words

DECODERS = ("likelihood", "prefix", "posterior")
LEAST_TAKEN, MOST_TAKEN = 1e-6, 0.95
"""The shares of taken places that are believed: none at all is hard to know, and all would tell nothing."""
STEP_UNITS, UNITS_A_NAT = 12, 1024
_EACH = 1 << 14  # entries a task: enough that threads are worth it


def checked_decoder(value: object) -> str:
    """Return the name of a decoder."""
    if not isinstance(value, str) or value not in DECODERS:
        raise InvalidValue(f"decoder is not known. Choose one of {', '.join(DECODERS)}.")
    return value


def steps_for(decoder: str, flip: float, taken: Floats) -> tuple[Ints, Ints]:
    """Return what a one and what a zero adds, for columns with these shares of taken places."""
    if decoder == "prefix":
        return np.ones(len(taken), np.int64), np.full(len(taken), -1, np.int64)
    rate = flip + np.maximum(taken, LEAST_TAKEN) * (1 - 2 * flip)
    unit = 1 / UNITS_A_NAT if decoder == "posterior" else math.log((1 - flip) / flip) / STEP_UNITS
    ones, zeros = np.floor(np.log((1 - flip) / rate) / unit), np.ceil(np.log((1 - rate) / flip) / unit)
    return np.maximum(ones, 1).astype(np.int64), -np.maximum(zeros, 1).astype(np.int64)


def taken_shares(cells: Words, places: int, columns: int, flip: float) -> Floats:
    """Return the estimated share of taken places in each column, from its share of ones."""
    ones = np.array([_ones(cells, column * places, (column + 1) * places) for column in range(columns)])
    return np.clip((ones / places - flip) / (1 - 2 * flip), 0.0, MOST_TAKEN)


def decode(
    decoder: str, cells: Words, words: Words, edges: Floats, places: int, flip: float, *, between: bool
) -> Floats:
    """Return the position of each entry among `edges`, the values of levels: a whole number, or one in between.

    Args:
        decoder: one of DECODERS.
        cells: the bits, in words.
        words: two for each entry, which decide its places.
        edges: increasing, from 0 or from the value of the last negative level on.
        places: in each column.
        flip: the probability with which a bit was flipped.
        between: whether values may lie half way between levels, which the prior of 'posterior' needs to know.
    """
    from dpsieve.sparse.bit_loops import highest_points, medians

    columns = len(edges) - 1
    negative = int(np.searchsorted(edges, 0.0))
    ones, zeros = steps_for(decoder, flip, taken_shares(cells, places, columns, flip))
    ones[:negative], zeros[:negative] = -ones[:negative], -zeros[:negative]  # a bit says 'this low', not 'this high'
    order = np.arange(columns)
    order[:negative] = order[:negative][::-1]
    ones, zeros, found = ones[order], zeros[order], np.empty(len(words))
    prior = _prior(edges, between) if decoder == "posterior" else None

    def some(start: int, stop: int) -> None:
        here, out = words[start:stop], found[start:stop]
        if prior is not None:
            medians(here, cells, places, order, ones, zeros, prior, out)
        else:
            highest_points(here, cells, places, order, ones, zeros, decoder == "prefix", out)

    in_threads(some, len(words), _EACH)
    return found


def in_threads(work: Callable[[int, int], None], count: int, each: int) -> None:
    """Call work(start, stop) for parts of range(count), at least `each` long, in as many threads as there are cores."""
    threads = min(os.cpu_count() or 1, -(-count // each))
    if threads < 2:
        work(0, count)
        return
    cuts = [count * part // (4 * threads) for part in range(4 * threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, cuts[:-1], cuts[1:]))


def _prior(edges: Floats, between: bool) -> Floats:
    """Return the public prior of the values of levels and, where there are any `between`, of those half way."""
    points = np.interp(np.arange(2 * len(edges) - 1) / 2, np.arange(len(edges)), edges)
    step = 1 if between else 2
    given = points[::step]
    tail = np.abs(np.where(given == 0.0, np.inf, given)) ** -1.5 * np.gradient(given)
    prior = np.zeros(len(points))
    prior[::step] = np.where(given == 0.0, 0.5, 0.5 * tail / tail.sum())
    return prior


def _ones(cells: Words, start: int, stop: int) -> int:
    """Return the number of ones among the bits from start to before stop."""
    whole = int(np.bitwise_count(cells[start >> 6 : stop >> 6]).sum(dtype=np.int64))
    return whole + _low_ones(cells, stop) - _low_ones(cells, start)


def _low_ones(cells: Words, bit: int) -> int:
    return (int(cells[bit >> 6]) & ((1 << (bit & 63)) - 1)).bit_count() if bit & 63 else 0
