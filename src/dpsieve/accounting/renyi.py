"""Renyi and zero-concentrated differential privacy, converted to (epsilon, delta) as tightly as is known.

A mechanism is (order, tau)-Renyi private if for every pair of neighbours, in both directions, the Renyi divergence of
this order of its outputs is at most tau. The taus of an adaptive sequence at one order add up, for the relation of
neighbours that they share. With a = order > 1, the mechanism is (epsilon, delta)-DP with

    delta = e^((a - 1) * (tau - epsilon)) / (a - 1) * (1 - 1/a)^a.

It is rho-zCDP if tau = rho * a holds for every order a > 1. Every a gives a true statement, so a is optimised in floats
and the formula is then rounded up.

References: B. Balle, G. Barthe, M. Gaboardi, J. Hsu and T. Sato, "Hypothesis Testing Interpretations and Renyi
Differential Privacy", AISTATS 2020, Theorem 21; C. Canonne, G. Kamath and T. Steinke, "The Discrete Gaussian for
Differential Privacy", NeurIPS 2020, Proposition 12 and Corollary 13; M. Bun and T. Steinke, "Concentrated Differential
Privacy", TCC 2016.
"""

import math

from dpsieve import validate
from dpsieve.accounting.gaussian import checked_count, positive_delta
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import Ball, ball, largest, lower, smallest_epsilon, upper


def renyi_delta(order: float, tau: float, epsilon: float) -> float:
    """Return a delta, rounded up, for which every (order, tau)-Renyi private mechanism is (epsilon, delta)-DP.

    `order` > 1, `tau` >= 0 and `epsilon` in [0, 500]. The result is at most 1.

    >>> f"{renyi_delta(16.0, 0.4, 1.0):.3g}"
    '2.93e-06'
    """
    order, tau, epsilon = checked_order(order), _tau(tau), validate.epsilon(epsilon)
    return min(1.0, upper(lambda: ((ball(order) - 1) * (ball(tau) - ball(epsilon)) + _factor(ball(order) - 1)).exp()))


def renyi_tau(order: float, epsilon: float, delta: float) -> float:
    """Return the largest tau for which (order, tau)-Renyi privacy gives (epsilon, delta)-DP, rounded down.

    The inverse of `renyi_delta`: `renyi_delta(order, result, epsilon) <= delta`. An order at which even a tau of zero
    does not give (epsilon, delta) is refused.

    >>> round(renyi_tau(16.0, 1.0, 1e-5), 6), renyi_delta(16.0, renyi_tau(16.0, 1.0, 1e-5), 1.0) <= 1e-5
    (0.481849, True)
    >>> renyi_tau(2.0, 1.0, 1e-5)
    Traceback (most recent call last):
    dpsieve.errors.InvalidValue: order=2 leaves no tau at epsilon=1 and delta=1e-05. Raise the order, ...
    """
    order, epsilon, delta = checked_order(order), validate.epsilon(epsilon), positive_delta(delta)
    tau = lower(lambda: ball(epsilon) + (ball(delta).log() - _factor(ball(order) - 1)) / (ball(order) - 1))
    if not tau > 0:
        message = f"order={order:g} leaves no tau at epsilon={epsilon:g} and delta={delta:g}."
        raise InvalidValue(f"{message} Raise the order, epsilon or delta.")
    return tau


def range_divergence(order: float, epsilon: float) -> Ball:
    """Return the largest Renyi divergence of a pair whose losses lie in an interval of length epsilon > 0, as a ball.

    Let the losses be from ln s - e to ln s. The ratio P/Q has mean 1 under Q, so by convexity the divergence is
    largest with both ends alone: loss ln s with probability (1 - s c)/(1 - c) under P, else ln s - e, with c = exp(-e)
    and s from 1 to 1/c (Dong, Durfee and Rogers 2020). With a = order it is ln(m(s))/(a - 1) for
    m(s) = s^(a-1) ((1 - c^a) - s (c - c^a))/(1 - c), largest at s = (a - 1)(1 - c^a)/(a (c - c^a)), which lies between,
    by Bernoulli's inequality. Exchanging P and Q turns s into 1/(s c), so both directions are covered.
    """
    a, e = ball(order), ball(epsilon)
    whole, reduced = -(-a * e).expm1(), -((1 - a) * e).expm1()  # 1 - c^a and 1 - c^(a-1)
    top = ((a - 1) * whole / (a * reduced)).log() + e
    return top + (whole / (-a * (-e).expm1())).log() / (a - 1)


def checked_order(order: float) -> float:
    """Return the order of a Renyi divergence, above 1."""
    hint = "Pass the order of a Renyi divergence, above 1, such as order=16."
    if validate.between("order", order, 1.0, 1e9, hint=hint) == 1:
        raise InvalidValue(f"order=1 is not above 1. {hint}")
    return float(order)


def spread_orders(order: float, count: int) -> tuple[float, ...]:
    """Return this number of orders up to the given one, at which a mechanism may state its cost.

    Many uses are best accounted for at lower orders than a single use. Distances from 1 grow by equal factors from 1/2.

    >>> [round(each, 3) for each in spread_orders(33.0, 7)]
    [1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0]
    """
    least = min(0.5, (order - 1) / 2)
    lower = (1 + least * ((order - 1) / least) ** (i / (count - 1)) for i in range(count - 1))
    return (*lower, order)


def _factor(t: Ball) -> Ball:
    """Return the logarithm of (1 - 1/a)^a / (a - 1), with t = a - 1 so that it keeps its digits near a = 1."""
    return t * t.log() - (1 + t) * t.log1p()


def _tau(tau: float) -> float:
    return validate.between("tau", tau, 0.0, 1e9, hint="Pass a bound on a Renyi divergence, such as tau=0.5.")


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return a delta for which every rho-zCDP mechanism is (epsilon, delta)-DP, rounded up; at most 1.

    `rho` > 0 and `epsilon` in [0, 500].

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
        t, total = ball(best), ball(rho) * count
        return (t * ((1 + t) * total - ball(epsilon)) + _factor(t)).exp()

    return min(1.0, upper(expression))


def _order(rho: float, epsilon: float) -> float:
    """Return a - 1 for the best order a, by bisection of the derivative, which increases with a."""
    low, high = -700.0, min(700.0, math.log(epsilon + 4) + max(0.0, -math.log(rho)))
    for _ in range(64):
        middle = (low + high) / 2
        falls = (1 + 2 * math.exp(middle)) * rho - epsilon - math.log1p(math.exp(-middle)) < 0
        low, high = (middle, high) if falls else (low, middle)
    return math.exp(low)


def _rho(rho: float) -> float:
    return validate.positive("rho", rho, hint="Pass a zCDP budget such as rho=0.1.")
