"""Figures 3 and 13 of the paper on missing mass: users that k keys miss, against baselines that know the domain.

    DPSIEVE_DATA=folder .venv/bin/python experiments/hitting_set.py [word of a name ...]

Each point is the mean of 5 trials, with its standard error; delta is 1e-5 and selectors see 100 keys a user. 'half and
half' is the paper's mechanism, with its closed form for the picks, and so is 'known domain'; the others are this
library's. Plain greedy is not private, and a known domain would be public. See discovery_data.py for which sets are
real and which are made up.
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


def main() -> None:
    """Print and plot how many users are missed, for each set, mechanism and k."""
    source = resolve(None)
    rows: dict[float, list[Row]] = {epsilon: [] for epsilon in EPSILONS}
    for name in chosen([*SMALL, *MORE]):
        held = load(name)
        plain = greedy_keys(held, max(KS))
        samples = [bounded(held, MAX_KEYS) for _ in range(TRIALS)]
        for epsilon in EPSILONS:
            mechanisms = makers(epsilon, float(np.median(held.sizes)))
            for k in KS:
                drawn = {"plain greedy, not private": [missed_units(held, plain[:k])] * TRIALS}
                for label, analysis in KNOWN.items():
                    picks = [known_domain_keys(held, k, epsilon, DELTA, analysis=analysis) for _ in samples]
                    drawn[label] = [missed_units(held, pick) for pick in picks]
                for label, maker in mechanisms.items():
                    made, drawn[label] = maker(k), []
                    for sample in samples:
                        found = made.selector.select(sample, source)
                        picked = made.pick(held.restrict(found), source)
                        drawn[label].append(missed_units(held, np.flatnonzero(found)[picked]))
                rows[epsilon] += [row_of(name, label, "k", k, missed) for label, missed in drawn.items()]
            here = [row for row in rows[epsilon] if row["data"] == name]
            show(f"missed users, epsilon {epsilon:g}, delta 1e-5", here, "k", ",.0f")
    for epsilon, figure in zip(EPSILONS, ("3", "13"), strict=True):
        title = f"Figure {figure}: users that k keys miss, epsilon {epsilon:g}, delta 1e-5, 100 keys a user"
        plot(f"hitting_set_{epsilon:g}", title, rows[epsilon], "k", "missed users")


if __name__ == "__main__":
    main()
