"""A sketch as bytes: little-endian, the same for the same state, and closed by a checksum.

    magic and version   20 bytes
    kind                1 byte: 0 none yet, 1 integers, 2 text, 3 bytes
    counters            4 bytes
    items, decrements   8 bytes each
    keys held           4 bytes
    counters' values    numbers, in the order of the keys
    keys, sorted        integers: 8 bytes each; text and bytes: their lengths as numbers, then their bytes
    SHA-256             of all that is before it

Numbers are written as one byte that tells their width (1, 2, 4 or 8), then each with this width. Nothing is compressed,
so what is read takes no more memory than the bytes it comes from.
"""

import hashlib
import struct
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsieve.errors import InvalidType, InvalidValue, UnreadableData
from dpsieve.sketches.layout import MOST_COUNTERS
from dpsieve.values.items import PLAIN, Kind

_MAGIC = b"dpsieve misra-gries\x01"
_HEADER = struct.Struct("<20sBIQQI")
_DIGEST = 32
KINDS: tuple[Kind | None, ...] = (None, "integers", "text", "bytes")
MOST_BYTES = 2**29
MOST_ITEMS = 2**62


@dataclass(frozen=True)
class State:
    """All that makes up a sketch: keys are sorted and distinct, and counts go with them."""

    counters: int
    kind: Kind | None
    items: int
    decrements: int
    keys: pa.Array
    counts: NDArray[np.int64]


def pack(state: State) -> bytes:
    """Return the bytes of a state."""
    kind = KINDS.index(state.kind)
    header = _HEADER.pack(_MAGIC, kind, state.counters, state.items, state.decrements, len(state.counts))
    return sealed(header + numbers_to_bytes(state.counts) + keys_to_bytes(state.kind, state.keys))


def unpack(data: bytes) -> State:
    """Return the state that was packed; raise where the bytes are not whole or their state is not possible."""
    reader = Reader(data, _MAGIC)
    _, kind, counters, items, decrements, held = reader.header(_HEADER)
    if kind >= len(KINDS) or not 1 <= counters <= MOST_COUNTERS or held > counters or items > MOST_ITEMS:
        refuse("have numbers out of range")
    counts = reader.numbers(held)
    keys = reader.keys(KINDS[kind], held)
    reader.end()
    state = State(counters, KINDS[kind], items, decrements, keys, counts)
    if not _is_possible(state):
        refuse("tell of a state that no stream leads to")
    return state


def sealed(body: bytes) -> bytes:
    """Return a body closed by its checksum, as `Reader` opens it."""
    if len(body) + _DIGEST > MOST_BYTES:
        raise InvalidValue("the keys of this sketch are too long to be saved in 512 MB. Use fewer counters.")
    return body + hashlib.sha256(body).digest()


def total(values: NDArray[np.int64]) -> int:
    """Return the sum of numbers that are not negative, however large."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def increasing(keys: pa.Array) -> bool:
    """Tell whether keys are sorted and distinct."""
    return len(keys) < 2 or bool(pc.all(pc.less(keys[:-1], keys[1:])).as_py())


def _is_possible(state: State) -> bool:
    """Tell whether the counters add up: each item adds one to one of them, or takes one from all k and is forgotten."""
    held = len(state.counts)
    return (
        (state.kind is None) == (held == 0)
        and total(state.counts) == state.items - state.decrements * (state.counters + 1)
        and (held == state.counters or state.decrements == 0)
        and (state.decrements > 0 or bool((state.counts > 0).all()))
        and increasing(state.keys)
    )


def numbers_to_bytes(values: NDArray[np.int64]) -> bytes:
    """Return numbers as `Reader.numbers` reads them."""
    width = _width(values)
    return bytes([width]) + values.astype(f"<u{width}").tobytes()


def _width(values: NDArray[Any]) -> int:
    """Return the least width of numbers, in bytes."""
    return next(width for width in (1, 2, 4, 8) if int(values.max(initial=0)) < 1 << (8 * width))


def keys_to_bytes(kind: Kind | None, keys: pa.Array) -> bytes:
    """Return keys as `Reader.keys` reads them."""
    if kind is None or (kind == "integers" and not len(keys)):
        return b""
    if kind == "integers":
        return bytes(keys.to_numpy().astype("<i8").tobytes())
    if not len(keys):
        return numbers_to_bytes(np.empty(0, np.int64))
    offsets = np.frombuffer(keys.buffers()[1], np.int64, len(keys) + 1, 8 * keys.offset)
    data = keys.buffers()[2]
    return numbers_to_bytes(np.diff(offsets)) + bytes(memoryview(data)[offsets[0] : offsets[-1]] if data else b"")


class Reader:
    """Reads saved bytes from front to back, after their checksum; whatever it hands out has been checked on its own."""

    def __init__(self, data: bytes, magic: bytes) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidType(f"data must be the bytes of a sketch, not {type(data).__name__}.")
        data = bytes(data)
        if not data.startswith(magic) or len(data) < len(magic) + _DIGEST:
            refuse("are not a saved sketch of this kind, or one of another version")
        if len(data) > MOST_BYTES:
            refuse("are more than the 512 MB that a sketch may have")
        self._data, self._at = memoryview(data)[:-_DIGEST], 0
        if hashlib.sha256(self._data).digest() != data[-_DIGEST:]:
            refuse("are damaged")

    def header(self, form: struct.Struct) -> tuple[Any, ...]:
        """Return the fields of a header."""
        return form.unpack(self.take(form.size))

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

    def numbers(self, count: int) -> NDArray[np.int64]:
        """Return numbers of any width, from 0 to 2^62."""
        width = self.take(1)[0]
        if width not in (1, 2, 4, 8):
            refuse("have numbers of an unknown width")
        values = np.frombuffer(self.take(width * count), f"<u{width}")
        if values.max(initial=0) > MOST_ITEMS or width != _width(values):
            refuse("have numbers out of range")
        return values.astype(np.int64)

    def keys(self, kind: Kind | None, count: int) -> pa.Array:
        """Return keys, whole and, if text, in UTF-8."""
        if kind is None:
            return refuse("have keys of no kind") if count else pa.nulls(0)
        if kind == "integers":
            return pa.array(np.frombuffer(self.take(8 * count), "<i8").astype(np.int64))
        lengths = self.numbers(count)
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


def refuse(why: str) -> NoReturn:
    """Raise for bytes that cannot be read."""
    raise UnreadableData(f"these bytes {why}. Pass what to_bytes() returned, unchanged.") from None
