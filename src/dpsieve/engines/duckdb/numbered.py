"""Values that compiled loops number: which columns they may come from, and the memory that they take."""

import hashlib
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.engines.duckdb.own_database import Unavailable
from dpsieve.engines.duckdb.text_blocks import Blocks, Memory, Shelf
from dpsieve.engines.duckdb.unit_texts import one_value
from dpsieve.engines.engine import Aggregation
from dpsieve.engines.sql.bounded_query import AS_TEXT, Column
from dpsieve.privacy.contribution import Weight
from dpsieve.types import Words

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
        from dpsieve.engines.duckdb.numbered_loops import FIELDS, IS_TEXT, SALT, TEXTS

        self._salt, self._room, self._is_text, self._first, self._shelf = salt, room, texts, first, Shelf(blocks)
        self._table, self.words = np.empty((0, 2), np.uint64), np.empty(0, np.uint64)  # words from 1 on
        self.frame = np.zeros(FIELDS, np.int64)
        self.frame[[TEXTS, IS_TEXT, SALT]] = self._shelf.frame.ctypes.data, texts, salt.ctypes.data
        if not self._more_values():
            raise Unavailable

    def __len__(self) -> int:
        from dpsieve.engines.duckdb.numbered_loops import FOUND

        return int(self.frame[FOUND])

    def numbers_of(self, words: Words) -> Int32s:
        """Return the numbers of values of others of the same kind, given as words; new ones get a number."""
        from dpsieve.engines.duckdb.numbered_loops import DESK, number

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
        from dpsieve.engines.duckdb.numbered_loops import SIZE, TABLE, TABLE_SIZE, WORDS, rehash

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
