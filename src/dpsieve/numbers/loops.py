"""Loops over rows of a matrix, dense or in CSR form: norms, clipped whole sums, distances of pairs, column searches.

A row is clipped to [low, high], shifted by -centre and scaled by `weight`. The result for a row depends on that row and
public numbers alone. Searches copy a few columns at a time to the cache.
"""

import math

import numpy as np

from dpsieve.compiled.jit import jit


@jit(nogil=True)
def dense_norms(rows, low, high, centre, weight, out):
    """Set out[i] to the l2 norm of row i."""
    for i in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            value = (min(max(np.float64(rows[i, j]), low), high) - centre[j]) * weight[j]
            total += value * value
        out[i] = math.sqrt(total)


@jit(nogil=True)
def sparse_norms(data, columns, starts, low, high, centre, weight, out):
    """Set out[i] to the l2 norm of row i."""
    empty, squares = np.empty(len(centre)), 0.0
    for j in range(len(centre)):
        value = (min(max(0.0, low), high) - centre[j]) * weight[j]
        empty[j] = value * value
        squares += value * value
    for i in range(len(starts) - 1):
        total = squares
        for at in range(starts[i], starts[i + 1]):
            j = columns[at]
            value = (min(max(np.float64(data[at]), low), high) - centre[j]) * weight[j]
            total += value * value - empty[j]
        out[i] = math.sqrt(max(total, 0.0))


@jit(nogil=True)
def whole(value, low, high, centre, weight, limit):
    """Return a coordinate as a whole number of size at most `limit`."""
    moved = np.rint((min(max(np.float64(value), low), high) - centre) * weight)
    return np.int64(min(max(moved, -limit), limit))


@jit(nogil=True)
def share_of(squares, radius, parts):
    """Return the largest m up to `parts` with m^2 squares <= (parts radius)^2, all of them whole numbers.

    With squares up to 2^62, radius up to 2^20 and 2^8 parts nothing here exceeds 63 bits.
    """
    if squares <= radius * radius:
        return np.int64(parts)
    bound = parts * radius
    share = min(np.int64(bound / math.sqrt(squares)) + 1, np.int64(parts))
    while share > 0 and share * share > (bound * bound) // squares:
        share -= 1
    return share


@jit(nogil=True)
def dense_sums(rows, low, high, centre, weight, limit, radius, parts, total):
    """Add to `total` every row as whole numbers, times its share of `parts`; see `share_of`."""
    size = rows.shape[1]
    whole_row = np.empty(size, np.int64)
    for i in range(rows.shape[0]):
        squares = np.int64(0)
        for j in range(size):
            whole_row[j] = whole(rows[i, j], low, high, centre[j], weight[j], limit)
            squares += whole_row[j] * whole_row[j]
        share = share_of(squares, radius, parts)
        for j in range(size):
            total[j] += share * whole_row[j]


@jit(nogil=True)
def sparse_sums(data, columns, starts, low, high, centre, weight, limit, radius, parts, total):
    """Add what `dense_sums` adds, in time proportional to the stored entries."""
    size = len(centre)
    empty, squares_of_empty, shares = np.empty(size, np.int64), np.int64(0), np.int64(0)
    for j in range(size):
        empty[j] = whole(0.0, low, high, centre[j], weight[j], limit)
        squares_of_empty += empty[j] * empty[j]
    for i in range(len(starts) - 1):
        squares = squares_of_empty
        for at in range(starts[i], starts[i + 1]):
            j = columns[at]
            value = whole(data[at], low, high, centre[j], weight[j], limit)
            squares += value * value - empty[j] * empty[j]
        share = share_of(squares, radius, parts)
        shares += share
        for at in range(starts[i], starts[i + 1]):
            j = columns[at]
            total[j] += share * (whole(data[at], low, high, centre[j], weight[j], limit) - empty[j])
    for j in range(size):
        total[j] += shares * empty[j]


@jit(nogil=True)
def dense_distances(rows, low, high, out):
    """Set out[i] to the l2 distance of rows 2i and 2i + 1."""
    for i in range(len(out)):
        total = 0.0
        for j in range(rows.shape[1]):
            first = min(max(np.float64(rows[2 * i, j]), low), high)
            apart = first - min(max(np.float64(rows[2 * i + 1, j]), low), high)
            total += apart * apart
        out[i] = math.sqrt(total)


@jit(nogil=True)
def sparse_distances(data, columns, starts, low, high, size, out):
    """Set out[i] to the l2 distance of rows 2i and 2i + 1."""
    zero = min(max(0.0, low), high)
    dense = np.full(size, zero)
    for i in range(len(out)):
        first, middle, last = starts[2 * i], starts[2 * i + 1], starts[2 * i + 2]
        for at in range(first, middle):
            dense[columns[at]] = min(max(np.float64(data[at]), low), high)
        total = 0.0
        for at in range(middle, last):
            apart = min(max(np.float64(data[at]), low), high) - dense[columns[at]]
            dense[columns[at]] = zero
            total += apart * apart
        for at in range(first, middle):
            apart = dense[columns[at]] - zero
            dense[columns[at]] = zero
            total += apart * apart
        out[i] = math.sqrt(total)


_TOGETHER = 16


@jit(nogil=True)
def search_each(matrix, centre, folded, first, step, shift, size, share, noise, out):
    """Set out[j] to the number of the point at which the search in column j ends.

    Points are (first + k) step where shift is negative, else the floats with the bit pattern (first + k) 2^shift. With
    `folded`, the values are |x - centre[j]|. `share` is (A, B) for the quantile A/B.
    """
    rows, columns = matrix.shape
    values = np.empty((_TOGETHER, rows))
    pattern = np.zeros(1, np.int64)
    as_float = pattern.view(np.float64)
    for start in range(0, columns, _TOGETHER):
        width = min(_TOGETHER, columns - start)
        for i in range(rows):
            for j in range(width):
                value = np.float64(matrix[i, start + j])
                values[j, i] = abs(value - centre[start + j]) if folded else value
        for j in range(width):
            # The first `left` values are still undecided; `under` values are below all of them.
            low, high, t, left, under = 0, size - 1, 0, rows, 0
            while low < high:
                middle = (low + high) // 2
                pattern[0] = (first + middle) << max(shift, 0)
                point = (first + middle) * step if shift < 0 else as_float[0]
                count = _count(values[j, :left], point)
                below = share[1] * (under + count) - share[0] * rows + noise[start + j, t] >= 0
                if below:
                    high, count_left = middle, count
                else:
                    low, count_left = middle + 1, left - count
                if 2 * count_left <= left:
                    _keep(values[j, :left], point, below)
                    under += 0 if below else count
                    left = count_left
                t += 1
            out[start + j] = low


@jit(nogil=True)
def _keep(values, point, below):
    """Move the values up to the point, or all others, to the front."""
    place = 0
    for i in range(len(values)):
        value = values[i]
        values[place] = value
        place += (value <= point) == below


@jit(nogil=True)
def _count(values, point):
    """Return the number of values up to the point; NaN counts as above all."""
    count = 0
    for value in values:
        count += value <= point
    return count
