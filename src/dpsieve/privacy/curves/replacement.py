"""Spends stated for adding or removing a unit, converted to spends for replacing one.

Replacing a unit is removing one and adding another. So the outputs P, M, R on the data before, without the unit, and
after, are two pairs of neighbours, (P, M) and (M, R), and each spend bounds both pairs in both directions.

- Gaussian noise: the trade-off functions of two hops compose, and mu becomes 2 mu (Dong, Roth and Su 2022).
- rho-zCDP becomes 4 rho (Bun and Steinke 2016, Proposition 1.9), a loss of range e one of range 2 e, and e-DP 2 e-DP.
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

from dpsieve.exact.search import Ball, ball, upper
from dpsieve.privacy.curves.concentrated import divergence

from dpsieve.privacy.curves.spends import (  # isort: skip
    Approximate, Gaussian, Renyi, Spend, ZeroConcentrated, leak, sum_of_epsilons,
)  # fmt: skip

_MOST = 1e9  # the largest tau that a spend takes
_LOST_AT = (4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)  # orders at which the leak is bounded; every one is sound


def replaced(spends: tuple[Spend, ...], orders: tuple[float, ...]) -> tuple[Spend, ...]:
    """Return what spends for adding or removing a unit cost if one is replaced, at these increasing orders.

    Empty where nothing is known at any order: a list of divergences must reach 2a for an order a.

    >>> from dpsieve.privacy.curves.spends import Gaussian
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
