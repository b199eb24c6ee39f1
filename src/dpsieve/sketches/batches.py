"""Items as batches for the compiled loops, checked before a sketch is touched.

A batch holds items of one kind, in any of the forms that `dpsieve.values.items` accepts. Nulls are dropped.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types
from numpy.typing import NDArray

from dpsieve.errors import InvalidValue
from dpsieve.sketches.spans import Block, Chunk, Coded, Numbers, Packed, Views
from dpsieve.values.items import PLAIN, Kind, column_of_items, kind_of_type, not_an_item, sound

_ACCEPTED = "Pass integers, text or bytes: an Arrow or NumPy array, a pandas or Polars Series, or a list."


@dataclass(frozen=True)
class Batch:
    """Items of one kind, in order, validated. A batch without items has no kind."""

    kind: Kind | None
    chunks: tuple[Chunk, ...]

    def blocks(self) -> Iterator[Block]:
        """Yield the items in pieces for the compiled loops."""
        for chunk in self.chunks:
            yield from chunk.blocks()


def batch_of(items: Any) -> Batch:
    """Return the items as a batch, or raise without a word about their values."""
    if type(items) is np.ndarray and items.ndim == 1 and items.dtype.kind in "iu":  # the short way for small batches
        return _of_numbers([items])
    array = column_of_items(items, "items", _ACCEPTED)
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    chunks = [chunk for chunk in chunks if chunk.null_count < len(chunk)]
    if not chunks:
        return Batch(None, ())
    coded = types.is_dictionary(array.type)
    held = array.type.value_type if coded else array.type
    kind = kind_of_type(held)
    if kind is None:
        raise not_an_item("items", held, _ACCEPTED)
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
    # Checking all letters takes long, and most texts are ASCII: so offsets first, and letters where needed.
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
    if sound(array):
        return array
    raise InvalidValue("items is a broken Arrow array, or has text that is not UTF-8. Mend it, or cast it to binary.")
