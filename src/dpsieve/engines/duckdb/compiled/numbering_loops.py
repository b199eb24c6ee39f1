"""Compiled hash tables that number values, integers or texts, in the order of their first occurrence.

A search starts at the slot given by the upper half of the hash of a value. An entry is two words. The first is 0 if the
entry is empty, otherwise that upper half and the number plus one. The second is the integer itself, or a reference to a
text. Values with equal hashes are compared.

Texts are stored in blocks of bytes that never move, as other threads may be reading them. A reference is the word
block << 48 | start << 24 | length, which is never 0: blocks are numbered from 1.

A vector of integers of DuckDB is an array of words. One of texts has 16 bytes per text: four for the length, and then
up to twelve bytes of text, or four of them and the address of the text.

Nothing is checked here: `numbering` owns the buffers at the addresses.
"""

import numpy as np
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from dpsieve.compiled.jit import jit
from dpsieve.compiled.memory import copy, digest, fold, load_byte, load_word, prefetch, same

# The words of a frame: the address of the arena for texts; whether values are texts; the address of the salt; address
# and length of the table and of the words; and the number of values.
TEXTS, IS_TEXT, SALT, TABLE, TABLE_SIZE, WORDS, SIZE, FOUND, FIELDS = range(9)
# The words of an arena for texts: the address of the addresses of all blocks; the current block, its length, and the
# bytes of it that are used; and the bytes that the next text needs.
BLOCKS, BLOCK, LENGTH, USED, NEEDED, ARENA = range(6)
LENGTH_BITS, BLOCK_BITS = 24, 16
LONGEST, MOST_BLOCKS = (1 << LENGTH_BITS) - 1, 1 << BLOCK_BITS
_BITS, _BLOCK = np.uint64(LENGTH_BITS), np.uint64(2 * LENGTH_BITS)
_LENGTH = np.uint64(LONGEST)
_GROUP = 32
SCRATCH = 3 * _GROUP
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_HALF = np.uint64(32)
_LOWER = (_ONE << _HALF) - _ONE
_INLINE, _TEXT = 12, 16  # bytes of a text of DuckDB


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


@jit(forceinline=True)
def text_at(values, i):
    """Return the address and the length of the text in row i."""
    place = values + _TEXT * i
    length = np.int64(load_word(place) & _LOWER)
    return place + 4 if length <= _INLINE else np.int64(load_word(place + 8)), length


@jit(nogil=True)
def number(done, count, values, known, numbers, frame, scratch):
    """Write the numbers of the values from `done` to `count`; return where it stopped, before `count` without room.

    Args:
        values: the address of a vector, or with `known` of references to texts or integers.
        scratch: a scratch buffer of SCRATCH integers.
    """
    arena, words = ints_at(frame[TEXTS], ARENA), words_at(frame[WORDS], frame[SIZE])
    table = words_at(frame[TABLE], (frame[TABLE_SIZE], 2))
    blocks, salt, texts = blocks_of(arena), words_at(frame[SALT], 8), frame[IS_TEXT] != 0
    hashes, places, lengths = scratch[:_GROUP].view(np.uint64), scratch[_GROUP : 2 * _GROUP], scratch[2 * _GROUP :]
    mask = np.uint64(len(table) - 1)
    while done < count:
        group = min(_GROUP, count - done)
        for j in range(group):
            i = done + j
            if texts:
                places[j], lengths[j] = bytes_at(load_word(values + 8 * i), blocks) if known else text_at(values, i)
                prefetch(places[j])
            else:
                hashes[j] = fold(load_word(values + 8 * i) ^ salt[4], salt[5])
        for j in range(group):
            if texts:
                hashes[j] = digest(places[j], lengths[j], (salt[0], salt[1], salt[2], salt[3]))
            prefetch(table.ctypes.data + 16 * np.int64(_slot(hashes[j], table)))
        if texts:
            for j in range(group):
                prefetch(bytes_at(table[_slot(hashes[j], table), 1], blocks)[0])
        for j in range(group):
            i = done + j
            slot, found, text = _slot(hashes[j], table), frame[FOUND], (places[j], lengths[j])
            word = _ZERO if texts and not known else load_word(values + 8 * i)
            while table[slot, 0] != _ZERO:
                alike = (table[slot, 0] ^ hashes[j]) >> _HALF == _ZERO
                if alike and (is_text(text, table[slot, 1], blocks) if texts else table[slot, 1] == word):
                    break
                slot = (slot + _ONE) & mask
            if table[slot, 0] == _ZERO:
                if found + 1 == len(words):
                    return done + j
                if texts and not known:
                    word = put(text, arena)
                    if word == _ZERO:
                        return done + j
                frame[FOUND] = found + 1
                table[slot, 0], table[slot, 1] = (hashes[j] & ~_LOWER) | np.uint64(found + 1), word
                words[found + 1] = word
            numbers[done + j] = np.int64(table[slot, 0] & _LOWER) - 1
        done += group
    return count


@jit(forceinline=True)
def is_text(text, reference, blocks):
    """Return whether a reference is to an equal text."""
    place, length = bytes_at(reference, blocks)
    return length == text[1] and same(text[0], place, length)


@jit()
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


@jit(nogil=True)
def rehash(table, larger):
    """Move all entries to a larger table."""
    mask = np.uint64(len(larger) - 1)
    for i in range(len(table)):
        if table[i, 0] != _ZERO:
            slot = _slot(table[i, 0], larger)
            while larger[slot, 0] != _ZERO:
                slot = (slot + _ONE) & mask
            larger[slot, 0], larger[slot, 1] = table[i, 0], table[i, 1]


@jit(forceinline=True)
def _slot(entry, table):
    """Return the home slot of an entry, or of a hash."""
    return (entry >> _HALF) * np.uint64(len(table)) >> _HALF


@jit(forceinline=True)
def bytes_at(reference, blocks):
    """Return the address and the length of the text of a reference."""
    start = blocks[reference >> _BLOCK] + (reference >> _BITS & _LENGTH)
    return np.int64(start), np.int64(reference & _LENGTH)


@jit(forceinline=True)
def blocks_of(arena):
    """Return the addresses of all blocks."""
    return words_at(arena[BLOCKS], MOST_BLOCKS)


@jit()
def put(text, arena):
    """Store a text in an arena; return the reference, or 0 where there is no room."""
    used = arena[USED]
    if text[1] > min(arena[LENGTH] - used, LONGEST):
        arena[NEEDED] = text[1]
        return np.uint64(0)
    copy(np.int64(blocks_of(arena)[arena[BLOCK]]) + used, text[0], text[1])
    arena[USED] = used + text[1]
    return np.uint64(arena[BLOCK]) << _BLOCK | np.uint64(used) << _BITS | np.uint64(text[1])


@jit(nogil=True)
def gather(references, blocks, starts, target):
    """Copy each text to its place in `target`."""
    for i in range(len(references)):
        place, length = bytes_at(references[i], blocks)
        copy(target.ctypes.data + starts[i], place, length)
