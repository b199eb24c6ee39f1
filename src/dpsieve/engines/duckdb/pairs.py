"""Pairs of a unit and a key, kept by compiled loops while DuckDB reads the rows: for large tables on few cores.

The result is that of the SQL texts in `sql.bounded_query`, for every salt: DuckDB reads, filters and converts the same
rows and computes the same hashes, and each unit keeps the keys with the smallest, of equal ones the smallest keys. So
nobody can tell from a release which way was taken, and that may depend on the data. It is faster since texts become
numbers first, and numbers are what is sorted.

Pairs are noted until there is no room for more; then repeated ones are dropped, and all that a unit will not keep.
Where memory does not suffice, or anything else is not as expected, this gives up, and the SQL text takes its place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsieve.engines.duckdb.one_key import UNEXPECTED, key_of_tables
from dpsieve.engines.duckdb.scan import Scan
from dpsieve.engines.duckdb.unit_texts import its_values, one_value
from dpsieve.engines.engine import Aggregation
from dpsieve.engines.sql.bounded_query import AS_TEXT, Column, choice, rows_query, unit_names
from dpsieve.privacy.contribution import Weight
from dpsieve.types import Bools, Ints, Words

_NUMBERS = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(), "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32(),
}  # fmt: skip
_FIRST_VALUES, _FIRST_BYTES = 1 << 20, 1 << 24  # values are a power of two
_MOST_VALUES, _LONGEST_COLUMN = 2**31 - 1, 2**31 - 1
_BYTES_OF_A_PAIR = 32  # its unit, key and order, twice while pairs are sorted
_ZERO, _NO_LIMIT = np.uint64(0), np.uint64(2**64 - 1)
_UNITS = "dpsieve_units"
Int32s = NDArray[np.int32]


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
        from dpsieve.engines.duckdb.pair_loops import sums

        totals = np.zeros(self._count(), np.int64)
        sums(self.starts, self.keys, np.array(task.weights), totals)
        kept = np.flatnonzero(self._present())
        return pa.table({"k0": kept if self.names is None else self.names.take(pa.array(kept)), "n": totals[kept]})

    def in_order(self, connection: Any, unit: list[Column], salt: int) -> tuple[pa.Table, Ints, Int32s]:
        """Return the keys that occur, and starts and keys with the units in their order, as in `Incidence`."""
        from dpsieve.engines.duckdb.pair_loops import arrange

        turn = self._order_of_units(connection, unit, salt)
        starts, held = np.zeros(len(turn) + 1, np.int64), np.empty(len(self.keys), np.int32)
        np.cumsum(np.diff(self.starts)[turn], out=starts[1:])
        if self.names is None:
            names, numbers = pa.table({}), np.arange(self._count(), dtype=np.int32)
        else:
            present = self._present()
            names = pa.table({"k0": self.names.filter(pa.array(present))})
            numbers = np.cumsum(present, dtype=np.int32) - np.int32(1)
        arrange(turn, self.starts, self.keys, numbers, held)
        return names, starts, held

    def _count(self) -> int:
        return int(self.keys.max(initial=-1)) + 1 if self.names is None else len(self.names)

    def _present(self) -> Bools:
        """Return which keys some unit keeps."""
        present = np.zeros(self._count(), np.bool_)
        present[self.keys] = True
        return present

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


def read_pairs(
    connection: Any, scan: Scan, task: Aggregation, known: str | None, memory: int, parts: int = 1
) -> list[Pairs] | None:
    """Return the pairs that are kept; None when it gives up, at the latest with about `memory` bytes held.

    Units are divided into parts, which keep pairs at the same time. With `known`, the name of a table of public keys,
    the number of a key is its place in that table.
    """
    unit, key = one_value(scan.columns, task.columns), scan.columns[task.columns.key[0]]
    bounded, names = rows_query(scan.text, scan.columns, task, known)
    kind = "BIGINT" if known is not None else _read_as(key)
    wanted = [unit or "", f"CAST(k0 AS {kind})", choice(task.salt, [*unit_names(task.columns), *names])]
    try:
        written = None if known is not None else _NUMBERS.get(key.kind, pa.string())
        noted = [_Noted(task, scan.rows or 0, memory // parts, written, part, parts) for part in range(parts)]
        with streamed(connection, f"SELECT {', '.join(wanted)} FROM ({bounded})") as batches:
            return spread(batches, noted, task, parts)
    except UNEXPECTED:
        return None


class _Noted:
    """The pairs so far of one part of the units; their keys are numbers, or get some and are `written` as this type."""

    def __init__(
        self, task: Aggregation, rows: int, memory: int, written: pa.DataType | None, part: int = 0, parts: int = 1
    ) -> None:
        salt, quarter = key_of_tables(task.salt), memory // 4
        self._units, self._keys = _Numbered(salt, quarter), None if written is None else _Numbered(salt, quarter)
        self._written, self._salt, self._part = written, salt, (part, parts)
        self._most = task.contribution.keys
        room = min(rows, 2 * quarter // _BYTES_OF_A_PAIR)
        self._pairs: list[NDArray[Any]] = [np.empty(room, kind) for kind in (np.int32, np.int32, np.uint64)]
        self._filled = 0
        self._limits = np.empty(0, np.uint64)  # by unit, as soon as there are some

    def add(self, batch: pa.RecordBatch) -> bool:
        """Note the rows of a batch; tell whether there was room for them."""
        from dpsieve.engines.duckdb.pair_loops import leave_out, note

        unit, key, order = batch.columns
        numbers = np.zeros(len(batch), np.int32)
        if self._part[1] > 1:
            leave_out(len(batch), *buffers(unit), numbers, self._salt, *self._part)
        units = self._units.numbers(unit, numbers.copy())
        keys = key.to_numpy().astype(np.int32) if self._keys is None else self._keys.numbers(key, numbers)
        if units is None or keys is None:
            return False
        if len(self._limits):
            self._limits = _longer(self._limits, len(self._units), _NO_LIMIT)
        if self._filled + len(batch) > len(self._pairs[0]):
            self._settle()
            if 2 * self._filled + len(batch) > len(self._pairs[0]):
                return False
        self._filled = note(units, keys, order.to_numpy(), self._limits, *self._pairs, self._filled)
        return True

    def made(self) -> Pairs | None:
        """Return what is kept; None where keys are too long for one column."""
        starts = self._settle()
        keys = self._pairs[1][: self._filled].copy()
        self._pairs, names = [], None
        if self._keys is not None:
            names = self._keys.values(large=False)
            if names is None:
                return None
            names = names.cast(self._written)
        return Pairs(self._units.values(), names, starts, keys)

    def _settle(self) -> Ints:
        """Keep of each unit what it may keep so far; return where the pairs of each unit start."""
        from dpsieve.engines.duckdb.pair_loops import group, keep, sort

        units, keys, orders = (column[: self._filled] for column in self._pairs)
        starts = np.zeros(len(self._units) + 1, np.int64)
        sorted_keys, sorted_orders = np.empty_like(keys), np.empty_like(orders)
        group(units, keys, orders, starts, sorted_keys, sorted_orders)
        count = int(keys.max(initial=-1)) + 1
        if sort(starts, sorted_keys, sorted_orders, np.arange(count, dtype=np.int32)) and self._keys is not None:
            sort(starts, sorted_keys, sorted_orders, self._keys.ranks())
        self._limits = _longer(self._limits, len(self._units), _NO_LIMIT)
        self._filled = keep(starts, sorted_keys, sorted_orders, self._most, units, keys, orders, self._limits)
        return starts


class _Numbered:
    """Values, whole numbers or texts, numbered in the order they are met."""

    def __init__(self, salt: Words, memory: int) -> None:
        self._salt, self._memory = salt, memory
        size = min(_FIRST_VALUES, 1 << (memory // 48 | 16).bit_length() - 1)
        self._table = np.zeros(2 * size, np.uint64)
        self._words = np.zeros(size, np.uint64)  # from 1 on
        self._arena = np.empty(0, np.uint8)
        self._state = np.zeros(2, np.int64)  # values, and bytes in use
        self._texts = False

    def __len__(self) -> int:
        return int(self._state[0])

    def numbers(self, column: pa.Array, numbers: Int32s) -> Int32s | None:
        """Write the numbers of values, new ones included, but where -1 stands; None where there is no room for them."""
        from dpsieve.engines.duckdb.pair_loops import number

        self._texts = column.type == pa.large_string()
        if not (self._texts or column.type == pa.int64()) or column.null_count:
            return None
        done = 0
        while done < len(column):
            here = numbers[done:], self._table, self._words, self._arena, self._state, self._salt
            done += number(len(column) - done, *buffers(column.slice(done)), *here)
            if done < len(column) and not self._grow(column.slice(done, 1).nbytes):
                return None
        return numbers

    def values(self, large: bool = True) -> pa.Array | None:
        """Return the values by number; None where texts are too long for one column, unless it may be large."""
        from dpsieve.engines.duckdb.one_key_loops import LENGTH_BITS, gather

        words = self._words[1 : len(self) + 1]
        if not self._texts:
            return pa.array(words.view(np.int64))
        starts = np.zeros(len(words) + 1, np.int64)
        np.cumsum(words & np.uint64((1 << LENGTH_BITS) - 1), out=starts[1:])
        if not large and starts[-1] > _LONGEST_COLUMN:  # as large_string, the type would tell of keys not released
            return None
        target = np.empty(int(starts[-1]), np.uint8)
        gather(words, self._arena, starts, target)
        kind, offsets = (pa.LargeStringArray, starts) if large else (pa.StringArray, starts.astype(np.int32))
        return kind.from_buffers(len(words), pa.py_buffer(offsets), pa.py_buffer(target))

    def ranks(self) -> Int32s:
        """Return the place of each value among all, in the order of numbers or bytes."""
        ranks = np.empty(len(self), np.int32)
        ranks[pc.sort_indices(self.values()).to_numpy()] = np.arange(len(self), dtype=np.int32)
        return ranks

    def _grow(self, length: int) -> bool:
        """Make room for a value of at most this length; tell whether that was possible."""
        from dpsieve.engines.duckdb.one_key_loops import LENGTH_BITS
        from dpsieve.engines.duckdb.pair_loops import rehash

        more_values = len(self) + 1 == len(self._words)
        size = len(self._words) * 2 if more_values else len(self._words)
        arena = len(self._arena) if more_values else max(_FIRST_BYTES, 2 * len(self._arena) + length)
        if length >> LENGTH_BITS or 2 * (24 * size + arena) > self._memory or size > _MOST_VALUES:
            return False
        if more_values:
            self._words = _longer(self._words, size, _ZERO)
            table = np.zeros(2 * size, np.uint64)
            rehash(self._table, table, self._words, self._texts, self._arena, self._salt)
            self._table = table
        else:
            self._arena = _longer(self._arena, arena, np.uint8(0))
        return True


def _longer(values: NDArray[Any], size: int, fill: Any) -> NDArray[Any]:
    longer = np.full(size, fill)
    longer[: len(values)] = values
    return longer
