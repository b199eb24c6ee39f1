"""Figures 3 and 13 of the paper on missing mass: users that k keys miss, against baselines that know the domain.

Each point is the mean of 5 trials, with its standard error; delta is 1e-5 and selectors see 100 keys a user. 'half and
half' is the paper's mechanism, with its closed form for the picks, and so is 'known domain'; the others are this
library's. Plain greedy is not private, and a known domain would be public. See discovery_data.py for which sets are
real and which are made up.
"""

from collections.abc import Callable

import numpy as np
from data_sets import pairs
from discovery_data import DELTA, EPSILONS, MAX_KEYS, SMALL, TRIALS, bounded, row_of
from experiment import Experiment, Plot, Row, Verdict, between, group, judge_claim

from dpsieve.discovery.greedy import greedy
from dpsieve.discovery.picks import HittingKeys, hitting_keys
from dpsieve.discovery.renyi import two_rounds
from dpsieve.papers.missing_mass.algorithms import Analysis, greedy_keys, known_domain_keys, paper_hitting_keys
from dpsieve.papers.missing_mass.measures import missed_units
from dpsieve.randomness.source import resolve

KNOWN: dict[str, Analysis] = {"known domain": "paper", "known domain, tight": "best"}
KS = (5, 10, 20, 50, 100, 200)


def makers(epsilon: float, typical: float) -> dict[str, Callable[[int], HittingKeys]]:
    """Return mechanisms by name, each for a number of keys to pick."""
    rounds = two_rounds(epsilon, DELTA, MAX_KEYS, typical_keys=typical, share=0.75)
    first = greedy(epsilon / 2, DELTA / 2, MAX_KEYS)
    return {
        "half and half": lambda k: paper_hitting_keys(epsilon, DELTA, MAX_KEYS, k),
        "one account": lambda k: hitting_keys(epsilon, DELTA, MAX_KEYS, k, typical_keys=typical),
        "two rounds": lambda k: hitting_keys(epsilon, DELTA, MAX_KEYS, k, selector=rounds),
        "greedy": lambda k: hitting_keys(epsilon, DELTA, MAX_KEYS, k, selector=first),
    }


def hitting_set(small: bool) -> list[Row]:
    """Return how many users are missed, for each set, mechanism and k."""
    source, rows = resolve(None), list[Row]()
    ks, names = (KS[:1], SMALL[:1]) if small else (KS, SMALL)
    for name in names:
        data, held = pairs(name, small)
        plain = greedy_keys(held, max(ks))
        samples = [bounded(held, MAX_KEYS) for _ in range(2 if small else TRIALS)]
        for epsilon in EPSILONS[:1] if small else EPSILONS:
            mechanisms = makers(epsilon, float(np.median(held.sizes)))
            for k in ks:
                drawn = {"plain greedy, not private": [float(missed_units(held, plain[:k]))] * len(samples)}
                for label, analysis in KNOWN.items():
                    picks = [known_domain_keys(held, k, epsilon, DELTA, analysis=analysis) for _ in samples]
                    drawn[label] = [float(missed_units(held, pick)) for pick in picks]
                for label, maker in mechanisms.items():
                    made, drawn[label] = maker(k), []
                    for sample in samples:
                        found = made.selector.select(sample, source)
                        picked = made.pick(held.restrict(found), source)
                        drawn[label].append(float(missed_units(held, np.flatnonzero(found)[picked])))
                for label, missed in drawn.items():
                    rows.append({"epsilon": epsilon, "users": len(held.sizes), **row_of(data, label, "k", k, missed)})
    return rows


def judge_hitting_set(rows: list[Row]) -> list[Verdict]:
    """Judge the paper's mechanism against the known domain, and this library's against the paper's."""
    verdicts = []
    for (epsilon,), part in group(rows, "epsilon"):
        apart, gains, lost = [], [], []
        for (data, k), here in group(part, "data", "k"):
            each = {row["mechanism"]: row for row in here}
            own, known, ours = (each[name] for name in ("half and half", "known domain", "one account"))
            users = own["users"]
            apart.append((own["mean"] - known["mean"]) / users)
            gains.append((own["mean"] - ours["mean"]) / users)
            if apart[-1] > 0.02:
                lost.append(f"{data}, k {k} ({own['mean']:,.0f} against {known['mean']:,.0f})")
        verdicts += [
            judge_claim(
                f"epsilon {epsilon:g}: the paper's mechanism performs comparably with a known domain, or better",
                f"it misses {between(apart, '+.3f')} of all users more; fewer in {sum(a < 0 for a in apart)} of "
                f"{len(apart)} settings",
                not lost,
                f"more than 0.02 of all users: {'; '.join(lost[:4])}",
            ),
            judge_claim(
                f"epsilon {epsilon:g}: the default of `ds.hitting_set` misses no more users than the paper's mechanism",
                f"{between(gains, '+.3f')} of all users fewer",
                min(gains) > -0.01,
                "it misses more than 0.01 of all users more in some setting",
                better=max(gains) > 0.01,
            ),
        ]
    return verdicts


EXPERIMENTS = (
    Experiment(
        "hitting_set", "missing mass", "Figures 3 and 13", "users that k keys miss, means of 5 trials", 200,
        hitting_set, judge_hitting_set,
        tuple(
            Plot(f"Figure {figure}: users that k keys miss, epsilon {epsilon:g}, delta 1e-5", "k", "mean",
                 ("mechanism",), ("data",), "x", {"epsilon": epsilon}, f"epsilon_{epsilon:g}", "error")
            for figure, epsilon in (("3", 1.0), ("13", 0.1))
        ),
    ),
)  # fmt: skip
