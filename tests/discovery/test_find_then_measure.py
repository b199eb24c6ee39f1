"""Selection, then counts and totals with Gaussian noise in one account."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpsieve.discovery.find_then_count import FindThenMeasure, find_then_count, find_then_measure
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import DpsieveError, NotCertified
from dpsieve.noise.totals import GRID, Total
from dpsieve.privacy.mechanism import from_json
from dpsieve.testing import insecure_source

TOTALS = (Total("price", "sum", 0, 200), Total("rating", "mean", 1, 5))


@pytest.fixture(scope="module")
def made():
    return find_then_measure(2.0, 1e-6, 10, TOTALS, keys=3, typical_keys=3)


def pairs_of(units, amounts):
    pairs = Pairs.of(units)
    return replace(pairs, amounts=np.asarray(amounts, float))


def test_noise_pays_for_counts_and_sums_together(made):
    """Three coordinates per key with the same noise cost what one with a third of its variance costs."""
    counting = find_then_count(2.0, 1e-6, 10, keys=3, typical_keys=3)
    assert made.sigma == pytest.approx(math.sqrt(3) * counting.sigma, rel=1e-9)
    assert made.distance == pytest.approx(counting.distance, rel=1e-9)
    assert made.certify().worst <= 1e-6 and made.certify().parts[-1].covers.endswith("in one account")
    after, counts_after = made.spends()[-1], counting.spends()[-1]
    assert after.orders == counts_after.orders
    assert after.taus == pytest.approx(counts_after.taus, rel=1e-9)
    assert "2 centred sums" in made.certify().parts[-1].covers


def test_one_unit_moves_what_is_measured_by_the_distance(made):
    """Neighbours, given the selected keys: at most m keys, each by 1 and by at most half the width per sum."""
    rng = np.random.default_rng(3)
    keys = [f"k{i}" for i in range(6)]
    units = [list(rng.choice(keys, rng.integers(1, 6), replace=False)) for _ in range(200)]
    extreme = rng.integers(0, 2, (2, sum(map(len, units)))) * GRID
    pairs = pairs_of(units, extreme)
    fewer = pairs.filter(np.arange(len(pairs.key_numbers)) >= pairs.sizes[0])
    order = np.array([4, 2, 0, 1, 3, 5])
    moved = []
    for each in (pairs, fewer):
        bounded = each.rank(order).bound(3)
        moved.append(np.vstack([bounded.counts() * GRID, 2 * bounded.sums() - GRID * bounded.counts()]))
    change = (moved[0] - moved[1]) / GRID
    assert (np.abs(change) <= 1).all() and 1 <= np.count_nonzero(change[0]) <= 3
    assert np.linalg.norm(change) <= math.sqrt(3 * 3) + 1e-9
    assert math.sqrt(3 * 3) / made.scale(3) <= made.distance * (1 + 1e-9)


def test_measured_numbers_have_the_stated_noise(made):
    """Keys keep their amounts through ranking and bounding."""
    number = 600
    units = [["a", "b"]] * number
    amounts = np.tile([[GRID, 0], [GRID // 2, GRID]], number)
    source = insecure_source(1)
    found = [made.find(pairs_of(units, amounts), source) for _ in range(80)]
    assert all(one.keys.column(0).to_pylist() == ["a", "b"] or one.keys.num_rows == 2 for one in found)
    errors, ratios = [], []
    for one in found:
        for key, token, sums in zip(
            one.keys.column(0).to_pylist(), one.outcome.tokens, one.outcome.sums.T, strict=True
        ):
            true = [GRID, 0] if key == "a" else [-GRID, GRID]
            errors.append((sums - number * np.array(true)) / GRID)
            ratios.append(token - number)
    assert np.std(errors) == pytest.approx(made.scale(3), rel=0.3)
    assert np.std(ratios) == pytest.approx(made.scale(3), rel=0.4)
    assert abs(np.mean(errors)) < made.scale(3)


def test_what_is_saved_is_checked(made):
    again = from_json(made.to_json())
    assert again == made and isinstance(again, FindThenMeasure)
    with pytest.raises(NotCertified):
        replace(made, sigma=made.sigma * 0.99)
    with pytest.raises(NotCertified):
        replace(made, totals=(*TOTALS, Total("more", "sum", 0, 1)))
    for wrong in ((), ("price",), 5):
        with pytest.raises(DpsieveError):
            replace(made, totals=wrong)
