"""A privacy unit of several columns is one combination of values: none is joined with another, none is cut in two."""

import datetime
import functools
import itertools
import math
from collections import Counter, defaultdict

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from helpers.counting import aggregation, found, task
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsieve.engines import Columns, DuckDB
from dpsieve.engines.duckdb.compiled import pairs
from dpsieve.engines.duckdb.compiled.pairs import unit_expression
from dpsieve.engines.engine import NumberColumns
from dpsieve.engines.sql.columns import Column
from dpsieve.engines.sql.queries import DUCKDB
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.guarantee import Contribution, Weight

pytestmark = pytest.mark.usefixtures("one_database")

TIED = ("4vxs1mbpawq40olg", "f8eiydc9[LuSPw'%")  # equal hashes, so that values must break the tie
TEXTS = ["", "a", "ab", "b", "bc", "c", ":", "1:a", "0:", "1", "2", "\x00", "a\x00", "é", "e\u0301", "🫖", *TIED]
UNIT = ("tenant", "user")
SALT = st.integers(0, 2**64 - 1)
SQL, LOOPS = DuckDB(threads=2, compiled_from=None), DuckDB(threads=2, compiled_from=0)
WAYS = pytest.mark.parametrize("engine", [SQL, LOOPS], ids=["SQL", "loops"])


@pytest.fixture
def answers(monkeypatch):
    """What compiled loops return for each query that they read; None where they give up, and SQL takes their place."""
    made, real = [], pairs.read_pairs
    monkeypatch.setattr(pairs, "read_pairs", lambda *given: made.append(real(*given)) or made[-1])
    return made


@functools.cache
def database():
    return duckdb.connect()


def table_of(rows, kinds=("str", "str")):
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate((*kinds, "str"))]
    return pa.table(columns, names=[*UNIT, "key"])


def by_unit(table, salt):
    """The rows of each unit in Python: {unit: {key: how often}}, and DuckDB's hashes of units and of pairs."""
    connection = database().cursor()
    connection.register("given", table)
    orders = f"{DUCKDB.choice(salt, [*UNIT], [])}, {DUCKDB.choice(salt, [*UNIT], ['key'])}"
    own, of_unit, of_pair = defaultdict(Counter), {}, {}
    for *unit, key, first, second in connection.sql(f"SELECT *, {orders} FROM given").fetchall():
        if key is not None and None not in unit:
            whose = tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in unit)
            own[whose][key] += 1
            of_unit[whose], of_pair[whose, key] = first, second
    return own, of_unit, of_pair


def kept_keys(table, salt, max_keys):
    """What each unit keeps, in the order of units: the smallest hashes, of equal ones the smallest values."""
    own, of_unit, of_pair = by_unit(table, salt)
    for unit in sorted(own, key=lambda unit: (of_unit[unit], unit)):
        keys = sorted(own[unit], key=lambda key, unit=unit: (of_pair[unit, key], key))[:max_keys]
        yield {key: own[unit][key] for key in keys}


def lists(engine, table, max_keys, salt, **more):
    """The keys of each unit, in order."""
    held = engine.read_pairs(table, aggregation(Columns(("key",), UNIT), Contribution(max_keys), salt=salt, **more))
    names = held.keys.column("key").to_pylist()
    return [[names[number] for number in held.key_numbers[a:b]] for a, b in itertools.pairwise(held.starts)]


def check(table, salt, bounds=(1, 2, 100)):
    """Compare counts, rows, weights and lists of keys with the reference in Python."""
    for max_keys in bounds:
        kept, how = list(kept_keys(table, salt, max_keys)), {"unit": UNIT, "max_keys": max_keys, "salt": salt}
        counts, rows = Counter(), Counter()
        for own in kept:
            counts.update(own.keys())
            rows.update({key: min(often, 2) for key, often in own.items()})
        for engine in (SQL, LOOPS):
            assert found(engine, table, **how, allow_null_units=True) == counts
            assert found(engine, table, **how, allow_null_units=True, max_rows=2) == rows
            assert lists(engine, table, max_keys, salt, allow_null_units=True) == [list(own) for own in kept]
            whole = Weight(20)
            heavy = Counter()
            for own in kept:
                heavy.update(dict.fromkeys(own, whole.of_keys(max_keys)[len(own) - 1]))
            assert found(engine, table, **how, allow_null_units=True, measure=whole) == heavy


ROW = st.tuples(st.sampled_from([*TEXTS, None]), st.sampled_from([*TEXTS, None]), st.sampled_from(["x", "y", *TIED]))


@settings(max_examples=12, deadline=None)
@given(rows=st.lists(ROW, max_size=40), salt=SALT, max_keys=st.sampled_from([1, 2, 100]))
def test_it_is_the_reference(rows, salt, max_keys):
    check(table_of(rows), salt, [max_keys])


def test_nothing_at_all():
    check(table_of([]), 1)


def test_every_pair_of_hostile_values_is_a_unit_of_its_own(answers):
    """('a', 'bc') and ('ab', 'c'), ('1:a', '') and ('1', ':a'), ...: 324 units, none of them joined with another.

    Units that are joined let compiled loops give up in most cases, which SQL would hide.
    """
    rows = [(a, b, key) for a in TEXTS for b in TEXTS for key in ("x", "y", "z")]
    table = table_of(rows)
    for engine in (SQL, LOOPS):
        assert found(engine, table, unit=UNIT, max_keys=3) == dict.fromkeys("xyz", len(TEXTS) ** 2)
        assert sum(found(engine, table, unit=UNIT).values()) == len(TEXTS) ** 2
    assert len(answers) == 2
    check(table, 7)
    assert None not in answers


DAY = datetime.date(2026, 5, 1)
OF_TYPES = {
    "numbers and texts": (["1", "11", "1"], [11, 1, -1], ("str", "int64")),
    "texts and numbers": ([1, 11, -1], ["11", "1", ""], ("int8", "str")),
    "numbers": ([1, 12, -(2**63)], [23, 3, 2**31 - 1], ("int64", "int32")),
    "large numbers": ([2**64 - 1, 0, 1], [1, 2, 3], ("uint64", "uint32")),
    "floats": ([math.nan, 0.0, -0.0, 1.5], [1, 2, 3], ("float64", "int64")),
    "bytes": ([b"", b"\x00", b"\xff"], [b"\x00", b"", b"a"], ("binary", "binary")),
    "dates": ([DAY, DAY + datetime.timedelta(1)], ["", "1"], (pa.date32(), "str")),
    "booleans": ([True, False], ["", "true"], ("bool", "str")),
}


@pytest.mark.parametrize("kind", OF_TYPES)
def test_types(kind):
    first, second, kinds = OF_TYPES[kind]
    rows = [(a, b, key) for a in [*first, None] for b in [*second, None] for key in "pqrs"]
    for salt in (0, 2**64 - 1):
        check(table_of(rows, kinds), salt)


def test_three_columns_with_identifiers(tmp_path):
    path = tmp_path / "rows.parquet"
    uuids = "('00000000-0000-0000-0000-00000000000' || a % 3)::UUID"
    rows = f"SELECT {uuids} AS a, (a // 3 % 4)::INT AS b, ':' || (a // 12 % 5) AS c, 'k' || a % 7 AS key"
    duckdb.sql(f"COPY ({rows} FROM range(2000) t(a)) TO '{path}'")
    for engine in (SQL, LOOPS):
        assert found(engine, path, unit=("a", "b", "c"), max_keys=7) == {f"k{i}": 60 for i in range(7)}
        assert sum(found(engine, path, unit=("a", "b", "c"), max_keys=3).values()) == 180
    assert found(SQL, path, unit=("a", "b", "c"), max_keys=2) == found(LOOPS, path, unit=("a", "b", "c"), max_keys=2)


@settings(max_examples=30, deadline=None)
@given(values=st.lists(st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1), st.text()), min_size=1, max_size=5))
def test_the_texts_of_units_are_in_the_order_of_their_values(values):
    """No two units have the same text, whatever characters and digits their values hold, and ties break as in SQL."""
    kinds = {"a": "VARCHAR", "b": "BIGINT", "c": "VARCHAR"}
    columns = {name: Column(name, name, kind) for name, kind in kinds.items()}
    names = ", ".join(f"{name} AS u{i}" for i, name in enumerate(columns))
    unit = unit_expression(columns, Columns(("k",), tuple(columns)))
    text = f"SELECT encode({unit}) FROM (SELECT {names}, i FROM given) ORDER BY i"
    connection = database().cursor()
    given = dict(zip(columns, map(list, zip(*values, strict=True)), strict=True))
    connection.register("given", pa.table(given | {"i": range(len(values))}))
    written = [row[0] for row in connection.sql(text).fetchall()]
    in_order = sorted(set(values), key=lambda value: (value[0].encode(), value[1], value[2].encode()))
    assert len(set(written)) == len(set(values))
    assert [value for _, value in sorted(set(zip(written, values, strict=True)))] == in_order


def test_compiled_loops_take_units_of_several_columns(answers):
    table = table_of([("a", "bc", "x"), ("ab", "c", "x")])
    assert found(LOOPS, table, unit=UNIT) == found(LOOPS, table, unit=UNIT, max_keys=2) == {"x": 2}
    assert lists(LOOPS, table, 2, 1) == [["x"], ["x"]]
    assert len(answers) == 3 and None not in answers


@pytest.mark.parametrize("bounds", [{}, {"max_keys": 3}, {"max_rows": 2}, {"measure": Weight(9), "max_keys": 2}])
@pytest.mark.parametrize("null", [(None, "u"), ("t", None), (None, None)])
@WAYS
def test_a_null_in_any_column_is_a_null_unit(engine, null, bounds):
    table, unit = table_of([("t", "u", "x"), (*null, "x"), (*null, "y")]), {"unit": UNIT}
    with pytest.raises(InvalidValue, match=r"privacy_unit=\['tenant', 'user'\] contains nulls.*allow_null_units=True"):
        found(engine, table, **unit, **bounds)
    with pytest.raises(InvalidValue, match="contains nulls"):
        found(engine, table, **unit, **bounds, known=pa.table({"key": ["x"]}))
    with pytest.raises(InvalidValue, match="contains nulls"):
        lists(engine, table, 2, 1)
    assert list(found(engine, table, **unit, **bounds, allow_null_units=True)) == ["x"]
    assert found(engine, table.slice(1), **unit, **bounds, allow_null_units=True) == {}
    without_key = table_of([("t", "u", "x"), (*null, None)])
    assert list(found(engine, without_key, **unit, **bounds)) == ["x"], "rows without a key are dropped first"


@pytest.mark.parametrize("max_keys", [1, 5, 1000])
def test_one_unit_more_changes_as_many_counts_as_it_may_keep(engine, max_keys):
    """A unit of a thousand keys, among others that share its tenant or its user."""
    others = [("t", f"u{i}", f"k{i % 10}") for i in range(50)] + [(f"t{i}", "u", f"k{i % 10}") for i in range(50)]
    own = [("t", "u", f"k{i}") for i in range(1000)] * 2
    how = {"unit": UNIT, "max_keys": max_keys, "salt": fresh()}
    before, after = (found(engine, table_of(rows), **how) for rows in (others, own[:700] + others + own[700:]))
    alone = found(engine, table_of(own), **how)
    assert len(alone) == max_keys and set(alone.values()) == {1}
    assert Counter(after) - Counter(before) == alone and Counter(before) <= Counter(after)


@pytest.mark.parametrize("max_rows", [1, 2, 5])
def test_rows_of_numbers(engine, max_rows):
    """Each unit keeps its own rows, as many as it may, and the same ones whoever else is there."""
    random = np.random.default_rng(5)
    rows = [(a, b) for a in TEXTS[:8] for b in TEXTS[:8] for _ in range(random.integers(1, 5))]
    value = np.arange(len(rows), dtype=float)
    table = pa.table({"tenant": [a for a, _ in rows], "user": [b for _, b in rows], "value": value})
    kept = numbers(engine, table, max_rows)
    of_whom = [{rows[int(v)] for v in own} for own in kept]
    assert all(len(unit) == 1 for unit in of_whom) and len(of_whom) == len(set(rows)) == 64
    sizes = Counter(rows)
    assert all(len(own) == min(sizes[unit.copy().pop()], max_rows) for own, unit in zip(kept, of_whom, strict=True))
    for unit in rows[::40]:
        alone = table.filter(pa.array([row == unit for row in rows]))
        assert numbers(engine, alone, max_rows)[0] in kept
    null = pa.table({"tenant": ["t", None], "user": ["u", "u"], "value": [1.0, 2.0]})
    with pytest.raises(InvalidValue, match=r"privacy_unit=\['tenant', 'user'\] contains nulls"):
        numbers(engine, null, max_rows)
    assert numbers(engine, null, max_rows, allow_null_units=True) == [[1.0]]


def numbers(engine, table, max_rows, **more):
    made = engine.read_numbers(
        table, aggregation(NumberColumns(("value",), UNIT), Contribution(rows=max_rows), salt=3, **more)
    )
    return [made.values[a:b, 0].tolist() for a, b in zip(made.starts, made.starts[1:], strict=False)]


def test_a_collation_joins_units_that_it_calls_equal():
    seen = set()
    rows = [(name, 7, key) for name in ("Ann", "ANN") for key in "abcdefg"]
    for order in (rows, rows[::-1]):
        connection = duckdb.connect()
        connection.execute('CREATE TABLE events (tenant VARCHAR COLLATE NOCASE, "user" INT, key VARCHAR)')
        connection.executemany("INSERT INTO events VALUES (?, ?, ?)", order)
        counts = found(LOOPS, (connection, "events"), unit=UNIT, max_keys=2)
        seen.add(tuple(sorted(counts)))
        assert sum(counts.values()) == 2
    assert len(seen) == 1


def test_every_kind_of_input(kind, tmp_path):
    table = table_of([("a", "bc", "x"), ("ab", "c", "x"), ("a", "bc", "x"), ("a", "c", "y")])
    assert found(DuckDB(), kind(table, tmp_path), unit=UNIT, max_keys=2) == {"x": 2, "y": 1}


def test_arguments():
    assert Columns(("k",)).unit == Columns(("k",), None).unit == () and Columns(("k",), "u").unit == ("u",)
    assert Columns(("k",), ["a", "b"]).names == ("a", "b", "k") and task(unit=UNIT).columns.unit == UNIT
    with pytest.raises(InvalidValue, match="privacy_unit names a column twice"):
        Columns(("k",), ("a", "a"))
    with pytest.raises(InvalidValue, match="privacy_unit is an empty list"):
        Columns(("k",), [])
    for wrong in (7, ("a", 7), {"a"}):
        with pytest.raises(InvalidType, match=r"privacy_unit must be.*privacy_unit='user_id'"):
            Columns(("k",), wrong)
    with pytest.raises(InvalidValue, match=r"privacy_unit='usr' is not a column of the data. Did you mean 'user'\?"):
        Columns(("key",), ("tenant", "usr")).check_present(["tenant", "user", "key"], listed=True)
    with pytest.raises(InvalidValue, match=r"one by one: privacy_unit=\['a', 'b'\]\."):
        Columns(("key",), "tenant,user").check_present(["x", "y", "key"], listed=True)
    with pytest.raises(InvalidValue, match=r"key='users' is not a column of the data. Choose from 'page'\."):
        Columns(("users",), UNIT).check_present([*UNIT, "page"], listed=True)


def fresh():
    return int(np.random.default_rng().integers(2**64, dtype=np.uint64))
