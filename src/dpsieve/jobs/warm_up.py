"""Compile all that a first call would wait for, by small jobs on made-up data; nothing of them is kept."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dpsieve.compiled import jit
from dpsieve.engines import DuckDB
from dpsieve.engines.duckdb.compiled import load_pair_loops
from dpsieve.errors import InvalidValue
from dpsieve.jobs import discover, numbers, release
from dpsieve.sampling import ppswor, priority

_BUDGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-8}


class Part(NamedTuple):
    """What one part of the package took: seconds, and the number of functions that were not in the cache."""

    name: str
    seconds: float
    compiled: int


def warm_up() -> Iterator[Part]:
    """Run the small jobs of each part, and yield what it took."""
    for name, jobs in PARTS.items():
        start, before = time.perf_counter(), jit.saved
        for job in jobs:
            job()
        yield Part(name, time.perf_counter() - start, jit.saved - before)


def check_cache() -> None:
    """Refuse to warm up where nothing can be kept."""
    if not jit.is_writable():
        hint = "Set NUMBA_CACHE_DIR to a folder of this user that no other user may write to."
        raise InvalidValue(f"compiled code cannot be kept: the cache cannot be written. {hint}")


def _rows() -> pa.Table:
    units = np.repeat(np.arange(600), 3)
    keys = [f"key number {i}" for i in (np.arange(1800) * 7) % 40]
    return pa.table({"unit": units, "key": keys, "x": np.sin(units), "y": np.cos(units)})


def _release(*, text_units: bool = False, text_keys: bool = True, **options: Any) -> None:
    """Release counts of a table that compiled loops read; their pairs are bounded and counted by loops, too."""
    rows = _rows()
    units = rows["unit"].cast(pa.string() if text_units else pa.int64())
    keys = rows["key"] if text_keys else pa.array((np.arange(1800) * 7) % 40)
    table = pa.table({"unit": units, "key": keys, "more": rows["unit"]})
    terms = {"key": "key", "privacy_unit": "unit", **_BUDGET, **options}
    release.release(table, engine=DuckDB(compiled_from=0, threads=2), **terms)


def _tables() -> None:
    _release()
    _release(text_units=True, text_keys=False)
    _release(max_keys_per_unit=1, means={"more": (0, 600)})
    load_pair_loops()  # which a table of this size does not need
    _release(privacy_unit=["unit", "more"], known_keys=["key number 1", "absent"], max_keys_per_unit=2)


def _releases() -> None:
    rows = _rows()
    several: dict[str, Any] = {"max_keys_per_unit": 3}
    for options in ({}, {"goal": "counts"}, several, several | {"scheme": ppswor(0.1)}):
        release.release(rows, key="key", privacy_unit="unit", **_BUDGET, **options)
    users = np.arange(4_000)  # most units hold one key: keys are found, then counted
    release.release(pa.table({"unit": users, "key": users % 40}), key="key", privacy_unit="unit", **_BUDGET)


def _discovery() -> None:
    terms = {"key": "key", "privacy_unit": "unit", **_BUDGET}
    discover.discover(_rows(), **terms)
    discover.top_k(_rows(), k=3, **terms)
    discover.hitting_set(_rows(), k=3, **terms)


def _numbers() -> None:
    terms: dict[str, Any] = {"column": ["x", "y"], "privacy_unit": "unit", "bounds": [(-1.0, 1.0)] * 2, **_BUDGET}
    terms["max_rows_per_unit"] = 2
    numbers.sum(_rows(), **terms)
    numbers.mean(_rows(), **terms)
    numbers.quantile(_rows(), **(terms | {"column": "x", "bounds": (-1.0, 1.0)}), quantile=0.5)


def _streams() -> None:
    from dpsieve.sketches import MisraGries, UserMisraGries

    for items in (["tea", "milk", "tea"] * 20, list(range(30))):
        sketch, other = MisraGries(8), MisraGries(8)
        sketch.update(items)
        other.update(items)
        sketch.merge(other).release(epsilon=1.0, delta=1e-6)
        users = UserMisraGries(8)
        users.update([items[i : i + 3] for i in range(0, len(items), 3)])
        users.release(epsilon=1.0, delta=1e-6)


def _vectors() -> None:
    from dpsieve.sparse.vector import SparseVector

    values: list[tuple[Any, Any, float]] = [
        (1000, [3, 7, 11], 0.0), (1000, [3, 7, 11], 1e-6), ("text", ["tea", "milk", "salt"], 1e-6),
    ]  # fmt: skip
    for dimension, indices, delta in values:
        options = {"dimension": dimension, "neighbours": "one_entry"}
        SparseVector.private(indices, [40, 30, 20], epsilon=1.0, delta=delta, **options).get(indices)


def _channels() -> None:
    from dpsieve import channels

    for scheme in (None, ppswor(0.05), priority(0.05), ppswor(1e-4)):
        channels.optimal(1.0, 1e-6, scheme).release(["tea", "milk"], [400, 3])


PARTS: dict[str, tuple[Callable[[], None], ...]] = {
    "large tables": (_tables,),
    "releases": (_releases,),
    "discovery": (_discovery,),
    "numbers": (_numbers,),
    "streams": (_streams,),
    "sparse vectors": (_vectors,),
    "channels": (_channels,),
}
