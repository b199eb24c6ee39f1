"""From keys and true frequencies to what may be published."""

import datetime
import math
import uuid
from collections import Counter
from contextlib import suppress
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpsieve as ds
from dpsieve.channels import optimal, simple, stability, truncated_geometric
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.noise.private_total import private_scheme, release_sample
from dpsieve.papers.weighted_sampling import sampled_stability
from dpsieve.testing import insecure_source

KEYS = ["tea", "coffee", "water", "juice", "secret"]
FREQUENCIES = [500, 2000, 300, 45, 1]


def test_a_release_in_four_lines():
    channel = ds.channels.optimal(epsilon=1.0, delta=1e-8)
    release = channel.release(KEYS, FREQUENCIES)
    assert release.table.column_names == ["key", "count", "low", "high", "weight", "bound"]
    assert release.table.column("key").to_pylist() == ["coffee", "juice", "tea", "water"]
    assert str(release.guarantee) == "(1, 1e-08)-differential privacy when one row is added or removed."


def test_counts_are_close_and_inside_their_intervals():
    table = optimal(1.0, 1e-8).release(KEYS, FREQUENCIES).table.to_pydict()
    truth = dict(zip(KEYS, FREQUENCIES, strict=True))
    for key, count, low, high in zip(table["key"], table["count"], table["low"], table["high"], strict=True):
        assert abs(count - truth[key]) < 40 and low <= count <= high


def test_the_top_and_the_estimates():
    release = optimal(1.0, 1e-8).release(KEYS, FREQUENCIES)
    assert release.top(2).column("key").to_pylist() == ["coffee", "tea"]
    assert release.estimate() == pytest.approx(2845, abs=150)
    assert release.estimate(where=lambda keys: np.array([k.as_py() == "tea" for k in keys])) == pytest.approx(
        500, abs=40
    )
    assert release.estimate(g=lambda w: np.minimum(w, 1.0)) == pytest.approx(4.0, abs=1e-6)
    assert release.estimate(where=[True, False, False, False]) == pytest.approx(2000, abs=40)


def test_frames_for_notebooks():
    release = optimal(1.0, 1e-8).release(KEYS, FREQUENCIES)
    assert list(release.to_pandas()["key"]) == release.to_polars()["key"].to_list() == release.table["key"].to_pylist()


def test_keys_only():
    release = optimal(1.0, 1e-8).release(KEYS, FREQUENCIES, keys_only=True)
    assert release.table.column_names == ["key"] and len(release) == 4 and release.tokens is None
    for call in (release.top, release.estimate):
        with pytest.raises(DpsieveError, match="keys only"):
            call()


def test_a_seeded_release_says_that_it_is_unsafe():
    release = optimal(1.0, 1e-8).release(KEYS, FREQUENCIES, source=insecure_source(1))
    assert release.unsafe_to_publish and "UNSAFE" in repr(release)
    assert not optimal(1.0, 1e-8).release(KEYS, FREQUENCIES).unsafe_to_publish


def test_nothing_true_is_in_what_people_see():
    release = optimal(1.0, 1e-8).release(KEYS, [123456, 2, 3, 4, 1])
    shown = repr(release) + str(release.certificate) + repr(release.mechanism) + str(release.guarantee)
    for true_number in ("123456", "123,456", "secret", "5"):
        assert true_number not in shown


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(["a", "b"]),
        pa.chunked_array([["a"], ["b"]]),
        np.array(["a", "b"]),
        [b"a", b"b"],
        [1, 2],
        ("a", "b"),
        pa.array(["a", "b"], pa.large_string()),
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_keys_of_any_kind(keys):
    assert len(simple(1.0, 1e-6).release(keys, [100, 200])) == 2


def test_frequencies_at_the_limit():
    for make in (optimal, simple, stability):
        for _ in range(20):
            assert make(1.0, 1e-8).release(["a"], [10**12]).table["count"][0].as_py() <= 10**12


def test_categories_do_not_travel_with_the_keys():
    keys = pa.array(["seen", "secret"]).dictionary_encode()
    table = optimal(1.0, 1e-8).release(keys, [500, 1]).table
    assert table.schema.field("key").type == pa.string() and "secret" not in str(table)


@pytest.mark.parametrize("keys", [[["a"], ["b"]], [{"x": [1]}, {"x": [2]}]])
def test_nested_keys_are_refused_before_the_draw(keys):
    for given in (keys, pa.array(keys)):
        with pytest.raises(DpsieveError, match="keys"):
            optimal(1.0, 1e-8).release(given, [500, 600])


def test_no_keys_at_all():
    assert len(optimal(1.0, 1e-6).release([], [])) == 0
    assert len(optimal(1.0, 1e-6, ds.ppswor(0.1)).release(pa.array([], pa.string()), [])) == 0


@pytest.mark.parametrize(
    ("keys", "frequencies", "named"),
    [
        (["a", "b"], [1], "length"),
        (["a", "a"], [1, 2], "more than once"),
        (["a", None], [1, 2], "nulls"),
        (["a", 1], [1, 2], "keys"),
        (["a"], [0], "frequencies"),
        (["a"], [-5], "frequencies"),
        (["a"], [1.5], "frequencies"),
        (["a"], [math.nan], "frequencies"),
        (["a"], [10**13], "frequencies"),
        (["a"], [2**70], "frequencies"),
        (["a"], ["7"], "frequencies"),
        (["a"], [None], "frequencies"),
        (["a"], [True], "frequencies"),
        (["a"], [[1]], "frequencies"),
    ],
)
def test_bad_data_is_refused_without_showing_it(keys, frequencies, named):
    for channel in (optimal(1.0, 1e-6), simple(1.0, 1e-6, ds.ppswor(0.1))):
        with pytest.raises(DpsieveError, match=named) as caught:
            channel.release(keys, frequencies)
        assert "-5" not in str(caught.value) and "'a'" not in str(caught.value)


def test_repeated_keys_are_found_in_large_inputs_too():
    keys = pa.array([*(f"key {i}" for i in range(200_000)), "key 7"])
    with pytest.raises(InvalidValue, match="more than once"):
        optimal(1.0, 1e-6).release(keys, np.full(200_001, 1000))


@pytest.mark.parametrize("make", [optimal, simple, stability, truncated_geometric])
def test_bad_parameters(make):
    for epsilon in (0, -1, math.nan, math.inf, "1", None, True, 1e-5, 1e4):
        with pytest.raises(DpsieveError, match="epsilon"):
            make(epsilon, 1e-6)
    for delta in (-1e-9, 1.0, 2.0, math.nan, "x", None):
        with pytest.raises(DpsieveError, match="delta"):
            make(1.0, delta)
    with pytest.raises(DpsieveError, match=r"delta=0 .* no key could ever be.* known in advance"):
        make(1.0, 0.0)


def test_bad_schemes_and_thresholds():
    for make in (optimal, simple, sampled_stability):
        for scheme in ("ppswor", 0.1, object(), [0.1, 0.2]):
            with pytest.raises(DpsieveError, match="scheme"):
                make(1.0, 1e-6, scheme)
    for values in ([0.5, 0.4], [0.5, 1.2], [-0.1, 0.5], [math.nan], []):
        with pytest.raises(DpsieveError):
            optimal(1.0, 1e-6, ds.sampling.custom(values))
    with pytest.raises(DpsieveError, match="threshold"):
        stability(1.0, 1e-6, threshold="low")
    with pytest.raises(DpsieveError, match="delta"):
        stability(1.0, 0.7)
    with pytest.raises(DpsieveError, match="exact"):
        sampled_stability(1.0, 1e-6, ds.ppswor(1e-6)).delta(1.0, "replace")
    for make in (optimal, simple):
        with pytest.raises(DpsieveError, match="epsilon"):
            make(45.0, 1e-6, ds.ppswor(0.1))
    with pytest.raises(DpsieveError, match="already_sampled"):
        sampled_stability(1.0, 1e-6, ds.ppswor(0.1)).release(["a"], [5], already_sampled=True)
    with pytest.raises(DpsieveError, match="replace"):
        optimal(1.0, 1e-6, ds.ppswor(0.1)).delta(1.0, "replace")


def test_bad_calls_on_a_release():
    release = optimal(1.0, 1e-8).release(KEYS, FREQUENCIES)
    for k in (0, -1, 1.5, "3", None):
        with pytest.raises(DpsieveError, match="k"):
            release.top(k)
    for where in ([True], [1, 2, 3, 4], "tea", lambda keys: keys):
        with pytest.raises(DpsieveError, match="where"):
            release.estimate(where=where)


class TestSampleOfChosenSize:
    """`release_sample` spends a stated part of epsilon on the total, the rest on the sample."""

    keys = pa.array([f"key {i}" for i in range(20_000)])
    frequencies = np.maximum(1, 200_000 // np.arange(1, 20_001))

    def test_about_the_chosen_number_of_keys(self):
        few = slice(2_000)
        keys, frequencies = self.keys[few], self.frequencies[few] // 10
        release = release_sample(keys, frequencies, 300, epsilon=1.0, delta=1e-6, unit="one visit")
        assert 80 < len(release) <= 400
        assert release.guarantee == ds.Guarantee(1.0, 1e-6, unit="one visit")
        total, channel, _ = release.certificate.parts
        assert (total.epsilon, channel.epsilon) == pytest.approx((0.05, 0.95)) and total.delta == 0

    def test_the_rate_is_the_size_over_the_total(self):
        scheme = private_scheme(self.frequencies, 300, epsilon=1.0)
        assert scheme.tau == pytest.approx(300 / self.frequencies.sum(), rel=1e-3)
        root = private_scheme(self.frequencies, 300, epsilon=1.0, method="priority", power=0.5)
        assert root.tau == pytest.approx(300 / np.sqrt(self.frequencies).sum(), rel=1e-2)

    def test_one_unit_moves_the_total_by_at_most_the_sensitivity(self):
        from dpsieve.noise.private_total import _FIXED_POINT, _fixed_point

        w = np.unique(np.concatenate([np.arange(1, 5000), 10 ** np.arange(1, 12)]))
        for power in (0.1, 0.5, 0.77, 0.999, 0.999999, 1.0):
            assert (np.abs(_fixed_point(w + 1, power) - _fixed_point(w, power)) <= _FIXED_POINT + 1).all()
            assert (_fixed_point(np.array([1]), power) <= _FIXED_POINT).all()

    def test_bad_parameters(self):
        good = {"sample_size": 10, "epsilon": 1.0, "delta": 1e-6}
        for name, values in {
            "sample_size": (0, -1, 1.5, "9"),
            "epsilon": (0, -1, math.nan),
            "delta": (0, 1.0),
            "share": (0, 1, -1, "half"),
            "power": (-1, 1.5, math.nan),
            "method": ("other", None),
        }.items():
            for value in values:
                with pytest.raises(DpsieveError, match=name):
                    release_sample(["a"], [5], **(good | {name: value}))


NAIVE_AND_AWARE = [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC)]


@pytest.mark.parametrize("common", [2, 2.0, b"tea", datetime.date(2024, 1, 1)])
def test_the_type_of_keys_is_not_decided_by_keys_that_are_not_released(common):
    rare = type(common)(*common.timetuple()[:2], 2) if isinstance(common, datetime.date) else common * 2
    one, two = (optimal(1.0, 1e-8).release([common, *more], [500, 1][: 1 + len(more)]) for more in ([], [rare]))
    assert one.table.schema == two.table.schema


@pytest.mark.parametrize(
    "keys",
    [[2, 2.5], ["tea", b"tea"], [Decimal("1.5"), Decimal("2")], [True, 2], [{"a": 1}], [(1, 2)], NAIVE_AND_AWARE],
)
@pytest.mark.parametrize("make", [list, tuple, lambda keys: np.array([*keys, None], dtype=object)[:-1]])
def test_keys_of_several_types_are_refused(keys, make):
    with pytest.raises(DpsieveError, match="several types"):
        optimal(1.0, 1e-8).release(make(keys), [500] * len(keys))


def test_whole_numbers_are_64_bits_and_times_in_utc():
    with pytest.raises(DpsieveError, match="64 bits"):
        optimal(1.0, 1e-8).release([1, 2**63], [500, 1])
    zones = [datetime.timezone(datetime.timedelta(hours=hours)) for hours in (1, 2)]
    times = [datetime.datetime(2024, 1, 1, hour, tzinfo=zone) for hour, zone in zip((3, 9), zones, strict=True)]
    for order in (times, times[::-1]):
        assert optimal(1.0, 1e-8).release(order, [500, 500]).table.schema.field("key").type == pa.timestamp("us", "UTC")


COUNTS = Counter({"tea": 500, "milk": 300, "salt": 1})


class TestCountsInADict:
    """What people have is often a Counter: its views are taken as they are, and the rest is told the way."""

    @pytest.mark.parametrize("make", [lambda: optimal(1.0, 1e-8), lambda: ds.channels.known_keys(1.0)])
    def test_views_and_iterators(self, make):
        counts = COUNTS
        for keys, frequencies in (
            (counts.keys(), counts.values()),
            (iter(counts), iter(counts.values())),
            (list(counts), counts.values()),
        ):
            made = make().release(keys, frequencies)
            assert {"tea", "milk"} <= set(made.table["key"].to_pylist())

    def test_the_dict_itself(self):
        for counts in (COUNTS, dict(COUNTS)):
            with pytest.raises(DpsieveError, match=r"counts.keys\(\), counts.values\(\)"):
                optimal(1.0, 1e-8).release(counts)
            for keys, frequencies in ((counts, counts), (counts, counts.values()), (counts.keys(), counts)):
                with pytest.raises(DpsieveError, match=r"keys|frequencies"):
                    optimal(1.0, 1e-8).release(keys, frequencies)


def test_epsilons_that_are_hardly_above_zero():
    """A subnormal budget has no finite inverse; whatever is asked, the answer is an error of the family or a number."""
    for epsilon in (5e-324, 1e-320, 1e-308, 1e-200):
        for make in (
            lambda e: optimal(e, 1e-8),
            lambda e: ds.channels.known_keys(e),
            lambda e: ds.channels.known_keys(e, 1e-8, 3, 4),
            lambda e: private_scheme([5], 2, epsilon=e),
            lambda e: ds.channels.gaussian(e, 1e-8, 3),
            lambda e: ds.federated.plan(e, 1e-8),
            lambda e: ds.papers.sample_threshold.SampledLaplace(e, 0.1),
            lambda e: ds.papers.sample_threshold.HadamardResponse(e, 16),
        ):
            with suppress(DpsieveError):
                make(epsilon)
        assert optimal(1.0, 1e-8).delta(epsilon) > 0


def test_a_wide_interval_serves_its_group_of_rows():
    """With thousands of rows, neighbours share a window, which must hold the level for each of them."""
    channel = stability(0.004, 1e-8)
    assert channel.rows.last > 4096
    for frequency in (1, 50, 3000, 4000, 4436, 4500, 5200, 10**5):
        row = channel.row(frequency)
        low, high = channel.interval(row.right, 0.95)
        covered = row.mass[(low <= frequency) & (frequency <= high)].sum() / row.reported
        assert 0.95 <= covered <= 1.0
        assert frequency < 4000 or covered < 0.98


def test_keys_in_the_columns_of_polars():
    for keys in (pl.Series(["tea", "milk"]), pl.Series(["tea", "milk"], dtype=pl.Categorical)):
        assert optimal(1.0, 1e-8).release(keys, [500, 500]).table["key"].to_pylist() == ["milk", "tea"]


@pytest.mark.parametrize("keys", [{"tea", "milk"}, frozenset({"tea", "milk"})])
def test_a_set_has_no_order_to_pair_it_with_frequencies_by(keys):
    with pytest.raises(DpsieveError, match="is a set"):
        optimal(1.0, 1e-8).release(keys, [500, 1])
    with pytest.raises(DpsieveError, match="is a set"):
        ds.papers.thesis.release_counters(keys, [500, 1], 8, 1.0, 1e-6)


@pytest.mark.parametrize("keys", [[uuid.uuid4()], [np.float16(1)], pd.period_range("2024", periods=1, freq="Y")])
def test_keys_that_cannot_be_sorted_are_refused(keys):
    with pytest.raises(DpsieveError, match="keys"):
        optimal(1.0, 1e-8).release(keys, [500])
