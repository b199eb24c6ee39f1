"""What text files say about themselves: the header of a CSV file, the field names of JSON lines.

Types are never guessed. All values of a text file are read as text, just as they are written (numbers in JSON in one
normal form). A guess would look at rows, and then one row could change how all keys are published. For the same reason
the separator of a CSV file is read off its header line and nothing else: the one of comma, tab, semicolon and bar that
gives the most columns. Quotes are double quotes, and an empty field is null.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, cast

from dpsieve.errors import UnreadableData

_LONGEST_HEADER = 1 << 20
_SAMPLED_LINES, _SAMPLED_BYTES = 10_000, 1 << 27
_LONGEST_LINE = 1 << 24  # what DuckDB reads as one JSON object
_SEPARATORS = ",\t;|"


@dataclass(frozen=True)
class Header:
    """The first line of a CSV file."""

    separator: str
    names: tuple[str, ...]


def header_of(path: Path) -> Header | None:
    """Return the header of a CSV file; None when the file is empty."""
    try:
        with _opened(path) as file:
            line = file.readline(_LONGEST_HEADER)
    except (OSError, EOFError, zlib.error):
        line = None
    if line is None:
        raise UnreadableData(f"{str(path)!r} cannot be opened. Check its rights, and that a .gz file is whole.")
    only_tabs = ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]]
    return parsed_header(line, repr(str(path)), "\t" if only_tabs else _SEPARATORS)


def parsed_header(line: bytes, where: str, separators: str = _SEPARATORS) -> Header | None:
    """Return the header in the first line of `line`; `where` is told when there is none."""
    if not line:
        return None
    first = line.replace(b"\r", b"\n").partition(b"\n")[0]
    best: Header | None = None
    for separator in separators:
        names = _fields(first, separator)
        if names and (best is None or len(names) > len(best.names)):
            best = Header(separator, names)
    if best is None or len(line) == _LONGEST_HEADER or not any(best.names):
        raise UnreadableData(f"line 1 of {where} is not a header. It must hold the names of the columns, in UTF-8.")
    return best


def _fields(line: bytes, separator: str) -> tuple[str, ...] | None:
    try:
        return tuple(next(csv.reader([line.decode("utf-8-sig")], delimiter=separator, strict=True)))
    except (csv.Error, UnicodeDecodeError, StopIteration):
        return None


def json_fields(paths: tuple[Path, ...]) -> list[str]:
    """Return the names of fields in the first 10,000 lines or 128 MB; what is no object is left to the engine."""
    names: dict[str, None] = {}
    lines, size = 0, 0
    for path in paths:
        for line in json_lines(path):
            names |= dict.fromkeys(_object(line) or {})
            lines, size = lines + 1, size + len(line)
            if lines == _SAMPLED_LINES or size > _SAMPLED_BYTES:
                return list(names)
    return list(names)


def json_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, as far as it can be read: up to one that is too long for the engine too."""
    try:
        with _opened(path) as file:
            while (line := file.readline(_LONGEST_LINE + 1)) and len(line) <= _LONGEST_LINE:
                yield line
    except (OSError, EOFError, zlib.error):
        return


def bad_json_line(path: Path, near: int) -> int:
    """Return the number of the first line around `near` that is no JSON object, or `near`.

    DuckDB counts some lines one too high; this looks at the lines themselves.
    """
    low = max(near - 2, 0)
    for number, line in enumerate(islice(json_lines(path), low, near + 1), low + 1):
        if line.strip() and not _clean(_object(line)):
            return number
    return near


def _clean(value: object) -> bool:
    """Tell whether a value was read, and has no halves of surrogate pairs, which Python lets pass."""
    try:
        return value is not None and bool(json.dumps(value, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        return False


def _object(line: bytes) -> dict[str, object] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _opened(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")
