"""A private histogram of keys per unit: what a unit adds to it, its noise, and what it tells of a bound."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpsieve.channels.keys_per_unit import _PARTS, EDGES, MOST, KeysPerUnit, Sizes, _parts, units_by_size
from dpsieve.errors import InvalidValue
from dpsieve.testing import insecure_source

ONE_IN_A_MILLION = 1e-6


@pytest.mark.parametrize("bound", [1, 4, 25, 999, 1000])
def test_a_unit_adds_one_in_all(bound):
    """Whatever its size, and nothing negative: so noise of scale 1/epsilon is epsilon-private."""
    made = KeysPerUnit(0.5, bound)
    for keys in [*range(1, 60), 199, 200, 201, 212, 999, 1000, 1001, 10**6]:
        parts = _parts(units_by_size(np.array([keys])), made.edges)
        assert parts.min() >= 0 and parts.sum() == _PARTS
        held = min(keys, MOST)
        assert parts @ np.array(made.edges) / _PARTS == pytest.approx(held, rel=3e-5)
        few = parts @ np.minimum(made.edges, bound) / _PARTS  # min(d, bound) is straight between the edges
        assert few == pytest.approx(min(held, bound), rel=3e-5)
    assert Fraction(made.scale) * Fraction(made.epsilon) >= _PARTS > 0.999 * made.scale * made.epsilon
    assert made.certify().worst == 0


@pytest.mark.parametrize(
    "sizes",
    [
        np.repeat([1, 5, 40], [5000, 2000, 300]),
        np.full(50_000, 212),
        np.minimum(np.random.default_rng(1).zipf(1.6, 20_000), 1000),
        np.repeat([1, 99], 20_000),
    ],
    ids=["few kinds", "between edges", "Zipf", "two kinds"],
)
@pytest.mark.parametrize("bound", [1, 8, 200])
def test_the_interval_of_what_a_bound_keeps(sizes, bound):
    """It holds the true share in 95 % of draws or more, and where there is little noise it is short."""
    truth = np.minimum(sizes, bound).sum() / np.minimum(sizes, MOST).sum()
    for epsilon in (0.05, 5.0):
        made = KeysPerUnit(epsilon, bound)
        kept = [made.draw(sizes, insecure_source(k)).kept(bound) for k in range(120)]
        held = sum(one.low <= truth <= one.high for one in kept)
        assert stats.binom.cdf(held, 120, 0.95) > ONE_IN_A_MILLION
        assert all(one.low <= one.share <= one.high for one in kept)
    assert np.median([one.high - one.low for one in kept]) < 0.08


def test_pairs_are_what_units_keep():
    sizes = KeysPerUnit(100.0).draw(np.repeat([1, 4, 2000], [300, 200, 10]), insecure_source(1))
    assert sizes.pairs(2) == pytest.approx(300 + 2 * 210, abs=1)
    assert sizes.pairs(MOST) == pytest.approx(300 + 4 * 200 + 1000 * 10, rel=0.02)
    with pytest.raises(InvalidValue, match="edge"):
        sizes.pairs(4)
    nothing = Sizes(EDGES, (0.0,) * len(EDGES), 1.0).kept(5)
    assert (nothing.low, nothing.high) == (0.0, 1.0)
