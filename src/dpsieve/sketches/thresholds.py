"""How likely the noise is to carry a key over the threshold that only one of two neighbouring sketches holds.

All noises here are independent discrete Laplace variables of one scale: one for each counter, X_1, X_2, ..., and one
that is shared by all counters, Y. Sums of positive terms in floating point, rounded up by one part in 10^9.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_SAFE = 1 + 1e-9
_FAR = 45.0  # scales


def tail(x: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    """Return P[X >= x]."""
    p = math.exp(-1 / scale)
    right = np.exp(-np.maximum(x, 0) / scale) / (1 + p)
    return np.where(x > 0, right, 1 - np.exp(-(1 - np.minimum(x, 0)) / scale) / (1 + p))


def any_above(threshold: int, counters: dict[int, int], scale: float) -> float:
    """Return P[c + X_i + Y >= threshold for any i]; `counters` tells how many counters have each value c.

    For scales above 256 the values of Y are taken in cells, each for its upper end, so that the result is up to half
    a per cent too high and takes the same time for every scale.

    >>> f"{any_above(22, {1: 1, 0: 1}, 1.0):.3g}"
    '7.86e-09'
    """
    width = max(1, int(scale / 256))
    cells = (max(threshold, 0) + math.ceil(_FAR * scale)) // width + 2
    start = np.arange(cells) * width
    # The cells start to start + width - 1, and their mirror images -1 - start down to -start - width.
    ends = np.concatenate([start + (width - 1), -1 - start])
    shares = -np.expm1(-width / scale) / (1 + math.exp(-1 / scale))
    mass = shares * np.exp(-np.concatenate([start, start + 1]) / scale)
    with np.errstate(divide="ignore"):
        silent = sum(many * np.log1p(-tail(threshold - c - ends, scale)) for c, many in counters.items())
    far = np.array([cells * width])
    # Y above the cells: taken as certain. Y below them: a counter would have to make up for it.
    beyond = tail(far, scale) * (1 + sum(counters.values()) * tail(far + threshold - max(counters), scale))
    return min(1.0, float(mass @ -np.expm1(silent) + beyond[0]) * _SAFE)


def group_delta(delta: float, epsilon: float, steps: int) -> float:
    """Return the delta of `steps` neighbours on end, of (epsilon/steps, delta) each: they are (epsilon, result)."""
    if steps == 1:
        return delta
    return min(1.0, delta * math.expm1(epsilon) / math.expm1(epsilon / steps) * (1 + 1e-12))


def least_threshold(delta: Callable[[int], float], allowed: float) -> int:
    """Return the least whole threshold at which a falling delta is at most what is allowed."""
    high = 1
    while delta(high) > allowed:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if delta(middle) <= allowed else (middle, high)
    return high
