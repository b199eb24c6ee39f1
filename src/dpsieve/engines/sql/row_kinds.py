"""Kinds of values in row expressions, by the types of columns alone, and the types of derived columns."""

from dataclasses import dataclass
from typing import Any

from dpsieve.engines.sql.columns import AS_TEXT, Column

TEXT, INTEGER, NUMBER, EXACT, BOOLEAN = "a text", "a whole number", "a number", "an exact number", "true or false"
DATE, TIME, INSTANT, OTHER, NULL = "a date", "a timestamp", "a timestamp with time zone", "another type", "NULL"
NUMBERS, TIMES = (INTEGER, NUMBER, EXACT), (DATE, TIME, INSTANT)
_KINDS = {
    **dict.fromkeys(AS_TEXT - {"HUGEINT", "NULL", '"NULL"'}, TEXT),
    **dict.fromkeys("TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER".split(), INTEGER),
    **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT", "DECIMAL"), EXACT),
    **dict.fromkeys(("FLOAT", "DOUBLE"), NUMBER),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), TIME),
    **{"BOOLEAN": BOOLEAN, "DATE": DATE, "TIMESTAMP WITH TIME ZONE": INSTANT},
}
# The type of a derived column of each kind: in DuckDB's words, in PostgreSQL's and in Spark's.
_TYPES = {
    TEXT: ("VARCHAR", "text", "STRING"),
    INTEGER: ("BIGINT", "bigint", "BIGINT"),
    NUMBER: ("DOUBLE", "double precision", "DOUBLE"),
    BOOLEAN: ("BOOLEAN", "boolean", "BOOLEAN"),
    DATE: ("DATE", "date", "DATE"),
    TIME: ("TIMESTAMP", "timestamp without time zone", "TIMESTAMP_NTZ"),
    INSTANT: ("TIMESTAMP WITH TIME ZONE", "timestamp with time zone", "TIMESTAMP"),
}
DIALECTS = ("duckdb", "postgres", "spark")
TARGETS = {
    **dict.fromkeys(("TEXT", "VARCHAR"), TEXT),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), INTEGER),
    **dict.fromkeys(("FLOAT", "DOUBLE"), NUMBER),
    **{"DATE": DATE, "TIMESTAMP": TIME, "TIMESTAMPNTZ": TIME, "TIMESTAMPTZ": INSTANT},
}


@dataclass(frozen=True)
class Value:
    """SQL text and the kind of its value; `constant` is the Python value of a constant."""

    sql: str
    kind: str
    constant: Any = None


def type_of(kind: str, dialect: str) -> str:
    """Return the type of a derived column of this kind."""
    return _TYPES[kind][DIALECTS.index(dialect)]


def kind_of(column: Column) -> str:
    """Return the kind of a column's values."""
    return OTHER if column.type.endswith("]") else _KINDS.get(column.kind, OTHER)
