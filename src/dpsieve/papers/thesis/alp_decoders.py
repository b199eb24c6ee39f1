"""Other ways to read ALP cells than the likeliest level (`sparse.alp_estimates`), for comparison.

- 'prefix' (Algorithms 3 and 5 of the thesis): a walk along the columns adds 1 for a one and subtracts 1 for a zero; the
  estimate is the average of all its highest points.
- 'posterior': the median of the value under a fixed public prior. Half of the entries asked about are zeros; the others
  have values x with density proportional to x^-1.5, at levels and, where such values are possible, half way between
  them, which are at either level with probability 1/2. It is best for absent entries, and worse where present values
  are mostly large.

All read the same cells, at no further cost.
"""

from typing import Any, Literal, get_args

import numpy as np

from dpsieve.errors import InvalidValue
from dpsieve.sparse.alp import Alp
from dpsieve.sparse.alp_estimates import LEAST_TAKEN, taken_shares
from dpsieve.sparse.digests import KEY_WORDS, digest_items, hash_words, read_items
from dpsieve.sparse.embedding import Errors
from dpsieve.sparse.vector import SparseVector
from dpsieve.types import Bools, Floats, Words

Decoder = Literal["prefix", "posterior"]
DECODERS: tuple[Decoder, ...] = get_args(Decoder)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def decode_vector(vector: SparseVector, indices: Any, decoder: Decoder = "prefix") -> Floats:
    """Return an estimate for each index or key of a vector whose cells hold levels; see `SparseVector.get`.

    >>> options = {"neighbours": "l1", "dimension": 2**40, "variant": "alp", "max_value": 60, "sparsity": 2}
    >>> vector = SparseVector.private([7, 9], [40, 25], epsilon=8.0, **options)
    >>> decode_vector(vector, [7, 9]).shape
    (2,)
    """
    if not isinstance(vector.embedding, Alp):
        raise InvalidValue(
            "vector has no levels. Pass one of 'alp', 'histogram' or 'multiplicative'.", argument="vector"
        )
    items = read_items(indices, vector.notes.dimension, "indices")
    digests = digest_items(items, vector.words[:KEY_WORDS])
    return vector.with_listed(items, decode(vector.embedding, vector.words, digests, decoder))


def decode(mechanism: Alp, cells: Words, digests: Words, decoder: Decoder = "prefix") -> Floats:
    """Return an estimate for each entry, from what `Alp.draw` returned.

    >>> options = {"neighbours": "l1", "dimension": 2**40, "variant": "alp", "max_value": 60, "sparsity": 2}
    >>> vector = SparseVector.private([7, 9], [40, 25], epsilon=8.0, **options)
    >>> digests = digest_items(read_items([7, 9], 2**40, "indices"), vector.words[:KEY_WORDS])
    >>> decode(vector.embedding, vector.words, digests, "posterior").shape
    (2,)
    """
    if decoder not in DECODERS:
        raise InvalidValue(f"decoder is not known. Choose one of {', '.join(DECODERS)}.")
    bits = _bits(mechanism, cells, digests)
    return mechanism.values_at(_prefix(mechanism, bits) if decoder == "prefix" else _posterior(mechanism, cells, bits))


def prefix_errors(mechanism: Alp, value: float) -> Errors:
    """Return the distribution of estimate - value, where the middle of the highest points stands for their average.

    >>> options = {"neighbours": "l1", "dimension": 2**40, "variant": "alp", "max_value": 60, "sparsity": 2}
    >>> vector = SparseVector.private([7, 9], [40, 25], epsilon=8.0, **options)
    >>> prefix_errors(vector.embedding, 40.0).mean > 0
    True
    """
    return mechanism.errors(value, (1, 1))


def _bits(mechanism: Alp, cells: Words, digests: Words) -> Bools:
    """Return the bits of each entry along the columns, as `sparse.loops` places them: negative columns first."""
    words, columns = hash_words(cells[:KEY_WORDS], digests, 1), np.arange(mechanism.columns, dtype=np.uint64)
    z = words[:, :1] + (columns + np.uint64(1)) * words[:, 1:]
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    z ^= z >> np.uint64(31)
    places = np.uint64(mechanism.places)
    bit = columns * places + ((z >> np.uint64(32)) * places >> np.uint64(32))
    found: Bools = (cells[KEY_WORDS:][bit >> np.uint64(6)] >> (bit & np.uint64(63)) & np.uint64(1)).astype(np.bool_)
    return found


def _heights(mechanism: Alp, steps: Any) -> Any:
    """Return the heights of the walk at all levels, the lowest first, from the steps that the columns add."""
    negative = mechanism.levels if mechanism.signed else 0
    steps = np.concatenate([-steps[:, :negative][:, ::-1], steps[:, negative:]], axis=1)
    return np.concatenate([np.zeros((len(steps), 1), steps.dtype), np.cumsum(steps, axis=1)], axis=1)


def _prefix(mechanism: Alp, bits: Bools) -> Floats:
    heights = _heights(mechanism, np.where(bits, 1, -1))
    highest = heights == heights.max(axis=1, keepdims=True)
    average: Floats = highest @ np.arange(heights.shape[1], dtype=np.float64) / highest.sum(axis=1)
    return average


def _posterior(mechanism: Alp, cells: Words, bits: Bools) -> Floats:
    p = mechanism.flip
    taken = taken_shares(cells[KEY_WORDS:], mechanism.places, mechanism.columns, p)
    rate = p + np.maximum(taken, LEAST_TAKEN) * (1 - 2 * p)
    heights = _heights(mechanism, np.where(bits, np.log((1 - p) / rate), np.log(p / (1 - rate))))
    chances = np.exp(heights - heights.max(axis=1, keepdims=True))
    positions = np.arange(2 * chances.shape[1] - 1) / 2
    levels = np.floor(positions).astype(np.int64)
    masses = _prior(mechanism) * (chances[:, levels] + chances[:, np.ceil(positions).astype(np.int64)]) / 2
    sums = np.cumsum(masses, axis=1)
    median: Floats = positions[(2 * sums < sums[:, -1:]).sum(axis=1)]
    return median


def _prior(mechanism: Alp) -> Floats:
    """Return the prior of the values of levels and, where such values are possible, of those half way between them."""
    count = 2 * len(mechanism.all_edges) - 1
    step = 1 if mechanism.neighbours == "l1" or mechanism.gap > 1 else 2
    values = mechanism.values_at(np.arange(count) / 2)[::step]
    tail = np.abs(np.where(values == 0.0, np.inf, values)) ** -1.5 * np.gradient(values)
    prior = np.zeros(count)
    prior[::step] = np.where(values == 0.0, 0.5, 0.5 * tail / tail.sum())
    return prior
