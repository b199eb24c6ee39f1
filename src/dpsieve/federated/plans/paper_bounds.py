"""The bounds of Bharadwaj and Cormode, "Sample-and-threshold differential privacy" (AISTATS 2022), to compare with.

They are safe and far from tight: at epsilon = 1, rate 0.10535 and threshold 20, Theorem 2 says 1.5e-12, Lemma 3 says
7.6e-9, and the exact delta is 6.9e-15. Both are for one client more or less, and for rates up to 1 - e^-epsilon.
Lemmas 5, 6 and 9 are about accuracy; `enough_clients` and `edge_error` are the exact numbers beside the last two. These
are plain floats, for figures; what is promised comes from `dpsieve.channels.binomial.rows`.

Lemma 4 contacts a fixed number s = m + c sqrt(m) of n clients, m = rate n, each of which takes part with probability
m / s. The size of such a sample has variance m (1 - m/s); that of the sample of Theorem 2, in which each of the n
clients takes part on its own, has m (1 - m/n). So they are not the same mechanism. The two functions here that invite
clients, by exact binomial tails, are sound, and each states its guarantee.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.binomial.add_remove import lower_tail, upper_tail
from dpsieve.channels.binomial.rows import checked_rate, checked_threshold
from dpsieve.errors import InvalidValue
from dpsieve.exact.binomial import at_least, below
from dpsieve.exact.search import first_whole
from dpsieve.federated.client.strings import MOST_LEVELS
from dpsieve.federated.plans.histogram_plan import Plan
from dpsieve.federated.plans.level_plans import LevelPlan
from dpsieve.privacy import Guarantee
from dpsieve.types import Floats, Ints

_MOST_REPORTS, _MOST_CLIENTS = 10**6, 10**12
_NEVER = 1 << 80  # clients


def theorem_2_delta(epsilon: float, rate: float, threshold: int) -> float:
    """Return exp(-(threshold / q) D(q || rate)), q = 1 - e^-epsilon (1 - rate), D the relative entropy (Theorem 2).

    >>> f"{theorem_2_delta(1.0, 0.10535, 20):.2g}"
    '1.5e-12'
    """
    epsilon, p, threshold = _checked(epsilon, rate, threshold)
    q = 1 - math.exp(-epsilon) * (1 - p)
    entropy = q * math.log(q / p) - epsilon * (1 - q)  # (1 - q) / (1 - p) = e^-epsilon
    return math.exp(-threshold / q * entropy)


def lemma_3_delta(epsilon: float, rate: float, threshold: int) -> float:
    """Return exp(-C threshold), C = ln(1/a) - 1/(1 + a), a = rate / (1 - e^-epsilon), for epsilon <= 1 (Lemma 3).

    Where C is negative the bound says nothing, and the answer is 1.

    >>> f"{lemma_3_delta(1.0, 0.10535, 20):.2g}"
    '7.6e-09'
    """
    epsilon, p, threshold = _checked(epsilon, rate, threshold)
    if epsilon > 1:
        raise InvalidValue(f"epsilon={epsilon:g} is above 1, where Lemma 3 says nothing. Use theorem_2_delta.")
    share = p / -math.expm1(-epsilon)
    return min(1.0, math.exp(-threshold * (math.log(1 / share) - 1 / (1 + share))))


def lemma_5_omission(frequencies: ArrayLike, rate: float, threshold: int) -> Floats:
    """Return exp(-(w - threshold)^2 / (2 w)), w = rate frequency: a bound on the chance to omit a value (Lemma 5).

    Where w is not above the threshold the bound says nothing, and the answer is 1.

    >>> f"{lemma_5_omission([1000], 0.1, 20)[0]:.2g}"
    '1.3e-14'
    """
    w, least = np.asarray(frequencies, np.float64) * checked_rate(rate), checked_threshold(threshold)
    return np.where(w > least, np.exp(-((w - least) ** 2) / (2 * np.maximum(w, 1e-300))), 1.0)


def lemma_6_reports(gamma: float, beta: float) -> float:
    """Return (3 / gamma^2) ln(2 / beta), the expected number of reports that Lemma 6 requires.

    A value with that many expected reports is counted within a relative error gamma < 1, but for probability beta. The
    paper prints ln(1 / 2 beta). `dpsieve.federated.enough_clients` has the exact number.

    >>> round(lemma_6_reports(0.1, 0.01))
    1589
    """
    gamma, beta = _checked_error(gamma), validate.between("beta", beta, 1e-100, 1.0, hint="Pass beta=0.01, say.")
    return 3 / gamma**2 * math.log(2 / beta)


def enough_clients(plan: Plan, gamma: float, beta: float) -> int:
    """Return the least W such that the count of any value of W or more clients is right within gamma, but for beta.

    That is, the value is released and |X / rate - w| <= gamma w, X ~ Binomial(w, rate). The chance to fail,
    P[X < c] + P[X > d] with c and d from w, changes by rate (P[X = d] - P[X = c-1]) from w to w + 1 while c and d stay.
    The ratio of the two masses grows with w, so that the chance falls first and rises then: it is largest at the ends
    of a run of equal c and d. Only these are tried, below the number that Lemma 6 proves.

    >>> from dpsieve.federated import plan
    >>> chosen = plan(1.0, 1e-8, rate=0.1)
    >>> enough_clients(chosen, 0.1, 0.01), round(lemma_6_reports(0.1, 0.01) / 0.1)
    (6046, 15895)
    """
    gamma, beta = _checked_error(gamma), validate.between("beta", beta, 1e-12, 0.5, hint="Pass beta=0.01, say.")
    proven = max(lemma_6_reports(gamma, beta), (plan.threshold + 1) / (1 - gamma))
    if proven > _MOST_REPORTS:
        raise InvalidValue(f"gamma={gamma:g} needs more than {_MOST_REPORTS:,} reports. Pass a larger one.")
    rate, last = plan.rate, math.ceil(proven / plan.rate) + 1
    edges = [_edges((1 - gamma) * rate, last), _edges((1 + gamma) * rate, last)]
    w = np.unique(np.concatenate([edge + k for edge in edges for k in (-1, 0, 1)]))
    w = w[(w >= 1) & (w <= last)]
    failing = np.flatnonzero(_failure(w, gamma, rate, plan.threshold) > beta)
    if not len(failing):
        return 1
    worst = int(w[failing[-1]])
    following = np.arange(worst, int(w[failing[-1] + 1]) + 1)  # the run that falls below beta somewhere
    return worst + int(np.argmax(_failure(following, gamma, rate, plan.threshold) <= beta))


def lemma_9_error(epsilon: float, clients: int, levels: int, threshold: int, branching: int = 2) -> float:
    """Return (branching - 1) (levels threshold)^2 / (epsilon clients), the error of a share by Lemma 9.

    It is what thresholds hide at a rate of epsilon / (levels threshold), threshold / (rate clients) for each of the
    levels (branching - 1) ranges at an edge. The lemma leaves out the error of the sample, some 1 / sqrt(rate clients),
    which is the larger one from about (levels threshold)^3 / epsilon clients on. So it is no bound, with any constant.

    >>> lemma_9_error(1.0, 1_000_000, 10, 10)
    0.01
    """
    epsilon, threshold = validate.positive_epsilon(epsilon), checked_threshold(threshold)
    n, ranges, levels = _ranges(clients, levels, branching)
    return ranges * levels * threshold**2 / (epsilon * n)


class EdgeError(NamedTuple):
    """How far the share of clients below an edge may be off, at its worst over all data.

    Attributes:
        hidden: the share that thresholds hide, in the mean.
        deviation: the standard deviation of a share by its sample alone, reports over (rate clients), where all clients
            are below the edge; the share f has sqrt(f) times it.
    """

    hidden: float
    deviation: float


def edge_error(plan: LevelPlan, clients: int, branching: int = 2) -> EdgeError:
    """Return the exact error beside Lemma 9, for a tree of ranges with this plan.

    A range of w clients loses E[X; X < threshold] / rate = w P[Binomial(w - 1, rate) < threshold - 1] of them in the
    mean, X ~ Binomial(w, rate), and at an edge there are levels (branching - 1) ranges: all may have the worst w. The
    deviation is sqrt((1 - rate) / (rate clients)), that of a binomial count.

    >>> from dpsieve.federated import level_plan
    >>> chosen = level_plan(1.0, 1e-8, 10, coin=0.01, threshold=10)
    >>> [round(error, 4) for error in edge_error(chosen, 1_000_000)]
    [0.0052, 0.0099]
    """
    n, ranges, _ = _ranges(clients, plan.levels, branching)
    rate, threshold = plan.rate, plan.threshold
    low, high, worst = 1.0, min(4 * threshold / rate, float(n)), 0.0
    for _ in range(4):  # finer and finer about the worst one
        w = np.unique(np.rint(np.linspace(low, high, 129)))
        lost = w * below(w - 1, threshold - 1, rate) if threshold > 1 else 0 * w
        place = int(np.argmax(lost))
        low, high = w[max(place - 1, 0)], w[min(place + 1, len(w) - 1)]
        worst = max(worst, float(lost[place]))
    return EdgeError(min(1.0, ranges * worst / n), math.sqrt((1 - rate) / (rate * n)))


@dataclass(frozen=True)
class Invitation:
    """A fixed number of clients to invite, in which a sample of each client on its own fits.

    Attributes:
        population, rate: how many clients there are, and the rate with which each is to be sampled.
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
    n = validate.whole("population", population, low=1, high=_MOST_CLIENTS, hint="Pass how many clients there are.") + 1
    p, beta = checked_rate(rate), _small(beta)
    enough = first_whole(lambda count: upper_tail(n, p, count + 1) <= beta, math.floor(n * p) + 1, n)
    mean = population * p
    paper = math.ceil(mean + math.sqrt(3 * math.log(1 / beta) * mean))
    return Invitation(population, p, enough, upper_tail(n, p, enough + 1), min(paper, n))


def invite_for_reports(reports: int, rate: float, *, beta: float = 1e-6) -> int:
    """Return the fewest clients to invite so that, but for probability beta, at least `reports` of them report.

    Each invited client reports with probability `rate`, by a coin of its own: P[Binomial(s, rate) < reports] <= beta.
    The guarantee is that of `sample_threshold(rate, threshold)`, also for those who know who was invited.

    >>> invite_for_reports(1000, 0.1, beta=1e-6)
    11495
    """
    wanted = validate.whole("reports", reports, low=1, high=10**9, hint="Pass how many reports are needed.")
    p, beta = checked_rate(rate), _small(beta)
    return first_whole(lambda count: lower_tail(count, p, wanted - 1) <= beta, math.ceil(wanted / p), _NEVER)


def _ranges(clients: int, levels: int, branching: int) -> tuple[int, int, int]:
    """Return the number of clients, that of ranges at an edge, and that of levels."""
    n = validate.whole("clients", clients, low=1, high=_MOST_CLIENTS, hint="Pass how many clients there are.")
    levels = validate.whole("levels", levels, low=1, high=MOST_LEVELS, hint="Pass how many levels there are.")
    parts = validate.whole("branching", branching, low=2, high=256, hint="Pass 2 to 256, such as branching=4.")
    return n, levels * (parts - 1), levels


def _checked_error(gamma: float) -> float:
    """Return a relative error above zero and below one."""
    return validate.between("gamma", gamma, 1e-3, 1 - 1e-9, hint="Pass a relative error such as gamma=0.1.")


def _checked(epsilon: float, rate: float, threshold: int) -> tuple[float, float, int]:
    epsilon, rate, threshold = validate.epsilon(epsilon), checked_rate(rate), checked_threshold(threshold)
    if rate > -math.expm1(-epsilon):
        hint = "Pass a lower rate; the exact delta of dpsieve.channels.binomial.rows has no such limit."
        raise InvalidValue(f"rate={rate:g} is above 1 - e^-epsilon, where the paper has no bound. {hint}")
    return epsilon, rate, threshold


def _edges(slope: float, last: int) -> Ints:
    """Return about where slope w passes each whole number."""
    return np.floor(np.arange(0, math.ceil(slope * last) + 1) / slope).astype(np.int64)


def _failure(w: Ints, gamma: float, rate: float, threshold: int) -> Floats:
    least = np.maximum(np.ceil((1 - gamma) * rate * w), threshold)
    most = np.floor((1 + gamma) * rate * w)
    missed = below(w, np.maximum(least, 1), rate)
    return np.minimum(np.where(most < least, 1.0, missed + at_least(w, most + 1, rate)), 1.0)


def _small(beta: float) -> float:
    hint = "Pass a small probability such as beta=1e-6."
    number = validate.between("beta", beta, 1e-100, 0.5, hint=hint)
    if number == 0.5:
        raise InvalidValue(f"beta=0.5 is no small probability. {hint}")
    return number
