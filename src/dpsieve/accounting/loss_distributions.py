"""Distributions of the privacy loss on a lattice, their sums and curves; the divergence of two independent outputs.

The head of `accounting.composition` shows that no rounding makes a curve too low.
"""

import math
from collections import Counter
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dpsieve.accounting.curves import gaussian_curve, gaussian_delta
from dpsieve.accounting.spends import Spend, total_leak
from dpsieve.exact.balls import ball, upper
from dpsieve.types import Floats

_ULP = 2.0**-52
# Mass that a convolution may move to an infinite loss; curves are not accurate below it.
_TAIL = 2.0**-120
# A sum of bounded losses exceeds this many standard deviations (of the bounds) with less than _TAIL, by Hoeffding.
_REACH = 13.0
_GRID = 2**16


class LossCurve:
    """delta(epsilon), for any real epsilon, of all spends that are not concentrated; a range counts as pure privacy.

    Different lattices are merged on about `grid` points; fewer are faster, and a looser upper bound.
    """

    def __init__(self, spends: tuple[Spend, ...], *, grid: int = _GRID) -> None:
        self.leak = total_leak(spends)
        self.mu = upper(lambda: sum((spend.gaussian_square() * spend.count for spend in spends), ball(0)).sqrt())
        groups: Counter[tuple[float, int]] = Counter()
        for spend in spends:
            if spend.lattice is not None:
                groups[spend.lattice] += spend.count
        self._spread = bool(groups)
        self.empty = not self._spread and self.mu == 0
        unit, self._losses = _compose(groups, grid)
        at = (self._losses.first + np.arange(len(self._losses.mass))) * unit
        self._at: Floats = at + 4 * _ULP * np.abs(at)

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on delta at any real epsilon."""
        # With mu above 40 no epsilon up to 500 keeps delta below 1 - 1e-13.
        if self.mu > 40:
            return 1.0
        if self.mu > 0 and not self._spread and 0 <= epsilon <= 500:
            return either(self.leak, gaussian_delta(1.0, epsilon, self.mu))
        if self.mu > 0:
            pure = float(self._losses.mass @ gaussian_curve(epsilon - self._at, self.mu)) + _TAIL
        else:
            first = int(np.searchsorted(self._at, epsilon, side="right"))
            pure = float(self._losses.mass[first:] @ -np.expm1(epsilon - self._at[first:]))
        error = self._losses.error + (len(self._at) + 16) * _ULP
        return either(self.leak, pure * (1 + 2 * error) + self._losses.lost)


@dataclass(frozen=True)
class Losses:
    """A distribution of losses: `mass[i]` at (first + i) units, at most `lost` at infinity.

    Each mass is accurate up to the factor 1 + `error`.
    """

    first: int
    mass: Floats
    lost: float
    error: float

    def plus(self, other: "Losses") -> "Losses":
        """Return the distribution of the sum of two independent losses."""
        short, long = sorted((self, other), key=lambda losses: len(losses.mass))
        mass: Floats = np.zeros(len(long.mass) + len(short.mass) - 1)
        steps = np.flatnonzero(short.mass)
        for step in steps:
            mass[step : step + len(long.mass)] += short.mass[step] * long.mass
        # Rare small losses are rounded up to the first remaining one, rare large ones to infinity.
        below = int(np.searchsorted(np.cumsum(mass), _TAIL))
        above = int(np.searchsorted(np.cumsum(mass[::-1]), _TAIL))
        mass = mass[below : len(mass) - above]
        mass[0] += _TAIL
        error = self.error + other.error + (len(steps) + 4) * _ULP
        return Losses(self.first + other.first + below, mass, self.lost + other.lost + 2 * _TAIL, error)

    def times(self, count: int) -> "Losses":
        """Return the distribution of the sum of `count` independent losses."""
        if count == 1:
            return self
        half = self.times(count // 2)
        both = half.plus(half)
        return both.plus(self) if count % 2 else both

    def on_grid(self, unit: float, step: float) -> "Losses":
        """Return a dominating distribution on the multiples of `step`, a power of two."""
        used = np.flatnonzero(self.mass)
        at = (self.first + used) * unit
        at += 4 * _ULP * np.abs(at)
        cells = np.floor(at / step)
        upward = np.expm1(cells * step - at) / np.expm1(-step)
        first = int(cells[0])
        index = cells.astype(np.int64) - first
        mass: Floats = np.zeros(int(index[-1]) + 2)
        np.add.at(mass, index, self.mass[used] * (1 - upward))
        np.add.at(mass, index + 1, self.mass[used] * upward)
        return Losses(first, mass, self.lost, self.error + (len(used) + 16) * _ULP)


def _compose(groups: Counter[tuple[float, int]], grid: int) -> tuple[float, Losses]:
    """Return the unit and the distribution of the total loss; groups are (1/scale, sensitivity) and their counts."""
    if not groups:
        return 1.0, Losses(0, np.ones(1), 0.0, 0.0)
    parts = [(unit, reach * unit * count, _single(unit, reach).times(count)) for (unit, reach), count in groups.items()]
    if len(parts) == 1:
        return parts[0][0], parts[0][2]
    spread = math.hypot(*(reach * unit * math.sqrt(count) for (unit, reach), count in groups.items()))
    width = 2 * min(sum(top for _, top, _ in parts), _REACH * spread)
    step = 2.0 ** max(-900, math.floor(math.log2(width / grid)))
    # The widest come last, so that most sums are short.
    merged = [part.on_grid(unit, step) for unit, _, part in sorted(parts, key=lambda part: part[1])]
    return step, reduce(Losses.plus, merged)


def _single(unit: float, reach: int) -> Losses:
    """Return the losses of a discrete Laplace of scale 1/unit and sensitivity `reach`; for 1, randomised response."""
    mass: Floats = np.zeros(2 * reach + 1)
    steps = np.arange(reach + 1)
    mass[::-2] = np.exp(-steps * unit) / (1 + math.exp(-unit))
    mass[2:-2:2] *= -math.expm1(-unit)
    # e^(-500) loses up to 500 roundings of its exponent.
    return Losses(-reach, mass, 0.0, 1024 * _ULP)


def either(first: float, second: float) -> float:
    """Return 1 - (1 - first)(1 - second), rounded up, at most 1."""
    return min(1.0, (first + (1 - min(1.0, first)) * second) * (1 + 8 * _ULP))


def joint_divergence(first: tuple[Floats, Floats], second: tuple[Floats, Floats], epsilon: float) -> float:
    """Return the hockey-stick divergence of two independent outputs seen together: p1 x p2 against q1 x q2."""
    (p, q), (r, s) = _merge_losses(*first), _merge_losses(*second)
    return math.fsum(np.maximum(np.outer(p, r) - math.exp(epsilon) * np.outer(q, s), 0.0).ravel())


def _merge_losses(p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Merge outputs whose losses ln(p/q) agree to 1e-12, which lowers a divergence by less than 1e-12."""
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.round(np.log(p / q), 12)
    possible = (p > 0) | (q > 0)
    _, group = np.unique(loss[possible], return_inverse=True)
    return np.bincount(group, p[possible]).astype(float), np.bincount(group, q[possible]).astype(float)
