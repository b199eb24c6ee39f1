"""What only databases do: names of tables, types, rights, connections that are lost, and passwords in no message."""

import pickle
import threading
import time
import traceback
from contextlib import contextmanager
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest
from helpers.command import run
from helpers.counting import EVERY_BOUND, aggregation, count, found
from helpers.postgres_server import PASSWORD
from typer.testing import CliRunner

import dpsieve as ds
from dpsieve.cli import app
from dpsieve.engines import Columns, DuckDB, Postgres, choose
from dpsieve.engines.engine import NumberColumns
from dpsieve.engines.postgres import table_parts
from dpsieve.errors import InvalidType, InvalidValue, UnreadableData
from dpsieve.privacy.guarantee import Contribution

BUDGET = {"epsilon": 1.0, "delta": 1e-8}
ROWS = pa.table(
    {
        "unit": [1, 1, 1, 2, 2, 3, 3, 3, 4, 5],
        "key": ["a", "b", "a", "a", "c", "b", "Ä", None, "a", "a"],
        "more": [0, 1, 0, 0, 0, 1, 1, 1, 0, 1],
    }
)


@pytest.fixture(scope="module")
def server(postgres):
    """A connection for the tests' own work."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(postgres, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def engine(server):
    """An engine on a connection of ours; releases below open their own."""
    return Postgres(server)


@pytest.fixture(scope="module")
def rows(server):
    """The name of a table with ROWS."""
    return loaded(server, ROWS, "rows")


def loaded(server, table, name):
    with server.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {name}")
        cursor.adbc_ingest(name, table, mode="create")
    return name


def told(server, text):
    with server.cursor() as cursor:
        return cursor.execute(text).fetchall()


def test_the_public_keys_leave_nothing_behind(engine, server, rows):
    """Also where the query fails, and where there is a table of that name."""
    told(server, "CREATE TABLE IF NOT EXISTS dpsieve_known AS SELECT 1 AS mine")
    known = pa.table({"key": ["a"]})
    told(server, f"CREATE OR REPLACE VIEW broken AS SELECT unit / (unit - 1) AS unit, key FROM {rows}")
    for _ in range(2):
        with pytest.raises(UnreadableData, match="holds a value that the server cannot compute with"):
            count(engine, "broken", known=known)
        assert found(engine, rows, known=known, max_keys=9) == {"a": 4}
    assert told(server, "SELECT mine FROM dpsieve_known") == [(1,)]


def test_a_schema_of_any_name(engine, server, rows):
    place = '"a""b; DROP TABLE x; --"'
    with server.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {place}")
        cursor.execute(f"CREATE TABLE {place}.{place} AS SELECT * FROM {rows}")
    assert found(engine, f"{place}.{place}", max_keys=9) == found(DuckDB(), ROWS, max_keys=9)
    with pytest.raises(InvalidValue, match="is not in the database"):
        engine.columns(f'{place}."; DROP TABLE rows; --"')
    assert told(server, f"SELECT count(*) FROM {rows}") == [(10,)]


def test_names_of_tables():
    assert table_parts("orders") == ("orders",)
    assert table_parts('shop."old.orders"."a""b"') == ("shop", "old.orders", 'a"b')
    for wrong in ("", ".", "a.", 'a"b', '"a', "a\0b", '""'):
        with pytest.raises(InvalidValue, match="table is not a name"):
            table_parts(wrong)
    with pytest.raises(InvalidType, match="table must be the name of a table, not int"):
        table_parts(3)


def test_a_name_that_postgres_would_cut_is_not_taken_for_another(engine, server):
    name = "x" * 63
    loaded(server, ROWS, name)
    assert len(count(engine, name).frequencies)
    with pytest.raises(InvalidValue, match="is not in the database"):
        count(engine, name + "y")


def test_keys_have_the_types_of_the_schema(engine, server):
    """Exact numbers are texts, as one of them may be NaN. Domains and categories are what is behind them."""
    columns = {
        "smallint": (["2", "-1"], pa.int16(), [2, -1]),
        "bigint": (["2", "-1"], pa.int64(), [2, -1]),
        "numeric(9,2)": (["1.50", "NaN"], pa.string(), ["1.5", "NaN"]),
        "numeric": (["100", "1e-3"], pa.string(), ["100", "0.001"]),
        "real": (["0.5", "-0"], pa.float32(), [0.5, 0.0]),
        "double precision": (["Infinity", "0.25"], pa.float64(), [float("inf"), 0.25]),
        "boolean": (["t", "f"], pa.bool_(), [True, False]),
        "text": (["", "ä"], pa.string(), ["", "ä"]),
        "character varying(3)": (["x", "y "], pa.string(), ["x", "y "]),
        "character(3)": (["x", "y "], pa.string(), ["x", "y"]),
        "bytea": (["\\x00ff", ""], pa.binary(), [b"\x00\xff", b""]),
        "date": (["2024-02-29", "0001-01-01"], pa.date32(), None),
        "time": (["10:00", "11:00:00.5"], pa.time64("us"), None),
        "timestamp(3)": (["2024-02-29 10:00", "1969-01-01"], pa.timestamp("us"), None),
        "timestamptz": (["2024-02-29 10:00+03", "1969-01-01 00:00Z"], pa.timestamp("us", "UTC"), None),
        "uuid": (["00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-00000000000a"], pa.string(), None),
        "jsonb": (['{"a": 1}', "[]"], pa.string(), ['{"a": 1}', "[]"]),
        "mood": (["sad", "glad"], pa.string(), ["sad", "glad"]),
        "positive": (["1", "2"], pa.int32(), [1, 2]),
    }
    with server.cursor() as cursor:
        cursor.execute("CREATE TYPE mood AS ENUM ('glad', 'sad')")
        cursor.execute("CREATE DOMAIN whole AS integer")
        cursor.execute("CREATE DOMAIN positive AS whole CHECK (value > 0)")
        made = ", ".join(f'"{name}" {name}' for name in columns)
        cursor.execute(f"CREATE TABLE kinds ({made}, interval interval, json json, list int[])")
        for row in range(2):
            values = ", ".join("'" + given[row] + "'" for given, _, _ in columns.values())
            cursor.execute(f"INSERT INTO kinds VALUES ({values}, '1 day', '1', ARRAY[1])")
    for name, (_, kind, values) in columns.items():
        both = count(engine, "kinds", key=(name,), unit="list", max_keys=2)
        assert both.keys.schema.field(name).type == kind, name
        assert values is None or set(both.keys.column(name).to_pylist()) == set(values), name
        if name in ("real", "character(3)", "bytea", "timestamptz", "uuid", "mood"):
            again = count(engine, "kinds", key=(name,), unit="list", max_keys=2, known=both.keys)
            assert again.frequencies.tolist() == [1, 1], name
    with pytest.raises(InvalidType, match="is an exact number, which known_keys do not work with"):
        count(engine, "kinds", key=("numeric",), unit="list", known=pa.table({"numeric": ["1"]}))
    for name in ("interval", "list"):
        with pytest.raises(InvalidType, match=f"key='{name}' has the type .*, which cannot be a key"):
            engine.check("kinds", Columns((name,), "bigint"))
    with pytest.raises(InvalidType, match="table='kinds' has a unit of a type without a hash"):
        count(engine, "kinds", key=("text",), unit="json")
    assert dict(engine.columns("kinds"))["numeric(9,2)"] == "numeric(9,2)"


def test_equal_exact_numbers_are_one_unit_and_one_key(engine, server):
    """However many zeros they have at their end."""
    told(
        server, "CREATE TABLE exact AS SELECT * FROM (VALUES (1, 2.0), (1.0, 2.00), (2, 2), (1.00, 3)) AS t(unit, key)"
    )
    for salt in range(5):
        assert found(engine, "exact", salt=salt, max_keys=2) == {"2": 2, "3": 1}


def test_views_and_what_may_not_be_read(engine, server, postgres, rows):
    with server.cursor() as cursor:
        cursor.execute(f"CREATE VIEW seen AS SELECT * FROM {rows} WHERE unit > 2")
        cursor.execute("CREATE ROLE other LOGIN PASSWORD 'other'")
    assert sum(found(engine, "seen").values()) == 3
    other = Postgres(postgres.replace(f"tester:{quote(PASSWORD)}", "other:other"))
    with pytest.raises(UnreadableData, match=r"may not be read with these rights. Ask for SELECT"):
        count(other, rows)
    with pytest.raises(InvalidValue, match=r"key='keys' is not a column of the data. Did you mean 'key'"):
        count(engine, rows, key=("keys",))
    with pytest.raises(InvalidType, match="sums, means and quantiles are not computed yet"):
        engine.read_numbers(rows, aggregation(NumberColumns(("more",), "unit"), Contribution(rows=1), salt=1))


SECRET = "s3cret w@rd/%"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda url: url.replace(quote(PASSWORD), quote(SECRET, safe="")), "refuses the user or the password"),
        (lambda url: url.replace(quote(PASSWORD), SECRET), "the database cannot be used"),
        (lambda url: url.replace("/postgres?", f"/{quote(SECRET)}?"), "no such user or database"),
        (lambda url: f"postgresql://me:{SECRET}@127.0.0.1:1/x", "the database cannot be used"),
        (lambda url: f"postgresql://me:{quote(SECRET, safe='')}@127.0.0.1:1/x", "connection refused"),
        (lambda url: f"postgresql://me:{quote(SECRET, safe='')}@/x?host=/nowhere", "there is no server at that socket"),
        (lambda url: f"postgres://me@localhost/x?password={SECRET}", "the database cannot be used"),
    ],
)
def test_no_password_is_in_an_error(postgres, tmp_path, change, why):
    url = change(postgres)
    shown = []
    with pytest.raises(UnreadableData, match=why) as error:
        ds.release(url, table="rows", key="key", privacy_unit="unit", **BUDGET)
    shown += ["".join(traceback.format_exception(error.value)), repr(error.value.__context__), repr(Postgres(url))]
    asked = ["--key", "key", "--unit", "unit", "--epsilon", 1, "--delta", 1e-8]
    from_table = [url, "--table", "rows", *asked]
    number = [url, "--column", "x", "--bounds", "0,1", "--epsilon", 1]
    commands = [["release", *from_table], ["discover", *from_table], ["preview", *from_table, "--verbose"]]
    commands += [
        ["release", url, *asked],
        ["release", url, "x.csv", *asked],
        ["release", url, "--format", "csv", *asked],
    ]
    for command in [*commands, ["sum", *number]] if url.endswith("/x") else commands[:1]:
        done = run(*command, cwd=tmp_path)
        assert done.returncode == 2
        shown += [done.stdout, done.stderr]
    for text in shown:
        assert "s3cret" not in text and "w@rd" not in text and PASSWORD not in text and quote(PASSWORD) not in text


def test_what_is_refused_before_anything_is_read(postgres, rows):
    for data, how, kind, message in [
        (postgres, {}, InvalidValue, "data is a database. Name one table"),
        ("x.parquet", {"table": "rows"}, InvalidValue, "table= needs the URL of a PostgreSQL database"),
        (postgres, {"table": "rows", "engine": DuckDB()}, InvalidValue, "Leave the engine out"),
        (3, {"engine": Postgres(postgres)}, InvalidType, "table must be the name of a table, not int"),
    ]:
        with pytest.raises(kind, match=message):
            ds.release(data, key="key", privacy_unit="row", **how, **BUDGET)
    with pytest.raises(InvalidValue, match="connection is a text that is not a URL of PostgreSQL"):
        Postgres("mysql://me:secret@host/x")
    with pytest.raises(InvalidType, match="connection must be a URL or an ADBC connection, not int"):
        Postgres(3)
    with pytest.raises(InvalidType, match="may hold a password"):
        pickle.dumps(Postgres(postgres))
    assert isinstance(choose("rows", Postgres(postgres))[1], Postgres)


@pytest.fixture(scope="module")
def events(server):
    """Sixty thousand rows of fifteen thousand units: one key that all hold, and many that are rare."""
    numbers = np.arange(60_000)
    keys = np.where(numbers < 15_000, 0, numbers)
    return loaded(server, pa.table({"unit": numbers % 15_000, "key": pa.array(keys).cast("str")}), "events")


def test_release_and_discover(postgres, server, events, tmp_path):
    made = ds.release(postgres, table=events, key="key", privacy_unit="unit", **BUDGET)
    assert made.table.column("key").to_pylist() == ["0"]
    assert "chosen with differential privacy" in made.notes.contribution
    made.save(tmp_path / "saved")
    saved = b"".join(path.read_bytes() for path in (tmp_path / "saved").iterdir())
    assert PASSWORD.encode() not in saved and quote(PASSWORD).encode() not in saved
    chosen = {"key": "key", "privacy_unit": "unit", "max_keys_per_unit": 3, **BUDGET}
    assert ds.discover(postgres, table=f"public.{events}", **chosen).table.column("key").to_pylist() == ["0"]
    assert ds.top_k(postgres, table=events, k=1, **chosen).table.column("key").to_pylist() == ["0"]
    known = ds.release(postgres, table=events, known_keys=["0", "none"], **chosen).table
    assert known.column("key").to_pylist() == ["0", "none"] and abs(known.column("count")[0].as_py() - 15_000) < 200


def test_the_command_line(postgres, events, tmp_path):
    asked = ["--table", events, "--key", "key", "--unit", "unit", "--epsilon", 1, "--delta", 1e-8]
    run("ledger", "create", "budget", "--epsilon", 4, "--delta", 1e-6, "--unit", "unit", cwd=tmp_path)
    done = run("release", postgres, *asked, "--max-keys", 2, "--ledger", "budget", "--out", "published", cwd=tmp_path)
    assert done.returncode == 0 and "Guarantee" in done.stdout, done.stderr
    assert ds.Release.load(tmp_path / "published").keys.to_pylist() == [{"key": "0"}]
    assert run("preview", postgres, *asked).returncode == 0
    assert run("release", postgres, *asked, "--memory", "1GB").returncode == 2
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in written and quote(PASSWORD).encode() not in written


def test_the_salt_is_in_no_text_of_a_query(postgres, server, events):
    with watched(server) as seen:
        count(Postgres(postgres), events, max_keys=2, salt=987654321987654321)
    assert any("dpsieve.salt" in text for text in seen) and not any("987654321" in text for text in seen)


OTHERS = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"


@contextmanager
def watched(server):
    """Collect the queries of other sessions for a while."""
    seen, done = set(), threading.Event()

    def look():
        while not done.is_set():
            seen.update(text for (text,) in told(server, f"SELECT query {OTHERS}"))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


WAYS = {"fixed": {"max_keys_per_unit": 2}, "chosen": {}, "in two steps": {"goal": "counts"}}


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_a_connection_that_is_cut_half_way_costs_nothing(postgres, server, events, tmp_path, monkeypatch, how):
    """The server ends the session when a first batch is here and more is to come: nothing is charged or published."""
    from adbc_driver_manager import dbapi

    came = []

    def cut(cursor):
        reader = cursor.fetch_record_batch()
        came.append(reader.read_next_batch())
        assert told(server, f"SELECT pg_terminate_backend(pid) {OTHERS}") == [(True,)]
        while True:
            came.append(reader.read_next_batch())  # what was on its way already comes, and then an error

    monkeypatch.setattr(dbapi.Cursor, "fetch_arrow_table", cut)
    told(server, f"CREATE OR REPLACE VIEW wide AS SELECT unit, repeat('x', 1000) || key AS key FROM {events}")
    book = ds.Ledger(tmp_path / "budget", epsilon=4, delta=1e-6, unit="unit")
    asked = {"table": "wide", "key": "key", "privacy_unit": "unit", "ledger": book} | BUDGET | how
    with pytest.raises(UnreadableData, match=r"lost") as error:
        ds.release(postgres, **asked)
    assert len(book) == 0 and "terminat" not in "".join(traceback.format_exception(error.value))
    half = sum(map(len, came))
    if how == WAYS["fixed"]:
        words = [
            "--table",
            "wide",
            "--key",
            "key",
            "--unit",
            "unit",
            "--epsilon",
            "1",
            "--delta",
            "1e-8",
            "--max-keys",
            "2",
        ]
        where = ["--out", str(tmp_path / "published"), "--ledger", str(tmp_path / "budget")]
        assert CliRunner().invoke(app, ["release", postgres, *words, *where]).exit_code != 0
        assert [path.name for path in tmp_path.iterdir() if "budget" not in path.name] == [] and len(book) == 0
    monkeypatch.undo()
    ds.release(postgres, **asked)
    assert len(book) == 1 and 0 < half < 60_000
    if how == WAYS["fixed"]:
        assert half < len(count(Postgres(postgres), "wide", max_keys=2).frequencies)


def test_a_query_is_stopped_on_the_server_when_we_stop(postgres, server, events):
    """An exception in this thread, as of an interrupt from the keyboard, ends the query there too."""
    with server.cursor() as cursor:
        cursor.execute(f"CREATE VIEW slow AS SELECT unit, key, CAST(pg_sleep(0.01) AS text) AS pause FROM {events}")

    def stop(share):
        raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        count(Postgres(postgres), "slow", key=("key", "pause"), progress=stop)
    assert time.monotonic() - start < 60
    assert told(server, f"SELECT count(*) {OTHERS} AND state = 'active'") == [(0,)]


def test_one_transaction_sees_one_state_of_the_database(postgres, server, rows):
    told(server, f"CREATE VIEW isolation AS SELECT unit, current_setting('transaction_isolation') AS key FROM {rows}")
    assert found(Postgres(postgres), "isolation") == {"repeatable read": 5}


def test_text_of_a_database_without_an_encoding_is_rewritten(postgres, server):
    """Such a server takes any bytes for text, tells texts apart by them, and sends them as they are."""
    from adbc_driver_postgresql import dbapi

    told(server, "CREATE DATABASE raw ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    url = postgres.replace("/postgres?", "/raw?")
    with dbapi.connect(url, autocommit=True) as raw, raw.cursor() as cursor:
        cursor.execute("CREATE TABLE rows (unit text, key text)")
        units, keys = [r"\xff", r"\xfe", "a"], [r"caf\xe9", r"\xff", "tea"]
        pairs = ", ".join(f"(E'{unit}', E'{key}')" for unit in units for key in keys)
        cursor.execute(f"INSERT INTO rows VALUES {pairs}")
    written = ["\ufffd636166E9", "\ufffdFF", "tea"]
    assert found(Postgres(url), "rows", max_keys=3) == dict.fromkeys(written, 3)
    assert sum(found(Postgres(url), "rows", max_keys=1).values()) == 3
    with Postgres(url).read_by_bound("rows", aggregation(Columns(("key",), "unit"), EVERY_BOUND, salt=1)) as several:
        assert sorted(several.under(3).keys.column(0).to_pylist()) == sorted(written)
