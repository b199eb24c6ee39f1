"""Discovery, then picks: what mechanisms share that first select keys and then pick k of them."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar

from dpsieve import validate
from dpsieve.channels.makers import unknown_domain
from dpsieve.discovery.renyi_selection import RenyiSelector
from dpsieve.discovery.selector import Selector
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.search import ball, upper
from dpsieve.privacy.certificate import Certificate, Method, Part, whole_unit
from dpsieve.privacy.composed import remaining
from dpsieve.privacy.curves.picks import checked_picks
from dpsieve.privacy.curves.renyi import renyi_delta, renyi_tau
from dpsieve.privacy.curves.spends import Renyi, Spend
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.privacy.registry import from_json

_SAVED = "Pass the saved one."


def _selector(data: Any) -> Selector:
    if not isinstance(data, Mapping) or data.get("mechanism") in ("top_k", "hitting_set", "composed"):
        raise InvalidValue("selector is not what a selector's to_json returned. Pass that.")
    read = from_json(data)
    if not isinstance(read, Selector):
        raise InvalidValue("selector is a mechanism that selects no keys. Pass what a selector's to_json returned.")
    return read


@dataclass(frozen=True, repr=False)
class KeyPicker(Mechanism):
    """A selector and k picks among the keys it found, by the exponential mechanism on counts of units.

    Neighbours are add/remove of one unit with all its keys. The selector sees at most `max_keys` keys of a unit; the
    picks see all of its keys among those found. A pick takes key i with probability proportional to
    e^(each_epsilon * count_i). The found keys are an output of the selector, so picks among them compose adaptively
    with it, in one of two ways, of which the better counts:

    - in Renyi terms, where the selector is leak-approximately (order, tau)-Renyi private: the picks add some tau at
      the same order, and delta = leak + renyi_delta(order, sum of all taus, epsilon);
    - in parts: the selector's own (epsilon_1, delta_1), and the picks at what is left of epsilon:
      delta = delta_1 + delta_2(epsilon - epsilon_1).

    Attributes:
        epsilon, delta: what is promised to one unit.
        k: how many keys are picked at most.
        each_epsilon: of one pick; the Gumbel noise has the scale 1 / each_epsilon.
        selector: finds the keys.
    """

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"selector": _selector}

    epsilon: float
    delta: float
    k: int
    each_epsilon: float
    _: KW_ONLY
    selector: Selector

    def __post_init__(self) -> None:
        epsilon, delta = unknown_domain(self.epsilon, self.delta)
        if not isinstance(self.selector, Selector):
            raise InvalidType(
                f"selector must be a selector, not {type(self.selector).__name__}. Pass a RenyiSelection."
            )
        each = validate.between("each_epsilon", self.each_epsilon, 1e-9, 100.0, hint=_SAVED)
        validate.store(self, epsilon=epsilon, delta=delta, k=checked_picks(self.k), each_epsilon=each)

    @cached_property
    def guarantee(self) -> Guarantee:
        """What is promised to one privacy unit."""
        return Guarantee(self.epsilon, self.delta, unit=self.selector.unit)

    @cached_property
    def scale(self) -> float:
        """The scale of the Gumbel noise, rounded up."""
        return upper(lambda: 1 / ball(self.each_epsilon))

    @property
    def max_keys(self) -> int:
        """How many keys of a unit the selector sees."""
        return self.selector.max_keys

    @property
    def unit(self) -> str:
        """Who is protected, in words."""
        return self.selector.unit

    def __repr__(self) -> str:
        return f"<{self.name} of {self.k:,} keys after {self.selector.name} selection, {self.guarantee}>"

    _method: ClassVar[Method] = "balls"  # of what `_tau` returns

    @abstractmethod
    def _tau(self, order: float) -> float:
        """Return what everything after the selection adds to its tau at this order, rounded up."""

    @abstractmethod
    def _divergence(self, order: float) -> float:
        """Return the Renyi divergence of this order of everything after the selection, rounded up.

        It adds up over many uses, while `_tau` may be less and counts once.
        """

    def spends(self) -> tuple[Spend, ...]:
        """Return what a Renyi selector spends, and the picks at the same orders; else the guarantee."""
        if not isinstance(self.selector, RenyiSelector):
            return super().spends()
        found = self.selector.spends()
        orders = next(spend.orders for spend in found if isinstance(spend, Renyi))
        return *found, Renyi(orders, map(self._divergence, orders))

    @abstractmethod
    def _picks_delta(self, epsilon: float) -> float:
        """Return the delta of everything after the selection at `epsilon`, rounded up."""

    @cached_property
    def _together(self) -> Part:
        """What selection and picks compose to; raises NotCertified where that breaks the promise."""
        words = f"{self.selector.name} selection, then {self.k:,} picks of {self.each_epsilon:.4g} each"
        if isinstance(self.selector, RenyiSelector):
            chosen = self.selector
            tau = upper(lambda: ball(chosen.tau) + ball(self._tau(chosen.order)))
            cost = upper(lambda: ball(chosen.leak) + ball(renyi_delta(chosen.order, tau, self.epsilon)))
            if cost <= self.delta:
                return whole_unit(self.guarantee, cost, self._method, f"{words}, in one Renyi budget")
        return whole_unit(self.guarantee, self._parts_cost(), "formula", f"{words}, composed")

    def _parts_cost(self) -> float:
        promise = self.selector.guarantee
        if promise.epsilon >= self.epsilon or promise.delta >= self.delta:
            return 1.0
        after = self._picks_delta(remaining(self.epsilon, promise.epsilon))
        return upper(lambda: ball(promise.delta) + ball(after))

    def certify(self) -> Certificate:
        """Return the parts of the selector, and what selection and picks compose to."""
        return Certificate(self.guarantee, (*self.selector.certify().parts, self._together))


def tau_left(selector: RenyiSelector, epsilon: float, delta: float) -> float:
    """Return the tau that a Renyi selector leaves at its order, rounded down; zero where that is next to nothing."""
    if selector.leak >= delta:
        return 0.0
    whole = renyi_tau(selector.order, epsilon, remaining(delta, selector.leak))
    left = remaining(whole, selector.tau) * (1 - 1e-12)
    return left if left > 1e-3 * whole else 0.0


def largest_pick(
    selector: Selector,
    epsilon: float,
    delta: float,
    *,
    k: int,
    by_tau: Callable[[float, float, int], float] | None,
    by_parts: Callable[[float, float, int], float],
) -> float:
    """Return the largest epsilon of each of k picks that the selector leaves room for; refuse one that leaves none.

    `by_tau` finds it from an order, a tau and k; `by_parts` from an epsilon, a delta and k.
    """
    found = [0.0]
    if by_tau and isinstance(selector, RenyiSelector) and (tau := tau_left(selector, epsilon, delta)):
        found.append(by_tau(selector.order, tau, k))
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
