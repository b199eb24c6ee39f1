"""Integers that stand for probabilities: the 2^-128 grid, steps rounded on the safe side, and exact draws.

Every table is made from slightly tightened parameters: the step between rows is e^epsilon lowered by 2^-46, and delta
is lowered by 2^-36, both relative. That moves a reporting probability by less than 1e-9 and leaves the kernel room to
clear a pair of rows in floating point.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsieve.exact.two_words import below as below
from dpsieve.exact.two_words import floor_words as floor_words
from dpsieve.privacy.kernel import GRID, GUARD, exp_floor
from dpsieve.types import Floats, Ints, Words

ONE = 1 << GRID
FACTOR_BITS = GUARD
_NEAR = 2.0**-16  # a proposed place is right to 2^-18, as there are at most 2^31 of them in a cell


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


@dataclass(frozen=True)
class Inverse:
    """The inverse of a cumulative distribution over cells of integer places.

    A uniform number in [0, 2^128) is two words. Cell t has the numbers from start[t] on, `mass[t]` for each of its
    places. Every comparison is exact; floating point only proposes a place, and a proposal near the border of two
    places is settled with integers.
    """

    edges: Ints
    ends: tuple[Words, Words]  # the cumulative mass up to the end of each cell
    starts: tuple[Words, Words]
    masses: tuple[Words, Words]

    @classmethod
    def of(cls, edges: Sequence[int], masses: Sequence[int]) -> "Inverse":
        """Lay the cells out one after the other; their masses must sum to less than 2^128."""
        sums = [0]
        for left, right, mass in zip(edges, edges[1:], masses, strict=False):
            sums.append(sums[-1] + (right - left) * mass)
        return cls(np.array(edges), words(sums[1:]), words(sums[:-1]), words(masses))

    def places(self, high: Words, low: Words) -> Ints:
        """Return the place on which each number high * 2^64 + low falls; all must be below the total mass."""
        cell = np.searchsorted(self.ends[0], high, side="left")
        while len(tied := np.flatnonzero((self.ends[0][cell] == high) & (self.ends[1][cell] <= low))):
            cell[tied] += 1
        start_high, start_low = self.starts[0][cell], self.starts[1][cell]
        rest_low = low - start_low
        rest_high = high - start_high - (low < start_low)
        mass_high, mass_low = self.masses[0][cell], self.masses[1][cell]
        offset = (rest_high * 2.0**64 + rest_low) / (mass_high * 2.0**64 + mass_low)
        whole: Ints = np.floor(offset).astype(np.int64)
        for k in np.flatnonzero(np.abs(offset - np.rint(offset)) < _NEAR):
            rest, mass = (int(a[k]) << 64 | int(b[k]) for a, b in ((rest_high, rest_low), (mass_high, mass_low)))
            whole[k] = rest // mass
        return np.asarray(self.edges[cell] + whole)


def words(masses: Sequence[int]) -> tuple[Words, Words]:
    """Split 128-bit integers into their high and low words."""
    raw = b"".join(mass.to_bytes(16, "little") for mass in masses)
    pairs = np.frombuffer(raw, dtype="<u8").reshape(-1, 2)
    return pairs[:, 1].astype(np.uint64), pairs[:, 0].astype(np.uint64)


def integers(high: Words, low: Words) -> list[int]:
    """Return two-word numbers as Python's own."""
    return [a << 64 | b for a, b in zip(high.tolist(), low.tolist(), strict=True)]


def fraction(high: Words, low: Words) -> Floats:
    """Return high and low words as probabilities."""
    return np.asarray(high * 2.0**-64 + low * 2.0**-128)
