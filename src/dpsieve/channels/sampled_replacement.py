"""The exact delta of sample-and-threshold when one client replaces its value by another one.

Two cells change at once: one from k to k-1 clients, another one from l to l+1. With the rows P of
`channels.sampled_divergence` and z = e^epsilon, delta is the largest over k >= 1 and l >= 0 of

    H(k, l) = sum over x, y of max(0, P_k(x) P_l(y) - z P_(k-1)(x) P_(l+1)(y))
            = sum over x of P_k(x) G(l, z P_(k-1)(x) / P_k(x)),
    G(l, s) = sum over y of max(0, P_l(y) - s P_(l+1)(y)).

Both directions are covered, since the pair (k-1, l+1) -> (k, l) is of the same kind. G is B of `sampled_divergence`,
at the frequency l+1 and the slope s: it does not fall up to its peak l*(s) = ceil((t-1) / (1 - (1-p) s)) - 1, does not
grow after it, and is zero for s (1-p) >= 1. In s it falls. In the same way H does not grow with k from
(t-1) / (1 - 1/z) on. Rows k < t are all 'nothing', and leave G(l, z), whose largest value is that of a client that
leaves.

So a rectangle of pairs k1 <= k <= k2, l1 <= l <= l2 is bounded: G by its value at l*(s) moved into [l1, l2], with the
slope at k1, where it is least; P_k(x) by P_k2(x) times max(1, (k2-x) / (k2 (1-p)))^(k2-k1), the steepest rise down
the rows; 'nothing' by its mass at k1. For one pair the bound is H(k, l). The rectangle with the largest bound is cut in
two until it is one pair: no other pair has more.

Everything is in floats with positive terms, whose relative errors are below `margin`, eight units in the last place for
each row; each difference is taken on the safe side. What is above the exact value is below 1e-8 of it.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsieve.channels.sampled_divergence import add_remove, appearing, vanishing
from dpsieve.privacy.rigorous import Ball, ball, lower, minimise

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LARGEST = 1 << 20  # rows in the table of one cell
_FAR = 150.0  # windows leave out less than e^-150 of a row
_LOST = 1e-64
_TINY = 1e-300  # stands for a mass that is below it


def replace(epsilon: float, rate: float, threshold: int) -> float:
    """Return the least delta at epsilon when one client's value is replaced, rounded up.

    Where the search would need rows beyond 10^6 (threshold / rate or threshold / epsilon above about 10^6), the answer
    is an upper bound instead, the smaller of two. A cell that gains a client adds at most ln(1/(1-p)) to the loss: so
    it is at most what appears at the slope (1-p) e^epsilon, which is close for small rates. And one client leaves, then
    another one comes: (1 + e^(epsilon/2)) delta(epsilon/2).

    >>> f"{replace(1.0, 0.3, 24):.4g}"
    '1.257e-08'
    """
    return _search(epsilon, rate, threshold, _Table.largest)


def roughly_replace(epsilon: float, rate: float, threshold: int) -> float:
    """Return about the same as `replace`, within a tenth or so on either side, in a fraction of the time.

    Nothing is proven about it: it is for plans, which check what they have found with `replace`.
    """
    return _search(epsilon, rate, threshold, _Table.roughly)


def _search(epsilon: float, rate: float, threshold: int, how: Callable[["_Table"], float]) -> float:
    least, _ = add_remove(epsilon, rate, threshold)
    bound = max(least, _bounded(epsilon, rate, threshold))
    depth = 30.0 - math.log(max(least, 1e-300))
    last_l = (threshold + math.sqrt(2 * threshold * depth) + 2 * depth) / rate  # P[X_l < t] <= e^-depth (Chernoff)
    last_k = (threshold - 1) / max(-math.expm1(-epsilon), 1e-12) + 2
    if bound <= least * (1 + 1e-9) or max(last_k, last_l) > _LARGEST:
        return bound
    gone, _ = vanishing(lambda: ball(epsilon).exp(), rate, threshold)
    last = math.ceil(last_k), math.ceil(max(last_k, last_l))
    table = _Table(math.exp(epsilon), rate, threshold, *last, math.exp(-depth))
    return min(bound, max(gone, how(table)))


def _bounded(epsilon: float, rate: float, threshold: int) -> float:
    """Return the smaller of the two bounds that `replace` names."""
    half, _ = add_remove(epsilon / 2, rate, threshold)
    twice = min(1.0, half * (1 + math.exp(epsilon / 2)) * (1 + 2.0**-50))

    def steepest() -> Ball:
        return ball(epsilon).exp() * (1 - ball(rate))

    return min(twice, appearing(steepest, rate, threshold)[0]) if lower(steepest) > 1 else twice


@dataclass(frozen=True)
class _Outputs:
    """The outputs of rows k1 to k2: bounds on their masses, slopes s, and where G(l, s) has its peak.

    `edge` is 1 - (1-p) s; `rest` is the mass of all outputs that are too rare to matter.
    """

    mass: Floats
    slope: Floats
    edge: Floats
    peak: Floats
    rest: float


class _Table:
    """Rows of both cells, and the search over them."""

    def __init__(self, factor: float, rate: float, threshold: int, last_k: int, last: int, beyond: float) -> None:
        self._factor, self._rate, self._threshold, self._last_k, self._last = factor, rate, threshold, last_k, last
        self._beyond = beyond  # at least P[X_last < t]
        self.margin = (last + 64) * 2.0**-50
        self._silent = self._silences()
        self._pmf = lru_cache(maxsize=256)(self._make_pmf)
        self._sums = lru_cache(maxsize=256)(self._make_sums)
        self._outputs = lru_cache(maxsize=256)(self._make_outputs)

    def largest(self) -> float:
        """Return the largest H(k, l) over all k from the threshold on and all l."""
        heap = [(-math.inf, (self._threshold, self._last_k, 0, self._last))]
        while True:
            bound, (k1, k2, l1, l2) = heapq.heappop(heap)
            if (k1, l1) == (k2, l2):
                return -bound
            k, place = (k1 + k2) // 2, (l1 + l2) // 2
            parts = [(k1, k, l1, l2), (k + 1, k2, l1, l2)]
            if k1 == k2:
                parts = [(k1, k2, l1, place), (k1, k2, place + 1, l2)]
            for part in parts:
                heapq.heappush(heap, (max(-self._bound(*part), bound), part))

    def roughly(self) -> float:
        """Return the largest bound on one k and all l that a golden section over k finds."""
        found: list[float] = []

        def loss(k: float) -> float:
            found.append(self._bound(round(k), round(k), 0, self._last))
            return -found[-1]

        minimise(loss, self._threshold, self._last_k, rounds=14)
        return max(found)

    def _bound(self, k1: int, k2: int, l1: int, l2: int) -> float:
        out, more, less = self._outputs(k1, k2), 1 + self.margin, 1 - self.margin
        place = np.clip(out.peak, l1, l2).astype(np.int64)
        gain = (self._silent[place] + self._beyond) * more - out.slope * self._silent[place + 1] * less
        past = np.flatnonzero(out.peak < l1)
        if len(past):
            now, after = self._sums(l1)
            below = np.ceil((l1 + 1) * out.edge[past]).astype(np.int64) - 1
            below = np.clip(below, self._threshold - 1, len(now) - 1)
            gain[past] = now[below] * more - out.slope[past] * after[below] * less
        return float(out.mass @ np.clip(gain, 0.0, 1.0)) * more + out.rest

    def _make_outputs(self, k1: int, k2: int) -> _Outputs:
        p, x = self._rate, np.arange(self._threshold, k2 + 1)
        row = self._pmf(k2)[self._threshold :]
        x, mass = x[: len(row)], np.maximum(row[: len(x)], _TINY)
        rise = np.maximum((k2 - x) / (k2 * (1 - p)), 1.0)
        with np.errstate(over="ignore"):
            mass = np.minimum(mass * rise ** (k2 - k1) * (1 + self.margin), 1.0)
        slope = self._factor * np.maximum(k1 - x, 0) / (k1 * (1 - p))
        before, silent = self._silent[k1 - 1], self._silent[k1] + self._beyond
        mass = np.append(mass, silent * (1 + self.margin))
        slope = np.append(slope, self._factor * before / silent) * (1 - self.margin)
        edge = 1 - (1 - p) * slope
        rare = mass < self._beyond / len(mass)
        rest, counts = float(mass[rare].sum()) * (1 + self.margin) + _LOST, (edge > 0) & ~rare
        edge = edge[counts]
        peak = np.maximum(np.ceil((self._threshold - 1) / edge), 1.0) - 1
        return _Outputs(mass[counts], slope[counts], edge, np.minimum(peak, 2.0**60), rest)

    def _make_pmf(self, trials: int) -> Floats:
        """Return P[X = 0], P[X = 1], ... for X ~ Binomial(trials, p), as far as they are not negligible."""
        p, mean = self._rate, trials * self._rate
        last = min(trials, math.ceil(mean + math.sqrt(2 * mean * _FAR) + _FAR))
        x, mode = np.arange(1, last + 1), min(int(mean), last)
        ratios = (trials + 1 - x) * (p / (1 - p)) / x  # of each to the one before
        return _normal(1 / ratios[:mode], ratios[mode:])

    def _make_sums(self, row: int) -> tuple[Floats, Floats]:
        """Return the distribution functions of rows l and l + 1, before the threshold."""
        now = np.append(self._pmf(row), 0.0)
        after = (1 - self._rate) * now
        after[1:] += self._rate * now[:-1]
        return np.cumsum(now), np.cumsum(after)

    def _silences(self) -> Floats:
        """Return P[X_l < t] - P[X_last < t] for l = 0, 1, ..., and 0 after the last.

        The count reaches t with trial i + 1 with probability p P[X_i = t - 1]; over i >= l these add up to P[X_l < t].
        """
        p, t = self._rate, self._threshold
        i = np.arange(t, max(self._last, t) + 1)
        ratios = (1 - p) * i / (i + 1 - t)  # of P[X_i = t-1] to the one before
        mode = min(int((t - 1) / p) + 1 - t, len(ratios))
        reach = _normal(1 / ratios[: max(mode, 0)], ratios[max(mode, 0) :])
        rest = np.minimum(np.cumsum(reach[::-1])[::-1], 1.0)  # P[X_i < t], i = t-1, t, ...
        return np.concatenate([np.ones(t - 1), rest, [0.0]])


def _normal(left: Floats, right: Floats) -> Floats:
    """Return a distribution from the ratios to the left and to the right of its mode."""
    down = np.cumprod(left[::-1])[::-1]
    row = np.concatenate([down, [1.0], np.cumprod(right)])
    return np.asarray(row / row.sum(), dtype=np.float64)
