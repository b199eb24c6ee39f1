"""What does privacy cost beside the plain query? A release from raw events, beside the same bounded GROUP BY.

    make bench-release        or        .venv/bin/python benchmarks/release.py [rows]
    make bench-large          or        .venv/bin/python benchmarks/release.py large
                                        .venv/bin/python benchmarks/release.py totals [rows]

The first table has the default call, from the file to the result with counts, intervals and certificate, on 1, 2, 4,
... threads. It stands beside the number of distinct pairs of a unit and a key, which any release that bounds several
keys per unit must at least find, and beside the fastest SQL for ten keys per unit that is known to us. 'Warm' is the
best of several calls in one process, in turns with the queries; 'first' the first call in a process with compiled code
cached; 'first ever' the first call with an empty cache, beside the first call with DPSIEVE_COMPILED=off. Imports are
not counted, loading of compiled code is. Each peak of memory is that of a process of its own.

The second table has an explicit bound without coverage. The plain job is the SQL that bounds and counts, run by DuckDB
alone. Peers run on the same file where `make bench-peers` has built their environments (see benchmarks/peers). The
third has ratios of time for such bounds, of jobs that take turns in one process: to the unbounded GROUP BY of the key
alone, and to the fastest bounded SQL.

With `large`: a hundred million rows in ten files, one key for each of a million and of ten million users, beside the
unbounded GROUP BY, and the default call beside the number of distinct pairs. This takes half an hour, and 1 GB on disk.

With `totals`: releases with a mean, and with a sum and a mean of one column, beside the same release without them.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dpsieve.engines.engine import Aggregation, Columns
from dpsieve.engines.sql.columns import Column
from dpsieve.engines.sql.queries import bounded_query
from dpsieve.privacy.guarantee import Contribution

ROWS, USERS, NAMES = 10_000_000, 1_000_000, 1_000_000
FILES, MANY_USERS = 10, 10_000_000
COLUMNS = "keys per user|job|seconds|peak MiB|time / plain|memory / plain|time / ours|keys out".split("|")
RATIOS = "file|keys per user|threads|call|seconds|to the unbounded|to the bounded".split("|")
DEFAULT = (
    "threads|DISTINCT, s|best bounded SQL, s|ours warm, s|/ DISTINCT|/ bounded|first - warm, s|MiB|/ DISTINCT".split(
        "|"
    )
)
SMALL, ROUNDS = 1_000_000, 5
ROOT = Path(__file__).resolve().parent.parent
JOBS = ROOT / "benchmarks" / "peers"
PEERS = {
    "OpenDP on Polars": ("opendp", ()),
    "PipelineDP, local": ("pipelinedp", ()),
    "Tumult on Spark": ("tumult", ()),
    "Tumult on Spark, tuned": ("tumult", ("tuned",)),
}

GENERATE = """
import sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
rows, users, names, seed = map(int, sys.argv[2:6])
rng = np.random.default_rng(seed)
weights = np.cumsum(np.arange(1, names + 1) ** -1.1)
ranks = np.searchsorted(weights, rng.random(rows) * weights[-1])
keys = pa.DictionaryArray.from_arrays(pa.array(ranks), pa.array([f"name number {i}" for i in range(names)]))
table = {"user": rng.integers(0, users, rows), "key": keys.cast(pa.string()), "price": rng.gamma(2.0, 20.0, rows)}
pq.write_table(pa.table(table), sys.argv[1])
"""

PLAIN = """
import sys, duckdb
from measure import measure
def job():
    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = false")
    return connection.sql(sys.argv[1]).to_arrow_table().num_rows
measure(job)
"""

OURS = """
import sys, dpsieve as ds
from measure import measure
path, keys = sys.argv[1], int(sys.argv[2])
how = {"privacy_unit": "user", "max_keys_per_unit": keys, "report_coverage": False}
measure(lambda: len(ds.release(path, key="key", epsilon=1.0, delta=1e-8, **how)))
"""

JOBS_IN_TURN = """
import json, os, pathlib, signal, sys, time, duckdb, pyarrow, dpsieve as ds
from dpsieve.engines import DuckDB
from measure import peak
path, keys, threads, rounds, plain, *wanted = sys.argv[1:]
keys, threads, rounds = int(keys), int(threads), int(rounds)
how = {"privacy_unit": "user", "epsilon": 1.0, "delta": 1e-8}
how |= {"max_keys_per_unit": keys, "report_coverage": False} if keys else {}  # without keys: the default call
release = ds.release
columns = {"with a mean": {"means": {"price": (0, 200)}}}
columns["with a sum and a mean"] = columns["with a mean"] | {"sums": {"price": (0, 200)}}
def ours(**more): return release(path, key="key", engine=DuckDB(threads=threads), **how, **more)
def sql(text):
    settings = {"threads": threads, "preserve_insertion_order": "false"}
    with duckdb.connect(config=settings) as connection:
        return connection.sql(text).to_arrow_table()
texts = json.loads(plain)
best = {name: [float("inf")] * 2 for name in wanted}
for i in range(rounds):
    for name in wanted:
        start, used = time.perf_counter(), time.process_time()
        sql(texts[name]) if name in texts else ours(**columns.get(name, {}))
        took = time.perf_counter() - start, time.process_time() - used
        best[name] = list(map(min, best[name], took))
print(json.dumps([best, peak("self") / 1024]))
for file in pathlib.Path("/proc/self/task").glob("*/children"):  # a compiler that was started would slow the next job
    for child in file.read_text().split(): os.kill(int(child), signal.SIGTERM)
"""


def generate(path: Path, rows: int, users: int, seed: int = 1) -> None:
    """Write rows of a user and a key."""
    numbers = map(str, (rows, users, NAMES, seed))
    subprocess.run([sys.executable, "-c", GENERATE, str(path), *numbers], check=True)


def plain_text(path: Path, keys: int) -> str:
    """Return the SQL that our own engine runs."""
    columns = {"user": Column("user", '"user"', "BIGINT"), "key": Column("key", '"key"', "VARCHAR")}
    task = Aggregation(Columns(("key",), ("user",)), Contribution(keys=keys), salt=7)
    return bounded_query(f"'{path}'", columns, task)


def plain_texts(path: Path, keys: int) -> dict[str, str]:
    """Return the unbounded query, and the ways to write the bounded one of which the faster is the plain job."""
    texts = {"unbounded": f"SELECT key, count(*) FROM '{path}' GROUP BY key", "bounded": plain_text(path, keys)}
    if keys == 1:  # ties are left to chance
        kept = f'SELECT arg_min(key, hash(hash(7::UBIGINT, "user", key))) AS k FROM \'{path}\' GROUP BY "user"'
        texts["bounded, arg_min"] = f"SELECT k, count(*) FROM ({kept}) GROUP BY k"
    else:
        pairs = f"SELECT DISTINCT \"user\", key FROM '{path}'"
        texts["distinct"] = f"SELECT count(*) FROM ({pairs})"
        kept = f'SELECT unnest(min_by(key, hash(7::UBIGINT, "user", key), {keys})) AS k FROM ({pairs}) GROUP BY "user"'
        texts["bounded, min_by"] = f"SELECT k, count(*) FROM ({kept}) GROUP BY k"
    return texts


def in_turn(
    path: Path, keys: int, threads: int, rounds: int, wanted: list[str], **settings: str
) -> tuple[dict[str, list[float]], float]:
    """Return the seconds and the CPU seconds of the best round of each job, and the peak memory in MiB.

    Without keys, ours is the default call, and the bounded SQL keeps ten keys per user.
    """
    numbers = [str(path), str(keys), str(threads), str(rounds), json.dumps(plain_texts(path, keys or 10))]
    found: Any = run([sys.executable, "-c", JOBS_IN_TURN, *numbers, *wanted], path.parent, settings)
    if found is None:
        raise SystemExit(f"{', '.join(wanted)} failed")
    return found[0], found[1]


def thread_counts() -> list[int]:
    """Return 1, 2, 4, ... and the number of processors."""
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return sorted({2**i for i in range(most.bit_length()) if 2**i <= most} | {most})


def measure_default(path: Path, rounds: int, title: str) -> Table:
    """Return the times and memory of the default call, and print the first call of all."""
    table = Table(title=title)
    for name in DEFAULT:
        table.add_column(name, justify="right")
    for threads in thread_counts():
        in_turn(path, 0, threads, 1, ["ours"], DPSIEVE_COMPILED="wait")  # fills the cache
        best, _ = in_turn(path, 0, threads, rounds, ["ours", "distinct", "bounded", "bounded, min_by"])
        first = min(in_turn(path, 0, threads, 1, ["ours"])[0]["ours"][0] for _ in range(3))
        memory = [in_turn(path, 0, threads, 2, [job])[1] for job in ("ours", "distinct")]
        ours, distinct = best["ours"][0], best["distinct"][0]
        bounded = min(best["bounded"][0], best["bounded, min_by"][0])
        numbers = (distinct, bounded, ours, ours / distinct, ours / bounded, first - ours)
        table.add_row(str(threads), *(f"{x:.2f}" for x in numbers), f"{memory[0]:,.0f}", f"{memory[0] / memory[1]:.2f}")
    return table


def first_ever(path: Path) -> str:
    """Return the time of the first call with an empty cache, beside the same call by SQL alone."""
    threads, seconds = thread_counts()[-1], {}
    for setting in ("off", "auto"):
        times = []
        for _ in range(3):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
                here = {"DPSIEVE_COMPILED": setting, "NUMBA_CACHE_DIR": cache}
                times.append(in_turn(path, 0, threads, 1, ["ours"], **here)[0]["ours"][0])
        seconds[setting] = min(times)
    ratio = seconds["auto"] / seconds["off"]
    return f"first call ever: {seconds['auto']:.2f} s; SQL alone: {seconds['off']:.2f} s; ratio {ratio:.2f}"


def compare(path: Path, keys: int, threads: int, first: bool, table: Table) -> None:
    """Add a row with our time, and its ratios to the plain jobs."""
    wanted = ["ours", *(name for name in plain_texts(path, keys) if name != "distinct")]
    if first:  # each in a process of its own
        rounds = [{name: in_turn(path, keys, threads, 1, [name])[0][name] for name in wanted} for _ in range(ROUNDS)]
        best = {name: list(map(min, *(one[name] for one in rounds))) for name in wanted}
    else:
        best, _ = in_turn(path, keys, threads, ROUNDS, wanted)
    bounded = min(best[name] for name in wanted if name.startswith("bounded"))
    seconds, used = best["ours"]
    shown = [f"{seconds / wall:.2f} ({used / cpu:.2f})" for wall, cpu in (best["unbounded"], bounded)]
    table.add_row(path.stem, str(keys), str(threads), "first" if first else "best", f"{seconds:.2f}", *shown)


def run(command: list[str], folder: Path, settings: dict[str, str] | None = None) -> list[float] | None:
    """Run a job in a process of its own; return seconds, peak MiB and keys out, or None when it fails."""
    # The project that this file belongs to is measured, whichever one is installed.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(JOBS), str(ROOT / "src")])} | (settings or {})
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=1800, cwd=folder, env=environment
        )
    except subprocess.CalledProcessError as error:
        print(error.stderr.strip().splitlines()[-1], file=sys.stderr)
        return None
    except subprocess.TimeoutExpired as error:
        print(error, file=sys.stderr)
        return None
    result: list[float] = json.loads(done.stdout.splitlines()[-1])
    return result


def large() -> None:
    """Print our time, and its ratio to the unbounded query, for a hundred million rows."""
    table = Table(title=f"{FILES * ROWS:,} rows (user, key) in {FILES} Parquet files, one key per user")
    for name in "users|threads|seconds|to the unbounded".split("|"):
        table.add_column(name, justify="right")
    for users in (USERS, MANY_USERS):
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(FILES):
                generate(Path(folder, f"{seed}.parquet"), ROWS, users, seed)
            texts = json.dumps({"unbounded": f"SELECT key, count(*) FROM '{folder}/*.parquet' GROUP BY key"})
            for threads in (1, 2):
                numbers = [folder, "1", str(threads), str(ROUNDS), texts]
                found: Any = run(
                    [sys.executable, "-c", JOBS_IN_TURN, *numbers, "ours", "unbounded"], Path(folder).parent
                )
                best = found[0]
                (seconds, used), (wall, cpu) = best["ours"], best["unbounded"]
                table.add_row(f"{users:,}", str(threads), f"{seconds:.2f}", f"{seconds / wall:.2f} ({used / cpu:.2f})")
            title = f"the default call on {FILES * ROWS:,} rows of {users:,} users"
            Console(width=120).print(measure_default(Path(folder, "*.parquet"), 2, title))
    Console(width=120).print(table)


def measure_totals(path: Path, rounds: int) -> Table:
    """Return the times of releases with totals, and their ratios to those without, of jobs that take turns."""
    wanted = ["ours", "with a mean", "with a sum and a mean"]
    table = Table(title="totals of a column beside the counts")
    for name in ("keys per user", "threads", "counts alone, s", *(f"{name}, s (ratio, of CPU)" for name in wanted[1:])):
        table.add_column(name, justify="right")
    threads = thread_counts()[-1]
    for keys in (1, 10, 0):
        in_turn(path, keys, threads, 1, ["ours"], DPSIEVE_COMPILED="wait")  # fills the cache
        best, _ = in_turn(path, keys, threads, rounds, wanted)
        plain, cpu = best["ours"]
        shown = [
            f"{wall:.2f} ({wall / plain:.2f}, {used / cpu:.2f})" for wall, used in (best[name] for name in wanted[1:])
        ]
        table.add_row(str(keys or "default"), str(threads), f"{plain:.2f}", *shown)
    return table


def totals() -> None:
    """Print what totals and means of a column cost."""
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else ROWS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.parquet"
        generate(path, rows, min(USERS, rows))
        Console(width=120).print(measure_totals(path, ROUNDS))


def main() -> None:
    """Print times and memory, and their ratios to the plain job."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.parquet"
        generate(path, rows, min(USERS, rows))
        Console(width=120).print(measure_default(path, ROUNDS, f"the default call on {rows:,} rows"))
        print(first_ever(path))
        table = Table(title=f"{rows:,} rows (user, key) in Parquet, {USERS:,} users, Zipf keys over {NAMES:,} names")
        for name in COLUMNS:
            table.add_column(name, justify="right")
        for keys in (1, 10):
            plain = run([sys.executable, "-c", PLAIN, plain_text(path, keys)], path.parent)
            ours = run([sys.executable, "-c", OURS, str(path), str(keys)], path.parent)
            jobs = {"DuckDB, not private": plain, "dpsieve.release": ours}
            for name, (peer, options) in PEERS.items() if keys == 1 else ():
                home = ROOT / f".venv-peer-{peer}"
                if (home / ".done").exists():
                    command = [f"{home}/bin/python", f"{JOBS}/{peer}_job.py", str(path), *options]
                    jobs[name] = run(command, path.parent)
            for name, found in jobs.items():
                if found is None or plain is None or ours is None:
                    table.add_row(str(keys), name, "failed")
                    continue
                seconds, peak, reported = found
                ratios = (f"{seconds / plain[0]:.2f}", f"{peak / plain[1]:.2f}", f"{seconds / ours[0]:.2f}")
                table.add_row(str(keys), name, f"{seconds:.2f}", f"{peak:,.0f}", *ratios, f"{reported:,.0f}")
        Console(width=120).print(table)
        compared = Table(title="ratios of time (in brackets of CPU time) to plain SQL in the same run")
        for name in RATIOS:
            compared.add_column(name, justify="right")
        small = Path(folder) / "1M rows.parquet"
        generate(small, SMALL, USERS)
        for keys in (1, 5, 10):
            for threads in (1, 2):
                compare(path, keys, threads, first=False, table=compared)
        compare(small, 1, 2, first=True, table=compared)
        Console(width=120).print(compared)
        Console(width=120).print(measure_totals(path, ROUNDS))


if __name__ == "__main__":
    {"large": large, "totals": totals}.get("".join(sys.argv[1:2]), main)()
