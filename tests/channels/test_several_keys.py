"""Units with several keys: what `report_then_count` promises, recomputed without any formula of the project.

Rows are read as integers from the channel's table, noise is a rounded Gaussian, and a unit is a list of changes of
single keys, (x without it, y with it). Its delta is computed by adding up privacy losses: outcomes of one key with
their loss ln(P/Q), rounded up to a grid; sums of losses by convolution. So every number here is at least the true one.
"""

import itertools
import math

import numpy as np
import pytest
from helpers.shown_keys import outcomes

from dpsieve.channels import report_then_count

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
