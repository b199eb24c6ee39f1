"""The buffers of the hash tables that number values; `numbering_loops` has the loops, which get them as addresses."""

import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.engines.duckdb.compiled import numbering_loops as loops
from dpsieve.types import Ints, Words
from dpsieve.values.columns import as_numpy

_FIRST_BYTES = 1 << 16
_LONGEST_COLUMN = _MOST_VALUES = 2**31 - 1
_MERGED_AT_ONCE, _MERGE_BITS = 1 << 14, 8
_GATHERED_AT_ONCE = 1 << 14
_NOTHING = np.empty(0, np.uint64)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that loops read; one of Arrow is read-only too, so that they are compiled once."""
    array.flags.writeable = False
    return array


NO_WORDS, _NO_OFFSETS = _read_only(np.empty(0, np.uint64)), _read_only(np.empty(0, np.int32))
Each = Callable[[Callable[[int], Any], Iterable[int]], list[Any]]  # calls a function with numbers, in several threads


class Unavailable(Exception):
    """What loops cannot do, or did not."""


class Memory:
    """The memory budget of the tables of all threads: half of what is allowed, as the result may take as much."""

    def __init__(self, allowed: int) -> None:
        self._lock, self._limit, self._reserved = threading.Lock(), allowed // 2, 0

    def take(self, count: int) -> bool:
        """Reserve bytes; return whether that is allowed."""
        with self._lock:
            if self._reserved + count > self._limit:
                return False
            self._reserved += count
            return True

    def give_back(self, count: int) -> None:
        with self._lock:
            self._reserved -= count


class Blocks:
    """Blocks of bytes at fixed addresses."""

    def __init__(self, room: Memory) -> None:
        self._room, self._lock = room, threading.Lock()
        self._blocks: list[NDArray[np.uint8]] = []
        self.addresses = np.zeros(loops.MOST_BLOCKS, np.uint64)

    def add(self, size: int) -> int:
        """Add a block, and return its number, from 1 on; 0 where there is no room for it."""
        with self._lock:
            number = len(self._blocks) + 1
            if number == len(self.addresses) or not self._room.take(size):
                return 0
            self._blocks.append(np.empty(size, np.uint8))
            self.addresses[number] = self._blocks[-1].ctypes.data
            return number

    def texts(self, references: Words, each: Each) -> pa.Array | None:
        """Return the texts of references; None where they are too long for a column, whose type would show that."""
        starts = np.zeros(len(references) + 1, np.int64)
        np.cumsum(references & np.uint64(loops.LONGEST), out=starts[1:])
        if starts[-1] > _LONGEST_COLUMN:
            return None
        target = np.empty(int(starts[-1]), np.uint8)

        def gather(first: int) -> None:
            stop = min(first + _GATHERED_AT_ONCE, len(references))
            loops.gather(references, self.addresses, first, stop, starts, target)

        each(gather, range(0, len(references), _GATHERED_AT_ONCE))
        offsets = pa.py_buffer(starts.astype(np.int32))
        return pa.StringArray.from_buffers(len(references), offsets, pa.py_buffer(target))


def key_of_tables(salt: int) -> Words:
    """Return eight words as the key of hashes in tables, which do not influence the choice of keys."""
    words = hashlib.blake2b(salt.to_bytes(8, "little"), digest_size=64, person=b"dpsieve one key").digest()
    return np.frombuffer(words, np.uint64)


class Numbered:
    """Values, integers or texts, numbered in the order of their first occurrence.

    Args:
        salt: eight words of `key_of_tables`.
        room: the memory budget.
        blocks: the blocks that store texts.
        mask: the bits of an integer that DuckDB hashes; 0 for texts.
        first: the initial number of entries, a power of two; three quarters of them can be used.
    """

    def __init__(self, salt: Words, room: Memory, blocks: Blocks, mask: int, first: int) -> None:
        self._salt, self._room, self._first, self._blocks = salt, room, first, blocks
        self.texts = blocks if mask == 0 else None
        self._table = np.empty((0, 2), np.uint64)
        self.words, self.hashes = np.empty(0, np.uint64), np.empty(0, np.uint64)  # from 1 on
        self.frame, self._arena = np.zeros(loops.FIELDS, np.int64), np.zeros(loops.ARENA, np.int64)
        self.frame[[loops.TEXTS, loops.IS_TEXT, loops.SALT]] = self._arena.ctypes.data, mask == 0, salt.ctypes.data
        self.frame[loops.MASK] = np.uint64(mask).view(np.int64)
        self._arena[loops.BLOCKS] = blocks.addresses.ctypes.data
        if not self._more_values():
            raise Unavailable

    def __len__(self) -> int:
        return int(self.frame[loops.FOUND])

    def number(self, column: pa.Array, hashes: Words) -> Ints:
        """Return the numbers of a column, of integers, or of texts with DuckDB's hashes of them."""
        done, numbers = 0, np.empty(len(column), np.int64)
        values, offsets, texts = NO_WORDS, _NO_OFFSETS, 0
        if self.texts is None:
            values = as_numpy(column).view(np.uint64)
        else:
            _, starts, data = column.buffers()
            offsets = np.frombuffer(starts, np.int32)[column.offset :]
            texts = 0 if data is None else data.address
        while (done := loops.number(done, values, offsets, texts, hashes, numbers, self.frame)) < len(column):
            if not (self._more_values() if len(self) + 1 == len(self.words) else self._more_bytes()):
                raise Unavailable
        return _read_only(numbers)

    def _more_bytes(self) -> bool:
        """Add a block in which the next text has room."""
        needed = int(self._arena[loops.NEEDED])
        size = max(needed, min(loops.LONGEST + 1, 2 * int(self._arena[loops.LENGTH])), _FIRST_BYTES)
        number = self._blocks.add(size) if needed <= loops.LONGEST else 0
        if number:
            self._arena[[loops.BLOCK, loops.LENGTH, loops.USED]] = number, size, 0
        return number > 0

    def _more_values(self) -> bool:
        entries = 2 * len(self._table) or self._first
        size = 3 * entries // 4
        if size > _MOST_VALUES or not self._room.take(16 * entries + 16 * size):
            return False
        self._room.give_back(self._table.nbytes + self.words.nbytes + self.hashes.nbytes)
        table = np.zeros((entries, 2), np.uint64)
        words, hashes = np.empty(size, np.uint64), np.empty(size, np.uint64)
        for new, old in ((words, self.words), (hashes, self.hashes)):
            new[: len(old)] = old
            new[0] = 0
        self.words, self.hashes = words, hashes
        loops.rehash(self._table, table)
        self._table = table
        self.frame[[loops.WORDS, loops.SIZE, loops.HASHES]] = words.ctypes.data, size, hashes.ctypes.data
        self.frame[[loops.TABLE, loops.TABLE_SIZE]] = table.ctypes.data, entries
        return True


class Values(NamedTuple):
    """The values of units, or of keys, by number, from 1 on; without words, the numbers are the values.

    Attributes:
        total: how many there are.
        words: integers, or references to texts in the blocks.
        hashes: DuckDB's hashes of them.
        blocks: None for integers.
        numbers: of each thread, the numbers by its own ones, from 0 on; empty where they are the same.
    """

    total: int
    words: Words
    hashes: Words
    blocks: Blocks | None
    numbers: list[Ints]

    def describe(self) -> tuple[Any, ...]:
        """Return what loops get: words, hashes, whether and where texts are, and the addresses of the numbers or 0."""
        addresses = [column.ctypes.data if len(column) else 0 for column in self.numbers]
        texts = _NOTHING if self.blocks is None else self.blocks.addresses
        return self.words, self.hashes, self.blocks is not None, texts, np.array(addresses, np.int64)


def merge(given: Sequence[Numbered | None], count: int, each: Each) -> Values:
    """Number the values of the tables of all threads together, in parts by their hashes.

    Without tables, `count` numbers are the values.
    """
    tables = [table for table in given if table is not None]
    used = [table for table in tables if len(table)] or tables[:1]
    if len(used) < 2:
        same = [np.empty(0, np.int64)] * len(given)
        if not used:
            return Values(count, _NOTHING, _NOTHING, None, same)
        return Values(len(used[0]), used[0].words, used[0].hashes, used[0].texts, same)
    total = sum(map(len, used))
    if total > _MOST_VALUES:
        raise Unavailable
    bits = min(_MERGE_BITS, (total // _MERGED_AT_ONCE).bit_length())
    numbers = [np.empty(len(table), np.int64) for table in tables]
    frames = np.array([table.frame.ctypes.data for table in tables])
    addresses = np.array([column.ctypes.data for column in numbers])
    counts = each(lambda part: loops.merge(frames, part, bits, addresses), range(1 << bits))
    firsts = np.cumsum([0, *counts])
    words, hashes = np.zeros((2, int(firsts[-1]) + 1), np.uint64)
    each(lambda part: loops.shift(frames, part, bits, addresses, firsts[part], words, hashes), range(1 << bits))
    return Values(len(words) - 1, words, hashes, used[0].texts, numbers)
