"""A release on disk: whole or not at all, and refused when it was changed."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.schemes_in_use import FunctionScheme

import dpsieve as ds
from dpsieve.errors import CorruptRelease, DpsieveError
from dpsieve.publication.files import _seal
from dpsieve.testing import insecure_source

KEYS, FREQUENCIES = ["tea", "coffee", "juice"], [500, 2000, 300]


def made(**options):
    return ds.channels.optimal(1.0, 1e-8, unit="one user").release(KEYS, FREQUENCIES, **options)


def test_save_and_load(tmp_path):
    release = made()
    folder = release.save(tmp_path / "drinks")
    assert sorted(path.name for path in folder.iterdir()) == ["release.json", "release.parquet"]
    again = ds.Release.load(folder)
    assert again.table.equals(release.table) and (again.tokens == release.tokens).all()
    assert (again.guarantee, again.certificate) == (release.guarantee, release.certificate)
    assert again.estimate() == release.estimate()


@pytest.mark.parametrize("scheme", [ds.ppswor(0.05), ds.priority(0.02, 0.5), ds.sampling.custom([0.1, 0.5, 1.0])])
def test_a_sampled_release_keeps_its_scheme(tmp_path, scheme):
    release = ds.channels.optimal(1.0, 1e-4, scheme).release(KEYS, FREQUENCIES)
    again = ds.Release.load(release.save(tmp_path / "x"))
    assert again.mechanism.scheme == scheme


def test_keys_only_and_unsafe_releases_stay_so(tmp_path):
    assert ds.Release.load(made(keys_only=True).save(tmp_path / "keys")).tokens is None
    unsafe = ds.Release.load(made(source=insecure_source(1)).save(tmp_path / "unsafe"))
    assert unsafe.unsafe_to_publish and "UNSAFE" in repr(unsafe)
    assert json.loads((tmp_path / "unsafe" / "release.json").read_text())["unsafe_to_publish"] is True


def test_nothing_is_overwritten_and_the_place_must_exist(tmp_path):
    made().save(tmp_path / "x")
    with pytest.raises(DpsieveError, match="exists already"):
        made().save(tmp_path / "x")
    with pytest.raises(DpsieveError, match="does not exist"):
        made().save(tmp_path / "missing" / "x")


def test_what_cannot_be_saved_is_refused(tmp_path):
    scheme = FunctionScheme(lambda i: np.minimum(i / 100.0, 1.0))
    release = ds.channels.simple(1.0, 1e-2, scheme).release(KEYS, FREQUENCIES)
    with pytest.raises(DpsieveError, match="has no name to be saved under"):
        release.save(tmp_path / "x")
    for folder in (None, 3, "a\0b", "x" * 300, ""):
        with pytest.raises(DpsieveError, match="folder"):
            made().save(folder)
    for folder in (None, 3):
        with pytest.raises(DpsieveError, match="folder"):
            ds.Release.load(folder)


def change_table(folder):
    table = pq.read_table(folder / "release.parquet")
    pq.write_table(table.slice(1), folder / "release.parquet")


def change_record(folder, **changes):
    record = json.loads((folder / "release.json").read_text())
    (folder / "release.json").write_text(json.dumps(record | changes))


@pytest.mark.parametrize(
    "damage",
    [
        change_table,
        lambda folder: (folder / "release.json").unlink(),
        lambda folder: (folder / "release.parquet").unlink(),
        lambda folder: (folder / "release.json").write_text("{"),
        lambda folder: (folder / "release.parquet").write_bytes(b"PAR1"),
        lambda folder: change_record(folder, format=99),
        lambda folder: change_record(folder, unsafe_to_publish=None),
        lambda folder: change_record(folder, keys=7),
        lambda folder: change_record(folder, mechanism={"kind": "optimal", "epsilon": 0.1, "delta": 1e-9}),
        lambda folder: change_record(folder, mechanism={"kind": "other"}),
        lambda folder: change_record(folder, certificate=None),
    ],
)
def test_damage_is_noticed(tmp_path, damage):
    folder = made().save(tmp_path / "x")
    damage(folder)
    with pytest.raises(CorruptRelease):
        ds.Release.load(folder)


KILLED = """
import os, signal, sys, dpsieve as ds
from pathlib import Path
from dpsieve.publication import files

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

def killed_in(step, release):
    '''Save in a process of its own, which is killed in this step.'''
    if child := os.fork():
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        return
    if step == "write_table":
        files.pq.write_table = die
    elif step == "rename":
        Path.rename = die
    elif isinstance(step, int):  # the number of the file that is forced to disk
        force, calls = files.flush, []
        files.flush = lambda path: calls.append(path) or (die() if len(calls) == step else force(path))
    else:
        setattr(files, step, die)
    release.save(Path(sys.argv[1], str(step)))
    os._exit(1)
"""
ONE_TABLE = """
release = ds.channels.optimal(1.0, 1e-8).release(["a"], [500])
for step in ("write_table", "_digest", "_seal", "rename"):
    killed_in(step, release)
"""
TWO_TABLES = """
release = ds.federated.TrieHeavyHitters(1.0, 1e-6, max_length=3, protocol="one_round").run(["abc"] * 500)
for step in (2, 4, 5):
    killed_in(step, release)
"""


def test_a_killed_process_leaves_no_release(tmp_path):
    """Kill the writer at each step: the folder must not exist, and can be written later."""
    subprocess.run([sys.executable, "-c", KILLED + ONE_TABLE, tmp_path], check=True)
    for step in ("write_table", "_digest", "_seal", "rename"):
        assert not (tmp_path / step).exists()
        made().save(tmp_path / step)
        assert len(ds.Release.load(tmp_path / step)) == 3


def test_a_killed_process_leaves_a_folder_of_two_tables_whole_or_not_at_all(tmp_path):
    """Kill the writer as it forces its second table, its folder, and, after the rename, the place to disk."""
    subprocess.run([sys.executable, "-c", KILLED + TWO_TABLES, tmp_path], check=True)
    assert not (tmp_path / "2").exists() and not (tmp_path / "4").exists()
    assert ds.Release.load(tmp_path / "5").trie["prefix"].to_pylist() == ["abc"]


def test_a_record_cannot_name_a_table_elsewhere(tmp_path):
    folder = made().save(tmp_path / "x")
    pq.write_table(pq.read_table(folder / "release.parquet"), tmp_path / "other.parquet")
    record = json.loads((folder / "release.json").read_text())
    record["more_sha256"] = {"../other": hashlib.sha256((tmp_path / "other.parquet").read_bytes()).hexdigest()}
    change_record(folder, more_sha256=record["more_sha256"], seal=_seal(record))
    with pytest.raises(CorruptRelease):
        ds.Release.load(folder)


def test_a_certificate_is_checked_anew(tmp_path):
    """Whoever changes a record can seal it again, but a mechanism has the certificate that it has."""
    folder = made().save(tmp_path / "x")
    record = json.loads((folder / "release.json").read_text())
    record["certificate"]["parts"][0]["worst"] = 0.0
    (folder / "release.json").write_text(json.dumps(record | {"seal": _seal(record)}))
    with pytest.raises(CorruptRelease, match="does not agree with its mechanism"):
        ds.Release.load(folder)


def test_unknown_kinds_names_and_formats_are_refused(tmp_path):
    folder = made().save(tmp_path / "x")
    right = json.loads((folder / "release.json").read_text())
    for change in (
        {"kind": "tomorrow"},
        {"format": 1},
        {"format": 3},
        {"mechanism": {"kind": "tomorrow"}},
        {"mechanism": {**right["mechanism"], "tomorrow": 1}},
    ):
        record = right | change
        (folder / "release.json").write_text(json.dumps(record | {"seal": _seal(record)}))
        with pytest.raises(CorruptRelease):
            ds.Release.load(folder)


def test_a_mechanism_of_its_own_keeps_the_promise_that_is_told(tmp_path):
    from dpsieve.noise.known_keys import known_keys

    release = known_keys(1.0).release(["tea"], [100])
    guarantee = {**release.guarantee.to_json(), "epsilon": 0.001}
    for change in ({"certificate": {**release.certificate.to_json(), "guarantee": guarantee}}, {"notes": 5}, {"x": ""}):
        folder = release.save(tmp_path / str(len(list(tmp_path.iterdir()))))
        record = json.loads((folder / "release.json").read_text()) | change
        change_record(folder, **change, seal=_seal(record))
        with pytest.raises(CorruptRelease):
            ds.Release.load(folder)
