"""How likely the rows of a random banded system depend on each other: a bound that holds for every number of rows.

There are k rows. Row i has w random bits in a window of w columns that starts at a column a_i, uniform in [0, n); all
bits and starts are independent. Let rho = k / n. For every theta in (0, ln 2] with rho (e^theta - 1) < theta,

    P[some rows sum to 0 over the bits] <= n e^(-theta w + rho (e^theta - 1)) / (1 - e^(rho (e^theta - 1) - theta)).

Proof. If rows depend on each other, take a smallest set S that sums to 0. The windows of S cannot be divided into two
groups that share no column, as each group would sum to 0 alone; so their union is an interval I of some length L >= w.
Fix the starts. Each column of I is in a window of S, so the sums over S in the L columns are independent fair bits, and
all are 0 with probability 2^-L. Let c be the number of rows whose windows lie in I; there are at most 2^c such sets S.
So some set with union I sums to 0 with probability at most E[min(1, 2^(c-L))] <= E[e^(theta (c-L))]. The windows in I
are those with one of m = L - w + 1 starts, so c is binomial, (k, m/n), and E[e^(theta c)] <= e^(rho m (e^theta - 1)).
There are at most n intervals of each length. Summing over m = 1, 2, ... gives a geometric series, the bound. QED.

A start is the upper word of n times a random word, which has each value with probability at most 1/n + 2^-64; so rho is
(k / n) (1 + n 2^-64) in truth.
"""

import math

from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import Ball, ball, first_whole, minimise, upper
from dpsieve.sparse.digests import MOST_BYTES

WINDOW = 256
_LN2 = math.log(2)  # rounded down, as it happens, and it has to be


def dependence(rows: int, starts: int, window: int = WINDOW) -> float:
    """Return an upper bound on the probability that rows depend on each other.

    >>> dependence(90, 100) < 1e-13, dependence(100, 100)
    (True, 1.0)
    """
    density = rows / starts * (1 + 1e-12)

    def exponent(theta: float) -> float:
        growth = density * math.expm1(theta)
        return growth - theta * window - math.log(-math.expm1(growth - theta)) if growth < theta else math.inf

    theta = minimise(exponent, 0.0, _LN2, rounds=40)

    def bound() -> Ball:
        growth = (ball(rows) / starts + ball(rows) / 2**64) * ball(theta).expm1()
        gap = -(growth - theta).expm1()
        return starts * (growth - ball(theta) * window).exp() / gap if gap > 0 else ball(1)

    return min(1.0, upper(bound))


def same_digests(keys: int) -> float:
    """Return an upper bound on the probability that two of the keys, texts of any length, have the same digest.

    The difference of two texts is a polynomial with at most MOST_BYTES / 7 + 1 roots, and of the 2^61 numbers that a
    point is drawn from two are 0 modulo 2^61 - 1.
    """
    return upper(lambda: ball(keys) ** 2 / 2 * ((ball(MOST_BYTES) / 7 + 2) / 2**61) ** 2)


def failure(keys: int, starts: int) -> float:
    """Return an upper bound on the probability that rows of keys depend on each other or two keys share a digest."""
    return min(1.0, upper(lambda: ball(dependence(keys, starts)) + ball(same_digests(keys))))


def least_starts(keys: int, delta: float) -> int:
    """Return the least number of starts for which the rows of keys depend on each other with probability at most delta.

    >>> least_starts(100_000, 1e-8)
    108079
    """
    limit = 1 << 50
    found = first_whole(lambda starts: failure(keys, starts) <= delta, keys, limit, step=1 + keys // 16)
    if found == limit:
        hint = "Pass a larger delta or a lower sparsity."
        raise InvalidValue(f"delta={delta:g} cannot be kept by windows of {WINDOW} bits for {keys:,} entries. {hint}")
    return found
