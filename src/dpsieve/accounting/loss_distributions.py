"""Distributions of the privacy loss, on a lattice: how they add up, and the curve they give.

Why no rounding makes a curve too low is argued at the head of `dpsieve.accounting.composition`.
"""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from dpsieve.accounting.gaussian import gaussian_curve, gaussian_delta
from dpsieve.accounting.spends import Approximate, BoundedRange, DiscreteLaplace, Gaussian, Spend, epsilon_of, leak
from dpsieve.exact.balls import ball, upper
from dpsieve.types import Floats

_ULP = 2.0**-52
# Mass that a convolution may move to an infinite loss; a curve is not told apart from zero below it.
_TAIL = 2.0**-120
# A sum of bounded losses leaves this many standard deviations (of the bounds) with less than _TAIL, by Hoeffding.
_REACH = 13.0
_GRID = 2**16
# Up to this sensitivity * sqrt(count) a discrete Laplace keeps its own losses; beyond it counts as epsilon-DP.
_LATTICE = 1000


class LossCurve:
    """delta(epsilon), for any real epsilon, of all spends but zCDP and Renyi ones; a range counts as pure privacy.

    Different lattices meet on about `grid` points; fewer are faster, and a looser upper bound.
    """

    def __init__(self, spends: tuple[Spend, ...], *, grid: int = _GRID) -> None:
        self.leak = leak(spends)
        gaussians = [spend for spend in spends if isinstance(spend, Gaussian)]
        squares = [(g.sensitivity, g.sigma, g.count) for g in gaussians]
        self.mu = upper(lambda: sum(((ball(s) / ball(b)) ** 2 * c for s, b, c in squares), ball(0)).sqrt())
        groups: Counter[tuple[float, int]] = Counter()
        for spend in spends:
            if isinstance(spend, Approximate | BoundedRange) and spend.epsilon > 0:
                groups[(spend.epsilon, 1)] += spend.count
            elif isinstance(spend, DiscreteLaplace):
                fine = spend.sensitivity * math.sqrt(spend.count) <= _LATTICE
                groups[(1 / spend.scale, spend.sensitivity) if fine else (epsilon_of(spend), 1)] += spend.count
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

    Each mass is right up to the factor 1 + `error`.
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
        # Rare small losses are rounded up to the first one kept, rare large ones to infinity.
        below = int(np.searchsorted(np.cumsum(mass), _TAIL))
        above = int(np.searchsorted(np.cumsum(mass[::-1]), _TAIL))
        kept = mass[below : len(mass) - above]
        kept[0] += _TAIL
        error = self.error + other.error + (len(steps) + 4) * _ULP
        return Losses(self.first + other.first + below, kept, self.lost + other.lost + 2 * _TAIL, error)

    def times(self, count: int) -> "Losses":
        """Return the distribution of the sum of `count` independent losses."""
        if count == 1:
            return self
        half = self.times(count // 2)
        both = half.plus(half)
        return both.plus(self) if count % 2 else both

    def on_grid(self, unit: float, step: float) -> "Losses":
        """Return a dominating distribution on the multiples of `step`, a power of two."""
        some = np.flatnonzero(self.mass)
        at = (self.first + some) * unit
        at += 4 * _ULP * np.abs(at)
        cells = np.floor(at / step)
        upward = np.expm1(cells * step - at) / np.expm1(-step)
        first = int(cells[0])
        index = cells.astype(np.int64) - first
        mass: Floats = np.zeros(int(index[-1]) + 2)
        np.add.at(mass, index, self.mass[some] * (1 - upward))
        np.add.at(mass, index + 1, self.mass[some] * upward)
        return Losses(first, mass, self.lost, self.error + (len(some) + 16) * _ULP)


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
    total, *rest = (part.on_grid(unit, step) for unit, _, part in sorted(parts, key=lambda part: part[1]))
    for part in rest:
        total = total.plus(part)
    return step, total


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
