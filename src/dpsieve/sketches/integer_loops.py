"""Loops over integers: Misra-Gries, sets of users as codes of keys, and the radix sort of all sketches.

Misra-Gries has an open-addressing table of (key, counter), salted, with linear probing. The table is at most half full,
so searches are short. Removing a key moves later ones back, which leaves no gaps. The slot of a key depends on the
salt; the held keys and their counters do not.

The sort works digit by digit, so hostile input does not slow it down.
"""

import numpy as np

from dpsieve.compiled.jit import jit
from dpsieve.compiled.memory import fold, prefetch

# `stored` is 0 in an empty slot, and counter + decrements + 1 in others.
SLOT = np.dtype([("key", np.int64), ("stored", np.int64)])

_ZERO, _ONE, _BITS = np.uint64(0), np.uint64(1), np.uint64(64)
_SIGN = np.uint64(1 << 63)  # flipped, it makes unsigned words out of integers without changing their order
_SLOT_SIZE = SLOT.itemsize
_ITEMS_AHEAD, _ZEROS_AHEAD = 16, 4
_FEW, _MANY = 32, 8192


@jit(nogil=True)
def update(items, table, zeros, spare, state, salt):
    """Count the items, one after another, and leave the new state; `zeros` and `spare` have a place per counter + 1."""
    now = state[0]
    for i in range(len(items)):
        if i + _ITEMS_AHEAD < len(items):
            _prefetch_slot(items[i + _ITEMS_AHEAD], table, salt)
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
            _remove(np.uint64(leaving), table, salt)
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
            _prefetch_slot(np.int64(zeros[now.cursor + _ZEROS_AHEAD] ^ _SIGN), table, salt)
        slot = np.int64(find(np.int64(zeros[now.cursor] ^ _SIGN), table, salt))
        now.cursor += 1
        if table[slot].stored != now.decrements + 1:
            slot = -1
    return slot


@jit()
def _remove(hole, table, salt):
    """Empty a slot, and move back keys that a search would otherwise miss."""
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
def _prefetch_slot(x, table, salt):
    """Prefetch the home slot of a key."""
    prefetch(table.ctypes.data + _SLOT_SIZE * np.int64(_home(x, table, salt)))


@jit()
def _home(x, table, salt):
    return fold(np.uint64(x) ^ salt[0], salt[1]) & np.uint64(len(table) - 1)


@jit()
def count_sets(codes, offsets, stored, held, counters):
    """Count sets of codes into `stored`, counters that are kept as counter + lowered; codes below `held` are held.

    Returns the codes that are held at the end, how often all counters were lowered, and how many items were counted.
    """
    room = held + len(codes)
    keep = np.empty(min(room, len(stored)), np.int64)
    for code in range(held):
        keep[code] = code
    seen = np.full(len(stored), -1, np.int64)
    lowered, counted = 0, 0
    for user in range(len(offsets) - 1):
        for place in range(offsets[user], offsets[user + 1]):
            code = codes[place]
            if seen[code] == user:
                continue
            seen[code] = user
            counted += 1
            if stored[code] > lowered:
                stored[code] += 1
            else:
                stored[code] = lowered + 1
                keep[held] = code
                held += 1
        if held > counters:
            lowered += 1
            left = 0
            for place in range(held):
                if stored[keep[place]] > lowered:
                    keep[left] = keep[place]
                    left += 1
            held = left
    return keep[:held].copy(), lowered, counted


@jit()
def sort(words, spare, count, low):
    """Sort the first `count` words by their bits from `low` on; `spare` has room for as many.

    Words that agree in these bits are adjacent, in any order.
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
