"""Rows of sample-and-threshold, computed apart from the library."""

import functools
import math
from fractions import Fraction

import numpy as np
from scipy import stats


@functools.cache
def full_rows(rate, threshold, last):
    """Return the rows of frequencies 0, ..., last, with the tokens 0, ..., last."""
    numbers = np.arange(last + 1)
    rows = stats.binom.pmf(numbers, numbers[:, None], rate)
    rows[:, 0] = stats.binom.cdf(threshold - 1, numbers, rate)
    rows[:, 1:threshold] = 0
    return rows


def full_row(k, rate, threshold, last):
    row = stats.binom.pmf(np.arange(last + 1), k, rate)
    row[0] = stats.binom.cdf(threshold - 1, k, rate)
    row[1:threshold] = 0
    return row


def exact_row(k, p, threshold):
    row = {0: Fraction(0)}
    for j in range(k + 1):
        token = j if j >= threshold else 0
        row[token] = row.get(token, 0) + math.comb(k, j) * p**j * (1 - p) ** (k - j)
    return row
