"""Sums of coordinates with different ranges, each with its own noise: elliptical Gaussian and parallelotope Laplace.

A coordinate whose range is wide needs much noise, a narrow one little. Chapter 4 of Lebeda's thesis ("Differentially
Private Release of Sparse and Skewed Vectors", 2023, Algorithms 15 and 16) splits one budget over the coordinates so
that the p-th moment of the total error is least. With Delta_i the most that one unit changes sum i, the noise on it is

    Gaussian: proportional to Delta_i^(2/(p+2))   (Lemma 4.8), error Gamma((p+1)/2) / (rho^(p/2) sqrt(pi)) |Delta|^p,
              with |.| the norm of order 2p/(p+2);
    Laplace:  proportional to Delta_i^(1/(p+1))   (Lemma 4.11), error Gamma(p+1) / epsilon^p |Delta|^p,
              with |.| the norm of order p/(p+1).

Here the split is in the grids: each coordinate counts in steps proportional to its noise, so that the noise has the
same scale in steps for all, which is the proof of Lemma 4.6 turned into whole numbers.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dpsieve import validate
from dpsieve.accounting.gaussian import positive_delta
from dpsieve.accounting.spends import Approximate, DiscreteLaplace, Spend
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import ball, lower, upper
from dpsieve.numbers.norm_noise import LEVEL, NoisySums, as_tuple, moment
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.registry import register
from dpsieve.randomness.noise import discrete_laplace
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import Neighbours

NOISES = ("gaussian", "laplace")
SHAPES = ("best", "equal", "proportional")
_LARGEST_CHANGE = 2**40
_COARSE, _MOST_SPENDS = 64, 32


@register("scaled_noise")
@dataclass(frozen=True, repr=False)
class ScaledNoise(NoisySums):
    """Noise on sums of whole numbers, of which one unit changes sum i by at most `changes[i]` steps, all at once.

    Proof of privacy. Let c be the changes, and X, X' the sums of neighbours, so |X_i - X'_i| <= c_i. With Gaussian
    noise of scale sigma the l2 distance is at most sqrt(sum of c_i^2), and the head of `norm_noise` applies. With
    discrete Laplace noise of scale s, P[X_i + noise = z] = (1 - r)/(1 + r) r^|z - X_i| with r = e^(-1/s) changes by a
    factor of at most e^(c_i / s), and all together by e^(sum of c_i / s) <= e^epsilon. Steps and offsets are applied
    afterwards.

    Attributes:
        changes: in steps.
        noise: 'gaussian' or 'laplace'.
        epsilon, delta, scale, steps, offsets, neighbours, unit: see `NoisySums`.
    """

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "changes": as_tuple, "steps": as_tuple, "offsets": as_tuple
    }  # fmt: skip

    epsilon: float
    delta: float
    changes: tuple[int, ...]
    scale: float
    steps: tuple[float, ...]
    offsets: tuple[float, ...] = ()
    _: KW_ONLY
    noise: str
    neighbours: Neighbours
    unit: str = "one row"

    def __post_init__(self) -> None:
        if not isinstance(self.noise, str) or self.noise not in NOISES:
            raise InvalidValue(f"noise is not known. Choose one of {', '.join(NOISES)}.")
        self._check_shared()
        validate.store(self, changes=self._checked_changes())
        if self.noise == "gaussian":
            positive_delta(self.delta)
        else:
            validate.positive_epsilon(self.epsilon)

    def _checked_changes(self) -> tuple[int, ...]:
        given: Any = self.changes
        if not isinstance(given, tuple | list) or not set(map(type, given)) <= {int}:
            raise InvalidType("changes must be a tuple of whole numbers. Pass how far a unit moves each sum, in steps.")
        if len(given) != len(self.steps) or not 0 <= min(given) <= max(given) <= _LARGEST_CHANGE or not max(given):
            raise InvalidValue("changes must be from 0 to 2^40, as many as steps, and not all zero.")
        if any(change and not step for change, step in zip(given, self.steps, strict=True)):
            raise InvalidValue("steps is zero where changes is not. Pass what one step is worth.")
        return tuple(given)

    def __repr__(self) -> str:
        return f"<scaled noise, {self.size:,} sums, {self.noise} noise of {self.scale:.4g} steps, {self.guarantee}>"

    @cached_property
    def distance(self) -> float:
        """The l2 distance between the sums of neighbours, in steps, rounded up."""
        return l2_distance(self.changes)

    @property
    def mu(self) -> float:
        """The mu of Gaussian privacy, rounded up; Laplace noise has none."""
        if self.noise == "laplace":
            raise InvalidValue("noise='laplace' has no mu. Use Gaussian noise, or look at epsilon and rho.")
        return super().mu

    @property
    def rho(self) -> float:
        """The rho of zero-concentrated privacy, rounded up; what is epsilon-private has epsilon^2 / 2."""
        return upper(lambda: ball(self.epsilon) ** 2 / 2) if self.noise == "laplace" else super().rho

    def renyi(self, order: float) -> float:
        """Return the epsilon of Renyi privacy of an order above 1, rounded up."""
        if self.noise == "gaussian":
            return super().renyi(order)
        order = validate.between("order", order, math.nextafter(1.0, 2.0), 1e9, hint="Pass an order such as 8.0.")
        return min(self.epsilon, upper(lambda: ball(self.epsilon) ** 2 / 2 * ball(order)))

    def certify(self) -> Certificate:
        """Return the certificate: by exact fractions for Laplace noise, in balls for Gaussian noise."""
        if self.noise == "gaussian":
            return super().certify()
        kept = Fraction(self.scale) * Fraction(self.epsilon) >= sum(self.changes)
        return formula(self.guarantee, 0.0 if kept else 1.0, "balls", "discrete Laplace noise on whole numbers")

    def spends(self) -> tuple[Spend, ...]:
        """Return the curve of the noise: one Gaussian, or discrete Laplace noise on coarser grids.

        A two-sided geometric variable of ratio r is the difference of two geometric ones, each of them k times a
        geometric variable of ratio r^k plus an independent remainder below k. So noise of scale s on a change of c
        steps is post-processing of noise of scale s/k on ceil(c/k) steps, a curve that is cheap to compose.
        """
        if self.noise == "gaussian":
            return super().spends()
        alike = Counter(change for change in self.changes if change)
        if len(alike) > _MOST_SPENDS:
            return (Approximate(self.epsilon),)
        return tuple(self._coarser(change, count) for change, count in sorted(alike.items()))

    def _coarser(self, change: int, count: int) -> Spend:
        k = max(1, math.ceil(change / _COARSE)) if change > _COARSE**2 else 1
        return DiscreteLaplace(lower(lambda: ball(self.scale) / k), -(-change // k), count)

    def _noise(self, source: Source) -> Ints:
        if self.noise == "gaussian":
            return super()._noise(source)
        return discrete_laplace(self.scale, len(self.steps), source=source)

    @property
    def _deviation(self) -> float:
        if self.noise == "gaussian":
            return super()._deviation
        return math.sqrt(2 * math.exp(-1 / self.scale)) / -math.expm1(-1 / self.scale)

    @property
    def _half_width(self) -> float:
        return super()._half_width if self.noise == "gaussian" else math.ceil(-math.log1p(-LEVEL) * self.scale)

    def _moment(self, p: float) -> float:
        return super()._moment(p) if self.noise == "gaussian" else math.gamma(p + 1)


def l2_distance(changes: tuple[int, ...]) -> float:
    """Return the l2 norm of whole numbers, rounded up.

    >>> l2_distance((3, 4))
    5.0
    """
    squares = sum(change * change for change in changes)
    return upper(lambda: ball(squares).sqrt())


def noise_shape(widths: Floats, noise: str, shape: str, p: float) -> Floats:
    """Return how much noise each coordinate gets beside the others; 0 where its width is 0.

    'best' has the least p-th moment of the error, 'equal' is the plain mechanism, 'proportional' an ellipsoid with the
    proportions of the widths.

    >>> noise_shape(np.array([4.0, 1.0]), "gaussian", "best", 2.0).tolist()
    [1.0, 0.5]
    """
    if not isinstance(shape, str) or shape not in SHAPES:
        raise InvalidValue(f"shape is not known. Choose one of {', '.join(SHAPES)}.")
    p = moment(p)
    best = 2 / (p + 2) if noise == "gaussian" else 1 / (p + 1)
    power = {"best": best, "equal": 0.0, "proportional": 1.0}[shape]
    return np.where(widths > 0, (widths / widths.max()) ** power, 0.0)
