"""A release on disk: a folder with release.parquet and release.json, written whole or not at all.

The folder is made under a temporary name beside its place, forced to disk, and renamed. A process that dies on the way
leaves no release, at most a hidden folder that holds nothing but what would have been published.
"""

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import dpsieve
from dpsieve.channels.channel import Channel
from dpsieve.errors import CorruptRelease, InvalidType, InvalidValue
from dpsieve.output.again import from_json
from dpsieve.output.release import Release
from dpsieve.privacy import Certificate, Guarantee

FORMAT = 1
_TABLE, _RECORD = "release.parquet", "release.json"


def save(release: Release, folder: str | os.PathLike[str]) -> Path:
    """Write a release to a new folder and return its path."""
    target = _path(folder)
    if isinstance(release.mechanism.to_json().get("scheme"), str):
        raise InvalidValue(
            "this release has a scheme made from a function, which cannot be saved. Make the scheme from its values, "
            "such as custom(scheme.inclusion_range(1, 10_000))."
        )
    if target.exists():
        raise InvalidValue(f"folder={str(target)!r} exists already. Pass a new name; a release is never overwritten.")
    if not target.absolute().parent.is_dir():
        raise InvalidValue(f"folder={str(target)!r} is to be in a folder that does not exist. Make that one first.")
    working = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))
    try:
        pq.write_table(_with_tokens(release), working / _TABLE)
        _force(working / _TABLE)
        record = _record(release, _digest(working / _TABLE))
        record["seal"] = _seal(record)
        (working / _RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        _force(working / _RECORD)
        _force(working)
        working.chmod(0o755)
        working.rename(target)
        _force(target.absolute().parent)
    except BaseException:
        shutil.rmtree(working, ignore_errors=True)
        raise
    return target


def load(folder: str | os.PathLike[str]) -> Release:
    """Read a release; check its digest and its version, make its mechanism again and certify that anew."""
    source = _path(folder)
    record = _read_record(source / _RECORD)
    try:
        if _seal(record) != record["seal"] or _digest(source / _TABLE) != record["table_sha256"]:
            raise CorruptRelease(f"{source} was changed after it was written. Get a fresh copy of the folder.")
        table = pq.read_table(source / _TABLE)
        guarantee, certificate = Guarantee.from_json(record["guarantee"]), Certificate.from_json(record["certificate"])
        mechanism = from_json(record["mechanism"])
    except CorruptRelease:
        raise
    except (KeyError, TypeError, OSError, pa.ArrowException, InvalidValue):
        raise CorruptRelease(f"{source} is not a whole release. Get a fresh copy of the folder.") from None
    # A channel may have a share of the budget only; others keep the whole promise.
    whole = isinstance(mechanism, Channel) or mechanism.guarantee == guarantee
    notes, unsafe = record.get("notes"), record.get("unsafe_to_publish")
    if not whole or not isinstance(notes, dict) or not isinstance(unsafe, bool):
        raise CorruptRelease(f"{source / _RECORD} says something else than its mechanism. Get a fresh copy.")
    if mechanism.certify() != certificate:
        raise CorruptRelease(f"{source / _RECORD} holds a certificate that its mechanism does not have.")
    tokens = table.column("token").to_numpy() if "token" in table.column_names else None
    if tokens is not None:
        table = table.drop_columns(["token"])
    return Release(table, guarantee, certificate, mechanism, tokens, unsafe, notes)


def _path(folder: str | os.PathLike[str]) -> Path:
    hint = "Pass the path of a folder."
    if not isinstance(folder, str | os.PathLike):
        raise InvalidType(f"folder must be a path, not {type(folder).__name__}. {hint}")
    path = Path(folder)
    if "\0" in str(path) or not path.name or len(os.fsencode(path.name)) > 200:
        raise InvalidValue(f"folder has no usable name. {hint}")
    return path


def _record(release: Release, digest: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "library": dpsieve.__version__,
        "unsafe_to_publish": release.unsafe_to_publish,
        "guarantee": release.guarantee.to_json(),
        "certificate": release.certificate.to_json(),
        "mechanism": release.mechanism.to_json(),
        "notes": release.notes,
        "keys": len(release),
        "table_sha256": digest,
    }


def _seal(record: dict[str, Any]) -> str:
    """Return a digest of the record, and through it of the table: it shows accidents, not an adversary's changes."""
    rest = {name: value for name, value in record.items() if name != "seal"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise CorruptRelease(f"{path} cannot be read. Pass a folder that Release.save has written.") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise CorruptRelease(f"{path} has another format than this version reads. Use the dpsieve that wrote it.")
    return record


def _with_tokens(release: Release) -> pa.Table:
    return release.table if release.tokens is None else release.table.append_column("token", pa.array(release.tokens))


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
