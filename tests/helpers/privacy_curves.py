"""Exact curves of small tables, straight from the definitions: oracles for the accounts of the package."""

import math

import numpy as np

from dpsieve.accounting.composition import repeated_delta
from dpsieve.exact.balls import smallest_epsilon
from dpsieve.papers.thesis import hockey_stick


def divergence(p, q, epsilon):
    """The larger of the hockey-stick divergences of (p, q) and (q, p)."""
    return max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))


def least_epsilon(p, q, delta):
    """The least epsilon at which (p, q), in both directions, keeps delta; infinite where none does."""
    return max(_inverse(np.asarray(a), np.asarray(b), delta) for a, b in ((p, q), (q, p)))


def _inverse(p, q, delta):
    """ln x for the least x >= 1 with sum max(0, p - x q) <= delta.

    With outputs sorted by p/q downwards, the sum over the first m of them is P_m - x Q_m, and the divergence is the
    largest of these over m: so x = max_m (P_m - delta) / Q_m.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(np.where(q > 0, p / q, np.where(p > 0, np.inf, -1.0)))[::-1]
    heads, tails = np.cumsum(p[order]), np.cumsum(q[order])
    needed = heads > delta * (1 + 1e-15)
    if (needed & (tails == 0)).any():
        return math.inf
    return max(0.0, math.log(max(1.0, *((heads[needed] - delta) / tails[needed])))) if needed.any() else 0.0


def repeated_epsilon(k, delta, *, each_epsilon, each_delta):
    """The least epsilon of k mechanisms, each (each_epsilon, each_delta)-DP: the inverse of `repeated_delta`."""
    return smallest_epsilon(
        lambda epsilon: repeated_delta(k, epsilon, each_epsilon=each_epsilon, each_delta=each_delta) <= delta
    )
