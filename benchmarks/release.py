"""What does privacy cost beside the plain query? A release from raw events, beside the same bounded GROUP BY.

    make bench-release        or        .venv/bin/python benchmarks/release.py [rows]
    make bench-large          or        .venv/bin/python benchmarks/release.py large

The plain job is the SQL that bounds and counts, run by DuckDB alone; ours is `dpsieve.release`, from the file to the
result with counts, intervals and certificate. Each runs in a process of its own, so that peak memory is its own. Peers
run on the same file where `make bench-peers` has built their environments (see benchmarks/peers).

A second table has ratios of time, of jobs that take turns in one process, the best round of each: ours beside the
unbounded GROUP BY of the key alone, and beside the fastest bounded SQL that is known to us. Its last line
has the first call in a new process, the best of several; imports are not counted, loading of compiled code is.

With `large`: a hundred million rows in ten files, one key for each of a million and of ten million users, beside the
unbounded GROUP BY. This takes a quarter of an hour, and 1 GB on disk.
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
COLUMNS = "keys a user|job|seconds|peak MiB|time / plain|memory / plain|time / ours|keys out".split("|")
RATIOS = "file|keys a user|threads|call|seconds|to the unbounded|to the bounded".split("|")
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
pq.write_table(pa.table({"user": rng.integers(0, users, rows), "key": keys.cast(pa.string())}), sys.argv[1])
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
import json, sys, time, duckdb, pyarrow, dpsieve as ds
from dpsieve.engines import DuckDB
path, keys, threads, rounds, plain, *wanted = sys.argv[1:]
keys, threads, rounds = int(keys), int(threads), int(rounds)
how = {"privacy_unit": "user", "max_keys_per_unit": keys, "report_coverage": False, "epsilon": 1.0, "delta": 1e-8}
release = ds.release
def ours(): return release(path, key="key", engine=DuckDB(threads=threads), **how)
def sql(text):
    settings = {"threads": threads, "preserve_insertion_order": "false"}
    with duckdb.connect(config=settings) as connection:
        return connection.sql(text).to_arrow_table()
texts = json.loads(plain)
best = {name: [float("inf")] * 2 for name in wanted}
for i in range(rounds):
    for name in wanted:
        start, used = time.perf_counter(), time.process_time()
        sql(texts[name]) if name in texts else ours()
        took = time.perf_counter() - start, time.process_time() - used
        best[name] = list(map(min, best[name], took))
print(json.dumps(best))
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
    return texts


def in_turn(path: Path, keys: int, threads: int, rounds: int, wanted: list[str]) -> dict[str, list[float]]:
    """Return the seconds and the CPU seconds of the best round of each job."""
    numbers = [str(path), str(keys), str(threads), str(rounds), json.dumps(plain_texts(path, keys))]
    found: Any = run([sys.executable, "-c", JOBS_IN_TURN, *numbers, *wanted], path.parent)
    return found or {}


def compare(path: Path, keys: int, threads: int, first: bool, table: Table) -> None:
    """Add a row with our time, and its ratios to the plain jobs."""
    wanted = ["ours", *plain_texts(path, keys)]
    if first:  # each in a process of its own
        rounds = [{name: in_turn(path, keys, threads, 1, [name])[name] for name in wanted} for _ in range(ROUNDS)]
        best = {name: list(map(min, *(one[name] for one in rounds))) for name in wanted}
    else:
        best = in_turn(path, keys, threads, ROUNDS, wanted)
    bounded = min(best[name] for name in wanted if name.startswith("bounded"))
    seconds, used = best["ours"]
    shown = [f"{seconds / wall:.2f} ({used / cpu:.2f})" for wall, cpu in (best["unbounded"], bounded)]
    table.add_row(path.stem, str(keys), str(threads), "first" if first else "best", f"{seconds:.2f}", *shown)


def run(command: list[str], folder: Path) -> list[float] | None:
    """Run a job in a process of its own; return seconds, peak MiB and keys out, or None when it fails."""
    # The project that this file belongs to is measured, whichever one is installed.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(JOBS), str(ROOT / "src")])}
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
    table = Table(title=f"{FILES * ROWS:,} rows (user, key) in {FILES} Parquet files, one key a user")
    for name in "users|threads|seconds|to the unbounded".split("|"):
        table.add_column(name, justify="right")
    for users in (USERS, MANY_USERS):
        with tempfile.TemporaryDirectory() as folder:
            for seed in range(FILES):
                generate(Path(folder, f"{seed}.parquet"), ROWS, users, seed)
            texts = json.dumps({"unbounded": f"SELECT key, count(*) FROM '{folder}/*.parquet' GROUP BY key"})
            for threads in (1, 2):
                numbers = [folder, "1", str(threads), str(ROUNDS), texts]
                best: Any = run(
                    [sys.executable, "-c", JOBS_IN_TURN, *numbers, "ours", "unbounded"], Path(folder).parent
                )
                (seconds, used), (wall, cpu) = best["ours"], best["unbounded"]
                table.add_row(f"{users:,}", str(threads), f"{seconds:.2f}", f"{seconds / wall:.2f} ({used / cpu:.2f})")
    Console(width=120).print(table)


def main() -> None:
    """Print times and memory, and their ratios to the plain job."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.parquet"
        generate(path, rows, min(USERS, rows))
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


if __name__ == "__main__":
    large() if sys.argv[1:] == ["large"] else main()
