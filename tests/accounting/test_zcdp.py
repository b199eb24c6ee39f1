"""Zero-concentrated privacy, as (epsilon, delta)."""

import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsieve.accounting.curves import gaussian_delta, zcdp_delta, zcdp_epsilon, zcdp_rho
from dpsieve.errors import DpsieveError, InvalidValue


def rounded_delta(rho, epsilon):
    """The smallest bound over alpha, with 60 digits and another way to find alpha."""
    with mpmath.workdps(60):
        rho, epsilon = mpmath.mpf(rho), mpmath.mpf(epsilon)

        def exponent(log_t):
            a = 1 + mpmath.exp(log_t)
            return (a - 1) * (a * rho - epsilon) - mpmath.log(a - 1) + a * mpmath.log(1 - 1 / a)

        low, high = mpmath.mpf(-60), mpmath.mpf(60)
        for _ in range(200):
            left, right = (2 * low + high) / 3, (low + 2 * high) / 3
            low, high = (low, right) if exponent(left) < exponent(right) else (left, high)
        return min(mpmath.mpf(1), mpmath.exp(exponent(low)))


def test_a_budget_and_its_price():
    # The Gaussian with sigma = 1 is 1/2-zCDP.
    epsilon = zcdp_epsilon(0.5, 1e-6)
    assert epsilon == pytest.approx(5.2215, abs=1e-4)
    # The textbook conversion rho + 2 sqrt(rho ln(1/delta)) is clearly larger, the exact Gaussian smaller.
    assert epsilon < 0.95 * (0.5 + 2 * math.sqrt(0.5 * math.log(1e6)))
    assert gaussian_delta(1.0, epsilon) < 1e-6


@pytest.mark.parametrize("rho", [1e-6, 0.01, 0.1, 1.0, 20.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.0, 8.0, 60.0])
def test_delta_is_the_optimum_rounded_up(rho, epsilon):
    exact, ours = rounded_delta(rho, epsilon), zcdp_delta(rho, epsilon)
    assert ours <= exact * (1 + mpmath.mpf("1e-12")) or ours == math.ulp(0.0)
    assert ours >= exact * (1 - mpmath.mpf("1e-20"))


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-4, 5), st.floats(0, 20))
def test_delta_covers_the_gaussian_of_the_same_rho(rho, epsilon):
    assert zcdp_delta(rho, epsilon) >= gaussian_delta(1 / math.sqrt(2 * rho), epsilon) * (1 - 1e-12)


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-4, 5), st.floats(-20, -0.5))
def test_epsilon_is_enough_and_nothing_less_is(rho, exponent):
    delta = 10**exponent
    epsilon = zcdp_epsilon(rho, delta)
    assert zcdp_delta(rho, epsilon) <= delta
    assert epsilon == 0 or zcdp_delta(rho, epsilon * (1 - 1e-10)) > delta


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 50), st.floats(-20, -0.5))
def test_rho_is_inside_the_budget_and_nothing_more_is(epsilon, exponent):
    delta = 10**exponent
    rho = zcdp_rho(epsilon, delta)
    assert zcdp_delta(rho, epsilon) <= delta
    assert zcdp_delta(rho * (1 + 1e-9), epsilon) > delta


def test_epsilon_zero_is_no_special_case():
    # At epsilon = 0 the bound is close to sqrt(2 rho / e).
    assert zcdp_delta(1e-30, 0.0) == pytest.approx(math.sqrt(2e-30 / math.e), rel=1e-6)


def test_small_deltas():
    assert zcdp_delta(zcdp_rho(1.0, 1e-20), 1.0) == pytest.approx(1e-20, rel=1e-12)


def test_there_is_not_always_an_answer():
    assert zcdp_epsilon(0.1, 0.0) == math.inf
    assert zcdp_epsilon(1e6, 1e-6) == math.inf
    assert zcdp_delta(1e308, 500.0) == 1.0
    assert zcdp_delta(1e-308, 500.0) == math.ulp(0.0)
    with pytest.raises(InvalidValue, match=r"delta=1e-300 leaves no rho.*Raise epsilon or delta"):
        zcdp_rho(0.0, 1e-300)


BAD_RHO = [0, 0.0, -0.1, math.nan, math.inf, "0.1", None, True, 10**400]
BAD_EPSILON = [-1.0, math.nan, math.inf, "1", None, True, 501, 10**400]
BAD_DELTA = [-1e-9, 1.0, 2.0, math.nan, math.inf, "1e-6", None, False]


@pytest.mark.parametrize(
    ("call", "name", "values"),
    [
        (lambda bad: zcdp_delta(bad, 1.0), "rho", BAD_RHO),
        (lambda bad: zcdp_delta(0.1, bad), "epsilon", BAD_EPSILON),
        (lambda bad: zcdp_epsilon(bad, 1e-6), "rho", BAD_RHO),
        (lambda bad: zcdp_epsilon(0.1, bad), "delta", BAD_DELTA),
        (lambda bad: zcdp_rho(bad, 1e-6), "epsilon", BAD_EPSILON),
        (lambda bad: zcdp_rho(1.0, bad), "delta", [0, 0.0, *BAD_DELTA]),
    ],
)
def test_bad_parameters_are_named_with_a_fix(call, name, values):
    for bad in values:
        with pytest.raises(DpsieveError, match=rf"^{name}.*Pass "):
            call(bad)
