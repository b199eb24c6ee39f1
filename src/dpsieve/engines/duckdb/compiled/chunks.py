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
# The words of a frame: the addresses of the frames of units and of keys, or 0 for integers that need no number; the
# addresses of the units, keys and hashes of the pairs; capacity and number of pairs; and the frame that must grow.
UNITS, KEYS, NOTED_UNITS, NOTED_KEYS, NOTED_ORDERS, ROOM, FILLED, WANTS, FIELDS = range(FIRST_FREE, FIRST_FREE + 9)


def _external(name, signature):
    """Return a function of DuckDB for compiled code, which finds it by its name wherever it was compiled."""
    llvmlite.binding.add_symbol(f"duckdb_{name}", address_of(name))
    return types.ExternalFunction(f"duckdb_{name}", signature)


def _yielding():
    """Return a function that yields to other threads, or any short call where the system has none."""
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
    """Exchange a word atomically; return the old one."""

    def code(context, builder, signature, arguments):
        place = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.atomic_rmw("xchg", place, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), code


@intrinsic
def _add(typing, address, number):
    def code(context, builder, signature, arguments):
        builder.atomic_rmw("add", builder.inttoptr(arguments[0], _WORD.as_pointer()), arguments[1], "seq_cst")
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


@jit()
def end(frame, rows):
    """Count the rows of a call that ended normally. DuckDB ignores exceptions, so a failed call is noticed by these."""
    _add(frame.ctypes.data + 8 * ROWS, rows)


@jit()
def lock(frame):
    """Acquire the spin lock of a part."""
    while _exchange(frame.ctypes.data + 8 * TAKEN, 1) != 0:
        while frame[TAKEN] != 0:
            _yield()


@jit()
def unlock(frame):
    """Release the spin lock of a part."""
    _exchange(frame.ctypes.data + 8 * TAKEN, 0)


@jit(forceinline=True)
def frame_of(info, fields):
    """Return the frame of the part that a call writes to."""
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
    """Let Python enlarge the buffers of a part; return whether that was possible."""
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
def _write_numbers(chunk, which, state, numbers, frame, scratch):
    """Write the numbers of a column of a chunk; return whether there was room for all values."""
    done, count, values = 0, rows_of(chunk), ints_at(state, numbering_loops.FIELDS)
    while done < count:
        done = number(done, count, column(chunk, which), False, numbers, values, scratch)
        if done < count:
            frame[WANTS] = state
            if not has_grown(frame):
                return False
    return True


@jit()
def _append(chunk, frame, numbers, scratch):
    """Append the rows of a chunk to the pairs of a part; return whether there was room for them.

    The part is locked, so nothing may fail here: `numbers` and `scratch` are buffers that the caller allocated.
    """
    count = rows_of(chunk)
    for which in range(2):
        state = frame[UNITS + which]
        if state and not _write_numbers(chunk, which, state, numbers[which], frame, scratch):
            return False
        if not state:
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
    """Append rows of a unit, a key and its hash to a part; end the query at a null, or where there is no room."""
    frame, count = frame_of(info, FIELDS), rows_of(chunk)
    numbers, scratch = np.empty((2, count), np.int64), np.empty(SCRATCH, np.int64)
    lock(frame)
    failed = has_null(chunk, 0) or has_null(chunk, 1) or not _append(chunk, frame, numbers, scratch)
    unlock(frame)
    if failed:
        stop(info, frame)
    answer(result, count)
    end(frame, count)
