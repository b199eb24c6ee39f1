"""Choose how units are bounded, from a private histogram of keys per unit.

A reader takes a count for the number of units that hold the key. Under a bound of m keys per unit it is lower: for
common keys on real data by about half of the share of pairs that the bound drops, as these keys are held by units of
all sizes, and by all of it where most units hold one key. A larger bound needs more noise and reports fewer keys. So a
way to count is described by two estimates. With s the share of pairs kept, h the frequency that is reported half of the
time, and sigma the noise of a count:

- keys: (s^1.3 / h)^1.15, up to a constant. With a Zipf law the number of keys more frequent than h / s is inversely
  proportional to it; the exponents are fitted, since rare keys are held by units with more keys than others.
- error: the mean error of the 100 most common keys, if these hold 30 % of all pairs and follow a Zipf law. A key below
  h is missed; others are off by E|bias + noise|.

Three goals weigh them. 'keys' takes the most keys. 'counts' takes the least error. 'auto', the default, takes the least
error, with the bias counted twice as no interval shows it, among those that find 84 % of the most keys. Where most
units hold a single key, 'auto' may *find first*: 86 % of epsilon find keys where each unit adds one of its keys, and
the rest counts them where each unit adds a few, with Laplace noise.

With few units the histogram is mostly noise. Then all estimates are pulled to a bound of 20 keys, in proportion to the
noise per unit: repeated releases of the same data use similar bounds.

Privacy. All of this is post-processing of the histogram and of public numbers.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from dpsieve.accounting.gaussian import gaussian_sigma
from dpsieve.jobs.mechanisms import SHARE_FOR_BOUND, half_reported
from dpsieve.noise.keys_per_unit import MOST, Sizes
from dpsieve.types import Floats

CANDIDATES = (1, 2, 3, 5, 7, 10, 14, 20, 30, 40, 50, 70, 100, 140, 200)
FOUND_FIRST = (2, 3, 5, 7)
_MEASURED = (1, 2, 3, 5, 10, 20, 50, 100, 200)
SHARE_TO_FIND = 0.86  # of epsilon, where keys are found first
_LEAST_KEYS = 0.84  # share of the most keys
_RARER, _STEEPER = 1.3, 1.15  # exponents of the estimated number of keys
_COMMON = 0.003 / np.arange(1, 101) * (100 / np.sum(1 / np.arange(1, 101)))  # shares of pairs of the 100 common keys
_BIAS, _BIAS_OF_FEW, _FEW_KEYS = 0.5, 1.0, 2
_TWICE = 2.0  # the weight of a bias that no interval shows
_USUAL, _PULL = 20, 8.0  # the bound without information, and how strong the pull is
_MANY_UNITS, _MANY_KEYS = 20_000, 20  # from here on two steps count best; units at epsilon 1


class Way(NamedTuple):
    """A way to count: `keys` per unit at once, after keys were found with one key per unit, or in two steps."""

    kind: str  # 'at_once', 'find_first' or 'two_steps'
    keys: int


class _Estimates(NamedTuple):
    keys: float
    error: float


def choose_way(sizes: Sizes, epsilon: float, delta: float, goal: str, finds_first: bool) -> Way:
    """Return how to count for a goal, given the private histogram; see the head of this module.

    Args:
        sizes: the histogram.
        epsilon, delta: the budget that is left for it.
        goal: 'auto', 'keys' or 'counts'.
        finds_first: whether the engine can count keys that were found before.
    """
    at_once = dict(_at_once(sizes, epsilon, delta, _TWICE if goal == "auto" else 1.0))
    if goal == "keys":
        return max(at_once, key=lambda way: at_once[way].keys)
    if goal == "counts":
        best = min(at_once, key=lambda way: at_once[way].error)
        many = best.keys >= _MANY_KEYS and float(sizes.smooth.sum()) * epsilon >= _MANY_UNITS
        return Way("two_steps", MOST) if many else best
    least = _LEAST_KEYS * max(estimates.keys for estimates in at_once.values())
    ways = at_once | (dict(_find_first(sizes, epsilon, delta)) if finds_first else {})
    return min((way for way in ways if ways[way].keys >= least), key=lambda way: ways[way].error)


def _at_once(sizes: Sizes, epsilon: float, delta: float, weight: float) -> Iterator[tuple[Way, _Estimates]]:
    """Yield every bound, reported and counted in one step; `weight` multiplies the bias."""
    one_key = gaussian_sigma(epsilon, delta)
    for keys in CANDIDATES:
        sigma = min(one_key * math.sqrt(keys), 1.4 * keys / epsilon)

        def off(bias: Floats, sigma: float = sigma) -> Floats:
            noise = sigma * math.sqrt(2 / math.pi) * np.exp(-((bias / sigma) ** 2) / 2)
            return np.asarray(noise + bias * (1 - 2 * ndtr(-bias / sigma)))

        share, half = sizes.smooth_share(keys), _half(epsilon, delta, keys)
        pull = 1 + _uncertainty(sizes) * abs(math.log(keys / _USUAL))
        yield Way("at_once", keys), _estimate(sizes, share, share, half, weight * _bias(sizes), off, pull)


def _find_first(sizes: Sizes, epsilon: float, delta: float) -> Iterator[tuple[Way, _Estimates]]:
    """Yield every bound under which keys are counted that were found with one key per unit."""
    half, first = _half_found(epsilon * SHARE_TO_FIND, delta), sizes.smooth_share(1)
    for keys in FOUND_FIRST:
        scale = keys / (epsilon * (1 - SHARE_TO_FIND))

        def off(bias: Floats, scale: float = scale) -> Floats:
            return np.asarray(bias + scale * np.exp(-bias / scale))

        pull = 1 + _uncertainty(sizes) * math.log(2)
        counted = sizes.smooth_share(keys)
        yield Way("find_first", keys), _estimate(sizes, first, counted, half, _TWICE * _bias(sizes), off, pull)


def _estimate(
    sizes: Sizes, found: float, counted: float, half: float, weight: float, off: Callable[[Floats], Floats], pull: float
) -> _Estimates:
    """Return the estimates, given the shares of pairs that find keys and that are counted."""
    common = _COMMON * float(sizes.smooth @ np.array(sizes.edges))
    bias = weight * common * (1 - counted)
    error = np.where(found * common >= half, off(bias), common)
    return _Estimates((found**_RARER / half) ** _STEEPER, float(error.mean()) * pull)


def _bias(sizes: Sizes) -> float:
    """Return the bias of common keys, over the share of pairs that is dropped."""
    return _BIAS if typical_keys(sizes) > _FEW_KEYS else _BIAS_OF_FEW


def _uncertainty(sizes: Sizes) -> float:
    return _PULL * sizes.scale / max(float(sizes.smooth.sum()), 1.0)


def _half(epsilon: float, delta: float, keys: int) -> float:
    """Return about the frequency that is reported half of the time, interpolated between some bounds."""
    return math.exp(np.interp(math.log(keys), np.log(_MEASURED), _log_halves(epsilon, delta)))


@lru_cache(maxsize=32)
def _half_found(epsilon: float, delta: float) -> float:
    return half_reported(epsilon, delta, 1)


@lru_cache(maxsize=32)
def _log_halves(epsilon: float, delta: float) -> Floats:
    return np.log([half_reported(epsilon, delta, keys) for keys in _MEASURED])


def typical_keys(sizes: Sizes) -> int:
    """Return about the median number of keys per unit."""
    units = np.cumsum(sizes.smooth)
    return sizes.edges[int(np.searchsorted(units, units[-1] / 2))]


def describe_choice(epsilon: float, delta: float) -> str:
    """Return the words for a bound that is still to be chosen."""
    some = ", ".join(f"{_half(epsilon, delta, keys):,.0f} with at most {keys}" for keys in (1, 10, 100))
    cost = f"for {SHARE_FOR_BOUND:.0%} of epsilon".replace("%", " %")
    span = f"at most {CANDIDATES[0]} to {CANDIDATES[-1]} keys, chosen privately {cost}"
    return f"{span}; a key is reported half of the time at the frequency {some}"
