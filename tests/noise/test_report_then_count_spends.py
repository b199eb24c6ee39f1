"""What 'report first, then count' spends: never less than any unit costs, and little more than the worst one."""

import math
import time

import numpy as np
import pytest
from scipy.special import ndtr

from dpsieve.channels import report_then_count
from dpsieve.privacy import Approximate, Composition, Renyi

STEP, SIZE = 2.0**-8, 1 << 14  # losses up to 32 on either side
EPSILONS = (0.0, 0.5, 1.0, 2.0, 4.0, 9.0)


@pytest.fixture(scope="module", params=["counts", "keys"])
def channel(request):
    return report_then_count(1.0, 0.001, max_keys=3, goal=request.param)


def both_laws(channel, i):
    """The laws of what is shown of a key, with one unit more at frequency i and without: 'nothing', then all tokens."""
    shown = channel.rows.reported(np.array([i + 1, i]))
    far, ends = math.ceil(9 * channel.sigma), [max(at, channel.first) for at in (i + 1, i)]
    edges = np.concatenate([[-np.inf], np.arange(ends[1] - far, ends[0] + far) + 0.5, [np.inf]])
    return [
        np.append(1 - p, p * np.diff(ndtr((edges - end) / channel.sigma))) for p, end in zip(shown, ends, strict=True)
    ]


def losses(p, q):
    """The Fourier transform of the privacy loss, rounded down to a grid, and the mass of infinite losses."""
    some = (p > 0) & (q > 0)
    places = np.floor(np.log(p[some] / q[some]) / STEP).astype(int)
    assert np.abs(places).max() < SIZE // 2
    return np.fft.rfft(np.bincount(places % SIZE, p[some], SIZE)), p[q <= 0].sum()  # negative ones from the end


def true_deltas(parts, uses):
    """Deltas that independent pairs of laws surely have together, but for the 1e-13 of a Fourier transform."""
    mass = np.fft.irfft(np.prod([spectrum for spectrum, _ in parts], axis=0) ** uses, SIZE)
    at, finite = np.fft.fftfreq(SIZE, 1 / SIZE) * STEP, np.prod([1 - sure for _, sure in parts]) ** uses
    return [1 - finite + float(mass @ np.maximum(0, -np.expm1(np.minimum(700, e - at)))) for e in EPSILONS]


def test_no_unit_costs_more(channel):
    first, last = channel.first, channel.rows.table.last
    units = [[0] * 3, [first // 2] * 3, [first - 1] * 3, [first] * 3, [last + 5] * 3, [0, first // 3, last]]
    units += np.random.default_rng(7).integers(0, last, (6, 3)).tolist()
    laws = {i: both_laws(channel, i) for i in {i for unit in units for i in unit}}
    both_ways = [{i: losses(*pair[::way]) for i, pair in laws.items()} for way in (1, -1)]
    for uses in (1, 4, 12):
        whole = Composition(channel.spends() * uses)
        bounds = np.array([whole.delta(epsilon) for epsilon in EPSILONS])
        found = np.array([true_deltas([parts[i] for i in unit], uses) for parts in both_ways for unit in units])
        assert (found <= bounds + 1e-12).all(), uses
        # The bounds are worth something: the worst of these units comes near.
        assert (found.max(axis=0) > [0.3, 0.15, 0.1, 0.1, 0.1, 0.9] * bounds).all(), uses


def test_a_key_costs_its_coin_or_a_slower_one_and_its_count():
    channel = report_then_count(1.0, 1e-8, max_keys=3, max_rows=2)
    renyi, leak = channel.spends()
    first = channel.reporting_probability([1])[0]
    parts = ({"stop": channel.first + 1}, {"start": channel.first + 1})
    rare, slow = (channel.rows.table.taus(renyi.orders, first * (1 + 1e-12), **rows) for rows in parts)
    common = [tau + order * (2 / channel.sigma) ** 2 / 2 for order, tau in zip(renyi.orders, slow, strict=True)]
    assert renyi.taus == pytest.approx(3 * np.maximum(rare, common), rel=1e-12)
    assert rare[0] > common[0] and rare[-1] > common[-1] / 2  # so both count
    assert leak.delta == pytest.approx(3 * first)


def test_what_leaks_is_told_and_little_more(channel):
    shown = channel.reporting_probability([1])[0]
    for uses in (1, 20):
        leaks = -math.expm1(3 * uses * math.log1p(-shown))
        assert leaks <= Composition(channel.spends() * uses).delta(400.0) <= 1.001 * leaks


def test_a_single_use_costs_at_most_some_times_its_promise(channel):
    # Renyi divergences know less of Gaussian noise than its exact curve; a ledger takes the better of both.
    assert Composition(channel.spends()).delta(1.0) < 2e-2


@pytest.mark.parametrize(
    ("epsilon", "keys", "ten", "fifty"),
    [(0.1, 3, 0.45, 1.12), (0.1, 10, 0.31, 0.74), (0.1, 100, 0.32, 0.75), (1.0, 10, 3.0, 7.4)],
)
def test_many_releases_cost_little(epsilon, keys, ten, fifty):
    spends = report_then_count(epsilon, 1e-8, keys).spends()
    assert Composition(spends * 10).epsilon(1e-6) < ten
    assert Composition(spends * 50).epsilon(1e-6) < fifty


def test_the_divergence_of_coins_is_that_of_the_table():
    channel = report_then_count(1.0, 1e-4, max_keys=5)
    table, leak = channel.rows.table, channel.reporting_probability([1])[0] * 1.01
    orders = (1.5, 3.0, 12.0)
    p = table.probability(np.arange(table.last))
    found = table.taus(orders, leak)
    for order, tau in zip(orders, found, strict=True):
        far = np.flatnonzero(np.diff(p) > leak * 1.001)
        x, y = (p[far + 1] - leak) / (1 - leak), p[far] / (1 - leak)
        sums = [(u**order * v ** (1 - order) + (1 - u) ** order * (1 - v) ** (1 - order)) for u, v in ((x, y), (y, x))]
        assert tau == pytest.approx(math.log(np.max(sums)) / (order - 1), rel=1e-6)
    assert sorted(found) == found
    rare = table.taus(orders, leak, stop=channel.first + 1)
    slow = table.taus(orders, leak, start=channel.first + 1)
    assert rare == found and slow[-1] < rare[-1]


def test_long_tables_are_told_in_a_moment():
    channel = report_then_count(0.02, 1e-8, max_keys=10)
    assert channel.rows.table.last > 5_000
    begin = time.process_time()
    renyi, leak = channel.spends()
    assert time.process_time() - begin < 2.0
    assert isinstance(renyi, Renyi) and leak == Approximate(0.0, leak.delta) and leak.delta <= 1e-8
    assert Composition(channel.spends() * 50).epsilon(1e-6) < 0.15
