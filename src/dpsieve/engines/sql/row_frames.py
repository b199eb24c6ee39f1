"""Conditions and derived key columns on a Spark DataFrame."""

from collections.abc import Mapping
from typing import Any

from dpsieve.engines.engine import Columns
from dpsieve.engines.sql.columns import Column
from dpsieve.engines.sql.dialects import table_columns
from dpsieve.engines.sql.row_writer import write_rows


def derive(frame: Any, types: Mapping[str, str], columns: Columns) -> Any:
    """Return a frame with the wanted columns, some of them derived, of the rows that a condition leaves."""
    assert columns.rows is not None
    inner = {field.name: f"c{i}" for i, field in enumerate(frame.schema.fields)}  # Spark ignores the case of names
    given = table_columns("spark", types, columns.of_table.names)
    table = {name: Column(name, inner[name], column.type) for name, column in given.items()}
    where, derived = write_rows("spark", columns.rows, table)
    plain = frame.toDF(*inner.values())
    chosen = [derived[name][0] if name in derived else inner[name] for name in columns.names]
    return (plain.where(where) if where else plain).selectExpr(*chosen).toDF(*columns.names)
