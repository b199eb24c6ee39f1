"""Sums of Misra-Gries sketches for unknown keys: small values are rounded at random, then noise and a threshold.

Values V are those of `sketches.summed_noise`, whole numbers in units of 1/(k+1). A value below S becomes S with
probability V/S, and otherwise nothing; discrete Laplace noise X of scale b is added to all that is left, and to the
number of items N; what reaches L is published. (Section 3.6 of the thesis, Algorithm 9: S = 2k + 2, b = S/epsilon.)
Neighbours are add/remove of one item of one stream: one value grows by at most k while at most k - 1 others fall by 1,
or at most k fall by 1; and N changes by 1.

Let tau(x) = P[x + X >= L], H(m, n) the divergence at epsilon of a noise moved by m beside n moved by 1, G the
probability that the loss of a noise moved by k beside k moved by 1 exceeds epsilon + 1/b - u, and
u = k tau(S) / (S (1 - tau(S))). For b epsilon >= k, u <= k/b and L > S + k the release is (epsilon, delta)-private with

    delta = 8 (e^u - 1) G + max { k/S tau(S),  max over r < k of H(k, k - r) + r/S tau(S),
                                  max over i <= min(k, S) of H(k - i, k) + i/S tau(S + k - i) }.

The maxima are taken over blocks, 64 at most. b is the best of 65 scales from the least one at which H(k, k) leaves a
twentieth of delta up to 2k/epsilon, and S = b. A unit of m items is m steps of (epsilon/m, delta_1), as for one sketch.
Sums of floats are rounded up by one millionth. Proof: docs/background/streams.md#proof-rounded-sums.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from dpsieve.codec import register
from dpsieve.exact.balls import first_whole
from dpsieve.noise.known_keys import laplace_tail
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.mechanism import Outcome
from dpsieve.randomness.noise import SMALLEST_SCALE, laplace_scale
from dpsieve.randomness.picks import uniform_integers
from dpsieve.randomness.source import Source
from dpsieve.sketches.laplace_noise import group_delta
from dpsieve.sketches.summed_noise import SketchSum
from dpsieve.types import Floats, Ints
from dpsieve.validate import check_budget

_SAFE = 1 + 1e-6
_PARTS = 1 << 20  # where the least scale is searched, between half of that for the l1 sensitivity and all of it
_STEPS = 64  # scales to choose from, between the least one and that for the l1 sensitivity
_BLOCKS, _HALVINGS = 64, 40
_NOISE_SHARE = 0.95  # of delta, for the noise of values from S on
_BEYOND = 1e-40  # bounds the probability of what is left out of a binomial distribution


Block = tuple[int, int, float]  # first, last, and the losses of the first


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
    [34.0, 21.2, 19.0]
    """

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        super().__post_init__()

    def __repr__(self) -> str:
        return f"<rounded sum of Misra-Gries sketches of {self.counters:,} counters, {self.guarantee}>"

    @cached_property
    def choice(self) -> Choice:
        """What the mechanism works with."""
        return _choice(self.epsilon, self.delta, self.counters, self.items_per_unit)

    @property
    def scale(self) -> float:
        return self.choice.scale

    @property
    def least(self) -> int:
        return self.choice.least

    def certify(self) -> Certificate:
        worst = _delta(self.epsilon, self.counters, self.items_per_unit, self.choice)
        noise = f"noise of scale {self.scale / self.parts:.4g} and a threshold of {self.threshold:.4g}"
        covers = f"sum of sketches, rounded below {self.choice.full / self.parts:.4g}, with discrete Laplace {noise}"
        return formula(self.guarantee, worst, "formula", covers)

    def draw(self, values: Ints, items: int, source: Source) -> Outcome:
        """Return a token for each value above zero, 0 for 'nothing', and the noisy N as `lost`."""
        tokens = np.zeros(len(values), np.int64)
        full = self.choice.full
        kept = np.flatnonzero(uniform_integers(len(values), full, source) < values)
        outcome = super().draw(np.maximum(values[kept], full), items, source)
        tokens[kept] = outcome.tokens
        return replace(outcome, tokens=tokens)

    def bounds(self, noisy: Floats, lost: int) -> tuple[Ints, Ints]:
        """Return intervals for the true frequencies that all hold at once with probability 0.95.

        What may have been rounded up is at least 1.
        """
        low, high = super().bounds(noisy, lost)
        exact = np.rint(noisy * self.parts) - self._margins[0] > self.choice.full
        return np.where(exact, low, 1), high


@lru_cache(maxsize=64)
def _choice(epsilon: float, delta: float, counters: int, items_per_unit: int) -> Choice:
    """Return the scale of the lowest threshold, out of a few that lie closer where they are small."""
    widest = max(laplace_scale(epsilon, 2 * counters * items_per_unit), SMALLEST_SCALE)
    allowed = delta / (group_delta(1e-30, epsilon, items_per_unit) * 1e30) / _SAFE
    step = _step(epsilon, items_per_unit)

    def scale_at(part: int) -> float:
        return max(widest * (1 + part / _PARTS) / 2, SMALLEST_SCALE)

    def leaves_some(part: int) -> bool:
        return _losses(step, counters, counters, scale_at(part)) <= _NOISE_SHARE * allowed

    first = scale_at(first_whole(leaves_some, 0, _PARTS))
    scales = (first + (widest - first) * (part / _STEPS) ** 2 for part in range(_STEPS + 1))
    best = min((_guess(step, counters, scale, allowed) for scale in scales), key=lambda choice: choice.least)

    def holds(least: int) -> bool:
        return _delta(epsilon, counters, items_per_unit, best._replace(least=least)) <= delta

    return best._replace(least=first_whole(holds, best.full + counters + 1, 1 << 60))


def _guess(step: float, counters: int, scale: float, allowed: float) -> Choice:
    """Return about the lowest threshold at a scale, from the first and the last case of each kind alone."""
    full = max(1, round(scale))
    most = max(counters, _straddling(0, min(counters, full), counters, scale)) / counters  # of what is added, over u
    noise, u = _losses(step, counters, counters, scale) / _NOISE_SHARE, allowed / most
    for _ in range(_HALVINGS):
        steps = 8 * math.expm1(u) * _far(step, counters, scale, u)
        if noise + steps <= allowed:
            break
        u /= 2
    tau = min(u, max(allowed - steps, u / 2) / most) * full / counters
    beyond = -scale * math.log(min(1.0, tau * (1 + math.exp(-1 / scale))))
    return Choice(scale, full, full + max(math.ceil(beyond), counters + 1))


def _delta(epsilon: float, counters: int, items_per_unit: int, choice: Choice) -> float:
    """Return the delta of one unit, as at the head of this module."""
    scale, full, least = choice
    tau, step = float(laplace_tail(np.array([least - full]), scale)[0]), _step(epsilon, items_per_unit)
    wide = Fraction(scale) * Fraction(step) >= counters and tau * scale <= full * (1 - tau) / _SAFE
    if least <= full + counters or not wide:
        return 1.0
    u = counters * tau / (full * (1 - tau))
    one = _largest_case(step, counters, scale, full, tau) + 8 * math.expm1(u) * _far(step, counters, scale, u)
    return group_delta(min(1.0, one * _SAFE), epsilon, items_per_unit)


def _largest_case(step: float, counters: int, scale: float, full: int, tau: float) -> float:
    """Return the largest of the mutually exclusive cases, without what steps of 4 add."""
    fewer, nearer = _losses_by_block(step, counters, scale, full)
    others = max(losses + end / full * tau for _, end, losses in fewer)
    large = max(losses + _straddling(start, end, counters, scale) / full * tau for start, end, losses in nearer)
    return max(counters / full * tau, others, large)


@lru_cache(maxsize=64)
def _losses_by_block(step: float, counters: int, scale: float, full: int) -> tuple[list[Block], list[Block]]:
    """Return H(k, k - r) for blocks of r < k, and H(k - i, k) for blocks of i <= min(k, S)."""
    fewer = [(r, end, _losses(step, counters, counters - r, scale)) for r, end in _blocks(counters - 1)]
    nearer = [(i, end, _losses(step, counters - i, counters, scale)) for i, end in _blocks(min(counters, full))]
    return fewer, nearer


def _blocks(last: int) -> list[tuple[int, int]]:
    """Return first and last numbers of blocks that cover 0 to `last`."""
    size = -(-(last + 1) // _BLOCKS)
    return [(start, min(start + size - 1, last)) for start in range(0, last + 1, size)]


def _straddling(start: int, end: int, counters: int, scale: float) -> float:
    """Return the largest i tau(S + k - i) / tau(S) of a block, which rises up to i = b and then falls."""
    near = (min(max(start, round(scale) + shift), end) for shift in (-1, 0, 1))
    return max(i * math.exp((counters - i) / scale) for i in near)


def _step(epsilon: float, items_per_unit: int) -> float:
    """Return the epsilon of one item, rounded down."""
    return math.nextafter(epsilon / items_per_unit, 0) if items_per_unit > 1 else epsilon


def _losses(step: float, by: int, units: int, scale: float) -> float:
    """Return H(by, units): the divergence of a noise that is moved by some, beside others that are moved by 1."""
    if Fraction(scale) * Fraction(step) >= by + units:
        return 0.0
    j, mass = _signs(step, by, units, scale)
    return float(mass @ _moved(step - (2 * j - units) / scale, by, scale)) + _BEYOND


def _far(step: float, counters: int, scale: float, u: float) -> float:
    """Return G: the probability that the loss of a noise moved by k, beside k moved by 1, exceeds step + 1/b - u."""
    loss = step + 1 / scale - u
    j, mass = _signs(loss, counters, counters, scale)
    return float(mass @ _exceeds(loss - (2 * j - counters) / scale, counters, scale)) + _BEYOND


def _signs(loss: float, by: int, units: int, scale: float) -> tuple[Ints, Floats]:
    """Return how many losses of 1/b are positive, as far as a total above `loss` is possible, with probabilities."""
    q, far = 1 / (1 + math.exp(-1 / scale)), math.sqrt(units * math.log(2 / _BEYOND) / 2)
    first, last = max(units * q - far, (loss * scale + units - by) / 2 - 1), min(units, math.ceil(units * q + far))
    j = np.arange(max(0, math.floor(first)), last + 1)
    ways = gammaln(units + 1) - gammaln(j + 1) - gammaln(units - j + 1)
    return j, np.exp(ways + j * math.log(q) + (units - j) * math.log1p(-q))


def _moved(epsilon: Floats, by: int, scale: float) -> Floats:
    """Return the divergence h of noise and the same noise moved `by` places, at each epsilon."""
    point = _point(epsilon, by, scale)
    # Within the reach of the losses: F(t) = 1 - P[X >= t + 1], and F(t - by) = P[X >= by - t].
    between = (
        1 - laplace_tail(point + 1, scale) - np.exp(np.minimum(epsilon, by / scale)) * laplace_tail(by - point, scale)
    )
    return np.where(epsilon * scale >= by, 0.0, np.where(epsilon * scale <= -by, -np.expm1(epsilon), between))


def _exceeds(loss: Floats, by: int, scale: float) -> Floats:
    """Return the probability that the loss of noise moved `by` places is above each `loss`."""
    between = 1 - laplace_tail(_point(loss, by, scale) + 1, scale)
    return np.where(loss * scale >= by, 0.0, np.where(loss * scale < -by, 1.0, between))


def _point(loss: Floats, by: int, scale: float) -> Ints:
    """Return the largest t from 0 to `by` - 1 at which the loss (by - 2t)/scale is above each `loss`."""
    point: Ints = np.clip(np.ceil((by - loss * scale) / 2) - 1, 0, by - 1).astype(np.int64)
    return point
