"""The columns of a table in a database: names and types in its own words, from its catalog alone."""

import re
from typing import Any

import pyarrow as pa

from dpsieve.engines.sql.bounded_query import quoted
from dpsieve.errors import InvalidType, InvalidValue

_PART = r'"(?:[^"\0]|"")+"|[^".\0]+'
_NAME = re.compile(rf"(?:{_PART})(?:\.(?:{_PART}))*")

# The types behind domains; those that are spelled as text become it.
_POSTGRES = """WITH RECURSIVE typed AS (
  SELECT attnum, attname, atttypid AS of, atttypmod AS more FROM pg_catalog.pg_attribute
  WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped
  UNION ALL
  SELECT attnum, attname, typbasetype, typtypmod FROM typed JOIN pg_catalog.pg_type ON oid = of WHERE typtype = 'd')
SELECT CAST(attname AS text),
  CASE WHEN typtype = 'e' OR typname IN ('citext', 'name') THEN 'text' ELSE format_type(of, more) END
FROM typed JOIN pg_catalog.pg_type ON oid = of WHERE typtype <> 'd' ORDER BY attnum"""


def table_parts(name: Any) -> tuple[str, ...]:
    """Return the parts of the name of a table, each taken letter by letter; one in double quotes may hold dots.

    >>> table_parts('shop."old.orders"')
    ('shop', 'old.orders')
    """
    hint = "Pass the name of a table or view, such as table='orders' or table='shop.orders'."
    if not isinstance(name, str):
        raise InvalidType(f"table must be the name of a table, not {type(name).__name__}. {hint}")
    if not _NAME.fullmatch(name):
        raise InvalidValue(f"table is not a name. {hint} A part with dots or quotes stands in double quotes.")
    parts = re.findall(_PART, name)
    return tuple(part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts)


def column_types(connection: Any, dialect: str, table: tuple[str, ...]) -> dict[str, str]:
    """Return the type of each column by its name, with its COLLATE clause where the dialect does not hash by it.

    Of a table that is not there, or that may not be seen, there are none.
    """
    return {"postgres": _of_postgres, "sqlite": _of_sqlite}.get(dialect, _of_schema)(connection, table, dialect)


def _of_postgres(connection: Any, table: tuple[str, ...], _: str) -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute(_POSTGRES, (".".join(map(quoted, table)),))
        return dict(cursor.fetchall())


def _of_sqlite(connection: Any, table: tuple[str, ...], _: str) -> dict[str, str]:
    """Values of any type may be in any column; what a column leans to is read as its type, all else as text.

    The plan of a query names the collation by which it groups, also in a view.
    """
    marks = ", ".join("?" * len(table))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT name, type FROM pragma_table_info({marks})", table[::-1])
        found = {name: _affinity(declared.upper()) for name, declared in cursor.fetchall()}
        scan = ".".join(map(quoted, table))
        for name in found:
            cursor.execute(f"EXPLAIN SELECT {quoted(name)} FROM {scan} GROUP BY {quoted(name)}")
            plans = [str(row[5]) for row in cursor.fetchall() if str(row[5]).startswith("k(")]
            if not plans or any(set(plan[2:-1].split(",")[1:]) - {"B", "-B", ""} for plan in plans):
                found[name] += " COLLATE other"
    return found


def _affinity(declared: str) -> str:
    """Return SQLite's rule of what a column leans to; numbers of no certain type are written as text."""
    rules = {"INT": "BIGINT", "CHAR": "TEXT", "CLOB": "TEXT", "TEXT": "TEXT", "BLOB": "BLOB", "REAL": "DOUBLE"}
    rules |= {"FLOA": "DOUBLE", "DOUB": "DOUBLE"}
    return next((kind for word, kind in rules.items() if word in declared), "TEXT" if declared else "BLOB")


def _of_schema(connection: Any, table: tuple[str, ...], dialect: str) -> dict[str, str]:
    """Return the types of the driver's Arrow schema, in the words of the dialect."""
    from sqlglot import exp

    filters = dict(zip(("db_schema_filter", "catalog_filter"), table[-2::-1], strict=False))
    schema = connection.adbc_get_table_schema(table[-1], **filters)
    return {field.name: exp.DataType.build(_plain(field.type), dialect="duckdb").sql(dialect) for field in schema}


def _plain(kind: pa.DataType) -> str:
    """Return DuckDB's name of an Arrow type; one that cannot be a key is an array."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMP WITH TIME ZONE"
    names = {"string": "VARCHAR", "large_string": "VARCHAR", "string_view": "VARCHAR", "double": "DOUBLE"}
    names |= {"float": "FLOAT", "bool": "BOOLEAN", "date32[day]": "DATE", "binary": "BLOB", "large_binary": "BLOB"}
    names |= {"int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "time64[us]": "TIME"}
    return names.get(str(kind), "INTEGER[]")
