"""Durable storage of one text on a device: a private file, or a store of the host.

`FileStorage` replaces its file atomically: a new file is written, flushed and renamed, and the folder is flushed. A
process that is killed at any point leaves the old text or the new one, and `put` returns only once the new one survives
a power failure.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from dpsieve import locks
from dpsieve.errors import InvalidType, UnreadableData

PRIVATE = 0o600


class Storage(Protocol):
    """A place for one text, such as a key of a mobile host's own store.

    A storage may also have a method `lock()` that returns a context manager; a `Budget` holds it from `get` to `put`.
    A host whose processes share a storage needs it. Failures are to be raised as OSError.
    """

    def get(self) -> str | None:
        """Return the text, or None where none was put yet."""

    def put(self, text: str) -> None:
        """Replace the text; on return it is durable."""


class FileStorage:
    """One text in a file of mode 0600.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = FileStorage(f"{folder}/state")
    ...     with place.lock():
    ...         place.put("tea")
    ...     place.get()
    'tea'
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise InvalidType(f"path must be the path of a file, not {type(path).__name__}.", argument="path")
        self.path = Path(os.path.realpath(path))  # the lock of a link is that of its file
        if not self.path.parent.is_dir():
            raise UnreadableData("path: its folder does not exist. Make the folder, or pass another path.")

    def get(self) -> str | None:
        """Return the text, or None where none was put yet."""
        try:
            return self.path.read_bytes().decode(errors="surrogateescape")
        except FileNotFoundError:
            return None

    def put(self, text: str) -> None:
        """Replace the text; on return it is durable."""
        working = self.path.with_name(f".{self.path.name}.partial")
        with open(self._open(working, os.O_WRONLY | os.O_TRUNC), "wb") as file:  # noqa: PTH123
            file.write(text.encode(errors="surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
        working.replace(self.path)
        if os.name == "posix":
            locks.flush(self.path.parent)

    @contextmanager
    def lock(self, *, wait: bool = True) -> Iterator[None]:
        """Keep other processes and threads out; without `wait`, raise BlockingIOError where one is inside.

        Outside of Unix nothing is locked, as in all of dpsieve.
        """
        beside = self.path.with_name(f".{self.path.name}.lock")  # the file itself is replaced
        handle = locks.acquire_lock(beside, lambda: os.close(self._open(beside, os.O_RDONLY)), wait=wait)
        try:
            yield
        finally:
            os.close(handle)

    @staticmethod
    def _open(path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), PRIVATE)
