"""What every sketch offers, and how it is saved as bytes: little-endian, the same for the same state, with a checksum.

    name, format        14 bytes and 1
    class of sketch     1 byte: 0 MisraGries, 1 MergedSketch, 2 UserMisraGries
    kind of keys        1 byte: 0 none yet, 1 integers, 2 text, 3 bytes
    numbers             8 bytes each: the number of counters, then others that depend on the class
    rows of tables      8 bytes each; then for each table:
      values            numbers, in the order of the keys
      keys, sorted      integers: 8 bytes each; text and bytes: their lengths as numbers, then their bytes
    SHA-256             of all that is before it

The numbers of a table are written as one byte that tells their width (1, 2, 4 or 8), then each with this width. Nothing
is compressed, so what is read takes no more memory than the bytes it comes from.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue, UnreadableData
from dpsieve.types import Ints
from dpsieve.values.items import PLAIN, Kind, one_item

MOST_COUNTERS = 2**24
MOST_ITEMS = 2**62
MOST_BYTES = 2**29
_NAME, _FORMAT = b"dpsieve sketch", 1
_SKETCHES = ("MisraGries", "MergedSketch", "UserMisraGries")
_KINDS: tuple[Kind | None, ...] = (None, "integers", "text", "bytes")
_DIGEST = 32


class Table(NamedTuple):
    """Keys, sorted and distinct, and a number above or at zero for each."""

    keys: pa.Array
    values: Ints


class State(NamedTuple):
    """All that makes up a sketch: the kind of its keys, the number of counters and further numbers, and its tables."""

    kind: Kind | None
    numbers: tuple[int, ...]
    tables: tuple[Table, ...]


class Sketch(ABC):
    """Counters for the most common keys of a stream. They are true values: do not publish them."""

    _numbers: ClassVar[int]  # how many numbers and tables are saved
    _tables: ClassVar[int] = 1

    def __init__(self, counters: int, most: int, hint: str) -> None:
        self._counters = validate.whole("counters", counters, low=1, high=most, hint=hint)
        self._kind: Kind | None = None

    @property
    def counters(self) -> int:
        """The number of counters, k."""
        return self._counters

    @property
    def kind(self) -> Kind | None:
        """What is counted: 'integers', 'text' or 'bytes'; None before the first item."""
        return self._kind

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._counters:,} counters>"

    @property
    @abstractmethod
    def decrements(self) -> int:
        """The most that any estimate is too low by. A true value."""

    def keys_and_counts(self) -> Table:
        """Return the keys held, sorted (text and bytes by their bytes), and their counters. True values.

        Keys are of the Arrow type int64, large_string or large_binary; null, without any, before the first item.
        """
        return self.snapshot().tables[-1]

    def estimate(self, item: str | bytes | int) -> int:
        """Return the counter of an item, 0 where it is not held: at most its true frequency. A true value."""
        column, (keys, counts) = one_item(item, self.kind), self.keys_and_counts()
        place = pc.index_in(column, value_set=keys)[0].as_py() if len(keys) else None
        return 0 if place is None else int(counts[place])

    def lower(self, item: str | bytes | int) -> int:
        """Return a lower bound on the true frequency of an item, which is its counter. A true value."""
        return self.estimate(item)

    def upper(self, item: str | bytes | int) -> int:
        """Return an upper bound on the true frequency of an item. A true value."""
        return self.estimate(item) + self.decrements

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        keys, counts = self.keys_and_counts()
        return iter(zip(keys.to_pylist(), counts.tolist(), strict=True))

    def to_bytes(self) -> bytes:
        """Return the whole state, keys and counters included: keep it as safe as the data."""
        return _pack(type(self).__name__, self.snapshot())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the sketch that `to_bytes` saved; it continues exactly as the saved one would have.

        Bytes that are not whole, or tell of a state that no stream leads to, raise `UnreadableData`.
        """
        made = cls._of(_unpack(data, cls.__name__, cls._numbers, cls._tables))
        return refuse("tell of a state that no stream leads to") if made is None else made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_bytes, (self.to_bytes(),)

    @abstractmethod
    def snapshot(self) -> State:
        """Return the whole state at one moment. True values."""

    @classmethod
    @abstractmethod
    def _of(cls, state: State) -> Self | None:
        """Return a sketch in this state, or None where no stream leads to it. Tables have keys of the right kind."""


def saved_class(data: object) -> str | None:
    """Return the name of the class whose `to_bytes` is given, as far as the first bytes tell."""
    if not isinstance(data, bytes | bytearray | memoryview):
        return None
    head = bytes(data[: len(_NAME) + 2])
    known = head.startswith(_NAME) and len(head) == len(_NAME) + 2 and head[-1] < len(_SKETCHES)
    return _SKETCHES[head[-1]] if known else None


def total(values: Ints) -> int:
    """Return the sum of numbers that are not negative, however large."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def refuse(why: str) -> NoReturn:
    """Raise for bytes that cannot be read."""
    raise UnreadableData(f"these bytes {why}. Pass what to_bytes() returned, unchanged.") from None


def _pack(name: str, state: State) -> bytes:
    """Return the bytes of a state."""
    head = _NAME + bytes([_FORMAT, _SKETCHES.index(name), _KINDS.index(state.kind)])
    numbers = np.array([*state.numbers, *(len(table.values) for table in state.tables)], "<u8").tobytes()
    tables = (_numbers_to_bytes(values) + _keys_to_bytes(state.kind, keys) for keys, values in state.tables)
    body = b"".join((head, numbers, *tables))
    if len(body) + _DIGEST > MOST_BYTES:
        raise InvalidValue("the keys of this sketch are too long to be saved in 512 MB. Use fewer counters.")
    return body + hashlib.sha256(body).digest()


def _unpack(data: bytes, name: str, numbers: int, tables: int) -> State:
    """Return the state that was packed; raise where the bytes are not whole, or hold numbers out of range."""
    reader = _Reader(data, name)
    kind, counters, *others = reader.take(1)[0], *reader.words(numbers + tables)
    if kind >= len(_KINDS) or not 1 <= counters <= MOST_COUNTERS or max(others) > MOST_ITEMS:
        refuse("have numbers out of range")
    read = tuple(reader.table(_KINDS[kind], rows) for rows in others[numbers - 1 :])
    reader.end()
    return State(_KINDS[kind], (counters, *others[: numbers - 1]), read)


def _numbers_to_bytes(values: Ints) -> bytes:
    width = _width(values)
    return bytes([width]) + values.astype(f"<u{width}").tobytes()


def _width(values: NDArray[Any]) -> int:
    """Return the least width of numbers, in bytes."""
    return next(width for width in (1, 2, 4, 8) if int(values.max(initial=0)) < 1 << (8 * width))


def _keys_to_bytes(kind: Kind | None, keys: pa.Array) -> bytes:
    if kind is None or (kind == "integers" and not len(keys)):
        return b""
    if kind == "integers":
        return bytes(keys.to_numpy().astype("<i8").tobytes())
    if not len(keys):
        return _numbers_to_bytes(np.empty(0, np.int64))
    offsets = np.frombuffer(keys.buffers()[1], np.int64, len(keys) + 1, 8 * keys.offset)
    data = keys.buffers()[2]
    return _numbers_to_bytes(np.diff(offsets)) + bytes(memoryview(data)[offsets[0] : offsets[-1]] if data else b"")


class _Reader:
    """Reads saved bytes from front to back, after their checksum; whatever it returns has been checked on its own."""

    def __init__(self, data: bytes, name: str) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidType(f"data must be the bytes of a sketch, not {type(data).__name__}.")
        data = bytes(data)
        head, found = len(_NAME) + 2, saved_class(data)
        if not data.startswith(_NAME) or len(data) < head + _DIGEST:
            refuse("are not a saved sketch")
        if data[len(_NAME)] > _FORMAT:
            raise UnreadableData("these bytes are a sketch in a newer format. Install a newer dpsieve to read it.")
        if found != name:
            refuse("are damaged" if found is None else f"are a {found}, not a {name}")
        if len(data) > MOST_BYTES:
            refuse("are more than the 512 MB that a sketch may have")
        self._data, self._at = memoryview(data)[:-_DIGEST], head
        if hashlib.sha256(self._data).digest() != data[-_DIGEST:] or data[len(_NAME)] != _FORMAT:
            refuse("are damaged")

    def take(self, length: int) -> memoryview:
        """Return the next bytes."""
        if length > len(self._data) - self._at:
            refuse("are too short")
        self._at += length
        return self._data[self._at - length : self._at]

    def end(self) -> None:
        """Check that nothing is left."""
        if self._at != len(self._data):
            refuse("are too long")

    def words(self, count: int) -> list[int]:
        """Return numbers of 8 bytes."""
        return [int(word) for word in np.frombuffer(self.take(8 * count), "<u8")]

    def table(self, kind: Kind | None, rows: int) -> Table:
        """Return a table with keys of a kind, sorted and distinct."""
        values = self._numbers(rows)
        keys = self._keys(kind, rows)
        if rows > 1 and not pc.all(pc.less(keys[:-1], keys[1:])).as_py():
            refuse("have keys that are not sorted, or twice")
        return Table(keys, values)

    def _numbers(self, count: int) -> Ints:
        """Return numbers of any width, from 0 to 2^62."""
        width = self.take(1)[0]
        if width not in (1, 2, 4, 8):
            refuse("have numbers of an unknown width")
        values = np.frombuffer(self.take(width * count), f"<u{width}")
        if values.max(initial=0) > MOST_ITEMS or width != _width(values):
            refuse("have numbers out of range")
        return values.astype(np.int64)

    def _keys(self, kind: Kind | None, count: int) -> pa.Array:
        """Return keys, whole and, if text, in UTF-8."""
        if kind is None:
            return refuse("have keys of no kind") if count else pa.nulls(0)
        if kind == "integers":
            return pa.array(np.frombuffer(self.take(8 * count), "<i8").astype(np.int64))
        lengths = self._numbers(count)
        if lengths.max(initial=0) > len(self._data):
            refuse("are too short")
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.take(int(offsets[-1])))]
        keys = pa.Array.from_buffers(PLAIN[kind], count, buffers)
        try:
            keys.validate(full=True)
        except pa.ArrowInvalid:
            refuse("have text that is not UTF-8")
        return keys
