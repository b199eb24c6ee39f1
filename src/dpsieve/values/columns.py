"""Values of people as Arrow columns. What cannot be one is refused in words that hold no value, as Arrow's own may."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.validate import listed


def column_of(
    name: str, values: Any, hint: str, kind: pa.DataType | None = None, *, from_pandas: bool | None = None
) -> pa.Array:
    """Return values as one Arrow array, with dictionaries decoded, or raise naming the argument; `hint` is the fix.

    Args:
        name: of the argument.
        values: an Arrow or NumPy array, a frame's column, or a list.
        hint: what to pass instead.
        kind: the type to make of what is not Arrow yet.
        from_pandas: whether NaN is a null, as in `pyarrow.array`.

    >>> column_of("keys", ["tea", None], "Pass a list.").to_pylist()
    ['tea', None]
    """
    if isinstance(values, Mapping):
        fix = "Pass its keys and its values apart: counts.keys(), counts.values()."
        raise InvalidType(f"{name} is one {type(values).__name__}. {fix}")
    if isinstance(values, str | bytes):
        raise InvalidType(f"{name} is one {type(values).__name__}. {hint}")
    values = listed(values)
    array: Any = None
    trouble: Exception | None = None
    try:
        if hasattr(values, "__arrow_c_stream__"):  # a Polars Series, say
            values = pa.chunked_array(values)
        is_arrow = isinstance(values, pa.Array | pa.ChunkedArray)
        array = values if is_arrow else pa.array(values, kind, from_pandas=from_pandas)
    except Exception as error:
        trouble = error
    # Raised out here, an exception does not keep the first one, with its message, as context.
    if isinstance(trouble, UnicodeError):
        raise not_unicode(name)
    if isinstance(trouble, OverflowError):
        raise too_large(name)
    if trouble is not None:
        raise InvalidType(f"{name} cannot be read as one column of one kind. {hint}")
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return _without_views(array)


def _without_views(array: pa.Array) -> pa.Array:
    """Decode a dictionary, and write views of texts and bytes, which Arrow cannot sort, as plain ones."""
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    plain = {"string_view": pa.string(), "binary_view": pa.binary()}.get(str(kind), kind)
    if plain == array.type:
        return array
    try:
        return array.cast(plain)
    except pa.ArrowNotImplementedError:
        return pa.array(array.to_pylist(), plain)


def not_unicode(name: str) -> InvalidValue:
    """Return the error for text that no encoding can carry."""
    fix = "Mend the text first, such as by text.encode(errors='replace').decode()."
    return InvalidValue(f"{name} holds text that is not Unicode, such as a lone surrogate. {fix}")


def too_large(name: str) -> InvalidValue:
    """Return the error for a whole number that Arrow cannot hold."""
    fix = "Pass such numbers as text."
    return InvalidValue(f"{name} holds a whole number that does not fit 64 bits with a sign. {fix}")
