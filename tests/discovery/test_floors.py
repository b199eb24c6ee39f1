"""Selectors with a floor, by enumeration: every outcome of small neighbours around it."""

import itertools

import numpy as np
import pytest
from helpers.exact_neighbours import rounded_delta

from dpsieve.discovery.renyi import renyi_selection, two_rounds
from dpsieve.discovery.selector import make_selector
from dpsieve.engines.true_data import Pairs
from dpsieve.papers.missing_mass.weighted_gaussian import weighted_gaussian
from dpsieve.randomness import SystemSource

EPSILON, DELTA = 1.0, 0.05


def chances(selector, units, keys):
    """The exact probability with which each key is selected."""
    weights = [selector.weight.of_keys(len(unit))[-1] for unit in units]
    sums = [sum(w for w, unit in zip(weights, units, strict=True) if key in unit) for key in range(keys)]
    return selector.reporting_probability(np.array(sums))


def with_floor(min_units, max_keys=3, typical=1):
    return make_selector("renyi", EPSILON, DELTA, max_keys, typical_keys=typical, unit="one user", min_units=min_units)


@pytest.mark.parametrize("typical", [1, 3])
def test_one_unit_more_around_the_floor_keeps_the_promise(typical):
    """Keys of 0 to 2 F units of mixed sizes, and one more unit on every set of keys: units are light and heavy."""
    selector, worst = with_floor(3, typical=typical), 0.0
    for numbers in itertools.product(range(0, 7, 2), repeat=3):
        for mix in ((1, 1, 1), (1, 2, 3), (3, 3, 3)):
            # A unit of size s holds the key and s - 1 keys of its own, which is all that its weight depends on.
            held = [[(s, n) for s in mix for _ in range(n // 3 + (n % 3 > 0))] for n in numbers]
            weight = selector.weight.of_keys(3)
            sums = np.array([sum(weight[s - 1] for s, _ in each[:n]) for each, n in zip(held, numbers, strict=True)])
            for size in (1, 2, 3):
                more = np.array([weight[size - 1]] * size + [0] * (3 - size))
                after, before = (selector.reporting_probability(each) for each in (sums + more, sums))
                worst = max(worst, rounded_delta(after, before, EPSILON))
    assert 0.3 * DELTA < worst <= DELTA


def test_a_cut_after_the_draw_would_break_the_promise():
    """What the floor must not be: the same table, and true counts below it left out."""
    selector = with_floor(1)
    at, below = selector.reporting_probability(np.array([20, 19]) * selector.heaviest)
    assert at > 0.9 and rounded_delta([at], [0.0], EPSILON) > 10 * DELTA  # cut at 20: `below` would become 0
    assert below > 0.9


@pytest.mark.parametrize("name", ["renyi", "renyi_two_rounds", "weighted_gaussian", "greedy", "one_key"])
def test_fewer_units_never_select_a_key(name):
    """Heavy and light units: none of 500 keys of F - 1 units, and all of a key of many."""
    floor, keys = 6, 1 if name == "one_key" else 3
    selector = make_selector(name, 15.0, 0.3, keys, typical_keys=keys, unit="one user", min_units=floor)
    units = [[f"{key}"] for key in range(500) for _ in range(floor - 1)]
    units += [["many", f"{u} a", f"{u} b"][:keys] for u in range(60)]
    held = Pairs.of(units)
    selected = held.keys["key"].filter(selector.select(held, SystemSource())).to_pylist()
    assert "many" in selected
    assert not {str(key) for key in range(500)} & set(selected)
    assert not [key for key in selected if key.endswith((" a", " b"))]


def test_the_floor_raises_what_is_needed_by_its_height():
    for make in (renyi_selection, two_rounds):
        plain = make(1.0, 1e-5, 10, typical_keys=10)
        high = make_selector(plain.name, 1.0, 1e-5, 10, typical_keys=10, unit="one user", min_units=21)
        added = high.users_needed(10) - plain.users_needed(10)
        assert added == pytest.approx(20 * high.heaviest / high.weight.of_keys(10)[-1])


def test_saved_selectors_without_a_floor_look_as_before():
    plain = weighted_gaussian(1.0, 1e-5, 10)
    assert "min_units" not in plain.to_json()
    high = make_selector("weighted_gaussian", 1.0, 1e-5, 10, typical_keys=None, unit="one row", min_units=4)
    assert high.to_json()["min_units"] == 4 and type(high).__name__ == "WeightedGaussian"
