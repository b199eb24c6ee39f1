"""Compiled loops over many (unit, key) pairs; see `true_data.Pairs`.

Unit u has the keys key_numbers[starts[u]:starts[u + 1]], none of them twice.
"""

import numpy as np

from dpsieve.compiled.jit import jit


@jit()
def first_keys(starts, key_numbers, most):
    """Return the starts and the key numbers of the first `most` keys of each unit."""
    bounded_starts = np.zeros(len(starts), np.int64)
    for unit in range(len(starts) - 1):
        bounded_starts[unit + 1] = bounded_starts[unit] + min(most, starts[unit + 1] - starts[unit])
    bounded = np.empty(bounded_starts[-1], np.int32)
    for unit in range(len(starts) - 1):
        for k in range(bounded_starts[unit + 1] - bounded_starts[unit]):
            bounded[bounded_starts[unit] + k] = key_numbers[starts[unit] + k]
    return bounded_starts, bounded


@jit()
def count_keys(key_numbers, counts):
    """Add one to the count of a key for each of its units."""
    for key in key_numbers:
        counts[key] += 1


@jit()
def sort_keys(starts, key_numbers):
    """Sort the keys of each unit by number."""
    for unit in range(len(starts) - 1):
        key_numbers[starts[unit] : starts[unit + 1]].sort()
