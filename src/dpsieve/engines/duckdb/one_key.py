"""One key for each unit, kept by compiled loops while DuckDB reads the rows: for large tables on few cores.

The result is that of the one SQL text in `sql.bounded_query`, for every salt: DuckDB reads, filters and converts the
same rows and computes the same hashes, and each unit keeps the key with the smallest, of equal ones the smallest. So
nobody can tell from a release which way was taken, and that may depend on the data. It is faster since a row costs one
look at a table, into memory that was requested ahead.

What is held grows with the units, not with the rows. Where it would take more than it may, or anything else is not as
expected, this gives up, and the SQL text, which spills to disk and explains its errors, takes its place.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.engines.duckdb.unit_texts import one_value
from dpsieve.engines.engine import Aggregation, null_units
from dpsieve.engines.sql.bounded_query import AS_TEXT, Column, choice, rows_query, unit_names
from dpsieve.privacy.contribution import Weight
from dpsieve.types import Words

_Made = TypeVar("_Made", covariant=True)
_FIRST_CELLS, _FIRST_BYTES = 1 << 21, 1 << 26  # cells are a power of two, and at least four
_BATCH = 1 << 15
# No batch of texts is too long, and DuckDB reads on while a batch is looked through.
_SETTINGS = {"arrow_large_buffer_size": "true", "streaming_buffer_size": "'64MB'"}
_LONGEST_COLUMN = 2**31 - 1
UNEXPECTED = (OSError, pa.ArrowException, MemoryError)  # errors of DuckDB come through Arrow, without their class


def suits(columns: Mapping[str, Column], task: Aggregation, rows: int) -> bool:
    """Tell whether this number of rows, with these columns, can be aggregated here."""
    wanted = task.columns
    if not wanted.unit or task.contribution.keys > 1 or task.max_rows > 1 or len(wanted.key) > 1:
        return False
    if isinstance(task.measure, Weight) and rows > task.measure.most_units:
        return False
    key = columns[wanted.key[0]]
    return one_value(columns, wanted) is not None and key.kind in AS_TEXT and not key.collated


def run_compiled(
    connection: Any, scan: str, columns: Mapping[str, Column], task: Aggregation, memory: int, threads: int = 1
) -> pa.Table | None:
    """Return keys and numbers as the SQL text does; None when it gives up, at the latest with `memory` bytes held.

    Units are divided into parts, each with a table of its own. Every part looks at all rows, and DuckDB needs threads
    to read them, so there is one part for two threads.
    """
    parts = (threads + 1) // 2
    order = choice(task.salt, [*unit_names(task.columns), "k0"])
    unit, rows = one_value(columns, task.columns), rows_query(scan, columns, task)[0]
    text = f"SELECT {unit} AS u, k0, {order} AS o FROM ({rows})"
    try:
        kept = [_Kept(task.salt, memory // parts, task.weights[0], part, parts) for part in range(parts)]
        if not all(part.fits() for part in kept):
            return None
        with streamed(connection, text) as batches:
            tables = spread(batches, kept, task, threads)
        return None if tables is None else joined(tables)
    except UNEXPECTED:
        return None


class Part(Protocol[_Made]):
    """What keeps the keys of some of the units."""

    def add(self, batch: pa.RecordBatch) -> bool:
        """Take the rows of these units; tell whether there was room for them."""

    def made(self) -> _Made | None:
        """Return what is kept; None where that cannot be written."""


def spread(
    batches: Iterable[pa.RecordBatch], parts: Sequence[Part[_Made]], task: Aggregation, threads: int
) -> list[_Made] | None:
    """Give each batch to every part, all at once and while the next one is read; None where one has no room for it."""
    with ThreadPoolExecutor(len(parts)) as pool:
        adding: list[Future[bool]] = []
        for batch in batches:
            if batch.column(0).null_count:
                raise null_units(task)
            if not all(future.result() for future in adding):
                return None
            adding = [pool.submit(part.add, batch) for part in parts]
            if threads == 1:
                futures.wait(adding)
        if not all(future.result() for future in adding):
            return None
        made = [part for part in pool.map(lambda part: part.made(), parts) if part is not None]
        return made if len(made) == len(parts) else None


def joined(tables: list[pa.Table]) -> pa.Table | None:
    """Return keys with the sums of their numbers in all tables; None where the keys are too long for one column."""
    if len(tables) == 1:
        return tables[0]
    if sum(table.column(0).nbytes for table in tables) > _LONGEST_COLUMN:
        return None
    return pa.concat_tables(tables).group_by("k0").aggregate([("n", "sum")]).rename_columns(["k0", "n"])


@contextlib.contextmanager
def streamed(connection: Any, text: str) -> Iterator[pa.RecordBatchReader]:
    """Yield the batches of a query while DuckDB computes them."""
    for name, value in _SETTINGS.items():
        connection.execute(f"SET {name} = {value}")
    try:
        with contextlib.closing(connection.sql(text).to_arrow_reader(_BATCH)) as batches:
            yield batches
    finally:
        for name in _SETTINGS:
            connection.execute(f"RESET {name}")


def key_of_tables(salt: int) -> Words:
    """Return eight words that place units and keys in tables, and choose none."""
    words = hashlib.blake2b(salt.to_bytes(8, "little"), digest_size=64, person=b"dpsieve one key").digest()
    return np.frombuffer(words, np.uint64)


class _Kept:
    """The key of each unit of one part so far."""

    def __init__(self, salt: int, memory: int, weight: int = 1, part: int = 0, parts: int = 1) -> None:
        self._salt = key_of_tables(salt)
        self._memory, self._weight, self._part = memory, weight, (part, parts)
        self._cells = _cells(max(4, 1 << (_FIRST_CELLS // parts).bit_length() - 1))
        self._arena = np.empty(_FIRST_BYTES // parts, np.uint8)
        self._state = np.array([0, 1])  # units, and bytes in use: the first one stays free

    def fits(self, cells: int = 0, arena: int = 0) -> bool:
        """Tell whether memory allows tables of at least these bytes: while they grow, and for `made` later.

        That takes up to 40 bytes more for a cell of 32, of which three in four are filled, and a copy of the keys.
        """
        return 3 * max(cells, self._cells.nbytes) + 2 * max(arena, self._arena.nbytes) <= self._memory

    def add(self, batch: pa.RecordBatch) -> bool:
        """Take the rows of a batch; tell whether there was room for them."""
        from dpsieve.engines.duckdb.one_key_loops import add

        while len(batch):
            unit, key, order = batch.columns
            if unit.type not in (pa.int64(), pa.large_string()) or key.type != pa.large_string() or key.null_count:
                return False
            tables = self._cells, self._arena, self._state, self._salt
            done = add(len(batch), *buffers(unit), *buffers(key), order.to_numpy(), *tables, *self._part)
            batch = batch.slice(done)
            if len(batch) and not self._grow(batch.slice(0, 1)):
                return False
        return True

    def made(self) -> pa.Table | None:
        """Return each key with what its units add; None where the keys are too long for one column."""
        from dpsieve.engines.duckdb.one_key_loops import LENGTH_BITS, gather, tally

        units = int(self._state[0])
        table = np.zeros(1 << (2 * units).bit_length(), np.uint64)
        refs, counts = np.zeros(units + 1, np.uint64), np.zeros(units + 1, np.int64)
        found = tally(self._cells, self._arena, table, refs, counts, self._salt)
        refs, counts = refs[1 : found + 1], counts[1 : found + 1]
        starts = np.zeros(found + 1, np.int64)
        np.cumsum(refs & np.uint64((1 << LENGTH_BITS) - 1), out=starts[1:])
        if starts[-1] > _LONGEST_COLUMN:  # as large_string, the type would reveal keys that are not released
            return None
        target = np.empty(int(starts[-1]), np.uint8)
        gather(refs, self._arena, starts, target)
        if self._weight != 1:
            counts *= self._weight
        keys = pa.StringArray.from_buffers(found, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(target))
        return pa.table({"k0": keys, "n": counts})

    def _grow(self, row: pa.RecordBatch) -> bool:
        """Make room for a row; tell whether that was possible."""
        from dpsieve.engines.duckdb.one_key_loops import LENGTH_BITS, compact, in_use, is_full, rehash

        if is_full(self._state[0], self._cells):
            if not self.fits(cells=2 * self._cells.nbytes):
                return False
            larger = _cells(2 * len(self._cells))
            rehash(self._cells, larger, self._salt)
            self._cells = larger
            return True
        size = max(len(self._arena), 2 * in_use(self._cells) + row.nbytes)
        if row.nbytes >> LENGTH_BITS or not self.fits(arena=size):
            return False
        other = np.empty(size, np.uint8)
        compact(self._cells, self._arena, other, self._state)
        self._arena = other
        return True


def _cells(count: int) -> NDArray[np.uint64]:
    """Return empty cells, none of them across two lines of cache; they take memory only where they are touched."""
    words = np.zeros(4 * count + 4, np.uint64)
    return words[-words.ctypes.data % 32 // 8 :][: 4 * count].reshape(count, 4)


def buffers(column: pa.Array) -> tuple[int, NDArray[np.int64] | None]:
    """Return where the values start, and for texts where each of them starts, and the last one ends, from there."""
    if column.type == pa.int64():
        return column.buffers()[1].address + 8 * column.offset, None
    _, starts, text = column.buffers()
    return text.address, np.frombuffer(starts, np.int64)[column.offset : column.offset + len(column) + 1]
