"""The bounds of Bharadwaj and Cormode, "Sample-and-threshold differential privacy" (AISTATS 2022), to compare with.

They are safe and far from tight: at epsilon = 1, rate 0.10535 and threshold 20, Theorem 2 says 1.5e-12, Lemma 3 says
7.6e-9, and the exact delta is 6.9e-15. Both are for one client more or less, and for rates up to 1 - e^-epsilon.
Lemmas 5 and 6 are about accuracy. These are plain floats, for figures; what is promised comes from
`dpsieve.channels.binomial.rows`.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.channels.binomial.rows import checked_rate, checked_threshold
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


def lemma_5_omission(frequencies: ArrayLike, rate: float, threshold: int) -> NDArray[np.float64]:
    """Return exp(-(w - threshold)^2 / (2 w)), w = rate frequency: a bound on the chance to omit a value (Lemma 5).

    Where w is not above the threshold the bound says nothing, and the answer is 1.

    >>> f"{lemma_5_omission([1000], 0.1, 20)[0]:.2g}"
    '1.3e-14'
    """
    w, least = np.asarray(frequencies, np.float64) * checked_rate(rate), checked_threshold(threshold)
    return np.where(w > least, np.exp(-((w - least) ** 2) / (2 * np.maximum(w, 1e-300))), 1.0)


def lemma_6_reports(gamma: float, beta: float) -> float:
    """Return (3 / gamma^2) ln(2 / beta), the expected number of reports that Lemma 6 asks for.

    A value with so many expected reports is counted within a relative error gamma < 1, but for probability beta. The
    paper prints ln(1 / 2 beta). `dpsieve.federated.enough_clients` has the exact number.

    >>> round(lemma_6_reports(0.1, 0.01))
    1589
    """
    gamma, beta = checked_error(gamma), validate.between("beta", beta, 1e-100, 1.0, hint="Pass beta=0.01, say.")
    return 3 / gamma**2 * math.log(2 / beta)


def checked_error(gamma: float) -> float:
    """Return a relative error above zero and below one."""
    return validate.between("gamma", gamma, 1e-3, 1 - 1e-9, hint="Pass a relative error such as gamma=0.1.")


def _checked(epsilon: float, rate: float, threshold: int) -> tuple[float, float, int]:
    epsilon, rate, threshold = validate.epsilon(epsilon), checked_rate(rate), checked_threshold(threshold)
    if rate > -math.expm1(-epsilon):
        hint = "Pass a lower rate; the exact delta of dpsieve.channels.binomial.rows has no such limit."
        raise InvalidValue(f"rate={rate:g} is above 1 - e^-epsilon, where the paper has no bound. {hint}")
    return epsilon, rate, threshold
