"""The lags of the mechanisms that others use: noise, a threshold, and nothing below it.

Each is a distribution of the lag, so that token = frequency - lag is above zero exactly when the mechanism reports. The
noisy count itself is the token plus a constant.
"""

import math
from itertools import pairwise

from flint import arb

from dpsieve.channels.grid import ONE, Steps
from dpsieve.channels.lag import Lag
from dpsieve.privacy.balls import floor_bounds, precision

_BITS = 320


def laplace_threshold(epsilon: float, delta: float, *, paper: bool) -> float:
    """Return the threshold of a stability histogram: ln(1 / (2 delta)) / epsilon + 1, or the paper's.

    The paper's ln(1/delta) / epsilon + 1 reports a key of frequency one with probability delta / 2 only.
    """
    return 1 + math.log(1 / (delta if paper else 2 * delta)) / epsilon


def laplace_lag(epsilon: float, delta: float, *, paper: bool) -> Lag:
    """Return the lag of frequency + Lap(1/epsilon) >= T, its value rounded down to T, T + 1, T + 2, ...

    Token s stands for noisy values in [T + s - 1, T + s): reporting probabilities are those of continuous noise.
    Masses are rounded down, and far tails below 2^-128 are left to 'nothing'.
    """
    with precision(_BITS):
        steps = Steps(epsilon, delta)
        e = (arb(steps.factor) / arb(2) ** 192).log()
        d = arb(steps.delta) / arb(2) ** 128
        half = -((d if paper else 2 * d).log()) / e  # T - 1
        first = -math.ceil(128 * math.log(2) / epsilon)
        last = math.ceil(float(half)) + 1 - first
        sums = [_laplace_cdf(half + 1 - lag, e) for lag in range(first, last + 2)]
        masses = [floor_bounds((a - b) * ONE)[0] for a, b in pairwise(sums)]
        return trimmed(first, masses)


def geometric_lag(epsilon: float, delta: float) -> Lag:
    """Return the lag of frequency + X > k, with X two-sided geometric noise cut to [-k, k].

    k = ceil(ln((e^eps + 2 delta - 1) / ((e^eps + 1) delta)) / eps) (Desfontaines, Voss, Gipson and Mandayam, PoPETs
    2022, Section 4); token = frequency + X - k, so the lag is k - X, from 0 to 2k.
    """
    with precision(_BITS):
        steps = Steps(epsilon, delta)
        e, d = arb(steps.factor) / arb(2) ** 192, arb(steps.delta) / arb(2) ** 128
        k = max(1, 1 + floor_bounds(((e + 2 * d - 1) / ((e + 1) * d)).log() / e.log())[0])
        total = 1 + 2 * sum((e**-x for x in range(1, k + 1)), arb(0))
        masses = [floor_bounds(e ** -abs(k - lag) / total * ONE)[0] for lag in range(2 * k + 1)]
        return trimmed(0, masses)


def _laplace_cdf(x: arb, e: arb) -> arb:
    """Enclose P[Lap(1/e) < x], from the side that keeps the digits of a difference."""
    return (e * x).exp() / 2 if x < 0 else 1 - (-e * x).exp() / 2


def trimmed(first: int, masses: list[int]) -> Lag:
    """Return the lag distribution without zero masses at its ends."""
    while not masses[-1]:
        masses.pop()
    skip = next(k for k, mass in enumerate(masses) if mass)
    first, masses = first + skip, masses[skip:]
    return Lag(list(range(first, first + len(masses) + 1)), masses)
