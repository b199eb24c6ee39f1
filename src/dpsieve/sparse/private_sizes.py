"""Private upper bounds on the size of a vector, for a part of the budget: the number of entries, or their total."""

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
from dpsieve.exact.balls import upper
from dpsieve.privacy.certificate import Certificate
from dpsieve.randomness.noise import discrete_laplace
from dpsieve.randomness.source import Source, uniform_bits
from dpsieve.sparse.embedding import Flag, VectorRelation
from dpsieve.sparse.grid_noise import MOST_VALUE, GridMechanism, NoiseEpsilon, clamp
from dpsieve.types import Floats
from dpsieve.validate import is_between

_MANTISSA = 53


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

        With the least c such that P[X >= c] <= miss: size + X + c is below size + 1 with probability P[X <= -c], at
        most `miss`. A real size may be rounded down by a step, and a neighbour's be larger by 1, so that is added.
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

        A real number x is rounded to floor(x/g + U) or its like for a uniform U, which for the same U differs between
        neighbours by at most 1/g steps: so the curve is that of whole numbers that change by 1/g.
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
