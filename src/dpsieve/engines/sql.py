"""The one SQL text that bounds and counts, written for DuckDB; `engines.dialects` transpiles it for other engines.

Identifiers are quoted, so any column name works. Inside, the unit is `u` and the key columns are `k0`, `k1`, ...; the
result has the key columns in order and then the frequency. The data is read in one pass, so streams work too.

A row whose first key column is null stands for the units that are null: real keys never hold a null. It tells the
caller that the data must be refused, without a second pass and without a count.
"""

from collections.abc import Callable, Mapping

from dpsieve.engines.base import Bounds
from dpsieve.engines.columns import Column


def choice(salt: int, names: list[str]) -> str:
    """Return the number that orders the keys of a unit: the one piece that differs between dialects.

    DuckDB's hash of several values combines their hashes by exclusive or. The minimum of such numbers over the keys of
    a unit would favour keys whose own hashes stand apart; the outer hash mixes the bits, so every key is as likely.

    Equal hashes are easy to make, for every salt. So wherever keys are ordered by this number, the key itself comes
    next: the choice of a unit is then a function of its own rows and the salt, whatever the order of rows.
    """
    return f"hash(hash({salt}::UBIGINT, {', '.join(names)}))"


def count_text(
    scan: str,
    columns: Mapping[str, Column],
    bounds: Bounds,
    known: str | None = None,
    order: Callable[[int, list[str]], str] = choice,
) -> str:
    """Return the query over `scan`, the text of a table in a FROM clause, whose columns are in `columns`.

    With `known`, the name of a table of public keys (see `engines.known`), other rows are left out before anything is
    bounded, and the key is the place in that table.

    Another dialect passes an `order` in place of `choice`. It gets standard SQL: no `arg_min`, no structs, no `least`.
    """
    keys, rows = _names(bounds), rows_text(scan, columns, bounds)
    if known is not None:
        unit = "" if bounds.unit is None else "u, "
        rows, keys = f"SELECT {unit}i AS k0 FROM ({rows}) JOIN {known} USING ({', '.join(keys)})", ["k0"]
    if bounds.unit is None:
        return _plain(rows, keys)
    ordered, most = order(bounds.salt, ["u", *keys]), bounds.max_rows
    if bounds.max_keys == most == 1 and order is choice:
        return _one_key(rows, keys, ordered)
    capped = f"least(n, {most})" if order is choice else f"CASE WHEN n > {most} THEN {most} ELSE n END"
    return _several_keys(rows, keys, ordered, bounds, capped, hashed_alike=columns[bounds.unit].hashed_alike)


def rows_text(scan: str, columns: Mapping[str, Column], bounds: Bounds) -> str:
    """Return the query for the rows that are bounded and counted: u, if there is a unit, and k0, k1, ..."""
    chosen = [f"{columns[name].as_key} AS {k}" for name, k in zip(bounds.key, _names(bounds), strict=True)]
    present = [f"{columns[name].sql} IS NOT NULL" for name in bounds.key]
    if bounds.unit is not None:
        chosen.insert(0, f"{columns[bounds.unit].as_unit} AS u")
        if bounds.allow_null_units:
            present.append(f"{columns[bounds.unit].sql} IS NOT NULL")
    return f"SELECT {', '.join(chosen)} FROM {scan} WHERE {' AND '.join(present)}"


def _names(bounds: Bounds) -> list[str]:
    return [f"k{i}" for i in range(len(bounds.key))]


def _plain(rows: str, keys: list[str]) -> str:
    """Every row is a unit of its own, and has one key."""
    names = ", ".join(keys)
    return f"SELECT {names}, count(*) AS n FROM ({rows}) GROUP BY {names}"


def _one_key(rows: str, keys: list[str], order: str) -> str:
    """One key for each unit: equal pairs have equal hashes, so the smallest hash needs no DISTINCT before it."""
    fields = ", ".join([f"h := {order}", *(f"{k} := {k}" for k in keys)])
    kept = f"SELECT CASE WHEN u IS NOT NULL THEN min(struct_pack({fields})) END AS s FROM ({rows}) GROUP BY u"
    names, parts = ", ".join(keys), ", ".join(f"s.{k} AS {k}" for k in keys)
    return f"SELECT {names}, count(*) AS n FROM (SELECT {parts} FROM ({kept})) GROUP BY {names}"


def _several_keys(rows: str, keys: list[str], order: str, bounds: Bounds, capped: str, *, hashed_alike: bool) -> str:
    """Distinct pairs first, so that a unit with a million rows of one key costs one row in the sort.

    A sort by the hash alone would be rewritten by DuckDB into a heap for each unit, which takes twice the time and
    memory that grows with max_keys. Where rows of one unit may have different hashes, as under a collation, the pair
    has the smallest hash of its rows: which spelling DISTINCT keeps depends on the order of rows.
    """
    names, many = ", ".join(keys), bounds.max_rows > 1
    if hashed_alike and not many:
        pairs = f"SELECT DISTINCT u, {names} FROM ({rows})"
    else:
        more = [*([] if hashed_alike else [f"min({order}) AS h"]), *(["count(*) AS n"] if many else [])]
        pairs = f"SELECT u, {names}, {', '.join(more)} FROM ({rows}) GROUP BY u, {names}"
    first = order if hashed_alike else "h"
    placed = f"SELECT *, row_number() OVER (PARTITION BY u ORDER BY {first}, {names}) AS place FROM ({pairs})"
    marked = ", ".join(["CASE WHEN u IS NOT NULL THEN k0 END AS k0", *keys[1:], *(["n"] if many else [])])
    kept = f"SELECT {marked} FROM ({placed}) WHERE place <= {bounds.max_keys}"
    total = f"CAST(sum({capped}) AS BIGINT)" if many else "count(*)"
    return f"SELECT {names}, {total} AS n FROM ({kept}) GROUP BY {names}"
