"""How far counters of released sketches are off: the exact mean squared error, beside the bound of the thesis.

A counter c in one sketch is published as c + Z with Z = X + Y, the sum of two discrete Laplace noises, where this
reaches the threshold t, and counts as 0 elsewhere. With p = e^(-1/scale),

    P[X = x] = (1 - p)/(1 + p) p^|x|   and   P[Z = z] = ((1 - p)/(1 + p))^2 p^|z| (|z| + (1 + p^2)/(1 - p^2)),

so moments above a point are sums of z^n p^z, n up to 3, which have closed forms. Everything here is exact up to the
rounding of floats, for a counter and a true frequency that are given; what the sketch itself lost is their difference.
The column `counter` of a release is meant; `count` adds the noisy loss to it, and is nearer on most streams.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.sketches.laplace_noise import NoisySketch
from dpsieve.sketches.summed_noise import RoundedSketch
from dpsieve.types import Floats
from dpsieve.validate import check_budget

_COUNTS = "Pass the counter of the key in each stream, a whole number from 0 to 10^12."


def mean_squared_bound(epsilon: float, delta: float, counters: int, items: int) -> float:
    """Return the bound of Theorem 3.1 on the mean squared error of any key, for a stream of n items.

    It is 3 (1 + (2 + 2 ln(3/delta))/epsilon + n/(k+1))^2, for the threshold and the noise of the thesis. Ours are
    lower, so it holds for them too.

    >>> round(mean_squared_bound(1.0, 1e-8, 1024, 1_000_000))
    3106824
    """
    epsilon, delta = check_budget(epsilon, delta)
    counters = validate.whole("counters", counters, low=1, hint="Pass the size of the sketch.")
    items = validate.whole("items", items, high=2**62, hint="Pass how many items the stream has.")
    return 3 * (1 + (2 + 2 * math.log(3 / delta)) / epsilon + items / (counters + 1)) ** 2


def mean_squared_error(mechanism: NoisySketch, counter: ArrayLike, frequency: ArrayLike) -> Floats:
    """Return the exact mean squared error of published counters about true frequencies, for these true counters.

    A key that is not published counts as 0. A frequency is at least the counter, and at most n/(k+1) more. True values
    go in, so what comes out is for planning on public or synthetic numbers, not for publishing.

    >>> mechanism = NoisySketch(1.0, 1e-8, 1024)
    >>> mean_squared_error(mechanism, [0, 10, 1000], [0, 10, 1000]).round(3).tolist()
    [0.0, 100.002, 3.683]
    """
    bias, variance = _bias_and_variance(mechanism, counter)
    lost = np.asarray(counter, dtype=np.float64) - np.asarray(frequency, dtype=np.float64)
    return np.asarray(variance + (bias + lost) ** 2)


class AggregationErrors(NamedTuple):
    """Root mean squared errors of the sum of a key's counters over all streams.

    Attributes:
        untrusted: each source releases its own sketch, and `merge_releases` adds the releases up.
        trusted: an aggregator merges the sketches, and releases their sum.
    """

    untrusted: float
    trusted: float


def aggregation_errors(epsilon: float, delta: float, counters: int, counts: ArrayLike) -> AggregationErrors:
    """Return what an untrusted aggregator costs, exactly, for a key with these counters in the streams.

    Both errors are of noise, thresholds and rounding, about the sum that was to be released: the sum of the counters,
    or of the values of the post-processed sketches, here taken to be as large. What the sketches lost comes on top:
    the number of decrements of each at most, or N/(k+1) for the sum.

    >>> for sources in (1, 10, 100):  # a key of 1,000 items
    ...     errors = aggregation_errors(1.0, 1e-8, 1024, [1000 // sources] * sources)
    ...     print(sources, round(errors.untrusted, 1), round(errors.trusted, 1))
    1 1.9 1.6
    10 6.1 1.6
    100 999.9 1.6
    """
    values = validate.integers("counts", counts, hint=_COUNTS)
    if not len(values) or not 0 <= int(values.min()) <= int(values.max()) <= 10**12:
        raise InvalidValue(f"counts is empty, or holds a number below 0 or above 10^12. {_COUNTS}")
    bias, variance = _bias_and_variance(NoisySketch(epsilon, delta, counters), values)
    untrusted = math.sqrt(float(variance.sum()) + float(bias.sum()) ** 2)
    mechanism = RoundedSketch(epsilon, delta, counters, len(values))
    value = int(values.sum()) * mechanism.parts
    probability, full = min(1.0, value / mechanism.choice.full), max(value, mechanism.choice.full)
    silent, first, second = _moments(np.array([float(mechanism.least - full)]), mechanism.scale, sums=1)
    off = full - value
    shown = probability * float((off**2 * (1 - silent) + 2 * off * first + second)[0])
    square = shown + (1 - probability + probability * float(silent[0])) * float(value) ** 2
    return AggregationErrors(untrusted, math.sqrt(square) / mechanism.parts)


def _bias_and_variance(mechanism: NoisySketch, counter: ArrayLike) -> tuple[Floats, Floats]:
    """Return the bias and the variance of what is published, about the counter."""
    counts = np.asarray(counter, dtype=np.float64)
    silent, first, second = _moments(mechanism.threshold - counts, mechanism.scale, sums=2)
    bias = first - counts * silent
    return bias, np.maximum(second + counts**2 * silent - bias**2, 0.0)


def _moments(start: Floats, scale: float, *, sums: int) -> tuple[Floats, Floats, Floats]:
    """Return P[Z < start], E[Z; Z >= start] and E[Z^2; Z >= start], for the sum Z of one or two noises."""
    p, r = math.exp(-1 / scale), -math.expm1(-1 / scale)
    norm, slope, level = (r / (1 + p)) ** sums, sums - 1, 1.0 if sums == 1 else (1 + p * p) / (r * (1 + p))
    powers = 1 / r, p / r**2, p * (1 + p) / r**3, p * (1 + 4 * p + p * p) / r**4  # sums of u^n p^u
    # The law is symmetric: below zero the other tail is taken away from the whole.
    point = np.where(start > 0, start, 1 - start)
    from_point = [sum(math.comb(n, i) * point ** (n - i) * powers[i] for i in range(n + 1)) for n in range(4)]
    lead = norm * np.exp(-point / scale)
    mass, first, second = (lead * (slope * from_point[n + 1] + level * from_point[n]) for n in range(3))
    variance = sums * 2 * p / r**2
    return np.where(start > 0, 1 - mass, mass), first, np.where(start > 0, second, variance - second)
