"""What a job reads: a table with its engine, or an array of numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dpsieve.engines import choose, locate_data
from dpsieve.engines.engine import COUNT, Columns, Engine, Measure, NumberColumns, Progress
from dpsieve.engines.true_data import Counted, CountedByBound, NumberRows, Pairs
from dpsieve.errors import InvalidValue
from dpsieve.numbers.sums import coordinate_names, matrix
from dpsieve.privacy.contribution import Contribution
from dpsieve.randomness.source import Source, uniform_bits
from dpsieve.types import Floats

ALL_KEYS = Contribution(10**12)


class ValueColumns(Columns):
    """The column of values of a collection, and those of the privacy unit."""

    argument = "column"


@dataclass(frozen=True)
class Table:
    """Data and its engine. Each read draws a fresh salt, by which units choose what they keep."""

    data: Any
    engine: Engine
    allow_null_units: bool = False
    progress: Progress | bool | None = None

    @classmethod
    def of(
        cls,
        data: Any,
        table: str | None,
        engine: Engine | None,
        allow_null_units: bool = False,
        progress: Progress | bool | None = None,
    ) -> "Table":
        """Return the table that the arguments of a job name; nothing is opened or read."""
        data, engine = locate_data(data, table, engine)
        return cls(data, choose(data, engine), allow_null_units, progress)

    def check(self, columns: Columns) -> None:
        """Refuse columns that the table does not have, from its schema."""
        self.engine.check(self.data, columns)

    def counts(
        self,
        columns: Columns,
        contribution: Contribution,
        source: Source,
        *,
        measure: Measure = COUNT,
        known: pa.Table | None = None,
    ) -> Counted:
        """Return the keys with their counts, or sums of weights."""
        return self.engine.aggregate(self.data, columns, contribution, measure, known=known, **self._options(source))

    def pairs(self, columns: Columns, contribution: Contribution, source: Source) -> Pairs:
        """Return which unit keeps which keys."""
        return self.engine.read_pairs(self.data, columns, contribution, **self._options(source))

    def counts_by_bound(self, columns: Columns, source: Source) -> CountedByBound:
        """Return the counts under every bound on the keys per unit."""
        return self.engine.read_by_bound(self.data, columns, **self._options(source))

    def numbers(self, columns: NumberColumns, max_rows: int, source: Source) -> NumberRows:
        """Return rows of numbers, at most `max_rows` per unit."""
        return self.engine.read_numbers(self.data, columns, max_rows, **self._options(source))

    def _options(self, source: Source) -> dict[str, Any]:
        salt = uniform_bits(source, 63)
        return {"salt": salt, "allow_null_units": self.allow_null_units, "progress": self.progress}


@dataclass(frozen=True, eq=False)
class Array:
    """Rows of numbers in memory, one per unit; it offers what jobs on numbers ask of a `Table`.

    Attributes:
        values: a two-dimensional array, or a SciPy sparse matrix, which stays sparse.
        names: one per coordinate.
        is_flat: whether one column was passed, so that the result is one number.
    """

    values: Any
    names: list[str]
    is_flat: bool

    @classmethod
    def of(cls, x: Any) -> "Array":
        """Return the rows of an array, a list of rows, a table with columns of numbers, or a sparse matrix.

        Infinite numbers are clipped to the bounds later, but not those of a sparse matrix, which is never copied.
        """
        rows = matrix(x, "data")
        is_sparse = hasattr(rows.values, "tocsr")
        if not (np.isfinite(rows.values.data).all() if is_sparse else not np.isnan(rows.values).any()):
            what = "NaN or infinite values" if is_sparse else "NaN"
            raise InvalidValue(f"data holds {what}. Fill them in, or leave those rows out.")
        return cls(rows.values, coordinate_names(None, rows), rows.single)

    def check(self, columns: Columns) -> None:
        """Do nothing: an array has the columns that it has."""

    def numbers(self, columns: NumberColumns, max_rows: int, source: Source) -> NumberRows:
        """Return all rows, each a unit."""
        return NumberRows(self.values, np.arange(self.values.shape[0] + 1))


def clip_rows(values: Any, lows: Floats, highs: Floats) -> Any:
    """Return dense rows clipped to the bounds; sparse ones as they are, for sums that clip their entries."""
    return values if hasattr(values, "tocsr") else np.clip(values, lows, highs)


def check_columns(request: Any, table: Table | Array | None) -> Callable[[], None] | None:
    """Return what refuses columns that the table of a request does not have; None without a table."""
    return None if table is None else lambda: table.check(request.columns)
