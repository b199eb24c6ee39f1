"""Choose how units are counted, from a private histogram of keys per unit.

A reader takes a count for the number of units that hold the key. Under a bound of m keys per unit it is lower, and a
larger bound needs more noise and reports fewer keys. There are three kinds of ways to count:

- *at once*: one bound, and one mechanism that reports and counts;
- *find first*: where most units hold few keys, and there are some thousand pairs, units find keys with what they do not
  need to be counted in up to m of them, with Laplace noise: nearly all where they hold one key, nothing where they hold
  m (`discovery.divided_units`);
- *two steps*: a share of a unit's weight finds keys, and the rest counts them (`discovery.find_then_count`).

**Estimates.** Each way has two, from the histogram and public numbers. With s the share of pairs that is kept and h the
frequency that is reported half of the time:

- keys: (s^1.3 / h)^1.15, up to a constant. By a Zipf law it would be s / h; the exponents are fitted, as rare keys are
  held by units with more keys than others. To find first, s is the share of the weight for it, to the power of 0.8. Two
  steps with the whole weight find 1.05 times the keys of the best bound if there are many pairs, and with a share of
  the weight h grows to share^-0.29 h, as the tables of `discovery.renyi` do for units of 8 to 20 keys.
- error: the mean error of the 100 most common keys, if these hold 30 % of all pairs, in proportion to
  1/(rank + 5). A unit with d keys holds about d^0.8 of them, up to a factor, and at most all. So a bound m
  drops the share 1 - m/d of these, while two steps drop those beyond the m that rank highest. A key is reported with a
  probability that rises around h, and is then counted as no less than the least count of the mechanism.

**Goals.** 'keys' takes the most keys, 'counts' the least error among ways that find half of the most keys, or 80 % in
two steps, and 'auto', the default, among those that find 80 to 87 % of them. It counts the bias of a bound twice, as no
interval shows it, but takes no way that another one beats in keys and error. Where units typically hold one or two
keys, common keys are more than 30 % of all pairs, so bias counts twice in every error. Of errors within 3 %, the one
with about the most keys is taken, as among bounds whose errors are below 0.5 % of the common counts.

**Few units.** For few units differences are often noise of the histogram. The dead zone in which ways are alike grows
with the noise per unit; within it the bound next to 20 is taken. So repeated releases use the same or similar bounds.

Privacy. All of this is post-processing of the histogram and of public numbers.
"""

import math
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtr, pdtr

from dpsieve.accounting.curves import gaussian_sigma
from dpsieve.discovery.divided_units import DividedUnits
from dpsieve.discovery.find_then_count import CANDIDATES as COUNTED_IN
from dpsieve.display import log
from dpsieve.engines.true_data import CountedByBound, Pairs
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.jobs.mechanisms import CHOSEN, SHARE_FOR_BOUND, half_reported
from dpsieve.jobs.request import FEW_KEYS, ReleaseRequest
from dpsieve.noise.keys_per_unit import MOST, Sizes
from dpsieve.types import Floats

AT_ONCE, FIND_FIRST, TWO_STEPS = "at_once", "find_first", "two_steps"
CANDIDATES = (1, 2, 3, 5, 7, 10, 14, 20, 30, 40, 50, 70, 100, 140, 200)
FOUND_FIRST = (3, 5, 7, 10, 14)  # with 2, units of two keys would find none; with more, noise hides rare keys
SHARES = (0.4, 0.5, 0.6, 0.7, 0.8)  # of a unit's weight, to find keys in two steps
_MEASURED = (1, 2, 3, 5, 10, 20, 50, 100, 200)
_LEAST_KEYS = {"auto": {AT_ONCE: 0.84, FIND_FIRST: 0.8, TWO_STEPS: 0.87}}  # shares of the most keys
_LEAST_KEYS["counts"] = {AT_ONCE: 0.5, FIND_FIRST: 0.5, TWO_STEPS: 0.8}
_RARER, _FOUND, _STEEPER = 1.3, 0.8, 1.15  # exponents of the estimated number of keys; the second to find first
_WHOLE_WEIGHT, _SHALLOW = 1.05, 0.29  # of two steps; see the head of this module
_MANY_PAIRS, _SEVERAL, _SOME_PAIRS = 120_000, 2.5, 5_000  # at epsilon 1, and per unit, for two steps; to find first
_COMMON = 0.3 / np.arange(6, 106) / np.sum(1 / np.arange(6, 106))  # shares of pairs of the 100 most common keys
_CONCAVE = 0.8
_LAPLACE = math.sqrt(math.pi / 2)  # the deviation of a normal law with the mean error of Laplace noise of scale 1
_TWICE = 2.0  # the weight of a bias that no interval shows
_MORE_NOISE, _MARGIN = 1.05, 1.1  # two steps also pay for choices, and their estimates are less certain
_EXACT = 0.005  # of common counts
_ALIKE, _NEARLY = 0.03, 0.1  # relative differences of errors, and of keys
_DEAD_ZONE = 4.0  # of both, times the noise per unit
_USUAL = 20  # the bound without information

Halves = Callable[[float, float, int], float]


class Way(NamedTuple):
    """A way to count: at most `keys` per unit, and `share` is that of the budget which finds keys before.

    In two steps `keys` is None: how many of the found keys a unit is counted in is chosen when these are known.
    """

    kind: str
    keys: int | None
    share: float = 0.0


class _Estimates(NamedTuple):
    keys: float
    error: float
    cost: float  # the error where bias weighs more

    def is_worse(self, other: "_Estimates", zone: float) -> bool:
        """Return whether another way has both more keys and less error, by more than a dead zone."""
        return other.keys > (1 + zone) * self.keys and other.error < self.error / (1 + zone)


def choose_way(
    sizes: Sizes,
    epsilon: float,
    delta: float,
    goal: str,
    kinds: Collection[str] = (AT_ONCE,),
    halves: Halves = half_reported,
) -> Way:
    """Return how to count for a goal, given the private histogram; see the head of this module.

    Args:
        sizes: the histogram.
        epsilon, delta: the budget that is left for it.
        goal: 'auto', 'keys' or 'counts'.
        kinds: what the engine and the request allow beside a bound.
        halves: returns the frequency reported half of the time at (epsilon, delta) under a bound.
    """
    estimate = _Estimate(sizes, epsilon, delta)
    ways = dict(estimate.at_once(halves))
    most = max(ways.values()).keys
    if goal == "keys":
        return max(ways, key=lambda way: ways[way].keys)
    few = typical_keys(sizes) <= FEW_KEYS
    if FIND_FIRST in kinds and few and estimate.pairs * epsilon >= _SOME_PAIRS:
        ways |= dict(estimate.find_first(halves))
    if TWO_STEPS in kinds and estimate.pairs >= max(_MANY_PAIRS / epsilon, _SEVERAL * estimate.number):
        ways |= dict(estimate.two_steps(most))
    ways = {way: each for way, each in ways.items() if each.keys >= _LEAST_KEYS[goal][way.kind] * most}
    ways = {way: each._replace(error=each.cost) for way, each in ways.items()} if few else ways
    zone = _DEAD_ZONE * estimate.noise_per_unit
    cost = {way: each.error for way, each in ways.items()}
    if goal == "auto":
        beaten = {way for way in ways if any(ways[way].is_worse(other, zone) for other in ways.values())}
        cost = {way: each.cost for way, each in ways.items() if way not in beaten}
    exact = [way for way in ways if way.kind == AT_ONCE and ways[way].error <= _EXACT * estimate.common.mean()]
    if exact:
        return max(exact, key=lambda way: ways[way].keys)
    reach = min(cost.values()) * (1 + _ALIKE + zone)
    alike = {way: ways[way].keys for way in cost if cost[way] <= reach}
    fewest = max(alike.values()) * (1 - min(1.0, _NEARLY + 2 * zone))
    return min((way for way in alike if alike[way] >= fewest), key=_unusual)


def _unusual(way: Way) -> tuple[bool, float]:
    return way.kind != AT_ONCE, abs(math.log((way.keys or _USUAL) / _USUAL))


class _Estimate:
    """The estimates of all ways for a histogram and a budget."""

    def __init__(self, sizes: Sizes, epsilon: float, delta: float) -> None:
        self.epsilon, self.delta = epsilon, delta
        self.smooth_share, self.units, self.edges = sizes.smooth_share, sizes.smooth, np.array(sizes.edges, np.float64)
        self.one_key = gaussian_sigma(epsilon, delta)
        self.number = max(float(self.units.sum()), 1.0)
        self.noise_per_unit, self.pairs = sizes.scale / self.number, float(self.units @ self.edges)
        self.common = np.minimum(_COMMON * self.pairs, self.number)  # units that hold the common keys
        concave = self.edges**_CONCAVE
        factor = float(self.common.sum()) / max(float(self.units @ concave), 1.0)
        self.common_keys = np.minimum(concave * factor, len(_COMMON))  # of a unit at each edge
        self._common_pairs = max(float(self.units @ self.common_keys), 1e-9)

    def at_once(self, halves: Halves) -> Iterator[tuple[Way, _Estimates]]:
        """Yield every bound, reported and counted in one step."""
        measured = _log_halves(self.epsilon, self.delta, halves)
        shares = list(map(self.smooth_share, CANDIDATES))
        for keys, share in zip(CANDIDATES, shares, strict=True):
            half = math.exp(np.interp(math.log(keys), np.log(_MEASURED), measured))
            noise = min(self.one_key * math.sqrt(keys), 1.4 * keys / self.epsilon)
            least = half * (1.08 + 0.07 * math.log(keys)) if keys > 1 else half
            dropped = self._dropped(keys)
            reported = self._reported(dropped, half, 0.05 + 0.04 * math.log(keys))
            errors = (self._error(reported, weight * dropped, noise, least) for weight in (1.0, _TWICE))
            yield Way(AT_ONCE, keys), _Estimates(_keys(half / share**_RARER), *errors)

    def find_first(self, halves: Halves) -> Iterator[tuple[Way, _Estimates]]:
        """Yield every bound of units that are counted in keys which they find with what they do not need for that."""
        half = halves(self.epsilon, self.delta, 1)
        for keys in FOUND_FIRST:
            parts = np.maximum(0.0, keys - self.edges) / (keys - 1)  # of a unit, to find keys
            share = float(self.units @ parts) / max(self.pairs, 1e-9)
            unseen = 1 - float(self.units @ (self.common_keys * parts / self.edges)) / self._common_pairs
            reported = self._reported(unseen, half, 0.05)
            error = self._error(reported, _TWICE * self._dropped(keys), _LAPLACE * keys / self.epsilon)
            yield Way(FIND_FIRST, keys), _Estimates(_keys(half / max(share, 1e-9) ** _FOUND), error, error)

    def two_steps(self, most: float) -> Iterator[tuple[Way, _Estimates]]:
        """Yield two steps with every share of the weight; `most` is the largest estimate of keys of a bound."""
        whole = (_WHOLE_WEIGHT * most) ** (-1 / _STEEPER)
        for share in SHARES:
            half, noise = whole * share**-_SHALLOW, _MORE_NOISE * self.one_key / math.sqrt(1 - share)
            reported = self._reported(0.0, half, 0.2)
            bounds = ((self._beyond(keys), noise * math.sqrt(keys)) for keys in COUNTED_IN)
            error = _MARGIN * min(self._error(reported, *bound) for bound in bounds)
            yield Way(TWO_STEPS, None, share), _Estimates(_keys(half), error, error)

    def _dropped(self, keys: int) -> float:
        """Return the share of pairs with common keys that a bound drops."""
        dropped = self.common_keys * (1 - np.minimum(1.0, keys / self.edges))
        return float(self.units @ dropped) / self._common_pairs

    def _beyond(self, keys: int) -> float:
        """Return the share of these pairs beyond the common keys that rank highest, by a Poisson law."""
        mean = self.common_keys
        beyond = mean * (1 - pdtr(keys - 1, mean)) - keys * (1 - pdtr(keys, mean))
        return float(self.units @ beyond) / self._common_pairs

    def _reported(self, dropped: float, half: float, spread: float) -> Floats:
        """Return the probabilities that common keys are reported."""
        return np.asarray(expit((self.common * (1 - dropped) - half) / (spread * half)))

    def _error(self, reported: Floats, dropped: float, noise: float, least: float = 0.0) -> float:
        """Return the mean error of common keys; one that is not reported is off by its count."""
        counted = self.common * (1 - min(1.0, dropped))
        bias = np.abs(np.maximum(counted, least) - self.common)
        off = noise * math.sqrt(2 / math.pi) * np.exp(-((bias / noise) ** 2) / 2) + bias * (1 - 2 * ndtr(-bias / noise))
        return float((reported * off + (1 - reported) * self.common).mean())


def _keys(half: float) -> float:
    return math.pow(half, -_STEEPER)


@lru_cache(maxsize=32)
def _log_halves(epsilon: float, delta: float, halves: Halves) -> Floats:
    return np.log([halves(epsilon, delta, keys) for keys in _MEASURED])


def allowed_kinds(request: ReleaseRequest, epsilon: float, counts: CountedByBound, sizes: Sizes) -> frozenset[str]:
    """Return the kinds of ways that the request and the engine allow, from public and private numbers alone."""
    if request.method != "auto" or not pairs_fit(sizes, counts):
        return frozenset({AT_ONCE})
    return frozenset({AT_ONCE, TWO_STEPS, *([FIND_FIRST] if can_divide(request, epsilon) else [])})


def can_divide(request: ReleaseRequest, epsilon: float) -> bool:
    """Return whether keys can be found first under each bound with what is left of epsilon, by public numbers."""
    try:
        DividedUnits(epsilon, request.delta, FOUND_FIRST[-1], request.min_units)
    except InvalidValue:
        return False
    return True


def pairs_fit(sizes: Sizes, counts: CountedByBound) -> bool:
    """Return whether all pairs fit into memory, as two steps need.

    The private histogram and the settings decide, never the size of the data: it would show in the way that is taken.
    With the margin of forty deviations of the noise, pairs that do not fit are as good as never read.
    """
    return sizes.pairs(MOST) + 40 * sizes.deviation(MOST) <= counts.most_pairs


def read_pairs_again(counts: CountedByBound) -> Pairs | None:
    """Return all pairs; None where they were not held and the data cannot be read again: it is paid for by now."""
    try:
        return counts.read_pairs()
    except DpsieveError:
        log.warning("the data cannot be read again; it is counted with a bound")
        return None


def typical_keys(sizes: Sizes) -> int:
    """Return about the median number of keys per unit."""
    units = np.cumsum(sizes.smooth)
    return sizes.edges[int(np.searchsorted(units, units[-1] / 2))]


def describe_choice(epsilon: float, delta: float) -> str:
    """Return the words for a bound that is still to be chosen."""
    some = ", ".join(f"{half_reported(epsilon, delta, keys):,.0f} with at most {keys}" for keys in (1, 10, 100))
    cost = f"for {SHARE_FOR_BOUND:.0%} of epsilon".replace("%", " %")
    span = f"at most {CANDIDATES[0]} to {CANDIDATES[-1]} keys{CHOSEN} {cost}"
    return f"{span}; a key is reported half of the time at the frequency {some}"
