"""Intervals for the frequency behind a sampled count, given that the count reached the threshold.

With X_i ~ Binomial(i, p) and a threshold t, a frequency i is in the interval of a token j when neither

    P[X_i >= j | X_i >= t]    nor    P[X_i <= j | X_i >= t]

is below the allowed miss (Clopper and Pearson 1934). The first grows with i and the second falls, as rows have
increasing ratios, so each end is the first i at which a statement turns true. The search starts where it nearly always
ends: the trial N_j of the j-th success has P[N_j <= i] = P[X_i >= j], and the quantiles of that negative binomial are
known to a fraction of 1/p (Cornish and Fisher 1938). A bad guess costs nothing but time: what is found is checked from
both sides.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpsieve.channels.channel import LARGEST_FREQUENCY
from dpsieve.exact.binomial import Floats, Ints, at_least, below

_SAFE = 1e-9  # relative: intervals leave out less than they may, which covers all rounding
_SURE = 40.0  # a report that fails with probability e^-40 at most is taken as certain; _SAFE covers that too
_RAREST = 1e-300  # frequencies that are reported less often are left out


def sampled_interval(tokens: Ints, miss: float, rate: float, threshold: int) -> tuple[Ints, Ints]:
    """Return (low, high) for each token >= threshold; each end misses with probability `miss` at most.

    >>> low, high = sampled_interval(np.array([24, 300]), 0.025, 0.3, 24)
    >>> low.tolist(), high.tolist()
    ([24, 908], [105, 1100])
    """
    least = miss * (1 - _SAFE)
    far = np.ceil(np.minimum((tokens + 40 * np.sqrt(tokens) + 1600) / rate, LARGEST_FREQUENCY)).astype(np.int64)

    def tail_counts(i: Ints, at: Ints) -> NDArray[np.bool_]:
        return _tail(i, tokens[at], rate, threshold) > least

    def head_is_rare(i: Ints, at: Ints) -> NDArray[np.bool_]:
        return _head(i, tokens[at], rate, threshold) <= least

    low = _first(tail_counts, tokens, far, _guess(tokens, least, rate))
    high = _first(head_is_rare, low, far, _guess(tokens + 1, 1 - least, rate))
    high, at_end = np.maximum(high - 1, low), np.flatnonzero(high == far)
    high[at_end[~head_is_rare(far[at_end], at_end)]] = LARGEST_FREQUENCY
    return low, high


def _tail(frequencies: Ints, tokens: Ints, rate: float, threshold: int) -> Floats:
    """Return P[X >= token], given a report."""
    found = at_least(frequencies, tokens, rate)
    unsure = np.flatnonzero(~_surely_reported(frequencies, rate, threshold))
    found[unsure] /= np.maximum(at_least(frequencies[unsure], threshold, rate), _RAREST)
    return found


def _head(frequencies: Ints, tokens: Ints, rate: float, threshold: int) -> Floats:
    """Return P[X <= token], given a report; small ones keep their digits."""
    under = below(frequencies, tokens + 1, rate)
    unsure = np.flatnonzero(~_surely_reported(frequencies, rate, threshold))
    i, j = frequencies[unsure], tokens[unsure]
    reported, over = at_least(i, threshold, rate), at_least(i, j + 1, rate)
    given = np.where(over < 0.5, reported - over, under[unsure] - below(i, threshold, rate))
    under[unsure] = np.where(reported < _RAREST, 1.0, given / np.maximum(reported, _RAREST))
    return under


def _surely_reported(frequencies: Ints, rate: float, threshold: int) -> NDArray[np.bool_]:
    """Return where P[X < threshold] <= e^-40, by Chernoff's bound exp(-(mean - threshold)^2 / (2 mean))."""
    mean = frequencies * rate
    return (mean > threshold) & ((mean - threshold) ** 2 > 2 * _SURE * mean)


def _guess(successes: Ints, level: float, rate: float) -> Ints:
    """Return about the first i with P[N <= i] >= level, N the trial of so many successes."""
    from scipy.special import ndtri

    z, j, q = float(ndtri(level)), successes.astype(np.float64), 1 - rate
    skew, excess = (2 - rate) / np.sqrt(j * q), 6 / j + rate**2 / (j * q)
    bend = (z * z - 1) * skew / 6 + (z**3 - 3 * z) * excess / 24 - (2 * z**3 - 5 * z) * skew**2 / 36
    place = (j + math.sqrt(q) * np.sqrt(j) * (z + bend)) / rate
    return np.ceil(np.clip(place - 0.5, 0, 2.0 * LARGEST_FREQUENCY)).astype(np.int64)


def _first(holds: Callable[[Ints, Ints], NDArray[np.bool_]], low: Ints, high: Ints, guess: Ints) -> Ints:
    """Return, entry by entry, the first i in [low, high] at which `holds(i, entry)`, or high; once true, it stays true.

    From the guess, steps of 1, 2, 4, ... go up or down until the statement changes; then halving.
    """
    high = np.maximum(low, high)
    no, yes = low - 1, high.copy()  # below `no` + 1 it is false; at `yes` it is true, or `yes` is the end
    middle = np.clip(guess, low, high)
    step, active = np.ones(len(low), np.int64), np.flatnonzero(no + 1 < yes)
    while len(active):
        place = middle[active]
        found = holds(place, active)
        yes[active] = np.where(found, place, yes[active])
        no[active] = np.where(found, no[active], place)
        inside = (no[active] >= low[active]) & (yes[active] < high[active])
        half = no[active] + (yes[active] - no[active] + 1) // 2
        leap = np.where(found, place - step[active], place + step[active])
        middle[active] = np.clip(np.where(inside, half, leap), no[active] + 1, yes[active])
        step[active] *= 2
        active = active[no[active] + 1 < yes[active]]
    return yes
