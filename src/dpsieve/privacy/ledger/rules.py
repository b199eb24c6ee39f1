"""The admission rules of a ledger: a privacy filter, sound when amounts and kinds of spends depend on earlier results.

Neighbours are those of the ledger. Each entry states upper bounds on its cost, for both directions of every pair
of neighbours. A *reading* of an entry is a leak l and a bound that holds beside it: output distributions P, Q of
neighbours are P = (1 - l) P' + l P'', Q = (1 - l) Q' + l Q'', and (P', Q') obeys the bound. An entry has a reading as
(epsilon, delta)-DP, with l = delta and losses within +-epsilon (Kairouz, Oh and Viswanath 2015), and one by its curves:
Renyi divergences, or domination by Gaussian noise of some mu. Where an entry has only one of them, the other follows
from it, with the same leak. The rules, for a budget (epsilon, delta):

    sums            the epsilons of the entries add up to at most epsilon,
    Renyi, order a  the divergences of order a add up to at most tau, with renyi_delta(a, tau, epsilon) <= d_a,
    Gaussian        the squares of mu add up to at most mu^2, with delta(epsilon) <= d_g for Gaussian noise of this mu,

for three orders fixed at creation; and under every rule the leaks of the curves add up to at most D, and under 'sums'
the leaks of those (epsilon, delta) readings that are not also the reading by curves to at most D_own, where

    D + D_own + d_g + sum of d_a <= delta.

A spend is admitted if some rule holds for all entries with it. As sums only grow, that rule held all along.

**Theorem.** Let every entry be chosen as any function of earlier outputs. The transcript is (epsilon, delta)-DP.

Proof. Let P, Q be the laws of the transcript on neighbours, and h(A) the integral of max(0, P - e^epsilon Q) over a set
A of transcripts; h of all is to be at most delta. The transcript ends with the last admitted entry, so some rule holds
for all of it: let A_r be the transcripts whose first valid rule is r. These sets are disjoint, so h = sum of h(A_r).
For one rule r, split each output on its leak, in r's reading. Then h(A_r) is at most P(A_r and a leak) + h'(A_r), where
h' is over transcripts without leak. Stop the process when rule r fails; this changes nothing on A_r.

1. Leaks. The chance of a leak at an entry, given the past, is its l. A leak in the curves' reading is one event for all
   rules but 'sums', and for entries with one reading for 'sums' too: by the optional stopping of the compensated
   count, those have probability at most the largest sum of l along a path, D in all. The others have D_own.
2. Sums: without leak the loss ln P/Q is at most the sum of epsilons on each path, so h' = 0. Where the sum is above
   epsilon by x, as rounded decimals are, h' <= 1 - e^-x <= x, which is taken from D_own. Where 'sums' is the only rule,
   h is at most 1 - prod(1 - l) e^-x, as no leak has at least the probability prod(1 - l) on the worst path. So there
   the sum of -ln(1 - l) and x may be up to -ln(1 - D_own), which leaves room for decimals such as 0.2 + 0.8.
3. Renyi: let L_n be the loss after n entries and T_n the sum of their divergences. Given the past, E_P e^((a-1) x) of
   the next loss x is at most e^((a-1) tau_n), tau_n known then; so e^((a-1) (L_n - T_n)) is a supermartingale under P,
   and at the stopping time E_P e^((a-1) L) <= e^((a-1) tau), as T <= tau. And max(0, 1 - e^(epsilon - L)) is at most
   e^((a-1) (L - epsilon)) (1 - 1/a)^a / (a - 1), so h' <= d_a (Feldman and Zrnic 2021; Lecuyer 2021).
4. Gaussian: N(0, 1) against N(mu, 1) is an increment of a Brownian motion over the time mu^2, without drift against
   with drift 1. Draw each entry from the next increment: given the past, that is exact, as increments are independent.
   The times add up to at most mu^2, so all is a function of the motion up to mu^2, for which h' <= d_g
   (Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2023).

Adding up gives D + D_own + sum of d_a + d_g <= delta; exchange P and Q for the other direction.

An entry is written before it draws, and others may be written and drawn in between. That changes nothing: sums are
then larger earlier, and each draw, given all results so far, obeys its bounds. A batch is one entry whose members draw
one by one. Its divergences and squares of mu are those of the members. Together they are an interactive mechanism that
is (epsilon, delta)-DP for its composition, hence a function of one randomised response with a leak, drawn when the
entry is written, whatever else is asked between its answers (Lyu 2022, "Composition Theorems for Interactive
Differential Privacy").

**The division of delta** is fixed when the first entry is written, before there is any result, so the theorem holds for
every choice. It is recorded with the first entry, in the chain of hashes, and never chosen again: a later version with
other costs might choose otherwise, after results were seen. Stored at creation are divisions from mostly failures
(D = delta/4) to mostly leaks (D = 7 delta/8), with most of the failures at the best order or for the Gaussian rule, and
one with 'sums' alone and D_own = delta, so that one release may use the whole budget. The division that admits the
largest multiple of the first entry's costs is taken; among equals the one with the largest D.

The costs of one run are those of `accounting.spends`: under the Gaussian rule mu^2 is pi e^2 / 8 for a loss of range e,
pi epsilon^2 / 2 for pure privacy, and infinite for zCDP and `Renyi`.

R. Rogers, A. Roth, J. Ullman and S. Vadhan, "Privacy Odometers and Filters", NeurIPS 2016; J. Whitehouse, A. Ramdas,
R. Rogers and Z. S. Wu, "Fully Adaptive Composition in Differential Privacy", ICML 2023.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from itertools import product, starmap
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple

from dpsieve.accounting.gaussian import gaussian_sigma
from dpsieve.accounting.renyi import checked_order, renyi_tau
from dpsieve.accounting.spends import Spend, spend_from_json
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import ball, first_whole, lower, minimise, upper
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.validate import delta as checked_delta
from dpsieve.validate import whole

SUMS = "sums of epsilon and delta"
_LEAKS = (Fraction(7, 8), Fraction(3, 4), Fraction(1, 2), Fraction(1, 4))
# Fifteenths of the part that is not for leaks: the best order and the Gaussian rule, one of them preferred. Own leaks,
# and the orders of half and of twice the distance from 1, have one each.
_PREFERRED = ((9, 3), (3, 9))
_MOST_ALIKE = 10**6

Amount = Fraction | float
"""An exact number, or infinity."""


class Cost(NamedTuple):
    """The cost of an entry.

    Attributes:
        spend: one spend that covers it.
        curves: the spends it is composed of, where they are known.
        members: number of spends declared together.
    """

    spend: Spend
    curves: tuple[Spend, ...] = ()
    members: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        curves = [spend.to_json() for spend in self.curves]
        return {"spend": self.spend.to_json(), "curves": curves, "members": self.members}

    @classmethod
    def from_json(cls, data: Any) -> "Cost":
        """Rebuild what `to_json` returned; anything else is refused."""
        if not isinstance(data, Mapping) or set(data) != set(cls._fields):
            raise InvalidValue("a cost has a spend, curves and members. Pass what to_json returned.")
        hint = "Pass the number of spends declared together."
        members = whole("members", data["members"], low=1, high=10**6, hint=hint)
        return cls(spend_from_json(data["spend"]), tuple(map(spend_from_json, _listed(data["curves"]))), members)


class Totals(NamedTuple):
    """Sums over entries for each rule; see the head of this module.

    Attributes:
        epsilon, delta: of the readings as (epsilon, delta)-DP.
        logs: -ln(1 - delta) of these.
        own: the part of delta of entries that have another reading by curves.
        leak: of the readings by curves.
        squares: of mu.
        taus: the divergence at each order.
    """

    epsilon: Amount
    delta: Fraction
    logs: Fraction
    own: Fraction
    leak: Fraction
    squares: Amount
    taus: tuple[Amount, ...]

    def plus(self, other: "Totals") -> "Totals":
        """Return the totals of the entries of both."""
        sums: list[Any] = [a + b for a, b in zip(self[:-1], other[:-1], strict=True)]
        return Totals._make([*sums, tuple(a + b for a, b in zip(self.taus, other.taus, strict=True))])

    def times(self, count: Fraction) -> "Totals":
        """Return this multiple of the totals."""
        products: list[Any] = [count * amount for amount in self[:-1]]
        return Totals._make([*products, tuple(count * tau for tau in self.taus)])


@dataclass(frozen=True)
class Division:
    """A division of delta among leaks and failures of rules.

    Attributes:
        own: D_own.
        leaks: D; None where 'sums' is the only rule, and `own` is for all deltas.
        renyi: d_a of each order.
        gaussian: d_g.
    """

    own: float
    leaks: float | None = None
    renyi: tuple[float, ...] = ()
    gaussian: float = 0.0

    @property
    def total(self) -> Fraction:
        """The sum of all parts."""
        return sum(map(Fraction, (self.own, self.leaks or 0.0, self.gaussian, *self.renyi)), Fraction(0))

    def find_rule(self, totals: Totals, epsilon: float, orders: tuple[float, ...]) -> str | None:
        """Return the name of a rule that holds for these totals at the budget's epsilon, or None."""
        over = max(Fraction(0), totals.epsilon - Fraction(epsilon))
        if self.leaks is None:
            fits = totals.delta + over <= self.own or totals.logs + over <= _logarithm(self.own)
            return SUMS if fits else None
        if totals.leak > self.leaks:
            return None
        if totals.own + over <= self.own:
            return SUMS
        if totals.squares <= _most_squares(epsilon, self.gaussian):
            return "squares of Gaussian mu"
        for order, delta, tau in zip(orders, self.renyi, totals.taus, strict=True):
            if tau <= _most_tau(order, epsilon, delta):
                return f"Renyi divergences of order {order:g}"
        return None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"own": self.own, "leaks": self.leaks, "renyi": list(self.renyi), "gaussian": self.gaussian}


@dataclass(frozen=True)
class Rules:
    """The fixed part of a ledger: the budget, the orders and the divisions of delta."""

    budget: Guarantee
    orders: tuple[float, ...]
    divisions: tuple[Division, ...]

    @classmethod
    def of(cls, budget: Guarantee) -> "Rules":
        """Return the rules of a new ledger."""
        sums_only = Division(budget.delta)
        best = _best_order(budget.epsilon, budget.delta / 2) if budget.delta > 0 else None
        if best is None:
            return cls(budget, (), (sums_only,))
        orders = tuple(float(f"{1 + factor * (best - 1):.6g}") for factor in (1.0, 0.5, 2.0))
        return cls(budget, orders, (*starmap(partial(_division, budget.delta), product(_LEAKS, _PREFERRED)), sums_only))

    def choose(self, first: Totals) -> int:
        """Return the index of the division that admits the largest multiple of the first entry; ties: the first."""
        return max(range(len(self.divisions)), key=lambda index: self.room(self.divisions[index], first))

    def room(self, division: Division, first: Totals) -> Fraction:
        """Return the largest multiple of these totals that the division admits, rounded down to 1/64."""

        def refused(parts: int) -> bool:
            return self.find_rule(first.times(Fraction(parts, 64)), division) is None

        return Fraction(first_whole(refused, 1, 64 * _MOST_ALIKE) - 1, 64)

    def find_rule(self, totals: Totals, division: Division) -> str | None:
        """Return the name of a rule that holds for these totals under a division of delta, or None."""
        return division.find_rule(totals, self.budget.epsilon, self.orders)

    def nothing(self) -> Totals:
        """Return the totals of no entries."""
        zero = Fraction(0)
        return Totals(zero, zero, zero, zero, zero, zero, (zero,) * len(self.orders))

    def totals(self, cost: Cost) -> Totals:
        """Return the totals of one entry."""
        return _totals(cost, self.orders)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        divisions = [division.to_json() for division in self.divisions]
        return {"budget": self.budget.to_json(), "orders": list(self.orders), "divisions": divisions}

    @classmethod
    def from_json(cls, data: Any) -> "Rules":
        """Rebuild what `to_json` returned; refuse anything else, and divisions of more than the budget's delta."""
        fix = "Pass what to_json returned."
        if not isinstance(data, Mapping) or set(data) != {"budget", "orders", "divisions"}:
            raise InvalidValue(f"rules have a budget, orders and divisions. {fix}")
        budget, orders = Guarantee.from_json(data["budget"]), tuple(map(checked_order, _listed(data["orders"])))
        divisions = tuple(_read_division(division, len(orders)) for division in _listed(data["divisions"]))
        if not 1 <= len(divisions) <= 32 or len(orders) > 16:
            raise InvalidValue(f"rules have no division, or too many. {fix}")
        if any(division.total > Fraction(budget.delta) for division in divisions):
            raise InvalidValue(f"rules divide more than delta. {fix}")
        return cls(budget, orders, divisions)


def _listed(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise InvalidType(f"a list is expected, not {type(data).__name__}. Pass what to_json returned.")
    return data


def _read_division(data: Any, orders: int) -> Division:
    if not isinstance(data, Mapping) or set(data) != {"own", "leaks", "renyi", "gaussian"}:
        raise InvalidValue("a division has own, leaks, renyi and gaussian. Pass what to_json returned.")
    own, gaussian = checked_delta(data["own"]), checked_delta(data["gaussian"])
    renyi = tuple(map(checked_delta, _listed(data["renyi"])))
    if data["leaks"] is None:
        if renyi or gaussian:
            raise InvalidValue("a division for sums alone has no other rules. Pass what to_json returned.")
        return Division(own)
    if len(renyi) != orders:
        raise InvalidValue("a division has one part for each order. Pass what to_json returned.")
    return Division(own, checked_delta(data["leaks"]), renyi, gaussian)


def _division(delta: float, leaks: Fraction, preferred: tuple[int, int]) -> Division:
    """Return the division of delta with this share for leaks, each part rounded down."""

    def part(share: Fraction) -> float:
        return max(0.0, lower(lambda: ball(delta) * share.numerator / share.denominator))

    single, best, gaussian = (part((1 - leaks) * count / 15) for count in (1, *preferred))
    return Division(single, part(leaks), (best, single, single), gaussian)


def _best_order(epsilon: float, delta: float) -> float | None:
    """Return the order at which the largest rho fits (epsilon, delta), to three digits; None where none fits."""

    def cost(distance: float) -> float:  # minus the rho, by the logarithm of a - 1
        t = math.exp(distance)
        tau = epsilon + (math.log(delta) - t * distance + (1 + t) * math.log1p(t)) / t
        return -tau / (1 + t)

    if delta == 0:
        return None
    at = minimise(cost, math.log(1e-3), math.log(1e6), rounds=60)
    return 1 + float(f"{math.exp(at):.3g}") if cost(at) < 0 else None


@lru_cache(maxsize=256)
def _logarithm(delta: float) -> float:
    """Return -ln(1 - delta), rounded down."""
    return lower(lambda: -(-ball(delta)).log1p())


@lru_cache(maxsize=256)
def _most_tau(order: float, epsilon: float, delta: float) -> float:
    try:
        return renyi_tau(order, epsilon, delta)
    except InvalidValue:  # not even a tau of zero
        return -1.0


@lru_cache(maxsize=256)
def _most_squares(epsilon: float, delta: float) -> float:
    try:
        sigma = gaussian_sigma(epsilon, delta)
    except InvalidValue:  # no delta, or no finite noise
        return -1.0
    return lower(lambda: 1 / ball(sigma) ** 2)


@lru_cache(maxsize=4096)
def _totals(cost: Cost, orders: tuple[float, ...]) -> Totals:
    spend, curves = cost.spend, cost.curves or (cost.spend,)
    delta, leak = _sum((spend,), attrgetter("leak")), _sum(curves, attrgetter("leak"))
    readings = [curves, (spend,)] if leak == delta == 0 else [curves]  # both, where neither leaks
    return Totals(
        epsilon=_sum((spend,), attrgetter("pure_epsilon")),
        delta=delta,
        logs=_sum((spend,), lambda part: upper(lambda: -(-ball(part.leak)).log1p())),
        own=delta if cost.curves else Fraction(0),
        leak=leak,
        squares=min(_sum(r, methodcaller("dominating_square")) for r in readings),
        taus=tuple(min(_sum(r, methodcaller("divergence", order)) for r in readings) for order in orders),
    )


def _sum(spends: Iterable[Spend], bound: Callable[[Spend], float]) -> Any:
    """Return the sum of a bound on one run over all runs, exactly."""
    total: Amount = Fraction(0)
    for spend in spends:
        number = bound(spend)
        total += Fraction(number) * spend.count if number < math.inf else math.inf
    return total
