"""Private Misra-Gries: noise on every counter, one shared noise, and a threshold.

With c the counters and gamma the number of times that all of them were lowered, discrete Laplace noises of scale
1/epsilon go to the pairs (c_i + gamma, gamma): X_i to the first, -Y to the second. Published are c_i + X_i + Y, where
it reaches the threshold t, and gamma - Y. Keys that only one of two neighbouring sketches holds have counters of 1 and
0 at most, so

    delta = P[max(1 + X_1, X_2) + Y >= t].

Probabilities are sums of positive terms in floating point, rounded up by one part in 10^9. Reference: C. J. Lebeda and
J. Tetek, PODS 2023 (chapter 3 of Lebeda's thesis), Algorithm 13. Proof: docs/background/streams.md#proof-one-sketch.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.estimation.estimated_sums import noise_interval
from dpsieve.exact.balls import first_whole
from dpsieve.noise.known_keys import laplace_deviation, laplace_tail
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import unit_words
from dpsieve.privacy.mechanism import Counting, Drawn, Outcome, Reader, Reading, check_tokens, only_number
from dpsieve.randomness.noise import discrete_laplace, laplace_scale
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import Delta, check_budget, is_whole, positive_epsilon

MOST_COUNTERS = 2**24
MISSED = 0.05
"""The probability that any interval of a release misses."""
MOST_LOST = 2**62
"""The largest noisy loss that can be saved."""

_SAFE = 1 + 1e-9
_FAR = 45.0  # scales
_LARGEST = 1 << 53  # of published values


def check_items_per_unit(value: int, name: str = "items_per_unit") -> int:
    """Return a checked bound on the items of one unit."""
    return validate.whole(name, value, low=1, high=10**6, hint="Pass how many items a unit may add.")


@dataclass(frozen=True, eq=False)
class SketchReading(Reading):
    """What a release of a sketch states about each key, with its noisy counter, before the loss is added."""

    counter: Floats


def read_estimates(estimates: Floats, low: Ints, high: Ints, counter: Floats) -> SketchReading:
    """Return counts clipped to their intervals; the weight is the estimate itself."""
    return SketchReading(np.clip(np.rint(estimates).astype(np.int64), low, high), low, high, estimates, counter)


@dataclass(frozen=True)
class SketchReader(Reader):
    """Reads the tokens of a sketch, given a noisy bound on what its counters have lost.

    Attributes:
        sketch: the mechanism.
        lost: how much every value may be too low, in units of 1/parts, with noise.
    """

    sketch: "PrivateSketch"
    lost: int

    def read(self, tokens: ArrayLike) -> SketchReading:
        """Return what each token states: the value plus what may be lost, clipped to its interval."""
        noisy = self._noisy(tokens)
        low, high = self.sketch.bounds(noisy, self.lost)
        return read_estimates(self.terms(tokens, None), low, np.maximum(high, low), noisy)

    def terms(self, tokens: ArrayLike, g: Callable[[Floats], Floats] | None) -> Floats:
        """Return the noisy values plus what they may have lost, not below zero, or g of that."""
        return self._terms(self._noisy(tokens), g)

    def errors(self, tokens: ArrayLike, weights: Floats, g: Callable[[Floats], Floats] | None) -> tuple[float, float]:
        """Return a bias of 0 and the variance of the noise; with a g, by its slope over one deviation.

        The error is that of the value plus what was lost. Keys that were not held all the time, and counters below the
        threshold, are not included.
        """
        noisy, deviation = self._noisy(tokens), self.sketch.deviation
        up, down = (self._terms(noisy + sign * deviation, g) for sign in (1, -1))
        slopes = weights * (up - down) / (2 * deviation)
        own, common = self.sketch.noises(self.lost)
        return 0.0, float(own**2 * (slopes @ slopes) + (common * slopes.sum()) ** 2)

    def sum_interval(
        self, tokens: ArrayLike, weights: Floats, g: Callable[[Floats], Floats] | None, level: float
    ) -> tuple[float, float] | None:
        """Return the interval of a sum of estimates, from the distribution of Laplace noise; see `errors`."""
        scale = self.sketch.scale
        if g is not None or scale is None:
            return None
        value = float(weights @ self.terms(tokens, None))
        noises = np.append(weights, weights.sum()) if self.sketch.noises(self.lost)[1] else weights
        tails = partial(laplace_tail, scale=scale)
        return noise_interval(value, noises, tails, laplace_deviation(scale), level, 1 / self.sketch.parts)

    def _noisy(self, tokens: ArrayLike) -> Floats:
        """Return the noisy values in units of frequency."""
        return check_tokens(tokens) / self.sketch.resolution

    def _terms(self, noisy: Floats, g: Callable[[Floats], Floats] | None) -> Floats:
        estimates = noisy + max(self.lost, 0) / self.sketch.parts
        return estimates if g is None else np.asarray(g(np.maximum(estimates, 0)), dtype=np.float64)


@dataclass(frozen=True, repr=False)
class PrivateSketch(Counting):
    """Noise and a threshold for the counters of a sketch, and noise for what they have lost: `lost` of an outcome.

    Attributes:
        epsilon, delta: the promise.
        counters: k, the size of each sketch.
        unit: the protected unit.
    """

    epsilon: Annotated[float, positive_epsilon]
    delta: Delta
    counters: Annotated[int, is_whole(1, MOST_COUNTERS, "Pass the size of the sketch.")]
    _: KW_ONLY
    unit: str = ""

    @property
    def most_keys(self) -> int:
        return self.counters

    @property
    def scale(self) -> float | None:
        """The scale of all noises, where they are discrete Laplace noise."""
        return None

    @property
    def parts(self) -> int:
        """What was lost is counted in units of 1/parts, and so is Laplace noise."""
        return 1

    @property
    @abstractmethod
    def deviation(self) -> float:
        """The standard deviation of the noise of one value."""

    @property
    @abstractmethod
    def least(self) -> int:
        """The least token that is published."""

    def possible(self, tokens: Ints) -> bool:
        return bool(((tokens >= self.least) & (tokens // self.resolution <= _LARGEST)).all())

    @abstractmethod
    def noises(self, lost: int) -> tuple[float, float]:
        """Return the standard deviations of an estimate's own noise, and of the noise that all of them share."""

    @abstractmethod
    def bounds(self, noisy: Floats, lost: int) -> tuple[Ints, Ints]:
        """Return lower and upper ends of intervals for the true frequencies; an upper end may be below its lower."""

    @abstractmethod
    def draw(self, values: Ints, lost: int, source: Source, /) -> Outcome:
        """Return a token for each value, 0 for 'nothing', and a noisy bound on how much the values are too low."""

    def reader(self, drawn: Drawn) -> SketchReader:
        """Return what reads tokens, given what was lost, with noise."""
        return SketchReader(self, only_number(drawn, "lost", -MOST_LOST, MOST_LOST))


@dataclass(frozen=True, repr=False)
class LaplaceSketch(PrivateSketch):
    """Discrete Laplace noise for Misra-Gries sketches: the base of one sketch and of sums.

    Attributes:
        items_per_unit: how many items of the streams one unit may add.
        unit: the protected unit, which follows from items_per_unit; anything else is refused.
    """

    items_per_unit: Annotated[int, check_items_per_unit] = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.store(self, unit=protected_unit(self.items_per_unit, self.unit))
        self.scale  # noqa: B018 (raises where the noise would be too wide to draw)

    @property
    @abstractmethod
    def sensitivity(self) -> int:
        """How much one item changes all noisy numbers together."""

    @cached_property
    def scale(self) -> float:
        return laplace_scale(self.epsilon, self.sensitivity * self.items_per_unit)

    @property
    def deviation(self) -> float:
        return laplace_deviation(self.scale) / self.parts

    @abstractmethod
    def shares_noise(self, lost: int) -> bool:
        """Return whether all estimates share one noise."""

    def noises(self, lost: int) -> tuple[float, float]:
        return self.deviation, self.deviation if self.shares_noise(lost) else 0.0

    def _tail(self, x: int) -> float:
        return float(laplace_tail(np.array([x]), self.scale)[0])


@register("misra_gries")
@dataclass(frozen=True, repr=False)
class NoisySketch(LaplaceSketch):
    """The noise and the threshold of a private Misra-Gries release.

    >>> NoisySketch(1.0, 1e-8, 1024).threshold
    22
    """

    def __post_init__(self) -> None:
        if self.delta == 0:
            hint = "Pass delta=1e-8, or universe=... for pure privacy."
            raise InvalidValue(f"delta=0 needs a known universe. {hint}", argument="delta")
        check_budget(self.epsilon, self.delta)
        super().__post_init__()

    def __repr__(self) -> str:
        return f"<private Misra-Gries of {self.counters:,} counters, threshold {self.threshold:,}, {self.guarantee}>"

    @property
    def sensitivity(self) -> int:
        return 1  # one number changes, by one

    def shares_noise(self, lost: int) -> bool:
        """Return whether all estimates contain Y, which cancels where the noisy loss is above zero."""
        return lost <= 0

    @cached_property
    def threshold(self) -> int:
        """The least noisy counter that is published."""
        return find_threshold(self._delta, self.delta)

    def certify(self) -> Certificate:
        is_wide = Fraction(self.scale) * Fraction(self.epsilon) >= self.sensitivity * self.items_per_unit
        worst = self._delta(self.threshold) if is_wide else 1.0
        noise = f"discrete Laplace noise of scale {self.scale:.4g} and a threshold of {self.threshold:,}"
        return formula(self.guarantee, worst, "formula", f"Misra-Gries with {noise}")

    def draw(self, counters: Ints, decrements: int, source: Source) -> Outcome:
        """Return a token for each counter, 0 for 'nothing', and the noisy gamma as `lost`."""
        shared = int(discrete_laplace(self.scale, 1, source=source)[0])
        noisy = counters + discrete_laplace(self.scale, len(counters), source=source) + shared
        return Outcome(np.where(noisy >= self.threshold, noisy, 0), {"lost": decrements - shared})

    def bounds(self, noisy: Floats, lost: int) -> tuple[Ints, Ints]:
        """Return intervals that all contain the true frequencies with probability 0.95.

        A true frequency f is at least its counter c = token - X - Y, and at most c + gamma = token + noisy gamma - X.
        """
        below, above = self._margins
        counters = noisy.astype(np.int64)
        return np.maximum(counters - below, 1), counters + lost + above

    @property
    def least(self) -> int:
        return self.threshold

    @cached_property
    def _margins(self) -> tuple[int, int]:
        """Upper bounds on all X_i + Y, and on all -X_i, that each fail with half of the allowed probability."""
        keys, half = self.counters, MISSED / 2
        below = find_threshold(lambda t: any_above(t, {0: keys}, self.scale), half) - 1
        return below, find_threshold(lambda t: keys * self._tail(t), half) - 1

    @property
    def odd_keys(self) -> dict[int, int]:
        """The counters of keys that a neighbouring sketch does not hold, each with its number of keys."""
        return {1: 1, 0: 1}

    def _delta(self, threshold: int) -> float:
        return group_delta(any_above(threshold, self.odd_keys, self.scale), self.epsilon, self.items_per_unit)


def protected_unit(items_per_unit: int, unit: str = "") -> str:
    """Return the unit that a sketch protects, as guarantees and ledgers name it; raise for another `unit`.

    >>> protected_unit(1), protected_unit(5)
    ('one item', 'one unit with at most 5 items')
    """
    expected = "one item" if items_per_unit == 1 else f"one unit with at most {items_per_unit} items"
    if unit != "" and unit_words(unit) != expected:
        hint = f"Leave it out, or pass {expected!r}."
        raise InvalidValue(f"unit is not what this sketch protects. {hint}", argument="unit")
    return expected


# All noises below are independent discrete Laplace variables of one scale: one per counter, X_1, X_2, ..., and a shared
# one, Y.


def any_above(threshold: int, counters: dict[int, int], scale: float) -> float:
    """Return P[c + X_i + Y >= threshold for any i]; `counters` maps each value c to its number of counters.

    For scales above 256 the values of Y are grouped in cells, each represented by its upper end: the result is up to
    half a per cent too high, and the time does not depend on the scale.

    >>> f"{any_above(22, {1: 1, 0: 1}, 1.0):.3g}"
    '7.86e-09'
    """
    width = max(1, int(scale / 256))
    cells = (max(threshold, 0) + math.ceil(_FAR * scale)) // width + 2
    start = np.arange(cells) * width
    # The cells start to start + width - 1, and their mirror images -1 - start down to -start - width.
    ends = np.concatenate([start + (width - 1), -1 - start])
    shares = -np.expm1(-width / scale) / (1 + math.exp(-1 / scale))
    mass = shares * np.exp(-np.concatenate([start, start + 1]) / scale)
    with np.errstate(divide="ignore"):
        silent = sum(many * np.log1p(-laplace_tail(threshold - c - ends, scale)) for c, many in counters.items())
    far = np.array([cells * width])
    # Y above the cells counts as certain. Y below them: a counter would have to compensate.
    beyond = laplace_tail(far, scale) * (
        1 + sum(counters.values()) * laplace_tail(far + threshold - max(counters), scale)
    )
    return min(1.0, float(mass @ -np.expm1(silent) + beyond[0]) * _SAFE)


def group_delta(delta: float, epsilon: float, steps: int) -> float:
    """Return the delta of a chain of `steps` neighbours, each (epsilon/steps, delta), at epsilon in total."""
    if steps == 1:
        return delta
    return min(1.0, delta * math.expm1(epsilon) / math.expm1(epsilon / steps) * (1 + 1e-12))


def find_threshold(delta: Callable[[int], float], allowed: float) -> int:
    """Return the least whole threshold at which a decreasing delta is at most `allowed`."""
    return first_whole(lambda threshold: delta(threshold) <= allowed, 1, 1 << 60)
