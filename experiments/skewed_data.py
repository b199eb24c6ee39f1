"""Rows whose coordinates differ much in spread, as in chapter 5 of Lebeda's thesis.

They are made up, and new in every run; Kosarak and POS are read where their files are at hand.
"""

import math
from typing import Any

import numpy as np
import real_data
from scipy.sparse import csr_matrix

from dpsieve.types import Floats

# Rows, columns, ones, and the law of columns: rank r is drawn with a weight of (r + head)^-skew.
BASKETS = {"Kosarak": (75_462, 27_983, 4_194_414, 1.2, 3.0), "POS": (515_596, 1_657, 3_367_019, 1.2, 1.0)}
_MORE = 2  # pairs drawn for each that is kept


def zipf_spreads(size: int, alpha: float) -> Floats:
    """Return the standard deviations of settings A (alpha 0), B and C (alpha 2): (d/d)^(alpha/2) to (d/1)^(alpha/2)."""
    return np.asarray((size / np.arange(size, 0, -1)) ** (alpha / 2))


def gaussian_rows(rng: np.random.Generator, rows: int, spreads: Floats, middle: Floats | float) -> Floats:
    """Return Gaussian rows with these spreads around a middle."""
    return np.asarray(rng.standard_normal((rows, len(spreads))) * spreads + middle)


def two_kinds(rng: np.random.Generator, rows: int, size: int, alpha: float) -> Floats:
    """Return binary rows: the first ceil(alpha d) coordinates are one half of the time, others once in a hundred."""
    chances = np.where(np.arange(size) < math.ceil(alpha * size), 0.5, 0.01)
    return (rng.random((rows, size)) < chances).astype(np.float64)


def baskets(rng: np.random.Generator, name: str, part: float = 1.0) -> Any:
    """Return the sparse binary rows of a real set, if its file is at hand (`real_data`), else of a stand-in.

    The stand-in has the size and about the skew of the real set; log sizes of its rows have deviation 1.

    Pairs (row, column) are drawn independently, twice as many as are needed; of those that differ, some are kept. The
    skew is such that as few columns as in the real set have a variance above the floor d^(-2/5).
    """
    if part == 1.0 and real_data.find(name):
        return real_data.as_matrix(real_data.read(name))
    rows, size, ones, skew, head = BASKETS[name]
    rows, ones = int(rows * part), int(ones * part)
    row = np.repeat(np.arange(rows), rng.poisson(_share(rng.lognormal(0, 1, rows)) * ones * _MORE))
    law = np.cumsum((np.arange(size) + head) ** -skew)
    column = np.searchsorted(law, rng.random(len(row)) * law[-1])
    pairs = np.unique(row * size + np.minimum(column, size - 1))
    pairs = np.sort(rng.permutation(pairs)[:ones])
    starts = np.searchsorted(pairs, np.arange(rows + 1) * size)
    return csr_matrix((np.ones(len(pairs)), pairs % size, starts), (rows, size))


def _share(sizes: Floats) -> Floats:
    return np.asarray(sizes / sizes.sum())
