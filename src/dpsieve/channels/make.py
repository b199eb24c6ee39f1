"""The channels by name."""

import math

from dpsieve import validate
from dpsieve.channels.additive import AdditiveChannel
from dpsieve.channels.channel import Channel
from dpsieve.channels.grid import Steps
from dpsieve.channels.lag import optimal_lag
from dpsieve.errors import InvalidValue
from dpsieve.privacy import Guarantee


def optimal(epsilon: float, delta: float, *, unit: str = "one row") -> Channel:
    """Return the channel that reports every key most often and orders keys best, over all private channels.

    Algorithm 5 of Cohen, Geri, Sarlos and Stemmer (2021), corrected. A key of frequency i is reported with probability
    pi_i = min(e^epsilon pi_(i-1) + delta, 1 - e^-epsilon (1 - pi_(i-1) - delta)), pi_0 = 0, the largest that any
    (epsilon, delta)-private mechanism allows; any two keys come out in their true order with the largest probability.

    >>> channel = optimal(1.0, 1e-8)
    >>> channel.reporting_probability([1, 10, 20, 40]).round(8).tolist()
    [1e-08, 0.00012818, 0.91637981, 1.0]
    """
    epsilon, delta = unknown_domain(epsilon, delta)
    resolution = _resolution(epsilon, delta)
    lag = optimal_lag(Steps(epsilon, delta), resolution)
    return AdditiveChannel("optimal", Guarantee(epsilon, delta, unit=unit), resolution, lag)


def simple(epsilon: float, delta: float, *, unit: str = "one row") -> Channel:
    """Return the channel with the same reporting probabilities whose tokens are whole numbers from 1 to the frequency.

    Algorithm 4 of Cohen, Geri, Sarlos and Stemmer (2021).
    """
    epsilon, delta = unknown_domain(epsilon, delta)
    return AdditiveChannel("simple", Guarantee(epsilon, delta, unit=unit), 1, optimal_lag(Steps(epsilon, delta), 1))


def unknown_domain(epsilon: float, delta: float) -> tuple[float, float]:
    """Return checked parameters for reporting keys that nobody listed in advance."""
    epsilon = validate.between("epsilon", epsilon, 1e-4, 50.0, hint="Pass a budget such as epsilon=1.0.")
    delta = validate.delta(delta)
    if delta < 1e-20:
        why = "a key held by one unit must be reported with some probability, at most delta, or no key ever is"
        raise InvalidValue(f"delta={delta:g} is below 1e-20: {why}. Pass one such as delta=1e-8, or list the keys.")
    return epsilon, delta


def _resolution(epsilon: float, delta: float) -> int:
    """Return how many parts a unit is cut into: the masses keep 46 bits, and a row stays below 2^30 parts."""
    units = 2 / epsilon * math.log1p(math.expm1(epsilon) / delta) + 4
    return 1 << max(0, min(20, math.floor(math.log2(delta) + 128 - 46), math.floor(30 - math.log2(units))))
