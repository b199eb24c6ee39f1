"""The state of `dpsieve stream`: a sketch in a file, replaced whole, written by one process at a time.

A link is followed: its target is read and replaced.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dpsieve.errors import InvalidValue, UnreadableData
from dpsieve.locks import acquire_lock, flush

if TYPE_CHECKING:
    from dpsieve.sketches import MergedSketch, MisraGries

_SAVE_EVERY = 60.0  # seconds, while a pipe is read


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


def named_files(names: Sequence[str]) -> list[str]:
    """Return the files of names, globs and folders, each once; - is standard input."""
    from dpsieve.engines.inputs.files import file_identity, find_files

    files: list[str] = []
    for name in names:
        path = Path(name)
        plain = name == "-" or (path.exists() and not path.is_dir())  # a pipe with a name is read too
        files += [name] if plain else map(str, find_files(name))
    paths = [file_identity(Path(path)) for path in files if path != "-"]
    if len(set(paths)) < len(paths):
        raise InvalidValue("a file is named twice, so that its items would count twice. Name each file once.")
    return files


def read_one(
    sketch: "MisraGries", files: Sequence[str], how: dict[str, str | None], state: Path | None, *, quiet: bool
) -> "MisraGries":
    """Count the items of all files, then save the state once and report what it holds.

    Files that cannot be read to their end leave the state as it was: the whole command can be run again. A pipe cannot
    be read again, so it is saved now and then, and what was read of it is kept when it fails or is interrupted.
    """
    from dpsieve.engines.inputs.items import item_batches

    pipe, saved, before = list(files) == ["-"], time.monotonic(), sketch.items
    try:
        with _counting(quiet=quiet) as advance:
            for path in files:
                for batch in item_batches(path, **how):
                    sketch.update(batch)
                    advance(len(batch))
                    if pipe and state is not None and time.monotonic() - saved > _SAVE_EVERY:
                        save(sketch, state)
                        saved = time.monotonic()
    except BaseException as error:
        if state is None:
            raise
        if not pipe or sketch.items == before:
            _report_unchanged(state)
            raise
        save(sketch, state)
        typer.echo(f"The state {str(state)!r} holds what was read of the input; nothing is released.", err=True)
        if isinstance(error, KeyboardInterrupt):
            raise typer.Exit(130) from None
        raise
    _keep(sketch, files, state)
    return sketch


def read_parallel(
    parallel: int,
    kept: "MisraGries | MergedSketch | None",
    counters: int,
    files: Sequence[str],
    how: dict[str, str | None],
    state: Path | None,
    *,
    quiet: bool,
) -> "MisraGries | MergedSketch":
    """Count files in several sketches at a time, one thread each, and return all of them and a `kept` one together.

    The first file goes to the first sketch, the second to the second, and so on, in turns. That depends on the order of
    the names alone. Sizes of files, or which sketch is free first, must not decide: one item more could change them,
    and with them the sketches of all other files, which the guarantee does not cover.
    """
    from dpsieve.engines.inputs.items import item_batches
    from dpsieve.sketches import MergedSketch, MisraGries

    parts = [MisraGries(counters) for _ in range(min(parallel, len(files)))]
    stop = threading.Event()

    def count(number: int, advance: Callable[[int], None]) -> None:
        for path in files[number :: len(parts)]:
            for batch in item_batches(path, **how):
                if stop.is_set():
                    return
                parts[number].update(batch)
                advance(len(batch))

    try:
        with ThreadPoolExecutor(min(len(parts), cpu_count() or 1)) as pool, _counting(quiet=quiet) as advance:
            running = [pool.submit(count, number, advance) for number in range(len(parts))]
            try:
                for one in running:
                    one.result()
            finally:
                stop.set()  # the others, where one has failed
    except BaseException:
        if state is not None:
            _report_unchanged(state)
        raise
    # Whether this is a merged sketch is public: it depends on names and the option, not on what files or state hold.
    whole = parts[0] if kept is None and len(parts) == 1 else MergedSketch.of(*([] if kept is None else [kept]), *parts)
    _keep(whole, files, state)
    if state is not None and isinstance(whole, MergedSketch) and not isinstance(kept, MergedSketch):
        typer.echo("It is a merged sketch now, to which only --parallel 2 or more adds files.", err=True)
    return whole


def _report_unchanged(state: Path) -> None:
    typer.echo(f"The state {str(state)!r} is unchanged: it holds nothing of this input.", err=True)


def _keep(sketch: "MisraGries | MergedSketch", files: Sequence[str], state: Path | None) -> None:
    if state is not None:
        save(sketch, state)
        held = "all of standard input" if list(files) == ["-"] else ", ".join(map(repr, files))
        what = "that input" if list(files) == ["-"] else "that file" if len(files) == 1 else "those files"
        typer.echo(f"The state {str(state)!r} now holds {held}: run again without {what}.", err=True)


@contextmanager
def _counting(*, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show the number of items read per second, on standard error."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    console, total, start = Console(stderr=True), 0, time.monotonic()
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True) as bar:
        task: Any = bar.add_task("reading")

        def advance(more: int) -> None:
            nonlocal total
            total += more
            rate = total / max(time.monotonic() - start, 1e-3)
            bar.update(task, description=f"reading {rate / 1e6:.1f} million items per second")  # the total is a secret

        yield advance
