"""One exact draw among many with given weights: the exponential mechanism on segments of a grid.

All weights are summed in floating point with a proven error, and one uniform word picks a place in the sum. Where the
word falls within the error of an edge, which is rare, the sums are made again in balls and more bits are drawn.
"""

import numpy as np
from flint import arb, ctx

from dpsieve.exact.search import first_whole
from dpsieve.randomness.source import Source
from dpsieve.randomness.tables import LazyUniform
from dpsieve.types import Ints

_NEGLIGIBLE = 700.0  # an exponent: e^-700 < 2^-1000
# Relative errors: of a weight (its exponent, at most 700, is right to 2^-51; its exponential to 2^-48), and for each
# addition.
_OF_WEIGHT, _OF_ADDING = 2.0**-40, 2.0**-52


def weighted_pick(lengths: Ints, falls: Ints, epsilon: float, divisor: int, source: Source) -> int:
    """Return i with probability proportional to lengths[i] e^(-epsilon falls[i] / divisor), exactly.

    Lengths and falls are whole and not negative, below 2^62; a fall of 0 with a length above 0 must be among them.

    >>> from dpsieve.testing import insecure_source
    >>> weighted_pick(np.array([0, 5, 1]), np.array([0, 0, 9]), 100.0, 1, insecure_source(1))
    1
    """
    rate = epsilon / divisor
    heavy = np.flatnonzero(falls <= _NEGLIGIBLE / rate)  # the others together are far below the error
    sums = np.cumsum(lengths[heavy] * np.exp(falls[heavy] * -rate))
    total = sums[-1]
    error = total * (len(sums) * _OF_ADDING + _OF_WEIGHT)
    word = int(source.words(1)[0])
    place = word * 2.0**-64 * total
    found = int(np.searchsorted(sums, place, side="right"))
    if found < len(sums) and place + 3 * error < sums[found] and (found == 0 or sums[found - 1] + 3 * error < place):
        return int(heavy[found])
    return _exact_pick(lengths, falls, epsilon, divisor, LazyUniform(source, word, 64))


def _exact_pick(lengths: Ints, falls: Ints, epsilon: float, divisor: int, uniform: LazyUniform) -> int:
    """Return the first i whose share of the sum up to it, included, is above the uniform."""
    kept = np.flatnonzero(lengths)
    pairs = list(zip(lengths[kept].tolist(), falls[kept].tolist(), strict=True))
    known: dict[int, list[arb]] = {}

    def share(i: int) -> arb:
        if ctx.prec not in known:
            known.clear()
            sums = known[ctx.prec] = [arb(0)]
            for length, fall in pairs:
                sums.append(sums[-1] + length * (-arb(epsilon) * fall / divisor).exp())
        sums = known[ctx.prec]
        return sums[i + 1] / sums[-1]

    return int(kept[first_whole(lambda i: uniform.below(lambda: share(i)), 0, len(pairs) - 1)])
