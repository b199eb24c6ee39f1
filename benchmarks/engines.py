"""What does privacy cost on other engines, beside their own bounded counts in the same run?

    make bench-engines        or        .venv/bin/python benchmarks/engines.py [words] [rows]

Words choose: spark, postgres, counts; jobs with one key a user, or several; once, for one run of each; the peers
pipelinedp and tumult, which run on Spark where `make bench-peers` has built them. Without words, all of it runs.

Spark and PostgreSQL run on this machine, with the same settings for all jobs. Their own job is the SQL text that
bounds and counts, as we run it (for Spark with the salt in the text), and its rows are fetched or thrown away. Spark
needs the extra `spark` and Java 17, PostgreSQL its server. Ratios are of time and, in brackets, of CPU time of all
processes, which tells more on a busy machine. Counts made elsewhere stream in a process of its own, whose memory is
told.
"""

import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from release import JOBS, ROOT, USERS, generate, run
from rich.console import Console
from rich.table import Table

import dpsieve as ds
from dpsieve.engines.engine import Aggregation, Columns
from dpsieve.engines.sql.dialects import SALT, query_for
from dpsieve.privacy.guarantee import Contribution

ROWS, COUNTS, RUNS = 10_000_000, 100_000_000, 6
BUDGET: dict[str, Any] = {"key": "key", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-8}
PEERS = {
    "pipelinedp": ("PipelineDP on Spark", "pipelinedp_spark_job.py", ()),
    "tumult": ("Tumult on Spark, tuned", "tumult_job.py", ("tuned",)),
}
WORDS = {"spark", "postgres", "counts", "one", "several", "once", *PEERS}
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
        "release, one key": lambda: ds.release(data, max_keys_per_unit=1, **how),
        "release, ten keys": lambda: ds.release(data, max_keys_per_unit=10, **how),
        "release, bound chosen": lambda: ds.release(data, **how),
    }


def used(process: str = "self") -> float:
    """Return the CPU seconds of a process and its children, living and ended."""
    folder = Path("/proc", process)
    try:
        times = (folder / "stat").read_text().rpartition(")")[2].split()[11:15]
        children = [child for file in folder.glob("task/*/children") for child in file.read_text().split()]
    except OSError:  # it has ended
        return 0.0
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK") + sum(map(used, children))


def compare(title: str, jobs: dict[str, Callable[[], object]], words: set[str], peers: dict[str, float]) -> None:
    """Print the best time of each job, and its ratios; jobs take turns, so that what else runs hits all of them."""
    several = {name for name in jobs if "ten" in name or "chosen" in name}
    if ("one" in words) != ("several" in words):
        wrong = several if "one" in words else {name for name in jobs if "one key" in name}
        jobs = {name: job for name, job in jobs.items() if name not in wrong}
    best, runs = dict.fromkeys(jobs, (math.inf, math.inf)), 1 if "once" in words else RUNS
    for _ in range(runs):
        for name, job in jobs.items():
            start, before = time.perf_counter(), used()
            job()
            seconds, cpu = time.perf_counter() - start, used() - before
            print(f"{name}: {seconds:.1f} s, {cpu:.1f} s of CPU", file=sys.stderr, flush=True)
            best[name] = min(best[name][0], seconds), min(best[name][1], cpu)
    shown = Table(title=f"{title}: best of {runs} runs")
    for name in ("job", "seconds", "of the unbounded", "of the bounded"):
        shown.add_column(name, justify="left" if name == "job" else "right")
    for name, (one, cpu) in (best | {name: (seconds, math.nan) for name, seconds in peers.items()}).items():
        own = best["bounded count, ten keys" if name in several else "bounded count, one key"]
        ratios = [f"{one / wall:.2f} ({cpu / beside:.2f})" for wall, beside in (best["unbounded count"], own)]
        shown.add_row(name, f"{one:.2f}", *ratios)
    Console(width=120).print(shown)


def on_spark(path: Path, rows: int, words: set[str]) -> None:
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
    for peer, (name, job, options) in PEERS.items():
        home = ROOT / f".venv-peer-{peer}"
        if peer in words and (home / ".done").exists():
            found = run([f"{home}/bin/python", f"{JOBS}/{job}", str(path), *options], path.parent)
            peers |= {} if found is None else {f"{name}, one key": found[0]}
    compare(f"{rows:,} rows on Spark", jobs, words, peers)
    spark.stop()


@contextmanager
def database(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the URL of a PostgreSQL server that has the rows, and a cursor."""
    sys.path.append(str(ROOT / "tests"))
    from adbc_driver_postgresql import dbapi
    from helpers.postgres_server import running_postgres  # type: ignore[import-not-found]

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


def on_postgres(path: Path, rows: int, words: set[str]) -> None:
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
        compare(f"{rows:,} rows in PostgreSQL", jobs, words, {})


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
    words = {word for word in sys.argv[1:] if not word.isdigit()}
    if words - WORDS:
        sys.exit(f"Words are {', '.join(sorted(WORDS))}.")
    words |= set() if words & {"spark", "postgres", "counts"} else {"spark", "postgres", "counts", *PEERS}
    if "counts" in words:
        of_counts(rows or COUNTS)
    if not words & {"spark", "postgres"}:
        return
    with tempfile.TemporaryDirectory() as folder:
        path, rows = Path(folder, "events.parquet"), rows or ROWS
        generate(path, rows, min(USERS, rows))
        if "spark" in words:
            on_spark(path, rows, words)
        if "postgres" in words:
            on_postgres(path, rows, words)


if __name__ == "__main__":
    main()
