"""Misra-Gries on text and bytes: entries with a counter each, their bytes in an arena, a salted table leading to them.

A word of the table is 0 where empty; else its upper 39 bits are those of the salted hash, and the lower 25 the number
of the entry. So most searches touch one entry at most, and moving words back needs none. A match is always checked on
length and bytes: texts whose hashes agree cost time and change nothing.

Texts are ordered by the upper 39 bits of their public hash (see `digest`), then by their bytes as unsigned numbers,
where a text comes before the longer ones that start with it. So the order is the same in every process, and it depends
on nothing but the texts.
"""

import numpy as np

from dpsieve.compiled.jit import jit
from dpsieve.compiled.memory import copy, digest, load_byte, prefetch, public_digest, same
from dpsieve.sketches.integer_loops import sort

# A text: `length` bytes of the arena from `start` on, with their salted hash; `stored` is counter + decrements. Entry 0
# is never used: 0 means none.
ENTRY = np.dtype([("stored", np.int64), ("start", np.int64), ("length", np.int64), ("hash", np.uint64)])

_GROUP, _AHEAD = 32, 4
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_ENTRY_SIZE = ENTRY.itemsize
_NUMBER_BITS = np.uint64(25)
_NUMBER = (_ONE << _NUMBER_BITS) - _ONE
_COARSE = np.uint64(40)  # texts are first sorted by the upper 24 bits, in which few agree


@jit(nogil=True)
def update(first, places, lengths, table, entries, arena, zeros, spare, state, salt):
    """Count the items from `first` on and leave the new state; return where it stopped.

    That is before the end when the arena has no room for the text that comes next. Item i is the lengths[i] bytes that
    start at the address places[i]. `zeros` and `spare` have a place per counter and one more.
    """
    now = state[0]
    counters, base = len(zeros) - 1, arena.ctypes.data
    key = (salt[0], salt[1], salt[2], salt[3])
    hashes = np.empty(_GROUP, np.uint64)
    for group in range(first, len(places), _GROUP):
        stop = min(group + _GROUP, len(places))
        _look_ahead(places[group:stop], lengths[group:stop], table, entries, base, key, hashes)
        for i in range(group, stop):
            h, place, length = hashes[i - group], places[i], lengths[i]
            slot, entry = find(h, place, length, table, entries, base)
            if entry != _ZERO:
                entries[entry].stored += 1
                now.items += 1
                continue
            if now.used + length > len(arena):
                return i
            now.items += 1
            if now.held < counters:
                now.held += 1
                entry = np.uint64(now.held)
                table[slot] = _word(h, entry)
            else:
                entry = _next_zero(table, entries, zeros, now)
                if entry == _ZERO:
                    now.decrements += 1
                    now.cursor, now.waiting = 0, collect(entries, arena, now.decrements, zeros, spare)
                    continue
                table[slot] = _word(h, entry)
                _remove(_word(entries[entry].hash, entry), slot, table)
            new = entries[entry]
            new.stored, new.start, new.length, new.hash = now.decrements + 1, now.used, length, h
            copy(base + now.used, place, length)
            now.used += length
    return len(places)


@jit(forceinline=True)
def find(h, place, length, table, entries, base):
    """Return the slot and the entry of a text with the hash h; or the slot where the search for it ends, and 0."""
    mask = np.uint64(len(table) - 1)
    slot = _home(h, table)
    while table[slot] != _ZERO and not _is_text(table[slot], h, place, length, entries, base):
        slot = (slot + _ONE) & mask
    return slot, table[slot] & _NUMBER


@jit(forceinline=True)
def _is_text(word, h, place, length, entries, base):
    held = entries[word & _NUMBER]
    return word ^ h <= _NUMBER and held.length == length and same(place, base + held.start, length)


@jit()
def search(place, length, table, entries, arena, salt):
    """Return the entry of the text of this length at an address, or 0."""
    h = digest(place, length, (salt[0], salt[1], salt[2], salt[3]))
    return find(h, place, length, table, entries, arena.ctypes.data)[1]


@jit()
def collect(entries, arena, decrements, zeros, spare):
    """Write the entries whose counters are zero to `zeros`, the smallest text first; return how many there are."""
    base, count = arena.ctypes.data, 0
    for entry in range(1, len(entries)):
        zeros[count] = entry
        count += entries[entry].stored == decrements
    for i in range(count):
        text = entries[zeros[i]]
        zeros[i] |= public_digest(base + text.start, text.length) & ~_NUMBER
    sort(zeros, spare, count, _COARSE)
    first = 0
    for i in range(1, count + 1):
        if i == count or zeros[i] >> _COARSE != zeros[first] >> _COARSE:
            if i - first > 1:
                _merge(zeros[first:i], spare, entries, base)
            first = i
    return count


@jit()
def gather(entries, arena, starts, target):
    """Copy the text of each entry to its place in `target`."""
    for i in range(len(starts)):
        text = entries[i + 1]
        copy(target.ctypes.data + starts[i], arena.ctypes.data + text.start, text.length)


@jit(forceinline=True)
def _look_ahead(places, lengths, table, entries, base, key, hashes):
    """Hash a group of texts, and prefetch what their searches read first."""
    for i in range(len(places)):
        hashes[i] = digest(places[i], lengths[i], key)
        prefetch(table.ctypes.data + 8 * np.int64(_home(hashes[i], table)))
    for i in range(len(places)):
        entry = table[_home(hashes[i], table)] & _NUMBER
        prefetch(base + entries[entry].start)


@jit(forceinline=True)
def _next_zero(table, entries, zeros, now):
    """Return the entry with the smallest text whose counter is zero, or 0, and move the cursor behind it."""
    entry = _ZERO
    while now.cursor < now.waiting and entry == _ZERO:
        if now.cursor + 2 * _AHEAD < now.waiting:
            soon, later = zeros[now.cursor + _AHEAD] & _NUMBER, zeros[now.cursor + 2 * _AHEAD] & _NUMBER
            prefetch(table.ctypes.data + 8 * np.int64(_home(entries[soon].hash, table)))
            prefetch(entries.ctypes.data + _ENTRY_SIZE * np.int64(later))
        entry = zeros[now.cursor] & _NUMBER
        now.cursor += 1
        if entries[entry].stored != now.decrements:
            entry = _ZERO
    return entry


@jit(forceinline=True)
def _remove(word, other, table):
    """Empty the slot that holds a word, not slot `other`, and move words back into it that a search would now miss."""
    mask = np.uint64(len(table) - 1)
    hole = _home(word, table)
    while table[hole] != word or hole == other:
        hole = (hole + _ONE) & mask
    slot = (hole + _ONE) & mask
    while table[slot] != _ZERO:
        if (slot - _home(table[slot], table)) & mask >= (slot - hole) & mask:
            table[hole] = table[slot]
            hole = slot
        slot = (slot + _ONE) & mask
    table[hole] = _ZERO


@jit()
def _merge(words, spare, entries, base):
    """Merge sort by the complete order: for few words, or for many that an attacker made collide."""
    width = 1
    while width < len(words):
        for left in range(0, len(words), 2 * width):
            middle, right = min(left + width, len(words)), min(left + 2 * width, len(words))
            a, b = left, middle
            for i in range(left, right):
                if b == right or (a < middle and _before(words[a], words[b], entries, base)):
                    spare[i] = words[a]
                    a += 1
                else:
                    spare[i] = words[b]
                    b += 1
        for i in range(len(words)):
            words[i] = spare[i]
        width *= 2


@jit()
def _before(word, other, entries, base):
    if word >> _NUMBER_BITS != other >> _NUMBER_BITS:
        return word < other
    one, two = entries[word & _NUMBER], entries[other & _NUMBER]
    for i in range(min(one.length, two.length)):
        a, b = load_byte(base + one.start + i), load_byte(base + two.start + i)
        if a != b:
            return a < b
    return one.length < two.length


@jit(forceinline=True)
def _word(h, entry):
    return (h & ~_NUMBER) | entry


@jit(forceinline=True)
def _home(h, table):
    return (h >> _NUMBER_BITS) & np.uint64(len(table) - 1)
