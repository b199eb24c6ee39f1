"""Figures 1, 8, 9 and 10 of the paper on missing mass: what set union misses, by the number of keys a user keeps.

Each point is the mean of the trials, with its standard error; delta is 1e-5. The weighted Gaussian mechanism is as in
the paper, and the policies have alpha = 3. 'Renyi', 'two rounds', 'greedy' and 'auto' are this library's: the first two
take the median number of keys as a public number, and 'auto' buys it, as `ds.discover` does. See discovery_data.py for
which sets are real and which are made up.
"""

from functools import cache, partial

import numpy as np
from data_sets import pairs
from discovery_data import DELTA, EPSILONS, LARGE, SMALL, bounded, row_of
from experiment import Experiment, Plot, Row, Verdict, between, group, judge_claim

from dpsieve.discovery.choice import recommend
from dpsieve.discovery.greedy import one_key
from dpsieve.discovery.selector import Selector, TypicalSize, make_selector
from dpsieve.engines.true_data import Pairs
from dpsieve.papers.missing_mass.algorithms import paper_weighted_gaussian
from dpsieve.papers.missing_mass.measures import missing_mass
from dpsieve.randomness.source import Source, resolve

KEYS = (1, 50, 100, 150, 200, 300)
NAMES = {
    "weighted Gaussian": "weighted_gaussian",
    "policy Gaussian": "policy_gaussian",
    "policy greedy": "policy_greedy",
    "Renyi": "renyi",
    "two rounds": "renyi_two_rounds",
    "greedy": "greedy",
    "auto": "auto",
}
PAPER = ("weighted Gaussian", "policy Gaussian", "policy greedy")
MADE_UP = "; a made-up set has the sizes of the paper's, and not its items"


@cache
def selector(name: str, epsilon: float, keys: int, typical: int, delta: float = DELTA) -> Selector:
    """Return a selector by its name; the weighted Gaussian mechanism is calibrated as in the paper."""
    if name == "one_key":
        return one_key(epsilon, DELTA)
    if name == "weighted_gaussian":
        return paper_weighted_gaussian(epsilon, delta, keys, unit="one user")
    return make_selector(name, epsilon, delta, keys, typical_keys=typical, unit="one user")


def missed(name: str, epsilon: float, keys: int, sample: Pairs, counts: np.ndarray, source: Source) -> float:
    """Return the missing mass of one trial."""
    typical = int(np.median(sample.sizes))
    if name == "auto" and keys == 1:
        name = "one_key"
    elif name == "auto":
        size = TypicalSize.within(epsilon, keys, unit="one user")
        typical, delta = size.draw(sample.sizes, source), size.delta_left(epsilon, DELTA)
        name, _ = recommend(typical)
        epsilon -= size.epsilon if name == "greedy" else 0.0
        return missing_mass(counts, selector(name, epsilon, keys, typical, delta).select(sample, source))
    return missing_mass(counts, selector(name, epsilon, keys, typical).select(sample, source))


def set_union(names: list[str], trials: int, small: bool) -> list[Row]:
    """Return the missing mass for each set, mechanism and number of keys."""
    source, rows = resolve(None), list[Row]()
    for name in names[:1] if small else names:
        data, held = pairs(name, small)
        counts = held.counts()
        for keys in KEYS[:2] if small else KEYS:
            samples = [bounded(held, keys) for _ in range(2 if small else trials)]
            for epsilon in EPSILONS[:1] if small else EPSILONS:
                for label, mechanism in NAMES.items():
                    drawn = [missed(mechanism, epsilon, keys, sample, counts, source) for sample in samples]
                    rows.append({"epsilon": epsilon, **row_of(data, label, "keys a user", keys, drawn)})
    return rows


def judge_set_union(rows: list[Row]) -> list[Verdict]:
    """Judge 'within 5 % of the policies', and compare the best of the library with the best of the paper."""
    verdicts = []
    for (epsilon,), part in group(rows, "epsilon"):
        apart, gains = {}, []
        for (data, keys), here in group(part, "data", "keys a user"):
            means = {row["mechanism"]: row["mean"] for row in here}
            apart[data, keys] = means["weighted Gaussian"] - min(means[name] for name in PAPER[1:])
            gains.append(min(means[name] for name in PAPER) - means["auto"])
        worst = max(apart, key=lambda at: apart[at])
        verdicts.append(
            judge_claim(
                f"epsilon {epsilon:g}: the weighted Gaussian mechanism misses at most 0.05 more than a policy",
                f"{between(apart.values(), '.3f')} more; the most on {worst[0]} with {worst[1]} keys per user",
                apart[worst] <= 0.05,
                f"a policy is better on {worst[0]}{MADE_UP if 'made up' in worst[0] else ''}",
            )
        )
        verdicts.append(
            judge_claim(
                f"epsilon {epsilon:g}: the default of `ds.discover` misses no more than every mechanism of the figure",
                f"{between(gains, '.3f')} less than the best of the three; less in {sum(g > 0 for g in gains)} of "
                f"{len(gains)} settings",
                min(gains) > -0.01,
                "users with one key, or the price of a private median, leave it behind by more than 0.01 somewhere",
                better=max(gains) > 0.01,
            )
        )
    return verdicts


def _experiment(kind: str, names: list[str], figures: tuple[str, str], trials: int, seconds: int) -> Experiment:
    plots = tuple(
        Plot(f"Figure {figure}: missing mass of set union, epsilon {epsilon:g}, delta 1e-5", "keys a user", "mean",
             ("mechanism",), ("data",), where={"epsilon": epsilon}, name=f"epsilon_{epsilon:g}", bars="error")
        for figure, epsilon in zip(figures, EPSILONS, strict=True)
    )  # fmt: skip
    return Experiment(
        f"set_union_{kind}", "missing mass", f"Figures {figures[0]} and {figures[1]}",
        f"missing mass by the keys that a user keeps, means of {trials} trials", seconds,
        partial(set_union, names, trials), judge_set_union, plots,
    )  # fmt: skip


EXPERIMENTS = (
    _experiment("large", LARGE, ("1", "9"), 3, 400),
    _experiment("small", [*SMALL, "retail"], ("8", "10"), 5, 200),
)
