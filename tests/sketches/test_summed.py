"""Sums of sketches: their sensitivity by enumeration, pure privacy over a universe, thresholds for unknown keys."""

import functools
import math
from collections import Counter

import numpy as np
import pytest
from sketch_reference import misra_gries, neighbours
from statistical import assert_follows, binomial_band

from dpsieve.errors import DpsieveError, NotCertified
from dpsieve.randomness import SystemSource
from dpsieve.randomness.order import distinct, uniform_integers
from dpsieve.sketches.summed import SummedSketch


def post_processed(k, stream):
    """max(0, c + gamma - n/(k+1)) in units of 1/(k+1), and n."""
    held, lowered = misra_gries(k, stream)
    values = {key: (c + lowered) * (k + 1) - len(stream) for key, c in held.items()}
    return Counter({key: v for key, v in values.items() if v > 0}), len(stream)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_sensitivity_is_below_two(k):
    """Every stream of up to 6 items over 4 keys: the values and n change by at most 2k + 2 units together."""
    largest, made = 0, functools.cache(functools.partial(post_processed, k))
    for stream, less in sorted({*neighbours("abcd", 6)}):
        (a, n), (b, m) = made(stream), made(less)
        change = sum(abs(a[key] - b[key]) for key in a | b)
        only = [(a - Counter(dict.fromkeys(b, 10**9))), (b - Counter(dict.fromkeys(a, 10**9)))]
        assert all(len(odd) <= k for odd in only)
        largest = max(largest, change)
        assert change <= 2 * k + 1 and n - m == 1
    assert largest >= k  # what was enumerated is not trivial


@pytest.mark.parametrize("k", [1, 2])
def test_delta_by_enumeration_of_all_outputs(k):
    """Keys of neighbouring sums, each on its own: exact divergences of the published tokens and of N, composed."""
    epsilon = 2.0
    made = SummedSketch(epsilon, 0.02, k)
    x = np.arange(-200, 201)
    mass = np.exp(-np.abs(x) / made.scale) * np.tanh(1 / (2 * made.scale))

    def law(value):
        """The distribution of a token; a value of zero is never published."""
        out = np.zeros(460)
        if value == 0:
            out[0] = 1
            return out
        shown = value + x >= made.least
        out[value + x[shown] + 30] = mass[shown]
        out[0] = 1 - out.sum()
        return out

    worst, seen = 0.0, set()
    for stream, less in neighbours("abc", 6):
        (a, _n), (b, _m) = post_processed(k, stream), post_processed(k, less)
        changed = tuple(sorted((a[key], b[key]) for key in a | b if a[key] != b[key]))
        if changed in seen:
            continue
        seen.add(changed)
        for one, other in ((0, 1), (1, 0)):
            p, q = np.ones(1), np.ones(1)
            for pair in changed[:2]:
                p, q = np.outer(p, law(pair[one])).ravel(), np.outer(q, law(pair[other])).ravel()
            rest = 1 + sum(abs(u - v) for u, v in changed[2:])  # N, and keys beyond two by their sensitivity
            allowed = math.exp(epsilon - rest / made.scale)
            worst = max(worst, np.maximum(p - allowed * q, 0).sum())
    assert 0 < worst <= made.certify().worst + 1e-9


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_rate_of_keys_that_only_one_sum_holds(k):
    """The tightest points, measured: one odd key of value 2k + 1, or k of them of values k + 2, 1, ..., 1."""
    delta, runs, source = 0.05, 2000, SystemSource()
    made = SummedSketch(1.0, delta, k)
    shown = []
    for values in (np.array([2 * k + 1]), np.array([k + 2] + [1] * (k - 1))):
        drawn = (made.draw(values, 10, source)[1].any() for _ in range(runs))
        shown.append(sum(map(bool, drawn)))
    assert max(shown) <= binomial_band(runs, delta)[1]
    assert max(shown) >= binomial_band(runs, made.certify().worst / 2)[0]


def test_nothing_below_the_threshold_is_told():
    """Values right at the threshold come out when their noise is not below zero, and from the threshold on."""
    made = SummedSketch(1.0, 0.05, 5)
    tokens = made.draw(np.full(10_000, made.least), 0, SystemSource())[1]
    shown = np.rint(tokens[tokens != 0] * 6)
    low, high = binomial_band(10_000, 1 / (1 + math.exp(-1 / made.scale)))
    assert low <= len(shown) <= high and shown.min() == made.least


def test_values_and_the_number_of_items_are_told_with_noise():
    made, told, source = SummedSketch(1.0, 0.05, 1), [], SystemSource()
    for _ in range(4000):
        drawn, tokens = made.draw(np.array([5000]), 700, source)
        told.append((drawn.items - 700, round(float(tokens[0]) * 2) - 5000))
    x = np.arange(-30, 31)
    for noise in zip(*told, strict=True):
        assert_follows(noise, x, np.exp(-np.abs(x) / made.scale) * np.tanh(1 / (2 * made.scale)))


def test_thresholds():
    assert SummedSketch(1.0, 1e-8, 1024).threshold == pytest.approx(49.32, abs=0.01)
    assert SummedSketch(1.0, 0.0, 1024, universe=10**9).certify().worst == 0
    assert SummedSketch(1.0, 0.0, 64, universe=1000, false_keys=10).threshold < 11


def test_zeros_of_a_large_universe_are_not_touched():
    made = SummedSketch(1.0, 0.0, 10, universe=10**12, false_keys=20_000)
    places, tokens = made.draw_zeros(np.array([5, 7]), SystemSource())
    assert len(set(places.tolist())) == len(places) and not {5, 7} & set(places.tolist())
    low, high = binomial_band(10**12, made._tail(made.least))
    assert low <= len(places) <= high
    assert places.min() >= 0 and places.max() < 10**12 and abs(places.mean() / 10**12 - 0.5) < 0.05
    # What is above the threshold is geometric.
    p = math.exp(-1 / made.scale)
    beyond = np.rint(tokens * 11).astype(int) - made.least
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
    places = distinct(5, 8, np.array([1, 2, 3]), source)
    assert sorted(places.tolist()) == [0, 4, 5, 6, 7]
    firsts = [int(distinct(2, 5, np.array([0]), source)[0]) for _ in range(4000)]
    assert_follows(firsts, [1, 2, 3, 4], [0.25] * 4)
    assert_follows(uniform_integers(40_000, 7, source), range(7), [1 / 7] * 7)


def test_a_lower_threshold_is_not_certified():
    made = SummedSketch(1.0, 1e-6, 30, 4, items_per_unit=2)
    vars(made)["least"] = made.least - 200
    with pytest.raises(NotCertified):
        made.certify()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: SummedSketch(1.0, 0.0, 10),
        lambda: SummedSketch(1.0, 1e-6, 10, universe=100),
        lambda: SummedSketch(0.0, 1e-6, 10),
        lambda: SummedSketch(1.0, 0.0, 10, universe=0),
        lambda: SummedSketch(1.0, 0.0, 10, universe=5, false_keys=0),
        lambda: SummedSketch(1.0, 1e-6, 0),
    ],
)
def test_mistakes(wrong):
    with pytest.raises(DpsieveError):
        wrong()
