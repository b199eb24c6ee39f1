"""Every engine passes this suite: DuckDB in two ways, PostgreSQL over ADBC, classic Spark and Spark Connect.

Which keys a unit keeps may differ between engines, as their hashes do; all else is the same. Each query on Spark takes
half a second of a core: so keys hold their unit here, and one query tells what each of many units adds.
"""

import math
from collections import Counter
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from helpers.counting import EVERY_BOUND, aggregation, count, found, named
from helpers.statistical import assert_counts, assert_follows
from places import Database, Here, OnSpark
from scipy import stats

import dpsieve as ds
from dpsieve.engines import Columns, DuckDB
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.privacy.guarantee import Contribution, Weight

PLACES = [
    "SQL",
    "loops",
    *(pytest.param(name, marks=pytest.mark.server) for name in ("PostgreSQL", "Spark", "Connect")),
]
BUDGET = {"epsilon": 1.0, "delta": 1e-8}
TYPES = {"unit": pa.int64(), "key": pa.string(), "more": pa.int64()}
HOSTILE = ["", "a", "ab", "b", "bc", "1", ",", "','", "(a)", "\\", '"', "'; DROP TABLE x; --", "é", "e\u0301", "🫖"]


@pytest.fixture(scope="module", params=PLACES)
def place(request):
    """An engine, and how data comes to it."""
    if request.param in ("SQL", "loops"):
        request.getfixturevalue("one_database")
        yield Here(None if request.param == "SQL" else 0)
    elif request.param == "PostgreSQL":
        url = request.getfixturevalue("postgres")
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(url, autocommit=True) as connection:
            with connection.cursor() as cursor:
                how = "provider = icu, locale = 'und-u-ks-level2', deterministic = false"
                cursor.execute(f"CREATE COLLATION IF NOT EXISTS ignoring_case ({how})")
            yield Database(connection, " COLLATE ignoring_case")
    else:
        yield OnSpark(request.getfixturevalue("spark")[request.param == "Connect"])


def table_of(rows, types=TYPES):
    return pa.table({name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(types.items())})


def some_rows(seed):
    """Rows of sixty units, some null: up to eighteen of each, of 18 keys in two columns, which may be null."""
    rng = np.random.default_rng(seed)
    units = [None if u % 20 == 0 else u for u in range(60) for _ in range(rng.integers(1, 10))]
    keys, more = ([*"abÄ'", "", "B", None], [0, 1, 2, None])
    rows = [(u, keys[rng.integers(len(keys))], more[rng.integers(len(more))]) for u in units for _ in range(2)]
    return [rows[i] for i in rng.permutation(len(rows))]


def own_rows(rows):
    """How often each unit has each of its keys."""
    own = {}
    for unit, *key in rows:
        if unit is not None and None not in key:
            own.setdefault(unit, Counter())[tuple(key)] += 1
    return own


def by_unit(counts):
    """What each unit adds, where keys start with their unit."""
    added = {}
    for (unit, *key), n in counts.items():
        added.setdefault(unit, {})[tuple(key)] = n
    return added


WHO = {"key": ("unit", "key", "more"), "allow_null_units": True}
SALT = 8_234_567_890_123_456_789


def test_what_a_unit_adds_depends_on_its_own_rows_and_the_salt(place):
    """It adds as much as it may; other units, the order of rows, partitions and ways of counting change nothing."""
    for max_keys, max_rows in place.some([(1, 1), (3, 1), (1, 2), (3, 2)]):
        how = WHO | {"max_keys": max_keys, "max_rows": max_rows, "salt": SALT}
        for seed in range(place.tables):
            rows = some_rows(seed)
            own, added = own_rows(rows), by_unit(found(place.engine, place.load(table_of(rows)), **how))
            assert added.keys() == own.keys()
            for unit, counts in added.items():
                assert len(counts) == min(max_keys, len(own[unit]))
                assert counts == {key: min(own[unit][key], max_rows) for key in counts}
            fewer = [row for row in rows[::-1] if row[0] is None or row[0] % 3]
            alone = by_unit(found(place.engine, place.load(table_of(fewer)), **how))
            assert alone == {unit: counts for unit, counts in added.items() if unit % 3}


def test_the_whole_is_the_sum_of_its_parts(place):
    """Where units share keys; and another salt picks differently."""
    rows, parts = some_rows(99), Counter()
    how = {"key": ("more", "key"), "max_keys": 2, "max_rows": 2, "allow_null_units": True}
    for rest in (0, 1):
        part = place.load(table_of([row for row in rows if (row[0] or 0) % 2 == rest]))
        parts.update(found(place.engine, part, salt=SALT, **how))
    data = place.load(table_of(rows))
    assert found(place.engine, data, salt=SALT, **how) == parts != found(place.engine, data, salt=6, **how)


def test_where_nothing_is_cut_every_engine_counts_the_same(place):
    rows = table_of(some_rows(7))
    data = place.load(rows)
    known = pa.table({"key": ["b", "not there", "Ä", ""]})
    for how in place.some(
        [
            {"key": ("key", "more"), "max_keys": 24, "max_rows": 3},
            {"unit": None, "measure": Weight(20, least=4), "max_keys": 3},
            {"unit": ("unit", "more"), "max_keys": 9, "measure": Weight(20, least=3)},
            {"max_keys": 9, "max_rows": 2, "known": known},
            {"max_keys": 9, "measure": Weight(20), "known": known},
        ]
    ):
        how = {"allow_null_units": True, **how}
        assert found(place.engine, data, **how) == found(DuckDB(), rows, **how), how


def test_weights_of_a_unit_keep_its_norm(place):
    """A unit adds the same weight to each key that it keeps, which are those it keeps where units are counted."""
    data = place.load(table_of(some_rows(3)))
    counted = by_unit(found(place.engine, data, max_keys=4, salt=SALT, **WHO))
    weighed = by_unit(found(place.engine, data, max_keys=4, salt=SALT, measure=Weight(20), max_rows=3, **WHO))
    assert weighed == {unit: dict.fromkeys(kept, math.isqrt(4**20 // len(kept))) for unit, kept in counted.items()}


def test_many_weights_and_a_sum_that_might_not_fit(place):
    rows = [(unit, str(key), 0) for unit, keys in ((1, 60), (2, 59), (3, 1)) for key in range(keys)]
    counts = found(place.engine, place.load(table_of(rows)), max_keys=60, measure=Weight(40))
    of_all, of_most = (math.isqrt(4**40 // keys) for keys in (60, 59))
    assert (counts["59"], counts["5"], counts["0"]) == (of_all, of_all + of_most, of_all + of_most + 2**40)
    shared = place.load(table_of([(1, "a", 0), (2, "a", 0)]))
    with pytest.raises(InvalidValue, match="bits=62 is too large where more than 1 units share a key"):
        found(place.engine, shared, max_keys=3, measure=Weight(62))


def test_counts_under_every_bound_come_from_one_read(place):
    """They are those of `aggregate`, and so are those of which units hold which keys, where an engine tells that."""
    rows = some_rows(5)
    data, columns, how = (
        place.load(table_of(rows)),
        Columns(("key", "more"), "unit"),
        {"allow_null_units": True, "salt": SALT},
    )
    several, sizes = (
        place.engine.read_by_bound(data, aggregation(columns, EVERY_BOUND, **how)),
        Counter(map(len, own_rows(rows).values())),
    )
    assert several.units.tolist() == [sizes[size] for size in range(1001)]
    assert sum(named(several.under(1000)).values()) == sum(size * n for size, n in sizes.items())
    expected = {most: found(place.engine, data, key=columns.key, max_keys=most, **how) for most in place.some([1, 3])}
    assert {most: named(several.under(most)) for most in expected} == expected
    if not place.engine.supports_pairs:
        with pytest.raises(InvalidType, match="does not return pairs"):
            place.engine.read_pairs(data, aggregation(columns, Contribution(1), **how))
        return
    held = place.engine.read_pairs(data, aggregation(columns, Contribution(10**12), **how))
    for most, counts in expected.items():
        counted = held.bound(most).count()
        keys, numbers = counted.keys.to_pydict().values(), counted.frequencies.tolist()
        assert dict(zip(zip(*keys, strict=True), numbers, strict=True)) == counts
    alone = place.engine.read_pairs(data, aggregation(Columns(("key",)), Contribution(1), salt=1))
    assert sorted(alone.counts()) == sorted(Counter(row[1] for row in rows if row[1] is not None).values())
    listed = {"known": pa.table({"key": ["none", "b"]}), **how}
    told = place.engine.read_pairs(data, aggregation(Columns(("key",), "unit"), Contribution(9), **listed))
    assert told.counts().tolist() == [0, len({row[0] for row in rows if row[1] == "b"} - {None})]


def test_no_key_is_favoured_and_units_choose_independently(place):
    """Units in blocks with two keys of their own: were units to lean one way, its counts would vary more.

    With a fresh salt. Each of the checks, two a case, fails by chance less than once in four million runs.
    """
    types = dict.fromkeys(["unit", "other", "block", "key"], pa.int64())
    data = place.load(table_of([(u, u, u // 20, k) for u in range(6_000) for k in (0, 1)], types))
    for unit in place.some(["unit", ("unit", "block"), ("unit", "other")]):
        counts = found(place.engine, data, key=("block", "key"), unit=unit, salt=fresh())
        zeros = [counts.get((block, 0), 0) for block in range(300)]
        assert_follows(zeros, range(21), stats.binom.pmf(np.arange(21), 20, 0.5))
        assert_counts(np.array([sum(zeros), sum(counts.values()) - sum(zeros)], float), np.full(2, 3_000.0))


def test_each_key_of_a_unit_is_as_likely(place):
    """With two keys a unit, counts vary less than if they were drawn one by one: the test leans on the safe side."""
    kinds = [list(range(7)), [0.5, -1.5, 1e300], [b"\x00", b"\xff", b"", b"\x00\x00"], ["a", "b", "A", "ab", ""]]
    for keys in place.some(kinds):
        data = place.load(pa.table({"unit": [str(u) for u in range(2_000) for _ in keys], "key": keys * 2_000}))
        for max_keys in (1, 2) if place.tables > 1 else (1 + len(keys) % 2,):
            counts = found(place.engine, data, max_keys=max_keys, salt=fresh())
            assert sum(counts.values()) == max_keys * 2_000
            assert_counts(
                np.array([counts[key] for key in keys], float), np.full(len(keys), max_keys * 2_000 / len(keys))
            )


def fresh():
    return int(np.random.default_rng().integers(2**63))


def test_units_of_several_columns_are_not_joined(place):
    """Nor cut in two: every pair of hostile texts is a unit."""
    types = {"tenant": pa.string(), "user": pa.string(), "key": pa.string()}
    pairs = [(a, b) for a in HOSTILE for b in HOSTILE]
    data = place.load(table_of([(*pair, key) for pair in pairs for key in "xyxz"], types))
    how = {"key": ("tenant", "user", "key"), "unit": ("tenant", "user"), "max_rows": 2}
    kept = Counter(found(place.engine, data, **how, max_keys=3))
    assert kept == {(*pair, key): 1 + (key == "x") for pair in pairs for key in "xyz"}
    swapped = found(place.engine, data, key=("key",), unit=("user", "tenant"))
    assert sum(swapped.values()) == len(pairs)


def test_null_units_are_refused_unless_their_rows_are_dropped(place):
    """A null in any column makes a null unit; rows without a key are dropped first."""
    rows, both = [(1, "a", 1), (None, "a", 1), (1, "b", None), (2, None, None)], ("unit", "more")
    data, fine = place.load(table_of(rows)), place.load(table_of([rows[0], (None, None, 1), rows[3]]))
    for unit, bounds in place.some(
        [
            ("unit", {}),
            ("unit", {"max_keys": 3, "max_rows": 2}),
            (both, {"measure": Weight(9), "max_keys": 2}),
            (both, {}),
        ]
    ):
        with pytest.raises(InvalidValue, match="contains nulls, which cannot be attributed to a unit"):
            count(place.engine, data, unit=unit, **bounds)
    with pytest.raises(InvalidValue, match=r"privacy_unit=\['unit', 'more'\] contains nulls"):
        place.engine.read_by_bound(data, aggregation(Columns(("key",), both), EVERY_BOUND, salt=1))
    assert found(place.engine, data, unit="unit", max_keys=3, allow_null_units=True) == {"a": 1, "b": 1}
    assert found(place.engine, data, unit=both, known=pa.table({"key": ["b", "a"]}), allow_null_units=True) == {
        "b": 0,
        "a": 1,
    }
    assert found(place.engine, fine, unit=both) == {"a": 1}


NAMES = [
    'a"b',
    "x`y",
    "'",
    "ünï",
    "UPPER",
    "select",
    "k0",
    "u0",
    "i",
    "n",
    "two words",
    "{x}",
    "%s",
    ":p",
    "\\n",
]
NAMES += ["$1", "a.b", "; DROP TABLE rows; --"]


def test_any_name_means_its_column(place):
    values = {name: [f"{name} of {row}" for row in range(3)] for name in NAMES}
    data = place.load(pa.table(values))
    expected = dict.fromkeys(zip(*values.values(), strict=True), 1)
    assert found(place.engine, data, key=tuple(NAMES), unit=NAMES[0]) == expected
    assert found(place.engine, data, key=("two words", "i"), unit="UPPER") == {key[10:7:-2]: 1 for key in expected}


def test_equal_numbers_are_one_key_and_equal_units_choose_alike(place):
    values = [-0.0, 0.0, -0.0, math.nan, -math.nan]
    counts = found(place.engine, place.load(pa.table({"unit": range(len(values)), "key": values})), max_keys=2)
    assert {str(key): n for key, n in counts.items()} == Counter(str(abs(value)) for value in values)
    rows = pa.table(
        {"unit": [zero for _ in "abcdef" for zero in (0.0, -0.0)], "key": [key for key in "abcdef" for _ in range(2)]}
    )
    chosen = {
        tuple(found(place.engine, place.load(rows.take(order)), salt=3).items())
        for order in (np.arange(12), np.arange(12)[::-1])
    }
    assert len(chosen) == 1 and chosen.pop()[0][1] == 1


def test_texts_are_told_apart_by_their_bytes_whatever_the_collation(place):
    rows = pa.table({"unit": range(len(HOSTILE)), "key": HOSTILE})
    assert found(place.engine, place.load(rows)) == dict.fromkeys(HOSTILE, 1)
    tea = pa.table({"unit": ["1", "2", "3", "3"], "key": ["Tea", "tea", "Tea", "tea"]})
    data = place.load_ignoring_case(tea, "key")
    assert found(place.engine, data, max_keys=2) == {"Tea": 2, "tea": 2}
    assert found(place.engine, data, max_keys=2, known=pa.table({"key": ["Tea", "TEA"]})) == {"Tea": 2, "TEA": 0}
    units = place.load_ignoring_case(pa.table({"unit": ["Ann", "ann", "ANN"], "key": ["a", "b", "c"]}), "unit")
    if place.ignores_case:
        assert sum(found(place.engine, units, max_keys=2).values()) == 2
    else:
        with pytest.raises(InvalidType, match="privacy_unit='unit' has a collation"):
            count(place.engine, units)


def searches():
    """Most users of two tenants search for tea, all for two other things, and each for something of its own."""
    users = np.arange(3_000)
    queries = [*["tea"] * 2_000, *(f"q{u % 10}" for u in users), *(f"q{u * 7 % 90}" for u in users)]
    who = np.concatenate([users[:2_000], users, users, users])
    return pa.table({"tenant": who % 2, "user": who // 2, "query": queries + [f"secret {u}" for u in users]})


WAYS = {
    "listed": {"known_keys": ["tea", "milk"], "max_keys_per_unit": 3},
    "one key of each": {"max_keys_per_unit": 1},
    "each row": {"privacy_unit": "row"},
    "three keys": {"max_keys_per_unit": 3},
}


def test_a_release_says_the_same_of_itself_on_every_engine(place):
    table = searches()
    data = place.load(table)
    for how in place.some(list(WAYS.values())):
        asked = {"key": "query", "privacy_unit": ["tenant", "user"]} | BUDGET | how
        here, made = ds.release(table, **asked), ds.release(data, engine=place.engine, **asked)
        for part in ("mechanism", "certificate", "guarantee", "notes", "unsafe_to_publish"):
            assert getattr(made, part) == getattr(here, part), part
        keys = made.keys.column("query").to_pylist()
        assert made.table.schema == here.table.schema and keys == sorted(keys) and "tea" in keys
        assert not any(key.startswith("secret") for key in keys)
        if "known_keys" in how:
            assert all(abs(one - n) < 100 for one, n in zip(made.tokens, [0, 2_000], strict=True))


def test_a_release_chooses_its_bound_and_is_charged_once(place, tmp_path):
    """Of the counts of tea under any bound, with at most four keys a unit, most are left."""
    data, ledger = (
        place.load(searches()),
        ds.Ledger(tmp_path / "ledger", epsilon=1.0, delta=1e-8, unit=["tenant", "user"]),
    )
    asked = {"key": "query", "privacy_unit": ["tenant", "user"], "engine": place.engine, **BUDGET}
    made = ds.release(data, ledger=ledger, **asked)
    assert "chosen with differential privacy" in made.notes.contribution
    assert made.notes.entry is not None and len(ledger) == 1 and ledger.remaining() is None
    assert "tea" in made.keys.column("query").to_pylist() and made.guarantee == ds.Guarantee(
        unit=["tenant", "user"], **BUDGET
    )
    two_steps = asked | {"goal": "counts"}
    if place.engine.supports_pairs:
        assert "tea" in ds.release(data, **two_steps).keys.column("query").to_pylist()
    else:
        for act in (ds.preview, ds.release):
            with pytest.raises(
                InvalidValue, match=r"goal='counts' needs to know .* Spark does not report. Leave goal out"
            ):
                act(data, ledger=ds.Ledger(tmp_path / act.__name__, unit=asked["privacy_unit"], **BUDGET), **two_steps)
            assert len(ds.Ledger.open(tmp_path / act.__name__)) == 0


WRONG = {
    "no such key": ({"key": "querry"}, "key='querry' is not a column of the data. Did you mean 'query'?"),
    "the unit as key": ({"key": "zz"}, "key='zz' is not a column of the data. Choose from 'query', 'number', 'list'."),
    "no such unit": ({"privacy_unit": "usr"}, "privacy_unit='usr' is not a column of the data. Did you mean 'user'?"),
    "null units": ({}, "privacy_unit='user' contains nulls, which cannot be attributed"),
    "null units, bounded": (
        {"max_keys_per_unit": 2, "report_coverage": False},
        "privacy_unit='user' contains nulls, which cannot",
    ),
    "a list": ({"key": "list"}, "key='list' has the type "),
    "listed keys of another type": ({"key": "number", "known_keys": ["x"], "max_keys_per_unit": 1}, "known_keys"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_errors_are_the_same_cost_nothing_and_quote_no_data(place, tmp_path, wrong):
    how, words = WRONG[wrong]
    if wrong == "a list" and not place.in_schema:
        pytest.skip("its columns have no such type")
    table = pa.table({"user": ["1", "2", None], "query": ["tea", "hush", "tea"], "number": [1, 2, 3]})
    table = table.append_column("list", pa.array([[1], [2], [3]] if place.in_schema else ["x", "y", "z"]))
    ledger = ds.Ledger(tmp_path / "ledger", epsilon=1.0, delta=1e-8, unit=how.get("privacy_unit", "user"))
    asked = {"key": "query", "privacy_unit": "user", **BUDGET, **how}
    with pytest.raises(DpsieveError) as here:
        ds.release(table, **asked)
    with pytest.raises(DpsieveError) as caught:
        ds.release(place.load(table), engine=place.engine, ledger=ledger, **asked)
    assert str(caught.value).startswith(words) and type(caught.value) is type(here.value)
    assert wrong == "a list" or str(caught.value) == str(here.value)
    assert "hush" not in str(caught.value) and caught.value.__cause__ is None and caught.value.__context__ is None
    assert len(ledger) == 0 and ledger.spent() == 0


@pytest.mark.parametrize("columns", [["number"], ["day", "query"]], ids="+".join)
def test_a_release_without_keys_has_the_types_of_the_schema(place, columns):
    """As with keys, whether there are rows or none: no type shows that there was a key."""
    day = pa.array([20_000] * 4_000, pa.int32()).cast(pa.date32())
    table = pa.table({"number": pa.array([7] * 4_000, pa.int32()), "day": day, "query": ["tea"] * 4_000})
    asked = {"key": columns, "privacy_unit": "row", "engine": place.engine, **BUDGET}
    jobs = [ds.release, partial(ds.discover, method="weighted_gaussian")]
    for job in place.some(jobs):
        many, few = place.load(table), place.load(table.slice(0, 2))
        full, rare = job(many, **asked).table, job(few, **asked).table
        none = job(few, where="number < 0", **asked).table
        assert len(full) and not len(rare) and not len(none)
        assert full.schema.equals(rare.schema, check_metadata=True) and full.schema.equals(none.schema)
