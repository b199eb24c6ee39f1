"""Every public path of the library with an audit: a claim, inputs that hurt, and the runs of the short version.

`AUDITS` and `LONG` have them by name: jobs on tables with canaries, and mechanisms by themselves, which are fast enough
for thousands of runs at a large delta, where a threshold shows. `test_paths.py` runs the short version of `AUDITS`;
`make audit` runs them all with more runs, and plants faults (`power.py`). Three facts about each: it passes, the same
runs refute a smaller claim, and together they call every mechanism, every choice of an argument and every public
function that draws.
"""

import json
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path as Place

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from helpers.command import run as run_command

import dpsieve as ds
from dpsieve.auditing.inputs import Inputs, amounts, canary_inputs, events, reordered
from dpsieve.discovery.divided_units import DividedUnits
from dpsieve.discovery.find_then_count import find_then_count, find_then_measure
from dpsieve.discovery.picks import hitting_keys, top_keys
from dpsieve.discovery.selector import TypicalSize, make_selector
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import DpsieveError
from dpsieve.noise.keys_per_unit import KeysPerUnit
from dpsieve.noise.private_total import PrivateTotal
from dpsieve.noise.rest_and_bounds import AmountBounds, Rest
from dpsieve.noise.totals import Total
from dpsieve.randomness.source import resolve
from dpsieve.sketches import MergedSketch
from dpsieve.sparse.grid_noise import PrivateNorm, PrivateSparsity

LEVEL = 1 - 1e-6
ENGINE = ds.engines.DuckDB(threads=1)
CANARIES, UNITS = 2000, 60
LARGEST_DELTA = 0.95


@dataclass(frozen=True)
class Path:
    """An audit of one public path.

    Attributes:
        make: the inputs, from a budget; the budget is the claim, except where a fault is planted by a larger one.
        epsilon, delta: the claim.
        runs: of the short version, on each input.
        share: of epsilon and delta, which the short version refutes; None where only a fault makes outputs differ.
        level: the confidence of the verdict.
    """

    make: Callable[..., Inputs]
    epsilon: float
    delta: float = 0.0
    runs: int = 600
    share: float = 1 / 3
    level: float = LEVEL

    def inputs(self, noise=1.0, threshold=1.0):
        """Return the inputs of the job with `noise` times the noise, or with delta divided by `threshold`."""
        budget = {"epsilon": self.epsilon / noise}
        if self.delta:
            budget["delta"] = min(self.delta / threshold, LARGEST_DELTA)
        return self.make(**budget)

    def audit(self, seed=1, runs=None, level=None, noise=1.0, threshold=1.0):
        inputs = self.inputs(noise, threshold)
        if runs is not None and inputs.kind == "one_run":
            inputs = replace(inputs, options={**inputs.options, "runs": max(1, runs // self.runs)})
        source = ds.testing.insecure_source(seed)
        return inputs.audit(self.epsilon, self.delta, level or self.level, runs or self.runs, source=source)


# Jobs on tables, with canaries.


def table(publish, *, canaries=CANARIES, units=UNITS, found=None, epsilon=1.0, share=1 / 3, between=False, **arguments):
    """Canaries in one call of a job on a table of units and keys.

    With `between`, for noise whose centre may be half a count off: the median of all counts is no guess, and half of
    the canaries are guessed.
    """
    given = {"key": "key", "privacy_unit": "unit", "engine": ENGINE, **arguments}

    def make(**budget):
        def call(data, source):
            return publish(data, source=source, **given, **budget)

        inputs = canary_inputs(call, units, canaries, found=found)
        if between:
            count, half = inputs.options["score"], {"guesses": canaries // 2}
            half["score"] = lambda output: (numbers := np.array(count(output))) - np.median(numbers)
            return replace(inputs, options={**inputs.options, **half})
        return inputs

    return Path(make, epsilon, 1e-9, share=share)


def known(count=CANARIES):
    return [f"key {i} 0" for i in range(count)]


def count_canaries(canaries=2000, epsilon=1.0, **arguments):
    """Canaries in counts that were made elsewhere."""
    names = [f"key {i:04d}" for i in range(canaries)]

    def make(**budget):
        def run(counts, source):
            batch = pa.table({"key": names, "count": pa.array(counts, pa.int64())})
            with tempfile.TemporaryDirectory() as folder:
                given = {"key": "key", "privacy_unit": "unit", "out": f"{folder}/out", **arguments, **budget}
                made = ds.release_counts([batch], source=source, **given).table
            shown = dict(zip(made["key"].to_pylist(), made["count"].to_pylist(), strict=True))
            return [(shown.get(name) or UNITS) - UNITS - 0.5 for name in names]

        return Inputs("counts", "one_run", run, [UNITS + 1] * canaries, [UNITS] * canaries)

    return Path(make, epsilon, 1e-9)


def total_canaries(column, centre, value, canaries=1000, units=UNITS, epsilon=1.0, share=1 / 3, **arguments):
    """Canaries with the largest allowed value, in the totals of a column."""
    given = {"key": "key", "privacy_unit": "unit", "engine": ENGINE, **arguments}

    def make(**budget):
        base = events({f"key {i} 0": range(units * i, units * (i + 1)) for i in range(canaries)})
        base = base.append_column("amount", amounts(np.arange(len(base)), np.zeros(len(base)))["amount"])

        def run(parts, source):
            more = pa.table({"unit": [10**9 + i for i in parts], "key": [f"key {i} 0" for i in parts]})
            more = more.append_column("amount", pa.array([value] * len(parts), pa.float64()))
            made = ds.release(pa.concat_tables([base, more]), source=source, **given, **budget).table
            shown = dict(zip(made["key"].to_pylist(), made[column].to_pylist(), strict=True))
            return [(shown.get(f"key {i} 0") or centre) - centre for i in range(canaries)]

        return Inputs("totals", "one_run", run, list(range(canaries)))

    return Path(make, epsilon, 1e-9, share=share)


def vector(canaries=2000, share=1 / 3, values=(11, 10), dimension=10**7, **arguments):
    """Canaries in the entries of a sparse vector, which are asked for by index."""
    indices = np.arange(canaries) * 1000
    if dimension == "text":
        indices = [str(i) for i in indices]
    asked = {"dimension": dimension, **arguments}
    claim = {name: asked.pop(name) for name in ("epsilon", "delta") if name in asked}

    def make(**budget):
        def run(parts, source):
            made = ds.SparseVector.private(indices, np.array(parts), source=source, **asked, **budget)
            return np.asarray(made.get(indices)) - sum(values) / 2

        return Inputs("entries", "one_run", run, [values[0]] * canaries, [values[1]] * canaries)

    return Path(make, claim["epsilon"], claim.get("delta", 0.0), share=share)


def listed(epsilon, **arguments):
    """A short vector of small values, of which noise lists zeros as well: an entry that is there, or not."""

    def make(**budget):
        def run(values, source):
            indices = np.flatnonzero(values)
            asked = {"neighbours": "one_entry", "dimension": len(values), "sparsity": len(values), **arguments}
            made = ds.SparseVector.private(indices, np.array(values)[indices], source=source, **asked, **budget)
            return made.get(range(len(values)))

        return run

    return rates(make, [0, 0, 0, 0], [1, 0, 0, 0], epsilon, runs=800)


def stream(publish, counters=600, canaries=500, epsilon=2.0, delta=1e-9):
    """Canaries in one release of a sketch."""

    def make(**budget):
        def call(data, source):
            return publish(counters, data["key"].to_pylist(), source, **budget)

        return canary_inputs(call, UNITS, canaries)

    return Path(make, epsilon, delta)


# Runs on two inputs.


def rates(make, data, neighbour, epsilon, delta=0.0, **settings):
    """Runs of what `make` returns for a budget: a function of data and source."""
    return Path(lambda **budget: Inputs("rates", "rates", make(**budget), data, neighbour), epsilon, delta, **settings)


LONE, NEAR, FULL, PURE = (1.0, 0.3), (1.0, 0.05), (2.5, 0.05), (2.5, 0.0)  # epsilon and delta
MANY = {"runs": 3000}


def tokens(maker, rows=None, **options):
    """Return a maker of runs of a mechanism with counts: the tokens of five keys, and how many of them are there."""

    def make(**budget):
        mechanism = maker(**budget, **options)

        def run(counts, source):
            given = {"sums": np.array(rows)[: len(counts)]} if rows else {}
            drawn = mechanism.draw(np.array(counts, np.int64), source=source, **given).tokens.tolist()
            shown = [token for token in drawn if token]
            return [len(shown), sum(shown), *drawn, *[0] * (5 - len(drawn))]

        return run

    return make


def channel(maker, data, neighbour, budget, rows=None, **options):
    settings = {**MANY, **{name: options.pop(name) for name in ("share", "runs") if name in options}}
    return rates(tokens(maker, rows, **options), data, neighbour, *budget, **settings)


def selected(method, units, more, budget, max_keys=5, **settings):
    """How many keys besides 'tea' a selector publishes, from the keys of units; `more` is the unit that is added."""

    def make(**budget):
        selector = make_selector(method, max_keys=max_keys, typical_keys=2, unit="one user", **budget)

        def run(pairs, source):
            published = pairs.keys.filter(pa.array(selector.select(pairs, source)))["key"].to_pylist()
            shown = set(published) - {"tea"}
            return [len(shown), *(float(key in shown) for key in "abcde")]

        return run

    data, neighbour = Pairs.of(units), Pairs.of([*units, more])
    return rates(make, data, neighbour, *budget, **{"runs": 1500, **settings})


def on_pairs(maker, read, units, more, budget, **settings):
    """What a mechanism reads from the keys of units; `more` is the unit that is added."""

    def make(**budget):
        mechanism = maker(**budget)
        return lambda pairs, source: read(mechanism, pairs, source)

    return rates(make, Pairs.of(units), Pairs.of([*units, more]), *budget, **{"runs": 1000, **settings})


def counted_keys(mechanism, pairs, source):
    """Return the tokens of keys by name, and their sum."""
    keys, outcome, *_ = mechanism.find(pairs, source)
    shown = dict(zip(keys["key"].to_pylist(), outcome.tokens.tolist(), strict=True))
    return {"sum": sum(shown.values()), "keys": len(shown), **{f"key {key}": value for key, value in shown.items()}}


def picked_keys(mechanism, pairs, source):
    """Return the picked keys in their order."""
    return [pairs.keys["key"][i].as_py() for i in mechanism.find(pairs, source).tolist()]


def drawn(maker, data, neighbour, budget, read=None, **settings):
    """What a private choice draws."""

    def make(**budget):
        mechanism = maker(**budget)

        def run(value, source):
            found = mechanism.draw(*value, source=source)
            return found if read is None else read(found)

        return run

    return rates(make, data, neighbour, *budget, **{**MANY, **settings})


def number(publish, data, neighbour, budget, **arguments):
    """A number of an array, without a table."""
    settings = {name: arguments.pop(name) for name in ("share", "runs") if name in arguments}

    def make(**budget):
        return lambda values, source: publish(values, source=source, **budget, **arguments).value

    return rates(make, np.array(data), np.array(neighbour), *budget, **settings)


def sketched(publish, data, neighbour, budget, **settings):
    """What `publish` returns of a sketch of items."""

    def make(**budget):
        return lambda items, source: publish(items, source, **budget)

    return rates(make, data, neighbour, *budget, **settings)


def of_table(publish, data, neighbour, budget, **arguments):
    """A job on a table, without canaries: each run is a call, so there are few in the short version."""
    settings = {name: arguments.pop(name) for name in ("share", "runs") if name in arguments}
    given = {"privacy_unit": "unit", "engine": ENGINE, **arguments}

    def make(**budget):
        def run(rows, source):
            made = publish(rows, source=source, **given, **budget)
            names = made.table.column_names if hasattr(made, "table") else ()
            return "7" in made.table["key"].to_pylist() if "key" in names else made

        return run

    settings = {"runs": 100, "level": 0.999, "share": 0.2, **settings}
    return rates(make, data, neighbour, *budget, **settings)


def layout(publish, data, **arguments):
    """The same rows in another order, with the same random words."""

    def make(**budget):
        def run(rows, source):
            return publish(rows, source=source, engine=ENGINE, privacy_unit="unit", **arguments, **budget)

        return Inputs("rows in another order", "dependence", run, data, reordered(data), {"runs": 1})

    return Path(make, 1.0, 1e-3)


# What is published of sketches and clients.


def sketch_of(counters, items):
    sketch = ds.MisraGries(counters)
    sketch.update(items)
    return sketch


def misra_gries(counters, items, source, **budget):
    return sketch_of(counters, items).release(source=source, **budget)


def lone(release, **_):
    return release.table.select(["key"])


def one_counter(made):
    counters, lost = made.table["counter"].to_pylist(), made.drawn["lost"]
    return [sum(counters), lost, sum(counters) - lost, *counters]


def merged(counters, items, source, **budget):
    sketches = [sketch_of(counters, part) for part in (items, ["tea"] * 60)]
    return MergedSketch.of(*sketches).release(source=source, **budget)


def users(sets, source, **budget):
    sketch = ds.UserMisraGries(8)
    sketch.update(sets)
    return sketch.release(source=source, **budget)


def users_full(sets, source, **budget):
    """The counters of a sketch for users: their sum, the loss, and their differences."""
    made = users(sets, source, **budget)
    counters = [counter or 0 for counter in made.table["counter"].to_pylist()]
    return [sum(counters), *made.drawn.values(), *counters]


def histogram(values, source, **budget):
    collector = ds.federated.Histogram(ds.federated.plan(**budget), kind="text")
    reports = [collector.client_report(value, source) for value in values]
    made = collector.tally().add([report for report in reports if report is not None]).release(source=source)
    return dict(zip(made.table["key"].to_pylist(), made.tokens.tolist(), strict=True))


def histogram_of_batch(values, source, **budget):
    collector = ds.federated.Histogram(ds.federated.plan(**budget), kind="text")
    made = collector.aggregate(collector.client_reports(values, source), source=source)
    return dict(zip(made.table["key"].to_pylist(), made.tokens.tolist(), strict=True))


def trie(values, source, protocol="rounds", **budget):
    server = ds.federated.TrieHeavyHitters(max_length=2, alphabet="abc", protocol=protocol, **budget)
    made = server.run(values, source=source)
    return dict(zip(made.trie["prefix"].to_pylist(), made.trie["count"].to_pylist(), strict=True))


def distribution(values, source, **budget):
    return ds.federated.Quantiles(0, 1, depth=2, branching=2, **budget).run(np.array(values), source=source).table


def refusal(rows, source, epsilon, delta):
    """A ledger that pays for one of two releases: what is refused, and how."""
    given = {"key": "key", "privacy_unit": "unit", "engine": ENGINE, "epsilon": epsilon, "delta": delta}
    with tempfile.TemporaryDirectory() as folder:
        book = ds.Ledger(f"{folder}/budget", epsilon=1.5 * epsilon, delta=2 * delta, unit="unit")
        ds.release(rows, ledger=book, source=source, max_keys_per_unit=1, **given)
        try:
            ds.release(rows, ledger=book, source=source, max_keys_per_unit=1, **given)
        except DpsieveError as error:
            return [type(error).__name__, str(error), len(book)]
    return []


# Commands, and files.


@contextmanager
def drawing_from(source):
    """Let a command, which takes no source, draw from this one."""
    system = vars(resolve(None))
    system["words"] = source.words
    try:
        yield
    finally:
        del system["words"]


def command(job, rows, source, *flags, engine=None, **options):
    """Return what a command prints, and what it saves: the bytes of each file, and the publication."""
    given = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", value)]
    with tempfile.TemporaryDirectory() as folder, drawing_from(source):
        pq.write_table(rows, f"{folder}/rows.parquet")
        done = run_command(*job.split(), "rows.parquet", *given, *flags, "--out", "published", cwd=folder)
        made = ds.Release.load(f"{folder}/published") if job == "release" and not done.returncode else None
        return [done.returncode, done.stdout, done.stderr], contents(Place(folder, "published")), made


def contents(folder):
    """Return the bytes of a file, or of each file of a folder."""
    return {path.name: path.read_bytes() for path in sorted([folder, *folder.rglob("*")]) if path.is_file()}


def released_by_command(rows, source, **options):
    return command("release", rows, source, **options)[2]


def all_of_a_command(rows, source, **options):
    return command("release", rows, source, **options)[:2]


def sum_by_command(rows, source, **options):
    code, printed, _ = command("sum", rows, source, "--json", **options)[0]
    return [code, *(row["value"] for row in (json.loads(printed)["numbers"] if code == 0 else ()))]


def files_of(rows, source, **arguments):
    """Return the bytes of all files that a release writes."""
    made = ds.release(rows, source=source, **arguments)
    with tempfile.TemporaryDirectory() as folder:
        made.save(f"{folder}/saved")
        made.to_csv(f"{folder}/table.csv")
        made.report(f"{folder}/report.html")
        return contents(Place(folder))


VALUES = [0.0, 1.0] * 20
MEANS = [*VALUES[1:], 0.0], [*VALUES[1:], 1.0]
DRINKS = ["tea", "milk", "juice", "water", "soda", "cider", "coffee", "cocoa"]
NOBODY, SOMEBODY = events({"0": range(1, 3)}), events({"0": range(1, 3), "7": [9]})
GREEDY = events({"0": range(1, 3), "7": [9], "8": [9], "9": [9]})
TEA = [["tea"]] * 3
CROWD = [[key] for key in "abcde" for _ in range(30)]
SINGLES = [[key] for key in "abcde"] * 3


def units_with(*sizes):
    """Return how many units hold 0, 1, ..., 1,000 keys."""
    return np.bincount(sizes, minlength=1001)


SMALL = {f"k{i}": range(100 * i, 100 * i + 30 + i) for i in range(8)}

JOBS = {
    "release": table(ds.release, max_keys_per_unit=1),
    "release, optimal": table(ds.release, max_keys_per_unit=1, method="optimal"),
    "release, simple": table(ds.release, max_keys_per_unit=1, method="simple", between=True),
    "release, truncated geometric": table(ds.release, max_keys_per_unit=1, method="truncated_geometric"),
    "release, stability": table(ds.release, max_keys_per_unit=1, method="stability", between=True),
    "release, gaussian": table(ds.release, max_keys_per_unit=1, method="gaussian", epsilon=4.0, share=0.04),
    "release, report then count": table(
        ds.release, max_keys_per_unit=2, method="report_then_count", units=120, epsilon=8.0, share=0.02
    ),
    "release, bound chosen": table(ds.release),
    "release, goal keys": table(ds.release, goal="keys"),
    "release, goal counts": table(ds.release, goal="counts"),
    "release, known keys": table(ds.release, max_keys_per_unit=1, known_keys=known()),
    "release, known keys, laplace": table(ds.release, max_keys_per_unit=1, known_keys=known(), method="laplace"),
    "release, min_units": table(ds.release, max_keys_per_unit=1, min_units=20),
    "release, coverage": table(ds.release, max_keys_per_unit=1, report_coverage=True),
    "release, sample size": table(ds.release, max_keys_per_unit=1, sample_size=10**6),
    "release, scheme": table(ds.release, max_keys_per_unit=1, scheme=ds.ppswor(1.0)),
    "release, several rows": table(ds.release, max_keys_per_unit=1, max_rows_per_key=3, units=120, share=0.05),
    "release, rest": table(ds.release, max_keys_per_unit=1, rest=True),
    "release, by command": table(released_by_command, max_keys_per_unit=1),
    "release, sums": total_canaries("amount_sum", 25.0, 50.0, sums={"amount": (0, 50)}, max_keys_per_unit=1),
    "release, means": total_canaries("count", 60.5, 50.0, means={"amount": (0, 50)}, max_keys_per_unit=1, share=0.1),
    "release, sums, bounds chosen": total_canaries(
        "count", 60.5, 50.0, sums={"amount": "auto"}, max_keys_per_unit=1, rest=True, share=0.1
    ),
    "release, sums, keys chosen": total_canaries(
        "count", 300.5, 50.0, sums={"amount": (0, 50)}, units=300, canaries=300, epsilon=4.0, share=0.2
    ),
    "release, sums, goal counts": total_canaries(
        "count", 300.5, 50.0, sums={"amount": (0, 50)}, goal="counts", units=300, canaries=300, epsilon=4.0, share=0.1
    ),
    "release_counts": count_canaries(),
    "discover": table(ds.discover, canaries=4000, units=20, found=1000, max_keys_per_unit=1),
    "discover, any number of keys": table(ds.discover, canaries=4000, units=20, found=800),
    "top_k": table(ds.top_k, k=500, canaries=1000, found=500, method="one_key"),
    "hitting_set": table(ds.hitting_set, k=500, canaries=1000, found=500, method="one_key"),
}  # fmt: skip

CHANNELS = {
    f"channel, {name}, lone key": channel(getattr(ds.channels, name), [9], [9, 1], LONE)
    for name in ("optimal", "simple", "stability", "gaussian")
} | {
    "channel, truncated_geometric, lone key": channel(
        ds.channels.truncated_geometric, [9], [9, 1], (1.0, 0.0675)  # steps of its delta are far apart: 0.0674, 0.212
    ),
    "channel, optimal, threshold": channel(ds.channels.optimal, [4], [5], NEAR),
    "channel, simple, threshold": channel(ds.channels.simple, [4], [5], NEAR),
    "channel, truncated_geometric, threshold": channel(ds.channels.truncated_geometric, [4], [5], NEAR),
    "channel, scheme, lone key": channel(ds.channels.optimal, [9], [9, 1], LONE, scheme=ds.ppswor(0.5)),
    "channel, scheme, threshold": channel(ds.channels.optimal, [4], [5], NEAR, scheme=ds.ppswor(0.3)),
    "channel, simple, scheme": channel(ds.channels.simple, [4], [5], NEAR, scheme=ds.ppswor(0.3)),
    "channel, rows of units": channel(ds.channels.rows_of_units, [12], [15], FULL, max_rows=3),
    "channel, rows of units, lone key": channel(ds.channels.rows_of_units, [9], [9, 3], LONE, max_rows=3),
    "channel, gaussian, five keys": channel(ds.channels.gaussian, [40] * 5, [41] * 5, FULL, max_keys=5),
    "channel, gaussian, lone keys": channel(ds.channels.gaussian, [], [1] * 5, LONE, max_keys=5),
    "channel, gaussian, rows": channel(ds.channels.gaussian, [40] * 2, [43] * 2, FULL, max_keys=2, max_rows=3),
    "channel, report_then_count, five keys": channel(
        ds.channels.report_then_count, [40] * 5, [41] * 5, FULL, max_keys=5
    ),
    "channel, report_then_count, lone keys": channel(ds.channels.report_then_count, [], [1] * 5, LONE, max_keys=5),
    "channel, report_then_count, rows": channel(
        ds.channels.report_then_count, [40] * 2, [43] * 2, FULL, max_keys=2, max_rows=3
    ),
    "channel, report_then_count, goal keys": channel(
        ds.channels.report_then_count, [4] * 5, [5] * 5, FULL, max_keys=5, goal="keys"
    ),
    "channel, known_keys": channel(ds.channels.known_keys, [40, 40], [41, 40], PURE),
    "channel, known_keys, five keys": channel(ds.channels.known_keys, [40] * 5, [41] * 5, PURE, max_keys=5, share=0.3),
    "channel, known_keys, rows": channel(ds.channels.known_keys, [40], [43], PURE, max_rows=3),
    "channel, known_keys, gaussian": channel(
        ds.channels.known_keys, [40] * 5, [41] * 5, FULL, max_keys=5, noise="gaussian"
    ),
    "channel, sample_threshold, lone key": channel(ds.federated.plan, [9], [9, 1], LONE),
    "channel, sample_threshold, threshold": channel(ds.federated.plan, [2], [3], FULL, share=0.2),
    "channel, sample_threshold, below the threshold": channel(ds.federated.plan, [9], [9, 1], (0.5, 0.05), share=None),
    "channel, sample_threshold, replaced": channel(
        ds.federated.plan, [3, 2], [2, 3], FULL, neighbours="replace", share=0.2
    ),
    "channel, release": rates(
        lambda **budget: lambda counts, source: ds.channels.optimal(**budget).release(
            [f"key {i}" for i in range(len(counts))], counts, source=source
        ).table.select(["key"]),
        [9], [9, 1], *LONE, runs=300, share=0.2,
    ),
}  # fmt: skip

ALL = ["a", "b", "c", "d", "e"]
SELECTORS = {
    f"selector, {name}, lone keys": selected(name, TEA, ALL, LONE)
    for name in ("renyi", "greedy", "weighted_gaussian", "policy_gaussian", "policy_greedy")
} | {
    f"selector, {name}, lone keys": selected(name, TEA, ALL, LONE, share=0.15)
    for name in ("renyi_two_rounds", "repeated_rounds")
} | {
    f"selector, {name}, threshold": selected(name, [*TEA, *SINGLES], ALL, FULL, share=0.05)
    for name in ("renyi", "renyi_two_rounds", "weighted_gaussian", "repeated_rounds")
} | {
    "selector, one_key, lone key": selected("one_key", TEA, ["a"], LONE, max_keys=1),
    "selector, renyi, one lone key": selected("renyi", TEA, ["a"], LONE, share=0.15),
    "selector, greedy, one lone key": selected("greedy", TEA, ["a"], LONE),
    "selector, weighted_gaussian, one lone key": selected("weighted_gaussian", TEA, ["a"], LONE),
    "selector, greedy, threshold": selected("greedy", [*TEA, *SINGLES[:10]], ["a"], FULL),
    "divided units": on_pairs(
        lambda **budget: DividedUnits(max_keys=5, **budget), counted_keys, CROWD, ALL, FULL,
        share=0.1,
    ),
    "divided units, lone key": on_pairs(
        lambda **budget: DividedUnits(max_keys=5, **budget), counted_keys, TEA, ["a"], LONE
    ),
    "find then count": on_pairs(
        lambda **budget: find_then_count(max_keys=5, keys=5, typical_keys=2, **budget), counted_keys, CROWD,
        ALL, FULL, share=0.1,
    ),
    "find then measure": on_pairs(
        lambda **budget: find_then_measure(
            max_keys=5, keys=5, typical_keys=2, totals=(Total("amount", "sum", 0.0, 1.0),), **budget
        ),
        lambda mechanism, pairs, source: counted_keys(
            mechanism, replace(pairs, amounts=np.zeros((1, len(pairs.key_numbers)))), source
        ),
        CROWD, ALL, (5.0, 0.05), share=0.1,
    ),
    "find then count, keys chosen": on_pairs(
        lambda **budget: find_then_count(max_keys=5, typical_keys=2, kept_epsilon=0.1, **budget), counted_keys, CROWD,
        ALL, (5.0, 0.05), share=0.04,
    ),
    "top keys": on_pairs(
        lambda **budget: top_keys(max_keys=5, k=2, typical_keys=2, **budget), picked_keys, CROWD,
        ["a"], FULL, share=0.15,
    ),
    "hitting keys": on_pairs(
        lambda **budget: hitting_keys(max_keys=5, k=2, typical_keys=2, **budget), picked_keys, CROWD, ["a"], FULL,
        share=0.1,
    ),
}  # fmt: skip

CHOICES = {
    "typical size": drawn(lambda epsilon: TypicalSize(epsilon, 9), ([1, 1, 4, 4],), ([1, 1, 4, 4, 9],), PURE),
    "keys per unit": drawn(
        lambda epsilon: KeysPerUnit(epsilon, 5), (units_with(1, 2, 3),), (units_with(1, 1, 2, 3),), PURE,
        lambda sizes: list(sizes.units),
    ),
    "private total": drawn(
        lambda epsilon: PrivateTotal(epsilon, 3), ([9, 9, 9],), ([10, 10, 10],), PURE
    ),
    "amount bounds": drawn(
        lambda epsilon: AmountBounds(epsilon, "amount", "sum"), (np.array([4e6] * 30 + [4e9] * 3),),
        (np.array([4e6] * 30 + [4e9] * 4),),
        PURE, lambda total: [total.low, total.high],
    ),
    "rest": drawn(lambda epsilon: Rest(epsilon, 3), (9, None), (12, None), PURE, lambda found: [*found.values()]),
    "private sparsity": drawn(
        lambda epsilon: PrivateSparsity(epsilon, 1e-9), (np.ones(5, np.int64),), (np.ones(6, np.int64),), PURE
    ),
    "private norm": drawn(
        lambda epsilon: PrivateNorm(epsilon, 1e-9), (np.full(5, 2),), (np.array([2, 2, 2, 2, 3]),), PURE
    ),
}  # fmt: skip

SKETCHES = {
    "MisraGries": stream(misra_gries),
    "MisraGries, lone item": sketched(
        lambda items, source, **budget: lone(misra_gries(8, items, source, **budget)),
        ["tea"] * 60, [*["tea"] * 60, "secret"], LONE, runs=900, share=0.2,
    ),
    "MisraGries, full": sketched(
        lambda items, source, **budget: one_counter(misra_gries(1, items, source, **budget)),
        ["tea"] * 60, [*["tea"] * 60, "secret"], FULL,
    ),
    "MisraGries, several items": sketched(
        lambda items, source, **budget: one_counter(
            sketch_of(1, items).release(items_per_unit=3, source=source, **budget)
        ),
        ["tea"] * 60, ["tea"] * 63, FULL, share=0.15,
    ),
    "MisraGries, universe": sketched(
        lambda items, source, **budget: one_counter(
            sketch_of(1, items).release(universe=["tea"], source=source, **budget)
        ),
        ["tea"] * 60, [*["tea"] * 60, "secret"], PURE,
    ),
    "MisraGries, merged": sketched(
        lambda items, source, **budget: one_counter(merged(1, items, source, **budget)),
        ["tea"] * 60, [*["tea"] * 60, "secret"], FULL,
    ),
    "UserMisraGries": sketched(users_full, [DRINKS] * 60, [DRINKS] * 61, FULL, share=0.2),
    "UserMisraGries, full": sketched(users_full, [DRINKS] * 60, [*[DRINKS] * 60, ["cola"]], FULL, share=0.1),
    "UserMisraGries, lone items": sketched(
        lambda sets, source, **budget: float(len(users(sets, source, **budget))),
        [], [DRINKS], LONE, runs=900, share=0.05,
    ),
}  # fmt: skip

ENTRY, L1 = {"neighbours": "one_entry", "sparsity": 2000}, {"neighbours": "l1", "total": 22_000.0}
VECTORS = {
    "SparseVector": vector(**ENTRY, epsilon=2.0, share=0.3),
    "SparseVector, retrieval": vector(**ENTRY, epsilon=2.0, delta=1e-9),
    "SparseVector, alp": vector(**ENTRY, epsilon=4.0, variant="alp"),
    "SparseVector, histogram": vector(**ENTRY, epsilon=4.0, variant="histogram"),
    "SparseVector, dense": vector(**ENTRY, epsilon=2.0, variant="dense"),
    "SparseVector, max projection": vector(**ENTRY, epsilon=2.0, variant="max_projection", share=0.3),
    "SparseVector, threshold": vector(**ENTRY, epsilon=4.0, delta=1e-9, variant="alp", threshold=True, share=0.07),
    "SparseVector, text": vector(**ENTRY, epsilon=4.0, dimension="text", variant="alp", max_value=100, share=0.07),
    "SparseVector, listed zeros": listed(2.5, variant="alp", threshold=True),
    "SparseVector, size bought": vector(neighbours="one_entry", epsilon=2.0, delta=1e-9),
    "SparseVector, signed": vector(**ENTRY, epsilon=2.0, delta=1e-9, signed=True, values=(-10, -11)),
    "SparseVector, l1": vector(**L1, epsilon=2.0, share=0.15),
    "SparseVector, l1, dense": vector(**L1, epsilon=2.0, variant="dense"),
    "SparseVector, real values": vector(**L1, epsilon=4.0, variant="alp", values=(11.0, 10.0), share=0.25),
    "SparseVector, real values, dense": vector(**L1, epsilon=2.0, variant="dense", values=(11.25, 10.25)),
    "SparseVector, norm bought": vector(neighbours="l1", epsilon=4.0, values=(11.0, 10.0), share=0.25),
}

NUMBERS = {
    "sum of an array": number(ds.sum, VALUES, [*VALUES, 1.0], PURE, bounds=(0, 1)),
    "sum of an array, replaced": number(ds.sum, *MEANS, PURE, bounds=(0, 1), neighbours="replace"),
    "sum of an array, gaussian": number(ds.sum, VALUES, [*VALUES, 1.0], FULL, bounds=(0, 1)),
    "sum of an array, columns": number(
        ds.sum, [[0.0, 0.0]] * 20, [*[[0.0, 0.0]] * 20, [1.0, 1.0]], PURE, bounds=[(0, 1), (0, 1)], share=0.15
    ),
    "mean of an array": number(ds.mean, *MEANS, FULL, bounds=(0, 1), neighbours="replace"),
    "mean of an array, box": number(ds.mean, *MEANS, PURE, bounds=(0, 1), neighbours="replace", method="box"),
    "mean of an array, binary": number(ds.mean, *MEANS, PURE, kind="binary"),
    "mean of an array, units added": sketched(
        lambda values, source, **budget: ds.mean(
            np.array(values), bounds=(0, 1), neighbours="add_remove", source=source, **budget
        ),
        VALUES, [*VALUES, 1.0], FULL, share=0.1,
    ),
    **{
        f"quantile of an array, {method}": number(
            ds.quantile, [0.5], [0.0, 0.5], PURE, bounds=(0, 1), quantile=0.5, method=method
        )
        for method in ("auto", "gaps", "halving")
    },
    "quantile of an array, log": number(
        ds.quantile, [0.5], [0.1, 0.5], PURE, bounds=(0.1, 1), quantile=0.5, scale="log", share=0.15
    ),
    "quantile of an array, search": number(
        ds.quantile, [0.0] * 4 + [1.0] * 4, [0.0] * 5 + [1.0] * 4, (20.0, 0.0), bounds=(0, 1), quantile=0.5,
        method="search", share=0.02, runs=2400,
    ),
    "quantile of an array, replaced": number(
        ds.quantile, [0.0, 0.5], [0.5, 1.0], PURE, bounds=(0, 1), quantile=0.5, neighbours="replace", share=0.05
    ),
    "quantiles of an array": number(
        ds.quantile, [0.5], [0.0, 0.5], (8.0, 0.0), bounds=(0, 1), quantile=[0.4, 0.6], share=0.02
    ),
}  # fmt: skip

CLIENTS = {
    "federated histogram": sketched(histogram, ["tea"] * 4, [*["tea"] * 4, "secret"], LONE, runs=900),
    "federated histogram, batch": sketched(
        histogram_of_batch, ["tea"] * 4, [*["tea"] * 4, "secret"], LONE, runs=600
    ),
    "federated trie": sketched(trie, ["ab"] * 3 + ["cb"], ["ab"] * 3 + ["cb"] * 2, LONE, runs=300, share=0.1),
    "federated trie, cohorts": sketched(
        partial(trie, protocol="cohorts"), ["ab"] * 3, [*["ab"] * 3, "cb"], (1.0, 0.6), runs=300, share=0.05
    ),
    "federated quantiles": sketched(
        distribution, [0.1] * 3 + [0.9], [0.1] * 3 + [0.9] * 2, LONE, runs=300, share=0.1
    ),
}  # fmt: skip

LAYOUTS = {
    f"{name}, layout": layout(publish, events(SMALL), key="key", **given)
    for name, publish, given in (
        ("release", ds.release, {"max_keys_per_unit": 1}),
        ("release, files", files_of, {"max_keys_per_unit": 1}),
        ("release, by command", all_of_a_command, {"max_keys_per_unit": 1}),
        ("discover", ds.discover, {}),
        ("top_k", ds.top_k, {"k": 3}),
        ("hitting_set", ds.hitting_set, {"k": 3}),
    )
} | {
    "ledger, refusal": Path(
        lambda **budget: Inputs(
            "a refused release", "dependence", partial(refusal, **budget), events(SMALL),
            events({**SMALL, "k0": range(31)}), {"runs": 3, "affected": ["k0"]},
        ),
        1.0, 1e-9,
    ),
}  # fmt: skip

AUDITS = {**JOBS, **CHANNELS, **SELECTORS, **CHOICES, **SKETCHES, **VECTORS, **NUMBERS, **CLIENTS, **LAYOUTS}

# Only in `make audit`: each call takes 20 ms or more, so the power of a few seconds is small.
ROWS, MORE_ROWS = amounts(range(40), VALUES), amounts(range(41), [*VALUES, 1.0])
LINE = np.linspace(0, 1, 400).tolist()
GIVEN = {"column": "amount", "bounds": (0, 1)}
TWO, THREE = amounts([1, 2], [0.1, 0.1]), amounts([1, 2, 3], [0.1, 0.1, 0.9])
METHODS = (
    "renyi",
    "renyi_two_rounds",
    "greedy",
    "weighted_gaussian",
    "policy_gaussian",
    "policy_greedy",
    "repeated_rounds",
)
REPLACED = {"neighbours": "replace"}
COUNTERS = ("optimal", "simple", "truncated_geometric", "stability")
LONG = {
    "channel, release_sample": rates(
        lambda **budget: lambda counts, source: ds.channels.release_sample(
            [f"key {i}" for i in range(len(counts))], counts, 10, source=source, **budget
        ).table.select(["key"]),
        [9], [9, 1], *LONE, runs=600, share=0.25,
    ),
    "collect_histogram": of_table(ds.collect_histogram, NOBODY, SOMEBODY, (1.0, 0.5), column="key"),
    "collect_heavy_hitters": of_table(
        ds.collect_heavy_hitters, NOBODY, SOMEBODY, (1.0, 0.5), column="key", max_length=1
    ),
    **{
        f"{name}, {method}": of_table(
            publish, NOBODY, SOMEBODY, (1.0, 0.5), key="key", max_keys_per_unit=5, method=method, **given
        )
        for name, publish, given in (
            ("discover", ds.discover, {}), ("top_k", ds.top_k, {"k": 2}), ("hitting_set", ds.hitting_set, {"k": 2})
        )
        for method in METHODS
    },
    **{f"release_counts, {method}": count_canaries(method=method) for method in COUNTERS},
    "release_counts, gaussian": count_canaries(method="gaussian", epsilon=4.0),
    "release_counts, report then count": count_canaries(method="report_then_count", max_keys_per_unit=2, epsilon=8.0),
    **{
        f"collect_heavy_hitters, {protocol}, replaced": of_table(
            ds.collect_heavy_hitters, NOBODY, SOMEBODY, (1.0, 0.5), column="key", max_length=1, protocol=protocol,
            **REPLACED,
        )
        for protocol in ("rounds", "cohorts", "one_round")
    },
    **{
        f"collect_quantiles, {protocol}, replaced": of_table(
            ds.collect_quantiles, TWO, THREE, (1.0, 0.5), depth=1, protocol=protocol, outside="silent", **GIVEN,
            **REPLACED,
        )
        for protocol in ("rounds", "cohorts", "one_round")
    },
    "collect_histogram, least error": of_table(
        ds.collect_histogram, NOBODY, SOMEBODY, (1.0, 0.5), column="key", goal="error", frequency=100
    ),
    "collect_histogram, replaced": of_table(
        ds.collect_histogram, events({"0": range(1, 4)}), events({"0": range(1, 3), "7": [3]}), (1.0, 0.5),
        column="key", **REPLACED,
    ),
    **{
        f"release, {name}, lone key": of_table(ds.release, NOBODY, SOMEBODY, (1.0, 0.5), key="key", **given)
        for name, given in (
            ("one key per unit", {"max_keys_per_unit": 1}),
            ("bound chosen", {}),
            ("goal keys", {"goal": "keys"}),
            ("goal counts", {"goal": "counts"}),
        )
    },
    **{
        f"{name}, lone key": of_table(publish, NOBODY, SOMEBODY, (1.0, 0.5), key="key", **given)
        for name, publish, given in (
            ("discover", ds.discover, {}),
            ("top_k", ds.top_k, {"k": 2}),
            ("top_k, counts", ds.top_k, {"k": 2, "counts": True}),
            ("hitting_set", ds.hitting_set, {"k": 2}),
        )
    },
    "sum of a table": of_table(ds.sum, ROWS, MORE_ROWS, PURE, max_rows_per_unit=1, **GIVEN),
    "sum of a table, by command": of_table(
        sum_by_command, ROWS, MORE_ROWS, PURE, max_rows_per_unit=1, column="amount", bounds="0,1"
    ),
    "sum of a table, several rows": of_table(
        ds.sum, ROWS, amounts([*range(40), 41, 41, 41], [*VALUES, 1.0, 1.0, 1.0]), PURE, max_rows_per_unit=2, **GIVEN
    ),
    "mean of a table": of_table(
        ds.mean, amounts(range(40), MEANS[0]), amounts(range(40), MEANS[1]), FULL, neighbours="replace", **GIVEN
    ),
    "mean of a table, units added": of_table(ds.mean, ROWS, MORE_ROWS, FULL, neighbours="add_remove", **GIVEN),
    "quantile of a table": of_table(
        ds.quantile, amounts([1], [0.5]), amounts([1, 2], [0.5, 0.0]), PURE, quantile=0.5, max_rows_per_unit=1, **GIVEN
    ),
    "quantile of a table, several rows": of_table(
        ds.quantile, amounts([1, 1], [0.5, 0.5]), amounts([1, 1, 2, 2], [0.5, 0.5, 0.0, 0.0]), PURE, quantile=0.5,
        max_rows_per_unit=2, **GIVEN,
    ),
    "collect_quantiles": of_table(ds.collect_quantiles, TWO, THREE, (1.0, 0.5), depth=1, **GIVEN),
    "mean of an array, PLAN": number(
        ds.mean, [*LINE, 0.0], [*LINE, 1.0], (8.0, 0.1), bounds=(0, 1), neighbours="replace", method="plan"
    ),
}  # fmt: skip

EVERY = {**AUDITS, **LONG}
