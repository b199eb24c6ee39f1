"""How often do the 95 % intervals of PLAN hold the mean of the rows?

    PYTHONPATH=src python experiments/mean_coverage.py [runs [rows,... [dimensions,... [rhos,...]]]]

Rows are fresh in each run. 'holds' is the share of coordinates and runs in which the interval holds the mean of the
rows, 'width' the half-width beside that of the noise alone, 'error' the root mean square error beside the standard
deviation of the rows over sqrt(n): below 1 privacy costs less than sampling. 'worst' is the coordinate that is held
least often. 'plain' is how often the noise was that of the whole box: where there are too few rows for PLAN, or where
that is better; 'none' is how often no interval was stated, which does not count as wrong.
"""

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from dpsieve.papers.thesis import private_mean

BOUND = 1000.0
Shape = Callable[[np.random.Generator, tuple[int, int]], Any]


def _zeros(share: float) -> Shape:
    return lambda rng, shape: np.where(rng.random(shape) < share, 0.0, rng.lognormal(0, 1, shape))


def _zero_rows(rng: np.random.Generator, shape: tuple[int, int]) -> Any:
    return np.where(rng.random((shape[0], 1)) < 0.8, 0.0, rng.lognormal(0, 1, shape))


SHAPES: dict[str, Shape] = {
    "zeros 50 %": _zeros(0.5),
    "zeros 80 %": _zeros(0.8),
    "zeros 95 %": _zeros(0.95),
    "whole rows zero 80 %": _zero_rows,
    "ties": lambda rng, shape: rng.choice([0.0, 1.0, 2.0, 10.0], shape, p=[0.4, 0.3, 0.2, 0.1]),
    "Poisson 0.3": lambda rng, shape: rng.poisson(0.3, shape).astype(float),
    "fair +-1": lambda rng, shape: rng.choice([-1.0, 1.0], shape),
    "binary 0.3": lambda rng, shape: (rng.random(shape) < 0.3).astype(float),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
    "lognormal": lambda rng, shape: rng.lognormal(0, 1, shape),
    "normal": lambda rng, shape: rng.normal(size=shape),
    "uniform": lambda rng, shape: rng.random(shape),
    "Student 3": lambda rng, shape: rng.standard_t(3, shape),
}


def measure(name: str, rows: int, size: int, rho: float, runs: int, seed: int = 1) -> tuple[float, ...]:
    """Return coverage, that of the worst coordinate, width and error of one cell, and shares without an interval."""
    rng, held, widths, errors, plain, silent = np.random.default_rng(seed), np.zeros(size), [], [], 0, 0
    kind: dict[str, Any] = {"kind": "binary"} if name == "binary 0.3" else {"kind": "real", "bound": BOUND}
    for _ in range(runs):
        x = np.clip(SHAPES[name](rng, (rows, size)), -BOUND, BOUND)
        truth = x.mean(axis=0)
        mean = private_mean(x, rho=rho, mode="best", fallback=True, **kind)
        low, high, deviation = (mean.table.column(one).to_numpy() for one in ("low", "high", "deviation"))
        held += ~((low > truth) | (truth > high))  # null is not wrong
        silent += not mean.last.stated
        widths.append(np.mean((high - low) / (2 * 1.96 * deviation)) if mean.last.stated else math.nan)
        errors.append(np.mean((mean.value - truth) ** 2) / max(x.var(), 1e-12) * rows)
        plain += mean.last.radius == 0
    width = float(np.nanmedian(widths)) if silent < runs else math.nan
    return held.mean() / runs, held.min() / runs, width, math.sqrt(np.mean(errors)), plain / runs, silent / runs


def main() -> None:
    """Print a table for each number of rows and budget."""
    given = sys.argv[1:] + ["", "", "", ""][len(sys.argv) - 1 :]
    runs = int(given[0] or 200)
    counts = [int(one) for one in (given[1] or "1000,20000").split(",")]
    sizes = [int(one) for one in (given[2] or "1,2,3,8,20,64").split(",")]
    rhos = [float(one) for one in (given[3] or "0.5,0.01,0.0004").split(",")]
    console, lowest = Console(width=150), 1.0
    for rows in counts:
        for rho in rhos:
            table = Table(title=f"{rows:,} rows, rho {rho:g}, {runs} runs: holds (worst) width error plain none")
            for column in ("rows of", *(f"d = {size}" for size in sizes)):
                table.add_column(column)
            for name in SHAPES:
                cells = []
                for size in sizes:
                    found = measure(name, rows, size, rho, runs)
                    lowest = min(lowest, found[0])
                    cells.append(
                        f"{found[0]:.3f} ({found[1]:.2f}) {found[2]:.2f} {found[3]:.2g} {found[4]:.1f} {found[5]:.2f}"
                    )
                table.add_row(name, *cells)
            console.print(table)
    console.print(f"lowest coverage: {lowest:.3f}")


if __name__ == "__main__":
    main()
