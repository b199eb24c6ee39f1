"""Sums from a release know their errors: bias, variance and intervals, from the rows alone."""

import pickle

import numpy as np
import pyarrow.compute as pc
import pytest
from helpers.statistical import FALSE_ALARM
from scipy import stats

import dpsieve as ds
from dpsieve.errors import DpsieveError
from dpsieve.estimation import estimators
from dpsieve.estimation.estimators import errors_of_keys, middles
from dpsieve.noise.known_keys import known_keys
from dpsieve.sketches.laplace_noise import NoisySketch

# Each with frequencies at and above the one reported 95 times in 100 as often as it is sampled.
CHANNELS = {
    "optimal": (ds.channels.optimal(1.0, 1e-8), [21, 25, 30, 60, 10**9]),
    "simple": (ds.channels.simple(0.5, 1e-6), [30, 40, 60, 500]),
    "stability": (ds.channels.stability(1.0, 1e-8), [22, 30, 60, 10**6]),
    "a sample": (ds.channels.optimal(0.5, 1e-6, ds.ppswor(0.01)), [25, 40, 100, 400, 1000]),
    "several rows": (ds.channels.rows_of_units(1.0, 1e-6, 3), [70, 200, 1000]),
}


def expected_errors(channel, i):
    """The expectation, over the row of i, of what one key adds to the estimated bias and variance."""
    edges = channel.rows.cell_edges(max(i - channel.rows.spread, 0), i + channel.rows.spread)
    mass = channel.rows.cell_probabilities(np.array([i]), edges)[0]
    tokens, mass = middles(edges)[mass > 0], mass[mass > 0]
    return [mass @ each for each in errors_of_keys(channel.estimator(), channel.likeliest(tokens))]


@pytest.mark.parametrize("name", CHANNELS)
def test_bias_and_variance_are_right_for_keys_that_are_usually_reported(name):
    channel, frequencies = CHANNELS[name]
    moments = channel.estimator().moments(frequencies)
    for k, i in enumerate(frequencies):
        bias, variance = expected_errors(channel, i)
        settled = k >= len(frequencies) - 2
        assert 0.99 < variance / moments.variance[k] < (1.001 if settled else 2.7)
        assert abs(bias - moments.bias[k]) < (1e-3 if settled else 0.1) * np.sqrt(moments.variance[k]) + 0.01


def test_below_that_the_error_is_told_too_small():
    """Half of such keys never show, and what does not show cannot tell. No release says more."""
    channel = ds.channels.optimal(1.0, 1e-8)
    assert expected_errors(channel, 18)[1] < 0.5 * channel.estimator().variance(18)


@pytest.mark.parametrize("name", ["optimal", "a sample"])
def test_many_counts_are_interpolated_within_a_percent(name, monkeypatch):
    channel = CHANNELS[name][0]
    frequencies = np.unique(np.geomspace(20, 3000, 500).astype(np.int64))
    tokens = np.unique(channel.draw(frequencies).tokens)[1:]
    assert len(np.unique(channel.likeliest(tokens))) > 256
    quick = channel.errors(tokens, np.ones(len(tokens)))
    monkeypatch.setattr(estimators, "_SPREAD", 10**6)
    exact = channel.errors(tokens, np.ones(len(tokens)))
    assert quick[1] == pytest.approx(exact[1], rel=0.01)
    assert abs(quick[0] - exact[0]) < 0.01 * np.sqrt(exact[1])


@pytest.mark.parametrize("name", ["optimal", "simple", "a sample"])
def test_intervals_hold_the_sum(name):
    """200 releases of 2,000 keys: 95 % intervals for a weighted sum over half of them hold it at least 93 % of times.

    The bias of `simple`, 0.1 a key, is more than a standard error of such a sum, so it must be taken off.
    """
    channel = CHANNELS[name][0]
    frequencies = np.resize([45, 50, 60, 100, 300, 2000], 2000)
    L = np.where(np.arange(2000) % 4 < 2, np.where(np.arange(2000) % 2, 1.0, 0.25), 0.0)
    tokens = np.array([channel.draw(frequencies).tokens for _ in range(200)])
    bias, variance, value = np.zeros((3, *tokens.shape))
    value[tokens > 0] = channel.terms(tokens[tokens > 0])
    bias[tokens > 0], variance[tokens > 0] = errors_of_keys(channel.estimator(), channel.likeliest(tokens[tokens > 0]))
    held = np.abs((value - bias) @ L - frequencies @ L) < 1.96 * np.sqrt(variance @ L**2)
    assert held.sum() >= stats.binom.ppf(FALSE_ALARM, 200, 0.93)
    spread = np.sqrt(variance @ L**2)
    assert abs(((value - bias) @ L - frequencies @ L).mean()) < 7 * spread.mean() / np.sqrt(200)  # once in 10^11 runs
    assert name != "simple" or (bias @ L > spread).all()


class TestRelease:
    release = ds.channels.optimal(1.0, 1e-8, ds.ppswor(0.2)).release(["tea", "milk", "rice"], [400, 300, 500])

    def test_the_estimate_is_a_number_that_knows_its_error(self):
        total = self.release.estimate()
        assert total == pytest.approx(1200, abs=60) and isinstance(total, float) and f"{total:.0f}".isdigit()
        low, high = total.interval(0.99)
        assert low < total - total.bias < high
        assert 2 * 2.5758 * total.standard_error < high - low < 2 * 3.2 * total.standard_error
        again = pickle.loads(pickle.dumps(total))
        assert (again, again.variance, again.bias) == (total, total.variance, total.bias)

    def test_weights_are_real_numbers(self):
        weight = self.release.table["weight"].to_numpy()
        L = np.array([2.0, -0.5, 0.0])
        total = self.release.estimate(weights=L)
        assert total == pytest.approx(L @ weight)
        ones = [self.release.estimate(where=np.arange(3) == k).variance for k in range(3)]
        assert total.variance == pytest.approx(L**2 @ ones)
        lengths = self.release.estimate(weights=pc.utf8_length, where=lambda keys: pc.not_equal(keys, "tea"))
        assert lengths == pytest.approx(4 * weight[:2].sum())

    def test_any_g(self):
        roots = self.release.estimate(g=np.sqrt)
        assert roots == pytest.approx(np.sqrt([400, 300, 500]).sum(), abs=3) and 0 < roots.variance < 5

    def test_mistakes(self):
        for wrong in ([1.0], [1.0, 2.0, np.nan], ["x", "y", "z"], [[1.0] * 3], [True] * 3, lambda keys: [1.0]):
            with pytest.raises(DpsieveError, match="weights"):
                self.release.estimate(weights=wrong)
        with pytest.raises(DpsieveError, match="level"):
            self.release.estimate().interval(1.0)

    def test_without_keys(self):
        nothing = ds.channels.optimal(1.0, 1e-8).release(["tea"], [1]).estimate(weights=lambda keys: [1.0])
        assert (nothing, nothing.interval()) == (0.0, (0.0, 0.0))


def test_known_keys_have_the_variance_of_their_noise():
    for noise in ("laplace", "gaussian"):
        mechanism = known_keys(0.5, 1e-6, noise=noise)
        total = mechanism.release(["tea", "milk"], [100, 0]).estimate(weights=[3.0, -1.0])
        assert total.variance == pytest.approx(10 * mechanism.deviation**2) and total.bias == 0


def test_sketches_count_the_noise_that_all_counters_share():
    sketch = ds.MisraGries(8)
    sketch.update(["tea"] * 500 + ["milk"] * 400)
    for lost, ratio in ((-1, 3.0), (5, 2.0)):  # own and shared noise, 1 + 1 and 2 + 4; a loss cancels it
        made = NoisySketch(1.0, 1e-8, 8).reader({"lost": lost})
        one, both = (made.errors(np.array(tokens), np.ones(len(tokens)), None)[1] for tokens in ([500], [500, 400]))
        assert both == pytest.approx(ratio * one)
    merged = sketch.merge(ds.MisraGries(8)).release(1.0, 1e-8).estimate()
    assert merged.variance > 0
