"""Selection by policies: units add weights one after the other, depending on what earlier units have added.

Gopi, Gulhane, Kulkarni, Shen, Shokouhi and Yekhanin (ICML 2020). Units come in the order of `Pairs`, which for two
units, and for two keys of a unit, depends on no other unit. Neighbours are add/remove of one unit; the guarantee is for
a whole unit. A policy must move the final sums by at most 1 where one unit more comes at any place, and must bound what
it shows of keys that had no weight without that unit. The two policies here do; others found in public code do not.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from dpsieve import validate
from dpsieve.accounting.curves import gaussian_sigma
from dpsieve.accounting.spends import Approximate, Gaussian, Spend
from dpsieve.codec import NOT_SAVED_BY_DEFAULT, register
from dpsieve.discovery.selector import Selector
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import Ball, ball, first_whole, upper
from dpsieve.papers.missing_mass.weighted_gaussian import exposures, lowest_threshold, whole_delta
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.randomness import discrete_laplace, gaussian_test
from dpsieve.randomness.noise import laplace_scale
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Floats, Ints
from dpsieve.validate import check_budget, check_max_keys

MOST_UNITS = 10**8
STEPS = 2**16  # to a whole weight of the l1 policy
_SAFE = 1 + 1e-9
_POINTS = 4096
_MOST_SENSITIVE = 1.2
_SAVED = "Pass the saved one."
_KEYS = "Pass the number of keys per unit."
_ALPHA = "Pass by how many standard deviations the cutoff is above the threshold, such as alpha=3.0."


def policy_gaussian(
    epsilon: float,
    delta: float,
    max_keys: int,
    *,
    alpha: float = 3.0,
    max_units: int = MOST_UNITS,
    unit: str = "one row",
) -> "PolicyGaussian":
    """Return the l2 descent policy with Gaussian noise, and the lowest threshold that keeps (epsilon, delta).

    Args:
        epsilon, delta: the guarantee of one unit.
        max_keys: the number of keys that a unit keeps, up to 10,000.
        alpha: by how many standard deviations of the noise the cutoff is above the threshold.
        max_units: a public limit on the number of units; with more, the roundings of sums could add up.
        unit: the protected unit, as text.

    >>> policy = policy_gaussian(1.0, 1e-5, 100)
    >>> round(policy.threshold, 2), round(policy.cutoff, 2), policy.sensitivity < 1.00001
    (19.5, 30.69, True)
    """
    (epsilon, delta), keys, units = check_budget(epsilon, delta), check_max_keys(max_keys), _check_max_units(max_units)
    alpha = _check_alpha(alpha)

    # The noise decides how large sums become, and these what rounding adds to the sensitivity: no more than for this
    # cutoff, as 1 - Phi(14) is far below every delta.
    about = gaussian_sigma(epsilon, delta / 1.001)
    largest = _sensitivity(1.2 * about, 14 * about + 2, keys, units, alpha)
    sigma, threshold = lowest_threshold(
        epsilon, delta, lambda sigma, at: _descent_delta(epsilon, sigma, at, keys, largest), sensitivity=largest
    )
    return PolicyGaussian(epsilon, delta, keys, sigma, threshold, units, alpha, unit=unit)


def policy_greedy(
    epsilon: float, delta: float, max_keys: int, *, alpha: float = 3.0, unit: str = "one row"
) -> "PolicyGreedy":
    """Return the greedy policy with discrete Laplace noise, and the lowest threshold that keeps (epsilon, delta).

    The cutoff is at least `alpha` standard deviations of the noise above the threshold, at the next whole weight.

    >>> policy = policy_greedy(1.0, 1e-5, 100)
    >>> round(policy.threshold, 2), round(policy.cutoff, 2)
    (11.82, 17.0)
    """
    epsilon, delta = check_budget(epsilon, delta)
    scale = laplace_scale(epsilon, STEPS)
    steps = first_whole(lambda at: _shown(scale, at) <= delta, STEPS, 2**40)
    return PolicyGreedy(epsilon, delta, max_keys, steps, alpha, unit=unit)


def _check_max_units(value: int) -> int:
    """Return the limit on the number of units."""
    return validate.whole("max_units", value, low=1, high=10**10, hint="Pass a public limit such as 10**8.")


def _check_alpha(value: object) -> float:
    """Return by how many standard deviations of the noise the cutoff is above the threshold."""
    return validate.between("alpha", value, 0.0, 1e3, hint=_ALPHA)


@register("policy_gaussian")
@dataclass(frozen=True, repr=False)
class PolicyGaussian(Selector):
    """Every unit moves its keys straight towards the cutoff by at most 1 in l2; then Gaussian noise and a threshold T.

    The cutoff is c = T + alpha sigma. With its gaps g_k = c - H_k, a unit adds g_k min(1, 1/|g|) to each of its keys; a
    key is selected when H_k + N(0, sigma^2) >= T, drawn exactly (`randomness.gaussian_test`).

    Guarantee, with exact sums. The step of a unit is x -> c + (y - P(y)) for y = x - c on its keys, where P projects on
    the unit ball. P is a projection on a convex set, so y - P(y) does not expand distances, nor does a step. An
    additional unit moves the sums by at most 1; steps after it keep that. Of its keys, j may be held by nobody else.
    They have the largest gap, c > 1, so that the step has length 1 and gives each of them the same w with
    1/s <= w^2 <= 1/j, s being its number of keys; no later unit touches them, and on all others the distance is at most
    sqrt(1 - j w^2) at the step and stays so. The new keys stay silent with probability Phi((T - w)/sigma)^j, so with
    u = 1 - j w^2 this is l = (1 - u) A of `papers.missing_mass.weighted_gaussian`, where the exposure is at most
    A = max over 1/max_keys <= x <= 1 of -ln Phi((T - sqrt(x))/sigma) / x.

    Rounding. Sums are doubles, r = 2^-53. The gap, the square, s - 1 additions, the root, the quotient, the product
    change a step by at most (s/2 + 6) r of its length, and the last addition by c r in each key, so a unit errs by at
    most e = (s/2 + 6 + sqrt(s) c) r in l2 (the cut at c only helps). Over at most `max_units` units in both runs the
    distance is at most `sensitivity` = 1 + 2 (max_units + 1) e instead of 1, new keys included, and w^2 is at least
    (1 - 2e)/s. All distances are divided by the sensitivity, which is to divide sigma and T by it.
    """

    sigma: float
    threshold: float
    max_units: int = MOST_UNITS
    alpha: float = field(default=3.0, metadata=NOT_SAVED_BY_DEFAULT)

    def __post_init__(self) -> None:
        super().__post_init__()
        sigma = validate.between("sigma", self.sigma, 0.025, 1e5, hint=_SAVED)
        threshold = validate.between("threshold", self.threshold, 0.0, 1e6, hint=_SAVED)
        validate.store(self, sigma=sigma, threshold=threshold, max_units=_check_max_units(self.max_units))
        validate.store(self, alpha=_check_alpha(self.alpha))
        if self.cutoff <= 1:
            raise InvalidValue(f"delta={self.delta:g} is too large for a cutoff above 1. Pass a smaller delta.")
        self.sensitivity  # noqa: B018  # raises if there are too many units
        self.certify()

    @property
    def cutoff(self) -> float:
        """The sum up to which units fill a key."""
        return self.threshold + self.alpha * self.sigma

    @property
    def sensitivity(self) -> float:
        """The l2 distance of the sums of neighbours, at most: 1 and what rounding may add."""
        return _sensitivity(self.sigma, self.threshold, self.max_keys, self.max_units, self.alpha)

    def check(self, pairs: Pairs) -> None:
        """Raise if there are more units than the public limit."""
        if len(pairs.starts) - 1 > self.max_units:
            fix = "Use another mechanism, or make this one with a larger max_units."
            raise InvalidValue(f"data has more units than policy_gaussian allows, {self.max_units:,}. {fix}")

    def sums(self, pairs: Pairs) -> Floats:
        """Return the sum of each key; not private."""
        from dpsieve.papers.missing_mass.policy_loops import descend

        self.check(pairs)
        sums = np.zeros(pairs.keys.num_rows)
        descend(pairs.starts, pairs.key_numbers, self.cutoff, sums)
        return sums

    def select(self, pairs: Pairs, source: Source) -> Bools:
        """Return which keys are selected."""
        sums = self.sums(pairs)
        selected, present = np.zeros(len(sums), np.bool_), np.flatnonzero(sums)
        selected[present] = gaussian_test(sums[present], self.threshold, self.sigma, source=source)
        return selected

    def units_needed(self, keys: int) -> float:
        """Return the number of units for which a key is selected half of the time: its sum reaches the threshold.

        Each of them has `keys` keys in all, of which no other is shared.

        >>> policy_gaussian(1.0, 1e-5, 10).units_needed(10) > policy_gaussian(1.0, 1e-5, 10).units_needed(1)
        True
        """
        others = (validate.whole("keys", keys, low=1, high=self.max_keys, hint=_KEYS) - 1) * self.cutoff**2
        total, units = 0.0, 0
        while total < self.threshold:
            gap = self.cutoff - total
            total, units = total + gap * min(1.0, 1 / math.sqrt(gap**2 + others)), units + 1
        return float(units)

    def certify(self) -> Certificate:
        """Return the certificate, by formulas in floating point that are rounded up."""
        return self._certificate

    @cached_property
    def _certificate(self) -> Certificate:
        worst = _descent_delta(self.epsilon, self.sigma, self.threshold, self.max_keys, self.sensitivity)
        covers = f"l2 descent, Gaussian noise and a threshold, for data of at most {self.max_units:,} units"
        return formula(self.guarantee, worst, "formula", covers)

    def spends(self) -> tuple[Spend, ...]:
        """Return the Gaussian curve of the noise, and the probability that a key of only one unit shows."""
        shown = -math.expm1(-_exposure(self.sigma, self.threshold, self.max_keys, self.sensitivity)) * _SAFE
        return Gaussian(self.sigma, self.sensitivity), Approximate(0.0, min(1.0, shown))


@register("policy_greedy")
@dataclass(frozen=True, repr=False)
class PolicyGreedy(Selector):
    """Every unit fills its keys, one after the other, by at most 1 in l1; then Laplace noise and a threshold T.

    Sums are integers in steps of 2^-16. A unit raises its first key to the cutoff if its weight allows, then the next
    one. A key with a sum above zero is selected when its sum plus discrete Laplace noise of scale 1/epsilon reaches T.
    The cutoff is the next whole weight above T and alpha standard deviations.

    Guarantee, for add/remove of one unit: (epsilon, q) with q = P[1 + noise >= T] = p^(T - 1)/(1 + p) for p =
    e^(-1/scale), scale and T - 1 in steps. Proof. As the cutoff is whole, so are all gaps, and a unit puts all its
    weight on its first key that is not full. So sums of neighbours are equal, or differ by 1 in one key k, by the
    induction of `Greedy`. If both sums of k are above zero, the noise makes that epsilon-private. If one of them is
    zero, k never shows there, and with probability q where its sum is 1: the outputs differ by no more.

    With a cutoff between whole weights this fails, although sums of neighbours are still within 1 in l1: one unit can
    then raise several keys above zero, each by a little, and each of them may show.
    """

    steps: int
    alpha: float = field(default=3.0, metadata=NOT_SAVED_BY_DEFAULT)

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.store(self, steps=validate.whole("steps", self.steps, low=STEPS, high=2**40, hint=_SAVED))
        validate.store(self, alpha=_check_alpha(self.alpha))
        self.certify()

    @property
    def threshold(self) -> float:
        """The threshold of noisy sums."""
        return self.steps / STEPS

    @property
    def cutoff(self) -> float:
        """The sum up to which units fill a key."""
        return self._cutoff / STEPS

    @property
    def scale(self) -> float:
        """Of the discrete Laplace distribution, in steps of 2^-16."""
        return laplace_scale(self.epsilon, STEPS)

    @property
    def _cutoff(self) -> int:
        return math.ceil((self.steps + self.alpha * math.sqrt(2) * self.scale) / STEPS) * STEPS

    def sums(self, pairs: Pairs) -> Ints:
        """Return the sum of each key, in steps of 2^-16; not private."""
        from dpsieve.papers.missing_mass.policy_loops import fill_in_order

        sums = np.zeros(pairs.keys.num_rows, np.int64)
        fill_in_order(pairs.starts, pairs.key_numbers, self._cutoff, STEPS, sums)
        return sums

    def select(self, pairs: Pairs, source: Source) -> Bools:
        """Return which keys are selected."""
        sums = self.sums(pairs)
        selected, present = np.zeros(len(sums), np.bool_), np.flatnonzero(sums)
        selected[present] = sums[present] + discrete_laplace(self.scale, len(present), source=source) >= self.steps
        return selected

    def units_needed(self, keys: int) -> float:
        """Return the mean number of units for which the sum of a key reaches the threshold.

        Each of them has `keys` keys in random order, of which no other is shared, and fills the first one.

        >>> round(policy_greedy(1.0, 1e-5, 10).units_needed(10), 1)
        118.2
        """
        return self.threshold * validate.whole("keys", keys, low=1, high=self.max_keys, hint=_KEYS)

    def certify(self) -> Certificate:
        """Return the certificate, by proven bounds."""
        is_private = Fraction(self.scale) * Fraction(self.epsilon) >= STEPS
        worst = _shown(self.scale, self.steps) if is_private else 1.0
        return formula(self.guarantee, worst, "balls", "l1 greedy weights, discrete Laplace noise and a threshold")


def _shown(scale: float, steps: int) -> float:
    """Return P[2^16 + X >= steps] = p^k / (1 + p) for k = steps - 2^16 >= 0 and p = e^(-1/scale), rounded up."""

    def expression() -> Ball:
        rate = 1 / ball(scale)
        return (-rate * (steps - STEPS)).exp() / (1 + (-rate).exp())

    return upper(expression)


def _sensitivity(sigma: float, threshold: float, keys: int, units: int, alpha: float) -> float:
    """Return the l2 distance of the sums of neighbours, at most; raise if doubles are too coarse for it."""
    cutoff = threshold + alpha * sigma
    error = (keys / 2 + 6 + math.sqrt(keys) * cutoff) * 2.0**-53 * 1.001  # by rounding, in the step of one unit
    distance = 1 + 2 * (units + 1) * error * 1.001
    if distance > _MOST_SENSITIVE:
        fix = "Pass a larger epsilon or delta, fewer keys, a smaller max_units, or another mechanism."
        raise InvalidValue(f"epsilon and delta need sums that doubles are too coarse for, with {units:,} units. {fix}")
    return distance


def _exposure(sigma: float, threshold: float, keys: int, largest: float) -> float:
    """Return the largest exposure, rounded up: on each interval of x, its right end over its left one."""
    x = np.geomspace((1 - 4 * (largest - 1)) / keys, 1, _POINTS)
    return float((exposures(sigma, threshold, largest * np.sqrt(x[1:])) / x[:-1]).max()) * _SAFE


def _descent_delta(epsilon: float, sigma: float, threshold: float, keys: int, largest: float) -> float:
    """Return the delta of l2 descent with this sensitivity, rounded up."""
    return whole_delta(epsilon, sigma / largest, _exposure(sigma, threshold, keys, largest))
