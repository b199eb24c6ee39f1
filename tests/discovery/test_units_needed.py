"""Previews of discoveries: the number of units that a key needs, against what is selected where so many hold it."""

import re

import pytest

import dpsieve as ds
from dpsieve.discovery.selector import make_selector
from dpsieve.engines.true_data import Pairs
from dpsieve.randomness import SystemSource

METHODS = ("weighted_gaussian", "policy_gaussian", "repeated_rounds", "greedy", "renyi", "renyi_two_rounds")
RUNS = 300


def needed(method, keys):
    """Return what the preview states for units of so many keys."""
    how = {"typical_keys": keys} if method.startswith("renyi") else {}
    how |= {"job": "discover", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-6, "max_keys_per_unit": keys}
    stated = dict(ds.preview(method=method, **how).details)[
        "units with 1 key" if keys == 1 else f"units with {keys} keys"
    ]
    return int(re.search(r"if ([\d,]+) units hold it", stated)[1].replace(",", "")), how


@pytest.mark.parametrize("keys", [1, 5])
@pytest.mark.parametrize("method", METHODS)
def test_a_key_of_so_many_units_is_found_half_of_the_time(method, keys):
    """Units hold one key in common, the first one of each, and others that nobody else holds; or 0.7 times as many."""
    units, how = needed(method, keys)
    selector = make_selector(method, 1.0, 1e-6, keys, typical_keys=how.get("typical_keys"), unit="one user")
    assert rate(selector, units, keys) > 0.3 and rate(selector, int(0.7 * units), keys) < 0.55


def rate(selector, units, keys):
    pairs = Pairs.of([["common", *(f"own {unit} {key}" for key in range(keys - 1))] for unit in range(units)])
    place, source = pairs.keys.column(0).to_pylist().index("common"), SystemSource()
    return sum(bool(selector.select(pairs, source)[place]) for _ in range(RUNS)) / RUNS


def test_the_greedy_policy_fills_one_key_of_a_unit():
    assert needed("policy_greedy", 4)[0] == pytest.approx(4 * needed("policy_greedy", 1)[0], abs=4)
