"""Conditions and derived key columns on a DuckDB connection: a scan of the rows that they leave."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpsieve.engines.duckdb.read import Scan, open_scan
from dpsieve.engines.engine import Columns
from dpsieve.engines.inputs.frames import Source
from dpsieve.engines.sql.columns import Column


def open_rows(source: Source, wanted: Columns, connection: Any, folder: Path) -> Scan:
    """Return the scan of the wanted columns, some of which may be derived; see `read.open_scan`.

    How many rows a condition leaves is not known, so SQL counts them.
    """
    scan = open_scan(source, wanted.of_table, connection, folder)
    if wanted.rows is None:
        return scan
    text, columns = derive(wanted, scan.columns.values(), scan.text)
    return replace(scan, text=text, columns=columns, rows=None, table=None)


def derive(wanted: Columns, present: Iterable[Column], scan: str) -> tuple[str, dict[str, Column]]:
    """Return the text of a table with the wanted columns, from one with the present columns; and these columns."""
    from dpsieve.engines.sql.row_writer import write_rows

    table = {column.name: column for column in present}
    assert wanted.rows is not None
    where, derived = write_rows("duckdb", wanted.rows, table)
    model = table[wanted.of_table.names[0]]  # of a user's connection, or not
    columns, shown = {}, []
    for i, name in enumerate(wanted.names):
        if name in derived:
            sql, kind = derived[name]
            columns[name] = replace(model, name=name, sql=f"d{i}", type=kind)
        else:
            sql = table[name].sql
            columns[name] = replace(table[name], sql=f"d{i}")
        shown.append(f"{sql} AS d{i}")
    condition = f" WHERE {where}" if where else ""
    return f"(SELECT {', '.join(shown)} FROM {scan}{condition})", columns
