"""`dpsieve stream` on Parquet, on patterns of files, and on several files at the same time."""

import json
import os
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.command import run

import dpsieve as ds
from dpsieve.engines.inputs.items import item_batches
from dpsieve.errors import UnreadableData
from dpsieve.sketches import sketch_from_bytes

BUDGET = ["--epsilon", "1", "--delta", "1e-12"]
COLUMN = ["--column", "query"]
DRINKS = ["tea"] * 500 + ["mate"] * 300 + ["marked-secret"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "days").mkdir()
    for day in range(4):
        pq.write_table(pa.table({"query": [*DRINKS, None, ""], "id": range(803)}), tmp_path / f"days/{day}.parquet")
    return tmp_path


def read(folder, *arguments):
    done = run("stream", *arguments, *BUDGET, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def kept(folder, *arguments):
    """Return the sketch that a command keeps."""
    done = run("stream", *arguments, "--state", "sketch", cwd=folder)
    assert done.returncode == 0, done.stderr
    return sketch_from_bytes((folder / "sketch").read_bytes())


def test_parquet_by_name_glob_and_folder(folder):
    for files in (["days/0.parquet"], ["days/*.parquet"], ["days"]):
        record = read(folder, *files, *COLUMN)
        assert [row["key"] for row in record["keys"]] == ["mate", "tea"]
    os.link(folder / "days/0.parquet", folder / "data")
    assert len(read(folder, "data", "--format", "parquet", *COLUMN)["keys"]) == 2
    assert kept(folder, "days/[01].parquet", *COLUMN).items == 2 * len(DRINKS)  # neither nulls nor empty texts


@pytest.mark.parametrize(
    "type_", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary(), pa.binary(3)]
)
def test_texts_and_bytes_of_parquet_are_the_same_items(tmp_path, type_):
    pq.write_table(pa.table({"query": pa.array(["tea", None, "gin"]).cast(type_)}), tmp_path / "a.parquet")
    (batch,) = item_batches(str(tmp_path / "a.parquet"), column="query")
    assert batch.to_pylist() == ["tea", "gin"]


def test_whole_numbers_become_text_so_that_they_go_with_other_files(folder):
    """A universe is a list of lines, and CSV has no types; and no row decides the type of the keys."""
    pq.write_table(pa.table({"id": pa.array([7] * 400 + [2**64 - 1] * 300, pa.uint64())}), folder / "ids.parquet")
    (folder / "ids.csv").write_text("id\n" + "7\n" * 50)
    (folder / "known").write_text("7\n8\n")
    sketch = kept(folder, "ids.parquet", "ids.csv", "--column", "id")
    assert sketch.estimate("7") == 450 and sketch.estimate(str(2**64 - 1)) == 300
    done = run("stream", "--state", "sketch", "--epsilon", 1, "--universe", "known", "--json", cwd=folder)
    assert "7" in [row["key"] for row in json.loads(done.stdout)["keys"]]


def test_what_cannot_be_read_is_said_without_data(folder):
    whole = (folder / "days/0.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(whole[:-20])
    pq.write_table(pa.table({"query": ["marked-secret"]}), folder / "plain.parquet", compression="none")
    broken = (folder / "plain.parquet").read_bytes().replace(b"secret", b"\xff\xfe\xffret")
    (folder / "broken.parquet").write_bytes(broken)
    pq.write_table(pa.table({"query": [b"tea", b"marked-\xff"]}), folder / "bytes.parquet")
    pq.write_table(pa.table({"query": [1.5]}), folder / "floats.parquet")
    pq.write_table(pa.table([["a"], ["b"]], names=["query", "query"]), folder / "twice.parquet")
    for arguments, said in (
        (["cut.parquet", *COLUMN], "cannot be read as Parquet"),
        (["broken.parquet", *COLUMN], "cannot be read as Parquet"),
        (["bytes.parquet", *COLUMN], "cannot be read as Parquet with text in UTF-8"),
        (["floats.parquet", *COLUMN], "holds double"),
        (["twice.parquet", *COLUMN], "is not one of the columns"),
        (["days/0.parquet"], "a column must be named"),
        (["days/0.parquet", "--column", "other"], "is not one of the columns"),
        (["days/0.parquet", *COLUMN, "--header", "query"], "--header is for CSV"),
        (["-", "--format", "parquet", *COLUMN], "needs a file"),
        (["days/*.csv", *COLUMN], "matches no file"),
        (["days", "days/1.parquet", *COLUMN], "named twice"),
        (["-", "--parallel", 2], "one stream"),
        (["days", *COLUMN, "--parallel", 2, "--items-per-unit", 2], "one sketch"),
        (["days", *COLUMN, "--parallel", 0], "--parallel is"),
    ):
        done = run("stream", *arguments, *BUDGET, "--state", "sketch", cwd=folder, input="tea\n")
        assert done.returncode == 2 and said in done.stderr, (arguments, done.stderr)
        assert "marked" not in done.stderr and not (folder / "sketch").exists()


def test_files_are_dealt_out_in_turns_whatever_they_hold(folder, monkeypatch):
    """One item more changes the sketch of its own file, and no other: neither sizes nor threads deal the files out."""
    (folder / "days/1.parquet").unlink()
    pq.write_table(pa.table({"query": ["gin"] * 100_000}), folder / "days/1.parquet")
    for cores in (1, 2, 8):
        monkeypatch.setattr("dpsieve.cli.stream_files.cpu_count", lambda cores=cores: cores)
        (folder / "sketch").unlink(missing_ok=True)
        merged = kept(folder, "days", *COLUMN, "--parallel", 3)
        first, second, third = (ds.MisraGries(1024) for _ in range(3))
        for sketch, days in ((first, (0, 3)), (second, (1,)), (third, (2,))):
            for day in days:
                for batch in item_batches(str(folder / f"days/{day}.parquet"), column="query"):
                    sketch.update(batch)
        assert merged.to_bytes() == ds.sketches.MergedSketch.of(first, second, third).to_bytes()


def test_what_is_merged_is_public(folder):
    """The mechanism follows from the names and the option: not from what a file or the state holds."""
    pq.write_table(pa.table({"query": pa.array([None], pa.string())}), folder / "empty.parquet")
    assert read(folder, "days/0.parquet", *COLUMN, "--parallel", 4)["mechanism"]["kind"] == "misra_gries"
    for state in ("empty.parquet", "days/0.parquet"):
        (folder / "sketch").unlink(missing_ok=True)
        kept(folder, state, *COLUMN)
        done = run("stream", "days/1.parquet", *COLUMN, "--parallel", 2, "--state", "sketch", cwd=folder)
        assert "holds 'days/1.parquet': run again without that file.\nIt is a merged sketch now" in done.stderr
        assert sketch_from_bytes((folder / "sketch").read_bytes()).sources == 2
        assert kept(folder, "days/2.parquet", "days/3.parquet", *COLUMN, "--parallel", 2).sources == 4
        assert "merged sketch" in run("stream", "days/0.parquet", *COLUMN, "--state", "sketch", cwd=folder).stderr


def test_one_bad_file_of_several_leaves_the_state(folder, monkeypatch):
    kept(folder, "days/0.parquet", *COLUMN)
    before = (folder / "sketch").read_bytes()
    (folder / "days/2.parquet").write_bytes(b"PAR1")
    done = run("stream", "days", *COLUMN, "--state", "sketch", "--parallel", 4, cwd=folder)
    assert done.returncode == 2 and "'days/2.parquet'" in done.stderr and "is unchanged" in done.stderr
    assert (folder / "sketch").read_bytes() == before

    begun = threading.Event()

    def batches(path, **_):  # one file without end, and one that fails: the first is not read on
        begun.wait(10)
        while "0" in path:
            yield pa.array(["tea"])
        raise UnreadableData("broken.")

    monkeypatch.setattr("dpsieve.engines.inputs.items.item_batches", batches)
    monkeypatch.setattr("dpsieve.cli.stream_files.cpu_count", lambda: 2)
    threading.Timer(0.05, begun.set).start()
    done = run("stream", "days/1.parquet", "days/0.parquet", *COLUMN, "--parallel", 2, *BUDGET, cwd=folder)
    assert done.returncode == 2 and "broken." in done.stderr
