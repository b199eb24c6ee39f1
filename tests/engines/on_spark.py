"""The suite over Spark, with two executors in processes of their own: classic Spark and Spark Connect on one cluster.

`test_spark.py` runs it. Every action on Spark takes a second of a core, so that tests look at several things at once.
"""

import os
import shutil
import signal
import socket
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from counting import count, found
from scipy import stats
from statistical import assert_counts, assert_follows
from typer.testing import CliRunner

import dpsieve as ds
from dpsieve.cli import app
from dpsieve.engines import Columns, Counted, DuckDB, Spark, Weight, choose
from dpsieve.engines.spark import engine as spark_engine
from dpsieve.errors import BudgetExceeded, DpsieveError, InvalidType, InvalidValue, UnreadableData
from dpsieve.testing import insecure_source

# What pyspark itself does: it warns of pandas 3, and leaves sockets to be closed later.
pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

with socket.create_server(("127.0.0.1", 0)) as free:
    PORT = free.getsockname()[1]
# To compile less costs less than to run slowly, for the few rows of these tests.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
SALT = 8_234_567_890_123_456_789  # as one that is drawn; it must show nowhere
BUDGET = {"key": "query", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-8}


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def classic(events):
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    import pyspark
    from pyspark.sql import SparkSession

    work = Path(pyspark.__file__).parent / "work"  # where executors of this mode write their logs
    settings = {
        "spark.driver.extraJavaOptions": JAVA,
        "spark.executor.extraJavaOptions": JAVA,
        "spark.io.encryption.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(PORT),
        **INTERPRETED,
    }
    session = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    shutil.rmtree(work, ignore_errors=True)


@pytest.fixture(scope="module")
def connect(classic):
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(f"sc://127.0.0.1:{PORT}").create()
    yield session
    session.stop()


class Collected(Spark):
    """Spark with its true counts brought here, which only a test may do."""

    def _aggregate(self, *args):
        return collected(super()._aggregate(*args))


def collected(counted):
    table = counted._answered().toArrow()
    keys = table.drop_columns(["n"]).rename_columns(list(counted._key))
    return Counted(keys, table.column("n").to_numpy())


def searches(units=3_000):
    """A third of the users search for tea, all for two of a hundred other things, and each for something of its own."""
    users = np.arange(units)
    queries = [*["tea"] * (units // 3), *(f"q{u % 10}" for u in users), *(f"q{u * 7 % 90}" for u in users)]
    own = [f"secret {u}" for u in users]
    return pa.table({"user": [*users[: units // 3], *users, *users, *users], "query": queries + own})


ROWS = [(u, k, m) for u in (1, 2, 3, 4, 5, None) for k, m in zip("abcdeab", [1, 1, 2, 2, 1, 1, None], strict=True)] * 2


def table_of(rows):
    names = {"unit": pa.int64(), "key": pa.string(), "more": pa.int64()}
    return pa.table({name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(names.items())})


@pytest.mark.parametrize(
    "how",
    [{"max_keys": 1}, {"max_keys": 3, "measure": Weight(20)}],
    ids=["one key", "three keys, weights"],
)
def test_what_a_unit_adds_depends_on_its_own_rows_alone(classic, how):
    """Not on other units, the order of rows, or partitions: the whole is the sum of any two parts of the units."""
    how = {"key": ("key", "more"), "salt": SALT, "allow_null_units": True, **how}
    parts = Counter()
    for units in ((1, 3), (2, 4, 5)):
        parts.update(found(Collected(), classic.createDataFrame(table_of([r for r in ROWS if r[0] in units])), **how))
    assert found(Collected(), classic.createDataFrame(table_of(ROWS[::-1])).repartition(5), **how) == parts


def test_where_nothing_is_cut_it_counts_as_duckdb_does(classic):
    how = {"key": ("key", "more"), "max_keys": 9, "max_rows": 3, "allow_null_units": True}
    assert found(Collected(), classic.createDataFrame(table_of(ROWS)), **how) == found(DuckDB(), table_of(ROWS), **how)


def test_counts_under_every_bound_come_from_one_read(classic):
    frame = classic.createDataFrame(table_of(ROWS)).repartition(3)
    how = {"salt": SALT, "allow_null_units": True}
    several = Spark().by_bound(frame, Columns(("key", "more"), "unit"), **how)
    assert several.units[:6].tolist() == [0, 0, 0, 0, 5, 0] and several.units.sum() == 5
    counted = collected(several.under(3))
    pairs = zip(*(column.to_pylist() for column in counted.keys.columns), strict=True)
    ours = dict(zip(pairs, counted.frequencies.tolist(), strict=True))
    assert ours == found(Collected(), frame, key=("key", "more"), max_keys=3, **how)


def test_no_key_is_favoured_and_units_choose_independently(classic):
    """Fails by chance once in a million runs: each of the two checks in half of that."""
    rows = [(u, f"{u // 60} {k}", None) for u in range(24_000) for k in (0, 1)]
    counted = count(
        Collected(), classic.createDataFrame(table_of(rows)), salt=int(np.random.default_rng().integers(2**63))
    )
    names = counted.keys.column("key").to_pylist()
    kept = dict(zip(names, counted.frequencies.tolist(), strict=True))
    zeros = [kept.get(f"{block} 0", 0) for block in range(400)]
    assert_follows(zeros, range(61), stats.binom.pmf(np.arange(61), 60, 0.5))
    assert_counts(np.array([sum(zeros), 24_000 - sum(zeros)], float), np.full(2, 12_000.0))


def test_a_release_is_written_once_and_read_by_all(classic, connect, tmp_path):
    """Two actions on what was written see the release, which says of itself what one of DuckDB says."""
    table = searches()
    here = ds.release(table, **BUDGET)
    for session in (classic, connect):
        folder = tmp_path / type(session).__module__
        ledger = ds.Ledger(folder.with_suffix(".ledger"), epsilon=1.0, delta=1e-8)
        made = ds.release(session.createDataFrame(table), engine=Spark(folder=folder), ledger=ledger, **BUDGET)
        assert made.table.schema == here.table.schema and made.notes == here.notes
        assert made.certificate == here.certificate and made.mechanism == here.mechanism
        assert not made.unsafe_to_publish and ledger.remaining() is None
        keys = made.keys.column("query").to_pylist()
        assert "tea" in keys and keys == sorted(keys) and not any(key.startswith("secret") for key in keys)
        (written,) = folder.iterdir()
        assert (written / "_SUCCESS").is_file()
        tokens = dict(zip(keys, made.tokens, strict=True))
        for _ in range(2):
            assert dict(session.read.parquet(str(written)).collect()) == tokens
        with pytest.raises(BudgetExceeded):
            ds.release(session.createDataFrame(table), ledger=ledger, **BUDGET)


def test_a_task_that_is_killed_half_way_is_drawn_again_and_counts_once(classic, tmp_path, monkeypatch):
    """Each attempt notes what it drew; the first one of each partition is killed after it gave out half of its rows."""
    real = spark_engine.draw_batches

    def killed_once(folder, mechanism, name, version, batches):
        from pyspark import TaskContext

        context, rows = TaskContext.get(), pa.Table.from_batches(real(mechanism, name, version, batches))
        part, first = context.partitionId(), not list(Path(folder).glob(f"{context.partitionId()}-*"))
        pa.parquet.write_table(rows, f"{folder}/{part}-{context.taskAttemptId()}")
        half = len(rows) // 2
        yield from rows.slice(0, half).combine_chunks().to_batches()
        if first:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from rows.slice(half).combine_chunks().to_batches()

    noted = tmp_path / "noted"
    noted.mkdir()
    monkeypatch.setattr(spark_engine, "draw_batches", partial(killed_once, str(noted)))
    made = ds.release(classic.createDataFrame(searches()), **BUDGET)
    published = dict(zip(made.keys.column("query").to_pylist(), made.tokens, strict=True))
    attempts = sorted(
        (*map(int, path.name.split("-")), pa.parquet.read_table(path).to_pydict()) for path in noted.iterdir()
    )
    assert [part for part, _, _ in attempts] == [0, 0, 1, 1]
    lost, kept = (
        {key: token for _, _, rows in attempts[first::2] for key, token in zip(*rows.values(), strict=True)}
        for first in (0, 1)
    )
    assert published == kept != lost and len(published) > 10


def test_other_mechanisms_draw_in_executors_too(classic):
    frame = classic.createDataFrame(searches())
    chosen = ds.release(frame, **BUDGET | {"max_keys_per_unit": "auto"})
    assert "chosen privately" in chosen.notes.contribution and "tea" in chosen.keys.column(0).to_pylist()
    sampled = ds.release(frame, sample_size=30, **BUDGET)
    assert sampled.mechanism.last.scheme is not None
    listed = ds.release(frame, known_keys=["tea", "milk", "q1"], max_keys_per_unit=3, **BUDGET)
    assert listed.keys.column(0).to_pylist() == ["milk", "q1", "tea"]
    true = [0, 300 + 33, 1_000]
    assert all(abs(one - n) < 60 for one, n in zip(listed.tokens, true, strict=True))


def test_discovery_takes_what_looks_at_weights_alone(connect):
    frame = connect.createDataFrame(searches())
    made = ds.discover(frame, **BUDGET)
    assert made.mechanism.name == "renyi_selection" or "renyi" in made.mechanism.name
    assert made.notes.reason == "Spark gives sums of weights" and "tea" in made.table.column(0).to_pylist()
    with pytest.raises(InvalidValue, match=r"mechanism='greedy' needs to know .* Choose 'auto', 'renyi'"):
        ds.discover(frame, mechanism="greedy", **BUDGET)
    with pytest.raises(InvalidType, match="Spark does not tell which units hold which keys"):
        ds.top_k(frame, k=3, **BUDGET)


def test_files_and_the_command_line(classic, tmp_path):
    table = searches(600)
    assert isinstance(choose(classic.createDataFrame(table)), Spark)
    pa.parquet.write_table(table, tmp_path / "user=7 [a]*.parquet")
    strange = tmp_path / "rows.csv"
    strange.write_text('user;query\n1;"a;""b\nc"\n2;""\n3;\n4;x\n')
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"user": 1, "query": "a"}\n{"user": 2, "query": null}\n{"user": 3, "query": 7}\n')
    how = {"key": ("query",), "unit": "user"}
    for path in (strange, lines):
        assert found(Collected(), path, **how) == found(DuckDB(), path, **how)
    asked = "--key query --unit user --epsilon 1 --delta 1e-8 --engine spark".split()
    shown = CliRunner().invoke(app, ["release", str(tmp_path / "user=7 [[]a]*.parquet"), *asked])
    assert shown.exit_code == 0 and "tea" in shown.output and "secret" not in shown.output, shown.output


@pytest.mark.parametrize("where", ["classic", "connect"])
def test_errors_cost_nothing_and_quote_no_data(where, request, tmp_path):
    session = request.getfixturevalue(where)
    ledger = ds.Ledger(tmp_path / "ledger", epsilon=1.0, delta=1e-8)
    rows = pa.table({"user": ["1", "2", None], "query": ["tea", "hush", "tea"]})
    frame = session.createDataFrame(rows)
    here, nowhere = Spark(), Spark(folder="/dev/null/folder")
    wrong = [
        (frame, here, InvalidValue, "privacy_unit='user' holds nulls"),
        (frame, nowhere, UnreadableData, "by Spark .* that executors can write to the folder"),
        (frame.selectExpr("user", "int(query) query"), here, UnreadableData, r"by Spark \(.*CAST_INVALID_INPUT\)"),
        (frame.selectExpr("user", "array(query) query"), here, InvalidType, "key='query' has the type .* be a key"),
        (frame.withColumnRenamed("query", "querry"), here, InvalidValue, r"key='query' is not .* mean 'querry'\?"),
    ]
    for data, engine, kind, words in wrong:
        with pytest.raises(kind, match=words) as caught:
            ds.release(data, engine=engine, ledger=ledger, **BUDGET)
        assert isinstance(caught.value, DpsieveError) and "hush" not in str(caught.value)
        assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert ledger.remaining() == ledger.budget


def test_a_source_of_this_process_is_refused(classic):
    with pytest.raises(InvalidValue, match="source stays in this process"):
        ds.release(classic.createDataFrame(table_of(ROWS)), key="key", epsilon=1, delta=1e-8, source=insecure_source(1))


def test_names_of_any_kind(classic):
    names = ["UNIT", "unit", "ke`y", "n", "k0"]
    columns = [[9, 9], [1, 2], ["a", "a"], [1, 1], [1, 2]]
    frame = classic.createDataFrame(pa.table(columns, names=[*"abcde"])).toDF(*names)
    assert found(Collected(), frame, key=("ke`y", "n"), unit="unit") == {("a", 1): 2}


def test_nothing_secret_is_in_the_event_log(classic, connect, events):
    """Nor in a plan, of which it has all: those of the tests above, too, which used the same salt."""
    for session in (classic, connect):
        count(Spark(), session.createDataFrame(searches(60)), key=("query",), unit="user", max_keys=2, salt=SALT)
    logs = [path.read_text(errors="replace") for path in events.rglob("*") if path.is_file()]
    assert sum(map(len, logs)) > 100_000 and any("xxhash64" in log for log in logs)
    for secret in (str(SALT), "secret 1", "hush"):
        assert not any(secret in log for log in logs)
