"""Counts and totals of keys in one draw: noise on the count and on the centred sums together, and a threshold.

A unit that holds a key adds 1 to its count and a number from -1 to 1, in half widths of the bounds, to each of k
centred sums (`noise.totals`). So the vector of the count and the sums moves by a point of the cube [-1, 1]^(k+1). Noise
with P[z] proportional to e^(-epsilon max |z_i|) makes the vector epsilon-private: the K-norm mechanism of the cube
(Hardt and Talwar 2010), on a grid of 1/G (`randomness.noise`). Where keys are not listed in advance, a key is published
if its noisy count is at least T. With a floor of f units, the count n is replaced by max(0, n - (f - 1)) before the
noise, and read as n again (`channels.floored`); T is then compared with the lowered count.

Each key is (epsilon, delta)-private, and a unit with several keys composes (`privacy.mechanism.Composed`). Proof, and
the coverage of intervals near T: docs/background/totals.md#one-noise-for-counts-and-sums and #intervals-measured.
"""

from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincc

from dpsieve import validate
from dpsieve.channels.channel import Target, checked_frequencies
from dpsieve.channels.floored import HINT, LARGEST_FLOOR
from dpsieve.codec import NOT_SAVED_BY_DEFAULT, register
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import first_whole
from dpsieve.noise.totals import GRID, MOST_TOTALS, Total, centred, name_sums
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Unit
from dpsieve.privacy.mechanism import Counting, Outcome, Reader, Reading, check_tokens
from dpsieve.randomness.noise import (
    LARGEST_SCALE,
    cube_beyond,
    cube_deviation,
    cube_half_width,
    cube_radii,
    cube_tail,
    laplace_scale,
    within_cubes,
)
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Floats, Ints
from dpsieve.validate import Delta, are, is_a, is_between, is_whole, positive_epsilon

_SAVED = "Pass the saved value."
_LARGEST = 1 << 62
_RATIOS = np.linspace(0, 1, 65)
_FARTHEST = 90.0  # in scales: beyond, a token says nothing about the threshold


def key_totals(
    epsilon: float, delta: float, totals: tuple[Total, ...], *, min_units: int = 1, unit: str = "one row"
) -> "KeyTotals":
    """Return the mechanism for one key of a unit; with delta = 0, for keys of a public list, all of which are answered.

    >>> each = key_totals(1.0, 1e-8, (Total("rating", "mean", 1, 5),))
    >>> round(each.threshold / GRID, 2), round(each.deviation, 2)
    (21.13, 2.0)
    """
    epsilon, delta = positive_epsilon(epsilon), validate.delta(delta)
    scale, dimensions = laplace_scale(epsilon, GRID), len(totals) + 1
    threshold = _least_threshold(scale, delta, dimensions) if delta else 0
    return KeyTotals(epsilon, delta, totals, scale, threshold, min_units=min_units, unit=unit)


def half_published(epsilon: float, delta: float, dimensions: int) -> float:
    """Return the frequency that is published half of the time, for this number of noisy numbers per key."""
    return _least_threshold(laplace_scale(epsilon, GRID), delta, dimensions) / GRID


@lru_cache(maxsize=256)
def _least_threshold(scale: float, delta: float, dimensions: int) -> int:
    far = GRID + int(scale * (60 + 8 * dimensions))
    return first_whole(lambda t: cube_tail(scale, dimensions, t - GRID) <= delta, GRID, far)


@register("key_totals")
@dataclass(frozen=True, repr=False)
class KeyTotals(Counting, Reader):
    """See `key_totals`; the proof is in docs/background/totals.md#one-noise-for-counts-and-sums.

    Attributes:
        epsilon, delta_: the guarantee for one key of a unit.
        totals: what is added up beside the count.
        scale: of the noise, in steps of 1/G of a unit.
        threshold: the least noisy count of a published key, in steps above the floor; 0 where every key is answered.
        min_units: a key that fewer units hold is never published.
    """

    epsilon: Annotated[float, positive_epsilon]
    delta_: Delta
    totals: Annotated[tuple[Total, ...], are(is_a(Total, _SAVED), 1, MOST_TOTALS, _SAVED)]
    scale: Annotated[float, is_between(1e-3, LARGEST_SCALE, _SAVED)]
    threshold: Annotated[int, is_whole(0, _LARGEST, _SAVED)]
    _: KW_ONLY
    min_units: Annotated[int, is_whole(1, LARGEST_FLOOR, HINT)] = field(default=1, metadata=NOT_SAVED_BY_DEFAULT)
    unit: Unit = "one row"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_units > 1 and self.reports_all:
            raise InvalidValue("min_units does not work with keys that are all answered. Leave it out.")
        if (self.threshold > 0) != (self.delta_ > 0) or 0 < self.threshold < GRID:
            raise InvalidValue("threshold is zero where delta is, and only there. Pass the saved values.")

    def __repr__(self) -> str:
        kinds = ", ".join(map(str, self.totals))
        return f"<key totals ({kinds}), noise of scale {self.scale / GRID:.4g}, {self.guarantee}>"

    def certify(self) -> Certificate:
        """Return the certificate: the scale by exact fractions, the threshold in balls."""
        return self._certificate

    @cached_property
    def _certificate(self) -> Certificate:
        is_private = Fraction(self.scale) * Fraction(self.epsilon) >= GRID
        worst = cube_tail(self.scale, self.dimensions, self.threshold - GRID) if self.threshold else 0.0
        with_threshold = ", with a threshold" if self.threshold else ""
        floor = f", of keys of at least {self.min_units:,} units" if self.min_units > 1 else ""
        covers = f"noise on a count and {name_sums(self.totals)} together{with_threshold}{floor}"
        return formula(self.guarantee, worst if is_private else 1.0, "balls", covers)

    @property
    def shift(self) -> int:
        """By how much counts are lowered before the noise: the most units that hold a key below the floor."""
        return self.min_units - 1

    @property
    def least_count(self) -> int:
        return self.min_units

    @property
    def dimensions(self) -> int:
        """The number of noisy numbers per key."""
        return len(self.totals) + 1

    @property
    def resolution(self) -> int:
        return GRID

    @property
    def reports_all(self) -> bool:
        return self.threshold == 0

    @property
    def deviation(self) -> float:
        """The standard deviation of a count, and of a centred sum in half widths."""
        return cube_deviation(self.scale, self.dimensions) / GRID

    def draw(self, frequencies: ArrayLike, *, sums: Ints, source: Source | None = None) -> Outcome:
        """Return noisy counts in steps, 0 for 'nothing', and noisy centred sums.

        Args:
            frequencies: the number of units of each key.
            sums: for each total, the sum per key of what units add on the grid.
            source: randomness for tests.
        """
        source, least = resolve(source), 0 if self.reports_all else 1
        counts = checked_frequencies(frequencies, least=least)
        radii = cube_radii(self.scale, self.dimensions, len(counts), source=source)
        lowered = counts - self.shift
        tokens = GRID * lowered + within_cubes(radii, source)
        is_shown = (tokens >= self.threshold) & (lowered > 0) | self.reports_all
        shown = np.flatnonzero(is_shown)
        tokens = np.where(is_shown, tokens + GRID * self.shift, 0)
        noisy = np.zeros((len(self.totals), len(counts)), np.int64)
        for row, true in zip(noisy, np.asarray(sums, np.int64), strict=True):
            row[shown] = centred(counts[shown], true[shown]) + within_cubes(radii[shown], source)
        return Outcome(tokens, sums=noisy)

    def reporting_probability(self, frequencies: ArrayLike) -> Floats:
        """Return the probability that a key of each true frequency is published."""
        lowered = np.asarray(frequencies, np.float64) - self.shift
        if self.reports_all:
            return np.ones(lowered.shape)
        return np.where(lowered > 0, _above((self.threshold - GRID * lowered) / self.scale, self.dimensions), 0.0)

    def exact_probability(self, frequencies: ArrayLike) -> Floats:
        """Return the probability that a key of each true frequency is published with more than an upper end."""
        least = GRID * self.shift + self.threshold
        first = first_whole(lambda t: int(self.interval([t])[0][0]) > self.least_count, least, 1 << 60)
        lowered = np.asarray(frequencies, np.float64) - self.shift
        return _above((first - GRID * self.shift - GRID * lowered) / self.scale, self.dimensions)

    def frequency_at(self, probability: float) -> int:
        """Return the lowest frequency that is published with at least this probability."""
        return first_whole(lambda count: bool(self.reporting_probability([count])[0] >= probability), 1, 10**12)

    def half_width_of(self, of_sum: Floats, of_count: Floats) -> Floats:
        """Return the 95 % half-width of the noise of a Y + b N, in steps; the noise is alike in all coordinates."""
        a, b = np.abs(of_sum), np.abs(of_count)
        largest = np.maximum(a, b)
        ratio = np.divide(np.minimum(a, b), largest, out=np.zeros_like(largest), where=largest > 0)
        return np.asarray(largest * self.scale * np.interp(ratio, _RATIOS, _half_widths(self.dimensions)))

    def noise_beyond(self, of_sum: float, of_count: float, distance: float) -> float:
        """Return P[|noise of a Y + b N| > distance], for a distance in steps."""
        a, b = sorted((abs(of_sum), abs(of_count)))
        return cube_beyond(self.dimensions, a / b, distance / (b * self.scale))

    def interval(self, tokens: ArrayLike, level: float = 0.95) -> tuple[Ints, Ints]:
        """Return a confidence interval for the count behind each token, given that the key is published."""
        lower, upper, end = _windows(self.scale, self.threshold, self.dimensions, level)
        steps = check_tokens(tokens) - GRID * self.shift
        half = cube_half_width(self.dimensions, 0.0, level) * self.scale
        low, high = np.ceil((steps - half) / GRID), np.floor((steps + half) / GRID)
        near_threshold = steps < end
        low[near_threshold] = np.searchsorted(upper, steps[near_threshold], side="left") + 1
        high[near_threshold] = np.searchsorted(lower, steps[near_threshold], side="right")
        least = 0 if self.reports_all else 1
        low, high = np.maximum(low, least), np.maximum(high, least)
        return low.astype(np.int64) + self.shift, np.maximum(low, high).astype(np.int64) + self.shift

    def _counts(self, tokens: ArrayLike) -> Ints:
        least = 0 if self.reports_all else self.min_units
        return np.maximum((check_tokens(tokens) + GRID // 2) // GRID, least)

    def read(self, tokens: ArrayLike) -> Reading:
        return Reading(self._counts(tokens), *self.interval(tokens), self.terms(tokens, None))

    def terms(self, tokens: ArrayLike, g: Any) -> Floats:
        """Return the noisy counts of a public list; else g(i) / pi_i for the nearest count i."""
        counts = self._counts(tokens)
        if self.reports_all:
            return Target(g)(counts) if g else check_tokens(tokens) / GRID
        return np.asarray(Target(g)(counts) / self.reporting_probability(counts))

    def errors(self, tokens: ArrayLike, weights: Floats, g: Any) -> tuple[float, float]:
        """Return a bias of 0, and the variance of the noise and of which keys are published, at the nearest counts."""
        counts = self._counts(tokens)
        shares, target = self.reporting_probability(counts), Target(g)
        away = max(1, round(self.deviation))
        noise = (target(counts + away) - target(np.maximum(counts - away, 0))) / (2 * away) * self.deviation / shares
        return 0.0, float(weights**2 @ (noise**2 + (1 - shares) * (target(counts) / shares) ** 2))

    def possible(self, tokens: Ints) -> bool:
        least = -_LARGEST if self.reports_all else self.threshold + GRID * self.shift
        return bool(((tokens >= least) & (tokens <= _LARGEST)).all())


@lru_cache(maxsize=32)
def _half_widths(dimensions: int) -> Floats:
    """Return the 95 % half-widths of Z_1 + r Z_2, in scales, for some ratios r; they are convex in r."""
    return np.array([cube_half_width(dimensions, float(ratio), 0.95) for ratio in _RATIOS])


def _above(x: Floats, dimensions: int) -> Floats:
    """Return P[one coordinate >= x], in scales of a large scale."""
    t = np.abs(x)
    tail = (gammaincc(dimensions + 1, t) - t / dimensions * gammaincc(dimensions, t)) / 2
    return np.asarray(np.where(x > 0, tail, 1 - tail))


@lru_cache(maxsize=16)
def _windows(scale: float, threshold: int, dimensions: int, level: float) -> tuple[Floats, Floats, float]:
    """Return between which tokens a count of 1, 2, ... is with this level, given a report, and up to which token."""
    if not threshold:
        return np.empty(0), np.empty(0), -np.inf
    counts = np.arange(1, int((threshold + 2 * _FARTHEST * scale) / GRID) + 2, dtype=np.float64)
    grid = np.linspace(-_FARTHEST, 4 * _FARTHEST, 200_001)
    tails = np.log(np.maximum(_above(grid, dimensions), 1e-300))
    starts = np.maximum((threshold - GRID * counts) / scale, -_FARTHEST)
    first = np.interp(starts, grid, tails)
    tail = (1 - level) / 2
    lower, upper = (np.interp(-(first + np.log(share)), -tails, grid) for share in (1 - tail, tail))
    end = threshold + _FARTHEST * scale
    return lower * scale + GRID * counts, upper * scale + GRID * counts, end
