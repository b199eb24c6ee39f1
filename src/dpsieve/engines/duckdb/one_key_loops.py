"""The key of each unit with the smallest hash: a table of units, and an arena with the bytes that it refers to.

A cell of the table is four words: the hash of the key that is kept, the unit, where the key's bytes are (0 where the
cell is empty), and where the unit's bytes are. A unit is either a whole number, which is its word, or a text, whose
word is its hash; then a match is always checked on the bytes. Units are never taken for each other by hashes alone: one
unit more or less must change one key. Of keys with equal hashes the one whose bytes come first is kept, as in SQL.

Bytes are referred to by a word, arena << 58 | start << 24 | length, which is never 0, as an arena is used from its
second byte on. Each thread has an arena, and `arenas` has the addresses of all. New bytes go to the end, and those that
nothing refers to any more stay until `compact`. Where a search will start is known some rows ahead, and requested then,
so that memory is not waited for.

Cells lie in the order of an angle of their unit, but for those that found theirs taken, which come next. So parts of
the circle can be merged each by itself, and cells are met in the order they will have.

Nothing is checked here: `duckdb.one_key` sees to it that the addresses are those of buffers that it keeps alive.
"""

import numpy as np

from dpsieve.engines.duckdb.own_database import FIRST_FREE, NUMBER
from dpsieve.engines.duckdb.vectors import (
    answer,
    column,
    frame_of,
    has_grown,
    holds_null,
    leave,
    rows_of,
    stop,
    take,
    text_at,
    words_at,
)
from dpsieve.exact.hashing import copy, digest, fold, load_byte, load_word, prefetch, same
from dpsieve.exact.jit import callback, jit

# The words of a frame: whether units are texts, the addresses of the salt and of all arenas; the address and the length
# of its table, the length of its arena, how many units and bytes it holds, and how many bytes are wanted.
TEXTS, SALT, ARENAS, CELLS, SIZE, LENGTH, UNITS, USED, WANTED, FIELDS = range(FIRST_FREE, FIRST_FREE + 10)
LENGTH_BITS, START_BITS, MOST_ARENAS = 24, 34, 64
_AHEAD, _GROUP = 32, 32
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_BITS = np.uint64(LENGTH_BITS)
_LENGTH = (_ONE << _BITS) - _ONE
_ARENA = np.uint64(LENGTH_BITS + START_BITS)
_START = (_ONE << np.uint64(START_BITS)) - _ONE
LONGEST = (1 << LENGTH_BITS) - 1
_HALF = np.uint64(32)
_LOWER = (_ONE << _HALF) - _ONE
_CELL = 32
_STRETCH, _GOLDEN = np.uint64(20), np.uint64(0x9E3779B97F4A7C15)


@jit(nogil=True)
def add(done, count, units, keys, orders, frame):
    """Take rows from `done` on; return how many are done, fewer than `count` where there is no room for the next."""
    cells, salt, arenas, texts = _cells(frame), words_at(frame[SALT], 8), _arenas(frame), frame[TEXTS] != 0
    words, homes = np.empty(_AHEAD, np.uint64), np.empty(_AHEAD, np.uint64)
    for i in range(done - _AHEAD, count):
        near, ahead, middle = i & (_AHEAD - 1), i + _AHEAD, i + _AHEAD // 2
        word, slot = words[near], homes[near]
        if ahead < count:
            words[near] = _word(ahead, units, texts, salt)
            homes[near] = _home(words[near], cells, salt, 1)
            prefetch(cells.ctypes.data + _CELL * np.int64(homes[near]))
        if texts and done <= middle < count:
            prefetch(bytes_at(cells[homes[middle & (_AHEAD - 1)], 3], arenas)[0])
        if i < done:
            continue
        unit, order = text_at(units, i) if texts else (0, 0), load_word(orders + 8 * i)
        slot = _find(word, unit, slot, cells, texts, arenas)
        may_keep = order <= cells[slot, 0] or cells[slot, 2] == _ZERO
        if may_keep and not _keep(word, unit, order, text_at(keys, i), slot, cells, frame):
            return i
    return count


@jit(nogil=True)
def merge(source, target, part, parts, done):
    """Take one of several parts of the units of another table; return how many cells are done, or -1 for all.

    A unit of this part lies in a cell of it, or after them with no empty cell between.
    """
    cells, more, salt, arenas = _cells(target), _cells(source), words_at(source[SALT], 8), _arenas(source)
    count, texts = len(more), source[TEXTS] != 0
    first, last = part * count // parts, -(-(part + 1) * count // parts)
    for place in range(first + done, first + count):
        slot = place & (count - 1)
        if more[slot, 2] == _ZERO:
            if place >= last:
                break
            continue
        word = more[slot, 1]
        if np.int64(_angle(word, salt) * np.uint64(parts) >> _HALF) != part:
            continue
        found = _find(word, bytes_at(more[slot, 3], arenas), _home(word, cells, salt, parts), cells, texts, arenas)
        new = cells[found, 2] == _ZERO
        if new:
            if is_full(target[UNITS], cells):
                return place - first
            target[UNITS] += 1
        if new or _comes_first(more[slot, 0], bytes_at(more[slot, 2], arenas), cells[found], arenas):
            for j in range(4):
                cells[found, j] = more[slot, j]
    return -1


@jit(forceinline=True)
def is_full(units, cells):
    """Tell whether this number of units leaves no room for another: a search ends at an empty cell."""
    return 4 * units >= 3 * len(cells)


@jit(nogil=True)
def rehash(cells, larger, salt, parts):
    """Move all cells to a larger table."""
    mask = np.uint64(len(larger) - 1)
    for i in range(len(cells)):
        if cells[i, 2] != _ZERO:
            slot = _home(cells[i, 1], larger, salt, parts)
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
def compact(cells, arenas, other, number):
    """Move all bytes that are referred to into a new arena of this number; return what of it is used then."""
    used = 1
    for i in range(len(cells)):
        for j in range(2, 4):
            if cells[i, j] != _ZERO:
                place, length = bytes_at(cells[i, j], arenas)
                copy(other.ctypes.data + used, place, length)
                cells[i, j] = reference(number, used, length)
                used += length
    return used


@jit(nogil=True)
def tally(position, found, kept, numbers, arenas, table, refs, counts, salt):
    """Sum the numbers of each key, or 1 where they are None; return how many of `kept` are done, and keys are found.

    `kept` refers to keys, or is 0. `refs` and `counts` hold each key from 1 on, as far as there is room. A word of
    `table` is 0 where empty, else the upper half of a key's hash and the key's place: 2^32 keys would take 2^37 bytes.
    """
    words, mask = (salt[0], salt[1], salt[2], salt[3]), np.uint64(len(table) - 1)
    near, hashes = np.empty(_GROUP, np.int64), np.empty(_GROUP, np.uint64)
    while position < len(kept):
        filled = 0
        while filled < _GROUP and position < len(kept):
            if kept[position] != _ZERO:
                place, length = bytes_at(kept[position], arenas)
                prefetch(place)
                prefetch(place + length)
                near[filled] = position
                filled += 1
            position += 1
        for i in range(filled):
            place, length = bytes_at(kept[near[i]], arenas)
            hashes[i] = digest(place, length, words)
            prefetch(table.ctypes.data + 8 * np.int64(hashes[i] & mask))
        for i in range(filled):
            prefetch(bytes_at(refs[table[hashes[i] & mask] & _LOWER], arenas)[0])
        for i in range(filled):
            slot, word = hashes[i] & mask, kept[near[i]]
            place, length = bytes_at(word, arenas)
            while table[slot] != _ZERO:
                if (table[slot] ^ hashes[i]) >> _HALF == _ZERO:
                    other = refs[table[slot] & _LOWER]
                    if (other ^ word) & _LENGTH == _ZERO and same(place, bytes_at(other, arenas)[0], length):
                        break
                slot = (slot + _ONE) & mask
            if table[slot] == _ZERO:
                if found + 1 == len(refs):
                    return near[i], found
                found += 1
                table[slot] = (hashes[i] & ~_LOWER) | np.uint64(found)
                refs[found] = word
            counts[table[slot] & _LOWER] += 1 if numbers is None else numbers[near[i]]
    return position, found


@jit(nogil=True)
def place_keys(refs, arenas, table, salt):
    """Fill an empty table with the keys from 1 on."""
    mask = np.uint64(len(table) - 1)
    for i in range(1, len(refs)):
        place, length = bytes_at(refs[i], arenas)
        h = digest(place, length, (salt[0], salt[1], salt[2], salt[3]))
        slot = h & mask
        while table[slot] != _ZERO:
            slot = (slot + _ONE) & mask
        table[slot] = (h & ~_LOWER) | np.uint64(i)


@jit(nogil=True)
def gather(refs, arenas, starts, target):
    """Copy the bytes of each key to its place in `target`."""
    for i in range(len(refs)):
        place, length = bytes_at(refs[i], arenas)
        copy(target.ctypes.data + starts[i], place, length)


@jit(forceinline=True)
def _arenas(frame):
    return words_at(frame[ARENAS], MOST_ARENAS)


@jit(forceinline=True)
def _cells(frame):
    return words_at(frame[CELLS], (frame[SIZE], 4))


@jit(forceinline=True)
def _word(i, units, texts, salt):
    """Return the word that stands for a unit: a whole number itself, or the hash of a text."""
    if not texts:
        return load_word(units + 8 * i)
    place, length = text_at(units, i)
    return digest(place, length, (salt[0], salt[1], salt[2], salt[3]))


@jit(forceinline=True)
def _angle(word, salt):
    """Return the place of a unit on a circle of 2^32 steps.

    Multiples of the golden ratio lie evenly on it. So numbers that differ in their last 20 bits alone, as ids that are
    counted up do, hardly meet; how each stretch of 2^20 numbers is turned is random, and secret.
    """
    return (word * _GOLDEN + fold((word >> _STRETCH) ^ salt[4], salt[5])) >> _HALF


@jit(forceinline=True)
def _home(word, cells, salt, parts):
    """Return the slot where the search for a unit starts; a table of one part of the circle is filled by that part."""
    return (_angle(word, salt) * np.uint64(parts) & _LOWER) * np.uint64(len(cells)) >> _HALF


@jit(forceinline=True)
def _keep(word, unit, order, key, slot, cells, frame):
    """Let the unit of a slot keep this key if it comes before its own; tell whether there was room for it."""
    new = cells[slot, 2] == _ZERO
    if not new and not _comes_first(order, key, cells[slot], _arenas(frame)):
        return True
    wanted = key[1] + unit[1] * new
    if (new and is_full(frame[UNITS], cells)) or wanted > min(frame[LENGTH] - frame[USED], LONGEST):
        frame[WANTED] = wanted
        return False
    if new:
        frame[UNITS] += 1
        cells[slot, 1] = word
        if frame[TEXTS]:
            cells[slot, 3] = _put(unit, frame)
    cells[slot, 0] = order
    cells[slot, 2] = _put(key, frame)
    return True


@jit(forceinline=True)
def _comes_first(order, key, cell, arenas):
    """Return whether a key with this hash comes before the one that is kept."""
    return order < cell[0] or (order == cell[0] and _before(key, bytes_at(cell[2], arenas)))


@jit(forceinline=True)
def _find(word, unit, slot, cells, texts, arenas):
    """Return the slot of a unit, or the empty one where it belongs."""
    mask = np.uint64(len(cells) - 1)
    while cells[slot, 2] != _ZERO:
        if cells[slot, 1] == word:
            if not texts:
                break
            place, size = bytes_at(cells[slot, 3], arenas)
            if size == unit[1] and same(unit[0], place, size):
                break
        slot = (slot + _ONE) & mask
    return slot


@jit()
def _before(key, other):
    """Return whether a key comes before another one, by their bytes; of equal ones neither does."""
    if key[1] == other[1] and same(key[0], other[0], key[1]):
        return False
    for j in range(min(key[1], other[1])):
        a, b = load_byte(key[0] + j), load_byte(other[0] + j)
        if a != b:
            return a < b
    return key[1] < other[1]


@jit(forceinline=True)
def bytes_at(reference, arenas):
    """Return the address and the length of what a word refers to."""
    return np.int64(arenas[reference >> _ARENA] + (reference >> _BITS & _START)), np.int64(reference & _LENGTH)


@jit(forceinline=True)
def _put(text, frame):
    """Append a text to the arena; return the word that refers to it."""
    used, number = frame[USED], frame[NUMBER]
    copy(np.int64(_arenas(frame)[number]) + used, text[0], text[1])
    frame[USED] = used + text[1]
    return reference(number, used, text[1])


@jit(forceinline=True)
def reference(number, start, length):
    """Return the word that refers to bytes of an arena."""
    return np.uint64(number) << _ARENA | np.uint64(start) << _BITS | np.uint64(length)


@callback("void(int64, int64, int64)")
def visit(info, chunk, result):
    """Take rows of a unit, a key and its hash from DuckDB; end the query where there is a null, or no room."""
    frame, done, count = frame_of(info, FIELDS), 0, rows_of(chunk)
    take(frame)
    failed = holds_null(chunk, 0) or holds_null(chunk, 1) or (frame[SIZE] == 0 and not has_grown(frame))
    while done < count and not failed:
        done = add(done, count, column(chunk, 0), column(chunk, 1), column(chunk, 2), frame)
        failed = done < count and not has_grown(frame)
    leave(frame)
    if failed:
        stop(info, frame)
    answer(result, count)
