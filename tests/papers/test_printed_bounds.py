"""Printed bounds and thresholds: numbers of the papers, and the exact numbers of the library beside them."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

import dpsieve as ds
from dpsieve.discovery.picks import hitting_keys, top_keys
from dpsieve.engines.true_data import Pairs
from dpsieve.papers.missing_mass.algorithms import (
    greedy_keys,
    known_domain_keys,
    lemma_c_1,
    paper_hitting_keys,
    paper_top_keys,
    paper_weighted_gaussian,
)
from dpsieve.papers.missing_mass.measures import zipf_constant
from dpsieve.papers.missing_mass.utility_bounds import hard_zipf_counts, largest_set_bound
from dpsieve.papers.sample_threshold import lemma_1_ratio
from dpsieve.papers.thesis.bounds import (
    algorithm_13_threshold,
    fact_1_5,
    lemma_2_10,
    lemma_2_14,
    lemma_2_20,
    lemma_2_32,
    lemma_5_5,
    theorem_3_1,
)


def test_numbers_that_the_thesis_prints():
    assert lemma_2_14(3.0, 0.1, collision=0.1) == pytest.approx(75.33, abs=0.01)  # Section 2.9
    assert lemma_2_32(1.3) == pytest.approx(8 * math.exp(1.3) / math.expm1(1.3) ** 2)  # Lemma 2.31


def test_bounds_on_vectors_are_above_their_exact_errors():
    vector = ds.SparseVector.private(
        ["a"], [20.0], neighbours="l1", dimension="text", epsilon=1.0, variant="alp", alpha=3.0, sparsity=1000,
        max_value=100.0,
    )  # fmt: skip
    assert vector.expected_error(20.0) < lemma_2_10(3.0, 0.1) < lemma_2_10(3.0, 0.1, epsilon=0.5) / 1.99


@pytest.mark.parametrize("bound", [lemma_2_10, lambda alpha, q: lemma_2_14(alpha, 0.1, q), lemma_2_32])
def test_collisions_raise_bounds_and_impossible_ones_are_refused(bound):
    assert bound(3.0, 0.0) < bound(3.0, 0.1) < bound(3.0, 0.3)
    with pytest.raises(ds.errors.InvalidValue, match="collision"):
        bound(3.0, 0.6)


def test_thresholds_are_above_those_of_the_library():
    assert lemma_2_20(10**6, 1.0) == pytest.approx(27.63, abs=0.01)
    assert algorithm_13_threshold(1.0, 1e-8) == pytest.approx(40.04, abs=0.01)
    below, above = theorem_3_1(1.0, 1e-8, 1024, 0, beta=0.05)  # Lemma 3.5
    assert above == pytest.approx(2 * math.log(1025 / 0.05)) and below - above == algorithm_13_threshold(1.0, 1e-8)
    assert lemma_5_5(0.5, 1, 10, 0.05) == pytest.approx(math.sqrt(10 * math.log(200)))  # Lemma 5.4


def test_groups_and_replacement():
    """Two units by Fact 1.5, which is the larger delta, and exactly."""
    exact = ds.Guarantee(0.5, 1e-6).for_replacement()
    epsilon, delta = fact_1_5(0.5, 1e-6, 2)
    assert epsilon == exact.epsilon and exact.delta <= delta
    assert fact_1_5(0.5, 1e-6, 1) == (0.5, 1e-6)


def test_the_ratio_of_lemma_1_is_that_of_binomial_probabilities():
    chances = [math.comb(k, 4) * 0.2**4 * 0.8 ** (k - 4) for k in (9, 10)]
    assert lemma_1_ratio(0.2, copies=10, count=4) == pytest.approx(chances[1] / chances[0])


def test_the_sigma_of_lemma_c_1_is_sufficient():
    for epsilon, delta in [(1.0, 1e-5), (0.1, 1e-6), (3.0, 1e-3)]:
        sigma = lemma_c_1(epsilon, delta)
        assert ndtr(1 / (2 * sigma) - epsilon * sigma) == pytest.approx(delta / 2)
        assert sigma >= paper_weighted_gaussian(epsilon, delta, 10).sigma * (1 - 1e-9)


def test_no_unit_holds_more_keys_than_lemma_3_1_says():
    counts = hard_zipf_counts(5000, 1.2, 1.5)
    bound = largest_set_bound(5000, max(1.2, zipf_constant(counts, 1.5)), 1.5)
    assert len(counts) <= bound < 2 * len(counts)


def test_printed_algorithms_have_the_guarantee_and_more_noise():
    for printed, own in ((paper_top_keys, top_keys), (paper_hitting_keys, hitting_keys)):
        mechanism = printed(1.0, 1e-5, 10, k=50, unit="one user")
        assert mechanism.certify().worst <= 1e-5 and mechanism.guarantee.unit == "one user"
        assert mechanism.scale > own(1.0, 1e-5, 10, k=50).scale
        with pytest.raises(ds.errors.InvalidValue, match="selector spends all"):
            printed(1.0, 1e-5, 10, k=5, selector=paper_weighted_gaussian(1.0, 1e-5, 10))


def test_baselines_for_hitting_sets():
    pairs = Pairs.of(["ab"] * 3000 + ["b"] * 1000 + ["c"] * 2000)
    assert greedy_keys(pairs, 2).tolist() == [1, 2]
    for analysis in ("best", "paper"):
        assert known_domain_keys(pairs, 2, 1.0, 1e-5, analysis=analysis).tolist() == [1, 2]
    assert np.all(greedy_keys(pairs, 9) == [1, 2, 0])
