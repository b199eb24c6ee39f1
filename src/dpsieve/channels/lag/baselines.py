"""The lags of the mechanisms that others use: noise, a threshold, and nothing below it.

Each is a distribution of the lag, so that token = frequency - lag is above zero exactly when the mechanism reports. The
noisy count itself is the token plus a constant.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from flint import arb

from dpsieve.channels.grid import ONE, Steps
from dpsieve.channels.lag.optimal import Lag
from dpsieve.exact.search import floor_bounds, precision

_BITS = 320


@dataclass(frozen=True)
class LaplaceCut:
    """Where a stability histogram cuts: report when frequency + Lap(1/epsilon) >= T = 1 + ln(1/(2 delta)) / epsilon.

    The paper's T = 1 + ln(1/delta) / epsilon reports a key of frequency one with probability delta / 2 only. The
    parameters are slightly tightened (see `channels.grid`): `rate` is that of the noise, `whole` the least integer
    above the threshold.
    """

    rate: float
    threshold: float
    whole: int
    lag: Lag

    @classmethod
    def of(cls, epsilon: float, delta: float, *, paper: bool, split: bool = False) -> "LaplaceCut":
        """Cut, and find the lag: token s stands for noisy values in [T + s - 1, T + s), so no reporting is lost.

        With `split` there are two tokens a unit, 2s - 1 below and 2s above the whole number in that range. Masses are
        rounded down, and far tails below 2^-128 are left to 'nothing'.
        """
        with precision(_BITS):
            steps = Steps(epsilon, delta)
            e = (arb(steps.factor) / arb(2) ** 192).log()
            d = arb(steps.delta) / arb(2) ** 128
            half = -((d if paper else 2 * d).log()) / e  # T - 1
            whole = floor_bounds(half)[0] + 2
            first = -math.ceil(128 * math.log(2) / epsilon)
            last = math.ceil(float(half)) + 1 - first
            ends = [end - lag for lag in range(first, last + 2) for end in ([half + 1, arb(whole - 1)][: 1 + split])]
            sums = [_laplace_cdf(end, e) for end in ends]
            masses = [max(0, floor_bounds((a - b) * ONE)[0]) for a, b in pairwise(sums)]
            lag = trimmed(first * (1 + split), masses)
            return cls(float(e), float(half) + 1, whole, lag)


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
