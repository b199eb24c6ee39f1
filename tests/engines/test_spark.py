"""What only Spark does: it draws in executors that may be killed, writes logs, and reads files by itself."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.counting import count, found
from typer.testing import CliRunner

import dpsieve as ds
from dpsieve.cli import app
from dpsieve.engines import DuckDB, Spark, choose
from dpsieve.engines import spark as spark_engine
from dpsieve.engines.spark import _check_session
from dpsieve.errors import BudgetExceeded, InvalidType, InvalidValue, UnreadableData
from dpsieve.testing import insecure_source

SALT = 8_234_567_890_123_456_789  # as one that is drawn; it must show nowhere
BUDGET = {"key": "query", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-8}
ONE = {"max_keys_per_unit": 1, "report_coverage": False}


def searches(units=3_000):
    """A third of the users search for tea, all for one of ten other things, and each for something of its own."""
    users = np.arange(units)
    queries = [*["tea"] * (units // 3), *(f"q{u % 10}" for u in users), *(f"secret {u}" for u in users)]
    return pa.table({"user": [*users[: units // 3], *users, *users], "query": queries})


def tokens_of(made):
    return dict(zip(made.keys.column("query").to_pylist(), made.tokens, strict=True))


def test_a_release_is_written_once_and_read_by_all(spark, tmp_path):
    """Two actions on what was written see the release, and so does another session."""
    classic, connect = spark
    ledger = ds.Ledger(tmp_path / "ledger", epsilon=1.0, delta=1e-8, unit="user")
    data = classic.createDataFrame(searches())
    made = ds.release(data, engine=Spark(folder=tmp_path / "written"), ledger=ledger, **BUDGET)
    (written,) = (tmp_path / "written").iterdir()
    assert (written / "_SUCCESS").is_file() and len(made.tokens) > 5
    for session in (classic, classic, connect):
        assert dict(session.read.parquet(str(written)).collect()) == tokens_of(made)
    with pytest.raises(BudgetExceeded):
        ds.release(data, ledger=ledger, **BUDGET)


def test_executors_that_cannot_draw_cost_nothing(spark, tmp_path, monkeypatch):
    """Here they have another version than the driver; where dpsieve or pyarrow is missing, it is the same."""
    classic, _ = spark
    ledger = ds.Ledger(tmp_path / "ledger", epsilon=1.0, delta=1e-8, unit="user")
    monkeypatch.setattr(ds, "__version__", "0.0.0")
    with pytest.raises(UnreadableData, match=r"executors cannot draw .* PYSPARK_PYTHON"):
        ds.release(classic.createDataFrame(searches(30)), engine=Spark(folder=tmp_path), ledger=ledger, **BUDGET)
    assert len(ledger) == 0


@pytest.mark.parametrize("whole", [False, True], ids=["a Python worker of each task", "a whole executor"])
def test_what_is_killed_half_way_is_drawn_again_and_counts_once(spark, tmp_path, monkeypatch, whole):
    """Each attempt notes what it drew; the first one of a partition kills its process after half of its rows.

    What is published is, for each partition, what exactly one attempt drew; two actions see the same.
    """
    real = spark_engine.draw_batches

    def victim():
        """The Python process of the task, or the Java process of the executor that started it."""
        pid = os.getpid()
        while whole and Path(f"/proc/{pid}/comm").read_text().strip() != "java":
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return pid

    def killed_once(folder, mechanism, name, version, batches):
        from pyspark import TaskContext

        context, rows = TaskContext.get(), pa.Table.from_batches(real(mechanism, name, version, batches))
        part = context.partitionId()
        first = not list(Path(folder).glob(f"{part}-*")) and (part == 0 or not whole)
        pa.parquet.write_table(rows, f"{folder}/{part}-{context.taskAttemptId()}-{victim()}")
        half = len(rows) // 2
        yield from rows.slice(0, half).combine_chunks().to_batches()
        if first:
            os.kill(victim(), signal.SIGKILL)
        yield from rows.slice(half).combine_chunks().to_batches()

    noted = tmp_path / "noted"
    noted.mkdir()
    monkeypatch.setattr(spark_engine, "draw_batches", partial(killed_once, str(noted)))
    frame = spark[0].createDataFrame(searches())
    made = ds.release(frame, engine=Spark(folder=tmp_path / "written"), **BUDGET, **ONE)
    attempts = {0: [], 1: []}
    for path in sorted(noted.iterdir(), key=lambda path: int(path.name.split("-")[1])):
        part, _, pid = map(int, path.name.split("-"))
        rows = pa.parquet.read_table(path).to_pydict()
        attempts[part].append((pid, dict(zip(*rows.values(), strict=True))))
    lost, kept = attempts[0][0], attempts[0][-1]
    assert lost[0] != kept[0] and lost[1] != kept[1], "another process drew anew"
    (written,) = (tmp_path / "written").iterdir()
    for _ in range(2):
        assert dict(spark[0].read.parquet(str(written)).collect()) == tokens_of(made)
    for drawn in attempts.values():
        keys = {key for _, one in drawn for key in one}
        ours = {key: token for key, token in tokens_of(made).items() if key in keys}
        assert sum(ours == one for _, one in drawn) == 1 and ours != lost[1]
    assert len(made.tokens) > 5


def test_of_two_attempts_that_run_at_the_same_time_one_counts(spark, tmp_path):
    """Spark runs a slow task a second time beside the first, and both go on to the end; see `speculation`."""
    command = [sys.executable, Path(__file__).with_name("speculation.py"), tmp_path]
    known = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=known, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    made = json.loads(done.stdout.splitlines()[-1])
    (written,) = (tmp_path / "written").iterdir()
    assert dict(spark[0].read.parquet(str(written)).collect()) == made
    attempts = {0: [], 1: []}
    for path in (tmp_path / "noted").iterdir():
        rows = pa.parquet.read_table(path).to_pydict()
        attempts[int(path.name[0])].append(dict(zip(*rows.values(), strict=True)))
    first, second = attempts[0]
    assert first != second, "both drew"
    for drawn in attempts.values():
        keys = {key for one in drawn for key in one}
        assert sum({key: token for key, token in made.items() if key in keys} == one for one in drawn) == 1


def test_samples_are_drawn_in_executors_and_sources_stay_here(spark):
    frame = spark[0].createDataFrame(searches())
    sampled = ds.release(frame, sample_size=30, max_keys_per_unit=1, **BUDGET)
    assert sampled.mechanism.last.scheme is not None
    with pytest.raises(InvalidValue, match="source cannot be sent to the executors"):
        ds.release(frame, source=insecure_source(1), **BUDGET, **ONE)


def test_discovery_takes_what_looks_at_weights_alone(spark):
    frame = spark[1].createDataFrame(searches())
    made = ds.discover(frame, **BUDGET)
    assert made.notes.reason == "Spark gives sums of weights" and "tea" in made.table.column(0).to_pylist()
    with pytest.raises(InvalidValue, match=r"method='greedy' needs the keys of each unit.* Choose 'auto', 'renyi'"):
        ds.discover(frame, method="greedy", **BUDGET)
    with pytest.raises(InvalidType, match="Spark does not return pairs"):
        ds.hitting_set(frame, k=3, **BUDGET)
    assert ds.top_k(frame, k=1, **BUDGET).table.column(0).to_pylist() == ["tea"]


def test_files_and_the_command_line(spark, tmp_path):
    """The command line, in this process, uses the active session."""
    table = searches(600)
    assert isinstance(choose(spark[0].createDataFrame(table))[1], Spark)
    pa.parquet.write_table(table, tmp_path / "user=7 [a]*.parquet")
    strange = tmp_path / "rows.csv"
    strange.write_text('user;query\n1;"a;""b\nc"\n2;""\n3;\n4;x\n')
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"user": 1, "query": "a"}\n{"user": 2, "query": null}\n{"user": 3, "query": 7}\n')
    (tmp_path / "day 1").write_text("1|a\n2|\n3|a\n")
    bare = ds.files(tmp_path / "day 1", format="csv", header="user|query")
    for data in (strange, lines, bare):
        how = {"key": ("query",), "unit": "user", "max_keys": 3}
        assert found(Spark(spark[0]), data, **how) == found(DuckDB(), data, **how)
    asked = "--key query --unit user --epsilon 1 --delta 1e-8 --engine spark".split()
    shown = CliRunner().invoke(app, ["release", str(tmp_path / "user=7 [[]a]*.parquet"), *asked])
    assert shown.exit_code == 0 and "tea" in shown.output and "secret" not in shown.output, shown.output


@pytest.mark.parametrize("session", [0, 1], ids=["classic", "connect"])
def test_errors_of_spark_cost_nothing_and_quote_no_data(spark, session, tmp_path, monkeypatch):
    """Also not in the log that pyspark writes to standard error."""
    from pyspark.logger import PySparkLogger

    logged = []
    for kind in ("SQL", "DataFrame"):
        monkeypatch.setattr(PySparkLogger.getLogger(f"{kind}QueryContextLogger"), "handle", logged.append)
    ledger = ds.Ledger(tmp_path / "ledger", epsilon=1.0, delta=1e-8, unit="user")
    frame = spark[session].createDataFrame(pa.table({"user": ["1", "2"], "query": ["tea", "hush"]}))
    wrong = [
        (frame, Spark(folder="/dev/null/folder"), "by Spark .* that executors can write to the folder"),
        (frame.selectExpr("user", "int(query) query"), Spark(), r"by Spark \(.*CAST_INVALID_INPUT\)"),
    ]
    for data, engine, words in wrong:
        with pytest.raises(UnreadableData, match=words) as caught:
            ds.release(data, engine=engine, ledger=ledger, **BUDGET)
        assert "hush" not in str(caught.value) and not logged
        assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert len(ledger) == 0


RANDOM = {
    "rand": ["user", "query", "rand(7) AS r"],
    "uuid": ["uuid() AS user", "query"],
    "monotonically_increasing_id": ["monotonically_increasing_id() AS user", "query"],
    "inside": ["user", "if(shuffle(array(1, 2))[0] = 1, query, 'x') AS query"],
    "a filter": "rand() < 0.9",
    "a subquery": "user > (SELECT max(r) FROM (SELECT rand() AS r FROM range(3)))",
}


@pytest.mark.parametrize("session", [0, 1], ids=["classic", "connect"])
def test_random_columns_are_refused_and_cost_nothing(spark, session, tmp_path):
    """They change where a task runs again, so that one unit could count with other rows in each part of the counts."""
    ledger = ds.Ledger(tmp_path / "ledger", epsilon=1.0, delta=1e-8, unit="user")
    frame = spark[session].createDataFrame(searches(60))
    for given in RANDOM.values():
        random = frame.where(given) if isinstance(given, str) else frame.selectExpr(*given)
        with pytest.raises(InvalidValue, match=r"data has random columns or filters, such as rand\(\)"):
            ds.release(random.selectExpr("user", "query"), ledger=ledger, **BUDGET)
    assert len(ledger) == 0
    named = frame.selectExpr("user", "if(now() > date'2020-01-01', query, 'rand()') AS query")
    assert found(Spark(), named, key=("query",), unit="user", max_keys=9)["tea"] == 20


def test_python_functions_that_are_not_deterministic_are_refused(spark):
    from pyspark.sql.functions import udf

    frame, same = spark[0].createDataFrame(searches(60)), udf(lambda value: value, "string")
    assert (
        found(Spark(), frame.withColumn("query", same("query")), key=("query",), unit="user", max_keys=9)["tea"] == 20
    )
    with pytest.raises(InvalidValue, match="data has random columns"):
        count(Spark(), frame.withColumn("query", same.asNondeterministic()("query")), key=("query",), unit="user")


def test_data_that_changes_after_it_was_counted_changes_nothing(spark, tmp_path):
    """The counts do not come from the files any more, which Spark would read again for a part that was lost."""
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(searches(60), path)
    for data in (spark[0].read.parquet(str(path)), spark[1].read.parquet(str(path)), path):
        counted = count(Spark(spark[0]), data, key=("query",), unit="user", max_keys=9)
        before = path.read_bytes()
        path.unlink()
        assert counted.summands.sum() == 140
        path.write_bytes(before)
    real = spark_engine._check_deterministic
    with pytest.MonkeyPatch.context() as patch, pytest.raises(UnreadableData, match="a file changed while it was read"):
        patch.setattr(
            spark_engine, "_check_deterministic", lambda *given: (real(*given), path.write_bytes(path.read_bytes()))
        )
        count(Spark(spark[0]), path, key=("query",), unit="user")


@pytest.mark.parametrize("session", [0, 1], ids=["classic", "connect"])
def test_text_that_is_not_utf8_is_rewritten(spark, session):
    """As for all engines: see `dpsieve.values.columns`. Units are told apart by their bytes."""
    raw, given = [b"caf\xe9", b"\xff", b"\xfe", b"tea", "\ufffdFF".encode(), "\ufffdFF\n".encode()], []
    written = ["\ufffd636166E9", "\ufffdFF", "\ufffdFE", "tea", "\ufffdEFBFBD4646", "\ufffdFF\n"]
    given = pa.table({"unit": raw * 3, "key": [raw[(i + j) % 6] for j in range(3) for i in range(6)]})
    data = spark[session].createDataFrame(given).selectExpr("CAST(unit AS string) unit", "CAST(key AS string) key")
    assert found(Spark(), data, max_keys=3) == dict.fromkeys(written, 3)
    assert sum(found(Spark(), data, max_keys=1).values()) == 6


def test_names_that_differ_in_case_alone(spark):
    frame = spark[0].createDataFrame(pa.table([[9, 9], [1, 2], ["a", "a"]], names=[*"abc"])).toDF("UNIT", "unit", "key")
    assert found(Spark(), frame) == {"a": 2}


def test_nothing_secret_is_in_the_event_log(spark, spark_events):
    """Nor in a plan, of which it has all, also where Spark plans anew as it runs."""
    for session, adaptive in [(spark[0], "false"), (spark[0], "true"), (spark[1], "true")]:
        how = {"key": ("query",), "unit": "user", "max_keys": 2, "salt": SALT}
        session.conf.set("spark.sql.adaptive.enabled", adaptive)
        count(Spark(), session.createDataFrame(searches(60)), **how)
        session.conf.set("spark.sql.adaptive.enabled", "false")
    logs = [path.read_text(errors="replace") for path in spark_events.rglob("*") if path.is_file()]
    assert sum(map(len, logs)) > 50_000 and any("xxhash64" in log for log in logs)
    for secret in (str(SALT), "secret 1", "hush"):
        assert not any(secret in log for log in logs)


def test_no_key_is_readable_in_the_files_of_a_shuffle(spark, spark_files):
    count(Spark(), spark[0].createDataFrame(searches(60)).repartition(3), key=("query",), unit="user", max_keys=2)
    shuffled = [path.read_bytes() for path in spark_files.rglob("shuffle_*.data")]
    assert sum(map(len, shuffled)) > 1_000
    assert not any(b"secret" in data for data in shuffled)


@pytest.mark.parametrize("listed", [10, 100_000])
def test_the_driver_collects_no_data_to_send_it_to_executors(spark, tmp_path, monkeypatch, listed):
    """A join with a small table sends it to all executors by way of the driver: that may be the public list alone."""
    monkeypatch.setattr(spark_engine, "_compute_once", lambda frame: frame)  # which keeps the plan
    pa.parquet.write_table(searches(60), tmp_path / "rows.parquet")
    known = pa.table({"query": [f"q{i}" for i in range(listed)]})
    frame = spark[0].read.parquet(str(tmp_path / "rows.parquet"))
    counted = count(Spark(), frame, key=("query",), unit="user", known=known)
    plan = counted._all_counts()._jdf.queryExecution().executedPlan().toString().splitlines()
    sent = [plan[number + 1] for number, line in enumerate(plan) if "BroadcastExchange" in line]
    assert any("FileScan" in line for line in plan)
    assert len(sent) == 1 and "LocalTableScan" in sent[0]


class Session:
    """What is asked of a session before anything runs on it."""

    def __init__(self, master="local[2]", encrypted="true"):
        self.conf = {"spark.master": master, "spark.io.encryption.enabled": encrypted}


def test_files_that_spark_would_not_encrypt_are_warned_of():
    with pytest.warns(UserWarning, match=r"spark\.io\.encryption\.enabled is not set"):
        _check_session(Session(encrypted="false"), None)
    _check_session(Session(), None)


def test_machines_that_share_no_temporary_folder_need_one():
    with pytest.raises(InvalidValue, match=r"Pass engine=dpsieve.engines.Spark\(folder=...\)"):
        _check_session(Session("spark://far:7077"), None)
    _check_session(Session("spark://far:7077"), "s3a://bucket/folder")


def test_what_spark_does_not_read():
    with pytest.raises(InvalidType, match="folder must be a path, not int"):
        Spark(folder=3)
    with pytest.raises(InvalidType, match=r"data is not read by Spark\. Pass a Spark DataFrame or files"):
        Spark().columns(pa.table({"a": [1]}))
    assert repr(Spark(folder="/shared/")) == "Spark(folder='/shared')"
