"""Another driver through the same door: SQLite over ADBC, with its hash in SQL."""

import numpy as np
import pyarrow as pa
import pytest
from counting import count, found
from scipy import stats
from statistical import assert_counts, assert_follows

import dpsieve as ds
from dpsieve.engines import Adbc, Columns, DuckDB
from dpsieve.errors import InvalidType, InvalidValue, UnreadableData
from dpsieve.privacy.contribution import Contribution

dbapi = pytest.importorskip("adbc_driver_sqlite.dbapi", reason="adbc-driver-sqlite is not installed")


@pytest.fixture
def connection():
    with dbapi.connect("file::memory:") as made:
        yield made


def loaded(connection, table, name="rows"):
    with connection.cursor() as cursor:
        cursor.adbc_ingest(name, table)
    return Adbc(connection, dialect="sqlite")


def test_it_counts_as_duckdb_does(connection):
    rows = pa.table({"unit": [1, 1, 1, 2, 3, 3], "key": ["a", "b", "a", "a", None, "Ä"], "n": [0.5, 2, 2, 2, 1, -0.0]})
    engine = loaded(connection, rows)
    for how in (
        {"max_keys": 9},
        {"unit": None},
        {"key": ("n", "key"), "max_keys": 9, "max_rows": 2},
        {"unit": "n", "max_keys": 9},
    ):
        assert found(engine, "rows", **how) == found(DuckDB(), rows, **how)
    assert found(engine, "main.rows", max_keys=9, known=pa.table({"key": ["a", "z"]})) == {"a": 2, "z": 0}
    held = engine.incidence("rows", Columns(("key",), "unit"), Contribution(9), salt=1)
    assert sorted(held.counts()) == [1, 1, 2]


def test_no_key_is_favoured_and_units_are_independent(connection):
    """Units in blocks with two keys of their own: each count is a binomial. It fails by chance once in a million."""
    units = np.repeat(np.arange(6000), 2)
    rows = pa.table({"unit": units, "block": units // 20, "key": np.tile([0, 1], 6000)})
    engine = loaded(connection, rows)
    counts = found(engine, "rows", key=("block", "key"), salt=int(np.random.default_rng().integers(2**63)))
    drawn = [counts.get((block, 0), 0) for block in range(300)]
    assert_follows(drawn, range(21), stats.binom.pmf(np.arange(21), 20, 0.5))
    several = pa.table({"unit": np.repeat(np.arange(3000), 4), "key": ["a", "b", "A", ""] * 3000})
    seen = count(loaded(connection, several, "several"), "several", max_keys=2, salt=3)
    assert_counts(seen.frequencies.astype(float), np.full(4, 1500.0))


def test_what_a_unit_adds_depends_on_its_own_rows(connection):
    rng = np.random.default_rng(4)
    rows = pa.table({"unit": rng.integers(0, 9, 200), "key": rng.integers(0, 12, 200)})
    engine, total = loaded(connection, rows), {}
    for unit in range(9):
        own = rows.filter(pa.compute.equal(rows.column("unit"), unit))
        for key, n in found(loaded(connection, own, f"u{unit}"), f"u{unit}", max_keys=3, salt=8).items():
            total[key] = total.get(key, 0) + n
    assert found(engine, "rows", max_keys=3, salt=8) == total
    loaded(connection, rows.take(rng.permutation(200)), "mixed")
    assert found(engine, "mixed", max_keys=3, salt=8) == total


def test_types_come_from_the_declared_column_and_collations_of_units_are_refused(connection):
    with connection.cursor() as cursor:
        cursor.execute('CREATE TABLE "a ""b" (unit TEXT COLLATE NOCASE, whole INT, text CHAR(9), exact NUMERIC, "any")')
        cursor.execute("""INSERT INTO "a ""b" VALUES ('A', 1, 'x', 1.5, 7), ('a', 2, 'y', 2, 'z')""")
        cursor.execute('CREATE VIEW seen AS SELECT unit AS who, whole FROM "a ""b"')
        cursor.execute("CREATE TABLE mixed (unit INT, key INT)")
        cursor.execute("INSERT INTO mixed VALUES (1, 1), (2, 'text')")
    engine, name = Adbc(connection, dialect="sqlite"), '"a ""b"'
    kinds = {"whole": pa.int64(), "text": pa.string(), "exact": pa.string(), "any": pa.binary()}
    for key, kind in kinds.items():
        assert count(engine, name, key=(key,), unit="whole").keys.schema.types == [kind]
    for where, unit in ((name, "unit"), ("seen", "who")):
        with pytest.raises(InvalidType, match=f"privacy_unit='{unit}' has a collation"):
            count(engine, where, key=("whole",), unit=unit)
    with pytest.raises(InvalidValue, match="is not in the database"):
        count(engine, "nowhere")
    assert found(engine, name, key=("text",), unit="whole") == {"x": 1, "y": 1}  # what was not committed is still there
    with pytest.raises((InvalidType, UnreadableData), match=r"type|cannot be read"):
        count(engine, "mixed")


def test_release(connection):
    engine = loaded(connection, pa.table({"user": np.arange(900), "drink": ["tea"] * 899 + ["secret"]}))
    made = ds.release("rows", engine=engine, key="drink", privacy_unit="user", epsilon=1.0, delta=1e-8)
    assert made.table.column("drink").to_pylist() == ["tea"]
