"""Files of publications: atomic writes of folders and single files; changed folders are refused on reading.

A folder of tables and a record about them is written under a hidden name beside its target, flushed to disk, and
renamed. A process that is interrupted or terminated meanwhile leaves nothing. A killed process leaves at most the
hidden folder, which holds only what would have been published; the next process takes it over. A place can be reserved
before there is something to write; then it may also take a single file, which is written in the hidden folder.

Tables of a folder are Parquet files. The record, release.json, has the digest of each and a digest of itself: they
detect accidents, not changes by an adversary.

A single file (`csv_content` and its relatives) is for other tools. It holds the rows in the order of the table and
nothing else: no guarantee, no certificate, no tokens, and it cannot be loaded again. What a test source drew is marked
by one more column, `unsafe_to_publish`.

- CSV: UTF-8, one header line, commas, lines that end with a line feed; text in double quotes, numbers without. Dates
  and times as in ISO 8601 (those with a zone end in Z), bytes as hexadecimal digits, NaN as nan, booleans as true and
  false.
- JSON lines: one object per row, values as `--json` prints them: NaN and the infinities as text, bytes in base64.
- Parquet: the types of the table.
"""

import errno
import hashlib
import io
import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from dpsieve import validate
from dpsieve.display import json_text
from dpsieve.errors import CorruptRelease, InvalidType, InvalidValue
from dpsieve.locks import acquire_lock, flush, hold_signals, is_still_locked, unwind_on_signals
from dpsieve.publication.bounded import Unreadable, open_plain, read_json, read_table

if TYPE_CHECKING:
    from dpsieve.publication.publication import Publication

FORMAT = 2
MAIN = "release"  # the table that every folder has
_RECORD = "release.json"
_FILE = "table"  # a file that is written in a reserved place
_WRITTEN = (_RECORD, _FILE)  # beside tables, in a hidden folder
_FORMULA = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"  # how a cell starts that spreadsheets run; signs also full-width


class Reserved:
    """A place for a new folder or file, which no other process writes to; use it in a `with` block."""

    _handle: int | None = None

    def __init__(self, folder: str | os.PathLike[str], argument: str = "folder") -> None:
        self.target, self._argument, self._held = _path(folder, argument), argument, ExitStack()
        self.working = self.target.absolute().parent / f".{self.target.name}.partial"

    def __fspath__(self) -> str:
        return str(self.target)

    def __enter__(self) -> "Reserved":
        try:
            with ExitStack() as held:
                held.enter_context(unwind_on_signals())
                with hold_signals():
                    held.callback(self._leave)
                    self._take()
                    self._held = held.pop_all()
            return self  # a signal at this point unwinds too
        except BaseException:
            self._held.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def _take(self) -> None:
        failure = None
        try:
            self._handle = acquire_lock(self.working, lambda: self.working.mkdir(exist_ok=True))
        except BlockingIOError:
            failure = "is being written by another process. Pass another name, or wait for it"
        except FileNotFoundError:
            failure = "is in a folder that does not exist. Create the folder first"
        except OSError as error:
            fix = "Pass a new name, in a folder that can be written to"
            failure = f"cannot be written ({error.strerror}). {fix}"
        if failure is None and not _is_ours(self.working):
            self._unlock()
            failure = f"needs the path {str(self.working)!r}, which is in use for something else. Pass a new name"
        elif failure is None and os.path.lexists(self.target):
            failure = "exists already. Pass a new name; a release is never overwritten"
        if failure is not None:
            raise InvalidValue(f"{self._argument}={str(self.target)!r} {failure}.")

    def _leave(self) -> None:
        with hold_signals():
            if self._handle is not None and is_still_locked(self.working, self._handle):
                shutil.rmtree(self.working, ignore_errors=True)
            self._unlock()

    def _unlock(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
        self._handle = None


def _is_ours(working: Path) -> bool:
    """Return whether a hidden folder belongs to this user, and holds only files of a release."""
    own = not hasattr(os, "getuid") or working.stat().st_uid == os.getuid()
    found = list(working.iterdir())
    plain = all(file.is_file() and not file.is_symlink() for file in found)
    return own and plain and all(file.name in _WRITTEN or file.suffix == ".parquet" for file in found)


def write(folder: str | os.PathLike[str], record: Mapping[str, Any], tables: Mapping[str, pa.Table | Path]) -> Path:
    """Write a record and its tables, by name and MAIN among them, to a new or reserved folder and return its path.

    A table may be a Parquet file, which is moved there.
    """
    if not isinstance(folder, Reserved):
        with Reserved(folder) as place:
            return write(place, record, tables)
    target, working = folder.target, folder.working
    digests = {}
    for left in working.iterdir():
        left.unlink()
    for name, table in tables.items():
        file = working / f"{name}.parquet"
        if isinstance(table, Path):
            shutil.move(table, file)
        else:
            pq.write_table(table, file)
        flush(file)
        digests[name] = _digest(file)
    whole = {"format": FORMAT, **record, "table_sha256": digests.pop(MAIN), "more_sha256": digests}
    whole["seal"] = _seal(whole)
    (working / _RECORD).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    flush(working / _RECORD)
    flush(working)
    working.rename(target)
    flush(target.absolute().parent)
    return target


def write_file(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write one file, whole or not at all, and return its path: replace it, or in a reserved place make a new one."""
    if isinstance(path, Reserved):
        return _write_reserved(path, content)
    with unwind_on_signals():
        return _replace(_path(path, "path", "Pass the name of a file."), content)


def _replace(target: Path, content: bytes) -> Path:
    working = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}.partial")
    failure = None
    try:
        working.unlink(missing_ok=True)  # what a killed process left
        _write_new(working, content)
        working.replace(target)
        flush(target.absolute().parent)
    except FileNotFoundError:
        failure = "is in a folder that does not exist. Create the folder first"
    except OSError as error:
        failure = f"cannot be written ({error.strerror}). Pass the name of a file in a folder that can be written to"
    finally:
        with suppress(OSError):
            working.unlink(missing_ok=True)
    if failure is not None:
        raise InvalidValue(f"path={str(target)!r} {failure}.")
    return target


def _write_reserved(place: Reserved, content: bytes) -> Path:
    made = place.working / _FILE
    made.unlink(missing_ok=True)
    _write_new(made, content)
    try:
        os.link(made, place.target)  # unlike a rename, it replaces nothing that came up meanwhile
    except FileExistsError:
        raise
    except OSError:  # no links on this file system
        if os.path.lexists(place.target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        made.rename(place.target)
    flush(place.target.absolute().parent)
    return place.target


def _write_new(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read(folder: str | os.PathLike[str]) -> tuple[Path, dict[str, Any]]:
    """Return the path and the record of a folder that `write` made; raise if it was changed."""
    source = _path(folder)
    path = source / _RECORD
    try:
        record = read_json(path)
    except MemoryError:
        raise needs_too_much(source) from None
    except Unreadable:
        raise CorruptRelease(f"{path} cannot be read. Pass the folder of a saved release.") from None
    if type(record.get("format")) is not int or record["format"] != FORMAT:
        raise CorruptRelease(f"{path} has another format than this version reads. Use the dpsieve that wrote it.")
    if record.get("seal") != _seal(record):
        raise changed(source)
    return source, record


def read_tables(source: Path, record: Mapping[str, Any], more: tuple[str, ...] = ()) -> dict[str, pa.Table]:
    """Return MAIN, with as many rows as the record says, and the tables `more`; raise if any was changed.

    What that costs is bounded by the size of the files: see `publication.bounded`.
    """
    others, rows = record.get("more_sha256", {}), record.get("keys")
    if not isinstance(others, dict) or set(others) != set(more) or type(rows) is not int:
        raise incomplete(source)
    digests = {MAIN: record.get("table_sha256"), **others}
    return {name: _read_table(source, name, digest, rows) for name, digest in digests.items()}


def incomplete(source: Path) -> CorruptRelease:
    """Return the error for a folder with missing or unexpected content."""
    return CorruptRelease(f"{source} is not a whole release. Get a fresh copy of the folder.")


def needs_too_much(source: Path) -> CorruptRelease:
    """Return the error for a folder whose numbers claim more memory than there is."""
    why = "it claims more memory than there is"
    return CorruptRelease(f"{source} cannot be loaded: {why}. Get a fresh copy of the folder, or use a larger machine.")


def changed(source: Path) -> CorruptRelease:
    """Return the error for a folder that was changed after it was written."""
    return CorruptRelease(f"{source} was changed after it was written. Get a fresh copy of the folder.")


def _path(folder: str | os.PathLike[str], name: str = "folder", hint: str = "Pass the path of a folder.") -> Path:
    given = os.fspath(folder) if isinstance(folder, str | os.PathLike) else folder
    if not isinstance(given, str):
        raise InvalidType(f"{name} must be a path, not {type(folder).__name__}. {hint}")
    path = Path(validate.no_address(name, given, hint=hint))
    if "\0" in given or not path.name or not _fits(path.name):
        raise InvalidValue(f"{name} has no usable name. {hint}")
    return path


def _fits(name: str) -> bool:
    try:
        return len(os.fsencode(name)) <= 200
    except UnicodeEncodeError:
        return False


def _read_table(source: Path, name: str, digest: object, rows: int) -> pa.Table:
    try:
        with open_plain(source / f"{name}.parquet") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise changed(source)
            file.seek(0)
            return read_table(file, rows if name == MAIN else None)
    except MemoryError:
        raise needs_too_much(source) from None
    except Unreadable:
        raise incomplete(source) from None


def _seal(record: Mapping[str, Any]) -> str:
    """Return a digest of the record, and through it of the tables."""
    rest = {name: value for name, value in record.items() if name != "seal"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_table(made: "Publication", answers: pa.Table | None = None) -> pa.Table:
    """Return the table, or answers from it, as files hold it: with a column that marks what a test source drew."""
    table = made.table if answers is None else answers
    if not made.unsafe_to_publish:
        return table
    name = "unsafe_to_publish"
    while name in table.column_names:
        name += "_"
    return table.append_column(name, pa.array([True] * len(table), pa.bool_()))


def csv_content(table: pa.Table, *, escape_formulas: bool = False) -> bytes:
    """Return a table as CSV; with `escape_formulas`, an apostrophe before each text that a spreadsheet would run."""
    names = pa.chunked_array([pa.array(table.column_names, pa.string())])
    columns = [_written(column) for column in table.columns]
    if escape_formulas:
        names, *columns = (_escaped(column) for column in (names, *columns))
    text = io.BytesIO()
    pyarrow.csv.write_csv(pa.table(columns, names=names.to_pylist()), text)
    return text.getvalue()


def formulas(table: pa.Table) -> int:
    """Return how many texts of a table a spreadsheet would take for formulas."""
    texts = [column for column in table.columns if _is_text(column.type)]
    return sum(pc.sum(pc.match_substring_regex(column, _FORMULA)).as_py() or 0 for column in texts)


def json_content(table: pa.Table) -> bytes:
    """Return a table as JSON lines."""
    from dpsieve.publication.publication import plain_rows

    return "".join(f"{json_text(row)}\n" for row in plain_rows(table)).encode()


def parquet_content(table: pa.Table) -> bytes:
    """Return a table as Parquet."""
    content = io.BytesIO()
    pq.write_table(table, content)
    return content.getvalue()


CONTENT: dict[str, Callable[[pa.Table], bytes]] = {
    ".csv": csv_content,
    ".jsonl": json_content,
    ".ndjson": json_content,
    ".parquet": parquet_content,
}
"""What is written to a file, by the end of its name."""
NOT_WRITTEN = (".tsv", ".json", ".xlsx", ".xls", ".ods", ".txt", ".gz", ".zip", ".html", ".arrow", ".feather")
"""Ends of names of files that are not written, and that no folder should have."""


def write_table(made: "Publication", path: str | os.PathLike[str], answers: pa.Table | None = None) -> Path:
    """Write the table, or answers from it, to a file, in the format that its name implies, whole or not at all."""
    return write_file(path, CONTENT[Path(path).suffix.lower()](file_table(made, answers)))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _written(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of a type that can be written to CSV: bytes as hexadecimal digits."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.chunked_array([pa.array([value.hex() for value in column.to_pylist()], pa.large_string())])
    return column.cast(pa.large_string()) if pa.types.is_string_view(kind) else column


def _escaped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not _is_text(column.type):
        return column
    return pc.replace_substring_regex(column, f"({_FORMULA})", "'\\1")
