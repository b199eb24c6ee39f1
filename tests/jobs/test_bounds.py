"""How many keys a unit may add: chosen with differential privacy, stated, refused, and paid for."""

import functools
import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.statistical import binomial_band
from scipy import stats

import dpsieve as ds
from dpsieve.engines.true_data import FromPairs, Pairs
from dpsieve.errors import DpsieveError
from dpsieve.jobs.bounds import CANDIDATES, Way, choose_way
from dpsieve.jobs.mechanisms import half_reported
from dpsieve.jobs.release import plan_release
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.noise.keys_per_unit import MOST, KeysPerUnit, units_by_size
from dpsieve.privacy.guarantee import Contribution
from dpsieve.randomness import SystemSource
from dpsieve.testing import insecure_source

SOURCE = SystemSource()
KINDS = ("at_once", "find_first", "two_steps")
pytestmark = pytest.mark.usefixtures("one_database")

NUMBERS = {"key": "key", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-6}


def events(units):
    pairs = [(user, key) for user, keys in enumerate(units) for key in keys]
    return pa.table({"user": [user for user, _ in pairs], "key": [key for _, key in pairs]})


def noiseless(sizes, scale=0.01):
    """Return the histogram of these numbers of keys per unit as if it had nearly no noise."""
    histogram = KeysPerUnit(1 / scale)
    return histogram.draw(units_by_size(np.array(sizes)), SOURCE)


def test_units_with_one_key_keep_one_and_units_with_many_keep_all():
    ones = events([[f"k{user % 50}"] for user in range(10_000)])
    release = ds.release(ones, **NUMBERS, goal="keys", source=insecure_source(1))
    words = "at most 1 key, once each, a bound chosen with differential privacy"
    assert len(release) == 50 and release.notes.contribution.startswith(words)
    many = events([[f"k{(user + 7 * j) % 100}" for j in range(40)] for user in range(2_000)])
    release = ds.release(many, **NUMBERS, source=insecure_source(2))
    kept = int(release.notes.contribution.split()[2])
    assert len(release) == 100 and kept in CANDIDATES and 40 <= kept <= 100


@pytest.mark.parametrize("size", [2, 5, 10, 20, 50, 100])
def test_units_of_one_size_keep_all_their_keys(size):
    for goal in ("auto", "keys", "counts"):
        way = choose_way(noiseless([size] * 10_000), 0.97, 1e-8, goal)
        assert way == Way("at_once", size)


def test_where_most_units_hold_one_key_keys_are_found_first():
    sizes = [1] * 60_000 + [2] * 8_000 + [3] * 3_000 + [5] * 1_000
    assert choose_way(noiseless(sizes), 0.97, 1e-8, "keys", KINDS) == Way("at_once", 1)
    for goal in ("auto", "counts"):
        assert choose_way(noiseless(sizes), 0.97, 1e-8, goal, KINDS) == Way("find_first", 5)
    assert choose_way(noiseless(sizes), 0.97, 1e-8, "auto").kind == "at_once"
    histogram, units = KeysPerUnit(0.03), units_by_size(np.array(sizes))
    drawn = [choose_way(histogram.draw(units, SOURCE), 0.97, 1e-8, "auto", KINDS) for _ in range(100)]
    assert sum(way.kind == "find_first" for way in drawn) > 70


def test_many_units_with_one_key_are_counted_in_more_keys():
    """With so many units noise is small, and units of ten keys would be missed; a bound would lose half of the keys."""
    sizes = np.random.default_rng(5).pareto(2.2, 150_000).clip(0, 499).astype(int) + 1
    for goal in ("auto", "counts"):
        way = choose_way(noiseless(sizes, scale=1.0), 0.97, 1e-8, goal, KINDS)
        assert way.kind == "find_first" and way.keys >= 10


def test_a_long_tail_of_units_with_many_keys_is_counted_in_two_steps():
    """Half of the units hold one key, but most pairs are of units with many, which any bound would drop."""
    sizes = np.minimum(np.random.default_rng(5).random(60_000) ** -0.95, 1_000).astype(int)
    assert np.median(sizes) == 1 and sizes.mean() > 4
    for goal in ("auto", "counts"):
        assert choose_way(noiseless(sizes, scale=1.0), 0.97, 1e-8, goal, KINDS).kind == "two_steps"
    assert choose_way(noiseless(sizes, scale=1.0), 0.97, 1e-8, "keys", KINDS).kind == "at_once"


def test_the_default_counts_in_two_steps_where_a_bound_costs_too_much():
    """A long tail: the bound that finds most keys drops a third of the pairs, which a reader would not expect."""
    tail = np.random.default_rng(5).lognormal(1.6, 1.2, 40_000).clip(1, 900).astype(int)
    sizes = noiseless(tail)
    ways = {goal: choose_way(sizes, 0.97, 1e-8, goal, KINDS) for goal in ("keys", "auto", "counts")}
    assert sizes.smooth_share(ways["keys"].keys) < 0.9
    assert ways["auto"].kind == ways["counts"].kind == "two_steps" and ways["auto"].share > ways["counts"].share
    bound = choose_way(sizes, 0.97, 1e-8, "auto", {"find_first"})  # an engine without pairs
    assert bound.keys > ways["keys"].keys
    kept = [sizes.smooth_share(keys) / half_reported(0.97, 1e-8, keys) for keys in (bound.keys, ways["keys"].keys)]
    assert kept[0] > 0.8 * kept[1]


def test_with_a_million_units_errors_are_small_and_keys_decide():
    """Any noise is below 0.5 % of the common counts, so it costs neither keys nor the time of two steps."""
    units = 10 * units_by_size(np.random.default_rng(5).poisson(8, 100_000).clip(1))
    sizes = KeysPerUnit(0.03).draw(units, SOURCE)
    default, most = (choose_way(sizes, 0.97, 1e-8, goal, KINDS) for goal in ("auto", "keys"))
    assert default.kind == "at_once" and sizes.smooth_share(default.keys) > 0.98 and default.keys <= 2 * most.keys


def test_the_default_bound_is_stable_for_few_units():
    """Common counts of 2,000 units differ little between releases: of 200 draws all keep between 75 and 100 %."""
    tail = np.random.default_rng(5).lognormal(1.2, 1.2, 2_000).clip(1, 900).astype(int)
    histogram, units = KeysPerUnit(0.03), units_by_size(tail)
    draws = [choose_way(histogram.draw(units, SOURCE), 0.97, 1e-8, "auto", KINDS) for _ in range(200)]
    shares = [np.minimum(1.0, way.keys / tail).mean() for way in draws]  # of a key that every unit holds
    assert np.quantile(shares, 0.05) > 0.75
    nothing = choose_way(histogram.draw(np.zeros(MOST + 1, np.int64), SOURCE), 0.97, 1e-8, "auto", KINDS)
    assert nothing.keys in CANDIDATES


def test_few_units_with_one_key_hardly_ever_seem_to_hold_many():
    """A tail that is only noise leads to a large bound, by which nothing is reported: 1 % of draws, 1.5 % at most.

    So more than 30 of 500 are less likely than one in a million; with the same tolerance for few units 13 % have one.
    """
    histogram, units = KeysPerUnit(0.03), units_by_size(np.ones(2_000, int))
    shares = [histogram.draw(units, SOURCE).smooth_share(1) for _ in range(500)]
    assert sum(share < 0.5 for share in shares) <= 30


def test_a_smooth_histogram_is_near_the_true_one():
    tail = np.random.default_rng(5).lognormal(1.2, 1.2, 40_000).clip(1, 900).astype(int)
    for sizes in (tail, np.append(tail, [400] * 2_000)):  # log-normal, and something else
        draws = [KeysPerUnit(0.03).draw(units_by_size(sizes), SOURCE) for _ in range(41)]
        for keys in (5, 20, 100):
            true = np.minimum(sizes, keys).sum() / sizes.sum()
            assert np.median([drawn.smooth_share(keys) for drawn in draws]) == pytest.approx(true, abs=0.11)


def test_found_keys_are_counted_with_their_own_noise(tmp_path):
    """Keys of 30,000 units, of which one in ten holds two: counts are near the number of units that hold the key."""
    units = [[f"k{user % 40}"] + ([f"k{(user + 7) % 40}"] if user % 10 == 0 else []) for user in range(60_000)]
    release = ds.release(events(units), **{**NUMBERS, "delta": 1e-8}, source=insecure_source(2))
    assert release.mechanism.last.name == "divided_units"
    true = Counter(key for unit in units for key in unit)
    counts = dict(zip(release.table["key"].to_pylist(), release.table["count"].to_pylist(), strict=True))
    assert len(counts) == 40 and release.mechanism.contribution.keys >= 2
    assert max(abs(counts[key] - true[key]) for key in true) < 20 * release.mechanism.last.deviation
    assert [part.scope for part in release.certificate.parts].count("one unit") >= 1
    assert release.guarantee.epsilon == 1.0 and release.guarantee.delta == 1e-8
    again = ds.Release.load(release.save(tmp_path / "out"))
    assert again.table.equals(release.table) and again.guarantee == release.guarantee
    low, high = (again.intervals(0.5).column(name).to_numpy() for name in ("low", "high"))
    assert (low >= again.table["low"].to_numpy()).all() and (high < again.table["high"].to_numpy()).all()
    total = again.estimate()
    assert total == pytest.approx(sum(true.values()), abs=6 * total.standard_error)
    ends = total.interval(1 - 1e-6)
    assert ends[0] <= sum(true.values()) <= ends[1] < ends[0] + 12 * total.standard_error
    assert again.rank(max(true, key=true.get)).low >= 1 and set(again.table["bound"].to_pylist()) == {"exact"}


def test_a_series_reuses_the_bound_of_a_release_that_found_keys_first():
    units = [[f"k{user % 40}"] + ([f"k{(user + 7) % 40}"] if user % 9 == 0 else []) for user in range(20_000)]
    first = ds.release(events(units), **NUMBERS, source=insecure_source(2))
    second = ds.release(events(units), **NUMBERS, max_keys_per_unit=first, report_coverage=True)
    assert not second.contribution.describe_change(first.contribution) and second.contribution.after == "find_first"
    assert second.notes.bounded.endswith("too uncertain to state.") and "divided_units" in str(second.certificate)
    seen = ds.preview(**NUMBERS, max_keys_per_unit=first)
    assert "standard deviation" in str(seen) and "divided_units" in str(seen)
    assert "before at most" in ds.release(events(units), **NUMBERS, max_keys_per_unit=3).contribution.describe_change(
        first.contribution
    )


def test_find_first_counts_the_same_from_memory_and_from_disk(tmp_path):
    """Pairs in memory, or read again as so many rows might not fit: for the same salt and source the same release."""
    units = [[f"k{user % 40}"] + ([f"k{(user + 7) % 40}"] if user % 9 == 0 else []) for user in range(40_000)]
    path = tmp_path / "events.parquet"
    pq.write_table(pa.concat_tables([events(units)] * 90), path)
    limits, made = (None, "900MB", "64MB"), []
    for limit in limits:
        engine = ds.engines.DuckDB(memory_limit=limit, threads=1, compiled_from=None)
        made.append(ds.release(path, **NUMBERS | {"delta": 1e-8}, engine=engine, source=insecure_source(4)))
    assert [release.contribution.after for release in made] == ["find_first", "find_first", ""]
    assert made[0].table.equals(made[1].table)


def test_the_budget_is_told_and_charged_once(tmp_path):
    table = events([[f"k{j}" for j in range(1 + user % 9)] for user in range(1_500)])
    ledger = ds.Ledger(tmp_path / "ledger.db", epsilon=1.5, delta=1e-5, unit="one user")
    release = ds.release(table, **NUMBERS, max_keys_per_unit="auto", ledger=ledger)
    histogram, *rest = release.certificate.parts
    assert (histogram.epsilon, histogram.delta) == (0.03, 0.0)
    assert (release.guarantee.epsilon, release.guarantee.delta) == (1.0, 1e-6)
    assert rest[-1].scope == "one unit" and len(list(ledger.history())) == 1
    with pytest.raises(DpsieveError):
        ds.release(table, **NUMBERS, max_keys_per_unit="auto", ledger=ledger)
    assert len(list(ledger.history())) == 1


def test_what_is_kept_is_told_where_there_are_units_enough(tmp_path):
    table = events([["a", "b", "c", "d"]] * 900)
    few = ds.release(table, **NUMBERS, max_keys_per_unit=2, report_coverage=True, source=insecure_source(1))
    assert few.notes.bounded.endswith("coverage is too uncertain to state.")
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
    {"goal": "keys"},
    {"goal": "counts"},
    {"goal": "counts", "max_keys_per_unit": 3},
]


@functools.cache
def own_keys(units, keys):
    return events([[f"{user} {k}" for k in range(keys)] for user in range(units)])


@pytest.mark.parametrize("keys", [1, 12])
@pytest.mark.parametrize("how", OWN, ids=str)
def test_a_unit_with_keys_of_its_own(how, keys):
    """Any of its keys shows with probability delta at most, through the whole path; fails once in a million runs.

    With one key per unit, the default finds keys first.
    """
    delta, units = 0.02, 6_000
    release = ds.release(own_keys(units, keys), **{**NUMBERS, "delta": delta}, **how)
    assert keys > 1 or how or release.mechanism.last.name in ("divided_units", "optimal")
    exposed = len({key.split()[0] for key in release.table["key"].to_pylist()})
    assert exposed <= binomial_band(units, delta)[1]


@pytest.mark.parametrize("kind", ["find_first", "two_steps"])
def test_a_key_of_one_unit_shows_at_most_as_often_as_delta_allows(kind):
    """Many units with a key of their own beside common ones, by each way; fails once in a million runs.

    The units are those of a histogram that chooses this way, and each of them moves the histogram, the keys that are
    found and their ranks, and the counts.
    """
    delta, units, rng = 0.02, 6_000, np.random.default_rng(3)
    sizes = np.full(units, 1) if kind == "find_first" else rng.integers(3, 9, units)
    common = 0 if kind == "find_first" else 40
    rows = [
        [f"own {user}", *(f"c{k}" for k in rng.choice(40, size - 1, replace=False) if common)]
        for user, size in enumerate(sizes)
    ]
    keys = 2 if kind == "find_first" else 5
    release = ds.release(events(rows), **{**NUMBERS, "delta": delta}, max_keys_per_unit=Contribution(keys, after=kind))
    own = [key for key in release.table["key"].to_pylist() if key.startswith("own")]
    assert len(own) <= binomial_band(units, delta)[1] and release.contribution.after == kind


def test_one_unit_changes_the_default_in_two_steps_by_its_share_of_the_budget():
    """The whole default path: P[a key of one unit shows] <= delta, where that unit also moves the histogram.

    The budget is large in delta, so that the probability can be measured; fails once in a million runs.
    """
    delta, rng = 0.05, np.random.default_rng(4)
    sizes = rng.lognormal(1.8, 1.0, 40_000).clip(1, 300).astype(int)
    starts = np.append(0, np.cumsum(sizes))
    keys = (np.repeat(7 * np.arange(len(sizes)) - starts[:-1], sizes) + np.arange(starts[-1])) % 500
    own = np.arange(0, len(sizes), 10)  # these units hold a key that no other unit holds, in place of their first one
    keys[starts[own]] = 500 + np.arange(len(own))
    pairs = Pairs(pa.table({"key": np.arange(500 + len(own))}), starts, keys.astype(np.int32))
    plan = plan_release(ReleaseRequest(**{**NUMBERS, "key": ("key",), "delta": delta}), None)
    release = plan.finish(FromPairs(pairs), SOURCE)
    assert release.contribution.after == "two_steps" and len(release) > 400
    shown = sum(key >= 500 for key in release.keys.column(0).to_pylist())
    assert shown <= binomial_band(len(own), delta)[1]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"privacy_unit": "row", "report_coverage": True}, "privacy_unit"),
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
    assert "chosen with differential privacy" in str(ds.preview(**NUMBERS, max_keys_per_unit="auto"))


def test_a_unit_that_changes_the_choice_changes_its_chances_by_its_share_of_epsilon():
    """Few units, of which one with a thousand keys decides; the histogram has epsilon 1. Fails once in a million runs.

    The chance of each way to count, with that unit and without it, differs by a factor of e at most. Measured on 2,000
    draws of each, which notice a unit that adds five times too much.
    """
    histogram = KeysPerUnit(1.0)
    alone, both = np.ones(4, np.int64), np.array([1, 1, 1, 1, 1_000])
    draws, seen = 2_000, []
    for sizes in (alone, both):
        units = units_by_size(sizes)
        seen.append(Counter(choose_way(histogram.draw(units, SOURCE), 1.0, 1e-6, "auto", KINDS) for _ in range(draws)))
    ways = sorted(seen[0] | seen[1])
    chances = [np.array([counts[way] for way in ways]) for counts in seen]
    assert len(ways) > 1 and (chances[0] != chances[1]).any()
    for one, other in (chances, chances[::-1]):
        most = stats.beta.isf(1e-8, other + 1, draws - other)  # the largest chance that fits, but for one in 10^8
        assert (one <= stats.binom.isf(1e-8, draws, np.minimum(1.0, math.e * most))).all()


def test_a_series_reuses_the_bound_of_its_first_release():
    weeks = [
        events([[f"k{(user + week + 7 * j) % 100}" for j in range(40)] for user in range(2_000)]) for week in (0, 1)
    ]
    first = ds.release(weeks[0], **NUMBERS)
    second = ds.release(weeks[1], **NUMBERS, max_keys_per_unit=first.contribution)
    assert second.contribution == first.contribution and "chosen" not in second.notes.contribution
    assert not second.contribution.describe_change(first.contribution)
    assert "before at most" in ds.release(weeks[1], **NUMBERS, max_keys_per_unit=3).contribution.describe_change(
        first.contribution
    )


@pytest.mark.parametrize("earlier", [Contribution(3, after="find_first"), Contribution(4, after="two_steps")], ids=str)
def test_a_series_reuses_the_way_of_its_first_release(earlier, tmp_path):
    """Not the bound alone: under a bound of 3 at once a release of units with one key would have far fewer keys."""
    units = [[f"k{user % 40}", *([f"k{(user + 7) % 40}"] if user % 10 == 0 else [])] for user in range(20_000)]
    ledger = ds.Ledger(tmp_path / "ledger.db", epsilon=1.5, delta=1e-5, unit="one user")
    release = ds.release(events(units), **NUMBERS, max_keys_per_unit=earlier, ledger=ledger)
    again = ds.release(events(units), **NUMBERS, max_keys_per_unit=release)
    for each in (release, again):
        assert (each.contribution, each.contribution.after) == (earlier, earlier.after) and len(each) == 40
        assert (each.guarantee.epsilon, each.guarantee.delta) == (1.0, 1e-6) and "chosen" not in each.notes.bounded
        true = Counter(key for unit in units for key in unit)
        assert all(abs(row["count"] - true[row["key"]]) < 150 for row in each)
    loaded = ds.Release.load(release.save(tmp_path / "out"))
    assert loaded.contribution.after == earlier.after


@pytest.mark.parametrize("way", ["find_first", "two_steps"])
@pytest.mark.parametrize(
    "argument", [{"known_keys": ["k1"]}, {"method": "optimal"}, {"max_rows_per_key": 2}, {"sample_size": 10}], ids=str
)
def test_a_reused_way_of_counting_is_refused_with_arguments_that_it_would_ignore(way, argument):
    with pytest.raises(DpsieveError, match=f"{next(iter(argument))}. Pass its number, max_keys_per_unit=3, or leave"):
        ds.release(events([["k1"]] * 10), **NUMBERS, max_keys_per_unit=Contribution(3, after=way), **argument)


@pytest.mark.parametrize("method", ["optimal", "report_then_count", "gaussian", "truncated_geometric"])
def test_a_named_method_gets_a_private_bound_too(method):
    table = events([[f"k{(user + 7 * j) % 50}" for j in range(6)] for user in range(6_000)])
    release = ds.release(table, **NUMBERS, method=method)
    assert release.mechanism.last.name == method and release.contribution.keys >= 5 and len(release) == 50
    assert "chosen with differential privacy" in release.notes.contribution
    with pytest.raises(DpsieveError, match="known_keys"):
        ds.release(table, **NUMBERS, method="laplace")


def test_goals_and_defaults_are_told():
    """With a unit the bound is chosen and its coverage reported; arguments that rule that out need a bound."""
    plain = ReleaseRequest(**{**NUMBERS, "key": ("key",)})
    assert plain.chooses_bound and plain.report_coverage and not plain.two_steps
    for change in ({"known_keys": ["a"]}, {"scheme": ds.ppswor(0.1)}, {"epsilon": 0.005}):
        with pytest.raises(DpsieveError, match="max_keys_per_unit is missing"):
            ReleaseRequest(**{**NUMBERS, "key": ("key",), **change})
    rows = ReleaseRequest(**{**NUMBERS, "key": ("key",), "privacy_unit": "row"})
    assert rows.contribution.keys == 1 and not rows.chooses_bound and not rows.report_coverage
    two = ReleaseRequest(**{**NUMBERS, "key": ("key",)}, goal="counts")
    assert (
        two.two_steps
        and not ReleaseRequest(**{**NUMBERS, "key": ("key",)}, goal="counts", max_keys_per_unit=1).two_steps
    )
    seen = ds.preview(**NUMBERS, goal="counts", max_keys_per_unit=10)
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
    release = ds.release(table, **NUMBERS, goal="counts", max_keys_per_unit=3, ledger=ledger)
    assert release.table["key"].to_pylist() == ["a", "b", "c"] and release.notes.entry == 1
    assert abs(np.array(release.table["count"]) - 3_000).max() < 8 * release.mechanism.last.scale(3)
    assert (release.guarantee.epsilon, release.guarantee.delta) == (1.0, 1e-6)
    again = ds.Release.load(release.save(tmp_path / "out"))
    assert again.table.equals(release.table) and again.mechanism == release.mechanism and again.notes == release.notes
    assert "of the published keys, the most common first" in again.notes.bounded


def test_counts_of_units_with_few_keys_get_the_noise_that_is_smaller(tmp_path):
    """The median number of keys per unit decides between Gaussian noise and what units do not need for counts."""
    few = events([[f"k{user % 20}"] for user in range(4_000)])
    ledger = ds.Ledger(tmp_path / "ledger.db", epsilon=1.5, delta=1e-5, unit="user")
    release = ds.release(few, **NUMBERS, goal="counts", max_keys_per_unit=5, ledger=ledger)
    last = release.mechanism.last
    assert last.name == "divided_units" and "rather than" in release.notes.reason and len(release) == 20
    assert abs(np.array(release.table["count"]) - 200).max() < 15 * last.deviation / 2**0.5
    assert release.notes.entry == 1 and (release.guarantee.epsilon, release.guarantee.delta) == (1.0, 1e-6)
    median, divided = (use.mechanism.guarantee for use in release.mechanism.uses)
    assert median.delta == 0 and median.epsilon + divided.epsilon <= 1.0
    again = ds.Release.load(release.save(tmp_path / "out"))
    assert again.table.equals(release.table) and again.mechanism == release.mechanism
    gaussian = ds.release(few, **NUMBERS, goal="counts", max_keys_per_unit=5, report_coverage=True).mechanism.last
    assert gaussian.name == "find_then_count" and gaussian.scale(5) > 1.5 * last.deviation
    assert f"or {last.deviation:.3g} where" in str(ds.preview(**NUMBERS, goal="counts", max_keys_per_unit=5))
    many = events([[f"k{(user + 3 * j) % 20}" for j in range(4)] for user in range(4_000)])
    for table, keys in ((many, 5), (few, 2), (few, 60)):
        made = ds.release(table, **NUMBERS, goal="counts", max_keys_per_unit=keys)
        assert made.mechanism.last.name == "find_then_count"


@pytest.mark.parametrize(("delta", "keys"), [(1e-6, 5), (1e-8, 10)])
def test_both_ways_to_count_after_a_median_get_the_same_smaller_delta(delta, keys):
    """One unit may make one way likelier, and the other one show it: both together cost delta at most.

    A median whose losses lie in a range r has one of l for the way that follows for all of epsilon, and then of l - r
    for the other way. The first costs up to e^(A l) times as much at epsilon - l; the other shows delta at any epsilon.
    """
    few, many = (events([[f"k{(user + j) % 20}" for j in range(size)] for user in range(4_000)]) for size in (1, 3))
    how = {**NUMBERS, "delta": delta, "goal": "counts", "max_keys_per_unit": keys}
    (median, divided), (_, gaussian) = (
        [use.mechanism for use in ds.release(table, **how).mechanism.uses] for table in (few, many)
    )
    assert (divided.name, gaussian.name, gaussian.epsilon) == ("divided_units", "find_then_count", 1.0)
    loss = np.linspace(0, median.epsilon, 1_001)
    chance = np.expm1(loss - median.epsilon) / np.expm1(-median.epsilon)
    cost = chance * np.exp(gaussian.steepness * loss) * gaussian.delta + (1 - chance) * divided.delta
    assert cost.max() <= delta and divided.delta == gaussian.delta


def test_many_units_with_many_keys_are_counted_in_two_steps(tmp_path):
    sizes = np.random.default_rng(5).lognormal(2.5, 1.0, 30_000).clip(1, 500).astype(int)
    starts = np.append(0, np.cumsum(sizes))
    keys = (np.repeat(7 * np.arange(30_000) - starts[:-1], sizes) + np.arange(starts[-1])) % 1_000
    pairs = Pairs(pa.table({"key": np.arange(1_000)}), starts, keys.astype(np.int32))
    plan = plan_release(ReleaseRequest(**{**NUMBERS, "key": ("key",), "goal": "counts"}), None)
    release = plan.finish(FromPairs(pairs), SOURCE)
    assert release.mechanism.last.name == "find_then_count" and len(release) > 900
    kept = release.drawn["keys"]
    assert release.contribution.after == "two_steps" and kept >= 10
    error = np.array(release.table["count"]) - pairs.counts()[release.keys.column(0).to_numpy()]
    assert (error < 8 * release.mechanism.last.scale(kept)).all()
    again = ds.Release.load(release.save(tmp_path / "out"))
    assert again.table.equals(release.table) and again.drawn == release.drawn
    assert (release.guarantee.epsilon, release.guarantee.delta) == (1.0, 1e-6)


def test_few_keys_come_with_what_would_report_more():
    few = ds.release(events([["a"]] * 400), **NUMBERS, source=insecure_source(1))
    assert few.notes.rarer.startswith("change the bound or the budget: half of") and "with epsilon=2" in few.notes.rarer
    assert "For more keys, change the bound" in repr(few) and "For more keys, change" in few._repr_html_()
    many = ds.release(events([[f"k{user % 20}"] for user in range(4_000)]), **NUMBERS, source=insecure_source(2))
    assert len(many) == 20 and not many.notes.rarer
