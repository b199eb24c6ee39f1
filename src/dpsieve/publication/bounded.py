"""Read untrusted files with time and memory bounded by their size.

A few bytes of Parquet can stand for billions of rows. So types, codecs and the number of rows are checked before
anything is decoded, and rows are decoded in small batches up to a limit that depends on the size of the file.
"""

import json
import os
import stat
from contextlib import suppress
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

LARGEST_RECORD = 1 << 25
_ROOM, _RATIO = 1 << 27, 100  # a table may take _ROOM bytes of memory, and _RATIO more for each byte of its file
_ROWS = 1 << 16  # decoded at a time
_WIDEST = 1 << 12  # bytes, of columns with values of one width
_DEEPEST = 32
_CODECS = {0, 1}  # none and Snappy; others may shrink a file without limit
_LARGEST_FOOTER, _DEEPEST_FOOTER = 1 << 24, 16
_ROW_GROUPS, _COLUMNS, _META, _CODEC = 4, 1, 3, 4  # fields in parquet.thrift


class Unreadable(Exception):
    """A file is not what it should be. Raised and caught within this package."""


def open_plain(path: Path) -> BufferedReader:
    """Open a regular file; a pipe, a folder or a device is refused without waiting for it."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError):
        raise Unreadable from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Unreadable
    return os.fdopen(handle, "rb")


def read_json(path: Path) -> dict[str, Any]:
    """Return a dict of finite numbers, texts, booleans, lists and dicts, none of them nested deeply."""
    with open_plain(path) as file:
        text = file.read(LARGEST_RECORD + 1)
    if len(text) > LARGEST_RECORD:
        raise Unreadable
    found: Any = None
    with suppress(ValueError, RecursionError):
        found = json.loads(text, object_pairs_hook=_once, parse_float=_finite, parse_constant=_finite)
    if not isinstance(found, dict) or is_deep(found):
        raise Unreadable
    return found


def is_deep(value: Any) -> bool:
    """Return whether dicts and lists are nested in each other more than 32 times."""
    level = [value]
    for _ in range(_DEEPEST):
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [part for parts in inner for part in parts]
    return bool(level)


def read_table(file: BufferedReader, rows: int | None) -> pa.Table:
    """Return the table of a Parquet file with columns of plain values or structs of them; `rows` of them, if known."""
    size = os.fstat(file.fileno()).st_size
    try:
        plain = set(_codecs(file)) <= _CODECS
        source = pq.ParquetFile(file)
        promised, schema = source.metadata.num_rows, source.schema_arrow
        if not plain or not all(map(_is_plain, schema.types)) or rows not in (None, promised):
            raise Unreadable
        # As dictionaries, texts that a file holds once are in memory once, however many rows refer to them.
        columns = [source.schema.column(i) for i in range(len(source.schema))]
        texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
        source = pq.ParquetFile(file, read_dictionary=texts)
        whole: list[list[pa.Array]] = [[] for _ in schema]
        held = 0
        for batch in source.iter_batches(_ROWS, use_threads=False):
            held += sum(_decoded_size(column) for column in batch.columns)
            if held > _ROOM + _RATIO * size:
                raise Unreadable
            for pieces, column, field in zip(whole, batch.columns, schema, strict=True):
                pieces.append(_decoded(column, field.type))
        made = [pa.chunked_array(pieces, field.type) for pieces, field in zip(whole, schema, strict=True)]
        table = pa.table(made, names=schema.names)
        table.validate(full=True)
    except MemoryError:  # Arrow has one of its own, which is also an ArrowException
        raise
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError, pa.ArrowException):
        table = None
    if table is None or table.num_rows != promised:
        raise Unreadable
    return table.combine_chunks()


def _decoded_size(column: pa.Array) -> int:
    """Return the bytes of a column with its texts repeated in every row, at least eight per row."""
    if pa.types.is_struct(column.type):
        return sum(map(_decoded_size, column.flatten()))
    if not pa.types.is_dictionary(column.type):
        return max(int(column.nbytes), 8 * len(column))
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    return 8 * len(column) + int(pc.sum(lengths).as_py() or 0)


def _decoded(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column without dictionaries, in the type of its file."""
    if pa.types.is_struct(kind):
        if column.null_count:
            raise Unreadable
        fields = [_decoded(part, field.type) for part, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(fields, fields=list(kind))
    return column.cast(kind) if column.type != kind else column


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether a column has one value in each row, or a struct of such values."""
    fields = [field.type for field in kind] if pa.types.is_struct(kind) else [kind]
    tests = (pa.types.is_nested, pa.types.is_dictionary, pa.types.is_null)
    is_unsupported = any(isinstance(one, pa.BaseExtensionType) or any(test(one) for test in tests) for one in fields)
    return not is_unsupported and not any(
        pa.types.is_fixed_size_binary(one) and one.byte_width > _WIDEST for one in fields
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; a repeated name is refused."""
    named = dict(pairs)
    if len(named) != len(pairs):
        raise ValueError
    return named


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError
    return number


def _codecs(file: BufferedReader) -> list[int]:
    """Return the codec of each column chunk of a file; anything but a valid footer raises.

    The footer is parsed here, as Arrow may crash the process on a malformed one. It is a struct in Thrift's compact
    protocol (https://github.com/apache/thrift/blob/master/doc/specs), as laid out in parquet.thrift. Structs are read
    as dicts from the numbers of their fields.
    """
    length = file.seek(0, os.SEEK_END)
    file.seek(max(0, length - 8))
    tail = file.read(8)
    size = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or size > min(length - 8, _LARGEST_FOOTER):
        raise ValueError
    file.seek(length - 8 - size)
    footer = _struct(BytesIO(file.read(size)), 0)
    return [column[_META][_CODEC] for group in footer[_ROW_GROUPS] for column in group[_COLUMNS]]


def _struct(data: BytesIO, depth: int) -> dict[int, Any]:
    found: dict[int, Any] = {}
    number = 0
    while kind := _byte(data):
        number = number + (kind >> 4) if kind >> 4 else _signed(data)
        found[number] = kind & 15 == 1 if kind & 15 in (1, 2) else _value(data, kind & 15, depth)
    return found


def _value(data: BytesIO, kind: int, depth: int) -> Any:
    if depth > _DEEPEST_FOOTER:
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
