"""Compiled loops of discovery: over the keys of units, and over the rows of tables of reporting probabilities.

Unit u holds the keys held[starts[u]:starts[u + 1]], none of them twice; `sums` and `counts` have an entry per key.

Rows of a table, by the bound of `accounting.products`. The step from q = p(h - w) to p = p(h), of a weight with
exponent m, is allowed if in both directions there is a leak l of the list such that B(l) is at most the limit that goes
with it: l / m comes off the outcome of larger loss, and

    ln B = m ln M + ln E (1 - y u)^(m/2) - power epsilon - ln(2c),    y = 4 r s,

where r + s = 1 are the parts of reports and silence in M = M(power), u = sin^2(angle / 2), and the angle has the
wrapped Cauchy distribution of a ratio e^(-c turn), turn the distance of both losses. The mean is at most that of
e^(-Y u), Y = m y / 2, which is convex in Y and in the ratio: both by their series with positive terms,
e^(-Y/2) (I_0(Y/2) + 2 sum of ratio^k I_k(Y/2)). So interpolation between points of a grid is an upper bound, and most
steps need no more. For others the mean over the left ends of cells of F is one, as in `accounting.products`.
"""

import math

import numpy as np

from dpsieve.compiled.jit import jit

_FAR = 1e3  # a logarithm larger than any that is compared
_ROUNDING = 2.0**-49
SCALE, FIRST = 10.0, 16.0  # the grid of Y: expm1(i / SCALE) / FIRST


@jit()
def holders(starts, held, keys):
    """Return the units that hold each key: where those of each key begin, and their numbers."""
    begins = np.zeros(keys + 1, np.int64)
    for key in held:
        begins[key + 1] += 1
    for key in range(keys):
        begins[key + 1] += begins[key]
    place, units = begins[:-1].copy(), np.empty(len(held), np.int32)
    for unit in range(len(starts) - 1):
        for at in range(starts[unit], starts[unit + 1]):
            units[place[held[at]]] = unit
            place[held[at]] += 1
    return begins, units


@jit()
def hit(key, begins, units, starts, held, gone, counts):
    """Remove the units that hold `key`, unless already gone; lower the counts of all their keys."""
    for at in range(begins[key], begins[key + 1]):
        unit = units[at]
        if not gone[unit]:
            gone[unit] = True
            for place in range(starts[unit], starts[unit + 1]):
                counts[held[place]] -= 1


@jit(nogil=True)
def add_weights(starts, held, importance, bits, heaviest, squares, sums):
    """Add the weights of all units to the sums of their keys.

    A unit gives a key of importance a the weight a 2^bits / sqrt(sum of a^2), rounded down and at most `heaviest`; the
    excess of a capped key is divided among the others in the same way. A key is capped where
    a^2 left >= heaviest^2 rest, with `left` of 4^bits and `rest` the sum of a^2 of keys that are not capped yet, so all
    that are capped at once take at most `left`. Finally weights are rounded up, in the unit's own order, as long as the
    squares of all its weights sum to at most 4^bits. So they always do. `squares` is a scratch buffer for one unit.
    """
    cap = np.int64(heaviest) * heaviest
    for unit in range(len(starts) - 1):
        begin, end = starts[unit], starts[unit + 1]
        left, rest = np.int64(1) << (2 * bits), np.int64(0)
        for i in range(begin, end):
            a = importance[held[i]]
            squares[i - begin] = a * a
            rest += a * a
        more = rest > 0
        while more:
            capped, taken = 0, 0
            for k in range(end - begin):
                if squares[k] > 0 and squares[k] * left >= cap * rest:
                    capped += 1
                    taken += squares[k]
                    squares[k] = -1
            left -= capped * cap
            rest -= taken
            more = capped > 0 and rest > 0
        spare = np.int64(1) << (2 * bits)
        for k in range(end - begin):
            weight = heaviest
            if squares[k] >= 0:
                # The quotient is at most 2^24, where the root of a float, rounded down, is that of the integer.
                weight = np.int64(math.sqrt(squares[k] * left // rest)) if squares[k] > 0 else 0
            squares[k] = weight
            spare -= weight * weight
        for k in range(end - begin):
            weight = squares[k]
            if 0 < weight < heaviest and 2 * weight + 1 <= spare:
                spare -= 2 * weight + 1
                weight += 1
            sums[held[begin + k]] += weight


@jit()
def fill_first(starts, held, cutoff, counts):
    """For each unit, add one to the first of its keys that is below the cutoff, if any."""
    for u in range(len(starts) - 1):
        for i in range(starts[u], starts[u + 1]):
            if counts[held[i]] < cutoff:
                counts[held[i]] += 1
                break


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


@jit(allocates=False)
def _interpolated(curves, total, ratio):
    """Return an upper bound on the mean of e^(-total u) for angles of this ratio."""
    i, last = int(np.log1p(total * FIRST) * SCALE), len(curves) - 1
    if i >= last:
        return _between(curves[last], ratio)
    low, high = np.expm1(i / SCALE) / FIRST, np.expm1((i + 1) / SCALE) / FIRST
    part = min(1.0, max(0.0, (total - low) / (high - low)))
    return (1 - part) * _between(curves[i], ratio) + part * _between(curves[i + 1], ratio)


@jit(allocates=False)
def _between(row, ratio):
    x = ratio * (len(row) - 1)
    j = min(int(x), len(row) - 2)
    return row[j] + (x - j) * (row[j + 1] - row[j])


@jit(allocates=False)
def _mean(y, turn, m, c, tangents):
    """Return the mean of (1 - y u)^(m/2) over the given values of tan^2(F/2), with their weights."""
    shrink, total, half = np.tanh(c * turn / 2) ** 2, 0.0, m / 2
    for k in range(tangents.shape[1]):
        x = shrink * tangents[0, k]
        total += tangents[1, k] * np.exp(half * np.log1p(-y * x / (1 + x)))
    return total


@jit(allocates=False)
def _excess(ours, silent, theirs, their_silent, leak, limit, m, epsilon, power, curves, tangents, fine):
    """Return by how much, as a logarithm, B is above its limit in one direction; rounded up.

    Not `fine`: only its sign matters, so a quick bound is enough where it is at most 0.
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


@jit(allocates=False)
def _over(q, not_q, p, not_p, m, leaks, limits, epsilon, power, curves, tangents, fine, hints, step):
    """Return by how much, as a logarithm, the step from q to p is above what is allowed, in the worse direction.

    `hints` has, per step and direction, the place of a leak that did well before, where the search starts: if `fine`
    downhill among its neighbours, else through all leaks until one is allowed.
    """
    worst = -_FAR
    for direction in range(2):
        a, b, x, y = (p, not_p, q, not_q) if direction == 0 else (q, not_q, p, not_p)
        hint = at = hints[step, direction]
        best = _excess(a, b, x, y, leaks[at] / m, limits[at], m, epsilon, power, curves, tangents, fine)
        if fine:
            for side in (-1, 1):
                i = hint + side
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
        hints[step, direction] = at
        worst = max(worst, best)
        if worst > 0 and not fine:
            break
    return worst


@jit(allocates=False)
def _highest(q, not_q, p, not_p, m, leaks, limits, epsilon, power, accuracy, gap, curves, tangents, hints, step):
    """Return nearly the largest probability below p to which a step from q may go, one minus it, and its log-odds.

    `gap` is about how far above q it is, in log-odds; the accuracy is a part of it.
    """
    start, accuracy = np.log(q / not_q), accuracy * gap
    low, at_low = start, -_FAR
    high, at_high = np.log(p / not_p) if not_p > 0 else 800.0, _FAR
    stride, middle = 0.01 * gap, start + gap
    while high - low > accuracy:  # in growing strides from the guess, until two of them bracket it
        if not low < middle < high:
            middle = (low + high) / 2
        a, b = 1 / (1 + np.exp(-middle)), 1 / (1 + np.exp(middle))
        found = _over(q, not_q, a, b, m, leaks, limits, epsilon, power, curves, tangents, True, hints, step)
        if found <= 0:
            low, at_low, middle = middle, found, middle + stride
        else:
            high, at_high, middle = middle, found, middle - stride
        stride *= 4
        if at_low > -_FAR and at_high < _FAR:
            break
    while high - low > accuracy:  # nearly linear: try both sides of its zero, then the middle
        width = high - low
        zero, half = low + width * at_low / (at_low - at_high), (low + high) / 2
        for middle in (zero - 1e-3 * width - accuracy / 3, zero + 1e-3 * width + accuracy / 3, half):
            if low < middle < high and high - low > accuracy:
                a, b = 1 / (1 + np.exp(-middle)), 1 / (1 + np.exp(middle))
                found = _over(q, not_q, a, b, m, leaks, limits, epsilon, power, curves, tangents, True, hints, step)
                if found <= 0:
                    low, at_low = middle, found
                else:
                    high, at_high = middle, found
    return 1 / (1 + np.exp(-low)), 1 / (1 + np.exp(low)), low


@jit()
def grow_rows(steps, exponents, leaks, limits, epsilon, power, until, accuracy, curves, tangents, rows, not_rows):
    """Fill p(0), p(1), ... and 1 - p until p >= until; return the number of rows, or 0 if they do not fit.

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
            # Start with the step that decided the last row: it nearly always decides this one.
            at = first if k == 0 else k - 1 if k <= first else k
            m, before = exponents[at], max(0, h - steps[at])
            q, not_q = rows[before], not_rows[before]
            if q <= 0:
                if p > most / m:
                    p, not_p, binding = most / m, 1 - most / m, at
            elif _over(q, not_q, p, not_p, m, leaks, limits, epsilon, power, curves, tangents, False, hints, at) > 0:
                binding = at
                pair = q, not_q, p, not_p, m
                p, not_p, odds = _highest(
                    *pair, leaks, limits, epsilon, power, accuracy, gaps[at], curves, tangents, hints, at
                )
                gaps[at] = max(odds - np.log(q / not_q), 1e-12)
        # Rounding errors of a search could make a row decrease.
        rows[h], not_rows[h] = max(p, rows[h - 1]), min(not_p, not_rows[h - 1])
        if not_p <= 1 - until:
            return h + 1
    return 0


@jit()
def find_broken(p, not_p, steps, exponents, leaks, limits, epsilon, power, curves, few, many):
    """Return the first row and step that are not allowed, or (0, 0); from the last row on, the probability is 1.

    `few` and `many` are the left ends of cells of F, as tan^2(F/2), and their lengths.
    """
    last, hints = len(p) - 1, np.zeros((len(steps), 2), np.int64)
    for h in range(1, last + steps.max()):
        at = min(h, last)
        for k in range(len(steps)):
            before = max(0, h - steps[k])
            if before >= last:
                continue
            pair = p[before], not_p[before], p[at], not_p[at], exponents[k]
            is_over = _over(*pair, leaks, limits, epsilon, power, curves, few, False, hints, k) > 0
            if is_over and _over(*pair, leaks, limits, epsilon, power, curves, many, False, hints, k) > 0:
                return h, steps[k]
    return 0, 0
