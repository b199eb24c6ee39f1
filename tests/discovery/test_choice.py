"""The choice of a selector: public numbers, a private median, and whether k keys are common."""

import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from helpers.statistical import assert_follows
from scipy.special import expit

from dpsieve.accounting.products import raised_by_range, steepest
from dpsieve.discovery.choice import CommonTop, Picks, SelectorChoice
from dpsieve.discovery.picks import hitting_keys, hitting_lower, top_keys
from dpsieve.discovery.renyi import RenyiSelector
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue
from dpsieve.privacy.mechanism import from_json
from dpsieve.testing import insecure_source
from dpsieve.validate import SelectorName

EPSILON, DELTA, K = 1.0, 1e-5, 5
MANY = Pairs.of([range(8)] * 3000)  # 3,000 units with the same 8 keys


def make_top(selector, epsilon, delta):
    return top_keys(epsilon, delta, selector.max_keys, K, selector=selector)


def make_hitting(selector, epsilon, delta):
    return hitting_keys(epsilon, delta, selector.max_keys, K, selector=selector)


def replace_one_key(picks):
    return picks._replace(one_key=True)


TOP, HITTING = Picks(K, (0.34, 0.85), make_top), Picks(K, (0.5,), make_hitting, hitting_lower(K))


def choose(method="auto", **more):
    return SelectorChoice(method, EPSILON, DELTA, 20, **more)


def kth(counts, k):
    return sorted([*counts, *[0] * k], reverse=True)[k - 1]


@pytest.mark.parametrize("counts", [[], [3], [5, 5, 5], [9, 4, 4, 1]])
@pytest.mark.parametrize("held", [[], [0], [1, 2], [0, 1, 2, 3], [7]])
def test_one_unit_raises_the_kth_count_by_at_most_one(counts, held):
    more = [*counts, *[0] * 8]
    for key in held:
        more[key] += 1
    assert all(kth(more, k) - kth(counts, k) in (0, 1) for k in range(1, 6))


@pytest.mark.parametrize("counts", [[], [9, 2], [5, 9, 4], [8, 8, 8, 1]])
def test_the_answer_has_the_odds_of_the_exponential_mechanism(counts):
    """Neighbours have k-th counts that differ by at most one, so their log-odds differ by at most epsilon."""
    mechanism, source = CommonTop(0.7, 3, 5), insecure_source(2)
    yes = expit(0.7 * (kth(counts, 3) - 5))
    drawn = [mechanism.draw(np.array(counts, np.int64), source) for _ in range(3000)]
    assert_follows(np.array(drawn).astype(int), [0, 1], np.array([1 - yes, yes]))


def test_what_the_answer_promises():
    made = CommonTop(0.02, 20, 100, unit="one user")
    assert str(made.certify().guarantee).startswith("0.02-differential privacy when one user")
    assert from_json(made.to_json()) == made
    for wrong in ({"epsilon": 0.0}, {"k": 0}, {"units": 0}, {"units": 2.5}):
        with pytest.raises((InvalidValue, TypeError), match=next(iter(wrong))):
            replace(made, **wrong)


@pytest.mark.parametrize(("method", "picks"), [(m, p) for m in get_args(SelectorName) for p in (None, TOP, HITTING)])
def test_every_selector_by_coins_is_made_for_a_private_median(method, picks):
    choice = choose(method, picks=picks)
    if method not in ("auto", "renyi", "renyi_two_rounds"):
        assert choice.public is not None
        return
    chosen = choice.draw(MANY, insecure_source(1))
    names = ["typical_size", "common_top"] if picks is TOP else ["typical_size"]
    assert [use.mechanism.name for use in chosen.mechanism.uses[:-1]] == names
    last = chosen.mechanism.last
    selector = last if picks is None else last.selector
    assert selector.name == {"auto": "renyi" if picks else "renyi_two_rounds"}.get(method, method)
    assert selector.least > 1 and "units typically hold 8 keys, by a private median" in chosen.reason
    public = choose(method, picks=picks, typical_keys=8)
    assert picks is TOP or public.public is not None


def test_the_account_of_all_stages():
    """Each choice raises delta by its factor; nothing else is lost."""
    whole = choose(picks=TOP).draw(MANY, insecure_source(1)).mechanism
    median, top, picker = (use.mechanism for use in whole.uses)
    factors = math.prod(raised_by_range(each.epsilon, steepest(EPSILON, DELTA)) for each in (median, top))
    part = whole.certify().parts[-1]
    assert (median.epsilon, top.epsilon, picker.epsilon) == (0.02, 0.02, EPSILON)
    assert part.worst == pytest.approx(picker.delta * factors) and 0.999 * DELTA < part.worst <= DELTA
    assert from_json(whole.to_json()) == whole


def test_two_choices_before_a_steep_curve():
    """The worst of all pairs of outcomes, one choice after the other, is within the product of both factors."""
    ranges, steepness, worst = (0.01, 0.02), 30.0, 0.0

    def outcomes(loss_range, t):
        p = math.expm1(t - loss_range) / math.expm1(-loss_range)
        return [(p, t), (1 - p, t - loss_range)]

    def second(shift):  # the worst second choice, after a loss of `shift`
        grid = np.linspace(0, ranges[1], 81)
        return max(
            sum(p * max(1.0, math.exp(steepness * (shift + loss))) for p, loss in outcomes(ranges[1], t)) for t in grid
        )

    for t in np.linspace(0, ranges[0], 81):
        worst = max(worst, sum(p * second(loss) for p, loss in outcomes(ranges[0], t)))
    product = math.prod(raised_by_range(each, steepness) for each in ranges)
    assert 0.9 * product < worst <= product


def test_the_share_follows_how_common_keys_are():
    """Far above what is selected, picks have most of the budget; where the k-th key is rare, selection has."""
    rare = Pairs.of([range(8)] * 20)
    choice = SelectorChoice("auto", 40.0, DELTA, 20, typical_keys=8, picks=TOP)
    for pairs, share in ((MANY, 0.34), (Pairs.of([range(4)] * 3000), 0.85)):  # only 4 keys: the fifth has no unit
        assert choice.draw(pairs, insecure_source(1)).mechanism.last.selector.share == share
    answers = [choose(picks=TOP, typical_keys=8).draw(rare, insecure_source(s)).mechanism.uses[0] for s in range(2)]
    assert answers[0] == answers[1] and answers[0].mechanism.units == math.ceil(
        2 * choose(picks=TOP, typical_keys=8)._after_choices("renyi", 8, 0.34).selector.users_needed(8)
    )


@pytest.mark.parametrize("picks", [replace_one_key(TOP), replace_one_key(HITTING)], ids=["top", "hitting"])
def test_units_with_one_key_need_no_picks_unless_keys_are_common(picks):
    rare = Pairs.of([[u % 200] for u in range(3000)])
    chosen = choose(picks=picks).draw(rare, insecure_source(1)).mechanism
    left = 0.96 if picks.k == K and len(picks.shares) > 1 else 0.98
    assert chosen.last.name == "top_tokens" and chosen.last.selector.epsilon == pytest.approx(left)
    assert chosen.certify().worst <= DELTA and from_json(chosen.to_json()) == chosen
    common = choose(picks=picks).draw(Pairs.of([[u % 5] for u in range(30_000)]), insecure_source(1)).mechanism
    assert common.last.name == ("top_k" if len(picks.shares) > 1 else "top_tokens")
    public = SelectorChoice("auto", EPSILON, DELTA, 1, typical_keys=1, picks=picks).public  # each row is a unit
    named = choose("one_key", picks=picks).public
    assert public.mechanism == named.mechanism and public.mechanism.selector.epsilon == EPSILON


def test_a_steep_mechanism_pays_with_epsilon(monkeypatch):
    """A candidate whose curve may be steep is for the epsilon that the choices leave, and for the same delta."""
    gentle = choose(picks=TOP).draw(MANY, insecure_source(1)).mechanism.last
    monkeypatch.setattr(RenyiSelector, "steepness", math.inf)
    steep = choose(picks=TOP).draw(MANY, insecure_source(1)).mechanism
    assert (gentle.epsilon, steep.last.epsilon) == (EPSILON, pytest.approx(0.96)) and steep.last.delta == gentle.delta
    assert steep.certify().worst <= DELTA
    greedy = choose().draw(Pairs.of([[u % 3] for u in range(3000)]), insecure_source(1)).mechanism.last
    assert greedy.name == "greedy" and greedy.epsilon == pytest.approx(0.99)


def test_a_budget_too_small_for_choices_makes_none():
    for small in (SelectorChoice("auto", 0.001, 1e-5, 5, picks=HITTING), SelectorChoice("auto", 1.0, 1e-20, 5)):
        assert small.public is not None and small.public.mechanism.delta == small.delta
