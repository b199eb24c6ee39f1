"""Rows of numbers within bounds, dense or sparse: norms, searches in columns, and exact sums of clipped rows.

A clipped row is a vector of whole numbers with an l2 norm of at most PARTS * radius, checked in whole numbers: z =
round((x - centre) weight), clipped to +-LIMIT, counts m times, for the largest m from 0 to PARTS with
m^2 |z|^2 <= (PARTS radius)^2. It depends on the row and on public numbers alone. What a replaced row moves:
docs/background/means.md#means-of-skewed-vectors. The cost of a sparse row is the number of its entries.
"""

import math
from collections.abc import Iterator
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.numbers import loops
from dpsieve.numbers.grid_quantiles import DyadicGrid, as_share, sensitivity
from dpsieve.numbers.search import RANK_NOISE
from dpsieve.randomness.noise import rounded_gaussian
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import Neighbours

PARTS = 2**8
LARGEST_RADIUS = 2**20
LIMIT = 2**21  # with up to 2^20 coordinates squares stay below 2^62
BLOCK = 1 << 26  # entries of a dense block of columns
_HEAVIEST = 2**60


class BoundedRows:
    """Finite rows whose coordinates are clipped to [low, high], which includes 0 for sparse rows.

    Attributes:
        parts: the array, or the data, columns and starts of a CSR matrix, as the compiled loops take them.
        sparse: whether it is a CSR matrix.
    """

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
        self.parts = (stored, values.indices, values.indptr) if self.sparse else (np.ascontiguousarray(stored),)

    @property
    def values(self) -> Any:
        """The rows as an array, or as a CSR matrix."""
        if not self.sparse:
            return self.parts[0]
        from scipy.sparse import csr_matrix

        return csr_matrix(self.parts, self.shape)

    def take(self, order: Ints) -> "BoundedRows":
        """Return the rows in another order; they are not checked again."""
        values, rows = self.values[order], copy(self)
        rows.parts = (values.data, values.indices, values.indptr) if self.sparse else (values,)
        rows.shape = values.shape
        return rows

    def norms(self, centre: Floats, weight: Floats) -> Floats:
        """Return the l2 norm of each row, shifted and scaled."""
        norms = np.empty(self.shape[0])
        loop = loops.sparse_norms if self.sparse else loops.dense_norms
        loop(*self.parts, self.low, self.high, centre, weight, norms)
        return norms

    def sums(self, centre: Floats, weight: Floats, radius: int) -> Ints:
        """Return the sums of all clipped rows; see the head of this module."""
        total = np.zeros(self.shape[1], np.int64)
        loop = loops.sparse_sums if self.sparse else loops.dense_sums
        loop(*self.parts, self.low, self.high, centre, weight, float(LIMIT), radius, PARTS, total)
        return total

    def distances(self) -> Floats:
        """Return the l2 distance between the rows of each pair: the first two, the next two, and so on."""
        distances = np.empty(self.shape[0] // 2)
        if self.sparse:
            loops.sparse_distances(*self.parts, self.low, self.high, self.shape[1], distances)
        else:
            loops.dense_distances(*self.parts, self.low, self.high, distances)
        return distances

    def quantiles(
        self, q: float, grid: DyadicGrid, sigma: float, source: Source, *, centre: Floats | None = None
    ) -> Floats:
        """Return the private q-quantile of each column, or of |x - centre|; see `search_columns`."""
        quantiles = [
            search_columns(block, q, grid, sigma, neighbours="replace", source=source,
                           centre=None if centre is None else centre[start : start + block.shape[1]])
            for start, block in self.blocks()
        ]  # fmt: skip
        return np.concatenate(quantiles)

    def blocks(self) -> Iterator[tuple[int, Any]]:
        """Yield blocks of columns as dense arrays, each with the number of its first column."""
        if not self.sparse:
            yield 0, self.parts[0]
            return
        width = max(1, BLOCK // max(1, self.shape[0]))
        for start in range(0, self.shape[1], width):
            yield start, np.ascontiguousarray(self._by_column[:, start : start + width].toarray())

    @cached_property
    def _by_column(self) -> Any:
        return self.values.tocsc()


def search_columns(
    matrix: Any, q: float, grid: DyadicGrid, sigma: float, *, neighbours: Neighbours, source: Source,
    centre: Floats | None = None,
) -> Floats:  # fmt: skip
    """Return the private q-quantile of each of the d columns of a matrix: d T / (2 sigma^2)-zCDP, T = grid.depth.

    The caller accounts for the cost. Each search is that of `QuantileSearch`, with Gaussian noise of sigma times the
    sensitivity of the relation (rows are the units), rounded to whole numbers as in `NoisyRanks`: mu-Gaussian private
    with mu = sqrt(d T) / sigma. With probability 1 - beta no value is more than s (sigma sqrt(2 ln(T d / beta)) + 1)
    rows off its rank, where s is max(q, 1 - q) for add/remove and 1 for replacement.

    Args:
        matrix: n x d, float32 or float64. NaN counts as above all numbers, values outside the grid as its ends.
        q: the quantile, rounded to the nearest fraction with a denominator of at most 10^5.
        grid: the points, the same for all columns.
        sigma: standard deviation of the noise, in units of the sensitivity.
        centre: d numbers c_j, public or private already; the quantiles are then those of |x_ij - c_j|.
    """
    share, columns = as_share(q), matrix.shape[1]
    around = np.zeros(columns) if centre is None else np.ascontiguousarray(centre, np.float64)
    sigma = validate.between("sigma", sigma, 1e-12, RANK_NOISE, hint="Pass a larger budget.")
    weight = min(_HEAVIEST, int(RANK_NOISE / sigma))  # of one row, so that the noise is sigma rows or more
    drawn = rounded_gaussian(RANK_NOISE, columns * grid.depth, source=source)
    # With L whole, L weight + change g >= 0 is equivalent to L + floor(change g / weight) >= 0.
    noise = (drawn * sensitivity(share, neighbours) // weight).reshape(columns, grid.depth)
    shift, step = (grid.exponent, 0.0) if grid.scale == "log" else (-1, math.ldexp(1.0, grid.exponent))
    points, fraction = np.empty(columns, np.int64), (share.numerator, share.denominator)
    loops.search_each(matrix, around, centre is not None, grid.first, step, shift, grid.size, fraction, noise, points)
    return grid.points(points)
