"""The key of each unit with the smallest hash: a table of units, and an arena with the bytes that it refers to.

A cell of the table is four words: the hash of the key that is kept (0 where the cell is empty; a hash of 0 is taken for
1), the unit, where the key's bytes are, and where the unit's bytes are. A unit is either a whole number, which is its
word, or a text, whose word is its hash; then a match is always checked on the bytes. Units are never told apart, or
taken for each other, by hashes alone: one unit more or less must change one key.

Bytes are referred to by a word, start << 24 | length. New bytes go to the end of the arena, and those that nothing
refers to any more stay until `compact`. Rows come in groups, so that what their searches touch can be brought near.

Nothing is checked here: `engines.one_key` sees to it that the addresses are those of buffers that it keeps alive.
"""

import numpy as np

from dpsieve.jit import jit
from dpsieve.sketches.compiled.digest import digest, same
from dpsieve.sketches.compiled.words import copy, fold, load_word, prefetch

GROUP = 32
LENGTH_BITS = 24
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_BITS = np.uint64(LENGTH_BITS)
_LENGTH = (_ONE << _BITS) - _ONE
_HALF = np.uint64(32)
_LOWER = (_ONE << _HALF) - _ONE
_CELL = 32


@jit(nogil=True)
def add(first, count, units, unit_starts, keys, key_starts, orders, cells, arena, state, salt):
    """Take the rows from `first` on; return where it stopped, before `count` when the table or the arena is full.

    `units` is the address of whole numbers, or of the bytes of texts that start at `unit_starts`, which is empty for
    numbers; `keys` is that of the keys' bytes, and `orders` are their hashes, of which the smallest is kept. `state`
    has the number of units and the length of the arena in use.
    """
    words = (salt[0], salt[1], salt[2], salt[3])
    base, texts = arena.ctypes.data, len(unit_starts) > 0
    hashes, units_here = np.empty(GROUP, np.uint64), np.empty(GROUP, np.uint64)
    for group in range(first, count, GROUP):
        stop = min(group + GROUP, count)
        if 4 * (state[0] + GROUP) > 3 * len(cells):
            return group
        for i in range(group, stop):
            if texts:
                start = unit_starts[i]
                unit = digest(units + start, unit_starts[i + 1] - start, words)
            else:
                unit = load_word(units + 8 * i)
            h = fold(unit ^ salt[4], salt[5])
            prefetch(cells.ctypes.data + _CELL * np.int64(_home(h, cells)))
            hashes[i - group], units_here[i - group] = h, unit
        if texts:
            for i in range(stop - group):
                prefetch(base + np.int64(cells[_home(hashes[i], cells), 3] >> _BITS))
        for i in range(group, stop):
            unit, order, place, size = units_here[i - group], max(orders[i], _ONE), np.int64(0), np.int64(0)
            if texts:
                place, size = units + unit_starts[i], unit_starts[i + 1] - unit_starts[i]
            slot = _find(hashes[i - group], unit, place, size, cells, base, texts)
            old = cells[slot, 0]
            if old != _ZERO and order >= old:
                continue
            length = key_starts[i + 1] - key_starts[i]
            if state[1] + length + size > len(arena):
                return i
            if old == _ZERO:
                state[0] += 1
                cells[slot, 1] = unit
                if texts:
                    cells[slot, 3] = _put(place, size, base, state)
            cells[slot, 0], cells[slot, 2] = order, _put(keys + key_starts[i], length, base, state)
    return count


@jit(nogil=True)
def rehash(cells, larger, salt):
    """Move all cells to a larger table."""
    mask = np.uint64(len(larger) - 1)
    for i in range(len(cells)):
        if cells[i, 0] != _ZERO:
            slot = _home(fold(cells[i, 1] ^ salt[4], salt[5]), larger)
            while larger[slot, 0] != _ZERO:
                slot = (slot + _ONE) & mask
            for j in range(4):
                larger[slot, j] = cells[i, j]


@jit(nogil=True)
def in_use(cells):
    """Return how many bytes the cells refer to."""
    total = 0
    for i in range(len(cells)):
        total += np.int64(cells[i, 2] & _LENGTH) + np.int64(cells[i, 3] & _LENGTH)
    return total


@jit(nogil=True)
def compact(cells, arena, other, state):
    """Move all bytes that are referred to into the other arena, which has room for them."""
    source, target = arena.ctypes.data, other.ctypes.data
    state[1] = 0
    for i in range(len(cells)):
        for j in range(2, 4):
            word = cells[i, j]
            if word != _ZERO:
                cells[i, j] = _put(source + np.int64(word >> _BITS), np.int64(word & _LENGTH), target, state)


@jit(nogil=True)
def tally(cells, arena, table, refs, counts, salt):
    """Count the units of each key; return how many keys there are: `refs` and `counts` hold them from 1 on.

    A word of `table` is 0 where empty, else the upper half of a key's hash and the key's number: of 2^32 units, a table
    would take 2^37 bytes.
    """
    words = (salt[0], salt[1], salt[2], salt[3])
    base, found = arena.ctypes.data, 0
    mask = np.uint64(len(table) - 1)
    kept, hashes = np.empty(GROUP, np.uint64), np.empty(GROUP, np.uint64)
    position = 0
    while position < len(cells):
        filled = 0
        while filled < GROUP and position < len(cells):
            if cells[position, 0] != _ZERO:
                kept[filled] = cells[position, 2]
                prefetch(base + np.int64(kept[filled] >> _BITS))
                filled += 1
            position += 1
        for i in range(filled):
            hashes[i] = digest(base + np.int64(kept[i] >> _BITS), np.int64(kept[i] & _LENGTH), words)
            prefetch(table.ctypes.data + 8 * np.int64(hashes[i] & mask))
        for i in range(filled):
            number = table[hashes[i] & mask] & _LOWER
            prefetch(base + np.int64(refs[number] >> _BITS))
        for i in range(filled):
            slot, start, length = hashes[i] & mask, np.int64(kept[i] >> _BITS), np.int64(kept[i] & _LENGTH)
            while table[slot] != _ZERO:
                if (table[slot] ^ hashes[i]) >> _HALF == _ZERO:
                    other = refs[table[slot] & _LOWER]
                    if (other ^ kept[i]) & _LENGTH == _ZERO and same(
                        base + start, base + np.int64(other >> _BITS), length
                    ):
                        break
                slot = (slot + _ONE) & mask
            if table[slot] == _ZERO:
                found += 1
                table[slot] = (hashes[i] & ~_LOWER) | np.uint64(found)
                refs[found] = kept[i]
            counts[table[slot] & _LOWER] += 1
    return found


@jit(nogil=True)
def gather(refs, arena, starts, target):
    """Copy the bytes of each key to its place in `target`."""
    for i in range(len(refs)):
        there, here = target.ctypes.data + starts[i], arena.ctypes.data + np.int64(refs[i] >> _BITS)
        copy(there, here, np.int64(refs[i] & _LENGTH))


@jit(forceinline=True)
def _find(h, unit, place, size, cells, base, texts):
    """Return the slot of a unit, or the empty one where it belongs."""
    mask = np.uint64(len(cells) - 1)
    slot = _home(h, cells)
    while cells[slot, 0] != _ZERO:
        if cells[slot, 1] == unit:
            ref = cells[slot, 3]
            if not texts:
                break
            if np.int64(ref & _LENGTH) == size and same(place, base + np.int64(ref >> _BITS), size):
                break
        slot = (slot + _ONE) & mask
    return slot


@jit(forceinline=True)
def _home(h, cells):
    return (h >> np.uint64(20)) & np.uint64(len(cells) - 1)


@jit(forceinline=True)
def _put(place, length, base, state):
    """Append bytes to the arena; return the word that refers to them."""
    start = state[1]
    copy(base + start, place, length)
    state[1] = start + length
    return np.uint64(start) << _BITS | np.uint64(length)
