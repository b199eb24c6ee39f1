"""Noise on several whole numbers at once whose probability falls with the largest of them.

    P[Z = z] proportional to e^(-|z| / scale),  |z| = max(|z_1|, ..., |z_d|),  for z in the lattice Z^d.

It is the K-norm mechanism of Hardt and Talwar (2010) for the cube, in whole numbers: a change of every coordinate by at
most c changes |z| by at most c, and a probability by a factor of at most e^(c / scale). For d = 1 it is discrete
Laplace noise.

**The draw.** Let p = e^(-1 / scale). Sums of the geometric weights p^r over r >= |z| are proportional to p^|z|. So a
radius r with probability proportional to (2r + 1)^d p^r, then a uniform point of the cube of that radius, has the
distribution above, exactly. A sum of d + 1 geometric variables has the weights (r + 1) ... (r + d) p^r, and is accepted
with probability (2r + 1)^d / (2^d (r + 1) ... (r + d)), a product of d fractions below one, which is near one for all
but small radii. A geometric variable is a discrete Laplace one, folded: x below 0 becomes -x - 1.
"""

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.polynomial import polynomial

from dpsieve import validate
from dpsieve.exact.balls import Ball, ball, upper
from dpsieve.randomness.noise import discrete_laplace
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Ints

MOST_DIMENSIONS = 17
_HINT = "Pass the number of dimensions, such as 2."


def cube_radii(scale: float, dimensions: int, size: int, *, source: Source | None = None) -> Ints:
    """Return independent radii r with probability proportional to (2r + 1)^dimensions e^(-r / scale).

    >>> cube_radii(0.001, 2, 3).tolist()  # anything but zero has probability e^-1000
    [0, 0, 0]
    """
    dimensions = validate.whole("dimensions", dimensions, low=1, high=MOST_DIMENSIONS, hint=_HINT)
    source = resolve(source)
    radii = np.zeros(size, np.int64)
    missing = np.arange(size)
    while len(missing):
        folded = discrete_laplace(scale, (dimensions + 1) * len(missing), source=source)
        drawn = np.where(folded < 0, -folded - 1, folded).reshape(dimensions + 1, -1).sum(axis=0)
        accepted = np.ones(len(drawn), np.bool_)
        for factor in range(1, dimensions + 1):
            accepted &= uniform_below(2 * (drawn + factor), source) < 2 * drawn + 1
        radii[missing[accepted]] = drawn[accepted]
        missing = missing[~accepted]
    return radii


def within_cubes(radii: Ints, source: Source) -> Ints:
    """Return one coordinate of a uniform point of each cube: a whole number from -radius to radius."""
    return uniform_below(2 * radii + 1, source) - radii


def uniform_below(limits: Ints, source: Source) -> Ints:
    """Return a uniform whole number from 0 to limit - 1 for each limit from 1 to 2^62, by rejection.

    >>> from dpsieve.testing import insecure_source
    >>> uniform_below(np.array([1, 1, 1]), insecure_source(1)).tolist()
    [0, 0, 0]
    """
    limit = limits.astype(np.uint64)
    words = source.words(len(limit))
    drawn = words % limit
    # Words of the last, incomplete run of remainders are drawn again.
    unfair = np.flatnonzero(words - drawn > np.uint64(2**64 - 1) - (limit - np.uint64(1)))
    if len(unfair):
        drawn[unfair] = uniform_below(limits[unfair], source).astype(np.uint64)
    return drawn.astype(np.int64)


def cube_tail(scale: float, dimensions: int, least: int) -> float:
    """Return P[one coordinate >= least] for a whole number from 0 on, rounded up.

    Of the radius r >= least, the points with such a coordinate are (r - least + 1)(2r + 1)^(d - 1) of (2r + 1)^d. Both
    sums over r are of p^r times a polynomial q of degree d, which is sum over j of p^j (D^j q)(first) / (1 - p)^(j + 1)
    with D^j q the j-th difference: whole numbers.

    >>> round(cube_tail(2.0, 1, 3), 6), round(cube_tail(2.0, 2, 3), 6)
    (0.138889, 0.230855)
    """
    least = validate.whole("least", least, hint="Pass a whole number.")

    def total(first: int, points: list[int]) -> Ball:
        p = (-1 / ball(scale)).exp()
        terms = (p**j * difference / (1 - p) ** (j + 1) for j, difference in enumerate(_differences(points)))
        return p**first * sum(terms, ball(0))

    every = [(2 * r + 1) ** dimensions for r in range(dimensions + 1)]
    some = [(i + 1) * (2 * (least + i) + 1) ** (dimensions - 1) for i in range(dimensions + 1)]
    return upper(lambda: total(least, some) / total(0, every))


def _differences(values: list[int]) -> list[int]:
    """Return the first of the values, of their differences, of the differences of these, and so on."""
    found = []
    while values:
        found.append(values[0])
        values = [after - before for before, after in pairwise(values)]
    return found


@lru_cache(maxsize=1024)
def cube_half_width(dimensions: int, ratio: float, level: float) -> float:
    """Return h, in scales, with P[|Z_1 + ratio * Z_2| <= h] = level for noise of a large scale and |ratio| <= 1.

    Given the radius r, the sum of the two is beyond t = h / r with the probability of a trapezoid: 1 - t up to
    1 - |ratio|, then (1 + |ratio| - t)^2 / (4 |ratio|). The radius has a gamma distribution of shape d + 1, so all
    terms are incomplete gamma functions. With one dimension there is no second coordinate, and `ratio` must be 0.

    >>> round(cube_half_width(1, 0.0, 0.95), 4), round(cube_half_width(2, 1.0, 0.95), 4)
    (2.9957, 5.9915)
    """
    m, low, high = abs(ratio), 0.0, 100.0 + 4.0 * dimensions
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if cube_beyond(dimensions, m, middle) <= 1 - level else (middle, high)
    return high


def cube_beyond(dimensions: int, ratio: float, distance: float) -> float:
    """Return P[|Z_1 + ratio * Z_2| > distance], in scales, for noise of a large scale and 0 <= ratio <= 1."""
    from scipy.special import gammaincc

    d, m, h = dimensions, ratio, distance

    def moment(power: int, above: float) -> float:
        """Return E[r^-power; r > above] for a gamma variable of shape d + 1."""
        shape = d + 1 - power
        if math.isinf(above):
            return 0.0
        return float(gammaincc(shape, above)) * math.gamma(shape) / math.gamma(d + 1) if shape > 0 else 0.0

    if m < 1e-9:
        return moment(0, h) - h * moment(1, h)
    first, second = h / (1 + m), h / (1 - m) if m < 1 else math.inf
    corner = polynomial.polypow([1 + m, -h], 2) / (4 * m)  # in powers of 1/r
    between = sum(float(part) * (moment(j, first) - moment(j, second)) for j, part in enumerate(corner))
    return moment(0, second) - h * moment(1, second) + between


def cube_deviation(scale: float, dimensions: int) -> float:
    """Return about the standard deviation of one coordinate: scale * sqrt((d + 1)(d + 2) / 3).

    >>> round(cube_deviation(1.0, 1), 4)
    1.4142
    """
    return scale * math.sqrt((dimensions + 1) * (dimensions + 2) / 3)
