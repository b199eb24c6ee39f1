"""Table 5.1 of the thesis: private estimates of a variance, from 4,000 draws of N(10, sigma^2).

'direct' takes a quantile of the draws minus their true mean as sigma; the thesis leaves open how it estimates the mean,
and with which budget. 'general' is Algorithm 18: the median over groups of k pairs, turned into a mean. Two private
quantiles are tried, each with all of rho, for one replaced row and bounds of +-100:
- 'gaps': the exponential mechanism, as in the thesis (`ds.quantile`, method 'gaps');
- 'search': noisy binary search on a log scale for differences, as this library's PLAN has it (`pair_deviations`).

Errors are means over runs of |estimate - truth| / truth, of sigma and of sigma^2. 'not private' is the error of sigma
by the same estimator without privacy, on the same draws: only the quantile 0.841 is at one sigma, so the other direct
ones stay far off. A claim is met where the thesis's number is within four standard errors of 'gaps', or a tenth, and
not below half of it. No estimator from 4,000 fresh draws can have an error of sigma below 1 / sqrt(pi n) = 0.0089.
"""

import math
from typing import Any

import numpy as np
from experiment import Experiment, Plot, Row, Verdict, judge_claim

import dpsieve as ds
from dpsieve.numbers.grid_quantiles import DyadicGrid
from dpsieve.numbers.rows import BoundedRows
from dpsieve.numbers.search import log_grid
from dpsieve.papers.thesis.mean_steps import pair_deviations
from dpsieve.randomness.source import resolve
from dpsieve.types import Floats

ROWS, MIDDLE, BOUND, RUNS = 4_000, 10.0, 100.0, 60
RNG = np.random.default_rng()
CLAIMS = {  # by rho and sigma^2, in the order of METHODS
    (0.001, 0.001): (0.350444, 0.038144, 0.240120, 0.035163, 0.019068),
    (0.001, 1.0): (0.330807, 0.031329, 0.296298, 0.022601, 0.010411),
    (0.01, 0.001): (0.319298, 0.007646, 0.276414, 0.023152, 0.008120),
    (0.01, 1.0): (0.319716, 0.010308, 0.284934, 0.019798, 0.006361),
}
METHODS = {"direct 0.75": 0.75, "direct 0.841": 0.841, "direct 0.9": 0.9, "general, k=1": 1, "general, k=4": 4}


def group_means(x: Floats, pairs: int) -> Floats:
    """Return the mean of (x - y)^2 / 2 over each group of pairs of draws that follow each other."""
    groups = len(x) // (2 * pairs)
    halves = ((x[0::2] - x[1::2]) ** 2 / 2)[: groups * pairs]
    return np.asarray(halves.reshape(groups, pairs, *x.shape[1:]).mean(axis=1))


def not_private(x: Floats, method: float) -> Floats:
    """Return sigma for each column without privacy."""
    if method < 1:
        return np.asarray(np.quantile(x, method, axis=0) - MIDDLE)
    pairs = int(method)
    return np.asarray(np.sqrt(np.median(group_means(x, pairs), axis=0) / (1 - 2 / (9 * pairs)) ** 3))


def by_gaps(x: Floats, method: float, rho: float) -> float:
    """Return sigma for one column by the exponential mechanism."""
    options: Any = {"neighbours": "replace", "rho": rho, "method": "gaps"}
    if method < 1:
        found = ds.quantile(x, quantile=method, bounds=(-BOUND, BOUND), **options).value
        return abs(float(found) - MIDDLE)
    pairs = int(method)
    halves = group_means(x, pairs)
    bounds = (0.0, 2 * BOUND**2)
    median = ds.quantile(halves, quantile=0.5, bounds=bounds, **options).value
    return math.sqrt(float(median) / (1 - 2 / (9 * pairs)) ** 3)


def by_search(x: Floats, method: float, rho: float) -> Floats:
    """Return sigma for each column by noisy binary search."""
    rows, source = BoundedRows(x, -BOUND, BOUND), resolve(None)
    if method < 1:
        grid = DyadicGrid(-BOUND, BOUND, 20)
        return np.abs(rows.quantiles(method, grid, math.sqrt(grid.depth / (2 * rho)), source) - MIDDLE)
    grid = log_grid(2.0**-10, 2 * BOUND, 64)
    return pair_deviations(rows, int(method), grid, math.sqrt(grid.depth / (2 * rho)), source)


def spreads(small: bool) -> list[Row]:
    """Return the relative errors of each estimator, beside the thesis's."""
    runs, rows = 2 if small else RUNS, list[Row]()
    for (rho, variance), claims in CLAIMS.items():
        sigma = math.sqrt(variance)
        x = RNG.normal(MIDDLE, sigma, (ROWS, runs))
        for (name, method), claim in zip(METHODS.items(), claims, strict=True):
            gaps = np.array([by_gaps(column, method, rho) for column in x.T]) / sigma
            search = by_search(x, method, rho) / sigma
            row: Row = {
                "rho": rho,
                "variance": variance,
                "method": name,
                "method_number": list(METHODS).index(name) + 1,
                "runs": runs,
                "thesis": claim,
            }
            row["not_private"] = float(np.abs(not_private(x, method) / sigma - 1).mean())
            for how, one in (("gaps", gaps), ("search", search)):
                for what, power in (("sigma", 1), ("variance", 2)):
                    each = np.abs(one**power - 1)
                    row[f"{how}_{what}"] = float(each.mean())
                    row[f"{how}_{what}_error"] = float(each.std() / math.sqrt(runs))
            rows.append(row)
    return rows


def judge_spreads(rows: list[Row]) -> list[Verdict]:
    """Judge each estimator by its four numbers."""
    verdicts = []
    for name in METHODS:
        part = [row for row in rows if row["method"] == name]
        met = [row for row in part if _met(row)]
        low = sum(row["thesis"] < row["not_private"] for row in part)
        far = sum(row["gaps_sigma"] > 1 for row in part)
        why = [f"{low} of its numbers are below the error that the same estimator has without privacy"] if low else []
        why += [f"{far} settings have too few groups for bounds of +-100"] if far else []
        shown = "; ".join(f"{row['thesis']:.3f} against {row['gaps_sigma']:.3f}" for row in part)
        verdicts.append(
            judge_claim(
                f"{name}: the relative errors of the table",
                f"met in {len(met)} of {len(part)} settings (thesis against sigma by gaps: {shown}); noisy binary "
                f"search has {min(row['search_sigma'] for row in part):.3f} to "
                f"{max(row['search_sigma'] for row in part):.3f}",
                len(met) == len(part),
                "; ".join(why) or "the thesis leaves open the mean, the bounds and the budget of the direct estimates",
            )
        )
    return verdicts


def _met(row: Row) -> bool:
    """Return whether the thesis's number is the error of sigma or of the variance."""
    pairs = ((row[f"gaps_{what}"], row[f"gaps_{what}_error"]) for what in ("sigma", "variance"))
    claim = row["thesis"]
    return any(abs(mean - claim) <= max(4 * error, 0.1 * claim) and mean < 2 * claim for mean, error in pairs)


EXPERIMENTS = (
    Experiment(
        "skewed_spreads", "thesis", "Table 5.1",
        f"relative errors of private variances, {RUNS} runs of 4,000 draws of N(10, sigma^2)", 60, spreads,
        judge_spreads,
        (
            Plot("Table 5.1: relative error of sigma, by the method in order", "method_number",
                 ("thesis", "not_private", "gaps_sigma", "search_sigma"), panels=("rho", "variance"), log="y"),
        ),
    ),
)  # fmt: skip
