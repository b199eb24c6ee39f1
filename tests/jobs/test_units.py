"""Units of several columns in every job on tables; and one spelling of units, which every job and its ledger share."""

import numpy as np
import pyarrow as pa
import pytest

import dpsieve as ds
from dpsieve import federated, sketches
from dpsieve.errors import InvalidType, InvalidValue

pytestmark = pytest.mark.usefixtures("one_database")
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
# 400 units: 20 tenants with 20 users each, under the same names. Each has three drinks, and pays 5 for each.
UNITS = [(f"t{i % 20}", f"u{i // 20}") for i in range(400)]
TABLE = pa.table({
    "tenant": [t for t, _ in UNITS for _ in range(3)], "user": [u for _, u in UNITS for _ in range(3)],
    "drink": ["tea", "mate", "milk"] * 400, "price": [5.0] * 1200,
})  # fmt: skip
KEYS, NUMBERS = {"key": "drink", **BUDGET}, {"column": "price", "bounds": (0, 10), "epsilon": 1.0}
JOBS = {
    "release": lambda **more: ds.release(TABLE, **KEYS, **more),
    "discover": lambda **more: ds.discover(TABLE, **KEYS, **more),
    "top_k": lambda **more: ds.top_k(TABLE, k=1, **KEYS, **more),
    "hitting_set": lambda **more: ds.hitting_set(TABLE, k=1, **KEYS, **more),
    "mean": lambda **more: ds.mean(TABLE, **NUMBERS, delta=1e-6, **more),
    "sum": lambda **more: ds.sum(TABLE, max_rows_per_unit=3 - 2 * (more["privacy_unit"] == "row"), **NUMBERS, **more),
    "quantile": lambda **more: ds.quantile(
        TABLE, quantile=0.5, max_rows_per_unit=3 - 2 * (more["privacy_unit"] == "row"), **NUMBERS, **more
    ),
}
EACH = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)


@EACH
def test_a_unit_of_several_columns_its_words_and_its_ledger(job, tmp_path):
    """The ledger is passed by its path, and the order of columns does not matter."""
    relation = "replace" if job is JOBS["mean"] else "add_remove"
    path = tmp_path / "budget.ledger"
    ledger = ds.Ledger(path, epsilon=9.0, delta=1e-3, neighbours=relation, unit=["tenant", "user"])
    for number, unit in enumerate([["tenant", "user"], ("user", "tenant")], 1):
        made = job(privacy_unit=unit, ledger=str(path), note="drinks")
        assert made.guarantee.unit == made.certificate.guarantee.unit == "one (tenant, user)" and len(ledger) == number
    for other in ("user", ["tenant"], "row"):
        with pytest.raises(InvalidValue, match=r"the ledger for 'one \(tenant, user\)'"):
            job(privacy_unit=other, ledger=path)
    assert len(ledger) == 2


@EACH
def test_the_name_of_the_column_is_the_unit_of_a_ledger(job, tmp_path):
    relation = "replace" if job is JOBS["mean"] else "add_remove"
    for place, unit in enumerate(["user", "one user", ["user"]]):
        book = ds.Ledger(tmp_path / f"{place}", epsilon=9.0, delta=1e-3, neighbours=relation, unit=unit)
        assert job(privacy_unit="user", ledger=book).guarantee.unit == "one user" and len(book) == 1


def test_all_other_jobs_take_a_path_and_the_same_spelling(tmp_path):
    """Streams, vectors, numbers, and collection from clients."""
    stream, users = sketches.MisraGries(8), sketches.UserMisraGries(8)
    stream.update(["tea"] * 500), users.update([["tea"]] * 500)
    pure = {"neighbours": "add_remove", "epsilon": 1.0}
    tally = federated.Histogram(federated.plan(**BUDGET, unit="user")).tally().add(["tea"] * 90)
    trie = federated.TrieHeavyHitters(**BUDGET, max_length=3)
    tree = federated.Quantiles(0.0, 1.0, **BUDGET)
    entries = {"neighbours": "one_entry", "dimension": 100, "epsilon": 1.0, "delta": 1e-6, "sparsity": 5}
    jobs = {
        "item": lambda book: stream.release(**BUDGET, ledger=book),
        "user": lambda book: users.release(**BUDGET, unit="user", ledger=book),
        "one user": lambda book: ds.SparseVector.private([7], [40], **entries, unit="user", ledger=book),
        "row": lambda book: ds.sum(np.full((400, 1), 5.0), bounds=(0, 10), **pure, ledger=book),
        "one row": lambda book: ds.quantile([5.0] * 99, quantile=0.5, bounds=(0, 9), **pure, ledger=book),
        ("user",): lambda book: tally.release(ledger=book),
        "client": lambda book: trie.run(["tea"] * 90, ledger=book),
        "one client": lambda book: tree.run([0.5] * 90, ledger=book),
        ("tenant", "user"): lambda book: ds.collect_histogram(
            TABLE, column="drink", privacy_unit=["user", "tenant"], **BUDGET, ledger=book
        ),
    }
    for place, (unit, job) in enumerate(jobs.items()):
        made = ds.Ledger(tmp_path / f"{place}", epsilon=9.0, delta=1e-3, unit=unit)
        job(str(made.path))
        assert len(made) == 1, unit
    book = ds.Ledger(tmp_path / "mean", epsilon=9.0, delta=1e-3, neighbours="replace", unit="row")
    ds.mean(np.ones((20_000, 2)), bounds=(-2, 2), **BUDGET, ledger=str(book.path))
    assert len(book) == 1


def test_every_unit_counts_once_for_each_key():
    """Twenty names of users, but 400 units; the noise is below 40 but for a chance of e^-39."""
    made = ds.release(TABLE, **KEYS, privacy_unit=["tenant", "user"], max_keys_per_unit=3)
    assert sorted(made.table["drink"].to_pylist()) == ["mate", "milk", "tea"]
    assert all(300 < count < 500 for count in made.table["count"].to_pylist())
    total = ds.sum(TABLE, **NUMBERS, privacy_unit=["tenant", "user"], max_rows_per_unit=2).table
    assert abs(total.column("value")[0].as_py() - 4000) < 1000
    small = ds.sum(TABLE, **NUMBERS, privacy_unit="user", max_rows_per_unit=2).table
    assert small.column("value")[0].as_py() < 1200


def test_preview_takes_units_of_several_columns(tmp_path):
    book = ds.Ledger(tmp_path / "budget", epsilon=9.0, delta=1e-3, unit=["tenant", "user"])
    seen = ds.preview(**BUDGET, privacy_unit=("user", "tenant"), ledger=book.path)
    assert "one (tenant, user)" in str(seen) or seen.guarantee.unit == "one (tenant, user)"
    with pytest.raises(InvalidValue, match="the ledger for"):
        ds.preview(**BUDGET, privacy_unit="user", ledger=book.path)


def test_some_columns_of_the_unit_may_be_keys():
    """Users of each tenant may be counted; all columns of the unit together would publish the units."""
    made = ds.release(TABLE, key="tenant", privacy_unit=["tenant", "user"], **BUDGET)
    assert made.guarantee.unit == "one (tenant, user)"
    with pytest.raises(InvalidValue, match="every unit would be published"):
        ds.release(TABLE, key=["user", "drink", "tenant"], privacy_unit=["tenant", "user"], **BUDGET)


@EACH
def test_what_is_refused(job):
    with pytest.raises(InvalidValue, match="privacy_unit is an empty list"):
        job(privacy_unit=[])
    with pytest.raises(InvalidValue, match="privacy_unit names a column twice"):
        job(privacy_unit=["user", "user"])
    with pytest.raises(InvalidType, match="privacy_unit must be"):
        job(privacy_unit=["user", 7])
    with pytest.raises(InvalidType, match="privacy_unit must be a column name or a list, not int"):
        job(privacy_unit=7)
    with pytest.raises(InvalidValue, match=r"privacy_unit='usr' is not a column of the data. Did you mean 'user'"):
        job(privacy_unit=["tenant", "usr"])
