"""Run one DuckDB query: in a thread that reports progress and can be stopped, with its errors translated.

DuckDB's own messages quote rows, so nothing of them is passed on but line numbers. The translation is raised outside of
the `except` block: an exception that is raised inside keeps the first one, with its message, as context.
"""

import errno
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from dpsieve.engines.engine import Progress
from dpsieve.engines.inputs.files import bad_json_line
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue, UnreadableData
from dpsieve.values.columns import is_interrupt

_T = TypeVar("_T")
_PAUSE = 0.1
# Anchored at the start, before any quoted row: no data can pose as a line number.
_CSV = re.compile(r"\AInvalid Input Error: CSV Error on Line: (\d{1,18})\n")
_JSON = re.compile(r'\AInvalid Input Error: (?:Malformed JSON|JSON transform error) in file "')
_JSON_LINE = re.compile(r'\A", (?:at byte \d{1,18} )?in line (\d{1,18}):')


def run(query: Callable[[], _T], connection: Any, progress: Progress | None) -> _T:
    """Return the result of a query on a connection, or what can be asked and stopped as one; without, just run it.

    The query runs in a thread of its own, so that this one gets an interrupt from the keyboard at once and can call
    `progress`. Whatever is raised here, the query has ended when it leaves.
    """
    if connection is None:
        return query()
    results: list[_T] = []
    errors: list[BaseException] = []
    begun, stopped, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        try:
            if not stopped.is_set():
                results.append(query())
        except BaseException as error:  # raised below, in the thread that waits
            errors.append(error)
        finally:
            done.set()

    try:
        try:
            threading.Thread(target=work, name="dpsieve-count", daemon=True).start()
        except RuntimeError:  # no more threads
            work()
        while not done.wait(_PAUSE):
            if progress is not None:
                progress(max(0.0, connection.query_progress() / 100.0))
    except BaseException as raised:
        last = raised
        while not stopped.is_set() or (begun.is_set() and not done.is_set()):  # who begins later finds it stopped
            try:
                stopped.set()
                connection.interrupt()
                done.wait(_PAUSE / 2)
            except BaseException as another:  # also a second signal waits until the query has ended
                last = another
        raise last from None
    if errors:
        raise errors.pop()
    return results.pop()


def guarded(act: Callable[[], _T], shown: Mapping[Path, str]) -> _T:
    """Run what DuckDB does, and translate its errors; `shown` names the files that are read, as the user knows them."""
    try:
        return act()
    except Exception as error:
        caught = error
    # DuckDB reports Ctrl-C so where this thread runs the query itself, as to describe the data.
    failure = KeyboardInterrupt() if is_interrupt(caught) else _explained(caught, shown)
    del caught  # raised out here, an exception keeps neither the first one nor a frame that does
    raise failure


def _explained(error: BaseException, shown: Mapping[Path, str]) -> DpsieveError:
    """Return what went wrong and the fix."""
    if isinstance(error, DpsieveError):
        return error
    message = str(error)
    if isinstance(error, duckdb.OutOfMemoryException | MemoryError):
        hint = "Pass a larger memory_limit, fewer threads, or a temp_folder on a disk with more space."
        return InvalidValue(f"memory_limit is too small for this table. {hint}")
    full = isinstance(error, duckdb.IOException) and ("No space left" in message or "temp_directory" in message)
    if full or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return InvalidValue("temp_folder has no space left. Pass a temp_folder on a disk with more space.")
    if line := _CSV.match(message):
        return _row(_named(message, shown), int(line[1]), "the header's number of columns, closed quotes, and UTF-8")
    if start := _JSON.match(message):
        return _json(message[start.end() :], shown)
    kind = type(error).__name__
    if isinstance(error, duckdb.NotImplementedException | duckdb.InvalidTypeException | TypeError):
        return InvalidType(f"data has a column of a type that cannot be read ({kind}). Turn it into text or numbers.")
    if shown:
        hint = "Check that the files are whole, have the same columns, and are what they are read as."
        return UnreadableData(f"{_named(message, shown)} cannot be read ({kind}). {hint}")
    return UnreadableData(f"data cannot be read ({kind}). Check that a query that shows its first rows works.")


def _row(name: str, line: int | None, needs: str) -> UnreadableData:
    where = name if line is None else f"line {line} of {name}"
    return UnreadableData(f"{where} cannot be read. A row needs {needs}. Mend or remove it.")


def _json(rest: str, shown: Mapping[Path, str]) -> UnreadableData:
    needs = "one JSON object on one line, with each field once, in UTF-8"
    for path, name in shown.items():
        if rest.startswith(str(path)) and (line := _JSON_LINE.match(rest[len(str(path)) :])):
            return _row(name, bad_json_line(path, int(line[1])), needs)
    return _row(_named(rest, shown), None, needs)


def _named(message: str, shown: Mapping[Path, str]) -> str:
    """Return the name of the file that the message speaks of: only known names are ever told, the last one counts."""
    if len(shown) == 1:
        return next(iter(shown.values()))
    found = max(shown, key=lambda path: (message.rfind(str(path)), len(str(path))))
    return shown[found] if str(found) in message else "a file of data"
