"""Pairs of a unit and a key, collected by compiled loops from the rows that DuckDB streams: for large tables.

The result is that of the SQL texts in `sql.queries`, for every salt: DuckDB reads, filters and converts the same rows,
each unit keeps the keys with the smallest of DuckDB's hashes, of equal ones the smallest keys, and units have the same
order. So a release does not reveal which way was taken, and the choice may depend on the data. It is faster since keys
become numbers first, and pairs are divided by unit into parts that fit into the cache of a core.

Each thread takes batches of rows, from any of the parts in which `read.split` divides them, and collects their pairs.
At the end keys get common numbers, and each part of the units is bounded by one thread, which also adds up what each
pair adds to totals. Where memory does not suffice, or anything else is not as expected, the SQL text takes its place.
"""

import math
import queue
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.display import log
from dpsieve.engines.answers import name_keys
from dpsieve.engines.duckdb.compiled import numbering, pair_loops
from dpsieve.engines.duckdb.compiled.numbering import NO_WORDS, Blocks, Each, Memory, Numbered, Unavailable, Values
from dpsieve.engines.duckdb.read import Job, Limits, split
from dpsieve.engines.engine import Aggregation, Columns
from dpsieve.engines.sql.columns import AS_TEXT, Column, call
from dpsieve.engines.sql.queries import rows_query, unit_names
from dpsieve.engines.true_data import Counted, Pairs
from dpsieve.noise.totals import GRID, AnyTotal, RawTotal, Total
from dpsieve.privacy.guarantee import Weight
from dpsieve.types import Bools, Floats, Ints
from dpsieve.values.columns import as_arrow, as_numpy

_FIRST_VALUES = 1 << 16  # a power of two
_BLOCKS_AT_ONCE = 1 << 11  # 6 MiB
_ROWS_AT_ONCE = 1 << 15
_PAIRS_OF_A_PART, _MOST_BITS = 1 << 15, 11
_BYTES_OF_A_PAIR, _SCRATCH_OF_A_PAIR = 12, 104  # without values; the latter is of `make_scratch`, at most
_MOST_KEYS = (1 << 31) - 1
_UNEXPECTED = (Unavailable, pa.ArrowException, MemoryError, RuntimeError)  # the last where no thread can be started
_ALL, _LOWER = (1 << 64) - 1, (1 << 32) - 1
_INTEGERS = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(), "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32(),
}  # fmt: skip
_TEXTS = frozenset({"VARCHAR", "UUID"})  # as text these sort as they did


def count_by_loops(job: Job, limits: Limits) -> Counted | None:
    """Return keys with their counts or sums of weights; None if loops do not support the columns, or gave up."""
    pairs, measure = pairs_by_loops(job, limits), job.task.measure
    if pairs is None:
        return None
    return Counted(pairs.keys, pairs.weights(measure)) if isinstance(measure, Weight) else pairs.count_all()


def pairs_by_loops(job: Job, limits: Limits) -> Pairs | None:
    """Return the keys of each unit; None if loops do not support the columns, or gave up."""
    suits = suits_loops(job.scan.columns, job.task, job.scan.rows or 0, job.listed is not None)
    return read_pairs(job, limits) if suits else None


def read_pairs(job: Job, limits: Limits) -> Pairs | None:
    """Return the pairs that are kept, of columns that suit; None when it gives up, at the latest without memory."""
    task, listed = job.task, job.listed
    try:
        with ThreadPoolExecutor(limits.threads) as pool:
            each: Each = lambda act, numbers: list(pool.map(act, numbers))  # noqa: E731
            collected = _collect(job, limits, each)
            units = numbering.merge([part.units for part in collected], _MOST_KEYS, each)
            keys = numbering.merge([part.keys for part in collected], 0 if listed is None else len(listed), each)
            starts, numbers, amounts, present = _bound_parts(collected, units, keys, task, limits.memory // 2, each)
            # The number of rows that a file claims to have does not bound the number of units.
            if (len(starts) - 1) * max(task.weights) >= 2**63:
                return None
            found = pa.table({})
            if listed is None:
                words, blocks = keys.words[1 : keys.total + 1][present], keys.blocks
                names = as_arrow(words.view(np.int64)) if blocks is None else blocks.texts(words, each)
                if names is None:
                    return None
                kind = job.scan.columns[task.columns.key[0]].kind
                found = pa.table({"k0": names.cast(_INTEGERS.get(kind, pa.string()))})
        added = amounts if task.columns.totals else None
        return Pairs(name_keys(task, listed, found), starts, numbers, added, limits.threads)
    except _UNEXPECTED:
        return None


def describe_totals(totals: Sequence[AnyTotal]) -> tuple[list[str], Floats]:
    """Return the columns that are added up, and what loops know of each total."""
    columns, rows = list(dict.fromkeys(total.column for total in totals)), []
    for total in totals:
        what = columns.index(total.column), total.statistic == "mean", isinstance(total, RawTotal)
        grid = (0.0, 0.0, math.nan, 0.0)
        if isinstance(total, Total):
            grid = total.low * total.steps_per_unit, total.per_step, total.missing, GRID
        rows.append((*what, total.largest_row, total.steps_per_unit, *grid))
    return columns, np.array(rows, np.float64).reshape(-1, pair_loops.TOTAL)


def _collect(job: Job, limits: Limits, each: Each) -> list["_Collected"]:
    """Return the pairs of all rows, by thread."""
    scan, task, known, (added, totals) = job.scan, job.task, job.known, describe_totals(job.task.columns.totals)
    if (scan.rows or 0) * (_BYTES_OF_A_PAIR + 8 * len(added)) > limits.memory // 2:
        raise Unavailable
    key, unit = scan.columns[task.columns.key[0]], unit_type(scan.columns, task.columns)
    values = [f"coalesce({scan.columns[name].as_number}, 'nan'::DOUBLE)" for name in added]
    kind = "BIGINT" if known is not None else key_type(key) or ""
    wanted = [unit_expression(scan.columns, task.columns) or "", f"CAST(k0 AS {kind})"]
    hashes = call("hash", f"{task.salt}::UBIGINT", *unit_names(task.columns)), call("hash", "k0")
    wanted += [text for type_, text in zip((unit, kind), hashes, strict=True) if type_ == "VARCHAR"]
    wanted += [f"q{i}" for i in range(len(added))]
    salt, room = numbering.key_of_tables(task.salt), Memory(limits.memory)
    blocks, names = Blocks(room), scan.columns[task.columns.unit[0]]
    bits = min(_MOST_BITS, max(1, ((scan.rows or 0) // _PAIRS_OF_A_PART).bit_length()))

    def collect_nothing() -> _Collected:
        units = Numbered(salt, room, blocks, 0, _FIRST_VALUES) if unit == "VARCHAR" else None
        keys = Numbered(salt, room, blocks, _mask(key, kind), _FIRST_VALUES) if known is None else None
        return _Collected(units, keys, _mask(names, unit), task.salt, room, bits, totals, len(added))

    collected = [collect_nothing() for _ in range(limits.threads)]
    free: queue.LifoQueue[Any] = queue.LifoQueue()  # the parts that no thread is reading
    unread = split(job, limits.threads)
    limits.cursors.parts = len(unread)
    for text, tables in reversed(unread):
        rows, _ = rows_query(text, scan.columns, task, known, values=values)
        free.put(limits.cursors.stream(f"SELECT {', '.join(wanted)} FROM ({rows})", tables, _ROWS_AT_ONCE))

    def collect(thread: int) -> None:
        try:
            while unread and (part := free.get()) is not None:
                if (batch := next(part, None)) is None:
                    del unread[:1]
                    limits.cursors.read = limits.cursors.parts - len(unread)
                    continue
                free.put(part)
                collected[thread].append(batch)
        except BaseException:
            unread.clear()  # so that all threads end
            raise
        finally:
            free.put(None)  # for a thread that waits

    try:
        each(collect, range(limits.threads))
    finally:
        for part in filter(None, free.queue):
            part.close()
    return collected


def _mask(column: Column, kind: str) -> int:
    """Return the bits that DuckDB hashes of an integer of this column; 0 for a text."""
    return 0 if kind == "VARCHAR" else _LOWER if column.kind in ("TINYINT", "SMALLINT", "INTEGER") else _ALL


def _bound_parts(
    collected: list["_Collected"], units: Values, keys: Values, task: Aggregation, memory: int, each: Each
) -> tuple[Ints, NDArray[np.int32], Floats, Bools]:
    """Return starts and keys of the units, what pairs add, and which keys some unit keeps.

    Only those keys have numbers, unless keys are listed. All pairs of a unit are in one part, so one unit may have
    most of them: give up where the threads cannot bound the largest parts in this memory.
    """
    first, most, listed, totals = collected[0], task.contribution.keys, not len(keys.words), collected[0].totals
    counts: Ints = np.sum([part.counts for part in collected], axis=0)
    each_takes = _SCRATCH_OF_A_PAIR + 8 * (first.columns + len(totals))
    largest = np.sort(counts)[-len(collected) :]
    if int(largest.sum()) * each_takes > memory or largest[-1] >> pair_loops.ITEM_BITS:
        raise Unavailable
    unit_side, key_side = (*units.describe(), first.salt_hash, first.mask), keys.describe()
    chains = np.array([part.chains.ctypes.data for part in collected])
    present, parts = np.zeros(keys.total, np.bool_), iter(range(len(counts)))
    made: list[Any] = [None] * len(counts)

    def bound_parts(_: int) -> None:
        scratch = make_scratch(int(counts.max()), first.columns, len(totals))
        for part in parts:  # the next one that no thread has
            sides = part, chains, len(counts), unit_side, key_side
            kept, found = pair_loops.settle(*sides, most, first.salt, totals, scratch)
            there = np.empty(found, np.int32), np.empty(kept, np.int32), np.empty((len(totals), kept))
            terms = part, first.bits, kept, found, most, keys.total, unit_side, first.salt, scratch
            if not pair_loops.emit(*terms, *there, present):
                log.warning("compiled loops: a unit keeps more keys than its bound; SQL counts instead")
                raise Unavailable
            made[part] = there

    each(bound_parts, range(len(collected)))
    unit_ends, pair_ends = (np.cumsum([len(part[i]) for part in made]) for i in range(2))
    numbers = np.arange(keys.total, dtype=np.int32) if listed else np.cumsum(present, dtype=np.int32) - np.int32(1)
    starts, key_numbers = np.zeros(int(unit_ends[-1]) + 1, np.int64), np.empty(int(pair_ends[-1]), np.int32)
    amounts = np.empty((len(totals), len(key_numbers)))

    def assemble(thread: int) -> None:
        for part in range(thread, len(made), len(collected)):
            sizes, kept, added = made[part]
            units_before, pairs_before = int(unit_ends[part]) - len(sizes), int(pair_ends[part]) - len(kept)
            pair_loops.assemble(sizes, kept, numbers, units_before, pairs_before, starts, key_numbers)
            if len(totals):
                amounts[:, pairs_before : pairs_before + len(kept)] = added

    each(assemble, range(len(collected)))
    return starts, key_numbers, amounts, present


def make_scratch(pairs: int, columns: int = 0, totals: int = 0) -> tuple[NDArray[Any], ...]:
    """Return the scratch buffers of `pair_loops.settle` for this number of pairs, columns of values, and totals."""
    u64, i32, i64 = np.uint64, np.int32, np.int64
    buffers = [np.empty(pairs + 1, kind) for kind in (u64, i32, u64, i32, u64, i32, i64, i32, u64, u64)]
    buffers += [np.empty(4 << pairs.bit_length(), i32), np.empty((64, 2), i64), np.empty(64, u64)]
    return *buffers, np.empty((columns, pairs)), np.empty((totals, pairs))


class _Collected:
    """The pairs of one thread; units and keys are integers, or get numbers.

    Args:
        units, keys: the tables that number them, or None where they are their own numbers.
        mask: the bits that DuckDB hashes of a unit that is an integer.
        salt: the salt of the choice of keys.
        room: the memory budget.
        bits: how many bits say which part a unit is in.
        totals, columns: what is added up, see `describe_totals`, and from how many columns.
    """

    def __init__(
        self, units: Numbered | None, keys: Numbered | None, mask: int, salt: int, room: Memory, bits: int,
        totals: Floats, columns: int,
    ) -> None:  # fmt: skip
        self.units, self.keys, self.mask, self.bits, self._room = units, keys, np.uint64(mask), bits, room
        self.totals, self.columns = totals, columns
        self.salt, self.salt_hash = numbering.key_of_tables(salt), np.uint64(pair_loops.hash_salt(np.uint64(salt)))
        self.chains = np.zeros((1 << bits, pair_loops.CHAIN), np.int64)
        self._store = np.zeros(pair_loops.STORE, np.int64)
        # A part has no block yet, so its first pair takes one.
        full = pair_loops.PAIRS_OF_A_BLOCK
        self.chains[:, [pair_loops.FILL, pair_loops.BEFORE]] = full, -full
        self._store[pair_loops.SIZE] = pair_loops.BYTES_OF_A_BLOCK + columns * pair_loops.BYTES_OF_A_COLUMN
        self._blocks: list[NDArray[np.uint8]] = []

    @property
    def counts(self) -> Ints:
        """The number of pairs of each part."""
        return self.chains[:, pair_loops.FILL] + self.chains[:, pair_loops.BEFORE]

    def append(self, batch: pa.RecordBatch) -> None:
        """Append rows of a unit, a key, DuckDB's hash of each of these that is a text, and numbers."""
        if any(column.null_count for column in batch.columns):
            raise Unavailable  # SQL refuses null units
        tables, more = (self.units, self.keys), iter(batch.columns[2:])
        hashes = [as_numpy(next(more)) if table is not None and table.texts else NO_WORDS for table in tables]
        units, keys = (
            as_numpy(column) if table is None else table.number(column, given)
            for column, table, given in zip(batch.columns, tables, hashes, strict=False)
        )
        values = np.array([as_numpy(column) for column in more]).reshape(self.columns, len(batch))
        done, known = 0, (self.mask, self.salt_hash, self.bits, self.chains, self._store)
        while (done := pair_loops.append(done, units, keys, hashes[0], values.view(np.uint64), *known)) < len(batch):
            self._add_blocks()

    def _add_blocks(self) -> None:
        size = _BLOCKS_AT_ONCE * int(self._store[pair_loops.SIZE])
        if not self._room.take(size):
            raise Unavailable
        self._blocks.append(np.empty(size, np.uint8))
        address = self._blocks[-1].ctypes.data
        self._store[[pair_loops.NEXT, pair_loops.END]] = address, address + size


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
