"""The one text for other engines, read back in every dialect.

`test_every_engine.py` runs it on real servers.
"""

import subprocess
import sys

import pytest
import sqlglot
from helpers.counting import task
from sqlglot import exp

from dpsieve.engines.engine import COUNT
from dpsieve.engines.sql.dialects import DIALECTS, query_for
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.privacy.guarantee import Weight

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


TYPES = {
    "postgres": ("bigint", "character varying(9)", "real", "numeric"),
    "spark": ("bigint", "string", "float", "decimal(10,2)"),
}
HASHES = {
    "postgres": "pg_catalog.hashtextextended(CAST(ROW(pg_catalog.current_setting('dpsieve.salt'), k0) AS TEXT) "
    'COLLATE "C", pg_catalog.hash_record_extended(ROW(u0), CAST(0 AS BIGINT)))',
    "spark": "system.builtin.xxhash64('9', u0, k0)",
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
    ],
)
def test_types_that_cannot_be_keys(dialect, type_):
    types = {"unit": type_, "key": type_, "fine": "int"}
    with pytest.raises(InvalidType, match="cannot be a key"):
        query_for(dialect, ("t",), types, task())
    assert "fine" in query_for(dialect, ("t",), types, task(("fine",)))


def test_what_is_not_there():
    bounds = task(unit=None)
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
    """Some versions of sqlglot wrote LEAST(n, 3) as n."""
    maker = type(sqlglot.Dialect.get_or_raise("postgres").generator())
    right = maker.generate
    weighs = meant.startswith(("d ", "COUNT"))
    bounds = task(max_keys=2, max_rows=1 if meant == "DISTINCT " else 3, measure=Weight(6) if weighs else COUNT)
    assert meant in query_for("postgres", ("t",), {"unit": "int", "key": "int"}, bounds)
    monkeypatch.setattr(maker, "generate", lambda *args, **more: right(*args, **more).replace(meant, written))
    with pytest.raises(DpsieveError, match="changes what the query for postgres means"):
        query_for("postgres", ("t",), {"unit": "int", "key": "int"}, bounds)


def test_duckdb_does_without_sqlglot():
    text = "import sys, dpsieve, dpsieve.cli, dpsieve.engines.sql.dialects; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0


def test_where_hashes_are_equal_the_key_decides():
    types = {"unit": "int", "key": "int", "more": "int"}
    for dialect in DIALECTS:
        text = query_for(dialect, ("t",), types, task(("key", "more"), max_keys=2, salt=7))
        window = text.partition("ORDER BY")[2].partition(") AS place")[0]
        assert window.replace(" NULLS LAST", "").replace(" NULLS FIRST", "").endswith(", k0 ASC, k1 ASC"), window
    least = "MIN(STRUCT(system.builtin.xxhash64('7', u0, k0, k1) AS h, k0 AS k0, k1 AS k1))"
    assert least in query_for("spark", ("t",), types, task(("key", "more"), salt=7))


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
