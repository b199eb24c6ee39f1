"""A sketch as bytes: little-endian, the same for the same state, and closed by a checksum.

    magic and version   20 bytes
    kind                1 byte: 0 none yet, 1 integers, 2 text, 3 bytes
    counters            4 bytes
    items, decrements   8 bytes each
    keys held           4 bytes
    counters' values    numbers, in the order of the keys
    keys, sorted        integers: 8 bytes each; text and bytes: their lengths as numbers, then their bytes
    SHA-256             of all that is before it

Numbers are written as one byte that tells their width (1, 2, 4 or 8), then each with this width.
"""

import hashlib
import struct
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsieve.errors import InvalidType, UnreadableData
from dpsieve.sketches.batches import Kind
from dpsieve.sketches.layout import MOST_COUNTERS

_MAGIC = b"dpsieve misra-gries\x01"
_HEADER = struct.Struct("<20sBIQQI")
_DIGEST = 32
_KINDS: tuple[Kind | None, ...] = (None, "integers", "text", "bytes")
_MOST_ITEMS = 2**62


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
    kind = _KINDS.index(state.kind)
    header = _HEADER.pack(_MAGIC, kind, state.counters, state.items, state.decrements, len(state.counts))
    body = header + _numbers(state.counts) + _keys(state)
    return body + hashlib.sha256(body).digest()


def unpack(data: bytes) -> State:
    """Return the state that was packed; raise where the bytes are not whole or their state is not possible."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidType(f"data must be the bytes of a sketch, not {type(data).__name__}.")
    data = bytes(data)
    if not data.startswith(_MAGIC) or len(data) < _HEADER.size + _DIGEST:
        _refuse("are not a saved Misra-Gries sketch, or one of another version")
    if hashlib.sha256(data[:-_DIGEST]).digest() != data[-_DIGEST:]:
        _refuse("are damaged")
    reader = _Reader(data[:-_DIGEST])
    _, kind, counters, items, decrements, held = _HEADER.unpack(reader.take(_HEADER.size))
    if kind >= len(_KINDS) or not 1 <= counters <= MOST_COUNTERS or held > counters or items > _MOST_ITEMS:
        _refuse("have numbers out of range")
    counts = reader.numbers(held)
    keys = reader.keys(_KINDS[kind], held)
    reader.end()
    state = State(counters, _KINDS[kind], items, decrements, keys, counts)
    if not _is_possible(state):
        _refuse("tell of a state that no stream leads to")
    return state


def _is_possible(state: State) -> bool:
    """Tell whether the counters add up: each item adds one to one of them, or takes one from all k and is forgotten."""
    held = len(state.counts)
    total = (int((state.counts >> 32).sum()) << 32) + int((state.counts & 0xFFFFFFFF).sum())
    return (
        (state.kind is None) == (held == 0)
        and total == state.items - state.decrements * (state.counters + 1)
        and (held == state.counters or state.decrements == 0)
        and (state.decrements > 0 or bool((state.counts > 0).all()))
        and (held < 2 or bool(pc.all(pc.less(state.keys[:-1], state.keys[1:])).as_py()))
    )


def _numbers(values: NDArray[np.int64]) -> bytes:
    most = int(values.max(initial=0))
    width = next(width for width in (1, 2, 4, 8) if most < 1 << (8 * width))
    return bytes([width]) + values.astype(f"<u{width}").tobytes()


def _keys(state: State) -> bytes:
    if state.kind is None:
        return b""
    if state.kind == "integers":
        return bytes(state.keys.to_numpy().astype("<i8").tobytes())
    offsets = np.frombuffer(state.keys.buffers()[1], np.int64, len(state.keys) + 1, 8 * state.keys.offset)
    data = state.keys.buffers()[2]
    return _numbers(np.diff(offsets)) + bytes(memoryview(data)[offsets[0] : offsets[-1]] if data else b"")


class _Reader:
    """Reads a body from front to back; whatever it hands out has been checked on its own."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, length: int) -> bytes:
        if length > len(self._data) - self._at:
            _refuse("are too short")
        self._at += length
        return self._data[self._at - length : self._at]

    def end(self) -> None:
        if self._at != len(self._data):
            _refuse("are too long")

    def numbers(self, count: int) -> NDArray[np.int64]:
        width = self.take(1)[0]
        if width not in (1, 2, 4, 8):
            _refuse("have numbers of an unknown width")
        values = np.frombuffer(self.take(width * count), f"<u{width}")
        if values.max(initial=0) > _MOST_ITEMS:
            _refuse("have numbers out of range")
        return values.astype(np.int64)

    def keys(self, kind: Kind | None, count: int) -> pa.Array:
        if kind is None:
            return pa.nulls(0)
        if kind == "integers":
            return pa.array(np.frombuffer(self.take(8 * count), "<i8").astype(np.int64))
        lengths = self.numbers(count)
        if lengths.max(initial=0) > len(self._data):
            _refuse("are too short")
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.take(int(offsets[-1])))]
        keys = pa.Array.from_buffers(pa.large_string() if kind == "text" else pa.large_binary(), count, buffers)
        try:
            keys.validate(full=True)
        except pa.ArrowInvalid:
            _refuse("have text that is not UTF-8")
        return keys


def _refuse(why: str) -> NoReturn:
    raise UnreadableData(f"these bytes {why}. Pass what to_bytes() returned, unchanged.") from None
