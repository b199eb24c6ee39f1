"""Publications: the output of a mechanism, with printing, saving and loading for all kinds.

A saved publication is a folder with release.json and Parquet tables (`publication.files`). Its guarantee is never
typed in: it comes from the certificate of its mechanism. Loading rebuilds the mechanism from its parameters, certifies
it, checks the tables against it, and refuses any difference from the stored values.
"""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, overload

import pyarrow as pa

import dpsieve
from dpsieve import validate
from dpsieve.codec import decode_fields, encode_fields, find_class
from dpsieve.display import html_table, shorten, timed
from dpsieve.errors import CorruptRelease, DpsieveError, InvalidType, InvalidValue
from dpsieve.noise.keys_per_unit import Coverage
from dpsieve.privacy.certificate import Certificate
from dpsieve.privacy.guarantee import Guarantee, unprotected
from dpsieve.privacy.mechanism import Drawn, Mechanism, from_json
from dpsieve.publication.bounded import LARGEST_RECORD, is_deep
from dpsieve.publication.files import (
    MAIN,
    csv_content,
    file_table,
    incomplete,
    needs_too_much,
    read,
    read_tables,
    write,
    write_file,
)
from dpsieve.values.keys import key_names

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_OF_FOLDER = {"format", "library", "table_sha256", "more_sha256", "seal"}
_LONGEST = 10_000  # characters of a note
_MOST_ROWS = 3 << 19  # of the tables behind one publication: one of the longest, not two
_BOUNDED = (
    "Counts and intervals are of the bounded count: what a unit holds beyond its bound is left out, so the number of "
    "units that hold a key may be higher."
)
UNSAFE = "UNSAFE TO PUBLISH: drawn from a test source."
WITHOUT_KEYS = ("estimate", "distribution", "sparse_vector")  # kinds of publications
_ROWS = 10  # shown in a notebook
_BATCH = 10_000  # rows held as Python objects at a time

# Exceptions for values of the wrong kind.
_ODD = (
    DpsieveError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError, pa.ArrowException
)  # fmt: skip


@dataclass(frozen=True)
class Notes:
    """How a publication was made, as public text.

    Attributes:
        contribution: what a unit may add.
        reason: why this mechanism was chosen.
        coverage: the share of (unit, key) pairs that the bound keeps; None where it is not reported.
        entry: the number of the ledger entry that was charged; None where there was none.
        rarer: where few keys were reported, how to report rarer ones.
        purpose, date: the note of that entry and its day; empty where there was none.
        left: what the ledger had left after that entry, for one more release.
        where, derived: the condition on a row under which it counted, and the expressions of derived keys, in SQL.
    """

    # From the saved form, if empty.
    omitted: ClassVar[tuple[str, ...]] = ("purpose", "date", "left", "where", "derived")

    contribution: str = ""
    reason: str = ""
    coverage: Coverage | None = field(default=None, kw_only=True)
    entry: int | None = field(default=None, kw_only=True)
    rarer: str = field(default="", kw_only=True)
    purpose: str = field(default="", kw_only=True)
    date: str = field(default="", kw_only=True)
    left: str = field(default="", kw_only=True)
    where: str = field(default="", kw_only=True)
    derived: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if self.coverage is not None and not isinstance(self.coverage, Coverage):
            raise InvalidType(f"coverage must be Coverage(...) or None, not {type(self.coverage).__name__}.")
        if self.entry is not None:
            validate.whole("entry", self.entry, low=1, hint="Pass the number of an entry of a ledger, or None.")
        for name in ("contribution", "reason", "rarer", "purpose", "date", "left", "where", "derived"):
            value = getattr(self, name)
            if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
                raise InvalidType(f"{name} must be text of at most {_LONGEST:,} characters, all printable.")

    @property
    def bounded(self) -> str:
        """The condition on rows, the bound on a unit's rows and its coverage, as sentences; empty if there is none."""
        coverage = "" if self.coverage is None else f": {self.coverage}"
        rows = f"Rows count where {self.where}. " if self.where else ""
        return rows + (f"A unit adds {self.contribution}{coverage}." if self.contribution else "")

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {name: value for name, value in encode_fields(self).items() if value or name not in self.omitted}


@dataclass(frozen=True, eq=False, repr=False)
class Publication(ABC):
    """The output of a mechanism. It may be post-processed freely: the guarantee holds.

    Attributes:
        table: what is published, as rows.
        mechanism: how it was made; it holds no data, and nothing that was drawn.
        drawn: public numbers that were drawn beside the table, by name, such as the noisy loss of a sketch.
        unsafe_to_publish: True when the randomness came from a seeded test source.
        notes: how it was made, as text.
        name, notes_kind: the name of this kind in saved folders, and the type of its notes.
        more_tables: fields that are saved as further tables.
        when_empty: advice for a table without rows; empty where there is none.

    >>> import dpsieve as ds
    >>> ds.channels.known_keys(1.0, unit="user").release(["tea"], [10])
    <Release of 1 row: 1-differential privacy when one user is added or removed.>
    """

    name: ClassVar[str]
    notes_kind: ClassVar[type[Notes]] = Notes
    more_tables: ClassVar[tuple[str, ...]] = ()
    when_empty: ClassVar[str] = ""

    table: pa.Table
    mechanism: Mechanism
    drawn: Drawn = field(default_factory=dict, kw_only=True)
    unsafe_to_publish: bool = field(default=False, kw_only=True)
    notes: Notes = field(default_factory=Notes, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.unsafe_to_publish, bool) or not isinstance(self.notes, self.notes_kind):
            raise InvalidType("unsafe_to_publish must be True or False, and notes of the kind that belongs to this.")
        self.certificate  # noqa: B018 (raises unless the mechanism keeps its promise)
        self._reader  # noqa: B018 (raises unless the mechanism draws such numbers)

    @property
    def kind(self) -> str:
        """The name of this kind of publication."""
        return self.name

    @cached_property
    def certificate(self) -> Certificate:
        """What was checked of what was drawn from, in parts."""
        return self.mechanism.certify()

    @cached_property
    def _reader(self) -> Any:
        """The reader of tokens or values, given what was drawn."""
        return self.mechanism.reader(self.drawn)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for one privacy unit: the composition of the parts of the certificate."""
        return self.certificate.guarantee

    @property
    def unprotected(self) -> str:
        """What a guarantee for single rows or items does not protect, as a sentence; empty for other units."""
        return unprotected(self.guarantee.unit)

    @property
    def bounded(self) -> str:
        """The bounds behind counts and numbers, as sentences; empty if nothing is bounded."""
        return f"{_BOUNDED} {self.notes.bounded}" if self._is_bounded else self.notes.bounded

    @property
    def _is_bounded(self) -> bool:
        """Whether there are counts, which leave out data beyond a bound per unit."""
        return "count" in self.table.column_names and self.notes.contribution.startswith("at most")

    def charged_as(self, entry: int | None, purpose: str = "", date: str = "") -> Self:
        """Return the same publication with the number, the note and the day of the ledger entry that paid for it."""
        return self if entry is None else self.with_notes(entry=entry, purpose=purpose, date=date)

    def with_notes(self, **changes: Any) -> Self:
        """Return the same publication with other notes."""
        changed = copy(self)
        object.__setattr__(changed, "notes", replace(self.notes, **changes))
        return changed

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the table as dicts, in its order; dates and times are text, as in CSV."""
        for batch in self.table.to_batches(max_chunksize=_BATCH):
            yield from plain_rows(pa.Table.from_batches([batch]))

    def __repr__(self) -> str:
        rows = "1 row" if len(self) == 1 else f"{len(self):,} rows"
        warning = f" {UNSAFE}" if self.unsafe_to_publish else ""
        bounded = self.notes.bounded if self.notes.coverage else ""
        words = " ".join(filter(None, [str(self.guarantee), self.unprotected, bounded, self.hint]))
        return f"<{type(self).__name__} of {rows}: {words}{warning}>"

    @property
    def hint(self) -> str:
        """Advice where few rows were published."""
        rarer = f"For more keys, {self.notes.rarer}." if self.notes.rarer else ""
        return " ".join(filter(None, [self.when_empty if not len(self) else "", rarer]))

    def _repr_html_(self) -> str:
        """Return the first rows, the guarantee and the certificate, for a notebook."""
        keys = () if self.kind in WITHOUT_KEYS else key_names(self.table.column_names)
        given = plain_rows(self.head(_ROWS))
        shown = (row | {"low": None} if row.get("bound") == "at most" else row for row in given)
        rows = [[shorten(v) if name in keys or isinstance(v, str) else v for name, v in row.items()] for row in shown]
        table = html_table(rows, self.table.column_names)
        more = f"<p>{len(self) - _ROWS:,} more rows</p>" if len(self) > _ROWS else ""
        more += f"<p>{escape(self.hint)}</p>" if self.hint else ""
        warning = f"<p><strong>{UNSAFE}</strong></p>" if self.unsafe_to_publish else ""
        bounded = f"<p>{escape(self.bounded)}</p>" if self.bounded else ""
        promise = escape(f"{self.guarantee} {self.unprotected}".strip())
        words = f"<p>{promise}</p>{bounded}<p><small>{escape(str(self.certificate))}</small></p>"
        return f"<div>{warning}{table}{more}{words}</div>"

    def head(self, n: int = 5) -> pa.Table:
        """Return the first n rows, in the order in which they are shown."""
        return self.table.slice(0, validate.whole("n", n, hint="Pass how many rows to show."))

    def __getitem__(self, name: object) -> NoReturn:
        raise InvalidType(f"a {type(self).__name__} has no [...]. Use its .table, .to_pandas() or .to_polars().")

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Offer the table to any library that reads Arrow streams."""
        return self.table.__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> "pd.DataFrame":
        """Return the table as a pandas frame; whole numbers that may be null have the type Int64."""
        import pandas as pd

        nullable = [name for name in self.table.column_names if name == "count" and self.table[name].null_count]
        return self.table.to_pandas().astype(dict.fromkeys(nullable, pd.Int64Dtype()))

    def to_polars(self) -> "pl.DataFrame":
        """Return the table as a Polars frame."""
        import polars as pl

        return pl.DataFrame(self.table)

    @overload
    def to_csv(self, path: None = None, *, escape_formulas: bool = False) -> str: ...
    @overload
    def to_csv(self, path: str | os.PathLike[str], *, escape_formulas: bool = False) -> Path: ...
    def to_csv(self, path: str | os.PathLike[str] | None = None, *, escape_formulas: bool = False) -> str | Path:
        """Write the table as CSV, atomically, and return the path; without a path, return the text.

        A file of that name is replaced. It holds the table alone: `save` also keeps the guarantee and its certificate.
        Bytes are hexadecimal digits; see `dpsieve.publication.files` for the other types.

        Args:
            path: the file to write.
            escape_formulas: put an apostrophe before texts that begin with =, +, -, @ (also full-width ones), a tab, a
                carriage return or a line feed, for spreadsheets that would run them as formulas. Without it, keys are
                written as they are.

        >>> import dpsieve as ds
        >>> print(ds.channels.optimal(1.0, 1e-8).release(["tea"], [500], keys_only=True).to_csv(), end="")
        "key"
        "tea"
        """
        content = csv_content(file_table(self), escape_formulas=escape_formulas)
        return content.decode() if path is None else write_file(path, content)

    @abstractmethod
    def check(self) -> None:
        """Raise unless the mechanism can have published these tables; `save` and `load` do this."""

    def tables(self) -> dict[str, pa.Table]:
        """Return the tables that are saved, by name."""
        return {MAIN: self.table, **{name: getattr(self, name) for name in self.more_tables}}

    @classmethod
    def from_tables(cls, tables: dict[str, pa.Table], mechanism: Mechanism, **other: Any) -> Self:
        """Make a publication from its saved tables."""
        return cls(tables.pop(MAIN), mechanism, **tables, **other)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write release.parquet and release.json to a new folder, whole or not at all, and return its path."""
        self.check()
        record = self.whole_record()
        with timed("save"):
            return write(folder, record, self.tables())

    def whole_record(self) -> dict[str, Any]:
        """Return what is saved beside the tables; raise if it could not be loaded."""
        record = self._record()
        try:
            from_json(record["mechanism"])
        except DpsieveError:
            raise InvalidValue(
                "mechanism cannot be saved, as its scheme is made from a function. Make the scheme from its values, "
                "such as custom(scheme.inclusion_range(1, 10_000))."
            ) from None
        if is_deep(record) or len(_text(record)) > LARGEST_RECORD - 4096:  # digests come on top
            raise InvalidValue("mechanism or notes are too large or too deeply nested to be saved. Use shorter ones.")
        return {**record, "library": dpsieve.__version__}

    def report(self, path: str | os.PathLike[str] = "report.html") -> Path:
        """Write one HTML page that works offline and holds only published data; return its path.

        It has the guarantee as text, the table, sortable and searchable, plots, parameters and certificate. It is
        written atomically; a file of that name is replaced.
        """
        from dpsieve.publication.report import write_report

        return write_report(self, path)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; a changed or partial folder is refused."""
        source, data = read(folder)
        kind: Any = find_class(data.get("kind"), Publication)
        if kind is None:
            raise CorruptRelease(f"{source} holds a kind of publication that this version does not read.")
        if not issubclass(kind, cls):
            raise InvalidValue(f"folder={str(source)!r} holds another kind of publication. Use {kind.__name__}.load.")
        tables = read_tables(source, data, kind.more_tables)
        try:
            mechanism = from_json(data["mechanism"])
            if not _may_be_of(mechanism, data["certificate"]):
                raise incomplete(source)
            made: Self = kind.from_tables(
                tables,
                mechanism,
                drawn=data.get("drawn", {}),
                notes=decode_fields(kind.notes_kind, data["notes"]),
                unsafe_to_publish=data["unsafe_to_publish"],
            )
            made.check()
            stored = {name: value for name, value in data.items() if name not in _OF_FOLDER}
            same = _text(stored) == _text(made._record())
        except MemoryError:
            raise needs_too_much(source) from None
        except _ODD:
            raise incomplete(source) from None
        if not same:
            raise CorruptRelease(f"{source} does not agree with its mechanism. Get a fresh copy.")
        return made

    def _record(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "unsafe_to_publish": self.unsafe_to_publish,
            "certificate": self.certificate.to_json(),
            "mechanism": self.mechanism.to_json(),
            "notes": self.notes.to_json(),
            "keys": len(self),
            **({"drawn": dict(self.drawn)} if self.drawn else {}),
        }


def _may_be_of(mechanism: Mechanism, certificate: dict[str, Any]) -> bool:
    """Return whether a stored certificate may be that of a mechanism, before long tables are computed to check it."""
    rows = mechanism.table_rows
    is_stated = rows is None or any(part["covers"].startswith(f"{rows:,} rows") for part in certificate["parts"])
    few = rows is None or rows <= _MOST_ROWS
    return is_stated and few and bool(certificate["guarantee"] == mechanism.guarantee.to_json())


def _text(values: Mapping[str, Any]) -> str:
    """Return a canonical text of these values: True, 1 and 1.0 differ."""
    try:
        return json.dumps(values, sort_keys=True, allow_nan=False, indent=1)
    except (TypeError, ValueError, RecursionError):
        raise InvalidType("mechanism and notes must hold plain JSON values to be saved.") from None


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return dates and times as text, other values as they are."""
    return column.cast(pa.string()) if pa.types.is_temporal(column.type) else column


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows for display; dates and times as text, since Python has none after the year 9999."""
    columns = {name: as_text(table.column(name)).to_pylist() for name in table.column_names}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
