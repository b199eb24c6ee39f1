"""Keys as a table: one column for each part of a key, without nulls, of a type that can be sorted."""

import datetime
from collections.abc import KeysView, Set
from itertools import takewhile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.values.columns import column_of, in_utc

TAKEN = ("count", "low", "high", "weight", "token")
"""Names of columns that releases add to the keys; `count` is the first. Sketches add `counter` at the end."""

_HINT = "Pass the distinct keys, without nulls, as an Arrow array or a list."
_NOT_SORTED = (pa.types.is_nested, pa.types.is_dictionary, pa.types.is_float16, pa.types.is_interval)
_TYPES = (str, bytes, bool, int, float, datetime.datetime, datetime.date, datetime.time, np.generic)


def check_names(names: list[str]) -> None:
    """Refuse names of key columns that a release cannot have."""
    for name in names:
        validate.text("key", name, hint="Rename the column.")
        if name in TAKEN:
            fix = f"Rename the column, such as to '{name}_'."
            raise InvalidValue(f"key={name!r} is the name of a column that a release adds. {fix}")
    if len(set(names)) < len(names):
        raise InvalidValue("key names a column twice. Name each column once.")


def key_names(columns: list[str]) -> list[str]:
    """Return the names of the key columns of a release: those before the first one that a release adds.

    >>> key_names(["city", "day", "count", "low", "high", "weight", "counter"])
    ['city', 'day']
    """
    return list(takewhile(lambda name: name not in TAKEN, columns))


def key_table(keys: Any) -> pa.Table:
    """Return keys as a table: a table as it is, the fields of a struct, or else one column `key`.

    The type of a list is that of all its keys, which any one of them tells: keys that are not released must not
    change it. So a list of mixed types is refused, and one of decimals, whose digits would decide.
    """
    if isinstance(keys, pa.Table):
        names, columns = keys.column_names, [_decoded(column) for column in keys.columns]
    elif pa.types.is_struct((array := _array(keys)).type):
        if array.null_count:
            raise InvalidValue(f"keys holds nulls. {_HINT}")
        names, columns = [field.name for field in array.type], array.flatten()
    else:
        names, columns = ["key"], [array]
    check_names(names)
    table = pa.table(columns, names=names)
    for column in table.columns:
        kind = column.type
        if isinstance(kind, pa.BaseExtensionType) or any(test(kind) for test in _NOT_SORTED):
            raise InvalidType(f"keys has a type that cannot be sorted. Turn them into text or numbers. {_HINT}")
        if column.null_count:
            raise InvalidValue(f"keys holds nulls. {_HINT}")
    return table


def published(keys: Any) -> pa.Table:
    """Return keys as they are published: without any, the columns are text, as their type would tell there was one."""
    table = key_table(keys)
    return table if table.num_rows else pa.table({name: pa.array([], pa.string()) for name in table.column_names})


def check_published(keys: pa.Table, *, in_order: bool = True) -> None:
    """Raise unless a table holds keys as they are published: distinct, and sorted unless their order says more."""
    fix = "Use the keys as they were published."
    refuse_equal(key_table(keys))
    if not keys.num_columns or (in_order and not is_sorted(keys)):
        raise InvalidValue(f"table has no keys, or is not sorted by key. {fix}")
    if not keys.num_rows and any(kind != pa.string() for kind in keys.schema.types):
        raise InvalidValue(f"table has a type of keys but no keys. {fix}")


def refuse_equal(keys: pa.Table, argument: str = "keys") -> None:
    """Raise when a key is there more than once; `argument` is what the caller passed."""
    if keys.num_columns == 1:
        distinct = len(pc.unique(keys.column(0)))
    else:
        plain = keys.rename_columns([str(k) for k in range(keys.num_columns)])
        distinct = plain.group_by(plain.column_names).aggregate([]).num_rows
    if distinct != keys.num_rows:
        raise InvalidValue(f"{argument} holds a key more than once. Add up the frequencies of equal keys first.")


def order_of(keys: pa.Table) -> pa.Array:
    """Return the places of the rows in the order of their columns, from the first to the last."""
    plain = keys.rename_columns([str(k) for k in range(keys.num_columns)])
    return pc.sort_indices(plain, [(name, "ascending") for name in plain.column_names])


def is_sorted(table: pa.Table) -> bool:
    """Return whether the rows of a table are in order, by its columns from the first to the last."""
    return bool((np.diff(order_of(table).to_numpy().astype(np.int64)) > 0).all())


def refuse_set(keys: Any) -> Any:
    """Return keys that have an order, so that each has its number."""
    if isinstance(keys, Set) and not isinstance(keys, KeysView):
        raise InvalidType("keys is a set, which has no order to pair it with frequencies by. Pass a list.")
    return keys


def _array(keys: Any) -> pa.Array:
    keys = validate.listed(refuse_set(keys))
    keys = list(keys) if str(getattr(keys, "dtype", "")) == "object" else keys
    kinds = {_kind(value) for value in keys if value is not None} if isinstance(keys, list | tuple) else set()
    if len(kinds) > 1 or None in kinds:
        why = "keys holds values of several types, or of one that its digits decide."
        raise InvalidType(f"{why} Turn them into text. {_HINT}")
    return _decoded(keys, pa.int64() if kinds == {int} else None)


def _decoded(keys: Any, kind: pa.DataType | None = None) -> pa.Array:
    """Return one column: a dictionary would carry every category, reported or not, and a zone is the first key's."""
    return in_utc(column_of("keys", keys, _HINT, kind))


def _kind(value: object) -> object:
    """Return what decides the type of a column with this value; None where all of its values would."""
    base: object = next((kind for kind in _TYPES if isinstance(value, kind)), None)
    if base is np.generic:
        return type(value)
    if base is datetime.datetime:
        return None if hasattr(value, "nanosecond") else (base, value.tzinfo is None)  # type: ignore[attr-defined]
    return base
