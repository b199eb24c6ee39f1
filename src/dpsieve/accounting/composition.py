"""Composition of different spends, as an upper bound on the curve delta(epsilon).

Queries may depend on earlier results; the list of spends and their amounts may not, or the true cost can exceed the
curve. All spends must share one relation of neighbours and one privacy unit, which the curve inherits.
Every spend but zCDP and Renyi has a privacy loss distribution: the distribution of the loss L = ln P(o)/Q(o) at an
output o drawn from P, for the worst pair of neighbours with outputs P, Q. Losses of independent outputs add, and

    delta(epsilon) = E[max(0, 1 - e^(epsilon - L))].

How the curve is computed, and why it is never too low:

1. The worst (epsilon, delta)-DP mechanism leaks everything with probability delta, else is randomised response, losses
   +-epsilon (Kairouz, Oh and Viswanath, ICML 2015). The leaks together are 1 - prod(1 - delta). A discrete Laplace of
   sensitivity s and scale b has the losses (s - 2j)/b for j = 0..s.
2. A dominating pair for each part is one for the whole (Zhu, Dong and Wang, AISTATS 2022, Theorem 10).
3. Equal spends are convolved on their own lattice of losses; different lattices meet on a common grid. A loss between
   two grid points is split over both so that its mass under P and under Q stays the same. That spreads Q/P and keeps
   its mean, so by convexity delta grows at every epsilon, and by the square of the step only (Doroshenko et al.,
   "Connect the Dots", PETS 2022).
4. Convolutions are plain sums of positive products, never differences or Fourier transforms, so small probabilities
   keep their digits. Bounds on all rounding errors are added to the result.
5. Gaussians are one Gaussian, their mu = sensitivity/sigma adding in squares (Dong, Roth and Su 2022). Its exact curve
   is averaged over the other losses; it never touches the grid.
6. zCDP and Renyi spends, the concentrated part, have no worst pair; a Gaussian of the same rho does not dominate zCDP.
   Their divergences add up at each order. The sum is combined with the other spends in two sound ways, and the better
   one counts. (a) All is concentrated: epsilon-DP and Gaussians have Renyi divergences too, and leaks stay apart (Bun
   and Steinke, TCC 2016, Proposition 3.3 and Section 8). (b) The concentrated part is (e, d)-DP at every point of its
   own curve, so it may join the others as such a spend; the best point is searched for. A loss of bounded range e is
   e-DP, and cheaper under (a), which is tried too.

**Replacing a unit.** `convert_to_replacement` takes spends stated for adding or removing one unit. To replace is to
remove one and add another. So the outputs P, M, R on the data before, without the unit, and after, are two pairs of
neighbours, (P, M) and (M, R), and each spend bounds both pairs in both directions.

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
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpsieve import validate
from dpsieve.accounting.loss_distributions import LossCurve, either
from dpsieve.accounting.renyi import renyi_delta, zcdp_delta
from dpsieve.exact.balls import Ball, ball, minimise, smallest, smallest_epsilon, upper
from dpsieve.types import Floats

from dpsieve.accounting.spends import (  # isort: skip
    Approximate, Gaussian, Renyi, Spend, ZeroConcentrated, checked_spends, total_divergence, total_epsilon, total_leak,
)  # fmt: skip

_MOST = 1e9  # the largest tau that a spend takes
_LOST_AT = (4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)  # orders at which the leak is bounded; every one is sound
_LISTED, _BETWEEN = 256, 64  # how many orders are compared
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

    `delta(epsilon)` and `epsilon(delta)` are upper bounds, never worse than `basic`, and are accurate down to
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
    known = [(order, tau) for order, tau in pairs if tau < _MOST]
    if not known:
        return ()
    curve = Renyi([order for order, _ in known], [tau for _, tau in known])
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
