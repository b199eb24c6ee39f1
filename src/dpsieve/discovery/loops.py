"""The compiled loops behind `discovery.hitting_set`.

Weights that each unit divides among its own keys by their importance, in whole numbers.

Loops over units, one after the other, compiled by numba on first use and cached.

Unit u holds the keys held[starts[u]:starts[u + 1]], none of them twice; sums has a place for each key.
"""

import math

import numpy as np

from dpsieve.compiled.jit import jit


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


@jit()
def add_weights(starts, held, importance, bits, heaviest, squares, sums):
    """Add the weights of all units to the sums of their keys.

    A unit gives a key of importance a the weight a 2^bits / sqrt(sum of a^2), rounded down and at most `heaviest`; what
    a capped key leaves is divided among the others in the same way. A key is capped where a^2 left >= heaviest^2 rest,
    with `left` of 4^bits and `rest` the sum of a^2 of keys that are not capped yet, so all that are capped at once take
    at most `left`. At last keys are rounded up, in the unit's own order, as long as the squares of all its weights sum
    to at most 4^bits. So they always do. `squares` is room for the keys of one unit.
    """
    cap = np.int64(heaviest) * heaviest
    for unit in range(len(starts) - 1):
        begin, end = starts[unit], starts[unit + 1]
        left, rest = np.int64(1) << (2 * bits), np.int64(0)
        for i in range(begin, end):
            a = importance[held[i]]
            squares[i - begin] = a * a
            rest += a * a
        more = rest > 0
        while more:
            capped, taken = 0, 0
            for k in range(end - begin):
                if squares[k] > 0 and squares[k] * left >= cap * rest:
                    capped += 1
                    taken += squares[k]
                    squares[k] = -1
            left -= capped * cap
            rest -= taken
            more = capped > 0 and rest > 0
        spare = np.int64(1) << (2 * bits)
        for k in range(end - begin):
            weight = heaviest
            if squares[k] >= 0:
                # The quotient is at most 2^24, where the root of a float, rounded down, is that of the integer.
                weight = np.int64(math.sqrt(squares[k] * left // rest)) if squares[k] > 0 else 0
            squares[k] = weight
            spare -= weight * weight
        for k in range(end - begin):
            weight = squares[k]
            if 0 < weight < heaviest and 2 * weight + 1 <= spare:
                spare -= 2 * weight + 1
                weight += 1
            sums[held[begin + k]] += weight


@jit()
def fill_first(starts, held, cutoff, counts):
    """Add one, for each unit, to the first of its keys that is below the cutoff, if there is one."""
    for u in range(len(starts) - 1):
        for i in range(starts[u], starts[u + 1]):
            if counts[held[i]] < cutoff:
                counts[held[i]] += 1
                break


@jit()
def fill_in_order(starts, held, cutoff, budget, sums):
    """Let each unit fill its keys one after the other up to the cutoff, until its budget is used up; all integers."""
    for u in range(len(starts) - 1):
        left = budget
        for i in range(starts[u], starts[u + 1]):
            added = min(left, cutoff - sums[held[i]])
            sums[held[i]] += added
            left -= added
            if left == 0:
                break


@jit()
def descend(starts, held, cutoff, sums):
    """Let each unit move its keys straight towards the cutoff, by at most 1 in l2."""
    for u in range(len(starts) - 1):
        first, last = starts[u], starts[u + 1]
        squares = 0.0
        for i in range(first, last):
            gap = cutoff - sums[held[i]]
            squares += gap * gap
        if squares <= 1:
            for i in range(first, last):
                sums[held[i]] = cutoff
        else:
            share = 1 / math.sqrt(squares)
            for i in range(first, last):
                at = sums[held[i]]
                sums[held[i]] = min(cutoff, at + (cutoff - at) * share)
