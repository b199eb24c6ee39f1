"""The compiled loop behind `privacy.adaptive`."""

import numpy as np

from dpsieve.exact.jit import jit


@jit()
def advance(first, uses, left, right, begins, weights, shifts, last):
    """Return the curve after `uses` steps from the curve `first`; both are padded by `left` and `right` points.

    Step: the new value at i is the largest, over pairs, of the sum of weight * value[i - shift] over the terms of the
    pair, where terms with `last` read `first` instead. Beyond the grid, values are bounded: on the left by what lies
    between the curve and `first`, which only grows to the right; on the right by the last value.
    """
    size = len(first)
    inner = size - left - right
    value, best, total = first.copy(), np.empty(inner), np.empty(inner)
    for _ in range(uses):
        value[:left] = first[:left] + max(0.0, value[left] - first[left])
        value[size - right :] = value[size - right - 1]
        best[:] = 0.0
        for pair in range(len(begins) - 1):
            begin, end = begins[pair], begins[pair + 1]
            total[:] = 0.0
            for term in range(begin, end):
                start = left - shifts[term]
                if last[term]:
                    _add(total, weights[term], first[start : start + inner])
                else:
                    _add(total, weights[term], value[start : start + inner])
            _raise(best, total)
        value[left : left + inner] = best
    return value


@jit()
def _add(total, weight, values):
    for j in range(len(total)):
        total[j] += weight * values[j]


@jit()
def _raise(best, total):
    for j in range(len(best)):
        best[j] = total[j] if total[j] > best[j] else best[j]
