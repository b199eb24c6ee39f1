"""The columns of a key as a request takes them: their names, what derives them, and public lists of keys."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsieve import validate
from dpsieve.display import printable
from dpsieve.errors import InvalidType

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsieve.engines.sql.row_expressions import RowExpressions


def make_row_expressions(where: Any, key: Any, unit: tuple[str, ...]) -> "RowExpressions | None":
    """Return the checked condition and derived columns of a key, which may be a mapping; None where there are none."""
    derived = {name: text for name, text in key.items() if name != text} if isinstance(key, Mapping) else {}
    if where is None and not derived:
        return None
    from dpsieve.engines.sql.row_expressions import row_expressions

    return row_expressions(where, derived, unit)


def describe_rows(rows: "RowExpressions | None") -> dict[str, str]:
    """Return the condition and the expressions as notes of a publication."""
    if rows is None:
        return {}
    derived = printable("; ".join(f"{name} = {text}" for name, text in rows.keys))
    return {"where": rows.where, "derived": derived if len(derived) <= 10_000 else f"{len(rows.keys)} columns"}


def key_columns(key: Any) -> tuple[str, ...]:
    """Return the names of the columns of a key."""
    from dpsieve.values.keys import check_names

    hint = "Name the column to publish, such as key='query', or several."
    names = (key,) if isinstance(key, str) else key
    if not isinstance(names, Sequence) or not names:
        raise InvalidType(f"key must be a column name or a list of them. {hint}")
    columns = [validate.text("key", name, hint=hint) for name in names]
    check_names(columns)
    return tuple(columns)


def read_known_keys(keys: Any, columns: tuple[str, ...]) -> "pa.Table":
    """Return a public list of keys, or those in a file whose path is given, as a table with these columns."""
    from dpsieve.values.keys import known_table, read_known

    return known_table(read_known(Path(keys), list(columns)) if isinstance(keys, os.PathLike) else keys, columns)
