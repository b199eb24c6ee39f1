"""Saved releases of every kind, ways to damage them, and the one thing that must hold of each: for the fuzz test."""

import copy
import functools
import hashlib
import json
import random
import time
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from helpers.arrays import private_mean, private_quantile, private_sum

import dpsieve as ds
from dpsieve.channels import release_sample
from dpsieve.errors import DpsieveError
from dpsieve.noise.known_keys import known_keys
from dpsieve.papers.thesis import merge_releases, release_bounded_merge
from dpsieve.publication.files import _seal
from dpsieve.sketches import MergedSketch
from dpsieve.testing import insecure_source

KEYS, FREQUENCIES = ["coffee", "juice", "tea", "water"], [900, 400, 700, 500]


def several_keys(**options):
    """A release of a table whose units add three keys each, of two columns."""
    rows = [(u, f"k{k}", u % 2) for u in range(300) for k in range(3)]
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(("user", "a", "b"))})
    return ds.release(
        table, key=["a", "b"], privacy_unit="user", max_keys_per_unit=3, report_coverage=False, epsilon=2.0, delta=1e-3,
        source=insecure_source(5), **options,
    )  # fmt: skip


def with_totals(**options):
    """A release with totals of two columns."""
    users = np.repeat(np.arange(600), 3)
    table = pa.table({"user": users, "a": np.tile(["x", "y", "z"], 600), "p": users % 9 * 1.5, "r": users % 5 + 1})
    return ds.release(
        table, key="a", privacy_unit="user", epsilon=2.0, delta=1e-3, source=insecure_source(5),
        sums={"p": (0, 12)}, means={"r": (1, 5)}, **options,
    )  # fmt: skip


RELEASES = (
    "plain", "optimal", "empty", "keys only", "several", "gaussian", "stability", "stability, sampled", "sampled",
    "sized", "known", "known, gaussian", "clients", "sketch", "sum of sketches", "universe", "universe, bounded",
    "releases added up",
    "users", "key set", "key set, renyi", "key set, two rounds", "key set, noise",
    "top", "top, picked", "hitting set", "distribution", "trie cohorts",
    "trie one_round", "trie rounds", "vector", "vector, bought", "vector, listed", "vector, levels",
    "sum", "mean", "mean, units counted", "quantiles",
    "totals", "totals, rest", "totals, measured",
)  # fmt: skip


def discovered(call=ds.discover, **options):
    """A discovery in a table whose units hold three keys each."""
    rows = [(u, f"k{k}") for u in range(200) for k in range(3)]
    table = pa.table({name: [row[i] for row in rows] for i, name in enumerate(("user", "a"))})
    budget = {"epsilon": 2.0, "delta": 1e-2, "max_keys_per_unit": 3}
    return call(table, key="a", privacy_unit="user", source=insecure_source(5), **budget, **options)


def vector(**options):
    """A private sparse vector of a few entries."""
    asked = {"neighbours": "one_entry", "dimension": 2**40, "epsilon": 2.0, "sparsity": 20, **options}
    return ds.SparseVector.private([3, 7, 2**29], [50, 40, 90], source=insecure_source(5), **asked)


@functools.cache
def releases():
    """Return one release of each kind, by the names above, all with small parameters."""
    source, simple = insecure_source(3), ds.channels.simple(1.0, 1e-3)
    sketch = ds.MisraGries(8)
    sketch.update(np.repeat(np.arange(4), 200))
    users = ds.UserMisraGries(4)
    users.update([["a", "b"]] * 300)
    merged = MergedSketch.of(sketch)
    words = ["abc"] * 300 + ["abd"] * 300 + ["x"] * 300
    trie = {
        f"trie {how}": ds.federated.TrieHeavyHitters(2.0, 1e-3, max_length=3, step=2, protocol=how).run(
            words, source=source
        )
        for how in ("cohorts", "one_round", "rounds")
    }
    answers = ds.federated.Quantiles(0.0, 1.0, epsilon=2.0, delta=1e-3, branching=2, depth=2, protocol="cohorts")
    made = {
        "plain": simple.release(KEYS, FREQUENCIES, source=source),
        "optimal": ds.channels.optimal(1.0, 1e-3).release([3, 7, 9], [100, 90, 80], source=source),
        "empty": simple.release([], [], source=source),
        "keys only": simple.release(KEYS, FREQUENCIES, keys_only=True, source=source),
        "several": several_keys(method="simple"),
        "gaussian": several_keys(method="gaussian"),
        "stability": ds.channels.stability(1.0, 1e-3).release(KEYS, FREQUENCIES, source=source),
        "stability, sampled": ds.papers.weighted_sampling.sampled_stability(1.0, 1e-3, ds.priority(0.05)).release(
            KEYS, FREQUENCIES, source=source
        ),
        "sampled": ds.channels.simple(1.0, 1e-2, ds.priority(0.1)).release(KEYS, FREQUENCIES, source=source),
        "sized": release_sample(KEYS, FREQUENCIES, 4, epsilon=2.0, delta=1e-2, method="priority", source=source),
        "known": known_keys(1.0).release(KEYS, [0, 1, 2, 900], source=source),
        "known, gaussian": known_keys(1.0, 1e-3, 9, noise="gaussian").release(KEYS, [0, 1, 2, 900], source=source),
        "clients": ds.channels.sample_threshold(0.3, 12).release(KEYS, FREQUENCIES, source=source),
        "sketch": sketch.release(1.0, 1e-3, source=source),
        "sum of sketches": merged.release(1.0, 1e-3, source=source),
        "universe": sketch.release(1.0, universe=range(50), source=source),
        "universe, bounded": release_bounded_merge(sketch, epsilon=1.0, universe=range(50), source=source),
        "releases added up": merge_releases(*(sketch.release(1.0, 1e-3, source=source) for _ in range(3))),
        "users": users.release(1.0, 1e-3, source=source),
        "key set": discovered(method="greedy"),
        "key set, renyi": discovered(method="renyi", typical_keys=3),
        "key set, two rounds": discovered(),
        "key set, noise": discovered(method="weighted_gaussian"),
        "top": discovered(ds.top_k, k=2, counts=True),
        "top, picked": discovered(ds.top_k, k=2, counts=True, method="renyi"),
        "hitting set": discovered(ds.hitting_set, k=2),
        "distribution": answers.run(np.linspace(0, 1, 4000), source=source),
        **trie,
        "vector": vector(delta=1e-3, max_value=60),
        "vector, bought": vector(sparsity=None, delta=1e-3, dimension=2**30),
        "vector, listed": vector(threshold=True, max_value=60, variant="max_projection", neighbours="l1"),
        "vector, levels": vector(variant="histogram", max_value=60, signed=True, threshold=False),
        "sum": private_sum(np.ones((9, 2)), [4.0, 1.0], neighbours="replace", rho=0.5, source=source),
        "mean": private_mean(np.ones((9, 2)), bound=2.0, kind="real", rho=1.0, mode="gaussian", source=source),
        "mean, units counted": ds.mean(
            pa.table({"a": [1.0, 2.0], "b": [3.0, 4.0]}),
            column=["a", "b"],
            privacy_unit="row",
            bounds=(0, 8),
            rho=0.1,
            neighbours="add_remove",
            source=source,
        ),
        "quantiles": private_quantile(
            range(99), [0.2, 0.9], bounds=(0, 128), neighbours="replace", epsilon=1.0, source=source
        ),
        "totals": with_totals(max_keys_per_unit=2),
        "totals, rest": with_totals(max_keys_per_unit=1, rest=True),
        "totals, measured": with_totals(max_keys_per_unit=40, goal="keys"),
    }
    assert tuple(made) == RELEASES
    return made


class Saved:
    """A saved release whose files are damaged again and again; `mended` digests let deep checks see the damage."""

    def __init__(self, release, folder):
        self.folder, self.load = release.save(folder), type(release).load
        self.record = json.loads((folder / "release.json").read_text())
        self.files = {path.stem: path.read_bytes() for path in folder.glob("*.parquet")}
        self.tables = {name: pq.read_table(folder / f"{name}.parquet") for name in self.files}

    def write(self, record=None, tables=None, files=None):
        """Write other contents with digests and a seal that fit."""
        record = copy.deepcopy(self.record) if record is None else record
        changed = {**(files or {}), **{name: parquet(table) for name, table in (tables or {}).items()}}
        for name, data in changed.items():
            digest = hashlib.sha256(data).hexdigest()
            if name == "release":
                record["table_sha256"] = digest
            else:
                record["more_sha256"][name] = digest
        record["seal"] = _seal(record)
        self.put(json.dumps(record).encode(), {**self.files, **changed})

    def put(self, record, files):
        """Write these bytes."""
        (self.folder / "release.json").write_bytes(record)
        for name, data in files.items():
            (self.folder / f"{name}.parquet").write_bytes(data)

    def judge(self, again):
        """Load: an error of the family, or something that is the same after it is saved and loaded again."""
        start, made = time.perf_counter(), None
        with suppress(DpsieveError):
            made = self.load(self.folder)
        assert time.perf_counter() - start < 10
        if made is not None:
            saved = type(self.load(made.save(again)))
            assert saved is type(made)
            assert contents(again) == contents(self.folder)
            for path in again.iterdir():
                path.unlink()
            again.rmdir()
        return made is not None


def parquet(table, **options):
    """Return a table as the bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def contents(folder):
    """Return what a folder says: all but digests, and fields that may be left out."""
    record = json.loads((folder / "release.json").read_text())
    said = dict(record)
    for name in ("seal", "table_sha256", "more_sha256", "library"):
        said.pop(name, None)
    tables = {path.stem: pq.read_table(path).replace_schema_metadata() for path in folder.glob("*.parquet")}
    return said, tables


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


ODD = [
    None, True, False, 0, 1, -1, 2, 7, 10**6, 2**31, 2**63, -(2**63), 10**30, 10**400, -0.0, 0.5, 1.0, 1e-300, -1e-9,
    5e-324, 1e9, 1e308, float("nan"), float("inf"), -float("inf"), "", " ", "x", "release", "\ud800", "\0", "é" * 300,
    [], [[]], {}, {"": None}, [1, 2], ["a"], {"epsilon": 1.0}, nested(40), nested(200),
]  # fmt: skip


def places(value, path=()):
    """Yield the path of every value inside a JSON value."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inside:
        yield from places(part, (*path, name))


def damaged_record(record, chance: random.Random):
    """Return a record with one or two changes: another value, a value less or more, or the same one elsewhere."""
    changed = copy.deepcopy(record)
    for _ in range(chance.choice((1, 1, 1, 2))):
        *path, last = chance.choice([path for path in places(changed) if path != ("seal",)])
        parent = changed
        for name in path:
            parent = parent[name]
        way = chance.randrange(8)
        if way == 0:
            del parent[last]
        elif way == 1 and isinstance(parent, dict):
            parent[chance.choice(("extra", "kind", "times", "epsilon", "scheme", "\ud800"))] = chance.choice(ODD)
        elif way == 2:
            parent[last] = [parent[last]]
        elif way == 3 and isinstance(parent[last], int | float):
            parent[last] = type(parent[last])(parent[last] * chance.choice((0.5, 0.999999, 1.000001, 2, 3)))
        elif way == 4 and isinstance(parent, dict):
            parent[last] = parent[chance.choice(list(parent))]
        else:
            parent[last] = copy.deepcopy(chance.choice(ODD))
    return copy.deepcopy(changed)


def damaged_table(table, chance: random.Random):
    """Return a table with one change of its rows, values, types or columns."""
    rows, columns = table.num_rows, table.column_names
    name = chance.choice(columns)
    at, column = columns.index(name), table.column(name)
    way = chance.randrange(11)
    if way == 0:
        return table.drop_columns([name])
    if way == 1:
        return table.append_column(chance.choice(("extra", "token", name)), column)
    if way == 2:
        return table.rename_columns([chance.choice(("key", "x", "token")) if c == name else c for c in columns])
    if way == 3:
        kind = chance.choice((pa.int8(), pa.float32(), pa.string(), pa.large_string(), pa.uint64(), pa.null()))
        values = pa.nulls(rows, kind)
        if chance.random() < 0.7 and kind != pa.null():
            try:
                values = column.cast(kind)
            except pa.ArrowException:
                values = pa.array(range(rows)).cast(kind)
        return table.set_column(at, name, values)
    if way == 4:
        values = [chance.choice(([], [1], [[1]], {"a": 1}, {"a": None}, b"x", True, 1.5)) for _ in range(1)] * rows
        return table.set_column(at, name, pa.array(values))
    if not rows:
        return pa.table({c: [1] for c in columns})
    order = list(range(rows))
    if way == 5:
        chance.shuffle(order)
        return table.take(order)
    if way == 6:
        return table.take([*order, chance.choice(order)])
    if way == 7:
        return table.take([chance.choice(order) for _ in order])
    if way == 8:
        return table.slice(chance.randrange(2), rows - 1)
    values = column.to_pylist()
    if way == 9:
        values[chance.randrange(rows)] = None
    else:
        k = chance.randrange(rows)
        values[k] = _other(values[k], chance)
    try:
        changed = pa.array(values, column.type)
    except OverflowError:  # a number below 0 among unsigned ones
        changed = pa.array([float(value) for value in values])
    return table.set_column(at, name, changed)


def _other(value, chance):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice((0, -5, value + 1, value - 1, 10**12, 10**15, 2**63 - 1, -(2**63)))
    if isinstance(value, float):
        odd = (0.0, -0.0, -5.0, value + 1, value * 1.0000001, value + 0.5, 1e12, 1e19, 1e300, 5e-324, np.nan, np.inf)
        return chance.choice(odd)
    if isinstance(value, str):
        return chance.choice(("", "a", value + "x", value[:-1], value.upper(), "\0", "é", "coffee"))
    return None


def damaged_bytes(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with a flipped bit, a cut, a piece more, or a piece moved."""
    at, way = chance.randrange(len(data)), chance.randrange(5)
    if way < 2:
        return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
    if way == 2:
        return data[:at]
    if way == 3:
        return data[:at] + chance.randbytes(chance.randrange(1, 9)) + data[at:]
    return data[at:] + data[:at]
