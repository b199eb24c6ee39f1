"""Conditions and derived key columns: what they give on every engine, and that no row can make them fail."""

import datetime as dt
import math
import random
from collections import Counter
from itertools import count as numbers

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.counting import aggregation, named

import dpsieve as ds
from dpsieve.engines import Columns, DuckDB, Postgres, Spark
from dpsieve.engines.engine import NumberColumns
from dpsieve.engines.sql.row_expressions import KEY, RowExpressions, parse
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.privacy.guarantee import Contribution

LOOPS = DuckDB(threads=3, compiled_from=0)
DAY = dt.datetime(2024, 5, 7, 13, 45, 12)
ROWS = [
    # n, x, t, d, ts, b
    (5, 2.5, "  Tea/Green ", dt.date(2024, 5, 7), DAY, True),
    (17, -0.5, "milk", dt.date(2023, 12, 31), DAY - dt.timedelta(days=40, hours=5), False),
    (90, 1e6, 'Ähre\'s \\ "x"', dt.date(1999, 1, 1), dt.datetime(1999, 1, 1), True),
    (-8, 0.0, "a%b_c", dt.date(2020, 2, 29), dt.datetime(2020, 2, 29, 23, 59, 59), False),
]
# Rows on which careless SQL fails: overflow, zero, no number, no date, the ends of time, no value at all.
TRAPS = [
    (2**63 - 1, math.inf, "now", dt.date(9999, 12, 31), dt.datetime(9999, 12, 31, 23), None),
    (-(2**63), -math.inf, "infinity", dt.date(1, 1, 1), dt.datetime(1, 1, 1), True),
    (0, math.nan, "99999999999999999999", dt.date(2024, 1, 1), dt.datetime(2024, 1, 1), False),
    (1, 1.7e308, "1e999", None, None, None),
    (2, 5e-324, "", dt.date(2024, 1, 1), dt.datetime(2024, 1, 1), False),
    (None, None, None, None, None, None),
    (3, 3.0, "2024-13-45", dt.date(2024, 1, 1), dt.datetime(2024, 1, 1), True),
]
NAMES = ("n", "x", "t", "d", "ts", "b")
TYPES = (pa.int64(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us"), pa.bool_())

# Expressions that every engine has, with what they are in Python.
EVERYWHERE = {
    "lower(trim(t))": lambda r: r["t"].strip(" ").lower(),
    "upper(left(t, 3)) || '-' || 'x'": lambda r: r["t"][:3].upper() + "-x",
    "substring(t, 2, 3)": lambda r: r["t"][1:4],
    "split_part(trim(t), '/', 1)": lambda r: r["t"].strip(" ").split("/")[0],
    "replace(t, 'e', '')": lambda r: r["t"].replace("e", ""),
    "CASE WHEN n < 18 THEN 'minor' WHEN n IS NULL THEN 'none' ELSE 'adult' END": lambda r: (
        "minor" if r["n"] < 18 else "adult"
    ),
    "CASE t WHEN 'milk' THEN 'it''s \\ \"so\"' ELSE t END": lambda r: 'it\'s \\ "so"' if r["t"] == "milk" else r["t"],
    "length(t)": lambda r: len(r["t"]),
    "coalesce(nullif(t, 'milk'), 'none')": lambda r: "none" if r["t"] == "milk" else r["t"],
    "date_trunc('month', d)": lambda r: r["d"].replace(day=1),
    "date_trunc('hour', ts)": lambda r: r["ts"].replace(minute=0, second=0),
    "date_trunc('week', d)": lambda r: r["d"] - dt.timedelta(days=r["d"].weekday()),
    "extract(year from ts)": lambda r: r["ts"].year,
    "month(d)": lambda r: r["d"].month,
    "hour(ts)": lambda r: r["ts"].hour,
    "CAST(ts AS DATE)": lambda r: r["ts"].date(),
    "CAST(n AS VARCHAR)": lambda r: str(r["n"]),
    "n IN (5, -8) OR b": lambda r: r["n"] in (5, -8) or r["b"],
    "n BETWEEN 5 AND 17 AND NOT b": lambda r: 5 <= r["n"] <= 17 and not r["b"],
    "ts >= '2024-01-01' AND d < '2024-05-07'": lambda r: (
        r["ts"] >= dt.datetime(2024, 1, 1) and r["d"] < dt.date(2024, 5, 7)
    ),
    "t LIKE '%a%' AND t NOT LIKE 'a%'": lambda r: "a" in r["t"] and not r["t"].startswith("a"),
    "starts_with(t, 'mi') OR contains(t, '%')": lambda r: r["t"].startswith("mi") or "%" in r["t"],
    "x > -0.25 AND x <> 2.5 AND b IS NOT FALSE": lambda r: r["x"] > -0.25 and r["x"] != 2.5 and r["b"] is not False,
}
# Those that can fail on a row, and that engines with an attempt of their own have.
WITH_ATTEMPTS = {
    "floor(n / 10) * 10": lambda r: float(r["n"] // 10 * 10),
    "floor(x * 1e299)": lambda r: float(math.floor(r["x"] * 1e299)),
    "ceil(x)": lambda r: float(math.ceil(r["x"])),
    "n + 2 * n - 1": lambda r: 3 * r["n"] - 1,
    "n % 7": lambda r: math.fmod(r["n"], 7),
    "round(x / 4, 1)": lambda r: round(r["x"] / 4, 1) if r["x"] != 2.5 else 0.6,
    "-x * abs(x)": lambda r: -r["x"] * abs(r["x"]),
    "CAST(CAST(n AS VARCHAR) AS BIGINT)": lambda r: r["n"],
    "TRY_CAST(substring(CAST(ts AS VARCHAR), 1, 10) AS DATE)": lambda r: r["ts"].date(),
}


def table_of(rows):
    columns = {
        name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(zip(NAMES, TYPES, strict=True))
    }
    return pa.table({"unit": pa.array(range(len(rows)), pa.int64()), **columns})


class Places:
    """Engines, and how a table comes to them."""

    def __init__(self, name, request):
        self.name, self.request, self.numbers = name, request, numbers()

    def load(self, table):
        if self.name == "frame":
            return DuckDB(), table
        if self.name == "loops":
            path = self.request.getfixturevalue("tmp_path_factory").mktemp("rows") / "rows.parquet"
            pq.write_table(table, path, row_group_size=2)
            return LOOPS, path
        if self.name == "connection":
            connection = duckdb.connect()
            connection.register("given", table)
            connection.execute("CREATE TABLE t AS SELECT * FROM given")
            return DuckDB(), (connection, "t")
        if self.name == "PostgreSQL":
            from adbc_driver_postgresql import dbapi

            url, name = self.request.getfixturevalue("postgres"), f"rows {id(self)} {next(self.numbers)}"
            with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
                cursor.adbc_ingest(name, table)
            return Postgres(url), f'"{name}"'
        return Spark(), self.request.getfixturevalue("spark")[False].createDataFrame(table)

    @property
    def expressions(self):
        return EVERYWHERE if self.name == "PostgreSQL" else EVERYWHERE | WITH_ATTEMPTS


@pytest.fixture(
    scope="module",
    params=[
        "frame",
        "loops",
        "connection",
        *(pytest.param(name, marks=pytest.mark.server) for name in ("PostgreSQL", "Spark")),
    ],
)
def place(request):
    request.getfixturevalue("one_database")
    return Places(request.param, request)


def counted(engine, data, keys, where="", plain=(), **how):
    rows = RowExpressions(where, tuple(keys.items()))
    columns = Columns((*plain, *keys), ("unit",), rows=rows)
    return named(engine.aggregate(data, aggregation(columns, Contribution(1), salt=1, **how)))


def same(value, wanted):
    if isinstance(wanted, float):
        return float(value) == pytest.approx(wanted)
    if isinstance(wanted, dt.datetime) and getattr(value, "tzinfo", None) is not None:
        value = value.replace(tzinfo=None)
    return value == wanted


def test_every_engine_gives_what_python_gives(place):
    """All expressions in one query: a key is the values of one row."""
    engine, data = place.load(table_of(ROWS))
    keys = {f"key {i}": text for i, text in enumerate(place.expressions)}
    found = counted(engine, data, keys, plain=("n",))
    assert sorted(key[0] for key in found) == sorted(row[0] for row in ROWS)
    for key in found:
        row = dict(zip(NAMES, next(row for row in ROWS if row[0] == key[0]), strict=True))
        for value, (text, expected) in zip(key[1:], place.expressions.items(), strict=True):
            assert same(value, expected(row)), (text, value, expected(row))


def test_a_condition_leaves_the_rows_for_which_it_is_true(place):
    engine, data = place.load(table_of(ROWS + TRAPS))
    kept = counted(engine, data, {}, "n < 18 AND NOT b", plain=("n",))
    assert kept == {17: 1, -8: 1, 0: 1, 2: 1}  # a condition that is null keeps nothing
    condition = "lower(t) <> 'now' AND coalesce(x, 0) < 3 AND unit <> 1"  # the unit may be in it
    assert set(counted(engine, data, {"s": "lower(t)"}, condition)) == {
        "  tea/green ", "a%b_c", "", "infinity",
    }  # fmt: skip


def test_no_row_makes_an_expression_fail(place):
    """Failing would tell of a row, published or not: with every trap alone and all together, each gives an answer."""
    engine, data = place.load(table_of(ROWS + TRAPS))
    texts = list(place.expressions) + (NESTED if place.name != "PostgreSQL" else NESTED[:4])
    shown = [f"coalesce(CAST({text} AS VARCHAR), 'null')" for text in texts]
    if place.name == "Spark":  # each query takes a second of a core
        found = counted(engine, data, {f"key {i}": text for i, text in enumerate(shown)})
        assert sum(found.values()) == len(ROWS + TRAPS)
    else:
        for text in shown:
            assert sum(counted(engine, data, {"key": text}).values()) == len(ROWS + TRAPS), text


NESTED = [
    "date_trunc('week', date_trunc('year', d))",
    "CAST(CAST(d AS TIMESTAMP) AS DATE)",
    "date_trunc('minute', CAST(d AS TIMESTAMP))",
    "extract(quarter from CAST(ts AS DATE))",
    "CAST(t AS BIGINT) + 1",
    "CAST(t AS DOUBLE) * 1e299 * 1e100",
    "CAST(t AS TIMESTAMP)",
    "CAST(t AS DATE)",
    "n * n * n",
    "-n",
    "n / (n - n)",
    "n % (n - 5)",
    "CAST(x AS BIGINT)",
    "CAST(floor(x) AS BIGINT) * 10",
    "ceil(-x * 1e10)",
    "round(x * 1e299, 2)",
    "abs(n) + abs(-n)",
]


@pytest.mark.parametrize("where", ["", "n % 3 <> 1 AND t <> 'word 7'"])
@pytest.mark.parametrize("key", ["lower(t)", "n % 11"])
def test_compiled_loops_keep_the_pairs_that_sql_keeps(where, key, tmp_path, monkeypatch):
    """The parts of a table, in memory or in row groups of a file, are filtered and derived one by one."""
    rows = pa.table(
        {"unit": [i % 50 for i in range(900)], "n": range(900), "t": [f"Word {i * i % 37}" for i in range(900)]}
    )
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=100)
    columns = Columns(("key",), ("unit",), rows=RowExpressions(where, (("key", key),)))
    task = aggregation(columns, Contribution(3), salt=9)
    expected = DuckDB(compiled_from=None).read_pairs(rows, task)
    monkeypatch.setattr("dpsieve.engines.duckdb.engine.pairs_by_sql", None)
    for data in (rows, tmp_path / "rows.parquet"):
        found = LOOPS.read_pairs(data, task)
        assert found.starts.tolist() == expected.starts.tolist()
        names = [each.keys["key"].take(pa.array(each.key_numbers)).to_pylist() for each in (found, expected)]
        assert names[0] == names[1]


def test_times_of_every_precision_give_the_same_keys():
    """Nanoseconds, which pandas writes, end in the year 2262, so that bounds in the year 9999 are none of them."""
    moments = [row[4] for row in ROWS]
    keys = {"day": "date_trunc('day', ts)", "hour": "extract(hour from ts)", "late": "ts >= '2024-01-01'"}
    found = [
        counted(DuckDB(), pa.table({"unit": [0, 1, 2, 3], "ts": pa.array(moments, pa.timestamp(unit))}), keys)
        for unit in ("s", "ms", "us", "ns")
    ]
    assert len(found[0]) == len(ROWS)
    assert found[1:] == found[:-1]


def test_what_occurs_twice_is_computed_where_it_is_wanted():
    """DuckDB would compute a common part first, for all rows, and fail at the last one."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i AS unit, i::HUGEINT AS wide, 3.00 AS n FROM range(5) r(i)")
        connection.execute("INSERT INTO t VALUES (5, 170141183460469231731687303715884105727, 9)")
        keys = {"key": "coalesce(nullif(n > 5, FALSE), wide BETWEEN n AND n)"}
        assert counted(DuckDB(), (connection, "t"), keys) == {True: 2, False: 4}


def test_a_long_list_is_looked_for_in_no_column_that_could_fail():
    """DuckDB would join the list with the converted column, before anything is tried."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS unit, 340282366920938463463374607431768211455 AS wide")
        with pytest.raises(InvalidType, match="compares or joins a whole number and another type"):
            counted(DuckDB(), (connection, "t"), {}, "wide IN (1, 2, 3, 4, 5, 6, 7)", plain=("unit",))


def test_a_minus_sign_may_follow_another():
    table = pa.table({"unit": [1, 2], "x": [-1.5, 1.5]})
    assert counted(DuckDB(), table, {"key": "CASE WHEN x > -(-1.0) THEN 'more' ELSE 'less' END"}) == {
        "more": 1, "less": 1,
    }  # fmt: skip


def test_a_value_that_is_no_time_is_null_whatever_the_clock_says():
    """'now' and 'today' are words that some engines convert."""
    table = pa.table({"unit": [1, 2, 3, 4], "t": ["now", "today", "tomorrow", "2024-05-07"]})
    for kind in ("DATE", "TIMESTAMP"):
        found = counted(DuckDB(), table, {"key": f"CAST(CAST(t AS {kind}) AS VARCHAR)"})
        assert [key[:10] for key in found] == ["2024-05-07"]


@pytest.mark.parametrize("text", [*WITH_ATTEMPTS, *NESTED[4:]])
def test_postgres_refuses_what_could_fail_on_a_row(text):
    from dpsieve.engines.sql.dialects import table_columns
    from dpsieve.engines.sql.row_writer import write_rows

    types = {"n": "bigint", "x": "double precision", "t": "text", "d": "date", "ts": "timestamp without time zone"}
    columns = table_columns("postgres", types, types)
    with pytest.raises(InvalidType, match="PostgreSQL cannot without failing on some rows"):
        write_rows("postgres", RowExpressions(keys=(("key", text),)), columns)


HOSTILE = [
    "1 = 1; DROP TABLE t", "n > 0 -- and more", "n > 0 /* x */", "(SELECT 1) = 1", "n IN (SELECT n FROM t)",
    "EXISTS (SELECT 1)", "n > 0 UNION SELECT 1", "count(*) > 1", "sum(n) > 1", "max(t)", "row_number() OVER () = 1",
    "lag(n) OVER (ORDER BY n)", "n > avg(n) OVER (PARTITION BY b)", "random() < 0.5", "rand() < 1", "uuid() = t",
    "gen_random_uuid()", "now() > ts", "current_date", "current_timestamp", "localtime", "today()",
    "nextval('s') > 1", "txid_current() > 1", "pg_sleep(9)", "sleep_ms(9)", "getenv('HOME')", "current_setting('x')",
    "current_user", "session_user", "version()", "pg_read_file('/etc/passwd')", "read_csv('x')", "read_text('/x')",
    "read_parquet('x')", "glob('*')", "getvariable('x')", "setseed(1)", "query('SELECT 1')", "error('x')",
    "list_transform([1], x -> x)", "list_filter([n], lambda x: x > 1)", "x -> x + 1", "[n]", "{'a': n}", "n[1]",
    "unnest([1, 2])", "columns(*)", "*", "t.n = 1", "a.b.c = 1", "system.main.lower(t)", "pg_catalog.lower(t)",
    "n AS m", "n, x", "n = $1", "n = ?", "n = :a", "$$abc$$", "E'a\\'b'", "t COLLATE nocase = 'a'",
    "regexp_matches(t, '(a+)+$')", "t SIMILAR TO 'a'", "t ~ 'a'", "t GLOB 'a'", "t ILIKE 'a'",
    "t LIKE 'a' ESCAPE 'b'",
    "t LIKE n", "t LIKE 'a\\'", "CAST(t AS JSON)", "t::INTEGER[]", "INTERVAL 1 DAY", "ts + INTERVAL 1 DAY",
    "ts AT TIME ZONE 'UTC'", "lower(DISTINCT t)", "count(t) FILTER (WHERE b)", "n = ANY([1])", "n IS DISTINCT FROM 1",
    "printf('%s', t)", "repeat(t, 999999999)", "lpad(t, 999999999, 'x')", "replace(t, 'a', 'aaaaaaaa')",
    "substring(t, -5, 2)", "substring(t, n)", "left(t, -1)", "trim(t, 'x')", "concat(t, t)", "hash(t)", "md5(t)",
    "typeof(n)", "pg_typeof(n)", "ctid = 1", "nullif(n)", "CASE WHEN n THEN 1 END", "date_trunc(t, ts)",
    "date_trunc('parsec', ts)", "extract(epoch from ts)", "strftime(ts, '%Y')", "DATE 'now' = d",
    "DATE '2024-13-01' = d",
    "n = 'a'", "t = 5", "t > d", "b > 5", "n AND b", "NOT n", "n || t", "n LIKE 'a'", "lower(n)", "d = 'today'",
    "n = 99999999999999999999999", "x = 1e400", "\u202e n = 1", "n = 1\u200b", "n = 1\x00", "", "   ", "n >", "((((",
    "(" * 500 + "n" + ")" * 500, "NOT " * 2000 + "b", "-" * 3000 + "n", "n = 1 AND " * 2000 + "b",
    "\N{FULLWIDTH APOSTROPHE}a\N{FULLWIDTH APOSTROPHE} = t",
    "missing = 1", "N = 1", "country = \"DE\"", "MACRO_OF_MINE(n)", "main.n = 1", "VALUES (1)", "TABLE t", "PRAGMA x",
    "COPY t TO 'x'", "ATTACH 'x'", "INSTALL x", "SET x = 1", "SELECT n", "FROM t", "n QUALIFY 1", "GROUPING(n)",
    "TRY(n)", "TRY(random() > 1)", "n IN ()", "n IN (n, 1)", "n IN (1, NULL)", "t IN ('a', 5)", "n = NULL", "NULL",
    "floor(", "ceil(", "@", "substring( t",
]  # fmt: skip


@pytest.mark.parametrize("argument", ["where", "key"])
def test_hostile_text_is_refused_before_anything_is_read_or_charged(argument, tmp_path):
    ledger = ds.Ledger(tmp_path / "ledger", epsilon=10, delta=0.1)
    table = table_of(ROWS)
    for text in HOSTILE:
        options = {"where": text, "key": "t"} if argument == "where" else {"key": {"made": text}}
        for call in (ds.preview, ds.release):
            how = {} if call is ds.preview else {"source": None}
            with pytest.raises(DpsieveError) as error:
                call(table, privacy_unit="unit", epsilon=1.0, delta=1e-6, ledger=ledger, **options, **how)
            assert len(str(error.value)) < 900
    assert not len(ledger)


def test_errors_name_the_part_and_the_fix():
    with pytest.raises(InvalidValue, match=r"where has random\(\), which is not on the list.*Use comparisons"):
        RowExpressions("random() < 0.5")
    with pytest.raises(InvalidType, match=r"where compares or joins a text and a whole number. Convert it with CAST"):
        ds.preview(table_of(ROWS), key="t", privacy_unit="unit", epsilon=1.0, delta=1e-6, where="t > 5")
    asked = {"privacy_unit": "unit", "epsilon": 1.0, "delta": 1e-6}
    with pytest.raises(InvalidValue, match=r"^where='contry' is not a column of the data\.") as error:
        ds.preview(table_of(ROWS), key="t", where="contry = 'DE'", **asked)
    assert error.value.argument == "where"
    with pytest.raises(InvalidValue, match=r"^where='contry' is not a column of the data\."):
        ds.release(table_of(ROWS), key="t", where="contry = 'DE'", **asked)
    with pytest.raises(InvalidValue, match=r"^key_expression='tt' is not a column of the data\."):
        ds.release(table_of(ROWS), key={"tt": "lower(tt)"}, **asked)
    with pytest.raises(InvalidValue, match=r"^key='tt' is not a column of the data\. Did you mean 't'"):
        ds.preview(table_of(ROWS), key="tt", where="t = 'DE'", **asked)
    with pytest.raises(InvalidValue, match=r"^key_expression='tt' is not a column of the data\. Did you mean 't'"):
        ds.preview(table_of(ROWS), key={"made": "lower(tt)"}, **asked)
    with pytest.raises(InvalidValue, match=r"^where='unitt' is not a column of the data\. Did you mean 'unit'"):
        ds.preview(table_of(ROWS), key="t", where="unitt > 5", **asked)
    with pytest.raises(InvalidValue, match=r"^privacy_unit='unitt' is not a column of the data\. Did you mean 'unit'"):
        ds.preview(table_of(ROWS), key="t", where="n > 5", **asked | {"privacy_unit": "unitt"})


def test_random_text_is_refused_or_is_an_expression_of_a_row():
    """Pieces of SQL in random order never fail in another way,
    and what is accepted gives the same for every order."""
    pieces = [
        "n", "t", "b", "5", "'a'", "(", ")", "=", "<", "AND", "OR", "NOT", "lower(", "sum(", "random()", ",",
        "CASE", "WHEN",
        "THEN", "ELSE", "END", "||", "+", "/", "date_trunc('day', ts)", "IS NULL", "IN", "--", ";", "SELECT",
        "FROM", "t.n",
        "OVER ()", "now()", "::", "DATE", "LIKE 'a%'", "->", "[", "]", "{", "}", "*", "\"", "'", "\\", "é", "$1",
    ]  # fmt: skip
    dice, accepted = random.Random(7), 0
    table = table_of(ROWS + TRAPS)
    turned = table.take(list(reversed(range(len(table)))))
    for _ in range(3000):
        text = " ".join(dice.choices(pieces, k=dice.randint(1, 7)))
        try:
            parse(text, KEY)
            found = counted(DuckDB(), table, {"made": text})
        except DpsieveError:
            continue
        accepted += 1
        assert counted(DuckDB(), turned, {"made": text}) == found, text
        assert not {"SELECT", "random()", "now()", "sum(", "OVER ()", ";", "--"} & set(text.split(" ")), text
    assert accepted > 20


def test_what_a_unit_adds_depends_on_its_own_rows_alone():
    """The whole table is the sum of what each unit has alone: with every trap, for a condition and a key."""
    rows = table_of(ROWS + TRAPS)
    keys, where = {"made": "CASE WHEN n / 10 > 1 THEN upper(t) ELSE CAST(n % 5 AS VARCHAR) END"}, "x * n < 1e9 OR b"
    total = Counter()
    for i in range(len(rows)):
        total += Counter(counted(DuckDB(), rows.slice(i, 1), keys, where))
    assert counted(DuckDB(), rows, keys, where) == dict(total)


def test_macros_of_a_connection_are_never_called():
    connection = duckdb.connect()
    connection.register("given", table_of(ROWS))
    connection.execute("CREATE TABLE t AS SELECT * FROM given")
    expected = counted(DuckDB(), table_of(ROWS), dict(zip("abcdefg", MACROED, strict=True)), "t LIKE '%a%' OR n > 0")
    for name, arguments in {
        "lower": "a", "upper": "a", "trim": "a", "length": "a", "substring": "a, b, c", "replace": "a, b, c",
        "~~": "a, b",
        "date_trunc": "a, b", "date_part": "a, b", "floor": "a", "+": "a, b", "*": "a, b", "/": "a, b", "||": "a, b",
        "starts_with": "a, b", "split_part": "a, b, c", "coalesce": "a, b", "nullif": "a, b",
    }.items():  # fmt: skip
        try:
            connection.execute(f"CREATE MACRO \"{name}\"({arguments}) AS error('hijacked')")
        except duckdb.Error:  # not a name that can be taken
            continue
    found = counted(DuckDB(), (connection, "t"), dict(zip("abcdefg", MACROED, strict=True)), "t LIKE '%a%' OR n > 0")
    assert found == expected


MACROED = (
    "lower(trim(t)) || upper(t)", "length(t) + n * 2", "substring(replace(t, 'a', ''), 1, 3)",
    "date_trunc('day', ts)",
    "extract(hour from ts)", "floor(n / 10)", "coalesce(nullif(split_part(t, '/', 1), 'x'), 'y')",
)  # fmt: skip


def test_the_unit_is_never_derived():
    asked = {"privacy_unit": "unit", "epsilon": 1.0, "delta": 1e-6}
    for key, why in (
        ({"unit": "lower(t)"}, "name of a column of the privacy unit"),
        ({"who": "unit"}, "is a column of"),
    ):
        with pytest.raises(InvalidValue, match=why):
            ds.release(table_of(ROWS), key=key, **asked)
    with pytest.raises(InvalidValue, match="the same for all rows"):
        ds.release(table_of(ROWS), key={"all": "'x'"}, **asked)


def test_a_derived_key_may_have_the_name_of_a_column():
    found = counted(DuckDB(), table_of(ROWS), {"n": "n % 2", "odd": "n"})
    assert found == {(1, 5): 1, (1, 17): 1, (0, 90): 1, (0, -8): 1}


def test_text_files_have_texts_to_convert(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("unit,ts,price\n" + "".join(f"{i},2024-05-0{i % 3 + 1} 10:00:00,{i}.5\n" for i in range(9)))
    keys = {"day": "date_trunc('day', CAST(ts AS TIMESTAMP))"}
    found = counted(DuckDB(), path, keys, "CAST(price AS DOUBLE) < 6")
    assert {key.day: n for key, n in found.items()} == {1: 2, 2: 2, 3: 2}
    with pytest.raises(InvalidType, match="a text where a date or"):
        counted(DuckDB(), path, {"day": "date_trunc('day', ts)"})


def test_numbers_are_read_under_a_condition():
    columns = NumberColumns(("x",), ("unit",), rows=RowExpressions("n > 0 AND x < 100"))
    rows = DuckDB().read_numbers(table_of(ROWS), aggregation(columns, Contribution(rows=1), salt=1))
    assert sorted(rows.values.ravel().tolist()) == [-0.5, 2.5]


JOBS = {
    ds.release: {}, ds.discover: {"max_keys_per_unit": 3}, ds.top_k: {"k": 3}, ds.hitting_set: {"k": 3},
}  # fmt: skip


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_jobs_take_conditions_and_derived_keys(job):
    table = pa.table({"user": range(3000), "ts": [dt.datetime(2024, 1, 1 + i % 3, i % 24) for i in range(3000)]})
    made = job(
        table, key={"day": "date_trunc('day', ts)"}, where="extract(hour from ts) >= 6 AND ts < '2024-01-03'",
        privacy_unit="user", epsilon=2.0, delta=1e-6, **JOBS[job],
    )  # fmt: skip
    assert sorted(day.day for day in made.table.column("day").to_pylist()) == [1, 2]


def test_what_was_computed_of_rows_is_part_of_what_is_published(tmp_path):
    """In the notes, the saved folder, the report and the preview; nothing is noted where nothing is computed."""
    table = pa.table({"user": range(2000), "word": ["Tea"] * 2000, "n": [1.0] * 2000})
    asked = {
        "key": {"drink": "lower(word)"},
        "where": "user <> 7",
        "privacy_unit": "user",
        "epsilon": 2.0,
        "delta": 1e-6,
    }
    release = ds.release(table, **asked, max_keys_per_unit=1)
    assert (release.notes.where, release.notes.derived) == ("user <> 7", "drink = lower(word)")
    assert release.bounded.endswith("Rows count where user <> 7. A unit adds at most 1 key, once each.")
    assert ds.Release.load(release.save(tmp_path / "saved")).notes == release.notes
    page = release.report(tmp_path / "page.html").read_text()
    assert "user &lt;&gt; 7" in page and "drink = lower(word)" in page
    seen = dict(ds.preview(table, **asked).lines())
    assert (seen["rows count where"], seen["derived keys"]) == ("user <> 7", "drink = lower(word)")
    number = {"column": "n", "bounds": (0, 1), "privacy_unit": "user", "epsilon": 1.0, "neighbours": "add_remove"}
    number["max_rows_per_unit"] = 1
    assert ds.sum(table, **number, where="n > 0").notes.where == "n > 0"
    assert "where" not in ds.sum(table, **number).notes.to_json()
    long = {f"k{i}": f"word || '{'x' * 900}\n'" for i in range(12)}
    notes = ds.release(table, **{**asked, "key": long}, max_keys_per_unit=1).notes
    assert notes.derived == "12 columns"


def test_two_steps_and_known_keys_see_derived_keys():
    table = pa.table({"user": [i // 4 for i in range(8000)], "word": [f"Word {i % 7}" for i in range(8000)]})
    asked = {"key": {"word": "lower(word)"}, "privacy_unit": "user", "epsilon": 2.0, "delta": 1e-6}
    counts = ds.release(table, goal="counts", max_keys_per_unit=4, **asked)
    assert set(counts.table.column("word").to_pylist()) == {f"word {i}" for i in range(7)}
    listed = ds.release(table, known_keys=["word 1", "Word 1"], max_keys_per_unit=1, where="user < 1000", **asked)
    numbers_of = dict(zip(*(listed.table.column(name).to_pylist() for name in ("word", "count")), strict=True))
    assert numbers_of["Word 1"] < 60 < numbers_of["word 1"]


@pytest.mark.server
def test_the_ends_of_time_and_odd_texts_of_postgres_fail_nothing(postgres):
    """Infinite dates, dates before Christ, NaN, and texts under a collation by which PostgreSQL does not search."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(postgres, autocommit=True) as connection, connection.cursor() as cursor:
        how = "provider = icu, locale = 'und-u-ks-level2', deterministic = false"
        cursor.execute(f"CREATE COLLATION IF NOT EXISTS odd_order ({how})")
        cursor.execute(
            "CREATE TABLE odd_rows (unit int, n bigint, x float8, t text COLLATE odd_order, d date, ts timestamp, "
            "z timestamptz, e numeric, b boolean, u uuid)"
        )
        for i, moment in enumerate(("infinity", "-infinity", "4714-12-01 BC", "294276-12-31", "2024-05-07 10:00:00")):
            day = {"4714-12-01 BC": "4714-11-24 BC", "294276-12-31": "5874897-12-31"}.get(moment, moment)
            cursor.execute(
                f"INSERT INTO odd_rows VALUES ({i}, {2**63 - 1 - i}, 'NaN', 'A\\b{i}', '{day[:15]}', '{moment}', "
                f"'{moment}', 'NaN', NULL, gen_random_uuid())"
            )
    texts = [
        *EVERYWHERE, *NESTED[:4], "date_trunc('week', z)", "extract(year from z)", "CAST(z AS DATE)",
        "CAST(z AS TIMESTAMP)",
        "CASE WHEN e > 5 THEN 'more' ELSE 'less' END", "lower(CAST(u AS VARCHAR)) LIKE '%a%'", "CAST(b AS BIGINT)",
        "CAST(e AS VARCHAR)", "CAST(x AS VARCHAR)",
        "t LIKE '%b%' AND contains(t, 'b') AND z >= '2020-01-01T00:00:00+01:00'",
    ]  # fmt: skip
    for text in texts:
        found = counted(Postgres(postgres), "odd_rows", {"key": f"coalesce(CAST({text} AS VARCHAR), 'null')"})
        assert sum(found.values()) == 5, text
    assert counted(Postgres(postgres), "odd_rows", {"year": "extract(year from ts)"}) == {2024: 1}


@pytest.mark.server
def test_exact_numbers_of_postgres_beyond_floats_fail_nothing(postgres):
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(postgres, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE exact_rows (unit int, e numeric, x float8)")
        cursor.execute("INSERT INTO exact_rows VALUES (1, 1e400, 1), (2, 1e-400, 1), (3, 0.5, 1), (4, -2, 1)")
    for condition, units in (("e > 0.4", 2), ("e = 0.5", 1), ("e BETWEEN -2.5 AND 0.5", 3), ("e IN (0.5, -2.0)", 2)):
        assert counted(Postgres(postgres), "exact_rows", {"key": "x"}, condition) == {1.0: units}, condition
    with pytest.raises(InvalidType, match="compares or joins exact numbers with others"):
        counted(Postgres(postgres), "exact_rows", {"key": "x"}, "e > x")


def test_numbers_take_a_condition_where_the_number_of_units_is_private():
    table = pa.table({"user": range(4000), "price": [float(i % 50) for i in range(4000)], "kind": ["a", "b"] * 2000})
    asked = {"column": "price", "bounds": (0, 50), "privacy_unit": "user", "max_rows_per_unit": 1, "epsilon": 5.0}
    total = ds.sum(table, where="kind = 'a'", **asked)
    assert abs(total.value - 48_000) < 400  # the even numbers
    counted_mean = ds.mean(table, where="kind = 'b'", neighbours="add_remove", **asked)
    assert abs(counted_mean.value - 25) < 1
    assert abs(ds.quantile(table, quantile=0.5, where="price < 10", **asked).value - 4.5) < 3
    with pytest.raises(InvalidValue, match=r"where makes the number of units private\. Pass neighbours='add_remove'"):
        ds.mean(table, where="kind = 'b'", **asked)
    with pytest.raises(InvalidValue, match="where needs a table"):
        ds.sum([1.0, 2.0], bounds=(0, 2), epsilon=1.0, where="x > 1")


def test_counts_that_were_made_elsewhere_have_no_rows(tmp_path):
    with pytest.raises(InvalidValue, match="the rows are counted already"):
        ds.release_counts([], key={"a": "lower(b)"}, epsilon=1.0, delta=1e-6, out=tmp_path / "out")
