"""Lists of large entries: exact privacy on small vectors, thresholds that use the whole delta, false entries."""

import itertools
import json
import math
import pickle

import numpy as np
import pyarrow as pa
import pytest
from helpers.noise_laws import cells, divergence, loss, tail
from helpers.scripted import Scripted
from helpers.statistical import assert_counts, assert_follows, binomial_band
from scipy import stats

from dpsieve.errors import DpsieveError, InvalidValue, NotCertified
from dpsieve.privacy import DiscreteLaplace
from dpsieve.privacy.mechanism import from_json
from dpsieve.randomness import SystemSource
from dpsieve.randomness.coins import draw_binomial
from dpsieve.randomness.picks import draw_distinct
from dpsieve.sparse.entry_list import EntryList, entry_list
from dpsieve.sparse.grid_noise import GridNoise, flip_coins

SOURCE = SystemSource()


def outcomes(made, value, top):
    """Return the law of one entry of a list: each listed value up to `top` steps, more than that, and not listed."""
    noise, least = made.noise, int(made.threshold * 2**made.noise.digits)
    edges = np.arange(least, max(top, least) + 1)
    found = []
    for side in (value, -value) if made.signed else (value,):
        if not made.delta:
            found.append(cells(noise, side, edges)[1:])
        elif side <= 0:
            found.append(np.zeros(len(edges)))
        else:
            found.append(min(side, 1.0) * cells(noise, max(side, 1.0), edges)[1:])
    listed = np.concatenate(found)
    return np.append(listed, 1 - listed.sum())


def worst(made, pairs):
    """Return the largest divergence over pairs of neighbouring vectors, both ways."""
    found = []
    for one, other in pairs:
        tops = [math.ceil(max(abs(a), abs(b)) * 2**made.noise.digits) for a, b in zip(one, other, strict=True)]
        laws = [[outcomes(made, *entry) for entry in zip(vector, tops, strict=True)] for vector in (one, other)]
        found += [divergence(*laws, made.epsilon), divergence(*laws[::-1], made.epsilon)]
    return max(found)


@pytest.mark.parametrize("epsilon", [0.004, 0.5, 1.0, 6.0])
def test_noise_on_a_grid_loses_epsilon_for_a_change_of_one(epsilon):
    """Entries are independent, so losses add up: d in one entry must cost at most epsilon d, however small d is."""
    noise = GridNoise(epsilon, "l1")
    for start, change in itertools.product([0.0, 0.1, 1 / 3, 2.0, -0.4], [2.0**-30, 2.0**-9, 0.013, 0.5, 1.0]):
        assert max(loss(noise, start, start + change), loss(noise, start + change, start)) <= epsilon * change * (
            1 + 1e-6
        )
    whole = GridNoise(epsilon, "one_entry")
    assert loss(whole, 2, 3) == pytest.approx(epsilon)
    assert noise.scale * 2.0**-noise.digits == pytest.approx(whole.scale, rel=0.001 if epsilon > 0.1 else 0.01)


def test_rounding_to_the_grid_is_decided_by_as_many_bits_as_it_needs():
    rate = np.array([2.0**-65])
    assert flip_coins(rate, Scripted(0, 2**63 - 1)).tolist() == [True]
    assert flip_coins(rate, Scripted(0, 2**63)).tolist() == [False]
    assert flip_coins(np.array([0.0, 5e-324, 0.5]), Scripted(1, 2**63 - 1)).tolist() == [False, False, True]
    noise = GridNoise(1.0, "l1")
    steps = noise.steps(np.full(40_000, -0.3), SOURCE)
    assert_follows(steps, [-307, -308], [0.8, 0.2])  # 0.3 * 1024 = 307.2
    assert noise.steps(np.array([2.0**40, -1.0, 0.0]), SOURCE).tolist() == [2**50, -1024, 0]


REAL = [  # neighbours of total distance 1, in one entry, over several, across 1 and across 0
    ([0.0], [1.0]),
    ([0.5], [1.5]),
    ([1.25], [2.25]),
    ([0.5, 0.5], [0.0, 0.0]),
    ([0.5, 0.0], [0.0, 0.5]),
    ([1.25, 0.0], [0.75, 0.5]),
    ([1.5, 0.25], [1.0, 0.75]),
    ([1.5, 0.0, 0.25], [1.25, 0.5, 0.0]),
    ([1.0 / 3] * 3, [0.0] * 3),
    ([1.25, 1.0 / 3, 1.0 / 3], [1.0, 0.0, 0.75]),
]
SIGNED = [([0.5], [-0.5]), ([-0.25, 1.25], [0.25, 0.75]), ([-1.5], [-0.5]), ([0.0, -0.5], [0.5, -1.0])]


@pytest.mark.parametrize(("epsilon", "delta"), [(0.004, 0.3), (0.5, 0.2), (1.0, 0.01), (2.0, 0.1), (6.0, 0.02)])
def test_real_vectors_cost_exactly_the_chance_that_an_entry_of_one_is_listed(epsilon, delta):
    made = entry_list(epsilon, delta, neighbours="l1", dimension="text")
    used = made.certify().worst
    assert used == pytest.approx(delta, rel=0.01) and used <= delta
    assert worst(made, REAL[:1]) == pytest.approx(used, rel=1e-6)
    assert worst(made, REAL) <= used * (1 + 1e-6)
    both = entry_list(epsilon, delta, neighbours="l1", dimension="text", signed=True)
    assert worst(both, REAL[:6] + SIGNED) <= used * (1 + 1e-6)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.3), (0.3, 0.05)])
def test_counts_cost_exactly_the_chance_that_an_entry_of_one_is_listed(epsilon, delta, signed):
    made = entry_list(epsilon, delta, neighbours="one_entry", dimension="integers", signed=signed)
    values = range(-3 if signed else 0, 7)
    pairs = [((v, 1), (v + 1, 1)) for v in values if v + 1 in values]
    assert worst(made, pairs) == pytest.approx(made.certify().worst) and made.certify().worst <= delta
    with pytest.raises(InvalidValue, match="shows rare entries more often than delta"):
        EntryList(epsilon, delta, "one_entry", "integers", made.threshold - 1, signed)


@pytest.mark.parametrize("signed", [False, True])
def test_lists_of_all_entries_are_private_without_delta(signed):
    counts = entry_list(1.0, neighbours="one_entry", dimension=3, threshold=2, signed=signed)
    neighbours = [((a, b, 0), (a + 1, b, 0)) for a in range(4) for b in range(3)]
    assert worst(counts, neighbours) < 1e-12
    real = entry_list(0.5, neighbours="l1", dimension=2, threshold=1.0, signed=signed)
    assert worst(real, [pair for pair in REAL if len(pair[0]) < 3]) < 1e-12


@pytest.mark.parametrize(("neighbours", "value"), [("one_entry", 1), ("l1", 1.0), ("l1", 0.25)])
def test_an_entry_of_one_is_listed_as_often_as_delta_allows(neighbours, value):
    made = entry_list(1.0, 0.15, neighbours=neighbours, dimension="integers")
    values = np.full(100_000, value)
    keys, listed = made.draw(pa.array(np.arange(len(values))), values, SOURCE)
    used = tail(made.noise, int((made.threshold - 1) * 2**made.noise.digits)) * value
    low, high = binomial_band(len(values), used)
    assert low <= len(keys) <= high and used <= 0.15
    assert made.listed(value)[0] == pytest.approx(used) and listed.min() >= made.threshold


@pytest.mark.parametrize("neighbours", ["one_entry", "l1"])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("signed", [False, True])
def test_errors_are_those_of_the_draw(neighbours, delta, signed):
    count = 20_000
    made = entry_list(0.7, delta, neighbours=neighbours, dimension=count, threshold=None if delta else 3, signed=signed)
    for value in (8, 4) if neighbours == "one_entry" else (8.3, -0.6 if signed else 0.6):
        values = np.full(count, value)
        keys, listed = made.draw(pa.array(np.arange(count, dtype=np.uint64)), values, SOURCE)
        share, errors = made.listed(value)
        low, high = binomial_band(count, share)
        assert low <= len(keys) <= high
        if len(keys) > 100:
            spread = math.sqrt(errors.values**2 @ errors.masses - errors.bias**2)
            assert abs((listed - value).mean() - errors.bias) < 6.2 * spread / math.sqrt(len(keys))
        answers = np.append(listed, np.zeros(count - len(keys)))
        far = math.sqrt(made.errors(value).values ** 2 @ made.errors(value).masses)
        assert abs(np.abs(answers - value).mean() - made.errors(value).mean) < 6.2 * far / math.sqrt(count)


def test_false_entries_are_drawn_as_if_every_zero_had_noise():
    """Half of 60,000 entries are zeros; those listed falsely follow the noise in number, size and place."""
    size = 60_000
    made = entry_list(0.5, neighbours="one_entry", dimension=size, threshold=2, signed=True)
    entries = np.arange(0, size, 2, dtype=np.uint64)
    keys, values = made.draw(pa.array(entries), np.full(len(entries), 10**6), SOURCE)
    false = keys.to_numpy()[np.abs(values) < 10**5]
    lifted = values[np.abs(values) < 10**5]
    low, high = binomial_band(size // 2, 2 * tail(made.noise, 2))
    assert low <= len(false) <= high and (false % 2 == 1).all() and (np.diff(keys.to_numpy().astype(int)) > 0).all()
    assert_counts(np.bincount(false.astype(int) * 16 // size, minlength=16), np.full(16, len(false) / 16))
    sizes = np.arange(2, 12)
    masses = np.exp(-0.5 * (sizes - 2)) * (1 - math.exp(-0.5)) / 2
    assert_follows(lifted, [*sizes, *-sizes], [*masses, *masses])


def test_numbers_of_false_entries_follow_the_binomial_distribution():
    noise = GridNoise(1.0, "one_entry")
    few = [draw_binomial(3, lambda: noise.tail(1), SOURCE) for _ in range(300)]
    assert_follows(few, range(4), stats.binom.pmf(range(4), 3, tail(noise, 1)))
    low, high = binomial_band(10**6, tail(noise, 2))
    assert low <= draw_binomial(10**6, lambda: noise.tail(2), SOURCE) <= high  # a large mean comes in parts
    assert draw_binomial(0, lambda: noise.tail(2), SOURCE) == 0


def test_places_of_false_entries_are_all_sets_alike():
    taken = np.array([1, 4], np.uint64)
    seen = [tuple(draw_distinct(2, 6, taken, SOURCE).tolist()) for _ in range(3000)]
    sets = list(itertools.combinations([0, 2, 3, 5], 2))
    assert_counts(np.array([seen.count(one) for one in sets], float), np.full(6, 500.0))
    assert draw_distinct(4, 6, taken, SOURCE).tolist() == [0, 2, 3, 5]
    far = draw_distinct(1000, 2**64, np.array([0, 2**64 - 1], np.uint64), SOURCE)
    assert len(np.unique(far)) == 1000 and 0 < far.min() < 2**60 and 2**64 - 2**60 < far.max() < 2**64 - 1


@pytest.mark.parametrize("neighbours", ["one_entry", "l1"])
@pytest.mark.parametrize("dimension", [2**40, 2**64])
def test_huge_dimensions_are_drawn_sparsely(neighbours, dimension):
    made = entry_list(1.0, neighbours=neighbours, dimension=dimension, false_entries=2000.0)
    assert made.threshold < math.log(dimension) < 2 * math.log(dimension)  # the threshold of Algorithm 6
    keys, values = made.draw(pa.array(np.array([5, dimension - 1], np.uint64)), np.array([10**6, 10**5]), SOURCE)
    low, high = stats.poisson.ppf(5e-10, made.false_entries), stats.poisson.isf(5e-10, made.false_entries)
    assert low <= len(keys) - 2 <= high and 600 < made.false_entries <= 2000
    assert keys[0].as_py() == 5 and keys[-1].as_py() == dimension - 1
    assert values[0] == pytest.approx(10**6, abs=50) and values[1:-1].min() >= made.threshold
    one = entry_list(1.0, neighbours=neighbours, dimension=dimension)
    assert 0.3 < one.false_entries <= 1 and one.listed(0)[0] * dimension == pytest.approx(one.false_entries)


def test_thresholds_are_below_those_of_the_thesis():
    """ln(1/delta)/epsilon + 2 of Algorithm 9 leaves most of delta unused."""
    found = {
        (near, epsilon): entry_list(epsilon, delta, neighbours=near, dimension="text").threshold
        for near in ("one_entry", "l1")
        for epsilon, delta in ((1.0, 1e-8), (0.5, 1e-6))
    }
    assert found[("one_entry", 1.0)] == 20 < 20.42 and found[("one_entry", 0.5)] == 28 < 29.63
    assert found[("l1", 1.0)] == pytest.approx(18.737, abs=0.001) and found[("l1", 0.5)] == pytest.approx(
        27.26, abs=0.001
    )


def test_keys_of_any_kind_come_sorted():
    made = entry_list(1.0, 1e-6, neighbours="one_entry", dimension="text")
    keys = pa.array(["pear", "apple", "fig", "rare"], pa.large_string())
    listed, values = made.draw(keys, np.array([300, 200, 100, -4]), SOURCE)
    assert listed.to_pylist() == ["apple", "fig", "pear"]
    assert values.tolist() == pytest.approx([200, 100, 300], abs=60)
    nothing, values = made.draw(keys[:0], np.empty(0, np.int64), SOURCE)
    assert len(nothing) == len(values) == 0


def test_any_values_can_be_listed():
    """What is too large, too small or on the wrong side is clamped, as an error would tell."""
    index = pa.array(np.arange(3, dtype=np.uint64))
    for delta in (0.0, 1e-6):
        counts = entry_list(1.0, delta, neighbours="one_entry", dimension=3)
        assert counts.draw(index, np.array([2**63 - 1, -(2**63), 1]), SOURCE)[1].max() == pytest.approx(2**40, abs=99)
        real = entry_list(1.0, delta, neighbours="l1", dimension=3, signed=True)
        values = real.draw(index, np.array([1e308, -1e308, 5e-324]), SOURCE)[1]
        assert values[:2].tolist() == pytest.approx([2.0**40, -(2.0**40)], abs=99)


def test_a_list_is_saved_and_says_what_it_spends():
    made = entry_list(1.0, neighbours="one_entry", dimension=2**40, unit="one visit")
    assert from_json(json.loads(json.dumps(made.to_json()))) == made == pickle.loads(pickle.dumps(made))
    assert made.spends() == (DiscreteLaplace(1.0),) and made.guarantee.unit == "one visit"
    rare = entry_list(1.0, 1e-12, neighbours="l1", dimension="bytes")
    assert rare.guarantee.delta == 1e-12 and rare.certify().worst <= 1e-12 and "epsilon=1.0" in repr(rare)
    object.__setattr__(rare, "threshold", 20.0)
    with pytest.raises(NotCertified):
        rare.certify()


GOOD = {"epsilon": 1.0, "delta": 1e-6, "neighbours": "l1", "dimension": "text", "threshold": 30.0, "signed": False}


@pytest.mark.parametrize("field", [*GOOD, "unit"])
def test_fields_are_checked(field):
    for bad in (None, "x", -1, math.nan, [], {}, 1 + 2j):
        if (field, bad) != ("unit", "x"):
            with pytest.raises(DpsieveError):
                EntryList(**{**GOOD, field: bad})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"delta": 0.0}, "cannot be drawn from all possible keys"),
        ({"delta": 0.0, "dimension": 2**60, "threshold": 10.0}, "more than 2\\^24 entries falsely"),
        ({"threshold": 30.0001}, "not a multiple"),
        ({"threshold": 0.5, "delta": 0.9}, "more often than delta"),
    ],
)
def test_lists_that_cannot_be_are_refused_with_the_reason(changes, reason):
    with pytest.raises(InvalidValue, match=reason):
        EntryList(**{**GOOD, **changes})
