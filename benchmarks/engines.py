"""What does privacy cost on other engines, beside their own bounded counts in the same run?

    make bench-engines        or        .venv/bin/python benchmarks/engines.py [spark] [postgres] [counts] [rows]

Spark and PostgreSQL run on this machine, with the same settings for all jobs. Their own job is the SQL text that
bounds and counts, as we run it (for Spark with the salt in the text), and its rows are fetched or thrown away. Spark
needs the extra `spark` and Java 17, PostgreSQL its server; peers on Spark run where `make bench-peers` has built them.
Counts made elsewhere stream in a process of its own, whose memory is told.
"""

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from release import GENERATE, JOBS, NAMES, ROOT, USERS, run
from rich.console import Console
from rich.table import Table

import dpsieve as ds
from dpsieve.engines.engine import Aggregation, Columns
from dpsieve.engines.sql.dialects import SALT, query_for
from dpsieve.privacy.contribution import Contribution

ROWS, COUNTS, RUNS = 10_000_000, 100_000_000, 3
BUDGET: dict[str, Any] = {"key": "key", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-8}
PEERS = {
    "PipelineDP on Spark": ("pipelinedp", "pipelinedp_spark_job.py", ()),
    "Tumult on Spark, tuned": ("tumult", "tumult_job.py", ("tuned",)),
}
COUNTED = """
import sys, tempfile, time
import numpy as np, pyarrow as pa
import dpsieve as ds
from measure import peak
keys, every = int(sys.argv[1]), int(sys.argv[2])
spent = 0.0
def batches():
    global spent
    for start in range(0, keys, 1 << 16):
        begin = time.process_time()
        places = np.arange(start, min(start + (1 << 16), keys))
        counts = np.where(places % every == 0, 1000, 1)
        names = pa.array(places).cast(pa.string())
        spent += time.process_time() - begin
        yield pa.record_batch({"key": names, "count": counts})
begin = time.process_time()
with tempfile.TemporaryDirectory() as folder:
    made = ds.release_counts(batches(), key="key", epsilon=1.0, delta=1e-8, out=folder + "/out")
print([time.process_time() - begin - spent, peak("self") / 1024, len(made)])
"""


def task(keys: int) -> Aggregation:
    """Return what is counted, with at most so many keys a user."""
    return Aggregation(Columns(("key",), ("user",)), Contribution(keys), salt=7)


def releases(data: Any, **other: Any) -> dict[str, Callable[[], object]]:
    """Return our jobs."""
    how = BUDGET | other
    return {
        "release, one key": lambda: ds.release(data, max_keys_per_unit=1, tell_kept=False, **how),
        "release, ten keys": lambda: ds.release(data, max_keys_per_unit=10, tell_kept=False, **how),
        "release, bound chosen": lambda: ds.release(data, **how),
    }


def compare(title: str, jobs: dict[str, Callable[[], object]], others: dict[str, float] | None = None) -> None:
    """Print the best time of each job, and its ratios; jobs take turns, so that what else runs hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(RUNS):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - start)
    shown = Table(title=f"{title}: best of {RUNS} runs")
    for name in ("job", "seconds", "of the unbounded", "of the bounded"):
        shown.add_column(name, justify="left" if name == "job" else "right")
    best = {name: min(each) for name, each in times.items()} | (others or {})
    for name, one in best.items():
        own = best["bounded count, ten keys" if "ten" in name or "chosen" in name else "bounded count, one key"]
        shown.add_row(name, f"{one:.2f}", f"{one / best['unbounded count']:.2f}", f"{one / own:.2f}")
    Console(width=120).print(shown)


def on_spark(path: Path, rows: int) -> None:
    """Compare on Spark, with all cores of this machine."""
    from pyspark.sql import SparkSession

    warnings.filterwarnings("ignore", category=FutureWarning)
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    settings = {
        "spark.driver.memory": "6g",
        "spark.io.encryption.enabled": "true",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.read.parquet(str(path))
    frame.createTempView("events")

    def bounded(keys: int) -> Callable[[], object]:
        text = query_for("spark", ("events",), dict(frame.dtypes), task(keys))
        return lambda: spark.sql(text).write.format("noop").mode("overwrite").save()

    plain = frame.groupBy("key").count()
    jobs: dict[str, Callable[[], object]] = {
        "unbounded count": lambda: plain.write.format("noop").mode("overwrite").save(),
        "bounded count, one key": bounded(1),
        "bounded count, ten keys": bounded(10),
    } | releases(frame)
    peers: dict[str, float] = {}
    for name, (peer, job, options) in PEERS.items():
        home = ROOT / f".venv-peer-{peer}"
        if (home / ".done").exists():
            found = run([f"{home}/bin/python", f"{JOBS}/{job}", str(path), *options], path.parent)
            peers |= {} if found is None else {f"{name}, one key": found[0]}
    compare(f"{rows:,} rows on Spark", jobs, peers)
    spark.stop()


@contextmanager
def database(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the URL of a PostgreSQL server that has the rows, and a cursor."""
    sys.path.append(str(ROOT / "tests"))
    from adbc_driver_postgresql import dbapi
    from postgres_server import running_postgres  # type: ignore[import-not-found]

    memory = {"shared_buffers": "1GB", "work_mem": "1GB", "maintenance_work_mem": "512MB", "max_wal_size": "8GB"}
    with (
        running_postgres(memory) as url,
        dbapi.connect(url, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        for number, batch in enumerate(pq.ParquetFile(path).iter_batches(1 << 20)):
            cursor.adbc_ingest("events", batch, mode="append" if number else "create")
        cursor.execute("VACUUM ANALYZE events")
        yield url, cursor


def on_postgres(path: Path, rows: int) -> None:
    """Compare on a PostgreSQL server on this machine."""
    with database(path) as (url, cursor):
        cursor.execute(f"SELECT set_config('{SALT}', '7', false)").fetchall()

        def ask(text: str) -> Callable[[], object]:
            return lambda: sum(len(batch) for batch in cursor.execute(text).fetch_record_batch())

        types = {"user": "bigint", "key": "text"}
        jobs: dict[str, Callable[[], object]] = {
            "unbounded count": ask('SELECT "key", count(*) FROM events GROUP BY "key"'),
            "bounded count, one key": ask(query_for("postgres", ("events",), types, task(1))),
            "bounded count, ten keys": ask(query_for("postgres", ("events",), types, task(10))),
        } | releases(url, table="events")
        compare(f"{rows:,} rows in PostgreSQL", jobs)


def of_counts(keys: int) -> None:
    """Print what counts made elsewhere take."""
    shown = Table(title=f"{keys:,} counted keys through release_counts")
    for name in ("reported", "seconds of a core", "keys a second and core", "peak MiB"):
        shown.add_column(name, justify="right")
    for every in (100, 1):
        with tempfile.TemporaryDirectory() as folder:
            found = run([sys.executable, "-c", COUNTED, str(keys), str(every)], Path(folder))
        if found is not None:
            seconds, peak, reported = found
            shown.add_row(f"{reported:,.0f}", f"{seconds:.1f}", f"{keys / seconds:,.0f}", f"{peak:,.0f}")
    Console(width=120).print(shown)


def main() -> None:
    """Run what was asked for, or all."""
    rows = next((int(word) for word in sys.argv[1:] if word.isdigit()), None)
    wanted = {word for word in sys.argv[1:] if not word.isdigit()} or {"spark", "postgres", "counts"}
    if "counts" in wanted:
        of_counts(rows or COUNTS)
    if not wanted & {"spark", "postgres"}:
        return
    with tempfile.TemporaryDirectory() as folder:
        path, rows = Path(folder, "events.parquet"), rows or ROWS
        numbers = [str(path), str(rows), str(min(USERS, rows)), str(NAMES)]
        subprocess.run([sys.executable, "-c", GENERATE, *numbers], check=True)
        if "spark" in wanted:
            on_spark(path, rows)
        if "postgres" in wanted:
            on_postgres(path, rows)


if __name__ == "__main__":
    main()
