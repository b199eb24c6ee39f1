"""Composition of different spends, as an upper bound on the curve delta(epsilon), and of k equal mechanisms, exactly.

Queries may depend on earlier results; the list of spends and their amounts may not, or the true cost can exceed the
curve. All spends must share one relation of neighbours and one privacy unit, which the curve inherits. Every spend but
zCDP and Renyi has a distribution of the privacy loss L, for a dominating pair of neighbours; losses add up, and
delta(epsilon) = E[max(0, 1 - e^(epsilon - L))]. zCDP and Renyi spends, the concentrated part, have no worst pair: their
divergences add up at each order, with those of all other spends, or enter the sum of losses as (e, d)-DP at the best
point of their own curve. k equal mechanisms compose optimally (Kairouz, Oh and Viswanath 2015). Proofs, also for the
replacement of a unit: docs/background/composition.md#different-spends, #replacing-a-unit, #equal-mechanisms.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, floor, inf
from typing import NamedTuple

import numpy as np
from scipy.special import bdtr, expit

from dpsieve import validate
from dpsieve.accounting.curves import renyi_delta, zcdp_delta
from dpsieve.accounting.loss_distributions import LossCurve, either
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import Ball, ball, largest, lower, minimise, smallest, smallest_epsilon, upper
from dpsieve.types import Floats

from dpsieve.accounting.spends import (  # isort: skip
    Approximate, Gaussian, Renyi, Spend, ZeroConcentrated, checked_spends, total_divergence, total_epsilon, total_leak,
)  # fmt: skip

_MOST = 1e9  # the largest tau that a spend takes
_LOST_AT = (4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)  # orders at which the leak is bounded; every one is sound
_LISTED, _BETWEEN = 256, 64  # how many orders are compared
_ULP = 2.0**-52
_HUGE = 1e6  # with a tau above this no epsilon up to 500 keeps delta below one


class Concentrated:
    """delta(epsilon) of all spends together, by Renyi divergences alone; leaks stay apart.

    With zCDP, Gaussian noise and bounded losses alone the best of all orders is known (`zcdp_delta`). With listed
    orders, these and some between them are compared in floats; the sum of all divergences and the delta at the best
    order are rounded up. Every order gives a true statement.
    """

    def __init__(self, spends: tuple[Spend, ...]) -> None:
        self._spends = spends
        self._listed = [spend for spend in spends if isinstance(spend, Renyi)]
        self._taus: dict[float, float] = {}
        self.empty = not spends

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on delta at `epsilon`."""
        if not self._listed:
            return zcdp_delta(self._rho, epsilon)
        orders, exponents = self._rough
        order = float(orders[np.argmin(exponents - (orders - 1) * epsilon)])
        tau = self._tau(order)
        return renyi_delta(order, tau, epsilon) if tau < _HUGE else 1.0

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon with this delta, or infinity where none up to 500 has it."""
        return smallest_epsilon(lambda epsilon: self.delta(epsilon) <= delta)

    @cached_property
    def _rho(self) -> float:
        return min(1e200, upper(lambda: sum((spend.rho_bound() * spend.count for spend in self._spends), ball(0))))

    def _tau(self, order: float) -> float:
        """Return the divergence of all spends at this order, rounded up."""
        if order not in self._taus:
            self._taus[order] = upper(lambda: sum((s.renyi(order) * s.count for s in self._spends), ball(0)))
        return self._taus[order]

    @cached_property
    def _rough(self) -> tuple[Floats, Floats]:
        """Orders to choose from, and the logarithm of `renyi_delta` at each for epsilon = 0, roughly."""
        top = min(spend.orders[-1] for spend in self._listed)
        listed = np.unique([order for spend in self._listed for order in spend.orders if order <= top])
        between = 1 + np.geomspace((top - 1) / 1000, top - 1, _BETWEEN)
        orders = np.union1d(listed[:: -(-len(listed) // _LISTED)], between[(between > 1) & (between < top)])
        t = orders - 1
        exponents = t * np.log(t) - orders * np.log1p(t)
        for spend in self._spends:
            exponents += spend.count * spend.moments(orders)
        return orders, exponents


@dataclass(frozen=True)
class Composition:
    """All `spends` together, as a curve of (epsilon, delta) guarantees. An empty list spends nothing.

    `delta(epsilon)` and `epsilon(delta)` are upper bounds, never worse than sums, and are accurate down to
    delta = 1e-30. Without the concentrated part they are above the optimum by less than one in 1,000 (in epsilon),
    mostly far less, for up to some thousand different spends. Each of these costs about a millisecond, equal ones are
    joined first; memory stays at some megabytes.

    >>> from dpsieve.accounting.spends import Approximate, DiscreteLaplace, Gaussian
    >>> spends = Composition([Approximate(0.1, 1e-9, count=50), Gaussian(10.0), DiscreteLaplace(20.0, count=20)])
    >>> round(spends.epsilon(1e-6), 2), f"{spends.delta(4.0):.2g}"
    (3.41, '6e-08')
    """

    spends: tuple[Spend, ...]

    def __init__(self, spends: Iterable[Spend]) -> None:
        object.__setattr__(self, "spends", checked_spends(spends))

    def delta(self, epsilon: float) -> float:
        """Return a delta for which the composition is (epsilon, delta)-DP, rounded up; 1.0 promises nothing."""
        epsilon = validate.epsilon(epsilon)
        best = self._simple(epsilon)
        if self._part.empty or self._curve.empty:
            return best
        point = minimise(lambda point: _joined(self._part, self._rough, epsilon, point), 0.0, epsilon)
        return min(best, _joined(self._part, self._curve, epsilon, point))

    def epsilon(self, delta: float) -> float:
        """Return an epsilon for which the composition is (epsilon, delta)-DP, rounded up.

        Infinity where no epsilon up to 500 is found, as for a delta below 1 - prod(1 - delta) of the spends.
        """
        delta = validate.delta(delta)
        best = smallest_epsilon(lambda epsilon: self._simple(epsilon) <= delta)
        if self._part.empty or self._curve.empty or delta == 0:
            return best
        # The concentrated part takes some share of delta, between all of it and a millionth.
        low, high = self._part.epsilon(delta), self._part.epsilon(1e-6 * delta)
        if low == math.inf:
            return best
        point = minimise(lambda point: self._rough_epsilon(point, delta), low, min(high, 500.0), rounds=12)
        return min(best, self._epsilon_at(point, delta))

    @cached_property
    def _curve(self) -> LossCurve:
        return LossCurve(self.spends)

    @cached_property
    def _rough(self) -> LossCurve:
        """A coarser curve, also an upper bound, for searches: 16 times as fast."""
        return LossCurve(self.spends, grid=2**12)

    @cached_property
    def _part(self) -> Concentrated:
        return Concentrated(tuple(spend for spend in self.spends if spend.is_concentrated))

    @cached_property
    def _all(self) -> Concentrated:
        return Concentrated(self.spends)

    @cached_property
    def pure_epsilon(self) -> float:
        """The sum of the epsilons, rounded up; infinity where a spend has none."""
        return total_epsilon(self.spends)

    def _simple(self, epsilon: float) -> float:
        leak = self._curve.leak
        if epsilon >= self.pure_epsilon:
            return leak
        best = self._curve.delta(epsilon) if self._part.empty else 1.0
        if not self._part.empty or any(spend.loss_range < 2 * spend.pure_epsilon for spend in self.spends):
            best = min(best, either(leak, self._all.delta(epsilon)))
        return best

    def _rough_epsilon(self, point: float, delta: float) -> float:
        """Return the epsilon where the concentrated part enters at this point, by the coarser curve."""
        return smallest_epsilon(lambda e: _joined(self._part, self._rough, e, point) <= delta, tolerance=1e-6)

    def _epsilon_at(self, point: float, delta: float) -> float:
        """Return the epsilon where the concentrated part enters at this point; searched for near the rough one."""

        def holds(epsilon: float) -> bool:
            return _joined(self._part, self._curve, epsilon, point) <= delta

        rough = self._rough_epsilon(point, delta)
        if rough < math.inf and holds(rough):
            return smallest(holds, 0.9 * rough, rough, tolerance=1e-9)
        return smallest_epsilon(holds, tolerance=1e-9)


def _joined(part: Concentrated, curve: LossCurve, epsilon: float, point: float) -> float:
    """Return delta where the concentrated part enters as (point, its delta at point)-DP, beside the curve of others."""
    truth = 1 / (1 + math.exp(-point))
    others = truth * curve.delta(epsilon - point) + (1 - truth) * curve.delta(epsilon + point)
    return either(part.delta(point), others)


def convert_to_replacement(spends: tuple[Spend, ...], orders: tuple[float, ...]) -> tuple[Spend, ...]:
    """Return what spends for adding or removing a unit cost if one is replaced, at these increasing orders.

    Empty where nothing is known at any order: a list of divergences must reach 2a for an order a.

    >>> convert_to_replacement((Gaussian(2.0), Gaussian(2.0)), (2.0, 8.0))
    (Gaussian(sigma=1.0, sensitivity=1.4142135623730951, count=1),)
    """
    leaked = total_leak(spends)
    if not leaked and all(isinstance(spend, Gaussian) for spend in spends):
        mu = upper(lambda: 2 * sum((spend.gaussian_square() * spend.count for spend in spends), ball(0)).sqrt())
        return (Gaussian(1.0, mu),)
    if not leaked and all(isinstance(spend, ZeroConcentrated) for spend in spends):
        return (ZeroConcentrated(upper(lambda: 4 * sum((s.rho_bound() * s.count for s in spends), ball(0)))),)
    tried = (*_LOST_AT, *(2 * order for order in orders))
    lost = min(_lost(spends, order, leaked) for order in tried) if leaked else 0.0
    pairs = [(order, _doubled(spends, order, lost)) for order in orders] if lost < 1 else []
    known = {order: tau for order, tau in pairs if tau < _MOST}
    if not known:
        return ()
    curve = Renyi(tuple(known), tuple(known.values()))
    return (curve, Approximate(0.0, lost)) if lost else (curve,)


def _doubled(spends: tuple[Spend, ...], order: float, lost: float) -> float:
    """Return the bound on the divergence of both hops at this order."""
    first, second = total_divergence(spends, upper(lambda: 2 * ball(order) - 1)), total_divergence(spends, 2 * order)
    if max(first, second) == math.inf:
        return math.inf
    both = upper(lambda: 2 * ball(order) / (2 * ball(order) - 1) * ball(first) + ball(second))
    pure = 2 * total_epsilon(spends)
    return upper(lambda: ball(min(both, pure)) - ball(order) / (ball(order) - 1) * (-ball(lost)).log1p())


def _lost(spends: tuple[Spend, ...], order: float, leaked: float) -> float:
    """Return the leak of both hops, by the divergence of one hop at this order."""
    tau = total_divergence(spends, order)
    if tau == math.inf or leaked >= 0.5:
        return math.inf

    def expression() -> Ball:
        mass, share = ball(leaked) / (1 - ball(leaked)), (ball(order) - 1) / ball(order)
        return ball(leaked) + (share * (mass.log() + ball(tau))).exp()

    return upper(expression)


class Share(NamedTuple):
    """The guarantee that each of k mechanisms may have."""

    epsilon: float
    delta: float


def repeated_delta(k: int, epsilon: float, *, each_epsilon: float, each_delta: float) -> float:
    """Return the delta of k mechanisms, each (each_epsilon, each_delta)-DP, at `epsilon`, rounded up.

    `k` is from 1 to 1,000,000, both epsilons in [0, 500] and `each_delta` in [0, 1). The result is an upper bound with
    a relative error below k * 1e-13, also where delta is 1e-20.

    >>> f"{repeated_delta(100, 3.0, each_epsilon=0.1, each_delta=1e-10):.3g}"
    '0.00136'
    """
    each_epsilon, each_delta = validate.epsilon(each_epsilon, "each_epsilon"), validate.delta(each_delta, "each_delta")
    return _repeated(_repeats(k), validate.epsilon(epsilon), each_epsilon, each_delta)


def repeated_share(
    k: int, epsilon: float, delta: float, *, delta_for_keys: float = 0.5, tolerance: float = 0.0
) -> Share:
    """Return the guarantee that each of k mechanisms may have so that together they are (epsilon, delta)-DP.

    The epsilon is the largest for its delta, rounded down, and never below epsilon / k. The delta is the largest with
    1 - (1 - delta0)^k <= delta_for_keys * delta: that fraction of `delta` pays for the leaks of the mechanisms (in
    dpsieve, rare keys), the remainder for a larger epsilon. One half is within a few percent of the best epsilon, which
    depends on delta only through its logarithm, and leaves each mechanism half of its largest delta. With a relative
    `tolerance` the epsilon is less sharp, and found faster.

    >>> share = repeated_share(100, 1.0, 1e-6)
    >>> f"{share.epsilon:.4f} {share.delta:.2g}"
    '0.0232 5e-09'
    """
    k, epsilon, delta = _repeats(k), validate.epsilon(epsilon), validate.delta(delta)
    hint = "Pass a fraction such as delta_for_keys=0.5."
    part = validate.between("delta_for_keys", delta_for_keys, 0.0, 1.0, hint=hint)
    each_delta = 0.0
    if part * delta > 0:
        each_delta = max(0.0, lower(lambda: -((-ball(part) * ball(delta)).log1p() / k).expm1()))
    while _repeated(k, inf, 0.0, each_delta) > delta:  # by a rounding
        each_delta = math.nextafter(each_delta, 0.0)
    least = lower(lambda: ball(epsilon) / k)
    each_epsilon = largest(
        lambda each: _repeated(k, epsilon, each, each_delta) <= delta, least, 500.0, tolerance=tolerance,
        near=_rough_share(k, epsilon, delta, each_delta, least),
    )  # fmt: skip
    if each_epsilon == 0:
        raise InvalidValue(
            f"epsilon={epsilon:g} leaves nothing to share. Pass a budget such as epsilon=1.0.", argument="epsilon"
        )
    return Share(each_epsilon, each_delta)


def _rough_share(k: int, epsilon: float, delta: float, each_delta: float, low: float) -> float:
    """Return about the epsilon of each of k mechanisms, in floats: where the search for the true one begins."""
    left = -math.expm1(math.log1p(-delta) - k * math.log1p(-each_delta))  # for losses above epsilon

    def exceeds(each: float) -> bool:
        lies, last = expit(-each), math.ceil((k - epsilon / each) / 2) - 1
        return bool(last >= 0 and bdtr(last, k, lies) - math.exp(epsilon) * bdtr(last, k, 1 - lies) > left)

    high = max(2 * low, 1e-300)
    while high < 500 and not exceeds(high):
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if exceeds(middle) else (middle, high)
    return low


@lru_cache(maxsize=256)
def _repeated(k: int, epsilon: float, each_epsilon: float, each_delta: float) -> float:
    # The last l that counts, exactly: (k - l) each_epsilon > epsilon + l each_epsilon.
    last = -1
    if epsilon < inf and each_epsilon > 0:
        last = ceil((k - Fraction(epsilon) / Fraction(each_epsilon)) / 2) - 1
    if last < 0:
        # The second bound is exact for k = 1, where the first is rounded.
        return min(1.0, upper(lambda: 1 - _no_leak(k, each_delta)), upper(lambda: ball(each_delta) * k))
    # l has a binomial distribution: each of the k answers is a lie with probability 1 / (1 + e^each_epsilon).
    lie = upper(lambda: 1 / (1 + ball(each_epsilon).exp()))
    anchor = min(last, floor(k * lie))
    total = _relative_sum(k, epsilon, each_epsilon, anchor, last)

    def expression() -> Ball:
        ways = (ball(k + 1).lgamma() - ball(anchor + 1).lgamma() - ball(k - anchor + 1).lgamma()).exp()
        mass = ways * (-ball(each_epsilon) * anchor - k * (-ball(each_epsilon)).exp().log1p()).exp()
        return 1 - _no_leak(k, each_delta) * (1 - ball(total) * mass)

    return min(1.0, upper(expression))


def _no_leak(k: int, each_delta: float) -> Ball:
    return (k * (-ball(each_delta)).log1p()).exp()


def _relative_sum(k: int, epsilon: float, each_epsilon: float, anchor: int, last: int) -> float:
    """Return the sum of P[l] * (1 - e^-(loss of l - epsilon)) over l <= last, divided by P[anchor], as an upper bound.

    P is the binomial mass and l lies have the loss (k - 2l) each_epsilon. Away from the anchor, which is the mode or
    `last`, P falls: products of ratios lose at most four roundings per step and vanish only below 2^-1000; both errors
    are added back.
    """
    grow, shrink = upper(lambda: ball(each_epsilon).exp()), upper(lambda: (-ball(each_epsilon)).exp())
    # The smallest excess of loss over epsilon may cancel, so it comes from a ball; the others only add to it.
    closest = upper(lambda: ball(each_epsilon) * (k - 2 * last) - ball(epsilon))
    down, up = np.arange(anchor, 0, -1.0), np.arange(anchor, float(last))
    mass: Floats = np.concatenate(
        [[1.0], np.cumprod(down / (k - down + 1) * grow), np.cumprod((k - up) / (up + 1) * shrink)]
    )
    lies = np.concatenate([[float(anchor)], down - 1, up + 1])
    gain = -np.expm1(-(closest + 2 * (last - lies) * each_epsilon))
    return (float(np.sum(mass * gain)) + 2.0**-1000 * k) * (1 + 4 * (last + 16) * _ULP)


def _repeats(k: int) -> int:
    return validate.whole("k", k, low=1, high=10**6, hint="Pass how many mechanisms are composed, such as k=10.")
