"""The bounds of Bharadwaj and Cormode, "Sample-and-threshold differential privacy" (AISTATS 2022), to compare with.

They are safe and far from tight: at epsilon = 1, rate 0.10535 and threshold 20, Theorem 2 says 1.5e-12, Lemma 3 says
7.6e-9, and the exact delta is 6.9e-15. Both are for one client more or less, and for rates up to 1 - e^-epsilon.
These are plain floats, for figures; what is promised comes from `dpsieve.channels.sample_threshold`.
"""

import math

from dpsieve import validate
from dpsieve.channels.sample_threshold import checked_rate, checked_threshold
from dpsieve.errors import InvalidValue


def theorem_2_delta(epsilon: float, rate: float, threshold: int) -> float:
    """Return exp(-(threshold / q) D(q || rate)), q = 1 - e^-epsilon (1 - rate), D the relative entropy (Theorem 2).

    >>> f"{theorem_2_delta(1.0, 0.10535, 20):.2g}"
    '1.5e-12'
    """
    epsilon, p, threshold = _checked(epsilon, rate, threshold)
    q = 1 - math.exp(-epsilon) * (1 - p)
    entropy = q * math.log(q / p) - epsilon * (1 - q)  # (1 - q) / (1 - p) = e^-epsilon
    return math.exp(-threshold / q * entropy)


def lemma_3_delta(epsilon: float, rate: float, threshold: int) -> float:
    """Return exp(-C threshold), C = ln(1/a) - 1/(1 + a), a = rate / (1 - e^-epsilon), for epsilon <= 1 (Lemma 3).

    Where C is negative the bound says nothing, and the answer is 1.

    >>> f"{lemma_3_delta(1.0, 0.10535, 20):.2g}"
    '7.6e-09'
    """
    epsilon, p, threshold = _checked(epsilon, rate, threshold)
    if epsilon > 1:
        raise InvalidValue(f"epsilon={epsilon:g} is above 1, where Lemma 3 says nothing. Use theorem_2_delta.")
    share = p / -math.expm1(-epsilon)
    return min(1.0, math.exp(-threshold * (math.log(1 / share) - 1 / (1 + share))))


def _checked(epsilon: float, rate: float, threshold: int) -> tuple[float, float, int]:
    epsilon, rate, threshold = validate.epsilon(epsilon), checked_rate(rate), checked_threshold(threshold)
    if rate > -math.expm1(-epsilon):
        hint = "Pass a lower rate; the exact delta of dpsieve.channels.sample_threshold has no such limit."
        raise InvalidValue(f"rate={rate:g} is above 1 - e^-epsilon, where the paper has no bound. {hint}")
    return epsilon, rate, threshold
