"""Integers that stand for probabilities: the 2^-128 grid, factors rounded on the safe side, words for numpy.

Every table is made from slightly tightened parameters: the step between rows is e^epsilon lowered by 2^-46, and delta
is lowered by 2^-36, both relative. That moves a reporting probability by less than 1e-9 and leaves the kernel room to
clear a pair of rows in floating point.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsieve.privacy.kernel import GRID, GUARD, exp_floor

ONE = 1 << GRID
FACTOR_BITS = GUARD
Words = NDArray[np.uint64]


class Steps:
    """The tightened parameters of a table: multiply by e^epsilon rounding down, divide by it rounding up."""

    def __init__(self, epsilon: float, delta: float) -> None:
        self.factor = exp_floor(epsilon) * (2**46 - 1) >> 46
        self.delta = int(Fraction(delta) * (1 - Fraction(1, 2**36)) * ONE)

    def grow(self, mass: int) -> int:
        """Return at most e^epsilon times the mass."""
        return mass * self.factor >> FACTOR_BITS

    def shrink(self, mass: int) -> int:
        """Return at least e^-epsilon times the mass."""
        return -((-mass << FACTOR_BITS) // self.factor)


def words(masses: Sequence[int]) -> tuple[Words, Words]:
    """Split 128-bit integers into their high and low words."""
    raw = b"".join(mass.to_bytes(16, "little") for mass in masses)
    pairs = np.frombuffer(raw, dtype="<u8").reshape(-1, 2)
    return pairs[:, 1].astype(np.uint64), pairs[:, 0].astype(np.uint64)


def floor_words(probabilities: NDArray[np.float64]) -> tuple[Words, Words]:
    """Return floor(p 2^128) for each p in [0, 1], at most 2^128 - 1. Each step is exact in floating point."""
    scaled = np.minimum(probabilities, 1.0) * 2.0**64
    sure = scaled >= 2.0**64
    whole = np.floor(np.where(sure, 0.0, scaled))
    high, low = whole.astype(np.uint64), ((np.where(sure, 0.0, scaled) - whole) * 2.0**64).astype(np.uint64)
    return np.where(sure, ~np.uint64(0), high), np.where(sure, ~np.uint64(0), low)


def fraction(high: Words, low: Words) -> NDArray[np.float64]:
    """Return high and low words as probabilities."""
    return high * 2.0**-64 + low * 2.0**-128
