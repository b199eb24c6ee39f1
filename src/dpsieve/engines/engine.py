"""The interface of all engines: columns of a table, and its keys or numbers after each privacy unit is bounded."""

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import pyarrow as pa

from dpsieve import validate
from dpsieve.display import show_progress
from dpsieve.engines.true_data import Counted, CountedByBound, NumberRows, Pairs
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.noise.totals import AnyTotal
from dpsieve.privacy.guarantee import Contribution, Weight

if TYPE_CHECKING:
    from dpsieve.engines.sql.row_expressions import RowExpressions

Progress = Callable[[float], None]

_MOST_WEIGHTS = 10_000


@dataclass(frozen=True)
class Columns:
    """The columns of the key and of the privacy unit.

    Attributes:
        key: the names of the key columns; a key is one value in each of them.
        unit: the names of the columns of the privacy unit, which is one combination of their values; a null in any of
            them is a null unit. Empty if every row is its own unit. A single name may be passed as text.
        totals: the columns of numbers that are added up per key; see `noise.totals`.
        rows: what is computed of each row first: a condition, and columns of the key.

    >>> Columns(("query",), "user_id").unit, Columns(("query",), ("tenant", "user_id")).shown_unit
    (('user_id',), "['tenant', 'user_id']")
    """

    argument: ClassVar[str] = "key"

    key: tuple[str, ...]
    unit: tuple[str, ...] = ()
    totals: tuple[AnyTotal, ...] = ()
    rows: "RowExpressions | None" = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit", unit_columns(self.unit))

    @property
    def of_table(self) -> "Columns":
        """The columns of the table that are read: with `rows`, those of the expressions instead of what they derive."""
        if self.rows is None:
            return self
        plain = [name for name in self.key if name not in self.rows.derived]
        names = dict.fromkeys([*plain, *(name for _, name in self.rows.named)])
        return replace(self, key=tuple(name for name in names if name not in self.unit))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read, each once."""
        return tuple(dict.fromkeys((*self.unit, *self.key, *(total.column for total in self.totals))))

    @property
    def shown_unit(self) -> str:
        """The columns of the unit, as an argument is written."""
        return repr(self.unit[0] if len(self.unit) == 1 else list(self.unit))

    def check_present(self, names: Iterable[str], *, listed: bool) -> None:
        """Refuse columns that are not among the names of the data's columns, and suggest those that are.

        Without `listed` no column is named: the header of a text file may be a first row of data. The columns of the
        unit are never suggested as keys, as that would publish the units.
        """
        known, named = list(names), [] if self.rows is None else self.rows.named
        computed = {*(() if self.rows is None else self.rows.derived), *(name for _, name in named)}
        requested = [("privacy_unit", name) for name in self.unit] + named
        requested += [(self.argument, name) for name in self.key if name not in computed]
        requested += [(total.argument, total.column) for total in self.totals]
        for argument, name in requested:
            if known.count(name) > 1:
                raise InvalidValue(f"{argument}={name!r} names several columns. Rename them.", argument=argument)
            if name not in known:
                taken = self.of_table.names if argument == "privacy_unit" else () if argument == "where" else self.unit
                fix = _advice(name, [other for other in known if other not in taken], listed, argument)
                raise InvalidValue(f"{argument}={name!r} is not a column of the data. {fix}", argument=argument)


def unit_columns(unit: object) -> tuple[str, ...]:
    """Return the columns of a privacy unit: one name, several, or () where each row is its own unit."""
    hint = "Name the column that says who is protected, such as privacy_unit='user_id', or several."
    names = () if unit is None else (unit,) if isinstance(unit, str) else unit
    if isinstance(names, list) and not names:
        raise InvalidValue(f"privacy_unit is an empty list. {hint}", argument="privacy_unit")
    if not isinstance(names, Sequence):
        kind = type(unit).__name__
        raise InvalidType(f"privacy_unit must be a column name or a list, not {kind}. {hint}", argument="privacy_unit")
    checked = tuple(validate.text("privacy_unit", name, hint=hint) for name in names)
    if len(set(checked)) < len(checked):
        raise InvalidValue("privacy_unit names a column twice. Name each column once.", argument="privacy_unit")
    return checked


class NumberColumns(Columns):
    """The columns of numbers, as `key`, and of the privacy unit."""

    argument = "column"


COUNT: Final = "count"
Measure = Literal["count"] | Weight


@dataclass(frozen=True)
class Aggregation:
    """What an engine computes.

    Attributes:
        columns: the key and the privacy unit; for `Engine.read_numbers`, `NumberColumns`.
        contribution: what one unit may add.
        measure: COUNT, or Weight(bits); then a unit may keep up to 10,000 keys.
        salt: an integer below 2^64, drawn for each read; it determines which keys a unit keeps.
        allow_null_units: drop rows with a null unit; by default these are refused, as they cannot be attributed to a
            unit.
        known: public keys, a table with the key columns: rows of other keys are dropped first, and every key returns.
        progress: called in this thread with the share of the work that is done, from 0 to 1; see
            `monotonic_progress`. An exception that it raises stops the work.
    """

    columns: Columns
    contribution: Contribution
    measure: Measure = COUNT
    salt: int = 0
    allow_null_units: bool = False
    known: pa.Table | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if isinstance(self.measure, Weight) and self.contribution.keys > _MOST_WEIGHTS:
            why = f"max_keys_per_unit={self.contribution.keys} is too large for weights"
            raise InvalidValue(f"{why}. Pass at most {_MOST_WEIGHTS:,}.", argument="max_keys_per_unit")

    @property
    def weights(self) -> tuple[int, ...]:
        """The weight that a unit adds to each of its keys if it keeps 1, 2, ... of them."""
        keys = self.contribution.keys if self.columns.unit else 1
        return self.measure.of_keys(keys) if isinstance(self.measure, Weight) else (1,)

    @property
    def max_rows(self) -> int:
        """The number of rows of a unit that count for one of its keys."""
        return 1 if isinstance(self.measure, Weight) else self.contribution.rows

    def report(self, share: float) -> None:
        """Report the share of the work that is done."""
        if self.progress is not None:
            self.progress(share)


class Engine(ABC):
    """Reads tables, bounds each privacy unit and aggregates; `data` is what `dpsieve.engines.inputs` describes.

    Attributes:
        supports_pairs: whether it implements `read_pairs`.
    """

    supports_pairs: ClassVar[bool] = True

    @abstractmethod
    def columns(self, data: Any) -> list[tuple[str, str]]:
        """Return name and type of each column. Only the schema is read, or what names the columns of a text file."""

    @abstractmethod
    def check(self, data: Any, columns: Columns) -> None:
        """Refuse columns that the data does not have, and keys of a type that cannot be one, from the schema alone."""

    @abstractmethod
    def aggregate(self, data: Any, task: Aggregation) -> Counted:
        """Bound what each privacy unit adds, and return the keys with their true counts or sums of weights.

        Rows with a null in a key column are dropped first. Then each unit keeps at most `contribution.keys` of its
        distinct keys: those with the smallest hash of the salt, the unit and the key. So every key of a unit is equally
        likely, units choose independently, and the same salt repeats the same choice. To each of these keys the unit
        adds its number of rows with the key, at most `contribution.rows`; or its weight (see `Weight`). Where every row
        is its own unit, a count is a number of rows, and each row has the weight of one key.

        Privacy depends neither on the hash nor on the secrecy of the salt: for every salt, what a unit adds depends on
        its own rows alone. So one unit changes at most `contribution.keys` counts, each by at most `contribution.rows`;
        or weights by at most 2^bits in the L2 norm.
        """

    @abstractmethod
    def read_pairs(self, data: Any, task: Aggregation) -> Pairs:
        """Bound each privacy unit as `aggregate` does, and return the keys of each unit.

        The counts of the result, and its sums of weights, are those of `aggregate` with the same salt. The contribution
        is of one row per key, and of any number of keys: 10^12 are no bound.

        Units are sorted by a hash of the salt and the unit, and the keys of a unit in the order in which they are
        chosen; ties are broken by the values. So the order of two units depends on these two and the salt alone. Where
        every row is its own unit, rows are sorted by a hash of the salt and their key.
        """

    @abstractmethod
    def read_by_bound(self, data: Any, task: Aggregation) -> CountedByBound:
        """Count under every bound up to `contribution.keys`, which is MOST; the columns must name a unit.

        The counts under a bound are those of `aggregate` with the same salt. The data is read once, and what the counts
        need is stored in memory or in a private folder.
        """

    @abstractmethod
    def read_numbers(self, data: Any, task: Aggregation) -> NumberRows:
        """Bound what each privacy unit adds, and return rows of numbers: at most `contribution.rows` per unit.

        Rows with a null or NaN in one of the columns are dropped first; in text files, so are those with a text that is
        not a number. Then each unit keeps the rows with the smallest hash of the salt, the unit and the row, so every
        row of a unit is equally likely, equal ones too. As in `aggregate`, what a unit keeps depends on its own rows
        and the salt alone. Where every row is its own unit, all rows stay.
        """


def monotonic_progress(progress: Progress | bool | None) -> Progress | None:
    """Return what reports progress, which never falls; True shows it in a notebook or a terminal."""
    if progress is None or progress is False:
        return None
    report = show_progress() if progress is True else progress
    if not callable(report):
        raise InvalidType("progress must be True or a function of one number. Pass one, or none.", argument="progress")
    furthest = 0.0

    def report_rising(share: float) -> None:
        nonlocal furthest
        furthest = max(furthest, min(share, 1.0))
        report(furthest)

    return report_rising


def _advice(name: str, known: list[str], listed: bool, word: str) -> str:
    """Return how to fix a wrong name of a column."""
    folded: dict[str, str] = {}
    for other in known:
        folded.setdefault(_letters(other), other)
    if "," in name:
        return f"Name several columns one by one: {word}=['a', 'b']."
    if listed:
        matches = [folded[match] for match in difflib.get_close_matches(_letters(name), folded, n=3)]
        if matches:
            return f"Did you mean {' or '.join(map(repr, matches))}?"
    elif _letters(name) in folded:
        return "One differs from it in case, spaces or punctuation alone: check the spelling in the file."
    if listed and known:
        more = ", ..." if len(known) > 12 else ""
        return f"Choose from {', '.join(map(repr, known[:12]))}{more}."
    if listed:
        return "No other column has a text as its name: rename the columns, or use reset_index() for an index."
    return (
        "The first line of a CSV file, or the objects of JSON lines, must name it. "
        "For CSV without such a line, pass the names: dpsieve.files(data, header='user,query')."
    )


def _letters(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())
