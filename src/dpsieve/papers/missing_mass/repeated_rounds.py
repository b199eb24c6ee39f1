"""Set union in several rounds: keys that a round selects are dropped, and units put their weight on the others.

Swanberg, Desfontaines and Haney, "DP-SIPS: A simpler, more scalable mechanism for differentially private partition
selection", PoPETs 2023.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from dpsieve import validate
from dpsieve.accounting.composition import Composition
from dpsieve.accounting.curves import gaussian_sigma
from dpsieve.accounting.spends import Approximate, Gaussian, Spend
from dpsieve.codec import register
from dpsieve.discovery.selector import Selector
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import minimise, smallest
from dpsieve.papers.missing_mass.weighted_gaussian import BITS, leak, select_by_noise
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Weight
from dpsieve.randomness.source import Source
from dpsieve.types import Bools
from dpsieve.validate import check_budget, check_max_keys

MOST_ROUNDS = 8
_SAVED = "Pass the saved ones."


def repeated_rounds(
    epsilon: float, delta: float, max_keys: int, *, rounds: int = 3, growth: float = 5.0, unit: str = "one row"
) -> "RepeatedRounds":
    """Return the weighted Gaussian mechanism in several rounds, each with `growth` times the budget of the one before.

    The budget of a round is 1/sigma^2 and its share of what may leak. How much of delta may leak in all is chosen so
    that the threshold of the last round is lowest.

    Args:
        epsilon, delta: the guarantee of one unit.
        max_keys: the number of keys that a unit keeps, up to 10,000.
        rounds: the number of rounds, 1 to 8.
        growth: the ratio of the budgets of successive rounds, 1 to 100.
        unit: the protected unit, as text.

    >>> [round(threshold, 1) for threshold in repeated_rounds(1.0, 1e-5, 100).thresholds]
    [127.5, 54.5, 23.2]
    """
    (epsilon, delta), keys = check_budget(epsilon, delta), check_max_keys(max_keys)
    rounds = validate.whole("rounds", rounds, low=1, high=MOST_ROUNDS, hint="Pass the number of rounds, such as 3.")
    growth = validate.between("growth", growth, 1.0, 100.0, hint="Pass a factor such as growth=5.")
    shares = growth ** np.arange(rounds)
    shares /= shares.sum()

    def calibrate(leaking: float) -> tuple[list[float], list[float]]:
        least = gaussian_sigma(epsilon, delta * (1 - leaking) * (1 - 1e-6))
        sigmas = [float(least / np.sqrt(share)) * (1 + 1e-12) for share in shares]
        parts = [float(delta * leaking * share) * (1 - 1e-6) for share in shares]
        return sigmas, [_threshold(sigma, part, keys) for sigma, part in zip(sigmas, parts, strict=True)]

    sigmas, thresholds = calibrate(minimise(lambda leaking: calibrate(leaking)[1][-1], 0.05, 0.95, rounds=12))
    return RepeatedRounds(epsilon, delta, keys, tuple(sigmas), tuple(thresholds), unit=unit)


@register("repeated_rounds")
@dataclass(frozen=True, repr=False)
class RepeatedRounds(Selector):
    """The weighted Gaussian mechanism, repeated on the keys that no earlier round has selected.

    In each round a unit with s of its keys left adds 1/sqrt(s) to each of them, and a key is selected when its sum plus
    N(0, sigma_r^2) reaches T_r. All selected keys are published.

    Guarantee, for add/remove of one unit: with d_r the probability that round r shows a key of a unit whose keys nobody
    else holds, 1 - d = prod (1 - d_r), and mu^2 = sum 1/sigma_r^2,

        delta(eps) = d + (1 - d) (Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)).

    Proof. Given what earlier rounds selected, a round is the weighted Gaussian mechanism: which keys the other units
    have left, and so their weights, depends only on those results, so neighbours still differ by one unit with at most
    max_keys keys. Whatever the results were, the outputs of a round are at worst those of a mechanism that leaks
    everything with probability d_r, and else of a Gaussian of distance 1/sigma_r (see `WeightedGaussian`). Pairs that
    dominate each round, for all earlier results, compose to one that dominates the whole (Zhu, Dong and Wang, AISTATS
    2022, Theorem 10); that is the formula.
    """

    sigmas: tuple[float, ...]
    thresholds: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        sigmas, thresholds = _floats("sigmas", self.sigmas), _floats("thresholds", self.thresholds)
        if not 1 <= len(sigmas) == len(thresholds) <= MOST_ROUNDS:
            raise InvalidValue(f"sigmas and thresholds are not 1 to {MOST_ROUNDS} of each. {_SAVED}")
        for sigma, threshold in zip(sigmas, thresholds, strict=True):
            validate.between("sigmas", sigma, 0.025, 1e7, hint=_SAVED)
            validate.between("thresholds", threshold, 0.0, 1e8, hint=_SAVED)
        validate.store(self, sigmas=sigmas, thresholds=thresholds)
        self.certify()

    def select(self, pairs: Pairs, source: Source) -> Bools:
        """Return which keys any of the rounds selects."""
        selected = np.zeros(pairs.keys.num_rows, np.bool_)
        for sigma, threshold in zip(self.sigmas, self.thresholds, strict=True):
            weights = pairs.filter(~selected[pairs.key_numbers]).weights(Weight(BITS))
            selected |= select_by_noise(weights, threshold, sigma, source)
        return selected

    def units_needed(self, keys: int) -> float:
        """Return the number of units, with `keys` keys each, for which a key is selected half of the time.

        That is where some round selects it with probability 1/2, if no other key of these units is selected before.

        >>> repeated_rounds(1.0, 1e-5, 10).units_needed(10) > repeated_rounds(1.0, 1e-5, 10).units_needed(1)
        True
        """
        hint = "Pass the number of keys per unit."
        root = math.sqrt(validate.whole("keys", keys, low=1, high=self.max_keys, hint=hint))
        rounds = np.array(self.thresholds), np.array(self.sigmas)

        def is_likely(units: float) -> bool:
            return bool(log_ndtr((rounds[0] - units / root) / rounds[1]).sum() <= -math.log(2))

        return smallest(is_likely, 0.0, root * min(self.thresholds) + 1, tolerance=1e-9)

    def certify(self) -> Certificate:
        """Return the certificate, by formulas in floating point that are rounded up."""
        return self._certificate

    @cached_property
    def _certificate(self) -> Certificate:
        covers = f"{len(self.sigmas)} rounds of weights, Gaussian noise and a threshold, composed"
        return formula(self.guarantee, Composition(self.spends()).delta(self.epsilon), "formula", covers)

    def spends(self) -> tuple[Spend, ...]:
        """Return, for each round, the Gaussian curve of its noise and what it may leak."""
        noise = [Gaussian(sigma) for sigma in self.sigmas]
        pairs = zip(self.sigmas, self.thresholds, strict=True)
        return *noise, *(Approximate(0.0, leak(sigma, threshold, self.max_keys)) for sigma, threshold in pairs)


def _threshold(sigma: float, delta: float, max_keys: int) -> float:
    """Return the lowest threshold with which a unit shows any of its own keys with probability delta at most."""
    return smallest(lambda at: leak(sigma, at, max_keys) <= delta, 0.01, 61 * sigma + 2, tolerance=1e-10)


def _floats(name: str, values: Any) -> tuple[float, ...]:
    numbers = tuple(values) if isinstance(values, Iterable) else ()
    if not numbers or not all(isinstance(x, int | float) and not isinstance(x, bool) for x in numbers):
        raise InvalidType(f"{name} must be a list of numbers. {_SAVED}")
    return tuple(map(float, numbers))
