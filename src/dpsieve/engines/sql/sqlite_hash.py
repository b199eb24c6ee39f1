"""A hash in the SQL of SQLite, which has none of its own, for connections that cannot be given `dialects.sqlite_hash`.

The values are written as one text, whose characters are the coefficients of a polynomial modulo the prime 2^31 - 1, at
a point that the salt decides. Fifth powers, which permute the numbers below that prime, then mix what would be a sum of
a part of the unit and a part of the key. It takes some 40 microseconds for each pair of a unit and a key.
"""

import hashlib
from typing import Any

_PRIME, _AT_ONCE = 2**31 - 1, 8


def with_plain_hash(text: str, salt: int) -> str:
    """Return a query of `dialects.query_for` for SQLite with the hash in SQL."""
    import sqlglot
    from sqlglot import exp

    tree = sqlglot.parse_one(text, read="sqlite")
    for call in list(tree.find_all(exp.Anonymous)):
        if call.name == "DPSIEVE_HASH":
            names = [part.sql(dialect="sqlite") for part in call.expressions[1:]]
            made: Any = sqlglot.parse_one(_hash(names, salt), read="sqlite")
            call.replace(made)
    return tree.sql(dialect="sqlite")


def _hash(names: list[str], salt: int) -> str:
    digest = hashlib.blake2b(str(salt).encode(), digest_size=16).digest()
    point, start = (1 + int.from_bytes(half) % (_PRIME - 1) for half in (digest[:8], digest[8:]))
    # Equal numbers are written alike: 1 and 1.0 are.
    plain = "CASE WHEN {x} = CAST({x} AS INTEGER) THEN CAST({x} AS INTEGER) ELSE {x} END"
    values = " || '|' || ".join(f"hex({plain.replace('{x}', name)})" for name in names)
    step = "h"
    for place in range(_AT_ONCE):
        step = f"({step} * {point} + ifnull(unicode(substr(t, i + {place}, 1)), 0)) % {_PRIME}"
    power = f"(y * y % {_PRIME}) * x % {_PRIME}"
    return (
        f"(WITH RECURSIVE w(t, i, h) AS (SELECT {values}, 1, {start} UNION ALL "
        f"SELECT t, i + {_AT_ONCE}, {step} FROM w WHERE i <= length(t)), "
        f"a(x, y) AS (SELECT h, h * h % {_PRIME} FROM w WHERE i > length(t)), "
        f"b(x) AS (SELECT ({power} * {point} + {start}) % {_PRIME} FROM a), "
        f"c(x, y) AS (SELECT x, x * x % {_PRIME} FROM b) SELECT {power} FROM c)"
    )
