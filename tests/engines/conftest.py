"""Every engine passes this suite: add it to ENGINES. Every kind of input gives the same counts: add it to KINDS."""

import gzip
import io
import json

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import pytest
from helpers.counting import found

from dpsieve.engines import DuckDB
from dpsieve.engines.duckdb.compiled import load_loops
from dpsieve.engines.inputs.files import DataStream, files


def compiled():
    """DuckDB with compiled loops wherever they can be used, whatever the size and the cores."""
    return DuckDB(compiled_from=0, threads=2)


ENGINES = [DuckDB, compiled]


def parquet(table, folder):
    path = folder / "rows.parquet"
    pa.parquet.write_table(table, path)
    return path


def several_parquet(table, folder):
    half = table.num_rows // 2
    for i, part in enumerate([table.slice(0, half), table.slice(half), table.slice(0, 0)]):
        pa.parquet.write_table(part, folder / f"part [{i}]*.parquet")
    return folder


def csv_bytes(table, separator=","):
    """CSV as we promise to read it: a null is an empty field, all else may be quoted."""
    lines = [separator.join(_quoted(name) for name in table.column_names)]
    for row in table.to_pylist():
        lines += [separator.join("" if v is None else _quoted(str(v)) for v in row.values())]
    return ("\n".join(lines) + "\n").encode()


def _quoted(text):
    return '"' + text.replace('"', '""') + '"'


def csv(table, folder):
    path = folder / "rows.csv"
    path.write_bytes(csv_bytes(table))
    return str(path)


def semicolons(table, folder):
    path = folder / "rows.csv"
    path.write_bytes(csv_bytes(table, ";"))
    return path


def zipped_tsv(table, folder):
    path = folder / "rows.tsv.gz"
    path.write_bytes(gzip.compress(csv_bytes(table, "\t")))
    return path


def csv_glob(table, folder):
    half = table.num_rows // 2
    (folder / "day1.csv").write_bytes(csv_bytes(table.slice(0, half)))
    (folder / "day2.csv").write_bytes(csv_bytes(table.slice(half)))
    (folder / "day3.csv").write_bytes(b"")
    return str(folder / "day*.csv")


def csv_without_header(table, folder):
    """Two files whose names say nothing; the caller says what they hold."""
    half = table.num_rows // 2
    head, body = csv_bytes(table.slice(0, half), "|").split(b"\n", 1)
    (folder / "day 1").write_bytes(body)
    (folder / "day 2.gz").write_bytes(gzip.compress(csv_bytes(table.slice(half), "|").split(b"\n", 1)[1]))
    return files(str(folder / "day *"), format="csv", header=head.decode())


def parquet_without_a_telling_name(table, folder):
    pa.parquet.write_table(table, folder / "000000_0")
    return files(folder / "000000_0", format="parquet")


def json_lines(table, folder):
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return [path]


def zipped_json(table, folder):
    path = folder / "rows.json.gz"
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist())
    path.write_bytes(gzip.compress(lines.encode()))
    return path


def database(table, folder):
    connection = duckdb.connect(str(folder / "rows.duckdb"))
    connection.register("given", table)
    connection.execute('CREATE TABLE "the rows" AS SELECT * FROM given')
    return connection, '"the rows"'


class Exporter:
    """Some library's table that exports an Arrow stream."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def relation(table, folder):
    connection, name = database(table, folder)
    return connection.table(name).filter("true")


TEXT_KINDS = {
    "csv": csv,
    "csv with semicolons": semicolons,
    "csv without header": csv_without_header,
    "zipped tsv": zipped_tsv,
    "glob of csv, one empty": csv_glob,
    "json lines": json_lines,
    "zipped json lines": zipped_json,
    "binary stream": lambda table, folder: DataStream(io.BytesIO(csv_bytes(table))),
    "text stream": lambda table, folder: DataStream(io.StringIO(csv_bytes(table).decode(), newline="")),
}
TYPED_KINDS = {
    "parquet": parquet,
    "folder of parquet": several_parquet,
    "parquet without a telling name": parquet_without_a_telling_name,
    "pandas": lambda table, folder: table.to_pandas(),
    "pandas nullable": lambda table, folder: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda table, folder: pl.from_arrow(table),
    "polars lazy": lambda table, folder: pl.from_arrow(table).lazy(),
    "arrow table": lambda table, folder: table,
    "arrow reader": lambda table, folder: table.to_reader(max_chunksize=7),
    "arrow dataset": lambda table, folder: pa.dataset.dataset(parquet(table, folder)),
    "arrow stream": lambda table, folder: Exporter(table),
    "relation": relation,
    "connection and table": database,
}
KINDS = TEXT_KINDS | TYPED_KINDS


@pytest.fixture(scope="session", autouse=True)
def tested_loops():
    """The self-test of compiled loops, which runs at their first use, before any test replaces parts of them."""
    load_loops()


@pytest.fixture(params=ENGINES, ids=lambda make: make.__name__)
def engine(request):
    return request.param()


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request):
    return request.param


@pytest.fixture
def frequencies(engine):
    """A function that counts and returns {key: frequency}; a key of several columns is a tuple."""

    def count(data, key="key", using=engine, **how):
        return found(using, data, key=(key,) if isinstance(key, str) else key, **how)

    return count


@pytest.fixture
def listed(kind):
    """Whether the names of columns come from a schema, so that they may be told."""
    return kind in TYPED_KINDS.values()
