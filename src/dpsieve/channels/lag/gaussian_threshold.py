"""Gaussian noise and a threshold, for units that hold several keys.

The count of each key gets noise N(0, sigma^2) and is reported when it is at least T = 1 + gap. A unit holds at most C
keys, once each, so its removal lowers at most C counts by one; of these, j may be keys that nobody else holds. For
L = ln Phi(gap/sigma), the log-probability that such a key stays silent, and
d(e, mu) = Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu), the exact guarantee is

    delta(eps) = max { 1 - Phi(gap/sigma)^C,
                       max_{0<=j<C} 1 - e^{jL} + e^{jL} d(eps - jL, sqrt(C-j)/sigma),
                       max_{0<=j<C} d(eps + jL, sqrt(C-j)/sigma) }

for add/remove neighbours (Wilkins, Kifer, Zhang, Karrer 2024). It is 3 to 17 % better than adding up the deltas of the
noise and of the threshold. The noisy value is rounded down to T, T + 1, ..., which is post-processing.
"""

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
from flint import arb
from scipy.special import erfcx, log_ndtr, ndtr

from dpsieve.channels.grid import ONE
from dpsieve.channels.lag.baselines import trimmed
from dpsieve.channels.lag.optimal import Lag
from dpsieve.channels.lag.rows import LagRows
from dpsieve.exact.search import floor_bounds, minimise, precision, smallest
from dpsieve.privacy.curves.gaussian import gaussian_sigma
from dpsieve.types import Floats, Ints

_SAFE = 1 + 1e-9  # far above the rounding of the floating-point formula
_ROOT2 = math.sqrt(2)


def gaussian_threshold_delta(epsilon: float, sigma: float, gap: float, keys: int, *, step: int = 1) -> float:
    """Return delta(epsilon) as at the head of this module, rounded up by one part in 10^9; every step-th j only."""
    silent = float(log_ndtr(gap / sigma))
    j = np.arange(0, keys, step)
    mu = np.sqrt(keys - j) / sigma
    lost: Floats = np.multiply(j, silent)
    up = -np.expm1(lost) + np.exp(lost) * _divergence(epsilon - lost, mu)
    down = _divergence(epsilon + lost, mu)
    return float(max(-math.expm1(keys * silent), up.max(), down.max())) * _SAFE


@lru_cache(maxsize=64)
def gaussian_threshold(epsilon: float, delta: float, keys: int) -> tuple[float, float]:
    """Return (sigma, gap) with the smallest gap such that gaussian_threshold_delta(epsilon, ...) <= delta."""
    least = gaussian_sigma(epsilon, delta / 1.001, count=keys)  # without a threshold; with one, a little more is needed
    step = 1 + keys // 256  # the search looks at some j, the answer keeps the promise for all
    sigma = minimise(lambda x: _gap(epsilon, delta, x, keys, step), least, 2 * least, rounds=28)
    if not math.isfinite(gap := _gap(epsilon, delta, sigma, keys)):
        sigma = minimise(lambda x: _gap(epsilon, delta, x, keys), least, 2 * least, rounds=28)
        gap = _gap(epsilon, delta, sigma, keys)
    return sigma, gap


def _gap(epsilon: float, delta: float, sigma: float, keys: int, step: int = 1) -> float:
    """Return the smallest gap for a sigma, to 1e-9; infinite when the noise alone is too small."""

    def kept(gap: float) -> bool:
        new = -math.expm1(keys * float(log_ndtr(gap / sigma))) * _SAFE  # the first of all terms, which is soon told
        return new <= delta and gaussian_threshold_delta(epsilon, sigma, gap, keys, step=step) <= delta

    return smallest(kept, 0.0, 60.0 * sigma, tolerance=1e-9) if kept(60.0 * sigma) else math.inf


class GaussianRows(LagRows):
    """The rows of Gaussian noise with a threshold; the lag is made only when tokens are drawn or read."""

    def __init__(self, sigma: float, threshold: float, step: int) -> None:
        super().__init__(1, lambda: gaussian_lag(sigma, threshold - 1), step=step)
        self._sigma, self._threshold = sigma, threshold

    def reported(self, frequencies: Ints) -> Floats:
        """Return P[i + N(0, sigma^2) >= T] for each true frequency i."""
        return np.asarray(ndtr((frequencies - self._threshold) / self._sigma))


def gaussian_lag(sigma: float, gap: float) -> Lag:
    """Return the lag of a count with Gaussian noise: token s stands for noisy values in [gap + s, gap + s + 1)."""
    with precision(192):
        first, last = -math.ceil(14 * sigma), math.ceil(14 * sigma + gap) + 1
        s, g, root = arb(sigma), arb(gap), arb(2).sqrt()
        tails = [((g + 1 - lag) / s / root).erfc() / 2 for lag in range(first, last + 2)]
        masses = [max(0, floor_bounds((b - a) * ONE)[0]) for a, b in pairwise(tails)]
        return trimmed(first, masses)


def _divergence(epsilon: Floats, mu: Floats) -> Floats:
    """Return d(epsilon, mu), keeping the digits of small values."""
    a = epsilon / mu - mu / 2
    with np.errstate(over="ignore"):
        tail = np.exp(-(a**2) / 2) / 2 * (erfcx(np.maximum(a, 0) / _ROOT2) - erfcx((np.maximum(a, 0) + mu) / _ROOT2))
        near = ndtr(-a) - np.exp(np.minimum(epsilon, 700)) * ndtr(-a - mu)
    return np.where(a > 0, tail, near)
