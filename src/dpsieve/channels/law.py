"""The distribution of the output for each true frequency, as reading and estimation need it.

Row i = 1, 2, ... is the distribution for the true frequency i: 'nothing', or a token. Tokens are whole numbers from 1
on, `resolution` of them per unit of frequency. Row 0 is 'nothing' with certainty.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints

LARGEST_FREQUENCY = 10**12
CELLS = 1 << 20  # entries of one piece of a table in floats
_RUN = 17  # at most 2^17 neighbouring rows are tabulated at a time


@dataclass(frozen=True, eq=False)
class Row:
    """The distribution of the output for one true frequency.

    `silent` is the probability of 'nothing'. Cell t has the tokens left[t] + 1 to right[t], with the total probability
    mass[t], spread evenly. Cells are in increasing order, and a cell is one token where the resolution is one.
    """

    silent: float
    left: Ints
    right: Ints
    mass: Floats

    @classmethod
    def of(cls, silent: float, edges: Ints, mass: Floats) -> "Row":
        """Return the row of the cells between edges that have any mass."""
        possible = mass > 0
        return cls(silent, edges[:-1][possible], edges[1:][possible], mass[possible])

    @property
    def reported(self) -> float:
        """The probability that the key is reported at all."""
        return float(self.mass.sum())


class TokenLaw(ABC):
    """The distribution of tokens for each true frequency, as floats: what reading and estimation need.

    Attributes:
        resolution: tokens per unit of frequency.
        last: each row after it is the previous one shifted up by `resolution` tokens; None when rows keep changing.
        spread: a row i has all its tokens in (i - spread, i + spread], in units of frequency.
    """

    resolution: int = 1
    last: int | None = None
    spread: int = LARGEST_FREQUENCY

    @abstractmethod
    def reported(self, frequencies: Ints) -> Floats:
        """Return the probability of a report for each frequency."""

    @abstractmethod
    def withheld(self, frequencies: Ints) -> Floats:
        """Return the probability of 'nothing' for each frequency, to full relative precision."""

    @abstractmethod
    def cell_probabilities(self, frequencies: Ints, edges: Ints) -> Floats:
        """Return the probability of each cell between `edges` (a column) under each frequency (a row).

        `edges` come from `cell_edges`. The smallest probabilities keep their digits.
        """

    @abstractmethod
    def likeliest(self, tokens: Ints) -> tuple[Ints, Floats]:
        """Return the likeliest frequency of each token, and its probability there; zero if no row has the token."""

    @abstractmethod
    def interval(self, tokens: Ints, level: float) -> tuple[Ints, Ints]:
        """Return the confidence interval of each token; given a report, its coverage is at least `level`."""

    @abstractmethod
    def draw(self, frequencies: Ints, source: Source, *, already_sampled: bool = False) -> Ints:
        """Return a token for each frequency, 0 for 'nothing', with exactly the probabilities of its row.

        With `already_sampled`, the row is conditional on the key having been sampled.
        """

    def cell_edges(self, low: int, high: int) -> Ints:
        """Return edges from low to high units, as tokens, between which every row spreads its mass evenly.

        They go from low * resolution to high * resolution; cell t has the tokens edges[t] + 1 to edges[t+1].
        """
        return np.arange(low * self.resolution, high * self.resolution + 1)

    def spanning_edges(self, first: int, last: int) -> Ints:
        """Return cell edges that span all tokens of rows first to last."""
        return self.cell_edges(max(first - self.spread, 0), last + self.spread)

    def band_width(self, frequency: int) -> float:
        """Return the range of frequencies above this one that share a table with it."""
        return max(self.spread // 2, 16)

    def bands(self, frequencies: Ints) -> Iterator[tuple[slice, Ints]]:
        """Cut increasing frequencies into runs; yield each with cell edges that span all tokens of its rows."""
        start = 0
        while start < len(frequencies):
            first = int(frequencies[start])
            stop = int(np.searchsorted(frequencies, first + self.band_width(first), side="right"))
            yield from in_steps(start, stop, self.spanning_edges(first, int(frequencies[stop - 1])))
            start = stop

    def row(self, frequency: int) -> Row:
        """Return one row; with a resolution of one, token by token."""
        if frequency == 0:
            return Row.of(1.0, np.zeros(1, np.int64), np.empty(0))
        edges, only = self.spanning_edges(frequency, frequency), np.array([frequency])
        return Row.of(float(self.withheld(only)[0]), edges, self.cell_probabilities(only, edges)[0])


@dataclass(frozen=True)
class Windows:
    """The windows of rows first, first + 1, ...: row i has the tokens from i * resolution - farthest to - nearest.

    With `settled`, the last window serves all later rows. The window of i holds the token of a reported key of
    frequency i with probability at least `level`, and is the shortest that does. The interval of a token spans the
    frequencies whose window holds it, so P[i in the interval | a key of frequency i is reported] >= level for every i
    (Neyman's construction).
    """

    resolution: int
    nearest: Ints
    farthest: Ints
    first: int = 1
    settled: bool = True

    def interval(self, tokens: Ints) -> tuple[Ints, Ints]:
        """Return the lowest and the highest frequency whose window holds each token."""
        rows = self.first + np.arange(len(self.nearest))
        tops = np.maximum.accumulate(rows * self.resolution - self.nearest)
        bottoms = np.minimum.accumulate((rows * self.resolution - self.farthest)[::-1])[::-1]
        low = self.first + np.searchsorted(tops, tokens, side="left")
        high = self.first - 1 + np.searchsorted(bottoms, tokens, side="right")
        if self.settled:
            last, nearest, farthest = int(rows[-1]), int(self.nearest[-1]), int(self.farthest[-1])
            low = np.where(low > last, np.maximum(-(-(tokens + nearest) // self.resolution), last), low)
            reach = (tokens + farthest) // self.resolution
            high = np.where(reach >= last, reach, high)
        return low, np.maximum(high, low)


class WindowedLaw(TokenLaw):
    """A law whose confidence intervals come from a window of tokens per row; see `Windows`."""

    @abstractmethod
    def windows(self, first: int, last: int, level: float) -> Windows:
        """Return the windows of rows first to last."""

    def interval(self, tokens: Ints, level: float) -> tuple[Ints, Ints]:
        """Return the confidence interval of each token, from the windows of the rows that reach it."""
        values, place = np.unique(tokens, return_inverse=True)
        low, high = np.empty_like(values), np.empty_like(values)
        for run in runs(values, 4 * self.spread * self.resolution):
            first, last = (int(token) // self.resolution for token in values[run][[0, -1]])
            windows = self.windows(max(1, first - self.spread), last + self.spread + 1, level)
            low[run], high[run] = windows.interval(values[run])
        return low[place], high[place]


def runs(values: Ints, gap: int) -> Iterator[slice]:
    """Cut increasing values at gaps larger than `gap`, and about every 2^17."""
    cuts = np.flatnonzero((np.diff(values) > gap) | (np.diff(values >> _RUN) > 0)) + 1
    return (slice(a, b) for a, b in pairwise([0, *cuts.tolist(), len(values)]) if b > a)


def in_steps(start: int, stop: int, edges: Ints) -> Iterator[tuple[slice, Ints]]:
    """Yield rows start to stop - 1 in slices whose table over these edges has at most about CELLS entries."""
    step = max(CELLS // len(edges), 1)
    for first in range(start, stop, step):
        yield slice(first, min(first + step, stop)), edges
