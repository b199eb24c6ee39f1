"""DuckDB inside this process: the default engine."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from dpsieve import validate
from dpsieve.engines.base import Bounds, Counted, Engine, Progress
from dpsieve.engines.columns import Column, check_present
from dpsieve.engines.data import Foreign, Frame, opened
from dpsieve.engines.files import Files
from dpsieve.engines.folder import private_folder
from dpsieve.engines.known import VIEW, prepared
from dpsieve.engines.one_key import run_compiled, suits
from dpsieve.engines.running import run
from dpsieve.engines.scan import (
    Scan,
    described,
    foreign_scan,
    is_text,
    names_of,
    run_foreign,
    run_own,
    scan_of,
    shown_as,
)
from dpsieve.engines.sql import count_text
from dpsieve.engines.stream import CsvStream
from dpsieve.engines.trouble import explained
from dpsieve.errors import InvalidType, InvalidValue

_T = TypeVar("_T")
_LARGE, _FEW_CORES = 5_000_000, 4
_SIZE = re.compile(r"\d+(\.\d+)? ?[KMGT]i?B", re.IGNORECASE)
# Nothing is fetched from a network, no name in a query means a Python variable, and no settings are kept.
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "preserve_insertion_order": "false",
    "python_enable_replacements": "false",
}


class DuckDB(Engine):
    """Counts with DuckDB, on a new connection for each call.

    What does not fit into memory goes to a private folder that is removed at the end, also after an error, an
    interrupt, or (by the next call) a killed process. Data on a connection of yours, a relation or (connection, table
    name), is counted there, with its settings.

    Args:
        memory_limit: what DuckDB may use, such as '500MB', or a number of bytes; 80 % of the memory without it.
        threads: how many; all cores without it.
        temp_folder: where the private folder is made; the system's place for temporary files without it.
        compiled_from: from how many rows on, and with at most four threads, one text key for each unit is counted by
            compiled loops (see `engines.one_key`) instead of SQL; None for never.

    >>> import pyarrow as pa
    >>> table = pa.table({"user": [1, 1, 2], "query": ["tea", "tea", "tea"]})
    >>> counted = DuckDB().count(table, key=("query",), unit="user", max_keys=1, max_rows=1, salt=7)
    >>> counted.keys.to_pylist(), counted.frequencies.tolist()
    ([{'query': 'tea'}], [2])
    """

    def __init__(
        self,
        memory_limit: str | int | None = None,
        threads: int | None = None,
        temp_folder: str | os.PathLike[str] | None = None,
        compiled_from: int | None = _LARGE,
    ) -> None:
        self.memory_limit = None if memory_limit is None else _size(memory_limit)
        hint = "Pass how many threads to use, or leave it out."
        self.threads = None if threads is None else validate.whole("threads", threads, low=1, high=4096, hint=hint)
        self.temp_folder = None if temp_folder is None else _folder(temp_folder)
        hint = "Pass a number of rows, or None for SQL alone."
        self.compiled_from = (
            None if compiled_from is None else validate.whole("compiled_from", compiled_from, hint=hint)
        )

    def __repr__(self) -> str:
        given = {"memory_limit": self.memory_limit, "threads": self.threads, "temp_folder": self.temp_folder}
        shown = [f"{name}={str(v)!r}" for name, v in given.items() if v is not None]
        if self.compiled_from != _LARGE:
            shown.append(f"compiled_from={self.compiled_from}")
        return f"DuckDB({', '.join(shown)})"

    def columns(self, data: Any) -> list[tuple[str, str]]:
        """Return name and type of each column, in DuckDB's words and without the values of an ENUM.

        Text files are read as text, so their columns are all VARCHAR (see `engines.text`).
        """
        return [(column.name, _public_type(column)) for column in self._described(opened(data))]

    def check(self, data: Any, bounds: Bounds) -> None:
        """Refuse columns that the data does not have, and keys of a type that cannot be one, from the schema alone."""
        source = opened(data)
        found = self._described(source)
        check_present(bounds, [column.name for column in found], listed=not is_text(source))
        for column in found:
            if column.name in bounds.key:
                column.check_key()

    def _described(self, source: Files | Frame | Foreign | CsvStream) -> list[Column]:
        if isinstance(source, Foreign):
            return _guarded(lambda: described(source.relation), {})
        with self._session() as (connection, _):
            return _guarded(lambda: names_of(source, connection), shown_as(source))

    def _count(self, data: Any, bounds: Bounds, known: pa.Table | None, progress: Progress | None) -> Counted:
        source = opened(data)
        if isinstance(source, Foreign):
            scan = _guarded(lambda: foreign_scan(source.relation, bounds), {})
            with _listed(known, scan, bounds, source.connection) as listed:
                text = _text(scan, bounds, listed)
                query = partial(_guarded, lambda: run_foreign(source.relation, text), {})
                table = run(query, source.connection, progress)
        else:
            with self._session(progress is not None) as (connection, folder):
                scan = _guarded(lambda: scan_of(source, bounds, connection, folder), shown_as(source))
                with _listed(known, scan, bounds, connection) as listed:
                    table = None
                    if listed is None and self._compiles(scan, bounds, connection):
                        quarter = _bytes(_setting(connection, "memory_limit")) // 4
                        act = partial(run_compiled, connection, scan.text, scan.columns, bounds, quarter)
                        table = run(partial(_guarded, act, scan.shown), connection, progress)
                    if table is None:
                        act = partial(run_own, connection, _text(scan, bounds, listed))
                        table = run(partial(_guarded, act, scan.shown), connection, progress)
        counted = _counted(table, bounds, listed)
        if progress is not None:
            progress(1.0)
        return counted

    def _compiles(self, scan: Scan, bounds: Bounds, connection: duckdb.DuckDBPyConnection) -> bool:
        """Tell whether compiled loops are the faster way: they take time to load, and run on one core."""
        if scan.rows is None or self.compiled_from is None or scan.rows < self.compiled_from:
            return False
        return suits(scan.columns, bounds) and int(_setting(connection, "threads")) <= _FEW_CORES

    @contextlib.contextmanager
    def _session(self, progress: bool = False) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
        with private_folder(self.temp_folder) as folder:
            settings = _CLOSED | {"temp_directory": str(folder)}
            if self.memory_limit is not None:
                settings["memory_limit"] = self.memory_limit
            if self.threads is not None:
                settings["threads"] = self.threads
            connection = _connected(settings)
            try:
                if progress:
                    # In this order, so that no bar is printed. A notebook without ipywidgets refuses both settings.
                    with contextlib.suppress(duckdb.Error):
                        connection.execute("SET enable_progress_bar_print = false")
                        connection.execute("SET enable_progress_bar = true")
                yield connection, folder
            finally:
                connection.close()


@contextlib.contextmanager
def _listed(known: pa.Table | None, scan: Scan, bounds: Bounds, connection: Any) -> Iterator[pa.Table | None]:
    """Make the public keys known to the connection for a while; yield them as the data would write them."""
    for name in bounds.key:
        scan.columns[name].check_key()
    if known is None:
        yield None
        return
    if connection is None:
        raise InvalidType("data is a relation that hides its connection. Pass (connection, name of a table or view).")
    table = prepared(known, [scan.columns[name] for name in bounds.key])
    connection.register(VIEW, table)
    try:
        yield table
    finally:
        connection.unregister(VIEW)


def _text(scan: Scan, bounds: Bounds, listed: pa.Table | None) -> str:
    if listed is None:
        return count_text(scan.text, scan.columns, bounds)
    # Also under the default collation of a user's connection, keys are told apart by their bytes.
    texts = [field.name for field in listed.schema if pa.types.is_string(field.type)]
    names = [f'{name} COLLATE "C" AS {name}' if name in texts else name for name in listed.column_names]
    return count_text(scan.text, scan.columns, bounds, f"(SELECT {', '.join(names)} FROM {VIEW})")


def _counted(table: pa.Table, bounds: Bounds, listed: pa.Table | None) -> Counted:
    width = len(bounds.key) if listed is None else 1
    keys, counts = table.select(list(range(width))), table.column(width).to_numpy().astype(np.int64, copy=False)
    if keys.column(0).null_count:
        name = bounds.unit
        hint = "Fill them in, or drop their rows with allow_null_units=True."
        raise InvalidValue(f"privacy_unit={name!r} holds nulls, and nobody knows how many units they stand for. {hint}")
    if listed is not None:
        every = np.zeros(len(listed), np.int64)
        every[keys.column(0).to_numpy()] = counts
        keys, counts = listed.drop_columns(["i"]), every
    plain = [_in_utc(column) for column in keys.columns]
    return Counted(pa.table(plain, names=list(bounds.key)), counts)


def _in_utc(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times with a zone in UTC; DuckDB gives them the zone of this machine."""
    kind = column.type
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    return column.cast(pa.timestamp(kind.unit, "UTC")) if zoned else column


def _guarded(act: Callable[[], _T], shown: Mapping[Path, str]) -> _T:
    """Run what DuckDB does; its errors never get out, as they quote data."""
    try:
        return act()
    except Exception as error:
        caught = error
    # So DuckDB answers an interrupt from the keyboard, where a relation hides its connection and we cannot.
    interrupted = isinstance(caught, RuntimeError) and str(caught) == "Query interrupted"
    failure = KeyboardInterrupt() if interrupted else explained(caught, shown)
    del caught  # raised out here, an exception keeps neither the first one nor a frame that does
    raise failure


def _public_type(column: Column) -> str:
    return column.type if column.kind == "DECIMAL" else column.kind


def _size(limit: str | int) -> str:
    hint = "Pass a size such as memory_limit='500MB', or a number of bytes."
    if isinstance(limit, str):
        if not _SIZE.fullmatch(limit):
            raise InvalidValue(f"memory_limit is not a size. {hint}")
        return limit
    return f"{validate.whole('memory_limit', limit, low=1 << 20, hint=hint) >> 10}KiB"


def _connected(settings: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    try:
        return duckdb.connect(":memory:", config=settings)
    except (duckdb.Error, OverflowError):
        pass
    hint = "Pass a smaller memory_limit, such as '500MB', or leave it and threads out."
    raise InvalidValue(f"DuckDB cannot start with these settings. {hint}")


def _setting(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    return str(connection.execute(f"SELECT current_setting('{name}')").fetchall()[0][0])


def _bytes(size: str) -> int:
    """Return the number of a size as DuckDB writes it, such as '18.6 GiB'."""
    number, unit = size.split()
    return int(float(number) * 1024 ** ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"].index(unit))


def _folder(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise InvalidType(f"temp_folder must be a path, not {type(path).__name__}. Pass a folder that exists.")
    folder = Path(path).absolute()
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidValue(f"temp_folder={str(path)!r} is not a folder that can be written to. Pass one that is.")
    return folder
