"""The little-endian bytes that `to_bytes` returns, and a reader of untrusted bytes.

    numbers             one byte for their width (1, 2, 4 or 8), then each with this width
    keys                integers: 8 bytes each; text and bytes: their lengths as numbers, then their bytes
    SHA-256             at the end, of all that is before it

Nothing is compressed, so memory is bounded by the length of the bytes.
"""

import hashlib
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsieve.errors import InvalidType, InvalidValue, UnreadableData
from dpsieve.types import Ints
from dpsieve.values.columns import PLAIN, Kind

MOST_BYTES = 2**29
LARGEST_NUMBER = 2**62
KINDS: tuple[Kind | None, ...] = (None, "integers", "text", "bytes")
DIGEST = 32


def refuse(why: str) -> NoReturn:
    """Raise for bytes that cannot be read."""
    raise UnreadableData(f"these bytes {why}. Pass what to_bytes() returned, unchanged.") from None


def sealed(body: bytes, too_long: str, most: int = MOST_BYTES) -> bytes:
    """Return bytes with their checksum; `too_long` is the error for more than `most` of them."""
    if len(body) + DIGEST > most:
        raise InvalidValue(too_long)
    return body + hashlib.sha256(body).digest()


def numbers_to_bytes(values: Ints) -> bytes:
    """Return non-negative numbers in the least width."""
    width = _width(values)
    return bytes([width]) + values.astype(f"<u{width}").tobytes()


def keys_to_bytes(kind: Kind | None, keys: pa.Array) -> bytes:
    """Return keys of the Arrow type of their kind."""
    if kind is None or (kind == "integers" and not len(keys)):
        return b""
    if kind == "integers":
        return bytes(keys.to_numpy().astype("<i8").tobytes())
    if not len(keys):
        return numbers_to_bytes(np.empty(0, np.int64))
    offsets = np.frombuffer(keys.buffers()[1], np.int64, len(keys) + 1, 8 * keys.offset)
    data = keys.buffers()[2]
    return numbers_to_bytes(np.diff(offsets)) + bytes(memoryview(data)[offsets[0] : offsets[-1]] if data else b"")


def _width(values: NDArray[Any]) -> int:
    return next(width for width in (1, 2, 4, 8) if int(values.max(initial=0)) < 1 << (8 * width))


class ByteReader:
    """Reads saved bytes in order, after verifying their checksum; every value is checked.

    The bytes begin with `name` and one byte for the format; `what` names them in messages.
    """

    def __init__(self, data: bytes, name: bytes, newest: int, what: str, most: int = MOST_BYTES) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidType(f"data must be the bytes of a {what}, not {type(data).__name__}.", argument="data")
        data = bytes(data)
        if not data.startswith(name) or len(data) < len(name) + 2 + DIGEST:
            refuse(f"are not a saved {what}")
        if data[len(name)] > newest:
            raise UnreadableData(f"these bytes are a {what} in a newer format. Install a newer dpsieve to read it.")
        if len(data) > most:
            refuse(f"are more than the {most >> 20:,} MB that a {what} may have")
        self._data, self._at = memoryview(data)[:-DIGEST], len(name) + 1
        if hashlib.sha256(self._data).digest() != data[-DIGEST:] or data[len(name)] != newest:
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
        """Return 8-byte numbers."""
        return [int(word) for word in np.frombuffer(self.take(8 * count), "<u8")]

    def kind(self) -> Kind | None:
        """Return the kind of keys, from one byte."""
        place = self.take(1)[0]
        return KINDS[place] if place < len(KINDS) else refuse("have numbers out of range")

    def numbers(self, count: int) -> Ints:
        """Return numbers of any width, from 0 to 2^62."""
        width = self.take(1)[0]
        if width not in (1, 2, 4, 8):
            refuse("have numbers of an unknown width")
        values = np.frombuffer(self.take(width * count), f"<u{width}")
        if values.max(initial=0) > LARGEST_NUMBER or width != _width(values):
            refuse("have numbers out of range")
        return values.astype(np.int64)

    def keys(self, kind: Kind | None, count: int) -> pa.Array:
        """Return keys, sorted and distinct; text is valid UTF-8."""
        keys = self._keys(kind, count)
        if count > 1 and not pc.all(pc.less(keys[:-1], keys[1:])).as_py():
            refuse("have keys that are not sorted or not distinct")
        return keys

    def _keys(self, kind: Kind | None, count: int) -> pa.Array:
        if kind is None:
            return refuse("have keys without a kind") if count else pa.nulls(0)
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
