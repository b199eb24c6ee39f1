"""What two processes or threads must not do at once, and what must be cleaned up when a process is ended.

A lock belongs to a process, on a file or a folder, and the system gives it up when the process ends, however it ends.
"""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from dpsieve.errors import InvalidValue

if os.name == "posix":
    import fcntl

_PREFIX = "dpsieve-private-"


def lock(path: Path, *, wait: bool = False) -> int:
    """Lock a file or folder that exists, and return the handle to close.

    Raises BlockingIOError where another process has the lock and this one does not wait, and another OSError where the
    file system has no locks. Outside of Unix nothing is locked.
    """
    if os.name != "posix":
        return os.open(os.devnull, os.O_RDONLY)
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BaseException:
        os.close(handle)
        raise
    return handle


def acquired(path: Path, make: Callable[[], object], *, wait: bool = False) -> int:
    """Make a file or folder where it is not there, lock it as `lock` does, and return the handle to close.

    Whoever had the lock before may remove what was locked as it ends; then it is made again.
    """
    while True:
        make()
        try:
            handle = lock(path, wait=wait)
        except FileNotFoundError:
            continue
        if still_there(path, handle):
            return handle
        os.close(handle)


def still_there(path: Path, handle: int) -> bool:
    """Tell whether the path still names what was locked, and not something newer, or nothing."""
    try:
        return os.name != "posix" or os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def flush(path: Path) -> None:
    """Force a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _Ended(BaseException):
    """A signal asked this process to end."""


@contextlib.contextmanager
def cleaned_up() -> Iterator[None]:
    """Let signals that would end the process at once (SIGTERM, SIGHUP) unwind it first; then it ends by that signal.

    Handlers that the caller has set stay, and in other threads than the main one nothing changes.
    """
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    received: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        if not received:
            received.append(number)
            raise _Ended

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    except _Ended as ended:
        if received and sys.stderr is not None:
            for words in getattr(ended, "__notes__", ()):  # of a charge: after the signal nobody else reports it
                print(words, file=sys.stderr)
        raise
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        if received:
            signal.raise_signal(received[0])


@contextlib.contextmanager
def private_folder(parent: Path | None = None) -> Iterator[Path]:
    """Make a folder in `parent` (or the system's place for temporary files), and remove it with its files.

    It is readable by its owner alone, and locked by its process. Each new folder first removes those that nobody has
    locked any more: so a folder goes even after its process was killed.
    """
    home = Path(tempfile.gettempdir()) if parent is None else parent
    with cleaned_up():
        _sweep(home)
        folder, handle = _locked(home)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(handle)


def _locked(home: Path) -> tuple[Path, int]:
    """Return a new folder and its lock: the first one that no sweep removed before it was locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=home))
        try:
            handle = lock(folder, wait=True)
        except FileNotFoundError:
            continue
        except OSError:  # no locks here, and so no sweeps either
            return folder, os.open(os.devnull, os.O_RDONLY)
        if still_there(folder, handle):
            return folder, handle
        os.close(handle)


def _sweep(home: Path) -> None:
    if os.name != "posix":  # without locks, the folders of killed processes stay
        return
    for folder in home.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.getuid():
                handle = lock(folder)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(handle)


class OneThread:
    """A guard for objects that serve one thread at a time: it raises at once where another thread is inside.

    >>> guard = OneThread("this sketch")
    >>> with guard, guard:
    ...     pass
    Traceback (most recent call last):
    ...
    dpsieve.errors.InvalidValue: this sketch is in use by another thread. Use one for each thread, or a lock.
    """

    def __init__(self, name: str) -> None:
        self._name, self._lock = name, threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise InvalidValue(f"{self._name} is in use by another thread. Use one for each thread, or a lock.")

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return OneThread, (self._name,)
