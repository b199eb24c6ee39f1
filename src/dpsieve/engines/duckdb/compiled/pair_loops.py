"""Compiled loops over (unit, key) pairs: collect them in parts by unit, bound each unit to its first keys, and count.

A collected pair is 12 bytes: the unit, an integer or the number of a text, and the number of the key. Each thread that
reads rows collects pairs in blocks of memory, one chain of blocks for each part of the units, which fits into the cache
of a core. A block is the address of the one before it in its chain, and then its units and its keys. The parts are
ranges of the hash that orders units, so parts whose units are sorted follow each other in order.

DuckDB's hash of unit and key, which orders the keys of a unit, is computed from those of the unit and of the key.

In `true_data.Pairs`, unit u has the keys key_numbers[starts[u]:starts[u + 1]], none of them twice.
"""

import numpy as np

from dpsieve.compiled.jit import jit
from dpsieve.compiled.memory import fold, load_half, load_word, store_half, store_word
from dpsieve.engines.duckdb.compiled.numbering_loops import combine, comes_before, hash_word, ints_at

# The words of a chain of blocks, one per part: the address of its last block, or 0, and the pairs in that one.
LAST, FILL, CHAIN = range(3)
# The words of a store of blocks: the addresses of the first free block, or 0, and of the next new one and the end.
FREE, NEXT, END, STORE = range(4)
PAIRS_OF_A_BLOCK = 256
_UNITS, _KEYS = 8, 8 + 8 * PAIRS_OF_A_BLOCK
BYTES_OF_A_BLOCK = 8 + 12 * PAIRS_OF_A_BLOCK

_SHORT = 16
_ONE = np.uint64(1)
_HALF = np.uint64(32)
_UPPER_BITS = np.uint64((2**36 - 1) << 28)  # those of the hash that count, see `sql.queries`


@jit(forceinline=True)
def note(chains, part, unit, key, store):
    """Append a pair to its part; return whether there was room for it."""
    fill = chains[part, FILL]
    if fill == PAIRS_OF_A_BLOCK:
        block = store[FREE]
        if block != 0:
            store[FREE] = np.int64(load_word(block))
        elif store[NEXT] < store[END]:
            block = store[NEXT]
            store[NEXT] = block + BYTES_OF_A_BLOCK
        else:
            return False
        store_word(block, np.uint64(chains[part, LAST]))
        chains[part, LAST], fill = block, 0
    place = chains[part, LAST]
    store_word(place + _UNITS + 8 * fill, unit)
    store_half(place + _KEYS + 4 * fill, key)
    chains[part, FILL] = fill + 1
    return True


@jit(forceinline=True)
def part_of(unit_hash, bits):
    """Return the part of a unit with this hash of DuckDB."""
    return np.int64(hash_word(unit_hash) >> np.uint64(64 - bits))


@jit(waits=False, nogil=True)
def count_pairs(chains):
    """Return the number of pairs of each part."""
    counts = np.zeros(len(chains), np.int64)
    for part in range(len(chains)):
        block, fill = chains[part, LAST], chains[part, FILL]
        while block != 0:
            counts[part] += fill
            block, fill = np.int64(load_word(block)), PAIRS_OF_A_BLOCK
    return counts


@jit(waits=False, nogil=True)
def compact(chains, store, salt, units, keys, table):
    """Drop repeated pairs, and free the blocks that are then empty; return how many pairs remain."""
    total = 0
    for part in range(len(chains)):
        found = _load(chains, part, 0, units, keys)
        block, kept, mask = chains[part, LAST], 0, _clear(table, found)
        chains[part, LAST], chains[part, FILL] = 0, PAIRS_OF_A_BLOCK
        while block != 0:
            before = np.int64(load_word(block))
            store_word(block, np.uint64(store[FREE]))
            store[FREE], block = block, before
        for i in range(found):
            slot = fold(units[i] ^ salt[4], np.uint64(keys[i]) ^ salt[5]) & mask
            while table[slot] != 0 and (units[table[slot] - 1] != units[i] or keys[table[slot] - 1] != keys[i]):
                slot = (slot + _ONE) & mask
            if table[slot] == 0:
                units[kept], keys[kept] = units[i], keys[i]
                kept += 1
                table[slot] = kept
                note(chains, part, units[i], np.int64(keys[i]), store)
        total += kept
    return total


@jit()
def _load(chains, part, found, units, keys):
    """Copy the pairs of a part behind `found` other ones; return how many there are then."""
    block, fill = chains[part, LAST], chains[part, FILL]
    while block != 0:
        for i in range(fill):
            units[found + i] = load_word(block + _UNITS + 8 * i)
            keys[found + i] = load_half(block + _KEYS + 4 * i)
        found += fill
        block, fill = np.int64(load_word(block)), PAIRS_OF_A_BLOCK
    return found


@jit(waits=False, nogil=True)
def settle(part, chains, parts, units, keys, most, salt, scratch):
    """Keep the first `most` distinct keys of each unit of a part; return the numbers of pairs and of units.

    The units are then at the beginning of the first scratch buffer, and the others have the keys, their hashes, and the
    number of keys of each unit. Keys with equal hashes are ordered by their values.

    Args:
        chains: the addresses of the chains of each thread.
        parts: how many there are.
        units, keys: what is known of them, see `pairs.Values`; each with the numbers of each thread.
        most: the bound.
        salt: the key of hashes in tables.
        scratch: see `pairs.make_scratch`.
    """
    pair_units, pair_keys, orders, sizes, words, who, starts, ends, own_keys, own_orders, bases, table, waiting = (
        scratch
    )
    total = 0
    for t in range(len(chains)):
        begin = total
        total = _load(ints_at(chains[t], (parts, CHAIN)), part, begin, pair_units, pair_keys)
        if units[4][t] != 0:
            numbers = ints_at(units[4][t], 1 << 31)
            for i in range(begin, total):
                pair_units[i] = np.uint64(numbers[np.int64(pair_units[i])])
        if keys[4][t] != 0:
            numbers = ints_at(keys[4][t], 1 << 31)
            for i in range(begin, total):
                pair_keys[i] = numbers[pair_keys[i]]
    hashes = keys[1]
    for i in range(total):
        key = pair_keys[i]
        orders[i] = hash_word(np.uint64(key)) if len(hashes) == 0 else hashes[key + 1]
    found, filled = 0, 0
    mask = _clear(table, total)
    for i in range(total):
        slot = fold(pair_units[i] ^ salt[4], salt[5]) & mask
        while table[slot] != 0 and words[table[slot] - 1] != pair_units[i]:
            slot = (slot + _ONE) & mask
        if table[slot] == 0:
            base = hash_of_unit(pair_units[i], units)
            words[found], bases[found], ends[found] = pair_units[i], base, 0
            found += 1
            table[slot] = found
        who[i] = table[slot] - 1
        ends[who[i]] += 1
    if most == 1:
        return _first_keys(total, found, keys, scratch), found
    place = 0
    for u in range(found):
        starts[u] = place
        place += ends[u]
        ends[u] = starts[u]
    starts[found] = place
    for i in range(total):
        place = ends[who[i]]
        ends[who[i]] = place + 1
        own_keys[place] = pair_keys[i]
        own_orders[place] = _order(bases[who[i]], orders[i])
    for u in range(found):
        _quicksort(starts[u], starts[u + 1] - 1, own_keys, own_orders, keys[0], keys[2], keys[3], salt, waiting)
        first, begin = filled, starts[u]
        for i in range(begin, starts[u + 1]):
            again = i > begin and own_orders[i] == own_orders[i - 1] and own_keys[i] == own_keys[i - 1]
            if not again and filled - first < most:
                pair_keys[filled], orders[filled] = own_keys[i], own_orders[i]
                filled += 1
        pair_units[u], sizes[u] = words[u], filled - first
    return filled, found


@jit()
def _first_keys(total, found, keys, scratch):
    """Keep the first key of each unit, without a sort; see `settle`."""
    pair_units, pair_keys, orders, sizes, words, who, _, _, own_keys, own_orders, bases, _, _ = scratch
    sizes[:found] = 0
    for i in range(total):
        u, key, order = who[i], pair_keys[i], _order(bases[who[i]], orders[i])
        if sizes[u] == 0 or _before(order, key, own_orders[u], own_keys[u], keys[0], keys[2], keys[3]):
            own_keys[u], own_orders[u], sizes[u] = key, order, 1
    pair_units[:found], pair_keys[:found], orders[:found] = words[:found], own_keys[:found], own_orders[:found]
    return found


@jit(waits=False)
def hash_salt(salt):
    """Return DuckDB's hash of the salt."""
    return hash_word(salt)


@jit(forceinline=True)
def hash_of_unit(unit, units):
    """Return DuckDB's hash of the salt and a unit: that of a text, or of an integer from that of the salt."""
    return units[1][np.int64(unit) + 1] if units[2] else combine(units[5], hash_word(unit & units[6]))


@jit(forceinline=True)
def _order(unit_hash, key_hash):
    return hash_word(combine(unit_hash, key_hash)) & _UPPER_BITS


@jit(waits=False, nogil=True)
def emit(part, bits, kept, found, most, key_count, units, salt, scratch, sizes_there, keys_there, present):
    """Write the sizes and the keys of the units of a part, these sorted; return whether `is_bounded`.

    Args:
        kept, found: what `settle` returned, which has filled the buffers.
        present: becomes True for each key that some unit keeps.
    """
    words, keys, orders, sizes, _, turn, starts, _, _, unit_orders, names, table, waiting = scratch
    if not is_bounded(words[:found], sizes[:found], keys[:kept], orders[:kept], most, key_count, part, bits, units,
                      salt, table):  # fmt: skip
        return False
    place, texts = 0, units[0]
    for u in range(found):
        turn[u], starts[u] = u, place
        place += sizes[u]
        unit_orders[u] = hash_word(hash_of_unit(words[u], units)) & _UPPER_BITS
        names[u + 1] = texts[np.int64(words[u]) + 1] if units[2] else words[u]
    _quicksort(0, found - 1, turn, unit_orders, names, units[2], units[3], salt, waiting)
    place = 0
    for i in range(found):
        u = turn[i]
        sizes_there[i] = sizes[u]
        for j in range(starts[u], starts[u] + sizes[u]):
            keys_there[place] = keys[j]
            place += 1
            if not present[keys[j]]:
                present[keys[j]] = True
    return True


@jit(waits=False, nogil=True)
def assemble(sizes, keys, numbers, starts, key_numbers, first_unit, first_pair):
    """Write the starts of the units of a part, and their keys under new numbers."""
    place = first_pair
    for u in range(len(sizes)):
        starts[first_unit + u] = place
        place += sizes[u]
    for i in range(len(keys)):
        key_numbers[first_pair + i] = numbers[keys[i]]


@jit()
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


@jit(waits=False, nogil=True)
def first_keys(starts, key_numbers, most, begin, stop, bounded_starts, bounded):
    """Write the first `most` keys of the units from `begin` to `stop`, whose starts are known."""
    for unit in range(begin, stop):
        place = bounded_starts[unit]
        for k in range(min(most, starts[unit + 1] - starts[unit])):
            bounded[place + k] = key_numbers[starts[unit] + k]


@jit(waits=False, nogil=True)
def count_keys(starts, key_numbers, most, begin, stop, counts):
    """Add one to the count of each of the first `most` keys of the units from `begin` to `stop`."""
    for unit in range(begin, stop):
        for i in range(starts[unit], min(starts[unit + 1], starts[unit] + most)):
            counts[key_numbers[i]] += 1


@jit(waits=False, nogil=True)
def sort_keys(starts, key_numbers, begin, stop):
    """Sort the keys of the units from `begin` to `stop` by number."""
    for unit in range(begin, stop):
        key_numbers[starts[unit] : starts[unit + 1]].sort()


@jit(forceinline=True)
def _clear(table, count):
    """Empty a hash table for this number of values; return the mask of its slots."""
    room = 4
    while room < 2 * count:
        room *= 2
    table[:room] = 0
    return np.uint64(room - 1)


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
