"""Items of streams as Arrow columns: integers of 64 bits, text or bytes, each in one form."""

from typing import Any

import pyarrow as pa
import pyarrow.types as types

from dpsieve.errors import InvalidType, InvalidValue

_PLAIN = (
    ((types.is_integer,), pa.int64()),
    ((types.is_string, types.is_large_string, types.is_string_view), pa.large_string()),
    ((types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary), pa.large_binary()),
)


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the one form of a type that items can have, or None."""
    return next((plain for fits, plain in _PLAIN if any(fit(kind) for fit in fits)), None)


def sound(array: pa.Array) -> bool:
    """Tell whether an Arrow array keeps its own rules; messages about one that does not may quote values."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def plain_items(values: Any, name: str, hint: str) -> pa.Array:
    """Return a column of int64, large_string or large_binary without nulls; `name` is the argument in messages.

    >>> plain_items(["tea", None], "items", "Pass a list.").to_pylist()
    ['tea']
    """
    if isinstance(values, str | bytes):
        raise InvalidType(f"{name} is one text. {hint}")
    array: Any = None
    try:
        array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        array = array if isinstance(array, pa.Array) else pa.array(array)
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        array = None
    if array is None:
        raise InvalidType(f"{name} cannot be read as one column. {hint}")
    if not sound(array):
        raise InvalidValue(f"{name} is a broken Arrow array, or has text that is not UTF-8. {hint}")
    if types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if types.is_null(array.type):
        return pa.array([], pa.large_string())
    plain = plain_type(array.type)
    if plain is None:
        raise InvalidType(f"{name} holds values that are no integers, text or bytes. {hint}")
    try:
        return array.cast(plain).drop_null()
    except pa.ArrowNotImplementedError:  # Arrow 16 cannot cast views
        return pa.array(array.to_pylist(), plain).drop_null()
    except pa.ArrowException:
        pass
    raise InvalidValue(f"{name} holds integers of more than 64 bits with a sign. {hint}")
