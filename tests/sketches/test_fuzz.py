"""Saved sketches, changed and sealed again: they load as something possible, or are refused."""

import resource
import time

import numpy as np
import pytest
from helpers.sketch_reference import forged, integers, sealed

from dpsieve.errors import UnreadableData
from dpsieve.sketches import MergedSketch, MisraGries, UserMisraGries, sketch_from_bytes

NUMBERS = [0, 1, 2, 3, 8, 127, 255, 2**16 - 1, 2**24, 2**31 - 1, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1]
STREAMS = [
    [],
    [3, 3, -1, 4, 3],
    list(range(40)),
    ["tea", "tea", "é", "", "milk", "a word of more than twelve bytes"],
    [b"\xff", b"", b"\0", b"x", b"x"],
]


def sketch_of(items, counters=4):
    made = MisraGries(counters)
    made.update(items)
    return made


def saved_sketches():
    for items in STREAMS:
        one, users = sketch_of(items), UserMisraGries(4)
        users.update([items, items[:2], items[1:]])
        yield users.to_bytes()
        others = UserMisraGries(4)
        others.update([items[1:], items[2:]])
        yield users.merge(others).to_bytes()
        yield one.to_bytes()
        yield MergedSketch.of(one).to_bytes()
        yield MergedSketch.of(one, sketch_of(items[::-1]), sketch_of(items[1:])).to_bytes()


def changed(body, generator):
    """Change bytes, write an odd number over a field, cut out or repeat a part."""
    body = bytearray(body)
    for _ in range(generator.integers(1, 4)):
        place, how = int(generator.integers(15, len(body))), generator.integers(4)
        if how == 0:
            body[place] = generator.integers(256)
        elif how == 1:
            width = int(generator.choice([1, 4, 8]))
            body[place : place + width] = (NUMBERS[generator.integers(len(NUMBERS))] % 2 ** (8 * width)).to_bytes(
                width, "little"
            )
        elif how == 2:
            del body[place : place + int(generator.integers(1, 9))]
        else:
            body[place:place] = body[place : place + int(generator.integers(1, 9))]
    return bytes(body)


def test_changed_sketches_are_refused_or_possible():
    """What loads is saved as the same bytes again, so nothing in it was overlooked; and it can be released."""
    generator, states = np.random.default_rng(11), list(saved_sketches())
    memory, start, loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time(), 0
    for case in range(6000):
        data = sealed(changed(states[case % len(states)][:-32], generator))
        try:
            made = UserMisraGries.from_bytes(data) if data[15] == 2 else sketch_from_bytes(data)
        except UnreadableData:
            continue
        assert made.to_bytes() == data
        loaded += 1
        if loaded % 20 == 0 and made.counters < 100:
            made.release(1.0, 1e-3)
            if not isinstance(made, UserMisraGries):
                MergedSketch.of(made, MisraGries(made.counters)).to_bytes()
    assert loaded > 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 2**19  # kB
    assert time.process_time() - start < 60


def test_what_is_saved_is_possible():
    """The checks of loading refuse no real state: random streams, merged in random orders."""
    generator = np.random.default_rng(12)
    for _ in range(150):
        k = int(generator.integers(1, 6))
        made = [
            sketch_of(generator.zipf(1.5, generator.integers(0, 30)).clip(0, 9).tolist(), k)
            for _ in range(generator.integers(1, 5))
        ]
        while len(made) > 1:
            made.append(MergedSketch.of(made.pop(0), made.pop(0)))
        state = MergedSketch.of(made[0]).to_bytes()
        assert MergedSketch.from_bytes(state).to_bytes() == state


def merged(*, kind=1, counters=2, sources=2, items=9, sums=((1, 10), (2, 3))):
    values, keys = [value for _, value in sums], integers(*(key for key, _ in sums))
    return forged(MergedSketch, kind, (counters, sources, items), (values, keys))


def users(*, kind=1, counters=2, users=9, items=12, decrements=2, held=((1, 4), (2, 2))):
    values, keys = [value for _, value in held], integers(*(key for key, _ in held))
    return forged(UserMisraGries, kind, (counters, users, items, decrements), (values, keys))


def test_a_right_forgery():
    assert MergedSketch.from_bytes(merged()).estimate(1) == UserMisraGries.from_bytes(users()).estimate(1) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"sums": ((1, 5), (1, 5))},
        {"sums": ((2, 5), (1, 5))},
        {"sums": ((1, 0),)},
        {"sums": ((1, 19),)},  # above k n
        {"sums": ((1, 10), (2, 9))},  # the same, together
        {"sums": tuple((key, 1) for key in range(5))},
        {"items": 2**62},
        {"items": 0},
        {"sources": 0},
        {"sources": 0, "sums": ()},
        {"sources": 2**40},
        {"counters": 0},
        {"counters": 2**25},
        {"kind": 0},
        {"kind": 2},
        {"kind": 9},
    ],
)
def test_merged_states_that_no_streams_lead_to(wrong):
    with pytest.raises(UnreadableData, match="to_bytes"):
        MergedSketch.from_bytes(merged(**wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        {"held": ((1, 4), (1, 2))},
        {"held": ((1, 4), (2, 0))},
        {"held": ((1, 8), (2, 1))},  # more than the users who did not lower it
        {"held": ((1, 2), (2, 2), (3, 2))},
        {"items": 11},
        {"decrements": 0},
        {"users": 5},
        {"counters": 10_000},
        {"kind": 0},
    ],
)
def test_states_that_no_users_lead_to(wrong):
    with pytest.raises(UnreadableData, match="to_bytes"):
        UserMisraGries.from_bytes(users(**wrong))
