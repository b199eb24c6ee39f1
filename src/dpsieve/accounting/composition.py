"""Different guarantees together: what a list of spends costs, always as an upper bound.

A spend says which mechanism was run, and how often; a `Composition` turns a list of them into a curve delta(epsilon).
What is asked may depend on earlier results; which spends there are, with their amounts, may not, or the whole can cost
more than the curve says. All must share one relation of neighbours and one privacy unit, which the curve inherits.
Every spend but zCDP and Renyi has a privacy loss distribution: the distribution of the loss L = ln P(o)/Q(o) at an
output o drawn from P, for the worst pair of neighbours with outputs P, Q. Losses of independent outputs add, and

    delta(epsilon) = E[max(0, 1 - e^(epsilon - L))].

How the curve is made, and why it is never too low:

1. (epsilon, delta)-DP is at worst to leak everything with probability delta, and else randomised response, with losses
   +-epsilon (Kairouz, Oh and Viswanath, ICML 2015). The leaks together are 1 - prod(1 - delta). A discrete Laplace of
   sensitivity s and scale b has the losses (s - 2j)/b for j = 0..s.
2. A dominating pair for each part is one for the whole (Zhu, Dong and Wang, AISTATS 2022, Theorem 10).
3. Equal spends are convolved on their own lattice of losses; different lattices meet on a common grid. A loss between
   two grid points is split over both so that its mass under P and under Q stays the same. That spreads Q/P and keeps
   its mean, so by convexity delta grows at every epsilon, and by the square of the step only (Doroshenko et al.,
   "Connect the Dots", PETS 2022).
4. Convolutions are plain sums of positive products, never differences or Fourier transforms, so small probabilities
   keep their digits. Bounds on all roundings are added up and given back.
5. Gaussians are one Gaussian, their mu = sensitivity/sigma adding in squares (Dong, Roth and Su 2022). Its exact curve
   is averaged over the other losses; it never touches the grid.
6. zCDP and Renyi spends, the concentrated part, have no worst pair; a Gaussian of the same rho does not dominate zCDP.
   Their divergences add up at each order (`privacy.curves.concentrated`). The sum is combined with the rest in two
   sound ways, of which the better counts. (a) All is concentrated: epsilon-DP and Gaussians have Renyi divergences too,
   and leaks stay apart (Bun and Steinke, TCC 2016, Proposition 3.3 and Section 8). (b) The concentrated part is (e,
   d)-DP at every point of its own curve, so it may join the rest as such a spend; the best point is searched for. A
   loss of bounded range e is e-DP, and cheaper under (a), which is tried too.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from dpsieve import validate
from dpsieve.accounting.concentrated import Concentrated
from dpsieve.accounting.loss_distributions import LossCurve, either
from dpsieve.errors import InvalidType
from dpsieve.exact.balls import minimise, smallest, smallest_epsilon

from dpsieve.accounting.spends import (  # isort: skip
    BoundedRange, Renyi, Spend, ZeroConcentrated, checked_spends, spend_from_json, sum_of_epsilons,
)  # fmt: skip


@dataclass(frozen=True)
class Composition:
    """All `spends` together, as a curve of (epsilon, delta) guarantees. An empty list spends nothing.

    `delta(epsilon)` and `epsilon(delta)` are upper bounds, never worse than `basic`, and mean something down to
    delta = 1e-30. Without the concentrated part they are above the optimum by less than one in 1,000 (in epsilon),
    mostly far less, for up to some thousand different spends. Each of these costs about a millisecond, equal ones are
    joined first; memory stays at some megabytes.

    >>> from dpsieve.privacy import Approximate, DiscreteLaplace, Gaussian
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

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain values; `from_json` reads it back exactly."""
        return {"spends": [spend.to_json() for spend in self.spends]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the composition that `to_json` described; anything else is refused."""
        if not isinstance(data, Mapping) or not isinstance(data.get("spends"), list):
            raise InvalidType("data must be a mapping with a list 'spends'. Pass the dict made by to_json.")
        return cls(spend_from_json(part) for part in data["spends"])

    @cached_property
    def _curve(self) -> LossCurve:
        return LossCurve(self.spends)

    @cached_property
    def _rough(self) -> LossCurve:
        """A coarser curve, also an upper bound, for searches: 16 times as fast."""
        return LossCurve(self.spends, grid=2**12)

    @cached_property
    def _part(self) -> Concentrated:
        return Concentrated(tuple(spend for spend in self.spends if isinstance(spend, ZeroConcentrated | Renyi)))

    @cached_property
    def _all(self) -> Concentrated:
        return Concentrated(self.spends)

    @cached_property
    def pure_epsilon(self) -> float:
        """The sum of the epsilons, rounded up; infinity where a spend has none."""
        return sum_of_epsilons(self.spends)

    def _simple(self, epsilon: float) -> float:
        leak = self._curve.leak
        if epsilon >= self.pure_epsilon:
            return leak
        best = self._curve.delta(epsilon) if self._part.empty else 1.0
        if not self._part.empty or any(isinstance(spend, BoundedRange) for spend in self.spends):
            best = min(best, either(leak, self._all.delta(epsilon)))
        return best

    def _rough_epsilon(self, point: float, delta: float) -> float:
        """Return the epsilon where the concentrated part enters at this point, by the coarser curve."""
        return smallest_epsilon(lambda e: _joined(self._part, self._rough, e, point) <= delta, tolerance=1e-6)

    def _epsilon_at(self, point: float, delta: float) -> float:
        """Return the epsilon where the concentrated part enters at this point; searched for near the rough one."""

        def holds(epsilon: float) -> bool:
            return _joined(self._part, self._curve, epsilon, point) <= delta

        near = self._rough_epsilon(point, delta)
        if near < math.inf and holds(near):
            return smallest(holds, 0.9 * near, near, tolerance=1e-9)
        return smallest_epsilon(holds, tolerance=1e-9)


def _joined(part: Concentrated, curve: LossCurve, epsilon: float, point: float) -> float:
    """Return delta where the concentrated part enters as (point, its delta at point)-DP, beside the curve of others."""
    truth = 1 / (1 + math.exp(-point))
    rest = truth * curve.delta(epsilon - point) + (1 - truth) * curve.delta(epsilon + point)
    return either(part.delta(point), rest)
