"""Bounds on what discovery misses: upper ones against simulations in floats, lower ones against the best mechanism.

Each simulated check uses bounds that fail with probability at most one in a million (or 1e-9) by their own statement.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers.statistical import binomial_band
from scipy.special import ndtr, ndtri

from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue
from dpsieve.papers.missing_mass.measures import hits, missing_mass, top_k_missing_mass, zipf_constant, zipf_fit
from dpsieve.papers.missing_mass.utility_bounds import (
    Setting,
    hard_zipf_counts,
    hidden_frequency,
    hits_bound,
    largest_missing_bound,
    least_missed_hits,
    least_missing_mass,
    least_top_k_missing_mass,
    least_zipf_missing_mass,
    mass_bound,
    missed_frequency,
    top_k_bound,
)  # fmt: skip

RNG = np.random.default_rng()


# The mechanisms of the paper in floats, a few lines each.


def noise_and_threshold(epsilon, delta, max_keys):
    """The smallest sigma and T of Theorem 3.2."""
    sigma = 0.01
    while ndtr(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * ndtr(-0.5 / sigma - epsilon * sigma) > delta / 2:
        sigma *= 1.001
    sizes = np.arange(1, max_keys + 1)
    tails = -np.expm1(np.log1p(-delta / 2) / sizes)
    return sigma, float((1 / np.sqrt(sizes) - sigma * ndtri(tails)).max())


def weighted_gaussian(units, keys, setting):
    """Algorithm 1: a random sample of each unit's keys, weights 1/sqrt(size), noise, threshold."""
    weights = np.zeros(keys)
    for unit in units:
        kept = RNG.permutation(unit)[: setting.max_keys]
        weights[kept] += 1 / math.sqrt(max(len(kept), 1))
    return (weights > 0) & (weights + RNG.normal(0, setting.sigma, keys) >= setting.threshold)


def peel(counts, domain, k, scale):
    """Algorithm 3: the k largest noisy counts within a domain."""
    noisy = np.where(domain, counts + RNG.gumbel(0, scale, len(counts)), -np.inf)
    return np.argsort(-noisy)[: min(k, domain.sum())]


def peel_units(units, keys, domain, k, scale):
    """Algorithm 4: the key with the largest noisy count; then forget the units that hold it."""
    left, domain, chosen = list(units), domain.copy(), []
    for _ in range(min(k, domain.sum())):
        counts = np.bincount(np.concatenate([*left, [0]]).astype(int), minlength=keys)
        pick = peel(counts, domain, 1, scale)[0]
        chosen.append(pick)
        domain[pick] = False
        left = [unit for unit in left if pick not in unit]
    return np.array(chosen, int)


def zipfian_units(number, keys, largest, skew=1.3):
    """Units with 1 to `largest` keys, drawn by a Zipf law without replacement."""
    scores = -skew * np.log(np.arange(1, keys + 1)) + RNG.gumbel(size=(number, keys))
    order = np.argsort(-scores)[:, :largest]
    return [row[:size] for row, size in zip(order, RNG.integers(1, largest + 1, number), strict=True)]


def of_units(units, epsilon=4.0, delta=0.01, max_keys=5):
    """The pairs of units, whose keys are numbers, its counts and the setting of the mechanism."""
    held = Pairs.of([unit.tolist() for unit in units])
    numbers = held.keys["key"].to_numpy()
    counts = np.zeros(numbers.max() + 1, int)
    counts[numbers] = held.counts()
    sigma, threshold = noise_and_threshold(epsilon, delta, max_keys)
    largest = int(held.sizes.max())
    return counts, Setting(int(counts.sum()), len(numbers), largest, sigma, threshold, max_keys)


@pytest.mark.parametrize(("number", "max_keys"), [(3000, 1), (12_000, 6), (3000, 8), (3000, 20)])
def test_missing_mass_stays_below_its_bounds(number, max_keys):
    units = zipfian_units(number, 200, 8)
    counts, setting = of_units(units, max_keys=max_keys)
    c, s = zipf_fit(counts, missed_frequency(setting, 1e-6))
    for _ in range(2):
        found = weighted_gaussian(units, len(counts), setting)
        assert counts[~found].max(initial=0) <= missed_frequency(setting, 1e-6)
        assert missing_mass(counts, found, math.inf) <= largest_missing_bound(setting, 1e-6) < 0.2
        assert missing_mass(counts, found) <= mass_bound(setting, c, s, 1e-6)
    assert max_keys == 1 or mass_bound(setting, c, s, 1e-6) < 0.9, "it says something"


@pytest.mark.parametrize("max_keys", [2, 4])
def test_bounds_fail_no_more_often_than_they_say(max_keys):
    units = zipfian_units(300, 30, 4)
    counts, setting = of_units(units, max_keys=max_keys)
    for beta in (0.5, 0.9):
        tau = missed_frequency(setting, beta)
        missed = [counts[~weighted_gaussian(units, len(counts), setting)].max(initial=0) for _ in range(200)]
        assert (np.array(missed) > tau).sum() <= binomial_band(200, beta)[1]


def test_top_k_and_hits_stay_within_their_bounds():
    units = zipfian_units(4000, 60, 4)
    counts, setting = of_units(units, max_keys=4)
    held = Pairs.of([unit.tolist() for unit in units])
    numbers = {key: number for number, key in enumerate(held.keys["key"].to_pylist())}
    for k in (1, 5, 10):
        scale = 2.0
        domain = weighted_gaussian(units, len(counts), setting)
        picks = peel(counts, domain, k, scale)
        bound = top_k_bound(setting, k, scale, 1e-6)
        assert top_k_missing_mass(counts, picks, k) <= bound < 1
        best = peel_units(units, len(counts), counts > 0, k, 1e-9)  # greedy: not more than the best
        picks = peel_units(units, len(counts), domain, k, scale)
        reached = [hits(held, np.array([numbers[key] for key in keys], int)) for keys in (best, picks)]
        assert 0 < hits_bound(setting, k, scale, reached[0], 1e-6) <= reached[1]


def test_numbers_by_hand():
    whole = Setting(entries=10_000, keys=100, largest_set=4, sigma=2.0, threshold=9.0, max_keys=4)
    spread = math.sqrt(2 * math.log(100 / 0.01))  # 4.29
    assert missed_frequency(whole, 0.01) == pytest.approx(2 * (9 + 2 * spread))
    assert largest_missing_bound(whole, 0.01) == pytest.approx(2 * (9 + 2 * spread) / 10_000)
    assert mass_bound(whole, 1.0, 2.0, 0.01) == pytest.approx(2 * math.sqrt(largest_missing_bound(whole, 0.01)))
    sampled = replace(whole, max_keys=1)
    log = math.log(2 * 100 / 0.01)
    assert missed_frequency(sampled, 0.01) == pytest.approx(4 * max(2 * (9 + 2 * math.sqrt(2 * log)), 8 * log))
    tau, noise = missed_frequency(whole, 0.005), 3 * (math.log(40_000) + math.log(math.log(40_000)))
    assert top_k_bound(whole, 5, 3.0, 0.01) == pytest.approx(5 * (tau + noise) / 10_000)
    noise = 3 * (math.log(80_000) + math.log(math.log(80_000)))
    assert hits_bound(whole, 2, 3.0, 900, 0.01) == pytest.approx(0.75 * (900 - 2 * (tau + noise)))
    assert hidden_frequency(1.0, 1e-5) == pytest.approx(math.log(1 + (math.e - 1) / 2e-5))  # 11.36
    assert least_top_k_missing_mass(10, 110, 1.0, 1e-5) == 0.5
    assert least_top_k_missing_mass(10, 990, 1.0, 1e-5) == 9 * 11 / (2 * 990)
    assert least_missed_hits(10, 1.0, 1e-5) == 55


def test_the_mended_constants_of_the_paper_are_never_smaller():
    for largest, max_keys, s in [(100, 100, 1.2), (100, 5, 1.5), (3, 1, 2.5), (50, 300, 4.0)]:
        n, c, beta, sigma, threshold = 10**6, 2.0, 0.05, 4.0, 20.0
        keys = math.floor((c * n) ** (1 / s))  # the most that the data can have
        setting = Setting(n, keys, min(largest, keys), sigma, threshold, max_keys)
        q, p = min(setting.largest_set, max_keys), min(1, max_keys / setting.largest_set)
        highest = math.sqrt(q) * (threshold + sigma * math.sqrt(2 * math.log(6 * n / beta)))
        inner = max(highest, math.log(3 * (c * n) ** (1 / s) / beta))
        printed = c ** (1 / s) / (s - 1) * (9 / (p * n) * inner) ** ((s - 1) / s)
        assert mass_bound(setting, c, s, beta) <= printed * s * 2 ** (1 / s)
        assert largest_missing_bound(setting, beta) <= 8 / (p * n) * max(highest, math.log(3 * n / beta))


def test_bounds_move_the_right_way():
    base = Setting(entries=10**6, keys=1000, largest_set=50, sigma=3.0, threshold=12.0, max_keys=20)
    worse = [
        replace(base, sigma=4.0), replace(base, threshold=13.0), replace(base, keys=2000),
        replace(base, largest_set=60), replace(base, max_keys=10), replace(base, entries=9 * 10**5),
    ]  # fmt: skip
    for other in worse:
        assert largest_missing_bound(base, 0.1) < largest_missing_bound(other, 0.1)
        assert mass_bound(base, 1.5, 2.0, 0.1) < mass_bound(other, 1.5, 2.0, 0.1)
        assert top_k_bound(base, 10, 5.0, 0.1) < top_k_bound(other, 10, 5.0, 0.1)
        if other.entries == base.entries:
            assert hits_bound(base, 10, 5.0, 10**6, 0.1) > hits_bound(other, 10, 5.0, 10**6, 0.1)
    assert mass_bound(base, 1.5, 2.0, 0.1) < mass_bound(base, 1.5, 2.0, 0.01)
    assert mass_bound(base, 1.5, 2.0, 0.1) < mass_bound(base, 2.0, 2.0, 0.1)
    assert mass_bound(base, 1.5, 2.0, 0.1) < mass_bound(base, 1.5, 1.8, 0.1)
    assert hidden_frequency(1.0, 1e-5) < hidden_frequency(1.0, 1e-8) < hidden_frequency(0.5, 1e-8)
    assert hidden_frequency(1.0, 1e-20) == pytest.approx(math.log((math.e - 1) / 2e-20))
    assert hidden_frequency(300.0, 1e-5) < 1.1, "no overflow"


# Lower bounds.


def best_probabilities(most, epsilon, delta):
    """The largest probability with which a key of 0, 1, ..., `most` units may show, step by step."""
    probabilities = [0.0]
    for _ in range(most):
        last = probabilities[-1]
        probabilities.append(min(1.0, math.exp(epsilon) * last + delta, 1 - math.exp(-epsilon) * (1 - last - delta)))
    return np.array(probabilities)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-5), (1.0, 0.05)])
def test_the_optimal_mechanism_meets_the_lower_bound_on_hard_data(epsilon, delta):
    counts = hard_zipf_counts(20_000, 2.0, 1.5)
    best = best_probabilities(counts.max(), epsilon, delta)[counts]
    bound = least_missing_mass(counts, epsilon, delta)
    assert bound == pytest.approx(1 - (counts * best).sum() / counts.sum(), abs=1e-9)
    drawn = [missing_mass(counts, RNG.random(len(counts)) < best) for _ in range(200)]
    # Bernstein's inequality at one in a million, for a sum of independent keys.
    variance = (counts**2 * best * (1 - best)).sum() / counts.sum() ** 2 / 200
    assert abs(np.mean(drawn) - bound) <= math.sqrt(2 * variance * 15) + 15 * counts.max() / counts.sum() / 200
    assert least_zipf_missing_mass(20_000, 2.0, 1.5, epsilon, delta) <= bound


def test_no_key_of_a_hidden_frequency_shows_more_than_half_of_the_time():
    for epsilon, delta in [(1.0, 1e-5), (0.1, 1e-5), (2.0, 1e-12), (0.5, 0.05)]:
        hidden = math.floor(hidden_frequency(epsilon, delta))
        best = best_probabilities(hidden + 4 + round(2 / epsilon), epsilon, delta)
        assert best[hidden] <= 0.5
        assert best[-1] > 0.5, "a few more units, and it may"


@pytest.mark.parametrize(("c", "s"), [(1.0, 1.1), (1.0, 2.0), (3.0, 1.5), (50.0, 3.0)])
def test_hard_data_is_zipfian_and_every_mechanism_misses_what_theorem_3_5_says(c, s):
    for entries in (1, 10, 1000, 10**6):
        counts = hard_zipf_counts(entries, c, s)
        assert counts.sum() == entries
        assert counts.min() > 0
        assert zipf_constant(counts, s) <= c * (1 + 1e-9)
        for epsilon, delta in [(1.0, 1e-5), (0.1, 1e-5), (1.0, 0.01)]:
            hidden = counts[counts <= hidden_frequency(epsilon, delta)].sum() / (2 * entries)  # step 1 of the proof
            bound = least_zipf_missing_mass(entries, c, s, epsilon, delta)
            assert bound <= hidden <= least_missing_mass(counts, epsilon, delta)
    assert c * s > 100 or least_zipf_missing_mass(10**6, c, s, 0.1, 1e-5) > 0.3 * hidden_mass(10**6, c, s, 0.1, 1e-5)


def hidden_mass(entries, c, s, epsilon, delta):
    counts = hard_zipf_counts(entries, c, s)
    return counts[counts <= hidden_frequency(epsilon, delta)].sum() / (2 * entries)


def test_the_best_mechanism_misses_what_the_corollaries_say():
    for k, epsilon, delta in [(1, 1.0, 1e-5), (10, 0.3, 1e-6), (50, 1.0, 0.01)]:
        hidden = math.floor(hidden_frequency(epsilon, delta))
        best = best_probabilities(hidden, epsilon, delta)[hidden]
        lost = k * hidden * (1 - best)  # k keys of `hidden` units each, each published as often as may be
        assert least_missed_hits(k, epsilon, delta) <= lost <= 2 * least_missed_hits(k, epsilon, delta)
        assert least_top_k_missing_mass(k, k * hidden, epsilon, delta) == 0.5 <= lost / (k * hidden)
        counts = np.array([10 * k * hidden, *[hidden] * (k - 1)])
        entries = int(counts.sum())
        lost = (counts[1:] * (1 - best)).sum() / entries
        assert least_top_k_missing_mass(k, entries, epsilon, delta) <= lost
    assert least_top_k_missing_mass(5, 3, 1.0, 0.9) == 0, "at such a delta nothing is hidden"


def test_upper_bounds_lie_above_lower_bounds():
    # Units of one key each: what the weighted Gaussian mechanism guarantees cannot beat what is possible.
    counts = hard_zipf_counts(10**6, 1.0, 1.5)
    sigma, threshold = noise_and_threshold(1.0, 1e-5, 1)
    setting = Setting(10**6, len(counts), 1, sigma, threshold, 1)
    assert least_missing_mass(counts, 1.0, 1e-5) < mass_bound(setting, 1.0, 1.5, 0.5) < 1


def test_refusals():
    good = Setting(100, 10, 5, 1.0, 2.0, 3)
    for beta in (0.0, 1.0, -0.1):
        with pytest.raises(InvalidValue, match="beta"):
            largest_missing_bound(good, beta)
    with pytest.raises(InvalidValue, match="sigma"):
        replace(good, sigma=0.0)
    with pytest.raises(InvalidValue, match="max_keys"):
        replace(good, max_keys=0)
    with pytest.raises(InvalidValue, match="c="):
        mass_bound(good, 0.5, 2.0, 0.1)
    with pytest.raises(InvalidValue, match="s - 1"):
        mass_bound(good, 1.0, 1.0, 0.1)
