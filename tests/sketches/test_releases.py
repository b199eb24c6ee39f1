"""Private releases of sketches, from the stream to the table: one sketch, merged ones, known universes."""

import functools
import hashlib
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from helpers.charged_draws import crashing
from helpers.sketch_reference import misra_gries, neighbours
from helpers.statistical import binomial_band

import dpsieve as ds
from dpsieve.errors import BudgetExceeded, DpsieveError, InvalidType, UnreadableData
from dpsieve.papers.thesis import release_bounded_merge, release_counters
from dpsieve.papers.thesis.bounded_merge import merge_counters
from dpsieve.privacy.mechanism import Outcome, from_json
from dpsieve.randomness.noise import discrete_laplace
from dpsieve.sketches import MergedSketch, MisraGries, sketch_from_bytes
from dpsieve.sketches.laplace_noise import NoisySketch
from dpsieve.sketches.one_sided_noise import OneSidedSketch
from dpsieve.sketches.summed_noise import RoundedSketch, SummedSketch
from dpsieve.testing import insecure_source


def sketch_of(items, counters=100):
    made = MisraGries(counters)
    made.update(items)
    return made


def zipf(count, seed=1, names=5000):
    ranks = np.random.default_rng(seed).zipf(1.4, 2 * count)
    return ranks[ranks <= names][:count]


def truths(table, items):
    counts = np.bincount(items)
    return counts[table["key"].to_numpy()]


def test_the_common_keys_of_a_stream():
    items = zipf(50_000)
    release = sketch_of(items).release(1.0, 1e-8, source=insecure_source(1))  # 95 % intervals miss now and then
    assert 5 < len(release) <= 100 and release.top(1)["key"].to_pylist() == [1]
    truth = truths(release.table, items)
    assert (release.table["low"].to_numpy() <= truth).all() and (truth <= release.table["high"].to_numpy()).all()
    assert release.mechanism.threshold == 22
    assert str(release.guarantee) == "(1, 1e-08)-differential privacy when one item is added or removed."
    assert release.estimate() == release.table["count"].to_numpy().sum()


def test_error_within_the_theorem():
    """Theorem 3.1: all counters within 2 ln((k+1)/beta)/epsilon + threshold + n/(k+1), with probability 1 - beta."""
    items, k, epsilon, beta = zipf(100_000), 64, 1.0, 1e-9
    counts = np.bincount(items)
    release = sketch_of(items, k).release(epsilon, 1e-6)
    found = dict(zip(release.table["key"].to_pylist(), release.table["counter"].to_pylist(), strict=True))
    noise = 2 * np.log((k + 1) / beta) / epsilon
    for key, truth in enumerate(counts):
        assert truth - noise - release.mechanism.threshold - len(items) / (k + 1) <= found.get(key, 0) <= truth + noise


@pytest.mark.parametrize("kind", [str, lambda k: f"{k}".encode(), int])
def test_keys_of_every_kind_are_saved_and_loaded(tmp_path, kind):
    release = sketch_of([kind(k) for k in zipf(3000).tolist()], 50).release(2.0, 1e-6, items_per_unit=2)
    again = ds.Release.load(release.save(tmp_path / "published"))
    assert again.table.equals(release.table) and again.notes == release.notes
    assert again.mechanism == release.mechanism and again.drawn == release.drawn and set(again.drawn) == {"lost"}


def test_a_key_in_one_of_two_neighbouring_streams_shows_with_at_most_delta():
    """State S4 in a real stream: the last item enters the sketch in the place of a key at zero."""
    delta, runs = 0.05, 500
    made = sketch_of(["a", "b", "c", "d"], 2)  # two keys enter, all are lowered by c, and d takes a place
    assert dict(made)["d"] == 1
    shown = sum("d" in made.release(1.0, delta).table["key"].to_pylist() for _ in range(runs))
    assert binomial_band(runs, delta / 4)[0] <= shown <= binomial_band(runs, delta)[1]


def test_standard_sketches_need_a_higher_threshold():
    release = release_counters(["tea", "milk", "salt"], [500, 200, 1], 1024, 1.0, 1e-8)
    assert release.table["key"].to_pylist() == ["milk", "tea"] and release.mechanism.threshold == 29
    with pytest.raises(DpsieveError, match="size"):
        release_counters(["tea", "milk"], [5, 5], 1, 1.0, 1e-8)
    with pytest.raises(DpsieveError, match="more than once"):
        release_counters(["tea", "tea"], [5, 5], 9, 1.0, 1e-8)
    assert len(release_counters(pa.array(["tea"], pa.string_view()), [900], 9, 1.0, 1e-8)) == 1


def test_several_items_of_a_unit():
    one, many = (sketch_of(zipf(20_000)).release(1.0, 1e-6, items_per_unit=m) for m in (1, 10))
    assert many.mechanism.threshold > 9 * one.mechanism.threshold and "group privacy" in many.notes.reason


def test_no_sketch_promises_more_than_it_keeps():
    """A sketch does not know whose items it counts, so no other label can be put on its guarantee."""
    made = sketch_of(["tea"] * 900).release(1.0, 1e-6, items_per_unit=5)
    assert str(made.guarantee).endswith("when one unit with at most 5 items is added or removed.")
    for make in (NoisySketch, RoundedSketch):
        assert make(1.0, 1e-6, 10, unit="one item").guarantee.unit == "one item"
        for wrong in ({"unit": "one user"}, {"unit": []}, {"unit": "one item", "items_per_unit": 2}):
            with pytest.raises(DpsieveError, match="unit"):
                make(1.0, 1e-6, 10, **wrong)
    forged = {**made.mechanism.to_json(), "unit": "one user"}
    with pytest.raises(DpsieveError, match="unit"):
        from_json(forged)


@pytest.mark.parametrize("item", ["x", b"x", 7])
def test_an_empty_release_does_not_tell_an_empty_stream_from_one_item(tmp_path, item):
    """Neither the table nor the file: the type of a column without keys says nothing of what was in the stream."""

    def released(items):
        users = ds.UserMisraGries(5)
        users.update([items])
        sample = ds.papers.weighted_sampling.StreamSample(50.0)
        sample.find(items)
        sample.count(items)
        keys, counts = sample.finish()
        yield sketch_of(items).release(0.1, 1e-8)
        yield sketch_of(items).merge(MisraGries(100)).release(0.1, 1e-8)
        yield users.release(0.1, 1e-8)
        yield ds.channels.optimal(0.1, 1e-8, sample.scheme).release(keys, counts, already_sampled=True)

    for one, none in zip(released([item]), released([]), strict=True):
        assert len(one) == len(none) == 0 and one.table.schema == none.table.schema


class TestUniverse:
    def test_of_equal_tokens_the_public_order_decides(self, monkeypatch):
        """One place in the release and three equal tokens: that a key occurs must not bring it to the front."""
        outcome = Outcome(np.full(1, 50), {"lost": 1})
        monkeypatch.setattr(SummedSketch, "draw", lambda self, values, items, source: outcome)
        monkeypatch.setattr(SummedSketch, "draw_zeros", lambda self, held, source: (np.array([2, 0]), np.full(2, 50)))
        release = sketch_of(["b"], 1).release(1.0, universe=["a", "b", "c"])
        assert release.table["key"].to_pylist() == ["a"]

    def test_pure_privacy_over_a_huge_range(self):
        items = zipf(200_000)
        options = {"universe": range(10**12), "false_keys": 2.0, "source": insecure_source(1)}
        release = sketch_of(items, 200).release(1.0, **options)
        assert str(release.guarantee) == "1-differential privacy when one item is added or removed."
        keys = release.table["key"].to_numpy()
        assert {1, 2, 3} <= set(keys.tolist()) and (keys > 5000).sum() <= 30
        real = release.table.filter(pa.array(keys <= 5000))
        truth = truths(real, items)
        assert (real["low"].to_numpy() <= truth).all() and (truth <= real["high"].to_numpy()).all()

    def test_a_list_of_texts(self, tmp_path):
        names = [f"name {i}" for i in range(1000)]
        stream = [names[i % 3] for i in range(3000)] + ["not in the list"] * 2000
        release = sketch_of(stream, 20).release(1.0, universe=names)
        found = release.table["key"].to_pylist()
        assert {"name 0", "name 1", "name 2"} <= set(found) and set(found) <= set(names)
        assert ds.Release.load(release.save(tmp_path / "x")).table.equals(release.table)

    def test_an_empty_sketch_tells_nothing_but_noise(self):
        release = MisraGries(10).release(1.0, universe=range(1000), false_keys=40.0)  # none: once in 10^17 runs
        assert 0 < len(release) < 200 and release.table["key"].type == pa.int64()

    @pytest.mark.parametrize(
        ("universe", "named"),
        [
            ([], "empty"),
            (range(0), "empty"),
            ([1, 1], "more than once"),
            (["a", b"b"], "mixes"),
            (["\ud800"], "surrogates"),
            ("tea", "one str"),
            ([1.5], "float"),
            ([None], "empty"),
            (range(10**30), "64 bits"),
            (range(10**13), "10\\^12"),
            (range(-(2**62), 2**62), "10\\^12"),
        ],
    )
    def test_mistakes(self, universe, named):
        with pytest.raises(DpsieveError, match=named):
            sketch_of([1, 2]).release(1.0, universe=universe)

    @pytest.mark.parametrize("universe", [range(10), ["a", "b"], [b"a"], range(0, 5, 2**70), range(-(2**63), 9, 2**63)])
    @pytest.mark.parametrize("items", [[], [3], ["a"], ["a"] * 300, [b"a"] * 300, [3] * 300])
    def test_whether_it_succeeds_does_not_depend_on_the_stream(self, universe, items):
        """Keys of another kind are outside of the universe, like any others."""
        release = sketch_of(items, 5).release(1.0, universe=universe, false_keys=0.1)
        assert set(release.table["key"].to_pylist()) <= set(universe)

    def test_delta_and_universe_are_for_one_or_the_other(self):
        with pytest.raises(DpsieveError, match="delta"):
            sketch_of([1]).release(1.0, 1e-6, universe=range(10))
        with pytest.raises(DpsieveError, match="universe"):
            sketch_of([1]).release(1.0)


class TestMerged:
    def test_sums_and_bounded_merges_hold_the_truth(self):
        parts = [zipf(30_000, seed) for seed in range(6)]
        sketches = [sketch_of(part, 60) for part in parts]
        merged, (bounded, lost) = MergedSketch.of(*sketches), merge_counters(sketches)
        whole, counts = np.concatenate(parts), np.bincount(np.concatenate(parts))
        assert (merged.sources, merged.items) == (6, len(whole)) and len(bounded.keys) <= 60
        assert merged.decrements <= merged.items / 61 and lost <= merged.items / 61
        counters = dict(zip(bounded.keys.to_pylist(), bounded.values.tolist(), strict=True))
        for key in range(1, 50):
            assert merged.estimate(key) <= counts[key] <= merged.upper(key)
            assert counters.get(key, 0) <= counts[key] <= counters.get(key, 0) + lost
        budget = {"epsilon": 1.0, "delta": 1e-6, "source": insecure_source(1)}
        for release in (merged.release(**budget), release_bounded_merge(*sketches, **budget)):
            truth = truths(release.table, whole)
            held = (release.table["low"].to_numpy() <= truth) & (truth <= release.table["high"].to_numpy())
            assert len(release) > 3 and (~held).sum() <= 4

    @pytest.mark.parametrize("k", [1, 2, 3])
    def test_bounded_merges_change_by_one_in_one_direction(self, k):
        """Lemma 3.6 by enumeration, with what was lost: all pairs of short streams, one item less in the first."""

        made = functools.cache(functools.partial(misra_gries, k))

        @functools.cache
        def merge(first, second):
            (a, gone), (b, lost) = made(first), made(second)
            whole = {key: a.get(key, 0) + b.get(key, 0) for key in a | b}
            over = sorted(whole.values(), reverse=True)[k] if len(whole) > k else 0
            return {key: c - over for key, c in whole.items() if c > over}, gone + lost + over

        others = [other for length in range(4) for other in product("abc", repeat=length)]
        for stream, less in neighbours("abcd", 4):
            for other in others:
                (c, lost), (less_c, less_lost) = merge(stream, other), merge(less, other)
                changes = {c.get(key, 0) - less_c.get(key, 0) for key in "abcd"}
                assert (changes <= {0, 1} and lost == less_lost) or (changes <= {-1, 0} and lost == less_lost + 1)

    def test_the_sum_has_the_lower_threshold(self):
        for k in (1, 2, 3, 10, 500, 2**20):
            for epsilon, delta in ((1.0, 1e-8), (0.1, 1e-3), (8.0, 1e-8)):
                assert RoundedSketch(epsilon, delta, k).threshold < OneSidedSketch(epsilon, delta, k).threshold

    def test_merging_in_steps_and_through_bytes(self):
        parts = [sketch_of(zipf(5000, seed), 30) for seed in range(4)]
        at_once = MergedSketch.of(*parts)
        steps = parts[0].merge(parts[1]).merge(parts[2]).merge(parts[3])
        again = sketch_from_bytes(steps.to_bytes())
        assert dict(again) == dict(at_once) and again.decrements == at_once.decrements and again.kind == "integers"
        assert at_once.to_bytes() == again.to_bytes()
        assert isinstance(sketch_from_bytes(parts[0].to_bytes()), MisraGries)
        for form in (bytearray, memoryview):
            assert sketch_from_bytes(form(steps.to_bytes())).sources == 4
        lowered = sketch_of([1, 2], 1).merge(MisraGries(1))  # a kind, and no key left
        assert lowered.kind == "integers" and sketch_from_bytes(lowered.to_bytes()).to_bytes() == lowered.to_bytes()

    def test_garbage_with_a_right_digest_is_refused(self):
        for body in (b"", b"x" * 48, b"\xff" * 100, b"\0" * 200):
            body = MergedSketch(3).to_bytes()[:16] + body
            with pytest.raises(UnreadableData):
                MergedSketch.from_bytes(body + hashlib.sha256(body).digest())

    def test_damaged_bytes_are_refused(self):
        state = sketch_of([b"tea", b"milk"], 3).merge(sketch_of([b"tea"], 3)).to_bytes()
        for place in range(0, len(state), 7):
            with pytest.raises(UnreadableData):
                MergedSketch.from_bytes(state[:place] + bytes([state[place] ^ 1]) + state[place + 1 :])
        for wrong in (b"", state[:-1], state + b"x", b"no sketch at all"):
            with pytest.raises(UnreadableData):
                sketch_from_bytes(wrong)

    def test_over_a_universe(self):
        sketches = sketch_of(["tea"] * 500, 5), sketch_of(["tea"] * 500 + ["milk"] * 200, 5)
        for release_merged in (MergedSketch.of(*sketches).release, functools.partial(release_bounded_merge, *sketches)):
            release = release_merged(epsilon=1.0, universe=["tea", "milk", "salt"])
            assert "tea" in release.table["key"].to_pylist() and release.guarantee.delta == 0
            with pytest.raises(DpsieveError, match="delta"):
                release_merged(epsilon=1.0, delta=1e-6, universe=["tea"])

    def test_counts_of_common_keys_get_back_what_the_sketches_lost(self):
        """One key is nearly all: the sum is lower by N/(k+1) = 8,024, the bounded merge by what was really lost."""
        streams = [["tea"] * 20_000 + [f"{name} {i}" for i in range(60)] for name in "ab"]
        sketches = [sketch_of(stream, 4) for stream in streams]
        merged = MergedSketch.of(*sketches)
        words = ["tea", *{word for stream in streams for word in stream} - {"tea"}]
        bounded = release_bounded_merge(*sketches, epsilon=1.0, universe=words)
        releases = [merged.release(1.0, universe=words), bounded]
        for release in (*releases, merged.release(1.0, 1e-6)):
            (row,) = release.top(1).to_pylist()
            assert row["key"] == "tea"
            assert abs(row["count"] - 40_000) < 300  # noise of a scale of 1.6, 5 and less: once in 10^12 releases
        assert releases[0].top(1)["counter"][0].as_py() < 32_500

    @pytest.mark.parametrize(
        ("wrong", "named"),
        [
            (lambda: MergedSketch.of(), "no sketches"),
            (lambda: release_bounded_merge(epsilon=1.0, delta=1e-6), "Pass one or more"),
            (lambda: release_bounded_merge("state", epsilon=1.0, delta=1e-6), "Pass one or more"),
            (lambda: MergedSketch.of(MisraGries(2), MisraGries(3)), "differ in size"),
            (lambda: sketch_of(["tea"]).merge(sketch_of([1])), "kinds"),
            (lambda: sketch_of(["tea"]).merge("state"), "not str"),
            (lambda: MergedSketch.of(*[sketch_of(["tea"])] * 2), "itself"),
            (lambda: MergedSketch(0), "counters"),
            (lambda: MergedSketch.of(sketch_of(["tea"])).estimate(5), "counted before"),
            (lambda: MergedSketch.of(sketch_of(["tea"])).upper("\ud800"), "surrogates"),
            (lambda: MergedSketch.of(sketch_of(["tea"])).estimate(None), "None"),
            (lambda: MergedSketch.from_bytes("text"), "bytes"),
            (lambda: sketch_from_bytes(None), "bytes"),
        ],
    )
    def test_mistakes(self, wrong, named):
        with pytest.raises(DpsieveError, match=named):
            wrong()


@pytest.mark.parametrize(
    ("noise", "budget"),
    [("laplace_noise", {"delta": 1e-6}), ("summed_noise", {"universe": range(9)})],
    ids=["noisy", "universe"],
)
def test_a_ledger_is_charged_before_anything_is_drawn(tmp_path, monkeypatch, noise, budget):
    ledger = ds.Ledger(tmp_path / "budget", epsilon=1.5, delta=1e-5, unit="one item")
    sketch = sketch_of(zipf(2000))

    source = ds.testing.insecure_source(1)

    with monkeypatch.context() as patch:
        patch.setattr(f"dpsieve.sketches.{noise}.discrete_laplace", crashing(discrete_laplace, ledger, source))
        with pytest.raises(KeyboardInterrupt):
            sketch.release(1.0, **budget, ledger=ledger, source=source)
    with pytest.raises(BudgetExceeded):
        sketch.release(1.0, **budget, ledger=tmp_path / "budget")  # a path will do
    with pytest.raises(InvalidType, match="ledger"):
        sketch.release(0.1, **budget, ledger=5)
    assert len(ledger) == 1


def test_nothing_true_is_told():
    sketch = sketch_of(["a secret"] * 12_345)
    merged = sketch.merge(sketch_of(["a secret"] * 12_345))
    for made in (sketch, merged, ds.UserMisraGries(3), sketch.release(1.0, 1e-6)):
        assert "secret" not in repr(made) and "12,345" not in repr(made) and "12345" not in repr(made)
