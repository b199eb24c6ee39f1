"""The optimal channel without sampling, in closed form: token = frequency - lag, reported when the token is above zero.

Without sampling, row i of Algorithm 5 (Cohen, Geri, Sarlos, Stemmer 2021, as corrected) is the same distribution of the
lag for every i; lags >= i are silent. Cut a unit of lag into R parts, and follow part v through the lags v, v + R,
v + 2R, ... as the frequency grows. Its mass starts with delta / R, is multiplied by e^epsilon at each step that ends
below lag c and by e^-epsilon at each later step, and vanishes at lag b. Two sums fix b and c: the mass that vanishes at
a step is delta, and the total is 1. Both are solved on integers; the part that holds c gets a mass between the two
regimes, the part that holds b keeps a remainder. With R = 1 this is Algorithm 4. The kernel checks the lag against
itself shifted by one unit, and 'nothing' against row 1; these two pairs stand for all:
docs/background/channels.md#the-closed-form-of-the-lag.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from itertools import chain as joined
from operator import mul

import numpy as np

from dpsieve.accounting.loss_distributions import joint_divergence
from dpsieve.channels.law import WindowedLaw, Windows
from dpsieve.channels.rows import FACTOR_BITS, ONE, Chain, Inverse, Rows, Steps, shortest
from dpsieve.errors import InvalidValue
from dpsieve.exact import below, fraction, split_words
from dpsieve.exact.balls import first_whole
from dpsieve.privacy.kernel import Block
from dpsieve.randomness.source import Source
from dpsieve.randomness.tables import CHUNK
from dpsieve.types import Floats, Ints, Words
from dpsieve.validate import Neighbours


@dataclass(frozen=True)
class Lag:
    """Lags edges[t] to edges[t+1]-1 have the mass masses[t] each, in units of 2^-128.

    It is immutable: `optimal_lag` shares one among all channels with the same parameters.
    """

    edges: tuple[int, ...]
    masses: tuple[int, ...]

    def total(self) -> int:
        """Return the sum of all masses."""
        return sum((b - a) * m for a, b, m in zip(self.edges, self.edges[1:], self.masses, strict=False))


@lru_cache(maxsize=64)
def optimal_lag(epsilon: float, delta: float, resolution: int) -> Lag:
    """Return the distribution of the lag in parts of 1/resolution; it sums to one less a vanishing remainder.

    A delta above 1/2 fits once: two units are always reported, and 1 - delta vanishes from row to row.
    """
    steps = Steps(epsilon, delta)
    if 2 * steps.delta > ONE:
        halves = steps.delta // resolution, (ONE - steps.delta - 1) // resolution
        return Lag((0, resolution, 2 * resolution), halves)
    ladder = _Ladder(steps, resolution)
    # Geometric sums give an approximate c.
    guess = math.floor((_units_up(steps) - 2) * resolution)
    start = guess if guess > resolution + 1 and ladder.total(guess) <= ONE else resolution + 1
    c = first_whole(lambda c: ladder.total(c) > ONE, start, 1 << 60, step=resolution) - 1
    # Raise the part that holds c, between its two regimes, until all mass is used.
    unit = c // resolution
    low, high = ladder.rung(unit - 2) if unit > 1 else steps.shrink(ladder.rung(0)), ladder.rung(unit)
    used, over = ladder.total(c, low), ladder.total(c, high)
    while (width := high - low) > 1 + (high >> 80):
        # Nearly linear: try both sides of the interpolated root, then the middle.
        line = low + width * max(0, ONE - used) // max(1, over - used)
        for at in (line - (width >> 12), line + (width >> 12) + 1, (low + high) // 2):
            if low < at < high:
                mass = ladder.total(c, at)
                low, used, high, over = (at, mass, high, over) if mass < ONE else (low, used, at, mass)
    return ladder.lag(c, low)


def _units_up(steps: Steps) -> float:
    """Return the approximate number of steps up: delta, times e^epsilon per step, and back again, sums to 1."""
    rise = steps.factor / (1 << FACTOR_BITS)
    return math.log((2 + (rise - 1) * ONE / steps.delta) / (rise + 1)) / math.log(rise)


class _Chain:
    """The masses of a part at lags of 0, 1, 2, ... units, given up to its peak, and their sums."""

    def __init__(self, steps: Steps, masses: list[int]) -> None:
        self._steps, self.masses = steps, masses
        self.sums = list(accumulate(masses, initial=0))

    def at(self, unit: int) -> int:
        while len(self.masses) <= unit:
            self.masses.append(self._steps.shrink(self.masses[-1]))
            self.sums.append(self.sums[-1] + self.masses[-1])
        return self.masses[unit]


class _Ladder:
    """Lag distributions for any c, each vanishing as early as delta allows; chains are cached, as many c share them."""

    def __init__(self, steps: Steps, resolution: int) -> None:
        self._steps, self._resolution = steps, resolution
        self._rungs = [steps.delta // resolution]
        self._chains: dict[int, _Chain] = {}

    def rung(self, k: int) -> int:
        """Return the mass after k steps up."""
        while len(self._rungs) <= k:
            self._rungs.append(self._steps.grow(self._rungs[-1]))
        return self._rungs[k]

    def total(self, c: int, at_c: int | None = None) -> int:
        """Return the sum of all masses for a given c, and a given mass of the part that holds it."""
        chains, last, remainder = self._parts(c, at_c)
        return sum(width * chain.sums[last] for width, chain in chains) + sum(width * mass for width, mass in remainder)

    def lag(self, c: int, at_c: int) -> Lag:
        """Return the distribution itself."""
        chains, last, remainder = self._parts(c, at_c)
        edges: list[int] = [0]
        masses: list[int] = []
        full = ((width, part.masses[unit]) for unit in range(last) for width, part in chains)
        for width, mass in joined(full, remainder):
            if width and masses and masses[-1] == mass:
                edges[-1] += width
            elif width:
                edges.append(edges[-1] + width)
                masses.append(mass)
        return Lag(tuple(edges), tuple(masses))

    def _chain(self, peak: int) -> _Chain:
        if peak not in self._chains:
            self._chains[peak] = _Chain(self._steps, [self.rung(k) for k in range(peak + 1)])
        return self._chains[peak]

    def _parts(self, c: int, at_c: int | None) -> tuple[list[tuple[int, _Chain]], int, list[tuple[int, int]]]:
        """Return the chains with their widths, the unit in which they vanish, and their remainder in it."""
        unit, place = divmod(c, self._resolution)
        before, after = self._chain(unit), self._chain(unit - 1)
        middle = after if at_c is None else _Chain(self._steps, [*after.masses[:unit], at_c])
        parts = [(place, before), (1, middle), (self._resolution - place - 1, after)]
        chains = [(width, chain) for width, chain in parts if width]

        def may_vanish(last: int) -> bool:
            return sum(width * chain.at(last) for width, chain in chains) <= self._steps.delta

        last = first_whole(may_vanish, unit if place or at_c is not None else unit - 1, 1 << 60)
        return chains, last, list(self._kept(chains, last))

    def _kept(self, chains: list[tuple[int, _Chain]], last: int) -> Iterator[tuple[int, int]]:
        """Yield the (width, mass) of parts of unit `last` that must stay so that at most delta vanishes."""
        steps = self._steps
        excess = sum(width * chain.at(last - 1) for width, chain in chains) - steps.delta if last else ONE
        for width, chain in chains:
            if excess <= 0:
                return
            gain = chain.at(last - 1) - chain.at(last) if last else 0  # less vanishes when a part stays a step more
            count = min(width, excess // gain) if gain > 0 else width
            yield count, chain.at(last)
            excess -= count * gain
            if count < width and excess > 0:
                yield 1, -((-excess << FACTOR_BITS) // (steps.factor - (1 << FACTOR_BITS)))
                excess = 0


_ROWS = 4096  # with more rows, neighbours whose reported mass differs by less than _ALIKE share a window
_ALIKE = 0.02


class LagRows(Rows):
    """The rows of a lag, in tokens: parts of 1/resolution of a unit.

    The lag is computed by a function when first needed, as a wide lag takes a while.
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
        return len(self.totals[0]) - 1

    @cached_property
    def totals(self) -> tuple[Words, Words]:
        """The reported mass of rows 0 to `last`, in high and low words."""
        return split_words(list(self._sums()))

    @cached_property
    def _shares(self) -> Floats:
        """The same as floats."""
        return fraction(*self.totals)

    def reported(self, frequencies: Ints) -> Floats:
        return self._shares[np.minimum(frequencies, self.last)]

    @cached_property
    def spread(self) -> int:  # type: ignore[override]
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
        """Yield, for each step, the first row with all its tokens; those up to zero are 'nothing'."""
        for s in range(1, self.step + 1):
            yield Chain([self._whole(s)], s * self.resolution, floor=1)

    def _totals(self, frequencies: Ints) -> tuple[Words, Words]:
        rows = np.minimum(frequencies, self.last)
        return self.totals[0][rows], self.totals[1][rows]

    def delta(self, epsilon: float, neighbours: Neighbours) -> float:
        """Return the divergence; under 'replace' one key loses a unit and another gains one, and both may show."""
        if neighbours == "add_remove":
            return super().delta(epsilon, neighbours)
        if self.step > 1:
            hint = "Use channel.guarantee.for_replacement()."
            raise InvalidValue(f"neighbours='replace' has no exact curve for units with several keys or rows. {hint}")
        pairs = self.pairs()
        return max(joint_divergence((q, p), other, epsilon) for p, q in pairs for other in pairs)

    def pairs(self) -> list[tuple[Floats, Floats]]:
        """Return the pairs of neighbouring rows that represent all, in floats: (0, 1), and two far from zero."""
        first = self.row(1)
        start = np.append(np.zeros(len(first.mass)), 1.0), np.append(first.mass, first.silent)
        far = np.array([self.last + self.spread, self.last + self.spread + 1])
        edges = self.cell_edges(self.last, int(far[1]) + self.spread)
        mass, silent = self.cell_probabilities(far, edges), self.withheld(far)
        possible = mass.any(axis=0)
        low, high = (np.append(mass[k, possible], silent[k]) for k in (0, 1))
        return [start, (low, high)]

    def cell_edges(self, low: int, high: int) -> Ints:
        offsets = np.unique(np.append(-np.array(self.lag.edges) % self.resolution, 0))
        units = np.arange(low, high) * self.resolution
        return np.append((units[:, None] + offsets).ravel(), high * self.resolution)

    def cell_probabilities(self, frequencies: Ints, edges: Ints) -> Floats:
        lags = frequencies[:, None] * self.resolution - edges[1:]
        return np.where(edges[1:] > 0, self.mass_at(lags), 0.0) * np.diff(edges)

    def likeliest(self, tokens: Ints) -> tuple[Ints, Floats]:
        place = -tokens % self.resolution
        kind = np.searchsorted(self._peaks[0], place, side="right") - 1
        frequencies: Ints = np.maximum((tokens + place) // self.resolution + self._peaks[1][kind], 1)
        return frequencies, self.mass_at(frequencies * self.resolution - tokens)

    def windows(self, first: int, last: int, level: float) -> Windows:
        """Return the shortest windows, as lags."""
        edges, sums = self._distribution
        # A row that contains the window of the whole lag uses that window: it holds the level there, too.
        widest = shortest(edges, sums, int(edges[-1]), level)
        fits = min(last, int(widest[1]) // self.resolution + 1)
        common = np.full((last - max(fits, first - 1), 2), widest)
        if first > fits:
            return Windows(self.resolution, common[:, 0], common[:, 1], first)
        below_row = np.interp(np.arange(1, fits + 1) * self.resolution, edges, sums)
        groups = np.arange(fits) if fits <= _ROWS else np.floor(np.log(np.maximum(below_row, 1e-300)) / _ALIKE)
        start = np.flatnonzero(np.diff(groups, prepend=-np.inf))
        stop = np.append(start[1:], fits) - 1
        # With (1 - l) P[lag < stop] = (1 - level) P[lag < start], a window of the last row at level l serves its group.
        missing = (1 - level) * below_row[start] / np.maximum(below_row[stop], 1e-300)
        ends = zip(((stop + 1) * self.resolution).tolist(), (1 - missing).tolist(), strict=True)
        grouped = np.array([shortest(edges, sums, top, high) for top, high in ends], dtype=np.int64).reshape(-1, 2)
        spans = np.concatenate([np.repeat(grouped, stop - start + 1, axis=0)[first - 1 :], common])
        return Windows(self.resolution, spans[:, 0].copy(), spans[:, 1].copy(), first)

    def interval(self, tokens: Ints, level: float) -> tuple[Ints, Ints]:
        """Return the confidence interval of each token; common keys do without the windows of rare ones."""
        is_common = len(tokens) and int(tokens.min()) // self.resolution > self.last + self.spread
        return WindowedLaw.interval(self, tokens, level) if is_common else super().interval(tokens, level)

    def draw(self, frequencies: Ints, source: Source, *, already_sampled: bool = False) -> Ints:
        """Return a token for each frequency; one random word decides nearly every key that is not reported."""
        tokens = np.zeros(len(frequencies), np.int64)
        for start in range(0, len(tokens), CHUNK):
            part = frequencies[start : start + CHUNK]
            high = source.words(len(part))
            rows = np.minimum(part, self.last)
            maybe = np.flatnonzero(high <= self.totals[0].take(rows))
            high, rows = high[maybe], rows[maybe]
            low = source.words(len(maybe))
            reported = below(high, low, self.totals[0][rows], self.totals[1][rows])
            lags = self._inverse.places(high[reported], low[reported])
            chosen = maybe[reported]
            tokens[start + chosen] = part[chosen] * self.resolution - lags
        return tokens

    @cached_property
    def _inverse(self) -> Inverse:
        return Inverse.of(self.lag.edges, self.lag.masses)

    def _whole(self, frequency: int) -> Block:
        """Return a row with all its tokens, including those up to zero that are reported as 'nothing'."""
        high, low = self._words
        return Block(frequency * self.resolution + 1 - self._edges[::-1], high[None, ::-1], low[None, ::-1])

    @cached_property
    def _edges(self) -> Ints:
        return np.array(self.lag.edges)

    @cached_property
    def _words(self) -> tuple[Words, Words]:
        return split_words(self.lag.masses)

    def mass_at(self, lags: Ints) -> Floats:
        """Return the probability of each lag."""
        return np.append(fraction(*self._words), 0.0)[self._cell_of(lags)]

    def _cell_of(self, lags: Ints) -> Ints:
        """Return the cell of each lag; the number of cells for a lag outside of all."""
        cell = np.searchsorted(self._edges, lags, side="right") - 1
        return np.where(cell < 0, len(self._edges) - 1, cell)

    def _sums(self) -> Iterator[int]:
        """Yield the reported mass of rows 0, 1, ... until it is that of the whole lag."""
        edges, masses = self.lag.edges, self.lag.masses
        before = [0, *accumulate(map(mul, masses, np.diff(self._edges).tolist()))]  # the mass below each edge
        ends = np.arange(1, -(-edges[-1] // self.resolution)) * self.resolution
        cells = np.searchsorted(self._edges, ends, side="right") - 1
        yield 0
        for end, cell in zip(ends.tolist(), cells.tolist(), strict=True):
            yield before[cell] + (end - edges[cell]) * masses[cell] if cell >= 0 else 0
        yield before[-1]

    @cached_property
    def _distribution(self) -> tuple[Floats, Floats]:
        """Return the edges of the lag, and the probability below each."""
        edges = np.array(self.lag.edges, dtype=np.float64)
        mass = np.array([m / 2**128 for m in self.lag.masses])
        return edges, np.concatenate([[0.0], np.cumsum(mass * np.diff(edges))])

    @cached_property
    def _peaks(self) -> tuple[Ints, Ints]:
        """Return the places in a unit where the likelihood changes shape, and the lag in units where it peaks."""
        edges = self._edges
        places = np.unique(np.append(edges % self.resolution, 0))
        units = np.arange(edges[0] // self.resolution, edges[-1] // self.resolution + 1)
        weight = self.mass_at(places[:, None] + units * self.resolution)
        return places, units[np.argmax(weight, axis=1)]
