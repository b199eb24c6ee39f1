"""Set union by weights, Gaussian noise and a threshold: the weighted Gaussian mechanism.

Gopi, Gulhane, Kulkarni, Shen, Shokouhi and Yekhanin, "Differentially Private Set Union", ICML 2020.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri_exp

from dpsieve import validate
from dpsieve.channels.makers import most_keys, unknown_domain
from dpsieve.discovery.gaussian_exposure import exposures, lowest_threshold, sizes_delta
from dpsieve.discovery.selector import WeightSelector
from dpsieve.errors import InvalidValue
from dpsieve.privacy import Approximate, Certificate, Gaussian, Spend
from dpsieve.privacy.certificate import formula
from dpsieve.privacy.contribution import Weight
from dpsieve.privacy.curves.gaussian import gaussian_sigma
from dpsieve.privacy.registry import register
from dpsieve.randomness import gaussian_test
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Floats, Ints

BITS = 30  # of a weight after the point
_SAFE = 1 + 1e-9
_SAVED = "Pass the saved one."


def weighted_gaussian(
    epsilon: float, delta: float, max_keys: int, *, analysis: str = "exact", unit: str = "one row"
) -> "WeightedGaussian":
    """Return the weighted Gaussian mechanism with the lowest threshold that keeps (epsilon, delta).

    Args:
        epsilon, delta: what is promised to one unit.
        max_keys: how many keys a unit keeps, up to 10,000.
        analysis: 'exact' for the analysis of `WeightedGaussian`; 'paper' for Theorem 3.2 of the paper on missing mass
            (Theorem 5.1 of Gopi et al.), which gives half of delta to the noise and half to the threshold. Both keep
            the promise; the second needs a threshold that is 5 to 8 % higher.
        unit: who is protected, in words, for the guarantee.

    >>> round(weighted_gaussian(1.0, 1e-5, 100).threshold, 2)
    19.5
    >>> round(weighted_gaussian(1.0, 1e-5, 100, analysis="paper").threshold, 2)
    20.79
    """
    (epsilon, delta), keys = unknown_domain(epsilon, delta), most_keys(max_keys)
    if analysis == "exact":
        sigma, threshold = lowest_threshold(
            epsilon, delta, lambda sigma, at: sizes_delta(epsilon, sigma, _exposures(sigma, at, keys))
        )
    elif analysis == "paper":
        sigma = gaussian_sigma(epsilon, delta / 2)
        threshold = paper_threshold(sigma, delta / 2, keys)
    else:
        raise InvalidValue("analysis is neither 'exact' nor 'paper'. Pass analysis='exact'.")
    return WeightedGaussian(epsilon, delta, keys, sigma, threshold, unit=unit)


def paper_threshold(sigma: float, delta: float, max_keys: int) -> float:
    """Return max over t <= max_keys of 1/sqrt(t) + sigma Phi^-1((1 - delta)^(1/t)); small deltas keep their digits."""
    t = np.arange(1, max_keys + 1)
    shown = -np.expm1(np.log1p(-delta) / t)  # Phi^-1(1 - x) = -Phi^-1(x)
    return float((1 / np.sqrt(t) - sigma * ndtri_exp(np.log(shown))).max()) * _SAFE


@register("weighted_gaussian")
@dataclass(frozen=True, repr=False)
class WeightedGaussian(WeightSelector):
    """A unit adds 1/sqrt(s) to each of its s keys; a key is selected when its sum plus N(0, sigma^2) reaches T.

    Weights are rounded down to multiples of 2^-30 and their sums are exact; whether sum + noise reaches T is drawn
    exactly (`randomness.gaussian_test`).

    Guarantee, for add/remove of one unit, with L_s = ln Phi((T - 1/sqrt(s))/sigma) and
    d(e, mu) = Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu):

        delta(eps) = the largest of  1 - e^(j L_s) + e^(j L_s) d(eps - j L_s, sqrt((s - j)/s)/sigma)
                     and of          d(eps + j L_s, sqrt((s - j)/s)/sigma)    over 1 <= s <= max_keys, 0 <= j <= s.

    Proof. A unit with s keys, j of them held by nobody else, adds w <= 1/sqrt(s) to each. Its new keys stay silent with
    probability Phi((T - w)/sigma)^j >= e^(j L_s); the others move by w sqrt(s - j) <= sqrt((s - j)/s) in l2 norm. The
    two parts are independent; `discovery.gaussian_exposure` has their divergence, which grows with both. Sums of zero
    are never selected, so that without the unit its new keys never show. For s > 64 every share of new keys is
    allowed, which costs less than one part in a thousand of delta.

    What it spends. The pair of outputs is at worst one that leaks everything with probability 1 - e^(s L_s), and else
    a Gaussian of distance 1, as for `channels.gaussian`.
    """

    sigma: float
    threshold: float

    def __post_init__(self) -> None:
        super().__post_init__()
        sigma = validate.between("sigma", self.sigma, 0.025, 1e5, hint=_SAVED)
        self._set(sigma=sigma, threshold=validate.between("threshold", self.threshold, 0.0, 1e6, hint=_SAVED))
        self.certify()

    @property
    def weight(self) -> Weight:
        """What a unit adds to each of its keys, in steps of 2^-30."""
        return Weight(BITS)

    def select_by_weights(self, weights: Ints, source: Source) -> Bools:
        """Return which keys are selected."""
        return select_by_noise(weights, self.threshold, self.sigma, source)

    def certify(self) -> Certificate:
        """Return the certificate, by formulas in floating point that are rounded up."""
        return self._certificate

    @cached_property
    def _certificate(self) -> Certificate:
        covers = f"weights 1/sqrt(keys), Gaussian noise and a threshold, for units of at most {self.max_keys:,} keys"
        worst = sizes_delta(self.epsilon, self.sigma, _exposures(self.sigma, self.threshold, self.max_keys))
        return formula(self.guarantee, worst, "formula", covers)

    def spends(self) -> tuple[Spend, ...]:
        """Return the Gaussian curve of the noise, and the probability that a key which only one unit holds shows."""
        return Gaussian(self.sigma), Approximate(0.0, leak(self.sigma, self.threshold, self.max_keys))

    def units_needed(self, keys: int) -> float:
        """Return how many units with `keys` keys each must hold a key for it to be selected half of the time.

        >>> round(weighted_gaussian(1.0, 1e-5, 10).units_needed(10), 1)
        57.1
        """
        hint = "Pass how many keys each of the units holds."
        return self.threshold * math.sqrt(validate.whole("keys", keys, low=1, high=self.max_keys, hint=hint))


def select_by_noise(weights: Ints, threshold: float, sigma: float, source: Source) -> Bools:
    """Return which sums of weights, in steps of 2^-30, are above zero and reach the threshold with Gaussian noise."""
    selected = np.zeros(len(weights), np.bool_)
    held = np.flatnonzero(weights)
    # Beyond 2^52 sums are cut off, which brings neighbours no further apart; below, floats are exact.
    sums = np.minimum(weights[held], 1 << 52).astype(np.float64)
    selected[held] = gaussian_test(sums, threshold * 2.0**BITS, sigma * 2.0**BITS, source=source)
    return selected


def leak(sigma: float, threshold: float, max_keys: int) -> float:
    """Return the probability that a unit whose keys nobody else holds shows any of them, rounded up."""
    return min(1.0, -math.expm1(-float(_exposures(sigma, threshold, max_keys).max())) * _SAFE)


def _exposures(sigma: float, threshold: float, max_keys: int) -> Floats:
    """Return the exposure of units with 1, 2, ..., max_keys keys that nobody else holds."""
    sizes = np.arange(1, max_keys + 1)
    return sizes * exposures(sigma, threshold, 1 / np.sqrt(sizes))
