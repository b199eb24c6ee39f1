"""Gaussian noise for counters that neighbours change by at most one, all in the same direction.

This holds for sketches of users who contribute sets, and for bounded merges of Misra-Gries sketches. With c the k
counters and `lost` what has been subtracted from all of them together, neighbours are in one of two states:

    c - c' in {0, 1} for every key, lost = lost'          or          c' - c in {0, 1} for every key, lost = lost' + 1.

(Lemma 3.6 of the thesis for merges; `sketches.users` has the argument for sets.) One of the two holds all keys of the
other, k at most. So their counters and -lost are d = k + 1 numbers of which one unit moves some by 1, all up or all
down, however many items it has. A true frequency is at least c and at most c + lost, so the noisy loss makes valid
intervals. The count is the noisy counter plus the noisy loss if that is positive, in which the shared noise cancels,
clipped to its interval. It is right for keys that were held from their first item on, and too high, by up to `lost`,
for those whose items come late or in bursts; see `sketches.laplace_noise`.

**The noise.** One neighbour has the numbers x and the other x - v, with v in {0, 1}^d. Up to k of them are counters of
keys, and a key whose counter is 0 is absent. Published are x_i + Y + Z_i with one Y ~ N(0, a) shared by all numbers and
an own Z_i ~ N(0, b) for each; a counter only if that reaches a threshold. Privacy, in three steps:

1. The numbers. The covariance b I + a 11' has the inverse (I - a / (b + a d) 11') / b. So moving s of the numbers is as
   visible as moving the mean of one standard Gaussian by mu, where mu^2 = (s - a s^2 / (b + a d)) / b. As a function of
   s that has its top at s = (b + a d) / (2 a); hence, whatever s is,

       mu^2 <= m(d),    m(d) = (b + a d) / (4 a b), or d / (b + a d) if the top is beyond d.

   m grows with d, and fewer numbers are a part of all. With a = b / sqrt(d) each number has the deviation
   (sqrt(d) + 1) / (2 mu), where independent noise needs sqrt(d) / mu: nearly twice as much. (C. J. Lebeda, "Better
   Gaussian Mechanism using Correlated Noise", SOSA 2025.)

2. The keys. Let j of the moved numbers be odd keys, with counter 1 in one and absent in the other, and D(e, mu) =
   Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu). P are the outputs of the one, Q those of the other, u is how far noise must
   reach to show a counter of 1, and any y will do. Outputs of Q show no odd key, and beside that both are functions of
   the d - j other numbers.
   Up: an odd key shows with probability 1 - E[Phi((u - Y)/sqrt(b))^j] <= 1 - Phi(u / sqrt(a + b))^j (Jensen), so

       P(E) - e^epsilon Q(E) <= 1 - Phi(u / sqrt(a + b))^j + D(epsilon, sqrt(m(d - j))).

   Down: given all other noise, and Y <= y, no odd key shows with probability e^-h = Phi((u - y)/sqrt(b))^j or more. So
   P(E, none shows) >= e^-h (P(E for the others) - P[Y > y]), and

       Q(E) - e^epsilon P(E) <= D(epsilon - h, sqrt(m(d - j))) + e^epsilon P[Y > y].

   delta is the largest of both over j = 0, ..., k. What grows with j is taken at the end of a block of some j, what
   falls at its start, so the time hardly depends on k. (That m falls with j leaves room for the keys: nearly all of
   delta is there for the noise at j = 0, and again for the keys at j = k.)

   For composition: Q would come from the Gaussian of step 1, like P, if absent keys had a counter of 0 and noise. That
   changes Q with probability at most p = 1 - Phi(u / sqrt(a + b))^k. With Up, delta is at most p + D(epsilon, mu) in
   both directions, at every epsilon >= 0. A leak of probability q beside a Gaussian of mu has the delta
   q + (1 - q) D(epsilon, mu), which is no less for q = p / (1 - D(0, mu)), as D falls with epsilon.

3. What is drawn. All is counted in steps g = 2^-digits. Y is a discrete Gaussian on the steps, and Z_i is rounded to
   steps; since x_i + Y is whole, the rounding applies to the sum: it is post-processing. By Poisson's summation formula
   a sum over all steps of e^(-(y - c)^2 / (2 t^2)) is the integral, divided by g, times 1 + w with |w| <= kappa(t) =
   2 q / (1 - q), q = e^(-2 pi^2 t^2 / g^2), for every c. The density of all x_i + Y + Z_i is such a sum with t^2 =
   a b / (b + a d), divided by one with t^2 = a. So with Y on the steps it is at least 1 - 2 kappa(t) times that with
   a real Y, everywhere: with this probability, what is drawn is the mechanism of steps 1 and 2, and otherwise
   something that may reveal everything. So 2 kappa is added to delta; t = 1/(2 mu) for every d, and 2.25 steps make it
   2e-43.

With a = 0 the noise is independent. That has the lower threshold only where a delta of some per cent is spent on a
handful of counters; from public numbers the better one is taken.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import log_ndtr, ndtri

from dpsieve import validate
from dpsieve.accounting.gaussian import gaussian_curve, gaussian_delta, gaussian_sigma
from dpsieve.accounting.spends import Approximate, Gaussian, Spend
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import Ball, ball, minimise, precision, smallest, upper
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Outcome
from dpsieve.randomness.noise import discrete_gaussian, rounded_gaussian
from dpsieve.randomness.source import Source
from dpsieve.sketches.laplace_noise import MISSED, PrivateSketch, are_parts
from dpsieve.sketches.sketch import MOST_COUNTERS
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
                beyond = _tail(ball(cut) / self._a.sqrt()) if self.shared and j else ball(0)
                down = _divergence(ball(epsilon) + silent, mu) + ball(epsilon).exp() * beyond
                worst = max(worst, _above(up), _above(down))
            return min(1.0, upper(lambda: ball(worst) + self._grid_loss))

    @cached_property
    def mu(self) -> float:
        """The distance of means, in deviations, by which one unit is visible in the noisy numbers, rounded up."""
        return upper(lambda: _moved(self._a, self._b, self.counters + 1).sqrt())

    @cached_property
    def leak(self) -> float:
        """The probability of revealing everything, beside a Gaussian of `mu`, rounded up; see the end of step 2."""
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
        """Enclose 2 kappa; see step 3. Independent noise is rounded only."""
        if not self.shared:
            return ball(0)
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

    Attributes:
        epsilon, delta: the promise.
        counters: k, the size of the sketch.
        unit: the protected unit.

    >>> OneSidedSketch(1.0, 1e-8, 100).threshold
    181.0
    """

    epsilon: float
    delta: float
    counters: int
    unit: str = "one item"

    def __post_init__(self) -> None:
        hint = f"Pass the size of the sketch, at most {MOST_COUNTERS:,}: the noise grows with its square root."
        counters = validate.whole("counters", self.counters, low=1, high=MOST_COUNTERS, hint=hint)
        promise = Guarantee(*check_budget(self.epsilon, self.delta), unit=self.unit)
        checked = {"epsilon": promise.epsilon, "delta": promise.delta, "counters": counters, "unit": promise.unit}
        validate.store(self, **checked)
        self.noise  # noqa: B018 (raises where no such noise keeps the promise)

    def __repr__(self) -> str:
        return f"<Gaussian noise for a sketch of {self.counters:,} counters, {self.guarantee}>"

    @property
    def noise(self) -> SharedNoise:
        """The noise and the threshold."""
        return shared_noise(self.epsilon, self.delta, self.counters)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to one unit."""
        return Guarantee(self.epsilon, self.delta, unit=self.unit)

    @property
    def most_keys(self) -> int:
        """The most keys that a release may have."""
        return self.counters

    @property
    def threshold(self) -> float:
        """What a noisy counter must reach."""
        return self.noise.threshold

    def certify(self) -> Certificate:
        """Return the certificate: the bounds of this module, in ball arithmetic, for the noise drawn."""
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
        unit = 1 << noise.digits
        own = rounded_gaussian(noise.own * unit, len(rows) + 1, source=source)
        shared = int(discrete_gaussian(noise.shared * unit, 1, source=source)[0]) if noise.shared else 0
        noisy = np.minimum(counters[rows], _MOST) * unit + shared + own[:-1]
        less = -min(lost, _MOST) * unit + shared + int(own[-1])
        tokens = np.zeros(len(counters))
        tokens[rows] = np.where(noisy >= noise.least, noisy, 0) / unit
        return Outcome(tokens, {"lost": -(less // unit)})

    def bounds(self, noisy: Floats, lost: int | None) -> tuple[Ints, Ints]:
        """Return for each key an interval that contains the true frequency with probability 0.95.

        Coverage holds also given that the key was reported. Reporting makes positive noise likelier, so the lower end
        comes from a Gaussian truncated at the threshold; the upper end needs no such correction. It includes what may
        be lost; where that is not known, it bounds the counter instead.
        """
        noise = self.noise
        above = (noisy - noise.threshold) / noise.deviation
        low = np.ceil(noise.threshold - noise.step / 2 + noise.deviation * _lowest(above))
        spread = noise.deviation if lost is None else math.sqrt(2) * noise.own
        high = np.floor(noisy + (lost or 0) - float(ndtri(MISSED / 2)) * spread + noise.step)
        return np.maximum(low, 1).astype(np.int64), high.astype(np.int64)

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise of one counter."""
        return self.noise.deviation

    def noises(self, lost: int | None) -> tuple[float, float]:
        """Return the deviations of the own and of the common noise of all estimates.

        In estimates that add what was lost, the noise of the loss replaces the shared noise.
        """
        return self.noise.own, self.noise.own if (lost or 0) > 0 else self.noise.shared

    def possible(self, tokens: Floats) -> bool:
        """Return whether all tokens are whole steps, from the threshold on."""
        return are_parts(tokens, 1 << self.noise.digits, self.noise.least)


@lru_cache(maxsize=64)
def shared_noise(epsilon: float, delta: float, counters: int) -> SharedNoise:
    """Return the (epsilon, delta)-private noise with the lowest threshold: with a shared part, or without.

    >>> shared_noise(1.0, 1e-8, 1000)
    SharedNoise(counters=1000, shared=14.5..., own=81.9..., digits=0, least=560)
    """
    candidates = [_calibrate(epsilon, delta, counters, share) for share in (1 / math.sqrt(counters + 1), 0.0)]
    best = min(candidates, key=lambda noise: (noise.threshold, noise.deviation))
    if best.delta(epsilon, delta) > delta:
        raise InvalidValue(
            f"epsilon={epsilon:g} is too large for Gaussian noise at this delta. Pass a smaller epsilon."
        )
    return best


@lru_cache(maxsize=8)
def blocks(counters: int) -> tuple[Ints, Ints]:
    """Return the first and the last j of each block of 0, 1, ..., counters; the first 16 are alone."""
    first, last = [0], [0]
    while last[-1] < counters:
        first.append(last[-1] + 1)
        last.append(min(counters, first[-1] + first[-1] // _BLOCK))
    return np.array(first), np.array(last)


def _calibrate(epsilon: float, delta: float, counters: int, share: float) -> SharedNoise:
    """Return the noise with a = share * b that has the lowest threshold."""
    d, aim = counters + 1, delta * _FOR_ROUNDING
    first, last = blocks(counters)
    each = -math.expm1(math.log1p(-aim) / counters)  # how often each of k keys may show
    moves = np.sqrt(_moves(share, d - first))

    def is_private(own: float, reach: float) -> bool:
        shared, total = own * math.sqrt(share), own * math.sqrt(1 + share)
        up = -np.expm1(last * log_ndtr(reach / total)) + gaussian_curve(np.full(len(first), epsilon), moves / own)
        if not float(up.max()) <= aim:
            return False
        cuts = _cuts(shared, epsilon, delta, first, counters)
        beyond = math.exp(epsilon) * _beyond(epsilon, delta, first, counters) if share else 0.0
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
    narrow = own * math.sqrt(share / (1 + share * d)) if share else own
    digits = max(0, math.ceil(math.log2(_STEPS / narrow)))
    return SharedNoise(counters, shared, own, digits, math.ceil((1 + reach(own)) * 2**digits + 0.5))


def _moves(share: float, d: Ints) -> Floats:
    """Return m(d) for b = 1 and a = share."""
    total = 1 + share * d
    return np.where(total <= 2 * share * d, total / (4 * max(share, 1e-300)), d / total)


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
