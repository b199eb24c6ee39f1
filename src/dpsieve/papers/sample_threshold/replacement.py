"""The least delta of sample-and-threshold when a client's value is replaced, by branch and bound.

`noise.sample_threshold_delta.replace`, which the library uses, bounds H(k, l) of all pairs of frequencies at once. Here
the rectangle of pairs with the largest bound is split until it is a single pair, whose bound is H(k, l) itself: that
pair is the worst one, and its H the least delta.

One k and all l from l1 to l2: H(k, l) is a sum of G(l, s) over the outputs of the first cell, and each is bounded by
its value at its peak l*(s) moved into [l1, l2]. For l1 = l2 this is H itself. For several k, the chords of the library
serve, with the peaks of G and of h moved into the rectangle.

Results are never below the exact value, and mostly above it by less than 1e-8 of it. At low rates the differences in G
cost more: in three thousand settings 5e-8 at a rate of 0.001, and at most 7.4e-6, for a delta of 1e-52.
"""

import heapq
import math
from functools import lru_cache

import numpy as np

from dpsieve import validate
from dpsieve.exact.balls import ball
from dpsieve.noise.sample_threshold import check_rate, check_threshold
from dpsieve.types import Floats

from dpsieve.noise.sample_threshold_delta import (  # isort: skip
    Pairs, Slopes, distribution_of, replacement_limits, vanishing,
)  # fmt: skip

_MOST_CUTS = 10_000  # hundreds mostly suffice; thousands at an epsilon of 0.003, or rates next to one
_FAR = 150.0  # windows leave out less than e^-150 of a row
_LOST, _TINY = 1e-64, 1e-300


def exact_replacement_delta(epsilon: float, rate: float, threshold: int) -> float:
    """Return the least delta at epsilon when one client's value is replaced, rounded up.

    Where the search would need rows beyond 2^20 or too many cuts (rates within 1e-7 of one, or epsilon 0.003 with a
    threshold above 100), the result is an upper bound, at most 1.5 times the exact delta in experiments.

    >>> f"{exact_replacement_delta(1.0, 0.3, 24):.4g}"
    '1.257e-08'
    """
    epsilon, rate, threshold = validate.positive_epsilon(epsilon), check_rate(rate), check_threshold(threshold)
    least, close = replacement_limits(epsilon, rate, threshold)
    pairs = Rectangles.of(epsilon, rate, threshold, least) if close > least * (1 + 1e-9) else None
    if pairs is None:
        return close
    gone, _ = vanishing(lambda: ball(epsilon).exp(), rate, threshold)
    return min(close, max(gone, pairs.largest()))


class Rectangles(Pairs):
    """All pairs, and bounds on any rectangle of them."""

    def __init__(self, factor: float, rate: float, threshold: int, last_k: int, last_l: int, beyond: float) -> None:
        super().__init__(factor, rate, threshold, last_k, last_l, beyond)
        self._pmf = lru_cache(maxsize=256)(self._make_pmf)
        self._sums = lru_cache(maxsize=256)(self._make_sums)
        self._outputs = lru_cache(maxsize=256)(self._make_outputs)

    def largest(self) -> float:
        """Return the largest H(k, l) over all k from the threshold on and all l, to 1e-9 of it, rounded up.

        After too many cuts it is the current bound, which is above all H(k, l) as well.
        """
        heap, largest = [(-self.bound_within(*self.all), self.all)], 0.0
        for _ in range(_MOST_CUTS):
            bound, (k1, k2, l1, l2) = heapq.heappop(heap)
            k, place = (k1 + k2) // 2, (l1 + l2) // 2
            if k1 == k2:
                largest = max(largest, self.bound_within(k, k, place, place))
            if -bound <= largest * (1 + 1e-9):
                return -bound
            parts = [(k1, k, l1, l2), (k + 1, k2, l1, l2)]
            if l2 - l1 > max(16, 8 / self._rate) * (k2 - k1):  # where the range of l makes the bound loose
                parts = [(k1, k2, l1, place), (k1, k2, place + 1, l2)]
            for part in parts:
                heapq.heappush(heap, (max(-self.bound_within(*part), bound), part))
        return -heap[0][0]

    def bound_within(self, k1: int, k2: int, l1: int, l2: int) -> float:
        """Return an upper bound on all H(k, l) in the rectangle; H(k, l) itself for a single pair."""
        if k1 < k2:
            return self._bound_by_chords(k1, k2, l1, l2)
        mass, slopes, rare = self._outputs(k1)
        return float(mass @ self._gain(slopes, l1, l2)) * self._more + rare

    def _gain(self, at: Slopes, l1: int, l2: int) -> Floats:
        gain, past = super()._gain(at, l1, l2), np.flatnonzero(at.peak < l1)
        if len(past):
            now, after = self._sums(l1)
            below = np.ceil((l1 + 1) * at.edge[past]).astype(np.int64) - 1
            below = np.clip(below, self._threshold - 1, len(now) - 1)
            gain[past] = now[below] * self._more - at.slope[past] * after[below] * self._less
        return np.clip(gain, 0.0, 1.0)

    def _chords(self, k1: int, k2: int) -> tuple[Slopes, Floats]:
        knots, bounds = super()._chords(k1, k2)
        z, t, s = self._factor, self._threshold, knots.slope[1:]
        q = self._quotients(s)
        past = np.flatnonzero(np.maximum(np.ceil((t - 1) / q), t) < k1)
        if len(past):
            before, now = self._rests(k1 - 1)
            above = np.clip(np.floor(k1 * q[past]).astype(np.int64) + 1, t, len(now) - 1)
            bounds[past] = s[past] * now[above] * self._more - z * before[above] * self._less
        return knots, np.maximum(np.maximum(bounds, (s - z) * self._more), 0.0)

    def _make_outputs(self, k: int) -> tuple[Floats, Slopes, float]:
        """Return the masses and slopes of the outputs of row k, and the total mass of negligible outputs."""
        p, row = self._rate, self._pmf(k)[self._threshold :]
        x = np.arange(self._threshold, self._threshold + len(row))
        mass, slope = np.maximum(row, _TINY) * self._more, self._factor * (k - x) / (k * (1 - p))
        before, silent = self._silent[min(k - 1, self._last)], self._silent[min(k, self._last + 1)] + self._beyond
        mass = np.append(mass, silent * self._more)
        slope = np.append(slope, self._factor * before / silent) * self._less
        rare = mass < self._beyond / len(mass)
        counts = (slope < 1 / (1 - p)) & ~rare
        return mass[counts], self._slopes(slope[counts]), float(mass[rare].sum()) * self._more + _LOST

    def _make_pmf(self, trials: int) -> Floats:
        """Return P[X = 0], P[X = 1], ... for X ~ Binomial(trials, p), without negligible ones."""
        p, mean = self._rate, trials * self._rate
        last = min(trials, math.ceil(mean + math.sqrt(2 * mean * _FAR) + _FAR))
        x, mode = np.arange(1, last + 1), min(int(mean), last)
        ratios = (trials + 1 - x) * (p / (1 - p)) / x  # of each to the one before
        return distribution_of(1 / ratios[:mode], ratios[mode:])

    def _make_sums(self, row: int) -> tuple[Floats, Floats]:
        """Return the distribution functions of rows l and l + 1, before the threshold."""
        now = np.append(self._pmf(row), 0.0)
        return np.cumsum(now), np.cumsum(self._next(now))

    def _rests(self, row: int) -> tuple[Floats, Floats]:
        """Return P[X >= 0], P[X >= 1], ... of rows k and k + 1, before the threshold."""
        now = np.append(self._pmf(row), [0.0, 0.0])
        return np.cumsum(now[::-1])[::-1], np.cumsum(self._next(now)[::-1])[::-1]

    def _next(self, row: Floats) -> Floats:
        """Return the row with one more trial, given a row that ends with a zero."""
        after = (1 - self._rate) * row
        after[1:] += self._rate * row[:-1]
        return after
