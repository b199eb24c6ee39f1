"""Batches as the compiled loops read them: blocks of integers, or of addresses and lengths of bytes.

No text is copied: addresses point into Arrow's buffers, which a chunk keeps alive. Only arrays that Arrow has validated
come in here, so all offsets, views and indices stay within their buffers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

BLOCK = 1 << 16

Block = tuple[NDArray[np.int64], ...]


class Chunk(ABC):
    """A part of a batch."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def blocks(self) -> Iterator[Block]:
        """Yield up to BLOCK items at a time, in read-only arrays, so that the compiled loops meet one type."""
        for first in range(0, len(self), BLOCK):
            block = self.block(first, min(first + BLOCK, len(self)))
            for array in block:
                array.flags.writeable = False
            yield block

    @abstractmethod
    def block(self, first: int, last: int) -> Block:
        """Return the items from `first` to `last` - 1, in contiguous arrays that nobody else holds."""


class Numbers(Chunk):
    """Integers that fit 64 bits with a sign, in a NumPy array of any integer type."""

    def block(self, first: int, last: int) -> Block:
        """Return one array of 64-bit integers."""
        return (np.ascontiguousarray(self._array[first:last], np.int64)[:],)


class Packed(Chunk):
    """Texts that lie one after another: string, binary and their large forms, without nulls."""

    def __init__(self, array: Any) -> None:
        super().__init__(array)
        _, offsets, data = array.buffers()
        wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
        end = array.offset + len(array) + 1
        self._offsets = np.frombuffer(offsets, np.int64 if wide else np.int32, end)[array.offset :]
        self._data = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)

    def is_ascii(self) -> bool:
        """Return whether all texts are plain ASCII, which is valid UTF-8."""
        return bool(self._data[self._offsets[0] : self._offsets[-1]].max(initial=0) < 128)

    def block(self, first: int, last: int) -> Block:
        """Return addresses and lengths."""
        offsets = self._offsets[first : last + 1].astype(np.int64)
        return offsets[:-1] + self._data.ctypes.data, np.diff(offsets)


class Views(Chunk):
    """Texts as views: up to 12 bytes within the 16 of a view, longer ones in other buffers. Nulls are left out."""

    def __init__(self, array: Any) -> None:
        super().__init__(array)
        _, views, *others = array.buffers()
        end = array.offset + len(array)
        self._views = np.frombuffer(views, np.int32, 4 * end).reshape(-1, 4)[array.offset :]
        self._others = np.array([0, *(other.address for other in others)], np.int64)
        self._valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None

    def block(self, first: int, last: int) -> Block:
        """Return addresses and lengths of the texts that are not null."""
        rows = np.arange(first, last)
        if self._valid is not None:
            rows = rows[self._valid[first:last]]
        lengths, _, other, offset = self._views[rows].T.astype(np.int64, order="C")
        outside = lengths > 12
        inside = self._views.ctypes.data + 16 * rows + 4
        return np.where(outside, self._others[np.where(outside, other + 1, 0)] + offset, inside), lengths.copy()


class Coded(Chunk):
    """Texts as numbers into a dictionary; neither has nulls."""

    def __init__(self, dictionary: Chunk, indices: NDArray[Any]) -> None:
        super().__init__(indices)
        self._dictionary = dictionary
        self._spans = dictionary.block(0, len(dictionary))

    def block(self, first: int, last: int) -> Block:
        """Return addresses and lengths, looked up."""
        return tuple(span[self._array[first:last]] for span in self._spans)
