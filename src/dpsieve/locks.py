"""What two processes must not do at once, and what must be cleaned up when one is ended.

A lock belongs to a process, on a file or a folder, and the system gives it up when the process ends, however it ends.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

if os.name == "posix":
    import fcntl


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


def acquired(path: Path, make: Callable[[], object]) -> int:
    """Make a file or folder where it is not there, lock it without waiting, and return the handle to close.

    Whoever had the lock before may remove what was locked as it ends; then it is made again.
    """
    while True:
        make()
        try:
            handle = lock(path)
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
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        if received:
            signal.raise_signal(received[0])
