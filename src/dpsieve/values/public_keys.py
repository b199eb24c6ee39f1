"""A public list of keys, in any form, as a table with the key columns.

The list is public, so that its values may decide its types.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from dpsieve.errors import InvalidType, InvalidValue, UnreadableData, not_unicode
from dpsieve.values.columns import cast, held_type, is_sound, one_chunk

_HINT = (
    "Pass the public keys as a list or an Arrow array; for several key columns, as a table or frame with these columns."
)


def known_table(keys: Any, columns: tuple[str, ...]) -> pa.Table:
    """Return the keys under the names of the key columns, or raise saying what is accepted.

    >>> known_table(["tea", "coffee"], ("drink",)).column_names
    ['drink']
    """
    table = _table(keys, columns)
    if not table.num_rows:
        raise InvalidValue(f"known_keys is empty. {_HINT}")
    kept = table.select(list(columns))
    plain = [cast(column, _sortable(held_type(column))) for column in kept.columns]
    if any(pa.types.is_nested(column.type) or pa.types.is_null(column.type) for column in plain):
        raise InvalidType(f"known_keys holds values that are no keys. {_HINT}")
    if not all(map(is_sound, plain)):
        raise not_unicode("known_keys")
    if any(column.null_count for column in plain):
        raise InvalidValue("known_keys holds nulls. Leave them out: rows with a null key are not counted.")
    made = pa.table(dict(zip(columns, plain, strict=True)))
    if made.group_by(list(columns)).aggregate([]).num_rows < made.num_rows:
        raise InvalidValue("known_keys holds a key more than once. Pass each key once.")
    return made


def _sortable(kind: pa.DataType) -> pa.DataType:
    """Return float32 for float16, which holds all its values: engines neither join nor sort the latter."""
    return pa.float32() if pa.types.is_float16(kind) else kind


def read_known(path: Path, key: list[str]) -> pa.Table:
    """Read Parquet or CSV (.csv, .tsv) with the key columns, or, from any other file, one key a line.

    In text files keys are text; the engine turns them into the types of the data. Empty lines are no keys.
    """
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            return pq.read_table(path)
        if kind in (".csv", ".tsv"):
            parse = pyarrow.csv.ParseOptions(delimiter="\t" if kind == ".tsv" else ",")
            types = pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(key, pa.string()), strings_can_be_null=True, null_values=[""]
            )
            return pyarrow.csv.read_csv(path, parse_options=parse, convert_options=types)
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        kind = type(error).__name__
        fix = "Pass a text, CSV or Parquet file."
        raise UnreadableData(f"--known-keys {str(path)!r} cannot be read ({kind}). {fix}") from None
    if len(key) > 1:
        raise InvalidValue("--known-keys for several key columns must be a CSV or Parquet file that has these columns.")
    return pa.table({key[0]: [text for line in lines if (text := line.removesuffix("\r"))]})


def _table(keys: Any, columns: tuple[str, ...]) -> pa.Table:
    if isinstance(keys, str | bytes):
        raise InvalidType(f"known_keys is one text. {_HINT}")
    try:
        if isinstance(keys, pa.Table | Mapping) or hasattr(keys, "columns"):
            frame = keys.to_arrow() if hasattr(keys, "to_arrow") else keys
            table = frame if isinstance(frame, pa.Table) else pa.table(frame)
        else:
            table = _from_values(keys, columns)
    except (pa.ArrowException, TypeError, ValueError, AttributeError, KeyError):
        table = None
    if table is None:
        raise InvalidType(f"known_keys cannot be read as a list of keys. {_HINT}")
    if missing := [name for name in columns if table.column_names.count(name) != 1]:
        raise InvalidValue(f"known_keys must have one column {missing[0]!r}. {_HINT}")
    return table


def _from_values(keys: Any, columns: tuple[str, ...]) -> pa.Table:
    """Return values of one column, or tuples (or structs) of several."""
    values = keys if isinstance(keys, pa.Array | pa.ChunkedArray) or hasattr(keys, "__arrow_array__") else None
    if values is None and hasattr(keys, "to_arrow"):
        values = keys.to_arrow()
    if values is None:
        values = list(keys) if isinstance(keys, Iterable) else keys
    if len(columns) == 1:
        return pa.table({columns[0]: values})
    if isinstance(values, list):
        return pa.table(dict(zip(columns, zip(*values, strict=True), strict=True)))
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    return pa.Table.from_arrays(one_chunk(array).flatten(), names=list(columns))
