"""A baseline: a trusted server samples each client, counts, and adds discrete Laplace noise to every bucket of a list.

With X the sampled count of a bucket and noise of scale 1 / e, neighbours with one client more or less are e-private
given the sample, and, as the client is sampled with the rate p only, ln(1 + p (exp(e) - 1))-private without it (Balle,
Barthe and Gaboardi 2020, Theorem 8). So e = ln(1 + (exp(epsilon) - 1) / p) gives epsilon. This is tight: the row of one
client has 1 - p + p exp(e) = exp(epsilon) times the probability of the empty row, at every output from 1 on.
"""

import math
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.channels.binomial.rows import checked_rate
from dpsieve.exact.search import ball, lower, upper
from dpsieve.privacy import Certificate, Guarantee
from dpsieve.privacy.certificate import by_formula
from dpsieve.randomness.coins import binomial
from dpsieve.randomness.noise import discrete_laplace, laplace_scale
from dpsieve.randomness.source import Source, resolve

Floats = NDArray[np.float64]


class SampledLaplace:
    """Epsilon-private counts of a sample, for one client more or less; all buckets of a public list are answered.

    Attributes:
        rate: the probability with which each client is sampled.
        scale: of the discrete Laplace noise.
        guarantee: what is promised.

    >>> round(1 / SampledLaplace(1.0, 0.1).scale, 4), SampledLaplace(1.0, 0.1).guarantee.neighbours
    (2.9005, 'add_remove')
    """

    def __init__(self, epsilon: float, rate: float, *, unit: str = "one client") -> None:
        hint = "Pass a budget such as epsilon=1.0."
        self.guarantee = Guarantee(validate.positive("epsilon", validate.epsilon(epsilon), hint=hint), unit=unit)
        self.rate = checked_rate(rate)
        inner = lower(lambda: (1 + ball(self.guarantee.epsilon).expm1() / ball(self.rate)).log())
        self.scale = laplace_scale(inner, 1)

    def certify(self) -> Certificate:
        """Return the certificate: ln(1 + rate (e^(1/scale) - 1)) <= epsilon, evaluated with proven bounds."""
        found = upper(
            lambda: (1 + ball(self.rate) * (1 / ball(self.scale)).expm1()).log() - ball(self.guarantee.epsilon)
        )
        return by_formula(
            self.guarantee, 0.0 if found <= 0 else 1.0, "amplification of discrete Laplace noise by sampling"
        )

    def draw(self, frequencies: ArrayLike, *, source: Source | None = None) -> NDArray[np.int64]:
        """Return, for each bucket, the sampled count of the clients in it, with noise."""
        source = resolve(source)
        sampled = binomial(frequencies, self.rate, source=source)
        return sampled + discrete_laplace(self.scale, len(sampled), source=source)

    def estimate(self, noisy: ArrayLike) -> Floats:
        """Return unbiased estimates of the frequencies: the noisy counts over the rate."""
        return np.asarray(noisy, np.float64) / self.rate

    def variance(self, frequencies: ArrayLike) -> Floats:
        """Return the variances of the estimates: w (1 - p) / p from the sample, and that of the noise over p^2."""
        return np.asarray(frequencies, np.float64) * (1 - self.rate) / self.rate + self._noise / self.rate**2

    @cached_property
    def _noise(self) -> float:
        return 2 * math.exp(-1 / self.scale) / math.expm1(-1 / self.scale) ** 2
