"""Folders of tables and a record about them, written whole or not at all, and refused when they were changed.

A folder is made under a temporary name beside its place, forced to disk, and renamed. A process that dies on the way
leaves nothing in that place, at most a hidden folder that holds nothing but what would have been published.

Tables are Parquet files. The record, release.json, has the digest of each and a seal over itself: they show accidents,
not an adversary's changes.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpsieve.errors import CorruptRelease, InvalidType, InvalidValue

FORMAT = 1
MAIN = "release"  # the table that every folder has
_RECORD = "release.json"


def write(folder: str | os.PathLike[str], record: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> Path:
    """Write a record and its tables, by name and MAIN among them, to a new folder and return its path."""
    target = _path(folder)
    if target.exists():
        raise InvalidValue(f"folder={str(target)!r} exists already. Pass a new name; a release is never overwritten.")
    if not target.absolute().parent.is_dir():
        raise InvalidValue(f"folder={str(target)!r} is to be in a folder that does not exist. Make that one first.")
    working = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))
    try:
        digests = {}
        for name, table in tables.items():
            place = working / f"{name}.parquet"
            pq.write_table(table, place)
            _force(place)
            digests[name] = _digest(place)
        whole = {"format": FORMAT, **record, "table_sha256": digests.pop(MAIN), "more_sha256": digests}
        whole["seal"] = _seal(whole)
        (working / _RECORD).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
        _force(working / _RECORD)
        _force(working)
        working.chmod(0o755)
        working.rename(target)
        _force(target.absolute().parent)
    except BaseException:
        shutil.rmtree(working, ignore_errors=True)
        raise
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
