"""Pairs of a unit and a key, noted by compiled loops inside of DuckDB's threads: for large tables.

The result is that of the SQL texts in `sql.bounded_query`, for every salt: DuckDB reads, filters and converts the same
rows and computes the same hashes, and each unit keeps the keys with the smallest, of equal ones the smallest keys. So
nobody can tell from a release which way was taken, and that may depend on the data. It is faster since keys become
numbers first, and pairs are divided by unit into parts that fit into the cache of a core.

Each thread notes the pairs that it meets; where there is no room for more, repeated ones are dropped, and all that a
unit will not keep. At the end keys get common numbers, and each part of the units is put in order by one thread. Where
memory does not suffice, or anything else is not as expected, this gives up, and the SQL text takes its place.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsieve.engines.duckdb.memory import Memory
from dpsieve.engines.duckdb.one_key import UNEXPECTED, key_of_tables, texts_of
from dpsieve.engines.duckdb.own_database import Loops, Unavailable
from dpsieve.engines.duckdb.scan import Scan
from dpsieve.engines.duckdb.unit_texts import its_values, kind_of_value, one_value
from dpsieve.engines.engine import Aggregation
from dpsieve.engines.sql.bounded_query import AS_TEXT, Column, choice, rows_query, unit_names
from dpsieve.privacy.contribution import Weight
from dpsieve.types import Bools, Ints, Words

_NUMBERS = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(), "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32(),
}  # fmt: skip
_FIRST_VALUES, _FIRST_BYTES = 1 << 20, 1 << 24  # values are a power of two
_FIRST_PAIRS = 1 << 20  # at least twice as many as a chunk of DuckDB has
_MOST_VALUES = 2**31 - 1
_BYTES_OF_A_PAIR, _PAIRS_OF_A_PART, _MOST_BITS = 20, 1 << 14, 10
_UNITS = "dpsieve_units"
Int32s = NDArray[np.int32]
_NO_RANKS = np.empty(0, np.int32)
_ONE_AT_A_TIME = threading.Lock()  # what is put in order is in memory twice


def suits(columns: Mapping[str, Column], task: Aggregation, rows: int, listed: bool) -> bool:
    """Tell whether this number of rows, with these columns, can be aggregated here."""
    wanted = task.columns
    if not wanted.unit or task.max_rows > 1 or (len(wanted.key) > 1 and not listed):
        return False
    if isinstance(task.measure, Weight) and rows > task.measure.most_units:
        return False
    return one_value(columns, wanted) is not None and (listed or _read_as(columns[wanted.key[0]]) is not None)


def _read_as(key: Column) -> str | None:
    if key.collated:
        return None
    return "BIGINT" if key.kind in _NUMBERS else "VARCHAR" if key.kind in AS_TEXT else None


@dataclass(frozen=True, eq=False, repr=False)
class Pairs:
    """Which units keep which keys, both under numbers: unit u keeps keys[starts[u]] to keys[starts[u + 1] - 1].

    Their order says when a unit was first met, so they are put in order before anyone sees them.

    Attributes:
        units, names: the units and the keys by number; `names` is None where numbers are places in a public list.
    """

    units: pa.Array
    names: pa.Array | None
    starts: Ints
    keys: Int32s

    def aggregated(self, task: Aggregation) -> pa.Table:
        """Return keys and numbers as the SQL text does."""
        totals, present = self._sums(np.array(task.weights))
        if self.names is None:
            return pa.table({"k0": np.flatnonzero(present), "n": totals[present]})
        return pa.table({"k0": self.names.filter(pa.array(present)), "n": totals[present]})

    def in_order(self, connection: Any, unit: list[Column], salt: int) -> tuple[pa.Table, Ints, Int32s]:
        """Return the keys that occur, and starts and keys with the units in their order, as in `Incidence`."""
        from dpsieve.engines.duckdb.pair_loops import arrange

        turn = self._order_of_units(connection, unit, salt)
        starts, held = np.zeros(len(turn) + 1, np.int64), np.empty(len(self.keys), np.int32)
        np.cumsum(np.diff(self.starts)[turn], out=starts[1:])
        if self.names is None:
            names, numbers = pa.table({}), np.arange(self._count(), dtype=np.int32)
        else:
            _, present = self._sums(np.ones(1, np.int64))
            names = pa.table({"k0": self.names.filter(pa.array(present))})
            numbers = np.cumsum(present, dtype=np.int32) - np.int32(1)
        arrange(turn, self.starts, self.keys, numbers, held)
        return names, starts, held

    def _count(self) -> int:
        return int(self.keys.max(initial=-1)) + 1 if self.names is None else len(self.names)

    def _sums(self, weights: Ints) -> tuple[Ints, Bools]:
        """Return what the units of each key add to it, and which keys some unit keeps."""
        from dpsieve.engines.duckdb.pair_loops import sums

        totals, present = np.zeros(self._count(), np.int64), np.zeros(self._count(), np.bool_)
        sums(self.starts, self.keys, weights, totals, present)
        return totals, present

    def _order_of_units(self, connection: Any, unit: list[Column], salt: int) -> Ints:
        if not len(self.units):  # then nothing has told their type
            return np.empty(0, np.int64)
        connection.register(_UNITS, pa.table({"u": self.units, "i": np.arange(len(self.units))}))
        try:
            names = [f"u{i}" for i in range(len(unit))]
            read = ", ".join(f"{value} AS {u}" for value, u in zip(its_values("u", unit), names, strict=True))
            text = f"SELECT i FROM (SELECT {read}, i FROM {_UNITS}) ORDER BY {choice(salt, names)}, {', '.join(names)}"
            return connection.sql(text).to_arrow_table().column(0).to_numpy()  # type: ignore[no-any-return]
        finally:
            connection.unregister(_UNITS)


def read_pairs(loops: Loops, scan: Scan, task: Aggregation, known: str | None) -> Pairs | None:
    """Return the pairs that are kept; None when it gives up, at the latest with all memory held.

    With `known`, the name of a table of public keys, the number of a key is its place in that table.
    """
    key, unit = scan.columns[task.columns.key[0]], kind_of_value(scan.columns, task.columns)
    bounded, names = rows_query(scan.text, scan.columns, task, known)
    kind = "BIGINT" if known is not None else _read_as(key) or ""
    value = one_value(scan.columns, task.columns) or ""
    order = choice(task.salt, [*unit_names(task.columns), *names])
    arguments = {value: unit, f"CAST(k0 AS {kind})": kind, order: "UBIGINT"}
    written = None if known is not None else _NUMBERS.get(key.kind, pa.string())
    try:
        from dpsieve.engines.duckdb.one_key_loops import MOST_ARENAS
        from dpsieve.engines.duckdb.pair_loops import visit

        salt, room = key_of_tables(task.salt), Memory(loops.memory)
        parts = min(loops.threads, MOST_ARENAS)
        units = _values(parts, salt, room, "VARCHAR" if unit == "VARCHAR" else None)
        keys = _values(parts, salt, room, kind if known is None else None)
        pairs = (scan.rows or 0) // parts
        noted = [_Noted(task.contribution.keys, *values, salt, room, pairs) for values in zip(units, keys, strict=True)]
        loops.database.visit(bounded, arguments, visit.address, noted)
        return _joined(noted, task.contribution.keys, written, loops.threads)
    except UNEXPECTED:
        return None


def _joined(noted: list["_Noted"], most: int, written: pa.DataType | None, threads: int) -> Pairs | None:
    """Return the pairs that are kept of all that are noted, keys `written` as this type, or None for numbers."""
    first, names = noted[0], None
    units = [_new_numbers(first.units, each.units) for each in noted]
    keys = [_new_numbers(first.keys, each.keys) for each in noted]
    if written is not None and first.keys is not None:
        names = first.keys.values(large=False)
        if names is None:
            return None
    made = _settled(noted, units, keys, most, threads)
    words, sizes, kept = (np.concatenate([part[i] for part in made]) for i in range(3))
    starts = np.append(0, np.cumsum(sizes, dtype=np.int64))
    whole = pa.array(words.view(np.int64))
    values = whole if first.units is None else first.units.values().take(whole)  # type: ignore[union-attr]
    return Pairs(values, None if names is None else names.cast(written), starts, kept)


def _new_numbers(first: "_Numbered | None", other: "_Numbered | None") -> Int32s | None:
    return None if first is None or other is None else first.numbers_of(other)


def _settled(
    noted: list["_Noted"], units: list[Int32s | None], keys: list[Int32s | None], most: int, workers: int
) -> list[tuple[Words, Int32s, Int32s, Words]]:
    """Return, for parts of the units, the units, how many keys each keeps, the keys, and their orders."""
    from dpsieve.engines.duckdb.pair_loops import count_parts, divide, settle

    first, filled = noted[0], [each.filled for each in noted]
    total, salt = sum(filled), first.salt
    bits = min(_MOST_BITS, (total // _PAIRS_OF_A_PART).bit_length())
    counts = np.zeros((1 << bits, len(noted)), np.int64)
    there: list[NDArray[Any]] = [np.empty(total, column.dtype) for column in first.pairs]

    def count(i: int) -> None:
        own = np.zeros(1 << bits, np.int64)
        count_parts(noted[i].pairs[0][: filled[i]], units[i], bits, salt, own)
        counts[:, i] = own

    def move(i: int) -> None:
        own = [column[: filled[i]] for column in noted[i].pairs]
        divide(*own, units[i], keys[i], bits, salt, begins[:, i].copy(), *there)

    def put_in_order(worker: int) -> list[tuple[Words, Int32s, Int32s, Words]]:
        desk, made = _desk(int(counts.sum(axis=1).max())), []
        for part in range(worker, 1 << bits, workers):
            begin, end = int(begins[part, 0]), int(begins[part, -1] + counts[part, -1])
            columns, sizes = [column[begin:end] for column in there], np.empty(end - begin, np.int32)
            kept, found = settle(*columns, most, _NO_RANKS, first.keys is None, salt, sizes, desk)
            if kept < 0 and first.keys is not None:
                kept, found = settle(*columns, most, first.keys.ranks(), False, salt, sizes, desk)
            made.append((columns[0][:found], sizes[:found], columns[1][:kept], columns[2][:kept]))
        return made

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(count, range(len(noted))))
        begins = (np.cumsum(counts.ravel()) - counts.ravel()).reshape(counts.shape)
        list(pool.map(move, range(len(noted))))
        return [part for made in pool.map(put_in_order, range(workers)) for part in made]


def _desk(pairs: int) -> tuple[NDArray[Any], ...]:
    """Return room to put so many pairs in order: see `pair_loops.settle`."""
    kinds = (np.uint64, np.int32, np.int64, np.int64, np.int32, np.uint64)
    return *(np.empty(pairs + 1, kind) for kind in kinds), np.empty(4 << pairs.bit_length(), np.int32)


class _Noted:
    """The pairs that one thread has met; units and keys are whole numbers, or get numbers."""

    def __init__(
        self, most: int, units: "_Numbered | None", keys: "_Numbered | None", salt: Words, room: Memory, pairs: int
    ) -> None:
        from dpsieve.engines.duckdb.pair_loops import FIELDS, KEYS, UNITS

        self.units, self.keys, self.salt = units, keys, salt
        self._most, self._room, self._expected = most, room, pairs + pairs // 8
        self.frame = np.zeros(FIELDS, np.int64)
        self.frame[UNITS] = 0 if units is None else units.state.ctypes.data
        self.frame[KEYS] = 0 if keys is None else keys.state.ctypes.data
        self.pairs: list[NDArray[Any]] = [np.empty(0, kind) for kind in (np.uint64, np.int32, np.uint64)]

    @property
    def filled(self) -> int:
        """How many pairs there are."""
        from dpsieve.engines.duckdb.pair_loops import FILLED

        return int(self.frame[FILLED])

    def grow(self) -> bool:
        """Make room for what wants some; tell whether that was possible."""
        from dpsieve.engines.duckdb.pair_loops import KEYS, UNITS, WANTS

        wants = self.frame[WANTS]
        if wants:
            values = self.units if wants == self.frame[UNITS] else self.keys if wants == self.frame[KEYS] else None
            return values is not None and values.grow()
        return self._longer() or self._settle()

    def _longer(self) -> bool:
        from dpsieve.engines.duckdb.pair_loops import NOTED_KEYS, NOTED_ORDERS, NOTED_UNITS, ROOM

        old = len(self.pairs[0])
        sizes = (2 * old,) if old else (max(self._expected, _FIRST_PAIRS), _FIRST_PAIRS)
        size = next((size for size in sizes if self._room.take(_BYTES_OF_A_PAIR * size)), 0)
        if not size:
            return False
        self.pairs = [_longer(column, size) for column in self.pairs]
        self._room.take(-_BYTES_OF_A_PAIR * old)
        self.frame[[NOTED_UNITS, NOTED_KEYS, NOTED_ORDERS]] = [column.ctypes.data for column in self.pairs]
        self.frame[ROOM] = size
        return True

    def _settle(self) -> bool:
        """Keep of each unit what it may keep so far; tell whether that is less than half of what there is room for."""
        from dpsieve.engines.duckdb.pair_loops import FILLED

        with _ONE_AT_A_TIME:
            place = 0
            for words, sizes, keys, orders in _settled([self], [None], [None], self._most, workers=1):
                end = place + len(keys)
                for mine, found in zip(self.pairs, (np.repeat(words, sizes), keys, orders), strict=True):
                    mine[place:end] = found
                place = end
        self.frame[FILLED] = place
        return 2 * place < len(self.pairs[0])


def _values(count: int, salt: Words, room: Memory, kind: str | None) -> list["_Numbered | None"]:
    """Return what numbers the values of each thread; None where they stand for themselves."""
    from dpsieve.engines.duckdb.one_key_loops import MOST_ARENAS

    arenas = np.zeros(MOST_ARENAS, np.uint64)
    return [None if kind is None else _Numbered(salt, room, kind == "VARCHAR", arenas, i) for i in range(count)]


class _Numbered:
    """Values, whole numbers or texts, numbered in the order they are met."""

    def __init__(self, salt: Words, room: Memory, texts: bool, arenas: Words, arena: int) -> None:
        from dpsieve.engines.duckdb.pair_loops import ARENA, ARENAS, SALT, STATE, TEXTS

        self._salt, self._room, self._texts, self._arenas, self._arena = salt, room, texts, arenas, arena
        self._bytes = np.empty(0, np.uint8)
        self._table, self._words = np.empty(0, np.uint64), np.empty(0, np.uint64)  # words from 1 on
        self._ranks, self._ranking = np.empty(0, np.int32), threading.Lock()
        self.state = np.zeros(STATE, np.int64)
        self.state[[TEXTS, SALT, ARENAS, ARENA]] = texts, salt.ctypes.data, arenas.ctypes.data, arena
        if not self._more_values():
            raise Unavailable

    def __len__(self) -> int:
        from dpsieve.engines.duckdb.pair_loops import FOUND

        return int(self.state[FOUND])

    def numbers_of(self, other: "_Numbered") -> Int32s | None:
        """Return the numbers that the values of another one have here, new ones included; None where it is this one."""
        from dpsieve.engines.duckdb.pair_loops import number

        if other is self:
            return None
        numbers, done = np.empty(len(other), np.int32), 0
        while done < len(other):
            done = number(done, len(other), other._words[1:].ctypes.data, True, numbers, self.state)
            if done < len(other) and not self._more_values():
                raise Unavailable
        return numbers

    def values(self, large: bool = True) -> pa.Array | None:
        """Return the values by number; None where texts are too long for one column, unless it may be large."""
        words = self._words[1 : len(self) + 1]
        return texts_of(words, self._arenas, large) if self._texts else pa.array(words.view(np.int64))

    def ranks(self) -> Int32s:
        """Return the place of each value among all, in the order of numbers or bytes."""
        with self._ranking:
            if len(self._ranks) != len(self):
                self._ranks = np.empty(len(self), np.int32)
                self._ranks[pc.sort_indices(self.values()).to_numpy()] = np.arange(len(self), dtype=np.int32)
            return self._ranks

    def grow(self) -> bool:
        """Make room for another value, and for the bytes that are wanted; tell whether that was possible."""
        return self._more_values() if len(self) + 1 == len(self._words) else self._more_bytes()

    def _more_values(self) -> bool:
        from dpsieve.engines.duckdb.pair_loops import SIZE, TABLE, TABLE_SIZE, WORDS, rehash

        size = 2 * len(self._words) or _FIRST_VALUES
        if size > _MOST_VALUES or not self._room.take(24 * size):
            return False
        self._room.take(-24 * len(self._words))
        self._words, table = _longer(self._words, size), np.zeros(2 * size, np.uint64)
        self._words[0] = 0
        self.state[[WORDS, SIZE]] = self._words.ctypes.data, size
        rehash(self._table, table, self.state)
        self._table = table
        self.state[[TABLE, TABLE_SIZE]] = table.ctypes.data, 2 * size
        return True

    def _more_bytes(self) -> bool:
        from dpsieve.engines.duckdb.one_key_loops import LONGEST, START_BITS
        from dpsieve.engines.duckdb.pair_loops import LENGTH, WANTED

        old, wanted = len(self._bytes), int(self.state[WANTED])
        size = max(_FIRST_BYTES, 2 * old + wanted)
        if wanted > LONGEST or size >> START_BITS or not self._room.take(size):
            return False
        self._bytes = _longer(self._bytes, size)
        self._room.take(-old)
        self._arenas[self._arena], self.state[LENGTH] = self._bytes.ctypes.data, size
        return True


def _longer(values: NDArray[Any], size: int) -> NDArray[Any]:
    longer = np.empty(size, values.dtype)
    longer[: len(values)] = values
    return longer
