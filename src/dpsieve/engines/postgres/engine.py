"""Tables of a PostgreSQL database, bounded and counted there.

Drivers quote addresses, passwords and rows in their messages. So nothing of a message is passed on: the code of its
error, or well-known words in it, choose one of the texts below.
"""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

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
from dpsieve.engines.engine import Aggregation, Columns, Engine, Progress
from dpsieve.engines.inputs.frames import is_database
from dpsieve.engines.postgres.catalog import SAFE_PATH, column_types, open_safely, own_functions, table_parts
from dpsieve.engines.sql.columns import AS_TEXT, Column
from dpsieve.engines.sql.dialects import SALT, columns_for, query_for
from dpsieve.engines.sql.queries import bounded_query, pairs_query, places_query
from dpsieve.engines.true_data import Counted, CountedByBound, FromPlaces, NumberRows, Pairs, units_by_place
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue, UnreadableData
from dpsieve.values.columns import in_utf8, one_chunk, tried

_T = TypeVar("_T")
Parts = tuple[str, ...]
_SETTINGS = f"SELECT pg_catalog.set_config('search_path', $1, false), pg_catalog.set_config('{SALT}', $2, false)"
_LIST = pa.list_(pa.int64())
_KNOWN = f"dpsieve_known_{secrets.token_hex(8)}"  # no table of the user has this name
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
            raise InvalidValue(f"connection is a text that is not a URL of PostgreSQL. {_HOW}")
        if not is_url and not hasattr(connection, "adbc_get_table_schema"):
            given = type(connection).__name__
            raise InvalidType(f"connection must be a URL or an ADBC connection, not {given}. {_HOW}")
        self._connection = connection

    def __repr__(self) -> str:
        return "Postgres()"

    def __getstate__(self) -> object:
        raise InvalidType("an engine on a database is not saved, as it may hold a password. Create a new one.")

    def columns(self, data: Any) -> list[tuple[str, str]]:
        """Return name and type of each column, as the database names them."""
        with self._session(data) as session:
            return list(session.types.items())

    def check(self, data: Any, columns: Columns) -> None:
        """Refuse columns that the data does not have, and keys of a type that cannot be one, from the schema alone."""
        with self._session(data) as session:
            columns_for("postgres", session.types, columns)

    def _aggregate(self, data: Any, task: Aggregation, known: pa.Table | None, progress: Progress | None) -> Counted:
        with self._session(data) as session, session.list_keys(known, task) as (listed, place):
            return decode_counts(task, listed, session.ask(task, place, bounded_query, progress))

    def _read_by_bound(self, data: Any, task: Aggregation, progress: Progress | None) -> CountedByBound:
        """Ask once: all that is needed under any bound comes here."""
        with self._session(data) as session:
            answer = session.ask(task, None, places_query, progress)
        places, names = answer.column("place"), [f"k{i}" for i in range(len(task.columns.key))]

        def under(keys: int) -> Counted:
            kept = answer.filter(pc.less_equal(places, keys))
            first = pc.if_else(pc.equal(kept.column("place"), 1), kept.column("n"), pa.scalar(0, kept.column("n").type))
            sums = kept.append_column("first", first).group_by(names).aggregate([("n", "sum"), ("first", "sum")])
            return decode_counts(task, None, sums.rename_columns([*names, "n", "first"]))

        units = units_by_place(places.to_numpy(), answer.column("n").to_numpy(), task.contribution.keys)
        return FromPlaces(units, under)

    def _read_pairs(self, data: Any, task: Aggregation, known: pa.Table | None, progress: Progress | None) -> Pairs:
        with self._session(data) as session, session.list_keys(known, task) as (listed, place):
            return decode_pairs(task, listed, session.ask(task, place, pairs_query, progress))

    def _read_numbers(self, data: Any, task: Aggregation, progress: Progress | None) -> NumberRows:
        hint = "Read the columns with the ADBC driver as an Arrow table, and pass that."
        raise InvalidType(f"data is in a database, where sums, means and quantiles are not computed yet. {hint}")

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
                raise InvalidValue(f"table={'.'.join(parts)!r} is not in the database. {hint}")
            yield _Session(connection, parts, place, types)


@dataclass(frozen=True)
class _Session:
    """A table on a connection, as the user names it and in full, with the types of its columns."""

    connection: Any
    table: Parts
    place: Parts
    types: dict[str, str]

    def step(self, act: Callable[[], _T]) -> _T:
        return _step(self.connection, self.table, act)

    @contextlib.contextmanager
    def list_keys(self, known: pa.Table | None, task: Aggregation) -> Iterator[tuple[pa.Table | None, Parts | None]]:
        """Put the public keys into a temporary table for a while; yield them as the data would write them, and it."""
        columns = columns_for("postgres", self.types, task.columns)
        if known is None:
            yield None, None
            return
        wanted = [columns[name] for name in task.columns.key]
        if exact := [column.name for column in wanted if column.kind == "DECIMAL"]:
            why = "is an exact number, which known_keys do not work with. Cast it to text in a view."
            raise InvalidType(f"key={exact[0]!r} {why}")
        table = cast_known_keys(known, [Column(column.name, column.sql, column.type) for column in wanted])
        place = ("pg_temp", _KNOWN)
        with self.connection.cursor() as cursor:
            self.step(lambda: cursor.adbc_ingest(_KNOWN, table, mode="create", temporary=True))
            try:
                yield table, place
            finally:
                # It is gone already where the transaction was rolled back.
                tried(lambda: cursor.execute(f"DROP TABLE IF EXISTS {'.'.join(place)}"))

    def ask(
        self, task: Aggregation, known: Parts | None, query: Callable[..., str], progress: Progress | None
    ) -> pa.Table:
        """Run a query over the table; refuse null units."""
        columns = columns_for("postgres", self.types, task.columns)
        text = query_for("postgres", self.place, self.types, task, known, query)
        with self.connection.cursor() as cursor:

            def answer() -> pa.Table:
                # In one statement: where a pool of sessions loses the path, the salt is missing too.
                cursor.execute(_SETTINGS, (SAFE_PATH, str(task.salt))).fetchall()
                return cursor.execute(text).fetch_arrow_table()

            table = run_query(lambda: self.step(answer), _Query(cursor), progress)
        if progress is not None:
            progress(1.0)
        check_units(task, table)
        kinds = [_TYPES.get(columns[name].kind) for name in task.columns.key] if known is None else [pa.int64()]
        kinds += [_LIST if name in ("p", "s") else pa.int64() for name in table.column_names[len(kinds) :]]
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


def _cast(column: pa.ChunkedArray, kind: pa.DataType | None) -> pa.Array:
    """Return a column in the type of the schema, whatever the driver infers from the rows."""
    array = one_chunk(column)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    result, failure = tried(lambda: array if kind is None else array.cast(kind))
    if failure is not None:
        raise InvalidType("data has a value that does not fit the type of its column. Cast the column in a view.")
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
        raise InvalidValue(f"data is a database, and {name} is not installed. Run pip install 'dpsieve[postgres]'.")
    why = next((reason for word, reason in _CONNECTING.items() if word in words), f"the driver says {kind}")
    raise UnreadableData(f"data: the database cannot be used: {why}. Check its URL. {_ENCODED}")


def _explain(error: Any, table: str) -> DpsieveError:
    state = str(getattr(error, "sqlstate", None) or "")
    for known in sorted(_STATES, key=len, reverse=True):
        if state.startswith(known):
            kind = InvalidType if known == "42883" else UnreadableData
            return kind(f"table={table!r} {_STATES[known]}.")
    if isinstance(error, MemoryError):
        return InvalidValue(f"table={table!r} has more keys than fit into memory here. Use a larger machine.")
    if isinstance(error, OSError) or "closed the connection" in str(error) or "terminating connection" in str(error):
        return UnreadableData(f"table={table!r}: the connection was lost, and nothing was used. Try again.")
    code = f"SQLSTATE {state}" if state.isalnum() else type(error).__name__
    return UnreadableData(f"table={table!r} cannot be read ({code}). Check that a query of its first rows works.")
