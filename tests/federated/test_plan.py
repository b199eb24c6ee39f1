"""Plans for collection from clients: the smallest thresholds, the best rates, and how many to invite."""

import math

import numpy as np
import pytest
from scipy import stats

from dpsieve.channels import frequency_at, sample_threshold
from dpsieve.errors import DpsieveError, InvalidValue, NotCertified
from dpsieve.federated import Histogram, plan
from dpsieve.papers.sample_threshold import lemma_3_delta, theorem_2_delta
from dpsieve.papers.weighted_sampling import scaled
from dpsieve.privacy.guarantee import Guarantee


def half(made):
    """Return the lowest frequency that is reported half of the time."""
    return frequency_at(made, 0.5)


def test_a_plan_in_one_line():
    found = plan(1.0, 1e-8)
    assert found.guarantee == Guarantee(1.0, 1e-8, unit="one client")
    assert found.certify().worst <= 1e-8
    assert half(found) == pytest.approx(80, abs=3), "the paper needs 190"
    assert 0.2 < found.rate < 0.3


def test_the_paper_and_the_exact_delta():
    """Errata: 6.87e-15 where Theorem 2 says 1.5e-12 and Lemma 3 7.6e-9."""
    rate = (1 - math.exp(-1)) / 6
    assert plan(1.0, rate=rate, threshold=20).certify().worst == pytest.approx(6.87e-15, rel=2e-3)
    assert theorem_2_delta(1.0, rate, 20) == pytest.approx(1.5e-12, rel=0.02)
    assert lemma_3_delta(1.0, rate, 20) == pytest.approx(7.6e-9, rel=0.01)
    assert half(plan(1.0, 1e-8, rate=rate, threshold=20)) == pytest.approx(190, abs=4)


@pytest.mark.parametrize(("rate", "threshold"), [(0.105, 11), (0.2, 17), (0.3, 24), (0.5, 50), (0.632, 84)])
def test_the_smallest_thresholds(rate, threshold):
    found = plan(1.0, 1e-8, rate=rate)
    assert found.threshold == threshold and found.certify().worst <= 1e-8
    assert sample_threshold(rate, threshold - 1).guarantee.delta > 1e-8


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 1e-6), (0.3, 1e-8), (1.0, 1e-12), (2.0, 1e-4), (5.0, 1e-12)])
def test_the_best_plan_is_tight_and_no_neighbour_is_better(neighbours, epsilon, delta):
    found = plan(epsilon, delta, neighbours=neighbours)
    assert found.guarantee == Guarantee(epsilon, delta, neighbours, "one client")
    assert 0.9 * delta < found.certify().worst == found.delta(epsilon, neighbours) <= delta
    assert found.reporting_probability([half(found)])[0] >= 0.5 > found.reporting_probability([half(found) - 1])[0]
    for threshold in (max(1, found.threshold - 1), found.threshold + 1, 2 * found.threshold):
        assert half(plan(epsilon, delta, threshold=threshold, neighbours=neighbours)) >= half(found) * 0.99
    assert plan(epsilon, delta, rate=found.rate, neighbours=neighbours).threshold == found.threshold


def test_the_largest_rate_of_a_threshold():
    for neighbours in ("add_remove", "replace"):
        found = plan(1.0, 1e-8, threshold=24, neighbours=neighbours)
        assert found.threshold == 24 and found.certify().worst <= 1e-8
        more = sample_threshold(found.rate * 1.005, 24, epsilon=1.0, neighbours=neighbours)
        assert more.guarantee.delta > 1e-8


def test_no_more_clients_than_allowed():
    few = plan(1.0, 1e-8, contacted=1000, population=100_000)
    assert few.rate <= 0.01 and half(few) <= half(plan(1.0, 1e-8, rate=0.01))
    exactly = plan(1.0, 0.01, goal="error", frequency=10**6, contacted=1000, population=100_000)
    assert exactly.rate == 0.01 and exactly.threshold == plan(1.0, 0.01, rate=0.01).threshold
    many = plan(1.0, 1e-8, contacted=90_000, population=100_000)
    assert many == plan(1.0, 1e-8)
    for extra in ({"contacted": 5}, {"population": 5}, {"contacted": 6, "population": 5}):
        with pytest.raises(DpsieveError, match=r"contacted|population"):
            plan(1.0, 1e-8, **extra)
    with pytest.raises(InvalidValue, match="contacted"):
        plan(1.0, 1e-8, rate=0.5, contacted=1000, population=100_000)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("frequency", [90, 3000, 100_000])
def test_the_least_error_of_values_up_to_a_size(frequency, neighbours):
    """No other rate has a lower error at its worst over the frequencies 1, 2, ... of that range."""

    def worst(plan):
        error = scaled(plan).mse
        asked = np.unique(np.geomspace(1, frequency, 300).astype(int))
        return error(asked).max()

    best = plan(1.0, 1e-8, goal="error", frequency=frequency, neighbours=neighbours)
    assert half(best) <= frequency
    for other in (best.rate / 2, best.rate / 1.1, best.rate * 0.1 + 0.9):
        assert worst(plan(1.0, 1e-8, rate=other, neighbours=neighbours)) >= 0.99 * worst(best)


@pytest.mark.parametrize(
    ("epsilon", "delta", "frequency"),
    [(0.3, 1e-4, 200), (0.3, 1e-4, 3000), (1.0, 1e-8, 200), (1.0, 1e-8, 10**6), (2.0, 1e-6, 3000)],
)
def test_no_threshold_has_a_lower_error(epsilon, delta, frequency):
    """Every threshold from half to twice the one found, each at its largest rate, over many frequencies."""

    def worst(rate, threshold):
        w = np.unique(np.append(np.geomspace(min(threshold, frequency), frequency, 1000).astype(int), frequency))
        x = np.arange(threshold)
        hidden = w[w * rate < 4 * threshold + 60]  # beyond, nothing is hidden to speak of
        chance = stats.binom.pmf(x, hidden[:, None], rate)
        lost = (chance * (2 * hidden[:, None] * x / rate - (x / rate) ** 2)).sum(axis=1)
        return max((hidden * (1 - rate) / rate + lost).max(initial=0.0), frequency * (1 - rate) / rate)

    best = plan(epsilon, delta, goal="error", frequency=frequency)
    found = worst(best.rate, best.threshold)
    step = max(1, best.threshold // 12)
    near = set(range(best.threshold - 2, best.threshold + 3)) | set(
        range(best.threshold // 2, 2 * best.threshold, step)
    )
    for threshold in near - {0}:
        rate = plan(epsilon, delta, threshold=threshold).rate
        assert found <= worst(rate, threshold) * (1 + 2e-4)


def test_the_least_error_needs_values_that_can_be_reported():
    with pytest.raises(InvalidValue, match=r"frequency=60.*fewer than 78 clients"):
        plan(1.0, 1e-8, goal="error", frequency=60)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 1e-12), (1.0, 1e-8)])
def test_the_least_error_of_very_frequent_values_that_are_replaced(epsilon, delta):
    found = plan(epsilon, delta, neighbours="replace", goal="error", frequency=10**7)
    assert found.threshold > 500 and 0.8 * delta < found.certify().worst <= delta


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_a_plan_at_the_corner_of_small_budgets(neighbours):
    assert plan(0.05, 1e-12, neighbours=neighbours).certify().worst <= 1e-12


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_a_plan_against_made_up_reports(neighbours):
    """The promise is kept with the threshold less the reports that may be made up, and the rate stays."""
    alone, guarded = (plan(1.0, 1e-8, neighbours=neighbours, hostile=h) for h in (0, 20))
    assert guarded.rate == alone.rate and guarded.threshold == alone.threshold + 20
    assert Histogram(guarded).guarantee_against(20).delta <= 1e-8 < Histogram(alone).guarantee_against(20).delta
    assert plan(1.0, 1e-8, threshold=39, hostile=20, neighbours=neighbours).threshold == 39
    with pytest.raises(DpsieveError, match="hostile"):
        plan(1.0, 1e-8, threshold=5, hostile=5)


def test_bad_parameters():
    for name, values in {
        "epsilon": (0, -1, math.nan, "1"),
        "delta": (0, 1.0, "x", None),
        "rate": (0, 1, "x"),
        "threshold": (0, 1.5, "x"),
        "neighbours": ("both", None),
        "goal": ("other", None),
        "frequency": (0, -1, 1.5),
    }.items():
        for value in values:
            with pytest.raises(DpsieveError, match=name):
                plan(**({"epsilon": 1.0, "delta": 1e-8} | {name: value}))
    with pytest.raises(DpsieveError, match="frequency"):
        plan(1.0, 1e-8, goal="error")
    with pytest.raises(NotCertified, match="delta"):
        plan(1.0, 1e-8, rate=0.3, threshold=20)
    with pytest.raises(InvalidValue, match="threshold above"):
        plan(0.05, 1e-12, rate=0.999)
    with pytest.raises(InvalidValue, match="too low"):
        plan(1.0, 1e-12, threshold=1)
