"""The one SQL text that bounds and aggregates, written for DuckDB; `sql.dialects` transpiles it for other engines.

Identifiers are quoted, so any column name works. Inside, the columns of the unit are `u0`, `u1`, ... and those of the
key `k0`, `k1`, ...; the result has the key columns in order and then the number. The data is read in one pass, so
streams work too. A unit of several columns is grouped by all of them, so that no two combinations can be joined.

A row whose first key column is null stands for the units that are null in any of their columns: real keys never hold a
null. It tells the caller that the data must be refused, without a second pass and without a count. A number that is
null stands for a sum of weights that might not fit 64 bits.

Keys are texts, bytes, whole, decimal and floating numbers, booleans, dates, times and timestamps. Texts are told apart
by their bytes. All NaN are one key, and so are 0.0 and -0.0. Categories, identifiers and JSON become text. Nested
types, intervals, times with a zone, bit strings and unsigned 128-bit integers are refused: they do not sort, or two
values that compare as equal can look different. A unit may be of any type.

Functions and operators are written by their full name, `system.main.count(*)`: a user's connection may have macros of
any name, and DuckDB resolves `count`, `+`, `[1, 2]` and `s.k0` to those first. Comparisons, casts, CASE and the names
of types are not resolved that way.

DuckDB groups by hashes without a key, so anyone can choose texts that all have one hash, or numbers whose hashes start
at one slot of a table. Grouped alone, n of them take n^2 / 2 comparisons, and the time of a release would show whether
the unit that holds them is there. So wherever one unit may add many values to a GROUP BY or a JOIN, `Pieces.bucket`
comes along: a hash with the secret salt that spreads them. The values themselves are still grouped, so the result is
the same whatever the bucket; only the time depends on it. Values of different units are not spread apart.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from dpsieve.engines.engine import Aggregation, Columns
from dpsieve.errors import InvalidType
from dpsieve.privacy.contribution import Weight

_AS_THEY_ARE = frozenset(
    """BOOLEAN TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT DECIMAL BLOB DATE TIME TIME_NS
    TIMESTAMP TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS TIMESTAMPTZ_NS""".split()
) | {"TIMESTAMP WITH TIME ZONE"}
# An Arrow column of an ENUM would carry every category, whether it is reported or not; text carries none.
# Not every HUGEINT fits a decimal of Arrow.
AS_TEXT = frozenset({"VARCHAR", "ENUM", "JSON", "UUID", "HUGEINT", '"NULL"', "NULL"})
NUMBERS = frozenset(
    """BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT DECIMAL FLOAT
    DOUBLE NULL "NULL" """.split()
)
_PLAIN = _AS_THEY_ARE | AS_TEXT | {"FLOAT", "DOUBLE"}
_FEW_KEYS = 1000  # of one unit: half a million comparisons, 0.3 ms, where all of them have one hash
_UPPER_BITS = (2**36 - 1) << 28


@dataclass(frozen=True)
class Column:
    """One column of a scan.

    Attributes:
        name: as the user knows it.
        sql: as the query writes it, quoted.
        type: DuckDB's name of the type.
        collated: it may compare texts by a collation, as columns of a user's database can.
    """

    name: str
    sql: str
    type: str
    collated: bool = False

    @property
    def kind(self) -> str:
        """The type without its parameters: those of an ENUM are values of the data."""
        return self.type.partition("(")[0]

    @property
    def as_key(self) -> str:
        """The expression that is grouped by. Values that compare as equal are written in one way.

        Otherwise one row could decide how a key is spelled: as 0.0 or -0.0, or as 'Tea' or 'tea' in a column with a
        collation that ignores case.
        """
        if self.kind in ("FLOAT", "DOUBLE"):
            is_nan, zero_alike = call("isnan", self.sql), call("+", self.sql, f"0::{self.kind}")
            return f"CASE WHEN {is_nan} THEN 'nan'::{self.kind} ELSE {zero_alike} END"
        if self.kind not in AS_TEXT:
            return self.sql
        text = self.sql if self.kind == "VARCHAR" else f"CAST({self.sql} AS VARCHAR)"
        return f'{text} COLLATE "C"' if self.collated else text

    @property
    def as_number(self) -> str:
        """The expression of its value as a DOUBLE; null for a text that is no number. Zero is written in one way."""
        return call("+", f"TRY_CAST({self.sql} AS DOUBLE)", "0::DOUBLE")

    @property
    def as_unit(self) -> str:
        """The expression that rows of one unit are found by."""
        return self.sql

    @property
    def hashed_alike(self) -> bool:
        """Whether DuckDB hashes values alike that compare as equal: not so texts under a collation, and variants."""
        return not self.collated and self.is_plain

    @property
    def is_plain(self) -> bool:
        """Whether values can be grouped and published."""
        return self.kind in _PLAIN and not self.type.endswith("]")

    def check_key(self) -> None:
        """Refuse types that do not group into keys that can be published: nested ones, intervals, times with zones."""
        if not self.is_plain:
            hint = "Turn it into text first, or name the fields of a nested column as several key columns."
            raise InvalidType(f"key={self.name!r} has the type {self.kind}, which cannot be a key. {hint}")

    def check_number(self, *, texts: bool) -> None:
        """Refuse types that are no numbers; with `texts`, as in a file of text, text may be read as numbers."""
        if self.type.endswith("]") or not (self.kind in NUMBERS or (texts and self.kind == "VARCHAR")):
            hint = "Name a column of numbers, or cast this one first."
            raise InvalidType(f"column={self.name!r} has the type {self.kind}, which is not a number. {hint}")


def quoted(name: str) -> str:
    """Return an identifier that means exactly this column, whatever characters its name has."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    """Return a string constant."""
    return "'" + value.replace("'", "''") + "'"


def call(name: str, *arguments: str) -> str:
    """Return the call of a function or operator of DuckDB itself, whatever macros a user's connection has.

    >>> call("+", "1", "2")
    'system.main."+"(1, 2)'
    """
    return f"system.main.{name if name.isidentifier() else quoted(name)}({', '.join(arguments)})"


def ascending(*names: str) -> str:
    """Return the ORDER BY clause; a user's connection may sort downwards where nothing else is said.

    >>> ascending("u0", "place")
    'ORDER BY u0 ASC, place ASC'
    """
    return f"ORDER BY {', '.join(f'{name} ASC' for name in names)}"


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

    def choice(self, salt: int | str, names: list[str], units: int = 1) -> str:
        """Return the number that orders the keys of a unit, whose columns are the first `units` of the names.

        DuckDB's hash of several values combines their hashes by exclusive or. The minimum of such numbers over the keys
        of a unit would favour keys whose own hashes stand apart; the outer hash mixes the bits, so every key is as
        likely. Its upper 36 bits are what compiled loops hold (see `duckdb.one_key_loops`), and suffice.

        Equal hashes are easy to make, for every salt. So wherever keys are ordered by this number, the key itself comes
        next: the choice of a unit is then a function of its own rows and the salt, whatever the order of rows.
        """
        return call("&", _hashed(salt, *names), f"{_UPPER_BITS}::UBIGINT")

    def bucket(self, salt: int, names: list[str], kinds: list[str]) -> str | None:
        """Return a number that spreads values over hash tables, for columns of these kinds; None where there is none.

        With h for DuckDB's hash of a value, h of the salt and a number of at most 64 bits is one-to-one in the number,
        and which slot it starts at is not known without the salt.

        Many texts have one h. It runs h = (h ^ block) * M over blocks of 8 bytes, from a public start. After 12 secret
        characters the state is secret, and every block holds the second half of one plain block and the first half of
        the next. Texts that agree for all secrets differ in the uppermost bits of two blocks that follow each other:
        with certainty in bit 63 alone, which no two valid UTF-8 texts do, and with probability 1/2 or less below it.
        The group has the plain h too, where these differences lie in the middle of a block, so that all of 64 bits
        would have to agree by chance. Bytes may differ in bit 63: they get a cryptographic hash, which takes longer.
        """
        parts = [_spread(salt, name, kind) for name, kind in zip(names, kinds, strict=True)]
        return parts[0] if len(parts) == 1 else call("hash", *parts)

    def capped(self, most: int) -> str:
        """Return the smaller of `n` and a number."""
        return call("least", "n", f"{most}::BIGINT")

    def weight(self, weights: tuple[int, ...]) -> str:
        """Return the weight of a unit with `d` keys, or with more than there are weights: then it keeps as many."""
        place = call("least", "d", f"{len(weights)}::BIGINT")
        return call("list_extract", call("list_value", *map(str, weights)), place)


def _hashed(salt: int | str, *names: str) -> str:
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
choice = DUCKDB.choice


def bounded_query(
    scan: str, columns: Mapping[str, Column], task: Aggregation, known: str | None = None, pieces: Pieces = DUCKDB
) -> str:
    """Return the query over `scan`, the text of a table in a FROM clause, whose columns are in `columns`.

    With `known`, the name of a table of public keys (see `duckdb.scan.known_keys`), other rows are left out before
    anything is bounded, and the key is the place in that table.
    """
    rows, keys = rows_query(scan, columns, task, known, pieces)
    units, bucket = unit_names(task.columns), bucket_of(columns, task, known, pieces)
    if not units:
        return _summed(rows, keys, _total(task, pieces))
    order = pieces.choice(task.salt, [*units, *keys], len(units))
    if task.contribution.keys == task.max_rows == 1 and pieces.structs:
        return _summed(_one_key(rows, units, keys, order, pieces), keys, _total(task, pieces))
    if task.contribution.keys == task.max_rows == len(task.weights) == 1 and pieces.distinct_on:
        return _summed(_first_key(rows, units, keys, order), keys, _total(task, pieces))
    kept = several_keys(rows, units, keys, order, task, hashed_alike(columns, task), bucket, pieces)
    return _summed(kept, keys, _total(task, pieces), kept_bucket(task, bucket))


def incidence_query(scan: str, columns: Mapping[str, Column], task: Aggregation, known: str | None = None) -> str:
    """Return the query for which units hold which keys after bounding; see `bounded_query` for the arguments.

    A row is a key with two lists: the places of its pairs among all pairs of a unit and a key, from 0 on, and those of
    them that are the first of their unit. Units stand in the order of a hash with the salt, of equal ones by their
    value; the keys of a unit in the order they are chosen by. Without a unit, a row is a key and its number of rows.
    """
    rows, keys = rows_query(scan, columns, task, known)
    units, names = unit_names(task.columns), ", ".join(keys)
    if not units:
        return f"{_summed(rows, keys, call('count', '*'))} {ascending(choice(task.salt, keys), *keys)}"
    order, bucket = choice(task.salt, [*units, *keys]), bucket_of(columns, task, known)
    kept = several_keys(rows, units, keys, order, task, hashed_alike(columns, task), bucket, ordered=True)
    number = call("-", f"{call('row_number')} OVER ({ascending('g', *units, 'place')})", "1")
    numbered = f"SELECT {names}, place, {number} AS p FROM ({kept})"
    places = call("list", "p")
    lists = f"{places} AS p, {places} FILTER (place = 1) AS s"
    last = kept_bucket(task, bucket)
    return f"SELECT {names}, {lists} FROM {with_bucket(numbered, last)} GROUP BY {', '.join(grouped(keys, last))}"


def unit_names(columns: Columns) -> list[str]:
    """Return the names of the columns of the unit inside the query: u0, u1, ..."""
    return [f"u{i}" for i in range(len(columns.unit))]


def all_present(names: list[str]) -> str:
    """Return the condition that none of the columns is null."""
    return " AND ".join(f"{name} IS NOT NULL" for name in names)


def hashed_alike(columns: Mapping[str, Column], task: Aggregation) -> bool:
    """Tell whether rows of one unit have equal hashes of it."""
    return all(columns[name].hashed_alike for name in task.columns.unit)


def bucket_of(
    columns: Mapping[str, Column], task: Aggregation, known: str | None = None, pieces: Pieces = DUCKDB
) -> str | None:
    """Return `Pieces.bucket` of the key; that of a public list is a place in it."""
    if known is not None:
        return pieces.bucket(task.salt, ["k0"], ["BIGINT"])
    kinds = [columns[name].kind for name in task.columns.key]
    return pieces.bucket(task.salt, [f"k{i}" for i in range(len(kinds))], kinds)


def rows_query(
    scan: str, columns: Mapping[str, Column], task: Aggregation, known: str | None = None, pieces: Pieces = DUCKDB
) -> tuple[str, list[str]]:
    """Return the query for the rows that are bounded, u0, ... of the unit and k0, ...; and the names of the latter."""
    key, unit, keys = task.columns.key, task.columns.unit, [f"k{i}" for i in range(len(task.columns.key))]
    units = unit_names(task.columns)
    chosen = [f"{columns[name].as_unit} AS {u}" for name, u in zip(unit, units, strict=True)]
    chosen += [f"{columns[name].as_key} AS {k}" for name, k in zip(key, keys, strict=True)]
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
    return f"SELECT {', '.join([*units, 'i AS k0'])} FROM {joined}", ["k0"]


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


def _summed(kept: str, keys: list[str], total: str, bucket: str | None = None) -> str:
    groups = ", ".join(grouped(keys, bucket))
    return f"SELECT {', '.join(keys)}, {total} AS n FROM {with_bucket(kept, bucket)} GROUP BY {groups}"


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


def _one_key(rows: str, units: list[str], keys: list[str], order: str, pieces: Pieces) -> str:
    """One key for each unit: equal pairs have equal hashes, so the smallest hash needs no DISTINCT before it."""
    smallest = pieces.call("min", pieces.call("struct_pack", f"h := {order}", *(f"{k} := {k}" for k in keys)))
    kept = f"SELECT CASE WHEN {all_present(units)} THEN {smallest} END AS s FROM ({rows}) GROUP BY {', '.join(units)}"
    return f"SELECT {', '.join(f'{pieces.field(k)} AS {k}' for k in keys)} FROM ({kept})"


def _first_key(rows: str, units: list[str], keys: list[str], order: str) -> str:
    """One key for each unit, where the first rows of a sort are the faster way."""
    unit, names = ", ".join(units), ", ".join(keys)
    marked = ", ".join([f"CASE WHEN {all_present(units)} THEN k0 END AS k0", *keys[1:]])
    first = f"SELECT DISTINCT ON ({unit}) {unit}, {names} FROM ({rows}) {ascending(*units, order, *keys)}"
    return f"SELECT {marked} FROM ({first})"


def several_keys(
    rows: str,
    units: list[str],
    keys: list[str],
    order: str,
    task: Aggregation,
    alike: bool,
    bucket: str | None,
    pieces: Pieces = DUCKDB,
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
    own, number = choice(task.salt, units), pieces.call("count", "*")
    if alike and not many:
        pairs = _distinct(rows, [*units, *keys], bucket)
    else:
        more = [*([] if alike else [f"{pieces.call('min', order)} AS h"]), *([f"{number} AS n"] if many else [])]
        more += [f"{pieces.call('min', own)} AS e"] if ordered and not alike else []
        shown, groups = ", ".join([*units, *keys, *more]), ", ".join(grouped([*units, *keys], bucket))
        pairs = f"SELECT {shown} FROM {with_bucket(rows, bucket)} GROUP BY {groups}"
    first = order if alike else "h"
    windows = [f"{pieces.call('row_number')} OVER (PARTITION BY {unit} {ascending(first, *keys)}) AS place"]
    windows += [f"{number} OVER (PARTITION BY {unit}) AS d"] if weighted else []
    smallest = f"{pieces.call('min', 'e')} OVER (PARTITION BY {unit})"
    windows += [f"{own if alike else smallest} AS g"] if ordered else []
    numbered = f"SELECT *, {', '.join(windows)} FROM ({pairs})"
    marked = [f"CASE WHEN {all_present(units)} THEN k0 END AS k0", *keys[1:], *["n"] * many, *["d"] * weighted]
    marked += [*units, "g", "place"] if ordered else ["place"] if placed else []
    return f"SELECT {', '.join(marked)} FROM ({numbered}) WHERE place <= {task.contribution.keys}"
