"""Sums of sketches with random rounding: the exact delta, by enumeration of all outputs and by measurement."""

import functools
import math
from itertools import product

import numpy as np
import pytest
from helpers.sketch_reference import neighbours, post_processed
from helpers.statistical import assert_follows, binomial_band

from dpsieve.errors import DpsieveError, NotCertified
from dpsieve.noise.known_keys import laplace_tail
from dpsieve.randomness import SystemSource
from dpsieve.sketches import summed_noise as rounded
from dpsieve.sketches.summed_noise import Choice, RoundedSketch

REACH = 40


@functools.cache
def noise(scale):
    x = np.arange(-REACH, REACH + 1)
    return np.exp(-np.abs(x) / scale) * np.tanh(1 / (2 * scale))


@functools.cache
def law(value, choice):
    """The exact distribution of what comes out for a value: 'nothing' first, then every token that is shown."""
    scale, full, least = choice
    out = np.zeros(2 * REACH)
    if value:
        kept = min(1.0, value / full)
        tokens = max(value, full) + np.arange(-REACH, REACH + 1)
        shown = tokens >= least
        out[1 + tokens[shown] - least] = kept * noise(scale)[shown]
    out[0] = 1 - out.sum()
    return out


def divergence(changes, choice, epsilon):
    """The hockey-stick divergence of all that is published, for values that change, and N, which changes by 1."""
    p, q = noise(choice.scale)[1:], noise(choice.scale)[:-1]
    for before, after in changes:
        p, q = (np.multiply.outer(one, law(v, choice)).ravel() for one, v in ((p, before), (q, after)))
        likely = (p > 1e-13) | (q > 1e-13)
        p, q = p[likely], q[likely]
    return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p)))


# The second of each has less noise than the l1 sensitivity asks for: its delta is that of losses that cancel.
MADE = [(1, None), (1, Choice(0.8, 2, 8)), (2, None), (2, Choice(1.4, 3, 16))]


@pytest.mark.parametrize(("k", "choice"), MADE)
def test_no_output_tells_neighbouring_streams_apart(k, choice):
    """Every neighbouring pair of streams of up to 6 items over 3 keys, alone and beside a second stream."""
    epsilon = 2.0
    made = RoundedSketch(epsilon, 0.02, k)
    choice = choice or made.choice
    delta = rounded._delta(epsilon, k, 1, choice)
    value, found = functools.cache(functools.partial(post_processed, k)), set()
    others = [value(other)[0] for length in range(3) for other in product("abc", repeat=length)]
    for stream, less in sorted({*neighbours("abc", 6)}):
        a, b = value(stream)[0], value(less)[0]
        for other in others:
            changes = ((a[key] + other[key], b[key] + other[key]) for key in a | b if a[key] != b[key])
            found.add(tuple(sorted(changes)))
    worst = max(divergence(changes, choice, epsilon) for changes in found)
    assert worst <= delta + 1e-9
    if choice == made.choice:  # the analysis is nearly tight: short streams have small values
        assert 0.85 * delta <= worst and delta <= 0.02


@pytest.mark.parametrize(("k", "choice"), MADE)
def test_no_change_of_values_costs_more(k, choice):
    """One value up by at most k, another one down by 1, or both down: around where rounding stops, and above all."""
    epsilon = 2.0
    choice = choice or RoundedSketch(epsilon, 0.02, k).choice
    values, pairs = [*range(choice.full + k + 2), choice.least - 1, choice.least + 15], []
    for v, up in product(values, range(1, k + 1)):
        pairs += [((v, v + up),)] + [((v, v + up), (w, w - 1)) for w in values if w and k > 1]
    pairs += [tuple((w, w - 1) for w in both) for both in product(values, repeat=k) if min(both)]
    worst = max(divergence(changes, choice, epsilon) for changes in pairs)
    assert 0.99 * (delta := rounded._delta(epsilon, k, 1, choice)) <= worst <= delta + 1e-9


def grouped(p, q):
    """Outcomes of two laws with the same ratio together: their probabilities, and that ratio."""
    some = (p > 0) | (q > 0)
    p, q = p[some], q[some]
    with np.errstate(divide="ignore"):
        ratio, where = np.unique(np.round(np.log(p) - np.log(q), 9), return_inverse=True)
    return np.bincount(where, p, len(ratio)), np.bincount(where, q, len(ratio))


@functools.cache
def row_of(value, choice):
    """The exact law of what comes out for a value, as far as 40 scales: 'nothing' first."""
    tokens = np.arange(choice.least, choice.least + value + int(40 * choice.scale))
    shown = np.exp(-np.abs(tokens - max(value, choice.full)) / choice.scale) * np.tanh(1 / (2 * choice.scale))
    shown *= min(1.0, value / choice.full)
    return np.append(1 - shown.sum(), shown)


@functools.cache
def change_of(before, after, choice):
    rows = [row_of(value, choice) for value in (before, after)]
    longest = max(map(len, rows))
    return grouped(*(np.pad(row, (0, longest - len(row))) for row in rows))


def exact_divergence(changes, choice, epsilon):
    """That of `divergence`, for any number of values: only ratios matter, and few are different."""
    x = np.arange(-int(40 * choice.scale), int(40 * choice.scale) + 1)
    mass = np.exp(-np.abs(x) / choice.scale) * np.tanh(1 / (2 * choice.scale))
    p, q = grouped(np.append(mass, 0), np.append(0, mass))
    for before, after in changes:
        a, b = change_of(before, after, choice)
        p, q = grouped(np.multiply.outer(p, a).ravel(), np.multiply.outer(q, b).ravel())
    return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p)))


@pytest.mark.parametrize(
    ("epsilon", "delta", "k", "reached"),
    [(1.0, 0.05, 3, 0.85), (1.0, 0.01, 4, 0.8), (1.0, 1e-3, 8, 0.85), (1.0, 1e-5, 16, 0.9), (2.0, 1e-5, 24, 0.9)],
)
def test_the_cases_exclude_each_other(epsilon, delta, k, reached):
    """A large change with others to the other side, each small, straddling S, or far above: never more than delta.

    Nor much less, while the sum of all cases is far above it.
    """
    choice = RoundedSketch(epsilon, delta, k).choice
    claimed, (scale, full, least) = rounded._delta(epsilon, k, 1, choice), choice
    far, tau = least + int(20 * scale), float(laplace_tail(np.array([least - full]), scale)[0])
    large = [(0, min(k, full)), (max(0, full - k), full), (far, far + k)]
    large += [(full - i, full + k - i) for i in {1, k // 4, k // 2, k - 1} if 0 < i < min(k, full + 1)]
    few = {0, 1, k // 8, k // 4, k // 2, k - 2, k - 1} & {*range(k)}
    worst = 0.0
    for (low, high), small in product(large, few):
        others = [(full // 2, full // 2 - 1)] * small + [(far, far - 1)] * (k - 1 - small)
        worst = max(worst, exact_divergence([(low, high), *others], choice, epsilon))
    for small in {0, 1, k // 2, k}:
        values = [(full // 2, full // 2 - 1)] * small + [(far, far - 1)] * (k - small)
        worst = max(worst, exact_divergence(values, choice, epsilon))
    assert reached * claimed <= worst <= claimed and 0.85 * delta <= claimed <= delta
    together = rounded._losses(epsilon, k, k, scale) + k / full * tau
    assert together > 1.2 * delta


@pytest.mark.parametrize("beyond", [0, 5])
@pytest.mark.parametrize("k", [1, 7, 64, 1000])
def test_blocks_bound_every_case(k, beyond):
    """The maxima over blocks are no less than those over all r and i, and hardly more; also where H is the largest."""
    epsilon, (scale, full, least) = 1.0, RoundedSketch(1.0, 1e-6, k).choice
    least += beyond * int(scale)
    tau = float(laplace_tail(np.array([least - full]), scale)[0])
    every = [rounded._losses(epsilon, k, k - r, scale) + r / full * tau for r in range(k)]
    for i in range(min(k, full) + 1):
        shown = float(laplace_tail(np.array([least - full - k + i]), scale)[0])
        every.append(rounded._losses(epsilon, k - i, k, scale) + i / full * shown)
    found = rounded._largest_case(epsilon, k, scale, full, tau)
    exact = max(*every, k / full * tau)
    assert exact <= found * (1 + 1e-12) and found <= 1.05 * exact


@pytest.mark.parametrize(("k", "scale"), [(1, 1.2), (2, 2.5), (3, 3.1), (3, 4.0)])
def test_the_losses_of_the_noise_by_enumeration(k, scale):
    """H(k, k): one noise moved by k and k noises moved by 1, against the sum over all outcomes."""
    x = np.arange(-150, 151)
    mass = np.exp(-np.abs(x) / scale) * np.tanh(1 / (2 * scale))
    p, loss = mass, (np.abs(x - k) - np.abs(x)) / scale
    for _ in range(k):
        p = np.multiply.outer(p, mass).ravel()
        loss = np.add.outer(loss, (np.abs(x - 1) - np.abs(x)) / scale).ravel()
        values, where = np.unique(np.round(loss, 9), return_inverse=True)
        p, loss = np.bincount(where, p), values
    for epsilon in (0.3, 1.0, 1.5):
        exact = p @ np.maximum(-np.expm1(epsilon - loss), 0)
        assert rounded._losses(epsilon, k, k, scale) == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize(
    ("counters", "plain", "ours"),
    [(16, 41.2, 34.01), (64, 43.2, 28.39), (256, 46.3, 23.71), (1024, 49.3, 21.2), (65_536, 57.6, 19.02)],
)
def test_the_threshold_does_not_grow_with_the_counters(counters, plain, ours):
    """At (1, 1e-8), where the formula of the thesis gives 40.8 and a sum without rounding needs `plain`."""
    made = RoundedSketch(1.0, 1e-8, counters, 100)
    assert made.threshold < ours < min(plain, 4 + 2 * math.log(1e8))
    assert 0.9e-8 < made.certify().worst <= 1e-8


def test_more_budget_means_a_lower_threshold():
    grid = [[RoundedSketch(e, d, 50).least for d in (1e-12, 1e-8, 1e-4)] for e in (0.05, 0.5, 1.0, 3.0, 20.0)]
    assert all(row == sorted(row, reverse=True) for row in (*grid, *map(list, zip(*grid, strict=True))))
    for items, epsilon in ((3, 1.0), (7, 0.3)):
        several = RoundedSketch(epsilon, 1e-6, 50, items_per_unit=items)
        assert (
            several.certify().worst <= 1e-6 and several.threshold > items * RoundedSketch(epsilon, 1e-6, 50).threshold
        )


@pytest.mark.parametrize("k", [1, 5])
def test_the_rate_of_a_key_of_one_item(k):
    """The tightest point, measured: a key that occurs once, in an otherwise empty stream, has the value k."""
    delta, runs, source = 0.05, 4000, SystemSource()
    made = RoundedSketch(1.0, delta, k)
    assert post_processed(k, ["tea"])[0] == {"tea": k}
    shown = np.count_nonzero(made.draw(np.full(runs, k), 1, source).tokens)
    exact = min(1.0, k / made.choice.full) * made._tail(made.least - max(k, made.choice.full))
    low, high = binomial_band(runs, exact)
    assert low <= shown <= high and delta / 4 < exact <= delta


@pytest.mark.parametrize("value", [1, 3, 9, 10, 15])
def test_rounding_is_exact(value):
    """Without noise or a threshold: 10 with probability value/10, and what is 10 or more stays."""
    made = RoundedSketch(1.0, 0.05, 4)
    vars(made)["choice"] = Choice(1e-3, 10, 1)
    tokens = made.draw(np.full(20_000, value), 0, SystemSource()).tokens
    if value >= 10:
        assert (tokens == value).all()
    else:
        assert_follows(tokens, [0, 10], [1 - value / 10, value / 10])


def test_values_and_the_number_of_items_are_told_with_noise():
    made, told, source = RoundedSketch(1.0, 0.05, 2), [], SystemSource()
    for _ in range(4000):
        outcome = made.draw(np.array([5000]), 700, source)
        told.append((outcome.drawn["lost"] - 700, int(outcome.tokens[0]) - 5000))
    x = np.arange(-30, 31)
    for noises in zip(*told, strict=True):
        assert_follows(noises, x, np.exp(-np.abs(x) / made.scale) * np.tanh(1 / (2 * made.scale)))


def test_all_intervals_hold_together():
    """Values below and above where rounding stops; a true frequency is between v and v + N/(k+1)."""
    made, k, items = RoundedSketch(1.0, 0.3, 50), 50, 4000
    values = np.concatenate([np.arange(1, 40), np.arange(40, 900, 17)])
    missed, runs, source = 0, 300, SystemSource()
    assert made._margins > (0, 0)  # computed once for all draws
    for run in range(runs):
        outcome = made.draw(values, items, source)
        shown = np.flatnonzero(outcome.tokens)
        reading = made.reader(outcome.drawn).read(outcome.tokens[shown])
        truth = np.ceil(values[shown] / (k + 1)) if run % 2 else np.floor((values[shown] + items) / (k + 1))
        missed += bool(((truth < reading.low) | (truth > reading.high)).any())
    assert missed <= binomial_band(runs, 0.05)[1]


def test_what_breaks_the_promise_is_not_certified():
    made = RoundedSketch(1.0, 1e-6, 30, 4, items_per_unit=2)
    for wrong in ({"least": made.least - 200}, {"scale": made.scale * 0.9}, {"least": made.choice.full + 30}):
        other = RoundedSketch(1.0, 1e-6, 30, 4, items_per_unit=2)
        vars(other)["choice"] = made.choice._replace(**wrong)
        with pytest.raises(NotCertified):
            other.certify()


def test_noise_for_less_than_the_large_change_is_not_certified():
    """Below b = k/epsilon the numbers beside the large one may tell streams apart on their own: no case is left out."""
    k, epsilon = 20, 1.0
    for scale, certified in ((0.999 * k / epsilon, False), (1.999 * k / epsilon, True)):
        choice = Choice(scale, round(scale), 60 * k)
        assert (rounded._delta(epsilon, k, 1, choice) < 1) == certified
    large, others = (0, k), [(60 * k, 60 * k - 1)] * (k - 1)
    narrow = Choice(0.9 * k, 18, 60 * k)
    assert exact_divergence(others, narrow, epsilon) > 0 and exact_divergence([large], narrow, epsilon) < 1e-15


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: RoundedSketch(1.0, 0.0, 10), "delta"),
        (lambda: RoundedSketch(0.0, 1e-6, 10), "epsilon"),
        (lambda: RoundedSketch(1.0, 1e-6, 0), "counters"),
        (lambda: RoundedSketch(1.0, 1e-6, 10, 0), "sources"),
        (lambda: RoundedSketch(0.001, 1e-6, 2**20), "noise"),
    ],
)
def test_mistakes(wrong, named):
    with pytest.raises(DpsieveError, match=named):
        wrong()
