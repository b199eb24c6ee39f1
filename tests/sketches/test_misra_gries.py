"""The Misra-Gries sketch: the algorithm in ten lines of Python, and that the fast one does the same on every stream."""

import copy
import subprocess
import sys
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsieve.compiled.memory import PUBLIC_KEY
from dpsieve.errors import DpsieveError
from dpsieve.sketches import MisraGries, misra_gries


def reference(counters, stream):
    """Return the state after a stream: the counters of the real keys, and how often all were lowered."""
    held, lowered = {("dummy", i): 0 for i in range(counters)}, 0
    for x in stream:
        if x in held:
            held[x] += 1
        elif all(held.values()):
            held, lowered = {key: count - 1 for key, count in held.items()}, lowered + 1
        else:
            del held[min((key for key, count in held.items() if count == 0), key=rank)]
            held[x] = 1
    return {key: count for key, count in held.items() if not isinstance(key, tuple)}, lowered


def rank(key):
    """The fixed order: dummies last, integers by value, text and bytes by 39 bits of a public hash, then by bytes."""
    if isinstance(key, tuple):
        return True, key
    if isinstance(key, int):
        return False, key
    data = key.encode() if isinstance(key, str) else key
    return False, public_hash(data) >> 25, data


def public_hash(data):
    h, key = len(data), list(map(int, PUBLIC_KEY))
    for start in range(0, max(len(data), 1), 32):
        part = data[start : start + 32]
        last = len(part) - 8
        starts = (0, min(8, last), max(0, last - 8), last)
        words = [part[i : i + 8] for i in starts] if last >= 0 else [part, b"", b"", b""]
        a, b, c, d = (int.from_bytes(word, "little") ^ k for word, k in zip(words, key, strict=True))
        h = fold(a ^ h, b) ^ fold(c, d)
    return h


def fold(a, b):
    return (a * b >> 64) ^ (a * b & (2**64 - 1))


def sketch_of(counters, *batches):
    sketch = MisraGries(counters)
    for batch in batches:
        sketch.update(batch)
    return sketch


def state(sketch):
    return dict(sketch), sketch.decrements


def test_a_short_stream_by_hand():
    sketch = MisraGries(counters=2)
    sketch.update(["tea", "tea", "milk"])
    assert list(sketch) == [("milk", 1), ("tea", 2)]
    sketch.update(["water"])  # no place is free: all counters drop by one, and water is forgotten
    assert list(sketch) == [("milk", 0), ("tea", 1)]
    sketch.update(["salt"])  # takes the place of milk, whose counter is zero
    assert list(sketch) == [("salt", 1), ("tea", 1)]
    assert (sketch.items, sketch.decrements, sketch.counters, sketch.kind) == (5, 1, 2, "text")
    # Counters are too low by `decrements` at most.
    assert (sketch.estimate("tea"), sketch.lower("tea"), sketch.upper("tea")) == (1, 1, 2)
    assert (sketch.estimate("milk"), sketch.lower("milk"), sketch.upper("milk")) == (0, 0, 1)
    keys, counts = sketch.keys_and_counts()
    assert keys.to_pylist() == ["salt", "tea"] and counts.tolist() == [1, 1]
    assert repr(sketch) == "<MisraGries of 2 counters>"  # tells nothing of the data


def test_an_empty_sketch():
    sketch = MisraGries(1024)
    sketch.update([])
    assert (len(sketch), list(sketch), sketch.items, sketch.decrements, sketch.kind) == (0, [], 0, 0, None)
    assert (sketch.estimate("tea"), sketch.upper(5)) == (0, 0)
    assert repr(sketch) == "<MisraGries of 1,024 counters>"


def all_streams(universe, longest):
    return (stream for length in range(longest + 1) for stream in product(universe, repeat=length))


@pytest.fixture(scope="module", params=[1, 2, 3])
def short(request):
    """The states after all short streams of three keys, and after somewhat shorter ones of four."""
    streams = {*all_streams((0, 1, 2), 7), *all_streams((0, -1, 2, 3), 5)}
    return request.param, {stream: state(sketch_of(request.param, stream)) for stream in streams}


def test_all_short_streams(short):
    counters, states = short
    for stream, found in states.items():
        assert found == reference(counters, stream), stream


@pytest.mark.parametrize("counters", [1, 2, 3])
@pytest.mark.parametrize("universe", [("a", "", "ab"), (b"\0", b"", b"\xff" * 40)])
def test_all_short_streams_of_text_and_bytes(counters, universe):
    for stream in all_streams(universe, 5):
        assert state(sketch_of(counters, stream)) == reference(counters, stream)


def test_neighbouring_streams_give_nearly_the_same_state(short):
    """Lemma 3.1: with one item more, either all counters are one lower, or one counter is one higher."""
    counters, states = short
    for stream, (held, lowered) in states.items():
        mine = with_dummies(held, counters)
        for i in range(len(stream)):
            less, less_lowered = states[stream[:i] + stream[i + 1 :]]
            other = with_dummies(less, counters)
            assert len(mine.keys() & other.keys()) >= counters - 2
            assert all(mine.get(key, 0) <= 1 and other.get(key, 0) <= 1 for key in mine.keys() ^ other.keys())
            change = Counter({key: mine.get(key, 0) - other.get(key, 0) for key in mine.keys() | other.keys()})
            if lowered == less_lowered + 1:
                assert all(change[key] == -1 for key in other)
                assert all(mine[key] == 0 for key in mine.keys() - other.keys())
            else:
                assert lowered == less_lowered
                assert sorted(change.values())[-1] == 1 and sum(map(abs, change.values())) == 1


def with_dummies(held, counters):
    return held | {("dummy", i): 0 for i in range(len(held), counters)}


def cut(stream, places):
    """Return the stream in batches."""
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]


INTEGERS = st.one_of(
    st.integers(-3, 12), st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1, 2**32])
)
TEXTS = st.one_of(st.text(max_size=40), st.sampled_from(["", "\0", "\0\0", "é", "x" * 31, "x" * 32, "x" * 33]))
LONG = st.builds(lambda head, tail: b"the same long beginning of all " * head + tail, st.integers(0, 3), st.binary())
BYTES = st.one_of(st.binary(max_size=40), LONG, st.sampled_from([b"", b"\0", b"\0\0", b"\xff\xfe"]))


@pytest.mark.parametrize("weak", [False, True])
@pytest.mark.parametrize("items", [INTEGERS, TEXTS, BYTES])
def test_any_stream_in_any_batches(items, weak, monkeypatch):
    """Also with a salt that sends nearly all keys to one place of the table: it changes the time, not the state."""
    if weak:
        monkeypatch.setattr(misra_gries, "_salt", lambda: np.zeros(4, np.uint64))
    orders = st.sampled_from([lambda s: s, lambda s: s * 3, lambda s: s + s[::-1] + s, sorted])

    @settings(deadline=None, max_examples=30)
    @given(st.lists(items, max_size=60), orders, st.integers(1, 12), st.lists(st.integers(0, 500), max_size=4))
    def check(stream, order, counters, places):
        stream = order(stream)
        sketch = sketch_of(counters, *cut(stream, places))
        held, lowered = reference(counters, stream)
        assert state(sketch) == (held, lowered)
        assert sketch.items == len(stream) and len(sketch) == len(held)
        assert sum(held.values()) == len(stream) - lowered * (counters + 1)
        for key, frequency in Counter(stream).items():
            assert frequency - len(stream) / (counters + 1) <= sketch.estimate(key) <= frequency
            assert sketch.lower(key) <= frequency <= sketch.upper(key)

    check()


@pytest.mark.parametrize("count", [40, 1000, 20_000])  # each way of sorting
@pytest.mark.parametrize("name", [lambda i: i, lambda i: -(i**3), lambda i: f"{i}", lambda i: bytes(i % 9) + b"%d" % i])
def test_many_keys_leave_in_order(count, name):
    """With all counters at zero, the smaller half of the keys makes room for as many new ones."""
    old, new = [name(i) for i in range(count)], [name(i) for i in range(count, count + count // 2)]
    shuffled = np.random.default_rng().permutation(count)
    sketch = sketch_of(count, [old[i] for i in shuffled], [name(2 * count)], new)
    stay = sorted(old, key=rank)[count // 2 :]
    assert dict(sketch) == dict.fromkeys(stay, 0) | dict.fromkeys(new, 1)
    assert sketch.decrements == 1


def test_texts_whose_public_hashes_agree():
    """Anybody can make them, as the key is public: the words XORed to zero make both products zero."""
    one, three = (int(PUBLIC_KEY[i]).to_bytes(8, "little") for i in (1, 3))
    texts = [b"%08d" % i + one + b"%08d" % (7 * i % 1000) + three for i in range(400)]
    assert {public_hash(text) for text in texts} == {0}
    sketch = sketch_of(350, texts[::-1], texts[:120])
    assert state(sketch) == reference(350, texts[::-1] + texts[:120])


def test_the_salt_does_not_matter(monkeypatch):
    rng = np.random.default_rng()
    numbers = rng.zipf(1.3, 20_000)
    for stream in (numbers, numbers.astype(str), numbers.astype("S")):
        one, two = sketch_of(50, stream), sketch_of(50, stream)
        assert (one._table._salt != two._table._salt).all()
        assert one.to_bytes() == two.to_bytes()


def test_one_key_a_hundred_million_times():
    sketch, batch = MisraGries(10), np.full(10**6, 7, np.int8)
    sketch.update([1, 2, 3])
    for _ in range(100):
        sketch.update(batch)
    assert list(sketch) == [(1, 1), (2, 1), (3, 1), (7, 10**8)]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_a_stream_of_a_million_different_keys(kind):
    stream = pa.array(np.arange(10**6)).cast(kind)
    sketch = sketch_of(1000, stream, stream[:10])
    assert sketch.items == 10**6 + 10 and len(sketch) == 1000
    assert sum(count for _, count in sketch) == sketch.items - sketch.decrements * 1001
    # In each round 1000 keys come in and one is forgotten.
    assert sketch.decrements == 10**6 // 1001


def test_huge_and_empty_texts():
    huge = b"x" * 20_000_000
    stream = [huge, b"", huge + b"y", huge + b"z", b"", huge + b"y", huge, huge[:-1]]
    assert state(sketch_of(3, stream)) == reference(3, stream)


def test_texts_that_leave_make_room():
    """Two hundred texts of 16 KiB go through a sketch that holds two: the memory is used again."""
    stream = [b"%d" % i * 2**12 for i in range(1000, 1200)]
    sketch = sketch_of(2, stream)
    assert state(sketch) == reference(2, stream)
    assert len(sketch._table._held[1]) < 2**18


def test_a_copy_goes_its_own_way():
    sketch = sketch_of(3, "tea milk tea".split())
    other = copy.deepcopy(sketch)
    other.update(["salt"])
    assert len(sketch) == 2 and len(other) == 3


def test_questions_of_another_kind():
    sketch = sketch_of(3, [1, 2])
    for item in ("1", b"1", None, 1.0, True, 2**63, [1]):
        with pytest.raises(DpsieveError):
            sketch.estimate(item)
    assert sketch.estimate(np.int8(1)) == 1


def test_bad_counters():
    for counters in (0, -1, 2**24 + 1, 1.0, "5", None, True):
        with pytest.raises(DpsieveError, match="counters"):
            MisraGries(counters)
    assert len(sketch_of(2**24, [5])) == 1


def test_nothing_is_compiled_before_the_first_item():
    code = "import sys, dpsieve.sketches as s; s.MisraGries(9); sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
