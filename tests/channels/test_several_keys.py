"""Units with several keys: what `report_then_count` promises, recomputed without any formula of the project.

Rows are read as integers from the channel's table, noise is a rounded Gaussian, and a unit is a list of changes of
single keys, (x without it, y with it). Its delta is computed by adding up privacy losses: outcomes of one key with
their loss ln(P/Q), rounded up to a grid; sums of losses by convolution. So every number here is at least the true one.
"""

import itertools
import math
import time

import numpy as np
import pytest
from scipy import optimize
from scipy.special import log_ndtr
from shown_keys import outcomes

from dpsieve.channels import report_then_count
from dpsieve.channels.reporting.several_keys import Coins, unit_delta

GRID = 2.0**-13  # of losses
PLACES = 1 << 17  # so losses from -8 to 8 are told apart; all these budgets have far smaller ones


def losses(p, q):
    """The spectrum of the losses of P over Q, rounded up to the grid, and the probability of an infinite one."""
    some = (p > 0) & (q > 0)
    loss = np.ceil(np.log(p[some] / q[some]) / GRID)
    finite = np.abs(loss) < PLACES // 2
    place = np.where(loss < 0, np.maximum(loss, -PLACES // 2), loss).astype(np.int64)[finite | (loss < 0)]
    mass = np.bincount(place % PLACES, p[some][finite | (loss < 0)], PLACES)
    return np.fft.rfft(mass), float(p[~some].sum() + p[some][~finite & (loss > 0)].sum())


def composed(parts, epsilon):
    """Delta of several keys: `parts` are (spectrum, infinite, how many)."""
    whole, finite = 1.0, 1.0
    for spectrum, infinite, count in parts:
        if count:
            whole, finite = whole * spectrum**count, finite * (1 - infinite) ** count
    mass = np.fft.irfft(whole, PLACES)[: PLACES // 2]  # of losses from zero on
    loss = np.arange(PLACES // 2) * GRID
    above = loss > epsilon
    return 1 - finite + float((mass[above] * -np.expm1(epsilon - loss[above])).sum())


def changes(channel, count):
    """Pairs of frequencies over the whole table: new keys, rare ones, around `first`, and common ones."""
    rows, start, last = channel.max_rows, channel.first * channel.max_rows, channel.rows.table.last * channel.max_rows
    steps = {1, rows}
    places = {0, 1, start - rows, start - 1, start, start + 1, last - 1, last, last + 5}
    places |= set(np.linspace(0, last, count).astype(int).tolist())
    return [(x, x + s) for x in sorted(places) if x >= 0 for s in sorted(steps)]


def worst(channel, count, mixes, seed=1):
    """Return the largest delta of units with the same change of all keys, and of units of random mixed ones."""
    random, found = np.random.default_rng(seed), []
    for way in (1, -1):
        spectra = [losses(*outcomes(channel, *pair)[::way]) for pair in changes(channel, count)]
        alike = [composed([(*one, channel.max_keys)], channel.epsilon) for one in spectra]
        found += alike
        best = np.argsort(alike)[-4:].tolist()
        for _ in range(mixes):
            chosen = [*random.choice(best, 2), *random.integers(len(spectra), size=2)]
            often = random.multinomial(channel.max_keys, random.dirichlet(np.full(4, 0.5)))
            found.append(composed([(*spectra[k], n) for k, n in zip(chosen, often, strict=True)], channel.epsilon))
    return max(found)


@pytest.mark.parametrize(
    ("budget", "keys", "rows", "goal"),
    [
        ((1.0, 1e-8), 2, 1, "counts"),
        ((1.0, 1e-5), 3, 1, "keys"),
        ((1.0, 1e-8), 10, 1, "keys"),
        ((1.0, 1e-5), 10, 1, "counts"),
        ((0.3, 1e-6), 30, 1, "counts"),
        ((3.0, 1e-6), 100, 1, "keys"),
        ((1.0, 1e-5), 100, 1, "counts"),
        ((1.0, 1e-4), 3, 4, "counts"),
        ((2.0, 1e-6), 10, 3, "keys"),
    ],
)
def test_losses_of_all_keys_add_up_to_what_is_promised(budget, keys, rows, goal):
    """Alike and mixed, new, rare and common keys, both ways: below the promise, and not far below."""
    channel = report_then_count(*budget, keys, rows, goal=goal)
    found = worst(channel, count=9, mixes=6)
    assert channel.delta_ / 30 < found <= channel.certify().worst <= channel.delta_


@pytest.mark.parametrize(("delta", "rows", "goal"), [(0.05, 1, "counts"), (0.05, 1, "keys"), (0.02, 2, "counts")])
def test_two_keys_by_enumeration(delta, rows, goal):
    """All changes of two keys, all outcomes, both ways: never above delta, which is nearly reached."""
    channel = report_then_count(1.0, delta, 2, rows, goal=goal)
    last, slope, found = channel.rows.table.last * rows + 1, math.exp(1.0), 0.0
    pairs = [outcomes(channel, x, x + s) for x in range(last + 1) for s in range(1, rows + 1)]
    for one, other in itertools.combinations_with_replacement(pairs, 2):
        without, with_it = (np.outer(a, b) for a, b in zip(one, other, strict=True))
        for p, q in ((with_it, without), (without, with_it)):
            found = max(found, float(np.maximum(p - slope * q, 0).sum()))
    assert 0.3 * delta < found <= channel.certify().worst <= delta


def curve(mu, e):
    """ln of the exact delta of a Gaussian pair of distance mu at e."""
    first = log_ndtr(mu / 2 - e / mu)
    return first + np.log(-np.expm1(np.minimum(e + log_ndtr(-mu / 2 - e / mu) - first, -1e-300)))


def brute_force(keys, epsilon, coins, distance):
    """The bound as the module states it, over every number of rare keys, each peak found by search."""
    a, found = coins.order, []
    for rare in range(keys + 1):
        mu, tossed = math.sqrt(keys - rare) * distance, keys if coins.slow else rare
        cost = (a - 1) * (rare * coins.step + (keys - rare) * coins.slow - epsilon)
        if not tossed:
            found.append(math.exp(curve(mu, epsilon)))
        elif not mu:
            found.append(keys * coins.leak + math.exp(cost + (a - 1) * math.log1p(-1 / a) - math.log(a)))
        else:
            grid = np.linspace(-3 * mu - 3 / a, a * mu**2 + 3 * mu, 2001)
            top = grid[int(np.argmax(curve(mu, grid) + (a - 1) * grid))]
            ends, close = (top - 2 * (grid[1] - grid[0]), top + 2 * (grid[1] - grid[0])), {"xatol": 1e-9}
            least = optimize.minimize_scalar(lambda e, mu=mu: -curve(mu, e) - (a - 1) * e, bounds=ends, options=close)
            found.append(tossed * coins.leak + math.exp(min(1.0, cost - least.fun)))
    return max(found)


@pytest.mark.parametrize("slow", [0.0, 0.05, 0.6])
@pytest.mark.parametrize("keys", [1, 2, 7, 20])
def test_the_bound_against_brute_force(keys, slow):
    """Its peaks are peaks, and the ends stand for all numbers of rare keys."""
    for order, epsilon, share, mu in itertools.product([1.6, 12.0, 60.0], [0.5, 2.0], [0.2, 0.9], [0.1, 0.8]):
        step = share * epsilon / keys
        coins, distance = Coins(order, step, step * slow, 1e-7), mu / math.sqrt(keys)
        expected = min(1.0, brute_force(keys, epsilon, coins, distance))
        assert unit_delta(keys, epsilon, coins, distance) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("order", [1.5, 20.0, 1e4])
def test_coins_alone_are_the_known_conversion(order):
    """(a, t)-Renyi privacy is (e^((a-1)(t-epsilon)) / (a-1) (1-1/a)^a)-private at epsilon (Canonne et al. 2020)."""
    known = math.exp((order - 1) * (6 * 0.1 - 0.601)) / (order - 1) * (1 - 1 / order) ** order
    assert unit_delta(6, 0.601, Coins(order, 0.1, 0.0, 1e-20), 1e-9) == pytest.approx(known, rel=1e-9)


def test_noise_alone_is_the_gaussian_mechanism():
    """Coins of nearly no cost, of the order at which one peak meets the curve, add nothing to nine keys of ten."""
    mu, epsilon = 0.3, 1.0
    slope = (curve(mu, epsilon + 1e-5) - curve(mu, epsilon - 1e-5)) / 2e-5
    exact = math.exp(curve(mu, epsilon))
    found = unit_delta(10, epsilon, Coins(1 - slope, 1e-12, 0.0, 1e-25), mu / math.sqrt(10))
    assert found == pytest.approx(exact, rel=1e-9)
    assert unit_delta(10, epsilon, Coins(2.0, 1e-12, 0.0, 1e-25), mu / math.sqrt(10)) > exact


def test_everything_that_grows_costs_more():
    usual = {"keys": 10, "epsilon": 1.0, "order": 20.0, "step": 0.04, "slow": 0.004, "leak": 1e-10, "distance": 0.06}

    def at(**changed):
        numbers = {**usual, **changed}
        coins = Coins(*(numbers[name] for name in Coins._fields))
        return unit_delta(numbers["keys"], numbers["epsilon"], coins, numbers["distance"])

    for more in ({"keys": 11}, {"step": 0.041}, {"leak": 1.01e-10}, {"epsilon": 0.99}):
        assert at(**more) > at()
    common = {"slow": 0.03, "distance": 0.09}  # so that common keys cost most
    for more in ({"keys": 11}, {"slow": 0.031}, {"distance": 0.091}, {"leak": 1.01e-10}, {"epsilon": 0.99}):
        assert at(**{**common, **more}) > at(**common) > at()


def test_extreme_numbers_come_soon():
    """Any order, distance and number of keys: a bound within (0, 1], and no search without an end."""
    orders, distances = [1 + 2**-52, 1.5, 30.0, 1e5, 1e9], [1e-12, 1e-6, 1e-2, 1.0, 1e7]
    start = time.process_time()
    for keys, order, distance, slow in itertools.product([1, 10_000], orders, distances, [0.0, 1e-9]):
        assert 0 < unit_delta(keys, 1.0, Coins(order, 1e-8, slow, 1e-25), distance) <= 1
    assert time.process_time() - start < 20
