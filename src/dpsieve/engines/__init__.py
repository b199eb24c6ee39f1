"""Engines: where tables are bounded and aggregated."""

from typing import Any

from dpsieve.engines.duckdb.engine import DuckDB
from dpsieve.engines.engine import Columns, Engine
from dpsieve.engines.inputs.frames import is_database, is_spark, opener_of
from dpsieve.engines.postgres import Postgres
from dpsieve.engines.spark import Spark
from dpsieve.errors import InvalidType, InvalidValue

__all__ = [
    "Columns", "DuckDB", "Engine", "Postgres", "Spark",
]  # fmt: skip


def choose(data: Any, engine: Engine | None = None, table: str | None = None) -> tuple[Any, Engine]:
    """Return data and the engine that the caller passed, or the one that reads it; nothing is opened or read.

    A Spark DataFrame stays in Spark, and a `table` in the database that data is the URL of; DuckDB reads all else.

    >>> choose("postgresql://localhost/shop", table="orders"), choose("events.parquet")
    (('orders', Postgres()), ('events.parquet', DuckDB()))
    """
    if table is not None and not is_database(data):
        hint = "For DuckDB, pass data=(connection, name); for other databases, a table in memory or a Parquet file."
        raise InvalidValue(f"table= needs the URL of a PostgreSQL database as data. {hint}", argument="table")
    if table is not None and engine is not None:
        raise InvalidValue("data is a database, which counts itself. Leave the engine out.", argument="engine")
    if table is not None:
        return table, Postgres(data)
    if engine is None:
        if is_spark(data):
            return data, Spark()
        opener_of(data)
        return data, DuckDB()
    if not isinstance(engine, Engine):
        raise InvalidType(
            f"engine must be an engine, not {type(engine).__name__}. Pass dpsieve.engines.DuckDB(), or none.",
            argument="engine",
        )
    return data, engine
