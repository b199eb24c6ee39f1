"""Bounds that are proven: what leaves ball arithmetic is on the safe side, and as close as a float can be."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsieve.exact.balls import ball, first_whole, largest, lower, minimise, smallest, smallest_epsilon, upper

positive = st.floats(min_value=1e-300, max_value=1e300)


@given(positive, positive)
def test_a_quotient_lies_between_its_bounds_one_float_apart(a, b):
    low, high = lower(lambda: ball(a) / ball(b)), upper(lambda: ball(a) / ball(b))
    if math.isfinite(high):
        assert Fraction(low) <= Fraction(a) / Fraction(b) <= Fraction(high)
        assert high in (low, math.nextafter(low, math.inf))


def test_exact_values_stay_exact():
    assert upper(lambda: ball(0.1)) == lower(lambda: ball(0.1)) == 0.1
    assert upper(lambda: ball(0)) == 0.0


def test_cancellation_is_paid_with_more_bits():
    # 1 - cos(x) for a tiny x is x^2 / 2, far below what 128 bits leave over.
    tiny = 2.0**-300
    value = upper(lambda: 1 - ball(tiny).cos())
    assert value == pytest.approx(tiny**2 / 2, rel=1e-15)


def test_a_ball_that_stays_wide_is_left_at_its_end():
    assert upper(lambda: ball(1).union(ball(2))) == pytest.approx(2, rel=1e-8)
    assert upper(lambda: ball(1).union(ball(2))) >= 2
    assert lower(lambda: ball(1).union(ball(2))) <= 1


def test_values_outside_the_floats_leave_on_the_safe_side():
    assert upper(lambda: ball(-1000).exp()) == math.ulp(0.0)
    assert lower(lambda: ball(-1000).exp()) == 0.0
    assert upper(lambda: ball(1000).exp()) == math.inf
    assert upper(lambda: ball(1) / ball(0)) == math.inf


def test_the_precision_of_flint_is_left_as_it_was():
    from flint import ctx

    before = ctx.prec
    upper(lambda: ball(2).sqrt())
    assert ctx.prec == before


@given(positive)
def test_bisection_finds_the_last_float_that_holds(edge):
    assert largest(lambda x: x <= edge, 0.0, 1e301) == edge
    assert smallest(lambda x: x >= edge, 0.0, 1e301) == edge


def test_bisection_at_the_ends():
    assert largest(lambda x: True, 1.0, 2.0) == 2.0
    assert largest(lambda x: x <= 1.0, 1.0, 2.0) == 1.0
    assert smallest(lambda x: True, 1.0, 2.0) == 1.0
    assert smallest_epsilon(lambda epsilon: epsilon >= 500) == 500
    assert smallest_epsilon(lambda epsilon: False) == math.inf


def test_a_tolerance_stops_early_on_the_side_that_holds():
    calls = []
    found = smallest(lambda x: bool(calls.append(x)) or x >= math.pi, 0.0, 500.0, tolerance=1e-3)
    assert math.pi <= found <= math.pi * 1.002
    assert len(calls) < 30


def test_golden_section():
    assert minimise(lambda x: abs(x - 0.3), 0.0, 5.0, rounds=40) == pytest.approx(0.3, abs=1e-6)


@pytest.mark.parametrize("low", [0, 3, 10**20])
def test_the_first_whole_number(low):
    """Every answer near the start, and the limit where there is none, which is never tried itself."""
    for high in range(low, low + 20):
        for first in range(low, low + 25):
            tried = []
            assert first_whole(lambda n: tried.append(n) or n >= first, low, high) == min(first, high)  # noqa: B023
            assert all(low <= n < high for n in tried)
