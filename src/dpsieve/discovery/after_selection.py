"""Discovery, then more: what mechanisms share that first select keys and then tell something about those they found."""

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
from dpsieve.privacy.curves.renyi import renyi_delta, renyi_tau
from dpsieve.privacy.curves.spends import Renyi, Spend
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.privacy.registry import from_json

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

    - in Renyi terms, where the selector is leak-approximately (order, tau)-Renyi private: what follows adds some tau at
      the same order, and delta = leak + renyi_delta(order, sum of all taus, epsilon);
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
        epsilon, delta = unknown_domain(self.epsilon, self.delta)
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

    _method: ClassVar[Method] = "balls"  # of what `_tau` returns

    @property
    @abstractmethod
    def _words(self) -> str:
        """What follows the selection, in words."""

    @abstractmethod
    def _tau(self, order: float) -> float:
        """Return what everything after the selection adds to its tau at this order, rounded up."""

    @abstractmethod
    def _divergence(self, order: float) -> float:
        """Return the Renyi divergence of this order of everything after the selection, rounded up.

        It adds up over many uses, while `_tau` may be less and counts once.
        """

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
        after = self._delta_after(remaining(self.epsilon, promise.epsilon))
        return upper(lambda: ball(promise.delta) + ball(after))

    def certify(self) -> Certificate:
        """Return the parts of the selector, and what selection and the rest compose to."""
        return Certificate(self.guarantee, (*self.selector.certify().parts, self._together))


def tau_left(selector: RenyiSelector, epsilon: float, delta: float) -> float:
    """Return the tau that a Renyi selector leaves at its order, rounded down; zero where that is next to nothing."""
    if selector.leak >= delta:
        return 0.0
    whole = renyi_tau(selector.order, epsilon, remaining(delta, selector.leak))
    left = remaining(whole, selector.tau) * (1 - 1e-12)
    return left if left > 1e-3 * whole else 0.0
