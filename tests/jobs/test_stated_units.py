"""The privacy unit of a table is stated: as columns, or as 'row'."""

import warnings

import pyarrow as pa
import pytest

import dpsieve as ds
from dpsieve.errors import InvalidValue, PrivacyWarning
from dpsieve.jobs.table import identity_rank

BUDGET = {"epsilon": 1.0, "delta": 1e-8}
NUMBERS = {"column": "price", "bounds": (0, 10), "epsilon": 1.0}
TABLE = pa.table({
    "row": [0] * 400, "customerId": list(range(400)), "order_id": list(range(400)), "drink": ["tea"] * 400,
    "price": [5.0] * 400,
})  # fmt: skip
JOBS = {
    "release": lambda data, **more: ds.release(data, key="drink", **BUDGET, **more),
    "discover": lambda data, **more: ds.discover(data, key="drink", **BUDGET, **more),
    "top_k": lambda data, **more: ds.top_k(data, key="drink", k=1, **BUDGET, **more),
    "hitting_set": lambda data, **more: ds.hitting_set(data, key="drink", k=1, **BUDGET, **more),
    "sum": lambda data, **more: ds.sum(data, **NUMBERS, **more),
    "mean": lambda data, **more: ds.mean(data, **NUMBERS, **more),
    "quantile": lambda data, **more: ds.quantile(data, quantile=0.5, **NUMBERS, **more),
    "histogram": lambda data, **more: ds.collect_histogram(data, column="drink", **BUDGET, **more),
    "heavy hitters": lambda data, **more: ds.collect_heavy_hitters(
        data, column="drink", max_length=3, **BUDGET, **more
    ),
    "quantiles": lambda data, **more: ds.collect_quantiles(data, column="price", bounds=(0, 9), **BUDGET, **more),
    "preview": lambda data, **more: ds.preview(data, key="drink", **BUDGET, **more),
}
EACH = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)


@EACH
def test_a_missing_unit_is_refused_and_columns_that_may_be_it_are_named(job, tmp_path):
    ledger = ds.Ledger(tmp_path / "budget", 9, 1e-3)
    for unit in (None, ()):
        with pytest.raises(InvalidValue, match=r"privacy_unit is missing.*'customerId', 'order_id'") as caught:
            job(TABLE, privacy_unit=unit, ledger=ledger)
        assert caught.value.argument == "privacy_unit" and "privacy_unit='row'" in str(caught.value)
    assert not len(ledger)


@EACH
def test_rows_as_units_are_stated_and_every_output_says_what_that_does_not_protect(job, tmp_path):
    made = job(TABLE, privacy_unit="row")
    assert made.guarantee.unit == "one row"
    if hasattr(made, "save"):
        page = made.report(tmp_path / "r.html").read_text()
        for shown in (repr(made), made._repr_html_(), page):
            assert "a person may have many rows" in shown


def test_a_column_named_row_is_a_list():
    made = ds.release(TABLE, key="drink", privacy_unit=["row"], max_keys_per_unit=1, **BUDGET)
    assert made.guarantee.unit == 'one "row"' and "person" not in repr(made) and not len(made)
    assert ds.release(TABLE, key="drink", privacy_unit="row", **BUDGET).table["drink"].to_pylist() == ["tea"]


def test_the_first_line_of_a_text_file_is_not_shown(tmp_path):
    (tmp_path / "a.csv").write_text("user_marked,divorce\nbob,tea\n")
    (tmp_path / "b.csv").write_text("user_id,query\nbob,tea\n")
    with pytest.raises(InvalidValue) as caught:
        ds.release(tmp_path / "a.csv", key="divorce", **BUDGET)
    assert "marked" not in str(caught.value)
    with pytest.raises(InvalidValue, match="'user_id'"):
        ds.release(tmp_path / "b.csv", key="query", **BUDGET)


def test_a_key_and_a_unit_that_look_exchanged_are_warned_of():
    for key, unit, number in (
        ("customerId", "drink", 1), ("order_id", "row", 1), ("order_id", "customerId", 0), ("drink", "customerId", 0),
        ("customerId", "order_id", 1), ("drink", "row", 0),
    ):  # fmt: skip
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ds.preview(TABLE, key=key, privacy_unit=unit, max_keys_per_unit=1, **BUDGET)
        assert [one.category for one in caught] == [PrivacyWarning] * number, (key, unit)


def test_names_of_identifiers():
    ranks = {
        2: ["user", "users", "USER_ID", "userName", "e_mail email", "device", "client_uuid"],
        1: ["id", "session_id", "uid", "order id"],
        0: ["query", "identity", "user_country", "price", ""],
    }
    for rank, names in ranks.items():
        assert [identity_rank(name) for name in names] == [rank] * len(names)


def test_bounds_on_rows_are_given_where_noise_depends_on_them():
    for job in ("sum", "quantile"):
        with pytest.raises(InvalidValue, match="max_rows_per_unit is missing"):
            JOBS[job](TABLE, privacy_unit="customerId")
    assert JOBS["mean"](TABLE, privacy_unit="customerId").notes.contribution.startswith("the mean of at most 10,000")
