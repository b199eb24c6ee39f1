"""The same guarantee k times, composed optimally."""

import itertools
import math

import mpmath
import pytest
from helpers.privacy_curves import repeated_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsieve.accounting.composition import repeated_delta, repeated_share
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.exact.balls import ball, upper


def rounded_delta(k, epsilon, each_epsilon, each_delta):
    """The formula of Kairouz, Oh and Viswanath, with 80 digits beyond what cancels."""
    with mpmath.workdps(400):
        one, e, e0 = mpmath.mpf(1), mpmath.mpf(epsilon), mpmath.mpf(each_epsilon)
        kept = (one - mpmath.mpf(each_delta)) ** k
        terms = (
            mpmath.binomial(k, j) * max(0, mpmath.exp((k - j) * e0) - mpmath.exp(e + j * e0)) for j in range(k + 1)
        )
        return one - kept + kept * mpmath.fsum(terms) / (1 + mpmath.exp(e0)) ** k


def enumerated_delta(k, epsilon, each_epsilon, each_delta):
    """The worst mechanism itself: k times 'leak, or randomised response', every joint outcome added up.

    An outcome 'leak 0' is possible only without the protected unit, 'leak 1' only with it.
    """
    with mpmath.workdps(60):
        d, truth = mpmath.mpf(each_delta), 1 / (1 + mpmath.exp(-mpmath.mpf(each_epsilon)))
        without = {"leak 0": d, 0: (1 - d) * truth, 1: (1 - d) * (1 - truth), "leak 1": mpmath.mpf(0)}
        with_it = {"leak 0": mpmath.mpf(0), 0: (1 - d) * (1 - truth), 1: (1 - d) * truth, "leak 1": d}
        total = mpmath.mpf(0)
        for outcome in itertools.product(without, repeat=k):
            p, q = mpmath.fprod(without[o] for o in outcome), mpmath.fprod(with_it[o] for o in outcome)
            total += max(0, p - mpmath.exp(mpmath.mpf(epsilon)) * q)
        return total


def test_a_hundred_small_releases_cost_less_than_their_sum():
    # Basic composition would say epsilon = 10.
    assert repeated_epsilon(100, 1e-6, each_epsilon=0.1, each_delta=1e-10) == pytest.approx(4.77589, abs=1e-5)


def test_a_budget_for_a_hundred_releases():
    share = repeated_share(100, 1.0, 1e-6)
    assert share.epsilon == pytest.approx(0.023227, abs=1e-6)  # more than twice 1.0 / 100
    assert share.delta == pytest.approx(5e-9, rel=1e-5)  # half of delta, divided by 100
    assert repeated_delta(100, 1.0, each_epsilon=share.epsilon, each_delta=share.delta) <= 1e-6


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize(("each_epsilon", "each_delta"), [(0.3, 0.0), (1.0, 0.01), (2.5, 1e-20), (0.0, 0.1)])
def test_no_smaller_delta_is_possible(k, each_epsilon, each_delta):
    for epsilon in (0.0, 0.29, each_epsilon, 1.7 * each_epsilon, k * each_epsilon + 0.1):
        exact = enumerated_delta(k, epsilon, each_epsilon, each_delta)
        ours = repeated_delta(k, epsilon, each_epsilon=each_epsilon, each_delta=each_delta)
        assert exact - mpmath.mpf(10) ** -50 <= ours
        assert ours <= exact * (1 + mpmath.mpf("1e-12")) + mpmath.mpf(10) ** -50


@pytest.mark.parametrize(
    ("k", "epsilon", "each_epsilon", "each_delta"),
    [
        (100, 8.0, 0.1, 1e-30),
        (1000, 0.5, 0.001, 0.0),
        (1000, 9.9, 0.01, 0.0),
        (3, 0.9999999, 1 / 3, 0.0),  # the largest loss is hardly above epsilon
        (500, 400.0, 1.0, 1e-20),
        (10, 1e-9, 1e-9, 0.0),
        (50, 0.0, 5.0, 1e-12),
    ],
)
def test_delta_keeps_its_digits_at_every_size(k, epsilon, each_epsilon, each_delta):
    exact = rounded_delta(k, epsilon, each_epsilon, each_delta)
    ours = repeated_delta(k, epsilon, each_epsilon=each_epsilon, each_delta=each_delta)
    assert exact <= ours <= exact * (1 + k * mpmath.mpf("1e-13") + mpmath.mpf("1e-13"))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.floats(0, 20), st.floats(0, 3), st.floats(0, 0.5))
def test_delta_is_the_optimum_rounded_up(k, epsilon, each_epsilon, each_delta):
    exact = rounded_delta(k, epsilon, each_epsilon, each_delta)
    ours = repeated_delta(k, epsilon, each_epsilon=each_epsilon, each_delta=each_delta)
    assert exact <= ours
    assert ours <= exact * (1 + mpmath.mpf("1e-12")) + mpmath.mpf(10) ** -300


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.floats(0, 2), st.floats(0, 1e-3))
def test_basic_composition_is_never_better(k, each_epsilon, each_delta):
    total = upper(lambda: ball(each_epsilon) * k)
    delta = repeated_delta(k, total, each_epsilon=each_epsilon, each_delta=each_delta)
    assert delta <= upper(lambda: ball(each_delta) * k)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.floats(0, 1.5), st.floats(-20, -1))
def test_epsilon_is_enough_and_nothing_less_is(k, each_epsilon, exponent):
    delta = 10**exponent
    epsilon = repeated_epsilon(k, delta, each_epsilon=each_epsilon, each_delta=delta / (3 * k))
    assert repeated_delta(k, epsilon, each_epsilon=each_epsilon, each_delta=delta / (3 * k)) <= delta
    less = epsilon * (1 - 1e-9)
    assert less == epsilon or repeated_delta(k, less, each_epsilon=each_epsilon, each_delta=delta / (3 * k)) > delta


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.floats(1e-3, 20), st.floats(-20, -1), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_a_share_fits_and_no_larger_one_does(k, epsilon, exponent, part):
    delta = 10**exponent
    each_epsilon, each_delta = repeated_share(k, epsilon, delta, delta_for_keys=part)
    assert each_epsilon >= epsilon / k * (1 - 1e-15)
    assert each_delta == pytest.approx(-math.expm1(math.log1p(-part * delta) / k), rel=1e-12)
    assert repeated_delta(k, epsilon, each_epsilon=each_epsilon, each_delta=each_delta) <= delta
    assert repeated_delta(k, epsilon, each_epsilon=each_epsilon * (1 + 1e-9), each_delta=each_delta) > delta


def test_without_delta_the_share_is_the_tenth_part():
    assert repeated_share(10, 1.0, 0.0) == (0.1, 0.0) or repeated_share(10, 1.0, 0.0)[0] == math.nextafter(0.1, 0)


@pytest.mark.parametrize("delta", [1e-6, 1e-20])
def test_half_of_delta_costs_little_epsilon(delta):
    for k in (1, 10, 100, 3000):
        best = repeated_share(k, 1.0, delta, delta_for_keys=0.0).epsilon
        assert repeated_share(k, 1.0, delta).epsilon > 0.96 * best


def test_ten_thousand_mechanisms():
    share = repeated_share(10_000, 1.0, 1e-20)
    assert repeated_epsilon(10_000, 1e-20, each_epsilon=share.epsilon, each_delta=share.delta) <= 1.0


def test_there_is_not_always_an_epsilon():
    assert repeated_epsilon(10, 1e-9, each_epsilon=0.1, each_delta=1e-9) == math.inf
    assert repeated_epsilon(10, 1e-9, each_epsilon=500.0, each_delta=0.0) == math.inf
    assert repeated_delta(10**6, 500.0, each_epsilon=500.0, each_delta=0.999) == 1.0
    with pytest.raises(InvalidValue, match=r"epsilon=0 leaves nothing to share. Pass a budget"):
        repeated_share(10, 0.0, 0.0)


BAD_K = [0, -1, 1.0, math.nan, math.inf, "2", None, True, 10**6 + 1, 10**400]
BAD_EPSILON = [-1.0, math.nan, math.inf, "1", None, True, 501, 10**400]
BAD_DELTA = [-1e-9, 1.0, 2.0, math.nan, math.inf, "1e-6", False]
FINE = {"each_epsilon": 0.1, "each_delta": 1e-9}


@pytest.mark.parametrize(
    ("call", "name", "values"),
    [
        (lambda bad: repeated_delta(bad, 1.0, **FINE), "k", BAD_K),
        (lambda bad: repeated_delta(2, bad, **FINE), "epsilon", BAD_EPSILON),
        (lambda bad: repeated_delta(2, 1.0, each_epsilon=bad, each_delta=0.0), "each_epsilon", BAD_EPSILON),
        (lambda bad: repeated_delta(2, 1.0, each_epsilon=0.1, each_delta=bad), "each_delta", [None, *BAD_DELTA]),
        (lambda bad: repeated_share(bad, 1.0, 1e-6), "k", BAD_K),
        (lambda bad: repeated_share(2, bad, 1e-6), "epsilon", BAD_EPSILON),
        (lambda bad: repeated_share(2, 1.0, bad), "delta", [None, *BAD_DELTA]),
        (
            lambda bad: repeated_share(2, 1.0, 1e-6, delta_for_keys=bad),
            "delta_for_keys",
            [-0.1, 1.1, math.nan, "a", True],
        ),
    ],
)
def test_bad_parameters_are_named_with_a_fix(call, name, values):
    for bad in values:
        with pytest.raises(DpsieveError, match=rf"^{name}.*Pass "):
            call(bad)
