"""The sampled stability histogram is the one of the papers: no reporting is lost, and none of its privacy either."""

import math
import time

import mpmath as mp
import numpy as np
import pytest
from helpers.schemes_in_use import FunctionScheme

from dpsieve.channels import optimal
from dpsieve.errors import InvalidValue
from dpsieve.papers.weighted_sampling import sampled_stability
from dpsieve.papers.weighted_sampling.sampled_stability import ThinnedLaw
from dpsieve.privacy.mechanism import from_json
from dpsieve.sampling import custom, ppswor, priority

STEPS = np.concatenate([np.full(6, 0.1), np.full(9, 0.35), [0.9]])
SCHEMES = {
    "ppswor": (ppswor(0.05), lambda x: -np.expm1(-0.05 * x), []),
    "rare": (ppswor(1e-6), lambda x: -np.expm1(-1e-6 * x), []),
    "priority": (priority(0.03), lambda x: np.minimum(1, 0.03 * x), [1 / 0.03]),
    "sqrt": (ppswor(0.1, power=0.5), lambda x: -np.expm1(-0.1 * np.sqrt(x)), []),
    "tenth power": (priority(1e-13, power=10.0), lambda x: np.minimum(1, 1e-13 * x**10), [10**1.3]),
    "steps": (custom(STEPS), lambda x: STEPS[np.minimum(x.astype(int), 16) - 1], range(1, 17)),
    "function": (FunctionScheme(lambda x: x / (x + 40)), lambda x: x / (x + 40), []),
}
BUDGETS = [(1.0, 1e-8), (0.1, 1e-3), (5.0, 1e-4), (30.0, 0.01)]


def threshold(epsilon, delta):
    return 1 + mp.log(1 / (2 * mp.mpf(delta))) / epsilon


def integral(i, epsilon, start, q, bends):
    """Return the integral over x >= T of q(x) epsilon / 2 e^(-epsilon |x - i|), between all points where it bends.

    Each piece is smooth and at most 8 / epsilon long: forty points of Gauss and Legendre leave no error to be seen.
    """
    last = max(i, start) + 64 / epsilon
    ends = [middle + far / epsilon for middle in (i, start) for far in range(-64, 64, 8)] + list(bends)
    points = np.array(sorted({start, last, *(end for end in ends if start < end < last)}))
    nodes, weights = np.polynomial.legendre.leggauss(40)
    half = np.diff(points)[:, None] / 2
    x = points[:-1, None] + half * (1 + nodes)
    return float((half * weights * q(x) * epsilon / 2 * np.exp(-epsilon * np.abs(x - i))).sum())


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("name", SCHEMES)
def test_reporting_probabilities_are_those_of_direct_integration(name, epsilon, delta):
    scheme, q, bends = SCHEMES[name]
    start = float(threshold(epsilon, delta))
    rows = [1, 2, math.floor(start), math.floor(start) + 1, 33, 500]
    channel = sampled_stability(epsilon, delta, scheme)
    expected = [integral(i, epsilon, start, q, bends) for i in rows]
    assert channel.reporting_probability(rows) == pytest.approx(expected, rel=1e-9)
    assert [channel.row(i).reported for i in rows] == pytest.approx(expected, rel=1e-9)
    assert [channel.row(i).silent for i in rows] == pytest.approx([1 - p for p in expected], rel=1e-9)


@pytest.mark.parametrize("tau", [1e-6, 1e-3, 0.05])
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS[:3])
def test_formula_43(epsilon, delta, tau):
    """Cohen, Geri, Sarlos, Stemmer 2020, (43): ppswor, in closed form, at every frequency up to 10^7."""
    start = threshold(epsilon, delta)
    e, tau_ = mp.mpf(epsilon), mp.mpf(tau)

    def phi(i):
        if i <= start:
            return mp.exp(-e * (start - i)) / 2 * (1 - e / (e + tau_) * mp.exp(-start * tau_))
        fall = (mp.exp(-e * (i - start) - tau_ * start) - mp.exp(-tau_ * i)) * e / (e - tau_) / 2
        return 1 - mp.exp(-e * (i - start)) / 2 - e / (e + tau_) * mp.exp(-i * tau_) / 2 + fall

    rows = [*range(1, 60), 10**3, 10**4, 10**5, 10**7]
    found = sampled_stability(epsilon, delta, ppswor(tau)).reporting_probability(rows)
    assert found == pytest.approx([float(phi(i)) for i in rows], rel=1e-9)


def divergence(channel, i):
    """Return the larger divergence of rows i and i + 1 at the promised epsilon, and their sizes."""
    edges = channel.rows.cell_edges(0, i + channel.rows.spread + 1)
    rows = np.array(
        [
            channel.rows.cell_probabilities(np.array([n]), edges)[0] if n else np.zeros(len(edges) - 1)
            for n in (i, i + 1)
        ]
    )
    silent = [channel.row(n).silent for n in (i, i + 1)]
    growth = math.exp(channel.guarantee.epsilon)
    return max(
        np.maximum(rows[a] - growth * rows[b], 0).sum() + max(silent[a] - growth * silent[b], 0)
        for a, b in ((0, 1), (1, 0))
    )


def cliff(x):
    """Nearly a step, just below the whole numbers 13 and 22: between neighbours, where privacy is tightest."""
    return 0.01 + 0.5 * (x > 12.999) + 0.49 * (x > 21.7)


CLIFF = FunctionScheme(cliff)


@pytest.mark.parametrize("scheme", [*(s for s, _, _ in SCHEMES.values()), CLIFF], ids=[*SCHEMES, "cliff"])
def test_every_pair_of_rows_keeps_the_promise(scheme):
    for epsilon, delta in ((0.5, 0.01), (2.0, 1e-5)):
        channel = sampled_stability(epsilon, delta, scheme)
        assert channel.certify().worst <= delta
        assert max(divergence(channel, i) for i in [*range(12), *range(12, 60, 4)]) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("means", [(0.0, 1.0), (0.4, 1.0), (0.9, 0.1), (1e-9, 1e-3), (1 - 1e-12, 1.0)])
def test_privacy_does_not_rest_on_the_integrals(monkeypatch, means):
    """Whatever they come to, also a wild error, neighbours stay alike."""
    monkeypatch.setattr(ThinnedLaw, "_means", lambda self, parts: np.repeat(np.array([means]).T, len(parts), 1))
    for epsilon, delta in ((0.5, 0.01), (2.0, 1e-5)):
        channel = sampled_stability(epsilon, delta, ppswor(0.1))
        assert max(divergence(channel, i) for i in range(40)) <= delta * (1 + 1e-9)


def test_there_is_no_exact_curve():
    for neighbours in ("add_remove", "replace"):
        with pytest.raises(InvalidValue, match=r"exact"):
            sampled_stability(1.0, 1e-3, ppswor(0.5)).delta(1.0, neighbours)


@pytest.mark.parametrize("scheme", [ppswor(1e-6), priority(1e-6), FunctionScheme(lambda x: x / (x + 1e6))])
def test_intervals_at_a_rate_of_one_in_a_million(scheme):
    """For each frequency, the parts whose interval holds it have 95 % of its row, and about as much."""
    channel = sampled_stability(1.0, 1e-8, scheme)
    for frequency in (1, 15, 19, 25, 1000, 10**6, 10**9):
        row = channel.row(frequency)
        low, high = channel.interval(row.right, 0.95)
        covered = row.mass[(low <= frequency) & (frequency <= high)].sum() / row.reported
        assert 0.95 <= covered < (0.99 if frequency > 20 else 1.0)


def test_a_rate_of_one_in_a_million_is_fast():
    """Made, drawn, read and estimated in seconds; by rows up to where the scheme settles it would be an hour."""
    start = time.perf_counter()
    channel = sampled_stability(0.5, 1e-8, ppswor(1e-6))
    tokens = channel.draw(np.rint(1e8 / np.arange(1, 100_001)).astype(np.int64)).tokens
    reading = channel.read(tokens[tokens > 0])
    assert (reading.low <= reading.count).all() and (reading.count <= reading.high).all()
    assert channel.estimator().moments([10, 1000, 10**6]).mse.shape == (3,)
    assert time.perf_counter() - start < 20


def test_it_is_saved_and_made_again():
    channel = sampled_stability(1.0, 1e-8, ppswor(1e-6), threshold="paper")
    again = from_json(channel.to_json())
    assert (again.reporting_probability([5, 50, 5000]) == channel.reporting_probability([5, 50, 5000])).all()


def test_the_optimal_channel_still_reports_more():
    rows = np.arange(1, 3000)
    for scheme in (ppswor(0.01), priority(0.01), ppswor(0.1, power=0.5)):
        channel = optimal(0.5, 1e-6, scheme)
        best = channel.reporting_probability(rows) / (1 - channel.loss)
        assert (sampled_stability(0.5, 1e-6, scheme).reporting_probability(rows) <= best * (1 + 1e-9)).all()
