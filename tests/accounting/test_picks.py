"""What picks by the exponential mechanism cost: the closed form, Renyi, the exact adaptive composition."""

import math

import numpy as np
import pytest

from dpsieve.accounting import exponential_picks as picks
from dpsieve.accounting.composition import repeated_delta
from dpsieve.accounting.curves import gaussian_curve
from dpsieve.errors import InvalidValue

# epsilon, delta, k, and the epsilon of one pick by the closed form
KNOWN = [
    (0.5, 0.1, 10, 0.1401256055973652),
    (0.5, 1e-5, 5, 0.1),
    (1.0, 0.1, 50, 0.119949786884746),
    (1.0, 1e-5, 100, 0.0408117025761342),
    (1.1, 1e-6, 100, 0.041051286230483264),
]


@pytest.mark.parametrize(("epsilon", "delta", "k", "each"), KNOWN)
def test_the_closed_form(epsilon, delta, k, each):
    assert picks.lemma_epsilon(epsilon, delta, k) == pytest.approx(each, rel=1e-13)


def pair(e0, s):
    """The two outcomes of a pick: probabilities with and without the unit, whose weights sum to s times the others."""
    c = math.exp(-e0)
    high = (1 - s * c) / (1 - c)
    return np.array([high, 1 - high]), np.array([high / s, (1 - high) / (s * c)])


@pytest.mark.parametrize("order", [1.01, 2.0, 16.0, 120.0])
@pytest.mark.parametrize("e0", [0.01, 0.3, 4.0])
def test_renyi_of_a_pick_is_the_worst_over_all_pairs(order, e0):
    found = picks.picks_renyi(order, e0, 1)
    each = [pair(e0, s) for s in np.exp(np.linspace(0, e0, 2001)[1:-1])]
    worst = max(math.log(np.sum(p * (p / q) ** (order - 1))) / (order - 1) for p, q in each)
    assert worst * (1 - 1e-9) - 1e-13 <= found <= worst * (1 + 1e-4) + 1e-9
    assert found <= min(order * e0**2 / 8 * (1 + 1e-12), e0)


def test_any_counts_stay_within_the_pairs():
    generator = np.random.default_rng(1)
    e0, order = 0.7, 5.0
    bound = picks.picks_renyi(order, e0, 1)
    for _ in range(300):
        counts, held = generator.integers(0, 5, 4), generator.integers(0, 2, 4)
        p, q = (np.exp(e0 * x) / np.exp(e0 * x).sum() for x in (counts, counts + held))
        for one, other in ((p, q), (q, p)):
            assert math.log(np.sum(one**order * other ** (1 - order))) / (order - 1) <= bound + 1e-12


@pytest.mark.parametrize(("k", "e0", "epsilon"), [(1, 1.0, 0.4), (2, 0.5, 0.3), (3, 0.5, 0.6), (50, 0.1, 1.5)])
def test_adaptive_picks_lie_between_one_plan_and_the_general_bound(k, e0, epsilon):
    found = picks.picks_delta(k, epsilon, each_epsilon=e0)
    # Randomised response with half of e0 is one plan; nothing is above what any e0-private uses could do.
    assert repeated_delta(k, epsilon, each_epsilon=e0 / 2, each_delta=0.0) <= found
    assert found <= repeated_delta(k, epsilon, each_epsilon=e0, each_delta=0.0)


@pytest.mark.parametrize(("k", "e0", "epsilon"), [(1, 1.0, 0.4), (2, 0.5, 0.3), (3, 0.4, 0.5)])
def test_adaptive_picks_against_a_search_over_plans(k, e0, epsilon):
    found = picks.picks_delta(k, epsilon, each_epsilon=e0)
    best = search(k, epsilon, e0, np.linspace(0, e0, 61), hitting=False)
    assert best * (1 - 1e-9) <= found <= best * 1.02


def search(k, epsilon, e0, grid, hitting):
    """The best adaptive plan whose pairs come from a grid, straight from the definition."""
    if k == 0:
        return max(0.0, -math.expm1(epsilon))
    best = 0.0
    for t in grid if k < 3 else grid[::3]:
        s = math.exp(t)
        high = pair(e0, s)[0][0]
        after = 0 if hitting else k - 1
        miss = search(k - 1, epsilon - t, e0, grid[::4], hitting) if high > 0 else 0
        hit = search(after, epsilon - t + e0, e0, grid[::4], hitting) if high < 1 else 0
        best = max(best, high * miss + (1 - high) * hit)
    return best


@pytest.mark.parametrize(("k", "e0", "epsilon"), [(1, 0.5, 0.5), (2, 0.5, 0.6), (3, 0.4, 0.5)])
def test_hitting_against_a_search_over_plans(k, e0, epsilon):
    found = picks.hitting_delta(k, epsilon, each_epsilon=e0)
    best = search(k, epsilon, e0, np.linspace(0, e0, 61), hitting=True)
    assert best * (1 - 1e-9) <= found <= best * 1.01 + 1e-12
    assert found <= picks.picks_delta(k, epsilon, each_epsilon=e0) * 1.01 + 1e-12


def test_hitting_does_not_grow_with_k():
    few, many = (picks.hitting_delta(k, 1.0, each_epsilon=0.1) for k in (100, 1000))
    assert few <= many <= 2 * few
    limit = math.exp(-1 / math.expm1(0.1))  # no unit escapes many picks at more than this rate
    assert many <= limit


@pytest.mark.parametrize("order", [2.0, 12.0])
def test_hitting_in_renyi_terms_is_the_worst_over_plans(order):
    e0, k = 0.2, 4
    each = [pair(e0, s) for s in np.exp(np.linspace(0, e0, 4001)[1:-1])]
    moments = [p * (p / q) ** (order - 1) for p, q in each]
    out = back = 1.0
    for _ in range(k):  # without to with: the low outcome is the hit, after which nothing is lost; then the reverse
        out = max(high * out + low for high, low in moments)
        back = max(high + low * back for high, low in moments)
    worst = math.log(max(out, back)) / (order - 1)
    assert worst - 1e-12 <= picks.hitting_renyi(order, e0, k) <= worst * (1 + 1e-4)


@pytest.mark.parametrize(("epsilon", "delta", "k"), [(1.0, 1e-5, 1), (1.0, 1e-5, 20), (0.1, 1e-12, 50), (2.0, 0.05, 5)])
def test_the_inverse_keeps_the_promise_and_wastes_little(epsilon, delta, k):
    each, hit = picks.picks_epsilon(epsilon, delta, k), picks.hitting_epsilon(epsilon, delta, k)
    assert picks.picks_delta(k, epsilon, each_epsilon=each) <= delta
    assert picks.picks_delta(k, epsilon, each_epsilon=each * 1.001) > delta
    assert picks.lemma_epsilon(epsilon, delta, k) <= each <= hit * (1 + 1e-12)
    assert min(curve(k, epsilon, each_epsilon=hit) for curve in (picks.hitting_delta, picks.picks_delta)) <= delta


@pytest.mark.parametrize(("k", "e0", "curve", "law"), [
    (1, 0.5, picks.picks_delta, picks.picks_law),
    (3, 0.3, picks.picks_delta, picks.picks_law),
    (100, 0.04, picks.picks_delta, picks.picks_law),
    (40, 0.1, picks.hitting_delta, picks.hitting_law),
])  # fmt: skip
def test_laws_have_the_curve_of_the_picks(k, e0, curve, law):
    """Nowhere below it, and above it by little; the other way round it is the curve of the swapped pair."""
    found = law(k, e0, 3.0)
    assert found.masses.sum() == pytest.approx(1.0, abs=1e-8) and found.leak < 1e-12
    back = found.reversed()
    for epsilon in (0.11, 0.2, 0.45, 0.8):
        exact = curve(k, epsilon, each_epsilon=e0)
        delta = float(found.masses @ np.maximum(0.0, -np.expm1(epsilon - found.losses))) + found.leak
        assert exact * (1 - 1e-9) <= delta * (1 + 1e-6) + 1e-15
        assert delta <= exact * 1.01 + 1e-12
        swapped = float(back.masses @ np.maximum(0.0, -np.expm1(-epsilon - back.losses)))
        assert swapped == pytest.approx(-math.expm1(-epsilon) + math.exp(-epsilon) * delta, rel=1e-6)


@pytest.mark.parametrize(("k", "e0", "mu"), [(1, 0.5, 0.3), (3, 0.3, 0.2), (4, 0.1, 0.25), (2, 0.2, 0.02)])
def test_noise_after_picks_is_part_of_their_recursion(k, e0, mu):
    """By the definition, with exact curves of the noise instead of a grid: what all plans of picks have at most."""
    factors = np.exp(np.linspace(0, e0, 31))
    each = [pair(e0, s) for s in factors[1:-1]]

    def worst(uses, epsilon):
        if not uses:
            return gaussian_curve(np.array([epsilon]), mu)[0]
        return max(
            sum(p * worst(uses - 1, epsilon - math.log(p / q)) for p, q in zip(*both, strict=True)) for both in each
        )

    found, alone = picks.picks_law(k, e0, 3.0, mu), picks.picks_law(k, e0, 3.0)
    each = each if k < 3 else each[::7]
    for epsilon in (-0.2, 0.15, 0.5):
        exact = worst(k, epsilon)
        delta = float(found.masses @ np.maximum(0.0, -np.expm1(epsilon - found.losses))) + found.leak
        product = float(alone.masses @ gaussian_curve(epsilon - alone.losses, mu))
        assert exact * (1 - 1e-9) <= delta * (1 + 1e-6) + 1e-15
        assert delta <= exact * 1.06 + 1e-7
        assert delta <= product * (1 + 1e-3) + 1e-9


def test_noise_that_hides_nothing_is_not_free():
    assert picks.picks_law(3, 0.1, 3.0, 41.0).leak == 1.0
    tiny = picks.picks_law(3, 1e-9, 3.0, 0.2)  # takes the time of larger picks, and is above the noise alone
    exact = float(gaussian_curve(np.array([0.5]), 0.2)[0])
    delta = float(tiny.masses @ np.maximum(0.0, -np.expm1(0.5 - tiny.losses))) + tiny.leak
    assert exact <= delta * (1 + 1e-6) <= exact * 1.01


def test_exact_adaptive_picks_beat_the_closed_form_by_a_quarter():
    assert picks.picks_epsilon(1.0, 1e-5, 50) > 1.25 * picks.lemma_epsilon(1.0, 1e-5, 50)


@pytest.mark.parametrize("k", [0, 10**6])
def test_absurd_numbers_of_picks_are_refused(k):
    with pytest.raises(InvalidValue, match="k="):
        picks.lemma_epsilon(1.0, 1e-5, k)
