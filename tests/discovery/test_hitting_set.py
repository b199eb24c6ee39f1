"""Hitting sets: keys that together are held by many units, found and picked privately."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from helpers.searched_units import worst_before_laws
from helpers.statistical import FALSE_ALARM, assert_counts
from scipy import stats

from dpsieve.accounting.exponential_picks import hitting_delta, hitting_law, lemma_epsilon
from dpsieve.discovery.picks import hitting_keys, peel, top_keys
from dpsieve.discovery.renyi import renyi_selection
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.papers.missing_mass.algorithms import greedy_keys, known_domain_keys, paper_hitting_keys
from dpsieve.papers.missing_mass.measures import hits
from dpsieve.privacy.mechanism import from_json
from dpsieve.randomness import SystemSource
from dpsieve.testing import insecure_source

SOURCE = SystemSource()


@pytest.fixture(scope="module")
def three():
    return hitting_keys(1.0, 1e-5, 10, k=3)


def test_a_key_that_hits_nobody_new_is_left_out(three):
    # 'twin' is held by the same units as 'big', so after 'big' it hits nobody.
    units = [["big", "twin"]] * 4000 + [["middle"]] * 2000 + [["small"]] * 1000 + [["alone"]]
    held = Pairs.of(units)
    found = held.restrict(three.selector.select(held, insecure_source(1)))  # 'alone' would show with chance delta
    names = found.keys["key"].to_pylist()
    assert set(names) == {"big", "twin", "middle", "small"}
    picked = three.pick(found, SOURCE)
    assert {names[i] for i in picked} in ({"big", "middle", "small"}, {"twin", "middle", "small"})
    assert hits(found, picked) == 7000
    top = top_keys(1.0, 1e-5, 10, k=3).pick(found.counts(), SOURCE)
    assert hits(found, top) == 6000


def test_the_guarantee_is_certified_and_saved(three):
    certificate = three.certify()
    assert certificate.worst <= 1e-5
    assert certificate.parts[-1].method == "formula"
    assert from_json(three.to_json()) == three
    for change in ({"each_epsilon": 1.0}, {"delta": 1e-6}, {"epsilon": 0.9}):
        with pytest.raises(NotCertified):
            replace(three, **change)


def test_many_picks_cost_little_more_than_some():
    some, many = (hitting_keys(1.0, 1e-5, 10, k=k).each_epsilon for k in (50, 200))
    assert many > 0.75 * some
    assert many > 1.9 * top_keys(1.0, 1e-5, 10, k=200, share=0.5).each_epsilon


def test_any_selector_with_a_part_of_the_budget():
    selector = renyi_selection(0.5, 5e-6, 10)
    best = hitting_keys(1.0, 1e-5, 10, k=50, selector=selector)
    paper = paper_hitting_keys(1.0, 1e-5, 10, k=50, selector=selector)
    assert paper.each_epsilon == pytest.approx(lemma_epsilon(0.5, 5e-6, 50))
    assert best.each_epsilon > 1.5 * paper.each_epsilon
    with pytest.raises(InvalidValue, match="selector spends all"):
        hitting_keys(1.0, 1e-5, 10, k=5, selector=renyi_selection(1.0, 1e-5, 10))
    with pytest.raises(InvalidValue, match="max_keys=9 is not"):
        hitting_keys(1.0, 1e-5, 9, k=5, selector=selector)


def test_nothing_found_and_k_above_the_domain(three):
    assert three.pick(Pairs.of([]), SOURCE).tolist() == []
    # All units are hit by the first pick, and the picks still continue: stopping would tell.
    assert sorted(three.pick(Pairs.of([["a", "b"]]), SOURCE).tolist()) == [0, 1]


def test_baselines():
    generator = np.random.default_rng(2)
    units = [generator.choice(12, generator.integers(1, 4), replace=False).tolist() for _ in range(60)]
    held = Pairs.of(units)
    left, expected = [set(unit) for unit in units], []
    names = held.keys["key"].to_pylist()
    for _ in range(4):  # greedy in plain Python
        best = max((n for n in names if n not in expected), key=lambda n: sum(n in unit for unit in left))
        expected.append(best)
        left = [unit for unit in left if best not in unit]
    greedy = greedy_keys(held, 4)
    assert [names[i] for i in greedy] == expected
    assert hits(held, greedy) == 60 - len(left)
    many = Pairs.of(units * 2000)
    assert hits(many, known_domain_keys(many, 4, 1.0, 1e-5)) >= 0.97 * hits(many, greedy)


def test_restricting_keeps_units_and_their_order():
    held = Pairs.of([["a", "b"], ["c"], ["b", "c", "a"]])
    small = held.restrict(np.array([False, True, True]))
    assert small.keys["key"].to_pylist() == ["b", "c"]
    assert [small.key_numbers[s:e].tolist() for s, e in itertools.pairwise(small.starts)] == [[0], [1], [0, 1]]


# Privacy of the picks, by enumeration.


def peeling(units, keys, k, e0):
    """The probability of every sequence of k picks of user peeling."""
    chances = {(): 1.0}
    for _ in range(k):
        grown = {}
        for order, chance in chances.items():
            left = [unit for unit in units if not unit & set(order)]
            weights = {key: math.exp(e0 * sum(key in unit for unit in left)) for key in range(keys) if key not in order}
            total = sum(weights.values())
            grown.update({(*order, key): chance * weight / total for key, weight in weights.items()})
        chances = grown
    return chances


def gaps(units, mine, keys, k, e0, epsilon):
    """The divergences at epsilon from without to with the unit, and from with to without."""
    without, with_it = peeling(units, keys, k, e0), peeling([*units, mine], keys, k, e0)
    pairs = ((without, with_it), (with_it, without))
    return [sum(max(0.0, one[o] - math.exp(epsilon) * other[o]) for o in one) for one, other in pairs]


@pytest.mark.parametrize(("keys", "k", "e0", "epsilon"), [(4, 2, 0.6, 0.7), (4, 3, 0.5, 0.6), (5, 3, 0.4, 0.4)])
def test_no_neighbours_differ_by_more_than_the_curve(keys, k, e0, epsilon):
    generator, bound = np.random.default_rng(7), hitting_delta(k, epsilon, each_epsilon=e0)
    worst = 0.0
    for _ in range(5):
        units = [set(np.flatnonzero(generator.integers(0, 2, keys)).tolist()) for _ in range(5)]
        mine = {0, 1}
        found = max(gaps(units, mine, keys, k, e0, epsilon))
        for _ in range(25):  # descent: give or take one key of one unit, or of the unit itself
            moved, own = [set(unit) for unit in units], set(mine)
            which = generator.integers(len(moved) + 1)
            (moved[which] if which < len(moved) else own).symmetric_difference_update({int(generator.integers(keys))})
            if (higher := max(gaps(moved, own, keys, k, e0, epsilon))) > found:
                units, mine, found = moved, own, higher
        assert gaps(units, mine, keys, k, e0, e0)[1] <= 1e-12  # with to without: never above e0
        worst = max(worst, found)
    assert worst <= bound
    assert worst >= 0.3 * bound


def test_picks_follow_the_enumerated_probabilities():
    units = [{0, 1}, {0}, {1, 2}, {2}, {2, 3}, {0, 3}]
    held = Pairs(Pairs.of([range(4)]).keys, *csr(units))
    chances = peeling(units, 4, 2, 0.7)
    seen = dict.fromkeys(chances, 0)
    for _ in range(2000):
        seen[tuple(peel(held, 2, 1 / 0.7, SOURCE).tolist())] += 1
    assert_counts(np.array(list(seen.values()), float), 2000 * np.array(list(chances.values())))


def csr(units):
    """The starts and the keys of units."""
    lists = [sorted(unit) for unit in units]
    return np.cumsum([0, *map(len, lists)]), np.array([key for each in lists for key in each], np.int32)


def test_a_unit_alone_with_all_its_keys_shows_with_probability_delta_at_most():
    mechanism = hitting_keys(1.0, 0.05, 8, k=10)
    held = Pairs.of([[f"own {i}" for i in range(8)], *[["common"]] * 200])
    shown, runs = 0, 1000
    for _ in range(runs):
        chosen = mechanism.selector.select(held, SOURCE)
        found = held.restrict(chosen)
        shown += bool((np.flatnonzero(chosen)[mechanism.pick(found, SOURCE)] < 8).any())
    assert stats.binom.sf(shown - 1, runs, 0.05) > FALSE_ALARM
    assert shown > 0


@pytest.mark.parametrize(("epsilon", "delta", "typical_keys"), [(1.0, 1e-5, 1), (1.0, 1e-8, 8), (0.5, 1e-6, 20)])
def test_selection_and_picks_use_three_quarters_of_delta(epsilon, delta, typical_keys):
    """Exact curves of coins, before the law of the picks: none above delta, the worst above 0.75 of it."""
    mechanism = hitting_keys(epsilon, delta, 100, k=20, typical_keys=typical_keys)
    law = hitting_law(20, mechanism.each_epsilon, 3 * epsilon)
    sizes = sorted({typical_keys, 2 * typical_keys, 16, 40, 60})
    worst = worst_before_laws(mechanism.selector, sizes, 60, epsilon, (law.reversed(), law))
    assert 0.75 * delta < worst <= delta
