"""Engines: where tables are bounded and counted."""

from dpsieve.engines.base import Counted, Engine, Progress
from dpsieve.engines.embedded import DuckDB
from dpsieve.engines.stream import CsvStream

__all__ = ["Counted", "CsvStream", "DuckDB", "Engine", "Progress"]
