"""What Gaussian noise and a threshold show of one unit whose weights have l2 norm 1, exactly.

Weights of keys get noise N(0, sigma^2); a key shows when the sum is at least T. A unit gives weights to its keys; on
those that nobody else holds, the new ones, their squares sum to 1 - u, and what the unit changes in all others has
squares that sum to u at most, 0 <= u <= 1. Let e^-l be the probability that no new key shows. Without the unit none
can, and the two parts are independent, so with the unit the output is P = (new keys) x N(shift), without it
Q = (none) x N(0), both followed by the threshold. For d(eps, mu) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), the
divergence of Gaussians at distance mu = sqrt(u)/sigma, and for all sets S of values of the others,

    sup P - e^eps Q = 1 - e^-l + sup_S (e^-l N(shift)(S) - e^eps N(0)(S)) = 1 - e^-l + e^-l d(eps + l, mu),
    sup Q - e^eps P = sup_S (N(0)(S) - e^eps e^-l N(shift)(S))            = d(eps - l, mu).

Both grow with l (they are suprema of functions of e^-l that fall) and with mu. The exposure A of a unit is -ln of the
probability that none of its keys shows where all are new. The mechanisms here keep l <= (1 - u) A, so the largest
exposure and all u decide, and delta(eps) = max over u of both. For one weight and one key this is the analysis of
Wilkins, Kifer, Zhang and Karrer (2024), here with weights.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.special import log_ndtr

from dpsieve.exact.search import smallest
from dpsieve.privacy.curves.gaussian import gaussian_curve, gaussian_sigma
from dpsieve.types import Floats, Ints

_SAFE = 1 + 1e-9  # far above the rounding of the formulas
_FEW = 64  # units with at most this many keys are looked at one by one
_INTERVALS = 4096


def exposures(sigma: float, threshold: float, weights: Floats) -> Floats:
    """Return -ln P[a new key of this weight does not show] for each weight."""
    return np.asarray(-log_ndtr((threshold - weights) / sigma))


def whole_delta(epsilon: float, sigma: float, exposure: float) -> float:
    """Return delta(epsilon), rounded up, for every u in [0, 1] and every exposure up to this one.

    In each of 4,096 intervals of u, l is taken at its left and mu at its right end, where they are largest.
    """
    u = np.arange(_INTERVALS + 1) / _INTERVALS
    return _delta(epsilon, sigma, exposure * (1 - u[:-1]), u[1:])


def sizes_delta(epsilon: float, sigma: float, exposure: Floats) -> float:
    """Return delta(epsilon), rounded up, for units of 1, 2, ... keys of equal weight, given the exposure of each.

    A unit with s keys, j of them new, has u = (s - j)/s and l = j/s times its exposure. Up to 64 keys all pairs (s, j)
    are looked at; beyond, the largest exposure with every u.
    """
    few, many = exposure[:_FEW], exposure[_FEW:]
    size, new = _pairs(len(few))
    found = _delta(epsilon, sigma, few[size - 1] * (new / size), (size - new) / size)
    found = max(found, -math.expm1(-float(few.max())) * _SAFE)
    return max(found, whole_delta(epsilon, sigma, float(many.max()))) if len(many) else found


def lowest_threshold(
    epsilon: float, delta: float, delta_of: Callable[[float, float], float], *, sensitivity: float = 1.0
) -> tuple[float, float]:
    """Return (sigma, threshold) with delta_of(sigma, threshold) <= delta: the lowest threshold for this sigma.

    Sigma is what the noise alone needs for delta / 1.001: less leaves no room for a threshold, and more needs a higher
    one (in all cases tried with a delta below a half).
    """
    sigma = gaussian_sigma(epsilon, delta / 1.001, sensitivity=sensitivity)
    return sigma, smallest(lambda at: delta_of(sigma, at) <= delta, 0.01, 61 * sigma + 2, tolerance=1e-10)


def _delta(epsilon: float, sigma: float, lost: Floats, u: Floats) -> float:
    mu = np.sqrt(u) / sigma
    shown = -np.expm1(-lost) + np.exp(-lost) * gaussian_curve(epsilon + lost, mu)
    return float(max(shown.max(), gaussian_curve(epsilon - lost, mu).max())) * _SAFE


@cache
def _pairs(most: int) -> tuple[Ints, Ints]:
    """Return all sizes s up to `most`, each with j = 0 ... s - 1."""
    pairs = [(size, new) for size in range(1, most + 1) for new in range(size)]
    size, new = np.array(pairs, np.int64).T
    return size, new
