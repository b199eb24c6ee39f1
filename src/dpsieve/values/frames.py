"""Columns of pandas frames as Arrow columns, of a type that the dtype alone decides.

A column of Python objects has no type: one guessed from its values would reveal rows that are not released, as one
Decimal with more digits changes the type of all. So such columns are text, each value written by itself: equal whole
numbers alike (1, 1.0 and Decimal('1.00') as '1'), bytes as UTF-8 with a backslash before what is not, times with a zone
in UTC, and dates, UUIDs and members of an Enum as `str` writes them; other objects are refused. Periods and intervals,
also as categories, are text too: '2024-01', '(0, 10]'. All other dtypes keep their Arrow type. None, NaN, NA and NaT
are nulls. A lone surrogate, which no encoding can carry, becomes bytes that are not UTF-8: see `values.columns`.

The dtypes of a frame are taken for public. (pandas itself turns whole numbers into floats where one of them is missing:
read such columns as 'Int64', or as text.)
"""

import contextlib
import datetime
import enum
import uuid
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from numbers import Integral, Rational, Real
from typing import Any

import pyarrow as pa

# Equal ones are written alike. Not so dicts, sets, or objects of other classes: one unit could count as several.
_WRITTEN_ALIKE = (Rational, datetime.date, datetime.time, uuid.UUID, enum.Enum)
_LONGEST_NUMBER = 400  # digits; no float has more before its point
_LARGE_NUMBER = 10**_LONGEST_NUMBER


def arrow_column(series: Any) -> Any:
    """Return a Series as an Arrow array.

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
        return str.__str__(value)  # as Arrow reads it: an Enum of texts may write itself in another way
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
    """Return a number with all of its digits, whatever the precision of this thread's decimal context is."""
    if value.is_finite() and value.adjusted() < _LONGEST_NUMBER and value == value.to_integral_value():
        return str(int(value))
    exact = Context(prec=max(1, len(value.as_tuple().digits)), Emin=MIN_EMIN, Emax=MAX_EMAX)
    return str(value.normalize(exact))
