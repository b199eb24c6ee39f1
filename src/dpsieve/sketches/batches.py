"""Batches of items for the compiled loops, validated before a sketch changes.

A batch holds items of one kind, in any of the forms that `dpsieve.values.columns` accepts. Nulls are dropped. The loops
read blocks of integers, or of addresses and lengths of bytes. No text is copied: addresses point into Arrow's buffers,
which a chunk keeps alive. Chunks are created only from arrays that Arrow has validated, so all offsets, views and
indices stay within their buffers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types
from numpy.typing import NDArray

from dpsieve.errors import InvalidValue
from dpsieve.types import Ints
from dpsieve.values.columns import PLAIN, Kind, column_of_items, is_sound, kind_of_type, not_an_item

_ACCEPTED = "Pass integers, text or bytes: an Arrow or NumPy array, a pandas or Polars Series, or a list."

BLOCK = 1 << 16

Block = tuple[Ints, ...]


class Chunk(ABC):
    """A part of a batch."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def blocks(self) -> Iterator[Block]:
        """Yield up to BLOCK items at a time, in read-only arrays, so that the compiled loops have one signature."""
        for first in range(0, len(self), BLOCK):
            block = self.block(first, min(first + BLOCK, len(self)))
            for array in block:
                array.flags.writeable = False
            yield block

    @abstractmethod
    def block(self, first: int, last: int) -> Block:
        """Return the items from `first` to `last` - 1, in new contiguous arrays."""


class Numbers(Chunk):
    """Integers that fit signed 64 bits, in a NumPy array of any integer type."""

    def block(self, first: int, last: int) -> Block:
        """Return one array of 64-bit integers."""
        return (np.ascontiguousarray(self._array[first:last], np.int64)[:],)


class Packed(Chunk):
    """Concatenated texts: string, binary and their large forms, without nulls."""

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
    """Texts as views: up to 12 bytes within the 16 of a view, longer ones in other buffers. Nulls are skipped."""

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


@dataclass(frozen=True)
class Batch:
    """Items of one kind, in order, validated. A batch without items has no kind."""

    kind: Kind | None
    chunks: tuple[Chunk, ...]

    def blocks(self) -> Iterator[Block]:
        """Yield the items in pieces for the compiled loops."""
        for chunk in self.chunks:
            yield from chunk.blocks()


def make_batch(items: Any) -> Batch:
    """Return the items as a batch; errors do not mention their values."""
    if type(items) is np.ndarray and items.ndim == 1 and items.dtype.kind in "iu":  # fast path for small batches
        return _of_numbers([items])
    array = column_of_items(items, "items", _ACCEPTED)
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    chunks = [chunk for chunk in chunks if chunk.null_count < len(chunk)]
    if not chunks:
        return Batch(None, ())
    coded = types.is_dictionary(array.type)
    item_type = array.type.value_type if coded else array.type
    kind = kind_of_type(item_type)
    if kind is None:
        raise not_an_item("items", item_type, _ACCEPTED)
    if kind == "integers":
        if coded:
            chunks = [_validated(chunk).dictionary_decode() for chunk in chunks]
        return _of_numbers([_validated(chunk).drop_null().to_numpy() for chunk in chunks])
    parts = tuple(part for part in map(_coded if coded else _texts, chunks) if len(part))
    return Batch(kind if parts else None, parts)


def _of_numbers(arrays: list[NDArray[Any]]) -> Batch:
    arrays = [array for array in arrays if len(array)]
    if any(array.dtype.kind == "u" and int(array.max()) >= 2**63 for array in arrays):
        raise InvalidValue("items holds integers that do not fit 64 bits with a sign. Pass such numbers as text.")
    return Batch("integers" if arrays else None, tuple(map(Numbers, arrays)))


def _texts(array: Any) -> Chunk:
    if array.type in (pa.string_view(), pa.binary_view()):
        return Views(_validated(array))
    # UTF-8 validation is slow, and most texts are ASCII: check offsets first, and letters only where needed.
    raw = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
    _validated(array.view(raw.get(array.type, array.type)))
    array = array.drop_null()
    if types.is_fixed_size_binary(array.type):
        array = array.cast(pa.large_binary())
    packed = Packed(array.view(raw.get(array.type, array.type)))
    if array.type in raw and not packed.is_ascii():
        _validated(array)
    return packed


def _coded(array: Any) -> Chunk:
    indices, values = _validated(array).indices.drop_null().to_numpy(), array.dictionary
    if values.null_count:
        kind = kind_of_type(values.type)
        assert kind is not None
        indices = indices[values.is_valid().to_numpy(zero_copy_only=False)[indices]]
        values = pa.array([value or b"" for value in values.to_pylist()], PLAIN[kind])
    return Coded(_texts(values), indices)


def _validated(array: Any) -> Any:
    if is_sound(array):
        return array
    raise InvalidValue("items is a broken Arrow array, or has text that is not UTF-8. Fix it, or cast it to binary.")
