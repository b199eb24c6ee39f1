"""Exact errors of releases, against sums over all outcomes, against draws, and against the bound of the thesis."""

import math

import numpy as np
import pytest

from dpsieve.errors import DpsieveError
from dpsieve.papers.thesis import aggregation_errors, mean_squared_bound, mean_squared_error
from dpsieve.randomness import SystemSource
from dpsieve.sketches.laplace_noise import NoisySketch
from dpsieve.sketches.summed_noise import RoundedSketch


def noise(scale, reach):
    x = np.arange(-reach, reach + 1)
    return np.exp(-np.abs(x) / scale) * np.tanh(1 / (2 * scale))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_the_exact_error_is_the_sum_over_all_outcomes(epsilon):
    made = NoisySketch(epsilon, 1e-4, 10)
    mass = noise(made.scale, 300)
    z, both = np.arange(-600, 601), np.convolve(mass, mass)
    for counter in (0, 1, 5, made.threshold - 1, made.threshold, made.threshold + 40, 10_000):
        published = np.where(counter + z >= made.threshold, counter + z, 0)
        for frequency in (counter, counter + 7):
            exact = both @ (published - frequency) ** 2
            assert float(mean_squared_error(made, counter, frequency)) == pytest.approx(exact, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("items", [0, 1000, 10**6])
def test_the_bound_of_the_theorem_holds(epsilon, items):
    """Every counter up to where nothing changes any more, with nothing lost and with as much as can be."""
    delta, k = 1e-8, 1024
    made = NoisySketch(epsilon, delta, k)
    counter, bound = np.arange(made.threshold + int(60 / epsilon)), mean_squared_bound(epsilon, delta, k, items)
    for lost in (0, items / (k + 1)):
        assert mean_squared_error(made, counter, counter + lost).max() <= bound


@pytest.mark.parametrize("counts", [[40, 60, 0, 9], [3], [2, 1], [900]])
def test_aggregation_errors_are_those_of_draws(counts):
    """The mean of squares over many draws; a deviation of 8 standard errors of that mean is the most."""
    epsilon, delta, k, runs, source = 1.0, 0.05, 7, 1000, SystemSource()
    one, sums = NoisySketch(epsilon, delta, k), RoundedSketch(epsilon, delta, k, len(counts))
    parts = [sum(one.draw(np.array([c]), 0, source).tokens[0] for c in counts) for _ in range(runs)]
    whole = sums.draw(np.full(20 * runs, sum(counts) * (k + 1)), 0, source).tokens / sums.resolution
    squares = [(np.asarray(published) - sum(counts)) ** 2 for published in (parts, whole)]
    for found, exact in zip(squares, aggregation_errors(epsilon, delta, k, counts), strict=True):
        assert abs(found.mean() - exact**2) <= 8 * found.std() / math.sqrt(len(found)) + 1e-9


def test_an_untrusted_aggregator_costs_more_with_every_source():
    """A key of 1,000 items: below the threshold in each of 100 sources, none of them publishes it."""
    errors = [aggregation_errors(1.0, 1e-8, 1024, [1000 // m] * m) for m in (1, 10, 100)]
    assert errors[0].untrusted < errors[1].untrusted < errors[2].untrusted
    assert errors[2].untrusted > 999 and errors[2].trusted == errors[0].trusted < 2


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: aggregation_errors(1.0, 1e-8, 10, []), "empty"),
        (lambda: aggregation_errors(1.0, 1e-8, 10, [-1]), "below 0"),
        (lambda: aggregation_errors(1.0, 0.0, 10, [1]), "delta"),
        (lambda: mean_squared_bound(1.0, 1e-8, 0, 10), "counters"),
        (lambda: mean_squared_bound(1.0, 1e-8, 10, -1), "items"),
        (lambda: mean_squared_bound(-1.0, 1e-8, 10, 1), "epsilon"),
    ],
)
def test_mistakes(wrong, named):
    with pytest.raises(DpsieveError, match=named):
        wrong()
