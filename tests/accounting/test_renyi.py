"""One Renyi order turned into (epsilon, delta)."""

import math

import pytest

from dpsieve.accounting.curves import gaussian_delta, renyi_delta, renyi_tau, zcdp_delta
from dpsieve.errors import InvalidType, InvalidValue


@pytest.mark.parametrize("order", [1.0001, 1.5, 2.0, 16.0, 120.0, 5000.0])
def test_the_formula(order):
    expected = math.exp((order - 1) * (0.4 - 1.0)) / (order - 1) * (1 - 1 / order) ** order
    assert renyi_delta(order, 0.4, 1.0) == pytest.approx(min(1.0, expected), rel=1e-9)


def test_a_gaussian_is_private_at_every_order_and_zcdp_takes_the_best_one():
    rho, epsilon = 0.05, 1.0
    orders = [1 + k / 50 for k in range(1, 1500)]
    deltas = [renyi_delta(order, rho * order, epsilon) for order in orders]
    assert min(deltas) == pytest.approx(zcdp_delta(rho, epsilon), rel=1e-4)
    assert min(deltas) > gaussian_delta(math.sqrt(0.5 / rho), epsilon)


@pytest.mark.parametrize(("order", "epsilon", "delta"), [(16, 1.0, 1e-5), (120.5, 0.1, 1e-5), (40, 1.0, 1e-12)])
def test_tau_is_the_inverse(order, epsilon, delta):
    tau = renyi_tau(order, epsilon, delta)
    assert delta * (1 - 1e-9) < renyi_delta(order, tau, epsilon) <= delta
    assert renyi_delta(order, tau * (1 + 1e-9), epsilon) > delta


@pytest.mark.parametrize("order", [1, 0.5, -2, math.inf, math.nan])
def test_an_order_is_above_one(order):
    with pytest.raises(InvalidValue, match="order"):
        renyi_delta(order, 0.1, 1.0)


def test_bad_arguments_are_named():
    with pytest.raises(InvalidValue, match="tau"):
        renyi_delta(16, -0.1, 1.0)
    with pytest.raises(InvalidValue, match="delta"):
        renyi_tau(16, 1.0, 0.0)
    with pytest.raises(InvalidType, match="order"):
        renyi_tau("16", 1.0, 1e-5)
