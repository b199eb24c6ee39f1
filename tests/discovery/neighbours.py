"""Neighbours for tests of selectors: units that are alone with their keys, and a search for the worst small neighbours.

Units are lists of keys, which are small numbers; a neighbour leaves one of them out.
"""

import itertools
import random

import numpy as np
import pyarrow as pa
from helpers.statistical import binomial_band

from dpsieve.engines.true_data import Pairs


def alone(units, keys):
    """Return units with so many keys each, none of which any other unit holds."""
    table = pa.table({"key": np.arange(units * keys)})
    return Pairs(table, np.arange(0, units * keys + 1, keys), np.arange(units * keys, dtype=np.int32))


def assert_rate(selector, keys, expected, *, units=40_000):
    """A unit that is alone with its keys shows any of them as often as expected, which is delta at most."""
    shown = selector.select(alone(units, keys), None).reshape(units, keys).any(axis=1).sum()
    low, high = binomial_band(units, expected)
    assert low <= shown <= high
    assert expected <= selector.delta * (1 + 1e-6)


def by_key(units, values_of):
    """Return what values_of(pairs) says, by key."""
    held = Pairs.of(units)
    return dict(zip(held.keys["key"].to_pylist(), values_of(held).tolist(), strict=True))


def difference(units, out, values_of):
    """Return by how much values change where unit number `out` is left out, for every key."""
    with_it, without = by_key(units, values_of), by_key(units[:out] + units[out + 1 :], values_of)
    return np.array([with_it.get(key, 0) - without.get(key, 0) for key in with_it])


def divergence(first, second, epsilon):
    """Return the larger of sup P - e^eps Q and sup Q - e^eps P, for dicts from outcomes to probabilities."""
    pairs = [(first.get(each, 0.0), second.get(each, 0.0)) for each in first.keys() | second.keys()]
    p, q = np.array(pairs).T
    return max(np.maximum(0, p - np.exp(epsilon) * q).sum(), np.maximum(0, q - np.exp(epsilon) * p).sum())


def outcomes(chances):
    """Return the probability of every set of keys, where each is selected on its own with its chance."""
    some = [(key, chance) for key, chance in chances.items() if chance > 0]
    found = {}
    for shown in itertools.product((False, True), repeat=len(some)):
        parts = [chance if show else 1 - chance for show, (_, chance) in zip(shown, some, strict=True)]
        found[frozenset(key for show, (key, _) in zip(shown, some, strict=True) if show)] = float(np.prod(parts))
    return found


def worst_of(score, *, keys=4, most_units=12, tries=40, steps=60, seed=0):
    """Return the largest score(units, out) found by random starts and descent: one change of a unit at a time."""
    rng = random.Random(seed)

    def unit():
        return rng.sample(range(keys), rng.randint(1, keys))

    best = 0.0
    for _ in range(tries):
        common = unit()
        units = [unit() if rng.random() < 0.5 else list(common) for _ in range(rng.randint(1, most_units))]
        out = rng.randrange(len(units))
        reached = score(units, out)
        for _ in range(steps):
            changed, place = [list(each) for each in units], rng.randrange(len(units))
            kind = rng.randrange(3)
            if kind == 0:
                changed[place] = unit()
            elif kind == 1 and len(units) < most_units:
                changed.insert(place, unit())
            elif len(units) > 1:
                del changed[place]
            new_out = rng.randrange(len(changed)) if rng.random() < 0.3 else min(out, len(changed) - 1)
            if (now := score(changed, new_out)) >= reached:
                units, out, reached = changed, new_out, now
        best = max(best, reached)
    return best
