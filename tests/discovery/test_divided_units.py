"""Units that find keys with what they do not need for counts: what one unit changes, what is shown, and intervals."""

import itertools
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from helpers.statistical import binomial_band
from scipy import stats

from dpsieve.discovery.divided_units import MOST_KEYS, DividedUnits
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue
from dpsieve.noise.known_keys import laplace_tail
from dpsieve.privacy.mechanism import from_json
from dpsieve.randomness import SystemSource

SOURCE = SystemSource()
KEYS = range(5)
LEVELS = (0.5, 0.9, 0.95, 0.99)


def pairs_of(units):
    """Return the pairs of units, whose first key is that of step one; all keys are known in the same order."""
    starts = np.cumsum([0, *map(len, units)], dtype=np.int64)
    return Pairs(pa.table({"key": list(KEYS)}), starts, np.array([key for unit in units for key in unit], np.int32))


def each_unit():
    """Return every unit of one to five keys with every key of step one; the order of its other keys is no matter."""
    for size in range(1, len(KEYS) + 1):
        for keys in itertools.combinations(KEYS, size):
            for first in keys:
                yield (first, *(key for key in keys if key != first))


@pytest.mark.parametrize("keys", [2, 3, 4, 5, 7])
def test_one_unit_changes_both_sums_by_what_epsilon_pays_for(keys):
    """Every unit beside others, whatever keys are found and in whatever order: exact, in fractions."""
    mechanism, others = DividedUnits(0.8, 1e-6, keys), [(0, 1), (2,), (3, 0, 1, 4, 2), (1, 4, 2)]
    before = pairs_of(others)
    found_in_order = [order for most in range(3) for order in itertools.permutations(KEYS, most)]
    found_in_order += [(3, 0, 2), (1, 4, 2), (0, 3, 1, 4), (4, 3, 2, 1, 0), (2, 0, 4, 1, 3)]
    worst = Fraction(0)
    for unit in each_unit():
        after = pairs_of([*others, unit])
        first = mechanism.first_sums(before), mechanism.first_sums(after)
        change = first[1] - first[0]
        assert np.flatnonzero(change).tolist() in ([], [unit[0]])
        for order in found_in_order:
            found = np.array(order, np.int64)
            sums = [mechanism.second_sums(pairs, one, found) for pairs, one in zip((before, after), first, strict=True)]
            cost = int(change.sum()) * Fraction(mechanism.channel.epsilon)
            cost += int(np.abs(sums[1] - sums[0]).sum()) / Fraction(mechanism.scale)
            worst = max(worst, cost)
            counted = min(keys, len(set(unit) & set(order)))
            both = (sums[1] - sums[0]).sum() + change[found].sum()
            assert both == mechanism.steps * counted
    assert 0.8 * (1 - 1e-6) < worst <= Fraction(0.8)


@pytest.mark.parametrize(("epsilon", "delta", "keys"), [(1.0, 1e-8, 5), (0.3, 1e-3, 3), (3.0, 0.02, 4), (1.0, 1e-5, 2)])
def test_rows_of_the_channel_that_differ_by_a_unit_keep_its_part_of_the_guarantee(epsilon, delta, keys):
    """A unit with d keys changes a first sum by M - d: both divergences of all such rows, from the table."""
    mechanism = DividedUnits(epsilon, delta, keys)
    rows = mechanism.channel.rows
    frequencies = np.arange(1, rows.last + keys)
    edges = rows.spanning_edges(1, int(frequencies[-1]))
    table = np.column_stack([rows.withheld(frequencies), rows.cell_probabilities(frequencies, edges)])
    table = np.vstack([np.eye(1, table.shape[1]), table])
    shown = []
    for change in range(1, keys):
        factor = np.exp(change * epsilon / mechanism.steps)
        less, more = table[:-change], table[change:]
        worst = max(
            np.maximum(one - factor * other, 0).sum(axis=1).max() for one, other in ((less, more), (more, less))
        )
        assert worst <= delta * (1 + 1e-9)
        shown.append(worst)
    assert shown[-1] > 0.999 * delta


def owned(units, keys):
    """Return units with keys of their own: the unit u has keys[u] of them."""
    starts = np.append(0, np.cumsum(keys))
    return Pairs(pa.table({"key": np.arange(starts[-1])}), starts, np.arange(starts[-1], dtype=np.int32))


@pytest.mark.parametrize("keys", [2, 5])
def test_a_key_of_one_unit_shows_with_probability_delta_at_most(keys):
    """Units with one key reach delta; with more keys they show less, and those with M or more nothing.

    Each side fails once in a million runs.
    """
    delta, units = 0.02, 20_000
    mechanism = DividedUnits(1.0, delta, keys)
    shown = []
    for size in range(1, keys + 2):
        found, _ = mechanism.find(owned(units, np.full(units, size)), SOURCE)
        shown.append(found.num_rows)
    low, high = binomial_band(units, delta)
    assert low <= shown[0] <= high
    assert max(shown[1:]) <= high and shown[keys - 1 :] == [0, 0]


def fewest(count, probability):
    """Return a number that a binomial count falls below once in ten million times."""
    return stats.binom.ppf(1e-7, count, probability)


def crowd(names, alone, beside):
    """Return pairs where each of many keys is held by so many units alone, and by so many beside the next key."""
    one = [np.repeat(np.arange(names), alone)]
    number = np.repeat(np.arange(names), beside)
    flat = np.stack([number, (number + 1) % names], axis=1)
    flat[::2] = flat[::2, ::-1]  # the key of step one is either of both
    sizes = np.append(np.ones(len(one[0]), np.int64), np.full(len(number), 2))
    numbers = np.concatenate([one[0], flat.ravel()]).astype(np.int32)
    return Pairs(pa.table({"key": np.arange(names)}), np.append(0, np.cumsum(sizes)), numbers)


@pytest.mark.parametrize(("alone", "beside"), [(3, 0), (6, 1), (9, 2), (16, 2), (5, 12), (30, 5), (60, 0), (90, 20)])
@pytest.mark.parametrize("keys", [2, 5])
def test_intervals_hold_the_count_given_a_report(alone, beside, keys):
    """Keys near the threshold, and far above it; fails once in a million runs."""
    mechanism, true = DividedUnits(1.0, 1e-3, keys), alone + 2 * beside
    pairs = crowd(30_000 if alone == 3 else 3_000, alone, beside)
    found, outcome = mechanism.find(pairs, SOURCE)
    if alone >= 60:
        assert found.num_rows == 3_000
    for level in LEVELS:
        low, high = mechanism.interval(outcome.tokens, level)
        held = int(((low <= true) & (true <= high)).sum())
        assert held >= fewest(found.num_rows, level)
    counts = mechanism.read(outcome.tokens).count
    if alone >= 60:
        error = mechanism.deviation / np.sqrt(3_000)
        assert abs(counts.mean() - true) < 6 * error + 0.5 / mechanism.steps
        assert counts.std() == pytest.approx(mechanism.deviation, rel=0.15)
        low, high = mechanism.interval(outcome.tokens, 0.95)
        assert ((low <= true) & (true <= high)).mean() < 0.985


def test_few_kinds_of_keys_are_found_more_often_than_with_a_share_of_epsilon():
    """Units with one key among three spend all of epsilon on finding it: as many keys as with nothing to count."""
    mechanism = DividedUnits(1.0, 1e-8, 3)
    assert mechanism.half_reported() == pytest.approx(19, abs=0.5)
    assert mechanism.deviation < 1.5 * 3 * 2**0.5


def test_the_law_of_the_noise_is_what_is_drawn():
    """Tails from the convolution against their Laplace part alone, and against draws; fails once in a million runs."""
    mechanism = DividedUnits(1.0, 1e-4, 4)
    x = np.arange(-60.0, 61.0)
    tail = mechanism.noise_tail(x)
    assert (np.diff(tail) <= 1e-12).all() and (tail[x > 0] > laplace_tail(x[x > 0], mechanism.scale)).all()
    tokens = mechanism.find(crowd(20_000, 80, 0), SOURCE)[1].tokens
    noise = np.rint((mechanism.noisy(tokens) - 80) * mechanism.steps)
    for h in (0, 5, 15, 30):
        low, high = binomial_band(20_000, float(mechanism.noise_tail(np.array([h + 1.0]))[0]))
        assert (noise >= h + 1).sum() <= high and (noise <= -h - 1).sum() <= high
        assert max((noise >= h + 1).sum(), (noise <= -h - 1).sum()) >= low * 0.9


def test_no_key_of_fewer_units_than_the_floor_is_shown():
    mechanism = DividedUnits(5.0, 0.5, 4, min_units=30)
    assert mechanism.find(crowd(3_000, 29, 0), SOURCE)[0].num_rows == 0
    found, outcome = mechanism.find(crowd(3_000, 31, 0), SOURCE)
    assert found.num_rows > 100
    reading = mechanism.read(outcome.tokens)
    assert reading.count.min() >= 30 and reading.low.min() == 30 == mechanism.least_count
    assert ((reading.low <= 31) & (reading.high >= 31)).sum() >= binomial_band(found.num_rows, 0.95)[0]


def test_certificates_name_both_steps_and_forged_numbers_are_refused():
    mechanism = DividedUnits(1.0, 1e-8, 5, 10)
    certificate = mechanism.certify()
    assert [part.scope for part in certificate.parts] == ["one key", "one unit"]
    assert 0.999 * 1e-8 < certificate.worst <= 1e-8
    assert from_json(mechanism.to_json()) == mechanism
    for forged in ({"max_keys": 1}, {"max_keys": MOST_KEYS + 1}, {"min_units": 0}, {"epsilon": 0.0}, {"delta": 0.0}):
        with pytest.raises(InvalidValue):
            from_json({**mechanism.to_json(), **forged})
    with pytest.raises(InvalidValue, match="epsilon"):
        DividedUnits(0.011, 1e-8, 20)


def test_tokens_that_cannot_be_drawn_are_not_possible():
    mechanism = DividedUnits(1.0, 1e-8, 5)
    tokens = mechanism.find(crowd(50, 60, 5), SOURCE)[1].tokens
    assert (
        mechanism.possible(tokens)
        and not mechanism.possible(np.array([0]))
        and not mechanism.possible(np.array([1 << 62]))
    )


def test_sums_of_counts_have_intervals_from_the_law_of_the_noise():
    """Of random groups of twenty keys far above the threshold, at two levels; fails once in a million runs."""
    mechanism, groups = DividedUnits(1.0, 1e-6, 4), 250
    tokens = np.random.default_rng(4).permutation(mechanism.find(crowd(20 * groups, 90, 5), SOURCE)[1].tokens)
    for level in (0.8, 0.95):
        ends = [mechanism.sum_interval(some, np.ones(20), None, level) for some in np.split(tokens, groups)]
        held = sum(low <= 2_000 <= high for low, high in ends)
        assert fewest(groups, level) <= held
        assert held < groups or level > 0.9
    one = mechanism.sum_interval(tokens[:1], np.array([2.0]), None, 0.95)
    assert one == tuple(2.0 * float(end[0]) for end in mechanism.interval(tokens[:1], 0.95))
    rare = mechanism.find(crowd(2_000, 17, 0), SOURCE)[1].tokens
    assert mechanism.sum_interval(rare[:5], np.ones(5), None, 0.95) is None
