"""A public grid of exact floats between two bounds, evenly spaced or on a log scale.

Every point is a float with few digits, so a number of the data is compared with a point exactly.
"""

import math
import struct
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import get_args

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.types import Floats, Ints
from dpsieve.validate import Scale

SCALES: tuple[Scale, ...] = get_args(Scale)
MOST_STEPS = 40
_FARTHEST = 1e300


@dataclass(frozen=True)
class DyadicGrid:
    """At most 2^steps points between `low` and `high`, numbered from 0.

    With scale='linear' the points are the multiples of a power of two, 2^exponent, that lie within the bounds. With
    scale='log', for bounds above zero, they are the floats whose last `exponent` binary digits are zero: equally many
    between any two powers of two, so the spacing is relative to the size. The spacing is the finest with at most
    2^steps points; never finer than that of floats at the bound that is farther from zero.

    Attributes:
        exponent: of the spacing, see above.
        first: the multiple of the spacing at point 0.
        size: the number of points, at least 1.

    >>> grid = DyadicGrid(0.0, 10.0, steps=4)
    >>> grid.points(np.arange(grid.size)).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]
    >>> grid.index(np.array([-np.inf, 2.0, 2.1, 99.0])).tolist()
    [0, 2, 3, 10]
    """

    low: float
    high: float
    steps: int = 32
    scale: Scale = "linear"

    def __post_init__(self) -> None:
        hint = "Pass public bounds of the values, such as bounds=(0, 100)."
        low, high = (validate.between(f"bounds {at}", value, -_FARTHEST, _FARTHEST, hint=hint) + 0.0
                     for at, value in (("low", self.low), ("high", self.high)))  # fmt: skip
        if not low < high:
            raise InvalidValue(f"bounds are reversed or equal. {hint}")
        if not isinstance(self.scale, str) or self.scale not in SCALES:
            raise InvalidValue("scale is not known. Choose 'linear', or 'log' for values above zero.")
        if self.scale == "log" and low <= 0:
            raise InvalidValue("scale='log' needs bounds above zero. Pass the least value that matters as the first.")
        hint = "Pass the number of halvings of the bounds, such as steps=32."
        steps = validate.whole("steps", self.steps, low=1, high=MOST_STEPS, hint=hint)
        validate.store(self, low=low, high=high, steps=steps)

    @cached_property
    def exponent(self) -> int:
        """The power of two between points, or the number of zero digits at the end of their floats."""
        if self.scale == "log":
            return max(0, (_bits(self.high) - _bits(self.low)).bit_length() - self.steps)
        width = Fraction(self.high) - Fraction(self.low)
        least = width.numerator.bit_length() - width.denominator.bit_length() - self.steps
        least += width >= Fraction(2) ** (self.steps + least)
        # A float below 2^e has no digits below 2^(e - 53).
        return max(least, math.frexp(max(abs(self.low), abs(self.high)))[1] - 53, -1074)

    @cached_property
    def first(self) -> int:
        """The multiple of the spacing that is the first point."""
        return -math.floor(self._multiple(-1, self.low))

    @cached_property
    def size(self) -> int:
        """The number of points."""
        return math.floor(self._multiple(1, self.high)) - self.first + 1

    @property
    def depth(self) -> int:
        """The number of halvings that find one point."""
        return (self.size - 1).bit_length()

    def index(self, values: Floats) -> Ints:
        """Return the number of the first point that is not below each value; the last one where there is none.

        So index(x) <= k is equivalent to x <= points(k), for every k except the last. It is monotonic. Values outside
        the bounds count as the bounds; NaN is not allowed.
        """
        within = np.clip(values, self.low, self.high)
        if self.scale == "log":
            multiple = (within.view(np.int64) + ((1 << self.exponent) - 1)) >> self.exponent
        else:
            # A product with a power of two is exact, and faster where that is a float.
            scaled = within * 2.0**-self.exponent if self.exponent > -1000 else np.ldexp(within, -self.exponent)
            vanished = (scaled == 0) & (within > 0)  # below the least float, above 0
            multiple = np.ceil(scaled, out=scaled).astype(np.int64) + vanished
        multiple -= self.first
        return np.clip(multiple, 0, self.size - 1, out=multiple)

    def points(self, index: Ints) -> Floats:
        """Return the exact points of these numbers."""
        multiple = np.asarray(index, np.int64) + self.first
        if self.scale == "log":
            return (multiple << self.exponent).view(np.float64)
        return np.ldexp(multiple.astype(np.float64), self.exponent)

    def point(self, index: int) -> float:
        """Return the point of one number."""
        return float(self.points(np.array([index]))[0])

    def holds(self, values: Floats) -> bool:
        """Return whether all of these finite values are points of the grid."""
        return bool((self.points(self.index(values)) == values).all())

    def _multiple(self, sign: int, value: float) -> Fraction:
        """Return sign * value in units of the spacing."""
        if self.scale == "log":
            return Fraction(sign * _bits(value), 1 << self.exponent)
        return sign * Fraction(value) / Fraction(2) ** self.exponent


def _bits(value: float) -> int:
    # Floats above zero are ordered like their bit patterns.
    return int(struct.unpack("<q", struct.pack("<d", value))[0])
