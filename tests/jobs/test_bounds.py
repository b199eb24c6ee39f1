"""How many keys a unit may add: chosen privately, told, refused, and paid for."""

import numpy as np
import pyarrow as pa
import pytest
from statistical import binomial_band

import dpsieve as ds
from dpsieve.channels.keys_per_unit import EDGES, Sizes
from dpsieve.errors import DpsieveError
from dpsieve.jobs.bounds import CANDIDATES, halves, with_bound
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.testing import insecure_source

NUMBERS = {"key": "key", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-6}


def events(units):
    pairs = [(user, key) for user, keys in enumerate(units) for key in keys]
    return pa.table({"user": [user for user, _ in pairs], "key": [key for _, key in pairs]})


def test_units_with_one_key_keep_one_and_units_with_many_keep_more():
    """Far from any doubt: at 2 % of epsilon the noise is some hundred units of the smallest edges."""
    ones = events([[f"k{user % 50}"] for user in range(10_000)])
    release = ds.release(ones, **NUMBERS, max_keys_per_unit="auto")
    assert len(release) == 50 and release.notes.contribution.startswith("at most 1 key, once each, chosen privately")
    many = events([[f"k{(user + 7 * j) % 100}" for j in range(40)] for user in range(2_000)])
    release = ds.release(many, **NUMBERS, max_keys_per_unit="auto")
    kept = int(release.notes.contribution.split()[2])
    assert len(release) == 100 and kept in CANDIDATES and kept >= 20


def test_the_choice_is_by_pairs_over_the_frequency_reported_half_of_the_time():
    request = ReleaseRequest(**{**NUMBERS, "key": ("key",)}, max_keys_per_unit="auto")
    half = halves(0.98, 1e-6)
    assert sorted(half, key=half.get) == list(CANDIDATES)
    for place, edge in enumerate(EDGES[:-3]):
        units = np.zeros(len(EDGES))
        units[place] = 1e6
        chosen = with_bound(request, Sizes(EDGES, tuple(units), 50.0), 0.98).max_keys_per_unit
        assert chosen == max(CANDIDATES, key=lambda m, edge=edge: min(m, edge) / half[m])
    nothing = Sizes(EDGES, (0.0,) * len(EDGES), 50.0)
    assert with_bound(request, nothing, 0.98).max_keys_per_unit == 1


def test_the_budget_is_told_and_charged_once(tmp_path):
    table = events([[f"k{j}" for j in range(1 + user % 9)] for user in range(1_500)])
    ledger = ds.Ledger(tmp_path / "ledger.db", epsilon=1.5, delta=1e-5, unit="one user")
    release = ds.release(table, **NUMBERS, max_keys_per_unit="auto", ledger=ledger)
    histogram, *rest = release.certificate.parts
    assert (histogram.epsilon, histogram.delta) == (0.02, 0.0)
    assert (release.guarantee.epsilon, release.guarantee.delta) == (1.0, 1e-6)
    assert rest[-1].scope == "one unit" and len(list(ledger.history())) == 1
    with pytest.raises(DpsieveError):
        ds.release(table, **NUMBERS, max_keys_per_unit="auto", ledger=ledger)
    assert len(list(ledger.history())) == 1


def test_what_is_kept_is_told_where_there_are_units_enough(tmp_path):
    table = events([["a", "b", "c", "d"]] * 900)
    few = ds.release(table, **NUMBERS, max_keys_per_unit=2, tell_kept=True)
    assert "too few units to tell" in few.notes.bounded
    sure = {**NUMBERS, "epsilon": 40.0, "source": insecure_source(1)}
    release = ds.release(events([["a", "b", "c", "d"]] * 20_000), **sure, max_keys_per_unit=2, tell_kept=True)
    assert release.notes.kept.low <= 0.5 <= release.notes.kept.high < release.notes.kept.low + 0.6
    assert f"once each: {release.notes.kept}." in release.notes.bounded
    again = ds.Release.load(release.save(tmp_path / "out"))
    assert again.notes == release.notes and again.guarantee == release.guarantee
    assert again.table.equals(release.table)


@pytest.mark.parametrize("keys", [3, "auto"])
def test_a_unit_with_keys_of_its_own(keys):
    """Any of its keys shows with probability delta at most, through the whole path; fails once in a million runs."""
    delta, units = 0.02, 6_000
    table = events([[f"{user} {k}" for k in range(12)] for user in range(units)])
    numbers = {**NUMBERS, "delta": delta, "tell_kept": keys != "auto"}
    release = ds.release(table, **numbers, max_keys_per_unit=keys)
    exposed = len({key.split()[0] for key in release.table["key"].to_pylist()})
    assert exposed <= binomial_band(units, delta)[1]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"privacy_unit": None}, "privacy_unit"),
        ({"max_rows_per_key": 2}, "max_rows_per_key"),
        ({"known_keys": ["a"]}, "known_keys"),
        ({"sample_size": 10}, "sample_size"),
        ({"mechanism": "optimal"}, "mechanism"),
        ({"max_keys_per_unit": "Auto"}, "max_keys_per_unit"),
        ({"max_keys_per_unit": 0}, "max_keys_per_unit"),
    ],
)
def test_what_does_not_go_together_is_refused(changed, words):
    with pytest.raises(DpsieveError, match=words):
        ds.release(events([["a"]]), **{**NUMBERS, "max_keys_per_unit": "auto", **changed})


def test_a_preview_says_what_would_report_rarer_keys():
    seen = ds.preview(**{**NUMBERS, "delta": 1e-8}, max_keys_per_unit=10)
    assert "with max_keys_per_unit=5" in seen.rarer and "with epsilon=2" in seen.rarer
    assert "chosen privately" in str(ds.preview(**NUMBERS, max_keys_per_unit="auto"))
