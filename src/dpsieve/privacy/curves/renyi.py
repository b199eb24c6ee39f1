"""Renyi differential privacy at one order, turned into (epsilon, delta) as tightly as is known.

A mechanism is (order, tau)-Renyi private if for every pair of neighbours, in both directions, the Renyi divergence of
this order of its outputs is at most tau. The taus of an adaptive sequence at one order add up, for the relation of
neighbours that they share. Then, with a = order > 1, the mechanism is (epsilon, delta)-DP with

    delta = e^((a - 1) * (tau - epsilon)) / (a - 1) * (1 - 1/a)^a.

References: B. Balle, G. Barthe, M. Gaboardi, J. Hsu and T. Sato, "Hypothesis Testing Interpretations and Renyi
Differential Privacy", AISTATS 2020, Theorem 21; C. Canonne, G. Kamath and T. Steinke, "The Discrete Gaussian for
Differential Privacy", NeurIPS 2020, Proposition 12.
"""

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact.search import Ball, ball, lower, upper
from dpsieve.privacy.curves.gaussian import positive_delta


def renyi_delta(order: float, tau: float, epsilon: float) -> float:
    """Return a delta, rounded up, for which every (order, tau)-Renyi private mechanism is (epsilon, delta)-DP.

    Put in `order` > 1, `tau` >= 0 and `epsilon` in [0, 500]. The result is at most 1.

    >>> f"{renyi_delta(16.0, 0.4, 1.0):.3g}"
    '2.93e-06'
    """
    order, tau, epsilon = checked_order(order), _tau(tau), validate.epsilon(epsilon)
    return min(1.0, upper(lambda: ((ball(order) - 1) * (ball(tau) - ball(epsilon)) + _factor(order)).exp()))


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
    tau = lower(lambda: ball(epsilon) + (ball(delta).log() - _factor(order)) / (ball(order) - 1))
    if not tau > 0:
        text = f"order={order:g} leaves no tau at epsilon={epsilon:g} and delta={delta:g}."
        raise InvalidValue(f"{text} Raise the order, epsilon or delta.")
    return tau


def range_divergence(order: float, epsilon: float) -> Ball:
    """Return the largest Renyi divergence of a pair whose losses lie in an interval of length epsilon > 0, as a ball.

    Say the losses are from ln s - e to ln s. The ratio P/Q has mean 1 under Q, so by convexity the divergence is
    largest with both ends alone: loss ln s with probability (1 - s c)/(1 - c) under P, else ln s - e, with c = exp(-e)
    and s from 1 to 1/c (Dong, Durfee and Rogers 2020). With a = order it is ln(m(s))/(a - 1) for
    m(s) = s^(a-1) ((1 - c^a) - s (c - c^a))/(1 - c), largest at s = (a - 1)(1 - c^a)/(a (c - c^a)), which lies between,
    by Bernoulli's inequality. Exchanging P and Q turns s into 1/(s c), so both directions are covered.
    """
    a, e = ball(order), ball(epsilon)
    both, rest = -(-a * e).expm1(), -((1 - a) * e).expm1()  # 1 - c^a and 1 - c^(a-1)
    top = ((a - 1) * both / (a * rest)).log() + e
    return top + (both / (-a * (-e).expm1())).log() / (a - 1)


def checked_order(order: float) -> float:
    """Return the order of a Renyi divergence, above 1."""
    hint = "Pass the order of a Renyi divergence, above 1, such as order=16."
    if validate.between("order", order, 1.0, 1e9, hint=hint) == 1:
        raise InvalidValue(f"order=1 is not above 1. {hint}")
    return float(order)


def spread_orders(order: float, count: int) -> tuple[float, ...]:
    """Return this number of orders up to the given one, at which a mechanism made for it may say what it costs.

    Many uses are best accounted for at lower orders than one. Distances from 1 grow by equal factors, from 1/2 on.

    >>> [round(each, 3) for each in spread_orders(33.0, 7)]
    [1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0]
    """
    least = min(0.5, (order - 1) / 2)
    lower = (1 + least * ((order - 1) / least) ** (i / (count - 1)) for i in range(count - 1))
    return (*lower, order)


def _factor(order: float) -> Ball:
    """Return the logarithm of (1 - 1/a)^a / (a - 1), with t = a - 1 so that it keeps its digits near a = 1."""
    t = ball(order) - 1
    return t * t.log() - (1 + t) * t.log1p()


def _tau(tau: float) -> float:
    return validate.between("tau", tau, 0.0, 1e9, hint="Pass a bound on a Renyi divergence, such as tau=0.5.")
