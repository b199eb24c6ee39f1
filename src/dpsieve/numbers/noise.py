"""Noise of one scale on sums of whole numbers: the mechanisms of private sums and means.

Every row is a vector of whole numbers; coordinate i counts in units of `steps[i]`. Their sums are exact, noise of one
scale is added to each, and only then does anything become a real number: `offsets[i] + steps[i] * (sum + noise)`. So
the shape of the noise is in the steps alone, and its privacy depends on two things only: the scale, and the distance
between the sums of neighbours, in whole numbers. Gaussian noise is a real Gaussian rounded to the nearest whole number,
which is post-processing of the Gaussian mechanism. How one budget is divided among coordinates of different ranges
(chapter 4 of Lebeda's thesis, Algorithms 15 and 16): docs/background/means.md#coordinates-with-different-ranges.
"""

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from dpsieve import validate
from dpsieve.accounting.curves import gaussian_delta, gaussian_epsilon, gaussian_sigma, positive_delta
from dpsieve.accounting.spends import Approximate, DiscreteLaplace, Gaussian, Spend
from dpsieve.codec import register
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import ball, lower, upper
from dpsieve.numbers.estimate import Estimating
from dpsieve.privacy.certificate import Certificate, formula, laplace
from dpsieve.privacy.guarantee import Unit
from dpsieve.randomness.noise import LARGEST_SCALE, discrete_laplace, rounded_gaussian
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import Delta, Epsilon, Neighbours, Relation, is_between, is_choice

LawName = Literal["gaussian", "laplace"]
LawChoice = LawName | Literal["auto"]
SMALLEST_SUM_SCALE = 2.0  # from here on rounded noise has the moments of real noise, and 1/12 more variance
DELTA_OF_RHO = 1e-6  # at which the epsilon of a zCDP budget is stated by default
NORMAL_95 = 1.959963984540054  # P[|N(0, 1)| <= this] = 0.95
_MOST_SUMS = 10**6
_LARGEST_CHANGE = 2**40
_MARGIN = 1 - 2.0**-40  # of a budget: covers roundings, which could otherwise exceed it by a last digit
_COARSE, _MOST_SPENDS = 64, 32


class Law(NamedTuple):
    """A distribution of noise: how to draw it, its deviation and 95 % half-width at a scale, its moments at scale 1."""

    draw: Callable[..., Ints]
    deviation: Callable[[float], float]
    half_width: Callable[[float], float]
    moment: Callable[[float], float]


def gaussian_moment(p: float) -> float:
    """Return the p-th absolute moment of a standard Gaussian."""
    return 2 ** (p / 2) * math.gamma((p + 1) / 2) / math.sqrt(math.pi)


LAWS: dict[LawName, Law] = {
    "gaussian": Law(
        rounded_gaussian,
        lambda scale: math.hypot(scale, 12**-0.5),  # rounding adds the variance of a uniform distribution
        lambda scale: math.ceil(NORMAL_95 * scale),
        gaussian_moment,
    ),
    "laplace": Law(
        discrete_laplace,
        lambda scale: math.sqrt(2 * math.exp(-1 / scale)) / -math.expm1(-1 / scale),
        lambda scale: math.ceil(-math.log1p(-0.95) * scale),
        lambda p: math.gamma(p + 1),
    ),
}


def check_reals(values: Any, name: str) -> tuple[float, ...]:
    """Return public numbers as a tuple of floats."""
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(values, tuple | list) or not set(map(type, values)) <= {int, float} or len(values) > _MOST_SUMS:
        raise InvalidType(f"{name} must be a tuple of numbers. Pass one per sum.")
    try:
        numbers = tuple(map(float, values))
    except OverflowError:
        raise InvalidValue(f"{name} holds a number too large for a float. Pass smaller ones.") from None
    if not all(map(math.isfinite, numbers)):
        raise InvalidValue(f"{name} holds a number that is not finite. Pass finite ones.")
    return numbers


Reals = Annotated[tuple[float, ...], check_reals]
_SCALE = "Pass a noise scale in steps, from 2 to 10^9."
SumScale = Annotated[float, is_between(SMALLEST_SUM_SCALE, LARGEST_SCALE, _SCALE)]


class NoisySums(Estimating):
    """Noise of one scale on sums of whole numbers; see the head of this module.

    Attributes:
        epsilon, delta: the guarantee.
        scale: of the noise, in steps: sigma, or the scale of a Laplace distribution.
        steps: the value of one step in each coordinate; 0 where a coordinate is public and gets no noise.
        offsets: public numbers added at the end; empty where all are 0.
        neighbours: the relation for which the distance was computed.
        noise: a name of `LAWS`.
    """

    epsilon: float
    delta: float
    scale: float
    steps: tuple[float, ...]
    offsets: tuple[float, ...]
    neighbours: Neighbours
    unit: str
    noise: LawName

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.steps or min(self.steps) < 0 or max(self.steps) == 0:
            raise InvalidValue("steps must not be negative, nor all zero. Pass the value of one step in each sum.")
        if self.offsets and len(self.offsets) != len(self.steps):
            raise InvalidValue("offsets and steps differ in length. Pass one offset per sum, or none.")
        if self.noise == "gaussian":
            positive_delta(self.delta)
        else:
            validate.positive_epsilon(self.epsilon)

    @property
    def size(self) -> int:
        return len(self.steps)

    @property
    @abstractmethod
    def distance(self) -> float:
        """The l2 distance between the sums of neighbours, in steps, rounded up."""

    @property
    def rho(self) -> float:
        """The rho of zero-concentrated privacy (Bun and Steinke 2016), rounded up."""
        return upper(lambda: (ball(self.distance) / ball(self.scale)) ** 2 / 2)

    def certify(self) -> Certificate:
        """Return the certificate, from the scale and the distance of neighbours alone."""
        worst = gaussian_delta(self.scale, self.epsilon, self.distance)
        return formula(self.guarantee, worst, "balls", "the exact analysis of Gaussian noise on whole numbers")

    def spends(self) -> tuple[Spend, ...]:
        return (Gaussian(self.scale, self.distance),)

    def draw(self, sums: Ints, source: Source) -> Floats:
        """Return the sums with noise, as real numbers.

        Sums and noise are 64-bit numbers that wrap around. A sum modulo 2^64 is post-processing of the sum, so privacy
        does not depend on that.
        """
        noise = LAWS[self.noise].draw(self.scale, len(self.steps), source=source)
        return self.real(np.asarray(sums, np.int64) + noise)

    def real(self, whole: Ints | Floats) -> Floats:
        """Return whole numbers of steps as real numbers."""
        return np.asarray(whole * np.array(self.steps) + (np.array(self.offsets) if self.offsets else 0.0))

    @property
    def deviations(self) -> Floats:
        """The standard deviation of the noise on each sum."""
        return np.array(self.steps) * LAWS[self.noise].deviation(self.scale)

    @property
    def _half_width(self) -> float:
        """Half of a 95 % interval, in steps."""
        return LAWS[self.noise].half_width(self.scale)

    def columns(self, values: Floats) -> dict[str, Floats]:
        """Return the standard deviation of the noise, and the 95 % interval around each value."""
        half = np.array(self.steps) * self._half_width
        return {"deviation": self.deviations, "low": values - half, "high": values + half}

    def possible(self, values: Floats) -> bool:
        """Return whether each value is a whole number of steps from its offset, up to the rounding of floats."""
        steps, offsets = np.array(self.steps), np.array(self.offsets or (0.0,))
        multiples = np.rint((values - offsets) / np.where(steps > 0, steps, 1.0))
        rounding = 2.0**-50 * (np.abs(values) + np.abs(offsets))
        return bool((np.abs(self.real(multiples) - values) <= rounding).all())

    def expected_error(self, p: float = 2.0) -> float:
        """Return the expected sum over coordinates of |noise|^p: the p-th moment of the error, for p > 0.

        It is the moment of real noise (Lemma 4.3 of the thesis). Rounding to whole steps changes it by a share of
        about scale^-min(p + 1, 2), which is negligible at the scales of `box.best_noise`.
        """
        p = check_moment(p)
        with np.errstate(over="ignore"):  # a moment too large for a float is infinite
            return LAWS[self.noise].moment(p) * float(((np.array(self.steps) * self.scale) ** p).sum())


@register("scaled_noise")
@dataclass(frozen=True, repr=False)
class ScaledNoise(NoisySums):
    """Noise on sums of whole numbers, where one unit changes every sum i by at most `changes[i]` steps at once.

    With Gaussian noise the l2 distance of neighbours is at most sqrt(sum of c_i^2), for the changes c. With discrete
    Laplace noise of scale s all probabilities together change by a factor of at most e^(sum of c_i / s) <= e^epsilon.
    Proof: docs/background/means.md#sums.

    Attributes:
        changes: in steps.
        noise: 'gaussian' or 'laplace'.
        epsilon, delta, scale, steps, offsets, neighbours, unit: see `NoisySums`.
    """

    epsilon: Epsilon
    delta: Delta
    changes: tuple[int, ...]
    scale: SumScale
    steps: Reals
    offsets: Reals = ()
    _: KW_ONLY
    noise: Annotated[LawName, is_choice(*LAWS)]
    neighbours: Relation
    unit: Unit = "one row"

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.changes
        if not isinstance(given, tuple | list) or not set(map(type, given)) <= {int}:
            raise InvalidType("changes must be a tuple of whole numbers: how far a unit moves each sum, in steps.")
        if len(given) != len(self.steps) or not 0 <= min(given) <= max(given) <= _LARGEST_CHANGE or not max(given):
            raise InvalidValue("changes must be from 0 to 2^40, as many as steps, and not all zero.")
        if any(change and not step for change, step in zip(given, self.steps, strict=True)):
            raise InvalidValue("steps is zero where changes is not. Pass the value of one step.")
        validate.store(self, changes=tuple(given))

    def __repr__(self) -> str:
        return f"<scaled noise, {self.size:,} sums, {self.noise} noise of {self.scale:.4g} steps, {self.guarantee}>"

    @cached_property
    def distance(self) -> float:
        return l2_distance(self.changes)

    @property
    def rho(self) -> float:
        """The rho of zero-concentrated privacy, rounded up; pure epsilon implies epsilon^2 / 2."""
        return upper(lambda: ball(self.epsilon) ** 2 / 2) if self.noise == "laplace" else super().rho

    def certify(self) -> Certificate:
        """Return the certificate: by exact fractions for Laplace noise, in balls for Gaussian noise."""
        if self.noise == "gaussian":
            return super().certify()
        return laplace(self.guarantee, self.scale, sum(self.changes), "discrete Laplace noise on whole numbers")

    def spends(self) -> tuple[Spend, ...]:
        """Return the curve of the noise: one Gaussian, or discrete Laplace noise on coarser grids.

        Noise of scale s on a change of c steps is post-processing of noise of scale s/k on ceil(c/k) steps, a curve
        that is cheap to compose: docs/background/means.md#sums.
        """
        if self.noise == "gaussian":
            return super().spends()
        counts = Counter(change for change in self.changes if change)
        if len(counts) > _MOST_SPENDS:
            return (Approximate(self.epsilon),)
        return tuple(self._coarser(change, count) for change, count in sorted(counts.items()))

    def _coarser(self, change: int, count: int) -> Spend:
        k = max(1, math.ceil(change / _COARSE)) if change > _COARSE**2 else 1
        return DiscreteLaplace(lower(lambda: ball(self.scale) / k), -(-change // k), count)


def check_moment(p: object) -> float:
    """Return the p of a p-th moment."""
    return validate.between("p", p, 1e-3, 100.0, hint="Pass a moment such as p=2 (squared error) or p=1.")


def l2_distance(changes: tuple[int, ...]) -> float:
    """Return the l2 norm of whole numbers, rounded up.

    >>> l2_distance((3, 4))
    5.0
    """
    squares = sum(change * change for change in changes)
    return upper(lambda: ball(squares).sqrt())


def budget_mu(rho: float | None, epsilon: float | None, delta: float | None) -> float:
    """Return the mu of Gaussian privacy for a budget of rho (zCDP), or of epsilon and delta; a bit below the most.

    >>> round(budget_mu(0.5, None, None), 6), round(1 / budget_mu(None, 1.0, 1e-5), 4)
    (1.0, 3.7306)
    """
    if rho is not None:
        rho = validate.between("rho", rho, 1e-12, 1e4, hint="Pass a zCDP budget such as rho=0.1.")
        return _MARGIN * lower(lambda: (ball(rho) * 2).sqrt())
    if epsilon is None or delta is None:
        raise InvalidValue("a budget for Gaussian noise is missing. Pass rho, or epsilon and delta.")
    epsilon, delta = validate.positive_epsilon(epsilon), positive_delta(delta)
    return _MARGIN * lower(lambda: 1 / ball(gaussian_sigma(epsilon, delta)))


def gaussian_promise(scale: float, distance: float, epsilon: float | None, delta: float | None) -> tuple[float, float]:
    """Return the (epsilon, delta) of a budget; for a rho, the epsilon of the noise at delta, or at 10^-6."""
    if epsilon is not None and delta is not None:
        return epsilon, delta
    delta = positive_delta(DELTA_OF_RHO if delta is None else delta)
    epsilon = gaussian_epsilon(scale, delta, distance)
    if not math.isfinite(epsilon):
        raise InvalidValue(f"rho has no epsilon up to 500 at delta={delta:g}. Pass a smaller rho, or a larger delta.")
    return epsilon, delta
