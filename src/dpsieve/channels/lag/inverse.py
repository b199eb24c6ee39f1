"""Draws from integer masses: which cell, and which place in it, a uniform 128-bit number falls on.

A uniform number U in [0, 2^128) is two words. Cell t holds the numbers from start[t] on, `mass[t]` for each of its
places. Every comparison is exact; floating point only proposes a place, and a proposal near the border of two places is
settled with integers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsieve.channels.grid import Words, words

_NEAR = 2.0**-16  # a proposed place is right to 2^-18, as there are at most 2^31 of them in a cell


@dataclass(frozen=True)
class Inverse:
    """The inverse of a cumulative distribution over cells of integer places."""

    edges: NDArray[np.int64]
    ends: tuple[Words, Words]  # the cumulative mass up to the end of each cell
    starts: tuple[Words, Words]
    masses: tuple[Words, Words]

    @classmethod
    def of(cls, edges: list[int], masses: list[int]) -> "Inverse":
        """Lay the cells out in a row; their masses must sum to less than 2^128."""
        sums = [0]
        for left, right, mass in zip(edges, edges[1:], masses, strict=False):
            sums.append(sums[-1] + (right - left) * mass)
        return cls(np.array(edges), words(sums[1:]), words(sums[:-1]), words(masses))

    def places(self, high: Words, low: Words) -> NDArray[np.int64]:
        """Return the place on which each number high * 2^64 + low falls; all must be below the total mass."""
        cell = np.searchsorted(self.ends[0], high, side="left")
        while len(tied := np.flatnonzero((self.ends[0][cell] == high) & (self.ends[1][cell] <= low))):
            cell[tied] += 1
        start_high, start_low = self.starts[0][cell], self.starts[1][cell]
        rest_low = low - start_low
        rest_high = high - start_high - (low < start_low)
        mass_high, mass_low = self.masses[0][cell], self.masses[1][cell]
        offset = (rest_high * 2.0**64 + rest_low) / (mass_high * 2.0**64 + mass_low)
        whole: NDArray[np.int64] = np.floor(offset).astype(np.int64)
        for k in np.flatnonzero(np.abs(offset - np.rint(offset)) < _NEAR):
            rest, mass = (int(a[k]) << 64 | int(b[k]) for a, b in ((rest_high, rest_low), (mass_high, mass_low)))
            whole[k] = rest // mass
        places: NDArray[np.int64] = self.edges[cell] + whole
        return places


def below(high: Words, low: Words, limit_high: Words, limit_low: Words) -> NDArray[np.bool_]:
    """Return whether each two-word number is below its limit."""
    smaller: NDArray[np.bool_] = (high < limit_high) | ((high == limit_high) & (low < limit_low))
    return smaller
