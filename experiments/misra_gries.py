"""Chapter 3 of the thesis: its statements on private Misra-Gries sketches, computed and measured, with a verdict each.

    DPSIEVE_DATA=folder .venv/bin/python experiments/misra_gries.py

The chapter has no figure and no table, so each statement gets one: numbers and a picture in experiments/results. The
folder holds shakespeare/*.txt; each word of the text is an item, and one item is protected. delta is 1e-8 throughout.
`counts` also reads retail.dat, amazon_Magazine_Subscriptions.csv and gowalla_all.txt.gz.
"""

import csv
import gzip
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import dpsieve as ds
from dpsieve.noise.known_keys import laplace_tail
from dpsieve.papers.thesis import mean_squared_bound, mean_squared_error, merge_releases
from dpsieve.papers.thesis.bounded_merge import BoundedMerge, release_bounded_merge
from dpsieve.sketches import MergedSketch
from dpsieve.sketches.laplace_noise import NoisySketch, find_threshold
from dpsieve.sketches.rounded_noise import RoundedSketch
from dpsieve.sketches.summed_noise import SummedSketch

DELTA, ROUNDS, BETA = 1e-8, 20, 0.05
RESULTS = Path(__file__).parent / "results"
COLOURS = ["#4c78a8", "#e45756", "#54a24b", "#b279a2", "#f58518", "#72b7b2"]
Rows = list[dict[str, Any]]


def words() -> list[str]:
    """Return the words in the order of the text."""
    folder = os.environ.get("DPSIEVE_DATA")
    if not folder or not (Path(folder) / "shakespeare").is_dir():
        sys.exit("Set DPSIEVE_DATA to the folder that holds shakespeare/*.txt.")
    texts = sorted((Path(folder) / "shakespeare").glob("*.txt"))
    return [word for text in texts for word in re.findall(r"[a-z]+(?:'[a-z]+)?", text.read_text().lower())]


def single(stream: list[str]) -> tuple[Rows, str]:
    """Theorem 3.1 and Algorithm 13: threshold, keys, largest error of the counters of one sketch; mean of 20."""
    truth, rows = Counter(stream), []
    for counters in (256, 1024, 4096):
        sketch = _sketch(stream, counters)
        for epsilon in (0.1, 0.3, 1.0, 3.0):
            thesis, made = 1 + 2 * math.log(3 / DELTA) / epsilon, NoisySketch(epsilon, DELTA, counters)
            seen = []
            for _ in range(ROUNDS):
                found = _counts(sketch.release(epsilon, DELTA), "counter")
                high = [count for count in found.values() if count >= thesis]
                error = max(abs(truth[key] - found.get(key, 0)) for key in truth)
                seen.append((len(found), len(high), min(found.values()), min(high), error))
            keys, keys_thesis, least, least_thesis, error = np.mean(seen, axis=0)
            bound = 2 * math.log((counters + 1) / BETA) / epsilon + thesis + len(stream) / (counters + 1)
            rows.append({
                "counters": counters, "epsilon": epsilon, "threshold": made.threshold, "thesis_threshold": thesis,
                "keys": keys, "thesis_keys": keys_thesis, "smallest": least, "thesis_smallest": least_thesis,
                "error": error, "bound": bound,
            })  # fmt: skip
    share = max(row["error"] / row["bound"] for row in rows)
    more = [row["keys"] / row["thesis_keys"] - 1 for row in rows]
    gain = f"{min(more):.0%} to {max(more):.0%} more keys at the exact threshold"
    return rows, f"Theorem 3.1 holds: the largest error is at most {share:.0%} of its bound; {gain}"


def counts(stream: list[str]) -> tuple[Rows, str]:
    """Root mean squared errors of counters and of counts over released keys, epsilon 1, by order; mean of 5."""
    rows: Rows = []
    for name, items in {"words": stream, **other_streams()}.items():
        truth = Counter(items)
        shuffled = np.random.default_rng(1).permutation(np.array(items)).tolist()
        orders = {"natural": items, "shuffled": shuffled, "rare first": sorted(items, key=lambda item: truth[item])}
        for (order, ordered), counters in product(orders.items(), (256, 1024, 4096)):
            sketch, seen = _sketch(ordered, counters), []
            for _ in range(5):
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
            square, square_count, bias, bias_count, missed = np.mean(seen, axis=0)
            rows.append({
                "stream": name, "order": order, "counters": counters, "counter": math.sqrt(square),
                "count": math.sqrt(square_count), "counter_bias": bias, "count_bias": bias_count, "missed": missed,
            })  # fmt: skip
    gains = {order: [r["counter"] / r["count"] for r in rows if r["order"] == order] for order in orders}
    told = ", ".join(f"{order} {min(gain):.2g} to {max(gain):.2g}" for order, gain in gains.items())
    return rows, f"the error of a counter, over that of the count: {told}"


def other_streams() -> dict[str, list[str]]:
    """Return the items of three other streams, in the order of their files."""
    folder = Path(os.environ["DPSIEVE_DATA"])
    baskets = (folder / "retail.dat").read_text().split()
    magazines = [line.split(",")[0] for line in (folder / "amazon_Magazine_Subscriptions.csv").read_text().splitlines()]
    with gzip.open(folder / "gowalla_all.txt.gz", "rt") as lines:
        places = [place for line in lines for place in line.split()]
    return {"retail": baskets, "magazines": magazines, "places": places}


def squared(stream: list[str]) -> tuple[Rows, str]:
    """Theorem 3.1, second part: exact root mean squared error of a key, worst over what was lost, and the bound."""
    counters, rows = 1024, []
    for items in (0, len(stream)):
        for epsilon in (0.1, 0.3, 1.0, 3.0):
            made = NoisySketch(epsilon, DELTA, counters)
            counter = np.arange(made.threshold + int(40 / epsilon))
            lost = items / (counters + 1)
            worst = max(mean_squared_error(made, counter, counter + extra).max() for extra in (0, lost))
            bound = mean_squared_bound(epsilon, DELTA, counters, items)
            rows.append({"items": items, "epsilon": epsilon, "exact": math.sqrt(worst), "bound": math.sqrt(bound)})
    ratios = [row["bound"] / row["exact"] for row in rows]
    return rows, f"the bound holds; its root is {min(ratios):.1f} to {max(ratios):.1f} times the exact worst case"


def thresholds(_: list[str]) -> tuple[Rows, str]:
    """Section 3.6: thresholds of sums of sketches by the number of counters, epsilon 1."""
    rows: Rows = []
    for counters in (2**i for i in range(21)):
        ways = {
            "one sketch": float(NoisySketch(1.0, DELTA, counters).threshold),
            "sum, rounded": RoundedSketch(1.0, DELTA, counters).threshold,
            "sum, rounded, l1 sensitivity alone": _l1_rounded(counters),
            "sum, not rounded": _plain(counters),
            "sum, rounded, thesis": 4 + 2 * math.log(1 / DELTA),
        }
        rows += [{"counters": counters, "way": way, "threshold": threshold} for way, threshold in ways.items()]
    ours = [row["threshold"] for row in rows if row["way"] == "sum, rounded"]
    found = f"{max(ours):.1f} at most, and {ours[-1]:.1f} with 2^20 counters"
    return rows, f"the threshold need not grow with the counters: 40.8 in the thesis, here {found}"


def universes(stream: list[str]) -> tuple[Rows, str]:
    """Section 3.6: largest error of the noise over a universe of d keys, at probability 0.95; sum and bounded merge."""
    rows: Rows = []
    for size in (10**i for i in range(3, 13)):
        for way, mechanism in (("sum", SummedSketch), ("bounded merge", BoundedMerge)):
            made = mechanism(1.0, 0.0, 1024, universe=size)
            error = find_threshold(partial(_any_beyond, made), BETA) / made.parts
            rows.append({"universe": size, "way": way, "error": error, "thesis": 2 * math.log(size / BETA)})
    mine = [row for row in rows if row["way"] == "sum"]
    off = max(row["error"] / row["thesis"] for row in mine)
    more = rows[1]["error"] / rows[0]["error"]
    return (
        rows,
        f"2 ln(d/beta)/epsilon holds, at most {off:.4f} of it; the bounded merge has {more:.0f} times the noise",
    )


def merged(stream: list[str]) -> tuple[Rows, str]:
    """Section 3.7: root mean squared error over the 300 commonest words, by the number of streams; mean of 5."""
    truth, rows = Counter(stream), list[dict[str, Any]]()
    top = [word for word, _ in truth.most_common(300)]
    for counters in (1024, 9999):
        for sources in (1, 4, 16, 64, 256):
            sketches = [_sketch(stream[i::sources], counters) for i in range(sources)]
            whole = MergedSketch.of(*sketches)
            ways: dict[str, Callable[[], ds.Release]] = {
                "sum": partial(whole.release, 1.0, DELTA),
                "bounded merge": partial(release_bounded_merge, *sketches, epsilon=1.0, delta=DELTA),
                "untrusted": partial(_untrusted, sketches),
            }
            for way, release in ways.items():
                squares = []
                for _ in range(5):
                    found = _counts(release())
                    squares += [(found.get(word, 0) - truth[word]) ** 2 for word in top]
                error = math.sqrt(np.mean(squares))
                rows.append({"sources": sources, "way": f"{way}, {counters:,} counters", "error": error})
    by: dict[Any, float] = {(row["way"], row["sources"]): row["error"] for row in rows}
    grown = {way: by[f"{way}, 9,999 counters", 256] / by[f"{way}, 9,999 counters", 1] for way in ways}
    told = ", ".join(f"{way} {ratio:.1f} times" for way, ratio in grown.items())
    return rows, f"from 1 to 256 streams the error grows with their number only if untrusted (9,999 counters: {told})"


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


def _chart(rows: Rows, x: str, y: str, title: str, *, log_y: bool = False) -> alt.Chart:
    """Return lines of y by x on a logarithmic axis, one for each way."""
    names = list(dict.fromkeys(row["way"] for row in rows))
    chart: alt.Chart = (
        alt.Chart(pa.Table.from_pylist(rows), width=420, height=280, title=title)
        .mark_line(point=True)
        .encode(
            alt.X(
                f"{x}:Q",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(format="~g" if x == "epsilon" else "~s", tickCount=6),
            ),
            alt.Y(f"{y}:Q", scale=alt.Scale(type="log") if log_y else alt.Undefined, title=y),
            alt.Color(
                "way:N", sort=names, scale=alt.Scale(range=COLOURS), title=None, legend=alt.Legend(labelLimit=300)
            ),
        )
    )
    return chart


def _lines(rows: Rows, group: str, *columns: str, value: str) -> Rows:
    """Return one row for each column, with the group in its name."""
    named = ((row, column, f"{column}, {row[group]:,} {group}") for row in rows for column in columns)
    return [{"epsilon": row["epsilon"], "way": way, value: row[column]} for row, column, way in named]


def main() -> None:
    """Write numbers and pictures to experiments/results, and print the verdicts."""
    stream, verdicts, console = words(), [], Console(width=150)
    for made in (single, counts, squared, thresholds, universes, merged):
        rows, verdict = made(stream)
        name = f"misra_gries_{made.__name__}"
        verdicts.append({"statement": " ".join((made.__doc__ or "").split()), "verdict": verdict})
        _write(name, rows)
        _pictured(made.__name__, rows).save(RESULTS / f"{name}.svg")
        table = Table(*rows[0], title=verdict)
        for row in rows:
            table.add_row(*(f"{value:,.4g}" if isinstance(value, float) else str(value) for value in row.values()))
        console.print(table)
    _write("misra_gries_verdicts", verdicts)


def _pictured(name: str, rows: Rows) -> alt.Chart:
    if name == "single":
        columns = "error", "bound", "threshold", "thesis_threshold"
        lines = _lines([row for row in rows if row["counters"] == 1024], "counters", *columns, value="count")
        return _chart(lines, "epsilon", "count", "Theorem 3.1 on Shakespeare, 1,024 counters", log_y=True)
    if name == "counts":
        lines = [
            {"counters": row["counters"], "way": f"{column}, {row['order']}", "error": row[column]}
            for row, column in product(rows, ("counter", "count"))
            if row["stream"] == "words"
        ]
        title = "Root mean squared error, words of Shakespeare, epsilon 1"
        return _chart(lines, "counters", "error", title, log_y=True)
    if name == "squared":
        lines = _lines(rows, "items", "exact", "bound", value="error")
        title = "Root mean squared error of a key, at worst, 1,024 counters"
        return _chart(lines, "epsilon", "error", title, log_y=True)
    if name == "thresholds":
        return _chart(rows, "counters", "threshold", "Thresholds at epsilon 1, delta 1e-8")
    if name == "universes":
        title = "Largest noise over a universe, 1,024 counters, epsilon 1"
        return _chart(rows, "universe", "error", title, log_y=True)
    title = "Root mean squared error, 300 commonest words, epsilon 1"
    return _chart(rows, "sources", "error", title, log_y=True)


def _write(name: str, rows: Rows) -> None:
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        out = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        out.writeheader()
        out.writerows({key: f"{v:.6g}" if isinstance(v, float) else v for key, v in row.items()} for row in rows)


if __name__ == "__main__":
    main()
