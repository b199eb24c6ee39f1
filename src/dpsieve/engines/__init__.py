"""Engines: where tables are bounded and aggregated."""

from typing import Any

from dpsieve.engines.counted import Counted
from dpsieve.engines.duckdb.engine import DuckDB
from dpsieve.engines.engine import COUNT, Columns, Engine, NumberColumns, NumberRows, Progress
from dpsieve.engines.inputs.data_files import CsvStream
from dpsieve.engines.inputs.detect import is_spark, opener_of
from dpsieve.engines.spark.engine import Spark
from dpsieve.errors import InvalidType
from dpsieve.privacy.contribution import Weight

__all__ = [
    "COUNT", "Columns", "Counted", "CsvStream", "DuckDB", "Engine", "NumberColumns", "NumberRows", "Progress", "Spark",
    "Weight", "choose",
]  # fmt: skip


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
