"""Estimated sums over keys: a value with its error, the weights of keys, and confidence intervals.

**Intervals of few terms.** An estimate is the sum of w_k T_k, and each T_k has an error D_k, all independent. If
P[sum of w_k D_k > u] <= tail, the true sum is at least the estimate minus u, except with this probability; the upper
end has -D_k in place of D_k. `ErrorLaw` holds a law for both directions, on whole multiples of a unit. Where the units
of all terms agree, their convolution is exact; otherwise errors are rounded up to a common grid. Convolutions by fast
Fourier transforms are right to about 1e-15; the tail is reduced by 1e-10 for that. How:
docs/background/estimation.md#how-intervals-of-sums-are-made.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.sampling.schemes import Scheme
from dpsieve.types import Floats

_WHERE = "Pass one boolean for each row of the table, or a function of the keys that returns them."
_WEIGHTS = "Pass one finite number for each row of the table, or a function of the keys that returns them."

MOST_TERMS = 16
"""Different terms that are convolved; equal ones count as one."""

HIGHEST_LEVEL = 1 - 1e-7
"""Above it no convolution is exact enough."""

_MOST_ERRORS = 128  # that are convolved
_GRID = 16.0  # steps of the grid in one standard deviation, for each term
_ROUNDING, _WHOLE = 1e-10, 1e-9
_LEFT_OUT = 1e-13  # probability of what laws of infinite length leave out
_POINTS = 8192  # on either side, of a law with longer tails than that

Interval = Callable[[float], tuple[float, float] | None]


class EstimatedSum(float):
    """An estimate: a float, with its estimated bias and variance, which are computed when they are first read.

    `errors` is the pair of these, or a function that returns it. `interval` returns the exact or conservative interval
    at a level, or None where only the normal approximation is offered.

    >>> total = EstimatedSum(1200.0, (10.0, 400.0))
    >>> total + 1, total.bias, total.standard_error
    (1201.0, 10.0, 20.0)
    >>> [round(end, 1) for end in total.interval(0.95)]
    [1150.8, 1229.2]
    """

    _errors: tuple[float, float] | Callable[[], tuple[float, float]]
    _interval: Interval | None

    def __new__(
        cls,
        value: float,
        errors: tuple[float, float] | Callable[[], tuple[float, float]],
        interval: Interval | None = None,
    ) -> "EstimatedSum":
        """Make an estimate of this value."""
        estimate = super().__new__(cls, value)
        estimate._errors, estimate._interval = errors, interval
        return estimate

    @cached_property
    def _bias_and_variance(self) -> tuple[float, float]:
        bias, variance = self._errors() if callable(self._errors) else self._errors
        return float(bias), float(variance)

    @property
    def bias(self) -> float:
        """The expectation of the estimate minus the true sum."""
        return self._bias_and_variance[0]

    @property
    def variance(self) -> float:
        """The variance of the estimate."""
        return self._bias_and_variance[1]

    @property
    def standard_error(self) -> float:
        """The root of the variance."""
        return math.sqrt(self.variance)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return an interval that covers the true sum with at least this probability, given which keys were reported.

        For few keys the laws of their noise are convolved, see `Release.estimate`. For many keys it is (estimate -
        bias) plus and minus z standard errors, z from the normal distribution: about right where no key dominates and
        most are far above the threshold. It misses its level where more than 16 keys near the threshold make up most
        of the sum, as the number of withheld ones is then a guess.
        """
        level = validate.between("level", level, 0.0, 1 - 1e-12, hint="Pass a confidence level such as level=0.95.")
        exact = None if self._interval is None else self._interval(level)
        if exact is not None:
            return exact
        half = NormalDist().inv_cdf((1 + level) / 2) * self.standard_error
        middle = float(self) - self.bias
        return middle - half, middle + half

    def __reduce__(self) -> tuple[Any, ...]:
        return EstimatedSum, (float(self), self._bias_and_variance, self._interval)


def row_weights(
    keys: Any,
    rows: int,
    where: ArrayLike | Callable[[Any], ArrayLike] | None,
    weights: ArrayLike | Callable[[Any], ArrayLike] | None,
) -> Floats:
    """Return the weight of each row in a sum: `weights`, or 1 without them, and 0 where `where` is false."""
    products = np.ones(rows)
    if where is not None and rows:
        chosen = np.asarray(where(keys) if callable(where) else where)
        if chosen.dtype != np.bool_ or chosen.shape != products.shape:
            raise InvalidValue(f"where does not select rows of the table. {_WHERE}")
        products *= chosen
    if weights is not None and rows:
        given = validate.finite("weights", weights(keys) if callable(weights) else weights, hint=_WEIGHTS)
        if given.shape != products.shape:
            raise InvalidValue(f"weights does not hold one number for each row. {_WEIGHTS}")
        products *= given
    return products


def horvitz_thompson(
    frequencies: NDArray[Any],
    scheme: Scheme,
    g: Callable[[NDArray[Any]], ArrayLike] | None = None,
    weights: Floats | None = None,
) -> EstimatedSum:
    """Return an unbiased estimate of the sum of L g(w) over all keys from the frequencies w and weights L of a sample.

    With q(w) the inclusion probabilities (Horvitz, Thompson 1952; Private Weighted Sampling, equation 7):

        estimate = sum over the sample of L g(w) / q(w),
        variance = sum over all keys of L^2 g(w)^2 (1 - q(w)) / q(w),  estimated without bias by
                   sum over the sample of L^2 g(w)^2 (1 - q(w)) / q(w)^2.
    """
    hint = "Pass a function of an array of frequencies that returns a finite number for each, such as np.sqrt."
    if g is not None and not callable(g):
        raise InvalidType(f"g must be a function, not {type(g).__name__}. {hint}")
    values = np.asarray(frequencies if g is None else g(frequencies.copy()))
    if values.shape != frequencies.shape or values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise InvalidValue(f"g did not return a finite number for each frequency. {hint}")
    q = scheme.inclusion(frequencies)
    terms = values / q if weights is None else values / q * weights
    return EstimatedSum(terms.sum(), (0.0, (terms**2 * (1 - q)).sum()))


@dataclass(frozen=True, eq=False)
class ErrorLaw:
    """Masses of an error D, and of -D, at the multiples `first`, `first` + 1, ... of a unit."""

    unit: float
    first: int
    up: Floats
    down: Floats

    @classmethod
    def of_noise(
        cls,
        tail: Callable[[Floats], Floats],
        deviation: float,
        unit: float = 1.0,
        downwards: Callable[[Floats], Floats] | None = None,
    ) -> "ErrorLaw":
        """Return the law of noise on multiples of a unit, from P[noise >= x units]; wide noise is rounded up.

        `downwards` is P[-noise >= x units], where noise is not symmetric.
        """
        tails = (tail, tail if downwards is None else downwards)
        reach = max(2, math.ceil(deviation))
        while max(float(each(np.array([float(reach)]))[0]) for each in tails) > _LEFT_OUT:
            reach *= 2
        width = -(-reach // _POINTS)
        most = _POINTS if width > 1 else reach
        points = np.arange(-most, most + 1, dtype=np.float64) * width
        # The mass of what is above the last point, and up to this one.
        up, down = (-np.diff(np.append(1.0, each(points + 1))) for each in tails)
        return cls(unit * width, -most, up, down)

    def moments(self, side: int) -> tuple[float, float]:
        """Return the mean and the variance of D (side 1), or of -D (side -1)."""
        points, masses = self.unit * (np.arange(len(self.up)) + self.first), self.up if side > 0 else self.down
        mean = float(masses @ points)
        return mean, float(masses @ points**2) - mean**2

    @property
    def spread(self) -> float:
        """The larger of both root mean squares."""
        return math.sqrt(max(mean**2 + variance for mean, variance in map(self.moments, (1, -1))))


@dataclass(frozen=True, eq=False)
class Term:
    """An error law with its weight, for `count` independent terms."""

    law: ErrorLaw
    weight: float
    count: int = 1

    @property
    def step(self) -> float:
        """The distance of two neighbouring errors."""
        return self.law.unit * abs(self.weight)

    @property
    def spread(self) -> float:
        """The root mean square of one of the errors."""
        return self.law.spread * abs(self.weight)

    def masses(self, side: int) -> Floats:
        """Return the masses of one of the errors, upwards (side 1) or downwards (side -1)."""
        return self.law.up if side * self.weight > 0 else self.law.down

    def moments(self, side: int) -> tuple[float, float]:
        """Return the mean and the variance of all of these errors together, upwards or downwards."""
        mean, variance = self.law.moments(side if self.weight > 0 else -side)
        return self.count * abs(self.weight) * mean, self.count * self.weight**2 * variance


def sum_margins(terms: Sequence[Term], level: float) -> tuple[float, float]:
    """Return by how much a sum may be too high and too low, each except with probability (1 - level) / 2.

    The first 16 terms, and 128 errors at most, are convolved; the sum of the others is taken for normal. So dominant
    terms come first.

    >>> noise = ErrorLaw(1.0, -1, np.array([0.25, 0.5, 0.25]), np.array([0.25, 0.5, 0.25]))
    >>> sum_margins([Term(noise, 1.0, 2)], 0.85), sum_margins([Term(noise, 10.0)], 0.4)
    ((1.0, 1.0), (0.0, 0.0))
    """
    exact, others, room = [], list(terms[MOST_TERMS:]), _MOST_ERRORS
    for term in terms[:MOST_TERMS]:
        taken = min(term.count, room)
        room -= taken
        exact += [replace(term, count=taken)] if taken else []
        others += [replace(term, count=term.count - taken)] if taken < term.count else []
    margins = [_margin(exact, others, side, (1 - level) / 2) for side in (1, -1)]
    return margins[0], margins[1]


def noise_interval(
    value: float,
    weights: Floats,
    tail: Callable[[Floats], Floats],
    deviation: float,
    level: float,
    unit: float = 1.0,
    downwards: Callable[[Floats], Floats] | None = None,
) -> tuple[float, float] | None:
    """Return the interval of a sum whose terms have the same noise, on multiples of a unit, times their weights.

    `tail` is P[noise >= x units], and `downwards` P[-noise >= x units] where that differs; `deviation` is that of the
    noise in units. None where there are no terms, or the level is too high.
    """
    signed = weights if downwards is not None else np.abs(weights)
    sizes, counts = np.unique(signed[signed != 0], return_counts=True)
    if not len(sizes) or level > HIGHEST_LEVEL:
        return None
    law = ErrorLaw.of_noise(tail, deviation, unit, downwards)
    largest_first = np.argsort(-np.abs(sizes), kind="stable")
    pairs = zip(sizes[largest_first].tolist(), counts[largest_first].tolist(), strict=True)
    terms = [Term(law, size, count) for size, count in pairs]
    below, above = sum_margins(terms, level)
    return value - below, value + above


def _margin(terms: Sequence[Term], others: Sequence[Term], side: int, tail: float) -> float:
    """Return the least u found with P[sum of errors > u] <= tail, where the sum of `others` is normal."""
    start, step, masses = _convolved(terms, side)
    moments = [term.moments(side) for term in others]
    mean, deviation = sum(mean for mean, _ in moments), math.sqrt(sum(variance for _, variance in moments))
    if deviation == 0:
        beyond = 1 - np.cumsum(masses)
        place = int(np.argmax(beyond <= tail - _ROUNDING)) if beyond[-1] <= tail - _ROUNDING else len(masses) - 1
        return start + place * step + mean
    from scipy.special import ndtr

    likely = np.flatnonzero(masses > 1e-15)
    points, masses = start + likely * step + mean, masses[likely]
    missing, low, high = 1 - masses.sum(), points[0] - 40 * deviation, points[-1] + 40 * deviation
    for _ in range(60):
        middle = (low + high) / 2
        beyond = missing + masses @ ndtr((points - middle) / deviation)
        low, high = (low, middle) if beyond <= tail - _ROUNDING else (middle, high)
    steps = {term.step for term in (*terms, *others)}
    if max(steps) - min(steps) <= _WHOLE * max(steps):  # the sum is a multiple of one step: a continuity correction
        return float(math.ceil(high / max(steps) - 0.5) * max(steps))
    return float(high)


def _convolved(terms: Sequence[Term], side: int) -> tuple[float, float, Floats]:
    """Return the first point, the step and the masses of a sum of errors."""
    if not terms:
        return 0.0, 1.0, np.ones(1)
    step, start, parts = terms[0].step, 0, []
    if any(abs(term.step - step) > _WHOLE * step for term in terms):
        count = sum(term.count for term in terms)
        step = math.sqrt(sum(term.count * term.spread**2 for term in terms)) / (_GRID * count)
    for term in terms:
        masses = term.masses(side)
        places = np.arange(len(masses), dtype=np.int64) + term.law.first
        if abs(term.step - step) > _WHOLE * step:
            places = np.ceil(places * (term.step / step) - _WHOLE).astype(np.int64)
        parts.append((np.bincount(places - places[0], masses), term.count))
        start += term.count * int(places[0])
    length = 1 + sum(count * (len(law) - 1) for law, count in parts)
    size = 1 << (length - 1).bit_length()
    product = np.ones(size // 2 + 1, np.complex128)
    for law, count in parts:
        product *= np.fft.rfft(law, size) ** count
    return start * step, step, np.maximum(np.fft.irfft(product, size)[:length], 0.0)
