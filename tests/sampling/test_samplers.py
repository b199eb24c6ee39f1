"""Coins that decide samples, and estimates from them. What they return is true data, not private."""

import numpy as np
import pyarrow as pa
import pytest
from helpers.statistical import assert_follows, binomial_band

from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.randomness.coins import bernoulli
from dpsieve.randomness.source import SystemSource
from dpsieve.sampling import Sample, custom, everything, new_salt, ppswor, priority

KEYS = ["milk", "rice", "salt", "tea"]
COUNTS = [40, 1, 7, 900]


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


class TestBadInput:
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
    def test_columns(self, keys, frequencies, name):
        with pytest.raises(DpsieveError, match=name):
            Sample.of(keys, frequencies, everything(), salt=new_salt())

    @pytest.mark.parametrize("scheme", [None, 0.5, "ppswor", ppswor])
    def test_scheme(self, scheme):
        with pytest.raises(InvalidType, match="scheme"):
            Sample.of(KEYS, COUNTS, scheme, salt=new_salt())

    def test_g(self):
        sample = Sample.of(KEYS, COUNTS, everything(), salt=new_salt())
        with pytest.raises(InvalidType, match="g must be a function"):
            sample.estimate(g=3)
        for wrong in (lambda w: 1.0, lambda w: w * np.nan, lambda w: w.astype(str)):
            with pytest.raises(InvalidValue, match="g did not return"):
                sample.estimate(g=wrong)
