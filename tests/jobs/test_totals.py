"""Releases with totals and means: what is published, chosen, refused and charged."""

import numpy as np
import pyarrow as pa
import pytest

import dpsieve as ds
from dpsieve.engines import Columns, DuckDB
from dpsieve.engines.engine import Aggregation
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.noise.totals import GRID, Total
from dpsieve.privacy.guarantee import Contribution

BUDGET = {"key": "drink", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-8}
BOTH = {"sums": {"price": (0, 20)}, "means": {"rating": (1, 5)}}


@pytest.fixture(scope="module")
def orders():
    """Six thousand users: each drinks tea for 4 and rates it 5, half of them also milk for 1.5, rated 2 to 4."""
    users = np.concatenate([np.arange(6000), np.arange(3000)])
    return pa.table({
        "user": users, "drink": ["tea"] * 6000 + ["milk"] * 3000,
        "price": [4.0] * 6000 + [1.5] * 3000, "rating": [5] * 6000 + [2, 3, 4] * 1000,
    })  # fmt: skip


def rows(release):
    return {row["drink"]: row for row in release}


def test_totals_and_means_stand_beside_the_counts(orders, tmp_path):
    release = ds.release(orders, max_keys_per_unit=2, **BOTH, **BUDGET)
    assert release.table.column_names == [
        "drink", "count", "low", "high", "weight", "bound", "price_sum", "price_low", "price_high",
        "rating_mean", "rating_low", "rating_high",
    ]  # fmt: skip
    tea, milk = rows(release)["tea"], rows(release)["milk"]
    assert tea["price_sum"] == pytest.approx(24_000, abs=1500) and milk["price_sum"] == pytest.approx(4_500, abs=1500)
    assert tea["rating_mean"] == pytest.approx(5, abs=0.05) and milk["rating_mean"] == pytest.approx(3, abs=0.1)
    assert tea["rating_high"] <= 5 and milk["price_low"] < milk["price_sum"] < milk["price_high"]
    assert ds.Release.load(release.save(tmp_path / "saved")).table.equals(release.table)
    assert release.guarantee.epsilon == 1.0 and release.guarantee.delta == 1e-8
    assert "price_sum is the sum of 'price' within 0 to 20" in release.bounded
    assert "rating_mean" in release._repr_html_() and "rating_mean" in release.report(tmp_path / "r.html").read_text()
    assert "rating_mean" in release.to_csv() and release.to_pandas()["rating_mean"].notna().all()


def test_the_bound_may_be_chosen_privately(orders):
    release = ds.release(orders, **BOTH, **BUDGET)
    assert "chosen with differential privacy" in release.notes.contribution
    assert rows(release)["tea"]["rating_mean"] == pytest.approx(5, abs=0.1)
    assert [part.scope for part in release.certificate.parts].count("one unit") >= 2


def test_bounds_of_columns_may_be_chosen_privately(orders):
    many = pa.concat_tables(
        [orders.set_column(0, "user", pa.array(np.array(orders["user"]) + 6000 * i)) for i in range(4)]
    )
    release = ds.release(many, sums={"price": "auto"}, means={"rating": "auto"}, max_keys_per_unit=1, **BUDGET)
    price, rating = release.totals
    assert (price.low, price.high) == (0.0, 8.0) and price.clipped < 0.2
    assert rating.low <= 2 and rating.high == 8.0
    assert "bounds chosen with differential privacy: at most" in release.bounded
    assert rows(release)["tea"]["rating_mean"] == pytest.approx(5, abs=0.05)
    names = [use.mechanism.name for use in release.mechanism.uses]
    assert names == ["amount_bounds", "amount_bounds", "key_totals"]


def test_the_rest_is_one_row_beside_the_table(orders, tmp_path):
    rare = pa.table({
        "user": np.arange(10_000, 13_000), "drink": [f"own {i}" for i in range(3000)],
        "price": [7.0] * 3000, "rating": [3] * 3000,
    })  # fmt: skip
    release = ds.release(pa.concat_tables([orders, rare]), max_keys_per_unit=1, rest=True, **BOTH, **BUDGET)
    assert release.rest["count"] == pytest.approx(3000, abs=1500)
    assert release.rest["price_sum"] == pytest.approx(21_000, abs=30_000)
    assert release.rest["low"] < release.rest["count"] < release.rest["high"]
    again = ds.Release.load(release.save(tmp_path / "saved"))
    assert again.rest == release.rest and "Not in the table: about" in again.bounded
    counts = ds.release(pa.concat_tables([orders, rare]), max_keys_per_unit=1, rest=True, **BUDGET)
    assert counts.rest["count"] == pytest.approx(3000, abs=1500) and counts.sums is None
    assert ds.release(orders, max_keys_per_unit=1, **BUDGET).rest is None


def test_public_keys_are_all_answered(orders):
    """No unit holds mate: its mean is null but for one of 20 draws, and in 7 of 10 once in ten million runs."""
    stated = 0
    for delta in (1e-8, 0.0) * 5:
        release = ds.release(
            orders, known_keys=["tea", "mate"], max_keys_per_unit=1, **BOTH, **{**BUDGET, "delta": delta}
        )
        assert release.table["drink"].to_pylist() == ["mate", "tea"]
        mate = rows(release)["mate"]
        stated += mate["rating_mean"] is not None
        assert abs(mate["price_sum"]) < 7 * (mate["price_high"] - mate["price_sum"])  # 95 % are within one of these
    assert stated < 7


def test_the_better_mechanism_is_chosen_from_public_numbers():
    few, many = (ds.preview(max_keys_per_unit=keys, **BOTH, **BUDGET) for keys in (2, 60))
    assert few.mechanism == "key_totals" and many.mechanism == "find_then_measure"
    assert "noise of" in few.reason and "one step would report" in many.reason
    names = dict(few.details)
    assert "standard deviation" in names["sum of 'price'"] and "number of units" in names["mean of 'rating'"]
    chosen = ds.preview(**BOTH, **BUDGET)
    assert chosen.half and "chosen with differential privacy" in chosen.contribution
    assert dict(ds.preview(sums={"p": "auto"}, rest=True, **BUDGET).details).keys() == {"sum of 'p'", "the rest"}


def test_totals_in_two_steps_spend_no_more_than_half_on_finding_keys():
    """More of it would find keys whose means are null; counts alone may spend up to 80 %."""
    sizes = np.random.default_rng(7).lognormal(2.3, 1.0, 15_000).clip(1, 400).astype(int)
    user = np.repeat(np.arange(len(sizes)), sizes)
    key = np.random.default_rng(8).zipf(1.3, len(user)) % 2_000
    table = pa.table({"user": user, "drink": key, "rating": 1 + key % 5})
    release = ds.release(table, means={"rating": (1, 5)}, **{**BUDGET, "epsilon": 1.0, "delta": 1e-8})
    assert release.mechanism.last.name == "find_then_measure" and release.mechanism.last.selector.share <= 0.5


def test_one_unit_changes_few_sums_by_at_most_half_the_width():
    """Exactly, on true data: with and without a unit that adds extremes to many keys."""
    rng = np.random.default_rng(7)
    user, drink = rng.integers(0, 300, 3000), rng.integers(0, 40, 3000)
    price = rng.gamma(2, 5, 3000)
    hostile = np.repeat([1e18, -1e18, np.nan, np.inf], 40)
    table = pa.table({"user": np.append(user, np.full(160, 999)), "drink": np.append(drink, np.tile(np.arange(40), 4)),
                      "price": np.append(price, hostile)})  # fmt: skip
    totals = (Total("price", "sum", 0, 20), Total("price", "mean", -5, 20))
    for keys in (1, 3):
        task = Aggregation(Columns(("drink",), ("user",), totals), Contribution(keys), salt=11)
        found = []
        for each in (table, table.slice(0, 3000)):
            counted = DuckDB().aggregate(each, task)
            numbers = np.vstack([counted.frequencies * GRID, 2 * counted.sums - GRID * counted.frequencies])
            found.append(dict(zip(counted.keys.column(0).to_pylist(), numbers.T, strict=True)))
        with_unit, without = found
        changed = [with_unit[key] - without.get(key, 0) for key in with_unit]
        changed = [change for change in changed if change.any()]
        assert 1 <= len(changed) <= keys and with_unit.keys() >= without.keys()
        assert all((np.abs(change) <= GRID).all() for change in changed)


@pytest.mark.parametrize(
    ("options", "words", "argument"),
    [
        ({"sums": {"price": (20, 0)}}, "wrong order", "sums"),
        ({"means": {"rating": (1, 1)}}, "are equal", "means"),
        ({"sums": {"price": (0, float("inf"))}}, "not finite", "sums"),
        ({"sums": {"prise": (0, 1)}}, "Did you mean 'price'", "sums"),
        ({"sums": {"drink": (0, 1)}}, "is also a key", "sums"),
        ({"means": {"user": (0, 1)}}, "privacy unit", "means"),
        ({"sums": ["price"]}, "must be a dict", "sums"),
        ({"sums": {"price": (0, 1)}, "method": "gaussian"}, "does not work with method", "sums"),
        ({"sums": {"price": (0, 1)}, "max_rows_per_key": 2, "max_keys_per_unit": 1}, "max_rows_per_key", "sums"),
        ({"sums": {"price": (0, 1)}, "scheme": ds.ppswor(0.01), "max_keys_per_unit": 1}, "scheme", "sums"),
        ({"rest": True, "known_keys": ["tea"], "max_keys_per_unit": 1}, "known_keys", None),
        ({"rest": "yes"}, "True or False", None),
    ],
)
def test_what_is_refused_costs_nothing(orders, tmp_path, options, words, argument):
    ledger = ds.Ledger(tmp_path / "ledger.jsonl", epsilon=5.0, delta=1e-6, unit="user")
    with pytest.raises(DpsieveError, match=words) as caught:
        ds.release(orders, ledger=ledger, **{**BUDGET, **options})
    assert len(ledger) == 0 and argument in (None, caught.value.argument)


def test_columns_of_text_and_names_that_clash(orders, tmp_path):
    ledger = ds.Ledger(tmp_path / "ledger.jsonl", epsilon=5.0, delta=1e-6, unit="user")
    words = orders.set_column(2, "price", pa.array(["much"] * len(orders)))
    with pytest.raises(InvalidType, match="sums='price' has the type VARCHAR, which is not a number"):
        ds.release(words, ledger=ledger, sums={"price": (0, 1)}, **BUDGET)
    clash = orders.rename_columns(["user", "price_sum", "price", "rating"])
    with pytest.raises(InvalidValue, match="the name 'price_sum' would be that of two columns"):
        ds.release(clash, ledger=ledger, sums={"price": (0, 1)}, **{**BUDGET, "key": "price_sum"})
    assert len(ledger) == 0
    odd = orders.rename_columns(["user", "drink", "count", "low"])
    release = ds.release(
        odd, ledger=ledger, sums={"count": (0, 20)}, means={"low": (1, 5)}, max_keys_per_unit=1, **BUDGET
    )
    assert {"count_sum", "count_low", "low_mean", "low_high"} <= set(release.table.column_names)
    assert len(ledger) == 1 and release.notes.entry == 1


def test_rows_can_be_units(orders):
    release = ds.release(orders, **BOTH, **{**BUDGET, "privacy_unit": "row"})
    assert rows(release)["tea"]["price_sum"] == pytest.approx(24_000, abs=600)
    auto = ds.release(orders, sums={"price": "auto"}, **{**BUDGET, "privacy_unit": "row"})
    assert rows(auto)["milk"]["price_sum"] == pytest.approx(4_500, abs=1500)
