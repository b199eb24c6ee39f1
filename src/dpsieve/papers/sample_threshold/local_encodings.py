"""Local randomisers that the paper compares Hadamard response with: direct and unary encoding.

Each client randomises its own value, one of 0..k-1, and nobody needs to be trusted. A bucket j is supported by the
report of a client of value j with probability p, and by that of any other client with probability q < p. So with m
reports, c_j of which support j, (c_j - m q) / (p - q) is an unbiased estimate of how many clients have value j.

- **Direct encoding** (generalised randomised response): a client sends its value with probability p, and each other
  value with probability q, for p = e^epsilon / (e^epsilon + k - 1) and q = 1 / (e^epsilon + k - 1).
- **Unary encoding**: a client sends k bits, the one of its value set with probability p and each other one with
  probability q. Two values differ in two bits, so the ratio of probabilities of any report is at most
  p (1 - q) / ((1 - p) q). 'symmetric' has p = 1 - q = e^(epsilon/2) / (e^(epsilon/2) + 1) (basic RAPPOR); 'optimised'
  has p = 1/2 and q = 1 / (e^epsilon + 1), the least variance of rare values.

Reference: T. Wang, J. Blocki, N. Li and S. Jha, "Locally differentially private protocols for frequency estimation",
USENIX Security 2017.
"""

import math
from functools import cached_property
from typing import Literal

import numpy as np
from flint import arb
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, lower, upper
from dpsieve.noise.sample_threshold import LARGEST_RATE
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.randomness.coins import binomial, coins
from dpsieve.randomness.picks import uniform_integers
from dpsieve.randomness.source import Source, resolve
from dpsieve.randomness.tables import ExactTable
from dpsieve.types import Floats, Ints

_HINT = "Pass a budget such as epsilon=1.0."


class LocalEncoding:
    """Reports that support buckets; see the head of this module.

    Clients take part with probability `rate`, whatever their value: as those who see the reports see who took part,
    that changes nothing about the guarantee.

    Attributes:
        buckets: k, the number of values.
        p, q: the probability that a report supports the value of its client, and any other one.
        rate: the share of clients that take part.
        guarantee: that of a client whose value is another.
    """

    p: float
    q: float

    def __init__(self, epsilon: float, buckets: int, *, rate: float = 1.0, unit: str = "one client") -> None:
        epsilon = validate.positive("epsilon", validate.between("epsilon", epsilon, 0.0, 50.0, hint=_HINT), hint=_HINT)
        self.guarantee = Guarantee(epsilon, 0.0, "replace", unit)
        self.buckets = validate.whole("buckets", buckets, low=2, high=1 << 24, hint="Pass how many values there are.")
        self.rate = validate.between("rate", rate, 1e-9, 1.0, hint="Pass the share of clients that take part.")

    def estimate(self, support: ArrayLike, reports: int) -> Floats:
        """Return unbiased estimates of how many clients have each value, from the support of each, in m reports."""
        return (np.asarray(support, np.float64) - reports * self.q) / ((self.p - self.q) * self.rate)

    def variance(self, frequencies: ArrayLike) -> Floats:
        """Return the variances of the estimates, when these numbers of clients have each value.

        With r the rate, a client adds ((1 - q)^2 p + q^2 (1 - p)) / (r (p - q)^2) - 1 to the variance of its own value,
        and q (1 - q) / (r (p - q)^2) to that of any other.
        """
        n = np.asarray(frequencies, np.float64)
        if n.shape != (self.buckets,):
            raise InvalidValue("frequencies must have one number for each value. Pass 0 for those that nobody has.")
        scale = self.rate * (self.p - self.q) ** 2
        own = ((1 - self.q) ** 2 * self.p + self.q**2 * (1 - self.p)) / scale - 1
        return np.asarray(n * own + (n.sum() - n) * self.q * (1 - self.q) / scale)


class DirectEncoding(LocalEncoding):
    """Epsilon-local privacy for values 0..buckets-1: the value itself, or any other one.

    >>> mechanism = DirectEncoding(2.0, 4)
    >>> round(mechanism.p, 4), round(mechanism.q, 4), mechanism.guarantee.neighbours
    (0.7112, 0.0963, 'replace')
    """

    def __init__(self, epsilon: float, buckets: int, *, rate: float = 1.0, unit: str = "one client") -> None:
        super().__init__(epsilon, buckets, rate=rate, unit=unit)
        others = self.buckets - 1
        self.p = 1 / (1 + others * math.exp(-self.guarantee.epsilon))
        self.q = 1 / (math.exp(self.guarantee.epsilon) + others)

    def respond(self, values: ArrayLike, *, source: Source | None = None) -> Ints:
        """Return the reports of clients that take part, drawn exactly; those of others are left out."""
        source = resolve(source)
        own = validate.integers("values", values, hint="Pass values as numbers from 0 on.")
        if len(own) and not 0 <= int(own.min()) <= int(own.max()) < self.buckets:
            raise InvalidValue("values holds one outside the buckets. Pass numbers from 0 to buckets - 1.")
        if self.rate <= LARGEST_RATE:
            own = own[coins(len(own), self.rate, source=source)]
        moved = np.flatnonzero(self._moves.draw(len(own), source))
        reports = own.copy()
        reports[moved] = (own[moved] + 1 + uniform_integers(len(moved), self.buckets - 1, source)) % self.buckets
        return reports

    def count(self, reports: ArrayLike) -> Floats:
        """Return the estimates from reports."""
        seen = validate.integers("reports", reports, hint="Pass what respond returned.")
        if len(seen) and not 0 <= int(seen.min()) <= int(seen.max()) < self.buckets:
            raise InvalidValue("reports holds a number that no client sends. Pass what respond returned.")
        return self.estimate(np.bincount(seen, minlength=self.buckets), len(seen))

    @cached_property
    def _moves(self) -> ExactTable:
        """The table of whether a report is another value: e^epsilon : k - 1."""

        def cdf(k: int) -> arb:
            own = arb(self.guarantee.epsilon).exp()
            return arb(0) if k < 0 else arb(1) if k > 0 else own / (own + self.buckets - 1)

        return ExactTable(cdf)


class UnaryEncoding(LocalEncoding):
    """Epsilon-local privacy for values 0..buckets-1: a bit for each value.

    >>> mechanism = UnaryEncoding(1.0, 1000)
    >>> mechanism.p, round(mechanism.q, 4), round(UnaryEncoding(1.0, 1000, kind="symmetric").p, 4)
    (0.5, 0.2689, 0.6225)
    """

    def __init__(
        self,
        epsilon: float,
        buckets: int,
        *,
        kind: Literal["optimised", "symmetric"] = "optimised",
        rate: float = 1.0,
        unit: str = "one client",
    ) -> None:
        super().__init__(epsilon, buckets, rate=rate, unit=unit)
        validate.choice("kind", kind, ("optimised", "symmetric"))
        part = self.guarantee.epsilon if kind == "optimised" else self.guarantee.epsilon / 2
        self.q = upper(lambda: 1 / (ball(part).exp() + 1))
        self.p = 0.5 if kind == "optimised" else lower(lambda: 1 - ball(self.q))

    def certify(self) -> Certificate:
        """Return the certificate: p (1 - q) / ((1 - p) q) <= e^epsilon for these floats."""
        p, q = ball(self.p), ball(self.q)
        loss = upper(lambda: (p * (1 - q) / ((1 - p) * q)).log() - ball(self.guarantee.epsilon))
        return formula(self.guarantee, 0.0 if loss <= 0 else 1.0, "balls", "two bits of a unary report")

    def draw(self, frequencies: ArrayLike, *, source: Source | None = None) -> tuple[Ints, int]:
        """Return how many reports have each bit set, and the number of reports, given the clients of each value.

        Bits are independent, so their sums are Binomial(n_j, p) + Binomial(n - n_j, q), drawn exactly.
        """
        counts = validate.integers("frequencies", frequencies, hint="Pass one whole number for each value.")
        if len(counts) != self.buckets or int(counts.min()) < 0:
            raise InvalidValue("frequencies must have one number for each value. Pass 0 for those that nobody has.")
        source = resolve(source)
        if self.rate <= LARGEST_RATE:
            counts = binomial(counts, self.rate, source=source)
        reports = int(counts.sum())
        return binomial(counts, self.p, source=source) + binomial(reports - counts, self.q, source=source), reports
