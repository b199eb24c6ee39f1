"""A public list of keys, in whatever form it comes, as a table with the key columns."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from dpsieve.errors import InvalidType, InvalidValue

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
    plain = [_plain(column) for column in kept.columns]
    if any(pa.types.is_nested(column.type) or pa.types.is_null(column.type) for column in plain):
        raise InvalidType(f"known_keys holds values that are no keys. {_HINT}")
    return pa.table(dict(zip(columns, plain, strict=True)))


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
    array = pa.array(values) if not isinstance(values, pa.Array | pa.ChunkedArray) else values
    flat = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return pa.Table.from_arrays(flat.flatten(), names=list(columns))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
