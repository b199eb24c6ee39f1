"""Keys as a table: one column for each part of a key, without nulls, of a type that can be sorted.

`key_table` reads keys of true data: the type of a list is that of all its keys, so that keys that are not released do
not change it. `known_table` reads a public list of keys, whose values may decide its types.
"""

import datetime
from collections.abc import Iterable, KeysView, Mapping, Set
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue, UnreadableData, not_unicode
from dpsieve.values.columns import cast, column_of, in_utc, is_sound, one_chunk, tried, value_type

TAKEN = ("count", "low", "high", "weight", "bound", "token")
"""Names of columns that releases add to the keys; `count` is the first. Sketches add `counter` at the end."""

_HINT = "Pass the distinct keys, without nulls, as an Arrow array or a list."
_NOT_SORTED = (pa.types.is_nested, pa.types.is_dictionary, pa.types.is_float16, pa.types.is_interval)
_DECLARED = {b"types": b"declared"}
_TYPES = (str, bytes, bool, int, float, datetime.datetime, datetime.date, datetime.time, np.generic)
_LIST_HINT = (
    "Pass the public keys as a list or an Arrow array; for several key columns, as a table or frame with these columns."
)


def check_names(names: list[str]) -> None:
    """Raise for names of key columns that a release cannot have."""
    for name in names:
        validate.text("key", name, hint="Rename the column.")
        if name in TAKEN:
            fix = f"Rename the column, such as to '{name}_'."
            raise InvalidValue(f"key={name!r} is the name of a column that a release adds. {fix}", argument="key")
    if len(set(names)) < len(names):
        raise InvalidValue("key names a column twice. Name each column once.", argument="key")


def key_names(columns: list[str]) -> list[str]:
    """Return the names of the key columns of a release: those before the first one that a release adds.

    >>> key_names(["city", "day", "count", "low", "high", "weight", "counter"])
    ['city', 'day']
    """
    return list(takewhile(lambda name: name not in TAKEN, columns))


def key_table(keys: Any) -> pa.Table:
    """Return keys as a table: a table as it is, the fields of a struct, or else one column `key`.

    A list of mixed types is refused, and one of decimals, whose digits would decide the type. Dictionaries are decoded,
    as they would publish every category, reported or not, and times are in UTC, as a zone would be that of one key.
    """
    if isinstance(keys, pa.Table):
        names, columns = keys.column_names, [in_utc(column_of("keys", column, _HINT)) for column in keys.columns]
    elif pa.types.is_struct((array := _key_column(keys)).type):
        if array.null_count:
            raise InvalidValue(f"keys holds nulls. {_HINT}", argument="keys")
        names, columns = [field.name for field in array.type], array.flatten()
    else:
        names, columns = ["key"], [array]
    check_names(names)
    table = pa.table(columns, names=names)
    for column in table.columns:
        kind = column.type
        if isinstance(kind, pa.BaseExtensionType) or any(test(kind) for test in _NOT_SORTED):
            raise InvalidType(
                f"keys has a type that cannot be sorted. Turn them into text or numbers. {_HINT}", argument="keys"
            )
        if column.null_count:
            raise InvalidValue(f"keys holds nulls. {_HINT}", argument="keys")
    return table


def published(keys: Any) -> pa.Table:
    """Return keys as published. A table without keys has the types of a schema, and text columns where there is none.

    The type of a list is that of its values: without keys, it would reveal that there was one.
    """
    table = key_table(keys)
    if table.num_rows or (isinstance(keys, pa.Table) and keys.schema.metadata == _DECLARED):
        return table
    return pa.table({name: pa.array([], pa.string()) for name in table.column_names})


def declared(keys: pa.Table) -> pa.Table:
    """Return keys whose types come from a public schema, marked so that they are published without keys too."""
    return keys.replace_schema_metadata(_DECLARED)


def check_published(keys: pa.Table, *, in_order: bool = True) -> None:
    """Raise unless a table holds distinct keys, sorted where `in_order`."""
    fix = "Use the keys as they were published."
    refuse_equal(key_table(keys))
    if not keys.num_columns or (in_order and not is_sorted(keys)):
        raise InvalidValue(f"table has no keys, or is not sorted by key. {fix}", argument="table")


def refuse_equal(
    keys: pa.Table, argument: str = "keys", fix: str = "Add up the frequencies of equal keys first."
) -> None:
    """Raise if keys contain duplicates; `argument` is what the caller passed."""
    if keys.num_columns == 1:
        distinct = len(pc.unique(keys.column(0)))
    else:
        numbered = _number_columns(keys)
        distinct = numbered.group_by(numbered.column_names).aggregate([]).num_rows
    if distinct != keys.num_rows:
        raise InvalidValue(f"{argument} holds a key more than once. {fix}", argument=argument)


def order_of(keys: pa.Table) -> pa.Array:
    """Return the indices that sort the rows by their columns, from the first to the last."""
    numbered = _number_columns(keys)
    return pc.sort_indices(numbered, [(name, "ascending") for name in numbered.column_names])


def is_sorted(table: pa.Table) -> bool:
    """Return whether the rows of a table are in order, by its columns from the first to the last."""
    return bool((np.diff(order_of(table).to_numpy().astype(np.int64)) > 0).all())


def refuse_set(keys: Any) -> Any:
    """Return the keys; raise for a set, which has no order."""
    if isinstance(keys, Set) and not isinstance(keys, KeysView):
        raise InvalidType("keys is a set, and has no order that matches frequencies. Pass a list.", argument="keys")
    return keys


def known_table(keys: Any, columns: tuple[str, ...]) -> pa.Table:
    """Return the keys under the names of the key columns, or raise saying what is accepted.

    >>> known_table(["tea", "coffee"], ("drink",)).column_names
    ['drink']
    """
    if isinstance(keys, str | bytes):
        raise InvalidType(f"known_keys is one text. {_LIST_HINT}", argument="known_keys")
    table, failure = tried(lambda: _public_table(keys, columns))
    if table is None or failure is not None:
        raise InvalidType(f"known_keys cannot be read as a list of keys. {_LIST_HINT}", argument="known_keys")
    if missing := [name for name in columns if table.column_names.count(name) != 1]:
        raise InvalidValue(f"known_keys must have one column {missing[0]!r}. {_LIST_HINT}", argument="known_keys")
    if not table.num_rows:
        raise InvalidValue(f"known_keys is empty. {_LIST_HINT}", argument="known_keys")
    plain = [cast(column, _sortable(value_type(column))) for column in table.select(list(columns)).columns]
    if any(pa.types.is_nested(column.type) or pa.types.is_null(column.type) for column in plain):
        raise InvalidType(f"known_keys holds values that are no keys. {_LIST_HINT}", argument="known_keys")
    if not all(map(is_sound, plain)):
        raise not_unicode("known_keys")
    if any(column.null_count for column in plain):
        fix = "Leave them out: rows with a null key are not counted."
        raise InvalidValue(f"known_keys holds nulls. {fix}", argument="known_keys")
    known = pa.table(dict(zip(columns, plain, strict=True)))
    refuse_equal(known, "known_keys", "Pass each key once.")
    return known


def read_known(path: Path, key: list[str]) -> pa.Table:
    """Read Parquet or CSV (.csv, .tsv) with the key columns, or, from any other file, one key per line.

    In text files keys are text; the engine turns them into the types of the data. Empty lines are no keys.
    """
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            return pq.read_table(path)
        if kind in (".csv", ".tsv"):
            parse = pyarrow.csv.ParseOptions(delimiter="\t" if kind == ".tsv" else ",")
            texts = dict.fromkeys(key, pa.string())
            convert = pyarrow.csv.ConvertOptions(column_types=texts, strings_can_be_null=True, null_values=[""])
            return pyarrow.csv.read_csv(path, parse_options=parse, convert_options=convert)
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        kind = type(error).__name__
        fix = "Pass a text, CSV or Parquet file."
        raise UnreadableData(f"--known-keys {str(path)!r} cannot be read ({kind}). {fix}") from None
    if len(key) > 1:
        fix = "Pass a CSV or Parquet file that has these columns."
        raise InvalidValue(f"known_keys is a list of lines, for several key columns. {fix}", argument="known_keys")
    return pa.table({key[0]: [text for line in lines if (text := line.removesuffix("\r"))]})


def _key_column(keys: Any) -> pa.Array:
    keys = validate.listed(refuse_set(keys))
    keys = list(keys) if str(getattr(keys, "dtype", "")) == "object" else keys
    kinds = _kinds(keys) if isinstance(keys, list | tuple) else set()
    if len(kinds) > 1 or None in kinds:
        why = "keys holds values of several types, or of a type that depends on their digits."
        raise InvalidType(f"{why} Turn them into text. {_HINT}", argument="keys")
    return in_utc(column_of("keys", keys, _HINT, pa.int64() if kinds == {int} else None))


def _kinds(keys: list[Any] | tuple[Any, ...]) -> set[object]:
    """Return the kinds of these keys; None marks a type that depends on digits."""
    classes = set(map(type, keys)) - {type(None)}
    kinds = {_kind(cls) for cls in classes}
    if datetime.datetime in kinds and len(kinds) == 1:  # times with and without a zone have different types
        zones = set(map(type, map(attrgetter("tzinfo"), filter(None, keys))))
        kinds = {(datetime.datetime, zone is type(None)) for zone in zones}
    return kinds


def _kind(cls: type) -> object:
    base = next((kind for kind in _TYPES if issubclass(cls, kind)), None)
    if base is datetime.datetime and hasattr(cls, "nanosecond"):  # of pandas: its digits decide the resolution
        return None
    return cls if base is np.generic else base


def _number_columns(keys: pa.Table) -> pa.Table:
    """Return keys with numbered columns: Arrow reads other names as paths."""
    return keys.rename_columns([str(k) for k in range(keys.num_columns)])


def _sortable(kind: pa.DataType) -> pa.DataType:
    """Return float32 for float16, which engines neither join nor sort."""
    return pa.float32() if pa.types.is_float16(kind) else kind


def _public_table(keys: Any, columns: tuple[str, ...]) -> pa.Table:
    """Return a table or frame as it is, values as one column, tuples or structs as several."""
    is_frame = isinstance(keys, pa.Table | Mapping) or hasattr(keys, "columns")
    values = keys.to_arrow() if hasattr(keys, "to_arrow") else keys
    if is_frame:
        return values if isinstance(values, pa.Table) else pa.table(values)
    is_arrow = isinstance(values, pa.Array | pa.ChunkedArray)
    if not is_arrow and not hasattr(values, "__arrow_array__") and isinstance(values, Iterable):
        values = list(values)
    if len(columns) == 1:
        return pa.table({columns[0]: values})
    if isinstance(values, list):
        return pa.table(dict(zip(columns, zip(*values, strict=True), strict=True)))
    return pa.Table.from_arrays(one_chunk(values if is_arrow else pa.array(values)).flatten(), names=list(columns))
