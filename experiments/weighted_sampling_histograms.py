"""Figures 1 and 2 on private weighted sampling: how many keys come out without sampling.

    .venv/bin/python experiments/weighted_sampling_histograms.py

Also what the papers say about the reporting probabilities pi of PWS and phi of SbH: the number of frequencies with
pi < 1, the ratio pi/phi, and the frequency from which on phi is all but one. Data is floor((n/i)^alpha).
"""

import math
from collections.abc import Callable

import altair as alt
import numpy as np
from weighted_sampling import (
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
    table,
    zipf,
)

import dpsieve as ds
from dpsieve.channels import Channel, frequency_at
from dpsieve.types import Floats, Ints

Maker = Callable[[float, float], Channel]

BUDGETS = (0.1, 0.01, 100), (0.01, 1e-6, 2700)  # of figure 1, and the last frequency shown
DATA = {1.0: 10**5, 2.0: 10**3}  # n for each alpha, as in figure 4
ONE, TINY = 1 - 1e-9, 1e-6  # tables are made from budgets that are tightened by less than that


def histogram_reporting(i: Ints, epsilon: float, delta: float, *, fair: bool) -> Floats:
    """Return formula (41): how often SbH reports a key, for any delta up to 1, where the library has only delta <= 1/2.

    The fair threshold reports a key of one unit with probability delta.
    """
    gap = math.log(1 / delta) / epsilon
    if fair:
        gap = -math.log(2 * delta) / epsilon if delta <= 0.5 else math.log(2 * max(1 - delta, 1e-300)) / epsilon
    far = np.exp(-epsilon * np.abs(i - 1 - gap)) / 2
    return np.asarray(np.where(i - 1 < gap, far, 1 - far))


def optimal_reporting(i: Ints, epsilon: float, delta: float, make: Maker = ds.channels.optimal) -> Floats:
    """Return how often PWS reports a key; with delta 1, always."""
    return np.ones(len(i)) if delta == 1 else make(epsilon, delta).reporting_probability(i)


def levels(epsilon: float, delta: float) -> float:
    """Return L of the papers, equation (4) of the first version and (3) of the published one."""
    e = math.exp(epsilon)
    return math.log((e - 1 + 2 * delta) / (delta * (e + 1))) / epsilon


def held_back(epsilon: float, delta: float) -> int:
    """Return the number of frequencies that are reported less often than always, without sampling: at most 2 ceil(L).

    Let h(x) = delta (e^(epsilon x) - 1) / (e^epsilon - 1), so that h(L) + h(L + 1) = 1, and l the whole part of L. Up
    to l + 1, pi_i = h(i). From there on 1 - pi, which is h(y) at l + 1 with L <= y < L + 1, falls from h(y) to h(y - 1)
    with each frequency, until y is used up. That makes l + ceil(y) frequencies: 2L if L is whole (y = L), and 2l + 1 or
    2l + 2 else.
    """
    i = np.arange(1, math.ceil(2 * levels(epsilon, delta)) + 10)
    withheld = ds.channels.optimal(epsilon, delta).rows.withheld(i)
    return int((withheld > TINY * delta).sum())


def figure_1(points: int = 100) -> Figure:
    """Reporting probabilities by frequency."""
    rows: list[Row] = []
    verdicts = []
    for epsilon, delta, last in BUDGETS:
        i = np.unique(np.linspace(1, last, points).astype(np.int64))
        made = channels(epsilon, delta)
        found = {name: channel.reporting_probability(i) for name, channel in made.items()}
        rows += table({"epsilon": epsilon, "delta": delta}, i, found)
        ahead = [(found["optimal"] / found[name]).min() for name in ("sbh", "sbh_fair")]
        half, surely = ([frequency_at(channel, p) or math.inf for channel in made.values()] for p in (0.5, 0.99))
        verdicts.append(
            Verdict(
                f"figure 1, ({epsilon:g}, {delta:g})",
                "PWS is never below SbH, and reaches one earlier",
                f"pi/phi is at least {ahead[0]:.4f}, and {ahead[1]:.4f} for the fair threshold; even chance at "
                f"{half[0]}, {half[2]}, {half[3]} (PWS, SbH, fair SbH), 99 % at {surely[0]}, {surely[2]}, {surely[3]}",
                said(min(ahead) > ONE and half[0] < half[3] and surely[0] < surely[3]),
            )
        )
    shown = [{**row, "both": row["optimal"]} for row in rows]
    panels = [
        lines(
            [row for row in shown if row["epsilon"] == epsilon],
            Axis("frequency", "true frequency", 0, last),
            Axis("reported", "probability of being reported", 0, 1),
            ["both", "sbh", "sbh_fair"],
            (300, 200),
            f"epsilon {epsilon:g}, delta {delta:g}",
        )
        for epsilon, delta, last in BUDGETS
    ]
    return Figure("figure_1", rows, {"figure_1": grid(panels, 2)}, [*verdicts, *number_held_back(), *ratios()])


def number_held_back() -> list[Verdict]:
    """Lemma 3.3 of the first version and 4.3 of the published one, which are for whole L."""
    found, bound = held_back(0.5, 0.01), 2 * levels(0.5, 0.01)
    budgets = [(epsilon, 10**power) for epsilon in (2.0, 1.0, 0.5, 0.25, 0.1) for power in np.linspace(-1.5, -9, 60)]
    counts = np.array([held_back(*budget) for budget in budgets])
    real = np.array([levels(*budget) for budget in budgets])
    over = [int((counts > most).sum()) for most in (2 * real, 2 * real + 1, 2 * np.ceil(real))]
    return [
        Verdict(
            "Lemma 3.3 (first version), 4.3 (published)",
            "at most 2L (first version) or 2L + 1 (published) frequencies have pi < q",
            f"{found} at (0.5, 0.01), where they say {bound:.2f} and {bound + 1:.2f}. Of {len(budgets)} budgets "
            f"{over[0]} exceed 2L, {over[1]} exceed 2L + 1, and {over[2]} exceed 2 ceil(L)",
            f"{said(over[1] == 0)}, L need not be whole; 2 ceil(L) {said(over[2] == 0)}",
        )
    ]


def largest_ratio(epsilon: float, delta: float) -> float:
    """Return the largest pi/phi for frequencies up to L."""
    i = np.arange(1, math.floor(levels(epsilon, delta)) + 1)
    phi = histogram_reporting(i, epsilon, delta, fair=False)
    return float((optimal_reporting(i, epsilon, delta) / phi).max())


def first_certain(epsilon: float, delta: float) -> int:
    """Return the first frequency that SbH, with the papers' threshold, reports with probability above 1 - delta."""
    i = np.arange(1, math.ceil(2 * math.log(1 / delta) / epsilon) + 3)
    return int(i[histogram_reporting(i, epsilon, delta, fair=False) > 1 - delta][0])


def ratios(delta: float = 1e-8, epsilons: tuple[float, ...] = (1.0, 0.5, 0.1)) -> list[Verdict]:
    """The statements about pi/phi, and about where phi exceeds 1 - delta."""
    tops = {epsilon: largest_ratio(epsilon, delta) for epsilon in epsilons}
    exact = all(abs(top * -math.expm1(-epsilon) / 2 - 1) < 1e-3 for epsilon, top in tops.items())
    places = [
        (first_certain(epsilon, delta), math.log(1 / (2 * delta**2)) / epsilon, 2 * math.log(1 / delta) / epsilon)
        for epsilon in epsilons
    ]
    near = all(early < place <= early + 2 for place, early, _ in places)  # the bound itself is early + 1
    shown = zip(epsilons, places, strict=True)
    full = {epsilon: (held_back(epsilon, delta) + 1, 2 * math.log(epsilon / delta) / epsilon) for epsilon in epsilons}
    return [
        Verdict(
            "Section 6.2 (first version), 8.1 (published)",
            "pi/phi is between 2 and 2/epsilon for frequencies up to L",
            "; ".join(f"epsilon {e:g}: up to {top:.3f}, they say {2 / e:g}" for e, top in tops.items()),
            f"{said(all(top <= 2 / e for e, top in tops.items()))}; a top of 2/(1 - e^-epsilon) {said(exact)}",
        ),
        Verdict(
            "Section 6.2 (first version), 8.1 (published)",
            "phi > 1 - delta at ln(1/(2 delta^2))/epsilon (first version), at (2/epsilon) ln(1/delta) (published)",
            "; ".join(f"epsilon {e:g}: from {a} on, they say {b:.2f} and {c:.2f}" for e, (a, b, c) in shown),
            f"first version: {said(near)} up to one unit; published: {places[-1][2] - places[-1][0]:.0f} units late at "
            f"epsilon {epsilons[-1]:g}",
        ),
        Verdict(
            "Section 6.2 (first version), 8.1 (published)",
            "pi reaches one at about (2/epsilon) ln(epsilon/delta)",
            "; ".join(f"epsilon {e:g}: at {at}, they say {about:.1f}" for e, (at, about) in full.items()),
            f"{full[epsilons[-1]][1] - full[epsilons[-1]][0]:.0f} units late at epsilon {epsilons[-1]:g}, as L is "
            "about ln(epsilon/(2 delta))/epsilon",
        ),
    ]


def shares(alpha: float, delta: float, epsilon: float = 0.1) -> Row:
    """Return the expected share of keys that come out, for a Zipf distribution and a delta."""
    frequencies, counts = zipf(DATA[alpha], alpha)
    found = {"optimal": optimal_reporting(frequencies, epsilon, delta)}
    found["simple"] = optimal_reporting(frequencies, epsilon, delta, ds.channels.simple)
    found["sbh"] = histogram_reporting(frequencies, epsilon, delta, fair=False)
    found["sbh_fair"] = histogram_reporting(frequencies, epsilon, delta, fair=True)
    return {"alpha": alpha, "delta": delta, **{name: float(counts @ one) / DATA[alpha] for name, one in found.items()}}


def figure_2(steps: int = 33) -> Figure:
    """Share of keys reported by delta, epsilon 0.1."""
    rows = [shares(alpha, delta) for alpha in DATA for delta in np.logspace(-8, 0, steps).tolist()]
    gains = {
        (alpha, name): 100 * (column(part, "optimal") / column(part, name) - 1)
        for alpha in DATA
        for part in [[row for row in rows if row["alpha"] == alpha]]
        for name in ("sbh", "sbh_fair")
    }
    one, two = gains[1.0, "sbh"], gains[2.0, "sbh"]
    ends = [row for row in rows if row["delta"] == 1]
    verdicts = [
        Verdict(
            "figure 2, abstract",
            "PWS reports 20 to 300 % more keys",
            f"alpha 1: {between(one, '.0f')} % more, a ratio of {1 + one.max() / 100:.1f} at most; alpha 2: "
            f"{between(two, '.0f')} % more. Over the fair threshold at most "
            f"{gains[1.0, 'sbh_fair'].max():.0f} and {gains[2.0, 'sbh_fair'].max():.0f} %",
            f"{said(one.max() >= 299)}: the upper end is a ratio, not a gain; at least 20 % for alpha 1 "
            f"{said(one.min() >= 19.5)}, for alpha 2 {said(two.min() >= 19.5)}",
        ),
        Verdict(
            "figure 2",
            "at delta 1 PWS reports all keys, and SbH does not",
            f"PWS {ends[0]['optimal']:.0%}; SbH {ends[0]['sbh']:.0%} (alpha 1) and {ends[1]['sbh']:.0%} (alpha 2); SbH "
            f"with a threshold that uses all of delta {ends[0]['sbh_fair']:.0%}",
            f"{said(ends[0]['optimal'] == 1 > ends[0]['sbh'])}, due to the papers' threshold",
        ),
    ]
    return Figure("figure_2", rows, {"figure_2": _shares_and_ratios(rows)}, verdicts)


def _shares_and_ratios(rows: list[Row]) -> alt.ConcatChart:
    """Return the shares of keys, and below them the ratios."""
    delta, size = Axis("delta", "delta", 1e-8, 1, log=True), (300, 170)
    shown = {alpha: [{**row, "both": row["optimal"]} for row in rows if row["alpha"] == alpha] for alpha in DATA}
    ratio = {
        alpha: [{**row, **{name: row["optimal"] / row[name] for name in ("sbh", "sbh_fair")}} for row in part]
        for alpha, part in shown.items()
    }
    share, over = Axis("share", "share of keys reported", 0.003, 1, log=True), Axis("ratio", "PWS / SbH", 1, 3.5)
    tops = [
        lines(part, delta, share, ["both", "sbh", "sbh_fair"], size, f"Zipf({alpha:g}), {DATA[alpha]:,} keys")
        for alpha, part in shown.items()
    ]
    below = [
        lines(part, delta, over, ["sbh", "sbh_fair"], size, f"Zipf({alpha:g}), ratio") for alpha, part in ratio.items()
    ]
    return grid([*tops, *below], 2)


def main() -> None:
    """Write both figures and print the verdicts."""
    publish("histograms", [figure_1(), figure_2()])


if __name__ == "__main__":
    main()
