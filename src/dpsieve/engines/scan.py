"""Data as the table of a FROM clause, on a DuckDB connection."""

import glob
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dpsieve.engines.base import Bounds
from dpsieve.engines.columns import Column, check_present, literal, quoted
from dpsieve.engines.data import Frame
from dpsieve.engines.files import Files
from dpsieve.engines.stream import CsvStream
from dpsieve.engines.text import Header, header_of, json_fields
from dpsieve.errors import UnreadableData

_VIEW = "dpsieve_data"
# Otherwise a folder named unit=7 would take the place of the column 'unit' in its files.
_NO_FOLDERS = "hive_partitioning = false"
_EMPTY = "is empty, so it has no columns. Pass a file with a header or a row."


@dataclass(frozen=True)
class Scan:
    """The text of the table, its columns by name, the files behind it as the user knows them, and its size.

    `rows` is how many rows it has, where that is known without reading them and they can be read again.
    """

    text: str
    columns: dict[str, Column]
    shown: Mapping[Path, str] = field(default_factory=dict)
    rows: int | None = None


def is_text(source: object) -> bool:
    """Tell whether what stands for the names of columns may be a first row of data."""
    return isinstance(source, CsvStream) or (isinstance(source, Files) and source.kind != "parquet")


def names_of(source: Files | Frame | CsvStream, connection: duckdb.DuckDBPyConnection) -> list[Column]:
    """Return all columns, from the schema alone."""
    if isinstance(source, Frame):
        connection.register(_VIEW, source.schema().empty_table())
        return _described(connection.table(_VIEW))
    if isinstance(source, CsvStream):
        return _text_columns(_some(source.header(), source.name).names)
    if source.kind == "parquet":
        return _described(connection.sql(f"SELECT * FROM {_parquet(source)}"))
    if source.kind == "csv":
        return _text_columns(_headers(source)[0].names)
    return _text_columns(_fields(source))


def scan_of(
    source: Files | Frame | CsvStream, bounds: Bounds, connection: duckdb.DuckDBPyConnection, folder: Path
) -> Scan:
    """Return the scan of the columns that are asked for; raise when one of them is not there."""
    if isinstance(source, Frame):
        return _frame(source, bounds, connection)
    if isinstance(source, CsvStream):
        header = _some(source.header(), source.name)
        check_present(bounds, header.names, listed=False)
        path = source.spool(folder)
        return _csv(header, {path: source.name}, bounds)
    if source.kind == "parquet":
        columns = _described(connection.sql(f"SELECT * FROM {_parquet(source)}"))
        check_present(bounds, [column.name for column in columns], listed=True)
        counts = f"SELECT CAST(sum(num_rows) AS BIGINT) FROM parquet_file_metadata({_listed(list(shown_as(source)))})"
        ((rows,),) = connection.execute(counts).fetchall()
        return Scan(_parquet(source), {column.name: column for column in columns}, shown_as(source), rows)
    if source.kind == "csv":
        header, paths = _headers(source)
        check_present(bounds, header.names, listed=False)
        return _csv(header, {path.absolute(): repr(str(path)) for path in paths}, bounds)
    check_present(bounds, _fields(source), listed=False)
    return _json(source, bounds)


def foreign_scan(relation: Any, bounds: Bounds) -> Scan:
    """Return the scan of a relation, under the name that `relation.query` is told."""
    columns = _described(relation, collated=True)
    check_present(bounds, [column.name for column in columns], listed=True)
    return Scan(_VIEW, {column.name: column for column in columns})


def run_foreign(relation: Any, text: str) -> pa.Table:
    """Run a query over the relation on its own connection."""
    return relation.query(_VIEW, text).to_arrow_table()


def run_own(connection: duckdb.DuckDBPyConnection, text: str) -> pa.Table:
    """Run a query on our own connection."""
    return connection.sql(text).to_arrow_table()


def described(relation: Any) -> list[Column]:
    """Return the columns of a relation."""
    return _described(relation, collated=True)


def shown_as(source: object) -> dict[Path, str]:
    """Return the files of a source, by the path that DuckDB is told, as the user knows them."""
    return {path.absolute(): repr(str(path)) for path in source.paths} if isinstance(source, Files) else {}


def _described(relation: Any, collated: bool = False) -> list[Column]:
    return [
        Column(name, quoted(name), str(type_), collated)
        for name, type_ in zip(relation.columns, relation.types, strict=True)
    ]


def _text_columns(names: tuple[str, ...] | list[str]) -> list[Column]:
    return [Column(name, quoted(name), "VARCHAR") for name in names]


def _frame(source: Frame, bounds: Bounds, connection: duckdb.DuckDBPyConnection) -> Scan:
    check_present(bounds, source.names(), listed=True)
    taken = source.take(bounds.columns)
    if not isinstance(taken, pa.Table):
        connection.register(_VIEW, taken)
        columns = _described(connection.table(_VIEW))
        check_present(bounds, [column.name for column in columns], listed=True)
        return Scan(_VIEW, {column.name: column for column in columns})
    # DuckDB does not tell names apart that differ in case alone, and cuts them at a NUL.
    plain = [f"c{i}" for i in range(len(bounds.columns))]
    connection.register(_VIEW, taken.rename_columns(plain))
    types = connection.table(_VIEW).types
    triples = zip(bounds.columns, plain, types, strict=True)
    return Scan(_VIEW, {name: Column(name, inner, str(type_)) for name, inner, type_ in triples}, rows=len(taken))


def _parquet(source: Files) -> str:
    return f"read_parquet({_listed(list(shown_as(source)))}, {_NO_FOLDERS})"


def _headers(source: Files) -> tuple[Header, list[Path]]:
    """Return the one header of CSV files, and those of them that are not empty."""
    found = {path: header for path in source.paths if (header := header_of(path)) is not None}
    paths = list(found)
    header = _some(found[paths[0]] if paths else None, "data")
    for path in paths:
        if found[path] != header:
            hint = "Pass files with the same columns, in the same order."
            raise UnreadableData(f"{str(path)!r} has another header than {str(paths[0])!r}. {hint}")
    return header, paths


def _csv(header: Header, shown: dict[Path, str], bounds: Bounds) -> Scan:
    """CSV under inner names, c0 and so on: the names in a header may be anything."""
    types = ", ".join(f"c{i}: 'VARCHAR'" for i in range(len(header.names)))
    options = (
        f"auto_detect = false, header = true, delim = {literal(header.separator)}, quote = '\"', escape = '\"', "
        f"columns = {{{types}}}, {_NO_FOLDERS}"
    )
    where = {name: header.names.index(name) for name in bounds.columns}
    columns = {name: Column(name, f"c{i}", "VARCHAR") for name, i in where.items()}
    return Scan(f"read_csv({_listed(list(shown))}, {options})", columns, shown)


def _json(source: Files, bounds: Bounds) -> Scan:
    types = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in bounds.columns)
    options = f"format = 'newline_delimited', columns = {{{types}}}, {_NO_FOLDERS}"
    shown = shown_as(source)
    columns = {column.name: column for column in _text_columns(bounds.columns)}
    return Scan(f"read_json({_listed(list(shown))}, {options})", columns, shown)


def _fields(source: Files) -> list[str]:
    if all(path.stat().st_size == 0 for path in source.paths):
        raise UnreadableData(f"data {_EMPTY}")
    names = json_fields(source.paths)
    if not names:
        hint = "Pass JSON lines: one object on each line, without a list around them."
        raise UnreadableData(f"data names no field in its first lines. {hint}")
    return names


def _listed(paths: list[Path]) -> str:
    """Return a list of names that are no patterns, whatever they hold."""
    return f"[{', '.join(literal(glob.escape(str(path))) for path in paths)}]"


def _some(found: Any, name: str) -> Any:
    if found is None:
        raise UnreadableData(f"{name} {_EMPTY}")
    return found
