"""Simulated clients: strings, digits, levels and coins of Arrow columns, vectorised.

Each function returns per entry what `dpsieve.federated.client` returns for one value, with the coins of the clients.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types
from numpy.typing import ArrayLike

from dpsieve.errors import InvalidType
from dpsieve.federated.client.questions import Question
from dpsieve.federated.client.strings import Grid, Strings
from dpsieve.federated.plans.levels import LevelPlan
from dpsieve.randomness.coins import coins
from dpsieve.randomness.picks import uniform_integers
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Floats, Ints
from dpsieve.values.columns import column_of


def answer_all(
    plan: LevelPlan,
    strings: Strings,
    values: Any,
    questions: Iterable[Question],
    count: Callable[[pa.Array, Bools, Ints], None],
    source: Source,
) -> None:
    """Ask one client per value every question, and count the answers: prefixes, whether they ended, how many reports.

    Equal strings are joined first: a level costs one coin per client, and text is cut once per distinct string that is
    still asked for.
    """
    column = read_strings(strings, values)
    column = column.filter(pa.array(are_accepted(strings, column)))
    encoded = column.dictionary_encode()
    whose, distinct = encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary
    lengths, open_ = _lengths(strings, distinct), np.ones(len(distinct), np.bool_)
    if plan.protocol == "cohorts":
        drawn = uniform_integers(len(whose), plan.levels, source) + 1
        drawn[~coins(len(whose), plan.coin, source=source)] = 0
    for question in questions:
        open_ &= _are_asked(question, distinct, open_)
        cohorts = plan.protocol == "cohorts"
        answers = drawn == question.level if cohorts else coins(len(whose), plan.coin, source=source)
        reports = np.bincount(whose[answers], minlength=len(distinct))
        sent = np.flatnonzero(open_ & (reports > 0))
        cut = cut_prefixes(strings, distinct.take(pa.array(sent)), question.depth)
        count(cut, lengths[sent] <= question.depth, reports[sent])
        open_ &= lengths > question.depth


def string_type(strings: Strings) -> pa.DataType:
    """Return the Arrow type of a column of strings."""
    return pa.large_binary() if strings.of_bytes else pa.large_string()


def read_strings(strings: Strings, values: Any) -> pa.Array:
    """Return values as one Arrow column of strings, with nulls; other types are refused."""
    hint = f"Pass {'bytes' if strings.of_bytes else 'text'}, as an Arrow array or a list."
    array = column_of("strings", values, hint, string_type(strings))
    kinds = (pa.binary(), pa.large_binary()) if strings.of_bytes else (pa.string(), pa.large_string())
    if array.type not in kinds and not types.is_null(array.type):
        raise InvalidType(f"strings has the type {array.type}. {hint}", argument="strings")
    return array.cast(string_type(strings))


def are_accepted(strings: Strings, column: pa.Array) -> Bools:
    """Return which entries of a column are such strings; nulls are not."""
    lengths = _lengths(strings, column)
    fine = (lengths >= strings.min_length) & (lengths <= strings.max_length) & ~_bools(pc.is_null(column))
    return fine & _in_alphabet(strings, column)


def cut_prefixes(strings: Strings, column: pa.Array, length: int) -> pa.Array:
    """Return the first symbols of each entry, or all of a shorter one."""
    cut = pc.binary_slice if strings.of_bytes else pc.utf8_slice_codeunits
    return cut(column, 0, length)


def _lengths(strings: Strings, column: pa.Array) -> Ints:
    """Return the number of symbols of each entry, 0 for null."""
    count = pc.binary_length if strings.of_bytes else pc.utf8_length
    return np.asarray(pc.fill_null(count(column), 0).cast(pa.int64()).to_numpy(zero_copy_only=False))


def _in_alphabet(strings: Strings, column: pa.Array) -> Bools:
    """Return which entries have no symbol outside of the alphabet; nulls have none."""
    alphabet = strings.alphabet
    if alphabet is None or (len(alphabet) == 256 and strings.of_bytes):
        return np.ones(len(column), np.bool_)
    if isinstance(alphabet, str):  # what is left after trimming has a foreign symbol at each end
        left_over = pc.utf8_length(pc.utf8_trim(column, characters=alphabet))
        return _bools(pc.equal(pc.fill_null(left_over, 0), 0))
    foreign = np.ones(256, np.bool_)
    foreign[np.frombuffer(alphabet, np.uint8)] = False
    texts = pa.concat_arrays([pc.fill_null(column, b"")])
    _, offsets, data = texts.buffers()
    edges = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1] if offsets else [0]
    seen = np.cumsum(np.append(False, foreign[np.frombuffer(data or b"", np.uint8)]))
    return np.asarray(np.diff(seen[edges]) == 0)


def _are_asked(question: Question, distinct: pa.Array, open_: Bools) -> Bools:
    """Return which of the open strings extend a prefix of the question."""
    asked, places = np.zeros(len(distinct), np.bool_), np.flatnonzero(open_)
    begun = cut_prefixes(question.strings, distinct.take(pa.array(places)), question.before)
    prefixes = pa.array(question.prefixes, string_type(question.strings))
    asked[places] = _bools(pc.is_in(begun, value_set=prefixes))
    return asked


def _bools(column: pa.Array) -> Bools:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.bool_)


def cell_edges(grid: Grid, cells: ArrayLike) -> Floats:
    """Return where cells begin; the edge after the last one is the upper end of the grid."""
    place = np.asarray(cells, np.float64)
    return np.where(place == grid.cells, grid.high, grid.low + (grid.high - grid.low) * (place / grid.cells))


def find_cells(grid: Grid, values: ArrayLike) -> Ints:
    """Return the cell of each value, -1 for a value that is not counted: NaN, or outside where that is silent."""
    x = np.asarray(values, np.float64)
    inside = np.clip(np.where(np.isnan(x), grid.low, x), grid.low, grid.high)
    cells = np.floor((inside - grid.low) / (grid.high - grid.low) * grid.cells).astype(np.int64)
    cells = np.clip(cells, 0, grid.cells - 1)
    cells -= (inside < cell_edges(grid, cells)) & (cells > 0)  # rounding may be one off at an edge
    cells += (inside >= cell_edges(grid, cells + 1)) & (cells < grid.cells - 1)
    counted = ~np.isnan(x) & ((grid.outside == "clip") | (x == inside))
    return np.where(counted, cells, -1)


def write_digits(grid: Grid, values: Any) -> pa.Array:
    """Return the digits of many values as byte strings, null where a value is not counted."""
    cells = find_cells(grid, read_numbers(values))
    powers = grid.branching ** np.arange(grid.depth - 1, -1, -1, dtype=np.int64)
    each = (np.maximum(cells, 0)[:, None] // powers % grid.branching).astype(np.uint8)
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(grid.depth), len(cells), [None, pa.py_buffer(np.ascontiguousarray(each))]
    )
    return pc.if_else(pa.array(cells >= 0), fixed.cast(pa.binary()), pa.scalar(None, pa.binary()))


def read_digits(grid: Grid, strings: pa.Array) -> Ints:
    """Return the cells, at their own level, that have these digits; all strings have one length."""
    joined = b"".join(strings.to_pylist())
    if not joined:
        return np.zeros(len(strings), np.int64)
    each = np.frombuffer(joined, np.uint8).reshape(len(strings), -1).astype(np.int64)
    return each @ grid.branching ** np.arange(each.shape[1] - 1, -1, -1, dtype=np.int64)


def read_numbers(values: Any) -> Floats:
    """Return one number per client, NaN for a null; errors do not quote values."""
    hint = "Pass numbers, as an Arrow array, a NumPy array or a list."
    column = column_of("values", values, hint)
    if not any(fits(column.type) for fits in (types.is_integer, types.is_floating, types.is_decimal, types.is_null)):
        raise InvalidType(f"values must be one column of numbers. {hint}", argument="values")
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
