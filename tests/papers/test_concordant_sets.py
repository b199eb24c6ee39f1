"""Order of many keys, against enumeration of all outcomes; and the rank of a key in a release."""

from itertools import permutations, product

import numpy as np
import pytest
from helpers.statistical import binomial_band

import dpsieve as ds
from dpsieve.errors import DpsieveError
from dpsieve.papers.weighted_sampling import (
    concordance,
    kendall_tau,
    key_concordance,
    keys_above,
    subset_concordance,
    top_k_recall,
)
from dpsieve.testing import insecure_source

CHANNELS = {
    "optimal": ds.channels.optimal(1.0, 1e-8),
    "simple": ds.channels.simple(1.0, 0.01),
    "a sample": ds.channels.optimal(0.5, 1e-3, ds.ppswor(0.1)),
    "stability": ds.channels.stability(0.5, 0.01),
    "truncated": ds.channels.truncated_geometric(1.0, 0.05),
    "several rows": ds.channels.rows_of_units(1.0, 0.01, 3),
}


def outcomes(channel, frequencies):
    """Every outcome of some keys, ties broken in every way: (token, tie) for each key, with the probability."""
    rows = [channel.row(i) for i in frequencies]
    each = [list(zip([0.0, *row.right], [row.silent, *row.mass], strict=True)) for row in rows]
    ties = list(permutations(range(len(rows))))
    for drawn in product(*each):
        chance = np.prod([p for _, p in drawn]) / len(ties)
        for tie in ties:
            yield [(token, t) for (token, _), t in zip(drawn, tie, strict=True)], chance


@pytest.mark.parametrize("name", ["simple", "truncated"])
@pytest.mark.parametrize("frequencies", [(4, 6, 9), (1, 2, 7)])
def test_three_keys_by_enumeration(name, frequencies):
    channel, found = CHANNELS[name], np.zeros(4)
    for (low, middle, high), chance in outcomes(channel, frequencies):
        above = int(low > middle) + int(high > middle)
        found += chance * np.array([low < middle < high, middle < high > low, above, above**2])
    low, middle, high = frequencies
    assert subset_concordance(channel, frequencies) == pytest.approx(found[0], rel=1e-12)
    assert key_concordance(channel, middle, [high, low]) == pytest.approx(found[0], rel=1e-12)
    assert key_concordance(channel, high, [low, middle]) == pytest.approx(found[1], rel=1e-12)
    count = keys_above(channel, middle, [low, high])
    assert count.expectation == pytest.approx(found[2], rel=1e-12)
    assert count.variance == pytest.approx(found[3] - found[2] ** 2, rel=1e-10)


@pytest.mark.parametrize("name", CHANNELS)
def test_two_keys_are_the_concordance_of_a_pair(name):
    channel = CHANNELS[name]
    for low, high in [(3, 5), (17, 20), (19, 40), (5, 300), (30, 10**9)]:
        pair = float(concordance(channel, low, high))
        assert subset_concordance(channel, [high, low]) == pytest.approx(pair, rel=1e-12)
        assert key_concordance(channel, low, [high]) == pytest.approx(pair, rel=1e-12)
        assert 1 - keys_above(channel, high, [low]).expectation == pytest.approx(pair, rel=1e-12)


def test_many_keys_that_share_a_cell():
    """A key of 100 against a crowd of 100,000 and more: as drawn, within what chance allows."""
    channel, n = CHANNELS["optimal"], 20_000
    crowd = channel.draw(np.repeat([95], 40 * n)).tokens.reshape(n, 40).max(axis=1)
    key, above = channel.draw(np.full(n, 100)).tokens, channel.draw(np.full(n, 105)).tokens
    low, high = binomial_band(n, key_concordance(channel, 100, [95, 105], [40, 1]))
    assert low <= ((crowd < key) & (key < above)).sum() <= high
    assert key_concordance(channel, 100, [90, 100], [10**5, 50]) == pytest.approx(
        key_concordance(channel, 100, [90], [10**5]), rel=1e-12
    )


def test_ranks_add_up_to_kendalls_tau():
    """The expected number of keys above each key counts every pair once."""
    channel, frequencies = CHANNELS["a sample"], np.arange(3, 60, 4)
    pairs, wrong = len(frequencies) * (len(frequencies) - 1) / 2, 0.0
    for k, i in enumerate(frequencies):
        wrong += keys_above(channel, int(i), frequencies[:k]).expectation if k else 0.0
    assert 1 - 2 * wrong / pairs == pytest.approx(kendall_tau(channel, frequencies), rel=1e-9)


def test_no_channel_orders_a_set_better_than_the_optimal_one():
    """Corollary 6.1, among channels without sampling that keep the same promise."""
    best = ds.channels.optimal(0.5, 0.01)
    others = [make(0.5, 0.01) for make in (ds.channels.simple, ds.channels.stability, ds.channels.truncated_geometric)]
    for frequencies in ([2, 5, 9], [10, 12, 14, 16], [20, 30]):
        for other in others:
            assert subset_concordance(best, frequencies) >= subset_concordance(other, frequencies) - 1e-9
            for i in frequencies:
                rest = [k for k in frequencies if k != i]
                assert key_concordance(best, i, rest) >= key_concordance(other, i, rest) - 1e-9


def test_mistakes():
    channel = CHANNELS["optimal"]
    for wrong in (
        lambda: subset_concordance(channel, [5, 5]),
        lambda: subset_concordance(channel, [5]),
        lambda: subset_concordance(channel, np.arange(1, 1002)),
        lambda: subset_concordance(channel, [0, 5]),
        lambda: subset_concordance("x", [1, 5]),
        lambda: key_concordance(channel, 0, [5]),
        lambda: key_concordance(channel, 5, [5], [1, 2]),
        lambda: keys_above(channel, 1.5, [5]),
    ):
        with pytest.raises(DpsieveError):
            wrong()


class TestRank:
    release = ds.channels.optimal(1.0, 1e-8).release(["a", "b", "c", "d"], [5000, 1000, 1010, 200])

    def test_the_place_of_a_key(self):
        first, last = self.release.rank("a"), self.release.rank("d")
        assert (first.place, first.low, first.high, first.above) == (1, 1, 1, 0.0)
        assert (last.place, last.low, last.high) == (4, 4, 4)
        assert last.above == pytest.approx(3.0) and last.above.variance == pytest.approx(0, abs=1e-6)
        middle = self.release.rank("b", level=1 - 1e-9)
        assert middle.place in (2, 3) and (middle.low, middle.high) == (2, 3)

    def test_keys_of_several_columns(self):
        import pyarrow as pa

        keys = pa.table({"city": ["Rome", "Rome"], "item": ["tea", "milk"]})
        release = ds.channels.optimal(1.0, 1e-8).release(keys, [900, 300])
        assert release.rank(("Rome", "milk")).place == 2

    def test_mistakes(self):
        for wrong in ("x", 5, None, ("a", "b"), (), ["a"]):
            with pytest.raises(DpsieveError, match="not in the table"):
                self.release.rank(wrong)
        for wrong in (lambda: self.release.rank("a", level=2), lambda: self.release.rank("a", level=None)):
            with pytest.raises(DpsieveError):
                wrong()
        sketch = ds.MisraGries(8)
        sketch.update(["tea"] * 500)
        with pytest.raises(DpsieveError, match="from a channel"):
            sketch.release(1.0, 1e-6, source=insecure_source(1)).rank("tea")


def test_shorter_parts_give_the_same_integral(monkeypatch):
    from dpsieve.papers.weighted_sampling import order_statistics as concordant_sets

    channel, others = CHANNELS["optimal"], ([90, 95, 99, 103, 106], [10**6, 3000, 70, 40, 500])
    found = [key_concordance(channel, i, *others) for i in (97, 100, 104)]
    monkeypatch.setattr(concordant_sets, "_STEEP", 1.0)
    assert [key_concordance(channel, i, *others) for i in (97, 100, 104)] == pytest.approx(found, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("others", [10, 10**3, 10**6])
def test_one_key_above_many_lower_ones_is_the_first(others):
    """Nearly all of the integral may lie between the end of a cell and the first node of a Gauss rule."""
    channel = ds.channels.simple(0.1, 0.3)
    assert key_concordance(channel, 45, [42], [others]) == pytest.approx(
        top_k_recall(channel, [45, 42], [1, others], 1), abs=1e-9
    )
