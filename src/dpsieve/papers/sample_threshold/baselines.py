"""The mechanisms that the paper compares sample-and-threshold with, each calibrated as well as it can be.

**Sampled Laplace.** A trusted server samples each client, counts, and adds discrete Laplace noise to every bucket.
With X the sampled count of a bucket and noise of scale 1 / e, neighbours with one client more or less are e-private
given the sample, and, as the client is sampled with the rate p only, ln(1 + p (exp(e) - 1))-private without it (Balle,
Barthe and Gaboardi 2020, Theorem 8). So e = ln(1 + (exp(epsilon) - 1) / p) gives epsilon. This is tight: the row of one
client has 1 - p + p exp(e) = exp(epsilon) times the probability of the empty row, at every output from 1 on.

**Bernoulli noise.** In the shuffle model every client sends its value and, for each bucket, one more report by a coin.
A shuffler hides who sent what, so that bucket j shows its count plus Binomial(m, q) for m clients (Balcer and Cheu,
"Separating local and shuffled differential privacy via histograms", ITC 2020). Their q comes from concentration
bounds; here it is the smallest one, up to 1/2, that keeps the promise exactly.

A client that changes its value moves one count from a bucket to another. With f the probabilities of Binomial(m, q),
the two buckets show (a, b) with f(a-1) f(b) against f(a) f(b-1), in both orders by symmetry, and the ratio of these is
a (m-b+1) / ((m-a+1) b). It exceeds e^epsilon for b below (m+1) a / (a + e^epsilon (m-a+1)), so with F the sums of f

    delta(epsilon) = sum over a of f(a-1) F(b_a) - e^epsilon f(a) F(b_a - 1), b_a the largest such b.

Where the m clients are themselves a random cohort, a share `rate` of all (a fixed size, without replacement), the
cohort needs only ln(1 + (e^epsilon - 1) / rate) and delta / rate (Balle, Barthe and Gaboardi 2020, Theorem 9).

**Hadamard response.** Each client randomises its own value, and nobody needs to be trusted.
Values 0..k-1 are spread over B blocks of b - 1; b is a power of two, and value x owns the row r = 1 + x mod (b-1) of
the b x b Hadamard matrix H of its block. Let S_x be the s = b/2 columns of that block in which row r is +1. The client
sends a column y: each of S_x with probability e^epsilon / Z, each of the other B b - s with 1 / Z, where
Z = s e^epsilon + B b - s. So any two values give any output with probabilities within e^epsilon: epsilon-local privacy,
for a changed value.

Two rows of a block agree in half of their columns and blocks are disjoint. So the sum over all reports in the block of
H[r, y] has the mean n_x s (e^epsilon - 1) / Z, where n_x clients have x: a fast Walsh-Hadamard transform of the counts
of each block, times Z / (s (e^epsilon - 1)), is an unbiased estimate of all frequencies.

Reference: J. Acharya, Z. Sun and H. Zhang, "Hadamard response: estimating distributions privately, efficiently, and
with little communication", AISTATS 2019, with its choice of B: the largest power of two below min(e^epsilon, 2k).
"""

import math
from functools import cached_property, lru_cache

import numpy as np
from flint import arb
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.accounting.curves import positive_delta
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, lower, smallest, upper
from dpsieve.exact.binomial import masses, window
from dpsieve.noise.sample_threshold import LARGEST_RATE, check_rate
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.randomness.coins import binomial, coins
from dpsieve.randomness.noise import discrete_laplace, laplace_scale
from dpsieve.randomness.picks import uniform_integers
from dpsieve.randomness.source import Source, resolve
from dpsieve.randomness.tables import ExactTable
from dpsieve.types import Floats, Ints

_MARGIN = 1e-9  # relative to the sum of positive terms: above all rounding, which is some 1e-11 of it
_FAR = 80.0
_SMALLEST_COIN, _LARGEST_COIN = 1e-15, 0.5
_OWN, _WRONG, _ELSEWHERE = 0, 1, 2  # in S_x, in its block but not in S_x, in another block


class SampledLaplace:
    """Epsilon-private counts of a sample, for one client more or less; all buckets of a public list are answered.

    Attributes:
        rate: the probability with which each client is sampled.
        scale: of the discrete Laplace noise.
        guarantee: the guarantee of one client.

    >>> round(1 / SampledLaplace(1.0, 0.1).scale, 4), SampledLaplace(1.0, 0.1).guarantee.neighbours
    (2.9005, 'add_remove')
    """

    def __init__(self, epsilon: float, rate: float, *, unit: str = "one client") -> None:
        self.guarantee = Guarantee(validate.positive_epsilon(epsilon), unit=unit)
        self.rate = check_rate(rate)
        self.scale = laplace_scale(_inside(self.guarantee.epsilon, self.rate), 1)

    def certify(self) -> Certificate:
        """Return the certificate: ln(1 + rate (e^(1/scale) - 1)) <= epsilon, evaluated with proven bounds."""
        epsilon = self.guarantee.epsilon
        excess = upper(lambda: (1 + ball(self.rate) * (1 / ball(self.scale)).expm1()).log() - ball(epsilon))
        worst = 0.0 if excess <= 0 else 1.0
        return formula(self.guarantee, worst, "balls", "amplification of discrete Laplace noise by sampling")

    def draw(self, frequencies: ArrayLike, *, source: Source | None = None) -> Ints:
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
        self.guarantee = Guarantee(validate.positive_epsilon(epsilon), positive_delta(delta), "replace", unit)
        self.rate = validate.between("rate", rate, 1e-9, 1.0, hint="Pass the share of clients that take part.")
        self.coin = _least_coin(self.clients, *self._inner())

    def certify(self) -> Certificate:
        """Return the certificate: the formula at the head of this module, rounded up."""
        epsilon, _ = self._inner()
        worst = self.rate * moved_delta(self.clients, self.coin, epsilon) * (1 + 2**-50)
        return formula(self.guarantee, worst, "formula", "the exact divergence of two buckets with binomial noise")

    def draw(self, frequencies: ArrayLike, *, source: Source | None = None) -> Ints:
        """Return the counts after the shuffler, one per bucket, given those of the cohort."""
        counts = validate.integers("frequencies", frequencies, hint="Pass one whole number for each bucket.")
        if int(counts.sum()) != self.clients or (len(counts) and int(counts.min()) < 0):
            raise InvalidValue("frequencies do not add up to `clients`. Pass the value of each client once.")
        return counts + binomial(np.full(len(counts), self.clients), self.coin, source=resolve(source))

    def estimate(self, shown: ArrayLike) -> Floats:
        """Return unbiased estimates of how many of all clients have each value."""
        return (np.asarray(shown, np.float64) - self.clients * self.coin) / self.rate

    def variance(self, frequencies: ArrayLike) -> Floats:
        """Return the variances of the estimates, given how many of all clients have each value.

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
        return _inside(epsilon, self.rate), min(delta / self.rate * (1 - 2**-40), 0.5)


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
    inside = b >= max(first, 0)
    return min(1.0, float((gain - loss)[inside].sum() + _MARGIN * gain[inside].sum() + 6 * math.exp(-_FAR)))


@lru_cache(maxsize=256)
def _least_coin(clients: int, epsilon: float, delta: float) -> float:
    """Return the smallest q up to 1/2 that keeps the promise, to six digits."""
    if moved_delta(clients, _LARGEST_COIN, epsilon) > delta:
        raise InvalidValue(f"clients={clients:,} are too few for this epsilon and delta. Pass more of them.")
    return smallest(
        lambda coin: moved_delta(clients, coin, epsilon) <= delta, _SMALLEST_COIN, _LARGEST_COIN, tolerance=1e-6
    )


def _inside(epsilon: float, rate: float) -> float:
    """Return the epsilon of the sampled mechanism so that, amplified, it is epsilon; rounded down."""
    return lower(lambda: (1 + ball(epsilon).expm1() / ball(rate)).log())


class HadamardResponse:
    """Epsilon-local privacy for values 0..buckets-1.

    Clients take part with probability `rate`, whatever their value; that neither helps nor harms the guarantee, as
    those who see the reports see who took part.

    >>> HadamardResponse(1.0, 100).guarantee.neighbours
    'replace'
    """

    def __init__(self, epsilon: float, buckets: int, *, rate: float = 1.0, unit: str = "one client") -> None:
        hint = "Pass a budget such as epsilon=1.0."
        epsilon = validate.positive("epsilon", validate.between("epsilon", epsilon, 0.0, 50.0, hint=hint), hint=hint)
        self.guarantee = Guarantee(epsilon, 0.0, "replace", unit)
        self.buckets = validate.whole("buckets", buckets, low=2, high=1 << 24, hint="Pass how many values there are.")
        self.rate = validate.between("rate", rate, 1e-9, 1.0, hint="Pass the share of clients that take part.")
        few = min(math.exp(epsilon), 2 * self.buckets)
        self.blocks = 1 << max(math.ceil(math.log2(few)) - 1, 0)
        rows = -(-self.buckets // self.blocks)
        self.block = 1 << rows.bit_length()  # a power of two above `rows`, as row 0 is not used

    @property
    def outputs(self) -> int:
        """How many different reports there are."""
        return self.blocks * self.block

    def respond(self, values: ArrayLike, *, source: Source | None = None) -> Ints:
        """Return the reports of clients that take part, drawn exactly; those of others are left out."""
        source, x = resolve(source), self._checked(values)
        if self.rate <= LARGEST_RATE:
            x = x[coins(len(x), self.rate, source=source)]
        block, row = self._place(x)
        kind = self._kinds.draw(len(x), source)
        column = (source.words(len(x)) & np.uint64(self.block - 1)).view(np.int64)
        odd = np.bitwise_count(column & row) & 1  # H[r, y] is +1 where r & y has an even number of ones
        flip = (kind != _ELSEWHERE) & (odd != (kind == _WRONG))
        column = np.where(flip, column ^ (row & -row), column)  # maps one half of the columns onto the other
        away = np.flatnonzero(kind == _ELSEWHERE)
        block[away] = (block[away] + 1 + uniform_integers(len(away), max(self.blocks - 1, 1), source)) % self.blocks
        return block * self.block + column

    def estimate(self, reports: ArrayLike) -> Floats:
        """Return unbiased estimates of how many clients have each value, by a fast Walsh-Hadamard transform."""
        seen = validate.integers("reports", reports, hint="Pass what respond returned.")
        if len(seen) and not 0 <= int(seen.min()) <= int(seen.max()) < self.outputs:
            raise InvalidValue("reports holds a number that no client sends. Pass what respond returned.")
        counts = np.bincount(seen, minlength=self.outputs).reshape(self.blocks, self.block)
        sums = walsh_hadamard(counts.astype(np.float64))
        block, row = self._place(np.arange(self.buckets))
        return np.asarray(sums[block, row] * self._lift / self.rate, dtype=np.float64)

    def variance(self, frequencies: ArrayLike) -> Floats:
        """Return the variances of the estimates, when these numbers of clients have each value.

        A report adds +-1 with probability s (e^epsilon + 1) / Z when its client's value is in the same block, and
        2 s / Z when it is not; its mean is not zero for the clients of the value itself.
        """
        n = np.asarray(frequencies, np.float64)
        if n.shape != (self.buckets,):
            raise InvalidValue("frequencies must have one number for each value. Pass 0 for those that nobody has.")
        block, _ = self._place(np.arange(self.buckets))
        same = np.bincount(block, n, self.blocks)[block]
        s, z, e = self.block / 2, self._z, math.exp(self.guarantee.epsilon)
        squares = (same * s * (e + 1) + (n.sum() - same) * 2 * s) / z
        return np.asarray(squares * self._lift**2 / self.rate - n, dtype=np.float64)

    def row(self, value: int) -> Floats:
        """Return the probability of each report of a client with this value that takes part, for checks."""
        block, row = self._place(self._checked([value]))
        odd = np.bitwise_count(np.arange(self.block) & row) & 1
        weights = np.ones((self.blocks, self.block))
        weights[block[0], odd == 0] = math.exp(self.guarantee.epsilon)
        return np.asarray(weights.ravel() / self._z, dtype=np.float64)

    @property
    def _z(self) -> float:
        return self.block / 2 * math.expm1(self.guarantee.epsilon) + self.outputs

    @property
    def _lift(self) -> float:
        return self._z / (self.block / 2 * math.expm1(self.guarantee.epsilon))

    @cached_property
    def _kinds(self) -> ExactTable:
        """The table of where a report falls: S_x, the rest of its block, another block, as e^epsilon : 1 : 2B - 2."""

        def cdf(k: int) -> arb:
            if k < _OWN or k >= _ELSEWHERE or (k == _WRONG and self.blocks == 1):
                return arb(0 if k < _OWN else 1)
            own = arb(self.guarantee.epsilon).exp()
            return (own + k) / (own + 2 * self.blocks - 1)

        return ExactTable(cdf)

    def _place(self, values: Ints) -> tuple[Ints, Ints]:
        """Return block and row of each value."""
        return values // (self.block - 1), values % (self.block - 1) + 1

    def _checked(self, values: ArrayLike) -> Ints:
        numbers = validate.integers("values", values, hint="Pass values as numbers from 0 on.")
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < self.buckets:
            raise InvalidValue("values holds one outside the buckets. Pass numbers from 0 to buckets - 1.")
        return numbers


def walsh_hadamard(rows: Floats) -> Floats:
    """Return sum_y (-1)^(number of ones in r & y) x_y for all r, for each row x of a power of two of numbers.

    >>> walsh_hadamard(np.array([[1.0, 0.0, 1.0, 0.0]])).tolist()
    [[2.0, 2.0, 0.0, 0.0]]
    """
    done, size = rows.copy(), rows.shape[-1]
    step = 1
    while step < size:
        pairs = done.reshape(-1, size // (2 * step), 2, step)
        done = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        step *= 2
    return done.reshape(rows.shape)
