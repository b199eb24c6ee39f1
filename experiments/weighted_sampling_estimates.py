"""Figures 5 and 6 on private weighted sampling: bias, error of a sum, and variance of estimated frequencies.

    .venv/bin/python experiments/weighted_sampling_estimates.py

Priority sampling, delta 2^-20, g(w) = w; PWS with the maximum likelihood estimator, SbH with its noisy counts. Figure 5
has the bias by frequency (top) and the error of a sum over 200,000 keys, 1,000 of each frequency from 1 to 200
(bottom). Figure 6 has the variance over the squared frequency and, in the first version alone, the variance itself.
"""

import altair as alt
import numpy as np
from weighted_sampling import (
    DELTA,
    EPSILONS,
    Axis,
    Figure,
    Row,
    Verdict,
    between,
    channels,
    column,
    grid,
    lines,
    publish,
    said,
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
LEVELS = (0.5, 0.2, 0.1, 0.05)  # of bias over frequency
LARGEST, KEYS_EACH = 200, 1000
UNITS = 0.005  # how far the bias of SbH, over frequency, may be off as tokens tell units or halves of them
SAMPLERS = ("simple", "optimal")
PRIVATE = ("optimal", "simple", "sbh", "sbh_fair")


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


def figure_5_top(points: int = 90, epsilons: tuple[float, ...] = EPSILONS, rates: tuple[float, ...] = RATES) -> Figure:
    """Bias over frequency, for each epsilon: a line for each rate, and SbH once."""
    rows: list[Row] = []
    panels, moved, means = {}, [], []
    for epsilon in epsilons:
        i = spaced(10 * threshold(epsilon, DELTA), points)
        found = {rate: {name: moment.bias / i for name, moment in moments(epsilon, rate, i).items()} for rate in rates}
        for rate, biases in found.items():
            rows += table({"epsilon": epsilon, "rate": rate}, i, biases)
        moved += [np.abs(found[rate]["sbh"] - found[rates[0]]["sbh"]).max() for rate in rates]
        means.append([np.abs(found[rate]["simple"]).mean() for rate in rates])
        for name in SAMPLERS:
            drawn = {short(rate): biases[name] for rate, biases in found.items()}
            drawn |= {baseline: found[rates[0]][baseline] for baseline in ("sbh", "sbh_fair")}
            x = Axis("frequency", "true frequency", 1, float(i[-1]), log=True)
            y = Axis("bias", "bias / frequency", -1, 0.2)
            panels[name, epsilon] = lines(
                table({}, i, drawn), x, y, list(drawn), (230, 160), f"{name}, epsilon {epsilon:g}"
            )
    ordered = [panels[name, epsilon] for name in SAMPLERS for epsilon in epsilons]
    least = [np.abs(column([row for row in rows if row["rate"] == min(rates)], name)).max() for name in SAMPLERS]
    falls = all((np.diff(mean) <= 1e-3).all() for mean in means)
    verdicts = [
        Verdict(
            "figure 5, top",
            "the bias of PWS falls with the sampling rate and vanishes as the rate approaches delta; that of SbH stays",
            f"its mean over the frequencies shown is {between([mean[0] for mean in means])} of the frequency without "
            f"sampling, and {between([mean[-1] for mean in means], '.4f')} at a rate of {short(min(rates))}, where the "
            f"largest is {least[0]:.3f} (simple) and {least[1]:.3f} (optimal). That of SbH changes by "
            f"{max(moved):.4f}, as its tokens tell noisy counts to a unit, or to half of one with sampling",
            said(falls and max(least) < 0.1 and max(moved) < UNITS),
        )
    ]
    return Figure("figure_5_bias", rows, {"figure_5_bias": grid(ordered, len(epsilons))}, verdicts)


def accuracy(
    epsilons: tuple[float, ...] = EPSILONS, rates: tuple[float, ...] = (1.0, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)
) -> Figure:
    """How much lower frequencies with an accurate estimate are, which is said in both abstracts."""
    verdicts = []
    for rate in rates:
        found = [lower_frequencies(epsilon, rate) for epsilon in epsilons]
        paper, fair = ([ratio for part in found for ratio in part[name]] for name in ("sbh", "sbh_fair"))
        verdicts.append(
            Verdict(
                f"figure 5, abstract, {named(rate)}",
                "estimates are accurate for frequencies 2 to 8 times lower",
                f"a bias within 50, 20, 10 and 5 % at frequencies {between(paper)} times lower, {between(fair)} times "
                "with the fair threshold",
                said(min(paper) >= 2),
            )
        )
    return Figure("accuracy", [], {}, verdicts)


def figure_5_bottom(steps: int = 4, epsilons: tuple[float, ...] = EPSILONS) -> Figure:
    """Error of a sum by sampling rate."""
    i, each = np.arange(1, LARGEST + 1), np.full(LARGEST, KEYS_EACH)
    rows: list[Row] = []
    rates = np.logspace(-6, 0, 6 * steps + 1).tolist()
    for epsilon in epsilons:
        for rate in rates:
            found = {name: sum_error(estimator, i, each).nrmse for name, estimator in estimators(epsilon, rate).items()}
            exact = float(np.sqrt(each @ not_private(rate, i)) / (each @ i))
            rows.append({"epsilon": epsilon, "rate": rate, "not_private": exact, **found})
    panels, verdicts = [], []
    for epsilon in epsilons:
        part = [row for row in rows if row["epsilon"] == epsilon]
        best, end = min(part, key=lambda row: row["simple"]), part[-1]
        sampled = np.log([[row[name] for name in ("sbh", "sbh_fair", "not_private")] for row in part[:-1]])
        falls = (np.diff(sampled, axis=0) <= UNITS).all()
        verdicts.append(
            Verdict(
                f"figure 5, bottom, epsilon {epsilon:g}",
                "errors of SbH and of the sample fall as the rate grows; that of PWS is least midway; PWS is far "
                "better than SbH also without sampling",
                f"simple is best at a rate of {short(best['rate'])}: {best['simple']:.4f} (optimal "
                f"{best['optimal']:.4f}, SbH {best['sbh']:.4f}, fair {best['sbh_fair']:.4f}). Without sampling it has "
                f"{end['simple']:.4f} ({end['optimal']:.4f}, {end['sbh']:.4f}, {end['sbh_fair']:.4f})",
                f"SbH and sample: {said(falls)}; midway: {said(min(rates) < best['rate'] < 1)}; without sampling the "
                f"error is {end['simple'] / end['sbh']:.2f} times that of SbH, "
                f"{end['simple'] / end['sbh_fair']:.2f} times that of fair SbH",
            )
        )
        panels.append(
            lines(
                part,
                Axis("rate", "sampling rate", 1e-6, 1, log=True),
                Axis("error", "error of the sum (NRMSE)", 1e-3, 1, log=True),
                ["not_private", *PRIVATE],
                (300, 180),
                f"epsilon {epsilon:g}",
            )
        )
    return Figure("figure_5_sum", rows, {"figure_5_sum": grid(panels, 2)}, verdicts)


def figure_6(points: int = 40, epsilons: tuple[float, ...] = EPSILONS, rates: tuple[float, ...] = RATES) -> Figure:
    """Variance, over the squared frequency and as it is."""
    rows: list[Row] = []
    relative: list[alt.Chart] = []
    absolute: list[alt.Chart] = []
    verdicts = []
    for rate in rates:
        part: list[Row] = []
        for epsilon in epsilons:
            i = spaced(2 * threshold(epsilon, DELTA), points)
            found = {name: moment.variance for name, moment in moments(epsilon, rate, i).items()}
            found["not_private"] = not_private(rate, i)
            here = table({"epsilon": epsilon, "rate": rate}, i, found)
            part += here
            x = Axis("frequency", "true frequency", 1, float(i[-1]), log=True)
            title = f"epsilon {epsilon:g}, {named(rate)}"
            over = [{**row, **{name: row[name] / row["frequency"] ** 2 for name in found}} for row in here]
            for panels, some, label in ((relative, over, "variance / frequency^2"), (absolute, here, "variance")):
                most = max(row[name] for row in some for name in found)
                y = Axis("variance", label, most * 1e-6, most * 2, log=True)
                panels.append(lines(some, x, y, ["not_private", *PRIVATE], (190, 130), title))
        rows += part
        verdicts.append(_spread(part, rate))
    pictures = {"figure_6_relative": grid(relative, len(epsilons)), "figure_6_variance": grid(absolute, len(epsilons))}
    return Figure("figure_6", rows, pictures, verdicts)


def _spread(part: list[Row], rate: float) -> Verdict:
    """Return what the variances at one rate say."""
    square = column(part, "frequency") ** 2
    tops = {name: (column(part, name) / square).max() for name in PRIVATE}
    found = (
        f"at most {tops['simple']:.3g} (simple), {tops['optimal']:.3g} (optimal), {tops['sbh']:.3g} (SbH), "
        f"{tops['sbh_fair']:.3g} (fair)"
    )
    about = f"figure 6, {named(rate)}"
    if rate == 1:
        return Verdict(about, "variance / frequency^2 is below 1", found, said(max(tops.values()) < 1))
    often = column(part, "not_private") >= square  # sampled at most half of the time
    over = {name: (column(part, name) / column(part, "not_private"))[often].max() for name in PRIVATE}
    found += f"; over that of the sample, where that is above 1: at most {over['simple']:.2f} and {over['optimal']:.2f}"
    claim = "variance / frequency^2 is of the order of that of the sample that is not private"
    return Verdict(about, claim, found, said(max(over["simple"], over["optimal"]) < 2))


def main() -> None:
    """Write both figures and print the verdicts."""
    publish("estimates", [figure_5_top(), accuracy(), figure_5_bottom(), figure_6()])


if __name__ == "__main__":
    main()
