"""Compiled loops of `policies`: units add weights one after the other.

Unit u holds the keys held[starts[u]:starts[u + 1]], none of them twice; `sums` has an entry per key.
"""

import math

from dpsieve.compiled.jit import jit


@jit()
def fill_in_order(starts, held, cutoff, budget, sums):
    """Fill the keys of each unit in order up to the cutoff, until its budget is used up; all integers."""
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
    """Move the keys of each unit straight towards the cutoff, by at most 1 in l2."""
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
