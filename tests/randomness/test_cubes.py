"""Noise of cubes: its law is the one of its docstring, and the tails that thresholds rest on are exact."""

import math

import numpy as np
import pytest
from helpers.statistical import assert_follows, binomial_band

from dpsieve.randomness.noise import cube_deviation, cube_half_width, cube_radii, cube_tail, uniform_below, within_cubes
from dpsieve.randomness.source import SystemSource

REACH = 60


def law(scale, dimensions):
    """P[one coordinate = x] for x in -REACH .. REACH, summed over all points of the lattice within reach."""
    radii = np.arange(3 * REACH)
    weights = (2.0 * radii + 1) ** dimensions * np.exp(-radii / scale)
    weights /= weights.sum()
    x = np.arange(-REACH, REACH + 1)
    return x, np.array([(weights[abs(v) :] / (2 * radii[abs(v) :] + 1)).sum() for v in x])


@pytest.mark.parametrize(("scale", "dimensions"), [(0.4, 2), (1.7, 1), (2.0, 2), (1.1, 3)])
def test_draws_follow_the_law(scale, dimensions):
    radii = cube_radii(scale, dimensions, 100_000)
    x, probabilities = law(scale, dimensions)
    assert_follows(within_cubes(radii, SystemSource()), x, probabilities)
    r = np.arange(4 * REACH)
    weights = (2.0 * r + 1) ** dimensions * np.exp(-r / scale)
    assert_follows(radii, r, weights / weights.sum())


def test_the_probability_of_a_point_depends_on_its_largest_coordinate_alone():
    """Points of one norm are alike, and e^(-1/scale) relates norms: this is what privacy rests on."""
    scale, source = 1.3, SystemSource()
    radii = cube_radii(scale, 2, 200_000)
    points = np.stack([within_cubes(radii, source), within_cubes(radii, source)])
    reach = 12
    grid = np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * 2, indexing="ij")).reshape(2, -1)
    every = np.abs(np.stack(np.meshgrid(*[np.arange(-80, 81)] * 2))).max(axis=0)
    weights = np.exp(-np.abs(grid).max(axis=0) / scale) / np.exp(-every / scale).sum()
    inside = (np.abs(points) <= reach).all(axis=0)
    place = np.where(inside, (points[0] + reach) * (2 * reach + 1) + points[1] + reach, -1)
    assert_follows(place, np.arange(grid.shape[1]), weights)


def test_tails_are_sums_over_the_lattice():
    for scale, dimensions in ((1.5, 1), (2.0, 2), (1.0, 4)):
        x, probabilities = law(scale, dimensions)
        for least in (0, 1, 7, 20):
            assert cube_tail(scale, dimensions, least) == pytest.approx(probabilities[x >= least].sum(), rel=1e-9)
    assert cube_tail(2.0**19, 2, 2**19 * 40) == pytest.approx((40 + 2) * math.exp(-40) / 4, rel=1e-4)


def test_half_widths_and_deviations():
    """A half-width holds 95 %, whatever the second coordinate counts."""
    scale, source, draws = 2.0**15, SystemSource(), 100_000
    for dimensions, ratio in ((1, 0.0), (2, 0.0), (2, 0.6), (3, 1.0)):
        radii = cube_radii(scale, dimensions, draws)
        values = within_cubes(radii, source) + ratio * within_cubes(radii, source)
        low, high = binomial_band(draws, 0.95)
        assert low <= (np.abs(values) <= cube_half_width(dimensions, ratio, 0.95) * scale).sum() <= high
        if not ratio:
            assert values.std() == pytest.approx(cube_deviation(scale, dimensions), rel=0.05)


def test_uniform_numbers_of_several_limits():
    limits = np.array([1, 2, 3, 10, 2**62])
    drawn = uniform_below(np.repeat(limits, 20_000), SystemSource()).reshape(5, -1)
    assert not drawn[0].any() and (drawn >= 0).all() and (drawn < limits[:, None]).all()
    for row, limit in zip(drawn[1:4], limits[1:4], strict=True):
        assert_follows(row, np.arange(limit), np.full(limit, 1 / limit))
    assert drawn[4].mean() == pytest.approx(2**61, rel=0.05)
