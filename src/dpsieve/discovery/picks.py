"""Top-k and hitting sets over keys that nobody listed: discovery, then picks by the exponential mechanism.

Algorithms 2 to 4 of T. Dick, M. Joseph and V. Raman, "Missing Mass for Differentially Private Domain Discovery" (2026),
with tighter accounts.

**Top-k** (peeling). The counts are of all units that hold a selected key, whatever the selector saw of them; one more
unit raises some of them by one and lowers none, so a pick is e0-bounded-range with e0 = 1 / scale
(`accounting.exponential_picks`). The k largest of the counts with Gumbel noise, drawn once, are distributed like k
picks one after the other (Durfee and Rogers 2019). In one account with the selector the picks enter by the law of
losses of their exact curve (`accounting.products`), which starts with the curve of the noise on their counts, if any.

Counts of the picked keys. One unit raises up to k of them by one. Let n be the number of units, S and G_1, ..., G_k
independent Gaussian noise, rounded to integers. Publish n + S and 2 count_i - n + G_i for each i: one unit moves the
first by 1, and each of the others by 1 or by -1. So this costs a/2 (1/var(S) + k/var(G)) in Renyi terms at order a;
rounding is post-processing. Only the sums of the first with each of the others, halved, are published,
count_i + (S + G_i)/2, from which n cancels. With var(S) = 4 sigma^2 / (sqrt k + 1) and var(G) = 4 sigma^2 sqrt k /
(sqrt k + 1) each count has the standard deviation sigma, for mu = (sqrt k + 1) / (2 sigma): about half the noise of
independent noise, which has sqrt k / sigma (Lebeda, "Better Gaussian Mechanism using Correlated Noise", SOSA 2025).
Whatever was picked, neighbours are no easier to distinguish than Gaussians of this distance.

**Hitting sets** (user peeling). A pick takes a selected key with probability proportional to e^(e0 * count), where
count is the number of units that hold the key and no key picked before. Then these units are removed. There are always
k picks, or as many as there are keys: stopping when all units are hit would reveal that they are.

Why the cost does not grow with k. Let D' be D and one more unit, and p the probability under D that the next pick hits
this unit. Until it is hit, its keys have weights that are larger by e^e0 under D', and the sum of weights is larger by
s = 1 + (e^e0 - 1) p. When it is hit, it is removed, and both sides draw from the same distribution afterwards.

- From D' to D: a miss has the loss -ln s <= 0, the hit e0 - ln s, and nothing follows. In all at most e0.
- From D to D': a miss has the loss ln s, and happens only with probability 1 - p; the hit has ln s - e0. So a large
  loss needs many misses, each of which was likely to be a hit: the unit survives with probability about
  e^(-loss / (e^e0 - 1)), for every number of picks. The exact worst case, over all adaptive sequences of p, is
  `accounting.exponential_picks.hitting_delta`, as a law of losses `hitting_law`, and in Renyi terms `hitting_renyi`.

A. Gupta, K. Ligett, F. McSherry, A. Roth and K. Talwar, "Differentially Private Combinatorial Optimization", SODA 2010,
have the idea that elements stop paying once they are covered.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.accounting.exponential_picks import (
    HITTING_FROM,
    checked_picks,
    hitting_delta,
    hitting_epsilon,
    hitting_law,
    hitting_renyi,
    largest_each,
    picks_delta,
    picks_epsilon,
    picks_law,
    picks_renyi,
)
from dpsieve.accounting.products import largest_mu
from dpsieve.codec import register
from dpsieve.discovery.after_selection import AfterSelection, rest_needed
from dpsieve.discovery.renyi import RenyiSelector, renyi_selection
from dpsieve.discovery.selector import Selector
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import ball, upper
from dpsieve.privacy.mechanism import remaining
from dpsieve.randomness import rounded_gaussian
from dpsieve.randomness.noise import LARGEST_SCALE, SMALLEST_SCALE
from dpsieve.randomness.picks import noisy_top
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints

_TOP = 3.0  # times epsilon: up to where curves of picks are computed; beyond it they count as a leak
_LOWER_AT_20, _LEAST_LOWER = 0.875, 0.78  # factors for the power before a hitting set
_SAVED = "Pass the saved one."


def top_keys(
    epsilon: float,
    delta: float,
    max_keys: int,
    k: int,
    *,
    selector: Selector | None = None,
    typical_keys: float | None = None,
    share: float = 0.15,
    count_share: float = 0.0,
    unit: str = "one row",
) -> "TopKeys":
    """Return the mechanism that selects keys and picks the k most frequent of them.

    Args:
        epsilon, delta: the guarantee of one unit.
        max_keys: the number of keys per unit that the selector sees; the picks count all of them.
        k: the number of keys to pick.
        selector: selects the keys; by default Renyi selection with a `share` of the weight. A Renyi selector for the
            whole (epsilon, delta) with a share below 1 leaves the rest for the picks; any other selector must be for a
            part of epsilon and delta.
        typical_keys: the typical number of keys per unit, a public number, for the default selector.
        share: the part of a unit's weight for the default selector.
        count_share: the part of what the selector leaves that pays for counts of the picked keys.
        unit: the protected unit, as text, for the default selector.

    >>> from dpsieve.randomness import SystemSource
    >>> mechanism = top_keys(1.0, 1e-5, 10, k=20)
    >>> mechanism.pick(np.array([0, 90_000, 50_000]), SystemSource()).tolist()[:2]
    [1, 2]
    """
    k = checked_picks(k)
    count_share = validate.between("count_share", count_share, 0.0, 0.99, hint="Pass a part such as count_share=0.2.")
    if selector is None:
        selector = renyi_selection(epsilon, delta, max_keys, typical_keys=typical_keys, share=share, unit=unit)
    _check_selector(selector, max_keys)
    sigma = 0.0
    if count_share:
        if not isinstance(selector, RenyiSelector) or selector.share == 1:
            raise InvalidValue("count_share needs a Renyi selector that leaves some weight. Pass one with share=0.25.")
        part = (1 - selector.share) * count_share
        sigma = (math.sqrt(k) + 1) / (2 * largest_mu(selector.rest, part, selector.epsilon, selector.power))
    in_parts = None if count_share else picks_epsilon
    each = _largest_pick(selector, epsilon, delta, k, partial(_top_number, k, sigma), in_parts)
    return TopKeys(epsilon, delta, k, each, count_sigma=sigma, selector=selector)


def hitting_keys(
    epsilon: float,
    delta: float,
    max_keys: int,
    k: int,
    *,
    selector: Selector | None = None,
    typical_keys: float | None = None,
    share: float = 0.5,
    unit: str = "one row",
) -> "HittingKeys":
    """Return the mechanism that selects keys and picks k of them that many units hold together.

    The arguments are those of `top_keys`.

    >>> hitting_keys(1.0, 1e-5, 10, k=20)
    <hitting_set of 20 keys after renyi selection, (1, 1e-05)-differential privacy when one row is added or removed.>
    """
    k = checked_picks(k)
    if selector is None:
        selector = renyi_selection(
            epsilon, delta, max_keys, typical_keys=typical_keys, share=share, lower=hitting_lower(k), unit=unit
        )
    _check_selector(selector, max_keys)
    each = _largest_pick(selector, epsilon, delta, k, partial(_hitting_number, k), hitting_epsilon)
    return HittingKeys(epsilon, delta, k, each, selector=selector)


def hitting_lower(k: int) -> float:
    """Return a factor for the power of the selection before k picks that remove hit units.

    Misses have an exponential tail, which is longer for more picks. Every power is sound; the factors were searched for
    keys and noise together.
    """
    return min(1.0, max(_LEAST_LOWER, _LOWER_AT_20 * math.pow(20 / checked_picks(k), 0.125)))


@dataclass(frozen=True, repr=False)
class KeyPicker(AfterSelection):
    """A selector and k picks among the keys it selected, by the exponential mechanism on counts of units.

    The picks see all keys of a unit among those selected. A pick takes key i with probability proportional to
    e^(each_epsilon * count_i). See `AfterSelection` for the cost of both.

    Attributes:
        k: the largest number of picked keys.
        each_epsilon: of one pick; the Gumbel noise has the scale 1 / each_epsilon.
    """

    k: int
    each_epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        each = validate.between("each_epsilon", self.each_epsilon, 1e-9, 100.0, hint=_SAVED)
        validate.store(self, k=checked_picks(self.k), each_epsilon=each)

    @cached_property
    def scale(self) -> float:
        """The scale of the Gumbel noise, rounded up."""
        return upper(lambda: 1 / ball(self.each_epsilon))

    def __repr__(self) -> str:
        return f"<{self.name} of {self.k:,} keys after {self.selector.name} selection, {self.guarantee}>"

    @property
    def _description(self) -> str:
        return f"{self.k:,} picks of {self.each_epsilon:.4g} each"


@register("top_k")
@dataclass(frozen=True, repr=False)
class TopKeys(KeyPicker):
    """See `top_keys`, `KeyPicker` for the guarantee, and the head of this module for the counts.

    Attributes:
        count_sigma: the standard deviation of the noise on the counts of picked keys; 0 for no counts.
    """

    count_sigma: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        sigma = validate.between("count_sigma", self.count_sigma, 0.0, LARGEST_SCALE / 4, hint=_SAVED)
        if 0 < sigma < SMALLEST_SCALE * math.sqrt(self.k):
            raise InvalidValue("count_sigma is too small to be drawn. Pass the saved one.")
        validate.store(self, count_sigma=sigma)
        self._together  # noqa: B018  # raises if the fields break the guarantee

    def find(self, pairs: Pairs, source: Source) -> Ints:
        """Return the places of the picked keys among the selected ones, in noisy order."""
        selected = np.flatnonzero(self.selector.select(pairs.bound(self.max_keys), source))
        return np.asarray(selected[self.pick(pairs.counts()[selected], source)])

    def pick(self, counts: ArrayLike, source: Source) -> Ints:
        """Return the places of the picked keys in noisy order, given the number of units of each selected key."""
        return noisy_top(counts, self.k, scale=self.scale, source=source)

    def noisy_counts(self, counts: ArrayLike, source: Source) -> Floats:
        """Return the counts of the picked keys with noise, in halves; they may be negative."""
        true = validate.integers("counts", counts, hint="Pass the counts of the picked keys.")
        if not self.count_sigma:
            raise InvalidValue("count_sigma is 0: counts were not paid for. Make the mechanism with a count_share.")
        if len(true) > self.k:
            raise InvalidValue(f"counts holds more than k={self.k} keys. Pass the counts of the picked keys.")
        shared, own = _deviations(self.count_sigma, self.k)
        noise = rounded_gaussian(shared, 1, source=source) + rounded_gaussian(own, len(true), source=source)
        return np.asarray(true + noise / 2)

    def half_width(self, level: float = 0.95) -> float:
        """Return h such that a true count is within h of its noisy count with at least this probability."""
        from scipy.special import ndtri

        return float(-ndtri((1 - level) / 2)) * self.count_sigma * (1 + 1e-9) + 0.5

    def _number(self, share: float, epsilon: float, power: float) -> tuple[float, float]:
        return _top_number(self.k, self.count_sigma, self.each_epsilon, share, epsilon, power)

    def _divergence(self, order: float) -> float:
        picks, mu = picks_renyi(order, self.each_epsilon, self.k), _counts_mu(self.count_sigma, self.k)
        return upper(lambda: ball(picks) + ball(order) * ball(mu) ** 2 / 2)

    def _delta_after(self, epsilon: float) -> float:
        return 1.0 if self.count_sigma else picks_delta(self.k, epsilon, each_epsilon=self.each_epsilon)


@register("hitting_set")
@dataclass(frozen=True, repr=False)
class HittingKeys(KeyPicker):
    """See `hitting_keys`, `KeyPicker` for the guarantee, and the head of this module for the picks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._together  # noqa: B018  # raises if the fields break the guarantee

    def find(self, pairs: Pairs, source: Source) -> Ints:
        """Return the places of the picked keys, in order, from all pairs of units and keys."""
        selected = self.selector.select(pairs.bound(self.max_keys), source)
        return np.asarray(np.flatnonzero(selected)[self.pick(pairs.restrict(selected), source)])

    def pick(self, pairs: Pairs, source: Source) -> Ints:
        """Return the picked keys, in order, as rows of `pairs.keys`: all pairs of units and selected keys."""
        return peel(pairs, self.k, self.scale, source)

    def _number(self, share: float, epsilon: float, power: float) -> tuple[float, float]:
        return _hitting_number(self.k, self.each_epsilon, share, epsilon, power)

    def _divergence(self, order: float) -> float:
        return hitting_renyi(order, self.each_epsilon, self.k)

    def _delta_after(self, epsilon: float) -> float:
        k, each = self.k, self.each_epsilon
        delta = hitting_delta(k, epsilon, each_epsilon=each)
        return delta if delta <= self.delta else min(delta, picks_delta(k, epsilon, each_epsilon=each))


def peel(pairs: Pairs, k: int, scale: float | None, source: Source | None = None) -> Ints:
    """Return k keys, each picked by counts with Gumbel noise, after which the units that hold it are removed.

    With scale None there is no noise: the plain greedy algorithm, which is not private (ties go to the first key).
    """
    from dpsieve.discovery.loops import hit, holders

    counts = pairs.counts().astype(np.int64)
    begins, units = holders(pairs.starts, pairs.key_numbers, len(counts))
    gone, is_open = np.zeros(len(pairs.starts) - 1, np.bool_), np.ones(len(counts), np.bool_)
    picked = np.empty(min(k, len(counts)), np.int64)
    for at in range(len(picked)):
        left = np.flatnonzero(is_open)
        now = counts[left]
        key = left[int(now.argmax()) if scale is None else int(noisy_top(now, 1, scale=scale, source=source)[0])]
        picked[at], is_open[key] = key, False
        hit(key, begins, units, pairs.starts, pairs.key_numbers, gone, counts)
    return picked


def _check_selector(selector: Selector, max_keys: int) -> None:
    if not isinstance(selector, Selector):
        raise InvalidType(f"selector must be a selector, not {type(selector).__name__}. Leave it out, or pass one.")
    if selector.max_keys != max_keys:
        raise InvalidValue(f"max_keys={max_keys} is not that of the selector. Pass max_keys={selector.max_keys}.")


def _largest_pick(
    selector: Selector,
    epsilon: float,
    delta: float,
    k: int,
    number: Callable[[float, float, float, float], tuple[float, float]],
    in_parts: Callable[[float, float, int], float] | None,
) -> float:
    """Return the largest epsilon of each of k picks that the selector leaves room for; raise if it leaves none.

    `number` returns B and the leak of picks from the epsilon of a pick, a share, epsilon and power. `in_parts` returns
    the epsilon of a pick from an epsilon, a delta and k; None if only one account is possible.
    """
    largest = 0.0
    if isinstance(selector, RenyiSelector) and selector.share < 1 and selector.cost <= delta:
        place = 1 - selector.share, selector.epsilon, selector.power
        mu = largest_mu(selector.rest, *place)  # k picks cost nearly as much
        largest = largest_each(
            lambda each: rest_needed(selector, *number(each, *place)), selector.rest, 1.8 * mu / math.sqrt(k)
        )
    left = remaining(epsilon, selector.guarantee.epsilon), remaining(delta, selector.guarantee.delta)
    if in_parts and min(left) > 0:
        largest = max(largest, in_parts(*left, k))
    if not largest:
        fix = "Pass one with a part of epsilon and delta, or a Renyi selector with a share below 1."
        raise InvalidValue(f"selector spends all of the budget. {fix}")
    return largest


@lru_cache(maxsize=256)
def _top_number(k: int, sigma: float, each: float, share: float, epsilon: float, power: float) -> tuple[float, float]:
    """Return B and the leak of k picks and, unless sigma is 0, of their counts."""
    law = picks_law(k, each, _TOP * epsilon, _counts_mu(sigma, k))
    return law.number(share, epsilon, power), law.leak


@lru_cache(maxsize=256)
def _hitting_number(k: int, each: float, share: float, epsilon: float, power: float) -> tuple[float, float]:
    """Return B and the leak of k picks, in the worse direction, by the better of two accounts."""
    law = hitting_law(k, each, _TOP * epsilon)
    number, leak = max(side.number(share, epsilon, power) for side in (law, law.reversed())), law.leak
    if k < HITTING_FROM:
        plain = picks_law(k, each, _TOP * epsilon)
        number, leak = min((number, leak), (plain.number(share, epsilon, power), plain.leak), key=sum)
    return number, leak


def _deviations(sigma: float, k: int) -> tuple[float, float]:
    """Return the standard deviations of the shared noise and of each key's own, both in halves of a count."""
    root = math.sqrt(k)
    return 2 * sigma / math.sqrt(root + 1), 2 * sigma * math.sqrt(root / (root + 1))


def _counts_mu(sigma: float, k: int) -> float:
    """Return the distance, in deviations, by which a unit moves noisy counts of k keys, rounded up; 0: none."""
    if not sigma:
        return 0.0
    shared, own = _deviations(sigma, k)
    return upper(lambda: (1 / ball(shared) ** 2 + k / ball(own) ** 2).sqrt())
