"""Sums of Misra-Gries sketches for unknown keys: small values are rounded at random, then noise and a threshold.

Values V are those of `sketches.summed`, whole numbers in units of 1/(k+1). A value below S becomes S with probability
V/S, and else nothing; discrete Laplace noise X of scale b goes to all that is left, and to the number of items N; what
reaches L comes out. (Section 3.6 of the thesis, by its Algorithm 9: S = 2k + 2 and b = S/epsilon.) Neighbours are
add/remove of one item of one stream: one value grows by at most k while at most k - 1 others fall by 1, or at most k
fall by 1; and N changes by 1.

Let row(V) be the law of what comes out for V, tau(x) = P[x + X >= L], and D the hockey-stick divergence at epsilon of
the laws P and Q of two neighbours. Values are independent.

1. Values from S on. This is post-processing of V + X. Noise that is log-concave is told from itself moved by m best by
   whether it exceeds a point, and the farther it is moved the better. So at worst one value moves by k, and k
   numbers by 1 each: k - 1 values and N. Noise that is moved by 1 has the loss +1/b with probability
   q = 1 / (1 + e^(-1/b)), and else -1/b. With J binomial in k and q, and F the distribution function of X,

       H = E[h(epsilon - (2J - k)/b)],   h(e) = max over t of F(t) - e^e F(t - k)

   is the whole divergence. It is 0 from b = 2k/epsilon on, the l1 sensitivity. But the k losses of 1/b nearly cancel:
   with many counters b may be little more than k/epsilon, as if the one large change were alone.
2. Values up to S that are larger in P. row(V) is row(S) with probability V/S and else 'nothing', so a change by j moves
   a mass of j/S tau(S). This is added to D: replace P's row by that of Q.
3. One value that is S - i in Q and S + j in P, where i + j <= k. Q's row is a mixture of row(S) and, with probability
   i/S, of 'nothing'. D is jointly convex, so this costs at most what row(S) costs, plus i/S tau(S + j): against
   'nothing', all but the tau(S + j) that comes out is hidden.
4. Values that are larger in Q. Below S, a change by j leaves P's row at most 1 + j tau(S) / (S (1 - tau(S))) times that
   of Q: only 'nothing' grows. If a value is S - i in P and S + j in Q, this holds for row(S) in place of Q's. At
   most k such steps together are at most e^u, u = k tau(S) / (S (1 - tau(S))). If the loss of all that is left is M,
   D is at most H + (e^u - 1) P[M > epsilon - u]. Put back what was left out: a value moved by more, or some moved by 1.
   With probability 1/2 and 1/4 at least, that makes the loss larger by 1/b or more. So P[M > epsilon - u] <= 8 G,
   where G is the probability that the whole loss of 1 exceeds epsilon + 1/b - u.

One item raises one value and lowers others: what is larger in P is the one value, or at most k others by 1 each. So
the release is (epsilon, delta)-private with

    delta = H + 8 (e^u - 1) G + max { k/S tau(S), i/S tau(S + k - i) : 1 <= i <= min(k, S) },    L > S + k.

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
from dpsieve.exact.search import first_whole
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.registry import register
from dpsieve.randomness.noise import SMALLEST_SCALE, laplace_scale
from dpsieve.randomness.order import uniform_integers
from dpsieve.randomness.source import Source
from dpsieve.sketches.noisy import SketchReading, group_delta, read_estimates, tail
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
    [34.0, 21.6, 19.1]
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

    def read(self, tokens: ArrayLike) -> SketchReading:
        """Return estimates, and intervals for the true frequencies that all hold at once with probability 0.95.

        What may have been rounded up is at least 1.
        """
        reading = super().read(tokens)
        noisy, full = np.asarray(tokens, dtype=np.float64), self.choice.full
        exact = np.rint(noisy * self.parts) - self._margins[0] > full
        low = np.where(exact, reading.low, 1)
        high = np.maximum(reading.high, low)
        return read_estimates(reading.weight, low, high, reading.counter)


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
    best = min(found, key=lambda choice: choice.least)

    def holds(least: int) -> bool:
        return _delta(epsilon, counters, items_per_unit, best._replace(least=least)) <= delta

    return best._replace(least=first_whole(holds, best.least, 1 << 60))  # G is not in the guess


def _delta(epsilon: float, counters: int, items_per_unit: int, choice: Choice) -> float:
    """Return the delta of one unit: the formula at the head of this module."""
    scale, full, least = choice
    if least <= full + counters:
        return 1.0
    tau, step = float(tail(np.array([least - full]), scale)[0]), _step(epsilon, items_per_unit)
    u = counters * tau / (full * (1 - tau))
    j, mass = _signs(step + 1 / scale - u, counters, scale)
    far = float(mass @ _exceeds(step + 1 / scale - u - (2 * j - counters) / scale, counters, scale)) + _BEYOND
    losses = _losses(epsilon, counters, scale, items_per_unit)
    one = losses + 8 * math.expm1(u) * far + tau * _rounded(counters, scale, full)
    return group_delta(min(1.0, one * _SAFE), epsilon, items_per_unit)


def _step(epsilon: float, items_per_unit: int) -> float:
    """Return the epsilon of one item, rounded down."""
    return math.nextafter(epsilon / items_per_unit, 0)


def _rounded(counters: int, scale: float, full: int) -> float:
    """Return the larger of k/S and i/S tau(S + k - i) / tau(S), which rises up to i = b and then falls."""
    most = min(counters, full)
    near = (min(max(1, round(scale) + shift), most) for shift in (-1, 0, 1))
    return max(counters, *(i * math.exp((counters - i) / scale) for i in near)) / full


def _losses(epsilon: float, counters: int, scale: float, items_per_unit: int) -> float:
    """Return H for one item: the divergence of a noise that is moved by k, together with k that are moved by 1."""
    if scale >= laplace_scale(epsilon, 2 * counters * items_per_unit):
        return 0.0
    step = _step(epsilon, items_per_unit)
    j, mass = _signs(step, counters, scale)
    return float(mass @ _moved(step - (2 * j - counters) / scale, counters, scale)) + _BEYOND


def _signs(loss: float, counters: int, scale: float) -> tuple[Ints, Floats]:
    """Return how many of k losses are positive, as far as a total above `loss` is possible, with its probabilities."""
    q, far = 1 / (1 + math.exp(-1 / scale)), math.sqrt(counters * math.log(2 / _BEYOND) / 2)
    first, last = max(counters * q - far, loss * scale / 2 - 1), min(counters, math.ceil(counters * q + far))
    j = np.arange(max(0, math.floor(first)), last + 1)
    ways = gammaln(counters + 1) - gammaln(j + 1) - gammaln(counters - j + 1)
    return j, np.exp(ways + j * math.log(q) + (counters - j) * math.log1p(-q))


def _moved(epsilon: Floats, by: int, scale: float) -> Floats:
    """Return the divergence h of noise and the same noise moved `by` places, at each epsilon."""
    point = _point(epsilon, by, scale)
    # Within the reach of the losses: F(t) = 1 - P[X >= t + 1], and F(t - by) = P[X >= by - t].
    between = 1 - tail(point + 1, scale) - np.exp(np.minimum(epsilon, by / scale)) * tail(by - point, scale)
    return np.where(epsilon * scale >= by, 0.0, np.where(epsilon * scale <= -by, -np.expm1(epsilon), between))


def _exceeds(loss: Floats, by: int, scale: float) -> Floats:
    """Return the probability that the loss of noise moved `by` places is above each `loss`."""
    between = 1 - tail(_point(loss, by, scale) + 1, scale)
    return np.where(loss * scale >= by, 0.0, np.where(loss * scale < -by, 1.0, between))


def _point(loss: Floats, by: int, scale: float) -> Ints:
    """Return the largest t from 0 to `by` - 1 at which the loss (by - 2t)/scale is above each `loss`."""
    point: Ints = np.clip(np.ceil((by - loss * scale) / 2) - 1, 0, by - 1).astype(np.int64)
    return point
