"""Binomial probabilities in floats, for many rows at once and up to 10^12 trials.

Masses follow Loader's saddle-point expansion ("Fast and accurate computation of binomial probabilities", 2000): its
terms do not cancel, so relative errors are below 1e-12 up to 10^8 trials, and below 1e-9 up to 10^12.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from dpsieve.types import Floats

_EXACT = np.array([0.0, *(math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n for n in range(1, 16))])
_EXACT[1:] -= math.log(2 * math.pi) / 2
_SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)


def masses(trials: ArrayLike, successes: ArrayLike, rate: float) -> Floats:
    """Return P[Binomial(trials, rate) = successes], 0 < rate < 1; zero where successes exceed trials.

    >>> masses(4, [0, 2, 4, 5], 0.5).round(12).tolist()
    [0.0625, 0.375, 0.0625, 0.0]
    """
    n, x = np.broadcast_arrays(np.asarray(trials, np.float64), np.asarray(successes, np.float64))
    y = n - x
    inside = (x > 0) & (y > 0)
    x_in, y_in, n_in = (np.where(inside, part, 2.0) for part in (x, y, n))  # placeholders where unused
    exponent = _stirling(n_in) - _stirling(x_in) - _stirling(y_in)
    exponent -= _deviance(x_in, n_in * rate) + _deviance(y_in, n_in * (1 - rate))
    within = np.exp(exponent) * np.sqrt(n_in / (2 * math.pi * x_in * y_in))
    ends = np.where(y == 0, np.exp(n * math.log(rate)), np.where(x == 0, np.exp(n * math.log1p(-rate)), 0.0))
    return np.asarray(np.where(inside, within, np.where((x < 0) | (y < 0), 0.0, ends)), dtype=np.float64)


def at_least(trials: ArrayLike, least: ArrayLike, rate: float) -> Floats:
    """Return P[Binomial(trials, rate) >= least] for least >= 1, accurate also where it is tiny."""
    from scipy.special import betainc

    n, a = np.asarray(trials, np.float64), np.asarray(least, np.float64)
    return np.asarray(np.where(n >= a, betainc(a, np.maximum(n - a, 0.0) + 1, rate), 0.0), dtype=np.float64)


def below(trials: ArrayLike, least: ArrayLike, rate: float) -> Floats:
    """Return P[Binomial(trials, rate) < least] for least >= 1, accurate also where it is tiny."""
    from scipy.special import betaincc

    n, a = np.asarray(trials, np.float64), np.asarray(least, np.float64)
    return np.asarray(np.where(n >= a, betaincc(a, np.maximum(n - a, 0.0) + 1, rate), 1.0), dtype=np.float64)


def window(trials: int, rate: float, far: float = 80.0) -> tuple[int, int]:
    """Return the first and last count of a window that leaves out at most e^-far on each side (Chernoff)."""
    mean = trials * rate
    first = math.floor(mean - math.sqrt(2 * mean * far))
    last = math.ceil(mean + math.sqrt(2 * mean * far) + far)
    return max(first, 0), min(last, trials)


def _stirling(n: Floats) -> Floats:
    """Return ln n! - ln(sqrt(2 pi n) (n/e)^n) for whole n >= 1."""
    small = n < 16
    large = np.where(small, 16.0, n)
    square, total = 1 / large**2, np.zeros_like(large)
    for coefficient in reversed(_SERIES):
        total = total * square + coefficient
    return np.asarray(np.where(small, _EXACT[np.where(small, n, 1).astype(np.int64)], total / large), dtype=np.float64)


def _deviance(x: Floats, mean: Floats) -> Floats:
    """Return x ln(x / mean) + mean - x for positive numbers, by a series where they are close."""
    v = (x - mean) / (x + mean)
    close = np.abs(v) < 0.1
    v_in = np.where(close, v, 0.0)
    square, total = v_in * v_in, np.zeros_like(v)
    for j in range(9, 0, -1):
        total = total * square + 1 / (2 * j + 1)
    series = (x - mean) * v_in + 2 * x * v_in * square * total
    return np.asarray(np.where(close, series, x * np.log(x / mean) + mean - x), dtype=np.float64)
