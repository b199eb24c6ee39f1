"""Numba: reporting probabilities of sums of weights, grown and checked by the bound of `accounting.products`.

The step from q = p(h - w) to p = p(h), of a weight with exponent m, is allowed if in both directions there is a leak l
of the list such that B(l) is at most the limit that goes with it: l / m comes off the outcome of larger loss, and

    ln B = m ln M + ln E (1 - y u)^(m/2) - power epsilon - ln(2c),    y = 4 r s,

where r + s = 1 are the parts of reports and silence in M = M(power), u = sin^2(angle / 2), and the angle has the
wrapped Cauchy distribution of a ratio e^(-c turn), turn the distance of both losses. The mean is at most that of
e^(-Y u), Y = m y / 2, which is convex in Y and in the ratio: both by their series with positive terms,
e^(-Y/2) (I_0(Y/2) + 2 sum of ratio^k I_k(Y/2)). So interpolation between points of a grid is an upper bound, and most
steps need no more. For others the mean over the left ends of cells of F is one, as in `accounting.products`.
"""

import numpy as np

from dpsieve.compiled.jit import jit

_FAR = 1e3  # a logarithm beyond all that is compared
_ROUNDING = 2.0**-49
SCALE, FIRST = 10.0, 16.0  # the grid of Y: expm1(i / SCALE) / FIRST


@jit()
def _parts(ours, silent, theirs, their_silent, power):
    """Return ln M, rounded up, and y and the distance of both losses, rounded down; ln M is infinite if a loss is.

    Each logarithm is off by some units in its last place, and power times that enters.
    """
    log_report, log_silent, loss, other = -1e9, -1e9, 0.0, 0.0
    size = 10.0
    if ours > 0:
        if theirs <= 0:
            return np.inf, 0.0, 0.0
        log_report = np.log(ours)
        loss = np.log1p((ours - theirs) / theirs) if abs(ours - theirs) < 0.1 * theirs else np.log(ours / theirs)
        size -= log_report
        log_report += power * loss
    if silent > 0:
        if their_silent <= 0:
            return np.inf, 0.0, 0.0
        log_silent = np.log(silent)
        near = abs(silent - their_silent) < 0.1 * their_silent
        other = np.log1p((silent - their_silent) / their_silent) if near else np.log(silent / their_silent)
        size -= log_silent
        log_silent += power * other
    top = max(log_report, log_silent)
    gap = np.exp(-abs(log_report - log_silent))
    size += abs(loss) + abs(other)
    error = _ROUNDING * (power + 1) * size
    turn = max(0.0, abs(loss - other) - _ROUNDING * size)
    return top + np.log1p(gap) + error, 4 * gap / (1 + gap) ** 2 * max(0.0, 1 - error), turn


@jit()
def _interpolated(curves, total, ratio):
    """Return an upper bound on the mean of e^(-total u) for angles of this ratio."""
    rows = len(curves)
    x = np.log1p(total * FIRST) * SCALE
    i = int(x)
    if i >= rows - 1:
        return _between(curves[rows - 1], ratio)
    low, high = np.expm1(i / SCALE) / FIRST, np.expm1((i + 1) / SCALE) / FIRST
    part = min(1.0, max(0.0, (total - low) / (high - low)))
    return (1 - part) * _between(curves[i], ratio) + part * _between(curves[i + 1], ratio)


@jit()
def _between(row, ratio):
    x = ratio * (len(row) - 1)
    j = min(int(x), len(row) - 2)
    return row[j] + (x - j) * (row[j + 1] - row[j])


@jit()
def _mean(y, turn, m, c, tangents):
    """Return the mean of (1 - y u)^(m/2) over the given values of tan^2(F/2), with their weights."""
    shrink, total, half = np.tanh(c * turn / 2) ** 2, 0.0, m / 2
    for k in range(tangents.shape[1]):
        x = shrink * tangents[0, k]
        total += tangents[1, k] * np.exp(half * np.log1p(-y * x / (1 + x)))
    return total


@jit()
def _excess(ours, silent, theirs, their_silent, leak, limit, m, epsilon, power, curves, tangents, fine):
    """Return by how much, as a logarithm, B is above its limit in one direction; rounded up.

    Not `fine`: enough to know that it is not, where a quick bound says so.
    """
    if ours * their_silent >= silent * theirs:
        ours = max(0.0, ours - leak)
    else:
        silent = max(0.0, silent - leak)
    if ours <= 0 and silent <= 0:
        return -_FAR
    moment, y, turn = _parts(ours, silent, theirs, their_silent, power)
    if moment == np.inf:
        return _FAR
    c = np.sqrt(power * (power + 1))
    base = m * moment - power * epsilon - np.log(2 * c) - np.log(limit) + _ROUNDING * (power * epsilon + 50)
    if base <= 0 and not fine:
        return base
    if not fine:
        quick = base + np.log(_interpolated(curves, m * y / 2, np.exp(-c * turn)))
        if quick <= 0:
            return quick
    return min(_FAR, base + np.log(max(_mean(y, turn, m, c, tangents), 1e-300)))


@jit()
def _over(q, not_q, p, not_p, m, leaks, limits, epsilon, power, curves, tangents, fine, hint):
    """Return by how much, as a logarithm, the step from q to p is above what is allowed, in the worse direction.

    `hint` holds, for both directions, the place of a leak that did well before, with which the search begins: if
    `fine` downhill among its neighbours, else through all leaks until one is allowed.
    """
    worst = -_FAR
    for way in range(2):
        a, b, x, y = (p, not_p, q, not_q) if way == 0 else (q, not_q, p, not_p)
        at = hint[way]
        best = _excess(a, b, x, y, leaks[at] / m, limits[at], m, epsilon, power, curves, tangents, fine)
        if fine:
            for side in (-1, 1):
                i = hint[way] + side
                while 0 <= i < len(leaks) and best > -_FAR:
                    found = _excess(a, b, x, y, leaks[i] / m, limits[i], m, epsilon, power, curves, tangents, fine)
                    if found >= best:
                        break
                    best, at, i = found, i, i + side
        else:
            for i in range(len(leaks)):
                if best <= 0:
                    break
                found = _excess(a, b, x, y, leaks[i] / m, limits[i], m, epsilon, power, curves, tangents, fine)
                if found < best:
                    best, at = found, i
        hint[way] = at
        worst = max(worst, best)
        if worst > 0 and not fine:
            break
    return worst


@jit()
def _highest(q, not_q, p, not_p, m, leaks, limits, epsilon, power, accuracy, gap, curves, tangents, hint):
    """Return nearly the largest probability below p to which a step from q may go, one minus it, and its log-odds.

    `gap` is about how far above q it is, in log-odds; the accuracy is a part of it.
    """
    start, accuracy = np.log(q / not_q), accuracy * gap
    low, at_low = start, -_FAR
    high, at_high = np.log(p / not_p) if not_p > 0 else 800.0, _FAR
    stride, middle = 0.01 * gap, start + gap
    while high - low > accuracy:  # from the guess on in growing strides, until it is between two of them
        if not low < middle < high:
            middle = (low + high) / 2
        a, b = 1 / (1 + np.exp(-middle)), 1 / (1 + np.exp(middle))
        found = _over(q, not_q, a, b, m, leaks, limits, epsilon, power, curves, tangents, True, hint)
        if found <= 0:
            low, at_low, middle = middle, found, middle + stride
        else:
            high, at_high, middle = middle, found, middle - stride
        stride *= 4
        if at_low > -_FAR and at_high < _FAR:
            break
    while high - low > accuracy:  # nearly a line: both sides of its zero, and the middle where that did not help
        width = high - low
        zero, half = low + width * at_low / (at_low - at_high), (low + high) / 2
        for middle in (zero - 1e-3 * width - accuracy / 3, zero + 1e-3 * width + accuracy / 3, half):
            if low < middle < high and high - low > accuracy:
                a, b = 1 / (1 + np.exp(-middle)), 1 / (1 + np.exp(middle))
                found = _over(q, not_q, a, b, m, leaks, limits, epsilon, power, curves, tangents, True, hint)
                if found <= 0:
                    low, at_low = middle, found
                else:
                    high, at_high = middle, found
    return 1 / (1 + np.exp(-low)), 1 / (1 + np.exp(low)), low


@jit()
def grow(steps, exponents, leaks, limits, epsilon, power, until, accuracy, curves, tangents, rows, not_rows):
    """Fill p(0), p(1), ... and 1 - p until p >= until; return the number of rows, or 0 where there is no room.

    p(h) is the largest probability that every step w allows from p(max(0, h - w)), so it never decreases.
    """
    absent = np.exp(-power * epsilon) / (2 * np.sqrt(power * (power + 1)))
    most = -1.0  # of the leak of a first report
    for i in range(len(leaks)):
        if absent <= limits[i]:
            most = max(most, leaks[i])
    if most < 0:
        return 0
    rows[0], not_rows[0], binding = 0.0, 1.0, len(steps) - 1
    gaps, hints = np.ones(len(steps)), np.zeros((len(steps), 2), np.int64)
    for h in range(1, len(rows)):
        p, not_p, first = 1.0, 0.0, binding
        for k in range(len(steps)):
            # The step that decided the last row comes first: it nearly always decides this one.
            at = first if k == 0 else k - 1 if k <= first else k
            m, before = exponents[at], max(0, h - steps[at])
            q, not_q = rows[before], not_rows[before]
            if q <= 0:
                if p > most / m:
                    p, not_p, binding = most / m, 1 - most / m, at
            elif _over(q, not_q, p, not_p, m, leaks, limits, epsilon, power, curves, tangents, False, hints[at]) > 0:
                binding = at
                args = (q, not_q, p, not_p, m, leaks, limits, epsilon, power, accuracy, gaps[at], curves, tangents)
                p, not_p, odds = _highest(*args, hints[at])
                gaps[at] = max(odds - np.log(q / not_q), 1e-12)
        # The last digits of a search could make a row fall.
        rows[h], not_rows[h] = max(p, rows[h - 1]), min(not_p, not_rows[h - 1])
        if not_p <= 1 - until:
            return h + 1
    return 0


@jit()
def broken(p, not_p, steps, exponents, leaks, limits, epsilon, power, curves, few, many):
    """Return the first row and step that are not allowed, or (0, 0); the last row and all after it stand for one.

    `few` and `many` are the left ends of cells of F, as tan^2(F/2), and their lengths.
    """
    last, hints = len(p) - 1, np.zeros((len(steps), 2), np.int64)
    for h in range(1, last + steps.max()):
        at = min(h, last)
        for k in range(len(steps)):
            before = max(0, h - steps[k])
            if before >= last:
                continue
            args = (p[before], not_p[before], p[at], not_p[at], exponents[k], leaks, limits, epsilon, power, curves)
            if _over(*args, few, False, hints[k]) > 0 and _over(*args, many, False, hints[k]) > 0:
                return h, steps[k]
    return 0, 0
