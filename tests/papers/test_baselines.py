"""What sample-and-threshold is compared with: guarantees enumerated, estimates unbiased, variances exact."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from helpers.statistical import assert_follows
from scipy import linalg, stats

from dpsieve.accounting.loss_distributions import joint_divergence
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.federated import Histogram, plan
from dpsieve.papers.sample_threshold import BernoulliNoise, HadamardResponse, SampledLaplace
from dpsieve.papers.sample_threshold.baselines import moved_delta, walsh_hadamard
from dpsieve.privacy.guarantee import Guarantee


class TestSampledLaplace:
    @pytest.mark.parametrize(("epsilon", "rate"), [(0.1, 0.02), (1.0, 0.1), (1.0, 0.9), (4.0, 0.5)])
    def test_every_ratio_of_adjacent_rows(self, epsilon, rate):
        made = SampledLaplace(epsilon, rate)
        assert made.guarantee == Guarantee(epsilon, 0.0, "add_remove", "one client")
        outputs, p = np.arange(-60, 80), math.exp(-1 / made.scale)
        noise = p ** np.abs(np.arange(-200, 201)) * (1 - p) / (1 + p)
        rows = [np.convolve(stats.binom.pmf(np.arange(k + 1), k, rate), noise)[outputs + 200] for k in range(8)]
        losses = [np.abs(np.log(after / before)).max() for before, after in itertools.pairwise(rows)]
        assert max(losses) == pytest.approx(epsilon, rel=1e-9) and losses[0] == pytest.approx(epsilon, rel=1e-9)
        assert made.certify().worst == 0.0

    def test_sampling_pays_for_less_noise(self):
        assert SampledLaplace(1.0, 0.1).scale < SampledLaplace(1.0, 0.5).scale < 1

    def test_estimates(self):
        made, w, draws = SampledLaplace(0.5, 0.2), 40, 200_000
        estimates = made.estimate(made.draw(np.full(draws, w)))
        variance = float(made.variance([w])[0])
        assert abs(estimates.mean() - w) < 6.2 * math.sqrt(variance / draws)
        assert estimates.var() == pytest.approx(variance, rel=0.06)
        noise = stats.dlaplace(1 / made.scale).var()
        assert variance == pytest.approx((w * 0.2 * 0.8 + noise) / 0.04)


class TestHadamardResponse:
    @pytest.mark.parametrize(("epsilon", "buckets"), [(0.1, 5), (1.0, 2), (1.0, 13), (2.5, 20), (5.0, 9)])
    def test_rows_are_within_e_epsilon(self, epsilon, buckets):
        made = HadamardResponse(epsilon, buckets)
        rows = np.array([made.row(x) for x in range(buckets)])
        assert rows.shape == (buckets, made.outputs)
        np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-12)
        assert rows.max() / rows.min() == pytest.approx(math.exp(epsilon), rel=1e-12)
        assert made.guarantee == Guarantee(epsilon, 0.0, "replace", "one client")

    @pytest.mark.parametrize(("epsilon", "buckets", "rate"), [(0.3, 6, 1.0), (1.0, 7, 0.4), (3.0, 12, 0.7)])
    def test_unbiased_with_the_stated_variance(self, epsilon, buckets, rate):
        """Estimates are linear in the reports, so mean and variance follow from the rows without drawing."""
        made = HadamardResponse(epsilon, buckets, rate=rate)
        weights = np.array([made.estimate([y]) for y in range(made.outputs)])
        clients = np.arange(buckets) ** 2 * 3
        rows = rate * np.array([made.row(x) for x in range(buckets)])
        np.testing.assert_allclose(clients @ rows @ weights, clients, atol=1e-9)
        variance = clients @ (rows @ weights**2 - (rows @ weights) ** 2)
        np.testing.assert_allclose(made.variance(clients), variance, rtol=1e-9)

    @pytest.mark.parametrize(("epsilon", "buckets"), [(0.5, 6), (1.0, 5), (3.5, 25)])
    def test_what_is_sent_follows_the_rows(self, epsilon, buckets):
        made = HadamardResponse(epsilon, buckets)
        for value in (0, 1, buckets - 1):
            reports = made.respond(np.full(60_000, value))
            assert_follows(reports, np.arange(made.outputs), made.row(value))

    def test_some_take_part(self):
        made = HadamardResponse(1.0, 4, rate=0.25)
        assert 23_500 < len(made.respond(np.zeros(100_000, np.int64))) < 26_500

    def test_the_fast_transform(self):
        rows = np.random.default_rng().normal(size=(3, 32))
        np.testing.assert_allclose(walsh_hadamard(rows), rows @ linalg.hadamard(32), atol=1e-9)

    def test_bad_input(self):
        for arguments in ((0.0, 4), (1.0, 1), (1.0, 2.5), ("x", 4)):
            with pytest.raises(DpsieveError, match=r"epsilon|buckets"):
                HadamardResponse(*arguments)
        made = HadamardResponse(1.0, 4)
        for call in (lambda: made.respond([4]), lambda: made.respond([-1]), lambda: made.estimate([made.outputs])):
            with pytest.raises(InvalidValue, match=r"values|reports"):
                call()
        with pytest.raises(InvalidValue, match="frequencies"):
            made.variance([1, 2])


class TestBernoulliNoise:
    @pytest.mark.parametrize(("clients", "coin", "epsilon"), [(1, 0.5, 0.5), (4, 0.25, 1.0), (9, 0.5, 0.25)])
    def test_exact_delta_by_enumeration(self, clients, coin, epsilon):
        q = Fraction(coin)
        f = [math.comb(clients, x) * q**x * (1 - q) ** (clients - x) for x in range(clients + 1)] + [Fraction(0)]
        e = Fraction(math.exp(epsilon))
        found = sum(
            max(0, f[a - 1] * f[b] - e * f[a] * f[b - 1])  # f[-1] is the 0 at its end
            for a in range(clients + 2)
            for b in range(clients + 2)
        )
        assert moved_delta(clients, coin, epsilon) == pytest.approx(float(found), rel=3e-9)

    @pytest.mark.parametrize(("clients", "coin", "epsilon"), [(300, 0.2, 1.0), (2000, 0.05, 0.4)])
    def test_exact_delta_on_larger_rows(self, clients, coin, epsilon):
        f = stats.binom.pmf(np.arange(clients + 1), clients, coin)
        more, same = np.append(0.0, f), np.append(f, 0.0)
        exact = joint_divergence((more, same), (same, more), epsilon)
        assert moved_delta(clients, coin, epsilon) == pytest.approx(exact, rel=1e-6)

    @pytest.mark.parametrize("rate", [1.0, 0.1])
    def test_the_least_noise(self, rate):
        made = BernoulliNoise(10_000, 1.0, 1e-8, rate=rate)
        assert made.guarantee == Guarantee(1.0, 1e-8, "replace", "one client")
        assert 0.999e-8 < made.certify().worst <= 1e-8
        inner = math.log1p(math.expm1(1.0) / rate)
        assert rate * moved_delta(10_000, made.coin * 0.999, inner) > 1e-8

    def test_estimates(self):
        made, counts = BernoulliNoise(1000, 1.0, 1e-6, rate=0.25), np.full(100_000, 0)
        counts[0] = 1000
        shown = made.estimate(made.draw(counts))[1:]
        noise = 1000 * made.coin * (1 - made.coin) * 16
        assert abs(shown.mean()) < 6.2 * math.sqrt(noise / len(shown))
        assert shown.var() == pytest.approx(noise, rel=0.05)
        cohort = stats.hypergeom(4000, 700, 1000).var() * 16
        assert made.variance([700])[0] == pytest.approx(noise + cohort)
        assert made.estimate([1000 * made.coin + 5])[0] == pytest.approx(20)

    def test_bad_input(self):
        with pytest.raises(InvalidValue, match="clients"):
            BernoulliNoise(20, 0.1, 1e-12)
        with pytest.raises(InvalidValue, match="add up"):
            BernoulliNoise(1000, 1.0, 1e-6).draw([1, 2])
        with pytest.raises(DpsieveError, match="delta"):
            BernoulliNoise(1000, 1.0, 0.0)


def test_errors_side_by_side():
    """The paper's comparison in small: 200,000 clients, geometric values, epsilon 0.3, delta 1e-8, the same rate."""
    rng, buckets, population, epsilon = np.random.default_rng(), 256, 200_000, 0.3
    values = np.minimum(rng.geometric(1 / 16, population) - 1, buckets - 1)
    clients = np.bincount(values, minlength=buckets)
    rate = (1 - math.exp(-epsilon)) / 6
    cohort = np.bincount(rng.permutation(values)[: int(rate * population)], minlength=buckets)

    sampled = Histogram(plan(epsilon, 1e-8, rate=rate), list(range(buckets)))
    release = sampled.aggregate(sampled.client_reports(values))
    ours = np.zeros(buckets)
    ours[release.table.column("key").to_numpy()] = release.table.column("count").to_numpy()
    laplace = SampledLaplace(epsilon, rate)
    hadamard = HadamardResponse(epsilon, buckets, rate=rate)
    shuffled = BernoulliNoise(int(cohort.sum()), epsilon, 1e-8, rate=rate)
    error = {
        "sample and threshold": ours,
        "Laplace": laplace.estimate(laplace.draw(clients)),
        "Hadamard": hadamard.estimate(hadamard.respond(values)),
        "Bernoulli": shuffled.estimate(shuffled.draw(cohort)),
    }
    error = {name: float(np.abs(found - clients).mean()) for name, found in error.items()}
    assert error["sample and threshold"] < error["Bernoulli"] < error["Hadamard"] / 10
    assert error["Laplace"] < error["Bernoulli"]
