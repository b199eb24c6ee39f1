"""Tables of a PostgreSQL database, bounded and counted there.

In PostgreSQL a name without a schema is looked up along the search path, and of several functions or operators of that
name the one whose types fit best is called, whoever made it. Whoever may create a function in a schema of the path
could see every row. So the path has the server's own schemas alone, from the first statement on: the driver asks the
catalog by itself when it connects. Only to find the table the path is the user's, in statements with full names and
without an operator. A connection of the user has been opened with the user's path, which is restored at the end.

Drivers quote addresses, passwords and rows in their messages. So nothing of a message is passed on: the code of its
error, or well-known words in it, choose one of the texts below.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from dpsieve.engines.answers import (
    cast_known_keys,
    check_units,
    decode_counts,
    decode_pairs,
    run_query,
    translate_errors,
)
from dpsieve.engines.engine import Aggregation, Columns, Engine
from dpsieve.engines.inputs.frames import is_database
from dpsieve.engines.sql.columns import AS_TEXT, Column, quoted
from dpsieve.engines.sql.dialects import SALT, columns_for, query_for, table_columns
from dpsieve.engines.sql.queries import bounded_query, pairs_query, places_query
from dpsieve.engines.sql.totals import amount_names
from dpsieve.engines.true_data import Counted, CountedByBound, NumberRows, Pairs, units_by_place
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue, UnreadableData
from dpsieve.values.columns import in_utf8, one_chunk, tried

_T = TypeVar("_T")
Parts = tuple[str, ...]
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
_SETTINGS = f"SELECT pg_catalog.set_config('search_path', $1, false), pg_catalog.set_config('{SALT}', $2, false)"
_KNOWN, _ROWS = (f"dpsieve_{what}_{secrets.token_hex(8)}" for what in ("known", "rows"))  # no table has this name
_HOW = "Pass a URL such as 'postgresql://user@host/database', or a connection of adbc_driver_postgresql."
_TYPES = {
    **dict.fromkeys([*AS_TEXT, "DECIMAL"], pa.string()),
    **{"BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32()},
    **{"BIGINT": pa.int64(), "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "BLOB": pa.binary(), "DATE": pa.date32()},
    **{"TIME": pa.time64("us"), "TIMESTAMP": pa.timestamp("us")},
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
}
_ENCODED = "In a URL, other characters than letters and digits are percent-encoded: a space is %20, an @ is %40."
_CONNECTING = {
    "password authentication failed": "it refuses the user or the password",
    "no password supplied": "it wants a password: write it to a password file, or to PGPASSWORD",
    "pg_hba.conf": "it accepts no such user from here, or not without encryption",
    "could not translate host name": "there is no host of that name",
    "Connection refused": "connection refused: check host and port",
    "No such file or directory": "there is no server at that socket",
    "timeout": "it does not answer in time",
    "too many": "it has too many connections",
    "starting up": "it is starting up",
    "SSL": "it cannot agree on encryption",
    "certificate": "it cannot agree on encryption",
    "does not exist": "it has no such user or database",
}
# By the first characters of SQLSTATE; the longest that fits counts.
_STATES = {
    "42501": "may not be read with these rights. Ask for SELECT on it",
    "42704": "lost a setting of its session on the way. Connect without a pool that shares sessions between statements",
    "42883": "has a unit of a type without a hash, such as json: cast it to text in a view. Or it is a view with a "
    "function that finds others along the search path: ALTER FUNCTION ... SET search_path",
    "42P01": "is a view with a function that finds tables along the search path, which has only the server's own "
    "schemas here: ALTER FUNCTION ... SET search_path",
    "53": "needs more memory or disk than the server has. Ask for more, or bound units to fewer keys",
    "54": "is too large for the server. Name fewer columns",
    "57014": "takes longer than the server allows, or was cancelled. Raise its statement_timeout",
    "57": "lost its server, which is shutting down. Try again later",
    "08": "lost the connection to its server. Try again",
    "25006": "needs a temporary table for known_keys, which this server refuses. Leave them out, or read a primary one",
    "40": "was changed at the same time. Try again",
    "22": "holds a value that the server cannot compute with. Check that a query that reads the whole table works",
}


class Postgres(Engine):
    """Bounds and counts in a database, in SQL; only the bounded counts come here, as Arrow batches.

    The data of a call is the name of a table or view, such as 'shop.orders'. With a URL of PostgreSQL each call opens
    a connection of its own and reads only; a connection of yours is used as it is, and an error there rolls back the
    transaction that it is in.

    Args:
        connection: a URL, or a DB-API connection of the ADBC driver for PostgreSQL.

    >>> Postgres("postgresql://reader:secret@db.example.com/shop")
    Postgres()
    """

    def __init__(self, connection: Any) -> None:
        is_url = isinstance(connection, str)
        if is_url and not is_database(connection):
            raise InvalidValue(f"connection is a text that is not a URL of PostgreSQL. {_HOW}", argument="connection")
        if not is_url and not hasattr(connection, "adbc_get_table_schema"):
            given = type(connection).__name__
            raise InvalidType(
                f"connection must be a URL or an ADBC connection, not {given}. {_HOW}", argument="connection"
            )
        self._connection = connection

    def __repr__(self) -> str:
        return "Postgres()"

    def __getstate__(self) -> object:
        raise InvalidType("an engine on a database is not saved, as it may hold a password. Create a new one.")

    def columns(self, data: Any) -> list[tuple[str, str]]:
        with self._session(data) as session:
            return list(session.types.items())

    def check(self, data: Any, columns: Columns) -> None:
        with self._session(data) as session:
            columns_for("postgres", session.derived(columns).types, columns)

    def aggregate(self, data: Any, task: Aggregation) -> Counted:
        listed, answer = self._ask(data, task, bounded_query)
        return decode_counts(task, listed, answer)

    def read_pairs(self, data: Any, task: Aggregation) -> Pairs:
        listed, answer = self._ask(data, task, pairs_query)
        return decode_pairs(task, listed, answer)

    def read_by_bound(self, data: Any, task: Aggregation) -> CountedByBound:
        """Ask once: all that is needed under any bound comes here."""
        _, answer = self._ask(data, task, places_query)
        places, names = answer.column("place"), [f"k{i}" for i in range(len(task.columns.key))]

        def under(keys: int) -> Counted:
            added = ["n", *amount_names(task.columns.totals)]
            kept = answer.filter(pc.less_equal(places, keys))
            sums = kept.group_by(names).aggregate([(name, "sum") for name in added])
            return decode_counts(task, None, sums.rename_columns([*names, *added]))

        units = units_by_place(places.to_numpy(), answer.column("n").to_numpy(), task.contribution.keys)
        return CountedByBound(units, under)

    def read_numbers(self, data: Any, task: Aggregation) -> NumberRows:
        hint = "Read the columns with the ADBC driver as an Arrow table, and pass that."
        why = "is in a database, where sums, means and quantiles are not computed yet"
        raise InvalidType(f"data {why}. {hint}", argument="data")

    def _ask(self, data: Any, task: Aggregation, query: Callable[..., str]) -> tuple[pa.Table | None, pa.Table]:
        """Return the public keys as the data would write them, and the answer to a query over the table."""
        with self._session(data) as plain:
            session = plain.derived(task.columns)
            with session.list_keys(task) as (listed, place):
                return listed, session.ask(task, place, query)

    @contextlib.contextmanager
    def _session(self, data: Any) -> Iterator["_Session"]:
        """Yield the table on a connection: one of its own, which is closed, or the user's."""
        parts = table_parts(data)
        own = isinstance(self._connection, str)
        connection, path = _connect(self._connection) if own else (self._connection, None)
        with contextlib.ExitStack() as stack:
            if own:
                stack.callback(tried, connection.close)
            functions = own_functions(connection, parts, path)
            place = _step(connection, parts, lambda: stack.enter_context(functions))
            types = _step(connection, parts, lambda: column_types(connection, place) if place else {})
            if not place or not types:
                hint = "Check its name, its schema (table='schema.name') and your rights; capital letters count."
                raise InvalidValue(f"table={'.'.join(parts)!r} is not in the database. {hint}", argument="table")
            yield _Session(connection, parts, place, types)


@dataclass(frozen=True)
class _Session:
    """A table on a connection, as the user names it and in full, with the types of its columns.

    With `rows`, a query over the table, its rows and columns are those of the query.
    """

    connection: Any
    table: Parts
    place: Parts
    types: dict[str, str]
    rows: str = ""

    def derived(self, columns: Columns) -> "_Session":
        """Return the session with the rows and columns that expressions of a user make."""
        if columns.rows is None:
            return self
        from dpsieve.engines.sql.row_writer import write_rows

        columns.check_present(self.types, listed=True)
        table = table_columns("postgres", self.types, columns.of_table.names)
        where, derived = write_rows("postgres", columns.rows, table)
        shown = {name: derived[name] if name in derived else (quoted(name), self.types[name]) for name in columns.names}
        select = ", ".join(f"{sql} AS {quoted(name)}" for name, (sql, _) in shown.items())
        condition = f" WHERE {where}" if where else ""
        rows = f"SELECT {select} FROM {'.'.join(map(quoted, self.place))}{condition}"
        return replace(self, types={name: kind for name, (_, kind) in shown.items()}, rows=rows)

    def step(self, act: Callable[[], _T]) -> _T:
        return _step(self.connection, self.table, act)

    @contextlib.contextmanager
    def list_keys(self, task: Aggregation) -> Iterator[tuple[pa.Table | None, Parts | None]]:
        """Put the public keys into a temporary table for a while; yield them as the data would write them, and it."""
        columns = columns_for("postgres", self.types, task.columns)
        if task.known is None:
            yield None, None
            return
        wanted = [columns[name] for name in task.columns.key]
        if exact := [column.name for column in wanted if column.kind == "DECIMAL"]:
            why = "is an exact number, which known_keys do not work with. Cast it to text in a view."
            raise InvalidType(f"key={exact[0]!r} {why}", argument="key")
        table = cast_known_keys(task.known, [Column(column.name, column.sql, column.type) for column in wanted])
        place = ("pg_temp", _KNOWN)
        with self.connection.cursor() as cursor:
            self.step(lambda: cursor.adbc_ingest(_KNOWN, table, mode="create", temporary=True))
            try:
                yield table, place
            finally:
                # It is gone already where the transaction was rolled back.
                tried(lambda: cursor.execute(f"DROP TABLE IF EXISTS {'.'.join(place)}"))

    def ask(self, task: Aggregation, known: Parts | None, query: Callable[..., str]) -> pa.Table:
        """Run a query over the table; refuse null units."""
        columns = columns_for("postgres", self.types, task.columns)
        place = (_ROWS,) if self.rows else self.place
        text = query_for("postgres", place, self.types, task, known, query)
        if self.rows:
            text = text.replace(quoted(_ROWS), f"({self.rows}) AS {quoted(_ROWS)}")
        with self.connection.cursor() as cursor:

            def answer() -> pa.Table:
                # In one statement: where a pool of sessions loses the path, the salt is missing too.
                cursor.execute(_SETTINGS, (SAFE_PATH, str(task.salt))).fetchall()
                return cursor.execute(text).fetch_arrow_table()

            table = run_query(lambda: self.step(answer), _Query(cursor), task.progress)
        task.report(1.0)
        check_units(task, table)
        kinds = [_TYPES.get(columns[name].kind) for name in task.columns.key] if known is None else [pa.int64()]
        kinds += [_kind_of_number(column.type) for column in table.columns[len(kinds) :]]
        return pa.table([_cast(*pair) for pair in zip(table.columns, kinds, strict=True)], names=table.column_names)


@dataclass(frozen=True)
class _Query:
    """A query that can be interrupted, and whose progress is unknown."""

    cursor: Any

    def interrupt(self) -> None:
        tried(self.cursor.adbc_cancel)

    def query_progress(self) -> float:
        return 0.0


def _step(connection: Any, table: Parts, act: Callable[[], _T]) -> _T:
    """Return the result of a step on the connection; where it fails, roll back, and do not quote the server."""
    try:
        return translate_errors(act, lambda error: _explain(error, ".".join(table)))
    except BaseException:
        tried(connection.rollback)
        raise


def _kind_of_number(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column of numbers: places and counts are whole, what units add may be a double."""
    inner = kind.value_type if pa.types.is_list(kind) else kind
    number = pa.float64() if pa.types.is_floating(inner) else pa.int64()
    return pa.list_(number) if pa.types.is_list(kind) else number


def _cast(column: pa.ChunkedArray, kind: pa.DataType | None) -> pa.Array:
    """Return a column in the type of the schema, whatever the driver infers from the rows."""
    array = one_chunk(column)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    result, failure = tried(lambda: array if kind is None else array.cast(kind))
    if failure is not None:
        raise InvalidType("data has a value that does not fit its column. Cast it in a view.", argument="data")
    return in_utf8(result)  # a server without an encoding sends any bytes as text, and has compared them by bytes


def _connect(url: str) -> tuple[Any, str]:
    """Return a connection and the path of its options (see `open_safely`), or raise without quoting the driver.

    Its one transaction sees the database as it is when it first reads.
    """
    words, kind = "", ""
    try:
        from adbc_driver_postgresql import dbapi

        connection, path = open_safely(url, dbapi.connect)
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        return connection, path
    except ModuleNotFoundError as error:
        missing = error.name or ""
    except Exception as error:
        missing, words, kind = "", str(error), type(error).__name__
    if missing:
        name = missing.replace("_", "-")
        fix = "Run pip install '.[postgres]' in the clone."
        raise InvalidValue(f"data is a database, and {name} is not installed. {fix}", argument="data")
    why = next((reason for word, reason in _CONNECTING.items() if word in words), f"the driver says {kind}")
    raise UnreadableData(f"data: the database cannot be used: {why}. Check its URL. {_ENCODED}")


def _explain(error: Any, table: str) -> DpsieveError:
    state = str(getattr(error, "sqlstate", None) or "")
    for known in sorted(_STATES, key=len, reverse=True):
        if state.startswith(known):
            kind = InvalidType if known == "42883" else UnreadableData
            return kind(f"table={table!r} {_STATES[known]}.")
    if isinstance(error, MemoryError):
        return InvalidValue(f"table={table!r} has more keys than fit into memory here.", argument="table")
    if isinstance(error, OSError) or "closed the connection" in str(error) or "terminating connection" in str(error):
        return UnreadableData(f"table={table!r}: the connection was lost, and nothing was used. Try again.")
    code = f"SQLSTATE {state}" if state.isalnum() else type(error).__name__
    return UnreadableData(f"table={table!r} cannot be read ({code}). Check that a query of its first rows works.")


def table_parts(name: Any) -> tuple[str, ...]:
    """Return the parts of the name of a table, each taken letter by letter; one in double quotes may hold dots.

    >>> table_parts('shop."old.orders"')
    ('shop', 'old.orders')
    """
    hint = "Pass the name of a table or view, such as table='orders' or table='shop.orders'."
    if not isinstance(name, str):
        raise InvalidType(f"table must be the name of a table, not {type(name).__name__}. {hint}", argument="table")
    if not _NAME.fullmatch(name):
        raise InvalidValue(f'table is not a name. {hint} Quote a part with dots: "a.b".', argument="table")
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
