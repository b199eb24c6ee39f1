"""Mean ratings per product: dpsieve beside PipelineDP and OpenDP, each with its best settings.

    DPSIEVE_DATA=folder .venv/bin/python experiments/key_means.py [runs=10] [file.csv]

The file has lines of product, user, rating and anything else, such as amazon_Magazine_Subscriptions.csv; epsilon is 1,
delta 1e-8, bounds are 1 to 5. A user's ratings of one product are averaged before anything else, so that all tools
start from the same rows. The error of a mean is its distance from the mean of all these rows, over the products with at
least 100 of them that are published. Peers run where `make .venv-peer-pipelinedp/.done` and `make .venv-peer-
opendp/.done` have built their environments, with both kinds of noise and some bounds on the products per user; 'best'
is the setting with the least error. dpsieve runs with fixed bounds, and with its default, which chooses the bound
privately.

Then come the parts of our error: of leaving out a user's other products alone (epsilon 16 per product), and of noise
alone (each rating a user of its own, with the budget of one product). 'known sizes' is no mechanism but a limit: where
the products with 100 ratings and their sizes n are known, a user adds the weight c = min(1, (100/n)^a) to each of them,
and all weights of a user are scaled down to m in all, with the least error over a and m.

The last lines compare the numbers of published products of any size with those of the same release without a mean.
"""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import dpsieve as ds

ROOT = Path(__file__).resolve().parent.parent
RUNS = next((int(word[5:]) for word in sys.argv if word.startswith("runs=")), 10)
LEAST, LOW, HIGH = 100, 1.0, 5.0
KEYS = (1, 2, 3)
BUDGET: dict[str, Any] = {"key": "key", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-8}
Means = dict[str, float]
Found = tuple[float, float, float]


def rows_of(path: Path) -> Any:
    """Return one row per user and product."""
    text = "SELECT column1 AS user, column0 AS key, avg(CAST(column2 AS DOUBLE)) AS value"
    query = f"{text} FROM read_csv(?, header = false, all_varchar = true) GROUP BY ALL"
    return duckdb.connect().sql(query, params=[str(path)]).to_arrow_table()


def ours(rows: Any, **options: Any) -> list[Means]:
    """Return the published means of some runs."""
    found = []
    for _ in range(RUNS):
        release = ds.release(rows, **BUDGET | {"means": {"value": (LOW, HIGH)}} | options)
        found.append({row["key"]: row["value_mean"] for row in release})
    return found


def known_sizes(rows: Any) -> float:
    """Return the least error of a user's weights that depend on the true sizes of products."""
    columns = (rows.column(name).to_numpy(zero_copy_only=False) for name in ("user", "key"))
    users, keys = (np.unique(column, return_inverse=True)[1] for column in columns)
    values = (rows.column("value").to_numpy() - (LOW + HIGH) / 2) / ((HIGH - LOW) / 2)
    sizes, rng = np.bincount(keys), np.random.default_rng()
    large = sizes >= LEAST
    true = np.bincount(keys, values) / sizes
    errors = []
    for power in (0.25, 0.5, 0.75, 1.0):
        caps = np.where(large, np.minimum(1, (LEAST / sizes) ** power), 0.0)[keys]
        wanted = np.maximum(np.bincount(users, caps), 1e-9)[users]
        for most in (1.0, 1.25, 1.5, 2.0):
            weights = caps * np.minimum(1, most / wanted)
            weight, total = np.bincount(keys, weights), np.bincount(keys, weights * values)
            found = []
            for _ in range(RUNS):
                noise = rng.gamma(3, most, len(sizes)) * rng.uniform(-1, 1, (2, len(sizes)))  # of epsilon 1
                means = np.clip((total + noise[0])[large] / np.maximum(1, weight + noise[1])[large], -1, 1)
                found.append(np.abs(means - true[large]).mean())
            errors.append(float(np.mean(found)) * (HIGH - LOW) / 2)
    return min(errors)


def peers(rows: Any, tool: str, keys: int, noise: str) -> list[Means]:
    """Return the same of a peer."""
    python, job = ROOT / f".venv-peer-{tool}/bin/python", ROOT / f"benchmarks/peers/key_means_{tool}_job.py"
    if not python.exists():
        return []
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(rows, f"{folder}/rows.parquet")
        how = [f"{folder}/rows.parquet", str(keys), noise, str(RUNS), str(LOW), str(HIGH)]
        done = subprocess.run([python, job, *how], capture_output=True, text=True, check=False)
    if done.returncode:
        Console().print(f"{tool} failed: {done.stderr.strip().splitlines()[-1:]}")
        return []
    found: list[Means] = json.loads(done.stdout)
    return found


def measure(runs: list[Means], true: Means, sizes: dict[str, int]) -> Found:
    """Return the mean error over large products, and the numbers of large and of all products, per run."""
    errors, large, every = [], [], []
    for means in runs:
        some = [key for key in means if sizes.get(key, 0) >= LEAST and means[key] is not None]
        errors += [abs(means[key] - true[key]) for key in some]
        large.append(len(some))
        every.append(len(means))
    return float(np.mean(errors)), float(np.mean(large)), float(np.mean(every))


def main() -> None:
    """Print the table."""
    import os

    files = [word for word in sys.argv[1:] if not word.startswith("runs=")]
    folder = os.environ.get("DPSIEVE_DATA") or (None if files else sys.exit("Set DPSIEVE_DATA to the folder."))
    path = Path(files[0]) if files else Path(str(folder)) / "amazon_Magazine_Subscriptions.csv"
    rows = rows_of(path)
    values = defaultdict(list)
    for key, value in zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True):
        values[key].append(value)
    true, sizes = {key: float(np.mean(all_)) for key, all_ in values.items()}, {k: len(v) for k, v in values.items()}
    table = Table(
        title=f"{path.name}: {sum(n >= LEAST for n in sizes.values())} products with {LEAST} ratings; {RUNS} runs"
    )
    for name in ("tool", "setting", "mean error", f"products with {LEAST}", "products"):
        table.add_column(name, justify="left" if name in ("tool", "setting") else "right")
    best: dict[str, float] = {}

    def show(tool: str, setting: str, runs: list[Means]) -> None:
        if runs:
            error, large, every = measure(runs, true, sizes)
            best[tool] = min(error, best.get(tool, error))
            table.add_row(tool, setting, f"{error:.4f}", f"{large:.1f}", f"{every:.1f}")

    show("dpsieve", "default", ours(rows))
    for keys in KEYS:
        show("dpsieve", f"{keys} per user", ours(rows, max_keys_per_unit=keys))
    for tool in ("pipelinedp", "opendp"):
        for keys in KEYS:
            for noise in ("laplace", "gaussian"):
                show(tool, f"{keys} per user, {noise}", peers(rows, tool, keys, noise))
    console = Console(width=120)
    console.print(table)
    for tool in ("pipelinedp", "opendp"):
        if tool in best:
            console.print(f"best error of dpsieve / best of {tool}: {best['dpsieve'] / best[tool]:.2f}")
    alone = rows.drop(["user"]).append_column("user", [np.arange(len(rows))])
    for keys in KEYS:
        dropped = measure(ours(rows, max_keys_per_unit=keys, epsilon=16.0 * keys), true, sizes)[0]
        noisy = measure(ours(alone, max_keys_per_unit=1, epsilon=1 / keys, delta=1e-8 / keys), true, sizes)[0]
        console.print(f"{keys} per user: error {dropped:.4f} of what is left out alone, {noisy:.4f} of noise alone")
    console.print(f"known sizes: error {known_sizes(rows):.4f}")
    for keys in (1, 3, 5, 10):
        counts = [len(ds.release(rows, **BUDGET, max_keys_per_unit=keys)) for _ in range(RUNS)]
        with_mean = [len(means) for means in ours(rows, max_keys_per_unit=keys)]
        share = 1 - float(np.mean(with_mean) / np.mean(counts))
        console.print(f"{keys} per user: {np.mean(counts):.0f} products without a mean, {share:.1%} fewer with one")


if __name__ == "__main__":
    main()
