"""Where a random walk is highest: against all paths, and against the thesis's closed forms and figures."""

import itertools
import time

import numpy as np
import pytest

from dpsieve.errors import InvalidValue
from dpsieve.sparse.alp_estimates import Stretch, middles

LEFT = (Stretch(5, 0.3, 2, 3),)
RIGHT = (Stretch(6, 0.2, 3, 2),)
SIDES = {
    "steps of one": ((Stretch(5, 0.3, 1, 1),), (Stretch(6, 0.2, 1, 1),)),
    "uneven steps": (LEFT, RIGHT),
    "two stretches": ((Stretch(3, 0.3, 2, 3), Stretch(4, 0.2, 3, 2)), (Stretch(5, 0.2, 3, 2),)),
    "at the lowest level": ((), RIGHT),
    "at the highest level": (LEFT, ()),
    "a drift upward": ((Stretch(3, 0.3, 1, 1),), (Stretch(6, 0.7, 1, 1),)),
    "alone": ((), ()),
}


def by_all_paths(left, right):
    """Return the chance of each middle, by trying all outcomes of all steps."""
    steps = [[(one.chance, one.up, one.down) for one in side for _ in range(one.count)] for side in (left, right)]
    found = {}
    for outcomes in itertools.product([True, False], repeat=len(steps[0]) + len(steps[1])):
        chance, heights, given = 1.0, {0: 0}, iter(outcomes)
        for direction, side in zip((-1, 1), steps, strict=True):
            height = 0
            for i, (p, up, down) in enumerate(side, start=1):
                rises = next(given)
                chance *= p if rises else 1 - p
                height += up if rises else -down
                heights[direction * i] = height
        best = [place for place, height in heights.items() if height == max(heights.values())]
        middle = (min(best) + max(best)) / 2
        found[middle] = found.get(middle, 0.0) + chance
    return found


@pytest.mark.parametrize("sides", SIDES.values(), ids=SIDES)
def test_it_agrees_with_all_paths(sides):
    wanted = by_all_paths(*sides)
    places, chances = middles(*sides)
    found = dict(zip(places.tolist(), chances.tolist(), strict=True))
    assert wanted.keys() <= found.keys()
    assert all(abs(found[place] - wanted.get(place, 0.0)) < 1e-12 for place in found)


def test_a_far_away_end_does_not_matter():
    near, far = (middles((Stretch(n, 0.2, 1, 1),), (Stretch(n, 0.28, 1, 1),)) for n in (400, 100_000))
    means = [np.abs(places) @ chances for places, chances in (near, far)]
    assert means[0] == pytest.approx(means[1], abs=1e-7)


@pytest.mark.parametrize(
    ("collision", "mean", "deviation", "bias", "ninety"),
    [(0.1, 6.4, 11, 2.33, 15.8), (0.01, 4.8, 7.8, 0.18, 11.5)],
)
def test_figure_2_4_of_the_thesis(collision, mean, deviation, bias, ninety):
    """alpha = 3, epsilon = 1: mean, deviation, mean error and 90th percentile, of uniform values and steps of one."""
    p, alpha = 0.2, 3.0
    other = p + collision * (1 - 2 * p)
    places, chances = middles((Stretch(1600, p, 1, 1),), (Stretch(1600, other, 1, 1),))
    shares = (np.arange(20) + 0.5) / 20  # how far the value is above a level; it is rounded up with this probability
    errors = np.concatenate([alpha * (places + up - share) for share in shares for up in (0, 1)])
    masses = np.concatenate([chances * (share if up else 1 - share) / 20 for share in shares for up in (0, 1)])
    assert np.abs(errors) @ masses == pytest.approx(mean, rel=0.02)
    assert np.sqrt(errors**2 @ masses - (errors @ masses) ** 2) == pytest.approx(deviation, rel=0.03)
    assert errors @ masses == pytest.approx(bias, abs=0.05)
    order = np.argsort(np.abs(errors))
    assert np.abs(errors)[order][np.searchsorted(np.cumsum(masses[order]), 0.9)] == pytest.approx(ninety, rel=0.02)


def test_it_is_fast():
    middles(LEFT, RIGHT)
    start = time.process_time()
    middles((Stretch(200, 0.25, 1, 1),), (Stretch(200, 0.3001, 1, 1),))
    assert time.process_time() - start < 0.1


def test_what_would_take_too_long_is_refused():
    with pytest.raises(InvalidValue, match="more bits per entry"):
        middles((), (Stretch(60_000, 0.5, 1, 1),))
