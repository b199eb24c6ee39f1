"""A public list of keys, brought into the types of the data's key columns."""

import duckdb
import pyarrow as pa

from dpsieve.engines.columns import Column
from dpsieve.errors import InvalidType, InvalidValue

VIEW = "dpsieve_known"


def prepared(known: pa.Table, columns: list[Column]) -> pa.Table:
    """Return the keys as columns k0, k1, ..., written as `Column.as_key` writes the data's, and `i`, their place.

    The list is public, so that what is wrong with it may be told.
    """
    names = [f"k{n}" for n in range(len(columns))]
    if any(column.null_count for column in known.columns):
        raise InvalidValue("known_keys holds nulls. Leave them out: rows with a null key are not counted.")
    cast = ", ".join(f"CAST({k} AS {_kind(column)}) AS {k}" for k, column in zip(names, columns, strict=True))
    keys = ", ".join(
        f"{Column(column.name, k, column.type).as_key} AS {k}" for k, column in zip(names, columns, strict=True)
    )
    rounded = " OR ".join(
        f"CAST(CAST({k} AS {_kind(column)}) AS DOUBLE) <> {k}"
        for k, column, given in zip(names, columns, known.columns, strict=True)
        if pa.types.is_floating(given.type) and column.kind not in ("FLOAT", "DOUBLE")
    )
    with duckdb.connect(":memory:", config={"python_enable_replacements": "false"}) as connection:
        connection.register(
            VIEW, known.rename_columns(names).append_column("i", pa.array(range(len(known)), pa.int64()))
        )
        try:
            table = connection.sql(f"SELECT {keys}, i FROM (SELECT {cast}, i FROM {VIEW}) ORDER BY i").to_arrow_table()
            if rounded and connection.sql(f"SELECT 1 FROM {VIEW} WHERE {rounded} LIMIT 1").fetchall():
                table = None
        except duckdb.Error:
            table = None
        if table is None:
            types = ", ".join(f"{column.name!r}: {_kind(column)}" for column in columns)
            raise InvalidType(f"known_keys do not all fit the types of the key columns ({types}). Pass keys of these.")
        connection.register(VIEW, table)
        (distinct,) = connection.sql(
            f"SELECT count(*) FROM (SELECT DISTINCT {', '.join(names)} FROM {VIEW})"
        ).fetchall()[0]
    if distinct != len(table):
        raise InvalidValue("known_keys holds a key more than once, as the data writes it. Pass each key once.")
    return table


def _kind(column: Column) -> str:
    """Return the type to read a key as; the values of an ENUM are data, so its keys are text."""
    return "VARCHAR" if column.kind in ("ENUM", "JSON", '"NULL"', "NULL") else column.type
