"""The questions that DuckDB answers about a scan: counts, pairs, counts by place, and numbers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dpsieve.engines.answers import check_units, decode_counts, decode_pairs, null_units
from dpsieve.engines.duckdb.compiled.database import Loops, check
from dpsieve.engines.duckdb.compiled.values import suits_loops
from dpsieve.engines.duckdb.scan import KNOWN, Scan, ask
from dpsieve.engines.engine import Aggregation
from dpsieve.engines.inputs.frames import Source
from dpsieve.engines.sql.queries import bounded_query, number_query, pairs_query, places_query
from dpsieve.engines.true_data import Counted, NumberRows, Pairs, units_by_place
from dpsieve.privacy.contribution import Weight
from dpsieve.types import Ints

_PLACES = "dpsieve_places"


@dataclass(frozen=True)
class Job:
    """A task, the data on its connection, and the public keys as the data would write them."""

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
        # Keys are compared by their bytes, also under the default collation of a user's connection.
        texts = [field.name for field in self.listed.schema if pa.types.is_string(field.type)]
        names = [f'{name} COLLATE "C" AS {name}' if name in texts else name for name in self.listed.column_names]
        return f"(SELECT {', '.join(names)} FROM {KNOWN})"

    def ask(self, text: str) -> pa.Table:
        """Run a query over the scan, and refuse null units."""
        return check_units(self.task, ask(self.source, self.connection, text))


def count_by_sql(job: Job) -> Counted:
    """Return keys with their counts or sums of weights."""
    answer = job.ask(bounded_query(job.scan.text, job.scan.columns, job.task, job.known))
    return decode_counts(job.task, job.listed, answer)


def count_by_loops(job: Job, loops: Loops) -> Counted | None:
    """Return the same from pairs; None where compiled loops do not suit the data, or gave up."""
    pairs, measure = pairs_by_loops(job, loops, ordered=False), job.task.measure
    if pairs is None:
        return None
    sizes, weights = pairs.sizes, np.array([0, *job.task.weights])
    sums = pairs.weights(measure) if isinstance(measure, Weight) else pairs.counts()
    total = int((sizes * weights[np.minimum(sizes, len(weights) - 1)]).sum())
    check(int(sums.sum()) == total, "the sums of keys are not those of their units")
    return Counted(pairs.keys, sums)


def pairs_by_sql(job: Job) -> Pairs:
    """Return the keys of each unit."""
    answer = job.ask(pairs_query(job.scan.text, job.scan.columns, job.task, job.known))
    return decode_pairs(job.task, job.listed, answer)


def pairs_by_loops(job: Job, loops: Loops, ordered: bool = True) -> Pairs | None:
    """Return the same by compiled loops, with units in an arbitrary order unless `ordered`; None as above."""
    if not suits_loops(job.scan.columns, job.task, job.scan.rows or 0, job.listed is not None):
        return None
    from dpsieve.engines.duckdb.compiled.pairs import read_pairs  # slow to import

    return read_pairs(loops, job.scan, job.task, job.known, job.listed, job.connection if ordered else None)


def keep_places(job: Job) -> Ints:
    """Make a table of the number of units that have each key as their first, second, ... choice; it may go to disk.

    Return the number of units with 0, 1, ..., and with at least the bound of keys.
    """
    places = places_query(job.scan.text, job.scan.columns, job.task)
    job.connection.execute(f"CREATE TEMP TABLE {_PLACES} AS {places}")
    if job.connection.execute(f"SELECT 1 FROM {_PLACES} WHERE k0 IS NULL LIMIT 1").fetchall():
        raise null_units(job.task)
    sums = job.ask(f"SELECT place, CAST(sum(n) AS BIGINT) AS n FROM {_PLACES} GROUP BY place")
    holding = np.zeros(job.task.contribution.keys + 1, np.int64)
    holding[sums.column("place").to_numpy()] = sums.column("n").to_numpy()
    return units_by_place(holding)


def count_under(connection: Any, task: Aggregation, keys: int) -> Counted:
    """Return the counts of the table that `keep_places` made, where a unit keeps at most this number of keys."""
    names = ", ".join(f"k{i}" for i in range(len(task.columns.key)))
    sums = f"SELECT {names}, CAST(sum(n) AS BIGINT) AS n FROM {_PLACES} WHERE place <= {int(keys)} GROUP BY {names}"
    return decode_counts(task, None, connection.sql(sums).to_arrow_table())


def read_numbers(job: Job) -> NumberRows:
    """Return rows of numbers, those of one unit after each other."""
    table = job.ask(number_query(job.scan.text, job.scan.columns, job.task))
    columns, starts = [column.combine_chunks() for column in table.columns], np.arange(len(table) + 1)
    if pa.types.is_list(table.schema.types[0]) or pa.types.is_large_list(table.schema.types[0]):
        starts = np.append(0, np.cumsum(columns[0].value_lengths().to_numpy(zero_copy_only=False)))
        columns = [column.flatten() for column in columns]
    return NumberRows(np.column_stack([column.to_numpy() for column in columns]), starts.astype(np.int64))
