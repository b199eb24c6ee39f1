"""What does discovery cost beside the bounded query? Set union, top-k and hitting sets of a large table.

    make bench-discovery        or        .venv/bin/python benchmarks/discovery.py [entries]

The table is synthetic, in the shape of a large set of movie reviews: 25 million distinct pairs of a user and an item,
160,000 users whose numbers of items follow a log-normal law, 60,000 items with a heavy tail, rows in random order, and
at most 100 keys of each user. The floor is the engine's own bounded GROUP BY with weights; 'distinct pairs' is plain
DuckDB without a bound. Each job runs in a process of its own, so that peak memory is its own; the fastest round counts,
and compiled code is loaded from its cache, as in every process but the first.

Policy kernels are measured alone, on pairs in memory, in entries a second. Last, on a cut of whole users, plain
Python (the weighted Gaussian mechanism with dictionaries, delta split in two halves, and noise of the library `random`,
which must not be published) and, where `make bench-peers` has
built its environment, PipelineDP.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from release import JOBS, ROOT, run
from rich.console import Console
from rich.table import Table

ENTRIES, USERS, ITEMS, KEYS, CUT = 25_000_000, 160_000, 60_000, 100, 100_000
MECHANISMS = (
    "weighted_gaussian", "renyi", "renyi_two_rounds", "greedy", "one_key",
    "policy_gaussian", "policy_greedy", "repeated_rounds", "auto",
)  # fmt: skip
POLICIES = ("policy_gaussian", "policy_greedy")

GENERATE = """
import sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
path, cut = sys.argv[1:3]
entries, users, items, few = map(int, sys.argv[3:7])
rng = np.random.default_rng(1)
sizes = np.cumsum(np.minimum(rng.lognormal(0, 1.2, users), 60))
popular = np.cumsum((np.arange(1, items + 1) + 50.0) ** -1.2)
met = np.zeros(0, np.int64)
while len(met) < entries:
    who = np.searchsorted(sizes, rng.random(entries) * sizes[-1])
    what = np.searchsorted(popular, rng.random(entries) * popular[-1])
    met = np.sort(np.concatenate([met, who * items + what]))
    met = met[np.append(True, met[1:] != met[:-1])]
met = rng.permutation(met)[:entries]
names = pa.array([f"film number {i} ({1900 + i % 124})" for i in rng.permutation(items)])
table = pa.table({"user": met // items, "item": names.take(pa.array(met % items))})
pq.write_table(table, path)
share = min(1.0, few / entries)
pq.write_table(table.filter(pa.array(met // items < share * users)), cut)
"""

PLAIN = """
import sys, duckdb
from measure import measure
text = f"SELECT item, count(*) FROM (SELECT DISTINCT user, item FROM '{sys.argv[1]}') GROUP BY item"
def job():
    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = false")
    return connection.execute(text).to_arrow_table().num_rows
measure(job)
"""

ENGINE = """
import sys
from dpsieve.engines import Columns, DuckDB
from dpsieve.engines.engine import Aggregation
from dpsieve.privacy.guarantee import Weight
from dpsieve.privacy.guarantee import Contribution
from measure import measure
path, keys, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]
how = Columns(("item",), ("user",)), Contribution(keys)
def job():
    if what == "aggregate":
        return DuckDB().aggregate(path, Aggregation(*how, Weight(30), salt=7)).keys.num_rows
    return DuckDB().read_pairs(path, Aggregation(*how, salt=7)).keys.num_rows
measure(job)
"""

OURS = """
import sys, dpsieve as ds
from measure import measure
path, keys, what, more = sys.argv[1], int(sys.argv[2]), sys.argv[3], eval(sys.argv[4])
how = dict(key="item", privacy_unit="user", epsilon=1.0, delta=1e-5, max_keys_per_unit=keys)
measure(lambda: len(getattr(ds, what)(path, **how, **more)))
"""

KERNEL = """
import sys, time
from dpsieve.discovery import policies
from dpsieve.engines import Columns, DuckDB
from dpsieve.engines.engine import Aggregation
from dpsieve.privacy.guarantee import Contribution
from dpsieve.randomness.source import resolve
path, keys, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
held = DuckDB().read_pairs(path, Aggregation(Columns(("item",), ("user",)), Contribution(keys), salt=7))
selector = getattr(policies, name)(1.0, 1e-5, keys)
selector.select(held, resolve(None))
start = time.perf_counter()
selector.select(held, resolve(None))
print([time.perf_counter() - start, 0.0, len(held.key_numbers)])
"""

PYTHON = """
import math, random, sys
from collections import defaultdict
from statistics import NormalDist
import pyarrow.parquet as pq
from measure import measure
path, keys = sys.argv[1], int(sys.argv[2])
epsilon, half, normal = 1.0, 1e-5 / 2, NormalDist()
low, high = 0.1, 100.0
for _ in range(60):
    sigma = (low + high) / 2
    near, far = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
    spent = normal.cdf(near) - math.exp(epsilon) * normal.cdf(far)
    low, high = (sigma, high) if spent > half else (low, sigma)
sigma = high
tails = {t: -math.expm1(math.log1p(-half) / t) for t in range(1, keys + 1)}
threshold = max(1 / math.sqrt(t) - sigma * normal.inv_cdf(tail) for t, tail in tails.items())
def job():
    own = defaultdict(set)
    for batch in pq.ParquetFile(path).iter_batches(columns=["user", "item"]):
        for user, item in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            own[user].add(item)
    total = defaultdict(float)
    for items in own.values():
        kept = items if len(items) <= keys else random.sample(sorted(items), keys)
        for item in kept:
            total[item] += 1 / math.sqrt(len(kept))
    return sum(weight + random.gauss(0, sigma) > threshold for weight in total.values())
measure(job)
"""


def ours(path: Path, what: str, **more: object) -> list[str]:
    """Return the command of a function of ours."""
    return [sys.executable, "-c", OURS, str(path), str(KEYS), what, repr(more)]


def show(title: str, jobs: dict[str, list[str]], floor: str, folder: Path) -> None:
    """Run jobs, and print their times and memory with the ratio to the one named as the floor."""
    table = Table(title=title)
    for name in ("job", "seconds", "time / floor", "peak MiB", "keys out"):
        table.add_column(name, justify="left" if name == "job" else "right")
    found = {name: run(command, folder) for name, command in jobs.items()}
    least = found[floor]
    for name, result in found.items():
        if result is None or least is None:
            table.add_row(name, "failed")
            continue
        seconds, peak, keys = result
        table.add_row(name, f"{seconds:.2f}", f"{seconds / least[0]:.2f}", f"{peak:,.0f}", f"{keys:,.0f}")
    Console(width=120).print(table)


def main() -> None:
    """Print the three tables."""
    entries = int(sys.argv[1]) if len(sys.argv) > 1 else ENTRIES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, cut = folder / "entries.parquet", folder / "cut.parquet"
        users = max(1, USERS * entries // ENTRIES)
        numbers = [str(number) for number in (entries, users, ITEMS, min(CUT, entries))]
        subprocess.run([sys.executable, "-c", GENERATE, str(path), str(cut), *numbers], check=True)
        engine = [sys.executable, "-c", ENGINE, str(path), str(KEYS)]
        jobs = {
            "engine: bounded GROUP BY with weights": [*engine, "aggregate"],
            "engine: pairs": [*engine, "read_pairs"],
            "DuckDB: distinct pairs GROUP BY": [sys.executable, "-c", PLAIN, str(path)],
            "discover": ours(path, "discover"),
            **{f"discover, {mechanism}": ours(path, "discover", method=mechanism) for mechanism in MECHANISMS},
            "top_k, k = 200": ours(path, "top_k", k=200),
            "hitting_set, k = 200": ours(path, "hitting_set", k=200),
        }
        shape = f"{entries:,} pairs, {users:,} users, {ITEMS:,} items, {KEYS} keys a user"
        show(shape, jobs, "engine: bounded GROUP BY with weights", folder)
        rates = Table(title="Policy kernels, on one thread")
        for column in ("kernel", "entries", "entries/s"):
            rates.add_column(column, justify="right")
        for policy in POLICIES:
            result = run([sys.executable, "-c", KERNEL, str(path), str(KEYS), policy], folder)
            shown = ("failed",) if result is None else (f"{result[2]:,.0f}", f"{result[2] / result[0]:,.0f}")
            rates.add_row(policy, *shown)
        Console(width=120).print(rates)
        jobs = {
            "discover, weighted_gaussian": ours(cut, "discover", method="weighted_gaussian"),
            "plain Python": [sys.executable, "-c", PYTHON, str(cut), str(KEYS)],
        }
        home = ROOT / ".venv-peer-pipelinedp"
        if (home / ".done").exists():
            script = f"{JOBS}/discovery_pipelinedp_job.py"
            jobs["PipelineDP, local"] = [f"{home}/bin/python", script, str(cut), str(KEYS)]
        show(f"About {min(CUT, entries):,} of these pairs", jobs, "discover, weighted_gaussian", folder)


if __name__ == "__main__":
    main()
