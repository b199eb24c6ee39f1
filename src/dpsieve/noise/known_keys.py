"""Counts of keys that are known in advance: every key of a public list is answered, with noise and no threshold.

A unit adds at most r to the count of each of at most m keys. With discrete Laplace noise of scale m r / epsilon on
every count the release is epsilon-private (Ghosh, Roughgarden and Sundararajan 2012). With Gaussian noise the l2
distance of neighbours, r sqrt(m), decides: it is rounded to integers, which is post-processing of the Gaussian
mechanism, so sigma is the smallest that its exact analysis allows (Balle and Wang 2018).

Neighbours are add/remove of one unit. The list itself must not come from the data.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.accounting.curves import gaussian_delta, gaussian_sigma
from dpsieve.accounting.spends import DiscreteLaplace, Gaussian, Spend
from dpsieve.channels.channel import Target, checked_frequencies
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, upper
from dpsieve.privacy.certificate import Certificate, formula, laplace
from dpsieve.privacy.guarantee import Unit, warn_of_large_delta
from dpsieve.privacy.mechanism import Counting, Outcome, Reader, Reading, check_tokens
from dpsieve.randomness import discrete_laplace, rounded_gaussian
from dpsieve.randomness.noise import LARGEST_SCALE, SMALLEST_SCALE, laplace_scale
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Floats, Ints
from dpsieve.validate import Delta, check_max_keys, check_max_rows, positive_epsilon

if TYPE_CHECKING:
    from dpsieve.publication import Release

NoiseName = Literal["auto", "laplace", "gaussian"]
NOISES: tuple[NoiseName, ...] = get_args(NoiseName)
_LARGEST = 1 << 53


class NoiseReader(Reader):
    """Reads integer counts with symmetric noise and no threshold.

    Attributes:
        least: the least count of a key: 0, or 1 where a key is published only if some unit holds it.
        steps: the noise is a whole multiple of 1/steps.
    """

    least: int = 0
    steps: int = 1

    @property
    @abstractmethod
    def deviation(self) -> float:
        """The standard deviation of the noise."""

    @abstractmethod
    def half_width(self, level: float) -> int:
        """Return the least h such that the noise is within -h to h steps with at least this probability."""

    def noisy(self, tokens: ArrayLike) -> Floats:
        """Return the noisy counts."""
        return check_tokens(tokens).astype(np.float64)

    def read(self, tokens: ArrayLike) -> Reading:
        """Return counts that are not below the least one; the weight is the noisy count, which is unbiased."""
        noisy = self.noisy(tokens)
        return Reading(np.maximum(np.rint(noisy).astype(np.int64), self.least), *self.interval(tokens), noisy)

    def interval(self, tokens: ArrayLike, level: float = 0.95) -> tuple[Ints, Ints]:
        """Return a confidence interval (low, high) for the true frequency behind each token."""
        level = validate.between("level", level, 0.0, 1 - 1e-12, hint="Pass a confidence level such as level=0.95.")
        counts, half = check_tokens(tokens), self.half_width(level)
        return np.maximum(counts - half, self.least), np.maximum(counts + half, self.least)

    def terms(self, tokens: ArrayLike, g: Callable[[Floats], Floats] | None = None) -> Floats:
        """Return the noisy counts, whose sum is unbiased; with a g, its values at the counts, not below zero."""
        return _values(self.noisy(tokens), g)

    def errors(
        self, tokens: ArrayLike, weights: Floats, g: Callable[[Floats], Floats] | None = None
    ) -> tuple[float, float]:
        """Return a bias of 0 and the exact variance of the noise; with a g, from its change over one deviation."""
        noisy = self.noisy(tokens)
        up, down = (_values(noisy + sign * self.deviation, g) for sign in (1, -1))
        return 0.0, float(weights**2 @ ((up - down) / 2) ** 2)

    def noise_tail(self, x: Floats) -> Floats:
        """Return P[noise >= x] for whole numbers x of steps; here for a Gaussian that was rounded."""
        from scipy.special import ndtr

        return np.asarray(ndtr((0.5 - x) / self.deviation))

    def sum_interval(
        self, tokens: ArrayLike, weights: Floats, g: Callable[[Floats], Floats] | None, level: float
    ) -> tuple[float, float] | None:
        """Return the interval of a weighted sum of counts, from the law of their noise; with a g, of one count only."""
        from dpsieve.estimation.estimated_sums import HIGHEST_LEVEL, noise_interval

        noisy = self.noisy(tokens)
        if g is not None:
            half = self.half_width(level) / self.steps
            return self._scaled(np.array([noisy[0] - half, noisy[0] + half]), weights, g) if len(noisy) == 1 else None
        value = float(weights @ noisy)
        if level > HIGHEST_LEVEL and len(noisy):  # union bound over all noises
            half = self.half_width(1 - (1 - level) / len(noisy)) / self.steps
            margin = half * float(np.abs(weights).sum())
            return value - margin, value + margin
        return noise_interval(value, weights, self.noise_tail, self.deviation * self.steps, level, 1 / self.steps)

    def _scaled(
        self, ends: Ints | Floats, weights: Floats, g: Callable[[Floats], Floats] | None
    ) -> tuple[float, float]:
        """Return the interval of the one weighted term whose count is between these ends."""
        values = weights[0] * _values(ends.astype(np.float64), g)
        return float(values.min()), float(values.max())


class NoisyCounts(Counting):
    """Integer counts with symmetric noise and no threshold: every key is answered, and a token of 0 is a count."""

    reports_all = True

    def possible(self, tokens: Ints) -> bool:
        return bool(((tokens >= -_LARGEST) & (tokens <= _LARGEST)).all())


def _values(noisy: Floats, g: Callable[[Floats], Floats] | None) -> Floats:
    """Return noisy counts, or the values of g at them, not below zero."""
    return noisy if g is None else Target(g)(np.maximum(noisy, 0).astype(np.int64))


def laplace_deviation(scale: float) -> float:
    """Return the standard deviation of discrete Laplace noise."""
    return math.sqrt(2 * math.exp(-1 / scale)) / -math.expm1(-1 / scale)


def laplace_tail(x: Ints | Floats, scale: float) -> Floats:
    """Return P[X >= x] of discrete Laplace noise for whole numbers x."""
    right = np.exp(-np.maximum(x, 0) / scale) / (1 + math.exp(-1 / scale))
    left = np.exp((np.minimum(x, 0) - 1) / scale) / (1 + math.exp(-1 / scale))
    return np.where(x > 0, right, 1 - left)


def laplace_half_width(scale: float, level: float) -> int:
    """Return the least h such that discrete Laplace noise is within -h to h with at least this probability."""
    tail = (1 - level) * (1 + math.exp(-1 / scale)) / 2  # P[|X| > h] = 2 p^(h+1) / (1 + p)
    return max(0, math.ceil(-math.log(tail) * scale * (1 + 1e-12) - 1))


def gaussian_deviation(sigma: float) -> float:
    """Return the standard deviation of rounded Gaussian noise."""
    if sigma > 2:  # rounding adds the variance of an even spread
        return math.hypot(sigma, 12**-0.5)
    tails = [(2 * k - 1) * math.erfc((k - 0.5) / sigma / 2**0.5) for k in range(1, 90)]
    return math.sqrt(math.fsum(tails))  # E[X^2] = sum over k >= 1 of (2k - 1) P[|X| >= k]


def gaussian_half_width(sigma: float, level: float) -> int:
    """Return the least h such that rounded Gaussian noise is within -h to h with at least this probability."""
    from scipy.special import ndtri

    edge = float(-ndtri((1 - level) / 2)) * sigma * (1 + 1e-12)
    return max(0, math.ceil(edge - 0.5))


@dataclass(frozen=True)
class GaussianReader(NoiseReader):
    """Reads counts with rounded Gaussian noise of standard deviation `scale` before rounding."""

    scale: float
    least: int = 0

    @cached_property
    def deviation(self) -> float:
        return gaussian_deviation(self.scale)

    def half_width(self, level: float) -> int:
        return gaussian_half_width(self.scale, level)


@register("known_keys")
@dataclass(frozen=True, repr=False)
class KnownKeys(NoisyCounts, NoiseReader):
    """Noise for the counts of a public list of keys; see `known_keys`.

    Attributes:
        noise: 'laplace' or 'gaussian'.
        scale: of the discrete Laplace distribution, or sigma.
        deviation: the standard deviation of the noise.
    """

    epsilon: Annotated[float, positive_epsilon]
    delta: Delta = 0.0
    max_keys: Annotated[int, check_max_keys] = 1
    max_rows: Annotated[int, check_max_rows] = 1
    _: KW_ONLY
    noise: NoiseName = "laplace"
    unit: Unit = "one row"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.noise, str) or self.noise not in NOISES[1:]:
            raise InvalidValue(f"noise is not known. Choose one of {', '.join(NOISES[1:])}.", argument="noise")
        if self.noise == "gaussian" and self.delta == 0:
            raise InvalidValue(
                "noise='gaussian' needs a delta above zero. Pass delta=1e-8, or noise='laplace'.", argument="noise"
            )
        self.scale  # noqa: B018  # raises if the noise would be too large

    @cached_property
    def scale(self) -> float:
        """The scale of the discrete Laplace distribution, or sigma."""
        if self.noise == "laplace":
            return laplace_scale(self.epsilon, self.max_keys * self.max_rows)
        sigma = gaussian_sigma(self.epsilon, self.delta, sensitivity=float(self.max_rows), count=self.max_keys)
        hint = "Pass a larger epsilon or delta."
        return max(validate.between("sigma", sigma, 0.0, LARGEST_SCALE, hint=hint), SMALLEST_SCALE)

    @cached_property
    def deviation(self) -> float:
        return laplace_deviation(self.scale) if self.noise == "laplace" else gaussian_deviation(self.scale)

    def __repr__(self) -> str:
        return f"<known keys, {self.noise} noise of scale {self.scale:.4g}, {self.guarantee}>"

    def certify(self) -> Certificate:
        """Return the certificate: by exact fractions for Laplace noise, by formulas rounded up for Gaussian noise."""
        keys, rows = self.max_keys, self.max_rows
        if self.noise == "laplace":
            return laplace(self.guarantee, self.scale, keys * rows, "discrete Laplace noise")
        worst = gaussian_delta(self.scale, self.epsilon, float(rows), count=keys)
        return formula(self.guarantee, worst, "balls", "the exact analysis of Gaussian noise")

    def spends(self) -> tuple[Spend, ...]:
        keys, rows = self.max_keys, self.max_rows
        if self.noise == "laplace":
            return (DiscreteLaplace(self.scale, rows, keys),)
        return (Gaussian(self.scale, upper(lambda: ball(keys).sqrt() * rows)),)

    def draw(self, frequencies: ArrayLike, *, source: Source | None = None) -> Outcome:
        """Add noise to each true frequency, 0 included."""
        hint = "Pass one whole number per key, from 0 to 10^12."
        counts = checked_frequencies(frequencies, hint=hint, least=0)
        draw_noise = discrete_laplace if self.noise == "laplace" else rounded_gaussian
        return Outcome(counts + draw_noise(self.scale, len(counts), source=resolve(source)))

    def release(self, keys: ArrayLike, frequencies: ArrayLike, *, source: Source | None = None) -> "Release":
        """Answer every key of a public list; `frequencies` are their true counts, 0 for those that do not occur."""
        from dpsieve.publication.release import draw_release

        warn_of_large_delta(self.guarantee.delta)
        return draw_release(self, keys, frequencies, source=source)

    def noise_tail(self, x: Floats) -> Floats:
        return laplace_tail(x, self.scale) if self.noise == "laplace" else super().noise_tail(x)

    def half_width(self, level: float) -> int:
        if self.noise == "laplace":
            return laplace_half_width(self.scale, level)
        return gaussian_half_width(self.scale, level)


def known_keys(
    epsilon: float,
    delta: float = 0.0,
    max_keys: int = 1,
    max_rows: int = 1,
    *,
    noise: NoiseName = "auto",
    unit: str = "one row",
) -> KnownKeys:
    """Return the noise for keys that are known in advance; 'auto' takes that with the smaller standard deviation.

    Units add at most `max_rows` to the counts of at most `max_keys` keys. With delta = 0 the noise is Laplace noise.

    >>> known_keys(1.0, 1e-8, max_keys=10).noise, known_keys(1.0, 1e-8, max_keys=100).noise
    ('laplace', 'gaussian')
    """
    kinds: list[NoiseName] = (
        [noise] if noise != "auto" else ["laplace", "gaussian"] if validate.delta(delta) else ["laplace"]
    )
    mechanisms = [KnownKeys(epsilon, delta, max_keys, max_rows, noise=kind, unit=unit) for kind in kinds]
    return min(mechanisms, key=lambda mechanism: mechanism.deviation)
