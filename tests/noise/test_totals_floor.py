"""Counts and centred sums with one noise and a threshold: the floor, by enumeration and by draws."""

import numpy as np
import pytest
from helpers.statistical import binomial_band

from dpsieve.errors import InvalidValue
from dpsieve.noise.key_totals import key_totals
from dpsieve.noise.totals import GRID, Total
from dpsieve.testing import insecure_source

PRICE = (Total("price", "sum", 0, 10),)
DELTA = 0.02


def draw(mechanism, frequency, runs, seed):
    counts = np.full(runs, frequency)
    return mechanism.draw(counts, sums=np.full((1, runs), GRID * frequency), source=insecure_source(seed))


def test_a_key_below_the_floor_is_never_published():
    mechanism = key_totals(2.0, DELTA, PRICE, min_units=10)
    assert (draw(mechanism, 9, 100_000, 1).tokens == 0).all()
    assert mechanism.reporting_probability([0, 9]).tolist() == [0, 0]


def test_a_key_at_the_floor_is_published_as_one_of_a_single_unit_is_without_a_floor():
    plain, floored = key_totals(2.0, DELTA, PRICE), key_totals(2.0, DELTA, PRICE, min_units=10)
    ranges = np.arange(1, 50)
    assert floored.reporting_probability(ranges + 9) == pytest.approx(plain.reporting_probability(ranges))
    published = np.count_nonzero(draw(floored, 10, 200_000, 2).tokens)
    low, high = binomial_band(200_000, floored.reporting_probability([10])[0])
    assert low <= published <= high and 0.9 * DELTA < floored.reporting_probability([10])[0] <= DELTA


def test_what_is_published_is_read_above_the_floor():
    """The same words give the same noise: counts, intervals and sums are those without a floor, nine units higher."""
    plain, floored = key_totals(1.0, 1e-6, PRICE), key_totals(1.0, 1e-6, PRICE, min_units=10)
    low, high = draw(plain, 100, 1_000, 3), draw(floored, 109, 1_000, 3)
    assert (high.tokens - low.tokens == 9 * GRID).all()
    assert (high.sums - low.sums == 9 * GRID).all()  # each unit adds the upper bound
    for one, other in zip(plain.interval(low.tokens), floored.interval(high.tokens), strict=True):
        assert (other - one == 9).all()
    assert floored.possible(high.tokens) and not floored.possible(np.array([floored.threshold + 9 * GRID - 1]))


def test_a_list_of_known_keys_has_no_floor():
    with pytest.raises(InvalidValue, match="min_units does not work with keys that are all answered"):
        key_totals(1.0, 0.0, PRICE, min_units=2)
