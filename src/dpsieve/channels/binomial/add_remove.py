"""The exact delta of sample-and-threshold when one client more or less takes part.

Row k is T(X_k): X_k ~ Binomial(k, p), and T turns counts below the threshold t into 'nothing'. Let z = e^epsilon.

Appearing, P_k against z P_(k-1). As P_k(j) / P_(k-1)(j) = k (1-p) / (k-j) grows with j, the tokens that count are those
above k q, q = 1 - (1-p)/z; 'nothing' does not count, since it only gets rarer. So the divergence is

    A(k) = sum over j >= t, j > kq of P_k(j) (j - kq) / (k (1-q)).

Vanishing, P_(k-1) against z P_k: outputs below k q' count, q' = 1 - (1-p) z, none if q' <= 0, and 'nothing' as a whole:

    B(k) = max(0, sum over j < max(t, k q') of P_k(j) (k q' - j) / (k (1-p))).

The worst k is known, for both. (1) Without a threshold the divergence of rows k and k-1 does not grow with k: adding an
independent X_1 to both gives rows k+1 and k, and that is post-processing. From kq >= t-1 on (kq' >= t-1), the outputs
that count are not changed by the threshold, so A (B) does not grow. (2) Before, A(k) = P[X_k >= t] - z P[X_(k-1) >= t],
and since P[X_(k+1) >= t] - P[X_k >= t] = p P_k(t-1), A(k+1) - A(k) = p P_(k-1)(t-1) (k (1-p) / (k-t+1) - z), which is
positive exactly if kq < t-1; so is that of B, before the maximum with 0, exactly if kq' < t-1. Hence

    delta = max(A(ceil((t-1) / q)), B(ceil((t-1) / q'))).

Theorem 2 of Bharadwaj and Cormode (AISTATS 2022) bounds A(k) by P[X_k > kq] and that by Chernoff; B is zero for
p <= 1 - e^-epsilon, which it asks for. Two facts for planning: delta does not grow with t (a higher threshold is
post-processing) nor shrink with p (thin the reported counts, then apply the threshold again).

The unit that comes or goes may have another rate than the others, `own` instead of p: X_(k-1) with a coin of its own
against X_(k-1). With s = 1 + (z-1) / own and s' = 1 - (1 - 1/z) / own, the divergences are

    A(k) = own sum (P_(k-1)(j-1) - s P_(k-1)(j)),    B(k) = z own sum (s' P_(k-1)(j) - P_(k-1)(j-1)).

Since P_(k-1)(j-1) = P_k(j) j / (kp) and P_(k-1)(j) = P_k(j) (k-j) / (k (1-p)), these are the sums above, of P_k at the
rate p, with g = 1 - p + sp, q = sp / g and k p (1-p) / (own g) for k (1-q), and with g' = 1 - p + s'p, q' = s'p / g'
and k p (1-p) / (z own g') for k (1-p). The steps about the worst k stay as they are.

All sums have positive terms only, so small deltas keep their digits; every result is rounded up, and above the exact
value by less than 1e-9 of it.
"""

import math
from collections.abc import Callable

import numpy as np

from dpsieve.exact.search import Ball, ball, upper

Slope = Callable[[], Ball]
"""The factor z on the other row, as a ball at the precision in force: e^epsilon."""

_ULP = 2.0**-53
_FIRST, _LONGEST = 256, 1 << 22


def add_remove(epsilon: float, rate: float, threshold: int, own: float | None = None) -> tuple[float, int]:
    """Return the least delta at epsilon for add/remove neighbours, rounded up, and the frequency k that needs it.

    `own` is the rate of the unit that comes or goes, where that is not the rate of the others.

    >>> delta, k = add_remove(1.0, 0.10535, 20)
    >>> f"{delta:.4g}", k
    ('6.865e-15', 29)
    """

    def slope() -> Ball:
        return ball(epsilon).exp()

    return max(appearing(slope, rate, threshold, own), vanishing(slope, rate, threshold, own))


def appearing(slope: Slope, rate: float, threshold: int, own: float | None = None) -> tuple[float, int]:
    """Return the largest divergence of row k from `slope` times row k-1, rounded up, and k; slope > 1 - own."""

    def below() -> Ball:  # 1 - q = (1-p) / g
        return (1 - ball(rate)) / (slope() if own is None else 1 + (slope() - 1) * ball(rate) / ball(own))

    def at(k: int) -> tuple[float, int]:
        excess = max(0.0, upper(lambda: threshold - k + k * below()))  # t - kq
        series = _series(k - threshold, threshold + 1, rate / (1 - rate), excess, 1.0)
        weight = upper(lambda: _share(own, rate) * mass(k, threshold, rate) / (k * below()))
        return _product(weight, series), k

    return max(at(max(k, threshold)) for k in _ceilings(lambda: (threshold - 1) / (1 - below())))


def vanishing(slope: Slope, rate: float, threshold: int, own: float | None = None) -> tuple[float, int]:
    """Return the largest divergence of row k-1 from `slope` times row k, rounded up, and k; (0, 1) if there is none."""

    def lift() -> Ball:  # 1 / g'
        return slope() if own is None else 1 / (1 - (1 - 1 / slope()) * ball(rate) / ball(own))

    def edge() -> Ball:  # q'
        return 1 - (1 - ball(rate)) * lift()

    def at(k: int) -> tuple[float, int]:
        excess = max(0.0, upper(lambda: k * edge() - (threshold - 1)))
        series = _series(threshold - 1, k - threshold + 2, (1 - rate) / rate, excess, 1.0)
        weight = upper(lambda: _share(own, rate) * mass(k, threshold - 1, rate) / (k * (1 - ball(rate))))
        return _product(upper(lambda: ball(weight) * slope() / lift()) if own else weight, series), k

    if upper(lambda: edge() if own is None else 1 - (1 - 1 / slope()) / ball(own)) <= 0:  # q', or s' of its sign
        return 0.0, 1
    return max(at(max(k, 1)) for k in _ceilings(lambda: (threshold - 1) / edge()))


def _share(own: float | None, rate: float) -> Ball | int:
    return 1 if own is None else ball(own) / ball(rate)


def upper_tail(trials: int, rate: float, least: int) -> float:
    """Return P[Binomial(trials, rate) >= least] for a `least` above the mean, rounded up, by less than 1e-9 of it."""
    if least > trials:
        return 0.0
    series = _series(trials - least, least + 1, rate / (1 - rate), 1.0, 0.0)
    return _product(upper(lambda: mass(trials, least, rate)), series)


def lower_tail(trials: int, rate: float, most: int) -> float:
    """Return P[Binomial(trials, rate) <= most] for a `most` below the mean, rounded up, by less than 1e-9 of it."""
    if most < 0:
        return 0.0
    series = _series(most, trials - most + 1, (1 - rate) / rate, 1.0, 0.0)
    return _product(upper(lambda: mass(trials, most, rate)), series)


def mass(trials: int, successes: int, rate: float) -> Ball:
    """Enclose P[Binomial(trials, rate) = successes], for a rate above 0 and below 1."""
    failures = trials - successes
    ways = ball(trials + 1).lgamma() - ball(successes + 1).lgamma() - ball(failures + 1).lgamma()
    return (ways + successes * ball(rate).log() + failures * (-ball(rate)).log1p()).exp()


def _ceilings(expression: Callable[[], Ball]) -> list[int]:
    """Return the ceiling of a number; both candidates, if it cannot be told from an integer."""
    from dpsieve.exact.search import floor_bounds, precision

    with precision(192):
        low, high = floor_bounds(-expression())
    return sorted({-low, -high})


def _series(last: int, offset: int, odds: float, excess: float, step: float) -> float:
    """Return sum_{i=0}^{last} R_i (excess + step i), R_0 = 1, R_(i+1) = R_i odds (last - i) / (offset + i), rounded up.

    The ratios fall, so what is left after n terms is at most that of a geometric series. Each R_i has a relative error
    of at most 4 i units in the last place.
    """
    total, weight, start, size = 0.0, 1.0, 0, _FIRST
    while start <= last:
        i = np.arange(start, min(start + size, last + 1), dtype=np.float64)
        ratios = odds * (last - i) / (offset + i)
        weights = weight * np.append(1.0, np.cumprod(ratios))
        total += float(weights[:-1] @ (excess + step * i))
        start, weight, size = start + len(i), float(weights[-1]), 2 * size
        ratio = odds * max(last - start, 0) / (offset + start) * (1 + 8 * _ULP)
        rest = math.inf
        if ratio < 1:
            rest = weight * ((excess + step * start) / (1 - ratio) + step * ratio / (1 - ratio) ** 2)
        if rest <= 2.0**-60 * total or start >= _LONGEST:
            total += rest
            break
    return total * (1 + (8 * start + 64) * _ULP)


def _product(factor: float, series: float) -> float:
    return min(1.0, math.nextafter(factor * series, 2.0))
