"""Texts that compiled loops keep, in blocks of bytes that never move: other threads may be reading them.

A text is referred to by a word, block << 48 | start << 24 | length, which is never 0: blocks are numbered from 1 on.
Nothing is checked here: `duckdb.texts` sees to it that the addresses are those of blocks that it keeps alive.
"""

import numpy as np

from dpsieve.engines.duckdb.vectors import words_at
from dpsieve.exact.hashing import copy
from dpsieve.exact.jit import jit

# The words of a shelf, where texts are put: the address of those of all blocks; the block that is filled, its length,
# and how much of it is used; and how many bytes are wanted.
BLOCKS, BLOCK, LENGTH, USED, WANTED, SHELF = range(6)
LENGTH_BITS, BLOCK_BITS = 24, 16
LONGEST, MOST_BLOCKS = (1 << LENGTH_BITS) - 1, 1 << BLOCK_BITS
_BITS, _BLOCK = np.uint64(LENGTH_BITS), np.uint64(2 * LENGTH_BITS)
_LOWER = np.uint64(LONGEST)


@jit(forceinline=True)
def bytes_at(reference, blocks):
    """Return the address and the length of what a word refers to."""
    start = blocks[reference >> _BLOCK] + (reference >> _BITS & _LOWER)
    return np.int64(start), np.int64(reference & _LOWER)


@jit(forceinline=True)
def blocks_of(shelf):
    """Return the addresses of all blocks."""
    return words_at(shelf[BLOCKS], MOST_BLOCKS)


@jit()
def put(text, shelf):
    """Put a text on a shelf; return the word that refers to it, or 0 where there is no room."""
    used = shelf[USED]
    if text[1] > min(shelf[LENGTH] - used, LONGEST):
        shelf[WANTED] = text[1]
        return np.uint64(0)
    copy(np.int64(blocks_of(shelf)[shelf[BLOCK]]) + used, text[0], text[1])
    shelf[USED] = used + text[1]
    return np.uint64(shelf[BLOCK]) << _BLOCK | np.uint64(used) << _BITS | np.uint64(text[1])


@jit(nogil=True)
def gather(references, blocks, starts, target):
    """Copy each text to its place in `target`."""
    for i in range(len(references)):
        place, length = bytes_at(references[i], blocks)
        copy(target.ctypes.data + starts[i], place, length)
