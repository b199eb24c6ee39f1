"""Sampled stability histograms (SbH): Laplace noise, a threshold, and then a sample by the noisy count.

A key of frequency i has the noisy count
x = i + Lap(1/epsilon). It is reported when x >= T, and then kept with probability q(x): formula (37) of Cohen, Geri,
Sarlos and Stemmer (2020), and (43) for ppswor.

The axis is cut at the whole numbers and at T, T + 1, ... into parts, two per unit, and the token is the part. In a part
the density of x is rising (e^(epsilon x)) for frequencies above it and falling (e^(-epsilon x)) for those below, so a
part is kept with one of two probabilities: the mean of q under either density, integrated in floating point.

Privacy does not rest on these integrals. The kernel certifies the masses M of the parts before sampling. Two neighbours
i, i + 1 treat a part differently only where it lies between them: it is kept with probability f (falling) for i and
r (rising) for i + 1. With

    f <= r,    r M_(i+1) <= e^epsilon f M_i,    (1 - f) M_i <= e^epsilon (1 - r) M_(i+1)

no outcome, kept or dropped, adds to the divergence of the masses, which is at most delta; dropping a key to 'nothing'
is post-processing. True integrals of a non-decreasing q satisfy all three; `_keep_probabilities` enforces them.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
from flint import arb

from dpsieve.channels.channel import UnknownKeys
from dpsieve.channels.lag import Lag, LagRows
from dpsieve.channels.law import LARGEST_FREQUENCY, WindowedLaw, Windows, runs
from dpsieve.channels.rows import FACTOR_BITS, ONE, SAFE, Steps
from dpsieve.channels.unknown_keys import (
    ThresholdKind,
    check_threshold_kind,
    laplace_cdf,
    laplace_threshold,
    trim_lag,
)
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import floor_bounds, precision
from dpsieve.privacy.certificate import Certificate, whole_unit
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.randomness.coins import bernoulli
from dpsieve.randomness.source import Source
from dpsieve.sampling.schemes import Scheme, Threshold, check_scheme
from dpsieve.types import Floats, Ints
from dpsieve.validate import Neighbours

_CHUNK = 1 << 13  # parts integrated at a time
_TINY = 1e-6
_BITS = 320


def sampled_stability(
    epsilon: float, delta: float, scheme: Scheme, *, threshold: ThresholdKind = "fair", unit: str = "one row"
) -> "SampledStability":
    """Return the sampled stability histogram; `channels.stability` has its arguments except the scheme.

    A reported key of noisy count x is kept with probability q(x): a key of frequency i is reported with probability

        phi_i = integral over x >= T of q(x) epsilon/2 e^(-epsilon |x - i|)

    (Cohen, Geri, Sarlos and Stemmer 2020, appendix E), to 1e-9 for smooth schemes and tables, and the token gives x to
    about half a unit (see the head of this module).

    >>> from dpsieve.sampling import ppswor
    >>> sampled_stability(1.0, 1e-6, ppswor(0.1)).reporting_probability([5, 50]).round(4).tolist()
    [0.0, 0.9932]
    """
    return SampledStability(epsilon, delta, scheme, threshold=threshold, unit=unit)


@dataclass(frozen=True)
class LaplaceCut:
    """Where a stability histogram cuts: report when frequency + Lap(1/epsilon) >= T (`channels.unknown_keys`).

    Parameters are tightened (see `channels.rows`): `rate` is that of the noise, `above` the least integer above the
    threshold.
    """

    rate: float
    threshold: float
    above: int

    @classmethod
    def of(cls, epsilon: float, delta: float, *, paper: bool) -> "LaplaceCut":
        """Return the cut of a stability histogram."""
        with precision(_BITS):
            e, half = laplace_threshold(epsilon, delta, paper=paper)
            return cls(float(e), float(half) + 1, floor_bounds(half)[0] + 2)


def _split_lag(epsilon: float, delta: float, *, paper: bool) -> Lag:
    """Return the lag of a stability histogram with two tokens per unit.

    They are 2s - 1 below and 2s above the whole number in [T + s - 1, T + s).
    """
    with precision(_BITS):
        e, half = laplace_threshold(epsilon, delta, paper=paper)
        above, first = floor_bounds(half)[0] + 2, -math.ceil(128 * math.log(2) / epsilon)
        lags = range(first, math.ceil(float(half)) + 3 - first)
        sums = [laplace_cdf(end - lag, e) for lag in lags for end in (half + 1, arb(above - 1))]
        return trim_lag(2 * first, [max(0, floor_bounds((a - b) * ONE)[0]) for a, b in pairwise(sums)])


@register("sampled_stability")
@dataclass(frozen=True, repr=False)
class SampledStability(UnknownKeys):
    """See `sampled_stability`: its guarantee rests on a formula, so it is no `Channel`.

    Attributes:
        scheme: the sampling scheme by which reported keys are kept.
        threshold: 'fair' or 'paper', as for `dpsieve.channels.stability`.
    """

    scheme: Scheme | None = None
    threshold: ThresholdKind = field(default="fair", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scheme(self.scheme)
        check_threshold_kind(self.threshold, self.delta_)

    @cached_property
    def cut(self) -> LaplaceCut:
        """The noise and the threshold."""
        return LaplaceCut.of(self.epsilon, self.delta_, paper=self.threshold == "paper")

    @cached_property
    def rows(self) -> "ThinnedLaw":
        """The rows of a lag, thinned."""
        lag = partial(_split_lag, self.epsilon, self.delta_, paper=self.threshold == "paper")
        return ThinnedLaw(Steps(self.epsilon, self.delta_), self.cut, LagRows(2, lag), check_scheme(self.scheme))

    @cached_property
    def _certificate(self) -> Certificate:
        return self.rows.certify(self.guarantee)

    def delta(self, epsilon: float, neighbours: Neighbours = "add_remove") -> float:
        """Refuse: the guarantee holds, and there is no curve."""
        hint = "Use channel.guarantee, or a channel without a scheme."
        raise InvalidValue(f"epsilon has no exact delta here: the noisy counts are sampled. {hint}")


def _bends_of(scheme: Scheme) -> tuple[float, ...]:
    """Return the real frequencies, other than whole ones, at which q is known to bend; it is smooth elsewhere."""
    if not isinstance(scheme, Threshold) or scheme.name != "priority" or scheme.power == 0:
        return ()
    with np.errstate(over="ignore"):
        return (float(np.float64(1 / scheme.tau) ** (1 / scheme.power)),)


class ThinnedLaw(WindowedLaw):
    """A stability histogram cut into parts (see `LaplaceCut`), each kept with the mean of q over it."""

    resolution = 2

    def __init__(self, steps: Steps, cut: LaplaceCut, inner: LagRows, scheme: Scheme) -> None:
        self._inner, self._scheme, self._cut = inner, scheme, cut
        self.spread, constant = self._inner.spread, scheme.constant_from()
        self.last = None if constant is None else self._inner.last + constant
        self._rises = 2 * cut.above - 1  # from this lag on, the frequency is above the part
        upper = cut.above - cut.threshold
        self._widths = np.array([1 - upper, upper])  # of even and odd parts
        smooth = cut.rate < 1 and cut.threshold > 16  # within a part, powers and exponentials are nearly straight there
        self._nodes, weights = np.polynomial.legendre.leggauss(6 if smooth else 16 + int(cut.rate))
        self._nodes, self._weights = (self._nodes + 1) / 2, weights / 2
        self._limits = self._step_ratios(steps)

    def certify(self, guarantee: Guarantee) -> Certificate:
        """Return the certificate of the rows before sampling, which covers these (see the head of this module)."""
        before = self._inner.certify(guarantee)
        covers = "parts kept with probabilities that add nothing to the divergence, by the three inequalities"
        return before.within(whole_unit(guarantee, before.worst, "formula", covers), guarantee)

    def reported(self, frequencies: Ints) -> Floats:
        """Return the probability of a report for each frequency."""
        values, place = np.unique(frequencies, return_inverse=True)
        reported = np.empty(len(values))
        for run in runs(values, self.spread):
            rows = values[run]
            reported[run] = self._reported(rows, *self._tails(int(rows[0]), int(rows[-1])))
        return reported[place]

    def withheld(self, frequencies: Ints) -> Floats:
        """Return the probability of 'nothing' for each frequency: below the threshold, or dropped."""
        limit = LARGEST_FREQUENCY if self.last is None else self.last
        values, place = np.unique(np.minimum(frequencies, limit), return_inverse=True)
        silent = 1 - self.reported(values)
        for k in np.flatnonzero(silent < _TINY):
            i = values[[k]]
            edges = self.cell_edges(max(int(i[0]) - self.spread, 0), int(i[0]) + self.spread)
            lost = self._inner.cell_probabilities(i, edges)[0] * (1 - self._keep_probability(i, edges[1:]))
            silent[k] = self._inner.withheld(i)[0] + lost.sum()
        return np.asarray(silent[place])

    def cell_edges(self, low: int, high: int) -> Ints:
        """Return token edges between which every row is even; see `TokenLaw.cell_edges`."""
        return self._inner.cell_edges(low, high)

    def cell_probabilities(self, frequencies: Ints, edges: Ints) -> Floats:
        """Return the probability of each cell between edges under each frequency; see `TokenLaw.cell_probabilities`."""
        probability = self._keep_probability(frequencies[:, None], np.maximum(edges[1:], 1))
        return np.asarray(self._inner.cell_probabilities(frequencies, edges) * probability)

    def _keep_probability(self, frequencies: Ints, parts: Ints) -> Floats:
        """Return the probability that a part is kept for a frequency."""
        falling, rising = self._keep_probabilities(parts)
        return np.asarray(np.where(2 * frequencies - parts >= self._rises, rising, falling))

    def _keep_probabilities(self, parts: Ints) -> Floats:
        """Return the mean of q over each part under falling and under rising noise, within the limits for privacy."""
        distinct, place = np.unique(parts, return_inverse=True)
        pieces = [self._means(distinct[start : start + _CHUNK]) for start in range(0, len(distinct), _CHUNK)]
        falling, rising = np.minimum(np.concatenate([np.empty((2, 0)), *pieces], axis=1), 1.0)
        growth, room = self._limits[:, distinct % 2]
        limit = np.minimum(falling * growth, np.nextafter(1 - (1 - falling) / room, 0))
        return np.array([falling, np.clip(rising, falling, np.maximum(falling, limit))])[:, place]

    def _means(self, parts: Ints) -> Floats:
        """Integrate by Gaussian quadrature, on both sides of each bend of the scheme."""
        start, width = self._edges(parts - 1)[:, None], self._widths[parts % 2, None]
        inside = [bend for bend in _bends_of(self._scheme) if start[0, 0] < bend < start[-1, 0] + 1]
        bends = [np.clip(bend - start, 0, width) for bend in inside]
        sides = list(pairwise([np.zeros_like(width), *bends, width]))
        depth = np.concatenate([a + (b - a) * self._nodes for a, b in sides], axis=1)
        weight = np.concatenate([np.maximum(b - a, 1e-300) * self._weights for a, b in sides], axis=1)
        q = self._scheme.inclusion(start + depth)
        shapes = [weight * np.exp(-self._cut.rate * distance) for distance in (depth, width - depth)]
        return np.array([(shape * q).sum(axis=1) / shape.sum(axis=1) for shape in shapes])

    def _edges(self, k: Ints) -> Floats:
        """Return the end between parts k and k + 1: a whole number if k is odd."""
        return np.where(k % 2, self._cut.above, self._cut.threshold) + k // 2

    def _step_ratios(self, steps: Steps) -> Floats:
        """Return e^epsilon M_i / M_(i+1) and e^epsilon M_(i+1) / M_i of even and odd parts between i and i + 1."""
        lag, factor = self._inner.lag, steps.factor  # below e^epsilon by 2^-46, which covers all rounding

        def mass(place: int) -> int:
            return max(1, lag.masses[place - lag.edges[0]])

        pairs = [(mass(self._rises - 2 + even), mass(self._rises + even)) for even in (1, 0)]
        ratios = [[factor * a / (b << FACTOR_BITS), factor * b / (a << FACTOR_BITS)] for a, b in pairs]
        return np.array(ratios).T

    def _tails(self, first: int, last: int) -> tuple[int, Floats, Floats]:
        """Return k and, from the end of part k on, the mass kept below and above it under a frequency at that end.

        They span the reach of the frequencies first to last. Under a frequency at distance d, the same tail is lower by
        e^(-epsilon d), so these numbers serve all rows.
        """
        from dpsieve.papers.weighted_sampling.sampled_stability_loops import decaying_sums

        low, high = (max(0, 2 * (i - self._cut.above) + 1) for i in (first, last))
        parts = np.arange(max(0, low - 2 * self.spread), high + 2 * self.spread) + 1
        falling, rising = self._keep_probabilities(parts)
        decay = np.exp(-self._cut.rate * self._widths)[parts % 2]
        share = (-np.expm1(-self._cut.rate * self._widths) / 2)[parts % 2]
        below = decaying_sums(rising * share, decay, rising[0] / 2 if parts[0] > 1 else 0.0)
        above = decaying_sums((falling * share)[::-1], decay[::-1], falling[-1] / 2)[::-1]
        return int(parts[0]) - 1, below, above

    def _reported(self, rows: Ints, start: int, below: Floats, above: Floats) -> Floats:
        at = 2 * (rows - self._cut.above) + 1 - start
        early = np.exp(-self._cut.rate * np.maximum(self._cut.threshold - rows, 0))
        place = np.maximum(at, 0)
        return np.where(at > 0, below[place] + above[place], early * above[0])

    def draw(self, frequencies: Ints, source: Source, *, already_sampled: bool = False) -> Ints:
        """Return a token for each frequency: draw a part, then keep or drop it."""
        if already_sampled:
            hint = "Use channels.optimal or channels.simple with the scheme of the sample."
            raise InvalidValue(f"already_sampled does not fit a channel that samples its own output. {hint}")
        tokens = self._inner.draw(frequencies, source)
        reported = np.flatnonzero(tokens)
        tokens[reported] *= bernoulli(self._keep_probability(frequencies[reported], tokens[reported]), source)
        return tokens

    def likeliest(self, tokens: Ints) -> tuple[Ints, Floats]:
        """Return the whole number below or above the part, whichever makes it likelier, and that probability."""
        falling, rising = self._keep_probabilities(tokens)
        above = rising * math.exp(self._cut.rate) > falling * self._limits[0, tokens % 2]
        frequencies: Ints = self._cut.above - 1 + tokens // 2 + above
        probability = np.where(2 * frequencies - tokens >= self._rises, rising, falling)
        return frequencies, probability * self._inner.mass_at(2 * frequencies - tokens)

    def windows(self, first: int, last: int, level: float) -> Windows:
        """Return the smallest symmetric window of parts around each frequency that holds `level` of its row."""
        rows = np.arange(first, last + 1)
        start, below, above = self._tails(first, last)
        spare = (1 - level * (1 + SAFE)) * self._reported(rows, start, below, above)
        at = 2 * (rows - self._cut.above) + 1
        short, enough = np.maximum(0, -at), np.full(len(rows), 4 * self.spread)
        upper = self._widths[0]
        while (enough - short > 1).any():
            middle = (short + enough) // 2
            odd = middle % 2
            over = above[np.minimum(at + middle - start, len(above) - 1)] * self._decay(middle // 2 + odd * upper)
            under = below[np.maximum(at - middle - start, 0)] * self._decay(middle // 2 + odd * (1 - upper))
            fits = np.where(at > middle, under, 0.0) + over <= spare
            short, enough = np.where(fits, short, middle), np.where(fits, middle, enough)
        return Windows(2, 2 * rows - at - enough, 2 * rows - at + enough - 1, first, settled=last == self.last)

    def _decay(self, distance: Floats) -> Floats:
        return np.exp(-self._cut.rate * distance)
