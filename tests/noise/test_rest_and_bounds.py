"""The row of what is not published, and bounds chosen from a private histogram."""

import math

import numpy as np
import pytest
from helpers.statistical import binomial_band

from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.noise.rest_and_bounds import AmountBounds, Rest, bins_of
from dpsieve.noise.totals import GRID, RawTotal, Total
from dpsieve.privacy.mechanism import from_json
from dpsieve.randomness.source import SystemSource
from dpsieve.testing import insecure_source

PRICE = Total("price", "sum", 0, 200)
STEP = RawTotal.steps_per_unit


def test_a_unit_moves_the_rest_by_no_more_than_its_noise_pays_for():
    """With m pairs of extremes, on the coarser grid: rounding down never adds a step."""
    for keys in (1, 3, 10, 700):
        rest = Rest(0.02, keys, (PRICE,))
        assert rest.certify().worst == 0
        rng = np.random.default_rng(keys)
        for _ in range(200):
            pairs, sums = int(rng.integers(0, 10**6)), int(rng.integers(0, 10**9))
            added = rng.integers(0, GRID + 1, keys).sum()
            before = rest.draw(pairs, np.array([sums]), insecure_source(7))
            after = rest.draw(pairs + keys, np.array([sums + added]), insecure_source(7))  # with the same noise
            assert max(abs(after[name] - before[name]) for name in rest.names) <= rest.scale * 0.02


def test_intervals_of_the_rest_hold():
    rest, source, draws = Rest(0.5, 2, (PRICE,)), SystemSource(), 1_000
    pairs, amount = 5_000, 5_000 * GRID // 4
    rows = [rest.row(rest.draw(pairs, np.array([amount]), source), ("key",)) for _ in range(draws)]
    low, high = binomial_band(draws, 0.95)
    for name, true in (("price", 250_000), ("", 5_000)):
        ends = [(row[f"{name}_low"], row[f"{name}_high"]) if name else (row["low"], row["high"]) for row in rows]
        assert low - 10 <= sum(a <= true <= b for a, b in ends) <= high + 10  # counts are rounded
    assert np.mean([row["price_sum"] for row in rows]) == pytest.approx(250_000, rel=0.01)


def test_the_rest_is_saved_and_its_numbers_are_checked():
    rest = Rest(0.02, 3, (PRICE,), unit="user")
    assert from_json(rest.to_json()) == rest
    drawn = rest.draw(10, np.array([GRID]), insecure_source(1))
    assert rest.reader({**drawn, "keys": 5}).other == {"keys": 5}
    for wrong in ({}, {"rest_count": 5}, {**drawn, "rest_0": 0.5}, {**drawn, "rest_count": 2**63}):
        with pytest.raises(InvalidValue, match="drawn must have rest_count, rest_0"):
            rest.reader(wrong)
    with pytest.raises(DpsieveError):
        Rest(0.0, 3)
    with pytest.raises(InvalidValue, match="epsilon"):
        Rest(1e-6, 3, (PRICE,))


def test_each_unit_is_in_one_bin():
    """So one unit more changes one of the noisy numbers by one: that is the sensitivity."""
    amounts = np.array([0.0, 0.4, 1.0, 1.9, 2.0, -1.0, -3.0, 2.0**58, 2.0**70, -(2.0**70), math.nan])
    bins = bins_of(amounts)
    assert bins.sum() == 10  # without the one that is no number
    rng = np.random.default_rng(2)
    values = rng.normal(0, 1, 500) * 10.0 ** rng.integers(-3, 25, 500)
    for value in values[:50]:
        assert np.abs(bins_of(np.append(values, value)) - bins_of(values)).sum() == 1


def test_bounds_enclose_nearly_all_units():
    rng = np.random.default_rng(4)
    for scale in (0.001, 1.0, 50_000.0):
        x = rng.lognormal(0, 1, 200_000) * scale
        for sign in (1, -1):
            found = AmountBounds(0.05, "x", "sum").draw(sign * x * STEP, SystemSource())
            low, high = sorted((0.0, sign * max(abs(found.low), abs(found.high))))
            assert (found.low, found.high) == (low, high)
            clipped = np.mean(x > max(abs(low), abs(high)))
            assert clipped <= 0.005 and clipped <= found.clipped <= 0.1
            assert max(abs(low), abs(high)) <= 200 * scale


def test_few_units_get_bounds_that_exist():
    """Noise alone never suggests a bound far beyond all units more often than it should."""
    for amounts in (np.empty(0), np.array([5.0 * STEP]), np.zeros(1000)):
        found = AmountBounds(0.02, "x", "mean").draw(amounts, SystemSource())
        assert found.low < found.high
    far = 0
    for _ in range(400):
        found = AmountBounds(0.02, "x", "sum").draw(np.full(20_000, 3.0 * STEP), SystemSource())
        far += found.high > 4 or found.low < 0
    assert far <= binomial_band(400, 0.02)[1]
    bounds = AmountBounds(0.02, "x", "sum")
    assert from_json(bounds.to_json()) == bounds and bounds.certify().worst == 0
