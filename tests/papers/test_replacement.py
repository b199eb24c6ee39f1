"""The least delta of a replacement, by enumeration and by another search."""

import itertools
import math

import numpy as np
import pytest
from helpers.binomial_rows import full_row, full_rows

from dpsieve.noise.sample_threshold_delta import add_remove
from dpsieve.papers.sample_threshold import exact_replacement_delta
from dpsieve.papers.sample_threshold.replacement import Rectangles


@pytest.mark.parametrize(
    ("epsilon", "rate", "threshold"),
    [
        *[(1.0, 0.3, 3), (0.5, 0.6, 4), (0.4, 0.8, 2), (2.0, 0.5, 5), (1.0, 0.5, 1), (0.5, 0.1, 3), (0.7, 0.5, 8)],
        *[(0.05, 0.95, 2), (0.1, 0.6, 2), (5.0, 0.95, 3), (3.0, 0.999, 2)],
    ],
)
def test_one_replacement_by_enumeration(epsilon, rate, threshold):
    """Every pair of cells that lose and gain a client, up to 60 clients each."""
    last = 60
    rows = full_rows(rate, threshold, last + 1)
    worst = max(
        np.maximum(np.outer(rows[k], rows[n]) - math.exp(epsilon) * np.outer(rows[k - 1], rows[n + 1]), 0).sum()
        for k, n in itertools.product(range(1, last), range(last))
    )
    found = exact_replacement_delta(epsilon, rate, threshold)
    assert worst * (1 - 1e-12) <= found == pytest.approx(worst, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "rate", "threshold"), [(0.1, 0.02, 3), (0.05, 0.03, 2), (1.0, 0.01, 2), (0.3, 0.02, 4)]
)
def test_one_replacement_at_low_rates_by_enumeration(epsilon, rate, threshold):
    """A cell that gains a client may have many: up to 1,500 here, of which at most 100 send with any chance."""
    factor, most = math.exp(epsilon), int((threshold - 1) / -math.expm1(-epsilon)) + 3
    rows = np.array([full_row(n, rate, threshold, 100) for n in range(1501)])
    worst = max(
        sum(np.maximum(a * rows[:-1] - factor * b * rows[1:], 0).sum(axis=1) for a, b in zip(*pair, strict=True)).max()
        for pair in itertools.pairwise(rows[:most, : most + 1][::-1])
    )
    assert worst * (1 - 1e-12) <= exact_replacement_delta(epsilon, rate, threshold) <= worst * (1 + 1e-8)


@pytest.mark.parametrize(("epsilon", "rate", "threshold"), [(1.0, 0.3, 3), (0.4, 0.8, 2), (0.7, 0.5, 8)])
def test_bounds_over_rectangles_of_pairs(epsilon, rate, threshold):
    """No pair inside is above the bound, for rectangles of every shape; and a single pair is the bound."""
    last = 40
    rows = [full_row(k, rate, threshold, last + 1) for k in range(last + 2)]
    exact = np.zeros((last + 1, last + 1))
    for k, n in itertools.product(range(1, last + 1), range(last + 1)):
        moved = np.outer(rows[k], rows[n]) - math.exp(epsilon) * np.outer(rows[k - 1], rows[n + 1])
        exact[k, n] = np.maximum(moved, 0).sum()
    pairs = Rectangles(math.exp(epsilon), rate, threshold, last, 400, 1e-9)
    places = [threshold, threshold + 1, threshold + 5, 20, last]
    for k1, k2 in itertools.combinations_with_replacement(places, 2):
        for l1, l2 in itertools.combinations_with_replacement([0, 1, 7, 19, last], 2):
            assert exact[k1 : k2 + 1, l1 : l2 + 1].max() <= pairs.bound_within(k1, k2, l1, l2) <= 1
    assert pairs.bound_within(20, 20, 7, 7) == pytest.approx(exact[20, 7], abs=1e-8)


@pytest.mark.parametrize(("epsilon", "rate", "threshold"), [(0.1, 0.8, 2000), (1.0, 0.99, 5000), (0.05, 0.02, 36)])
def test_large_thresholds_by_another_way(epsilon, rate, threshold):
    """The same as cutting only k, then only l: slower, and with bounds on single rows alone at the end."""
    depth = 30.0 - math.log(add_remove(epsilon, rate, threshold)[0])
    last_l = math.ceil((threshold + math.sqrt(2 * threshold * depth) + 2 * depth) / rate)
    last_k = math.ceil((threshold - 1) / -math.expm1(-epsilon)) + 2
    pairs = Rectangles(math.exp(epsilon), rate, threshold, last_k, last_l, math.exp(-depth))
    found, open_rows = 0.0, [(threshold, last_k)]
    claimed = exact_replacement_delta(epsilon, rate, threshold)
    while open_rows:  # depth first, where only what may be above is opened
        k1, k2 = open_rows.pop()
        if pairs.bound_within(k1, k2, 0, last_l) <= claimed * (1 - 1e-9):
            continue
        if k1 < k2:
            open_rows += [(k1, (k1 + k2) // 2), ((k1 + k2) // 2 + 1, k2)]
            continue
        cells = [(0, last_l)]
        while cells:
            l1, l2 = cells.pop()
            bound = pairs.bound_within(k1, k1, l1, l2)
            if bound > claimed * (1 - 1e-9):
                if l1 == l2:
                    found = max(found, bound)
                else:
                    cells += [(l1, (l1 + l2) // 2), ((l1 + l2) // 2 + 1, l2)]
    assert found == pytest.approx(claimed, rel=1e-9)
