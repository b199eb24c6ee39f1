"""Columns of a table as SQL expressions, and the lexical rules of generated SQL.

Identifiers are quoted, so any column name works. Functions and operators are written by their full name,
`system.main.count(*)`: a user's connection may have macros of any name, and DuckDB resolves `count`, `+`, `[1, 2]` and
`s.k0` to those first. Comparisons, casts, CASE and the names of types are not resolved that way.

Keys are texts, bytes, integers, decimals, floats, booleans, dates, times and timestamps. Texts are compared by their
bytes. All NaN are one key, and so are 0.0 and -0.0. Categories, UUIDs and JSON become text. Nested types, intervals,
times with a zone, bit strings and unsigned 128-bit integers are refused: they do not sort, or two values that compare
as equal can look different. A unit may be of any type.
"""

from dataclasses import dataclass

from dpsieve.errors import InvalidType

_AS_THEY_ARE = frozenset(
    """BOOLEAN TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT DECIMAL BLOB DATE TIME TIME_NS
    TIMESTAMP TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS TIMESTAMPTZ_NS""".split()
) | {"TIMESTAMP WITH TIME ZONE"}
# An Arrow column of an ENUM would carry every category, whether it is reported or not; text carries none.
# Not every HUGEINT fits a decimal of Arrow.
AS_TEXT = frozenset({"VARCHAR", "ENUM", "JSON", "UUID", "HUGEINT", '"NULL"', "NULL"})
NUMBERS = frozenset(
    """BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT DECIMAL FLOAT
    DOUBLE NULL "NULL" """.split()
)
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
            is_nan, zero_alike = call("isnan", self.sql), call("+", self.sql, f"0::{self.kind}")
            return f"CASE WHEN {is_nan} THEN 'nan'::{self.kind} ELSE {zero_alike} END"
        if self.kind not in AS_TEXT:
            return self.sql
        text = self.sql if self.kind == "VARCHAR" else f"CAST({self.sql} AS VARCHAR)"
        return f'{text} COLLATE "C"' if self.collated else text

    @property
    def as_number(self) -> str:
        """The expression of its value as a DOUBLE; null for a text that is no number. Zero is written in one way."""
        return call("+", f"TRY_CAST({self.sql} AS DOUBLE)", "0::DOUBLE")

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
            why = f"key={self.name!r} has the type {self.kind}, which cannot be a key"
            fix = "Turn it into text first, or name the fields of a nested column as several key columns."
            raise InvalidType(f"{why}. {fix}", argument="key")

    def check_number(self, *, texts: bool, argument: str = "column") -> None:
        """Refuse types that are no numbers; with `texts`, as in a file of text, text may be read as numbers."""
        if self.type.endswith("]") or not (self.kind in NUMBERS or (texts and self.kind == "VARCHAR")):
            why = f"{argument}={self.name!r} has the type {self.kind}, which is not a number"
            raise InvalidType(f"{why}. Name a column of numbers, or cast this one first.", argument=argument)


def quoted(name: str) -> str:
    """Return an identifier that means exactly this column, whatever characters its name has."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    """Return a string constant."""
    return "'" + value.replace("'", "''") + "'"


def call(name: str, *arguments: str) -> str:
    """Return the call of a function or operator of DuckDB itself, whatever macros a user's connection has.

    >>> call("+", "1", "2")
    'system.main."+"(1, 2)'
    """
    return f"system.main.{name if name.isidentifier() else quoted(name)}({', '.join(arguments)})"


def ascending(*names: str) -> str:
    """Return the ORDER BY clause; a user's connection may sort downwards where nothing else is said.

    >>> ascending("u0", "place")
    'ORDER BY u0 ASC, place ASC'
    """
    return f"ORDER BY {', '.join(f'{name} ASC' for name in names)}"
