"""Merged sketches over a known universe: their sensitivity by enumeration, and pure privacy."""

import functools
import math

import numpy as np
import pytest
from helpers.sketch_reference import neighbours, post_processed
from helpers.statistical import assert_follows, binomial_band

from dpsieve.errors import DpsieveError, NotCertified
from dpsieve.papers.thesis.bounded_merge import BoundedMerge
from dpsieve.randomness import SystemSource
from dpsieve.randomness.picks import draw_distinct, uniform_integers
from dpsieve.sketches.summed_noise import SummedSketch


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_sensitivity_is_2k(k):
    """Every stream of up to 5 or 6 items over k + 1 keys: the values change by at most 2k - 1 units, so with n by 2k.

    One value grows by k or less while k - 1 others fall by 1, or k fall by 1: all that is enumerated is one of these.
    """
    made, largest = functools.cache(functools.partial(post_processed, k)), 0
    for stream, less in sorted({*neighbours("abcde"[: k + 1], 6 if k < 4 else 5)}):
        (a, n), (b, m) = made(stream), made(less)
        changes = sorted((a[key] - b[key] for key in a | b if a[key] != b[key]), reverse=True)
        assert n - m == 1 and len(changes) <= k
        grown, fallen = (changes[:1], changes[1:]) if changes and changes[0] > 0 else ([], changes)
        assert sum(grown) <= k and set(fallen) <= {-1}
        largest = max(largest, 1 + sum(map(abs, changes)))
    assert largest == SummedSketch(1.0, 0.0, k, universe=9).sensitivity == 2 * k


@pytest.mark.parametrize("mechanism", [SummedSketch, BoundedMerge])
def test_values_and_what_was_lost_are_told_with_noise(mechanism):
    made, told, source = mechanism(1.0, 0.0, 1, universe=9), [], SystemSource()
    for _ in range(4000):
        outcome = made.draw(np.array([5000]), 700, source)
        told.append((outcome.drawn["lost"] - 700, int(outcome.tokens[0]) - 5000))
    x = np.arange(-30, 31)
    for noise in zip(*told, strict=True):
        assert_follows(noise, x, np.exp(-np.abs(x) / made.scale) * np.tanh(1 / (2 * made.scale)))


def test_nothing_below_the_threshold_is_told():
    """Values right at the threshold come out when their noise is not below zero, and from the threshold on."""
    made = SummedSketch(1.0, 0.0, 5, universe=1000)
    tokens = made.draw(np.full(10_000, made.least), 0, SystemSource()).tokens
    shown = tokens[tokens != 0]
    low, high = binomial_band(10_000, 1 / (1 + math.exp(-1 / made.scale)))
    assert low <= len(shown) <= high and shown.min() == made.least


def test_the_sum_has_less_noise_than_the_bounded_merge():
    """In units of counts, 2k/(k+1) is always below k + 1, the l1 sensitivity by Lemma 3.6 and of what was lost."""
    assert SummedSketch(1.0, 0.0, 1024, universe=10**9).certify().worst == 0
    assert SummedSketch(1.0, 0.0, 64, universe=1000, false_keys=10).threshold < 11
    for k in (1, 2, 3, 50):
        summed, bounded = (made(0.5, 0.0, k, universe=1000) for made in (SummedSketch, BoundedMerge))
        assert summed.scale / summed.parts == 4 * k / (k + 1) < bounded.scale == 2 * (k + 1)
        assert summed.threshold < bounded.threshold and bounded.most_keys == k


def test_zeros_of_a_large_universe_are_not_touched():
    made = SummedSketch(1.0, 0.0, 10, universe=10**12, false_keys=20_000)
    places, tokens = made.draw_zeros(np.array([5, 7]), SystemSource())
    assert len(set(places.tolist())) == len(places) and not {5, 7} & set(places.tolist())
    low, high = binomial_band(10**12, made._tail(made.least))
    assert low <= len(places) <= high
    assert places.min() >= 0 and places.max() < 10**12 and abs(places.mean() / 10**12 - 0.5) < 0.05
    # What is above the threshold is geometric.
    p = math.exp(-1 / made.scale)
    beyond = tokens - made.least
    x = np.arange(150)
    assert_follows(beyond, x, (1 - p) * p**x)


def test_few_zeros_follow_the_noise_of_each_element():
    """A universe of 12 with 2 held: how many of the 10 zeros come out is binomial."""
    made = SummedSketch(0.5, 0.0, 1, universe=12, false_keys=4.0)
    source = SystemSource()
    counts = [len(made.draw_zeros(np.array([0, 3]), source)[0]) for _ in range(500)]
    chance = made._tail(made.least)
    x = np.arange(11)
    assert_follows(counts, x, [math.comb(10, i) * chance**i * (1 - chance) ** (10 - i) for i in x])


def test_distinct_places():
    source = SystemSource()
    places = draw_distinct(5, 8, np.array([1, 2, 3], np.uint64), source)
    assert places.tolist() == [0, 4, 5, 6, 7]
    firsts = [int(draw_distinct(2, 5, np.array([0], np.uint64), source)[0]) for _ in range(4000)]
    assert_follows(firsts, [1, 2, 3], [1 / 2, 1 / 3, 1 / 6])
    assert_follows(uniform_integers(40_000, 7, source), range(7), [1 / 7] * 7)


def test_less_noise_is_not_certified():
    made = SummedSketch(1.0, 0.0, 30, 4, universe=100, items_per_unit=2)
    vars(made)["scale"] = made.scale * 0.99
    with pytest.raises(NotCertified):
        made.certify()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: SummedSketch(1.0, 1e-6, 10, universe=100),
        lambda: SummedSketch(0.0, 0.0, 10, universe=5),
        lambda: SummedSketch(1.0, 0.0, 10, universe=0),
        lambda: SummedSketch(1.0, 0.0, 10, universe=5, false_keys=0),
        lambda: SummedSketch(1.0, 0.0, 0, universe=5),
    ],
)
def test_mistakes(wrong):
    with pytest.raises(DpsieveError):
        wrong()
