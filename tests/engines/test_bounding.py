"""What one unit adds is bounded, fair, and decided by its own rows alone."""

from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from counting import count
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statistical import assert_counts, assert_follows

from dpsieve.engines import DuckDB
from dpsieve.engines.sql.bounded_query import choice

pytestmark = pytest.mark.usefixtures("one_database")

ROWS = st.lists(st.tuples(st.sampled_from([1, 2, 3, None]), st.sampled_from("abcde") | st.none()), max_size=40)
BOUND = st.integers(1, 4)


def table_of(rows):
    columns = {"unit": pa.array([r[0] for r in rows], pa.int64()), "key": pa.array([r[1] for r in rows], pa.string())}
    return pa.table(columns)


def reference(rows, max_rows):
    """Count when no unit has more keys than it may keep."""
    pairs = Counter((unit, key) for unit, key in rows if unit is not None and key is not None)
    total = Counter()
    for (_, key), often in pairs.items():
        total[key] += min(often, max_rows)
    return dict(total)


@settings(max_examples=30, deadline=None)
@given(rows=ROWS, max_rows=BOUND)
def test_without_a_tight_bound_it_is_the_reference(rows, max_rows):
    assert counts(rows, max_keys=5, max_rows=max_rows) == reference(rows, max_rows)


@settings(max_examples=30, deadline=None)
@given(rows=ROWS)
def test_without_a_unit_it_counts_rows(rows):
    expected = Counter(key for _, key in rows if key is not None)
    assert counts(rows, unit=None, max_keys=1, max_rows=1) == expected
    assert counts(rows, unit=None, max_keys=3, max_rows=2) == expected


@settings(max_examples=30, deadline=None)
@given(rows=ROWS, max_keys=BOUND, max_rows=BOUND, salt=st.integers(0, 2**64 - 1))
def test_the_whole_is_the_sum_of_its_units(rows, max_keys, max_rows, salt):
    """The privacy of everything else rests on this: a unit's rows change nothing of what other units add."""
    bounds = {"max_keys": max_keys, "max_rows": max_rows, "salt": salt}
    total = Counter()
    for unit in {unit for unit, _ in rows} - {None}:
        own = [row for row in rows if row[0] == unit]
        added = counts(own, **bounds)
        distinct = {key for _, key in own if key is not None}
        assert len(added) == min(max_keys, len(distinct))
        assert added.items() <= reference(own, max_rows).items()
        total.update(added)
    assert counts(rows, **bounds) == total
    assert counts(rows[::-1], **bounds) == total


@settings(max_examples=30, deadline=None)
@given(rows=ROWS, max_keys=BOUND, max_rows=BOUND, salt=st.integers(0, 2**64 - 1))
def test_a_looser_bound_keeps_what_a_tighter_one_kept(rows, max_keys, max_rows, salt):
    """In particular the fast query for one key picks the same keys as the general one."""
    rows = [row for row in rows if row[0] == 1]
    tight = counts(rows, max_keys=max_keys, max_rows=1, salt=salt)
    assert tight.keys() <= counts(rows, max_keys=max_keys + 1, max_rows=1, salt=salt).keys()
    assert tight.keys() == counts(rows, max_keys=max_keys, max_rows=max_rows, salt=salt).keys()


def counts(rows, unit="unit", salt=1, engine=DuckDB(), **bounds):  # noqa: B008
    counted = count(engine, table_of(rows), unit=unit, salt=salt, allow_null_units=True, **bounds)
    return dict(zip(counted.keys.column("key").to_pylist(), counted.frequencies.tolist(), strict=True))


@pytest.mark.parametrize("max_keys", [1, 5, 1000, 5000])
def test_a_unit_with_a_thousand_keys(frequencies, max_keys):
    table = pa.table({"unit": [7] * 3000, "key": list(range(1000)) * 3})
    found = frequencies(table, max_keys=max_keys)
    assert len(found) == min(max_keys, 1000) and set(found.values()) == {1}
    assert set(frequencies(table, max_keys=max_keys, max_rows=2).values()) == {2}


@pytest.mark.parametrize("max_rows", [1, 3])
def test_a_unit_with_a_million_rows_of_one_key(frequencies, max_rows):
    table = pa.table({"unit": np.zeros(10**6, np.int64), "key": np.zeros(10**6, np.int64)})
    assert frequencies(table, max_keys=2, max_rows=max_rows) == {0: max_rows}
    assert frequencies(table, max_keys=1, max_rows=max_rows) == {0: max_rows}


def test_several_key_columns_are_kept_together(frequencies):
    table = pa.table({"unit": [1] * 4, "key": ["a", "a", "b", "b"], "more": [1, 2, 3, 4]})
    pairs = {("a", 1), ("a", 2), ("b", 3), ("b", 4)}
    for salt in range(20):
        assert frequencies(table, key=("key", "more"), salt=salt).keys() < pairs
    assert frequencies(table, key=("key", "more"), max_keys=3).keys() < pairs
    assert frequencies(table, key=("key", "more"), max_keys=4) == dict.fromkeys(pairs, 1)


def test_the_unit_may_be_a_key_too(frequencies):
    table = pa.table({"unit": [1, 1, 2], "key": ["a", "a", "a"]})
    assert frequencies(table, key=("key", "unit"), max_keys=2) == {("a", 1): 1, ("a", 2): 1}


def test_the_same_salt_picks_the_same_and_another_one_differently(frequencies):
    table = pa.table({"unit": np.repeat(np.arange(50), 10), "key": np.tile(np.arange(10), 50)})
    for max_keys in (1, 3):
        first = frequencies(table, max_keys=max_keys, salt=5)
        assert frequencies(table, max_keys=max_keys, salt=5) == first
        assert frequencies(table.take(np.random.permutation(500)), max_keys=max_keys, salt=5) == first
        assert frequencies(table, max_keys=max_keys, salt=6) != first


@pytest.mark.parametrize(
    "keys", [["a", "b", "c"], list(range(7)), [0.5, -1.5, 1e300], [b"\x00", b"\xff", b"", b"\x00\x00"]]
)
def test_no_key_is_favoured_over_all_units(engine, keys):
    units = 8_000
    table = pa.table({"unit": np.repeat(np.arange(units), len(keys)), "key": keys * units})
    for max_keys in (1, 2):
        counted = count(engine, table, max_keys=max_keys, salt=fresh())
        assert counted.frequencies.sum() == max_keys * units
        # With two keys a unit, counts vary less than if they were drawn one by one: the test leans on the safe side.
        assert_counts(counted.frequencies.astype(float), np.full(len(keys), max_keys * units / len(keys)))


def test_each_key_of_a_unit_is_as_likely_over_salts():
    """One unit, one query over many salts. A hash without the outer mixing would fail this."""
    connection = duckdb.connect()
    names = [f"key number {i}" for i in range(11)]
    connection.execute("CREATE TABLE keys AS SELECT unnest(?) AS k", [names])
    for unit in ("42", "'ann'"):
        start = fresh() >> 2
        salts = f"range({start}, {start + 50_000}) AS t(s)"
        text = f"SELECT arg_min(k, {choice('s', [unit, 'k'])}) FROM keys, {salts} GROUP BY s"
        drawn = [names.index(row[0]) for row in connection.execute(text).fetchall()]
        assert_follows(drawn, range(11), np.full(11, 1 / 11))


def test_the_choices_of_different_units_are_independent(engine):
    """Units in blocks, each block with two keys of its own: were units to lean one way, its counts would vary more."""
    units, blocks = np.repeat(np.arange(6000), 2), 100
    keys = [f"{unit // 60} {key}" for unit, key in zip(units, [0, 1] * 6000, strict=True)]
    drawn = []
    for _ in range(8):
        counted = count(engine, pa.table({"unit": units, "key": keys}), salt=fresh())
        found = dict(zip(counted.keys.column(0).to_pylist(), counted.frequencies.tolist(), strict=True))
        drawn += [found.get(f"{block} 0", 0) for block in range(blocks)]
    assert_follows(drawn, range(61), stats.binom.pmf(np.arange(61), 60, 0.5))


def fresh():
    return int(np.random.default_rng().integers(2**64, dtype=np.uint64))
