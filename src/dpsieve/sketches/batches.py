"""What users count, told apart and checked before a sketch is touched.

A batch holds items of one kind: integers of 64 bits, text or bytes. Nulls are dropped. Accepted are

- Arrow arrays and chunked arrays: integers of any width, string, binary, their large and view forms, binary of a fixed
  size, and dictionaries of these; and what offers itself as one of them, such as a pandas or Polars Series;
- NumPy arrays of integers, of text or of bytes;
- lists and other iterables of int, str or bytes, with None for a null. They are read to their end first.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as types
from numpy.typing import NDArray

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.sketches.spans import Block, Chunk, Coded, Numbers, Packed, Views

Kind = Literal["integers", "text", "bytes"]

_ACCEPTED = "Pass integers, text or bytes: an Arrow or NumPy array, a pandas or Polars Series, or a list."
_LARGE = {"integers": pa.int64(), "text": pa.large_string(), "bytes": pa.large_binary()}

_T = TypeVar("_T")


@dataclass(frozen=True)
class Batch:
    """Items of one kind, in order, of which nothing can fail any more. A batch without items has no kind."""

    kind: Kind | None
    chunks: tuple[Chunk, ...]

    def blocks(self) -> Iterator[Block]:
        """Yield the items in pieces for the compiled loops."""
        for chunk in self.chunks:
            yield from chunk.blocks()


def batch_of(items: Any) -> Batch:
    """Return the items as a batch, or raise without a word about their values."""
    if isinstance(items, str | bytes | bytearray | memoryview):
        raise InvalidType(f"items is one {type(items).__name__}. Wrap it in a list: [item].")
    if isinstance(items, Mapping):
        raise InvalidType("items is a mapping. Pass the items themselves, each as often as it occurs.")
    if isinstance(items, np.ndarray):
        return _of_numpy(items)
    if isinstance(items, pa.Array | pa.ChunkedArray):
        return _of_arrow(items)
    if hasattr(items, "__arrow_c_stream__"):
        return _of_arrow(_converted(lambda: pa.chunked_array(items)))
    if hasattr(items, "__arrow_c_array__") or hasattr(items, "__arrow_array__") or _from_pandas(items):
        return _of_arrow(_converted(lambda: pa.array(items, from_pandas=True)))
    try:
        values = list(items)
    except TypeError:
        raise InvalidType(f"items must be a batch of items, not {type(items).__name__}. {_ACCEPTED}") from None
    return _of_list(values)


def _of_list(values: list[Any]) -> Batch:
    kinds = {_kind_of_class(cls) for cls in set(map(type, values))} - {None}
    if len(kinds) > 1:
        raise InvalidType(f"items mixes {' and '.join(sorted(map(str, kinds)))}. Pass one kind of item.")
    if not kinds:
        return Batch(None, ())
    kind = str(kinds.pop())
    return _of_arrow(_converted(lambda: pa.array(values, _LARGE[kind])))


def _kind_of_class(cls: type) -> Kind | None:
    if cls is type(None):
        return None
    if issubclass(cls, int | np.integer) and cls is not bool:
        return "integers"
    if issubclass(cls, str):
        return "text"
    if issubclass(cls, bytes):
        return "bytes"
    raise InvalidType(f"items holds values of the type {cls.__name__}. {_ACCEPTED}")


def _of_numpy(array: NDArray[Any]) -> Batch:
    if array.ndim != 1:
        raise InvalidType(f"items must be a flat array, not one of {array.ndim} dimensions. {_ACCEPTED}")
    if isinstance(array, np.ma.MaskedArray):
        array = array.compressed()
    if array.dtype.kind in "iu":
        return _of_numbers([array])
    if len(array) and array.dtype.kind not in "OSTU":  # dates, say, would turn into integers
        raise InvalidType(f"items holds values of the type {array.dtype}. {_ACCEPTED}")
    return _of_list(array.tolist())


def _of_arrow(array: Any) -> Batch:
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    chunks = [chunk for chunk in chunks if chunk.null_count < len(chunk)]
    if not chunks:
        return Batch(None, ())
    coded = types.is_dictionary(array.type)
    kind = _kind_of_type(array.type.value_type if coded else array.type)
    if kind == "integers":
        if coded:
            chunks = [_validated(chunk).dictionary_decode() for chunk in chunks]
        return _of_numbers([_validated(chunk).drop_null().to_numpy() for chunk in chunks])
    parts = tuple(part for part in map(_coded if coded else _texts, chunks) if len(part))
    return Batch(kind if parts else None, parts)


def _of_numbers(arrays: list[NDArray[Any]]) -> Batch:
    arrays = [array for array in arrays if len(array)]
    if any(array.dtype.kind == "u" and int(array.max()) >= 2**63 for array in arrays):
        raise InvalidValue(_TOO_WIDE)
    return Batch("integers" if arrays else None, tuple(map(Numbers, arrays)))


def _kind_of_type(kind: Any) -> Kind:
    if types.is_integer(kind):
        return "integers"
    if types.is_string(kind) or types.is_large_string(kind) or kind == pa.string_view():
        return "text"
    if types.is_binary(kind) or types.is_large_binary(kind) or kind == pa.binary_view():
        return "bytes"
    if types.is_fixed_size_binary(kind):
        return "bytes"
    raise InvalidType(f"items holds values of the type {'nested' if types.is_nested(kind) else kind}. {_ACCEPTED}")


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
        kind = _kind_of_type(values.type)
        indices = indices[values.is_valid().to_numpy(zero_copy_only=False)[indices]]
        values = pa.array([value or b"" for value in values.to_pylist()], _LARGE[kind])
    return Coded(_texts(values), indices)


def _validated(array: Any) -> Any:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:  # its message may quote values
        pass
    else:
        return array
    raise InvalidValue("items is a broken Arrow array, or has text that is not UTF-8. Mend it, or cast it to binary.")


def _from_pandas(items: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(items, pandas.Series | pandas.Index)


_TOO_WIDE = "items holds integers that do not fit 64 bits with a sign. Pass such numbers as text."
_NOT_TEXT = "items holds text with lone surrogates, which is not valid Unicode. Mend it, or pass it as bytes."


def _converted(convert: Callable[[], _T]) -> _T:
    """Run a step of another library, whose messages may quote values."""
    try:
        return convert()
    except Exception as error:
        kind = type(error)
    if issubclass(kind, OverflowError):
        raise InvalidValue(_TOO_WIDE)
    if issubclass(kind, UnicodeError):
        raise InvalidValue(_NOT_TEXT)
    raise InvalidType(f"items cannot be read ({kind.__name__}). {_ACCEPTED}")
