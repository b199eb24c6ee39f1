"""Ranks: how well the order of tokens tells the order of true frequencies."""

import itertools
import math

import numpy as np
import pytest
from helpers.statistical import FALSE_ALARM, binomial_band

from dpsieve.channels import optimal, simple
from dpsieve.errors import DpsieveError
from dpsieve.papers.weighted_sampling import concordance, frequency_quantiles, kendall_tau, top_k_recall
from dpsieve.sampling import ppswor

PAIRS = [(1, 2), (3, 9), (8, 9), (12, 40), (19, 20), (30, 33), (20, 500)]


def lead_by_hand(channel, i1, i2):
    """Return P[T1 < T2] - P[T1 > T2] from two rows, cell against cell, each spread evenly."""
    one, two = channel.row(i1), channel.row(i2)
    leads = even_lead(one.left[:, None], one.right[:, None], two.left, two.right)
    return one.silent * two.mass.sum() - two.silent * one.mass.sum() + one.mass @ leads @ two.mass


def even_lead(left1, right1, left2, right2):
    """Return P[X < Y] - P[X > Y] for X even on (left1, right1] and Y even on (left2, right2], or all cells points."""
    if (left1 == right1).all() and (left2 == right2).all():
        return np.sign(left2 - left1)
    points = np.sort(np.stack(np.broadcast_arrays(left1, right1, left2, right2)), axis=0)
    below = np.clip((points - left1) / (right1 - left1), 0, 1)
    share = np.diff(np.clip((points - left2) / (right2 - left2), 0, 1), axis=0)
    return (share * (below[:-1] + below[1:])).sum(axis=0) - 1


def test_concordance_by_hand(channel):
    for i1, i2 in PAIRS:
        expected = 0.5 + 0.5 * lead_by_hand(channel, i1, i2)
        near = pytest.approx(expected, abs=1e-7 if channel.resolution > 1 else 1e-13)
        assert concordance(channel, i1, i2) == near, (i1, i2)


def test_concordance_facts(private):
    i = np.arange(1, 60)
    forward, backward = concordance(private, i, i + 3), concordance(private, i + 3, i)
    assert np.array_equal(forward, backward)
    assert (forward >= 0.5).all()
    assert (forward <= 1).all()
    # Rare keys are nearly never reported, so their order is a coin; frequent ones far apart cannot be mixed up.
    assert forward[0] == pytest.approx(0.5, abs=0.03)
    assert concordance(private, 10**6, 10**9) == pytest.approx(1.0, abs=1e-12)
    # A wider gap is easier to see.
    assert (np.diff(concordance(private, 20, np.arange(21, 90))) >= -1e-15).all()
    assert concordance(private, [[1], [2]], [5, 6, 7]).shape == (2, 3)


@pytest.mark.parametrize("scheme", [None, ppswor(0.05)])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-3), (0.3, 1e-4), (2.0, 1e-12)])
def test_no_pair_is_ordered_better_than_by_the_optimal_channel(epsilon, delta, scheme):
    best, other = optimal(epsilon, delta, scheme), simple(epsilon, delta, scheme)
    i1, i2 = np.array(list(itertools.combinations(range(1, 42, 2), 2))).T
    gain = concordance(best, i1, i2) - concordance(other, i1, i2)
    assert gain.min() > -1e-9  # the tables are made from parameters that are tightened by about that much
    assert gain.max() > 1e-3


def test_concordance_of_drawn_tokens(channel):
    count, i1, i2 = 100_000, 12, 14
    one, two = channel.draw(np.full(count, i1)).tokens, channel.draw(np.full(count, i2)).tokens
    coin = np.random.default_rng().random(count) < 0.5
    agree = ((one < two) | ((one == two) & coin)).sum()
    low, high = binomial_band(count, float(concordance(channel, i1, i2)))
    assert low <= agree <= high


@pytest.mark.parametrize(
    "frequencies", [[1, 2], [3, 8, 9, 30, 31, 90, 1000], list(range(2, 50, 2)), [5, 6, 10**6, 10**12]]
)
def test_kendall_tau_is_a_mean_over_pairs(channel, frequencies):
    counts = np.arange(len(frequencies)) % 4 + 0.5
    pairs = list(itertools.combinations(range(len(frequencies)), 2))
    weight = np.array([counts[a] * counts[b] for a, b in pairs])
    i1, i2 = np.array([(frequencies[a], frequencies[b]) for a, b in pairs]).T
    expected = weight @ (2 * concordance(channel, i1, i2) - 1) / weight.sum()
    assert kendall_tau(channel, frequencies, counts) == pytest.approx(expected, abs=1e-13)
    shuffled = np.random.default_rng().permutation(len(frequencies))
    assert kendall_tau(channel, np.array(frequencies)[shuffled], counts[shuffled]) == pytest.approx(expected, abs=1e-13)


def test_kendall_tau_of_drawn_tokens(channel):
    frequencies, rounds = np.array([3, 5, 8, 8, 12, 13, 20, 40, 41]), 20_000
    tokens = channel.draw(np.tile(frequencies, rounds)).tokens.reshape(rounds, -1)
    a, b = np.triu_indices(len(frequencies), 1)
    differ = frequencies[a] < frequencies[b]
    seen = np.sign(tokens[:, b] - tokens[:, a])[:, differ].mean(axis=1).mean()
    # Hoeffding: the mean of values in [-1, 1] is further off with probability at most FALSE_ALARM.
    margin = math.sqrt(2 * math.log(2 / FALSE_ALARM) / rounds)
    assert abs(seen - kendall_tau(channel, frequencies)) < margin


def test_kendall_tau_of_thousands_of_frequencies():
    channel = optimal(1.0, 1e-8)
    assert kendall_tau(channel, np.arange(1, 3001)) > 0.99


class TestTopK:
    def test_clear_cases(self, channel):
        # Far apart, the top come out on top whenever they are reported at all.
        recall = top_k_recall(channel, [10**6, 5 * 10**5, 100], [1, 2, 10**6], 3)
        assert recall == pytest.approx(1.0, abs=1e-9)
        # If every key is on top, being reported is all it takes.
        frequencies = [5, 9, 30]
        reported = channel.reporting_probability(frequencies)
        assert top_k_recall(channel, frequencies, None, 3) == pytest.approx(reported.mean(), rel=1e-12)

    def test_one_against_one_is_concordance(self, channel):
        for i1, i2 in PAIRS:
            silent = float((1 - channel.reporting_probability([i1])[0]) * (1 - channel.reporting_probability([i2])[0]))
            expected = float(concordance(channel, i1, i2)) - silent / 2  # an unreported key is not on top
            assert top_k_recall(channel, [i1, i2], None, 1) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("k", [1, 3, 8])
    def test_drawn_tokens(self, channel, k):
        frequencies, counts, rounds = [14, 16, 17, 20, 23], [30, 5, 1, 2, 2], 10_000
        keys = np.sort(np.repeat(frequencies, counts))[::-1]
        tokens = channel.draw(np.tile(keys, rounds)).tokens.reshape(rounds, -1)
        rng = np.random.default_rng()
        # One of the top k, at random, is reported and above all others, ties broken by coins.
        tokens = np.where(tokens > 0, tokens + rng.random(tokens.shape) * 0.5, 0.0)
        mine = tokens[np.arange(rounds), rng.integers(0, k, rounds)]
        seen = ((mine > 0) & (mine > tokens[:, k:].max(axis=1))).sum()
        low, high = binomial_band(rounds, top_k_recall(channel, frequencies, counts, k))
        assert low <= seen <= high

    def test_one_against_many_in_closed_form(self, channel):
        # In a cell where the others stay below with probability from F to F + m: ((F + m)^(n+1) - F^(n+1)) / ((n+1) m).
        edges = channel.rows.cell_edges(0, 45 + channel.rows.spread)
        mine, mass = channel.rows.cell_probabilities(np.array([45, 42]), edges)
        over = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
        for others in (1, 10, 1000, 10**6):
            powers = np.exp((others + 1) * np.log1p(-np.minimum(over, 1 - 1e-16)))
            parts = -np.diff(powers[::-1])[::-1] / ((others + 1) * np.maximum(mass, 1e-13))
            below = np.where(mass > 1e-13, parts, np.exp(others * np.log1p(-np.minimum(over[1:], 1 - 1e-16))))
            closed = pytest.approx(float(mine @ below), abs=1e-9)
            assert top_k_recall(channel, [45, 42], [1, others], 1) == closed, others


class TestQuantiles:
    def test_of_counts(self):
        channel = simple(1.0, 1e-8)
        tokens = np.array([3, 10, 20, 30])
        counts = channel.likeliest(tokens)
        assert (
            frequency_quantiles(channel, tokens, [0, 0.25, 0.5, 0.51, 1]).tolist() == counts[[0, 0, 1, 2, 3]].tolist()
        )
        assert frequency_quantiles(channel, tokens).tolist() == counts[:3].tolist()

    def test_weights_speak_for_unreported_keys(self, private):
        tokens = private.draw(np.repeat([15, 200], [2000, 500])).tokens
        tokens = tokens[tokens > 0]
        reported, everyone = (
            frequency_quantiles(private, tokens, [0.3, 0.6], keys=keys) for keys in ("reported", "all")
        )
        assert (everyone <= reported).all()


def test_bad_input_is_named():
    channel = simple(1.0, 1e-3)
    bad = {
        "channel": [
            lambda: concordance(1, 2, 3),
            lambda: kendall_tau(1, [2, 3]),
            lambda: top_k_recall(1, [2], None, 1),
        ],
        "i1": [lambda: concordance(channel, 0, 3), lambda: concordance(channel, 3, 3)],
        "i2": [lambda: concordance(channel, 3, 2.5)],
        "frequencies": [lambda: kendall_tau(channel, [7]), lambda: kendall_tau(channel, [0, 7])],
        "counts": [
            lambda: kendall_tau(channel, [1, 7], [1]),
            lambda: kendall_tau(channel, [1, 7], [1, -1]),
            lambda: kendall_tau(channel, [1, 7], ["a", "b"]),
            lambda: kendall_tau(channel, [1, 7], [0, 0]),
            lambda: top_k_recall(channel, [1, 7], [1.5, 1], 1),
        ],
        "k": [
            lambda: top_k_recall(channel, [1, 7], None, 0),
            lambda: top_k_recall(channel, [1, 7], None, 3),
            lambda: frequency_quantiles(channel, [3], keys="some"),
        ],
        "tokens": [lambda: frequency_quantiles(channel, []), lambda: frequency_quantiles(channel, [0])],
        "quantiles": [lambda: frequency_quantiles(channel, [3], 2), lambda: frequency_quantiles(channel, [3], "x")],
    }
    for name, calls in bad.items():
        for call in calls:
            with pytest.raises(DpsieveError, match=f"^{name}"):
                call()
