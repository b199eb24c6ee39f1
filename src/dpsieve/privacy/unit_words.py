"""Who is protected, in words: one spelling for guarantees, mechanisms, ledgers, tables and the command line."""

import json

from dpsieve import validate
from dpsieve.errors import InvalidValue

_HINT = "Say who is protected, such as unit='user_id' or unit='one user_id', or name several columns in a list."
_MISLEADING = ("(", ")", ",", '"')


def unit_words(unit: object) -> str:
    """Return the words for a unit, by the names of its columns, or as they are if they begin with 'one'.

    Without a column each row is a unit. The order of several columns does not matter, so their words do not keep it.
    Names in which a comma, a bracket or a quote would mislead are quoted.

    >>> unit_words("user_id"), unit_words("one user_id"), unit_words(())
    ('one user_id', 'one user_id', 'one row')
    >>> unit_words(("user_id", "tenant")), unit_words(["tenant", "user_id"])
    ('one (tenant, user_id)', 'one (tenant, user_id)')
    """
    if not isinstance(unit, tuple | list):
        words = validate.text("unit", unit, hint=_HINT)
        return words if words.startswith("one ") else f"one {words}"
    names = sorted({validate.text("unit", name, hint=_HINT) for name in unit})
    if not names and isinstance(unit, list):
        raise InvalidValue(f"unit is an empty list. {_HINT}")
    if not names:
        return "one row"
    if len(names) == 1:
        return f"one {_quoted(names[0]) if names[0].startswith(_MISLEADING) else names[0]}"
    shown = [_quoted(name) if any(mark in name for mark in _MISLEADING) else name for name in names]
    return f"one ({', '.join(shown)})"


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
