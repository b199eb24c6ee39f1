"""Totals and means per key: what one unit adds, in whole numbers, and what is published of noisy sums of that.

Each row's value is clipped and rounded to a public step, and a unit's values are added up as whole numbers: x is the
sum for a total, the sum divided by the number of values for a mean, clipped to the bounds [l, h]. A unit without any
number has the total 0, clipped, and the mean c = (l + h)/2. On the grid it adds

    a = floor((x - l) G / (h - l) + 1/2),   a whole number from 0 to G = 2^19.

With n units that hold a key and A the sum of their a, the centred sum is Y = 2 A - G n: one unit more or less moves the
count G n, in steps of 1/G, by G, and Y by a number from -G to G, half the width w = (h - l)/2 of the bounds. From noisy
counts N and centred sums Y, both in steps, total = w Y/G + c N/G and mean = c + w Y/N, with Fieller's interval. Where
that holds all of the bounds, the mean is null; so is every total where of the count only an upper end is known.
Proofs: docs/background/totals.md#what-a-unit-adds.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from dpsieve import validate
from dpsieve.codec import register
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.types import Floats, Ints
from dpsieve.validate import Checked, is_between, is_choice, is_text
from dpsieve.values.columns import as_arrow
from dpsieve.values.keys import TAKEN

GRID = 1 << 19
"""The steps of what a unit adds to a key: from 0 to this number."""
LARGEST_STEPS = 1 << 58
"""What one row may add, in steps of its column: so every sum of 10^10 rows fits 28 digits."""
MOST_TOTALS = 16
_BITS, _ROWS_BEYOND = 50, 256
_SMALLEST, _LARGEST = 1e-12, 1e15
_BOUNDS = "Pass two numbers from public knowledge, such as 0 and 200, or 'auto'"
_FINER, _HIGHEST = 20, 38  # bits of a step, and of the largest number, while bounds are not known yet

Statistic = Literal["sum", "mean"]
HalfWidth = Callable[[Floats, Floats], Floats]
"""Returns the 95 % half-width of the noise of a Y + b N for factors a and b, in steps."""


class TotalsReader(Protocol):
    """Knows the noise of counts N and centred sums Y."""

    def half_width_of(self, of_sum: Floats, of_count: Floats) -> Floats:
        """Return the 95 % half-width of the noise of a Y + b N, in steps."""

    def noise_beyond(self, of_sum: float, of_count: float, distance: float) -> float:
        """Return P[|noise of a Y + b N| > distance], for a distance in steps."""


def mean_missed(reader: TotalsReader, units: int, distance: float) -> float:
    """Return a bound on the probability that the mean of a key is further off than a distance, or null.

    The distance is in half widths. Proof: docs/background/totals.md#how-often-a-mean-is-far-off.
    """
    steps = units * GRID
    null = float(reader.half_width_of(np.ones(1), np.ones(1))[0]) + GRID
    few = reader.noise_beyond(0.0, 1.0, steps - null) / 2 if steps > null else 1.0
    far = [
        reader.noise_beyond(1.0, ratio, distance * steps) / 2 for ratio in (1.0, max(distance, abs(1 - 2 * distance)))
    ]
    return min(1.0, few + sum(far))


Column = Annotated[str, is_text("Pass the name of a column of numbers.")]
_Bound = Annotated[float, is_between(-_LARGEST, _LARGEST, f"{_BOUNDS}.")]


@register("total")
@dataclass(frozen=True)
class Total(Checked):
    """A column that is added up per key; see the head of this module.

    Attributes:
        column: its name.
        statistic: 'sum' or 'mean'.
        low, high: the bounds of what one unit adds to one key, or of its mean there.
        clipped: the share of units beyond the bounds, at most, where these were chosen privately; else None.

    >>> Total("rating", "mean", 1, 5).centre
    3.0
    """

    column: Column
    statistic: Annotated[Statistic, is_choice("sum", "mean")]
    low: _Bound
    high: _Bound
    clipped: float | None = None

    def __post_init__(self) -> None:
        argument = self.argument
        try:
            super().__post_init__()
        except (InvalidType, InvalidValue) as error:
            raise type(error)(f"bounds of column {self.column!r}: {error}", argument=argument) from None
        if self.clipped is not None:
            validate.between("clipped", self.clipped, 0.0, 1.0, hint="Pass a share, or None.")
        wrong = f"bounds of column {self.column!r}, {self.low:g} and {self.high:g}"
        if not self.low < self.high:
            why = "are equal" if self.low == self.high else "are in the wrong order"
            raise InvalidValue(f"{wrong}, {why}. {_BOUNDS}, the lower one first.", argument=argument)
        if self.largest < _SMALLEST or self.high - self.low < self.largest * 2.0**-24:
            raise InvalidValue(f"{wrong}, are too close. {_BOUNDS}, further apart.", argument=argument)

    @property
    def argument(self) -> str:
        """The argument that asks for it."""
        return f"{self.statistic}s"

    @property
    def largest(self) -> float:
        """The larger absolute value of the bounds."""
        return max(abs(self.low), abs(self.high))

    @property
    def centre(self) -> float:
        """The middle of the bounds."""
        return (self.low + self.high) / 2

    @property
    def half_width(self) -> float:
        """Half the width of the bounds: the most that one unit changes a centred sum."""
        return (self.high - self.low) / 2

    @property
    def steps_per_unit(self) -> float:
        """The steps of a row's value per 1: a power of two."""
        return 2.0 ** (_BITS - math.ceil(math.log2(self.largest)))

    @property
    def largest_row(self) -> float:
        """What a row's value is clipped to, on both sides of zero."""
        return min(_ROWS_BEYOND * self.largest, LARGEST_STEPS / self.steps_per_unit)

    @property
    def per_step(self) -> float:
        """The steps of the grid per step of a row's value."""
        return GRID / ((self.high - self.low) * self.steps_per_unit)

    @property
    def missing(self) -> int:
        """What a unit without any number adds, on the grid."""
        return GRID // 2 if self.statistic == "mean" else int(self.on_grid(np.zeros(1))[0])

    def on_grid(self, values: Floats) -> Ints:
        """Return what units add on the grid, from their sums or means in steps; NaN where there is no number."""
        missing = np.isnan(values)
        moved = np.where(missing, 0.0, values) - self.low * self.steps_per_unit
        grid = np.floor(np.clip(moved * self.per_step, 0, GRID) + 0.5).astype(np.int64)
        return np.where(missing, self.missing, grid) if missing.any() else grid

    def __str__(self) -> str:
        chosen = (
            ""
            if self.clipped is None
            else f", bounds chosen with differential privacy: at most {100 * self.clipped:.2g} % of units are clipped"
        )
        return f"{self.statistic} of {self.column!r} within {self.low:g} to {self.high:g}{chosen}"


@dataclass(frozen=True)
class RawTotal:
    """A column whose bounds are still to be chosen: what units add is read without bounds, in steps of 2^-20.

    Row values are clipped to 2^38 on both sides of zero.
    """

    column: str
    statistic: Statistic

    steps_per_unit = 2.0**_FINER
    largest_row = 2.0**_HIGHEST

    @property
    def argument(self) -> str:
        """The argument that asks for it."""
        return f"{self.statistic}s"


AnyTotal = Total | RawTotal


def table_names(totals: Sequence[AnyTotal], keys: Sequence[str] = ()) -> list[tuple[str, str, str]]:
    """Return the names of the columns of each total: the value, and the ends of its interval.

    A column that is both added up and averaged has the kind in the names of the ends too.

    >>> table_names([Total("p", "sum", 0, 1), Total("p", "mean", 0, 1)])
    [('p_sum', 'p_sum_low', 'p_sum_high'), ('p_mean', 'p_mean_low', 'p_mean_high')]
    """
    columns = [total.column for total in totals]
    every = []
    for total in totals:
        start = f"{total.column}_{total.statistic}"
        ends = start if columns.count(total.column) > 1 else total.column
        every.append((start, f"{ends}_low", f"{ends}_high"))
        for name in every[-1]:
            others = [other for names in every for other in names if other == name]
            if name in (*keys, *TAKEN) or len(others) > 1:
                fix = f"Rename the column {total.column!r}, such as to '{total.column}_value'."
                raise InvalidValue(
                    f"{total.argument}: the name {name!r} would be that of two columns. {fix}", argument=total.argument
                )
    return every


def check_totals(sums: Any, means: Any) -> tuple[AnyTotal, ...]:
    """Return the totals that the arguments `sums` and `means` ask for."""
    totals = [_total(name, kind, bounds) for kind, given in (("sum", sums), ("mean", means))
             for name, bounds in _columns(f"{kind}s", given)]  # fmt: skip
    if len(totals) > MOST_TOTALS:
        raise InvalidValue(f"sums and means name more than {MOST_TOTALS} columns. Name fewer.", argument="sums")
    return tuple(totals)


def _columns(argument: str, given: Any) -> Iterable[tuple[str, Any]]:
    hint = f"Pass a dict of columns with their bounds, such as {argument}={{'price': (0, 200)}}."
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise InvalidType(f"{argument} must be a dict, not {type(given).__name__}. {hint}", argument=argument)
    if not given:
        raise InvalidValue(f"{argument} is empty. {hint}", argument=argument)
    return [(validate.text(argument, name, hint=hint), bounds) for name, bounds in given.items()]


def _total(column: str, kind: Any, bounds: Any) -> AnyTotal:
    argument = f"{kind}s"
    if isinstance(bounds, str) and bounds == "auto":
        return RawTotal(column, kind)
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise InvalidType(f"bounds of column {column!r} must be two numbers, or 'auto'. {_BOUNDS}.", argument=argument)
    return Total(column, kind, *bounds)


def describe_rest(row: Mapping[str, Any]) -> str:
    """Return the row of what is not published as a sentence.

    >>> describe_rest({"count": 2183, "low": 1977, "high": 2389, "p_sum": 5.0, "p_low": -1.0, "p_high": 11.0})
    'Not in the table: about 2,183 pairs of units and keys (1,977 to 2,389); p_sum about 5 (-1 to 11).'
    """
    names = list(row)
    words = f"about {row['count']:,} pairs of units and keys ({row['low']:,} to {row['high']:,})"
    for name, low, high in zip(*(names[place::3] for place in (3, 4, 5)), strict=True):
        words += f"; {name} about {row[name]:,.6g} ({row[low]:,.6g} to {row[high]:,.6g})"
    return f"Not in the table: {words}."


def name_sums(totals: Sequence[AnyTotal]) -> str:
    """Return how many centred sums a mechanism adds noise to, for certificates."""
    return f"{len(totals)} centred sum{'s' if len(totals) != 1 else ''}"


def centred(counts: Ints, sums: Ints) -> Ints:
    """Return the centred sums Y of rows of sums A, one per total."""
    return 2 * sums - GRID * counts


def columns_of(
    totals: Sequence[Total], keys: Sequence[str], counts: Ints, sums: Ints, half_width: HalfWidth, unknown: Any
) -> dict[str, pa.Array]:
    """Return the columns of a table from noisy counts and centred sums, in steps; null where the count is unknown."""
    columns: dict[str, pa.Array] = {}
    noisy = counts.astype(np.float64)
    for total, names, row in zip(totals, table_names(totals, keys), sums, strict=True):
        read = _read_sum if total.statistic == "sum" else _read_mean
        value, low, high, null = read(total, noisy, row.astype(np.float64), half_width)
        for name, numbers in zip(names, (value, low, high), strict=True):
            columns[name] = as_arrow(numbers, null | unknown)
    return columns


Read = tuple[Floats, Floats, Floats, Any]


def _read_sum(total: Total, counts: Floats, sums: Floats, half_width: HalfWidth) -> Read:
    w, c = total.half_width, total.centre
    value = (w * sums + c * counts) / GRID
    half = float(half_width(np.array([w]), np.array([c]))[0]) / GRID
    return value, value - half, value + half, np.zeros(len(value), np.bool_)


def _read_mean(total: Total, counts: Floats, sums: Floats, half_width: HalfWidth) -> Read:
    value = np.clip(np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0), -1, 1)
    low, high = _fieller(counts, sums, half_width)
    null = (low <= -1) & (high >= 1)
    value = np.clip(value, low, high)
    value, low, high = (total.centre + total.half_width * means for means in (value, low, high))
    return value, low, high, null


def _fieller(counts: Floats, sums: Floats, half_width: HalfWidth) -> tuple[Floats, Floats]:
    """Return the least and the largest m from -1 to 1 for which |Y - m N| is within the half-width of its noise.

    The nearest m where there is none, and all of [-1, 1] where the count is not above zero.
    """
    grid = np.linspace(-1, 1, 257)
    widths = half_width(np.ones(len(grid)), -grid)

    def inside(m: Floats) -> Any:
        return np.abs(sums - m * counts) <= np.interp(m, grid, widths)

    start = np.clip(np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0), -1, 1)
    ends = []
    for edge in (-1.0, 1.0):
        good, bad = start.copy(), np.full(len(start), edge)
        all_inside = inside(bad)
        for _ in range(40):
            middle = (good + bad) / 2
            within = inside(middle)
            good, bad = np.where(within, middle, good), np.where(within, bad, middle)
        ends.append(np.where(all_inside, edge, np.where(inside(start), bad, start)))
    positive = counts > 0
    return np.where(positive, ends[0], -1.0), np.where(positive, ends[1], 1.0)
