"""Misra-Gries on integers: an open-addressing table of (key, counter), salted, with linear probing.

The table is at most half full, so a search ends soon. Taking a key out moves later ones back, which leaves no gaps.
Where a key lies depends on the salt; which keys are held, and with which counters, does not.
"""

import numpy as np

from dpsieve.exact.hashing import fold, prefetch
from dpsieve.exact.jit import jit
from dpsieve.sketches.compiled.radix import sort
from dpsieve.sketches.layout import SLOT

_ONE = np.uint64(1)
_SIGN = np.uint64(1 << 63)  # flipped, it makes unsigned words out of integers without changing their order
_SLOT_SIZE = SLOT.itemsize
_ITEMS_AHEAD, _ZEROS_AHEAD = 16, 4


@jit()
def update(items, table, zeros, spare, state, salt):
    """Count the items, one after another, and leave the new state; `zeros` and `spare` have a place per counter + 1."""
    now = state[0]
    for i in range(len(items)):
        if i + _ITEMS_AHEAD < len(items):
            _announce(items[i + _ITEMS_AHEAD], table, salt)
        x = items[i]
        slot = find(x, table, salt)
        if table[slot].stored != 0:
            table[slot].stored += 1
            continue
        leaving = -1
        if now.held < len(zeros) - 1:
            now.held += 1
        else:
            leaving = _next_zero(table, zeros, now, salt)
            if leaving < 0:
                now.decrements += 1
                now.cursor, now.waiting = 0, collect(table, now.decrements, zeros, spare)
                continue
        table[slot].key, table[slot].stored = x, now.decrements + 2
        if leaving >= 0:
            _take_out(np.uint64(leaving), table, salt)
    now.items += len(items)


@jit()
def find(x, table, salt):
    """Return the slot of a key, or the empty one where the search for it ends."""
    mask = np.uint64(len(table) - 1)
    slot = _home(x, table, salt)
    while table[slot].stored != 0 and table[slot].key != x:
        slot = (slot + _ONE) & mask
    return slot


@jit()
def collect(table, decrements, zeros, spare):
    """Write the keys whose counters are zero to `zeros`, the smallest first; return how many there are."""
    count = 0
    for slot in range(len(table)):
        zeros[count] = np.uint64(table[slot].key) ^ _SIGN
        count += table[slot].stored == decrements + 1
    sort(zeros, spare, count, 0)
    return count


@jit()
def _next_zero(table, zeros, now, salt):
    """Return the slot of the smallest key whose counter is zero, or -1, and move the cursor behind it."""
    slot = -1
    while now.cursor < now.waiting and slot < 0:
        if now.cursor + _ZEROS_AHEAD < now.waiting:
            _announce(np.int64(zeros[now.cursor + _ZEROS_AHEAD] ^ _SIGN), table, salt)
        slot = np.int64(find(np.int64(zeros[now.cursor] ^ _SIGN), table, salt))
        now.cursor += 1
        if table[slot].stored != now.decrements + 1:
            slot = -1
    return slot


@jit()
def _take_out(hole, table, salt):
    """Empty a slot, and move keys back into it that a search would now miss."""
    mask = np.uint64(len(table) - 1)
    slot = (hole + _ONE) & mask
    while table[slot].stored != 0:
        home = _home(table[slot].key, table, salt)
        if (slot - home) & mask >= (slot - hole) & mask:
            table[hole].key, table[hole].stored = table[slot].key, table[slot].stored
            hole = slot
        slot = (slot + _ONE) & mask
    table[hole].stored = 0


@jit()
def _announce(x, table, salt):
    """Have brought near the slot where the search for a key will begin."""
    prefetch(table.ctypes.data + _SLOT_SIZE * np.int64(_home(x, table, salt)))


@jit()
def _home(x, table, salt):
    return fold(np.uint64(x) ^ salt[0], salt[1]) & np.uint64(len(table) - 1)
