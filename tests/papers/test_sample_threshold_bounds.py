"""The bounds of the sample-and-threshold paper beside exact numbers."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.federated import Quantiles, level_plan, plan

from dpsieve.papers.sample_threshold import (  # isort: skip
    edge_error, enough_clients, fixed_sample_delta, lemma_3_delta, lemma_5_omission, lemma_6_reports, lemma_9_error,
    theorem_2_delta,
)  # fmt: skip


@pytest.mark.parametrize(("rate", "gamma", "beta"), [(0.1, 0.1, 0.01), (0.3, 0.2, 1e-4), (0.24, 0.5, 0.01)])
def test_enough_clients_for_a_relative_error(rate, gamma, beta):
    """One client fewer is too few, more clients are enough, and Lemma 6 (corrected) asks for far more."""
    chosen = plan(1.0, 1e-4, rate=rate)
    enough, proven = enough_clients(chosen, gamma, beta), lemma_6_reports(gamma, beta) / rate

    def failure(clients):
        x = np.arange(clients + 1)
        off = np.abs(x / rate - clients) > gamma * clients * (1 + 1e-12)
        off[: chosen.threshold] = True
        return stats.binom.pmf(x, clients, rate)[off].sum()

    assert enough < proven and failure(enough - 1) > beta
    assert all(failure(clients) <= beta for clients in [*range(enough, enough + 200), math.ceil(proven)])
    assert lemma_6_reports(gamma, beta) == pytest.approx(3 / gamma**2 * math.log(2 / beta))


def test_bad_parameters():
    for gamma, beta in ((0, 0.1), (1, 0.1), (0.1, 0), (0.1, "x"), (0.001, 1e-9)):
        with pytest.raises(DpsieveError, match=r"gamma|beta"):
            enough_clients(plan(1.0, 1e-8), gamma, beta)
    for wrong in ([0], [1.5], ["x"]):
        with pytest.raises(DpsieveError, match="frequencies"):
            lemma_5_omission(wrong, 0.1, 20)


class TestLemma9:
    """The error of a share below an edge of a tree of ranges."""

    def test_the_example_of_the_paper(self):
        """Section 4.2: threshold 10, ten levels, branching 2, epsilon 1: 10^4 / n, about 0.01 for a million clients."""
        assert lemma_9_error(1.0, 10**6, 10, 10) == pytest.approx(0.01)
        assert lemma_9_error(0.5, 10**6, 10, 10, branching=4) == pytest.approx(0.06)

    def test_it_leaves_out_the_sample_and_so_is_no_bound(self):
        """With 10^8 clients and its own rate, 1 / (levels threshold), the median is further off nine times of ten."""
        n, rate = 10**8, 1 / (10 * 10)
        claimed = lemma_9_error(1.0, n, 10, 10)
        reports = stats.binom(n // 2, rate)  # of the clients below the median; nothing is hidden
        within = reports.cdf(rate * n * (0.5 + claimed)) - reports.cdf(rate * n * (0.5 - claimed))
        assert within < 0.12
        exact = edge_error(level_plan(1.0, 1e-8, 10, coin=rate, threshold=10), n)
        assert exact.hidden < claimed < exact.deviation * math.sqrt(0.5)

    @pytest.mark.parametrize(("rate", "threshold", "clients"), [(0.1, 12, 10**5), (0.03, 3, 10**6), (0.5, 60, 2000)])
    def test_the_hidden_share_is_that_of_the_worst_size_of_ranges(self, rate, threshold, clients):
        chosen = level_plan(2.0, 0.5, 3, coin=rate, threshold=threshold)
        worst = 0.0
        for w in range(1, min(clients, math.ceil(3 * threshold / rate))):
            x = np.arange(min(threshold, w + 1))
            worst = max(worst, float((x * stats.binom.pmf(x, w, rate)).sum() / rate))
        found = edge_error(chosen, clients, branching=4)
        assert found.hidden == pytest.approx(min(1.0, 3 * 3 * worst / clients), rel=1e-9)
        assert found.hidden <= 3 * 3 * (threshold - 1) / rate / clients, "the paper counts all of the threshold"
        assert found.deviation == pytest.approx(stats.binom(clients, rate).std() / (rate * clients))

    def test_a_tree_errs_no_more(self):
        """Uniform values of 200,000 clients: no share is off by more than what is hidden and six deviations."""
        server = Quantiles(0.0, 1.0, epsilon=1.0, delta=1e-6, branching=4, depth=3)
        n, at = 200_000, np.linspace(0.0, 1.0, 65)
        answers = server.run((np.arange(n) + 0.5) / n)
        exact = edge_error(server.plan, n, branching=4)
        assert np.abs(answers.cdf(at).value - at).max() <= exact.hidden + 6 * exact.deviation

    def test_bad_parameters(self):
        for name, wrong in (("clients", 0), ("levels", 0), ("branching", 1), ("threshold", 0), ("epsilon", 0)):
            good = {"epsilon": 1.0, "clients": 10, "levels": 2, "threshold": 3, "branching": 2}
            with pytest.raises(DpsieveError, match=name):
                lemma_9_error(**good | {name: wrong})


def test_where_the_paper_has_no_bound():
    with pytest.raises(InvalidValue, match="rate"):
        theorem_2_delta(1.0, 0.7, 50)
    with pytest.raises(InvalidValue, match="epsilon"):
        lemma_3_delta(2.0, 0.1, 20)
    assert lemma_3_delta(1.0, 0.6, 20) == 1.0
    thresholds = np.arange(1, 60)
    for rate in (0.01, 0.1, 0.5):
        assert all(
            plan(1.0, rate=rate, threshold=int(t)).certify().worst <= theorem_2_delta(1.0, rate, t) for t in thresholds
        )


@pytest.mark.parametrize(("clients", "sample", "threshold"), [(12, 5, 2), (9, 4, 3), (30, 3, 2)])
def test_a_sample_of_fixed_size_leaks_its_share(clients, sample, threshold):
    """Section 3.2, by all samples: n clients of one value against n - 1 of it and one of another."""
    laws = []
    for values in ("a" * clients, "a" * (clients - 1) + "b"):
        law = Counter()
        for drawn in itertools.combinations(values, sample):
            counts = Counter(drawn)
            law[tuple(sorted((value, n) for value, n in counts.items() if n >= threshold))] += 1
        laws.append({shown: n / math.comb(clients, sample) for shown, n in law.items()})
    same, other = laws
    for epsilon in (0.0, 1.0, 20.0):
        delta = sum(max(0.0, mass - math.exp(epsilon) * same.get(shown, 0.0)) for shown, mass in other.items())
        assert delta == pytest.approx(fixed_sample_delta(clients, sample), rel=1e-9)
    with pytest.raises(DpsieveError, match="sample"):
        fixed_sample_delta(5, 6)
