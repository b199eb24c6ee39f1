"""A public list of keys: every one of them is answered, and nothing else."""

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as csv
import pytest
from helpers.statistical import assert_follows

import dpsieve as ds
from dpsieve.errors import DpsieveError

pytestmark = pytest.mark.usefixtures("one_database")

SURE = {
    "max_keys_per_unit": 1,
    "epsilon": 60.0,
    "delta": 0.0,
    "key": "key",
    "privacy_unit": "user",
}  # noise other than 0: below 1e-25


def table(pairs):
    users, keys = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table({"user": pa.array(users, pa.int64()), "key": pa.array(keys, pa.string())})


DATA = table([(1, "tea"), (1, "tea"), (2, "tea"), (3, "coffee"), (4, "a secret")])


def counts(release):
    return dict(zip(release.table["key"].to_pylist(), release.table["count"].to_pylist(), strict=True))


def test_every_listed_key_is_answered_and_no_other():
    release = ds.release(DATA, known_keys=["tea", "coffee", "mate"], **SURE)
    assert counts(release) == {"coffee": 1, "mate": 0, "tea": 2}
    assert str(release.guarantee) == "60-differential privacy when one user is added or removed."
    assert release.mechanism.noise == "laplace"


def test_other_keys_take_no_room():
    """A unit with 1,000 other keys still adds its one known key: the list is applied before units are bounded."""
    loud = table([(user, f"other {k}") for user in range(20) for k in range(1000)] + [(u, "tea") for u in range(20)])
    assert counts(ds.release(loud, known_keys=["tea"], **SURE)) == {"tea": 20}


def test_units_are_bounded_among_the_known_keys():
    data = table([(user, key) for user in range(30) for key in "abcdef"] * 4)
    bounds = {"max_keys_per_unit": 2, "max_rows_per_key": 3}
    release = ds.release(data, known_keys=list("abcxyz"), **{**SURE, **bounds, "epsilon": 360.0})
    found = counts(release)
    assert sum(found.values()) == 30 * 2 * 3 and found["x"] == found["y"] == found["z"] == 0
    without = ds.release(data, key="key", privacy_unit="row", epsilon=60.0, delta=0.0, known_keys=["a", "x"])
    assert counts(without) == {"a": 120, "x": 0}  # each row is its own unit


@pytest.mark.parametrize(
    "known",
    [
        ("tea", "mate"),
        np.array(["tea", "mate"]),
        pa.array(["tea", "mate"]),
        pa.chunked_array([["tea"], ["mate"]]),
        pa.array(["tea", "mate"]).dictionary_encode(),
        pd.Series(["tea", "mate"]),
        pd.DataFrame({"key": ["tea", "mate"]}),
        pl.Series(["tea", "mate"]),
        pl.DataFrame({"key": ["tea", "mate"], "more": [1, 2]}),
        {"key": ["tea", "mate"]},
        (key for key in ("tea", "mate")),
    ],
    ids=lambda known: type(known).__name__,
)
def test_lists_of_every_kind(known):
    assert counts(ds.release(DATA, known_keys=known, **SURE)) == {"mate": 0, "tea": 2}


def test_data_of_every_kind(tmp_path):
    csv.write_csv(DATA, tmp_path / "data.csv")
    connection = duckdb.connect()
    connection.register("events", DATA)
    for data in (tmp_path / "data.csv", (connection, "events"), connection.table("events"), DATA.to_pandas()):
        assert counts(ds.release(data, known_keys=["tea", "mate"], **SURE)) == {"mate": 0, "tea": 2}
    assert connection.sql("SELECT count(*) FROM duckdb_views() WHERE view_name LIKE 'dpsieve%'").fetchall() == [(0,)]


def test_keys_are_read_as_the_data_writes_them(tmp_path):
    numbers = pa.table({"key": pa.array([1.0, -0.0, float("nan"), 0.0])})
    release = ds.release(
        numbers, key="key", privacy_unit="row", epsilon=60.0, delta=0.0, known_keys=[0, 1, float("nan")]
    )
    assert release.table["count"].to_pylist() == [2, 1, 1]
    (tmp_path / "n.csv").write_text("key\n7\n07\n")
    assert counts(
        ds.release(tmp_path / "n.csv", key="key", privacy_unit="row", epsilon=60.0, delta=0.0, known_keys=[7])
    ) == {"7": 1}


def test_several_key_columns():
    data = pa.table({"city": ["Rome", "Oslo", "Rome"], "year": [1, 2, 1]})
    for known in ([("Rome", 1), ("Bern", 2)], pa.table({"year": [1, 2], "city": ["Rome", "Bern"]})):
        release = ds.release(data, key=["city", "year"], privacy_unit="row", epsilon=60.0, delta=0.0, known_keys=known)
        assert release.keys.to_pylist() == [{"city": "Bern", "year": 2}, {"city": "Rome", "year": 1}]
        assert release.table["count"].to_pylist() == [0, 2]


@pytest.mark.parametrize("keys", [1, 3])
def test_one_unit_more_or_less_as_measured(keys):
    """The noise on a count of 0 and of 1, through the whole path, follows the distribution that was certified."""
    names, scale = [f"{k}" for k in range(20_000)], keys / 1.5
    p = np.exp(-1 / scale)
    for held in (0, 1):
        data = table([(user, name) for user, name in enumerate(names)] if held else [(0, "other")])
        budget = {"epsilon": 1.5, "delta": 0.0, "max_keys_per_unit": keys}
        release = ds.release(data, key="key", privacy_unit="user", known_keys=names, method="laplace", **budget)
        x = np.arange(-12 * keys, 12 * keys + 2)
        probabilities = (1 - p) / (1 + p) * p ** np.abs(x - held)
        assert_follows(release.tokens, x, probabilities)


def test_preview_says_what_would_be_added():
    seen = ds.preview(epsilon=1.0, delta=1e-8, privacy_unit="user", max_keys_per_unit=100, known_keys=["tea"])
    assert seen.mechanism == "gaussian" and seen.surely == 0 and seen.width == 200
    assert "every key of the list, and no other" in str(seen)


def test_a_ledger_is_charged(tmp_path):
    ledger = ds.Ledger(tmp_path / "budget", epsilon=150.0, delta=1e-9, unit="one user")
    ds.release(DATA, known_keys=["tea"], ledger=ledger, **SURE)
    with pytest.raises(DpsieveError, match="more than once"):
        ds.release(DATA, known_keys=["tea", "tea"], ledger=ledger, **SURE)
    assert len(ledger) == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"known_keys": []}, "known_keys is empty"),
        ({"known_keys": "tea"}, "one text"),
        ({"known_keys": 5}, "known_keys cannot be read"),
        ({"known_keys": ["tea", None]}, "nulls"),
        ({"known_keys": ["tea", 1]}, "known_keys cannot be read"),
        ({"known_keys": [["tea"]]}, "no keys"),
        ({"known_keys": {"other": ["tea"]}}, "one column 'key'"),
        ({"known_keys": [("tea", 1)], "key": ["key", "user"], "privacy_unit": "row", "epsilon": -1.0}, "epsilon"),
        ({"known_keys": ["x"], "key": "user", "privacy_unit": "row"}, "types of the key columns"),
        ({"known_keys": [1.4], "key": "user", "privacy_unit": "row"}, "types of the key columns"),
        ({"method": "optimal"}, "laplace"),
        ({"sample_size": 10}, "sample_size"),
        ({"scheme": ds.ppswor(0.1)}, "scheme"),
    ],
)
def test_mistakes_are_named(change, named):
    with pytest.raises(DpsieveError, match=named):
        ds.release(**({"data": DATA, "known_keys": ["tea"], **SURE} | change))
