"""Sorting machine words digit by digit: no slower for hostile words than for others."""

import numpy as np

from dpsieve.exact.jit import jit

_FEW, _MANY = 32, 8192
_ZERO, _ONE, _BITS = np.uint64(0), np.uint64(1), np.uint64(64)


@jit()
def sort(words, spare, count, low):
    """Sort the first `count` words by their bits from `low` on; `spare` has room for as many.

    Words that agree in these bits come out in any order, next to each other.
    """
    if count <= _FEW:
        _insertion(words, count)
        return
    varying = _ZERO
    for i in range(count):
        varying |= words[i] ^ words[0]
    width = np.uint64(8 if count < _MANY else 12)
    starts = np.empty(_ONE << width, np.int64)
    source, target, swapped = words, spare, False
    shift = np.uint64(low)
    while shift < _BITS:
        if (varying >> shift) & np.uint64(len(starts) - 1) != _ZERO:
            _pass(source, target, count, shift, starts)
            source, target, swapped = target, source, not swapped
        shift += width
    if swapped:
        for i in range(count):
            words[i] = spare[i]


@jit()
def _pass(source, target, count, shift, starts):
    """Write the words in the order of one digit; words with the same digit stay in their order."""
    mask = np.uint64(len(starts) - 1)
    for digit in range(len(starts)):
        starts[digit] = 0
    for i in range(count):
        starts[(source[i] >> shift) & mask] += 1
    total = 0
    for digit in range(len(starts)):
        starts[digit], total = total, total + starts[digit]
    for i in range(count):
        digit = (source[i] >> shift) & mask
        target[starts[digit]] = source[i]
        starts[digit] += 1


@jit()
def _insertion(words, count):
    for i in range(1, count):
        word, place = words[i], i
        while place > 0 and words[place - 1] > word:
            words[place] = words[place - 1]
            place -= 1
        words[place] = word
