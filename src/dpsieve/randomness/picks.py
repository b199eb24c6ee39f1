"""Exact picks: the k largest of counts plus Gumbel noise, one of many with given weights, uniform integers.

**Noisy order.** Gumbel noise is continuous, so only the bits that are needed are drawn. All scores are first computed
in floating point with a proven error; items whose intervals do not overlap are in order, and for the few that do, bits
are added until the balls separate.

**Weighted picks** (the exponential mechanism on segments of a grid). All weights are summed in floating point with a
proven error, and one uniform word picks a place in the sum. Within the error of an edge, which is rare, the sums are
computed in balls and more bits are drawn.
"""

from collections.abc import Iterator
from functools import cmp_to_key
from itertools import pairwise

import numpy as np
from flint import arb, ctx
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.exact.balls import first_whole, precision
from dpsieve.randomness.source import Source, resolve
from dpsieve.randomness.tables import LazyUniform
from dpsieve.types import Floats, Ints, Words

_NEGLIGIBLE = 700.0  # an exponent: e^-700 < 2^-1000
# Relative errors: of a weight (its exponent, at most 700, is right to 2^-51; its exponential to 2^-48), and for each
# addition.
_OF_WEIGHT, _OF_ADDING = 2.0**-40, 2.0**-52


def noisy_top(counts: ArrayLike, k: int, *, scale: float, source: Source | None = None) -> Ints:
    """Return the indices of the k largest counts[i] + scale * G_i, largest first, G_i standard Gumbel noise.

    The same as k picks by the exponential mechanism without replacement, P[i] proportional to e^(counts[i] / scale)
    (Durfee and Rogers 2019). When one unit changes every count by at most 1 in the same direction, each pick is
    (1/scale)-differentially private; when the directions may differ, (2/scale). Only the order is returned: the noisy
    values themselves would cost more. If k exceeds the number of counts, all of them are returned, in noisy order.

    >>> noisy_top([0, 10_000, 5_000], 2, scale=1.0).tolist()  # noise of scale 1 does not bridge such gaps
    [1, 2]
    """
    values = validate.integers("counts", counts, hint="Pass whole counts, one for each item.")
    k = min(validate.whole("k", k, low=1, hint="Pass how many of the largest to find."), len(values))
    scale = validate.between("scale", scale, 1e-9, 1e15, hint="Pass the scale of the noise, such as scale=1.0.")
    source = resolve(source)
    if k == 0:
        return np.empty(0, np.int64)
    words = source.words(len(values))
    score, error = _scores(values, scale, words)
    reach = np.partition(score - error, len(values) - k)[len(values) - k]
    candidates = np.flatnonzero(score + error >= reach)
    candidates = candidates[np.argsort(-score[candidates], kind="stable")]
    for start, stop in _clusters(score[candidates], error[candidates]):
        items = [_Score(int(values[i]), scale, int(words[i]), source, int(i)) for i in candidates[start:stop]]
        items.sort(key=cmp_to_key(_Score.compare), reverse=True)
        candidates[start:stop] = [item.index for item in items]
    return candidates[:k]


def _scores(counts: Ints, scale: float, words: Words) -> tuple[Floats, Floats]:
    """Return count / scale + G as floats, with a bound on the distance to every value the word allows."""
    edge = np.minimum(words, ~words).astype(np.float64)  # distance from 0 or from 1, in units of 2^-64
    uniform = (edge + 0.5) * 2.0**-64
    exponential = np.where(words < np.uint64(1 << 63), -np.log1p(-uniform), -np.log(uniform))
    gumbel, shift = -np.log(exponential), counts / scale
    rounding = 2.0**-46 * (1 + np.abs(gumbel) + np.abs(shift))
    with np.errstate(divide="ignore"):
        return shift + gumbel, rounding + np.where(edge < 8, np.inf, 4 / edge)


def _clusters(score: Floats, error: Floats) -> Iterator[tuple[int, int]]:
    """Return the ranges of a descending list whose intervals overlap."""
    above = np.minimum.accumulate(score - error)[:-1]
    below = np.maximum.accumulate((score + error)[::-1])[::-1][1:]
    cuts = (np.flatnonzero(above > below) + 1).tolist()
    return ((start, stop) for start, stop in pairwise([0, *cuts, len(score)]) if stop - start > 1)


class _Score(LazyUniform):
    """The score of one item, as a ball that narrows as bits of its uniform are drawn."""

    def __init__(self, count: int, scale: float, word: int, source: Source, index: int) -> None:
        super().__init__(source, word, 64)
        self._count, self._scale, self.index = count, scale, index

    def compare(self, other: "_Score") -> int:
        """Return 1 when this score is the larger one, -1 when the other is; equal scores have probability zero."""
        while True:
            mine, its = self._ball(), other._ball()
            if mine > its:
                return 1
            if mine < its:
                return -1
            self.extend()
            other.extend()

    def _ball(self) -> arb:
        with precision(self.bits + 64):
            low, high = self.ends()
            gumbels = [-(-(1 - end).log()).log() for end in (low, high)]
            return arb(self._count) / arb(self._scale) + gumbels[0].union(gumbels[1])


def draw_distinct(count: int, below: int, excluded: Words, source: Source) -> Words:
    """Return a uniform set of `count` numbers in [0, below), below <= 2^64, without the `excluded` sorted ones.

    They are drawn as ranks among the numbers that are not excluded.
    """
    ranks = _distinct(count, below - len(excluded), source)
    before = excluded - np.arange(len(excluded), dtype=np.uint64)  # how many numbers are free before each
    return ranks + np.searchsorted(before, ranks, side="right").astype(np.uint64)


def _distinct(count: int, below: int, source: Source) -> Words:
    """Return a uniform set of numbers, sorted, by rejection of repeated ones."""
    if 2 * count > below:
        omitted = _distinct(below - count, below, source)
        return np.setdiff1d(np.arange(below, dtype=np.uint64), omitted, assume_unique=True)
    numbers = np.empty(0, np.uint64)
    while len(numbers) < count:
        numbers = np.unique(np.concatenate([numbers, uniform_words(count - len(numbers), below, source)]))
    return numbers


def uniform_integers(count: int, below: int, source: Source) -> Ints:
    """Return independent uniform integers from [0, below), by rejection of bits that are too large.

    >>> from dpsieve.randomness import SystemSource
    >>> set(uniform_integers(100, 3, SystemSource()).tolist()) <= {0, 1, 2}
    True
    """
    return uniform_words(count, below, source).view(np.int64)


def uniform_words(count: int, below: int, source: Source) -> Words:
    """Return independent uniform words from [0, below), for below up to 2^64, by the same rejection."""
    spare, last = np.uint64(64 - max(1, (below - 1).bit_length())), np.uint64(below - 1)
    out = np.empty(0, np.uint64)
    while len(out) < count:
        words = source.words(2 * (count - len(out)) + 16) >> spare
        out = np.concatenate([out, words[words <= last]])
    return out[:count]


def shuffled(count: int, source: Source) -> Ints:
    """Return a uniformly random permutation of 0, ..., count - 1: the order of random words, redrawn if two are equal.

    >>> from dpsieve.randomness import SystemSource
    >>> sorted(shuffled(5, SystemSource()).tolist())
    [0, 1, 2, 3, 4]
    """
    while True:
        words = source.words(count)
        order = np.argsort(words)
        ordered = words[order]
        if not (ordered[1:] == ordered[:-1]).any():
            return order.astype(np.int64, copy=False)


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
    index = int(np.searchsorted(sums, place, side="right"))
    if index < len(sums) and place + 3 * error < sums[index] and (index == 0 or sums[index - 1] + 3 * error < place):
        return int(heavy[index])
    return _exact_pick(lengths, falls, epsilon, divisor, LazyUniform(source, word, 64))


def _exact_pick(lengths: Ints, falls: Ints, epsilon: float, divisor: int, uniform: LazyUniform) -> int:
    """Return the first i at which the cumulative share exceeds the uniform number."""
    positive = np.flatnonzero(lengths)
    pairs = list(zip(lengths[positive].tolist(), falls[positive].tolist(), strict=True))
    sums_by_precision: dict[int, list[arb]] = {}

    def share(i: int) -> arb:
        if ctx.prec not in sums_by_precision:
            sums_by_precision.clear()
            sums = sums_by_precision[ctx.prec] = [arb(0)]
            for length, fall in pairs:
                sums.append(sums[-1] + length * (-arb(epsilon) * fall / divisor).exp())
        sums = sums_by_precision[ctx.prec]
        return sums[i + 1] / sums[-1]

    return int(positive[first_whole(lambda i: uniform.below(lambda: share(i)), 0, len(pairs) - 1)])
