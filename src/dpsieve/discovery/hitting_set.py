"""Hitting sets over keys that nobody listed: discovery, then picks that each remove the units they hit (user peeling).

A pick takes a found key with probability proportional to e^(e0 * count), where count is the number of units that hold
the key and no key picked before. Then these units are removed. There are always k picks, or as many as there are
keys: stopping when all units are hit would tell that they are.

Why the cost does not grow with k. Let D' be D and one unit more, and p the probability under D that the next pick hits
this unit. As long as it is not hit, its keys have weights that are larger by e^e0 under D', and the sum of weights is
larger by s = 1 + (e^e0 - 1) p. When it is hit, it is removed, and both sides draw alike from then on.

- From D' to D: a miss has the loss -ln s <= 0, the hit e0 - ln s, and nothing follows. In all at most e0.
- From D to D': a miss has the loss ln s, and happens with probability 1 - p alone; the hit has ln s - e0. So a large
  loss needs many misses, of which each was likely to be a hit: the unit survives with probability about
  e^(-loss / (e^e0 - 1)), for every number of picks. The exact worst case, over all adaptive sequences of p, is
  `privacy.curves.picks.hitting_delta`, as a law of losses `hitting_law`, and in Renyi terms `hitting_renyi`.

References: T. Dick, M. Joseph and V. Raman, "Missing Mass for Differentially Private Domain Discovery", 2026, Algorithm
4; A. Gupta, K. Ligett, F. McSherry, A. Roth and K. Talwar, "Differentially Private Combinatorial Optimization", SODA
2010, for the idea that elements stop paying once they are covered.
"""

from dataclasses import dataclass

import numpy as np

from dpsieve.accounting.exponential_picks import (
    HITTING_FROM,
    checked_picks,
    hitting_delta,
    hitting_epsilon,
    hitting_law,
    hitting_renyi,
    lemma_epsilon,
    picks_delta,
    picks_law,
)
from dpsieve.discovery.after_selection import (
    TOP,
    KeyPicker,
    checked_analysis,
    chosen_selector,
    largest_pick,
    rest_needed,
)
from dpsieve.discovery.renyi import RenyiSelector, renyi_selection
from dpsieve.discovery.selector import Selector
from dpsieve.engines.true_data import Pairs
from dpsieve.privacy.registry import register
from dpsieve.randomness.picks import noisy_top
from dpsieve.randomness.source import Source
from dpsieve.types import Ints

_LOWER = (
    0.87  # misses have an exponential tail: picks gain 2 to 10 % from a lower power, and selection loses at most 1 %
)


def hitting_keys(
    epsilon: float,
    delta: float,
    max_keys: int,
    k: int,
    *,
    selector: Selector | None = None,
    typical_keys: float | None = None,
    share: float = 0.5,
    analysis: str = "best",
    unit: str = "one row",
) -> "HittingKeys":
    """Return the mechanism that finds keys and picks k of them that together are held by many units.

    The arguments are those of `top_k.top_keys`.
    """
    k, paper = checked_picks(k), checked_analysis(analysis) == "paper"
    chosen = chosen_selector(
        selector,
        max_keys,
        lambda: renyi_selection(
            epsilon, delta, max_keys, typical_keys=typical_keys, share=share, lower=_LOWER, unit=unit
        ),
    )

    def after(selector: RenyiSelector, each: float) -> float:
        return rest_needed(selector, *_number(k, each, 1 - selector.share, selector.epsilon, selector.power))

    by_parts = lemma_epsilon if paper else hitting_epsilon
    each = largest_pick(chosen, epsilon, delta, k=k, after=None if paper else after, by_parts=by_parts)
    return HittingKeys(epsilon, delta, k, each, selector=chosen)


@register("hitting_set")
@dataclass(frozen=True, repr=False)
class HittingKeys(KeyPicker):
    """See `hitting_keys`, `KeyPicker` for the guarantee, and the head of this module for the picks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._together  # noqa: B018  # raises where the fields do not keep the promise

    def pick(self, held: Pairs, source: Source) -> Ints:
        """Return the picked keys, in order, as rows of `held.keys`: found keys, with all that units hold of them."""
        return peel(held, self.k, self.scale, source)

    def _number(self, share: float, epsilon: float, power: float) -> tuple[float, float]:
        return _number(self.k, self.each_epsilon, share, epsilon, power)

    def _divergence(self, order: float) -> float:
        return hitting_renyi(order, self.each_epsilon, self.k)

    def _delta_after(self, epsilon: float) -> float:
        k, each = self.k, self.each_epsilon
        found = hitting_delta(k, epsilon, each_epsilon=each)
        return found if found <= self.delta else min(found, picks_delta(k, epsilon, each_epsilon=each))


def _number(k: int, each: float, share: float, epsilon: float, power: float) -> tuple[float, float]:
    """Return B and the leak of k picks, in the worse direction, by the better of both accounts of them."""
    law = hitting_law(k, each, TOP * epsilon)
    number, leak = max(one.number(share, epsilon, power) for one in (law, law.reversed())), law.leak
    if k < HITTING_FROM:
        plain = picks_law(k, each, TOP * epsilon)
        number, leak = min((number, leak), (plain.number(share, epsilon, power), plain.leak), key=sum)
    return number, leak


def peel(held: Pairs, k: int, scale: float | None, source: Source | None = None) -> Ints:
    """Return k keys, each picked by counts with Gumbel noise, after which the units that hold it are removed.

    With scale None there is no noise: the plain greedy algorithm, which is not private (ties go to the first key).
    """
    from dpsieve.discovery.loops import hit, holders

    counts = held.counts().astype(np.int64)
    begins, units = holders(held.starts, held.key_numbers, len(counts))
    gone, open_ = np.zeros(len(held.starts) - 1, np.bool_), np.ones(len(counts), np.bool_)
    picked = np.empty(min(k, len(counts)), np.int64)
    for at in range(len(picked)):
        left = np.flatnonzero(open_)
        now = counts[left]
        key = left[int(now.argmax()) if scale is None else int(noisy_top(now, 1, scale=scale, source=source)[0])]
        picked[at], open_[key] = key, False
        hit(key, begins, units, held.starts, held.key_numbers, gone, counts)
    return picked


def greedy_keys(held: Pairs, k: int) -> Ints:
    """Return the keys of the plain greedy algorithm. A baseline for figures: it is not private."""
    return peel(held, k, None)


def known_domain_keys(
    held: Pairs, k: int, epsilon: float, delta: float, *, analysis: str = "best", source: Source | None = None
) -> Ints:
    """Return k keys by user peeling over all keys of `held`. A baseline for figures: private if the keys are public."""
    each = (lemma_epsilon if analysis == "paper" else hitting_epsilon)(epsilon, delta, checked_picks(k))
    return peel(held, k, 1 / each, source)
