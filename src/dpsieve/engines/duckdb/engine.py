"""The engine that runs DuckDB inside this process."""

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from dpsieve import validate
from dpsieve.display import timed
from dpsieve.engines.answers import cast_known_keys, run_query
from dpsieve.engines.duckdb.read import (
    KNOWN,
    VIEW,
    Cursors,
    Job,
    Limits,
    Scan,
    count_by_sql,
    count_under,
    derive,
    describe_columns,
    file_names,
    guard,
    keep_places,
    open_rows,
    pairs_by_sql,
    read_numbers,
)
from dpsieve.engines.engine import Aggregation, Columns, Engine, NumberColumns
from dpsieve.engines.inputs.files import is_text
from dpsieve.engines.inputs.frames import Foreign, Source, open_source, unchanged
from dpsieve.engines.sql.columns import Column, call, literal
from dpsieve.engines.true_data import Counted, CountedByBound, FromPairs, NumberRows, Pairs
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.locks import private_folder
from dpsieve.types import Ints
from dpsieve.values.columns import tried

_T = TypeVar("_T")
_LARGE = 2_000_000
_BYTES_OF_A_PAIR, _BYTES_OF_A_LINE = 64, 8
_SIZE = re.compile(r"\d+(\.\d+)? ?[KMGT]i?B", re.IGNORECASE)
# Statistics of Parquet files, such as that no unit is null or all are below 256, are not trusted: where they are false,
# DuckDB would join units. What occurs twice in TRY would be computed before it, and fail the query for one row.
_UNSAFE = "statistics_propagation,join_filter_pushdown,common_subexpressions"
# No network access, no Python variables in queries, no persistent settings.
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "disabled_optimizers": _UNSAFE,
    "preserve_insertion_order": "false",
    "python_enable_replacements": "false",
}
_SETTING, _CALLS, _TO_RESTORE = threading.RLock(), set[object](), list[Callable[[], None]]()
_NOT_PRINTED = {"enable_progress_bar_print": "false"}
_BAR = _NOT_PRINTED | {"enable_progress_bar": "true"}  # in this order


class DuckDB(Engine):
    """Aggregates with DuckDB, on a new connection per call.

    What does not fit into memory is spilled to a private folder that is removed at the end, also after an error, an
    interrupt, or (by the next call) a killed process. Data on your own connection, a relation or (connection, table
    name), is read there, with its settings.

    Args:
        memory_limit: the memory limit of DuckDB, such as '500MB', or a number of bytes; default 80 % of the memory.
        threads: the number of threads; default all cores.
        temp_folder: the parent of the private folder; default the system's temporary folder.
        compiled_from: the number of rows from which compiled loops replace SQL if they support the columns (see
            `duckdb.compiled.pairs`); None for never.

    >>> import pyarrow as pa
    >>> from dpsieve.privacy.guarantee import Contribution
    >>> table = pa.table({"user": [1, 1, 2], "query": ["tea", "tea", "tea"]})
    >>> counted = DuckDB().aggregate(table, Aggregation(Columns(("query",), "user"), Contribution(keys=1), salt=7))
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
        self.memory_limit = None if memory_limit is None else _check_size(memory_limit)
        hint = "Pass how many threads to use, or leave it out."
        self.threads = None if threads is None else validate.whole("threads", threads, low=1, high=4096, hint=hint)
        self.temp_folder = None if temp_folder is None else _check_folder(temp_folder)
        hint = "Pass a number of rows, or None for SQL alone."
        from_rows = None if compiled_from is None else validate.whole("compiled_from", compiled_from, hint=hint)
        self.compiled_from = from_rows

    def __repr__(self) -> str:
        given = {"memory_limit": self.memory_limit, "threads": self.threads, "temp_folder": self.temp_folder}
        shown = [f"{name}={str(v)!r}" for name, v in given.items() if v is not None]
        if self.compiled_from != _LARGE:
            shown.append(f"compiled_from={self.compiled_from}")
        return f"DuckDB({', '.join(shown)})"

    def columns(self, data: Any) -> list[tuple[str, str]]:
        """Return name and type of each column, as DuckDB names them and without the values of an ENUM.

        Text files are read as text, so their columns are all VARCHAR (see `inputs.files`).
        """
        columns = self._describe(open_source(data))
        return [(column.name, column.type if column.kind == "DECIMAL" else column.kind) for column in columns]

    def check(self, data: Any, columns: Columns) -> None:
        source = open_source(data)
        present = self._describe(source)
        columns.check_present([column.name for column in present], listed=not is_text(source))
        for column in present if columns.rows is None else derive(columns, present, "")[1].values():
            if column.name in columns.key:
                _check_type(column, columns, source)
            for total in columns.totals:
                if total.column == column.name:
                    column.check_number(texts=is_text(source), argument=total.argument)

    def _describe(self, source: Source) -> list[Column]:
        with self._session(source) as (connection, folder):
            return guard(lambda: describe_columns(source, connection, folder), file_names(source))

    def aggregate(self, data: Any, task: Aggregation) -> Counted:
        return self.answer(data, task, count_by_sql, lambda loops: loops.count_by_loops)

    def read_pairs(self, data: Any, task: Aggregation) -> Pairs:
        return self.answer(data, task, pairs_by_sql, lambda loops: loops.pairs_by_loops)

    def read_by_bound(self, data: Any, task: Aggregation) -> CountedByBound:
        """Keep all (unit, key) pairs in memory or, where these may not fit, counts by place in a table."""
        jobs: list[Job] = []

        def by_loops(loops: Any, job: Job, limits: Limits) -> Pairs | None:
            jobs.append(job)
            return None if _is_large(job) else loops.pairs_by_loops(job, limits)

        def by_sql(job: Job) -> Pairs | Ints:
            jobs.append(job)
            return keep_places(job) if _is_large(job) else pairs_by_sql(job)

        def ask(what: str, question: Callable[[Job], _T]) -> _T:
            with timed(f"DuckDB: {what}"):
                return run_query(partial(guard, partial(question, jobs[-1]), {}), jobs[-1].connection, None)

        def add_up(keys: int) -> Counted:
            return ask("add up", lambda job: count_under(job.connection, task, keys))

        with contextlib.ExitStack() as resources:
            answer = self.answer(data, task, by_sql, lambda loops: partial(by_loops, loops), resources)
            most = _most_pairs(jobs[-1])
            if isinstance(answer, Pairs):
                if not isinstance(jobs[-1].source, Foreign):  # DuckDB takes a while to close what is its own
                    with contextlib.suppress(RuntimeError):  # no more threads
                        closer = threading.Thread(target=jobs[-1].connection.close, name="dpsieve-close")
                        closer.start()
                        resources.callback(closer.join)
                    return FromPairs(answer, most, resources.pop_all())
                return FromPairs(answer, most)
            read_pairs = partial(ask, "read pairs", pairs_by_sql)
            return CountedByBound(answer, add_up, resources.pop_all(), read_pairs, most)

    def read_numbers(self, data: Any, task: Aggregation) -> NumberRows:
        return self.answer(data, task, read_numbers)

    def answer(
        self,
        data: Any,
        task: Aggregation,
        by_sql: Callable[[Job], _T],
        by_loops: Callable[[Any], Callable[[Job, Limits], Any]] | None = None,
        resources: contextlib.ExitStack | None = None,
    ) -> _T:
        """Return the answer of compiled loops if they are faster and do not give up, otherwise of SQL.

        The connection stays open until `resources` is closed.
        """
        source, answer = open_source(data), None
        with contextlib.ExitStack() as ending, unchanged(source):
            connection, folder = (resources or ending).enter_context(self._session(source, task.progress is not None))
            scan = guard(lambda: open_rows(source, task.columns, connection, folder), file_names(source))
            for name in task.columns.key:
                _check_type(scan.columns[name], task.columns, source)
            for total in task.columns.totals:
                scan.columns[total.column].check_number(texts=is_text(source), argument=total.argument)
            with _listed(task, scan, connection) as listed:
                job = Job(task, source, connection, scan, listed)
                loops = None if by_loops is None else self._load_loops(scan)
                if by_loops is not None and loops is not None:
                    answer = run_loops(by_loops(loops), job)
                if answer is None:
                    answer = run_query(partial(guard, partial(by_sql, job), scan.shown), connection, task.progress)
        task.report(1.0)
        return answer

    def _load_loops(self, scan: Scan) -> Any:
        """Return the compiled loops if there are any and the table is large enough for them."""
        if scan.rows is None or self.compiled_from is None or scan.rows < self.compiled_from:
            return None
        from dpsieve.engines.duckdb.compiled import load_loops

        return load_loops()

    @contextlib.contextmanager
    def _session(self, source: Source, progress: bool = False) -> Iterator[tuple[Any, Path]]:
        """Yield a connection and a private folder; for data on a user's connection, that one, or None if hidden."""
        if isinstance(source, Foreign):
            with safe_settings(source.relation):
                yield source.connection, Path()
            return
        with private_folder(self.temp_folder) as folder:
            settings = _SETTINGS | {"temp_directory": str(folder)}
            given = {"memory_limit": self.memory_limit, "threads": self.threads}
            connection = _connect(settings | {name: value for name, value in given.items() if value is not None})
            try:
                # DuckDB prints a bar where Python is interactive. A notebook without ipywidgets refuses both settings.
                with contextlib.suppress(DpsieveError):
                    for name, value in (_BAR if progress else _NOT_PRINTED).items():
                        guard(partial(connection.execute, f"SET {name} = {value}"), {})
                yield connection, folder
            finally:
                connection.close()


def run_loops(by_loops: Callable[[Job, Limits], _T], job: Job) -> _T | None:
    """Return the answer of compiled loops, which share the memory limit with DuckDB; None if they fail or give up.

    Then SQL answers, or raises an explained error.
    """
    from dpsieve.engines.duckdb.compiled import answer_or_none

    memory = _bytes(_setting(job.connection, "memory_limit")) // 2
    cursors = Cursors(job.connection)
    limits = Limits(int(_setting(job.connection, "threads")), memory, cursors)
    return run_query(partial(answer_or_none, partial(by_loops, job, limits)), cursors, job.task.progress)


def _is_large(job: Job) -> bool:
    """Return whether all (unit, key) pairs may not fit into memory; False if the size is unknown."""
    rows = job.scan.rows
    if rows is None:  # of text in files, also where it came as a stream
        rows = sum(path.stat().st_size for path in job.scan.shown) // _BYTES_OF_A_LINE
    return rows > _most_pairs(job) if rows else False


def _most_pairs(job: Job) -> int:
    """Return how many (unit, key) pairs fit into memory for certain: a public number, from settings."""
    if job.connection is None:  # a relation hides its connection, and its pairs are always held in memory
        return 10**12
    return _bytes(_setting(job.connection, "memory_limit")) // 4 // _BYTES_OF_A_PAIR


@contextlib.contextmanager
def safe_settings(relation: Any) -> Iterator[None]:
    """Disable the progress bar and unsafe optimizers on a user's connection, until no call uses such a connection.

    Optimizers are settings of the database, which other connections share.
    """
    names = ("enable_progress_bar_print", "disabled_optimizers")
    values = ", ".join(f"CAST({call('current_setting', literal(name))} AS VARCHAR)" for name in names)

    def set_all(settings: dict[str, str]) -> None:
        for name in settings:
            tried(partial(relation.query, VIEW, f"SET {name} = {literal(settings[name])}"))

    this = object()
    try:
        with _SETTING:
            _CALLS.add(this)
            answer, _ = tried(lambda: relation.query(VIEW, f"SELECT {values}").fetchall())
            if answer:
                before = dict(zip(names, answer[0], strict=True))
                _TO_RESTORE.append(partial(set_all, before))
                set_all({names[0]: "false", names[1]: ",".join(filter(None, [before[names[1]], _UNSAFE]))})
        yield
    finally:
        with _SETTING:
            _CALLS.discard(this)
            while not _CALLS and _TO_RESTORE:  # at last what the first call found
                _TO_RESTORE.pop()()


def _check_type(column: Column, columns: Columns, source: Source) -> None:
    """Refuse a column of a type that is no key, or no number."""
    if isinstance(columns, NumberColumns):
        column.check_number(texts=is_text(source))
    else:
        column.check_key()


@contextlib.contextmanager
def _listed(task: Aggregation, scan: Scan, connection: Any) -> Iterator[pa.Table | None]:
    """Register the public keys on the connection temporarily; yield them as the data would write them."""
    if task.known is None:
        yield None
        return
    if connection is None:
        hint = "Pass (connection, name of a table or view)."
        raise InvalidType(f"data is a relation that hides its connection. {hint}", argument="data")
    table = cast_known_keys(task.known, [scan.columns[name] for name in task.columns.key])
    connection.register(KNOWN, table)
    try:
        yield table
    finally:
        connection.unregister(KNOWN)


def _check_size(limit: str | int) -> str:
    hint = "Pass a size such as memory_limit='500MB', or a number of bytes."
    if isinstance(limit, str):
        if not _SIZE.fullmatch(limit):
            raise InvalidValue(f"memory_limit is not a size. {hint}", argument="memory_limit")
        return limit
    return f"{validate.whole('memory_limit', limit, low=1 << 20, hint=hint) >> 10}KiB"


def _connect(settings: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    try:
        return duckdb.connect(":memory:", config=settings)
    except (duckdb.Error, OverflowError):
        pass
    hint = "Pass a smaller memory_limit, such as '500MB', or leave it and threads out."
    raise InvalidValue(f"DuckDB cannot start with these settings. {hint}")


def _setting(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    query = f"SELECT {call('current_setting', literal(name))}"
    answer = guard(lambda: connection.execute(query).fetchall(), {})
    return str(answer[0][0])


def _bytes(size: str) -> int:
    """Return the number of a size as DuckDB writes it, such as '18.6 GiB'."""
    number, unit = size.split()
    return int(float(number) * 1024 ** ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"].index(unit))


def _check_folder(path: str | os.PathLike[str]) -> Path:
    hint = "Pass a folder that can be written to."
    if not isinstance(path, str | os.PathLike):
        raise InvalidType(f"temp_folder must be a path, not {type(path).__name__}. {hint}", argument="temp_folder")
    folder = Path(path).absolute()
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidValue(f"temp_folder={str(path)!r} cannot be written to. {hint}", argument="temp_folder")
    return folder
