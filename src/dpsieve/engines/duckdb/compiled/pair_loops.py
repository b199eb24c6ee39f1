"""Compiled loops over (unit, key) pairs: collect them in parts by unit, bound each unit to its first keys, and count.

A collected pair is the unit, an integer or the number of a text, in 8 bytes; the number of the key, in 4; and a float
of 8 bytes for each column that is added up. Each thread that reads rows collects pairs in blocks of memory, one chain
of blocks for each part of the units, which fits into the cache of a core. A block is the address of the one before it
in its chain, and then its units, its keys and each column of values. The parts are ranges of the hash that orders
units, so parts whose units are sorted follow each other in order.

DuckDB's hash of unit and key, which orders the keys of a unit, is computed from those of the unit and of the key.

In `true_data.Pairs`, unit u has the keys key_numbers[starts[u]:starts[u + 1]], none of them twice.
"""

import sys

import numpy as np

from dpsieve.compiled.jit import jit
from dpsieve.compiled.memory import copy, fold, load_half, load_word, store_half, store_word
from dpsieve.engines.duckdb.compiled.numbering_loops import combine, comes_before, hash_word, ints_at

# The words of a chain of blocks, one per part: the address of its last block, or 0, and the pairs in that one and in
# those before it.
LAST, FILL, BEFORE, CHAIN = range(4)
# The words of a store of blocks: the addresses of the next new one and of the end, and the bytes of a block.
NEXT, END, SIZE, STORE = range(4)
PAIRS_OF_A_BLOCK = 256
_COLUMN = 8 * PAIRS_OF_A_BLOCK
_UNITS, _KEYS = 8, 8 + _COLUMN
_VALUES = _KEYS + _COLUMN // 2
BYTES_OF_A_BLOCK, BYTES_OF_A_COLUMN = _VALUES, _COLUMN
# What is known of a total: its column of values, what it is, and the numbers of `noise.totals`.
COLUMN, IS_MEAN, IS_RAW, LARGEST_ROW, STEPS, ZERO, PER_STEP, MISSING, GRID, TOTAL = range(10)

_LARGEST = sys.float_info.max
_SHORT = 32  # keys of a unit that are sorted by insertion
_ONE = np.uint64(1)
_HALF = np.uint64(32)
_LOWER = 0xFFFFFFFF
ITEM_BITS = 28
_UPPER_BITS = np.uint64((2**36 - 1) << ITEM_BITS)  # those of the hash that count, see `sql.queries`


@jit(forceinline=True, allocates=False)
def note(chains, part, unit, key, store):
    """Append a pair to its part; return the address of its first value in the block, or 0 without room for it."""
    fill = chains[part, FILL]
    if fill == PAIRS_OF_A_BLOCK:
        block = store[NEXT]
        if block == store[END]:
            return 0
        store[NEXT] = block + store[SIZE]
        store_word(block, np.uint64(chains[part, LAST]))
        chains[part, BEFORE] += fill
        chains[part, LAST], fill = block, 0
    place = chains[part, LAST]
    store_word(place + _UNITS + 8 * fill, unit)
    store_half(place + _KEYS + 4 * fill, key)
    chains[part, FILL] = fill + 1
    return place + _VALUES + 8 * fill


@jit(waits=False, nogil=True, allocates=False)
def append(done, units, keys, hashes, values, mask, salt, bits, chains, store):
    """Append rows from `done` on to their parts; return where it stopped, before the end without room.

    Args:
        hashes: DuckDB's hashes of units that are texts, or none.
        values: a row for each column of numbers.
        mask, salt: the bits that DuckDB hashes of a unit that is an integer, and its hash of the salt.
    """
    for i in range(done, len(units)):
        unit = np.uint64(units[i])
        unit_hash = hashes[i] if len(hashes) else combine(salt, hash_word(unit & mask))
        place = note(chains, part_of(unit_hash, bits), unit, keys[i], store)
        if place == 0:
            return i
        for c in range(len(values)):
            store_word(place + _COLUMN * c, values[c, i])
    return len(units)


@jit(forceinline=True, allocates=False)
def part_of(unit_hash, bits):
    """Return the part of a unit with this hash of DuckDB."""
    return np.int64(hash_word(unit_hash) >> np.uint64(64 - bits))


@jit(allocates=False)
def _load(chains, part, found, width, units, keys, values):
    """Copy the pairs of a part behind `found` other ones; return how many there are then."""
    block, fill = chains[part, LAST], chains[part, FILL]
    while block != 0:
        for i in range(fill):
            units[found + i] = load_word(block + _UNITS + 8 * i)
            keys[found + i] = load_half(block + _KEYS + 4 * i)
        for c in range(width):
            copy(values[c, found:].ctypes.data, block + _VALUES + _COLUMN * c, 8 * fill)
        found += fill
        block, fill = np.int64(load_word(block)), PAIRS_OF_A_BLOCK
    return found


@jit(waits=False, nogil=True, allocates=False)
def settle(part, chains, parts, units, keys, most, salt, totals, scratch):
    """Keep the first `most` distinct keys of each unit of a part; return the numbers of pairs and of units.

    The units are then at the beginning of the first scratch buffer, and the others have the keys, their hashes, the
    number of keys of each unit, and last what pairs add. Keys with equal hashes are ordered by their values.

    Args:
        chains: the addresses of the chains of each thread.
        parts: how many there are.
        units, keys: what is known of them, see `numbering.Values`; each with the numbers of each thread.
        most: the bound.
        salt: the key of hashes in tables.
        totals: what is added up, see `pairs.describe_totals`.
        scratch: see `pairs.make_scratch`.
    """
    words, who, orders, sizes, pair_units, pair_keys, ends, rows, row_orders, bases = scratch[:10]
    table, waiting, few, values, added = scratch[10:]
    total = 0
    for t in range(len(chains)):
        begin = total
        total = _load(ints_at(chains[t], (parts, CHAIN)), part, begin, len(values), pair_units, pair_keys, values)
        if units[4][t] != 0:
            numbers = ints_at(units[4][t], 1 << 31)
            for i in range(begin, total):
                pair_units[i] = np.uint64(numbers[np.int64(pair_units[i])])
        if keys[4][t] != 0:
            numbers = ints_at(keys[4][t], 1 << 31)
            for i in range(begin, total):
                pair_keys[i] = numbers[pair_keys[i]]
    found, mask = 0, _clear(table, total)
    for i in range(total):
        slot = fold(pair_units[i] ^ salt[4], salt[5]) & mask
        while table[slot] != 0 and words[table[slot] - 1] != pair_units[i]:
            slot = (slot + _ONE) & mask
        if table[slot] == 0:
            words[found], bases[found], sizes[found] = pair_units[i], hash_of_unit(pair_units[i], units), 0
            found += 1
            table[slot] = found
        who[i] = table[slot] - 1
        sizes[who[i]] += 1
    place = 0
    for u in range(found):
        ends[u] = place
        place += sizes[u]
    hashes = keys[1]
    for i in range(total):
        u, key = who[i], pair_keys[i]
        key_hash = hash_word(np.uint64(key)) if len(hashes) == 0 else hashes[key + 1]
        rows[ends[u]], row_orders[ends[u]] = i, hash_word(combine(bases[u], key_hash)) & _UPPER_BITS
        ends[u] += 1
    filled, place = 0, 0
    for u in range(found):
        end, first = ends[u], filled
        _sort(place, end - 1, rows, row_orders, pair_keys, keys[0], keys[2], keys[3], salt, waiting, few)
        while place < end and filled - first < most:
            begin, key, order = place, pair_keys[rows[place]], row_orders[place]
            while place < end and row_orders[place] == order and pair_keys[rows[place]] == key:
                place += 1
            who[filled], orders[filled] = key, order
            for t in range(len(totals)):
                added[t, filled] = _amount(totals[t], values, rows[begin:place])
            filled += 1
        place, sizes[u] = end, filled - first
    return filled, found


@jit(allocates=False)
def _amount(total, values, rows):
    """Return what a pair with these rows adds to a total; see `noise.totals`, and `sql.totals` for the same as SQL.

    Whole numbers of steps, below 2^59, are added up in two halves of 32 bits: those of 2^31 rows cannot overflow.
    """
    column, upper, lower, count = np.int64(total[COLUMN]), 0, 0, 0
    for i in rows:
        value = values[column, i]
        if -_LARGEST <= value <= _LARGEST:  # neither NaN nor infinite
            clipped = min(max(value, -total[LARGEST_ROW]), total[LARGEST_ROW])
            steps = np.int64(np.floor(clipped * total[STEPS] + 0.5))
            upper, lower, count = upper + (steps >> 32), lower + (steps & _LOWER), count + 1
    if count == 0:
        return total[MISSING]
    upper += lower >> 32
    x = _as_double(upper >> 32, np.uint64(upper) << _HALF | np.uint64(lower & _LOWER))
    if total[IS_MEAN] != 0:
        x = x / np.float64(count)
    if total[IS_RAW] != 0:
        return x
    return np.floor(min(max((x - total[ZERO]) * total[PER_STEP], 0.0), total[GRID]) + 0.5)


@jit(forceinline=True, allocates=False)
def _as_double(upper, lower):
    """Return an integer of 128 bits as DuckDB converts it."""
    return -np.float64(~lower) - 1.0 if upper == -1 else np.float64(lower) + np.float64(upper) * 2.0**64


@jit(waits=False, allocates=False)
def hash_salt(salt):
    """Return DuckDB's hash of the salt."""
    return hash_word(salt)


@jit(forceinline=True, allocates=False)
def hash_of_unit(unit, units):
    """Return DuckDB's hash of the salt and a unit: that of a text, or of an integer from that of the salt."""
    return units[1][np.int64(unit) + 1] if units[2] else combine(units[5], hash_word(unit & units[6]))


@jit(waits=False, nogil=True, allocates=False)
def assemble(sizes, kept, numbers, units_before, pairs_before, starts, key_numbers):
    """Write the ends of the units of a part, and the numbers of the keys that these keep, to their places."""
    end = pairs_before
    for i in range(len(sizes)):
        end += sizes[i]
        starts[units_before + 1 + i] = end
    for i in range(len(kept)):
        key_numbers[pairs_before + i] = numbers[kept[i]]


@jit(waits=False, nogil=True, allocates=False)
def emit(part, bits, kept, found, most, key_count, units, salt, scratch, sizes_there, keys_there, added_there, present):
    """Write the sizes and the keys of the units of a part, these sorted, and what their pairs add.

    Return whether `is_bounded`.

    Args:
        kept, found: what `settle` returned, which has filled the buffers.
        present: becomes True for each key that some unit keeps.
    """
    words, keys, orders, sizes, names, turn, starts, same, unit_orders, bases, table, waiting, few, _, added = scratch
    if not is_bounded(words[:found], sizes[:found], keys[:kept], orders[:kept], most, key_count, part, bits, units,
                      salt, table):  # fmt: skip
        return False
    place, texts = 0, units[0]
    for u in range(found):
        turn[u], same[u], starts[u], unit_orders[u] = u, u, place, hash_word(bases[u]) & _UPPER_BITS
        names[u + 1] = texts[np.int64(words[u]) + 1] if units[2] else words[u]
        place += sizes[u]
    _sort(0, found - 1, turn, unit_orders, same, names, units[2], units[3], salt, waiting, few)
    place = 0
    for i in range(found):
        u = turn[i]
        sizes_there[i] = sizes[u]
        for j in range(starts[u], starts[u] + sizes[u]):
            keys_there[place] = keys[j]
            for t in range(len(added)):
                added_there[t, place] = added[t, j]
            place += 1
            if not present[keys[j]]:
                present[keys[j]] = True
    return True


@jit(allocates=False)
def is_bounded(units, sizes, keys, orders, most, key_count, part, bits, known, salt, table):
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
        if part_of(hash_of_unit(units[u], known), bits) != part or not 0 < sizes[u] <= min(most, len(keys) - place):
            return False
        for i in range(place, place + sizes[u]):
            follows = i == place or orders[i] > orders[i - 1] or (orders[i] == orders[i - 1] and keys[i] != keys[i - 1])
            if not follows or not 0 <= keys[i] < key_count:
                return False
        place += sizes[u]
    return place == len(keys)


@jit(waits=False, nogil=True, allocates=False)
def first_keys(starts, key_numbers, added, most, begin, stop, bounded_starts, bounded, bounded_added):
    """Write the first `most` keys of the units from `begin` to `stop`, whose starts are known, and what these add."""
    for unit in range(begin, stop):
        first, place = starts[unit], bounded_starts[unit]
        for k in range(min(most, starts[unit + 1] - first)):
            bounded[place + k] = key_numbers[first + k]
            for t in range(len(added)):
                bounded_added[t, place + k] = added[t, first + k]


@jit(waits=False, nogil=True, allocates=False)
def count_keys(starts, key_numbers, added, most, begin, stop, numbers):
    """Count the first `most` keys of the units from `begin` to `stop` by key, and add up what these add."""
    for unit in range(begin, stop):
        for i in range(starts[unit], min(starts[unit] + most, starts[unit + 1])):
            key = key_numbers[i]
            numbers[0, key] += 1
            for t in range(len(added)):
                numbers[t + 1, key] += np.int64(added[t, i])


@jit(waits=False, nogil=True)
def rank_keys(starts, key_numbers, added, rank, begin, stop, sizes, ranked, ranked_added):
    """Write the ranks of the keys of the units from `begin` to `stop`, sorted, and what these add, without gaps.

    Keys with a negative rank are left out. The first place is that of the first unit in `key_numbers`; return the place
    behind the last one.
    """
    end = starts[begin]
    for unit in range(begin, stop):
        first, is_short = end, starts[unit + 1] - starts[unit] <= _SHORT
        for i in range(starts[unit], starts[unit + 1]):
            key, place = rank[key_numbers[i]], end
            if key < 0:
                continue
            while is_short and place > first and ranked[place - 1] > key:
                ranked[place] = ranked[place - 1]
                for t in range(len(added)):
                    ranked_added[t, place] = ranked_added[t, place - 1]
                place -= 1
            ranked[place] = key
            for t in range(len(added)):
                ranked_added[t, place] = added[t, i]
            end += 1
        if not is_short:
            order = np.argsort(ranked[first:end])
            ranked[first:end] = ranked[first:end][order]
            for t in range(len(added)):
                ranked_added[t, first:end] = ranked_added[t, first:end][order]
        sizes[unit] = end - first
    return end


@jit(forceinline=True, allocates=False)
def _clear(table, count):
    """Empty a hash table for this number of values; return the mask of its slots."""
    room = 4
    while room < 2 * count:
        room *= 2
    table[:room] = 0
    return np.uint64(room - 1)


@jit(forceinline=True, allocates=False)
def _before(order, key, other_order, other_key, names, texts, blocks):
    if order != other_order or key == other_key:
        return order < other_order
    return key < other_key if len(names) == 0 else comes_before(names[key + 1], names[other_key + 1], texts, blocks)


@jit(allocates=False)
def _sort_few(low, high, items, orders, keys, few):
    """Sort items by their orders alone, without branches; return whether no two with equal orders differ in their keys.

    An item has `ITEM_BITS` bits, which an order has not. A place is the number of smaller words.
    """
    lanes, mixed = (high - low + 8) // 8 * 8, False
    for i in range(lanes):
        few[i] = orders[low + i] | np.uint64(items[low + i]) if low + i <= high else ~np.uint64(0)
    for i in range(high - low + 1):
        word, place = few[i], low
        for j in range(lanes):
            place += few[j] < word
        items[place], orders[place] = np.int64(word & ~_UPPER_BITS), word & _UPPER_BITS
    for i in range(low + 1, high + 1):
        mixed |= orders[i] == orders[i - 1] and keys[items[i]] != keys[items[i - 1]]
    return not mixed


@jit(allocates=False)
def _sort(low, high, items, orders, keys, names, texts, blocks, salt, waiting, few):
    """Sort items from `low` to `high` by their orders, and ties by their keys.

    The longer part is pushed to the stack `waiting`, whose depth is then at most 64.

    Someone may choose the order of keys with equal hashes. The pivot is secret, so no order takes much longer.
    """
    depth = 0
    while True:
        while high - low >= len(few) or not _sort_few(low, high, items, orders, keys, few):
            secret = fold(np.uint64(low) ^ salt[6], np.uint64(high) ^ salt[7]) >> _HALF
            middle = low + np.int64(secret * np.uint64(high - low) >> _HALF)
            for a, b in ((low, middle), (middle, high), (low, middle)):
                if _before(orders[b], keys[items[b]], orders[a], keys[items[a]], names, texts, blocks):
                    orders[a], orders[b] = orders[b], orders[a]
                    items[a], items[b] = items[b], items[a]
            order, key = orders[middle], keys[items[middle]]
            i, j = low, high
            while i <= j:
                while _before(orders[i], keys[items[i]], order, key, names, texts, blocks):
                    i += 1
                while _before(order, key, orders[j], keys[items[j]], names, texts, blocks):
                    j -= 1
                if i <= j:
                    orders[i], orders[j] = orders[j], orders[i]
                    items[i], items[j] = items[j], items[i]
                    i += 1
                    j -= 1
            if j - low > high - i:
                waiting[depth, 0], waiting[depth, 1] = low, j
                low = i
            else:
                waiting[depth, 0], waiting[depth, 1] = i, high
                high = j
            depth += 1
        if depth == 0:
            return
        depth -= 1
        low, high = waiting[depth, 0], waiting[depth, 1]
