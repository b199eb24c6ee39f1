"""Who is protected, in words: one spelling for guarantees, mechanisms, ledgers, tables and the command line."""

import json
from collections.abc import Sequence

from dpsieve import validate

_HINT = "Say who is protected, such as unit='user_id' or unit='one user_id'; a list for several columns."
_UNUSUAL = frozenset(',()"')


def unit_words(unit: object) -> str:
    """Return the words for a unit: the name of its column or a list of names, or words that begin with 'one'.

    The order of several columns does not matter, so their words do not keep it. Names in which a comma, a bracket or a
    quote would mislead are quoted.

    >>> unit_words("user_id"), unit_words("one user_id"), unit_words(None)
    ('one user_id', 'one user_id', 'one row')
    >>> unit_words(["user_id", "tenant"])
    'one (tenant, user_id)'
    """
    if unit is None or unit == ():
        return "one row"
    if isinstance(unit, str) or not isinstance(unit, Sequence):
        words = validate.text("unit", unit, hint=_HINT)
        return words if words.startswith("one ") else f"one {words}"
    names = sorted({validate.text("unit", name, hint=_HINT) for name in unit})
    if len(names) == 1:
        return f"one {names[0]}"
    return f"one ({', '.join(json.dumps(n, ensure_ascii=False) if _UNUSUAL & set(n) else n for n in names)})"
