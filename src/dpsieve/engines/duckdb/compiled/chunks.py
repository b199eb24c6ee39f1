"""Compiled access to rows that DuckDB hands over: a chunk of vectors, each of them flat.

A vector of whole numbers is an array of words. One of texts is an array of 16 bytes each: the length in four, and then
either up to twelve bytes of text, or four of them and the address of all. Addresses are int64. Nothing is checked here.
"""

import ctypes
import os

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from dpsieve.compiled.jit import jit
from dpsieve.compiled.memory import load_word
from dpsieve.engines.duckdb.compiled.database import GROW, MESSAGE, NUMBER, ROWS, TAKEN, address_of

_INT, _WORD = types.int64, ir.IntType(64)
_INLINE, _TEXT = 12, 16
_HALF = np.uint64((1 << 32) - 1)


def _external(name, signature):
    """Return a function of DuckDB for compiled code, which finds it by its name wherever it was compiled."""
    llvmlite.binding.add_symbol(f"duckdb_{name}", address_of(name))
    return types.ExternalFunction(f"duckdb_{name}", signature)


def _yielding():
    """Return a function that yields to other threads; where the system has none, any short call will do."""
    yields = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value if os.name == "posix" else None
    llvmlite.binding.add_symbol("dpsieve_yield", yields or address_of("library_version"))
    return types.ExternalFunction("dpsieve_yield", _INT())


rows_of = _external("data_chunk_get_size", _INT(_INT))
_vector = _external("data_chunk_get_vector", _INT(_INT, _INT))
_data = _external("vector_get_data", _INT(_INT))
_validity = _external("vector_get_validity", _INT(_INT))
_state = _external("scalar_function_get_state", _INT(_INT))
_yield = _yielding()
_set_error = _external("scalar_function_set_error", types.void(_INT, _INT))


@intrinsic
def _pointer(typing, address):
    def code(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], _WORD.as_pointer())

    return types.CPointer(types.uint64)(types.int64), code


@intrinsic
def _call(typing, function, argument):
    """Call the function of one number at an address."""

    def code(context, builder, signature, arguments):
        kind = ir.FunctionType(_WORD, [_WORD])
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])

    return types.int64(types.int64, types.int64), code


@intrinsic
def _exchange(typing, address, value):
    """Write a word, and return the one that was there; no other thread comes between."""

    def code(context, builder, signature, arguments):
        place = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.atomic_rmw("xchg", place, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), code


@intrinsic
def _add(typing, address, number):
    """Add a number to a word that other threads add to, too."""

    def code(context, builder, signature, arguments):
        builder.atomic_rmw("add", builder.inttoptr(arguments[0], _WORD.as_pointer()), arguments[1], "seq_cst")
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


@jit()
def end(frame, rows):
    """Count the rows of a call that came to its end; one that an exception ends, which DuckDB ignores, does not."""
    _add(frame.ctypes.data + 8 * ROWS, rows)


@jit()
def lock(frame):
    """Wait until no other thread has this part, and lock it."""
    while _exchange(frame.ctypes.data + 8 * TAKEN, 1) != 0:
        while frame[TAKEN] != 0:
            _yield()


@jit()
def unlock(frame):
    """Unlock this part."""
    _exchange(frame.ctypes.data + 8 * TAKEN, 0)


@jit(forceinline=True)
def words_at(address, count):
    """Return an array of words where they lie."""
    return carray(_pointer(address), count)


@jit(forceinline=True)
def ints_at(address, count):
    """Return an array of whole numbers where they lie."""
    return words_at(address, count).view(np.int64)


@jit(forceinline=True)
def frame_of(info, fields):
    """Return the frame of the part that a call belongs to."""
    return ints_at(_state(info), fields)


@jit(forceinline=True)
def column(chunk, number):
    """Return the address of the values of a column."""
    return _data(_vector(chunk, number))


@jit()
def has_null(chunk, number):
    """Return whether a column contains a null."""
    valid, count = _validity(_vector(chunk, number)), rows_of(chunk)
    if valid == 0:
        return False
    for i in range(0, count, 64):
        unused = np.uint64(max(0, i + 64 - count))
        if ~load_word(valid + i // 8) << unused != np.uint64(0):
            return True
    return False


@jit(forceinline=True)
def text_at(values, i):
    """Return the address and the length of the text in row i."""
    place = values + _TEXT * i
    length = np.int64(load_word(place) & _HALF)
    return place + 4 if length <= _INLINE else np.int64(load_word(place + 8)), length


@jit()
def has_grown(frame):
    """Request more room; return whether there is some."""
    return _call(frame[GROW], frame[NUMBER]) != 0


@jit()
def stop(info, frame):
    """End the query with an error."""
    _set_error(info, frame[MESSAGE])


@jit()
def answer(result, count):
    """Write the result of each row: false."""
    words_at(_data(result), (count + 7) // 8).view(np.uint8)[:count] = 0
