"""What data claims of itself, and what it must not change while it is read."""

import os
import subprocess
import sys

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from helpers.counting import EVERY_BOUND, aggregation, count, found
from helpers.parquet_lies import with_false_rows, with_false_statistics

import dpsieve as ds
from dpsieve.engines import Columns, DuckDB
from dpsieve.engines.duckdb import engine as duckdb_engine
from dpsieve.engines.duckdb.read import guard, open_scan
from dpsieve.errors import InvalidValue, UnreadableData
from dpsieve.privacy.guarantee import Weight
from dpsieve.testing import insecure_source
from dpsieve.values.columns import tried

pytestmark = pytest.mark.usefixtures("one_database")
WAYS = pytest.mark.parametrize(
    "engine", [DuckDB(compiled_from=None), DuckDB(compiled_from=0, threads=2)], ids=["SQL", "loops"]
)
BUDGET = {"key": "key", "privacy_unit": "unit", "epsilon": 1.0, "delta": 1e-8}


@pytest.fixture
def false_statistics(tmp_path):
    """600 units with two keys each, and rows without a unit; the footer claims eight units, and none that is null."""
    units = [None] * 5 + [*range(1000, 1600)] * 2
    keys = [i % 7 for i in range(len(units))]
    path = tmp_path / "rows.parquet"
    table = pa.table({"unit": pa.array(units, pa.int64()), "key": pa.array(keys, pa.int64())})
    pa.parquet.write_table(table, path, compression="none")
    with_false_statistics(path, (5, 1000, 1599), (0, 1000, 1007))
    return path, table


@WAYS
def test_false_statistics_of_parquet_decide_nothing(engine, false_statistics):
    """DuckDB would take null units for none, and number units from 1000 on in one byte, so that many become one."""
    path, table = false_statistics
    columns = Columns(("key",), "unit")
    for most in (1, 2):
        with pytest.raises(InvalidValue, match="contains nulls"):
            count(engine, path, max_keys=most)
        how = {"max_keys": most, "allow_null_units": True, "salt": 5}
        assert found(engine, path, **how) == found(engine, table, **how)
    with engine.read_by_bound(path, aggregation(columns, EVERY_BOUND, salt=5, allow_null_units=True)) as several:
        assert several.units[1:3].tolist() == [0, 600]
    held = engine.read_pairs(
        path, aggregation(columns, ds.privacy.guarantee.Contribution(2), salt=5, allow_null_units=True)
    )
    assert len(held.sizes) == 600


def test_false_statistics_do_not_drop_known_keys(tmp_path):
    path = tmp_path / "rows.parquet"
    table = pa.table({"unit": range(1000), "key": [3 + i % 7 for i in range(1000)]})
    pyarrow.parquet.write_table(table, path)
    with_false_statistics(path, (0, 3, 9), (0, 0, 1))
    known = pa.table({"key": [3, 4, 5]})
    for compiled_from in (None, 0):
        engine = DuckDB(compiled_from=compiled_from)
        assert found(engine, str(path), known=known) == found(engine, table, known=known)


def test_false_statistics_decide_nothing_on_a_connection_of_the_user(false_statistics):
    """Whose settings are those from before when all is done."""
    path, table = false_statistics
    connection = duckdb.connect()
    connection.execute("SET disabled_optimizers = 'top_n'")
    connection.execute(f"CREATE VIEW rows AS SELECT * FROM '{path}'")
    for data in ((connection, "rows"), connection.sql(f"SELECT * FROM '{path}'")):
        with pytest.raises(InvalidValue, match="contains nulls"):
            count(DuckDB(), data, max_keys=2)
        how = {"max_keys": 2, "allow_null_units": True, "salt": 5}
        assert found(DuckDB(), data, **how) == found(DuckDB(), table, **how)
    assert connection.sql("SELECT current_setting('disabled_optimizers')").fetchall() == [("top_n",)]


def test_settings_of_a_database_come_back_after_the_last_of_two_calls():
    """Optimizers are settings of the database: a call that ends first must not enable them for the other one."""
    connection = duckdb.connect()
    connection.execute("SET disabled_optimizers = 'top_n'")
    calls = [duckdb_engine.safe_settings(each.sql("SELECT 1")) for each in (connection, connection.cursor())]
    disabled = lambda: connection.sql("SELECT current_setting('disabled_optimizers')").fetchall()[0][0]  # noqa: E731
    for call in calls:
        call.__enter__()
    calls[0].__exit__(None, None, None)
    assert "common_subexpressions" in disabled()
    calls[1].__exit__(None, None, None)
    assert disabled() == "top_n"


@WAYS
@pytest.mark.parametrize("max_keys", [1, 3])
def test_a_false_number_of_rows_does_not_let_sums_overflow(engine, tmp_path, max_keys):
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.table({"unit": [1, 2], "key": ["a", "a"]}), path, compression="none")
    with_false_rows(path, 2, 1)
    assert duckdb.sql(f"SELECT num_rows FROM parquet_file_metadata('{path}')").fetchall() == [(1,)]
    with pytest.raises(InvalidValue, match="bits=62 is too large where more than 1 units share a key"):
        count(engine, path, max_keys=max_keys, measure=Weight(62))


TEXT = pa.string()


def rewrite(path, header=b"unit,key"):
    path.write_bytes(header + b"\n" + b"".join(b"%d,a\n" % i for i in range(100, 200)))


CHANGES = {
    "appended": lambda path: path.write_bytes(path.read_bytes() + b"1,b\n"),
    "rewritten": rewrite,
    "another header": lambda path: rewrite(path, b"key,unit"),
    "another file in its place": lambda path: (rewrite(path.with_name("new")), path.with_name("new").replace(path)),
    "its times set back": lambda path: (rewrite(path), os.utime(path, ns=(0, 0))),
    "removed": lambda path: path.unlink(),
}


@WAYS
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_file_that_changes_after_its_header_was_read_is_refused_and_costs_nothing(
    engine, change, tmp_path, monkeypatch
):
    """Otherwise rows are read by the header of others, which says which column holds the units."""
    path, book = tmp_path / "rows.csv", ds.Ledger(tmp_path / "ledger", epsilon=1.0, delta=1e-8, unit="unit")
    rewrite(path)
    os.utime(path, ns=(0, 0))

    def described(*given):
        scan = open_scan(*given)
        change(path)
        return scan

    monkeypatch.setattr("dpsieve.engines.duckdb.read.open_scan", described)
    for how in ({}, {"max_keys_per_unit": 1, "report_coverage": False}):
        with pytest.raises(UnreadableData):
            ds.release(path, engine=engine, ledger=book, **BUDGET, **how)
        rewrite(path)
        os.utime(path, ns=(0, 0))
    assert len(book) == 0


def test_a_file_that_changes_before_the_bound_is_chosen_changes_nothing(tmp_path, monkeypatch):
    """Where pairs do not fit into memory, too: what was read is kept, and the bound is chosen and used for it."""
    rows = pa.table({"unit": np.repeat(np.arange(3000), 2), "key": np.tile(["a", "b"], 3000)})
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(rows, path)
    real = ds.jobs.run.charge

    def charge(*given):
        pa.parquet.write_table(rows.slice(0, 10), path)
        return real(*given)

    monkeypatch.setattr("dpsieve.jobs.run.charge", charge)
    for large in (False, True):
        pa.parquet.write_table(rows, path)
        monkeypatch.setattr(duckdb_engine, "_is_large", lambda _, large=large: large)
        made = ds.release(path, source=insecure_source(3), **BUDGET)
        assert made.table.column("key").to_pylist() == ["a", "b"]
        assert min(made.table.column("count").to_pylist()) > 2900


LATIN = "caf\u00e9".encode("latin-1")
RAW = [b"tea", LATIN, b"\xff", b"\xfe", b"", b"a\xff", b"a", "\ufffdFF".encode(), "\ufffd".encode(), b"\xed\xa0\x80"]
WRITTEN = [
    "tea",
    "\ufffd636166E9",
    "\ufffdFF",
    "\ufffdFE",
    "",
    "\ufffd61FF",
    "a",
    "\ufffdEFBFBD4646",
    "\ufffd",
    "\ufffdEDA080",
]


def raw_text(values, kind=TEXT):
    """Text as Arrow takes it from anywhere, unchecked."""
    return pa.array(values, pa.large_binary() if kind == pa.large_string() else pa.binary()).view(kind)


def as_relation(table):
    connection = duckdb.connect()
    connection.register("given", table)
    return connection, "given"


KINDS = {
    "table": lambda table: table,
    "large": lambda table: pa.table([raw_text(RAW * 3, pa.large_string()), table["key"]], names=table.column_names),
    "dictionary": lambda table: pa.table(
        [c.combine_chunks().dictionary_encode() for c in table.columns], names=table.column_names
    ),
    "chunks": lambda table: pa.concat_tables([table.slice(0, 7), table.slice(7)]),
    "reader": lambda table: table.to_reader(max_chunksize=7),
    "dataset": pa.dataset.dataset,
    "stream": lambda table: table.to_reader(),
    "pandas": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "DuckDB": as_relation,
}


@WAYS
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_text_that_is_not_utf8_is_rewritten_and_no_two_keys_or_units_become_one(engine, kind):
    """Each unit, whose name may not be UTF-8 either, has three keys; one that is as the others would be rewritten."""
    table = pa.table(
        {"unit": raw_text(RAW * 3), "key": raw_text([RAW[(i + j) % 10] for j in (0, 1, 2) for i in range(10)])}
    )
    assert found(engine, kind(table), max_keys=3) == dict.fromkeys(WRITTEN, 3)
    one, two = (found(engine, kind(table), max_keys=most, salt=9) for most in (1, 2))
    assert sum(one.values()) == 10 and sum(two.values()) == 20
    pairs = found(engine, kind(table), key=("unit", "key"), max_keys=2)
    assert sorted(pairs.values()) == [1] * 20
    assert {unit: sum(unit == other for other, _ in pairs) for unit in WRITTEN} == dict.fromkeys(WRITTEN, 2)


@WAYS
def test_a_unit_whose_text_is_not_utf8_changes_nothing_for_others(engine):
    units = [f"unit {i}" for i in range(50) for _ in range(4)] + ["\ufffdFF"] * 4
    keys = [f"key {(i * i + j) % 23}" for i in range(51) for j in range(4)]
    plain = pa.table({"unit": pa.array(units), "key": pa.array(keys)})
    more = pa.table(
        {
            "unit": raw_text([u.encode() for u in units] + [b"\xff"]),
            "key": raw_text([k.encode() for k in keys] + [b"\xff"]),
        }
    )
    for max_keys in (1, 2):
        before, after = (found(engine, data, max_keys=max_keys, salt=77) for data in (plain, more))
        assert after == before | {"\ufffdFF": 1}


def test_a_release_of_text_that_is_not_utf8_is_saved_and_loaded(tmp_path):
    rows = pa.table({"unit": list(range(4000)), "key": raw_text([LATIN, b"\xff"] * 2000)})
    made = ds.release(rows, **BUDGET)
    assert made.table.column("key").to_pylist() == ["\ufffd636166E9", "\ufffdFF"]
    made.save(tmp_path / "published")
    assert ds.Release.load(tmp_path / "published").table.equals(made.table)
    lone = pd.DataFrame({"unit": range(2000), "key": pd.Series(["\ud800"] * 2000, dtype=object)})
    assert ds.release(lone, **BUDGET).table.column("key").to_pylist() == ["\ufffdEDA080"]
    nested = pa.table({"unit": pa.array([[b"\xff"]], pa.list_(pa.binary())).view(pa.list_(pa.string())), "key": ["a"]})
    with pytest.raises(UnreadableData, match="not UTF-8 inside a nested column"):
        count(DuckDB(), nested)


def test_keys_that_are_passed_with_their_counts_are_refused_where_they_are_not_utf8(tmp_path):
    book = ds.Ledger(tmp_path / "ledger", epsilon=1.0, delta=1e-8, unit="unit")
    batch = pa.record_batch({"key": raw_text([b"\xff"]), "count": [5]})
    with pytest.raises(InvalidValue, match="not Unicode"):
        ds.release_counts([batch], out=tmp_path / "out", ledger=book, **BUDGET)
    known = raw_text([b"\xff"])
    with pytest.raises(InvalidValue, match="known_keys holds text that is not Unicode"):
        table = pa.table({"unit": [1], "key": ["a"]})
        ds.release(table, known_keys=known, ledger=book, max_keys_per_unit=1, **BUDGET)
    assert len(book) == 0


@WAYS
@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.jsonl"])
def test_files_with_text_that_is_not_utf8_are_refused_and_cost_nothing(engine, tmp_path, name):
    path, book = tmp_path / name, ds.Ledger(tmp_path / "ledger", epsilon=1.0, delta=1e-8, unit="unit")
    if name == "rows.parquet":
        pa.parquet.write_table(pa.table({"unit": [1, 2], "key": raw_text([b"a", b"\xff"])}), path)
    else:
        path.write_bytes({"rows.csv": b"unit,key\n1,a\n2,\xff\n", "rows.jsonl": b'{"unit":1,"key":"\xff"}\n'}[name])
    with pytest.raises(UnreadableData):
        ds.release(path, engine=engine, ledger=book, **BUDGET)
    assert len(book) == 0


INTERRUPTS = [
    RuntimeError("Query interrupted"),
    duckdb.InterruptException("INTERRUPT Error: Interrupted!"),
    pa.ArrowCancelled("signal"),
]


@pytest.mark.parametrize("error", INTERRUPTS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("act", [tried, lambda raises: guard(raises, {})], ids=["tried", "guard"])
def test_an_interrupt_that_a_library_reports_is_one_from_the_keyboard(error, act):
    def raises():
        raise error

    with pytest.raises(KeyboardInterrupt) as caught:
        act(raises)
    assert caught.value.__context__ is None


BARS = """
import sys
import duckdb
from dpsieve.engines import Columns, DuckDB
from dpsieve.engines.engine import Aggregation
from dpsieve.engines.duckdb import engine as module
from dpsieve.privacy.guarantee import Contribution
real, soon = module._connect, "SET progress_bar_time = 100"
def connected(settings):
    made = real(settings)
    made.execute(soon)
    return made
module._connect = connected
path, query = sys.argv[1], "SELECT hash(i) % 100000 AS unit, 'k' AS key FROM range(4000000) t(i)"
user = duckdb.connect()
assert user.sql("SELECT current_setting('enable_progress_bar')").fetchall() == [(True,)]
user.sql(query).write_parquet(path)
user.execute(f"CREATE VIEW v AS {query}")
user.execute(soon)
engine, how = DuckDB(threads=1, compiled_from=None), (Columns(("key",), "unit"), Contribution(3))
for data in (path, user.sql(query), (user, "v")):
    for progress in (None, lambda share: None):
        engine.aggregate(data, Aggregation(*how, progress=progress))
assert user.sql("SELECT current_setting('enable_progress_bar_print')").fetchall() == [(True,)]
"""


def test_no_progress_bar_is_printed(tmp_path):
    """DuckDB takes a process without a script for an interactive one, and prints a bar there, here after 100 ms."""
    call = [sys.executable, "-c", BARS, str(tmp_path / "rows.parquet")]
    done = subprocess.run(call, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
