"""Sums and means of rows in a box: rows as whole numbers, the noise for them, and means with a private count.

**Whole numbers.** Coordinate i of a row becomes the whole number nearest to (x_i - origin_i) / step_i, clipped to those
of its bounds. The origin is 0; where neighbours have equally many rows and 0 is outside the box, it is the bound next
to 0. A missing row of a unit of several rows counts as one of zeros. Sums are 64-bit whole numbers.

**Means.** Where one row is replaced, the number of rows is public and divides the noisy sum (`mean_noise`). Where one
row is added or removed, it is counted in the same draw (`UnitMeans`): a row x adds x - middle to the sums and 1 to the
count, and the mean is middle + S/N. The split of the noise minimises the error of a mean at half of the half-width from
the middle (Lemmas 4.8 and 4.11 of the thesis, with the count as one more coordinate). The interval is Fieller's.
Proofs: docs/background/means.md#sums and #from-a-table.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from dpsieve import validate
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.numbers.estimate import check_unit_rows
from dpsieve.numbers.noise import (
    LAWS,
    NORMAL_95,
    LawChoice,
    LawName,
    Reals,
    ScaledNoise,
    budget_mu,
    check_moment,
    gaussian_promise,
    l2_distance,
)
from dpsieve.privacy.mechanism import Drawn, only_number
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import Neighbours

Shape = Literal["best", "equal", "proportional"]
SHAPES: tuple[Shape, ...] = get_args(Shape)
FINEST = 2.0**29  # the scale of the noise in steps, so that rounding n rows moves a sum by at most n / 2^30 of it
_FARTHEST = 2**30  # steps that a unit can move all sums: 2^33 rows fit in 64 bits
_BATCH = 1 << 15  # entries per batch: they stay in the processor's cache
_TRIES = 40
_LAPLACE_95 = math.log(20) / math.sqrt(2)
_OFF_MIDDLE = 0.5  # of the half-width: the assumed distance of a mean from the middle of its bounds, for the split


@dataclass(frozen=True, eq=False)
class BoxGrid:
    """Bounds of each coordinate, and the step in which it counts; a step of 0 is for a coordinate that is public."""

    lows: Floats
    highs: Floats
    steps: Floats
    neighbours: Neighbours
    rows_per_unit: int = 1

    @cached_property
    def origins(self) -> Floats:
        """The zero point of each coordinate."""
        nearest = np.clip(0.0, self.lows, self.highs)
        return nearest if self.neighbours == "replace" and self.rows_per_unit == 1 else np.zeros_like(nearest)

    @cached_property
    def changes(self) -> Ints:
        """The largest change of each sum by one unit, in steps."""
        return _changes(*self._ends, self.neighbours, self.rows_per_unit).astype(np.int64)

    @cached_property
    def _per_step(self) -> Floats:
        return np.divide(1.0, self.steps, out=np.zeros_like(self.steps), where=self.steps > 0)

    @cached_property
    def _ends(self) -> tuple[Floats, Floats]:
        low, high = (np.rint((ends - self.origins) * self._per_step) for ends in (self.lows, self.highs))
        return low, high

    def whole(self, values: Floats, columns: Any = slice(None)) -> Ints:
        """Return finite values, of these columns, as whole numbers of steps; `values` is overwritten."""
        with np.errstate(over="ignore"):  # overflow is clipped too
            values -= self.origins[columns]
            values *= self._per_step[columns]
        np.rint(values, out=values)
        low, high = self._ends
        np.maximum(values, low[columns], out=values)
        np.minimum(values, high[columns], out=values)
        return values.astype(np.int64)

    def sums(self, rows: Any) -> Ints:
        """Return the sums of all rows, of an array or of a sparse matrix in CSR form, in steps."""
        return self._sparse_sums(rows) if hasattr(rows, "indptr") else self._dense_sums(rows)

    def _dense_sums(self, rows: Any) -> Ints:
        total = np.zeros(len(self.steps), np.int64)
        for part in _batches(len(rows), max(1, _BATCH // len(total))):
            total += self.whole(_finite(rows[part])).sum(axis=0)
        return total

    def _sparse_sums(self, rows: Any) -> Ints:
        """Add the stored entries, and for each zero that is not stored the whole number of 0."""
        total, stored = (np.zeros(len(self.steps), np.int64) for _ in range(2))
        for part in _batches(len(rows.data), _BATCH):
            columns = rows.indices[part]
            np.add.at(total, columns, self.whole(_finite(rows.data[part]), columns))
            stored += np.bincount(columns, minlength=len(total))
        return np.asarray(total + self.whole(np.zeros(len(total))) * (rows.shape[0] - stored))


def noise_shape(widths: Floats, noise: LawName, shape: Shape | Floats, p: float) -> Floats:
    """Return the relative noise of each coordinate; 0 where its width is 0.

    'best' has the least p-th moment of the error, 'equal' is the plain mechanism, 'proportional' an ellipsoid with the
    proportions of the widths. An array is the relative noise itself, positive where a width is.

    >>> noise_shape(np.array([4.0, 1.0]), "gaussian", "best", 2.0).tolist()
    [1.0, 0.5]
    """
    if isinstance(shape, np.ndarray):
        return np.where(widths > 0, shape / shape[widths > 0].max(), 0.0)
    if not isinstance(shape, str) or shape not in SHAPES:
        raise InvalidValue(f"shape is not known. Choose one of {', '.join(SHAPES)}.")
    p = check_moment(p)
    best = 2 / (p + 2) if noise == "gaussian" else 1 / (p + 1)
    power = {"best": best, "equal": 0.0, "proportional": 1.0}[shape]
    return np.where(widths > 0, (widths / widths.max()) ** power, 0.0)


def fit_grid(
    lows: Floats, highs: Floats, neighbours: Neighbours, noise: LawName, shape: Shape | Floats, p: float, budget: float,
    rows_per_unit: int = 1,
) -> tuple[BoxGrid, float]:  # fmt: skip
    """Return a grid, and the scale of the noise in its steps, with which whole numbers keep a budget exactly.

    The budget is mu for Gaussian noise, epsilon for Laplace noise. The scale is a power of two, the same for nearly all
    budgets, so that the sampling tables are made once.
    """
    widths = _changes(lows, highs, neighbours, rows_per_unit)
    largest = float(widths.max())
    if largest == 0:
        raise InvalidValue("widths are all zero, so there is nothing to sum. Pass one above zero.")
    parts = noise_shape(widths, noise, shape, p)
    reach = np.divide(widths / largest, parts, out=np.zeros_like(parts), where=parts > 0)
    distance = float(np.sqrt((reach**2).sum()) if noise == "gaussian" else reach.sum())
    scale = FINEST
    while budget * scale > _FARTHEST:
        scale /= 2
    unit, limit = distance * largest / (budget * scale), Fraction(budget) * Fraction(scale)
    for attempt in range(_TRIES):
        grid = BoxGrid(lows, highs, parts * unit, neighbours, rows_per_unit)
        changes = grid.changes.tolist()
        squares, total = sum(change * change for change in changes), sum(changes)
        is_kept = squares <= limit**2 if noise == "gaussian" else total <= limit
        if is_kept and total:
            return grid, scale
        over = (squares**0.5 if noise == "gaussian" else total) / (budget * scale)
        unit *= max(over, 1.0) * (1 + 2.0 ** (attempt - 34))  # more each time, until whole numbers fall
        if not total:
            break
    raise InvalidValue("the budget is too small for so many coordinates. Pass a larger epsilon or rho.")


def best_noise(
    lows: Floats, highs: Floats, neighbours: Neighbours, *, p: float = 2.0, rho: float | None = None,
    epsilon: float | None = None, delta: float | None = None,
    noise: LawChoice = "auto", shape: Shape | Floats = "best",
    unit: str = "one row", rows_per_unit: int = 1,
) -> tuple[ScaledNoise, BoxGrid]:  # fmt: skip
    """Return the noise for rows in a box, and the grid on which rows are summed, from public numbers alone."""
    if (rho is None) == (epsilon is None):
        raise InvalidValue("the budget must be either rho or epsilon. Pass rho=0.5, or epsilon=1.0 with delta.")
    if not isinstance(noise, str) or noise not in ("auto", *LAWS):
        raise InvalidValue(f"noise is not known. Choose one of auto, {', '.join(LAWS)}.")
    rows_per_unit = check_unit_rows(rows_per_unit)
    is_pure = rho is None and (delta is None or validate.delta(delta) == 0)
    laws: list[LawName] = ["gaussian"] if rho is not None else ["laplace"] if is_pure else list(LAWS)
    if noise != "auto" and noise not in laws:
        fix = "Pass delta=1e-8 too." if is_pure else "Pass epsilon instead of rho."
        raise InvalidValue(f"noise={noise!r} does not fit this budget. {fix}")
    candidates = []
    for law in laws if noise == "auto" else [noise]:
        budget = budget_mu(rho, epsilon, delta) if law == "gaussian" else validate.positive_epsilon(epsilon)
        grid, scale = fit_grid(lows, highs, neighbours, law, shape, p, budget, rows_per_unit)
        changes, steps = tuple(grid.changes.tolist()), tuple(grid.steps.tolist())
        promise = gaussian_promise(scale, l2_distance(changes), epsilon, delta) if law == "gaussian" else (budget, 0.0)
        mechanism = ScaledNoise(*promise, changes, scale, steps, noise=law, neighbours=neighbours, unit=unit)
        candidates.append((mechanism, grid))
    return min(candidates, key=lambda candidate: candidate[0].expected_error(p))


def sum_noise(mechanism: ScaledNoise, grid: BoxGrid, rows: int) -> ScaledNoise:
    """Return the noise of `best_noise` for the sum of `rows` rows; their number counts under 'replace' alone."""
    offsets = tuple((grid.origins * rows).tolist())
    return replace(mechanism, offsets=offsets) if any(offsets) else mechanism


def mean_noise(mechanism: ScaledNoise, grid: BoxGrid, rows: int) -> ScaledNoise:
    """Return the noise of `best_noise` under 'replace' for the mean of a public number of rows.

    >>> mechanism, grid = best_noise(np.zeros(1), np.ones(1), "replace", rho=0.5)
    >>> mean_noise(mechanism, grid, 100).deviations.round(6).tolist()
    [0.01]
    """
    if rows < 1:
        raise InvalidValue("data has no row with a number in each column, so there is no mean.")
    steps, offsets = (tuple(numbers.tolist()) for numbers in (grid.steps / rows, grid.origins))
    return replace(mechanism, steps=steps, offsets=offsets if any(offsets) else ())


@register("unit_means")
@dataclass(frozen=True, repr=False)
class UnitMeans(ScaledNoise):
    """Noise on sums of centred rows and on their number, from which means are computed; see the head of this module.

    Attributes:
        lows, highs: the bounds of each coordinate.
        epsilon, delta, changes, scale, steps, offsets, noise, neighbours, unit: see `ScaledNoise`; the last of the
            changes and of the steps is that of the count.
    """

    _: KW_ONLY
    lows: Reals
    highs: Reals

    def __post_init__(self) -> None:
        super().__post_init__()
        lows, highs = self.lows, self.highs
        if not lows or len(lows) != len(highs) or not all(low < high for low, high in zip(lows, highs, strict=True)):
            raise InvalidValue("lows and highs must be as many, each low below its high.")
        if len(self.steps) != len(lows) + 1 or min(self.steps) <= 0 or min(self.changes) < 1 or self.offsets:
            raise InvalidValue("steps and changes must be above 0, one per mean and one for the count; no offsets.")

    def __repr__(self) -> str:
        return f"<unit means, {self.size:,} means, {self.noise} noise of {self.scale:.4g} steps, {self.guarantee}>"

    @property
    def size(self) -> int:
        return len(self.lows)

    @property
    def middles(self) -> Floats:
        """The middle of each pair of bounds."""
        return np.asarray((np.array(self.lows) + np.array(self.highs)) / 2)

    def draw(self, sums: Ints, source: Source) -> Floats:
        """Return the means, within the bounds, and last the noisy number of rows."""
        noisy = super().draw(sums, source)
        means = self.middles + noisy[:-1] / max(1.0, noisy[-1])
        return np.append(np.clip(means, self.lows, self.highs), noisy[-1])

    def reader(self, drawn: Drawn) -> "CountedMeans":
        """Return what states the errors of means, given the noisy number of rows, drawn as `units`."""
        return CountedMeans(self, only_number(drawn, "units", -1e300, 1e300))

    def possible(self, values: Floats) -> bool:
        return bool(((values >= self.lows) & (values <= self.highs)).all())


@dataclass(frozen=True)
class CountedMeans:
    """States the errors of means, given the noisy number of rows."""

    mechanism: UnitMeans
    units: float

    def columns(self, values: Floats) -> dict[str, Floats]:
        """Return the standard deviation of the error, and the 95 % interval of each mean; none where N is too small."""
        noise = self.mechanism
        lows, highs, middles = noise.lows, noise.highs, noise.middles
        reach = NORMAL_95 if noise.noise == "gaussian" else _LAPLACE_95
        each, of_count = noise.deviations[:-1], noise.deviations[-1]
        count, off = max(1.0, self.units), values - middles
        deviations = np.sqrt(each**2 + (off * of_count) ** 2) / count
        margin = count**2 - (reach * of_count) ** 2
        if self.units < 1 or margin <= 0:
            unknown = np.full(noise.size, math.nan)
            return {"deviation": deviations, "low": unknown, "high": unknown}
        half = reach * np.sqrt((of_count * off * count) ** 2 + margin * each**2) / margin
        centre = middles + off * (count**2 / margin)
        low, high = np.maximum(centre - half, lows), np.minimum(centre + half, highs)
        return {"deviation": deviations, "low": low, "high": high}


def unit_means_noise(
    lows: Floats, highs: Floats, *, shape: str, p: float, **budget: Any
) -> tuple[UnitMeans, Callable[[Floats], Ints]]:
    """Return the noise for means of rows in a box under 'add_remove', and a function that sums rows.

    With shape='proportional' each mean has noise in proportion to its width; with 'best' the p-th moment of the total
    error is least. `budget` is passed to `best_noise`.

    >>> mechanism, sums = unit_means_noise(np.zeros(1), np.full(1, 100.0), shape="best", p=2.0, rho=0.5)
    >>> mechanism.deviations.round(1).tolist()
    [61.2, 1.7]
    """
    middles, reach = (lows + highs) / 2, (highs - lows) / 2
    scales = reach if shape == "proportional" else np.ones_like(reach)
    wide = reach / scales
    largest = float(wide.max())
    row = _OFF_MIDDLE * largest * float(np.linalg.norm(wide / largest, p))  # the weight of a row in the count
    noise, grid = best_noise(np.append(-wide, 0.0), np.append(wide, row), "add_remove", **budget, p=p)

    def sums(rows: Floats) -> Ints:
        """Return the sums of centred rows, and their number, in steps."""
        counted = np.column_stack([(rows - middles) / scales, np.full(len(rows), row)])
        return grid.sums(counted)

    steps = tuple((grid.steps * np.append(scales, 1 / row)).tolist())
    numbers = (noise.epsilon, noise.delta, noise.changes, noise.scale, steps)
    options: Any = {"noise": noise.noise, "neighbours": "add_remove", "unit": noise.unit}
    return UnitMeans(*numbers, **options, lows=tuple(lows.tolist()), highs=tuple(highs.tolist())), sums


def _changes(lows: Floats, highs: Floats, neighbours: Neighbours, rows_per_unit: int) -> Floats:
    """Return the largest change of each sum by one unit, in the unit of its bounds."""
    if neighbours == "add_remove":
        return rows_per_unit * np.maximum(np.abs(lows), np.abs(highs))
    if rows_per_unit == 1:
        return highs - lows
    return rows_per_unit * (np.maximum(highs, 0.0) - np.minimum(lows, 0.0))


def _batches(count: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, count, size))


def _finite(values: Any) -> Floats:
    """Return a copy as floats; NaN and infinities are refused."""
    with np.errstate(over="ignore"):  # long floats beyond all doubles become infinite
        copy = np.array(values, np.float64, order="C")
    if not np.isfinite(copy).all():
        raise InvalidValue("x holds NaN or infinite values. Fill them in, or leave those rows out.")
    return copy
