"""Every public path of the library with an audit: a claim, inputs that hurt, and the runs of the short version.

`audits()` yields them by name. `test_paths.py` runs the short version; `make audit` runs them all with more runs, and
plants faults (`power.py`). Two facts about each: it passes, and the same runs refute a claim of a third of its epsilon.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

import dpsieve as ds
from dpsieve.auditing.inputs import Inputs, amounts, canary_inputs, events
from dpsieve.sketches import MergedSketch

LEVEL = 1 - 1e-6
ENGINE = ds.engines.DuckDB(threads=1)
CANARIES, UNITS = 2000, 60
BUDGET = {"epsilon": 1.0, "delta": 1e-9}
LOOSE = {"epsilon": 2.5, "delta": 0.05}
PURE = {"epsilon": 2.5}
FULL = {"epsilon": 2.5, "delta": 0.05}
CLIENTS = {"epsilon": 1.0, "delta": 0.3}
FEW = {"epsilon": 1.0, "delta": 0.5}


@dataclass(frozen=True)
class Path:
    """An audit of one public path; `share` of its epsilon is refuted by the short version."""

    inputs: Callable[[], Inputs]
    epsilon: float
    delta: float = 0.0
    runs: int = 600
    share: float = 1 / 3
    level: float = LEVEL

    def audit(self, seed=1, runs=None, level=None):
        inputs = self.inputs()
        if runs is not None and inputs.kind == "one_run":
            inputs = replace(inputs, options={**inputs.options, "runs": max(1, runs // self.runs)})
        source = ds.testing.insecure_source(seed)
        return inputs.audit(self.epsilon, self.delta, level or self.level, runs or self.runs, source=source)


def table(publish, *, canaries=CANARIES, units=UNITS, found=None, **arguments):
    """Canaries in one call of a job on a table of units and keys."""
    given = {"key": "key", "privacy_unit": "unit", "engine": ENGINE, **BUDGET, **arguments}

    def call(data, source):
        return publish(data, source=source, **given)

    return Path(lambda: canary_inputs(call, units, canaries, found=found), 1.0, 1e-9)


def known(count=CANARIES):
    return [f"key {i} 0" for i in range(count)]


def stream(publish, counters=600, canaries=500, epsilon=2.0, delta=1e-9):
    """Canaries in one release of a sketch."""

    def call(data, source):
        return publish(counters, data["key"].to_pylist(), source)

    return Path(lambda: canary_inputs(call, UNITS, canaries), epsilon, delta)


def sketch_of(counters, items):
    sketch = ds.MisraGries(counters)
    sketch.update(items)
    return sketch


def misra_gries(counters, items, source):
    return sketch_of(counters, items).release(2.0, 1e-9, source=source)


def universe(counters, items, source):
    return sketch_of(counters, items).release(**PURE, universe=["tea"], source=source)


def merged(counters, items, source):
    sketches = [sketch_of(counters, part) for part in (items, ["tea"] * 60)]
    return MergedSketch.of(*sketches).release(**FULL, source=source)


def vector(canaries=2000, share=1 / 3, **arguments):
    """Canaries in the entries of a sparse vector, which are asked for by index."""
    indices = np.arange(canaries) * 1000

    def run(parts, source):
        values = np.array(parts)
        made = ds.SparseVector.private(indices, values, dimension=10**7, source=source, **arguments)
        return made.get(indices) - 10.5

    inputs = Inputs("entries", "one_run", run, [11] * canaries, [10] * canaries)
    return Path(lambda: inputs, arguments["epsilon"], arguments.get("delta", 0.0), share=share)


def rates(run, data, neighbour, budget, **settings):
    inputs = Inputs("rates", "rates", run, data, neighbour)
    return Path(lambda: inputs, budget["epsilon"], budget.get("delta", 0.0), **settings)


def number(publish, budget, data, neighbour, **arguments):
    """A number of an array, without a table."""

    def run(values, source):
        return publish(values, source=source, **budget, **arguments).value

    return rates(run, np.array(data), np.array(neighbour), budget)


def several_keys(make, budget=LOOSE, **settings):
    """The counts of five keys, which one unit more all holds."""

    def run(keys, source):
        counts = [40 + (i < keys) for i in range(5)]
        made = make(**budget, max_keys=5).release([f"key {i}" for i in range(5)], counts, source=source)
        return float(sum(made.table["count"].to_pylist()))

    return rates(run, 0, 5, budget, **settings)


def lone_key(make, budget=CLIENTS, **settings):
    """A key that one unit holds, or nobody."""

    def run(units, source):
        made = make(**budget)
        return made.release(["tea"][:units], [1][:units], source=source).table.select(["key", "count"])

    return rates(run, 0, 1, budget, **settings)


def lone_keys(keys, source):
    made = ds.channels.report_then_count(**CLIENTS, max_keys=5).release(keys, [1] * len(keys), source=source)
    return len(made)


def lone_item(publish, **settings):
    """An item that occurs once, or not at all, in a stream with another one."""

    def run(items, source):
        return publish(items, source).table.select(["key"])

    return rates(run, ["tea"] * 60, [*["tea"] * 60, "secret"], CLIENTS, **settings)


def users_lone(items, source):
    sketch = ds.UserMisraGries(8)
    sketch.update([[item] for item in items])
    return sketch.release(**CLIENTS, source=source)


def full_sketch(publish, budget=FULL, **settings):
    """A sketch whose only counter is in use, and one item more, which lowers it."""

    def run(items, source):
        made = publish(1, items, source)
        counters, lost = made.table["counter"].to_pylist(), made.drawn["lost"]
        return [sum(counters), lost, sum(counters) - lost, *counters]

    items = ["tea"] * 60
    return rates(run, items, [*items, "secret"], budget, **settings)


def users_sketch(sets, source):
    sketch = ds.UserMisraGries(8)
    sketch.update(sets)
    return float(sum(count or 0 for count in sketch.release(**FULL, source=source).table["count"].to_pylist()))


def of_table(publish, budget, data, neighbour, **arguments):
    """A job on a table, without canaries: each run is a call, so there are few in the short version."""
    given = {"privacy_unit": "unit", "engine": ENGINE, **budget, **arguments}

    def run(rows, source):
        made = publish(rows, source=source, **given)
        return made.table.select(["key"]) if "key" in made.table.column_names else made

    return rates(run, data, neighbour, budget, runs=100, level=0.999, share=0.2)


def counted(batches, source):
    """Counts made elsewhere, with canaries."""
    with tempfile.TemporaryDirectory() as folder:
        given = {"key": "key", "privacy_unit": "unit", "out": f"{folder}/out", **BUDGET}
        made = ds.release_counts(batches, source=source, **given)
        return made.table


def count_canaries(canaries=2000):
    names = [f"key {i:04d}" for i in range(canaries)]

    def run(counts, source):
        table = counted([pa.table({"key": names, "count": pa.array(counts, pa.int64())})], source)
        shown = dict(zip(table["key"].to_pylist(), table["count"].to_pylist(), strict=True))
        return [shown.get(name, UNITS) - UNITS - 0.5 for name in names]

    inputs = Inputs("counts", "one_run", run, [UNITS + 1] * canaries, [UNITS] * canaries)
    return Path(lambda: inputs, 1.0, 1e-9)


def total_canaries(column, centre, value, canaries=1000, **arguments):
    """Canaries with the largest allowed value, in the totals of a column."""
    given = {"key": "key", "privacy_unit": "unit", "engine": ENGINE, **BUDGET, "max_keys_per_unit": 1, **arguments}
    base = events({f"key {i} 0": range(UNITS * i, UNITS * (i + 1)) for i in range(canaries)})
    rows = amounts(np.arange(len(base)), np.zeros(len(base)))["amount"]
    base = base.append_column("amount", rows)

    def run(parts, source):
        more = pa.table({"unit": [10**9 + i for i in parts], "key": [f"key {i} 0" for i in parts]})
        more = more.append_column("amount", pa.array([value] * len(parts), pa.float64()))
        made = ds.release(pa.concat_tables([base, more]), source=source, **given).table
        shown = dict(zip(made["key"].to_pylist(), made[column].to_pylist(), strict=True))
        return [(shown.get(f"key {i} 0") or centre) - centre for i in range(canaries)]

    inputs = Inputs("totals", "one_run", run, list(range(canaries)))
    return Path(lambda: inputs, given["epsilon"], given["delta"])


VALUES = [0.0, 1.0] * 20
MEANS = [*VALUES[1:], 0.0], [*VALUES[1:], 1.0]
DRINKS = ["tea", "milk", "juice", "water", "soda", "cider", "coffee", "cocoa"]
NOBODY, SOMEBODY = events({"0": range(1, 3)}), events({"0": range(1, 3), "7": [9]})

AUDITS = {
    "release": table(ds.release, max_keys_per_unit=1),
    "release, optimal": table(ds.release, max_keys_per_unit=1, method="optimal"),
    "release, simple": table(ds.release, max_keys_per_unit=1, method="simple"),
    "release, truncated geometric": table(ds.release, max_keys_per_unit=1, method="truncated_geometric"),
    "release, stability": table(ds.release, max_keys_per_unit=1, method="stability"),
    "release, bound chosen": table(ds.release),
    "release, goal keys": table(ds.release, goal="keys"),
    "release, goal counts": table(ds.release, goal="counts"),
    "release, known keys": table(ds.release, max_keys_per_unit=1, known_keys=known()),
    "release, min_units": table(ds.release, max_keys_per_unit=1, min_units=20),
    "release, coverage": table(ds.release, max_keys_per_unit=1, report_coverage=True),
    "release, sample size": table(ds.release, max_keys_per_unit=1, sample_size=10**6),
    "release, scheme": table(ds.release, max_keys_per_unit=1, scheme=ds.ppswor(1.0)),
    "release, rest": table(ds.release, max_keys_per_unit=1, rest=True),
    "release, sums": total_canaries("amount_sum", 25.0, 50.0, sums={"amount": (0, 50)}),
    "release_counts": count_canaries(),
    "discover": table(ds.discover, max_keys_per_unit=1, canaries=4000, units=20, found=1000),
    "discover, any number of keys": table(ds.discover, canaries=4000, units=20, found=800),
    "top_k": table(ds.top_k, k=500, canaries=1000, found=500, method="one_key"),
    "hitting_set": table(ds.hitting_set, k=500, canaries=1000, found=500, method="one_key"),
    "channel, gaussian, five keys": several_keys(ds.channels.gaussian, share=0.25),
    "channel, report_then_count, five keys": several_keys(ds.channels.report_then_count, share=0.3),
    "channel, optimal, lone key": lone_key(ds.channels.optimal),
    "channel, sample_threshold, lone key": lone_key(ds.federated.plan),
    "MisraGries": stream(misra_gries),
    "MisraGries, lone item": lone_item(
        lambda items, source: sketch_of(8, items).release(**CLIENTS, source=source), share=0.15
    ),
    "MisraGries, full": full_sketch(lambda k, items, source: sketch_of(k, items).release(**FULL, source=source)),
    "MisraGries, universe": full_sketch(universe, PURE, share=0.15),
    "MisraGries, merged": full_sketch(merged, share=0.15),
    "UserMisraGries": rates(users_sketch, [DRINKS] * 60, [DRINKS] * 61, FULL, share=0.05),
    "SparseVector": vector(neighbours="one_entry", epsilon=2.0, sparsity=2000, share=0.3),
    "SparseVector, retrieval": vector(neighbours="one_entry", epsilon=2.0, delta=1e-9, sparsity=2000),
    "SparseVector, alp": vector(neighbours="one_entry", epsilon=4.0, variant="alp", sparsity=2000, share=0.1),
    "SparseVector, dense": vector(neighbours="one_entry", epsilon=2.0, variant="dense", sparsity=2000),
    "SparseVector, max projection": vector(
        neighbours="one_entry", epsilon=2.0, variant="max_projection", sparsity=2000, share=0.3
    ),
    "SparseVector, l1": vector(neighbours="l1", epsilon=2.0, total=22_000.0, share=0.15),
    "sum of an array": number(ds.sum, PURE, VALUES, [*VALUES, 1.0], bounds=(0, 1)),
    "mean of an array, units added": rates(
        lambda values, source: ds.mean(
            np.array(values), bounds=(0, 1), neighbours="add_remove", source=source, **LOOSE
        ),
        VALUES,
        [*VALUES, 1.0],
        LOOSE,
        share=0.1,
    ),
    "mean of an array": number(ds.mean, LOOSE, *MEANS, bounds=(0, 1), neighbours="replace"),
    "quantile of an array, gaps": number(ds.quantile, PURE, [0.5], [0.0, 0.5], bounds=(0, 1), quantile=0.5),
    "quantile of an array, halving": number(
        ds.quantile, PURE, [0.5], [0.0, 0.5], bounds=(0, 1), quantile=0.5, method="halving"
    ),
    "collect_histogram": of_table(ds.collect_histogram, FEW, NOBODY, SOMEBODY, column="key"),
    "collect_heavy_hitters": of_table(ds.collect_heavy_hitters, FEW, NOBODY, SOMEBODY, column="key", max_length=1),
}

# Only in `make audit`: each call takes 20 ms or more, so the power of a few seconds is small.
ROWS = amounts(range(40), VALUES)
MORE_ROWS = amounts(range(41), [*VALUES, 1.0])
MANY = np.linspace(0, 1, 400).tolist()
GIVEN = {"column": "amount", "bounds": (0, 1)}
TWO, THREE = amounts([1, 2], [0.1, 0.1]), amounts([1, 2, 3], [0.1, 0.1, 0.9])
LONG = {
    "channel, gaussian, lone key": lone_key(ds.channels.gaussian),
    "channel, simple, lone key": lone_key(ds.channels.simple),
    "channel, report_then_count, lone keys": rates(lone_keys, [], [f"key {i}" for i in range(5)], CLIENTS),
    "UserMisraGries, lone item": lone_item(users_lone),
    "sum of a table": of_table(ds.sum, PURE, ROWS, MORE_ROWS, max_rows_per_unit=1, **GIVEN),
    "mean of a table": of_table(
        ds.mean, LOOSE, amounts(range(40), MEANS[0]), amounts(range(40), MEANS[1]), neighbours="replace", **GIVEN
    ),
    "quantile of a table": of_table(
        ds.quantile, PURE, amounts([1], [0.5]), amounts([1, 2], [0.5, 0.0]), quantile=0.5, max_rows_per_unit=1,
        **GIVEN,
    ),
    "collect_quantiles": of_table(
        ds.collect_quantiles, FEW, TWO, THREE, depth=1, **GIVEN
    ),
    "mean of an array, PLAN": number(
        ds.mean, {"epsilon": 8.0, "delta": 0.1}, [*MANY, 0.0], [*MANY, 1.0], bounds=(0, 1), neighbours="replace",
        method="plan",
    ),
}  # fmt: skip
