"""Spends known by Renyi divergences at some orders: what they compose to, and how they are kept."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from dpsieve.accounting.composition import Concentrated
from dpsieve.accounting.curves import gaussian_delta, zcdp_delta, zcdp_epsilon
from dpsieve.accounting.spends import spend_from_json
from dpsieve.errors import BudgetExceeded, DpsieveError, InvalidValue
from dpsieve.privacy import Approximate, Composition, Gaussian, Renyi, ZeroConcentrated
from dpsieve.privacy.ledger import Ledger

MANY = tuple(1 + np.geomspace(0.05, 500, 250))
FEW = (1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


def gaussian_list(mu, orders):
    """What Gaussian noise costs at some orders."""
    return Renyi(orders, [a * mu**2 / 2 for a in orders])


def coin_divergence(a, p, q):
    """The larger Renyi divergence of order a of two coins."""
    there, back = (x**a * y ** (1 - a) + (1 - x) ** a * (1 - y) ** (1 - a) for x, y in ((p, q), (q, p)))
    return math.log(max(there, back)) / (a - 1)


def coin_delta(k, p, q, epsilon):
    """The exact delta of k coins of one kind, in the worse direction: how many show heads is all that counts."""
    heads = np.arange(k + 1)
    both = binom.pmf(heads, k, p), binom.pmf(heads, k, q)
    return max(float(np.maximum(0, x - math.exp(epsilon) * y).sum()) for x, y in (both, both[::-1]))


@pytest.mark.parametrize("mu", [0.01, 0.3, 2.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-8])
def test_a_gaussian_told_at_many_orders_is_nearly_zcdp_and_never_better_than_the_gaussian(mu, delta):
    # At the largest order of 501 a mu of 0.01 leaves no smaller epsilon than this.
    epsilon = max(zcdp_epsilon(mu**2 / 2, delta), 0.04)
    found = Composition([gaussian_list(mu, MANY)]).delta(epsilon)
    assert gaussian_delta(1.0, epsilon, mu) < found
    if mu > 0.01:
        assert zcdp_delta(mu**2 / 2, epsilon) * (1 - 1e-12) < found < zcdp_delta(mu**2 / 2, epsilon) * 1.02


@pytest.mark.parametrize("k", [1, 10, 40])
def test_few_orders_are_nearly_as_good_as_many(k):
    few, many = (Composition([gaussian_list(0.3, orders)] * k).epsilon(1e-6) for orders in (FEW, MANY))
    assert many <= few <= 1.15 * many


@pytest.mark.parametrize("orders", [(1.5, 3.0, 9.0, 27.0), (2.0, 20.0), (16.0,)])
@pytest.mark.parametrize("k", [1, 7, 60])
def test_coins_never_cost_less_than_they_do(k, orders):
    p, q = 0.31, 0.24
    # The second kind of coin is known at other orders, so that what lies between them counts.
    first = Renyi(orders, [coin_divergence(a, p, q) for a in orders], count=k)
    others = [1 + 0.8 * (a - 1) for a in orders]
    second = Renyi(others, [coin_divergence(a, p, q) for a in others], count=k)
    whole = Composition([first, second])
    for epsilon in (0.0, 0.2, 1.0, 3.0):
        assert coin_delta(2 * k, p, q, epsilon) <= whole.delta(epsilon)
    assert whole.delta(3.0) >= whole.delta(6.0)


@pytest.mark.parametrize("a", [1.2, 2.5, 4.0, 7.9, 20.0])
def test_between_two_orders_a_straight_line_is_above_the_truth(a):
    p, q = 0.31, 0.24
    known = Renyi((2.0, 8.0, 20.0), [coin_divergence(b, p, q) for b in (2.0, 8.0, 20.0)], count=3)
    found, true = Concentrated((known,))._tau(a), 3 * coin_divergence(a, p, q)
    assert true * (1 - 1e-12) <= found
    following = 3 * next(tau for order, tau in zip(known.orders, known.taus, strict=True) if order >= a)
    assert found <= following
    if a in (2.5, 4.0):
        assert found < 0.85 * following


@pytest.mark.parametrize("epsilon", [1e-9, 0.05, 1.0, 30.0])
@pytest.mark.parametrize("a", [1.01, 3.0, 40.0])
def test_pure_privacy_costs_what_randomised_response_does(epsilon, a):
    part = Concentrated((Approximate(epsilon, 0.5), Renyi([a], [0.0])))
    found = part._tau(a)
    assert found <= min(epsilon, a * epsilon**2 / 2) * (1 + 1e-12)
    if epsilon in (0.05, 1.0):
        truth = 1 / (1 + math.exp(-epsilon))
        assert found == pytest.approx(coin_divergence(a, truth, 1 - truth), rel=1e-6)


@pytest.mark.parametrize("others", [[Approximate(1.0, 1e-9)], [Approximate(0.1, 1e-9, count=30)], [Gaussian(2.0)]])
@pytest.mark.parametrize("mu", [0.05, 0.5])
def test_with_others_it_is_sound_and_better_than_adding_up(mu, others):
    delta, known = 1e-6, gaussian_list(mu, MANY)
    whole = Composition([known, *others])
    ours = whole.epsilon(delta)
    assert ours <= Composition([known]).epsilon(delta / 2) + Composition(others).epsilon(delta / 2)
    assert ours >= Composition([Gaussian(1 / mu), *others]).epsilon(delta)
    assert ours <= Composition([ZeroConcentrated(mu**2 / 2), *others]).epsilon(delta) * 1.001
    assert whole.delta(ours) <= delta * 1.001


def test_what_leaks_stays_apart():
    known = gaussian_list(0.1, MANY)
    plain, leaking = Composition([known]), Composition([known, Approximate(0.0, 1e-7, count=5)])
    assert leaking.delta(1.0) == pytest.approx(plain.delta(1.0) + 5e-7, rel=1e-6)
    assert leaking.epsilon(4e-7) == math.inf


def test_a_spend_is_a_value():
    spend = Renyi(np.array([2, 16]), [0.04, 0.4], count=3)
    assert spend == Renyi((2.0, 16.0), (0.04, 0.4), 3) and hash(spend) == hash(replace(spend))
    assert Composition([spend]).delta(1.0) == Composition([replace(spend, count=1)] * 3).delta(1.0)
    data = json.loads(json.dumps(spend.to_json()))
    assert data == {"kind": "renyi", "orders": [2.0, 16.0], "taus": [0.04, 0.4], "count": 3} == spend.to_json()
    assert spend_from_json(data) == spend
    with pytest.raises(AttributeError):
        spend.taus = ()


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("orders", [2.0, 2.0]),
        ("orders", [16.0, 2.0]),
        ("orders", [1.0, 2.0]),
        ("orders", [2.0, math.inf]),
        ("orders", []),
        ("orders", {2.0, 16.0}),
        ("orders", "ab"),
        ("orders", 2.0),
        ("orders", None),
        ("taus", [0.1]),
        ("taus", [0.1, 0.2, 0.3]),
        ("taus", [0.1, -0.1]),
        ("taus", [0.1, math.nan]),
        ("taus", [True, 1.0]),
        ("taus", ["0.1", 1.0]),
        ("taus", {"0.1": 1.0}),
        ("orders", range(2, 1000)),
        ("count", 0),
        ("count", 1.5),
    ],
)
def test_bad_numbers_are_named_with_a_fix_and_forged_ones_are_not_read(name, bad):
    good = {"orders": [2.0, 16.0], "taus": [0.04, 0.4], "count": 1}
    with pytest.raises(DpsieveError, match=rf"^{name}.*Pass "):
        Renyi(**{**good, name: bad})
    with pytest.raises(DpsieveError):
        spend_from_json({"kind": "renyi", **good, name: bad})


def test_unknown_and_missing_fields_are_refused():
    good = Renyi([2.0], [0.1]).to_json()
    for data in ({**good, "rho": 0.1}, {key: good[key] for key in ("kind", "orders", "count")}):
        with pytest.raises(InvalidValue, match="other fields"):
            spend_from_json(data)


@pytest.mark.parametrize(
    "spends",
    [
        [Renyi([1 + 1e-15], [0.0]), Renyi([1e9], [1e9], count=10**6)],
        [Renyi([2.0, 1e9], [0.0, 1e9]), Gaussian(1e-308, 1e308), Approximate(500.0, 0.5, count=10**6)],
        [Renyi([5.0], [1e-300]), Approximate(1e-300), ZeroConcentrated(1e6, count=10**6)],
    ],
)
def test_extreme_spends(spends):
    curve = Composition(spends)
    assert 0.0 <= curve.delta(1.0) <= curve.delta(0.0) <= 1.0
    assert 0.0 <= curve.epsilon(1e-6) <= curve.epsilon(0.0)


def test_hundreds_of_different_lists_are_composed_in_a_moment():
    spends = [gaussian_list(0.01, [1 + (1 + i / 1000) * (a - 1) for a in FEW]) for i in range(300)]
    assert Composition(spends).epsilon(1e-6) == pytest.approx(zcdp_epsilon(300 * 0.01**2 / 2, 1e-6), rel=0.1)


class TestLedger:
    def test_refusals_name_the_orders(self, tmp_path):
        ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
        with pytest.raises(BudgetExceeded, match=re.escape("orders=2..64, taus=1..32 does not fit")):
            ledger.spend(Renyi([2, 64], [1, 32]))
        assert len(ledger) == 0
        ledger.spend(gaussian_list(0.05, FEW))
        left = ledger.remaining()
        ledger.spend(left)
        assert ledger.spent() <= 1.0
