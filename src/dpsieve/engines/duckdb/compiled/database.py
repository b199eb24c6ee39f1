"""A DuckDB that hands its rows to compiled code, opened through its C interface, which the Python package exports.

A query reads `SELECT max(visit(u, k, o)), count(*) FROM ...`, and `visit` is compiled: it sees the vectors of
DuckDB where they lie, in the threads of DuckDB, so that nothing is copied, converted or waits for Python. Each thread
gets a part, alone or with others that wait for it, and finds it by its frame, an array of words that the function reads
and writes (see `chunks`). Only where a part has no more room, Python is called, and gives it some. At the end the rows
that all calls have seen must be as many as DuckDB has counted.

The instance is apart from every other one in this process: no connection of a user gets the function.
"""

import contextlib
import ctypes
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, Self

import _duckdb
import numpy as np
import pyarrow as pa

from dpsieve.display import log
from dpsieve.types import Ints

GROW, NUMBER, MESSAGE, TAKEN, ROWS, FIRST_FREE = range(6)  # the first words of a frame
_BOOLEAN, _BIGINT, _UBIGINT, _DOUBLE, _VARCHAR = 1, 5, 9, 11, 17
_KINDS = {"BIGINT": _BIGINT, "UBIGINT": _UBIGINT, "DOUBLE": _DOUBLE, "VARCHAR": _VARCHAR}
_VISIT = "dpsieve_visit"
_MOST_CHUNKS = 10_000
# By type of Arrow: the type of DuckDB, and the bytes of a value, or minus those of an offset.
_ARROW = {
    pa.int8(): (2, 1), pa.int16(): (3, 2), pa.int32(): (4, 4), pa.int64(): (_BIGINT, 8), pa.uint8(): (6, 1),
    pa.uint16(): (7, 2), pa.uint32(): (8, 4), pa.float32(): (10, 4), pa.float64(): (_DOUBLE, 8), pa.string(): (_VARCHAR, -4), pa.large_string(): (_VARCHAR, -8),
}  # fmt: skip
_NO_ROOM = ctypes.create_string_buffer(b"there is no room for more")
_Address = ctypes.c_void_p
_Init = ctypes.CFUNCTYPE(None, _Address)
_Grow = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


class Part(Protocol):
    """What is kept of the rows that one or several threads see."""

    frame: Ints

    def grow(self) -> bool:
        """Make room for the next row; return whether that was possible."""


class Unavailable(Exception):
    """What the C interface cannot do, or did not; without DuckDB's message, which quotes rows."""


def check(holds: bool, rule: str) -> None:
    """Give up where a result of compiled loops breaks a rule, so that SQL counts instead."""
    if not holds:
        log.warning("compiled loops: %s; SQL counts instead", rule)
        raise Unavailable(rule)


class _Progress(ctypes.Structure):
    _fields_ = (("share", ctypes.c_double), ("done", ctypes.c_uint64), ("all", ctypes.c_uint64))


@cache
def function(name: str, result: Any = ctypes.c_int) -> Any:
    """Return a function of DuckDB's C interface; its arguments are addresses and numbers."""
    try:
        found = ctypes.CDLL(_duckdb.__file__)[f"duckdb_{name}"]
    except (AttributeError, OSError):
        raise Unavailable(name) from None
    found.restype = result
    return found


def address_of(name: str) -> int:
    """Return the address of a function of DuckDB's C interface."""
    return ctypes.cast(function(name), _Address).value or 0


class OwnDatabase:
    """An instance in memory with one connection, which one thread opens, uses and closes.

    Args:
        settings: those of DuckDB.
        threads: how many call the visitor.
        memory: how many bytes DuckDB and, beside it, the visitor may take.
    """

    def __init__(self, settings: Mapping[str, str], threads: int = 1, memory: int = 1 << 30) -> None:
        self.threads, self.memory = threads, memory
        self._settings = {**settings, "threads": str(threads), "memory_limit": f"{memory >> 10}KiB"}
        self._database, self._connection = _Address(), _Address()
        self._alive: list[object] = []  # what DuckDB holds addresses of
        self._lock = threading.Lock()  # of the connection, which other threads interrupt

    @contextlib.contextmanager
    def opened(self) -> Iterator[Self]:
        """Open it for a `with` block."""
        try:
            self._open()
            yield self
        finally:
            with self._lock:
                function("disconnect")(ctypes.byref(self._connection))
            function("close")(ctypes.byref(self._database))
            self._alive.clear()

    def _open(self) -> None:
        config = _Address()
        _done(function("create_config")(ctypes.byref(config)))
        try:
            for name, value in self._settings.items():
                _done(function("set_config")(config, name.encode(), value.encode()))
            _done(function("open_ext")(None, ctypes.byref(self._database), config, None))
        finally:
            function("destroy_config")(ctypes.byref(config))
        _done(function("connect")(self._database, ctypes.byref(self._connection)))

    def interrupt(self) -> None:
        with self._lock:
            function("interrupt")(self._connection)

    def query_progress(self) -> float:
        """Return how much of what runs is done, in per cent; -1 where that is not known."""
        with self._lock:
            return float(function("query_progress", _Progress)(self._connection).share)

    def register(self, name: str, table: pa.Table) -> None:
        """Make a table of numbers and texts known under this name; a query can read it once."""
        rows = ArrowRows(table, self.threads)
        self._alive += [rows]
        made = _Address(function("create_table_function", _Address)())
        try:
            function("table_function_set_name")(made, f"{name}_rows".encode())
            function("table_function_set_extra_info")(made, _Address(rows.frame.ctypes.data), None)
            function("table_function_set_bind")(made, rows.bind)
            function("table_function_set_init")(made, rows.init)
            function("table_function_set_function")(made, _Address(rows.reader))
            _done(function("register_table_function")(self._connection, made))
        finally:
            function("destroy_table_function")(ctypes.byref(made))
        self.run(f"CREATE VIEW {name} AS SELECT * FROM {name}_rows()")

    def run(self, text: str, column: int = 0) -> int:
        """Run a statement, and return the number in a column of its first row; 0 where there is none."""
        result = (ctypes.c_uint64 * 16)()
        try:
            _done(function("query")(self._connection, text.encode(), ctypes.byref(result)))
            where = ctypes.c_uint64(column), ctypes.c_uint64(0)
            return int(function("value_int64", ctypes.c_int64)(ctypes.byref(result), *where))
        finally:
            function("destroy_result")(ctypes.byref(result))

    def visit(self, rows: str, arguments: Mapping[str, str], visitor: int, parts: Sequence[Part]) -> None:
        """Call the function at the address `visitor` on all rows of a query, in each thread with one of the parts.

        Args:
            rows: the query.
            arguments: expressions over its columns, with their types BIGINT, UBIGINT, DOUBLE or VARCHAR.
            visitor: takes three addresses, of what is known of the call, of a chunk of rows, and of its result.
            parts: the threads get them in turn.
        """
        visits = _Visits(parts)
        self._alive += [visits.begin, visits.grow]
        made = _Address(function("create_scalar_function", _Address)())
        try:
            function("scalar_function_set_name")(made, _VISIT.encode())
            for kind in (*arguments.values(), None):
                with _type(_BOOLEAN if kind is None else _KINDS[kind]) as type_:
                    function(f"scalar_function_{'set_return_type' if kind is None else 'add_parameter'}")(made, type_)
            function("scalar_function_set_volatile")(made)  # it is not left out
            function("scalar_function_set_special_handling")(made)  # it sees nulls
            function("scalar_function_set_init")(made, visits.begin)
            function("scalar_function_set_function")(made, _Address(visitor))
            _done(function("register_scalar_function")(self._connection, made))
        finally:
            function("destroy_scalar_function")(ctypes.byref(made))
        try:
            read = self.run(f"SELECT max({_VISIT}({', '.join(arguments)})), count(*) FROM ({rows})", column=1)
            # A call that an exception ends, as where memory is short, does not count its rows.
            check(sum(int(part.frame[ROWS]) for part in parts) == read, "not every row of the query was visited")
        finally:
            visits.end()


class ArrowRows:
    """The rows of an Arrow table, as a table function that compiled code fills chunks from."""

    def __init__(self, table: pa.Table, threads: int) -> None:
        from dpsieve.engines.duckdb.compiled import chunks

        self._table, self._threads = (
            pa.table([_readable(column) for column in table.columns], table.column_names),
            threads,
        )
        if any(column.num_chunks > _MOST_CHUNKS for column in self._table.columns):
            self._table = self._table.combine_chunks()
        batches, at_once = self._table.to_batches(), int(function("vector_size", ctypes.c_uint64)())
        starts = [np.arange(0, len(batch), at_once) for batch in batches]
        pieces = [
            np.column_stack([np.full(len(start), i), start, np.minimum(at_once, len(batch) - start)])
            for i, (batch, start) in enumerate(zip(batches, starts, strict=True))
        ]
        self._pieces = np.concatenate([np.empty((0, 3), np.int64), *pieces]).astype(np.int64)
        described = [_describe_column(column) for batch in batches for column in batch.columns]
        self._columns = np.array(described, np.int64).reshape(-1, chunks.COLUMN)
        self._alive = batches
        numbers = 0, len(self._pieces), table.num_columns, self._pieces.ctypes.data, self._columns.ctypes.data
        self.frame, self.reader = np.array(numbers, np.int64), chunks.read_rows.address
        self.bind, self.init = _Init(self._bind), _Init(self._init)

    def _bind(self, info: int) -> None:
        try:
            for field in self._table.schema:
                with _type(_ARROW[field.type][0]) as type_:
                    function("bind_add_result_column")(_Address(info), field.name.encode(), type_)
            function("bind_set_cardinality")(_Address(info), ctypes.c_uint64(len(self._table)), ctypes.c_bool(True))
        except Exception:  # DuckDB calls: nothing may be raised into it
            function("bind_set_error")(_Address(info), _NO_ROOM)

    def _init(self, info: int) -> None:
        with contextlib.suppress(Exception):
            function("init_set_max_threads")(_Address(info), ctypes.c_uint64(self._threads))


def _readable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of integers or texts of a kind that loops read."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string_view(kind) or (kind != column.type and kind in _ARROW):
        return column.cast(pa.large_string() if kind not in _ARROW or _ARROW[kind][1] < 0 else kind)
    if column.type not in _ARROW:
        raise Unavailable(str(column.type))
    return column


def _describe_column(column: pa.Array) -> tuple[int, ...]:
    """Return the words of a column of a batch, see `chunks`."""
    valid, *others = [0 if buffer is None else buffer.address for buffer in column.buffers()]
    values, texts = [*others, 0, 0][:2]
    return valid if column.null_count else 0, values, texts, column.offset, _ARROW[column.type][1]


class _Visits:
    """What DuckDB calls to give a part to a thread, or to let it grow."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts, self._turns = parts, itertools.cycle(parts)
        self.begin, self.grow = _Init(self._begin), _Grow(self._grown)
        called = ctypes.cast(self.grow, _Address).value or 0
        for number, part in enumerate(parts):
            part.frame[[GROW, NUMBER, MESSAGE]] = called, number, ctypes.addressof(_NO_ROOM)

    def end(self) -> None:
        """Forget the parts: DuckDB holds on to its functions, and they to this."""
        self._parts, self._turns = (), itertools.cycle(())

    def _begin(self, info: int) -> None:
        try:
            frame = next(self._turns).frame
            function("scalar_function_init_set_state")(_Address(info), _Address(frame.ctypes.data), None)
        except Exception:  # DuckDB calls: nothing may be raised into it
            function("scalar_function_init_set_error")(_Address(info), _NO_ROOM)

    def _grown(self, number: int) -> int:
        try:
            return int(self._parts[number].grow())
        except Exception:
            return 0


@contextlib.contextmanager
def _type(number: int) -> Iterator[Any]:
    made = _Address(function("create_logical_type", _Address)(number))
    try:
        yield made
    finally:
        function("destroy_logical_type")(ctypes.byref(made))


def _done(state: int) -> None:
    if state != 0:
        raise Unavailable
