"""The key of each unit with the smallest hash: a table of units, and an arena with the bytes that it refers to.

A cell of the table is four words: the hash of the key that is kept, the unit, where the key's bytes are (0 where the
cell is empty), and where the unit's bytes are. A unit is either a whole number, which is its word, or a text, whose
word is its hash; then a match is always checked on the bytes. Units are never taken for each other by hashes alone: one
unit more or less must change one key. Of keys with equal hashes the one whose bytes come first is kept, as in SQL.

Bytes are referred to by a word, start << 24 | length, which is never 0, as the arena is used from its second byte on.
New bytes go to the end of the arena, and those that nothing refers to any more stay until `compact`. Where a search
will start is known some rows ahead, and requested then, so that memory is not waited for.

Nothing is checked here: `duckdb.one_key` sees to it that the addresses are those of buffers that it keeps alive.
"""

import numpy as np

from dpsieve.exact.hashing import copy, digest, fold, load_byte, load_word, prefetch, same
from dpsieve.exact.jit import jit

LENGTH_BITS = 24
_AHEAD, _GROUP = 32, 32
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_BITS = np.uint64(LENGTH_BITS)
_LENGTH = (_ONE << _BITS) - _ONE
_LONGEST = (1 << LENGTH_BITS) - 1
_HALF = np.uint64(32)
_LOWER = (_ONE << _HALF) - _ONE
_CELL = 32
_STRETCH, _GOLDEN = np.uint64(20), np.uint64(0x9E3779B97F4A7C15)


@jit(nogil=True)
def add(count, units, unit_starts, keys, key_starts, orders, cells, arena, state, salt, part, parts):
    """Take the rows of a part of the units; return how many rows are done, fewer than `count` where there is no room.

    `units` is the address of whole numbers, or of the bytes of texts that start at `unit_starts`, which is None for
    numbers; `keys` is that of the keys' bytes, and `orders` are their hashes, of which the smallest is kept. `state`
    has the number of units and the length of the arena in use.
    """
    base, filled, used = arena.ctypes.data, state[0], state[1]
    words, homes = np.empty(_AHEAD, np.uint64), np.empty(_AHEAD, np.uint64)
    rows, own = np.empty(count, np.int64), 0
    for i in range(count):  # without a branch, which would be as good as random
        rows[own] = i
        own += parts == 1 or part_of(word_of(i, units, unit_starts, salt), parts, salt) == part
    for j in range(-_AHEAD, own):
        near = j & (_AHEAD - 1)
        word, slot = words[near], homes[near]
        if j + _AHEAD < own:
            words[near] = word_of(rows[j + _AHEAD], units, unit_starts, salt)
            homes[near] = _home(words[near], cells, salt)
            prefetch(cells.ctypes.data + _CELL * np.int64(homes[near]))
        if unit_starts is not None and 0 <= j + _AHEAD // 2 < own:
            middle = homes[(j + _AHEAD // 2) & (_AHEAD - 1)]
            prefetch(base + np.int64(cells[middle, 3] >> _BITS))
        if j < 0:
            continue
        i = rows[j]
        slot = _find(i, word, slot, units, unit_starts, cells, base)
        old, order = cells[slot, 2], orders[i]
        least = cells[slot, 0]
        if old != _ZERO and (order > least or (order == least and not _before(i, keys, key_starts, old, base))):
            continue
        full = old == _ZERO and is_full(filled, cells)
        if full or _length(i, unit_starts, key_starts) > min(len(arena) - used, _LONGEST):
            count = i
            break
        if old == _ZERO:
            filled += 1
            cells[slot, 1] = word
            if unit_starts is not None:
                cells[slot, 3], used = _put(units, unit_starts, i, base, used)
        cells[slot, 0] = order
        cells[slot, 2], used = _put(keys, key_starts, i, base, used)
    state[0], state[1] = filled, used
    return count


@jit(forceinline=True)
def is_full(units, cells):
    """Tell whether this number of units leaves no room for another: a search ends at an empty cell."""
    return 4 * units >= 3 * len(cells)


@jit(nogil=True)
def rehash(cells, larger, salt):
    """Move all cells to a larger table."""
    mask = np.uint64(len(larger) - 1)
    for i in range(len(cells)):
        if cells[i, 2] != _ZERO:
            slot = _home(cells[i, 1], larger, salt)
            while larger[slot, 2] != _ZERO:
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
    source, target, used = arena.ctypes.data, other.ctypes.data, 1
    for i in range(len(cells)):
        for j in range(2, 4):
            word = cells[i, j]
            if word != _ZERO:
                length = np.int64(word & _LENGTH)
                copy(target + used, source + np.int64(word >> _BITS), length)
                cells[i, j] = _reference(used, length)
                used += length
    state[1] = used


@jit(nogil=True)
def tally(cells, arena, table, refs, counts, salt):
    """Count the units of each key; return how many keys there are: `refs` and `counts` hold them from 1 on.

    A word of `table` is 0 where empty, else the upper half of a key's hash and the key's number: of 2^32 units, a table
    would take 2^37 bytes.
    """
    words = (salt[0], salt[1], salt[2], salt[3])
    base, found = arena.ctypes.data, 0
    mask = np.uint64(len(table) - 1)
    kept, hashes = np.empty(_GROUP, np.uint64), np.empty(_GROUP, np.uint64)
    position = 0
    while position < len(cells):
        filled = 0
        while filled < _GROUP and position < len(cells):
            if cells[position, 2] != _ZERO:
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
def word_of(i, units, unit_starts, salt):
    """Return the word that stands for a unit: a whole number itself, or the hash of a text."""
    if unit_starts is None:
        return load_word(units + 8 * i)
    return digest(units + unit_starts[i], unit_starts[i + 1] - unit_starts[i], (salt[0], salt[1], salt[2], salt[3]))


@jit(forceinline=True)
def part_of(word, parts, salt):
    """Return which of the parts a unit belongs to, by other bits than those that place it."""
    return np.int64((fold(word ^ salt[6], salt[7]) >> _HALF) * np.uint64(parts) >> _HALF)


@jit(forceinline=True)
def _length(i, unit_starts, key_starts):
    """Return how many bytes a row may take in the arena."""
    length = key_starts[i + 1] - key_starts[i]
    if unit_starts is not None:
        length += unit_starts[i + 1] - unit_starts[i]
    return length


@jit(forceinline=True)
def _home(word, cells, salt):
    """Return the slot where the search for a unit starts.

    Multiples of the golden ratio lie evenly on a circle. So numbers that differ in their last 20 bits alone, as ids
    that are counted up do, hardly meet; how each stretch of 2^20 numbers is turned is random, and secret.
    """
    angle = word * _GOLDEN + fold((word >> _STRETCH) ^ salt[4], salt[5])
    return (angle >> _HALF) * np.uint64(len(cells)) >> _HALF


@jit(forceinline=True)
def _find(i, word, slot, units, unit_starts, cells, base):
    """Return the slot of a unit, or the empty one where it belongs."""
    mask = np.uint64(len(cells) - 1)
    while cells[slot, 2] != _ZERO:
        if cells[slot, 1] == word:
            if unit_starts is None:
                break
            start, size, ref = unit_starts[i], unit_starts[i + 1] - unit_starts[i], cells[slot, 3]
            if np.int64(ref & _LENGTH) == size and same(units + start, base + np.int64(ref >> _BITS), size):
                break
        slot = (slot + _ONE) & mask
    return slot


@jit()
def _before(i, keys, key_starts, kept, base):
    """Return whether the key of a row comes before the one that is kept, by their bytes; of equal ones neither does."""
    place, length = keys + key_starts[i], key_starts[i + 1] - key_starts[i]
    other, size = base + np.int64(kept >> _BITS), np.int64(kept & _LENGTH)
    if length == size and same(place, other, length):
        return False
    for j in range(min(length, size)):
        a, b = load_byte(place + j), load_byte(other + j)
        if a != b:
            return a < b
    return length < size


@jit(forceinline=True)
def _put(texts, starts, i, base, used):
    """Append a text to the arena; return the word that refers to it, and what of the arena is now used."""
    length = starts[i + 1] - starts[i]
    copy(base + used, texts + starts[i], length)
    return _reference(used, length), used + length


@jit(forceinline=True)
def _reference(start, length):
    return np.uint64(start) << _BITS | np.uint64(length)
