"""Figures 2, 11 and 12 of the paper on missing mass: top-k over an unknown domain, against the limited domain.

Each point is the mean of 5 trials, with its standard error; delta is 1e-5 and selectors see 100 keys a user. 'half and
half' is the paper's mechanism, with its closed form for the picks; 'one account', 'two rounds' and 'greedy' are
this library's. The limited domain is Durfee and Rogers' with their composition, and with our tighter one ('tight');
where it looks at all keys, it sees 100 keys a user. See discovery_data.py for which sets are real and which made up.
"""

from collections.abc import Callable

import numpy as np
from data_sets import pairs
from discovery_data import DELTA, EPSILONS, MAX_KEYS, SMALL, TRIALS, bounded, row_of
from experiment import Experiment, Plot, Row, Verdict, between, group, judge_claim

from dpsieve.discovery.greedy import greedy
from dpsieve.discovery.picks import TopKeys, top_keys
from dpsieve.discovery.renyi import two_rounds
from dpsieve.engines.true_data import Pairs
from dpsieve.papers.missing_mass.algorithms import Analysis, limited_domain, paper_top_keys
from dpsieve.papers.missing_mass.measures import top_k_l1_loss, top_k_missing_mass
from dpsieve.randomness.source import resolve
from dpsieve.types import Ints

KS = (5, 10, 20, 50, 100, 200)
# How many times k keys are looked at, None for all, and how picks are composed.
LIMITED: dict[str, tuple[int | None, Analysis]] = {
    "limited domain, k": (1, "paper"),
    "limited domain, 5k": (5, "paper"),
    "limited domain, 10k": (10, "paper"),
    "limited domain, all": (None, "paper"),
    "limited domain, all, tight": (None, "best"),
}
BASELINES = [name for name, (_, analysis) in LIMITED.items() if analysis == "paper"]
Picks = dict[tuple[str, int], list[Ints]]  # of a mechanism and k, one of each trial


def makers(epsilon: float, typical: float) -> dict[str, Callable[[int], TopKeys]]:
    """Return mechanisms by name, each for a number of keys to pick."""
    rounds = two_rounds(epsilon, DELTA, MAX_KEYS, typical_keys=typical, share=0.25)
    first = greedy(epsilon / 2, DELTA / 2, MAX_KEYS)
    return {
        "half and half": lambda k: paper_top_keys(epsilon, DELTA, MAX_KEYS, k),
        "one account": lambda k: top_keys(epsilon, DELTA, MAX_KEYS, k, typical_keys=typical),
        "two rounds": lambda k: top_keys(epsilon, DELTA, MAX_KEYS, k, selector=rounds),
        "greedy": lambda k: top_keys(epsilon, DELTA, MAX_KEYS, k, selector=first),
    }


def ours(held: Pairs, samples: list[Pairs], epsilon: float, ks: tuple[int, ...]) -> Picks:
    """Return the keys that discovery, then peeling picked in each trial."""
    source, counts, picks = resolve(None), held.counts(), Picks()
    for label, maker in makers(epsilon, float(np.median(held.sizes))).items():
        for k in ks:
            made = maker(k)
            found = [np.flatnonzero(made.selector.select(sample, source)) for sample in samples]
            picks[label, k] = [keys[made.pick(counts[keys], source)] for keys in found]
    return picks


def limited(held: Pairs, samples: list[Pairs], epsilon: float, ks: tuple[int, ...]) -> Picks:
    """Return the keys that the limited domain picked in each trial."""
    picks = Picks()
    for label, (factor, analysis) in LIMITED.items():
        seen = [held.counts() if factor else sample.counts() for sample in samples]
        most = None if factor else MAX_KEYS
        for k in ks:
            looked = factor * k if factor else None
            picks[label, k] = [
                limited_domain(counts, k, looked, epsilon, DELTA, max_keys=most, analysis=analysis) for counts in seen
            ]
    return picks


def top_k(small: bool) -> list[Row]:
    """Return the top-k missing mass and l1 loss for each set, mechanism and k."""
    rows: list[Row] = []
    ks, names = (KS[:1], SMALL[:1]) if small else (KS, [*SMALL, "retail"])
    for name in names:
        data, held = pairs(name, small)
        counts = held.counts()
        samples = [bounded(held, MAX_KEYS) for _ in range(2 if small else TRIALS)]
        for epsilon in EPSILONS[:1] if small else EPSILONS:
            found = {**ours(held, samples, epsilon, ks), **limited(held, samples, epsilon, ks)}
            for what, loss in (("missing mass", top_k_missing_mass), ("l1 loss", top_k_l1_loss)):
                for (label, k), picks in found.items():
                    drawn = [float(loss(counts, pick, k)) for pick in picks]
                    rows.append({"epsilon": epsilon, "measure": what, **row_of(data, label, "k", k, drawn)})
    return rows


def judge_top_k(rows: list[Row]) -> list[Verdict]:
    """Judge whether the paper's mechanism, and this library's, lose less than all limited domains."""
    verdicts = []
    for (epsilon, measure), part in group(rows, "epsilon", "measure"):
        for label, who in (("half and half", "the paper's mechanism"), ("one account", "the library's top-k by picks")):
            worse, ratios = [], []
            for (data, k), here in group(part, "data", "k"):
                each = {row["mechanism"]: row for row in here}
                best = min((row for name, row in each.items() if name in BASELINES), key=lambda r: r["mean"])
                own = each[label]
                ratios.append(own["mean"] / best["mean"] if best["mean"] else 1.0)
                if own["mean"] > best["mean"] + 2 * (own["error"] + best["error"]) + 1e-4:
                    worse.append(f"{data}, k {k} ({own['mean']:.4g} against {best['mean']:.4g})")
            few = "; ".join(worse[:4]) + (f" and {len(worse) - 4} more" if len(worse) > 4 else "")
            verdicts.append(
                judge_claim(
                    f"epsilon {epsilon:g}, {measure}: {who} loses no more than any limited domain of the paper",
                    f"{between(ratios)} times the best of them; more in {len(worse)} of {len(ratios)} settings",
                    not worse,
                    f"few keys out of a small domain cost less than finding the domain: {few}",
                    better=np.mean(ratios) < 0.9,
                )
            )
    return verdicts


EXPERIMENTS = (
    Experiment(
        "top_k", "missing mass", "Figures 2, 11 and 12", "missing mass and l1 loss of the top k, means of 5 trials",
        120, top_k, judge_top_k,
        tuple(
            Plot(f"Figure {figure}: {measure} of the top k, epsilon {epsilon:g}, delta 1e-5", "k", "mean",
                 ("mechanism",), ("data",), "x" if measure == "missing mass" else "xy",
                 {"epsilon": epsilon, "measure": measure}, f"{measure.replace(' ', '_')}_{epsilon:g}", "error")
            for epsilon, measure, figure in (
                (1.0, "missing mass", "2"), (1.0, "l1 loss", "11"), (0.1, "missing mass", "12"), (0.1, "l1 loss", "12"),
            )
        ),
    ),
)  # fmt: skip
