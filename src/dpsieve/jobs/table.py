"""What a job reads: a table with its engine, or an array of numbers."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from dpsieve.display import timed
from dpsieve.engines import choose
from dpsieve.engines.inputs.files import is_text
from dpsieve.engines.inputs.frames import is_spark, open_source
from dpsieve.engines.postgres import Postgres
from dpsieve.engines.true_data import Counted, CountedByBound, NumberRows, Pairs
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.jobs.request import ROWS
from dpsieve.noise.keys_per_unit import MOST
from dpsieve.numbers.estimate import coordinate_names, matrix
from dpsieve.privacy.guarantee import Contribution, warn_caller
from dpsieve.randomness.source import Source, uniform_bits
from dpsieve.types import Floats

from dpsieve.engines.engine import (  # isort: skip
    COUNT, Aggregation, Columns, Engine, Measure, NumberColumns, Progress, monotonic_progress,
)  # fmt: skip

_T = TypeVar("_T")
ALL_KEYS = Contribution(10**12)
_PEOPLE = (
    "account", "buyer", "client", "customer", "device", "email", "employee", "member", "passenger", "patient", "person",
    "phone", "respondent", "student", "subscriber", "user", "visitor",
)  # fmt: skip
_IDS = ("id", "ids", "uid", "guid", "uuid", "identifier", "pid", "cid", "ssn")
_ATTRIBUTES = ("age", "agent", "agents", "city", "country", "gender", "group", "kind", "language", "status", "type")
_USUAL_NAME = re.compile(rf"(?:(?:{'|'.join((*_PEOPLE, *_IDS, 'name', 'number'))})s?[ _-]?){{1,3}}", re.I)
_CANDIDATES = 5


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
        return cls(*choose(data, engine, table), allow_null_units, progress)

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
        return self._read(self.engine.aggregate, "bound and count", source, columns, contribution, measure, known)

    def pairs(
        self, columns: Columns, contribution: Contribution, source: Source, *, known: pa.Table | None = None
    ) -> Pairs:
        """Return which unit keeps which keys."""
        keys = Contribution(contribution.keys)
        return self._read(self.engine.read_pairs, "bound", source, columns, keys, COUNT, known)

    def counts_by_bound(self, columns: Columns, source: Source) -> CountedByBound:
        """Return the counts under every bound on the keys per unit."""
        return self._read(self.engine.read_by_bound, "bound", source, columns, Contribution(MOST))

    def numbers(self, columns: NumberColumns, max_rows: int, source: Source) -> NumberRows:
        """Return rows of numbers, at most `max_rows` per unit."""
        return self._read(self.engine.read_numbers, "bound and read", source, columns, Contribution(rows=max_rows))

    def _read(
        self,
        read: Callable[[Any, Aggregation], _T],
        what: str,
        source: Source,
        columns: Columns,
        contribution: Contribution,
        measure: Measure = COUNT,
        known: pa.Table | None = None,
    ) -> _T:
        salt, progress = uniform_bits(source, 63), monotonic_progress(self.progress)
        task = Aggregation(columns, contribution, measure, salt, self.allow_null_units, known, progress)
        with timed(f"{type(self.engine).__name__}: {what}"):
            return read(self.data, task)


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


def identity_rank(name: str) -> int:
    """Return how much the name of a column suggests an identifier: 2 of people or devices, 1 of anything, 0 not.

    >>> [identity_rank(name) for name in ("user_id", "customerID", "email", "order_id", "query", "user_agent")]
    [2, 2, 2, 1, 0, 0]
    """
    words = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower())
    if not words or words[-1] in _ATTRIBUTES:
        return 0
    if any(word.startswith(_PEOPLE) for word in words):
        return 2
    return int(words[-1] in _IDS)


def identifying_columns(arguments: Mapping[str, Any]) -> list[str]:
    """Return the columns of a job's data, except its keys, that have the names of identifiers, the likeliest first.

    Only the schema is read. The header of a text file may be a first row of data: of it, names are returned only if
    all their words are those of this module.
    """
    data, keys = arguments.get("data"), arguments.get("key") or arguments.get("column")
    if data is None:
        return []
    try:
        opened = Table.of(data, arguments.get("table"), arguments.get("engine"))
        names = [name for name, _ in opened.engine.columns(opened.data) if identity_rank(name)]
    except DpsieveError:  # the unit is missing either way
        return []
    names = [name for name in names if name != keys and not (isinstance(keys, Sequence) and name in [*keys])]
    if not (isinstance(opened.engine, Postgres) or is_spark(opened.data)) and is_text(open_source(opened.data)):
        names = [name for name in names if _USUAL_NAME.fullmatch(name)]
    return sorted(names, key=identity_rank, reverse=True)[:_CANDIDATES]


def missing_unit(arguments: Mapping[str, Any]) -> InvalidValue:
    """Return the error for a job whose arguments do not state the unit; it names columns of the data that may be it."""
    candidates = identifying_columns(arguments)
    names = ", ".join(map(repr, candidates))
    like = f" These columns have the names of identifiers: {names}." if candidates else ""
    example = repr(candidates[0] if candidates else "user_id")
    return InvalidValue(
        f"privacy_unit is missing: the column that identifies who is protected.{like} Pass privacy_unit={example}, or "
        f"privacy_unit={ROWS!r} if no person has two rows.",
        argument="privacy_unit",
    )


def warn_if_exchanged(key: Sequence[str], unit: Sequence[str]) -> None:
    """Issue a PrivacyWarning where the key has the name of an identifier rather than the unit."""
    suspect = max(key, key=identity_rank)
    if identity_rank(suspect) > max(map(identity_rank, unit), default=0):
        shown = repr(unit[0]) if len(unit) == 1 else repr(list(unit) or ROWS)
        warn_caller(
            f"key={suspect!r} has the name of an identifier and would be published, unlike privacy_unit={shown}. "
            "Swap them if the key identifies people."
        )


def clip_rows(values: Any, lows: Floats, highs: Floats) -> Any:
    """Return dense rows clipped to the bounds; sparse ones as they are, for sums that clip their entries."""
    return values if hasattr(values, "tocsr") else np.clip(values, lows, highs)


def check_columns(request: Any, table: Table | Array | None) -> Callable[[], None] | None:
    """Return what refuses columns that the table of a request does not have; None without a table."""
    return None if table is None else lambda: table.check(request.columns)
