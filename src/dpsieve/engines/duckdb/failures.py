"""What DuckDB's errors mean, and the fix.

DuckDB's own messages quote rows, so nothing of them is passed on except line numbers.
"""

import errno
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import duckdb

from dpsieve.engines.answers import translate_errors
from dpsieve.engines.inputs.files import bad_json_line
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue, UnreadableData
from dpsieve.values.columns import is_interrupt

_T = TypeVar("_T")
# Anchored at the start, before any quoted row: no data can pose as a line number.
_CSV = re.compile(r"\AInvalid Input Error: CSV Error on Line: (\d{1,18})\n")
_JSON = re.compile(r'\AInvalid Input Error: (?:Malformed JSON|JSON transform error) in file "')
_JSON_LINE = re.compile(r'\A", (?:at byte \d{1,18} )?in line (\d{1,18}):')


def guard(act: Callable[[], _T], shown: Mapping[Path, str]) -> _T:
    """Return the result of `act`, and translate DuckDB's errors; `shown` has the user's names of the files."""
    return translate_errors(act, partial(_explain, shown))


def _explain(shown: Mapping[Path, str], error: Exception) -> DpsieveError | KeyboardInterrupt:
    """Return what went wrong and the fix."""
    if is_interrupt(error):  # DuckDB reports Ctrl-C so where this thread runs the query itself
        return KeyboardInterrupt()
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
        hint = "Check that the files are complete, have the same columns, and are what they are read as."
        return UnreadableData(f"{_named(message, shown)} cannot be read ({kind}). {hint}")
    return UnreadableData(f"data cannot be read ({kind}). Check that a query that shows its first rows works.")


def _row(name: str, line: int | None, needs: str) -> UnreadableData:
    where = name if line is None else f"line {line} of {name}"
    return UnreadableData(f"{where} cannot be read. Each row needs {needs}. Fix or remove it.")


def _json(rest: str, shown: Mapping[Path, str]) -> UnreadableData:
    needs = "one JSON object on one line, with each field once, in UTF-8"
    for path, name in shown.items():
        if rest.startswith(str(path)) and (line := _JSON_LINE.match(rest[len(str(path)) :])):
            return _row(name, bad_json_line(path, int(line[1])), needs)
    return _row(_named(rest, shown), None, needs)


def _named(message: str, shown: Mapping[Path, str]) -> str:
    """Return the name of the file that the message mentions last; only names that the user passed are returned."""
    if len(shown) == 1:
        return next(iter(shown.values()))
    found = max(shown, key=lambda path: (message.rfind(str(path)), len(str(path))))
    return shown[found] if str(found) in message else "a file of data"
