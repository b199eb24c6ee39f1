"""Powers and 1 - e^-x in floating point, non-decreasing down to the last bit.

The functions of a mathematical library are accurate to about one unit in the last place, but f(x) > f(y) may happen for
x < y, and the vector and the scalar version of one function may differ. Here both are excluded by construction: in each
of 128 segments per power of two, a series in the distance r to the right end b is evaluated whose terms are all
positive, so that rounding is monotonic,

    1 - e^-x = (1 - e^-b) - e^-b expm1(r),    x^p = b^p - b^p s(r/b),    s(t) = 1 - (1-t)^p.

Values at the ends come from ball arithmetic. The value for x depends on x alone, is the same on every machine, and is
within a few units in the last place of the true value. Proof: docs/background/sampling.md#monotonic-to-the-last-bit.
"""

import math
from functools import cache, lru_cache

import numpy as np
from flint import arb

from dpsieve.exact.balls import precision
from dpsieve.types import Floats, Ints

_SHIFT = 45  # of the 52 bits of a significand, 7 choose the segment
_SEGMENTS = 1 << (52 - _SHIFT)
_DEGREE = 7  # the next term of either series is below 2^-56 of the result
_BITS = 128
_SMALL, _LARGE = 2.0**-54, 64.0  # below: 1 - e^-x rounds to x; from there: to 1
_NORMAL = 2.0**-1022
_FACTORIALS = [1 / math.factorial(k) for k in range(1, _DEGREE + 1)]
LARGEST = 2.0**53  # whole numbers up to here are exact


def raise_to_power(x: Floats, exponent: float) -> Floats:
    """Return x^exponent for 0 <= x <= 2^53 and 0 <= exponent <= 10; a fractional power takes subnormal x for zero.

    With exponent 0, it is 0 for x = 0 and 1 for all others.

    >>> raise_to_power(np.array([0.0, 1.0, 9.0]), 2.5).tolist()
    [0.0, 1.0, 243.0]
    """
    if exponent == 0:
        return (x > 0).astype(np.float64)
    fraction, integer = math.modf(exponent)
    result = _fractional(x, fraction) if fraction else x
    for _ in range(int(integer) - (not fraction)):
        result = result * x
    return result


def one_minus_exp(x: Floats) -> Floats:
    """Return 1 - e^-x for x >= 0, infinity included.

    >>> one_minus_exp(np.array([0.0, 1e-20, 1.0, 50.0])).tolist()
    [0.0, 1e-20, 0.6321205588285577, 1.0]
    """
    floors, tops, slopes, shifts = _saturation()
    inside = np.minimum(np.maximum(x, _SMALL), np.nextafter(_LARGE, 0.0))
    segment, distance = _segments(inside)
    segment -= _segment(_SMALL)
    falls = _series(distance, _FACTORIALS)
    falls *= slopes.take(segment)
    falls += shifts.take(segment)
    result = tops.take(segment)
    result -= falls
    np.maximum(result, floors.take(segment), out=result)
    return np.where(x < _SMALL, x, result)


def _fractional(x: Floats, exponent: float) -> Floats:
    """Return x^exponent for 0 < exponent < 1."""
    if exponent == 0.5:
        return np.sqrt(x)  # IEEE 754 rounds it correctly, so it is monotone
    ends = _powers(exponent)
    coefficients = [exponent]
    for k in range(1, _DEGREE):
        coefficients.append(coefficients[-1] * (k - exponent) / (k + 1))
    inside = np.maximum(x, _NORMAL)
    segment, distance = _segments(inside)
    distance /= inside + distance
    segment -= _segment(_NORMAL)
    result = ends.take(segment + 1)
    falls = _series(distance, coefficients)
    falls *= result
    result -= falls
    np.maximum(result, ends.take(segment), out=result)
    return np.where(x < _NORMAL, 0.0, result)


def _series(r: Floats, coefficients: list[float]) -> Floats:
    """Return c_1 r + c_2 r^2 + ..., by Horner's rule."""
    result = r * coefficients[-1]
    for c in coefficients[-2::-1]:
        result += c
        result *= r
    return result


def _segments(x: Floats) -> tuple[Ints, Floats]:
    """Return the segment of each normal x and the distance to its right end."""
    segment = x.view(np.int64) >> _SHIFT
    distance = ((segment + 1) << _SHIFT).view(np.float64)
    distance -= x
    return segment, distance


def _segment(x: float) -> int:
    return int(np.float64(x).view(np.int64)) >> _SHIFT


def _ends(low: float, high: float) -> list[float]:
    """Return the ends of all segments from low to high."""
    bits = np.arange(_segment(low), _segment(high) + 1, dtype=np.int64) << _SHIFT
    return [float(end) for end in bits.view(np.float64)]


@cache
def _saturation() -> tuple[Floats, Floats, Floats, Floats]:
    """Return, for each segment, its value at the left end and (top, slope, shift): top - (shift + slope expm1(r)).

    Up to 1, top is 1 - e^-b and shift 0, which keeps the digits of small values; from 1 on, top is 1 and shift e^-b,
    which keeps those of the distance to 1.
    """
    ends = np.array(_ends(_SMALL, _LARGE))
    with precision(_BITS):
        silent = np.array([float((-arb(b)).exp()) for b in ends.tolist()])
        values = np.array([float(-(-arb(b)).expm1()) if b <= 1 else 1.0 - s for b, s in zip(ends, silent, strict=True)])
    near_one = ends[1:] > 1
    tops, shifts = np.where(near_one, 1.0, values[1:]), np.where(near_one, silent[1:], 0.0)
    return values[:-1], tops, silent[1:], shifts


@lru_cache(maxsize=16)
def _powers(exponent: float) -> Floats:
    """Return b^exponent for the ends b of all segments from the least normal number to 2^53."""
    with precision(_BITS):
        p = arb(exponent)
        fine = np.array([float((1 + arb(k) / _SEGMENTS) ** p) for k in range(_SEGMENTS)])
        coarse = np.array([float(arb(2) ** (e * p)) for e in range(-1022, 54)])
    return np.maximum.accumulate(np.multiply.outer(coarse, fine).ravel())
