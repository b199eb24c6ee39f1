"""The one text for other engines: read back in every dialect, and run by SQLite with a hash that is known here.

`test_every_engine.py` runs it on real servers.
"""

import sqlite3
import subprocess
import sys
from collections import Counter
from functools import cache
from types import MappingProxyType

import pytest
import sqlglot
from counting import task
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from dpsieve.engines import COUNT, Weight
from dpsieve.engines.sql.dialects import DIALECTS, query_for, sqlite_hash
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

    def __init__(self):
        self.connection = sqlite3.connect(":memory:")
        self.connection.create_function("dpsieve_hash", -1, sqlite_hash, deterministic=True)

    def load(self, name, types, rows):
        self.ask(f"DROP TABLE IF EXISTS {quoted(name)}")
        self.ask(f"CREATE TABLE {quoted(name)} ({', '.join(f'{quoted(c)} {t}' for c, t in types.items())})")
        self.connection.executemany(f"INSERT INTO {quoted(name)} VALUES ({', '.join('?' * len(types))})", rows)

    def ask(self, text):
        return self.connection.execute(text).fetchall()

    def close(self):
        self.connection.close()


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


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
    text = written(other.dialect, tuple(names.items()), asked, None if known is None else ("known",))
    answered = other.ask(text)
    result = {row[0] if len(row) == 2 else row[:-1]: row[-1] for row in answered}
    assert len(result) == len(answered)
    return result


PLAIN = {"unit": "int", "key": "text", "more": "int"}


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
    "postgres": "pg_catalog.hashtextextended(CAST(ROW(pg_catalog.current_setting('dpsieve.salt'), k0) AS TEXT) "
    'COLLATE "C", pg_catalog.hash_record_extended(ROW(u0), CAST(0 AS BIGINT)))',
    "sqlite": "DPSIEVE_HASH('9', u0, k0)",
    "spark": "system.builtin.xxhash64('9', u0, k0)",
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
        window = text.partition("ORDER BY")[2].partition(") AS place")[0]
        assert window.replace(" NULLS LAST", "").replace(" NULLS FIRST", "").endswith(", k0 ASC, k1 ASC"), window
    least = "MIN(STRUCT(system.builtin.xxhash64('7', u0, k0, k1) AS h, k0 AS k0, k1 AS k1))"
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
@given(rows=OF_SEVERAL, max_keys=BOUND, salt=SALT)
def test_the_smallest_hashes_of_units_of_several_columns_are_kept(rows, max_keys, salt):
    other, total = Sqlite(), Counter()
    for unit, own in of_units(rows).items():
        keys = sorted({row[2] for row in own}, key=lambda key, unit=unit: sqlite_hash(str(salt), *unit, key))
        total.update(keys[:max_keys])
    found = counted(other, SEVERAL, rows, unit=("tenant", "user"), max_keys=max_keys, salt=salt, allow=True)
    other.close()
    assert found == total


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_column_of_a_unit_bounds(dialect):
    types = dict(zip(["tenant", "user", "real", "exact"], TYPES[dialect], strict=True))
    text = query_for(dialect, ("t",), types, task(("exact",), ("tenant", "user"), 2, 3, salt=9))
    assert "PARTITION BY u0, u1 ORDER BY" in text and "GROUP BY u0, u1, k0" in text.replace("\n", " ")
    assert HASHES[dialect].replace("u0", "u0, u1") in text and "NOT u0 IS NULL AND NOT u1 IS NULL" in text


def test_the_salt_may_be_in_a_table():
    types, bounds = {"unit": "int", "key": "int"}, task(max_keys=2, salt=123456789)
    text = query_for("spark", ("t",), types, bounds, salt="x`y")
    assert "xxhash64((SELECT s FROM `x``y`), u0, k0)" in text and "123456789" not in text
