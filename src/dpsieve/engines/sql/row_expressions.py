"""Conditions and key columns that a user writes in SQL, each a function of one row and of nothing else.

`where` keeps the rows for which it is true; a derived key column takes the place of a column of the table. Both are
applied before anything is bounded or counted.

Proof of privacy. What a row becomes (nothing, or a row with derived keys) depends on this row alone. So tables that
differ by the rows of one unit become tables that differ by rows of the same unit, and the guarantee of what follows is
that of the whole. Three things would break this, and are refused or made impossible:

- an expression that reads more than the row, or something that changes: aggregates, windows, subqueries, lambdas,
  random numbers, the clock, settings, files, the network. The text is parsed, and every node and function has to be on
  a list (`_NODES`); what is run is written anew from the tree, with constants and names quoted here;
- an expression that fails on some row, since success would tell of rows that are not published: functions that can
  fail give null instead, or are refused where an engine has no such form (`sql.row_writer`);
- a function of the same name that someone else has defined: functions are written by their full names.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue

WHERE, KEY = "where", "key_expression"
MOST_ITEMS = 1_000  # of a list
_LONGEST, _DEEPEST, _MOST_NODES = 4_000, 60, 3_000
_EXAMPLES = {WHERE: "where=\"country = 'DE'\"", KEY: "key={'day': \"date_trunc('day', ts)\"}"}

# Every node that an expression may have, by the name of its class in sqlglot, with the arguments that are understood.
# An argument that is not listed has to be empty or False. A new version of sqlglot can only make more be refused.
_NODES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("EQ", "NEQ", "GT", "GTE", "LT", "LTE", "And", "Or", "Is"), ("this", "expression")),
    **dict.fromkeys(("Add", "Sub", "Mul", "Mod", "StartsWith", "Contains"), ("this", "expression")),
    **dict.fromkeys(("Not", "Paren", "Neg", "Lower", "Upper", "Length", "Floor", "Ceil", "Abs"), ("this",)),
    **dict.fromkeys(("Year", "Quarter", "Month", "Week", "Day", "Hour", "Minute"), ("this",)),
    **dict.fromkeys(("Cast", "TryCast"), ("this", "to", "safe")),
    "Between": ("this", "low", "high"),
    "Boolean": ("this",),
    "Case": ("this", "ifs", "default"),
    "Coalesce": ("this", "expressions"),
    "Column": ("this",),
    "DPipe": ("this", "expression", "safe"),
    "DataType": ("this", "nested"),
    "Div": ("this", "expression", "typed", "safe"),
    "Extract": ("this", "expression"),
    "Identifier": ("this", "quoted"),
    "If": ("this", "true", "false"),
    "In": ("this", "expressions"),
    "Left": ("this", "expression"),
    "Like": ("this", "expression", "negate"),
    "Literal": ("this", "is_string"),
    "Null": (),
    "Nullif": ("this", "expression"),
    "Replace": ("this", "expression", "replacement"),
    "Round": ("this", "decimals"),
    "SplitPart": ("this", "delimiter", "part_index"),
    "Substring": ("this", "start", "length"),
    "TimestampTrunc": ("this", "unit"),
    "Trim": ("this", "position"),
    "Var": ("this",),
}
_LISTED = (
    "comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, CASE, COALESCE, NULLIF, CAST, ||, + - * / %, lower, upper, "
    "trim, length, substring, left, replace, split_part, starts_with, contains, date_trunc, extract, floor, ceil, "
    "round, abs"
)


def parse(text: object, argument: str) -> Any:
    """Return the syntax tree of an expression that depends on one row alone; refuse any other text.

    >>> parse("country = 'DE'", WHERE).key
    'eq'
    >>> parse("random() < 0.5", WHERE)
    Traceback (most recent call last):
    dpsieve.errors.InvalidValue: where has random(), which is not on the list of what depends on one row alone. ...
    """
    hint = f"Pass one expression, such as {_EXAMPLES[argument]}."
    if not isinstance(text, str):
        raise InvalidType(f"{argument} must be SQL as text, not {type(text).__name__}. {hint}", argument=argument)

    def refuse(why: str) -> InvalidValue:
        return InvalidValue(f"{argument} {why}. {hint}", argument=argument)

    if not text.strip() or len(text) > _LONGEST:
        raise refuse(f"is empty or longer than {_LONGEST:,} characters")
    if any(unicodedata.category(c)[0] == "C" and c not in "\t\r\n" for c in text):
        raise refuse("has a character that is not shown")
    if max(text.count("("), text.upper().count("CASE"), text.upper().count("NOT"), text.count("-")) > _DEEPEST:
        raise refuse(f"has more than {_DEEPEST} brackets, CASE, NOT or minus signs")
    import sqlglot  # slow to import
    from sqlglot.errors import SqlglotError

    try:
        tokens, trees = sqlglot.tokenize(text, read="duckdb"), sqlglot.parse(text, read="duckdb")
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError, KeyError, IndexError):
        raise refuse("is not an SQL expression") from None
    if any(token.comments for token in tokens) or any(node.comments for tree in trees if tree for node in tree.walk()):
        raise refuse("has a comment")
    if len(trees) != 1 or trees[0] is None or ";" in (token.text for token in tokens if token.text == ";"):
        raise refuse("is not one expression")
    for count, node in enumerate(trees[0].walk()):
        if count > _MOST_NODES:
            raise refuse(f"has more than {_MOST_NODES:,} parts")
        _check_node(node, _shown(node, text), argument, refuse)
    return trees[0]


def _check_node(node: Any, shown: str, argument: str, refuse: Any) -> None:
    kind = type(node).__name__
    allowed = _NODES.get(kind)
    if allowed is None:
        raise InvalidValue(
            f"{argument} has {shown}, which is not on the list of what depends on one row alone. "
            f"Use {_LISTED}; or compute it in a table or view of your own, row by row.",
            argument=argument,
        )
    if more := [name for name, value in node.args.items() if name not in allowed and value not in (None, False, [])]:
        raise refuse(f"has {shown} with {more[0].replace('_', ' ')!r}, which is not supported")
    if kind == "Column" and type(node.this).__name__ != "Identifier":
        raise refuse("has a column that is not a name")
    if kind == "In" and not 0 < len(node.expressions) <= MOST_ITEMS:
        raise refuse(f"has a list that is empty or longer than {MOST_ITEMS:,}")


def _shown(node: Any, text: str) -> str:
    """Return the name of a part of an expression: of a function, as the text has it."""
    start, end = node.meta.get("start"), node.meta.get("end")
    name = type(node).__name__ if start is None else text[start : end + 1]
    plain = name if name.isascii() and name.replace("_", "").isalnum() and len(name) < 60 else "a part"
    return f"{plain.lower()}()" if hasattr(node, "sql_names") else plain


def column_names(tree: Any) -> Iterator[str]:
    """Yield the names of the columns of an expression."""
    from sqlglot import exp

    return (column.name for column in tree.find_all(exp.Column))


@dataclass(frozen=True)
class RowExpressions:
    """What is computed of each row: the condition under which it counts, and derived columns of its key.

    Attributes:
        where: a condition; empty for none.
        keys: the expression of each derived key column, by its name.
    """

    where: str = ""
    keys: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        self.named  # noqa: B018 - raises if a text is refused

    @cached_property
    def condition(self) -> Any:
        """The tree of the condition, or None."""
        return parse(self.where, WHERE) if self.where else None

    @cached_property
    def derived(self) -> Mapping[str, Any]:
        """The tree of each derived key column, by its name."""
        return {name: parse(text, KEY) for name, text in self.keys}

    @cached_property
    def named(self) -> list[tuple[str, str]]:
        """The columns of the table that the expressions read, each with the argument that names it."""
        named = [(WHERE, name) for name in column_names(self.condition)] if self.where else []
        return named + [(KEY, name) for tree in self.derived.values() for name in column_names(tree)]


def row_expressions(where: Any, keys: Mapping[str, Any], unit: tuple[str, ...]) -> RowExpressions | None:
    """Return the checked expressions of a request; None where there are none.

    The unit is never derived: no key column may have the name of a column of the unit, or be one.
    """
    if where is None and not keys:
        return None
    if where is not None:
        validate.text("where", where, hint=f"Pass a condition, such as {_EXAMPLES[WHERE]}.")
    made = RowExpressions(where or "", tuple(keys.items()))
    for name, tree in made.derived.items():
        if not any(True for _ in column_names(tree)):
            raise InvalidValue(
                f"key={name!r} is the same for all rows. Use a column in its expression.", argument="key"
            )
        bare = type(tree).__name__ == "Column" and tree.name in unit
        if name in unit or bare:
            why = "is a column of the privacy unit" if bare else "has the name of a column of the privacy unit"
            raise InvalidValue(f"key={name!r} {why}. Choose another key.", argument="key")
    return made
