"""Picks by the exponential mechanism, where one unit changes every count by at most 1, all in the same direction.

A pick draws item i with probability proportional to e^(e0 * count_i). In either direction the pair of distributions is,
for some s in [1, e^e0] and with c = e^-e0, a loss of ln s with probability (1 - s c) / (1 - c), else of ln s - e0.
Three accounts: the closed form of Gillenwater, Joseph, Munoz and Ribero (2022), Lemma 4.2, in `lemma_epsilon`; Renyi
divergences, which add up at one order; and the exact adaptive composition (`accounting.adaptive`), for which finitely
many pairs cover the range of s, as a delta or as a law of losses. Proof: docs/background/composition.md#picks.

`hitting_delta`, `hitting_law` and `hitting_renyi` are for picks after which a unit is gone once one of its items is
picked (see `discovery.picks`): inside S both sides draw alike from then on, so that outcome is the last one.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpsieve import validate
from dpsieve.accounting.adaptive import Outcome, Pair, adaptive_delta, adaptive_law
from dpsieve.accounting.curves import checked_order, range_divergence
from dpsieve.accounting.products import LossLaw
from dpsieve.exact.balls import Ball, ball, lower, upper

MOST_PICKS = 1000
_HITTING_CELLS, _HITTING_WORK = 96, 1e8
HITTING_FROM = 64  # with this many picks or more, removing hit units is always the better account
_MOST_POINTS, _MOST_MU = 200_000, 40.0  # where noise follows picks; beyond this mu noise hides nothing
_TOLERANCE = 1e-4
_SMALLEST = 1e-9


def lemma_epsilon(epsilon: float, delta: float, k: int) -> float:
    """Return the epsilon of each of k picks that are (epsilon, delta)-DP by the closed form, rounded down.

    The larger of epsilon / k and sqrt((8 ln(1/delta) + 8 epsilon) / k) - sqrt(8 ln(1/delta) / k).

    >>> round(lemma_epsilon(1.0, 1e-5, 100), 6)
    0.040812
    """
    epsilon, delta, k = validate.positive_epsilon(epsilon), validate.delta(delta), checked_picks(k)
    plain = lower(lambda: ball(epsilon) / k)
    if delta == 0:
        return plain

    def closed() -> Ball:
        logarithm = -8 * ball(delta).log() / k
        return (logarithm + 8 * ball(epsilon) / k).sqrt() - logarithm.sqrt()

    return max(plain, lower(closed))


def picks_renyi(order: float, each_epsilon: float, k: int) -> float:
    """Return the Renyi divergence of this order that k picks cost, rounded up.

    One pick costs at most order * each_epsilon^2 / 8, and at most each_epsilon.

    >>> round(picks_renyi(16.0, 0.1, 1), 4), round(16.0 * 0.1**2 / 8, 4)
    (0.0194, 0.02)
    """
    order, each_epsilon, k = checked_order(order), _each(each_epsilon), checked_picks(k)
    tau = max(0.0, upper(lambda: range_divergence(order, each_epsilon)))
    return upper(lambda: ball(tau) * k)


def picks_law(k: int, each_epsilon: float, top: float, mu: float = 0.0) -> LossLaw:
    """Return a law of losses that dominates k adaptively chosen picks, and Gaussian noise of distance mu after them.

    Curves are computed up to the epsilon `top`. Tiny picks count as larger ones, whose range contains their losses.
    """
    k, each_epsilon = checked_picks(k), _each(each_epsilon)
    if mu > _MOST_MU:
        return LossLaw(0, 1.0, np.ones(1), 1.0)
    if mu:
        each_epsilon = max(each_epsilon, top / _MOST_POINTS)
    cells = min(_cells(k), max(1, int(_MOST_POINTS * each_epsilon / top))) if mu else _cells(k)
    return _law(k, each_epsilon, cells, top, False, mu)


def picks_delta(k: int, epsilon: float, *, each_epsilon: float) -> float:
    """Return the delta of k adaptively chosen picks at `epsilon`, rounded up.

    >>> f"{picks_delta(100, 1.0, each_epsilon=0.0408):.2g}"  # by the closed form it is 1e-5
    '3e-08'
    """
    k, epsilon, each_epsilon = checked_picks(k), validate.epsilon(epsilon), _each(each_epsilon)
    return _curve(k, epsilon, each_epsilon, _cells(k), False)


def picks_epsilon(epsilon: float, delta: float, k: int) -> float:
    """Return the epsilon of each of k picks that together are (epsilon, delta)-DP: the largest, to four digits.

    >>> round(picks_epsilon(1.0, 1e-5, 100), 4), round(lemma_epsilon(1.0, 1e-5, 100), 4)
    (0.0534, 0.0408)
    """
    least = lemma_epsilon(epsilon, delta, k)
    if delta == 0:
        return least
    return _largest(lambda each: picks_delta(k, epsilon, each_epsilon=each), delta, least, -2 * math.log(delta))


def hitting_delta(k: int, epsilon: float, *, each_epsilon: float) -> float:
    """Return the delta of k picks that remove hit units, at `epsilon`, rounded up.

    From with to without the unit the total loss is at most each_epsilon; this is the other direction, and 1 where
    epsilon is below each_epsilon.

    >>> [f"{hitting_delta(k, 1.0, each_epsilon=0.1):.1e}" for k in (20, 100, 1000)]
    ['2.8e-08', '1.4e-06', '2.6e-06']
    """
    k, epsilon, each_epsilon = checked_picks(k), validate.epsilon(epsilon), _each(each_epsilon)
    if epsilon < each_epsilon:
        return 1.0
    return _curve(k, epsilon, each_epsilon, _hitting_cells(k, epsilon, each_epsilon), True)


def hitting_epsilon(epsilon: float, delta: float, k: int) -> float:
    """Return nearly the largest epsilon of each of k picks, by the better of `hitting_delta` and `picks_delta`.

    >>> round(hitting_epsilon(1.0, 1e-5, 200), 3), round(picks_epsilon(1.0, 1e-5, 200), 3)
    (0.116, 0.038)
    """
    least = picks_epsilon(epsilon, delta, k) if k < HITTING_FROM else lemma_epsilon(epsilon, delta, k)
    if delta == 0:
        return least
    return _largest(lambda each: hitting_delta(k, epsilon, each_epsilon=each), delta, least, -2 * math.log(delta))


def hitting_renyi(order: float, each_epsilon: float, k: int) -> float:
    """Return the Renyi divergence of k picks that remove hit units, rounded up.

    By exponential moments, or k times the cost of one pick: docs/background/composition.md#picks.

    >>> round(hitting_renyi(16.0, 0.05, 200), 4), round(picks_renyi(16.0, 0.05, 200), 4)
    (0.0424, 0.9917)
    """
    order, each_epsilon, k = checked_order(order), _each(each_epsilon), checked_picks(k)
    return min(picks_renyi(order, each_epsilon, k), upper(lambda: _moments(order, each_epsilon, k)))


def hitting_law(k: int, each_epsilon: float, top: float) -> LossLaw:
    """Return a law of losses that dominates k picks that remove hit units, from without to with the unit."""
    k, each_epsilon = checked_picks(k), _each(each_epsilon)
    return _law(k, each_epsilon, _hitting_cells(k, top, each_epsilon), top, True)


def largest_each(cost: Callable[[float], float], most: float, guess: float) -> float:
    """Return nearly the largest epsilon of a pick at which a cost that grows with it is at most `most`.

    Zero where even a thousandth of the guess costs more.
    """
    start = next((guess / 2**i for i in range(10) if cost(max(_SMALLEST, guess / 2**i)) <= most), 0.0)
    return _largest(cost, most, max(_SMALLEST, start), slope=4.0) if start else 0.0


def checked_picks(k: int, name: str = "k") -> int:
    """Return the number of keys to pick."""
    return validate.whole(name, k, low=1, high=MOST_PICKS, hint=f"Pass how many keys to pick, such as {name}=100.")


def _each(value: float) -> float:
    hint = "Pass the epsilon of one pick, such as each_epsilon=0.1."
    return validate.between("each_epsilon", value, _SMALLEST, 100.0, hint=hint)


def _cells(k: int) -> int:
    """Return the number of cells of the range of s: fewer for many picks, which take longer."""
    return next(cells for most, cells in ((50, 48), (300, 24), (MOST_PICKS, 16)) if k <= most)


def _hitting_cells(k: int, epsilon: float, each_epsilon: float) -> int:
    """Return the number of cells of the range of s: few where it would take long."""
    cells = math.sqrt(_HITTING_WORK * each_epsilon / (k * max(epsilon, each_epsilon)))
    return max(4, min(_HITTING_CELLS, int(cells)))


def _largest(cost: Callable[[float], float], most: float, good: float, slope: float) -> float:
    """Return nearly the largest number at which `cost`, which grows, is at most `most`; `good` is assumed to be one.

    By secants: the logarithm of the cost is nearly linear in the logarithm of the number; `slope` is the first guess.
    """
    at, bad, aim = good, 100.0, math.log(most) - 1e-4
    last: tuple[float, float] | None = None
    for _ in range(12):
        value = math.log(max(cost(at), 1e-300))
        if last is not None and value != last[1]:
            slope = max(1.0, (value - last[1]) / math.log(at / last[0]))
        good, bad = (max(good, at), bad) if value <= math.log(most) else (good, min(bad, at))
        if bad <= good * (1 + _TOLERANCE) or 0 <= aim - value <= slope * _TOLERANCE:
            break
        last = at, value
        guess = at * math.exp(max(-1.0, min(0.5, (aim - value) / slope)))
        at = guess if good < guess < bad else math.sqrt(good * bad)
    return good


@lru_cache(maxsize=256)
def _curve(k: int, epsilon: float, each_epsilon: float, cells: int, hitting: bool) -> float:
    if Fraction(epsilon) >= k * Fraction(each_epsilon):  # no pick loses more than its epsilon
        return 0.0
    grid = math.nextafter(each_epsilon / cells * (1 + 2**-50), 1000.0)
    return adaptive_delta(_pairs(cells, grid, hitting), k, epsilon, grid=grid)


@lru_cache(maxsize=64)
def _law(k: int, each_epsilon: float, cells: int, top: float, hitting: bool, mu: float = 0.0) -> LossLaw:
    grid = math.nextafter(each_epsilon / cells * (1 + 2**-50), 1000.0)
    return adaptive_law(_pairs(cells, grid, hitting), k, top, grid=grid, mu=mu)


def _pairs(cells: int, grid: float, hitting: bool) -> list[Pair]:
    """Return pairs that dominate those of all s; the low outcome is the last one for `hitting`."""
    scale = math.expm1(-cells * grid)  # c - 1

    def high(j: int) -> float:  # (1 - s_j c) / (1 - c)
        return math.expm1((j - cells) * grid) / scale

    def low(j: int) -> float:  # c (s_j - 1) / (1 - c)
        return math.exp(-cells * grid) * math.expm1(j * grid) / -scale

    def outcomes(j: int, up: float, down: float) -> list[Outcome]:
        return [Outcome(up, j * grid), Outcome(down, (j - cells) * grid, hitting)]

    ends: list[Pair] = [outcomes(j, high(j), low(j)) for j in range(cells)]
    ratio = math.exp(grid)
    left, right = 1 / (1 + ratio), ratio / (1 + ratio)
    meets: list[Pair] = [
        outcomes(j, left * high(j + 1), left * low(j + 1)) + outcomes(j + 1, right * high(j), right * low(j))
        for j in range(cells)
    ]
    return ends + meets


def _moments(order: float, each_epsilon: float, k: int) -> Ball:
    a, c = ball(order), (-ball(each_epsilon)).exp()
    high, low = c**a, c ** (a - 1)
    added, removed = ball(1), ball(1)  # moments from without to with the unit, and back
    for _ in range(k):
        added = _moment(a, c, added - high, c * (added - low))
        removed = _moment(a, c, 1 - high * removed, c * (1 - low * removed))
    return max(added.log(), removed.log(), key=lambda moment: moment.upper()) / (a - 1)


def _moment(a: Ball, c: Ball, constant: Ball, slope: Ball) -> Ball:
    """Return the maximum over s in [1, 1/c] of s^(a-1) (constant - s slope) / (1 - c)."""
    best = (a - 1) * constant / (a * slope) if slope > 0 else 1 / c
    s = best.max(ball(1)).min(1 / c) if slope > 0 else best
    return s ** (a - 1) * (constant - s * slope) / (1 - c)
