"""A private histogram of keys per unit, from which a bound is chosen and its coverage is estimated."""

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from dpsieve import validate
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.noise import LARGEST_SCALE, discrete_laplace, laplace_scale
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints

EDGES = (1, 2, 3, 5, 7, 10, 14, 20, 30, 50, 100, 200, 500, 1000)
MOST = EDGES[-1]
KINDS_OF_KEYS = ("a key", "a published key")
_SHORT, _LONG = 0.3, 0.7  # lengths of intervals: preferred, and largest reported
_PARTS = 1 << 16  # per unit
_DEVIATIONS = 2.12  # 95 % of a Laplace distribution are within 2.12 standard deviations, and more of a sum of several
_SHARES = np.linspace(0.0, 1.0, 2001)


@register("keys_per_unit")
@dataclass(frozen=True)
class KeysPerUnit(Mechanism):
    """The number of units that hold about 1, 2, 3, 5, ..., 1,000 keys, with discrete Laplace noise.

    A unit with d keys, between neighbouring edges a < d < b, adds (d - a)/(b - a) to b and the remainder to a, in whole
    parts of 2^-16; a unit with more than 1,000 keys counts as one with 1,000. So a unit adds 1 in total, and noise of
    scale 1/epsilon on each edge makes the histogram epsilon-private when one unit is added or removed (Dwork, McSherry,
    Nissim and Smith 2006; for the discrete noise Ghosh, Roughgarden and Sundararajan 2012). Sums over units of any
    function of d that is linear between the edges, such as min(d, m) for an edge m, are unbiased up to 2^-16.

    Attributes:
        epsilon: the budget.
        bound: an additional edge, so that the coverage of this bound can be estimated.
    """

    reports_coverage = True

    epsilon: float
    bound: int = 1
    _: KW_ONLY
    unit: str = "one row"

    def __post_init__(self) -> None:
        hint = "Pass the part of the budget that buys the histogram, such as epsilon=0.01."
        epsilon = validate.between("epsilon", self.epsilon, 2 * _PARTS / LARGEST_SCALE, 500.0, hint=hint)
        hint = f"Pass how many keys a unit may add, up to {MOST:,}."
        bound = validate.whole("bound", self.bound, low=1, high=MOST, hint=hint)
        validate.store(self, epsilon=epsilon, bound=bound, unit=self.guarantee.unit)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The promise to one privacy unit."""
        return Guarantee(self.epsilon, unit=self.unit)

    @property
    def scale(self) -> float:
        """The scale of the noise, in parts."""
        return laplace_scale(self.epsilon, _PARTS)

    @property
    def edges(self) -> tuple[int, ...]:
        """The numbers of keys at which units are counted."""
        return tuple(sorted({*EDGES, self.bound}))

    def certify(self) -> Certificate:
        """Return the certificate, by exact fractions."""
        is_private = Fraction(self.scale) * Fraction(self.epsilon) >= _PARTS
        covers = f"discrete Laplace noise on {len(self.edges)} sums to which a unit adds 1 in all"
        return formula(self.guarantee, 0.0 if is_private else 1.0, "balls", covers)

    def draw(self, units: Ints, source: Source) -> "Sizes":
        """Return the noisy histogram; `units` are the numbers of units with 0, 1, ..., 1,000 or more keys.

        Units without keys are not counted.
        """
        parts = _parts(units, self.edges) + discrete_laplace(self.scale, len(self.edges), source=source)
        return Sizes(self.edges, tuple((parts / _PARTS).tolist()), self.scale / _PARTS)


@register("coverage")
@dataclass(frozen=True)
class Coverage:
    """The share of (unit, key) pairs that a bound keeps, with a 95 % confidence interval.

    At most `most` pairs per unit count. `key` names the kind of keys.

    >>> print(Coverage(0.381, 0.3502, 0.41, 50))
    about 38 % (35 to 41 %) of all pairs of a unit and a key, counting at most 50 for a unit
    """

    share: float
    low: float
    high: float
    most: int = MOST
    key: str = "a key"

    def __post_init__(self) -> None:
        fix = "Pass a share with its interval."
        for name in ("share", "low", "high"):
            validate.between(name, getattr(self, name), 0.0, 1.0, hint=fix)
        validate.whole("most", self.most, low=1, high=MOST, hint=fix)
        if not self.low <= self.share <= self.high or self.key not in KINDS_OF_KEYS:
            raise InvalidValue(f"coverage is not a share within its interval. {fix}")

    def __str__(self) -> str:
        low, high = math.floor(100 * self.low), math.ceil(100 * self.high)
        few = f", counting at most {self.most:,} for a unit"
        return f"about {100 * self.share:.0f} % ({low} to {high} %) of all pairs of a unit and {self.key}{few}"


@dataclass(frozen=True)
class Sizes:
    """A private histogram: about `units[i]` units hold about edges[i] keys, with Laplace noise of this scale.

    >>> sizes = Sizes(EDGES, (50.0, 0.0, 0.0, 50.0, *[0.0] * 10), 0.001)  # 50 units with 1 key, 50 with 5
    >>> sizes.kept(1)
    Coverage(share=0.333..., low=0.32..., high=0.33..., most=1000, key='a key')
    """

    edges: tuple[int, ...]
    units: tuple[float, ...]
    scale: float

    def pairs(self, bound: int) -> float:
        """Return the estimated number of (unit, key) pairs if each unit keeps at most `bound` keys; at least 0."""
        return max(0.0, float(np.array(self.units) @ self._kept(bound)))

    def deviation(self, bound: int) -> float:
        """Return the standard deviation of `pairs`."""
        return self.scale * math.sqrt(2 * float((self._kept(bound) ** 2).sum()))

    def kept(self, bound: int) -> Coverage | None:
        """Return the share of all pairs that a bound keeps, with its interval; None if there are too few units.

        The noise of an edge is weighted by its pairs. So with few units, pairs beyond 500, 200, ... keys per unit are
        left out, down to twice the bound, until the interval is at most about 25 points long. That length is predicted
        from the pairs of at most twice the bound, which have far less noise; so selecting on noise does not reduce the
        coverage of reported intervals.
        """
        caps = [most for most in sorted(EDGES, reverse=True) if most >= min(2 * bound, MOST)]
        pairs, bounded = self.pairs(caps[-1]) - 2 * self.deviation(caps[-1]), self._kept(bound)
        noise = {most: max(np.linalg.norm(bounded), np.linalg.norm(self._kept(most) - bounded)) for most in caps}
        reach = 2 * _DEVIATIONS * self.scale * math.sqrt(2)
        lengths = {most: reach * float(noise[most]) / pairs if pairs > 0 else math.inf for most in caps}
        fitting = [most for most in caps if lengths[most] <= _SHORT] or [caps[-1]]
        return self._share(bound, fitting[0]) if lengths[fitting[0]] <= _LONG else None

    def _share(self, bound: int, most: int) -> Coverage:
        """Return the share of pairs, at most `most` per unit (Fieller's interval).

        For a share r the noise of (pairs kept) - r (all pairs) is a sum of independent Laplace noises with a known
        deviation; r is in the interval if the noisy difference is within 2.12 deviations.
        """
        bounded, capped = self._kept(bound), self._kept(most)
        differences = bounded - _SHARES[:, None] * capped
        deviation = self.scale * math.sqrt(2) * np.sqrt((differences**2).sum(axis=1))
        inside = np.flatnonzero(np.abs(differences @ np.array(self.units)) <= _DEVIATIONS * deviation)
        all_pairs, last = self.pairs(most), len(_SHARES) - 1
        share = self.pairs(bound) / all_pairs if all_pairs > 0 else 1.0
        candidates = [
            *inside.tolist(),
            round(min(max(share, 0.0), 1.0) * last),
        ]  # with little noise, only the nearest share
        low, high = float(_SHARES[max(0, min(candidates) - 1)]), float(_SHARES[min(last, max(candidates) + 1)])
        return Coverage(min(max(share, low), high), low, high, most)

    def _kept(self, bound: int) -> Floats:
        """Return the number of keys that a unit at each edge keeps."""
        if bound not in self.edges:
            raise InvalidValue(f"bound is not an edge of the histogram. Pass one of {', '.join(map(str, self.edges))}.")
        return np.minimum(np.array(self.edges, np.float64), bound)


def units_by_size(sizes: Ints) -> Ints:
    """Return the numbers of units with 0, 1, ..., 1,000 or more keys."""
    return np.bincount(np.minimum(sizes, MOST), minlength=MOST + 1)


def _parts(units: Ints, marks: tuple[int, ...]) -> Ints:
    """Return the sums at the edges, in parts of 2^-16."""
    keys, edges = np.arange(1, MOST + 1), np.array(marks)
    above = np.searchsorted(edges, keys)
    below = np.maximum(above - 1, 0)
    width = np.maximum(edges[above] - edges[below], 1)
    high = np.where(edges[above] == keys, _PARTS, (keys - edges[below]) * _PARTS // width)
    sums = np.zeros(len(edges), np.int64)
    np.add.at(sums, above, units[1:] * high)
    np.add.at(sums, below, units[1:] * (_PARTS - high))
    return sums
