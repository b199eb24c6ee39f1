"""The jobs of an engine: to aggregate, to find which units hold which keys, and to read numbers.

The first two are done in SQL, or by compiled loops.

Compiled loops return None where they do not suit the data, or gave up.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dpsieve.engines.duckdb.compiled import numbering as numbered
from dpsieve.engines.duckdb.compiled import one_key, pairs
from dpsieve.engines.duckdb.compiled.database import Loops
from dpsieve.engines.duckdb.scan import KNOWN, Scan, ask
from dpsieve.engines.engine import Aggregation, null_units
from dpsieve.engines.inputs.frames import Source
from dpsieve.engines.sql.bounded_query import bounded_query, incidence_query
from dpsieve.engines.sql.queries import number_query, places_query
from dpsieve.engines.true_data import Counted, NumberRows, Pairs, units_by_place
from dpsieve.errors import UnreadableData
from dpsieve.privacy.contribution import Weight
from dpsieve.types import Ints
from dpsieve.values.columns import as_numpy, in_utc

_PLACES = "dpsieve_places"


@dataclass(frozen=True)
class Job:
    """What is done: the task, the data on its connection, and its public keys as it would write them."""

    task: Aggregation
    source: Source
    connection: Any
    scan: Scan
    listed: pa.Table | None

    @property
    def known(self) -> str | None:
        """The text of the table of public keys."""
        if self.listed is None:
            return None
        # Also under the default collation of a user's connection, keys are told apart by their bytes.
        texts = [field.name for field in self.listed.schema if pa.types.is_string(field.type)]
        names = [f'{name} COLLATE "C" AS {name}' if name in texts else name for name in self.listed.column_names]
        return f"(SELECT {', '.join(names)} FROM {KNOWN})"

    def ask(self, text: str) -> pa.Table:
        """Run a query over the scan; real keys never hold a null, and one that does stands for units that are null."""
        table = ask(self.source, self.connection, text)
        if table.column(0).null_count:
            raise null_units(self.task)
        return table

    def keys(self, found: pa.Table) -> pa.Table:
        """Return keys under the names of their columns: those that were found, or those of the list."""
        return named_keys(self.task, self.listed, found)


def aggregate(job: Job) -> Counted:
    """Return keys with their counts or sums of weights, by SQL."""
    return counted(job.task, job.listed, job.ask(bounded_query(job.scan.text, job.scan.columns, job.task, job.known)))


def aggregate_by_loops(job: Job, loops: Loops) -> Counted | None:
    """Return the same by compiled loops."""
    if not _suits(job):
        return None
    if job.listed is None and job.task.contribution.keys == 1:
        table = one_key.run_compiled(loops, job.scan, job.task)
    else:
        kept = pairs.read_pairs(loops, job.scan, job.task, job.known)
        table = None if kept is None else kept.aggregated(job.task)
    return None if table is None else counted(job.task, job.listed, table)


def read_pairs(job: Job) -> Pairs:
    """Return which units hold which keys, by SQL."""
    table = job.ask(incidence_query(job.scan.text, job.scan.columns, job.task, job.known))
    numbers = np.arange(table.num_rows) if job.listed is None else table.column("k0").to_numpy()
    numbers = numbers.astype(np.int32)
    if not job.task.columns.unit:
        held = np.repeat(numbers, table.column("n").to_numpy())
        return Pairs(job.keys(table), np.arange(len(held) + 1), held)
    places, firsts = (table.column(name).combine_chunks() for name in ("p", "s"))
    sizes = places.value_lengths().to_numpy()
    held = np.empty(int(sizes.sum()), np.int32)
    held[places.flatten().to_numpy()] = np.repeat(numbers, sizes)
    starts = np.sort(firsts.flatten().to_numpy())
    if len(starts) and starts[0]:
        raise UnreadableData("data was not read in the order that was asked for. Pass it as a file or an Arrow table.")
    return Pairs(job.keys(table), np.append(starts, len(held)), held)


def pairs_by_loops(job: Job, loops: Loops) -> Pairs | None:
    """Return the same by compiled loops."""
    kept = pairs.read_pairs(loops, job.scan, job.task, job.known) if _suits(job) else None
    if kept is None:
        return None
    unit = [job.scan.columns[name] for name in job.task.columns.unit]
    names, starts, held = kept.in_order(job.connection, unit, job.task.salt)
    return Pairs(job.keys(names), starts, held)


def keep_places(job: Job) -> Ints:
    """Make a table of how many units have each key as their first, second, ... choice, which DuckDB may move to disk.

    Return how many units hold 0, 1, ..., and this number of keys or more.
    """
    places = places_query(job.scan.text, job.scan.columns, job.task)
    job.connection.execute(f"CREATE TEMP TABLE {_PLACES} AS {places}")
    if job.connection.execute(f"SELECT 1 FROM {_PLACES} WHERE k0 IS NULL LIMIT 1").fetchall():
        raise null_units(job.task)
    found = job.ask(f"SELECT place, CAST(sum(n) AS BIGINT) AS n FROM {_PLACES} GROUP BY place")
    holding = np.zeros(job.task.contribution.keys + 1, np.int64)
    holding[found.column("place").to_numpy()] = found.column("n").to_numpy()
    return units_by_place(holding)


def under_bound(connection: Any, task: Aggregation, keys: int) -> Counted:
    """Return the counts of the table that `keep_places` made, where a unit keeps at most this number of keys."""
    names = ", ".join(f"k{i}" for i in range(len(task.columns.key)))
    sums = f"SELECT {names}, CAST(sum(n) AS BIGINT) AS n FROM {_PLACES} WHERE place <= {int(keys)} GROUP BY {names}"
    return counted(task, None, connection.sql(sums).to_arrow_table())


def numbers(job: Job) -> NumberRows:
    """Return rows of numbers, those of one unit after each other, by SQL."""
    table = job.ask(number_query(job.scan.text, job.scan.columns, job.task))
    columns, starts = [column.combine_chunks() for column in table.columns], np.arange(len(table) + 1)
    if pa.types.is_list(table.schema.types[0]) or pa.types.is_large_list(table.schema.types[0]):
        starts = np.append(0, np.cumsum(columns[0].value_lengths().to_numpy(zero_copy_only=False)))
        columns = [column.flatten() for column in columns]
    return NumberRows(np.column_stack([column.to_numpy() for column in columns]), starts.astype(np.int64))


def _suits(job: Job) -> bool:
    return numbered.suits(job.scan.columns, job.task, job.scan.rows or 0, job.listed is not None)


def named_keys(task: Aggregation, listed: pa.Table | None, found: pa.Table) -> pa.Table:
    """Return keys under the names of their columns: those that were found, or those of the list."""
    keys = (found if listed is None else listed).select([f"k{i}" for i in range(len(task.columns.key))])
    # DuckDB gives times the zone of this machine.
    return pa.table(list(map(in_utc, keys.columns)), names=list(task.columns.key))


def counted(task: Aggregation, listed: pa.Table | None, table: pa.Table) -> Counted:
    """Return the keys of an answer to `bounded_query` with their numbers."""
    numbers, measure = table.column("n"), task.measure
    if numbers.null_count and isinstance(measure, Weight):
        raise measure.too_wide()
    counts = as_numpy(numbers).astype(np.int64, copy=False)
    if listed is not None:
        found, counts = counts, np.zeros(len(listed), np.int64)
        counts[table.column(0).to_numpy()] = found
    return Counted(named_keys(task, listed, table), counts)
