"""Private Misra-Gries: noise on every counter, one shared noise, and a threshold.

One item more or less in the stream leaves two sketches in one of two relations (Lemma 3.1 of the thesis, states S1 to
S6 of its proof). With c the counters and gamma the number of times that all of them were lowered:

    A: gamma' = gamma + 1, and all counters are lower by 1. So c + gamma is the same everywhere.
    B: gamma' = gamma, and one counter is higher by 1.

Discrete Laplace noises of scale 1/epsilon go to the pairs (c_i + gamma, gamma): X_i to the first, -Y to the second.
Each relation changes one of these numbers by 1, so all of them together are epsilon-private on the keys that both
sketches hold. Published are c_i + X_i + Y, where it reaches the threshold t, and gamma - Y: functions of these pairs.
So the noisy gamma, which bounds from above what the sketch has lost, costs nothing. (The thesis publishes the first
only.)

Each sketch may hold keys that the other does not: as many as the other, with counters 1 and 0 at most (state S6). A
sketch that agrees with the first on the common keys, and has the keys of the second with the same counters as the odd
keys of the first, is related to the second as above; and common keys come out alike while no odd key does,
which is equally likely in both. So delta is the probability that an odd key of the first comes out,

    delta = P[max(1 + X_1, X_2) + Y >= t],

half of a union bound over both sketches: t = 22 at (1, 1e-8), where the thesis has 41. The standard algorithm
drops keys at zero, so that up to k keys of counter 1 may be odd: delta = P[1 + max(X_1, ..., X_k) + Y >= t].

A unit of m items is m steps of (epsilon/m, delta_1), and delta = delta_1 (e^epsilon - 1) / (e^(epsilon/m) - 1).

Reference: C. J. Lebeda and J. Tetek, "Better Differentially Private Approximate Histograms and Heavy Hitters using the
Misra-Gries Sketch", PODS 2023 (chapter 3 of Lebeda's thesis), Algorithm 13.
"""

import inspect
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.makers import unknown_domain
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy import Certificate, Guarantee
from dpsieve.privacy.certificate import by_formula
from dpsieve.privacy.mechanism import Floats, Integers, Mechanism, Reading
from dpsieve.randomness.noise import discrete_laplace, laplace_scale
from dpsieve.randomness.source import Source
from dpsieve.sketches.thresholds import any_above, group_delta, least_threshold, tail

MOST_COUNTERS = 2**24
_MISSED = 0.05  # the probability that any interval of a release misses

_M = TypeVar("_M", bound=Mechanism)


class NoisySketch(Mechanism):
    """The noise and the threshold of a private Misra-Gries release.

    Attributes:
        counters: k, the size of the sketch.
        items_per_unit: how many items of the stream one unit may add.
        standard: the sketch was made by the standard algorithm, which drops keys at zero.
        scale, threshold: of the noise, and what a noisy counter must reach.
        decrements: gamma with noise; None before it is drawn, or where it is not known.
    """

    name = "misra_gries"

    def __init__(
        self,
        guarantee: Guarantee,
        counters: int,
        items_per_unit: int = 1,
        *,
        standard: bool = False,
        decrements: int | None = None,
    ) -> None:
        self.guarantee, self.counters, self.items_per_unit = guarantee, counters, items_per_unit
        self.standard, self.decrements = standard, decrements
        self.scale = laplace_scale(guarantee.epsilon, items_per_unit)
        self._odd = {1: counters} if standard else {1: 1, 0: 1}
        self.threshold = least_threshold(self._delta, guarantee.delta)
        self._slack = self._bounds()
        self.parameters = {
            "mechanism": self.name, "epsilon": guarantee.epsilon, "delta": guarantee.delta, "unit": guarantee.unit,
            "counters": counters, "items_per_unit": items_per_unit, "standard": standard, "decrements": decrements,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<private Misra-Gries of {self.counters:,} counters, threshold {self.threshold:,}, {self.guarantee}>"

    def certify(self) -> Certificate:
        """Return the certificate: the formula at the head of this module, evaluated at the threshold."""
        kept = Fraction(self.scale) * Fraction(self.guarantee.epsilon) >= self.items_per_unit
        return by_formula(self.guarantee, self._delta(self.threshold) if kept else 1.0, "private Misra-Gries")

    def draw(self, counters: Integers, decrements: int | None, source: Source) -> tuple["NoisySketch", Floats]:
        """Return this mechanism with the noisy gamma, and a token for each counter, 0 for 'nothing'."""
        shared = int(discrete_laplace(self.scale, 1, source=source)[0])
        noisy = counters + discrete_laplace(self.scale, len(counters), source=source) + shared
        made = self if decrements is None else self.knowing(decrements=decrements - shared)
        return made, np.where(noisy >= self.threshold, noisy, 0).astype(np.float64)

    def read(self, tokens: ArrayLike) -> Reading:
        """Return noisy counters, and intervals for the true frequencies that all hold at once with probability 0.95.

        A true frequency f is at least its counter c = token - X - Y, and at most c + gamma = token + noisy gamma - X.
        Where gamma is not known, `high` bounds the counter instead.
        """
        noisy = np.asarray(tokens, dtype=np.float64).astype(np.int64)
        below, above = self._slack
        low = np.maximum(noisy - below, 1)
        high = noisy + (below if self.decrements is None else self.decrements + above)
        return Reading(noisy, low, np.maximum(high, low), noisy.astype(np.float64))

    def addends(self, tokens: ArrayLike, g: Callable[[Floats], Floats] | None) -> Floats:
        """Return the noisy counters, or g of them."""
        noisy = np.asarray(tokens, dtype=np.float64)
        return noisy if g is None else np.asarray(g(noisy), dtype=np.float64)

    def _bounds(self) -> tuple[int, int]:
        """Return bounds on all X_i + Y from above, and on all -X_i, that fail with half of what is allowed each."""
        every, half = {0: self.counters}, _MISSED / 2
        below = least_threshold(lambda t: any_above(t, every, self.scale), half) - 1
        above = least_threshold(lambda t: self.counters * float(tail(np.array([t]), self.scale)[0]), half) - 1
        return below, above

    def _delta(self, threshold: int) -> float:
        one = any_above(threshold, self._odd, self.scale)
        return group_delta(one, self.guarantee.epsilon, self.items_per_unit)


def noisy_sketch(
    epsilon: float,
    delta: float,
    counters: int,
    items_per_unit: int = 1,
    *,
    standard: bool = False,
    decrements: int | None = None,
    unit: str | None = None,
) -> NoisySketch:
    """Return the noise and the threshold for a sketch, from public numbers alone; `unit` must be what these protect.

    >>> noisy_sketch(1.0, 1e-8, 1024).threshold, noisy_sketch(1.0, 1e-8, 1024, standard=True).threshold
    (22, 29)
    """
    if delta == 0:
        raise InvalidValue("delta=0 needs a known universe. Pass delta=1e-8, or universe=... for pure privacy.")
    epsilon, delta = unknown_domain(epsilon, delta)
    size = validate.whole("counters", counters, low=1, high=MOST_COUNTERS, hint="Pass the size of the sketch.")
    many = checked_items(items_per_unit)
    if decrements is not None:
        decrements = validate.whole("decrements", decrements, low=-(2**62), high=2**62, hint="Pass the saved number.")
    if not isinstance(standard, bool):
        raise InvalidType(f"standard must be True or False, not {type(standard).__name__}.")
    guarantee = Guarantee(epsilon, delta, unit=protected(many, unit))
    return NoisySketch(guarantee, size, many, standard=standard, decrements=decrements)


def protected(items_per_unit: int, unit: object = None) -> str:
    """Return what a sketch protects, in the words of guarantees and ledgers; another `unit` is refused.

    >>> protected(1), protected(5)
    ('one item', 'one unit with at most 5 items')
    """
    true = "one item" if items_per_unit == 1 else f"one unit with at most {items_per_unit} items"
    if unit not in (None, true):
        raise InvalidValue(f"unit is not what this sketch protects. Leave it out, or pass {true!r}.")
    return true


def checked_items(value: int) -> int:
    """Return a checked bound on the items of one unit."""
    return validate.whole("items_per_unit", value, low=1, high=10**6, hint="Pass how many items a unit may add.")


def from_json(data: Mapping[str, Any]) -> NoisySketch:
    """Make the mechanism again whose `to_json` is given."""
    return made_again(noisy_sketch, data)


def made_again(make: Callable[..., _M], data: Mapping[str, Any]) -> _M:
    """Make a mechanism from its saved parameters; other fields are refused, and `make` checks the values."""
    fix = "Pass what to_json returned."
    if not isinstance(data, Mapping):
        raise InvalidType(f"data must be a mapping, not {type(data).__name__}. {fix}")
    values = {name: value for name, value in data.items() if name != "mechanism"}
    try:
        inspect.signature(make).bind(**values)
    except TypeError:
        raise InvalidValue(f"data has other fields than the saved mechanism. {fix}") from None
    return make(**values)
