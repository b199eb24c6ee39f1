"""Further questions about pairs of a unit and a key, in SQL that every dialect has; `sql.dialects` transpiles them.

The arguments are those of `sql.bounded_query`. As there, a row whose first column is null stands for null units.

The SQL text that reads rows of numbers, at most m of each privacy unit, written for DuckDB.

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

from dpsieve.engines.sql.bounded_query import (  # isort: skip
    DUCKDB, Column, Pieces, all_present, ascending, bucket_of, grouped, hashed_alike, kept_bucket, rows_query,
    several_keys, unit_names, with_bucket,
)  # fmt: skip
from dpsieve.engines.sql.bounded_query import (
    call,
    choice,
)


def pairs_query(
    scan: str, columns: Mapping[str, Column], task: Aggregation, known: str | None = None, pieces: Pieces = DUCKDB
) -> str:
    """Return the query for which units hold which keys after bounding.

    A row is a key, the number of its unit `who`, and its `place` among the keys of the unit, both from 1 on. Units
    stand in the order of a hash with the salt, of equal ones by their value. Without a unit, a row is a key, its number
    of rows `n`, and `place`, the order of keys by a hash with the salt.
    """
    rows, keys = rows_query(scan, columns, task, known, pieces)
    units, names = unit_names(task.columns), ", ".join(keys)
    if not units:
        counted = f"SELECT {names}, {pieces.call('count', '*')} AS n FROM ({rows}) GROUP BY {names}"
        place = (
            f"{pieces.call('row_number')} OVER ({ascending(pieces.choice(task.salt, ['0', *keys]), *keys)}) AS place"
        )
        return f"SELECT {names}, n, {place} FROM ({counted})"
    unit, order = ", ".join(units), pieces.choice(task.salt, [*units, *keys], len(units))
    place = f"{pieces.call('row_number')} OVER (PARTITION BY {unit} {ascending(order, *keys)}) AS place"
    numbered = f"SELECT {unit}, {names}, {place} FROM (SELECT DISTINCT {unit}, {names} FROM ({rows}))"
    own = pieces.choice(task.salt, [*units, "0"], len(units))
    kept = f"SELECT {unit}, {names}, place, {own} AS g FROM ({numbered}) WHERE place <= {task.contribution.keys}"
    marked = ", ".join([f"CASE WHEN {all_present(units)} THEN k0 END AS k0", *keys[1:]])
    rank = f"{pieces.call('dense_rank')} OVER ({ascending('g', *units)})"
    return f"SELECT {marked}, {rank} AS who, place FROM ({kept})"


def places_query(
    scan: str, columns: Mapping[str, Column], task: Aggregation, known: str | None = None, pieces: Pieces = DUCKDB
) -> str:
    """Return the query for how many units, `n`, have a key as their first, second, ... choice, its `place`.

    The sums over the first m places are the counts of `bounded_query` with at most m keys a unit, for every m at once.
    """
    rows, keys = rows_query(scan, columns, task, known, pieces)
    units, bucket = unit_names(task.columns), bucket_of(columns, task, known, pieces)
    order = pieces.choice(task.salt, [*units, *keys], len(units))
    kept = several_keys(rows, units, keys, order, task, hashed_alike(columns, task), bucket, pieces, placed=True)
    last = kept_bucket(task, bucket)
    shown, groups = ", ".join([*keys, "place"]), ", ".join([*grouped(keys, last), "place"])
    return f"SELECT {shown}, {pieces.call('count', '*')} AS n FROM {with_bucket(kept, last)} GROUP BY {groups}"


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
