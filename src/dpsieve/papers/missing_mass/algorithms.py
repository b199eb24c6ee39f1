"""Algorithms 1 to 4 as printed, and the baselines for top-k and hitting sets.

T. Dick, M. Joseph and V. Raman, "Missing Mass for Differentially Private Domain Discovery" (2026). The library's own
calibrations (`weighted_gaussian` of this package, `top_keys` and `hitting_keys` of `dpsieve.discovery.picks`) keep the
same guarantee with less noise; these are for comparisons.
"""

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri_exp

from dpsieve import validate
from dpsieve.accounting.curves import gaussian_sigma
from dpsieve.accounting.exponential_picks import checked_picks, hitting_epsilon, lemma_epsilon, picks_epsilon
from dpsieve.discovery.picks import HittingKeys, TopKeys, peel
from dpsieve.discovery.selector import Selector
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue
from dpsieve.papers.missing_mass.weighted_gaussian import WeightedGaussian
from dpsieve.privacy.mechanism import remaining
from dpsieve.randomness.picks import noisy_top
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Ints
from dpsieve.validate import check_budget, check_max_keys

Analysis = Literal["best", "paper"]
_SAFE = 1 + 1e-9  # far above the rounding of the formulas


def paper_weighted_gaussian(epsilon: float, delta: float, max_keys: int, *, unit: str = "one row") -> WeightedGaussian:
    """Return the weighted Gaussian mechanism (Algorithm 1) with the noise and threshold of Theorem 3.2.

    Half of delta is for the noise, half for the threshold (Theorem 5.1 of Gopi et al. 2020). The threshold is 5 to 8 %
    higher than that of `dpsieve.papers.missing_mass.weighted_gaussian`.

    >>> round(paper_weighted_gaussian(1.0, 1e-5, 100).threshold, 2)
    20.79
    """
    (epsilon, delta), keys = check_budget(epsilon, delta), check_max_keys(max_keys)
    sigma = gaussian_sigma(epsilon, delta / 2)
    return WeightedGaussian(epsilon, delta, keys, sigma, paper_threshold(sigma, delta / 2, keys), unit=unit)


def paper_threshold(sigma: float, delta: float, max_keys: int) -> float:
    """Return T of Theorem 3.2: the largest of 1/sqrt(t) + sigma Phi^-1((1 - delta)^(1/t)) over t <= max_keys.

    >>> round(paper_threshold(1.0, 1e-5, 10), 3)
    5.265
    """
    t = np.arange(1, max_keys + 1)
    shown = -np.expm1(np.log1p(-delta) / t)  # Phi^-1(1 - x) = -Phi^-1(x), so small deltas keep their digits
    return float((1 / np.sqrt(t) - sigma * ndtri_exp(np.log(shown))).max()) * _SAFE


def lemma_c_1(epsilon: float, delta: float) -> float:
    """Return the closed form of sigma in Lemma C.1, which is sufficient for Theorem 3.2.

    The positive root of 2 epsilon sigma^2 + 2 z sigma = 1, with z = Phi^-1(delta/2).

    >>> lemma_c_1(1.0, 1e-5) > paper_weighted_gaussian(1.0, 1e-5, 100).sigma
    True
    """
    z = float(ndtri_exp(np.log(delta / 2)))
    return (-z + math.sqrt(z**2 + 2 * epsilon)) / (2 * epsilon)


def paper_top_keys(
    epsilon: float, delta: float, max_keys: int, k: int, *, selector: Selector | None = None, unit: str = "one row"
) -> TopKeys:
    """Return the top-k mechanism of Algorithms 2 and 3: discovery, then k picks of the epsilon of Lemma 4.1.

    By default the discovery is `paper_weighted_gaussian` with half of epsilon and delta; the picks have the rest.

    >>> paper_top_keys(1.0, 1e-5, 10, k=100).each_epsilon < 0.03
    True
    """
    selector = selector or paper_weighted_gaussian(epsilon / 2, delta / 2, max_keys, unit=unit)
    return TopKeys(epsilon, delta, k, _lemma_epsilon(selector, epsilon, delta, k), selector=selector)


def paper_hitting_keys(
    epsilon: float, delta: float, max_keys: int, k: int, *, selector: Selector | None = None, unit: str = "one row"
) -> HittingKeys:
    """Return the hitting-set mechanism of Algorithms 2 and 4, budgeted as `paper_top_keys`.

    >>> paper_hitting_keys(1.0, 1e-5, 10, k=100).each_epsilon == paper_top_keys(1.0, 1e-5, 10, k=100).each_epsilon
    True
    """
    selector = selector or paper_weighted_gaussian(epsilon / 2, delta / 2, max_keys, unit=unit)
    return HittingKeys(epsilon, delta, k, _lemma_epsilon(selector, epsilon, delta, k), selector=selector)


def greedy_keys(pairs: Pairs, k: int) -> Ints:
    """Return k keys of the plain greedy algorithm for hitting sets. It is not private.

    The non-private baseline of Figures 3 and 13.

    >>> greedy_keys(Pairs.of(["ab", "a", "bc", "c"]), 2).tolist()
    [0, 2]
    """
    return peel(pairs, k, None)


def known_domain_keys(
    pairs: Pairs,
    k: int,
    epsilon: float,
    delta: float,
    *,
    analysis: Analysis = "best",
    source: Source | None = None,
) -> Ints:
    """Return k keys by user peeling over all keys of `pairs`: private only if these keys are public.

    The known-domain baseline of Figures 3 and 13. With analysis='paper', picks have the epsilon of Lemma 4.1; otherwise
    the exact one.

    >>> known_domain_keys(Pairs.of(["a"] * 5000 + ["b"]), 1, epsilon=1.0, delta=1e-5).tolist()
    [0]
    """
    each = (lemma_epsilon if analysis == "paper" else hitting_epsilon)(epsilon, delta, checked_picks(k))
    return peel(pairs, k, 1 / each, source)


def limited_domain(
    counts: ArrayLike,
    k: int,
    k_bar: int | None,
    epsilon: float,
    delta: float,
    *,
    max_keys: int | None = None,
    analysis: Analysis = "best",
    source: Source | None = None,
) -> Ints:
    """Return the places of at most k keys by the limited-domain mechanism, the baseline of Figures 2, 11 and 12.

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


def _lemma_epsilon(selector: Selector, epsilon: float, delta: float, k: int) -> float:
    left = remaining(epsilon, selector.guarantee.epsilon), remaining(delta, selector.guarantee.delta)
    if min(left) <= 0:
        raise InvalidValue("selector spends all of the budget. Pass one with a part of epsilon and delta.")
    return lemma_epsilon(*left, checked_picks(k))


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
