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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.engines.duckdb.compiled.database import Loops, check
from dpsieve.engines.duckdb.compiled.numbering import (
    Blocks,
    Int32s,
    Memory,
    Numbered,
    its_values,
    key_of_tables,
    kind_of_value,
    one_value,
    read_as,
    written_as,
)
from dpsieve.engines.duckdb.compiled.one_key import UNEXPECTED
from dpsieve.engines.duckdb.scan import Scan
from dpsieve.engines.engine import Aggregation
from dpsieve.engines.sql.bounded_query import Column, ascending, choice, rows_query, unit_names
from dpsieve.types import Bools, Ints, Words

_FIRST_VALUES = 1 << 18  # a power of two
_FIRST_PAIRS = 1 << 20  # at least twice as many as a chunk of DuckDB has
_BYTES_OF_A_PAIR, _PAIRS_OF_A_PART, _MOST_BITS = 20, 1 << 14, 10
_MOST_KEYS = (1 << 31) - 1
_UNITS = "dpsieve_units"
_NO_NAMES = np.empty(0, np.uint64), False, np.empty(0, np.uint64)
_ONE_AT_A_TIME = threading.Lock()  # what is put in order is in memory twice


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

    def aggregated(self, task: Aggregation) -> pa.Table | None:
        """Return keys and numbers as the SQL text does; None where a sum may not fit 64 bits.

        The number of rows that a file claims to have does not bound the number of units.
        """
        if (len(self.starts) - 1) * max(task.weights) >= 2**63:
            return None
        totals, present = self._sums(np.array(task.weights))
        if self.names is None:
            return pa.table({"k0": np.flatnonzero(present), "n": totals[present]})
        return pa.table({"k0": self.names.filter(pa.array(present)), "n": totals[present]})

    def in_order(self, connection: Any, unit: list[Column], salt: int) -> tuple[pa.Table, Ints, Int32s]:
        """Return the keys that occur, and starts and keys with the units in their order, as in `Incidence`."""
        from dpsieve.engines.duckdb.compiled.pair_loops import arrange

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
        from dpsieve.engines.duckdb.compiled.pair_loops import sums

        totals, present = np.zeros(self._count(), np.int64), np.zeros(self._count(), np.bool_)
        sums(self.starts, self.keys, weights, totals, present)
        sizes = np.bincount(np.diff(self.starts))
        each = np.arange(len(sizes)) * weights[np.minimum(np.arange(len(sizes)), len(weights)) - 1]
        check(totals.sum() == (sizes * each).sum(), "the sums of keys are not those of their units")
        return totals, present

    def _order_of_units(self, connection: Any, unit: list[Column], salt: int) -> Ints:
        if not len(self.units):  # then nothing has told their type
            return np.empty(0, np.int64)
        connection.register(_UNITS, pa.table({"u": self.units, "i": np.arange(len(self.units))}))
        try:
            names = [f"u{i}" for i in range(len(unit))]
            read = ", ".join(f"{value} AS {u}" for value, u in zip(its_values("u", unit), names, strict=True))
            text = f"SELECT i FROM (SELECT {read}, i FROM {_UNITS}) {ascending(choice(salt, names), *names)}"
            return connection.sql(text).to_arrow_table().column(0).to_numpy()  # type: ignore[no-any-return]
        finally:
            connection.unregister(_UNITS)


def read_pairs(loops: Loops, scan: Scan, task: Aggregation, known: str | None) -> Pairs | None:
    """Return the pairs that are kept; None when it gives up, at the latest with all memory held.

    With `known`, the name of a table of public keys, the number of a key is its place in that table.
    """
    key, unit = scan.columns[task.columns.key[0]], kind_of_value(scan.columns, task.columns)
    bounded, names = rows_query(scan.text, scan.columns, task, known)
    kind = "BIGINT" if known is not None else read_as(key) or ""
    value = one_value(scan.columns, task.columns) or ""
    order = choice(task.salt, [*unit_names(task.columns), *names])
    arguments = {value: unit, f"CAST(k0 AS {kind})": kind, order: "UBIGINT"}
    written = None if known is not None else written_as(key)
    try:
        from dpsieve.engines.duckdb.compiled.pair_loops import visit

        salt, room = key_of_tables(task.salt), Memory(loops.memory)
        blocks, pairs = Blocks(room), (scan.rows or 0) // loops.threads

        def numbered(texts: bool) -> Numbered:
            return Numbered(salt, room, blocks, texts, _FIRST_VALUES)

        def noted_by_a_thread() -> _Noted:
            units = numbered(texts=True) if unit == "VARCHAR" else None
            keys = numbered(texts=kind == "VARCHAR") if known is None else None
            return _Noted(task.contribution.keys, units, keys, salt, room, pairs)

        noted = [noted_by_a_thread() for _ in range(loops.threads)]
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
    check(sizes.max(initial=0) <= most and starts[-1] == len(kept), "a unit keeps more keys than its bound")
    whole = pa.array(words.view(np.int64))
    values = whole if first.units is None else first.units.values().take(whole)  # type: ignore[union-attr]
    return Pairs(values, None if names is None else names.cast(written), starts, kept)


def _new_numbers(first: Numbered | None, other: Numbered | None) -> Int32s | None:
    """Return the numbers that values have in the first; None where they keep their own."""
    return (
        None if first is None or other is None or other is first else first.numbers_of(other.words[1 : len(other) + 1])
    )


def _settled(
    noted: list["_Noted"], units: list[Int32s | None], keys: list[Int32s | None], most: int, workers: int
) -> list[tuple[Words, Int32s, Int32s, Words]]:
    """Return, for parts of the units, the units, how many keys each keeps, the keys, and their orders."""
    from dpsieve.engines.duckdb.compiled.pair_loops import count_parts, divide, is_bounded, settle

    first, filled = noted[0], [each.filled for each in noted]
    names = _NO_NAMES if first.keys is None else first.keys.named
    total, salt = sum(filled), first.salt
    key_count = _MOST_KEYS if first.keys is None else len(first.keys)
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
            kept, found = settle(*columns, most, *names, salt, sizes, desk)
            mine = columns[0][:found], sizes[:found], columns[1][:kept], columns[2][:kept]
            bounded = is_bounded(*mine, most, key_count, part, bits, salt, desk[-1])
            check(bounded, "a unit keeps more keys than its bound")
            made.append(mine)
        return made

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(count, range(len(noted))))
        begins = (np.cumsum(counts.ravel()) - counts.ravel()).reshape(counts.shape)
        list(pool.map(move, range(len(noted))))
        return [part for made in pool.map(put_in_order, range(workers)) for part in made]


def _desk(pairs: int) -> tuple[NDArray[Any], ...]:
    """Return what it takes to put this number of pairs in order: see `pair_loops.settle`."""
    kinds = (np.uint64, np.int32, np.int64, np.int64, np.int32, np.uint64)
    return *(np.empty(pairs + 1, kind) for kind in kinds), np.empty(4 << pairs.bit_length(), np.int32)


class _Noted:
    """The pairs that one thread has met; units and keys are whole numbers, or get numbers."""

    def __init__(
        self, most: int, units: Numbered | None, keys: Numbered | None, salt: Words, room: Memory, pairs: int
    ) -> None:
        from dpsieve.engines.duckdb.compiled.pair_loops import FIELDS, KEYS, UNITS

        self.units, self.keys, self.salt = units, keys, salt
        self._most, self._room, self._expected = most, room, pairs + pairs // 8
        self.frame = np.zeros(FIELDS, np.int64)
        self.frame[UNITS] = 0 if units is None else units.frame.ctypes.data
        self.frame[KEYS] = 0 if keys is None else keys.frame.ctypes.data
        self.pairs: list[NDArray[Any]] = [np.empty(0, kind) for kind in (np.uint64, np.int32, np.uint64)]

    @property
    def filled(self) -> int:
        """How many pairs there are."""
        from dpsieve.engines.duckdb.compiled.pair_loops import FILLED

        return int(self.frame[FILLED])

    def grow(self) -> bool:
        """Make room for what wants some; tell whether that was possible."""
        from dpsieve.engines.duckdb.compiled.pair_loops import KEYS, UNITS, WANTS

        wants = self.frame[WANTS]
        if wants:
            values = self.units if wants == self.frame[UNITS] else self.keys if wants == self.frame[KEYS] else None
            return values is not None and values.grow()
        return self._longer() or self._settle()

    def _longer(self) -> bool:
        from dpsieve.engines.duckdb.compiled.pair_loops import NOTED_KEYS, NOTED_ORDERS, NOTED_UNITS, ROOM

        old = len(self.pairs[0])
        sizes = (2 * old,) if old else (max(self._expected, _FIRST_PAIRS), _FIRST_PAIRS)
        size = next((size for size in sizes if self._room.take(_BYTES_OF_A_PAIR * size)), 0)
        if not size:
            return False
        self.pairs = [_longer(column, size) for column in self.pairs]
        self._room.give_back(_BYTES_OF_A_PAIR * old)
        self.frame[[NOTED_UNITS, NOTED_KEYS, NOTED_ORDERS]] = [column.ctypes.data for column in self.pairs]
        self.frame[ROOM] = size
        return True

    def _settle(self) -> bool:
        """Keep of each unit what it may keep so far; tell whether that is less than half of what there is room for."""
        from dpsieve.engines.duckdb.compiled.pair_loops import FILLED

        with _ONE_AT_A_TIME:
            place = 0
            for words, sizes, keys, orders in _settled([self], [None], [None], self._most, workers=1):
                end = place + len(keys)
                for mine, found in zip(self.pairs, (np.repeat(words, sizes), keys, orders), strict=True):
                    mine[place:end] = found
                place = end
        self.frame[FILLED] = place
        return 2 * place < len(self.pairs[0])


def _longer(values: NDArray[Any], size: int) -> NDArray[Any]:
    longer = np.empty(size, values.dtype)
    longer[: len(values)] = values
    return longer
