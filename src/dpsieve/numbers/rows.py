"""Rows of numbers within bounds, dense or sparse: norms, searches in columns, and exact sums of clipped rows.

A clipped row is a vector of whole numbers with an l2 norm of at most PARTS * radius, checked in whole numbers. First
every coordinate becomes z = round((x - centre) weight), limited to +-LIMIT. Then the row counts m times, for the
largest m from 0 to PARTS with m^2 |z|^2 <= (PARTS radius)^2: m/PARTS is the factor by which it is clipped. All this
depends on the row and on public numbers alone. So when a row is replaced, the sums move by at most 2 PARTS radius in l2
norm, and by sqrt(2) PARTS radius where no coordinate is negative.

Sums are 64-bit whole numbers, which no order of rows changes. A sparse row costs as much as it has entries: all
coordinates that are not stored have one value each, the same in every row.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpsieve.errors import InvalidValue
from dpsieve.numbers import loops
from dpsieve.numbers.dyadic_grid import DyadicGrid
from dpsieve.numbers.search import search_columns
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints

PARTS = 2**8
LARGEST_RADIUS = 2**20
LIMIT = 2**21  # with up to 2^20 coordinates squares stay below 2^62
_BLOCK = 1 << 26  # entries of a dense block of columns


class BoundedRows:
    """Rows whose coordinates are limited to [low, high], which holds 0 for sparse rows."""

    def __init__(self, values: Any, low: float, high: float) -> None:
        self.sparse = hasattr(values, "indptr")
        self.shape: tuple[int, int] = values.shape
        self.low, self.high = low, high
        stored = values.data if self.sparse else values
        if stored.dtype not in (np.float32, np.float64):
            with np.errstate(over="ignore"):
                stored = stored.astype(np.float64)
        if not np.isfinite(stored).all():
            raise InvalidValue("x holds NaN or infinite values. Fill them in, or leave those rows out.")
        self._parts = (stored, values.indices, values.indptr) if self.sparse else (np.ascontiguousarray(stored),)
        self.values = values

    def norms(self, centre: Floats, weight: Floats) -> Floats:
        """Return the l2 norm of each row, moved and stretched."""
        found = np.empty(self.shape[0])
        loop = loops.sparse_norms if self.sparse else loops.dense_norms
        loop(*self._parts, self.low, self.high, centre, weight, found)
        return found

    def sums(self, centre: Floats, weight: Floats, radius: int) -> Ints:
        """Return the sums of all clipped rows; see the head of this module."""
        total = np.zeros(self.shape[1], np.int64)
        loop = loops.sparse_sums if self.sparse else loops.dense_sums
        loop(*self._parts, self.low, self.high, centre, weight, float(LIMIT), radius, PARTS, total)
        return total

    def distances(self) -> Floats:
        """Return the l2 distance between the rows of each pair: the first two, the next two, and so on."""
        found = np.empty(self.shape[0] // 2)
        if self.sparse:
            loops.sparse_distances(*self._parts, self.low, self.high, self.shape[1], found)
        else:
            loops.dense_distances(*self._parts, self.low, self.high, found)
        return found

    def quantiles(
        self, q: float, grid: DyadicGrid, sigma: float, source: Source, *, centre: Floats | None = None
    ) -> Floats:
        """Return the private q-quantile of each column, or of |x - centre|; see `search_columns`."""
        found = [
            search_columns(block, q, grid, sigma, neighbours="replace", source=source,
                           centre=None if centre is None else centre[start : start + block.shape[1]])
            for start, block in self.blocks()
        ]  # fmt: skip
        return np.concatenate(found)

    def pair_quantiles(self, q: float, pairs: int, grid: DyadicGrid, sigma: float, source: Source) -> Floats:
        """Return the private q-quantile, in each column, of the root mean square difference of `pairs` pairs of rows.

        Groups of 2 pairs rows follow each other, and a pair is two rows that follow each other (Algorithm 18).
        """
        found = []
        for apart in self._differences(pairs):
            values = np.abs(apart[:, 0]) if pairs == 1 else np.sqrt((apart**2).mean(axis=1))
            found.append(search_columns(values, q, grid, sigma, neighbours="replace", source=source))
        return np.concatenate(found)

    def pair_squares(self) -> Iterator[Floats]:
        """Yield, for blocks of columns, half of the squared difference of each pair of rows that follow each other."""
        return (apart[:, 0] ** 2 / 2 for apart in self._differences(1))

    def _differences(self, pairs: int) -> Iterator[Floats]:
        count = self.shape[0] // (2 * pairs)
        for _, block in self.blocks():
            used = np.clip(block[: 2 * pairs * count], self.low, self.high).astype(np.float64)
            yield (used[0::2] - used[1::2]).reshape(count, pairs, -1)

    def ones(self) -> Ints:
        """Return how many entries of each column are nearer to the upper bound."""
        level, size = (self.low + self.high) / 2, self.shape[1]
        if self.sparse:
            return np.bincount(self.values.indices[self._parts[0] > level], minlength=size)
        return np.asarray(np.count_nonzero(self._parts[0] > level, axis=0))

    def rotated_medians(self, signs: Floats, grid: DyadicGrid, sigma: float, source: Source) -> Floats:
        """Return a centre: private medians of the rows after a rotation, rotated back.

        The rotation flips signs, adds zeros up to a power of two, and multiplies by a Hadamard matrix. A block of
        columns of the product needs a small Hadamard matrix alone, so that all blocks take as long as one product.
        """
        rows, size = self.shape
        padded = 1 << (size - 1).bit_length()
        width = min(padded, 1024, 1 << max(0, (_BLOCK // max(1, rows)).bit_length() - 1))
        loop = loops.sparse_rotation if self.sparse else loops.dense_rotation
        block, medians = np.empty((rows, width), np.float32), np.empty(padded)
        for at in range(padded // width):
            loop(*self._parts, self.low, self.high, signs, at, padded**-0.5, block)
            found = search_columns(block, 0.5, grid, sigma, neighbours="replace", source=source)
            medians[at * width : (at + 1) * width] = found
        loops.hadamard(medians)
        return np.asarray(medians[:size] * signs * padded**-0.5)

    def blocks(self) -> Iterator[tuple[int, Any]]:
        """Yield blocks of columns as dense arrays, each with the number of its first column."""
        if not self.sparse:
            yield 0, self._parts[0]
            return
        from scipy.sparse import csr_matrix

        by_column, width = csr_matrix(self._parts, self.shape).tocsc(), max(1, _BLOCK // max(1, self.shape[0]))
        for start in range(0, self.shape[1], width):
            yield start, np.ascontiguousarray(by_column[:, start : start + width].toarray())
