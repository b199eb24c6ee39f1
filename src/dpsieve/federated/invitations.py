"""How many clients to invite, by exact binomial tails.

Lemma 4 of Bharadwaj and Cormode (AISTATS 2022) contacts a fixed number s = m + c sqrt(m) of n clients, m = rate n, each
of which takes part with probability m / s. The size of such a sample has variance m (1 - m/s); that of the sample of
Theorem 2, in which each of the n clients takes part on its own, has m (1 - m/n). So they are not the same mechanism.
Two sound ways are here, each with the guarantee that it has.
"""

import math
from dataclasses import dataclass

from dpsieve import validate
from dpsieve.channels.binomial.divergence import lower_tail, upper_tail
from dpsieve.channels.binomial.rows import checked_rate
from dpsieve.errors import InvalidValue
from dpsieve.privacy import Guarantee

_MOST = 10**12


@dataclass(frozen=True)
class Invitation:
    """A fixed number of clients to invite, in which a sample of each client on its own fits.

    Attributes:
        population, rate: each of so many clients is to be sampled with this rate.
        invited: how many clients to invite, chosen at random.
        overflow: the probability that the sample is larger, rounded up.
        paper_invited: m + c sqrt(m), with c from the Chernoff bound of Lemma 4, for the same probability.
    """

    population: int
    rate: float
    invited: int
    overflow: float
    paper_invited: int

    def guarantee(self, promise: Guarantee) -> Guarantee:
        """Return what holds if the sample is cut to the invited clients: delta + (1 + e^epsilon) overflow.

        The procedure: draw the size N ~ Binomial(population, rate) in secret, invite `invited` random clients, and let
        the first min(N, invited) of them, in random order, take part. Unless N is too large, these are exactly the
        clients that a sample of each on its own would have. So on any input the outputs differ in total variation
        by at most `overflow`, once for each of the two neighbours.
        """
        extra = (1 + math.exp(promise.epsilon)) * self.overflow
        delta = math.nextafter((promise.delta + extra) * (1 + 2**-50), 2.0)
        return Guarantee(promise.epsilon, delta, promise.neighbours, promise.unit)


def invite_for_sample(population: int, rate: float, *, beta: float = 1e-12) -> Invitation:
    """Return the fewest clients to invite so that a sample with this rate fits among them but for probability beta.

    P[Binomial(population + 1, rate) > invited] <= beta; one more client, for the neighbour that has it. Where that is
    more than the population, all clients are invited, however many they are.

    >>> found = invite_for_sample(1_000_000, 0.1, beta=1e-12)
    >>> found.invited, found.paper_invited
    (102117, 102880)
    """
    n = validate.whole("population", population, low=1, high=_MOST, hint="Pass how many clients there are.") + 1
    p, beta = checked_rate(rate), _small(beta)
    enough, too_few = n, math.floor(n * p)
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        enough, too_few = (middle, too_few) if upper_tail(n, p, middle + 1) <= beta else (enough, middle)
    mean = population * p
    paper = math.ceil(mean + math.sqrt(3 * math.log(1 / beta) * mean))
    return Invitation(population, p, enough, upper_tail(n, p, enough + 1), min(paper, n))


def invite_for_reports(reports: int, rate: float, *, beta: float = 1e-6) -> int:
    """Return the fewest clients to invite so that, but for probability beta, at least so many report.

    Each invited client reports with probability `rate`, by a coin of its own: P[Binomial(s, rate) < reports] <= beta.
    The guarantee is that of `sample_threshold(rate, threshold)`, also for those who know who was invited.

    >>> invite_for_reports(1000, 0.1, beta=1e-6)
    11495
    """
    wanted = validate.whole("reports", reports, low=1, high=10**9, hint="Pass how many reports are needed.")
    p, beta = checked_rate(rate), _small(beta)
    too_few = math.ceil(wanted / p) - 1
    enough = too_few + 2
    while lower_tail(enough, p, wanted - 1) > beta:
        enough += enough - too_few
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        enough, too_few = (middle, too_few) if lower_tail(middle, p, wanted - 1) <= beta else (enough, middle)
    return enough


def _small(beta: float) -> float:
    hint = "Pass a small probability such as beta=1e-6."
    number = validate.between("beta", beta, 1e-100, 0.5, hint=hint)
    if number == 0.5:
        raise InvalidValue(f"beta=0.5 is no small probability. {hint}")
    return number
