"""Order of many keys: a set in its true order, one key against all others, and how many come out above it.

Corollary 6.1 of Cohen, Geri, Sarlos and Stemmer (2021): the optimal channel makes the first two as likely as any
private channel that reports as often. All are exact sums over the rows.

Two tokens in one cell are in either order with probability 1/2, and so are two keys without a token: within a cell, and
within 'nothing', each key has a place u that is uniform on [0, 1], and the larger place is above. So 'nothing' is one
more cell, below all others. Of r keys in one cell any order has probability 1 / r!.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.channel import Channel
from dpsieve.channels.rows import CELLS, LARGEST_FREQUENCY, Rows
from dpsieve.errors import InvalidValue
from dpsieve.estimation.estimators import a_channel, histogram, true_frequencies
from dpsieve.types import Floats, Ints

_MOST_KEYS = 1000
_NODES = 32
_STEEP, _NEVER = 30.0, -50.0  # a factor of e^30 is integrated in one piece; e^-50 is as good as 0


@dataclass(frozen=True)
class KeysAbove:
    """How many keys come out above one key: the mean, and the variance around it."""

    expectation: float
    variance: float


def subset_concordance(channel: Channel, frequencies: ArrayLike) -> float:
    """Return the probability that keys of these true frequencies all come out in their true order.

    Frequencies must differ; at most 1,000 of them. For two keys it is `concordance`. One pass over the cells, from
    'nothing' up: with G_k the probability that the k lowest keys are in the cells so far, in order, and m_j that of key
    j in the next cell,

        G_k becomes the sum over r = 0, 1, ... of G_(k-r) m_(k-r+1) ... m_k / r!.

    >>> from dpsieve.channels import optimal
    >>> round(subset_concordance(optimal(1.0, 1e-8), [20, 25, 30, 60]), 4)
    0.9777
    """
    channel = a_channel(channel)
    rows = np.sort(true_frequencies("frequencies", frequencies).ravel())
    if (np.diff(rows) == 0).any():
        raise InvalidValue("frequencies holds equal ones, which have no order. Pass different ones.")
    if not 2 <= len(rows) <= _MOST_KEYS:
        raise InvalidValue(f"frequencies must hold from 2 to {_MOST_KEYS:,} keys.")
    placed = _joined(np.append(1.0, np.zeros(len(rows))), channel.rows.withheld(rows))
    wide = channel.rows.spread
    for some in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows) >= 2 * wide) + 1):
        first, last = some[0], some[-1] + 1
        edges = channel.rows.cell_edges(max(int(rows[first]) - wide, 0), int(rows[last - 1]) + wide)
        step = max(CELLS // len(some), 1)
        for start in range(0, len(edges) - 1, step):
            for mass in channel.rows.cell_probabilities(rows[first:last], edges[start : start + step + 1]).T:
                held = np.flatnonzero(mass)
                if len(held):
                    a, b = first + held[0], first + held[-1] + 1
                    placed[a : b + 1] = _joined(placed[a : b + 1], mass[held[0] : held[-1] + 1])
    return float(placed[-1])


def key_concordance(channel: Channel, i: int, frequencies: ArrayLike, counts: ArrayLike | None = None) -> float:
    """Return the probability that a key of true frequency i comes out in its true order with every other key.

    `counts[t]` other keys have frequency `frequencies[t]`; those of frequency i have no order with it and are left out.
    With over_k(u) the probability that a key of frequency k is above place u of a cell, which falls evenly with u, it
    is the sum over cells, with the mass of key i, of

        integral over u of  prod_{k<i} (1 - over_k(u))^n_k  prod_{k>i} over_k(u)^n_k  du.

    The integrand is the exponential of a concave function. It is halved until that changes by less than 30 on a part,
    and a Gauss rule of 32 nodes does the rest: exact where there are fewer than 64 keys, and right to 1e-12 else.

    >>> from dpsieve.channels import optimal
    >>> round(key_concordance(optimal(1.0, 1e-8), 30, [20, 25, 60], [100, 1, 1]), 4)
    0.9833
    """
    channel, rows, keys, i = _others(channel, i, frequencies, counts)
    rows, keys = rows[rows != i], keys[rows != i]
    own, above, inside = _cells(channel.rows, i, rows)
    lower = rows < i
    total, nodes, weights = 0.0, *np.polynomial.legendre.leggauss(_NODES)
    nodes, weights = (nodes + 1) / 2, weights / 2
    cell = np.flatnonzero(own)
    left, width = np.zeros(len(cell)), np.ones(len(cell))

    def height(place: Floats) -> Floats:
        """Return the logarithm of the integrand at a place of each part."""
        over = above[:, cell] + (1 - place) * inside[:, cell]
        chance = np.where(lower[:, None], 1 - over, over)
        with np.errstate(divide="ignore"):
            return np.asarray(keys @ np.log(np.clip(chance, 1e-300, 1.0)))

    while len(cell):
        heights = np.array([height(left + width * node) for node in nodes[[0, _NODES // 2, -1]]])
        low, high = heights.min(axis=0), heights.max(axis=0)
        steep = (high - low > _STEEP) & (high > _NEVER) & (width > 2.0**-40)
        every, kept = (cell, left, width), ~steep
        cell, left, width = cell[kept], left[kept], width[kept]
        for node, weight in zip(nodes, weights, strict=True):
            total += weight * float((own[cell] * width) @ np.exp(height(left + width * node)))
        cell, left, width = (part[steep] for part in every)
        cell, left, width = np.tile(cell, 2), np.concatenate([left, left + width / 2]), np.tile(width / 2, 2)
    return float(total)


def keys_above(channel: Channel, i: int, frequencies: ArrayLike, counts: ArrayLike | None = None) -> KeysAbove:
    """Return how many of the other keys come out above a key of true frequency i: its rank is one more than that.

    `counts[t]` other keys have frequency `frequencies[t]`. Given the cell and the place u of the key, others are above
    it independently, so mean and variance are sums of polynomials in u over the cells.

    >>> from dpsieve.channels import optimal
    >>> keys_above(optimal(1.0, 1e-8), 100, [30, 99, 500], [50, 3, 7])
    KeysAbove(expectation=7.806..., variance=0.983...)
    """
    channel, rows, keys, i = _others(channel, i, frequencies, counts)
    own, above, inside = _cells(channel.rows, i, rows)
    a, b = keys @ above, keys @ inside
    square = above**2 + above * inside + inside**2 / 3  # the mean of over_k(u)^2
    expectation = float(own @ (a + b / 2))
    spread = float(own @ (keys @ (above + inside / 2 - square)))
    return KeysAbove(expectation, spread + float(own @ ((a + b / 2 - expectation) ** 2 + b**2 / 12)))


def _others(
    channel: Channel, i: int, frequencies: ArrayLike, counts: ArrayLike | None
) -> tuple[Channel, Ints, Floats, int]:
    hint = "Pass the true frequency of one key, such as i=20."
    i = validate.whole("i", i, low=1, high=LARGEST_FREQUENCY, hint=hint)
    return a_channel(channel), *histogram(frequencies, counts), i


def _cells(rows: Rows, i: int, others: Ints) -> tuple[Floats, Floats, Floats]:
    """Return the mass of key i in each cell, 'nothing' first; and of each other key that above and that inside."""
    wide = rows.spread
    edges = rows.cell_edges(max(i - wide, 0), i + 3 * wide)
    near, far = np.abs(others - i) < 2 * wide, others >= i + 2 * wide
    cells = np.zeros((len(others), len(edges)))  # the last column is all that lies above
    cells[near, :-1] = rows.cell_probabilities(others[near], edges)
    cells[far, -1] = rows.reported(others[far])
    over = np.cumsum(cells[:, ::-1], axis=1)[:, ::-1]
    own = rows.cell_probabilities(np.array([i]), edges)[0]
    some = np.flatnonzero(own)
    above = np.column_stack([rows.reported(others), over[:, 1:][:, some]])
    inside = np.column_stack([rows.withheld(others), cells[:, some]])
    return np.append(rows.withheld(np.array([i])), own[some]), above, inside


def _joined(placed: Floats, mass: Floats) -> Floats:
    """Return the probabilities that the first 0, 1, 2, ... keys are in order, with one more cell of these masses."""
    total, term = placed.copy(), placed
    for r in range(1, len(mass) + 1):
        term = np.append(0.0, term[:-1] * mass / r)
        if not term.any():
            break
        total += term
    return total
