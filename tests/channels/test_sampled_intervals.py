"""The ends of the intervals of sampled counts, checked from both sides with exact tails."""

import numpy as np
import pytest
from scipy import stats

from dpsieve import estimation
from dpsieve.channels import sample_threshold
from dpsieve.noise.sample_threshold import sampled_interval

MISS = 0.025


@pytest.mark.parametrize(("rate", "threshold"), [(0.01, 3), (0.1, 11), (0.24, 19), (0.5, 50), (0.95, 4)])
def test_both_ends_are_the_first_that_hold(rate, threshold):
    tokens = np.unique(np.concatenate([np.arange(threshold, threshold + 40), [200, 1000, 12_345]]))
    low, high = sampled_interval(tokens, MISS, rate, threshold)

    def tail(i):
        return stats.binom.sf(tokens - 1, i, rate) / stats.binom.sf(threshold - 1, i, rate)

    def head(i):
        reported = stats.binom.sf(threshold - 1, i, rate)
        return (reported - stats.binom.sf(tokens, i, rate)) / reported

    assert (tail(low) >= MISS * (1 - 1e-6)).all() and (head(high) >= MISS * (1 - 1e-6)).all()
    above = low > tokens  # a token never comes from fewer units than it counts
    assert (tail(np.maximum(low - 1, threshold))[above] <= MISS * (1 + 1e-6)).all()
    assert (head(high + 1) <= MISS * (1 + 1e-6)).all()


def test_huge_and_impossible_tokens():
    low, high = sampled_interval(np.array([10**5, 10**12]), MISS, 1e-4, 5)
    assert 9e8 < low[0] < 10**9 < high[0] < 1.1e9
    assert low[1] == high[1] == 10**12, "nothing above 10^12 is looked at"


def test_a_high_threshold_leaves_out_what_is_never_reported():
    """Frequencies that are reported with a probability below 1e-300 are neither in nor the end of an interval."""
    low, high = sampled_interval(np.array([100_000, 100_001, 100_002]), 0.25, 0.1, 100_000)
    assert (low <= high).all() and (np.diff(high) >= 0).all()


def test_estimators_are_the_same_from_both_sides():
    channel = sample_threshold(0.3, 24)
    assert estimation.estimator(channel).value([300])[0] == channel.estimator().value([300])[0] == 1000
