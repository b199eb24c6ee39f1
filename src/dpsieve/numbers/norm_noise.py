"""Sums of whole numbers with one noise on all of them: the base of private sums and means.

Every row is a vector of whole numbers, on a grid of its own for each coordinate: coordinate i counts in units of
`steps[i]`. Their sums are exact, noise of one scale is added to each, and only then does anything become a real number:
`offsets[i] + steps[i] * (sum + noise)`. So the shape of the noise lies in the steps alone, and its privacy in whole
numbers alone: how far two neighbours' sums can be apart, and the scale.

Gaussian noise is a real Gaussian rounded to the nearest whole number. Added to whole numbers that is post-processing of
the Gaussian mechanism, whose guarantees all hold: with l2 distance s and scale sigma it is mu-Gaussian private for
mu = s/sigma, (s^2 / (2 sigma^2))-zCDP, Renyi private of every order, and (epsilon, delta)-private by the exact formula
of Balle and Wang (`privacy.curves.gaussian`).
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from dpsieve import validate
from dpsieve.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_sigma, positive_delta
from dpsieve.accounting.spends import Gaussian, Spend
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import Ball, ball, lower, upper
from dpsieve.numbers.estimate import Estimating
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.registry import register
from dpsieve.randomness.noise import LARGEST_SCALE, rounded_gaussian
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import Neighbours

SMALLEST_SUM_SCALE = 2.0  # from here on the moments of rounded noise are those of real noise, and 1/12 in the variance
LEVEL = 0.95  # of the intervals that are published
DELTA_OF_RHO = 1e-6  # at which a zCDP budget is told as (epsilon, delta), unless the caller chooses
_MOST_SUMS = 10**6
_ROOM = 1 - 2.0**-40  # of a budget: what is left out covers roundings, which would else break it by a last digit
NORMAL_95 = 1.959963984540054  # P[|N(0, 1)| <= this] = 0.95


class NoisySums(Estimating):
    """Noise of one scale on sums of whole numbers; see the head of this module.

    Attributes:
        epsilon, delta: what is promised.
        scale: of the noise, in steps: sigma, or the scale of a Laplace distribution.
        steps: what one step is worth in each coordinate; 0 where a coordinate is public and gets no noise.
        offsets: public numbers that are added at the end; none where all are 0.
        neighbours: for which the distance of neighbours was measured.
    """

    epsilon: float
    delta: float
    scale: float
    steps: tuple[float, ...]
    offsets: tuple[float, ...]
    neighbours: Neighbours
    unit: str

    def _check_shared(self) -> None:
        """Check and store the fields that all kinds share."""
        hint = "Pass a noise scale in steps, from 2 to 10^9."
        scale = validate.between("scale", self.scale, SMALLEST_SUM_SCALE, LARGEST_SCALE, hint=hint)
        steps, offsets = reals("steps", self.steps), reals("offsets", self.offsets)
        if not steps or min(steps) < 0 or max(steps) == 0:
            raise InvalidValue("steps must not be negative, nor all zero. Pass what one step is worth in each sum.")
        if offsets and len(offsets) != len(steps):
            raise InvalidValue("offsets has another length than steps. Pass one for each sum, or none.")
        promise = self.guarantee
        validate.store(self, epsilon=promise.epsilon, delta=promise.delta, neighbours=promise.neighbours)
        validate.store(self, scale=scale, steps=steps, offsets=offsets, unit=promise.unit)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to one privacy unit."""
        return Guarantee(self.epsilon, self.delta, self.neighbours, self.unit)

    @property
    def size(self) -> int:
        """How many sums there are."""
        return len(self.steps)

    @property
    @abstractmethod
    def distance(self) -> float:
        """The l2 distance between the sums of neighbours, in steps, rounded up."""

    @property
    def mu(self) -> float:
        """The mu of Gaussian privacy (Dong, Roth and Su 2022), rounded up."""
        return upper(self._mu)

    @property
    def rho(self) -> float:
        """The rho of zero-concentrated privacy (Bun and Steinke 2016), rounded up."""
        return upper(lambda: self._mu() ** 2 / 2)

    def renyi(self, order: float) -> float:
        """Return the epsilon of Renyi privacy (Mironov 2017) of an order above 1, rounded up."""
        hint = "Pass an order above 1, such as order=8.0."
        order = validate.between("order", order, math.nextafter(1.0, 2.0), 1e9, hint=hint)
        return upper(lambda: self._mu() ** 2 / 2 * ball(order))

    def _mu(self) -> Ball:
        return ball(self.distance) / ball(self.scale)

    def certify(self) -> Certificate:
        """Return the certificate, from the scale and the distance of neighbours alone."""
        found = gaussian_delta(self.scale, self.epsilon, self.distance)
        return formula(self.guarantee, found, "balls", "the exact analysis of Gaussian noise on whole numbers")

    def spends(self) -> tuple[Spend, ...]:
        """Return the curve of the noise."""
        return (Gaussian(self.scale, self.distance),)

    def draw(self, sums: Ints, source: Source) -> Floats:
        """Return the sums with noise, as real numbers.

        Sums and noise are 64-bit numbers that wrap around. A sum modulo 2^64 is post-processing of the sum, so privacy
        does not depend on that.
        """
        return self.real(np.asarray(sums, np.int64) + self._noise(source))

    def real(self, whole: Ints | Floats) -> Floats:
        """Return the real numbers that whole numbers of steps stand for."""
        return np.asarray(whole * np.array(self.steps) + (np.array(self.offsets) if self.offsets else 0.0))

    def _noise(self, source: Source) -> Ints:
        return rounded_gaussian(self.scale, len(self.steps), source=source)

    @property
    def deviations(self) -> Floats:
        """The standard deviation of the noise on each sum."""
        return np.array(self.steps) * self._deviation

    @property
    def _deviation(self) -> float:
        return math.hypot(self.scale, 12**-0.5)  # rounding adds the variance of an even spread

    @property
    def _half_width(self) -> float:
        """A number of steps that the noise stays within, at LEVEL."""
        return math.ceil(NORMAL_95 * self.scale)

    def columns(self, values: Floats) -> dict[str, Floats]:
        """Return the standard deviation of the noise, and the 95 % interval around each value."""
        half = np.array(self.steps) * self._half_width
        return {"deviation": self.deviations, "low": values - half, "high": values + half}

    def possible(self, values: Floats) -> bool:
        """Return whether each value is a whole number of steps from its offset, up to the rounding of floats."""
        steps, offsets = np.array(self.steps), np.array(self.offsets or (0.0,))
        whole = np.rint((values - offsets) / np.where(steps > 0, steps, 1.0))
        rounding = 2.0**-50 * (np.abs(values) + np.abs(offsets))
        return bool((np.abs(self.real(whole) - values) <= rounding).all())

    def expected_error(self, p: float = 2.0) -> float:
        """Return the expected sum over coordinates of |noise|^p: the p-th moment of the error, for p > 0.

        It is the moment of real noise (Lemma 4.3 of the thesis). Rounding to whole steps changes it by a share of
        about scale^-min(p + 1, 2), nothing at the scales that `private_sum` takes.
        """
        p = moment(p)
        with np.errstate(over="ignore"):  # a moment too large for a float is infinite
            return self._moment(p) * float(((np.array(self.steps) * self.scale) ** p).sum())

    def _moment(self, p: float) -> float:
        """The p-th absolute moment of noise of scale 1."""
        return 2 ** (p / 2) * math.gamma((p + 1) / 2) / math.sqrt(math.pi)


def reals(name: str, values: Any) -> tuple[float, ...]:
    """Return public numbers as a tuple of floats; anything else is refused."""
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(values, tuple | list) or not set(map(type, values)) <= {int, float} or len(values) > _MOST_SUMS:
        raise InvalidType(f"{name} must be a tuple of numbers. Pass one for each sum.")
    try:
        plain = tuple(map(float, values))
    except OverflowError:
        raise InvalidValue(f"{name} holds a number too large for a float. Pass smaller ones.") from None
    if not all(map(math.isfinite, plain)):
        raise InvalidValue(f"{name} holds a number that is not finite. Pass finite ones.")
    return plain


def moment(p: object) -> float:
    """Return the p of a p-th moment."""
    return validate.between("p", p, 1e-3, 100.0, hint="Pass a moment such as p=2 (squared error) or p=1.")


def as_tuple(values: Any) -> Any:
    """Return a list that was read from JSON as a tuple; anything else is left to be refused."""
    return tuple(values) if isinstance(values, list) else values


@register("norm_noise")
@dataclass(frozen=True, repr=False)
class NormNoise(NoisySums):
    """Gaussian noise on sums of whole vectors whose sums differ by at most `sensitivity` in l2 norm.

    Where each unit adds one vector of l2 norm at most S, the sensitivity is S for 'add_remove', 2 S for 'replace', and
    sqrt(2) S for 'replace' where no entry is negative: then |a - b|^2 = |a|^2 + |b|^2 - 2 a.b <= 2 S^2. Who makes the
    vectors checks their norms in whole numbers. Then the head of `norm_noise` is the proof of privacy.

    >>> made = norm_noise(1000.0, (0.5, 0.25), rho=0.5, neighbours="add_remove")
    >>> made.scale, made.mu, made.rho
    (1000.0..., 0.99..., 0.49...)
    """

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"steps": as_tuple, "offsets": as_tuple}
    noise: ClassVar[str] = "gaussian"

    epsilon: float
    delta: float
    sensitivity: float
    scale: float
    steps: tuple[float, ...]
    offsets: tuple[float, ...] = ()
    _: KW_ONLY
    neighbours: Neighbours
    unit: str = "one row"

    def __post_init__(self) -> None:
        self._check_shared()
        hint = "Pass the l2 distance of neighbours, in steps."
        validate.store(self, sensitivity=validate.positive("sensitivity", self.sensitivity, hint=hint))
        positive_delta(self.delta)

    def __repr__(self) -> str:
        return f"<norm noise, {self.size:,} sums, gaussian noise of {self.scale:.4g} steps, {self.guarantee}>"

    @property
    def distance(self) -> float:
        """The sensitivity."""
        return self.sensitivity


def norm_noise(
    sensitivity: float,
    steps: Any,
    *,
    rho: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    neighbours: Neighbours,
    offsets: Any = (),
    unit: str = "one row",
) -> NormNoise:
    """Return Gaussian noise for whole vectors with this l2 sensitivity, of the least scale that the budget allows.

    The budget is rho, or epsilon and delta; see `budget_mu`.
    """
    hint = "Pass the l2 distance of neighbours, in steps."
    sensitivity, mu = validate.positive("sensitivity", sensitivity, hint=hint), budget_mu(rho, epsilon, delta)
    scale = max(SMALLEST_SUM_SCALE, upper(lambda: ball(sensitivity) / ball(mu)))
    promise = promised(scale, sensitivity, epsilon, delta)
    return NormNoise(*promise, sensitivity, scale, steps, offsets, neighbours=neighbours, unit=unit)


def budget_mu(rho: float | None, epsilon: float | None, delta: float | None) -> float:
    """Return the mu of Gaussian privacy that a budget buys: rho (zCDP), or epsilon and delta; a bit below the most.

    >>> round(budget_mu(0.5, None, None), 6), round(1 / budget_mu(None, 1.0, 1e-5), 4)
    (1.0, 3.7306)
    """
    if rho is not None:
        rho = validate.between("rho", rho, 1e-12, 1e4, hint="Pass a zCDP budget such as rho=0.1.")
        return _ROOM * lower(lambda: (ball(rho) * 2).sqrt())
    if epsilon is None or delta is None:
        raise InvalidValue("a budget for Gaussian noise is missing. Pass rho, or epsilon and delta.")
    epsilon, delta = validate.positive_epsilon(epsilon), positive_delta(delta)
    return _ROOM * lower(lambda: 1 / ball(gaussian_sigma(epsilon, delta)))


def promised(scale: float, distance: float, epsilon: float | None, delta: float | None) -> tuple[float, float]:
    """Return the (epsilon, delta) of a budget; where it is a rho, the epsilon of the noise at delta, or at 10^-6."""
    if epsilon is not None and delta is not None:
        return epsilon, delta
    delta = positive_delta(DELTA_OF_RHO if delta is None else delta)
    found = gaussian_epsilon(scale, delta, distance)
    if not math.isfinite(found):
        raise InvalidValue(f"rho has no epsilon up to 500 at delta={delta:g}. Pass a smaller rho, or a larger delta.")
    return found, delta


def fits(squares: int, mu: float, scale: float) -> bool:
    """Return whether sums whose squared l2 distance is `squares` are within a budget of mu at this scale, exactly."""
    return squares <= (Fraction(mu) * Fraction(scale)) ** 2
