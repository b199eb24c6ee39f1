"""Parquet files whose footer is false: a few bytes of its Thrift structures are replaced, and the data stays."""

import struct
from pathlib import Path


def with_false_statistics(path, honest, false):
    """Replace the statistics of columns of 64-bit integers; each is a triple of null count, minimum and maximum."""
    _replace(path, _statistics(*honest), _statistics(*false))
    _replace(path, _old_statistics(*honest), _old_statistics(*false))


def with_false_rows(path, honest, false):
    """Replace the number of rows of the whole file; those of its row groups stay."""
    rows = b"\x16%s\x19"  # field 3 of FileMetaData, before the list of row groups
    _replace(path, rows % _number(honest), rows % _number(false))


def _statistics(nulls, low, high):
    """Fields 3, 5 and 6 of Statistics."""
    return b"\x16" + _number(nulls) + b"\x28\x08" + struct.pack("<q", high) + b"\x18\x08" + struct.pack("<q", low)


def _old_statistics(nulls, low, high):
    """Fields 1 and 2."""
    return b"\x18\x08" + struct.pack("<q", high) + b"\x18\x08" + struct.pack("<q", low)


def _number(n):
    """A 64-bit integer of the compact protocol: zigzag, then groups of seven bits."""
    n, out = 2 * n, b""
    while n > 127:
        n, out = n >> 7, out + bytes([n & 127 | 128])
    return out + bytes([n])


def _replace(path, old, new):
    data = Path(path).read_bytes()
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    footer = data[start:-8]
    assert old in footer, "this version of pyarrow writes another footer"
    footer = footer.replace(old, new)
    Path(path).write_bytes(data[:start] + footer + struct.pack("<I", len(footer)) + b"PAR1")
