"""The compiled loops behind `discovery.hitting_set`."""

import numpy as np

from dpsieve.exact.jit import jit


@jit()
def holders(starts, held, keys):
    """Return for each key the units that hold it: where they begin, and their numbers."""
    begins = np.zeros(keys + 1, np.int64)
    for key in held:
        begins[key + 1] += 1
    for key in range(keys):
        begins[key + 1] += begins[key]
    place, units = begins[:-1].copy(), np.empty(len(held), np.int32)
    for unit in range(len(starts) - 1):
        for at in range(starts[unit], starts[unit + 1]):
            units[place[held[at]]] = unit
            place[held[at]] += 1
    return begins, units


@jit()
def hit(key, begins, units, starts, held, gone, counts):
    """Remove the units that hold `key` and are not yet gone; lower the counts of all keys they hold."""
    for at in range(begins[key], begins[key + 1]):
        unit = units[at]
        if not gone[unit]:
            gone[unit] = True
            for place in range(starts[unit], starts[unit + 1]):
                counts[held[place]] -= 1
