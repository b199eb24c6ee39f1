"""Any values as one Arrow column, and the pieces that other modules share."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.errors import InvalidType, not_unicode, too_large
from dpsieve.validate import listed

_T = TypeVar("_T")


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
    if hasattr(values, "__arrow_c_stream__"):  # a Polars Series, say
        array = converted(lambda: pa.chunked_array(values), name, hint)
    elif isinstance(values, pa.Array):
        array = values
    else:
        array = converted(lambda: pa.array(values, kind, from_pandas=from_pandas), name, hint)
    return without_views(one_chunk(array))


def tried(act: Callable[[], _T]) -> tuple[_T, None] | tuple[None, type[Exception]]:
    """Return the result of a step of another library; or the class of its exception, whose message may quote values."""
    try:
        return act(), None
    except Exception as error:
        return None, type(error)


def converted(convert: Callable[[], Any], name: str, hint: str) -> Any:
    """Return what another library makes of values, or raise naming the argument; `hint` is the fix."""
    made, failure = tried(convert)
    if failure is None:
        return made
    if issubclass(failure, UnicodeError):
        raise not_unicode(name)
    if issubclass(failure, OverflowError):
        raise too_large(name)
    raise InvalidType(f"{name} cannot be read as one column of one kind ({failure.__name__}). {hint}")


def one_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def as_numpy(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Return numbers, none of them null; Arrow's own way to do so would load pandas."""
    return np.from_dlpack(one_chunk(column))


def as_arrow(numbers: NDArray[Any]) -> pa.Array:
    """Return an array as a column, likewise."""
    if numbers.dtype.kind not in "iuf":
        return pa.array(numbers)
    kept = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, kept])


def cast(array: Any, kind: pa.DataType) -> Any:
    """Return a column in another type; Arrow 16 cannot cast views itself."""
    try:
        return array.cast(kind)
    except pa.ArrowNotImplementedError:
        return pa.array(array.to_pylist(), kind)


def held_type(array: pa.Array | pa.ChunkedArray) -> pa.DataType:
    """Return the type of the values, also of those in a dictionary."""
    return array.type.value_type if pa.types.is_dictionary(array.type) else array.type


def without_views(array: pa.Array) -> pa.Array:
    """Decode a dictionary, and write views of texts and bytes, which Arrow cannot sort, as plain ones."""
    kind = held_type(array)
    plain = {"string_view": pa.string(), "binary_view": pa.binary()}.get(str(kind), kind)
    return array if plain == array.type else cast(array, plain)


def in_utc(array: Any) -> Any:
    """Return times with a zone in UTC, and other columns as they are."""
    zoned = pa.types.is_timestamp(array.type) and array.type.tz is not None
    return array.cast(pa.timestamp(array.type.unit, "UTC")) if zoned else array
