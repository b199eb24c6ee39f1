"""Noise of which all numbers share a part: the algebra, the grid, all outputs of small sketches, and the thresholds."""

import math
import time
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from helpers.statistical import binomial_band
from scipy import stats
from scipy.special import ndtr

import dpsieve as ds
from dpsieve.accounting.curves import gaussian_curve, gaussian_delta
from dpsieve.randomness import SystemSource
from dpsieve.sketches.one_sided_noise import OneSidedSketch, SharedNoise, blocks, shared_noise


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0, 3.0, None])
@pytest.mark.parametrize("d", [2, 3, 4, 7, 9])
def test_no_move_in_one_direction_is_more_visible_than_mu(d, share):
    """Every vector of zeros and ones, by the inverse of the covariance; also where only some numbers are there."""
    b = 2.5
    a = b / math.sqrt(d) if share is None else share * b
    noise = SharedNoise(d - 1, math.sqrt(a), math.sqrt(b), 0, 100)
    for some in range(1, d + 1):
        inverse = np.linalg.inv(b * np.eye(some) + a)
        lengths = [move @ inverse @ move for move in np.array(list(product([0, 1], repeat=some)))]
        assert math.sqrt(max(lengths)) <= noise.mu * (1 + 1e-12)
    if share is None:
        assert math.sqrt(max(lengths)) >= 0.98 * noise.mu  # whose top may be between two whole numbers
        assert noise.deviation == pytest.approx((math.sqrt(d) + 1) / (2 * noise.mu))


@pytest.mark.parametrize("narrow", [0.3, 0.4, 0.6])  # steps: where the bound is large enough to be seen
@pytest.mark.parametrize("d", [2, 3, 6])
def test_with_a_shared_noise_on_the_grid_the_density_is_nearly_the_same(d, narrow):
    """The sum over all steps against the Gaussian density, at random places and at those where it is lowest."""
    b = narrow**2 * (d + math.sqrt(d))
    a = b / math.sqrt(d)
    noise, generator = SharedNoise(d - 1, math.sqrt(a), math.sqrt(b), 0, 100), np.random.default_rng(5)
    steps = np.arange(-200, 201)
    weights = stats.norm.pdf(steps, scale=math.sqrt(a))
    places = np.concatenate([generator.normal(size=(50, d)) * noise.deviation, [np.full(d, 0.5 + 0.5 / math.sqrt(d))]])
    exact = stats.multivariate_normal(np.zeros(d), b * np.eye(d) + a).pdf(places)
    on_steps = stats.norm.pdf(places[:, :, None], steps, math.sqrt(b)).prod(axis=1) @ (weights / weights.sum())
    loss = float(noise._grid_loss)
    assert (on_steps >= (1 - loss) * exact).all() and (on_steps / exact).min() < 1 - loss / 8


SPREAD = 5.5  # deviations; what is beyond has probability 4e-8


def law(noise, counters, lost):
    """Return the exact probabilities of all outputs: a token or nothing for each counter, and the noisy loss."""
    unit, wide = 1 << noise.digits, math.ceil(SPREAD * noise.deviation * 2**noise.digits)
    reach = math.ceil(SPREAD * noise.shared * unit)
    steps = np.arange(-reach, reach + 1)
    weights = np.exp(-((steps / (noise.shared * unit)) ** 2) / 2) if reach else np.ones(1)

    def given_shared(start, at):
        """What one number becomes: a row for each shared noise."""
        z = at - start * unit - steps[:, None]
        return ndtr((z + 0.5) / noise.own / unit) - ndtr((z - 0.5) / noise.own / unit)

    joint = (weights / weights.sum())[:, None] * given_shared(-lost, np.arange(-unit - wide, 2 * unit + wide))
    for place, counter in enumerate(counters):
        tokens = np.arange(noise.least, noise.least + 2 * wide + 2 * unit)
        shown = given_shared(counter, tokens) if counter else np.zeros((len(steps), len(tokens)))
        one = np.column_stack([1 - shown.sum(axis=1), shown])
        last = place == len(counters) - 1
        joint = joint.T @ one if last else (joint[:, :, None] * one[:, None, :]).reshape(len(steps), -1)
    return joint.ravel()


def neighbours(noise):
    """Counters absent, at the threshold or far above it, and the same moved in one direction, with the loss."""
    far, near = math.ceil(noise.threshold + SPREAD * noise.deviation), math.floor(noise.threshold)
    for below in [(0,), (near,), (far,)] if noise.counters == 1 else [(0, 0), (0, far), (far, far)]:
        for move in product([0, 1], repeat=noise.counters + 1):
            *above, kept = np.add((*below, 0), move)
            yield (below, 0), (tuple(above), -kept)


BUDGETS = [(1, 4.0, 1e-3), (1, 0.5, 1e-3), (1, 1.0, 0.1), (2, 2.0, 1e-2)]


@pytest.mark.parametrize(("k", "epsilon", "delta"), BUDGETS)
def test_no_output_tells_neighbours_apart(k, epsilon, delta):
    """All outputs, in both directions, at the epsilon of the promise, and at others by the curves a ledger charges."""
    noise, found = shared_noise(epsilon, delta, k), []
    without = cache(lambda state: law(noise, *state))
    for below, above in neighbours(noise):
        p, q = law(noise, *above), without(below)
        for e in (0.0, 2 * epsilon, epsilon):
            apart = max(np.maximum(one - math.exp(e) * other, 0).sum() for one, other in ((p, q), (q, p)))
            assert apart <= noise.leak + (1 - noise.leak) * gaussian_delta(1.0, e, noise.mu) + 1e-6
        found.append(apart)
    assert 0.5 * delta <= max(found) <= noise.delta(epsilon, delta) + 1e-6 <= delta + 1e-6


@pytest.mark.parametrize("k", [1, 5, 16, 17, 33, 1000, 2**20])
def test_blocks_hold_every_number_of_odd_keys_once(k):
    first, last = blocks(k)
    assert first[0] == last[0] == 0 and last[-1] == k and (first[1:] == last[:-1] + 1).all() and (first <= last).all()


@pytest.mark.parametrize("lower", [0.0, 0.1])  # with a lower threshold keys are what is seen, else the noise
@pytest.mark.parametrize("k", [3, 40])
def test_the_proof_agrees_with_plain_floats_for_every_number_of_odd_keys(k, lower):
    """Each j alone, written down anew; blocks may add a little."""
    epsilon, delta = 1.0, 1e-6
    noise = shared_noise(epsilon, delta, k)
    noise = replace(noise, least=round(noise.least * (1 - lower)))
    a, b, worst = noise.shared**2, noise.own**2, 0.0
    for j in range(k + 1):
        d = k + 1 - j
        mu = np.array([math.sqrt(max((s - a * s * s / (b + a * d)) / b for s in np.linspace(0, d, 2001)))])
        shown = -math.expm1(j * stats.norm.logcdf((noise.threshold - noise.step / 2 - 1) / noise.deviation))
        worst = max(worst, shown + gaussian_curve(np.array([epsilon]), mu)[0])
    assert worst * (1 - 1e-6) <= noise.delta(epsilon, delta) <= worst * 1.05


def test_thresholds_are_nearly_half_of_those_of_independent_noise():
    for (epsilon, delta), k in product([(1.0, 1e-8), (0.1, 1e-6), (8.0, 1e-12)], [2, 30, 1000]):
        made, independent = shared_noise(epsilon, delta, k), ds.channels.gaussian(epsilon, delta, k + 1)
        assert made.threshold < independent.threshold and made.deviation < independent.sigma
        assert made.deviation / independent.sigma == pytest.approx((1 + 1 / math.sqrt(k + 1)) / 2, rel=0.02)
    assert shared_noise(1.0, 1e-8, 1000).threshold / ds.channels.gaussian(1.0, 1e-8, 1001).threshold < 0.52


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-8), (0.001, 1e-20), (50.0, 1e-3), (1.0, 0.2), (0.001, 0.99)])
def test_any_number_of_counters_takes_less_than_a_second(epsilon, delta):
    for k in (10_000, 2**24):
        shared_noise.cache_clear()
        start = time.process_time()
        mechanism = OneSidedSketch(epsilon, delta, k)
        assert 0 < mechanism.certify().worst <= delta
        assert time.process_time() - start < 1.0
        assert mechanism.spends()


@pytest.mark.parametrize(("epsilon", "delta"), [(0.2, 1e-6), (4.0, 1e-6)])
def test_what_is_drawn_has_the_shared_part_and_the_own_part(epsilon, delta):
    """Counters and the negated loss move together: in differences the shared part is gone, in each number it is not."""
    mechanism, runs, source = OneSidedSketch(epsilon, delta, 3), 4000, SystemSource()
    noise, counters = mechanism.noise, np.array([5000, 9000])
    drawn = []
    for _ in range(runs):
        outcome = mechanism.draw(counters, 700, source)
        drawn.append((*(outcome.tokens / mechanism.resolution - counters), outcome.drawn["lost"] - 700))
    first, second, loss = np.array(drawn).T
    for noisy, deviation in (
        (first, noise.deviation),
        (loss, noise.deviation),
        (first + second, math.hypot(2 * noise.shared, math.sqrt(2) * noise.own)),
        (first - second, math.sqrt(2) * noise.own),
        (first + loss, math.sqrt(2) * noise.own),
    ):
        far = int((np.abs(noisy) > deviation).sum())
        least, most = (2 * ndtr(-1 + sign * 1.5 / deviation) for sign in (-1, 1))  # roundings to steps, and of the loss
        assert binomial_band(runs, least)[0] <= far <= binomial_band(runs, most)[1]


def test_nothing_below_the_threshold_is_told():
    mechanism = OneSidedSketch(4.0, 1e-6, 1000)
    tokens = mechanism.draw(np.full(1000, math.ceil(mechanism.threshold)), 0, SystemSource()).tokens
    shown = tokens[tokens > 0]  # about half of them, of which some are at the threshold
    assert 100 < len(shown) < 900 and shown.min() == mechanism.least and mechanism.possible(shown)


def test_low_ends_hold_given_that_a_key_was_reported():
    """A counter that is rarely reported: when it is, noise has raised it, and the interval knows that."""
    mechanism, generator = OneSidedSketch(1.0, 1e-3, 8), np.random.default_rng(3)
    noise = mechanism.noise
    count = math.floor(noise.threshold - 2 * noise.deviation)
    noisy = np.rint(generator.normal(count, noise.deviation, 400_000) * 2**noise.digits).astype(int)
    shown = noisy[noisy >= noise.least]
    missed = int((mechanism.reader({"lost": 0}).read(shown).low > count).sum())
    assert 0.015 * len(shown) < missed <= binomial_band(len(shown), 0.025)[1]
    # What an interval without that knowledge misses.
    plain = int((shown / 2**noise.digits - 1.96 * noise.deviation > count).sum())
    assert plain > 10 * missed
