"""Set union by weights, Gaussian noise and a threshold: the weighted Gaussian mechanism, with its exact delta.

Gopi, Gulhane, Kulkarni, Shen, Shokouhi and Yekhanin, "Differentially Private Set Union", ICML 2020; Algorithm 1 of
Dick, Joseph and Raman, "Missing Mass for Differentially Private Domain Discovery" (2026).

What the output shows of one unit whose weights have l2 norm 1. Weights of keys get noise N(0, sigma^2); a key shows
when the sum is at least T. A unit gives weights to its keys; on those that nobody else holds, the new ones, their
squares sum to 1 - u, and what the unit changes in all others has squares that sum to u at most, 0 <= u <= 1. Let e^-l
be the probability that no new key shows. Without the unit none can, and the two parts are independent, so with the unit
the output is P = (new keys) x N(shift), without it Q = (none) x N(0), both followed by the threshold. For d(eps, mu) =
Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), the divergence of Gaussians at distance mu = sqrt(u)/sigma, and for all
sets S of values of the others,

    sup P - e^eps Q = 1 - e^-l + sup_S (e^-l N(shift)(S) - e^eps N(0)(S)) = 1 - e^-l + e^-l d(eps + l, mu),
    sup Q - e^eps P = sup_S (N(0)(S) - e^eps e^-l N(shift)(S))            = d(eps - l, mu).

Both grow with l (they are suprema of functions of e^-l that fall) and with mu. The exposure A of a unit is -ln of the
probability that none of its keys shows where all are new. The mechanisms here keep l <= (1 - u) A, so the largest
exposure and all u decide, and delta(eps) = max over u of both. With equal weights of 1 this is the analysis of Wilkins,
Kifer, Zhang and Karrer (2024). In all cases tried the maximum is at u = 0 or u = 1; the code does not rely on that.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy.special import log_ndtr

from dpsieve import validate
from dpsieve.accounting.curves import gaussian_curve, gaussian_sigma
from dpsieve.accounting.spends import Approximate, Gaussian, Spend
from dpsieve.codec import register
from dpsieve.discovery.selector import WeightSelector
from dpsieve.exact.balls import smallest
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Weight
from dpsieve.randomness import gaussian_test
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Floats, Ints
from dpsieve.validate import check_budget, check_max_keys

BITS = 30  # of a weight after the point
_SAFE = 1 + 1e-9  # far above the rounding of the formulas
_FEW = 64  # units with at most this number of keys are checked one by one
_INTERVALS = 4096
_SAVED = "Pass the saved one."


def exposures(sigma: float, threshold: float, weights: Floats) -> Floats:
    """Return -ln P[a new key of this weight does not show] for each weight.

    >>> exposures(1.0, 1.0, np.array([1.0])).round(3).tolist()
    [0.693]
    """
    return np.asarray(-log_ndtr((threshold - weights) / sigma))


def whole_delta(epsilon: float, sigma: float, exposure: float) -> float:
    """Return delta(epsilon), rounded up, for every u in [0, 1] and every exposure up to this one.

    In each of 4,096 intervals of u, l is taken at its left and mu at its right end, where they are largest.

    >>> f"{whole_delta(1.0, 4.0, 1e-6):.3g}"
    '2.92e-06'
    """
    u = np.arange(_INTERVALS + 1) / _INTERVALS
    return _delta(epsilon, sigma, exposure * (1 - u[:-1]), u[1:])


def sizes_delta(epsilon: float, sigma: float, exposure: Floats) -> float:
    """Return delta(epsilon), rounded up, for units of 1, 2, ... keys of equal weight, given the exposure of each.

    A unit with s keys, j of them new, has u = (s - j)/s and l = j/s times its exposure. Up to 64 keys all pairs (s, j)
    are checked; beyond, the largest exposure with every u.

    >>> f"{sizes_delta(1.0, 4.0, np.array([1e-6, 1e-6])):.3g}"
    '2.92e-06'
    """
    few, many = exposure[:_FEW], exposure[_FEW:]
    size, new = _pairs(len(few))
    delta = _delta(epsilon, sigma, few[size - 1] * (new / size), (size - new) / size)
    delta = max(delta, -math.expm1(-float(few.max())) * _SAFE)
    return max(delta, whole_delta(epsilon, sigma, float(many.max()))) if len(many) else delta


def lowest_threshold(
    epsilon: float, delta: float, delta_of: Callable[[float, float], float], *, sensitivity: float = 1.0
) -> tuple[float, float]:
    """Return (sigma, threshold) with delta_of(sigma, threshold) <= delta: the lowest threshold for this sigma.

    Sigma is what the noise alone needs for delta / 1.001: less leaves no room for a threshold, and more needs a higher
    threshold (in all cases tried with a delta below a half).

    >>> sigma, least = lowest_threshold(1.0, 1e-5, lambda sigma, at: whole_delta(1.0, sigma, leak(sigma, at, 1)))
    >>> round(sigma, 2), round(least, 1)
    (3.73, 16.9)
    """
    sigma = gaussian_sigma(epsilon, delta / 1.001, sensitivity=sensitivity)
    return sigma, smallest(lambda at: delta_of(sigma, at) <= delta, 0.01, 61 * sigma + 2, tolerance=1e-10)


def _delta(epsilon: float, sigma: float, lost: Floats, u: Floats) -> float:
    mu = np.sqrt(u) / sigma
    shown = -np.expm1(-lost) + np.exp(-lost) * gaussian_curve(epsilon + lost, mu)
    return float(max(shown.max(), gaussian_curve(epsilon - lost, mu).max())) * _SAFE


@cache
def _pairs(most: int) -> tuple[Ints, Ints]:
    """Return all sizes s up to `most`, each with j = 0 ... s - 1."""
    pairs = [(size, new) for size in range(1, most + 1) for new in range(size)]
    size, new = np.array(pairs, np.int64).T
    return size, new


def weighted_gaussian(epsilon: float, delta: float, max_keys: int, *, unit: str = "one row") -> "WeightedGaussian":
    """Return the weighted Gaussian mechanism with the lowest threshold that keeps (epsilon, delta).

    Args:
        epsilon, delta: the guarantee of one unit.
        max_keys: the number of keys that a unit keeps, up to 10,000.
        unit: the protected unit, as text.

    >>> round(weighted_gaussian(1.0, 1e-5, 100).threshold, 2)
    19.5
    """
    (epsilon, delta), keys = check_budget(epsilon, delta), check_max_keys(max_keys)
    sigma, threshold = lowest_threshold(
        epsilon, delta, lambda sigma, at: sizes_delta(epsilon, sigma, _exposures(sigma, at, keys))
    )
    return WeightedGaussian(epsilon, delta, keys, sigma, threshold, unit=unit)


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
    two parts are independent; the head of this module has their divergence, which grows with both. Sums of zero
    are never selected, so that without the unit its new keys never show. For s > 64 every share of new keys is
    allowed, which costs less than one part in a thousand of delta.

    What it spends. The pair of outputs is at worst one that leaks everything with probability 1 - e^(s L_s), and else
    a Gaussian of distance 1, as for `channels.gaussian`.

    With a floor, sums are lowered first (`above_floor`). A unit then adds at most w to each of its keys, and the proof
    holds as it stands: new keys are those whose lowered sum was zero.
    """

    supports_floor = True

    sigma: float
    threshold: float

    def __post_init__(self) -> None:
        super().__post_init__()
        sigma = validate.between("sigma", self.sigma, 0.025, 1e5, hint=_SAVED)
        validate.store(
            self, sigma=sigma, threshold=validate.between("threshold", self.threshold, 0.0, 1e6, hint=_SAVED)
        )
        self.certify()

    @property
    def weight(self) -> Weight:
        """The weight that a unit adds to each of its keys, in steps of 2^-30."""
        return Weight(BITS)

    def select_by_weights(self, weights: Ints, source: Source) -> Bools:
        """Return which keys are selected."""
        return select_by_noise(self.above_floor(weights, 1 << BITS), self.threshold, self.sigma, source)

    def certify(self) -> Certificate:
        """Return the certificate, by formulas in floating point that are rounded up."""
        return self._certificate

    @cached_property
    def _certificate(self) -> Certificate:
        covers = f"weights 1/sqrt(keys), Gaussian noise and a threshold, for units of at most {self.max_keys:,} keys"
        worst = sizes_delta(self.epsilon, self.sigma, _exposures(self.sigma, self.threshold, self.max_keys))
        return formula(self.guarantee, worst, "formula", covers)

    def spends(self) -> tuple[Spend, ...]:
        """Return the Gaussian curve of the noise, and the probability that a key of only one unit shows."""
        return Gaussian(self.sigma), Approximate(0.0, leak(self.sigma, self.threshold, self.max_keys))

    def units_needed(self, keys: int) -> float:
        """Return the number of units, with `keys` keys each, for which a key is selected half of the time.

        >>> round(weighted_gaussian(1.0, 1e-5, 10).units_needed(10), 1)
        57.1
        """
        hint = "Pass the number of keys per unit."
        return self.threshold * math.sqrt(validate.whole("keys", keys, low=1, high=self.max_keys, hint=hint))


def select_by_noise(weights: Ints, threshold: float, sigma: float, source: Source) -> Bools:
    """Return which sums of weights, in steps of 2^-30, are above zero and reach the threshold with Gaussian noise.

    >>> from dpsieve.randomness import SystemSource
    >>> select_by_noise(np.array([0, 100 << BITS]), 10.0, 1.0, SystemSource()).tolist()
    [False, True]
    """
    selected = np.zeros(len(weights), np.bool_)
    present = np.flatnonzero(weights)
    # Sums are capped at 2^52, which moves neighbours no further apart; below, floats are exact.
    sums = np.minimum(weights[present], 1 << 52).astype(np.float64)
    selected[present] = gaussian_test(sums, threshold * 2.0**BITS, sigma * 2.0**BITS, source=source)
    return selected


def leak(sigma: float, threshold: float, max_keys: int) -> float:
    """Return the probability that a unit whose keys nobody else holds shows any of them, rounded up.

    >>> f"{leak(4.0, 22.0, 10):.3g}"
    '2.96e-07'
    """
    return min(1.0, -math.expm1(-float(_exposures(sigma, threshold, max_keys).max())) * _SAFE)


def _exposures(sigma: float, threshold: float, max_keys: int) -> Floats:
    """Return the exposure of units with 1, 2, ..., max_keys keys that nobody else holds."""
    sizes = np.arange(1, max_keys + 1)
    return sizes * exposures(sigma, threshold, 1 / np.sqrt(sizes))
