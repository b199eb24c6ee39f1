"""Any values as one Arrow column, and the steps on columns that other modules share.

**Items** of streams and samples are integers of 64 bits, text or bytes, one kind in a column. Accepted are Arrow arrays
and chunked arrays (integers of any width; string, binary, their large and view forms; binary of a fixed size;
dictionaries of these), objects with an Arrow interface such as a pandas or Polars Series, NumPy arrays of integers,
text or bytes, and lists and other iterables of int, str or bytes, with None for a null.

**Text that is not UTF-8.** Arrow does not check the bytes of a text, DuckDB relies on them, neither JSON nor Parquet
can store others. `in_utf8` rewrites a column of true data, value by value: the bytes of a text that is not UTF-8 become
U+FFFD and their hexadecimal digits in upper case: the bytes 63 61 66 E9 become '�636166E9'. The map is injective: its
results are the texts that match that pattern, and a text that already matches it is rewritten too. So no two units and
no two keys become one, the keys of a unit do not depend on rows of other units, and nothing has to be refused.

**pandas.** A column of Python objects has no type: one guessed from its values would reveal rows that are not released,
as one Decimal with more digits changes the type of all. So such columns are text, each value written by itself: equal
whole numbers alike (1, 1.0 and Decimal('1.00') as '1'), bytes as UTF-8 with a backslash before what is not, times with
a zone in UTC, and dates, UUIDs and members of an Enum as `str` writes them; other objects are refused. Periods and
intervals, also as categories, are text too: '2024-01', '(0, 10]'. All other dtypes keep their Arrow type. None, NaN, NA
and NaT are nulls. A lone surrogate, which no encoding can represent, becomes bytes that are not UTF-8. The dtypes of a
frame are public. (pandas itself turns whole numbers into floats where one of them is missing: read such columns as
'Int64', or as text.)
"""

import contextlib
import datetime
import enum
import re
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from numbers import Integral, Rational, Real
from typing import Any, Final, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types
from numpy.typing import NDArray

from dpsieve.errors import InvalidType, InvalidValue, UnreadableData, not_unicode, too_large
from dpsieve.validate import listed

_T = TypeVar("_T")
Kind = Literal["integers", "text", "bytes"]

PLAIN: dict[Kind, pa.DataType] = {"integers": pa.int64(), "text": pa.large_string(), "bytes": pa.large_binary()}
_FITS: dict[Kind, tuple[Callable[[pa.DataType], bool], ...]] = {
    "integers": (types.is_integer,),
    "text": (types.is_string, types.is_large_string, types.is_string_view),
    "bytes": (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary),
}
ESCAPE: Final = "\ufffd"  # before the digits of a text that is not UTF-8
ESCAPED: Final = ESCAPE + "([0-9A-F]{2})+"
_BLOCK = 1 << 10  # rows that are rewritten together
# Equal values of these have equal text. Other objects may not, and one unit could count as several.
_WRITTEN_ALIKE = (Rational, datetime.date, datetime.time, uuid.UUID, enum.Enum)
_LONGEST_NUMBER = 400  # digits; no float has more before its point
_LARGE_NUMBER = 10**_LONGEST_NUMBER


def column_of(
    name: str, values: Any, hint: str, kind: pa.DataType | None = None, *, from_pandas: bool | None = None
) -> pa.Array:
    """Return values as one Arrow array, with dictionaries decoded, or raise naming the argument; `hint` is the fix.

    Args:
        name: of the argument.
        values: an Arrow or NumPy array, a frame's column, or a list.
        hint: what to pass instead.
        kind: the Arrow type of values that are not Arrow yet; by default Arrow infers it.
        from_pandas: whether NaN is a null, as in `pyarrow.array`.

    >>> column_of("keys", ["tea", None], "Pass a list.").to_pylist()
    ['tea', None]
    """
    column = without_views(one_chunk(_to_arrow(name, listed(values), hint, kind, from_pandas)))
    if not is_sound(column):
        raise not_unicode(name)
    return column


def column_of_items(values: Any, name: str, hint: str) -> pa.Array | pa.ChunkedArray:
    """Return items as Arrow stores them, nulls included; `name` is the argument in messages.

    Lists must be of one kind of item. Arrow arrays are returned as they are, whatever their type.
    """
    _refuse_single(name, values)
    kind, pandas = None, sys.modules.get("pandas")
    if isinstance(values, np.ndarray):
        values = _flat_items(values, name, hint)
    elif pandas is not None and isinstance(values, pandas.Series | pandas.Index):
        stored = getattr(values.dtype, "categories", values)
        if stored.dtype == object:  # Arrow would silently turn a column of text and bytes into bytes
            _kind_of_list(stored.dropna().tolist(), name, hint)
        return converted(lambda: pa.array(values, from_pandas=True), name, hint)
    elif not any(hasattr(values, f"__arrow_{form}__") for form in ("c_stream", "c_array", "array")):
        values = _list_of(values, name, hint)
    if isinstance(values, list):
        kind = _kind_of_list(values, name, hint)
        if kind is None:
            return pa.nulls(len(values))
    return _to_arrow(name, values, hint, kind and PLAIN[kind], True)


def _to_arrow(name: str, values: Any, hint: str, kind: pa.DataType | None, from_pandas: bool | None) -> Any:
    _refuse_single(name, values)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if hasattr(values, "__arrow_c_stream__"):  # a Polars Series, for example
        return converted(lambda: pa.chunked_array(values), name, hint)
    return converted(lambda: pa.array(values, kind, from_pandas=from_pandas), name, hint)


def _refuse_single(name: str, values: object) -> None:
    if isinstance(values, str | bytes | bytearray | memoryview):
        raise InvalidType(f"{name} is one {type(values).__name__}. Wrap it in a list: [item].", argument=name)
    if isinstance(values, Mapping):
        fix = "Pass its keys and its values separately: counts.keys(), counts.values()."
        raise InvalidType(f"{name} is a mapping. {fix}", argument=name)


def plain_items(values: Any, name: str, hint: str, *, nulls: bool = True) -> pa.Array:
    """Return a column of int64, large_string or large_binary without nulls; `name` is the argument in messages.

    Nulls are dropped, or refused where `nulls` is False.

    >>> plain_items(["tea", None], "items", "Pass a list.").to_pylist()
    ['tea']
    """
    array = column_of_items(values, name, hint)
    if not is_sound(array):
        raise InvalidValue(f"{name} is a broken Arrow array, or has text that is not UTF-8. {hint}", argument=name)
    type_ = value_type(array)
    kind = kind_of_type(type_)
    if kind is not None:
        plain = converted(lambda: _cast_items(array, type_, PLAIN[kind]), name, hint)
    elif types.is_null(type_):
        plain = pa.nulls(len(array), PLAIN["text"])
    else:
        raise not_an_item(name, type_, hint)
    if plain.null_count and not nulls:
        raise InvalidValue(f"{name} holds nulls. {hint}", argument=name)
    return plain.drop_null()


def one_item(item: Any, kind: Kind | None) -> pa.Array:
    """Return one item as a column; its kind must be the one counted so far, if there is one."""
    column = plain_items([item], "item", "Pass an integer, text or bytes.")
    if not len(column):
        raise InvalidType("item must be text, bytes or an integer, not None.", argument="item")
    check_kind("item", kind_of_type(column.type), kind)
    return column


def kind_of_type(kind: pa.DataType) -> Kind | None:
    """Return the kind of the items of an Arrow type, or None for other types."""
    return next((name for name, fits in _FITS.items() if any(fit(kind) for fit in fits)), None)


def check_kind(name: str, kind: Kind | None, counted: Kind | None) -> None:
    """Raise if items are of another kind than those counted before."""
    if counted not in (None, kind):
        raise InvalidType(
            f"{name} holds {kind}, where {counted} was counted before. Count each kind on its own.", argument=name
        )


def not_an_item(name: str, kind: pa.DataType, hint: str) -> InvalidType:
    """Return the error for values that cannot be items; the fields of a nested type are not named."""
    return InvalidType(
        f"{name} holds values of the type {'nested' if types.is_nested(kind) else kind}. {hint}", argument=name
    )


def _cast_items(array: Any, type_: pa.DataType, plain: pa.DataType) -> pa.Array:
    try:
        return one_chunk(cast(cast(array, type_), plain))
    except pa.ArrowInvalid as error:
        raise OverflowError from error


def _kind_of_list(values: list[Any], name: str, hint: str) -> Kind | None:
    kinds = {_kind_of_class(cls, name, hint) for cls in set(map(type, values)) - {type(None)}}
    if len(kinds) > 1:
        raise InvalidType(f"{name} mixes {' and '.join(sorted(kinds))}. Pass one kind of item.", argument=name)
    return kinds.pop() if kinds else None


def _kind_of_class(cls: type, name: str, hint: str) -> Kind:
    if issubclass(cls, int | np.integer) and cls is not bool:
        return "integers"
    if issubclass(cls, str | bytes):
        return "text" if issubclass(cls, str) else "bytes"
    raise InvalidType(f"{name} holds values of the type {cls.__name__}. {hint}", argument=name)


def _list_of(values: Any, name: str, hint: str) -> list[Any]:
    with contextlib.suppress(TypeError):
        return list(values)
    raise InvalidType(f"{name} must be a batch of items, not {type(values).__name__}. {hint}", argument=name)


def _flat_items(array: NDArray[Any], name: str, hint: str) -> NDArray[Any] | list[Any]:
    if array.ndim != 1:
        raise InvalidType(f"{name} must be a flat array, not one of {array.ndim} dimensions. {hint}", argument=name)
    if isinstance(array, np.ma.MaskedArray):
        array = array.compressed()
    if array.dtype.kind in "iu":
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if len(array) and array.dtype.kind not in "OSTU":  # dates, say, would turn into integers
        raise InvalidType(f"{name} holds values of the type {array.dtype}. {hint}", argument=name)
    return list(array.tolist())


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
    """Return the result of a conversion by another library, or raise naming the argument; `hint` is the fix."""
    result, failure = tried(convert)
    if failure is None:
        return result
    if issubclass(failure, UnicodeError):
        raise not_unicode(name)
    if issubclass(failure, OverflowError):
        raise too_large(name)
    raise InvalidType(f"{name} cannot be read as one column of one kind ({failure.__name__}). {hint}", argument=name)


def one_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def as_numpy(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Return numbers, none of them null; `Array.to_numpy` would import pandas."""
    return np.from_dlpack(one_chunk(column))


def as_arrow(numbers: NDArray[Any], null: NDArray[Any] | None = None) -> pa.Array:
    """Return an array as a column, null where `null` is true; for numbers without importing pandas."""
    if null is not None:
        column = as_arrow(numbers)
        return pc.if_else(as_arrow(null), pa.nulls(len(column), column.type), column)
    if numbers.dtype == np.bool_:
        buffer = pa.py_buffer(np.packbits(numbers, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(numbers), [None, buffer])
    if numbers.dtype.kind not in "iuf":
        return pa.array(numbers)
    buffer = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, buffer])


def text_array(texts: Sequence[str]) -> pa.Array:
    """Return texts as a column without importing pandas."""
    data = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, data)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(data), pa.py_buffer(ends), pa.py_buffer(b"".join(data)))


def cast(array: Any, kind: pa.DataType) -> Any:
    """Return a column in another type; Arrow 16 cannot cast views itself."""
    try:
        return array.cast(kind)
    except pa.ArrowNotImplementedError:
        return pa.array(array.to_pylist(), kind)


def value_type(array: pa.Array | pa.ChunkedArray) -> pa.DataType:
    """Return the type of the values, also of those in a dictionary."""
    return array.type.value_type if types.is_dictionary(array.type) else array.type


def is_sound(array: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether the array passes Arrow's full validation, whose messages may quote values."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def without_views(array: pa.Array) -> pa.Array:
    """Decode a dictionary, and write views of texts and bytes, which Arrow cannot sort, as plain ones."""
    kind = value_type(array)
    plain = {"string_view": pa.string(), "binary_view": pa.binary()}.get(str(kind), kind)
    return array if plain == array.type else cast(array, plain)


def in_utc(array: Any) -> Any:
    """Return times with a zone in UTC, and other columns as they are."""
    zoned = types.is_timestamp(array.type) and array.type.tz is not None
    return array.cast(pa.timestamp(array.type.unit, "UTC")) if zoned else array


def in_utf8(array: Any) -> Any:
    """Return a column of true data with all texts in UTF-8, as described above; the type is unchanged.

    Nested columns are not rewritten: one with a text that is not UTF-8 is refused.

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
    if types.is_dictionary(kind):
        words = array.dictionary
        new = in_utf8(words)
        return [array if new is words else pa.DictionaryArray.from_arrays(array.indices, new, ordered=kind.ordered)]
    if types.is_nested(kind) and not is_sound(array):
        hint = "Pass its fields as columns of their own, or decode the text with errors='replace'."
        raise UnreadableData(f"data has text that is not UTF-8 inside a nested column. {hint}")
    if kind_of_type(kind) != "text" or _is_ascii(array) or not _needs_rewriting(array):
        return [array]
    blocks = [array.slice(start, _BLOCK) for start in range(0, len(array), _BLOCK)]
    return [_rewrite(block) if _needs_rewriting(block) else block for block in blocks]


def _is_ascii(array: pa.Array) -> bool:
    """Return whether all bytes of texts are below 128, in one pass over the buffer; False where that is unknown."""
    width = {pa.string(): np.int32, pa.large_string(): np.int64}.get(array.type)
    if width is None or not len(array):
        return not len(array)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
    if data is None or not 0 <= ends[0] <= ends[-1] <= data.size or (ends[1:] < ends[:-1]).any():
        return False
    return int(np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].max(initial=0)) < 128


def _needs_rewriting(texts: pa.Array) -> bool:
    return not is_sound(texts) or bool(pc.any(pc.match_substring_regex(without_views(texts), f"^{ESCAPED}$")).as_py())


def _rewrite(texts: pa.Array) -> pa.Array:
    raw = pa.large_binary() if types.is_large_string(texts.type) else pa.binary()
    values = (None if value is None else _in_utf8(value) for value in without_views(texts).view(raw).to_pylist())
    return pa.array(list(values), texts.type)


def _in_utf8(value: bytes) -> str:
    try:
        text = value.decode()
        if not re.fullmatch(ESCAPED, text):
            return text
    except UnicodeDecodeError:
        pass
    return ESCAPE + value.hex().upper()


def arrow_column(series: Any) -> Any:
    """Return a pandas Series as an Arrow array of a type that the dtype alone decides.

    >>> import pandas as pd
    >>> arrow_column(pd.Series([1, 2.5, None, "tea"], dtype=object)).to_pylist()
    ['1', '2.5', None, 'tea']
    """
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        categories = series.cat.categories.to_series()
        if _is_text(categories.dtype):
            codes = series.cat.codes.to_numpy()
            return _texts(categories).take(pa.array(codes, mask=codes < 0))
    elif _is_text(series.dtype):
        return _texts(series)
    try:
        return pa.Table.from_pandas(series.to_frame("x"), preserve_index=False).column(0)
    except UnicodeEncodeError:  # a lone surrogate in a column of texts
        pass
    return _texts(series)


def _is_text(dtype: Any) -> bool:
    import pandas as pd

    return pd.api.types.is_object_dtype(dtype) or isinstance(dtype, pd.PeriodDtype | pd.IntervalDtype)


def _texts(series: Any) -> pa.Array:
    import pandas as pd

    if pd.api.types.infer_dtype(series, skipna=True) == "string":
        with contextlib.suppress(UnicodeEncodeError):
            return pa.array(series, pa.large_string(), from_pandas=True)
    pairs = zip(series, series.isna(), strict=True)
    values = [None if missing else _text(value).encode(errors="surrogatepass") for value, missing in pairs]
    return pa.array(values, pa.large_binary()).view(pa.large_string())


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str.__str__(value)  # as Arrow reads it; the `__str__` of an Enum of texts may differ
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, Integral):
        return _decimal_text(Decimal(int(value))) if abs(value) >= _LARGE_NUMBER else str(int(value))
    if isinstance(value, Decimal):
        return _decimal_text(value)
    if isinstance(value, Real) and not isinstance(value, Rational):
        number = float(value)
        return str(int(number) if number.is_integer() else number)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return str(value.astimezone(datetime.UTC))
    if isinstance(value, _WRITTEN_ALIKE) or type(value).__module__.partition(".")[0] == "pandas":
        return str(value)
    raise TypeError


def _decimal_text(value: Decimal) -> str:
    """Return a number with all of its digits, independent of the thread's decimal context."""
    if value.is_finite() and value.adjusted() < _LONGEST_NUMBER and value == value.to_integral_value():
        return str(int(value))
    exact = Context(prec=max(1, len(value.as_tuple().digits)), Emin=MIN_EMIN, Emax=MAX_EMAX)
    return str(value.normalize(exact))
