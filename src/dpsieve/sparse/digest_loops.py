"""Digests of texts: polynomials modulo 2^61 - 1, at two points."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dpsieve.compiled.jit import jit
from dpsieve.compiled.memory import load_byte

_WORD, _WIDE = ir.IntType(64), ir.IntType(128)
_P = np.uint64(2**61 - 1)
_STEP = 7  # bytes a coefficient, so that it is below p


@intrinsic
def _product(typing, a, b):
    """Return a * b modulo 2^61 - 1, or that plus 2^61 - 1, for factors below 2^62."""

    def code(context, builder, signature, arguments):
        product = builder.mul(*(builder.zext(word, _WIDE) for word in arguments))
        low = builder.and_(product, ir.Constant(_WIDE, 2**61 - 1))
        high = builder.lshr(product, ir.Constant(_WIDE, 61))
        return builder.trunc(builder.add(low, high), _WORD)

    return types.uint64(types.uint64, types.uint64), code


@jit()
def text_digests(address, offsets, first, second, out):
    """Set the two words of each text, from the bytes between its offsets."""
    for i in range(len(offsets) - 1):
        place, end = address + offsets[i], address + offsets[i + 1]
        one = two = np.uint64(end - place + 1)
        while place < end:
            part = np.uint64(0)
            for k in range(min(_STEP, end - place)):
                part |= load_byte(place + k) << np.uint64(8 * k)
            one, two = _reduced(_product(one, first) + part), _reduced(_product(two, second) + part)
            place += _STEP
        out[i, 0], out[i, 1] = one, two


@jit(forceinline=True)
def _reduced(value):
    value = (value & _P) + (value >> np.uint64(61))
    return value - _P if value >= _P else value
