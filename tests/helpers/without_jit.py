"""Compiled loops as plain Python, where NUMBA_DISABLE_JIT is set: `make coverage` counts their lines.

numba then leaves functions as they are, and two things are missing: intrinsics in Python, and fields of records as
attributes. Integers wrap around in machine code and warn in NumPy: such a run ignores these warnings.
"""

import ctypes
import functools
import sys
import threading

import llvmlite.binding
import numba
import numba.extending
import numpy as np

# Golden cases whose loops take more than 5 seconds in Python.
SLOW = (
    "two_rounds", "discover: automatic", "discover: two key columns", "discover: hitting set]", "discover: top 2]",
    "release: fixed bound, counts first", "release: sample size, 3 keys", "release: automatic bound", "search, rounds",
    "vector: private total",
)  # fmt: skip

_WORD = 2**64 - 1
_PRIME = 2**61 - 1


def fold(a, b):
    product = int(a) * int(b)
    return np.uint64((product >> 64) ^ (product & _WORD))


def load_word(address):
    return np.uint64(int.from_bytes(ctypes.string_at(int(address), 8), "little"))


def load_byte(address):
    return np.uint64(ctypes.string_at(int(address), 1)[0])


def store_word(address, word):
    ctypes.memmove(int(address), int(word).to_bytes(8, "little"), 8)


def _copy(target, source, length):
    ctypes.memmove(int(target), int(source), int(length))


def prefetch(address):
    pass


def _upper_product(a, b):
    return np.uint64(int(a) * int(b) >> 64)


def _product(a, b):
    product = int(a) * int(b)
    return np.uint64((product & _PRIME) + (product >> 61))


def _set_bits(word):
    return np.uint64(int(word).bit_count())


def _lowest_bit(word):
    return np.uint64((int(word) & -int(word)).bit_length() - 1)


def _pointer(address):
    return ctypes.cast(int(address), ctypes.POINTER(ctypes.c_uint64))


_ATOMIC = threading.Lock()


def _exchange(address, value):
    with _ATOMIC:
        word = ctypes.c_int64.from_address(int(address))
        old, word.value = word.value, int(value)
        return old


def _add(address, number):
    with _ATOMIC:
        ctypes.c_int64.from_address(int(address)).value += int(number)


def _call(function, argument):
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(int(function))(int(argument))


def external(name, signature):
    """Return the function of a library that compiled code finds by its name."""
    result = None if signature.return_type == numba.types.void else ctypes.c_int64
    kind = ctypes.CFUNCTYPE(result, *[ctypes.c_int64 for _ in signature.args])
    function = kind(llvmlite.binding.address_of_symbol(name))
    return lambda *given: function(*map(int, given))


def callback(signature):
    """Return a decorator for functions of three addresses that native code calls, from threads of its own."""

    def compile_(function):
        def call(*addresses):
            if sys.gettrace() is None:
                sys.settrace(threading.gettrace())
            function(*addresses)

        compiled = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(call)
        compiled.address = ctypes.cast(compiled, ctypes.c_void_p).value
        return compiled

    return compile_


def with_fields(function):
    """Return a function that gets arrays of records with their fields as attributes."""

    def view(value):
        return value.view(np.recarray) if isinstance(value, np.ndarray) and value.dtype.names else value

    return functools.wraps(function)(lambda *given: function(*map(view, given)))


def install():
    """Let the loops that are imported after this run as Python."""
    original, replaced = numba.extending.intrinsic, globals()

    def intrinsic(*given, **options):
        (function,) = given or (None,)
        own = function is not None and function.__module__.startswith("dpsieve.")
        return replaced.get(function.__name__, function) if own else original(*given, **options)

    def njit(*given, **options):
        return with_fields(*given) if given else with_fields

    numba.extending.intrinsic, numba.njit, numba.types.ExternalFunction = intrinsic, njit, external
    from dpsieve.compiled import jit

    jit.callback = callback
