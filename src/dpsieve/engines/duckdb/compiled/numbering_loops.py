"""Compiled hash tables that number values, integers or texts, in the order of their first occurrence.

A search starts at the slot given by the upper half of the hash of a value. An entry is two words. The first is 0 if the
entry is empty, otherwise that upper half and the number plus one. The second is the integer itself, or a reference to a
text. Values with equal hashes are compared. So the entries of a table are in the order of their hashes, except for
collisions: `merge` joins the tables of several threads in parts, by ranges of hashes.

Texts are stored in blocks of bytes that never move, as other threads may be reading them. A reference is the word
block << 48 | start << 24 | length, which is never 0: blocks are numbered from 1.

Beside each value is the hash that DuckDB has for it, which decides what a unit keeps.

Nothing is checked here: `numbering` owns the buffers at the addresses.
"""

import numpy as np
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from dpsieve.compiled.jit import jit
from dpsieve.compiled.memory import copy, digest, fold, load_byte, load_word, prefetch, same

# The words of a frame: the address of the arena for texts; whether values are texts; the address of the salt; address
# and length of the table and of the words; the address of DuckDB's hashes, and the bits that it hashes of an integer;
# and the number of values.
TEXTS, IS_TEXT, SALT, TABLE, TABLE_SIZE, WORDS, SIZE, HASHES, MASK, FOUND, FIELDS = range(11)
# The words of an arena for texts: the address of the addresses of all blocks; the current block, its length, and the
# bytes of it that are used; and the bytes that the next text needs.
BLOCKS, BLOCK, LENGTH, USED, NEEDED, ARENA = range(6)
LENGTH_BITS, BLOCK_BITS = 24, 16
LONGEST, MOST_BLOCKS = (1 << LENGTH_BITS) - 1, 1 << BLOCK_BITS
_BITS, _BLOCK = np.uint64(LENGTH_BITS), np.uint64(2 * LENGTH_BITS)
_LENGTH = np.uint64(LONGEST)
_GROUP = 32
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_HALF = np.uint64(32)
_LOWER = (_ONE << _HALF) - _ONE
_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)


@intrinsic
def _pointer(typing, address):
    def code(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())

    return types.CPointer(types.uint64)(types.int64), code


@jit(forceinline=True)
def words_at(address, count):
    """Return an array of the words at an address, without a copy."""
    return carray(_pointer(address), count)


@jit(forceinline=True)
def ints_at(address, count):
    """Return an array of the integers at an address, without a copy."""
    return words_at(address, count).view(np.int64)


@jit(forceinline=True, allocates=False)
def hash_word(word):
    """Return DuckDB's hash of a word."""
    word = (word ^ (word >> _HALF)) * _MULTIPLIER
    word = (word ^ (word >> _HALF)) * _MULTIPLIER
    return word ^ (word >> _HALF)


@jit(forceinline=True, allocates=False)
def combine(first, second):
    """Return DuckDB's hash of several values, from that of all but the last and that of the last."""
    return ((first ^ (first >> _HALF)) * _MULTIPLIER) ^ second


@jit(waits=False, nogil=True)
def number(done, values, offsets, text_bytes, given, numbers, frame):
    """Write the numbers of the values from `done` on; return where it stopped, before the end without room.

    Args:
        values: integers, or none.
        offsets, text_bytes, given: of texts, where they start and end, from which address on, and DuckDB's hashes.
    """
    arena, words = ints_at(frame[TEXTS], ARENA), words_at(frame[WORDS], frame[SIZE])
    table, known_hashes = words_at(frame[TABLE], (frame[TABLE_SIZE], 2)), words_at(frame[HASHES], frame[SIZE])
    blocks, salt, texts = blocks_of(arena), words_at(frame[SALT], 8), frame[IS_TEXT] != 0
    hashes, places, lengths = np.empty(_GROUP, np.uint64), np.empty(_GROUP, np.int64), np.empty(_GROUP, np.int64)
    count, mask = len(numbers), np.uint64(len(table) - 1)
    while done < count:
        group = min(_GROUP, count - done)
        for j in range(group):
            if texts:
                places[j] = text_bytes + offsets[done + j]
                lengths[j] = offsets[done + j + 1] - offsets[done + j]
                prefetch(places[j])
            else:
                hashes[j] = fold(values[done + j] ^ salt[4], salt[5])
        for j in range(group):
            if texts:
                hashes[j] = digest(places[j], lengths[j], (salt[0], salt[1], salt[2], salt[3]))
            prefetch(table.ctypes.data + 16 * np.int64(_slot(hashes[j], table)))
        if texts:
            for j in range(group):
                prefetch(bytes_at(table[_slot(hashes[j], table), 1], blocks)[0])
        for j in range(group):
            slot, found, text = _slot(hashes[j], table), frame[FOUND], (places[j], lengths[j])
            word = _ZERO if texts else values[done + j]
            while table[slot, 0] != _ZERO:
                alike = (table[slot, 0] ^ hashes[j]) >> _HALF == _ZERO
                if alike and (is_text(text, table[slot, 1], blocks) if texts else table[slot, 1] == word):
                    break
                slot = (slot + _ONE) & mask
            if table[slot, 0] == _ZERO:
                if found + 1 == len(words):
                    return done + j
                if texts:
                    word = put(text, arena)
                    if word == _ZERO:
                        return done + j
                frame[FOUND] = found + 1
                table[slot, 0], table[slot, 1] = (hashes[j] & ~_LOWER) | np.uint64(found + 1), word
                words[found + 1] = word
                own = given[done + j] if texts else hash_word(word & np.uint64(frame[MASK]))
                known_hashes[found + 1] = own
            numbers[done + j] = np.int64(table[slot, 0] & _LOWER) - 1
        done += group
    return count


@jit(waits=False, nogil=True)
def merge(frames, part, bits, numbers):
    """Number the values of several tables whose hashes begin with the bits `part`; return how many there are.

    Args:
        frames: the addresses of the frames of the tables.
        numbers: the addresses of their new numbers, from 0 on, by the old number.
    """
    total = 0
    for t in range(len(frames)):
        for entry in _entries(frames[t], part, bits):
            total += entry[0] != _ZERO
    room = 4
    while room < 2 * total:
        room *= 2
    joined, found, mask = np.zeros((room, 2), np.uint64), 0, np.uint64(room - 1)
    for t in range(len(frames)):
        frame = ints_at(frames[t], FIELDS)
        blocks, new = blocks_of(ints_at(frame[TEXTS], ARENA)), ints_at(numbers[t], frame[FOUND])
        for entry, word in _entries(frames[t], part, bits):
            text = bytes_at(word, blocks)
            slot = _slot((entry & ~_LOWER) << np.uint64(bits), joined)
            while joined[slot, 0] != _ZERO:
                alike = (joined[slot, 0] ^ entry) >> _HALF == _ZERO
                if alike and (is_text(text, joined[slot, 1], blocks) if frame[IS_TEXT] else joined[slot, 1] == word):
                    break
                slot = (slot + _ONE) & mask
            if joined[slot, 0] == _ZERO:
                found += 1
                joined[slot, 0], joined[slot, 1] = (entry & ~_LOWER) | np.uint64(found), word
            new[np.int64(entry & _LOWER) - 1] = np.int64(joined[slot, 0] & _LOWER) - 1
    return found


@jit(waits=False, nogil=True)
def shift(frames, part, bits, numbers, first, words, hashes):
    """Add `first` to the new numbers of a part, and write its words and hashes by number plus one."""
    for t in range(len(frames)):
        frame = ints_at(frames[t], FIELDS)
        new, known_hashes = ints_at(numbers[t], frame[FOUND]), words_at(frame[HASHES], frame[SIZE])
        for entry, word in _entries(frames[t], part, bits):
            old = np.int64(entry & _LOWER)
            new[old - 1] += first
            words[new[old - 1] + 1], hashes[new[old - 1] + 1] = word, known_hashes[old]


@jit()
def _entries(address, part, bits):
    """Yield the entries of a table whose hashes begin with the bits `part`, each with its word.

    They are in the slots of this range, and in those after it, without a gap.
    """
    frame = ints_at(address, FIELDS)
    table, size, shown = words_at(frame[TABLE], (frame[TABLE_SIZE], 2)), frame[TABLE_SIZE], np.uint64(64 - bits)
    i, end = part * size >> bits, (part + 1) * size >> bits
    while i < end or (i < end + size and table[i & (size - 1), 0] != _ZERO):
        entry = table[i & (size - 1), 0]
        if entry != _ZERO and (bits == 0 or entry >> shown == np.uint64(part)):
            yield entry, table[i & (size - 1), 1]
        i += 1


@jit(forceinline=True, allocates=False)
def is_text(text, reference, blocks):
    """Return whether a reference is to an equal text."""
    place, length = bytes_at(reference, blocks)
    return length == text[1] and same(text[0], place, length)


@jit(allocates=False)
def comes_before(word, other, texts, blocks):
    """Return whether one value is smaller than another: integers, or texts by their bytes."""
    if not texts:
        return np.int64(word) < np.int64(other)
    (place, length), (other_place, other_length) = bytes_at(word, blocks), bytes_at(other, blocks)
    i, common = 0, min(length, other_length)
    while i + 8 <= common and load_word(place + i) == load_word(other_place + i):
        i += 8
    while i < common and load_byte(place + i) == load_byte(other_place + i):
        i += 1
    return load_byte(place + i) < load_byte(other_place + i) if i < common else length < other_length


@jit(waits=False, nogil=True, allocates=False)
def rehash(table, larger):
    """Move all entries to a larger table."""
    mask = np.uint64(len(larger) - 1)
    for i in range(len(table)):
        if table[i, 0] != _ZERO:
            slot = _slot(table[i, 0], larger)
            while larger[slot, 0] != _ZERO:
                slot = (slot + _ONE) & mask
            larger[slot, 0], larger[slot, 1] = table[i, 0], table[i, 1]


@jit(forceinline=True, allocates=False)
def _slot(entry, table):
    """Return the home slot of an entry, or of a hash."""
    return (entry >> _HALF) * np.uint64(len(table)) >> _HALF


@jit(forceinline=True, allocates=False)
def bytes_at(reference, blocks):
    """Return the address and the length of the text of a reference."""
    start = blocks[reference >> _BLOCK] + (reference >> _BITS & _LENGTH)
    return np.int64(start), np.int64(reference & _LENGTH)


@jit(forceinline=True)
def blocks_of(arena):
    """Return the addresses of all blocks."""
    return words_at(arena[BLOCKS], MOST_BLOCKS)


@jit(allocates=False)
def put(text, arena):
    """Store a text in an arena; return the reference, or 0 where there is no room."""
    used = arena[USED]
    if text[1] > min(arena[LENGTH] - used, LONGEST):
        arena[NEEDED] = text[1]
        return np.uint64(0)
    copy(np.int64(blocks_of(arena)[arena[BLOCK]]) + used, text[0], text[1])
    arena[USED] = used + text[1]
    return np.uint64(arena[BLOCK]) << _BLOCK | np.uint64(used) << _BITS | np.uint64(text[1])


@jit(waits=False, nogil=True, allocates=False)
def gather(references, blocks, first, stop, starts, target):
    """Copy the texts from `first` to `stop` to their places in `target`."""
    for i in range(first, stop):
        place, length = bytes_at(references[i], blocks)
        copy(target.ctypes.data + starts[i], place, length)
