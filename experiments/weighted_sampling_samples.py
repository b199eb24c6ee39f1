"""Figures 3 and 4 on private weighted sampling: how many keys come out of a sample, by frequency and by sampling rate.

Sampling is ppswor. Figure 3 has delta 2^-20 and the epsilons and rates of the authors' public code, with 1e-6 added, as
the papers do not name them. Figure 4 has epsilon 0.1, delta 0.001 and data floor((n/i)^alpha), i = 1, ..., n.
"""

import numpy as np
from experiment import Experiment, Plot, Row, Verdict, between, column, group, judge_claim, pick
from weighted_sampling import BASELINES, DELTA, EPSILONS, LINES, PAPER, channels, spaced, table, threshold, zipf

import dpsieve as ds
from dpsieve.channels.unknown_keys import Optimal
from dpsieve.types import Floats

RATES = (0.1, 0.01, 1e-4, 1e-6)  # of figure 3
DATA = {0.5: 10**6, 1.0: 10**5, 2.0: 10**3}  # n for each alpha
CLAIMED = {0.5: 230, 1.0: 97, 2.0: 37}  # percent more keys than sampled SbH, in both versions
BUDGET = 0.1, 0.001  # of figure 4
NEAR = 0.99  # of the sampling probability
LOSS = 0.001  # what stairs may cost `optimal` at small rates


def reporting(small: bool) -> list[Row]:
    """Return reporting probabilities by frequency, and where they reach 99 % of the sampling probability."""
    rows: list[Row] = []
    for epsilon in EPSILONS[:1] if small else EPSILONS:
        last = 2 * threshold(epsilon, DELTA)
        for rate in (0.1, 1e-6) if small else RATES:
            scheme, i = ds.ppswor(rate), spaced(last, 6 if small else 48)
            made, every = channels(epsilon, DELTA, scheme), np.arange(1, int(last) + 1)
            found = {"not_private": scheme.inclusion(i)}
            found |= {name: channel.reporting_probability(i) for name, channel in made.items()}
            fixed = {"epsilon": epsilon, "rate": rate, "what": "reported"}
            rows += table(fixed, i, found)
            sampled = scheme.inclusion(every)
            first = {name: _reaches(channel.reporting_probability(every), sampled) for name, channel in made.items()}
            rows.append({**fixed, "what": "reaches 99 %", "frequency": 0.0, "not_private": 1.0, **first})
    return rows


def _reaches(reported: Floats, sampled: Floats) -> int:
    """Return the first frequency that is reported nearly as often as it is sampled."""
    return int(np.argmax(reported >= NEAR * sampled)) + 1 if (reported >= NEAR * sampled).any() else len(reported) + 1


def judge_reporting(rows: list[Row]) -> list[Verdict]:
    """Judge figure 3."""
    shown, reached = pick(rows, what="reported"), pick(rows, what="reaches 99 %")
    least = min((column(shown, "optimal") / column(shown, name)).min() for name in BASELINES)
    apart = np.abs(column(shown, "optimal") / column(shown, "simple") - 1).max()
    early = [column(reached, name) / column(reached, "optimal") for name in BASELINES]
    return [
        judge_claim(
            "Figure 3: PWS reports more often than sampled SbH, and reaches the sampling probability earlier",
            f"99 % of the sampling probability is reached at frequencies {between(early[0])} times lower, "
            f"{between(early[1])} times with the fair threshold; PWS / SbH is at least {least:.4f}; optimal and simple "
            f"differ by {apart:.0e}, relatively",
            least > 1 - LOSS and min(one.min() for one in early) >= 1, "SbH is ahead somewhere",
        )
    ]  # fmt: skip


def shares(alpha: float, rate: float) -> Row:
    """Return the expected share of keys that come out, for a Zipf distribution and a rate."""
    frequencies, counts = zipf(DATA[alpha], alpha)
    scheme = ds.ppswor(rate)
    made = channels(*BUDGET, scheme)
    optimal = made["optimal"]
    assert isinstance(optimal, Optimal) and optimal.loss <= LOSS
    found = {"not_private": scheme.inclusion(frequencies)}
    found |= {name: channel.reporting_probability(frequencies) for name, channel in made.items()}
    return {
        "alpha": alpha,
        "rate": rate,
        **{name: float(counts @ share) / DATA[alpha] for name, share in found.items()},
    }


def gain(row: Row, baseline: str) -> float:
    """Return how many percent more keys PWS reports than a baseline."""
    return 100 * (float(row["simple"]) / float(row[baseline]) - 1)


def keys(small: bool) -> list[Row]:
    """Return the share of keys that come out, by sampling rate."""
    rates = (BUDGET[1], 1.0) if small else np.logspace(-6, 0, 25).tolist()
    rows = [shares(alpha, rate) for alpha in ((2.0,) if small else DATA) for rate in rates]
    return [{**row, **{f"gain_{name}": gain(row, name) for name in BASELINES}} for row in rows]


def judge_keys(rows: list[Row]) -> list[Verdict]:
    """Judge figure 4: the gains are those at rates from 0.1 on."""
    verdicts, delta = [], BUDGET[1]
    for (alpha,), part in group(rows, "alpha"):
        claimed = CLAIMED[alpha]
        large = [row for row in part if row["rate"] >= 0.0999]
        paper, fair = (column(large, f"gain_{name}") for name in BASELINES)
        least = column(part, "gain_sbh").min()
        verdicts += [
            judge_claim(
                f"Figure 4, alpha {alpha:g}, {DATA[alpha]:,} keys: PWS reports {claimed} % more keys than sampled SbH",
                f"at rates from 0.1 on {between(paper, '.1f')} %, {between(fair, '.1f')} % with the fair threshold",
                np.abs(paper - claimed).max() < 2, "other gains",
            ),
            judge_claim(
                f"Figure 4, alpha {alpha:g}: 'at least' {claimed} % more",
                f"the least is {least:.1f} %", least > claimed - 0.5,
                "gains shrink with the rate, as both approach the sample",
            ),
        ]  # fmt: skip
    close = [row["simple"] / row["not_private"] for row in pick(rows, rate=delta)]
    apart = np.abs(column(rows, "optimal") / column(rows, "simple") - 1).max()
    verdicts.append(
        judge_claim(
            "Figure 4: reporting approaches that of the sample that is not private as the rate approaches delta",
            f"at a rate of delta PWS reports {100 * min(close):.3f} % of the sampled keys; at any rate optimal reports "
            f"up to {100 * apart:.3f} % fewer than simple, for its stairs",
            min(close) > 0.999 and apart < LOSS,
            "it stays below",
        )
    )
    return verdicts


EXPERIMENTS = (
    Experiment(
        "weighted_sampling_sampled_reporting", PAPER, "Figure 3", "reporting probabilities by frequency, with sampling",
        20, reporting, judge_reporting,
        (Plot("Figure 3: probability of being reported, with sampling", "frequency", LINES, panels=("epsilon", "rate"),
              log="xy", where={"what": "reported"}, columns=4),),
    ),
    Experiment(
        "weighted_sampling_sampled_keys", PAPER, "Figure 4", "share of keys by sampling rate, (0.1, 0.001)", 30, keys,
        judge_keys,
        (
            Plot("Figure 4: share of keys reported", "rate", LINES, panels=("alpha",), log="xy"),
            Plot("Figure 4: keys more than SbH, percent", "rate", ("gain_sbh", "gain_sbh_fair"), panels=("alpha",),
                 log="xy", name="gains"),
        ),
    ),
)  # fmt: skip
