"""The last step of a private mean: the radius to which rows are clipped, the bias of clipping, and the noise.

With N(t) rows of a norm above t, clipping to the radius C moves a sum by at most the integral of N from C to the widest
norm W. Let K be the target rank of the search for R, and M a noisy count of the rows above R/g. Assumed is that the
tail does not get heavier farther out: N(t) <= K (t/R)^-a for t >= R, with a = log(M/K) / log g. The half-width of the
interval is m + 1.96 sqrt(noise variance + v) + rounding, where m and v are mean and variance of the bias under that
bound; C minimises the squared error of noise and clipping, which counts (m^2 + v) / 4. No interval is stated where a
noisy count beyond C contradicts the assumption: docs/background/means.md#what-the-interval-promises.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import numpy as np

from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.numbers.noise import NORMAL_95, LawName, NoisySums, Reals, SumScale
from dpsieve.privacy.guarantee import Unit
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import Delta, Epsilon, Relation, is_between, is_choice, is_positive

_TIED = 4.0  # at this many times K, the rows just below R are equal rows, not a tail
_COHERENT = 0.5  # the share of the clipped norms that is assumed to point in one direction when a radius is chosen
_POINTS = 600
_SOME = 2.0  # deviations of a count above zero from which rows are taken to exist
JUST_BELOW, BELOW = 31 / 32, 7 / 8
_NUMBERS = "Pass bounds such as low=-1.0 and high=1.0, and a radius, bias and bias_deviation from 0 on."
_End = Annotated[float, is_between(-1e300, 1e300, _NUMBERS)]
_Size = Annotated[float, is_between(0.0, 1e300, _NUMBERS)]


@register("mean_noise")
@dataclass(frozen=True, repr=False)
class MeanNoise(NoisySums):
    """Gaussian noise on sums of whole vectors that differ by at most `sensitivity` in l2 norm between neighbours.

    Where each unit adds one vector of l2 norm at most S, the sensitivity is S for 'add_remove', 2 S for 'replace', and
    sqrt(2) S for 'replace' where no entry is negative: then |a - b|^2 = |a|^2 + |b|^2 - 2 a.b <= 2 S^2. The code that
    makes the vectors checks their norms in whole numbers. Proof of privacy: docs/background/means.md#sums. Values
    are clipped to public bounds at the end, which is post-processing.

    Attributes:
        low, high: the bounds of every coordinate.
        radius: the private norm to which rows were clipped, in the scaled space; 0 where they were clipped to a box.
        bias: how far clipping and rounding move a sum, in steps.
        bias_deviation: the standard deviation of that, in steps.
        stated: whether there is an interval; without one, `low` and `high` of the table are null.
        centres: the private centre of each coordinate, around which rows were clipped: a median of real rows, 0 or 1
            for binary ones. Empty where none was searched for.
        spreads: a private standard deviation per coordinate, that of Gaussian rows with these quantiles;
            sqrt(q (1 - q)) of the rough mean q for binary rows. Empty where none was searched for.
        epsilon, delta, scale, steps, offsets, neighbours, unit: see `NoisySums`.
    """

    noise: ClassVar[LawName] = "gaussian"  # type: ignore[misc]  # a field of others

    epsilon: Epsilon
    delta: Delta
    sensitivity: Annotated[float, is_positive("Pass the l2 distance of neighbours, in steps.")]
    scale: SumScale
    steps: Reals
    offsets: Reals = ()
    _: KW_ONLY
    neighbours: Relation
    unit: Unit = "one row"
    low: _End = -1e300
    high: _End = 1e300
    radius: _Size = 0.0
    bias: _Size = 0.0
    bias_deviation: _Size = 0.0
    stated: Annotated[bool, is_choice(False, True)] = True
    centres: Reals = ()
    spreads: Reals = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise InvalidValue(f"low is not below high. {_NUMBERS}")
        if {len(self.centres), len(self.spreads)} - {0, self.size} or min(self.spreads, default=0.0) < 0:
            raise InvalidValue("centres and spreads must have one number per coordinate, and no negative spread.")

    def __repr__(self) -> str:
        return f"<mean noise, {self.size:,} means, radius {self.radius:.4g}, {self.guarantee}>"

    @property
    def distance(self) -> float:
        return self.sensitivity

    def draw(self, sums: Ints, source: Source) -> Floats:
        """Return the means with noise, within the bounds."""
        return np.clip(super().draw(sums, source), self.low, self.high)

    def columns(self, values: Floats) -> dict[str, Floats]:
        """Return the deviation of the noise, a 95 % interval for the mean of the rows, and centres and spreads."""
        half = np.array(self.steps) * self._half_width if self.stated else math.nan
        low, high = np.maximum(values - half, self.low), np.minimum(values + half, self.high)
        columns = {"deviation": self.deviations, "low": low, "high": high}
        estimates = {"centre": self.centres, "spread": self.spreads}
        return columns | {name: np.array(numbers) for name, numbers in estimates.items() if numbers}

    @property
    def _half_width(self) -> float:
        return self.bias + math.ceil(NORMAL_95 * math.hypot(self.scale, self.bias_deviation))

    def possible(self, values: Floats) -> bool:
        """Return whether values are within the bounds, and on the grid where they are not at a bound."""
        inside = (values > self.low) & (values < self.high)
        if not ((values >= self.low) & (values <= self.high)).all():
            return False
        # Any point of the grid replaces a value at a bound.
        return super().possible(np.where(inside, values, np.array(self.offsets) if self.offsets else 0.0))


@dataclass(frozen=True)
class NormTail:
    """Private numbers about the largest norms.

    Attributes:
        radius: R, which at most about `rank` rows exceed.
        rank: K.
        gaps: each g, by which a count was taken below R.
        above: each M, a lower bound for the number of rows above R/g.
        tied: an estimate of the number of rows above JUST_BELOW R.
        between: an estimate of the number of rows between BELOW R and that.
        widest: W, which no row exceeds.
    """

    radius: float
    rank: float
    gaps: tuple[float, ...]
    above: tuple[float, ...]
    tied: float
    between: float
    widest: float

    @property
    def decay(self) -> float:
        """The exponent a of the tail."""
        pairs = zip(self.gaps, self.above, strict=True)
        return max(math.log(max(1.0, count / self.rank)) / math.log(gap) for gap, count in pairs)

    @property
    def least(self) -> float:
        """The least radius to clip to: R, or the next point of a lattice where many rows are equal."""
        is_tied = self.tied >= _TIED * self.rank and self.between < self.rank
        return self.radius * (1 + math.log2(self.gaps[0]) if is_tied else 1.0)


@dataclass(frozen=True)
class Clipping:
    """A radius, bounds for the mean and the deviation of the sum of norms beyond it, and for the number of such rows.

    `error` is the expected error, noise included.
    """

    radius: float
    mean: float = 0.0
    deviation: float = 0.0
    rows: float = 0.0
    error: float = 0.0


def best_clipping(tail: NormTail, noise: float) -> Clipping:
    """Return the radius with the least error, `noise` being the noise for a radius of 1 beside one clipped norm of 1.

    >>> light, heavy, unknown = (NormTail(10.0, 50.0, (2.0,), (count,), 0.0, 0.0, 1e4) for count in (5e3, 200.0, 0.0))
    >>> [round(best_clipping(tail, 2.0).radius) for tail in (light, heavy, unknown)]
    [13, 38, 9885]
    """
    if tail.widest <= tail.least:
        return Clipping(tail.widest, error=noise * tail.widest)
    points = np.geomspace(tail.least, tail.widest, _POINTS)
    points[-1] = tail.widest
    beyond = tail.rank * (points / tail.radius) ** -tail.decay
    means = _integral_above(points, beyond)
    variances = 2 * _integral_above(points, means)
    errors = np.sqrt((noise * points) ** 2 + _COHERENT**2 * (means**2 + variances))
    at = int(errors.argmin())
    numbers = (points[at], means[at], math.sqrt(variances[at]), beyond[at], errors[at])
    return Clipping(*(float(number) for number in numbers))


def rare_clipping(radius: float, widest: float, count: float, deviation: float, noise: float) -> Clipping:
    """Return where to clip rows if few of them differ from their centre by more than the grid can resolve.

    Nothing is known about those rows: each may be as far away as the bounds allow. Where a noisy count is above zero by
    two deviations, nothing is clipped. Otherwise all of these rows are, and the interval allows for as many rows at the
    widest norm as the count does.

    >>> rare_clipping(0.001, 100.0, 40.0, 5.0, 2.0)
    Clipping(radius=100.0, mean=0.0, deviation=0.0, rows=0.0, error=200.0)
    >>> rare_clipping(0.001, 100.0, -2.0, 5.0, 2.0).radius
    0.001
    """
    if count > _SOME * deviation:
        return Clipping(widest, error=noise * widest)
    most = max(0.0, count) + _SOME * deviation
    return Clipping(radius, most * max(0.0, widest - radius), rows=most, error=noise * radius)


def _integral_above(points: Floats, values: Floats) -> Floats:
    """Return the integral from each point to the last; trapezoids are above a convex function."""
    parts = np.diff(points) * (values[1:] + values[:-1]) / 2
    return np.append(np.cumsum(parts[::-1])[::-1], 0.0)
