"""Sketches as bytes: what comes back is the same, goes on the same, and nothing else is let in."""

import pickle

import numpy as np
import pytest
from helpers.sketch_reference import forged, integers, sealed, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsieve.errors import InvalidType, UnreadableData
from dpsieve.sketches import MergedSketch, MisraGries


def sketch_of(counters, items):
    sketch = MisraGries(counters)
    sketch.update(items)
    return sketch


STREAMS = st.one_of(
    st.lists(st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)),
    st.lists(st.text(max_size=3)),
    st.lists(st.binary(max_size=3) | st.binary(min_size=300, max_size=300)),
)


@settings(deadline=None)
@given(STREAMS, st.integers(1, 8), st.integers(0, 100))
def test_a_sketch_goes_on_as_if_never_saved(stream, counters, place):
    through = sketch_of(counters, stream)
    first = sketch_of(counters, stream[:place])
    again = MisraGries.from_bytes(first.to_bytes())
    assert again.to_bytes() == first.to_bytes()
    again.update(stream[place:])
    assert again.to_bytes() == through.to_bytes()
    assert (again.kind, again.items, again.decrements, list(again)) == (
        through.kind,
        through.items,
        through.decrements,
        list(through),
    )


def test_an_empty_sketch_and_a_pickled_one():
    assert MisraGries.from_bytes(MisraGries(7).to_bytes()).counters == 7
    sketch = sketch_of(2, ["tea", "tea", "milk"])
    assert list(pickle.loads(pickle.dumps(sketch))) == list(sketch)


def test_small_numbers_take_one_byte():
    sketch = sketch_of(1000, np.arange(1000))
    head = len(MisraGries(1000).to_bytes())  # with the checksum, and the width of no numbers
    assert len(sketch.to_bytes()) == head + 1000 * (1 + 8)
    sketch = sketch_of(1000, [f"{i:03}" for i in range(1000)])
    assert len(sketch.to_bytes()) == head + 1000 + 1 + 1000 * (1 + 3)


@pytest.mark.parametrize("items", [[], [3, 3, -1, 4], ["tea", "tea", "é", ""], [b"\xff", b"", b"\0", b"x"]])
def test_every_changed_byte_and_every_cut_is_noticed(items):
    data = sketch_of(2, items).to_bytes()
    for i in range(len(data)):
        with pytest.raises(UnreadableData):
            MisraGries.from_bytes(data[:i] + bytes([data[i] ^ (1 << i % 8)]) + data[i + 1 :])
        with pytest.raises(UnreadableData):
            MisraGries.from_bytes(data[:i])
    with pytest.raises(UnreadableData):
        MisraGries.from_bytes(data + b"\0")


def state(kind, counters, items, decrements, counts, keys):
    return forged(MisraGries, kind, (counters, items, decrements), (counts, keys))


def test_a_right_forgery():
    sketch = MisraGries.from_bytes(state(1, 2, 8, 1, [2, 3], integers(-5, 6)))
    assert (list(sketch), sketch.items, sketch.decrements) == ([(-5, 2), (6, 3)], 8, 1)
    sketch = MisraGries.from_bytes(state(2, 5, 4, 0, [1, 3], texts(b"", "é".encode())))
    assert list(sketch) == [("", 1), ("é", 3)]


@pytest.mark.parametrize(
    ("why", "data"),
    [
        ("counters do not add up", state(1, 2, 9, 1, [2, 3], integers(-5, 6))),
        ("keys twice", state(1, 2, 8, 1, [2, 3], integers(6, 6))),
        ("keys not sorted", state(1, 2, 8, 1, [2, 3], integers(7, 6))),
        ("a text twice", state(2, 2, 8, 1, [2, 3], texts(b"a", b"a"))),
        ("more keys than counters", state(1, 1, 2, 0, [1, 1], integers(5, 6))),
        ("lowered with places free", state(1, 3, 9, 1, [2, 3], integers(5, 6))),
        ("a zero counter, never lowered", state(1, 2, 1, 0, [0, 1], integers(5, 6))),
        ("counters without a kind", state(0, 2, 1, 0, [1], b"")),
        ("a kind without items", state(1, 2, 0, 0, [], b"")),
        ("a kind unknown", state(4, 2, 2, 0, [1, 1], integers(5, 6))),
        ("no counters", state(0, 0, 0, 0, [], b"")),
        ("too many counters", state(0, 2**24 + 1, 0, 0, [], b"")),
        ("too many items", state(1, 1, 2**63, 0, [2**62], integers(5))),
        ("sums that overflow", state(1, 4, 0, 0, [2**62] * 4, integers(1, 2, 3, 4))),
        ("keys missing", state(1, 2, 2, 0, [1, 1], integers(5))),
        ("keys too many", state(1, 2, 2, 0, [1, 1], integers(5, 6, 7))),
        ("bytes missing", state(2, 2, 2, 0, [1, 1], texts(b"a", b"b")[:-1])),
        ("bytes too many", state(2, 2, 2, 0, [1, 1], texts(b"a", b"b") + b"c")),
        ("a length out of range", state(2, 1, 1, 0, [1], b"\x08" + b"\xff" * 8)),
        ("a length too long", state(2, 1, 1, 0, [1], b"\x01\x05")),
        ("a width unknown", state(2, 1, 1, 0, [1], b"\x03\x01\x01\x01")),
        ("not UTF-8", state(2, 1, 1, 0, [1], texts(b"\xff"))),
    ],
)
def test_states_that_no_stream_leads_to(why, data):
    with pytest.raises(UnreadableData, match="to_bytes"):
        MisraGries.from_bytes(data)


def test_foreign_values():
    for data in (b"", b"PAR1", b"x" * 1000):
        with pytest.raises(UnreadableData, match="not a saved"):
            MisraGries.from_bytes(data)
    for data in ("text", None, 5, [1]):
        with pytest.raises(InvalidType, match="bytes"):
            MisraGries.from_bytes(data)


def test_sketches_of_another_class_and_of_a_newer_format():
    data = sketch_of(2, ["tea"]).to_bytes()
    with pytest.raises(UnreadableData, match="are a MisraGries, not a MergedSketch"):
        MergedSketch.from_bytes(data)
    newer = sealed(data[:14] + bytes([data[14] + 1]) + data[15:-32])
    with pytest.raises(UnreadableData, match="newer dpsieve"):
        MisraGries.from_bytes(newer)
