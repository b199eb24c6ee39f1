"""The compiled functions that DuckDB calls with chunks of rows, and their access to the vectors of a chunk.

Vectors may be constant, or refer to a dictionary: each is flattened before it is read. Addresses are int64. Nothing is
checked here: `compiled.pairs` owns the buffers at the addresses.
"""

import ctypes
import os

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dpsieve.compiled.jit import callback, jit
from dpsieve.compiled.memory import copy, load_byte, load_half, load_word, store_word
from dpsieve.engines.duckdb.compiled import numbering_loops
from dpsieve.engines.duckdb.compiled.database import FIRST_FREE, GROW, MESSAGE, NUMBER, ROWS, TAKEN, address_of
from dpsieve.engines.duckdb.compiled.numbering_loops import SCRATCH, combine, hash_word, ints_at, number, words_at
from dpsieve.engines.duckdb.compiled.pair_loops import BYTES_OF_A_COLUMN, CHAIN, STORE, note, part_of

_INT, _WORD = types.int64, ir.IntType(64)
# The words of a frame: the addresses of the frames of units and of keys, or 0 for integers that need no number; the
# columns with their hashes; how many columns of values follow unit and key; the bits that DuckDB hashes of a unit that is
# an integer, and the hash of the salt; the address of the chains of blocks, how many bits a part has, and the address of
# the store of blocks; and the frame that must grow.
UNITS, KEYS, UNIT_HASHES, KEY_HASHES, VALUES, MASK, SALT, CHAINS, BITS, BLOCKS, WANTS, FIELDS = range(
    FIRST_FREE, FIRST_FREE + 12
)

# The words of an Arrow table: the number of the next piece; how many pieces and columns there are; the addresses of the
# pieces, each a batch with its first row and its rows, and of the columns of each batch.
TAKEN_PIECES, PIECES, COLUMNS, PIECES_AT, COLUMNS_AT, TABLE = range(6)
# The words of a column of a batch: the addresses of its bits of validity, or 0, of its values or the offsets of texts,
# and of the texts; its first row; and the bytes of a value, or minus those of an offset.
VALID, PLAIN, BYTES, FIRST, WIDTH, COLUMN = range(6)


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
_allow_nulls = _external("vector_ensure_validity_writable", types.void(_INT))
_extra = _external("function_get_extra_info", _INT(_INT))
_set_size = _external("data_chunk_set_size", types.void(_INT, _INT))
_flatten = _external("v2_vector_flatten", types.int32(_INT, _INT))
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
    """Add to a word atomically; return the old one."""

    def code(context, builder, signature, arguments):
        place = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.atomic_rmw("add", place, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), code


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
def is_flat(chunk, columns):
    """Return whether the columns of a chunk are flat by now: DuckDB flattens those that are not."""
    for which in range(columns):  # noqa: SIM110 - numba has no generator in `all`
        if _flatten(_vector(chunk, which), 0) != 0:
            return False
    return True


@jit()
def _write_numbers(chunk, which, state, numbers, frame, scratch):
    """Write the numbers of a column of a chunk; return whether there was room for all values."""
    done, count, values = 0, rows_of(chunk), ints_at(state, numbering_loops.FIELDS)
    given = column(chunk, frame[UNIT_HASHES + which]) if frame[UNIT_HASHES + which] else 0
    while done < count:
        done = number(done, count, column(chunk, which), given, numbers, values, scratch)
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
    bits, mask, salt = frame[BITS], np.uint64(frame[MASK]), np.uint64(frame[SALT])
    chains, store = ints_at(frame[CHAINS], (1 << bits, CHAIN)), ints_at(frame[BLOCKS], STORE)
    hashes = column(chunk, frame[UNIT_HASHES]) if frame[UNIT_HASHES] else 0
    for i in range(count):
        unit = np.uint64(numbers[0, i])
        unit_hash = load_word(hashes + 8 * i) if hashes else combine(salt, hash_word(unit & mask))
        place = note(chains, part_of(unit_hash, bits), unit, numbers[1, i], store)
        while place == 0:
            frame[WANTS] = 0
            if not has_grown(frame):
                return False
            place = note(chains, part_of(unit_hash, bits), unit, numbers[1, i], store)
        for c in range(frame[VALUES]):
            store_word(place + BYTES_OF_A_COLUMN * c, load_word(column(chunk, 2 + c) + 8 * i))
    return True


@callback("void(int64, int64, int64)", waits=False)
def visit(info, chunk, result):
    """Append rows of a unit and a key to a part; end the query at a null, or where there is no room."""
    frame, count = frame_of(info, FIELDS), rows_of(chunk)
    numbers, scratch = np.empty((2, count), np.int64), np.empty(SCRATCH, np.int64)
    lock(frame)
    columns = max(2 + frame[VALUES], frame[UNIT_HASHES] + 1, frame[KEY_HASHES] + 1)
    failed = not is_flat(chunk, columns) or has_null(chunk, 0) or has_null(chunk, 1)
    failed = failed or not _append(chunk, frame, numbers, scratch)
    unlock(frame)
    if failed:
        stop(info, frame)
    answer(result, count)
    end(frame, count)


@jit()
def _write_texts(target, offsets, texts, first, count, width):
    """Write texts as DuckDB has them: the length, and all bytes of a short one, or some and its address."""
    for i in range(count):
        place = offsets + width * (first + i)
        if width == 4:
            begin, stop = load_half(place), load_half(place + 4)
        else:
            begin, stop = np.int64(load_word(place)), np.int64(load_word(place + 8))
        there, length = target + 16 * i, stop - begin
        store_word(there, np.uint64(length))
        store_word(there + 8, np.uint64(0 if length <= 12 else texts + begin))
        copy(there + 4, texts + begin, length if length <= 12 else 4)


@callback("void(int64, int64)", waits=False)
def read_rows(info, chunk):
    """Fill a chunk with the next piece of an Arrow table; texts stay where they are."""
    table = ints_at(_extra(info), TABLE)
    piece = _add(table.ctypes.data + 8 * TAKEN_PIECES, 1)
    if piece >= table[PIECES]:
        _set_size(chunk, 0)
        return
    batch, start, count = ints_at(table[PIECES_AT] + 24 * piece, 3)
    for which in range(table[COLUMNS]):
        source = ints_at(table[COLUMNS_AT] + 8 * COLUMN * (batch * table[COLUMNS] + which), COLUMN)
        vector, first, width = _vector(chunk, which), start + source[FIRST], source[WIDTH]
        target = _data(vector)
        if width > 0:
            copy(target, source[PLAIN] + width * first, width * count)
        else:
            _write_texts(target, source[PLAIN], source[BYTES], first, count, -width)
        if source[VALID] != 0:
            _allow_nulls(vector)
            valid = _validity(vector)
            for i in range(count):
                place = first + i
                bit = (load_byte(source[VALID] + place // 8) >> np.uint64(place % 8)) & np.uint64(1)
                word = valid + i // 64 * 8
                here = np.uint64(1) << np.uint64(i % 64)
                store_word(word, load_word(word) | here if bit else load_word(word) & ~here)
    _set_size(chunk, count)
