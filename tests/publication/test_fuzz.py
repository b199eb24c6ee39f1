"""Damaged folders: each loads to something of which all checks hold, or is refused in the one family of errors."""

import functools
import json
import random
import resource
import shutil

import pytest
from publication.fuzzing import Saved, damaged_bytes, damaged_record, damaged_table, releases

from dpsieve.privacy.mechanism import from_json
from dpsieve.publication import files, publication

RECORDS, TABLES, BYTES = 25, 15, 10  # cases for each of 26 publications


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    place = tmp_path_factory.mktemp("saved")
    return [Saved(release, place / name) for name, release in releases().items()]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Make equal mechanisms once, and do not wait for the disk; what is checked stays the same."""

    @functools.lru_cache(maxsize=4096)
    def made(text):
        return from_json(json.loads(text))

    monkeypatch.setattr(publication, "from_json", lambda data: made(json.dumps(data)))
    monkeypatch.setattr(files, "flush", lambda path: None)


@pytest.fixture(autouse=True)
def small():
    """Fail where any case took a gigabyte."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20


def judged(saved, cases, damage, tmp_path):
    """Damage each release so many times; return how many folders still loaded."""
    loaded = 0
    for number, one in enumerate(saved):
        for case in range(cases):
            chance = random.Random(f"{number} {case}")
            damage(one, chance)
            try:
                loaded += one.judge(tmp_path / "again")
            except BaseException:
                shutil.copytree(one.folder, tmp_path / "failed")
                raise
    return loaded


def test_undamaged(saved, tmp_path):
    assert judged(saved, 1, lambda one, chance: one.write(), tmp_path) == len(saved)


def test_records(saved, tmp_path):
    loaded = judged(saved, RECORDS, lambda one, chance: one.write(damaged_record(one.record, chance)), tmp_path)
    assert loaded < 0.2 * RECORDS * len(saved)


def test_tables(saved, tmp_path):
    def damage(one, chance):
        name = chance.choice(list(one.tables))
        table = damaged_table(one.tables[name], chance)
        record = json.loads(json.dumps(one.record))
        if name == "release" and chance.random() < 0.8:
            record["keys"] = table.num_rows
        one.write(record, {name: table})

    loaded = judged(saved, TABLES, damage, tmp_path)
    assert loaded < 0.2 * TABLES * len(saved)


def test_bytes(saved, tmp_path):
    def damage(one, chance):
        record, files = (one.folder / "release.json").read_bytes(), dict(one.files)
        if chance.random() < 0.5:
            record = damaged_bytes(json.dumps(one.record).encode(), chance)
        else:
            name = chance.choice(list(files))
            files[name] = damaged_bytes(files[name], chance)
            one.write()
            record = (one.folder / "release.json").read_bytes()
        one.put(record, files)

    judged(saved, BYTES, damage, tmp_path)


def test_bytes_under_a_mended_digest(saved, tmp_path):
    """Bytes of Parquet that nobody wrote, and a record that vouches for them."""

    def damage(one, chance):
        name = chance.choice(list(one.files))
        one.write(files={name: damaged_bytes(one.files[name], chance)})

    judged(saved, BYTES, damage, tmp_path)
