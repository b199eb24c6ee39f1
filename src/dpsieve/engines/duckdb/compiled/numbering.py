"""Units as one value each, for compiled loops: a whole number or a text.

A unit of one column is its own value. One of several columns is the text `3:abcde` for the values 'abc' and 'de': the
lengths of all values but the last, each with a colon after it, and then the values one after the other. The lengths
say where each value ends, so different units have different texts, whatever characters the values hold; `its_values`
reads them back. A null in any column makes the whole null.

The memory that compiled loops share, and the blocks of it that hold texts.

Values that compiled loops number: which columns they may come from, and the memory that they take.
"""

import hashlib
import threading
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.engines.duckdb.compiled.database import Unavailable
from dpsieve.engines.engine import Aggregation, Columns
from dpsieve.engines.sql.bounded_query import AS_TEXT, Column, unit_names
from dpsieve.privacy.contribution import Weight
from dpsieve.types import Words

NUMBERS = frozenset("TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER".split())
_TEXTS = frozenset({"VARCHAR", "UUID"})  # as text, and back, these are what they were


def one_value(columns: Mapping[str, Column], wanted: Columns) -> str | None:
    """Return the expression of the value over u0, u1, ...; None where a column has a type or collation that bars it."""
    unit, names = [columns[name] for name in wanted.unit], unit_names(wanted)
    if any(column.collated or column.kind not in NUMBERS | _TEXTS for column in unit):
        return None
    if len(unit) == 1:
        return f"CAST(u0 AS {kind_of_value(columns, wanted)})"
    texts = [f"CAST({u} AS VARCHAR)" for u in names]
    return " || ".join([*(f"length({text}) || ':'" for text in texts[:-1]), *texts])


def kind_of_value(columns: Mapping[str, Column], wanted: Columns) -> str:
    """Return the type of the value."""
    return "BIGINT" if len(wanted.unit) == 1 and columns[wanted.unit[0]].kind in NUMBERS else "VARCHAR"


def its_values(name: str, unit: list[Column]) -> list[str]:
    """Return the expressions of the values of u0, u1, ... over the column `name` that holds `one_value`."""
    if len(unit) == 1:
        return [f"CAST({name} AS {unit[0].type})"]
    lengths = [f"CAST(split_part({name}, ':', {i + 1}) AS BIGINT)" for i in range(len(unit) - 1)]
    head = " + ".join(f"length(split_part({name}, ':', {i + 1})) + 1" for i in range(len(unit) - 1))
    starts = [" + ".join([head, *lengths[:i], "1"]) for i in range(len(unit))]
    texts = [f"substring({name}, {start}, {length})" for start, length in zip(starts, lengths, strict=False)]
    texts.append(f"substring({name}, {starts[-1]})")
    return [f"CAST({text} AS {column.type})" for text, column in zip(texts, unit, strict=True)]


_FIRST_BYTES = 1 << 16
_LONGEST_COLUMN = 2**31 - 1


class Memory:
    """How many bytes the tables of all threads may hold: half of what is allowed, as the result may take as much."""

    def __init__(self, allowed: int) -> None:
        self._lock, self._limit, self._held = threading.Lock(), allowed // 2, 0

    def take(self, count: int) -> bool:
        """Hold more bytes; tell whether that is allowed."""
        with self._lock:
            if self._held + count > self._limit:
                return False
            self._held += count
            return True

    def give_back(self, count: int) -> None:
        """Hold fewer bytes."""
        with self._lock:
            self._held -= count


class Blocks:
    """Blocks of bytes, which stay where they are."""

    def __init__(self, room: Memory) -> None:
        from dpsieve.engines.duckdb.compiled.numbering_loops import MOST_BLOCKS

        self._room, self._lock = room, threading.Lock()
        self._blocks: list[NDArray[np.uint8]] = []
        self.addresses = np.zeros(MOST_BLOCKS, np.uint64)

    def add(self, size: int) -> int:
        """Add a block, and return its number, from 1 on; 0 where there is no room for it."""
        with self._lock:
            number = len(self._blocks) + 1
            if number == len(self.addresses) or not self._room.take(size):
                return 0
            self._blocks.append(np.empty(size, np.uint8))
            self.addresses[number] = self._blocks[-1].ctypes.data
            return number

    def texts(self, references: Words, large: bool = True) -> pa.Array | None:
        """Return the texts that words refer to; None where they are too long for one column, unless it may be large."""
        from dpsieve.engines.duckdb.compiled.numbering_loops import LONGEST, gather

        starts = np.zeros(len(references) + 1, np.int64)
        np.cumsum(references & np.uint64(LONGEST), out=starts[1:])
        if not large and starts[-1] > _LONGEST_COLUMN:  # large_string would tell of keys that are not released
            return None
        target = np.empty(int(starts[-1]), np.uint8)
        gather(references, self.addresses, starts, target)
        kind, offsets = (pa.LargeStringArray, starts) if large else (pa.StringArray, starts.astype(np.int32))
        return kind.from_buffers(len(references), pa.py_buffer(offsets), pa.py_buffer(target))


class Shelf:
    """Where one thread at a time puts texts; `frame` is what compiled loops know of it."""

    def __init__(self, blocks: Blocks) -> None:
        from dpsieve.engines.duckdb.compiled.numbering_loops import BLOCKS, SHELF

        self.blocks, self.frame = blocks, np.zeros(SHELF, np.int64)
        self.frame[BLOCKS] = blocks.addresses.ctypes.data

    def grow(self) -> bool:
        """Make room for the text that is wanted; tell whether that was possible."""
        from dpsieve.engines.duckdb.compiled.numbering_loops import BLOCK, LENGTH, LONGEST, USED, WANTED

        wanted = int(self.frame[WANTED])
        size = max(wanted, min(LONGEST + 1, 2 * int(self.frame[LENGTH])), _FIRST_BYTES)
        number = self.blocks.add(size) if wanted <= LONGEST else 0
        if number:
            self.frame[[BLOCK, LENGTH, USED]] = number, size, 0
        return number > 0


_WHOLE = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(), "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32(),
}  # fmt: skip
_MOST_VALUES = 2**31 - 1
Int32s = NDArray[np.int32]


def suits(columns: Mapping[str, Column], task: Aggregation, rows: int, listed: bool) -> bool:
    """Tell whether compiled loops can take this number of rows, with these columns."""
    wanted = task.columns
    if not wanted.unit or task.max_rows > 1 or (len(wanted.key) > 1 and not listed):
        return False
    if isinstance(task.measure, Weight) and rows > task.measure.most_units:
        return False
    return one_value(columns, wanted) is not None and (listed or read_as(columns[wanted.key[0]]) is not None)


def read_as(key: Column) -> str | None:
    """Return the type that keys are read as; None where loops cannot read them."""
    if key.collated:
        return None
    return "BIGINT" if key.kind in _WHOLE else "VARCHAR" if key.kind in AS_TEXT else None


def written_as(key: Column) -> pa.DataType:
    """Return the type of released keys."""
    return _WHOLE.get(key.kind, pa.string())


def key_of_tables(salt: int) -> Words:
    """Return eight words that place units and keys in tables, and choose none."""
    words = hashlib.blake2b(salt.to_bytes(8, "little"), digest_size=64, person=b"dpsieve one key").digest()
    return np.frombuffer(words, np.uint64)


class Numbered:
    """Values, whole numbers or texts, numbered in the order they are met.

    Args:
        salt: eight words, as of `key_of_tables`.
        room: the memory that may be held.
        blocks: where texts go.
        texts: whether values are texts.
        first: how many entries there are at first, a power of two; three quarters of them can be used.
    """

    def __init__(self, salt: Words, room: Memory, blocks: Blocks, texts: bool, first: int) -> None:
        from dpsieve.engines.duckdb.compiled.numbering_loops import FIELDS, IS_TEXT, SALT, TEXTS

        self._salt, self._room, self._is_text, self._first, self._shelf = salt, room, texts, first, Shelf(blocks)
        self._table, self.words = np.empty((0, 2), np.uint64), np.empty(0, np.uint64)  # words from 1 on
        self.frame = np.zeros(FIELDS, np.int64)
        self.frame[[TEXTS, IS_TEXT, SALT]] = self._shelf.frame.ctypes.data, texts, salt.ctypes.data
        if not self._more_values():
            raise Unavailable

    def __len__(self) -> int:
        from dpsieve.engines.duckdb.compiled.numbering_loops import FOUND

        return int(self.frame[FOUND])

    def numbers_of(self, words: Words) -> Int32s:
        """Return the numbers of values of others of the same kind, given as words; new ones get a number."""
        from dpsieve.engines.duckdb.compiled.numbering_loops import DESK, number

        numbers, done, desk = np.empty(len(words), np.int32), 0, np.empty(DESK, np.int64)
        while done < len(words):
            done = number(done, len(words), None, words.ctypes.data, True, numbers, self.frame, desk)
            if done < len(words) and not self._more_values():
                raise Unavailable
        return numbers

    def values(self, words: Words | None = None, large: bool = True) -> pa.Array | None:
        """Return all values by number, or those of some words.

        None where texts are too long for one column, unless it may be large.
        """
        words = self.words[1 : len(self) + 1] if words is None else words
        return self._shelf.blocks.texts(words, large) if self._is_text else pa.array(words.view(np.int64))

    @property
    def named(self) -> tuple[Words, bool, Words]:
        """The words of values by number, from 1 on; whether they are texts; and the addresses of the blocks."""
        return self.words, self._is_text, self._shelf.blocks.addresses

    def grow(self) -> bool:
        """Make room for another value; tell whether that was possible."""
        return self._more_values() if len(self) + 1 == len(self.words) else self._shelf.grow()

    def _more_values(self) -> bool:
        from dpsieve.engines.duckdb.compiled.numbering_loops import SIZE, TABLE, TABLE_SIZE, WORDS, rehash

        entries = 2 * len(self._table) or self._first
        size = 3 * entries // 4
        if size > _MOST_VALUES or not self._room.take(16 * entries + 8 * size):
            return False
        self._room.give_back(self._table.nbytes + self.words.nbytes)
        words, table = np.empty(size, np.uint64), np.zeros((entries, 2), np.uint64)
        words[: len(self.words)] = self.words
        words[0] = 0
        self.words = words
        rehash(self._table, table)
        self._table = table
        self.frame[[WORDS, SIZE, TABLE, TABLE_SIZE]] = words.ctypes.data, size, table.ctypes.data, entries
        return True
