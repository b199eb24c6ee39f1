"""Rows in a box as whole numbers, and their exact sums.

Coordinate i of a row lies in [low_i, high_i]. It becomes the whole number nearest to (x_i - origin_i) / step_i, limited
to those of low_i and high_i themselves. So a row becomes a vector of whole numbers that depends on this row alone, and
each of them is between two public whole numbers: rounding is inside the bounds and adds nothing to how far a unit can
move a sum. The origin is 0; where neighbours have equally many rows and 0 is outside of the box, it is the bound next
to 0. A unit of several rows may have fewer than another, so then the origin is 0, and a row that is not there counts as
one of zeros: a unit of m rows moves sums by m times what one row in the box, widened to hold 0, does.

Sums are 64-bit whole numbers, so neither the order of rows nor the size of batches changes them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dpsieve.errors import InvalidValue
from dpsieve.numbers.norm_noise import fits
from dpsieve.numbers.scaled_noise import noise_shape
from dpsieve.types import Floats, Ints
from dpsieve.validate import Neighbours

FINEST = 2.0**29  # the scale of the noise in steps, so that rounding n rows moves a sum by at most n / 2^30 of it
_FARTHEST = 2**30  # steps that a unit can move all sums: 2^33 rows fit in 64 bits
_BATCH = 1 << 15  # entries at a time: they stay in the processor's cache
_TRIES = 40


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
        """Where each coordinate counts from."""
        nearest = np.clip(0.0, self.lows, self.highs)
        return nearest if self.neighbours == "replace" and self.rows_per_unit == 1 else np.zeros_like(nearest)

    @cached_property
    def changes(self) -> Ints:
        """How many steps one unit can move each sum."""
        return _moves(*self._ends, self.neighbours, self.rows_per_unit).astype(np.int64)

    @cached_property
    def _per_step(self) -> Floats:
        return np.divide(1.0, self.steps, out=np.zeros_like(self.steps), where=self.steps > 0)

    @cached_property
    def _ends(self) -> tuple[Floats, Floats]:
        low, high = (np.rint((ends - self.origins) * self._per_step) for ends in (self.lows, self.highs))
        return low, high

    def whole(self, values: Floats, columns: Any = slice(None)) -> Ints:
        """Return finite values, of these columns, as whole numbers of steps; `values` is overwritten."""
        with np.errstate(over="ignore"):  # what is beyond all floats is limited too
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
        """Add what is stored, and for each zero that is not stored the whole number that stands for 0."""
        total, stored = (np.zeros(len(self.steps), np.int64) for _ in range(2))
        for part in _batches(len(rows.data), _BATCH):
            columns = rows.indices[part]
            np.add.at(total, columns, self.whole(_finite(rows.data[part]), columns))
            stored += np.bincount(columns, minlength=len(total))
        return np.asarray(total + self.whole(np.zeros(len(total))) * (rows.shape[0] - stored))


def fitted_grid(
    lows: Floats, highs: Floats, neighbours: Neighbours, noise: str, shape: str, p: float, budget: float,
    rows_per_unit: int = 1,
) -> tuple[BoxGrid, float]:  # fmt: skip
    """Return a grid, and the scale of the noise in its steps, with which whole numbers keep a budget exactly.

    The budget is mu for Gaussian noise, epsilon for Laplace noise. The scale is a power of two, the same for nearly all
    budgets, so that the tables to draw from are made once.
    """
    widths = _moves(lows, highs, neighbours, rows_per_unit)
    largest = float(widths.max())
    if largest == 0:
        raise InvalidValue("widths are all zero, so that there is nothing to sum. Pass one above zero.")
    parts = noise_shape(widths, noise, shape, p)
    reach = np.divide(widths / largest, parts, out=np.zeros_like(parts), where=parts > 0)
    whole = float(np.sqrt((reach**2).sum()) if noise == "gaussian" else reach.sum())
    scale = FINEST
    while budget * scale > _FARTHEST:
        scale /= 2
    unit = whole * largest / (budget * scale)
    for attempt in range(_TRIES):
        grid = BoxGrid(lows, highs, parts * unit, neighbours, rows_per_unit)
        changes = grid.changes.tolist()
        squares, total = sum(change * change for change in changes), sum(changes)
        kept = fits(squares, budget, scale) if noise == "gaussian" else total <= Fraction(budget) * Fraction(scale)
        if kept and total:
            return grid, scale
        over = (squares**0.5 if noise == "gaussian" else total) / (budget * scale)
        unit *= max(over, 1.0) * (1 + 2.0 ** (attempt - 34))  # more each time, until whole numbers fall
        if not total:
            break
    raise InvalidValue("the budget is too small for so many coordinates. Pass a larger epsilon or rho.")


def _moves(lows: Floats, highs: Floats, neighbours: Neighbours, rows_per_unit: int) -> Floats:
    """Return how far one unit moves each sum at most, in the unit of its bounds."""
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
