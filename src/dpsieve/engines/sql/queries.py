"""The SQL texts that bound and aggregate, written for DuckDB; `sql.dialects` transpiles them for other engines.

Inside, the columns of the unit are `u0`, `u1`, ... and those of the key `k0`, `k1`, ...; a result has the key columns
in order and then the numbers. The data is read in one pass, so streams work too. A unit of several columns is grouped
by all of them, so no two combinations can be joined.

A row whose first key column is null stands for the units that are null in any of their columns: real keys are never
null. The caller then refuses the data, without a second pass and without a count. A number that is null stands for a
sum of weights that might not fit 64 bits.

Wherever one unit may add many values to a GROUP BY or a JOIN, `Pieces.bucket`, a hash with the secret salt, is grouped
by, too: values with equal hashes would take quadratic time. The result does not depend on the bucket. Why it spreads
them, and why ties of the choice of keys are broken by the keys: docs/background/engines.md#equal-hashes.
"""

import base64
import hashlib
from collections.abc import Mapping

from dpsieve.engines.engine import Aggregation, Columns
from dpsieve.engines.sql.columns import AS_TEXT, Column, ascending, call, literal
from dpsieve.engines.sql.totals import amount_names, amounts, key_sums, pair_sums, row_values
from dpsieve.privacy.guarantee import Weight

_FEW_KEYS = 1000  # of one unit: half a million comparisons, 0.3 ms, where all of them have one hash
_UPPER_BITS = (2**36 - 1) << 28


class Pieces:
    """The pieces of the text that differ between dialects, for DuckDB."""

    structs = True  # other dialects get standard SQL
    distinct_on = False
    sum = "sum"

    def call(self, name: str, *arguments: str) -> str:
        """Return the call of a function that all dialects have."""
        return call(name, *arguments)

    def field(self, name: str) -> str:
        """Return a field of the struct `s`."""
        return call("struct_extract", "s", literal(name))

    def choice(self, salt: int, units: list[str], keys: list[str]) -> str:
        """Return the number that orders the keys of a unit, or without keys the units, or without a unit the keys.

        Equal hashes are easy to make, for every salt. So wherever keys are ordered by this number, the key itself comes
        next: the choice of a unit is then a function of its own rows and the salt, whatever the order of rows.
        """
        return call("&", _hashed(salt, *units, *keys), f"{_UPPER_BITS}::UBIGINT")

    def bucket(self, salt: int, names: list[str], kinds: list[str]) -> str | None:
        """Return a number that spreads values of columns of these kinds over hash tables; None where there is none."""
        parts = [_spread(salt, name, kind) for name, kind in zip(names, kinds, strict=True)]
        return parts[0] if len(parts) == 1 else call("hash", *parts)

    def capped(self, most: int) -> str:
        """Return the smaller of `n` and a number."""
        return call("least", "n", f"{most}::BIGINT")

    def weight(self, weights: tuple[int, ...]) -> str:
        """Return the weight of a unit with `d` keys, or with more than there are weights: then it keeps as many."""
        place = call("least", "d", f"{len(weights)}::BIGINT")
        return call("list_extract", call("list_value", *map(str, weights)), place)


def _hashed(salt: int, *names: str) -> str:
    return call("hash", call("hash", f"{salt}::UBIGINT", *names))


def _spread(salt: int, name: str, kind: str) -> str:
    if kind not in AS_TEXT | {"BLOB", "DECIMAL"}:
        return _hashed(salt, name)
    digest = hashlib.blake2b(salt.to_bytes(8, "little"), digest_size=9, person=b"dpsieve bucket").digest()
    secret = base64.urlsafe_b64encode(digest).decode()  # 12 characters
    if kind == "BLOB":
        return call("hash", call("sha1", call("||", f"'{secret}'::BLOB", name)))
    return call("hash", call("||", f"'{secret}'", f"CAST({name} AS VARCHAR)" if kind == "DECIMAL" else name))


DUCKDB = Pieces()


def bounded_query(
    scan: str, columns: Mapping[str, Column], task: Aggregation, known: str | None = None, pieces: Pieces = DUCKDB
) -> str:
    """Return the query over `scan`, the text of a table in a FROM clause, whose columns are in `columns`.

    With `known`, the name of a table of public keys (see `answers.cast_known_keys`), other rows are left out before
    anything is bounded, and the key is the place in that table.
    """
    rows, keys = rows_query(scan, columns, task, known, pieces)
    units, bucket, total = unit_names(task.columns), key_bucket(columns, task, known, pieces), _total(task, pieces)
    totals = task.columns.totals
    more = key_sums(totals, pieces.call)
    if not units:
        valued = f"SELECT {', '.join([*keys, *amounts(totals, pieces.call, of_rows=True)])} FROM ({rows})"
        return _sum_by_key(valued if totals else rows, keys, total, more=more)
    if task.contribution.keys == task.max_rows == 1 and pieces.structs and not totals:
        return _sum_by_key(_one_key(rows, units, keys, task, pieces), keys, total)
    if not totals and task.contribution.keys == task.max_rows == len(task.weights) == 1 and pieces.distinct_on:
        return _sum_by_key(_first_key(rows, units, keys, task, pieces), keys, total)
    kept = _several_keys(rows, units, keys, columns, task, bucket, pieces)
    return _sum_by_key(kept, keys, total, kept_bucket(task, bucket), more)


def pairs_query(
    scan: str, columns: Mapping[str, Column], task: Aggregation, known: str | None = None, pieces: Pieces = DUCKDB
) -> str:
    """Return the query for the (unit, key) pairs after bounding; see `bounded_query` for the arguments.

    A row is a key with two lists: `p`, the positions of its pairs among all pairs, from 1 on, and `s`, those of them
    that are the first pair of their unit, or null. Units are sorted by a hash with the salt, ties by their value, and
    the keys of a unit in the order in which they are chosen. Without a unit, a row is a key, its number of rows `n`,
    and its `place` in the order of a hash with the salt.
    """
    rows, keys = rows_query(scan, columns, task, known, pieces)
    units, names, totals = unit_names(task.columns), ", ".join(keys), task.columns.totals
    number, added = pieces.call("row_number"), amount_names(task.columns.totals)
    if not units:
        place = f"{number} OVER ({ascending(pieces.choice(task.salt, [], keys), *keys)})"
        valued = f"SELECT {', '.join([*keys, *amounts(totals, pieces.call, of_rows=True)])} FROM ({rows})"
        more = "".join(f", {pieces.call('list', name)} AS {name}" for name in added)
        by_key = _sum_by_key(valued if totals else rows, keys, pieces.call("count", "*"), more=more)
        return f"SELECT {', '.join([names, 'n', *added])}, {place} AS place FROM ({by_key})"
    bucket = key_bucket(columns, task, known, pieces)
    kept = _several_keys(rows, units, keys, columns, task, bucket, pieces, ordered=True)
    order = f"{number} OVER ({ascending('g', *units, 'place')})"
    numbered = f"SELECT {', '.join([names, 'place', *added])}, {order} AS p FROM ({kept})"
    positions, last = pieces.call("list", "p"), kept_bucket(task, bucket)
    lists = f"{positions} AS p, {positions} FILTER (WHERE place = 1) AS s"
    if totals:  # one order for all lists of a key
        by_place = ascending("p")
        lists = ", ".join(f"{pieces.call('list', f'{name} {by_place}')} AS {name}" for name in ("p", *added))
        lists += f", {positions} FILTER (WHERE place = 1) AS s"
    return f"SELECT {names}, {lists} FROM {with_bucket(numbered, last)} GROUP BY {', '.join(grouped(keys, last))}"


def places_query(
    scan: str, columns: Mapping[str, Column], task: Aggregation, known: str | None = None, pieces: Pieces = DUCKDB
) -> str:
    """Return the query for the number of units, `n`, that have a key as their first, second, ... choice, its `place`.

    The sums over the first m places are the counts of `bounded_query` with at most m keys per unit, for every m.
    """
    rows, keys = rows_query(scan, columns, task, known, pieces)
    units, bucket = unit_names(task.columns), key_bucket(columns, task, known, pieces)
    kept, last = _several_keys(rows, units, keys, columns, task, bucket, pieces, placed=True), kept_bucket(task, bucket)
    shown, groups = ", ".join([*keys, "place"]), ", ".join([*grouped(keys, last), "place"])
    numbers = f"{pieces.call('count', '*')} AS n{key_sums(task.columns.totals, pieces.call)}"
    return f"SELECT {shown}, {numbers} FROM {with_bucket(kept, last)} GROUP BY {groups}"


def unit_names(columns: Columns) -> list[str]:
    """Return the names of the columns of the unit inside the query: u0, u1, ..."""
    return [f"u{i}" for i in range(len(columns.unit))]


def all_present(names: list[str]) -> str:
    """Return the condition that none of the columns is null."""
    return " AND ".join(f"{name} IS NOT NULL" for name in names)


def hashed_alike(columns: Mapping[str, Column], task: Aggregation) -> bool:
    """Return whether rows of one unit have equal hashes of it."""
    return all(columns[name].hashed_alike for name in task.columns.unit)


def key_bucket(
    columns: Mapping[str, Column], task: Aggregation, known: str | None = None, pieces: Pieces = DUCKDB
) -> str | None:
    """Return `Pieces.bucket` of the key; that of a public list is a place in it."""
    if known is not None:
        return pieces.bucket(task.salt, ["k0"], ["BIGINT"])
    kinds = [columns[name].kind for name in task.columns.key]
    return pieces.bucket(task.salt, [f"k{i}" for i in range(len(kinds))], kinds)


def rows_query(
    scan: str, columns: Mapping[str, Column], task: Aggregation, known: str | None = None, pieces: Pieces = DUCKDB,
    values: list[str] | None = None,
) -> tuple[str, list[str]]:  # fmt: skip
    """Return the query for the rows that are bounded, u0, ... of the unit and k0, ...; and the names of the latter.

    With `values`, these are the columns q0, q1, ... instead of those of `totals.row_values`.
    """
    key, unit, keys = task.columns.key, task.columns.unit, [f"k{i}" for i in range(len(task.columns.key))]
    units = unit_names(task.columns)
    chosen = [f"{columns[name].as_unit} AS {u}" for name, u in zip(unit, units, strict=True)]
    chosen += [f"{columns[name].as_key} AS {k}" for name, k in zip(key, keys, strict=True)]
    values = row_values(task.columns.totals, columns, pieces.call) if values is None else values
    chosen += [f"{value} AS q{i}" for i, value in enumerate(values)]
    present = all_present([columns[name].sql for name in (*key, *(unit if task.allow_null_units else ()))])
    rows = f"SELECT {', '.join(chosen)} FROM {scan} WHERE {present}"
    if known is None:
        return rows, keys
    # DuckDB may make the hash table of the data, where that is the smaller side. Both sides are hashed as one type.
    used = [columns[name] for name in key]
    alike = [k if c.kind in AS_TEXT else f"CAST({k} AS {c.type})" for k, c in zip(keys, used, strict=True)]
    bucket = pieces.bucket(task.salt, alike, [c.kind for c in used])
    listed = known if bucket is None else with_bucket(f"SELECT * FROM {known}", bucket)
    joined = f"{with_bucket(rows, bucket)} JOIN {listed} USING ({', '.join(grouped(keys, bucket))})"
    return f"SELECT {', '.join([*units, 'i AS k0', *(f'q{i}' for i in range(len(values)))])} FROM {joined}", ["k0"]


def with_bucket(rows: str, bucket: str | None) -> str:
    """Return the rows with their bucket as a column `b`: DuckDB leaves out a group that is computed from others."""
    return f"({rows})" if bucket is None else f"(SELECT *, {bucket} AS b FROM ({rows}))"


def grouped(names: list[str], bucket: str | None) -> list[str]:
    """Return what rows with a bucket are grouped by."""
    return [*names, *([] if bucket is None else ["b"])]


def kept_bucket(task: Aggregation, bucket: str | None) -> str | None:
    """Return the bucket where what a unit keeps is grouped by it, too."""
    return bucket if task.contribution.keys > _FEW_KEYS else None


def _distinct(rows: str, names: list[str], bucket: str | None) -> str:
    if bucket is None:
        return f"SELECT DISTINCT {', '.join(names)} FROM ({rows})"
    return f"SELECT {', '.join(names)} FROM {with_bucket(rows, bucket)} GROUP BY {', '.join(names)}, b"


def _sum_by_key(kept: str, keys: list[str], total: str, bucket: str | None = None, more: str = "") -> str:
    groups = ", ".join(grouped(keys, bucket))
    return f"SELECT {', '.join(keys)}, {total} AS n{more} FROM {with_bucket(kept, bucket)} GROUP BY {groups}"


def _total(task: Aggregation, pieces: Pieces) -> str:
    """Return what is published of a key: the sum over the units that keep it of what each adds."""
    number = pieces.call("count", "*")
    if isinstance(task.measure, Weight):
        weight = pieces.weight(task.weights) if len(task.weights) > 1 else str(task.weights[0])
        total = f"CAST({pieces.call(pieces.sum, weight)} AS BIGINT)"
        return f"CASE WHEN {number} <= {task.measure.most_units} THEN {total} END"
    if not task.columns.unit or task.max_rows == 1:
        return number
    return f"CAST({pieces.call('sum', pieces.capped(task.max_rows))} AS BIGINT)"


def _one_key(rows: str, units: list[str], keys: list[str], task: Aggregation, pieces: Pieces) -> str:
    """One key for each unit: equal pairs have equal hashes, so the smallest hash needs no DISTINCT before it."""
    order = pieces.choice(task.salt, units, keys)
    smallest = pieces.call("min", pieces.call("struct_pack", f"h := {order}", *(f"{k} := {k}" for k in keys)))
    kept = f"SELECT CASE WHEN {all_present(units)} THEN {smallest} END AS s FROM ({rows}) GROUP BY {', '.join(units)}"
    return f"SELECT {', '.join(f'{pieces.field(k)} AS {k}' for k in keys)} FROM ({kept})"


def _first_key(rows: str, units: list[str], keys: list[str], task: Aggregation, pieces: Pieces) -> str:
    """One key for each unit, where the first rows of a sort are the faster way."""
    unit, names, order = ", ".join(units), ", ".join(keys), pieces.choice(task.salt, units, keys)
    marked = ", ".join([f"CASE WHEN {all_present(units)} THEN k0 END AS k0", *keys[1:]])
    first = f"SELECT DISTINCT ON ({unit}) {unit}, {names} FROM ({rows}) {ascending(*units, order, *keys)}"
    return f"SELECT {marked} FROM ({first})"


def _several_keys(
    rows: str,
    units: list[str],
    keys: list[str],
    columns: Mapping[str, Column],
    task: Aggregation,
    bucket: str | None,
    pieces: Pieces,
    ordered: bool = False,
    placed: bool = False,
) -> str:
    """Distinct pairs first, so that a unit with a million rows of one key costs one row in the sort.

    A sort by the hash alone would be rewritten by DuckDB into a heap for each unit, which takes twice the time and
    memory that grows with the number of keys. Where rows of one unit are not hashed `alike`, as under a collation, the
    pair has the smallest hash of its rows: which spelling DISTINCT keeps depends on the order of rows.

    For weights, `d` is how many keys a unit has before it keeps some of them. If `placed`, the place of a key among
    those of its unit stays; if `ordered`, the units stay too, with the hash `g` that orders them.
    """
    unit, many, weighted = ", ".join(units), task.max_rows > 1, len(task.weights) > 1
    alike, number = hashed_alike(columns, task), pieces.call("count", "*")
    order, own = pieces.choice(task.salt, units, keys), pieces.choice(task.salt, units, [])
    totals = task.columns.totals
    if alike and not many and not totals:
        pairs = _distinct(rows, [*units, *keys], bucket)
    else:
        more = [*([] if alike else [f"{pieces.call('min', order)} AS h"]), *([f"{number} AS n"] if many else [])]
        more += [f"{pieces.call('min', own)} AS e"] if ordered and not alike else []
        more += pair_sums(totals, pieces.call, pieces.sum)
        shown, groups = ", ".join([*units, *keys, *more]), ", ".join(grouped([*units, *keys], bucket))
        pairs = f"SELECT {shown} FROM {with_bucket(rows, bucket)} GROUP BY {groups}"
    first = order if alike else "h"
    windows = [f"{pieces.call('row_number')} OVER (PARTITION BY {unit} {ascending(first, *keys)}) AS place"]
    windows += [f"{number} OVER (PARTITION BY {unit}) AS d"] if weighted else []
    smallest = f"{pieces.call('min', 'e')} OVER (PARTITION BY {unit})"
    windows += [f"{own if alike else smallest} AS g"] if ordered else []
    numbered = f"SELECT *, {', '.join(windows)} FROM ({pairs})"
    marked = [f"CASE WHEN {all_present(units)} THEN k0 END AS k0", *keys[1:], *["n"] * many, *["d"] * weighted]
    marked += amounts(totals, pieces.call)
    marked += [*units, "g", "place"] if ordered else ["place"] if placed else []
    return f"SELECT {', '.join(marked)} FROM ({numbered}) WHERE place <= {task.contribution.keys}"


def number_query(scan: str, columns: Mapping[str, Column], task: Aggregation) -> str:
    """Return the query for rows of numbers, as DOUBLE; see `bounded_query` for the arguments.

    Rows with a null, NaN or a text that is not a number are dropped first. Of the others, each unit keeps those with
    the smallest hashes of the salt, the unit, the numbers and, for equal rows of a unit, the number of the copy. Ties
    of the hash are broken by the numbers.
    """
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
    names, order = ", ".join([*units, *keys]), DUCKDB.choice(salt, units, keys)
    first = order if alike else call("min", order)
    spread = with_bucket(rows, DUCKDB.bucket(salt, keys, ["DOUBLE"] * len(keys)))
    counted = f"SELECT {names}, {first} AS e, {call('count', '*')} AS n FROM {spread} GROUP BY {names}, b"
    numbered = f"SELECT {names}, e, {call('unnest', call('range', 'n'))} AS copy FROM ({counted})"
    return f"SELECT {names}, {DUCKDB.choice(salt, ['e'], ['copy'])} AS h FROM ({numbered})"


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
