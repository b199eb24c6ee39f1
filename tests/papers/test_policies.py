"""Policies: units add weights one after the other. Only some of them move by at most 1 where a unit is left out."""

import itertools
import json
import math
import time

import numpy as np
import pytest
from discovery.neighbours import alone, assert_rate, by_key, difference, divergence, outcomes, worst_of
from scipy import stats

from dpsieve.engines.true_data import Pairs
from dpsieve.errors import DpsieveError, NotCertified
from dpsieve.papers.missing_mass.policies import STEPS, policy_gaussian, policy_greedy
from dpsieve.papers.missing_mass.policy_loops import descend, fill_in_order
from dpsieve.papers.missing_mass.weighted_gaussian import weighted_gaussian
from dpsieve.privacy import Composition
from dpsieve.privacy.mechanism import from_json
from dpsieve.testing import insecure_source

USERS = [[1, 2, 3], [1, 2, 4], [5], [1, 5, 6], [7, 8], [1], [2, 3], [5, 7]]
# The sums of keys 1 to 8 by cutoff, computed elsewhere.
DESCENT = {
    1.0: [1.0, 1.0, 1.0, 0.8583562635740487, 1.0, 0.9982128520439527, 1.0, 0.7071067811865475],
    1.5: [1.5, 1.4865044138611365, 1.4728463776111886, 0.754486973471485, 1.5, 0.9111377386562812, 1.5, 0.70710678118],
    2.0: [2.0, 1.6223469558982726, 1.416751652968371, 0.7050008936202005, 1.8266149497740918, 0.8270010765484531,
          1.6177859140380255, 0.7071067811865475],
    3.0: [2.5737388439231683, 1.724571833724754, 1.365695638333097, 0.658768716175283, 2.0409395350598785,
          0.7368850301010414, 1.5424802104122919, 0.7071067811865476],
}  # fmt: skip
IN_ORDER = {
    1.0: [1, 1, 1, 0, 1, 1, 1, 0], 1.5: [1.5, 1.5, 0, 0, 1.5, 0.5, 1.5, 0],
    2.0: [2, 1, 0, 0, 2, 0, 2, 0], 3.0: [3, 1, 0, 0, 2, 0, 1, 0],
}  # fmt: skip


def descent(cutoff):
    def sums_of(held):
        sums = np.zeros(held.keys.num_rows)
        descend(held.starts, held.key_numbers, cutoff, sums)
        return sums

    return sums_of


def in_order(cutoff):
    def sums_of(held):
        sums = np.zeros(held.keys.num_rows, np.int64)
        fill_in_order(held.starts, held.key_numbers, int(cutoff * STEPS), STEPS, sums)
        return sums / STEPS

    return sums_of


def max_sum(cutoff):
    """A policy of public code: fill keys by name while that leaves enough for the others, then share what is left."""

    def sums_of(held):
        sums = np.zeros(held.keys.num_rows)
        for start, stop in zip(held.starts, held.starts[1:], strict=False):
            names = held.keys["key"].to_numpy()
            open_ = sorted((k for k in held.key_numbers[start:stop] if sums[k] < cutoff), key=lambda k: names[k])
            left = 1.0
            while open_ and (cutoff - sums[open_[0]]) ** 2 * len(open_) < left:
                left -= (cutoff - sums[open_[0]]) ** 2
                sums[open_.pop(0)] = cutoff
            sums[open_] += math.sqrt(left / max(1, len(open_)))
        return sums

    return sums_of


@pytest.mark.parametrize("cutoff", DESCENT)
def test_reference_sums(cutoff):
    found = by_key(USERS, descent(cutoff))
    assert [found[key] for key in range(1, 9)] == pytest.approx(DESCENT[cutoff], rel=1e-9)
    found = by_key(USERS, in_order(cutoff))
    assert [found[key] for key in range(1, 9)] == IN_ORDER[cutoff]


def test_a_policy_of_public_code_moves_by_more_than_one():
    units = [[2], [2, 1], [1], [2, 3], [2, 1, 3], [2, 3], [3, 1, 2]]
    assert np.linalg.norm(difference(units, 5, max_sum(3.0))) == pytest.approx(1.2715, abs=1e-4)
    assert np.linalg.norm(difference(units, 5, descent(3.0))) <= 1 + 1e-12
    assert np.abs(difference(units, 5, in_order(3.0))).sum() <= 1


@pytest.mark.parametrize("cutoff", [1.0, 1.3, 3.0])
def test_one_unit_moves_the_sums_by_one_at_most(cutoff):
    """The search finds neighbours of the other policy that are further apart, and none of these two."""

    def search(policy, norm, tries=12):
        sums_of = policy(cutoff)
        return worst_of(lambda units, out: np.linalg.norm(difference(units, out, sums_of), norm), tries=tries)

    assert 1 - 1e-12 <= search(descent, 2) <= 1 + 1e-12
    assert search(in_order, 1) == 1
    if cutoff == 3.0:
        assert search(max_sum, 2, tries=30) > 1.1


def test_new_keys_get_equal_weights_and_leave_the_rest_to_others():
    """With j new keys of weight w, the others move by at most sqrt(1 - j w^2), and w^2 is between 1/s and 1/j."""

    def score(units, out):
        others = {key for place, unit in enumerate(units) if place != out for key in unit}
        new = [place for place, key in enumerate(dict.fromkeys(itertools.chain(*units))) if key not in others]
        changed = difference(units, out, descent(1.5))
        weights = changed[new]
        if len(new):
            assert np.ptp(weights) == 0
            assert 1 / len(units[out]) - 1e-12 <= weights[0] ** 2 <= 1 / len(new) + 1e-12
        return (changed**2).sum()

    assert worst_of(score, keys=6, tries=10, steps=30) <= 1 + 1e-12


def risen(units, out, sums_of):
    """Return how many keys have weight only where unit number `out` takes part."""
    with_it, without = by_key(units, sums_of), by_key(units[:out] + units[out + 1 :], sums_of)
    return sum(value > 0 and without.get(key, 0) == 0 for key, value in with_it.items())


def test_a_whole_cutoff_lets_one_unit_raise_one_key():
    """Between whole weights one unit can raise several keys from nothing, which the threshold does not allow for."""

    def most(cutoff):
        return worst_of(lambda units, out: risen(units, out, in_order(cutoff)), keys=6, most_units=14, tries=10)

    assert most(1.0) == most(2.0) == 1
    assert most(1.75) > 1
    selector = policy_greedy(0.7, 1e-4, 9)
    assert selector.cutoff == round(selector.cutoff) >= selector.threshold + 3 * math.sqrt(2) / 0.7 - 1e-3


def test_rounding_stays_far_below_its_bound():
    """The doubles of 2,000 units against the same steps with 50 digits."""
    import mpmath

    rng = np.random.default_rng(3)
    units = [rng.choice(600, rng.integers(1, 12), replace=False).tolist() for _ in range(2000)]
    selector = policy_gaussian(1.0, 1e-5, 12, max_units=2000)
    found = by_key(units, selector.sums)
    with mpmath.workdps(50):
        exact, cutoff = {}, mpmath.mpf(selector.cutoff)
        for unit in units:
            gaps = [cutoff - exact.get(key, 0) for key in unit]
            norm = mpmath.sqrt(sum(gap**2 for gap in gaps))
            for key, gap in zip(unit, gaps, strict=True):
                exact[key] = exact.get(key, 0) + gap / max(1, norm)
        error = math.sqrt(sum(float(found[key] - exact[key]) ** 2 for key in exact))
    assert 0 < error < (selector.sensitivity - 1) / 2


def test_the_threshold_is_that_of_the_weighted_mechanism():
    weighted, policy = weighted_gaussian(1.0, 1e-5, 100), policy_gaussian(1.0, 1e-5, 100)
    assert weighted.threshold < policy.threshold < 1.001 * weighted.threshold
    assert policy.cutoff == policy.threshold + 3 * policy.sigma
    rounding = (100 / 2 + 6 + 10 * policy.cutoff) * 2**-53  # of one unit
    assert policy.sensitivity - 1 == pytest.approx(2 * (10**8 + 1) * rounding, rel=0.01)
    assert policy_gaussian(0.1, 1e-12, 10_000, max_units=10**9).sensitivity < 1.05


@pytest.mark.parametrize("keys", [1, 20])
def test_a_unit_alone_shows_a_key_as_often_as_the_formula_says(keys):
    selector = policy_gaussian(1.0, 0.05, 20)
    expected = 1 - stats.norm.cdf((selector.threshold - keys**-0.5) / selector.sigma) ** keys
    assert_rate(selector, keys, expected)
    assert expected <= selector.spends()[1].delta


def test_a_unit_alone_shows_its_first_key_with_probability_delta():
    selector = policy_greedy(1.0, 0.05, 20)
    assert_rate(selector, 20, 0.05)
    assert not selector.sums(alone(5, 20)).reshape(5, 20)[:, 1:].any()
    assert selector.certify().worst > 0.9999 * 0.05  # the step of 2^-16 costs next to nothing


def gaussian_chances(selector):
    def of(held):
        sums = selector.sums(held)
        return np.where(sums > 0, stats.norm.cdf((sums - selector.threshold) / selector.sigma), 0)

    return of


def laplace_chances(selector):
    def of(held):
        gap = (selector.steps - selector.sums(held)) / selector.scale
        return np.where(selector.sums(held) > 0, stats.laplace.sf(gap), 0)

    return of


@pytest.mark.parametrize(
    ("selector", "chances"),
    [(policy_gaussian(1.0, 0.05, 4), gaussian_chances), (policy_greedy(1.0, 0.05, 4), laplace_chances)],
    ids=["gaussian", "greedy"],
)
def test_no_small_neighbours_are_further_apart_than_promised(selector, chances):
    of = chances(selector)

    def score(units, out):
        pair = [outcomes(by_key(each, of)) for each in (units, units[:out] + units[out + 1 :])]
        return divergence(*pair, selector.epsilon)

    assert 0.7 * selector.delta < worst_of(score, tries=8, steps=30) <= selector.delta * (1 + 1e-4)


@pytest.mark.parametrize("maker", [policy_gaussian, policy_greedy])
def test_it_selects_what_many_hold_and_is_saved(maker):
    selector = maker(1.0, 1e-8, 2)
    held = Pairs.of([["often", f"once {i}"] for i in range(400)])
    assert selector.select(held, insecure_source(1)).tolist() == [True] + [False] * 400
    assert selector.select(Pairs.of([]), None).tolist() == []
    saved = json.loads(json.dumps(selector.to_json()))
    assert from_json(saved) == selector and Composition(selector.spends()).delta(1.0) < 2.1e-8


@pytest.mark.parametrize(("maker", "unit"), [(policy_gaussian, "sigma"), (policy_greedy, None)])
def test_alpha_moves_the_cutoff_and_nothing_else(maker, unit):
    """A unit alone reaches the same sums, so the threshold stays; the cutoff is alpha deviations above it."""
    low, high = maker(1.0, 1e-6, 20, alpha=1.0), maker(1.0, 1e-6, 20, alpha=5.0)
    assert low.threshold == pytest.approx(high.threshold, rel=1e-5) and low.certify().worst <= 1e-6
    for policy, alpha in ((low, 1.0), (high, 5.0)):
        step = policy.sigma if unit else math.sqrt(2)
        assert -1e-9 < policy.cutoff - policy.threshold - alpha * step < (1e-9 if unit else 1.001)
    held = alone(1, 3)
    many = Pairs(held.keys, np.arange(0, 3 * 400 + 1, 3), np.tile(held.key_numbers, 400))
    top = [np.max(policy.sums(many)) / (1 if unit else STEPS) for policy in (low, high)]
    assert top == pytest.approx([low.cutoff, high.cutoff])
    assert from_json(json.loads(json.dumps(high.to_json()))) == high and "alpha" not in maker(1.0, 1e-6, 20).to_json()
    with pytest.raises(DpsieveError, match="alpha"):
        maker(1.0, 1e-6, 20, alpha=-1.0)


def test_forged_fields_are_refused():
    saved = policy_gaussian(1.0, 1e-6, 30).to_json()
    for name, factor in [("threshold", 0.999), ("sigma", 0.99), ("delta", 0.9), ("max_keys", 2), ("max_units", 100)]:
        with pytest.raises(NotCertified):
            from_json({**saved, name: type(saved[name])(saved[name] * factor)})
    saved = policy_greedy(1.0, 1e-6, 30).to_json()
    with pytest.raises(NotCertified):
        from_json({**saved, "steps": saved["steps"] - 10})
    for wrong in ({"steps": 1}, {"steps": 1.5}):
        with pytest.raises(DpsieveError):
            from_json({**saved, **wrong})


def test_more_units_than_the_public_limit_are_refused():
    with pytest.raises(DpsieveError, match="max_units"):
        policy_gaussian(1.0, 1e-5, 3, max_units=5).select(alone(6, 3), None)
    with pytest.raises(DpsieveError, match="max_units"):
        policy_gaussian(0.001, 1e-12, 10_000, max_units=10**10)


def test_speed():
    """Five million entries a second; it does several times as many."""
    units, keys = 10_000, 100
    numbers = (np.arange(units)[:, None] * 7919 + np.arange(keys) * 611).astype(np.int32) % 60_000
    held = Pairs(alone(60_000, 1).keys, np.arange(0, units * keys + 1, keys), numbers.ravel())
    for selector in (policy_gaussian(1.0, 1e-5, keys), policy_greedy(1.0, 1e-5, keys)):
        selector.sums(held)
        start = time.process_time()
        selector.sums(held)
        assert units * keys / (time.process_time() - start + 1e-9) > 5e6
