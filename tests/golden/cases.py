"""One publication of every kind, each drawn from its own repeatable source.

Everything goes through public functions; what has no public function is imported in the second block below.
"""

import functools
import tempfile
import zlib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from helpers.arrays import private_mean, private_quantile, private_sum

import dpsieve as ds

# Names without a public path. Adjust them here when modules move.
from dpsieve.codec import find_class, homes  # isort: skip
from dpsieve.privacy.mechanism import Mechanism  # isort: skip

MECHANISMS = {name for name in homes() if find_class(name, Mechanism) is not None}  # all that are registered

KEYS, FREQUENCIES = ["coffee", "juice", "tea", "water"], [900, 400, 700, 500]
SALT = bytes(range(32))
# With several threads, the order in which DuckDB returns groups, and so that of the draws, differs between runs.
ENGINE = ds.engines.DuckDB(threads=1)
CASES: dict[str, Callable[[Any], Any]] = {}


def add(name: str, make: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Register a case: `make` is called with the arguments and `source`."""
    assert name not in CASES, name
    CASES[name] = functools.partial(make, *arguments, **options)


def source_for(name: str) -> Any:
    """Return the repeatable source of one case; its seed depends on the name alone."""
    return ds.testing.insecure_source(zlib.crc32(name.encode()))


# Tables and releases of tables.


@functools.cache
def units_with_keys() -> pa.Table:
    """Return rows of 300 users with three to five keys each, two key columns, and repeated rows."""
    rows = [(u, f"k{(u * u + k) % 9 if k > 2 else k}", u % 2) for u in range(300) for k in range(3 + u % 3)]
    rows += rows[::7]
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(("user", "a", "b"))})


@functools.cache
def numbers() -> pa.Table:
    """Return rows of 400 users with two columns of numbers, two rows for every fourth user."""
    users = np.concatenate([np.arange(400), np.arange(0, 400, 4)])
    return pa.table({"user": users, "x": np.sin(users) * 5 + 5, "y": (users % 17).astype(float)})


def release(**options: Any) -> Any:
    """Release the keys of `units_with_keys`."""
    return ds.release(
        units_with_keys(),
        **{"key": "a", "privacy_unit": "user", "epsilon": 2.0, "delta": 1e-3, "engine": ENGINE, **options},
    )


def release_totals(**options: Any) -> Any:
    """Release the keys of `units_with_keys` with totals of two columns of numbers."""
    table = units_with_keys()
    users = np.array(table.column("user"))
    table = table.append_column("x", pa.array((users % 7) * 3.5)).append_column("y", pa.array(users % 5 + 1))
    terms = {"key": "a", "privacy_unit": "user", "epsilon": 2.0, "delta": 1e-3, "engine": ENGINE, **options}
    return ds.release(table, **terms)


def release_few(**options: Any) -> Any:
    """Release the keys of units of which most hold one: keys are found first, then counted."""
    users = np.concatenate([np.arange(20_000), np.arange(2_000)])
    table = pa.table({"user": users, "a": np.minimum(users % 60, 40) + np.arange(len(users)) // 20_000})
    return ds.release(table, key="a", privacy_unit="user", epsilon=4.0, delta=1e-3, engine=ENGINE, **options)


def release_files(**options: Any) -> Any:
    """Release from two Parquet files, with a ledger."""
    with tempfile.TemporaryDirectory() as folder:
        table = units_with_keys()
        pq.write_table(table.slice(0, 500), Path(folder) / "first.parquet")
        pq.write_table(table.slice(500), Path(folder) / "second.parquet")
        ledger = ds.Ledger(Path(folder) / "ledger.jsonl", epsilon=5.0, delta=1e-2, unit="user")
        terms = {"ledger": ledger, "note": "golden", "epsilon": 2.0, "delta": 1e-3, "engine": ENGINE, **options}
        return ds.release(str(Path(folder) / "*.parquet"), key="a", privacy_unit="user", **terms)


def release_counts(**options: Any) -> Any:
    """Release counts made elsewhere."""
    batches = [pa.record_batch({"drink": KEYS[:2], "count": FREQUENCIES[:2]}),
               pa.record_batch({"drink": [*KEYS[2:], "rare"], "count": [*FREQUENCIES[2:], 1]})]  # fmt: skip
    terms = {"epsilon": 2.0, "delta": 1e-3, "privacy_unit": "user", **options}
    with tempfile.TemporaryDirectory() as folder:
        ds.release_counts(batches, key="drink", out=Path(folder) / "published", **terms)
        return ds.Release.load(Path(folder) / "published")


add("release: automatic bound", release)
add("release: automatic bound, one key for most units", release_few)
add("release: automatic bound, files and ledger", release_files)
add("release: automatic bound, small epsilon", release, epsilon=0.5)
add("release: automatic bound, coverage not reported", release, report_coverage=False)
add("release: automatic bound, counts first", release, goal="counts")
add("release: fixed bound", release, max_keys_per_unit=3, report_coverage=True)
add("release: fixed bound, coverage not reported", release, max_keys_per_unit=3)
add("release: fixed bound, counts first", release, max_keys_per_unit=3, goal="counts", report_coverage=True)
add("release: large bound", release, max_keys_per_unit=40)
add("release: two key columns", release, key=["a", "b"], max_keys_per_unit=3)
add("release: two unit columns", release, privacy_unit=["user", "b"], max_keys_per_unit=4, report_coverage=True)
add("release: one key per unit", release, max_keys_per_unit=1, report_coverage=True)
add("release: rows as units", release, privacy_unit="row")
add("release: rows as units, sampled", release, privacy_unit="row", scheme=ds.ppswor(0.01))
for mechanism in ("optimal", "simple", "truncated_geometric", "stability", "gaussian", "report_then_count"):
    add(f"release: {mechanism}, 3 keys", release, method=mechanism, max_keys_per_unit=3, report_coverage=True)
for mechanism in ("auto", "simple", "gaussian", "report_then_count"):
    rows_per_key = {"max_keys_per_unit": 2, "max_rows_per_key": 2}
    add(f"release: {mechanism}, 2 rows per key", release, method=mechanism, **rows_per_key)
add("release: 2 rows per key, 1 key", release, max_keys_per_unit=1, max_rows_per_key=2)
both = {"sums": {"x": (0, 20)}, "means": {"y": (1, 5)}}
add("release: totals, automatic bound", release_totals, **both)
add("release: totals, 1 key", release_totals, max_keys_per_unit=1, **both)
add("release: totals, 3 keys", release_totals, max_keys_per_unit=3, means={"y": (1, 5)})
add("release: totals, many keys", release_totals, max_keys_per_unit=40, goal="keys", **both)
add("release: totals, bounds chosen", release_totals, max_keys_per_unit=1, sums={"x": "auto"}, means={"y": "auto"})
add("release: totals and the rest", release_totals, max_keys_per_unit=2, rest=True, **both)
add("release: totals, public list", release_totals, max_keys_per_unit=2, known_keys=["k0", "k1", "none"], **both)
add("release: the rest", release, rest=True)
add("release: at least 50 units", release, max_keys_per_unit=1, min_units=50)
add("release: at least 50 units, 3 keys", release, max_keys_per_unit=3, min_units=50)
add("release: sample size", release, sample_size=3, max_keys_per_unit=1)
add("release: sample size, 3 keys", release, sample_size=4, max_keys_per_unit=3)
add("release: priority scheme", release, scheme=ds.priority(0.05), max_keys_per_unit=2)
add("release: known keys, pure", release, known_keys=["k0", "k1", "absent"], delta=0.0, max_keys_per_unit=1)
add("release: known keys, 3 keys", release, known_keys=["k0", "k1", "absent"], max_keys_per_unit=3)
add("release: known keys, gaussian", release, known_keys=["k0", "z"], method="gaussian", max_keys_per_unit=3)
add("release: known keys, laplace", release, known_keys=["k0", "z"], method="laplace", max_keys_per_unit=1,
    max_rows_per_key=2)  # fmt: skip
add("release of counts", release_counts)
add("release of counts, 3 keys", release_counts, max_keys_per_unit=3, method="gaussian")
add("release of counts, keys only", release_counts, keys_only=True, scheme=ds.ppswor(0.05))


# Channels, with counts in memory.


def draw(channel: Callable[[], Any], frequencies: Any = FREQUENCIES, **options: Any) -> Any:
    """Release four keys through a channel."""
    return channel().release(KEYS, frequencies, **options)


add("channel: stability, all keys", draw, functools.partial(ds.channels.stability, 1.0, 1e-3))
for scheme in (ds.priority(0.05), ds.ppswor(0.05)):
    sampled = functools.partial(ds.papers.weighted_sampling.sampled_stability, 1.0, 1e-3, scheme)
    add(f"channel: stability, {scheme!r}", draw, sampled)
for mechanism, scheme in product(("optimal", "simple"), (None, ds.priority(0.05), ds.ppswor(0.05))):
    maker = functools.partial(getattr(ds.channels, mechanism), 1.0, 1e-3, scheme)
    add(f"channel: {mechanism}, {'all keys' if scheme is None else scheme!r}", draw, maker)
add("channel: optimal, sampled by roots", draw, lambda: ds.channels.optimal(1.0, 1e-3, ds.ppswor(0.2, 0.5)))
add("channel: optimal, integer keys", lambda source: ds.channels.optimal(1.0, 1e-3).release(
    [3, 7, 9], [100, 90, 80], source=source))  # fmt: skip
add("channel: optimal, small budget", draw, lambda: ds.channels.optimal(0.3, 1e-9))
add("channel: simple, no keys", lambda source: ds.channels.simple(1.0, 1e-3).release([], [], source=source))
add("channel: simple, keys only", draw, lambda: ds.channels.simple(1.0, 1e-3), keys_only=True)
add("channel: truncated_geometric", draw, lambda: ds.channels.truncated_geometric(1.0, 1e-3))
add("channel: gaussian", draw, lambda: ds.channels.gaussian(1.0, 1e-3, 4, 2))
add("channel: rows_of_units", draw, lambda: ds.channels.rows_of_units(1.0, 1e-3, 3))
add("channel: report_then_count", draw, lambda: ds.channels.report_then_count(1.0, 1e-3, 5))
add("channel: report_then_count for keys", draw, lambda: ds.channels.report_then_count(1.0, 1e-3, 5, goal="keys"))
add("channel: known keys", draw, lambda: ds.channels.known_keys(1.0), [0, 1, 2, 900])
add("channel: known keys, gaussian", draw, lambda: ds.channels.known_keys(1.0, 1e-3, 9, noise="gaussian"))
add("channel: sample_threshold", draw, lambda: ds.channels.sample_threshold(0.3, 12))
add("channel: sample_threshold, replace", draw, lambda: ds.channels.sample_threshold(0.3, 12, neighbours="replace"))
for method in ("ppswor", "priority"):
    add(f"channel: sample of 4 by {method}", ds.channels.release_sample, KEYS, FREQUENCIES, 4, epsilon=2.0, delta=1e-2,
        method=method)  # fmt: skip


# Discovery.


def discover(call: Callable[..., Any], **options: Any) -> Any:
    """Discover keys in `units_with_keys`."""
    terms = {"key": "a", "privacy_unit": "user", "epsilon": 2.0, "delta": 1e-2, "max_keys_per_unit": 3, **options}
    return call(units_with_keys(), engine=ENGINE, **terms)


SELECTORS = ("greedy", "policy_gaussian", "policy_greedy", "renyi", "renyi_two_rounds", "repeated_rounds",
             "weighted_gaussian")  # fmt: skip
for mechanism in SELECTORS:
    add(f"discover: {mechanism}", discover, ds.discover, method=mechanism)
    add(f"discover: hitting set by {mechanism}", discover, ds.hitting_set, method=mechanism, k=2, epsilon=4.0)
    add(f"discover: top 2 by {mechanism}", discover, ds.top_k, method=mechanism, k=2, epsilon=4.0)
add("discover: one_key", discover, ds.discover, method="one_key", max_keys_per_unit=1)
add("discover: automatic", discover, ds.discover)
add("discover: automatic, no bound", discover, ds.discover, max_keys_per_unit=None)
add("discover: automatic, rows as units", discover, ds.discover, privacy_unit="row", max_keys_per_unit=None)
add("discover: automatic, typically 1 key", discover, ds.discover, typical_keys=1)
add("discover: automatic, typically 3 keys", discover, ds.discover, typical_keys=3)
add("discover: automatic, typically 30 keys", discover, ds.discover, typical_keys=30, max_keys_per_unit=100)
add("discover: two key columns", discover, ds.discover, key=["a", "b"])
add("discover: hitting set", discover, ds.hitting_set, k=2)
add("discover: top 2", discover, ds.top_k, k=2)
add("discover: top 2 of rows", discover, ds.top_k, privacy_unit="row", max_keys_per_unit=None, k=2)
add("discover: top 2 of rows, at least 50 rows", discover, ds.top_k, privacy_unit="row", max_keys_per_unit=None, k=2,
    min_units=50)  # fmt: skip
add("discover: at least 50 units", discover, ds.discover, min_units=50)
for mechanism in ("auto", "renyi", "renyi_two_rounds"):
    add(f"discover: top 2 with counts, {mechanism}", discover, ds.top_k, method=mechanism, k=2, counts=True)


# Sums, means and quantiles.


@functools.cache
def matrix(kind: str) -> Any:
    """Return 2,000 rows of 8 numbers, real or binary."""
    at = np.arange(16_000.0).reshape(2_000, 8)
    real = np.sin(at * 0.37) * np.logspace(-2, 1, 8) + np.arange(8)
    return real if kind == "real" else (np.sin(at * 1.7) > np.linspace(-0.9, 0.9, 8)).astype(float)


def of_table(call: Callable[..., Any], **options: Any) -> Any:
    """Publish numbers of a table."""
    terms = {"privacy_unit": "user", "max_rows_per_unit": 1, "bounds": (0, 16), "engine": ENGINE}
    return call(numbers(), **terms | options)


BUDGETS = {"rho": {"rho": 0.5}, "pure": {"epsilon": 1.0}, "approximate": {"epsilon": 1.0, "delta": 1e-6}}
for (words, budget), neighbours in product(BUDGETS.items(), ("add_remove", "replace")):
    add(f"sum of an array: {words}, {neighbours}", private_sum, matrix("real")[:50], [4.0] * 8, **budget,
        neighbours=neighbours)  # fmt: skip
    add(f"sum of a table: {words}, {neighbours}", of_table, ds.sum, column=["x", "y"], **budget,
        neighbours=neighbours)  # fmt: skip
    add(f"quantiles of an array: {words}, {neighbours}", private_quantile, np.arange(999) ** 1.5, [0.2, 0.9],
        bounds=(0, 2**15), **budget, neighbours=neighbours)  # fmt: skip
for shape in ("equal", "proportional"):
    add(f"sum of an array: {shape}", private_sum, np.ones((9, 2)), [4.0, 1.0], neighbours="replace", rho=0.5,
        shape=shape)  # fmt: skip
add("sum of an array: several rows per unit", private_sum, np.ones(9), (0, 4), neighbours="add_remove", rho=0.5,
    rows_per_unit=3)  # fmt: skip
add("sum of a table: several rows per unit", of_table, ds.sum, column="x", max_rows_per_unit=2, epsilon=1.0)
for kind, mode in product(("real", "binary"), ("best", "thesis", "shifted", "rotated", "plain_scale", "gaussian")):
    if (kind, mode) not in {("binary", "rotated"), ("binary", "plain_scale")}:
        bound = {"bound": 64.0} if kind == "real" else {}
        add(f"mean of an array: {kind}, {mode}", private_mean, matrix(kind), kind=kind, mode=mode, rho=2.0, **bound)
add("mean of an array: pairs", private_mean, matrix("real"), kind="real", bound=64.0, spread="pairs", rho=2.0)
add("mean of an array: approximate", private_mean, matrix("real"), kind="real", bound=64.0, epsilon=2.0, delta=1e-6)
add("mean of an array: known variances", private_mean, matrix("real"), kind="real", bound=64.0, rho=2.0,
    variances=np.logspace(-4, 2, 8))  # fmt: skip
for pairs, budget in ((1, BUDGETS["rho"]), (2, BUDGETS["approximate"])):
    add(f"variances of an array: {pairs} pairs per group", ds.papers.thesis.private_variances, matrix("real"),
        bound=64.0, pairs=pairs, **budget)  # fmt: skip
add("sum of an array: a given b", ds.papers.thesis.private_sum, matrix("real")[:50], bounds=(-4, 4),
    b=np.arange(1, 9), mu=1.0)  # fmt: skip
for method, neighbours in product(("box", "plan"), ("replace", "add_remove")):
    if (method, neighbours) != ("plan", "add_remove"):
        add(f"mean of a table: {method}, {neighbours}", of_table, ds.mean, column=["x", "y"], method=method,
            neighbours=neighbours, rho=4.0)  # fmt: skip
add("mean of a table: rows as units", of_table, ds.mean, column="x", privacy_unit="row", epsilon=1.0)
for method in ("search", "halving"):
    budget = BUDGETS["approximate"]
    add(f"quantiles of an array: {method}", private_quantile, np.arange(9_999) ** 1.5, [0.2, 0.9],
        bounds=(0, 2**20), neighbours="replace", method=method, **budget)  # fmt: skip
add("quantiles of an array: gaps", private_quantile, np.arange(999), 0.5, bounds=(0, 1024), neighbours="replace",
    method="gaps", epsilon=1.0)  # fmt: skip
add("quantiles of an array: logarithmic", private_quantile, np.arange(1, 999), 0.5, bounds=(1, 1024),
    neighbours="replace", scale="log", epsilon=1.0)  # fmt: skip
add("quantiles of a table", of_table, ds.quantile, column="x", quantile=[0.25, 0.5], epsilon=1.0, max_rows_per_unit=2)
add("array: sums", ds.sum, matrix("real"), bounds=(-4, 4), rho=0.5)
add("array: means", ds.mean, matrix("real"), bounds=(-64, 64), rho=2.0)
add("array: means of zeros and ones", ds.mean, matrix("binary"), kind="binary", rho=2.0)
add("array: quantiles", ds.quantile, matrix("real")[:, 0], bounds=(-8, 8), quantile=[0.2, 0.9], epsilon=1.0)


# Sketches.


@functools.cache
def sketches() -> tuple[Any, ...]:
    """Return sketches of integers (one that lost counts), of text, of users, merged ones, and another of integers."""
    some, text, users = ds.MisraGries(8), ds.MisraGries(4), ds.UserMisraGries(4)
    some.update(np.concatenate([np.repeat(np.arange(4), 200), np.arange(100, 160)]))
    text.update(["tea"] * 500 + ["coffee"] * 300 + ["mate"])
    users.update([["a", "b"]] * 300 + [["a", "c", "d"]] * 50)
    other = ds.MisraGries(8)
    other.update(np.repeat(np.arange(2, 7), 150))
    return some, text, users, some.merge(other), other


def of_sketch(which: int, epsilon: float, *budget: float, **options: Any) -> Any:
    """Release one of `sketches`."""
    return sketches()[which].release(epsilon, *budget, **options)


def merge_releases(source: Any) -> Any:
    """Add up three releases of one sketch."""
    return ds.papers.thesis.merge_releases(*(sketches()[0].release(1.0, 1e-3, source=source) for _ in range(3)))


add("sketch: integers", of_sketch, 0, 1.0, 1e-3)
add("sketch: text", of_sketch, 1, 1.0, 1e-3)
add("sketch: several items per unit", of_sketch, 0, 2.0, 1e-2, items_per_unit=3)
add("sketch: universe", of_sketch, 0, 1.0, universe=range(50))
add("sketch: universe of text", of_sketch, 1, 1.0, universe=["tea", "coffee", "mate", "milk"])
add("sketch: users", of_sketch, 2, 1.0, 1e-3)
add("sketch: merged, auto", of_sketch, 3, 1.0, 1e-3)
add("sketch: merged, universe, auto", of_sketch, 3, 1.0, universe=range(50))
for words, budget in (("", {"delta": 1e-3}), (", universe", {"universe": range(50)})):
    add(f"sketch: merged{words}, bounded", lambda source, budget=budget: ds.papers.thesis.release_bounded_merge(
        sketches()[0], sketches()[4], epsilon=1.0, **budget, source=source))  # fmt: skip
add("sketch: counters of another program", ds.papers.thesis.release_counters, KEYS, FREQUENCIES, 8, 1.0, 1e-3)
add("sketch: releases added up", merge_releases)
add("sketch: states", lambda source: [
    [sketch.keys_and_counts().keys, sketch.keys_and_counts().values] for sketch in sketches()[:4]])  # fmt: skip


# Sparse vectors.


def vector(indices: Any = (3, 7, 2**29), values: Any = (50, 40, 90), **options: Any) -> Any:
    """Make a private sparse vector of three entries."""
    terms = {"neighbours": "one_entry", "dimension": 2**40, "epsilon": 2.0, "sparsity": 20, **options}
    of_thesis = terms.get("variant") in ("multiplicative", "cormode", "korolova")
    return (ds.papers.thesis.private_vector if of_thesis else ds.SparseVector.private)(indices, values, **terms)


add("vector: automatic, pure", vector)
add("vector: automatic, approximate", vector, delta=1e-3)
add("vector: automatic, l1", vector, neighbours="l1", values=(50.5, 40.25, 90.0))
add("vector: private sparsity", vector, sparsity=None, delta=1e-3)
add("vector: private sparsity, pure", vector, sparsity=None, max_value=60)
add("vector: private total", vector, sparsity=None, neighbours="l1", max_value=60)
add("vector: total", vector, sparsity=None, total=500, neighbours="l1", max_value=60)
add("vector: retrieval", vector, variant="retrieval", delta=1e-3, max_value=60)
add("vector: retrieval, signed", vector, values=(50, -40, 90), variant="retrieval", delta=1e-3, signed=True)
for variant, neighbours in product(("alp", "multiplicative", "max_projection"), ("l1",)):
    add(f"vector: {variant}", vector, variant=variant, neighbours=neighbours, max_value=60, threshold=False)
    add(f"vector: {variant}, listed", vector, variant=variant, neighbours=neighbours, threshold=True, max_value=60)
add("vector: histogram", vector, variant="histogram", max_value=60, signed=True, threshold=False)
add("vector: dense", vector, variant="dense", dimension=100, indices=(3, 7, 29))
add("vector: dense, l1", vector, variant="dense", dimension=100, indices=(3, 7, 29), neighbours="l1")
add("vector: cormode", vector, variant="cormode", dimension=2**30)
add("vector: korolova", vector, variant="korolova", delta=1e-3)
for dimension, indices in (("text", ("a", "b", "c")), ("bytes", (b"a", b"b", b"c")), ("integers", (-3, 7, 2**40))):
    add(f"vector: keys of {dimension}", vector, indices, dimension=dimension, delta=1e-3)
add("vector: answers", lambda source: [
    vector(**terms, source=source).get(np.arange(12))
    for terms in ({"delta": 1e-3}, {"variant": "alp", "neighbours": "l1", "max_value": 60},
                  {"variant": "dense", "dimension": 2**30 // 2**15, "indices": (3, 7, 29)})])  # fmt: skip


# Collection from clients. The name of a collection is random unless it is given.

WORDS = ["abc"] * 300 + ["abd"] * 300 + ["x"] * 300 + ["rare"]


@functools.cache
def clients() -> pa.Table:
    """Return rows of 900 clients with a word, and a second row for every ninth one."""
    rows = [(i, word, i % 64) for i, word in enumerate(WORDS)] + [(i, "other", 63) for i in range(0, 900, 9)]
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(("client", "word", "number"))})


def collect(call: Callable[..., Any], **options: Any) -> Any:
    """Collect from the rows of `clients`."""
    return call(clients(), privacy_unit="client", engine=ENGINE, **options)


def histogram(values: Any = WORDS, listed: Any = None, source: Any = None, **options: Any) -> Any:
    """Collect values by sample-and-threshold."""
    made = ds.federated.Histogram(ds.federated.plan(1.0, 1e-3, **options), listed, collection="golden")
    return made.aggregate(made.client_reports(values, source), source=source)


def trie(**options: Any) -> Any:
    """Return a server for heavy strings."""
    terms = {"max_length": 3, "step": 2, "collection": "golden", **options}
    return ds.federated.TrieHeavyHitters(2.0, 1e-3, **terms)


def quantiles(**options: Any) -> Any:
    """Return a server for a distribution."""
    terms = {"branching": 2, "depth": 3, "collection": "golden", **options}
    return ds.federated.Quantiles(0.0, 64.0, epsilon=2.0, delta=1e-3, **terms)


def search(source: Any, **options: Any) -> Any:
    """Search for one quantile among clients."""
    values, budget = np.linspace(0, 1, 4_000), {"epsilon": 2.0, "delta": 1e-3, "rounds": 5}
    made = ds.papers.sample_threshold.search_quantile(values, 0.3, (0.0, 1.0), source=source, **budget, **options)
    return [float(value) for value in made[:3]]


add("clients: histogram", histogram)
add("clients: histogram of listed values", histogram, listed=["abc", "x", "y"])
add("clients: histogram, replace", histogram, neighbours="replace")
for protocol in ("cohorts", "one_round", "rounds"):
    add(f"clients: trie, {protocol}", lambda source, protocol: trie(protocol=protocol).run(WORDS, source=source),
        protocol=protocol)  # fmt: skip
    add(f"clients: quantiles, {protocol}", lambda source, protocol: quantiles(protocol=protocol).run(
        np.linspace(0, 64, 4_000), source=source), protocol=protocol)  # fmt: skip
for protocol in ("cohorts", "rounds"):
    add(f"clients: quantile search, {protocol}", search, protocol=protocol)
budget = {"epsilon": 1.0, "delta": 1e-3}
add("clients: table of values", collect, ds.collect_histogram, column="word", **budget)
add("clients: table of listed values", collect, ds.collect_histogram, column="word", known_keys=["abc", "y"], **budget)
budget = {"epsilon": 2.0, "delta": 1e-3}
add("clients: table of strings", collect, ds.collect_heavy_hitters, column="word", max_length=3, step=2, **budget)
add("clients: table of numbers", collect, ds.collect_quantiles, column="number", bounds=(0, 64), branching=2, depth=3,
    **budget)  # fmt: skip


# Samples, which are not private: their content is compared instead of a record.


def stream_sample(source: Any) -> Any:
    """Sample a stream in two passes."""
    made, items = ds.papers.weighted_sampling.StreamSample(0.02, source=source), np.repeat(np.arange(60), np.arange(60))
    made.find(items)
    made.count(items)
    return list(made.finish())


def coordinated(source: Any) -> Any:
    """Sample two parts with one salt, merge them, and release them."""
    parts = [ds.Sample.of(keys, counts, ds.ppswor(0.002), salt=SALT)
             for keys, counts in ((KEYS[:2], FREQUENCIES[:2]), (KEYS[2:], FREQUENCIES[2:]))]  # fmt: skip
    merged = parts[0].merge(parts[1])
    few = ds.papers.weighted_sampling.bottom_k(KEYS, FREQUENCIES, 2, salt=SALT)
    return [merged.keys, merged.frequencies, float("inf"), few.keys, few.frequencies, few.threshold]


add("sample: stream", stream_sample)
add("sample: coordinated", coordinated)
add("sample: candidates", lambda source: ds.sampling.candidates(
    KEYS, FREQUENCIES, ds.ppswor(0.002), 2, salt=SALT))  # fmt: skip
