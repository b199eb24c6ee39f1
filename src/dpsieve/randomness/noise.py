"""Discrete Laplace, discrete Gaussian and rounded Gaussian noise on the integers, and noise on cubes, drawn exactly.

**One number.** All laws have P[X = x] proportional to w(|x|) with a log-concave w: e^(-x/s), e^(-x^2 / (2 s^2)), or an
integral of that. The integers are cut into cells of M = 2^m. A cell is drawn from an exact table with probability
proportional to M times the largest weight in it, then a uniform integer x of the cell is accepted with probability
w(x) / (largest weight). Of one 64-bit word 16 bits choose the cell, m bits the place in it, the other bits accept it;
doubtful draws are decided in floating point with a margin far above its error, and within that in ball arithmetic.

**Several numbers**: P[Z = z] proportional to e^(-|z| / scale), |z| = max(|z_1|, ..., |z_d|), for z in the lattice Z^d
(the K-norm mechanism of Hardt and Talwar 2010 for the cube): a radius r with probability proportional to
(2r + 1)^d p^r, p = e^(-1 / scale), then a uniform point of the cube of that radius. A sum of d + 1 geometric variables
has the weights (r + 1) ... (r + d) p^r, and is accepted with probability (2r + 1)^d / (2^d (r + 1) ... (r + d)). Proof:
docs/background/totals.md#one-noise-for-counts-and-sums.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

import numpy as np
from flint import arb, ctx
from numpy.polynomial import polynomial

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import Ball, ball, precision, upper
from dpsieve.randomness.source import Source, resolve
from dpsieve.randomness.tables import CHUNK, SPARE_BITS, ExactTable, FallingSums, LazyUniform
from dpsieve.types import Floats, Ints, Words

SMALLEST_SCALE, LARGEST_SCALE = 1e-3, 1e9
LARGEST_ROUNDED = 800.0  # so that a table holds a rounded Gaussian
_CELLS_PER_SCALE = 64
_MARGIN = 2.0**-40  # relative; e^-rise in floating point is right to 2^-49 (1 + rise)


def discrete_laplace(scale: float, size: int, *, source: Source | None = None) -> Ints:
    """Return `size` independent draws of X with P[X = x] = (1 - p) / (1 + p) p^|x|, p = e^(-1/scale).

    Also called the two-sided geometric distribution. Added to an integer that one unit changes by at most 1, it gives
    (1/scale)-differential privacy (Ghosh, Roughgarden, Sundararajan 2012). Scales from 0.001 to 1e9.

    >>> discrete_laplace(0.001, 3).tolist()  # anything but zero has probability e^-1000
    [0, 0, 0]
    """
    return _sampler("laplace", _scale("scale", scale)).draw(_size(size), resolve(source))


def laplace_scale(epsilon: float, sensitivity: int) -> float:
    """Return the least scale, as a float, at which discrete Laplace noise is epsilon-private for this l1 sensitivity.

    >>> laplace_scale(0.5, 3)
    6.0
    """
    exact = Fraction(sensitivity) / Fraction(epsilon)
    if exact > LARGEST_SCALE:
        raise InvalidValue(
            f"epsilon={epsilon:g} needs noise of more than 10^9. Pass a larger epsilon.", argument="epsilon"
        )
    quotient = sensitivity / epsilon
    least = quotient if Fraction(quotient) >= exact else math.nextafter(quotient, math.inf)
    return max(least, SMALLEST_SCALE)


def discrete_gaussian(sigma: float, size: int, *, source: Source | None = None) -> Ints:
    """Return `size` independent draws of X with P[X = x] proportional to e^(-x^2 / (2 sigma^2)).

    Added to integers that one unit changes by at most d in l2 norm, it gives d^2 / (2 sigma^2)-zCDP (Canonne, Kamath,
    Steinke 2020, Theorem 4). Sigma from 0.001 to 1e9.

    >>> len(discrete_gaussian(2.5, 1000))
    1000
    """
    return _sampler("gaussian", _scale("sigma", sigma)).draw(_size(size), resolve(source))


def rounded_gaussian(sigma: float, size: int, *, source: Source | None = None) -> Ints:
    """Return `size` independent draws of a real Gaussian of standard deviation sigma, rounded to the nearest integer.

    Added to integers it is post-processing of the Gaussian mechanism, whose exact guarantee it has
    (`privacy.gaussian_delta`), tighter than the zCDP bound for the discrete Gaussian. Sigma from 0.001 to 1e9.

    >>> rounded_gaussian(0.001, 3).tolist()
    [0, 0, 0]
    """
    sigma, size, source = _scale("sigma", sigma), _size(size), resolve(source)
    return (_rounded(sigma) if sigma <= LARGEST_ROUNDED else _sampler("rounded", sigma)).draw(size, source)


@dataclass(frozen=True)
class Laplace:
    """The weight w(x) = e^(-x / scale) of a magnitude x."""

    slack: ClassVar[float] = 0.0
    scale: float

    def exponent(self, x: int) -> arb:
        """Enclose -ln w(x)."""
        return arb(x) / arb(self.scale)

    def rise(self, x: Ints, base: Ints) -> Floats:
        """Return -ln w(x) + ln w(base) for magnitudes x >= base."""
        return (x - base) / self.scale


@dataclass(frozen=True)
class Gaussian:
    """The weight w(x) = e^(-x^2 / (2 scale^2)) of a magnitude x."""

    slack: ClassVar[float] = 0.0
    scale: float

    def exponent(self, x: int) -> arb:
        """Enclose -ln w(x)."""
        return (arb(x) / arb(self.scale)) ** 2 / 2

    def rise(self, x: Ints, base: Ints) -> Floats:
        """Return -ln w(x) + ln w(base) for magnitudes x >= base."""
        return ((x - base) / self.scale) * ((x + base) / (2 * self.scale))


@dataclass(frozen=True)
class RoundedGaussian(Gaussian):
    """The weight w(x) of a magnitude x that is the integral of e^(-y^2 / (2 scale^2)) over |y - x| < 1/2.

    It is log-concave. `rise`, that of the Gaussian itself, is never below the true one, and above it by at most
    rise / (4 scale^2): `slack` is twice that share. Proof: docs/background/randomness.md#rounded-gaussian-noise.
    """

    @property
    def slack(self) -> float:  # type: ignore[override]
        """How far `rise` may be off, as a share of it."""
        return 0.5 / self.scale**2

    def exponent(self, x: int) -> arb:
        """Enclose -ln w(x), up to a constant."""
        with precision(ctx.prec + 96):  # the difference of nearly equal numbers loses about 2 log2(scale) bits
            unit = arb(self.scale) * arb(2).sqrt()
            return -(((arb(x) - arb(0.5)) / unit).erfc() - ((arb(x) + arb(0.5)) / unit).erfc()).log()


class NoiseSampler:
    """Draws integers x with probability proportional to w(|x|); see the head of this module."""

    def __init__(self, shape: Laplace | Gaussian) -> None:
        self._shape = shape
        self._bits = max(0, math.floor(math.log2(shape.scale / _CELLS_PER_SCALE)))
        self._right, self._left = self._tails(0), self._tails(1)
        self._table = ExactTable(self._cdf)
        cells = np.arange(self._table.first, self._table.first + len(self._table))
        self._keep = np.append(self._keep_always(cells), np.uint64(0))  # the guide's 'unclear' is always resolved

    def draw(self, size: int, source: Source) -> Ints:
        """Return `size` independent draws."""
        if not self._bits:
            return self._table.draw(size, source)
        out = np.empty(size, np.int64)
        for start in range(0, size, CHUNK):
            self._fill(out[start : start + CHUNK], source)
        return out

    def _fill(self, out: Ints, source: Source) -> None:
        words = source.words(len(out))
        cell = self._table.guide.take((words >> np.uint64(SPARE_BITS)).view(np.int64))
        place, coin = self._split(words)
        np.multiply(cell, 1 << self._bits, out=out, dtype=np.int64)
        out += place
        out += self._table.first << self._bits
        unsure = np.flatnonzero(coin >= self._keep.take(cell))
        if len(unsure):
            out[unsure] = self._resolve(words[unsure], cell[unsure].astype(np.int64), source)

    def _split(self, words: Words) -> tuple[Ints, Words]:
        """Return the place in the cell and the coin that keeps or rejects it, both from a word's spare bits."""
        place = (words & np.uint64((1 << self._bits) - 1)).view(np.int64)
        return place, (words & np.uint64((1 << SPARE_BITS) - 1)) >> np.uint64(self._bits)

    def _resolve(self, words: Words, cell: Ints, source: Source) -> Ints:
        """Return the draws that neither the guide nor the common bound decided."""
        unclear = np.flatnonzero(cell == len(self._table))
        cell += self._table.first
        cell[unclear] = self._table.search(words[unclear], source)
        words[unclear] = source.words(len(unclear))  # the search has used all bits of the old ones
        place, coin = self._split(words)
        x = (cell << self._bits) + place
        nearest = self._magnitude_nearest(cell)
        rise = self._shape.rise(np.abs(x), nearest)
        chance = np.exp(-rise) * 2.0 ** (SPARE_BITS - self._bits)
        margin = _MARGIN * (1 + rise) + self._shape.slack * rise
        accepted = coin + 1.0 <= chance * (1 - margin)
        for k in np.flatnonzero(~accepted & (coin <= chance * (1 + margin))):
            accepted[k] = self._keep_exactly(abs(int(x[k])), int(nearest[k]), int(coin[k]), source)
        again = np.flatnonzero(~accepted)
        if len(again):
            x[again] = self.draw(len(again), source)
        return x

    def _keep_exactly(self, x: int, nearest: int, coin: int, source: Source) -> bool:
        uniform = LazyUniform(source, coin, SPARE_BITS - self._bits)
        return uniform.below(lambda: (self._shape.exponent(nearest) - self._shape.exponent(x)).exp())

    def _keep_always(self, cell: Ints) -> Words:
        """Return how many coins accept every integer of a cell, from its smallest acceptance probability."""
        nearest = self._magnitude_nearest(cell)
        chance = np.exp(-self._shape.rise(nearest + ((1 << self._bits) - 1), nearest))
        return np.floor(chance * (1 - _MARGIN) * 2.0 ** (SPARE_BITS - self._bits)).astype(np.uint64)

    def _magnitude_nearest(self, cell: Ints) -> Ints:
        """Return the smallest |x| over the integers x of a cell, M * cell <= x < M * (cell + 1)."""
        start = cell << self._bits
        return np.where(cell >= 0, start, 1 - start - (1 << self._bits))

    def _cdf(self, cell: int) -> arb:
        """Enclose the probability that the drawn cell is at most `cell`."""
        right, left = self._right(max(cell + 1, 0)), self._left(max(-1 - cell, 0))
        return 1 - right / (self._right(0) + left) if cell >= 0 else left / (right + self._left(0))

    def _tails(self, offset: int) -> FallingSums:
        """Return the sums of w(M k + offset), the largest weights of the cells to one side."""

        def weight(k: int) -> arb:
            return (-self._shape.exponent((k << self._bits) + offset)).exp()

        return FallingSums(weight, lambda _, k: weight(k + 1))


@lru_cache(maxsize=64)
def _sampler(kind: str, scale: float) -> NoiseSampler:
    if kind == "rounded":
        return NoiseSampler(RoundedGaussian(scale))
    return NoiseSampler(Laplace(scale) if kind == "laplace" else Gaussian(scale))


@lru_cache(maxsize=64)
def _rounded(sigma: float) -> ExactTable:
    return ExactTable(lambda k: (-(arb(k) + arb(0.5)) / arb(sigma) / arb(2).sqrt()).erfc() / 2)


def _scale(name: str, value: float) -> float:
    hint = f"Pass a scale such as {name}=1.0; rescale the data if it needs more or less noise."
    return validate.between(name, value, SMALLEST_SCALE, LARGEST_SCALE, hint=hint)


def _size(value: int) -> int:
    return validate.whole("size", value, high=10**9, hint="Pass how many draws to make, a billion at most.")


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

    Closed form: docs/background/totals.md#one-noise-for-counts-and-sums.

    >>> round(cube_tail(2.0, 1, 3), 6), round(cube_tail(2.0, 2, 3), 6)
    (0.138889, 0.230855)
    """
    least = validate.whole("least", least, hint="Pass a whole number.")

    def total(first: int, points: list[int]) -> Ball:
        p = (-1 / ball(scale)).exp()
        terms = (p**j * difference / (1 - p) ** (j + 1) for j, difference in enumerate(_differences(points)))
        return p**first * sum(terms, ball(0))

    every = [(2 * r + 1) ** dimensions for r in range(dimensions + 1)]
    beyond = [(i + 1) * (2 * (least + i) + 1) ** (dimensions - 1) for i in range(dimensions + 1)]
    return upper(lambda: total(least, beyond) / total(0, every))


def _differences(values: list[int]) -> list[int]:
    """Return the first of the values, of their differences, of the differences of these, and so on."""
    differences = []
    while values:
        differences.append(values[0])
        values = [after - before for before, after in pairwise(values)]
    return differences


@lru_cache(maxsize=1024)
def cube_half_width(dimensions: int, ratio: float, level: float) -> float:
    """Return h, in scales, with P[|Z_1 + ratio * Z_2| <= h] = level for noise of a large scale and |ratio| <= 1.

    With one dimension there is no second coordinate, and `ratio` must be 0.

    >>> round(cube_half_width(1, 0.0, 0.95), 4), round(cube_half_width(2, 1.0, 0.95), 4)
    (2.9957, 5.9915)
    """
    m, low, high = abs(ratio), 0.0, 100.0 + 4.0 * dimensions
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if cube_beyond(dimensions, m, middle) <= 1 - level else (middle, high)
    return high


def cube_beyond(dimensions: int, ratio: float, distance: float) -> float:
    """Return P[|Z_1 + ratio * Z_2| > distance], in scales, for noise of a large scale and 0 <= ratio <= 1.

    By incomplete gamma functions: docs/background/totals.md#one-noise-for-counts-and-sums.
    """
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
