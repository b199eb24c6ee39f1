"""Loops over rows of a matrix, dense or in CSR form: norms, clipped whole sums, distances of pairs, rotations.

In all of them a row is limited to [low, high], moved by -centre and stretched by `weight`. What is computed for a row
depends on that row and public numbers alone.

Noisy binary search in every column of a matrix: columns are copied to the cache, a few at a time.
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
    """Return a coordinate as a whole number of at most `limit`."""
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
    held = np.empty(size, np.int64)
    for i in range(rows.shape[0]):
        squares = np.int64(0)
        for j in range(size):
            held[j] = whole(rows[i, j], low, high, centre[j], weight[j], limit)
            squares += held[j] * held[j]
        share = share_of(squares, radius, parts)
        for j in range(size):
            total[j] += share * held[j]


@jit(nogil=True)
def sparse_sums(data, columns, starts, low, high, centre, weight, limit, radius, parts, total):
    """Do what `dense_sums` does, with one look at each entry that is stored."""
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
    held = np.full(size, zero)
    for i in range(len(out)):
        first, middle, last = starts[2 * i], starts[2 * i + 1], starts[2 * i + 2]
        for at in range(first, middle):
            held[columns[at]] = min(max(np.float64(data[at]), low), high)
        total = 0.0
        for at in range(middle, last):
            apart = min(max(np.float64(data[at]), low), high) - held[columns[at]]
            held[columns[at]] = zero
            total += apart * apart
        for at in range(first, middle):
            apart = held[columns[at]] - zero
            held[columns[at]] = zero
            total += apart * apart
        out[i] = math.sqrt(total)


@jit(nogil=True)
def hadamard(values):
    """Multiply a vector, of a power of two of entries, by the matrix of signs (-1)^(bits that i and j share)."""
    half = 1
    while half < len(values):
        for start in range(0, len(values), 2 * half):
            for at in range(start, start + half):
                left, right = values[at], values[at + half]
                values[at], values[at + half] = left + right, left - right
        half *= 2


@jit(nogil=True)
def _odd(bits):
    odd = 0
    while bits:
        bits &= bits - 1
        odd ^= 1
    return odd


@jit(nogil=True)
def _fold_signs(signs, block, width):
    folded = signs.copy()
    for j in range(len(signs)):
        if _odd((j // width) & block):
            folded[j] = -signs[j]
    return folded


@jit(nogil=True)
def dense_rotation(rows, low, high, signs, block, scale, out):
    """Set out to a block of columns of the rotated rows; see `rotated_columns`."""
    width = out.shape[1]
    folded, held = _fold_signs(signs, block, width), np.empty(width)
    for i in range(rows.shape[0]):
        held[:] = 0.0
        for j in range(rows.shape[1]):
            held[j % width] += folded[j] * min(max(np.float64(rows[i, j]), low), high)
        hadamard(held)
        for j in range(width):
            out[i, j] = held[j] * scale


@jit(nogil=True)
def sparse_rotation(data, columns, starts, low, high, signs, block, scale, out):
    """Set out to a block of columns of the rotated rows; bounds include 0."""
    width = out.shape[1]
    folded, held = _fold_signs(signs, block, width), np.empty(width)
    for i in range(len(starts) - 1):
        held[:] = 0.0
        for at in range(starts[i], starts[i + 1]):
            j = columns[at]
            held[j % width] += folded[j] * min(max(np.float64(data[at]), low), high)
        hadamard(held)
        for j in range(width):
            out[i, j] = held[j] * scale


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
