"""Compiled loops over (unit, key) pairs: partition them by unit, bound each unit to its first keys, sort and count.

A collected pair is three words: the unit, an integer or the number of a text; the number of the key; and its hash.
Pairs are partitioned by unit into parts that fit into the cache, and there grouped by unit and sorted.

In `true_data.Pairs`, unit u has the keys key_numbers[starts[u]:starts[u + 1]], none of them twice.
"""

import numpy as np

from dpsieve.compiled.jit import jit
from dpsieve.compiled.memory import fold
from dpsieve.engines.duckdb.compiled.numbering_loops import comes_before

_SHORT = 16
_ONE = np.uint64(1)
_HALF = np.uint64(32)


@jit(nogil=True)
def count_parts(units, new_units, bits, salt, counts):
    """Count the pairs of each of 2^bits parts of the units."""
    for unit in units:
        counts[_part(_renamed(unit, new_units), bits, salt)] += 1


@jit(nogil=True)
def divide(units, keys, orders, new_units, new_keys, bits, salt, ends, units_there, keys_there, orders_there):
    """Append pairs to their parts; units and keys get new numbers where these are passed."""
    for i in range(len(units)):
        unit = _renamed(units[i], new_units)
        part = _part(unit, bits, salt)
        place = ends[part]
        ends[part] = place + 1
        units_there[place] = unit
        keys_there[place] = keys[i] if new_keys is None else new_keys[keys[i]]
        orders_there[place] = orders[i]


@jit(nogil=True)
def settle(units, keys, orders, most, names, texts, blocks, salt, sizes, scratch):
    """Keep the first `most` distinct keys of each unit: pairs at the beginning of the arrays, units after each other.

    Return the numbers of pairs and of units. The units are then at the beginning of `units`, and `sizes` has the number
    of keys of each; `scratch` has scratch buffers. Keys with equal hashes are ordered by their values: `names` has a
    word per number, from 1 on, an integer or a reference to one of the `texts` in `blocks`; it is empty where the
    numbers are the keys.
    """
    if most == 1:
        return _first_keys(units, keys, orders, names, texts, blocks, salt, sizes, scratch[-1])
    words, _, starts, _, own_keys, own_orders, _ = scratch
    found, filled, waiting = _group(units, keys, orders, salt, scratch), 0, np.empty((64, 2), np.int64)
    for u in range(found):
        _quicksort(starts[u], starts[u + 1] - 1, own_keys, own_orders, names, texts, blocks, salt, waiting)
        first, begin = filled, starts[u]
        for i in range(begin, starts[u + 1]):
            again = i > begin and own_orders[i] == own_orders[i - 1] and own_keys[i] == own_keys[i - 1]
            if not again and filled - first < most:
                keys[filled], orders[filled] = own_keys[i], own_orders[i]
                filled += 1
        units[u], sizes[u] = words[u], filled - first
    return filled, found


@jit(nogil=True)
def is_bounded(units, sizes, keys, orders, most, key_count, part, bits, salt, table):
    """Return whether each unit of a part occurs once, and keeps at most `most` keys, each once.

    Units of different parts differ if each is in the part of its number. `table` is a scratch buffer. Keys of a unit
    are in the order of their hashes, so that equal ones would be adjacent.
    """
    place, mask = 0, _clear(table, len(units))
    for u in range(len(units)):
        slot = fold(units[u] ^ salt[4], salt[5]) & mask
        while table[slot] != 0:
            if units[table[slot] - 1] == units[u]:
                return False
            slot = (slot + _ONE) & mask
        table[slot] = u + 1
        if _part(units[u], bits, salt) != part or not 0 < sizes[u] <= min(most, len(keys) - place):
            return False
        for i in range(place, place + sizes[u]):
            follows = i == place or orders[i] > orders[i - 1] or (orders[i] == orders[i - 1] and keys[i] != keys[i - 1])
            if not follows or not 0 <= keys[i] < key_count:
                return False
        place += sizes[u]
    return place == len(keys)


@jit()
def _first_keys(units, keys, orders, names, texts, blocks, salt, sizes, table):
    """Keep the first key of each unit, without a sort; see `settle`."""
    found, mask = 0, _clear(table, len(units))
    for i in range(len(units)):
        slot = fold(units[i] ^ salt[4], salt[5]) & mask
        while table[slot] != 0 and units[table[slot] - 1] != units[i]:
            slot = (slot + _ONE) & mask
        place = table[slot] - 1
        if place < 0:
            place = found
            found += 1
            units[place], sizes[place], table[slot] = units[i], 1, found
        elif not _before(orders[i], keys[i], orders[place], keys[place], names, texts, blocks):
            continue
        keys[place], orders[place] = keys[i], orders[i]
    return found, found


@jit()
def _group(units, keys, orders, salt, scratch):
    """Group pairs by unit into the scratch buffers: units, starts, keys and hashes; return the number of units."""
    words, who, starts, ends, own_keys, own_orders, table = scratch
    count, found, mask = len(units), 0, _clear(table, len(units))
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


@jit()
def first_keys(starts, key_numbers, most):
    """Return the starts and the key numbers of the first `most` keys of each unit."""
    bounded_starts = np.zeros(len(starts), np.int64)
    for unit in range(len(starts) - 1):
        bounded_starts[unit + 1] = bounded_starts[unit] + min(most, starts[unit + 1] - starts[unit])
    bounded = np.empty(bounded_starts[-1], np.int32)
    for unit in range(len(starts) - 1):
        for k in range(bounded_starts[unit + 1] - bounded_starts[unit]):
            bounded[bounded_starts[unit] + k] = key_numbers[starts[unit] + k]
    return bounded_starts, bounded


@jit()
def count_keys(key_numbers, counts):
    """Add one to the count of a key for each of its units."""
    for key in key_numbers:
        counts[key] += 1


@jit()
def sort_keys(starts, key_numbers):
    """Sort the keys of each unit by number."""
    for unit in range(len(starts) - 1):
        key_numbers[starts[unit] : starts[unit + 1]].sort()


@jit(nogil=True)
def arrange(turn, starts, keys, numbers, arranged):
    """Write the keys of each unit, units in the order of `turn`, under new numbers."""
    place = 0
    for u in turn:
        for i in range(starts[u], starts[u + 1]):
            arranged[place] = numbers[keys[i]]
            place += 1


@jit(forceinline=True)
def _clear(table, count):
    """Empty a hash table for this number of values; return the mask of its slots."""
    room = 4
    while room < 2 * count:
        room *= 2
    table[:room] = 0
    return np.uint64(room - 1)


@jit(forceinline=True)
def _renamed(unit, new_units):
    return unit if new_units is None else np.uint64(new_units[unit])


@jit(forceinline=True)
def _part(unit, bits, salt):
    return np.int64(fold(unit ^ salt[6], salt[7]) >> _HALF >> np.uint64(32 - bits))


@jit(forceinline=True)
def _before(order, key, other_order, other_key, names, texts, blocks):
    if order != other_order or key == other_key:
        return order < other_order
    return key < other_key if len(names) == 0 else comes_before(names[key + 1], names[other_key + 1], texts, blocks)


@jit()
def _quicksort(low, high, keys, orders, names, texts, blocks, salt, waiting):
    """Sort from `low` to `high`; the longer part is pushed to the stack `waiting`, whose depth is then at most 64.

    Someone may choose the order of keys with equal hashes. The pivot is secret, so no order takes much longer.
    """
    depth = 0
    while True:
        while high - low >= _SHORT:
            secret = fold(np.uint64(low) ^ salt[6], np.uint64(high) ^ salt[7]) >> _HALF
            middle = low + np.int64(secret * np.uint64(high - low) >> _HALF)
            for a, b in ((low, middle), (middle, high), (low, middle)):
                if _before(orders[b], keys[b], orders[a], keys[a], names, texts, blocks):
                    orders[a], orders[b] = orders[b], orders[a]
                    keys[a], keys[b] = keys[b], keys[a]
            order, key = orders[middle], keys[middle]
            i, j = low, high
            while i <= j:
                while _before(orders[i], keys[i], order, key, names, texts, blocks):
                    i += 1
                while _before(order, key, orders[j], keys[j], names, texts, blocks):
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
            while j >= low and _before(order, key, orders[j], keys[j], names, texts, blocks):
                orders[j + 1], keys[j + 1] = orders[j], keys[j]
                j -= 1
            orders[j + 1], keys[j + 1] = order, key
        if depth == 0:
            return
        depth -= 1
        low, high = waiting[depth, 0], waiting[depth, 1]
