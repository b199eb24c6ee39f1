"""The noisy count of a stability histogram as an estimate, against the papers' formulas 38 to 42."""

import numpy as np
import pytest

import dpsieve as ds
from dpsieve.errors import DpsieveError
from dpsieve.papers.weighted_sampling import noisy_count, sampled_stability


def threshold(epsilon, delta):
    return 1 + np.log(1 / delta) / epsilon


def formula_39(i, epsilon, T):
    """E_i for g(w) = w."""
    above = i - np.exp(-epsilon * (i - T)) * (T - 1 / epsilon) / 2
    return np.where(i > T, above, np.exp(-epsilon * (T - i)) * (T + 1 / epsilon) / 2)


def formula_42(i, epsilon, T):
    """MSE_i for g(w) = w, without sampling."""
    above = 2 / epsilon**2 - np.exp(-epsilon * (i - T)) * (T * T / 2 - i * T + (i - T) / epsilon + 1 / epsilon**2)
    below = i**2 + np.exp(-epsilon * (T - i)) * (T * T / 2 - i * T - (i - T) / epsilon + 1 / epsilon**2)
    return np.where(i > T, above, below)


def integrated(i, epsilon, T, term):
    """The integral over x >= T of term(x) epsilon/2 e^(-epsilon |x - i|), in short steps."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    end = max(T, i) + 60 / epsilon
    starts = np.sort(np.append(np.arange(T, end, 0.25), i if T < i < end else T))
    width = np.diff(np.append(starts, end))
    x = (starts[:, None] + width[:, None] * (nodes + 1) / 2).ravel()
    return (np.outer(width, weights / 2).ravel() * term(x) * epsilon / 2 * np.exp(-epsilon * abs(x - i))).sum()


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-8), (0.5, 1e-6), (0.1, 1e-3), (2.0, 1e-6)])
def test_without_sampling(epsilon, delta):
    channel, T = ds.channels.stability(epsilon, delta, threshold="paper"), threshold(epsilon, delta)
    i = np.arange(1, int(3 * T))
    found = noisy_count(channel).moments(i)
    assert np.abs(found.expectation - formula_39(i, epsilon, T)).max() < 0.1 * min(1, epsilon / 2)
    assert np.abs(found.mse - formula_42(i, epsilon, T)).max() < 0.11  # a unit of rounding has a variance of 1/12


@pytest.mark.parametrize("scheme", [ds.ppswor(0.01), ds.ppswor(0.1, 0.5), ds.priority(0.01)], ids=repr)
@pytest.mark.parametrize("g", [None, np.sqrt])
def test_with_sampling(scheme, g):
    """E_i is the same whatever the scheme (38); the MSE is that of (40)."""
    epsilon, delta = 0.5, 1e-4
    channel, T = sampled_stability(epsilon, delta, scheme, threshold="paper"), threshold(epsilon, delta)
    of = g or (lambda x: x)
    i = np.array([1, 5, 15, int(T), int(T) + 3, 50, 99, 101, 300])
    found = noisy_count(channel, g).moments(i)
    for k, w in enumerate(i):
        expectation = integrated(w, epsilon, T, of)
        square = integrated(w, epsilon, T, lambda x: of(x) ** 2 / scheme.inclusion(x))
        mse = of(w) ** 2 - 2 * of(w) * expectation + square
        assert found.expectation[k] == pytest.approx(expectation, rel=2e-3, abs=1e-5)
        assert found.mse[k] == pytest.approx(mse, rel=4e-3)


def test_it_leans_less_than_the_likeliest_count_where_keys_are_common():
    """Far above the threshold the noisy count is right on average, and the likeliest whole count is 0.22 too low."""
    channel = ds.channels.stability(1.0, 1e-8)
    assert abs(noisy_count(channel).bias(500)) < 0.03 < abs(channel.estimator().bias(500))


def test_other_channels_have_no_noisy_count():
    with pytest.raises(DpsieveError, match="stability"):
        noisy_count(ds.channels.optimal(1.0, 1e-8))
