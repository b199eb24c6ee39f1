"""Samplers of counted keys. What they return is true data, not private."""

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from scripted import Repeating, Scripted
from statistical import FALSE_ALARM, assert_follows, binomial_band

from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.sampling import NonPrivateSample, bottom_k, custom, everything, ppswor, priority, threshold_sample
from dpsieve.testing import insecure_source

KEYS = ["tea", "milk", "salt", "rice"]
COUNTS = [900, 40, 7, 1]


def included(q, *words):
    """Whether one key with inclusion probability q is sampled when these are the next random words."""
    source = Scripted(*words)
    keys, _ = threshold_sample(["key"], [1], custom([q]), source=source)
    assert not source._first, "not all words were needed"
    return len(keys) == 1


class TestThresholdSample:
    def test_keeps_keys_with_their_frequencies_in_order(self):
        keys, counts = threshold_sample(KEYS, COUNTS, everything())
        assert keys.to_pylist() == KEYS
        assert counts.tolist() == COUNTS

    def test_a_key_that_does_not_occur_is_never_sampled(self):
        keys, counts = threshold_sample(["a", "b"], [0, 3], everything())
        assert keys.to_pylist() == ["b"]
        assert counts.tolist() == [3]

    @pytest.mark.parametrize(
        "keys", [pa.array(KEYS), pa.chunked_array([KEYS[:1], KEYS[1:]]), tuple(KEYS), np.array(KEYS)]
    )
    def test_reads_any_column(self, keys):
        assert threshold_sample(keys, pa.array(COUNTS), everything())[0].to_pylist() == KEYS

    def test_real_frequencies_stay_real(self):
        assert threshold_sample(["a", "b"], [0.5, 2.25], everything())[1].tolist() == [0.5, 2.25]

    def test_nothing_in_nothing_out(self):
        keys, counts = threshold_sample([], [], ppswor(0.1))
        assert len(keys) == len(counts) == 0

    def test_a_seeded_source_repeats_itself(self):
        draws = [threshold_sample(range(1000), [5] * 1000, ppswor(0.1), source=insecure_source(3)) for _ in range(2)]
        assert draws[0][0].equals(draws[1][0])

    @pytest.mark.parametrize("scheme", [ppswor(0.01), priority(0.003, 1.2), ppswor(0.2, 0.3), custom([1e-3, 0.5, 1.0])])
    def test_each_frequency_is_sampled_at_its_rate(self, scheme):
        """The exact binomial band of each frequency is left by chance once in 10^9 runs."""
        each = 100_000
        frequencies = np.repeat([1, 2, 10, 300], each)
        _, counts = threshold_sample(np.arange(len(frequencies)), frequencies, scheme)
        for frequency in [1, 2, 10, 300]:
            low, high = binomial_band(each, float(scheme.inclusion(frequency)))
            assert low <= (counts == frequency).sum() <= high

    def test_keys_are_independent(self):
        """Neighbouring keys: both, one or none are sampled as independent coins would have it."""
        keys, _ = threshold_sample(np.arange(200_000), np.full(200_000, 1), custom([0.3]))
        mask = np.zeros(200_000, int)
        mask[keys.to_numpy()] = 1
        assert_follows(2 * mask[::2] + mask[1::2], [0, 1, 2, 3], [0.49, 0.21, 0.21, 0.09])


class TestExactDecisions:
    """A key is sampled if U < q, for the uniform U whose bits are the words."""

    def test_certainty_needs_no_luck(self):
        assert included(1.0, 2**64 - 1)
        assert included(1.0, 2**64 - 2**11)  # the largest float below 2^64

    def test_impossibility(self):
        assert not included(0.0, 0)

    def test_a_word_equal_to_all_of_q_is_not_below_it(self):
        assert included(0.5, 2**63 - 1)
        assert not included(0.5, 2**63)

    def test_the_float_before_one(self):
        q = 1 - 2.0**-53
        assert included(q, 2**64 - 2**11 - 1)
        assert not included(q, 2**64 - 2**11)
        assert not included(q, 2**64 - 1)

    def test_a_tie_is_decided_by_the_next_word(self):
        """q = 3 * 2^-66 has the first word 0 and then the bits 11."""
        q = 3 * 2.0**-66
        assert included(q, 0, 3 * 2**62 - 1)
        assert not included(q, 0, 3 * 2**62)
        assert not included(q, 1)

    def test_the_smallest_probability_takes_seventeen_words(self):
        """q = 2^-1074: sixteen words of zeros, then 14 bits of the seventeenth."""
        assert included(5e-324, *[0] * 16, 2**14 - 1)
        assert not included(5e-324, *[0] * 16, 2**14)

    def test_ties_keep_the_rate(self):
        """All first words tie, so that the refinement alone makes the decision: 3/4 of the time below."""
        keys, _ = threshold_sample(range(20_000), [1] * 20_000, custom([3 * 2.0**-66]), source=Repeating(0))
        low, high = binomial_band(20_000, 0.75)
        assert low <= len(keys) <= high


class TestBottomK:
    def test_has_k_keys_and_their_frequencies(self):
        sample = bottom_k(KEYS, COUNTS, k=3)
        assert len(sample) == 3
        truth = dict(zip(KEYS, COUNTS, strict=True))
        assert [truth[key] for key in sample.keys.to_pylist()] == sample.frequencies.tolist()
        assert sample.scheme.inner == ppswor(sample.threshold)

    def test_says_that_it_is_not_private(self):
        sample = bottom_k(KEYS, COUNTS, k=3, method="priority", power=0.5)
        assert isinstance(sample, NonPrivateSample)
        assert sample.scheme.inner == priority(sample.threshold, 0.5)
        assert "not to be published" in repr(sample)
        assert "tea" not in repr(sample)

    def test_with_few_keys_takes_all_that_occur(self):
        sample = bottom_k([*KEYS, "none"], [*COUNTS, 0], k=4)
        assert sample.keys.to_pylist() == KEYS
        assert sample.threshold == float("inf")
        assert sample.estimate() == sum(COUNTS)
        assert sample.estimate(np.sqrt) == pytest.approx(np.sqrt(COUNTS).sum())
        assert len(bottom_k([], [], k=1)) == 0

    def test_takes_the_smallest_ranks(self):
        """Priority ranks are U / w: 0.5/1, 0.5/2, 0.5/4, so the largest frequency comes first."""
        half = 2**63
        sample = bottom_k(["a", "b", "c"], [1, 2, 4], k=1, method="priority", source=Scripted(half, half, half))
        assert sample.keys.to_pylist() == ["c"]
        assert sample.threshold == 0.25
        assert sample.estimate() == 4.0

    @pytest.mark.parametrize("word", [0, 2**64 - 1])
    @pytest.mark.parametrize("method", ["ppswor", "priority"])
    def test_extreme_words_give_usable_ranks(self, word, method):
        for frequency, power in [(1, 1.0), (2**53, 10.0), (1e-300, 1.0), (1e-3, 0.5)]:
            sample = bottom_k(["a", "b"], [frequency] * 2, k=1, method=method, power=power, source=Repeating(word))
            assert 0 < sample.threshold < float("inf")
            assert sample.estimate() > 0

    @pytest.mark.parametrize("power", [1.0, 0.5])
    def test_the_first_key_of_ppswor_is_drawn_by_weight(self, power):
        """The smallest of independent Exp(1)/w belongs to each key with probability proportional to w."""
        weights = np.array([16.0, 9.0, 4.0, 1.0])
        draws = [bottom_k([0, 1, 2, 3], weights, k=1, power=power).keys[0].as_py() for _ in range(4000)]
        assert_follows(draws, range(4), weights**power / (weights**power).sum())

    @pytest.mark.parametrize("method", ["ppswor", "priority"])
    @pytest.mark.parametrize(("power", "g"), [(1.0, None), (1.0, np.ones_like), (0.5, np.square)])
    def test_the_estimate_is_not_biased(self, method, power, g):
        """Student's test on the mean of 2000 estimates, at the error rate FALSE_ALARM."""
        frequencies = np.arange(1, 31)
        truth = float((frequencies if g is None else g(frequencies)).sum())
        estimates = [
            bottom_k(frequencies, frequencies, k=12, method=method, power=power).estimate(g) for _ in range(2000)
        ]
        error = abs(np.mean(estimates) - truth) / stats.sem(estimates)
        assert error < stats.t.isf(FALSE_ALARM / 2, len(estimates) - 1)


class TestBadInput:
    @pytest.mark.parametrize(
        "sampler", [lambda k, f: threshold_sample(k, f, everything()), lambda k, f: bottom_k(k, f, 1)]
    )
    @pytest.mark.parametrize(
        ("keys", "frequencies", "name"),
        [
            (["a", None], [1, 2], "keys"),
            ("ab", [1, 2], "keys"),
            ({"a": 1}, [1], "keys"),
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
            threshold_sample(KEYS, COUNTS, scheme)

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
            ({"source": 7}, "source"),
        ],
    )
    def test_bottom_k(self, change, name):
        with pytest.raises(DpsieveError, match=name):
            bottom_k(KEYS, COUNTS, **{"k": 2, **change})

    def test_source(self):
        with pytest.raises(InvalidType, match="source"):
            threshold_sample(KEYS, COUNTS, everything(), source=np.random.default_rng())

    def test_g(self):
        sample = bottom_k(KEYS, COUNTS, k=2)
        with pytest.raises(InvalidType, match="g must be a function"):
            sample.estimate(3)
        for wrong in (lambda w: 1.0, lambda w: w * np.nan, lambda w: w.astype(str)):
            with pytest.raises(InvalidValue, match="g did not return"):
                sample.estimate(wrong)
