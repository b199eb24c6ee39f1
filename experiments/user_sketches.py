"""Sketches of users on the baskets of a shop: noise of which all counters share a part, against independent noise.

The thesis leaves open how to release sketches of users with up to m distinct items with an error of about sqrt(m). A
basket is a user, whose whole set is protected. Both noises are put on the same sketch, at (epsilon, 1e-8); the
independent one has its exact calibration for sketch and loss together, k + 1 numbers. Errors are root mean squares.
"""

from collections import Counter
from itertools import product

import numpy as np
from data_sets import baskets
from experiment import Experiment, Plot, Row, Verdict, between, column, group, judge_claim

import dpsieve as ds
from dpsieve.randomness.source import resolve
from dpsieve.sketches.one_sided_noise import OneSidedSketch

ROUNDS, DELTA = 20, 1e-8
COUNTERS = (100, 400, 1600)


def noises(small: bool) -> list[Row]:
    """Return thresholds, keys and errors of both noises, by the size of the sketch and epsilon."""
    data, users = baskets(small)
    source, rows = resolve(None), list[Row]()
    for counters in (20,) if small else COUNTERS:
        sketch = ds.UserMisraGries(counters)
        sketch.update(users)
        _, counts = sketch.keys_and_counts()
        for epsilon in (4.0,) if small else (0.5, 1.0, 2.0):
            independent = ds.channels.gaussian(epsilon, DELTA, counters + 1)
            seen = []
            for _ in range(1 if small else ROUNDS):
                release = sketch.release(epsilon, DELTA)
                true = np.array([sketch.estimate(key) for key in release.table["key"].to_pylist()])
                plain = independent.draw(counts, source=source).tokens
                ours = float(((release.table["counter"].to_numpy() - true) ** 2).sum())
                # A token of s stands for noisy values from T + s - 1 to T + s.
                seen.append((len(release), ours, *reported(plain, independent.threshold - 0.5, counts)))
            keys, square, keys_plain, square_plain = np.mean(seen, axis=0).tolist()
            rows.append({
                "data": data, "counters": counters, "epsilon": epsilon,
                "threshold": OneSidedSketch(epsilon, DELTA, counters).threshold,
                "independent_threshold": independent.threshold, "keys": keys, "independent_keys": keys_plain,
                "error": (square / max(keys, 1)) ** 0.5,
                "independent_error": (square_plain / max(keys_plain, 1)) ** 0.5,
            })  # fmt: skip
    return rows


def reported(tokens: np.ndarray, threshold: float, counts: np.ndarray) -> tuple[int, float]:
    """Return how many counters were reported, and the sum of their squared errors; tokens start at the threshold."""
    shown = tokens > 0
    return int(shown.sum()), float(((tokens[shown] + threshold - counts[shown]) ** 2).sum())


def judge_noises(rows: list[Row]) -> list[Verdict]:
    """Judge the shared noise against the independent one, and how thresholds grow with the counters."""
    lower = column(rows, "threshold") / column(rows, "independent_threshold")
    grown = [part[-1]["threshold"] / part[0]["threshold"] for _, part in group(rows, "epsilon")]
    size = max(row["counters"] for row in rows) / min(row["counters"] for row in rows)
    both = [row for row in rows if row["keys"] and row["independent_keys"]]
    errors = [row["error"] / row["independent_error"] for row in both] or [1.0]
    return [
        judge_claim(
            "Chapter 6: can users with several items be protected with noise that grows with a square root only?",
            f"thresholds grow {between(grown)} times for {size:.0f} times the counters, where a square root is "
            f"{size**0.5:.0f}", max(grown) < 1.3 * size**0.5, "they grow faster", better=size > 1,
        ),
        judge_claim(
            "Noise that all counters share in part beats independent Gaussian noise",
            f"{between(lower)} times the threshold, {between(errors)} times the error", lower.max() < 1,
            "the threshold is higher", better=True,
        ),
    ]  # fmt: skip


def orders(small: bool) -> list[Row]:
    """Return the errors of counters and of counts about the true numbers of baskets, epsilon 1, in two orders."""
    data, users = baskets(small)
    truth = Counter(item for basket in users for item in set(basket))
    shuffled = [users[i] for i in np.random.default_rng(1).permutation(len(users))]
    rows: list[Row] = []
    for (order, ordered), counters in product(
        (("natural", users), ("shuffled", shuffled)), (20,) if small else COUNTERS
    ):
        sketch, seen = ds.UserMisraGries(counters), []
        sketch.update(ordered)
        for _ in range(2 if small else ROUNDS):
            found = sketch.release(40.0 if small else 1.0, DELTA).table
            if not len(found):
                continue  # nothing reaches the threshold
            true = np.array([truth[key] for key in found["key"].to_pylist()])
            squares = [((found[name].to_numpy() - true) ** 2).mean() for name in ("counter", "count")]
            seen.append([*squares, ((true < found["low"].to_numpy()) | (true > found["high"].to_numpy())).mean()])
        if not seen:
            continue
        counter, count, missed = np.mean(seen, axis=0).tolist()
        rows.append({"data": data, "order": order, "counters": counters, "counter": counter**0.5,
                     "count": count**0.5, "missed": missed})  # fmt: skip
    return rows


def judge_orders(rows: list[Row]) -> list[Verdict]:
    """Judge the count beside the counter."""
    gains = {order: column(part, "counter") / column(part, "count") for (order,), part in group(rows, "order")}
    shown = ", ".join(f"{order} {between(gain, '.1f')}" for order, gain in gains.items())
    return [
        judge_claim(
            "Fact 3.1, for users: a counter estimates the count of its key",
            f"error of a counter, over that of the published count: {shown}; intervals miss the truth in "
            f"{column(rows, 'missed').mean():.1%} of the cases", column(rows, "missed").mean() <= 0.06,
            "intervals of level 0.95 miss more often", better=min(gain.min() for gain in gains.values()) > 1,
        )
    ]  # fmt: skip


EXPERIMENTS = (
    Experiment(
        "user_sketches", "thesis", "Chapter 6, open problem", f"two noises on sketches of baskets, {ROUNDS} releases",
        40, noises, judge_noises,
        (Plot("Error of a counter of users", "epsilon", ("error", "independent_error"), panels=("counters",),
              log="xy"),),
    ),
    Experiment(
        "user_sketches_orders", "thesis", "Fact 3.1, for users", f"errors by order, epsilon 1, {ROUNDS} releases", 40,
        orders, judge_orders,
        (Plot("Errors about the true counts, epsilon 1", "counters", ("counter", "count"), panels=("order",),
              log="xy"),),
    ),
)  # fmt: skip
