"""Calls of engines in few words."""

from dpsieve.engines import COUNT, Columns
from dpsieve.engines.engine import Aggregation
from dpsieve.privacy.contribution import Contribution


def count(engine, data, *, key=("key",), unit="unit", max_keys=1, max_rows=1, measure=COUNT, salt=1, **more):
    """Return what the engine aggregates."""
    return engine.aggregate(data, Columns(key, unit), Contribution(max_keys, max_rows), measure, salt=salt, **more)


def found(engine, data, **how):
    """Return {key: number}; a key of several columns is a tuple."""
    counted = count(engine, data, **how)
    columns = [column.to_pylist() for column in counted.keys.columns]
    names = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    numbers = dict(zip(names, counted.frequencies.tolist(), strict=True))
    assert len(numbers) == len(names)
    return numbers


def task(key=("key",), unit="unit", max_keys=1, max_rows=1, measure=COUNT, salt=1, allow=False):
    """Return what a query for another dialect is made from."""
    return Aggregation(Columns(tuple(key), unit), Contribution(max_keys, max_rows), measure, salt, allow)
