"""Figures 5 and 6 on private weighted sampling: bias, error of a sum, and variance of estimated frequencies.

Priority sampling, delta 2^-20, g(w) = w; PWS with the maximum likelihood estimator, SbH with its noisy counts. Figure 5
has the bias by frequency (top) and the error of a sum over 200,000 keys, 1,000 of each frequency from 1 to 200
(bottom). Figure 6 has the variance over the squared frequency and, in the first version alone, the variance itself.
"""

import numpy as np
from experiment import Experiment, Plot, Row, Verdict, between, column, group, judge_claim, pick
from weighted_sampling import (
    BASELINES,
    DELTA,
    EPSILONS,
    LINES,
    PAPER,
    PRIVATE,
    channels,
    settles,
    short,
    spaced,
    table,
    threshold,
)

import dpsieve as ds
from dpsieve.estimation import Estimator, Moments
from dpsieve.papers.weighted_sampling import noisy_count, sum_error
from dpsieve.sampling.schemes import Scheme
from dpsieve.types import Floats, Ints

RATES = (1.0, 0.01, 1e-4, 1e-6)  # those of the authors' public code, every second one; 1 is no sampling
MORE_RATES = (1.0, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)
LEVELS = (0.5, 0.2, 0.1, 0.05)  # of bias over frequency
LARGEST, KEYS_EACH = 200, 1000
UNITS = 0.005  # how far the bias of SbH, over frequency, may be off as tokens tell units or halves of them
SAMPLERS = ("simple", "optimal")


def named(rate: float) -> str:
    """Return a rate in words."""
    return "no sampling" if rate == 1 else f"rate {short(rate)}"


def scheme_of(rate: float) -> Scheme | None:
    """Return priority sampling at a rate; at rate 1 it takes every key."""
    return None if rate == 1 else ds.priority(rate)


def estimators(epsilon: float, rate: float) -> dict[str, Estimator]:
    """Return the estimators that figures compare."""
    made = channels(epsilon, DELTA, scheme_of(rate))
    return {name: channel.estimator() if name in SAMPLERS else noisy_count(channel) for name, channel in made.items()}


def moments(epsilon: float, rate: float, i: Ints) -> dict[str, Moments]:
    """Return bias and variance of each for frequencies."""
    return {name: estimator.moments(i) for name, estimator in estimators(epsilon, rate).items()}


def not_private(rate: float, i: Ints) -> Floats:
    """Return the variance i^2 (1/q - 1) of the usual estimate from a sample that is not private."""
    return np.asarray(i**2 * (1 / np.minimum(1.0, rate * i) - 1))


def lower_frequencies(epsilon: float, rate: float) -> dict[str, list[float]]:
    """Return how many times lower PWS has a bias within each level than SbH, with either threshold."""
    i = np.arange(1, int(3 * threshold(epsilon, DELTA)) + 1)
    found = {name: moment.bias / i for name, moment in moments(epsilon, rate, i).items()}
    at = {name: [settles(bias, level) for level in LEVELS] for name, bias in found.items()}
    return {name: [a / b for a, b in zip(at[name], at["simple"], strict=True)] for name in ("sbh", "sbh_fair")}


def bias(small: bool) -> list[Row]:
    """Return the bias over frequency, for each epsilon and rate."""
    rows: list[Row] = []
    for epsilon in EPSILONS[:1] if small else EPSILONS:
        i = spaced(10 * threshold(epsilon, DELTA), 6 if small else 60)
        for rate in (1.0, 0.01) if small else RATES:
            found = {name: moment.bias / i for name, moment in moments(epsilon, rate, i).items()}
            rows += table({"epsilon": epsilon, "rate": rate}, i, found)
    return rows


def judge_bias(rows: list[Row]) -> list[Verdict]:
    """Judge the top of figure 5."""
    means, moved, low = [], [], min(row["rate"] for row in rows)
    for _, part in group(rows, "epsilon"):
        lines = {rate: some for (rate,), some in group(part, "rate")}
        means.append([np.abs(column(some, "simple")).mean() for some in lines.values()])
        first = column(lines[1], "sbh")
        moved += [np.abs(column(some, "sbh") - first).max() for some in lines.values()]
    least = [np.abs(column(pick(rows, rate=low), name)).max() for name in SAMPLERS]
    falls = all((np.diff(mean) <= 1e-3).all() for mean in means)
    return [
        judge_claim(
            "Figure 5, top: the bias of PWS falls with the rate and vanishes as it approaches delta; that of SbH stays",
            f"its mean over frequencies is {between(mean[0] for mean in means)} of it without sampling, "
            f"and {between((mean[-1] for mean in means), '.4f')} at a rate of {short(low)}, where the largest "
            f"is {least[0]:.3f} (simple) and {least[1]:.3f} (optimal); that of SbH changes by {max(moved):.4f}",
            falls and max(least) < 0.1 and max(moved) < UNITS,
            "the bias does not vanish, or that of SbH moves",
        )
    ]


def accuracy(small: bool) -> list[Row]:
    """Return how many times lower PWS has a bias within each level than SbH."""
    rows: list[Row] = []
    for rate in (1.0, 1e-4) if small else MORE_RATES:
        for epsilon in EPSILONS[:1] if small else EPSILONS:
            for name, ratios in lower_frequencies(epsilon, rate).items():
                rows += [{"rate": rate, "epsilon": epsilon, "baseline": name, "level": level, "ratio": ratio}
                         for level, ratio in zip(LEVELS, ratios, strict=True)]  # fmt: skip
    return rows


def judge_accuracy(rows: list[Row]) -> list[Verdict]:
    """Judge what both abstracts say about accurate estimates."""
    verdicts = []
    for (rate,), part in group(rows, "rate"):
        paper, fair = (column(pick(part, baseline=name), "ratio") for name in BASELINES)
        verdicts.append(
            judge_claim(
                f"Abstract, {named(rate)}: estimates are accurate for frequencies 2 to 8 times lower",
                f"a bias within 50, 20, 10 and 5 % at frequencies {between(paper)} times lower, {between(fair)} times "
                "with the fair threshold",
                paper.min() >= 2,
                "it needs sampling rates of 1e-4 and below",
            )
        )
    return verdicts


def sums(small: bool) -> list[Row]:
    """Return the error of a sum by sampling rate."""
    i, each, rows = np.arange(1, LARGEST + 1), np.full(LARGEST, KEYS_EACH), list[Row]()
    for epsilon in EPSILONS[:1] if small else EPSILONS:
        for rate in np.logspace(-6, 0, 4 if small else 25).tolist():
            found = {name: sum_error(estimator, i, each).nrmse for name, estimator in estimators(epsilon, rate).items()}
            exact = float(np.sqrt(each @ not_private(rate, i)) / (each @ i))
            rows.append({"epsilon": epsilon, "rate": rate, "not_private": exact, **found})
    return rows


def judge_sums(rows: list[Row]) -> list[Verdict]:
    """Judge the bottom of figure 5."""
    verdicts = []
    for (epsilon,), part in group(rows, "epsilon"):
        best, end = min(part, key=lambda row: row["simple"]), part[-1]
        sampled = np.log([[row[name] for name in (*BASELINES, "not_private")] for row in part[:-1]])
        numbers = [", ".join(f"{row[name]:.4f}" for name in ("simple", "optimal", *BASELINES)) for row in (best, end)]
        verdicts += [
            judge_claim(
                f"Figure 5, bottom, epsilon {epsilon:g}: errors of SbH and of the sample fall as the rate grows, and "
                "that of PWS is least midway",
                f"simple is best at a rate of {short(best['rate'])}: {numbers[0]} (simple, optimal, SbH, fair SbH)",
                (np.diff(sampled, axis=0) <= UNITS).all() and part[0]["rate"] < best["rate"] < 1, "not midway",
            ),
            judge_claim(
                f"Figure 5, bottom, epsilon {epsilon:g}: PWS is far better than SbH also without sampling",
                f"{numbers[1]}; {end['simple'] / end['sbh']:.2f} times the error of SbH, "
                f"{end['simple'] / end['sbh_fair']:.2f} times that of fair SbH", end["simple"] < 0.75 * end["sbh"],
                "less than a quarter better at so large an epsilon, where noise is small beside the counts",
            ),
        ]  # fmt: skip
    return verdicts


def variance(small: bool) -> list[Row]:
    """Return the variance of each, and over the squared frequency."""
    rows: list[Row] = []
    for rate in (1.0, 0.01) if small else RATES:
        for epsilon in EPSILONS[:1] if small else EPSILONS:
            i = spaced(2 * threshold(epsilon, DELTA), 6 if small else 30)
            found = {"not_private": not_private(rate, i)}
            found |= {name: moment.variance for name, moment in moments(epsilon, rate, i).items()}
            for measure, power in (("variance", 0), ("variance / frequency^2", 2)):
                fixed = {"measure": measure, "epsilon": epsilon, "rate": rate}
                rows += table(fixed, i, {name: values / i**power for name, values in found.items()})
    return rows


def judge_variance(rows: list[Row]) -> list[Verdict]:
    """Judge figure 6 at each rate."""
    verdicts = []
    for (rate,), part in group(pick(rows, measure="variance / frequency^2"), "rate"):
        tops = {name: column(part, name).max() for name in PRIVATE}
        found = ", ".join(f"{top:.3g} ({name})" for name, top in tops.items())
        if rate == 1:
            claim = "Figure 6, no sampling: variance / frequency^2 is below 1"
            verdicts.append(judge_claim(claim, f"at most {found}", max(tops.values()) < 1, "it is above 1"))
            continue
        often = column(part, "not_private") >= 1 - 1e-5  # sampled at most half of the time
        over = [(column(part, name)[often] / column(part, "not_private")[often]).max() for name in SAMPLERS]
        verdicts.append(
            judge_claim(
                f"Figure 6, {named(rate)}: variance / frequency^2 is of the order of that of the sample",
                f"at most {found}; over that of the sample, where that is above 1, at most {over[0]:.2f} (simple) and "
                f"{over[1]:.2f} (optimal)",
                max(over) < 2,
                "it is over twice that of the sample",
            )
        )
    return verdicts


EXPERIMENTS = (
    Experiment(
        "weighted_sampling_bias", PAPER, "Figure 5, top", "bias over frequency, priority sampling", 20, bias,
        judge_bias,
        (Plot("Figure 5, top: bias over frequency", "frequency", PRIVATE, panels=("epsilon", "rate"), log="x",
              columns=4),),
    ),
    Experiment(
        "weighted_sampling_accuracy", PAPER, "Abstract", "how much lower frequencies with an accurate estimate are",
        40, accuracy, judge_accuracy,
    ),
    Experiment(
        "weighted_sampling_sums", PAPER, "Figure 5, bottom", "error of a sum over 200,000 keys by sampling rate", 60,
        sums, judge_sums,
        (Plot("Figure 5, bottom: error of a sum (NRMSE)", "rate", LINES, panels=("epsilon",), log="xy", columns=2),),
    ),
    Experiment(
        "weighted_sampling_variance", PAPER, "Figure 6", "variance, and over the squared frequency", 15, variance,
        judge_variance,
        tuple(
            Plot(f"Figure 6: {measure}", "frequency", LINES, panels=("epsilon", "rate"), log="xy",
                 where={"measure": measure}, name=name, columns=4)
            for measure, name in (("variance / frequency^2", "relative"), ("variance", "absolute"))
        ),
    ),
)  # fmt: skip
