"""Items of a stream from files and pipes: lines, a column of CSV, a field of JSON lines."""

import gzip
import os

import pyarrow as pa
import pytest

from dpsieve.engines.inputs import items as stream_items
from dpsieve.engines.inputs.items import item_batches, split_lines
from dpsieve.errors import DpsieveError


def read(path, *arguments):
    return [item for batch in item_batches(str(path), *arguments) for item in batch.to_pylist()]


@pytest.fixture
def file(tmp_path):
    def write(name, content):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / name

    return write


def test_lines_of_every_shape(file):
    assert read(file("a.txt", "tea\nmilk\r\n\n  spaced \nlast")) == ["tea", "milk", "  spaced ", "last"]
    assert read(file("e.txt", b"\xef\xbb\xbftea\n")) == ["tea"]  # a byte order mark is no letter
    assert read(file("b.txt", "")) == [] and read(file("c.txt", "\n\n\r\n")) == []
    assert read(file("d.txt", "é\n世界\n🦆\n")) == ["é", "世界", "🦆"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_where_blocks_are_cut_makes_no_difference(file, monkeypatch, size):
    monkeypatch.setattr(stream_items, "_BLOCK", size)
    path = file("a.txt", "tea\n\nmilk and more\r\nx\n" * 5 + "end")
    assert read(path) == ["tea", "milk and more", "x"] * 5 + ["end"]


def test_packed_files(tmp_path):
    with gzip.open(tmp_path / "a.txt.gz", "wb") as file:
        file.write(b"tea\nmilk\n")
    assert read(tmp_path / "a.txt.gz") == ["tea", "milk"]
    (tmp_path / "b.txt.gz").write_bytes((tmp_path / "a.txt.gz").read_bytes()[:-6])
    with pytest.raises(DpsieveError, match="whole"):
        read(tmp_path / "b.txt.gz")


def test_a_column_of_csv(file):
    path = file("a.csv", 'user,query\n1,"tea, ""hot"""\n2,\n3,"two\nlines"\n4,7\n')
    assert read(path, None, "query") == ['tea, "hot"', "two\nlines", "7"]
    assert read(file("b.tsv", "user\tquery\n1\ttea\n"), None, "query") == ["tea"]
    assert read(file("empty.csv", "user,query\n"), None, "query") == []


def test_a_column_of_csv_without_a_header_line(file):
    assert read(file("a.csv", '\ufeff1,tea\n2,"a;b"\n'), None, "query", "user,query") == ["tea", "a;b"]
    assert read(file("a", "1;tea\n2;milk\n"), "csv", "query", "user;query") == ["tea", "milk"]
    assert read(file("b.tsv", "1\ttea\n"), None, "query", "user,query") == ["tea"]
    assert read(file("empty.csv", ""), None, "query", "user,query") == []
    with pytest.raises(DpsieveError, match="number 2"):
        read(file("b.csv", "1,tea\n1,2,3\n"), None, "query", "user,query")
    with pytest.raises(DpsieveError, match="--header is for CSV"):
        read(file("a.txt", "tea\n"), None, None, "query")


def test_a_field_of_json_lines(file):
    path = file("a.jsonl", '{"q": "tea", "n": 1}\n{"n": 2}\n\n{"q": null}\n{"q": ""}\n{"q": "a\\nb"}\n')
    assert read(path, None, "q") == ["tea", "a\nb"]


def test_a_slow_pipe_is_read_as_it_comes(monkeypatch):
    receive, send = os.pipe()
    monkeypatch.setattr(stream_items, "_PATIENCE", 0.0)
    with os.fdopen(receive, "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        batches = item_batches("-")
        os.write(send, b"tea\nmi")
        assert next(batches).to_pylist() == ["tea"]  # before the pipe has ended
        os.write(send, b"lk\n")
        os.close(send)
        assert [item for batch in batches for item in batch.to_pylist()] == ["milk"]


@pytest.mark.parametrize(
    ("name", "content", "arguments", "said"),
    [
        ("a.txt", b"tea\nmilk\n\xff\xfesecret\n", (), "line 3"),
        ("a.csv", b"user,query\n1,secret\n1,2,3\n", (None, "query"), "number 3"),
        ("a.csv", b"user,query\n", (None, "quiry"), "--column 'quiry'"),
        ("a.csv", b"user,query\n", (), "--column"),
        ("a.txt", b"tea\n", ("lines", "query"), "no columns"),
        ("a.txt", b"tea\n", ("xml",), "--format"),
        ("a.jsonl", b'{"q": "secret"}\n{"q": 7}\n', (None, "q"), "lines 1 to 3"),
        ("a.jsonl", b"secret\n", (None, "q"), "no JSON object"),
    ],
)
def test_what_cannot_be_read_names_the_place_and_no_data(file, name, content, arguments, said):
    with pytest.raises(DpsieveError, match=said) as error:
        read(file(name, content), *arguments)
    assert "secret" not in str(error.value)


def test_a_missing_file():
    with pytest.raises(DpsieveError, match="cannot be read"):
        read("no such file")


def test_one_block_of_lines():
    assert split_lines(b"tea\n", "here", 1).type == pa.string()
