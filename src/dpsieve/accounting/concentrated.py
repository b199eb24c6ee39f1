"""Spends of which Renyi divergences alone count, together: their curve delta(epsilon).

The divergences of an adaptive sequence at one order add up. At the order a > 1 one run costs

    a rho                                         for rho-zCDP,
    a mu^2 / 2                                    for Gaussian noise, with mu = sensitivity / sigma,
    ln(cosh((a - 1/2) e) / cosh(e / 2)) / (a - 1) for (e, 0)-DP, which is that of randomised response, the worst one,
    `range_divergence(a, e)`                      for a loss of range e,
    ln(E e^((a - 1) L)) / (a - 1)                 for discrete Laplace noise (below),

and with a list of orders and taus it is at most what lies between them: (a - 1) times the divergence is the logarithm
of E[(P/Q)^(a-1)], which is convex in a, by Hoelder's inequality, and zero at a = 1. So for each pair of neighbours it
is below the straight line between two listed orders. Below the first order its tau holds; above the last nothing does.

Discrete Laplace noise of scale b on a number that changes by s has the loss L = (s - 2j)/b with probability 1/(1 + r)
for j = 0, r^s/(1 + r) for j = s and r^j (1 - r)/(1 + r) between, r = e^(-1/b); E e^((a-1) L) is a geometric series.

With zCDP, Gaussian noise and bounded losses alone, which are zCDP with e^2/8 for a range of e and e^2/2 for pure
privacy, the best of all orders is known (`zcdp_delta`). With listed orders, these and some between them are compared in
floats; the sum of all divergences and the delta at the best one are evaluated upward. Every order gives a true
statement.

**Replacing a unit.** `replaced` converts spends stated for adding or removing one. To replace is to remove one and add
another. So the outputs P, M, R on the data before, without the unit, and after, are two pairs of neighbours, (P, M) and
(M, R), and each spend bounds both pairs in both directions.

- Gaussian noise: the trade-off functions of two hops compose, and mu becomes 2 mu (Dong, Roth and Su 2022).
- rho-zCDP becomes 4 rho (Bun and Steinke 2016, Proposition 1.9), and e-DP becomes 2 e-DP.
- Renyi divergences: for all measures P, M, R and a > 1, by Hoelder's inequality with p = (2a - 1)/a,

      D_a(P|R) <= 2a/(2a - 1) D_(2a-1)(P|M) + D_(2a)(M|R)

  (Mironov 2017, Proposition 11), which is 4 a rho where the divergences are a rho.
- Beside a leak l: the first pair is P = (1 - l) P' + ..., M = (1 - l) M' + ..., the second M = (1 - l) M'' + ...,
  R = (1 - l) R'' + .... Both M' and M'' are below M / (1 - l), so they differ by at most m = l/(1 - l) in total
  variation. Let w M' = min(M', M'') = v M''. Then w P' has a mass of at least 1 - x, where x = E_P'[1 - w] is at most
  (m e^D_b(P'|M'))^((b-1)/b) at any order b, by Hoelder's inequality, as E_M'[1 - w] <= m; the same holds for v R''. So
  with the leak l' = l + x the measures w P' and v R'', normalised, are what is left of P and R. They obey the bound
  above, through w M' = v M'', as weights below 1 only lower the integrals; normalising adds a/(a-1) ln(1/(1 - l')).

Which parts of a spend belong together on both hops is not known, so the divergences are added up first.
"""

import math
from bisect import bisect_left
from functools import cached_property, partial

import numpy as np

from dpsieve.accounting.renyi import range_divergence, renyi_delta
from dpsieve.exact.balls import Ball, ball, smallest_epsilon, upper

from dpsieve.accounting.spends import (  # isort: skip
    Approximate, BoundedRange, DiscreteLaplace, Gaussian, Renyi, Spend, ZeroConcentrated, epsilon_of, leak,
    sum_of_epsilons,
)  # fmt: skip
from dpsieve.accounting.renyi import zcdp_delta
from dpsieve.types import Floats

_MOST = 1e9  # the largest tau that a spend takes
_LOST_AT = (4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)  # orders at which the leak is bounded; every one is sound
_LISTED, _BETWEEN = 256, 64  # how many orders are compared
_HUGE = 1e6  # with a tau above this no epsilon up to 500 keeps delta below one


class Concentrated:
    """delta(epsilon) of all spends together, but for what leaks; it is `empty` without any spend."""

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
        return min(1e200, upper(lambda: sum((_rho(spend) * spend.count for spend in self._spends), ball(0))))

    def _tau(self, order: float) -> float:
        """Return the divergence of all spends at this order, rounded up."""
        if order not in self._taus:
            self._taus[order] = upper(lambda: sum((_divergence(s, order) * s.count for s in self._spends), ball(0)))
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
            if isinstance(spend, Renyi):
                known = np.array([0.0, *spend.orders]) - [0.0, *np.ones(len(spend.orders))]
                moments = np.interp(t, known, known * [0.0, *spend.taus])
            else:
                moments = t * orders * min(1e200, upper(partial(_rho, spend)))
                if not isinstance(spend, Gaussian | ZeroConcentrated):
                    moments = np.minimum(moments, t * epsilon_of(spend))
            exponents += spend.count * moments
        return orders, exponents


def _rho(spend: Spend) -> Ball:
    """Return the rho of one run as zCDP."""
    if isinstance(spend, ZeroConcentrated):
        return ball(spend.rho)
    if isinstance(spend, Gaussian):
        return (ball(spend.sensitivity) / ball(spend.sigma)) ** 2 / 2
    assert not isinstance(spend, Renyi)
    return ball(epsilon_of(spend)) ** 2 / (8 if isinstance(spend, BoundedRange) else 2)


def divergence(spend: Spend, order: float) -> float:
    """Return a bound on the Renyi divergence of one run at an order above 1, rounded up; infinity above a list.

    A leak, the delta of an `Approximate`, stays apart.
    """
    if isinstance(spend, Renyi) and order > spend.orders[-1]:
        return math.inf
    most = math.inf if isinstance(spend, Gaussian | ZeroConcentrated | Renyi) else epsilon_of(spend)
    return most if most == 0 else max(0.0, min(most, upper(lambda: _divergence(spend, order))))


def _divergence(spend: Spend, order: float) -> Ball:
    """Return the Renyi divergence of one run at this order, or a bound on it."""
    a = ball(order)
    if isinstance(spend, Gaussian | ZeroConcentrated):
        return a * _rho(spend)
    if isinstance(spend, Renyi):
        return _between(spend, order)
    if isinstance(spend, BoundedRange):
        return range_divergence(order, spend.epsilon)
    if isinstance(spend, DiscreteLaplace) and spend.sensitivity > 1:
        return _laplace(spend, a)
    # cosh(x + e/2) / cosh(e/2), so that a small divergence keeps its digits.
    e = ball(epsilon_of(spend))
    x = (a - 1) * e
    return (2 * (x / 2).sinh() ** 2 + x.sinh() * (e / 2).tanh()).log1p() / (a - 1)


def _laplace(spend: DiscreteLaplace, a: Ball) -> Ball:
    """Return the divergence of discrete Laplace noise on a number that changes by s; see the head of this module."""
    s, rate, t = spend.sensitivity, 1 / ball(spend.scale), a - 1
    step = (1 + 2 * t) * rate  # by which r^j e^((s - 2j) t/b) falls
    between = (-rate).expm1() * ((-step).exp() * (-(s - 1) * step).expm1()) / -(-step).expm1()
    moment = (1 + (-s * step).exp() + between) / (1 + (-rate).exp())
    return s * rate + moment.log() / t


def _between(spend: Renyi, order: float) -> Ball:
    """Return the bound of a list at an order up to its last one."""
    at = bisect_left(spend.orders, order)
    if spend.orders[at] == order or at == 0:
        return ball(spend.taus[at])
    (a, below), (b, above) = ((ball(spend.orders[i]), ball(spend.taus[i])) for i in (at - 1, at))
    share = (ball(order) - a) / (b - a)
    return ((1 - share) * (a - 1) * below + share * (b - 1) * above) / (ball(order) - 1)


def replaced(spends: tuple[Spend, ...], orders: tuple[float, ...]) -> tuple[Spend, ...]:
    """Return what spends for adding or removing a unit cost if one is replaced, at these increasing orders.

    Empty where nothing is known at any order: a list of divergences must reach 2a for an order a.

    >>> replaced((Gaussian(2.0), Gaussian(2.0)), (2.0, 8.0))
    (Gaussian(sigma=1.0, sensitivity=1.4142135623730951, count=1),)
    """
    leaked = leak(spends)
    if not leaked and all(isinstance(spend, Gaussian) for spend in spends):
        squares = [(s.sensitivity, s.sigma, s.count) for s in spends if isinstance(s, Gaussian)]
        mu = upper(lambda: 2 * sum(((ball(s) / ball(b)) ** 2 * c for s, b, c in squares), ball(0)).sqrt())
        return (Gaussian(1.0, mu),)
    if not leaked and all(isinstance(spend, ZeroConcentrated) for spend in spends):
        rhos = [(s.rho, s.count) for s in spends if isinstance(s, ZeroConcentrated)]
        return (ZeroConcentrated(upper(lambda: 4 * sum((ball(rho) * c for rho, c in rhos), ball(0)))),)
    tried = (*_LOST_AT, *(2 * order for order in orders))
    lost = min(_lost(spends, order, leaked) for order in tried) if leaked else 0.0
    pairs = [(order, _doubled(spends, order, lost)) for order in orders] if lost < 1 else []
    known = [(order, tau) for order, tau in pairs if tau < _MOST]
    if not known:
        return ()
    curve = Renyi([order for order, _ in known], [tau for _, tau in known])
    return (curve, Approximate(0.0, lost)) if lost else (curve,)


def _total(spends: tuple[Spend, ...], order: float) -> float:
    parts = [(divergence(spend, order), spend.count) for spend in spends]
    if any(tau == math.inf for tau, _ in parts):
        return math.inf
    return upper(lambda: sum((ball(tau) * count for tau, count in parts), ball(0)))


def _doubled(spends: tuple[Spend, ...], order: float, lost: float) -> float:
    """Return the bound on the divergence of both hops at this order."""
    near, far = _total(spends, upper(lambda: 2 * ball(order) - 1)), _total(spends, 2 * order)
    if max(near, far) == math.inf:
        return math.inf
    both = upper(lambda: 2 * ball(order) / (2 * ball(order) - 1) * ball(near) + ball(far))
    pure = 2 * sum_of_epsilons(tuple(spend for spend in spends if not _is_leak(spend)))
    return upper(lambda: ball(min(both, pure)) - ball(order) / (ball(order) - 1) * (-ball(lost)).log1p())


def _lost(spends: tuple[Spend, ...], order: float, leaked: float) -> float:
    """Return the leak of both hops, by the divergence of one hop at this order."""
    tau = _total(spends, order)
    if tau == math.inf or leaked >= 0.5:
        return math.inf

    def expression() -> Ball:
        mass, share = ball(leaked) / (1 - ball(leaked)), (ball(order) - 1) / ball(order)
        return ball(leaked) + (share * (mass.log() + ball(tau))).exp()

    return upper(expression)


def _is_leak(spend: Spend) -> bool:
    return isinstance(spend, Approximate) and spend.epsilon == 0
