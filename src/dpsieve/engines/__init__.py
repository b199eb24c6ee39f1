"""Engines: where tables are bounded and aggregated."""

from typing import Any

from dpsieve.engines.duckdb.engine import DuckDB
from dpsieve.engines.engine import Columns, Engine
from dpsieve.engines.inputs.frames import is_database, is_spark, opener_of
from dpsieve.engines.postgres.engine import Postgres
from dpsieve.engines.spark.engine import Spark
from dpsieve.errors import InvalidType, InvalidValue

__all__ = [
    "Columns", "DuckDB", "Engine", "Postgres", "Spark",
]  # fmt: skip


def locate_data(data: Any, table: str | None, engine: Engine | None) -> tuple[Any, Engine | None]:
    """Return data and engine; `table` names a table of the database that data is the URL of, if it is one.

    >>> locate_data("postgresql://localhost/shop", "orders", None)
    ('orders', Postgres())
    """
    if not is_database(data) or table is None:
        if table is not None:
            hint = "Pass the URL of a database as data, or leave the table out."
            raise InvalidValue(f"table= needs a database URL as data. {hint}")
        return data, engine
    if engine is not None:
        raise InvalidValue("data is a database, which counts itself. Leave the engine out.")
    return table, Postgres(data)


def choose(data: Any, engine: Engine | None = None) -> Engine:
    """Return the engine that the caller passed, or the one that reads such data; nothing is opened or read.

    A Spark DataFrame stays in Spark; DuckDB reads all else.

    >>> choose("events.parquet")
    DuckDB()
    """
    if engine is None:
        if is_spark(data):
            return Spark()
        opener_of(data)
        return DuckDB()
    if not isinstance(engine, Engine):
        raise InvalidType(
            f"engine must be an engine, not {type(engine).__name__}. Pass dpsieve.engines.DuckDB(), or none."
        )
    return engine
