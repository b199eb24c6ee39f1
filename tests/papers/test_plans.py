"""Plans: what a channel will report, and how far sums will be off, before anything is spent."""

import math

import numpy as np
import pytest
from helpers.statistical import binomial_band

from dpsieve.channels import optimal, simple
from dpsieve.errors import DpsieveError
from dpsieve.estimation import estimator
from dpsieve.papers.weighted_sampling import biased_down, forecast, sum_error, zipf


def test_a_forecast_for_a_zipf_law():
    frequencies, counts = zipf(1.0, keys=10_000, total=1_000_000)
    plan = forecast(optimal(1.0, 1e-8), frequencies, counts)
    assert plan.mass == 1_000_000
    assert plan.keys == counts.sum() == 10_000
    assert 0 < plan.key_fraction < plan.mass_fraction < 1
    assert repr(plan) == (
        f"<Forecast: {plan.reported_keys:,.1f} (give or take {plan.spread:,.1f}) of 10,000 keys, "
        f"{plan.key_fraction:.1%} of keys and {plan.mass_fraction:.1%} of mass>"
    )


def test_forecasts_are_direct_sums(channel):
    frequencies, counts = np.array([1, 4, 9, 30, 400]), np.array([100, 50, 20, 3, 1])
    plan = forecast(channel, frequencies, counts)
    reported = channel.reporting_probability(frequencies)
    assert plan.reported_keys == pytest.approx(math.fsum(counts * reported), rel=1e-12)
    assert plan.reported_mass == pytest.approx(math.fsum(counts * reported * frequencies), rel=1e-12)
    assert plan.spread**2 == pytest.approx(math.fsum(counts * reported * (1 - reported)), rel=1e-9)
    # Listing each key gives the same plan as counting equal ones.
    listed = forecast(channel, np.repeat(frequencies, counts))
    assert listed.reported_mass == pytest.approx(plan.reported_mass, rel=1e-12)


def test_forecasts_come_true(channel):
    draws = (channel.draw(np.full(100_000, 12)).tokens > 0).sum()
    low, high = binomial_band(100_000, forecast(channel, [12]).reported_keys)
    assert low <= draws <= high


def test_zipf_keeps_its_promises():
    frequencies, counts = zipf(2.0, 1000, largest=10_000)
    assert frequencies[-1] == 10_000
    assert (np.diff(frequencies) > 0).all()
    assert abs(int(frequencies @ counts) - 10_000 * (np.arange(1, 1001) ** -2.0).sum()) <= 0.5 + 1e-6
    for alpha in (0.0, 0.5, 1.0, 3.0):
        frequencies, counts = zipf(alpha, 500, total=12_345)
        assert frequencies @ counts == 12_345
        assert counts.sum() <= 500
    assert [x.tolist() for x in zipf(0.0, 7, largest=3)] == [[3], [7]]


@pytest.mark.parametrize("make", [estimator, biased_down])
def test_the_error_of_a_sum(channel, make):
    it = make(channel)
    frequencies, counts = [2, 15, 15, 60], [40, 10, 5, 2]
    error = sum_error(it, frequencies, counts)
    each = it.moments(np.repeat(frequencies, counts))
    assert error.true == np.repeat(frequencies, counts).sum()
    assert error.expected == pytest.approx(each.expectation.sum(), rel=1e-12)
    assert error.bias == pytest.approx(error.expected - error.true, rel=1e-9)
    assert error.variance == pytest.approx(each.variance.sum(), rel=1e-12)
    assert error.mse == pytest.approx(error.variance + error.bias**2)
    assert error.nrmse == pytest.approx(math.sqrt(error.mse) / error.true)


def test_variance_averages_out_and_bias_does_not():
    it = estimator(optimal(1.0, 1e-8))
    one, many = sum_error(it, [20], [1]), sum_error(it, [20], [10_000])
    assert many.nrmse < one.nrmse
    assert many.nrmse > abs(many.bias) / many.true == pytest.approx(abs(one.bias) / one.true)


def test_bad_input_is_named():
    channel = simple(1.0, 1e-3)
    it = estimator(channel)
    bad = {
        "channel": [lambda: forecast(None, [1])],
        "estimator": [lambda: sum_error(channel, [1])],
        "frequencies": [
            lambda: forecast(channel, [0]),
            lambda: forecast(channel, [1.5]),
            lambda: sum_error(estimator(channel, lambda w: np.maximum(w - 9, 0)), [1, 2]),
        ],
        "counts": [
            lambda: forecast(channel, [1], [np.nan]),
            lambda: sum_error(it, [1, 2], [1]),
            lambda: sum_error(it, []),
        ],
        "alpha": [lambda: zipf(-1, 10, total=10)],
        "keys": [lambda: zipf(1, 0, total=10), lambda: zipf(1, 10**8, total=10)],
        "total": [lambda: zipf(1, 10), lambda: zipf(1, 10, total=10, largest=3), lambda: zipf(1, 10, total=0)],
        "largest": [lambda: zipf(1, 10, largest=1.5)],
    }
    for name, calls in bad.items():
        for call in calls:
            with pytest.raises(DpsieveError, match=f"^{name}"):
                call()
