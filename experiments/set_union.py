"""Figures 1, 8, 9 and 10 of the paper on missing mass: what set union misses, by the number of keys a user keeps.

    DPSIEVE_DATA=folder .venv/bin/python experiments/set_union.py [word of a name ...]

Each point is the mean of 5 trials, with its standard error; delta is 1e-5. The weighted Gaussian mechanism is as in the
paper, and the policies have alpha = 3; 'Renyi', 'two rounds' and 'greedy' are this library's. The typical number of
keys that two of them take as a public number is the median of the data. See discovery_data.py for which sets are real
and which are made up.
"""

from collections.abc import Callable

import numpy as np
from discovery_data import DELTA, EPSILONS, LARGE, MORE, SMALL, TRIALS, Row, bounded, chosen, load, plot, row_of, show

from dpsieve.discovery.greedy import greedy
from dpsieve.discovery.missing_mass import missing_mass
from dpsieve.discovery.policies import policy_gaussian, policy_greedy
from dpsieve.discovery.renyi_selection import renyi_selection
from dpsieve.discovery.selector import Selector
from dpsieve.discovery.two_rounds import two_rounds
from dpsieve.discovery.weighted_gaussian import weighted_gaussian
from dpsieve.randomness.source import resolve

KEYS = (1, 50, 100, 150, 200, 300)
MAKERS: dict[str, Callable[[float, int, float], Selector]] = {
    "weighted Gaussian": lambda epsilon, keys, _: weighted_gaussian(epsilon, DELTA, keys, analysis="paper"),
    "policy Gaussian": lambda epsilon, keys, _: policy_gaussian(epsilon, DELTA, keys),
    "policy greedy": lambda epsilon, keys, _: policy_greedy(epsilon, DELTA, keys),
    "Renyi": lambda epsilon, keys, typical: renyi_selection(epsilon, DELTA, keys, typical_keys=typical),
    "two rounds": lambda epsilon, keys, typical: two_rounds(epsilon, DELTA, keys, typical_keys=typical),
    "greedy": lambda epsilon, keys, _: greedy(epsilon, DELTA, keys),
}


def main() -> None:
    """Print and plot the missing mass for each set, mechanism and number of keys."""
    source = resolve(None)
    rows: dict[float, list[Row]] = {epsilon: [] for epsilon in EPSILONS}
    for name in chosen([*LARGE, *SMALL, *MORE]):
        held = load(name)
        counts = held.counts()
        for keys in KEYS:
            samples = [bounded(held, keys) for _ in range(TRIALS)]
            typical = float(np.median(samples[0].sizes))
            for epsilon in EPSILONS:
                for mechanism, maker in MAKERS.items():
                    selector = maker(epsilon, keys, typical)
                    drawn = [missing_mass(counts, selector.select(sample, source)) for sample in samples]
                    rows[epsilon].append(row_of(name, mechanism, "keys a user", keys, drawn))
        for epsilon in EPSILONS:
            here = [row for row in rows[epsilon] if row["data"] == name]
            show(f"missing mass, epsilon {epsilon:g}, delta 1e-5", here, "keys a user")
    for epsilon, figures in zip(EPSILONS, ("1, 8", "9, 10"), strict=True):
        title = f"Figures {figures}: missing mass of set union, epsilon {epsilon:g}, delta 1e-5"
        plot(f"set_union_{epsilon:g}", title, rows[epsilon], "keys a user", "missing mass")


if __name__ == "__main__":
    main()
