"""Releases that are merged after they were made private: sums, intervals, the guarantee, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.statistical import binomial_band

import dpsieve as ds
from dpsieve.errors import DpsieveError
from dpsieve.papers.thesis import merge_releases
from dpsieve.papers.thesis.untrusted_aggregator import SummedReleases
from dpsieve.sketches import MisraGries
from dpsieve.testing import insecure_source


def released(items, counters=20, epsilon=1.0, delta=1e-6, **options):
    sketch = MisraGries(counters)
    sketch.update(items)
    return sketch.release(epsilon, delta, **options)


def test_counts_add_up_and_the_guarantee_is_that_of_one(tmp_path):
    parts = [released(["tea"] * 300 + ["milk"] * 200), released(["tea"] * 400 + ["salt"] * 100), released(["rare"])]
    whole = merge_releases(*parts)
    counters = dict(zip(whole.table["key"].to_pylist(), whole.table["counter"].to_pylist(), strict=True))
    by_hand = {}
    for part in parts:
        for row in part.table.to_pylist():
            by_hand[row["key"]] = by_hand.get(row["key"], 0) + row["counter"]
    assert counters == by_hand and set(counters) == {"tea", "milk", "salt"}
    assert whole.guarantee == parts[0].guarantee and whole.certificate.worst == parts[0].certificate.worst
    assert "3 streams that share no item" in whole.certificate.parts[-1].covers
    again = ds.Release.load(whole.save(tmp_path / "published"))
    assert again.table.equals(whole.table) and again.mechanism == whole.mechanism
    assert whole.estimate() == pytest.approx(sum(whole.table["weight"].to_pylist())) and whole.estimate().variance > 0


def test_merging_in_steps_is_the_same():
    parts = [released([1] * 300 + [2] * (50 * i)) for i in range(4)]
    at_once = merge_releases(*parts)
    steps = merge_releases(merge_releases(parts[0], parts[1]), merge_releases(parts[2]), parts[3])
    assert steps.table.equals(at_once.table)
    assert steps.mechanism == at_once.mechanism and steps.drawn == at_once.drawn


def test_all_intervals_hold_together():
    """Keys that some sources publish, withhold, or have lost: the intervals hold all sums, but for 1 merge in 20."""
    streams = [np.repeat(np.arange(12), np.arange(12) * (5 + i)) for i in range(3)]
    sketches = [MisraGries(6) for _ in streams]
    for sketch, stream in zip(sketches, streams, strict=True):
        sketch.update(np.random.default_rng(1).permutation(stream))
    truth, missed, runs = np.bincount(np.concatenate(streams)), 0, 120
    for _ in range(runs):
        table = merge_releases(*(sketch.release(1.0, 0.01) for sketch in sketches)).table
        true = truth[table["key"].to_numpy()]
        missed += bool(((true < table["low"].to_numpy()) | (true > table["high"].to_numpy())).any())
    assert missed <= binomial_band(runs, 0.05)[1]


def test_where_nobody_publishes_a_key_the_bound_counts_every_source():
    """Two sources withhold what one shows: `high` leaves room for a threshold less one in each of them."""
    one, two, three = (
        SummedReleases(1.0, 1e-6, 20, sources=3).token(np.array([600]), np.array([p])) for p in (3, 2, 1)
    )
    made = SummedReleases(1.0, 1e-6, 20, sources=3)
    reader = made.reader({"lost": 0})
    highs = [int(reader.read(token).high[0]) for token in (one, two, three)]
    assert highs[1] - highs[0] == highs[2] - highs[1] == made.threshold - 1
    lows = [int(reader.read(token).low[0]) for token in (one, two, three)]
    assert lows == sorted(lows)
    assert made.possible(np.concatenate([one, two, three])) and not made.possible(np.array([600]))
    assert not made.possible(made.token(np.array([2 * made.threshold - 1]), np.array([2])))


def test_a_seeded_release_makes_the_whole_unsafe():
    assert merge_releases(released(["tea"]), released(["tea"], source=insecure_source(1))).unsafe_to_publish
    assert not merge_releases(released(["tea"]), released(["tea"])).unsafe_to_publish


def test_empty_releases_tell_nothing_of_the_streams():
    whole = merge_releases(released([], epsilon=0.1), released([7], epsilon=0.1), released([b"x"], epsilon=0.1))
    assert len(whole) == 0 and whole.table.schema == released([], epsilon=0.1).table.schema


def test_mistakes():
    tea = released(["tea"] * 500)
    sums = MisraGries(20).merge(MisraGries(20)).release(1.0, 1e-6)
    for parts, named in (
        ([], "no releases"),
        ([tea, tea], "itself"),
        ([tea, released(["tea"], epsilon=0.5)], "settings"),
        ([tea, released(["tea"], 21)], "settings"),
        ([tea, released([1] * 500)], "kinds"),
        ([tea, sums], "MisraGries.release"),
        ([tea, ds.papers.thesis.release_counters(["tea"], [500], 20, 1.0, 1e-6)], "MisraGries.release"),
        ([tea, "published"], "MisraGries.release"),
    ):
        with pytest.raises(DpsieveError, match=named):
            merge_releases(*parts)
    for wrong in ({"sources": 0}, {"unit": "one user"}, {"epsilon": 0.0}):
        with pytest.raises(DpsieveError):
            SummedReleases(**{"epsilon": 1.0, "delta": 1e-6, "counters": 10, **wrong})
    for drawn in ({}, {"lost": None}, {"lost": 2**63}, {"decrements": 3}):
        with pytest.raises(DpsieveError, match="drawn must be lost"):
            replace(merge_releases(tea), drawn=drawn)
