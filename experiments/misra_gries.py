"""Chapter 3 of the thesis: its statements on private Misra-Gries sketches, computed and measured.

The chapter has no figure and no table, so each statement gets one. Each word of a text is an item, and one item is
protected. delta is 1e-8 throughout.
"""

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from data_sets import streams, words
from experiment import Experiment, Plot, Row, Verdict, between, column, group, judge_claim, pick

import dpsieve as ds
from dpsieve.noise.known_keys import laplace_tail
from dpsieve.papers.thesis import mean_squared_bound, mean_squared_error, merge_releases
from dpsieve.papers.thesis.bounded_merge import BoundedMerge, release_bounded_merge
from dpsieve.sketches import MergedSketch
from dpsieve.sketches.laplace_noise import NoisySketch, find_threshold
from dpsieve.sketches.summed_noise import RoundedSketch, SummedSketch

DELTA, ROUNDS, BETA = 1e-8, 20, 0.05
COUNTERS, EPSILONS = (256, 1024, 4096), (0.1, 0.3, 1.0, 3.0)


def single(small: bool) -> list[Row]:
    """Measure threshold, keys and the largest error of the counters of one sketch; means of 20 releases."""
    data, stream = words(small)
    truth, rows, rounds = Counter(stream), [], 2 if small else ROUNDS
    for counters in (64,) if small else COUNTERS:
        sketch = _sketch(stream, counters)
        for epsilon in EPSILONS[-2:] if small else EPSILONS:
            thesis, made = 1 + 2 * math.log(3 / DELTA) / epsilon, NoisySketch(epsilon, DELTA, counters)
            seen = []
            for _ in range(rounds):
                found = _counts(sketch.release(epsilon, DELTA), "counter")
                high = sum(count >= thesis for count in found.values())
                seen.append((len(found), high, max(abs(truth[key] - found.get(key, 0)) for key in truth)))
            keys, keys_thesis, error = np.mean(seen, axis=0).tolist()
            bound = 2 * math.log((counters + 1) / BETA) / epsilon + thesis + len(stream) / (counters + 1)
            rows.append({
                "data": data, "counters": counters, "epsilon": epsilon, "threshold": made.threshold,
                "thesis_threshold": thesis, "keys": keys, "thesis_keys": keys_thesis, "error": error, "bound": bound,
            })  # fmt: skip
    return rows


def judge_single(rows: list[Row]) -> list[Verdict]:
    """Judge Theorem 3.1 and the threshold of Algorithm 13."""
    shares = column(rows, "error") / column(rows, "bound")
    lower = column(rows, "threshold") / column(rows, "thesis_threshold")
    more = [row["keys"] / row["thesis_keys"] - 1 for row in rows if row["thesis_keys"]]
    gain = f"; {min(more):.0%} to {max(more):.0%} more keys" if more else ""
    return [
        judge_claim(
            "Theorem 3.1: with probability 1 - beta no count is off by more than the bound",
            f"the largest error is {shares.min():.0%} to {shares.max():.0%} of the bound", shares.max() <= 1,
            "the error is above the bound",
        ),
        judge_claim(
            "Algorithm 13: the threshold 1 + 2 ln(3/delta)/epsilon is private",
            f"the exact threshold is {between(lower)} times that one{gain}", lower.max() <= 1,
            "the exact threshold is higher", better=lower.max() < 1,
        ),
    ]  # fmt: skip


def counts(small: bool) -> list[Row]:
    """Measure root mean squared errors of counters and of counts over released keys, epsilon 1, by order."""
    rows: list[Row] = []
    for data, items in streams(small).items():
        truth = Counter(items)
        shuffled = np.random.default_rng(1).permutation(np.array(items)).tolist()
        orders = {"natural": items, "shuffled": shuffled, "rare first": sorted(items, key=lambda item: truth[item])}
        for (order, ordered), counters in product(orders.items(), (64,) if small else COUNTERS):
            sketch, seen = _sketch(ordered, counters), []
            for _ in range(2 if small else 5):
                release = sketch.release(1.0, DELTA)
                if not len(release):
                    continue
                true = np.array([truth[key] for key in release.table["key"].to_pylist()])
                errors = [release.table[column].to_numpy() - true for column in ("counter", "count")]
                low, high = (release.table[column].to_numpy() for column in ("low", "high"))
                missed = ((true < low) | (true > high)).any()
                seen.append((*(np.mean(error**2) for error in errors), *(np.mean(error) for error in errors), missed))
            if not seen:  # nothing reaches the threshold
                continue
            square, square_count, bias, bias_count, missed = np.mean(seen, axis=0).tolist()
            rows.append({
                "data": data, "order": order, "counters": counters, "counter": math.sqrt(square),
                "count": math.sqrt(square_count), "counter_bias": bias, "count_bias": bias_count, "missed": missed,
            })  # fmt: skip
    return rows


def judge_counts(rows: list[Row]) -> list[Verdict]:
    """Judge Fact 3.1, that counters are too low, and what the corrected count gains."""
    gains = {order: [r["counter"] / r["count"] for r in part] for (order,), part in group(rows, "order")}
    shown = ", ".join(f"{order} {between(gain, '.2g')}" for order, gain in gains.items())
    return [
        judge_claim(
            "Fact 3.1: a counter estimates the count of its key",
            f"error of a counter, over that of the published count, by order of the stream: {shown}; the interval of "
            f"a key misses the truth in {column(rows, 'missed').mean():.1%} of the releases",
            column(rows, "missed").max() < 0.5, "intervals miss the truth",
            better=np.median(gains["natural"]) > 1,
        )
    ]  # fmt: skip


def squared(small: bool) -> list[Row]:
    """Compute the exact root mean squared error of a key, worst over what was lost, and the bound."""
    counters, rows, many = 1024, [], 944_635
    for items in (0, many):
        for epsilon in EPSILONS[-1:] if small else EPSILONS:
            made = NoisySketch(epsilon, DELTA, counters)
            counter = np.arange(made.threshold + int(40 / epsilon))
            lost = items / (counters + 1)
            worst = max(mean_squared_error(made, counter, counter + extra).max() for extra in (0, lost))
            bound = mean_squared_bound(epsilon, DELTA, counters, items)
            rows.append({"items": items, "epsilon": epsilon, "exact": math.sqrt(worst), "bound": math.sqrt(bound)})
    return rows


def judge_squared(rows: list[Row]) -> list[Verdict]:
    """Judge the second part of Theorem 3.1."""
    ratios = column(rows, "bound") / column(rows, "exact")
    return [
        judge_claim(
            "Theorem 3.1: the mean squared error of a key is at most 3 (1 + ...)^2",
            f"the root of the bound is {between(ratios, '.1f')} times the exact worst case", ratios.min() >= 1,
            "the exact error is above the bound", better=ratios.min() > 1,
        )
    ]  # fmt: skip


def thresholds(small: bool) -> list[Row]:
    """Compute thresholds of sums of sketches by the number of counters, epsilon 1."""
    rows: list[Row] = []
    for counters in (2**i for i in ((0, 10) if small else range(21))):
        ways = {
            "one sketch": float(NoisySketch(1.0, DELTA, counters).threshold),
            "sum, rounded": RoundedSketch(1.0, DELTA, counters).threshold,
            "sum, rounded, l1 sensitivity alone": _l1_rounded(counters),
            "sum, not rounded": _plain(counters),
            "sum, rounded, thesis": 4 + 2 * math.log(1 / DELTA),
        }
        rows += [{"counters": counters, "way": way, "threshold": threshold} for way, threshold in ways.items()]
    return rows


def judge_thresholds(rows: list[Row]) -> list[Verdict]:
    """Judge the threshold of rounded sums in Section 3.6."""
    ours, thesis = (column(pick(rows, way=way), "threshold") for way in ("sum, rounded", "sum, rounded, thesis"))
    return [
        judge_claim(
            "Section 3.6: with rounding, the threshold 4 + 2 ln(1/delta)/epsilon does not grow with the counters",
            f"{thesis.max():.1f} in the thesis; {ours.max():.1f} at most here, and {ours[-1]:.1f} with the most "
            "counters", (ours <= thesis).all(), "the exact threshold is higher", better=(ours < thesis).all(),
        )
    ]  # fmt: skip


def universes(small: bool) -> list[Row]:
    """Compute the largest error of the noise over a universe of d keys, at probability 0.95."""
    rows: list[Row] = []
    for size in (10**i for i in ((3, 12) if small else range(3, 13))):
        for way, mechanism in (("sum", SummedSketch), ("bounded merge", BoundedMerge)):
            made = mechanism(1.0, 0.0, 1024, universe=size)
            error = find_threshold(partial(_any_beyond, made), BETA) / made.parts
            rows.append({"universe": size, "way": way, "error": error, "thesis": 2 * math.log(size / BETA)})
    return rows


def judge_universes(rows: list[Row]) -> list[Verdict]:
    """Judge the error over a universe in Section 3.6."""
    mine, merge = pick(rows, way="sum"), pick(rows, way="bounded merge")
    shares = column(mine, "error") / column(mine, "thesis")
    return [
        judge_claim(
            "Section 3.6: over a universe of d keys the noise is at most 2 ln(d/beta)/epsilon",
            f"{between(shares, '.4f')} of it; a bounded merge has "
            f"{(column(merge, 'error') / column(mine, 'error')).max():.0f} times the noise", shares.max() <= 1,
            "the noise is larger", better=shares.max() < 0.99,
        )
    ]  # fmt: skip


def merged(small: bool) -> list[Row]:
    """Measure the root mean squared error over the 300 most frequent words, by the number of streams; means of 5."""
    data, stream = words(small)
    truth, rows = Counter(stream), list[Row]()
    top = [word for word, _ in truth.most_common(30 if small else 300)]
    for counters in (64,) if small else (1024, 9999):
        for sources in (1, 4) if small else (1, 4, 16, 64, 256):
            sketches = [_sketch(stream[i::sources], counters) for i in range(sources)]
            whole = MergedSketch.of(*sketches)
            ways: dict[str, Callable[[], ds.Release]] = {
                "sum": partial(whole.release, 1.0, DELTA),
                "bounded merge": partial(release_bounded_merge, *sketches, epsilon=1.0, delta=DELTA),
                "untrusted": partial(_untrusted, sketches),
            }
            for way, release in ways.items():
                squares = []
                for _ in range(2 if small else 5):
                    found = _counts(release())
                    squares += [((found.get(word) or 0) - truth[word]) ** 2 for word in top]
                error = math.sqrt(np.mean(squares))
                rows.append({"data": data, "counters": counters, "sources": sources, "way": way, "error": error})
    return rows


def judge_merged(rows: list[Row]) -> list[Verdict]:
    """Judge how errors grow with the number of merged streams in Section 3.7."""
    most = max(row["counters"] for row in rows)
    grown = {}
    for (way,), part in group(pick(rows, counters=most), "way"):
        grown[way] = part[-1]["error"] / part[0]["error"]
    shown = ", ".join(f"{way} {ratio:.1f} times" for way, ratio in grown.items())
    return [
        judge_claim(
            "Section 3.7: the noise grows with the number of streams only where the aggregator is not trusted",
            f"error of {rows[-1]['sources']} streams over that of one, {most:,} counters: {shown}",
            max(grown["sum"], grown["bounded merge"]) * 3 < grown["untrusted"],
            "untrusted merges are less than three times as far off",
        )
    ]  # fmt: skip


def _untrusted(sketches: list[ds.MisraGries]) -> ds.Release:
    return merge_releases(*(sketch.release(1.0, DELTA) for sketch in sketches))


def _any_beyond(made: SummedSketch, threshold: int) -> float:
    """Return a bound on the probability that any noise of the universe reaches a threshold, on either side."""
    return 2 * made.noisy_keys * made._tail(threshold)


def _l1_rounded(counters: int) -> float:
    """Return the threshold with rounding and noise for the l1 sensitivity 2k: b = S = 2k."""
    scale = 2 * counters
    chance = counters / scale / (1 + math.exp(-1 / scale)) / DELTA
    return math.ceil(scale * (1 + math.log(chance))) / (counters + 1)


def _plain(counters: int) -> float:
    """Return the threshold of a sum without rounding: k keys of one sum, of values k + 2 and 1, may be odd."""
    scale = 2.0 * counters

    def delta(least: int) -> float:
        one, two, three = laplace_tail(np.array([least - 2 * counters + 1, least - counters, least - 1]), scale)
        return float(max(one, two + (counters - 1) * three))

    return find_threshold(delta, DELTA) / (counters + 1)


def _sketch(stream: list[str], counters: int) -> ds.MisraGries:
    sketch = ds.MisraGries(counters)
    sketch.update(stream)
    return sketch


def _counts(release: ds.Release, column: str = "count") -> dict[str, float]:
    return dict(zip(release.table["key"].to_pylist(), release.table[column].to_pylist(), strict=True))


def _experiment(name: str, figure: str, about: str, seconds: int, run: Any, judge: Any, plot: Plot) -> Experiment:
    return Experiment(f"misra_gries_{name}", "thesis", figure, about, seconds, run, judge, (plot,))


EXPERIMENTS = (
    _experiment(
        "single", "Theorem 3.1, Algorithm 13", "keys and errors of one sketch by epsilon; means of 20 releases", 90,
        single, judge_single,
        Plot("Largest error of a count, and its bound", "epsilon", ("error", "bound", "threshold", "thesis_threshold"),
             panels=("counters",), log="xy"),
    ),
    _experiment(
        "counts", "Fact 3.1", "errors of counters and published counts by order of the stream; means of 5 releases",
        170, counts, judge_counts,
        Plot("Root mean squared error, epsilon 1", "counters", ("counter", "count"), panels=("data", "order"),
             log="xy"),
    ),
    _experiment(
        "squared", "Theorem 3.1, mean squared error", "exact worst case by epsilon, 1,024 counters", 2, squared,
        judge_squared,
        Plot("Root mean squared error of a key, at worst", "epsilon", ("exact", "bound"), panels=("items",), log="xy"),
    ),
    _experiment(
        "thresholds", "Section 3.6, approximate privacy", "thresholds by the number of counters, (1, 1e-8)", 2,
        thresholds, judge_thresholds,
        Plot("Thresholds at epsilon 1, delta 1e-8", "counters", "threshold", ("way",), log="xy"),
    ),
    _experiment(
        "universes", "Section 3.6, pure privacy", "largest noise over a universe, 1,024 counters, epsilon 1", 2,
        universes, judge_universes,
        Plot("Largest noise over a universe", "universe", "error", ("way",), log="xy"),
    ),
    _experiment(
        "merged", "Section 3.7", "errors by the number of merged streams, (1, 1e-8); means of 5 releases", 120, merged,
        judge_merged,
        Plot("Root mean squared error, most frequent words", "sources", "error", ("way",), ("counters",), "xy"),
    ),
)  # fmt: skip
