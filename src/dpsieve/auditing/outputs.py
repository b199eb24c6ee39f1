"""Whatever leaves a call, as named values: what audits look for events in, and what replayed calls are compared by.

`features` returns numbers and texts by name for one output. `statements` returns the same output as places and values,
in order, for exact comparison, without those about some keys.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from dpsieve.display import shorten
from dpsieve.publication.publication import Publication

Feature: TypeAlias = float | str
_MOST = 4096  # features of one output
_LONG = 80


class Failure:
    """An exception that a call raised: an output like any other, since whoever waits for the call sees it."""

    def __init__(self, error: Exception) -> None:
        self.kind, self.text = type(error).__name__, str(error)


def call(run: Callable[[], Any]) -> Any:
    """Return what a call returns, or its exception as a `Failure`."""
    try:
        return run()
    except Exception as error:
        return Failure(error)


def features(output: Any) -> dict[str, Feature]:
    """Return the features of an output by name.

    >>> features([3, 4])
    {'type': 'list', 'length': 2.0, 'value 0': 3.0, 'value 1': 4.0}
    """
    found: dict[str, Feature] = {}
    for place, value in _walk("", output):
        if len(found) >= _MOST:
            break
        found[place] = value if isinstance(value, float) or len(value) <= _LONG else _digest(value.encode())
    return found


def statements(output: Any, affected: Collection[Any]) -> list[tuple[str, Feature]]:
    """Return what must be equal in two replayed calls, as places and values.

    With `affected`, rows of these keys are left out, and so are numbers that are about all rows: their number, totals
    and what was drawn beside the table.
    """
    about_all = ("drawn", "rest", "notes.coverage") if affected else ()
    return [(place, value) for place, value in _walk("", output, affected) if not place.startswith(about_all or "\0")]


def _walk(place: str, value: Any, affected: Collection[Any] = ()) -> Iterator[tuple[str, Feature]]:
    """Yield the features of a value, its parts with their place in front."""
    at = f"{place} " if place else ""
    if isinstance(value, Failure):
        yield f"{at}error", f"{value.kind}: {value.text}"
    elif isinstance(value, bool | np.bool_ | int | float | np.integer | np.floating):
        yield f"{at}value", _number(value)
    elif isinstance(value, bytes):
        yield f"{at}bytes", float(len(value))
        yield f"{at}content", _digest(value)
    elif isinstance(value, Path):
        yield from _walk_files(at, value)
    elif isinstance(value, Publication):
        yield f"{at}type", type(value).__name__
        yield from _walk_publication(at, value, affected)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        yield f"{at}type", str(value.dtype)
        yield f"{at}length", float(value.size)
        for i, number in enumerate(value.ravel()[:_MOST].tolist()):
            yield f"{at}value {i}", _number(number)
    elif isinstance(value, list | tuple):
        yield f"{at}type", type(value).__name__
        yield f"{at}length", float(len(value))
        for i, part in enumerate(value[:_MOST]):
            yield from ((f"{at}{name} {i}", what) for name, what in _walk("", part, affected))
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _walk(f"{at}{shorten(name)}", part, affected)
    elif hasattr(value, "__arrow_c_stream__"):
        yield f"{at}type", type(value).__name__
        yield from _walk_table(at, pa.table(value), None, affected)
    elif hasattr(value, "to_dict") and hasattr(value, "columns"):  # an older data frame
        yield from _walk_table(at, pa.Table.from_pandas(value), None, affected)
    else:
        yield f"{at}type", type(value).__name__
        yield f"{at}text", repr(value)


def _walk_publication(at: str, made: Publication, affected: Collection[Any]) -> Iterator[tuple[str, Feature]]:
    keys = getattr(made, "keys", None)
    yield from _walk_table(at, made.table, keys.column_names if isinstance(keys, pa.Table) else None, affected)
    yield f"{at}mechanism", repr(made.mechanism)
    for name in ("contribution", "reason", "coverage", "rarer"):
        yield f"{at}notes.{name}", str(getattr(made.notes, name, ""))
    for name, drawn in made.drawn.items():
        yield from _walk(f"{at}drawn {name}", drawn)
    for name in () if affected else made.more_tables:
        yield f"{at}{name}", _digest(repr(getattr(made, name).to_pydict()).encode())
    rest = getattr(made, "rest", None)
    if rest is not None:
        yield from _walk(f"{at}rest", rest)


def _walk_table(
    at: str, table: pa.Table, names: list[str] | None, affected: Collection[Any]
) -> Iterator[tuple[str, Feature]]:
    """Yield the columns of a table, its number of rows, the order of its keys, and each value by its key."""
    yield f"{at}columns", str([(field.name, str(field.type)) for field in table.schema])
    keys, others = _split(table, names)
    labels = [key[0] if len(key) == 1 else key for key in zip(*(table[name].to_pylist() for name in keys), strict=True)]
    shown = [label not in affected for label in labels]
    if not affected:
        yield f"{at}rows", float(len(table))
    yield f"{at}order", repr([label for label, is_shown in zip(labels, shown, strict=True) if is_shown])
    columns = {name: table[name].to_pylist() for name in others}
    for i, label in enumerate(labels[:_MOST]):
        if not shown[i]:
            continue
        yield f"{at}key {label!r}", "present"
        for name, values in columns.items():
            yield f"{at}{name} of {label!r}", _plain(values[i])


def _split(table: pa.Table, names: list[str] | None) -> tuple[list[str], list[str]]:
    """Return the columns that are keys, and the others: numbers beside a key, or beside the first column."""
    if names is None:
        numbers = [pa.types.is_floating(field.type) or pa.types.is_integer(field.type) for field in table.schema]
        names = [name for name, number in zip(table.column_names, numbers, strict=True) if not number]
        names = names or table.column_names[:1]
    return names, [name for name in table.column_names if name not in names]


def _walk_files(at: str, folder: Path) -> Iterator[tuple[str, Feature]]:
    """Yield names, sizes and contents of a file, or of all files of a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else [folder]
    inside = {str(path.relative_to(folder)) if folder.is_dir() else "file": path for path in files}
    yield f"{at}type", str(list(inside))
    for name, path in inside.items():
        yield f"{at}{name} bytes", float(path.stat().st_size)
        yield f"{at}{name} content", _digest(path.read_bytes())


def _plain(value: Any) -> Feature:
    if isinstance(value, bool | int | float):
        return _number(value)
    return repr(value)


def _number(value: Any) -> Feature:
    number = float(value)
    return "nan" if math.isnan(number) else number


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
