"""Loops of sparse vectors: texts, packed numbers, ALP bits, random walks, and banded linear systems over bits.

Digests are polynomials modulo 2^61 - 1, at two points.

ALP has a column of places per level, and in every column one place per entry. The place of an entry in column c of s
places is floor(u s / 2^32), where u is the upper half of splitmix64's finaliser at a + (c + 1) b modulo 2^64, and a and
b are the two words of the entry. It is bit c s + place of the cells. Loops release the interpreter lock, so that
callers can share the work among threads.

Random walks have whole steps: `up` with probability `chance`, otherwise `down`; arrays have one element per step.

The solution of a banded system is a table with cells of `bits` bits, one per column. It is stored in blocks of 64
columns, each as `bits` words: word p holds bit p of the cells. So the exclusive or of the cells at the set bits of a
window takes 5 * bits neighbouring words.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dpsieve.compiled.jit import jit
from dpsieve.compiled.memory import load_byte, prefetch
from dpsieve.compiled.words import mul_words

_NARROW, _WIDE = ir.IntType(64), ir.IntType(128)
_P = np.uint64(2**61 - 1)
_STEP = 7  # bytes per coefficient, so that it is below p


@intrinsic
def _product(typing, a, b):
    """Return a * b modulo 2^61 - 1, or that plus 2^61 - 1, for factors below 2^62."""

    def code(context, builder, signature, arguments):
        product = builder.mul(*(builder.zext(word, _WIDE) for word in arguments))
        low = builder.and_(product, ir.Constant(_WIDE, 2**61 - 1))
        high = builder.lshr(product, ir.Constant(_WIDE, 61))
        return builder.trunc(builder.add(low, high), _NARROW)

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


_ONE, _WORD, _INSIDE = np.uint64(1), np.uint64(64), np.uint64(63)


@jit(nogil=True)
def pack(values, bits, words):
    """Write numbers below 2^bits, one after the other, into words that are all 0."""
    for i in range(len(values)):
        at, shift = i * bits >> 6, np.uint64(i * bits) & _INSIDE
        words[at] |= values[i] << shift
        if shift + np.uint64(bits) > _WORD:
            words[at + 1] |= values[i] >> (_WORD - shift)


@jit(nogil=True)
def unpack(words, bits, cells):
    """Return the numbers of these cells."""
    values = np.empty(len(cells), np.uint64)
    mask = (_ONE << np.uint64(bits)) - _ONE
    for i in range(len(cells)):
        at, shift = cells[i] * bits >> 6, np.uint64(cells[i] * bits) & _INSIDE
        value = words[at] >> shift
        if shift + np.uint64(bits) > _WORD:
            value |= words[at + 1] << (_WORD - shift)
        values[i] = value & mask
    return values


_SIX, _HALF = np.uint64(6), np.uint64(32)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@jit(forceinline=True)
def _bit(a, b, column, places):
    z = a + np.uint64(column + 1) * b
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    z ^= z >> np.uint64(31)
    return np.uint64(column) * places + ((z >> _HALF) * places >> _HALF)


@jit(nogil=True)
def set_bits(levels, words, places, columns, negative, first, last, cells):
    """Set the bits of all entries, in the words of `cells` from `first` to before `last`.

    The first `negative` columns stand for the levels -1, -2, ..., the others for 1, 2, ...
    """
    size = np.uint64(places)
    for column in range(64 * first // places, min(columns, 64 * last // places + 1)):
        sign, level = (-1, column + 1) if column < negative else (1, column - negative + 1)
        for i in range(len(levels)):
            if sign * levels[i] >= level:
                bit = _bit(words[i, 0], words[i, 1], column, size)
                if first <= np.int64(bit >> _SIX) < last:
                    cells[bit >> _SIX] |= _ONE << (bit & np.uint64(63))


@jit(forceinline=True)
def _steps(a, b, cells, places, columns, ones, zeros, steps):
    """Set the step of each column. It is apart from the walk, so that no branch waits for memory."""
    for t in range(len(columns)):
        bit = _bit(a, b, columns[t], places)
        seen = np.int64(cells[bit >> _SIX] >> (bit & np.uint64(63)) & _ONE)
        steps[t] = zeros[t] + seen * (ones[t] - zeros[t])


@jit(nogil=True)
def highest_points(words, cells, places, columns, ones, zeros, out):
    """Walk along the columns of each entry, and set where the walk is highest, as a number of steps.

    A step is ones[t] or zeros[t], by the bit in columns[t]. Of several highest points, it is the middle between the
    first and the last.
    """
    steps = np.empty(len(columns), np.int64)
    for i in range(len(words)):
        _steps(words[i, 0], words[i, 1], cells, np.uint64(places), columns, ones, zeros, steps)
        height = best = first = last = 0
        for t in range(len(steps)):
            height += steps[t]
            above, level = height > best, height >= best
            best = max(best, height)
            first = t + 1 if above else first
            last = t + 1 if level else last
        out[i] = (first + last) / 2


@jit(nogil=True)
def climbs(chance, up, down, steps, begin):
    """Return P[height after t steps is x, above 0 in all of them] for all t and x, from these chances at the beginning.

    All steps are of one kind. What is above the highest x of `begin` is left out.
    """
    highest = len(begin) - 1
    out = np.zeros((steps + 1, highest + 1))
    out[0] = begin
    for t in range(steps):
        for x in range(highest + 1):
            mass = out[t, x]
            if mass == 0.0:
                continue
            if x + up <= highest:
                out[t + 1, x + up] += mass * chance
            if x > down:
                out[t + 1, x - down] += mass * (1 - chance)
    return out


@jit(nogil=True)
def returns(chance, up, down, start, deepest):
    """Return P[height after t steps is 0, never above 0] for all t, with the steps from `start` on."""
    steps = len(chance) - start
    out = np.zeros(steps + 1)
    here, there = np.zeros(deepest + 1), np.zeros(deepest + 1)
    here[0] = out[0] = 1.0
    for t in range(steps):
        i = start + t
        there[:] = 0.0
        for x in range(deepest + 1):  # x below 0
            mass = here[x]
            if mass == 0.0:
                continue
            if x >= up[i]:
                there[x - up[i]] += mass * chance[i]
            if x + down[i] <= deepest:
                there[x + down[i]] += mass * (1 - chance[i])
        here, there = there, here
        out[t + 1] = here[0]
    return out


@jit(nogil=True)
def stays(chance, up, down, deepest):
    """Return P[below 0 in all steps from t on] for all t. What is below `deepest` is taken to stay below 0."""
    steps = len(chance)
    out = np.ones(steps + 1)
    later, now = np.ones(deepest + 1), np.ones(deepest + 1)
    for t in range(steps - 1, -1, -1):
        out[t] = (1 - chance[t]) * (later[down[t]] if down[t] <= deepest else 1.0)
        for x in range(1, deepest + 1):
            risen = later[x - up[t]] if x > up[t] else 0.0
            fallen = later[x + down[t]] if x + down[t] <= deepest else 1.0
            now[x] = chance[t] * risen + (1 - chance[t]) * fallen
        later, now = now, later
    return out


@jit(nogil=True)
def spread(weights, back, stay, out):
    """Add the chance that the first highest point is f and the last one l to out[f + l]; return the sums over l.

    It is weights[f] times P[back at that height at l, never above it] times P[below it after l]; the sums are without
    the weights. `back` has a row for each f, or a single one if all are alike.
    """
    steps = len(stay)
    ends = np.zeros(steps)
    for f in range(steps):
        row = back[f] if len(back) > 1 else back[0]
        for last in range(f, steps):
            mass = row[last - f] * stay[last]
            ends[f] += mass
            out[f + last] += weights[f] * mass
    return ends


_ZERO, _TWO, _THREE, _FOUR, _LAST = (np.uint64(number) for number in (0, 2, 3, 4, 63))
_AHEAD = 4  # rows whose cells are fetched early


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
        out[i] = mul_words(words[i], np.uint64(starts))[0]
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
