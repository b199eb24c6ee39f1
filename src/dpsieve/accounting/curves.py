"""Curves of Gaussian noise, of zero-concentrated and of Renyi differential privacy, as tight as is known.

**Gaussian noise.** One mechanism adds N(0, sigma^2) to each coordinate of a vector whose L2 distance between neighbours
is at most `sensitivity`; `count` of them may be chosen adaptively. With mu = sqrt(count) * sensitivity / sigma and Phi
the standard normal distribution function, all together are (epsilon, delta)-DP if and only if

    delta >= Phi(mu/2 - epsilon/mu) - e^epsilon * Phi(-mu/2 - epsilon/mu).

The formula is for real-valued noise; samplers must be shown to follow it.

**Renyi and zCDP.** A mechanism is (order, tau)-Renyi private if for every pair of neighbours, in both directions, the
Renyi divergence of this order of its outputs is at most tau; rho-zCDP means tau = rho * a for every order a > 1. The
taus of an adaptive sequence at one order add up. With a = order it is (epsilon, delta)-DP with

    delta = e^((a - 1) * (tau - epsilon)) / (a - 1) * (1 - 1/a)^a,

optimised over a in floats and then rounded up. References: docs/background/composition.md#curves.
"""

import math
from functools import lru_cache
from typing import Annotated

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import Ball, ball, largest, lower, smallest, smallest_epsilon, upper
from dpsieve.types import Floats

SIGMA = "Pass a standard deviation such as sigma=2.0."
DISTANCE = "Pass an L2 distance such as sensitivity=1.0."


def gaussian_delta(sigma: float, epsilon: float, sensitivity: float = 1.0, *, count: int = 1) -> float:
    """Return the smallest delta of the Gaussian mechanism at `epsilon`, rounded up.

    The result is a proven upper bound with a relative error below 1e-12, also where delta is 1e-20 (a value below the
    smallest positive float gives that float).

    Args:
        sigma: standard deviation, > 0.
        epsilon: in [0, 500].
        sensitivity: L2 distance of neighbours, > 0.
        count: number of mechanisms composed.

    >>> f"{gaussian_delta(3.7307, 1.0):.4g}"
    '9.997e-06'
    """
    sigma, sensitivity = checked_noise(sigma, sensitivity)
    return _gaussian_delta(sigma, validate.epsilon(epsilon), sensitivity, checked_count(count))


def gaussian_epsilon(sigma: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return the smallest epsilon of the Gaussian mechanism at `delta`, rounded up.

    The result satisfies `gaussian_delta(sigma, result, ...) <= delta`. It is infinity where no epsilon up to 500 is
    enough, as for delta=0.

    >>> round(gaussian_epsilon(3.7307, 1e-5), 4)
    1.0
    """
    sigma, sensitivity = checked_noise(sigma, sensitivity)
    delta = validate.delta(delta)
    return smallest_epsilon(lambda epsilon: _gaussian_delta(sigma, epsilon, sensitivity, 1) <= delta)


def gaussian_sigma(epsilon: float, delta: float, *, sensitivity: float = 1.0, count: int = 1) -> float:
    """Return the smallest sigma with which `count` mechanisms together are (epsilon, delta)-DP, rounded up.

    The result satisfies `gaussian_delta(result, epsilon, sensitivity, count=count) <= delta`. A delta of zero is
    refused.

    >>> round(gaussian_sigma(1.0, 1e-5), 4)
    3.7306
    """
    epsilon, delta = validate.epsilon(epsilon), positive_delta(delta)
    return _gaussian_sigma(epsilon, delta, checked_noise(1.0, sensitivity)[1], checked_count(count))


@lru_cache(maxsize=256)
def _gaussian_sigma(epsilon: float, delta: float, sensitivity: float, count: int) -> float:
    # At epsilon = 0 delta is below 0.3990 mu, and it falls with epsilon: this sigma is always enough. At mu = 64 no
    # epsilon up to 500 brings delta below 1 - 1e-100: this one never is.
    enough = upper(lambda: ball(count).sqrt() * ball(sensitivity) / ball(delta) * 2 / 5)
    if not math.isfinite(enough):
        fix = f"Lower sensitivity={sensitivity:g} or raise delta."
        raise InvalidValue(f"sigma would be too large for a float. {fix}", argument="sensitivity")
    never = min(enough, math.sqrt(count) * sensitivity / 64)
    return smallest(lambda sigma: _gaussian_delta(sigma, epsilon, sensitivity, count) <= delta, never, enough)


def gaussian_curve(epsilon: Floats, mu: float | Floats) -> Floats:
    """Return the exact delta at many epsilons of any sign, in floats, for mu in (0, 40]; arguments are not checked.

    The margin, 2^-39 of the first term, covers rounding with special functions accurate to 1e-13. Values below 1e-300
    may become zero.

    >>> float(gaussian_curve(np.array([1.0]), 1 / 3.7307)[0]) >= gaussian_delta(3.7307, 1.0)
    True
    """
    from scipy.special import erfcx, log_ndtr, ndtr

    with np.errstate(over="ignore"):
        low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        tail = ndtr(-low)
        # Right of the middle a common factor is extracted, so that the difference keeps its digits.
        root, right = math.sqrt(2), low > 0
        scaled = (erfcx(np.where(right, low, 0) / root) - erfcx(np.where(right, high, 0) / root)) / 2
        exact = np.where(right, np.exp(-low * low / 2) * scaled, tail - np.exp(epsilon + log_ndtr(-high)))
    return np.asarray(np.maximum(0, exact) + 2.0**-39 * tail)


def positive_delta(delta: float, name: str = "delta") -> float:
    """Return a delta in (0, 1)."""
    return validate.positive(name, validate.delta(delta, name), hint="Pass a small probability such as delta=1e-8.")


PositiveDelta = Annotated[float, positive_delta]


def _gaussian_delta(sigma: float, epsilon: float, sensitivity: float, count: int) -> float:
    def expression() -> Ball:
        mu = ball(count).sqrt() * ball(sensitivity) / ball(sigma)
        middle, root = ball(epsilon) / mu, ball(2).sqrt()
        first, second = ((middle - mu / 2) / root).erfc(), ((middle + mu / 2) / root).erfc()
        return (first - ball(epsilon).exp() * second) / 2

    return min(1.0, upper(expression))


def checked_noise(sigma: float, sensitivity: float) -> tuple[float, float]:
    """Return sigma and sensitivity, above zero."""
    return validate.positive("sigma", sigma, hint=SIGMA), validate.positive("sensitivity", sensitivity, hint=DISTANCE)


def checked_count(count: int) -> int:
    """Return the number of mechanisms composed."""
    return validate.whole("count", count, low=1, high=10**12, hint="Pass how many are composed, such as count=1.")


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
        raise InvalidValue(f"{message} Raise the order, epsilon or delta.", argument="order")
    return tau


def range_divergence(order: float, epsilon: float) -> Ball:
    """Return the largest Renyi divergence of a pair whose losses lie in an interval of length epsilon > 0, as a ball.

    Proof: docs/background/composition.md#kinds-of-spends.
    """
    a, e = ball(order), ball(epsilon)
    full, reduced = -(-a * e).expm1(), -((1 - a) * e).expm1()  # 1 - c^a and 1 - c^(a-1)
    top = ((a - 1) * full / (a * reduced)).log() + e
    return top + (full / (-a * (-e).expm1())).log() / (a - 1)


def checked_order(order: float) -> float:
    """Return the order of a Renyi divergence, above 1."""
    hint = "Pass the order of a Renyi divergence, above 1, such as order=16."
    if validate.between("order", order, 1.0, 1e9, hint=hint) == 1:
        raise InvalidValue(f"order=1 is not above 1. {hint}", argument="order")
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
    return _zcdp_delta(_rho(rho), validate.epsilon(epsilon))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return an epsilon for which every rho-zCDP mechanism is (epsilon, delta)-DP, rounded up.

    The result satisfies `zcdp_delta(rho, result) <= delta`. It is infinity where no epsilon up to 500 is enough, as
    for delta=0.

    >>> round(zcdp_epsilon(0.1, 1e-6), 4)
    2.1419
    """
    rho, delta = _rho(rho), validate.delta(delta)
    return smallest_epsilon(lambda epsilon: _zcdp_delta(rho, epsilon) <= delta)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho for which every rho-zCDP mechanism is (epsilon, delta)-DP, rounded down.

    `delta` is in (0, 1): a rho above zero never gives delta = 0.

    >>> round(zcdp_rho(1.0, 1e-6), 6)
    0.024356
    """
    epsilon, delta = validate.epsilon(epsilon), positive_delta(delta)
    # Every epsilon up to 500 leaves delta at 1 (as a float) where rho is 2000.
    rho = largest(lambda rho: rho == 0 or _zcdp_delta(rho, epsilon) <= delta, 0.0, 2000.0)
    if rho == 0:
        raise InvalidValue(
            f"delta={delta:g} leaves no rho at epsilon={epsilon:g}. Raise epsilon or delta.", argument="delta"
        )
    return rho


def _zcdp_delta(rho: float, epsilon: float) -> float:
    best = _order(rho, epsilon)

    def expression() -> Ball:
        t = ball(best)
        return (t * ((1 + t) * ball(rho) - ball(epsilon)) + _factor(t)).exp()

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
