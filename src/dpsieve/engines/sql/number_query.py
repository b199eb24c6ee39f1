"""The SQL text that reads rows of numbers, at most m of each privacy unit, written for DuckDB.

Numbers become DOUBLE. A row that is null or NaN in a column is left out first; in a text file, so is one whose text is
no number. Of the rest, each unit keeps the m rows with the smallest hashes of the salt, the unit, the numbers, and,
for equal rows of a unit, which copy it is: so each row is as likely, and what a unit keeps depends on its own rows and
the salt alone. Ties of the hash are broken by the numbers.

The result has the columns `k0`, `k1`, ...: a row is a row of numbers, or, where a unit may keep several, a list for
each unit, in the order in which they are chosen. As in `sql.bounded_query`, one whose `k0` is null stands for units
that are null.
"""

from collections.abc import Mapping

from dpsieve.engines.engine import Aggregation
from dpsieve.engines.sql.bounded_query import (
    DUCKDB,
    Column,
    all_present,
    ascending,
    call,
    choice,
    hashed_alike,
    unit_names,
    with_bucket,
)


def number_query(scan: str, columns: Mapping[str, Column], task: Aggregation) -> str:
    """Return the query over `scan`, the text of a table in a FROM clause, whose columns are in `columns`."""
    units, keys = unit_names(task.columns), [f"k{i}" for i in range(len(task.columns.key))]
    chosen = [f"{columns[name].as_number} AS {k}" for name, k in zip(task.columns.key, keys, strict=True)]
    present = " AND ".join(f"{k} IS NOT NULL AND NOT {call('isnan', k)}" for k in keys)
    names = ", ".join(keys)
    if not units:
        return f"SELECT {names} FROM (SELECT {', '.join(chosen)} FROM {scan}) WHERE {present}"
    if task.allow_null_units:
        present += f" AND {all_present(units)}"
    whose = [f"{columns[name].as_unit} AS {u}" for name, u in zip(task.columns.unit, units, strict=True)]
    rows = f"SELECT * FROM (SELECT {', '.join([*whose, *chosen])} FROM {scan}) WHERE {present}"
    copies = _copies(rows, units, keys, hashed_alike(columns, task), task.salt)
    return _kept(copies, units, keys, task.contribution.rows)


def _copies(rows: str, units: list[str], keys: list[str], alike: bool, salt: int) -> str:
    """Return the query for all rows, each with its hash `h`; equal rows of a unit differ in the number of their copy.

    Where rows of one unit are not hashed `alike`, as under a collation, equal rows share the smallest of their hashes.
    """
    names, order = ", ".join([*units, *keys]), choice(salt, [*units, *keys])
    first = order if alike else call("min", order)
    spread = with_bucket(rows, DUCKDB.bucket(salt, keys, ["DOUBLE"] * len(keys)))
    counted = f"SELECT {names}, {first} AS e, {call('count', '*')} AS n FROM {spread} GROUP BY {names}, b"
    numbered = f"SELECT {names}, e, {call('unnest', call('range', 'n'))} AS copy FROM ({counted})"
    return f"SELECT {names}, {choice(salt, ['e', 'copy'])} AS h FROM ({numbered})"


def _kept(rows: str, units: list[str], keys: list[str], most: int) -> str:
    unit, present = ", ".join(units), all_present(units)
    if most == 1:
        smallest = call("min", call("struct_pack", "h := h", *(f"{k} := {k}" for k in keys)))
        kept = f"SELECT CASE WHEN {present} THEN {smallest} END AS s FROM ({rows}) GROUP BY {unit}"
        return f"SELECT {', '.join(f'{DUCKDB.field(k)} AS {k}' for k in keys)} FROM ({kept})"
    place = f"{call('row_number')} OVER (PARTITION BY {unit} {ascending('h', *keys)}) AS place"
    by_place = ascending("place")
    lists = [f"CASE WHEN {present} THEN {call('list', f'{k} {by_place}')} END AS {k}" for k in keys]
    return f"SELECT {', '.join(lists)} FROM (SELECT *, {place} FROM ({rows})) WHERE place <= {most} GROUP BY {unit}"
