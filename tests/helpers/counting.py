"""Calls of engines in few words."""

from dpsieve.engines import Columns
from dpsieve.engines.engine import COUNT, Aggregation, monotonic_progress
from dpsieve.engines.spark import SparkCounted
from dpsieve.privacy.guarantee import Contribution

EVERY_BOUND = Contribution(1000)  # what `read_by_bound` is asked for


def aggregation(columns, contribution, measure=COUNT, *, progress=None, **more):
    """Return what a job asks an engine for."""
    return Aggregation(columns, contribution, measure, progress=monotonic_progress(progress), **more)


def count(engine, data, *, key=("key",), unit="unit", max_keys=1, max_rows=1, measure=COUNT, salt=1, **more):
    """Return what the engine aggregates."""
    bounds = Contribution(max_keys, max_rows)
    return engine.aggregate(data, aggregation(Columns(key, unit), bounds, measure, salt=salt, **more))


def found(engine, data, **how):
    """Return {key: number}; a key of several columns is a tuple."""
    return named(count(engine, data, **how))


def named(counted):
    """Return {key: number} of what was counted; from Spark it is brought here, which only a test may do."""
    if isinstance(counted, SparkCounted):
        table = counted._all_counts().toArrow()
        keys, numbers = table.drop_columns(["n"]), table.column("n").to_pylist()
        if counted._listed is not None:
            keys = counted._listed.drop_columns(["i"]).take(table.column("k0"))
    else:
        keys, numbers = counted.keys, counted.frequencies.tolist()
    columns = [column.to_pylist() for column in keys.columns]
    names = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    assert len(set(names)) == len(names)
    return dict(zip(names, numbers, strict=True))


def task(key=("key",), unit="unit", max_keys=1, max_rows=1, measure=COUNT, salt=1, allow=False):
    """Return what a query for another dialect is made from."""
    return Aggregation(Columns(tuple(key), unit), Contribution(max_keys, max_rows), measure, salt, allow)
