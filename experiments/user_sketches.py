"""Sketches of users on the baskets of a shop: noise of which all counters share a part, against independent noise.

    DPSIEVE_DATA=folder .venv/bin/python experiments/user_sketches.py

The folder holds retail.dat, one basket a line. A basket is a user, whose whole set is protected. Both noises are put on
the same sketch, at (epsilon, 1e-8); the independent one has its exact calibration for sketch and loss together, k + 1
numbers. Each line is the mean of 20 releases; the error is that of the counters reported, root mean square.
"""

import os
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import dpsieve as ds
from dpsieve.sketches.one_sided_noise import OneSidedSketch

ROUNDS, DELTA = 20, 1e-8


def baskets() -> list[list[int]]:
    """Return the items of each basket."""
    file = Path(os.environ.get("DPSIEVE_DATA", "")) / "retail.dat"
    if not file.is_file():
        sys.exit("Set DPSIEVE_DATA to the folder that holds retail.dat.")
    return [[int(item) for item in line.split()] for line in file.read_text().splitlines()]


def reported(tokens: np.ndarray, threshold: float, counts: np.ndarray) -> tuple[int, float]:
    """Return how many counters were reported, and their error; tokens of a channel start at its threshold."""
    shown = tokens > 0
    return int(shown.sum()), float(((tokens[shown] + threshold - counts[shown]) ** 2).mean())


def show_counts(users: list[list[int]]) -> None:
    """Print the errors of counters and of counts about the true numbers of baskets, epsilon 1, in two orders."""
    truth = Counter(item for basket in users for item in set(basket))
    shuffled = [users[i] for i in np.random.default_rng(1).permutation(len(users))]
    table = Table("order", "counters", "counter", "count", "missed", title="errors about the truth, epsilon 1")
    for (order, ordered), counters in product((("natural", users), ("shuffled", shuffled)), (100, 400, 1600)):
        sketch, seen = ds.UserMisraGries(counters), []
        sketch.update(ordered)
        for _ in range(ROUNDS):
            found = sketch.release(1.0, DELTA).table
            true = np.array([truth[key] for key in found["key"].to_pylist()])
            squares = [((found[name].to_numpy() - true) ** 2).mean() for name in ("counter", "count")]
            seen.append([*squares, ((true < found["low"].to_numpy()) | (true > found["high"].to_numpy())).mean()])
        counter, count, missed = np.mean(seen, axis=0)
        table.add_row(order, f"{counters:,}", f"{counter**0.5:,.0f}", f"{count**0.5:,.0f}", f"{missed:.1%}")
    Console(width=120).print(table)


def main() -> None:
    """Print one line for each size of sketch and epsilon."""
    users = baskets()
    show_counts(users)
    table = Table(title=f"{len(users):,} baskets of {sum(map(len, users)):,} items; delta = {DELTA:g}")
    for name in ("counters", "epsilon", "threshold", "independent", "keys", "independent", "error", "independent"):
        table.add_column(name, justify="right")
    source = ds.randomness.SystemSource()
    for counters in (100, 400, 1600):
        sketch = ds.UserMisraGries(counters)
        sketch.update(users)
        _, counts = sketch.keys_and_counts()
        for epsilon in (0.5, 1.0, 2.0):
            independent = ds.channels.gaussian(epsilon, DELTA, counters + 1)
            rows = []
            for _ in range(ROUNDS):
                release = sketch.release(epsilon, DELTA)
                true = np.array([sketch.estimate(key) for key in release.table["key"].to_pylist()])
                plain = independent.draw(counts, source=source).tokens
                # A token of s stands for noisy values from T + s - 1 to T + s.
                many, square = reported(plain, independent.threshold - 0.5, counts)
                ours = float(((release.table["counter"].to_numpy() - true) ** 2).mean())
                rows.append((len(release), many, ours, square))
            keys, keys_plain, square, square_plain = np.mean(rows, axis=0)
            numbers = (
                OneSidedSketch(epsilon, DELTA, counters).threshold,
                independent.threshold,
                keys,
                keys_plain,
                square**0.5,
                square_plain**0.5,
            )
            table.add_row(f"{counters:,}", f"{epsilon:g}", *(f"{number:,.0f}" for number in numbers))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
