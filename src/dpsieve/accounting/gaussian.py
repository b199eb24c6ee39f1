"""The Gaussian mechanism, exactly: the smallest noise for a budget, and the budget that a noise costs.

One mechanism adds N(0, sigma^2) to each coordinate of a vector whose L2 distance between neighbours is at most
`sensitivity`; `count` of them may be chosen adaptively. The relation of neighbours is the one in which the sensitivity
was measured. With

    mu = sqrt(count) * sensitivity / sigma

and Phi the standard normal distribution function, all together are (epsilon, delta)-DP if and only if

    delta >= Phi(mu/2 - epsilon/mu) - e^epsilon * Phi(-mu/2 - epsilon/mu).

References: B. Balle and Y.-X. Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018, Theorem 8;
J. Dong, A. Roth and W. Su, "Gaussian Differential Privacy", 2022, for the composition (the mu add in squares).
The formula is for real-valued noise; samplers must be shown to follow it.
"""

import math

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import Ball, ball, smallest, smallest_epsilon, upper
from dpsieve.types import Floats


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
    return _delta(sigma, validate.epsilon(epsilon), sensitivity, checked_count(count))


def gaussian_epsilon(sigma: float, delta: float, sensitivity: float = 1.0, *, count: int = 1) -> float:
    """Return the smallest epsilon of the Gaussian mechanism at `delta`, rounded up.

    The result satisfies `gaussian_delta(sigma, result, ...) <= delta`. It is infinity where no epsilon up to 500 is
    enough, as for delta=0.

    >>> round(gaussian_epsilon(3.7307, 1e-5), 4)
    1.0
    """
    sigma, sensitivity = checked_noise(sigma, sensitivity)
    delta, count = validate.delta(delta), checked_count(count)
    return smallest_epsilon(lambda epsilon: _delta(sigma, epsilon, sensitivity, count) <= delta)


def gaussian_sigma(epsilon: float, delta: float, *, sensitivity: float = 1.0, count: int = 1) -> float:
    """Return the smallest sigma with which `count` mechanisms together are (epsilon, delta)-DP, rounded up.

    The result satisfies `gaussian_delta(result, epsilon, sensitivity, count=count) <= delta`. A delta of zero is
    refused.

    >>> round(gaussian_sigma(1.0, 1e-5), 4)
    3.7306
    """
    epsilon, delta = validate.epsilon(epsilon), positive_delta(delta)
    (_, sensitivity), count = checked_noise(1.0, sensitivity), checked_count(count)
    # At epsilon = 0 delta is below 0.3990 mu, and it falls with epsilon: this sigma is always enough. At mu = 64 no
    # epsilon up to 500 brings delta below 1 - 1e-100: this one never is.
    enough = upper(lambda: ball(count).sqrt() * ball(sensitivity) / ball(delta) * 2 / 5)
    if not math.isfinite(enough):
        raise InvalidValue(f"sigma would be too large for a float. Lower sensitivity={sensitivity:g} or raise delta.")
    never = min(enough, math.sqrt(count) * sensitivity / 64)
    return smallest(lambda sigma: _delta(sigma, epsilon, sensitivity, count) <= delta, never, enough)


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


def positive_delta(delta: float) -> float:
    """Return a delta in (0, 1)."""
    return validate.positive("delta", validate.delta(delta), hint="Pass a small probability such as delta=1e-8.")


def _delta(sigma: float, epsilon: float, sensitivity: float, count: int) -> float:
    def expression() -> Ball:
        mu = ball(count).sqrt() * ball(sensitivity) / ball(sigma)
        middle, root = ball(epsilon) / mu, ball(2).sqrt()
        first, second = ((middle - mu / 2) / root).erfc(), ((middle + mu / 2) / root).erfc()
        return (first - ball(epsilon).exp() * second) / 2

    return min(1.0, upper(expression))


def checked_noise(sigma: float, sensitivity: float) -> tuple[float, float]:
    """Return sigma and sensitivity, above zero."""
    sigma = validate.positive("sigma", sigma, hint="Pass a standard deviation such as sigma=2.0.")
    return sigma, validate.positive("sensitivity", sensitivity, hint="Pass an L2 distance such as sensitivity=1.0.")


def checked_count(count: int) -> int:
    """Return the number of mechanisms composed."""
    return validate.whole("count", count, low=1, high=10**12, hint="Pass how many are composed, such as count=1.")
