"""One key for each unit, kept by compiled loops inside of DuckDB's threads: for large tables.

The result is that of the one SQL text in `sql.bounded_query`, for every salt: DuckDB reads, filters and converts the
same rows and computes the same hashes, and each unit keeps the key with the smallest. So nobody can tell from a release
which way was taken, and that may depend on the data. It is faster since a row costs one look at a table, into memory
that was requested ahead, and a cell of it is small: most rows end there.

The units are divided into parts, one for each thread or for two, and every thread meets units of all parts (see
`one_key_loops`). What is held grows with the units and the keys, not with the rows. Where it would take more than it
may, or anything else is not as expected, this gives up, and the SQL text, which spills to disk and explains its errors,
takes its place.
"""

import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from dpsieve.engines.duckdb.compiled.database import Loops, Unavailable, check
from dpsieve.engines.duckdb.compiled.numbering import (
    Blocks,
    Memory,
    Numbered,
    Shelf,
    key_of_tables,
    kind_of_value,
    one_value,
    read_as,
    written_as,
)
from dpsieve.engines.duckdb.scan import Scan
from dpsieve.engines.engine import Aggregation
from dpsieve.engines.sql.bounded_query import choice, rows_query, unit_names
from dpsieve.types import Ints, Words

_FIRST_CELLS, _FIRST_KEYS = 1 << 21, 1 << 20  # those of all parts
_MOST_PARTS, _MANY_ROWS = 64, 50_000_000  # from which on each thread gets a part: large tables take long to grow
_LOAD, _ROUNDS = 0.6, 50  # how full a table shall be; how often what is estimated is halved
UNEXPECTED = (Unavailable, pa.ArrowException, MemoryError, RuntimeError)  # the last where no thread can be started


def run_compiled(loops: Loops, scan: Scan, task: Aggregation) -> pa.Table | None:
    """Return keys and numbers as the SQL text does; None when it gives up, at the latest with all memory held."""
    value, kind = one_value(scan.columns, task.columns) or "", kind_of_value(scan.columns, task.columns)
    key = scan.columns[task.columns.key[0]]
    read = read_as(key) or ""
    rows = rows_query(scan.text, scan.columns, task)[0]
    order = choice(task.salt, [*unit_names(task.columns), "k0"])
    arguments = {value: kind, f"CAST(k0 AS {read})": read, order: "UBIGINT"}
    try:
        from dpsieve.engines.duckdb.compiled.one_key_loops import visit

        sharing = 1 if (scan.rows or 0) >= _MANY_ROWS else 2
        parts = min(-(-loops.threads // sharing), _MOST_PARTS)
        common = _Common(task.salt, loops.memory, parts, scan.rows, kind == "VARCHAR", read == "VARCHAR")
        made = [_Part(common) for _ in range(parts)]
        loops.database.visit(rows, arguments, visit.address, made)
        return _counted(made, written_as(key), task.weights[0], loops.threads)
    except UNEXPECTED:
        return None


def _counted(parts: list["_Part"], written: pa.DataType, weight: int, threads: int) -> pa.Table | None:
    """Return keys, written as this type, and numbers of all parts."""
    with ThreadPoolExecutor(threads) as pool:
        made = list(pool.map(_Part.counted, parts))
        units = sum(int(counts.sum()) for _, counts in made)
        while len(made) > 1:
            made = list(itertools.starmap(_merged, itertools.zip_longest(made[::2], made[1::2])))
    keys, counts = made[0]
    check(int(counts.sum()) == units, "the counts of all parts are not those of their units")
    if int(counts.max(initial=0)) * weight >= 2**63:  # more rows than the file claims to have
        return None
    present = np.flatnonzero(counts)
    names = keys.values(keys.words[present + 1], large=False)
    return None if names is None else pa.table({"k0": names.cast(written), "n": counts[present] * weight})


_Counts = tuple[Numbered, Ints]


def _merged(one: _Counts, other: _Counts | None) -> _Counts:
    """Return the keys of both under the numbers of the first, and their counts."""
    if other is None:
        return one
    (keys, counts), (more, their_counts) = one, other
    present = np.flatnonzero(their_counts)
    numbers = keys.numbers_of(more.words[present + 1])
    total = np.zeros(len(keys), np.int64)
    total[: len(counts)] = counts
    total[numbers] += their_counts[present]  # each number occurs once
    return keys, total


class _Common:
    """What all parts have in common.

    Attributes:
        parts: how many parts there are.
        rows: how many rows there will be at most, or None.
        frames: those of all parts.
    """

    def __init__(self, salt: int, memory: int, parts: int, rows: int | None, text_units: bool, text_keys: bool) -> None:
        self.salt, self.room, self.parts, self.rows = key_of_tables(salt), Memory(memory), parts, rows
        self.text_units, self.text_keys, self.blocks = text_units, text_keys, Blocks(self.room)
        self.frames: list[Ints] = []
        self.addresses = np.zeros(parts, np.int64)

    def cells(self, held: int) -> int:
        """Return how many cells the next table of a part should have: from twice to sixteen times those that are held.

        Were there U units, and each row as likely of one as of another, n rows would be of U (1 - e^(-n / U)) units.
        From what was seen this tells U, and where all rows will find room.
        """
        from dpsieve.engines.duckdb.compiled.one_key_loops import SEEN, UNITS

        seen = sum(int(frame[SEEN]) for frame in self.frames)
        units = max(1, sum(int(frame[UNITS]) for frame in self.frames))
        low, high = float(units), float(max(units, self.rows or 0))
        for _ in range(_ROUNDS):
            middle = (low + high) / 2
            low, high = (middle, high) if middle * -math.expm1(-seen / middle) < units else (low, middle)
        wanted = int(high / _LOAD / self.parts)
        return max(2 * held, min(16 * held, wanted)) // 4 * 4


class _Part:
    """The key of each unit of one part, and the keys by number."""

    def __init__(self, common: _Common) -> None:
        from dpsieve.engines.duckdb.compiled.one_key_loops import (
            FIELDS,
            FRAMES,
            IS_TEXT,
            KEYS,
            LARGER,
            PARTS,
            SALT,
            TABLE,
            TEXTS,
        )

        self._common, self._texts = common, Shelf(common.blocks)
        first_keys = max(16, 1 << (_FIRST_KEYS // common.parts).bit_length() - 1)  # a power of two
        self._keys = Numbered(common.salt, common.room, common.blocks, common.text_keys, first_keys)
        self._tables: list[Words] = []
        self.frame = np.zeros(FIELDS, np.int64)
        self.frame[[PARTS, IS_TEXT]] = common.parts, common.text_units
        for field, used in (
            (FRAMES, common.addresses), (SALT, common.salt), (TEXTS, self._texts.frame), (KEYS, self._keys.frame),
        ):  # fmt: skip
            self.frame[field] = used.ctypes.data
        self._number = len(common.frames)
        common.addresses[self._number] = self.frame.ctypes.data
        common.frames.append(self.frame)
        if not self._add_table(max(4, _FIRST_CELLS // common.parts // 4 * 4)):
            raise Unavailable
        self.frame[TABLE] = self.frame[LARGER]

    def grow(self) -> bool:
        """Make room for what wants some; tell whether that was possible."""
        from dpsieve.engines.duckdb.compiled.one_key_loops import KEYS, WANTS

        wants = self.frame[WANTS]
        if wants:
            return self._keys.grow() if wants == self.frame[KEYS] else self._texts.grow()
        cells = int(self._tables[-1][0])
        return self._add_table(self._common.cells(cells)) or self._add_table(2 * cells)

    def counted(self) -> _Counts:
        """Return the keys with how many units keep them; forget the units."""
        from dpsieve.engines.duckdb.compiled.one_key_loops import UNITS, tally

        counts = np.zeros(len(self._keys), np.int64)
        units = tally(self.frame, self._number, counts)
        check(units == self.frame[UNITS] == counts.sum(), "a unit was counted more than once")
        self._common.room.give_back(sum(table.nbytes for table in self._tables))
        self._tables.clear()
        return self._keys, counts

    def _add_table(self, cells: int) -> bool:
        """Add a larger table with the same units; tell whether that was possible."""
        from dpsieve.engines.duckdb.compiled.one_key_loops import LARGER, LINE, rehash, width_of

        size = LINE + width_of(self._common.text_units) * cells
        if not self._common.room.take(size):
            return False
        table = _zeros(size)
        table[0] = cells
        if self._tables:
            given = self._common.salt, self._common.parts, self._common.text_units
            rehash(self._tables[-1].ctypes.data, table.ctypes.data, *given)
        self._tables.append(table)  # a thread may still look at the others
        self.frame[LARGER] = table.ctypes.data
        return True


def _zeros(size: int) -> Words:
    """Return bytes as words, from the start of a line of cache on; they take memory only where they are touched."""
    words = np.zeros(size // 8 + 8, np.uint64)
    return words[-words.ctypes.data % 64 // 8 :][: size // 8]
