"""Gaussian noise and a threshold, for units that hold several keys.

The count of each key gets noise N(0, sigma^2) and is reported when it is at least T = 1 + gap. A unit holds at most C
keys, once each, so its removal lowers at most C counts by one; of these, j may be keys that no other unit holds. For
L = ln Phi(gap/sigma), the log-probability that such a key stays silent, and
d(e, mu) = Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu), the exact guarantee is

    delta(eps) = max { 1 - Phi(gap/sigma)^C,
                       max_{0<=j<C} 1 - e^{jL} + e^{jL} d(eps - jL, sqrt(C-j)/sigma),
                       max_{0<=j<C} d(eps + jL, sqrt(C-j)/sigma) }

for add/remove neighbours (Wilkins, Kifer, Zhang, Karrer 2024). It is 3 to 17 % better than adding up the deltas of the
noise and of the threshold. The noisy value is rounded down to T, T + 1, ..., which is post-processing.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Annotated

import numpy as np
from flint import arb
from scipy.special import log_ndtr, ndtr

from dpsieve import validate
from dpsieve.accounting.curves import gaussian_curve, gaussian_sigma
from dpsieve.accounting.spends import Approximate, Spend
from dpsieve.accounting.spends import Gaussian as GaussianSpend
from dpsieve.channels.channel import UnknownKeys
from dpsieve.channels.lag import Lag, LagRows
from dpsieve.channels.rows import ONE
from dpsieve.channels.unknown_keys import trim_lag
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, floor_bounds, minimise, precision, smallest, upper
from dpsieve.privacy.certificate import Certificate, whole_unit
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.types import Floats, Ints
from dpsieve.validate import Neighbours, check_budget, check_max_keys, check_max_rows

_SAFE = 1 + 1e-9  # far above the rounding of the floating-point formula
_FOR_GRID = 1e-6  # of delta, for rounding the masses
_SAVED = "Pass the saved value."


def unit_divergences(epsilon: float, sigma: float, gap: float, keys: int, *, step: int = 1) -> tuple[Floats, Floats]:
    """Return the terms of delta(epsilon) as at the head of this module: a unit added, and removed.

    Entries are for j = 0, step, 2 step, ... keys that no other unit holds; the last of an added unit is for j = C.
    """
    silent = float(log_ndtr(gap / sigma))
    j = np.arange(0, keys, step)
    mu = np.sqrt(keys - j) / sigma
    lost: Floats = np.multiply(j, silent)
    added = -np.expm1(lost) + np.exp(lost) * gaussian_curve(epsilon - lost, mu)
    return np.append(added, -math.expm1(keys * silent)), gaussian_curve(epsilon + lost, mu)


def gaussian_threshold_delta(epsilon: float, sigma: float, gap: float, keys: int, *, step: int = 1) -> float:
    """Return delta(epsilon) as at the head of this module, rounded up by 1e-9 relatively; only every `step`-th j."""
    added, removed = unit_divergences(epsilon, sigma, gap, keys, step=step)
    return float(max(added.max(), removed.max())) * _SAFE


@lru_cache(maxsize=64)
def gaussian_threshold(epsilon: float, delta: float, keys: int) -> tuple[float, float]:
    """Return (sigma, gap) with the smallest gap such that gaussian_threshold_delta(epsilon, ...) <= delta."""
    least_sigma = gaussian_sigma(epsilon, delta / 1.001, count=keys)  # enough without a threshold
    step = 1 + keys // 256  # the search evaluates every step-th j; the result is checked for all
    sigma = minimise(lambda x: _gap(epsilon, delta, x, keys, step), least_sigma, 2 * least_sigma, rounds=28)
    if not math.isfinite(gap := _gap(epsilon, delta, sigma, keys)):
        sigma = minimise(lambda x: _gap(epsilon, delta, x, keys), least_sigma, 2 * least_sigma, rounds=28)
        gap = _gap(epsilon, delta, sigma, keys)
    return sigma, gap


def _gap(epsilon: float, delta: float, sigma: float, keys: int, step: int = 1) -> float:
    """Return the smallest gap for a sigma, to 1e-9; infinite when the noise alone is too small."""

    def is_private(gap: float) -> bool:
        return gaussian_threshold_delta(epsilon, sigma, gap, keys, step=step) <= delta

    return smallest(is_private, 0.0, 60.0 * sigma, tolerance=1e-9) if is_private(60.0 * sigma) else math.inf


class GaussianRows(LagRows):
    """The rows of Gaussian noise with a threshold; the lag is computed only to draw or read tokens."""

    def __init__(self, sigma: float, threshold: float, step: int) -> None:
        super().__init__(1, lambda: gaussian_lag(sigma, threshold - 1), step=step)
        self._sigma, self._threshold = sigma, threshold

    def reported(self, frequencies: Ints) -> Floats:
        """Return P[i + N(0, sigma^2) >= T] for each true frequency i."""
        return np.asarray(ndtr((frequencies - self._threshold) / self._sigma))


def gaussian_lag(sigma: float, gap: float) -> Lag:
    """Return the lag of a count with Gaussian noise: token s stands for noisy values in [gap + s, gap + s + 1)."""
    with precision(192):
        first, last = -math.ceil(14 * sigma), math.ceil(14 * sigma + gap) + 1
        s, g, root = arb(sigma), arb(gap), arb(2).sqrt()
        tails = [((g + 1 - lag) / s / root).erfc() / 2 for lag in range(first, last + 2)]
        masses = [max(0, floor_bounds((b - a) * ONE)[0]) for a, b in pairwise(tails)]
        return trim_lag(first, masses)


def gaussian(
    epsilon: float, delta: float, max_keys: int = 1, max_rows: int = 1, *, unit: str = "one row"
) -> "Gaussian":
    """Return Gaussian noise with a threshold, for units of at most `max_keys` keys with `max_rows` rows each.

    The guarantee is for a whole unit, added or removed: the exact formula at the head of this module. Of all pairs
    (sigma, threshold) with this guarantee, the one with the lowest threshold is taken.

    >>> channel = gaussian(1.0, 1e-5, max_keys=10)
    >>> round(channel.threshold, 2)
    57.08
    """
    epsilon, delta = check_budget(epsilon, delta)
    keys, rows = check_max_keys(max_keys), check_max_rows(max_rows)
    sigma, gap = gaussian_threshold(epsilon, delta * (1 - _FOR_GRID), keys)
    return Gaussian(epsilon, delta, keys, rows, sigma * rows, (1 + gap) * rows, unit=unit)


@register("gaussian")
@dataclass(frozen=True, repr=False)
class Gaussian(UnknownKeys):
    """See `gaussian`. Tokens are drawn from integer rows; the kernel checks one key, the formula a whole unit.

    Its spends, for C keys: (0, d_C)-privacy with d_C = 1 - Phi(gap/sigma)^C, and a Gaussian of sqrt(C). Proof:
    docs/background/composition.md#kinds-of-spends.
    """

    max_keys: Annotated[int, check_max_keys]
    max_rows: Annotated[int, check_max_rows]
    sigma: float
    threshold: float

    def __post_init__(self) -> None:
        super().__post_init__()
        keys, rows = self.max_keys, self.max_rows
        largest = 2.01 * gaussian_sigma(self.epsilon, self.delta_ / 1.001, count=keys) * rows  # the range of the search
        sigma = validate.between("sigma", self.sigma, 1e-9, largest, hint=_SAVED)
        threshold = validate.between("threshold", self.threshold, 0.0, 61 * sigma + rows, hint=_SAVED)
        validate.store(self, sigma=sigma, threshold=threshold)
        if self._grid_loss > _FOR_GRID / 2 * self.delta_:
            raise InvalidValue(
                f"epsilon={self.epsilon:g} is too large for Gaussian noise at this delta. Pass a smaller epsilon."
            )
        if self._delta(self.epsilon, keys) > self.delta_:
            raise InvalidValue("sigma and threshold do not satisfy epsilon and delta. Pass the saved values.")

    @cached_property
    def rows(self) -> GaussianRows:
        return GaussianRows(self.sigma, self.threshold, self.max_rows)

    @property
    def each_key(self) -> Guarantee:
        """The promise for one key of a unit, which the kernel checks."""
        return replace(self.guarantee, delta=self._delta(self.epsilon, 1))

    @cached_property
    def _certificate(self) -> Certificate:
        covers = f"Gaussian noise with a threshold, for units of at most {self.max_keys:,} keys"
        unit = whole_unit(self.guarantee, self._delta(self.epsilon, self.max_keys), "formula", covers)
        return self.rows.certify(self.each_key).within(unit, self.guarantee)

    def delta(self, epsilon: float, neighbours: Neighbours = "add_remove") -> float:
        """Return the exact delta of a whole unit, rounded up."""
        if validate.neighbours(neighbours) == "replace":
            hint = "Use channel.guarantee.for_replacement()."
            raise InvalidValue(
                f"neighbours='replace' has no exact curve for units with several keys or rows. {hint}",
                argument="neighbours",
            )
        return min(1.0, self._delta(validate.epsilon(epsilon), self.max_keys))

    def spends(self) -> tuple[Spend, ...]:
        """Return the Gaussian curve of the noise, and the probability that a key of one unit alone is reported."""
        keys, rows, gap = self.max_keys, self.max_rows, self._gap
        reported = upper(lambda: 1 - ((-ball(gap) / ball(self.sigma / rows) / ball(2).sqrt()).erfc() / 2) ** keys)
        leak = math.nextafter(reported * (1 + 1e-9) + self._grid_loss, 1.0)
        sensitivity = upper(lambda: ball(keys).sqrt() * rows)
        return GaussianSpend(self.sigma, sensitivity), Approximate(0.0, leak)

    @property
    def _gap(self) -> float:
        return self.threshold / self.max_rows - 1

    @property
    def _grid_loss(self) -> float:
        """A bound on the delta added by rounding the masses of all lags to the 2^-128 grid."""
        tokens = 28 * self.sigma + self._gap * self.max_rows + 4
        return self.max_keys * tokens * 2.0**-127 * (1 + math.exp(self.epsilon))

    def _delta(self, epsilon: float, keys: int) -> float:
        """Return the delta of a unit with this number of keys, including that of rounding to the grid."""
        exact = gaussian_threshold_delta(epsilon, self.sigma / self.max_rows, self._gap, keys)
        return exact + self._grid_loss
