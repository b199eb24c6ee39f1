"""Gaussian noise for counters that neighbours change by at most one, all in the same direction.

This holds for sketches of users who contribute sets, and for bounded merges of Misra-Gries sketches: one unit moves
some of d = k + 1 numbers, the k counters and the negated loss, by 1, all up or all down. Published are x_i + Y + Z_i
with one Y ~ N(0, a) shared by all numbers and an own Z_i ~ N(0, b) for each; a counter only if that reaches a
threshold. A move is as visible as that of the mean of a standard Gaussian by mu, where

    mu^2 <= m(d),    m(d) = (b + a d) / (4 a b), or d / (b + a d) where b > a d.

delta is the largest over the number j of moved keys that only one neighbour holds. Here a = b / sqrt(d). Reference:
C. J. Lebeda, SOSA 2025. Proof: docs/background/streams.md#proof-one-sided-noise.
"""

import math
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import log_ndtr, ndtri

from dpsieve.accounting.curves import gaussian_curve, gaussian_delta, gaussian_sigma
from dpsieve.accounting.spends import Approximate, Gaussian, Spend
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import Ball, ball, minimise, precision, smallest, upper
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Unit
from dpsieve.privacy.mechanism import Outcome
from dpsieve.randomness.noise import discrete_gaussian, rounded_gaussian
from dpsieve.randomness.source import Source
from dpsieve.sketches.laplace_noise import MISSED, PrivateSketch
from dpsieve.types import Floats, Ints
from dpsieve.validate import check_budget

_STEPS = 2.25  # t in steps, at least
_BLOCK = 16  # a block ends at most 1/16 after its start
_FOR_ROUNDING = 1 - 1e-9  # the share of delta that the search uses, so that the proof ends below delta
_BITS = 192
_MOST = 2**50  # larger counters count as this one, which brings no two sketches further apart
_FAR, _NODES = 8, 256  # deviations above the threshold where being reported has no effect, and nodes per deviation


@dataclass(frozen=True)
class SharedNoise:
    """The noise for k counters and one more number, and the threshold.

    Attributes:
        counters: k.
        shared, own: the deviations sqrt(a) of the shared noise, and sqrt(b) of the own noise of each number.
        digits: all numbers are multiples of 2^-digits.
        least: the threshold, in such steps.
    """

    counters: int
    shared: float
    own: float
    digits: int
    least: int

    @property
    def step(self) -> float:
        """The unit of all numbers."""
        return 2.0**-self.digits

    @property
    def threshold(self) -> float:
        """What a noisy counter must reach."""
        return self.least * self.step

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise of one number."""
        return math.hypot(self.shared, self.own)

    def delta(self, epsilon: float, aim: float) -> float:
        """Return a proven bound on delta, tight where it is about `aim`: the largest over all blocks of j."""
        worst = 0.0
        with precision(_BITS):
            first, last = blocks(self.counters)
            cuts = _cuts(self.shared, epsilon, aim, first, self.counters)
            for j, end, cut in zip(first.tolist(), last.tolist(), cuts.tolist(), strict=True):
                mu = _moved(self._a, self._b, self.counters + 1 - j).sqrt()
                up = self._shown(end) + _divergence(ball(epsilon), mu)
                silent = (-_tail((ball(self._reach) - ball(cut)) / self._b.sqrt())).log1p() * end
                beyond = _tail(ball(cut) / self._a.sqrt()) if j else ball(0)
                down = _divergence(ball(epsilon) + silent, mu) + ball(epsilon).exp() * beyond
                worst = max(worst, _above(up), _above(down))
            return min(1.0, upper(lambda: ball(worst) + self._grid_loss))

    @cached_property
    def mu(self) -> float:
        """The distance of means, in deviations, by which one unit is visible in the noisy numbers, rounded up."""
        return upper(lambda: _moved(self._a, self._b, self.counters + 1).sqrt())

    @cached_property
    def leak(self) -> float:
        """The probability of revealing everything, beside a Gaussian of `mu`, rounded up; see the proof, step 2."""
        near = gaussian_delta(1.0, 0.0, self.mu)
        if near == 1:
            return 1.0
        return min(1.0, upper(lambda: self._shown(self.counters) / (1 - ball(near)) + self._grid_loss))

    @property
    def _reach(self) -> float:
        """The noise needed to publish a counter of 1: rounding may add half a step."""
        return (self.least - 0.5) * self.step - 1

    @property
    def _a(self) -> Ball:
        return ball(self.shared) ** 2

    @property
    def _b(self) -> Ball:
        return ball(self.own) ** 2

    @property
    def _grid_loss(self) -> Ball:
        """Enclose 2 kappa; see the proof, step 3."""
        narrow: Ball = self._a * self._b / (self._b + self._a * (self.counters + 1)) * 4**self.digits
        q = (-2 * ball(0).acos() ** 2 * 4 * narrow).exp()  # acos(0) is pi / 2
        return 4 * q / (1 - q)

    def _shown(self, keys: int) -> Ball:
        """Enclose the probability that any of this many keys of counter 1 is published, with independent noise."""
        return -((-_tail(ball(self._reach) / (self._a + self._b).sqrt())).log1p() * keys).expm1()


@register("one_sided_noise")
@dataclass(frozen=True, repr=False)
class OneSidedSketch(PrivateSketch):
    """Gaussian noise with a threshold for the counters of a sketch, and noise for what they have lost.

    >>> OneSidedSketch(1.0, 1e-8, 100).threshold
    181.0
    """

    _: KW_ONLY
    unit: Unit = "one item"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        super().__post_init__()
        self.noise  # noqa: B018 (raises where no such noise keeps the promise)

    def __repr__(self) -> str:
        return f"<Gaussian noise for a sketch of {self.counters:,} counters, {self.guarantee}>"

    @property
    def noise(self) -> SharedNoise:
        """The noise and the threshold."""
        return shared_noise(self.epsilon, self.delta, self.counters)

    @property
    def threshold(self) -> float:
        """What a noisy counter must reach."""
        return self.noise.threshold

    def certify(self) -> Certificate:
        noise = self.noise
        kind = f"Gaussian noise of deviation {noise.deviation:.4g} and a threshold of {noise.threshold:,.6g}"
        covers = f"{kind}, for {self.counters:,} counters and their loss, moved in one direction"
        return formula(self.guarantee, noise.delta(self.epsilon, self.delta), "balls", covers)

    def spends(self) -> tuple[Spend, ...]:
        """Return the Gaussian curve of the noise and the leak of the threshold, or the promise if that leak is 1."""
        if self.noise.leak == 1:
            return super().spends()
        return Gaussian(1.0, self.noise.mu), Approximate(0.0, self.noise.leak)

    def draw(self, counters: Ints, lost: int, source: Source) -> Outcome:
        """Return a token for each counter, 0 for 'nothing', and the noisy loss as `lost`."""
        noise, rows = self.noise, np.flatnonzero(counters)
        unit = self.resolution
        own = rounded_gaussian(noise.own * unit, len(rows) + 1, source=source)
        shared = int(discrete_gaussian(noise.shared * unit, 1, source=source)[0])
        noisy = np.minimum(counters[rows], _MOST) * unit + shared + own[:-1]
        less = -min(lost, _MOST) * unit + shared + int(own[-1])
        tokens = np.zeros(len(counters), np.int64)
        tokens[rows] = np.where(noisy >= noise.least, noisy, 0)
        return Outcome(tokens, {"lost": -(less // unit)})

    def bounds(self, noisy: Floats, lost: int) -> tuple[Ints, Ints]:
        """Return for each key an interval that contains the true frequency with probability 0.95.

        Coverage holds also given that the key was reported. Reporting makes positive noise likelier, so the lower end
        comes from a Gaussian truncated at the threshold; the upper end needs no such correction.
        """
        noise = self.noise
        above = (noisy - noise.threshold) / noise.deviation
        low = np.ceil(noise.threshold - noise.step / 2 + noise.deviation * _lowest(above))
        spread = math.sqrt(2) * noise.own
        high = np.floor(noisy + lost - float(ndtri(MISSED / 2)) * spread + noise.step)
        return np.maximum(low, 1).astype(np.int64), high.astype(np.int64)

    @property
    def deviation(self) -> float:
        return self.noise.deviation

    def noises(self, lost: int) -> tuple[float, float]:
        # In estimates that add what was lost, the noise of the loss replaces the shared noise.
        return self.noise.own, self.noise.own if lost > 0 else self.noise.shared

    @property
    def resolution(self) -> int:
        return 1 << self.noise.digits

    @property
    def least(self) -> int:
        return self.noise.least


@lru_cache(maxsize=64)
def shared_noise(epsilon: float, delta: float, counters: int) -> SharedNoise:
    """Return the (epsilon, delta)-private noise with a = b / sqrt(d) that has the lowest threshold.

    >>> shared_noise(1.0, 1e-8, 1000)
    SharedNoise(counters=1000, shared=14.5..., own=81.9..., digits=0, least=560)
    """
    noise = _calibrate(epsilon, delta, counters)
    if noise.delta(epsilon, delta) > delta:
        hint = "Pass a smaller epsilon."
        raise InvalidValue(
            f"epsilon={epsilon:g} is too large for Gaussian noise at this delta. {hint}", argument="epsilon"
        )
    return noise


@lru_cache(maxsize=8)
def blocks(counters: int) -> tuple[Ints, Ints]:
    """Return the first and the last j of each block of 0, 1, ..., counters; the first 16 are alone."""
    first, last = [0], [0]
    while last[-1] < counters:
        first.append(last[-1] + 1)
        last.append(min(counters, first[-1] + first[-1] // _BLOCK))
    return np.array(first), np.array(last)


def _calibrate(epsilon: float, delta: float, counters: int) -> SharedNoise:
    d, aim = counters + 1, delta * _FOR_ROUNDING
    share = 1 / math.sqrt(d)
    first, last = blocks(counters)
    each = -math.expm1(math.log1p(-aim) / counters)  # how often each of k keys may show
    moves = np.sqrt(_moves(share, d - first))

    def is_private(own: float, reach: float) -> bool:
        shared, total = own * math.sqrt(share), own * math.sqrt(1 + share)
        up = -np.expm1(last * log_ndtr(reach / total)) + gaussian_curve(np.full(len(first), epsilon), moves / own)
        if not float(up.max()) <= aim:
            return False
        cuts = _cuts(shared, epsilon, delta, first, counters)
        beyond = math.exp(epsilon) * _beyond(epsilon, delta, first, counters)
        silent = last * log_ndtr((reach - cuts) / own)
        return bool((gaussian_curve(epsilon + silent, moves / own) + beyond).max() <= aim)

    def reach(own: float) -> float:
        total = own * math.sqrt(1 + share)
        near = max(0.0, -total * float(ndtri(each))) * (1 + 1e-12)  # needed for k keys, and nearly always sufficient
        if is_private(own, near):
            return near
        return (
            smallest(lambda u: is_private(own, u), near, 60 * total, tolerance=1e-9)
            if is_private(own, 60 * total)
            else math.inf
        )

    narrowest = float(moves[0]) * gaussian_sigma(epsilon, aim / 1.001)
    own = minimise(reach, narrowest, 2 * narrowest, rounds=28)
    if reach(narrowest * (1 + 1e-9)) <= reach(own):
        own = narrowest * (1 + 1e-9)
    shared = own * math.sqrt(share)
    narrow = own * math.sqrt(share / (1 + share * d))
    digits = max(0, math.ceil(math.log2(_STEPS / narrow)))
    return SharedNoise(counters, shared, own, digits, math.ceil((1 + reach(own)) * 2**digits + 0.5))


def _moves(share: float, d: Ints) -> Floats:
    """Return m(d) for b = 1 and a = share."""
    total = 1 + share * d
    return np.where(total <= 2 * share * d, total / (4 * share), d / total)


def _moved(a: Ball, b: Ball, d: int) -> Ball:
    """Enclose m(d), or an upper bound where the balls do not decide between its two cases."""
    total = b + a * d
    return d / total if total >= 2 * a * d else total / (4 * a * b)


def _beyond(epsilon: float, aim: float, first: Ints, counters: int) -> Floats:
    """Return the target of P[Y > y] for each block: a share of the room that j keys leave."""
    return aim * math.exp(-epsilon) / 4 * first / (counters + 1)


def _cuts(shared: float, epsilon: float, aim: float, first: Ints, counters: int) -> Floats:
    """Return the y of each block; for j = 0, without odd keys, none is needed."""
    chance = np.where(first > 0, _beyond(epsilon, aim, first, counters), 0.5)
    return -shared * ndtri(chance)


def _tail(x: Ball) -> Ball:
    """Enclose 1 - Phi(x)."""
    return (x / ball(2).sqrt()).erfc() / 2


def _divergence(epsilon: Ball, mu: Ball) -> Ball:
    """Enclose D(epsilon, mu)."""
    middle = epsilon / mu
    return _tail(middle - mu / 2) - epsilon.exp() * _tail(middle + mu / 2)


def _above(value: Ball) -> float:
    """Return a float above a ball."""
    return upper(lambda: value)


def _lowest(above: Floats) -> Floats:
    """Return a lower bound on a counter minus the threshold, in deviations, for noisy ones this far above it.

    With N standard Gaussian it is the least x with P[x + N >= above | x + N >= 0] >= 2.5 %, at a node below `above`.
    """
    nodes = _lowest_at_nodes()
    near = nodes[np.clip(above * _NODES, 0, len(nodes) - 1).astype(np.int64)]
    return np.where(above < _FAR, near, above + float(ndtri(MISSED / 2)))


@lru_cache(maxsize=1)
def _lowest_at_nodes() -> Floats:
    above = np.arange(_FAR * _NODES + 1) / _NODES
    low, high = np.full(len(above), -100.0), above.copy()
    for _ in range(60):
        middle = (low + high) / 2
        rare = log_ndtr(middle - above) - log_ndtr(middle) < math.log(MISSED / 2)
        low, high = np.where(rare, middle, low), np.where(rare, high, middle)
    return low
