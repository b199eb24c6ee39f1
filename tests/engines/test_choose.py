"""The engine is chosen from the data."""

import io

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from dpsieve.engines import DuckDB, choose
from dpsieve.engines.inputs.files import DataStream
from dpsieve.errors import InvalidType

TABLE = pa.table({"unit": [1], "key": ["a"]})


@pytest.mark.parametrize(
    "data",
    ["not there.parquet", ["a.csv", "b.csv"], TABLE, TABLE.to_pandas(), (duckdb.connect(), "not there")],
    ids=["path", "list", "arrow", "pandas", "connection"],
)
def test_data_that_duckdb_reads(data):
    """Whether it can be read is found out later."""
    assert isinstance(choose(data)[1], DuckDB)


def test_a_stream_is_not_touched(frequencies):
    class Once:
        def __init__(self):
            self.calls = 0

        def __arrow_c_stream__(self, schema=None):
            self.calls += 1
            return TABLE.__arrow_c_stream__(schema)

    once, stream = Once(), DataStream(io.StringIO("unit,key\n1,a\n"))
    choose(once), choose(stream)
    assert once.calls == 0
    assert frequencies(once) == frequencies(stream) == {"a": 1}


def test_an_engine_that_is_passed_is_used():
    mine = DuckDB(threads=1)
    assert choose(TABLE, mine) == (TABLE, mine)
    with pytest.raises(InvalidType, match="engine must be an engine, not str"):
        choose(TABLE, "duckdb")


@pytest.mark.parametrize("data", [None, 3, b"x.csv", {"a": 1}, open])
def test_what_is_no_table(data):
    with pytest.raises(InvalidType, match=r"data must be a table, not .*\. Pass a path"):
        choose(data)
    with pytest.raises(InvalidType, match=r"dpsieve\.files"):
        choose(io.StringIO())


def test_an_object_column_is_still_a_frame():
    assert isinstance(choose(pd.DataFrame({"a": [object()]}))[1], DuckDB)
