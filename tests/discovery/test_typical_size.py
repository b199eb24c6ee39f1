"""The typical number of keys of a unit: a private median."""

import numpy as np
import pytest
from helpers.statistical import assert_follows

from dpsieve.discovery.selector import TypicalSize
from dpsieve.errors import DpsieveError
from dpsieve.testing import insecure_source


def scores(sizes, most):
    sizes = np.asarray(sizes)
    return np.array([-max((sizes < x).sum(), (sizes > x).sum()) for x in range(1, most + 1)])


def test_it_is_near_the_median():
    sizes = np.repeat([1, 7, 8, 9, 30], [1000, 800, 900, 800, 1000])
    drawn = [TypicalSize(0.5, 100).draw(sizes, insecure_source(seed)) for seed in range(20)]
    assert set(drawn) <= {7, 8, 9}


@pytest.mark.parametrize("sizes", [[], [1], [3, 3, 3], [1, 2, 2, 5], [5, 5, 1]])
@pytest.mark.parametrize("more", [1, 2, 3, 4, 5])
def test_one_unit_moves_all_scores_in_one_direction_by_at_most_one(sizes, more):
    change = scores([*sizes, more], 5) - scores(sizes, 5)
    assert set(change) <= {0, -1}


@pytest.mark.parametrize("sizes", [[], [1, 1, 4]])
def test_sizes_are_drawn_as_the_exponential_mechanism_says(sizes):
    most, count = 4, 3_000
    mechanism, source = TypicalSize(1.5, most), insecure_source(5)
    chances = np.exp(1.5 * (scores(sizes, most) + mechanism.prior))
    chances /= chances.sum()
    assert_follows([mechanism.draw(np.array(sizes, np.int64), source) for _ in range(count)], range(1, 5), chances)


def test_units_above_the_bound_count_as_the_bound():
    assert TypicalSize(5.0, 3).draw(np.full(1000, 50), insecure_source(1)) == 3


def test_without_data_the_size_is_a_usual_one():
    """Constants on scores: an even law over 1 to 100 would nearly always say that units hold many keys."""
    mechanism, source = TypicalSize(0.01, 100), insecure_source(6)
    drawn = [mechanism.draw(np.zeros(0, np.int64), source) for _ in range(400)]
    assert 3 <= np.median(drawn) <= 8 and np.quantile(drawn, 0.95) < 60
    few = [TypicalSize(0.02, 100).draw(np.full(500, 40), source) for _ in range(100)]
    assert np.mean(np.array(few) == 40) > 0.8  # 500 units say more than the constants


def test_what_it_promises():
    made = TypicalSize(0.02, 100, unit="one user")
    assert str(made.certify().guarantee).startswith("0.02-differential privacy when one user")
    with pytest.raises(DpsieveError, match="epsilon"):
        TypicalSize(0.0, 100)
