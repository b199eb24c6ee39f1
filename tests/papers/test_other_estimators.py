"""The estimators of the paper beside maximum likelihood: never too large on average, and unbiased."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsieve.channels import optimal, simple
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.noise.sample_threshold import sample_threshold
from dpsieve.papers.weighted_sampling import biased_down, unbiased
from dpsieve.sampling import ppswor

TARGETS = {"w": None, "square": np.square, "capped": lambda w: np.minimum(w, 12.0)}


@pytest.mark.parametrize("make", [biased_down, unbiased])
def test_sampled_counts_are_refused(make):
    with pytest.raises(InvalidValue, match="scaled"):
        make(sample_threshold(0.3, 24))


class TestBiasedDown:
    @pytest.mark.parametrize("target", TARGETS)
    def test_never_too_large_on_average_and_rising(self, channel, target):
        it = biased_down(channel, TARGETS[target])
        i = np.arange(1, 200)
        assert (it.bias(i) <= 0).all()
        beyond = i > channel.rows.spread
        if (np.diff(it.target(i) / channel.reporting_probability(i))[beyond[:-1]] >= 0).all():
            tokens = np.ceil(np.linspace(0.001, 200, 4000) * channel.resolution).astype(int)
            assert (np.diff(it.value(tokens)) >= 0).all()

    def test_falls_where_large_keys_are_sampled_ever_more_surely(self):
        # All keys above 12 count alike, but later ones are reported more often: g(i) / pi_i falls, and so must a_t.
        channel = optimal(1.0, 1e-3, ppswor(0.05))
        it = biased_down(channel, TARGETS["capped"])
        assert it.value([300 * channel.resolution]) < it.value([channel.resolution])

    @pytest.mark.parametrize("target", [None, np.sqrt, np.square])
    @pytest.mark.parametrize("make", [simple, optimal])
    def test_is_the_sequence_of_the_paper(self, make, target):
        channel = make(1.0, 1e-2)
        it = biased_down(channel, target)
        edges, rows = channel.rows.cell_edges(0, 20), np.arange(1, 40)
        mass = [[Fraction(p) for p in row] for row in channel.rows.cell_probabilities(rows, edges)]
        g = [Fraction(x) for x in it.target(rows)]
        reported = [
            sum(map(Fraction, channel.rows.cell_probabilities(np.array([i]), channel.rows.cell_edges(0, 40))[0]))
            for i in rows
        ]
        values = []
        for cell in range(len(edges) - 1):
            ratios = []
            for i in range(len(rows)):
                if mass[i][cell]:
                    left = g[i] - sum(a * p for a, p in zip(values, mass[i], strict=False))
                    ratios.append(left / (reported[i] - sum(mass[i][:cell])))
            values.append(Fraction(float(min(ratios))))
        found = it.value(edges[1:])
        np.testing.assert_allclose(found, [float(a) for a in values], rtol=3e-11)

    def test_the_order_of_questions_does_not_matter(self):
        channel = optimal(1.0, 1e-4)
        first, second = (biased_down(channel) for _ in range(2))
        tokens = np.array([12, 2802, 256, 512, 49]) * (channel.resolution // 4)
        one_by_one = np.concatenate([first.value([t]) for t in tokens])
        assert np.array_equal(one_by_one, second.value(tokens))

    def test_its_limit_names_the_way_out(self):
        it = biased_down(simple(1.0, 1e-3))
        with pytest.raises(DpsieveError, match=r"1,000,000.*estimation.estimator"):
            it.value([10**6 + 1])


class TestUnbiased:
    def test_closed_form(self):
        # As long as probabilities grow by e^epsilon from row to row, a_j = (j - (j - 1) e^epsilon) / delta.
        it = unbiased(simple(1.0, 1e-8))
        j = np.arange(1, 15)
        np.testing.assert_allclose(it.value(j), (j - (j - 1) * math.e) / 1e-8, rtol=1e-9)

    @pytest.mark.parametrize("make", [simple, optimal])
    @pytest.mark.parametrize("target", [None, np.sqrt, np.square])
    def test_right_on_average(self, make, target):
        it = unbiased(make(0.5, 0.05), target)
        i = np.arange(1, 30)
        moments = it.moments(i)
        np.testing.assert_allclose(moments.expectation, it.target(i), rtol=1e-9)

    def test_lost_digits_are_far_below_the_noise(self, private):
        it = unbiased(private)
        moments = it.moments(np.arange(1, 60))
        assert (np.abs(moments.bias) <= 1e-13 * np.sqrt(moments.mse)).all()

    def test_exact_solution(self):
        channel = simple(1.0, 1e-2)
        values: list[Fraction] = []
        for i in range(1, 25):
            mass = [
                Fraction(p) for p in channel.rows.cell_probabilities(np.array([i]), channel.rows.cell_edges(0, i))[0]
            ]
            values.append((i - sum(a * p for a, p in zip(values, mass, strict=False))) / mass[-1])
        found = unbiased(channel).value(np.arange(1, 25))
        np.testing.assert_allclose(found, [float(a) for a in values], rtol=1e-7)

    def test_refusals_name_the_way_out(self, wobbly):
        with pytest.raises(DpsieveError, match=r"unbiased exceeds.*estimation.estimator"):
            unbiased(simple(1.0, 1e-8)).value([2000])
        with pytest.raises(DpsieveError, match="no token above"):
            unbiased(wobbly).value([3])
