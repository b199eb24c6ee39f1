"""The choice of a selector: public numbers, or a private median."""

import math
from typing import get_args

import pytest

from dpsieve.accounting.products import raised_by_range, steepest
from dpsieve.channels import optimal
from dpsieve.discovery.choice import Picks, SelectorChoice
from dpsieve.discovery.picks import hitting_keys, hitting_lower, top_keys
from dpsieve.discovery.renyi import RenyiSelector
from dpsieve.engines.true_data import Pairs
from dpsieve.privacy.mechanism import from_json
from dpsieve.testing import insecure_source
from dpsieve.validate import SelectorName

EPSILON, DELTA, K = 1.0, 1e-5, 5
MANY = Pairs.of([range(8)] * 3000)  # 3,000 units with the same 8 keys


def make_top(selector, epsilon, delta):
    return top_keys(epsilon, delta, selector.max_keys, K, selector=selector)


def make_hitting(selector, epsilon, delta):
    return hitting_keys(epsilon, delta, selector.max_keys, K, selector=selector)


TOP, HITTING = Picks(0.6, make_top), Picks(0.5, make_hitting, hitting_lower(K))


def choose(method="auto", **more):
    return SelectorChoice(method, EPSILON, DELTA, 20, **more)


@pytest.mark.parametrize(("method", "picks"), [(m, p) for m in get_args(SelectorName) for p in (None, TOP, HITTING)])
def test_every_selector_by_coins_is_made_for_a_private_median(method, picks):
    choice = choose(method, picks=picks)
    if method not in ("auto", "renyi", "renyi_two_rounds"):
        assert choice.public is not None
        return
    chosen = choice.draw(MANY, insecure_source(1))
    assert [use.mechanism.name for use in chosen.mechanism.uses[:-1]] == ["typical_size"]
    last = chosen.mechanism.last
    selector = last if picks is None else last.selector
    assert selector.name == {"auto": "renyi" if picks else "renyi_two_rounds"}.get(method, method)
    assert selector.least > 1 and "units typically hold 8 keys, by a private median" in chosen.reason
    assert choose(method, picks=picks, typical_keys=8).public is not None


def test_the_account_of_all_stages():
    """The median raises delta by its factor; nothing else is lost."""
    whole = choose(picks=TOP).draw(MANY, insecure_source(1)).mechanism
    median, picker = (use.mechanism for use in whole.uses)
    part = whole.certify().parts[-1]
    assert (median.epsilon, picker.epsilon) == (0.02, EPSILON)
    assert part.worst == pytest.approx(picker.delta * raised_by_range(median.epsilon, steepest(EPSILON, DELTA)))
    assert 0.999 * DELTA < part.worst <= DELTA and from_json(whole.to_json()) == whole


@pytest.mark.parametrize("picks", [TOP, HITTING], ids=["top", "hitting"])
def test_units_with_one_key_need_no_picks(picks):
    chosen = choose(picks=picks).draw(Pairs.of([[u % 200] for u in range(3000)]), insecure_source(1)).mechanism
    assert chosen.last == optimal(chosen.last.epsilon, chosen.last.delta_)
    assert chosen.last.epsilon == pytest.approx(0.98) and chosen.last.delta_ < DELTA
    assert chosen.certify().worst <= DELTA and from_json(chosen.to_json()) == chosen
    public = SelectorChoice("auto", EPSILON, DELTA, 1, typical_keys=1, picks=picks).public  # each row is a unit
    assert public.mechanism == choose("one_key", picks=picks).public.mechanism == optimal(EPSILON, DELTA)


def test_a_steep_mechanism_pays_with_epsilon(monkeypatch):
    """A candidate whose curve may be steep is for the epsilon that the choices leave, and for the same delta."""
    gentle = choose(picks=TOP).draw(MANY, insecure_source(1)).mechanism.last
    monkeypatch.setattr(RenyiSelector, "steepness", math.inf)
    steep = choose(picks=TOP).draw(MANY, insecure_source(1)).mechanism
    assert (gentle.epsilon, steep.last.epsilon) == (EPSILON, pytest.approx(0.98)) and steep.last.delta == gentle.delta
    assert steep.certify().worst <= DELTA
    greedy = choose().draw(Pairs.of([[u % 3] for u in range(3000)]), insecure_source(1)).mechanism.last
    assert greedy.name == "greedy" and greedy.epsilon == pytest.approx(0.99)


def test_a_budget_too_small_for_choices_makes_none():
    for small in (SelectorChoice("auto", 0.001, 1e-5, 5, picks=HITTING), SelectorChoice("auto", 1.0, 1e-20, 5)):
        assert small.public is not None and small.public.mechanism.delta == small.delta
