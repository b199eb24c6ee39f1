"""The loops behind `discovery.incidence`."""

import numpy as np

from dpsieve.exact.jit import jit


@jit()
def first_keys(starts, held, most):
    """Return the first `most` keys of each unit: where those of each begin, and their numbers."""
    begins = np.zeros(len(starts), np.int64)
    for unit in range(len(starts) - 1):
        begins[unit + 1] = begins[unit] + min(most, starts[unit + 1] - starts[unit])
    kept = np.empty(begins[-1], np.int32)
    for unit in range(len(starts) - 1):
        for k in range(begins[unit + 1] - begins[unit]):
            kept[begins[unit] + k] = held[starts[unit] + k]
    return begins, kept


@jit()
def count_keys(held, counts):
    """Add one to the count of a key for each unit that holds it."""
    for key in held:
        counts[key] += 1


@jit()
def sort_keys(starts, held):
    """Put the keys of each unit in the order of their numbers."""
    for unit in range(len(starts) - 1):
        held[starts[unit] : starts[unit + 1]].sort()
