"""Keys with equal hashes: what a unit adds is still a function of its own rows and the salt.

DuckDB's hash of text has no secret key, so texts with equal hashes can be made, and these tie for every unit and salt.
"""

import functools
from collections import Counter

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.counting import aggregation, count, found
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsieve.engines import Columns, DuckDB
from dpsieve.engines.sql.queries import DUCKDB
from dpsieve.privacy.guarantee import Contribution

pytestmark = pytest.mark.usefixtures("one_database")

TIED = ("4vxs1mbpawq40olg", "f8eiydc9[LuSPw'%")
ROWS = st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([*TIED, "a", "zz"])), min_size=1, max_size=30)
ENGINES = {
    "SQL, one thread": DuckDB(threads=1, compiled_from=None),
    "SQL, four threads": DuckDB(threads=4, compiled_from=None),
    "compiled": DuckDB(threads=2, compiled_from=0),
}


@functools.cache
def database():
    return duckdb.connect()


def relation(table, folder):
    connection = database().cursor()
    connection.register("given", table)
    return connection.sql("SELECT * FROM given ORDER BY random()")


def parquet(rows_in_group):
    def write(table, folder):
        path = folder / f"{rows_in_group}.parquet"
        pa.parquet.write_table(table, path, row_group_size=rows_in_group)
        return path

    return write


LAYOUTS = {
    "table": lambda table, folder: table,
    "one row a group": parquet(1),
    "seven rows a group": parquet(7),
    "relation": relation,
}


def table_of(rows):
    return pa.table({"unit": pa.array([u for u, _ in rows], pa.int64()), "key": pa.array([k for _, k in rows])})


def test_the_two_keys_do_tie():
    """Otherwise the tests below would test nothing."""
    for salt in (0, 1, 2**64 - 1):
        for unit in ("1", "'ann'"):
            text = ", ".join(DUCKDB.choice(salt, [unit], ["'" + key.replace("'", "''") + "'"]) for key in TIED)
            ((first, second),) = duckdb.sql(f"SELECT {text}").fetchall()
            assert first == second


@settings(max_examples=12, deadline=None)
@given(
    data=st.data(), rows=ROWS, max_keys=st.integers(1, 2), max_rows=st.integers(1, 2), salt=st.integers(0, 2**64 - 1)
)
def test_order_layout_threads_and_way_of_counting_change_nothing(
    tmp_path_factory, data, rows, max_keys, max_rows, salt
):
    """The whole is the sum of what each unit adds alone, in any order of rows and by any way of counting."""
    bounds = {"max_keys": max_keys, "max_rows": max_rows, "salt": salt}
    alone = Counter()
    for unit in {unit for unit, _ in rows}:
        alone.update(found(ENGINES["SQL, one thread"], table_of([row for row in rows if row[0] == unit]), **bounds))
    folder = tmp_path_factory.mktemp("ties")
    table = table_of(data.draw(st.permutations(rows)))
    for layout in LAYOUTS.values():
        for engine in ENGINES.values():
            assert found(engine, layout(table, folder), **bounds) == alone


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
@pytest.mark.parametrize("text_units", [False, True], ids=["numbers", "texts"])
def test_the_rows_of_another_unit_do_not_flip_a_tie(engine, text_units, tmp_path):
    """Forty rows of one more unit move the rows of all others to the next row group."""
    group = 40
    rows = [(unit, TIED[unit % 2]) for unit in range(40)] + [(unit, TIED[1 - unit % 2]) for unit in range(40)]
    chosen = set()
    for more in ([], [(99, "z")] * group):
        for order in (rows, rows[::-1]):
            table = table_of([*more, *order])
            if text_units:
                table = table.set_column(0, "unit", table.column("unit").cast(pa.string()))
            pa.parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=group)
            counts = found(engine, tmp_path / "rows.parquet")
            counts.pop("z", None)
            chosen.add(tuple(counts.items()))
    assert chosen == {((min(TIED), 40),)}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES.keys())
def test_which_key_of_a_tie_a_unit_holds_does_not_depend_on_when_it_was_met(engine):
    rows = [(unit, key) for unit in range(20) for key in TIED]
    for table in (table_of(rows), table_of(rows[::-1])):
        made = engine.read_pairs(table, aggregation(Columns(("key",), ("unit",)), Contribution(1), salt=5))
        assert made.keys["key"].to_pylist() == [min(TIED)] and made.key_numbers.tolist() == [0] * 20


@pytest.mark.parametrize("max_keys", [1, 2])
def test_several_key_columns(max_keys):
    rows = [(1, first, second) for first in TIED for second in TIED]
    expected = sorted((first, second) for _, first, second in rows)[:max_keys]
    for order in (rows, rows[::-1]):
        columns = dict(zip(("unit", "a", "b"), zip(*order, strict=True), strict=True))
        for engine in ENGINES.values():
            assert found(engine, pa.table(columns), key=("a", "b"), max_keys=max_keys) == dict.fromkeys(expected, 1)


@pytest.mark.parametrize("max_keys", [1, 2, 3])
@pytest.mark.parametrize("max_rows", [1, 2])
def test_units_that_a_collation_calls_equal_choose_alike_in_any_order(max_keys, max_rows):
    """'Ann' and 'ANN' are one unit here, and have two hashes; which of them a query meets first must not matter."""
    rows = [(name, key) for name in ("Ann", "ANN", "ann") for key in "abcdefg"]
    seen = set()
    for salt in range(8):
        for order in (rows, rows[::-1], sorted(rows, key=lambda row: row[1])):
            connection = database().cursor()
            connection.execute("CREATE OR REPLACE TEMP TABLE events (unit VARCHAR COLLATE NOCASE, key VARCHAR)")
            connection.execute(f"INSERT INTO events VALUES {', '.join(map(str, order))}")
            counts = found(DuckDB(), (connection, "events"), max_keys=max_keys, max_rows=max_rows, salt=salt)
            assert len(counts) == max_keys and set(counts.values()) == {max_rows}
            seen.add((salt, *sorted(counts)))
    assert len(seen) == 8


@pytest.mark.parametrize("max_keys", [1, 3])
def test_units_of_variants_choose_alike_in_any_order(tmp_path, max_keys):
    """1::INT and 1::BIGINT are one unit of type VARIANT, and have two hashes."""
    seen = set()
    for order in ("i", "-i", "hash(i)"):
        unit = "CASE WHEN i % 2 = 0 THEN 1::INT::VARIANT ELSE 1::BIGINT::VARIANT END"
        connection = duckdb.connect()
        connection.execute(
            f"COPY (SELECT {unit} AS unit, 'k' || i // 2 AS key FROM range(40) t(i) ORDER BY {order}) "
            f"TO '{tmp_path}/rows.parquet'"
        )
        seen.add(tuple(sorted(found(DuckDB(threads=1), tmp_path / "rows.parquet", max_keys=max_keys))))
    assert len(seen) == 1 and len(seen.pop()) == max_keys


@pytest.mark.parametrize("kind", ["ENUM('TEA', 'tea')", "VARCHAR", "JSON"])
def test_a_default_collation_does_not_let_one_row_spell_a_key(kind):
    written = {"JSON": "'\"{}\"'"}.get(kind, "'{}'")
    for rare in ("", f"(-1, {written.format('tea')}), "):
        connection = duckdb.connect(config={"threads": 1})
        connection.execute("SET default_collation = 'NOCASE'")
        connection.execute(f"CREATE TABLE events (unit INT, key {kind})")
        common = ", ".join(f"({unit}, {written.format('TEA')})" for unit in range(3000))
        connection.execute(f"INSERT INTO events VALUES {rare}{common}")
        counts = {key.strip('"'): n for key, n in found(DuckDB(), (connection, "events")).items()}
        assert counts == {"TEA": 3000} | ({"tea": 1} if rare else {})
    known = pa.table({"key": ["tea", "TEA"]})
    if kind == "VARCHAR":
        bounds = {"key": ("key",), "unit": "unit", "max_keys": 1, "max_rows": 1, "salt": 1}
        assert count(DuckDB(), (connection, "events"), **bounds, known=known).frequencies.tolist() == [1, 3000]
