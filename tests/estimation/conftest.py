"""Channels to estimate from: with and without sampling, and one of another shape."""

import numpy as np
import pytest

from dpsieve.channels import Channel, Row, optimal, simple, stability
from dpsieve.sampling import custom, ppswor, priority


class Wobbly(Channel):
    """A key of frequency i is kept with probability 1 - e^(-i/10) and comes out at i - 3, ..., i + 3, if above zero.

    It is not private. Its rows change with i, and its tokens may exceed i: what holds for it was not due to luck.
    """

    name, resolution, reach = "wobbly", 1, 4

    def reporting_probability(self, frequencies):
        i = np.asarray(frequencies)
        return -np.expm1(-i / 10) * np.minimum(i + 3, 7) / 7

    def breaks(self, low, high):
        return np.arange(low, high + 1)

    def masses(self, frequencies, edges):
        i, tokens = np.asarray(frequencies)[:, None], edges[1:]
        return np.where((np.abs(tokens - i) <= 3) & (tokens >= 1), -np.expm1(-i / 10) / 7, 0.0)

    def row(self, frequency):
        tokens = np.arange(max(frequency - 3, 1), frequency + 4)
        reported = float(self.reporting_probability([frequency])[0])
        silent = np.exp(-frequency / 10) if frequency > 3 else 1 - reported
        return Row(silent, tokens, tokens, np.full(len(tokens), reported / len(tokens)))

    def _likeliest(self, tokens):
        return tokens + 3

    def _draw(self, frequencies, source, already_sampled):
        rng = np.random.default_rng()
        kept = rng.random(len(frequencies)) < -np.expm1(-frequencies / 10)
        return np.maximum(np.where(kept, frequencies + rng.integers(-3, 4, len(frequencies)), 0), 0)

    def certify(self):
        raise AssertionError("estimators do not ask for a certificate")

    def delta(self, epsilon, neighbours="add_remove"):
        raise AssertionError("estimators do not ask for delta")

    def _interval(self, tokens, level):
        raise AssertionError("estimators do not ask for intervals")


MAKE = {
    "simple": lambda: simple(1.0, 1e-3),
    "simple, tiny delta": lambda: simple(2.0, 1e-20),
    "optimal": lambda: optimal(1.0, 1e-3),
    "optimal, small": lambda: optimal(0.5, 1e-6),
    "optimal, sampled": lambda: optimal(1.0, 1e-3, ppswor(0.05)),
    "simple, sampled": lambda: simple(1.0, 1e-3, ppswor(0.01)),
    "simple, priority": lambda: simple(0.5, 1e-4, priority(0.03)),
    "simple, jump": lambda: simple(0.5, 1e-4, custom([0.5] * 60 + [1.0])),
    "stability": lambda: stability(1.0, 1e-3),
    "stability, sampled": lambda: stability(1.0, 1e-3, ppswor(0.05)),
    "wobbly": Wobbly,
}


@pytest.fixture(params=MAKE)
def channel(request):
    return MAKE[request.param]()


@pytest.fixture(params=[name for name in MAKE if name not in ("wobbly", "stability", "stability, sampled")])
def private(request):
    """Channels whose tokens never exceed the frequency."""
    return MAKE[request.param]()


@pytest.fixture
def wobbly():
    return Wobbly()
