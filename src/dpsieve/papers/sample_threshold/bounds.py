"""The bounds of Bharadwaj and Cormode, "Sample-and-threshold differential privacy" (AISTATS 2022), for comparison.

Theorem 2 and Lemma 3 are valid and far from tight: at epsilon = 1, rate 0.10535 and threshold 20 they give 1.5e-12 and
7.6e-9, and the exact delta is 6.9e-15. Both are for one client more or less, and for rates up to 1 - e^-epsilon.
Lemma 4 is about who is invited, Lemmas 5, 6 and 9 about accuracy; `dpsieve.papers.sample_threshold.invite_for_sample`,
`BinomialLaw.withheld`, `enough_clients` and `edge_error` are the exact numbers beside them. All are plain floats, for
figures; guarantees come from `dpsieve.noise.sample_threshold`.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.channel import checked_frequencies
from dpsieve.errors import InvalidValue
from dpsieve.exact.binomial import at_least, below
from dpsieve.federated.client.strings import MOST_LEVELS
from dpsieve.federated.plans.levels import LevelPlan
from dpsieve.noise.sample_threshold import SampleThreshold, check_rate, check_threshold
from dpsieve.types import Floats, Ints

_MOST_REPORTS, _MOST_CLIENTS = 10**6, 10**12


def lemma_1_ratio(rate: float, copies: int, count: int) -> float:
    """Return the ratio of the probabilities of a count with k and with k - 1 copies: (1 - rate) k/(k - v) (Lemma 1).

    >>> lemma_1_ratio(0.1, copies=30, count=20)
    2.7
    """
    return (1 - check_rate(rate)) * copies / (copies - count)


def theorem_2_delta(epsilon: float, rate: float, threshold: int) -> float:
    """Return exp(-(threshold / q) D(q || rate)), q = 1 - e^-epsilon (1 - rate), D the relative entropy (Theorem 2).

    >>> f"{theorem_2_delta(1.0, 0.10535, 20):.2g}"
    '1.5e-12'
    """
    epsilon, p, threshold = _checked(epsilon, rate, threshold)
    q = 1 - math.exp(-epsilon) * (1 - p)
    entropy = q * math.log(q / p) - epsilon * (1 - q)  # (1 - q) / (1 - p) = e^-epsilon
    return math.exp(-threshold / q * entropy)


def fixed_sample_delta(clients: int, sample: int) -> float:
    """Return the least delta, at every epsilon, of counts of a sample whose fixed size is known: m/n (Section 3.2).

    Compare n clients with one value, and n - 1 of them with one client of another. The other one is sampled with
    probability m/n; its value is below the threshold, so that the published counts add up to m - 1. In the first data
    they always add up to m (if that reaches the threshold). So the size of a sample must be random, and must not be
    published: draw clients by independent coins.

    >>> fixed_sample_delta(1_000_000, 10_000)
    0.01
    """
    n = validate.whole("clients", clients, low=1, high=_MOST_CLIENTS, hint="Pass the number of all clients.")
    hint = "Pass the size of the sample, at most the number of clients."
    return validate.whole("sample", sample, low=0, high=n, hint=hint) / n


def lemma_3_delta(epsilon: float, rate: float, threshold: int) -> float:
    """Return exp(-C threshold), C = ln(1/a) - 1/(1 + a), a = rate / (1 - e^-epsilon), for epsilon <= 1 (Lemma 3).

    1 where C is negative: no bound.

    >>> f"{lemma_3_delta(1.0, 0.10535, 20):.2g}"
    '7.6e-09'
    """
    epsilon, p, threshold = _checked(epsilon, rate, threshold)
    if epsilon > 1:
        raise InvalidValue(f"epsilon={epsilon:g} is above 1, where Lemma 3 does not apply. Use theorem_2_delta.")
    share = p / -math.expm1(-epsilon)
    return min(1.0, math.exp(-threshold * (math.log(1 / share) - 1 / (1 + share))))


def lemma_4_invited(population: int, rate: float, beta: float) -> int:
    """Return m + c sqrt(m), m = rate population: a sample fits among these, except with probability beta (Lemma 4).

    c is that of the Chernoff bound. `dpsieve.papers.sample_threshold.invite_for_sample` has the exact number.

    >>> lemma_4_invited(1_000_000, 0.1, 1e-12)
    102880
    """
    mean = population * check_rate(rate)
    return min(math.ceil(mean + math.sqrt(3 * math.log(1 / beta) * mean)), population + 1)


def lemma_5_omission(frequencies: ArrayLike, rate: float, threshold: int) -> Floats:
    """Return exp(-(w - threshold)^2 / (2 w)), w = rate frequency: a bound on the chance to omit a value (Lemma 5).

    1 where w is not above the threshold: no bound. `BinomialLaw.withheld` is the exact probability.

    >>> f"{lemma_5_omission([1000], 0.1, 20)[0]:.2g}"
    '1.3e-14'
    """
    w, least = checked_frequencies(frequencies) * check_rate(rate), check_threshold(threshold)
    return np.where(w > least, np.exp(-((w - least) ** 2) / (2 * np.maximum(w, 1e-300))), 1.0)


def lemma_6_reports(gamma: float, beta: float) -> float:
    """Return (3 / gamma^2) ln(2 / beta), the expected number of reports that Lemma 6 requires.

    A value with that many expected reports is counted within a relative error gamma < 1, except with probability beta.
    The paper prints ln(1 / 2 beta). `enough_clients` has the exact number.

    >>> round(lemma_6_reports(0.1, 0.01))
    1589
    """
    gamma, beta = _checked_error(gamma), validate.between("beta", beta, 1e-100, 1.0, hint="Pass beta=0.01, say.")
    return 3 / gamma**2 * math.log(2 / beta)


def enough_clients(plan: SampleThreshold, gamma: float, beta: float) -> int:
    """Return the least W such that the count of any value of W or more clients is within gamma, except for beta.

    That is, the value is released and |X / rate - w| <= gamma w, X ~ Binomial(w, rate). The chance to fail,
    P[X < c] + P[X > d] with c and d from w, changes by rate (P[X = d] - P[X = c-1]) from w to w + 1 while c and d stay.
    The ratio of the two masses grows with w, so the chance falls first and then rises: it is largest at the ends
    of a run of equal c and d. Only these are evaluated, below the number that Lemma 6 proves.

    >>> from dpsieve.federated.plans.histogram import plan
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

    This is what thresholds hide at a rate of epsilon / (levels threshold), threshold / (rate clients) for each of the
    levels (branching - 1) ranges at an edge. The lemma leaves out the error of the sample, some 1 / sqrt(rate clients),
    which dominates from about (levels threshold)^3 / epsilon clients on. So it is no bound, with any constant.

    >>> lemma_9_error(1.0, 1_000_000, 10, 10)
    0.01
    """
    epsilon, threshold = validate.positive_epsilon(epsilon), check_threshold(threshold)
    n, ranges, levels = _ranges(clients, levels, branching)
    return ranges * levels * threshold**2 / (epsilon * n)


class EdgeError(NamedTuple):
    """The error of the share of clients below an edge, at its worst over all data.

    Attributes:
        hidden: the expected share that thresholds hide.
        deviation: the standard deviation of a share by its sample alone, reports over (rate clients), where all clients
            are below the edge; the share f has sqrt(f) times it.
    """

    hidden: float
    deviation: float


def edge_error(plan: LevelPlan, clients: int, branching: int = 2) -> EdgeError:
    """Return the exact error beside Lemma 9, for a tree of ranges with this plan.

    A range of w clients loses E[X; X < threshold] / rate = w P[Binomial(w - 1, rate) < threshold - 1] of them on
    average, X ~ Binomial(w, rate), and at an edge there are levels (branching - 1) ranges: all may have the worst w.
    The deviation is sqrt((1 - rate) / (rate clients)), that of a binomial count.

    >>> from dpsieve.federated.plans.levels import level_plan
    >>> chosen = level_plan(1.0, 1e-8, 10, coin=0.01, threshold=10)
    >>> [round(error, 4) for error in edge_error(chosen, 1_000_000)]
    [0.0052, 0.0099]
    """
    n, ranges, _ = _ranges(clients, plan.levels, branching)
    rate, threshold = plan.rate, plan.threshold
    low, high, worst = 1.0, min(4 * threshold / rate, float(n)), 0.0
    for _ in range(4):  # refine around the worst one
        w = np.unique(np.rint(np.linspace(low, high, 129)))
        lost = w * below(w - 1, threshold - 1, rate) if threshold > 1 else 0 * w
        place = int(np.argmax(lost))
        low, high = w[max(place - 1, 0)], w[min(place + 1, len(w) - 1)]
        worst = max(worst, float(lost[place]))
    return EdgeError(min(1.0, ranges * worst / n), math.sqrt((1 - rate) / (rate * n)))


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
    epsilon, rate, threshold = validate.epsilon(epsilon), check_rate(rate), check_threshold(threshold)
    if rate > -math.expm1(-epsilon):
        hint = "Pass a lower rate; the exact delta of dpsieve.noise.sample_threshold has no such limit."
        raise InvalidValue(f"rate={rate:g} is above 1 - e^-epsilon, where the paper has no bound. {hint}")
    return epsilon, rate, threshold


def _edges(slope: float, last: int) -> Ints:
    """Return about where slope w passes each integer."""
    return np.floor(np.arange(0, math.ceil(slope * last) + 1) / slope).astype(np.int64)


def _failure(w: Ints, gamma: float, rate: float, threshold: int) -> Floats:
    least = np.maximum(np.ceil((1 - gamma) * rate * w), threshold)
    most = np.floor((1 + gamma) * rate * w)
    missed = below(w, np.maximum(least, 1), rate)
    return np.minimum(np.where(most < least, 1.0, missed + at_least(w, most + 1, rate)), 1.0)
