"""Another driver through the same door: SQLite over ADBC, with its hash in SQL."""

import pyarrow as pa
import pytest
from counting import count, found

from dpsieve.engines import Adbc, Columns
from dpsieve.errors import InvalidType, InvalidValue, UnreadableData

dbapi = pytest.importorskip("adbc_driver_sqlite.dbapi", reason="adbc-driver-sqlite is not installed")


@pytest.fixture
def connection():
    with dbapi.connect("file::memory:") as made:
        yield made


def loaded(connection, table, name="rows"):
    with connection.cursor() as cursor:
        cursor.adbc_ingest(name, table)
    return Adbc(connection, dialect="sqlite")


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


def test_text_that_is_not_utf8_is_rewritten(connection):
    """SQLite tells texts apart by their bytes, whatever they are: see `dpsieve.values.columns`."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE rows (unit TEXT, key TEXT)")
        for unit in ("FF", "FE", "61"):
            for key in ("636166E9", "FF", "746561"):
                cursor.execute(f"INSERT INTO rows VALUES (CAST(x'{unit}' AS TEXT), CAST(x'{key}' AS TEXT))")
    engine, written = Adbc(connection, dialect="sqlite"), ["\ufffd636166E9", "\ufffdFF", "tea"]
    assert found(engine, "rows", max_keys=3) == dict.fromkeys(written, 3)
    assert sum(found(engine, "rows", max_keys=1).values()) == 3
    with engine.by_bound("rows", Columns(("key",), "unit"), salt=1) as several:
        assert sorted(several.under(3).keys.column(0).to_pylist()) == sorted(written)
