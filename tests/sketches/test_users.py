"""Sketches of users who hold sets: the structure of neighbours by enumeration, and their private release."""

from collections import Counter
from itertools import chain, combinations, product

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from helpers.statistical import binomial_band
from scipy.special import ndtr

import dpsieve as ds
from dpsieve.errors import DpsieveError
from dpsieve.sketches.one_sided_noise import OneSidedSketch
from dpsieve.sketches.users import UserMisraGries

KEYS = "abcd"
SETS = [frozenset(s) for s in chain.from_iterable(combinations(KEYS, size) for size in range(1, 5))]


def reference(k, users, start=(), lowered=0):
    """The sketch in a few lines."""
    held = dict(start)
    for items in users:
        for item in items:
            held[item] = held.get(item, 0) + 1
        if len(held) > k:
            held = {key: c - 1 for key, c in held.items() if c > 1}
            lowered += 1
    return held, lowered


def reference_merge(k, first, second):
    """Two sketches together: the sums of counters less the (k+1)-st largest."""
    (a, lost), (b, also_lost) = first, second
    whole = {key: a.get(key, 0) + b.get(key, 0) for key in a | b}
    over = sorted(whole.values(), reverse=True)[k] if len(whole) > k else 0
    return {key: c - over for key, c in whole.items() if c > over}, lost + also_lost + over


def one_sided(first, second):
    """Whether counters and what was lost are in one of the two states of neighbours."""
    (c, lost), (other, other_lost) = first, second
    changes = {c.get(key, 0) - other.get(key, 0) for key in KEYS}
    few = sum(c.get(key, 0) != other.get(key, 0) for key in KEYS) <= max(len(c), len(other))
    return few and ((changes <= {0, 1} and lost == other_lost) or (changes <= {-1, 0} and lost == other_lost + 1))


def sketch_of(k, users, cuts=()):
    made = UserMisraGries(k)
    for start, stop in zip((0, *cuts), (*cuts, len(users)), strict=True):
        made.update([sorted(items) for items in users[start:stop]])
    return made


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_fast_loop_does_what_the_few_lines_do(k):
    generator = np.random.default_rng(5)
    for _ in range(60):
        users = [SETS[i] for i in generator.integers(0, len(SETS), 12)]
        made = sketch_of(k, users, cuts=sorted(generator.integers(0, 13, 2).tolist()))
        assert (dict(made), made.decrements) == reference(k, users)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_one_user_more_changes_each_counter_by_at_most_one_and_all_in_one_direction(k):
    """Every sequence of 3 users over all sets of 4 keys, and each user left out."""
    for users in product(SETS, repeat=3):
        whole = reference(k, users)
        assert all(one_sided(whole, reference(k, users[:i] + users[i + 1 :])) for i in range(len(users)))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_merging_keeps_that_and_so_does_counting_on(k):
    """Every pair of sketches of up to two users each, one of the first's left out; then every set of one more user."""
    short = [users for length in range(3) for users in product(SETS, repeat=length)]
    made = {users: reference(k, users) for users in short}

    def state(one):
        return frozenset(one[0].items()), one[1]

    pairs = {
        (state(made[users]), state(made[users[:i] + users[i + 1 :]])) for users in short for i in range(len(users))
    }
    merged = set()
    for (c, lost), (less, less_lost) in pairs:
        for other in {state(one)[0] for one in made.values()}:  # what the other sketch lost adds to both alike
            both = [reference_merge(k, (dict(x), n), (dict(other), 0)) for x, n in ((c, lost), (less, less_lost))]
            assert one_sided(*both)
            merged.add(tuple(map(state, both)))
    for first, second in merged:
        for items in SETS:
            assert one_sided(*(reference(k, [items], dict(c), lost) for c, lost in (first, second)))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_merged_sketches_are_those_of_the_few_lines_and_count_on(k):
    generator = np.random.default_rng(8)
    for _ in range(40):
        parts = [[SETS[i] for i in generator.integers(0, len(SETS), size)] for size in generator.integers(0, 9, 3)]
        made = [sketch_of(k, part) for part in parts]
        both = made[0].merge(UserMisraGries.from_bytes(made[1].to_bytes())).merge(made[2])
        expected = reference_merge(k, reference_merge(k, *(reference(k, part) for part in parts[:2])),
                                   reference(k, parts[2]))  # fmt: skip
        assert (dict(both), both.decrements) == expected
        assert (both.users, both.items) == (sum(map(len, parts)), sum(len(s) for part in parts for s in part))
        assert UserMisraGries.from_bytes(both.to_bytes()).to_bytes() == both.to_bytes()
        both.update([sorted(items) for items in parts[0]])
        assert (dict(both), both.decrements) == reference(k, parts[0], *expected)
        truth = Counter(item for part in (*parts, parts[0]) for items in part for item in items)
        assert all(both.lower(key) <= truth[key] <= both.upper(key) for key in KEYS)
        assert both.decrements <= both.items / (k + 1)
        assert [dict(one) for one in made] == [reference(k, part)[0] for part in parts]


def test_merging_with_a_sketch_that_holds_nothing():
    """Whether a sketch holds keys is true data, so nothing may fail by it."""
    other, lowered = UserMisraGries(1), UserMisraGries(1)
    lowered.update([[1, 2]])  # all counters are zero again
    for merged in (lowered.merge(other), other.merge(lowered), lowered.merge(other).merge(other.merge(lowered))):
        merged.update([[7]])
        assert dict(merged) == {7: 1}


def test_a_merged_sketch_is_released_as_one():
    parts = [sketch_of(50, [{"tea", "milk"}] * 300), sketch_of(50, [{"tea"}] * 300)]
    release = parts[0].merge(parts[1]).merge(UserMisraGries(50)).release(1.0, 1e-8)
    assert release.table["key"].to_pylist() == ["milk", "tea"] and release.mechanism.threshold == 132
    assert str(release.guarantee).endswith("when one user is added or removed.")


def test_counters_are_below_the_truth_by_what_was_lost():
    generator = np.random.default_rng(6)
    users = [set(generator.zipf(1.3, 5).clip(1, 60).tolist()) for _ in range(3000)]
    made = sketch_of(20, users)
    assert made.items == sum(map(len, users)) and made.users == 3000
    assert made.decrements <= made.items / 21
    for key, count in made:
        truth = sum(key in items for items in users)
        assert count <= truth <= count + made.decrements
    assert made.estimate(-1) == 0 and made.upper(-1) == made.decrements


def test_what_one_user_says_twice_counts_once_and_nulls_do_not_count():
    made = UserMisraGries(5)
    made.update([["tea", "tea", None, "milk"], None, [], ["tea"]])
    assert dict(made) == {"tea": 2, "milk": 1} and made.items == 3
    hidden = pa.ListArray.from_arrays([0, 1, 2], pa.array(["milk", "never"]), mask=pa.array([False, True]))
    other = UserMisraGries(5)
    other.update(hidden)
    assert dict(other) == {"milk": 1}  # what lies under a null is no item
    made.update(pa.chunked_array([pa.array([["tea"]]), pa.array([["salt"]])]))
    assert dict(made) == {"tea": 3, "milk": 1, "salt": 1}


def test_the_release_holds_honest_intervals():
    """Sets of 20 of 300 keys: the intervals hold the true number of users, what was lost included."""
    generator = np.random.default_rng(7)
    chance = 1 / np.arange(1, 301)
    users = [generator.choice(300, size=20, replace=False, p=chance / chance.sum()) for _ in range(4000)]
    made = UserMisraGries(100)
    made.update([items.tolist() for items in users])
    assert made.decrements > 0
    truth = np.bincount(np.concatenate(users), minlength=300)
    missed = shown = 0
    for _ in range(20):
        release = made.release(1.0, 1e-6)
        table = release.to_pandas()
        shown += len(table)
        missed += int(((truth[table.key] < table.low) | (truth[table.key] > table.high)).sum())
    assert shown > 100 and missed <= binomial_band(shown, 0.05)[1]
    assert str(release.guarantee) == "(1, 1e-06)-differential privacy when one user is added or removed."


def test_a_user_with_keys_of_its_own_shows_at_most_with_delta():
    """The tightest point, measured: a user alone in the sketch, whose k keys have counter one."""
    epsilon, delta, k, runs = 1.0, 0.05, 6, 4000
    made = UserMisraGries(k)
    made.update([[f"mine {i}" for i in range(k)]])
    mechanism, source = OneSidedSketch(epsilon, delta, k), ds.randomness.SystemSource()
    noise, ones = mechanism.noise, made.keys_and_counts().values
    assert noise.shared > 0 and ones.tolist() == [1] * k
    shared, weights = np.polynomial.hermite_e.hermegauss(60)
    silent = ndtr((noise.threshold - noise.step / 2 - 1 - noise.shared * shared) / noise.own) ** k
    exact = 1 - weights @ silent / weights.sum()
    shown = sum(bool(mechanism.draw(ones, 0, source).tokens.any()) for _ in range(runs))
    assert delta / 3 < exact <= delta
    assert binomial_band(runs, exact)[0] <= shown <= binomial_band(runs, exact)[1]


def test_the_noise_grows_with_the_root_of_the_counters_and_not_with_the_sets():
    few, many = OneSidedSketch(1.0, 1e-8, 24), OneSidedSketch(1.0, 1e-8, 2499)
    assert many.noise.deviation / few.noise.deviation == pytest.approx(51 / 6, rel=0.001)  # sqrt(k + 1) + 1


def test_a_sketch_of_a_million_counters():
    generator = np.random.default_rng(4)
    made = UserMisraGries(2**20)
    keys = np.concatenate([generator.integers(0, 2**40, 300_000), np.zeros(100_000, np.int64)])
    made.update(pa.ListArray.from_arrays(np.arange(0, 400_001, 4, dtype=np.int32), keys))
    made.update(pa.ListArray.from_arrays(np.arange(100_001, dtype=np.int32), np.zeros(100_000, np.int64)))
    release = made.release(1.0, 1e-8)
    assert release.table["key"].to_pylist() == [0] and release.mechanism.threshold < 20_100


def test_it_is_saved_and_loaded(tmp_path):
    made = UserMisraGries(3)
    made.update([["tea", "milk"]] * 200)
    release = made.release(1.0, 1e-6)
    again = ds.Release.load(release.save(tmp_path / "published"))
    assert again.table.equals(release.table)
    assert again.mechanism == release.mechanism and again.drawn == release.drawn and set(again.drawn) == {"lost"}


@pytest.mark.parametrize("nothing", [[], [[]], [None], [[None], []], pa.array([], pa.list_(pa.string())), [set()]])
def test_a_batch_without_items_settles_no_kind(nothing):
    made = UserMisraGries(3)
    made.update(nothing)
    assert made.kind is None and made.estimate("tea") == made.estimate(5) == 0
    made.update([[1, 2]])
    made.update(nothing)
    assert dict(made) == {1: 1, 2: 1} and made.kind == "integers"


@pytest.mark.parametrize(
    "shape",
    [
        tuple,
        pa.array,
        lambda sets: pa.array(sets, pa.large_list(pa.string_view())),
        lambda sets: pa.array(sets, pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        lambda sets: pa.chunked_array([sets[:1], sets[1:]]),
        lambda sets: pa.array([["no"], *sets, ["no"]])[1:-1],
        lambda sets: [one and pa.array(one) for one in sets],
        lambda sets: [one and np.array(one, object) for one in sets],
        lambda sets: [one and iter(one) for one in sets],
        pl.Series,
        pd.Series,
    ],
)
def test_sets_in_many_shapes(shape):
    made = UserMisraGries(5)
    made.update(shape([["tea", "milk", None], None, ["tea"]]))
    assert dict(made) == {"tea": 2, "milk": 1} and made.users == 2


def test_no_value_is_quoted():
    """Neither in the message nor in an exception that led to it."""
    made = UserMisraGries(3)
    secret = "secret \ud800"
    for wrong in (
        lambda: made.update([["tea", secret]]),
        lambda: made.estimate(secret),
        lambda: made.update(pa.array([["tea"], [b"secret \xff"]]).view(pa.list_(pa.string()))),
        lambda: made.update([["secret"], [b"tea"]]),
        lambda: made.update([[2**70]]),
    ):
        with pytest.raises(DpsieveError) as caught:
            wrong()
        assert "secret" not in str(caught.value) and not isinstance(caught.value.__context__, UnicodeError)
    assert not len(made) and made.users == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s: s.update([["tea", b"milk"]]),
        lambda s: s.update([["tea"], [b"milk"]]),
        lambda s: s.update([[b"milk"]]),
        lambda s: s.update([{"tea": 1}]),
        lambda s: s.update({"tea": ["milk"]}),
        lambda s: s.estimate(5),
        lambda s: s.estimate(None),
        lambda s: s.estimate([1, 2]),
        lambda s: s.update("tea"),
        lambda s: s.update(["tea"]),
        lambda s: s.update([[1.5]]),
        lambda s: s.update([[["tea"]]]),
        lambda s: s.update(5),
        lambda s: s.update([[1, 2]]),
        lambda s: UserMisraGries(0),
        lambda s: UserMisraGries(2**24 + 1),
        lambda s: s.merge(s),
        lambda s: s.merge(UserMisraGries(4)),
        lambda s: s.merge(sketch_of(3, [{1, 2}])),
        lambda s: s.merge(ds.MisraGries(3)),
        lambda s: s.merge(None),
        lambda s: s.release(1.0, 0.0),
        lambda s: s.release(-1.0, 1e-6),
    ],
)
def test_mistakes_are_refused_and_change_nothing(wrong):
    sketch = UserMisraGries(3)
    sketch.update([["tea", "milk"]])
    with pytest.raises(DpsieveError):
        wrong(sketch)
    assert dict(sketch) == {"tea": 1, "milk": 1} and sketch.users == 1
