"""Channels that subtract one and the same random lag from every frequency: token = frequency - lag, if above zero.

All channels without sampling are of this kind. They need one distribution, not a table: rows repeat for ever, so a
frequency of 10^12 costs what a frequency of 10 costs.

Privacy. Rows i and i + 1 are the lag moved by one unit, with the tokens up to zero announced as 'nothing'. The kernel
checks the lag against itself moved by one unit, and 'nothing' against row 1; joining tokens to 'nothing' cannot raise a
divergence, so these two pairs stand for all.
"""

import math
from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.channels.channel import Channel, Tokens, checked_frequencies
from dpsieve.channels.grid import ONE, Words, fraction, words
from dpsieve.channels.lag.inverse import Inverse, below
from dpsieve.channels.lag.optimal import Lag
from dpsieve.channels.lag.windows import LagWindows
from dpsieve.channels.row import Row
from dpsieve.errors import InvalidValue
from dpsieve.privacy import Certificate, Guarantee, Rows, certify, joint_divergence
from dpsieve.privacy.kernel import examine
from dpsieve.randomness.source import Source
from dpsieve.randomness.tables import CHUNK


class AdditiveChannel(Channel):
    """A channel given by the distribution of its lag, in parts of 1/resolution of a unit.

    The lag may be a function, called when it is needed, as a wide one takes a while to make. `largest_step` is by how
    much one unit may change a frequency, one unless rows are counted. When the guarantee is for a unit with several
    keys, `each_key` is the (epsilon, delta) of one key, and `unit_delta` the curve of a unit.
    """

    def __init__(
        self,
        name: str,
        guarantee: Guarantee,
        resolution: int,
        lag: Lag | Callable[[], Lag],
        *,
        largest_step: int = 1,
        each_key: tuple[float, float] | None = None,
        unit_delta: Callable[[float], float] | None = None,
    ) -> None:
        self.name, self.guarantee, self.resolution, self._given = name, guarantee, resolution, lag
        self._largest_step, self._each_key = largest_step, each_key or (guarantee.epsilon, guarantee.delta)
        self._unit_delta = unit_delta
        self._windows: dict[float, LagWindows] = {}

    @property
    def each_key(self) -> tuple[float, float]:
        """The (epsilon, delta) of one key, which the certificate is about."""
        return self._each_key

    @cached_property
    def _lag(self) -> Lag:
        lag = self._given() if callable(self._given) else self._given
        if lag.total() >= ONE:
            raise InvalidValue("lag holds a mass of one or more. Round its masses down.")
        return lag

    @cached_property
    def _inverse(self) -> Inverse:
        return Inverse.of(self._lag.edges, self._lag.masses)

    @cached_property
    def _reported(self) -> tuple[Words, Words]:
        return words(list(self._sums()))

    @property
    def reach(self) -> int:
        """Units: a row i has all its reported tokens in (i - reach, i + reach]."""
        return -(-max(self._lag.edges[-1], -self._lag.edges[0]) // self.resolution)

    @property
    def last_row(self) -> int:
        """The frequency from which on every row is the one before moved up by one unit."""
        return len(self._reported[0]) - 1

    def reporting_probability(self, frequencies: ArrayLike) -> NDArray[np.float64]:
        """Return, for each true frequency, the probability that its key is reported."""
        rows = np.minimum(checked_frequencies(frequencies), self.last_row)
        return fraction(self._reported[0][rows], self._reported[1][rows])

    def row(self, frequency: int) -> Row:
        """Return the row of one true frequency; see `Row`."""
        i = validate.whole("frequency", frequency, high=10**12, hint="Pass a true frequency, such as row(20).")
        lags, mass = np.array(self._lag.edges), fraction(*words(self._lag.masses))
        top = i * self.resolution
        shown = int(np.searchsorted(lags, top, side="left")) if i else 0
        ends = np.minimum(lags[: shown + 1], top)
        cells = np.diff(ends)
        left, right = (top - ends[1:])[::-1] / self.resolution, (top - ends[:-1])[::-1] / self.resolution
        silent = 1.0 if not i else self._silent(min(i, self.last_row))
        return Row(silent, right if self.resolution == 1 else left, right, (cells * mass[: len(cells)])[::-1])

    def delta(self, epsilon: float, neighbours: str = "add_remove") -> float:
        """Return the least delta for which this channel is (epsilon, delta)-private, from the integers it draws from.

        Under 'replace' one key loses a unit and another one gains it, so both changes show at once.
        """
        epsilon = validate.epsilon(epsilon)
        if validate.neighbours(neighbours) == "replace":
            if self._unit_delta or self._largest_step > 1:
                hint = "Use channel.guarantee.for_replacement()."
                raise InvalidValue(
                    f"neighbours='replace' has no exact curve for units with several keys or rows. {hint}"
                )
            pairs = self._pairs()
            return max(joint_divergence((q, p), other, epsilon) for p, q in pairs for other in pairs)
        if self._unit_delta:
            return min(1.0, self._unit_delta(epsilon))
        return max(
            examine([self._row_at(step)], epsilon, math.nextafter(1, 0), step * self.resolution, floor=1).worst
            for step in range(1, self._largest_step + 1)
        )

    def certify(self) -> Certificate:
        """Return the certificate for the (epsilon, delta) of one key, for every frequency."""
        return self._certificate

    @cached_property
    def _certificate(self) -> Certificate:
        epsilon, delta = self._each_key
        checked = [
            certify([self._row_at(step)], epsilon=epsilon, delta=delta, shift=step * self.resolution, floor=1)
            for step in range(1, self._largest_step + 1)
        ]
        return max(checked, key=lambda certificate: certificate.worst)

    def breaks(self, low: int, high: int) -> Tokens:
        """Return token edges between which every row is even; see `Channel.breaks`."""
        offsets = np.unique(np.append(-np.array(self._lag.edges) % self.resolution, 0))
        units = np.arange(low, high) * self.resolution
        return np.append((units[:, None] + offsets).ravel(), high * self.resolution)

    def masses(self, frequencies: ArrayLike, edges: Tokens) -> NDArray[np.float64]:
        """Return the probability of each cell between edges under each frequency; see `Channel.masses`."""
        lags, mass = np.array(self._lag.edges), np.append(fraction(*words(self._lag.masses)), 0.0)
        nearest = checked_frequencies(frequencies)[:, None] * self.resolution - edges[1:]
        cell = np.searchsorted(lags, nearest, side="right") - 1
        return np.where(edges[1:] > 0, mass[np.where(cell < 0, len(mass) - 1, cell)], 0.0) * np.diff(edges)

    def _row_at(self, frequency: int) -> Rows:
        """Return a row with all its tokens, also those up to zero that are announced as 'nothing'."""
        edges = frequency * self.resolution + 1 - np.array(self._lag.edges[::-1])
        high, low = words(self._lag.masses[::-1])
        return Rows(edges, high[None], low[None])

    def _pairs(self) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Return the neighbouring rows that stand for all: (0, 1), and two that are far from zero."""
        first = self.row(1)
        start = np.append(np.zeros(len(first.mass)), 1.0), np.append(first.mass, first.silent)
        lags, mass = np.array(self._lag.edges), fraction(*words(self._lag.masses))
        edges = np.union1d(lags, lags + self.resolution)
        rows = []
        for moved in (lags, lags + self.resolution):
            cell = np.searchsorted(moved, edges[:-1], side="right") - 1
            inside = (cell >= 0) & (cell < len(mass))
            row = np.where(inside, mass[np.clip(cell, 0, len(mass) - 1)], 0.0) * np.diff(edges)
            rows.append(np.append(row, self._silent(self.last_row)))
        return [start, (rows[1], rows[0])]

    def _sums(self) -> Iterator[int]:
        """Yield the reported mass of rows 0, 1, ... until it is that of the whole lag."""
        edges, masses, total, cell = self._lag.edges, self._lag.masses, 0, 0
        yield 0
        place, top = edges[0], 0
        while place < edges[-1]:
            top += self.resolution
            while place < min(top, edges[-1]):
                stop = min(top, edges[cell + 1])
                total += (stop - place) * masses[cell]
                place, cell = stop, cell + (stop == edges[cell + 1])
            yield total

    def _silent(self, row: int) -> float:
        high, low = (int(word[row]) for word in self._reported)
        return (ONE - (high << 64 | low)) / ONE

    def _draw(self, frequencies: Tokens, source: Source, already_sampled: bool) -> Tokens:
        tokens = np.zeros(len(frequencies), np.int64)
        for start in range(0, len(tokens), CHUNK):
            part = frequencies[start : start + CHUNK]
            high = source.words(len(part))
            rows = np.minimum(part, self.last_row)
            maybe = np.flatnonzero(high <= self._reported[0].take(rows))
            high, rows = high[maybe], rows[maybe]
            low = source.words(len(maybe))
            heard = below(high, low, self._reported[0][rows], self._reported[1][rows])
            lags = self._inverse.places(high[heard], low[heard])
            chosen = maybe[heard]
            tokens[start + chosen] = part[chosen] * self.resolution - lags
        return tokens

    def _likeliest(self, tokens: Tokens) -> Tokens:
        """Return the frequency under which each token has the largest probability."""
        place = -tokens % self.resolution
        kind = np.searchsorted(self._peaks[0], place, side="right") - 1
        frequencies: Tokens = (tokens + place) // self.resolution + self._peaks[1][kind]
        return np.maximum(frequencies, 1)

    @cached_property
    def _peaks(self) -> tuple[Tokens, Tokens]:
        """Return where in a unit the likelihood changes shape, and the lag (in whole units) at which it is largest."""
        edges, masses = np.array(self._lag.edges), np.array([float(m) for m in self._lag.masses])
        places = np.unique(np.append(edges % self.resolution, 0))
        units = np.arange(edges[0] // self.resolution, edges[-1] // self.resolution + 1)
        lags = places[:, None] + units * self.resolution
        cell = np.searchsorted(edges, lags, side="right") - 1
        inside = (cell >= 0) & (cell < len(masses))
        weight = np.where(inside, masses[np.clip(cell, 0, len(masses) - 1)], 0.0)
        return places, units[np.argmax(weight, axis=1)]

    def _interval(self, tokens: Tokens, level: float) -> tuple[Tokens, Tokens]:
        if level not in self._windows:
            self._windows[level] = LagWindows.of(self._lag, self.resolution, self.last_row, level)
        return self._windows[level].interval(tokens)
