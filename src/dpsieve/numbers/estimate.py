"""Private numbers, one per coordinate or quantile: rows of numbers in any accepted form, and what is published."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa

from dpsieve import validate
from dpsieve.codec import register
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.mechanism import Drawn, Mechanism
from dpsieve.publication.publication import Notes, Publication
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.values.columns import column_of, converted

if TYPE_CHECKING:
    from dpsieve.numbers.noise import ScaledNoise

MOST_ROWS_PER_UNIT = 10_000
STATISTICS = ("sum", "mean", "quantile")
SMALLEST_BOUND, LARGEST_BOUND = 1e-60, 1e60  # of bounds, so that no step is too small or too large for a float
_FIX = "Use it as it was made."
_ROWS = "Pass rows of numbers: an array, a list of rows, a table with columns of numbers, or a sparse matrix."


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


def describe_contribution(rows_per_unit: int, bounds: Sequence[tuple[float, float]] = ()) -> str:
    """Return what a unit contributes, as text; bounds are stated where all columns have the same."""
    count = "one row" if rows_per_unit == 1 else f"at most {rows_per_unit:,} rows"
    limits = f"{bounds[0][0]:,g} to {bounds[0][1]:,g}" if len(set(bounds)) == 1 else "public bounds"
    return f"{count} of numbers within {limits}"


def _table(reader: Any, values: Floats, names: Any) -> pa.Table:
    # NaN stands for what is not stated
    columns = reader.columns(values).items()
    stated = {name: pa.array(column, pa.float64(), from_pandas=True) for name, column in columns}
    return pa.table({"name": names, "value": pa.array(values, pa.float64()), **stated})


def draw_sums(sums: Ints, mechanism: "ScaledNoise", source: Source, names: Sequence[str], **notes: Any) -> Estimate:
    """Return exact sums, in steps, with the noise of a mechanism; charges no ledger. `notes` go to `Estimate.of`."""
    return Estimate.of(mechanism, mechanism.draw(sums, source), names, source=source, **notes)


class Rows(NamedTuple):
    """Rows as a two-dimensional array or a CSR matrix, names of columns, and whether the input was one flat column."""

    values: Any
    names: list[str] | None
    single: bool


def matrix(x: Any, name: str = "x") -> Rows:
    """Return rows of numbers in any accepted form, of an argument of this name; the numbers are not checked."""
    if hasattr(x, "tocsr"):
        return Rows(_sparse(x, name), None, False)
    if isinstance(x, pa.Array | pa.ChunkedArray) or (hasattr(x, "to_numpy") and len(getattr(x, "shape", ())) == 1):
        return Rows(_columns(pa.table({"0": column_of(name, x, _ROWS)}), name).values, None, True)
    if hasattr(x, "__arrow_c_stream__") or isinstance(x, pa.Table | pa.RecordBatch):
        return _columns(x, name)
    try:
        values = np.asarray(validate.listed(x))
    except ValueError:
        raise InvalidType(f"{name} has rows of different lengths. {_ROWS}") from None
    if values.dtype.kind not in "fiub" or values.ndim not in (1, 2) or 0 in values.shape[1:] or np.ma.isMaskedArray(x):
        raise InvalidType(f"{name} must be rows of numbers. {_ROWS}")
    return Rows(values if values.ndim == 2 else values[:, None], None, values.ndim == 1)


def _columns(x: Any, name: str) -> Rows:
    pandas = hasattr(x, "iloc")  # its index is no column
    table = converted(lambda: pa.Table.from_pandas(x, preserve_index=False) if pandas else pa.table(x), name, _ROWS)
    if not all(pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_boolean(t) for t in table.schema.types):
        raise InvalidType(f"{name} has columns that are not numbers. {_ROWS}")
    if any(column.null_count for column in table.columns):
        raise InvalidValue(f"{name} holds nulls. Fill them in, or leave those rows out.")
    if not table.num_columns:
        raise InvalidType(f"{name} has no columns. {_ROWS}")
    return Rows(np.column_stack([column.to_numpy() for column in table.columns]), table.column_names, False)


def _sparse(x: Any, name: str) -> Any:
    """Return a CSR matrix without duplicate entries, which would be clipped one by one."""
    from scipy.sparse import csr_matrix

    def convert() -> Any:
        given = x.tocsr()
        rows = csr_matrix((given.data, given.indices, given.indptr), given.shape, copy=False)
        rows.check_format(full_check=True)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        return rows

    matrix = converted(convert, name, _ROWS)
    if matrix.dtype.kind not in "fiub" or not matrix.shape[1]:
        raise InvalidType(f"{name} must be rows of numbers. {_ROWS}")
    return matrix


def coordinate_names(names: Any, rows: Rows) -> list[str]:
    """Return one name per coordinate."""
    size = rows.values.shape[1]
    fix = "Pass a list with one text per coordinate."
    if names is None:
        names = rows.names or [str(i) for i in range(size)]
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidType(f"names must be a list of texts. {fix}")
    if len(names) != size or len(set(names)) != size:
        raise InvalidValue(f"names has another length than x has coordinates, {size:,}, or repeats one. {fix}")
    if not all(name.isprintable() for name in names):
        raise InvalidValue(f"names has line breaks or control characters. {fix}")
    return list(names)
