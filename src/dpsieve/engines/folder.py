"""Private temporary folders that are always removed, even after the process was killed.

A folder is readable by its owner alone, and locked by its process. Each new folder first removes those that nobody has
locked any more.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dpsieve.locks import cleaned_up, lock, still_there

_PREFIX = "dpsieve-private-"


@contextlib.contextmanager
def private_folder(parent: Path | None = None) -> Iterator[Path]:
    """Make a folder in `parent` (or the system's place for temporary files), and remove it with all it holds."""
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
