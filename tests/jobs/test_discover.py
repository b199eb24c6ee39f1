"""Discovery on a table: which keys occur, the most frequent ones, and those that reach most units."""

import itertools
import pickle
from dataclasses import replace
from functools import partial
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.statistical import binomial_band

import dpsieve as ds
from dpsieve.accounting.products import steepest
from dpsieve.engines.true_data import FromPairs, Pairs
from dpsieve.errors import BudgetExceeded, DpsieveError
from dpsieve.jobs.discover import plan_top_k
from dpsieve.jobs.key_set_request import TopKRequest
from dpsieve.jobs.release import plan_release
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.papers.missing_mass import policies
from dpsieve.testing import insecure_source
from dpsieve.validate import SelectorName

BUDGET = {"epsilon": 1.0, "delta": 1e-12}  # one of 2,000 keys of one unit each shows once in 10^8 runs
COLUMNS = {"key": "drink", "privacy_unit": "user"}
pytestmark = pytest.mark.usefixtures("one_database")

CALLS = {
    "discover": ds.discover,
    "top_k": lambda data, **more: ds.top_k(data, k=2, **more),
    "hitting_set": lambda data, **more: ds.hitting_set(data, k=2, **more),
}
by_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def log(pairs):
    users, drinks = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table({"user": pa.array(users, pa.int64()), "drink": pa.array(drinks, pa.string())})


DRINKS = log(
    [(u, "water") for u in range(2000)]
    + [(u, "tea") for u in range(1500)]
    + [(u, "milk") for u in range(1500, 2000)]
    + [(u, f"own drink of {u}") for u in range(2000)]
)


@pytest.mark.parametrize("mechanism", get_args(SelectorName))
def test_common_keys_are_found_and_keys_of_one_unit_are_not(mechanism):
    found = ds.discover(DRINKS, **COLUMNS, method=mechanism, **BUDGET)
    assert found.table.column_names == ["drink"]
    names = found.table["drink"].to_pylist()
    assert names == sorted(names) and {"tea", "water"} <= set(names) and len(names) <= 3
    assert str(found.guarantee) == "(1, 1e-12)-differential privacy when one user is added or removed."
    found.check()


def test_the_choice_is_by_the_typical_number_of_keys():
    few, some, many = (ds.discover(DRINKS, **COLUMNS, typical_keys=t, **BUDGET) for t in (1, 8, 80))
    assert [x.mechanism.name for x in (few, some, many)] == ["greedy", "renyi_two_rounds", "renyi"]
    assert "typically hold 8 keys" in some.notes.reason
    bought = ds.discover(DRINKS, **COLUMNS, **BUDGET)
    assert [use.mechanism.name for use in bought.mechanism.uses] == ["typical_size", "renyi_two_rounds"]
    median, selector = (use.mechanism for use in bought.mechanism.uses)
    whole = bought.certificate.parts[-1]
    assert (median.epsilon, selector.epsilon) == (0.01, 1.0)
    assert whole.worst == pytest.approx(selector.delta * median.raises_delta(steepest(1.0, whole.delta)))
    assert 0.999 * whole.delta < whole.worst <= whole.delta
    assert "by a private median" in bought.notes.reason


def test_the_unit_may_be_a_row():
    found = ds.discover(DRINKS, key="drink", privacy_unit="row", **BUDGET)
    assert found.mechanism.name == "one_key" and found.guarantee.unit == "one row"
    assert found.notes.contribution == "at most 1 key, once each"


def test_the_top_in_order_with_counts():
    top = ds.top_k(DRINKS, **COLUMNS, k=2, counts=True, **BUDGET)
    assert top.table["drink"].to_pylist() == ["water", "tea"]
    for row, true in zip(top.table.to_pylist(), (2000, 1500), strict=True):
        assert row["low"] < row["count"] < row["high"] and abs(row["count"] - true) < 200
    assert ds.top_k(DRINKS, **COLUMNS, k=1, **BUDGET).table.column_names == ["drink"]


def test_picks_see_all_keys_and_selection_only_some():
    """Units with fifty keys each of their own and one key in common, of which selection sees one in 51."""
    data = log([(u, f"{u} {k}") for u in range(600) for k in range(50)] + [(u, "water") for u in range(600)])
    budget = {"epsilon": 1.0, "delta": 1e-6, "source": insecure_source(1)}
    for call in (ds.top_k, ds.hitting_set):
        one, all_ = (call(data, **COLUMNS, k=5, max_keys_per_unit=most, **budget) for most in (1, 51))
        assert len(one) == 0 and one.notes.contribution == "at most 1 key, once each"
        assert all_.table["drink"].to_pylist()[:1] == ["water"]


def test_a_hitting_set_reaches_who_is_not_reached_yet():
    sets = log(
        [(u, "water") for u in range(2000)]
        + [(u, "ice") for u in range(1900)]
        + [(u, "tea") for u in range(2000, 3200)]
    )
    assert ds.hitting_set(sets, **COLUMNS, k=2, **BUDGET).table["drink"].to_pylist() == ["water", "tea"]
    assert ds.top_k(sets, **COLUMNS, k=2, **BUDGET).table["drink"].to_pylist() == ["water", "ice"]


@by_call
@pytest.mark.parametrize("mechanism", ["renyi_two_rounds", "weighted_gaussian", "one_key"])
def test_every_selector_serves_every_call(call, mechanism):
    made = call(DRINKS, **COLUMNS, method=mechanism, **BUDGET)
    assert "water" in made.table["drink"].to_pylist()
    made.check()


@by_call
def test_several_columns_and_the_types_of_keys(call):
    table = pa.table({"user": range(3000), "city": ["Rome", "Oslo", "Rome"] * 1000, "year": [1, 1, 2] * 1000})
    made = call(table, key=["city", "year"], privacy_unit="user", **BUDGET)
    assert made.table.schema.types == [pa.string(), pa.int64()] and len(made) >= 2


@by_call
def test_an_empty_answer_is_clear(call):
    made = call(log([(u, f"own {u}") for u in range(500)]), **COLUMNS, **BUDGET)
    assert len(made) == 0 and made.table.schema == pa.schema([("drink", pa.string())]) and "0 rows" in repr(made)
    made.check()
    nothing = call(log([]), **COLUMNS, **BUDGET)
    assert nothing.table.equals(made.table)


@by_call
def test_units_may_repeat(call):
    repeated = pa.concat_tables([DRINKS] * 3)
    assert set(call(repeated, **COLUMNS, **BUDGET).table["drink"].to_pylist()) <= {"water", "tea", "milk"}


def test_fewer_than_k_keys_are_explained():
    for call in (ds.top_k, ds.hitting_set):
        made = call(DRINKS, **COLUMNS, k=50, **BUDGET)
        assert len(made) <= 3
        assert (
            f"only {len(made)} of 50 keys were selected, and a key is selected half of the time if " in made.notes.rarer
        )
        assert made.notes.rarer in repr(made)
        assert not call(DRINKS, **COLUMNS, k=1, **BUDGET).notes.rarer
    assert "units are counted in it" in ds.top_k(DRINKS, **COLUMNS, k=50, **BUDGET).notes.rarer
    halved = ds.top_k(DRINKS, **COLUMNS, k=50, method="weighted_gaussian", **BUDGET)
    assert f"only {len(halved)} of 50 keys were selected, and a key is selected half" in halved.notes.rarer


def test_units_with_many_keys_get_all_k():
    """1,900 units with 50 of 2,000 keys each, some of them common: without the median, 5 to 16 of 20 come out."""
    chances, rng = 1 / (np.arange(2000) + 40.0) ** 1.2, np.random.default_rng(1)
    keys = [rng.choice(2000, 50, replace=False, p=chances / chances.sum()) for _ in range(1900)]
    data = pa.table({"user": np.repeat(np.arange(1900), 50), "drink": np.concatenate(keys)})
    counts = np.bincount(np.concatenate(keys))
    best = np.sort(counts)[-20:].sum()
    for method in ("auto", "renyi"):
        top = ds.top_k(data, **COLUMNS, k=20, method=method, epsilon=1.0, delta=1e-8, source=insecure_source(4))
        assert len(top) == 20 and counts[top.table["drink"].to_numpy()].sum() > 0.97 * best
    by_name, by_auto = (
        ds.discover(data, **COLUMNS, method=method, epsilon=1.0, delta=1e-8, source=insecure_source(4))
        for method in ("renyi", "auto")
    )
    assert by_name.mechanism == by_auto.mechanism and abs(len(by_name) - len(by_auto)) < 60


@by_call
def test_a_unit_with_very_many_keys(call):
    many = 200_000
    greedy_one = pa.table({"user": np.full(many, 7), "drink": pa.array(np.arange(many)).cast(pa.string())})
    made = call(pa.concat_tables([greedy_one, DRINKS]), **COLUMNS, **BUDGET)
    assert set(made.table["drink"].to_pylist()) <= {"water", "tea", "milk"}


@pytest.mark.parametrize("mechanism", [name for name in get_args(SelectorName) if name != "auto"])
def test_the_rate_of_keys_that_one_unit_alone_holds(mechanism):
    """Many units with keys of their own: each shows any of them with probability delta at most, and some do."""
    delta, units = 0.05, 4000
    data = log([(u, f"{u} {k}") for u in range(units) for k in range(4)])
    found = ds.discover(data, **COLUMNS, epsilon=1.0, delta=delta, method=mechanism, max_keys_per_unit=4)
    shown = {key.split()[0] for key in found.table["drink"].to_pylist()}
    assert 0 < len(shown) <= binomial_band(units, delta)[1]


@pytest.mark.parametrize("call", [ds.top_k, ds.hitting_set])
@pytest.mark.parametrize(("keys", "method"), [(4, "auto"), (1, "auto"), (4, "one_key"), (4, "renyi")])
def test_the_rate_after_private_choices(call, keys, method):
    """As above for picks and for the largest counts, at most 1,000 of which are far more than the keys that show."""
    delta, units = 0.05, 4000
    data = log([(u, f"{u} {k}") for u in range(units) for k in range(keys)])
    made = call(data, **COLUMNS, k=1000, epsilon=1.0, delta=delta, method=method)
    shown = {key.split()[0] for key in made.table["drink"].to_pylist()}
    assert 0 < len(shown) <= binomial_band(units, delta)[1]


def one_key_each():
    """5,000 units with one key each, by a Zipf law."""
    return pa.table({"user": np.arange(5_000), "drink": np.random.default_rng(2).zipf(1.6, 5_000)})


LARGEST = {
    "as a release": {},
    "typically one key": {"typical_keys": 1},
    "one key": {"method": "one_key"},
    "rows": {"privacy_unit": "row"},
    "a bound": {"max_keys_per_unit": 4},
}


@pytest.mark.parametrize("more", LARGEST.values(), ids=LARGEST)
def test_a_top_k_is_that_of_a_release(more, tmp_path):
    """With the same randomness: the same keys in the same order, the same mechanism, and on request the same counts."""
    pairs = Pairs.of([[key] for key in one_key_each()["drink"].to_pylist()])
    data = pairs.count(1) if more.keys() - {"typical_keys"} else FromPairs(pairs)
    asked = {**COLUMNS, "epsilon": 1.0, "delta": 1e-8, **more}
    draw = lambda plan: plan.finish(data, insecure_source(1))  # noqa: E731
    top, keys = (draw(plan_top_k(TopKRequest(**asked, k=10, counts=counts), None)) for counts in (True, False))
    bound = {"max_keys_per_unit": 1} if "method" in more else {}
    asked = {name: value for name, value in asked.items() if name not in ("method", "typical_keys")}
    release = draw(plan_release(ReleaseRequest(**asked, **bound), None))
    assert top.table.equals(release.top(10).drop_columns("weight")) and top.keys.equals(keys.table)
    assert top.mechanism.last.mechanism == release.mechanism and top.certificate == release.certificate
    assert top.notes.coverage == release.coverage and top.mechanism.spends() == release.mechanism.spends()
    again = type(top).load(top.save(tmp_path / "out"))
    assert again.table.equals(top.table) and again.mechanism == top.mechanism and (again.tokens == top.tokens).all()
    assert keys.tokens is None and keys.keys.equals(type(top).load(keys.save(tmp_path / "keys")).table)


def test_counts_that_a_release_cannot_have_drawn_are_refused():
    top = ds.top_k(one_key_each(), **COLUMNS, k=3, counts=True, epsilon=1.0, delta=1e-8)
    columns = {name: top.table[name] for name in top.table.column_names}
    larger = pa.table({**columns, "count": pc.add(top.table["count"], 1)})
    for wrong in (
        {"table": larger},
        {"tokens": np.roll(top.tokens, 1)},
        {"tokens": top.tokens[:2]},
        {"tokens": None},
        {"notes": replace(top.notes, contribution="at most 77 keys, once each")},
        {"mechanism": replace(top.mechanism, k=2)},
    ):
        with pytest.raises(DpsieveError, match="Use it as it was made"):
            replace(top, **wrong).check()


def test_a_top_k_is_charged_as_its_release(tmp_path):
    """By the promise of the release, before anything is drawn; the same for a preview."""
    path = tmp_path / "budget"
    ds.Ledger(path, epsilon=1.0, delta=1e-6, unit="one user")
    top = ds.top_k(one_key_each(), **COLUMNS, k=3, epsilon=0.6, delta=1e-8, ledger=path)
    (entry,) = ds.Ledger(path).history()
    assert top.notes.entry == entry.number and top.guarantee.epsilon == 0.6
    with pytest.raises(BudgetExceeded):
        ds.preview(one_key_each(), job="top_k", **COLUMNS, k=3, epsilon=0.6, delta=1e-8, ledger=path)


@pytest.mark.parametrize("more", [{}, {"method": "one_key"}, {"privacy_unit": "row"}])
def test_hitting_sets_of_units_with_one_key_are_the_largest_counts(more, tmp_path):
    made = ds.hitting_set(one_key_each(), **{**COLUMNS, **more}, k=40, epsilon=1.0, delta=1e-8)
    last = made.mechanism.last
    assert last.name == "top_counts" and set(made.table["drink"].to_pylist()[:4]) == {1, 2, 3, 4}
    assert last.mechanism.last.epsilon == pytest.approx(1.0 if more else 0.98)
    again = type(made).load(made.save(tmp_path / "out"))
    assert again.table.equals(made.table) and again.mechanism == made.mechanism


def test_counts_of_named_methods_are_of_all_keys_of_a_unit():
    data = log([(u, "water") for u in range(3000)] + [(u, "tea") for u in range(600)])
    top = ds.top_k(data, **COLUMNS, k=2, counts=True, method="renyi", **BUDGET)
    assert top.mechanism.last.name == "top_k" and abs(top.table["count"][0].as_py() - 3000) < 500


def test_the_ledger_is_charged_once_and_first(tmp_path):
    path = tmp_path / "budget"
    ds.Ledger(path, epsilon=1.0, delta=1e-6, unit="one user")
    ds.discover(DRINKS, **COLUMNS, ledger=path, note="drinks", epsilon=0.5, delta=5e-7)
    assert [entry.note for entry in ds.Ledger(path).history()] == ["drinks"]
    for call in CALLS.values():
        with pytest.raises(BudgetExceeded):
            call(DRINKS, **COLUMNS, ledger=path, **BUDGET)
    assert len(ds.Ledger(path)) == 1


@by_call
def test_more_units_than_a_policy_allows_are_refused_before_they_are_paid(call, tmp_path, monkeypatch):
    monkeypatch.setattr(policies, "policy_gaussian", partial(policies.policy_gaussian, max_units=100))
    ledger = ds.Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6, unit="one user")
    with pytest.raises(DpsieveError, match="more units than policy_gaussian allows, 100"):
        call(DRINKS, **COLUMNS, method="policy_gaussian", ledger=ledger, **BUDGET)
    assert len(ledger) == 0


@by_call
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"method": "magic"}, "method is not known"),
        ({"typical_keys": 0}, "typical_keys"),
        ({"max_keys_per_unit": 0}, "max_keys_per_unit"),
        ({"max_keys_per_unit": 20_000}, "max_keys_per_unit"),
        ({"key": "drunk"}, "Did you mean 'drink'"),
        ({"privacy_unit": "drink"}, "every unit would be published"),
        ({"note": "lost"}, "note is kept in a ledger"),
        ({"typical_keys": 20_000}, "typical_keys=20000 is not between 1 and 10000"),
        ({"allow_null_units": 1}, "allow_null_units must be True or False, not int. Pass"),
        ({"privacy_unit": "row", "max_keys_per_unit": 3}, "needs a privacy_unit"),
    ],
)
def test_wrong_arguments_name_themselves_and_cost_nothing(call, wrong, message, tmp_path):
    ledger = None if "note" in wrong else ds.Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6, unit="one user")
    with pytest.raises(DpsieveError, match=message):
        call(DRINKS, **{**COLUMNS, **BUDGET, "ledger": ledger, **wrong})
    assert ledger is None or len(ledger) == 0


@pytest.mark.parametrize(
    ("call", "epsilon", "delta"),
    [
        *itertools.product(CALLS, [0.001], [1e-9]),
        *(
            ("discover", 0.00103, 1e-9),
            ("top_k", 50.0, 1e-20),
            ("hitting_set", 50.0, 1e-20),
            ("top_k", 1.0, 0.7),
            ("discover", 1.0, 0.7),
        ),
    ],
)
def test_every_budget_that_is_accepted_is_served(call, epsilon, delta, tmp_path):
    """A private median and a share for picks come on top of the limits of a budget; nothing fails once it is paid."""
    ledger = ds.Ledger(tmp_path / "budget", epsilon=200.0, delta=0.95, unit="one user")
    CALLS[call](DRINKS.slice(0, 100), **COLUMNS, epsilon=epsilon, delta=delta, max_keys_per_unit=5, ledger=ledger)
    assert len(ledger) == 1


def test_halves_and_counts_are_named_as_the_caller_knows_them():
    budget = {"epsilon": 0.0015, "delta": 1e-6}
    with pytest.raises(DpsieveError, match=r"epsilon=0\.0015 and delta=1e-06 are too small to be halved for greedy"):
        ds.top_k(DRINKS, **COLUMNS, k=2, method="greedy", **budget)
    with pytest.raises(DpsieveError, match="counts needs a method that shares its budget"):
        ds.top_k(DRINKS, **COLUMNS, k=2, method="greedy", counts=True, **BUDGET)


@pytest.mark.parametrize("k", [0, -1, 2.5, 1001])
def test_k_is_a_sensible_number(k):
    for call in (ds.top_k, ds.hitting_set):
        with pytest.raises(DpsieveError, match=r"^k"):
            call(DRINKS, **COLUMNS, k=k, **BUDGET)


@by_call
def test_a_publication_is_saved_and_pickled(call, tmp_path):
    made = call(DRINKS, **COLUMNS, source=insecure_source(3), **BUDGET)
    again = type(made).load(made.save(tmp_path / "x"))
    assert again.table.equals(made.table) and again.mechanism == made.mechanism
    assert pickle.loads(pickle.dumps(made)).table.equals(made.table)


def test_a_saved_contribution_is_that_of_the_mechanism():
    made = ds.discover(DRINKS, **COLUMNS, method="greedy", **BUDGET)
    with pytest.raises(DpsieveError, match="another contribution"):
        replace(made, notes=replace(made.notes, contribution="at most 3 keys, once each")).check()
