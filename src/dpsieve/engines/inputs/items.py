"""Items of a stream, in batches: the lines of a text, or one column of CSV, JSON lines or Parquet.

Items are text in UTF-8. Bytes that are not are refused, with the number of the line. Empty lines, empty fields and
nulls are no items. Files that end in .gz are unpacked. Whole numbers in Parquet become text in decimal: one kind for
all files, so that states, public lists and formats go together, and no row decides the type of a release.
"""

import codecs
import contextlib
import io
import re
import select
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from dpsieve.engines.inputs.files import Format, Header, format_of, open_file, parse_header
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue, UnreadableData
from dpsieve.values.columns import is_sound, kind_of_type, value_type

FORMATS = ("lines", "csv", "jsonl", "parquet")
_BLOCK = 1 << 23
_LONGEST = 1 << 28
_PATIENCE = 0.25  # seconds
_NEWLINE = 10
_ROWS = 1 << 18  # of Parquet, at a time


def item_batches(
    path: str, form: str | None = None, column: str | None = None, header: str | None = None
) -> Iterator[pa.Array]:
    """Yield Arrow arrays of text from a file, or from standard input for '-'.

    Args:
        path: the file.
        form: 'lines', 'csv', 'jsonl' or 'parquet'; by the name of the file without it, and lines from standard input.
        column: which column of CSV, JSON lines or Parquet.
        header: the first line that CSV lacks.
    """
    form = _form(path, form, column)
    name = "standard input" if path == "-" else repr(path)
    if form != "lines" and column is None:
        raise InvalidValue(f"{name} is read as {form}, so a column must be named. Pass --column, or --format lines.")
    if form == "lines" and column is not None:
        raise InvalidValue(f"{name} is read as lines, which have no columns. Pass --format csv, jsonl or parquet.")
    if header is not None and form != "csv":
        raise InvalidValue(f"{name} is read as {form}, and --header is for CSV. Leave it out, or pass --format csv.")
    if form == "parquet":
        yield from _parquet(path, name, str(column))
        return
    given = Format("csv", header).given_header(tabs=format_of(Path(path)) == "tsv")
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else open_file(Path(path)) as file:
            if form == "lines":
                yield from _lines(file, name)
            elif form == "csv":
                yield from _csv(file, name, str(column), given)
            else:
                yield from _jsonl(file, name, str(column))
        return
    except DpsieveError:
        raise
    except (OSError, EOFError, zlib.error):
        pass
    raise UnreadableData(f"{name} cannot be read. Check its name and rights, and that a .gz file is whole.")


def split_lines(block: bytes, name: str, first: int) -> pa.Array:
    r"""Return the lines of a block, without line ends and empty lines; `first` is the number of its first line.

    >>> split_lines(b"tea\nmilk\r\n\ntea", "here", 1).to_pylist()
    ['tea', 'milk', 'tea']
    """
    whole = (block if block.endswith(b"\n") else block + b"\n").replace(b"\r\n", b"\n")
    ends = np.flatnonzero(np.frombuffer(whole, np.uint8) == _NEWLINE)
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(ends))  # where each line ends once the line ends before it are gone
    text = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(whole.translate(None, b"\n")))
    if not is_sound(text):
        wrong = first + _first_invalid(block)
        raise UnreadableData(f"line {wrong:,} of {name} is not text in UTF-8. Convert it, or leave it out.")
    filled = np.diff(offsets) > 0
    return text if filled.all() else text.filter(pa.array(filled))


def _lines(file: IO[bytes], name: str) -> Iterator[pa.Array]:
    for number, block in _blocks(file, name):
        yield split_lines(block.removeprefix(codecs.BOM_UTF8) if number == 1 else block, name, number)


def _filled(column: pa.Array) -> pa.Array:
    """Return the texts that are not empty."""
    return column.filter(pc.greater(pc.binary_length(column), 0))


def _blocks(file: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines, some megabytes or a quarter of a second at a time, and the number of the first of them."""
    number, parts, size, since, done = 1, [b""], 0, time.monotonic(), False
    while not done:
        silent = size > 0 and not _ready(file)
        part = b"" if silent else file.read1(_BLOCK)  # type: ignore[attr-defined]
        parts.append(part)
        size, done = size + len(part), not part and not silent
        if not done and not silent and size < _BLOCK and time.monotonic() - since < _PATIENCE:
            continue
        block = b"".join(parts)
        cut = len(block) if done else block.rfind(b"\n") + 1
        if len(block) - cut > _LONGEST:
            raise UnreadableData(f"line {number:,} of {name} is longer than 256 MB. Is this a file of lines?")
        if cut:
            yield number, block[:cut]
            number += block.count(b"\n", 0, cut)
        parts, size, since = [block[cut:]], 0, time.monotonic()


def _ready(file: IO[bytes]) -> bool:
    """Return whether a pipe has more to read, or ends, within a moment; of other files, yes."""
    try:
        return bool(select.select([file], [], [], _PATIENCE)[0])
    except (OSError, ValueError, TypeError):  # no file of the system
        return True


class _Pieces(io.RawIOBase):
    """A pipe, read as far as it has come: Arrow would wait for a whole block."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        pieces = [self._file.read1(size)]
        left = size - len(pieces[0])
        while pieces[-1] and left > 0 and _ready(self._file):
            pieces.append(self._file.read1(left))
            left -= len(pieces[-1])
        return b"".join(pieces)


def _csv(file: IO[bytes], name: str, column: str, given: Header | None = None) -> Iterator[pa.Array]:
    header = given or parse_header(file.readline(1 << 20), name)
    if header is None:
        return
    if header.names.count(column) != 1:
        raise InvalidValue(
            f"--column {column!r} is not one of the columns of {name}. Its first line, or --header, must name it."
        )
    place = header.names.index(column)
    inner = [f"c{i}" for i in range(len(header.names))]
    try:
        reader = pyarrow.csv.open_csv(
            _Pieces(file),
            read_options=pyarrow.csv.ReadOptions(column_names=inner, block_size=_BLOCK, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(delimiter=header.separator, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=[inner[place]], column_types={inner[place]: pa.string()}, strings_can_be_null=True,
                quoted_strings_can_be_null=False, null_values=[""],
            ),
        )  # fmt: skip
        for batch in reader:
            yield _filled(batch.column(0))
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):
            return
        # Anchored at the start, before any quoted row: no data can pose as a row number.
        row = re.match(r"CSV parse error: Row #(\d{1,18}):", str(error))
        where = "" if row is None else f" (number {int(row[1]) + header.in_file:,})"
    else:
        return
    raise UnreadableData(f"{name} holds a row{where} that is not CSV in UTF-8 with {len(inner)} columns. Fix it.")


def _jsonl(file: IO[bytes], name: str, column: str) -> Iterator[pa.Array]:
    wanted = pa.schema([(column, pa.string())])
    options = pyarrow.json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")
    for number, block in _blocks(file, name):
        if not block.strip():
            continue
        one = pyarrow.json.ReadOptions(block_size=len(block) + 1, use_threads=False)
        try:
            table = pyarrow.json.read_json(io.BytesIO(block), parse_options=options, read_options=one)
        except pa.ArrowInvalid:
            table = None
        if table is None:
            lines = f"{number:,} to {number + block.count(bytes([_NEWLINE])):,}"
            what = f"no JSON object with text in {column!r}"
            raise UnreadableData(f"{name} has {what} somewhere in lines {lines}. Fix it, or leave it out.")
        yield from map(_filled, table.column(column).chunks)


def _parquet(path: str, name: str, column: str) -> Iterator[pa.Array]:
    if path == "-":
        raise InvalidValue("standard input is read as parquet, which needs a file. Save it to one first.")
    row = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if file.schema_arrow.names.count(column) != 1:
                raise InvalidValue(f"--column {column!r} is not one of the columns of {name}. Name one of them.")
            for batch in file.iter_batches(_ROWS, columns=[column]):
                yield _filled(_text(batch.column(column), name))
                row += len(batch)
        return
    except (pa.ArrowException, OSError):  # their messages may quote data
        pass
    where = f" from row {row + 1:,} on" if row else ""
    raise UnreadableData(f"{name} cannot be read as Parquet with text in UTF-8{where}. Check that it is whole.")


def _text(column: pa.Array, name: str) -> pa.Array:
    kind = value_type(column)
    if kind_of_type(kind) is None and kind != pa.null():
        raise InvalidType(f"--column of {name} holds {kind}. Items are text, whole numbers or bytes: convert it first.")
    text = column.cast(kind).cast(pa.large_string())
    if not is_sound(text):
        raise pa.ArrowInvalid
    return text


def _first_invalid(block: bytes) -> int:
    """Return the index of the first line that is not UTF-8."""
    try:
        block.decode()
    except UnicodeDecodeError as error:
        return block.count(b"\n", 0, error.start)
    return 0


def _form(path: str, form: str | None, column: str | None) -> str:
    if form is not None:
        if form not in FORMATS:
            raise InvalidValue(f"--format is not known. Choose one of {', '.join(FORMATS)}.")
        return form
    name = format_of(Path(path)) or ("lines" if column is None else "csv")
    return "csv" if name == "tsv" else name
