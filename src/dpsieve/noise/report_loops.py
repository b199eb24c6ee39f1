"""Numba: the largest reporting probability per frequency under the product bound, and Renyi divergences of the rows.

The bound of a pair of rows is that of `accounting.products`, with few points: right to about one in 1,000. It is
monotone in the step between two rows, which is searched in log-odds. The cost of many uses is stated in Renyi
divergences of the same rows beside a leak d (`widest`), with all rounding errors added:
docs/background/many_keys.md#renyi-divergences-of-the-rows.
"""

import numpy as np

from dpsieve.accounting.loops import product_delta
from dpsieve.compiled.jit import jit
from dpsieve.compiled.words import less, sub, to_float

_ROUNDS = 60
_SLACK = 5e-4  # of a step
_ERROR = 2.0**-36
_GRID = 2.0**-128
_ZERO = np.uint64(0)


@jit()
def _over(q, not_q, odds, shift, uses, epsilon, power, limit, tangents):
    """Return by how much, as a logarithm, a step to these log-odds is above the limit, in the worse direction."""
    p, not_p = (1.0, 0.0) if odds == np.inf else (1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(odds)))
    up = np.log(product_delta(p, not_p, q, not_q, shift, uses, epsilon, power, limit, tangents, False))
    down = np.log(product_delta(q, not_q, p, not_p, shift, uses, epsilon, power, limit, tangents, False))
    return min(max(up, down) - np.log(limit), 1e3)


@jit(nogil=True)
def grow_coins(uses, epsilon, power, limit, first, shift, until, tangents, rows, not_rows):
    """Fill p(0), p(1), ... and 1 - p until p >= until; return the number of rows, or 0 if that is impossible.

    From row `first` on a step also moves a Gaussian by `shift` deviations. Steps are a little shorter than they may be.
    """
    absent = np.exp(-power * epsilon) / (2 * np.sqrt(power * (power + 1)))
    if absent >= limit or len(rows) < 3:
        return 0
    rows[0], not_rows[0] = 0.0, 1.0
    rows[1] = (limit - absent) / uses
    not_rows[1] = 1 - rows[1]
    step, change = 1.0, 0.0
    for h in range(2, len(rows)):
        q, not_q, moved = rows[h - 1], not_rows[h - 1], shift if h > first else 0.0
        if uses * not_q < limit and _over(q, not_q, np.inf, moved, uses, epsilon, power, limit, tangents) <= 0:
            rows[h], not_rows[h] = 1.0, 0.0
            return h + 1
        start, low, high = np.log(q / not_q), 0.0, np.inf
        at, over, guess = 0.0, 0.0, min(max(step + change, 0.5 * step), 1.5 * step)
        for k in range(_ROUNDS):  # tries on both sides of a guess, until they are near each other
            before, over_before = at, over
            if low > 100:
                return 0
            if high < np.inf and high - low <= _SLACK * high:
                break
            at = (1 - _SLACK / 2.1) * guess
            if low >= at:
                at = (1 + _SLACK / 2.1) * guess
            if not low < at < high or k % 5 == 4:
                at = 2 * low if high == np.inf else (low + high) / 2
            over = _over(q, not_q, start + at, moved, uses, epsilon, power, limit, tangents)
            low, high = (at, high) if over <= 0 else (low, at)
            if not low <= guess <= high and k > 0 and (over - over_before) * (at - before) > 0:
                guess = min(at - over * (at - before) / (over - over_before), 2 * at)
            elif not low <= guess <= high:
                guess = (1.01 if over <= 0 else 0.99) * at
        if low <= 1e-9:  # no progress
            return 0
        change, step, odds = low - step, low, start + low
        rows[h], not_rows[h] = 1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(odds))
        if until < 1 and rows[h] >= until:  # one is reached only by the step above
            return h + 1
    return 0


@jit()
def _moment(low, not_low, high, not_high, x, y, order):
    """Return the larger S - 1 of both directions, rounded up, given both logarithms."""
    up, down = order * x, order * y
    there = low * np.expm1(up) * (1 + _ERROR) + not_low * np.expm1(-down) * (1 - _ERROR)
    back = not_high * np.expm1(down) * (1 + _ERROR) + high * np.expm1(-up) * (1 - _ERROR)
    return max(there, back)


@jit()
def _coins(high, low, before, h, dh, dl):
    """Return Q', 1 - Q', P', 1 - P' and P' - Q' of two rows with the leak d; Q' = 0 where they are not comparable.

    The integers high * 2^64 + low are probabilities in units of 2^-128, and so is the leak, which is rounded down. The
    first row is zero; the last one and all after it stand for one. Differences are taken in integers, so each term is
    rounded once.
    """
    same, apart = (0.5, 0.5, 0.5, 0.5, 0.0), (0.0, 1.0, 1.0, 0.0, 1.0)
    last = len(high) - 1
    if before >= last:
        return same
    qh, ql = high[before], low[before]
    nqh, nql = sub(_ZERO, _ZERO, qh, ql)
    if h >= last:  # to one: the other coin must be within the leak of it
        return apart if before == 0 or less(dh, dl, nqh, nql) else same
    ph, pl = high[h], low[h]
    if less(ph, pl, qh, ql):
        return apart
    rise_high, rise_low = sub(ph, pl, qh, ql)
    if not less(dh, dl, rise_high, rise_low):
        return same
    if (qh | ql) == _ZERO:
        return apart
    remainder = 1 - _float(dh, dl)
    nph, npl = sub(_ZERO, _ZERO, ph, pl)
    nqh, nql = sub(nqh, nql, dh, dl)
    gh, gl = sub(ph, pl, dh, dl)
    sh, sl = sub(rise_high, rise_low, dh, dl)
    return (
        _float(qh, ql) / remainder,
        _float(nqh, nql) / remainder,
        _float(gh, gl) / remainder,
        _float(nph, npl) / remainder,
        _float(sh, sl) / remainder,
    )


@jit(nogil=True)
def widest(high, low, steps, leak_high, leak_low, orders, start, stop, worst):
    """Fill `worst` with the largest S - 1, rounded up, of each step (a row) and order (a column).

    For each step the rows from `start` on, and before `stop`, are compared with those a step below; beyond the table
    all are one.
    """
    for k in range(len(steps)):
        worst[k] = 0.0
        for h in range(start, min(stop, len(high) - 1 + steps[k])):
            q, not_q, p, not_p, step = _coins(high, low, max(0, h - steps[k]), h, leak_high[k], leak_low[k])
            if q <= 0 or not_p <= 0:
                worst[k] = np.inf
                break
            if step > 0:
                x, y = np.log1p(step / q), np.log1p(step / not_p)
                for i in range(len(orders)):
                    worst[k, i] = max(worst[k, i], _moment(q, not_q, p, not_p, x, y, orders[i]))


@jit()
def _float(high, low):
    return to_float(high, low) * _GRID
