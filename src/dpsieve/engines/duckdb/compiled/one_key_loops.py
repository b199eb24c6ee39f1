"""The key of each unit with the smallest hash: keys get numbers, and each unit a cell of a table.

A cell is two words: the upper 36 bits of the hash with one more than the key's number below them, or 0 where the cell
is empty; and the unit. A unit is either a whole number, which is its word, or a text, whose word is its hash; then a
third word refers to the text, and a match is always checked on its bytes (a fourth fills the cell up). Units are never
taken for each other by hashes alone: one unit more or less must change one key. Of two keys with equal hashes the
smaller one is kept, as in SQL: anyone can make such keys, so they must not take longer than others.

Each part of the units, a stretch of a circle on which every unit has an angle, has a table and numbers of its own.
Threads look at all tables without a lock: what a unit keeps only becomes smaller, and a cell stays its own, so that a
row which comes after what a thread sees there will never be kept. The others, few as a unit has kept more and more, are
handed to one part after the other under its lock. Tables that have grown stay as they were, for threads that still look
at them. Where a search will start is known some rows ahead, and requested then, so that memory is not waited for; rows
that do not find their unit there wait until the next line has come.

Nothing is checked here: `duckdb.one_key` sees to it that the addresses are those of buffers that it keeps alive.
"""

import numpy as np

from dpsieve.compiled.jit import callback, jit
from dpsieve.compiled.memory import digest, fold, load_word, prefetch, same
from dpsieve.engines.duckdb.compiled import numbering_loops as numbered_loops
from dpsieve.engines.duckdb.compiled.chunks import (
    answer,
    column,
    end,
    frame_of,
    has_grown,
    has_taken,
    holds_null,
    ints_at,
    leave,
    load_shared,
    rows_of,
    stop,
    store_shared,
    text_at,
    words_at,
)
from dpsieve.engines.duckdb.compiled.database import FIRST_FREE, NUMBER
from dpsieve.engines.duckdb.compiled.numbering_loops import (
    DESK,
    SHELF,
    blocks_of,
    bytes_at,
    comes_before,
    is_text,
    number,
    put,
)

# The words of a frame: how many parts there are, and the address of those of their frames; the addresses of the salt,
# of the shelf for the texts of units, and of the frame of the keys; whether units are texts; the addresses of the table
# and of one that shall take its place; how many units there are, how many rows were seen, and what wants more room.
(
    PARTS, FRAMES, SALT, TEXTS, KEYS, IS_TEXT, TABLE, LARGER, UNITS, SEEN, WANTS, FIELDS,
) = range(FIRST_FREE, FIRST_FREE + 12)  # fmt: skip
_AHEAD = 32
_CELLS, LINE = 4, 64  # the cells of a line; what a table starts with, to tell how many cells there are
NUMBER_BITS = 28
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_BITS = np.uint64(NUMBER_BITS)
_NUMBER = (_ONE << _BITS) - _ONE
_HALF = np.uint64(32)
_LOWER = (_ONE << _HALF) - _ONE


@jit(nogil=True)
def sift(count, units, orders, frame, words, cells, waiting, firsts, following, tables, rows):
    """Link the rows that may be kept: `firsts` has one of each part, or -1, and `following` another one of its part.

    Writes the words of units, and the cells that they have, or could get; `waiting`, `tables` and `rows` are room to
    work in. Of rows of one unit after each other, with nothing between, only the first by its hash is linked.
    """
    texts = frame[IS_TEXT] != 0
    for part in range(frame[PARTS]):
        tables[part] = load_shared(frame_at(frame, part).ctypes.data + 8 * TABLE)
    if texts:  # constants, for which the same is compiled twice
        filled = _remaining(count, units, orders, frame, words, cells, waiting, following, tables, rows, True)
    else:
        filled = _remaining(count, units, orders, frame, words, cells, waiting, following, tables, rows, False)
    for i in rows[:filled]:
        part = following[i]
        last = firsts[part]
        if last >= 0 and words[last] == words[i] and (not texts or _same_text(units, i, last)):
            if load_word(orders + 8 * i) > load_word(orders + 8 * last):
                continue
            if load_word(orders + 8 * i) < load_word(orders + 8 * last):
                last = following[last]
        following[i], firsts[part] = last, i


@jit(forceinline=True)
def _remaining(count, units, orders, frame, words, cells, waiting, parts_of, tables, rows, texts):
    """Write the rows that may be kept, and return how many they are."""
    parts, salt, blocks = frame[PARTS], words_at(frame[SALT], 8), blocks_of(ints_at(frame[TEXTS], SHELF))
    for i in range(count):
        words[i] = _word(i, units, texts, salt)
        part, angle = _part_and_angle(words[i], salt, parts)
        parts_of[i], cells[i] = part, _home(angle, tables[part], texts)
        if i < _AHEAD:
            _request(cells[i], texts)
    filled, left = 0, 0
    for i in range(count):
        _request(cells[min(i + _AHEAD, count - 1)], texts)
        place, kept = _look(words[i], cells[i], texts)
        if not texts and place < _CELLS:
            cells[i] += place * width_of(texts)
            rows[filled] = i
            filled += _may_keep(orders, i, kept)
            continue
        waiting[left] = i
        left += 1
        if texts:  # the one that is likely its own
            prefetch(bytes_at(load_word(cells[i] + place % _CELLS * width_of(texts) + 16), blocks)[0])
        else:
            cells[i] = _next(cells[i], tables[parts_of[i]], texts)
            _request(cells[i], texts)
    for i in waiting[:left]:
        unit = text_at(units, i) if texts else (0, 0)
        cells[i], kept = _find(words[i], unit, cells[i], tables[parts_of[i]], texts, blocks)
        rows[filled] = i
        filled += _may_keep(orders, i, kept)
    return filled


@jit()
def keep(first, following, units, keys, orders, words, cells, frame, rows, numbers, desk):
    """Let units keep the keys of linked rows that come before their own; tell whether that was possible.

    The part is locked, so nothing may fail here: `rows`, `numbers` and `desk` are room to work in.
    """
    texts, salt, shelf = frame[IS_TEXT] != 0, words_at(frame[SALT], 8), ints_at(frame[TEXTS], SHELF)
    filled = 0
    while first >= 0:
        rows[filled] = first
        first = following[first]
        filled += 1
    if not _numbers(rows, filled, keys, numbers, frame, desk):
        return False
    while is_full(frame[UNITS] + filled, frame[TABLE]):
        if not _has_room(frame, 0):
            return False
        store_shared(frame.ctypes.data + 8 * TABLE, np.uint64(frame[LARGER]))
    table, values = frame[TABLE], ints_at(frame[KEYS], numbered_loops.FIELDS)
    names = words_at(values[numbered_loops.WORDS], values[numbered_loops.SIZE])
    for j in range(filled):
        i, cell = rows[j], cells[rows[j]]
        is_here = table < cell < _end(table, texts)
        kept = load_word(cell) if is_here else _ZERO
        if not is_here or (kept != _ZERO and (texts or load_word(cell + 8) != words[i])):
            angle = _part_and_angle(words[i], salt, frame[PARTS])[1]
            unit, home = text_at(units, i) if texts else (0, 0), _home(angle, table, texts)
            cell, kept = _find(words[i], unit, home, table, texts, blocks_of(shelf))
        new = (load_word(orders + 8 * i) & ~_NUMBER) | np.uint64(numbers[j] + 1)
        if kept == _ZERO:
            if texts:
                unit = text_at(units, i)
                reference = put(unit, shelf)
                if reference == _ZERO:
                    if not _has_room(frame, frame[TEXTS]):
                        return False
                    reference = put(unit, shelf)
                store_shared(cell + 16, reference)
            store_shared(cell + 8, words[i])
            frame[UNITS] += 1
        is_first = kept == _ZERO or new < kept
        if kept != _ZERO and (kept ^ new) & ~_NUMBER == _ZERO:
            own, other, is_key_text = names[new & _NUMBER], names[kept & _NUMBER], values[numbered_loops.IS_TEXT] != 0
            is_first = comes_before(own, other, is_key_text, blocks_of(shelf))
        if is_first:
            store_shared(cell, new)
    return True


@jit()
def _numbers(rows, count, keys, numbers, frame, desk):
    """Write the numbers of the keys of some rows; tell whether there was room for all of them."""
    done, values = 0, ints_at(frame[KEYS], numbered_loops.FIELDS)
    while done < count:
        done = number(done, count, rows, keys, False, numbers, values, desk)
        if done < count and not _has_room(frame, frame[KEYS]):
            return False
    return values[numbered_loops.FOUND] < np.int64(_NUMBER)


@jit()
def _has_room(frame, wants):
    """Ask for room for what wants some: its address, or 0 for the table."""
    frame[WANTS] = wants
    return has_grown(frame)


@jit()
def is_full(units, table):
    """Tell whether these units would fill more than three quarters of a table: a search ends at an empty cell."""
    return 4 * units > 3 * np.int64(load_word(table))


@jit(nogil=True)
def rehash(table, larger, salt, parts, texts):
    """Move all cells to a larger table."""
    width = width_of(texts)
    for cell in range(table + LINE, _end(table, texts), width):
        if load_word(cell) != _ZERO:
            line = _home(_part_and_angle(load_word(cell + 8), salt, parts)[1], larger, texts)
            while load_word(line + (_CELLS - 1) * width) != _ZERO:
                line = _next(line, larger, texts)
            while load_word(line) != _ZERO:
                line += width
            for word in range(0, width, 8):
                store_shared(line + word, load_word(cell + word))


@jit(nogil=True)
def tally(frame, part, counts):
    """Count the units of each key, by its number; return how many units there are, or -1 if one has two cells.

    A unit has one cell if each cell is in the part of its unit, and is the first one of this unit that a search from
    the unit's home meets: two cells of a unit would be on the way of the same search. The unit of a text is read again,
    so that this does not depend on what was written to cells.
    """
    if frame[IS_TEXT] != 0:  # constants, for which the same is compiled twice
        return _tally(frame, part, counts, True)
    return _tally(frame, part, counts, False)


@jit(forceinline=True)
def _tally(frame, part, counts, texts):
    table, salt, blocks = frame[TABLE], words_at(frame[SALT], 8), blocks_of(ints_at(frame[TEXTS], SHELF))
    width, ahead, units = width_of(texts), _AHEAD * width_of(texts), 0
    last = _end(table, texts) - width
    for cell in range(table + LINE, last + width, width):
        if texts:
            prefetch(bytes_at(load_word(min(cell + ahead, last) + 16), blocks)[0])
        kept = load_word(cell)
        if kept == _ZERO:
            continue
        number, word, unit = np.int64(kept & _NUMBER) - 1, load_word(cell + 8), (0, 0)
        if texts:
            unit = bytes_at(load_word(cell + 16), blocks)
            if digest(unit[0], unit[1], (salt[0], salt[1], salt[2], salt[3])) != word:
                return -1
        own_part, angle = _part_and_angle(word, salt, frame[PARTS])
        first = _find(word, unit, _home(angle, table, texts), table, texts, blocks)[0]
        if own_part != part or first != cell or not 0 <= number < len(counts):
            return -1
        counts[number] += 1
        units += 1
    return units


@jit(forceinline=True)
def frame_at(frame, part):
    """Return the frame of a part."""
    return ints_at(np.int64(load_word(frame[FRAMES] + 8 * part)), FIELDS)


@jit(forceinline=True)
def width_of(texts):
    """Return how many bytes a cell takes."""
    return 32 if texts else 16


@jit(forceinline=True)
def _end(table, texts):
    return table + LINE + width_of(texts) * np.int64(load_word(table))


@jit(forceinline=True)
def _word(i, units, texts, salt):
    """Return the word that stands for a unit: a whole number itself, or the hash of a text."""
    if not texts:
        return load_word(units + 8 * i)
    place, length = text_at(units, i)
    return digest(place, length, (salt[0], salt[1], salt[2], salt[3]))


@jit(forceinline=True)
def _part_and_angle(word, salt, parts):
    """Return the part of a unit, a stretch of a circle, and how far into it the unit lies, in 2^32 steps.

    Where a unit lies is secret, so nobody can choose units that lie close together.
    """
    angle = fold(word ^ salt[4], salt[5]) >> _HALF
    return np.int64(angle * np.uint64(parts) >> _HALF), angle * np.uint64(parts) & _LOWER


@jit(forceinline=True)
def _home(angle, table, texts):
    """Return the address of the line where the search for a unit starts."""
    line = angle * (load_word(table) >> np.uint64(2)) >> _HALF
    return table + LINE + _CELLS * width_of(texts) * np.int64(line)


@jit(forceinline=True)
def _next(line, table, texts):
    line += _CELLS * width_of(texts)
    return line if line < _end(table, texts) else table + LINE


@jit(forceinline=True)
def _may_keep(orders, i, kept):
    """Tell whether a row does not come after what its unit keeps."""
    return (kept == _ZERO) | (load_word(orders + 8 * i) <= kept | _NUMBER)


@jit(forceinline=True)
def _request(line, texts):
    """Ask for a line of cells to be brought near."""
    prefetch(line)
    if texts:
        prefetch(line + LINE)


@jit(forceinline=True)
def _look(word, line, texts):
    """Return where in a line the cell of a word is, and what it keeps; or where an empty one is, if any, and 0.

    The cells of a line are filled in turn, and looked at together, without a branch that would be foretold wrongly.
    Without the part's lock, what is kept is what was seen together with the unit, and an empty cell may be empty no
    more.
    """
    taken, found, kept, width = 0, _CELLS, _ZERO, width_of(texts)
    for i in range(_CELLS):
        seen = load_shared(line + i * width)
        own = (seen != _ZERO) & (load_word(line + i * width + 8) == word)
        taken += seen != _ZERO
        found, kept = i if own else found, seen if own else kept
    return min(found, taken), kept


@jit()
def _find(word, unit, line, table, texts, blocks):
    """Return the address of the cell of a unit and what it keeps, or of the empty cell where it belongs, and 0."""
    width = width_of(texts)
    while True:
        for cell in range(line, line + _CELLS * width, width):
            seen = load_shared(cell)
            own = load_word(cell + 8) == word
            if seen == _ZERO or (own and (not texts or is_text(unit, load_word(cell + 16), blocks))):
                return cell, seen
        line = _next(line, table, texts)


@jit(forceinline=True)
def _same_text(values, i, j):
    text, other = text_at(values, i), text_at(values, j)
    return text[1] == other[1] and same(text[0], other[0], text[1])


@jit(nogil=True)
def take_rows(count, units, keys, orders, frame):
    """Let units keep the keys of rows; tell whether that was possible."""
    parts, words, firsts = frame[PARTS], np.empty(count, np.uint64), np.full(frame[PARTS], -1)
    cells, waiting, following, rows, numbers = np.empty((5, count), np.int64)
    tables, desk = np.empty(parts, np.int64), np.empty(DESK, np.int64)
    sift(count, units, orders, frame, words, cells, waiting, firsts, following, tables, rows)
    frame[SEEN] += count
    for turn in range(2 * parts):  # threads start at different parts, and come back to those that others had
        which = (frame[NUMBER] + turn) % parts
        part = frame_at(frame, which)
        if firsts[which] >= 0 and has_taken(part, wait=turn >= parts):
            done = keep(firsts[which], following, units, keys, orders, words, cells, part, rows, numbers, desk)
            leave(part)
            if not done:
                return False
            firsts[which] = -1
    return True


@callback("void(int64, int64, int64)")
def visit(info, chunk, result):
    """Take rows of a unit, a key and its hash from DuckDB; end the query for a null, or no room."""
    frame, count = frame_of(info, FIELDS), rows_of(chunk)
    failed = holds_null(chunk, 0) or holds_null(chunk, 1)
    if not failed:
        failed = not take_rows(count, column(chunk, 0), column(chunk, 1), column(chunk, 2), frame)
    if failed:
        stop(info, frame)
    answer(result, count)
    end(frame, count)
