"""What the caller says about files whose names do not tell: their format, and the header line that CSV lacks."""

import io
import json

import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.counting import count, found

import dpsieve as ds
from dpsieve.engines import DuckDB
from dpsieve.errors import DpsieveError, InvalidValue, UnreadableData

ENGINE = DuckDB()
TABLE = pa.table({"unit": [1, 2, 3], "key": ["a", "a", "007"]})
LINES = "".join(json.dumps(row) + "\n" for row in TABLE.to_pylist())


def streams():
    file = io.BytesIO()
    pa.parquet.write_table(TABLE, file)
    file.seek(0)
    return {
        "csv": ds.files(io.StringIO("unit,key\n1,a\n2,a\n3,007\n")),
        "csv without header": ds.files(io.BytesIO(b"1;a\n2;a\n3;007\n"), header="unit;key"),
        "tsv": ds.files(io.BytesIO(b"unit\tkey\n1\ta\n2\ta\n3\t007\n"), format="tsv"),
        "tsv without header": ds.files(io.BytesIO(b"1\ta\n2\ta\n3\t007\n"), format="tsv", header="unit,key"),
        "jsonl": ds.files(io.BytesIO(LINES.encode()), format="jsonl"),
        "parquet": ds.files(file, format="parquet"),
    }


@pytest.mark.parametrize("name", streams())
def test_a_stream_of_every_format_is_read_once(name):
    assert found(ENGINE, streams()[name], key=("key",)) == {"a": 2, "007": 1}
    stream = streams()[name]
    told = ENGINE.columns(stream)
    assert told == [("unit", "BIGINT" if name == "parquet" else "VARCHAR"), ("key", "VARCHAR")]
    count(ENGINE, stream := streams()[name])
    with pytest.raises(InvalidValue, match="standard input was read already"):
        count(ENGINE, stream)


def test_no_row_stands_for_a_header(tmp_path):
    """Neither the first row nor any other decides columns or separator, so that none of them can be seen by that."""
    path = tmp_path / "rows"
    for first in ("x;y;z|t", "unit", '"', ",,,"):
        path.write_text(f'1,"{first.replace(chr(34), chr(34) * 2)}"\n2,a\n')
        data = ds.files(path, format="csv", header="unit,key")
        assert found(ENGINE, data, key=("key",)) == {first: 1, "a": 1}
        assert ENGINE.columns(data) == [("unit", "VARCHAR"), ("key", "VARCHAR")]


def test_without_rows_there_are_columns_all_the_same(tmp_path):
    (tmp_path / "rows.csv").touch()
    assert found(ENGINE, ds.files(tmp_path / "rows.csv", header="unit,key"), key=("key",)) == {}
    with pytest.raises(UnreadableData, match="empty"):  # a pipe whose first command failed
        found(ENGINE, ds.files(io.BytesIO(b""), header="unit,key"), key=("key",))


def test_odd_headers(tmp_path):
    (tmp_path / "rows.csv").write_text("1,a,x\n2,a,y\n")
    (tmp_path / "rows.tsv").write_text("1\ta,b\n")
    assert found(ENGINE, ds.files(tmp_path / "rows.csv", header="unit,key,"), key=("key",)) == {"a": 2}
    assert found(ENGINE, ds.files(tmp_path / "rows.csv", header='unit,"a, ""b"" 键",'), key=('a, "b" 键',)) == {"a": 2}
    assert found(ENGINE, ds.files(tmp_path / "rows.tsv", header="unit,key"), key=("key",)) == {"a,b": 1}
    with pytest.raises(InvalidValue, match="several columns"):
        count(ENGINE, ds.files(tmp_path / "rows.csv", header="unit,key,key"))
    with pytest.raises(UnreadableData, match=r"line 1 of .*rows.csv. cannot be read") as caught:
        count(ENGINE, ds.files(tmp_path / "rows.csv", header="unit,key"))
    assert "a,x" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"format": "xlsx"}, "format is not known. Pass one of 'csv', 'tsv', 'jsonl', 'parquet'"),
        ({"format": ["csv"]}, "format is not known"),
        ({"header": ""}, "header is not a line of column names"),
        ({"header": ",,"}, "header is not a line of column names"),
        ({"header": "a\nb"}, "header is not a line of column names"),
        ({"header": ["a", "b"]}, "header is not a line of column names"),
        ({"header": "a,b", "format": "jsonl"}, "header is for CSV files"),
    ],
)
def test_what_cannot_be_said(options, why):
    with pytest.raises(InvalidValue, match=why):
        ds.files("rows", **options)


def test_names_that_do_not_fit(tmp_path):
    (tmp_path / "rows.log").write_text("unit,key\n1,a\n")
    pa.parquet.write_table(TABLE, tmp_path / "rows.parquet")
    with pytest.raises(InvalidValue, match=r"has an unsupported extension.*dpsieve.files\(data, format='csv'\)"):
        count(ENGINE, tmp_path / "rows.log")
    with pytest.raises(InvalidValue, match="header is for CSV"):
        count(ENGINE, ds.files(tmp_path / "rows.parquet", header="unit,key"))
    with pytest.raises(InvalidValue, match=r"is a folder\. Pass a glob"):
        count(ENGINE, ds.files(tmp_path, format="csv"))
    for wrong in ("jsonl", "parquet"):
        with pytest.raises(DpsieveError) as caught:
            count(ENGINE, ds.files(tmp_path / "rows.log", format=wrong))
        assert "1,a" not in str(caught.value)
    assert found(ENGINE, ds.files(tmp_path, format="parquet"), key=("key",)) == {"a": 2, "007": 1}


def test_every_job_takes_them(tmp_path):
    (tmp_path / "rows").write_text("".join(f"{i},tea,{i % 7}\n" for i in range(500)))
    rows = ds.files(tmp_path / "rows", format="csv", header="user,query,hour")
    asked = {"key": "query", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-6, "max_keys_per_unit": 1}
    assert ds.release(rows, **asked).table["query"].to_pylist() == ["tea"]
    assert ds.discover(rows, **asked).table["query"].to_pylist() == ["tea"]
    assert ds.preview(rows, **asked).half < 500
    assert 2 < ds.mean(rows, column="hour", bounds=(0, 6), privacy_unit="user", epsilon=1.0).value < 4
    with pytest.raises(InvalidValue, match="is not a column of the data"):
        ds.preview(rows, **asked | {"key": "query_"})
