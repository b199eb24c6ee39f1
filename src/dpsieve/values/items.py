"""Items of streams as Arrow columns: integers of 64 bits, text or bytes, one kind in a column.

Accepted are

- Arrow arrays and chunked arrays: integers of any width, string, binary, their large and view forms, binary of a fixed
  size, and dictionaries of these; and what offers itself as one of them, such as a pandas or Polars Series;
- NumPy arrays of integers, of text or of bytes;
- lists and other iterables of int, str or bytes, with None for a null. They are read to their end first.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.types as types
from numpy.typing import NDArray

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.values.columns import cast, converted, held_type, is_sound, one_chunk

Kind = Literal["integers", "text", "bytes"]

PLAIN: dict[Kind, pa.DataType] = {"integers": pa.int64(), "text": pa.large_string(), "bytes": pa.large_binary()}
_FITS: dict[Kind, tuple[Callable[[pa.DataType], bool], ...]] = {
    "integers": (types.is_integer,),
    "text": (types.is_string, types.is_large_string, types.is_string_view),
    "bytes": (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary),
}


def kind_of_type(kind: pa.DataType) -> Kind | None:
    """Return what values of a type are as items, or None where they are none."""
    return next((name for name, fits in _FITS.items() if any(fit(kind) for fit in fits)), None)


def column_of_items(values: Any, name: str, hint: str) -> pa.Array | pa.ChunkedArray:
    """Return values as Arrow holds them, nulls included; `name` is the argument in messages.

    Lists must be of one kind of item. Arrow arrays are returned as they are, whatever their type.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, str | bytes | bytearray | memoryview):
        raise InvalidType(f"{name} is one {type(values).__name__}. Wrap it in a list: [item].")
    if isinstance(values, Mapping):
        raise InvalidType(f"{name} is a mapping. Pass the items themselves, each as often as it occurs.")
    if isinstance(values, np.ndarray):
        return _of_numpy(values, name, hint)
    pandas = _from_pandas(values)
    if pandas:  # of text and bytes in one column, Arrow would silently make bytes
        held = getattr(values.dtype, "categories", values)
        if held.dtype == object:
            _kind_of_list(held.dropna().tolist(), name, hint)
    elif hasattr(values, "__arrow_c_stream__"):
        return converted(lambda: pa.chunked_array(values), name, hint)
    if pandas or hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_array__"):
        return converted(lambda: pa.array(values, from_pandas=True), name, hint)
    try:
        listed = list(values)
    except TypeError:
        listed = None
    if listed is None:
        raise InvalidType(f"{name} must be a batch of items, not {type(values).__name__}. {hint}")
    return _of_list(listed, name, hint)


def plain_items(values: Any, name: str, hint: str) -> pa.Array:
    """Return a column of int64, large_string or large_binary without nulls; `name` is the argument in messages.

    >>> plain_items(["tea", None], "items", "Pass a list.").to_pylist()
    ['tea']
    """
    array = column_of_items(values, name, hint)
    if not is_sound(array):
        raise InvalidValue(f"{name} is a broken Arrow array, or has text that is not UTF-8. {hint}")
    held = held_type(array)
    if types.is_null(held):
        return pa.array([], pa.large_string())
    kind = kind_of_type(held)
    if kind is None:
        raise not_an_item(name, held, hint)
    return converted(lambda: _plain(array, held, PLAIN[kind]), name, hint).drop_null()


def one_item(item: Any, kind: Kind | None) -> pa.Array:
    """Return a column of this one item, which must be of the kind that is counted, if any is yet."""
    column = plain_items([item], "item", "Pass an integer, text or bytes.")
    if not len(column):
        raise InvalidType("item must be text, bytes or an integer, not None.")
    check_kind("item", kind_of_type(column.type), kind)
    return column


def check_kind(name: str, kind: Kind | None, counted: Kind | None) -> None:
    """Refuse items of another kind than those counted before."""
    if counted not in (None, kind):
        raise InvalidType(f"{name} holds {kind}, where {counted} was counted before. Count each kind on its own.")


def not_an_item(name: str, kind: pa.DataType, hint: str) -> InvalidType:
    """Return the error for values that cannot be items; the fields of a nested type are not named."""
    return InvalidType(f"{name} holds values of the type {'nested' if types.is_nested(kind) else kind}. {hint}")


def _plain(array: Any, held: pa.DataType, plain: pa.DataType) -> pa.Array:
    try:
        return one_chunk(cast(cast(array, held), plain))
    except pa.ArrowInvalid as error:
        raise OverflowError from error


def _of_list(values: list[Any], name: str, hint: str) -> pa.Array:
    kind = _kind_of_list(values, name, hint)
    return pa.nulls(len(values)) if kind is None else converted(lambda: pa.array(values, PLAIN[kind]), name, hint)


def _kind_of_list(values: list[Any], name: str, hint: str) -> Kind | None:
    kinds = {_kind_of_class(cls, name, hint) for cls in set(map(type, values)) - {type(None)}}
    if len(kinds) > 1:
        raise InvalidType(f"{name} mixes {' and '.join(sorted(kinds))}. Pass one kind of item.")
    return kinds.pop() if kinds else None


def _kind_of_class(cls: type, name: str, hint: str) -> Kind:
    if issubclass(cls, int | np.integer) and cls is not bool:
        return "integers"
    if issubclass(cls, str):
        return "text"
    if issubclass(cls, bytes):
        return "bytes"
    raise InvalidType(f"{name} holds values of the type {cls.__name__}. {hint}")


def _of_numpy(array: NDArray[Any], name: str, hint: str) -> pa.Array:
    if array.ndim != 1:
        raise InvalidType(f"{name} must be a flat array, not one of {array.ndim} dimensions. {hint}")
    if isinstance(array, np.ma.MaskedArray):
        array = array.compressed()
    if array.dtype.kind in "iu":
        return pa.array(array.astype(array.dtype.newbyteorder("="), copy=False))
    if len(array) and array.dtype.kind not in "OSTU":  # dates, say, would turn into integers
        raise InvalidType(f"{name} holds values of the type {array.dtype}. {hint}")
    return _of_list(array.tolist(), name, hint)


def _from_pandas(values: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(values, pandas.Series | pandas.Index)
