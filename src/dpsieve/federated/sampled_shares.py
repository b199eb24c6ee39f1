"""Bounds on a share of all clients from sampled counts: those inside of a range and those outside of it.

Each client is sampled with the same probability, by a coin of its own. Given that m of them are sampled, they are m
random clients, and for a true share f the number s of those inside satisfies (Hoeffding 1963, Theorem 1, which
Section 6 extends to sampling without replacement)

    P[s <= m x] <= e^(-m D(x || f)) for x <= f,  and the same for P[s >= m x], x >= f,

with D(x || f) = x ln(x/f) + (1-x) ln((1-x)/(1-f)). So f <= U, the largest f with m D(s/m || f) <= ln(1/miss), but for a
probability of `miss`, for any number of clients and any sampling rate. U grows with the sampled inside and falls with
those outside, so where a threshold hides some of them, bounds on the hidden ones keep it sound.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_HALVINGS = 60
_SAFE = 1 + 1e-9  # covers all rounding


def largest_share(inside: ArrayLike, outside: ArrayLike, miss: ArrayLike) -> Floats:
    """Return the largest share that so many sampled clients inside and outside of a range leave possible.

    It is above the true share but for a probability of `miss`, from 0 to 1; see the head of this module.

    >>> round(float(largest_share(50, 50, 0.05)), 3), float(largest_share(0, 0, 0.05))
    (0.621, 1.0)
    """
    s, r, budget = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (inside, outside, -np.log(miss))))
    total = np.maximum(s + r, 1.0)
    low, high = s / total, np.ones_like(total)
    with np.errstate(divide="ignore", invalid="ignore"):
        fixed = np.where(s > 0, s * np.log(s / total), 0.0) + np.where(r > 0, r * np.log(r / total), 0.0)
        for _ in range(_HALVINGS):
            f = (low + high) / 2
            cost = fixed - np.where(s > 0, s * np.log(f), 0.0) - np.where(r > 0, r * np.log1p(-f), 0.0)
            possible = cost <= budget * _SAFE
            low, high = np.where(possible, f, low), np.where(possible, high, f)
    return np.where((s + r > 0) & (r > 0), high, 1.0)


def smallest_share(inside: ArrayLike, outside: ArrayLike, miss: ArrayLike) -> Floats:
    """Return the smallest share that so many sampled clients inside and outside of a range leave possible."""
    return np.asarray(1 - largest_share(outside, inside, miss), dtype=np.float64)
