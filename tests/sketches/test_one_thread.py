"""A sketch in use by one thread refuses another at once, and stays whole."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dpsieve.errors import InvalidValue
from dpsieve.sampling import StreamSample
from dpsieve.sketches import MergedSketch, MisraGries, UserMisraGries


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


def test_a_sketch_of_a_stream(monkeypatch):
    sketch = MisraGries(4)
    sketch.update(["tea"])
    others = [
        lambda: sketch.update(["milk"]),
        lambda: sketch.estimate("tea"),
        lambda: list(sketch),
        sketch.to_bytes,
        lambda: sketch.merge(MisraGries(4)),
        lambda: sketch.release(1.0, 1e-6),
    ]
    while_in_use(monkeypatch, type(sketch._store), "update", lambda: sketch.update(["tea"]), others)
    assert dict(sketch) == {"tea": 2} and sketch.items == 2


def test_a_sketch_of_users(monkeypatch):
    from dpsieve.sketches.compiled import users

    sketch = UserMisraGries(4)
    others = [lambda: sketch.update([["milk"]]), lambda: sketch.estimate("tea"), lambda: sketch.release(1.0, 1e-6)]
    while_in_use(monkeypatch, users, "count_sets", lambda: sketch.update([["tea"]]), others)
    assert dict(sketch) == {"tea": 1} and sketch.users == 1
    for again in (copy.deepcopy(sketch), pickle.loads(pickle.dumps(sketch))):
        again.update([["tea"]])
        assert dict(again) == {"tea": 2}


def test_a_sample_of_a_stream(monkeypatch):
    from dpsieve.sampling import stream

    sample = StreamSample(50.0)
    others = [lambda: sample.find(["milk"]), lambda: sample.count(["milk"]), sample.finish]
    while_in_use(monkeypatch, stream, "decide", lambda: sample.find(["tea"]), others)
    sample.count(["tea"])
    assert sample.finish()[0].to_pylist() == ["tea"]


@pytest.mark.parametrize("make", [str, int])
def test_many_threads_at_once_leave_a_whole_sketch(make):
    """Whoever got in has counted all of a batch, and nothing else was counted."""
    sketch, batches = MisraGries(64), [[make(i % 500) for i in range(start, start + 5000)] for start in range(40)]

    def counted(batch):
        try:
            sketch.update(batch)
        except InvalidValue:
            return 0
        return len(batch)

    with ThreadPoolExecutor(8) as pool:
        items = sum(pool.map(counted, batches))
    assert sketch.items == items > 0
    assert MergedSketch.of(MisraGries.from_bytes(sketch.to_bytes())).items == items
