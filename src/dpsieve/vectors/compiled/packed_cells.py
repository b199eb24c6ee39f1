"""Small numbers side by side in words."""

import numpy as np

from dpsieve.exact.jit import jit

_ONE, _WORD, _INSIDE = np.uint64(1), np.uint64(64), np.uint64(63)


@jit(nogil=True)
def pack(values, bits, words):
    """Write numbers below 2^bits, one after the other, into words that are all 0."""
    for i in range(len(values)):
        at, shift = i * bits >> 6, np.uint64(i * bits) & _INSIDE
        words[at] |= values[i] << shift
        if shift + np.uint64(bits) > _WORD:
            words[at + 1] |= values[i] >> (_WORD - shift)


@jit(nogil=True)
def unpack(words, bits, cells):
    """Return the numbers of these cells."""
    found = np.empty(len(cells), np.uint64)
    mask = (_ONE << np.uint64(bits)) - _ONE
    for i in range(len(cells)):
        at, shift = cells[i] * bits >> 6, np.uint64(cells[i] * bits) & _INSIDE
        value = words[at] >> shift
        if shift + np.uint64(bits) > _WORD:
            value |= words[at + 1] << (_WORD - shift)
        found[i] = value & mask
    return found
