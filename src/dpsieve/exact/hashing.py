"""What numba does not offer: the folded product of two words, and plain access to memory.

An address is an int64. Nothing is checked here: callers stay within buffers that they keep alive.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_BYTE, _INT, _WORD, _WIDE = (ir.IntType(bits) for bits in (8, 32, 64, 128))


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
def copy(typing, target, source, length):
    """Copy bytes from one address to another; the two stretches do not overlap."""

    def code(context, builder, signature, arguments):
        there, here = (builder.inttoptr(address, _BYTE.as_pointer()) for address in arguments[:2])
        cgutils.raw_memcpy(builder, there, here, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


@intrinsic
def prefetch(typing, address):
    """Ask for what lies at an address to be brought near: a hint, which any address is allowed for."""

    def code(context, builder, signature, arguments):
        pointer = _BYTE.as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, _INT, _INT, _INT])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        to_read, to_keep, as_data = _INT(0), _INT(3), _INT(1)
        builder.call(hint, [builder.inttoptr(arguments[0], pointer), to_read, to_keep, as_data])
        return context.get_dummy_value()

    return types.void(types.int64), code
