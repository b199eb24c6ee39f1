"""The limited-domain top-k of Durfee and Rogers (2019): a baseline for figures, never chosen by the library."""

import math

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.accounting.exponential_picks import checked_picks, picks_epsilon
from dpsieve.randomness.picks import noisy_top
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Ints


def limited_domain(
    counts: ArrayLike,
    k: int,
    k_bar: int | None,
    epsilon: float,
    delta: float,
    *,
    max_keys: int | None = None,
    analysis: str = "best",
    source: Source | None = None,
) -> Ints:
    """Return the places of at most k keys by the limited-domain mechanism. A baseline.

    Algorithm 1 of D. Durfee and R. Rogers, "Practical Differentially Private Top-k Selection with Pay-what-you-get
    Composition", NeurIPS 2019. The k_bar largest counts h_(1) >= ... and a bar
    h_bar = h_(k_bar+1) + 1 + ln(min(max_keys, k_bar) / delta_1) / e0 get Gumbel noise of scale 1/e0; the keys above the
    bar are returned in noisy order, k at most. Neighbours are add/remove of one unit, which raises counts by at most
    one. Half of delta is delta_1, the other half pays for the composition of k picks (Theorem 1 there). The bar is
    rounded up to a whole number, so that the order is drawn exactly.

    Args:
        counts: the number of units of each key; with `max_keys`, after every unit was cut to this number of keys.
        k: the largest number of keys to return.
        k_bar: the number of counts to consider, from k on; None for all, which needs `max_keys`.
        epsilon, delta: the budget.
        max_keys: the largest number of keys per unit, if units were cut; None for no bound.
        analysis: 'best' composes picks exactly, which favours the baseline; 'paper' as in Theorem 1.
        source: of randomness.

    >>> limited_domain([9_000, 5_000, 1_000, 1, 1], k=2, k_bar=3, epsilon=1.0, delta=1e-5).tolist()
    [0, 1]
    """
    values = validate.integers("counts", counts, hint="Pass whole counts, one for each key.")
    k, source = checked_picks(k), resolve(source)
    half = validate.positive("delta", validate.delta(delta), hint="Pass one such as delta=1e-5.") / 2
    hint = "Pass a whole number from k on, or None together with max_keys."
    considered = None if k_bar is None else validate.whole("k_bar", k_bar, low=k, hint=hint)
    if max_keys is not None:
        max_keys = validate.whole("max_keys", max_keys, low=1, hint="Pass the largest number of keys per unit.")
    if max_keys is None and considered is None:
        considered = validate.whole("k_bar", k_bar, low=k, hint=hint)
    changed = min(bound for bound in (max_keys, considered) if bound is not None)
    each = _theorem(epsilon, half, k) if analysis == "paper" else picks_epsilon(epsilon, half, k)
    order = np.argsort(-values, kind="stable")
    top = order if considered is None else order[:considered]
    beyond = int(values[order[len(top)]]) if len(top) < len(order) else 0
    bar = beyond + 1 + math.ceil(math.log(changed / half) / each)
    ranked = noisy_top(np.append(values[top], bar), len(top) + 1, scale=1 / each, source=source)
    above = int(np.flatnonzero(ranked == len(top))[0])
    return np.asarray(top[ranked[: min(above, k)]])


def _theorem(epsilon: float, delta: float, k: int) -> float:
    """Return the largest e0, nearly, for k picks by Theorem 1.

    With L = ln(1/delta): min(k e0, k e0 tanh(e0/2) + e0 sqrt(2 k L), k e0^2/2 + e0 sqrt(k L/2)) <= epsilon.
    """
    logarithm = math.log(1 / delta)

    def cost(e0: float) -> float:
        general = k * e0 * math.tanh(e0 / 2) + e0 * math.sqrt(2 * k * logarithm)
        return min(k * e0, general, k * e0**2 / 2 + e0 * math.sqrt(k * logarithm / 2))

    low, high = epsilon / k, 2 * epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= epsilon else (low, middle)
    return low
