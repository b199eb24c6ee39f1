"""Private temporary folders that are always removed, even after the process was killed.

A folder is readable by its owner alone. It holds a file that its process keeps locked; the system gives the lock up
when the process ends, however it ends. Each new folder first removes those whose lock nobody holds any more.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_UNIX = os.name == "posix"  # elsewhere the folders of killed processes stay
if _UNIX:
    import fcntl

_PREFIX, _LOCK = "dpsieve-", "in-use"


@contextlib.contextmanager
def private_folder(parent: Path | None = None) -> Iterator[Path]:
    """Make a folder in `parent` (or the system's place for temporary files), and remove it with all it holds."""
    home = Path(tempfile.gettempdir()) if parent is None else parent
    _sweep(home)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=home))
    lock = -1
    try:
        lock = _locked(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock >= 0:
            os.close(lock)


def _locked(folder: Path) -> int:
    # The file gets its final name when it is locked, so that no sweep meets it in between.
    starting = folder / "starting"
    lock = os.open(starting, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    if _UNIX:
        fcntl.flock(lock, fcntl.LOCK_EX)
    starting.rename(folder / _LOCK)
    return lock


def _sweep(home: Path) -> None:
    for folder in home.glob(f"{_PREFIX}*") if _UNIX else ():
        with contextlib.suppress(OSError):
            if not folder.is_symlink() and folder.stat().st_uid == os.getuid():
                _remove_if_left(folder)


def _remove_if_left(folder: Path) -> None:
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
