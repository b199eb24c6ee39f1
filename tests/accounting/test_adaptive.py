"""Adaptive composition by dynamic programming: known exact values, and every adaptive plan by enumeration."""

import itertools
import math
from fractions import Fraction

import pytest
from accounting.products_by_hand import MIDDLE, NEW, OFTEN, RARE, exact

from dpsieve.accounting.adaptive import Outcome, adaptive_delta
from dpsieve.accounting.composition import repeated_delta
from dpsieve.errors import InvalidValue


def flip(epsilon):
    """Randomised response, in its two outcomes."""
    chance = math.exp(epsilon) / (1 + math.exp(epsilon))
    return [Outcome(chance, epsilon), Outcome(1 - chance, -epsilon)]


@pytest.mark.parametrize(("k", "each", "epsilon"), [(1, 0.3, 0.1), (7, 0.2, 0.5), (100, 0.1, 3.0), (200, 0.03, 2.0)])
def test_randomised_response_has_its_known_curve(k, each, epsilon):
    known = repeated_delta(k, epsilon, each_epsilon=each, each_delta=0.0)
    # Epsilon lies between two points of the grid of losses, where the chord is a little too high.
    found = adaptive_delta([flip(each)], k, epsilon, grid=each / 8)
    assert known <= found <= 1.1 * known + 1e-12


def test_tiny_deltas_keep_their_digits():
    known = repeated_delta(60, 5.7, each_epsilon=0.1, each_delta=0.0)
    assert known < 1e-15
    found = adaptive_delta([flip(0.1)], 60, 5.7, grid=0.1)
    assert known * (1 - 1e-9) <= found <= known * (1 + 1e-6)


def test_losses_between_grid_points_are_rounded_up_a_little():
    known = repeated_delta(20, 1.0, each_epsilon=0.1, each_delta=0.0)
    coarse, fine = (adaptive_delta([flip(0.1)], 20, 1.0, grid=grid) for grid in (0.03, 0.007))
    assert known <= fine <= coarse <= 1.5 * known
    assert fine <= 1.1 * known


def best_plan(pairs, uses, epsilon):
    """The largest divergence over all adaptive plans, each a choice of pair for every history; by brute force."""
    histories = [h for m in range(uses) for h in itertools.product((0, 1), repeat=m)]
    best = 0.0
    for plan in itertools.product(pairs, repeat=len(histories)):
        chosen = dict(zip(histories, plan, strict=True))
        total = 0.0
        for path in itertools.product((0, 1), repeat=uses):
            p = q = 1.0
            for m in range(uses):
                chance, loss, _ = chosen[path[:m]][path[m]]
                p, q = p * chance, q * chance * math.exp(-loss)
            total += max(0.0, p - math.exp(epsilon) * q)
        best = max(best, total)
    return best


def two_outcomes(high, low):
    """The pair with losses high > 0 > low."""
    chance = math.expm1(-low) / (math.expm1(-low) - math.expm1(-high))
    return [Outcome(chance, high), Outcome(1 - chance, low)]


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.2, 0.4])
def test_the_recursion_is_the_best_adaptive_plan(epsilon):
    pairs = [two_outcomes(0.1, -0.3), two_outcomes(0.3, -0.1), two_outcomes(0.2, -0.2)]
    best = best_plan(pairs, 3, epsilon)
    assert adaptive_delta(pairs, 3, epsilon, grid=0.1) == pytest.approx(best, rel=1e-6, abs=1e-12)


def test_after_a_last_outcome_nothing_is_lost():
    shown = two_outcomes(0.2, -0.1)
    ends = [Outcome(chance, loss, True) for chance, loss, _ in shown]
    assert adaptive_delta([ends], 50, 0.1, grid=0.1) == pytest.approx(adaptive_delta([shown], 1, 0.1, grid=0.1))


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.3])
def test_a_second_series_follows_a_last_outcome_of_the_first(epsilon):
    """By brute force: two uses that may end early, then two of another pair, whatever became of the first."""
    high, low = two_outcomes(0.2, -0.1)
    ends, second = [high, low._replace(last=True)], two_outcomes(0.1, -0.2)
    first = {(low,), (high, low), (high, high)}
    total = 0.0
    for path in [(*a, *b) for a in first for b in itertools.product(second, repeat=2)]:
        p = math.prod(outcome.chance for outcome in path)
        total += max(0.0, p - math.exp(epsilon - sum(outcome.loss for outcome in path)) * p)
    found = adaptive_delta([ends], 2, epsilon, grid=0.1, then=[second])
    assert found == pytest.approx(total, rel=1e-6, abs=1e-12)
    assert found > adaptive_delta([ends], 2, epsilon, grid=0.1)


def report(p, q):
    """Whether something is reported, with probability p against q."""
    pairs = [(p, q), (1 - p, 1 - q)]
    return [Outcome(float(x), math.log(x / y) if y else math.inf) for x, y in pairs if x > 0]


@pytest.mark.parametrize("grid", [0.3, 0.1, 0.03, 0.01])
def test_a_coarse_grid_is_never_below_the_truth(grid):
    """Grid points and losses have nothing in common; whether losses fall above or below points, the bound holds."""
    for epsilon, many in itertools.product((0.1, 0.35, 0.6, 1.2), itertools.product((RARE, MIDDLE, OFTEN), repeat=3)):
        pairs = [report(p, q) for p, q in many]
        assert exact(many, epsilon) <= Fraction(adaptive_delta(pairs, 3, epsilon, grid=grid))


@pytest.mark.parametrize("pair", [NEW, RARE, MIDDLE])
def test_equal_pairs_have_the_curve_of_their_product(pair):
    for uses, epsilon in itertools.product((1, 2, 3), (0.0, 0.3, 0.8, 1.5)):
        known = exact([pair] * uses, epsilon)
        bound = Fraction(adaptive_delta([report(*pair)], uses, epsilon, grid=0.0005))
        assert known <= bound <= known * Fraction(103, 100) + Fraction(1, 10**6), (uses, epsilon)


def test_infinite_losses_add_up():
    leak = [Outcome(1e-9, math.inf), Outcome(1 - 1e-9, math.log1p(-1e-9))]
    assert adaptive_delta([leak], 30, 0.5, grid=0.1) == pytest.approx(3e-8, rel=1e-6)
    assert adaptive_delta([[Outcome(1.0, math.inf)]], 1, 0.0, grid=0.1) == 1.0


def test_a_grid_that_is_too_fine_is_refused():
    with pytest.raises(InvalidValue, match="too fine"):
        adaptive_delta([report(0.5, 0.1)], 100, 1.0, grid=1e-7)


def test_epsilon_above_all_losses_costs_nothing():
    assert adaptive_delta([flip(0.1)], 10, 1.0000001, grid=0.1) == 0.0
    assert adaptive_delta([flip(0.1)], 0, 0.0, grid=0.1) == 0.0


def test_pairs_that_are_no_distributions_are_refused():
    with pytest.raises(InvalidValue, match="not a distribution"):
        adaptive_delta([[Outcome(0.5, 0.1)]], 3, 1.0, grid=0.1)
    with pytest.raises(InvalidValue, match="do not fit"):
        adaptive_delta([[Outcome(0.5, 0.1), Outcome(0.5, -0.2)]], 3, 1.0, grid=0.1)
