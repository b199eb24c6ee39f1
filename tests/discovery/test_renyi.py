"""Renyi selection: a key is published with a probability that depends on its sum of weights."""

import dataclasses
import math

import numpy as np
import pytest
from helpers.exact_neighbours import climb, rounded_delta
from helpers.privacy_curves import repeated_epsilon
from helpers.scripted import Repeating, Scripted
from helpers.searched_units import coins, searched_curves
from helpers.statistical import binomial_band

from dpsieve.discovery.renyi import RenyiSelection, renyi_selection
from dpsieve.discovery.renyi_tables import Promise, reporting_table
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidType, InvalidValue, NotCertified
from dpsieve.noise.report_tables import ReportingTable
from dpsieve.privacy import Approximate, Composition
from dpsieve.privacy.mechanism import from_json
from dpsieve.randomness import SystemSource

SOURCE = SystemSource()
LARGE = 0.05  # a delta large enough to measure


@pytest.fixture(scope="module")
def ordinary():
    return renyi_selection(1.0, 1e-5, 100, typical_keys=8)


def integer(table, row):
    return int(table.high[row]) << 64 | int(table.low[row])


def test_keys_that_many_units_hold_are_published():
    units = [["common", f"own {k}", "second"] for k in range(200)] + [["second"]] * 40
    held = Pairs.of(units)
    chosen = renyi_selection(1.0, 1e-6, 3).select(held, SOURCE)
    published = held.keys["key"].filter(chosen).to_pylist()
    assert {"common", "second"} <= set(published)
    assert len(published) <= 4  # each of the 200 keys of one unit shows once in several million releases


@pytest.mark.parametrize(("keys", "users"), [(1, 11.5), (3, 25.5), (10, 37.6), (30, 54.3), (100, 84.4)])
def test_how_many_users_give_an_even_chance(keys, users):
    """Units that all have the same number of keys; a Renyi account would need 11.4, 26.9, 41.9, 61.2 and 94.9."""
    selection = renyi_selection(1.0, 1e-5, keys, typical_keys=keys)
    assert selection.users_needed(keys) == pytest.approx(users, rel=0.015)


def test_one_key_a_unit_comes_close_to_the_optimal_channel():
    optimal = math.log1p(math.expm1(1.0) * 0.5 / 1e-5)  # delta expm1(n) / expm1(1) = 1/2
    assert optimal < renyi_selection(1.0, 1e-5, 1).users_needed(1) < 1.01 * optimal


def number(ours, theirs, m, leak, promise):
    """B of a pair by its definition: a complex transform, and an integral over the Cauchy variable on a fine grid."""
    a = promise.power
    c = math.sqrt(a * (a + 1))
    z = a + 1j * c * np.tan((np.arange(2_000) + 0.5) * (math.pi / 2 / 2_000))
    (p, not_p), (q, not_q) = ours, theirs
    p, not_p = (max(0.0, p - leak), not_p) if p * not_q >= not_p * q else (p, max(0.0, not_p - leak))
    if (p and not q) or (not_p and not not_q):
        return math.inf
    terms = [x * np.exp(z * math.log(x / y)) for x, y in ((p, q), (not_p, not_q)) if x]
    return math.exp(-a * promise.epsilon) / (2 * c) * float(np.mean(np.abs(sum(terms)) ** m))


def excess(before, after, m, promise):
    """By which factor a step is above what is allowed, in the worse direction, for the best of many leaks."""
    worst = 0.0
    for ours, theirs in ((after, before), (before, after)):
        parts = np.append(np.linspace(0.0, 0.995, 12), promise.classes()[0] / promise.leak)
        found = [number(ours, theirs, m, t * promise.leak / m, promise) / ((1 - t) * promise.rest) for t in parts]
        worst = max(worst, min(found))
    return worst


@pytest.mark.parametrize("leak", [0.02, 0.05])
def test_rows_are_as_large_as_the_definition_allows(leak):
    """Every step is allowed by its definition, and to each row some step is nearly not: no row could be larger."""
    promise = Promise(1.0, 3.0, leak, 0.04, share=0.8, bits=2, steps=(2, 3, 4))
    table = reporting_table(promise)
    promise.check(table)
    rows = coins(table, range(table.last + 5))
    for h in range(1, table.last + 4):
        ratios = [excess(rows[max(0, h - w)], rows[h], 16 / (0.8 * w**2), promise) for w in promise.steps]
        assert max(ratios) <= 1.0
        assert max(ratios) > 0.8 or not 1 < h < table.last - 4


@pytest.mark.parametrize(
    ("epsilon", "delta", "max_keys", "typical_keys"), [(1.0, 1e-5, 100, 8), (3.0, 1e-12, 50, 20), (1.0, 0.05, 5, None)]
)
def test_steps_of_what_is_stored_by_the_definition(epsilon, delta, max_keys, typical_keys):
    """The integers themselves keep the promise, for random rows and steps, and nearly break it."""
    selection = renyi_selection(epsilon, delta, max_keys, typical_keys=typical_keys)
    selection.certify()
    table, rng, ratios = selection.table, np.random.default_rng(1), []
    for _ in range(25):
        h, w = int(rng.integers(1, table.last)), int(rng.choice(selection.steps))
        before, after = coins(table, (max(0, h - w), h))
        ratios.append(excess(before, after, 4**selection.bits / w**2, selection.promise))
    assert max(ratios) <= 1.0
    assert max(ratios) > 0.9


@pytest.mark.parametrize(("delta", "typical_keys"), [(1e-5, 8), (1e-5, 20), (1e-8, 8)])
def test_the_worst_searched_unit_uses_most_of_delta(delta, typical_keys):
    """Exact curves of 800 units, of 8 to 60 keys, in both directions: none above delta, the worst above 0.9 of it."""
    selection = renyi_selection(1.0, delta, 100, typical_keys=typical_keys)
    weights = selection.weight.of_keys(100)
    units = [(keys, weights[keys - 1]) for keys in (typical_keys, 2 * typical_keys, 60)]
    found = [curve[0] for _, curve in searched_curves(selection, units, 60, [1.0])]
    assert 0.9 * delta < max(found) <= delta


def test_the_exact_delta_of_neighbours_is_below_the_promise():
    """Random and climbing searches over what others hold, for units of all sizes; the worst comes close."""
    selection, rng = renyi_selection(1.0, LARGE, 8), np.random.default_rng(2)
    weights, last = selection.weight.of_keys(8), selection.table.last
    worst = 0.0
    for keys in range(1, 9):
        weight = weights[keys - 1]

        def score(sums, weight=weight):
            coins = selection.reporting_probability(np.concatenate([sums + weight, sums]))
            return rounded_delta(coins[: len(sums)], coins[len(sums) :], 1.0)

        def moved(sums, rng):
            change = rng.integers(-60, 61, len(sums)) * (rng.random(len(sums)) < 0.4)
            return np.clip(sums + change, 0, last)

        for start in (np.zeros(keys, np.int64), *rng.integers(0, last, (3, keys))):
            worst = max(worst, climb(score, start, moved, rng, 60))
    assert 0.75 * LARGE < worst <= LARGE


def test_the_measured_rate_of_keys_that_one_unit_holds_alone():
    """Many lone units, each with many keys of its own: how often anything of one is published."""
    selection, units, keys = renyi_selection(1.0, LARGE, 40), 20_000, 40
    lone = Pairs.of([[(u, k) for k in range(keys)] for u in range(500)])
    shown = sum(selection.select(lone, SOURCE).reshape(500, keys).any(axis=1).sum() for _ in range(units // 500))
    each = float(selection.reporting_probability([selection.weight.of_keys(keys)[-1]])[0])
    low, high = binomial_band(units, 1 - (1 - each) ** keys)
    assert low <= shown <= high
    assert 0.85 * LARGE < 1 - (1 - each) ** keys <= selection.leak <= LARGE


def test_draws_follow_the_table(ordinary):
    sums = np.array([ordinary.table.last * k // 20 for k in range(1, 20)])
    draws = sum(ordinary.select_by_weights(sums, SOURCE).astype(int) for _ in range(4000))
    for drawn, chance in zip(draws, ordinary.reporting_probability(sums), strict=True):
        low, high = binomial_band(4000, chance)
        assert low <= drawn <= high


def test_a_sum_of_zero_is_never_published_and_a_large_one_surely(ordinary):
    sums = np.array([0, 0, ordinary.table.last, 2**62])
    assert ordinary.select_by_weights(sums, Repeating(0)).tolist() == [False, False, True, True]
    assert ordinary.select_by_weights(sums, Repeating(2**64 - 1)).tolist() == [False, False, True, True]


def test_a_word_that_decides_nothing_is_followed_by_another(ordinary):
    row = ordinary.table.last // 2
    high, low = int(ordinary.table.high[row]), int(ordinary.table.low[row])
    for first, second, expected in (
        (high - 1, 0, True),
        (high, low - 1, True),
        (high, low, False),
        (high + 1, 0, False),
    ):
        assert ordinary.select_by_weights(np.array([row]), Scripted(first, second)).tolist() == [expected]


def test_the_certificate(ordinary):
    certificate = ordinary.certify()
    assert [(part.scope, part.method) for part in certificate.parts] == [
        ("one key", "formula"),
        ("one unit", "formula"),
    ]
    assert 0.999e-5 < certificate.worst <= 1e-5
    assert certificate.parts[0].worst < certificate.worst


@pytest.mark.parametrize("factor", [1.03, 0.97])
@pytest.mark.parametrize("place", [0.01, 0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_forged_row_is_refused(ordinary, place, factor):
    table, row = ordinary.table, int(place * ordinary.table.last)
    value = int(integer(table, row) * factor) if place < 0.5 else 2**128 - int((2**128 - integer(table, row)) * factor)
    high, low = table.high.copy(), table.low.copy()
    high[row], low[row] = value >> 64, value & (2**64 - 1)
    with pytest.raises(NotCertified, match="differ by more than a step"):
        ordinary.promise.check(ReportingTable(high, low))


def test_a_forged_table_is_refused_by_the_mechanism(monkeypatch):
    selection = renyi_selection(1.0, LARGE, 3)
    table = selection.table
    for cut in (1, table.last // 2):  # certainty comes too early
        forged = ReportingTable(table.high[:-cut], table.low[:-cut])
        monkeypatch.setitem(selection.__dict__, "table", forged)
        with pytest.raises(NotCertified):
            selection.certify()
    monkeypatch.setitem(selection.__dict__, "table", ReportingTable(table.high[1:], table.low[1:]))
    with pytest.raises(NotCertified, match="zero"):
        selection.certify()


@pytest.mark.parametrize("field", [{"rest": 1.001}, {"leak": 1.001}, {"power": 0.2}, {"delta": 0.99}], ids=str)
def test_a_forged_field_is_refused(ordinary, field):
    (name, factor), saved = *field.items(), ordinary.to_json()
    with pytest.raises(InvalidValue, match="break epsilon and delta"):
        from_json({**saved, name: saved[name] * factor})


def test_it_is_saved_and_read_again(ordinary):
    again = from_json(ordinary.to_json())
    assert again == ordinary
    assert isinstance(again, RenyiSelection)
    assert again.table is ordinary.table
    assert "renyi selector of at most 100 keys per unit" in repr(again)


@pytest.mark.parametrize("field", [{"epsilon": 0.99}, {"power": 1.05}, {"share": 1.05}, {"least": 0.5}], ids=str)
def test_a_table_for_other_fields_is_refused(monkeypatch, field):
    """Fields that are sound in themselves, with the table that was grown for the saved ones."""
    selection = renyi_selection(1.0, 1e-5, 20, typical_keys=4, share=0.5)
    ((name, factor),) = field.items()
    forged = dataclasses.replace(selection, **{name: type(getattr(selection, name))(getattr(selection, name) * factor)})
    monkeypatch.setitem(forged.__dict__, "table", selection.table)
    if name == "share":
        forged.certify()  # a larger share than the table needs is only worse for what follows
        monkeypatch.setitem(selection.__dict__, "table", dataclasses.replace(selection, share=0.6).table)
        forged = selection
    with pytest.raises(NotCertified):
        forged.certify()


def test_a_share_leaves_the_rest_to_others():
    part = renyi_selection(1.0, 1e-5, 20, share=0.25)
    assert part.certify().worst <= 1e-5
    assert part.users_needed(20) > 1.5 * renyi_selection(1.0, 1e-5, 20).users_needed(20)


def test_the_power_can_be_chosen():
    chosen, best = renyi_selection(1.0, 1e-5, 10, power=25.0), renyi_selection(1.0, 1e-5, 10)
    assert chosen.power == 25
    assert chosen.certify().worst <= 1e-5
    assert chosen.users_needed(10) > best.users_needed(10)


def test_units_with_few_keys_can_be_made_lighter_for_the_sake_of_others():
    alone, together = renyi_selection(1.0, 1e-5, 100), renyi_selection(1.0, 1e-5, 100, typical_keys=10)
    assert (together.least, together.heaviest) == (10, together.weight.of_keys(10)[-1])
    assert together.users_needed(20) < 0.85 * alone.users_needed(20)
    assert together.users_needed(1) > alone.users_needed(1)


@pytest.mark.parametrize(
    ("epsilon", "delta", "max_keys"), [(50.0, 1e-20, 10_000), (0.02, 1e-8, 50), (5.0, 0.5, 1), (1.0, 1e-20, 300)]
)
def test_every_budget_has_a_table(epsilon, delta, max_keys):
    selection = renyi_selection(epsilon, delta, max_keys)
    assert 0.99 * delta < selection.certify().worst <= delta


def test_no_unit_weighs_more_than_one(ordinary):
    for keys, weight in enumerate(ordinary.weight.of_keys(ordinary.max_keys), 1):
        assert keys * weight**2 <= 4**ordinary.bits


def test_bad_arguments_are_named():
    for wrong in ({"share": 0.0}, {"share": 1.5}, {"typical_keys": 0}, {"power": 0.0}, {"power": 3.0}):
        with pytest.raises(InvalidValue, match=next(iter(wrong))):
            renyi_selection(1.0, 1e-5, 10, **wrong)
    with pytest.raises(InvalidType, match="max_keys"):
        renyi_selection(1.0, 1e-5, "10")
    with pytest.raises(InvalidValue, match="delta"):
        renyi_selection(1.0, 0.0, 10)
    with pytest.raises(InvalidValue, match="keys"):
        renyi_selection(1.0, 1e-5, 10).users_needed(11)
    with pytest.raises(InvalidValue, match="bits"):
        dataclasses.replace(renyi_selection(1.0, 1e-5, 10), bits=1, least=10)


def test_what_it_spends_at_lower_orders_is_what_its_coins_diverge_by(ordinary):
    renyi, leak = ordinary.spends()
    assert leak == Approximate(0.0, ordinary.leak)
    assert renyi.orders[-1] == ordinary.power + 1
    p = ordinary.table.probability(np.arange(ordinary.table.last))
    for order, tau in list(zip(renyi.orders, renyi.taus, strict=True))[::3]:
        worst = 0.0
        for step in ordinary.steps:
            part = (step / 2**ordinary.bits) ** 2
            d = ordinary.leak * part
            low, high = p[np.maximum(0, np.arange(1, len(p)) - step)], p[1:]
            far = high - low > d * 1.001
            x, y = (high[far] - d) / (1 - d), low[far] / (1 - d)
            pairs = ((x, y), (y, x))
            sums = [u**order * v ** (1 - order) + (1 - u) ** order * (1 - v) ** (1 - order) for u, v in pairs]
            worst = max(worst, math.log(np.max(sums)) / (order - 1) / part)
        assert tau == pytest.approx(worst, rel=1e-4)


def test_many_selections_cost_far_less_than_their_sum(ordinary):
    single = Composition(ordinary.spends()).delta(1.0)
    assert 1e-5 < single < 6e-5  # one use costs less by its guarantee
    whole = repeated_epsilon(50, 1e-3, each_epsilon=1.0, each_delta=1e-5)
    assert Composition(ordinary.spends() * 50).epsilon(1e-3) < 8 < 41 < whole
