"""Paths, globs and lists of them, as the files they mean.

Parquet (.parquet, .pq), CSV (.csv, .tsv) and JSON lines (.jsonl, .ndjson, .json); the text formats also with .gz. A
folder stands for all Parquet files in it and below. One read takes files of one kind.
"""

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dpsieve.errors import InvalidType, InvalidValue

Kind = Literal["parquet", "csv", "json"]
_KINDS: dict[str, Kind] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}
_KNOWN = "Parquet (.parquet), CSV (.csv, .tsv) and JSON lines (.jsonl, .ndjson, .json) are read, the last two also .gz"


@dataclass(frozen=True)
class Files:
    """Files of one kind, in order."""

    kind: Kind
    paths: tuple[Path, ...]


def files_of(data: object) -> Files:
    """Return the files that a path, a glob or a list of both means; each file once, sorted within a glob."""
    parts: Iterable[object] = data if isinstance(data, list | tuple) else [data]
    paths = list({path.resolve(): path for part in parts for path in _expanded(part)}.values())
    if not paths:
        raise InvalidValue("data is an empty list. Pass at least one file.")
    kinds = {_kind(path) for path in paths}
    if len(kinds) > 1:
        raise InvalidValue(f"data mixes {', '.join(sorted(kinds))} files. Pass files of one kind at a time.")
    return Files(kinds.pop(), tuple(paths))


def _expanded(part: object) -> list[Path]:
    if not isinstance(part, str | os.PathLike):
        hint = "Pass paths, or one frame or table by itself."
        raise InvalidType(f"data holds a {type(part).__name__} in its list. {hint}")
    text = os.fspath(part)
    if not isinstance(text, str) or not text.isprintable():
        raise InvalidValue("data is a path of bytes or with unprintable characters. Rename the file.")
    if not text:
        raise InvalidValue("data is an empty path. Pass the name of a file.")
    if "://" in text:
        hint = "Copy the files here, or pass a relation of a DuckDB connection that reads them."
        raise InvalidValue(f"data={text!r} is an address, and only files of this machine are read. {hint}")
    path = Path(os.path.expanduser(text))  # noqa: PTH111 - Path would take ./~x for a home, and fail where there is none
    try:
        return _found(path, text)
    except OSError as error:
        why = error.strerror
    raise InvalidValue(f"data={text!r} cannot be looked up ({why}). Check the path.")


def _found(path: Path, text: str) -> list[Path]:
    if path.is_dir():
        found = sorted(inner for inner in path.rglob("*") if inner.suffix.lower() in (".parquet", ".pq"))
        hint = f"For other formats pass a glob such as {str(path / '*.csv')!r}."
        return _some(
            [inner for inner in found if inner.is_file()], f"data={text!r} is a folder without Parquet files. {hint}"
        )
    if path.is_file():
        return [path]
    if path.exists():
        hint = "Pass the path of a file; for a pipe, CsvStream(sys.stdin.buffer), which is - on the command line."
        raise InvalidValue(f"data={text!r} is a pipe or a device, which is not read. {hint}")
    if not glob.has_magic(text):
        hint = "For standard input pass CsvStream(sys.stdin.buffer)." if text == "-" else "Check the path."
        raise InvalidValue(f"data={text!r} does not exist. {hint}")
    matches = sorted(match for match in glob.glob(str(path), recursive=True) if Path(match).is_file())  # noqa: PTH207
    return _some([Path(match) for match in matches], f"data={text!r} matches no file. Check the pattern.")


def _some(paths: list[Path], otherwise: str) -> list[Path]:
    if not paths:
        raise InvalidValue(otherwise)
    return paths


def _kind(path: Path) -> Kind:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    zipped = suffixes[-1:] == [".gz"]
    kind = _KINDS.get("".join(suffixes[-2:-1] if zipped else suffixes[-1:]))
    if kind is None or (zipped and kind == "parquet"):
        raise InvalidValue(f"data={str(path)!r} is of no known kind. {_KNOWN}.")
    return kind
