"""Elementary functions that never decrease, not even in the last bit, and are accurate to a few last bits."""

import math

import numpy as np
import pytest
from flint import arb
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpsieve.exact.balls import precision
from dpsieve.sampling.monotone import LARGEST, one_minus_exp, raise_to_power

WINDOW = 3000
exponents = st.floats(1e-6, 10.0) | st.sampled_from([0.1, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 10.0])


def adjacent_floats(start):
    """The next WINDOW floats, with no number left out between them."""
    bits = np.float64(start).view(np.int64) + np.arange(WINDOW)
    return bits.view(np.float64)


def seam(exponent, segment):
    """A number just below one of the 128 ends of segments in a power of two."""
    return math.ldexp(1 + segment / 128, exponent) * (1 - WINDOW / 2 * 2.0**-53)


def ulps(found, truth):
    """The error of each number found, in units of its last place."""
    with precision(256):
        return max(
            abs(float((arb(y) - t) / arb(math.ulp(y)))) for y, t in zip(found.tolist(), list(truth), strict=True)
        )


@given(st.floats(1e-18, 70.0) | st.builds(seam, st.integers(-54, 5), st.integers(0, 127)))
@example(37.4)
@example(2.0**-54 * (1 - 2.0**-45))
def test_saturation_never_decreases_between_adjacent_floats(start):
    assert (np.diff(one_minus_exp(adjacent_floats(start))) >= 0).all()


@given(st.floats(2.0**-1022, 2.0**52) | st.builds(seam, st.integers(-20, 52), st.integers(0, 127)), exponents)
def test_a_power_never_decreases_between_adjacent_floats(start, exponent):
    assert (np.diff(raise_to_power(adjacent_floats(start), exponent)) >= 0).all()


@pytest.mark.parametrize("exponent", [0.3, 0.5, 1.7])
def test_every_seam_of_the_tables(exponent):
    """Around each end of a segment: the float before, the end itself and the float after."""
    ends = (np.arange(969 * 128, 1076 * 128, dtype=np.int64) << 45).view(np.float64)
    around = np.stack([np.nextafter(ends, 0), ends, np.nextafter(ends, np.inf)], axis=1).ravel()
    assert (np.diff(one_minus_exp(around)) >= 0).all()
    assert (np.diff(raise_to_power(around, exponent)) >= 0).all()


def test_saturation_is_accurate():
    x = np.geomspace(1e-300, 60.0, 3000)
    with precision(256):
        assert ulps(one_minus_exp(x), [-(-arb(v)).expm1() for v in x.tolist()]) < 1.1


@pytest.mark.parametrize(("exponent", "bound"), [(0.01, 2.5), (0.3, 2.5), (0.99, 2.5), (2.0, 1.0), (2.7, 4), (9.9, 8)])
def test_powers_are_accurate(exponent, bound):
    x = np.geomspace(1e-30, LARGEST, 1000)
    with precision(256):
        assert ulps(raise_to_power(x, exponent), [arb(v) ** arb(exponent) for v in x.tolist()]) < bound


def test_the_ends_of_the_range():
    assert one_minus_exp(np.array([0.0, 5e-324, 64.0, 1e300, np.inf])).tolist() == [0.0, 5e-324, 1.0, 1.0, 1.0]
    assert raise_to_power(np.array([0.0, 5e-324, 1.0, LARGEST]), 0.25).tolist() == [0.0, 0.0, 1.0, 2.0**13.25]


@settings(max_examples=30)
@given(st.lists(st.floats(0.0, LARGEST), min_size=1, max_size=40), exponents)
def test_a_value_depends_on_its_argument_alone(x, exponent):
    x = np.array(x)
    assert raise_to_power(x, exponent).tolist() == [raise_to_power(np.array([v]), exponent)[0] for v in x]
    assert one_minus_exp(x).tolist() == [one_minus_exp(np.array([v]))[0] for v in x]
