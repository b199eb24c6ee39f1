"""Figures 1 and 2 of the paper on sample-and-threshold: errors of histograms, and recall of their largest buckets.

    DPSIEVE_DATA=folder .venv/bin/python experiments/sampled_histograms.py [binomial | geometric | Shakespeare ...]

Some minutes for each data; numbers of data that are not named are kept from the run before. The folder holds
shakespeare/*.txt; each of its words is a client, and a hash puts it into one of B buckets. The
binomial and geometric values of 1,000,000 clients are those of Section 5. Delta is 1e-8, each point is the mean of 10
runs with its standard error. The error is the mean over buckets of |estimate - true count|, as a share of all clients;
estimates below zero count as zero. Recall is the part of the largest tenth of all buckets, empty ones aside, that is
among the largest tenth of the estimates; what is not reported is not found. The picture of errors leaves out Hadamard
response, which is 35 to 12,000 times above the plan of this library.

Sample-and-threshold runs with the paper's rate (1 - e^-epsilon) / 6 and threshold 20; with that rate and the least
threshold that keeps the promise; and with the plan of this library. The other mechanisms have the noise that they need
and no more. They run with the paper's rate, as in the paper, with the rate of the plan, and with all clients.
"""

import hashlib
import itertools
import math
import os
import re
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import altair as alt
import numpy as np
import pyarrow as pa
import pyarrow.csv
from rich.console import Console
from rich.table import Table

from dpsieve.errors import InvalidValue
from dpsieve.federated import plan
from dpsieve.noise.sample_threshold import SampleThreshold
from dpsieve.papers.sample_threshold import BernoulliNoise, HadamardResponse, SampledLaplace
from dpsieve.types import Floats, Ints

CLIENTS, DELTA, RUNS = 1_000_000, 1e-8, 10
BUCKETS, EPSILONS = (2**6, 2**8, 2**10, 2**12, 2**14), (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
DATA = ("binomial", "geometric", "Shakespeare")
RESULTS = Path(__file__).parent / "results"
RNG = np.random.default_rng()
PAPER, SAME, OURS = "threshold 20, the paper's", "exact threshold, the paper's rate", "exact plan"
SHOWN = {  # what the pictures show, and its colour
    PAPER: "#d1495b",
    SAME: "#edae49",
    OURS: "#1b6ca8",
    "Laplace, the paper's rate": "#2e4057",
    "Laplace, the plan's rate": "#8d99ae",
    "Bernoulli, the paper's rate": "#66a182",
    "Hadamard, the paper's rate": "#8d6a9f",
}
Row = dict[str, str | float]
Estimator = Callable[[], Floats]


def words() -> list[str]:
    """Return all words of the text."""
    folder = os.environ.get("DPSIEVE_DATA")
    if not folder or not (Path(folder) / "shakespeare").is_dir():
        sys.exit("Set DPSIEVE_DATA to the folder that holds shakespeare/*.txt.")
    texts = sorted((Path(folder) / "shakespeare").glob("*.txt"))
    return [word for text in texts for word in re.findall(r"[a-z]+(?:'[a-z]+)?", text.read_text().lower())]


def drawn_values(name: str, buckets: int, text: list[str]) -> Ints:
    """Return the bucket of each client."""
    if name == "binomial":
        return np.minimum(RNG.binomial(buckets, 0.5, CLIENTS), buckets - 1)
    if name == "geometric":
        return np.minimum(RNG.geometric(buckets**-0.5, CLIENTS) - 1, buckets - 1)
    place = {word: int.from_bytes(hashlib.sha256(word.encode()).digest()[:8]) % buckets for word in set(text)}
    return np.array([place[word] for word in text])


@lru_cache(maxsize=64)
def plans(epsilon: float) -> dict[str, SampleThreshold]:
    """Return the three plans of sample-and-threshold."""
    rate = -math.expm1(-epsilon) / 6
    return {
        PAPER: plan(epsilon, DELTA, rate=rate, threshold=20),
        SAME: plan(epsilon, DELTA, rate=rate),
        OURS: plan(epsilon, DELTA),
    }


def sampled(chosen: SampleThreshold, true: Ints) -> Floats:
    """Return the estimates of sample-and-threshold, 0 for what is not reported."""
    found, some = np.zeros(len(true)), np.flatnonzero(true)
    found[some] = chosen.draw(true[some]).tokens / chosen.rate
    return found


def mechanisms(values: Ints, true: Ints, epsilon: float) -> dict[str, Estimator]:
    """Return what each mechanism estimates, in a fresh run at each call."""
    made: dict[str, Estimator] = {}
    for name, chosen in plans(epsilon).items():
        made[name] = lambda chosen=chosen: sampled(chosen, true)  # type: ignore[misc]
    rates = {"the paper's rate": plans(epsilon)[PAPER].rate, "the plan's rate": plans(epsilon)[OURS].rate}
    for name, rate in {**rates, "all clients": 1 - 1e-9}.items():
        laplace = SampledLaplace(epsilon, rate)
        made[f"Laplace, {name}"] = lambda m=laplace: m.estimate(m.draw(true))  # type: ignore[misc]
        hadamard = HadamardResponse(epsilon, len(true), rate=min(rate * (1 + 2e-9), 1.0))
        made[f"Hadamard, {name}"] = lambda m=hadamard: m.estimate(m.respond(values))  # type: ignore[misc]
        size = round(rate * len(values))
        try:
            shuffled = BernoulliNoise(size, epsilon, DELTA, rate=min(size / len(values), 1.0))
        except InvalidValue:  # too few clients for so small a budget
            continue
        made[f"Bernoulli, {name}"] = lambda m=shuffled: m.estimate(  # type: ignore[misc]
            m.draw(RNG.multivariate_hypergeometric(true, m.clients, method="marginals"))
        )
    made["all zeros"] = lambda: np.zeros(len(true))
    return made


def measured(true: Ints, estimate: Floats) -> tuple[float, float]:
    """Return the mean error as a share of all clients, and the recall of the largest tenth."""
    error = np.abs(np.maximum(estimate, 0.0) - true).mean() / true.sum()
    k = len(true) // 10
    picked = np.argpartition(-(estimate + 1e-9 * RNG.random(len(true))), k)[:k]  # equal ones in any order
    wanted = true >= max(np.sort(true)[-k], 1)
    found = (estimate[picked] > 0) & wanted[picked]
    return float(error), min(1.0, float(found.sum() / min(k, wanted.sum())))


def results(names: list[str]) -> list[Row]:
    """Return a row for each data, number of buckets, epsilon, mechanism and measure."""
    text: list[str] = words()
    rows: list[Row] = []
    for name, buckets in itertools.product(names, BUCKETS):
        values = drawn_values(name, buckets, text)
        true = np.bincount(values, minlength=buckets)
        for epsilon in EPSILONS:
            for mechanism, estimate in mechanisms(values, true, epsilon).items():
                runs = np.array([measured(true, estimate()) for _ in range(RUNS)])
                means, errors = runs.mean(axis=0), runs.std(axis=0, ddof=1) / math.sqrt(RUNS)
                for measure, mean, error in zip(("error", "recall"), means, errors, strict=True):
                    at: Row = {"data": name, "buckets": buckets, "epsilon": epsilon, "mechanism": mechanism}
                    rows.append(at | {"measure": measure, "mean": float(mean), "standard_error": float(error)})
        print(f"{name}, {buckets:,} buckets: done", flush=True)
    return rows


def plot(rows: list[Row], measure: str, title: str) -> None:
    """Save a picture: a column for each data, a row for every second number of buckets, a line for each mechanism."""
    lines_of = {name: c for name, c in SHOWN.items() if measure == "recall" or not name.startswith("Hadamard")}
    pictured = [row for row in rows if row["measure"] == measure and row["buckets"] in BUCKETS[::2]]
    shown = [row for row in pictured if row["mechanism"] in lines_of]
    ends: list[Row] = [
        {"low": float(r["mean"]) - float(r["standard_error"]), "high": float(r["mean"]) + float(r["standard_error"])}
        for r in shown
    ]
    data = pa.Table.from_pylist([row | end for row, end in zip(shown, ends, strict=True)])
    scale = alt.Scale(type="log") if measure == "error" else alt.Scale(domain=[0, 1])
    colours = alt.Scale(domain=list(lines_of), range=list(lines_of.values()))
    base = alt.Chart(data, width=230, height=150).encode(
        alt.X("epsilon:Q"), alt.Color("mechanism:N", scale=colours, title=None, legend=alt.Legend(labelLimit=260))
    )
    lines = base.mark_line(point=True).encode(alt.Y("mean:Q", scale=scale, title=measure, axis=alt.Axis(format="~g")))
    bars = base.mark_rule().encode(alt.Y("low:Q"), alt.Y2("high:Q"))
    panels = alt.layer(lines, bars).facet(
        row=alt.Row("buckets:O", title="buckets"), column=alt.Column("data:N", title=None), title=title
    )
    name = f"sampled_histograms_{measure}"
    panels.resolve_scale(y="independent").save(RESULTS / f"{name}.png", scale_factor=1.0)
    print(RESULTS / f"{name}.png")


def verdicts(rows: list[Row]) -> None:
    """Print both measures at the largest histogram, and how often each mechanism has the least error."""
    console = Console(width=150)
    for name in DATA:
        table = Table(title=f"{name}, {BUCKETS[-1]:,} buckets: mean error, recall")
        table.add_column("mechanism")
        for epsilon in EPSILONS:
            table.add_column(f"{epsilon:g}", justify="right")
        here = {
            (row["mechanism"], row["epsilon"], row["measure"]): float(row["mean"])
            for row in rows
            if row["data"] == name and row["buckets"] == BUCKETS[-1]
        }
        for mechanism in dict.fromkeys(key[0] for key in here):
            cells = [
                f"{here[mechanism, e, 'error']:.2e} {here[mechanism, e, 'recall']:.3f}"
                if (mechanism, e, "error") in here
                else ""
                for e in EPSILONS
            ]
            table.add_row(str(mechanism), *cells)
        console.print(table)
    errors = {
        (r["data"], r["buckets"], r["epsilon"], r["mechanism"]): float(r["mean"])
        for r in rows
        if r["measure"] == "error"
    }
    settings = sorted({key[:3] for key in errors}, key=str)
    for one, other in (
        (PAPER, "Laplace, the paper's rate"),
        (SAME, "Laplace, the paper's rate"),
        (OURS, "Laplace, the plan's rate"),
        (OURS, PAPER),
    ):
        ratios = np.array([errors[*at, one] / errors[*at, other] for at in settings])
        best = f"less error in {int((ratios < 1).sum())} of {len(ratios)} settings"
        ends = f"{ratios.min():.2f} to {ratios.max():.2f}, median {np.median(ratios):.2f}"
        console.print(f"{one} against {other}: {best}; ratio {ends}")


def main() -> None:
    """Run, save the numbers and the pictures, and print the verdicts."""
    RESULTS.mkdir(exist_ok=True)
    place, names = RESULTS / "sampled_histograms.csv", [name for name in DATA if name in sys.argv[1:]] or list(DATA)
    kept = pyarrow.csv.read_csv(place).to_pylist() if place.exists() else []
    rows = [*(row for row in kept if row["data"] not in names), *results(names)]
    rows = [row | {name: float(f"{row[name]:.4g}") for name in ("mean", "standard_error")} for row in rows]
    pyarrow.csv.write_csv(pa.Table.from_pylist(rows), place)
    plot(rows, "error", "Figure 1: mean error of a bucket, as a share of all clients; delta 1e-8")
    plot(rows, "recall", "Figure 2: recall of the largest tenth of all buckets; delta 1e-8")
    verdicts(rows)


if __name__ == "__main__":
    main()
