"""The Gaussian mechanism: how much noise a budget needs, and how much budget a noise costs."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsieve.accounting.curves import gaussian_curve, gaussian_delta, gaussian_epsilon, gaussian_sigma
from dpsieve.errors import DpsieveError, InvalidValue


def rounded_delta(sigma, epsilon, sensitivity=1.0, count=1):
    """The formula of Balle and Wang with 400 digits."""
    with mpmath.workdps(400):
        mu = mpmath.sqrt(count) * mpmath.mpf(sensitivity) / mpmath.mpf(sigma)
        epsilon = mpmath.mpf(epsilon)
        first = mpmath.erfc((epsilon / mu - mu / 2) / mpmath.sqrt(2)) / 2
        second = mpmath.erfc((epsilon / mu + mu / 2) / mpmath.sqrt(2)) / 2
        return first - mpmath.exp(epsilon) * second


def test_the_noise_for_a_budget():
    assert gaussian_sigma(1.0, 1e-5) == pytest.approx(3.730631634815942, rel=1e-14)
    # The classical sigma = sqrt(2 ln(1.25 / delta)) / epsilon would be a third larger.
    assert gaussian_sigma(1.0, 1e-5) < 0.78 * math.sqrt(2 * math.log(1.25e5))


def test_noise_scales_with_the_sensitivity_and_the_root_of_the_count():
    one = gaussian_sigma(1.0, 1e-8)
    assert gaussian_sigma(1.0, 1e-8, sensitivity=3.0) == pytest.approx(3 * one, rel=1e-14)
    assert gaussian_sigma(1.0, 1e-8, count=100) == pytest.approx(10 * one, rel=1e-14)


@pytest.mark.parametrize(
    ("sigma", "epsilon", "size"),
    [
        (3.730631634815942, 1.0, -5),
        (2.0, 4.595443475954801, -20),
        (1.0, 0.0, -0.4),
        (20.0, 2.0, -350),
        (0.035, 500.0, -3),
    ],
)
def test_delta_keeps_its_digits_at_every_size(sigma, epsilon, size):
    exact, ours = rounded_delta(sigma, epsilon), gaussian_delta(sigma, epsilon)
    assert mpmath.log10(exact) == pytest.approx(size, abs=0.5) or exact < 1e-308
    assert exact <= ours
    assert ours <= max(float(exact) * (1 + 1e-15), math.ulp(0.0)) * (1 + 1e-15)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.05, 50), st.floats(0, 20), st.integers(1, 1000))
def test_delta_is_rounded_up_by_at_most_a_rounding(sigma, epsilon, count):
    exact = rounded_delta(sigma, epsilon, count=count)
    ours = gaussian_delta(sigma, epsilon, count=count)
    assert exact <= ours
    assert exact < 1e-300 or ours <= exact * (1 + mpmath.mpf("1e-15"))


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 20), st.floats(-20, -0.01), st.floats(1e-3, 1e3), st.integers(1, 10_000))
def test_sigma_is_enough_and_nothing_less_is(epsilon, exponent, sensitivity, count):
    delta = 10**exponent
    sigma = gaussian_sigma(epsilon, delta, sensitivity=sensitivity, count=count)
    assert gaussian_delta(sigma, epsilon, sensitivity, count=count) <= delta
    assert gaussian_delta(sigma * (1 - 1e-12), epsilon, sensitivity, count=count) > delta


@settings(max_examples=40, deadline=None)
@given(st.floats(0.2, 50), st.floats(-20, -0.5))
def test_epsilon_is_enough_and_nothing_less_is(sigma, exponent):
    delta = 10**exponent
    epsilon = gaussian_epsilon(sigma, delta)
    assert gaussian_delta(sigma, epsilon) <= delta
    assert epsilon == 0 or gaussian_delta(sigma, epsilon * (1 - 1e-12)) > delta


def test_there_is_not_always_an_epsilon():
    assert gaussian_epsilon(1.0, 0.0) == math.inf
    assert gaussian_epsilon(0.001, 1e-6) == math.inf
    assert gaussian_epsilon(1e300, 1e-6) == 0.0


@pytest.mark.parametrize("mu", [1e-6, 0.01, 1.0, 7.0, 40.0])
def test_the_curve_in_floats_stays_just_above_the_exact_one(mu):
    epsilons = np.array([-30.0, -1.0, -mu, 0.0, mu / 3, mu * mu / 2, 3 * mu, 8 * mu])
    for epsilon, ours in zip(epsilons, gaussian_curve(epsilons, mu), strict=True):
        with mpmath.workdps(400):
            exact = rounded_delta(1.0, float(epsilon), mu)
            tail = mpmath.erfc((mpmath.mpf(float(epsilon)) / mu - mpmath.mpf(mu) / 2) / mpmath.sqrt(2)) / 2
            assert exact <= ours <= exact + 4e-12 * tail


BAD_POSITIVE = [0, 0.0, -1.0, math.nan, math.inf, "1", None, True, 10**400, 1j]
BAD_EPSILON = [-1.0, math.nan, math.inf, "1", None, True, 501, 10**400]
BAD_DELTA = [-1e-9, 1.0, 2.0, math.nan, math.inf, "1e-6", None, False]
BAD_COUNT = [0, -1, 1.0, math.nan, "2", None, True, 10**400]


@pytest.mark.parametrize(
    ("call", "name", "values"),
    [
        (lambda bad: gaussian_delta(bad, 1.0), "sigma", BAD_POSITIVE),
        (lambda bad: gaussian_delta(1.0, bad), "epsilon", BAD_EPSILON),
        (lambda bad: gaussian_delta(1.0, 1.0, bad), "sensitivity", BAD_POSITIVE),
        (lambda bad: gaussian_delta(1.0, 1.0, count=bad), "count", BAD_COUNT),
        (lambda bad: gaussian_epsilon(bad, 1e-6), "sigma", BAD_POSITIVE),
        (lambda bad: gaussian_epsilon(1.0, bad), "delta", BAD_DELTA),
        (lambda bad: gaussian_epsilon(1.0, 1e-6, bad), "sensitivity", BAD_POSITIVE),
        (lambda bad: gaussian_sigma(bad, 1e-6), "epsilon", BAD_EPSILON),
        (lambda bad: gaussian_sigma(1.0, bad), "delta", [0, 0.0, *BAD_DELTA]),
        (lambda bad: gaussian_sigma(1.0, 1e-6, sensitivity=bad), "sensitivity", BAD_POSITIVE),
        (lambda bad: gaussian_sigma(1.0, 1e-6, count=bad), "count", BAD_COUNT),
    ],
)
def test_bad_parameters_are_named_with_a_fix(call, name, values):
    for bad in values:
        with pytest.raises(DpsieveError, match=rf"^{name}.*Pass ") as refusal:
            call(bad)
        assert isinstance(refusal.value, ValueError | TypeError)


def test_extreme_parameters():
    assert gaussian_delta(1e308, 1.0, 1e-308) == math.ulp(0.0)
    assert gaussian_delta(1e-308, 500.0, 1e308) == 1.0
    with pytest.raises(InvalidValue, match=r"sigma would be too large.*sensitivity.*raise delta"):
        gaussian_sigma(0.0, 1e-10, sensitivity=1e308)
