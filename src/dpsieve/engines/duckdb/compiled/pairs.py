"""Pairs of a unit and a key, collected by compiled loops inside of DuckDB's threads: for large tables.

The result is that of the SQL texts in `sql.queries`, for every salt: DuckDB reads, filters and converts the same rows
and computes the same hashes, and each unit keeps the keys with the smallest, of equal ones the smallest keys. So a
release does not reveal which way was taken, and the choice may depend on the data. It is faster since keys become
numbers first, and pairs are divided by unit into parts that fit into the cache of a core.

Each thread collects the pairs that it reads; where there is no room for more, repeated ones are dropped, and all that a
unit will not keep. At the end keys get common numbers, and each part of the units is sorted by one thread. Where memory
does not suffice, or anything else is not as expected, this gives up, and the SQL text takes its place.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.engines.answers import name_keys
from dpsieve.engines.duckdb.compiled import chunks, pair_loops
from dpsieve.engines.duckdb.compiled.database import OwnDatabase, Unavailable, check
from dpsieve.engines.duckdb.compiled.numbering import Blocks, Int32s, Memory, Numbered, key_of_tables
from dpsieve.engines.duckdb.read import Job
from dpsieve.engines.engine import Aggregation, Columns
from dpsieve.engines.sql.columns import AS_TEXT, Column, ascending
from dpsieve.engines.sql.queries import DUCKDB, rows_query, unit_names
from dpsieve.engines.true_data import Counted, Pairs
from dpsieve.privacy.guarantee import Weight
from dpsieve.types import Ints, Words

_FIRST_VALUES = 1 << 18  # a power of two
_FIRST_PAIRS = 1 << 20  # at least twice as many as a chunk of DuckDB has
_BYTES_OF_A_PAIR, _PAIRS_OF_A_PART, _MOST_BITS = 20, 1 << 14, 10
_MOST_KEYS = (1 << 31) - 1
_UNITS = "dpsieve_units"
_NO_NAMES = np.empty(0, np.uint64), False, np.empty(0, np.uint64)
_ONE_AT_A_TIME = threading.Lock()  # what is sorted is in memory twice
_UNEXPECTED = (Unavailable, pa.ArrowException, MemoryError, RuntimeError)  # the last where no thread can be started
_Units = tuple[pa.Array, pa.Array | None, Ints, Int32s]
_INTEGERS = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(), "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32(),
}  # fmt: skip
_TEXTS = frozenset({"VARCHAR", "UUID"})  # as text, and back, these are what they were


def count_by_loops(job: Job, database: OwnDatabase) -> Counted | None:
    """Return keys with their counts or sums of weights; None if loops do not support the columns, or gave up."""
    pairs, measure = pairs_by_loops(job, database, ordered=False), job.task.measure
    if pairs is None:
        return None
    sizes, weights = pairs.sizes, np.array([0, *job.task.weights])
    sums = pairs.weights(measure) if isinstance(measure, Weight) else pairs.counts()
    total = int((sizes * weights[np.minimum(sizes, len(weights) - 1)]).sum())
    check(int(sums.sum()) == total, "the sums of keys are not those of their units")
    return Counted(pairs.keys, sums)


def pairs_by_loops(job: Job, database: OwnDatabase, ordered: bool = True) -> Pairs | None:
    """Return the keys of each unit; units are in an arbitrary order, not to be published, unless `ordered`."""
    suits = suits_loops(job.scan.columns, job.task, job.scan.rows or 0, job.listed is not None)
    return read_pairs(job, database, ordered) if suits else None


def read_pairs(job: Job, database: OwnDatabase, ordered: bool) -> Pairs | None:
    """Return the pairs that are kept, of columns that suit; None when it gives up, at the latest without memory."""
    task, listed = job.task, job.listed
    try:
        collected = _collect(job, database)
        # The number of rows that a file claims to have does not bound the number of units.
        if collected is None or (len(collected[2]) - 1) * max(task.weights) >= 2**63:
            return None
        units, names, starts, keys = collected
        unit = [job.scan.columns[name] for name in task.columns.unit]
        turn = _order_units(job.connection, units, unit, task.salt) if ordered else np.arange(len(units))
        sorted_starts, key_numbers = np.zeros(len(turn) + 1, np.int64), np.empty(len(keys), np.int32)
        np.cumsum(np.diff(starts)[turn], out=sorted_starts[1:])
        found, numbers = pa.table({}), np.arange(0 if listed is None else len(listed), dtype=np.int32)
        if names is not None:
            present = np.zeros(len(names), np.bool_)
            present[keys] = True
            found, numbers = pa.table({"k0": names.filter(pa.array(present))}), np.cumsum(present, dtype=np.int32) - 1
        pair_loops.arrange(turn, starts, keys, numbers.astype(np.int32), key_numbers)
        return Pairs(name_keys(task, listed, found), sorted_starts, key_numbers)
    except _UNEXPECTED:
        return None


def _order_units(connection: Any, units: pa.Array, unit: list[Column], salt: int) -> Ints:
    if not len(units):  # then their type is not known
        return np.empty(0, np.int64)
    connection.register(_UNITS, pa.table({"u": units, "i": np.arange(len(units))}))
    try:
        names = [f"u{i}" for i in range(len(unit))]
        values = ", ".join(f"{value} AS {u}" for value, u in zip(unit_values("u", unit), names, strict=True))
        order = ascending(DUCKDB.choice(salt, names, []), *names)
        text = f"SELECT i FROM (SELECT {values}, i FROM {_UNITS}) {order}"
        return connection.sql(text).to_arrow_table().column(0).to_numpy()  # type: ignore[no-any-return]
    finally:
        connection.unregister(_UNITS)


def _collect(job: Job, database: OwnDatabase) -> _Units | None:
    """Return the units, the names of keys, or None for places in a public list, and starts and keys of the units."""
    scan, task, known = job.scan, job.task, job.known
    key, unit = scan.columns[task.columns.key[0]], unit_type(scan.columns, task.columns)
    rows, names = rows_query(scan.text, scan.columns, task, known)
    kind = "BIGINT" if known is not None else key_type(key) or ""
    value = unit_expression(scan.columns, task.columns) or ""
    order = DUCKDB.choice(task.salt, unit_names(task.columns), names)
    arguments = {value: unit, f"CAST(k0 AS {kind})": kind, order: "UBIGINT"}
    salt, room = key_of_tables(task.salt), Memory(database.memory)
    blocks, pairs = Blocks(room), (scan.rows or 0) // database.threads

    def collected_by_a_thread() -> _Collected:
        units = Numbered(salt, room, blocks, True, _FIRST_VALUES) if unit == "VARCHAR" else None
        keys = Numbered(salt, room, blocks, kind == "VARCHAR", _FIRST_VALUES) if known is None else None
        return _Collected(task.contribution.keys, units, keys, salt, room, pairs)

    written = None if known is not None else _INTEGERS.get(key.kind, pa.string())
    collected = [collected_by_a_thread() for _ in range(database.threads)]
    database.visit(rows, arguments, chunks.visit.address, collected)
    return _join(collected, task.contribution.keys, written, database.threads)


def _join(collected: list["_Collected"], most: int, written: pa.DataType | None, threads: int) -> _Units | None:
    """Return the pairs that are kept of all that are collected, keys `written` as this type, or None for numbers."""
    first, names = collected[0], None
    units = [_new_numbers(first.units, each.units) for each in collected]
    keys = [_new_numbers(first.keys, each.keys) for each in collected]
    if written is not None and first.keys is not None:
        names = first.keys.values(large=False)
        if names is None:
            return None
    made = _settle_parts(collected, units, keys, most, threads)
    words, sizes, kept = (np.concatenate([part[i] for part in made]) for i in range(3))
    starts = np.append(0, np.cumsum(sizes, dtype=np.int64))
    check(sizes.max(initial=0) <= most and starts[-1] == len(kept), "a unit keeps more keys than its bound")
    whole = pa.array(words.view(np.int64))
    values = whole if first.units is None else first.units.values().take(whole)  # type: ignore[union-attr]
    return values, None if names is None else names.cast(written), starts, kept


def _new_numbers(first: Numbered | None, other: Numbered | None) -> Int32s | None:
    """Return the numbers that values have in the first; None where they keep their own."""
    if first is None or other is None or other is first:
        return None
    return first.numbers_of(other.words[1 : len(other) + 1])


def _settle_parts(
    collected: list["_Collected"], units: list[Int32s | None], keys: list[Int32s | None], most: int, workers: int
) -> list[tuple[Words, Int32s, Int32s, Words]]:
    """Return, for parts of the units, the units, how many keys each keeps, the keys, and their orders."""
    first, filled = collected[0], [each.filled for each in collected]
    names = _NO_NAMES if first.keys is None else first.keys.named
    total, salt = sum(filled), first.salt
    key_count = _MOST_KEYS if first.keys is None else len(first.keys)
    bits = min(_MOST_BITS, (total // _PAIRS_OF_A_PART).bit_length())
    counts = np.zeros((1 << bits, len(collected)), np.int64)
    there: list[NDArray[Any]] = [np.empty(total, column.dtype) for column in first.pairs]

    def count(i: int) -> None:
        own = np.zeros(1 << bits, np.int64)
        pair_loops.count_parts(collected[i].pairs[0][: filled[i]], units[i], bits, salt, own)
        counts[:, i] = own

    def move(i: int) -> None:
        own = [column[: filled[i]] for column in collected[i].pairs]
        pair_loops.divide(*own, units[i], keys[i], bits, salt, begins[:, i].copy(), *there)

    def sort_parts(worker: int) -> list[tuple[Words, Int32s, Int32s, Words]]:
        scratch, made = _scratch(int(counts.sum(axis=1).max())), []
        for part in range(worker, 1 << bits, workers):
            begin, end = int(begins[part, 0]), int(begins[part, -1] + counts[part, -1])
            columns, sizes = [column[begin:end] for column in there], np.empty(end - begin, np.int32)
            kept, found = pair_loops.settle(*columns, most, *names, salt, sizes, scratch)
            mine = columns[0][:found], sizes[:found], columns[1][:kept], columns[2][:kept]
            is_bounded = pair_loops.is_bounded(*mine, most, key_count, part, bits, salt, scratch[-1])
            check(is_bounded, "a unit keeps more keys than its bound")
            made.append(mine)
        return made

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(count, range(len(collected))))
        begins = (np.cumsum(counts.ravel()) - counts.ravel()).reshape(counts.shape)
        list(pool.map(move, range(len(collected))))
        return [part for made in pool.map(sort_parts, range(workers)) for part in made]


def _scratch(pairs: int) -> tuple[NDArray[Any], ...]:
    """Return the scratch buffers of `pair_loops.settle` for this number of pairs."""
    kinds = (np.uint64, np.int32, np.int64, np.int64, np.int32, np.uint64)
    return *(np.empty(pairs + 1, kind) for kind in kinds), np.empty(4 << pairs.bit_length(), np.int32)


class _Collected:
    """The pairs of one thread; units and keys are integers, or get numbers."""

    def __init__(
        self, most: int, units: Numbered | None, keys: Numbered | None, salt: Words, room: Memory, pairs: int
    ) -> None:
        self.units, self.keys, self.salt = units, keys, salt
        self._most, self._room, self._expected = most, room, pairs + pairs // 8
        self.frame = np.zeros(chunks.FIELDS, np.int64)
        self.frame[chunks.UNITS] = 0 if units is None else units.frame.ctypes.data
        self.frame[chunks.KEYS] = 0 if keys is None else keys.frame.ctypes.data
        self.pairs: list[NDArray[Any]] = [np.empty(0, kind) for kind in (np.uint64, np.int32, np.uint64)]

    @property
    def filled(self) -> int:
        return int(self.frame[chunks.FILLED])

    def grow(self) -> bool:
        """Make room for what wants some; return whether that was possible."""
        wants = self.frame[chunks.WANTS]
        for values, field in ((self.units, chunks.UNITS), (self.keys, chunks.KEYS)):
            if values is not None and wants == self.frame[field]:
                return values.grow()
        return self._lengthen() or self._settle()

    def _lengthen(self) -> bool:
        old = len(self.pairs[0])
        sizes = (2 * old,) if old else (max(self._expected, _FIRST_PAIRS), _FIRST_PAIRS)
        size = next((size for size in sizes if self._room.take(_BYTES_OF_A_PAIR * size)), 0)
        if not size:
            return False
        longer = [np.empty(size, column.dtype) for column in self.pairs]
        for new, column in zip(longer, self.pairs, strict=True):
            new[:old] = column
        self.pairs = longer
        self._room.give_back(_BYTES_OF_A_PAIR * old)
        for field, column in zip((chunks.NOTED_UNITS, chunks.NOTED_KEYS, chunks.NOTED_ORDERS), self.pairs, strict=True):
            self.frame[field] = column.ctypes.data
        self.frame[chunks.ROOM] = size
        return True

    def _settle(self) -> bool:
        """Keep of each unit what it may keep so far; return whether that is less than half of the room."""
        with _ONE_AT_A_TIME:
            place = 0
            for words, sizes, keys, orders in _settle_parts([self], [None], [None], self._most, workers=1):
                end = place + len(keys)
                for mine, found in zip(self.pairs, (np.repeat(words, sizes), keys, orders), strict=True):
                    mine[place:end] = found
                place = end
        self.frame[chunks.FILLED] = place
        return 2 * place < len(self.pairs[0])


def unit_expression(columns: Mapping[str, Column], wanted: Columns) -> str | None:
    """Return the expression of a unit as one value over u0, u1, ...; None where a column has an unsuitable type.

    A unit of one column is its own value. One of several columns is the text `3:abcde` for the values 'abc' and 'de':
    the lengths of all values except the last, each with a colon after it, and then the values. The lengths determine
    where each value ends, so different units have different texts, whatever characters the values contain. A null in
    any column makes the text null.
    """
    unit, names = [columns[name] for name in wanted.unit], unit_names(wanted)
    if any(column.collated or column.kind not in _INTEGERS.keys() | _TEXTS for column in unit):
        return None
    if len(unit) == 1:
        return f"CAST(u0 AS {unit_type(columns, wanted)})"
    texts = [f"CAST({u} AS VARCHAR)" for u in names]
    return " || ".join([*(f"length({text}) || ':'" for text in texts[:-1]), *texts])


def unit_type(columns: Mapping[str, Column], wanted: Columns) -> str:
    """Return the type of the value."""
    return "BIGINT" if len(wanted.unit) == 1 and columns[wanted.unit[0]].kind in _INTEGERS else "VARCHAR"


def unit_values(name: str, unit: list[Column]) -> list[str]:
    """Return the expressions of the values of u0, u1, ... over the column `name` that holds `unit_expression`."""
    if len(unit) == 1:
        return [f"CAST({name} AS {unit[0].type})"]
    lengths = [f"CAST(split_part({name}, ':', {i + 1}) AS BIGINT)" for i in range(len(unit) - 1)]
    head = " + ".join(f"length(split_part({name}, ':', {i + 1})) + 1" for i in range(len(unit) - 1))
    starts = [" + ".join([head, *lengths[:i], "1"]) for i in range(len(unit))]
    texts = [f"substring({name}, {start}, {length})" for start, length in zip(starts, lengths, strict=False)]
    texts.append(f"substring({name}, {starts[-1]})")
    return [f"CAST({text} AS {column.type})" for text, column in zip(texts, unit, strict=True)]


def suits_loops(columns: Mapping[str, Column], task: Aggregation, rows: int, listed: bool) -> bool:
    """Return whether compiled loops can read this number of rows with these columns."""
    wanted = task.columns
    if not wanted.unit or task.max_rows > 1 or (len(wanted.key) > 1 and not listed):
        return False
    if isinstance(task.measure, Weight) and rows > task.measure.most_units:
        return False
    return unit_expression(columns, wanted) is not None and (listed or key_type(columns[wanted.key[0]]) is not None)


def key_type(key: Column) -> str | None:
    """Return the type that keys are read as; None where loops cannot read them."""
    if key.collated:
        return None
    return "BIGINT" if key.kind in _INTEGERS else "VARCHAR" if key.kind in AS_TEXT else None
