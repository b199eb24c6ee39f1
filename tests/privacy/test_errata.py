"""Slips in the papers that can be computed and that no test of a mechanism covers.

docs/background/errata.md has them all.
"""

import math

import numpy as np
import pytest
from scipy import stats

import dpsieve as ds
from dpsieve.accounting.composition import repeated_delta


def composed_delta(count, epsilon, delta, total):
    """The exact delta of the worst (epsilon, delta)-private mechanism, used `count` times, at epsilon `total`.

    Each use shows all with probability delta, and else the answer of randomised response (Kairouz, Oh, Viswanath 2015).
    """
    j = np.arange(count + 1)
    ways = stats.binom.logpmf(j, count, 1 / (1 + math.exp(-epsilon)))
    losses = (2 * j - count) * epsilon
    told = np.exp(ways) @ np.maximum(-np.expm1(total - losses), 0)
    return -math.expm1(count * math.log1p(-delta)) + (1 - delta) ** count * told


@pytest.mark.parametrize(
    ("total", "claimed", "exact"),
    [
        # The proof of Lemma 7 (sample-and-threshold): L e^2 + e sqrt(L ln(1/(d L))) at 2 L d.
        (100 * 0.1**2 + 0.1 * math.sqrt(100 * math.log(1 / (1e-8 * 100))), 2e-6, 2.42e-6),
        # Fact 1.4 of the thesis: k e^2 / 2 + sqrt(2 k e^2 ln(1/d')) at d' = k d.
        (100 * 0.1**2 / 2 + math.sqrt(2 * 100 * 0.1**2 * math.log(1e6)), 1e-6, 1.0038e-6),
    ],
    ids=["Lemma 7", "Fact 1.4"],
)
def test_composition_as_printed_is_no_bound(total, claimed, exact):
    """100 uses of a (0.1, 1e-8)-private mechanism."""
    found = composed_delta(100, 0.1, 1e-8, total)
    assert found > claimed and found == pytest.approx(exact, rel=2e-3)
    assert repeated_delta(100, total, each_epsilon=0.1, each_delta=1e-8) == pytest.approx(found, rel=1e-6)


def test_moments_give_no_exponential_tail():
    """Lemma 5.7, p = 2, one coordinate of Student's t with 5 degrees: it has the moments, and a tail of t^-2.5."""
    law = stats.t(5)
    assert law.var() == pytest.approx(5 / 3)
    tails = [2 * law.sf(math.sqrt(t * law.var())) for t in (100.0, 1000.0, 10_000.0)]
    assert tails == pytest.approx([5.0e-5, 1.7e-7, 5.3e-10], rel=0.05)
    assert tails[1] / tails[2] == pytest.approx(10**2.5, rel=0.02)


def test_scaled_noise_has_twice_the_exponent():
    """Section 5.4.4: noise times S^(1/(p+2)), for the diagonal S of variances, has the covariance S^(2/(p+2))."""
    for p, variance in ((1, 9.0), (2, 16.0)):
        scaled = variance ** (1 / (p + 2)) * stats.norm(scale=1).std()
        assert scaled**2 == pytest.approx(variance ** (2 / (p + 2))) != pytest.approx(variance ** (1 / (p + 2)))


def test_a_median_of_rank_error_below_a_sixth_may_be_off_by_more_than_sigma():
    """Appendix 5.B takes |mu - mu~| <= sigma from Lemma 5.6, which proves 3 sigma: 1 sigma is exceeded."""
    q = 0.34  # of the rows are 1, others 0: the quantile of rank 2/3 is 1
    mean, sigma = q, math.sqrt(q * (1 - q))
    assert 1 - q < 2 / 3 and sigma < 1 - mean < 3 * sigma and (1 - mean) / sigma == pytest.approx(1.39, abs=0.01)


def test_an_unbiased_estimate_of_a_single_unit_is_one_on_average():
    """Lemma D.1 (first version): E a = 1 for h = 1; 1/delta is the average over the tokens that are reported then."""
    delta = 0.1
    unbiased = ds.papers.weighted_sampling.unbiased(ds.channels.optimal(0.5, delta))
    assert unbiased.expectation([1])[0] == pytest.approx(1.0)
    assert unbiased.value([1, 2]) == pytest.approx(1 / delta)


def test_the_scaling_of_listing_5_1():
    """p = 2: scaling by spread^(-2/(p+2)) has the least noise; the printed exponent -1/(p+2) has more."""
    spread = np.geomspace(1, 1000, 64)

    def noise(exponent):
        scale = spread**exponent
        return math.sqrt((spread**2 * scale**2).sum() * (scale**-2).sum())

    best = min(np.linspace(-1, 0, 401), key=noise)
    assert best == pytest.approx(-2 / 4, abs=0.01)
    assert noise(-2 / 4) == pytest.approx(spread.sum()) and noise(-1 / 4) > 1.13 * noise(-2 / 4)


def test_the_mean_of_a_chi_square_from_its_median():
    """Section 5.7: m / (1 - 2/(9k))^3, so m (9/7)^3 for k = 1, and not m / (9/7)^3."""
    median = stats.chi2(1).median()
    assert median * (9 / 7) ** 3 == pytest.approx(1, abs=0.04) and median / (9 / 7) ** 3 < 0.22
    assert stats.chi2(8).median() / (1 - 2 / 72) ** 3 == pytest.approx(8, rel=2e-3)


@pytest.mark.parametrize("k", [1, 4])
def test_the_pairs_of_algorithm_18_leave_their_group(k):
    group = range(1, 2 * k + 1)
    printed = {place for j in range(1, k + 1) for place in (2 * j, 2 * j + 1)}
    right = {place for j in range(1, k + 1) for place in (2 * j - 1, 2 * j)}
    assert right == set(group) and 2 * k + 1 in printed - set(group) and 1 not in printed


def test_the_logarithm_of_lemma_2_18():
    """The second statement follows from the first with ln(1/(4p - 4p^2)), not with the printed ln(1/(4p - p^2))."""
    alpha, epsilon, p, beta = 3.0, 1.0, 0.22, 0.05

    def failure(error):
        return 2 * (4 * (p - p**2)) ** (error * epsilon / (2 * alpha) - 0.5) / (math.sqrt(math.pi) * (1 - 2 * p))

    def bound(base):
        return (1 + 2 * math.log(2 / (beta * math.sqrt(math.pi) * (1 - 2 * p))) / math.log(1 / base)) * alpha / epsilon

    assert failure(bound(4 * p - 4 * p**2)) == pytest.approx(beta)
    assert failure(bound(4 * p - p**2)) != pytest.approx(beta, rel=0.5)


def test_the_listed_threshold_of_lemma_2_27_belongs_to_the_first_budget():
    """Values up to psi go to ALP, so psi is the threshold of the list, of budget epsilon_1; epsilon_2 is ALP's."""
    first, second, delta = 0.8, 0.2, 1e-6
    threshold, printed = (math.log(1 / delta) / epsilon + 2 for epsilon in (first, second))
    assert printed > 3 * threshold
    vector = ds.papers.thesis.private_vector(
        [1], [5], neighbours="one_entry", dimension=2**20, epsilon=first, delta=delta, variant="korolova"
    )
    assert abs(vector.mechanism.threshold - threshold) < 2
