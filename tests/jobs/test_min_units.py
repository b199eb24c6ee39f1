"""A floor: a key that fewer than `min_units` units hold is never published, by any job, method or engine path."""

import numpy as np
import pyarrow as pa
import pytest
from helpers.statistical import binomial_band

import dpsieve as ds
from dpsieve.channels import optimal
from dpsieve.channels.floored import floored
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.privacy.guarantee import Contribution

pytestmark = pytest.mark.usefixtures("one_database")

LOOSE = {"epsilon": 20.0, "delta": 0.2}  # without a floor, keys of one or two units would be published
FLOOR = 12


def held_by(numbers, extra=0):
    """Return a table in which key i is held by numbers[i] units, each of which has `extra` further common keys."""
    users = [(f"u{i}-{j}", f"key {i}") for i, n in enumerate(numbers) for j in range(n)]
    users += [(user, f"common {k}") for user, _ in list(users) for k in range(extra)]
    return pa.table({"user": [user for user, _ in users], "key": [key for _, key in users]})


# Many keys just below the floor, one at every number of units up to it, and some far above.
NUMBERS = [FLOOR - 1] * 300 + [*range(1, FLOOR)] + [200] * 5
BELOW = {f"key {i}" for i, n in enumerate(NUMBERS) if n < FLOOR}
WAYS = {
    "optimal": {"max_keys_per_unit": 1},
    "simple": {"max_keys_per_unit": 1, "method": "simple"},
    "stability": {"max_keys_per_unit": 1, "method": "stability"},
    "truncated geometric": {"max_keys_per_unit": 1, "method": "truncated_geometric"},
    "report then count": {"max_keys_per_unit": 3, "method": "report_then_count"},
    "gaussian": {"max_keys_per_unit": 3, "method": "gaussian"},
    "several keys": {"max_keys_per_unit": 3, "method": "optimal"},
    "several rows": {"max_keys_per_unit": 2, "max_rows_per_key": 2},
    "coverage": {"max_keys_per_unit": 2, "report_coverage": True},
    "chosen bound": {},
    "chosen bound, keys": {"goal": "keys"},
    "chosen bound, counts": {"goal": "counts"},
    "two steps": {"max_keys_per_unit": 3, "goal": "counts"},
    "single rows": {"privacy_unit": "row"},
}


def published(table, call=ds.release, **options):
    made = call(table, key="key", **{"privacy_unit": "user", **LOOSE, "min_units": FLOOR, **options})
    return set(made.table.column("key").to_pylist())


@pytest.mark.parametrize("way", WAYS)
def test_no_release_has_a_key_below_the_floor(way):
    table = held_by(NUMBERS, extra=0 if way in ("optimal", "single rows") else 2)
    keys = published(table, **WAYS[way])
    assert keys and not keys & BELOW
    assert published(table, **WAYS[way], min_units=1) & BELOW  # the floor is what keeps them back


def test_the_way_that_finds_keys_first_has_the_floor():
    earlier = Contribution(3, after="find_first")
    table = held_by(NUMBERS, extra=1)
    found = [published(table, max_keys_per_unit=earlier) for _ in range(3)]
    assert any(found) and not set.union(*found) & BELOW


DISCOVERIES = {
    "greedy": {"method": "greedy"},
    "one_key": {"method": "one_key", "max_keys_per_unit": 1},
    "renyi": {"method": "renyi", "typical_keys": 2},
    "renyi_two_rounds": {"method": "renyi_two_rounds", "typical_keys": 3},
    "weighted_gaussian": {"method": "weighted_gaussian"},
    "auto": {},
}


@pytest.mark.parametrize("way", DISCOVERIES)
def test_no_discovery_finds_a_key_below_the_floor(way):
    table = held_by(NUMBERS, extra=0 if way == "one_key" else 2)
    keys = published(table, ds.discover, **{"max_keys_per_unit": 5, **DISCOVERIES[way]})
    assert keys and not keys & BELOW
    assert published(table, ds.discover, **{"max_keys_per_unit": 5, **DISCOVERIES[way]}, min_units=1) & BELOW


@pytest.mark.parametrize("call", [ds.top_k, ds.hitting_set])
@pytest.mark.parametrize("method", ["auto", "weighted_gaussian"])
def test_picks_are_above_the_floor(call, method):
    keys = published(held_by(NUMBERS, extra=2), call, k=30, method=method, max_keys_per_unit=5)
    assert keys and not keys & BELOW


@pytest.mark.parametrize("call", [ds.top_k, ds.hitting_set])
@pytest.mark.parametrize("options", [{"privacy_unit": "row"}, {"typical_keys": 1}, {"method": "one_key"}])
def test_the_largest_counts_are_above_the_floor(call, options):
    terms = {"key": "key", "k": 400, "privacy_unit": "user", **LOOSE, **options}
    made, plain = (call(held_by(NUMBERS), **terms, min_units=floor) for floor in (FLOOR, 1))
    assert made.mechanism.last.name == "top_counts"
    keys, without = (set(each.table.column("key").to_pylist()) for each in (made, plain))
    assert keys and not keys & BELOW and without & BELOW
    made.check()


def test_counts_that_were_made_elsewhere_have_the_floor(tmp_path):
    batch = pa.table({"key": [f"key {i}" for i in range(len(NUMBERS))], "count": NUMBERS})
    made = ds.release_counts([batch], key="key", **LOOSE, min_units=FLOOR, out=tmp_path / "out")
    keys = set(made.table.column("key").to_pylist())
    assert keys and not keys & BELOW


def test_rows_of_few_units_are_few_units():
    """With two rows per unit, 2 * 11 rows may be those of 11 units."""
    table = held_by([FLOOR - 1] * 200 + [300])
    twice = pa.concat_tables([table, table])
    keys = published(twice, max_rows_per_key=2, max_keys_per_unit=1)
    assert keys == {"key 200"}


def test_a_key_at_the_floor_is_as_rare_as_one_of_a_single_unit():
    """The tightest point: a cut of true counts after the draw would show nearly all of these keys, and so one unit."""
    delta, keys = 0.02, 20_000
    table = pa.table({"key": np.repeat(np.arange(keys), FLOOR)})
    made = ds.release(table, key="key", privacy_unit="row", epsilon=1.0, delta=delta, min_units=FLOOR)
    low, high = binomial_band(keys, delta)
    assert low <= len(made) <= high


def test_counts_and_intervals_are_those_of_the_data():
    """Above the floor nothing is lost but its height: the error is that of a release without one."""
    channel = optimal(1.0, 1e-6)
    high = floored(channel, 50)
    plain, above = channel.rows.row(300), high.rows.row(349)
    assert above.silent == plain.silent and above.mass.sum() == pytest.approx(plain.mass.sum(), abs=1e-12)
    tokens = 100 * channel.resolution + np.arange(0, 200 * channel.resolution, channel.resolution // 7)
    raised = high.read(tokens + 49 * channel.resolution)
    for name in ("count", "low", "high"):
        np.testing.assert_array_equal(getattr(raised, name), getattr(channel.read(tokens), name) + 49)
    truth = np.full(4000, 80)
    reading = high.read(high.draw(truth).tokens)
    covered = ((reading.low <= 80) & (reading.high >= 80)).sum()
    assert covered >= binomial_band(4000, 0.95)[0]
    assert (reading.low >= 50).all()


def test_the_table_says_that_a_rare_key_is_known_to_be_above_the_floor_only():
    made = ds.release(
        held_by([*range(FLOOR, 40)] * 5, extra=2), key="key", privacy_unit="user", min_units=FLOOR, max_keys_per_unit=3,
        method="report_then_count", epsilon=3.0, delta=1e-2,
    )  # fmt: skip
    rows = [row for row in made.table.to_pylist() if row["bound"] == "at most"]
    assert rows and all(row["low"] == FLOOR and row["count"] is None for row in rows)
    assert made.least == FLOOR


def test_saved_releases_keep_the_floor(tmp_path):
    made = ds.release(held_by(NUMBERS), key="key", privacy_unit="user", max_keys_per_unit=1, min_units=FLOOR, **LOOSE)
    made.save(tmp_path / "kept")
    loaded = ds.Release.load(tmp_path / "kept")
    assert loaded.mechanism == made.mechanism and loaded.guarantee == made.guarantee
    assert "report nothing" in str(loaded.certificate)
    assert made.estimate().interval(0.95)[0] <= 1000 <= made.estimate().interval(0.95)[1]


def test_a_preview_shows_the_floor():
    plain = ds.preview(privacy_unit="row", epsilon=1.0, delta=1e-8)
    seen = ds.preview(privacy_unit="row", epsilon=1.0, delta=1e-8, min_units=10)
    assert (seen.half, seen.surely, seen.width) == (plain.half + 9, plain.surely + 9, plain.width)
    assert ("never reported", "a key of fewer than 10 units") in seen.lines()
    many = ds.preview(job="discover", privacy_unit="user", epsilon=1.0, delta=1e-6, typical_keys=20, min_units=10)
    assert "units hold it" in str(many) and "fewer than 10 units" in str(many)


@pytest.mark.parametrize(
    "options",
    [
        {"known_keys": ["tea"], "max_keys_per_unit": 1},
        {"sample_size": 10, "max_keys_per_unit": 1},
        {"scheme": ds.ppswor(0.1), "max_keys_per_unit": 1},
        {"min_units": 0},
        {"min_units": 10**7},
    ],
)
def test_what_has_no_floor_is_refused_before_anything_is_read(options, tmp_path):
    ledger = ds.Ledger(tmp_path / "ledger", epsilon=100, delta=0.5)
    with pytest.raises(InvalidValue, match="min_units"):
        ds.release(
            "missing.parquet", key="key", privacy_unit="user", **{**LOOSE, "min_units": 5, **options}, ledger=ledger
        )
    assert not len(ledger)


@pytest.mark.parametrize("method", ["policy_gaussian", "policy_greedy", "repeated_rounds"])
def test_selectors_without_a_proof_refuse_a_floor(method):
    with pytest.raises(DpsieveError, match="min_units does not work with method"):
        published(held_by([20]), ds.discover, method=method)
