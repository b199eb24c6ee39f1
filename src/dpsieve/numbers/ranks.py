"""Comparisons of ranks with Gaussian noise: how centres, spreads and radii are found before a private mean is taken.

How many rows are at or below a point changes by at most 1 when a row is replaced. It counts `weight` for each row, and
gets noise of deviation 2^29: a real Gaussian rounded to whole numbers. So a comparison is post-processing of a Gaussian
mechanism of mu = weight / 2^29, and so is the noisy count itself. What is compared or counted next may depend on
earlier answers; m of them are mu-Gaussian private for mu = sqrt(m) weight / 2^29 (Dong, Roth and Su 2022, Corollary 2),
and (mu^2 / 2)-zCDP.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsieve import validate
from dpsieve.accounting.gaussian import gaussian_delta, gaussian_epsilon, positive_delta
from dpsieve.accounting.spends import Gaussian, Spend
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, upper
from dpsieve.numbers.dyadic_grid import DyadicGrid
from dpsieve.numbers.search import RANK_NOISE
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.privacy.registry import register
from dpsieve.randomness.noise import rounded_gaussian
from dpsieve.randomness.source import Source
from dpsieve.types import Floats

_MOST_COMPARISONS, _HEAVIEST = 10**9, 2**40


@register("noisy_ranks")
@dataclass(frozen=True, repr=False)
class NoisyRanks(Mechanism):
    """Comparisons of ranks, for neighbours of which one row is replaced; see the head of this module.

    Attributes:
        epsilon, delta: what is promised.
        comparisons: how many there are in all.
        weight: what one row counts, beside noise of deviation 2^29.
        purpose: what is searched for, in words.
        unit: who is protected.

    >>> made = NoisyRanks.within(2**52, 16, "radius", delta=1e-6, unit="one row")
    >>> made.rows, made.rho
    (32.0, 0.0078125)
    """

    neighbours: ClassVar[str] = "replace"

    epsilon: float
    delta: float
    comparisons: int
    weight: int
    purpose: str = "ranks"
    unit: str = "one row"

    def __post_init__(self) -> None:
        promise = Guarantee(self.epsilon, positive_delta(self.delta), "replace", self.unit)
        hint = "Pass how many ranks are compared, such as 20."
        count = validate.whole("comparisons", self.comparisons, low=1, high=_MOST_COMPARISONS, hint=hint)
        hint = "Pass what a row counts beside noise of 2^29, such as 2^24."
        weight = validate.whole("weight", self.weight, low=1, high=_HEAVIEST, hint=hint)
        purpose = validate.text("purpose", self.purpose, hint="Pass words such as 'radius'.")
        validate.store(self, epsilon=promise.epsilon, delta=promise.delta, unit=promise.unit)
        validate.store(self, comparisons=count, weight=weight, purpose=purpose)

    @classmethod
    def within(cls, squares: int, comparisons: int, purpose: str, *, delta: float, unit: str) -> "NoisyRanks":
        """Return the comparisons whose mu^2, in units of 2^-58, is at most `squares`, with the least noise."""
        hint = "Pass a larger budget."
        weight = validate.whole("weight", math.isqrt(squares // comparisons), low=1, high=_HEAVIEST, hint=hint)
        epsilon = gaussian_epsilon(RANK_NOISE, delta, _distance(comparisons, weight))
        return cls(epsilon, delta, comparisons, weight, purpose, unit)

    def __repr__(self) -> str:
        return (
            f"<noisy ranks: {self.purpose}, {self.comparisons:,} with noise of {self.rows:.3g} rows, {self.guarantee}>"
        )

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to one privacy unit."""
        return Guarantee(self.epsilon, self.delta, "replace", self.unit)

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

    def spends(self) -> tuple[Spend, ...]:
        """Return the curve of the noise."""
        return (Gaussian(RANK_NOISE, _distance(self.comparisons, self.weight)),)

    def counts(self, values: Floats, points: Floats, source: Source) -> Floats:
        """Return how many values exceed each point, with noise of `rows` rows; one comparison each."""
        if len(points) != self.comparisons:
            raise InvalidValue("points are more or fewer than the comparisons that are paid for.")
        inside = np.sort(values)
        above = len(inside) - np.searchsorted(inside, points, "right")
        noise = rounded_gaussian(RANK_NOISE, len(points), source=source)
        return np.asarray((above * self.weight + noise) / self.weight)

    def search(self, values: Floats, grid: DyadicGrid, allowed: Callable[[float], float], source: Source) -> float:
        """Return a point of the grid above which about as many values are as `allowed` says for that point."""
        inside = np.sort(grid.index(values))
        noise = rounded_gaussian(RANK_NOISE, grid.depth, source=source).tolist()
        low, high = 0, grid.size - 1
        for one in noise:
            if low < high:
                middle = (low + high) // 2
                above = len(inside) - int(np.searchsorted(inside, middle, "right"))
                few = above * self.weight + one <= int(allowed(_point(grid, middle)) * self.weight)
                low, high = (low, middle) if few else (middle + 1, high)
        return _point(grid, low)


def _distance(comparisons: int, weight: int) -> float:
    return upper(lambda: ball(comparisons * weight * weight).sqrt())


def _point(grid: DyadicGrid, index: int) -> float:
    return float(grid.points(np.array([index]))[0])


def first_point(grid: DyadicGrid) -> float:
    """Return the lowest point of a grid."""
    return _point(grid, 0)


def log_grid(low: float, high: float, each: int) -> DyadicGrid:
    """Return a grid on a log scale with about `each` points for each doubling.

    >>> log_grid(1.0, 1024.0, 4).size
    41
    """
    doublings = max(1, math.ceil(math.log2(high / low)))
    return DyadicGrid(low, high, max(1, math.ceil(math.log2(doublings * each + 1))), "log")


def linear_grid(bound: float, finest: float) -> DyadicGrid:
    """Return a grid from -bound to bound whose points are at most `finest` apart, or the finest there is."""
    halvings = math.ceil(math.log2(2 * bound / finest)) + 1
    return DyadicGrid(-bound, bound, min(40, max(2, halvings)))


def normal_tail(chance: float) -> float:
    """Return how many deviations a Gaussian exceeds with this chance, about."""
    from scipy.special import ndtri

    return float(-ndtri(chance))
