"""Coins that decide samples, bottom-k samples and estimates from them. What they return is true data, not private."""

import numpy as np
import pyarrow as pa
import pytest
from helpers.statistical import FALSE_ALARM, assert_follows, binomial_band
from scipy import stats

from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.randomness.coins import bernoulli
from dpsieve.randomness.source import SystemSource
from dpsieve.sampling import Sample, custom, everything, new_salt, ppswor, priority

KEYS = ["milk", "rice", "salt", "tea"]
COUNTS = [40, 1, 7, 900]


def lowest(keys, frequencies, k, **how):
    return Sample.bottom_k(keys, frequencies, k, salt=new_salt(), **how)


class TestThresholdSample:
    def test_keeps_keys_with_their_frequencies_sorted(self):
        sample = Sample.of(KEYS[::-1], COUNTS[::-1], everything(), salt=new_salt())
        assert sample.keys.to_pylist() == KEYS
        assert sample.frequencies.tolist() == COUNTS

    def test_a_key_that_does_not_occur_is_never_sampled(self):
        assert Sample.of(["a", "b"], [0, 3], everything(), salt=new_salt()).keys.to_pylist() == ["b"]

    @pytest.mark.parametrize(
        "keys", [pa.array(KEYS), pa.chunked_array([KEYS[:1], KEYS[1:]]), tuple(KEYS), np.array(KEYS), iter(KEYS)]
    )
    def test_reads_any_column(self, keys):
        assert Sample.of(keys, pa.array(COUNTS), everything(), salt=new_salt()).keys.to_pylist() == KEYS

    @pytest.mark.parametrize("scheme", [ppswor(0.01), priority(0.003, 1.2), ppswor(0.2, 0.3), custom([1e-3, 0.5, 1.0])])
    def test_each_frequency_is_sampled_at_its_rate(self, scheme):
        """The exact binomial band of each frequency is left by chance once in 10^9 runs."""
        each = 100_000
        frequencies = np.repeat([1, 2, 10, 300], each)
        counts = frequencies[bernoulli(scheme.inclusion(frequencies), SystemSource())]
        for frequency in [1, 2, 10, 300]:
            low, high = binomial_band(each, float(scheme.inclusion(frequency)))
            assert low <= (counts == frequency).sum() <= high

    def test_keys_are_independent(self):
        """Neighbouring keys: both, one or none are sampled as independent coins would have it."""
        sample = Sample.of(np.arange(200_000), np.full(200_000, 1), custom([0.3]), salt=new_salt())
        mask = np.zeros(200_000, int)
        mask[sample.keys.to_numpy()] = 1
        assert_follows(2 * mask[::2] + mask[1::2], [0, 1, 2, 3], [0.49, 0.21, 0.21, 0.09])


class TestBottomK:
    def test_has_k_keys_and_their_frequencies(self):
        sample = lowest(KEYS, COUNTS, 3)
        assert len(sample) == 3
        truth = dict(zip(KEYS, COUNTS, strict=True))
        assert [truth[key] for key in sample.keys.to_pylist()] == sample.frequencies.tolist()
        assert sample.scheme.inner == ppswor(sample.threshold)

    def test_says_that_it_is_not_private(self):
        sample = lowest(KEYS, COUNTS, 3, method="priority", power=0.5)
        assert sample.scheme.inner == priority(sample.threshold, 0.5)
        assert "not to be published" in repr(sample)
        assert "tea" not in repr(sample)

    def test_with_few_keys_takes_all_that_occur(self):
        sample = lowest([*KEYS, "zero"], [*COUNTS, 0], 4)
        assert sample.keys.to_pylist() == KEYS
        assert sample.threshold == float("inf")
        assert sample.estimate() == sum(COUNTS)
        assert sample.estimate(g=np.sqrt) == pytest.approx(np.sqrt(COUNTS).sum())
        assert len(lowest([], [], 1)) == 0

    @pytest.mark.parametrize("power", [1.0, 0.5])
    def test_the_first_key_of_ppswor_is_drawn_by_weight(self, power):
        """The smallest of independent Exp(1)/w belongs to each key with probability proportional to w."""
        weights = np.array([16, 9, 4, 1])
        draws = [lowest([0, 1, 2, 3], weights, 1, power=power).keys[0].as_py() for _ in range(4000)]
        assert_follows(draws, range(4), weights**power / (weights**power).sum())

    @pytest.mark.parametrize("method", ["ppswor", "priority"])
    @pytest.mark.parametrize(("power", "g"), [(1.0, None), (1.0, np.ones_like), (0.5, np.square)])
    def test_the_estimate_is_not_biased(self, method, power, g):
        """Student's test on the mean of 2000 estimates, at the error rate FALSE_ALARM."""
        frequencies = np.arange(1, 31)
        truth = float((frequencies if g is None else g(frequencies)).sum())
        estimates = [
            lowest(frequencies, frequencies, 12, method=method, power=power).estimate(g=g) for _ in range(2000)
        ]
        error = abs(np.mean(estimates) - truth) / stats.sem(estimates)
        assert error < stats.t.isf(FALSE_ALARM / 2, len(estimates) - 1)


class TestBadInput:
    @pytest.mark.parametrize(
        "sampler", [lambda k, f: Sample.of(k, f, everything(), salt=new_salt()), lambda k, f: lowest(k, f, 1)]
    )
    @pytest.mark.parametrize(
        ("keys", "frequencies", "name"),
        [
            (["a", None], [1, 2], "keys"),
            ("ab", [1, 2], "keys"),
            ({"a": 1}, [1], "keys"),
            ({"a", "b"}, [1, 2], "keys is a set"),
            (5, [1], "keys"),
            ([1, "a"], [1, 2], "keys"),
            (["a"], [1, 2], "keys and frequencies"),
            (["a"], [-1], "frequencies"),
            (["a"], [np.nan], "frequencies"),
            (["a"], ["1"], "frequencies"),
            (["a"], [2**54], "frequencies"),
            (["a"], [[1]], "frequencies"),
            (["a"], 1, "frequencies"),
            (["a"], pa.array([None], pa.int64()), "frequencies"),
        ],
    )
    def test_columns(self, sampler, keys, frequencies, name):
        with pytest.raises(DpsieveError, match=name):
            sampler(keys, frequencies)

    @pytest.mark.parametrize("scheme", [None, 0.5, "ppswor", ppswor])
    def test_scheme(self, scheme):
        with pytest.raises(InvalidType, match="scheme"):
            Sample.of(KEYS, COUNTS, scheme, salt=new_salt())

    @pytest.mark.parametrize(
        ("change", "name"),
        [
            ({"k": 0}, "k="),
            ({"k": 1.5}, "k must"),
            ({"k": None}, "k must"),
            ({"method": "poisson"}, "method"),
            ({"method": None}, "method"),
            ({"power": 0}, "power"),
            ({"power": "1"}, "power"),
        ],
    )
    def test_bottom_k(self, change, name):
        with pytest.raises(DpsieveError, match=name):
            lowest(KEYS, COUNTS, **{"k": 2, **change})

    def test_g(self):
        sample = lowest(KEYS, COUNTS, 2)
        with pytest.raises(InvalidType, match="g must be a function"):
            sample.estimate(g=3)
        for wrong in (lambda w: 1.0, lambda w: w * np.nan, lambda w: w.astype(str)):
            with pytest.raises(InvalidValue, match="g did not return"):
                sample.estimate(g=wrong)
