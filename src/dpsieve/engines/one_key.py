"""One key for each unit, kept by compiled loops while DuckDB reads the rows: for large tables on few cores.

The result is that of the one SQL text (see `engines.sql`) under another hash: DuckDB reads, filters and converts the
same rows, and each unit keeps the key whose hash with the salt and the unit is smallest. DuckDB's own aggregate copies
a text whenever a smaller hash is found; here each row costs one look at a table.

What is held grows with the units, not with the rows. Where it would take more than a quarter of the memory that DuckDB
may use, this gives up, and the SQL text, which spills to disk, takes its place.
"""

import contextlib
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.engines.base import Bounds
from dpsieve.engines.columns import AS_TEXT, Column
from dpsieve.engines.sql import rows_text

_NUMBERS = frozenset("TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER".split())
_TEXTS = frozenset({"VARCHAR", "UUID"})
_FIRST_CELLS, _FIRST_BYTES = 1 << 20, 1 << 25
_BATCH = 1 << 17


def suits(columns: Mapping[str, Column], bounds: Bounds) -> bool:
    """Tell whether these columns and bounds can be counted here."""
    if bounds.unit is None or bounds.max_keys > 1 or bounds.max_rows > 1 or len(bounds.key) > 1:
        return False
    unit, key = columns[bounds.unit], columns[bounds.key[0]]
    return unit.kind in _NUMBERS | _TEXTS and key.kind in AS_TEXT and not (unit.collated or key.collated)


def run_compiled(connection: Any, scan: str, columns: Mapping[str, Column], bounds: Bounds, memory: int) -> Any:
    """Return keys and frequencies as the SQL text does; None when it would take more than so many bytes of memory.

    As there, a row with a null key stands for units that are null.
    """
    kind = "BIGINT" if columns[bounds.unit or ""].kind in _NUMBERS else "VARCHAR"
    text = f"SELECT CAST(u AS {kind}) AS u, k0 FROM ({rows_text(scan, columns, bounds)})"
    connection.execute("SET arrow_large_buffer_size = true")  # no batch of texts is too long
    kept = _Kept(bounds.salt, memory)
    with contextlib.closing(connection.sql(text).to_arrow_reader(_BATCH)) as batches:
        for batch in batches:
            if batch.column(0).null_count:
                return pa.table({"k0": pa.nulls(1, pa.string()), "n": np.ones(1, np.int64)})
            if not kept.add(batch):
                break
        else:
            return kept.counted()
    connection.execute("RESET arrow_large_buffer_size")
    return None


class _Kept:
    """The key of each unit so far."""

    def __init__(self, salt: int, memory: int) -> None:
        words = hashlib.blake2b(salt.to_bytes(8, "little"), digest_size=64, person=b"dpsieve one key").digest()
        self._salt = np.frombuffer(words, np.uint64)
        self._memory = memory
        self._cells = np.zeros((_FIRST_CELLS, 4), np.uint64)
        self._arena = np.empty(_FIRST_BYTES, np.uint8)
        self._state = np.zeros(2, np.int64)  # units, bytes

    def add(self, batch: pa.RecordBatch) -> bool:
        """Take the rows of a batch; tell whether there was room for them."""
        from dpsieve.engines.compiled.one_key import LENGTH_BITS, add

        (units, unit_starts), (keys, key_starts) = map(_buffers, batch.columns)
        longest = max(int(np.diff(starts).max(initial=0)) for starts in (unit_starts, key_starts))
        if longest >= 1 << LENGTH_BITS:
            return False
        done = 0
        while True:
            done = add(
                done,
                len(batch),
                units,
                unit_starts,
                keys,
                key_starts,
                self._cells,
                self._arena,
                self._state,
                self._salt,
            )
            if done == len(batch):
                return True
            if not self._grow(2 * longest):
                return False

    def counted(self) -> pa.Table:
        """Return each key with the number of units that keep it."""
        from dpsieve.engines.compiled.one_key import LENGTH_BITS, gather, tally

        units = int(self._state[0])
        table = np.zeros(1 << (2 * units).bit_length(), np.uint64)
        refs, counts = np.zeros(units + 1, np.uint64), np.zeros(units + 1, np.int64)
        found = tally(self._cells, self._arena, table, refs, counts, self._salt)
        refs, counts = refs[1 : found + 1], counts[1 : found + 1]
        starts = np.zeros(found + 1, np.int64)
        np.cumsum(refs & np.uint64((1 << LENGTH_BITS) - 1), out=starts[1:])
        target = np.empty(int(starts[-1]), np.uint8)
        gather(refs, self._arena, starts, target)
        buffers = [None, pa.py_buffer(starts), pa.py_buffer(target)]
        keys = pa.LargeStringArray.from_buffers(found, *buffers[1:])
        return pa.table({"k0": keys if starts[-1] >= 1 << 31 else keys.cast(pa.string()), "n": counts})

    def _grow(self, more: int) -> bool:
        """Make room for a group of units, or for more bytes; tell whether memory allows it."""
        from dpsieve.engines.compiled.one_key import GROUP, compact, in_use, rehash

        if 4 * (self._state[0] + GROUP) > 3 * len(self._cells):
            if 3 * self._cells.nbytes + self._arena.nbytes > self._memory:
                return False
            larger = np.zeros((2 * len(self._cells), 4), np.uint64)
            rehash(self._cells, larger, self._salt)
            self._cells = larger
            return True
        size = max(len(self._arena), 2 * in_use(self._cells) + more)
        if self._cells.nbytes + self._arena.nbytes + size > self._memory:
            return False
        other = np.empty(size, np.uint8)
        compact(self._cells, self._arena, other, self._state)
        self._arena = other
        return True


def _buffers(column: pa.Array) -> tuple[int, NDArray[np.int64]]:
    """Return where the values start, and for texts where each of them starts, and the last one ends, from there."""
    if column.type == pa.int64():
        return column.buffers()[1].address + 8 * column.offset, np.empty(0, np.int64)
    _, starts, text = column.buffers()
    places = np.frombuffer(starts, np.int64)[column.offset : column.offset + len(column) + 1]
    return 0 if text is None else text.address, places
