"""Whatever bytes arrive, the answer is a value or an error of the family, soon, and in little memory."""

import contextlib
import hashlib
import json
import random
import shutil
import time
import tracemalloc
from copy import deepcopy

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsieve import Release
from dpsieve.errors import DpsieveError
from dpsieve.federated import Distribution, Histogram, Quantiles, TrieHeavyHitters, plan
from dpsieve.federated.client import Grid, PrefixReport, Question, Report, Strings, ValueQuestion
from dpsieve.privacy.mechanism import from_json as plan_from_json


def trie():
    return TrieHeavyHitters(2.0, 1e-6, max_length=3, protocol="cohorts")


def quantiles():
    return Quantiles(0.0, 1.0, epsilon=2.0, delta=1e-6, depth=2, branching=4)


STRANGE = [
    None, True, -1, 0, 1, 2**31, 2**63, 10**30, 10**400, -(10**400), 0.5, -0.0, 5e-324, 1e308, float("nan"),
    float("inf"), "", "a", "\ud800", "\0", "x" * 10_000, "0" * 32, [], [[]], ["a"] * 1000, {}, {"a": 1},
]  # fmt: skip


def cases(seed, good, count):
    """Yield JSON values near `good`: fields dropped, added, exchanged for strange ones, at any depth."""
    draw = random.Random(seed)
    for _ in range(count):
        data = json.loads(json.dumps(good))
        for _ in range(draw.choice((1, 1, 2, 3))):
            place = data
            while isinstance(place, dict | list) and place:
                key = draw.choice(list(place)) if isinstance(place, dict) else draw.randrange(len(place))
                if isinstance(place[key], dict | list) and place[key] and draw.random() < 0.7:
                    place = place[key]
                    continue
                action = draw.random()
                if action < 0.15:
                    del place[key]
                elif action < 0.25 and isinstance(place, dict):
                    place[str(draw.choice(("x", "version", "value")))] = deepcopy(draw.choice(STRANGE))
                else:
                    place[key] = deepcopy(draw.choice(STRANGE))
                break
        yield data


def answer(call, *arguments):
    """Call; only errors of the family may come, within 10 s."""
    start = time.perf_counter()
    with contextlib.suppress(DpsieveError):
        call(*arguments)
    assert time.perf_counter() - start < 10


@pytest.fixture(autouse=True)
def little_memory():
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**30


def test_reports_of_any_bytes():
    """Bits flipped, bytes cut, inserted and repeated, deep nesting, long numbers, other encodings."""
    draw, good = random.Random(1), Report("tea", "0" * 32).to_bytes()
    some = [
        b"",
        b"[" * 100_000,
        b"{" * 50_000,
        b"1" * 5_000,
        b"-" + b"9" * 4_000,
        b"1e999999",
        b"\xff\xfe\0",
        b"NaN",
        b'"\\ud800"',
    ]
    some += [json.dumps(value).encode(code) for value in STRANGE[:-2] for code in ("utf-8", "utf-16", "utf-32")]
    for _ in range(1500):
        data = bytearray(good)
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(data) + 1)
            piece = bytes(draw.randrange(256) for _ in range(draw.randrange(4)))
            data[at : at + draw.randrange(5)] = piece if draw.random() < 0.8 else data[:at]
        some.append(bytes(data))
    histogram = Histogram(plan(1.0, 1e-6))
    tally = histogram.tally()
    for data in some:
        answer(Report.from_bytes, data)
        answer(Report.from_bytes, memoryview(data))
        answer(tally.add, [data])
    answer(tally.release)


@pytest.mark.parametrize("data", [10**400, 10**10, -1, 1.5, None, "text", [1], {"a": 1}, object(), np.zeros(3)])
def test_what_is_not_bytes(data):
    """An integer would be taken for a number of zero bytes, and fill the memory."""
    with pytest.raises(DpsieveError, match="bytes"):
        Report.from_bytes(data)


TRIE, QUANTILES = trie(), quantiles()
READERS = {
    "report": (Report.from_json, Report("tea", "0" * 32).to_json()),
    "report of a prefix": (
        lambda data: PrefixReport.from_json(data, Strings(5)),
        PrefixReport("te", False, "0" * 32).to_json(),
    ),
    "question of values": (ValueQuestion.from_json, Histogram(plan(1.0, 1e-6), ["tea", "milk"]).question.to_json()),
    "question": (Question.from_json, next(iter(TRIE.questions())).to_json()),
    "question of ranges": (Question.from_json, next(iter(QUANTILES.questions())).to_json()),
    "plan of levels": (plan_from_json, TRIE.plan.to_json()),
    "grid": (Grid.from_json, QUANTILES.grid.to_json()),
    "strings": (Strings.from_json, TRIE.strings.to_json()),
}


@pytest.mark.parametrize("name", READERS)
def test_json_of_any_shape(name):
    read, good = READERS[name]
    read(good)
    for data in [*STRANGE, *cases(name, good, 500)]:
        answer(read, data)


def sealed(folder, record):
    """Write a record with a digest and a seal that fit, as someone who means harm would."""
    record["table_sha256"] = hashlib.sha256((folder / "release.parquet").read_bytes()).hexdigest()
    rest = {name: value for name, value in record.items() if name != "seal"}
    record["seal"] = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    (folder / "release.json").write_text(json.dumps(record))


@pytest.mark.parametrize("kind", ["distribution", "trie"])
def test_saved_folders_with_mended_seals(tmp_path, kind):
    if kind == "distribution":
        made, load = quantiles().run(np.linspace(0, 1, 20_000)), Distribution.load
    else:
        made, load = trie().run(["abc"] * 2_000), Release.load
    folder = made.save(tmp_path / "made")
    good = json.loads((folder / "release.json").read_text())
    table = pq.read_table(folder / "release.parquet")
    assert load(folder)
    for data in cases(kind, good, 50):
        if isinstance(data, dict):
            sealed(folder, data)
            answer(lambda: read_all(load(folder)))
    draw = random.Random(kind)
    for _ in range(20):
        columns = {
            name: pa.array([draw.choice([value, -1, 0, 2**62, 1, None]) for value in column.to_pylist()], column.type)
            if draw.random() < 0.5 and pa.types.is_integer(column.type)
            else column
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
        shutil.copy(folder / "release.parquet", tmp_path / "kept.parquet")
        pq.write_table(pa.table(columns), folder / "release.parquet")
        sealed(folder, dict(good))
        answer(lambda: read_all(load(folder)))
        shutil.copy(tmp_path / "kept.parquet", folder / "release.parquet")


def read_all(made):
    """Use what was loaded: whatever was let in must also answer."""
    repr(made), str(made)
    if isinstance(made, Distribution):
        made.quantile([0.1, 0.5])
