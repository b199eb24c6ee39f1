"""Estimates of g(w) for one key: values, and errors that agree with sums over the rows done by hand."""

import math
from fractions import Fraction

import numpy as np
import pytest
from helpers.statistical import FALSE_ALARM

from dpsieve.channels import optimal, simple
from dpsieve.errors import DpsieveError
from dpsieve.estimation import Estimator, estimator
from dpsieve.sampling import ppswor

KINDS = ("mle", "biased_down")
TARGETS = {"w": None, "square": np.square, "capped": lambda w: np.minimum(w, 12.0)}


def by_hand(estimator, channel, i):
    """Return (expectation, mse) of frequency i from its row, token by token, with math.fsum."""
    row, g = channel.row(i), float(estimator.target(np.array([i]))[0])
    tokens, mass = row.right, row.mass
    if channel.resolution > 1:  # cut the cells of the row where the values may change
        cuts = channel.rows.cell_edges(0, i) / channel.resolution
        tokens = np.union1d(cuts, np.append(row.left, row.right))
        tokens = tokens[tokens > row.left[0]]
        cell = np.searchsorted(row.right, tokens)
        share = np.diff(tokens, prepend=row.left[0]) / (row.right - row.left)[cell]
        mass = row.mass[cell] * share
    values = estimator.value(tokens)
    return math.fsum(mass * values), math.fsum([row.silent * g**2, *(mass * (values - g) ** 2)])


def test_rows_stay_within_reach(channel):
    # All that follows looks for the tokens of row i in (i - reach, i + reach] only.
    for i in (1, 5, channel.rows.spread, 2 * channel.rows.spread, 5 * channel.rows.spread):
        edges = channel.rows.cell_edges(max(i - channel.rows.spread, 0), i + channel.rows.spread)
        assert channel.rows.cell_probabilities(np.array([i]), edges).sum() == pytest.approx(
            float(channel.reporting_probability([i])[0]), rel=1e-12
        )


def test_a_first_estimate():
    channel = simple(epsilon=1.0, delta=1e-8)
    mle = estimator(channel)
    assert isinstance(mle, Estimator)
    # Token 30 is likeliest for frequency 48, which is always reported: so it stands for 48.
    assert channel.likeliest([30.0]) == 48
    assert mle.value([30.0]) == pytest.approx(48)
    # Keys that are not reported come as token 0, and count nothing.
    assert mle.value([0.0, 30.0]).tolist() == [0.0, mle.value(30.0)[0]]


def test_the_sum_of_values_estimates_the_sum_of_frequencies():
    channel, frequencies = optimal(1.0, 1e-6), np.full(20_000, 50)
    mle = estimator(channel)
    total = mle.value(channel.draw(frequencies)).sum()
    # Bernstein's inequality: a sum of n terms that stray from their mean by at most b is further off than this with
    # probability at most FALSE_ALARM.
    spread, rate = len(frequencies) * float(mle.variance(50)), math.log(2 / FALSE_ALARM)
    b = float(np.abs(mle.value(channel.row(50).right) - 50).max()) + 50
    margin = rate * b / 3 + math.sqrt((rate * b / 3) ** 2 + 2 * rate * spread)
    assert abs(total - len(frequencies) * float(mle.expectation(50))) < margin < 0.01 * frequencies.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_sums_over_the_rows(channel, kind):
    for name, target in TARGETS.items():
        it = estimator(channel, target, kind)
        frequencies = np.array([1, 2, 3, 7, 19, 20, 41, 100])
        moments = it.moments(frequencies)
        expectation, mse = np.array([by_hand(it, channel, int(i)) for i in frequencies]).T
        g = it.target(frequencies)
        for found, true, rtol, atol in (
            (moments.expectation, expectation, 1e-12, 0),
            (moments.mse, mse, 1e-10, 1e-13),
            (moments.bias, expectation - g, 1e-9, 1e-11 * g.max()),
            (moments.mse, moments.variance + moments.bias**2, 1e-10, 1e-13),
        ):
            np.testing.assert_allclose(found, true, rtol, atol, err_msg=name)


def test_each_moment_has_its_own_method_and_keeps_the_shape():
    mle, i = estimator(simple(1.0, 1e-3)), np.array([[3, 7], [20, 3]])
    moments = mle.moments(i)
    for name in ("expectation", "bias", "variance", "mse"):
        assert np.array_equal(getattr(mle, name)(i), getattr(moments, name))
        assert getattr(mle, name)(20) == getattr(moments, name)[1, 0]
    assert moments.mse.shape == i.shape
    assert mle.mse([]).shape == (0,)


def test_digits_stay_where_keys_are_nearly_never_or_always_reported():
    channel = simple(2.0, 1e-20)
    mle = estimator(channel)
    # Frequency 1 is reported with probability 1e-20: the variance is that probability times the square of a value.
    value = float(mle.value(1.0)[0])
    assert mle.variance(1) == pytest.approx(float(channel.reporting_probability([1])[0]) * value**2, rel=1e-12)
    # Errors of huge frequencies are those of large ones: rows repeat, but for a silence of about 1e-25.
    silent = channel.row(10**12).silent
    assert 0 < silent < 1e-24
    assert mle.mse(10**12) - silent * 1e24 == pytest.approx(float(mle.mse(10**4)), rel=1e-6)
    assert mle.bias(10**12) == pytest.approx(float(mle.bias(10**4)), rel=1e-6)


def test_huge_and_scattered_frequencies_need_no_huge_tables():
    mle = estimator(optimal(1.0, 1e-8))
    frequencies = [10**k for k in range(13)]
    assert np.isfinite(mle.mse(frequencies)).all()


class TestBiasedDown:
    @pytest.mark.parametrize("target", TARGETS)
    def test_never_too_large_on_average_and_rising(self, channel, target):
        it = estimator(channel, TARGETS[target], "biased_down")
        i = np.arange(1, 200)
        assert (it.bias(i) <= 0).all()
        beyond = i > channel.rows.spread
        if (np.diff(it.target(i) / channel.reporting_probability(i))[beyond[:-1]] >= 0).all():
            assert (np.diff(it.value(np.linspace(0.001, 200, 4000))) >= 0).all()

    def test_falls_where_large_keys_are_sampled_ever_more_surely(self):
        # All keys above 12 count alike, but later ones are reported more often: g(i) / pi_i falls, and so must a_t.
        it = estimator(optimal(1.0, 1e-3, ppswor(0.05)), TARGETS["capped"], "biased_down")
        assert it.value(300.0) < it.value(1.0)

    @pytest.mark.parametrize("target", [None, np.sqrt, np.square])
    @pytest.mark.parametrize("make", [simple, optimal])
    def test_is_the_sequence_of_the_paper(self, make, target):
        channel = make(1.0, 1e-2)
        it = estimator(channel, target, "biased_down")
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
        found = it.value(edges[1:] / channel.resolution)
        np.testing.assert_allclose(found, [float(a) for a in values], rtol=3e-11)

    def test_the_order_of_questions_does_not_matter(self):
        first, second = (estimator(optimal(1.0, 1e-4), kind="biased_down") for _ in range(2))
        tokens = np.array([3.0, 700.5, 64.0, 128.0, 12.25])
        one_by_one = np.concatenate([first.value(t) for t in tokens])
        assert np.array_equal(one_by_one, second.value(tokens))

    def test_its_limit_names_the_way_out(self):
        it = estimator(simple(1.0, 1e-3), kind="biased_down")
        with pytest.raises(DpsieveError, match=r"1,000,000.*kind='mle'"):
            it.value(10**6 + 1)


class TestUnbiased:
    def test_closed_form(self):
        # As long as probabilities grow by e^epsilon from row to row, a_j = (j - (j - 1) e^epsilon) / delta.
        it = estimator(simple(1.0, 1e-8), kind="unbiased")
        j = np.arange(1, 15)
        np.testing.assert_allclose(it.value(j), (j - (j - 1) * math.e) / 1e-8, rtol=1e-9)

    @pytest.mark.parametrize("make", [simple, optimal])
    @pytest.mark.parametrize("target", [None, np.sqrt, np.square])
    def test_right_on_average(self, make, target):
        it = estimator(make(0.5, 0.05), target, "unbiased")
        i = np.arange(1, 30)
        moments = it.moments(i)
        np.testing.assert_allclose(moments.expectation, it.target(i), rtol=1e-9)

    def test_lost_digits_are_far_below_the_noise(self, private):
        it = estimator(private, kind="unbiased")
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
        found = estimator(channel, kind="unbiased").value(np.arange(1, 25))
        np.testing.assert_allclose(found, [float(a) for a in values], rtol=1e-7)

    def test_refusals_name_the_way_out(self, wobbly):
        with pytest.raises(DpsieveError, match=r"kind='unbiased' exceeds.*kind='mle'"):
            estimator(simple(1.0, 1e-8), kind="unbiased").value(2000.0)
        with pytest.raises(DpsieveError, match="no token above"):
            estimator(wobbly, kind="unbiased").value(3.0)


BAD = {
    "channel": lambda c: estimator("simple"),
    "kind": lambda c: estimator(c, kind="best"),
    "kind=": lambda c: estimator(c, kind=None),
    "g must": lambda c: estimator(c, 3),
    "g(0)": lambda c: estimator(c, lambda w: w + 1),
    "g decreases": lambda c: estimator(c, np.sin).mse(np.arange(1, 9)),
    "g is not finite": lambda c: estimator(c, lambda w: np.where(w > 5, np.inf, 0)).mse(9),
    "g does not": lambda c: estimator(c, lambda w: 0.0),
    "g failed": lambda c: estimator(c, lambda w: w + "x"),
    "tokens": lambda c: estimator(c).value([-1.0]),
    "tokens must be numbers": lambda c: estimator(c).value(["x"]),
    "tokens must be a number": lambda c: estimator(c).value([[1.0]]),
    "tokens must be finite": lambda c: estimator(c).value(np.nan),
    "i must": lambda c: estimator(c).bias(1.5),
    "i holds": lambda c: estimator(c).mse(0),
    "i holds a": lambda c: estimator(c).variance([1, 10**13]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name):
    with pytest.raises(DpsieveError) as error:
        BAD[name](simple(1.0, 1e-3))
    assert str(error.value).startswith(name.rstrip("="))


def test_repr_says_what_it_is():
    channel = simple(1.0, 1e-3)
    assert repr(estimator(channel)) == "<mle estimator for <simple channel, epsilon=1, delta=0.001>>"
