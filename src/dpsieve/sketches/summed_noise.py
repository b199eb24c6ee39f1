"""Noise for sums of Misra-Gries sketches: over a known universe, and for unknown keys.

From a sketch of k counters c, lowered gamma times over n items, take v = max(0, c + gamma - n/(k+1)): at most n/(k+1)
below the true frequency and never above it (Section 3.6 of the thesis). Everything is counted in units of 1/(k+1),
where V = max(0, (k+1)(c + gamma) - n) is a whole number. One item more changes all values by at most 2k - 1 together,
and with the number of items by at most 2k, also in sums over streams: discrete Laplace noise of scale 2k/epsilon on all
of it is epsilon-private, and the noisy number of items bounds what the sketches have lost
(docs/background/streams.md#proof-sums-over-a-universe).

Every element of a known universe gets noise, and those that reach a public threshold are published. The number of
published zeros is a binomial draw, their places a uniform choice, and their excess a geometric draw, so no other
element of a large universe is touched. A unit of m items is m steps of epsilon/m. For unknown keys: `RoundedSketch`.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Annotated, NamedTuple

import numpy as np
from flint import arb
from scipy.special import gammaln

from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import first_whole
from dpsieve.noise.known_keys import laplace_tail
from dpsieve.privacy.certificate import Certificate, formula, laplace
from dpsieve.privacy.mechanism import Outcome
from dpsieve.randomness.coins import draw_binomial
from dpsieve.randomness.noise import SMALLEST_SCALE, discrete_laplace, laplace_scale
from dpsieve.randomness.picks import draw_distinct, uniform_integers
from dpsieve.randomness.source import Source
from dpsieve.sketches.laplace_noise import MISSED, LaplaceSketch, any_above, find_threshold, group_delta
from dpsieve.types import Floats, Ints
from dpsieve.validate import check_budget, is_positive, is_whole

MOST_KEYS = 10**12  # of a universe
MOST_SOURCES = 10**9
_SAFE = 1 + 1e-6
_PARTS = 1 << 20  # where the least scale is searched, between half of that for the l1 sensitivity and all of it
_STEPS = 64  # scales to choose from, between the least one and that for the l1 sensitivity
_BLOCKS, _HALVINGS = 64, 40
_NOISE_SHARE = 0.95  # of delta, for the noise of values from S on
_BEYOND = 1e-40  # bounds the probability of what is left out of a binomial distribution


Block = tuple[int, int, float]  # first, last, and the losses of the first


@dataclass(frozen=True, repr=False)
class SketchSum(LaplaceSketch):
    """Noise for the values of merged sketches, and for a bound on how much they are too low.

    What is drawn as `lost` is that bound in units of 1/parts: the noisy number of items.

    Attributes:
        sources: the number of merged sketches.
    """

    sources: Annotated[int, is_whole(1, MOST_SOURCES, "Pass how many sketches are added up.")] = 1

    @property
    def parts(self) -> int:
        return self.counters + 1

    @property
    def resolution(self) -> int:
        return self.parts

    @property
    def sensitivity(self) -> int:
        return 2 * self.counters  # of all values and the number of items together

    def shares_noise(self, lost: int) -> bool:
        return lost > 0

    @property
    def most_keys(self) -> int:
        return self.counters * self.sources

    @property
    def noisy_keys(self) -> int:
        """The most keys that may get noise."""
        return self.most_keys

    @property
    @abstractmethod
    def least(self) -> int:
        """What a noisy value must reach, in units of 1/parts."""

    @property
    def threshold(self) -> float:
        """What a noisy value must reach, in units of frequency."""
        return self.least / self.parts

    def draw(self, values: Ints, items: int, source: Source) -> Outcome:
        """Return a token for each value above zero, 0 for 'nothing', and the noisy bound as `lost`."""
        noisy = values + discrete_laplace(self.scale, len(values), source=source)
        counted = items + int(discrete_laplace(self.scale, 1, source=source)[0])
        return Outcome(np.where(noisy >= self.least, noisy, 0), {"lost": counted})

    def bounds(self, noisy: Floats, lost: int) -> tuple[Ints, Ints]:
        """Return intervals that all contain the true frequencies with probability 0.95.

        A true frequency is at least v = token - X, and at most v plus what may be lost. A key that is held from its
        first item on has exactly v plus what was lost, and common keys nearly that. So that is the count.
        """
        below, above = self._margins
        low = np.maximum(np.ceil(noisy - below / self.parts), 0).astype(np.int64)
        return low, np.maximum(np.floor(noisy + (lost + above) / self.parts).astype(np.int64), low)

    @cached_property
    def _margins(self) -> tuple[int, int]:
        """Upper bounds on all X_i, and on all -X_i plus the noise of N, that each fail with half of the probability."""
        keys, half = self.noisy_keys, MISSED / 2
        below = find_threshold(lambda t: keys * self._tail(t), half) - 1
        return below, find_threshold(lambda t: any_above(t, {0: keys}, self.scale), half) - 1


@register("misra_gries_sum")
@dataclass(frozen=True, repr=False)
class SummedSketch(SketchSum):
    """Noise for merged sketches over a known universe.

    Attributes:
        delta: 0.
        universe: the size of the known universe.
        false_keys: the expected number of published elements that do not occur.

    >>> round(SummedSketch(1.0, 0.0, 1024, universe=10**9).threshold, 1)
    40.0
    """

    universe: Annotated[int, is_whole(1, MOST_KEYS, "Pass how many keys can occur.")] = field(kw_only=True)
    false_keys: Annotated[float, is_positive("Pass how many false keys to expect, such as 1.0.")] = field(
        default=1.0, kw_only=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta:
            hint = "Without a known universe, use RoundedSketch."
            raise InvalidValue(f"delta must be 0 over a known universe. {hint}", argument="delta")

    def __repr__(self) -> str:
        return f"<sum of Misra-Gries sketches of {self.counters:,} counters, {self.guarantee}>"

    @property
    def most_keys(self) -> int:
        return min(super().most_keys, self.universe)

    @property
    def noisy_keys(self) -> int:
        return self.universe

    @cached_property
    def least(self) -> int:
        return find_threshold(lambda t: self.universe * self._tail(t), self.false_keys)

    def certify(self) -> Certificate:
        covers = f"sum of sketches with discrete Laplace noise of scale {self.scale / self.parts:.4g}"
        return laplace(self.guarantee, self.scale, self.sensitivity * self.items_per_unit, covers)

    def draw_zeros(self, held: Ints, source: Source) -> tuple[Ints, Ints]:
        """Return the published places of the universe without a value, and their tokens; places `held` have a value."""
        count = draw_binomial(self.universe - len(held), self._lifted, source)
        chosen = draw_distinct(count, self.universe, np.sort(held).view(np.uint64), source).view(np.int64)
        noise = discrete_laplace(self.scale, len(chosen), source=source)
        beyond = np.where(noise >= 0, noise, -1 - noise)  # geometric: P[g] is proportional to p^g + p^(g+1)
        return chosen, self.least + beyond

    def _lifted(self) -> arb:
        """Enclose the probability that noise lifts a zero to the threshold."""
        return (-arb(self.least) / arb(self.scale)).exp() / (1 + (-1 / arb(self.scale)).exp())


class Choice(NamedTuple):
    """The scale of the noise, the value below which values are rounded, and the threshold, in units of 1/(k+1)."""

    scale: float
    full: int
    least: int


@register("misra_gries_rounded_sum")
@dataclass(frozen=True, repr=False)
class RoundedSketch(SketchSum):
    """Random rounding, noise and a threshold for a sum of post-processed sketches, from public numbers alone.

    A value V below S becomes S with probability V/S, and otherwise nothing; discrete Laplace noise X of scale b is
    added to all that is left, and to the number of items N; what reaches L is published. (Section 3.6 of the thesis,
    Algorithm 9: S = 2k + 2, b = S/epsilon.) Neighbours are add/remove of one item of one stream: one value grows by at
    most k while at most k - 1 others fall by 1, or at most k fall by 1; and N changes by 1.

    Let tau(x) = P[x + X >= L], H(m, n) the divergence at epsilon of a noise moved by m beside n moved by 1, G the
    probability that the loss of a noise moved by k beside k moved by 1 exceeds epsilon + 1/b - u, and u = k tau(S) / (S
    (1 - tau(S))). For b epsilon >= k, u <= k/b and L > S + k the release is (epsilon, delta)-private with

        delta = 8 (e^u - 1) G + max { k/S tau(S),  max over r < k of H(k, k - r) + r/S tau(S),
                                      max over i <= min(k, S) of H(k - i, k) + i/S tau(S + k - i) }.

    b is the best of 65 scales, and S = b. A unit of m items is m steps of (epsilon/m, delta_1), as for one sketch. Sums
    of floats are rounded up by one millionth. Proof: docs/background/streams.md#proof-rounded-sums.

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
        rows = np.flatnonzero(uniform_integers(len(values), full, source) < values)
        outcome = super().draw(np.maximum(values[rows], full), items, source)
        tokens[rows] = outcome.tokens
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
