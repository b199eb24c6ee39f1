"""Noisy binary search in every column of a matrix: columns are copied to the cache, a few at a time."""

import numpy as np

from dpsieve.exact.jit import jit

_TOGETHER = 16


@jit(nogil=True)
def search_each(matrix, centre, folded, first, step, shift, size, share, noise, out):
    """Set out[j] to the point that the search in column j ends at.

    Points are (first + k) step where shift is negative, else the floats with the bit pattern (first + k) 2^shift. With
    `folded`, the values are |x - centre[j]|. `share` is (A, B) for the quantile A/B.
    """
    rows, columns = matrix.shape
    held = np.empty((_TOGETHER, rows))
    pattern = np.zeros(1, np.int64)
    as_float = pattern.view(np.float64)
    for start in range(0, columns, _TOGETHER):
        width = min(_TOGETHER, columns - start)
        for i in range(rows):
            for j in range(width):
                value = np.float64(matrix[i, start + j])
                held[j, i] = abs(value - centre[start + j]) if folded else value
        for j in range(width):
            # The first `left` values are those that may still differ from the point searched; `under` are below all.
            low, high, t, left, under = 0, size - 1, 0, rows, 0
            while low < high:
                middle = (low + high) // 2
                pattern[0] = (first + middle) << max(shift, 0)
                point = (first + middle) * step if shift < 0 else as_float[0]
                count = _count(held[j, :left], point)
                below = share[1] * (under + count) - share[0] * rows + noise[start + j, t] >= 0
                if below:
                    high, kept = middle, count
                else:
                    low, kept = middle + 1, left - count
                if 2 * kept <= left:
                    _keep(held[j, :left], point, below)
                    under += 0 if below else count
                    left = kept
                t += 1
            out[start + j] = low


@jit(nogil=True)
def _keep(values, point, below):
    """Move the values at most at the point, or all others, to the front."""
    place = 0
    for i in range(len(values)):
        value = values[i]
        values[place] = value
        place += (value <= point) == below


@jit(nogil=True)
def _count(values, point):
    """Return how many values are at most the point; NaN counts as above all."""
    count = 0
    for value in values:
        count += value <= point
    return count
