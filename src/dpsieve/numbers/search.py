"""Quantiles by noisy binary search (Huang, Liang and Yi 2021), of one column or of all columns of a matrix.

A grid of at most 2^T points is halved T times. Each time the middle point k is compared with the target rank of the
quantile q = A/B: a whole number that says where the target is gets noise, and the search continues in the lower half
where the sum says that enough rows are at or below k.

- When a row is replaced, the number of rows N is the same for neighbours. The number is #(rows <= k), to be at least
  q N. One row at most crosses k, so it changes by at most D = 1.
- When a row is added or removed, N differs too. The number is B #(rows <= k) - A N, to be at least 0: it is B times
  (1 - q) #(at or below) - q #(above). It changes by at most D = max(A, B - A).
- A unit of at most m rows changes it by at most m D. With 'replace', if N differs, the number is the whole part of
  #(rows <= k) - q N; the real number moves by at most m (`grid_quantiles`), so its whole part does too.

Privacy. With discrete Gaussian noise of standard deviation sigma D each comparison is 1/(2 sigma^2)-zCDP (Canonne,
Kamath and Steinke 2020, Theorem 4), with discrete Laplace noise of scale b D it is 1/b-private. What is compared
depends on earlier answers alone, so m searches cost m T / (2 sigma^2) or m T / b.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from dpsieve import validate
from dpsieve.accounting.spends import DiscreteLaplace, Spend
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import ball, upper
from dpsieve.numbers.dyadic_grid import DyadicGrid
from dpsieve.numbers.grid_quantiles import UNCERTAIN, GridQuantiles, as_share, sensitivity
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.registry import register
from dpsieve.randomness.noise import (
    LARGEST_SCALE,
    SMALLEST_SCALE,
    discrete_gaussian,
    discrete_laplace,
    laplace_scale,
    rounded_gaussian,
)
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Floats, Ints
from dpsieve.validate import Neighbours

RANK_NOISE = 2.0**29
"""The deviation of the noise on ranks in units of its own: the same for all budgets, so that its table is made once."""
_HEAVIEST = 2**60


@register("quantile_search")
@dataclass(frozen=True, repr=False)
class QuantileSearch(GridQuantiles):
    """Quantiles by noisy binary search, each on its own; see the head of this module.

    With a rho the noise is discrete Gaussian and the searches are rho-zCDP; without one it is discrete Laplace, and
    they are epsilon-private. Found points are put in order, which moves none farther off than the worst was.

    >>> made = QuantileSearch(1.0, (0.5,), 0.0, 100.0, delta=1e-6, rho=0.0243)
    >>> made.comparisons, made.rank_errors
    (32, (39.0,))
    """

    @property
    def comparisons(self) -> int:
        """How many comparisons there are, in all searches."""
        return len(self.shares) * max(1, self.grid.depth)

    @cached_property
    def noise_scales(self) -> tuple[float, ...]:
        """For each of `shares`, the scale of the noise on the number that is compared."""
        if not self.rho:
            return tuple(laplace_scale(self.epsilon, move * self.comparisons) for move in self._moves)
        deviation = upper(lambda: (ball(self.comparisons) / ball(self.rho) / 2).sqrt())
        return tuple(_whole_noise(deviation, move) for move in self._moves)

    @property
    def _moves(self) -> list[int]:
        """For each of `shares`, by how much one unit changes the number that is compared."""
        return [change(share, self.neighbours) * self.rows_per_unit for share in self.shares]

    @cached_property
    def rank_errors(self) -> tuple[float, ...]:
        """How many rows the values are off at most, all of them with probability 0.95.

        A search ends at a point that is off by more than r only if, in a comparison that is off by more, the noise
        exceeds r in the direction that misleads. Discrete Gaussian noise of m or more is at most as
        likely as real Gaussian noise of m - 1 or more (Canonne, Kamath and Steinke 2020).
        """
        tail = UNCERTAIN / self.comparisons
        reach = NormalDist().inv_cdf(1 - tail) if self.rho else -math.log(tail)
        return (float(math.ceil(self._rows_of(reach, 1.0))),) * len(self.shares)

    @property
    def typical_error(self) -> float:
        """About how many rows the values are off: 0.6 standard deviations of the noise, as simulations show."""
        return self._rows_of(0.6 if self.rho else 0.6 * 2**0.5, 0.0)

    def _rows_of(self, reach: float, more: float) -> float:
        """Return how many rows noise of `reach` times its scale, and `more`, is at most."""
        pairs = zip(self.shares, self.noise_scales, strict=True)
        return max((reach * scale + more) * grain(share, self.neighbours) / share.denominator for share, scale in pairs)

    def certify(self) -> Certificate:
        """Return the certificate, by exact fractions for Laplace noise, and by bounds rounded up for Gaussian noise."""
        pairs, depth = list(zip(self._moves, self.noise_scales, strict=True)), max(1, self.grid.depth)
        words = f"{self.comparisons:,} noisy comparisons"
        if not self.rho:
            spent = sum(depth * move / Fraction(scale) for move, scale in pairs)
            return formula(self.guarantee, 0.0 if spent <= Fraction(self.epsilon) else 1.0, "balls", words)
        spent = sum(depth * (move / Fraction(scale)) ** 2 / 2 for move, scale in pairs)
        worst = self.delta_at_epsilon() if spent <= Fraction(self.rho) else 1.0
        return formula(self.guarantee, worst, "balls", words)

    def spends(self) -> tuple[Spend, ...]:
        """Return the zCDP budget, or the curves of the Laplace noise."""
        if self.rho:
            return super().spends()
        pairs, depth = zip(self._moves, self.noise_scales, strict=True), max(1, self.grid.depth)
        return tuple(DiscreteLaplace(scale, move, depth) for move, scale in pairs)

    def draw_sorted(self, rows: Ints, source: Source) -> Ints:
        """Return a point for each of `shares`, in order, from the sorted points of the rows."""
        found, add = [], discrete_gaussian if self.rho else discrete_laplace
        for share, scale in zip(self.shares, self.noise_scales, strict=True):
            noise = add(scale, self.grid.depth, source=source) * grain(share, self.neighbours)
            found.append(_search(rows, share, self.grid.size, noise.tolist()))
        return np.sort(np.array(found, np.int64))


def change(share: Fraction, neighbours: Neighbours) -> int:
    """Return D, by how much one row changes the number that is compared; see the head of this module."""
    return sensitivity(share, neighbours) // grain(share, neighbours)


def grain(share: Fraction, neighbours: Neighbours) -> int:
    """Return what 1 in the number that is compared is, in B-th parts of a row."""
    return share.denominator if neighbours == "replace" else 1


def _search(rows: Ints, share: Fraction, size: int, noise: list[int]) -> int:
    low, high = 0, size - 1
    for one in noise:
        middle = (low + high) // 2
        upto = int(np.searchsorted(rows, middle, "right"))
        right = share.denominator * upto - share.numerator * len(rows) + one >= 0
        low, high = (low, middle) if right or low == high else (middle + 1, high)
    return low


def search_columns(
    matrix: Any,
    q: float,
    grid: DyadicGrid,
    sigma: float,
    *,
    neighbours: Neighbours,
    centre: Floats | None = None,
    source: Source | None = None,
) -> Floats:
    """Return the private q-quantile of each of the d columns of a matrix: d T / (2 sigma^2)-zCDP, T = grid.depth.

    An inner tool: the caller accounts for the cost. Each search is that of `QuantileSearch`, with Gaussian noise of
    sigma times the sensitivity of the relation (rows are the units). What is compared counts in units of which the
    noise has 2^29, and the noise is a real Gaussian rounded to whole ones. So all is post-processing of d T Gaussian
    mechanisms: mu-Gaussian private with mu = sqrt(d T) / sigma (Dong, Roth and Su 2022). With probability
    1 - beta no value is more than s (sigma sqrt(2 ln(T d / beta)) + 1) rows off its rank, where s is max(q, 1 - q) for
    add/remove and 1 for replacement.

    Args:
        matrix: n x d, float32 or float64. NaN counts as above all numbers, values outside of the grid as its ends.
        q: which quantile; taken to the nearest fraction with a denominator of at most 10^5.
        grid: where to search; the same for all columns.
        sigma: standard deviation of the noise, in units of the sensitivity.
        centre: d numbers c_j, public or private already; the quantiles are then those of |x_ij - c_j|.
        source: of randomness.
    """
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype not in (np.float32, np.float64):
        raise InvalidType("matrix must be an array of rows and columns, of float32 or float64. Convert it first.")
    share = as_share(validate.between("q", q, 0.0, 1.0, hint="Pass a quantile such as q=0.5."))
    sigma = validate.positive("sigma", sigma, hint="Pass the deviation of the noise, such as sigma=10.0.")
    columns = matrix.shape[1]
    around = np.zeros(columns) if centre is None else np.ascontiguousarray(centre, np.float64)
    if around.shape != (columns,):
        raise InvalidValue("centre must hold one number for each column.")
    from dpsieve.numbers.loops import search_each

    weight = rank_weight(sigma)
    drawn = rounded_gaussian(RANK_NOISE, columns * grid.depth, source=resolve(source))
    # With L whole, L weight + move g >= 0 says the same as L + floor(move g / weight) >= 0.
    noise = (drawn * sensitivity(share, validate.neighbours(neighbours)) // weight).reshape(columns, grid.depth)
    shift, step = (grid.exponent, 0.0) if grid.scale == "log" else (-1, math.ldexp(1.0, grid.exponent))
    found, fraction = np.empty(columns, np.int64), (share.numerator, share.denominator)
    search_each(matrix, around, centre is not None, grid.first, step, shift, grid.size, fraction, noise, found)
    return grid.points(found)


def rank_weight(sigma: float) -> int:
    """Return what one row counts, beside noise of deviation RANK_NOISE, so that the noise is sigma rows or more."""
    hint = "Pass a larger budget."
    return min(_HEAVIEST, int(RANK_NOISE / validate.between("sigma", sigma, 1e-12, RANK_NOISE, hint=hint)))


def _whole_noise(deviation: float, move: int) -> float:
    """Return the deviation of noise on whole numbers that one row changes by `move`, rounded up."""
    hint = "Pass a larger budget."
    wide = upper(lambda: ball(deviation) * move)
    return max(SMALLEST_SCALE, validate.between("sigma", wide, 0.0, LARGEST_SCALE, hint=hint))
