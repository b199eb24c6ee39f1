"""Counts in two steps: keys are found, then counted with what is left of the budget."""

import dataclasses
import math

import numpy as np
import pytest
from helpers.searched_units import climbed_curves, worst_after_a_look
from helpers.statistical import binomial_band
from scipy.special import expit, ndtri

from dpsieve.discovery.find_then_count import CANDIDATES, find_then_count
from dpsieve.discovery.renyi import renyi_selection
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue, NotCertified
from dpsieve.noise.keys_per_unit import KINDS_OF_KEYS
from dpsieve.privacy.guarantee import Contribution
from dpsieve.privacy.mechanism import from_json
from dpsieve.randomness import SystemSource
from dpsieve.testing import insecure_source

SOURCE = SystemSource()


@pytest.fixture(scope="module")
def ordinary():
    return find_then_count(1.0, 1e-8, 100, kept_epsilon=0.01, typical_keys=8)


def units_of(count, seed, keys=300, most=40):
    """Units with 1 to `most` of these keys, some far more common than others."""
    rng, chances = np.random.default_rng(seed), 1 / np.arange(1, keys + 1)
    sizes = rng.integers(1, most + 1, count)
    return [rng.choice(keys, size, p=chances / chances.sum()).tolist() for size in sizes]


def test_common_keys_come_out_with_counts_near_the_truth(ordinary):
    """The error of the 100 most common keys is near that of noise alone; it varies by a few per cent between runs."""
    held = Pairs.of(units_of(20_000, 1))
    found = ordinary.find(held, insecure_source(1))
    true = dict(zip(held.keys["key"].to_pylist(), held.counts().tolist(), strict=True))
    counted = dict(zip(found.keys["key"].to_pylist(), found.outcome.tokens.tolist(), strict=True))
    common = sorted(true, key=true.get, reverse=True)[:100]
    errors = [abs(true[key] - counted.get(key, 0)) for key in common]
    keys = found.keys_per_unit
    assert keys in (5, 7, 10, 14, 20, 30, 50) and np.mean(errors) < 2 * ordinary.scale(keys)
    assert found.outcome.drawn == {"keys": keys} and ordinary.keys is None
    assert found.kept is None, "20,000 units are too few to state the share of pairs at epsilon 0.01"
    assert ordinary.reports_coverage and not dataclasses.replace(ordinary, kept_epsilon=0.0).reports_coverage


def test_the_share_of_counted_pairs_is_stated_where_it_is_known_well():
    made = find_then_count(10.0, 1e-8, 100, kept_epsilon=0.5, typical_keys=8)
    kept = made.find(Pairs.of(units_of(20_000, 1)), SOURCE).kept
    assert kept.key == KINDS_OF_KEYS[1] and 0 <= kept.low <= kept.share <= kept.high <= 1


def test_the_noise_is_the_only_error_where_no_unit_is_cut():
    """95 % of the intervals hold the true count; the band is left once in 10^9 runs."""
    made = find_then_count(2.0, 1e-6, 20, keys=20)
    held = Pairs.of([[*range(8)]] * 3_000)
    inside = 0
    for _ in range(200):
        found = made.find(held, SOURCE)
        read = made.reader(found.outcome.drawn).read(found.outcome.tokens)
        inside += int(((read.low <= 3_000) & (read.high >= 3_000)).sum())
    low, high = binomial_band(200 * 8, 0.95)
    assert low <= inside <= high + 10  # the interval is in whole numbers, so a little wider


def test_one_unit_more_changes_losses_by_at_most_twenty_and_counts_by_one(ordinary):
    """The sensitivities of the proof, on random neighbours: any unit, and any ranks."""
    rng = np.random.default_rng(2)
    for trial in range(60):
        units = units_of(80, trial, keys=150, most=120)
        order = rng.permutation(150)
        both = [Pairs.of([[*range(150)], *units]), Pairs.of([[*range(150)], *units, [*rng.permutation(150)]])]
        ranked = [held.rank(order[: rng.integers(1, 150)]) if not trial % 2 else held.rank(order) for held in both]
        more = ordinary.losses(ranked[1]) - ordinary.losses(ranked[0])
        if ranked[0].keys.num_rows == ranked[1].keys.num_rows:
            assert more.min() >= 0 and more.max() <= 20
            for keys in (1, 3, 10):
                change = ranked[1].bound(keys).counts() - ranked[0].bound(keys).counts()
                assert set(change.tolist()) <= {0, 1} and change.sum() <= keys


def test_a_unit_keeps_the_keys_that_rank_highest():
    held = Pairs.of([["a", "b", "c"], ["c", "b"], ["d"]])
    ranked = held.rank(np.array([2, 0, 1]))  # c, a, b; d was not found
    kept = ranked.bound(1)
    assert ranked.keys["key"].to_pylist() == ["c", "a", "b"]
    assert kept.counts().tolist() == [2, 0, 0] and ranked.bound(2).counts().tolist() == [2, 1, 1]


def test_no_unit_is_counted_in_more_keys_than_it_may():
    """900 units hold the same ten keys, and are counted in two of them: some 1,800 in all, not 9,000."""
    found = find_then_count(50.0, 1e-6, 10, keys=2).find(Pairs.of([[*range(10)]] * 900), SOURCE)
    assert len(found.outcome.tokens) == 10 and abs(found.outcome.tokens.sum() - 1_800) < 100


def test_losses_are_what_the_bound_cuts_off():
    held = Pairs.of([[*range(5)], [*range(30)], [0]])
    found = dict(zip(CANDIDATES, find_then_count(1.0, 1e-6, 30).losses(held).tolist(), strict=True))
    assert (found[1], found[4], found[10], found[30]) == (4 + 20, 1 + 20, 20, 0)


def test_the_cost_of_step_two_is_that_of_one_gaussian(ordinary):
    """Recomputed: a choice of bounded range, a pure histogram and noise: one Gaussian with 57 % of the weight."""
    selector, a = ordinary.selector, ordinary.selector.power
    told = [2 * ndtri(expit(x)) for x in (ordinary.choice_epsilon / 2, ordinary.kept_epsilon)]
    mu2 = sum(x**2 for x in told) + 1 / ordinary.sigma**2
    c = math.sqrt(a * (a + 1))
    t = c * np.tan((np.arange(100_000) + 0.5) * (math.pi / 2 / 100_000))
    number = math.exp(-a) / (2 * c) * np.mean(np.exp((c**2 - t**2) * mu2 / 2 / 0.57))
    assert 0.999 * selector.rest < number <= selector.rest
    whole = ordinary.certify().parts[-1]
    assert whole.scope == "one unit" and whole.worst == selector.cost <= 1e-8


@pytest.mark.parametrize(("delta", "typical_keys"), [(1e-5, 1), (1e-5, 8), (1e-8, 8), (1e-8, 20)])
def test_the_worst_rule_for_weights_uses_three_quarters_of_delta_with_the_counts(delta, typical_keys):
    """For every value of the look's loss the worst of many units, by exact curves of coins and noise together."""
    mechanism = find_then_count(1.0, delta, 100, typical_keys=typical_keys)
    selector = mechanism.selector
    mu, sizes = selector.look_mu, {selector.least, 16, 64}  # of the last two the squared weights sum to one
    units = [(keys, math.isqrt(4**selector.bits // keys)) for keys in sizes]
    epsilons = 1.0 - np.linspace(-3, 5, 33) * mu
    curves = climbed_curves(selector, units, 40, epsilons, mechanism.distance)
    assert 0.75 * delta < worst_after_a_look(curves, 1.0, epsilons, mu) <= delta


@pytest.mark.parametrize("change", [{"sigma": 0.99}, {"choice_epsilon": 2.0}, {"kept_epsilon": 20.0}])
def test_forged_numbers_are_refused(ordinary, change):
    ((name, factor),) = change.items()
    with pytest.raises(NotCertified):
        dataclasses.replace(ordinary, **{name: getattr(ordinary, name) * factor})


def test_the_noise_grows_with_the_root_of_the_keys(ordinary):
    for keys in (1, 7, 100):
        fixed = dataclasses.replace(ordinary, keys=keys, choice_epsilon=0.0)
        for scale in (fixed.reader({}).scale, ordinary.reader({"keys": keys}).scale):
            assert scale == pytest.approx(ordinary.sigma * math.sqrt(keys), rel=1e-12)
            assert keys / scale**2 <= 1 / ordinary.sigma**2  # never less noise than was paid for
        assert ordinary.contribution_given({"keys": keys}) == fixed.contribution == Contribution(keys)
        assert from_json(fixed.to_json()) == fixed
    assert from_json(ordinary.to_json()) == ordinary and ordinary.contribution == Contribution(100)


@pytest.mark.parametrize("drawn", [{}, {"keys": 6}, {"keys": 7.0}, {"keys": True}, {"keys": 0}, {"lost": 7}, None])
def test_a_number_of_keys_that_cannot_be_chosen_is_refused(ordinary, drawn):
    with pytest.raises(InvalidValue, match="drawn"):
        ordinary.reader(drawn)
    with pytest.raises(InvalidValue, match="drawn"):
        dataclasses.replace(ordinary, keys=7, choice_epsilon=0.0).reader({"keys": 7})


def test_bad_arguments(ordinary):
    with pytest.raises(InvalidType, match="ranks"):
        dataclasses.replace(ordinary, selector=renyi_selection(1.0, 1e-8, 100, share=0.4))
    for wrong in ({"keys": 0}, {"keys": 7}, {"choice_epsilon": 0.0}):
        with pytest.raises(DpsieveError, match="keys"):
            dataclasses.replace(ordinary, **wrong)


def test_nothing_to_find(ordinary):
    found = ordinary.find(Pairs.of([["a"], ["b", "c"]]), SOURCE)
    assert found.keys.num_rows == len(found.outcome.tokens) == 0 and found.outcome.drawn == {"keys": 1}
