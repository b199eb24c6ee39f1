"""The rows of 'report first, then count': a coin shows the key, and only then a token is drawn, with Gaussian noise."""

import math

import numpy as np
from scipy.special import ndtr, ndtri

from dpsieve.channels.grid import floor_words, fraction
from dpsieve.channels.reporting.reporting_tables import ReportingTable
from dpsieve.channels.rows import CELLS, LARGEST_FREQUENCY, SAFE, Rows
from dpsieve.exact.search import first_whole
from dpsieve.privacy import Block
from dpsieve.randomness.noise import rounded_gaussian
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints

_REACH = 13.2  # in deviations: a Gaussian is farther off with a probability below 2^-128, which rows leave out
_BELOW_ONE = 1 - 2.0**-42  # so that no row is above one on the grid, in spite of rounding


class CountedRows(Rows):
    """Row x shows with the probability of its step, ceil(x / step); then the token is max(x, start) and noise.

    So a token below `start`, or around it, says 'at most about start'. Tokens are moved up, where needed, to be above
    zero; `offset` is by how much. The noise is a Gaussian rounded to whole numbers.
    """

    resolution = 1
    last: int

    def __init__(self, table: ReportingTable, first: int, sigma: float, step: int) -> None:
        self.table, self.sigma, self.step = table, sigma, step
        self.start = first * step
        self.reach = math.ceil(_REACH * sigma) + 1
        self.offset = max(0, self.reach + 1 - self.start)
        self.last = max((table.last - 1) * step + 1, self.start)
        self.spread = self.reach + self.start + self.offset
        self.piece = max(1, min(64, CELLS // (2 * self.reach + 64)))

    def reported(self, frequencies: Ints) -> Floats:
        """Return the probability of a report for each frequency."""
        return self.table.probability(-(-frequencies // self.step))

    def withheld(self, frequencies: Ints) -> Floats:
        """Return the probability of 'nothing' for each frequency; zero once a key always shows."""
        rows = np.clip(-(-frequencies // self.step), 0, self.table.last)
        rest = fraction(~self.table.high[rows], ~self.table.low[rows]) + 2.0**-128
        return np.where(rows == self.table.last, 0.0, rest)

    def block(self, first: int, count: int) -> Block:
        """Return consecutive rows over shared cells, rounded down to the grid; what is drawn is finer than that."""
        frequencies = np.arange(first, first + count)
        middle = np.maximum(frequencies, self.start) + self.offset
        tokens = np.arange(middle[0] - self.reach, middle[-1] + self.reach + 1)
        mass = self.reported(frequencies)[:, None] * self._noise(tokens - middle[:, None])
        return Block(np.append(tokens, tokens[-1] + 1), *floor_words(mass * _BELOW_ONE))

    def likeliest(self, tokens: Ints) -> tuple[Ints, Floats]:
        """Return the frequency under which each token has its largest probability, and that; zero if no row has it.

        Among the frequencies of one step the best is the one nearest to the token. All up to `start` have its law.
        """
        counts, place = np.unique(tokens - self.offset, return_inverse=True)
        found, best = counts.copy(), self._noise(np.zeros_like(counts))
        steps = np.arange(self.start // self.step, self.table.last)
        low = np.append(np.maximum((steps - 1) * self.step + 1, self.start), self.last)
        high = np.append(np.maximum(steps * self.step, self.start), LARGEST_FREQUENCY + self.reach)
        near = np.flatnonzero(counts < self.last + self.reach)  # all others are from rows that always show
        for some in np.array_split(near, 1 + len(near) * len(low) // CELLS):
            each = np.clip(counts[some, None], low, high)
            chance = self.reported(high) * self._noise(counts[some, None] - each)
            at = np.arange(len(some)), chance.argmax(axis=1)
            found[some], best[some] = each[at], chance[at]
        return found[place], best[place]

    def interval(self, tokens: Ints, level: float) -> tuple[Ints, Ints]:
        """Return the confidence interval of each token: all x for which max(x, start) is within the noise of it.

        Given a report the token is max(x, start) with noise, for every x, so this has its level for every x.
        """
        near, width = tokens - self.offset, self._width(level)
        low = np.where(near - width <= self.start, 1, near - width)
        return low, np.maximum(near + width, self.start)

    def draw(self, frequencies: Ints, source: Source) -> Ints:
        """Return a token for each frequency, 0 for 'nothing': the coin first, and noise where it shows."""
        tokens = np.zeros(len(frequencies), np.int64)
        shown = np.flatnonzero(self.table.select(-(-frequencies // self.step), source))
        noise = rounded_gaussian(self.sigma, len(shown), source=source)
        # Without a cut at one, noise beyond `reach` could make a token that says 'nothing'.
        tokens[shown] = np.maximum(np.maximum(frequencies[shown], self.start) + noise + self.offset, 1)
        return tokens

    def _width(self, level: float) -> int:
        """Return how far off noise is at most, at a level."""
        wide = math.ceil(-self.sigma * float(ndtri((1 - min(level * (1 + SAFE), 1 - 1e-15)) / 2)) + 0.5)

        def held(width: int) -> bool:
            return 1 - 2 * float(ndtr(-(width + 0.5) / self.sigma)) >= level * (1 + SAFE)

        return min(self.reach, first_whole(held, max(0, wide - 3), wide + 3))

    def _noise(self, values: Ints) -> Floats:
        """Return the probability of each noise, with its digits in the tails; zero where that is below 2^-128."""
        far = np.abs(values)
        mass = ndtr((0.5 - far) / self.sigma) - ndtr((-0.5 - far) / self.sigma)
        return np.where(far <= self.reach, mass, 0.0)
