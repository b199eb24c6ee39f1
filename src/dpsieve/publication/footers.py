"""The footer of a Parquet file, read without trust: Arrow's own view of a column may end the process if it is odd.

A footer is a struct in Thrift's compact protocol (https://github.com/apache/thrift/blob/master/doc/specs), as laid out
in parquet.thrift. Structs are read as dicts from the numbers of their fields.
"""

import os
from io import BufferedReader, BytesIO
from typing import Any, NamedTuple

_LARGEST, _DEEPEST, _MAGIC = 1 << 24, 16, b"PAR1"
_ROW_GROUPS, _COLUMNS, _META, _CODEC, _SIZE = 4, 1, 3, 4, 6


class Chunk(NamedTuple):
    """How a column of some rows is compressed (0 not at all, 1 by Snappy), and how many bytes it claims to have."""

    codec: int
    size: int


def chunks(file: BufferedReader) -> list[Chunk]:
    """Return all column chunks that a file names; anything but a footer raises ValueError or another odd error."""
    length = file.seek(0, os.SEEK_END)
    file.seek(max(0, length - 8))
    tail = file.read(8)
    size = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or size > min(length - 8, _LARGEST):
        raise ValueError
    file.seek(length - 8 - size)
    footer = _struct(BytesIO(file.read(size)), 0)
    columns = [column[_META] for group in footer[_ROW_GROUPS] for column in group[_COLUMNS]]
    return [Chunk(column[_CODEC], column[_SIZE]) for column in columns]


def _struct(data: BytesIO, depth: int) -> dict[int, Any]:
    found: dict[int, Any] = {}
    number = 0
    while kind := _byte(data):
        number = number + (kind >> 4) if kind >> 4 else _signed(data)
        found[number] = kind & 15 == 1 if kind & 15 in (1, 2) else _value(data, kind & 15, depth)
    return found


def _value(data: BytesIO, kind: int, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError
    if kind in (1, 2, 3):
        return _byte(data)
    if kind in (4, 5, 6):
        return _signed(data)
    if kind == 7:
        return data.read(8)
    if kind == 8:
        return data.read(_number(data))
    if kind == 9:
        head = _byte(data)
        count = head >> 4 if head >> 4 < 15 else _number(data)
        return [_value(data, head & 15, depth + 1) for _ in range(count)]
    if kind == 12:
        return _struct(data, depth + 1)
    raise ValueError  # sets and maps, which Parquet has none of


def _byte(data: BytesIO) -> int:
    return data.read(1)[0]  # at the end of the data, an IndexError


def _number(data: BytesIO) -> int:
    found = shift = 0
    while (byte := _byte(data)) & 128 and shift < 64:
        found, shift = found | (byte & 127) << shift, shift + 7
    return found | byte << shift


def _signed(data: BytesIO) -> int:
    number = _number(data)
    return number >> 1 ^ -(number & 1)
