"""Weights, Gaussian noise and a threshold: how low the threshold may be, and that no unit shows more than promised."""

import json
import math

import mpmath
import numpy as np
import pytest
from discovery.neighbours import assert_rate, by_key, difference, divergence, outcomes, worst_of
from helpers.scripted import Repeating, Scripted
from helpers.statistical import binomial_band
from scipy import integrate, stats
from scipy.special import ndtr as phi

from dpsieve.accounting.curves import gaussian_sigma
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import DpsieveError, NotCertified
from dpsieve.papers.missing_mass.algorithms import paper_threshold, paper_weighted_gaussian
from dpsieve.papers.missing_mass.weighted_gaussian import (
    _delta,
    exposures,
    sizes_delta,
    weighted_gaussian,
    whole_delta,
)
from dpsieve.privacy import Composition
from dpsieve.privacy.mechanism import from_json
from dpsieve.randomness import gaussian_test
from dpsieve.testing import insecure_source

# epsilon, half of delta, keys, sigma, threshold: Theorem 3.2 computed elsewhere, sigma to one part in 500
PAPER = [
    (0.1, 1e-5, 1, 30.75, 132.1453919131581), (0.1, 5e-7, 50, 37.8671875, 212.65212308663808),
    (0.5, 5e-6, 50, 7.3515625, 38.36467320257016), (1.0, 5e-6, 1, 3.884765625, 18.159683436302863),
    (1.0, 5e-6, 50, 3.884765625, 20.33962749926495), (2.0, 1e-6, 50, 2.2314453125, 12.393956567806505),
    (3.0, 5e-7, 50, 1.587890625, 9.052665450873983),
]  # fmt: skip


@pytest.mark.parametrize(("epsilon", "half", "keys", "sigma", "threshold"), PAPER)
def test_the_calibration_of_the_paper(epsilon, half, keys, sigma, threshold):
    selector = paper_weighted_gaussian(epsilon, 2 * half, keys)
    assert selector.sigma == pytest.approx(sigma, rel=2e-3)
    assert selector.threshold == pytest.approx(threshold, rel=2e-3)
    assert paper_threshold(sigma, half, keys) == pytest.approx(threshold, rel=1e-7)
    assert selector.certify().worst < 0.51 * selector.delta  # the exact analysis finds half of delta unused


@pytest.mark.parametrize(("keys", "units"), [(1, 16.9), (3, 30.1), (10, 57.1), (30, 103), (100, 195)])
def test_how_many_units_the_exact_calibration_needs(keys, units):
    assert weighted_gaussian(1.0, 1e-5, keys).units_needed(keys) == pytest.approx(units, rel=5e-3)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 0.05), (1.0, 1e-12), (0.001, 1e-20), (50.0, 1e-20)])
@pytest.mark.parametrize("keys", [1, 7, 10_000])
def test_no_other_noise_has_a_lower_threshold(epsilon, delta, keys):
    selector = weighted_gaussian(epsilon, delta, keys)
    sizes = np.arange(1, keys + 1)
    assert 0.999 * delta < selector.certify().worst <= delta
    for more in (1.003, 1.03, 1.3):
        sigma, lower = selector.sigma * more, selector.threshold * (1 - 1e-4)
        assert sizes_delta(epsilon, sigma, sizes * exposures(sigma, lower, 1 / np.sqrt(sizes))) > delta
    assert selector.sigma < gaussian_sigma(epsilon, delta) * 1.001


def formula(epsilon, sigma, threshold, size, new):
    """The divergence of a unit with `size` keys, `new` of them its own, in both directions, straight from its text."""
    silent = phi((threshold - size**-0.5) / sigma) ** new
    mu = math.sqrt((size - new) / size) / sigma

    def d(e):
        if mu == 0:
            return max(0.0, 1 - math.exp(e))
        return phi(mu / 2 - e / mu) - math.exp(e) * phi(-mu / 2 - e / mu)

    return max(1 - silent + silent * d(epsilon - math.log(silent)), d(epsilon + math.log(silent)))


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (0.3, 1e-3), (3.0, 1e-4)])
def test_the_certificate_looks_at_every_size_and_every_number_of_new_keys(epsilon, delta):
    selector = weighted_gaussian(epsilon, delta, 80)
    sigma, threshold = selector.sigma, selector.threshold
    found = max(formula(epsilon, sigma, threshold, s, j) for s in range(1, 81) for j in range(s + 1))
    assert found <= selector.certify().worst <= found * 1.002


@pytest.mark.parametrize(("size", "new"), [(1, 0), (2, 1), (9, 2), (9, 8), (64, 30), (64, 63)])
def test_one_size_with_some_new_keys(size, new):
    lost = new * exposures(1.3, 4.4, np.array([size**-0.5]))
    found = _delta(1.0, 1.3, lost, np.array([(size - new) / size]))
    assert found == pytest.approx(formula(1.0, 1.3, 4.4, size, new), rel=1e-8)


def test_the_formula_is_the_divergence_of_the_two_outputs():
    """A unit with two keys, one of them new: the density of the other key's noisy weight is integrated."""
    epsilon, sigma, threshold, shift = 0.7, 1.1, 3.0, 2**-0.5
    silent = stats.norm.cdf((threshold - shift) / sigma)
    with_it = lambda x: stats.norm.pdf(x, shift, sigma)  # noqa: E731
    without = lambda x: stats.norm.pdf(x, 0, sigma)  # noqa: E731
    up = 1 - silent + integrate.quad(lambda x: max(0, silent * with_it(x) - math.exp(epsilon) * without(x)), -9, 9)[0]
    down = integrate.quad(lambda x: max(0, without(x) - math.exp(epsilon) * silent * with_it(x)), -9, 9)[0]
    assert formula(epsilon, sigma, threshold, 2, 1) == pytest.approx(max(up, down), rel=1e-6)


def test_any_share_of_new_keys_is_covered_by_intervals():
    exact = max(formula(1.0, 3.8, 19.6, 1000, j) for j in range(0, 1001, 25))
    found = whole_delta(1.0, 3.8, 1000 * float(exposures(3.8, 19.6, np.array([1000**-0.5]))[0]))
    assert exact <= found <= exact * 1.01


@pytest.mark.parametrize("make", [weighted_gaussian, paper_weighted_gaussian])
@pytest.mark.parametrize("keys", [1, 20])
def test_a_unit_alone_shows_a_key_as_often_as_the_formula_says(make, keys):
    selector = make(1.0, 0.05, 20)
    expected = 1 - stats.norm.cdf((selector.threshold - keys**-0.5) / selector.sigma) ** keys
    assert_rate(selector, keys, expected)
    assert expected <= selector.spends()[1].delta


def chances(selector):
    """Return the chance of each key, by the sums of weights."""

    def of(held):
        weights = held.weights(selector.weight) / 2**30
        return np.where(weights > 0, stats.norm.cdf((weights - selector.threshold) / selector.sigma), 0)

    return of


def test_no_small_neighbours_are_further_apart_than_promised():
    selector = weighted_gaussian(1.0, 0.05, 4)
    of = chances(selector)

    def score(units, out):
        pair = [outcomes(by_key(each, of)) for each in (units, units[:out] + units[out + 1 :])]
        return divergence(*pair, selector.epsilon)

    worst = worst_of(score, tries=15, steps=40)
    alone_with_all = divergence(outcomes(by_key([[0, 1, 2, 3]], of)), {frozenset(): 1.0}, selector.epsilon)
    assert max(worst, alone_with_all) <= selector.delta
    assert alone_with_all > 0.9 * selector.delta  # so the search is for something that is nearly reached


def test_one_unit_moves_the_sums_by_one_at_most():
    selector = weighted_gaussian(1.0, 1e-5, 5)
    moved = worst_of(
        lambda units, out: np.linalg.norm(difference(units, out, lambda held: held.weights(selector.weight)) / 2**30),
        keys=5, tries=10, steps=20,
    )  # fmt: skip
    assert 1 - 1e-8 < moved <= 1


def test_it_selects_what_many_hold_and_nothing_that_nobody_holds():
    held = Pairs.of([["often", f"once {i}"] for i in range(200)])
    public = Pairs(held.keys, np.array([0, 1]), np.array([0], np.int32))  # all but the first key are held by nobody
    selector = weighted_gaussian(1.0, 1e-8, 2)
    assert selector.select(held, insecure_source(1)).tolist() == [True] + [False] * 200
    assert not weighted_gaussian(1.0, 0.5, 2).select(public, None)[1:].any()
    assert selector.select(Pairs.of([]), None).tolist() == []
    huge = np.array([2**62, 2**55], np.int64)
    assert selector.select_by_weights(huge, insecure_source(1)).all()


def test_forged_fields_are_refused():
    selector = weighted_gaussian(1.0, 1e-6, 30)
    saved = json.loads(json.dumps(selector.to_json()))
    assert from_json(saved) == selector and from_json(saved).certify() == selector.certify()
    for name, factor in [("threshold", 0.999), ("sigma", 0.99), ("epsilon", 0.99), ("delta", 0.9), ("max_keys", 2)]:
        with pytest.raises(NotCertified):
            from_json({**saved, name: type(saved[name])(saved[name] * factor)})
    for wrong in ({"sigma": 0.0}, {"threshold": math.inf}, {"sigma": "1"}, {"max_keys": 10_001}, {"more": 1}):
        with pytest.raises(DpsieveError):
            from_json({**saved, **wrong})


def test_what_it_spends_is_not_much_more_than_what_it_promises():
    selector = weighted_gaussian(1.0, 1e-6, 30)
    assert Composition(selector.spends()).delta(1.0) < 2.1e-6
    assert selector.certify().parts[-1].method == "formula"


@pytest.mark.parametrize("value", [-1.0, 2.5, 4.0])
def test_a_gaussian_test_passes_as_often_as_phi_says(value):
    low, high = binomial_band(100_000, stats.norm.cdf((value - 3.0) / 1.5))
    assert low <= gaussian_test(np.full(100_000, value), 3.0, 1.5).sum() <= high


def test_gaussian_tests_that_floats_cannot_decide_are_decided_by_balls():
    below, at, above = 2**63 - 1, 2**63, 2**63 + 1  # Phi(0) = 1/2
    assert gaussian_test(np.zeros(3), 0.0, 1.0, source=Scripted(below, at, above)).tolist() == [True, False, False]
    assert gaussian_test(np.array([-60.0, -8.0]), 0.0, 1.0, source=Scripted(0, 0)).tolist() == [False, True]
    # Phi(1) = 0.8413...: of words that agree with it, the next ones decide
    with mpmath.workdps(60):
        first = int(mpmath.floor(mpmath.ncdf(1) * 2**64))
        share = float(mpmath.ncdf(1) * 2**64 - first)
    low, high = binomial_band(400, share)
    assert low <= gaussian_test(np.ones(400), 0.0, 1.0, source=Repeating(first)).sum() <= high


def test_sums_do_not_depend_on_the_order_of_units():
    units = [[f"{i % 7}", f"{i % 5} and"] for i in range(40)]
    weights = weighted_gaussian(1.0, 1e-5, 2).weight
    assert by_key(units, lambda held: held.weights(weights)) == by_key(units[::-1], lambda held: held.weights(weights))
