"""Inputs that hurt: neighbouring data for every job of the library, chosen where a fault would show.

A key that one unit holds, a key at the threshold, a unit with many keys or rows, a value at its bound, canaries in one
run, and two layouts of the same rows. `job_inputs` makes them for a job and the arguments of its request.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from dpsieve.auditing.audit import Audit, AuditKind, audit
from dpsieve.engines.duckdb.engine import DuckDB
from dpsieve.randomness.source import Source

KEYED = {
    "release": "jobs.release.release",
    "discover": "jobs.discover.discover",
    "top-k": "jobs.discover.top_k",
    "hitting-set": "jobs.discover.hitting_set",
    "collect histogram": "jobs.collect.collect_histogram",
    "collect heavy-hitters": "jobs.collect.collect_heavy_hitters",
}
NUMBERS = {
    "sum": "jobs.numbers.sum",
    "mean": "jobs.numbers.mean",
    "quantile": "jobs.numbers.quantile",
    "collect quantiles": "jobs.collect.collect_quantiles",
}
STREAM = "stream"
JOBS = (*KEYED, *NUMBERS, STREAM)
SET_BY_AUDIT = frozenset({"key", "column", "privacy_unit", "where", "allow_null_units", "known_keys", "sums", "means"})
"""Arguments that describe the user's data, which an audit makes up."""

_LEVELS = (1, 2, 3, 4, 6, 8, 11, 15, 20, 27, 36, 48, 64, 85, 113, 150, 200, 270, 360, 480, 640)
_KEYS_PER_LEVEL = 8
_UNITS = 60
_ROWS = 200
_MANY = 50
_UNBOUNDED = "auto"
_Call = Callable[[Any, Source], Any]


@dataclass(frozen=True)
class Inputs:
    """One audit of a job.

    Attributes:
        name: what the inputs are.
        kind: the kind of audit.
        run: the job as a function of data and source.
        data, neighbour: the inputs.
        options: further arguments of `audit`.
    """

    name: str
    kind: AuditKind
    run: _Call
    data: Any
    neighbour: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def audit(self, epsilon: float, delta: float, level: float, runs: int | None = None, **options: Any) -> Audit:
        """Audit the job on these inputs; `runs` is for rates."""
        more: dict[str, Any] = {} if self.kind == "dependence" else {"epsilon": epsilon, "delta": delta}
        more |= {"runs": runs} if self.kind == "rates" else {}
        more |= {**self.options, **options}
        return audit(self.run, self.data, self.neighbour, kind=self.kind, level=level, **more)


def job_inputs(job: str, arguments: Mapping[str, Any], canaries: int = 1000) -> Iterator[Inputs]:
    """Yield the audits of a job with these arguments, epsilon and delta among them.

    >>> [each.name for each in job_inputs("sum", {"epsilon": 1.0, "bounds": (0, 9), "max_rows_per_unit": 1})]
    ['a value at its bound', 'a unit with many rows', 'rows in another order']
    """
    given = dict(arguments)
    if job == STREAM:
        counters = given.pop("counters")
        call = partial(_release_stream, counters, given)
        yield from _keyed(call, 1, min(canaries, counters - 1), is_stream=True)
        return
    module, function = {**KEYED, **NUMBERS}[job].rsplit(".", 1)
    publish = getattr(import_module(f"dpsieve.{module}"), function)
    defaults = inspect.unwrap(publish).__kwdefaults__
    unit = {"privacy_unit": "unit", "engine": DuckDB(threads=1)}
    if job in NUMBERS:
        if given.get("bounds") is None:
            given["bounds"] = (0.0, 1.0)
        relation = given.get("neighbours", defaults.get("neighbours"))
        call = partial(_call, publish, {"column": "amount", **unit, **given})
        yield from _numbers(call, given["bounds"], replaces=relation == "replace")
        return
    column = "column" if job.startswith("collect") else "key"
    bound = 1 if column == "column" else given.get("max_keys_per_unit", defaults["max_keys_per_unit"])
    call = partial(_call, publish, {column: "key", **unit, **given})
    yield from _keyed(
        call, _UNBOUNDED if bound is None else bound, canaries, given.get("max_length"), given.get("k"),
        is_sampled=column == "column",
    )  # fmt: skip


def _call(publish: Callable[..., Any], arguments: Mapping[str, Any], data: Any, source: Source) -> Any:
    return publish(data, source=source, **arguments)


def _release_stream(counters: int, arguments: Mapping[str, Any], data: pa.Table, source: Source) -> Any:
    from dpsieve.sketches import MisraGries

    sketch = MisraGries(counters)
    sketch.update(data["key"])
    return sketch.release(**arguments, source=source)


def events(holders: Mapping[str, Iterable[int]], rows: int = 1) -> pa.Table:
    """Return a table of units and their keys: `holders` are the units of each key, with so many rows each.

    >>> events({"tea": [1, 2]}).to_pylist()
    [{'unit': 1, 'key': 'tea'}, {'unit': 2, 'key': 'tea'}]
    """
    pairs = [(unit, key) for key, units in holders.items() for unit in units for _ in range(rows)]
    units = pa.array([unit for unit, _ in pairs], pa.int64())
    return pa.table({"unit": units, "key": pa.array([key for _, key in pairs], pa.string())})


def counts_of(output: Any) -> dict[Any, float]:
    """Return the counts of a publication by key; 1 for each key where it has none."""
    table = output.table
    keys = table["key"].to_pylist()
    counts = table["count"].to_pylist() if "count" in table.column_names else [1.0] * len(keys)
    return {key: 0.0 if count is None else count for key, count in zip(keys, counts, strict=True)}


def _keyed(
    call: _Call, bound: Any, canaries: int, length: int | None = None, k: int | None = None, *,
    is_stream: bool = False, is_sampled: bool = False,
) -> Iterator[Inputs]:  # fmt: skip
    """Yield the audits of a job on keys."""
    name = partial(_name, length)
    new = 10**9
    common = events({name(0): range(_UNITS)})
    held = 1 if is_stream else _MANY if bound == _UNBOUNDED else bound
    secrets = events({name(1 + i): [new] for i in range(min(held, 10))})
    yield Inputs("a key of one unit", "rates", call, common, pa.concat_tables([common, secrets]))
    half, sure = find_levels(call, name)
    near = [events({name(0): range(_UNITS), name(1): range(100, 100 + half + more)}) for more in (0, 1)]
    yield Inputs("a key at the threshold", "rates", call, *near)
    if held > 1:
        crowd = events({name(i): range(1000 * i, 1000 * i + sure) for i in range(held + 10)})
        greedy = events({name(i): [new] for i in range(held + 10)}, rows=3)
        yield Inputs("a unit with many keys", "rates", call, crowd, pa.concat_tables([crowd, greedy]))
    if length is None and k is None:
        yield canary_inputs(call, sure, max(1, canaries // min(held, 10)), min(held, 10))
    if bound != _UNBOUNDED:
        several = events({name(i): range(100 * i, 100 * i + min(sure, 99)) for i in range(5)})
        more = pa.concat_tables([several, events({name(2): [new]})])
        options: dict[str, Any] = {"affected": [name(2)], "runs": 5}
        if not is_stream and not is_sampled and k is None:  # there, words and picks follow the counts of all keys
            yield Inputs("one unit more in a known key", "dependence", call, several, more, options)
    table = events({name(i): range(10 * i, 10 * i + sure) for i in range(12)})
    if not is_stream:  # the order of a stream is part of it
        yield Inputs("rows in another order", "dependence", call, table, reordered(table), {"runs": 5})


def canary_inputs(call: _Call, units: int, count: int, keys: int = 1, found: int | None = None) -> Inputs:
    """Return the audit with canaries: made-up units that hold so many keys each, which `units` others hold as well.

    With `found`, outputs have no counts: so many canaries are guessed to be in, among those whose keys are published.
    """
    names = [[f"key {i} {j}" for j in range(keys)] for i in range(count)]
    base = events({name: range(units * i, units * (i + 1)) for i, held in enumerate(names) for name in held})
    parts = [events({name: [10**9 + i] for name in held}) for i, held in enumerate(names)]
    centre = keys * (units + 0.5) if found is None else 0.0

    def score(output: Any) -> list[float]:
        counts = counts_of(output)
        return [sum(counts.get(name, 0.0) for name in held) - centre for held in names]

    def run(chosen: list[pa.Table], source: Source) -> Any:
        return call(pa.concat_tables([base, *chosen]), source)

    options = {"score": score} if found is None else {"score": score, "guesses": min(found, count)}
    return Inputs("canaries in one run", "one_run", run, parts, None, options)


def _name(length: int | None, number: int) -> str:
    return f"key {number}" if length is None else str(number).rjust(length, "0")[-length:]


def find_levels(call: _Call, name: Callable[[int], str], source: Source | None = None) -> tuple[int, int]:
    """Return the number of units at which about half of keys are published, and one at which all are, by one call."""
    from dpsieve.randomness.source import resolve

    holders, unit = {}, 0
    for place, level in enumerate(_LEVELS):
        for i in range(_KEYS_PER_LEVEL):
            holders[name(place * _KEYS_PER_LEVEL + i)] = range(unit, unit + level)
            unit += level
    shown = set(counts_of(call(events(holders), resolve(source))))
    found = [
        sum(name(place * _KEYS_PER_LEVEL + i) in shown for i in range(_KEYS_PER_LEVEL)) for place in range(len(_LEVELS))
    ]
    half = next((level for level, number in zip(_LEVELS, found, strict=True) if 2 * number >= _KEYS_PER_LEVEL), 640)
    missed = [level for level, number in zip(_LEVELS, found, strict=True) if number < _KEYS_PER_LEVEL]
    return half, min(2 * max(missed, default=1) + 10, 1000)


def _numbers(call: _Call, bounds: Any, *, replaces: bool) -> Iterator[Inputs]:
    """Yield the audits of a job on numbers of one column, where a unit is added, or replaced by another."""
    low, high = np.ravel(bounds)[:2].tolist()
    extreme = high if abs(high) >= abs(low) else low
    other = low if extreme == high else high
    crowd = amounts(np.arange(_UNITS), np.resize([low, (low + high) / 2, high], _UNITS))
    data = pa.concat_tables([crowd, amounts([_UNITS], [other])]) if replaces else crowd
    yield Inputs("a value at its bound", "rates", call, data, pa.concat_tables([crowd, amounts([_UNITS], [extreme])]))
    greedy = amounts(np.full(_ROWS, _UNITS), np.full(_ROWS, extreme * 2))
    yield Inputs("a unit with many rows", "rates", call, data, pa.concat_tables([crowd, greedy]))
    spread = amounts(np.arange(_UNITS) % 40, np.linspace(low, high, _UNITS))
    yield Inputs("rows in another order", "dependence", call, spread, reordered(spread), {"runs": 5})


def reordered(table: pa.Table) -> pa.Table:
    """Return the rows in another order, always the same: by a multiplicative hash of their places."""
    return table.take(np.argsort(np.arange(len(table)) * 2654435761 % 2**32))


def amounts(units: Any, values: Any) -> pa.Table:
    """Return a table of units and numbers."""
    return pa.table({"unit": pa.array(units, pa.int64()), "amount": pa.array(values, pa.float64())})
