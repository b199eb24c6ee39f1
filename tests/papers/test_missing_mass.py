"""What a set of keys misses, on small data that can be checked by hand."""

import math

import numpy as np
import pytest

from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue
from dpsieve.papers.missing_mass.measures import (
    hits,
    missed_units,
    missing_mass,
    tail_mass,
    top_k_l1_loss,
    top_k_missing_mass,
    zipf_constant,
    zipf_fit,
)  # fmt: skip

COUNTS = np.array([50, 30, 10, 6, 4])


def test_the_missing_mass_is_a_norm_of_the_missing_shares():
    found = np.array([True, False, True, False, False])
    assert missing_mass(COUNTS, found) == pytest.approx(0.40)
    assert missing_mass(COUNTS, found, order=math.inf) == pytest.approx(0.30)
    assert missing_mass(COUNTS, found, order=2) == pytest.approx(math.sqrt(0.30**2 + 0.06**2 + 0.04**2))
    assert missing_mass(COUNTS, found, order=0) == 3
    assert missing_mass(COUNTS, found, order=0.5) == pytest.approx((0.3**0.5 + 0.06**0.5 + 0.04**0.5) ** 2)


def test_a_mask_and_numbers_of_keys_mean_the_same():
    for order in (0, 1, 2, math.inf):
        by_mask = missing_mass(COUNTS, np.array([False, True, False, False, True]), order)
        assert by_mask == missing_mass(COUNTS, np.array([4, 1]), order)


def test_nothing_is_missing_when_all_is_found_and_all_when_nothing_is():
    for order in (0, 1, 2, math.inf):
        assert missing_mass(COUNTS, np.ones(5, bool), order) == 0
        assert missing_mass(np.zeros(3, int), np.zeros(3, bool), order) == 0, "keys that nobody holds are not missing"
    assert missing_mass(COUNTS, np.zeros(5, bool)) == 1
    with pytest.raises(InvalidValue, match="order"):
        missing_mass(COUNTS, np.zeros(5, bool), order=-1)


def test_the_top_k_missing_mass_of_all_keys_is_the_missing_mass():
    found = np.array([0, 3])
    assert top_k_missing_mass(COUNTS, found, k=5) == pytest.approx(missing_mass(COUNTS, found))
    assert top_k_missing_mass(COUNTS, found, k=100) == pytest.approx(missing_mass(COUNTS, found))
    assert top_k_missing_mass(COUNTS, np.array([1, 0]), k=2) == 0, "the order does not matter"
    assert top_k_missing_mass(COUNTS, np.array([0, 4]), k=2) == pytest.approx(0.26)
    with pytest.raises(InvalidValue, match="k=2"):
        top_k_missing_mass(COUNTS, np.array([0, 1, 2]), k=2)


def test_the_l1_loss_minds_the_order_and_counts_each_place_once():
    assert top_k_l1_loss(COUNTS, np.array([0, 1, 2]), k=3) == 0
    assert top_k_l1_loss(COUNTS, np.array([1, 0, 2]), k=3) == 40
    assert top_k_l1_loss(COUNTS, np.array([0, 1]), k=3) == 10, "the second place, found, must not count again"
    assert top_k_l1_loss(COUNTS, np.array([], int), k=2) == 80
    assert top_k_l1_loss(COUNTS, np.array([0]), k=100) == 50


def test_hits_are_units_with_a_chosen_key():
    held = Pairs.of(["ab", "bc", "d", "", "abd"])
    names = held.keys["key"].to_pylist()
    for chosen, hit in {"": 0, "a": 2, "b": 3, "bd": 4, "c": 1, "abcd": 4}.items():
        numbers = np.array([names.index(key) for key in chosen], int)
        assert hits(held, numbers) == hit
        assert missed_units(held, numbers) == 5 - hit
        assert hits(held, np.isin(np.arange(4), numbers)) == hit


def test_the_zipf_constant_is_the_smallest_that_fits():
    rng = np.random.default_rng()
    for s in (0.0, 0.7, 1.2, 2.5):
        counts = rng.integers(1, 1000, 50)
        c = zipf_constant(counts, s)
        shares = np.sort(counts / counts.sum())[::-1]
        allowed = c / np.arange(1, 51) ** s
        assert (shares <= allowed * (1 + 1e-12)).all()
        assert c == 1 or np.isclose(shares, allowed, rtol=1e-12).any()
    assert zipf_constant(np.array([0, 5, 0]), 2) == 1


def test_the_fit_recovers_the_exponent_of_zipfian_data():
    counts = (10**7 / np.maximum(np.arange(1, 20_000), 10) ** 1.7).astype(int)
    c, s = zipf_fit(counts)
    assert abs(s - 1.7) < 0.06
    assert zipf_constant(counts, s) == c


def test_the_tail_of_zipfian_data_is_bounded():
    # The integral bounds it; the printed C r_0^(1-s)/(s-1) does not: for s = 2, r_0 = 2 the sum is 0.645, not 0.5.
    ranks = np.arange(2, 10**6)
    assert (1.0 / ranks**2).sum() > 0.5**1 / (2 - 1)
    assert (1.0 / ranks**2).sum() <= tail_mass(1, 2, 1 / 4) == 1.0
    rng = np.random.default_rng()
    for s in (1.1, 1.5, 3.0):
        counts = (10**5 * rng.random(500) ** 4).astype(int)
        c, entries = zipf_constant(counts, s), counts.sum()
        for frequency in (1, 10, 100, 1000):
            assert counts[counts <= frequency].sum() / entries <= tail_mass(c, s, frequency / entries)
