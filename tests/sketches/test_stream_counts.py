"""The counts of released sketches: the noisy counter plus the noisy loss, on streams in mixed and in sorted order."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.statistical import binomial_band

import dpsieve as ds
from dpsieve.errors import InvalidValue
from dpsieve.papers.thesis import merge_releases, release_bounded_merge, release_counters
from dpsieve.sketches import MergedSketch, MisraGries, UserMisraGries
from dpsieve.testing import insecure_source

KEYS, COUNTERS = 2000, 64
FREQUENCIES = np.maximum(1, 20_000 // np.arange(1, KEYS + 1))
COLUMNS = ["key", "count", "low", "high", "weight", "counter"]


def stream(order):
    """A Zipf stream of 2,000 keys, shuffled, with a drift of topics, or sorted with rare or common keys first."""
    items, generator = np.repeat(np.arange(1, KEYS + 1), FREQUENCIES), np.random.default_rng(5)
    if order == "shuffled":
        return generator.permutation(items)
    if order == "drifting":  # as in a text: a third of the items of a key come in one third of the stream
        spread, near = generator.random((2, len(items)))
        times = np.where(generator.random(len(items)) < 1 / 3, items * 0.618 % (2 / 3) + near / 3, spread)
        return items[np.argsort(times)]
    return items if order == "common first" else items[::-1]


def sketch_of(items, counters=COUNTERS):
    made = MisraGries(counters)
    made.update(items)
    return made


def users_of(items):
    made = UserMisraGries(COUNTERS)
    made.update([set(part.tolist()) for part in np.array_split(items, len(items) // 3)])
    return made


def root_mean_squares(release, truth):
    """The errors of the counters and of the counts."""
    table = release.table.filter(pc.is_valid(release.table["count"]))
    true = truth[table["key"].to_numpy()]
    return tuple(np.sqrt(np.mean((table[name].to_numpy() - true) ** 2)) for name in ("counter", "count"))


def every_release(source=None):
    """One release of each kind."""
    sketch, other = sketch_of(stream("shuffled")[::2]), sketch_of(stream("shuffled")[1::2])
    merged = MergedSketch.of(sketch, other)
    return [
        sketch.release(1.0, 1e-6, source=source),
        users_of(stream("shuffled")).release(1.0, 1e-6, source=source),
        merged.release(1.0, 1e-6, source=source),
        release_bounded_merge(sketch, other, epsilon=1.0, delta=1e-6, source=source),
        merged.release(1.0, universe=range(1, KEYS + 1), source=source),
        merge_releases(sketch.release(1.0, 1e-6, source=source), other.release(1.0, 1e-6, source=source)),
        release_counters([1, 2, 3], [900, 500, 1], 10, 1.0, 1e-6, source=source),
    ]


@pytest.mark.parametrize("release", every_release(), ids=lambda release: release.mechanism.name)
def test_counts_come_from_published_numbers_alone(release, tmp_path):
    """The counter and the noisy loss, which is saved too, make the count, cut to the interval."""
    table, made, lost = release.table, release.mechanism, max(release.drawn.get("lost", 0), 0)
    columns = [*COLUMNS, "bound"] if made.withholds else COLUMNS
    assert table.column_names == columns and len(table) > 1
    counter, low, high = (table[name].to_numpy() for name in ("counter", "low", "high"))
    if made.name == "misra_gries_releases":
        shown = release.tokens % (made.sources + 1)
        more = lost * shown / made.sources
    else:
        more = lost / made.parts
    assert np.allclose(table["weight"].to_numpy(), counter + more, rtol=1e-12)
    known = (low > 1) | (high <= 1) | (not made.withholds)
    expected = pa.array(np.clip(np.rint(counter + more).astype(int), low, high), mask=~known)
    assert table["count"].combine_chunks().equals(expected)
    first = release.top(1)
    assert first["count"][0].as_py() == pc.max(table["count"]).as_py()
    chosen = table["key"].to_numpy() == first["key"][0].as_py()
    assert release.estimate(where=chosen) == pytest.approx(first["weight"][0].as_py())
    assert abs(release.estimate(where=chosen) - first["count"][0].as_py()) <= 0.5
    assert ds.Release.load(release.save(tmp_path / "published")).table.equals(table)
    assert release.to_csv().splitlines()[0] == ",".join(f'"{name}"' for name in columns)


def test_another_counter_or_count_is_refused(tmp_path):
    release = every_release()[0]
    for name in ("counter", "count"):
        table = release.table
        column = pa.array(table[name].to_numpy() + 1)
        forged = replace(release, table=table.set_column(table.column_names.index(name), name, column))
        with pytest.raises(InvalidValue, match="other rows or columns"):
            forged.save(tmp_path / name)


@pytest.mark.parametrize("make", [sketch_of, users_of])
@pytest.mark.parametrize(("order", "gain"), [("shuffled", 8.0), ("drifting", 1.5)])
def test_the_error_falls_where_keys_come_all_along(make, order, gain):
    """By so many times at least; the noise of one release is far below what the sketch lost."""
    items = stream(order)
    truth = np.bincount(items)
    if make is users_of:
        truth = np.bincount(np.concatenate([np.unique(part) for part in np.array_split(items, len(items) // 3)]))
    counter, count = root_mean_squares(make(items).release(1.0, 1e-6), truth)
    assert gain * count < counter


def test_rare_keys_first_is_the_order_in_which_the_counter_is_nearer():
    """The documented bad case: keys come late, nothing of them was lost, and the count is too high by the loss."""
    items = stream("rare first")
    sketch, truth = sketch_of(items), np.bincount(items)
    release = sketch.release(1.0, 1e-6)
    counter, count = root_mean_squares(release, truth)
    assert counter < count
    over = release.table["count"].to_numpy() - truth[release.table["key"].to_numpy()]
    assert over.max() <= sketch.decrements + 60  # noise of two scales of 1: once in 10^20


@pytest.mark.parametrize("order", ["shuffled", "drifting", "common first", "rare first"])
def test_intervals_hold_the_truth_and_the_count_in_every_order(order):
    items, missed, runs = stream(order), 0, 60
    sketch, truth = sketch_of(items), np.bincount(items)
    for _ in range(runs):
        table = sketch.release(1.0, 1e-6).table
        count, low, high = (table[name].to_numpy() for name in ("count", "low", "high"))
        true = truth[table["key"].to_numpy()]
        assert ((low <= count) & (count <= high)).all()
        missed += bool(((true < low) | (true > high)).any())
    assert missed <= binomial_band(runs, 0.05)[1]


def test_without_a_loss_the_shared_noise_cancels_or_is_counted():
    """The stated variance of one key is that of X alone where the noisy loss is above zero, and of X + Y elsewhere."""
    release = sketch_of(stream("shuffled")).release(1.0, 1e-6)
    one = np.arange(len(release)) == 0
    alone = release.estimate(where=one).variance
    empty = sketch_of([1] * 900, 5).release(1.0, 1e-6, source=insecure_source(1))
    loss = empty.drawn["lost"]
    ratio = empty.estimate().variance / alone
    assert release.drawn["lost"] > 0 and ratio == pytest.approx(1.0 if loss > 0 else 2.0)


def test_a_key_column_may_be_called_counter(tmp_path):
    keys = pa.table({"counter": ["till 1", "till 2"]})
    release = ds.channels.optimal(1.0, 1e-6).release(keys, [500, 400])
    assert release.keys.column_names == ["counter"]
    assert ds.Release.load(release.save(tmp_path / "published")).table.equals(release.table)
