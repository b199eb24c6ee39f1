"""Write row expressions for an engine, or apply them to a Spark DataFrame; see `sql.row_expressions`.

Each value has a kind, decided by the schema alone, and kinds are never converted silently: 'age > 18' where age is a
text is refused, as an engine would convert every row and fail at the first that is no number. What can fail on a row is
null there. DuckDB has TRY for that, Spark try_add and try_cast, and PostgreSQL nothing: there arithmetic and casts that
can fail are refused. Dates and times are computed with in the years 1 to 9999, and are null outside.
"""

from collections.abc import Mapping
from typing import Any

from dpsieve.engines.engine import Columns
from dpsieve.engines.sql.columns import Column, call
from dpsieve.engines.sql.dialects import table_columns
from dpsieve.engines.sql.row_expressions import KEY, WHERE, RowExpressions
from dpsieve.engines.sql.row_values import (
    BOOLEAN,
    DATE,
    EXACT,
    INSTANT,
    INTEGER,
    NULL,
    NUMBER,
    NUMBERS,
    OTHER,
    TARGETS,
    TEXT,
    TIME,
    TIMES,
    RowValues,
    Value,
    type_of,
)  # fmt: skip

_DAYS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY")
_HOURS = ("HOUR", "MINUTE")
_ARITHMETIC = {"Add": ("+", "try_add"), "Sub": ("-", "try_subtract"), "Mul": ("*", "try_multiply")}


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
        if value.kind in (EXACT, OTHER, NULL):
            raise writer.refuse(f"is {value.kind}, which cannot be a key")
        kind = type_of(value.kind, dialect)
        derived[name] = writer.safe(writer.cast(value.sql, kind)), kind
    return where, derived


class _Writer(RowValues):
    def value(self, node: Any) -> Value:
        name = type(node).__name__
        if name in (*_ARITHMETIC, "Div", "Mod", "Neg", "Floor", "Ceil", "Abs", "Round"):
            return self._computed(name, node)
        if name.upper() in (*_DAYS, *_HOURS):
            return self._part(name.upper(), node.this)
        return super().value(node)

    def _trycast(self, node: Any) -> Value:
        return self._cast(node)

    def _cast(self, node: Any) -> Value:
        kind, value = TARGETS.get(node.args["to"].this.name), self.value(node.this)
        if kind is None:
            raise self.refuse(
                "converts to a type that is not supported", "Use VARCHAR, BIGINT, DOUBLE, DATE or TIMESTAMP."
            )
        if value.kind in (OTHER, NULL) or (value.kind == BOOLEAN and kind not in (TEXT, INTEGER)):
            raise self.refuse(f"converts {value.kind} to {kind}", "Use another column, or a view of your own.")
        if value.constant is not None and value.kind == TEXT and kind in TIMES:
            return self._moment(value, kind)
        if value.kind == kind:
            return value
        if self.postgres:
            return Value(self._cast_surely(value, kind), kind)
        number = value.kind in NUMBERS and kind in TIMES
        if number or (value.kind in TIMES and kind in NUMBERS):
            raise self.refuse(f"converts {value.kind} to {kind}", "Use date_trunc or extract.")
        return Value(self.cast(value.sql, self.type(kind)), kind)

    def _cast_surely(self, value: Value, kind: str) -> str:
        """Return a conversion that never fails, for PostgreSQL, which has no other."""
        pair = (value.kind, kind)
        if pair == (BOOLEAN, INTEGER):
            return f"CAST(CAST({value.sql} AS integer) AS bigint)"
        if kind == TEXT or pair in ((INTEGER, NUMBER), (TIME, DATE), (INSTANT, DATE), (INSTANT, TIME)):
            sql = value.sql if kind not in TIMES else self._in_years(value, value.sql)
            return self.cast(sql, self.type(kind))
        if pair == (DATE, TIME):
            return self._in_years(value, self.cast(value.sql, self.type(TIME)))
        why = f"converts {value.kind} to {kind}, which PostgreSQL cannot without failing on some rows"
        raise self.refuse(why, "Convert it in a view, for example with a CASE that checks it first.")

    def _in_years(self, value: Value, sql: str) -> str:
        """Return an expression of a date or time in the years 1 to 9999; null outside, where engines may fail."""
        kind = self.type(value.kind)
        zone = "+00:00" if value.kind == INSTANT else ""
        first, last = ("0001-01-02", "9999-12-30") if value.kind == DATE else (
            f"0001-01-02 00:00:00{zone}", f"9999-12-30 00:00:00{zone}")  # fmt: skip
        inside = f"{value.sql} >= CAST('{first}' AS {kind}) AND {value.sql} <= CAST('{last}' AS {kind})"
        return f"(CASE WHEN {inside} THEN {sql} END)"

    def _timestamptrunc(self, node: Any) -> Value:
        unit, value = str(node.args["unit"].name).upper(), self.wanted(node.this, *TIMES)
        if unit not in (*_DAYS, *_HOURS, "SECOND") or (value.kind == DATE and unit not in _DAYS):
            raise self.refuse(
                "has a part of time that is not supported", f"Use {', '.join(_DAYS).lower()}, hour, minute."
            )
        time = self.type(TIME)
        moment = value.sql if value.kind != DATE else self.cast(value.sql, time)
        if self.spark:
            moment = self.cast(moment, "TIMESTAMP")
        sql = self.call("date_trunc", self._text(unit.lower()).sql, moment)
        if value.kind == DATE or self.spark:
            sql = self.cast(sql, self.type(value.kind))
        return Value(self._in_years(value, sql), value.kind)

    def _extract(self, node: Any) -> Value:
        return self._part(str(node.name).upper(), node.expression)

    def _part(self, unit: str, node: Any) -> Value:
        value = self.wanted(node, *TIMES)
        if unit not in (*_DAYS, *_HOURS) or (value.kind == DATE and unit in _HOURS):
            raise self.refuse(
                "has a part of time that is not supported", f"Use {', '.join((*_DAYS, *_HOURS)).lower()}."
            )
        part = self.call("date_part", self._text(unit.lower()).sql, value.sql)
        return Value(self._in_years(value, self.cast(part, self.type(INTEGER))), INTEGER)

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
        return self._cut(node.this, self.number_in(node.args.get("start"), 1, 10**6), cut)

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

    def _unless_whole(self, double: str, sql: str) -> str:
        """Return the number itself from 2^53 on: Spark's floor and ceil are 64-bit integers, and fail beyond."""
        low, high = (f"CAST('{sign}9007199254740992' AS DOUBLE)" for sign in ("-", ""))
        return f"(CASE WHEN {double} >= {low} AND {double} <= {high} THEN {sql} ELSE {double} END)"

    def _computed(self, name: str, node: Any) -> Value:
        if name == "Neg" and (value := self.value(node.this)).constant is not None and value.kind in NUMBERS:
            negative = -value.constant
            sql = f"({negative})" if value.kind == INTEGER else f"CAST('{negative!r}' AS {self.type(NUMBER)})"
            return Value(sql, value.kind, negative)
        if self.postgres:
            why = "computes with numbers, which PostgreSQL cannot without failing on some rows"
            raise self.refuse(why, "Compute it in a view, for example with a CASE that checks it first.")
        one = self.wanted(node.this, *NUMBERS)
        if name in ("Floor", "Ceil", "Abs", "Round", "Neg"):
            double = self.as_kind(one, NUMBER)
            if name == "Neg":
                return Value(call("-", double) if self.duckdb else f"(-{double})", NUMBER)
            decimals = node.args.get("decimals") if name == "Round" else None
            more = () if decimals is None else (str(self.number_in(decimals, 0, 9)),)
            sql = self.as_kind(Value(self.safe(self.call(name.lower(), double, *more)), ""), NUMBER)
            return Value(self._unless_whole(double, sql) if self.spark and name in ("Floor", "Ceil") else sql, NUMBER)
        other = self.wanted(node.expression, *NUMBERS)
        kind = INTEGER if one.kind == other.kind == INTEGER and name != "Div" else NUMBER
        left, right = self.cast(one.sql, self.type(kind)), self.cast(other.sql, self.type(kind))
        if name in ("Div", "Mod"):
            right = f"(CASE WHEN {right} = 0 THEN NULL ELSE {right} END)"
            sign = "/" if name == "Div" else "%"
            return Value(self.safe(call(sign, left, right)) if self.duckdb else f"({left} {sign} {right})", kind)
        sign, attempt = _ARITHMETIC[name]
        return Value(self.safe(call(sign, left, right)) if self.duckdb else self.call(attempt, left, right), kind)


def derive(frame: Any, types: Mapping[str, str], columns: Columns) -> Any:
    """Return a frame with the wanted columns, some of them derived, of the rows that a condition leaves."""
    assert columns.rows is not None
    inner = {field.name: f"c{i}" for i, field in enumerate(frame.schema.fields)}  # Spark ignores the case of names
    given = table_columns("spark", types, columns.of_table.names)
    table = {name: Column(name, inner[name], column.type) for name, column in given.items()}
    where, derived = write_rows("spark", columns.rows, table)
    plain = frame.toDF(*inner.values())
    chosen = [derived[name][0] if name in derived else inner[name] for name in columns.names]
    return (plain.where(where) if where else plain).selectExpr(*chosen).toDF(*columns.names)
