"""Loops over units, one after the other, compiled by numba on first use and cached.

Unit u holds the keys held[starts[u]:starts[u + 1]], none of them twice; sums has a place for each key.
"""

import math

from dpsieve.exact.jit import jit


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
