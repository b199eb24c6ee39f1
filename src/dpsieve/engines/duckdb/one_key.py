"""One key for each unit, kept by compiled loops inside of DuckDB's threads: for large tables.

The result is that of the one SQL text in `sql.bounded_query`, for every salt: DuckDB reads, filters and converts the
same rows and computes the same hashes, and each unit keeps the key with the smallest, of equal ones the smallest. So
nobody can tell from a release which way was taken, and that may depend on the data. It is faster since a row costs one
look at a table, into memory that was requested ahead.

Two threads share a table, and keep there the units that they meet: to read rows takes longer than to keep them. At the
end parts of the units, one for each thread, are merged and counted.
What is held grows with the units and the threads, not with the rows. Where it would take more than it may, or anything
else is not as expected, this gives up, and the SQL text, which spills to disk and explains its errors, takes its place.
"""

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.engines.duckdb.memory import Memory
from dpsieve.engines.duckdb.own_database import NUMBER, Loops, Unavailable
from dpsieve.engines.duckdb.scan import Scan
from dpsieve.engines.duckdb.unit_texts import kind_of_value, one_value
from dpsieve.engines.engine import Aggregation
from dpsieve.engines.sql.bounded_query import AS_TEXT, Column, choice, rows_query, unit_names
from dpsieve.privacy.contribution import Weight
from dpsieve.types import Ints, Words

_FIRST_CELLS, _FIRST_BYTES, _FIRST_KEYS = 1 << 21, 1 << 26, 1 << 16  # cells and keys are powers of two
_LONGEST_COLUMN, _CELL = 2**31 - 1, 32
_NOTHING = np.empty(0, np.uint64), np.empty(0, np.int64)
UNEXPECTED = (Unavailable, pa.ArrowException, MemoryError)


def suits(columns: Mapping[str, Column], task: Aggregation, rows: int) -> bool:
    """Tell whether this number of rows, with these columns, can be aggregated here."""
    wanted = task.columns
    if not wanted.unit or task.contribution.keys > 1 or task.max_rows > 1 or len(wanted.key) > 1:
        return False
    if isinstance(task.measure, Weight) and rows > task.measure.most_units:
        return False
    key = columns[wanted.key[0]]
    return one_value(columns, wanted) is not None and key.kind in AS_TEXT and not key.collated


def run_compiled(loops: Loops, scan: Scan, task: Aggregation) -> pa.Table | None:
    """Return keys and numbers as the SQL text does; None when it gives up, at the latest with all memory held."""
    value, kind = one_value(scan.columns, task.columns) or "", kind_of_value(scan.columns, task.columns)
    rows = rows_query(scan.text, scan.columns, task)[0]
    arguments = {value: kind, "k0": "VARCHAR", choice(task.salt, [*unit_names(task.columns), "k0"]): "UBIGINT"}
    try:
        from dpsieve.engines.duckdb.one_key_loops import MOST_ARENAS, visit

        common = _Common(key_of_tables(task.salt), Memory(loops.memory), kind == "VARCHAR")
        kept = [_Kept(common, number) for number in range(min((loops.threads + 1) // 2, MOST_ARENAS))]
        loops.database.visit(rows, arguments, visit.address, kept)
        return _counted(kept, common, task.weights[0], loops.threads)
    except UNEXPECTED:
        return None


def _counted(kept: list["_Kept"], common: "_Common", weight: int, threads: int) -> pa.Table | None:
    """Return keys and numbers of all tables; each thread merges and counts a part of the units."""
    kept = [table for table in kept if table.units]
    with ThreadPoolExecutor(threads) as pool:
        if len(kept) > 1:
            common.room.allow_again()
            parts = [part for part in pool.map(lambda part: _part(kept, part, threads), range(threads)) if part]
            if len(parts) < threads:
                return None
            for table in kept:
                table.release()
            if not common.room.is_half_free():
                return None
        else:
            parts = kept
        pieces = [part.cells[:, 2] for part in parts]
        if len(pieces) == 1:
            pieces = np.array_split(pieces[0], threads)
        tallies = list(pool.map(lambda piece: common.tally(piece, None), pieces))
    refs, counts = (np.concatenate([tally[i] for tally in tallies]) for i in range(2)) if tallies else _NOTHING
    if len(tallies) > 1:
        refs, counts = common.tally(refs, counts)
    keys = texts_of(refs, common.arenas, large=False)
    return None if keys is None else pa.table({"k0": keys, "n": counts * weight})


def _part(tables: list["_Kept"], part: int, parts: int) -> "_Kept | None":
    """Return one of several parts of the units of all tables; None where there is no room for it."""
    from dpsieve.engines.duckdb.one_key_loops import merge

    most = max(table.units for table in tables)
    made, done = _Kept(tables[0].common, 0, 1 << max(2, (2 * most // parts).bit_length()), parts), 0
    room = made.more_cells()
    for table in tables:
        while room and (done := merge(table.frame, made.frame, part, parts, done)) >= 0:
            room = made.more_cells()
        done = 0
    return made if room else None


def texts_of(refs: Words, arenas: Words, large: bool = True) -> pa.Array | None:
    """Return the texts that words refer to; None where they are too long for one column, unless it may be large."""
    from dpsieve.engines.duckdb.one_key_loops import LENGTH_BITS, gather

    starts = np.zeros(len(refs) + 1, np.int64)
    np.cumsum(refs & np.uint64((1 << LENGTH_BITS) - 1), out=starts[1:])
    if not large and starts[-1] > _LONGEST_COLUMN:  # as large_string, the type would reveal keys that are not released
        return None
    target = np.empty(int(starts[-1]), np.uint8)
    gather(refs, arenas, starts, target)
    kind, offsets = (pa.LargeStringArray, starts) if large else (pa.StringArray, starts.astype(np.int32))
    return kind.from_buffers(len(refs), pa.py_buffer(offsets), pa.py_buffer(target))


def key_of_tables(salt: int) -> Words:
    """Return eight words that place units and keys in tables, and choose none."""
    words = hashlib.blake2b(salt.to_bytes(8, "little"), digest_size=64, person=b"dpsieve one key").digest()
    return np.frombuffer(words, np.uint64)


class _Common:
    """What the tables of all threads have in common: a salt, memory, whether units are texts, and where arenas are."""

    def __init__(self, salt: Words, room: Memory, texts: bool) -> None:
        from dpsieve.engines.duckdb.one_key_loops import MOST_ARENAS

        self.salt, self.room, self.texts, self.arenas = salt, room, texts, np.zeros(MOST_ARENAS, np.uint64)

    def tally(self, kept: Words, numbers: Ints | None) -> tuple[Words, Ints]:
        """Return each key that is referred to, with the sum of its numbers."""
        from dpsieve.engines.duckdb.one_key_loops import place_keys, tally

        done, found, size = 0, 0, _FIRST_KEYS
        refs, counts = np.zeros(1, np.uint64), np.zeros(1, np.int64)
        while done < len(kept):
            table = np.zeros(2 * size, np.uint64)
            refs = np.append(refs, np.zeros(size - len(refs), np.uint64))
            counts = np.append(counts, np.zeros(size - len(counts), np.int64))
            place_keys(refs[: found + 1], self.arenas, table, self.salt)
            done, found = tally(done, found, kept, numbers, self.arenas, table, refs, counts, self.salt)
            size *= 2
        return refs[1 : found + 1].copy(), counts[1 : found + 1].copy()


class _Kept:
    """The key of each unit that one thread has met."""

    def __init__(self, common: _Common, number: int, first: int = 0, parts: int = 1) -> None:
        from dpsieve.engines.duckdb.one_key_loops import ARENAS, FIELDS, SALT, TEXTS, USED

        self.common, self._number, self._first, self._parts = common, number, first or _FIRST_CELLS, parts
        self.cells, self._arena = _cells(0), np.empty(0, np.uint8)
        self.frame = np.zeros(FIELDS, np.int64)
        self.frame[[TEXTS, SALT, ARENAS]] = common.texts, common.salt.ctypes.data, common.arenas.ctypes.data
        self.frame[[NUMBER, USED]] = number, 1  # the first byte stays free

    @property
    def units(self) -> int:
        """How many units there are."""
        from dpsieve.engines.duckdb.one_key_loops import UNITS

        return int(self.frame[UNITS])

    def release(self) -> None:
        """Forget the cells; other tables may refer to the arena."""
        self.common.room.take(-_CELL * len(self.cells))
        self.cells = _cells(0)

    def grow(self) -> bool:
        """Make room for another unit, and for the bytes that are wanted; tell whether that was possible."""
        from dpsieve.engines.duckdb.one_key_loops import is_full

        return (not is_full(self.units, self.cells) or self.more_cells()) and self._more_bytes()

    def more_cells(self) -> bool:
        """Make room for more units; tell whether that was possible."""
        from dpsieve.engines.duckdb.one_key_loops import CELLS, SIZE, rehash

        size = 2 * len(self.cells) or self._first
        if not self.common.room.take(_CELL * size):
            return False
        larger = _cells(size)
        rehash(self.cells, larger, self.common.salt, self._parts)
        self.release()
        self.cells = larger
        self.frame[[CELLS, SIZE]] = larger.ctypes.data, size
        return True

    def _more_bytes(self) -> bool:
        """Make the arena twice as long, or where memory does not allow that, leave out what nothing refers to."""
        from dpsieve.engines.duckdb.one_key_loops import LENGTH, LONGEST, START_BITS, USED, WANTED, compact, in_use

        wanted, used, room = int(self.frame[WANTED]), int(self.frame[USED]), self.common.room
        if wanted < min(len(self._arena) - used, LONGEST + 1):
            return True
        size = max(2 * len(self._arena) + wanted, _FIRST_BYTES)
        if wanted > LONGEST or size >> START_BITS:
            return False
        if room.take(size):
            longer = np.empty(size, np.uint8)
            longer[: len(self._arena[:used])] = self._arena[:used]
        else:
            size = 2 * in_use(self.cells) + wanted + 1
            if size > len(self._arena) or not room.take(size):
                return False
            longer = np.empty(size, np.uint8)
            used = compact(self.cells, self.common.arenas, longer, self._number)
        room.take(-len(self._arena))
        self._arena = longer
        self.common.arenas[self._number] = longer.ctypes.data
        self.frame[[USED, LENGTH]] = used, size
        return True


def _cells(count: int) -> NDArray[np.uint64]:
    """Return empty cells, none of them across two lines of cache; they take memory only where they are touched."""
    words = np.zeros(4 * count + 4, np.uint64)
    return words[-words.ctypes.data % 32 // 8 :][: 4 * count].reshape(count, 4)
