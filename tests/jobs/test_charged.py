"""What fails before the charge costs nothing, and what fails after it says so: for every job that charges a ledger."""

import errno
import importlib
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest

import dpsieve as ds
from dpsieve.compiled import jit
from dpsieve.discovery import loops as removed_units
from dpsieve.discovery.find_then_count import find_then_count
from dpsieve.errors import NotCertified, UnreadableData
from dpsieve.federated import Histogram, TrieHeavyHitters, plan
from dpsieve.jobs.bounds import Way
from dpsieve.jobs.mechanisms import choose_mechanism
from dpsieve.noise.keys_per_unit import MOST
from dpsieve.randomness import source as sources
from dpsieve.sketches import MisraGries, UserMisraGries
from dpsieve.testing import InsecureSource, insecure_source

TABLE = pa.table({
    "user": [i % 400 for i in range(1200)],
    "drink": ["tea"] * 400 + ["milk"] * 400 + ["mate"] * 400,
    "price": [float(i % 50) for i in range(1200)],
})  # fmt: skip
COLUMNS = {"key": "drink", "privacy_unit": "user"}
ONE_KEY, ONE_ROW = {"max_keys_per_unit": 1}, {"max_rows_per_unit": 1}
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
NUMBERS = {"column": "price", "bounds": (0, 100), "privacy_unit": "user"}
ENTRY = "The ledger was charged before this: entry 1 stays spent."


def counts(tmp_path, **how):
    batch = pa.table({"drink": ["tea", "milk"], "count": [900, 800]})
    return ds.release_counts([batch], key="drink", privacy_unit="user", out=tmp_path / "out", **BUDGET, **how)


def users(tmp_path, **how):
    sketch = UserMisraGries(8)
    sketch.update([[f"item {user % 3}"] for user in range(50)])
    return sketch.release(1.0, 1e-6, **how)


def items(tmp_path, universe=None, **how):
    sketch = MisraGries(8)
    sketch.update([f"item {i % 3}" for i in range(600)])
    return sketch.release(1.0, **({"delta": 1e-6} if universe is None else {"universe": universe}), **how)


def vector(tmp_path, **how):
    return ds.SparseVector.private([7, 9], [40, 25], neighbours="one_entry", dimension=2**40, epsilon=2.0, **how)


def listed_vector(tmp_path, **how):
    options = {"neighbours": "one_entry", "dimension": "text", "variant": "retrieval", "sparsity": 50}
    return ds.SparseVector.private(["a", "b"], [40, 25], **options, **BUDGET, **how)


def trie(tmp_path, **how):
    return TrieHeavyHitters(1.0, 1e-6, max_length=4, step=2).run(["tea", "milk"] * 400, **how)


def strings(tmp_path, **how):
    options = {"column": "drink", "privacy_unit": "user", "max_length": 4, "step": 2}
    return ds.collect_heavy_hitters(TABLE, **options, **BUDGET, **how)


def numbers(tmp_path, **how):
    return ds.collect_quantiles(TABLE, **NUMBERS, **BUDGET, depth=3, **how)


def means(tmp_path, **how):
    return ds.mean(np.arange(4_000.0) % 7, bounds=(-10, 10), method="plan", rho=0.5, **how)


JOBS = {
    "release": lambda _, **how: ds.release(TABLE, **COLUMNS, **BUDGET, **how),
    "one key": lambda _, **how: ds.release(
        TABLE, **COLUMNS, **BUDGET, max_keys_per_unit=1, report_coverage=False, **how
    ),
    "known keys": lambda _, **how: ds.release(TABLE, **COLUMNS, **BUDGET, **ONE_KEY, known_keys=["tea", "milk"], **how),
    "sample size": lambda _, **how: ds.release(TABLE, **COLUMNS, **BUDGET, **ONE_KEY, sample_size=2, **how),
    "counts": lambda _, **how: ds.release(TABLE, **COLUMNS, **BUDGET, goal="counts", **how),
    "discover": lambda _, **how: ds.discover(TABLE, **COLUMNS, **BUDGET, **how),
    "discover by weights": lambda _, **how: ds.discover(TABLE, **COLUMNS, **BUDGET, method="renyi", **how),
    "top_k": lambda _, **how: ds.top_k(TABLE, **COLUMNS, **BUDGET, k=2, counts=True, **how),
    "hitting_set": lambda _, **how: ds.hitting_set(TABLE, **COLUMNS, **BUDGET, k=1, **how),
    "sum": lambda _, **how: ds.sum(TABLE, **NUMBERS, **ONE_ROW, epsilon=1.0, **how),
    "mean": lambda _, **how: ds.mean(TABLE, **NUMBERS, epsilon=1.0, **how),
    "quantile": lambda _, **how: ds.quantile(TABLE, **NUMBERS, **ONE_ROW, quantile=0.5, epsilon=1.0, **how),
    "mean of an array": means,
    "release_counts": counts,
    "items": items,
    "items of a universe": lambda folder, **how: items(folder, ["item 0", "item 1"], **how),
    "users": users,
    "counters": lambda _, **how: ds.papers.thesis.release_counters(["a", "b"], [900, 800], 8, 1.0, 1e-6, **how),
    "vector": vector,
    "listed vector": listed_vector,
    "collect_histogram": lambda _, **how: ds.collect_histogram(
        TABLE, column="drink", privacy_unit="user", **BUDGET, **how
    ),
    "collect_heavy_hitters": strings,
    "collect_quantiles": numbers,
    "trie": trie,
}
by_job = pytest.mark.parametrize("name", JOBS)


@cache
def promised(name):
    """Return the unit and the neighbours of a job, from a run without a ledger."""
    with TemporaryDirectory() as folder:
        made = JOBS[name](Path(folder), source=insecure_source(1))
    promise = made.guarantee if hasattr(made, "guarantee") else plan(1.0, 1e-6).guarantee
    return {"unit": promise.unit, "neighbours": "replace" if promise.neighbours == "replace" else "add_remove"}


@pytest.fixture
def ledger(tmp_path, name):
    return ds.Ledger(tmp_path / "budget", epsilon=50.0, delta=1e-3, **promised(name))


class Failing(InsecureSource):
    """Raises an error with the first words that are drawn once the ledger is charged."""

    def __init__(self, ledger, error):
        super().__init__(1)
        self.ledger, self.error = ledger, error

    def words(self, count):
        if len(self.ledger):
            raise self.error
        return super().words(count)


@by_job
@pytest.mark.parametrize("error", [RuntimeError("injected"), UnreadableData("injected.")], ids=["other", "own"])
def test_an_error_after_the_charge_reports_it(name, ledger, tmp_path, error):
    with pytest.raises(type(error), match="injected") as found:
        JOBS[name](tmp_path, ledger=ledger, source=Failing(ledger, error))
    assert found.value is error, "the first error, with its trace"
    assert ENTRY in f"{error} {getattr(error, '__notes__', '')}" and len(ledger) == 1
    assert f"{error} {getattr(error, '__notes__', '')}".count("stays spent") == 1
    error.args, error.__notes__ = (error.args[0].removesuffix(f" {ENTRY}"),), []


@by_job
def test_what_can_fail_without_data_fails_before_the_charge(name, ledger, tmp_path, monkeypatch):
    """The rehearsal draws from the system's source; what is published here, from another."""

    def fail(*_):
        raise RuntimeError("no code")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="no code") as found:
        patch.setattr(sources._SYSTEM, "words", fail)
        JOBS[name](tmp_path, ledger=ledger, source=insecure_source(1))
    assert len(ledger) == 0 and not hasattr(found.value, "__notes__")


@by_job
def test_a_publication_has_the_number_of_its_entry(name, ledger, tmp_path):
    made = JOBS[name](tmp_path, ledger=ledger)
    assert len(ledger) == 1
    if hasattr(made, "notes"):
        assert made.notes.entry == 1


@pytest.mark.parametrize("bound", ["auto", 2])
@pytest.mark.parametrize("late", ["when it is made", "when it is certified"])
def test_counts_by_a_mechanism_that_is_not_certified_are_those_of_the_rehearsed_one(tmp_path, monkeypatch, bound, late):
    """The typical number of keys, 3, is private and known after the charge; the mechanism for 1 is rehearsed."""
    ledger, failed = ds.Ledger(tmp_path / "budget", 2.0, 1e-5, unit="one user"), []

    def fail(*_):
        failed.append(len(ledger))
        raise NotCertified("planted")

    def make(*args, typical_keys, **how):
        if typical_keys > 1 and late == "when it is made":
            fail()
        mechanism = find_then_count(*args, typical_keys=typical_keys, **how)
        if typical_keys > 1:
            object.__setattr__(mechanism, "certify", fail)
        return mechanism

    monkeypatch.setattr("dpsieve.jobs.mechanisms.find_then_count", make)
    monkeypatch.setattr("dpsieve.jobs.release.choose_way", lambda *_: Way("two_steps", MOST, 0.6))
    many = pa.table({"user": [*range(4000)] * 3, "drink": ["tea"] * 4000 + ["milk"] * 4000 + ["mate"] * 4000})
    made = ds.release(many, **COLUMNS, **BUDGET, goal="counts", max_keys_per_unit=bound, ledger=ledger)
    assert 1 in failed and len(ledger) == 1
    assert made.mechanism.last.selector.least == 1 and made.guarantee.epsilon == 1.0


def test_a_sample_by_a_mechanism_that_is_not_certified_takes_all(tmp_path, monkeypatch):
    ledger, failed = ds.Ledger(tmp_path / "budget", 2.0, 1e-5, unit="one user"), []

    def make(*args, scheme, **how):
        if len(ledger):
            failed.append(scheme)
            raise NotCertified("planted")
        return choose_mechanism(*args, scheme=scheme, **how)

    monkeypatch.setattr("dpsieve.jobs.release.choose_mechanism", make)
    made = ds.release(TABLE, **COLUMNS, **BUDGET, sample_size=2, max_keys_per_unit=1, ledger=ledger)
    assert len(failed) == len(ledger) == 1 and len(made) == 3


def test_a_tally_that_fails_after_the_charge(tmp_path, monkeypatch):
    made = plan(1.0, 1e-6)
    ledger, histogram = ds.Ledger(tmp_path / "budget", 2.0, 1e-5, unit=made.guarantee.unit), Histogram(made)
    tally = histogram.tally()
    tally.add(histogram.client_reports(["tea"] * 900))

    def fail(*_):
        raise RuntimeError("injected")

    monkeypatch.setattr("dpsieve.federated.server.intake.CountTable.total", fail)
    with pytest.raises(RuntimeError, match="injected") as found:
        tally.release(ledger=ledger)
    assert found.value.__notes__ == [ENTRY] and len(ledger) == 1


def test_counts_on_disk_that_cannot_be_read_report_the_charge(tmp_path, monkeypatch):
    """Where pairs do not fit into memory, they are on disk until the bound is known."""
    ledger = ds.Ledger(tmp_path / "budget", 2.0, 1e-5, unit="one user")
    monkeypatch.setattr("dpsieve.engines.duckdb.engine._is_large", lambda job: True)

    def fail(*_):
        raise UnreadableData("'rows.parquet' cannot be read. Check it.")

    monkeypatch.setattr("dpsieve.engines.duckdb.engine.count_under", fail)
    with pytest.raises(UnreadableData) as found:
        ds.release(TABLE, **COLUMNS, **BUDGET, ledger=ledger)
    assert str(found.value) == f"'rows.parquet' cannot be read. Check it. {ENTRY}" and len(ledger) == 1


@pytest.mark.parametrize("content", [b"", None], ids=["empty files", "no folder"])
def test_a_cache_that_cannot_be_used_costs_time_and_nothing_else(tmp_path, monkeypatch, content):
    """As after a power loss, or on a disk that is full."""

    def read(*_):
        if content is None:
            raise PermissionError(errno.EACCES, "Permission denied")
        return content

    def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    ledger = ds.Ledger(tmp_path / "budget", 2.0, 1e-5, unit="one user")
    monkeypatch.setattr(jit, "_read", read)
    monkeypatch.setattr(jit, "_write", write)
    importlib.reload(removed_units)  # compiles again
    assert len(ds.hitting_set(TABLE, **COLUMNS, **BUDGET, k=1, ledger=ledger)) == 1
    assert len(ledger) == 1
