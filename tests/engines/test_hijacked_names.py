"""Functions and operators of other people: what the SQL calls is the database's own, whatever has the same name.

The names are read from the SQL itself, so that a function that is added later is tested too.
"""

import itertools
import re
from functools import cache
from urllib.parse import unquote

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from helpers.counting import EVERY_BOUND, aggregation, count, found, task
from sqlglot import exp

from dpsieve.engines import Columns, DuckDB, Postgres
from dpsieve.engines import postgres as catalog
from dpsieve.engines.engine import NumberColumns
from dpsieve.engines.sql.columns import Column
from dpsieve.engines.sql.dialects import query_for
from dpsieve.engines.sql.queries import bounded_query, number_query, pairs_query, places_query
from dpsieve.errors import InvalidValue, UnreadableData
from dpsieve.privacy.guarantee import Contribution, Weight

# What has a grammar of its own, and is resolved to no name.
GRAMMAR = (exp.And, exp.Or, exp.Case, exp.Cast, exp.Collate, exp.If, exp.Struct)
COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.Not, exp.And, exp.Or)
COMPARED += (exp.Collate, exp.Dot, exp.Paren, exp.PropertyEQ)
KINDS = ("VARCHAR", "DOUBLE", "BIGINT", "BLOB", "DECIMAL(9,2)", "UUID")
ROWS = pa.table(
    {
        "unit": [u for u in range(40) for _ in range(30)],
        "key": [f"a key with a long name {(u * 7 + i) % 50}" for u in range(40) for i in range(30)],
        "more": [float(i % 7) for i in range(1200)],
    }
)
BOUNDS = (
    {},
    {"max_keys": 3},
    {"max_keys": 3, "max_rows": 2},
    {"max_keys": 2000},
    {"max_keys": 3, "measure": Weight(20)},
)


def tasks():
    for bounds in BOUNDS:
        for keys in (("key",), ("key", "more")):
            yield task(keys, "unit", **bounds)
    yield task(unit=())


@cache
def texts_for_duckdb():
    """Every kind of query on a user's connection."""
    texts = []
    for kind in KINDS:
        columns = {
            "unit": Column("unit", "unit", "VARCHAR", collated=kind == "UUID"),
            "key": Column("key", "key", kind, collated=kind == "VARCHAR"),
            "more": Column("more", "more", "FLOAT"),
        }
        for wanted in tasks():
            for query in (bounded_query, pairs_query):
                texts += [query("t", columns, wanted, known) for known in (None, "known")]
            if wanted.columns.unit:
                texts.append(places_query("t", columns, wanted))
        for unit, rows in itertools.product(((), ("unit",)), (1, 3)):
            texts.append(number_query("t", columns, task(("more", "key"), unit, max_rows=rows)))
    return sorted(set(texts))


def functions_of(text, dialect):
    return [node for node in sqlglot.parse_one(text, read=dialect).find_all(exp.Func) if not isinstance(node, GRAMMAR)]


def named(node):
    return node.name if isinstance(node, exp.Anonymous) else node.sql_name()


def test_functions_of_duckdb_are_written_by_their_full_names():
    """And no operator, list, or field of a struct stands for a function, as `+`, `[1, 2]` and `s.k0` would."""
    seen = set()
    for text in texts_for_duckdb():
        for node in functions_of(text, "duckdb"):
            seen.add(named(node))
            assert isinstance(node, exp.Anonymous), node.sql()  # sqlglot knows plain names only
        assert set(re.findall(r"(?<![\w.])\w+(?=\()", text)) <= {"CAST", "TRY_CAST", "DECIMAL"}
        assert "." not in text.replace("system.main.", "")
        tree = sqlglot.parse_one(text, read="duckdb")
        for node in tree.find_all(exp.Binary, exp.Unary, exp.Bracket, exp.Array, exp.Struct):
            assert isinstance(node, COMPARED), node.sql()
    assert {"hash", "least", "count", "sum", "min", "struct_extract", "+", "&", "||", "unnest", "list"} <= seen


@pytest.mark.parametrize("salt", range(3))
def test_the_order_of_sorts_of_a_user_joins_no_units(salt):
    """Read downwards, the last pair of a unit would begin the next one."""
    connection = duckdb.connect()
    rows = "SELECT i // 3 AS unit, 'key' || i AS key FROM range(150) r(i)"
    connection.execute(f"CREATE TABLE t AS {rows} UNION ALL SELECT 1000, 'key1000'")
    connection.execute("SET default_order = 'DESC'")
    held = DuckDB().read_pairs((connection, "t"), aggregation(Columns(("key",), ("unit",)), Contribution(3), salt=salt))
    numbers = np.array([int(key[3:]) // 3 for key in held.keys["key"].to_pylist()])[held.key_numbers]
    assert held.starts[0] == 0 and len(held.starts) == 52
    assert all(len(set(unit)) == 1 for unit in np.split(numbers, held.starts[1:-1]))
    for text in texts_for_duckdb():
        sorts = list(sqlglot.parse_one(text, read="duckdb").find_all(exp.Ordered)) if salt == 0 else []
        assert all(node.args.get("desc") is False for node in sorts), text


def hijacked(connection, where, names):
    """Make macros of these names, for any number of arguments."""
    ways = ", ".join(f"({', '.join('abcdefgh'[:count])}) AS 99" for count in range(9))
    for name in names:
        connection.execute(f'CREATE {where[0]} MACRO {where[1]}"{name}"{ways}')


@cache
def names_in_duckdb():
    own = {named(node) for text in texts_for_duckdb() for node in functions_of(text, "duckdb")}
    # What the same is called where it is not written as a function, and what DuckDB calls by another name.
    also = {"count_star", "list_value", "array_extract", "struct_pack", "list_extract", "current_setting", "||", "-"}
    return sorted(own | also)


SETTINGS = {
    "main": (("", ""), ()),
    "temporary": (("TEMP", ""), ()),
    "another schema first": (("", "other."), ("SET search_path = 'other,main'",)),
    "another database first": (("", "elsewhere.main."), ("SET search_path = 'elsewhere.main,memory.main'",)),
    "schemas that are named as those of DuckDB": (
        ("", 'memory."system".'),
        ("SET search_path = 'memory.system,main'",),
    ),
}


@pytest.mark.parametrize("where", SETTINGS)
def test_macros_of_a_user_change_nothing(where):
    place, then = SETTINGS[where]
    connection = duckdb.connect()
    connection.register("given", ROWS)
    connection.execute("CREATE TABLE events AS SELECT * FROM given")
    connection.execute("CREATE SCHEMA other; CREATE SCHEMA system; ATTACH ':memory:' AS elsewhere")
    hijacked(connection, place, names_in_duckdb())
    for statement in then:
        connection.execute(statement)
    assert connection.execute("SELECT least(1, 2)").fetchall() == [(99,)]  # otherwise nothing would be tested
    assert answers((connection, "events")) == expected()
    with pytest.raises(duckdb.Error):
        connection.execute("CREATE MACRO system.main.least(a, b) AS 99")
    connection.close()


@pytest.mark.parametrize("kind", ["TABLE", "VIEW", "TEMP TABLE", "TEMP VIEW"])
@pytest.mark.parametrize("name", ["dpsieve_data", "dpsieve_known", "dpsieve_places"])
def test_tables_of_a_user_may_have_any_name(kind, name):
    """Neither they nor what is registered for a while get in each other's way, whatever columns they have."""
    connection = duckdb.connect()
    connection.register("given", ROWS)
    connection.execute("CREATE TABLE events AS SELECT * FROM given")
    connection.execute(f"CREATE {kind} {name} AS SELECT 7 AS unit, 'mine' AS key, 7 AS more")
    for _ in range(2):
        assert answers((connection, "events")) == expected()
    assert connection.execute(f"SELECT key FROM {name}").fetchall() == [("mine",)]
    names = {row[0] for row in connection.execute("SELECT table_name FROM information_schema.tables").fetchall()}
    assert names == {"given", "events", name}


@cache
def expected():
    return answers(ROWS)


def answers(data):
    """What every kind of query finds."""
    engine, known = DuckDB(), pa.table({"key": ROWS["key"].unique().slice(0, 20)})
    more = ({"max_keys": 3, "known": known}, {"unit": ()}, {"key": ("key", "more"), "max_keys": 3}, {"key": ("more",)})
    answers = [found(engine, data, **bounds) for bounds in (*BOUNDS, *more)]
    held = engine.read_pairs(data, aggregation(Columns(("key",), ("unit",)), Contribution(4), salt=1))
    answers.append((held.keys["key"].take(held.key_numbers).to_pylist(), held.starts.tolist()))
    for unit, most in itertools.product(((), ("unit",)), (1, 3)):
        rows = engine.read_numbers(data, aggregation(NumberColumns(("more",), unit), Contribution(rows=most), salt=1))
        answers.append(np.sort(rows.values.ravel()).tolist())
    return answers


OPERATORS = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.Add: "+"}
OPERATORS |= {exp.Sub: "-", exp.In: "="}
# Whatever two of these are compared by exists in pg_catalog for some pairs, and for the others a new one fits best.
TYPES = ("bigint", "integer", "smallint", "text", "varchar", "name", '"char"', "oid", "regclass", "regproc", "boolean")
TYPES += ("double precision", "real", "numeric")


def texts_for_postgres():
    types = {"unit": "bigint", "key": "text", "more": "double precision", "exact": "numeric"}
    for wanted in tasks():
        for query in (bounded_query, pairs_query, places_query):
            known = [None, ("pg_temp", "known")] if wanted.columns.unit or query is bounded_query else [None]
            if wanted.columns.unit or query is not places_query:
                yield from (query_for("postgres", ("t",), types, wanted, listed, query) for listed in known)
    yield query_for("postgres", ("t",), types, task(("exact",), max_keys=2))
    yield from (catalog._COLUMNS, catalog._PLACE, catalog._DEFAULT)
    # USING compares too, and so does what the driver asks when it connects.
    yield "SELECT 1 = 1, 1 <> 2, 1 < 2, 1 > 2, 1 >= 2"


@pytest.fixture
def attacked(postgres):
    """A database in which another user has made functions and operators of every name that is used; they all fail."""
    from adbc_driver_postgresql import dbapi

    trees = [sqlglot.parse_one(text, read="postgres") for text in texts_for_postgres()]
    names = {named(node).lower() for tree in trees for node in tree.find_all(exp.Func) if not isinstance(node, GRAMMAR)}
    names = sorted((names | {"hash_record_extended", "set_config", "to_regclass"}) - {"row"})
    operators = {OPERATORS[type(node)] for tree in trees for node in tree.find_all(*OPERATORS)}
    plain = "CREATE FUNCTION public.{}({}) RETURNS {} LANGUAGE plpgsql AS $$ BEGIN RAISE 'hijacked'; END $$;"
    made = []
    for name in names:
        made += [plain.format(name, ", ".join(types), "bigint") for types in ((), *((kind,) for kind in TYPES))]
        pairs = [*itertools.product(("text", "record", "name"), ("integer", "bigint", "text", "name"))]
        made += [plain.format(name, ", ".join(types), "bigint") for types in pairs]
        made += [plain.format(name, "text, text, boolean", "text")]
    for i, (operator, left, right) in enumerate(itertools.product(sorted(operators), TYPES, TYPES)):
        result = "boolean" if operator not in "+-" else left
        made.append(plain.format(f"o{i}", f"{left}, {right}", result))
        made.append(
            f"CREATE OPERATOR public.{operator} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = public.o{i});"
        )
    base, _, rest = postgres.rpartition("/postgres?")
    with dbapi.connect(postgres, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE attacked")
        cursor.execute("DO $$ BEGIN CREATE ROLE mallory; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        try:
            url = f"{base}/attacked?{rest}"
            with dbapi.connect(url, autocommit=True) as own, own.cursor() as inside:
                inside.adbc_ingest("events", ROWS, mode="create")
                inside.execute("GRANT CREATE ON SCHEMA public TO mallory")
                inside.execute("SET ROLE mallory")
                inside.execute(f"DO $made$ BEGIN {' '.join(made)} END $made$")
            yield url
        finally:
            cursor.execute("DROP DATABASE attacked WITH (FORCE)")


def test_functions_and_operators_of_another_user_of_postgres_are_never_called(attacked, postgres):
    """Also those that would fit better than the server's, as `hash_record_extended(record, integer)` did."""
    from adbc_driver_postgresql import dbapi

    known = pa.table({"key": ROWS["key"].unique().slice(0, 20)})
    safe, _ = catalog.with_safe_path(attacked)
    with dbapi.connect(safe, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET search_path = public")
        for text in ("hash_record_extended(ROW(1), 0)", "'a'::varchar = 'a'::varchar", "1::oid <> 0"):
            with pytest.raises(dbapi.Error, match="hijacked"):
                cursor.execute(f"SELECT {text}").fetchall()
        users = Postgres(connection)
        for engine in (Postgres(attacked), users):
            for bounds in ({"max_keys": 30}, {"max_keys": 30, "max_rows": 2}, {"max_keys": 30, "known": known}):
                assert found(engine, "events", **bounds) == found(DuckDB(), ROWS, **bounds)
            for more in ({}, {"max_keys": 2, "measure": Weight(20)}, {"key": ("more",)}, {"unit": ()}):
                assert found(engine, "events", **more)
            assert (
                engine.read_by_bound("events", aggregation(Columns(("key",), ("unit",)), EVERY_BOUND, salt=1))
                .under(3)
                .frequencies.sum()
                == 120
            )
            assert (
                len(
                    engine.read_pairs(
                        "events", aggregation(Columns(("key",), ("unit",)), Contribution(3), salt=1)
                    ).key_numbers
                )
                == 120
            )
            assert engine.columns("events")[0] == ("unit", "bigint")
        assert cursor.execute("SELECT pg_catalog.current_setting('search_path')").fetchall() == [
            ("public",)
        ]  # restored


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("", ""),
        ("?", ""),
        ("?sslmode=require&application_name=a%20b", ""),
        ("?options=-c%20statement_timeout%3D5s", ""),
        ("?options=--search-path%3Dshop&sslmode=require", "shop"),
        ("?options=-c%20search_path%3Da%20-csearch_path%3Db%2C%5C%20c", "b, c"),
    ],
)
def test_a_url_keeps_its_options_and_gets_the_safe_path(given, path, monkeypatch):
    monkeypatch.delenv("PGOPTIONS", raising=False)
    safe, before = catalog.with_safe_path(f"postgresql://me@a:1,b:2/shop{given}")
    base, _, query = safe.partition("?")
    pairs = dict(pair.split("=") for pair in query.split("&"))
    options = unquote(pairs.pop("options")).split()
    assert base == "postgresql://me@a:1,b:2/shop" and before == path
    assert options[-1] == "-csearch_path=pg_catalog,pg_temp"
    before = dict(pair.split("=") for pair in given[1:].split("&") if pair)
    before.pop("options", None)
    assert pairs == before
    monkeypatch.setenv("PGOPTIONS", "-csearch_path=other")
    assert catalog.with_safe_path("postgresql:///shop")[1] == "other"  # a URL with options has PostgreSQL ignore it


def test_a_pool_that_takes_no_options_is_still_connected_to():
    tried = []

    def connect(url):
        tried.append(url)
        if "options" in url:
            raise OSError("FATAL: unsupported startup parameter in options: search_path")
        return "connection"

    assert catalog.open_safely("postgresql:///shop", connect) == ("connection", "")
    assert len(tried) == 2
    with pytest.raises(OSError, match="refused"):
        catalog.open_safely("postgresql:///shop", lambda url: (_ for _ in ()).throw(OSError("refused")))


def test_a_view_whose_function_relies_on_the_path_is_refused_with_the_fix(postgres):
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(postgres, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("inner_rows", ROWS, mode="replace")
        body = "SELECT count(*) FROM inner_rows"
        cursor.execute(f"CREATE OR REPLACE FUNCTION size_of() RETURNS bigint LANGUAGE sql STABLE AS '{body}'")
        cursor.execute("CREATE OR REPLACE VIEW sized AS SELECT unit, key, size_of() AS size FROM inner_rows")
        with pytest.raises(UnreadableData, match=r"'sized' is a view with a function .* ALTER FUNCTION"):
            count(Postgres(postgres), "sized", key=("size",))
        cursor.execute("ALTER FUNCTION size_of() SET search_path = public")
        assert found(Postgres(postgres), "sized", key=("size",)) == {1200: 40}
        for what in ("VIEW sized", "FUNCTION size_of", "TABLE inner_rows"):
            cursor.execute(f"DROP {what}")


def test_a_table_is_found_along_the_users_path(postgres):
    """That of the role in the database, of the options in the URL, and the default one; then none is asked again."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(postgres, autocommit=True) as connection, connection.cursor() as cursor:
        for schema in ("first_place", "second_place"):
            cursor.execute(f"CREATE SCHEMA {schema}")
            cursor.adbc_ingest("placed", ROWS.slice(0, 1 if schema == "first_place" else 2), db_schema_name=schema)
        try:
            with pytest.raises(InvalidValue, match="is not in the database"):
                count(Postgres(postgres), "placed")
            cursor.execute("ALTER DATABASE postgres SET search_path = second_place")
            assert sum(found(Postgres(postgres), "placed", max_keys=9).values()) == 2
            cursor.execute("ALTER ROLE tester IN DATABASE postgres SET search_path = 'first_place', \"no such\"")
            assert sum(found(Postgres(postgres), "placed", max_keys=9).values()) == 1
            named = f"{postgres}&options=-c%20search_path%3Dsecond_place"
            assert sum(found(Postgres(named), "placed", max_keys=9).values()) == 2
            assert sum(found(Postgres(postgres), "second_place.placed", max_keys=9).values()) == 2
        finally:
            cursor.execute("ALTER DATABASE postgres RESET search_path")
            cursor.execute("ALTER ROLE tester IN DATABASE postgres RESET search_path")
            cursor.execute("DROP SCHEMA first_place, second_place CASCADE")


def test_temporary_functions_of_a_spark_session_are_not_called(spark):
    """Where a session resolves its own functions first."""
    from dpsieve.engines import Spark

    order = "spark.sql.functionResolution.sessionOrder"
    types = {"unit": "bigint", "key": "string", "more": "double"}
    names = {"max", "coalesce", "sum", "count", "is_valid_utf8", "regexp_like", "concat", "hex"}
    for wanted in tasks():
        for query in (bounded_query, *([places_query] if wanted.columns.unit else [])):
            text = query_for("spark", ("t",), types, wanted, None, query)
            for node in functions_of(text, "spark"):
                assert f"system.builtin.{named(node)}(" in text
                names.add(named(node).lower())
    for session in spark:
        data = session.createDataFrame(ROWS)
        for name in sorted(names):
            session.udf.register(name, lambda *_: 99, "long")
        session.conf.set(order, "first")
        try:
            assert session.sql("SELECT max(id) FROM range(3)").first()[0] == 99
            if session is spark[0]:
                known = pa.table({"key": ROWS["key"].unique().slice(0, 5)})
                made = count(Spark(), data, max_keys=30, known=known)
                assert made.summands.sum() == sum(found(DuckDB(), ROWS, max_keys=30, known=known).values())
            bounds = Spark().read_by_bound(data, aggregation(Columns(("key",), ("unit",)), EVERY_BOUND, salt=1))
            assert bounds.units[30] == 40 and bounds.under(3).summands.sum() == 120
        finally:
            session.conf.unset(order)
            for name in sorted(names):
                session.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {name}")
