"""The SQL text of `sql.queries` for other engines, transpiled by sqlglot.

Quoting, types and standard functions are sqlglot's part. What it cannot know is in `_DIALECTS`: the number that orders
the keys of a unit, and how equal values are written in one way. The pieces are read as DuckDB's SQL too; functions it
does not have are passed on as they are.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dpsieve.engines.engine import Aggregation, Columns
from dpsieve.engines.sql.columns import AS_TEXT, Column, quoted
from dpsieve.engines.sql.queries import Pieces, bounded_query
from dpsieve.errors import DpsieveError, InvalidType


@dataclass(frozen=True)
class _Dialect(Pieces):
    """What differs between dialects beyond grammar.

    Attributes:
        order: a number of the salt, the unit and the key alone that is as likely to be the smallest for each key of a
            unit, and independent between units. Where values become one text, different values become different texts.
        spelled: how values `{x}` of a type are written, so that those that compare as equal look the same. That of
            VARCHAR serves all that becomes text, and compares bytes whatever the collation of the column.
        collated_units: units that a collation calls equal have equal hashes.
        distinct_on: it has DISTINCT ON, and that is fast.
        numbers: how a number `{x}` of a type is written as a double, where a cast alone could fail for some values.
        structs: there are structs, and the least of them is found without a sort of all rows.
        sum: the sum that does not stop the query where it does not fit 64 bits: such a key is recognised by its count.
        builtin: what is written before the name of a function, so that it means the engine's own.
    """

    order: str
    spelled: Mapping[str, str]
    collated_units: bool = False
    distinct_on: bool = False
    structs: bool = False
    sum: str = "sum"
    builtin: tuple[str, ...] = ()
    numbers: Mapping[str, str] = field(default_factory=dict)

    def call(self, name: str, *arguments: str) -> str:
        return f"{name}({', '.join(arguments)})" if name.isidentifier() else f"({f' {name} '.join(arguments)})"

    def field(self, name: str) -> str:
        return f"s.{name}"

    def bucket(self, salt: int, names: list[str], kinds: list[str]) -> None:
        """Return None: databases group by hashes of their own, or sort."""

    def choice(self, salt: int, units: list[str], keys: list[str]) -> str:
        return self.order.format(salt=salt, unit=", ".join(units or ["0"]), key=", ".join(keys or ["0"]))

    def capped(self, most: int) -> str:
        return f"CASE WHEN n > {most} THEN {most} ELSE n END"

    def weight(self, weights: tuple[int, ...], above: int = 0) -> str:
        """Return the weight of `d` by bisection; `above` is how many weights come before the first of these."""
        if weights[0] == weights[-1]:  # they never increase
            return str(weights[0])
        half = len(weights) // 2
        low, high = self.weight(weights[:half], above), self.weight(weights[half:], above + half)
        return f"CASE WHEN d <= {above + half} THEN {low} ELSE {high} END"


def _floats(text: str) -> dict[str, str]:
    return {kind: text.replace("{kind}", kind) for kind in ("FLOAT", "DOUBLE")}


SALT = "dpsieve.salt"
BUILTIN = ("system", "builtin")  # of Spark: a session may resolve its temporary functions first
_NAN_EQUALS_ITSELF = _floats("CASE WHEN {x} = 'nan' THEN 'nan'::{kind} ELSE {x} + 0::{kind} END")
_ISNAN = _floats("CASE WHEN isnan({x}) THEN 'nan'::{kind} ELSE {x} + 0::{kind} END")
# Casts to double precision fail where a number is too large, or too small, for one.
_EXACT_NUMBER = (
    "CASE WHEN CAST({x} AS VARCHAR) NOT IN ('NaN', 'Infinity', '-Infinity') THEN "
    "CAST(round(least(greatest({x}, -1000000000000000000000), 1000000000000000000000), 30) AS DOUBLE) END"
)
_DIALECTS = {
    # Equal units have equal hashes, whatever their type and collation. Not so the keys: the hash of a record of both
    # would be a sum of their hashes and favour the same keys in all units. A numeric may keep zeros at its end, and may
    # be NaN: it is a text, so that its type is the same for all values.
    "postgres": _Dialect(
        f"hashtextextended(CAST(ROW(current_setting('{SALT}'), {{key}}) AS VARCHAR) "
        """COLLATE "C", hash_record_extended(ROW({unit}), CAST(0 AS BIGINT)))""",
        _NAN_EQUALS_ITSELF
        | {
            "VARCHAR": 'CAST({x} AS VARCHAR) COLLATE "C"',
            "DECIMAL": 'CAST(trim_scale({x}) AS VARCHAR) COLLATE "C"',
        },
        collated_units=True,
        distinct_on=True,
        builtin=("pg_catalog",),
        numbers={"DECIMAL": _EXACT_NUMBER, "BOOLEAN": "CAST(CAST({x} AS INTEGER) AS DOUBLE)"},
    ),
    # Each value is hashed with the hash of those before it as the seed. A cast to text drops a collation.
    "spark": _Dialect(
        "xxhash64('{salt}', {unit}, {key})",
        _ISNAN | {"VARCHAR": "CAST({x} AS VARCHAR)"},
        structs=True,
        sum="try_sum",
        builtin=BUILTIN,
    ),
}
DIALECTS = tuple(_DIALECTS)

# sqlglot's names of DuckDB's types, where `Column.type` has others.
_KINDS = {"TEXT": "VARCHAR", "REAL": "FLOAT", "INT": "INTEGER", "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE"}


@dataclass(frozen=True)
class _OtherColumn(Column):
    """A column of another engine."""

    spelled: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)

    @property
    def as_number(self) -> str:
        return self.numbers.get(self.kind, "TRY_CAST({x} AS DOUBLE)").replace("{x}", self.sql)

    @property
    def as_key(self) -> str:
        kind = "VARCHAR" if self.kind in AS_TEXT else self.kind
        return self.spelled.get(kind, "{x}").replace("{x}", self.sql)

    @property
    def as_unit(self) -> str:
        """Numbers as keys, so that equal units have equal hashes. Other units that the engine calls equal stay one."""
        return self.sql if self.kind in AS_TEXT | {"BLOB"} else self.as_key


def query_for(
    dialect: str,
    table: tuple[str, ...],
    types: Mapping[str, str],
    task: Aggregation,
    known: tuple[str, ...] | None = None,
    query: Callable[..., str] = bounded_query,
    salt: str | None = None,
) -> str:
    """Return the query that bounds and aggregates a table of another engine (see `sql.queries`).

    The salt is in no text of a query: PostgreSQL reads it from the setting SALT, Spark from the table `salt`.

    Args:
        dialect: one of DIALECTS.
        table: the parts of its name, such as ('public', 'searches').
        types: the type of each column by its name, in the words of the engine, with the COLLATE clause if it has one.
        task: what is aggregated.
        known: the parts of the name of a table of public keys, with the columns k0, k1, ..., as `as_key` writes them
            and without a collation of their own, and i.
        query: what is asked: `bounded_query`, or a function of the same arguments.
        salt: the name of a table of one text, `s`, that is the salt, so that it is not in the query.

    >>> from dpsieve.engines.engine import Columns
    >>> from dpsieve.privacy.guarantee import Contribution
    >>> task = Aggregation(Columns(("query",), ("user",)), Contribution(keys=2), salt=7)
    >>> text = query_for("spark", ("logs", "searches"), {"user": "bigint", "query": "string"}, task)
    >>> "ORDER BY system.builtin.xxhash64('7', u0, k0)" in text and "FROM `logs`.`searches`" in text
    True
    """
    import sqlglot  # slow to import, and DuckDB does without
    from sqlglot import exp

    columns = columns_for(dialect, types, task.columns, texts=True)  # refused before, where it is not a file
    pieces = _DIALECTS[dialect]
    if salt is not None:
        pieces = replace(pieces, order=pieces.order.replace("'{salt}'", f"(SELECT s FROM {_dotted((salt,))})"))
    text = query(_dotted(table), columns, task, None if known is None else _dotted(known), pieces)
    tree = sqlglot.parse_one(text, read="duckdb")
    for number, inner in enumerate(tree.find_all(exp.Subquery)):
        if isinstance(inner.parent, exp.From | exp.Join):  # some engines want a name for each
            inner.set("alias", exp.TableAlias(this=exp.to_identifier(f"q{number}")))
    meant = _bounding(tree)
    # Trees are not copied before they are written: one with a list of ten thousand weights takes long to copy.
    written = tree.sql(dialect=dialect, unsupported_level=sqlglot.ErrorLevel.RAISE, copy=False)
    # Privacy rests on it: there were versions of sqlglot that left out an argument.
    if _bounding(sqlglot.parse_one(written, read=dialect)) != meant:
        hint = "Install the version of it that constraints.txt names."
        raise DpsieveError(f"This version of sqlglot changes what the query for {dialect} means. {hint}")
    return _with_builtins(tree, pieces.builtin).sql(dialect=dialect, copy=False) if pieces.builtin else written


def columns_for(dialect: str, types: Mapping[str, str], wanted: Columns, *, texts: bool = False) -> dict[str, Column]:
    """Return the wanted columns of a table as the query writes them, by name; see `query_for` for the arguments.

    With `texts`, as in a file of text, text may be read as numbers.
    """
    pieces = _DIALECTS[dialect]
    replace(wanted, rows=None).check_present(types, listed=True)
    columns = table_columns(dialect, types, wanted.names)
    for total in wanted.totals:
        columns[total.column].check_number(texts=texts, argument=total.argument)
    for name in wanted.key:
        columns[name].check_key()
    for unit in wanted.unit:
        if "COLLATE" in types[unit].upper().split() and not pieces.collated_units:
            why = f"privacy_unit={unit!r} has a collation, which {dialect} does not hash by"
            fix = "Pass a view that writes equal units in one way, such as in lower case, without a collation."
            raise InvalidType(f"{why}. {fix}", argument="privacy_unit")
    return columns


def table_columns(dialect: str, types: Mapping[str, str], names: Iterable[str]) -> dict[str, Column]:
    """Return some columns of a table as the query writes them, whatever their types."""
    pieces = _DIALECTS[dialect]
    return {
        name: _OtherColumn(
            name, quoted(name), _duckdb_type(dialect, types[name]), False, pieces.spelled, pieces.numbers
        )
        for name in names
    }


def _with_builtins(tree: Any, parts: tuple[str, ...]) -> Any:
    """Write the names of functions in full. What has a grammar of its own is no function, and cannot be replaced."""
    from sqlglot import exp

    grammar: Any = exp.And | exp.Or | exp.Case | exp.Cast | exp.Collate | exp.If | exp.Struct
    if parts == ("pg_catalog",):
        grammar |= exp.Least | exp.Greatest
    for node in list(tree.find_all(exp.Func)):
        if not isinstance(node, grammar) and node.name.upper() != "ROW":
            place = exp.Placeholder()
            node.replace(place)
            named: exp.Expression = node
            for part in reversed(parts):
                named = exp.Dot(this=exp.to_identifier(part), expression=named)
            place.replace(named)
    return tree


def _bounding(tree: Any) -> list[str]:
    """Return what bounds a unit, as text that does not depend on the dialect."""
    from sqlglot import exp

    nodes = tree.find_all(exp.Distinct, exp.Group, exp.Is, exp.LTE, exp.Sum, exp.Window, exp.Anonymous)
    nodes = (node for node in nodes if type(node) is not exp.Anonymous or node.name.lower() == "try_sum")
    parts = [
        part for node in nodes for part in (node.args.get("partition_by") or [] if type(node) is exp.Window else [node])
    ]
    return [part.sql(copy=False) for part in parts]


def _duckdb_type(dialect: str, name: str) -> str:
    from sqlglot import ParseError, exp

    try:
        found = exp.DataType.build(name, dialect=dialect).sql("duckdb")
    except ParseError:
        return name
    kind, bracket, rest = found.partition("(")
    return _KINDS.get(kind, kind) + bracket + rest


def _dotted(parts: tuple[str, ...]) -> str:
    return ".".join(map(quoted, parts))
