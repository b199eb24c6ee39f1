"""Compile beside the work: a process of low priority that fills the cache of compiled code, and ends by itself.

It runs `dpsieve warm-up --background`: silent, one at a time, on made-up data, and apart from the process that starts
it. It is started at most once per process, and once per version and hour, and not at all where the cache cannot be
written, or where DPSIEVE_COMPILED is not 'auto'.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dpsieve
from dpsieve.compiled.jit import SWITCH, _at, _home_folder, _version_folder, _write, how_to_compile
from dpsieve.display import log

if os.name == "posix":
    import fcntl

_ATTEMPT = "attempt"
_AGAIN_AFTER = 3600.0  # seconds
_MOST_SECONDS = 1800
_LOWEST_PRIORITY = 19
_started = threading.Event()


def start() -> None:
    """Start the process, unless it was started before or is not wanted; say so where nothing can be kept."""
    if _started.is_set() or how_to_compile() != "auto":
        return
    _started.set()
    try:
        wanted = _can_be_started()
    except Exception as error:  # of a folder that is read-only, or that others may write to
        fix = (
            f"Set NUMBA_CACHE_DIR to a folder that only this user can write to, or {SWITCH}=wait to compile each time."
        )
        log.warning("compiled code cannot be kept (%s), so slower ways are taken. %s", type(error).__name__, fix)
        return
    if wanted:
        with contextlib.suppress(Exception):
            _run_command()


def _can_be_started() -> bool:
    """Return whether the cache can be written, and no process was started lately; note that one is started now."""
    with _version_folder(make=True) as folder:
        path, parent = _at(folder, _ATTEMPT)
        with contextlib.suppress(FileNotFoundError):
            if time.time() - os.stat(path, dir_fd=parent).st_mtime < _AGAIN_AFTER:
                return False
        _write(folder, _ATTEMPT, b"")
    return not getattr(sys, "frozen", False) and Path(sys.executable).name.startswith("python")


def _run_command() -> None:
    home = str(Path(dpsieve.__file__).resolve().parents[1])
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "dpsieve", "warm-up", "--background"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {SWITCH: "wait", "PYTHONPATH": os.pathsep.join(paths)},
        cwd=os.path.abspath(os.sep),  # noqa: PTH100 - not the folder of the caller, which may be removed
        start_new_session=True,
    )
    threading.Thread(target=process.wait, name="dpsieve-warm-up", daemon=True).start()  # no zombie remains


@contextlib.contextmanager
def low_priority() -> Iterator[bool]:
    """Lower the priority of this process and limit its time; yield whether no other one of this user compiles now.

    One of another version counts, too: where a package is being edited, each edit is a version.
    """
    if os.name != "posix":
        yield True
        return
    import signal

    os.nice(_LOWEST_PRIORITY)
    if os.getsid(0) == os.getpid():  # a session of its own: Linux shares processors among sessions first
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(_LOWEST_PRIORITY))
    signal.alarm(_MOST_SECONDS)
    with _home_folder(make=True) as folder:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until the folder is closed
        except BlockingIOError:
            yield False
        else:
            yield True
