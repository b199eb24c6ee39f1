"""Which columns compiled loops read, and units and keys as one value each: an integer or a text.

A unit of one column is its own value. One of several columns is the text `3:abcde` for the values 'abc' and 'de': the
lengths of all values except the last, each with a colon after it, and then the values one after the other. The lengths
determine where each value ends, so different units have different texts, whatever characters the values contain;
`unit_values` reads them back. A null in any column makes the text null.
"""

from collections.abc import Mapping

import pyarrow as pa

from dpsieve.engines.engine import Aggregation, Columns
from dpsieve.engines.sql.columns import AS_TEXT, Column
from dpsieve.engines.sql.queries import unit_names
from dpsieve.privacy.contribution import Weight

_INTEGERS = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(), "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32(),
}  # fmt: skip
_TEXTS = frozenset({"VARCHAR", "UUID"})  # as text, and back, these are what they were


def unit_expression(columns: Mapping[str, Column], wanted: Columns) -> str | None:
    """Return the expression of the value over u0, u1, ...; None where a column has a type or collation that bars it."""
    unit, names = [columns[name] for name in wanted.unit], unit_names(wanted)
    if any(column.collated or column.kind not in _INTEGERS.keys() | _TEXTS for column in unit):
        return None
    if len(unit) == 1:
        return f"CAST(u0 AS {unit_type(columns, wanted)})"
    texts = [f"CAST({u} AS VARCHAR)" for u in names]
    return " || ".join([*(f"length({text}) || ':'" for text in texts[:-1]), *texts])


def unit_type(columns: Mapping[str, Column], wanted: Columns) -> str:
    """Return the type of the value."""
    return "BIGINT" if len(wanted.unit) == 1 and columns[wanted.unit[0]].kind in _INTEGERS else "VARCHAR"


def unit_values(name: str, unit: list[Column]) -> list[str]:
    """Return the expressions of the values of u0, u1, ... over the column `name` that holds `unit_expression`."""
    if len(unit) == 1:
        return [f"CAST({name} AS {unit[0].type})"]
    lengths = [f"CAST(split_part({name}, ':', {i + 1}) AS BIGINT)" for i in range(len(unit) - 1)]
    head = " + ".join(f"length(split_part({name}, ':', {i + 1})) + 1" for i in range(len(unit) - 1))
    starts = [" + ".join([head, *lengths[:i], "1"]) for i in range(len(unit))]
    texts = [f"substring({name}, {start}, {length})" for start, length in zip(starts, lengths, strict=False)]
    texts.append(f"substring({name}, {starts[-1]})")
    return [f"CAST({text} AS {column.type})" for text, column in zip(texts, unit, strict=True)]


def suits_loops(columns: Mapping[str, Column], task: Aggregation, rows: int, listed: bool) -> bool:
    """Return whether compiled loops can read this number of rows with these columns."""
    wanted = task.columns
    if not wanted.unit or task.max_rows > 1 or (len(wanted.key) > 1 and not listed):
        return False
    if isinstance(task.measure, Weight) and rows > task.measure.most_units:
        return False
    return unit_expression(columns, wanted) is not None and (listed or key_type(columns[wanted.key[0]]) is not None)


def key_type(key: Column) -> str | None:
    """Return the type that keys are read as; None where loops cannot read them."""
    if key.collated:
        return None
    return "BIGINT" if key.kind in _INTEGERS else "VARCHAR" if key.kind in AS_TEXT else None


def arrow_type(key: Column) -> pa.DataType:
    """Return the type of released keys."""
    return _INTEGERS.get(key.kind, pa.string())
