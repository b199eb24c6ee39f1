"""The base of private quantiles: target ranks, their sensitivity, and what is published.

For the quantile q of N rows the target rank is t = q N. The rank error of a point k of the grid is

    u(k) = max(0, #(rows < k) - t, t - #(rows <= k))

rows: 0 where k is a q-quantile. With q = A/B all of it is in whole numbers, B u(k). One row changes B u(k) by at most

    D = max(A, B - A)  when a row is added or removed (t moves by q, the counts by 0 or 1), and
    D = B              when a row is replaced (t stays, the counts move by at most 1).

A unit of at most m rows changes it by at most m D (docs/background/means.md#units-of-several-rows). The points are
those of a `DyadicGrid`: exact floats with few digits, so a number of the data is compared with a point exactly.
"""

import math
import struct
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, get_args

import numpy as np

from dpsieve import validate
from dpsieve.accounting.curves import zcdp_delta
from dpsieve.accounting.spends import Spend, ZeroConcentrated
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.numbers.estimate import Estimating, check_unit_rows
from dpsieve.privacy.guarantee import Unit, shown
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import Checked, Delta, Neighbours, Relation, Scale, is_between, is_choice, is_whole

SCALES: tuple[Scale, ...] = get_args(Scale)
MOST_STEPS = 40
_FARTHEST = 1e300
_BOUNDS = "Pass public bounds of the values, such as bounds=(0, 100)."
_RHO = "Pass a zCDP budget such as rho=0.1"
FINEST_SHARE = 10**5
"""Quantiles are rounded to the nearest fraction with at most this denominator."""
MOST_QUANTILES = 10_000
UNCERTAIN = 0.05
"""The probability that any quantile of a publication exceeds its stated rank error."""


def _check_bound(value: object, name: str) -> float:
    return validate.between(f"bounds {name}", value, -_FARTHEST, _FARTHEST, hint=_BOUNDS) + 0.0


Bound = Annotated[float, _check_bound]
Steps = Annotated[int, is_whole(1, MOST_STEPS, "Pass the number of halvings of the bounds, such as steps=32.")]
AnyScale = Annotated[Scale, is_choice(*SCALES)]


@dataclass(frozen=True)
class DyadicGrid(Checked):
    """At most 2^steps points between `low` and `high`, numbered from 0.

    With scale='linear' the points are the multiples of a power of two, 2^exponent, that lie within the bounds. With
    scale='log', for bounds above zero, they are the floats whose last `exponent` binary digits are zero: equally many
    between any two powers of two, so the spacing is relative to the size. The spacing is the finest with at most
    2^steps points; never finer than that of floats at the bound that is farther from zero.

    Attributes:
        exponent: of the spacing, see above.
        first: the multiple of the spacing at point 0.
        size: the number of points, at least 1.

    >>> grid = DyadicGrid(0.0, 10.0, steps=4)
    >>> grid.points(np.arange(grid.size)).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]
    >>> grid.index(np.array([-np.inf, 2.0, 2.1, 99.0])).tolist()
    [0, 2, 3, 10]
    """

    low: Bound
    high: Bound
    steps: Steps = 32
    scale: AnyScale = "linear"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise InvalidValue(f"bounds are reversed or equal. {_BOUNDS}")
        if self.scale == "log" and self.low <= 0:
            raise InvalidValue("scale='log' needs bounds above zero. Pass the least value that matters as the first.")

    @cached_property
    def exponent(self) -> int:
        """The power of two between points, or the number of zero digits at the end of their floats."""
        if self.scale == "log":
            return max(0, (_bits(self.high) - _bits(self.low)).bit_length() - self.steps)
        width = Fraction(self.high) - Fraction(self.low)
        least = width.numerator.bit_length() - width.denominator.bit_length() - self.steps
        least += width >= Fraction(2) ** (self.steps + least)
        # A float below 2^e has no digits below 2^(e - 53).
        return max(least, math.frexp(max(abs(self.low), abs(self.high)))[1] - 53, -1074)

    @cached_property
    def first(self) -> int:
        """The multiple of the spacing that is the first point."""
        return -math.floor(self._multiple(-1, self.low))

    @cached_property
    def size(self) -> int:
        """The number of points."""
        return math.floor(self._multiple(1, self.high)) - self.first + 1

    @property
    def depth(self) -> int:
        """The number of halvings that find one point."""
        return (self.size - 1).bit_length()

    def index(self, values: Floats) -> Ints:
        """Return the number of the first point that is not below each value; the last one where there is none.

        So index(x) <= k is equivalent to x <= points(k), for every k except the last. It is monotonic. Values outside
        the bounds count as the bounds; NaN is not allowed.
        """
        within = np.clip(values, self.low, self.high)
        if self.scale == "log":
            multiple = (within.view(np.int64) + ((1 << self.exponent) - 1)) >> self.exponent
        else:
            # A product with a power of two is exact, and faster where that is a float.
            scaled = within * 2.0**-self.exponent if self.exponent > -1000 else np.ldexp(within, -self.exponent)
            vanished = (scaled == 0) & (within > 0)  # below the least float, above 0
            multiple = np.ceil(scaled, out=scaled).astype(np.int64) + vanished
        multiple -= self.first
        return np.clip(multiple, 0, self.size - 1, out=multiple)

    def points(self, index: Ints) -> Floats:
        """Return the exact points of these numbers."""
        multiple = np.asarray(index, np.int64) + self.first
        if self.scale == "log":
            return (multiple << self.exponent).view(np.float64)
        return np.ldexp(multiple.astype(np.float64), self.exponent)

    def point(self, index: int) -> float:
        """Return the point of one number."""
        return float(self.points(np.array([index]))[0])

    def holds(self, values: Floats) -> bool:
        """Return whether all of these finite values are points of the grid."""
        return bool((self.points(self.index(values)) == values).all())

    def _multiple(self, sign: int, value: float) -> Fraction:
        """Return sign * value in units of the spacing."""
        if self.scale == "log":
            return Fraction(sign * _bits(value), 1 << self.exponent)
        return sign * Fraction(value) / Fraction(2) ** self.exponent


def _bits(value: float) -> int:
    # Floats above zero are ordered like their bit patterns.
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


@dataclass(frozen=True, repr=False)
class GridQuantiles(Estimating):
    """Quantiles of one column of numbers, as points of a public grid.

    Attributes:
        epsilon, delta: the guarantee.
        quantiles: each from 0 to 1.
        low, high, steps, scale: of the grid (`DyadicGrid`).
        rho: the zCDP budget; 0 for a mechanism that keeps a pure epsilon.
        neighbours: 'add_remove' or 'replace' of one unit.
        rows_per_unit: m, the largest number of rows per unit.
        rank_errors: bounds on the rank error of each value, all of them with probability 0.95. Rows count as the grid
            points they are rounded up to.
    """

    epsilon: Annotated[float, is_between(1e-6, 500.0, "Pass a privacy budget such as epsilon=1.0.")]
    quantiles: Annotated[tuple[float, ...], lambda values, _: check_quantiles(values)]
    low: Bound
    high: Bound
    _: KW_ONLY
    delta: Delta = 0.0
    rho: Annotated[float, is_between(0.0, 1e6, f"{_RHO}, or none.")] = 0.0
    steps: Steps = 32
    scale: AnyScale = "linear"
    neighbours: Relation = "add_remove"
    rows_per_unit: Annotated[int, lambda count, _: check_unit_rows(count)] = 1
    unit: Unit = "one row"

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.rho < 1e-12:
            raise InvalidValue(f"rho is too small for any answer. {_RHO}.")
        self.rank_errors  # noqa: B018 (refuses bounds, and a budget for which the noise would be too large)

    def __repr__(self) -> str:
        count = "1 quantile" if self.size == 1 else f"{self.size:,} quantiles"
        return f"<{self.name} for {count}, epsilon={shown(self.epsilon)}, delta={shown(self.delta)}>"

    def spends(self) -> tuple[Spend, ...]:
        """Return the zCDP budget, or the pure epsilon."""
        return (ZeroConcentrated(self.rho),) if self.rho else super().spends()

    def delta_at_epsilon(self) -> float:
        """Return the delta of the zCDP budget at the promised epsilon, rounded up."""
        return zcdp_delta(self.rho, self.epsilon)

    @cached_property
    def grid(self) -> DyadicGrid:
        """The possible values."""
        return DyadicGrid(self.low, self.high, self.steps, self.scale)

    @cached_property
    def shares(self) -> tuple[Fraction, ...]:
        """The distinct quantiles as fractions, in order."""
        return tuple(sorted({as_share(q) for q in self.quantiles}))

    @property
    def size(self) -> int:
        return len(self.quantiles)

    @property
    @abstractmethod
    def rank_errors(self) -> tuple[float, ...]:
        """For each of `shares`, a bound on u of the published value; all hold together with probability 0.95."""

    @property
    @abstractmethod
    def typical_error(self) -> float:
        """The usual rank error where rows are spread over the range; method='auto' minimises it."""

    @abstractmethod
    def draw_sorted(self, rows: Ints, source: Source) -> Ints:
        """Return a point for each of `shares`, in order, from the sorted points of the rows."""

    def draw(self, values: Floats, source: Source) -> Floats:
        """Return the private quantiles of a flat array of floats without NaN, in the order of `quantiles`."""
        rows = self.grid.index(values)
        rows.sort()
        return self.grid.points(self.draw_sorted(rows, source))[self._places]

    def columns(self, values: Floats) -> dict[str, Floats]:
        return {"rank_error": np.array(self.rank_errors)[self._places]}

    def possible(self, values: Floats) -> bool:
        """Return whether values are points of the grid, and increase with their quantiles."""
        points = np.empty(len(self.shares))
        points[self._places] = values
        return bool((points[self._places] == values).all() and (np.diff(points) >= 0).all() and self.grid.holds(points))

    @cached_property
    def _places(self) -> Ints:
        known = {share: place for place, share in enumerate(self.shares)}
        return np.array([known[as_share(q)] for q in self.quantiles])


_NEAR_ENOUGH = Fraction(1, 10**9)


def as_share(q: float) -> Fraction:
    """Return the nearest fraction with a denominator of at most 10^5."""
    return Fraction(q).limit_denominator(FINEST_SHARE)


def sensitivity(share: Fraction, neighbours: Neighbours) -> int:
    """Return D, the largest change of B u(k) by one row for the share A/B; see the head of this module.

    >>> sensitivity(Fraction(1, 2), "add_remove"), sensitivity(Fraction(1, 2), "replace")
    (1, 2)
    """
    a, b = share.numerator, share.denominator
    return b if neighbours == "replace" else max(a, b - a)


def check_quantiles(quantiles: Any) -> tuple[float, ...]:
    """Return quantiles as a tuple of floats from 0 to 1."""
    hint = "Pass quantiles from 0 to 1, such as 0.5 or [0.25, 0.5, 0.75]."
    if not isinstance(quantiles, tuple | list):
        raise InvalidType(f"quantiles must be a list of numbers. {hint}")
    if not 1 <= len(quantiles) <= MOST_QUANTILES:
        raise InvalidValue(f"quantiles holds none, or more than {MOST_QUANTILES:,}. {hint}")
    checked = tuple(validate.between("quantile", q, 0.0, 1.0, hint=hint) for q in quantiles)
    for q in checked:
        if abs(Fraction(q) - as_share(q)) > _NEAR_ENOUGH:
            raise InvalidValue(f"quantile={q!r} is no fraction with a denominator of at most 10^5. Pass a rounder one.")
    return checked
