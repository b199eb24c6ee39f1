"""The buffers of the hash tables that number values; `numbering_loops` has the loops, which get them as addresses."""

import hashlib
import threading

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.engines.duckdb.compiled import numbering_loops as loops
from dpsieve.engines.duckdb.compiled.database import Unavailable
from dpsieve.types import Words

Int32s = NDArray[np.int32]

_FIRST_BYTES = 1 << 16
_LONGEST_COLUMN = _MOST_VALUES = 2**31 - 1


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

    def texts(self, references: Words, large: bool = True) -> pa.Array | None:
        """Return the texts of references; None if they are too long for a column that may not be `large`."""
        starts = np.zeros(len(references) + 1, np.int64)
        np.cumsum(references & np.uint64(loops.LONGEST), out=starts[1:])
        if not large and starts[-1] > _LONGEST_COLUMN:  # large_string would reveal keys that are not released
            return None
        target = np.empty(int(starts[-1]), np.uint8)
        loops.gather(references, self.addresses, starts, target)
        kind, offsets = (pa.LargeStringArray, starts) if large else (pa.StringArray, starts.astype(np.int32))
        return kind.from_buffers(len(references), pa.py_buffer(offsets), pa.py_buffer(target))


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
        texts: whether values are texts.
        first: the initial number of entries, a power of two; three quarters of them can be used.
    """

    def __init__(self, salt: Words, room: Memory, blocks: Blocks, texts: bool, first: int) -> None:
        self._salt, self._room, self._blocks, self._is_text, self._first = salt, room, blocks, texts, first
        self._table, self.words = np.empty((0, 2), np.uint64), np.empty(0, np.uint64)  # words from 1 on
        self.frame, self._arena = np.zeros(loops.FIELDS, np.int64), np.zeros(loops.ARENA, np.int64)
        self.frame[[loops.TEXTS, loops.IS_TEXT, loops.SALT]] = self._arena.ctypes.data, texts, salt.ctypes.data
        self._arena[loops.BLOCKS] = blocks.addresses.ctypes.data
        if not self._more_values():
            raise Unavailable

    def __len__(self) -> int:
        return int(self.frame[loops.FOUND])

    def numbers_of(self, words: Words) -> Int32s:
        """Return the numbers of words of another table of the same kind; new values get a number."""
        numbers, done, scratch = np.empty(len(words), np.int32), 0, np.empty(loops.SCRATCH, np.int64)
        while done < len(words):
            done = loops.number(done, len(words), words.ctypes.data, True, numbers, self.frame, scratch)
            if done < len(words) and not self._more_values():
                raise Unavailable
        return numbers

    def values(self, words: Words | None = None, large: bool = True) -> pa.Array | None:
        """Return all values by number, or those of some words; None as in `Blocks.texts`."""
        words = self.words[1 : len(self) + 1] if words is None else words
        return self._blocks.texts(words, large) if self._is_text else pa.array(words.view(np.int64))

    @property
    def named(self) -> tuple[Words, bool, Words]:
        """The words of values by number, from 1 on; whether they are texts; and the addresses of the blocks."""
        return self.words, self._is_text, self._blocks.addresses

    def grow(self) -> bool:
        """Make room for another value; return whether that was possible."""
        return self._more_values() if len(self) + 1 == len(self.words) else self._more_bytes()

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
        if size > _MOST_VALUES or not self._room.take(16 * entries + 8 * size):
            return False
        self._room.give_back(self._table.nbytes + self.words.nbytes)
        words, table = np.empty(size, np.uint64), np.zeros((entries, 2), np.uint64)
        words[: len(self.words)] = self.words
        words[0] = 0
        self.words = words
        loops.rehash(self._table, table)
        self._table = table
        self.frame[[loops.WORDS, loops.SIZE]] = words.ctypes.data, size
        self.frame[[loops.TABLE, loops.TABLE_SIZE]] = table.ctypes.data, entries
        return True
