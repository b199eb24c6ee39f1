"""Estimates of g(w) for one key: values, and errors that agree with sums over the rows done by hand."""

import math

import numpy as np
import pytest
from helpers.statistical import FALSE_ALARM

from dpsieve.channels import optimal, simple
from dpsieve.errors import DpsieveError
from dpsieve.estimation import Estimator, estimator
from dpsieve.papers.weighted_sampling import biased_down

KINDS = {"mle": estimator, "biased_down": biased_down}
TARGETS = {"w": None, "square": np.square, "capped": lambda w: np.minimum(w, 12.0)}


def by_hand(estimator, channel, i):
    """Return (expectation, mse) of frequency i from its row, token by token, with math.fsum."""
    row, g = channel.row(i), float(estimator.target(np.array([i]))[0])
    tokens, mass = row.right, row.mass
    if channel.resolution > 1:  # cut the cells of the row where the values may change
        cuts = channel.rows.cell_edges(0, i)
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
    assert channel.likeliest([30]) == 48
    assert mle.value([30]) == pytest.approx(48)
    # Keys that are not reported come as token 0, and count nothing.
    assert mle.value([0, 30]).tolist() == [0.0, mle.value([30])[0]]


def test_the_sum_of_values_estimates_the_sum_of_frequencies():
    channel, frequencies = optimal(1.0, 1e-6), np.full(20_000, 50)
    mle = estimator(channel)
    total = mle.value(channel.draw(frequencies).tokens).sum()
    # Bernstein's inequality: a sum of n terms that stray from their mean by at most b is further off than this with
    # probability at most FALSE_ALARM.
    spread, rate = len(frequencies) * float(mle.variance(50)), math.log(2 / FALSE_ALARM)
    b = float(np.abs(mle.value(channel.row(50).right) - 50).max()) + 50
    margin = rate * b / 3 + math.sqrt((rate * b / 3) ** 2 + 2 * rate * spread)
    assert abs(total - len(frequencies) * float(mle.expectation(50))) < margin < 0.01 * frequencies.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_sums_over_the_rows(channel, kind):
    for name, target in TARGETS.items():
        it = KINDS[kind](channel, target)
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
    value = float(mle.value([1])[0])
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


BAD = {
    "channel": lambda c: estimator("simple"),
    "g must": lambda c: estimator(c, 3),
    "g(0)": lambda c: estimator(c, lambda w: w + 1),
    "g decreases": lambda c: estimator(c, np.sin).mse(np.arange(1, 9)),
    "g is not finite": lambda c: estimator(c, lambda w: np.where(w > 5, np.inf, 0)).mse(9),
    "g does not": lambda c: estimator(c, lambda w: 0.0),
    "g failed": lambda c: estimator(c, lambda w: w + "x"),
    "tokens holds": lambda c: estimator(c).value([-1]),
    "tokens": lambda c: estimator(c).value([10**13]),
    "tokens must": lambda c: estimator(c).value(["x"]),
    "tokens must be a flat": lambda c: estimator(c).value([[1]]),
    "tokens must be a flat sequence": lambda c: estimator(c).value([1.0]),
    "i must": lambda c: estimator(c).bias(1.5),
    "i holds": lambda c: estimator(c).mse(0),
    "i holds a": lambda c: estimator(c).variance([1, 10**13]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name):
    with pytest.raises(DpsieveError) as error:
        BAD[name](simple(1.0, 1e-3))
    assert str(error.value).startswith(name)


def test_repr_says_what_it_is():
    channel = simple(1.0, 1e-3)
    assert repr(estimator(channel)) == "<mle estimator for <simple channel, epsilon=1, delta=0.001>>"
