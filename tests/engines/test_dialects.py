"""The one text, run by other engines.

SQLite always runs. PostgreSQL runs where it is installed, on a server that the tests start, and Spark when
DPSIEVE_TEST_SPARK is set (with pyspark and Java installed). The texts of all dialects are read back.
"""

import contextlib
import math
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from counting import found, task
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sqlglot import exp
from statistical import assert_counts, assert_follows

from dpsieve.engines import COUNT, DuckDB, Weight
from dpsieve.engines.sql.bounded_query import sizes_query
from dpsieve.engines.sql.dialects import DIALECTS, query_for, sqlite_hash
from dpsieve.engines.sql.pairs_query import pairs_query, places_query
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue

pytestmark = pytest.mark.usefixtures("one_database")

ROW = st.tuples(
    st.sampled_from([1, 2, 3, None]),
    st.sampled_from(["a", "A", "ä", "", "'"]) | st.none(),
    st.sampled_from([0, 1, None]),
)
ROWS = st.lists(st.tuples(ROW, st.integers(1, 6)), max_size=15).map(
    lambda found: [r for row, n in found for r in [row] * n]
)
BOUND = st.integers(1, 4)
SALT = st.integers(0, 2**64 - 1)
NAMES = (
    'a"b',
    "x`y",
    "'",
    "ünï",
    "UPPER",
    "select",
    "k0",
    "u",
    "i",
    "n",
    "two words",
    "{x}",
    "%s",
    ":p",
    "\\n",
)


class Sqlite:
    dialect = "sqlite"
    types = MappingProxyType({"int": "INTEGER", "text": "TEXT", "float": "REAL", "bytes": "BLOB"})
    ignoring_case = "TEXT COLLATE NOCASE"

    def __init__(self):
        self.connection = sqlite3.connect(":memory:")
        self.connection.create_function("dpsieve_hash", -1, sqlite_hash, deterministic=True)

    def load(self, name, types, rows):
        self.ask(f"DROP TABLE IF EXISTS {quoted(name)}")
        self.ask(f"CREATE TABLE {quoted(name)} ({', '.join(f'{quoted(c)} {t}' for c, t in types.items())})")
        self.connection.executemany(f"INSERT INTO {quoted(name)} VALUES ({', '.join('?' * len(types))})", rows)

    def ask(self, text, salt=1):
        return self.connection.execute(text).fetchall()

    def close(self):
        self.connection.close()


class Postgres:
    dialect = "postgres"
    types = MappingProxyType({"int": "bigint", "text": "text", "float": "double precision", "bytes": "bytea"})
    arrow = MappingProxyType({"bigint": pa.int64(), "double precision": pa.float64(), "real": pa.float64()})
    ignoring_case = "text COLLATE ignoring_case"

    def __init__(self, url):
        from adbc_driver_postgresql import dbapi

        self.connection = dbapi.connect(url)
        self.cursor = self.connection.cursor()
        how = "provider = icu, locale = 'und-u-ks-level2', deterministic = false"
        self.cursor.execute(f"CREATE COLLATION ignoring_case ({how})")

    def load(self, name, types, rows):
        kinds = [pa.binary() if t == "bytea" else self.arrow.get(t, pa.string()) for t in types.values()]
        columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
        self.cursor.execute(f"DROP TABLE IF EXISTS {quoted(name)}, given")
        self.cursor.adbc_ingest("given", pa.table(columns, [f"c{i}" for i in range(len(types))]), temporary=True)
        cast = [f"CAST(c{i} AS {t}) AS {quoted(c)}" for i, (c, t) in enumerate(types.items())]
        cast = [text.replace(" COLLATE ignoring_case)", ") COLLATE ignoring_case") for text in cast]
        self.cursor.execute(f"CREATE TEMPORARY TABLE {quoted(name)} AS SELECT {', '.join(cast)} FROM given")

    def ask(self, text, salt=1):
        self.cursor.execute(f"SELECT set_config('dpsieve.salt', '{salt}', false)").fetchall()
        return self.cursor.execute(text).fetchall()

    def close(self):
        self.cursor.close()
        self.connection.close()


class Spark:
    dialect = "spark"
    types = MappingProxyType({"int": "bigint", "text": "string", "float": "double", "bytes": "binary"})
    ignoring_case = "string collate UTF8_LCASE"

    def __init__(self):
        if "DPSIEVE_TEST_SPARK" not in os.environ:
            pytest.skip("DPSIEVE_TEST_SPARK is not set")
        from pyspark.sql import SparkSession

        options = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "3"}
        self.session = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()

    def load(self, name, types, rows):
        inner = ", ".join(f"c{i} {t.partition(' ')[0]}" for i, t in enumerate(types.values()))
        frame = self.session.createDataFrame(list(rows), inner)
        columns = [f"CAST(c{i} AS {t}) AS `{c.replace('`', '``')}`" for i, (c, t) in enumerate(types.items())]
        frame.selectExpr(*columns).createOrReplaceTempView(name)

    def ask(self, text, salt=1):
        return [
            tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in self.session.sql(text).collect()
        ]

    def close(self):
        self.session.stop()


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture(scope="module", params=[Sqlite, Postgres, Spark], ids=lambda make: make.__name__)
def other(request):
    needs = [request.getfixturevalue("postgres")] if request.param is Postgres else []
    with contextlib.closing(request.param(*needs)) as database:
        yield database


@cache
def written(dialect, types, asked, known):
    return query_for(dialect, ("rows",), dict(types), asked, known)


def counted(other, types, rows, key=("key",), known=None, **how):
    """Return {key: frequency}; a key of several columns is a tuple, and one that is known is its place."""
    names = {name: other.types.get(kind, kind) for name, kind in types.items()}
    other.load("rows", names, rows)
    if known is not None:
        other.load("known", {f"k{i}": names[name] for i, name in enumerate(key)} | {"i": other.types["int"]}, known)
    asked = task(key, **how)
    asked = replace(asked, salt=0) if other.dialect == "postgres" else asked  # where the salt is a setting
    text = written(other.dialect, tuple(names.items()), asked, None if known is None else ("known",))
    answered = other.ask(text, how.get("salt", 1))
    result = {row[0] if len(row) == 2 else row[:-1]: row[-1] for row in answered}
    assert len(result) == len(answered)
    return result


PLAIN = {"unit": "int", "key": "text", "more": "int"}


def by_duckdb(rows, key=("key",), unit="unit", known=None, **bounds):
    types = {"unit": pa.int64(), "key": pa.string(), "more": pa.int64()}
    table = pa.table({name: pa.array([row[i] for row in rows], t) for i, (name, t) in enumerate(types.items())})
    if known is not None:
        known = pa.table({name: pa.array([k[i] for k in known], types[name]) for i, name in enumerate(key)})
    return found(DuckDB(), table, key=key, unit=unit, allow_null_units=True, known=known, **bounds)


@settings(max_examples=15, deadline=None)
@given(rows=ROWS, max_keys=BOUND, max_rows=BOUND, key=st.sampled_from([("key",), ("key", "more"), ("more", "key")]))
def test_it_counts_as_duckdb_does(other, rows, max_keys, max_rows, key):
    """Which keys are kept differs, but not how many; and where all are kept, nothing does."""
    how = {"key": key, "max_rows": max_rows}
    full = counted(other, PLAIN, rows, max_keys=10, allow=True, **how)
    assert full == by_duckdb(rows, max_keys=10, **how)
    tight = counted(other, PLAIN, rows, max_keys=max_keys, allow=True, **how)
    assert all(often <= full[name] for name, often in tight.items())
    once = {"key": key, "max_keys": max_keys, "max_rows": 1}
    assert sum(counted(other, PLAIN, rows, allow=True, **once).values()) == sum(by_duckdb(rows, **once).values())
    assert counted(other, PLAIN, rows, unit=None, **how) == by_duckdb(rows, unit=None, max_keys=1, **how)


@settings(max_examples=15, deadline=None)
@given(rows=ROWS, max_keys=BOUND, max_rows=BOUND, salt=SALT)
def test_the_whole_is_the_sum_of_its_units(other, rows, max_keys, max_rows, salt):
    """The privacy of everything else rests on this: a unit's rows change nothing of what other units add."""
    bounds = {"max_keys": max_keys, "max_rows": max_rows, "salt": salt, "allow": True}
    total = Counter()
    for unit in {row[0] for row in rows} - {None}:
        own = [row for row in rows if row[0] == unit]
        added = counted(other, PLAIN, own, **bounds)
        often = Counter(row[1] for row in own if row[1] is not None)
        assert len(added) == min(max_keys, len(often))
        assert all(added[name] == min(often[name], max_rows) for name in added)
        total.update(added)
    assert counted(other, PLAIN, rows, **bounds) == total
    assert counted(other, PLAIN, rows[::-1], **bounds) == total


@pytest.mark.parametrize("max_keys", [1, 2, 5])
@pytest.mark.parametrize("max_rows", [1, 2, 3, 9])
def test_a_unit_with_many_rows_and_keys(other, max_keys, max_rows):
    """Three units, each with four keys of seven rows."""
    rows = [(unit, key, 0) for unit in (1, 2, 3) for key in "abcd"] * 7
    found = counted(other, PLAIN, rows, max_keys=max_keys, max_rows=max_rows)
    assert sum(found.values()) == 3 * min(max_keys, 4) * min(max_rows, 7)
    assert all(often % min(max_rows, 7) == 0 for often in found.values())
    alone = counted(other, PLAIN, [row for row in rows if row[0] == 2], max_keys=max_keys, max_rows=max_rows)
    assert len(alone) == min(max_keys, 4) and set(alone.values()) == {min(max_rows, 7)}
    places = [("a", 0, 0), ("z", 0, 1)]
    listed = counted(other, PLAIN, rows, key=("key", "more"), max_keys=max_keys, max_rows=max_rows, known=places)
    assert listed == {0: 3 * min(max_rows, 7)}


@settings(max_examples=15, deadline=None)
@given(rows=ROWS, max_keys=BOUND, max_rows=BOUND, salt=SALT)
def test_a_looser_bound_keeps_what_a_tighter_one_kept(other, rows, max_keys, max_rows, salt):
    rows = [row for row in rows if row[0] == 1]
    tight = counted(other, PLAIN, rows, max_keys=max_keys, salt=salt)
    assert tight.keys() <= counted(other, PLAIN, rows, max_keys=max_keys + 1, salt=salt).keys()
    assert tight.keys() == counted(other, PLAIN, rows, max_keys=max_keys, max_rows=max_rows, salt=salt).keys()


@settings(max_examples=15, deadline=None)
@given(rows=ROWS, listed=st.sets(st.tuples(st.sampled_from("aAbä'"), st.integers(0, 2))), max_rows=BOUND)
def test_keys_that_are_not_known_are_dropped_first(other, rows, listed, max_rows):
    listed = sorted(listed)
    places = [(*key, place) for place, key in enumerate(listed)]
    how = {"key": ("key", "more"), "max_keys": 10, "max_rows": max_rows}
    found = counted(other, PLAIN, rows, known=places, allow=True, **how)
    everything = by_duckdb(rows, known=listed, **how) if listed else {}
    assert {listed[place]: often for place, often in found.items()} == {k: n for k, n in everything.items() if n}
    if listed:
        own = [(1, "none", 5), *((1, *key) for key in listed)]
        assert list(counted(other, PLAIN, own, known=places, key=("key", "more")).values()) == [1]


@settings(max_examples=15, deadline=None)
@given(rows=ROWS, max_keys=BOUND, salt=SALT)
def test_weights(other, rows, max_keys, salt):
    """A unit adds the weight of the number of keys that it keeps, and nothing depends on other units."""
    measure, total = Weight(20), Counter()
    how = {"max_keys": max_keys, "salt": salt, "allow": True}
    for unit in {row[0] for row in rows} - {None}:
        kept = counted(other, PLAIN, [row for row in rows if row[0] == unit], **how)
        total.update(dict.fromkeys(kept, math.isqrt(4**20 // max(len(kept), 1))))
    assert counted(other, PLAIN, rows, measure=measure, **how) == total
    assert counted(other, PLAIN, rows[::-1], measure=measure, max_rows=3, **how) == total
    least = Weight(20, least=3)
    assert counted(other, PLAIN, rows, measure=least, max_keys=10, allow=True) == by_duckdb(
        rows, max_keys=10, measure=least
    )
    plain = by_duckdb(rows, max_keys=10, measure=measure)
    assert counted(other, PLAIN, rows, max_keys=10, measure=measure, allow=True) == plain
    listed = counted(other, PLAIN, rows, max_keys=10, measure=measure, allow=True, known=[("a", 0), ("ä", 1)])
    known = by_duckdb(rows, max_keys=10, measure=measure, known=[("a",), ("ä",)])
    assert {"aä"[place]: weight for place, weight in listed.items()} == {k: w for k, w in known.items() if w}
    often = Counter(row[1] for row in rows if row[1] is not None)
    alone = counted(other, PLAIN, rows, unit=None, max_keys=max_keys, measure=measure)
    assert alone == {key: n * 2**20 for key, n in often.items()}


@pytest.mark.parametrize("key", [("key",), ("more", "key")])
def test_pairs_places_and_sizes(other, key):
    """Which units hold which keys, in the order in which `bounded_query` keeps them, and how many they hold."""
    rows = [
        (u, k, m) for u, k, m in zip([1, 1, 1, 2, 2, 3, 9, 9], "abacdaee", [0, 1, 0, 0, 0, 1, 1, None], strict=True)
    ]
    names = {name: other.types[kind] for name, kind in PLAIN.items()}
    everything = {"max_keys": 1000, "salt": 4}
    first, bounded = len(key), [counted(other, PLAIN, rows, key, max_keys=most, salt=4) for most in (1, 2, 1000)]

    def answer(query):
        return other.ask(query_for(other.dialect, ("rows",), names, task(key, **everything), None, query), 4)

    pairs, places = answer(pairs_query), answer(places_query)
    assert sorted(place for *_, who, place in pairs if place == 1) == [1] * len({who for *_, who, _ in pairs})
    for most, expected in zip((1, 2, 1000), bounded, strict=True):
        expected = {name if isinstance(name, tuple) else (name,): n for name, n in expected.items()}
        assert Counter(row[:first] for row in pairs if row[-1] <= most) == expected
        summed = Counter()
        for *name, place, n in places:
            summed[tuple(name)] += n if place <= most else 0
        assert +summed == expected
    held = Counter(Counter(who for *_, who, _ in pairs).values())
    assert Counter(dict(answer(lambda scan, columns, asked, *_: sizes_query(scan, columns, asked)))) == held
    alone = other.ask(query_for(other.dialect, ("rows",), names, task(key, unit=None), None, pairs_query), 4)
    assert {row[:first]: row[first] for row in alone} == Counter(
        tuple(row[list(PLAIN).index(name)] for name in key) for row in rows if None not in row[1:] or key == ("key",)
    )
    assert sorted(row[-1] for row in alone) == list(range(1, len(alone) + 1))


def test_thousands_of_weights_and_a_sum_that_might_not_fit(other):
    rows = [(unit, key) for unit, keys in ((1, 3_000), (2, 2_999), (3, 1)) for key in range(keys)]
    found = counted(other, {"unit": "int", "key": "int"}, rows, max_keys=3_000, measure=Weight(40))
    of_all, of_most = (math.isqrt(4**40 // keys) for keys in (3_000, 2_999))
    assert found[2_999] == of_all and found[5] == of_all + of_most and found[0] == of_all + of_most + 2**40
    wide = {"measure": Weight(62), "max_keys": 4}
    assert counted(other, PLAIN, [(1, "a", 0), (2, "b", 0)], **wide) == {"a": 2**62, "b": 2**62}
    try:
        assert counted(other, PLAIN, [(1, "a", 0), (2, "a", 0)], **wide) == {"a": None}
    except sqlite3.OperationalError as error:
        assert "overflow" in str(error)


@settings(max_examples=15, deadline=None)
@given(rows=ROWS, max_keys=BOUND, salt=SALT)
def test_the_smallest_hashes_are_kept(rows, max_keys, salt):
    other, total = Sqlite(), Counter()
    for unit in {row[0] for row in rows} - {None}:
        pairs = {row[1:] for row in rows if row[0] == unit and None not in row}
        total.update(sorted(pairs, key=lambda pair: sqlite_hash(str(salt), unit, *pair))[:max_keys])
    found = counted(other, PLAIN, rows, key=("key", "more"), max_keys=max_keys, salt=salt, allow=True)
    other.close()
    assert found == total


@pytest.mark.parametrize("kind", ["int", "text", "float", "bytes"])
def test_no_key_is_favoured_over_all_units(other, kind):
    values = {
        "int": list(range(7)),
        "text": ["a", "b", "A", "ab", ""],
        "float": [0.5, -1.5, 1e300],
        "bytes": [b"\x00", b"\xff", b"", b"\x00\x00"],
    }[kind]
    units = 3000
    rows = [(unit, value) for unit in range(units) for value in values]
    for max_keys, salt in ((1, fresh()), (2, fresh()), (1, 0), (1, 2**64 - 1)):
        found = counted(other, {"unit": "int", "key": kind}, rows, max_keys=max_keys, salt=salt)
        seen = np.array([found[value] for value in values], dtype=float)
        assert seen.sum() == max_keys * units
        assert_counts(seen, np.full(len(values), max_keys * units / len(values)))


@pytest.mark.parametrize("spell", [int, str, float, lambda unit: f"user number {unit:06}"], ids=range(4))
def test_the_choices_of_different_units_are_independent(other, spell):
    """Units in blocks, each block with two keys of its own: its count varies as a binomial does."""
    unit = {int: "int", float: "float"}.get(type(spell(1)), "text")
    rows = [(spell(u), u // 60, k) for u in range(24_000) for k in (0, 1)]
    types = {"unit": unit, "block": "int", "key": "int"}
    found = counted(other, types, rows, key=("block", "key"), salt=fresh())
    drawn = [found.get((block, 0), 0) for block in range(400)]
    assert_follows(drawn, range(61), stats.binom.pmf(np.arange(61), 60, 0.5))


def test_another_salt_picks_differently(other):
    rows = [(unit, key) for unit in range(50) for key in range(10)]
    types = {"unit": "int", "key": "int"}
    for max_keys in (1, 3):
        first = counted(other, types, rows, max_keys=max_keys, salt=5)
        assert counted(other, types, rows[::-1], max_keys=max_keys, salt=5) == first
        assert counted(other, types, rows, max_keys=max_keys, salt=6) != first


@pytest.mark.parametrize("bounds", [{}, {"max_keys": 3}, {"max_rows": 2}, {"key": ("key", "more"), "max_keys": 2}])
def test_null_units_are_told_unless_they_are_dropped(other, bounds):
    rows = [(1, "a", 1), (None, "a", 1), (None, "b", 1)]
    found = counted(other, PLAIN, rows, **bounds)
    assert any(name is None or (isinstance(name, tuple) and name[0] is None) for name in found)
    assert list(counted(other, PLAIN, rows, allow=True, **bounds).values()) == [1]
    assert counted(other, PLAIN, rows[1:], allow=True, **bounds) == {}
    assert counted(other, PLAIN, [(None, None, 1), (1, "a", 1)], **bounds) == counted(other, PLAIN, rows[:1], **bounds)


@pytest.mark.parametrize("name", NAMES)
def test_any_name_means_its_column(other, name):
    types = {name: "int", "other": "text", name + "2": "text"}
    rows = [(1, "x", "a"), (1, "y", "b"), (2, "x", "a")]
    assert counted(other, types, rows, key=(name + "2",), unit=name, max_keys=2) == {"a": 2, "b": 1}
    pairs = {("a", 1): 1, ("a", 2): 1, ("b", 1): 1}
    assert counted(other, types, rows, key=(name + "2", name), unit="other", max_keys=2) == pairs
    assert counted(other, types, rows, key=(name,), unit=name) == {1: 1, 2: 1}


def test_equal_numbers_are_one_key_and_written_in_one_way(other):
    values = [-0.0, 0.0, -0.0] + ([] if other.dialect == "sqlite" else [math.nan, -math.nan])
    kinds = {"postgres": ["real", "float"], "spark": ["float", "double"]}.get(other.dialect, ["float"])
    for kind in kinds:
        types = {"unit": "int", "key": kind}
        for bounds in ({}, {"max_keys": 3}, {"unit": None}):
            found = counted(other, types, list(enumerate(values)), **bounds)
            assert {str(name): often for name, often in found.items()} == dict(Counter(str(abs(v)) for v in values))
        assert list(counted(other, types, [(1, 0.1)])) == [pytest.approx(0.1)]


def test_equal_units_choose_alike(other):
    """Otherwise the order of the rows could decide what a unit keeps."""
    rows = [(zero, key) for key in "abcdef" for zero in (0.0, -0.0)]
    types = {"unit": "float", "key": "text"}
    for salt in range(10):
        found = counted(other, types, rows, salt=salt)
        assert len(found) == 1 and counted(other, types, rows[::-1], salt=salt) == found
        assert counted(other, types, [(-zero, key) for zero, key in rows], salt=salt) == found


def test_keys_are_told_apart_by_their_bytes(other):
    rows = [(1, "Tea"), (2, "tea"), (3, "Tea")]
    types = {"unit": "int", "key": other.ignoring_case}
    for bounds in ({}, {"max_keys": 2}, {"unit": None}):
        assert counted(other, types, rows, **bounds) == {"Tea": 2, "tea": 1}
    assert counted(other, types, [(1, "Tea"), (1, "tea")], max_keys=2) == {"Tea": 1, "tea": 1}
    names = {"unit": other.types["int"], "key": other.ignoring_case}
    other.load("rows", names, rows)
    other.load("known", {"k0": other.types["text"], "i": other.types["int"]}, [("Tea", 0), ("TEA", 1)])
    text = query_for(other.dialect, ("rows",), names, task(), ("known",))
    assert other.ask(text) == [(0, 2)]


def test_units_that_a_collation_calls_equal_are_one(other):
    rows = [(unit, key) for key in "abc" for unit in ("Ann", "ann")]
    types = {"unit": other.ignoring_case, "key": "text"}
    if other.dialect == "postgres":
        for salt in range(20):
            found = counted(other, types, rows, salt=salt)
            assert sum(found.values()) == 1 and counted(other, types, rows[::-1], salt=salt) == found
    else:
        with pytest.raises(InvalidType, match="privacy_unit='unit' has a collation"):
            counted(other, types, rows)


def test_exact_numbers_of_postgres_are_written_without_zeros_at_the_end(other):
    if other.dialect != "postgres":
        pytest.skip("elsewhere all numbers of a column have the same scale")
    types = {"unit": "numeric", "key": "numeric"}
    for salt in range(10):
        found = counted(other, types, [("1", "2.0"), ("1.0", "2.00"), ("2", "2"), ("1.00", "3")], salt=salt, max_keys=2)
        assert {str(name): often for name, often in found.items()} == {"2": 2, "3": 1}


def test_values_of_any_type_in_one_column_of_sqlite():
    other = Sqlite()
    types = {"unit": "BLOB", "key": "BLOB"}
    rows = [(unit, key) for key in (b"a", b"b", b"c") for unit in (1, 1.0)]
    for salt in range(10):
        found = counted(other, types, rows, salt=salt)
        assert sum(found.values()) == 1 and counted(other, types, rows[::-1], salt=salt) == found
    assert counted(other, types, [(1, b"a"), ("1", b"a"), (b"1", b"a")]) == {b"a": 3}
    assert counted(other, types, [(1, 1), (2, 1.0)]) == {b"1": 1, b"1.0": 1}
    assert counted(other, {"unit": "INT", "key": "REAL"}, [(1, "x"), (2, "y"), (3, 1)]) == {"x": 1, "y": 1, 1.0: 1}
    other.close()


TYPES = {
    "postgres": ("bigint", "character varying(9)", "real", "numeric"),
    "sqlite": ("INTEGER", "VARCHAR(9)", "REAL", "NUMERIC"),
    "spark": ("bigint", "string", "float", "decimal(10,2)"),
    "bigquery": ("INT64", "STRING", "FLOAT64", "NUMERIC"),
    "snowflake": ("NUMBER(38,0)", "VARCHAR(9)", "FLOAT", "NUMBER(9,2)"),
}
HASHES = {
    "postgres": """HASHTEXTEXTENDED(CAST(ROW(CURRENT_SETTING('dpsieve.salt'), k0) AS TEXT) COLLATE "C", """
    "HASH_RECORD_EXTENDED(ROW(u0), 0))",
    "sqlite": "DPSIEVE_HASH('9', u0, k0)",
    "spark": "XXHASH64('9', u0, k0)",
    "bigquery": "FARM_FINGERPRINT(TO_JSON_STRING(STRUCT('9', u0, k0)))",
    "snowflake": "HASH(HASH('9', u0, k0))",
}


def test_there_is_a_test_for_each_dialect():
    assert set(DIALECTS) == TYPES.keys() == HASHES.keys()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ["unit", *NAMES])
def test_the_text_is_read_back(dialect, name):
    """Every kind of query for a plain name, and one that names it as unit and as key for each that needs quotes."""
    types = dict(zip([name, "text", "real", "exact"], TYPES[dialect], strict=True))
    kinds = ((1, 1, COUNT), (3, 1, Weight(30)), (3, 1, COUNT), (1, 3, COUNT))
    keys = ((("text", "real", "exact", name), None), (("text",), None), (("real", "text"), ("known",)))
    for max_keys, max_rows, measure in kinds if name == "unit" else kinds[NAMES.index(name) % 2 :: 2][:1]:
        for key, known in keys if name == "unit" else keys[:1]:
            bounds = task(key, name, max_keys, max_rows, measure, salt=9)
            text = query_for(dialect, ("a b", 'r"s'), types, bounds, known)
            tree = sqlglot.parse_one(text, read=dialect)
            assert tree.sql(dialect=dialect) == text
            assert known is None or HASHES[dialect] in text
            assert len(key) > 1 or HASHES[dialect] in text
            for word in ("::", "UBIGINT", "ARG_MIN", "STRUCT_PACK", "ISNAN" if dialect != "spark" else "IS_NAN"):
                assert word not in text.upper().replace(name.upper(), "")
            (table,) = [t for t in tree.find_all(exp.Table) if t.name == 'r"s']
            assert table.db == "a b"
            assert {c.name for c in tree.find_all(exp.Column) if c.this.quoted} == {name, *key}
            assert all(query.alias for query in tree.find_all(exp.Subquery))


@pytest.mark.parametrize(
    ("dialect", "type_"),
    [
        ("postgres", "integer[]"),
        ("postgres", "interval"),
        ("postgres", "time with time zone"),
        ("postgres", "hstore"),
        ("postgres", "mood"),
        ("spark", "array<int>"),
        ("spark", "struct<a: int>"),
        ("spark", "map<string, int>"),
        ("bigquery", "GEOGRAPHY"),
        ("snowflake", "VARIANT"),
        ("sqlite", ""),
    ],
)
def test_types_that_cannot_be_keys(dialect, type_):
    types = {"unit": type_, "key": type_, "fine": "int"}
    with pytest.raises(InvalidType, match="cannot be a key"):
        query_for(dialect, ("t",), types, task())
    assert "fine" in query_for(dialect, ("t",), types, task(("fine",)))


def test_what_is_not_there():
    bounds = task(unit=None)
    with pytest.raises(InvalidValue, match=r"dialect='oracle' is not known. Choose from 'postgres'"):
        query_for("oracle", ("t",), {"key": "int"}, bounds)
    with pytest.raises(InvalidValue, match=r"key='key' is not a column of the data. Did you mean 'keys'"):
        query_for("spark", ("t",), {"keys": "int"}, bounds)


@pytest.mark.parametrize(
    ("meant", "written"),
    [
        ("CASE WHEN n > 3 THEN 3 ELSE n END", "n"),
        ("place <= 2", "TRUE"),
        ("place <= 2", "place <= 3"),
        ("PARTITION BY u0 ", ""),
        ("DISTINCT ", ""),
        ("GROUP BY u0, k0", "GROUP BY k0"),
        ('NOT "key" IS NULL', "TRUE"),
        ("d <= 1", "TRUE"),
        ("d <= 1 THEN 64", "d <= 1 THEN 65"),
        ("COUNT(*) <= ", "1 <= "),
    ],
)
def test_a_bound_that_is_lost_on_the_way_is_noticed(monkeypatch, meant, written):
    """Some versions of sqlglot wrote LEAST(n, 3) as n for SQLite."""
    maker = type(sqlglot.Dialect.get_or_raise("sqlite").generator())
    right = maker.generate
    weighs = meant.startswith(("d ", "COUNT"))
    bounds = task(max_keys=2, max_rows=1 if meant == "DISTINCT " else 3, measure=Weight(6) if weighs else COUNT)
    assert meant in query_for("sqlite", ("t",), {"unit": "int", "key": "int"}, bounds)
    monkeypatch.setattr(maker, "generate", lambda *args, **more: right(*args, **more).replace(meant, written))
    with pytest.raises(DpsieveError, match="changes what the query for sqlite means"):
        query_for("sqlite", ("t",), {"unit": "int", "key": "int"}, bounds)


def test_duckdb_does_without_sqlglot():
    text = "import sys, dpsieve, dpsieve.cli, dpsieve.engines.sql.dialects; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0


def fresh():
    return int(np.random.default_rng().integers(2**64, dtype=np.uint64))


def test_where_hashes_are_equal_the_key_decides():
    """With a hash that is the same for all, the keys decide."""
    other = Sqlite()
    other.connection.create_function("dpsieve_hash", -1, lambda *_: 0, deterministic=True)
    rows = [(unit, key) for unit in range(5) for key in "cab"]
    for order in (rows, rows[::-1]):
        assert counted(other, {"unit": "int", "key": "text"}, order) == {"a": 5}
        assert counted(other, {"unit": "int", "key": "text"}, order, max_keys=2) == {"a": 5, "b": 5}
    other.close()
    types = {"unit": "int", "key": "int", "more": "int"}
    for dialect in DIALECTS:
        text = query_for(dialect, ("t",), types, task(("key", "more"), max_keys=2, salt=7))
        window = text.partition("ORDER BY")[2].partition(") AS")[0]
        assert window.replace(" NULLS LAST", "").replace(" NULLS FIRST", "").endswith(", k0, k1"), window
    least = "MIN(STRUCT(XXHASH64('7', u0, k0, k1) AS h, k0 AS k0, k1 AS k1))"
    assert least in query_for("spark", ("t",), types, task(("key", "more"), salt=7))


HOSTILE = ["", "a", "ab", "b", "bc", "1", ",", "','", "(a)", "\\", '"', "é", "e\u0301", None]
SEVERAL = {"tenant": "text", "user": "text", "key": "text"}
OF_SEVERAL = st.lists(
    st.tuples(st.sampled_from(HOSTILE), st.sampled_from(HOSTILE), st.sampled_from("xyz") | st.none()), max_size=30
)


def of_units(rows):
    """The rows of each unit of two columns, without nulls."""
    whole = [row for row in rows if None not in row]
    return {unit: [row for row in whole if row[:2] == unit] for unit in {row[:2] for row in whole}}


@settings(max_examples=10, deadline=None)
@given(rows=OF_SEVERAL, max_keys=BOUND, max_rows=BOUND, salt=SALT)
def test_units_of_several_columns_are_the_sum_of_their_units(other, rows, max_keys, max_rows, salt):
    bounds = {"unit": ("tenant", "user"), "max_keys": max_keys, "max_rows": max_rows, "salt": salt, "allow": True}
    total = Counter()
    for own in of_units(rows).values():
        added, often = counted(other, SEVERAL, own, **bounds), Counter(row[2] for row in own)
        assert len(added) == min(max_keys, len(often))
        assert all(added[name] == min(often[name], max_rows) for name in added)
        total.update(added)
    assert counted(other, SEVERAL, rows, **bounds) == counted(other, SEVERAL, rows[::-1], **bounds) == total


def test_no_two_units_of_several_columns_are_joined(other):
    pairs = [(a, b) for a in HOSTILE[:-1] for b in HOSTILE[:-1]]
    rows, unit = [(*pair, key) for pair in pairs for key in "xy"], {"unit": ("tenant", "user")}
    assert counted(other, SEVERAL, rows, max_keys=2, **unit) == {"x": len(pairs), "y": len(pairs)}
    assert sum(counted(other, SEVERAL, rows, **unit).values()) == len(pairs)
    numbers = {"tenant": "int", "user": "text", "key": "text"}
    rows = [(1, "11", "x"), (11, "1", "x"), (1, "1", "x"), (1, "11", "x")]
    assert counted(other, numbers, rows, max_rows=9, **unit) == {"x": 4}
    assert counted(other, numbers, rows, **unit) == {"x": 3}
    for null in ((None, "u"), ("t", None)):
        rows = [("t", "u", "x"), (*null, "x")]
        assert None in counted(other, SEVERAL, rows, **unit) and None in counted(
            other, SEVERAL, rows, max_rows=2, **unit
        )
        assert counted(other, SEVERAL, rows, allow=True, **unit) == {"x": 1}


@settings(max_examples=10, deadline=None)
@given(rows=OF_SEVERAL, max_keys=BOUND, salt=SALT)
def test_the_smallest_hashes_of_units_of_several_columns_are_kept(rows, max_keys, salt):
    other, total = Sqlite(), Counter()
    for unit, own in of_units(rows).items():
        keys = sorted({row[2] for row in own}, key=lambda key, unit=unit: sqlite_hash(str(salt), *unit, key))
        total.update(keys[:max_keys])
    found = counted(other, SEVERAL, rows, unit=("tenant", "user"), max_keys=max_keys, salt=salt, allow=True)
    other.close()
    assert found == total


def test_units_of_several_columns_choose_independently(other):
    """Also where both columns are equal; each key of a unit is as likely."""
    types = {"tenant": "int", "user": "int", "block": "int", "key": "int"}
    for second in (lambda u: u, lambda u: u % 7):
        rows = [(u, second(u), u // 60, k) for u in range(24_000) for k in (0, 1)]
        found = counted(other, types, rows, key=("block", "key"), unit=("tenant", "user"), salt=fresh())
        drawn = [found.get((block, 0), 0) for block in range(400)]
        assert_follows(drawn, range(61), stats.binom.pmf(np.arange(61), 60, 0.5))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_column_of_a_unit_bounds(dialect):
    types = dict(zip(["tenant", "user", "real", "exact"], TYPES[dialect], strict=True))
    text = query_for(dialect, ("t",), types, task(("exact",), ("tenant", "user"), 2, 3, salt=9))
    assert "PARTITION BY u0, u1 ORDER BY" in text and "GROUP BY u0, u1, k0" in text.replace("\n", " ")
    assert HASHES[dialect].replace("u0", "u0, u1") in text and "NOT u0 IS NULL AND NOT u1 IS NULL" in text


def test_the_salt_may_be_in_a_table():
    types, bounds = {"unit": "int", "key": "int"}, task(max_keys=2, salt=123456789)
    text = query_for("spark", ("t",), types, bounds, salt="x`y")
    assert "XXHASH64((SELECT s FROM `x``y`), u0, k0)" in text and "123456789" not in text
