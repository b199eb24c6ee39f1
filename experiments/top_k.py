"""Figures 2, 11 and 12 of the paper on missing mass: top-k over an unknown domain, against the limited domain.

    DPSIEVE_DATA=folder .venv/bin/python experiments/top_k.py [word of a name ...]

Each point is the mean of 5 trials, with its standard error; delta is 1e-5 and selectors see 100 keys a user. 'half and
half' is the paper's mechanism, with its closed form for the picks; 'one account', 'two rounds' and 'greedy' are
this library's. The limited domain is Durfee and Rogers' with their composition, and with our tighter one ('tight');
where it looks at all keys, it sees 100 keys a user. See discovery_data.py for which sets are real and which made up.
"""

from collections.abc import Callable

import numpy as np
from discovery_data import (
    DELTA,
    EPSILONS,
    MAX_KEYS,
    MORE,
    SMALL,
    TRIALS,
    Row,
    bounded,
    chosen,
    load,
    plot,
    row_of,
    show,
)  # fmt: skip

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


def ours(held: Pairs, samples: list[Pairs], epsilon: float) -> Picks:
    """Return the keys that discovery, then peeling picked in each trial."""
    source, counts, picks = resolve(None), held.counts(), Picks()
    for label, maker in makers(epsilon, float(np.median(held.sizes))).items():
        for k in KS:
            made = maker(k)
            found = [np.flatnonzero(made.selector.select(sample, source)) for sample in samples]
            picks[label, k] = [keys[made.pick(counts[keys], source)] for keys in found]
    return picks


def limited(held: Pairs, samples: list[Pairs], epsilon: float) -> Picks:
    """Return the keys that the limited domain picked in each trial."""
    picks = Picks()
    for label, (factor, analysis) in LIMITED.items():
        seen = [held.counts() if factor else sample.counts() for sample in samples]
        most = None if factor else MAX_KEYS
        for k in KS:
            looked = factor * k if factor else None
            picks[label, k] = [
                limited_domain(counts, k, looked, epsilon, DELTA, max_keys=most, analysis=analysis) for counts in seen
            ]
    return picks


def main() -> None:
    """Print and plot the top-k missing mass and l1 loss for each set, mechanism and k."""
    mass: dict[float, list[Row]] = {epsilon: [] for epsilon in EPSILONS}
    loss: dict[float, list[Row]] = {epsilon: [] for epsilon in EPSILONS}
    for name in chosen([*SMALL, *MORE]):
        held = load(name)
        counts = held.counts()
        samples = [bounded(held, MAX_KEYS) for _ in range(TRIALS)]
        for epsilon in EPSILONS:
            here = {**ours(held, samples, epsilon), **limited(held, samples, epsilon)}
            masses = {at: [top_k_missing_mass(counts, pick, at[1]) for pick in picks] for at, picks in here.items()}
            losses = {at: [top_k_l1_loss(counts, pick, at[1]) for pick in picks] for at, picks in here.items()}
            mass[epsilon] += [row_of(name, label, "k", k, drawn) for (label, k), drawn in masses.items()]
            loss[epsilon] += [row_of(name, label, "k", k, drawn) for (label, k), drawn in losses.items()]
            for rows, what, digits in ((mass, "missing mass", ".4f"), (loss, "l1 loss", ",.0f")):
                shown = [row for row in rows[epsilon] if row["data"] == name]
                show(f"top-k {what}, epsilon {epsilon:g}, delta 1e-5", shown, "k", digits)
    for epsilon, (first, second) in zip(EPSILONS, (("2", "11"), ("12", "12")), strict=True):
        title = f"top-k, epsilon {epsilon:g}, delta 1e-5, 100 keys a user"
        plot(f"top_k_mass_{epsilon:g}", f"Figure {first}: missing mass, {title}", mass[epsilon], "k", "missing mass")
        plot(f"top_k_loss_{epsilon:g}", f"Figure {second}: l1 loss, {title}", loss[epsilon], "k", "l1 loss")


if __name__ == "__main__":
    main()
