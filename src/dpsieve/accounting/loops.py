"""Numba loops of `accounting.adaptive` and `accounting.products`."""

import numpy as np

from dpsieve.compiled.jit import jit


@jit()
def advance(first, nothing, uses, left, right, groups, begins, weights, shifts, last, sure):
    """Return the curve after `uses` uses from the curve `first`; both are padded by `left` and `right` points.

    `nothing` is the curve of no use at all, which gives the bounds beyond the grid.

    A use is one step per group of pairs, those from groups[g] to groups[g + 1]. Step: the new value at i is the
    largest, over pairs, of the sum of weight * value[i - shift] over the terms of the pair, where terms with `last`
    read `first` instead, and of `sure`, the chance of an infinite loss.
    """
    inner = len(first) - left - right
    value, best, total = first.copy(), np.empty(inner), np.empty(inner)
    for step in range(uses * (len(groups) - 1)):
        group = step % (len(groups) - 1)
        best[:] = 0.0
        for pair in range(groups[group], groups[group + 1]):
            begin, end = begins[pair], begins[pair + 1]
            middle = begin
            while middle < end and not last[middle]:
                middle += 1
            total[:] = sure[pair]
            _add(total, value, left, weights[begin:middle], shifts[begin:middle])
            _add(total, first, left, weights[middle:end], shifts[middle:end])
            _raise(best, total)
        value[left : left + inner] = best
        _pad(value, nothing, left, right)
    return value


@jit()
def _pad(value, first, left, right):
    """Bound values beyond the grid: left by the excess over `first`, which grows to the right; right by the end."""
    size = len(value)
    value[:left] = first[:left] + max(0.0, value[left] - first[left])
    value[size - right :] = value[size - right - 1]


@jit()
def _add(total, value, left, weights, shifts):
    size, count = len(total), len(weights)
    unrolled = count - count % 4
    for t in range(0, unrolled, 4):  # unrolled by four, to read and write `total` less often
        w, x, y, z = weights[t], weights[t + 1], weights[t + 2], weights[t + 3]
        a = value[left - shifts[t] : left - shifts[t] + size]
        b = value[left - shifts[t + 1] : left - shifts[t + 1] + size]
        c = value[left - shifts[t + 2] : left - shifts[t + 2] + size]
        d = value[left - shifts[t + 3] : left - shifts[t + 3] + size]
        for j in range(size):
            total[j] += (w * a[j] + x * b[j]) + (y * c[j] + z * d[j])
    for t in range(unrolled, count):
        w = weights[t]
        a = value[left - shifts[t] : left - shifts[t] + size]
        for j in range(size):
            total[j] += w * a[j]


@jit()
def _raise(best, total):
    for j in range(len(best)):
        best[j] = total[j] if total[j] > best[j] else best[j]


# Shares of the outcome of larger loss that are declared a leak.
PARTS = np.array([0.0, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0])
_FULL_TURN = 2 * np.pi


@jit()
def log_product_bound(ours, silent, theirs, their_silent, shift, uses, epsilon, power, tangents, rigorous):
    """Return the logarithm of B of one pair, as in `accounting.products`; the first two may add up to less than one.

    `tangents` are tan^2(F/2) at the middles of cells of F, or if `rigorous` at their left ends: then the cell from each
    to the next one is bounded, and rounding is accounted for.
    """
    c2 = power * (power + 1)
    loss = np.log(ours / theirs) if ours > 0 else 0.0
    other = np.log(silent / their_silent) if silent > 0 else 0.0
    report = np.log(ours) + power * loss + shift * shift * c2 / 2 if ours > 0 else -1e9
    silence = np.log(silent) + power * other if silent > 0 else -1e9
    top = np.logaddexp(report, silence)  # so that no power of r + s overflows
    r, s = np.exp(report - top), np.exp(silence - top)
    turn, total, half = abs(loss - other + shift * shift * (power + 0.5)), 0.0, uses / 2
    least = 1e-12 if rigorous else 0.0
    if shift == 0.0:
        shrink = np.tanh(np.sqrt(c2) * turn / 2) ** 2
        for k in range(len(tangents)):
            x = shrink * tangents[k]
            total += np.exp(half * np.log(max(r * r + s * s + 2 * r * s * (1 - x) / (1 + x), 1e-300) + least))
    elif not rigorous:
        for k in range(len(tangents)):
            t2 = c2 * tangents[k]
            g = np.exp(-shift * shift * t2 / 2)
            square = r * r * g * g + s * s + 2 * r * s * g * np.cos(turn * np.sqrt(t2))
            total += np.exp(half * np.log(max(square, 1e-300)))
    else:
        g, wave, turns = 1.0, 1.0, 0.0  # at the left end of the cell
        for k in range(1, len(tangents) + 1):
            # The last cell reaches to infinity, where the Gaussian factor vanishes.
            t = np.sqrt(c2 * tangents[k]) if k < len(tangents) else np.inf
            next_g = np.exp(-((shift * t) ** 2) / 2)
            next_turns = np.floor(turn * t / _FULL_TURN) if turn > 0 else 0.0
            next_wave = np.cos(turn * t) if k < len(tangents) else 1.0
            cosine = 1.0 if next_turns > turns else max(wave, next_wave)
            square = r * r * g * g + s * s + 2 * r * s * cosine * (g if cosine > 0 else next_g)
            total += np.exp(half * np.log(max(square, 0.0) + least))
            g, wave, turns = next_g, next_wave, next_turns
    bound = uses * top + np.log(max(total / len(tangents), 1e-300)) - power * epsilon - np.log(4 * c2) / 2
    if rigorous:
        # Each logarithm is off by some units in its last place, and they are multiplied by uses * (power + 1).
        size = abs(top) + 10 + abs(loss) + abs(other)
        size -= 2 * (np.log(ours) if ours > 0 else 0.0) + 2 * (np.log(silent) if silent > 0 else 0.0)
        bound += 2.0**-50 * (uses * (power + 1) * size + len(tangents))
    return bound


@jit()
def product_delta(ours, silent, theirs, their_silent, shift, uses, epsilon, power, limit, tangents, rigorous):
    """Return the smallest bound on delta of one kind of pair in one direction over leaks of at most `limit`."""
    report = ours * their_silent >= silent * theirs  # whether a report has the larger loss
    best = np.inf
    for part in PARTS:
        leak = uses * part * (ours if report else silent)
        if leak >= limit or leak >= best:
            break
        a, b = (ours * (1 - part), silent) if report else (ours, silent * (1 - part))
        if (a > 0 and theirs <= 0) or (b > 0 and their_silent <= 0):
            continue
        bound = log_product_bound(a, b, theirs, their_silent, shift, uses, epsilon, power, tangents, rigorous)
        best = min(best, leak + (np.exp(bound) if bound < 300 else np.inf))
    return best


@jit(nogil=True)
def product_deltas_of(ours, theirs, shifts, uses, epsilon, power, still, moving, deltas):
    """Fill `deltas` with the rigorous bound of each kind; the cells are finer where means differ."""
    for k in range(len(shifts)):
        a, b, x, y = ours[k, 0], ours[k, 1], theirs[k, 0], theirs[k, 1]
        shift, cells = abs(shifts[k]), still if shifts[k] == 0.0 else moving
        deltas[k] = product_delta(a, b, x, y, shift, uses, epsilon, power, np.inf, cells, True)
