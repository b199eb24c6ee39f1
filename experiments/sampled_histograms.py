"""Figures 1 and 2 of the paper on sample-and-threshold: errors of histograms, and recall of their largest buckets.

Each word of a text is a client, and a hash puts it into one of B buckets. The binomial and geometric values of
1,000,000 clients are those of Section 5. Delta is 1e-8, each point is the mean of the runs with its standard error. The
error is the mean over buckets of |estimate - true count|, as a share of all clients; estimates below zero count as
zero. Recall is the part of the largest tenth of all buckets, empty ones aside, that is among the largest tenth of the
estimates; what is not reported is not found.

Sample-and-threshold runs with the paper's rate (1 - e^-epsilon) / 6 and threshold 20; with that rate and the least
threshold that keeps the promise; and with the plan of this library. The other mechanisms have the noise that they need
and no more. They run with the paper's rate, as in the paper, with the rate of the plan, and with all clients.
"""

import hashlib
import itertools
import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from data_sets import words
from experiment import Experiment, Plot, Row, Verdict, column, judge_claim, pick

from dpsieve.errors import InvalidValue
from dpsieve.federated import plan
from dpsieve.noise.sample_threshold import SampleThreshold
from dpsieve.papers.sample_threshold import BernoulliNoise, HadamardResponse, SampledLaplace
from dpsieve.types import Floats, Ints

CLIENTS, DELTA, RUNS = 1_000_000, 1e-8, 10
BUCKETS, EPSILONS = (2**6, 2**8, 2**10, 2**12, 2**14), (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
RNG = np.random.default_rng()
PAPER, SAME, OURS = "threshold 20, the paper's", "exact threshold, the paper's rate", "exact plan"
LAPLACE, BERNOULLI, HADAMARD = (f"{name}, the paper's rate" for name in ("Laplace", "Bernoulli", "Hadamard"))
SHOWN = (PAPER, SAME, OURS, LAPLACE, "Laplace, the plan's rate", BERNOULLI, HADAMARD)
Estimator = Callable[[], Floats]


def drawn_values(name: str, buckets: int, text: list[str], clients: int) -> Ints:
    """Return the bucket of each client."""
    if name == "binomial":
        return np.minimum(RNG.binomial(buckets, 0.5, clients), buckets - 1)
    if name == "geometric":
        return np.minimum(RNG.geometric(buckets**-0.5, clients) - 1, buckets - 1)
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


def histograms(small: bool) -> list[Row]:
    """Return both measures for each data, number of buckets, epsilon and mechanism."""
    text_name, text = words(small)
    clients, runs, rows = 20_000 if small else CLIENTS, 2 if small else RUNS, list[Row]()
    data_sets = ("geometric",) if small else ("binomial", "geometric", text_name)
    for name, buckets in itertools.product(data_sets, BUCKETS[1:3] if small else BUCKETS):
        values = drawn_values(name, buckets, text, clients)
        true = np.bincount(values, minlength=buckets)
        for epsilon in EPSILONS[-1:] if small else EPSILONS:
            for mechanism, estimate in mechanisms(values, true, epsilon).items():
                seen = np.array([measured(true, estimate()) for _ in range(runs)])
                means, errors = seen.mean(axis=0), seen.std(axis=0, ddof=1) / math.sqrt(runs)
                for measure, mean, error in zip(("error", "recall"), means.tolist(), errors.tolist(), strict=True):
                    rows.append({
                        "data": name, "buckets": buckets, "epsilon": epsilon, "mechanism": mechanism,
                        "measure": measure, "mean": float(f"{mean:.4g}"), "standard_error": float(f"{error:.3g}"),
                    })  # fmt: skip
    return rows


def judge_histograms(rows: list[Row]) -> list[Verdict]:
    """Judge what Section 5 says about errors and recall."""
    errors = {(r["data"], r["buckets"], r["epsilon"], r["mechanism"]): r["mean"] for r in pick(rows, measure="error")}
    places = sorted({key[:3] for key in errors}, key=str)

    def ratios(one: str, other: str) -> Floats:
        both = [at for at in places if (*at, one) in errors and (*at, other) in errors]
        return np.array([errors[*at, one] / errors[*at, other] for at in both])

    def shown(ratio: Floats) -> str:
        low, high = ratio.min(), ratio.max()
        less = f"below 1 in {(ratio < 1).sum()} of {len(ratio)}"
        return f"{low:.2f} to {high:.2f} times, median {np.median(ratio):.2f}, {less}"

    laplace, local, zero, ours = (
        ratios(PAPER, LAPLACE), ratios(HADAMARD, PAPER), ratios(PAPER, "all zeros"), ratios(OURS, PAPER)
    )  # fmt: skip
    shuffled = ratios(PAPER, BERNOULLI)
    recall = column(pick(rows, measure="recall", buckets=256, mechanism=PAPER), "mean")
    least = recall.min() if len(recall) else math.nan
    mine, theirs = (column(pick(rows, measure="recall", mechanism=one), "mean").mean() for one in (OURS, PAPER))
    return [
        judge_claim(
            "Figure 1: sample-and-threshold often has less error than Laplace noise on the same sample",
            shown(laplace), (laplace < 1).mean() >= 0.5,
            "less in a minority of the settings: Laplace noise here is calibrated knowing that the sample is secret",
        ),
        judge_claim(
            "Figure 1: Bernoulli noise in the shuffle model has a higher error",
            f"sample-and-threshold {shown(shuffled)}", np.median(shuffled) < 1, "less in a minority of the settings",
        ),
        judge_claim(
            "Figure 1: local differential privacy (Hadamard) is much weaker", f"{shown(local)} the error",
            local.min() > 3, "in some settings it is within three times",
        ),
        judge_claim(
            "Figure 1: reporting zero for each bucket is worse", f"sample-and-threshold has {shown(zero)} that error",
            zero.max() < 1, "not where nearly all buckets are below the threshold",
        ),
        judge_claim(
            "Figure 2: close to perfect recall for B = 2^8 on all data", f"the least recall is {least:.3f}",
            least >= 0.9, "counts of equal size, of which a sample cannot tell the order, and small samples",
        ),
        judge_claim(
            "The exact plan of this library has less error than threshold 20 at the paper's rate",
            f"{shown(ours)} the error; mean recall {mine:.3f} against {theirs:.3f}", (ours < 1).mean() > 0.9,
            "not in all settings", better=True,
        ),
    ]  # fmt: skip


EXPERIMENTS = (
    Experiment(
        "sampled_histograms", "sample-and-threshold", "Figures 1 and 2",
        f"error and recall of histograms, delta 1e-8, means of {RUNS} runs", 200, histograms, judge_histograms,
        tuple(
            Plot(f"Figure {figure}: {measure} by epsilon, delta 1e-8", "epsilon", "mean", ("mechanism",),
                 ("data", "buckets"), log, {"measure": measure, "mechanism": SHOWN, "buckets": (64, 1024, 16384)},
                 measure, "standard_error")
            for figure, measure, log in (("1", "error", "y"), ("2", "recall", ""))
        ),
    ),
)  # fmt: skip
