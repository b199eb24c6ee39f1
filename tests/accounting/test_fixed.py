"""Products of pairs that were fixed in advance: every one by enumeration, known curves, and plain convolution."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from accounting.products_by_hand import MIDDLE, NEW, OFTEN, RARE, convolved, exact, losses, normal, rows

from dpsieve.accounting.adaptive import Outcome, adaptive_delta, fixed_delta, shifted_report
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import smallest
from dpsieve.privacy import gaussian_delta, repeated_delta


def reports(*chances):
    return [shifted_report(p, q) for p, q in chances]


@pytest.mark.parametrize("rest", [[RARE, MIDDLE], [RARE, MIDDLE, OFTEN], [NEW, RARE, MIDDLE, OFTEN]])
def test_no_product_is_above_the_bound_and_the_worst_is_close(rest):
    for uses, epsilon in itertools.product((1, 2, 3), (0.0, 0.1, 0.3, 0.8, 1.5)):
        worst = max(exact(many, epsilon) for many in itertools.combinations_with_replacement(rest, uses))
        found = fixed_delta(reports(*rest), uses, epsilon, grid=0.0005)
        assert worst <= Fraction(found) <= worst * Fraction(103, 100) + Fraction(1, 10**6), (uses, epsilon)


@pytest.mark.parametrize("grid", [0.3, 0.1, 0.03, 0.01])
def test_a_coarse_grid_is_never_below_the_truth(grid):
    """Grid points and losses have nothing in common; whether losses fall above or below points, the bound holds."""
    for epsilon, many in itertools.product((0.1, 0.35, 0.6, 1.2), itertools.product((RARE, MIDDLE, OFTEN), repeat=3)):
        assert exact(many, epsilon) <= Fraction(fixed_delta(reports(*many), 3, epsilon, grid=grid))


@pytest.mark.parametrize(("uses", "mu", "epsilon"), [(1, 0.5, 1.0), (2, 0.1, 0.5), (10, 0.06, 1.0), (100, 0.02, 1.0)])
def test_gaussian_noise_has_its_known_curve(uses, mu, epsilon):
    known = gaussian_delta(1.0, epsilon, mu, count=uses)
    assert known <= fixed_delta([shifted_report(1, 1, mu)], uses, epsilon, grid=mu / 20) <= 1.03 * known


@pytest.mark.parametrize(("uses", "each", "epsilon"), [(1, 0.3, 0.1), (7, 0.2, 0.6), (100, 0.1, 3.0)])
def test_randomised_response_has_its_known_curve(uses, each, epsilon):
    known = repeated_delta(uses, epsilon, each_epsilon=each, each_delta=0.0)
    p = math.exp(each) / (1 + math.exp(each))
    flip = [Outcome(p, each), Outcome(1 - p, -each)]
    assert known <= fixed_delta([flip], uses, epsilon, grid=each) <= known * (1 + 1e-6)


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.9, 0.88), (0.88, 0.9), (0.1, 0.0), (0.0, 0.1), (1.0, 0.95)])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.3])
def test_a_shifted_report_is_never_below_its_own_curve_and_close(p, q, epsilon, mu=0.1):
    known = max(0.0, 1 - p - math.exp(epsilon) * (1 - q)) + report_curve(p, q, mu, epsilon)
    found = fixed_delta([shifted_report(p, q, mu)], 1, epsilon, grid=0.0005)
    assert known * (1 - 1e-9) <= found <= 1.002 * known + 1e-9


def report_curve(p, q, mu, epsilon):
    if p * q == 0:
        return p
    left = (epsilon - math.log(p / q)) / mu
    return p * normal(mu / 2 - left) - math.exp(epsilon) * q * normal(-mu / 2 - left)


@pytest.mark.parametrize(("uses", "shrink"), [(2, 0.7), (3, 0.6), (10, 0.4), (30, 0.2)])
def test_products_by_convolution_are_below_the_bound(uses, shrink, epsilon=1.0, grid=1e-3):
    """Every homogeneous product, and random mixed ones; the pairs as they are and mirrored."""
    picks = np.random.default_rng(7)
    for mirror in (False, True):
        steps = [(q, p, mu) if mirror and p < 1 else (p, q, mu) for p, q, mu in rows(shrink)]
        pairs = [shifted_report(*step) for step in steps]
        bound = fixed_delta(pairs, uses, epsilon, grid=0.002)
        both = [losses(*step, grid) for step in steps]
        mixed = [picks.integers(len(steps), size=uses) for _ in range(6)]
        for many in [*([k] * uses for k in range(len(steps))), *mixed]:
            assert convolved([both[k][0] for k in many], epsilon, grid) <= bound
        for k in range(0, len(steps), 3):
            low, high = (convolved([both[k][side]] * uses, epsilon, grid) for side in (0, 1))
            alone = fixed_delta([pairs[k]], uses, epsilon, grid=0.002)
            assert low <= alone <= 1.05 * high + 1e-12


def test_pairs_fixed_in_advance_cost_less_than_adaptive_ones():
    """Ten uses of any of these pairs alone cost about 1e-6; an adaptive plan mixes them as fortune turns."""

    def alone(p, q):
        return fixed_delta([shifted_report(p, q)], 10, 1.0, grid=0.004)

    chances = [(smallest(lambda p, q=q: alone(p, q) > 1e-6, q, 1.0, tolerance=1e-3), q) for q in (1e-4, 1e-2, 0.1, 0.5)]
    pairs = [shifted_report(1, 1, 0.075), *reports(*chances)]
    fixed, adaptive = (account(pairs, 10, 1.0, grid=0.004) for account in (fixed_delta, adaptive_delta))
    assert 1e-6 < fixed < 0.8 * adaptive


def test_infinite_losses_add_up():
    leak = [Outcome(1e-9, math.inf), Outcome(1 - 1e-9, math.log1p(-1e-9))]
    for account in (fixed_delta, adaptive_delta):
        assert account([leak], 30, 0.5, grid=0.1) == pytest.approx(3e-8, rel=1e-6)
        assert account([[Outcome(1.0, math.inf)]], 1, 0.0, grid=0.1) == 1.0


def test_reports_near_one_keep_their_digits():
    silent, more = Fraction(1, 10**30), Fraction(3, 10**30)
    pair = shifted_report(1 - more, 1 - silent)
    assert fixed_delta([pair], 1, math.log(2), grid=0.01) == pytest.approx(1e-30, rel=0.01)


def test_what_is_not_fixed_is_refused():
    with pytest.raises(InvalidValue, match="last outcome"):
        fixed_delta([[Outcome(0.5, 0.0), Outcome(0.5, 0.0, True)]], 2, 1.0, grid=0.1)
    with pytest.raises(InvalidValue, match="too fine"):
        fixed_delta([shifted_report(0.5, 0.1)], 100, 1.0, grid=1e-7)
    with pytest.raises(InvalidValue, match="is not between 0 and 1"):
        shifted_report(1.5, 0.5)
