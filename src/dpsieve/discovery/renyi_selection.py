"""Renyi selection: a key is published with a probability that depends on its sum of weights, and without any noise.

A unit that keeps d keys adds the weight w = 2^bits / sqrt(max(d, least)), rounded down, to each of them. A key with the
sum h is published with probability p(h), independently of the others. With u = w / 2^bits, p is the largest function
for which p(h - w) and p(h) are always (leak u^2)-approximately (order, tau u^2)-Renyi private: but for a probability of
leak u^2 on either side, both Renyi divergences of this order are at most tau u^2. So p(0) = 0, the first unit shows a
key with probability leak u^2 at most, and the same holds at the other end, where p becomes one.

Proof of privacy. Neighbours differ by one unit; it changes the coin of each of its keys by one step and no other coin.
Coins are independent, so leaks and divergences of all keys add up, and the squares u^2 of one unit sum to at most
one: the whole output is leak-approximately (order, tau)-Renyi private. That gives (epsilon, delta) with
delta = leak + renyi_delta(order, tau, epsilon).

References: C. Dwork and G. Rothblum, "Concentrated Differential Privacy", 2016, and M. Bun and T. Steinke, TCC 2016
(section 8), for approximate divergences and their composition; D. Desfontaines, J. Voss, B. Gipson and C. Mandayam,
"Differentially private partition selection", PoPETs 2022, for one key a unit.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.makers import most_keys, unknown_domain
from dpsieve.channels.reporting.reporting_tables import Promise, ReportingTable, reporting_table
from dpsieve.discovery.renyi_budgets import MOST_BITS, Budget, best_budget, finest_bits
from dpsieve.discovery.selector import Selector, WeightSelector
from dpsieve.errors import InvalidValue
from dpsieve.exact.search import ball, upper
from dpsieve.privacy.certificate import Certificate, Part, whole_unit
from dpsieve.privacy.contribution import Weight
from dpsieve.privacy.curves.renyi import checked_order, renyi_delta, spread_orders
from dpsieve.privacy.curves.spends import Approximate, Renyi, Spend
from dpsieve.privacy.registry import register
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Floats, Ints

_SAVED = "Pass the saved one."
_ORDERS = 8  # at which costs are told; looking at one takes as long as a certificate
_R = TypeVar("_R", bound="RenyiSelector")


def renyi_selection(
    epsilon: float,
    delta: float,
    max_keys: int,
    *,
    typical_keys: float | None = None,
    share: float = 1.0,
    order: float | None = None,
    unit: str = "one row",
) -> "RenyiSelection":
    """Return the selector that needs the fewest units behind a key where units hold several keys.

    Args:
        epsilon, delta: what is promised to one unit.
        max_keys: how many keys a unit keeps.
        typical_keys: how many keys a typical unit has, such as their median: a public number. Units with fewer keys
            weigh as if they had this number, which lets all others reach further.
        share: the part of tau that selection spends; the rest is left for other mechanisms at the same order.
        order: of the Renyi divergence; chosen here where it is left out.
        unit: who is protected, in words.

    >>> chosen = renyi_selection(1.0, 1e-5, 10, typical_keys=10)
    >>> round(chosen.users_needed(10), 1)  # this number of units with ten keys each give an even chance
    41.9
    """
    epsilon, delta = unknown_domain(epsilon, delta)
    max_keys = most_keys(max_keys)
    least = min(max_keys, round(checked_typical(typical_keys)))

    def made(least: int) -> RenyiSelection:
        budget = chosen_budget(epsilon, delta, share, 1.0, max_keys, least, order)
        bits, tau = finest_bits(budget.half, least, max_keys, every=False), budget.tau * share
        return RenyiSelection(epsilon, delta, max_keys, budget.order, tau, budget.leak, bits, least, unit=unit)

    return fitting(made, least)


def fitting(made: Callable[[int], _R], least: int) -> _R:
    """Return what is made for `least`, or for less where a grid of such light weights would need too long a table.

    That is so for tiny epsilons, where keys need hundreds of thousands of units.
    """
    while True:
        try:
            selector = made(least)
            selector.table  # noqa: B018  # refuses to be too long
        except InvalidValue:
            if least == 1:
                raise
            least = max(1, least // 4)
        else:
            return selector


def checked_typical(typical_keys: float | None) -> float:
    """Return how many keys a typical unit has; one where nothing is known."""
    hint = "Pass how many keys a typical unit has, such as typical_keys=8."
    return 1.0 if typical_keys is None else validate.between("typical_keys", typical_keys, 1, 10_000, hint=hint)


def chosen_budget(
    epsilon: float, delta: float, share: float, part: float, most: int | None, least: int, order: float | None
) -> Budget:
    """Return the budget where `part` of a share of tau is for a table of weights of units with `least` to `most` keys.

    None stands for weights of every size down to zero. The tau of the budget is for all that is done at its order.
    """
    share = validate.between("share", share, 0.001, 1.0, hint="Pass the part of tau to spend, such as share=0.5.")
    order = None if order is None else checked_order(order)
    lightest = 0.0 if most is None else 1 / math.sqrt(max(most, least))
    return best_budget(epsilon, delta, share * part, lightest, 1 / math.sqrt(least), order)


@dataclass(frozen=True, repr=False)
class RenyiSelector(Selector):
    """A selector whose cost for one unit is, but for a leak, a Renyi divergence of one order.

    Attributes:
        order: of the Renyi divergence.
        tau: the bound on the divergence for one unit, in both directions.
        leak: the probability, for one unit, of showing something beyond that.
        bits: weights are whole numbers in units of 2^-bits.
        least: no weight is above 1 / sqrt(least).
    """

    order: float
    tau: float
    leak: float
    bits: int
    least: int

    def __post_init__(self) -> None:
        super().__post_init__()
        tau = validate.positive("tau", self.tau, hint=_SAVED)
        leak = validate.positive("leak", self.leak, hint=_SAVED)
        bits = validate.whole("bits", self.bits, low=1, high=MOST_BITS, hint=_SAVED)
        least = validate.whole("least", self.least, low=1, high=10_000, hint=_SAVED)
        self._set(order=checked_order(self.order), tau=tau, leak=leak, bits=bits, least=least)
        if not self.heaviest:
            raise InvalidValue(f"bits={bits} leaves no weight for least={least}. Pass the saved ones.")
        if self.cost > self.delta:
            raise InvalidValue("order, tau and leak do not keep epsilon and delta. Pass those that were saved.")

    @property
    def heaviest(self) -> int:
        """The largest weight."""
        return Weight(self.bits, self.least).of_keys(1)[0]

    @property
    def cost(self) -> float:
        """The delta of one unit at epsilon: what leaks, and what the divergence allows, rounded up."""
        beyond = renyi_delta(self.order, self.tau, self.epsilon)
        return upper(lambda: ball(self.leak) + ball(beyond))

    @property
    @abstractmethod
    def promise(self) -> Promise:
        """What the table of reporting probabilities must keep."""

    @cached_property
    def table(self) -> ReportingTable:
        """The reporting probability of each sum of weights."""
        return reporting_table(self.promise)

    @property
    def noise_rho(self) -> float:
        """What noise that was drawn before the coins costs as zCDP, rounded up; most draw none."""
        return 0.0

    def spends(self) -> tuple[Spend, ...]:
        """Return what a unit costs at the order and at some lower ones, and what it may leak."""
        return self._spent

    @cached_property
    def _spent(self) -> tuple[Spend, ...]:
        *lower, own = spread_orders(self.order, _ORDERS)

        def tau(order: float, coins: float) -> float:
            return upper(lambda: ball(coins) + ball(order) * ball(self.noise_rho))

        taus = map(tau, lower, self.table.taus(lower, self.promise))
        return Renyi((*lower, own), (*taus, self.tau)), Approximate(0.0, self.leak)

    @property
    @abstractmethod
    def covers(self) -> str:
        """What adds up to the cost of a unit, in words."""

    def certify(self) -> Certificate:
        """Return the certificate, after checking the integers that are drawn from; raise NotCertified if one is off."""
        return self._certificate

    @cached_property
    def _certificate(self) -> Certificate:
        promise = self.promise
        self.table.check(promise)
        part = Fraction(self.heaviest**2, 4**self.bits)  # of tau and leak, for the key of the largest weight
        beyond = renyi_delta(self.order, _above(promise.tau, part), self.epsilon)
        each = upper(lambda: ball(_above(self.leak, part)) + ball(beyond))
        rows = f"{self.table.last:,} rows of reporting probabilities, {len(promise.steps):,} steps to each"
        one_key = Part("one key", "formula", rows, self.epsilon, each, each)
        return Certificate(self.guarantee, (one_key, whole_unit(self.guarantee, self.cost, "balls", self.covers)))


@register("renyi")
@dataclass(frozen=True, repr=False)
class RenyiSelection(RenyiSelector, WeightSelector):
    """See `renyi_selection`, and the head of this module for the proof."""

    @property
    def weight(self) -> Weight:
        """What a unit adds to each of its keys."""
        return Weight(self.bits, self.least)

    @property
    def promise(self) -> Promise:
        """What the table must keep, for the weights of units of 1 to `max_keys` keys."""
        steps = {step for step in self.weight.of_keys(self.max_keys) if step}
        return Promise(self.order, self.tau, self.leak, self.bits, tuple(sorted(steps)))

    @property
    def covers(self) -> str:
        """What adds up to the cost of a unit, in words."""
        return f"units of at most {self.max_keys:,} keys whose squared weights sum to one, at order {self.order:.4g}"

    def select_by_weights(self, weights: Ints, source: Source) -> Bools:
        """Return which keys are published, given the sum of weights of each."""
        return self.table.select(weights, source)

    def reporting_probability(self, weights: ArrayLike) -> Floats:
        """Return how likely keys with these sums of weights are published; sums are in units of 2^-bits."""
        sums = validate.integers("weights", weights, hint="Pass sums of weights, whole numbers from 0 on.")
        return self.table.probability(np.asarray(sums, np.int64))

    def users_needed(self, keys: int, probability: float = 0.5) -> float:
        """Return how many units with this number of keys each publish a key with this probability."""
        keys = validate.whole("keys", keys, low=1, high=self.max_keys, hint="Pass how many keys a unit has.")
        hint = "Pass a probability below one, such as 0.5."
        wanted = validate.between("probability", probability, 1e-12, 1 - 1e-12, hint=hint)
        weight = self.weight.of_keys(keys)[-1]
        return self.table.crossing(wanted, weight) if weight else math.inf


def _above(number: float, part: Fraction) -> float:
    return upper(lambda: ball(number) * part.numerator / part.denominator)
