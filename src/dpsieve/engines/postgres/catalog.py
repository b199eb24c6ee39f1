"""A table in a database: where it is, and its columns, in the database's own words and from its catalog alone.

In PostgreSQL a name without a schema is looked up along the search path, and of several functions or operators of that
name the one whose types fit best is called, whoever made it. Whoever may create a function in a schema of the path
could see every row. So the path has the server's own schemas alone, from the first statement on: the driver asks the
catalog by itself when it connects. Only to find the table the path is the user's, in statements with full names and
without an operator.

A connection of the user has been opened with the user's path, which is restored at the end.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, unquote

from dpsieve.engines.sql.columns import quoted
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.values.columns import tried

_PART = r'"(?:[^"\0]|"")+"|[^".\0]+'
_NAME = re.compile(rf"(?:{_PART})(?:\.(?:{_PART}))*")

SAFE_PATH = "pg_catalog,pg_temp"  # pg_temp comes first for tables and types unless it is named
_POOLED = "unsupported startup parameter"  # what PgBouncer says
_IN_OPTIONS = re.compile(r"(?:-c\s*|--)search[-_]path=((?:\\.|[^\s\\])*)")
_SET = "SELECT pg_catalog.set_config('search_path', $1, false)"
_FIND = """SELECT pg_catalog.current_setting('search_path'),
  CAST(CAST(pg_catalog.to_regclass($1) AS pg_catalog.oid) AS pg_catalog.int8)"""
_PLACE = """SELECT CAST(nspname AS text), CAST(relname AS text)
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS s ON s.oid = relnamespace
WHERE c.oid = CAST(CAST($1 AS int8) AS oid) AND relname = CAST($2 AS text)"""
# What ALTER ROLE and ALTER DATABASE have set, the most special first; otherwise PostgreSQL's default.
_DEFAULT = """SELECT path FROM (
  SELECT substr(setting, 13), CASE WHEN setrole <> 0 THEN 0 ELSE 2 END + CASE WHEN setdatabase <> 0 THEN 0 ELSE 1 END
  FROM (SELECT setrole, setdatabase, unnest(setconfig) FROM pg_catalog.pg_db_role_setting) AS s(setrole, setdatabase,
    setting)
  WHERE starts_with(setting, 'search_path=')
    AND setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
    AND setrole IN (0, (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = session_user))
  UNION ALL SELECT boot_val, 4 FROM pg_catalog.pg_settings WHERE name = 'search_path') AS found(path, turn)
ORDER BY turn"""
# The types behind domains; those that are spelled as text become it.
_COLUMNS = """WITH RECURSIVE typed AS (
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


def column_types(connection: Any, table: tuple[str, ...]) -> dict[str, str]:
    """Return the type of each column by its name; none for a table that does not exist or may not be seen."""
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS, (".".join(map(quoted, table)),))
        return dict(cursor.fetchall())


def open_safely(url: str, connect: Callable[[str], Any]) -> tuple[Any, str]:
    """Return a connection with the safe path, and the path that the user's options name, or an empty text.

    Behind a pool that takes no options, the driver's own questions are asked with the server's path.
    """
    safe, path = with_safe_path(url)
    try:
        return connect(safe), path
    except Exception as error:
        if _POOLED not in str(error):
            raise
    return connect(url), path


def with_safe_path(url: str) -> tuple[str, str]:
    """Return the URL with the safe path in its options, and the path that they had.

    >>> with_safe_path("postgresql://host/shop?options=-csearch_path%3Dshop")
    ('postgresql://host/shop?options=-csearch_path%3Dshop%20-csearch_path%3Dpg_catalog%2Cpg_temp', 'shop')
    """
    base, _, query = url.partition("?")
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    given = [unquote(value) for name, _, value in pairs if unquote(name) == "options"]
    options = given[-1] if given else os.environ.get("PGOPTIONS", "")
    rest = ["".join(pair) for pair in pairs if unquote(pair[0]) != "options"]
    safe = quote(f"{options} -csearch_path={SAFE_PATH}".strip(), safe="")
    paths = _IN_OPTIONS.findall(options)
    return f"{base}?{'&'.join([*rest, f'options={safe}'])}", re.sub(r"\\(.)", r"\1", paths[-1]) if paths else ""


@contextlib.contextmanager
def own_functions(connection: Any, table: tuple[str, ...], path: str | None) -> Iterator[tuple[str, ...] | None]:
    """Set the safe path meanwhile; yield the full name of a table, or None where there is no such table.

    Args:
        connection: one to PostgreSQL.
        table: the parts of its name.
        path: where the table is looked up, empty for the user's default; None on a connection that has its own.
    """
    with connection.cursor() as cursor:
        if path is not None:
            cursor.execute(_SET, (path or cursor.execute(_DEFAULT).fetchall()[0][0],)).fetchall()
        ((path, found),) = cursor.execute(_FIND, (".".join(map(quoted, table)),)).fetchall()
        cursor.execute(_SET, (SAFE_PATH,)).fetchall()
        try:
            places = [] if found is None else cursor.execute(_PLACE, (found, table[-1])).fetchall()
            yield places[0] if places else None  # the server cuts long names
        finally:
            tried(lambda: cursor.execute(_SET, (path,)).fetchall())
