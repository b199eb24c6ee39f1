"""What does collection from clients cost? Coins, counting, threshold and intervals, beside a plain count.

    make bench-federated        or        .venv/bin/python benchmarks/federated.py

Ten million clients are simulated in one process: each tosses its own exact coin, and the aggregator counts what was
sent and releases it. The plain count is numpy's `bincount` of all values, without privacy. Then plans over a grid of
budgets, and the mean error of sample-and-threshold beside the baselines of the paper, all at the same rate. Estimates
below zero count as zero: everyone may do that to a private number, and nobody counts fewer clients than none.
"""

import itertools
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from dpsieve import collect_histogram
from dpsieve.channels import frequency_at
from dpsieve.federated import Histogram, TrieHeavyHitters, level_plan, plan
from dpsieve.federated.client.questions import PROTOCOLS
from dpsieve.noise.sample_threshold import SampleThreshold
from dpsieve.papers.sample_threshold import BernoulliNoise, HadamardResponse, SampledLaplace
from dpsieve.validate import NEIGHBOURS

CLIENTS, BUCKETS, ROUNDS, RUNS = 10_000_000, 16_384, 5, 20
BY_ROW: dict[str, Any] = {"privacy_unit": "row", "epsilon": 1.0, "delta": 1e-8}
EPSILONS, DELTAS, MOST = (0.05, 1.0, 5.0), (1e-4, 1e-8, 1e-12), 10**7

Ints = NDArray[np.int64]


def timed(job: Callable[[], Any], rounds: int = ROUNDS) -> tuple[float, Any]:
    """Return the fastest of several runs, and the last result."""
    best, result = math.inf, None
    for _ in range(rounds):
        start = time.perf_counter()
        result = job()
        best = min(best, time.perf_counter() - start)
    return best, result


def columns(title: str, *names: str) -> Table:
    table = Table(title=title)
    for name in names:
        table.add_column(name, justify="left" if name == names[0] else "right")
    return table


def zipf(clients: int, buckets: int, exponent: float = 1.0) -> Ints:
    weights = np.cumsum(np.arange(1, buckets + 1) ** -exponent)
    found = np.searchsorted(weights, np.random.default_rng(1).random(clients) * weights[-1])
    return np.asarray(found, dtype=np.int64)


def histograms() -> Table:
    """Time a histogram release from raw values, by clients' coins and from a table."""
    table = columns(f"{CLIENTS:,} clients, {BUCKETS:,} buckets", "job", "seconds", "time / plain", "buckets released")
    chosen = plan(1.0, 1e-8)
    made = Histogram(chosen, np.arange(BUCKETS))
    for law, values in (
        ("Zipf", zipf(CLIENTS, BUCKETS)),
        ("uniform", np.random.default_rng(1).integers(0, BUCKETS, CLIENTS)),
    ):
        column, rows = pa.array(values), pa.table({"value": values})
        plain, _ = timed(lambda: np.bincount(values, minlength=BUCKETS))  # noqa: B023
        table.add_row(f"numpy count, {law}", f"{plain:.3f}", "1.0", "")
        for name, job in (
            ("coins, counts, threshold, intervals", lambda: made.aggregate(made.client_reports(column))),  # noqa: B023
            ("from a table, with DuckDB", lambda: collect_histogram(rows, column="value", **BY_ROW)),  # noqa: B023
        ):
            seconds, release = timed(job)
            table.add_row(f"{name}, {law}", f"{seconds:.3f}", f"{seconds / plain:.1f}", f"{len(release):,}")
    tokens = np.arange(chosen.threshold, chosen.threshold + BUCKETS)
    seconds, _ = timed(lambda: chosen.read(tokens))
    table.add_row(f"counts and intervals of {BUCKETS:,} different tokens alone", f"{seconds:.3f}", "", "")
    return table


def heavy_hitters() -> Table:
    """Time the trie."""
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    rng = np.random.default_rng(1)
    words = ["".join(rng.choice(letters, rng.integers(3, 21))) for _ in range(100_000)]
    strings = pa.array(words).take(pa.array(zipf(1_000_000, len(words), 1.1)))
    table = columns("TrieHH++ on 1M strings of up to 20 characters", "protocol", "seconds", "strings found")
    for protocol in PROTOCOLS:
        server = partial(TrieHeavyHitters, 1.0, 1e-8, max_length=20, protocol=protocol)
        seconds, release = timed(lambda: server().run(strings), 3)  # noqa: B023
        table.add_row(protocol, f"{seconds:.3f}", f"{len(release):,}")
    return table


def plans() -> Table:
    """Time plans for a grid of budgets, each once and none of them made before; the slowest of each kind."""
    plan(2.0, 1e-3)  # loads what is needed
    deltas = [f"delta {delta:g}" for delta in DELTAS]
    title = f"Plans: clients that a value needs to be released half of the time; 'error' is for up to {MOST:,} clients"
    table = columns(title, "goal, epsilon", *deltas, "seconds", "slowest of its kind")
    for goal, neighbours in itertools.product(("reach", "error"), NEIGHBOURS):
        goals: dict[str, Any] = {"goal": goal, "frequency": MOST if goal == "error" else None, "neighbours": neighbours}
        slowest = 0.0
        for epsilon in EPSILONS:
            found: list[tuple[float, SampleThreshold]] = [
                timed(lambda: plan(epsilon, delta, **goals), 1)  # noqa: B023
                for delta in DELTAS
            ]
            slowest, halves = (
                max(slowest, *(seconds for seconds, _ in found)),
                [f"{frequency_at(made, 0.5):,}" for _, made in found],
            )
            took = " ".join(f"{seconds:.2f}" for seconds, _ in found)
            last = f"{slowest:.2f} s" if epsilon == EPSILONS[-1] else ""
            table.add_row(f"{goal}, {neighbours}, {epsilon:g}", *halves, took, last)
    return table


def level_plans() -> Table:
    """Time plans for several rounds, none of them made before."""
    names = [f"{neighbours}, {what}" for neighbours in NEIGHBOURS for what in ("clients", "seconds")]
    table = columns("Plans for 'rounds', delta 1e-8", "epsilon, levels", *names)
    for epsilon, levels in itertools.product((0.1, 1.0, 4.0), (5, 20, 100)):
        cells = []
        for neighbours in NEIGHBOURS:
            seconds, made = timed(lambda: level_plan(epsilon, 1e-8, levels, neighbours=neighbours), 1)  # noqa: B023
            cells += [f"{made.half:,}", f"{seconds:.2f}"]
        table.add_row(f"{epsilon:g}, {levels}", *cells)
    return table


def errors(clients: int = 1_000_000, delta: float = 1e-8) -> Table:
    """Compare mean absolute errors of frequencies, in clients, at the rate (1 - e^-epsilon) / 6 of the paper."""
    names = ("sample and threshold", "Laplace on the sample", "Bernoulli, shuffled", "Hadamard, local")
    table = columns(
        f"Mean error per bucket, {clients:,} clients, delta {delta:g}, {RUNS} runs",
        "data, epsilon",
        *names,
        "all zeros",
    )
    rng = np.random.default_rng(1)
    data = {
        f"{law}, {buckets:,} buckets": values
        for buckets in (256, BUCKETS)
        for law, values in (
            ("binomial", rng.binomial(buckets - 1, 0.5, clients)),
            ("geometric", np.minimum(rng.geometric(buckets**-0.5, clients) - 1, buckets - 1)),
            ("Zipf", zipf(clients, buckets)),
        )
    }
    for (name, values), epsilon in itertools.product(data.items(), (0.1, 0.3, 1.0)):
        buckets = BUCKETS if f"{BUCKETS:,}" in name else 256
        true = np.bincount(values, minlength=buckets)
        runs = [estimates(values, true, epsilon, delta) for _ in range(RUNS)]
        found = np.abs(np.maximum(runs, 0.0) - true).mean(axis=(0, 2))
        table.add_row(f"{name}, {epsilon:g}", *(f"{error:,.1f}" for error in [*found, true.mean()]))
    return table


def estimates(values: Ints, true: Ints, epsilon: float, delta: float) -> list[NDArray[np.float64]]:
    """Return the estimates of all mechanisms from one run of each."""
    buckets, rate = len(true), -math.expm1(-epsilon) / 6
    made = Histogram(plan(epsilon, delta, rate=rate), np.arange(buckets))
    release = made.aggregate(made.client_reports(values))
    ours = np.zeros(buckets)
    ours[release.table["key"].to_numpy()] = release.table["count"].to_numpy()
    laplace, hadamard = SampledLaplace(epsilon, rate), HadamardResponse(epsilon, buckets, rate=rate)
    cohort = np.random.default_rng(2).permutation(values)[: int(rate * len(values))]
    shuffled = BernoulliNoise(len(cohort), epsilon, delta, rate=rate)
    return [
        ours,
        laplace.estimate(laplace.draw(true)),
        shuffled.estimate(shuffled.draw(np.bincount(cohort, minlength=buckets))),
        hadamard.estimate(hadamard.respond(values)),
    ]


def main() -> None:
    """Print the tables."""
    console = Console(width=160)
    for make in (histograms, plans, level_plans, heavy_hitters, errors):
        console.print(make())


if __name__ == "__main__":
    main()
