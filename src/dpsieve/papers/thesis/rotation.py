"""Medians of randomly rotated rows (instance-optimal mean estimation, Huang, Liang and Yi 2021), and the rotation.

The rotation flips signs, pads with zeros to a power of two, and multiplies by a Hadamard matrix. A block of columns of
the product needs a small Hadamard matrix alone, so all blocks together take as long as one product.
"""

import numpy as np

from dpsieve.compiled.jit import jit
from dpsieve.numbers.grid_quantiles import DyadicGrid
from dpsieve.numbers.rows import BLOCK, BoundedRows, search_columns
from dpsieve.randomness.source import Source
from dpsieve.types import Floats


def rotated_medians(rows: BoundedRows, signs: Floats, grid: DyadicGrid, sigma: float, source: Source) -> Floats:
    """Return a centre: private medians of the rows after a rotation, rotated back.

    >>> from dpsieve.randomness.source import resolve
    >>> rows, grid = BoundedRows(np.full((2_000, 2), 3.0), -8.0, 8.0), DyadicGrid(-16.0, 16.0, steps=10)
    >>> rotated_medians(rows, np.ones(2), grid, 1.0, resolve(None)).round(1).tolist()
    [3.0, 3.0]
    """
    count, size = rows.shape
    padded = 1 << (size - 1).bit_length()
    width = min(padded, 1024, 1 << max(0, (BLOCK // max(1, count)).bit_length() - 1))
    loop = sparse_rotation if rows.sparse else dense_rotation
    block, medians = np.empty((count, width), np.float32), np.empty(padded)
    for at in range(padded // width):
        loop(*rows.parts, rows.low, rows.high, signs, at, padded**-0.5, block)
        part = search_columns(block, 0.5, grid, sigma, neighbours="replace", source=source)
        medians[at * width : (at + 1) * width] = part
    hadamard(medians)
    return np.asarray(medians[:size] * signs * padded**-0.5)


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
    """Set out to a block of columns of the rotated rows."""
    width = out.shape[1]
    folded, part = _fold_signs(signs, block, width), np.empty(width)
    for i in range(rows.shape[0]):
        part[:] = 0.0
        for j in range(rows.shape[1]):
            part[j % width] += folded[j] * min(max(np.float64(rows[i, j]), low), high)
        hadamard(part)
        for j in range(width):
            out[i, j] = part[j] * scale


@jit(nogil=True)
def sparse_rotation(data, columns, starts, low, high, signs, block, scale, out):
    """Set out to a block of columns of the rotated rows; bounds include 0."""
    width = out.shape[1]
    folded, part = _fold_signs(signs, block, width), np.empty(width)
    for i in range(len(starts) - 1):
        part[:] = 0.0
        for at in range(starts[i], starts[i + 1]):
            j = columns[at]
            part[j % width] += folded[j] * min(max(np.float64(data[at]), low), high)
        hadamard(part)
        for j in range(width):
            out[i, j] = part[j] * scale
