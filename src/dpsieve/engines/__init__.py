"""Engines: where tables are bounded and aggregated."""

from typing import Any

from dpsieve.engines.duckdb.engine import DuckDB
from dpsieve.engines.engine import COUNT, Columns, Counted, Engine, NumberColumns, NumberRows, Progress
from dpsieve.engines.inputs.data_files import DataStream, files
from dpsieve.engines.inputs.detect import opener_of
from dpsieve.errors import InvalidType
from dpsieve.privacy.contribution import Weight

__all__ = [
    "COUNT", "Columns", "Counted", "DataStream", "DuckDB", "Engine", "NumberColumns", "NumberRows", "Progress",
    "Weight", "choose", "files",
]  # fmt: skip


def choose(data: Any, engine: Engine | None = None) -> Engine:
    """Return the engine that the caller passed, or the one that reads such data; nothing is opened or read.

    >>> choose("events.parquet")
    DuckDB()
    """
    if engine is None:
        opener_of(data)
        return DuckDB()
    if not isinstance(engine, Engine):
        raise InvalidType(
            f"engine must be an engine, not {type(engine).__name__}. Pass dpsieve.engines.DuckDB(), or none."
        )
    return engine
