"""Compile with numba, and keep machine code on disk where no other user can write.

numba inlines functions and constants of other modules, but its own cache compares only the file of the compiled
function: after an update in place, machine code of the old version runs under Python of the new one. Here the folder of
cached code is named by one digest over all modules that hold compiled functions, everything that they import from this
package, and the versions of Python, numba, llvmlite, numpy and DuckDB. The signature and the CPU are part of the key of
each file.

    <cache folder>/dpsieve-<user id>/<digest>/<function>-<key>

The cache folder is NUMBA_CACHE_DIR, or that of the user, such as ~/.cache. Three rules protect what is loaded:

- Loading unpickles, so a planted file would run as code. Both folders and each file must belong to this user, and no
  other user may write to them; otherwise they are ignored. They are opened one relative to the other, so that they
  cannot be exchanged after the check.
- A process whose modules were replaced on disk after it started neither loads nor saves: what it has in memory is not
  what the digest describes.
- Each file starts with a digest of its name and content, so that a file cut short by a power loss, or one with the code
  of another function, is not loaded.

A cache that cannot be read or written is ignored, whatever the reason: the function is compiled in memory.

Functions with `waits=False` have another way to the same result. They are not compiled while someone waits: where one
is missing in the cache, `NotCompiled` is raised. Any function that is missing starts `compiled.background`, which
fills the cache. The environment variable DPSIEVE_COMPILED changes this, see `how_to_compile`.
"""

# ruff: noqa: PTH123, PTH208

import contextlib
import hashlib
import os
import pickle
import re
import shutil
import stat
import sys
import uuid
from functools import cache
from importlib import metadata
from pathlib import Path

import numba
from numba import njit
from numba.core.caching import NullCache
from numba.core.ccallback import CFunc
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature
from numba.misc.appdirs import AppDirs

import dpsieve
from dpsieve.display import log

_PACKAGE = Path(dpsieve.__file__).resolve().parent
_IMPORT = re.compile(rb"^[ \t]*(?:from|import)[ \t]+dpsieve(?:\.([\w.]+))?(?:[ \t]+import[ \t]+(\([^)]*\)|.*))?", re.M)
_COMPILED = b"\n@jit(", b"\n@callback("
_JIT = "compiled/jit.py"
_LIBRARIES = ("duckdb", "llvmlite", "numba", "numpy")
_VERSIONS_KEPT = 8
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_CLOCK_STEP = 0.02  # seconds by which the clock of a file system may be behind
_CHECKSUM = 32
_HAS_HANDLES = os.open in os.supports_dir_fd  # everywhere but on Windows, where folders of a user are private


SWITCH = "DPSIEVE_COMPILED"
saved = 0  # functions that this process has written to the cache


class NotCompiled(Exception):
    """A function that has another way is not in the cache."""


def how_to_compile() -> str:
    """Return the value of DPSIEVE_COMPILED.

    - auto, the default: a process in the background fills the cache, and calls that have another way take it.
    - cached: the same, without the process.
    - wait: every call waits for the compiler.
    - off, or 0, no or false: no compiled loops inside DuckDB, and no process. What has no other way is compiled as by
      'wait'.
    """
    setting = os.environ.get(SWITCH, "auto").lower()
    if setting in ("0", "no", "false"):
        return "off"
    return setting if setting in ("cached", "wait", "off") else "auto"


def jit(waits=True, allocates=True, **options):
    """Return a decorator like numba's njit, with the cache of this module.

    A function that makes no arrays may say so: then no references to arrays are counted, which takes several atomic
    operations per call of an inlined function, and threads wait for each other where they share an array.
    """

    def compile_(function):
        dispatcher = njit(_nrt=allocates, **options)(function)
        if dispatcher is not function:  # NUMBA_DISABLE_JIT returns the function itself
            dispatcher._cache = _Cache(function, waits)
        return dispatcher

    return compile_


def callback(signature, waits=True):
    """Return a decorator that compiles a function at once, for native code that calls it by its address."""

    def compile_(function):
        compiled = CFunc(function, normalize_signature(signature), locals={}, options={})
        compiled._cache = _Cache(function, waits)
        compiled.compile()
        return compiled

    return compile_


class _Cache(NullCache):
    """The machine code of one function on disk, one file per signature and CPU."""

    def __init__(self, function, waits):
        self._function, self._waits = function, waits

    def load_overload(self, sig, target_context):
        """Return the machine code for a signature, or None where the caller waits for the compiler."""
        compiled = self._load(sig, target_context)
        if compiled is None:
            from dpsieve.compiled.background import start

            start()
            if not self._waits and how_to_compile() != "wait":
                raise NotCompiled(self._function.__qualname__)
            target_context.refresh()
        return compiled

    def _load(self, sig, target_context):
        rtsys.initialize(target_context)  # what loading needs of `refresh`, which takes 0.3 s
        with _ignored("read"):
            name = self._name(sig, target_context.codegen())
            with _version_folder() as folder:
                content = _read(folder, name)
            if _checksum(name, content[_CHECKSUM:]) != content[:_CHECKSUM]:
                raise RuntimeError("a file was changed, or not written to its end")
            _sources().check_unchanged()
            reduced = pickle.loads(content[_CHECKSUM:])  # noqa: S301 - only this user can have written it
            return CompileResult._rebuild(target_context, *reduced)
        return None

    def save_overload(self, sig, data):
        """Write the machine code for a signature."""
        if data.library.has_dynamic_globals or any(not lifted.can_cache for lifted in data.lifted):
            return
        with _ignored("written"):
            name, content = self._name(sig, data.codegen), dumps(data._reduce())
            _sources().check_unchanged()
            with _version_folder(make=True) as folder:
                _write(folder, name, _checksum(name, content) + content)
            global saved
            saved += 1

    def _name(self, sig, codegen):
        """Return the name of the file: the function, and a digest of its line, the signature and the CPU."""
        code, signature = self._function.__code__, repr(sig)
        is_covered = Path(code.co_filename).resolve() in _sources().stamps
        if not is_covered or self._function.__closure__ or " at 0x" in signature:
            raise RuntimeError("the digest does not cover this function")
        key = repr((code.co_firstlineno, signature, codegen.magic_tuple())).encode()
        return f"{self._function.__module__}.{code.co_qualname}-{hashlib.sha256(key).hexdigest()[:24]}"


def is_writable() -> bool:
    """Return whether compiled code can be kept."""
    with contextlib.suppress(Exception), _version_folder(make=True) as folder:
        _write(folder, "writable", b"")
        return True
    return False


def is_noted(what: str) -> bool:
    """Return whether this was noted about this version on this CPU."""
    with contextlib.suppress(Exception), _version_folder() as folder:
        return bool(_read(folder, _note_name(what)) == what.encode())
    return False


def note(what: str) -> None:
    """Note a result that holds for this version on this CPU, where the cache can be written."""
    with contextlib.suppress(Exception):
        _sources().check_unchanged()
        with _version_folder(make=True) as folder:
            _write(folder, _note_name(what), what.encode())


def _note_name(what):
    cpu = repr(cpu_target.target_context.codegen().magic_tuple())
    return f"note-{hashlib.sha256(f'{what} {cpu}'.encode()).hexdigest()[:24]}"


def _checksum(name, content):
    return hashlib.sha256(name.encode() + b"\0" + content).digest()


@contextlib.contextmanager
def _ignored(action):
    """Suppress every failure of the cache."""
    try:
        yield
    except FileNotFoundError:  # not compiled yet
        pass
    except Exception as error:
        _log_once(f"compiled code on disk is not {action} ({type(error).__name__}: {error}); it is compiled in memory")


@cache
def _log_once(message):
    log.warning(message)


class _Sources:
    """The modules with compiled functions and all that they import.

    Attributes:
        stamps: their files, with what changes when a file is replaced.
        version: the name of the folder, a digest of their content and of the versions of Python and libraries.
    """

    def __init__(self):
        files = {path.relative_to(_PACKAGE).as_posix(): path for path in _PACKAGE.rglob("*.py")}
        stamps = {name: _stamp(path) for name, path in files.items()}
        texts = {name: path.read_bytes() for name, path in files.items()}
        used = set()
        compiled = [name for name, text in texts.items() if any(word in text for word in _COMPILED)]
        pending = [name for name in compiled if _JIT in _imported(texts[name], texts)]
        while pending:
            name = pending.pop()
            if name not in used:
                used.add(name)
                pending += _imported(texts[name], texts)
        versions = sys.version, sys.implementation.cache_tag, *map(metadata.version, _LIBRARIES)
        digest = hashlib.sha256(repr(versions).encode())
        for name in sorted(used):
            digest.update(f"\0{name}\0{len(texts[name])}\0".encode() + texts[name])
        self.version = digest.hexdigest()[:32]
        self.stamps = {files[name]: stamps[name] for name in used}

    def check_unchanged(self):
        """Raise unless these files are what this process has imported."""
        latest = dpsieve._LOADED_AT - _CLOCK_STEP
        if any(_stamp(path) != stamp or stamp[-1] >= latest for path, stamp in self.stamps.items()):
            raise RuntimeError("the package was changed on disk after it was loaded")


@cache
def _sources():
    return _Sources()


def _imported(text, texts):
    """Return the files of this package that a module imports, also inside of functions."""
    files = []
    for match in _IMPORT.finditer(text):
        module, names = (match[1] or b"").decode().replace(".", "/"), (match[2] or b"").decode()
        for name in (module, *(f"{module}/{name}".lstrip("/") for name in re.findall(r"\w+", names))):
            files += [file for file in (f"{name}.py", f"{name}/__init__.py") if file in texts]
    return files


def _stamp(path):
    """Return what changes with a file; last its time of change, by a clock that no user can set back for a file."""
    status = path.stat()
    changed = max(status.st_ctime, status.st_mtime * (os.name != "posix"))
    return status.st_ino, status.st_size, status.st_mtime_ns, changed


@contextlib.contextmanager
def _version_folder(make=False):
    """Yield the folder of this version; saving removes the least recently used versions."""
    with _home_folder(make) as home, _private_folder(home, _sources().version, make) as folder:
        yield folder
        if make:
            _remove_oldest(home)


@contextlib.contextmanager
def _home_folder(make=False):
    """Yield the folder of all versions."""
    given = numba.config.CACHE_DIR
    parent = Path(given).absolute() if given else Path(AppDirs("dpsieve", appauthor=False).user_cache_dir).parent
    if make:
        parent.mkdir(parents=True, exist_ok=True)
    name = f"dpsieve-{os.getuid()}" if hasattr(os, "getuid") else "dpsieve"
    with _private_folder(parent, name, make) as home:
        yield home


@contextlib.contextmanager
def _private_folder(parent, name, make):
    """Yield a folder that only this user can write to: its handle where the system has these, otherwise its path."""
    path, handle = _at(parent, name)
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700, dir_fd=handle)
    if not _HAS_HANDLES:
        yield path
        return
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
    try:
        _check_private(folder)
        yield folder
    finally:
        os.close(folder)


def _at(folder, name):
    """Return the path and the `dir_fd` with which functions of `os` reach a name in a folder."""
    return (name, folder) if isinstance(folder, int) else (folder / name, None)


def _check_private(handle):
    status = os.fstat(handle)
    if status.st_uid != os.getuid() or status.st_mode & _OTHERS_MAY_WRITE:
        raise RuntimeError("another user owns the cache, or may write to it")


def _read(folder, name):
    path, parent = _at(folder, name)
    flags = [getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY")]  # a pipe is not waited for
    handle = os.open(path, os.O_RDONLY | sum(flags), dir_fd=parent)
    with open(handle, "rb") as file:
        if _HAS_HANDLES:
            _check_private(handle)
            with contextlib.suppress(OSError):  # read-only
                os.utime(folder)
        return file.read()


def _write(folder, name, content):
    """Write a file atomically."""
    (partial, parent), (path, _) = _at(folder, f"{uuid.uuid4().hex}.partial"), _at(folder, name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(partial, flags, 0o600, dir_fd=parent)
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.replace(partial, path, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial, dir_fd=parent)
        raise


def _remove_oldest(home):
    """Remove all versions except for the most recently used ones."""
    used = {}
    for name in os.listdir(home):
        path, parent = _at(home, name)
        with contextlib.suppress(OSError):  # another process removes it
            used[name] = os.stat(path, dir_fd=parent, follow_symlinks=False).st_mtime
    for name in sorted(used, key=used.__getitem__)[:-_VERSIONS_KEPT]:
        path, parent = _at(home, name)
        shutil.rmtree(path, ignore_errors=True, dir_fd=parent)
