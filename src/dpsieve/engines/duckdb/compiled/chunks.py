"""The compiled function that DuckDB calls with chunks of rows, and its access to the vectors of a chunk.

Every vector is flat. Addresses are int64. Nothing is checked here: `compiled.pairs` owns the buffers at the addresses.
"""

import ctypes
import os

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dpsieve.compiled.jit import callback, jit
from dpsieve.compiled.memory import load_word
from dpsieve.engines.duckdb.compiled import numbering_loops
from dpsieve.engines.duckdb.compiled.database import FIRST_FREE, GROW, MESSAGE, NUMBER, ROWS, TAKEN, address_of
from dpsieve.engines.duckdb.compiled.numbering_loops import SCRATCH, ints_at, number, words_at

_INT, _WORD = types.int64, ir.IntType(64)
# The words of a frame: the addresses of the frames of units and of keys, or 0 where they stand for themselves; those of
# the pairs' units, keys and hashes; how many pairs there is room for, and how many there are; and what wants more room.
UNITS, KEYS, NOTED_UNITS, NOTED_KEYS, NOTED_ORDERS, ROOM, FILLED, WANTS, FIELDS = range(FIRST_FREE, FIRST_FREE + 9)


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


@jit()
def _numbers(chunk, which, state, numbers, frame, desk):
    """Write the numbers of a column of a chunk; return whether there was room for all values."""
    done, count, values = 0, rows_of(chunk), ints_at(state, numbering_loops.FIELDS)
    while done < count:
        done = number(done, count, column(chunk, which), False, numbers, values, desk)
        if done < count:
            frame[WANTS] = state
            if not has_grown(frame):
                return False
    return True


@jit()
def _note(chunk, frame, numbers, desk):
    """Note the rows of a chunk; return whether there was room for them.

    The part is locked, so nothing may fail here: `numbers` and `desk` are room to work in.
    """
    count = rows_of(chunk)
    for which in range(2):
        if frame[UNITS + which] and not _numbers(chunk, which, frame[UNITS + which], numbers[which], frame, desk):
            return False
        if not frame[UNITS + which]:
            numbers[which] = words_at(column(chunk, which), count).view(np.int64)
    frame[WANTS] = 0
    while frame[FILLED] + count > frame[ROOM]:
        if not has_grown(frame):
            return False
    filled, orders = frame[FILLED], column(chunk, 2)
    units, noted_orders = words_at(frame[NOTED_UNITS], frame[ROOM]), words_at(frame[NOTED_ORDERS], frame[ROOM])
    keys = words_at(frame[NOTED_KEYS], (frame[ROOM] + 1) // 2).view(np.int32)
    for i in range(count):
        units[filled + i], keys[filled + i] = np.uint64(numbers[0, i]), np.int32(numbers[1, i])
        noted_orders[filled + i] = load_word(orders + 8 * i)
    frame[FILLED] = filled + count
    return True


@callback("void(int64, int64, int64)")
def visit(info, chunk, result):
    """Note rows of a unit, a key and its hash from DuckDB; end the query where there is a null, or no room."""
    frame, count = frame_of(info, FIELDS), rows_of(chunk)
    numbers, desk = np.empty((2, count), np.int64), np.empty(SCRATCH, np.int64)
    lock(frame)
    failed = has_null(chunk, 0) or has_null(chunk, 1) or not _note(chunk, frame, numbers, desk)
    unlock(frame)
    if failed:
        stop(info, frame)
    answer(result, count)
    end(frame, count)
