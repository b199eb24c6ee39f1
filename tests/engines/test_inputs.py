"""The same table counts the same, however it comes."""

import gzip
import os
import tracemalloc

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.counting import count

from dpsieve.engines import DuckDB
from dpsieve.engines.inputs.files import DataStream, files_of
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue, UnreadableData
from dpsieve.jobs.preview import preview
from dpsieve.privacy.ledger import Ledger
from dpsieve.publication.files import Reserved

pytestmark = pytest.mark.usefixtures("one_database")

ODD = "se\"lect; 键 'x'"
ROWS = [
    ("ann", "tea", 1),
    ("ann", "tea", 2),
    ("bob", "tea", 3),
    ("bob", 'a, "quoted"\nline;\ttab|bar\'', 4),
    ("eve", "🫖 emoji", 5),
    ("eve", None, 6),
    ("zoe", "007", 7),
    ("zoe", "1e3", 8),
    ("zoe", "NULL", 9),
    ("zoe", "nan", 10),
]
TABLE = pa.table(
    {"unit": [r[0] for r in ROWS], ODD: [r[1] for r in ROWS], "frequency": [r[2] for r in ROWS], "n": [0] * len(ROWS)}
)
EXPECTED = {"tea": 2, ROWS[3][1]: 1, "🫖 emoji": 1, "007": 1, "1e3": 1, "NULL": 1, "nan": 1}


def test_every_kind_gives_the_same_counts(frequencies, kind, tmp_path):
    assert frequencies(kind(TABLE, tmp_path), key=ODD, max_keys=10) == EXPECTED


def test_every_kind_picks_the_same_keys_for_one_salt(frequencies, kind, tmp_path):
    sql = DuckDB(compiled_from=None)
    assert frequencies(kind(TABLE, tmp_path), key=ODD, salt=99) == frequencies(TABLE, key=ODD, salt=99, using=sql)


def test_every_kind_tells_its_columns_and_can_be_counted_afterwards(engine, frequencies, kind, tmp_path):
    data = kind(TABLE, tmp_path)
    assert [name for name, _ in engine.columns(data)] == TABLE.column_names
    if not hasattr(data, "__arrow_c_stream__") or isinstance(data, pa.Table):
        assert frequencies(data, key=ODD, max_rows=2, max_keys=10)["tea"] == 3


def test_a_column_named_frequency_is_a_key_like_any_other(frequencies, kind, tmp_path):
    found = frequencies(kind(TABLE, tmp_path), key=("frequency", "n"), unit=None)
    assert {(int(a), int(b)) for a, b in found} == {(i, 0) for i in range(1, 11)}


def test_every_kind_may_have_no_rows(frequencies, kind, tmp_path):
    if kind.__name__ in ("json_lines", "zipped_json"):
        pytest.skip("without rows, JSON lines have no columns")
    assert frequencies(kind(TABLE.slice(0, 0), tmp_path), key=ODD) == {}


def test_every_kind_may_have_one_row(frequencies, kind, tmp_path):
    assert frequencies(kind(TABLE.slice(0, 1), tmp_path), key=ODD) == {"tea": 1}


def test_a_missing_column_is_named_with_near_names(engine, kind, listed, tmp_path):
    data = kind(TABLE, tmp_path)
    hint = "Did you mean '{}'?" if listed else "One differs from it in case"
    with pytest.raises(InvalidValue, match=r"key='Frequency ' is not a column") as caught:
        count(engine, data, key=("Frequency ",), unit=None)
    assert hint.format("frequency") in str(caught.value)
    with pytest.raises(InvalidValue, match=r"privacy_unit='UNIT' is not a column") as caught:
        count(engine, data, key=("n",), unit="UNIT")
    assert hint.format("unit") in str(caught.value)
    with pytest.raises(InvalidValue, match=r"key='frequenzy' is not a column of the data\.") as caught:
        count(engine, data, key=("frequenzy",), unit=None)
    assert ("Did you mean 'frequency'?" in str(caught.value)) == listed


@pytest.mark.parametrize("wrong", ["unit_id", "n,unit", "UNIT", "zzz"])
def test_the_column_of_the_unit_is_never_suggested_as_a_key(engine, kind, tmp_path, wrong):
    """The natural next thing is to paste the suggestion, which would publish every unit."""
    with pytest.raises(InvalidValue) as caught:
        count(engine, kind(TABLE, tmp_path), key=(wrong,))
    assert "'unit'" not in str(caught.value)


def test_a_missing_column_lists_what_there_is_but_not_the_first_line_of_a_text_file(engine, tmp_path):
    with pytest.raises(InvalidValue, match=r"Choose from 'unit', .*'frequency', 'n'\."):
        count(engine, TABLE, key=("zzz",), unit=None)
    (tmp_path / "no header.csv").write_text("alice,flu\nbob,cold\n")
    with pytest.raises(InvalidValue) as caught:
        count(engine, tmp_path / "no header.csv", key=("zzz",), unit=None)
    assert "alice" not in str(caught.value) and "flu" not in str(caught.value)
    for near in ("fluu", "alic", "_", "FLU"):
        with pytest.raises(InvalidValue) as caught:
            preview(
                data=tmp_path / "no header.csv", key=near, privacy_unit="row", epsilon=1.0, delta=1e-6, engine=engine
            )
        assert "alice" not in str(caught.value) and "flu'" not in str(caught.value)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_the_names_of_folders_are_no_columns(frequencies, engine, suffix, tmp_path):
    """Three hundred files in folders unit=0, unit=1, ... hold rows of one unit, which must count once."""
    for i in range(300):
        folder = tmp_path / f"unit={i}"
        folder.mkdir()
        if suffix == "parquet":
            pa.parquet.write_table(pa.table({"unit": ["u1"], "key": ["secret"]}), folder / "rows.parquet")
        else:
            text = {"csv": "unit,key\nu1,secret\n", "jsonl": '{"unit": "u1", "key": "secret"}\n'}[suffix]
            (folder / f"rows.{suffix}").write_text(text)
    data = str(tmp_path / "*" / f"*.{suffix}")
    assert frequencies(data) == {"secret": 1}
    assert engine.columns(data) == [("unit", "VARCHAR"), ("key", "VARCHAR")]
    with pytest.raises(InvalidValue, match="'country' is not a column"):
        frequencies(str(tmp_path / "*" / f"*.{suffix}"), unit="country")


@pytest.mark.parametrize("path", ["./~x.csv", "~nobody-of-this-name/x.csv", "x" * 300 + ".csv", "x/" * 3000, "a\0.csv"])
def test_odd_paths_are_refused_in_our_words(engine, path):
    with pytest.raises(InvalidValue, match="data"):
        engine.columns(path)


@pytest.mark.skipif(os.name != "posix", reason="named pipes of POSIX")
def test_a_named_pipe_is_refused_instead_of_waited_for(engine, tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    os.mkfifo(tmp_path / "pipe.parquet")
    for path in ("pipe.csv", "pipe.parquet"):
        with pytest.raises(InvalidValue, match="is a pipe or a device"):
            engine.columns(tmp_path / path)
    with pytest.raises(InvalidValue, match="without Parquet files"):
        engine.columns(tmp_path)
    with pytest.raises(InvalidValue, match="matches no file"):
        engine.columns(str(tmp_path / "*.csv"))


def test_one_file_under_two_names_counts_once(frequencies, tmp_path, monkeypatch):
    (tmp_path / "rows.csv").write_text("unit,key\n1,a\n")
    monkeypatch.chdir(tmp_path)
    assert frequencies(["rows.csv", str(tmp_path / "rows.csv")], unit=None) == {"a": 1}


def test_a_line_of_gigabytes_is_not_read_whole(engine, tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"unit": 1, "key": "a"}\n{"unit": 1, "key": "')
        for _ in range(300):
            file.write(b"a" * (1 << 20))
    tracemalloc.start()
    with pytest.raises(UnreadableData):
        count(engine, path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 27
    tracemalloc.stop()


def test_names_that_differ_in_case_alone(frequencies):
    table = pa.table({"Key": ["a", "b"], "key": ["c", "c"]})
    assert frequencies(table, key="key", unit="Key") == {"c": 2}
    assert frequencies(table, key="Key", unit="key", max_keys=2) == {"a": 1, "b": 1}


def test_hidden_files_are_no_data_unless_they_are_named(tmp_path):
    """What Spark leaves behind while it writes is not read, at any depth below a folder or a glob."""
    names = ["a.parquet", "_c=1/b.parquet", "_temporary/0/c.parquet", "x/.d/e.parquet", "_f.parquet", ".g.parquet"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    def found(pattern):
        return sorted(path.relative_to(tmp_path).as_posix() for path in files_of(str(tmp_path / pattern)).paths)

    assert found("") == found("**/*.parquet") == ["_c=1/b.parquet", "a.parquet"]
    assert found("_temporary") == found("_t*/*/*") == found("**/_t*/**/*.parquet") == ["_temporary/0/c.parquet"]
    assert found("_*.parquet") == found("_f.parquet") == ["_f.parquet"] and found("x/.d/*") == ["x/.d/e.parquet"]
    assert found(".*.parquet") == [".g.parquet"]
    with pytest.raises(InvalidValue, match="begin with _ or a dot"):
        found("?f.parquet")


@pytest.mark.parametrize("address", ["postgresql:/me:S3cret@h/db", "host=h password=S3cret", "me:S3cret@h/*.parquet"])
def test_what_looks_like_an_address_is_not_quoted(tmp_path, address):
    for wrong in (lambda: files_of(address), lambda: Reserved(address), lambda: Ledger.open(address)):
        with pytest.raises(InvalidValue, match="looks like an address") as caught:
            wrong()
        assert "S3cret" not in str(caught.value)
    folder = tmp_path / "at 12:30@night"
    folder.mkdir()
    (folder / "a.parquet").touch()
    assert len(files_of(folder / "*.parquet").paths) == 1  # an odd name that is there
    with Reserved(folder / "published") as place:
        assert place.target.parent == folder


def test_a_file_with_two_names_is_read_once(tmp_path):
    (tmp_path / "a.parquet").touch()
    (tmp_path / "hard.parquet").hardlink_to(tmp_path / "a.parquet")
    (tmp_path / "soft.parquet").symlink_to("a.parquet")
    assert len(files_of(tmp_path).paths) == 1


BAD = {
    "nowhere.csv": "does not exist",
    "-": r"dpsieve.files\(sys.stdin.buffer\)",
    "*.nothing.parquet": "matches no file",
    "s3://bucket/x.parquet": "only files of this machine",
    "": "empty path",
    (): "empty list",
    "rows.xlsx": "has an unsupported extension",
    "rows.parquet.gz": "has an unsupported extension",
    ("a.csv", "b.jsonl"): "mixes csv, json files",
    "folder": "a folder without Parquet files",
    "empty.csv": "is empty",
    "empty.jsonl": "is empty",
    "empty.parquet": "cannot be read",
    "wrong.parquet": "'wrong.parquet' cannot be read",
    "wrong.csv.gz": "cannot be opened",
    "array.json": "names no field in its first lines",
    "utf16.csv": "line 1 of 'utf16.csv' is not a header",
    ("one.csv", "two.csv"): "'two.csv' has another header than 'one.csv'",
    ("one.parquet", "two.parquet"): "cannot be read",
}


@pytest.mark.parametrize("data", BAD, ids=str)
def test_files_that_cannot_be_read(engine, tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("a.csv", "b.jsonl", "rows.xlsx", "rows.parquet.gz", "wrong.parquet", "wrong.csv.gz"):
        (tmp_path / name).write_text("n,unit\nmarked-secret,2\n")
    for name in ("empty.csv", "empty.jsonl", "empty.parquet"):
        (tmp_path / name).touch()
    (tmp_path / "array.json").write_text('[{"n": 1}]')
    (tmp_path / "utf16.csv").write_bytes("n,unit\n".encode("utf-16"))
    (tmp_path / "one.csv").write_text("n,unit\n1,2\n")
    (tmp_path / "two.csv").write_text("unit,n\n1,2\n")
    pa.parquet.write_table(pa.table({"n": [1]}), tmp_path / "one.parquet")
    pa.parquet.write_table(pa.table({"m": [1]}), tmp_path / "two.parquet")
    with pytest.raises(DpsieveError, match=BAD[data]) as caught:
        count(engine, list(data) if isinstance(data, tuple) else data, key=("n",), unit=None)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("data", [None, 3, b"x.csv", {"a": 1}, open, pd.Series([1]), [TABLE]])
def test_what_is_no_table(engine, data):
    with pytest.raises((InvalidType, UnreadableData), match=r"data .*\. [A-Z]"):
        engine.columns(data)


@pytest.mark.parametrize("data", [pd.Series([1]), pl.Series([1]), pd.Index([1])], ids=["pandas", "polars", "index"])
def test_a_single_column_is_refused_with_the_fix(engine, data):
    with pytest.raises(InvalidType, match=r"data is a single column\. Pass a DataFrame"):
        engine.columns(data)


def test_an_open_file_is_wrapped_first(engine, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("unit,key\n1,a\n")
    with path.open() as file, pytest.raises(InvalidType, match=r"dpsieve\.files"):
        engine.columns(file)
    with path.open("rb") as file:
        stream = DataStream(file, name="the pipe")
        count(engine, stream)
        with pytest.raises(InvalidValue, match="the pipe was read already"):
            count(engine, stream)


def test_a_table_that_is_not_there(engine):
    with pytest.raises(InvalidType, match="Pass the pair"):
        engine.columns((duckdb.connect(), 3))
    with pytest.raises(InvalidValue, match="nowhere"):
        engine.columns((duckdb.connect(), "nowhere"))


def test_types_are_told_without_values(engine):
    table = pa.table({"a": pa.array([1]), "d": pa.array(["marked-secret"]).dictionary_encode()})
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 'x'::ENUM('x', 'marked-secret') AS e, 1.5::DECIMAL(5, 2) AS d")
    assert engine.columns((connection, "t")) == [("e", "ENUM"), ("d", "DECIMAL(5,2)")]
    assert engine.columns(table) == [("a", "BIGINT"), ("d", "VARCHAR")]


def test_a_count_on_a_connection_of_the_user_leaves_it_as_it_was(frequencies):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE rows AS SELECT 1 AS unit, 'a' AS key")
    before = connection.execute("SELECT name, value FROM duckdb_settings() ORDER BY name").fetchall()
    assert frequencies((connection, "rows")) == {"a": 1}
    assert connection.execute("SELECT name, value FROM duckdb_settings() ORDER BY name").fetchall() == before
    assert connection.execute("SHOW TABLES").fetchall() == [("rows",)]


def test_polars_patterns_and_objects(frequencies, engine):
    frame = pl.DataFrame({"^k.*$": ["a"], "*": ["c"], "key": ["b"], "unit": [1]})
    for data in (frame, frame.lazy()):
        assert frequencies(data, key="^k.*$") == {"a": 1}
        assert frequencies(data, key="*") == {"c": 1}
    with pytest.raises(InvalidType, match="Python objects"):
        frequencies(pl.DataFrame({"unit": [1], "key": pl.Series([object()], dtype=pl.Object)}))


def test_a_reader_can_be_read_once(frequencies, engine):
    """A second read would seem to have no rows; a stream that was released cannot be opened."""
    table = pa.table({"unit": [1], "key": ["a"]})
    reader = table.to_reader()
    assert frequencies(reader) == {"a": 1}
    with pytest.raises(UnreadableData, match="this reader was read already"):
        frequencies(reader)

    class Stream:
        capsule = table.to_reader().__arrow_c_stream__()

        def __arrow_c_stream__(self, requested_schema=None):
            return self.capsule

    assert frequencies(Stream()) == {"a": 1}
    with pytest.raises(UnreadableData, match="data cannot be opened as an Arrow stream"):
        frequencies(Stream())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"unit": ""}, InvalidValue, "privacy_unit is blank"),
        ({"max_keys": 0}, InvalidValue, "max_keys_per_unit=0"),
        ({"max_rows": 1.0}, InvalidType, "max_rows_per_key"),
        ({"progress": 1}, InvalidType, "progress"),
    ],
)
def test_arguments_are_checked(engine, change, error, message):
    with pytest.raises(error, match=message):
        count(engine, TABLE, **{"key": ("n",)} | change)


@pytest.mark.parametrize(
    "change", [{"memory_limit": "much"}, {"memory_limit": 5}, {"threads": 0}, {"temp_folder": "/nowhere"}]
)
def test_settings_are_checked(change):
    with pytest.raises(InvalidValue, match=next(iter(change))):
        DuckDB(**change)
