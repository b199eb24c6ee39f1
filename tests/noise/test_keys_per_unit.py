"""A private histogram of keys per unit: what a unit adds to it, its noise, and what it tells of a bound."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpsieve.errors import InvalidValue
from dpsieve.noise.keys_per_unit import _PARTS, EDGES, MOST, KeysPerUnit, Sizes, _parts, units_by_size
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


UNITS = {
    "few kinds": np.repeat([1, 5, 40], [5000, 2000, 300]),
    "between edges": np.full(50_000, 212),
    "Zipf": np.minimum(np.random.default_rng(1).zipf(1.6, 20_000), 1000),
    "two kinds": np.repeat([1, 99], 20_000),
}


@pytest.mark.parametrize("bound", [1, 8, 200])
@pytest.mark.parametrize("epsilon", [0.02, 0.05, 5.0])
def test_the_interval_of_what_a_bound_keeps(epsilon, bound):
    """It holds the true share in 95 % of draws or more, and where there is little noise it is short.

    The share is of all pairs, and is stated only where its interval is short. Of 200 draws, 172 and fewer are too few:
    once in 10^6 runs at 95 %, and nearly always if it were 80 %.
    """
    made, held, told = KeysPerUnit(epsilon, bound), {}, 0
    for name, sizes in UNITS.items():
        units, true = units_by_size(sizes), np.minimum(sizes, bound).sum() / sizes.sum()
        drawn = [made.draw(units, insecure_source(k)).kept(bound) for k in range(50)]
        kept = [one for one in drawn if one is not None]
        assert all(one.low <= one.share <= one.high for one in kept), name
        held[name] = sum(one.low <= true <= one.high for one in kept)
        told += len(kept)
        if epsilon == 5:
            assert len(kept) == 50 and np.median([one.high - one.low for one in kept]) < 0.08, name
    assert stats.binom.cdf(sum(held.values()), told, 0.95) > ONE_IN_A_MILLION, held


@pytest.mark.parametrize("units", [50, 300, 1_000])
def test_few_units_are_told_to_be_too_few(units):
    """Noise alone hardly ever makes a share: of 400 draws, at most a few, though each interval would be short."""
    made, sizes = KeysPerUnit(0.02, 5), units_by_size(np.full(units, 4))
    told = sum(made.draw(sizes, insecure_source(k)).kept(5) is not None for k in range(400))
    assert told <= 4


def test_pairs_are_what_units_keep():
    sizes = KeysPerUnit(100.0).draw(units_by_size(np.repeat([1, 4, 2000], [300, 200, 10])), insecure_source(1))
    assert sizes.pairs(2) == pytest.approx(300 + 2 * 210, abs=1)
    assert sizes.pairs(MOST) == pytest.approx(300 + 4 * 200 + 1000 * 10, rel=0.02)
    with pytest.raises(InvalidValue, match="edge"):
        sizes.pairs(4)
    assert Sizes(EDGES, (0.0,) * len(EDGES), 1.0).kept(5) is None
