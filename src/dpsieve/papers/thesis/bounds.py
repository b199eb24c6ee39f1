"""Printed bounds and thresholds of the thesis, to compare with the exact numbers of the library.

Christian Janos Lebeda, "Differentially Private Release of Sparse and Skewed Data", PhD thesis, IT University of
Copenhagen, 2023.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.accounting.spends import Spend, checked_spends, total_epsilon, total_leak
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, upper
from dpsieve.types import Floats

_COLLISION = "Pass the probability of a hash collision, k/s, such as 0.1."


def hockey_stick(p: ArrayLike, q: ArrayLike, epsilon: float) -> float:
    """Return sum_o max(0, p(o) - e^epsilon q(o)): the least delta with p(T) <= e^epsilon q(T) + delta for all T.

    (Fact 1.1.) In floats, with a relative error of about 1e-14 times the number of outputs; certificates use the
    kernel, on integers.

    >>> round(hockey_stick([0.75, 0.25], [0.25, 0.75], epsilon=0.0), 12)
    0.5
    """
    p, q = _row("p", p), _row("q", q)
    if len(p) != len(q):
        raise InvalidValue(f"p has {len(p)} outputs and q has {len(q)}. Pass two rows over the same outputs.")
    return math.fsum(np.maximum(p - math.exp(validate.epsilon(epsilon)) * q, 0.0))


def fact_1_3(spends: Iterable[Spend]) -> tuple[float, float]:
    """Return (sum of epsilons, sum of deltas), each rounded up: basic composition (Fact 1.3).

    Only `Approximate`, `DiscreteLaplace` and `BoundedRange` have such a sum; others are refused. Where the deltas
    add up to one or more, the delta is 1 - prod(1 - delta), which holds as well (Kairouz et al. 2015).

    >>> from dpsieve.privacy import Approximate
    >>> fact_1_3([Approximate(0.5, 2.0**-20), Approximate(0.25, 0.0, count=2)]) == (1.0, 2.0**-20)
    True
    """
    parts = checked_spends(spends)
    epsilon = total_epsilon(parts)
    if epsilon == math.inf:
        raise InvalidValue("spends holds one without a single epsilon. Use Composition(spends) instead.")
    delta = upper(lambda: sum((ball(spend.leak) * spend.count for spend in parts), ball(0)))
    return epsilon, delta if delta < 1 else total_leak(parts)


def fact_1_5(epsilon: float, delta: float, group: int) -> tuple[float, float]:
    """Return the (epsilon, delta) of a group of units: (k epsilon, k e^((k-1) epsilon) delta) for k of them (Fact 1.5).

    >>> fact_1_5(0.5, 1e-6, 2)
    (1.0, 3.297442541400256e-06)
    """
    group = validate.whole("group", group, low=1, hint="Pass the number of units in the group.")
    return group * epsilon, group * math.exp((group - 1) * epsilon) * delta


def lemma_2_10(alpha: float, collision: float = 0.0, epsilon: float = 1.0) -> float:
    """Return the bound on the expected error of an entry of the ALP mechanism (Lemmas 2.7, 2.10, 2.11 and 2.17).

    (1/2 + (4 alpha + 4)/alpha^2 + (4 gamma + 4)/gamma^2) alpha/epsilon, gamma = (alpha + 2)/(1 + alpha k/s) - 2, where
    `collision` is k/s. `dpsieve.SparseVector.expected_error` is exact.

    >>> round(lemma_2_10(3.0, 0.1), 2)
    16.85
    """
    gamma = _gamma(alpha, collision)
    return (0.5 + (4 * alpha + 4) / alpha**2 + (4 * gamma + 4) / gamma**2) * alpha / epsilon


def lemma_2_14(alpha: float, beta: float, collision: float = 0.0, epsilon: float = 1.0) -> float:
    """Return a bound that the error of an entry exceeds with probability at most beta (Lemmas 2.12 to 2.14 and 2.18).

    (1 + 2 ln(2/(beta sqrt(pi) (1 - 2p)))/ln(1/(4p - 4p^2))) alpha/epsilon, p = 1/(gamma + 2), gamma as in `lemma_2_10`.
    `dpsieve.SparseVector.error_bound` is exact.

    >>> round(lemma_2_14(3.0, 0.1, collision=0.1), 2)
    75.34
    """
    p = 1 / (_gamma(alpha, collision) + 2)
    beta = validate.between("beta", beta, 1e-300, 1.0, hint="Pass a probability such as beta=0.1.")
    steps = 2 * math.log(2 / (beta * math.sqrt(math.pi) * (1 - 2 * p))) / math.log(1 / (4 * p - 4 * p**2))
    return (1 + steps) * alpha / epsilon


def lemma_2_20(dimension: int, epsilon: float) -> float:
    """Return the threshold of Algorithm 6, 2 ln(d)/epsilon, with which no zero is listed but rarely (Lemma 2.20).

    >>> round(lemma_2_20(10**12, 1.0), 2)
    55.26
    """
    return 2 * math.log(dimension) / epsilon


def lemma_2_32(epsilon: float, collision: float = 0.0) -> float:
    """Return the bound on the expected error of an entry of Algorithm 10 (Lemmas 2.31 and 2.32).

    With g = (e^epsilon + 1)/(1 + (e^epsilon - 1) k/s) - 2: 4 e^epsilon/(e^epsilon - 1)^2 + (4 g + 4)/g^2, which is
    8 e^epsilon/(e^epsilon - 1)^2 without collisions.

    >>> round(lemma_2_32(1.0), 2), round(lemma_2_32(1.0, 0.1), 2)
    (7.37, 10.0)
    """
    collision = validate.between("collision", collision, 0.0, 0.5, hint=_COLLISION)
    e = math.exp(epsilon)
    gamma = (e + 1) / (1 + (e - 1) * collision) - 2
    return 4 * e / (e - 1) ** 2 + (4 * gamma + 4) / gamma**2


def algorithm_13_threshold(epsilon: float, delta: float) -> float:
    """Return the printed threshold of the private Misra-Gries sketch (Algorithm 13), 1 + 2 ln(3/delta)/epsilon.

    >>> round(algorithm_13_threshold(1.0, 1e-8), 2)
    40.04
    """
    return 1 + 2 * math.log(3 / delta) / epsilon


def theorem_3_1(epsilon: float, delta: float, counters: int, items: int, beta: float) -> tuple[float, float]:
    """Return how far below and above its frequency any estimate is with probability 1 - beta (Theorem 3.1).

    Without the n/(k+1) of the sketch, that is with items=0, it is Lemma 3.5. The release itself has exact intervals.

    >>> [round(side, 1) for side in theorem_3_1(1.0, 1e-8, 1024, 1_000_000, beta=0.05)]
    [1035.5, 19.9]
    """
    noise = 2 * math.log((counters + 1) / beta) / epsilon
    return noise + algorithm_13_threshold(epsilon, delta) + items / (counters + 1), noise


def lemma_5_5(rho: float, columns: int, steps: int, beta: float) -> float:
    """Return the rank error of PrivQuantile over all columns, exceeded with probability beta at most (Lemma 5.5).

    sqrt(d T ln(T d/beta)/(2 rho)) for d columns and T steps of binary search; Lemma 5.4 is one column.

    >>> round(lemma_5_5(0.5, 16, 10, 0.05), 1)
    35.9
    """
    return math.sqrt(columns * steps * math.log(steps * columns / beta) / (2 * rho))


def _gamma(alpha: float, collision: float) -> float:
    alpha = validate.positive("alpha", alpha, hint="Pass the parameter of the mechanism, such as alpha=3.")
    collision = validate.between("collision", collision, 0.0, 0.5 - 1e-9, hint=_COLLISION)
    return (alpha + 2) / (1 + alpha * collision) - 2


def _row(name: str, values: ArrayLike) -> Floats:
    hint = "Pass one probability for each output, 'nothing' included."
    row = validate.finite(name, values, hint=hint)
    if row.ndim != 1 or not len(row) or not ((row >= 0) & (row <= 1 + 1e-9)).all():
        raise InvalidValue(f"{name} must be a flat row of numbers from 0 to 1. {hint}", argument=name)
    if not math.isclose(total := math.fsum(row), 1.0, abs_tol=1e-9):
        raise InvalidValue(f"{name} sums to {total:.12g}, not 1. {hint}", argument=name)
    return row
