"""Compiled hashes and comparisons of byte strings, 32 bytes at a time, without a branch for any length from 8 to 32.

The hash of a text is h after

    h = length
    for each part of 32 bytes, the last one shorter or not (an empty text is one empty part):
        h = fold(w0 ^ k0 ^ h, w1 ^ k1) ^ fold(w2 ^ k2, w3 ^ k3),

with four words k0 to k3 as its key, and as w0 to w3 the little-endian words that start 0, min(8, n - 8),
max(0, n - 16) and n - 8 bytes into a part of n bytes: they overlap where n < 32, and cover all of it. A part of fewer
than 8 bytes is w0, padded with zeros, and w1 = w2 = w3 = 0.

With secret random words as the key this is the hash that places texts. With `PUBLIC_KEY` it is public, and its
upper 39 bits put texts in order: see `sketches.text_loops`.

The intrinsics add what numba lacks: the folded product of two words, and plain access to memory. An address is an
int64. Nothing is checked here: callers stay within buffers that they keep alive.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dpsieve.compiled.jit import jit

_BYTE, _INT, _WORD, _WIDE = (ir.IntType(bits) for bits in (8, 32, 64, 128))
_PART = 32
_ZERO = np.uint64(0)

# The key of the public hash that puts texts in order: the first 256 bits of the fraction of pi.
PUBLIC_KEY = tuple(map(np.uint64, (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89)))


@intrinsic
def fold(typing, a, b):
    """Return the 128-bit product of two words, its upper half joined to its lower half by exclusive or."""

    def code(context, builder, signature, arguments):
        product = builder.mul(*(builder.zext(word, _WIDE) for word in arguments))
        upper = builder.trunc(builder.lshr(product, ir.Constant(_WIDE, 64)), _WORD)
        return builder.xor(builder.trunc(product, _WORD), upper)

    return types.uint64(types.uint64, types.uint64), code


@intrinsic
def load_word(typing, address):
    """Return eight bytes as a little-endian word; they may start anywhere."""

    def code(context, builder, signature, arguments):
        return builder.load(builder.inttoptr(arguments[0], _WORD.as_pointer()), align=1)

    return types.uint64(types.int64), code


@intrinsic
def load_byte(typing, address):
    """Return one byte as a word."""

    def code(context, builder, signature, arguments):
        return builder.zext(builder.load(builder.inttoptr(arguments[0], _BYTE.as_pointer())), _WORD)

    return types.uint64(types.int64), code


@intrinsic
def store_word(typing, address, word):
    """Write a word as eight little-endian bytes; they may start anywhere."""

    def code(context, builder, signature, arguments):
        builder.store(arguments[1], builder.inttoptr(arguments[0], _WORD.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), code


@intrinsic
def load_half(typing, address):
    """Return four bytes as a little-endian integer with a sign."""

    def code(context, builder, signature, arguments):
        value = builder.load(builder.inttoptr(arguments[0], _INT.as_pointer()), align=1)
        return builder.sext(value, _WORD)

    return types.int64(types.int64), code


@intrinsic
def store_half(typing, address, value):
    """Write the lower half of an integer as four little-endian bytes."""

    def code(context, builder, signature, arguments):
        there = builder.inttoptr(arguments[0], _INT.as_pointer())
        builder.store(builder.trunc(arguments[1], _INT), there, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


@intrinsic
def _copy(typing, target, source, length):

    def code(context, builder, signature, arguments):
        there, here = (builder.inttoptr(address, _BYTE.as_pointer()) for address in arguments[:2])
        cgutils.raw_memcpy(builder, there, here, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


@intrinsic
def prefetch(typing, address):
    """Prefetch the cache line at an address; any address is allowed."""

    def code(context, builder, signature, arguments):
        pointer = _BYTE.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, _INT, _INT, _INT])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        to_read, to_keep, as_data = _INT(0), _INT(3), _INT(1)
        builder.call(hint, [builder.inttoptr(arguments[0], pointer), to_read, to_keep, as_data])
        return context.get_dummy_value()

    return types.void(types.int64), code


@jit(forceinline=True, allocates=False)
def digest(place, length, key):
    """Return the hash of the `length` bytes that start at an address."""
    h = np.uint64(length)
    while length > _PART:
        h = _absorb(h, _words(place, _PART), key)
        place += _PART
        length -= _PART
    return _absorb(h, _words(place, length), key)


@jit(allocates=False)
def public_digest(place, length):
    """Return the hash under the public key."""
    return digest(place, length, PUBLIC_KEY)


@jit(forceinline=True, allocates=False)
def copy(target, source, length):
    """Copy bytes from one address to another; the two ranges do not overlap."""
    if length < 8 or length > _PART:
        _copy(target, source, length)
    else:
        last, words = length - 8, _words(source, length)
        store_word(target, words[0])
        store_word(target + min(8, last), words[1])
        store_word(target + max(0, last - 8), words[2])
        store_word(target + last, words[3])


@jit(forceinline=True, allocates=False)
def same(place, other, length):
    """Return whether two ranges of bytes are equal."""
    while length > _PART:
        if _differ(_words(place, _PART), _words(other, _PART)):
            return False
        place += _PART
        other += _PART
        length -= _PART
    return not _differ(_words(place, length), _words(other, length))


@jit(forceinline=True, allocates=False)
def _words(place, length):
    if length >= 8:
        last = length - 8
        second, third = place + min(8, last), place + max(0, last - 8)
        return load_word(place), load_word(second), load_word(third), load_word(place + last)
    word = _ZERO
    for i in range(length):
        word |= load_byte(place + i) << np.uint64(8 * i)
    return word, _ZERO, _ZERO, _ZERO


@jit(forceinline=True, allocates=False)
def _absorb(h, w, key):
    return fold(w[0] ^ key[0] ^ h, w[1] ^ key[1]) ^ fold(w[2] ^ key[2], w[3] ^ key[3])


@jit(forceinline=True, allocates=False)
def _differ(v, w):
    return (v[0] ^ w[0]) | (v[1] ^ w[1]) | (v[2] ^ w[2]) | (v[3] ^ w[3]) != _ZERO
