"""The filter of a ledger: exact games that an adversary plays against the real rules, and what the rules admit."""

import errno
import math
import os
import random
import time
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from dpsieve.accounting.composition import convert_to_replacement
from dpsieve.accounting.curves import gaussian_curve, gaussian_delta, range_divergence, renyi_delta
from dpsieve.errors import BudgetExceeded, InvalidType, InvalidValue, LedgerError
from dpsieve.numbers.quantiles import GapQuantiles
from dpsieve.privacy import (  # fmt: skip
    Approximate,
    BoundedRange,
    Composition,
    DiscreteLaplace,
    Gaussian,
    Renyi,
    ZeroConcentrated,
)
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.ledger import Ledger
from dpsieve.privacy.ledger.chain import Chain
from dpsieve.privacy.ledger.rules import SUMS, Cost, Rules


def chain_of(budget, *costs):
    """Return a chain in memory, with these entries."""
    return added(Chain(Rules.of(budget), ""), *costs)


def added(chain, *costs):
    """Return a chain with more entries at its end."""
    for cost in costs:
        chain = chain.plus([chain.following(cost, "")])
    return chain


def admitted(budget, spend, most=2000):
    """Return how many spends of one kind fit, one by one."""
    rules, cost = Rules.of(budget), spend if isinstance(spend, Cost) else Cost(spend)
    one = rules.totals(cost)
    division = rules.divisions[rules.choose(one)]
    fits = (rules.find_rule(one.times(Fraction(n)), division) for n in range(1, most))
    return next((n for n, rule in enumerate(fits) if rule is None), most)


# Exact games


def response(epsilon):
    """Return randomised response: losses with their probabilities."""
    truth = 1 / (1 + math.exp(-epsilon))
    return ((epsilon, truth), (-epsilon, 1 - truth))


def bounded(epsilon, top):
    """Return the pair with losses `top` and `top - epsilon`, the extreme one of a bounded range."""
    high = (1 - math.exp(top - epsilon)) / (1 - math.exp(-epsilon))
    return ((top, high), (top - epsilon, 1 - high))


def two_readings(shown, rare, high, epsilon):
    """Return a move that leaks with probability `shown`, and else has a high loss, rarely, or one a little below zero.

    By its curves the leak is `shown`, and the rare loss is in the divergences. As (epsilon, delta)-DP, the rare loss is
    a leak too. So the two readings have different leaks, and an adversary may answer each with another rule.
    """
    low = math.log((1 - rare) / (1 - rare * math.exp(-high)))
    pair = ((high, rare), (low, 1 - rare))
    orders = (1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0)

    def tau(order):
        there = sum(chance * math.exp((order - 1) * loss) for loss, chance in pair)
        back = sum(chance * math.exp(-order * loss) for loss, chance in pair)
        return math.log(max(there, back)) / (order - 1) * (1 + 1e-9)

    delta = shown + (1 - shown) * rare * (1 - math.exp(epsilon - high))
    curves = (Renyi(orders, map(tau, orders)), Approximate(0.0, shown))
    return Cost(Approximate(epsilon, delta), curves), shown, [pair]


TWO_READINGS = two_readings(0.002, 0.004, 1.0, 0.25)
RARE_LOSS = two_readings(0.002, 0.05, 2.0, 0.25)
MOVES = [
    (Cost(Approximate(0.25)), 0.0, [response(0.25)]),
    (Cost(Approximate(0.5)), 0.0, [response(0.5)]),
    (Cost(Approximate(0.25, 0.008)), 0.008, [response(0.25)]),
    (Cost(Approximate(0.0, 0.02)), 0.02, [((0.0, 1.0),)]),
    (Cost(Approximate(0.5), (BoundedRange(0.5),)), 0.0, [bounded(0.5, top) for top in (0.125, 0.25, 0.375)]),
]


def worst_delta(budget, moves):
    """Return the largest delta that an adversary reaches who sees every loss before the next move, exactly."""
    rules = Rules.of(budget)
    each = [rules.totals(cost) for cost, _, _ in moves]
    divisions = [rules.divisions[rules.choose(one)] for one in each]

    @cache
    def allowed(counts, first):
        totals = rules.totals()
        for count, one in zip(counts, each, strict=True):
            totals = totals.plus(one.times(Fraction(count))) if count else totals  # 0 times infinity is no number
        return rules.find_rule(totals, divisions[first]) is not None

    @cache
    def value(counts, first, loss):
        best = max(0.0, 1 - math.exp(budget.epsilon - loss))
        for move, (_, leak, pairs) in enumerate(moves):
            after = tuple(count + (i == move) for i, count in enumerate(counts))
            start = move if first is None else first
            if not allowed(after, start):
                continue
            for pair in pairs:
                went = sum(chance * value(after, start, round(loss + step, 9)) for step, chance in pair)
                best = max(best, leak + (1 - leak) * went)
        return best

    return value((0,) * len(moves), None, 0.0)


@pytest.mark.parametrize(
    ("budget", "moves"),
    [
        (Guarantee(1.0, 0.05), MOVES[:4]),
        (Guarantee(1.0, 0.1), [MOVES[0], *MOVES[3:5]]),
        (Guarantee(1.5, 0.05), [MOVES[0], MOVES[2], MOVES[4]]),
        (Guarantee(1.0, 0.05), [MOVES[0], MOVES[3], TWO_READINGS]),
        (Guarantee(1.0, 0.05), [MOVES[0], RARE_LOSS]),
        (Guarantee(1.0, 0.0), MOVES[:3]),
        (Guarantee(0.5, 0.02), [MOVES[1], (Cost(Approximate(0.5, 0.02)), 0.02, [response(0.5)])]),
    ],
    ids=["sums", "ranges and leaks", "ranges", "two readings", "a rare loss", "pure", "the whole budget"],
)
def test_no_adaptive_game_exceeds_the_budget(budget, moves):
    worst = worst_delta(budget, moves)
    assert worst <= budget.delta + 1e-12
    assert worst >= 0.2 * budget.delta  # the game is not empty


def attack(epsilon, small, most, final):
    """Return the delta of small randomised responses until the best moment, then one last spend of `final(n)`.

    `final(n)` lists (epsilon, delta) that are allowed after n small ones. Losses are multiples of `small`.
    """

    def stopped(loss):
        return np.maximum(0.0, -np.expm1(epsilon - loss))

    ahead = None
    for n in range(most, -1, -1):
        loss = small * np.arange(-n, n + 1, 2)
        best = stopped(loss)
        for e, d in final(n):
            after = sum(chance * stopped(loss + step) for step, chance in response(e))
            best = np.maximum(best, d + (1 - d) * after)
        if ahead is not None:
            truth = 1 / (1 + math.exp(-small))
            best = np.maximum(best, truth * ahead[1:] + (1 - truth) * ahead[:-1])
        ahead = best
    return float(ahead[0])


def left_by_composition(budget, spend, n):
    """Return what one more release may have if only the composition of all is checked, as for fixed amounts."""
    found = []
    for delta in (0.0, 0.9 * budget.delta):
        low, high = 0.0, budget.epsilon
        for _ in range(9):
            middle = (low + high) / 2
            spends = [Approximate(middle, delta), *([Approximate(spend.epsilon, 0.0, n)] if n else [])]
            fits = Composition(spends).delta(budget.epsilon) <= budget.delta
            low, high = (middle, high) if fits else (low, middle)
        found.append((low, delta))
    return found


@pytest.mark.parametrize("small", [Approximate(0.03), Approximate(0.1)])
def test_optimal_stopping_stays_within_the_budget(small):
    budget = Guarantee(1.0, 1e-6)
    most = admitted(budget, small)
    chains = [chain_of(budget)]
    for _ in range(most):
        chains.append(added(chains[-1], Cost(small)))

    def final(n):
        if n % 2:  # every other moment, for speed
            return []
        deltas = (0.0, *(share * max(0.0, chains[n].left_for_leaks()) for share in (0.999,)))
        left = [chains[n].remaining(delta) for delta in deltas]
        return [(one.epsilon, one.delta) for one in left if one]

    assert 0.3e-6 < attack(1.0, small.epsilon, most, final) <= 1e-6


def test_the_same_attack_breaks_a_rule_for_fixed_amounts():
    budget, small = Guarantee(1.0, 1e-6), Approximate(0.03)
    some = {n: left_by_composition(budget, small, n) for n in (35, 42, 49, 56)}
    assert attack(1.0, 0.03, 63, lambda n: some.get(n, [])) > 3e-6


def test_the_kind_of_noise_may_react_to_results():
    """After randomised response, a Gaussian is worse for one answer and a leak for the other."""
    budget, first = Guarantee(1.0, 1e-6), Cost(Approximate(0.25))
    chain = chain_of(budget, first)
    sigma = next(s for s in np.arange(5.0, 9.0, 0.01).tolist() if chain.rule_with(Cost(Gaussian(s))))
    delta = chain.left_for_leaks() * 0.999
    other = chain.remaining(delta)
    (up, truth), (down, lie) = response(0.25)
    leaky = [Composition([Approximate(other.epsilon, delta)]).delta(1.0 - loss) for loss in (up, down)]
    noisy = [gaussian_delta(sigma, 1.0 - loss) for loss in (up, down)]
    assert truth * max(leaky[0], noisy[0]) + lie * max(leaky[1], noisy[1]) <= 1e-6


# What is admitted


def test_how_many_spends_fit():
    budget, larger = Guarantee(1.0, 1e-6), Guarantee(4.0, 1e-6)
    assert admitted(budget, Approximate(0.03)) >= 54
    assert admitted(budget, Approximate(0.1)) == 10
    assert admitted(budget, Gaussian(1 / math.sqrt(0.002))) >= 25
    assert admitted(budget, ZeroConcentrated(0.001)) >= 22
    assert admitted(larger, Approximate(0.1)) >= 62
    assert admitted(larger, Approximate(0.1, 1e-8)) >= 58
    median = GapQuantiles(0.1, (0.5,), 0.0, 1.0)
    assert admitted(larger, Cost(Approximate(0.1), median.spends())) >= 236


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 10, 33])
def test_equal_parts_of_a_budget_use_all_of_it(parts):
    spend = Approximate(1.0 / parts, 1e-6 / parts)
    assert admitted(Guarantee(1.0, 1e-6), spend) == parts


def test_fifty_medians_cost_what_their_range_says(tmp_path):
    median = GapQuantiles(0.1, (0.5,), 0.0, 1.0)
    assert median.spends() == (BoundedRange(0.1),)
    ledger = Ledger(tmp_path / "budget", epsilon=2.0, delta=1e-6)
    chain = added(ledger._chain, *[ledger._cost(median)] * 50)
    assert chain._valid and chain.spent() == pytest.approx(1.66, abs=0.005)  # as pure privacy 3.17


def test_several_levels_of_quantiles_are_charged_by_range_or_by_less():
    added = GapQuantiles(1.0, (0.25, 0.5, 0.75), 0.0, 1.0)
    assert added.spends() == tuple(BoundedRange(one) for one in added.pick_epsilons)
    other = GapQuantiles(1.0, (0.25, 0.5, 0.75), 0.0, 1.0, neighbours="replace")
    (spend,) = other.spends()
    assert Fraction(spend.rho) >= other.rho_of(other.pick_epsilons)
    assert spend.rho < sum(one**2 for one in other.pick_epsilons) / 8


def test_every_division_adds_up_to_delta_and_is_checked_when_read():
    for delta in (1e-6, 0.3, 1e-12, 5e-324, 0.0):
        rules = Rules.of(Guarantee(2.0, delta))
        assert all(division.total <= Fraction(delta) for division in rules.divisions)
        assert Rules.from_json(rules.to_json()) == rules
    whole = Rules.of(Guarantee(1.0, 1e-6)).to_json()
    for place, part in ((0, "leaks"), (0, "own"), (0, "gaussian"), (-1, "own")):
        forged = {**whole, "divisions": [dict(one) for one in whole["divisions"]]}
        forged["divisions"][place][part] = 2e-6
        with pytest.raises(InvalidValue, match="divide more than delta"):
            Rules.from_json(forged)


def test_the_first_entry_decides_and_later_ones_do_not():
    budget = Guarantee(1.0, 1e-6)
    assert chain_of(budget, Cost(Approximate(0.5, 5e-7))).division.leaks is None
    pure = chain_of(budget, Cost(Approximate(0.03)))
    assert pure.division.leaks == 2.5e-7
    assert added(pure, Cost(Approximate(0.1, 2e-7))).division == pure.division
    assert pure.rule_with(Cost(Approximate(0.1, 3e-7))) is None
    assert pure.remaining(2e-7).rule == SUMS


def test_the_division_is_recorded_with_the_first_entry_and_not_chosen_again(tmp_path, monkeypatch):
    """A library with other costs might choose otherwise, after results were seen."""
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    first = ledger.spend(Approximate(0.03))
    division = ledger._chain.division
    monkeypatch.setattr(Rules, "choose", lambda rules, first: len(rules.divisions) - 1)
    again = Ledger.open(tmp_path / "budget")
    assert again._chain.division == division != again._chain.rules.divisions[-1]
    assert again.history() == [first] and again.spend(Approximate(0.03)).division is None


def test_a_first_entry_must_fit_the_division_that_it_names():
    chain = Chain(Rules.of(Guarantee(1.0, 1e-6)), "")
    entry = chain.following(Cost(Approximate(1.0, 1e-6)), "")
    assert chain.parsed(1, entry.text) == (entry.cost, 8)
    for other in range(8):  # none of them has all of delta for leaks
        with pytest.raises(ValueError):
            chain.parsed(1, replace(entry, division=other).text)
    with pytest.raises(InvalidValue):  # a later entry names none
        chain.parsed(2, entry.text)
    with pytest.raises(ValueError):
        chain.parsed(1, replace(entry, division=None).text)


def test_what_is_left_names_the_rule(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    ledger.spend(Approximate(0.03))
    ledger.spend(Approximate(0.03, count=39))
    left = ledger.remaining(0.0)
    assert left.rule == "Renyi divergences of order 23.3"
    assert str(left).endswith("is added or removed, by Renyi divergences of order 23.3.")
    with pytest.raises(BudgetExceeded, match=r"is left at delta 0, by Renyi divergences of order 23\.3\. Spend less"):
        ledger.spend(Approximate(0.5))
    noisy = Ledger(tmp_path / "noisy", epsilon=1.0, delta=1e-6)
    noisy.spend(Gaussian(5.0))
    assert noisy.remaining(0.0).rule == "squares of Gaussian mu"


def test_a_thousand_different_entries_are_charged_quickly(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=4.0, delta=1e-6)
    with ledger._file.writing() as rows:
        chain = rows.verified()
        for i in range(1000):
            entry = chain.following(Cost(Approximate(1e-4 + 1e-8 * i, 1e-12)), "")
            rows.append(entry)
            chain = chain.plus([entry])
    start = time.monotonic()
    assert Ledger.open(tmp_path / "budget").spend(Approximate(0.1, 1e-9)).number == 1001
    assert time.monotonic() - start < 3.0  # 0.2 s on an idle machine


# Costs


@pytest.mark.parametrize(
    "spend",
    [
        Gaussian(1e-155),
        Gaussian(5e-324, 1e300),
        ZeroConcentrated(1000.0, 10**6),
        Renyi([2.0], [1e9], 10**6),
        Approximate(500.0, 0.5, 10**6),
        BoundedRange(500.0, 10**6),
    ],
    ids=lambda spend: spend.name,
)
def test_costs_beyond_all_floats_are_refused_as_too_much(tmp_path, spend):
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    with pytest.raises(BudgetExceeded, match="does not fit the budget"):
        ledger.check(spend)
    with pytest.raises(BudgetExceeded):
        ledger.batch([spend, Approximate(0.1)])


@pytest.mark.parametrize("order", [1.01, 2.0, 7.5, 40.0])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0])
def test_the_divergence_of_a_bounded_range_is_the_largest_of_all_pairs(order, epsilon):
    tops = np.linspace(0, epsilon, 2001)[1:-1]
    pairs = [bounded(epsilon, top) for top in tops.tolist()]
    moments = [sum(chance * math.exp((order - 1) * loss) for loss, chance in pair) for pair in pairs]
    most = math.log(max(moments)) / (order - 1)
    found = BoundedRange(epsilon).divergence(order)
    assert most <= found * (1 + 1e-12) <= most * (1 + 1e-4) + 1e-12
    assert found <= min(epsilon, order * epsilon**2 / 8) * (1 + 1e-12)
    assert float(range_divergence(order, epsilon)) == pytest.approx(found)


@pytest.mark.parametrize(("scale", "sensitivity"), [(10.0, 5), (2.0, 7), (30.0, 31), (0.5, 2), (4.0, 1)])
@pytest.mark.parametrize("order", [1.5, 3.0, 20.0])
def test_the_divergence_of_discrete_laplace_noise_is_exact(scale, sensitivity, order):
    z = np.arange(-60 * int(scale + 1), 60 * int(scale + 1) + sensitivity + 1)
    loss = (np.abs(z - sensitivity) - np.abs(z)) / scale
    mass = np.exp(-np.abs(z) / scale) * math.tanh(1 / (2 * scale))
    exact = math.log((mass * np.exp((order - 1) * loss)).sum()) / (order - 1)
    assert DiscreteLaplace(scale, sensitivity).divergence(order) == pytest.approx(exact, rel=1e-9)


def test_gaussian_noise_dominates_what_it_stands_for():
    """At every epsilon, in both directions, the curve of the pair is below that of the Gaussian."""
    rules = Rules.of(Guarantee(1.0, 1e-6))
    at = np.linspace(-4, 4, 401)
    for spend, pairs in (
        (Approximate(0.7), [response(0.7)]),
        (Approximate(3.0), [response(3.0)]),
        (BoundedRange(0.7), [bounded(0.7, top) for top in (0.01, 0.2, 0.35, 0.6)]),
        (BoundedRange(4.0), [bounded(4.0, top) for top in (0.1, 1.0, 2.0, 3.9)]),
    ):
        mu = math.sqrt(rules.totals(Cost(spend)).squares)
        for pair in pairs:
            curve = sum(chance * np.maximum(0, -np.expm1(at - loss)) for loss, chance in pair)
            assert (curve <= gaussian_curve(at, mu) + 1e-12).all()


# One unit replaced by another


def test_two_hops_cost_no_more_than_the_conversion_says():
    """Random distributions P, M, R with leaks, of which both pairs obey their bounds."""
    chance = np.random.default_rng(7)
    orders = (1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 65.0)
    tightest = 0.0
    for _ in range(60):
        size, leak = int(chance.integers(3, 7)), float(chance.choice([0.0, 1e-3, 0.02]))
        middle = chance.dirichlet(np.ones(size))
        middle = 0.9 * middle + 0.1 / size
        spoiled = [np.eye(size)[chance.integers(size)] for _ in range(2)]
        inner = [(middle - leak * one) / (1 - leak) for one in spoiled]  # M' and M''
        outer, taus = [], np.zeros(len(orders))
        for one in inner:
            tilt = one * np.exp(chance.uniform(-0.4, 0.4, size))
            tilt /= tilt.sum()
            for a, (p, q) in ((i, pair) for i in range(len(orders)) for pair in ((tilt, one), (one, tilt))):
                taus[a] = max(taus[a], math.log((p ** orders[a] * q ** (1 - orders[a])).sum()) / (orders[a] - 1))
            outer.append((1 - leak) * tilt + leak * chance.dirichlet(np.ones(size)))
        spends = (Renyi(orders, np.maximum(taus, 0) * (1 + 1e-12)), *([Approximate(0.0, leak)] if leak else []))
        found = convert_to_replacement(spends, (1.25, 2.0, 4.0, 8.0, 16.0, 32.0))
        lost = found[1].delta if leak else 0.0
        for epsilon in (0.0, 0.2, 0.5, 0.9):
            true = max(np.maximum(0, p - math.exp(epsilon) * q).sum() for p, q in (outer, outer[::-1]))
            for order, tau in zip(found[0].orders, found[0].taus, strict=True):
                bound = lost + (1 - lost) * renyi_delta(order, tau, epsilon)
                assert true <= bound * (1 + 1e-9)
                tightest = max(tightest, true / bound)
    assert tightest > 0.1


def test_two_hops_of_gaussian_noise_are_one_of_twice_the_distance():
    curve, lost = convert_to_replacement((Gaussian(4.0), Approximate(0.0, 1e-30)), (2.0, 8.0, 32.0))
    assert curve.taus == pytest.approx([order * (2 / 4.0) ** 2 / 2 for order in curve.orders], rel=1e-9)
    assert 2e-30 < lost.delta < 4e-29


def test_the_leak_of_two_hops_is_that_of_the_worst_case():
    """Data without the unit shows 0 with probability l, which the first pair may make e^0.5 times as likely."""
    leak, epsilon = 0.01, 0.5
    shown = math.exp(epsilon) * leak / (1 - leak)  # of 0, in P'
    before = np.array([(1 - leak) * shown, leak, (1 - leak) * (1 - shown)])
    after = np.array([0.0, 0.0, 1.0])
    true = np.maximum(0, before - math.exp(3.0) * after).sum()
    assert true == pytest.approx((1 + math.exp(epsilon)) * leak)
    curve, lost = convert_to_replacement((Approximate(epsilon, leak),), (64.0,))
    assert true <= lost.delta + renyi_delta(curve.orders[0], curve.taus[0], 3.0)
    assert lost.delta <= 1.05 * true


def test_kinds_keep_their_kind_where_they_can():
    (noise,) = convert_to_replacement((Gaussian(10.0, 2.0, 3),), (8.0,))
    assert noise.sensitivity / noise.sigma == pytest.approx(2 * math.sqrt(3) / 5)
    (rho,) = convert_to_replacement((ZeroConcentrated(0.01, 2),), (8.0,))
    assert rho == ZeroConcentrated(0.08)
    (pure,) = convert_to_replacement((DiscreteLaplace(10.0, 1, 2),), (3.0, 1e6))
    assert pure.taus[1] == pytest.approx(0.4, rel=1e-5) and pure.taus[0] < 0.13
    assert convert_to_replacement((Renyi([2.0, 3.0], [0.1, 0.2]),), (3.0,)) == ()


def test_one_ledger_takes_counts_and_means_of_a_table(tmp_path):
    from dpsieve.channels import report_then_count
    from dpsieve.noise.known_keys import known_keys
    from dpsieve.papers.thesis.rank_picks import RankPicks

    ledger = Ledger(tmp_path / "budget", epsilon=4.0, delta=1e-6, neighbours="replace")
    mean = RankPicks.within(Fraction(1, 100), 4, "centre", delta=1e-8, unit="one row")
    counts, noise = report_then_count(0.1, 1e-10, max_keys=10), known_keys(0.1, noise="laplace")
    costs = [ledger.spend(mechanism).cost for mechanism in (mean, counts, noise)] * 10
    assert chain_of(ledger.budget, *costs)._valid
    alone = chain_of(ledger.budget)
    for cost in costs:  # as (epsilon, delta) alone, they do not fit
        if alone.rule_with(Cost(cost.spend)):
            alone = added(alone, Cost(cost.spend))
    assert len(alone.entries) < len(costs)
    other = Ledger(tmp_path / "other", epsilon=4.0, delta=1e-6)
    with pytest.raises(InvalidValue, match=r"adding or removing one\. Pass neighbours='add_remove' .*create PATH"):
        other.spend(mean)


# Batches


def test_a_batch_counts_by_the_composition_of_its_members(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    with pytest.raises(BudgetExceeded, match="a batch of 66 spends does not fit"):
        ledger.batch([Guarantee(0.03)] * 66)
    assert len(ledger) == 0
    entry = ledger.batch([Guarantee(0.03)] * 65, "small counts")
    assert (entry.number, entry.cost.members, entry.note) == (1, 65, "small counts")
    assert entry.spend == Approximate(Composition([Approximate(0.03, 0.0, 65)]).epsilon(1e-6), 1e-6)
    assert entry.curves == (Approximate(0.03, 0.0, 65),)
    assert Ledger.open(tmp_path / "budget").history() == [entry]
    with pytest.raises(BudgetExceeded):
        ledger.spend(Approximate(0.03))


def test_batches_and_spends_share_one_budget(tmp_path):
    median = GapQuantiles(0.1, (0.5,), 0.0, 1.0)
    ledger = Ledger(tmp_path / "budget", epsilon=2.0, delta=1e-6)
    ledger.spend(Approximate(0.05, 1e-9))
    entry = ledger.batch([median, Guarantee(0.1, 1e-9), Gaussian(40.0)] * 5)
    assert entry.cost.members == 15
    assert set(entry.curves) == {BoundedRange(0.1, 5), Approximate(0.1, 1e-9, 5), Gaussian(40.0, count=5)}
    assert entry.spend.epsilon <= 1.3 and ledger.spent() < 1.5
    again = ledger.batch([Guarantee(0.01)] * 3, delta=0.0)
    assert again.spend.epsilon == pytest.approx(0.03) and again.spend.delta == 0


def test_a_pure_budget_takes_a_batch_as_a_sum(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=0.0)
    assert ledger.batch([Guarantee(0.25)] * 3).spend == Approximate(0.75)
    with pytest.raises(BudgetExceeded, match=r"At most epsilon 0\.25 is left"):
        ledger.batch([Guarantee(0.25)] * 2)


def test_batches_of_nothing_or_of_something_else_are_refused(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    for wrong, error in (([], InvalidValue), ("text", InvalidType), (3, InvalidType), ([0.1], InvalidType)):
        with pytest.raises(error):
            ledger.batch(wrong)
    with pytest.raises(InvalidValue, match="the ledger for 'one row'"):
        ledger.batch([Guarantee(0.1), Guarantee(0.1, unit="user")])
    assert len(ledger) == 0


def test_others_may_spend_while_a_batch_is_computed(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    other, calls, batched = Ledger.open(tmp_path / "budget"), [], Chain.batched

    def slowly(chain, costs, delta):
        cost = batched(chain, costs, delta)
        calls.append(other.spend(amounts.pop()))
        return cost

    monkeypatch.setattr(Chain, "batched", slowly)
    amounts = [Approximate(1e-3)]
    assert ledger.batch([Guarantee(0.1)] * 2).number == 2  # computed once: it still fits
    assert len(calls) == 1
    amounts = [Approximate(1e-3), Approximate(0.6)]
    with pytest.raises(BudgetExceeded):
        ledger.batch([Guarantee(0.1)] * 4)
    assert len(calls) == 3


def test_a_batch_that_others_overtake_gives_up_after_the_timeout(tmp_path, monkeypatch):
    Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    ledger = Ledger.open(tmp_path / "budget", timeout=0.2)
    calls = []

    def overtaken(chain, costs, delta):
        calls.append(time.monotonic())
        assert calls[-1] - calls[0] < 10
        return Cost(Approximate(2.0))  # what fitted before, and does not by now

    monkeypatch.setattr(Chain, "batched", overtaken)
    with pytest.raises(LedgerError, match=r"others spent .* while the batch was computed\. .* a longer timeout"):
        ledger.batch([Guarantee(0.1)])
    assert len(calls) > 1 and len(ledger) == 0


def test_a_batch_that_is_too_long_for_the_file_is_refused_as_such(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    orders = tuple(1.5 + i for i in range(256))
    long = [Renyi(orders, [1e-9 * (i + 1)] * len(orders)) for i in range(320)]
    with pytest.raises(InvalidValue, match=r"one entry would take [\d,]+ bytes, more than 900,000\. Declare smaller"):
        ledger.batch(long)
    assert len(ledger) == 0


def test_the_delta_of_a_batch_is_within_the_budget(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidValue, match=r"delta=2e-06 is above the budget's delta=1e-06\. Pass less"):
        ledger.batch([Gaussian(50.0)] * 2, delta=2e-6)
    assert len(ledger) == 0
    assert ledger.batch([Gaussian(50.0)] * 2, delta=1e-6).spend.delta == 1e-6


def test_batches_of_mixed_kinds_are_refused_fast(tmp_path):
    ledger = Ledger(tmp_path / "budget", epsilon=0.1, delta=1e-6)
    kinds = [ZeroConcentrated(0.01), Gaussian(40.0), BoundedRange(0.1), Approximate(0.1, 1e-9), DiscreteLaplace(20.0)]
    start = time.process_time()
    with pytest.raises(BudgetExceeded):
        ledger.batch([*kinds, Renyi([2.0, 8.0, 64.0], [0.002, 0.008, 0.064])], delta=1e-6)
    assert time.process_time() - start < 6.0  # 0.8 s; 36 s with all searches on the fine grid


def test_no_order_of_batches_and_spends_exceeds_the_rules():
    chance, budget = random.Random(3), Guarantee(2.0, 1e-5)
    for _ in range(2):
        chain = chain_of(budget)
        for _ in range(8):
            costs = [Cost(Approximate(chance.choice([0.01, 0.1, 0.4]), chance.choice([0.0, 1e-8, 1e-6])))] * 3
            cost = chain.batched(costs, None) if chance.random() < 0.5 else costs[0]
            if cost is not None and chain.rule_with(cost):
                chain = added(chain, cost)
        assert chain._valid and chain.spent() <= 2.0


# The disk


@pytest.mark.parametrize("call", ["stat", "is_dir"])
def test_a_failing_disk_is_an_error_of_the_ledger(tmp_path, monkeypatch, call):
    ledger = Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6)

    def fails(path, **_):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    true, calls = Path.stat, []

    def fails_later(path, **options):
        calls.append(path)
        return fails(path) if len(calls) > 1 and path.name == "budget" else true(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, call, fails)
        with pytest.raises(LedgerError, match=r"cannot be reached .*Input/output error"):
            Ledger(tmp_path / "other", epsilon=1.0, delta=1e-6)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", fails_later)
        with pytest.raises(LedgerError, match=r"cannot be reached .*Input/output error"):
            ledger.spend(Approximate(0.1))
    assert len(ledger) == 0
