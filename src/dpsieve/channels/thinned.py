"""A channel whose output is sampled afterwards: a reported token is kept with a probability of its own.

Sampled stability histograms are of this kind: sanitise first, sample then, treating the noisy count as the true one.
Sampling the output is post-processing, so the certificate is that of the channel before it.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve.channels.additive import AdditiveChannel
from dpsieve.channels.channel import Channel, Tokens, checked_frequencies
from dpsieve.channels.compiled import blocks
from dpsieve.channels.row import Row
from dpsieve.channels.windows import LagWindows
from dpsieve.errors import InvalidValue
from dpsieve.privacy import Certificate
from dpsieve.randomness.source import Source
from dpsieve.sampling.samplers import decide
from dpsieve.sampling.schemes import Scheme

_SETTLED = 1 << 16
_ROWS = 256


class ThinnedChannel(Channel):
    """An additive channel with whole tokens, of which each is kept with probability q(token + offset)."""

    resolution = 1
    scheme: Scheme

    def __init__(self, inner: AdditiveChannel, scheme: Scheme, offset: float) -> None:
        self._inner, self.scheme, self._offset = inner, scheme, offset
        self.name, self.guarantee = f"sampled {inner.name}", inner.guarantee
        constant = scheme.constant_from()
        if constant is None or constant > _SETTLED:
            hint = "Pass a larger tau, or use channels.optimal, which takes any scheme."
            raise InvalidValue(f"scheme changes beyond frequency {_SETTLED:,}, too far for a sampled histogram. {hint}")
        self.last_row = inner.last_row + constant
        self._windows: dict[float, LagWindows] = {}

    @property
    def reach(self) -> int:
        """Units: a row i has all its reported tokens in (i - reach, i + reach]."""
        return self._inner.reach

    def row(self, frequency: int) -> Row:
        """Return the row of one true frequency; see `Row`."""
        row = self._inner.row(frequency)
        mass = row.mass * self._kept(row.right)
        return Row(1.0 - float(mass.sum()), row.left, row.right, mass)

    def reporting_probability(self, frequencies: ArrayLike) -> NDArray[np.float64]:
        """Return, for each true frequency, the probability that its key is reported."""
        values, place = np.unique(checked_frequencies(frequencies), return_inverse=True)
        return np.array([self.row(int(i)).reported for i in values], dtype=np.float64)[place]

    def delta(self, epsilon: float, neighbours: str = "add_remove") -> float:
        """Return the delta of the channel before sampling, an upper bound for what is left after it."""
        return self._inner.delta(epsilon, neighbours)

    def certify(self) -> Certificate:
        """Return the certificate of the channel before sampling."""
        return self._inner.certify()

    def breaks(self, low: int, high: int) -> Tokens:
        """Return token edges between which every row is even; see `Channel.breaks`."""
        return self._inner.breaks(low, high)

    def masses(self, frequencies: ArrayLike, edges: Tokens) -> NDArray[np.float64]:
        """Return the probability of each cell between edges under each frequency; see `Channel.masses`."""
        return self._inner.masses(frequencies, edges) * self._kept(edges[1:])

    def _kept(self, tokens: NDArray[np.float64] | Tokens) -> NDArray[np.float64]:
        return self.scheme.inclusion(np.maximum(tokens + self._offset, 0.0))

    def _draw(self, frequencies: Tokens, source: Source, already_sampled: bool) -> Tokens:
        if already_sampled:
            hint = "Use channels.optimal or channels.simple with the scheme of the sample."
            raise InvalidValue(f"already_sampled does not fit a channel that samples its own output. {hint}")
        tokens = self._inner._draw(frequencies, source, False)
        reported = np.flatnonzero(tokens)
        kept = reported[decide(self._kept(tokens[reported]), source)]
        out = np.zeros_like(tokens)
        out[kept] = tokens[kept]
        return out

    def _likeliest(self, tokens: Tokens) -> Tokens:
        return self._inner._likeliest(tokens)

    def _interval(self, tokens: Tokens, level: float) -> tuple[Tokens, Tokens]:
        if level not in self._windows:
            self._windows[level] = self._make_windows(min(1.0, level * (1 + 1e-11)))
        return self._windows[level].interval(tokens)

    def _make_windows(self, level: float) -> LagWindows:
        nearest, farthest = np.zeros((2, self.last_row), np.int64)
        for start in range(0, self.last_row, _ROWS):
            rows = [self.row(i) for i in range(start + 1, min(start + _ROWS, self.last_row) + 1)]
            starts = np.cumsum([0, *(len(row.mass) for row in rows)])
            right = np.concatenate([row.right for row in rows]).astype(np.int64)
            mass = np.concatenate([row.mass for row in rows])
            part = slice(start, start + len(rows))
            blocks.windows(starts, right - 1, right, mass, start + 1, 1, level, nearest[part], farthest[part])
        return LagWindows(1, nearest, farthest)
