"""Detect the kind of input without reading rows, and read frames of every library as Arrow."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpsieve.engines.inputs.files import DataFiles, DataStream, Files, files_of
from dpsieve.errors import InvalidType, InvalidValue, UnreadableData
from dpsieve.values.columns import arrow_column, tried

_ACCEPTED = (
    "Pass a path, glob or list of Parquet, CSV or JSON-lines files; a pandas or Polars frame; an Arrow table, reader "
    "or dataset; a DuckDB relation or (connection, table name); a Spark DataFrame; or dpsieve.files(open file)."
)

DATABASES = ("postgresql://", "postgres://")


def is_database(data: Any) -> bool:
    """Return whether data is the URL of a database. It may contain a password, so it is in no message."""
    return isinstance(data, str) and data.lower().lstrip().startswith(DATABASES)


class Frame:
    """Data in this process as Arrow: a table, reader or dataset, or what is converted to one."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def names(self) -> list[str]:
        """Return the names of all columns whose name is a text."""
        return list(self.data.schema.names)

    def schema(self) -> pa.Schema:
        """Return names and types without converting rows; a column without a type has the type null."""
        return self.data.schema

    def take(self, columns: tuple[str, ...]) -> Any:
        """Return at least these columns, as something that DuckDB scans; it projects readers and datasets itself."""
        return self.data.select(list(columns)) if isinstance(self.data, pa.Table) else self.data


class _PandasFrame(Frame):
    """A pandas DataFrame; see `values.columns` for its types."""

    def names(self) -> list[str]:
        return [name for name in self.data.columns if isinstance(name, str)]

    def schema(self) -> pa.Schema:
        names = self.names()
        once = [name for name in dict.fromkeys(names) if names.count(name) == 1]
        return pa.schema([(name, _type_of(self.data[name].head(0))) for name in once])

    def take(self, columns: tuple[str, ...]) -> Any:
        return _converted(lambda: pa.table({name: arrow_column(self.data[name]) for name in columns}))


class _PolarsFrame(Frame):
    def names(self) -> list[str]:
        return list(self.data.collect_schema().names())

    def schema(self) -> pa.Schema:
        return _converted(lambda: self.data.lazy().head(0).collect().to_arrow().schema)

    def take(self, columns: tuple[str, ...]) -> Any:
        import polars as pl

        schema = self.data.collect_schema()
        if any(schema[name] == pl.Object for name in columns):
            raise InvalidType("data contains Python objects in a column. Convert them to text first.", argument="data")
        exactly = pl.selectors.by_name(*columns)  # a name such as '*' or '^x$' would be a pattern
        return _converted(lambda: self.data.lazy().select(exactly).collect().to_arrow())


@dataclass(frozen=True)
class Foreign:
    """A DuckDB relation on the user's own connection, which is None where the relation hides it."""

    relation: Any
    connection: Any


Source = Files | Frame | Foreign | DataStream


@contextlib.contextmanager
def unchanged(source: object) -> Iterator[None]:
    """Refuse files that change between the first look at them, at their header say, and the end of the block.

    Otherwise rows could be read by the header or the schema of other ones, and one unit could count with old rows here
    and with new ones there. A file that changes in place, to the same size, within one tick of the clock of its file
    system (a few milliseconds) is not noticed.
    """
    before = _stamps(source)
    yield
    if _stamps(source) != before:
        hint = "Nothing was charged. Try again, with a copy of files that are still written to."
        raise UnreadableData(f"data: a file changed while it was read. {hint}")


def _stamps(source: object) -> list[tuple[int, ...] | None]:
    return [_stamp(path) for path in source.paths] if isinstance(source, Files) else []


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return what changes with a file; None where its status cannot be read."""
    status, _ = tried(path.stat)
    return status and (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def open_source(data: Any) -> Source:
    """Return `data` as one of the kinds that engines read, or raise an error that lists what is accepted."""
    return opener_of(data)(data)


def opener_of(data: Any) -> Callable[[Any], Source]:
    """Return the opener of such data, or raise an error that lists what is accepted; nothing is opened or read."""
    if any(map(is_database, data if isinstance(data, list | tuple) else [data])):
        hint = "Name one table of it, such as table='shop.orders'; for numbers, pass it as an Arrow table."
        raise InvalidValue(f"data is a database. {hint}", argument="data")
    if _is(data, "pandas", "Series", "Index") or _is(data, "polars", "Series"):
        raise InvalidType("data is a single column. Pass a DataFrame with all columns.", argument="data")
    for fits, opener in _OPENERS:
        if fits(data):
            return opener
    if hasattr(data, "readline"):
        raise InvalidType("data is an open file. Pass dpsieve.files(file, format='csv'), or its path.", argument="data")
    raise InvalidType(f"data must be a table, not {type(data).__name__}. {_ACCEPTED}", argument="data")


def _is(data: Any, module: str, *names: str) -> bool:
    """Return whether `data` is of a class of a library, which is not imported: only an imported one has objects."""
    library = sys.modules.get(module)
    return library is not None and isinstance(data, tuple(getattr(library, name) for name in names))


def is_spark(data: Any) -> bool:
    """Return whether data is a Spark DataFrame, of a session in this process or of Spark Connect."""
    return _is(data, "pyspark.sql", "DataFrame")


def _table(pair: tuple[Any, ...]) -> Foreign:
    if len(pair) != 2 or not isinstance(pair[1], str):
        raise InvalidType(
            "data is a connection without a table. Pass the pair (connection, name of a table or view).",
            argument="data",
        )
    relation, failure = tried(lambda: pair[0].table(pair[1]))
    if failure is not None:
        why = f"cannot be read ({failure.__name__}). Check its name."
        raise InvalidValue(f"data: table or view {pair[1]!r} of this connection {why}", argument="data")
    return Foreign(relation, pair[0])


def _stream(data: Any) -> Frame:
    reader, failure = tried(lambda: pa.RecordBatchReader.from_stream(data))
    if failure is not None:
        hint = "Pass a stream that was not read before, or a table."
        raise UnreadableData(f"data cannot be opened as an Arrow stream ({failure.__name__}). {hint}")
    return Frame(reader)


_OPENERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Source]], ...] = (
    (lambda data: isinstance(data, DataStream), lambda data: data),
    (lambda data: isinstance(data, pa.RecordBatch), lambda data: Frame(pa.Table.from_batches([data]))),
    (lambda data: isinstance(data, pa.Table | pa.RecordBatchReader), Frame),
    (lambda data: _is(data, "pyarrow.dataset", "Dataset"), Frame),
    (lambda data: _is(data, "pandas", "DataFrame"), _PandasFrame),
    (lambda data: _is(data, "polars", "DataFrame", "LazyFrame"), _PolarsFrame),
    (lambda data: _is(data, "duckdb", "DuckDBPyRelation"), lambda data: Foreign(data, getattr(data, "_con", None))),
    (lambda data: isinstance(data, tuple) and bool(data) and _is(data[0], "duckdb", "DuckDBPyConnection"), _table),
    (lambda data: isinstance(data, str | os.PathLike | list | tuple | DataFiles), files_of),
    (lambda data: hasattr(data, "__arrow_c_stream__"), _stream),
)


def _type_of(column: Any) -> pa.DataType:
    type_, failure = tried(lambda: arrow_column(column).type)
    return type_ if failure is None else pa.null()


def _converted(convert: Callable[[], Any]) -> Any:
    table, failure = tried(convert)
    if failure is not None:
        hint = "Give each column one name, and values of one type that fit it: whole numbers beyond 64 bits as text."
        raise UnreadableData(f"data cannot be read as a table ({failure.__name__}). {hint}")
    return table
