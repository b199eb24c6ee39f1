"""The compiled loops behind `privacy.adaptive`."""

import numpy as np

from dpsieve.exact.jit import jit


@jit()
def advance(first, nothing, uses, left, right, groups, begins, weights, shifts, last, sure):
    """Return the curve after `uses` uses from the curve `first`; both are padded by `left` and `right` points.

    `nothing` is the curve of no use at all, from which bounds beyond the grid are taken.

    A use is a step for each group of pairs, those from groups[g] to groups[g + 1]. Step: the new value at i is the
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
def advance_in_order(first, uses, left, right, order, begins, weights, shifts, sure):
    """Return the curve after at most `uses` steps of which each uses the pair of the step before or one after it.

    Of the curves after 0..uses steps with the first pairs of `order`, each is raised by one step more with the next
    pair; the order of steps is the opposite of `order`, as the last step in time is the first one from `first` on.
    """
    inner = len(first) - left - right
    curves, total = np.empty((uses + 1, len(first))), np.empty(inner)
    curves[:] = first
    for pair in order:
        begin, end = begins[pair], begins[pair + 1]
        for k in range(uses):
            total[:] = sure[pair]
            _add(total, curves[k], left, weights[begin:end], shifts[begin:end])
            _raise(curves[k + 1, left : left + inner], total)
            _pad(curves[k + 1], first, left, right)
    return curves[uses]


@jit()
def _pad(value, first, left, right):
    """Bound values beyond the grid: left by what is above `first`, which only grows to the right; right by the end."""
    size = len(value)
    value[:left] = first[:left] + max(0.0, value[left] - first[left])
    value[size - right :] = value[size - right - 1]


@jit()
def _add(total, value, left, weights, shifts):
    size, count = len(total), len(weights)
    whole = count - count % 4
    for t in range(0, whole, 4):  # four at once, to read and write `total` less often
        w, x, y, z = weights[t], weights[t + 1], weights[t + 2], weights[t + 3]
        a = value[left - shifts[t] : left - shifts[t] + size]
        b = value[left - shifts[t + 1] : left - shifts[t + 1] + size]
        c = value[left - shifts[t + 2] : left - shifts[t + 2] + size]
        d = value[left - shifts[t + 3] : left - shifts[t + 3] + size]
        for j in range(size):
            total[j] += (w * a[j] + x * b[j]) + (y * c[j] + z * d[j])
    for t in range(whole, count):
        w = weights[t]
        a = value[left - shifts[t] : left - shifts[t] + size]
        for j in range(size):
            total[j] += w * a[j]


@jit()
def _raise(best, total):
    for j in range(len(best)):
        best[j] = total[j] if total[j] > best[j] else best[j]
