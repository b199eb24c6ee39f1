"""One quantile by splits: the interval covers it, both protocols, and few clients show as often as they may."""

import numpy as np
import pytest
from helpers.statistical import FALSE_ALARM, binomial_band
from scipy import stats

from dpsieve.errors import DpsieveError
from dpsieve.papers.sample_threshold import search_quantile
from dpsieve.privacy.guarantee import Guarantee

LEVEL = {"epsilon": 2.0, "delta": 1e-6, "coin": 0.2, "threshold": 20}  # no search for a plan
COUNT = 60_000


def data(name):
    rng = np.random.default_rng(5)
    return {
        "uniform": rng.random(COUNT),
        "skewed": rng.beta(0.3, 6.0, COUNT),
        "constant": np.full(COUNT, 0.3),
        "tenths": rng.integers(0, 11, COUNT) / 10,
        "two ends": rng.integers(0, 2, COUNT).astype(float),
    }[name]


def search(values, phi=0.5, bounds=(0.0, 1.0), **other):
    return search_quantile(values, phi, bounds, **(LEVEL | other))


@pytest.mark.parametrize("name", ["uniform", "skewed", "constant", "tenths", "two ends"])
@pytest.mark.parametrize("protocol", ["rounds", "cohorts"])
def test_the_quantile_is_within_its_interval(name, protocol):
    values = data(name)
    for phi in (0.0, 0.1, 0.5, 0.9, 1.0):
        value, low, high, _ = search(values, phi, protocol=protocol, confidence=1 - FALSE_ALARM)
        assert low <= value <= high
        assert low <= np.quantile(values, phi, method="inverted_cdf") <= high
    median = search(data("uniform"), protocol=protocol)
    assert median.high - median.low < (0.2 if protocol == "rounds" else 0.45)


def test_few_clients_show_as_often_as_their_sample_reaches_the_threshold():
    """Eight clients on one side: the answer moves if five or more of them are sampled, otherwise it stays half-way."""
    runs, budget = 400, {"epsilon": 8.0, "delta": 0.5, "rounds": 1, "coin": 0.5, "threshold": 5}
    moved = sum(search([0.2] * 8, **budget).value != 0.5 for _ in range(runs))
    low, high = binomial_band(runs, stats.binom.sf(4, 8, 0.5))
    assert low <= moved <= high


def test_the_guarantee_is_that_of_all_rounds_without_pruning():
    found = search_quantile(np.linspace(0, 1, 1000), 0.5, (0.0, 1.0), epsilon=1.0, delta=1e-6, rounds=3)
    assert found.guarantee == Guarantee(1.0, 1e-6, unit="one client") and found.plan.levels == 3
    assert not found.plan.pruned and found.plan.certify().worst <= 1e-6, "both sides are asked again"


@pytest.mark.parametrize("values", [[], [0.5], [np.nan]])
def test_nobody_and_one_client(values):
    assert search(values)[1:3] == (0.0, 1.0)


def test_bad_parameters():
    for other in (
        {"phi": 2}, {"bounds": (5, 1)}, {"rounds": 0}, {"protocol": "one_round"}, {"confidence": 1},
        {"bounds": (0, np.inf)}, {"bounds": ("a", 1)},
    ):  # fmt: skip
        with pytest.raises(DpsieveError):
            search([], **other)
    with pytest.raises(DpsieveError, match="values"):
        search(["x"])
