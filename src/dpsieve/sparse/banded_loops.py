"""Solve a banded linear system over bits, and look keys up in its solution.

A table has cells of `bits` bits, one a column. It is stored in blocks of 64 columns, each as `bits` words: word p holds
bit p of the cells. So the exclusive or of the cells at the set bits of a window takes 5 * bits neighbouring words.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dpsieve.compiled.jit import jit
from dpsieve.compiled.memory import prefetch

_ZERO, _ONE, _TWO, _THREE, _FOUR, _LAST = (np.uint64(number) for number in (0, 1, 2, 3, 4, 63))
_AHEAD = 4  # rows whose cells are fetched early


@intrinsic
def _upper_product(typing, a, b):
    """Return the upper word of the product of two words."""

    def code(context, builder, signature, arguments):
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(word, wide) for word in arguments))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), code


@intrinsic
def _set_bits(typing, word):
    """Return how many bits of a word are set."""
    return types.uint64(types.uint64), lambda context, builder, signature, arguments: builder.ctpop(arguments[0])


@intrinsic
def _lowest_bit(typing, word):
    """Return the place of the lowest set bit of a word that is not 0."""

    def code(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), code


@jit(nogil=True)
def choose_starts(words, starts):
    """Return a column in [0, starts) for each word."""
    out = np.empty(len(words), np.int64)
    for i in range(len(words)):
        out[i] = _upper_product(words[i], np.uint64(starts))
    return out


@jit(nogil=True)
def solve(windows, starts, contents, table, bits):
    """Set cells so that each row's window joins to its content, and return True; leave them where rows are dependent.

    Rows (windows of four words, in order of their starts; contents) are used up. Cells of columns that no row needs
    keep the random bits that the table came with, so it ends up uniform among all solutions.
    """
    holder = np.full(len(table) // bits * 64, -1, np.int32)  # the row that is reduced to begin at a column
    for i in range(len(starts)):
        a, b, c, d = windows[i]
        content, column = contents[i], starts[i]
        while True:
            if a == _ZERO:
                if b | c | d == _ZERO:
                    return False
                a, b, c, d = b, c, d, _ZERO
                column += 64
                continue
            shift = _lowest_bit(a)
            left = _LAST - shift
            a = a >> shift | b << _ONE << left
            b = b >> shift | c << _ONE << left
            c = c >> shift | d << _ONE << left
            d = d >> shift
            column += np.int64(shift)
            j = holder[column]
            if j < 0:
                break
            a ^= windows[j, 0]
            b ^= windows[j, 1]
            c ^= windows[j, 2]
            d ^= windows[j, 3]
            content ^= contents[j]
        holder[column] = i
        windows[i, 0], windows[i, 1], windows[i, 2], windows[i, 3] = a, b, c, d
        contents[i] = content
    for column in range(len(holder) - 1, -1, -1):
        i = holder[column]
        if i >= 0:
            a, b, c, d = windows[i]
            cell = contents[i] ^ _joined(table, bits, column, a ^ _ONE, b, c, d)
            first, place = (column >> 6) * bits, np.uint64(column & 63)
            for p in range(bits):
                bit = cell >> np.uint64(p) & _ONE
                table[first + p] = (table[first + p] & ~(_ONE << place)) | bit << place
    return True


@jit(nogil=True)
def look_up(table, bits, windows, starts):
    """Return the content of each row."""
    out = np.empty(len(starts), np.uint64)
    address, line = np.int64(table.ctypes.data), 64
    for i in range(len(starts)):
        if i + _AHEAD < len(starts):
            place = address + (starts[i + _AHEAD] >> 6) * bits * 8
            for k in range(0, 5 * bits * 8, line):
                prefetch(place + k)
        out[i] = _joined(table, bits, starts[i], windows[i, 0], windows[i, 1], windows[i, 2], windows[i, 3])
    return out


@jit(nogil=True, forceinline=True)
def _joined(table, bits, column, a, b, c, d):
    """Return the exclusive or of the cells at the set bits of a window, which has none beyond the last column."""
    shift = np.uint64(column & 63)
    left = _LAST - shift
    e = d >> _ONE >> left
    d = d << shift | c >> _ONE >> left
    c = c << shift | b >> _ONE >> left
    b = b << shift | a >> _ONE >> left
    a = a << shift
    # Places are unsigned, for which numba allows vector instructions.
    size = np.uint64(bits)
    last = np.uint64(len(table)) - size
    at = np.uint64(column >> 6) * size
    at1, at2 = min(at + size, last), min(at + _TWO * size, last)
    at3, at4 = min(at + _THREE * size, last), min(at + _FOUR * size, last)
    content = _ZERO
    for p in range(size):
        x = a & table[at + p] ^ b & table[at1 + p] ^ c & table[at2 + p] ^ d & table[at3 + p] ^ e & table[at4 + p]
        content |= (_set_bits(x) & _ONE) << p
    return content
