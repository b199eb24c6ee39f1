"""Noisy binary search: quantiles of a column, and the ranks that a private mean compares.

**Quantiles** (Huang, Liang and Yi 2021). A grid of at most 2^T points is halved T times; each middle point k is
compared with the target rank of q = A/B, by #(rows <= k) under 'replace' and B #(rows <= k) - A N under 'add_remove'. A
unit of m rows changes that by at most m D, D = 1 or max(A, B - A). With discrete Gaussian noise of deviation sigma D a
comparison is 1/(2 sigma^2)-zCDP (Canonne, Kamath and Steinke 2020), with discrete Laplace noise of scale b D it is
1/b-private; m searches cost m T times as much.

**Ranks.** The number of rows at or below a point changes by at most 1 when a row is replaced. Each row counts `weight`,
and the noise is a real Gaussian of deviation 2^29, rounded: m comparisons, each chosen by earlier answers, are
mu-Gaussian private for mu = sqrt(m) weight / 2^29 (Dong, Roth and Su 2022). Proofs: docs/background/means.md#quantiles.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import Annotated, ClassVar

import numpy as np

from dpsieve import validate
from dpsieve.accounting.curves import PositiveDelta, gaussian_delta, gaussian_epsilon
from dpsieve.accounting.spends import DiscreteLaplace, Gaussian, Spend
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, upper
from dpsieve.numbers.grid_quantiles import UNCERTAIN, DyadicGrid, GridQuantiles, sensitivity
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee, Unit
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.noise import (
    LARGEST_SCALE,
    SMALLEST_SCALE,
    discrete_gaussian,
    discrete_laplace,
    laplace_scale,
    rounded_gaussian,
)
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import Epsilon, Neighbours, is_text, is_whole

RANK_NOISE = 2.0**29
"""The deviation of the noise on ranks in units of its own: the same for all budgets, so that its table is made once."""
_HEAVIEST = 2**40
_BUDGET = "Pass a larger budget."


@register("quantile_search")
@dataclass(frozen=True, repr=False)
class QuantileSearch(GridQuantiles):
    """Quantiles by noisy binary search, one search each; see the head of this module.

    With a rho the noise is discrete Gaussian and the searches are rho-zCDP; without one it is discrete Laplace, and
    they are epsilon-private. The points are sorted afterwards, which moves none farther off than the worst was.

    >>> mechanism = QuantileSearch(1.0, (0.5,), 0.0, 100.0, delta=1e-6, rho=0.0243)
    >>> mechanism.comparisons, mechanism.rank_errors
    (32, (39.0,))
    """

    @property
    def comparisons(self) -> int:
        """The number of comparisons in all searches."""
        return len(self.shares) * max(1, self.grid.depth)

    @cached_property
    def noise_scales(self) -> tuple[float, ...]:
        """For each of `shares`, the scale of the noise on the number that is compared."""
        if not self.rho:
            return tuple(laplace_scale(self.epsilon, change * self.comparisons) for change in self._changes)
        deviation = upper(lambda: (ball(self.comparisons) / ball(self.rho) / 2).sqrt())
        return tuple(_gaussian_scale(deviation, change) for change in self._changes)

    @property
    def _changes(self) -> list[int]:
        """For each of `shares`, the largest change of the compared number by one unit."""
        return [rank_change(share, self.neighbours) * self.rows_per_unit for share in self.shares]

    @cached_property
    def rank_errors(self) -> tuple[float, ...]:
        """The largest rank error, for all values together with probability 0.95.

        Proof: docs/background/means.md#rank-errors.
        """
        tail = UNCERTAIN / self.comparisons
        reach = NormalDist().inv_cdf(1 - tail) if self.rho else -math.log(tail)
        return (float(math.ceil(self._rows_of(reach, 1.0))),) * len(self.shares)

    @property
    def typical_error(self) -> float:
        """The usual rank error: 0.6 standard deviations of the noise, by simulation."""
        return self._rows_of(0.6 if self.rho else 0.6 * 2**0.5, 0.0)

    def _rows_of(self, reach: float, margin: float) -> float:
        """Return the number of rows in noise of `reach` times its scale, plus a margin."""
        pairs = zip(self.shares, self.noise_scales, strict=True)
        return max((reach * scale + margin) * _grain(share, self.neighbours) / share.denominator
                   for share, scale in pairs)  # fmt: skip

    def certify(self) -> Certificate:
        """Return the certificate, by exact fractions for Laplace noise, and by bounds rounded up for Gaussian noise."""
        pairs, depth = list(zip(self._changes, self.noise_scales, strict=True)), max(1, self.grid.depth)
        method = f"{self.comparisons:,} noisy comparisons"
        if not self.rho:
            spent = sum(depth * change / Fraction(scale) for change, scale in pairs)
            return formula(self.guarantee, 0.0 if spent <= Fraction(self.epsilon) else 1.0, "balls", method)
        spent = sum(depth * (change / Fraction(scale)) ** 2 / 2 for change, scale in pairs)
        worst = self.delta_at_epsilon() if spent <= Fraction(self.rho) else 1.0
        return formula(self.guarantee, worst, "balls", method)

    def spends(self) -> tuple[Spend, ...]:
        """Return the zCDP budget, or the curves of the Laplace noise."""
        if self.rho:
            return super().spends()
        pairs, depth = zip(self._changes, self.noise_scales, strict=True), max(1, self.grid.depth)
        return tuple(DiscreteLaplace(scale, change, depth) for change, scale in pairs)

    def draw_sorted(self, rows: Ints, source: Source) -> Ints:
        points, draw = [], discrete_gaussian if self.rho else discrete_laplace
        for share, scale in zip(self.shares, self.noise_scales, strict=True):
            noise = draw(scale, self.grid.depth, source=source) * _grain(share, self.neighbours)
            points.append(_search(rows, share, self.grid.size, noise.tolist()))
        return np.sort(np.array(points, np.int64))


def rank_change(share: Fraction, neighbours: Neighbours) -> int:
    """Return D, the largest change of the compared number by one row; see the head of this module."""
    return sensitivity(share, neighbours) // _grain(share, neighbours)


def _grain(share: Fraction, neighbours: Neighbours) -> int:
    """Return what 1 in the compared number is worth, in B-th parts of a row."""
    return share.denominator if neighbours == "replace" else 1


def _search(rows: Ints, share: Fraction, size: int, noises: list[int]) -> int:
    low, high = 0, size - 1
    for noise in noises:
        middle = (low + high) // 2
        count = int(np.searchsorted(rows, middle, "right"))
        is_enough = share.denominator * count - share.numerator * len(rows) + noise >= 0
        low, high = (low, middle) if is_enough or low == high else (middle + 1, high)
    return low


def _gaussian_scale(deviation: float, change: int) -> float:
    """Return the deviation of noise on whole numbers that one row changes by `change`, rounded up."""
    scale = upper(lambda: ball(deviation) * change)
    return max(SMALLEST_SCALE, validate.between("sigma", scale, 0.0, LARGEST_SCALE, hint=_BUDGET))


@register("noisy_ranks")
@dataclass(frozen=True, repr=False)
class NoisyRanks(Mechanism):
    """Comparisons of ranks, for neighbours that differ in one replaced row; see the head of this module.

    Attributes:
        epsilon, delta: the guarantee.
        comparisons: their total number.
        weight: of one row, beside noise of deviation 2^29.
        purpose: the quantity that is searched for.
        unit: the privacy unit.

    >>> mechanism = NoisyRanks.within(2**52, 16, "radius", delta=1e-6, unit="one row")
    >>> mechanism.rows, mechanism.rho
    (32.0, 0.0078125)
    """

    neighbours: ClassVar[str] = "replace"

    epsilon: Epsilon
    delta: PositiveDelta
    comparisons: Annotated[int, is_whole(1, 10**9, "Pass the number of compared ranks, such as 20.")]
    weight: Annotated[int, is_whole(1, _HEAVIEST, "Pass the weight of a row beside noise of 2^29, such as 2^24.")]
    purpose: Annotated[str, is_text("Pass text such as 'radius'.")] = "ranks"
    unit: Unit = "one row"

    @classmethod
    def within(cls, squares: int, comparisons: int, purpose: str, *, delta: float, unit: str) -> "NoisyRanks":
        """Return the comparisons whose mu^2, in units of 2^-58, is at most `squares`, with the least noise."""
        weight = validate.whole("weight", math.isqrt(squares // comparisons), low=1, high=_HEAVIEST, hint=_BUDGET)
        epsilon = gaussian_epsilon(RANK_NOISE, delta, _distance(comparisons, weight))
        return cls(epsilon, delta, comparisons, weight, purpose, unit)

    def __repr__(self) -> str:
        noise = f"{self.comparisons:,} with noise of {self.rows:.3g} rows"
        return f"<noisy ranks: {self.purpose}, {noise}, {self.guarantee}>"

    @property
    def rows(self) -> float:
        """The standard deviation of the noise, in rows."""
        return RANK_NOISE / self.weight

    @property
    def rho(self) -> float:
        """The rho of zero-concentrated privacy, rounded up."""
        return upper(lambda: (ball(_distance(self.comparisons, self.weight)) / ball(RANK_NOISE)) ** 2 / 2)

    def certify(self) -> Certificate:
        """Return the certificate, from the weight and the number of comparisons alone."""
        worst = gaussian_delta(RANK_NOISE, self.epsilon, _distance(self.comparisons, self.weight))
        return formula(self.guarantee, worst, "balls", f"{self.comparisons:,} noisy comparisons")

    @cached_property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon, self.delta, "replace", self.unit)

    def spends(self) -> tuple[Spend, ...]:
        return (Gaussian(RANK_NOISE, _distance(self.comparisons, self.weight)),)

    def counts(self, values: Floats, points: Floats, source: Source) -> Floats:
        """Return the number of values above each point, with noise of `rows` rows; one comparison each."""
        if len(points) != self.comparisons:
            raise InvalidValue("points are more or fewer than the comparisons in the budget.")
        ordered = np.sort(values)
        above = len(ordered) - np.searchsorted(ordered, points, "right")
        noise = rounded_gaussian(RANK_NOISE, len(points), source=source)
        return np.asarray((above * self.weight + noise) / self.weight)

    def search(self, values: Floats, grid: DyadicGrid, allowed: Callable[[float], float], source: Source) -> float:
        """Return a point of the grid that about `allowed(point)` values exceed."""
        ordered = np.sort(grid.index(values))
        low, high = 0, grid.size - 1
        for noise in rounded_gaussian(RANK_NOISE, grid.depth, source=source).tolist():
            if low < high:
                middle = (low + high) // 2
                above = len(ordered) - int(np.searchsorted(ordered, middle, "right"))
                is_few = above * self.weight + noise <= int(allowed(grid.point(middle)) * self.weight)
                low, high = (low, middle) if is_few else (middle + 1, high)
        return grid.point(low)


def _distance(comparisons: int, weight: int) -> float:
    return upper(lambda: ball(comparisons * weight * weight).sqrt())


def log_grid(low: float, high: float, each: int) -> DyadicGrid:
    """Return a grid on a log scale with about `each` points per doubling.

    >>> log_grid(1.0, 1024.0, 4).size
    41
    """
    doublings = max(1, math.ceil(math.log2(high / low)))
    return DyadicGrid(low, high, max(1, math.ceil(math.log2(doublings * each + 1))), "log")


def linear_grid(bound: float, finest: float) -> DyadicGrid:
    """Return a grid from -bound to bound whose points are at most `finest` apart, or the finest there is."""
    halvings = math.ceil(math.log2(2 * bound / finest)) + 1
    return DyadicGrid(-bound, bound, min(40, max(2, halvings)))


def normal_tail(probability: float) -> float:
    """Return the number of deviations that a Gaussian exceeds with this probability."""
    from scipy.special import ndtri

    return float(-ndtri(probability))
