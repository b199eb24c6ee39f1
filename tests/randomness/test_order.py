"""The k largest counts under Gumbel noise: exactly k picks of the exponential mechanism without replacement."""

import math
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from helpers.scripted import Repeating, Scripted
from helpers.statistical import assert_counts, assert_follows

from dpsieve.errors import DpsieveError
from dpsieve.randomness import noisy_top
from dpsieve.randomness import picks as order
from dpsieve.testing import insecure_source


def peeling(counts, scale, picks):
    """The probability that the exponential mechanism, without replacement, picks these in this order."""
    weights, probability = np.exp(np.array(counts) / scale), 1.0
    left = weights.sum()
    for i in picks:
        probability *= weights[i] / left
        left -= weights[i]
    return probability


@pytest.mark.parametrize("scale", [0.7, 3.0])
def test_picks_follow_the_exponential_mechanism(scale):
    counts, runs = [4, 5, 3, 5], 8_000
    seen = Counter(tuple(noisy_top(counts, 2, scale=scale).tolist()) for _ in range(runs))
    pairs = list(permutations(range(4), 2))
    expected = [runs * peeling(counts, scale, pair) for pair in pairs]
    assert_counts(np.array([seen[pair] for pair in pairs], dtype=float), np.array(expected))


def test_noise_far_below_the_gaps_keeps_the_true_order():
    counts = np.arange(1000) * 10**6
    assert noisy_top(counts, 5, scale=1.0).tolist() == [999, 998, 997, 996, 995]


def test_exact_comparison_agrees_with_floats_where_those_are_sure(monkeypatch):
    counts = insecure_source(1).words(60) % np.uint64(20)
    usual = noisy_top(counts, 60, scale=4.0, source=insecure_source(2))
    scores = order._scores
    monkeypatch.setattr(order, "_scores", lambda *a: (scores(*a)[0], np.full(60, np.inf)))
    assert (noisy_top(counts, 60, scale=4.0, source=insecure_source(2)) == usual).all()


@pytest.mark.parametrize("word", [0, 2**64 - 1, 2**63, 12345])
def test_equal_words_are_parted_by_more_bits(word):
    """Two equal counts whose first 64 bits agree: further bits decide, each way half of the time."""
    firsts = [int(noisy_top([7, 7], 1, scale=1.0, source=Repeating(word))[0]) for _ in range(400)]
    assert_follows(firsts, [0, 1], [0.5, 0.5])


def test_a_tie_is_settled_by_the_next_word():
    tie = [2**62, 2**62]
    first = noisy_top([0, 0], 2, scale=1.0, source=Scripted(*tie, 5, 6)).tolist()
    second = noisy_top([0, 0], 2, scale=1.0, source=Scripted(*tie, 6, 5)).tolist()
    assert first == second[::-1]


def test_a_uniform_near_one_means_small_noise():
    """V near 0 is a large Gumbel value, V near 1 a small one, as G = -ln(-ln(1 - V))."""
    assert noisy_top([0, 0], 2, scale=1.0, source=Scripted(10**6, 2**64 - 10**6)).tolist() == [0, 1]
    gumbel, error = order._scores(np.zeros(3, np.int64), 1.0, np.array([2**32, 2**63, 2**64 - 2**32], np.uint64))
    exact = [-math.log(-math.log1p(-(2.0**-32))), -math.log(math.log(2)), -math.log(32 * math.log(2))]
    assert (np.abs(gumbel - exact) <= error).all() and (error < 1e-8).all()


def test_large_counts_and_large_k():
    assert noisy_top([2**62, 2**62 - 1], 2, scale=1e-9).tolist() == [0, 1]  # floats cannot tell these apart
    assert sorted(noisy_top([1, 2, 3], 10, scale=1.0).tolist()) == [0, 1, 2]
    assert noisy_top([], 3, scale=1.0).tolist() == []


def test_bad_parameters():
    for counts in ([1.5], ["a"], [[1, 2]], [math.nan], None, [2**64], [True], [[1], [1, 2]]):
        with pytest.raises(DpsieveError, match="counts"):
            noisy_top(counts, 1, scale=1.0)
    for k in (0, -1, 1.5, "1", None):
        with pytest.raises(DpsieveError, match="k"):
            noisy_top([1], k, scale=1.0)
    for scale in (0, -1.0, math.nan, math.inf, "1", 1e30):
        with pytest.raises(DpsieveError, match="scale"):
            noisy_top([1], 1, scale=scale)
