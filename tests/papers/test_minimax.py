"""The estimator with the smallest worst error over a range of frequencies."""

import math

import numpy as np
import pytest

from dpsieve.channels import optimal, sample_threshold, simple
from dpsieve.errors import DpsieveError
from dpsieve.estimation import estimator
from dpsieve.papers.weighted_sampling import biased_down, minimax
from dpsieve.sampling import ppswor

TARGETS = {"w": None, "square": np.square, "capped": lambda w: np.minimum(w, 12.0)}


class TestMinimax:
    CASES = (
        # epsilon, delta, low, high, and by which factor the worst error is at least smaller than that of 'mle'
        (1.0, 1e-8, 20, 60, 0.93),
        (1.0, 1e-8, 36, 100, 0.80),
        (0.5, 1e-3, 12, 48, 0.85),
        (0.5, 1e-3, 24, 100, 0.70),
        (0.2, 1e-5, 60, 150, 0.90),
    )

    @pytest.mark.parametrize("make", [simple, optimal])
    @pytest.mark.parametrize(("epsilon", "delta", "low", "high", "factor"), CASES)
    def test_beats_mle_and_nearly_nothing_beats_it(self, make, epsilon, delta, low, high, factor):
        channel = make(epsilon, delta)
        it = minimax(channel, low=low, high=high)
        i = np.arange(low, high + 1)
        worst, of_mle = (float((np.sqrt(e.mse(i)) / i).max()) for e in (it, estimator(channel)))
        assert worst == pytest.approx(it.worst, rel=1e-12)
        assert of_mle == pytest.approx(it.mle_worst, rel=1e-12)
        assert worst < factor * of_mle
        assert it.bound <= worst <= 1.005 * it.bound
        parts = channel.resolution
        tokens = np.ceil(np.linspace(max(low - 2, 1) / 2, high, 2000) * parts).astype(int)
        values = it.value(tokens)
        assert (values >= 0).all()
        assert (np.diff(it.value(tokens[tokens > max(0, low - 5 / epsilon) * parts])) >= 0).all()

    def test_long_ranges_end_in_mle(self):
        channel = simple(0.5, 1e-3)
        it, mle = minimax(channel, low=24, high=3000), estimator(channel)
        assert it.worst < 0.7 * it.mle_worst
        assert it.worst <= 1.005 * it.bound
        assert it.value([2500]) == mle.value([2500])
        assert (np.diff(it.value(np.arange(1, 3000))) >= 0).all()

    def test_samples_gain_too(self):
        # Of sampled keys 'mle' makes up for all that were not reported, which costs it much of its accuracy.
        it = minimax(optimal(1.0, 1e-3, ppswor(0.05)), low=8, high=60)
        assert it.worst < 0.8 * it.mle_worst
        assert it.worst <= 1.005 * it.bound

    def test_the_bound_holds_for_all_kinds(self, channel):
        it = minimax(channel, low=5, high=30)
        i = np.arange(5, 31)
        for other in (estimator(channel), biased_down(channel), it):
            assert float((np.sqrt(other.mse(i)) / i).max()) >= it.bound

    @pytest.mark.parametrize("target", TARGETS)
    def test_never_worse_than_mle(self, channel, target):
        for low, high in ((1, 3), (9, 9), (10, 40)):
            it = minimax(channel, TARGETS[target], low=low, high=high)
            assert it.bound <= it.worst <= it.mle_worst

    def test_one_frequency_is_its_own_best_estimate(self):
        channel = simple(1.0, 1e-8)
        it = minimax(channel, low=19, high=19)
        assert it.value(np.arange(1, 20)).tolist() == pytest.approx([19.0] * 19)
        assert it.worst == pytest.approx(math.sqrt(1 - float(channel.reporting_probability([19])[0])))

    @pytest.mark.parametrize("target", TARGETS)
    def test_moments_are_sums_over_the_row(self, channel, target):
        it = minimax(channel, TARGETS[target], low=5, high=40)
        for i in (1, 5, 20, 45):
            edges = channel.rows.cell_edges(0, i + channel.rows.spread)
            mass = channel.rows.cell_probabilities(np.array([i]), edges)[0]
            values, g = (
                it.value((edges[:-1] + edges[1:] + 1) // 2),
                float(it.target(np.array([i]))[0]),
            )
            silent = float(channel.rows.withheld(np.array([i]))[0])
            assert it.expectation(i) == pytest.approx(math.fsum(mass * values), rel=1e-9)
            assert it.mse(i) == pytest.approx(math.fsum([silent * g**2, *(mass * (values - g) ** 2)]), rel=1e-9)


BAD = {
    "channel must": lambda c: minimax("simple", low=1, high=2),
    "channel samples": lambda c: minimax(sample_threshold(0.2, 6), low=1, high=2),
    "low": lambda c: minimax(c, low=None, high=3),
    "high": lambda c: minimax(c, low=5, high=3),
    "low and high are": lambda c: minimax(c, low=5, high=10**6),
    "g(low)": lambda c: minimax(c, lambda w: np.maximum(w - 9, 0), low=5, high=20),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name):
    with pytest.raises(DpsieveError) as error:
        BAD[name](simple(1.0, 1e-3))
    assert str(error.value).startswith(name)


def test_repr_says_what_it_is():
    assert repr(minimax(simple(1.0, 1e-3), low=1500, high=1510)).startswith("<minimax estimator on 1,500 to 1,510")
