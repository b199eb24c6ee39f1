"""Inputs that hurt: neighbouring data for every job of the library, chosen where a fault would show.

A key that one unit holds, a key at the threshold, a unit with many keys or rows, a value beyond its bound, canaries in
one run, and two layouts of the same rows. `job_inputs` makes them for a job and its arguments.
"""

import inspect
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import dpsieve
from dpsieve.auditing.audit import Audit, AuditKind, audit
from dpsieve.engines.duckdb.engine import DuckDB
from dpsieve.errors import InvalidValue
from dpsieve.randomness.source import Source, resolve

_KEYED = ("release", "release_counts", "discover", "top_k", "hitting_set", "collect_histogram", "collect_heavy_hitters")
_NUMBERS = ("sum", "mean", "quantile", "collect_quantiles")
_SKETCHES = {"MisraGries": 256, "UserMisraGries": 8}  # and how many counters they have by default
JOBS = (*_KEYED, *_NUMBERS, *_SKETCHES, "SparseVector")
SET_BY_AUDIT = frozenset(
    "data batches indices values key column count privacy_unit where allow_null_units known_keys table engine ledger "
    "note out unit universe epsilon delta source progress".split()
)
"""Arguments of jobs that an audit sets: about data, the budget, and where a result is kept."""

_LEVELS = (1, 2, 3, 4, 6, 8, 11, 15, 20, 27, 36, 48, 64, 85, 113, 150, 200, 270, 360, 480, 640)
_KEYS_PER_LEVEL = 8
_UNITS = 60
_ROWS = 200
_MANY = 50
FEWEST = 10  # canaries
_UNBOUNDED = "auto"
_NEW = 10**9  # the first unit of those that neighbours have more, and of canaries
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


def job_inputs(
    job: str, arguments: Mapping[str, Any], canaries: int = 1000, source: Source | None = None
) -> Iterator[Inputs]:
    """Yield the audits of a job with these arguments, epsilon and delta among them.

    >>> [each.name for each in job_inputs("sum", {"epsilon": 1.0, "bounds": (0, 9), "max_rows_per_unit": 1})]
    ['a value at its bound', 'a unit with many rows', 'rows in another order']
    """
    if job not in JOBS:
        fix = f"Choose one of {', '.join(map(repr, JOBS))}, or pass a function."
        raise InvalidValue(f"run={job!r} is not a job. {fix}", argument="run")
    given, publish = dict(arguments), getattr(dpsieve, job)
    if job in _SKETCHES:
        counters = publish(given.pop("counters", _SKETCHES[job])).counters
        call = partial(_release_sketch, publish, counters, given)
        if job == "UserMisraGries":
            yield from _user_sets(call, counters, resolve(source))
        else:
            rows = {"max_rows_per_key": given.get("items_per_unit", 1)}
            yield from _keyed(job, call, 1, min(canaries, counters - 1), rows, source)
        return
    if job == "SparseVector":
        yield from _entries(given, canaries, resolve(source))
        return
    defaults = inspect.unwrap(publish).__kwdefaults__
    if job == "release_counts":
        call = partial(_call_with_counts, publish, {"key": "key", "privacy_unit": "unit", **given})
    else:
        if job in _NUMBERS and given.get("bounds") is None:
            given["bounds"] = (0.0, 1.0)
        argument = "column" if job in _NUMBERS or job.startswith("collect") else "key"
        about = {argument: "amount" if job in _NUMBERS else "key", "privacy_unit": "unit"}
        dpsieve.preview(job=job, **about, **given)  # type: ignore[arg-type]  # refuses wrong arguments
        call = partial(_call, publish, {**about, "engine": DuckDB(threads=1), **given})
    if job in _NUMBERS:
        relation = given.get("neighbours", defaults.get("neighbours"))
        yield from _numbers(call, given["bounds"], replaces=relation == "replace")
        return
    bound = 1 if job.startswith("collect") else given.get("max_keys_per_unit", defaults["max_keys_per_unit"])
    bound = _UNBOUNDED if bound is None else getattr(getattr(bound, "contribution", bound), "keys", bound)
    yield from _keyed(job, call, bound, canaries, given, source)


def _call(publish: Callable[..., Any], arguments: Mapping[str, Any], data: Any, source: Source) -> Any:
    return publish(data, source=source, **arguments)


def _call_with_counts(publish: Callable[..., Any], arguments: Mapping[str, Any], data: pa.Table, source: Source) -> Any:
    counts = data.group_by("key", use_threads=False).aggregate([("unit", "count")])
    with tempfile.TemporaryDirectory() as folder:
        made = publish([counts], count="unit_count", out=f"{folder}/out", source=source, **arguments)
        assert made.table is not None  # read while the folder is there
        return made


def _release_sketch(
    kind: Callable[[int], Any], counters: int, arguments: Mapping[str, Any], data: pa.Table, source: Source
) -> Any:
    sketch = kind(counters)
    if kind is dpsieve.UserMisraGries:
        sketch.update(data.group_by("unit", use_threads=False).aggregate([("key", "list")])["key_list"])
    else:
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


class _Amounts:
    """The columns of totals: made-up values within their bounds, and values far beyond them for new units."""

    def __init__(self, call: _Call, arguments: Mapping[str, Any]) -> None:
        self._call = call
        asked = [(name, each) for name in ("sums", "means") for each in (arguments.get(name) or {}).items()]
        self._bounds = {column: (0.0, 50.0) if bounds == "auto" else bounds for _, (column, bounds) in reversed(asked)}
        self.chooses_bounds = any(bounds == "auto" for _, (_, bounds) in asked)
        self._names = [(column, f"{column}_{name.removesuffix('s')}") for name, (column, _) in asked]

    def __call__(self, data: pa.Table, source: Source) -> Any:
        """Call the job on a table of units and keys, with amounts."""
        units = data["unit"].to_numpy()
        for column, (low, high) in self._bounds.items():
            usual = np.where(units % 2, 0.9 * low + 0.1 * high, 0.1 * low + 0.9 * high)
            extreme = np.where(units >= _NEW, 2 * _extreme(low, high), usual)
            data = data.append_column(column, pa.array(extreme, pa.float64()))
        return self._call(data, source)

    def evidence(self, output: Any) -> dict[Any, float]:
        """Return by key the sum of a count and its centred totals, in multiples of what a new unit adds to each."""
        totals = self.totals(output)
        return {key: count + totals[key] for key, count in counts_of(output).items()}

    def totals(self, output: Any) -> dict[Any, float]:
        """Return by key the sum of centred totals."""
        counts = counts_of(output)
        found = dict.fromkeys(counts, 0.0)
        for column, name in self._names:
            low, high = self._bounds[column]
            centre, towards = (low + high) / 2, _extreme(low, high)
            for (key, count), value in zip(counts.items(), output.table[name].to_pylist(), strict=True):
                total = (centre if value is None else value) * count if name.endswith("mean") else value or 0.0
                found[key] += (total - centre * count) / (towards - centre)
        return found


def _extreme(low: float, high: float) -> float:
    return high if abs(high) >= abs(low) else low


def _keyed(
    job: str, publish: _Call, bound: Any, canaries: int, given: Mapping[str, Any], source: Source | None
) -> Iterator[Inputs]:
    """Yield the audits of a job on keys."""
    call, is_stream, is_counted = _Amounts(publish, given), job == "MisraGries", job == "release_counts"
    rows, least = given.get("max_rows_per_key", 1), given.get("min_units", 1)
    length, k = given.get("max_length"), given.get("k")
    name = partial(_name, length)
    common = events({name(0): range(_UNITS)})
    held = 1 if is_stream else _MANY if bound == _UNBOUNDED else bound
    secrets = events({name(1 + i): [_NEW] for i in range(min(held, 10))}, rows)
    yield Inputs("a key of one unit", "rates", call, common, pa.concat_tables([common, secrets]))
    half, sure = find_levels(call, name, source)
    near = pa.concat_tables([common, events({name(1): range(100, 100 + half)})])
    more = pa.concat_tables([near, events({name(1): [_NEW]}, rows)])
    yield Inputs("a key at the threshold", "rates", call, near, more)
    if held > 1:
        most = held + (0 if is_counted else 10)  # counts are within the bound, as promised
        crowd = events({name(i): range(1000 * i, 1000 * i + sure) for i in range(held + 10)})
        greedy = events({name(i): [_NEW] for i in range(most)}, rows if is_counted else rows + 2)
        yield Inputs("a unit with many keys", "rates", call, crowd, pa.concat_tables([crowd, greedy]))
    if length is None and k is None and job != "discover" and not given.get("keys_only"):  # these have no counts
        each = min(held, 10)
        canaries_of = partial(canary_inputs, call, sure, max(1, canaries // each), each, rows=rows)
        yield canaries_of(evidence=call.evidence)
        if given.get("sums") or given.get("means"):
            yield replace(canaries_of(evidence=call.totals), name="canaries in totals")
    chooses = bound == _UNBOUNDED or call.chooses_bounds or k is not None  # these follow the counts of all keys,
    if not chooses and not is_stream and not job.startswith("collect"):  # and so do the words of samples
        several = events({name(i): range(100 * i, 100 * i + min(sure, 99)) for i in range(5)})
        more = pa.concat_tables([several, events({name(2): [_NEW]})])
        options: dict[str, Any] = {"affected": [name(2)], "runs": 5}
        yield Inputs("one unit more in a known key", "dependence", call, several, more, options)
        if least > 2 and not given.get("rest") and not given.get("report_coverage"):
            few, more = (pa.concat_tables([several, events({name(9): range(9000, 9000 + n)})]) for n in (1, least - 1))
            yield Inputs("a key below min_units", "dependence", call, few, more, {"runs": 5})
    table = events({name(i): range(10 * i, 10 * i + sure) for i in range(12)})
    if not is_stream:  # the order of a stream is part of it
        yield Inputs("rows in another order", "dependence", call, table, reordered(table), {"runs": 5})


def canary_inputs(
    call: _Call, units: int, count: int, keys: int = 1, found: int | None = None, rows: int = 1,
    evidence: Callable[[Any], dict[Any, float]] | None = None,
) -> Inputs:  # fmt: skip
    """Return the audit with canaries: made-up units that hold so many keys each, which `units` others hold as well.

    With `found`, outputs have no counts: so many canaries are guessed to be in, among those whose keys are published.
    With `evidence`, a function of an output, its numbers by key are compared with their mean.
    """
    names = [[f"key {i} {j}" for j in range(keys)] for i in range(count)]
    base = events({name: range(units * i, units * (i + 1)) for i, held in enumerate(names) for name in held})
    parts = [events({name: [_NEW + i] for name in held}, rows) for i, held in enumerate(names)]
    centre = keys * (units + rows / 2) if found is None else 0.0

    def score(output: Any) -> Any:
        numbers = (evidence or counts_of)(output)
        scores = np.array([sum(numbers.get(name, 0.0) for name in held) for held in names])
        return scores - (scores[scores != 0].mean() if evidence and scores.any() else centre)

    def run(chosen: list[pa.Table], source: Source) -> Any:
        return call(pa.concat_tables([base, *chosen]), source)

    options = {"score": score} if found is None else {"score": score, "guesses": min(found, count)}
    return Inputs("canaries in one run", "one_run", run, parts, None, options)


def _user_sets(call: _Call, counters: int, source: Source) -> Iterator[Inputs]:
    """Yield the audits of a sketch of units with sets of items, where every counter is in use, or none."""

    def run(data: pa.Table, source: Source) -> Any:
        made = call(data, source)
        return {"released": made, "sum": float(sum(made.table["counter"].to_pylist()))}

    names = [f"key {i}" for i in range(counters)]
    full = events({name: range(_UNITS) for name in names})
    run(full, source)  # refuses wrong arguments
    every, other = events({name: [_NEW] for name in names}), events({"another key": [_NEW]})
    yield Inputs("keys of one unit", "rates", run, full[:0], every)
    yield Inputs("a unit in every counter", "rates", run, full, pa.concat_tables([full, every]))
    yield Inputs("a unit that lowers all counters", "rates", run, full, pa.concat_tables([full, other]))
    yield Inputs("rows in another order", "dependence", call, full, reordered(full), {"runs": 5})


def _entries(given: Mapping[str, Any], canaries: int, source: Source) -> Iterator[Inputs]:
    """Yield the audits of a sparse vector: of its entries by place, and in their order."""
    asked: dict[str, Any] = {"neighbours": "one_entry", "dimension": 2**40, **given}
    dpsieve.SparseVector.preview(**asked)  # refuses wrong arguments
    dimension, value = asked["dimension"], int(min(asked.get("max_value") or 11, 11))
    limits = [canaries, asked.get("sparsity"), int((asked.get("total") or 0) / value)]
    number = min(limit for limit in [*limits, 0 if isinstance(dimension, str) else dimension] if limit)
    if number < FEWEST:
        why = f"sparsity, total, dimension or canaries allow only {number} entries"
        raise InvalidValue(f"{why}. Pass a number that allows {FEWEST} or more.")
    kinds: dict[Any, Callable[[int], Any]] = {"text": str, "bytes": b"%d".__mod__}
    make, apart = kinds.get(dimension, int), 1 if isinstance(dimension, str) else dimension // number

    def draw(entries: Any, source: Source) -> Any:
        keys, values = [make(i * apart) for i, _ in entries], [value for _, value in entries]
        return dpsieve.SparseVector.private(keys, values, source=source, **asked)

    def run(entries: Any, source: Source) -> Any:
        vector = draw(entries, source)
        return {"listed": vector.table, "estimates": vector.get([make(i * apart) for i in range(number)][:20])}

    def estimate(values: Any, source: Source) -> Any:
        return draw([*enumerate(values)], source).get([make(i * apart) for i in range(number)]) - (value - 0.5)

    few = [(i, value) for i in range(1, min(number, 20))]
    yield Inputs("an entry of one", "rates", run, few, [*few, (0, 1)])
    every = np.repeat(_LEVELS, _KEYS_PER_LEVEL)
    levels = [*enumerate(every[:: math.ceil(len(every) / number)].tolist())]
    listed = set(draw(levels, source).table[0].to_pylist())
    half = next((level for i, level in levels if make(i * apart) in listed), None)
    if half is not None:
        yield Inputs("an entry at the threshold", "rates", run, [*few, (0, half)], [*few, (0, half + 1)])
    yield Inputs("canaries in one run", "one_run", estimate, [value] * number, [value - 1] * number)
    yield Inputs("entries in another order", "dependence", draw, few, few[::-1], {"runs": 5})


def _name(length: int | None, number: int) -> str:
    return f"key {number}" if length is None else str(number).rjust(length, "0")[-length:]


def find_levels(call: _Call, name: Callable[[int], str], source: Source | None = None) -> tuple[int, int]:
    """Return the number of units at which about half of keys are published, and one at which all are, by one call."""
    holders, unit = {}, 0
    for place, level in enumerate(_LEVELS):
        for i in range(_KEYS_PER_LEVEL):
            holders[name(place * _KEYS_PER_LEVEL + i)] = range(unit, unit + level)
            unit += level
    counts = counts_of(call(events(holders), resolve(source)))
    if not counts:
        fix = "Pass a larger epsilon or delta, a smaller min_units or more counters."
        raise InvalidValue(f"no made-up key is published, with up to {_LEVELS[-1]} units, so nothing could fail. {fix}")
    keys = {
        level: [counts.get(name(place * _KEYS_PER_LEVEL + i)) for i in range(_KEYS_PER_LEVEL)]
        for place, level in enumerate(_LEVELS)
    }
    half = next((level for level, found in keys.items() if 2 * found.count(None) <= _KEYS_PER_LEVEL), 640)
    missed = [level for level, found in keys.items() if not all(found)]  # not published, or without a count
    return half, min(2 * max(missed, default=1) + 10, 1000)


def _numbers(call: _Call, bounds: Any, *, replaces: bool) -> Iterator[Inputs]:
    """Yield the audits of a job on numbers of one column, where a unit is added, or replaced by another."""
    low, high = np.ravel(bounds)[:2].tolist()
    extreme = _extreme(low, high)
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
