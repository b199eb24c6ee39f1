"""Discovery, then more: what mechanisms share that first select keys and then tell something about those they found.

Discovery, then picks: what mechanisms share that first select keys and then pick k of them.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

from dpsieve import validate
from dpsieve.accounting.exponential_picks import checked_picks, largest_each
from dpsieve.accounting.products import largest_mu
from dpsieve.accounting.spends import Renyi, Spend
from dpsieve.channels.budget import check_budget
from dpsieve.discovery.renyi import RenyiSelector
from dpsieve.discovery.selector import Selector
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import ball, upper
from dpsieve.privacy.certificate import Certificate, Part, whole_unit
from dpsieve.privacy.composed import remaining
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.privacy.registry import from_json

TOP = 3.0  # times epsilon: up to where curves of picks are computed; beyond it they are a leak
_NO_SELECTORS = ("top_k", "hitting_set", "find_then_count", "composed")


def _selector(data: Any) -> Selector:
    if not isinstance(data, Mapping) or data.get("mechanism") in _NO_SELECTORS:
        raise InvalidValue("selector is not what a selector's to_json returned. Pass that.")
    read = from_json(data)
    if not isinstance(read, Selector):
        raise InvalidValue("selector is a mechanism that selects no keys. Pass what a selector's to_json returned.")
    return read


@dataclass(frozen=True, repr=False)
class AfterSelection(Mechanism):
    """A selector, and something that is told about the keys it found.

    Neighbours are add/remove of one unit with all its keys. The selector sees at most `max_keys` keys of a unit. The
    found keys are an output of the selector, so what follows composes adaptively with it, in one of two ways, of which
    the better counts:

    - in one account (`privacy.stages`), where a selector by coins leaves a share of a unit's weight: what follows is
      dominated by one law of losses whatever the selector showed, and its number must be at most the selector's rest;
    - in parts: the selector's own (epsilon_1, delta_1), and what follows at what is left of epsilon:
      delta = delta_1 + delta_2(epsilon - epsilon_1).

    Attributes:
        epsilon, delta: what is promised to one unit.
        selector: finds the keys.
    """

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"selector": _selector}

    epsilon: float
    delta: float
    _: KW_ONLY
    selector: Selector

    def __post_init__(self) -> None:
        epsilon, delta = check_budget(self.epsilon, self.delta)
        if not isinstance(self.selector, Selector):
            raise InvalidType(
                f"selector must be a selector, not {type(self.selector).__name__}. Pass a RenyiSelection."
            )
        validate.store(self, epsilon=epsilon, delta=delta)

    @cached_property
    def guarantee(self) -> Guarantee:
        """What is promised to one privacy unit."""
        return Guarantee(self.epsilon, self.delta, unit=self.selector.unit)

    @property
    def max_keys(self) -> int:
        """How many keys of a unit the selector sees."""
        return self.selector.max_keys

    @property
    def unit(self) -> str:
        """Who is protected, in words."""
        return self.selector.unit

    @property
    @abstractmethod
    def _words(self) -> str:
        """What follows the selection, in words."""

    @abstractmethod
    def _number(self, share: float, epsilon: float, power: float) -> tuple[float, float]:
        """Return B of everything after the selection, which has this share of the weight, and its leak, rounded up."""

    @abstractmethod
    def _divergence(self, order: float) -> float:
        """Return the Renyi divergence of this order of everything after the selection, rounded up."""

    @abstractmethod
    def _delta_after(self, epsilon: float) -> float:
        """Return the delta of everything after the selection at `epsilon`, rounded up."""

    def spends(self) -> tuple[Spend, ...]:
        """Return what a Renyi selector spends, and what follows at the same orders; else the guarantee."""
        if not isinstance(self.selector, RenyiSelector):
            return super().spends()
        found = self.selector.spends()
        orders = next(spend.orders for spend in found if isinstance(spend, Renyi))
        return *found, Renyi(orders, map(self._divergence, orders))

    @cached_property
    def _together(self) -> Part:
        """What selection and the rest compose to; raises NotCertified where that breaks the promise."""
        words = f"{self.selector.name} selection, then {self._words}"
        chosen = self.selector
        if isinstance(chosen, RenyiSelector) and chosen.share < 1 and chosen.epsilon <= self.epsilon:
            found = rest_needed(chosen, *self._number(1 - chosen.share, chosen.epsilon, chosen.power))
            if found <= chosen.rest and chosen.cost <= self.delta:
                return whole_unit(self.guarantee, chosen.cost, "formula", f"{words}, in one account")
        return whole_unit(self.guarantee, self._parts_cost(), "formula", f"{words}, composed")

    @property
    def steepness(self) -> float:
        """As that of the selector, where both are in one account."""
        one = isinstance(self.selector, RenyiSelector) and self._together.covers.endswith("in one account")
        return self.selector.steepness if one else math.inf

    def _parts_cost(self) -> float:
        promise = self.selector.guarantee
        if promise.epsilon >= self.epsilon or promise.delta >= self.delta:
            return 1.0
        after = self._delta_after(remaining(self.epsilon, promise.epsilon))
        return upper(lambda: ball(promise.delta) + ball(after))

    def certify(self) -> Certificate:
        """Return the parts of the selector, and what selection and the rest compose to."""
        return Certificate(self.guarantee, (*self.selector.certify().parts, self._together))


def rest_needed(selector: RenyiSelector, number: float, leak: float) -> float:
    """Return the least rest of the selector with which what follows may have this B and this leak."""
    part = leak / (selector.leak * (1 - selector.share))
    return number / (1 - part) if part < 1 else math.inf


@dataclass(frozen=True, repr=False)
class KeyPicker(AfterSelection):
    """A selector and k picks among the keys it found, by the exponential mechanism on counts of units.

    The picks see all keys of a unit among those found. A pick takes key i with probability proportional to
    e^(each_epsilon * count_i). See `AfterSelection` for what both cost.

    Attributes:
        k: how many keys are picked at most.
        each_epsilon: of one pick; the Gumbel noise has the scale 1 / each_epsilon.
    """

    k: int
    each_epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        each = validate.between("each_epsilon", self.each_epsilon, 1e-9, 100.0, hint="Pass the saved one.")
        validate.store(self, k=checked_picks(self.k), each_epsilon=each)

    @cached_property
    def scale(self) -> float:
        """The scale of the Gumbel noise, rounded up."""
        return upper(lambda: 1 / ball(self.each_epsilon))

    def __repr__(self) -> str:
        return f"<{self.name} of {self.k:,} keys after {self.selector.name} selection, {self.guarantee}>"

    @property
    def _words(self) -> str:
        return f"{self.k:,} picks of {self.each_epsilon:.4g} each"


def largest_pick(
    selector: Selector,
    epsilon: float,
    delta: float,
    *,
    k: int,
    after: Callable[[RenyiSelector, float], float] | None,
    by_parts: Callable[[float, float, int], float],
) -> float:
    """Return the largest epsilon of each of k picks that the selector leaves room for; refuse one that leaves none.

    `after` returns the rest that picks of some epsilon need in one account; `by_parts` finds the epsilon of a pick from
    an epsilon, a delta and k.
    """
    found = [0.0]
    if after and isinstance(selector, RenyiSelector) and selector.share < 1 and selector.cost <= delta:
        mu = largest_mu(selector.rest, 1 - selector.share, selector.epsilon, selector.power)  # k picks are nearly that
        found.append(largest_each(partial(after, selector), selector.rest, 1.8 * mu / math.sqrt(k)))
    left = remaining(epsilon, selector.guarantee.epsilon), remaining(delta, selector.guarantee.delta)
    if min(left) > 0:
        found.append(by_parts(*left, k))
    if not max(found):
        fix = "Pass one with a part of epsilon and delta, or a Renyi selector with a share below 1."
        raise InvalidValue(f"selector spends all of the budget. {fix}")
    return max(found)


def chosen_selector(selector: Selector | None, max_keys: int, default: Callable[[], Selector]) -> Selector:
    """Return the given selector, which must be for `max_keys`, or the default one."""
    chosen = default() if selector is None else selector
    if not isinstance(chosen, Selector):
        raise InvalidType(f"selector must be a selector, not {type(chosen).__name__}. Leave it out, or pass one.")
    if chosen.max_keys != max_keys:
        raise InvalidValue(f"max_keys={max_keys} is not that of the selector. Pass max_keys={chosen.max_keys}.")
    return chosen


def checked_analysis(analysis: str) -> str:
    """Return 'best' or 'paper'."""
    if not isinstance(analysis, str) or analysis not in ("best", "paper"):
        raise InvalidValue("analysis is not known. Choose 'best', or 'paper' to check a figure.")
    return analysis
