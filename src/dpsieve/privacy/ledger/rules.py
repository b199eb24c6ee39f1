"""The admission rules of a ledger: a privacy filter, sound when amounts and kinds of spends depend on earlier results.

An entry has two readings, each a leak l and a bound that holds beside it: as (epsilon, delta)-DP, with l = delta and
losses within +-epsilon, and by its curves, Renyi divergences or domination by Gaussian noise of some mu. The rules, for
a budget (epsilon, delta):

    sums            the epsilons of the entries add up to at most epsilon,
    Renyi, order a  the divergences of order a add up to at most tau, with renyi_delta(a, tau, epsilon) <= d_a,
    Gaussian        the squares of mu add up to at most mu^2, with delta(epsilon) <= d_g for Gaussian noise of this mu,

for three orders fixed at creation; and under every rule the leaks of the curves add up to at most D, and under 'sums'
those of (epsilon, delta) readings that are not also the reading by curves to at most D_own, where
D + D_own + d_g + sum of d_a <= delta. A spend is admitted if some rule holds for all entries with it. The division of
delta is fixed and recorded with the first entry, before there is any result, and never chosen again. Proof, with
references: docs/background/composition.md#the-rules-of-a-ledger.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from itertools import product, starmap
from operator import add, attrgetter, methodcaller
from typing import Annotated, Any, NamedTuple

from dpsieve.accounting.curves import checked_order, gaussian_sigma, renyi_tau
from dpsieve.accounting.spends import Approximate, Spend
from dpsieve.codec import Saved
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, first_whole, lower, minimise, upper
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.validate import Checked, Delta, are, delta, is_a, is_whole

SUMS = "sums of epsilon and delta"
_LEAKS = (Fraction(7, 8), Fraction(3, 4), Fraction(1, 2), Fraction(1, 4))
# Fifteenths of the part that is not for leaks: the best order and the Gaussian rule, one of them preferred. Own leaks,
# and the orders of half and of twice the distance from 1, have one each.
_PREFERRED = ((9, 3), (3, 9))
_MOST_ALIKE, _MOST_MEMBERS, _MOST_ORDERS, _MOST_DIVISIONS = 10**6, 10**6, 16, 32
_FIX = "Pass what to_json returned."

Amount = Fraction | float
"""An exact number, or infinity."""
_spend = is_a(Spend, _FIX)


@dataclass(frozen=True)
class Cost(Checked, Saved):
    """The cost of an entry.

    Attributes:
        spend: one spend that covers it.
        curves: the spends it is composed of, where they are known.
        members: number of spends declared together.
    """

    spend: Annotated[Spend, _spend]
    curves: Annotated[tuple[Spend, ...], are(_spend, 0, _MOST_MEMBERS, _FIX)] = ()
    members: Annotated[int, is_whole(1, _MOST_MEMBERS, "Pass the number of spends declared together.")] = 1


NOTHING = Cost(Approximate(0.0))


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
        sums: list[Any] = [*map(add, self[:-1], other[:-1]), tuple(map(add, self.taus, other.taus))]
        return Totals._make(sums)

    def times(self, count: Fraction) -> "Totals":
        """Return this multiple of the totals."""
        products: list[Any] = [*(count * amount for amount in self[:-1]), tuple(count * tau for tau in self.taus)]
        return Totals._make(products)


@dataclass(frozen=True)
class Division(Checked, Saved):
    """A division of delta among leaks and failures of rules.

    Attributes:
        own: D_own.
        leaks: D; None where 'sums' is the only rule, and `own` is for all deltas.
        renyi: d_a of each order.
        gaussian: d_g.
    """

    own: Delta
    leaks: Annotated[float | None, lambda leaks, name: None if leaks is None else delta(leaks, name)] = None
    renyi: Annotated[tuple[float, ...], are(delta, 0, _MOST_ORDERS, _FIX)] = ()
    gaussian: Delta = 0.0

    @property
    def total(self) -> Fraction:
        """The sum of all parts."""
        return sum(map(Fraction, (self.own, self.leaks or 0.0, self.gaussian, *self.renyi)), Fraction(0))


@dataclass(frozen=True)
class Rules(Checked, Saved):
    """The fixed part of a ledger: the budget, the orders and the divisions of delta."""

    budget: Annotated[Guarantee, is_a(Guarantee, _FIX)]
    orders: Annotated[tuple[float, ...], are(lambda order, _: checked_order(order), 0, _MOST_ORDERS, _FIX)]
    divisions: Annotated[tuple[Division, ...], are(is_a(Division, _FIX), 1, _MOST_DIVISIONS, _FIX)]

    def __post_init__(self) -> None:
        super().__post_init__()
        for division in self.divisions:
            if len(division.renyi) != (0 if division.leaks is None else len(self.orders)):
                raise InvalidValue(f"a division has one part for each order, or is for sums alone. {_FIX}")
            if division.leaks is None and division.gaussian:
                raise InvalidValue(f"a division for sums alone has no other rules. {_FIX}")
            if division.total > Fraction(self.budget.delta):
                raise InvalidValue(f"rules divide more than delta. {_FIX}")

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

        def room(division: Division) -> int:  # in 64ths
            def is_refused(parts: int) -> bool:
                return self.find_rule(first.times(Fraction(parts, 64)), division) is None

            return first_whole(is_refused, 1, 64 * _MOST_ALIKE)

        return max(range(len(self.divisions)), key=lambda index: room(self.divisions[index]))

    def find_rule(self, totals: Totals, division: Division) -> str | None:
        """Return the name of a rule that holds for these totals under a division of delta, or None."""
        epsilon = self.budget.epsilon
        over = max(Fraction(0), totals.epsilon - Fraction(epsilon))
        if division.leaks is None:
            fits = totals.delta + over <= division.own or totals.logs + over <= _logarithm(division.own)
            return SUMS if fits else None
        if totals.leak > division.leaks:
            return None
        if totals.own + over <= division.own:
            return SUMS
        if totals.squares <= _most_squares(epsilon, division.gaussian):
            return "squares of Gaussian mu"
        for order, share, tau in zip(self.orders, division.renyi, totals.taus, strict=True):
            if tau <= _most_tau(order, epsilon, share):
                return f"Renyi divergences of order {order:g}"
        return None

    def totals(self, cost: Cost = NOTHING) -> Totals:
        """Return the totals of one entry."""
        return _totals(cost, self.orders)


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
