"""How many clients must have a value so that its count is right, exactly."""

import math

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact.binomial import Floats, Ints, at_least, below
from dpsieve.federated.paper import checked_error, lemma_6_reports
from dpsieve.federated.plan import Plan

_MOST = 10**6  # expected reports


def enough_clients(plan: Plan, gamma: float, beta: float) -> int:
    """Return the least W such that any value of W or more clients is counted well: within gamma, but for beta.

    Well means that the value is released and that |X / rate - w| <= gamma w, X ~ Binomial(w, rate). The chance to fail,
    P[X < c] + P[X > d] with c and d from w, changes by rate (P[X = d] - P[X = c-1]) from w to w + 1 while c and d stay.
    The ratio of the two masses grows with w, so that the chance falls first and rises then: it is largest at the ends
    of a run of equal c and d. These are all that is looked at, below what Lemma 6 of the paper proves enough.

    >>> from dpsieve.federated import plan
    >>> chosen = plan(1.0, 1e-8, rate=0.1)
    >>> enough_clients(chosen, 0.1, 0.01), round(lemma_6_reports(0.1, 0.01) / 0.1)
    (6046, 15895)
    """
    gamma, beta = checked_error(gamma), validate.between("beta", beta, 1e-12, 0.5, hint="Pass beta=0.01, say.")
    proven = max(lemma_6_reports(gamma, beta), (plan.threshold + 1) / (1 - gamma))
    if proven > _MOST:
        raise InvalidValue(f"gamma={gamma:g} needs more than {_MOST:,} reports. Pass a larger one.")
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


def _edges(slope: float, last: int) -> Ints:
    """Return about where slope w passes each whole number."""
    return np.floor(np.arange(0, math.ceil(slope * last) + 1) / slope).astype(np.int64)


def _failure(w: Ints, gamma: float, rate: float, threshold: int) -> Floats:
    least = np.maximum(np.ceil((1 - gamma) * rate * w), threshold)
    most = np.floor((1 + gamma) * rate * w)
    missed = below(w, np.maximum(least, 1), rate)
    return np.minimum(np.where(most < least, 1.0, missed + at_least(w, most + 1, rate)), 1.0)
