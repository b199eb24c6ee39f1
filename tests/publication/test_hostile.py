"""Folders that were made to do harm: they are refused soon, in little memory, and by an error of the family."""

import json
import os
import resource
import time

import numpy as np
import pyarrow as pa
import pytest
from publication.fuzzing import KEYS, Saved, nested, parquet

import dpsieve as ds
from dpsieve.errors import CorruptRelease, DpsieveError, InvalidType, InvalidValue
from dpsieve.noise.gaussian_threshold import Gaussian
from dpsieve.publication.bounded import LARGEST_RECORD, Unreadable, open_plain, read_json, read_table
from dpsieve.publication.publication import Notes


@pytest.fixture
def saved(tmp_path):
    return Saved(ds.channels.simple(1.0, 1e-3).release(KEYS, [500] * 4, keys_only=True), tmp_path / "x")


@pytest.fixture(autouse=True)
def soon_and_small():
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    yield
    assert time.perf_counter() - start < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 700 << 10


def refused(saved):
    with pytest.raises(CorruptRelease) as error:
        saved.load(saved.folder)
    assert error.value.__cause__ is None


def repeated(value, rows):
    """A column of one value, which takes a few bytes in a file."""
    return pa.table({"key": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([value]))})


@pytest.mark.parametrize("told", [2, 5_000_000])
def test_many_equal_rows(saved, told):
    data = parquet(repeated("tea", 5_000_000), store_schema=False, row_group_size=5_000_000)
    assert len(data) < 20_000
    saved.write({**saved.record, "keys": told}, files={"release": data})
    refused(saved)


def test_one_long_value_in_many_rows(saved):
    data = parquet(repeated("a" * 10_000_000, 1000), store_schema=False, dictionary_pagesize_limit=1 << 30)
    assert len(data) < 1_000_000
    saved.write({**saved.record, "keys": 1000}, files={"release": data})
    refused(saved)


@pytest.mark.parametrize("codec", ["gzip", "zstd", "brotli"])
def test_codecs_that_shrink_without_limit(saved, codec):
    data = parquet(pa.table({"key": ["a" * 30_000_000]}), compression=codec, use_dictionary=False)
    saved.write({**saved.record, "keys": 1}, files={"release": data})
    refused(saved)


@pytest.mark.parametrize(
    "keys", [[[1] * 1000], [{"a": [1]}], [{"a": {"b": 1}}], [None], pa.array(["a"]).dictionary_encode()]
)
def test_types_that_no_key_has(saved, keys):
    saved.write({**saved.record, "keys": 1}, {"release": pa.table({"key": keys})})
    refused(saved)
    with open_plain(saved.folder / "release.parquet") as file, pytest.raises(Unreadable):
        read_table(file, 1)  # before a list without end is decoded


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"format": 2, "notes": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"format": 2, "format": 2}',
        '{"format": true}',
        '{"format": 2, "keys": 1' + "0" * 10_000 + "}",
        "[]",
        "null",
        "\ufeff{}",
        " " * (LARGEST_RECORD + 1),
    ],
    ids=["open", "deep", "twice", "true", "huge", "list", "null", "mark", "large"],
)
def test_texts_that_are_no_record(saved, text):
    (saved.folder / "release.json").write_text(text)
    refused(saved)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", '{"b": 1, "b": 2}', "[" * 40 + "]" * 40])
def test_json_of_which_readers_may_differ(tmp_path, value):
    """Seals and later checks would not see it, or not all of it: such a text is refused as it is read."""
    place = tmp_path / "x.json"
    place.write_text(f'{{"a": {value}}}')
    with pytest.raises(Unreadable):
        read_json(place)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": []}, {"kind": {}}, {"kind": 7}, {"keys": True}, {"notes": []}, {"notes": nested(100)},
        {"more_sha256": []}, {"more_sha256": 5}, {"more_sha256": {"release": "0"}}, {"more_sha256": {"../x": "0"}},
        {"table_sha256": None}, {"table_sha256": []}, {"unsafe_to_publish": 1}, {"mechanism": {"kind": []}},
        {"mechanism": {"kind": "simple"}}, {"mechanism": nested(20)}, {"certificate": "x"}, {"uses": 1},
    ],
)  # fmt: skip
def test_values_of_the_wrong_kind(saved, change):
    saved.write({**saved.record, **change})
    if "table_sha256" in change:
        record = {**saved.record, **change}
        (saved.folder / "release.json").write_text(json.dumps(record))
    refused(saved)


@pytest.mark.parametrize("name", ["release.json", "release.parquet"])
def test_what_is_no_file(saved, name):
    place = saved.folder / name
    place.unlink()
    os.mkfifo(place)
    refused(saved)  # nobody writes into the pipe, and nobody waits for that
    place.unlink()
    place.mkdir()
    refused(saved)
    place.rmdir()
    place.symlink_to(place.name)
    refused(saved)
    place.unlink()
    place.symlink_to("/dev/zero")
    refused(saved)


def test_folders_that_cannot_be(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for folder in (tmp_path / "loop", tmp_path / ("x" * 300) / "y", "/".join(["x"] * 5000), tmp_path / "missing"):
        with pytest.raises(CorruptRelease):
            ds.Release.load(folder)
    for folder in ("x" * 300, "\ud800", "a\0b", "", tmp_path / ("é" * 150)):
        with pytest.raises(InvalidValue, match="folder"):
            ds.Release.load(folder)
    for folder in (b"x", None, 3, []):
        with pytest.raises(InvalidType, match="folder"):
            ds.Release.load(folder)


@pytest.mark.parametrize("note", [float("nan"), {1, 2}, nested(40), "x" * LARGEST_RECORD], ids=range(4))
def test_notes_that_could_not_be_loaded_are_not_made(note):
    with pytest.raises(InvalidType, match="reason"):
        Notes(reason=note)


@pytest.mark.parametrize("sigma, threshold", [(1e9, 1e10), (1e300, 1e300), (50.0, 1e12)])
def test_saved_noise_without_measure_makes_no_huge_table(sigma, threshold):
    with pytest.raises(DpsieveError):
        Gaussian(1.0, 1e-5, 10, 1, sigma, threshold)


@pytest.mark.parametrize("odd", ["\x1b[2Jsum", "a\nb", "\u202e", "\x00"])
def test_numbers_with_control_characters_in_names_or_notes(tmp_path, odd):
    """A terminal that prints a publication is not steered by it, in no words that it holds."""
    made = ds.sum([[1.0, 2.0]] * 9, bounds=[(-2, 2), (0, 1)], neighbours="replace", rho=1.0)
    saved = Saved(made, tmp_path / "x")
    table = saved.tables["release"]
    saved.write(tables={"release": table.set_column(0, "name", pa.array(["a", odd]))})
    refused(saved)
    for note in ("reason", "contribution"):
        saved.write({**saved.record, "notes": {**saved.record["notes"], note: odd}})
        refused(saved)
    saved.write()
    assert saved.load(saved.folder).table.equals(table)
    with pytest.raises(InvalidValue, match=r"column (has line breaks or control characters|is blank)"):
        ds.sum(pa.table({"a": [1.0], odd: [2.0]}), column=["a", odd], privacy_unit="row", bounds=(0, 1), rho=1.0)


@pytest.mark.parametrize("where", ["publication.from_json", "files.read_json", "files.read_table"])
def test_claims_of_more_memory_than_there_is(saved, monkeypatch, where):
    def too_much(*_):
        raise MemoryError

    monkeypatch.setattr(f"dpsieve.publication.{where}", too_much)
    with pytest.raises(CorruptRelease, match=r"claims more memory than there is\. Get a fresh copy"):
        ds.Release.load(saved.folder)


def test_what_arrow_has_no_memory_for_is_such_a_claim(saved, monkeypatch):
    def too_much(*_, **__):
        raise pa.ArrowMemoryError

    monkeypatch.setattr("pyarrow.parquet.ParquetFile", too_much)
    with pytest.raises(CorruptRelease, match="claims more memory"):
        ds.Release.load(saved.folder)
