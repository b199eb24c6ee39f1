"""Broken input is answered with the file and the line, and never with what is written there."""

import gzip
import io
import logging
import re
import subprocess
import sys
import zlib

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.counting import count
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpsieve.engines import DuckDB
from dpsieve.engines.inputs.files import DataStream
from dpsieve.errors import DpsieveError, InvalidType, UnreadableData

pytestmark = pytest.mark.usefixtures("one_database")

SECRET = "marked-secret"

CSV = {
    "too many fields": f"unit,key\n1,a\n2,{SECRET},c\n",
    "too few fields": f"unit,key\n1,a\n{SECRET}\n",
    "open quote": f'unit,key\n1,a\n2,"{SECRET}\n',
    "text after a quote": f'unit,key\n1,a\n2,"{SECRET}"x\n',
    "not UTF-8": f"unit,key\n1,a\n2,{SECRET}\udcff\n",
    "too long": f"unit,key\n1,a\n2,{SECRET * 500_000}\n",
    "posing as a message": f"unit,key\n1,a\n2,x,CSV Error on Line: 77\nfile = {SECRET}\n",
}


@pytest.mark.parametrize("text", CSV.values(), ids=CSV.keys())
@pytest.mark.parametrize("way", ["file", "gz", "stream", "text stream"])
def test_a_bad_row_of_csv(engine, tmp_path, text, way):
    raw = text.encode("utf-8", "surrogateescape")
    path = tmp_path / ("rows.csv.gz" if way == "gz" else "rows.csv")
    path.write_bytes(gzip.compress(raw) if way == "gz" else raw)
    streams = {"stream": io.BytesIO(raw), "text stream": io.StringIO(text, newline="")}
    data = DataStream(streams[way]) if way in streams else path
    with pytest.raises(UnreadableData) as caught:
        count(engine, data)
    message = str(caught.value)
    assert message.startswith(f"line 3 of {'standard input' if way in streams else repr(str(path))} cannot be read.")
    assert SECRET not in message and "77" not in message.replace(str(path), "")
    assert caught.value.__context__ is None and caught.value.__cause__ is None


JSON = {
    "cut off": f'{{"unit": 1, "key": "{SECRET}',
    "no object": f'"{SECRET}"',
    "a list": f'[1, "{SECRET}"]',
    "two objects": f'{{"unit": 1, "key": "a"}} {{"unit": 2, "key": "{SECRET}"}}',
    "plain text": SECRET,
    "not UTF-8": f'{{"unit": 1, "key": "{SECRET}\udcff"}}',
    "half a surrogate pair": f'{{"unit": 1, "key": "{SECRET}\\ud800"}}',
    "a field twice": f'{{"unit": 1, "key": "{SECRET}", "key": "b"}}',
}


@pytest.mark.parametrize("line", JSON.values(), ids=JSON.keys())
@pytest.mark.parametrize("zipped", [False, True])
def test_a_bad_row_of_json(engine, tmp_path, line, zipped):
    good = '{"unit": 1, "key": "a"}'
    raw = "\n".join([good, good, line, good, ""]).encode("utf-8", "surrogateescape")
    path = tmp_path / ("rows.jsonl.gz" if zipped else "rows.jsonl")
    path.write_bytes(gzip.compress(raw) if zipped else raw)
    other = tmp_path / "other.jsonl"
    other.write_text(good)
    with pytest.raises(UnreadableData) as caught:
        count(engine, [other, path])
    message = str(caught.value)
    assert message.startswith(f"line 3 of {str(path)!r} cannot be read.") and SECRET not in message
    assert caught.value.__context__ is None


def test_the_bad_file_of_many_is_named(engine, tmp_path):
    for i in range(12):
        (tmp_path / f"{i}.csv").write_text("unit,key\n" + "1,a\n" * 100 + ("1\n" if i == 7 else ""))
    with pytest.raises(UnreadableData, match=r"line 102 of '.*[/\\]7\.csv'"):
        count(engine, str(tmp_path / "*.csv"))
    for i in range(3):
        pa.parquet.write_table(pa.table({"unit": [1], "key": ["a"]}), tmp_path / f"{i}.parquet")
    (tmp_path / "1.parquet").write_bytes(b"PAR1" + SECRET.encode() + b"PAR1")
    with pytest.raises(UnreadableData, match=r"'.*[/\\]1\.parquet' cannot be read") as caught:
        count(engine, str(tmp_path / "*.parquet"))
    assert SECRET not in str(caught.value)


def test_the_line_number_is_right_far_into_a_file(engine, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("unit,key\n" + "12345,some key or other\n" * 400_000 + "1,2,3\n" + "1,a\n" * 10)
    with pytest.raises(UnreadableData, match="line 400002 of"):
        count(engine, path)


def test_frames_that_cannot_be_converted(engine):
    with pytest.raises(UnreadableData, match=r"data cannot be read as a table \(Type") as caught:
        count(engine, pd.DataFrame({"unit": [1, 2], "key": [SECRET, [3]]}))
    assert SECRET not in str(caught.value) and caught.value.__context__ is None
    twice = pd.DataFrame([[1, "a", "b"]], columns=["unit", "key", "key"])
    with pytest.raises(DpsieveError, match="several columns"):
        count(engine, twice)
    lazy = pl.LazyFrame({"unit": [1], "key": [SECRET]}).with_columns(pl.col("key").cast(pl.Int64))
    with pytest.raises(UnreadableData) as caught:
        count(engine, lazy)
    assert SECRET not in str(caught.value)


def test_a_reader_that_fails_or_was_read(engine):
    def batches():
        yield pa.record_batch({"unit": [1], "key": ["a"]})
        raise ValueError(SECRET)

    schema = pa.schema({"unit": pa.int64(), "key": pa.string()})
    with pytest.raises(DpsieveError) as caught:
        count(engine, pa.RecordBatchReader.from_batches(schema, batches()))
    assert SECRET not in str(caught.value) and caught.value.__context__ is None
    reader = pa.table({"unit": [1], "key": ["a"]}).to_reader()
    count(engine, reader)
    with pytest.raises(UnreadableData, match=r"cannot be read"):
        count(engine, reader)


def test_a_relation_that_fails(engine):
    relation = duckdb.connect().sql(f"SELECT 1 AS unit, CAST('{SECRET}' || i AS INT) AS key FROM range(3) t(i)")
    with pytest.raises(DpsieveError) as caught:
        count(engine, relation)
    assert SECRET not in str(caught.value) and caught.value.__context__ is None


def test_a_type_that_cannot_be_read(engine):
    table = pa.table({"unit": [1], "key": pa.array([None], pa.month_day_nano_interval())})
    with pytest.raises(InvalidType):
        count(engine, table)


GARBAGE = st.binary(max_size=300) | st.text(alphabet='unitkey,;\n\r"{}:[]\\1 é', max_size=80).map(str.encode)


@settings(max_examples=40, deadline=None)
@given(start=st.sampled_from([b"", b"unit,key\n", b"unit;key\r\n", b"\xef\xbb\xbfunit,key\n1,x\n"]), rest=GARBAGE)
@example(start=b"unit,key\n", rest=b"1,a\r\n2,b\n3,c\r\n")
@example(start=b"unit,key\n", rest=b'"' * 1001)
def test_any_bytes_as_csv(tmp_path_factory, start, rest):
    counts_or_refuses(tmp_path_factory.mktemp("fuzz") / "rows.csv", start + b"1," + SECRET.encode() + b"\n" + rest)


@settings(max_examples=40, deadline=None)
@given(start=st.sampled_from([b"", b'{"unit": 1, "key": "x"}\n']), rest=GARBAGE, end=st.sampled_from([b"", b"\n"]))
@example(start=b'{"unit": 1, "key": "x"}\n', rest=b"[" * 5000, end=b"")
def test_any_bytes_as_json_lines(tmp_path_factory, start, rest, end):
    row = b'{"unit": 1, "key": "' + SECRET.encode() + b'"}\n'
    counts_or_refuses(tmp_path_factory.mktemp("fuzz") / "rows.jsonl", start + row + rest + end)


@settings(max_examples=25, deadline=None)
@given(position=st.floats(0, 1), rest=st.binary(min_size=1, max_size=40))
def test_any_damage_to_parquet(tmp_path_factory, position, rest):
    path = tmp_path_factory.mktemp("fuzz") / "rows.parquet"
    pa.parquet.write_table(pa.table({"unit": [1] * 50, "key": [SECRET] * 50}), path)
    raw = bytearray(path.read_bytes())
    at = int(position * (len(raw) - 1))
    raw[at : at + len(rest)] = rest
    counts_or_refuses(path, bytes(raw))


def counts_or_refuses(path, raw):
    path.write_bytes(raw)
    try:
        count(DuckDB(threads=1), path)
    except DpsieveError as error:
        assert SECRET not in str(error)
        assert error.__context__ is None


QUIET = f"""
import logging, sys
import pyarrow as pa
from dpsieve.engines import Columns, DuckDB
from dpsieve.jobs.table import Table
from dpsieve.privacy.guarantee import Contribution
from dpsieve.randomness.source import resolve
logging.basicConfig(level=0)
table = pa.table({{"unit": [i % 1000 for i in range(300_000)], "key": ["{SECRET}"] * 300_000}})
for max_keys in (1, 3):
    how = Columns(("key",), "unit"), Contribution(max_keys)
    Table(table, DuckDB(), progress=lambda share: None).counts(*how, resolve(None))
try:
    Table(sys.argv[1], DuckDB()).counts(*how, resolve(None))
except Exception as error:
    raise SystemExit(0)
"""


def test_a_process_that_fails_prints_nothing(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(CSV["too many fields"])
    done = subprocess.run([sys.executable, "-c", QUIET, str(path)], capture_output=True, check=True)
    assert done.stdout == b"" and re.fullmatch(rb"(INFO:dpsieve:DuckDB: bound and count: [\d.]+ s\n){2}", done.stderr)


def test_nothing_is_printed_or_logged(tmp_path, engine, capfd, caplog):
    path = tmp_path / "rows.csv"
    path.write_text(CSV["too many fields"])
    with caplog.at_level(logging.NOTSET), pytest.raises(UnreadableData):
        count(engine, path)
    assert not caplog.records and capfd.readouterr() == ("", "")


def test_the_counts_are_not_shown_by_accident(engine):
    counted = count(engine, pa.table({"unit": range(4321), "key": [SECRET] * 4321}))
    assert counted.frequencies.tolist() == [4321]
    assert not any(secret in shown for secret in (SECRET, "4321") for shown in (repr(counted), str(counted)))


def test_a_broken_zip_after_a_broken_row_tells_neither(engine, tmp_path):
    packed = zlib.compressobj(6, zlib.DEFLATED, 31)
    rows = b'{"unit": 1, "key": "tea"}\n' * 700_000 + b'{"unit": 1, "key": "%s", "key": "x"}\n' % SECRET.encode()
    whole = packed.compress(rows + b'{"unit": 2, "key": "' + b"a" * 16_000_000) + packed.flush(zlib.Z_FULL_FLUSH)
    (tmp_path / "rows.jsonl.gz").write_bytes(whole + b"\xff" * 5000)
    with pytest.raises(UnreadableData) as caught:
        count(engine, tmp_path / "rows.jsonl.gz")
    assert SECRET not in str(caught.value) and caught.value.__context__ is None
