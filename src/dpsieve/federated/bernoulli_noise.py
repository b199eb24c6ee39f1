"""A baseline of the shuffle model: every client sends its value and, for each bucket, one more report of it by a coin.

A shuffler hides who sent what, so that bucket j shows its count plus Binomial(m, q) for m clients (Balcer and Cheu,
"Separating local and shuffled differential privacy via histograms", ITC 2020). Their q comes from concentration
bounds; here it is the smallest one, up to 1/2, that keeps the promise exactly.

A client that changes its value moves one count from a bucket to another. With f the probabilities of Binomial(m, q),
the two buckets show (a, b) with f(a-1) f(b) against f(a) f(b-1), in both orders by symmetry, and the ratio of these is
a (m-b+1) / ((m-a+1) b). It exceeds e^epsilon for b below (m+1) a / (a + e^epsilon (m-a+1)), so with F the sums of f

    delta(epsilon) = sum over a of f(a-1) F(b_a) - e^epsilon f(a) F(b_a - 1), b_a the largest such b.

Where the m clients are themselves a random cohort, a share `rate` of all (a fixed size, without replacement), the
cohort needs only ln(1 + (e^epsilon - 1) / rate) and delta / rate (Balle, Barthe and Gaboardi 2020, Theorem 9).
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact.binomial import masses, window
from dpsieve.exact.search import ball, lower
from dpsieve.privacy import Certificate, Guarantee
from dpsieve.privacy.certificate import by_formula
from dpsieve.privacy.curves.gaussian import positive_delta
from dpsieve.randomness.coins import binomial
from dpsieve.randomness.source import Source, resolve

Floats = NDArray[np.float64]

_MARGIN = 1e-9  # relative to the sum of positive terms: above all rounding, which is some 1e-11 of it
_FAR = 80.0


class BernoulliNoise:
    """(Epsilon, delta)-private counts in the shuffle model, when one client's value changes.

    Attributes:
        clients: m, the clients that take part, a public number.
        coin: q, the probability of a report of each bucket.
        rate: the share of all clients that take part, chosen at random; 1 when all do.

    >>> noise = BernoulliNoise(10_000, 1.0, 1e-8)
    >>> round(noise.coin * noise.clients), noise.guarantee.neighbours
    (62, 'replace')
    """

    def __init__(
        self, clients: int, epsilon: float, delta: float, *, rate: float = 1.0, unit: str = "one client"
    ) -> None:
        self.clients = validate.whole("clients", clients, low=1, high=10**9, hint="Pass how many clients take part.")
        hint = "Pass a budget such as epsilon=1.0."
        epsilon = validate.positive("epsilon", validate.epsilon(epsilon), hint=hint)
        self.guarantee = Guarantee(epsilon, positive_delta(delta), "replace", unit)
        self.rate = validate.between("rate", rate, 1e-9, 1.0, hint="Pass the share of clients that take part.")
        self.coin = _least_coin(self.clients, *self._inner())

    def certify(self) -> Certificate:
        """Return the certificate: the formula at the head of this module, rounded up."""
        epsilon, _ = self._inner()
        worst = self.rate * moved_delta(self.clients, self.coin, epsilon) * (1 + 2**-50)
        return by_formula(self.guarantee, worst, "the exact divergence of two buckets with binomial noise")

    def draw(self, frequencies: ArrayLike, *, source: Source | None = None) -> NDArray[np.int64]:
        """Return what the shuffler shows for each bucket, when so many clients of the cohort have each value."""
        counts = validate.integers("frequencies", frequencies, hint="Pass one whole number for each bucket.")
        if int(counts.sum()) != self.clients or (len(counts) and int(counts.min()) < 0):
            raise InvalidValue("frequencies do not add up to `clients`. Pass the value of each client once.")
        return counts + binomial(np.full(len(counts), self.clients), self.coin, source=resolve(source))

    def estimate(self, shown: ArrayLike) -> Floats:
        """Return unbiased estimates of how many of all clients have each value."""
        return (np.asarray(shown, np.float64) - self.clients * self.coin) / self.rate

    def variance(self, frequencies: ArrayLike) -> Floats:
        """Return the variances of the estimates, when so many of all clients have each value.

        They are m q (1 - q) from the noise and, with n = m / rate clients in all, m (w/n) (1 - w/n) (n-m) / (n-1) from
        the choice of the cohort; both over rate^2.
        """
        everyone = self.clients / self.rate
        share = np.asarray(frequencies, np.float64) / everyone
        cohort = self.clients * share * (1 - share) * (everyone - self.clients) / max(everyone - 1, 1)
        return (cohort + self.clients * self.coin * (1 - self.coin)) / self.rate**2

    def _inner(self) -> tuple[float, float]:
        """Return what the cohort must keep, rounded down."""
        epsilon, delta = self.guarantee.epsilon, self.guarantee.delta
        if self.rate == 1.0:
            return epsilon, delta
        inside = lower(lambda: (1 + ball(epsilon).expm1() / ball(self.rate)).log())
        return inside, min(delta / self.rate * (1 - 2**-40), 0.5)


def moved_delta(clients: int, coin: float, epsilon: float) -> float:
    """Return the least delta at epsilon when one of `clients` changes its value, rounded up by about 1e-9 of it.

    >>> f"{moved_delta(10_000, 0.0062, 1.0):.3g}"
    '1.07e-08'
    """
    first, last = window(clients, coin, _FAR)
    a = np.arange(first, last + 2)
    row = masses(clients, np.arange(first - 1, last + 2), coin)  # f(first - 1), ..., f(last + 1)
    sums = np.cumsum(row)
    edge = (clients + 1) * a / (a + math.exp(epsilon) * (clients - a + 1.0))
    b = np.clip(np.ceil(edge * (1 - 1e-15)) - 1, first - 1, last + 1).astype(np.int64)
    gain = row[:-1] * sums[b - first + 1]
    loss = math.exp(epsilon) * row[1:] * np.where(b >= first, sums[np.maximum(b - first, 0)], 0.0)
    kept = b >= max(first, 0)
    return min(1.0, float((gain - loss)[kept].sum() + _MARGIN * gain[kept].sum() + 6 * math.exp(-_FAR)))


@lru_cache(maxsize=256)
def _least_coin(clients: int, epsilon: float, delta: float) -> float:
    """Return the smallest q up to 1/2 that keeps the promise, to six digits."""
    low, high = 0.0, 0.5
    if moved_delta(clients, high, epsilon) > delta:
        raise InvalidValue(f"clients={clients:,} are too few for this epsilon and delta. Pass more of them.")
    while high - low > 1e-6 * high:
        middle = (low + high) / 2 if low else high / 8
        low, high = (low, middle) if moved_delta(clients, middle, epsilon) <= delta else (middle, high)
    return high
