"""Private numbers, one per coordinate or quantile: what a private sum, quantile or mean publishes."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from dpsieve import validate
from dpsieve.codec import register
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.mechanism import Drawn, Mechanism
from dpsieve.publication.publication import Notes, Publication
from dpsieve.randomness.source import Source
from dpsieve.types import Floats

MOST_ROWS_PER_UNIT = 10_000
STATISTICS = ("sum", "mean", "quantile")
_FIX = "Use it as it was made."


class Estimating(Mechanism):
    """A mechanism that publishes `size` real numbers."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of published values."""

    @abstractmethod
    def columns(self, values: Floats) -> dict[str, Floats]:
        """Return the other columns of the table by name, from public numbers and the values alone.

        Where they depend on what was drawn beside the values, the `reader` of the mechanism returns them instead.
        """

    @abstractmethod
    def possible(self, values: Floats) -> bool:
        """Return whether these finite values are possible outcomes, as far as public numbers show."""


@dataclass(frozen=True)
class EstimateNotes(Notes):
    """How numbers were made, and what they are.

    Attributes:
        single: whether there is a single number.
        statistic: what the numbers are: 'sum', 'mean' or 'quantile'; empty where that is not stated.
        bounds: the public bounds (low, high) of each column.
    """

    omitted: ClassVar[tuple[str, ...]] = (*Notes.omitted, "statistic", "bounds")

    single: bool = False
    statistic: str = field(default="", kw_only=True)
    bounds: tuple[tuple[float, float], ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.single, bool):
            raise InvalidType("single must be True or False.")
        if self.statistic not in ("", *STATISTICS):
            raise InvalidValue(f"statistic is not known. {_FIX}")
        numbers = [number for pair in self.bounds for number in pair]
        if len(numbers) != 2 * len(self.bounds) or not all(isinstance(number, float) for number in numbers):
            raise InvalidType(f"bounds must be pairs of numbers. {_FIX}")


@register("estimate")
@dataclass(frozen=True, eq=False, repr=False)
class Estimate(Publication):
    """Private numbers: a sum, a mean, or quantiles.

    Attributes:
        table: one row per number: `name` (of the coordinate or the quantile), `value`, and columns about its error.
    """

    notes_kind: ClassVar[type[Notes]] = EstimateNotes

    notes: EstimateNotes = field(default_factory=EstimateNotes, kw_only=True)

    @classmethod
    def of(
        cls, mechanism: Mechanism, values: Floats, names: Sequence[str], *, source: Source, reason: str,
        contribution: str = "", single: bool = False, drawn: Drawn | None = None,
    ) -> Self:  # fmt: skip
        """Return the publication of values that a mechanism drew, and of the numbers drawn beside them."""
        table = _table(mechanism.reader(drawn or {}), values, pa.array(names, pa.string()))
        notes = EstimateNotes(contribution, reason, single)
        return cls(table, mechanism, drawn=drawn or {}, unsafe_to_publish=not source.publishable, notes=notes)

    @property
    def value(self) -> float | Floats:
        """The numbers as an array; a float where a single one was requested."""
        values = self.table.column("value").to_numpy()
        return float(values[0]) if self.notes.single else values

    @property
    def last(self) -> Any:
        """The mechanism that drew the numbers: the last of a sequence."""
        return self.mechanism.last

    def check(self) -> None:
        """Raise unless the table is a possible outcome of the mechanism."""
        last, table = self.last, self.table
        if not isinstance(last, Estimating):
            raise InvalidValue(f"mechanism publishes no numbers. {_FIX}")
        if table.column_names[:2] != ["name", "value"] or table.schema.types[:2] != [pa.string(), pa.float64()]:
            raise InvalidValue(f"table has other columns than the mechanism publishes. {_FIX}")
        if any(table.column(name).null_count for name in ("name", "value")) or len(self) != last.size:
            raise InvalidValue(f"table has nulls, or another number of rows than the mechanism publishes. {_FIX}")
        if not all(name.isprintable() for name in table.column("name").to_pylist()):
            raise InvalidValue(f"table has names with line breaks or control characters. {_FIX}")
        values = table.column("value").to_numpy()
        if not np.isfinite(values).all() or not last.possible(values) or (self.notes.single and len(self) != 1):
            raise InvalidValue(f"table has values that are no outcome of the mechanism. {_FIX}")
        if not table.equals(_table(self._reader, values, table.column("name"))):
            raise InvalidValue(f"table states other errors than the mechanism. {_FIX}")


def check_unit_rows(count: object) -> int:
    """Return the largest number of rows per unit."""
    hint = "Pass at most how many rows belong to one unit."
    return validate.whole("rows_per_unit", count, low=1, high=MOST_ROWS_PER_UNIT, hint=hint)


def describe_contribution(rows_per_unit: int) -> str:
    """Return what a unit contributes, as text."""
    count = "one row" if rows_per_unit == 1 else f"at most {rows_per_unit:,} rows"
    return f"{count} of numbers within public bounds"


def _table(reader: Any, values: Floats, names: Any) -> pa.Table:
    # NaN stands for what is not stated
    columns = reader.columns(values).items()
    stated = {name: pa.array(column, pa.float64(), from_pandas=True) for name, column in columns}
    return pa.table({"name": names, "value": pa.array(values, pa.float64()), **stated})
