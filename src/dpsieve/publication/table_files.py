"""The table of a publication as one file for other tools: CSV, JSON lines or Parquet.

Such a file holds the rows and nothing else: no guarantee, no certificate, no tokens, and it cannot be loaded again. The
rows are in the order of the table. What a test source drew is marked by one more column, `unsafe_to_publish`.

- CSV: UTF-8, one header line, commas, lines that end with a line feed; text in double quotes, numbers without. Dates
  and times as in ISO 8601 (those with a zone end in Z), bytes as hexadecimal digits, NaN as nan, booleans as true and
  false.
- JSON lines: one object a row, values as `--json` prints them: NaN and the infinities as text, bytes in base64.
- Parquet: the types of the table.
"""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from dpsieve.display import json_text
from dpsieve.publication.folders import write_file

if TYPE_CHECKING:
    from dpsieve.publication.publication import Publication

_FORMULA = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"  # how a cell starts that spreadsheets run; signs also full-width


def file_table(made: "Publication", answers: pa.Table | None = None) -> pa.Table:
    """Return the table, or answers from it, as files hold it: with a column that marks what a test source drew."""
    table = made.table if answers is None else answers
    if not made.unsafe_to_publish:
        return table
    name = "unsafe_to_publish"
    while name in table.column_names:
        name += "_"
    return table.append_column(name, pa.array([True] * len(table), pa.bool_()))


def csv_content(table: pa.Table, *, escape_formulas: bool = False) -> bytes:
    """Return a table as CSV; with `escape_formulas`, an apostrophe before each text that a spreadsheet would run."""
    names = pa.chunked_array([pa.array(table.column_names, pa.string())])
    columns = [_written(column) for column in table.columns]
    if escape_formulas:
        names, *columns = (_escaped(column) for column in (names, *columns))
    text = io.BytesIO()
    pyarrow.csv.write_csv(pa.table(columns, names=names.to_pylist()), text)
    return text.getvalue()


def formulas(table: pa.Table) -> int:
    """Return how many texts of a table a spreadsheet would take for formulas."""
    texts = [column for column in table.columns if _is_text(column.type)]
    return sum(pc.sum(pc.match_substring_regex(column, _FORMULA)).as_py() or 0 for column in texts)


def json_content(table: pa.Table) -> bytes:
    """Return a table as JSON lines."""
    from dpsieve.publication.publication import plain_rows

    return "".join(f"{json_text(row)}\n" for row in plain_rows(table)).encode()


def parquet_content(table: pa.Table) -> bytes:
    """Return a table as Parquet."""
    content = io.BytesIO()
    pq.write_table(table, content)
    return content.getvalue()


CONTENT: dict[str, Callable[[pa.Table], bytes]] = {
    ".csv": csv_content,
    ".jsonl": json_content,
    ".ndjson": json_content,
    ".parquet": parquet_content,
}
"""What is written to a file, by the end of its name."""
NOT_WRITTEN = (".tsv", ".json", ".xlsx", ".xls", ".ods", ".txt", ".gz", ".zip", ".html", ".arrow", ".feather")
"""Ends of names of files that are not written, and that no folder should have."""


def write_table(made: "Publication", path: str | os.PathLike[str], answers: pa.Table | None = None) -> Path:
    """Write the table, or answers from it, to a file, in the format that its name tells, whole or not at all."""
    return write_file(path, CONTENT[Path(path).suffix.lower()](file_table(made, answers)))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _written(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of a type that can be written to CSV: bytes as hexadecimal digits."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.chunked_array([pa.array([value.hex() for value in column.to_pylist()], pa.large_string())])
    return column.cast(pa.large_string()) if pa.types.is_string_view(kind) else column


def _escaped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not _is_text(column.type):
        return column
    return pc.replace_substring_regex(column, f"({_FORMULA})", "'\\1")
