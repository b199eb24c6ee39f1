"""How many clients to invite (Lemma 4 of Bharadwaj and Cormode, AISTATS 2022, corrected).

The lemma contacts a fixed number s = m + c sqrt(m) of n clients, m = rate n, each of which takes part with probability
m / s. The size of such a sample has variance m (1 - m/s); that of the sample of Theorem 2, in which each of the n
clients takes part independently, has m (1 - m/n). So they are not the same mechanism. `invite_for_sample` and
`invite_for_reports` are sound, by exact binomial tails, and each states its guarantee.
"""

import math
from dataclasses import dataclass

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import first_whole, upper
from dpsieve.noise.sample_threshold import check_rate
from dpsieve.noise.sample_threshold_delta import falling_series, mass, product_above
from dpsieve.privacy.guarantee import Guarantee

_NEVER, _MOST_CLIENTS = 1 << 80, 10**12


@dataclass(frozen=True)
class Invitation:
    """A fixed number of clients to invite, among whom an independent sample of all clients fits.

    Attributes:
        population, rate: the number of clients, and the rate with which each is sampled.
        invited: how many clients to invite, chosen at random.
        overflow: the probability that the sample is larger, rounded up.
    """

    population: int
    rate: float
    invited: int
    overflow: float

    def guarantee(self, promise: Guarantee) -> Guarantee:
        """Return the guarantee if the sample is cut to the invited clients: delta + (1 + e^epsilon) overflow.

        The procedure: draw the size N ~ Binomial(population, rate) in secret, invite `invited` random clients, and let
        the first min(N, invited) of them, in random order, take part. Unless N is too large, these are exactly the
        clients of an independent sample. So on any input the outputs differ in total variation
        by at most `overflow`, once for each of the two neighbours.
        """
        extra = (1 + math.exp(promise.epsilon)) * self.overflow
        delta = math.nextafter((promise.delta + extra) * (1 + 2**-50), 2.0)
        return Guarantee(promise.epsilon, delta, promise.neighbours, promise.unit)


def invite_for_sample(population: int, rate: float, *, beta: float = 1e-12) -> Invitation:
    """Return the fewest clients to invite so that a sample of this rate fits among them except with probability beta.

    P[Binomial(population + 1, rate) > invited] <= beta; one more client, for the neighbour that has it. Where that is
    more than the population, all clients are invited.

    >>> invite_for_sample(1_000_000, 0.1, beta=1e-12).invited
    102117
    """
    n = validate.whole("population", population, low=1, high=_MOST_CLIENTS, hint="Pass how many clients there are.") + 1
    p, beta = check_rate(rate), _small(beta)
    enough = first_whole(lambda count: upper_tail(n, p, count + 1) <= beta, math.floor(n * p) + 1, n)
    return Invitation(population, p, enough, upper_tail(n, p, enough + 1))


def invite_for_reports(reports: int, rate: float, *, beta: float = 1e-6) -> int:
    """Return the fewest clients to invite so that at least `reports` of them report, except with probability beta.

    Each invited client reports with probability `rate`, by a coin of its own: P[Binomial(s, rate) < reports] <= beta.
    The guarantee is that of `sample_threshold(rate, threshold)`, also for those who know who was invited.

    >>> invite_for_reports(1000, 0.1, beta=1e-6)
    11495
    """
    wanted = validate.whole("reports", reports, low=1, high=10**9, hint="Pass how many reports are needed.")
    p, beta = check_rate(rate), _small(beta)
    return first_whole(lambda count: lower_tail(count, p, wanted - 1) <= beta, math.ceil(wanted / p), _NEVER)


def upper_tail(trials: int, rate: float, least: int) -> float:
    """Return P[Binomial(trials, rate) >= least] for a `least` above the mean, rounded up, by less than 1e-9 of it.

    >>> round(upper_tail(10, 0.5, 9), 6)
    0.010742
    """
    if least > trials:
        return 0.0
    series = falling_series(trials - least, least + 1, rate / (1 - rate), 1.0, 0.0)
    return product_above(upper(lambda: mass(trials, least, rate)), series)


def lower_tail(trials: int, rate: float, most: int) -> float:
    """Return P[Binomial(trials, rate) <= most] for a `most` below the mean, rounded up, by less than 1e-9 of it.

    >>> round(lower_tail(10, 0.5, 1), 6)
    0.010742
    """
    if most < 0:
        return 0.0
    series = falling_series(most, trials - most + 1, (1 - rate) / rate, 1.0, 0.0)
    return product_above(upper(lambda: mass(trials, most, rate)), series)


def _small(beta: float) -> float:
    hint = "Pass a small probability such as beta=1e-6."
    number = validate.between("beta", beta, 1e-100, 0.5, hint=hint)
    if number == 0.5:
        raise InvalidValue(f"beta=0.5 is no small probability. {hint}", argument="beta")
    return number
