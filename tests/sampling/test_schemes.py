"""Schemes: the probability that a key of each frequency is sampled."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.sampling import Scheme, custom, everything, ppswor, priority, scheme_from_json

SCHEMES = [
    ppswor(0.01),
    ppswor(1e-9, power=1.5),
    ppswor(0.3, power=0.37),
    priority(0.01),
    priority(1e-5, power=0.5),
    priority(0.2, power=0.1),
    everything(),
    custom([0.0, 0.25, 0.25, 0.75]),
]
rates = st.floats(1e-15, 100.0)
powers = st.floats(0.05, 10.0) | st.sampled_from([0.5, 1.0, 2.0])
thresholds = st.builds(ppswor, rates, powers) | st.builds(priority, rates, powers)
steps = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=50).map(sorted).map(custom)

each_scheme = pytest.mark.parametrize("scheme", SCHEMES, ids=repr)


def falling(i):
    return 1 / i


class TestEveryScheme:
    @each_scheme
    def test_starts_at_zero_and_ends_at_most_at_one(self, scheme):
        q = scheme.inclusion([0, 1, 2, 1000, 10**12, 2**53])
        assert q.dtype == np.float64
        assert q[0] == 0
        assert (np.diff(q) >= 0).all()
        assert q[-1] <= 1

    @each_scheme
    def test_takes_any_shape_and_any_numbers(self, scheme):
        assert scheme.inclusion(7).shape == ()
        assert scheme.inclusion([]).shape == (0,)
        assert scheme.inclusion([[1, 2, 3], [4, 5, 6]]).shape == (2, 3)
        expected = scheme.inclusion([3, 5]).tolist()
        for same in ([3.0, 5.0], np.array([3, 5], np.uint8), np.array([3, 5], np.float16), pa.array([3, 5])):
            assert scheme.inclusion(same).tolist() == expected

    @each_scheme
    @pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 40_000), (10**12 - 2000, 10**12)])
    def test_a_range_holds_what_single_frequencies_get(self, scheme, first, last):
        q = scheme.inclusion_range(first, last)
        assert len(q) == last - first + 1
        assert (np.diff(q) >= 0).all()
        assert q[-500:].tolist() == scheme.inclusion_range(max(first, last - 499), last).tolist()
        assert q[-5:].tolist() == [float(scheme.inclusion(i)) for i in range(first, last + 1)[-5:]]

    @each_scheme
    def test_is_a_value(self, scheme):
        assert scheme == scheme
        assert scheme != ppswor(0.123)
        assert len({scheme, scheme}) == 1
        with pytest.raises(AttributeError):
            scheme.tau = 2.0

    @each_scheme
    def test_is_saved_and_pickled(self, scheme):
        again = scheme_from_json(json.loads(json.dumps(scheme.to_json())))
        assert again == scheme
        assert hash(again) == hash(scheme)
        assert pickle.loads(pickle.dumps(scheme)) == scheme

    @each_scheme
    def test_repr_is_how_to_make_it(self, scheme):
        names = {"ppswor": ppswor, "priority": priority, "everything": everything, "custom": custom}
        assert eval(repr(scheme), names) == scheme

    @given(thresholds | steps, st.integers(0, 10**12), st.integers(1, 2000))
    def test_never_decreases_between_whole_frequencies(self, scheme, first, count):
        q = scheme.inclusion_range(first, first + count)
        assert (np.diff(q) >= 0).all()

    @given(thresholds | steps, st.lists(st.floats(0.0, 1e12), min_size=2, max_size=50).map(sorted))
    def test_never_decreases_between_real_frequencies(self, scheme, frequencies):
        assert (np.diff(scheme.inclusion(frequencies)) >= 0).all()

    @given(thresholds | steps, st.integers(0, 10**12))
    def test_is_constant_from_where_it_says_and_not_before(self, scheme, more):
        start = scheme.constant_from()
        if start is None:
            assert scheme.inclusion(2**53) < 1
            return
        last = scheme.inclusion(start)
        assert scheme.inclusion(min(start + more, 2**53)) == last == scheme.inclusion(2**53)
        assert start == 0 or scheme.inclusion(start - 1) < last


class TestClosedForms:
    def test_ppswor(self):
        i = np.array([0, 1, 2, 10, 1000, 10**6])
        np.testing.assert_allclose(ppswor(0.01).inclusion(i), -np.expm1(-0.01 * i), rtol=1e-15)
        np.testing.assert_allclose(ppswor(1e-4, 1.3).inclusion(i), -np.expm1(-1e-4 * i**1.3), rtol=2e-15)

    def test_priority(self):
        i = np.array([0, 1, 2, 10, 1000, 10**6])
        np.testing.assert_allclose(priority(0.01).inclusion(i), np.minimum(1, 0.01 * i), rtol=1e-15)
        np.testing.assert_allclose(priority(1e-4, 0.7).inclusion(i), np.minimum(1, 1e-4 * i**0.7), rtol=2e-15)

    def test_small_rates_keep_their_digits(self):
        assert ppswor(1e-20).inclusion([1, 2, 10**6]).tolist() == pytest.approx([1e-20, 2e-20, 1e-14], rel=1e-13)

    def test_extreme_rates(self):
        assert ppswor(1.7e308, 10.0).inclusion([0, 1, 10**12]).tolist() == [0, 1, 1]
        assert priority(5e-324).inclusion([0, 1, 2]).tolist() == [0, 5e-324, 1e-323]

    @pytest.mark.parametrize("tau", [1.0, 0.1, 0.01, 3e-6])
    def test_ppswor_reaches_one_where_the_rest_rounds_away(self, tau):
        """1 - e^-x rounds to 1 in 53 bits when e^-x <= 2^-54."""
        assert ppswor(tau).constant_from() == int(np.ceil(54 * np.log(2) / tau))

    def test_priority_reaches_one_at_the_inverse_rate(self):
        assert priority(0.25).constant_from() == 4
        assert priority(0.25, power=2.0).constant_from() == 2
        assert priority(5.0).constant_from() == 1
        assert priority(1e-17).constant_from() is None

    def test_everything(self):
        assert everything().inclusion([0, 0.5, 1, 9]).tolist() == [0, 1, 1, 1]
        assert everything().constant_from() == 1


class TestCustom:
    def test_a_sequence_holds_its_last_value_for_ever(self):
        scheme = custom([0.1, 0.5])
        assert scheme.inclusion([0, 1, 2, 3, 10**12]).tolist() == [0, 0.1, 0.5, 0.5, 0.5]
        assert scheme.constant_from() == 2

    def test_a_real_frequency_is_rounded_down(self):
        assert custom([0.1, 0.5]).inclusion([0.9, 1.0, 1.9, 2.0]).tolist() == [0, 0.1, 0.1, 0.5]

    def test_repetitions_of_the_last_value_do_not_matter(self):
        assert custom([0.1, 0.5, 0.5]) == custom(np.array([0.1, 0.5]))
        assert custom([0.0, 0.0]).constant_from() == 0

    def test_a_negative_zero_is_a_zero(self):
        assert repr(custom([-0.0, 0.5])) == "custom([0.0, 0.5])"

    @pytest.mark.parametrize(
        ("wrong", "reason"),
        [
            ([0.5, 0.4], "decreases"),
            ([0.5, np.nextafter(0.5, 0)], "decreases"),
            ([-0.1, 0.5], "outside"),
            ([0.5, 1.1], "outside"),
            ([0.5, np.nan], "outside"),
            ([], "empty"),
            (0.5, "flat sequence"),
            (None, "flat sequence"),
            ("0.5", "flat sequence"),
            (["0.5"], "flat sequence"),
            ([[0.1], [0.2]], "flat sequence"),
            ([[0.1], [0.2, 0.3]], "flat sequence"),
            (falling, "flat sequence"),
        ],
    )
    def test_wrong_probabilities_are_refused(self, wrong, reason):
        with pytest.raises(DpsieveError, match=f"probabilities .*{reason}"):
            custom(wrong)


class TestBadInput:
    @pytest.mark.parametrize("make", [ppswor, priority])
    @pytest.mark.parametrize("tau", [0, -1.0, np.nan, np.inf, "0.1", None, True])
    def test_tau(self, make, tau):
        with pytest.raises(DpsieveError, match="tau"):
            make(tau)

    @pytest.mark.parametrize("make", [ppswor, priority])
    @pytest.mark.parametrize("power", [1e-4, -1.0, 10.5, np.nan, "1", None])
    def test_power(self, make, power):
        with pytest.raises(DpsieveError, match="power"):
            make(0.1, power)

    @each_scheme
    def test_frequencies(self, scheme):
        for bad in (-1, [1, np.nan], [np.inf], 2**53 + 2, 2**64, ["1"], [True], [None], [[1], [1, 2]], 1 + 2j):
            with pytest.raises(DpsieveError, match="frequencies"):
                pytest.fail(f"{bad!r} was taken: {scheme.inclusion(bad)}")

    @pytest.mark.parametrize(
        ("first", "last", "name"),
        [
            (-1, 5, "first"),
            (1.0, 5, "first"),
            (5, 4, "last"),
            (1, "5", "last"),
            (1, 2**53 + 1, "last"),
            (0, 2**40, "last"),
        ],
    )
    def test_ranges(self, first, last, name):
        with pytest.raises(DpsieveError, match=name):
            ppswor(0.1).inclusion_range(first, last)

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (None, "data"),
            ("ppswor", "data"),
            ({}, "does not know"),
            ({"kind": "other"}, "does not know"),
            ({"kind": ["ppswor"]}, "does not know"),
            ({"kind": "ppswor", "power": 1.0}, "other fields"),
            ({"kind": "everything", "tau": 0.1}, "other fields"),
            ({"kind": "ppswor", "tau": -0.1, "power": 1.0}, "tau"),
            ({"kind": "custom", "values": [0.5, 0.1]}, "decreases"),
            ({"kind": "custom", "values": falling}, "flat sequence"),
        ],
    )
    def test_saved_schemes(self, data, reason):
        with pytest.raises(DpsieveError, match=reason):
            scheme_from_json(data)

    def test_the_base_class_is_abstract(self):
        with pytest.raises(TypeError):
            Scheme()


@pytest.mark.parametrize("make", [ppswor, priority])
def test_power_zero_samples_all_keys_alike(make):
    """Distinct sampling: the probability of frequency 1, for every frequency but 0."""
    scheme = make(0.05, power=0)
    q = scheme.inclusion([0, 1, 2, 1e6, 2**53])
    assert q.tolist() == [0.0, *[make(0.05).inclusion(1).item()] * 4]
    assert scheme.constant_from() == 1 and scheme_from_json(scheme.to_json()) == scheme


def test_tiny_powers_are_refused_at_once():
    """They would treat all keys alike, and take a million rows to settle."""
    for name in ("ppswor", "priority", "ppswor_of_stream"):
        with pytest.raises(InvalidValue, match="power"):
            scheme_from_json({"kind": name, "tau": 0.1, "power": 1e-12})
