"""Counts and totals in one draw: privacy by enumeration, rates by measurement, intervals by coverage."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers.statistical import assert_follows, binomial_band

from dpsieve.errors import DpsieveError, InvalidValue, NotCertified
from dpsieve.noise import key_totals as module
from dpsieve.noise import totals as totals_module
from dpsieve.noise.key_totals import KeyTotals, half_published, key_totals
from dpsieve.noise.totals import GRID, Total, columns_of
from dpsieve.privacy.mechanism import Composed, Use, from_json
from dpsieve.randomness.noise import cube_tail

MEAN = Total("rating", "mean", 1, 5)
PAIR = (MEAN, Total("price", "sum", 0, 200))
COARSE, REACH = 2, 45  # steps of a unit, and of the noise that is enumerated


@pytest.fixture
def coarse(monkeypatch):
    """A grid of two steps instead of 2^19, so that all outcomes can be enumerated."""
    for one in (module, totals_module):
        monkeypatch.setattr(one, "GRID", COARSE)
    module._least_threshold.cache_clear()
    yield lambda epsilon, delta: key_totals(epsilon, delta, (MEAN,))
    module._least_threshold.cache_clear()


def outcomes(each, count, centred, reach=REACH):
    """P[(token, sum)] of one key on a grid of outcomes; 'nothing' comes last."""
    x = np.arange(-reach, reach + 1)
    noise = np.exp(-np.maximum(np.abs(x)[:, None], np.abs(x)[None]) / each.scale)
    noise /= noise.sum()
    size = 2 * (reach + 4 * COARSE) + 1
    law = np.zeros((size, size))
    if count:
        law[np.ix_(x + count * COARSE + size // 2, x + centred + size // 2)] = noise
    tokens = np.arange(size) - size // 2
    shown = law[tokens >= each.threshold].ravel()
    return np.append(shown, 1 - shown.sum())


def divergence(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def test_one_key_by_enumeration(coarse):
    """Every count, every centred sum that units can have, and every value that one unit more adds."""
    each = coarse(1.5, 1e-2)
    worst = 0.0
    for count in range(3):
        for centred in range(-count * COARSE, count * COARSE + 1, 2):
            for added in range(-COARSE, COARSE + 1):
                p, q = outcomes(each, count, centred), outcomes(each, count + 1, centred + added)
                worst = max(worst, divergence(p, q, 1.5), divergence(q, p, 1.5))
    assert worst <= 1e-2 + 1e-9
    assert worst >= 0.6e-2  # and the threshold is not higher than a step of this coarse grid needs


def test_two_keys_of_a_unit_by_enumeration(coarse):
    """The composed mechanism, where the unit adds extreme values to a key of its own and to a common one."""
    from dpsieve.accounting.composition import repeated_share

    share, reach = repeated_share(2, 4.0, 5e-2), 16
    each = coarse(share.epsilon, share.delta)
    assert Composed(4.0, 5e-2, (Use(each, 2),)).certify().worst <= 5e-2
    alone = outcomes(each, 0, 0, reach), outcomes(each, 1, COARSE, reach)
    common = outcomes(each, 2, -2 * COARSE, reach), outcomes(each, 3, -COARSE, reach)
    beyond = 4 * math.exp(4.0 - reach / each.scale) * reach  # of the enumeration
    for first, second in ((alone, alone), (alone, common), (common, common)):
        p, q = (np.multiply.outer(first[i], second[i]).ravel() for i in (0, 1))
        assert max(divergence(p, q, 4.0), divergence(q, p, 4.0)) <= 5e-2 + beyond
        assert beyond < 1e-3


def test_draws_follow_the_enumerated_law(coarse):
    each, n = coarse(1.5, 1e-2), 100_000
    outcome = each.draw(np.full(n, 3), sums=np.full((1, n), 2 * COARSE))  # two units add the most, one the least
    law, size = outcomes(each, 3, COARSE), 2 * (REACH + 4 * COARSE) + 1
    shown = outcome.tokens > 0
    rows = (outcome.tokens[shown] - each.threshold) * size + outcome.sums[0, shown] + size // 2
    assert_follows(np.append(rows, np.full(n - len(rows), len(law) - 1)), np.arange(len(law)), law)


def test_the_rate_of_a_key_of_one_unit_with_extreme_values():
    """A unit that adds extremes to many keys that nobody else holds is shown with delta, and nearly that."""
    each, draws = key_totals(1.0, 1e-3, PAIR), 400_000
    outcome = each.draw(np.ones(draws, np.int64), sums=np.full((2, draws), GRID))
    assert np.count_nonzero(outcome.tokens) <= binomial_band(draws, 1e-3)[1]
    assert np.count_nonzero(outcome.tokens) >= binomial_band(draws, 0.99e-3)[0]
    assert (outcome.sums[:, outcome.tokens == 0] == 0).all()  # nothing of a key that is not published
    for epsilon, delta in ((1.0, 1e-8), (0.01, 1e-6), (3.0, 1e-5)):
        one = key_totals(epsilon, delta, PAIR)
        assert 0.999 * delta <= one.certify().worst <= delta
        assert cube_tail(one.scale, 3, one.threshold - GRID - 1) > delta


def test_how_often_keys_are_published():
    each = key_totals(1.0, 1e-8, (MEAN,))
    counts = np.arange(15, 30)
    for count, probability in zip(counts, each.reporting_probability(counts), strict=True):
        outcome = each.draw(np.full(20_000, count), sums=np.full((1, 20_000), count * GRID // 2))
        low, high = binomial_band(20_000, probability)
        assert low <= np.count_nonzero(outcome.tokens) <= high
    assert half_published(1.0, 1e-8, 2) == pytest.approx(each.frequency_at(0.5), abs=1)


@pytest.mark.parametrize("count", [15, 19, 21, 23, 26, 30, 60])
@pytest.mark.parametrize("share", [0.0, 0.55, 1.0])
def test_stated_intervals_are_wrong_at_most_five_times_in_a_hundred(count, share):
    """Given that the key is published, for counts around the threshold and far above it."""
    each, draws = key_totals(1.0, 1e-3 if count < 20 else 1e-8, PAIR), 40_000
    amount = round(share * GRID)
    outcome = each.draw(np.full(draws, count), sums=np.full((2, draws), count * amount))
    shown = np.flatnonzero(outcome.tokens)
    reading = each.read(outcome.tokens[shown])
    most = binomial_band(len(shown), 0.05)[1]
    assert ((reading.low > count) | (reading.high < count)).sum() <= most
    unknown = reading.low <= 1
    columns = columns_of(PAIR, (), outcome.tokens[shown], outcome.sums[:, shown], each.half_width_of, unknown)
    for name, true in (("rating", 1 + 4 * amount / GRID), ("price", count * 200 * amount / GRID)):
        low, high = (columns[f"{name}_{end}"].to_numpy(zero_copy_only=False) for end in ("low", "high"))
        assert ((low > true + 1e-9) | (high < true - 1e-9)).sum() <= most  # null is neither


def test_keys_of_a_public_list_are_all_answered():
    each = key_totals(1.0, 0.0, PAIR)
    assert each.reports_all and each.threshold == 0 and each.certify().worst == 0
    outcome = each.draw(np.zeros(50_000, np.int64), sums=np.zeros((2, 50_000), np.int64))
    assert outcome.tokens.std() / GRID == pytest.approx(each.deviation, rel=0.05)
    assert outcome.sums.std() / GRID == pytest.approx(each.deviation, rel=0.05)
    assert each.possible(outcome.tokens) and abs(outcome.tokens.mean()) < 0.2 * GRID


def test_what_is_saved_is_checked():
    each = key_totals(1.0, 1e-8, PAIR)
    assert from_json(each.to_json()) == each
    for change in ({"scale": each.scale * 0.999}, {"threshold": each.threshold - GRID}):
        with pytest.raises(NotCertified):
            replace(each, **change).certify()
    for change in ({"threshold": 0}, {"delta_": 0.0}, {"threshold": 5}, {"totals": ()}, {"scale": math.inf}):
        with pytest.raises(DpsieveError):
            replace(each, **change)
    with pytest.raises(InvalidValue, match="epsilon"):
        key_totals(1e-5, 1e-8, PAIR)
    assert isinstance(from_json(Composed(1.0, 1e-8, (Use(each),)).to_json()).last, KeyTotals)
