"""Folders of tables and a record about them, written whole or not at all, and refused when they were changed.

A folder is made under a hidden name beside its place, forced to disk, and renamed. A process that dies on the way
leaves nothing in that place, at most the hidden folder, which holds nothing but what would have been published and is
taken over by the next process. A place can be reserved before there is something to write.

Tables are Parquet files. The record, release.json, has the digest of each and a seal over itself: they show accidents,
not an adversary's changes.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpsieve.errors import CorruptRelease, InvalidType, InvalidValue
from dpsieve.locks import lock, still_there

FORMAT = 1
MAIN = "release"  # the table that every folder has
_RECORD = "release.json"


class Reserved:
    """A place for a folder that can be written to, and that no other process writes to; use it in a `with` block."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.target = _path(folder)
        self.working = self.target.absolute().parent / f".{self.target.name}.partial"
        failure = None
        try:
            self._handle = self._locked()
        except BlockingIOError:
            failure = "is being written by another process. Pass another name, or wait for it"
        except FileNotFoundError:
            failure = "is to be in a folder that does not exist. Make that one first"
        except OSError as error:
            failure = (
                f"cannot be written ({error.strerror}). Pass the name of a new folder, in one that can be written to"
            )
        if failure is None and os.path.lexists(self.target):
            self._leave()
            failure = "exists already. Pass a new name; a release is never overwritten"
        if failure is not None:
            raise InvalidValue(f"folder={str(self.target)!r} {failure}.")

    def _locked(self) -> int:
        while True:
            self.working.mkdir(exist_ok=True)
            handle = lock(self.working)
            if still_there(self.working, handle):
                return handle
            os.close(handle)

    def _leave(self) -> None:
        if still_there(self.working, self._handle):
            shutil.rmtree(self.working, ignore_errors=True)
        os.close(self._handle)

    def __fspath__(self) -> str:
        return str(self.target)

    def __enter__(self) -> "Reserved":
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()


def write(folder: str | os.PathLike[str], record: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> Path:
    """Write a record and its tables, by name and MAIN among them, to a new or reserved folder and return its path."""
    if not isinstance(folder, Reserved):
        with Reserved(folder) as place:
            return write(place, record, tables)
    target, working = folder.target, folder.working
    digests = {}
    for left in working.iterdir():
        left.unlink()
    for name, table in tables.items():
        file = working / f"{name}.parquet"
        pq.write_table(table, file)
        _force(file)
        digests[name] = _digest(file)
    whole = {"format": FORMAT, **record, "table_sha256": digests.pop(MAIN), "more_sha256": digests}
    whole["seal"] = _seal(whole)
    (working / _RECORD).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    _force(working / _RECORD)
    _force(working)
    working.rename(target)
    _force(target.absolute().parent)
    return target


def read(folder: str | os.PathLike[str]) -> tuple[Path, dict[str, Any], dict[str, pa.Table]]:
    """Return the path, the record and the tables of a folder that `write` made; raise if anything was changed."""
    source = _path(folder)
    record = _read_record(source / _RECORD)
    try:
        digests = {MAIN: record["table_sha256"], **record.get("more_sha256", {})}
        if record["seal"] != _seal(record) or any(_digest(_place(source, n)) != d for n, d in digests.items()):
            raise CorruptRelease(f"{source} was changed after it was written. Get a fresh copy of the folder.")
        tables = {name: pq.read_table(_place(source, name)) for name in digests}
    except CorruptRelease:
        raise
    except (KeyError, TypeError, OSError, pa.ArrowException):
        tables = None
    if tables is None:
        raise incomplete(source)
    return source, record, tables


def incomplete(source: Path) -> CorruptRelease:
    """Return the error for a folder that lacks something, or has something else."""
    return CorruptRelease(f"{source} is not a whole release. Get a fresh copy of the folder.")


def _path(folder: str | os.PathLike[str]) -> Path:
    hint = "Pass the path of a folder."
    if not isinstance(folder, str | os.PathLike):
        raise InvalidType(f"folder must be a path, not {type(folder).__name__}. {hint}")
    path = Path(folder)
    if "\0" in str(path) or not path.name or len(os.fsencode(path.name)) > 200:
        raise InvalidValue(f"folder has no usable name. {hint}")
    return path


def _place(source: Path, name: str) -> Path:
    """Return where a table is: in the folder itself, whatever a record says."""
    if not name.isidentifier():
        raise incomplete(source)
    return source / f"{name}.parquet"


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise CorruptRelease(f"{path} cannot be read. Pass a folder that `save` has written.") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise CorruptRelease(f"{path} has another format than this version reads. Use the dpsieve that wrote it.")
    return record


def _seal(record: Mapping[str, Any]) -> str:
    """Return a digest of the record, and through it of the tables."""
    rest = {name: value for name, value in record.items() if name != "seal"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _force(path: Path) -> None:
    """Force a file or a folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
