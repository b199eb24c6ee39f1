"""Zero-concentrated differential privacy, turned into (epsilon, delta) as tightly as is known.

A mechanism is rho-zCDP if for every pair of neighbours and every order alpha > 1 the Renyi divergence of its outputs
is at most rho * alpha. The rhos of an adaptive sequence add up, for the relation of neighbours that they share. Then,
for every alpha > 1, the mechanism is (epsilon, delta)-DP with

    delta = e^((alpha - 1) * (alpha * rho - epsilon)) / (alpha - 1) * (1 - 1/alpha)^alpha.

Every alpha gives a true statement, so alpha is optimised in floats and the formula is then evaluated upward.

References: M. Bun and T. Steinke, "Concentrated Differential Privacy", TCC 2016; C. Canonne, G. Kamath and T. Steinke,
"The Discrete Gaussian for Differential Privacy", NeurIPS 2020, Proposition 12 and Corollary 13.
"""

import math

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact.search import Ball, ball, largest, smallest_epsilon, upper
from dpsieve.privacy.curves.gaussian import checked_count, positive_delta


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return a delta for which every rho-zCDP mechanism is (epsilon, delta)-DP, rounded up; at most 1.

    Put in `rho` > 0 and `epsilon` in [0, 500].

    >>> f"{zcdp_delta(0.1, 2.0):.3g}"
    '4.33e-06'
    """
    return _delta(_rho(rho), validate.epsilon(epsilon), 1)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return an epsilon for which every rho-zCDP mechanism is (epsilon, delta)-DP, rounded up.

    The result satisfies `zcdp_delta(rho, result) <= delta`. It is infinity where no epsilon up to 500 is enough, as
    for delta=0.

    >>> round(zcdp_epsilon(0.1, 1e-6), 4)
    2.1419
    """
    rho, delta = _rho(rho), validate.delta(delta)
    return smallest_epsilon(lambda epsilon: _delta(rho, epsilon, 1) <= delta)


def zcdp_rho(epsilon: float, delta: float, *, count: int = 1) -> float:
    """Return the largest rho such that `count` rho-zCDP mechanisms together are (epsilon, delta)-DP, rounded down.

    `delta` is in (0, 1): a rho above zero never gives delta = 0.

    >>> round(zcdp_rho(1.0, 1e-6), 6), round(zcdp_rho(1.0, 1e-6, count=10), 7)
    (0.024356, 0.0024356)
    """
    epsilon, delta, count = validate.epsilon(epsilon), positive_delta(delta), checked_count(count)
    # Every epsilon up to 500 leaves delta at 1 (as a float) where rho is 2000.
    rho = largest(lambda rho: rho == 0 or _delta(rho, epsilon, count) <= delta, 0.0, 2000.0)
    if rho == 0:
        raise InvalidValue(f"delta={delta:g} leaves no rho at epsilon={epsilon:g}. Raise epsilon or delta.")
    return rho


def _delta(rho: float, epsilon: float, count: int) -> float:
    best = _order(rho * count, epsilon)

    def expression() -> Ball:
        # With t = alpha - 1 the exponent keeps its digits where alpha is close to one.
        t, total = ball(best), ball(rho) * count
        return (t * ((1 + t) * total - ball(epsilon)) + t * t.log() - (1 + t) * t.log1p()).exp()

    return min(1.0, upper(expression))


def _order(rho: float, epsilon: float) -> float:
    """Return alpha - 1 for the best alpha, by bisection of the derivative, which increases with alpha."""
    low, high = -700.0, min(700.0, math.log(epsilon + 4) + max(0.0, -math.log(rho)))
    for _ in range(64):
        middle = (low + high) / 2
        falls = (1 + 2 * math.exp(middle)) * rho - epsilon - math.log1p(math.exp(-middle)) < 0
        low, high = (middle, high) if falls else (low, middle)
    return math.exp(low)


def _rho(rho: float) -> float:
    return validate.positive("rho", rho, hint="Pass a zCDP budget such as rho=0.1.")
