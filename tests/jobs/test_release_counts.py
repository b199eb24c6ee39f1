"""Counts made elsewhere: the same release as of counts in memory, in constant memory, and whole or not at all."""

import datetime
import subprocess
import sys
from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import dpsieve as ds
from dpsieve.errors import BudgetExceeded, InvalidType, InvalidValue
from dpsieve.publication import streamed

BUDGET = {"epsilon": 1.0, "delta": 1e-8}
KEYS = [f"key {i:03}" for i in np.random.default_rng(1).permutation(400)]


def batches(keys=KEYS, counts=None, size=30, name="query"):
    table = pa.table({name: keys, "count": np.full(len(keys), 500) if counts is None else counts, "more": keys})
    yield from table.to_batches(max_chunksize=size)


def release(given, out, key="query", **more):
    return ds.release_counts(given, key=key, out=out, **BUDGET, **more)


def test_the_rows_are_those_of_the_mechanism_sorted_by_key(tmp_path):
    counts = np.random.default_rng(2).integers(1, 60, 400)
    made = release(batches(counts=counts), tmp_path / "a", source=ds.testing.insecure_source(7), privacy_unit="user")
    channel = ds.channels.optimal(**BUDGET, unit="one user")
    tokens = np.concatenate(
        [
            channel.draw(counts[s : s + 30], source=source).tokens
            for source in [ds.testing.insecure_source(7)]
            for s in range(0, 400, 30)
        ]
    )
    expected = {KEYS[i]: tokens[i] for i in np.flatnonzero(tokens)}
    assert 20 < len(made) < 380 and len(made) == len(expected)
    assert made.table.column("query").to_pylist() == sorted(expected)
    assert made.tokens.tolist() == [expected[key] for key in sorted(expected)]
    assert made.table.column_names == ["query", "count", "low", "high", "weight", "bound"]
    assert made.unsafe_to_publish and str(made.guarantee).endswith("when one user is added or removed.")
    loaded = ds.Release.load(tmp_path / "a")
    assert loaded.table.equals(made.table) and loaded.notes == made.notes and loaded.certificate == made.certificate
    assert made.top(3).equals(loaded.top(3)) and made.estimate() == loaded.estimate()


@pytest.mark.parametrize(
    "given",
    [
        lambda: list(batches()),
        lambda: pa.RecordBatchReader.from_batches(next(batches()).schema, batches()),
        lambda: pa.Table.from_batches(batches()),
        lambda: (pl.from_arrow(batch) for batch in batches()),
        lambda: pl.from_arrow(pa.Table.from_batches(batches())),
        lambda: (pa.table([b["query"].dictionary_encode(), b["count"]], ["query", "count"]) for b in batches()),
    ],
    ids=["list", "reader", "table", "frames", "frame", "dictionaries"],
)  # fmt: skip
def test_any_iterable_of_arrow_data(tmp_path, given):
    assert release(given(), tmp_path / "a").table.column("query").to_pylist() == sorted(KEYS)


def test_rows_are_read_when_they_are_asked_for(tmp_path):
    made = release(batches(), tmp_path / "a")
    assert len(made) == 400 and "400 rows" in repr(made) and "table" not in vars(made)
    assert made.table.num_rows == 400 and "table" in vars(made)


def test_keys_only_and_nothing_at_all(tmp_path):
    made = release(batches(), tmp_path / "a", keys_only=True)
    assert made.table.column_names == ["query"] and made.tokens is None
    for number, none in enumerate([[], batches(counts=np.zeros(400, int))]):
        assert len(release(none, tmp_path / f"none {number}")) == 0


def test_many_batches_are_sorted_on_disk(tmp_path, monkeypatch):
    """More rows than are held at a time, on both sides of the sort."""
    monkeypatch.setattr(streamed, "_ROWS", 64)
    numbers = np.random.default_rng(3).permutation(1000)
    made = release(batches(numbers, size=17, name="n"), tmp_path / "a", key="n", privacy_unit="row")
    assert made.table.column("n").to_pylist() == list(range(1000))


VALUES = {
    "int8": pa.array([-1, 5, 3], pa.int8()),
    "uint64": pa.array([2**64 - 1, 0, 7], pa.uint64()),
    "float": pa.array([float("nan"), -1.5, float("inf")], pa.float32()),
    "text": pa.array(["b", "a\0", "a\0b"], pa.large_string()),
    "bytes": pa.array([b"\xff", b"", b"\0"]),
    "fixed": pa.array([b"bb", b"aa", b"\0\0"], pa.binary(2)),
    "bool": pa.array([True, False]),
    "decimal": pa.array([Decimal("1.50"), Decimal("-3.00")], pa.decimal128(9, 2)),
    "date": pa.array([datetime.date(2024, 1, 1), datetime.date(1969, 1, 1)]),
    "date64": pa.array([datetime.date(2024, 1, 1), datetime.date(1969, 1, 1)], pa.date64()),
    "time": pa.array([datetime.time(2), datetime.time(1)], pa.time32("ms")),
    "seconds": pa.array([2, 1], pa.timestamp("s")),
    "nanoseconds": pa.array([2, 1], pa.timestamp("ns")),
    "zoned": pa.array([2, 1], pa.timestamp("ns", "Europe/Paris")),
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_keys_keep_their_type(tmp_path, values):
    given = pa.record_batch({"key": values, "count": [900] * len(values)})
    made = release([given], tmp_path / "a", key="key", privacy_unit="row")
    ds.channels.optimal(**BUDGET).release(values, [900] * len(values)).save(tmp_path / "b")
    expected = ds.Release.load(tmp_path / "b")
    assert made.table.schema == expected.table.schema and str(made.keys) == str(expected.keys)


def test_several_key_columns(tmp_path):
    rows = [("b", 1), ("a", 2), ("a", 1)]
    given = [pa.record_batch({"c d": [row[0]], 'e"': [row[1]], "count": [900]}) for row in rows]
    made = release(given, tmp_path / "a", key=["c d", 'e"'], privacy_unit="row")
    assert made.keys.to_pylist() == [{"c d": c, 'e"': e} for c, e in sorted(rows)]


def test_null_keys_and_zeros_are_left_out(tmp_path):
    given = [pa.record_batch({"query": ["a", None, "b"], "count": [900, 900, 0]})]
    assert release(given, tmp_path / "a").keys.to_pylist() == [{"query": "a"}]


def bad(**columns):
    return pa.record_batch({"query": ["x"], "count": [9]} | columns)


WRONG = {
    "null count": (bad(count=pa.array([None], pa.int64())), InvalidValue, "count='count' holds nulls"),
    "negative": (bad(count=[-1]), InvalidValue, "holds a number below 0"),
    "beyond 64 bits": (bad(count=pa.array([2**63], pa.uint64())), InvalidValue, "or above 10"),
    "too large": (bad(count=[10**13]), InvalidValue, "above 10"),
    "fractions": (bad(count=[1.5]), InvalidType, "no whole numbers"),
    "another type": (bad(query=[1]), InvalidType, "another type"),
    "no count": (bad().select(["query"]), InvalidValue, "^count='count' is not a column"),
    "no batch": ({"query": ["x"]}, InvalidType, "batches holds a dict"),
}


@pytest.mark.parametrize(("batch", "kind", "message"), WRONG.values(), ids=WRONG)
def test_a_bad_batch_publishes_nothing_and_what_was_charged_stays(tmp_path, batch, kind, message):
    book = ds.Ledger(tmp_path / "budget.ledger", epsilon=3, delta=1e-6, unit="one row")

    def given():
        yield from batches()
        yield batch

    with pytest.raises(kind, match=f"{message}.*The ledger was charged before this: entry 1 stays spent[.]$"):
        release(given(), tmp_path / "a", ledger=book)
    assert [path.name for path in tmp_path.iterdir() if "ledger" not in path.name] == []
    assert len(book.history()) == 1
    if message != "another type":  # in the first batch with rows, it costs nothing
        with pytest.raises(kind) as found:
            release([next(batches()).slice(0, 0), batch], tmp_path / "a", ledger=book)
        assert len(book.history()) == 1 and "charged" not in str(found.value)


def test_an_iterable_that_fails_half_way(tmp_path):
    book = ds.Ledger(tmp_path / "budget.ledger", epsilon=3, delta=1e-6, unit="one row")

    def given():
        yield from batches()
        raise ConnectionError("cut")

    with pytest.raises(ConnectionError, match="cut") as found:
        release(given(), tmp_path / "a", ledger=book)
    assert found.value.__notes__ == ["The ledger was charged before this: entry 1 stays spent."]
    assert not (tmp_path / "a").exists() and len(book.history()) == 1
    assert release(batches(), tmp_path / "a", ledger=book).notes.entry == 2 == len(book.history())


def test_keys_that_come_twice_are_refused(tmp_path, monkeypatch):
    twice = [*KEYS, KEYS[0]]
    rare = np.full(401, 1)
    book = ds.Ledger(tmp_path / "budget.ledger", epsilon=3, delta=1e-6, unit="one row")
    with pytest.raises(InvalidValue, match=r"more than once.*charged before this"):
        release(batches(twice, rare), tmp_path / "a", ledger=book)
    with pytest.raises(InvalidValue, match="batches holds a key more than once") as found:  # all in the first batch
        release(batches(twice, rare, size=500), tmp_path / "a", ledger=book)
    assert "charged" not in str(found.value) and len(book.history()) == 1
    monkeypatch.setattr("dpsieve.jobs.release_counts._SEARCH_ALL", 50)
    with pytest.raises(InvalidValue, match="batches holds a key more than once"):
        release(batches(twice, np.full(401, 900)), tmp_path / "a")
    assert not (tmp_path / "a").exists()
    release(batches(twice, rare), tmp_path / "a")  # not noticed, as it is not reported


def test_what_is_refused_before_anything_is_read(tmp_path):
    def never():
        raise AssertionError
        yield

    (tmp_path / "there").mkdir()
    book = ds.Ledger(tmp_path / "budget.ledger", epsilon=0.5, delta=1e-6, unit="one row")
    for how, kind, message in [
        ({"out": tmp_path / "there"}, InvalidValue, "^out='.*there' exists already"),
        ({"out": tmp_path / "a.csv"}, InvalidValue, "out ends like a file.*out='published'"),
        ({"ledger": book}, BudgetExceeded, "epsilon"),
        ({"max_keys_per_unit": "auto", "privacy_unit": "user"}, InvalidValue, "needs the rows of units"),
        ({"max_keys_per_unit": 2}, InvalidValue, "needs a privacy_unit"),
        ({"count": "query"}, InvalidValue, "is a column of the key"),
        ({"key": "count"}, InvalidValue, "name of a column that a release adds"),
    ]:
        with pytest.raises(kind, match=message):
            ds.release_counts(never(), **{"key": "query", "out": tmp_path / "a", **BUDGET} | how)
    for given in (3, "text", None):
        with pytest.raises(InvalidType, match="batches must be an iterable"):
            release(given, tmp_path / "a")
    with pytest.raises(InvalidType, match="cannot be sorted"):
        release([pa.record_batch({"query": pa.array([[1]]), "count": [1]})], tmp_path / "a")


def test_the_bounds_that_the_caller_promises_are_in_the_guarantee(tmp_path):
    bounds = {"max_keys_per_unit": 5, "max_rows_per_key": 2}
    made = release(batches(), tmp_path / "a", privacy_unit="user", method="gaussian", **bounds)
    again = ds.Release.load(tmp_path / "a")
    assert again.notes.contribution == made.notes.contribution == "at most 5 keys, 2 rows each"
    assert made.guarantee.epsilon == 1.0 and made.guarantee == again.guarantee


def test_without_keys_the_type_is_that_of_a_schema_and_not_of_rows(tmp_path):
    """An iterable has no batch, and a list no type, where there are no rows: so their keys are text."""
    rare = pa.table({"key": [1, 2], "count": [1, 1]})
    asked = {"key": "key", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-8}
    cases = [(rare, "int64"), (rare.slice(0, 0).to_reader(), "int64"), (rare.to_batches(), "string"), ([], "string")]
    for i, (batches, kind) in enumerate(cases):
        made = ds.release_counts(batches, out=tmp_path / str(i), **asked)
        assert str(made.table.schema.field("key").type) == kind and len(made) == 0
    for keys in ([1, 2], []):
        made = ds.channels.optimal(1.0, 1e-8).release(keys, [1] * len(keys))
        assert made.table.schema.field("key").type == pa.string()


PROGRAM = """
import resource, sys, numpy as np, pyarrow as pa, dpsieve as ds
def batches(number):
    for start in range(0, number, 1 << 16):
        ids = np.arange(start, min(start + (1 << 16), number))
        yield pa.record_batch({"key": pa.array(ids), "count": np.where(ids % 50, 1, 500)})
sizes = []
for number in (200_000, 3_000_000):
    ds.release_counts(batches(number), key="key", epsilon=1.0, delta=1e-8, out=f"{sys.argv[1]}/{number}")
    sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(sizes[1] - sizes[0])
"""


def test_memory_does_not_grow_with_the_number_of_keys(tmp_path):
    """Fifteen times the keys: held as whole columns, the more of them alone would take 45 MB."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 30_000
