"""The state of `dpsieve stream`: a sketch in a file, replaced whole, written by one process at a time.

A link is followed: its target is read and replaced.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dpsieve.errors import UnreadableData
from dpsieve.locks import acquire_lock, flush

if TYPE_CHECKING:
    from dpsieve.sketches import MergedSketch, MisraGries


def is_there(path: Path) -> bool:
    """Return whether a state exists."""
    return os.path.lexists(_target(path))


def load(path: Path) -> "MisraGries | MergedSketch":
    """Return the sketch in a file; a file that does not begin like one is not read any further."""
    from dpsieve.sketches import sketch_from_bytes
    from dpsieve.values.saved_bytes import MOST_BYTES

    try:
        with path.open("rb") as file:
            state = file.read(32)
            if state.startswith(b"dpsieve "):
                state += file.read(MOST_BYTES)
    except OSError as error:
        fix = "Check its name and rights."
        raise UnreadableData(f"the state {str(path)!r} cannot be read: {error.strerror}. {fix}") from None
    return sketch_from_bytes(state)


def save(sketch: "MisraGries | MergedSketch", path: Path) -> None:
    """Replace the state whole and durably, readable by its owner alone; the caller has it locked."""
    target = _target(path)
    working = _working(target)
    try:
        working.unlink(missing_ok=True)
        with open(os.open(working, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
            file.write(sketch.to_bytes())
            file.flush()
            os.fsync(file.fileno())
        working.replace(target)
        with contextlib.suppress(OSError):  # where the system can
            flush(target.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            working.unlink()
        if not isinstance(error, OSError):
            raise
        reason = f"{error.strerror}. It is as it was when last saved."
        raise UnreadableData(f"the state {str(path)!r} cannot be written: {reason}") from None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from writing a state; where one is at it, raise at once.

    The lock is that of a file beside the state, which ends with the process, however that ends.
    """
    target = _target(path)
    name = target.with_name(f".{target.name}.lock")
    try:
        handle = acquire_lock(name, lambda: name.touch(0o600))
    except OSError as error:
        reason = f"{error.strerror}. Check its folder."
        if isinstance(error, BlockingIOError):
            reason = "it is in use by another dpsieve stream. Wait until that one ends."
        raise UnreadableData(f"the state {str(path)!r} cannot be written: {reason}") from None
    try:
        _working(target).unlink(missing_ok=True)  # what a killed process left
        yield
    finally:
        with contextlib.suppress(OSError):
            name.unlink()
        os.close(handle)


def _working(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial")


def _target(path: Path) -> Path:
    return Path(os.path.realpath(path))
