"""One query: it tells its progress, and stops when asked."""

import contextlib
import threading
from collections.abc import Callable

import duckdb
import pyarrow as pa

from dpsieve.engines.base import Progress

_PAUSE = 0.1


def run(
    query: Callable[[], pa.Table], connection: duckdb.DuckDBPyConnection | None, progress: Progress | None
) -> pa.Table:
    """Return the result of a query on a connection; without one, just run it.

    The query runs in a thread of its own, so that this one hears an interrupt from the keyboard at once and can call
    `progress`. Whatever is raised here, the query has ended when it leaves.
    """
    if connection is None:
        return query()
    results: list[pa.Table] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            results.append(query())
        except BaseException as error:  # raised below, in the thread that waits
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=work, name="dpsieve-count", daemon=True)
    thread.start()
    try:
        _wait(connection, done, progress)
    finally:
        while not done.is_set():
            with contextlib.suppress(KeyboardInterrupt):
                connection.interrupt()
                done.wait(_PAUSE / 2)
        thread.join()
    if errors:
        raise errors.pop()
    return results.pop()


def _wait(connection: duckdb.DuckDBPyConnection, done: threading.Event, progress: Progress | None) -> None:
    while not done.wait(_PAUSE):
        if progress is not None:
            progress(max(0.0, connection.query_progress() / 100.0))
