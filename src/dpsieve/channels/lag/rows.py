"""Rows that subtract one and the same random lag from every frequency: token = frequency - lag, if above zero.

All channels without sampling are of this kind. They need one distribution, not a table: each row is the previous one
shifted up, so a frequency of 10^12 costs what a frequency of 10 costs.

Privacy. Rows i and i + 1 are the lag shifted by one unit, with the tokens up to zero announced as 'nothing'. The kernel
checks the lag against itself shifted by one unit, and 'nothing' against row 1; joining tokens to 'nothing' cannot raise
a divergence, so these two pairs stand for all.
"""

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from dpsieve.channels.grid import ONE, Inverse, below, fraction, words
from dpsieve.channels.lag.optimal import Lag
from dpsieve.channels.rows import Chain, Rows, Windows, shortest
from dpsieve.errors import InvalidValue
from dpsieve.privacy import Block, joint_divergence
from dpsieve.randomness.source import Source
from dpsieve.randomness.tables import CHUNK
from dpsieve.types import Floats, Ints, Words
from dpsieve.validate import Neighbours

_ROWS = 4096  # with more rows, neighbours whose reported mass differs by less than 2 % share a window
_ALIKE = 0.02


class LagRows(Rows):
    """The rows of a lag, in tokens: parts of 1/resolution of a unit.

    The lag comes from a function, called when it is needed, as a wide one takes a while to make.
    """

    def __init__(self, resolution: int, lag: Callable[[], Lag], *, step: int = 1) -> None:
        self.resolution, self._make, self.step = resolution, lag, step

    @cached_property
    def lag(self) -> Lag:
        """The distribution of the lag."""
        lag = self._make()
        if lag.total() >= ONE:
            raise InvalidValue("lag has a mass of one or more. Round its masses down.")
        return lag

    @cached_property
    def last(self) -> int:  # type: ignore[override]
        """The frequency from which on every row is the previous one shifted up by one unit."""
        return len(self.totals[0]) - 1

    @cached_property
    def totals(self) -> tuple[Words, Words]:
        """The reported mass of rows 0 to `last`, in high and low words."""
        return words(list(self._sums()))

    @cached_property
    def spread(self) -> int:
        """Units: a row i has all its tokens in (i - spread, i + spread]."""
        return -(-max(self.lag.edges[-1], -self.lag.edges[0]) // self.resolution)

    def block(self, first: int, count: int) -> Block:
        """Return consecutive rows over shared cells, cut off below token 1."""
        own = np.arange(first, first + count)[:, None] * self.resolution
        edges = np.unique(np.maximum(own + 1 - self._edges, 1))
        edges = edges if len(edges) > 1 else np.array([1, 2])
        cell = self._cell_of(own - edges[:-1])
        high, low = (np.append(word, np.uint64(0))[cell] for word in self._words)
        return Block(edges, high, low)

    def single_rows(self, frequencies: Ints) -> Iterator[Block]:
        """Yield the row of each frequency; rows next to each other would share too many cells."""
        return (self.block(i, 1) for i in frequencies.tolist())

    def chains(self) -> Iterator[Chain]:
        """Yield, for each step, the first row with all its tokens, of which those up to zero are 'nothing'."""
        for s in range(1, self.step + 1):
            yield Chain([self._whole(s)], s * self.resolution, floor=1)

    def _totals(self, frequencies: Ints) -> tuple[Words, Words]:
        rows = np.minimum(frequencies, self.last)
        return self.totals[0][rows], self.totals[1][rows]

    def delta(self, epsilon: float, neighbours: Neighbours) -> float:
        """Return the divergence; under 'replace' one key loses a unit and another gains it, so both changes show."""
        if neighbours == "add_remove":
            return super().delta(epsilon, neighbours)
        if self.step > 1:
            hint = "Use channel.guarantee.for_replacement()."
            raise InvalidValue(f"neighbours='replace' has no exact curve for units with several keys or rows. {hint}")
        pairs = self.pairs()
        return max(joint_divergence((q, p), other, epsilon) for p, q in pairs for other in pairs)

    def pairs(self) -> list[tuple[Floats, Floats]]:
        """Return the neighbouring rows that stand for all, in floats: (0, 1), and two that are far from zero."""
        first = self.row(1)
        start = np.append(np.zeros(len(first.mass)), 1.0), np.append(first.mass, first.silent)
        far = np.array([self.last + self.spread, self.last + self.spread + 1])
        edges = self.cell_edges(self.last, int(far[1]) + self.spread)
        mass, silent = self.cell_probabilities(far, edges), self.withheld(far)
        some = mass.any(axis=0)
        low, high = (np.append(mass[k, some], silent[k]) for k in (0, 1))
        return [start, (low, high)]

    def cell_edges(self, low: int, high: int) -> Ints:
        """Return token edges between which every row is even; see `Rows.cell_edges`."""
        offsets = np.unique(np.append(-np.array(self.lag.edges) % self.resolution, 0))
        units = np.arange(low, high) * self.resolution
        return np.append((units[:, None] + offsets).ravel(), high * self.resolution)

    def cell_probabilities(self, frequencies: Ints, edges: Ints) -> Floats:
        """Return the probability of each cell between edges under each frequency; see `Rows.cell_probabilities`."""
        lags = frequencies[:, None] * self.resolution - edges[1:]
        return np.where(edges[1:] > 0, self.mass_at(lags), 0.0) * np.diff(edges)

    def likeliest(self, tokens: Ints) -> tuple[Ints, Floats]:
        """Return the frequency under which each token has its largest probability, and that."""
        place = -tokens % self.resolution
        kind = np.searchsorted(self._peaks[0], place, side="right") - 1
        frequencies: Ints = np.maximum((tokens + place) // self.resolution + self._peaks[1][kind], 1)
        return frequencies, self.mass_at(frequencies * self.resolution - tokens)

    def windows(self, first: int, last: int, level: float) -> Windows:
        """Return the shortest windows, as lags."""
        edges = np.array(self.lag.edges, dtype=np.float64)
        mass = np.array([m / 2**128 for m in self.lag.masses])
        sums = np.concatenate([[0.0], np.cumsum(mass * np.diff(edges))])
        # Where the window of the whole lag fits into a row, it holds the level there, too, and more need not be sought.
        whole = shortest(edges, sums, int(edges[-1]), level)
        fits = min(last, int(whole[1]) // self.resolution + 1)
        below_row = np.interp(np.arange(1, fits + 1) * self.resolution, edges, sums)
        groups = np.arange(fits) if fits <= _ROWS else np.floor(np.log(np.maximum(below_row, 1e-300)) / _ALIKE)
        start = np.flatnonzero(np.diff(groups, prepend=-np.inf))
        stop = np.append(start[1:], fits) - 1
        # With (1 - l) P[lag < stop] = (1 - level) P[lag < start], a window of the last row at level l serves its group.
        missing = (1 - level) * below_row[start] / np.maximum(below_row[stop], 1e-300)
        ends = zip(((stop + 1) * self.resolution).tolist(), (1 - missing).tolist(), strict=True)
        found = np.array([shortest(edges, sums, top, high) for top, high in ends], dtype=np.int64).reshape(-1, 2)
        spans = np.concatenate([np.repeat(found, stop - start + 1, axis=0), np.full((last - fits, 2), whole)])
        return Windows(self.resolution, spans[first - 1 :, 0].copy(), spans[first - 1 :, 1].copy(), first)

    def draw(self, frequencies: Ints, source: Source) -> Ints:
        """Return a token for each frequency; one random word decides nearly every key that is not reported."""
        tokens = np.zeros(len(frequencies), np.int64)
        for start in range(0, len(tokens), CHUNK):
            part = frequencies[start : start + CHUNK]
            high = source.words(len(part))
            rows = np.minimum(part, self.last)
            maybe = np.flatnonzero(high <= self.totals[0].take(rows))
            high, rows = high[maybe], rows[maybe]
            low = source.words(len(maybe))
            shown = below(high, low, self.totals[0][rows], self.totals[1][rows])
            lags = self._inverse.places(high[shown], low[shown])
            chosen = maybe[shown]
            tokens[start + chosen] = part[chosen] * self.resolution - lags
        return tokens

    @cached_property
    def _inverse(self) -> Inverse:
        return Inverse.of(self.lag.edges, self.lag.masses)

    def _whole(self, frequency: int) -> Block:
        """Return a row with all its tokens, also those up to zero that are announced as 'nothing'."""
        high, low = self._words
        return Block(frequency * self.resolution + 1 - self._edges[::-1], high[None, ::-1], low[None, ::-1])

    @cached_property
    def _edges(self) -> Ints:
        return np.array(self.lag.edges)

    @cached_property
    def _words(self) -> tuple[Words, Words]:
        return words(self.lag.masses)

    def mass_at(self, lags: Ints) -> Floats:
        """Return the probability of each lag."""
        return np.append(fraction(*self._words), 0.0)[self._cell_of(lags)]

    def _cell_of(self, lags: Ints) -> Ints:
        """Return the cell of each lag; the number of cells for a lag outside of all."""
        cell = np.searchsorted(self._edges, lags, side="right") - 1
        return np.where(cell < 0, len(self._edges) - 1, cell)

    def _sums(self) -> Iterator[int]:
        """Yield the reported mass of rows 0, 1, ... until it is that of the whole lag."""
        edges, masses, total, cell = self.lag.edges, self.lag.masses, 0, 0
        yield 0
        place, top = edges[0], 0
        while place < edges[-1]:
            top += self.resolution
            while place < min(top, edges[-1]):
                stop = min(top, edges[cell + 1])
                total += (stop - place) * masses[cell]
                place, cell = stop, cell + (stop == edges[cell + 1])
            yield total

    @cached_property
    def _peaks(self) -> tuple[Ints, Ints]:
        """Return where in a unit the likelihood changes shape, and the lag (in whole units) at which it is largest."""
        edges = self._edges
        places = np.unique(np.append(edges % self.resolution, 0))
        units = np.arange(edges[0] // self.resolution, edges[-1] // self.resolution + 1)
        weight = self.mass_at(places[:, None] + units * self.resolution)
        return places, units[np.argmax(weight, axis=1)]
