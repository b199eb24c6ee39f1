"""Columns: their names, their types, and which of them can be keys.

Keys are texts, bytes, whole, decimal and floating numbers, booleans, dates, times and timestamps. Texts are told apart
by their bytes. All NaN are one key, and so are 0.0 and -0.0. Categories, identifiers and JSON become text. Nested
types, intervals, times with a zone, bit strings and unsigned 128-bit integers are refused: they do not sort, or two
values that compare as equal can look different. A unit may be of any type.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from dpsieve.engines.base import Bounds
from dpsieve.errors import InvalidType, InvalidValue

_AS_THEY_ARE = frozenset(
    """BOOLEAN TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT DECIMAL BLOB DATE TIME TIME_NS
    TIMESTAMP TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS TIMESTAMPTZ_NS""".split()
) | {"TIMESTAMP WITH TIME ZONE"}
# An Arrow column of an ENUM would carry every category, whether it is reported or not; text carries none.
# Not every HUGEINT fits a decimal of Arrow.
AS_TEXT = frozenset({"VARCHAR", "ENUM", "JSON", "UUID", "HUGEINT", '"NULL"', "NULL"})
_PLAIN = _AS_THEY_ARE | AS_TEXT | {"FLOAT", "DOUBLE"}


@dataclass(frozen=True)
class Column:
    """One column of a scan.

    Attributes:
        name: as the user knows it.
        sql: as the query writes it, quoted.
        type: DuckDB's name of the type.
        collated: it may compare texts by a collation, as columns of a user's database can.
    """

    name: str
    sql: str
    type: str
    collated: bool = False

    @property
    def kind(self) -> str:
        """The type without its parameters: those of an ENUM are values of the data."""
        return self.type.partition("(")[0]

    @property
    def as_key(self) -> str:
        """The expression that is grouped by. Values that compare as equal are written in one way.

        Otherwise one row could decide how a key is spelled: as 0.0 or -0.0, or as 'Tea' or 'tea' in a column with a
        collation that ignores case.
        """
        if self.kind in ("FLOAT", "DOUBLE"):
            return f"CASE WHEN isnan({self.sql}) THEN 'nan'::{self.kind} ELSE {self.sql} + 0::{self.kind} END"
        if self.kind not in AS_TEXT:
            return self.sql
        text = self.sql if self.kind == "VARCHAR" else f"CAST({self.sql} AS VARCHAR)"
        return f'{text} COLLATE "C"' if self.collated else text

    @property
    def as_unit(self) -> str:
        """The expression that rows of one unit are found by."""
        return self.sql

    @property
    def hashed_alike(self) -> bool:
        """Whether DuckDB hashes values alike that compare as equal: not so texts under a collation, and variants."""
        return not self.collated and self.is_plain

    @property
    def is_plain(self) -> bool:
        """Whether values can be grouped and published."""
        return self.kind in _PLAIN and not self.type.endswith("]")

    def check_key(self) -> None:
        """Refuse types that do not group into keys that can be published: nested ones, intervals, times with zones."""
        if not self.is_plain:
            hint = "Turn it into text first, or name the fields of a nested column as several key columns."
            raise InvalidType(f"key={self.name!r} has the type {self.kind}, which cannot be a key. {hint}")


def quoted(name: str) -> str:
    """Return an identifier that means exactly this column, whatever its name holds."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    """Return a string constant."""
    return "'" + value.replace("'", "''") + "'"


def check_present(bounds: Bounds, names: Iterable[str], *, listed: bool) -> None:
    """Refuse columns that the data does not have, and hint at those it has.

    Without `listed` the hint names no column: what stands for names in a text file may be a first row of data. The
    column of the unit is never suggested as a key, as that would publish the units.
    """
    known = list(names)
    asked = [("key", name) for name in bounds.key]
    if bounds.unit is not None:
        asked.insert(0, ("privacy_unit", bounds.unit))
    for argument, name in asked:
        if known.count(name) > 1:
            raise InvalidValue(f"{argument}={name!r} is the name of several columns. Rename them.")
        if name not in known:
            taken = {bounds.unit} if argument == "key" else set(bounds.key)
            fix = _advice(name, [other for other in known if other not in taken], listed)
            raise InvalidValue(f"{argument}={name!r} is not a column of the data. {fix}")


def _advice(name: str, known: list[str], listed: bool) -> str:
    folded: dict[str, str] = {}
    for other in known:
        folded.setdefault(_letters(other), other)
    if listed:
        near = [folded[match] for match in difflib.get_close_matches(_letters(name), folded, n=3)]
        if near:
            return f"Did you mean {' or '.join(map(repr, near))}?"
    elif _letters(name) in folded:
        return "One differs from it in case, spaces or punctuation alone: check the spelling in the file."
    if "," in name:
        return "Name several columns one by one: key=['a', 'b'], or --key a --key b."
    if listed and known:
        more = ", ..." if len(known) > 12 else ""
        return f"Choose from {', '.join(map(repr, known[:12]))}{more}."
    if listed:
        return "No other column has a text as its name: rename the columns, or use reset_index() for an index."
    return "The first line of a CSV file (as standard input is), or the objects of JSON lines, must name it."


def _letters(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())
