"""Reading files that anyone may have written: what they cost is bounded by their size, whatever they claim.

A few bytes of Parquet can stand for billions of rows. So types, codecs and the number of rows are checked before
anything is decoded, and rows are decoded a few at a time until they are more than such a file may honestly hold.
"""

import json
import os
import stat
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dpsieve.publication.footers import chunks

LARGEST_RECORD = 1 << 25
_ROOM, _RATIO = 1 << 27, 100  # a table may take _ROOM bytes of memory, and _RATIO more for each byte of its file
_ROWS = 1 << 16  # decoded at a time
_WIDEST = 1 << 12  # bytes, of columns with values of one width
_DEEPEST = 32
_CODECS = (0, 1)  # none and Snappy; others may shrink a file without limit


class Unreadable(Exception):
    """A file is not what it should be. It stays inside this room."""


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
        level = [part for value in level if isinstance(value, dict | list) for part in _parts(value)]
    return bool(level)


def read_table(file: BufferedReader, rows: int | None) -> pa.Table:
    """Return the table of a Parquet file with columns of plain values or structs of them; `rows` of them, if known."""
    size = os.fstat(file.fileno()).st_size
    try:
        parts = chunks(file)
        source = pq.ParquetFile(file)
        promised, schema = source.metadata.num_rows, source.schema_arrow
        if not all(map(_is_plain, schema.types)) or any(part.codec not in _CODECS for part in parts):
            raise Unreadable
        if rows not in (None, promised):
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
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError, pa.ArrowException):
        table = None
    if table is None or table.num_rows != promised:
        raise Unreadable
    return table.combine_chunks()


def _decoded_size(column: pa.Array) -> int:
    """Return how many bytes a column takes once texts stand in every row, and at least eight for each row."""
    if pa.types.is_struct(column.type):
        return sum(map(_decoded_size, column.flatten()))
    if not pa.types.is_dictionary(column.type):
        return max(int(column.nbytes), 8 * len(column))
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    return 8 * len(column) + int(pc.sum(lengths).as_py() or 0)


def _decoded(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column with its texts in every row, as its file says."""
    if pa.types.is_struct(kind):
        if column.null_count:
            raise Unreadable
        fields = [_decoded(part, field.type) for part, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(fields, fields=list(kind))
    return column.cast(kind) if column.type != kind else column


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether a column has one value in each row, or a struct of such values."""
    fields = [field.type for field in kind] if pa.types.is_struct(kind) else [kind]
    strange = (pa.types.is_nested, pa.types.is_dictionary, pa.types.is_null)
    wide = any(pa.types.is_fixed_size_binary(one) and one.byte_width > _WIDEST for one in fields)
    return not wide and not any(
        isinstance(one, pa.BaseExtensionType) or any(test(one) for test in strange) for one in fields
    )


def _parts(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; one that says something twice has no one meaning."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError
    return made


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError
    return number
