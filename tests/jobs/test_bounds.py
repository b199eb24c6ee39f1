"""How many keys a unit may add: chosen privately, told, refused, and paid for."""

import functools
import math

import numpy as np
import pyarrow as pa
import pytest
from helpers.statistical import binomial_band
from scipy import stats

import dpsieve as ds
from dpsieve.errors import DpsieveError
from dpsieve.jobs.mechanisms import CANDIDATES, choose_bound, half_reported, histogram_for
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.noise.keys_per_unit import EDGES, Sizes, units_by_size
from dpsieve.randomness import SystemSource
from dpsieve.testing import insecure_source

SOURCE = SystemSource()
pytestmark = pytest.mark.usefixtures("one_database")

NUMBERS = {"key": "key", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-6}


def events(units):
    pairs = [(user, key) for user, keys in enumerate(units) for key in keys]
    return pa.table({"user": [user for user, _ in pairs], "key": [key for _, key in pairs]})


def test_units_with_one_key_keep_one_and_units_with_many_keep_more():
    """Far from much doubt: at 2 % of epsilon the noise is some hundred units of the smallest edges."""
    ones = events([[f"k{user % 50}"] for user in range(10_000)])
    release = ds.release(ones, **NUMBERS, max_keys_per_unit="auto", source=insecure_source(1))
    assert len(release) == 50 and release.notes.contribution.startswith("at most 1 key, once each, chosen privately")
    many = events([[f"k{(user + 7 * j) % 100}" for j in range(40)] for user in range(2_000)])
    release = ds.release(many, **NUMBERS, max_keys_per_unit="auto", source=insecure_source(2))
    kept = int(release.notes.contribution.split()[2])
    assert len(release) == 100 and kept in CANDIDATES and kept >= 20


def test_the_choice_is_by_pairs_over_the_frequency_reported_half_of_the_time():
    half = {keys: half_reported(0.98, 1e-6, keys) for keys in CANDIDATES}
    assert sorted(half, key=half.get) == list(CANDIDATES)
    for place, edge in enumerate(EDGES[:-3]):
        units = np.zeros(len(EDGES))
        units[place] = 1e6
        chosen = choose_bound(Sizes(EDGES, tuple(units), 50.0), 0.98, 1e-6)
        assert chosen == max(CANDIDATES, key=lambda m, edge=edge: min(m, edge) / half[m])
    nothing = Sizes(EDGES, (0.0,) * len(EDGES), 50.0)
    assert choose_bound(nothing, 0.98, 1e-6) == 1


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
    few = ds.release(table, **NUMBERS, max_keys_per_unit=2, report_coverage=True, source=insecure_source(1))
    assert few.notes.bounded.endswith("too few units to report coverage.")
    assert few.notes.coverage is None
    sure = {**NUMBERS, "epsilon": 40.0, "source": insecure_source(1)}
    release = ds.release(events([["a", "b", "c", "d"]] * 20_000), **sure, max_keys_per_unit=2, report_coverage=True)
    assert release.notes.coverage.low <= 0.5 <= release.notes.coverage.high < release.notes.coverage.low + 0.6
    assert f"once each: {release.notes.coverage}." in release.notes.bounded
    again = ds.Release.load(release.save(tmp_path / "out"))
    assert again.notes == release.notes and again.guarantee == release.guarantee
    assert again.table.equals(release.table)


OWN = [
    {"max_keys_per_unit": 3},
    {},
    {"goal": "counts"},
    {"goal": "counts", "max_keys_per_unit": 3},
]


@functools.cache
def own_keys(units):
    return events([[f"{user} {k}" for k in range(12)] for user in range(units)])


@pytest.mark.parametrize("how", OWN, ids=str)
def test_a_unit_with_keys_of_its_own(how):
    """Any of its keys shows with probability delta at most, through the whole path; fails once in a million runs."""
    delta, units = 0.02, 6_000
    release = ds.release(own_keys(units), **{**NUMBERS, "delta": delta}, **how)
    exposed = len({key.split()[0] for key in release.table["key"].to_pylist()})
    assert exposed <= binomial_band(units, delta)[1]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"privacy_unit": None, "report_coverage": True}, "privacy_unit"),
        ({"max_rows_per_key": 2, "report_coverage": True}, "max_rows_per_key"),
        ({"known_keys": ["a"], "report_coverage": True}, "known_keys"),
        ({"sample_size": 10, "report_coverage": True}, "sample_size"),
        ({"method": "optimal", "goal": "counts"}, "method"),
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


def test_a_unit_that_changes_the_choice_changes_its_chances_by_its_share_of_epsilon():
    """Few units, of which one with a thousand keys decides; 2 % of epsilon is 1 here. Fails once in a million runs.

    The chance of each bound, with that unit and without it, differs by a factor of e at most. Measured on 2,000 draws
    of each, which notice a unit that adds five times too much.
    """
    request = ReleaseRequest(**{**NUMBERS, "key": ("key",), "epsilon": 50.0})
    histogram = histogram_for(request)
    assert histogram.epsilon == pytest.approx(1.0)
    alone, both = np.ones(4, np.int64), np.array([1, 1, 1, 1, 1_000])
    half = {
        keys: half_reported(1.0, 1e-6, keys) for keys in CANDIDATES
    }  # as if what is left were 1, so that one unit matters
    draws, chances = 2_000, []
    for sizes in (alone, both):
        seen = dict.fromkeys(CANDIDATES, 0)
        for _ in range(draws):
            drawn = histogram.draw(units_by_size(sizes), SOURCE)
            seen[max(CANDIDATES, key=lambda m, drawn=drawn: drawn.pairs(m) / half[m])] += 1
        chances.append(np.array(list(seen.values())))
    assert (chances[0] != chances[1]).any()
    for one, other in (chances, chances[::-1]):
        most = stats.beta.isf(1e-8, other + 1, draws - other)  # the largest chance that fits, but for one in 10^8
        assert (one <= stats.binom.isf(1e-8, draws, np.minimum(1.0, math.e * most))).all()


def test_goals_and_defaults_are_told():
    """With a unit the bound is chosen, and what it keeps told; without one, or with a way of one's own, it is one."""
    plain = ReleaseRequest(**{**NUMBERS, "key": ("key",)})
    assert plain.chooses_bound and plain.report_coverage and not plain.two_steps
    for change in ({"privacy_unit": None}, {"known_keys": ["a"]}, {"scheme": ds.ppswor(0.1)}, {"method": "simple"}):
        fixed = ReleaseRequest(**{**NUMBERS, "key": ("key",), **change})
        assert fixed.contribution.keys == 1 and not fixed.chooses_bound and not fixed.report_coverage
    two = ReleaseRequest(**{**NUMBERS, "key": ("key",)}, goal="counts")
    assert (
        two.two_steps
        and not ReleaseRequest(**{**NUMBERS, "key": ("key",)}, goal="counts", max_keys_per_unit=1).two_steps
    )
    seen = ds.preview(**NUMBERS, goal="counts")
    assert "keys are found first" in str(seen) and "standard deviation" in str(seen)


@pytest.mark.parametrize(
    "wrong",
    [{"goal": "both"}, {"goal": 1}, {"goal": "counts", "method": "simple"}, {"goal": "counts", "known_keys": ["a"]}],
)
def test_goals_that_are_refused(wrong):
    with pytest.raises(DpsieveError, match="goal"):
        ds.release(events([["a"]]), **NUMBERS, **wrong)


def test_counts_in_two_steps_through_the_whole_path(tmp_path):
    """Paid as a whole, saved and loaded, and near the truth where every unit holds the same few keys."""
    table = events([["a", "b", "c"] for _ in range(3_000)])
    ledger = ds.Ledger(tmp_path / "ledger.db", epsilon=1.5, delta=1e-5, unit="user")
    release = ds.release(table, **NUMBERS, goal="counts", ledger=ledger)
    assert release.table["key"].to_pylist() == ["a", "b", "c"] and release.notes.entry == 1
    keys = release.drawn["keys"]
    noise = release.mechanism.last.scale(keys)
    assert abs(np.array(release.table["count"]) - 3_000).max() < 8 * noise + 3_000 * (keys < 3)
    assert (release.guarantee.epsilon, release.guarantee.delta) == (1.0, 1e-6)
    again = ds.Release.load(release.save(tmp_path / "out"))
    assert again.table.equals(release.table) and again.mechanism == release.mechanism and again.notes == release.notes
    assert again.drawn == release.drawn and release.mechanism.last.keys is None
    assert "of the published keys, those found most common first" in again.notes.bounded


def test_few_keys_come_with_what_would_report_more():
    few = ds.release(events([["a"]] * 400), **NUMBERS, source=insecure_source(1))
    assert few.notes.rarer.startswith("half of the keys of frequency") and "with epsilon=2" in few.notes.rarer
    assert "For more keys: half of the keys" in repr(few) and "For more keys" in few._repr_html_()
    many = ds.release(events([[f"k{user % 20}"] for user in range(4_000)]), **NUMBERS, source=insecure_source(2))
    assert len(many) == 20 and not many.notes.rarer
