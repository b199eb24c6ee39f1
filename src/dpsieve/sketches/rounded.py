"""Sums of Misra-Gries sketches for unknown keys: small values are rounded at random, then noise and a threshold.

Values V are those of `sketches.summed`, whole numbers in units of 1/(k+1). A value below S becomes S with probability
V/S, and else nothing; discrete Laplace noise X of scale b goes to all that is left, and to the number of items N; what
reaches L comes out. (Section 3.6 of the thesis, by Algorithm 9: there b = S = 2k + 2 over epsilon.) Neighbours are
add/remove of one item of one stream: one value grows by at most k while at most k - 1 others fall by 1, or at most k
fall by 1; and N changes by 1.

Let row(V) be the law of what comes out for V, and tau(x) = P[x + X >= L]. D is the hockey-stick divergence at epsilon.

1. Between values up to S. row(V) is row(S) with probability V/S and else 'nothing', so a change by j moves a mass of
   at most j tau(S) / S. In a product of independent rows this is added to D once: the first argument is replaced.
2. Between values from S on. This is post-processing of V + X. Noise that is log-concave is told from itself moved by
   m best by whether it exceeds a point, and the farther it is moved the better. So at worst one value moves by k,
   and k numbers by 1 each: k - 1 values and N. Noise that is moved by 1 has the loss +1/b with probability
   q = 1 / (1 + e^(-1/b)), and else -1/b. With J binomial in k and q, and F the distribution function of X,

       H = E[h(epsilon - (2J - k)/b)],   h(e) = max over t of F(t) - e^e F(t - k)

   is the whole divergence. It is 0 from b = 2k/epsilon on, the l1 sensitivity. But the k losses of 1/b nearly cancel:
   with many counters b may be little more than k/epsilon, as if the one large change were alone.
3. One value from S - i < S up to S + j, where i + j <= k. row(S - i) is a mixture of row(S) and, with probability
   i/S, of 'nothing'. D is jointly convex, so this costs at most what row(S) costs, in 2, plus i/S tau(S + j): 'nothing'
   hides all but the tau(S + j) that comes out. Downwards, row(S - i) is replaced by row(S) for i/S tau(S), by 1.

So the release is (epsilon, delta)-private with

    delta = H + (k - 1)/S tau(S) + max { i/S tau(S + k - i) : 1 <= i <= min(k, S) },    L > S + k.

The thesis's union bound gives the threshold 4 + 2 ln(1/delta)/epsilon. Here b is chosen among 65 values from k/epsilon
to 2k/epsilon so that L is lowest, and S = b, where L = S + b ln(1/S) + ... is lowest too. Any choice keeps the promise.

A unit of m items is m steps of (epsilon/m, delta_1), as for one sketch. Sums of floats are rounded up by one millionth.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from dpsieve.channels.makers import unknown_domain
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.mechanism import Reading
from dpsieve.privacy.registry import register
from dpsieve.randomness.noise import SMALLEST_SCALE, laplace_scale
from dpsieve.randomness.order import uniform_integers
from dpsieve.randomness.source import Source
from dpsieve.sketches.noisy import group_delta, tail
from dpsieve.sketches.summed import SketchSum
from dpsieve.types import Floats, Ints

_SAFE = 1 + 1e-6
_STEPS = 64  # scales to choose from, between half of that for the l1 sensitivity and all of it
_BEYOND = 1e-40  # bounds the probability of what is left out of a binomial distribution


class Choice(NamedTuple):
    """The scale of the noise, the value below which values are rounded, and the threshold, in units of 1/(k+1)."""

    scale: float
    full: int
    least: int


@register("misra_gries_rounded_sum")
@dataclass(frozen=True, repr=False)
class RoundedSketch(SketchSum):
    """Random rounding, noise and a threshold for a sum of post-processed sketches, from public numbers alone.

    >>> [round(RoundedSketch(1.0, 1e-8, counters).threshold, 1) for counters in (16, 1024, 65536)]
    [35.2, 22.4, 19.8]
    """

    epsilon: float
    delta: float
    counters: int
    sources: int = 1
    items_per_unit: int = 1
    items: int | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        epsilon, delta = unknown_domain(self.epsilon, self.delta)
        self._store(epsilon=epsilon, delta=delta)

    def __repr__(self) -> str:
        return f"<rounded sum of Misra-Gries sketches of {self.counters:,} counters, {self.guarantee}>"

    @cached_property
    def choice(self) -> Choice:
        """What the mechanism works with."""
        return _choice(self.epsilon, self.delta, self.counters, self.items_per_unit)

    @property
    def scale(self) -> float:
        """The scale of all noises."""
        return self.choice.scale

    @property
    def least(self) -> int:
        """What a noisy value must reach, in units of 1/(k+1)."""
        return self.choice.least

    def certify(self) -> Certificate:
        """Return the certificate: the formula at the head of this module, evaluated at the threshold."""
        worst = _delta(self.epsilon, self.counters, self.items_per_unit, self.choice)
        noise = f"noise of scale {self.scale / self.parts:.4g} and a threshold of {self.threshold:.4g}"
        covers = f"sum of sketches, rounded below {self.choice.full / self.parts:.4g}, with discrete Laplace {noise}"
        return formula(self.guarantee, worst, "formula", covers)

    def draw(self, values: Ints, items: int, source: Source) -> tuple["RoundedSketch", Floats]:
        """Return this mechanism with the noisy N, and a token for each value above zero, 0 for 'nothing'."""
        tokens = np.zeros(len(values))
        full = self.choice.full
        kept = np.flatnonzero(uniform_integers(len(values), full, source) < values)
        made, tokens[kept] = super().draw(np.maximum(values[kept], full), items, source)
        return made, tokens

    def read(self, tokens: ArrayLike) -> Reading:
        """Return noisy values, and intervals for the true frequencies that all hold at once with probability 0.95.

        What may have been rounded up is at least 1.
        """
        reading = super().read(tokens)
        noisy, full = np.asarray(tokens, dtype=np.float64), self.choice.full
        exact = np.rint(noisy * self.parts) - self._margins[0] > full
        return Reading(reading.count, np.where(exact, reading.low, 1), reading.high, reading.weight)


@lru_cache(maxsize=64)
def _choice(epsilon: float, delta: float, counters: int, items_per_unit: int) -> Choice:
    """Return the scale of the lowest threshold, out of a few that lie closer where they are small."""
    widest = laplace_scale(epsilon, 2 * counters * items_per_unit)
    allowed, found = delta / (group_delta(1e-30, epsilon, items_per_unit) * 1e30) / _SAFE, []
    for step in range(_STEPS + 1):
        scale = max(widest * (1 + (step / _STEPS) ** 2) / 2, SMALLEST_SCALE)
        left = allowed - _losses(epsilon, counters, scale, items_per_unit)
        if left > 0:
            full = max(1, round(scale))
            chance = _rounded(counters, scale, full) / left / (1 + math.exp(-1 / scale))
            beyond = scale * math.log(max(1.0, chance)) * (1 + 1e-12)
            found.append(Choice(scale, full, full + max(math.ceil(beyond), counters + 1)))
    return min(found, key=lambda choice: choice.least)


def _delta(epsilon: float, counters: int, items_per_unit: int, choice: Choice) -> float:
    """Return the delta of one unit: the formula at the head of this module."""
    scale, full, least = choice
    if least <= full + counters:
        return 1.0
    shown = float(tail(np.array([least - full]), scale)[0]) * _rounded(counters, scale, full)
    one = (_losses(epsilon, counters, scale, items_per_unit) + shown) * _SAFE
    return group_delta(min(1.0, one), epsilon, items_per_unit)


def _rounded(counters: int, scale: float, full: int) -> float:
    """Return (k - 1)/S + max of i/S tau(S + k - i) / tau(S); it rises up to i = b, then falls."""
    most = min(counters, full)
    near = (min(max(1, round(scale) + shift), most) for shift in (-1, 0, 1))
    return (counters - 1 + max(i * math.exp((counters - i) / scale) for i in near)) / full


def _losses(epsilon: float, counters: int, scale: float, items_per_unit: int) -> float:
    """Return H for one item: the divergence of a noise that is moved by k, together with k that are moved by 1."""
    if scale >= laplace_scale(epsilon, 2 * counters * items_per_unit):
        return 0.0
    step = math.nextafter(epsilon / items_per_unit, 0)
    q, far = 1 / (1 + math.exp(-1 / scale)), math.sqrt(counters * math.log(2 / _BEYOND) / 2)
    first, last = max(0, math.floor(counters * q - far)), min(counters, math.ceil(counters * q + far))
    j = np.arange(first, last + 1)
    ways = gammaln(counters + 1) - gammaln(j + 1) - gammaln(counters - j + 1)
    mass = np.exp(ways + j * math.log(q) + (counters - j) * math.log1p(-q))
    return float(mass @ _moved(step - (2 * j - counters) / scale, counters, scale)) + _BEYOND


def _moved(epsilon: Floats, by: int, scale: float) -> Floats:
    """Return the divergence h of noise and the same noise moved `by` places, at each epsilon."""
    point = np.clip(np.ceil((by - epsilon * scale) / 2) - 1, 0, by - 1).astype(np.int64)
    # At a point t from 0 to `by` - 1: F(t) = 1 - P[X >= t + 1], and F(t - by) = P[X >= by - t].
    between = 1 - tail(point + 1, scale) - np.exp(np.minimum(epsilon, by / scale)) * tail(by - point, scale)
    return np.where(epsilon * scale >= by, 0.0, np.where(epsilon * scale <= -by, -np.expm1(epsilon), between))
