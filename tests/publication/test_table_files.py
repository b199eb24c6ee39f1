"""The table of a release for other tools: CSV, rows of Python, Arrow streams; whatever the keys hold."""

import csv
import io
import json
import math
import os
import signal
import subprocess
import sys
from decimal import Decimal

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.counting import aggregation

import dpsieve as ds
from dpsieve.engines import Columns, DuckDB
from dpsieve.errors import InvalidValue
from dpsieve.privacy.guarantee import Contribution
from dpsieve.publication.files import Reserved, file_table, formulas, write_table
from dpsieve.testing import insecure_source

HOSTILE = [
    "",
    " tea ",
    'a "quote"',
    "a,comma",
    "two\nlines",
    "\r\n",
    "=1+1",
    "-5",
    "007",
    "NaN",
    "null",
    "键 🫖",
    "\0",
    "#",
]


def made(keys, frequency=500, **options):
    return ds.channels.known_keys(1.0).release(keys, [frequency] * len(keys), **options)


def parsed(text):
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def test_csv_has_a_header_and_the_rows_of_the_table_sorted_by_key():
    release = made(["tea", "coffee"])
    head, *rows = parsed(release.to_csv())
    assert head == ["key", "count", "low", "high", "weight"]
    assert [row[0] for row in rows] == ["coffee", "tea"]
    assert [int(row[1]) for row in rows] == release.table["count"].to_pylist()


@pytest.mark.parametrize("read", ["csv", "pandas", "polars", "duckdb", "dpsieve"])
def test_every_text_comes_back_as_it_was(tmp_path, read):
    release = made(HOSTILE)
    path = release.to_csv(tmp_path / "x.csv")
    if read == "csv":
        found = [row[0] for row in parsed(path.read_bytes().decode())[1:]]
    elif read == "pandas":
        engine = "c" if pd.__version__ >= "3" else "python"  # the reader in C of pandas 2 loses NUL
        found = pd.read_csv(path, dtype={"key": str}, keep_default_na=False, engine=engine)["key"].tolist()
    elif read == "polars":
        found = pl.read_csv(path, schema_overrides={"key": pl.String})["key"].to_list()
    elif read == "duckdb":
        rows = duckdb.read_csv(str(path), all_varchar=True, header=True).fetchall()
        found = [row[0] or "" for row in rows]  # it reads an empty field as null, also in quotes
    else:
        counted = DuckDB().aggregate(str(path), aggregation(Columns(("key",)), Contribution(), salt=1))
        found = ["", *counted.keys["key"].to_pylist()]
    assert sorted(found) == sorted(HOSTILE)


def test_two_key_columns_with_odd_names():
    keys = pa.table({"class": ["a", "a", "b"], '1st, "x"': [2, 10, 1]})
    release = made(keys)
    assert [row[:2] for row in parsed(release.to_csv())] == [["class", '1st, "x"'], ["a", "2"], ["a", "10"], ["b", "1"]]
    assert [(row["class"], row['1st, "x"']) for row in release] == [("a", 2), ("a", 10), ("b", 1)]


TYPES = {
    "bytes": (pa.array([b"\x00\xff", b"tea"]), ["00ff", "746561"]),
    "fixed bytes": (pa.array([b"\x00\xff", b"te"], pa.binary(2)), ["00ff", "7465"]),
    "dates": (pa.array([19_782, 3_000_000], pa.int32()).cast(pa.date32()), ["2024-02-29", "10183-09-21"]),
    "times with a zone": (pa.array([0, 1], pa.timestamp("ns", "UTC")),
                          ["1970-01-01 00:00:00.000000000Z", "1970-01-01 00:00:00.000000001Z"]),
    "floats": (pa.array([-math.inf, 0.1, math.nan]), ["-inf", "0.1", "nan"]),
    "decimals": (pa.array([Decimal("0.10"), Decimal("2.00")]), ["0.10", "2.00"]),
    "large numbers": (pa.array([2**63, 2**64 - 1], pa.uint64()), [str(2**63), str(2**64 - 1)]),
    "booleans": (pa.array([False, True]), ["false", "true"]),
    "views": (pa.array(["a", "b"], pa.string_view()), ["a", "b"]),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_how_keys_of_other_types_are_written(name, tmp_path):
    keys, written = TYPES[name]
    release = made(keys)
    assert [row[0] for row in parsed(release.to_csv())[1:]] == written
    rows = [json.loads(line) for line in write_table(release, tmp_path / "x.jsonl").read_text().splitlines()]
    assert len(rows) == len(list(release)) == len(keys)
    if name == "floats":
        assert [row["key"] for row in rows] == ["-Infinity", 0.1, "NaN"]
    if name == "bytes":
        assert [row["key"] for row in rows] == ["AP8=", "dGVh"] and [row["key"] for row in release] == keys.to_pylist()
    again = pq.read_table(write_table(release, tmp_path / "x.parquet"))
    assert again.schema.equals(release.table.schema) and again.to_string() == release.table.to_string()


def test_formulas_are_escaped_where_the_caller_wants_it():
    runs = ["=1+1", "+49 30", "-5", "@dril", "\tx", "\rx", "\n=x", "\uff1d1", "\uff0b1", "\uff0d1", "\uff20x"]
    keys = [*runs, "1=1", "tea", "'x", "1\n=2", "\uff11"]
    release = made(pa.table({"=key": keys}))
    assert {row[0] for row in parsed(release.to_csv())} == {"=key", *keys}
    escaped = parsed(release.to_csv(escape_formulas=True))
    assert escaped[0][0] == "'=key"
    assert {row[0] for row in escaped[1:]} == {*("'" + key for key in runs), *keys[len(runs) :]}
    assert formulas(release.table) == len(runs)
    assert formulas(made([1, -2]).table) == 0  # numbers are numbers, also below zero
    assert "\n-2," in made([1, -2]).to_csv(escape_formulas=True)


def test_what_a_test_source_drew_is_marked_in_every_row_and_without_rows(tmp_path):
    unsafe = made(["tea", "coffee"], source=insecure_source(1))
    head, *rows = parsed(unsafe.to_csv())
    assert head[-1] == "unsafe_to_publish" and [row[-1] for row in rows] == ["true", "true"]
    assert "unsafe_to_publish" not in made(["tea"]).to_csv()
    empty = ds.channels.optimal(1.0, 1e-8).release(["tea"], [1], source=insecure_source(1))
    assert parsed(empty.to_csv()) == [["key", "count", "low", "high", "weight", "bound", "unsafe_to_publish"]]
    for name in ("x.jsonl", "x.parquet"):
        assert b"unsafe_to_publish" in write_table(unsafe, tmp_path / name).read_bytes()
    same = made(pa.table({"unsafe_to_publish": [0]}), source=insecure_source(1))
    assert file_table(same).column_names[-1] == "unsafe_to_publish_"


def test_a_file_is_replaced_whole_or_stays_as_it_was(tmp_path, monkeypatch):
    path = made(["tea"]).to_csv(tmp_path / "x.csv")
    made(["coffee"]).to_csv(path)
    assert "coffee" in path.read_text() and "tea" not in path.read_text()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InvalidValue, match=r"path='.*x.csv' cannot be written \(No space left on device\)"):
        made(["juice"]).to_csv(path)
    assert "coffee" in path.read_text() and os.listdir(tmp_path) == ["x.csv"]  # noqa: PTH208
    with pytest.raises(InvalidValue, match="folder that does not exist"):
        made(["juice"]).to_csv(tmp_path / "missing" / "x.csv")


def test_rows_are_made_as_they_are_read(monkeypatch):
    from dpsieve.publication import publication

    taken = []
    before = publication.plain_rows
    monkeypatch.setattr(publication, "plain_rows", lambda table: taken.append(len(table)) or before(table))
    rows = iter(made(list(range(30_000))))
    assert (next(rows)["key"], taken) == (0, [10_000])
    assert [row["key"] for row in rows] == list(range(1, 30_000)) and taken == [10_000] * 3


def test_pandas_polars_and_duckdb_read_a_release_as_an_arrow_stream():
    release = made(pa.table({"drink": ["tea", "mate"], "size": [1, 2]}))
    if tuple(map(int, pl.__version__.split(".")[:2])) >= (1, 5):  # which first reads such streams
        assert pl.DataFrame(release).equals(release.to_polars())
    pd.testing.assert_frame_equal(pd.DataFrame(release), release.to_pandas())
    assert duckdb.sql("SELECT drink FROM release ORDER BY size").fetchall() == [("tea",), ("mate",)]
    assert pa.RecordBatchReader.from_stream(release).read_all().equals(release.table)


def test_a_file_in_a_reserved_place_replaces_nothing(tmp_path, monkeypatch):
    with Reserved(tmp_path / "x.csv") as place:
        assert write_table(made(["tea"]), place) == tmp_path / "x.csv"
    assert os.listdir(tmp_path) == ["x.csv"] and "tea" in (tmp_path / "x.csv").read_text()  # noqa: PTH208
    for links in (True, False):
        if not links:
            monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(PermissionError(1, "no links here")))
            with Reserved(tmp_path / "z.csv") as place:
                write_table(made(["tea"]), place)
            assert "tea" in (tmp_path / "z.csv").read_text()
        with Reserved(tmp_path / "y.csv") as place:
            (tmp_path / "y.csv").write_text("of someone else")
            with pytest.raises(FileExistsError):
                write_table(made(["tea"]), place)
        assert (tmp_path / "y.csv").read_text() == "of someone else"
        (tmp_path / "y.csv").unlink()
    assert sorted(os.listdir(tmp_path)) == ["x.csv", "z.csv"]  # noqa: PTH208


def test_a_kill_after_a_file_was_written_leaves_it_and_what_is_hidden_goes(tmp_path):
    (tmp_path / "x.csv").write_text("whole")
    (tmp_path / ".x.csv.partial").mkdir()
    (tmp_path / ".x.csv.partial" / "table").hardlink_to(tmp_path / "x.csv")
    with pytest.raises(InvalidValue, match="exists already"), Reserved(tmp_path / "x.csv"):
        pass
    assert os.listdir(tmp_path) == ["x.csv"] and (tmp_path / "x.csv").read_text() == "whole"  # noqa: PTH208


SLOW = """
import os, sys, dpsieve as ds
from dpsieve.publication.files import Reserved
from dpsieve.publication.files import write_table
def stop(handle):
    print(1, flush=True)
    input()
os.fsync = stop
release = ds.channels.known_keys(1.0).release(["tea"], [500])
with Reserved(sys.argv[1]) as place:
    write_table(release, place)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_kill_while_a_file_is_written_leaves_no_half_of_it(tmp_path):
    command = [sys.executable, "-c", SLOW, tmp_path / "x.csv"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert not (tmp_path / "x.csv").exists() and (tmp_path / ".x.csv.partial" / "table").exists()
        with pytest.raises(InvalidValue, match="being written by another process"), Reserved(tmp_path / "x.csv"):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
    with Reserved(tmp_path / "x.csv") as place:
        write_table(made(["tea"]), place)
    assert os.listdir(tmp_path) == ["x.csv"]  # noqa: PTH208


def test_a_notebook_shows_the_start_of_a_long_key_and_says_how_long_it_is():
    page = made(["<" * 5_000])._repr_html_()
    assert page.count("&lt;") == 200 and "(5,000 characters)" in page


def test_an_empty_release_says_what_to_do():
    empty = ds.channels.optimal(1.0, 1e-8).release(["tea"], [1])
    assert "of 0 rows" in repr(empty) and "No key was frequent enough: dpsieve.preview" in repr(empty)
    assert "dpsieve.preview" in empty._repr_html_() and "dpsieve.preview" not in repr(made(["tea"]))
