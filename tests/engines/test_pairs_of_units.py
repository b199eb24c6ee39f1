"""Which keys units hold: bounded, restricted, counted and weighed."""

import itertools
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from dpsieve.engines import true_data
from dpsieve.engines.true_data import Pairs
from dpsieve.privacy.guarantee import Weight

UNITS = ["abcd", "", "ba", "d", "cab"]


@pytest.fixture(autouse=True, params=["few pairs", "many pairs"])
def way(request, monkeypatch):
    """By numpy, and by compiled loops."""
    if request.param == "many pairs":
        monkeypatch.setattr(true_data, "_COMPILED_FROM", 0)


def lists(held):
    names = held.keys["key"].to_pylist()
    return ["".join(names[i] for i in held.key_numbers[a:b]) for a, b in itertools.pairwise(held.starts)]


def test_units_keep_their_order_and_that_of_their_keys():
    held = Pairs.of(UNITS)
    assert lists(held) == UNITS and held.sizes.tolist() == [4, 0, 2, 1, 3]
    assert dict(zip("abcd", held.counts().tolist(), strict=True)) == {"a": 3, "b": 3, "c": 2, "d": 2}


@pytest.mark.parametrize("most", [1, 2, 3, 4, 10])
def test_bounded_units_keep_their_first_keys(most):
    held = Pairs.of(UNITS).bound(most)
    assert lists(held) == [unit[:most] for unit in UNITS] and held.keys.num_rows == 4
    weights = [sum(Weight(10).of_keys(4)[len(u) - 1] for u in lists(held) if key in u) for key in "abcd"]
    assert held.weights(Weight(10)).tolist() == weights


@pytest.mark.parametrize("most", [1, 2, 3, 4, 10, None])
@pytest.mark.parametrize("threads", [1, 3])
def test_counts_under_a_bound_are_those_of_the_first_keys(most, threads):
    units = [random.Random(i).sample("abcdef", i % 7) for i in range(200)]
    held = replace(Pairs.of(units), threads=threads)
    expected = Counter(key for unit in units for key in unit[:most])
    assert dict(zip(held.keys["key"].to_pylist(), held.counts(most).tolist(), strict=True)) == expected
    counted = held.count(most)
    assert dict(zip(counted.keys["key"].to_pylist(), counted.frequencies.tolist(), strict=True)) == expected


def test_restricted_units_keep_what_was_found():
    held = Pairs.of(UNITS).restrict(np.array([False, True, False, True]))
    assert lists(held) == ["bd", "", "b", "d", "b"] and held.keys["key"].to_pylist() == ["b", "d"]


def test_no_units_at_all():
    nothing = Pairs.of([]).bound(3)
    assert nothing.counts().tolist() == [] and nothing.weights(Weight(10)).tolist() == []


def test_it_shows_nothing():
    assert repr(Pairs.of(UNITS)) == "<Pairs: true keys of units, not to be published>"
