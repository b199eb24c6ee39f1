"""Intervals of sums over few keys: their exact coverage, from the rows, given that the keys are reported."""

import math
import pickle
from itertools import product

import numpy as np
import pytest
from scipy import stats

import dpsieve as ds
from dpsieve.estimation.estimated_sums import ErrorLaw, Term, noise_interval, sum_margins
from dpsieve.estimation.estimators import middles
from dpsieve.noise.known_keys import known_keys
from dpsieve.sketches.laplace_noise import NoisySketch

LEVEL = 0.95
CHANNELS = {
    "optimal": ds.channels.optimal(1.0, 1e-8),
    "optimal, small epsilon": ds.channels.optimal(0.2, 1e-6),
    "optimal, large epsilon": ds.channels.optimal(4.0, 1e-6),
    "simple": ds.channels.simple(0.5, 1e-6),
    "stability": ds.channels.stability(1.0, 1e-8),
    "gaussian": ds.channels.gaussian(1.0, 1e-6, 3),
    "report then count": ds.channels.report_then_count(1.0, 1e-6, 4),
    "several rows": ds.channels.rows_of_units(1.0, 1e-6, 3),
}
NOISES = {
    "laplace": known_keys(1.0),
    "wide laplace": known_keys(0.02, max_keys=2),
    "gaussian": known_keys(1.0, 1e-6, max_keys=40),
}


def row(channel, i):
    """The tokens of a key of frequency i, given that it is reported, and their probabilities."""
    edges = channel.rows.cell_edges(max(i - channel.rows.spread, 0), i + channel.rows.spread)
    mass = channel.rows.cell_probabilities(np.array([i]), edges)[0]
    return middles(edges)[mass > 0], mass[mass > 0] / mass.sum()


def error_law(channel, i):
    """The law of the likeliest frequency less i, on whole numbers from -reach to reach."""
    tokens, mass = row(channel, i)
    errors = channel.likeliest(tokens) - i
    reach = int(np.abs(errors).max())
    return np.bincount(errors + reach, mass, 2 * reach + 1)


def convolved(law, count):
    found = np.ones(1)
    for _ in range(count):
        found = np.convolve(found, law)
    return found


def covered(law, below, above):
    """The probability that a whole error is from -above to below."""
    reach = len(law) // 2
    errors = np.arange(-reach, reach + 1)
    return law[(errors <= below + 1e-9) & (errors >= -above - 1e-9)].sum()


@pytest.mark.parametrize("name", CHANNELS)
def test_one_key_is_covered_at_every_frequency(name):
    """Also at and below the threshold, given that it is reported; a g and a weight map the ends."""
    channel = CHANNELS[name]
    half = ds.channels.frequency_at(channel, 0.5)
    for i in {1, half // 2, half - 1, half, half + 1, half + 5, 2 * half, 10**6} - {0}:
        edges = channel.rows.spanning_edges(i, i)
        cells = channel.rows.cell_probabilities(np.array([i]), edges)[0]
        some = np.flatnonzero(cells)
        edges, mass = edges[some[0] : some[-1] + 2], np.append(0.0, np.cumsum(cells[some[0] : some[-1] + 1]))
        first, last = int(edges[0]) + 1, int(edges[-1])

        def ends(token, weight=1.0, g=None):
            return channel.sum_interval(np.array([token]), np.array([weight]), g, LEVEL)

        # Intervals go up with tokens: those that hold i are from the first to the last of them.
        start = bisected(lambda token, i=i, ends=ends: ends(token)[1] >= i, first, last)
        stop = bisected(lambda token, i=i, ends=ends: ends(token)[0] > i, first, last)
        held = np.interp([start, stop], edges + 1, mass)
        assert (held[1] - held[0]) / mass[-1] >= LEVEL
        low, high = ends(start)
        assert ends(start, -2.0, np.sqrt) == (-2 * np.sqrt(high), -2 * np.sqrt(low))


def bisected(holds, first, last):
    """The first whole number from which on it holds, `last` + 1 if it never does."""
    while first <= last:
        middle = (first + last) // 2
        first, last = (first, middle - 1) if holds(middle) else (middle + 1, last)
    return first


@pytest.mark.parametrize("count", [2, 3, 10, 100])
@pytest.mark.parametrize("name", CHANNELS)
def test_common_keys_are_covered_exactly(name, count):
    channel, frequency = CHANNELS[name], 10**6
    law = error_law(channel, frequency)
    tokens = np.full(count, row(channel, frequency)[0][0])
    low, high = channel.sum_interval(tokens, np.ones(count), None, LEVEL)
    value = channel.likeliest(tokens).sum()
    coverage = covered(convolved(law, count), value - low, high - value)
    assert LEVEL <= coverage <= 0.9985
    deviation = np.sqrt(channel.errors(tokens, np.ones(count))[1])
    assert high - low <= 2 * 1.96 * deviation * 1.15 + 2


@pytest.mark.parametrize("name", ["optimal", "stability", "optimal, large epsilon"])
def test_two_keys_near_the_threshold_are_covered_given_that_they_are_reported(name):
    """Every pair of outcomes, weighted by its probability."""
    channel = CHANNELS[name]
    half = ds.channels.frequency_at(channel, 0.5)
    for pair in ((half - 1, half + 3), (half + 6, half + 6)):
        rows = [row(channel, i) for i in pair]
        kinds = [list(zip(tokens[mass > 1e-3], mass[mass > 1e-3], strict=True)) for tokens, mass in rows]
        missed = 0.0
        for (a, p), (b, q) in product(*kinds):
            low, high = channel.sum_interval(np.array([a, b]), np.ones(2), None, LEVEL)
            missed += 0.0 if low <= sum(pair) <= high else p * q
        left_out = 1 - np.prod([sum(p for _, p in kind) for kind in kinds])
        assert missed <= 1 - LEVEL and left_out < 0.05


@pytest.mark.parametrize("count", [1, 2, 3, 10, 100])
@pytest.mark.parametrize("name", NOISES)
def test_known_keys_are_covered_exactly(name, count):
    made = NOISES[name]
    reach = int(30 * made.deviation) + 2
    mass = -np.diff(made.noise_tail(np.arange(-reach, reach + 2).astype(float)))
    length = count * (len(mass) - 1) + 1
    law = np.fft.irfft(np.fft.rfft(mass, 1 << length.bit_length()) ** count)[:length]
    low, high = made.sum_interval(np.full(count, 50), np.ones(count), None, LEVEL)
    assert LEVEL <= covered(law, 50 * count - low, high - 50 * count) <= 0.985


def test_the_normal_approximation_would_miss_more_for_one_key():
    """What was wrong: 1.96 deviations of noise that is like Laplace's cover less than they say."""
    law = error_law(CHANNELS["optimal"], 10**6)
    deviation = np.sqrt(law @ (np.arange(len(law)) - len(law) // 2) ** 2)
    assert covered(law, 1.96 * deviation, 1.96 * deviation) < 0.93


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99, 0.9999, 1 - 1e-9])
def test_every_level_holds(level):
    made, noise = NOISES["laplace"], np.arange(-200, 202)
    low, high = made.sum_interval(np.zeros(3, int), np.ones(3), None, level)
    assert level <= covered(convolved(-np.diff(made.noise_tail(noise.astype(float))), 3), -low, high)
    channel = CHANNELS["optimal"]
    law, tokens = convolved(error_law(channel, 10**6), 3), np.full(3, 10**6 * channel.resolution)
    low, high = channel.sum_interval(tokens, np.ones(3), None, level)
    value = channel.likeliest(tokens).sum()
    assert level <= covered(law, value - low, high - value)


def test_unequal_weights_are_rounded_to_the_safe_side():
    """Weights that share no grid, against the exact law of their sum; and one that stands out among many."""
    made, weights = known_keys(0.5), np.array([1.0, -np.sqrt(2), np.pi])
    low, high = made.sum_interval(np.zeros(3, int), weights, None, LEVEL)
    x = np.arange(-80, 81)
    mass = -np.diff(made.noise_tail(np.append(x, 81).astype(float)))
    sums = np.add.outer(np.add.outer(weights[0] * x, weights[1] * x), weights[2] * x).ravel()
    probability = np.multiply.outer(np.multiply.outer(mass, mass), mass).ravel()
    coverage = probability[(-high <= sums) & (sums <= -low)].sum()
    assert LEVEL <= coverage <= 0.96
    many = np.append(np.linspace(0.5, 1.5, 200), 400.0)
    low, high = made.sum_interval(np.zeros(201, int), many, None, LEVEL)
    one = made.half_width(LEVEL)
    assert 400 * one <= high == -low <= 400 * (one + 1)


@pytest.mark.parametrize("name", ["simple", "optimal"])
def test_thousands_of_common_keys_take_no_time_and_keep_their_bias(name):
    channel, count = CHANNELS[name], 20_000
    law, tokens = error_law(channel, 10**6), np.full(count, row(channel, 10**6)[0][0])
    low, high = channel.sum_interval(tokens, np.ones(count), None, LEVEL)
    errors, value = np.arange(len(law)) - len(law) // 2, channel.likeliest(tokens).sum()
    mean, deviation = law @ errors, np.sqrt(law @ errors**2 - (law @ errors) ** 2)
    ends = (np.array([value - high, value - low]) - count * mean) / (deviation * np.sqrt(count))
    assert ends == pytest.approx([-1.96, 1.96], abs=0.03)


def test_terms_and_margins_by_hand():
    coin = ErrorLaw(1.0, 0, np.array([0.5, 0.5]), np.array([0.5, 0.5]))  # 0 or 1, and 0 or 1 down
    for count in (1, 4, 12):
        below, above = sum_margins([Term(coin, 3.0, count)], 0.9)
        assert below == above == 3 * stats.binom.ppf(0.95, count, 0.5)
    for weight in (1.0, -2.0):  # 128 coins are convolved, others normal: their mean is not forgotten
        below, above = sum_margins([Term(coin, weight, 1000)], 0.9)
        assert below == above == pytest.approx(abs(weight) * stats.binom.ppf(0.95, 1000, 0.5), abs=1.0)
    assert noise_interval(5.0, np.zeros(3), lambda x: x, 1.0, 0.9) is None


def test_sampled_keys_and_many_near_the_threshold_have_the_normal_interval():
    sampled = ds.channels.optimal(0.5, 1e-6, ds.ppswor(0.01))
    rare, common = (np.array([frequency * sampled.resolution]) for frequency in (60, 5000))
    assert sampled.sum_interval(rare, np.ones(1), None, LEVEL) is None
    assert sampled.sum_interval(common, np.ones(1), None, LEVEL) is not None
    near = np.rint(np.linspace(0.5, 12, 40) * CHANNELS["optimal"].resolution).astype(int)
    assert CHANNELS["optimal"].sum_interval(near, np.ones(40), None, LEVEL) is None


def test_estimates_of_releases_have_these_intervals():
    release = CHANNELS["optimal"].release(["a", "b", "c"], [500, 400, 10**6])
    rows = release.table.to_pylist()
    for k, each in enumerate(rows):
        one = release.estimate(where=np.arange(len(rows)) == k)
        assert one.interval(0.95) == (each["low"], each["high"])
    total = release.estimate()
    assert pickle.loads(pickle.dumps(total)).interval(0.9) == total.interval(0.9)
    lo, hi = total.interval(0.95)
    assert lo < total < hi < total + 10


@pytest.mark.parametrize("lost", [400, -1])
def test_sketches_have_the_law_of_their_noise(lost):
    """One Laplace noise for a key where the loss cancels the shared one, two elsewhere."""
    made = NoisySketch(1.0, 1e-6, 50).reader({"lost": lost})
    low, high = made.sum_interval(np.array([900]), np.ones(1), None, LEVEL)
    mass = np.exp(-np.abs(np.arange(-60, 61))) * np.tanh(0.5)
    law = mass if lost > 0 else np.convolve(mass, mass)
    value = 900 + max(lost, 0)
    assert LEVEL <= covered(law, value - low, high - value) <= 0.985


@pytest.mark.parametrize(("epsilon", "keys", "level"), [(8.0, 200, 0.95), (8.0, 400, 0.9), (4.0, 150, 0.9)])
def test_sums_of_many_small_errors_have_their_level(epsilon, keys, level):
    """A normal quantile between two whole numbers covered 0.88, 0.78 and 0.86: the sum is a whole number."""
    ratio = math.exp(-epsilon)
    noise = (1 - ratio) / (1 + ratio) * ratio ** np.abs(np.arange(-20, 21))
    below, above = sum_margins([Term(ErrorLaw(1.0, -20, noise, noise), 1.0, keys)], level)
    total = np.ones(1)
    for _ in range(keys):
        total = np.convolve(total, noise)
        middle = len(total) // 2
        total = total[max(0, middle - 60) : middle + 61]
    sums = np.arange(len(total)) - len(total) // 2
    assert total[(sums >= -below) & (sums <= above)].sum() >= level
