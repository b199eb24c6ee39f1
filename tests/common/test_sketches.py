"""What every sketch keeps, and every mechanism of a sketch: one list of checks for all of them."""

import contextlib
import copy
import json
import pickle
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from itertools import product

import numpy as np
import pytest

import dpsieve as ds
from dpsieve.errors import BudgetExceeded, DpsieveError, InvalidValue, UnreadableData
from dpsieve.papers.thesis.bounded_merge import BoundedMerge
from dpsieve.papers.weighted_sampling import StreamSample
from dpsieve.privacy import Approximate, Gaussian
from dpsieve.privacy.mechanism import from_json
from dpsieve.randomness import SystemSource
from dpsieve.sketches import MergedSketch, MisraGries, UserMisraGries
from dpsieve.sketches.laplace_noise import NoisySketch
from dpsieve.sketches.one_sided_noise import OneSidedSketch
from dpsieve.sketches.summed_noise import RoundedSketch, SummedSketch

STREAMS = {
    "integers": [3, 3, -1, 4, 3, 2**40, *range(30), 3],
    "text": ["tea", "tea", "é", "", "milk", "a word of more than twelve bytes", *map(str, range(30)), "tea"],
    "bytes": [b"\xff", b"", b"\0", b"x", b"x", *(b"%d" % i for i in range(30)), b"x"],
}
CLASSES = [MisraGries, MergedSketch, UserMisraGries]
UPDATED = [MisraGries, UserMisraGries]


def count(sketch, items):
    """Count items one by one: for users, each has a set of one."""
    sketch.update([[item] for item in items] if isinstance(sketch, UserMisraGries) else items)


def sketch_of(kind, items, counters=8):
    """A sketch of each class that has seen the items."""
    if kind is MergedSketch:
        middle = len(items) // 2
        return MergedSketch.of(*(sketch_of(MisraGries, part, counters) for part in (items[:middle], items[middle:])))
    made = kind(counters)
    count(made, items)
    return made


@pytest.mark.parametrize("items", STREAMS)
@pytest.mark.parametrize("kind", CLASSES)
class TestEverySketch:
    def test_bounds_hold_the_truth(self, kind, items):
        sketch, truth = sketch_of(kind, STREAMS[items]), Counter(STREAMS[items])
        assert sketch.kind == items and sketch.items == len(STREAMS[items])
        for item, frequency in truth.items():
            assert sketch.lower(item) == sketch.estimate(item) <= frequency <= sketch.upper(item)
            assert sketch.upper(item) - sketch.lower(item) <= sketch.items / (sketch.counters + 1)
        keys, counts = sketch.keys_and_counts()
        assert list(sketch) == list(zip(keys.to_pylist(), counts.tolist(), strict=True))
        sources = getattr(sketch, "sources", 1)
        assert len(sketch) == len(keys) <= sketch.counters * sources and keys.to_pylist() == sorted(keys.to_pylist())
        assert all(sketch.estimate(key) == counter for key, counter in sketch)

    def test_what_is_saved_comes_back(self, kind, items):
        sketch = sketch_of(kind, STREAMS[items])
        for again in (
            kind.from_bytes(sketch.to_bytes()),
            kind.from_bytes(memoryview(sketch.to_bytes())),
            pickle.loads(pickle.dumps(sketch)),
            copy.deepcopy(sketch),
        ):
            assert again.to_bytes() == sketch.to_bytes() and list(again) == list(sketch)
            assert (again.kind, again.items, again.decrements) == (sketch.kind, sketch.items, sketch.decrements)

    def test_what_is_changed_is_refused(self, kind, items):
        data = sketch_of(kind, STREAMS[items]).to_bytes()
        for place in range(0, len(data), 5):
            with pytest.raises(UnreadableData):
                kind.from_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        for wrong in (b"", data[:-1], data + b"\0", data[:14] + b"\2" + data[15:]):
            with pytest.raises(UnreadableData):
                kind.from_bytes(wrong)
        for other in set(CLASSES) - {kind}:
            with pytest.raises(UnreadableData, match=f"are a {kind.__name__}, not a {other.__name__}"):
                other.from_bytes(data)

    def test_a_release_names_its_promise_and_charges_a_ledger_by_its_path(self, kind, items, tmp_path):
        sketch = sketch_of(kind, STREAMS[items] + STREAMS[items][:1] * 900)
        unit = "one user" if kind is UserMisraGries else "one item"
        ledger = ds.Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-12, unit=unit)
        release = sketch.release(1.0, 1e-12, ledger=ledger.path, note="a test")  # rare keys show with chance delta
        assert release.table["key"].to_pylist() == STREAMS[items][:1] and len(ledger) == 1
        assert release.guarantee == ds.Guarantee(1.0, 1e-12, unit=unit) and release.notes.reason
        with pytest.raises(BudgetExceeded):
            sketch.release(1.0, 1e-12, ledger=ledger)
        assert sketch.release(1.0, 1e-6, source=ds.testing.insecure_source(1)).unsafe_to_publish
        assert release.check() is None and not release.unsafe_to_publish


@pytest.mark.parametrize("kind", CLASSES)
class TestAnySketch:
    def test_an_empty_one(self, kind):
        sketch = kind(7)
        assert (len(sketch), list(sketch), sketch.items, sketch.decrements, sketch.kind) == (0, [], 0, 0, None)
        assert sketch.estimate("tea") == sketch.upper(5) == 0
        assert kind.from_bytes(sketch.to_bytes()).counters == 7
        assert len(sketch.release(1.0, 1e-6)) == 0

    def test_bad_counters(self, kind):
        for counters in (0, -1, 2**24 + 1, 1.0, "5", None, True):
            with pytest.raises(DpsieveError, match="counters"):
                kind(counters)

    def test_questions_of_another_kind(self, kind):
        sketch = sketch_of(kind, [1, 2])
        for item in ("1", b"1", None, 1.0, True, 2**63, [1]):
            with pytest.raises(DpsieveError):
                sketch.estimate(item)
        assert sketch.estimate(np.int8(1)) == 1

    def test_budgets_that_are_none(self, kind):
        sketch = sketch_of(kind, [1, 2])
        for epsilon, delta in ((0.0, 1e-6), (-1.0, 1e-6), (1.0, 0.0), (1.0, 2.0), ("1", 1e-6), (1.0, None)):
            with pytest.raises(DpsieveError):
                sketch.release(epsilon, delta)
        with pytest.raises(DpsieveError, match="ledger"):
            sketch.release(1.0, 1e-6, ledger=5)

    def test_it_tells_nothing_by_its_name(self, kind):
        sketch = sketch_of(kind, ["a secret"] * 12_345)
        assert not any(word in repr(sketch) for word in ("secret", "12345", "12,345"))


@pytest.mark.parametrize("items", STREAMS)
@pytest.mark.parametrize("kind", UPDATED)
class TestUpdates:
    def test_where_a_stream_is_cut_does_not_matter(self, kind, items):
        stream = STREAMS[items]
        whole = sketch_of(kind, stream)
        for place in (0, 1, 7, len(stream)):
            again = kind.from_bytes(sketch_of(kind, stream[:place]).to_bytes())  # it continues as if never saved
            count(again, stream[place:])
            assert again.to_bytes() == whole.to_bytes()

    def test_what_cannot_be_counted_changes_nothing(self, kind, items):
        sketch = sketch_of(kind, STREAMS[items])
        before = sketch.to_bytes()
        others = [stream[:1] for name, stream in STREAMS.items() if name != items]
        for wrong in (*others, [1.5], [True], ["\ud800"], [2**63], [1, "tea"]):
            with pytest.raises(DpsieveError):
                count(sketch, wrong)
        for wrong in (None, 5, "tea", {"tea": 1}):
            with pytest.raises(DpsieveError):
                sketch.update(wrong)
        assert sketch.to_bytes() == before


@pytest.mark.parametrize("items", STREAMS)
@pytest.mark.parametrize(
    ("first", "second"), [*product([MisraGries, MergedSketch], repeat=2), (UserMisraGries, UserMisraGries)]
)
def test_merged_sketches_count_both_streams(first, second, items):
    stream = STREAMS[items]
    one, other = sketch_of(first, stream), sketch_of(second, stream[::-1])
    before = one.to_bytes(), other.to_bytes()
    both = one.merge(other)
    assert (one.to_bytes(), other.to_bytes()) == before and both.items == 2 * len(stream)
    for item, frequency in Counter(stream).items():
        assert both.lower(item) <= 2 * frequency <= both.upper(item)
    stranger = MisraGries(8) if first is UserMisraGries else UserMisraGries(8)
    for wrong in (one.merge, lambda sketch: one.merge(first(9)), lambda sketch: one.merge(stranger)):
        with pytest.raises(DpsieveError):
            wrong(one)


def while_in_use(monkeypatch, where, name, use, others):
    """Run `others` while another thread is in the middle of `use`."""
    inside, done = threading.Event(), threading.Event()
    original = getattr(where, name)

    def slow(*arguments):
        inside.set()
        assert done.wait(60)
        return original(*arguments)

    with ThreadPoolExecutor(1) as pool, monkeypatch.context() as patch:
        patch.setattr(where, name, slow)
        running = pool.submit(use)
        try:
            assert inside.wait(60)
            for other in others:
                with pytest.raises(InvalidValue, match="another thread"):
                    other()
        finally:
            done.set()
        running.result()


class TestOneThreadAtATime:
    """A sketch in use by one thread refuses another at once, and stays whole."""

    @pytest.mark.parametrize("kind", UPDATED)
    def test_a_sketch(self, kind, monkeypatch):
        from dpsieve.sketches import integer_loops as integers

        sketch = sketch_of(kind, [5])
        others = [
            lambda: count(sketch, [6]),
            lambda: sketch.estimate(5),
            lambda: list(sketch),
            sketch.to_bytes,
            lambda: sketch.release(1.0, 1e-6),
            lambda: sketch.merge(kind(8)),
        ]
        loop = "update" if kind is MisraGries else "count_sets"
        while_in_use(monkeypatch, integers, loop, lambda: count(sketch, [5]), others)
        assert dict(sketch) == {5: 2} and sketch.items == 2

    def test_a_sample(self, monkeypatch):
        from dpsieve.papers.weighted_sampling import stream_samples as stream

        sample = StreamSample(50.0)
        others = [lambda: sample.find(["milk"]), lambda: sample.count(["milk"]), sample.finish]
        while_in_use(monkeypatch, stream, "bernoulli", lambda: sample.find(["tea"]), others)
        sample.count(["tea"])
        assert sample.finish()[0].to_pylist() == ["tea"]

    @pytest.mark.parametrize("make", [str, int])
    @pytest.mark.parametrize("kind", UPDATED)
    def test_many_threads_leave_a_whole_sketch(self, kind, make):
        """Whoever got in has counted all of a batch, and nothing else was counted."""
        sketch, batches = kind(64), [[make(i % 500) for i in range(start, start + 5000)] for start in range(16)]

        def counted(batch):
            try:
                count(sketch, batch)
            except InvalidValue:
                return 0
            return len(batch)

        with ThreadPoolExecutor(8) as pool:
            items = sum(pool.map(counted, batches))
        assert sketch.items == items > 0
        assert kind.from_bytes(sketch.to_bytes()).items == items


MECHANISMS = {
    "one sketch": (NoisySketch(1.0, 1e-6, 10), "formula", 10),
    "several items": (NoisySketch(1.0, 1e-6, 10, items_per_unit=3), "formula", 10),
    "a sum": (RoundedSketch(1.0, 1e-6, 10, 4), "formula", 40),
    "a universe": (SummedSketch(1.0, 0.0, 10, universe=7), "balls", 7),
    "a universe, bounded": (BoundedMerge(1.0, 0.0, 10, 4, universe=70), "balls", 10),
    "users": (OneSidedSketch(1.0, 1e-6, 10, unit="one device"), "balls", 10),
    "users, finer steps": (OneSidedSketch(8.0, 1e-6, 10), "balls", 10),
    "users, one counter": (OneSidedSketch(1.0, 0.05, 1), "balls", 1),
}
NASTY = [None, True, [], {}, "", "x", "\ud800", float("nan"), float("inf"), -1, 0, 1e-9, 0.5, 1e9, 1e308, 2**40, 2**70]


@pytest.mark.parametrize("name", MECHANISMS)
class TestEveryMechanism:
    def drawn(self, name):
        """What is drawn for one large counter and a small one: tokens other than 'nothing', and numbers."""
        outcome = MECHANISMS[name][0].draw(np.array([10_000, 1]), 70, SystemSource())
        return outcome.tokens[outcome.tokens != 0], outcome.drawn

    def test_its_json_makes_it_again(self, name):
        made = MECHANISMS[name][0]
        again = from_json(json.loads(json.dumps(made.to_json())))
        assert again == made and again.certify() == made.certify() and again.threshold == made.threshold

    def test_drawing_makes_one_noisy_number_and_changes_nothing(self, name):
        made = MECHANISMS[name][0]
        before = made.to_json()
        drawn = self.drawn(name)[1]
        assert set(drawn) == {"lost"} and type(drawn["lost"]) is int
        assert made.to_json() == before and "lost" not in before

    def test_forged_drawn_numbers_are_refused(self, name):
        made = MECHANISMS[name][0]
        wrong = [{"lost": value} for value in (None, True, 1.0, "1", [], float("nan"), 2**62 + 1, -(2**70))]
        for drawn in [*wrong, {"lost": 1, "more": 1}, {"items": 1}, {"more": None}, [1], "lost"]:
            with pytest.raises(InvalidValue, match="drawn must be lost"):
                made.reader(drawn)
        with pytest.raises(InvalidValue, match="drawn must be lost"):
            made.reader({})

    def test_its_certificate_ends_with_the_guarantee(self, name):
        made, method, _ = MECHANISMS[name]
        last = made.certify().parts[-1]
        assert last.scope == "one unit" and last.method == method
        assert (last.epsilon, last.delta) == (made.guarantee.epsilon, made.guarantee.delta)
        assert made.certify().guarantee == made.guarantee and last.worst <= made.guarantee.delta
        if isinstance(made, OneSidedSketch):
            assert made.spends() == (Gaussian(1.0, made.noise.mu), Approximate(0.0, made.noise.leak))
        else:
            assert made.spends() == (Approximate(made.epsilon, made.delta),)

    def test_what_it_gives_out_is_possible(self, name):
        made, (tokens, _) = MECHANISMS[name][0], self.drawn(name)
        assert len(tokens) >= 1 and made.possible(tokens) and made.possible(np.empty(0, int))
        assert not made.possible(tokens - 10**9) and not made.possible(np.append(tokens, -1))
        assert made.most_keys == MECHANISMS[name][2]

    def test_counts_lie_in_their_intervals_whatever_was_drawn(self, name):
        """Also where the noise of what was lost is far below zero."""
        made, (tokens, _) = MECHANISMS[name][0], self.drawn(name)
        lowest = made.least + np.arange(3)
        for lost in (-10_000, -13, 0, 50):
            reading = made.reader({"lost": lost}).read(np.append(tokens, lowest))
            assert (reading.low >= 0).all() and (reading.low <= reading.count).all()
            assert (reading.count <= reading.high).all()

    def test_it_cannot_be_changed(self, name):
        with pytest.raises(FrozenInstanceError):
            MECHANISMS[name][0].epsilon = 0.1

    def test_changed_fields_are_refused_or_make_another_mechanism(self, name):
        made = MECHANISMS[name][0]
        right = made.to_json()
        for wrong in (None, [], "x", {1: 2}, {**right, "more": 1}, {**right, "mechanism": "magic"}):
            with pytest.raises(DpsieveError):
                from_json(wrong)
        for needed in ("epsilon", "delta", "counters"):
            with pytest.raises(DpsieveError, match="fields"):
                from_json({field: value for field, value in right.items() if field != needed})
        for field, value in product(sorted(set(right) - {"mechanism"}), NASTY):
            start = time.process_time()
            with contextlib.suppress(DpsieveError):
                again = from_json({**right, field: value})
                assert (again == made) == (getattr(again, field) == getattr(made, field))
                assert again.certify().worst <= again.delta
            assert time.process_time() - start < 5
