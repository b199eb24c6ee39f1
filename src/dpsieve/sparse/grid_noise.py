"""Discrete Laplace noise on whole numbers, and on real numbers that are rounded to a fine grid.

The noise X on the integers has P[X = z] = (1 - p)/(1 + p) p^|z|, p = e^(-1/scale).

Whole values ('one_entry'), where one changes by 1, have scale 1/epsilon, and the ratio of probabilities is at most
e^(1/scale) <= e^epsilon (Ghosh, Roughgarden and Sundararajan 2012).

Real values ('l1') are first rounded at random to a multiple of the step g = 2^-j: up with the probability that is the
fraction of x / g, down otherwise, independently. Then noise is added, in steps. Between two neighbouring grid points
P[out | x] is linear in x, and their probabilities differ by a factor of at most r = e^(1/scale). So a change of an
entry by d within a cell of the grid multiplies P[out | x] by at most 1 + (d/g)(r - 1) <= e^(d (r - 1)/g), and changes
over several cells and entries multiply these bounds: a total change of 1 costs (r - 1)/g, which must be at most
epsilon. With g about 2^-10/epsilon, the scale is within 0.1 % of the best one, 1/epsilon.

Rounding to the nearest grid point instead would not be private: changes of 2^-40 in each of a million entries could
move all of them by a whole step.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from dpsieve.accounting.spends import Approximate, DiscreteLaplace, Spend
from dpsieve.exact.balls import Ball, ball, first_whole, precision, upper
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.randomness.coins import bernoulli
from dpsieve.randomness.noise import discrete_laplace, laplace_scale
from dpsieve.randomness.source import Source
from dpsieve.sparse.embedding import Errors, VectorMechanism, VectorRelation
from dpsieve.types import Bools, Floats, Ints
from dpsieve.validate import Checked, is_between

MOST_VALUE = 2.0**40
"""Values further from 0 are clamped to this, which brings no two vectors further apart."""
NoiseEpsilon = Annotated[float, is_between(1e-8, 500.0, "Pass a budget such as epsilon=1.0.")]

_FINE = 10  # bits by which the grid is finer than 1/epsilon
_BITS = 256
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
                kept = bool(ball(self.scale) * ball(self.epsilon) >= 1)
            else:
                kept = bool((1 / ball(self.scale)).expm1() * 2**self.digits <= ball(self.epsilon))
        kept = kept and self.epsilon <= guarantee.epsilon
        return formula(guarantee, worst if kept else 1.0, "balls", covers)

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
        found = np.empty(0, np.int64)
        while len(found) < count:
            drawn = discrete_laplace(self.scale, 2 * (count - len(found)) + 8, source=source)
            found = np.concatenate([found, drawn[drawn >= 0]])
        return found[:count]

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
