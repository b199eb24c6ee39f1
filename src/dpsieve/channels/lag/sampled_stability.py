"""Sampled stability histograms: sanitise first, sample then, treating the noisy count as the true one.

A key of frequency i has the noisy count x = i + Lap(1/epsilon). It is reported when x >= T, and then kept with
probability q(x): formula (37) of Cohen, Geri, Sarlos and Stemmer (2020), of which (43) is the case of ppswor.

The axis is cut at the whole numbers and at T, T + 1, ... into parts, two a unit, and the token tells the part. In a
part the density of x is rising (e^(epsilon x)) for frequencies above it and falling (e^(-epsilon x)) for those below,
so a part is kept with one of two probabilities only: the mean of q under either. They are integrals in floating point.

Privacy does not rest on these integrals. The kernel certifies the masses M of the parts before sampling. Two neighbours
i, i + 1 treat a part differently only where it lies between them: it is kept with probability f (falling) for i and
r (rising) for i + 1. With

    f <= r,    r M_(i+1) <= e^epsilon f M_i,    (1 - f) M_i <= e^epsilon (1 - r) M_(i+1)

no outcome, kept or dropped, adds to the divergence of the masses, which is at most delta; and dropped keys look like
'nothing', which is post-processing. True integrals of a non-decreasing q satisfy all three; `_kept` enforces them.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.channels.channel import Channel, Tokens, checked_frequencies
from dpsieve.channels.grid import FACTOR_BITS, Steps
from dpsieve.channels.lag.noise import LaplaceCut
from dpsieve.channels.lag.rows import AdditiveChannel
from dpsieve.channels.row import Row
from dpsieve.channels.stepwise import blocks
from dpsieve.errors import InvalidValue
from dpsieve.privacy import Certificate
from dpsieve.randomness.source import Source
from dpsieve.sampling.samples import decide
from dpsieve.sampling.schemes import Scheme

Floats = NDArray[np.float64]

_CHUNK = 1 << 13  # parts integrated at a time
_RUN = 17  # at most 2^17 neighbouring frequencies are tabulated at a time
_SAFE = 1 - 1e-11  # windows are made this much heavier than asked, which covers all rounding


class ThinnedChannel(Channel):
    """A stability histogram cut into parts (see `LaplaceCut`), of which each is kept with the mean of q over it."""

    resolution = 2
    scheme: Scheme

    def __init__(self, inner: AdditiveChannel, scheme: Scheme, cut: LaplaceCut) -> None:
        self._inner, self.scheme, self._cut = inner, scheme, cut
        self.name, self.guarantee = f"sampled {inner.name}", inner.guarantee
        constant = scheme.constant_from()
        self.last_row = None if constant is None else inner.last_row + constant
        self._rises = 2 * cut.whole - 1  # lags from here on see a part from above
        upper = cut.whole - cut.threshold
        self._widths = np.array([1 - upper, upper])  # of even and odd parts
        smooth = cut.rate < 1 and cut.threshold > 16  # within a part, powers and exponentials are nearly straight there
        self._nodes, weights = np.polynomial.legendre.leggauss(6 if smooth else 16 + int(cut.rate))
        self._nodes, self._weights = (self._nodes + 1) / 2, weights / 2
        self._limits = self._between()

    @property
    def reach(self) -> int:
        """Units: a row i has all its reported tokens in (i - reach, i + reach]."""
        return self._inner.reach

    def row(self, frequency: int) -> Row:
        """Return the row of one true frequency; see `Row`."""
        row = self._inner.row(frequency)
        parts = np.rint(row.right * 2).astype(np.int64)
        kept = self._kept_at(np.full(len(parts), frequency), parts)
        silent = row.silent + float((row.mass * (1 - kept)).sum())
        return Row(silent, row.left, row.right, row.mass * kept)

    def reporting_probability(self, frequencies: ArrayLike) -> Floats:
        """Return, for each true frequency, the probability that its key is reported."""
        values, place = np.unique(checked_frequencies(frequencies), return_inverse=True)
        found = [self._reported(run, *self._tails(int(run[0]), int(run[-1]))) for run in _runs(values, self.reach)]
        return np.concatenate([np.empty(0), *found])[place]

    def delta(self, epsilon: float, neighbours: str = "add_remove") -> float:
        """Return an upper bound for the delta at epsilon, from the promise; only for 'add_remove'.

        From the promised epsilon on it is that of the channel before sampling. Below it, an (e, d)-private mechanism is
        (epsilon, d + (1 - d) (e^e - e^epsilon) / (1 + e^e))-private (Kairouz, Oh and Viswanath 2015).
        """
        if validate.neighbours(neighbours) == "replace":
            hint = "Use channel.guarantee.for_replacement(), or a channel without a scheme."
            raise InvalidValue(f"neighbours='replace' has no exact curve for a channel with a scheme. {hint}")
        more, promise = self.guarantee.epsilon - validate.epsilon(epsilon), self.guarantee
        if more <= 0:
            return self._inner.delta(epsilon)
        return min(1.0, promise.delta + (1 - promise.delta) * -math.expm1(-more) / (1 + math.exp(-promise.epsilon)))

    def certify(self) -> Certificate:
        """Return the certificate of the channel before sampling, which covers this one (see the module's head)."""
        return self._inner.certify()

    def breaks(self, low: int, high: int) -> Tokens:
        """Return token edges between which every row is even; see `Channel.breaks`."""
        return self._inner.breaks(low, high)

    def masses(self, frequencies: ArrayLike, edges: Tokens) -> Floats:
        """Return the probability of each cell between edges under each frequency; see `Channel.masses`."""
        rows, parts = checked_frequencies(frequencies), np.maximum(edges[1:], 1)
        masses: Floats = self._inner.masses(rows, edges) * self._kept_at(rows[:, None], parts)
        return masses

    def _kept_at(self, frequencies: Tokens, parts: Tokens) -> Floats:
        """Return the probability that a part is kept for a frequency."""
        falling, rising = self._kept(parts)
        return np.asarray(np.where(2 * frequencies - parts >= self._rises, rising, falling))

    def _kept(self, parts: Tokens) -> Floats:
        """Return the mean of q over each part under falling and under rising noise, within the limits for privacy."""
        distinct, place = np.unique(parts, return_inverse=True)
        pieces = [self._means(distinct[start : start + _CHUNK]) for start in range(0, len(distinct), _CHUNK)]
        falling, rising = np.minimum(np.concatenate([np.empty((2, 0)), *pieces], axis=1), 1.0)
        growth, room = self._limits[:, distinct % 2]
        most = np.minimum(falling * growth, np.nextafter(1 - (1 - falling) / room, 0))
        return np.array([falling, np.clip(rising, falling, np.maximum(falling, most))])[:, place]

    def _means(self, parts: Tokens) -> Floats:
        """Integrate by Gauss's rule, on both sides of a bend of the scheme."""
        start, width = self._edges(parts - 1)[:, None], self._widths[parts % 2, None]
        inside = [bend for bend in sorted(self.scheme.bends()) if start[0, 0] < bend < start[-1, 0] + 1]
        bends = [np.clip(bend - start, 0, width) for bend in inside]
        sides = list(pairwise([np.zeros_like(width), *bends, width]))
        depth = np.concatenate([a + (b - a) * self._nodes for a, b in sides], axis=1)
        weight = np.concatenate([np.maximum(b - a, 1e-300) * self._weights for a, b in sides], axis=1)
        q = self.scheme.inclusion(start + depth)
        shapes = [weight * np.exp(-self._cut.rate * far) for far in (depth, width - depth)]
        return np.array([(shape * q).sum(axis=1) / shape.sum(axis=1) for shape in shapes])

    def _edges(self, k: Tokens) -> Floats:
        """Return the upper end of part k, the lower one of part k + 1: whole if k is odd."""
        return np.where(k % 2, self._cut.whole, self._cut.threshold) + k // 2

    def _between(self) -> Floats:
        """Return e^epsilon M_i / M_(i+1) and e^epsilon M_(i+1) / M_i of even and odd parts between i and i + 1."""
        promise, lag = self.guarantee, self._inner._lag
        factor = Steps(promise.epsilon, promise.delta).factor  # below e^epsilon by 2^-46, which covers all rounding

        def mass(place: int) -> int:
            return max(1, lag.masses[place - lag.edges[0]])

        pairs = [(mass(self._rises - 2 + even), mass(self._rises + even)) for even in (1, 0)]
        ratios = [[factor * a / (b << FACTOR_BITS), factor * b / (a << FACTOR_BITS)] for a, b in pairs]
        return np.array(ratios).T

    def _tails(self, first: int, last: int) -> tuple[int, Floats, Floats]:
        """Return k and, from the end of part k on, what falls below and above it under a frequency right there.

        They span the frequencies first to last, and as far on either side as a row reaches. Under a frequency that is
        d away, the same tail is lower by e^(-epsilon d): these numbers serve all rows.
        """
        low, high = (max(0, 2 * (i - self._cut.whole) + 1) for i in (first, last))
        parts = np.arange(max(0, low - 2 * self.reach), high + 2 * self.reach) + 1
        falling, rising = self._kept(parts)
        decay = np.exp(-self._cut.rate * self._widths)[parts % 2]
        share = (-np.expm1(-self._cut.rate * self._widths) / 2)[parts % 2]
        below = blocks.decaying_sums(rising * share, decay, rising[0] / 2 if parts[0] > 1 else 0.0)
        above = blocks.decaying_sums((falling * share)[::-1], decay[::-1], falling[-1] / 2)[::-1]
        return int(parts[0]) - 1, below, above

    def _reported(self, rows: Tokens, start: int, below: Floats, above: Floats) -> Floats:
        at = 2 * (rows - self._cut.whole) + 1 - start
        early = np.exp(-self._cut.rate * np.maximum(self._cut.threshold - rows, 0))
        place = np.maximum(at, 0)
        return np.where(at > 0, below[place] + above[place], early * above[0])

    def _draw(self, frequencies: Tokens, source: Source, already_sampled: bool) -> Tokens:
        if already_sampled:
            hint = "Use channels.optimal or channels.simple with the scheme of the sample."
            raise InvalidValue(f"already_sampled does not fit a channel that samples its own output. {hint}")
        tokens = self._inner._draw(frequencies, source, False)
        reported = np.flatnonzero(tokens)
        kept = reported[decide(self._kept_at(frequencies[reported], tokens[reported]), source)]
        out = np.zeros_like(tokens)
        out[kept] = tokens[kept]
        return out

    def _likeliest(self, tokens: Tokens) -> Tokens:
        """Return the whole number next to the part, below or above it, under which it is likelier."""
        falling, rising = self._kept(tokens)
        above = rising * math.exp(self._cut.rate) > falling * self._limits[0, tokens % 2]
        frequencies: Tokens = self._cut.whole - 1 + tokens // 2 + above
        return frequencies

    def _interval(self, tokens: Tokens, level: float) -> tuple[Tokens, Tokens]:
        """Invert windows that reach equally many parts to both sides of i, the fewest that hold `level` of its row."""
        values, place = np.unique(tokens, return_inverse=True)
        found = [self._inverted(run, level) for run in _runs(values, 2 * self.reach)]
        low, high = np.concatenate([np.empty((2, 0), np.int64), *found], axis=1)[:, place]
        return low, high

    def _inverted(self, parts: Tokens, level: float) -> Tokens:
        rows = np.arange(max(1, int(parts[0]) // 2 - self.reach), int(parts[-1]) // 2 + self.reach + 2)
        most = 4 * self.reach
        start, below, above = self._tails(int(rows[0]), int(rows[-1]))
        spare = (1 - level * (2 - _SAFE)) * self._reported(rows, start, below, above)
        at = 2 * (rows - self._cut.whole) + 1
        short, enough = np.maximum(0, -at), np.full(len(rows), most)
        upper = self._widths[0]
        while (enough - short > 1).any():
            middle = (short + enough) // 2
            odd = middle % 2
            over = above[np.minimum(at + middle - start, len(above) - 1)] * self._decay(middle // 2 + odd * upper)
            under = below[np.maximum(at - middle - start, 0)] * self._decay(middle // 2 + odd * (1 - upper))
            fits = np.where(at > middle, under, 0.0) + over <= spare
            short, enough = np.where(fits, short, middle), np.where(fits, middle, enough)
        tops = np.maximum.accumulate(at + enough)
        bottoms = np.minimum.accumulate((at - enough + 1)[::-1])[::-1]
        low = np.searchsorted(tops, parts, side="left")
        high = np.searchsorted(bottoms, parts, side="right") - 1
        return rows[[low, np.maximum(low, high)]]

    def _decay(self, distance: Floats) -> Floats:
        return np.exp(-self._cut.rate * distance)


def _runs(values: Tokens, gap: int) -> Iterator[Tokens]:
    """Cut increasing values where two are far from each other, and every 2^17 or so."""
    cuts = np.flatnonzero((np.diff(values) > gap) | (np.diff(values >> _RUN) > 0)) + 1
    return (run for run in np.split(values, cuts) if len(run))
