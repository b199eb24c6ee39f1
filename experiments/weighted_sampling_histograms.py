"""Figures 1 and 2 on private weighted sampling: how many keys come out without sampling.

Also what the papers say about the reporting probabilities pi of PWS and phi of SbH: the number of frequencies with
pi < 1, the ratio pi/phi, and the frequency from which on phi is all but one. Data is floor((n/i)^alpha).
"""

import math
from collections.abc import Callable

import numpy as np
from experiment import Experiment, Plot, Row, Verdict, between, column, group, judge_claim, pick
from weighted_sampling import BASELINES, PAPER, PRIVATE, channels, table, zipf

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


def largest_ratio(epsilon: float, delta: float) -> float:
    """Return the largest pi/phi for frequencies up to L."""
    i = np.arange(1, math.floor(levels(epsilon, delta)) + 1)
    phi = histogram_reporting(i, epsilon, delta, fair=False)
    return float((optimal_reporting(i, epsilon, delta) / phi).max())


def first_certain(epsilon: float, delta: float) -> int:
    """Return the first frequency that SbH, with the papers' threshold, reports with probability above 1 - delta."""
    i = np.arange(1, math.ceil(2 * math.log(1 / delta) / epsilon) + 3)
    return int(i[histogram_reporting(i, epsilon, delta, fair=False) > 1 - delta][0])


def reporting(small: bool) -> list[Row]:
    """Return reporting probabilities by frequency, and the first frequencies with an even chance and with 99 %."""
    rows: list[Row] = []
    for epsilon, delta, last in BUDGETS[:1] if small else BUDGETS:
        made = channels(epsilon, delta)
        i = np.unique(np.linspace(1, last, 6 if small else 100).astype(np.int64))
        fixed = {"epsilon": epsilon, "delta": delta, "what": "reported"}
        rows += table(fixed, i, {name: channel.reporting_probability(i) for name, channel in made.items()})
        for what, p in (("even chance", 0.5), ("99 %", 0.99)):
            first = {name: float(frequency_at(channel, p) or math.inf) for name, channel in made.items()}
            rows.append({**fixed, "what": what, "frequency": 0.0, **first})
    return rows


def judge_reporting(rows: list[Row]) -> list[Verdict]:
    """Judge figure 1."""
    verdicts = []
    for (epsilon, delta), part in group(rows, "epsilon", "delta"):
        shown, half, surely = (pick(part, what=what) for what in ("reported", "even chance", "99 %"))
        ahead = [(column(shown, "optimal") / column(shown, name)).min() for name in BASELINES]
        places = [", ".join(f"{one[0][name]:.0f}" for name in ("optimal", *BASELINES)) for one in (half, surely)]
        verdicts.append(
            judge_claim(
                f"Figure 1, ({epsilon:g}, {delta:g}): PWS is never below SbH, and reaches one earlier",
                f"pi/phi is at least {ahead[0]:.4f}, and {ahead[1]:.4f} for the fair threshold; even chance at "
                f"{places[0]} (PWS, SbH, fair SbH), 99 % at {places[1]}",
                min(ahead) > 1 - 1e-5
                and half[0]["optimal"] < half[0]["sbh_fair"]
                and surely[0]["optimal"] < surely[0]["sbh_fair"],
                "SbH is ahead somewhere",
            )
        )
    return verdicts


def lemmas(small: bool, delta: float = 1e-8) -> list[Row]:
    """Return what the text says about pi and phi, beside what is so, for budgets."""
    rows: list[Row] = []
    powers = np.linspace(-1.5, -9, 3 if small else 60)
    budgets = [(0.5, 0.01), *((epsilon, 10**power) for epsilon in (2.0, 1.0, 0.5, 0.25, 0.1) for power in powers)]
    rows += [
        {"what": "frequencies held back", "epsilon": budget[0], "delta": float(budget[1]),
         "found": held_back(*budget), "first": 2 * levels(*budget),
         "published": 2 * levels(*budget) + 1}
        for budget in budgets
    ]  # fmt: skip
    for epsilon in (1.0, 0.5, 0.1):
        early, late = math.log(1 / (2 * delta**2)) / epsilon, 2 * math.log(1 / delta) / epsilon
        full = 2 * math.log(epsilon / delta) / epsilon
        for what, found, first, published in (
            ("largest pi/phi", largest_ratio(epsilon, delta), 2 / epsilon, 2 / epsilon),
            ("phi above 1 - delta", first_certain(epsilon, delta), early, late),
            ("pi is one", held_back(epsilon, delta) + 1, full, full),
        ):
            rows.append({"what": what, "epsilon": epsilon, "delta": delta, "found": found, "first": first,
                         "published": published})  # fmt: skip
    return rows


def judge_lemmas(rows: list[Row]) -> list[Verdict]:
    """Judge Lemma 3.3 of the first version and 4.3 of the published one, and the text on pi/phi."""
    part = pick(rows, what="frequencies held back")
    found, real = column(part, "found"), column(part, "first")
    over = [int((found > most).sum()) for most in (real, real + 1, 2 * np.ceil(real / 2 - 1e-5))]
    one = part[0]
    verdicts = [
        judge_claim(
            "Lemma 3.3 (first version), 4.3 (published): at most 2L or 2L + 1 frequencies have pi < q",
            f"{one['found']} at (0.5, 0.01), where they say {one['first']:.2f} and {one['published']:.2f}; of "
            f"{len(part)} budgets {over[0]} exceed 2L, {over[1]} exceed 2L + 1, and {over[2]} exceed 2 ceil(L)",
            over[1] == 0, "L need not be whole; 2 ceil(L) holds",
        )
    ]  # fmt: skip
    ratios, certain, full = (pick(rows, what=what) for what in ("largest pi/phi", "phi above 1 - delta", "pi is one"))
    shown = "; ".join(f"epsilon {row['epsilon']:g}: {row['found']:.3f}, they say {row['first']:g}" for row in ratios)
    exact = all(abs(row["found"] * -math.expm1(-row["epsilon"]) / 2 - 1) < 1e-3 for row in ratios)
    verdicts.append(
        judge_claim(
            "Section 6.2 (first version), 8.1 (published): pi/phi is between 2 and 2/epsilon for frequencies up to L",
            shown,
            all(row["found"] <= row["first"] for row in ratios),
            f"the top is 2/(1 - e^-epsilon){'' if exact else ', nearly'}, above 2/epsilon",
        )
    )
    for version in ("first", "published"):
        late = [row["found"] - row[version] for row in certain]
        early = between((-units for units in late), ".1f")
        formula = {"first": "ln(1/(2 delta^2))/epsilon", "published": "(2/epsilon) ln(1/delta)"}[version]
        shown = "; ".join(f"epsilon {row['epsilon']:g}: from {row['found']} on, they say {row[version]:.2f}"
                          for row in certain)  # fmt: skip
        verdicts.append(
            judge_claim(
                f"Section {'6.2' if version == 'first' else '8.1'} ({version} version): phi > 1 - delta at {formula}",
                shown,
                all(0 < units <= 2 for units in late),
                f"it is so beyond 1 + ln(1/(2 delta^2))/epsilon, {early} units earlier",
            )
        )
    shown = "; ".join(f"epsilon {row['epsilon']:g}: at {row['found']}, they say {row['first']:.1f}" for row in full)
    verdicts.append(
        judge_claim(
            "Section 6.2 (first version), 8.1 (published): pi reaches one at about (2/epsilon) ln(epsilon/delta)",
            shown,
            all(abs(row["found"] - row["first"]) < 2 for row in full),
            "L is about ln(epsilon/(2 delta))/epsilon, so it is earlier for small epsilon",
        )
    )
    return verdicts


def shares(alpha: float, delta: float, epsilon: float = 0.1) -> Row:
    """Return the expected share of keys that come out, for a Zipf distribution and a delta."""
    frequencies, counts = zipf(DATA[alpha], alpha)
    found = {"optimal": optimal_reporting(frequencies, epsilon, delta)}
    found["simple"] = optimal_reporting(frequencies, epsilon, delta, ds.channels.simple)
    found["sbh"] = histogram_reporting(frequencies, epsilon, delta, fair=False)
    found["sbh_fair"] = histogram_reporting(frequencies, epsilon, delta, fair=True)
    return {"alpha": alpha, "delta": delta, **{name: float(counts @ one) / DATA[alpha] for name, one in found.items()}}


def keys(small: bool) -> list[Row]:
    """Return the share of keys reported by delta, epsilon 0.1, and the gains over SbH."""
    deltas = (1e-8, 0.1, 1.0) if small else np.logspace(-8, 0, 33).tolist()
    rows = [shares(alpha, delta) for alpha in ((2.0,) if small else DATA) for delta in deltas]
    return [{**row, **{f"gain_{name}": 100 * (row["optimal"] / row[name] - 1) for name in BASELINES}} for row in rows]


def judge_keys(rows: list[Row]) -> list[Verdict]:
    """Judge figure 2 and the abstract."""
    gains = {alpha: column(part, "gain_sbh") for (alpha,), part in group(rows, "alpha")}
    fair = {alpha: column(part, "gain_sbh_fair") for (alpha,), part in group(rows, "alpha")}
    most = max(gain.max() for gain in gains.values())
    shown = "; ".join(f"alpha {alpha:g}: {between(gain, '.0f')} % more, a ratio of {1 + gain.max() / 100:.1f}, "
                      f"{fair[alpha].max():.0f} % over the fair one" for alpha, gain in gains.items())  # fmt: skip
    ends = pick(rows, delta=1)
    return [
        judge_claim(
            "Figure 2, abstract: PWS reports 20 to 300 % more keys", shown,
            most >= 299 and min(gain.min() for gain in gains.values()) >= 19.5,
            "the upper end is a ratio, not a gain, and for alpha 2 the lower end is 10 %",
        ),
        judge_claim(
            "Figure 2: at delta 1 PWS reports all keys, and SbH does not",
            "; ".join(f"alpha {row['alpha']:g}: PWS {row['optimal']:.0%}, SbH {row['sbh']:.0%}, fair SbH "
                      f"{row['sbh_fair']:.0%}" for row in ends),
            all(row["optimal"] == 1 > row["sbh"] for row in ends), "SbH reports all keys too",
        ),
    ]  # fmt: skip


EXPERIMENTS = (
    Experiment(
        "weighted_sampling_reporting", PAPER, "Figure 1", "reporting probabilities by frequency, without sampling", 5,
        reporting, judge_reporting,
        (Plot("Figure 1: probability of being reported", "frequency", PRIVATE, panels=("epsilon", "delta"),
              where={"what": "reported"}),),
    ),
    Experiment(
        "weighted_sampling_lemmas", PAPER, "Lemma 4.3, Section 8.1", "the text on pi and phi, for 301 budgets", 20,
        lemmas, judge_lemmas,
    ),
    Experiment(
        "weighted_sampling_keys", PAPER, "Figure 2", "share of keys reported by delta, epsilon 0.1", 10, keys,
        judge_keys,
        (
            Plot("Figure 2: share of keys reported", "delta", PRIVATE, panels=("alpha",), log="xy"),
            Plot("Figure 2: keys more than SbH, percent", "delta", ("gain_sbh", "gain_sbh_fair"), panels=("alpha",),
                 log="x", name="gains"),
        ),
    ),
)  # fmt: skip
