"""Units as one value each, for compiled loops: a whole number or a text.

A unit of one column is its own value. One of several columns is the text `3:abcde` for the values 'abc' and 'de': the
lengths of all values but the last, each with a colon after it, and then the values one after the other. The lengths
say where each value ends, so different units have different texts, whatever characters the values hold; `its_values`
reads them back. A null in any column makes the whole null.
"""

from collections.abc import Mapping

from dpsieve.engines.engine import Columns
from dpsieve.engines.sql.bounded_query import Column, unit_names

NUMBERS = frozenset("TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER".split())
_TEXTS = frozenset({"VARCHAR", "UUID"})  # as text, and back, these are what they were


def one_value(columns: Mapping[str, Column], wanted: Columns) -> str | None:
    """Return the expression of the value over u0, u1, ...; None where a column has a type or collation that bars it."""
    unit, names = [columns[name] for name in wanted.unit], unit_names(wanted)
    if any(column.collated or column.kind not in NUMBERS | _TEXTS for column in unit):
        return None
    if len(unit) == 1:
        return f"CAST(u0 AS {kind_of_value(columns, wanted)})"
    texts = [f"CAST({u} AS VARCHAR)" for u in names]
    return " || ".join([*(f"length({text}) || ':'" for text in texts[:-1]), *texts])


def kind_of_value(columns: Mapping[str, Column], wanted: Columns) -> str:
    """Return the type of the value."""
    return "BIGINT" if len(wanted.unit) == 1 and columns[wanted.unit[0]].kind in NUMBERS else "VARCHAR"


def its_values(name: str, unit: list[Column]) -> list[str]:
    """Return the expressions of the values of u0, u1, ... over the column `name` that holds `one_value`."""
    if len(unit) == 1:
        return [f"CAST({name} AS {unit[0].type})"]
    lengths = [f"CAST(split_part({name}, ':', {i + 1}) AS BIGINT)" for i in range(len(unit) - 1)]
    head = " + ".join(f"length(split_part({name}, ':', {i + 1})) + 1" for i in range(len(unit) - 1))
    starts = [" + ".join([head, *lengths[:i], "1"]) for i in range(len(unit))]
    texts = [f"substring({name}, {start}, {length})" for start, length in zip(starts, lengths, strict=False)]
    texts.append(f"substring({name}, {starts[-1]})")
    return [f"CAST({text} AS {column.type})" for text, column in zip(texts, unit, strict=True)]
