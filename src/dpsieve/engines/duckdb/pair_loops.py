"""Compiled loops for pairs of a unit and a key: keys get numbers, pairs are noted, and each unit keeps its first keys.

Values are numbered by a table with linear search. An entry is 0 where empty, else the upper half of the value's hash
and one more than its number. The word of a number is the value itself, a whole number, or refers to the bytes of a text
(see `one_key_loops`). Values are never taken for each other by hashes alone.

A pair is three words: the unit, a whole number or the number of a text; the number of the key; and its hash. Pairs are
divided by unit into parts that fit into the cache, and there put together by unit and in order.

Nothing is checked here: `duckdb.pairs` sees to it that the addresses are those of buffers that it keeps alive.
"""

import numpy as np

from dpsieve.engines.duckdb.one_key_loops import LONGEST, MOST_ARENAS, bytes_at, reference
from dpsieve.engines.duckdb.own_database import FIRST_FREE
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
from dpsieve.exact.hashing import copy, digest, fold, load_word, prefetch, same
from dpsieve.exact.jit import callback, jit

# The words of a frame: the addresses of the states of units and of keys, or 0 where they stand for themselves; those of
# the pairs' units, keys and hashes; how many pairs there is room for, and how many there are; and what wants more room.
UNITS, KEYS, NOTED_UNITS, NOTED_KEYS, NOTED_ORDERS, ROOM, FILLED, WANTS, FIELDS = range(FIRST_FREE, FIRST_FREE + 9)
# The words of the state of values: whether they are texts, the addresses of the salt and of the arenas, with the number
# and length of their own; table and words by address and length; how many values and bytes there are, and bytes wanted.
TEXTS, SALT, ARENAS, ARENA, LENGTH, TABLE, TABLE_SIZE, WORDS, SIZE, FOUND, USED, WANTED, STATE = range(13)
_GROUP, _SHORT = 32, 16
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_HALF = np.uint64(32)
_LOWER = (_ONE << _HALF) - _ONE


@jit(nogil=True)
def number(done, count, values, known, numbers, state):
    """Write the numbers of values from `done` on; return how many are done, fewer than `count` where there is no room.

    `values` is the address of a vector, or with `known` of words that refer to texts, or are numbers.
    """
    arenas, table, words = (
        words_at(state[ARENAS], MOST_ARENAS),
        words_at(state[TABLE], state[TABLE_SIZE]),
        _words(state),
    )
    salt, texts, mask = words_at(state[SALT], 8), state[TEXTS] != 0, np.uint64(state[TABLE_SIZE] - 1)
    hashes = np.empty(_GROUP, np.uint64)
    places, lengths = np.empty(_GROUP, np.int64), np.empty(_GROUP, np.int64)
    while done < count:
        group = min(_GROUP, count - done)
        for j in range(group):
            if texts:
                i = done + j
                places[j], lengths[j] = bytes_at(load_word(values + 8 * i), arenas) if known else text_at(values, i)
                hashes[j] = digest(places[j], lengths[j], (salt[0], salt[1], salt[2], salt[3]))
            else:
                hashes[j] = fold(load_word(values + 8 * (done + j)) ^ salt[4], salt[5])
            prefetch(table.ctypes.data + 8 * np.int64(hashes[j] & mask))
        for j in range(group):
            prefetch(words.ctypes.data + 8 * np.int64(table[hashes[j] & mask] & _LOWER))
        if texts:
            for j in range(group):
                prefetch(bytes_at(words[table[hashes[j] & mask] & _LOWER], arenas)[0])
        for j in range(group):
            i, slot, found = done + j, hashes[j] & mask, state[FOUND]
            word = _ZERO if texts else load_word(values + 8 * i)
            while table[slot] != _ZERO:
                if (table[slot] ^ hashes[j]) >> _HALF == _ZERO:
                    own = words[table[slot] & _LOWER]
                    if not texts:
                        if own == word:
                            break
                    else:
                        place, length = bytes_at(own, arenas)
                        if length == lengths[j] and same(places[j], place, length):
                            break
                slot = (slot + _ONE) & mask
            if table[slot] == _ZERO:
                if texts:
                    room = LONGEST if known else min(LONGEST, state[LENGTH] - state[USED])
                    if found + 1 == len(words) or lengths[j] > room:
                        state[WANTED] = lengths[j]
                        return i
                    if known:
                        word = load_word(values + 8 * i)
                    else:
                        copy(np.int64(arenas[state[ARENA]]) + state[USED], places[j], lengths[j])
                        word = reference(state[ARENA], state[USED], lengths[j])
                        state[USED] += lengths[j]
                elif found + 1 == len(words):
                    return i
                state[FOUND] = found + 1
                table[slot] = (hashes[j] & ~_LOWER) | np.uint64(found + 1)
                words[found + 1] = word
            numbers[i] = np.int64(table[slot] & _LOWER) - 1
        done += group
    return count


@jit(nogil=True)
def rehash(table, larger, state):
    """Move all entries to a larger table."""
    words, arenas, salt = _words(state), words_at(state[ARENAS], MOST_ARENAS), words_at(state[SALT], 8)
    mask = np.uint64(len(larger) - 1)
    for entry in table:
        if entry != _ZERO:
            word = words[entry & _LOWER]
            if state[TEXTS]:
                place, length = bytes_at(word, arenas)
                h = digest(place, length, (salt[0], salt[1], salt[2], salt[3]))
            else:
                h = fold(word ^ salt[4], salt[5])
            slot = h & mask
            while larger[slot] != _ZERO:
                slot = (slot + _ONE) & mask
            larger[slot] = entry


@jit(nogil=True)
def count_parts(units, new_units, bits, salt, counts):
    """Count the pairs of each of 2^bits parts of the units."""
    for unit in units:
        counts[_part(_renamed(unit, new_units), bits, salt)] += 1


@jit(nogil=True)
def divide(units, keys, orders, new_units, new_keys, bits, salt, ends, units_there, keys_there, orders_there):
    """Move pairs to where the pairs of their part end so far; units and keys get new numbers where there are some."""
    for i in range(len(units)):
        unit = _renamed(units[i], new_units)
        part = _part(unit, bits, salt)
        place = ends[part]
        ends[part] = place + 1
        units_there[place] = unit
        keys_there[place] = keys[i] if new_keys is None else new_keys[keys[i]]
        orders_there[place] = orders[i]


@jit(nogil=True)
def settle(units, keys, orders, most, ranks, numbers_rank, salt, sizes, desk):
    """Keep the first `most` distinct keys of each unit: pairs at the beginning of the arrays, units after each other.

    Returns how many pairs and how many units these are. The units are then at the beginning of `units`, and `sizes` has
    how many keys each of them keeps; `desk` is room to work in. Keys with equal hashes are ordered by their `ranks`, or
    by their numbers if `numbers_rank`; where there are no ranks and they are needed, nothing is changed and the answer
    is (-1, 0).
    """
    words, _, starts, _, own_keys, own_orders, _ = desk
    found, tied, waiting = _group(units, keys, orders, salt, desk), False, np.empty((64, 2), np.int64)
    for u in range(found):
        _quicksort(starts[u], starts[u + 1] - 1, own_keys, own_orders, ranks, waiting)
        for i in range(starts[u] + 1, starts[u + 1]):
            tied |= own_orders[i] == own_orders[i - 1] and own_keys[i] != own_keys[i - 1]
    if tied and not numbers_rank and len(ranks) == 0:
        return -1, 0
    filled = 0
    for u in range(found):
        first, begin = filled, starts[u]
        for i in range(begin, starts[u + 1]):
            again = i > begin and own_orders[i] == own_orders[i - 1] and own_keys[i] == own_keys[i - 1]
            if not again and filled - first < most:
                keys[filled], orders[filled] = own_keys[i], own_orders[i]
                filled += 1
        units[u], sizes[u] = words[u], filled - first
    return filled, found


@jit()
def _group(units, keys, orders, salt, desk):
    """Write units, where the pairs of each start, and keys and orders by unit on the desk; return how many units."""
    words, who, starts, ends, own_keys, own_orders, table = desk
    count, room = len(units), 4
    while room < 2 * count:
        room *= 2
    table[:room] = 0
    found, mask = 0, np.uint64(room - 1)
    for i in range(count):
        slot = fold(units[i] ^ salt[4], salt[5]) & mask
        while table[slot] != 0 and words[table[slot] - 1] != units[i]:
            slot = (slot + _ONE) & mask
        if table[slot] == 0:
            words[found] = units[i]
            ends[found] = 0
            found += 1
            table[slot] = found
        who[i] = table[slot] - 1
        ends[who[i]] += 1
    place = 0
    for u in range(found):
        starts[u] = place
        place += ends[u]
        ends[u] = starts[u]
    starts[found] = place
    for i in range(count):
        place = ends[who[i]]
        ends[who[i]] = place + 1
        own_keys[place], own_orders[place] = keys[i], orders[i]
    return found


@jit(nogil=True)
def arrange(turn, starts, keys, numbers, held):
    """Write the keys of each unit, units in the order of `turn`, under new numbers."""
    place = 0
    for u in turn:
        for i in range(starts[u], starts[u + 1]):
            held[place] = numbers[keys[i]]
            place += 1


@jit(nogil=True)
def sums(starts, keys, weights, totals, present):
    """Add to the total of each key the weights of its units, and mark it; units with d keys have weights[d - 1]."""
    for u in range(len(starts) - 1):
        weight = weights[min(starts[u + 1] - starts[u], len(weights)) - 1]
        for i in range(starts[u], starts[u + 1]):
            totals[keys[i]] += weight
            present[keys[i]] = True


@jit(forceinline=True)
def _words(state):
    return words_at(state[WORDS], state[SIZE])


@jit(forceinline=True)
def _renamed(unit, new_units):
    return unit if new_units is None else np.uint64(new_units[unit])


@jit(forceinline=True)
def _part(unit, bits, salt):
    return np.int64(fold(unit ^ salt[6], salt[7]) >> _HALF >> np.uint64(32 - bits))


@jit(forceinline=True)
def _before(order, key, other_order, other_key, ranks):
    if order != other_order or len(ranks) == 0:
        return order < other_order or (order == other_order and key < other_key)
    return ranks[key] < ranks[other_key]


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


@jit()
def _numbers(chunk, which, state, numbers, frame):
    """Write the numbers of a column of a chunk; tell whether there was room for all values."""
    done, count = 0, rows_of(chunk)
    while done < count:
        done = number(done, count, column(chunk, which), False, numbers, words_at(state, STATE).view(np.int64))
        if done < count:
            frame[WANTS] = state
            if not has_grown(frame):
                return False
    return True


@jit()
def _note(chunk, frame):
    """Note the rows of a chunk; tell whether there was room for them."""
    count = rows_of(chunk)
    numbers = np.empty((2, count), np.int64)
    for which in range(2):
        if frame[UNITS + which] and not _numbers(chunk, which, frame[UNITS + which], numbers[which], frame):
            return False
        if not frame[UNITS + which]:
            numbers[which] = words_at(column(chunk, which), count).view(np.int64)
    frame[WANTS] = 0
    while frame[FILLED] + count > frame[ROOM]:
        if not has_grown(frame):
            return False
    filled, orders = frame[FILLED], column(chunk, 2)
    units, noted_orders = words_at(frame[NOTED_UNITS], frame[ROOM]), words_at(frame[NOTED_ORDERS], frame[ROOM])
    keys = words_at(frame[NOTED_KEYS], (frame[ROOM] + 1) // 2).view(np.int32)
    for i in range(count):
        units[filled + i], keys[filled + i] = np.uint64(numbers[0, i]), np.int32(numbers[1, i])
        noted_orders[filled + i] = load_word(orders + 8 * i)
    frame[FILLED] = filled + count
    return True


@callback("void(int64, int64, int64)")
def visit(info, chunk, result):
    """Note rows of a unit, a key and its hash from DuckDB; end the query where there is a null, or no room."""
    frame = frame_of(info, FIELDS)
    take(frame)
    failed = holds_null(chunk, 0) or holds_null(chunk, 1) or not _note(chunk, frame)
    leave(frame)
    if failed:
        stop(info, frame)
    answer(result, rows_of(chunk))
