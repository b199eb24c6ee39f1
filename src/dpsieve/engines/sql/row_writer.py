"""Write row expressions for an engine, given the types of the columns; see `sql.row_expressions`.

Each value has a kind, decided by the schema alone, and kinds are never converted silently: 'age > 18' where age is a
text is refused, as an engine would convert every row and fail at the first that is no number. What can fail on a row is
null there. DuckDB has TRY for that, Spark try_add and try_cast, and PostgreSQL nothing: there arithmetic and casts that
can fail are refused. Dates and times are computed with in the years 1 to 9999, and are null outside.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from dpsieve.engines.sql.columns import AS_TEXT, Column, call, literal
from dpsieve.engines.sql.row_expressions import KEY, WHERE, RowExpressions
from dpsieve.errors import InvalidType, InvalidValue

TEXT, INTEGER, NUMBER, EXACT, BOOLEAN = "text", "a whole number", "a number", "an exact number", "true or false"
DATE, TIME, INSTANT, OTHER, NULL = "a date", "a timestamp", "a timestamp with time zone", "another type", "NULL"
_NUMBERS, _TIMES = (INTEGER, NUMBER, EXACT), (DATE, TIME, INSTANT)
_KINDS = {
    **dict.fromkeys(AS_TEXT - {"HUGEINT", "NULL", '"NULL"'}, TEXT),
    **dict.fromkeys("TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER".split(), INTEGER),
    **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT", "DECIMAL"), EXACT),
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
_DIALECTS = ("duckdb", "postgres", "spark")
_TARGETS = {
    **dict.fromkeys(("TEXT", "VARCHAR"), TEXT),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), INTEGER),
    **dict.fromkeys(("FLOAT", "DOUBLE"), NUMBER),
    **{"DATE": DATE, "TIMESTAMP": TIME, "TIMESTAMPNTZ": TIME, "TIMESTAMPTZ": INSTANT},
}
_DAYS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY")
_HOURS = ("HOUR", "MINUTE")
_COMPARISONS = {"EQ": "=", "NEQ": "<>", "GT": ">", "GTE": ">=", "LT": "<", "LTE": "<="}
_ARITHMETIC = {"Add": ("+", "try_add"), "Sub": ("-", "try_subtract"), "Mul": ("*", "try_multiply")}
_LONGEST, _MOST_SQL = 1_000, 60_000  # of a constant; of what is written


@dataclass(frozen=True)
class Value:
    """SQL text and the kind of its value; `constant` is the Python value of a constant."""

    sql: str
    kind: str
    constant: Any = None


def derived_types(dialect: str) -> Callable[[str], str]:
    """Return the function from a kind to the type of a derived column."""
    place = _DIALECTS.index(dialect)
    return lambda kind: _TYPES[kind][place]


def write_rows(
    dialect: str, expressions: RowExpressions, columns: Mapping[str, Column]
) -> tuple[str, dict[str, tuple[str, str]]]:
    """Return the condition (empty for none), and the SQL and the type of each derived column, by its name.

    Args:
        dialect: 'duckdb', 'postgres' or 'spark'.
        expressions: what to write.
        columns: the columns that they read, as the engine writes them, with their types in DuckDB's words.
    """
    where, derived = "", {}
    if expressions.condition is not None:
        writer = _Writer(dialect, columns, WHERE)
        where = writer.safe(writer.wanted(expressions.condition, BOOLEAN).sql)
    for name, tree in expressions.derived.items():
        writer = _Writer(dialect, columns, KEY)
        value = writer.value(tree)
        if value.kind == EXACT and dialect != "postgres":
            value = Value(value.sql, NUMBER)
        if value.kind not in _TYPES:
            raise writer.refuse(f"is {value.kind}, which cannot be a key")
        kind = derived_types(dialect)(value.kind)
        derived[name] = writer.safe(writer.cast(value.sql, kind)), kind
    return where, derived


class _Writer:
    def __init__(self, dialect: str, columns: Mapping[str, Column], argument: str) -> None:
        self.dialect, self.columns, self.argument = dialect, columns, argument
        self.duckdb, self.postgres, self.spark = (dialect == each for each in _DIALECTS)

    def refuse(self, why: str, fix: str = "") -> InvalidType:
        fix = fix or "Convert it with CAST, or in a view of your own."
        return InvalidType(f"{self.argument} {why}. {fix}", argument="key" if self.argument == KEY else WHERE)

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
        return value.sql if value.kind == kind else self.cast(value.sql, derived_types(self.dialect)(kind))

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
            raise self.refuse("has a position or length that is not a constant", f"Write a number from {low} to {high}.")
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
        if name in _COMPARISONS:
            return self._compared(_COMPARISONS[name], node.this, node.expression)
        if name in _ARITHMETIC or name in ("Div", "Mod", "Neg", "Floor", "Ceil", "Abs", "Round"):
            return self._computed(name, node)
        if name.upper() in (*_DAYS, *_HOURS):
            return self._part(name.upper(), node.this)
        made: Value = getattr(self, f"_{name.lower()}")(node)
        if len(made.sql) > _MOST_SQL:
            raise self.refuse("is too long when it is written out", "Nest fewer functions of dates.")
        return made

    def _paren(self, node: Any) -> Value:
        return self.value(node.this)

    def _column(self, node: Any) -> Value:
        column = self.columns[node.name]
        kind = OTHER if column.type.endswith("]") else _KINDS.get(column.kind, OTHER)
        if kind != TEXT:
            return Value(column.sql, kind)
        if self.duckdb and column.kind == "VARCHAR":
            return Value(column.as_unit, TEXT)  # in UTF-8, on a connection of the user
        return Value(f"CAST({column.sql} AS {_TYPES[TEXT][_DIALECTS.index(self.dialect)]})", TEXT)

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
        return Value(f"CAST('{real!r}' AS {_TYPES[NUMBER][_DIALECTS.index(self.dialect)]})", NUMBER, real)

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
        if len(times := kinds & set(_TIMES)) == 1 and kinds <= {*times, NULL}:
            values = [self._moment(value, *times) if value.kind == TEXT else value for value in values]
        kinds = {value.kind for value in values} - ({NULL} if null else set())
        if len(kinds) == 1 and not kinds & {OTHER, NULL}:
            return values
        if kinds and kinds <= set(_NUMBERS):
            return values
        raise self.refuse(f"compares or joins {' and '.join(sorted(kinds))}")

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
        return Value(f"CAST('{text}' AS {derived_types(self.dialect)(kind)})", kind, moment)

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
                self.wanted(branch.this, BOOLEAN)
                if node.this is None
                else self._compared("=", node.this, branch.this)
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

    def _trycast(self, node: Any) -> Value:
        return self._cast(node)

    def _cast(self, node: Any) -> Value:
        kind, value = _TARGETS.get(node.args["to"].this.name), self.value(node.this)
        if kind is None:
            raise self.refuse("converts to a type that is not supported", "Use VARCHAR, BIGINT, DOUBLE, DATE or TIMESTAMP.")
        if value.kind in (OTHER, NULL) or (value.kind == BOOLEAN and kind not in (TEXT, INTEGER)):
            raise self.refuse(f"converts {value.kind} to {kind}", "Use another column, or a view of your own.")
        if value.constant is not None and value.kind == TEXT and kind in _TIMES:
            return self._moment(value, kind)
        if value.kind == kind:
            return value
        if self.postgres:
            return Value(self._cast_surely(value, kind), kind)
        number = value.kind in _NUMBERS and kind in _TIMES
        if number or (value.kind in _TIMES and kind in _NUMBERS):
            raise self.refuse(f"converts {value.kind} to {kind}", "Use date_trunc or extract.")
        return Value(self.cast(value.sql, derived_types(self.dialect)(kind)), kind)

    def _cast_surely(self, value: Value, kind: str) -> str:
        """Return a conversion that never fails, for PostgreSQL, which has no other."""
        pair = (value.kind, kind)
        if pair == (BOOLEAN, INTEGER):
            return f"CAST(CAST({value.sql} AS integer) AS bigint)"
        if kind == TEXT or pair in ((INTEGER, NUMBER), (TIME, DATE), (INSTANT, DATE), (INSTANT, TIME)):
            sql = value.sql if kind not in _TIMES else self._in_years(value, value.sql)
            return self.cast(sql, derived_types("postgres")(kind))
        if pair == (DATE, TIME):
            return self._in_years(value, self.cast(value.sql, derived_types("postgres")(TIME)))
        why = f"converts {value.kind} to {kind}, which PostgreSQL cannot without failing on some rows"
        raise self.refuse(why, "Convert it in a view, for example with a CASE that checks it first.")

    def _in_years(self, value: Value, sql: str) -> str:
        """Return an expression of a date or time in the years 1 to 9999; null outside, where engines may fail."""
        kind = derived_types(self.dialect)(value.kind)
        zone = "+00:00" if value.kind == INSTANT else ""
        first, last = ("0001-01-02", "9999-12-30") if value.kind == DATE else (
            f"0001-01-02 00:00:00{zone}", f"9999-12-30 00:00:00{zone}")  # fmt: skip
        inside = f"{value.sql} >= CAST('{first}' AS {kind}) AND {value.sql} <= CAST('{last}' AS {kind})"
        return f"(CASE WHEN {inside} THEN {sql} END)"

    def _timestamptrunc(self, node: Any) -> Value:
        unit, value = str(node.args["unit"].name).upper(), self.wanted(node.this, *_TIMES)
        if unit not in (*_DAYS, *_HOURS, "SECOND") or (value.kind == DATE and unit not in _DAYS):
            raise self.refuse("has a part of time that is not supported", f"Use {', '.join(_DAYS).lower()}, hour, minute.")
        time = derived_types(self.dialect)(TIME)
        moment = value.sql if value.kind != DATE else self.cast(value.sql, time)
        if self.spark:
            moment = self.cast(moment, "TIMESTAMP")
        sql = self.call("date_trunc", self._text(unit.lower()).sql, moment)
        if value.kind == DATE or self.spark:
            sql = self.cast(sql, derived_types(self.dialect)(value.kind))
        return Value(self._in_years(value, sql), value.kind)

    def _extract(self, node: Any) -> Value:
        return self._part(str(node.name).upper(), node.expression)

    def _part(self, unit: str, node: Any) -> Value:
        value = self.wanted(node, *_TIMES)
        if unit not in (*_DAYS, *_HOURS) or (value.kind == DATE and unit in _HOURS):
            raise self.refuse("has a part of time that is not supported", f"Use {', '.join((*_DAYS, *_HOURS)).lower()}.")
        part = self.call("date_part", self._text(unit.lower()).sql, value.sql)
        return Value(self._in_years(value, self.cast(part, derived_types(self.dialect)(INTEGER))), INTEGER)

    def _lower(self, node: Any) -> Value:
        return Value(self.call("lower", self.wanted(node.this, TEXT).sql), TEXT)

    def _upper(self, node: Any) -> Value:
        return Value(self.call("upper", self.wanted(node.this, TEXT).sql), TEXT)

    def _length(self, node: Any) -> Value:
        return Value(self.cast(self.call("length", self.wanted(node.this, TEXT).sql), "BIGINT"), INTEGER)

    def _trim(self, node: Any) -> Value:
        side = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""), "")
        name = side or ("btrim" if self.postgres else "trim")
        return Value(self.call(name, self.wanted(node.this, TEXT).sql), TEXT)

    def _dpipe(self, node: Any) -> Value:
        sides = [self.wanted(side, TEXT).sql for side in (node.this, node.expression)]
        return Value(call("||", *sides) if self.duckdb else f"({' || '.join(sides)})", TEXT)

    def _left(self, node: Any) -> Value:
        return self._cut(node.this, 1, self.number_in(node.expression, 0, 10**6))

    def _substring(self, node: Any) -> Value:
        length = node.args.get("length")
        cut = None if length is None else self.number_in(length, 0, 10**6)
        return self._cut(node.this, self.number_in(node.args["start"], 1, 10**6), cut)

    def _cut(self, node: Any, start: int, length: int | None) -> Value:
        more = () if length is None else (str(length),)
        return Value(self.call("substring", self.wanted(node, TEXT).sql, str(start), *more), TEXT)

    def _replace(self, node: Any) -> Value:
        old, new = self.text_of(node.expression, 1), self.text_of(node.args["replacement"])
        if len(new.encode()) > len(old.encode()):
            raise self.refuse("replaces a text by a longer one", "Use CASE, or a view: long values could fail.")
        text = self._bytewise(self.wanted(node.this, TEXT).sql)
        return Value(self.call("replace", text, self._text(old).sql, self._text(new).sql), TEXT)

    def _splitpart(self, node: Any) -> Value:
        delimiter, place = self.text_of(node.args["delimiter"], 1), self.number_in(node.args["part_index"], 1, 1000)
        text = self._bytewise(self.wanted(node.this, TEXT).sql)
        return Value(self.call("split_part", text, self._text(delimiter).sql, str(place)), TEXT)

    def _startswith(self, node: Any) -> Value:
        text, start = self._bytewise(self.wanted(node.this, TEXT).sql), self._text(self.text_of(node.expression)).sql
        return Value(self.call("startswith" if self.spark else "starts_with", text, start), BOOLEAN)

    def _contains(self, node: Any) -> Value:
        text, inside = self._bytewise(self.wanted(node.this, TEXT).sql), self._text(self.text_of(node.expression)).sql
        if self.postgres:
            return Value(f"({self.call('strpos', text, inside)} > 0)", BOOLEAN)
        return Value(self.call("contains", text, inside), BOOLEAN)

    def _computed(self, name: str, node: Any) -> Value:
        if name == "Neg" and (value := self.value(node.this)).constant is not None and value.kind in _NUMBERS:
            negative = -value.constant
            sql = f"({negative})" if value.kind == INTEGER else f"({value.sql.replace(chr(39), chr(39) + '-', 1)})"
            return Value(sql, value.kind, negative)
        if self.postgres:
            why = "computes with numbers, which PostgreSQL cannot without failing on some rows"
            raise self.refuse(why, "Compute it in a view, for example with a CASE that checks it first.")
        one = self.wanted(node.this, *_NUMBERS)
        if name in ("Floor", "Ceil", "Abs", "Round", "Neg"):
            double = self.as_kind(one, NUMBER)
            if name == "Neg":
                return Value(call("-", double) if self.duckdb else f"(-{double})", NUMBER)
            decimals = node.args.get("decimals") if name == "Round" else None
            more = () if decimals is None else (str(self.number_in(decimals, 0, 9)),)
            return Value(self.as_kind(Value(self.call(name.lower(), double, *more), ""), NUMBER), NUMBER)
        other = self.wanted(node.expression, *_NUMBERS)
        kind = INTEGER if one.kind == other.kind == INTEGER and name != "Div" else NUMBER
        left, right = self.cast(one.sql, self._type(kind)), self.cast(other.sql, self._type(kind))
        if name in ("Div", "Mod"):
            right = f"(CASE WHEN {right} = 0 THEN NULL ELSE {right} END)"
            sign = "/" if name == "Div" else "%"
            return Value(call(sign, left, right) if self.duckdb else f"({left} {sign} {right})", kind)
        sign, attempt = _ARITHMETIC[name]
        return Value(call(sign, left, right) if self.duckdb else self.call(attempt, left, right), kind)

    def _type(self, kind: str) -> str:
        return derived_types(self.dialect)(kind)

