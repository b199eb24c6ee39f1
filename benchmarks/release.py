"""What does privacy cost beside the plain query? A release from raw events, beside the same bounded GROUP BY.

    make bench-release        or        .venv/bin/python benchmarks/release.py [rows]

The plain job is the SQL that bounds and counts, run by DuckDB alone; ours is `dpsieve.release`, from the file to the
result with counts, intervals and certificate. Each runs in a process of its own, so that peak memory is its own. OpenDP
is measured where it is installed, on the same file.
"""

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROWS, USERS, NAMES, ROUNDS = 10_000_000, 1_000_000, 1_000_000, 3

MEASURE = """
import json, resource, sys, time
def measure(job, rounds):
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        result = job()
        best = min(best, time.perf_counter() - start)
    print(json.dumps([best, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, result]))
"""

GENERATE = """
import sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
rng = np.random.default_rng(1)
rows, users, names = map(int, sys.argv[2:5])
weights = np.cumsum(np.arange(1, names + 1) ** -1.1)
ranks = np.searchsorted(weights, rng.random(rows) * weights[-1])
keys = pa.DictionaryArray.from_arrays(pa.array(ranks), pa.array([f"name number {i}" for i in range(names)]))
pq.write_table(pa.table({"user": rng.integers(0, users, rows), "key": keys.cast(pa.string())}), sys.argv[1])
"""

PLAIN = """
import duckdb
if keys == 1:
    query = f\"\"\"SELECT key, count(*) AS n FROM (SELECT arg_min(key, hash(hash(7, "user", key))) AS key
               FROM '{path}' GROUP BY "user") GROUP BY key\"\"\"
else:
    query = f\"\"\"SELECT key, count(*) AS n FROM (SELECT key FROM (SELECT DISTINCT "user", key FROM '{path}')
               QUALIFY row_number() OVER (PARTITION BY "user" ORDER BY hash(hash(7, "user", key)), key) <= {keys})
               GROUP BY key\"\"\"
def job():
    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = false")
    return connection.execute(query).to_arrow_table().num_rows
measure(job, rounds)
"""

OURS = """
import dpsieve as ds
job = lambda: len(ds.release(path, key="key", privacy_unit="user", epsilon=1.0, delta=1e-8, max_keys_per_unit=keys))
measure(job, rounds)
"""

OPENDP = """
import polars as pl, opendp.prelude as dp
dp.enable_features("contrib")
def job():
    context = dp.Context.compositor(
        data=pl.scan_parquet(path), privacy_unit=dp.unit_of(contributions=keys, identifier="user"),
        privacy_loss=dp.loss_of(epsilon=1.0, delta=1e-8), split_evenly_over=1,
        margins=[dp.polars.Margin(max_length=20_000_000)],
    )
    query = context.query().truncate_per_group(1).group_by("key").agg(dp.len())
    return len(query.release().collect())
measure(job, 1)
"""


def run(code: str, path: Path, keys: int) -> list[float] | None:
    """Run a job in a process of its own; return seconds, peak MiB and what it reported, or None when it fails."""
    script = f"{MEASURE}\npath, keys, rounds = {str(path)!r}, {keys}, {ROUNDS}\n{code}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1], file=sys.stderr)
        return None
    result: list[float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Print times and memory, and their ratios to the plain job."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.parquet"
        numbers = [str(path), str(rows), str(min(USERS, rows)), str(NAMES)]
        subprocess.run([sys.executable, "-c", GENERATE, *numbers], check=True)
        table = Table(title=f"{rows:,} rows (user, key) in Parquet, {USERS:,} users, Zipf keys over {NAMES:,} names")
        for name in ("keys a user", "job", "seconds", "peak MiB", "time / plain", "memory / plain", "keys out"):
            table.add_column(name, justify="right")
        for keys in (1, 10):
            plain = run(PLAIN, path, keys)
            jobs = {"DuckDB alone, not private": plain, "dpsieve.release": run(OURS, path, keys)}
            if importlib.util.find_spec("opendp") and keys == 1:
                jobs["OpenDP on Polars"] = run(OPENDP, path, keys)
            for name, found in jobs.items():
                if found is None or plain is None:
                    table.add_row(str(keys), name, "failed")
                    continue
                seconds, peak, reported = found
                ratios = (f"{seconds / plain[0]:.2f}", f"{peak / plain[1]:.2f}", f"{reported:,.0f}")
                table.add_row(str(keys), name, f"{seconds:.2f}", f"{peak:,.0f}", *ratios)
        Console(width=110).print(table)


if __name__ == "__main__":
    main()
