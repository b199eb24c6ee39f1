"""Figures 1, 8, 9 and 10 of the paper on missing mass: what set union misses, by the number of keys a user keeps.

    DPSIEVE_DATA=folder .venv/bin/python experiments/set_union.py [word of a name ...]

Each point is the mean of 5 trials, with its standard error; delta is 1e-5. The weighted Gaussian mechanism is as in the
paper, and the policies have alpha = 3. 'Renyi', 'two rounds', 'greedy' and 'auto' are this library's: the first two
take the median number of keys as a public number, and 'auto' buys it, as `ds.discover` does. See discovery_data.py for
which sets are real and which are made up.
"""

from functools import cache

import numpy as np
from discovery_data import DELTA, EPSILONS, LARGE, MORE, SMALL, TRIALS, Row, bounded, chosen, load, plot, row_of, show

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


def main() -> None:
    """Print and plot the missing mass for each set, mechanism and number of keys."""
    source = resolve(None)
    rows: dict[float, list[Row]] = {epsilon: [] for epsilon in EPSILONS}
    for data in chosen([*LARGE, *SMALL, *MORE]):
        held = load(data)
        counts = held.counts()
        for keys in KEYS:
            samples = [bounded(held, keys) for _ in range(TRIALS)]
            for epsilon in EPSILONS:
                for label, name in NAMES.items():
                    drawn = [missed(name, epsilon, keys, sample, counts, source) for sample in samples]
                    rows[epsilon].append(row_of(data, label, "keys a user", keys, drawn))
        for epsilon in EPSILONS:
            here = [row for row in rows[epsilon] if row["data"] == data]
            show(f"missing mass, epsilon {epsilon:g}, delta 1e-5", here, "keys a user")
    for epsilon, figures in zip(EPSILONS, ("1, 8", "9, 10"), strict=True):
        title = f"Figures {figures}: missing mass of set union, epsilon {epsilon:g}, delta 1e-5"
        plot(f"set_union_{epsilon:g}", title, rows[epsilon], "keys a user", "missing mass")


if __name__ == "__main__":
    main()
