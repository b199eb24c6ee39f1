"""Run queries so that they report progress and can be stopped, and decode their answers into true data.

Shared by all engines. Error messages of engines quote rows, so nothing of them is passed on: `translate_errors` raises
the engine's own explanation outside of the `except` block, as an exception that is raised inside keeps the first one,
with its message, as context.
"""

import math
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve.engines.engine import Aggregation, Progress
from dpsieve.engines.sql.columns import Column
from dpsieve.engines.sql.totals import amount_names
from dpsieve.engines.true_data import Counted, Pairs
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue, UnreadableData
from dpsieve.privacy.guarantee import Weight
from dpsieve.types import Floats
from dpsieve.values.columns import as_arrow, as_numpy, in_utc, is_interrupt
from dpsieve.values.keys import declared

_T = TypeVar("_T")
_PAUSE = 0.1
_LISTED = "listed"


def translate_errors(act: Callable[[], _T], explain: Callable[[Exception], BaseException]) -> _T:
    """Return the result of `act`; raise `explain(error)` for an error that is not one of ours."""
    try:
        return act()
    except DpsieveError:
        raise
    except Exception as error:
        failure = explain(error)
    raise failure


def run_query(query: Callable[[], _T], connection: Any, progress: Progress | None) -> _T:
    """Return the result of a query on a connection, which reports progress and can be interrupted; None just runs it.

    The query runs in its own thread, so that this one receives an interrupt from the keyboard at once and can call
    `progress`. Whatever is raised here, the query has ended when this function is left.
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
        while not stopped.is_set() or (begun.is_set() and not done.is_set()):  # a later start finds it stopped
            try:
                stopped.set()
                connection.interrupt()
                done.wait(_PAUSE / 2)
            except BaseException as another:  # a second signal also waits until the query has ended
                last = another
        raise last from None
    if errors:
        raise errors.pop()
    return results.pop()


def check_units(task: Aggregation, answer: pa.Table) -> pa.Table:
    """Return the answer; refuse one with a null key, which stands for null units (see `sql.queries`)."""
    if answer.column(0).null_count:
        raise null_units(task)
    return answer


def null_units(task: Aggregation) -> InvalidValue:
    """Return the error for data with null units."""
    why = f"privacy_unit={task.columns.shown_unit} contains nulls, which cannot be attributed to a unit."
    return InvalidValue(f"{why} Fill them in, or drop their rows with allow_null_units=True.")


def name_keys(task: Aggregation, listed: pa.Table | None, answer: pa.Table) -> pa.Table:
    """Return the keys of an answer, or those of a public list, under the names of their columns."""
    keys = (answer if listed is None else listed).select([f"k{i}" for i in range(len(task.columns.key))])
    # DuckDB gives times the zone of this machine.
    return declared(pa.table(list(map(in_utc, keys.columns)), names=list(task.columns.key)))


def decode_counts(task: Aggregation, listed: pa.Table | None, answer: pa.Table) -> Counted:
    """Return the keys of an answer to `bounded_query` with their numbers."""
    numbers, measure = answer.column("n"), task.measure
    if numbers.null_count and isinstance(measure, Weight):
        raise measure.too_wide()
    counts = as_numpy(numbers).astype(np.int64, copy=False)
    columns = [answer.column(name) for name in amount_names(task.columns.totals)]
    sums = np.array([as_numpy(column) for column in columns], np.int64) if columns else None
    if listed is not None:
        present, counts = counts, np.zeros(len(listed), np.int64)
        places = as_numpy(answer.column(0))
        counts[places] = present
        if sums is not None:
            some, sums = sums, np.zeros((len(sums), len(listed)), np.int64)
            sums[:, places] = some
    return Counted(name_keys(task, listed, answer), counts, sums)


def decode_pairs(task: Aggregation, listed: pa.Table | None, answer: pa.Table) -> Pairs:
    """Return the pairs of an answer to `pairs_query`."""
    keys = name_keys(task, listed, answer)
    numbers = np.arange(len(answer)) if listed is None else as_numpy(answer.column("k0"))
    numbers = numbers.astype(np.int32)
    added = [answer.column(name).combine_chunks() for name in amount_names(task.columns.totals)]
    if not task.columns.unit:
        order = np.argsort(as_numpy(answer.column("place")))
        if listed is None:
            keys, numbers = keys.take(as_arrow(order)), np.arange(len(order), dtype=np.int32)
        else:
            numbers = numbers[order]
        key_numbers = np.repeat(numbers, as_numpy(answer.column("n"))[order])
        amounts = [_amounts(column.take(as_arrow(order)).flatten()) for column in added]
        return Pairs(keys, np.arange(len(key_numbers) + 1), key_numbers, np.array(amounts) if amounts else None)
    positions, firsts = (answer.column(name).combine_chunks() for name in ("p", "s"))
    sizes = as_numpy(positions.value_lengths())
    key_numbers = np.empty(int(sizes.sum()), np.int32)
    places = as_numpy(positions.flatten()) - 1
    key_numbers[places] = np.repeat(numbers, sizes)
    values = np.empty((len(added), len(key_numbers))) if added else None
    for i, column in enumerate(added):
        assert values is not None
        values[i, places] = _amounts(column.flatten())
    starts = np.sort(as_numpy(firsts.flatten())) - 1
    if len(starts) and starts[0]:
        raise UnreadableData("data was not read in the requested order. Pass it as a file or an Arrow table.")
    return Pairs(keys, np.append(starts, len(key_numbers)), key_numbers, values)


def _amounts(column: pa.Array) -> Floats:
    """Return what pairs add, NaN where they have no number; whole numbers on the grid fit a float."""
    nothing = as_arrow(np.full(len(column), math.nan))
    return as_numpy(pc.coalesce(column.cast(pa.float64()), nothing))


def cast_known_keys(known: pa.Table, columns: list[Column]) -> pa.Table:
    """Return public keys as columns k0, k1, ..., written as `Column.as_key` writes the data's, and `i`, their place.

    The list is public, so errors may describe it.
    """
    names = [f"k{n}" for n in range(len(columns))]
    cast = ", ".join(f"CAST({k} AS {_key_type(column)}) AS {k}" for k, column in zip(names, columns, strict=True))
    inner = [Column(column.name, k, column.type) for k, column in zip(names, columns, strict=True)]
    keys = ", ".join(f"{column.as_key} AS {column.sql}" for column in inner)
    rounded = " OR ".join(
        f"CAST(CAST({k} AS {_key_type(column)}) AS DOUBLE) <> {k}"
        for k, column, given in zip(names, columns, known.columns, strict=True)
        if pa.types.is_floating(given.type) and column.kind not in ("FLOAT", "DOUBLE")
    )
    with duckdb.connect(":memory:", config={"python_enable_replacements": "false"}) as connection:
        places = pa.array(range(len(known)), pa.int64())
        connection.register(_LISTED, known.rename_columns(names).append_column("i", places))
        try:
            text = f"SELECT {keys}, i FROM (SELECT {cast}, i FROM {_LISTED}) ORDER BY i ASC"
            table = connection.sql(text).to_arrow_table()
            if rounded and connection.sql(f"SELECT 1 FROM {_LISTED} WHERE {rounded} LIMIT 1").fetchall():
                table = None
        except (duckdb.Error, RuntimeError) as error:
            if is_interrupt(error):
                raise KeyboardInterrupt from None
            table = None
        if table is None:
            types = ", ".join(f"{column.name!r}: {_key_type(column)}" for column in columns)
            why = f"known_keys do not all fit the types of the key columns ({types})"
            raise InvalidType(f"{why}. Pass keys of these.", argument="known_keys")
        connection.register(_LISTED, table)
        distinct = f"SELECT count(*) FROM (SELECT DISTINCT {', '.join(names)} FROM {_LISTED})"
        ((count,),) = connection.sql(distinct).fetchall()
    if count != len(table):
        raise InvalidValue(
            "known_keys contains a key twice, as the data writes it. Pass it once.", argument="known_keys"
        )
    return table


def _key_type(column: Column) -> str:
    """Return the type to read a key as; the values of an ENUM are data, so its keys are text."""
    return "VARCHAR" if column.kind in ("ENUM", "JSON", '"NULL"', "NULL") else column.type
