"""Further questions about pairs of a unit and a key, in SQL that every dialect has; `sql.dialects` transpiles them.

The arguments are those of `sql.bounded_query`. As there, a row whose first column is null stands for null units.
"""

from collections.abc import Mapping

from dpsieve.engines.engine import Aggregation

from dpsieve.engines.sql.bounded_query import (  # isort: skip
    DUCKDB, Column, Pieces, all_present, ascending, bucket_of, grouped, hashed_alike, kept_bucket, rows_query,
    several_keys, unit_names, with_bucket,
)  # fmt: skip


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
