"""File locks, private temporary folders, cleanup on SIGTERM and SIGHUP.

A lock on a file or folder belongs to a process; the system releases it when the process ends, however it ends.
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

    Raises BlockingIOError if another process has the lock and `wait` is false, and another OSError if the file system
    has no locks. Only Unix systems lock.
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


def acquire_lock(path: Path, make: Callable[[], object], *, wait: bool = False) -> int:
    """Create a file or folder if missing, lock it as `lock` does, and return the handle to close.

    The previous owner of the lock may remove the file as it ends; then it is created again.
    """
    while True:
        make()
        try:
            handle = lock(path, wait=wait)
        except FileNotFoundError:
            continue
        if is_still_locked(path, handle):
            return handle
        os.close(handle)


def is_still_locked(path: Path, handle: int) -> bool:
    """Return whether the path still names the locked file, and was not removed or replaced."""
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
def unwind_on_signals() -> Iterator[None]:
    """Unwind the stack on SIGTERM and SIGHUP, then end the process by that signal.

    Handlers set by the caller remain, and nothing changes outside the main thread.
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
            for note in getattr(ended, "__notes__", ()):  # a charge, which nothing reports after the signal
                print(note, file=sys.stderr)
        raise
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        if received:
            signal.raise_signal(received[0])


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Hold back SIGTERM, SIGHUP and SIGINT until the block has ended; outside the main thread, do nothing.

    A mask would not: the system delivers a signal that one thread blocks to another thread, and Python calls handlers
    in the main thread whatever that one blocks.
    """
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    handlers = {number: signal.getsignal(number) for number in numbers}
    handlers = {number: handler for number, handler in handlers.items() if handler not in (None, signal.SIG_IGN)}
    received: list[int] = []
    try:
        for number in handlers:
            signal.signal(number, lambda number, _: received.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


@contextlib.contextmanager
def private_folder(parent: Path | None = None) -> Iterator[Path]:
    """Create a folder in `parent` (by default that for temporary files), and remove it with its files.

    It is readable by its owner only, and locked by its process. Each call first removes folders that are no longer
    locked, which killed processes left.
    """
    home = Path(tempfile.gettempdir()) if parent is None else parent
    with unwind_on_signals():
        _sweep(home)
        folder, handle = _locked(home)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(handle)


def _locked(home: Path) -> tuple[Path, int]:
    """Return a new folder and its lock; retries if a sweep of another process removes it before it is locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=home))
        try:
            handle = lock(folder, wait=True)
        except FileNotFoundError:
            continue
        except OSError:  # the file system has no locks, so no sweeps either
            return folder, os.open(os.devnull, os.O_RDONLY)
        if is_still_locked(folder, handle):
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
    """A guard for objects that serve one thread at a time: raises if another thread is inside.

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
