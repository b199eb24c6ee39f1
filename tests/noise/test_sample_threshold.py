"""Sample-and-threshold: exact rows, the exact guarantee under both relations, draws, and reading counts back."""

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from helpers.binomial_rows import exact_row, full_row, full_rows
from helpers.privacy_curves import divergence
from helpers.statistical import assert_counts, binomial_band
from scipy import stats

import dpsieve as ds
from dpsieve.channels import sample_threshold
from dpsieve.errors import DpsieveError, InvalidValue, NotCertified
from dpsieve.exact.binomial import masses
from dpsieve.noise.sample_threshold_delta import add_remove, replace
from dpsieve.papers.sample_threshold import exact_replacement_delta
from dpsieve.privacy.mechanism import from_json

REFERENCE = json.loads((Path(__file__).parents[1] / "vectors" / "reference.json").read_text())["sample_threshold"]


class TestGuarantee:
    @pytest.mark.parametrize("case", REFERENCE, ids=lambda c: f"{c['epsilon']}-{c['rate']}-{c['threshold']}")
    def test_reference_numbers(self, case):
        delta, worst = add_remove(case["epsilon"], case["rate"], case["threshold"])
        assert delta == pytest.approx(case["delta_add_remove"], rel=1e-9)
        assert worst == case["worst_count"]

    def test_the_numbers_of_the_errata(self):
        """eps = 1, rate 0.1054 (alpha = 1/6), threshold 20, where the paper has 1.5e-12 or 7.6e-9."""
        delta, worst = add_remove(1.0, (1 - math.exp(-1)) / 6, 20)
        assert delta == pytest.approx(6.87e-15, rel=2e-3) and worst == 29

    @pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 2.5])
    @pytest.mark.parametrize("rate", [0.03, 0.5, 0.95])
    @pytest.mark.parametrize("threshold", [1, 2, 7])
    def test_one_client_by_enumeration(self, epsilon, rate, threshold):
        """Every adjacent pair of rows up to 260, both directions: what is claimed is the largest, and reached."""
        rows = full_rows(rate, threshold, 260)
        worst = max(divergence(p, q, epsilon) for p, q in itertools.pairwise(rows))
        assert add_remove(epsilon, rate, threshold)[0] == pytest.approx(worst, rel=1e-9)

    @pytest.mark.parametrize(
        ("epsilon", "rate", "threshold"), [(1.0, 0.3, 3), (0.4, 0.8, 2), (1.0, 0.5, 1), (0.7, 0.5, 8), (0.05, 0.95, 2)]
    )
    def test_one_replacement_is_bounded(self, epsilon, rate, threshold):
        """Every pair of cells that lose and gain a client, up to 60 clients each: the bound is at most half above."""
        last = 60
        rows = full_rows(rate, threshold, last + 1)
        worst = max(
            np.maximum(np.outer(rows[k], rows[n]) - math.exp(epsilon) * np.outer(rows[k - 1], rows[n + 1]), 0).sum()
            for k, n in itertools.product(range(1, last), range(last))
        )
        assert worst * (1 - 1e-12) <= replace(epsilon, rate, threshold) <= 1.5 * worst

    @pytest.mark.parametrize(("epsilon", "rate", "threshold"), [(0.1, 0.8, 2000), (1.0, 0.237, 19), (0.05, 0.02, 36)])
    def test_one_replacement_costs_little_more_than_the_least_delta(self, epsilon, rate, threshold):
        least = exact_replacement_delta(epsilon, rate, threshold)
        assert least <= replace(epsilon, rate, threshold) <= 1.6 * least

    @pytest.mark.parametrize("relation", ["add_remove", "replace"])
    @pytest.mark.parametrize("rate", [0.25, 0.5, 0.75])
    def test_the_definition_with_exact_fractions(self, relation, rate):
        """All data sets of few clients with three values: the probability of every released histogram, as fractions."""
        clients, threshold, epsilon = 5, 2, 0.5
        p, factor = Fraction(rate), Fraction(math.exp(epsilon))
        rows = [exact_row(k, p, threshold) for k in range(clients + 1)]

        def outputs(data):
            return {
                tokens: math.prod(rows[k][t] for k, t in zip(data, tokens, strict=True))
                for tokens in itertools.product(*(rows[k] for k in data))
            }

        tables = {
            data: outputs(data) for data in itertools.product(range(clients + 1), repeat=3) if sum(data) <= clients
        }
        worst = Fraction(0)
        for one, other in itertools.permutations(tables, 2):
            moved = sorted(b - a for a, b in zip(one, other, strict=True))
            if moved in ([[-1, 0, 0], [0, 0, 1]] if relation == "add_remove" else [[-1, 0, 1]]):
                p_one, p_other = tables[one], tables[other]
                worst = max(worst, sum(max(0, m - factor * p_other.get(o, 0)) for o, m in p_one.items()))
        found = sample_threshold(rate, threshold, epsilon=epsilon, neighbours=relation).guarantee.delta
        assert float(worst) <= found <= float(worst) * (1 + 1e-9 if relation == "add_remove" else 1.5)

    @pytest.mark.parametrize(("epsilon", "rate", "threshold"), [(1.0, 0.05, 20), (0.2, 0.01, 30), (1.0, 0.9, 1400)])
    def test_digits_of_tiny_deltas(self, epsilon, rate, threshold):
        """Sixty digits at the worst frequency; the relative error stays below 1e-11 at 1e-20 and far below that."""
        delta, k = add_remove(epsilon, rate, threshold)
        with mpmath.workdps(60):
            p, e = mpmath.mpf(rate), mpmath.exp(mpmath.mpf(epsilon))

            def mass(n, j):
                return mpmath.binomial(n, j) * p**j * (1 - p) ** (n - j)

            up = sum(max(0, mass(k, j) - e * mass(k - 1, j)) for j in range(threshold, k + 1))
            down = sum(mass(k - 1, j) - e * mass(k, j) for j in range(threshold))
            exact = float(max(up, down))
        assert exact <= delta <= exact * (1 + 1e-11)
        assert delta < 1e-20

    def test_a_higher_threshold_and_a_lower_rate_are_never_worse(self):
        for relation in (lambda *a: add_remove(*a)[0], replace, exact_replacement_delta):
            by_threshold = [relation(0.5, 0.4, t) for t in range(1, 40)]
            by_rate = [relation(0.5, p, 9) for p in np.linspace(0.01, 0.95, 60).tolist()]
            assert (np.diff(by_threshold) <= 0).all() and (np.diff(by_rate) >= 0).all()

    @pytest.mark.parametrize(("epsilon", "rate", "threshold"), [(0.05, 1.6e-4, 4), (0.8, 1.8e-4, 3), (0.25, 2.7e-4, 9)])
    def test_replacement_at_low_rates_where_many_pairs_are_nearly_the_worst(self, epsilon, rate, threshold):
        """Nearly that of a client that comes or goes; the search must not look at each of a hundred thousand pairs."""
        one = add_remove(epsilon, rate, threshold)[0]
        assert one <= replace(epsilon, rate, threshold) <= 1.02 * one

    def test_replacement_where_the_search_is_too_long(self):
        """Tiny rates use a closed bound, which is close: at the border both answers agree to a thousandth."""
        assert replace(1.0, 2e-5, 3) == pytest.approx(add_remove(1.0, 2e-5, 3)[0], rel=1e-3)
        assert add_remove(0.01, 0.5, 10**6)[0] <= replace(0.01, 0.5, 10**6) < 1e-3

    def test_the_promise_and_the_certificate(self):
        channel = sample_threshold(0.3, 24, epsilon=1.0, delta=1e-8, neighbours="add_remove", unit="one phone")
        assert channel.guarantee == ds.Guarantee(1.0, 1e-8, unit="one phone")
        assert channel.certify().worst == pytest.approx(9.6566e-9, rel=1e-4)
        assert channel.certify() == from_json(channel.to_json()).certify()
        assert "binomial" in str(channel.certify())
        with pytest.raises(NotCertified, match="delta"):
            sample_threshold(0.3, 24, delta=1e-8, neighbours="replace")
        assert sample_threshold(0.3, 24, neighbours="replace").guarantee.neighbours == "replace"

    def test_the_measured_rate_at_the_tightest_frequency(self):
        """delta is about 0.01: the outputs that show the client, drawn with it and without it."""
        epsilon, draws = 1.0, 1_000_000
        channel = sample_threshold(0.314326, 4, epsilon=epsilon)
        delta, k = add_remove(epsilon, channel.rate, channel.threshold)
        assert 0.0099 < delta <= channel.guarantee.delta < 0.0101
        share = [(channel.draw(np.full(draws, i)).tokens > 0).sum() for i in (k, k - 1)]
        for count, i in zip(share, (k, k - 1), strict=True):
            low, high = binomial_band(draws, channel.reporting_probability([i])[0])
            assert low <= count <= high
        excess = (share[0] - math.exp(epsilon) * share[1]) / draws
        assert excess == pytest.approx(delta, abs=6.2 * math.sqrt((0.1 + math.e**2 * 0.1) / draws))

    def test_the_measured_rate_of_a_value_that_only_one_client_makes_possible(self):
        """At large epsilon, delta is the chance that exactly `threshold` clients are all sampled."""
        channel = sample_threshold(0.316, 4, epsilon=3.0)
        low, high = binomial_band(1_000_000, channel.guarantee.delta)
        assert channel.guarantee.delta == pytest.approx(0.316**4, rel=1e-9)
        assert low <= (channel.draw(np.full(1_000_000, 4)).tokens > 0).sum() <= high
        assert not channel.draw(np.full(1000, 3)).tokens.any()


class TestRows:
    channel = sample_threshold(0.3, 5)

    @pytest.mark.parametrize("frequency", [0, 1, 4, 5, 6, 17, 60, 1000, 10**6])
    def test_rows_are_binomial(self, frequency):
        row = self.channel.row(frequency)
        assert row.mass == pytest.approx(stats.binom.pmf(row.right, frequency, 0.3), rel=1e-10, abs=1e-300)
        assert row.silent == pytest.approx(stats.binom.cdf(4, frequency, 0.3), rel=1e-9)
        assert row.silent + row.reported == pytest.approx(1.0, abs=1e-10)
        if frequency:
            assert self.channel.reporting_probability([frequency])[0] == pytest.approx(row.reported, rel=1e-9)

    def test_masses_keep_their_digits(self):
        with mpmath.workdps(40):
            for n, x, p in [(40, 40, 0.01), (10**6, 700, 0.001), (10**8, 10**7 + 30_000, 0.1), (3, 1, 1e-9)]:
                q = mpmath.mpf(p)
                exact = mpmath.binomial(n, x) * q**x * (1 - q) ** (n - x)
                assert masses(n, x, p) == pytest.approx(float(exact), rel=2e-12)

    @pytest.mark.parametrize("rate", [0.3, 0.5, 1 - 1e-9])
    def test_huge_frequencies_have_too_long_a_row_and_all_else(self, rate):
        channel = sample_threshold(rate, 5)
        for call in (lambda: channel.row(10**12), lambda: channel.estimator().bias(10**12)):
            with pytest.raises(InvalidValue, match=r"too many tokens|Use reporting_probability"):
                call()
        assert channel.row(10**8).reported == pytest.approx(1.0)
        assert channel.reporting_probability([10**12]).tolist() == [1.0]
        tokens = channel.draw([10**12]).tokens
        count, low, high = (getattr(channel.read(tokens), name)[0] for name in ("count", "low", "high"))
        assert abs(tokens[0] - rate * 10**12) <= 6.2 * math.sqrt(10**12 * rate * (1 - rate)) + 40
        assert low <= count <= high <= 10**12 + 10**7

    def test_tiny_rates_read_back(self):
        """A token over the rate is beyond 64 bits; counts end at 10^12."""
        channel = sample_threshold(1e-9, 5)
        assert channel.row(10**12).reported == pytest.approx(1.0)
        reading = channel.read([5, 900, 10**12])
        assert reading.count.tolist() == [5 * 10**9, 9 * 10**11, 10**12] and np.isfinite(reading.weight).all()
        assert (reading.low <= reading.count).all()
        with pytest.raises(InvalidValue, match="no frequency leads to"):
            sample_threshold(1e-9, 10**9).read([10**9])

    def test_order_statistics_of_other_rooms(self):
        """Concordance by enumeration; the general code walks over cells."""
        low, high = full_row(12, 0.3, 5, 30), full_row(25, 0.3, 5, 30)
        table = np.outer(low, high)
        expected = np.triu(table, 1).sum() + 0.5 * np.trace(table)
        assert ds.papers.weighted_sampling.concordance(self.channel, 12, 25) == pytest.approx(expected, rel=1e-9)
        assert 0.8 < ds.papers.weighted_sampling.kendall_tau(self.channel, [10, 30, 100, 300, 1000]) < 1
        assert ds.papers.weighted_sampling.forecast(self.channel, [3, 200]).reported_keys == pytest.approx(1.0)


class TestDraws:
    @pytest.mark.parametrize("frequency", [5, 12, 40, 300])
    def test_tokens_follow_the_row(self, frequency):
        channel = sample_threshold(0.3, 5)
        tokens, row = channel.draw(np.full(200_000, frequency)).tokens, channel.row(frequency)
        seen = np.bincount(tokens.astype(int), minlength=frequency + 1)
        expected = np.append(row.silent, np.zeros(frequency))
        expected[row.right.astype(int)] = row.mass
        assert_counts(seen.astype(float), expected * 200_000)

    def test_counts_that_clients_sampled_themselves(self):
        channel = sample_threshold(0.3, 5)
        assert channel.draw([1, 4, 5, 9], already_sampled=True).tokens.tolist() == [0, 0, 5, 9]
        release = channel.release(["a", "b"], [4, 90], already_sampled=True)
        assert release.table.to_pydict()["count"] == [300] and release.tokens.tolist() == [90]

    def test_a_release_saves_and_loads(self, tmp_path):
        release = sample_threshold(0.3, 24).release(["rare", "tea", "milk"], [2, 4000, 9000])
        release.save(tmp_path / "release")
        again = ds.Release.load(tmp_path / "release")
        assert again.table["key"].to_pylist() == ["milk", "tea"] and again.guarantee == release.guarantee
        assert release.estimate() == pytest.approx(13_000, rel=0.15)
        for low, count, high in zip(*(release.table[c].to_pylist() for c in ("low", "count", "high")), strict=True):
            assert low < count < high


class TestReadingBack:
    channel = sample_threshold(0.2, 6)

    @pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.999])
    def test_coverage_by_enumeration(self, level):
        """For every true frequency: P[interval holds it | reported] >= level."""
        for frequency in [*range(6, 80), 300, 5000]:
            row = self.channel.row(frequency)
            low, high = self.channel.interval(row.right, level)
            covered = row.mass[(low <= frequency) & (frequency <= high)].sum()
            assert covered >= level * row.mass.sum() * (1 - 1e-9)

    def test_intervals_are_not_wider_than_needed(self):
        low, high = self.channel.interval([20_000])
        spread = math.sqrt(100_000 * 0.8 / 0.2)
        assert high[0] - low[0] == pytest.approx(2 * 1.96 * spread, rel=0.01)
        low, high = self.channel.interval([6, 500], 1.0)
        assert low.tolist() == [6, 500] and high.tolist() == [10**12, 10**12]

    def test_the_likeliest_frequency_is_the_argmax_over_rows(self):
        tokens, frequencies = np.arange(6, 40), np.arange(1, 400)
        table = stats.binom.pmf(tokens, frequencies[:, None], 0.2)
        best = table[self.channel.likeliest(tokens) - 1, np.arange(len(tokens))]
        assert best == pytest.approx(table.max(axis=0), rel=1e-12)

    @pytest.mark.parametrize("make", [ds.estimation.estimator, ds.papers.weighted_sampling.scaled])
    def test_moments_by_enumeration(self, make):
        estimator, i = make(self.channel), np.array([3, 6, 30, 200, 201, 5000])
        moments = estimator.moments(i)
        for at, frequency in enumerate(i.tolist()):
            row = full_row(frequency, 0.2, 6, frequency)
            values = np.append(0.0, estimator.value(np.arange(1, frequency + 1).clip(6))) * (row > 0)
            mean = row @ values
            assert moments.bias[at] == pytest.approx(mean - frequency, rel=1e-8, abs=1e-8)
            assert moments.variance[at] == pytest.approx(row @ (values - mean) ** 2, rel=1e-8)
            assert moments.mse[at] == pytest.approx(row @ (values - frequency) ** 2, rel=1e-8)

    def test_scaled_counts_are_unbiased_but_for_the_threshold(self):
        scaled = ds.papers.weighted_sampling.scaled(self.channel)
        assert scaled.value([0, 7, 100]).tolist() == pytest.approx([0.0, 35.0, 500.0])
        missed = np.arange(6)
        expected = -(missed * stats.binom.pmf(missed, 40, 0.2)).sum() / 0.2
        assert scaled.bias(40) == pytest.approx(expected, rel=1e-9)
        moments = scaled.moments([10**4, 10**9])
        assert moments.bias == pytest.approx([0, 0], abs=1e-3)
        assert moments.variance == pytest.approx([4e4, 4e9], rel=1e-6)
        assert ds.papers.weighted_sampling.scaled(sample_threshold(0.2, 1)).bias([1, 7]) == pytest.approx(
            [0, 0], abs=1e-12
        )

    def test_what_is_not_offered(self):
        with pytest.raises(InvalidValue, match="does not sample"):
            ds.papers.weighted_sampling.scaled(ds.channels.optimal(1.0, 1e-8))
        with pytest.raises(InvalidValue, match="too many tokens"):
            ds.papers.weighted_sampling.kendall_tau(self.channel, [10, 10**12])


def test_bad_parameters():
    for rate in (0.0, 1.0, -0.1, math.nan, "x", None, 1e-12):
        with pytest.raises(DpsieveError, match="rate"):
            sample_threshold(rate, 5)
    for threshold in (0, -1, 2.5, "3", None, 10**10):
        with pytest.raises(DpsieveError, match="threshold"):
            sample_threshold(0.1, threshold)
    for name, bad in {"epsilon": -1, "delta": 2.0, "neighbours": "both", "unit": ""}.items():
        with pytest.raises(DpsieveError, match=name):
            sample_threshold(0.1, 5, **{name: bad})
    for call in (sample_threshold(0.1, 5).likeliest, sample_threshold(0.1, 5).interval):
        with pytest.raises(DpsieveError, match=r"below the threshold|no frequency"):
            call([3])
