"""Weights that each unit divides among its own keys by their importance, in whole numbers."""

import math

import numpy as np

from dpsieve.exact.jit import jit


@jit()
def add_weights(starts, held, importance, bits, heaviest, squares, sums):
    """Add the weights of all units to the sums of their keys.

    A unit gives a key of importance a the weight a 2^bits / sqrt(sum of a^2), rounded down and at most `heaviest`; what
    a capped key leaves is divided among the others in the same way. The squares of its weights sum to at most 4^bits:
    a key is capped where a^2 left >= heaviest^2 rest, with `left` of 4^bits and `rest` the sum of a^2 of keys that are
    not capped yet, so all that are capped at once take at most `left`. No order of keys matters.
    `squares` is room for the keys of one unit.
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
        for k in range(end - begin):
            if squares[k] < 0:
                sums[held[begin + k]] += heaviest
            elif squares[k] > 0:
                # The quotient is below 2^24, where the root of a float, rounded down, is that of the integer.
                sums[held[begin + k]] += np.int64(math.sqrt(squares[k] * left // rest))
