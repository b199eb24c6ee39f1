"""Sums of weights against a plain Python reference: any order, layout, number of threads and ties."""

import math
from collections import Counter, defaultdict

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.counting import count, found
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsieve.engines import DuckDB
from dpsieve.engines.sql.queries import DUCKDB
from dpsieve.errors import InvalidValue
from dpsieve.privacy.guarantee import Weight

pytestmark = pytest.mark.usefixtures("one_database")

TIED = ("4vxs1mbpawq40olg", "f8eiydc9[LuSPw'%")  # equal hashes for every unit and salt
UNITS, KEYS = [1, 2, 3, 4, None], [*TIED, "a", "b", "zz", None]
ROWS = st.lists(st.tuples(st.sampled_from(UNITS), st.sampled_from(KEYS)), max_size=40)
WAYS = {
    "SQL, one thread": DuckDB(threads=1, compiled_from=None),
    "SQL, four threads": DuckDB(threads=4, compiled_from=None),
    "compiled": DuckDB(threads=2, compiled_from=0),
}


def table_of(rows):
    return pa.table({"unit": pa.array([u for u, _ in rows], pa.int64()), "key": pa.array([k for _, k in rows], "str")})


def hashes(salt):
    """The number that orders keys, for each pair."""
    pairs = [(unit, key) for unit in UNITS for key in KEYS if None not in (unit, key)]
    texts = [DUCKDB.choice(salt, [f"{unit}::BIGINT"], ["'" + key.replace("'", "''") + "'"]) for unit, key in pairs]
    return dict(zip(pairs, duckdb.sql(f"SELECT {', '.join(texts)}").fetchall()[0], strict=True))


def reference(rows, bits, max_keys, salt, known=None, least=1):
    """Each unit keeps the keys with the smallest hashes, of equal ones the smallest, and adds its weight to them."""
    order, keys, total = hashes(salt), defaultdict(set), Counter(dict.fromkeys(known or (), 0))
    for unit, key in rows:
        if unit is not None and key is not None and (known is None or key in known):
            keys[unit].add(key)
    for unit, own in keys.items():
        kept = own if known else sorted(own, key=lambda key: (order[unit, key], key))[:max_keys]
        weight = next(w for w in range(2**bits, -1, -1) if w * w * max(len(kept), least) <= 4**bits)
        total.update(dict.fromkeys(kept, weight))
    return dict(total)


@settings(max_examples=8, deadline=None)
@given(
    data=st.data(),
    rows=ROWS,
    weight=st.builds(Weight, st.integers(1, 9), st.integers(1, 8)),
    max_keys=st.integers(1, 6),
    salt=st.integers(0, 2**64 - 1),
)
def test_weights_are_those_of_the_reference(tmp_path_factory, data, rows, weight, max_keys, salt):
    how = {"measure": weight, "max_keys": max_keys, "max_rows": 3, "salt": salt, "allow_null_units": True}
    expected = reference(rows, weight.bits, max_keys, salt, least=weight.least)
    shuffled = table_of(data.draw(st.permutations(rows)))
    for group in (1, 7):
        path = tmp_path_factory.mktemp("weights") / "rows.parquet"
        pa.parquet.write_table(shuffled, path, row_group_size=group)
        for engine in WAYS.values():
            assert found(engine, path, **how) == found(engine, shuffled, **how) == expected


@settings(max_examples=5, deadline=None)
@given(rows=ROWS, bits=st.integers(1, 9))
def test_weights_of_known_keys(rows, bits):
    """With room for every known key: keys that are not known do not lower the weight of those that are."""
    known = ["a", "zz", "not there"]
    how = {"measure": Weight(bits), "max_keys": 3, "allow_null_units": True, "known": pa.table({"key": known})}
    for engine in WAYS.values():
        assert found(engine, table_of(rows), **how) == reference(rows, bits, 3, 1, known)


def test_a_known_list_is_bounded_too():
    table = pa.table({"unit": [7] * 5, "key": list("abcde")})
    how = {"measure": Weight(20), "max_keys": 2, "known": pa.table({"key": list("abcd")})}
    for salt in range(10):
        assert sorted(found(DuckDB(), table, salt=salt, **how).values()) == [0, 0] + [math.isqrt(4**20 // 2)] * 2


def test_without_a_unit_each_row_has_the_weight_of_one_key(frequencies):
    table = pa.table({"unit": [1, 1, 1, None], "key": ["a", "a", "b", None]})
    for max_keys in (1, 5):
        assert frequencies(table, unit=None, measure=Weight(10), max_keys=max_keys) == {"a": 2048, "b": 1024}
        assert frequencies(table, unit=None, measure=Weight(10, 4), max_keys=max_keys) == {"a": 1024, "b": 512}
    known = pa.table({"key": ["b", "c"]})
    assert frequencies(table, unit=None, measure=Weight(10), known=known) == {"b": 1024, "c": 0}


def test_units_that_a_collation_calls_equal_are_one(frequencies):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (unit VARCHAR COLLATE NOCASE, key VARCHAR)")
    connection.execute("INSERT INTO t VALUES ('Ann', 'a'), ('ANN', 'b'), ('ann', 'a'), ('ann', 'c')")
    assert set(frequencies((connection, "t"), max_keys=4, measure=Weight(20)).values()) == {math.isqrt(4**20 // 3)}


def test_several_key_columns_and_null_units(frequencies):
    table = pa.table({"unit": [1, 1, 2, None], "key": ["a", "a", "a", "a"], "more": [1, 2, 1, 1]})
    how = {"key": ("key", "more"), "measure": Weight(8), "max_keys": 3}
    assert frequencies(table, allow_null_units=True, **how) == {("a", 1): 181 + 256, ("a", 2): 181}
    with pytest.raises(InvalidValue, match="privacy_unit='unit' contains nulls"):
        frequencies(table, **how)


@pytest.mark.parametrize("keys", [1, 2, 3, 100, 9_999, 10_000])
def test_the_norm_of_what_a_unit_adds_is_bounded_and_nearly_reached(keys):
    table = pa.table({"unit": np.ones(12_000, np.int64), "key": np.arange(12_000)})
    weights = found(DuckDB(), table, max_keys=keys, measure=Weight(30)).values()
    assert len(weights) == keys and len(set(weights)) == 1
    assert 0.999_999 < sum(weight**2 for weight in weights) / 4**30 <= 1


def test_weights_round_down():
    for bits in (1, 2, 30, 62):
        for d, weight in enumerate(Weight(bits).of_keys(10_000), 1):
            assert weight**2 * d <= 4**bits < (weight + 1) ** 2 * d


def test_a_sum_that_might_not_fit_is_refused(frequencies):
    for data in (pa.table({"unit": [1, 2], "key": ["a", "b"]}), pa.table({"unit": [1, 1], "key": ["a", "a"]})):
        assert set(frequencies(data, measure=Weight(62)).values()) == {2**62}
    shared = pa.table({"unit": [1, 2], "key": ["a", "a"]})
    assert frequencies(shared, measure=Weight(61)) == {"a": 2**62}
    for more in ({}, {"max_keys": 3}, {"unit": None}, {"known": pa.table({"key": ["a"]})}):
        with pytest.raises(InvalidValue, match="bits=62 is too large where more than 1 units share a key"):
            frequencies(shared, measure=Weight(62), **more)


def test_what_is_refused(engine):
    table = pa.table({"unit": [1], "key": ["a"]})
    with pytest.raises(InvalidValue, match="max_keys_per_unit=10001 is too large for weights"):
        count(engine, table, max_keys=10_001, measure=Weight(30))
    for bits in (0, 63):
        with pytest.raises(InvalidValue, match="bits="):
            Weight(bits)
