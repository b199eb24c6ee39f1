"""Files and streams: resolve paths to files, and read the columns of text files.

Parquet (.parquet, .pq), CSV (.csv, .tsv) and JSON lines (.jsonl, .ndjson, .json); the text formats also with .gz. A
folder means all Parquet files in it and below. As in Spark, names in a folder or a glob that start with a dot or an
underscore are ignored, except for partitions such as _day=1 and for names that the glob itself spells out.

Types are never inferred. All values of a text file are read as text, as they are written (numbers in JSON in one normal
form). Inference would read rows, and then one row could change how all keys are published. For the same reason the
separator of a CSV file depends on its header line only: the one of comma, tab, semicolon and bar that gives the most
columns. Where the file has no header line, the caller passes it. Quotes are double quotes, and an empty field is null.
"""

import csv
import fnmatch
import glob
import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal, cast

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue, UnreadableData

Kind = Literal["parquet", "csv", "json"]
FileFormat = Literal["csv", "tsv", "jsonl", "parquet"]
FORMATS: dict[FileFormat, Kind] = {"csv": "csv", "tsv": "csv", "jsonl": "json", "parquet": "parquet"}
_SUFFIXES: dict[str, FileFormat] = {"pq": "parquet", "ndjson": "jsonl", "json": "jsonl"}
_SUFFIXES |= dict(zip(FORMATS, FORMATS, strict=True))
_KNOWN = (
    "Names end in .parquet, .csv, .tsv, .jsonl, .ndjson or .json, text files also in .gz. "
    "Say what other files hold: dpsieve.files(data, format='csv')"
)
_LONGEST_HEADER = 1 << 20  # also how much of a stream is read at once
_SAMPLED_LINES, _SAMPLED_BYTES = 10_000, 1 << 27
_LONGEST_LINE = 1 << 24  # what DuckDB reads as one JSON object
_SEPARATORS = ",\t;|"
_EMPTY = "is empty, so it has no columns. Pass a file with a header or a row."


@dataclass(frozen=True)
class Header:
    """The names of the columns of a CSV file, their separator, and whether they are its first line."""

    separator: str
    names: tuple[str, ...]
    in_file: bool = True


@dataclass(frozen=True)
class Format:
    """What the caller passes about files or a stream: the name of the format, and the header line that CSV lacks."""

    name: FileFormat | None = None
    header: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None and (not isinstance(self.name, str) or self.name not in FORMATS):
            raise InvalidValue(f"format is not known. Pass one of {', '.join(map(repr, FORMATS))}.", argument="format")
        if self.name is not None:
            self.kind(Path())
        self.given_header(tabs=False)

    def kind(self, path: Path) -> Kind:
        kind = _kind(path) if self.name is None else FORMATS[self.name]
        if self.header is not None and kind != "csv":
            raise InvalidValue("header is for CSV files without a header line. Leave it out, or pass format='csv'.")
        return kind

    def given_header(self, *, tabs: bool) -> Header | None:
        """Return the header that the caller passed, if any; with `tabs`, tabs separate the columns of the file."""
        if self.header is None:
            return None
        hint = "Pass the names of all columns as the file would, such as header='user,query'."
        line = self.header if isinstance(self.header, str) and len(self.header.splitlines()) == 1 else ""
        found = None if "\0" in line else _best(line.encode(errors="replace"), _SEPARATORS)
        if found is None or not any(found.names):
            raise InvalidValue(f"header is not a line of column names. {hint}", argument="header")
        return replace(found, separator="\t" if tabs or self.name == "tsv" else found.separator, in_file=False)


_NO_FORMAT = Format()


@dataclass(frozen=True)
class DataFiles:
    """Files, as paths or patterns, and their format; see `files`."""

    data: Any
    format: Format


@dataclass(frozen=True)
class Files:
    """Files of one kind, in order; their format; and their name in messages, if not their own."""

    kind: Kind
    paths: tuple[Path, ...]
    format: Format = _NO_FORMAT
    name: str | None = None


def files(data: Any, *, format: FileFormat | None = None, header: str | None = None) -> "DataFiles | DataStream":  # noqa: A002
    """Return files whose names do not show their format, CSV files without a header line, or an open file, as data.

    Args:
        data: a path, a glob or a list of these; or an open file, such as `sys.stdin.buffer`, which is read once.
        format: 'csv', 'tsv' (CSV with tabs), 'jsonl' or 'parquet'; default by the names, and CSV for an open file.
        header: the first line that CSV lacks, such as 'user,query', with its separator (for tabs, also with commas).
            Every row is then data, and no row is read to find columns or separators.

    >>> files("events.log", format="csv", header="user;query")
    DataFiles(data='events.log', format=Format(name='csv', header='user;query'))
    """
    given = Format(format, header)
    if hasattr(data, "read") and not isinstance(data, str | os.PathLike):
        return DataStream(data, given=given)
    return DataFiles(data, given)


def files_of(data: object) -> Files:
    """Return the files of a path, a glob or a list of both; each file once, sorted within a glob."""
    given = data.format if isinstance(data, DataFiles) else _NO_FORMAT
    data = data.data if isinstance(data, DataFiles) else data
    parts: Iterable[object] = data if isinstance(data, list | tuple) else [data]
    folders = given.name in (None, "parquet")
    paths = list({file_identity(path): path for part in parts for path in find_files(part, folders=folders)}.values())
    if not paths:
        raise InvalidValue("data is an empty list. Pass at least one file.", argument="data")
    kinds = {given.kind(path) for path in paths}
    if len(kinds) > 1:
        raise InvalidValue(f"data mixes {', '.join(sorted(kinds))} files. Pass files of one kind.", argument="data")
    return Files(kinds.pop(), tuple(paths), given)


def file_identity(path: Path) -> object:
    """Return a value that is equal for all names of a file, including hard and symbolic links."""
    status = path.stat()
    return (status.st_dev, status.st_ino) if status.st_nlink > 1 else path.resolve()


def find_files(part: object, *, folders: bool = True) -> list[Path]:
    """Return the files of one path or glob, sorted; with `folders`, all Parquet files of a folder."""
    if not isinstance(part, str | os.PathLike):
        hint = "Pass paths, or one frame or table by itself."
        raise InvalidType(f"data contains a {type(part).__name__} in its list. {hint}", argument="data")
    text = os.fspath(part)
    if not isinstance(text, str) or not text.isprintable():
        raise InvalidValue("data is a path of bytes or with unprintable characters. Rename the file.", argument="data")
    if not text:
        raise InvalidValue("data is an empty path. Pass the name of a file.", argument="data")
    if "://" in text:
        hint = "Copy the files here, or pass a relation of a DuckDB connection that reads them."
        # It may contain a password, so it is not shown.
        raise InvalidValue(f"data is an address, and only files of this machine are read. {hint}", argument="data")
    path = Path(os.path.expanduser(text))  # noqa: PTH111 - Path would take ./~x for a home, and fail where there is none
    try:
        return _resolve(path, text, folders)
    except OSError as error:
        why = error.strerror
    _refuse_address(text)
    raise InvalidValue(f"data={text!r} cannot be looked up ({why}). Check the path.", argument="data")


def _resolve(path: Path, text: str, folders: bool) -> list[Path]:
    if path.is_dir() and not folders:
        raise InvalidValue(f"data={text!r} is a folder. Pass a glob such as {str(path / '*')!r}.", argument="data")
    if path.is_dir():
        named = sorted(inner for inner in path.rglob("*") if inner.suffix.lower() in (".parquet", ".pq"))
        if found := [inner for inner in named if _is_data(inner.relative_to(path).parts) and inner.is_file()]:
            return found
        hint = f"For other formats pass a glob such as {str(path / '*.csv')!r}."
        raise InvalidValue(f"data={text!r} is a folder without Parquet files. {hint}", argument="data")
    if path.is_file():
        return [path]
    if path.exists():
        hint = "Pass the path of a file; for a pipe, dpsieve.files(open(...)), or - on the command line."
        raise InvalidValue(f"data={text!r} is a pipe or a device, which cannot be read. {hint}", argument="data")
    if not glob.has_magic(text):
        _refuse_address(text)
        hint = "For standard input pass dpsieve.files(sys.stdin.buffer)." if text == "-" else "Check the path."
        raise InvalidValue(f"data={text!r} does not exist. {hint}", argument="data")
    start = next(place for place, part in enumerate(path.parts) if glob.has_magic(part))
    matches = map(Path, sorted(glob.glob(str(path), recursive=True)))  # noqa: PTH207
    found = [match for match in matches if _is_data(match.parts[start:], path.parts[start:]) and match.is_file()]
    if not found:
        _refuse_address(text)
        hint = "Check the pattern. Names that begin with _ or a dot are data only where the pattern says so."
        raise InvalidValue(f"data={text!r} matches no file. {hint}", argument="data")
    return found


def _refuse_address(text: str) -> None:
    if validate.has_password(text):
        hint = "Pass files; for a database postgresql://user:password@host/name, and the name of a table of it."
        raise InvalidValue(f"data looks like an address, and is no file. {hint}", argument="data")


def _is_data(names: tuple[str, ...], patterns: tuple[str, ...] = ()) -> bool:
    """Return whether no part of a path is hidden, except where a pattern with the same first character matches it."""
    hidden = [name for name in names if name[0] == "." or (name[0] == "_" and "=" not in name)]
    return all(any(p[0] == name[0] and fnmatch.fnmatchcase(name, p) for p in patterns) for name in hidden)


def format_of(path: Path) -> FileFormat | None:
    """Return the format of a file by its name, or None; text files may also end in .gz."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    is_zipped = suffixes[-1:] == [".gz"]
    name = _SUFFIXES.get("".join(suffixes[-2:-1] if is_zipped else suffixes[-1:]).removeprefix("."))
    return None if is_zipped and name == "parquet" else name


def _kind(path: Path) -> Kind:
    name = format_of(path)
    if name is None:
        raise InvalidValue(f"data={str(path)!r} has an unsupported extension. {_KNOWN}.", argument="data")
    return FORMATS[name]


def common_header(source: Files) -> tuple[Header, list[Path]]:
    """Return the one header of CSV files, and those of them that are not empty."""
    headers = {path: header for path in source.paths if (header := _header_of(path, source.format)) is not None}
    paths = list(headers)
    header = _check_header(headers[paths[0]] if paths else None, source.name or "data")
    for path in paths:
        if headers[path] != header:
            hint = "Pass files with the same columns, in the same order."
            raise UnreadableData(f"{str(path)!r} has another header than {str(paths[0])!r}. {hint}")
    return header, paths


def field_names(source: Files) -> list[str]:
    """Return the names of the fields of JSON lines."""
    if all(path.stat().st_size == 0 for path in source.paths):
        raise UnreadableData(f"data {_EMPTY}")
    names = _json_fields(source.paths)
    if not names:
        hint = "Pass JSON lines: one object on each line, without a list around them."
        raise UnreadableData(f"data names no field in its first lines. {hint}")
    return names


def _check_header(header: Header | None, name: str) -> Header:
    if header is None:
        raise UnreadableData(f"{name} {_EMPTY}")
    return header


def _header_of(path: Path, options: Format) -> Header | None:
    """Return the header of a CSV file; None if the file is empty and no header was passed."""
    only_tabs = options.name == "tsv" or (
        options.name is None and ".tsv" in [end.lower() for end in path.suffixes[-2:]]
    )
    if header := options.given_header(tabs=only_tabs):
        return header
    try:
        with open_file(path) as file:
            line = file.readline(_LONGEST_HEADER)
    except (OSError, EOFError, zlib.error):
        line = None
    if line is None:
        raise UnreadableData(f"{str(path)!r} cannot be opened. Check its rights, and that a .gz file is complete.")
    return parse_header(line, repr(str(path)), "\t" if only_tabs else _SEPARATORS)


def parse_header(line: bytes, where: str, separators: str = _SEPARATORS) -> Header | None:
    """Return the header in the first line of `line`; `where` names the file in errors."""
    if not line:
        return None
    best = _best(line.replace(b"\r", b"\n").partition(b"\n")[0], separators)
    if best is None or len(line) == _LONGEST_HEADER or not any(best.names):
        raise UnreadableData(f"line 1 of {where} is not a header. It must hold the names of the columns, in UTF-8.")
    return best


def _best(line: bytes, separators: str) -> Header | None:
    """Return the header with the separator that gives the most columns."""
    found = [Header(separator, names) for separator in separators if (names := _fields(line, separator))]
    return max(found, key=lambda header: len(header.names), default=None)


def _fields(line: bytes, separator: str) -> tuple[str, ...] | None:
    try:
        return tuple(next(csv.reader([line.decode("utf-8-sig")], delimiter=separator, strict=True)))
    except (csv.Error, UnicodeDecodeError, StopIteration):
        return None


def _json_fields(paths: tuple[Path, ...]) -> list[str]:
    """Return the names of fields in the first 10,000 lines or 128 MB; the engine refuses lines that are no objects."""
    names: dict[str, None] = {}
    lines, size = 0, 0
    for path in paths:
        for line in _json_lines(path):
            names |= dict.fromkeys(_object(line) or {})
            lines, size = lines + 1, size + len(line)
            if lines == _SAMPLED_LINES or size > _SAMPLED_BYTES:
                return list(names)
    return list(names)


def _json_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file as far as it can be read, up to one that is too long for the engine."""
    try:
        with open_file(path) as file:
            while (line := file.readline(_LONGEST_LINE + 1)) and len(line) <= _LONGEST_LINE:
                yield line
    except (OSError, EOFError, zlib.error):
        return


def _object(line: bytes) -> dict[str, object] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def open_file(path: Path) -> IO[bytes]:
    """Open a file for reading bytes; one that ends in .gz is unpacked."""
    return cast(IO[bytes], gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


EMPTY_PIPE = "the command before a pipe failed or wrote nothing. Check it, or pass a file."


class DataStream:
    r"""A binary or text stream that can be read once, CSV by default; see `files`.

    The header of CSV is read when the columns are needed. The rows are stored in a private folder that is removed at
    the end, so streams may be larger than memory, and errors have line numbers.

    >>> import io
    >>> from dpsieve.engines.duckdb.engine import DuckDB
    >>> from dpsieve.engines.inputs.files import DataStream
    >>> DuckDB().columns(DataStream(io.StringIO("user,query\n")))
    [('user', 'VARCHAR'), ('query', 'VARCHAR')]
    """

    def __init__(
        self,
        stream: IO[bytes] | IO[str],
        name: str = "standard input",
        given: Format = _NO_FORMAT,
    ) -> None:
        if not hasattr(stream, "readline") or not hasattr(stream, "read"):
            raise InvalidType(f"data must be an open file, not {type(stream).__name__}.", argument="data")
        self.name = name
        self.format = given if given.name else replace(given, name="csv")
        self.kind = self.format.kind(Path())
        self._stream: Any = stream
        self._first: bytes | None = None
        self._spent = False

    def header(self) -> Header:
        tabs = self.format.name == "tsv"
        if given := self.format.given_header(tabs=tabs):
            return given
        if self._first is None:
            self._first = self._bytes(self._stream.readline)
        return _check_header(parse_header(self._first, self.name, "\t" if tabs else _SEPARATORS), self.name)

    def store(self, folder: Path) -> Files:
        if self._spent:
            raise InvalidValue(f"data: {self.name} was read already. Save it to a file first.", argument="data")
        self._spent = True
        path = folder / f"stream.{self.kind}"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
            file.write(self._first or b"")
            # One read of the system at a time, so that a signal is noticed between them.
            while chunk := self._bytes(getattr(self._stream, "read1", self._stream.read)):
                file.write(chunk)
            if not file.tell():
                raise UnreadableData(f"{self.name} is empty: {EMPTY_PIPE}")
        return Files(self.kind, (path,), self.format, self.name)

    def _bytes(self, read: Any) -> bytes:
        part: bytes | str | None
        try:
            part = read(_LONGEST_HEADER)
        except (OSError, ValueError):
            part = None
        if part is None:
            raise UnreadableData(f"{self.name} cannot be read. Pass an open file of bytes, or of text in UTF-8.")
        return part.encode("utf-8", "surrogateescape") if isinstance(part, str) else bytes(part)


def is_text(source: object) -> bool:
    """Return whether the names of columns may be a first row of data."""
    return isinstance(source, DataStream | Files) and source.kind != "parquet"
