"""The memory that compiled loops share, and the blocks of it that hold texts."""

import threading

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.types import Words

_FIRST_BYTES = 1 << 16
_LONGEST_COLUMN = 2**31 - 1


class Memory:
    """How many bytes the tables of all threads may hold: half of what is allowed, as the result may take as much."""

    def __init__(self, allowed: int) -> None:
        self._lock, self._limit, self._held = threading.Lock(), allowed // 2, 0

    def take(self, count: int) -> bool:
        """Hold more bytes; tell whether that is allowed."""
        with self._lock:
            if self._held + count > self._limit:
                return False
            self._held += count
            return True

    def give_back(self, count: int) -> None:
        """Hold fewer bytes."""
        with self._lock:
            self._held -= count


class Blocks:
    """Blocks of bytes, which stay where they are."""

    def __init__(self, room: Memory) -> None:
        from dpsieve.engines.duckdb.numbered_loops import MOST_BLOCKS

        self._room, self._lock = room, threading.Lock()
        self._blocks: list[NDArray[np.uint8]] = []
        self.addresses = np.zeros(MOST_BLOCKS, np.uint64)

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
        """Return the texts that words refer to; None where they are too long for one column, unless it may be large."""
        from dpsieve.engines.duckdb.numbered_loops import LONGEST, gather

        starts = np.zeros(len(references) + 1, np.int64)
        np.cumsum(references & np.uint64(LONGEST), out=starts[1:])
        if not large and starts[-1] > _LONGEST_COLUMN:  # large_string would tell of keys that are not released
            return None
        target = np.empty(int(starts[-1]), np.uint8)
        gather(references, self.addresses, starts, target)
        kind, offsets = (pa.LargeStringArray, starts) if large else (pa.StringArray, starts.astype(np.int32))
        return kind.from_buffers(len(references), pa.py_buffer(offsets), pa.py_buffer(target))


class Shelf:
    """Where one thread at a time puts texts; `frame` is what compiled loops know of it."""

    def __init__(self, blocks: Blocks) -> None:
        from dpsieve.engines.duckdb.numbered_loops import BLOCKS, SHELF

        self.blocks, self.frame = blocks, np.zeros(SHELF, np.int64)
        self.frame[BLOCKS] = blocks.addresses.ctypes.data

    def grow(self) -> bool:
        """Make room for the text that is wanted; tell whether that was possible."""
        from dpsieve.engines.duckdb.numbered_loops import BLOCK, LENGTH, LONGEST, USED, WANTED

        wanted = int(self.frame[WANTED])
        size = max(wanted, min(LONGEST + 1, 2 * int(self.frame[LENGTH])), _FIRST_BYTES)
        number = self.blocks.add(size) if wanted <= LONGEST else 0
        if number:
            self.frame[[BLOCK, LENGTH, USED]] = number, size, 0
        return number > 0
