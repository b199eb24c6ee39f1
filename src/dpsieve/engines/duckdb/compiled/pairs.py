"""Pairs of a unit and a key, collected by compiled loops inside of DuckDB's threads: for large tables.

The result is that of the SQL texts in `sql.queries`, for every salt: DuckDB reads, filters and converts the same rows,
each unit keeps the keys with the smallest of DuckDB's hashes, of equal ones the smallest keys, and units have the same
order. So a release does not reveal which way was taken, and the choice may depend on the data. It is faster since keys
become numbers first, and pairs are divided by unit into parts that fit into the cache of a core.

Each thread collects the pairs that it reads; where there is no room for more, repeated ones are dropped. At the end
keys get common numbers, and each part of the units is bounded by one thread. Where memory does not suffice, or anything
else is not as expected, this gives up, and the SQL text takes its place.
"""

import contextlib
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.engines.answers import name_keys
from dpsieve.engines.duckdb.compiled import chunks, pair_loops
from dpsieve.engines.duckdb.compiled.database import OwnDatabase, Unavailable, check
from dpsieve.engines.duckdb.compiled.numbering import Blocks, Each, Memory, Numbered, key_of_tables, merge
from dpsieve.engines.duckdb.read import Job
from dpsieve.engines.engine import Aggregation, Columns
from dpsieve.engines.sql.columns import AS_TEXT, Column, call
from dpsieve.engines.sql.queries import rows_query, unit_names
from dpsieve.engines.true_data import Counted, Pairs
from dpsieve.privacy.guarantee import Weight
from dpsieve.types import Bools, Ints, Words

_FIRST_VALUES = 1 << 16  # a power of two
_BLOCKS_AT_ONCE = 1 << 11  # 6 MiB
_PAIRS_OF_A_PART, _MOST_BITS = 1 << 15, 11
_SCRATCH_OF_A_PAIR = 104  # bytes of `make_scratch`, at most
_MOST_KEYS = (1 << 31) - 1
_NOTHING = np.empty(0, np.uint64)
_UNEXPECTED = (Unavailable, pa.ArrowException, MemoryError, RuntimeError)  # the last where no thread can be started
_ALL, _LOWER = (1 << 64) - 1, (1 << 32) - 1
_INTEGERS = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(), "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32(),
}  # fmt: skip
_TEXTS = frozenset({"VARCHAR", "UUID"})  # as text these sort as they did


def count_by_loops(job: Job, database: OwnDatabase) -> Counted | None:
    """Return keys with their counts or sums of weights; None if loops do not support the columns, or gave up."""
    pairs, measure = pairs_by_loops(job, database), job.task.measure
    if pairs is None:
        return None
    sizes, weights = pairs.sizes, np.array([0, *job.task.weights])
    sums = pairs.weights(measure) if isinstance(measure, Weight) else pairs.counts()
    total = int((sizes * weights[np.minimum(sizes, len(weights) - 1)]).sum())
    check(int(sums.sum()) == total, "the sums of keys are not those of their units")
    return Counted(pairs.keys, sums)


def pairs_by_loops(job: Job, database: OwnDatabase) -> Pairs | None:
    """Return the keys of each unit; None if loops do not support the columns, or gave up."""
    suits = suits_loops(job.scan.columns, job.task, job.scan.rows or 0, job.listed is not None)
    return read_pairs(job, database) if suits else None


def read_pairs(job: Job, database: OwnDatabase) -> Pairs | None:
    """Return the pairs that are kept, of columns that suit; None when it gives up, at the latest without memory."""
    task, listed = job.task, job.listed
    try:
        with ThreadPoolExecutor(database.threads) as pool:
            each: Each = lambda act, numbers: list(pool.map(act, numbers))  # noqa: E731
            collected = _collect(job, database)
            counts = _count_parts(collected, database.memory // 2, each)
            units = _values([part.units for part in collected], _MOST_KEYS, each)
            keys = _values([part.keys for part in collected], 0 if listed is None else len(listed), each)
            starts, numbers, present = _bound_parts(collected, counts, units, keys, task.contribution.keys, each)
            # The number of rows that a file claims to have does not bound the number of units.
            if (len(starts) - 1) * max(task.weights) >= 2**63:
                return None
            found = pa.table({})
            if listed is None:
                words, blocks = keys.words[1 : keys.total + 1][present], keys.blocks
                names = pa.array(words.view(np.int64)) if blocks is None else blocks.texts(words, each)
                if names is None:
                    return None
                kind = job.scan.columns[task.columns.key[0]].kind
                found = pa.table({"k0": names.cast(_INTEGERS.get(kind, pa.string()))})
        return Pairs(name_keys(task, listed, found), starts, numbers, threads=database.threads)
    except _UNEXPECTED:
        return None


def _collect(job: Job, database: OwnDatabase) -> list["_Collected"]:
    """Return the pairs of all rows, by thread."""
    scan, task, known = job.scan, job.task, job.known
    key, unit = scan.columns[task.columns.key[0]], unit_type(scan.columns, task.columns)
    rows, _ = rows_query(scan.text, scan.columns, task, known)
    kind = "BIGINT" if known is not None else key_type(key) or ""
    arguments = {unit_expression(scan.columns, task.columns) or "": unit, f"CAST(k0 AS {kind})": kind}
    columns = [0, 0]
    hashes = (unit, call("hash", f"{task.salt}::UBIGINT", *unit_names(task.columns))), (kind, call("hash", "k0"))
    for i, (type_, text) in enumerate(hashes):
        if type_ == "VARCHAR":
            columns[i] = len(arguments)
            arguments[text] = "UBIGINT"
    salt, room = key_of_tables(task.salt), Memory(database.memory)
    blocks, names = Blocks(room), scan.columns[task.columns.unit[0]]
    bits = min(_MOST_BITS, max(1, ((scan.rows or 0) // _PAIRS_OF_A_PART).bit_length()))

    def collect_in_a_thread() -> _Collected:
        units = Numbered(salt, room, blocks, 0, _FIRST_VALUES) if unit == "VARCHAR" else None
        keys = Numbered(salt, room, blocks, _mask(key, kind), _FIRST_VALUES) if known is None else None
        return _Collected(units, keys, columns, _mask(names, unit), task.salt, room, bits)

    collected = [collect_in_a_thread() for _ in range(database.threads)]
    database.visit(rows, arguments, chunks.visit.address, collected)
    return collected


def _mask(column: Column, kind: str) -> int:
    """Return the bits that DuckDB hashes of an integer of this column; 0 for a text."""
    return 0 if kind == "VARCHAR" else _LOWER if column.kind in ("TINYINT", "SMALLINT", "INTEGER") else _ALL


class _Values(NamedTuple):
    """The values of units, or of keys, by number; the words are empty where the numbers are the values.

    `for_loops` has the words and DuckDB's hashes of them, from 1 on, whether they are references to texts, the
    addresses of the blocks of these, and for each thread the address of its numbers, or 0 where these are the same.
    """

    total: int
    words: Words
    blocks: Blocks | None
    for_loops: tuple[Any, ...]
    numbers: list[Ints]  # at the addresses


def _values(tables: list[Numbered | None], count: int, each: Each) -> _Values:
    """Return the values of the tables of all threads; without tables, `count` numbers that are values themselves."""
    used, none = [table for table in tables if table is not None], np.zeros(len(tables), np.int64)
    if not used:
        return _Values(count, _NOTHING, None, (_NOTHING, _NOTHING, False, _NOTHING, none), [])
    merged = merge(used, each)
    addresses = np.array([column.ctypes.data if len(column) else 0 for column in merged.numbers])
    known = merged.words, merged.hashes, used[0].is_text, used[0].blocks.addresses, addresses
    return _Values(merged.total, merged.words, used[0].blocks if used[0].is_text else None, known, merged.numbers)


def _count_parts(collected: list["_Collected"], memory: int, each: Each) -> Ints:
    """Return the number of pairs of each part; give up where the threads cannot bound the largest in this memory.

    All pairs of a unit are in one part, so one unit may have most of the pairs. Repeated ones are dropped first.
    """
    threads = range(len(collected))

    def count() -> Ints:
        return np.asarray(np.sum(each(lambda i: pair_loops.count_pairs(collected[i].chains), threads), axis=0))

    def fit(counts: Ints) -> bool:
        return int(np.sort(counts)[-len(threads) :].sum()) * _SCRATCH_OF_A_PAIR <= memory

    counts = count()
    if not fit(counts):
        each(lambda i: collected[i].compact(), threads)
        counts = count()
        if not fit(counts):
            raise Unavailable
    return counts


def _bound_parts(
    collected: list["_Collected"], counts: Ints, units: _Values, keys: _Values, most: int, each: Each
) -> tuple[Ints, NDArray[np.int32], Bools]:
    """Return starts and keys of the units, and which keys some unit keeps: those alone have numbers, but for a list."""
    first, places = collected[0], keys.words is _NOTHING
    unit_side = (*units.for_loops, first.salt_hash, np.uint64(first.mask))
    chains = np.array([part.chains.ctypes.data for part in collected])
    ends, largest = np.cumsum(counts), int(counts.max())
    sizes, kept_keys = (np.empty(int(ends[-1]), np.int32) for _ in range(2))
    made, present, parts = (
        np.zeros((len(counts), 2), np.int64),
        np.zeros(keys.total, np.bool_),
        deque(range(len(counts))),
    )

    def bound_parts(_: int) -> None:
        scratch = make_scratch(largest)
        with contextlib.suppress(IndexError):  # when no part is left
            while True:
                part = parts.popleft()
                sides = part, chains, len(counts), unit_side, keys.for_loops
                kept, found = pair_loops.settle(*sides, most, first.salt, scratch)
                here = slice(int(ends[part] - counts[part]), int(ends[part]))
                terms = part, first.bits, kept, found, most, keys.total, unit_side, first.salt, scratch
                is_bounded = pair_loops.emit(*terms, sizes[here], kept_keys[here], present)
                check(is_bounded, "a unit keeps more keys than its bound")
                made[part] = kept, found

    each(bound_parts, range(len(collected)))
    pair_ends, unit_ends = np.cumsum(made, axis=0).T
    numbers = np.arange(keys.total, dtype=np.int32) if places else np.cumsum(present, dtype=np.int32) - np.int32(1)
    starts, key_numbers = np.empty(int(unit_ends[-1]) + 1, np.int64), np.empty(int(pair_ends[-1]), np.int32)
    starts[-1] = pair_ends[-1]

    def assemble(part: int) -> None:
        begin, (kept, found) = int(ends[part] - counts[part]), made[part]
        mine = sizes[begin : begin + found], kept_keys[begin : begin + kept]
        pair_loops.assemble(*mine, numbers, starts, key_numbers, unit_ends[part] - found, pair_ends[part] - kept)

    each(assemble, range(len(counts)))
    return starts, key_numbers, present


def make_scratch(pairs: int) -> tuple[NDArray[Any], ...]:
    """Return the scratch buffers of `pair_loops.settle` for this number of pairs."""
    u64, i32, i64 = np.uint64, np.int32, np.int64
    # The units, keys and orders of the pairs, sizes, units, ranks of the units, starts, ends, keys, orders, hashes.
    kinds = (u64, i32, u64, i32, u64, i32, i64, i64, i32, u64, u64)
    buffers = [np.empty(pairs + 1, kind) for kind in kinds]
    return *buffers, _make_table(pairs), np.empty((64, 2), i64)


def _make_table(pairs: int) -> NDArray[np.int32]:
    return np.empty(4 << pairs.bit_length(), np.int32)


class _Collected:
    """The pairs of one thread; units and keys are integers, or get numbers.

    Args:
        units, keys: the tables that number them, or None where they are their own numbers.
        columns: those with DuckDB's hashes of texts.
        mask: the bits that DuckDB hashes of a unit that is an integer.
        salt: the salt of the choice of keys.
        room: the memory budget.
        bits: how many bits say which part a unit is in.
    """

    def __init__(
        self, units: Numbered | None, keys: Numbered | None, columns: list[int], mask: int, salt: int, room: Memory,
        bits: int,
    ) -> None:  # fmt: skip
        self.units, self.keys, self.mask, self.bits, self._room = units, keys, mask, bits, room
        self.salt, self.salt_hash = key_of_tables(salt), np.uint64(pair_loops.hash_salt(np.uint64(salt)))
        self.chains, self._store = (
            np.zeros((1 << bits, pair_loops.CHAIN), np.int64),
            np.zeros(pair_loops.STORE, np.int64),
        )
        self.chains[:, pair_loops.FILL] = pair_loops.PAIRS_OF_A_BLOCK  # of no block: the first pair takes one
        self._blocks: list[NDArray[np.uint8]] = []
        self.frame = np.zeros(chunks.FIELDS, np.int64)
        for field, table in ((chunks.UNITS, units), (chunks.KEYS, keys)):
            self.frame[field] = 0 if table is None else table.frame.ctypes.data
        self.frame[[chunks.UNIT_HASHES, chunks.KEY_HASHES]] = columns
        self.frame[[chunks.MASK, chunks.SALT]] = np.array([mask, self.salt_hash], np.uint64).view(np.int64)
        self.frame[[chunks.CHAINS, chunks.BITS]] = self.chains.ctypes.data, bits
        self.frame[chunks.BLOCKS] = self._store.ctypes.data

    def grow(self) -> bool:
        """Make room for what wants some; return whether that was possible."""
        wants = self.frame[chunks.WANTS]
        for values, field in ((self.units, chunks.UNITS), (self.keys, chunks.KEYS)):
            if values is not None and wants == self.frame[field]:
                return values.grow()
        return self._add_blocks() or self.compact()

    def _add_blocks(self) -> bool:
        size = _BLOCKS_AT_ONCE * pair_loops.BYTES_OF_A_BLOCK
        if not self._room.take(size):
            return False
        self._blocks.append(np.empty(size, np.uint8))
        address = self._blocks[-1].ctypes.data
        self._store[[pair_loops.NEXT, pair_loops.END]] = address, address + size
        return True

    def compact(self) -> bool:
        """Drop repeated pairs; return whether at most half of the pairs remain."""
        counts = pair_loops.count_pairs(self.chains)
        largest = int(counts.max())
        scratch = np.empty(largest, np.uint64), np.empty(largest, np.int32), _make_table(largest)
        remain = pair_loops.compact(self.chains, self._store, self.salt, *scratch)
        return int(2 * remain) <= int(counts.sum())


def unit_expression(columns: Mapping[str, Column], wanted: Columns) -> str | None:
    """Return the expression of a unit as one value over u0, u1, ...; None where a column has an unsuitable type.

    A unit of one column is its own value. One of several columns is a text whose order, by bytes, is that of the tuple
    of values: integers are digits of one length, and each text but the last ends with the bytes 0 and 1, where a byte 0
    inside of it is followed by 2. So different units have different texts, whatever characters their values contain. A
    null in any column makes the text null.
    """
    unit, names = [columns[name] for name in wanted.unit], unit_names(wanted)
    if any(column.collated or column.kind not in _INTEGERS.keys() | _TEXTS for column in unit):
        return None
    if len(unit) == 1:
        return f"CAST(u0 AS {unit_type(columns, wanted)})"
    texts = [
        f"lpad(CAST(CAST({u} AS HUGEINT) + {1 << 63} AS VARCHAR), 20, '0')"
        if column.kind in _INTEGERS
        else f"replace(CAST({u} AS VARCHAR), chr(0), chr(0) || chr(2)) || chr(0) || chr(1)"
        for column, u in zip(unit, names, strict=True)
    ]
    return " || ".join(texts)


def unit_type(columns: Mapping[str, Column], wanted: Columns) -> str:
    """Return the type of the value."""
    return "BIGINT" if len(wanted.unit) == 1 and columns[wanted.unit[0]].kind in _INTEGERS else "VARCHAR"


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
