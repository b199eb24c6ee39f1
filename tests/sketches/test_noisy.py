"""Private Misra-Gries: the exact delta, by enumeration of all outputs and by measurement."""

import math

import numpy as np
import pytest
from helpers.sketch_reference import misra_gries, neighbours
from helpers.statistical import assert_follows, binomial_band

from dpsieve.errors import DpsieveError, NotCertified
from dpsieve.noise.known_keys import laplace_tail
from dpsieve.papers.thesis.standard_sketches import StandardSketch
from dpsieve.randomness import SystemSource
from dpsieve.sketches.laplace_noise import NoisySketch, any_above, find_threshold

REACH = 14


def outputs(held, lowered, made, keys):
    """The exact distribution of what is published: noisy counters that reach the threshold, and the noisy gamma."""
    x = np.arange(-REACH, REACH + 1)
    mass = np.exp(-np.abs(x) / made.scale) * np.tanh(1 / (2 * made.scale))
    grid = np.meshgrid(*[x] * (len(held) + 1), indexing="ij")
    weight = np.prod(np.meshgrid(*[mass] * (len(held) + 1), indexing="ij"), axis=0)
    code = lowered - grid[-1] + 100
    for key in keys:
        noisy = np.zeros_like(code)
        if key in held:
            noisy = held[key] + grid[list(held).index(key)] + grid[-1]
            noisy = np.where(noisy >= made.threshold, noisy, 0)
        code = code * 200 + noisy
    values, where = np.unique(code.ravel(), return_inverse=True)
    return dict(zip(values.tolist(), np.bincount(where, weight.ravel()), strict=True))


def divergence(p, q, epsilon):
    return sum(max(0.0, mass - math.exp(epsilon) * q.get(code, 0.0)) for code, mass in p.items())


@pytest.mark.parametrize("standard", [False, True])
def test_no_output_tells_neighbouring_streams_apart(standard):
    """Every neighbouring pair of streams of up to 4 items over 4 keys, 2 counters; every output, in both directions."""
    epsilon, universe = 1.5, "abcd"
    made = (StandardSketch if standard else NoisySketch)(epsilon, 0.03, 2)
    delta = made.certify().worst
    states, pairs = {}, set()
    for stream, less in neighbours(universe, 4):
        pair = []
        for one in (stream, less):
            held, lowered = misra_gries(2, one)
            if standard:
                held = {key: c for key, c in held.items() if c}
            name = (tuple(sorted(held.items())), lowered)
            states.setdefault(name, (held, lowered))
            pair.append(name)
        pairs.add(tuple(pair))
    laws = {name: outputs(held, lowered, made, universe) for name, (held, lowered) in states.items()}
    worst = max(divergence(laws[a], laws[b], epsilon) for pair in pairs for a, b in (pair, pair[::-1]))
    assert worst <= delta + 1e-6
    assert worst >= 0.7 * delta  # the analysis is nearly tight


def paper(epsilon, delta):
    """The threshold of the thesis for geometric noise."""
    return 1 + 2 * math.ceil(math.log(6 * math.exp(epsilon) / ((math.exp(epsilon) + 1) * delta)) / epsilon)


@pytest.mark.parametrize(
    ("epsilon", "delta", "printed", "union", "ours"),
    [
        (1.0, 1e-8, 41, 23, 22),
        (1.0, 1e-6, 33, 19, 17),
        (0.5, 1e-8, 81, 45, 43),
        (0.1, 1e-6, 301, 169, 161),
        (2.0, 1e-9, 25, 14, 13),
    ],
)
def test_thresholds(epsilon, delta, printed, union, ours):
    """The thesis's, the exact union over both sketches, and ours, which needs one sketch alone."""
    assert printed <= paper(epsilon, delta) <= printed + 20  # geometric noise needs a little more than Laplace's
    assert find_threshold(lambda t: 2 * any_above(t, {1: 2}, 1 / epsilon), delta) == union
    assert NoisySketch(epsilon, delta, 1024).threshold == ours


@pytest.mark.parametrize("scale", [300.0, 1000.0, 5000.0])
def test_wide_noise_is_rounded_up_by_little(scale):
    """Cells of Y against the sum over every integer."""
    t = int(20 * scale)
    y = np.arange(-70 * int(scale), 70 * int(scale))
    mass = np.exp(-np.abs(y) / scale) * math.tanh(1 / (2 * scale))
    exact = mass @ (1 - (1 - laplace_tail(t - 1 - y, scale)) * (1 - laplace_tail(t - y, scale)))
    assert exact <= any_above(t, {1: 1, 0: 1}, scale) <= 1.006 * exact


def test_the_rate_of_a_key_that_only_one_sketch_holds():
    """The tightest point, measured: counters 1 and 0, which are odd in state S6, among common keys."""
    delta, runs = 0.02, 6000
    made = NoisySketch(1.0, delta, 3)
    shown, source = 0, SystemSource()
    for _ in range(runs):
        shown += bool(made.draw(np.array([1, 0, 40]), 3, source).tokens[:2].any())
    low, high = binomial_band(runs, any_above(made.threshold, {1: 1, 0: 1}, 1.0))
    assert low <= shown <= high
    assert made.certify().worst <= delta


def test_the_loss_is_told_with_the_noise_that_all_counters_share():
    """Published are gamma - Y and c + X + Y: so the draws tell Y and X, which are discrete Laplace each."""
    made, shared, own, source = NoisySketch(1.0, 1e-6, 3), [], [], SystemSource()
    for _ in range(4000):
        outcome = made.draw(np.array([1000]), 70, source)
        shared.append(70 - outcome.drawn["lost"])
        own.append(int(outcome.tokens[0]) - 1000 - shared[-1])
    x = np.arange(-8, 9)
    for noise in (shared, own):
        assert_follows(noise, x, np.exp(-np.abs(x) / made.scale) * np.tanh(1 / (2 * made.scale)))


def test_all_intervals_hold_together():
    """True frequencies between c and c + gamma: all intervals of a release hold them, but for 1 release in 20."""
    made, counters, gamma = NoisySketch(1.0, 1e-6, 50), np.arange(60, 110), 25
    missed, runs, source = 0, 500, SystemSource()
    for run in range(runs):
        outcome = made.draw(counters, gamma, source)
        shown = np.flatnonzero(outcome.tokens)
        reading = made.reader(outcome.drawn).read(outcome.tokens[shown])
        truth = counters[shown] + (gamma if run % 2 else 0)
        missed += bool(((truth < reading.low) | (truth > reading.high)).any())
    assert missed <= binomial_band(runs, 0.05)[1]


def test_a_unit_of_several_items_is_paid_for_by_its_steps():
    one, three = NoisySketch(0.5, 1e-8, 100), NoisySketch(1.5, 1e-6, 100, items_per_unit=3)
    assert three.scale == one.scale
    steps = any_above(three.threshold, {1: 1, 0: 1}, one.scale) * sum(math.exp(0.5 * j) for j in range(3))
    assert three.certify().worst == pytest.approx(steps, rel=1e-9) and steps <= 1e-6


def test_a_lower_threshold_is_not_certified():
    made = NoisySketch(1.0, 1e-6, 100, items_per_unit=3)
    vars(made)["threshold"] = made.threshold - 1
    with pytest.raises(NotCertified):
        made.certify()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: NoisySketch(1.0, 0.0, 10), "universe"),
        (lambda: NoisySketch(0.0, 1e-6, 10), "epsilon"),
        (lambda: NoisySketch(1.0, 1e-300, 10), "delta"),
        (lambda: NoisySketch(1.0, 1e-6, 0), "counters"),
        (lambda: NoisySketch(1.0, 1e-6, 10, items_per_unit=0), "items_per_unit"),
    ],
)
def test_mistakes(wrong, named):
    with pytest.raises(DpsieveError, match=named):
        wrong()
