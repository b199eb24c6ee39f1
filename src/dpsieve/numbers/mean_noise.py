"""The last step of a private mean: where rows are clipped, how far that moves their mean, and the noise on their sums.

A row of norm r above the radius C loses r - C of its norm. So clipping moves the sum of all rows by at most
E(C) = sum of (r - C)+ = integral over t > C of N(t), in l2 norm and in every coordinate, where N(t) is how many rows
have a norm above t. No private mechanism sees fewer than about 1/mu rows, and one row may have any norm up to the
widest, W, that the bounds allow. So E(C) cannot be bounded for all data, except at C = W, where nothing is clipped.
What is assumed is that tails do not get heavier farther out:

    (T)  log N(t) falls at least as fast in log t beyond R as it does, on average, from R/g to R.

Let K be the rank that the search for R aims at, N(R) <= K, and M the number of rows above R/g. By (T),
N(t) <= K (t/R)^-a for t >= R, with a = log(M/K) / log g. (T) holds for every g where log N is concave in log t, as it
is for normal, exponential, log-normal, Student and Pareto rows, and for mixtures of one of these with zeros. So the
largest a of two gaps counts: g = 2^(1/sqrt(d)), as norms of d coordinates fall off fast, and 2 g, a longer chord that
noise disturbs less. Rows of few different values have (T) up to one step of their lattice. Where more than 4 K rows lie
just below R, and fewer than K between 7/8 R and that, C is at least R (1 + 1/sqrt(d)): for d = 1 the next lattice point
is not above 2 R.

The rows are a sample, so that E(C) varies around its mean m(C) = integral of the bound from C to W. With as many rows
beyond t as a Poisson variable of mean K (t/R)^-a, its variance is v(C) = 2 * integral of m from C to W. The interval is

    value +- (m + 1.96 sqrt(noise variance + v) + rounding),

in steps of the sum. R, M and C are private already, so all this costs nothing but the counts M. At last (T) is
checked: if a noisy count of the rows beyond C exceeds K (C/R)^-a by two deviations of its noise, no interval is stated.
That finds rows that are far away from all others if they are about 20/mu or more, and about 50/mu or more among binary
rows, where rows of many ones need not follow from how often each coordinate is one. Fewer may go unnoticed.

C is chosen so that the squared error, of the noise and of clipping, is least. Clipping counts (m^2 + v) / 4: clipped
rows have one direction in the worst case, and cancel where rows are spread evenly around their centre; half is between.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.numbers.norm_noise import NORMAL_95, NormNoise, as_tuple, reals
from dpsieve.privacy.registry import register
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints

_TIED = 4.0  # so many times K rows just below R are equal rows, not a tail
_COHERENT = 0.5  # which part of the clipped norms is taken to point in one direction, where a radius is chosen
_POINTS = 600
_SOME = 2.0  # deviations of a count above zero, from which on rows are there
JUST_BELOW, BELOW = 31 / 32, 7 / 8


@register("mean_noise")
@dataclass(frozen=True, repr=False)
class MeanNoise(NormNoise):
    """`NormNoise` whose values are limited to public bounds at the end, which is post-processing.

    Attributes:
        low, high: the bounds of every coordinate.
        radius: the private norm to which rows were clipped, in the scaled space; 0 where they were clipped to a box.
        bias: how far clipping and rounding move a sum, in steps.
        bias_deviation: by how much that varies, in steps.
        stated: whether there is an interval; without one, `low` and `high` of the table are null.
        centres: the private centre of each coordinate, around which rows were clipped: a median of real rows, 0 or 1
            for binary ones. Empty where none was found.
        spreads: a private standard deviation for each coordinate, as Gaussian rows with these quantiles would have it;
            sqrt(q (1 - q)) of the rough mean q for binary rows. Empty where none was found.
        epsilon, delta, sensitivity, scale, steps, offsets, neighbours, unit: see `NormNoise`.
    """

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = dict.fromkeys(
        ("steps", "offsets", "centres", "spreads"), as_tuple
    )

    _: KW_ONLY
    low: float = -1e300
    high: float = 1e300
    radius: float = 0.0
    bias: float = 0.0
    bias_deviation: float = 0.0
    stated: bool = True
    centres: tuple[float, ...] = ()
    spreads: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        hint = "Pass the bounds of a coordinate, such as low=-1.0 and high=1.0."
        low, high = (validate.between(name, getattr(self, name), -1e300, 1e300, hint=hint) for name in ("low", "high"))
        if not low < high:
            raise InvalidValue(f"low is not below high. {hint}")
        radius = validate.between("radius", self.radius, 0.0, 1e300, hint="Pass the norm to which rows are clipped.")
        hint = "Pass how far clipping moves a sum, in steps."
        bias, deviation = (
            validate.between(name, getattr(self, name), 0.0, 1e300, hint=hint) for name in ("bias", "bias_deviation")
        )
        if not isinstance(self.stated, bool):
            raise InvalidType("stated must be True or False.")
        centres, spreads = (reals(name, getattr(self, name)) for name in ("centres", "spreads"))
        if {len(centres), len(spreads)} - {0, self.size} or min(spreads, default=0.0) < 0:
            raise InvalidValue("centres and spreads must have one number for each coordinate, and no negative spread.")
        validate.store(self, low=low, high=high, radius=radius, bias=bias, bias_deviation=deviation)
        validate.store(self, centres=centres, spreads=spreads)

    def __repr__(self) -> str:
        return f"<mean noise, {self.size:,} means, radius {self.radius:.4g}, {self.guarantee}>"

    def draw(self, sums: Ints, source: Source) -> Floats:
        """Return the means with noise, within the bounds."""
        return np.clip(super().draw(sums, source), self.low, self.high)

    def columns(self, values: Floats) -> dict[str, Floats]:
        """Return the deviation of the noise, a 95 % interval for the mean of the rows, and centres and spreads."""
        half = np.array(self.steps) * self._half_width if self.stated else math.nan
        low, high = np.maximum(values - half, self.low), np.minimum(values + half, self.high)
        more = {"centre": self.centres, "spread": self.spreads}
        found = {name: np.array(numbers) for name, numbers in more.items() if numbers}
        return {"deviation": self.deviations, "low": low, "high": high, **found}

    @property
    def _half_width(self) -> float:
        return self.bias + math.ceil(NORMAL_95 * math.hypot(self.scale, self.bias_deviation))

    def possible(self, values: Floats) -> bool:
        """Return whether values are within the bounds, and on the grid where they are not at a bound."""
        inside = (values > self.low) & (values < self.high)
        if not ((values >= self.low) & (values <= self.high)).all():
            return False
        # Any point of the grid stands in where the value is a bound.
        return super().possible(np.where(inside, values, np.array(self.offsets) if self.offsets else 0.0))


@dataclass(frozen=True)
class NormTail:
    """What is known of the largest norms, from private numbers.

    Attributes:
        radius: R, which at most about `rank` rows exceed.
        rank: K.
        gaps: each g, by which a count was taken below R.
        above: each M, a lower bound for how many rows exceed R/g.
        tied: about how many rows exceed JUST_BELOW R.
        between: about how many rows lie between BELOW R and that.
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
        tied = self.tied >= _TIED * self.rank and self.between < self.rank
        return self.radius * (1 + math.log2(self.gaps[0]) if tied else 1.0)


@dataclass(frozen=True)
class Clipping:
    """A radius, the mean and the deviation of the sum of norms beyond it, at most, and how many rows that is.

    `error` is what is expected of it, noise included.
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

    Nothing is known of those rows, so any of them may be as far away as the bounds allow. Where a noisy count is above
    zero by two deviations, nothing is clipped. Otherwise all of these rows are, and the interval is for as many rows at
    the widest norm as the count allows.

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
