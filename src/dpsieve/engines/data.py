"""What users have, told apart without reading it.

- A path, a glob, a folder or a list of files: see `engines.files`. An empty text file adds nothing; when all are empty
  there are no columns, and that is an error. An empty Parquet file is a broken one.
- A pandas or Polars frame, a Polars LazyFrame; an Arrow table, record batch, reader or dataset; anything else that
  exports an Arrow stream. A reader or stream can be counted once.
- A DuckDB relation, or a pair (connection, name of a table or view). These run on the user's own connection, with its
  settings, memory and temporary folder, and tell progress only if its progress bar is on.
- `CsvStream(stream)`: CSV from standard input or another open file.

Only the columns that are used are converted. What happens to the columns of a pandas frame is in `values.frames`.
"""

import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dpsieve.engines.files import Files, files_of
from dpsieve.engines.stream import CsvStream
from dpsieve.errors import InvalidType, InvalidValue, UnreadableData
from dpsieve.values.frames import arrow_column

_ACCEPTED = (
    "Pass a path, glob or list of Parquet, CSV or JSON-lines files; a pandas or Polars frame; an Arrow table, reader "
    "or dataset; a DuckDB relation or (connection, table name); or CsvStream(stream)."
)


class Frame(ABC):
    """Data that lives in this process, or comes from it, as Arrow."""

    def __init__(self, data: Any) -> None:
        self.data = data

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all columns that have a text as name."""

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return names and types without converting rows."""

    @abstractmethod
    def take(self, columns: tuple[str, ...]) -> Any:
        """Return at least these columns as something that DuckDB scans."""


class ArrowFrame(Frame):
    """An Arrow table, reader or dataset."""

    def names(self) -> list[str]:
        """Return the names in the schema."""
        return list(self.data.schema.names)

    def schema(self) -> pa.Schema:
        """Return the schema as it is."""
        return self.data.schema

    def take(self, columns: tuple[str, ...]) -> Any:
        """Return the columns of a table; readers and datasets are narrowed by the scan."""
        return self.data.select(list(columns)) if isinstance(self.data, pa.Table) else self.data


class PandasFrame(Frame):
    """A pandas DataFrame; see `values.frames` for its types."""

    def names(self) -> list[str]:
        """Return the names that are text."""
        return [name for name in self.data.columns if isinstance(name, str)]

    def schema(self) -> pa.Schema:
        """Return the types that no rows have; null where there is none."""
        names = self.names()
        empty = {name: self.data[name].head(0) for name in dict.fromkeys(names) if names.count(name) == 1}
        return pa.schema([(name, _or_null(arrow_column, column)) for name, column in empty.items()])

    def take(self, columns: tuple[str, ...]) -> Any:
        """Convert just these columns."""
        return _converted(lambda: pa.table({name: arrow_column(self.data[name]) for name in columns}))


class PolarsFrame(Frame):
    """A Polars DataFrame or LazyFrame."""

    def names(self) -> list[str]:
        """Return all names."""
        return list(self.data.collect_schema().names())

    def schema(self) -> pa.Schema:
        """Return the types that no rows have."""
        return _converted(lambda: self.data.lazy().head(0).collect().to_arrow().schema)

    def take(self, columns: tuple[str, ...]) -> Any:
        """Collect just these columns."""
        import polars as pl

        schema = self.data.collect_schema()
        if any(schema[name] == pl.Object for name in columns):
            raise InvalidType("data holds Python objects in a column that is asked for. Turn them into text first.")
        frame = _converted(lambda: self._collected(columns))
        return _converted(lambda: pl.DataFrame([frame.get_column(name) for name in columns]).to_arrow())

    def _collected(self, columns: tuple[str, ...]) -> Any:
        if not hasattr(self.data, "collect"):
            return self.data
        # Polars reads '*' and names such as '^x$' as patterns.
        plain = not any(name == "*" or name.startswith("^") for name in columns)
        return (self.data.select(columns) if plain else self.data).collect()


@dataclass(frozen=True)
class Foreign:
    """A DuckDB relation on the user's own connection, which is None where the relation does not tell it."""

    relation: Any
    connection: Any


def opened(data: Any) -> Files | Frame | Foreign | CsvStream:
    """Tell what `data` is, or raise naming what is accepted."""
    if isinstance(data, CsvStream):
        return data
    if isinstance(data, pa.RecordBatch):
        return ArrowFrame(pa.Table.from_batches([data]))
    if isinstance(data, pa.Table | pa.RecordBatchReader) or _is(data, "pyarrow.dataset", "Dataset"):
        return ArrowFrame(data)
    if _is(data, "pandas", "DataFrame"):
        return PandasFrame(data)
    if _is(data, "polars", "DataFrame") or _is(data, "polars", "LazyFrame"):
        return PolarsFrame(data)
    if _is(data, "duckdb", "DuckDBPyRelation"):
        return Foreign(data, getattr(data, "_con", None))
    if isinstance(data, tuple) and data and _is(data[0], "duckdb", "DuckDBPyConnection"):
        return Foreign(_table(data), data[0])
    if isinstance(data, str | os.PathLike | list | tuple):
        return files_of(data)
    if hasattr(data, "__arrow_c_stream__"):
        return ArrowFrame(_converted(lambda: pa.RecordBatchReader.from_stream(data)))
    if hasattr(data, "readline"):
        raise InvalidType("data is an open file. Wrap it as CsvStream(file) if it holds CSV, or pass its path.")
    raise InvalidType(f"data must be a table, not {type(data).__name__}. {_ACCEPTED}")


def _is(data: Any, module: str, name: str) -> bool:
    """Tell whether `data` is of a class of a library, without importing it: an object of it has done so already."""
    known = sys.modules.get(module)
    return known is not None and isinstance(data, getattr(known, name))


def _table(pair: tuple[Any, ...]) -> Any:
    if len(pair) != 2 or not isinstance(pair[1], str):
        raise InvalidType("data starts with a DuckDB connection. Pass the pair (connection, name of a table or view).")
    try:
        return pair[0].table(pair[1])
    except Exception as error:
        kind = type(error).__name__
    raise InvalidValue(f"data: table or view {pair[1]!r} of this connection cannot be read ({kind}). Check its name.")


def _or_null(convert: Any, column: Any) -> pa.DataType:
    try:
        return convert(column).type
    except (pa.ArrowException, TypeError, ValueError, AttributeError):
        return pa.null()


def _converted(convert: Any) -> Any:
    """Run a conversion of another library, whose messages may quote values."""
    try:
        return convert()
    except Exception as error:
        kind = type(error).__name__
    hint = "Give each column one name, and values of one type that fit it: whole numbers beyond 64 bits as text."
    raise UnreadableData(f"data cannot be read as a table ({kind}). {hint}")
