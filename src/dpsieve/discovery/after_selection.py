"""Discovery, then more: the account of a selector and of a mechanism that uses the keys it selected."""

import math
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

from dpsieve import validate
from dpsieve.accounting.spends import Renyi, Spend
from dpsieve.discovery.renyi import RenyiSelector
from dpsieve.discovery.selector import Selector
from dpsieve.errors import InvalidType
from dpsieve.exact.balls import ball, upper
from dpsieve.privacy.certificate import Certificate, Part, whole_unit
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Mechanism, remaining
from dpsieve.validate import check_budget


@dataclass(frozen=True, repr=False)
class AfterSelection(Mechanism):
    """A selector, then something about the keys it selected.

    Neighbours are add/remove of one unit with all its keys. The selector sees at most `max_keys` keys per unit. The
    selected keys are an output of the selector, so what follows composes adaptively with it. The better of two accounts
    counts:

    - one account (`accounting.products`), where a selector by coins leaves a share of a unit's weight: what follows is
      dominated by one law of losses whatever was selected, and its number must be at most the selector's rest;
    - parts: the selector's own (epsilon_1, delta_1), and what follows at the remaining epsilon:
      delta = delta_1 + delta_2(epsilon - epsilon_1).

    Attributes:
        epsilon, delta: the guarantee of one unit.
        selector: selects the keys.
    """

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
        """The guarantee of one privacy unit."""
        return Guarantee(self.epsilon, self.delta, unit=self.selector.unit)

    @property
    def max_keys(self) -> int:
        """The number of keys per unit that the selector sees."""
        return self.selector.max_keys

    @property
    def unit(self) -> str:
        """The protected unit, as text."""
        return self.selector.unit

    @property
    @abstractmethod
    def _description(self) -> str:
        """What follows the selection, as text."""

    @abstractmethod
    def _number(self, share: float, epsilon: float, power: float) -> tuple[float, float]:
        """Return B of all that follows the selection, which has this share of the weight, and its leak, rounded up."""

    @abstractmethod
    def _divergence(self, order: float) -> float:
        """Return the Renyi divergence of this order of all that follows the selection, rounded up."""

    @abstractmethod
    def _delta_after(self, epsilon: float) -> float:
        """Return the delta of all that follows the selection at `epsilon`, rounded up."""

    def spends(self) -> tuple[Spend, ...]:
        """Return the spends of a Renyi selector, and of what follows at the same orders; else the guarantee."""
        if not isinstance(self.selector, RenyiSelector):
            return super().spends()
        spends = self.selector.spends()
        orders = next(spend.orders for spend in spends if isinstance(spend, Renyi))
        return *spends, Renyi(orders, tuple(map(self._divergence, orders)))

    @cached_property
    def _together(self) -> Part:
        """The cost of selection and what follows; raises NotCertified if it breaks the guarantee."""
        covers = f"{self.selector.name} selection, then {self._description}"
        selector = self.selector
        if isinstance(selector, RenyiSelector) and selector.share < 1 and selector.epsilon <= self.epsilon:
            needed = rest_needed(selector, *self._number(1 - selector.share, selector.epsilon, selector.power))
            if needed <= selector.rest and selector.cost <= self.delta:
                return whole_unit(self.guarantee, selector.cost, "formula", f"{covers}, in one account")
        return whole_unit(self.guarantee, self._parts_cost(), "formula", f"{covers}, composed")

    @property
    def steepness(self) -> float:
        """That of the selector, if both are in one account."""
        together = isinstance(self.selector, RenyiSelector) and self._together.covers.endswith("in one account")
        return self.selector.steepness if together else math.inf

    def _parts_cost(self) -> float:
        first = self.selector.guarantee
        if first.epsilon >= self.epsilon or first.delta >= self.delta:
            return 1.0
        after = self._delta_after(remaining(self.epsilon, first.epsilon))
        return upper(lambda: ball(first.delta) + ball(after))

    def certify(self) -> Certificate:
        """Return the parts of the selector, and the cost of selection and what follows."""
        return Certificate(self.guarantee, (*self.selector.certify().parts, self._together))


def rest_needed(selector: RenyiSelector, number: float, leak: float) -> float:
    """Return the least rest of the selector that allows what follows to have this B and this leak."""
    part = leak / (selector.leak * (1 - selector.share))
    return number / (1 - part) if part < 1 else math.inf
