"""Top-k over an unknown domain: find keys, pick the most frequent, and count them on request."""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from helpers.searched_units import worst_before_laws
from helpers.statistical import FALSE_ALARM, assert_counts
from scipy import stats

from dpsieve.accounting.exponential_picks import lemma_epsilon, picks_delta, picks_epsilon, picks_law, picks_renyi
from dpsieve.discovery.picks import TopKeys, _counts_mu, _deviations, top_keys
from dpsieve.discovery.renyi import renyi_selection, two_rounds
from dpsieve.discovery.selector import Selector
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidType, InvalidValue, NotCertified
from dpsieve.jobs.discover import SHARE_OF_TOP_K
from dpsieve.papers.missing_mass.algorithms import limited_domain, paper_top_keys
from dpsieve.papers.missing_mass.weighted_gaussian import weighted_gaussian
from dpsieve.privacy import Approximate, Composition
from dpsieve.privacy.certificate import formula
from dpsieve.privacy.mechanism import from_json
from dpsieve.randomness import SystemSource, discrete_laplace
from dpsieve.testing import insecure_source

SOURCE = SystemSource()


@pytest.fixture(scope="module")
def five():
    return top_keys(1.0, 1e-5, 10, k=5)


def test_find_keys_and_pick_the_most_frequent(five):
    units = [["common"]] * 3000 + [["often", "common"]] * 2000 + [["rare"]] * 2
    held = Pairs.of(units)
    found = held.counts()[five.selector.select(held, insecure_source(1))]
    # Both frequent keys are found, 'rare' once in 100,000 draws. 5,000 is far above 2,000 beside noise of this scale.
    assert 1 / five.each_epsilon < 10
    assert found[five.pick(found, SOURCE)].tolist() == [5000, 2000]


def test_the_guarantee_is_certified_and_saved(five):
    assert str(five.guarantee).startswith("(1, 1e-05)")
    certificate = five.certify()
    assert certificate.worst <= 1e-5
    assert [part.scope for part in certificate.parts] == ["one key", "one unit", "one unit"]
    again = from_json(five.to_json())
    assert again == five
    assert again.certify() == certificate
    assert (five.max_keys, five.unit) == (10, "one row")
    assert "top_k of 5 keys" in repr(five)


def test_half_and_half_with_the_closed_form():
    paper = paper_top_keys(1.0, 1e-5, 10, k=100, selector=renyi_selection(0.5, 5e-6, 10))
    assert paper.each_epsilon == pytest.approx(lemma_epsilon(0.5, 5e-6, 100))
    exact = top_keys(1.0, 1e-5, 10, k=100, selector=renyi_selection(0.5, 5e-6, 10))
    shared = top_keys(1.0, 1e-5, 10, k=100)
    assert shared.each_epsilon > 1.5 * paper.each_epsilon
    assert exact.each_epsilon > 1.2 * paper.each_epsilon


@dataclass(frozen=True, repr=False)
class Frequent(Selector):
    """A selector of which nothing is known but its guarantee: Laplace noise on counts of one key a unit."""

    name = "frequent"

    def certify(self):
        return formula(self.guarantee, self.delta, "formula", "a test")

    def select(self, held, source):
        return held.counts() + discrete_laplace(1 / self.epsilon, held.keys.num_rows, source=source) > self.bar

    @property
    def bar(self):
        return 1 + math.log(1 / self.delta) / self.epsilon


def test_any_selector_may_come_first():
    mechanism = top_keys(1.0, 1e-5, 1, k=10, selector=Frequent(0.4, 5e-6, 1))
    assert mechanism.each_epsilon == pytest.approx(picks_epsilon(0.6, 5e-6, 10), rel=1e-9)
    assert mechanism.certify().parts[-1].method == "formula"
    assert 0.99e-5 < mechanism.certify().worst <= 1e-5
    with pytest.raises(InvalidValue, match="selector spends all"):
        top_keys(1.0, 1e-5, 1, k=10, selector=Frequent(1.0, 5e-6, 1))
    with pytest.raises(NotCertified):
        replace(mechanism, selector=Frequent(1.0, 5e-6, 1))


def test_two_rounds_share_a_budget_with_the_picks():
    mechanism = top_keys(1.0, 1e-5, 20, k=50, selector=two_rounds(1.0, 1e-5, 20, typical_keys=4, share=0.25))
    assert mechanism.certify().worst <= 1e-5
    assert from_json(mechanism.to_json()) == mechanism


@pytest.mark.parametrize("change", [{"each_epsilon": 1.0}, {"k": 500}, {"delta": 1e-6}, {"epsilon": 0.9}])
def test_fields_that_break_the_promise_are_refused(five, change):
    with pytest.raises(NotCertified):
        replace(five, **change)


def test_other_mechanisms_are_no_selectors(five):
    with pytest.raises(InvalidType, match="selector must be"):
        TopKeys(1.0, 1e-5, 5, 0.1, selector="renyi")
    for wrong in (five.to_json(), {"kind": "simple", "epsilon": 1.0, "delta": 1e-6}, 3):
        with pytest.raises((InvalidValue, InvalidType), match="selector"):
            from_json({**five.to_json(), "selector": wrong})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "k=0"),
        ({"count_share": 1.0}, "count_share"),
        ({"selector": renyi_selection(1.0, 1e-5, 10)}, "selector spends all"),
        ({"selector": renyi_selection(1.0, 1e-5, 10), "count_share": 0.2}, "count_share needs"),
        ({"selector": renyi_selection(0.5, 5e-6, 20)}, "max_keys=10 is not"),
    ],
)
def test_wrong_arguments_name_the_fix(change, message):
    with pytest.raises(InvalidValue, match=message):
        top_keys(1.0, 1e-5, 10, **{"k": 5, **change})


def test_nothing_found_and_k_above_the_domain(five):
    assert five.pick(np.empty(0, np.int64), SOURCE).tolist() == []
    assert sorted(five.pick([3, 1], SOURCE).tolist()) == [0, 1]


# Privacy of the picks, by enumeration.


def peeling(counts, k, e0):
    """The probability of every sequence of k picks."""
    chances = {}
    for order in itertools.permutations(range(len(counts)), k):
        left, chance = list(range(len(counts))), 1.0
        for pick in order:
            weights = {key: math.exp(e0 * counts[key]) for key in left}
            chance *= weights[pick] / sum(weights.values())
            left.remove(pick)
        chances[order] = chance
    return chances


def gap(counts, mine, k, e0, epsilon):
    """The divergence at epsilon of neighbours, in the worse direction."""
    p, q = peeling(counts, k, e0), peeling([c + m for c, m in zip(counts, mine, strict=True)], k, e0)
    both = ((p, q), (q, p))
    return max(sum(max(0.0, one[o] - math.exp(epsilon) * other[o]) for o in one) for one, other in both)


@pytest.mark.parametrize(("k", "e0", "epsilon"), [(1, 1.0, 0.5), (2, 0.6, 0.6), (3, 0.5, 0.7)])
def test_no_neighbours_differ_by_more_than_the_curve(k, e0, epsilon):
    generator, bound = np.random.default_rng(5), picks_delta(k, epsilon, each_epsilon=e0)
    worst = 0.0
    for _ in range(6):
        counts, mine = generator.integers(0, 6, 4), generator.integers(0, 2, 4)
        found = gap(counts, mine, k, e0, epsilon)
        for _ in range(40):  # descent: move one count, or one key of the unit, where that makes it worse
            more, other = counts.copy(), mine.copy()
            more[generator.integers(4)] += generator.integers(-2, 3)
            other[generator.integers(4)] ^= generator.integers(2)
            if (higher := gap(more, other, k, e0, epsilon)) > found:
                counts, mine, found = more, other, higher
        worst = max(worst, found)
    assert worst <= bound
    assert worst >= 0.7 * bound  # and the curve is not idle


def test_picks_follow_the_exponential_mechanism():
    mechanism = top_keys(1.0, 0.05, 2, k=2)
    counts = [3, 5, 0]
    chances = peeling(counts, 2, mechanism.each_epsilon)
    seen = dict.fromkeys(chances, 0)
    for _ in range(4000):
        seen[tuple(mechanism.pick(counts, SOURCE).tolist())] += 1
    assert_counts(np.array(list(seen.values()), float), 4000 * np.array(list(chances.values())))


def test_a_unit_alone_with_all_its_keys_shows_with_probability_delta_at_most():
    mechanism = top_keys(1.0, 0.05, 8, k=20)
    held = Pairs.of([[f"own {i}" for i in range(8)], *[["common"]] * 200])
    shown, runs = 0, 2000
    for _ in range(runs):
        found = np.flatnonzero(mechanism.selector.select(held, SOURCE))
        picked = found[mechanism.pick(held.counts()[found], SOURCE)]
        shown += bool((picked < 8).any())
    assert stats.binom.sf(shown - 1, runs, 0.05) > FALSE_ALARM
    assert shown > 0  # the selector's leak is used


# Counts of the picked keys.


def test_counts_on_request_have_the_stated_noise():
    mechanism = top_keys(1.0, 1e-5, 10, k=9, count_share=0.5)
    assert mechanism.certify().worst <= 1e-5
    true = np.array([10_000, 5_000, 20])
    draws = np.array([mechanism.noisy_counts(true, SOURCE) - true for _ in range(4000)])
    sigma = mechanism.count_sigma
    assert (draws * 2 == np.rint(draws * 2)).all()
    assert draws.std(axis=0) == pytest.approx(sigma, rel=0.08)
    assert np.corrcoef(draws.T)[0, 1] == pytest.approx(1 / (math.sqrt(9) + 1), abs=0.1)
    inside = np.abs(draws) <= mechanism.half_width(0.95)
    assert stats.binom.cdf(inside[:, 0].sum(), 4000, 0.95) > FALSE_ALARM


@pytest.mark.parametrize("k", [1, 2, 6])
def test_correlated_noise_costs_at_most_what_is_charged(k):
    sigma, order = 3.0, 7.0
    shared, own = _deviations(sigma, k)
    covariance = (np.full((k, k), shared**2) + own**2 * np.eye(k)) / 4
    assert np.diag(covariance) == pytest.approx(sigma**2)
    moves = [np.array(v, float) for v in itertools.product((0, 1), repeat=k)]
    worst = max(order / 2 * v @ np.linalg.solve(covariance, v) for v in moves)
    charged = order / 2 * _counts_mu(sigma, k) ** 2
    assert worst <= charged * (1 + 1e-12)
    assert charged == pytest.approx(order / 2 * ((math.sqrt(k) + 1) / (2 * sigma)) ** 2)
    independent = order / 2 * k / sigma**2
    assert charged <= independent * (1 + 1e-12)


def test_counts_must_be_paid_for(five):
    with pytest.raises(InvalidValue, match="not paid for"):
        five.noisy_counts([1, 2], SOURCE)
    paid = top_keys(1.0, 1e-5, 10, k=2, count_share=0.2)
    with pytest.raises(InvalidValue, match="more than k=2"):
        paid.noisy_counts([1, 2, 3], SOURCE)
    with pytest.raises(NotCertified):
        replace(paid, count_sigma=paid.count_sigma / 2)
    with pytest.raises(InvalidValue, match="too small"):
        replace(paid, count_sigma=1e-9)


# The baseline.


def test_limited_domain_returns_keys_above_its_bar():
    counts = [900, 20_000, 10_000, 5, 4]
    for k_bar, max_keys in ((2, None), (5, None), (None, 3)):
        found = limited_domain(counts, 2, k_bar, 1.0, 1e-5, max_keys=max_keys, source=SOURCE)
        assert found.tolist() == [1, 2]
    assert limited_domain([3, 2, 1], 3, 3, 1.0, 1e-5, source=insecure_source(1)).tolist() == []
    assert limited_domain(counts, 2, 4, 1.0, 1e-5, analysis="paper").tolist() == [1, 2]
    with pytest.raises((InvalidValue, InvalidType), match="k_bar"):
        limited_domain(counts, 2, None, 1.0, 1e-5)


def test_limited_domain_shows_keys_of_one_unit_with_probability_delta_at_most():
    runs = 1000
    shown = sum(bool(limited_domain([1] * 5, 3, 3, 1.0, 0.1, source=SOURCE).size) for _ in range(runs))
    assert stats.binom.sf(shown - 1, runs, 0.1) > FALSE_ALARM


@pytest.mark.parametrize("count_share", [0.0, 0.3])
def test_it_spends_what_the_selector_does_and_the_picks(count_share):
    mechanism = top_keys(1.0, 1e-5, 10, k=20, count_share=count_share)
    *found, picks = mechanism.spends()
    assert tuple(found) == mechanism.selector.spends() and picks.orders == found[0].orders
    for order, tau in zip(picks.orders, picks.taus, strict=True):
        counts = order / 2 * _counts_mu(mechanism.count_sigma, 20) ** 2
        assert tau == pytest.approx(picks_renyi(order, mechanism.each_epsilon, 20) + counts)
    assert Composition(mechanism.spends()).delta(1.0) < 4e-5
    assert Composition(mechanism.spends() * 50).epsilon(1e-3) < 8.5  # as (1, 1e-5) they cost 41


def test_after_another_selector_it_spends_its_guarantee():
    mechanism = top_keys(1.0, 1e-5, 10, k=5, selector=weighted_gaussian(0.5, 5e-6, 10))
    assert mechanism.spends() == (Approximate(1.0, 1e-5),)


@pytest.mark.parametrize("share", [0.34, SHARE_OF_TOP_K, 0.85])
@pytest.mark.parametrize(("epsilon", "delta", "typical_keys"), [(1.0, 1e-5, 1), (1.0, 1e-8, 8), (0.5, 1e-6, 20)])
def test_selection_and_picks_use_most_of_delta(epsilon, delta, typical_keys, share):
    """Exact curves of coins, before the law of the picks: none above delta, the worst above 0.6 of it."""
    mechanism = top_keys(epsilon, delta, 100, k=20, typical_keys=typical_keys, share=share)
    law = picks_law(20, mechanism.each_epsilon, 3 * epsilon)
    sizes = sorted({typical_keys, 2 * typical_keys, 16, 40, 60})
    assert 0.6 * delta < worst_before_laws(mechanism.selector, sizes, 60, epsilon, (law, law)) <= delta
