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
"""

import math
from bisect import bisect_left
from functools import cached_property, partial

import numpy as np

from dpsieve.exact.search import Ball, ball, smallest_epsilon, upper
from dpsieve.privacy.curves.renyi import range_divergence, renyi_delta

from dpsieve.privacy.curves.spends import (  # isort: skip
    BoundedRange, DiscreteLaplace, Gaussian, Renyi, Spend, ZeroConcentrated, epsilon_of,
)  # fmt: skip
from dpsieve.privacy.curves.zcdp import zcdp_delta
from dpsieve.types import Floats

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
