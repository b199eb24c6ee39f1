"""The values of row expressions: their kinds, columns, constants, comparisons and cases.

Kinds follow from the types of columns alone. `sql.row_writer` has the functions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from dpsieve.engines.sql.columns import AS_TEXT, Column, call, literal
from dpsieve.engines.sql.row_expressions import KEY, WHERE
from dpsieve.errors import InvalidType

TEXT, INTEGER, NUMBER, EXACT, BOOLEAN = "a text", "a whole number", "a number", "an exact number", "true or false"
DATE, TIME, INSTANT, OTHER, NULL = "a date", "a timestamp", "a timestamp with time zone", "another type", "NULL"
NUMBERS, TIMES = (INTEGER, NUMBER, EXACT), (DATE, TIME, INSTANT)
_KINDS = {
    **dict.fromkeys(AS_TEXT - {"HUGEINT", "NULL", '"NULL"'}, TEXT),
    **dict.fromkeys("TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER".split(), INTEGER),
    **dict.fromkeys(("UBIGINT", "HUGEINT", "DECIMAL"), EXACT),
    **dict.fromkeys(("FLOAT", "DOUBLE"), NUMBER),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), TIME),
    **{"BOOLEAN": BOOLEAN, "DATE": DATE, "TIMESTAMP WITH TIME ZONE": INSTANT},
}
# The type of a derived column of each kind: in DuckDB's words, in PostgreSQL's and in Spark's.
_TYPES = {
    TEXT: ("VARCHAR", "text", "STRING"),
    INTEGER: ("BIGINT", "bigint", "BIGINT"),
    NUMBER: ("DOUBLE", "double precision", "DOUBLE"),
    BOOLEAN: ("BOOLEAN", "boolean", "BOOLEAN"),
    DATE: ("DATE", "date", "DATE"),
    TIME: ("TIMESTAMP", "timestamp without time zone", "TIMESTAMP_NTZ"),
    INSTANT: ("TIMESTAMP WITH TIME ZONE", "timestamp with time zone", "TIMESTAMP"),
}
DIALECTS = ("duckdb", "postgres", "spark")
TARGETS = {
    **dict.fromkeys(("TEXT", "VARCHAR"), TEXT),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), INTEGER),
    **dict.fromkeys(("FLOAT", "DOUBLE"), NUMBER),
    **{"DATE": DATE, "TIMESTAMP": TIME, "TIMESTAMPNTZ": TIME, "TIMESTAMPTZ": INSTANT},
}
_COMPARISONS = {"EQ": "=", "NEQ": "<>", "GT": ">", "GTE": ">=", "LT": "<", "LTE": "<="}
_LONGEST, _MOST_SQL = 1_000, 60_000  # of a constant; of what is written


@dataclass(frozen=True)
class Value:
    """SQL text and the kind of its value; `constant` is the Python value of a constant."""

    sql: str
    kind: str
    constant: Any = None


def type_of(kind: str, dialect: str) -> str:
    """Return the type of a derived column of this kind."""
    return _TYPES[kind][DIALECTS.index(dialect)]


def kind_of(column: Column) -> str:
    """Return the kind of a column's values."""
    return OTHER if column.type.endswith("]") else _KINDS.get(column.kind, OTHER)


class RowValues:
    """Writes the values of one expression; a method per node of its tree."""

    def __init__(self, dialect: str, columns: Mapping[str, Column], argument: str) -> None:
        self.dialect, self.columns, self.argument = dialect, columns, argument
        self.duckdb, self.postgres, self.spark = (dialect == each for each in DIALECTS)

    def refuse(self, why: str, fix: str = "") -> InvalidType:
        fix = fix or "Convert it with CAST, or in a view of your own."
        return InvalidType(f"{self.argument} {why}. {fix}", argument="key" if self.argument == KEY else WHERE)

    def type(self, kind: str) -> str:
        """Return the type of a kind in the words of this engine."""
        return type_of(kind, self.dialect)

    def safe(self, sql: str) -> str:
        """Return an expression that is null where its value cannot be computed."""
        return f"TRY({sql})" if self.duckdb else f"({sql})"

    def call(self, name: str, *arguments: str) -> str:
        if self.duckdb:
            return call(name, *arguments)
        return f"{'pg_catalog' if self.postgres else 'system.builtin'}.{name}({', '.join(arguments)})"

    def cast(self, sql: str, kind: str) -> str:
        """Return a conversion that is null where it fails; in PostgreSQL, one that cannot fail."""
        return f"{'CAST' if self.postgres else 'TRY_CAST'}({sql} AS {kind})"

    def as_kind(self, value: Value, kind: str) -> str:
        return value.sql if value.kind == kind else self.cast(value.sql, self.type(kind))

    def wanted(self, node: Any, *kinds: str) -> Value:
        """Return the value of a node that has to be of one of these kinds."""
        value = self.value(node)
        if value.kind not in kinds:
            raise self.refuse(f"has {value.kind} where {' or '.join(kinds)} is needed")
        return value

    def number_in(self, node: Any, low: int, high: int) -> int:
        """Return a constant whole number."""
        value = self.value(node)
        if value.kind != INTEGER or value.constant is None or not low <= value.constant <= high:
            raise self.refuse(
                "has a position or length that is not a constant", f"Write a number from {low} to {high}."
            )
        return int(value.constant)

    def text_of(self, node: Any, least: int = 0) -> str:
        """Return a constant text."""
        value = self.value(node)
        if value.kind != TEXT or value.constant is None or len(value.constant) < least:
            raise self.refuse("has a text that is not a constant", "Write it in single quotes.")
        return str(value.constant)

    def value(self, node: Any) -> Value:
        """Return the SQL of a node, and its kind."""
        name = type(node).__name__
        if node is None:
            raise self.refuse("has a function or an operator without one of its arguments", "Write all of them.")
        if name in _COMPARISONS:
            return self._compared(_COMPARISONS[name], node.this, node.expression)
        made: Value = getattr(self, f"_{name.lower()}")(node)
        if len(made.sql) > _MOST_SQL:
            raise self.refuse("is too long when it is written out", "Nest fewer functions of dates.")
        return made

    def _paren(self, node: Any) -> Value:
        return self.value(node.this)

    def _column(self, node: Any) -> Value:
        column = self.columns[node.name]
        kind = kind_of(column)
        if self.duckdb and kind == TIME and column.kind != "TIMESTAMP":  # of another precision, hence another range
            return Value(self.cast(column.sql, self.type(TIME)), TIME)
        if kind != TEXT:
            return Value(column.sql, kind)
        if self.duckdb and column.kind == "VARCHAR":
            return Value(column.as_unit, TEXT)  # in UTF-8, on a connection of the user
        return Value(f"CAST({column.sql} AS {self.type(TEXT)})", TEXT)

    def _literal(self, node: Any) -> Value:
        if node.is_string:
            return self._text(str(node.this))
        try:
            number = int(node.this)
        except ValueError:
            number = None
        if number is not None:
            if not -(2**63) < number < 2**63:
                raise self.refuse("has a number beyond 64 bits")
            return Value(str(number), INTEGER, number)
        try:
            real = float(node.this)
        except ValueError:
            real = float("inf")
        if not abs(real) < 1e300:
            raise self.refuse("has a number that is too large")
        return Value(f"CAST('{real!r}' AS {self.type(NUMBER)})", NUMBER, real)

    def _text(self, text: str) -> Value:
        if len(text) > _LONGEST:
            raise self.refuse(f"has a text of more than {_LONGEST:,} characters")
        if self.spark:  # where settings decide what a backslash means
            return Value(f"CAST(X'{text.encode().hex()}' AS STRING)", TEXT, text)
        if self.postgres and "\\" in text:
            return Value("E" + literal(text.replace("\\", "\\\\")), TEXT, text)
        return Value(literal(text), TEXT, text)

    def _boolean(self, node: Any) -> Value:
        return Value("TRUE" if node.this else "FALSE", BOOLEAN)

    def _null(self, node: Any) -> Value:
        return Value("NULL", NULL)

    def _and(self, node: Any) -> Value:
        return self._joined("AND", node)

    def _or(self, node: Any) -> Value:
        return self._joined("OR", node)

    def _joined(self, word: str, node: Any) -> Value:
        sides = (self.wanted(side, BOOLEAN).sql for side in (node.this, node.expression))
        return Value(f"({f' {word} '.join(sides)})", BOOLEAN)

    def _not(self, node: Any) -> Value:
        return Value(f"(NOT {self.wanted(node.this, BOOLEAN).sql})", BOOLEAN)

    def _is(self, node: Any) -> Value:
        name = type(node.expression).__name__
        if name == "Null":
            return Value(f"({self.value(node.this).sql} IS NULL)", BOOLEAN)
        if name == "Boolean":
            tested = self.wanted(node.this, BOOLEAN).sql
            return Value(f"({tested} IS NOT NULL AND {tested} = {self._boolean(node.expression).sql})", BOOLEAN)
        raise self.refuse("has IS without NULL, TRUE or FALSE")

    def _compared(self, sign: str, left: Any, right: Any) -> Value:
        first, second = self._alike([self.value(left), self.value(right)])
        return Value(f"({first.sql} {sign} {second.sql})", BOOLEAN)

    def _between(self, node: Any) -> Value:
        value, low, high = self._alike([self.value(each) for each in (node.this, node.args["low"], node.args["high"])])
        return Value(f"({value.sql} >= {low.sql} AND {value.sql} <= {high.sql})", BOOLEAN)

    def _in(self, node: Any) -> Value:
        value, *others = self._alike([self.value(each) for each in (node.this, *node.expressions)])
        if any(other.constant is None for other in others):
            raise self.refuse("has a list of something else than constants", "List constants, such as ('DE', 'FR').")
        return Value(f"({value.sql} IN ({', '.join(other.sql for other in others)}))", BOOLEAN)

    def _alike(self, values: list[Value], null: bool = False) -> list[Value]:
        """Return values of one kind; constant texts become dates and times where the others are."""
        kinds = {value.kind for value in values if value.constant is None} or {value.kind for value in values}
        if len(times := kinds & set(TIMES)) == 1 and kinds <= {*times, NULL}:
            values = [self._moment(value, *times) if value.kind == TEXT else value for value in values]
        kinds = {value.kind for value in values} - ({NULL} if null else set())
        if len(kinds) == 1 and not kinds & {OTHER, NULL}:
            return values
        if self.postgres and {EXACT, NUMBER} <= kinds <= set(NUMBERS):
            return [self._exactly(value) if value.kind == NUMBER else value for value in values]
        if kinds and kinds <= set(NUMBERS):
            return values
        raise self.refuse(f"compares or joins {' and '.join(sorted(kinds))}")

    def _exactly(self, value: Value) -> Value:
        """Return a constant as an exact number: PostgreSQL would convert exact numbers, and fail at a large one."""
        if value.constant is None:
            raise self.refuse("compares or joins exact numbers with others")
        return Value(f"CAST('{value.constant!r}' AS numeric)", EXACT, value.constant)

    def _moment(self, value: Value, kind: str) -> Value:
        """Return a constant text as a date or time."""
        try:
            moment = datetime.fromisoformat(str(value.constant))
            if kind == DATE:
                text = date.fromisoformat(str(value.constant)).isoformat()
            elif kind == TIME and moment.tzinfo is None:
                text = moment.isoformat(sep=" ")
            elif kind == INSTANT:
                zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
                text = zoned.astimezone(UTC).isoformat(sep=" ")
            else:
                raise ValueError
        except (ValueError, OverflowError):
            fix = "Write it as '2024-05-01', or '2024-05-01 12:00:00'."
            raise self.refuse(f"has a text that is not {kind}", fix) from None
        return Value(f"CAST('{text}' AS {self.type(kind)})", kind, moment)

    def _like(self, node: Any) -> Value:
        text, pattern = self.wanted(node.this, TEXT).sql, self.text_of(node.expression)
        if "\\" in pattern:
            raise self.refuse("has a backslash in a pattern", "Leave it out: engines differ in what it means.")
        shown = self._text(pattern).sql
        sql = call("~~", text, shown) if self.duckdb else f"{self._bytewise(text)} LIKE {shown}"
        return Value(f"(NOT ({sql}))" if node.args.get("negate") else f"({sql})", BOOLEAN)

    def _bytewise(self, text: str) -> str:
        """Return a text without a collation under which PostgreSQL does not search."""
        return f'({text} COLLATE "C")' if self.postgres else text

    def _case(self, node: Any) -> Value:
        conditions, values = [], []
        for branch in node.args["ifs"]:
            tested = (
                self.wanted(branch.this, BOOLEAN) if node.this is None else self._compared("=", node.this, branch.this)
            )
            conditions.append(tested.sql)
            values.append(self.value(branch.args["true"]))
        default = node.args.get("default")
        values.append(Value("NULL", NULL) if default is None else self.value(default))
        return self._chosen(conditions, values)

    def _if(self, node: Any) -> Value:
        default = node.args.get("false")
        values = [self.value(node.args["true"]), Value("NULL", NULL) if default is None else self.value(default)]
        return self._chosen([self.wanted(node.this, BOOLEAN).sql], values)

    def _chosen(self, conditions: list[str], values: list[Value]) -> Value:
        values, kind = self._one_kind(values)
        branches = " ".join(f"WHEN {c} THEN {v.sql}" for c, v in zip(conditions, values, strict=False))
        return Value(f"(CASE {branches} ELSE {values[-1].sql} END)", kind)

    def _one_kind(self, values: list[Value]) -> tuple[list[Value], str]:
        """Return values that may stand for each other, and their kind."""
        values = self._alike(values, null=True)
        kinds = {value.kind for value in values} - {NULL}
        if len(kinds) > 1:
            if self.postgres and EXACT in kinds:
                raise self.refuse("joins exact numbers with others")
            values = [value if value.kind == NULL else Value(self.as_kind(value, NUMBER), NUMBER) for value in values]
            kinds = {NUMBER}
        return values, kinds.pop()

    def _coalesce(self, node: Any) -> Value:
        values, kind = self._one_kind([self.value(each) for each in (node.this, *node.expressions)])
        return Value(f"COALESCE({', '.join(value.sql for value in values)})", kind)

    def _nullif(self, node: Any) -> Value:
        value, other = self._alike([self.value(node.this), self.value(node.expression)])
        return Value(f"(CASE WHEN {value.sql} = {other.sql} THEN NULL ELSE {value.sql} END)", value.kind)
