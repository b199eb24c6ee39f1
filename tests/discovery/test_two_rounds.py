"""Two rounds of Renyi selection: a noisy first look tells units where their weight counts."""

import dataclasses
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.exact_neighbours import climb, rounded_delta
from helpers.searched_units import searched_curves, worst_after_a_look
from helpers.statistical import binomial_band
from scipy.special import ndtr

from dpsieve.accounting.curves import gaussian_sigma
from dpsieve.discovery.renyi import TwoRounds, renyi_selection, two_rounds
from dpsieve.discovery.renyi_tables import reporting_table
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.privacy.mechanism import from_json
from dpsieve.randomness import SystemSource

SOURCE = SystemSource()
LARGE = 0.05  # a delta large enough to measure


@pytest.fixture(scope="module")
def ordinary():
    return two_rounds(1.0, 1e-5, 100, typical_keys=8)


def weights_of(selector, importance):
    """Return what one unit with these keys adds to each of them."""
    alone = Pairs.of([range(len(importance))])
    return selector.sums(alone, np.array(importance, np.int64))


def on_grid(selector, bits):
    """Return the same mechanism on another grid."""
    return dataclasses.replace(selector, bits=bits, sigma=selector.sigma * 2.0 ** (bits - selector.bits))


def test_more_keys_are_published_than_in_one_round():
    """Units hold a few of 3,000 keys, of which some are much more frequent than others; 25 draws of each."""
    rng = np.random.default_rng(5)
    chances = 1 / np.arange(1, 3001)
    drawn = rng.choice(3000, (15_000, 9), p=chances / chances.sum())
    held = Pairs.of(drawn.tolist())
    selectors = [make(1.0, 1e-5, 10, typical_keys=8) for make in (renyi_selection, two_rounds)]
    one, two = (np.array([selector.select(held, SOURCE) for _ in range(25)]) for selector in selectors)
    assert two.sum() > 1.03 * one.sum() > 25 * 200
    assert (held.counts() * ~two).sum() < (held.counts() * ~one).sum()


@pytest.mark.parametrize(("bits", "least"), [(2, 1), (5, 3), (8, 4), (8, 1), (12, 50)])
def test_the_squares_of_one_unit_sum_to_at_most_one(ordinary, bits, least):
    selector = dataclasses.replace(on_grid(ordinary, bits), least=least)
    rng, levels = np.random.default_rng(6), (0, 1, 100, 333, 999, 1000)
    small = (each for keys in range(1, 5) for each in itertools.product(levels, repeat=keys))
    random = [(rng.integers(0, 1001, keys) * (rng.random(keys) < rng.random())).tolist() for keys in range(1, 200)]
    for importance in itertools.chain(small, random):
        weights = weights_of(selector, importance)
        assert 0 <= weights.min() <= weights.max() <= selector.heaviest
        assert (weights**2).sum() <= 4**bits
        assert (weights[np.array(importance) == 0] == 0).all()


def test_the_weight_is_spent_nearly_whole(ordinary):
    """What rounding and the cap leave unused: less than one key could take, as long as there are keys below the cap."""
    rng = np.random.default_rng(7)
    for keys in (8, 20, 90):
        weights = weights_of(ordinary, rng.integers(100, 1001, keys))
        assert (weights**2).sum() > 4**ordinary.bits - 2 * ordinary.heaviest


def test_equal_importance_gives_the_weights_of_one_round(ordinary):
    """But for some keys that are rounded up."""
    plain = dataclasses.replace(renyi_selection(1.0, 1e-5, 100), bits=ordinary.bits, least=ordinary.least)
    for keys, expected in enumerate(plain.weight.of_keys(100), 1):
        assert set(weights_of(ordinary, [1] * keys).tolist()) <= {expected, expected + 1}


def test_the_order_of_units_and_the_numbers_of_keys_do_not_matter(ordinary):
    rng = np.random.default_rng(8)
    units = [rng.choice(30, rng.integers(1, 20), replace=False).tolist() for _ in range(60)]
    by_key = rng.integers(0, 1001, 30)

    def sums(units):
        held = Pairs.of(units)  # numbers keys as they come
        keys = held.keys["key"].to_pylist()
        return dict(zip(keys, ordinary.sums(held, by_key[keys]).tolist(), strict=True))

    assert sums(units) == sums([units[k] for k in rng.permutation(len(units))])


def test_importance_rises_and_falls(ordinary):
    noise, enough = ordinary.sigma, ordinary.table.crossing(0.8)
    safe = 0.3 * enough + noise
    noisy = np.rint([-(10**15), -noise, 0, 0.6 * noise, safe, 2 * safe, 5 * safe, 10**15]).astype(np.int64)
    found = ordinary.importance(noisy).tolist()
    assert found[:2] == [0, 0]
    assert 600 <= found[2] <= 630
    assert found[3:5] == [1000, 1000]
    assert found[5:] == pytest.approx([500, 200, 30], rel=0.01)


def pmf(sigma, reach):
    x = np.arange(-reach, reach + 1)
    return ndtr((x + 0.5) / sigma) - ndtr((x - 0.5) / sigma)


@pytest.mark.parametrize("others", [[], ["ab"], ["a"] * 6 + ["ab"] * 4, ["a"] * 20 + ["b"] * 3])
def test_the_exact_delta_of_both_rounds_together(others):
    """Two keys and every outcome of round one, as if it were published too, for a unit that holds both keys."""
    selector = on_grid(two_rounds(1.0, LARGE, 2), 2)
    selector.certify()
    reach = int(6.5 * selector.sigma)
    noise = pmf(selector.sigma, reach)
    keys = Pairs.of(["ab"]).keys  # both keys exist in either case
    without, with_unit = (dataclasses.replace(Pairs.of(units), keys=keys) for units in (others, [*others, "ab"]))
    firsts = [selector.sums(held, np.ones(2, np.int64)) for held in (without, with_unit)]
    span = np.arange(-reach, int(max(first.max() for first in firsts)) + reach + 1)
    levels, place = np.unique(selector.importance(span), return_inverse=True)
    joint = []
    for held, first in zip((without, with_unit), firsts, strict=True):
        looks = [np.zeros(len(span)) for _ in range(2)]
        for look, start in zip(looks, first, strict=True):
            look[int(start) : int(start) + len(noise)] = noise
        pairs = [selector.sums(held, np.array(pair)) for pair in itertools.product(levels, repeat=2)]
        coins = selector.table.probability(np.array(pairs)).reshape(len(levels), len(levels), 2)[place][:, place]
        a, b = coins[..., 0], coins[..., 1]
        outputs = np.stack([a * b, a * (1 - b), (1 - a) * b, (1 - a) * (1 - b)])
        joint.append(outputs * np.outer(*looks))
    q, p = joint
    worst = max(np.maximum(0, p - np.e * q).sum(), np.maximum(0, q - np.e * p).sum())
    assert worst <= LARGE


def test_round_two_alone_on_searched_neighbours():
    """What one unit more changes, by enumeration; importances and what others hold are found by climbing."""
    selector, rng = two_rounds(1.0, LARGE, 6), np.random.default_rng(9)
    last, worst = selector.table.last, 0.0

    def score(state):
        importance, sums = state
        weights = weights_of(selector, importance)
        coins = selector.table.probability(np.concatenate([sums + weights, sums]))
        return rounded_delta(coins[: len(sums)], coins[len(sums) :], 1.0)

    def moved(state, rng):
        importance, sums = state
        some = rng.random(len(sums)) < 0.4
        importance = np.where(some, rng.integers(0, 1001, len(sums)), importance)
        return importance, np.clip(sums + rng.integers(-60, 61, len(sums)) * some, 0, last)

    for keys in (1, 2, 4, 6):
        for start in (np.zeros(keys, np.int64), *rng.integers(0, last, (2, keys))):
            worst = max(worst, climb(score, (rng.integers(1, 1001, keys), start), moved, rng, 80))
    assert 0.75 * max(selector.leak, selector.rest) < worst <= max(selector.leak, selector.rest) < LARGE


@pytest.mark.parametrize("typical_keys", [8, 20])
def test_the_worst_rule_for_weights_stays_below_delta(typical_keys):
    """For every value of the look's loss the worst of 1,000 units: exact curves, and a rule that no unit would follow.

    The worst uses three quarters of delta and more. A table whose leaks and rest could be traded as freely as without a
    look would break the promise by a sixth.
    """
    selector = two_rounds(1.0, 1e-5, 100, typical_keys=typical_keys)
    mu, sizes = selector.look_mu, (selector.least, 2 * selector.least, 4 * selector.least, 30)
    units = [(keys, math.isqrt(4**selector.bits // keys)) for keys in sizes]
    epsilons = 1.0 - np.linspace(-6, 8, 201) * mu
    worst = worst_after_a_look(searched_curves(selector, units, 60, epsilons), 1.0, epsilons, mu)
    assert 0.75e-5 < worst <= 1e-5
    growth = math.exp(selector.power * (selector.power + 1) * mu**2 / 2)
    free = dataclasses.replace(selector.promise, leak=1e-5, rest=1e-5 / growth)
    forged = SimpleNamespace(table=reporting_table(free))
    assert worst_after_a_look(searched_curves(forged, units, 60, epsilons), 1.0, epsilons, mu) > 1.1e-5


def test_one_unit_more_changes_its_own_keys_alone():
    """In round two, given the outcome of round one, whatever others hold."""
    selector, rng = two_rounds(1.0, LARGE, 6), np.random.default_rng(10)
    for _ in range(50):
        units = [rng.choice(12, rng.integers(1, 7), replace=False).tolist() for _ in range(20)]
        importance = rng.integers(0, 1001, 12)
        whole = Pairs.of([range(12), *units])
        starts = whole.starts[1:]
        more, less = (Pairs(whole.keys, at, whole.key_numbers) for at in (starts, starts[:-1]))
        change = selector.sums(more, importance) - selector.sums(less, importance)
        own = np.isin(np.arange(12), units[-1])
        assert (change[~own] == 0).all()
        assert (change**2).sum() <= 4**selector.bits


def test_the_measured_rate_of_keys_that_one_unit_holds_alone():
    """Many lone units, each with many keys of its own: how often anything of one is published."""
    selector, units, keys = two_rounds(1.0, LARGE, 40), 20_000, 40
    lone = Pairs.of([[(u, k) for k in range(keys)] for u in range(500)])
    shown = sum(selector.select(lone, SOURCE).reshape(500, keys).any(axis=1).sum() for _ in range(units // 500))
    assert 0 < shown <= binomial_band(units, selector.leak)[1]
    assert selector.leak < LARGE


def test_a_key_that_nobody_holds_is_never_published(ordinary):
    held = Pairs.of([["a", "b"], ["b"]])
    nobody = Pairs(held.keys, np.array([0, 0]), held.key_numbers[:0])
    assert not any(ordinary.select(nobody, SOURCE).any() for _ in range(20))
    assert len(ordinary.select(Pairs.of([]), SOURCE)) == 0


def test_the_certificate(ordinary):
    certificate = ordinary.certify()
    assert [(part.scope, part.method) for part in certificate.parts] == [
        ("one key", "formula"),
        ("one unit", "formula"),
    ]
    assert 0.999e-5 < certificate.worst <= 1e-5
    assert ordinary.look_mu == pytest.approx(math.sqrt(0.1) / gaussian_sigma(1.0, 1e-5))
    assert len(ordinary.steps) == ordinary.heaviest  # every whole step


def test_what_is_forged_is_refused(ordinary, monkeypatch):
    saved = ordinary.to_json()
    for name, factor in {"rest": 1.001, "leak": 1.001, "power": 1.01, "delta": 0.99, "sigma": 0.99}.items():
        with pytest.raises(InvalidValue, match="break epsilon and delta"):
            from_json({**saved, name: saved[name] * factor})
    forged = from_json(saved)
    generous = dataclasses.replace(forged, epsilon=1.02).table
    monkeypatch.setitem(forged.__dict__, "table", generous)
    with pytest.raises(NotCertified, match="differ by more"):
        forged.certify()


def test_it_is_saved_and_read_again(ordinary):
    again = from_json(ordinary.to_json())
    assert again == ordinary
    assert isinstance(again, TwoRounds)
    assert again.importance(np.array([5])).tolist() == ordinary.importance(np.array([5])).tolist()


def test_a_share_and_a_power_can_be_chosen():
    part = two_rounds(1.0, 1e-5, 20, share=0.25, power=16.0)
    assert (part.power, part.share) == (16, 0.25)
    assert part.certify().worst <= 1e-5


def test_it_spends_both_rounds(ordinary):
    renyi, leak = ordinary.spends()
    assert leak.delta == ordinary.leak and renyi.orders[-1] == ordinary.power + 1
    first = [order * 4**ordinary.bits / (2 * ordinary.sigma**2) for order in renyi.orders]
    second = ordinary.table.taus(renyi.orders, ordinary.leak, bits=ordinary.bits, steps=ordinary.steps)
    assert np.add(first, second) == pytest.approx(renyi.taus, rel=1e-4)
    assert all(a < b for a, b in itertools.pairwise(renyi.taus))
