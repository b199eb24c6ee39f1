"""Compiled loops for pairs of a unit and a key: values get numbers, and each unit keeps its first keys.

Values are numbered by a table with linear search. An entry is 0 where empty, else the upper half of the value's hash
and one more than its number. The word of a number is the value itself, a whole number, or says where the bytes of a
text are: start << 24 | length. Values are never taken for each other by hashes alone.

Nothing is checked here: `duckdb.pairs` sees to it that the addresses are those of buffers that it keeps alive.
"""

import numpy as np

from dpsieve.engines.duckdb.one_key_loops import LENGTH_BITS
from dpsieve.exact.hashing import copy, digest, fold, load_word, prefetch, same
from dpsieve.exact.jit import jit

_GROUP, _SHORT = 32, 16
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_BITS = np.uint64(LENGTH_BITS)
_LENGTH = (_ONE << _BITS) - _ONE
_HALF = np.uint64(32)
_LOWER = (_ONE << _HALF) - _ONE


@jit(nogil=True)
def number(count, values, starts, numbers, table, words, arena, state, salt):
    """Write the numbers of values whose place in `numbers` is not -1; return how many values are done.

    These are fewer than `count` where there is no room for the next.

    `values` is the address of whole numbers, or of the bytes of texts that start at `starts`, which is None for
    numbers. `state` has how many values are numbered and the length of the arena in use.
    """
    base, found, used = arena.ctypes.data, state[0], state[1]
    mask = np.uint64(len(table) - 1)
    hashes = np.empty(_GROUP, np.uint64)
    done = 0
    while done < count:
        group = min(_GROUP, count - done)
        for j in range(group):
            if numbers[done + j] < 0:
                continue
            hashes[j] = _hash(done + j, values, starts, salt)
            prefetch(table.ctypes.data + 8 * np.int64(hashes[j] & mask))
        for j in range(group):
            if numbers[done + j] >= 0:
                prefetch(words.ctypes.data + 8 * np.int64(table[hashes[j] & mask] & _LOWER))
        for j in range(group):
            i, slot = done + j, hashes[j] & mask
            if numbers[i] < 0:
                continue
            while table[slot] != _ZERO:
                near = (table[slot] ^ hashes[j]) >> _HALF == _ZERO
                if near and _equal(i, values, starts, words[table[slot] & _LOWER], base):
                    break
                slot = (slot + _ONE) & mask
            if table[slot] == _ZERO:
                length = _ZERO if starts is None else np.uint64(starts[i + 1] - starts[i])
                if found + 1 == len(words) or used + np.int64(length) > len(arena):
                    state[0], state[1] = found, used
                    return i
                found += 1
                table[slot] = (hashes[j] & ~_LOWER) | np.uint64(found)
                if starts is None:
                    words[found] = load_word(values + 8 * i)
                else:
                    copy(base + used, values + starts[i], np.int64(length))
                    words[found] = np.uint64(used) << _BITS | length
                    used += np.int64(length)
            numbers[i] = np.int64(table[slot] & _LOWER) - 1
        done += group
    state[0], state[1] = found, used
    return count


@jit(nogil=True)
def leave_out(count, units, unit_starts, numbers, salt, part, parts):
    """Write -1 where a unit belongs to another part."""
    for i in range(count):
        numbers[i] = 0 if part_of(word_of(i, units, unit_starts, salt), parts, salt) == part else -1


@jit(nogil=True)
def note(units, keys, orders, limits, noted_units, noted_keys, noted_orders, filled):
    """Append rows, without those of other parts and those beyond the limit of their unit; return how many are there."""
    for i in range(len(units)):
        u = units[i]
        if u >= 0 and (len(limits) == 0 or orders[i] <= limits[u]):
            noted_units[filled], noted_keys[filled], noted_orders[filled] = u, keys[i], orders[i]
            filled += 1
    return filled


@jit(nogil=True)
def rehash(table, larger, words, texts, arena, salt):
    """Move all entries to a larger table."""
    key = (salt[0], salt[1], salt[2], salt[3])
    mask = np.uint64(len(larger) - 1)
    for entry in table:
        if entry != _ZERO:
            word = words[entry & _LOWER]
            if texts:
                h = digest(arena.ctypes.data + np.int64(word >> _BITS), np.int64(word & _LENGTH), key)
            else:
                h = fold(word ^ salt[4], salt[5])
            slot = h & mask
            while larger[slot] != _ZERO:
                slot = (slot + _ONE) & mask
            larger[slot] = entry


@jit(nogil=True)
def group(units, keys, orders, starts, grouped_keys, grouped_orders):
    """Bring the pairs of each unit together: those of unit u from starts[u] on, which is filled in here."""
    for u in units:
        starts[u + 1] += 1
    for u in range(1, len(starts)):
        starts[u] += starts[u - 1]
    ends = starts[:-1].copy()
    for i in range(len(units)):
        place = ends[units[i]]
        ends[units[i]] = place + 1
        grouped_keys[place] = keys[i]
        grouped_orders[place] = orders[i]


@jit(nogil=True)
def sort(starts, keys, orders, ranks):
    """Sort the pairs of each unit by their order, then by the rank of the key; tell whether ranks ever decided."""
    tied = False
    waiting = np.empty((64, 2), np.int64)
    for u in range(len(starts) - 1):
        _quicksort(starts[u], starts[u + 1] - 1, keys, orders, ranks, waiting)
        for i in range(starts[u] + 1, starts[u + 1]):
            tied |= orders[i] == orders[i - 1] and keys[i] != keys[i - 1]
    return tied


@jit(nogil=True)
def keep(starts, sorted_keys, sorted_orders, most, units, keys, orders, limits):
    """Write the first `most` distinct keys of each unit, one unit after the other; return how many pairs these are.

    `starts` becomes where the pairs of each unit start now.

    The limit of a unit that has so many keys becomes the order of its last one: no pair beyond it will be kept.
    """
    filled = 0
    begin = starts[0]
    for u in range(len(starts) - 1):
        first, end = filled, starts[u + 1]
        starts[u] = first
        for i in range(begin, end):
            again = i > begin and sorted_orders[i] == sorted_orders[i - 1] and sorted_keys[i] == sorted_keys[i - 1]
            if not again:
                units[filled], keys[filled], orders[filled] = u, sorted_keys[i], sorted_orders[i]
                filled += 1
                if filled - first == most:
                    limits[u] = sorted_orders[i]
                    break
        begin = end
    starts[-1] = filled
    return filled


@jit(nogil=True)
def arrange(turn, starts, keys, numbers, held):
    """Write the keys of each unit, units in the order of `turn`, under new numbers."""
    place = 0
    for u in turn:
        for i in range(starts[u], starts[u + 1]):
            held[place] = numbers[keys[i]]
            place += 1


@jit(nogil=True)
def sums(starts, keys, weights, totals):
    """Add to the total of each key the weights of its units; units with d keys have weights[d - 1]."""
    for u in range(len(starts) - 1):
        for i in range(starts[u], starts[u + 1]):
            totals[keys[i]] += weights[min(starts[u + 1] - starts[u], len(weights)) - 1]


@jit(forceinline=True)
def _hash(i, values, starts, salt):
    if starts is None:
        return fold(load_word(values + 8 * i) ^ salt[4], salt[5])
    return digest(values + starts[i], starts[i + 1] - starts[i], (salt[0], salt[1], salt[2], salt[3]))


@jit(forceinline=True)
def _equal(i, values, starts, word, base):
    if starts is None:
        return word == load_word(values + 8 * i)
    length = starts[i + 1] - starts[i]
    return np.int64(word & _LENGTH) == length and same(values + starts[i], base + np.int64(word >> _BITS), length)


@jit(forceinline=True)
def _before(order, key, other_order, other_key, ranks):
    return order < other_order or (order == other_order and ranks[key] < ranks[other_key])


@jit()
def _quicksort(low, high, keys, orders, ranks, waiting):
    """Sort from `low` to `high`; the longer part waits, so that at most 64 do."""
    depth = 0
    while True:
        while high - low >= _SHORT:
            middle = (low + high) >> 1
            for a, b in ((low, middle), (middle, high), (low, middle)):
                if _before(orders[b], keys[b], orders[a], keys[a], ranks):
                    orders[a], orders[b] = orders[b], orders[a]
                    keys[a], keys[b] = keys[b], keys[a]
            order, key = orders[middle], keys[middle]
            i, j = low, high
            while i <= j:
                while _before(orders[i], keys[i], order, key, ranks):
                    i += 1
                while _before(order, key, orders[j], keys[j], ranks):
                    j -= 1
                if i <= j:
                    orders[i], orders[j] = orders[j], orders[i]
                    keys[i], keys[j] = keys[j], keys[i]
                    i += 1
                    j -= 1
            if j - low > high - i:
                waiting[depth, 0], waiting[depth, 1] = low, j
                low = i
            else:
                waiting[depth, 0], waiting[depth, 1] = i, high
                high = j
            depth += 1
        for i in range(low + 1, high + 1):
            order, key, j = orders[i], keys[i], i - 1
            while j >= low and _before(order, key, orders[j], keys[j], ranks):
                orders[j + 1], keys[j + 1] = orders[j], keys[j]
                j -= 1
            orders[j + 1], keys[j + 1] = order, key
        if depth == 0:
            return
        depth -= 1
        low, high = waiting[depth, 0], waiting[depth, 1]
