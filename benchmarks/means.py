"""How fast are private means, sums and quantiles, and how wrong?

    make bench-means        or        .venv/bin/python benchmarks/means.py [part of the rows [rotated]]

Means, rho 1: Gaussian rows of setting C of Lebeda's thesis (10,000 x 2,048, deviations from 1 to 2,048, error in l2),
and sparse binary rows with the size and the skew of Kosarak and POS (error in l1); 'best' and 'thesis' are PLAN. The
thesis has 12 s for PLAN on Kosarak and 9 s on POS, and at least 26 and 9 minutes for its baseline, which is 'rotated'
here; that runs where the second argument asks for it. The floor is what NumPy or SciPy needs for the plain mean.

Columns, epsilon 1: median and mean of a million log-normal numbers, and sums of 10,000 x 2,048. Where `make
bench-peers` has built their environments, OpenDP and diffprivlib do the same jobs. OpenDP's median chooses among 1,001
candidates, ours and diffprivlib's lie anywhere in [0, 10^6]. diffprivlib has one exponential mechanism or one Laplace
draw in floats; its sums are a loop over columns, with noise in proportion to their widths. Errors in
this table are those of one draw.

Each job runs in a process of its own, so that peak memory is its own; it holds the data too ('data MiB' is their size).
The fastest round counts, and compiled code is loaded from its cache before.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from release import JOBS, ROOT, run
from rich.console import Console
from rich.table import Table

MODES = ("best", "thesis", "shifted", "gaussian")
SHAPES = {"dense": 2, "Kosarak": 1, "POS": 1}  # and the norm of the error
ASKED = {"dense": ("2", ""), "Kosarak": ("2", "1,024"), "POS": ("2", "1,024")}
TASKS = {"median of 1M": "0.2", "mean of 1M": "", "sums of 10,000 x 2,048": ""}
PEERS = {"OpenDP": "opendp", "diffprivlib": "diffprivlib"}
MEAN_COLUMNS = "rows|job|seconds|first s|/ plain|error|/ best|data MiB|peak MiB".split("|")
TASK_COLUMNS = "task|job|seconds|/ plain|ours is faster by|error|peak MiB".split("|")

GENERATE = """
import sys
import numpy as np
from scipy.sparse import save_npz
from skewed_data import baskets, gaussian_rows, zipf_spreads
folder, part, rng = sys.argv[1], float(sys.argv[2]), np.random.default_rng()
np.save(f"{folder}/dense.npy", gaussian_rows(rng, int(10_000 * part), zipf_spreads(2048, 2.0), 10.0))
np.save(f"{folder}/column.npy", rng.lognormal(3, 1, int(1_000_000 * part)))
for name in ("Kosarak", "POS"):
    save_npz(f"{folder}/{name}.npz", baskets(rng, name, part), compressed=False)
"""

MEAN = """
import json, sys, time
import numpy as np
from scipy.sparse import load_npz
from measure import fastest, peak
folder, name, mode, p = *sys.argv[1:4], int(sys.argv[4])
x = np.load(f"{folder}/dense.npy") if name == "dense" else load_npz(f"{folder}/{name}.npz")
size = x.nbytes if name == "dense" else x.data.nbytes + x.indices.nbytes + x.indptr.nbytes
true = np.asarray(x.mean(axis=0)).ravel()
if mode == "plain":
    job = lambda: np.asarray(x.mean(axis=0)).ravel()
else:
    import dpsieve as ds
    private_mean = ds.papers.thesis.private_mean
    how = {"kind": "real", "bound": 100.0 * 2048 * 2048} if name == "dense" else {"kind": "binary"}
    job = lambda: private_mean(x, rho=1.0, p=p, mode=mode, fallback=True, **how).value
    few = x[:2000, :16]
    private_mean(few, rho=20.0, p=p, mode=mode, fallback=True, **how)
begin = time.perf_counter()
errors = [np.linalg.norm(job() - true, p)]
first = time.perf_counter() - begin
best = first
if first < 20:
    def again():
        errors.append(np.linalg.norm(job() - true, p))
    best = min(first, fastest(again, 3, 3.0)[0])
print(json.dumps([best, first, float(np.mean(errors)), size / 2**20, peak("self") / 1024]))
"""

OURS = """
import json, sys
import numpy as np
from measure import fastest, peak
import dpsieve as ds
folder, task, who = sys.argv[1:4]
x = np.load(f"{folder}/{'dense' if task.startswith('sums') else 'column'}.npy")
if who == "plain":
    job = {"median": lambda: np.median(x), "mean": lambda: x.mean(), "sums": lambda: x.sum(axis=0)}[task.split()[0]]
elif task.startswith("median"):
    job = lambda: ds.quantile(x, quantile=0.5, bounds=(0.0, 1e6), epsilon=1.0).value
elif task.startswith("mean"):
    job = lambda: ds.mean(x, bounds=(0.0, 1e3), method="box", epsilon=1.0).value
else:
    widths = 20 * 2048 / np.arange(2048, 0, -1) + 20
    bounds = np.column_stack([-widths / 2, widths / 2])
    job = lambda: ds.sum(x, bounds=bounds, p=2, neighbours="replace", epsilon=1.0).value
job()
best, found = fastest(job, 3, 2.0)
if task.startswith("median"):
    error = abs(np.count_nonzero(x < found) - len(x) / 2)
else:
    true = found
    if who == "ours":
        true = np.minimum(x, 1e3).mean() if task.startswith("mean") else np.clip(x, -widths / 2, widths / 2).sum(axis=0)
    error = float(np.abs(found - true).sum())
print(json.dumps([best, error, peak("self") / 1024]))
"""


def means_table(folder: Path, modes: tuple[str, ...]) -> Table:
    """Return times and errors of means."""
    table = _table("Private means at rho 1, beside the plain mean", MEAN_COLUMNS)
    for name, p in SHAPES.items():
        found = {}
        for mode in ("plain", *modes):
            found[mode] = run([sys.executable, "-c", MEAN, str(folder), name, mode, str(p)], folder)
        plain, best = found["plain"], found["best"]
        for mode, result in found.items():
            if result is None or plain is None or best is None:
                table.add_row(name, mode, "failed")
                continue
            seconds, first, error, data, peak = result
            table.add_row(
                name, mode, f"{seconds:.3f}", f"{first:.2f}", f"{seconds / plain[0]:,.0f}", f"{error:.3g}",
                f"{error / best[2]:,.2f}", f"{data:,.0f}", f"{peak:,.0f}",
            )  # fmt: skip
        table.add_row(name, "asked", ASKED[name][0], *[""] * 5, ASKED[name][1], end_section=True)
    return table


def tasks_table(folder: Path) -> Table:
    """Return times and errors of a median, a mean and sums, beside peers."""
    table = _table(
        "One column and many, epsilon 1; errors: rows off the median, of the clipped mean, of all sums together",
        TASK_COLUMNS,
    )
    for task, asked in TASKS.items():
        found = {who: run([sys.executable, "-c", OURS, str(folder), task, who], folder) for who in ("plain", "ours")}
        for who, name in PEERS.items():
            home = ROOT / f".venv-peer-{name}"
            if (home / ".done").exists() and not (task.startswith("sums") and name == "opendp"):
                command = [f"{home}/bin/python", f"{JOBS}/means_{name}_job.py", str(folder), task.split()[0]]
                found[who] = run(command, folder)
        plain, ours = found["plain"], found["ours"]
        for who, result in found.items():
            if result is None or plain is None or ours is None:
                table.add_row(task, who, "failed")
                continue
            seconds, error, peak = result
            ratio = f"{seconds / ours[0]:.2f}" if who in PEERS else ""
            cells = (f"{seconds:.4f}", f"{seconds / plain[0]:,.1f}", ratio, f"{error:.3g}", f"{peak:,.0f}")
            table.add_row(task, who, *cells)
        if asked:
            table.add_row(task, "asked", asked)
        table.add_section()
    return table


def _table(title: str, columns: list[str]) -> Table:
    table = Table(title=title)
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i < 2 else "right", no_wrap=True)
    return table


def main() -> None:
    """Print a table of means, and one of columns."""
    part = sys.argv[1] if len(sys.argv) > 1 else "1"
    modes = (*MODES, "rotated") if "rotated" in sys.argv[2:] else MODES
    console = Console(width=160)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = os.pathsep.join([str(ROOT / "experiments"), str(ROOT / "src")])
        environment = os.environ | {"PYTHONPATH": paths}
        subprocess.run([sys.executable, "-c", GENERATE, name, part], check=True, env=environment)
        console.print(tasks_table(folder))
        console.print(means_table(folder, modes))


if __name__ == "__main__":
    main()
