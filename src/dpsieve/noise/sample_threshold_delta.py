"""The delta of sample-and-threshold: exact for a client more or less, a close bound for one that replaces its value.

**Add/remove.** Row k is T(X_k): X_k ~ Binomial(k, p), and T turns counts below the threshold t into 'nothing'. With
z = e^epsilon, q = 1 - (1-p)/z and q' = 1 - (1-p) z, the divergences of appearing and vanishing are

    A(k) = sum over j >= t, j > kq of P_k(j) (j - kq) / (k (1-q)),
    B(k) = max(0, sum over j < max(t, k q') of P_k(j) (k q' - j) / (k (1-p))),
    delta = max(A(ceil((t-1) / q)), B(ceil((t-1) / q'))).

delta does not grow with t nor shrink with p. The unit that is added or removed may have its own rate, `own` instead of
p. All sums have positive terms only, so small deltas are precise; every result is rounded up by less than 1e-9 of it.

**Replacement.** Two cells change at once: one from k to k-1 clients, another from l to l+1. One bound covers all pairs
H(k, l): with knots s_0 = 0 < ... < s_n = 1 / (1-p) and c_j >= 0 from the chords of a convex function, it is at most the
sum over j of c_j h(k, s_j) for h(k, s) = sum over x of max(0, s P_k(x) - z P_(k-1)(x)), whose largest value over k is
known. Terms are positive floats with relative errors below `margin`; differences are rounded to the safe side.

Proofs: docs/background/federated.md#the-delta-of-one-histogram.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from dpsieve.exact.balls import Ball, ball, lower, upper
from dpsieve.types import Floats

Slope = Callable[[], Ball]
"""The factor z on the other row, as a ball at the precision in force: e^epsilon."""

_ULP = 2.0**-53
_FIRST, _LONGEST = 256, 1 << 22
_LARGEST = 1 << 20  # rows in the table of one cell
_LOST = 1e-64
_TINY = 1e-300  # replaces masses below it
_NEVER = 2.0**60


def add_remove(epsilon: float, rate: float, threshold: int, own: float | None = None) -> tuple[float, int]:
    """Return the least delta at epsilon for add/remove neighbours, rounded up, and the frequency k that needs it.

    `own` is the rate of the unit that is added or removed, if it differs from that of the others.

    >>> delta, k = add_remove(1.0, 0.10535, 20)
    >>> f"{delta:.4g}", k
    ('6.865e-15', 29)
    """

    def slope() -> Ball:
        return ball(epsilon).exp()

    return max(appearing(slope, rate, threshold, own), vanishing(slope, rate, threshold, own))


def appearing(slope: Slope, rate: float, threshold: int, own: float | None = None) -> tuple[float, int]:
    """Return the largest divergence of row k from `slope` times row k-1, rounded up, and k; slope > 1 - own."""

    def below() -> Ball:  # 1 - q = (1-p) / g
        return (1 - ball(rate)) / (slope() if own is None else 1 + (slope() - 1) * ball(rate) / ball(own))

    def at(k: int) -> tuple[float, int]:
        excess = max(0.0, upper(lambda: threshold - k + k * below()))  # t - kq
        series = falling_series(k - threshold, threshold + 1, rate / (1 - rate), excess, 1.0)
        weight = upper(lambda: _share(own, rate) * mass(k, threshold, rate) / (k * below()))
        return product_above(weight, series), k

    return max(at(max(k, threshold)) for k in _ceilings(lambda: (threshold - 1) / (1 - below())))


def vanishing(slope: Slope, rate: float, threshold: int, own: float | None = None) -> tuple[float, int]:
    """Return the largest divergence of row k-1 from `slope` times row k, rounded up, and k; (0, 1) if there is none."""

    def lift() -> Ball:  # 1 / g'
        return slope() if own is None else 1 / (1 - (1 - 1 / slope()) * ball(rate) / ball(own))

    def edge() -> Ball:  # q'
        return 1 - (1 - ball(rate)) * lift()

    def at(k: int) -> tuple[float, int]:
        excess = max(0.0, upper(lambda: k * edge() - (threshold - 1)))
        series = falling_series(threshold - 1, k - threshold + 2, (1 - rate) / rate, excess, 1.0)
        weight = upper(lambda: _share(own, rate) * mass(k, threshold - 1, rate) / (k * (1 - ball(rate))))
        return product_above(upper(lambda: ball(weight) * slope() / lift()) if own else weight, series), k

    if upper(lambda: edge() if own is None else 1 - (1 - 1 / slope()) / ball(own)) <= 0:  # q', or s' of its sign
        return 0.0, 1
    return max(at(max(k, 1)) for k in _ceilings(lambda: (threshold - 1) / edge()))


def _share(own: float | None, rate: float) -> Ball | int:
    return 1 if own is None else ball(own) / ball(rate)


def mass(trials: int, successes: int, rate: float) -> Ball:
    """Enclose P[Binomial(trials, rate) = successes], for a rate above 0 and below 1."""
    failures = trials - successes
    ways = ball(trials + 1).lgamma() - ball(successes + 1).lgamma() - ball(failures + 1).lgamma()
    return (ways + successes * ball(rate).log() + failures * (-ball(rate)).log1p()).exp()


def _ceilings(expression: Callable[[], Ball]) -> list[int]:
    """Return the ceiling of a number; both candidates if it is indistinguishable from an integer."""
    from dpsieve.exact.balls import floor_bounds, precision

    with precision(192):
        low, high = floor_bounds(-expression())
    return sorted({-low, -high})


def falling_series(last: int, offset: int, odds: float, excess: float, step: float) -> float:
    """Return sum_{i=0}^{last} R_i (excess + step i), R_0 = 1, R_(i+1) = R_i odds (last - i) / (offset + i), rounded up.

    The ratios fall, so the remainder after n terms is at most that of a geometric series. Each R_i has a relative error
    of at most 4 i units in the last place.
    """
    total, weight, start, size = 0.0, 1.0, 0, _FIRST
    while start <= last:
        i = np.arange(start, min(start + size, last + 1), dtype=np.float64)
        ratios = odds * (last - i) / (offset + i)
        weights = weight * np.append(1.0, np.cumprod(ratios))
        total += float(weights[:-1] @ (excess + step * i))
        start, weight, size = start + len(i), float(weights[-1]), 2 * size
        ratio = odds * max(last - start, 0) / (offset + start) * (1 + 8 * _ULP)
        remainder = math.inf
        if ratio < 1:
            remainder = weight * ((excess + step * start) / (1 - ratio) + step * ratio / (1 - ratio) ** 2)
        if remainder <= 2.0**-60 * total or start >= _LONGEST:
            total += remainder
            break
    return total * (1 + (8 * start + 64) * _ULP)


def product_above(factor: float, series: float) -> float:
    """Return a product, rounded up, at most 1."""
    return min(1.0, math.nextafter(factor * series, 2.0))


def replace(epsilon: float, rate: float, threshold: int) -> float:
    """Return a delta at epsilon when one client's value is replaced, rounded up.

    It is the least of three upper bounds (docs/background/federated.md#the-delta-of-one-histogram), mostly within a
    third of the least delta, and at most 2.2 times it in experiments.

    >>> f"{replace(1.0, 0.3, 24):.3g}"
    '1.43e-08'
    """
    least, close = replacement_limits(epsilon, rate, threshold)
    pairs = Pairs.of(epsilon, rate, threshold, least) if close > least * (1 + 1e-9) else None
    if pairs is None:
        return close
    gone, _ = vanishing(lambda: ball(epsilon).exp(), rate, threshold)
    return min(close, max(gone, pairs.bound()))


def replacement_limits(epsilon: float, rate: float, threshold: int) -> tuple[float, float]:
    """Return a lower bound on the delta of a replacement, that of add/remove, and the best simple upper bound."""
    least, _ = add_remove(epsilon, rate, threshold)
    half, _ = add_remove(epsilon / 2, rate, threshold)
    close = min(1.0, half * (1 + math.exp(epsilon / 2)) * (1 + 2.0**-50))

    def steepest() -> Ball:
        return ball(epsilon).exp() * (1 - ball(rate))

    if lower(steepest) > 1:
        close = min(close, appearing(steepest, rate, threshold)[0])
    return least, max(least, close)


@dataclass(frozen=True)
class Slopes:
    """Slopes s of the second cell, 1 - (1-p) s, and where G(l, s) has its peak."""

    slope: Floats
    edge: Floats
    peak: Floats


class Pairs:
    """All pairs k = t ... last_k and l = 0 ... last_l, the rectangle `all`, and a bound on H(k, l) there.

    Args:
        factor: e^epsilon.
        rate, threshold: p and t.
        last_k, last_l: the last pair, threshold <= last_l.
        beyond: at least P[X_l < t] for l = last_l; so it is at least G(l, s) for any l after it, or G(last_l, s) is.
    """

    def __init__(self, factor: float, rate: float, threshold: int, last_k: int, last_l: int, beyond: float) -> None:
        self.all = threshold, last_k, 0, last_l
        self._threshold, self._last = threshold, last_l
        self._factor, self._rate, self._beyond = factor, rate, beyond
        margin = (max(last_k, last_l) + 64) * 2.0**-50
        self._more, self._less = 1 + margin, 1 - margin
        self._reported, self._silent = self._tails()
        self._knots = self._make_knots()

    @classmethod
    def of(cls, epsilon: float, rate: float, threshold: int, least: float) -> Self | None:
        """Return the pairs that a delta of at least `least` may need; None where they are too many."""
        depth = 30.0 - math.log(max(least, 1e-300))
        last_l = (threshold + math.sqrt(2 * threshold * depth) + 2 * depth) / rate  # P[X_l < t] <= e^-depth (Chernoff)
        last_k = (threshold - 1) / max(-math.expm1(-epsilon), 1e-12) + 2
        if max(last_k, last_l) > _LARGEST:
            return None
        return cls(math.exp(epsilon), rate, threshold, math.ceil(last_k), math.ceil(last_l), math.exp(-depth))

    def bound(self) -> float:
        """Return an upper bound on H(k, l) of all pairs."""
        return self._bound_by_chords(*self.all)

    def _bound_by_chords(self, k1: int, k2: int, l1: int, l2: int) -> float:
        knots, most = self._chords(k1, k2)
        gain = self._gain(knots, l1, l2)
        gain[-1] = 0.0
        fall = -np.diff(gain) / np.diff(knots.slope) * self._more
        fall = np.maximum.accumulate(np.maximum(fall, 0.0)[::-1])[::-1]  # convex, in spite of rounding
        weights = np.append(fall[:-1] - fall[1:], fall[-1])
        return float(weights @ most) * self._more + _LOST

    def _gain(self, at: Slopes, l1: int, l2: int) -> Floats:
        """Return the largest G(l, s) for l in [l1, l2], rounded up, at each slope; no peak is before l1."""
        place = np.clip(at.peak, l1, l2).astype(np.int64)
        gain = (self._silent[place] + self._beyond) * self._more - at.slope * self._silent[place + 1] * self._less
        return np.clip(gain, 0.0, 1.0)

    def _chords(self, k1: int, k2: int) -> tuple[Slopes, Floats]:
        """Return the knots of chords, and bounds on h(k, s) for each but the first; no peak is before k1."""
        z, t = self._factor, self._threshold
        rows = np.minimum([k1, (k1 + k2) // 2, k2], self._last)
        silent = z * self._silent[rows - 1] / np.maximum(self._silent[rows], _TINY)  # slopes of 'nothing'
        knots = np.unique(np.concatenate([self._knots, silent[silent < self._knots[-1]]]))
        s = knots[1:]
        peak = np.clip(np.ceil((t - 1) / self._quotients(s)), t, _NEVER)
        place = np.minimum(np.clip(peak, k1, k2), self._last + 1).astype(np.int64)
        now, before = self._reported[place], self._reported[place - 1]
        bounds = s * now * self._more - z * before * self._less * (1 - self._beyond)
        return self._slopes(knots), np.maximum(np.maximum(bounds, (s - z) * self._more), 0.0)

    def _quotients(self, slopes: Floats) -> Floats:
        """Return 1 - (1-p) s / z."""
        return np.maximum(1 - (1 - self._rate) * slopes / self._factor, 1e-15)

    def _make_knots(self) -> Floats:
        """Return knots that are dense at the rows of either cell and at the peaks."""
        p, last = self._rate, (1 + 2.0**-50) / (1 - self._rate)  # from where on G is zero
        wide = math.sqrt(p * (1 - p) / self._threshold)
        first = self._factor * (1 - np.linspace(p - 5 * wide, p + 20 * wide, 384))
        second = 1 - np.linspace(p - 20 * wide, p + 5 * wide, 384)
        peaks = 1 - np.geomspace(0.5 * self._threshold / self._last, 1.0, 128)
        knots = np.concatenate([first, second, peaks]) * last
        return np.unique(np.concatenate([[0.0], knots[(knots > 0) & (knots < last)], [last]]))

    def _slopes(self, slope: Floats) -> Slopes:
        edge = np.maximum(1 - (1 - self._rate) * slope, 1e-15)
        return Slopes(slope, edge, np.clip(np.ceil((self._threshold - 1) / edge) - 1, 0.0, _NEVER))

    def _tails(self) -> tuple[Floats, Floats]:
        """Return P[X_l >= t] and P[X_l < t] for l = 0, 1, ..., last_l + 1, divided by P[X_l >= t] for the last l.

        The count reaches t with trial i + 1 with probability p P[X_i = t - 1]: over i < l these add up to P[X_l >= t],
        and over i >= l to P[X_l < t], without the terms after the last.
        """
        p, t = self._rate, self._threshold
        i = np.arange(t, self._last + 1)
        ratios = (1 - p) * i / (i + 1 - t)  # of P[X_i = t-1] to the one before
        mode = min(max(int((t - 1) / p) + 1 - t, 0), len(ratios))
        reach = distribution_of(1 / ratios[:mode], ratios[mode:])
        reported = np.minimum(np.cumsum(reach), 1.0)
        silent = np.minimum(np.cumsum(reach[::-1])[::-1], 1.0)
        return np.concatenate([np.zeros(t), reported]), np.concatenate([np.ones(t - 1), silent, [0.0]])


def distribution_of(left: Floats, right: Floats) -> Floats:
    """Return a distribution, given the ratios on the left and on the right of its mode."""
    down = np.cumprod(left[::-1])[::-1]
    row = np.concatenate([down, [1.0], np.cumprod(right)])
    return np.asarray(row / row.sum(), dtype=np.float64)
