"""Discrete Laplace noise on whole numbers, on real numbers rounded to a fine grid, and on the size of a vector.

The noise X on the integers has P[X = z] = (1 - p)/(1 + p) p^|z|, p = e^(-1/scale). Whole values ('one_entry') have
scale 1/epsilon (Ghosh, Roughgarden and Sundararajan 2012). Real values ('l1') are first rounded at random to a multiple
of the step g = 2^-j: up with the probability that is the fraction of x / g, independently. Then noise is added, in
steps: a total change of 1 costs (e^(1/scale) - 1)/g, which must be at most epsilon. With g about 2^-10/epsilon, the
scale is within 0.1 % of the best one, 1/epsilon. Proof: docs/background/vectors.md#proof-noise-on-a-grid.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from dpsieve.accounting.spends import Approximate, DiscreteLaplace, Spend
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact import exact_sum
from dpsieve.exact.balls import Ball, ball, first_whole, precision, upper
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.randomness.coins import bernoulli
from dpsieve.randomness.noise import discrete_laplace, laplace_scale
from dpsieve.randomness.source import Source, uniform_bits
from dpsieve.sparse.embedding import Errors, Flag, VectorMechanism, VectorRelation
from dpsieve.types import Bools, Floats, Ints
from dpsieve.validate import Checked, is_between

MOST_VALUE = 2.0**40
"""Values further from 0 are clamped to this, which brings no two vectors further apart."""
NoiseEpsilon = Annotated[float, is_between(1e-8, 500.0, "Pass a budget such as epsilon=1.0.")]

_FINE = 10  # bits by which the grid is finer than 1/epsilon
_BITS = 256
_MANTISSA = 53  # bits of a float
_BLOCKS_PER_SCALE, _SCALES = 64, 40  # of distributions of errors; e^-40 is negligible beside what floats hold


@dataclass(frozen=True)
class GridNoise(Checked):
    """Noise for values where neighbours differ by a total of 1; see the head of this module.

    >>> GridNoise(1.0, "l1").digits
    10
    """

    epsilon: NoiseEpsilon
    neighbours: VectorRelation

    @cached_property
    def digits(self) -> int:
        """The j of the step 2^-j; 0 for whole values."""
        part, power = math.frexp(self.epsilon)  # exact, as stored cells are read with it: the ceiling of log2(epsilon)
        return 0 if self.neighbours == "one_entry" else max(0, power - (part == 0.5) + _FINE)

    @cached_property
    def scale(self) -> float:
        """The scale of the noise in steps: the least one that is private."""
        if self.neighbours == "one_entry":
            return laplace_scale(self.epsilon, 1)
        return upper(lambda: 1 / (ball(self.epsilon) / 2**self.digits).log1p())

    def certificate(self, guarantee: Guarantee, covers: str, worst: float = 0.0) -> Certificate:
        """Return the certificate of a mechanism with delta `worst` beside this noise, or raise NotCertified."""
        with precision(_BITS):
            if self.neighbours == "one_entry":
                is_private = bool(ball(self.scale) * ball(self.epsilon) >= 1)
            else:
                is_private = bool((1 / ball(self.scale)).expm1() * 2**self.digits <= ball(self.epsilon))
        is_private = is_private and self.epsilon <= guarantee.epsilon
        return formula(guarantee, worst if is_private else 1.0, "balls", covers)

    def spends(self) -> tuple[Spend, ...]:
        """Return the cost of noise on every value: for whole values, the curve of one noise."""
        return (DiscreteLaplace(self.scale),) if self.neighbours == "one_entry" else (Approximate(self.epsilon),)

    def steps(self, values: Ints | Floats, source: Source) -> Ints:
        """Return values of at most `MOST_VALUE` in steps, with exact random rounding of real ones."""
        if self.neighbours == "one_entry":
            return values.astype(np.int64)
        share, whole = np.modf(np.abs(values) * 2.0**self.digits)  # exact: neither changes the digits of a float
        rounded = whole.astype(np.int64) + flip_coins(share, source)
        return np.where(values < 0, -rounded, rounded)

    def add_noise(self, steps: Ints, source: Source) -> Ints:
        """Return steps with noise."""
        return steps + discrete_laplace(self.scale, len(steps), source=source)

    def draw_excess(self, count: int, source: Source) -> Ints:
        """Return draws of X - k given X >= k, the same for every k >= 0: P = (1 - p) p^z, z = 0, 1, ..."""
        excesses = np.empty(0, np.int64)
        while len(excesses) < count:
            drawn = discrete_laplace(self.scale, 2 * (count - len(excesses)) + 8, source=source)
            excesses = np.concatenate([excesses, drawn[drawn >= 0]])
        return excesses[:count]

    def values(self, steps: Ints) -> Floats:
        """Return the values of steps."""
        return np.multiply(steps, 2.0**-self.digits, dtype=np.float64)

    def tail(self, least: int) -> Ball:
        """Enclose P[X >= least] = p^least / (1 + p) for a whole number least >= 0, at the precision in force."""
        p = (-1 / ball(self.scale)).exp()
        return (-ball(least) / ball(self.scale)).exp() / (1 + p)

    def tail_at_most(self, chance: float) -> int:
        """Return the least whole number k >= 0 with P[X >= k] <= chance, proven."""
        near = -self.scale * (math.log(chance) + math.log1p(math.exp(-1 / self.scale)))
        low = max(0, math.floor(near * (1 - 1e-9)) - 2)
        return first_whole(lambda k: upper(lambda: self.tail(k)) <= chance, low, 2**62)

    def share_from(self, least: int) -> float:
        """Return P[X >= least] as a float, for any whole number."""
        ends = math.exp(-max(least, 1 - least) / self.scale) / (1 + math.exp(-1 / self.scale))
        return ends if least > 0 else 1 - ends

    def spread(self, value: float) -> tuple[tuple[int, float], ...]:
        """Return the steps that a value is rounded to, with their probabilities."""
        share, whole = math.modf(abs(value) * 2.0**self.digits)
        sign = -1 if value < 0 else 1
        parts = (sign * int(whole), 1 - share), (sign * (int(whole) + 1), share)
        return parts if share else parts[:1]

    def errors(self, value: float, least: int | None = None) -> Errors:
        """Return the distribution of the noise on a value, or that given noisy steps of at least `least`.

        For scales above 64 steps, blocks of about 1/64 of the scale are grouped.
        """
        places, masses = [], []
        for step, share in self.spread(value):
            noise, law = self._law(None if least is None else least - step)
            places.append((noise + step) * 2.0**-self.digits - value)
            masses.append(law / law.sum() * share * (1.0 if least is None else self.share_from(least - step)))
        return Errors.of(np.concatenate(places), np.concatenate(masses))

    def _law(self, least: int | None) -> tuple[Floats, Floats]:
        """Return values of X, or of X given X >= least, and masses up to a common factor."""
        block, reach = max(1, int(self.scale / _BLOCKS_PER_SCALE)), math.ceil(_SCALES * self.scale) + 1
        start = -reach if least is None else max(least, -reach)
        below = -np.arange(min(-start, reach), 0, -block) if start < 0 else np.empty(0, np.int64)
        first = max(start, 0)
        edges = np.concatenate([below, np.arange(first, first + reach + block + 1, block)])
        low, high = edges[:-1], edges[1:]
        near = np.where(low >= 0, low - first, 1 - high)  # the least exponent of p in a block, up to a common factor
        return (low + high - 1) / 2, np.exp(-near / self.scale) * -np.expm1((low - high) / self.scale)


class GridMechanism(VectorMechanism):
    """A mechanism with this noise."""

    @cached_property
    def noise(self) -> GridNoise:
        """The noise of each value."""
        return GridNoise(self.epsilon, self.neighbours)

    def spends(self) -> tuple[Spend, ...]:
        return self.noise.spends()


def flip_coins(rates: Floats, source: Source) -> Bools:
    """Return exact independent coins of these rates below 1."""
    up, possible = np.zeros(len(rates), np.bool_), np.flatnonzero(rates)
    up[possible] = bernoulli(rates[possible], source)
    return up


def clamp(values: Any, low: float = 0.0, high: float = MOST_VALUE) -> Any:
    """Return values within bounds, rounded inwards for whole values."""
    if values.dtype == np.int64:
        return np.clip(values, math.ceil(low), math.floor(high))
    return np.clip(values, low, high)


@dataclass(frozen=True)
class _NoisySize(GridMechanism):
    """The base of both sizes: fields, noise, and a shift that makes the result an upper bound.

    Attributes:
        miss: the probability at most with which the result is below the true size, or below that of a neighbour.
        needed: whether the privacy of what follows rests on it; then `miss` is a part of delta.
    """

    epsilon: NoiseEpsilon
    miss: Annotated[float, is_between(1e-300, 0.5, "Pass a small probability such as miss=1e-6.")]
    neighbours: VectorRelation = "one_entry"
    unit: str = ""
    needed: Flag = False

    @property
    def delta(self) -> float:
        """The delta of the promise."""
        return self.miss if self.needed else 0.0

    @cached_property
    def shift(self) -> int:
        """What is added to the noisy size, in steps of the noise.

        The least c with P[X >= c] <= miss; for a real size 1 more, as a neighbour's may be larger by 1.
        """
        return self._margin if self.neighbours == "one_entry" else self._margin + (1 << self.noise.digits)

    @cached_property
    def _margin(self) -> int:
        return self.noise.tail_at_most(self.miss)

    def certify(self) -> Certificate:
        covers = "discrete Laplace noise on one number"
        if not self.needed:
            return self.noise.certificate(self.guarantee, covers)
        worst = upper(lambda: self.noise.tail(self._margin))
        return self.noise.certificate(self.guarantee, f"{covers}, and that it is large enough", worst)

    def spends(self) -> tuple[Spend, ...]:
        """Return the curve of the noise, on a number that changes by at most 1.

        A real number is rounded to floor(x/g + U), U uniform: the curve is that of whole numbers that change by 1/g.
        """
        if self.needed:
            return (Approximate(self.epsilon, self.miss),)
        return (DiscreteLaplace(self.noise.scale, 1 << self.noise.digits),)

    def _bound(self, steps: int, source: Source) -> int:
        """Return a size of at least 1 from the true one, in steps."""
        noisy = steps + int(discrete_laplace(self.noise.scale, 1, source=source)[0]) + self.shift
        return max(1, -(-noisy >> self.noise.digits))


@register("private_sparsity")
@dataclass(frozen=True)
class PrivateSparsity(_NoisySize):
    """A bound on the number of entries that are not 0, epsilon-private by discrete Laplace noise of scale 1/epsilon.

    For 'one_entry' alone: there, neighbours differ by at most one entry. Real vectors at distance 1 may differ by any
    number of tiny entries.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbours != "one_entry":
            reason = "a total of 1 may be spread over any number of entries, so no noise hides how many there are"
            raise InvalidValue(f"neighbours='l1' has no private sparsity: {reason}. Pass sparsity, or buy the norm.")

    def draw(self, values: Any, source: Source) -> int:
        """Return a noisy upper bound on the number of values that are not 0."""
        return self._bound(int(np.count_nonzero(values)), source)


@register("private_norm")
@dataclass(frozen=True)
class PrivateNorm(_NoisySize):
    """A bound on the sum of the absolute values, each clamped to 2^40, epsilon-private by discrete Laplace noise.

    Neighbours differ by at most 1 in that sum, for both relations. Sums are exact, so the order of entries does not
    matter; a real sum is rounded at random to the grid of the noise (see `grid_noise`).
    """

    def draw(self, values: Any, source: Source) -> int:
        """Return a noisy upper bound on the sum of |value|."""
        sizes = np.abs(clamp(values, -MOST_VALUE))
        if self.neighbours == "one_entry":
            return self._bound(exact_sum(sizes), source)
        total = _exact_sum(sizes) * (1 << self.noise.digits)
        whole = math.floor(total)
        rest = total - whole  # a fraction of a power of two, which that many random bits decide exactly
        up = uniform_bits(source, rest.denominator.bit_length() - 1) < rest.numerator
        return self._bound(whole + up, source)


def _exact_sum(sizes: Floats) -> Fraction:
    """Return the sum of floats, exactly: those of one exponent are summed as whole numbers."""
    mantissas, exponents = np.frexp(sizes)
    whole = (mantissas * 2.0**_MANTISSA).astype(np.int64)
    total = Fraction(0)
    for exponent in np.unique(exponents):
        total += exact_sum(whole[exponents == exponent]) * Fraction(2) ** (int(exponent) - _MANTISSA)
    return total
