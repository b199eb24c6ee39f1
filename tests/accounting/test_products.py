"""The bound for any number of fixed reports: never below a product, and near to the worst one."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from accounting.products_by_hand import MIDDLE, NEW, OFTEN, RARE, convolved, exact, losses, rows

from dpsieve.accounting.curves import gaussian_delta
from dpsieve.accounting.loops import product_delta
from dpsieve.accounting.products import product_deltas
from dpsieve.errors import InvalidValue


def deltas(steps, uses, epsilon, power, **options):
    """The number of each (p, q, shift)."""
    ours, theirs = ([[float(step[k]), float(1 - step[k])] for step in steps] for k in (0, 1))
    shifts = [step[2] if len(step) > 2 else 0.0 for step in steps]
    return product_deltas(np.array(ours), np.array(theirs), np.array(shifts), uses, epsilon, power=power, **options)


@pytest.mark.parametrize("power", [0.3, 3.0, 12.0])
def test_no_product_is_above_the_bound(power):
    kinds = [NEW, RARE, MIDDLE, OFTEN, (MIDDLE[1], MIDDLE[0]), (OFTEN[1], OFTEN[0])]
    for uses, epsilon in itertools.product((1, 2, 3), (0.0, 0.1, 0.3, 0.8, 1.5)):
        numbers = dict(zip(kinds, deltas(kinds, uses, epsilon, power), strict=True))
        for many in itertools.combinations_with_replacement(kinds, uses):
            assert exact(many, epsilon) <= Fraction(max(numbers[kind] for kind in many)), (uses, epsilon)


@pytest.mark.parametrize(
    ("uses", "mu", "epsilon"), [(1, 0.5, 2.0), (10, 0.06, 1.0), (100, 0.02, 1.0), (10_000, 2e-3, 1)]
)
def test_gaussian_noise_is_near_to_its_known_curve(uses, mu, epsilon):
    known = gaussian_delta(1.0, epsilon, mu, count=uses)
    found = min(deltas([(1, 1, mu)], uses, epsilon, power)[0] for power in np.arange(2.0, 60.0, 2.0))
    assert known <= found <= 1.1 * known


@pytest.mark.parametrize(("uses", "shrink"), [(2, 0.7), (3, 0.6), (10, 0.4), (30, 0.2), (100, 0.1)])
def test_products_by_convolution_are_below_the_bound(uses, shrink, epsilon=1.0, grid=2e-3):
    """Homogeneous products are below their own number, random mixed ones below the largest, at every power."""
    picks = np.random.default_rng(11)
    steps = rows(shrink)
    numbers = np.array([deltas(steps, uses, epsilon, power) for power in (5.0, 10.0, 20.0)]).min(axis=0)
    down = [losses(*step, grid)[0] for step in steps]
    for k in range(len(steps)):
        assert convolved([down[k]] * uses, epsilon, grid) <= numbers[k]
    for power in (5.0, 10.0, 20.0):
        numbers = deltas(steps, uses, epsilon, power)
        for _ in range(3):
            many = picks.integers(len(steps), size=uses)
            assert convolved([down[k] for k in many], epsilon, grid) <= numbers[many].max()


@pytest.mark.parametrize("power", [2.0, 20.0])
def test_fewer_cells_only_add_and_the_bound_of_searches_is_close(power):
    steps = [*rows(0.3), *((q, p, mu) for p, q, mu in rows(0.3))]
    fine, middles = deltas(steps, 10, 1.0, power), np.tan((np.arange(128) + 0.5) * (math.pi / 256)) ** 2
    use = (10, 1.0, power, np.inf, middles, False)
    rough = [product_delta(p, 1 - p, q, 1 - q, mu, *use) for p, q, mu in steps]
    np.testing.assert_allclose(np.maximum(rough, fine.min()), fine, rtol=0.01)
    assert (deltas(steps, 10, 1.0, power, points=64) >= fine).all()


def test_a_report_that_only_one_side_gives_is_a_leak():
    assert deltas([(1e-9, 0.0)], 10, 1.0, 20.0)[0] == pytest.approx(1e-8, rel=0.02)
    assert deltas([(0.0, 1e-9)], 10, 1.0, 20.0)[0] == pytest.approx(math.exp(-20) / 2 / math.sqrt(420), rel=0.01)
    assert deltas([(1.0, 0.0)], 1, 1.0, 20.0)[0] == 1.0


def test_what_is_no_distribution_is_refused():
    wrong, right = np.array([[0.5, 0.4]]), np.array([[0.5, 0.5]])
    with pytest.raises(InvalidValue, match="not a distribution"):
        product_deltas(wrong, right, np.zeros(1), 3, 1.0, power=5.0)
    with pytest.raises(InvalidValue, match="two columns"):
        product_deltas(right, right, np.zeros(2), 3, 1.0, power=5.0)


def test_ten_thousand_coins_are_nearly_gaussian_noise(uses=10_000, step=0.001):
    """Fair coins that become likelier by a step are like noise of distance 2 step, by the central limit."""
    known = gaussian_delta(1.0, 1.0, 2 * step, count=uses)
    found = min(deltas([(0.5 + step, 0.5)], uses, 1.0, power)[0] for power in np.arange(10.0, 60.0, 2.0))
    assert 0.95 * known <= found <= 1.1 * known
