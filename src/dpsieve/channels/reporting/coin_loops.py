"""Coins that show keys, one row for each frequency: each the largest that products of such pairs allow (compiled).

A number for a pair of rows is that of `privacy.products`, by few points: right to about one in 1,000. It is monotone in
the step between two rows, which is searched in log-odds.
"""

import numpy as np

from dpsieve.exact.jit import jit

_PARTS = np.array([0.0, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0])
_ROUNDS = 7


@jit()
def _bound(ours, silent, theirs, their_silent, shift, uses, epsilon, power, tangents):
    """Return the logarithm of B of one pair; the first two may add up to less than one."""
    c2 = power * (power + 1)
    loss = np.log(ours / theirs) if ours > 0 else 0.0
    other = np.log(silent / their_silent) if silent > 0 else 0.0
    report = np.log(ours) + power * loss + shift * shift * c2 / 2 if ours > 0 else -1e9
    silence = np.log(silent) + power * other if silent > 0 else -1e9
    top = np.logaddexp(report, silence)  # so that no power of r + s overflows
    r, s = np.exp(report - top), np.exp(silence - top)
    turn, total, half = abs(loss - other + shift * shift * (power + 0.5)), 0.0, uses / 2
    if shift == 0.0:
        shrink = np.tanh(np.sqrt(c2) * turn / 2) ** 2
        for k in range(len(tangents)):
            x = shrink * tangents[k]
            total += np.exp(half * np.log(max(r * r + s * s + 2 * r * s * (1 - x) / (1 + x), 1e-300)))
    else:
        for k in range(len(tangents)):
            t2 = c2 * tangents[k]
            g = np.exp(-shift * shift * t2 / 2)
            square = r * r * g * g + s * s + 2 * r * s * g * np.cos(turn * np.sqrt(t2))
            total += np.exp(half * np.log(max(square, 1e-300)))
    return uses * top + np.log(max(total / len(tangents), 1e-300)) - power * epsilon - np.log(4 * c2) / 2


@jit()
def _one_way(ours, silent, theirs, their_silent, shift, uses, epsilon, power, limit, tangents):
    """Return the logarithm of the number of a pair in one direction, the best over leaks of at most `limit`."""
    report = ours * their_silent >= silent * theirs  # which outcome has the larger loss
    best = np.inf
    for part in _PARTS:
        leak = uses * part * (ours if report else silent)
        if leak >= limit or leak >= best:
            break
        a, b = (ours * (1 - part), silent) if report else (ours, silent * (1 - part))
        if (a > 0 and theirs <= 0) or (b > 0 and their_silent <= 0):
            continue
        found = _bound(a, b, theirs, their_silent, shift, uses, epsilon, power, tangents)
        best = min(best, leak + (np.exp(found) if found < 300 else np.inf))
    return np.log(best)


@jit()
def _over(q, not_q, odds, shift, uses, epsilon, power, limit, tangents):
    """Return by how much, as a logarithm, a step to these log-odds is above the limit, in the worse direction."""
    p, not_p = (1.0, 0.0) if odds == np.inf else (1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(odds)))
    up = _one_way(p, not_p, q, not_q, shift, uses, epsilon, power, limit, tangents)
    down = _one_way(q, not_q, p, not_p, shift, uses, epsilon, power, limit, tangents)
    return min(max(up, down) - np.log(limit), 1e3)


@jit()
def grow_coins(uses, epsilon, power, limit, first, shift, until, tangents, rows, not_rows):
    """Fill p(0), p(1), ... and 1 - p until p >= until; return the number of rows, or 0 where there is no way or room.

    From row `first` on a step also moves a Gaussian by `shift` deviations.
    """
    absent = np.exp(-power * epsilon) / (2 * np.sqrt(power * (power + 1)))
    if absent >= limit or len(rows) < 3:
        return 0
    rows[0], not_rows[0] = 0.0, 1.0
    rows[1] = (limit - absent) / uses
    not_rows[1] = 1 - rows[1]
    step = 1.0
    for h in range(2, len(rows)):
        q, not_q, moved = rows[h - 1], not_rows[h - 1], shift if h > first else 0.0
        if uses * not_q < limit and _over(q, not_q, np.inf, moved, uses, epsilon, power, limit, tangents) <= 0:
            rows[h], not_rows[h] = 1.0, 0.0
            return h + 1
        start, low, high = np.log(q / not_q), 0.0, step
        at_low = _over(q, not_q, start, moved, uses, epsilon, power, limit, tangents)
        at_high = _over(q, not_q, start + high, moved, uses, epsilon, power, limit, tangents)
        if at_low > 0:
            return 0
        while at_high <= 0:
            low, at_low, high = high, at_high, 1.5 * high
            if high > 100:
                return 0
            at_high = _over(q, not_q, start + high, moved, uses, epsilon, power, limit, tangents)
        for k in range(3 * _ROUNDS):
            if high - low <= 1e-5 * high or (k >= _ROUNDS and low > 0 and high - low <= 1e-3 * high):
                break
            share = at_low / (at_low - at_high) if k % 3 and at_high < 50 else 0.5
            middle = low + (high - low) * min(0.95, max(0.05, share))
            found = _over(q, not_q, start + middle, moved, uses, epsilon, power, limit, tangents)
            low, at_low, high, at_high = (middle, found, high, at_high) if found <= 0 else (low, at_low, middle, found)
        if low <= 1e-9:  # it would never end
            return 0
        step = 1.05 * low
        odds = start + low
        rows[h], not_rows[h] = 1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(odds))
        if until < 1 and rows[h] >= until:  # to one only by a step that is allowed, above
            return h + 1
    return 0
