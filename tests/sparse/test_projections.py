"""Max projection, noise on every entry, and sizes that are bought: privacy with collisions, errors, any input."""

import itertools
import json
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from helpers.noise_laws import loss, tail
from helpers.statistical import binomial_band

from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.privacy import Approximate, DiscreteLaplace
from dpsieve.privacy.mechanism import from_json
from dpsieve.randomness import SystemSource
from dpsieve.sparse.digests import KEY_WORDS
from dpsieve.sparse.grid_noise import PrivateNorm, PrivateSparsity
from dpsieve.sparse.loops import pack, unpack
from dpsieve.sparse.noisy_tables import DenseLaplace, MaxProjection, max_projection

SOURCE = SystemSource()
MADE = [
    MaxProjection(1.0, "one_entry", 4, 2, 10.0),
    MaxProjection(0.5, "l1", 4, 2, 10.0),
    DenseLaplace(1.0, "one_entry", 4),
    DenseLaplace(0.5, "l1", 4, True),
    PrivateSparsity(1.0, 1e-6),
    PrivateNorm(0.5, 1e-6, "l1"),
]
COUNTS = [((a, b, c), (a + 1, b, c)) for a, b, c in itertools.product(range(3), repeat=3)]
REAL = [((0.0, 0.0, 0.0), (0.25, 0.25, 0.5)), ((0.3, 1.1, 2.0), (0.0, 1.5, 1.7)), ((1.0, 1.0, 0.9), (0.5, 0.7, 1.1))]


def digests(indices):
    return np.stack([np.asarray(indices, np.uint64), np.zeros(len(indices), np.uint64)], axis=1)


@pytest.mark.parametrize(("neighbours", "pairs"), [("one_entry", COUNTS), ("l1", REAL)])
def test_maxima_lose_at_most_epsilon_wherever_entries_collide(neighbours, pairs):
    """All ways to put three entries into cells; cells are independent, so their largest losses add up."""
    made = MaxProjection(0.8, neighbours, 3, 3, 100.0)
    seen = []
    for places, (one, other) in itertools.product(itertools.product(range(3), repeat=3), pairs):
        cells = [
            [max((v for v, at in zip(x, places, strict=True) if at == cell), default=0) for cell in range(3)]
            for x in (one, other)
        ]
        seen.append(sum(loss(made.noise, a, b) for a, b in zip(*cells, strict=True)))
        seen.append(sum(loss(made.noise, b, a) for a, b in zip(*cells, strict=True)))
    assert max(seen) == pytest.approx(0.8, rel=1e-3) and max(seen) <= 0.8 * (1 + 1e-9)
    assert made.certify().guarantee.epsilon == 0.8


def test_cells_hold_the_largest_of_their_entries():
    """With negligible noise and one cell, the largest entry is all that is left."""
    made = MaxProjection(400.0, "one_entry", 1, 3, 50.0)
    cells = made.draw(digests([3, 7, 9]), np.array([5, 11, 2]), SOURCE)
    assert len(cells) == made.words == KEY_WORDS + 1 and made.get(cells, digests([7, 100])).tolist() == [11, 11]
    wide = MaxProjection(400.0, "l1", 4096, 3, 50.0)
    cells = wide.draw(digests([3, 7, 9]), np.array([5.5, 1e300, -4.0]), SOURCE)
    assert wide.get(cells, digests([7]))[0] == pytest.approx(50, abs=0.2)  # clamped
    assert np.median(wide.get(cells, digests(range(100, 300)))) == pytest.approx(0, abs=0.2)


@pytest.mark.parametrize("neighbours", ["one_entry", "l1"])
@pytest.mark.parametrize("epsilon", [0.02, 1.0])
def test_errors_of_maxima_are_those_of_the_worst_case(neighbours, epsilon):
    """Fresh tables, each asked for one entry that is there and one that is not, where all others have the top value."""
    made, kind = MaxProjection(epsilon, neighbours, 20, 8, 30.0), np.int64 if neighbours == "one_entry" else float
    values = np.array([4, *[30] * 7], kind)
    here, gone = np.array(
        [made.get(made.draw(digests(range(8)), values, SOURCE), digests([0, 99])) for _ in range(600)]
    ).T
    for answers, value in ((here, 4), (gone, 0)):
        errors = made.errors(value)
        spread = math.sqrt(errors.values**2 @ errors.masses)
        assert abs(np.abs(answers - value).mean() - errors.mean) < 6.2 * spread / math.sqrt(600)
        assert (np.abs(answers - value) <= errors.bound(0.9)).mean() > 0.8


def test_signed_maxima_keep_their_signs():
    """With negligible noise; and a value beyond the bounds is cut to them."""
    made = MaxProjection(400.0, "l1", 4096, 3, 50.0, signed=True)
    cells = made.draw(digests([3, 7, 9]), np.array([5.5, -1e300, -4.0]), SOURCE)
    assert made.get(cells, digests([3, 7, 9])) == pytest.approx([5.5, -50, -4], abs=0.3)
    assert np.median(made.get(cells, digests(range(100, 300)))) == pytest.approx(0, abs=0.2)
    with pytest.raises(InvalidValue, match="places"):
        MaxProjection(1.0, "l1", 1, 3, 50.0, signed=True)


@pytest.mark.parametrize("value", [4, -7, 0])
@pytest.mark.parametrize("neighbours", ["one_entry", "l1"])
def test_errors_of_signed_maxima_are_those_of_the_worst_case(neighbours, value):
    """As above, where the eight others have the top value of either sign; a look-up reads two different cells."""
    kind, size = np.int64 if neighbours == "one_entry" else float, 9 if value else 8
    made = MaxProjection(1.0, neighbours, 40, size, 30.0, signed=True)
    values, asked = np.array([30, -30] * 4 + [value] * bool(value), kind), digests([8])
    answers = np.array([made.get(made.draw(digests(range(size)), values, SOURCE), asked)[0] for _ in range(600)])
    errors = made.errors(value)
    spread = math.sqrt(errors.values**2 @ errors.masses)
    assert abs((answers - value).mean() - errors.bias) < 6.2 * spread / math.sqrt(600)
    assert abs(np.abs(answers - value).mean() - errors.mean) < 6.2 * spread / math.sqrt(600)


def test_signed_entries_lose_at_most_epsilon():
    """Parts above and below zero change by no more together than the entries do, in every cell they may fall into."""
    made = MaxProjection(0.8, "one_entry", 4, 2, 100.0, signed=True)
    seen = []
    for cells in itertools.product(range(4), repeat=4):  # of each entry and sign
        for (x, y), other in itertools.product(itertools.product(range(-2, 3), repeat=2), (-1, 1)):
            tables = []
            for a in (x, x + other):
                parts = [max(a, 0), max(-a, 0), max(y, 0), max(-y, 0)]
                tables.append([max((v for v, at in zip(parts, cells, strict=True) if at == cell), default=0)
                               for cell in range(4)])  # fmt: skip
            seen.append(sum(loss(made.noise, a, b) for a, b in zip(*tables, strict=True)))
    assert max(seen) == pytest.approx(0.8) and made.certify().guarantee.epsilon == 0.8


def test_places_are_bought_by_bits():
    made = max_projection(1.0, 1000, 60, neighbours="l1", bits=128)
    assert made.places == 16_000 and made.cell_bits == 8 and made.guarantee.unit == "one in total over any entries"
    more = max_projection(1.0, 1000, 60, neighbours="l1", bits=1280)
    assert more.errors(0).mean < made.errors(0).mean
    assert made.errors(100).mean == pytest.approx(40.5, abs=0.1)  # a value above the bound is cut to it


@pytest.mark.parametrize("neighbours", ["one_entry", "l1"])
@pytest.mark.parametrize("signed", [False, True])
def test_noise_on_every_entry(neighbours, signed):
    made = DenseLaplace(0.9, neighbours, 30_000, signed)
    values = np.where(np.arange(10_000) % 2, 3, -3) * (1 if neighbours == "one_entry" else 1.1)
    cells = made.draw(digests(range(10_000)), values, SOURCE)
    assert len(cells) == made.words
    for indices, value in (
        (range(1, 10_000, 2), values[1]),
        (range(0, 10_000, 2), values[0]),
        (range(10_000, 30_000), 0),
    ):
        answers, errors = made.get(cells, digests(indices)), made.errors(value)
        spread = math.sqrt(errors.values**2 @ errors.masses)
        assert abs((answers - value).mean() - errors.bias) < 6.2 * spread / math.sqrt(len(answers))
        assert abs(np.abs(answers - value).mean() - errors.mean) < 6.2 * spread / math.sqrt(len(answers))
    assert (made.get(cells, digests(range(30_000))).min() < 0) == signed
    assert made.spends() == ((DiscreteLaplace(made.noise.scale),) if neighbours == "one_entry" else (Approximate(0.9),))


@pytest.mark.parametrize("miss", [0.2, 1e-9])
def test_the_number_of_entries_is_missed_as_often_as_allowed(miss):
    made, values = PrivateSparsity(0.3, miss), np.full(500, 7)
    chance = float(tail(made.noise, made.shift))
    assert chance <= miss < tail(made.noise, made.shift - 1)
    drawn = np.array([made.draw(values, SOURCE) for _ in range(2000)])
    low, high = binomial_band(2000, chance)
    assert low <= (drawn < 501).sum() <= high  # 501: a neighbour may have one entry more
    assert min(made.draw(values[:0], SOURCE) for _ in range(50)) >= 1
    assert loss(made.noise, 500, 501) == pytest.approx(0.3) and made.spends() == (DiscreteLaplace(made.noise.scale),)


@pytest.mark.parametrize("neighbours", ["one_entry", "l1"])
def test_the_norm_is_missed_at_most_as_often_as_allowed(neighbours):
    values = np.array([3, -2, 10]) if neighbours == "one_entry" else np.array([3.3, -2.1, 1e-300, 5e-324])
    made, total = PrivateNorm(0.3, 0.1, neighbours), float(np.abs(values).sum())
    drawn = np.array([made.draw(values, SOURCE) for _ in range(1000)])
    _, high = binomial_band(1000, 0.1)
    assert (drawn < total + 1).sum() <= high and drawn.mean() < total + 15
    assert loss(made.noise, total, total + 1) <= 0.3 * (1 + 1e-9)
    assert made.certify().guarantee.epsilon == 0.3


def test_norms_are_summed_exactly_so_that_order_does_not_matter():
    made = PrivateNorm(500.0, 0.5, "l1")  # next to no noise
    values = np.array([2.0**39, *[2.0**-11] * 1024, 2.0**-1070])
    exact = sum(map(Fraction, values.tolist()))
    results = {made.draw(values[::way], SOURCE) for way in (1, -1) for _ in range(20)}
    assert results == {math.floor(exact) + 2}  # 1 for a neighbour, and rounded up
    counts = PrivateNorm(500.0, 0.5)
    assert counts.draw(np.array([-(2**63), 2**63 - 1] * 100), SOURCE) == pytest.approx(200 * 2**40, abs=3)


def test_real_vectors_have_no_private_sparsity():
    with pytest.raises(InvalidValue, match="any number of entries"):
        PrivateSparsity(1.0, 1e-6, "l1")


@pytest.mark.parametrize("made", MADE, ids=lambda made: f"{made.name}-{made.neighbours}")
def test_mechanisms_are_saved_and_refuse_bad_fields(made):
    data = json.loads(json.dumps(made.to_json()))
    assert from_json(data) == made == pickle.loads(pickle.dumps(made)) and f"epsilon={made.epsilon}" in repr(made)
    assert made.certify().guarantee == made.guarantee and made.certify().parts[-1].method == "balls"
    for field in set(data) - {"kind"}:
        for bad in (None, "x", -1, math.nan, [], {}, True):
            if [field, bad] not in [["unit", "x"], ["signed", True], ["needed", True]]:
                with pytest.raises(DpsieveError):
                    from_json({**data, field: bad})


@pytest.mark.parametrize("made", MADE[:4], ids=lambda made: f"{made.name}-{made.neighbours}")
def test_any_entries_can_be_stored(made):
    """More entries than promised, values out of bounds, no entries: nothing raises, as that would tell."""
    kind = np.int64 if made.neighbours == "one_entry" else np.float64
    huge = np.array(
        [np.iinfo(np.int64).max, np.iinfo(np.int64).min, 1, 2] if kind is np.int64 else [1e308, -1e308, 5e-324, 2], kind
    )
    for count in (0, 1, 4):
        cells = made.draw(digests(range(count)), huge[:count], SOURCE)
        assert len(cells) == made.words and np.isfinite(made.get(cells, digests(range(4)))).all()
    assert len(made.get(cells, digests([]))) == 0


def test_a_size_that_privacy_rests_on_is_charged():
    bought = PrivateSparsity(1.0, 1e-6, needed=True)
    assert bought.guarantee.delta == 1e-6 and 0 < bought.certify().worst <= 1e-6
    assert bought.spends() == (Approximate(1.0, 1e-6),)


@pytest.mark.parametrize("bits", [1, 5, 6, 31, 63, 64])
def test_cells_are_packed_side_by_side(bits):
    values = SOURCE.words(200) >> np.uint64(64 - bits)
    words = np.zeros(-(-200 * bits // 64), np.uint64)
    pack(values, bits, words)
    whole = sum(int(value) << i * bits for i, value in enumerate(values))
    assert [int(word) for word in words] == [whole >> 64 * i & (2**64 - 1) for i in range(len(words))]
    if bits < 64:
        assert (unpack(words, bits, np.arange(200)[::-1]) == values[::-1]).all()
