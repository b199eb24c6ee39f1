"""The least budget for a goal, and what a guarantee means for a guess."""

import itertools
import math

import numpy as np
import pytest
from helpers.statistical import binomial_band

import dpsieve as ds
from dpsieve.channels import optimal
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.jobs.mechanisms import choose_mechanism
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.jobs.table_request import TableRequest
from dpsieve.jobs.totals import mechanism_of_totals
from dpsieve.noise.totals import GRID, columns_of
from dpsieve.privacy.guarantee import Guarantee


def last_of(found, **shared):
    request = ReleaseRequest(
        key=("any",), privacy_unit="user_id", epsilon=found.epsilon, delta=found.delta,
        **{"max_keys_per_unit": 1, **shared},
    )  # fmt: skip
    return choose_mechanism(request, request.contribution).mechanism.last


def test_keys_of_fifty_users_appear_with_the_wanted_probability_and_no_less_budget_will_do():
    found = ds.choose_epsilon(appear=(50, 0.95), delta=1e-8)
    assert found.reached[0][1] >= 0.95 > optimal(found.epsilon - 0.001, 1e-8).reporting_probability([50])[0]
    assert optimal(found.epsilon, 1e-8).reporting_probability([50])[0] == found.reached[0][1]
    assert found.preview.surely == 50 and found.delta == 1e-8


def test_counts_are_as_close_as_the_draw_makes_them():
    """The stated probability is that of drawn tokens, read as counts."""
    found = ds.choose_epsilon(count_within=(10, 0.9), delta=1e-6, max_keys_per_unit=2)
    (_, probability), draws = found.reached[0], 20_000
    mechanism = last_of(found, max_keys_per_unit=2)
    counts = mechanism.read(mechanism.draw(np.full(draws, 100_000)).tokens).count
    low, high = binomial_band(draws, probability)
    assert low <= (np.abs(counts - 100_000) <= 10).sum() <= high
    assert 0.9 <= probability < 0.99


def test_all_goals_are_reached_by_the_mechanism_of_a_release():
    goals = {"appear": (150, 0.9), "count_within": (40, 0.95)}
    found = ds.choose_epsilon(**goals, delta=1e-6, max_keys_per_unit=10)
    (_, shown), (_, close) = found.reached
    assert shown >= 0.9 and close >= 0.95
    seen = ds.preview(privacy_unit="user_id", epsilon=found.epsilon, delta=1e-6, max_keys_per_unit=10)
    assert (seen.mechanism, seen.width) == (found.preview.mechanism, found.preview.width)


@pytest.mark.parametrize(("keys", "name"), [(1, "key_totals"), (20, "find_then_measure")])
def test_means_are_as_close_as_the_draw_makes_them(keys, name):
    """At the mean for which the statement is tightest, drawn means are within the distance as often as stated.

    Beside it, goals about keys and counts that need less budget hold as well.
    """
    units, distance, draws = 400, 0.1, 20_000
    means, goals = {"rating": (1, 5)}, {"appear": (300, 0.9), "count_within": (100, 0.9)}
    found = ds.choose_epsilon(
        **goals, mean_within=(units, distance, 0.9), means=means, delta=1e-8, max_keys_per_unit=keys
    )
    request = TableRequest(
        key=("any",), privacy_unit="user_id", epsilon=found.epsilon, delta=1e-8, means=means, max_keys_per_unit=keys
    )
    mechanism, _ = mechanism_of_totals(request)
    reader, (total,) = mechanism.reader({}), request.totals
    mean = 5 - distance - 0.001  # clipped means are further off, above and below
    moved = round((mean - total.centre) / total.half_width * GRID)
    true = np.full((1, draws), units * moved)
    if name == "key_totals":
        drawn = mechanism.draw(np.full(draws, units), sums=(true + GRID * units) // 2)
        published = drawn.tokens > 0
        tokens, noisy = drawn.tokens[published], drawn.sums[:, published]
    else:
        noise = np.random.default_rng(1).normal(0, reader.scale * GRID, (2, draws))
        tokens, noisy = np.rint(units + noise[0] / GRID).astype(np.int64) * GRID, true + np.rint(noise[1:]).astype(int)
    unknown = np.zeros(len(tokens), bool)
    table = columns_of(request.totals, ["key"], tokens, noisy, reader.half_width_of, unknown)
    close = np.abs(np.array(table["rating_mean"].to_numpy(zero_copy_only=False), float) - mean) <= distance
    probability = found.reached[-1][1]
    band = binomial_band(len(tokens), probability)
    assert mechanism.name == name and 0.9 <= probability <= 0.93
    assert all(other >= 0.9 for _, other in found.reached) and "means={'rating': (1, 5)}" in found.call
    assert band[0] <= close.sum() <= band[1] + 0.03 * len(tokens), "the statement is a bound, and nearly met"


def test_goals_about_means_need_columns_and_public_bounds():
    for wrong, fix in [
        ({"mean_within": (200, 0.1, 0.95)}, "Pass means="),
        ({"mean_within": (200, 0.1), "means": {"x": (0, 1)}}, "three numbers"),
        ({"mean_within": (200, 3, 0.9), "means": {"x": (0, 1)}}, "mean_within"),
        ({"mean_within": (200, 0.1, 0.95), "means": {"x": "auto"}}, "Pass two numbers"),
        ({"mean_within": (2, 0.1, 0.95), "means": {"x": (0, 1)}, "min_units": 5}, "fewer than 5"),
    ]:
        with pytest.raises((InvalidType, InvalidValue), match=fix):
            ds.choose_epsilon(**wrong, delta=1e-8)


def test_the_least_delta_is_found_for_an_epsilon():
    found = ds.choose_epsilon(appear=(50, 0.95), epsilon=0.5)
    assert found.epsilon == 0.5 and found.reached[0][1] >= 0.95
    assert optimal(0.5, found.delta * 0.99).reporting_probability([50])[0] < 0.95


def test_a_floor_is_part_of_the_goal():
    plain, high = (ds.choose_epsilon(appear=(50, 0.95), delta=1e-8, min_units=least) for least in (1, 20))
    assert high.epsilon > plain.epsilon
    assert last_of(high, min_units=20).reporting_probability([19, 50]).tolist() == [0.0, high.reached[0][1]]
    assert "min_units=20" in high.call


def test_the_call_can_be_copied():
    found = ds.choose_epsilon(appear=(60, 0.9), delta=1e-6, max_keys_per_unit=3, privacy_unit="user")
    assert found.call.endswith("delta=1e-06, max_keys_per_unit=3)") and f"epsilon={found.epsilon!r}" in found.call
    rows = {"user": [u for u in range(400) for _ in range(2)], "word": ["tea", "milk"] * 400}
    import pyarrow as pa

    made = eval(found.call.replace("...", "word"), {"dpsieve": ds, "data": pa.table(rows)})
    assert set(made.table.column("word").to_pylist()) == {"tea", "milk"}
    assert ("goal", f"{found.reached[0][0]}: {math.floor(found.reached[0][1] * 1e4) / 100:g} %") in found.lines()
    assert found.to_json()["preview"]["half"] == found.preview.half
    assert "least budget" in str(found) and "<table" in found._repr_html_()


@pytest.mark.parametrize(
    ("goals", "kind", "why"),
    [
        ({"appear": (1, 0.5)}, InvalidValue, "no epsilon up to 20 reaches the goal. At 20, a key of frequency 1 is"),
        ({"appear": (50, 0.95), "min_units": 60}, InvalidValue, "none of fewer than 60 is shown"),
        ({}, InvalidType, "a goal is missing"),
        ({"appear": 50}, InvalidType, "appear is not a pair"),
        ({"appear": (50.5, 0.9)}, InvalidType, "appear must be a whole number"),
        ({"appear": (50, 1.0)}, InvalidValue, "appear=1"),
        ({"count_within": (0, 0.9)}, InvalidValue, "count_within=0"),
        ({"appear": (50, 0.9), "epsilon": 1.0}, InvalidType, "Pass either delta"),
        ({"appear": (50, 0.9), "max_keys_per_unit": "auto"}, InvalidValue, "chooses by the data"),
        ({"appear": (50, 0.9), "method": "magic"}, InvalidValue, "method is not known"),
    ],
)
def test_goals_that_make_no_sense_are_refused(goals, kind, why):
    with pytest.raises(kind, match=why):
        ds.choose_epsilon(**{"delta": 1e-8, **goals})


def best_of_all_tests(p, q):
    """The largest probability of a right guess between two distributions that are equally likely, over all tests."""
    outputs = range(len(p))
    tests = itertools.chain.from_iterable(itertools.combinations(outputs, k) for k in range(len(p) + 1))
    return max(0.5 * sum(p[o] for o in test) + 0.5 * sum(q[o] for o in outputs if o not in test) for test in tests)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 0.0), (0.5, 0.1), (3.0, 1e-3), (8.0, 0.2)])
def test_the_odds_are_those_of_the_hardest_mechanism(epsilon, delta):
    """It leaks everything with probability delta, and else answers truthfully with odds of e^epsilon."""
    keep = (1 - delta) / (1 + math.exp(epsilon))
    p, q = (delta, keep * math.exp(epsilon), keep, 0.0), (0.0, keep, keep * math.exp(epsilon), delta)
    stated = Guarantee(epsilon, delta).best_guess
    assert stated == pytest.approx(best_of_all_tests(p, q), rel=1e-12) and stated >= best_of_all_tests(p, q) - 1e-16


def test_the_odds_are_rounded_up_and_never_certain_without_reason():
    from fractions import Fraction

    from flint import arb, ctx

    ctx.prec = 300
    for epsilon, delta in ((1.0, 1e-8), (1e-3, 0.0), (20.0, 1e-12), (0.1, 0.3)):
        exact = 1 - (1 - arb(delta)) / (1 + arb(epsilon).exp())
        assert arb(Guarantee(epsilon, delta).best_guess) > exact
        shown = Guarantee(epsilon, delta).describe_odds().split("at most ")[1].split()[0]
        assert arb(Fraction(shown).numerator) / Fraction(shown).denominator >= 100 * exact
    assert Guarantee(500.0).best_guess == 1.0
    assert Guarantee(1.0, neighbours="replace").describe_odds().startswith("a guess what one row holds is right")


def test_previews_show_the_odds():
    seen = dict(ds.preview(privacy_unit="row", epsilon=1.0, delta=1e-8).lines())
    assert (
        seen["odds"]
        == "a guess whether one row is in the data is right at most 73.2 % of the time, if it was 50 % before"
    )
