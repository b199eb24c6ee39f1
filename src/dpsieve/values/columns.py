"""Any values as one Arrow column, and the pieces that other modules share.

Texts that are not UTF-8. Arrow does not check the bytes of a text, DuckDB relies on them, and neither JSON nor Parquet
can carry others. `in_utf8` rewrites a column of true data, value by value: the bytes of a text that is not UTF-8 become
U+FFFD and their hexadecimal digits in upper case: the bytes 63 61 66 E9 become '�636166E9'. The map is injective: its
results are the texts that match that pattern, and a text that already matches it is rewritten too. So no two units and
no two keys become one, the keys of a unit do not depend on rows of other units, and nothing has to be refused.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsieve.errors import InvalidType, UnreadableData, not_unicode, too_large
from dpsieve.validate import listed

_T = TypeVar("_T")
ESCAPE: Final = "\ufffd"  # before the digits of a text that is not UTF-8
ESCAPED: Final = ESCAPE + "([0-9A-F]{2})+"
_BLOCK = 1 << 10  # rows that are rewritten together


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
    column = without_views(one_chunk(array))
    if not is_sound(column):
        raise not_unicode(name)
    return column


def tried(act: Callable[[], _T]) -> tuple[_T, None] | tuple[None, type[Exception]]:
    """Return the result of a step of another library; or the class of its exception, whose message may quote values."""
    try:
        return act(), None
    except Exception as error:
        interrupted, kind = is_interrupt(error), type(error)
    if interrupted:
        raise KeyboardInterrupt
    return None, kind


def is_interrupt(error: BaseException) -> bool:
    """Return whether DuckDB or Arrow reports Ctrl-C by an exception of its own."""
    if isinstance(error, pa.ArrowCancelled) or type(error).__name__ == "InterruptException":
        return True
    return isinstance(error, RuntimeError) and str(error) == "Query interrupted"


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


def is_sound(array: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether an Arrow array keeps its own rules; messages about one that does not may quote values."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def in_utf8(array: Any) -> Any:
    """Return a column of true data with all texts in UTF-8, as the head of this module says; the type stays.

    Texts inside of nested columns are not rewritten: a column with such a text is refused.

    >>> in_utf8(pa.array([b"tea", "café".encode("latin-1")]).view(pa.string())).to_pylist()
    ['tea', '�636166E9']
    """
    if isinstance(array, pa.ChunkedArray):
        chunks = [part for chunk in array.chunks for part in _parts_in_utf8(chunk)]
        return pa.chunked_array(chunks, array.type)
    parts = _parts_in_utf8(array)
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _parts_in_utf8(array: pa.Array) -> list[pa.Array]:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return [pa.ExtensionArray.from_storage(kind, part) for part in _parts_in_utf8(array.storage)]
    if pa.types.is_dictionary(kind):
        words = array.dictionary
        new = in_utf8(words)
        return [array if new is words else pa.DictionaryArray.from_arrays(array.indices, new, ordered=kind.ordered)]
    if pa.types.is_nested(kind) and not is_sound(array):
        hint = "Pass its fields as columns of their own, or decode the text with errors='replace'."
        raise UnreadableData(f"data has text that is not UTF-8 inside a nested column. {hint}")
    if not is_text(kind) or _is_ascii(array) or not _needs_rewriting(array):
        return [array]
    blocks = [array.slice(start, _BLOCK) for start in range(0, len(array), _BLOCK)]
    return [_rewritten(block) if _needs_rewriting(block) else block for block in blocks]


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are texts."""
    return str(kind) in ("string", "large_string", "string_view")


def _is_ascii(array: pa.Array) -> bool:
    """Return whether all bytes of texts are below 128, without a look at each text; False where that is not known."""
    width = {pa.string(): np.int32, pa.large_string(): np.int64}.get(array.type)
    if width is None or not len(array):
        return not len(array)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
    if data is None or not 0 <= ends[0] <= ends[-1] <= data.size or (ends[1:] < ends[:-1]).any():
        return False
    return int(np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].max(initial=0)) < 128


def _needs_rewriting(texts: pa.Array) -> bool:
    return not is_sound(texts) or bool(pc.any(pc.match_substring_regex(_plain(texts), f"^{ESCAPED}$")).as_py())


def _rewritten(texts: pa.Array) -> pa.Array:
    values = (None if value is None else _in_utf8(value) for value in _plain(texts).view(_bytes_of(texts)).to_pylist())
    return pa.array(list(values), texts.type)


def _plain(texts: pa.Array) -> pa.Array:
    return cast(texts, pa.string()) if pa.types.is_string_view(texts.type) else texts


def _bytes_of(texts: pa.Array) -> pa.DataType:
    return pa.large_binary() if pa.types.is_large_string(texts.type) else pa.binary()


def _in_utf8(value: bytes) -> str:
    try:
        text = value.decode()
        if not re.fullmatch(ESCAPED, text):
            return text
    except UnicodeDecodeError:
        pass
    return ESCAPE + value.hex().upper()


def without_views(array: pa.Array) -> pa.Array:
    """Decode a dictionary, and write views of texts and bytes, which Arrow cannot sort, as plain ones."""
    kind = held_type(array)
    plain = {"string_view": pa.string(), "binary_view": pa.binary()}.get(str(kind), kind)
    return array if plain == array.type else cast(array, plain)


def in_utc(array: Any) -> Any:
    """Return times with a zone in UTC, and other columns as they are."""
    zoned = pa.types.is_timestamp(array.type) and array.type.tz is not None
    return array.cast(pa.timestamp(array.type.unit, "UTC")) if zoned else array
