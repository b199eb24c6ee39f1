"""Draws from rows with a sampling scheme: of counted keys, and of keys that someone else sampled already."""

from abc import abstractmethod

import numpy as np

from dpsieve.channels.grid import floor_words
from dpsieve.channels.rows import Rows
from dpsieve.randomness.source import Source
from dpsieve.sampling.schemes import Scheme
from dpsieve.types import Ints, Words


class SampledRows(Rows):
    """Rows that report a key of frequency i with probability at most q_i, that of a scheme.

    Attributes:
        loss: a reporting probability is at most this much below the largest one, relatively (or by a token of a new
            unit, delta / resolution, where that is more).
    """

    scheme: Scheme
    loss: float = 0.0

    def draw(self, frequencies: Ints, source: Source) -> Ints:
        """Return a token for each frequency."""
        order = np.argsort(frequencies, kind="stable")
        high, low = source.words(len(order)), source.words(len(order))
        return self._in_place(frequencies, order, high, low)

    def finish(self, frequencies: Ints, source: Source) -> Ints:
        """Return a token for each frequency, given that its key was sampled with probability q_i.

        That is U < q_i 2^128, for the uniform number U that decides. Here q_i is that of the true frequency, also where
        rows share a reporting probability pi below it: then q_i P[reported | sampled] = pi, as it must be. A key with
        q_i below 2^-128 is never reported.
        """
        order = np.argsort(frequencies, kind="stable")
        high, low = source.words(len(order)), source.words(len(order))
        limit_high, limit_low = floor_words(self.scheme.inclusion(frequencies[order]))
        never = (limit_high | limit_low) == 0
        high[never] = low[never] = ~np.uint64(0)
        again = np.flatnonzero(~never)
        while len(again):
            top, bottom = limit_high[again], limit_low[again]
            high[again] = source.words(len(again)) & _ones_below(top)
            low[again] = source.words(len(again)) & np.where(top > 0, ~np.uint64(0), _ones_below(bottom))
            fits = (high[again] < top) | ((high[again] == top) & (low[again] < bottom))
            again = again[~fits]
        return self._in_place(frequencies, order, high, low)

    @abstractmethod
    def drawn(self, frequencies: Ints, high: Words, low: Words) -> Ints:
        """Return the tokens on which the numbers fall; frequencies do not decrease."""

    def _in_place(self, frequencies: Ints, order: Ints, high: Words, low: Words) -> Ints:
        out = np.empty(len(order), np.int64)
        out[order] = self.drawn(frequencies[order], high, low)
        return out


def _ones_below(limit: Words) -> Words:
    """Return 2^b - 1 for each word, with b its length in bits."""
    mask = limit.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        mask |= mask >> np.uint64(shift)
    return mask
