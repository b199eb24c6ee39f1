"""The bits of entries: a column of places for each level, and in every column one place for each entry.

The place of an entry in column c of s places is floor(u s / 2^32), where u is the upper half of splitmix64's
finaliser at a + (c + 1) b modulo 2^64, and a and b are the two words of the entry. Bit c s + place of the cells is it.
Loops run without the lock of the interpreter, so that callers can share the work among threads.
"""

import numpy as np

from dpsieve.exact.jit import jit

_ONE, _SIX, _HALF = np.uint64(1), np.uint64(6), np.uint64(32)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@jit(forceinline=True)
def _bit(a, b, column, places):
    z = a + np.uint64(column + 1) * b
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    z ^= z >> np.uint64(31)
    return np.uint64(column) * places + ((z >> _HALF) * places >> _HALF)


@jit(nogil=True)
def set_bits(levels, words, places, columns, negative, first, last, cells):
    """Set the bits of all entries, in the words of `cells` from `first` to before `last`.

    The first `negative` columns stand for the levels -1, -2, ..., the others for 1, 2, ...
    """
    size = np.uint64(places)
    for column in range(64 * first // places, min(columns, 64 * last // places + 1)):
        sign, level = (-1, column + 1) if column < negative else (1, column - negative + 1)
        for i in range(len(levels)):
            if sign * levels[i] >= level:
                bit = _bit(words[i, 0], words[i, 1], column, size)
                if first <= np.int64(bit >> _SIX) < last:
                    cells[bit >> _SIX] |= _ONE << (bit & np.uint64(63))


@jit(forceinline=True)
def _steps(a, b, cells, places, columns, ones, zeros, steps):
    """Set the step of each column. It is apart from the walk, so that no branch waits for memory."""
    for t in range(len(columns)):
        bit = _bit(a, b, columns[t], places)
        seen = np.int64(cells[bit >> _SIX] >> (bit & np.uint64(63)) & _ONE)
        steps[t] = zeros[t] + seen * (ones[t] - zeros[t])


@jit(nogil=True)
def highest_points(words, cells, places, columns, ones, zeros, average, out):
    """Walk along the columns of each entry, and set where the walk is highest, as a number of steps.

    A step is ones[t] or zeros[t], by the bit in columns[t]. Of several highest points it is the average of all, or the
    middle between the first and the last.
    """
    steps = np.empty(len(columns), np.int64)
    for i in range(len(words)):
        _steps(words[i, 0], words[i, 1], cells, np.uint64(places), columns, ones, zeros, steps)
        height = best = first = last = total = 0
        count = 1
        for t in range(len(steps)):
            height += steps[t]
            above, level = height > best, height >= best
            best = max(best, height)
            first = t + 1 if above else first
            last = t + 1 if level else last
            if average:
                total = (0 if above else total) + (t + 1 if level else 0)
                count = (0 if above else count) + (1 if level else 0)
        out[i] = total / count if average else (first + last) / 2


@jit(nogil=True)
def medians(words, cells, places, columns, ones, zeros, prior, out):
    """Set the median of each entry's value, as a number of steps, which is whole or half way between two.

    `prior` has the chances of 0, 1/2, 1, ... steps; a value half way is rounded either way with probability 1/2. Steps
    are logarithms of likelihood ratios, in units of 1/1024.
    """
    steps, chances = np.empty(len(columns), np.int64), np.empty(len(columns) + 1)
    for i in range(len(words)):
        _steps(words[i, 0], words[i, 1], cells, np.uint64(places), columns, ones, zeros, steps)
        height = best = 0
        for t in range(len(steps)):
            height += steps[t]
            best = max(best, height)
        height = -best
        for t in range(len(chances)):
            chances[t] = np.exp(height / 1024) if height > -40_000 else 0.0
            height += steps[t] if t < len(steps) else 0
        total = prior[0] * chances[0]
        for t in range(len(steps)):
            total += prior[2 * t + 1] * (chances[t] + chances[t + 1]) / 2 + prior[2 * t + 2] * chances[t + 1]
        at, below = 0, prior[0] * chances[0]
        while 2 * below < total and at < 2 * len(steps):
            at += 1
            t = at // 2
            below += prior[at] * (chances[t] if at % 2 == 0 else (chances[t] + chances[t + 1]) / 2)
        out[i] = at / 2
