"""A private histogram of keys per unit, from which a bound is chosen and its coverage is estimated."""

import math
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache
from typing import Annotated

import numpy as np
from scipy.special import ndtr

from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.privacy.certificate import Certificate, laplace
from dpsieve.privacy.guarantee import Unit
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.noise import LARGEST_SCALE, discrete_laplace, laplace_scale
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import Checked, is_between, is_choice, is_whole

EDGES = (1, 2, 3, 5, 7, 10, 14, 20, 30, 40, 50, 70, 100, 140, 200, 500, 1000)
MOST = EDGES[-1]
KINDS_OF_KEYS = ("a key", "a published key")
_LONGEST = 0.3  # interval of a share that is stated
_PARTS = 1 << 16  # per unit
_DEVIATIONS = 2.12  # 95 % of a Laplace distribution are within 2.12 standard deviations, and more of a sum of several
_SHARES = np.linspace(0.0, 1.0, 2001)
_MIDDLES, _SPREADS = np.linspace(-2.0, 5.5, 46), np.geomspace(0.1, 2.2, 16)  # of the logarithm of sizes
_COST = "Pass the part of the budget that buys the histogram, such as epsilon=0.01."
_INTERVAL = "Pass a share with its interval."
_Share = Annotated[float, is_between(0.0, 1.0, _INTERVAL)]
_TOLERANCE, _TOLERANCE_OF_FAR, _FAR = 1.5, 6.0, 200  # standard deviations
_FEW, _OF_FEW = 10.0, 2.0  # times the noise per pair, which is added to the first of these; and the largest sum
_LONG_TAILED = 3.0  # for the sum of one Laplace noise it is four times as many


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

    epsilon: Annotated[float, is_between(2 * _PARTS / LARGEST_SCALE, 500.0, _COST)]
    bound: Annotated[int, is_whole(1, MOST, f"Pass how many keys a unit may add, up to {MOST:,}.")] = 1
    _: KW_ONLY
    unit: Unit = "one row"

    @cached_property
    def scale(self) -> float:
        """The scale of the noise, in parts."""
        return laplace_scale(self.epsilon, _PARTS)

    @cached_property
    def edges(self) -> tuple[int, ...]:
        """The numbers of keys at which units are counted."""
        return tuple(sorted({*EDGES, self.bound}))

    def certify(self) -> Certificate:
        covers = f"discrete Laplace noise on {len(self.edges)} sums to which a unit adds 1 in all"
        return laplace(self.guarantee, self.scale, _PARTS, covers)

    def draw(self, units: Ints, source: Source) -> "Sizes":
        """Return the noisy histogram; `units` are the numbers of units with 0, 1, ..., 1,000 or more keys.

        Units without keys are not counted.
        """
        parts = _parts(units, self.edges) + discrete_laplace(self.scale, len(self.edges), source=source)
        return Sizes(self.edges, tuple((parts / _PARTS).tolist()), self.scale / _PARTS)


@register("coverage")
@dataclass(frozen=True)
class Coverage(Checked):
    """The share of all (unit, key) pairs that a bound keeps, with a 95 % confidence interval.

    Units with more than 1,000 keys count as 1,000. `key` names the kind of keys.

    >>> print(Coverage(0.958, 0.931, 0.982))
    about 4 % (1 to 7 %) of all pairs of a unit and a key are not counted
    """

    share: _Share
    low: _Share
    high: _Share
    key: Annotated[str, is_choice(*KINDS_OF_KEYS)] = "a key"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low <= self.share <= self.high:
            raise InvalidValue(f"coverage is not a share within its interval. {_INTERVAL}")

    def __str__(self) -> str:
        least, most = math.floor(100 * (1 - self.high)), math.ceil(100 * (1 - self.low))
        share = f"about {100 * (1 - self.share):.0f} % ({least} to {most} %)"
        return f"{share} of all pairs of a unit and {self.key} are not counted"


@dataclass(frozen=True)
class Sizes:
    """A private histogram: about `units[i]` units hold about edges[i] keys, with Laplace noise of this scale.

    >>> sizes = Sizes(EDGES, (50.0, 0.0, 0.0, 50.0, *[0.0] * 13), 0.001)  # 50 units with 1 key, 50 with 5
    >>> sizes.kept(1)
    Coverage(share=0.333..., low=0.32..., high=0.33..., key='a key')
    """

    edges: tuple[int, ...]
    units: tuple[float, ...]
    scale: float

    @cached_property
    def smooth(self) -> Floats:
        """The estimated number of units at each edge, with less noise and some bias; for choices only.

        A log-normal law of sizes is fitted to the histogram, with a weak prior that decides where there are few units.
        Then the numbers of units from each edge on are corrected where the histogram surely differs from the fit:
        docs/background/tables.md#a-smooth-histogram-of-keys-per-unit.
        """
        laws, penalty = _laws(self.edges)
        noisy = np.array(self.units)
        totals = np.maximum(laws @ noisy / (laws**2).sum(axis=1), 1.0)
        misfit = ((noisy - totals[:, None] * laws) ** 2).sum(axis=1) / (2 * self.scale) ** 2
        best = int(np.argmin(misfit + penalty))
        fitted, counted = _from_each_on(totals[best] * laws[best]), _from_each_on(noisy)
        summed, edges = np.arange(len(noisy), 0, -1), np.array(self.edges)
        deviation = self.scale * np.sqrt(2 * summed)
        noise_per_pair = self.scale / float(totals[best] * laws[best] @ edges)
        least = np.minimum(_TOLERANCE + _FEW * noise_per_pair * edges, _OF_FEW) * (1 + _LONG_TAILED / summed)
        least, uncorrected = np.where(edges > _FAR, _TOLERANCE_OF_FAR, [least, np.ones(len(noisy))])
        difference = (counted - fitted) / deviation
        beyond = np.where(np.abs(difference) > least, difference - np.sign(difference) * uncorrected, 0.0)
        corrected = fitted + beyond * deviation
        units = -np.diff(np.maximum.accumulate(np.maximum(corrected, 0)[::-1])[::-1], append=0.0)
        return np.asarray(units)

    def smooth_share(self, bound: int) -> float:
        """Return the estimated share of pairs that a bound keeps, by `smooth`."""
        pairs = self.smooth @ np.array(self.edges, np.float64)
        return float(self.smooth @ self._kept(bound) / pairs) if pairs > 0 else 1.0

    def pairs(self, bound: int) -> float:
        """Return the estimated number of (unit, key) pairs if each unit keeps at most `bound` keys; at least 0."""
        return max(0.0, float(np.array(self.units) @ self._kept(bound)))

    def deviation(self, bound: int) -> float:
        """Return the standard deviation of `pairs`."""
        return self.scale * math.sqrt(2 * float((self._kept(bound) ** 2).sum()))

    def kept(self, bound: int) -> Coverage | None:
        """Return the share of all pairs that a bound keeps, with its interval; None if noise hides it.

        Units with more than 1,000 keys count as 1,000. The length of an interval decides whether it is stated; it is
        predicted from the number of pairs of at most twice the bound, which hardly depends on the noise in the share.
        """
        few = min(most for most in self.edges if most >= min(2 * bound, MOST))
        pairs, bounded = self.pairs(few) - 2 * self.deviation(few), self._kept(bound)
        noise = max(np.linalg.norm(bounded), np.linalg.norm(self._kept(MOST) - bounded))
        length = 2 * _DEVIATIONS * self.scale * math.sqrt(2) * float(noise) / pairs if pairs > 0 else math.inf
        return self._share(bound) if length <= _LONGEST else None

    def _share(self, bound: int) -> Coverage:
        """Return the share of pairs (Fieller's interval).

        For a share r the noise of (pairs kept) - r (all pairs) is a sum of independent Laplace noises with a known
        deviation; r is in the interval if the noisy difference is within 2.12 deviations.
        """
        differences = self._kept(bound) - _SHARES[:, None] * self._kept(MOST)
        deviation = self.scale * math.sqrt(2) * np.sqrt((differences**2).sum(axis=1))
        inside = np.flatnonzero(np.abs(differences @ np.array(self.units)) <= _DEVIATIONS * deviation)
        all_pairs, last = self.pairs(MOST), len(_SHARES) - 1
        share = self.pairs(bound) / all_pairs if all_pairs > 0 else 1.0
        nearest = round(min(max(share, 0.0), 1.0) * last)
        candidates = [*inside.tolist(), nearest]  # with little noise, only the nearest share
        low, high = float(_SHARES[max(0, min(candidates) - 1)]), float(_SHARES[min(last, max(candidates) + 1)])
        return Coverage(min(max(share, low), high), low, high)

    def _kept(self, bound: int) -> Floats:
        """Return the number of keys that a unit at each edge keeps."""
        if bound not in self.edges:
            raise InvalidValue(f"bound is not an edge of the histogram. Pass one of {', '.join(map(str, self.edges))}.")
        return np.minimum(np.array(self.edges, np.float64), bound)


def units_by_size(sizes: Ints) -> Ints:
    """Return the numbers of units with 0, 1, ..., 1,000 or more keys."""
    return np.bincount(np.minimum(sizes, MOST), minlength=MOST + 1)


@lru_cache(maxsize=4)
def _laws(edges: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Return the shares of units at the edges under log-normal laws of sizes, and minus the log of their prior."""
    middle, spread = (grid.ravel() for grid in np.meshgrid(_MIDDLES, _SPREADS, indexing="ij"))
    ends = np.log(np.arange(1, MOST) + 0.5)
    below = ndtr((ends - middle[:, None]) / spread[:, None])
    shares = np.diff(below, prepend=0.0, append=1.0)
    prior = ((middle - math.log(5)) / 1.5) ** 2 / 2 + (np.log(spread) / 0.7) ** 2 / 2
    return shares @ _weights(edges), prior


def _from_each_on(units: Floats) -> Floats:
    return np.cumsum(units[::-1])[::-1]


def _weights(edges: tuple[int, ...]) -> Floats:
    """Return what a unit with 1, 2, ..., 1,000 keys adds to each edge."""
    keys = np.arange(1, MOST + 1)
    return np.column_stack([np.interp(keys, edges, np.eye(len(edges))[place]) for place in range(len(edges))])


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
