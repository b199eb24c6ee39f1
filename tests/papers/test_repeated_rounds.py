"""Several rounds: what a round selects is dropped, units put their weight on the rest, and all rounds are paid for."""

import json

import numpy as np
import pytest
from discovery.neighbours import assert_rate, by_key, divergence, outcomes, worst_of
from scipy import stats

from dpsieve.accounting.curves import gaussian_delta
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import DpsieveError, NotCertified
from dpsieve.papers.missing_mass.algorithms import paper_weighted_gaussian
from dpsieve.papers.missing_mass.repeated_rounds import repeated_rounds
from dpsieve.papers.missing_mass.weighted_gaussian import weighted_gaussian
from dpsieve.privacy import Composition
from dpsieve.privacy.guarantee import Weight
from dpsieve.privacy.mechanism import from_json
from dpsieve.testing import insecure_source


def test_units_put_their_weight_on_what_is_left():
    held = Pairs.of([["a", "b", "c", "d"], ["a"], ["a", "d"]])
    left = held.filter(~np.array([True, False, False, False])[held.key_numbers])
    assert left.sizes.tolist() == [3, 0, 1]
    assert left.weights(Weight(10)).tolist() == [0, 591, 591, 591 + 1024]


def test_budgets_grow_and_add_up():
    selector = repeated_rounds(1.0, 1e-6, 50, rounds=3, growth=4.0)
    budgets = [sigma**-2 for sigma in selector.sigmas]
    assert budgets[1] / budgets[0] == pytest.approx(4) and budgets[2] / budgets[1] == pytest.approx(4)
    assert list(selector.thresholds) == sorted(selector.thresholds, reverse=True)
    noise = gaussian_delta(sum(budgets) ** -0.5, 1.0)
    leaks = [spend.delta for spend in selector.spends()[3:]]
    silent = np.prod([1 - leak for leak in leaks])
    assert selector.certify().worst == pytest.approx(1 - silent + silent * noise, rel=1e-6)
    assert 0.999e-6 < selector.certify().worst <= 1e-6


def test_one_round_is_the_weighted_mechanism_without_its_exact_analysis():
    one = repeated_rounds(1.0, 1e-5, 100, rounds=1)
    lowest = weighted_gaussian(1.0, 1e-5, 100).threshold
    assert lowest < one.thresholds[0] <= paper_weighted_gaussian(1.0, 1e-5, 100).threshold


def test_a_unit_alone_shows_a_key_as_often_as_the_formula_says():
    selector = repeated_rounds(1.0, 0.05, 20, rounds=2)
    silent = [
        stats.norm.cdf((threshold - 20**-0.5) / sigma) ** 20
        for sigma, threshold in zip(selector.sigmas, selector.thresholds, strict=True)
    ]
    # A unit that shows a key in round one may show more in round two, which does not count again.
    assert_rate(selector, 20, 1 - silent[0] * silent[1])


def paths(selector, units):
    """Return the probability of every sequence of sets, one for each round, in which keys are selected."""
    found = {(): 1.0}
    for sigma, threshold in zip(selector.sigmas, selector.thresholds, strict=True):
        after = {}
        for path, chance in found.items():
            dropped = frozenset().union(*path)

            def chances(held, sigma=sigma, threshold=threshold):
                weights = held.weights(Weight(30)) / 2**30
                return np.where(weights > 0, stats.norm.cdf((weights - threshold) / sigma), 0)

            left = [[key for key in unit if key not in dropped] for unit in units]
            for chosen, share in outcomes(by_key(left, chances)).items():
                after[(*path, chosen)] = chance * share
        found = after
    return found


def test_no_small_neighbours_are_further_apart_than_promised():
    """All sequences of results are looked at: dropped keys change the weights of other keys, for all units."""
    selector = repeated_rounds(1.0, 0.2, 3, rounds=2, growth=1.0)

    def score(units, out):
        return divergence(paths(selector, units), paths(selector, units[:out] + units[out + 1 :]), selector.epsilon)

    assert 0.3 * selector.delta < worst_of(score, keys=3, most_units=6, tries=4, steps=15) <= selector.delta


def test_it_finds_more_keys_than_one_round():
    rng = np.random.default_rng(1)
    units = [[f"key {int(n)}" for n in rng.zipf(1.2, 20) % 2000] for _ in range(5000)]
    held = Pairs.of(units)
    several = repeated_rounds(1.0, 1e-5, 20).select(held, insecure_source(1)).sum()
    assert several > 1.1 * weighted_gaussian(1.0, 1e-5, 20).select(held, insecure_source(1)).sum()


def test_it_is_saved_and_forged_fields_are_refused():
    selector = repeated_rounds(1.0, 1e-6, 10, rounds=2)
    saved = json.loads(json.dumps(selector.to_json()))
    assert from_json(saved) == selector and hash(from_json(saved)) == hash(selector)
    assert Composition(selector.spends()).delta(1.0) == selector.certify().worst
    for forged in (
        {"thresholds": [0.99 * one for one in saved["thresholds"]]},
        {"sigmas": [0.99 * one for one in saved["sigmas"]]},
        {"max_keys": 20},
    ):
        with pytest.raises(NotCertified):
            from_json({**saved, **forged})
    for wrong in ({"sigmas": []}, {"sigmas": ["1", "2"]}, {"sigmas": 3.0}, {"sigmas": saved["sigmas"][:1]}):
        with pytest.raises(DpsieveError):
            from_json({**saved, **wrong})
    with pytest.raises(DpsieveError, match="rounds"):
        repeated_rounds(1.0, 1e-6, 10, rounds=9)
    assert selector.select(Pairs.of([]), None).tolist() == []
