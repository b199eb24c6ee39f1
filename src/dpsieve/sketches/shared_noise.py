"""Gaussian noise of which all numbers share a part, for numbers that one unit moves in one direction.

Of two neighbours, one has d = k + 1 numbers x and the other x - v, with v in {0, 1}^d. Up to k of them are counters of
keys, and a key whose counter is 0 is absent. Published are x_i + Y + Z_i with one Y ~ N(0, a) for all numbers and
Z_i ~ N(0, b) for each; a counter only if that reaches a threshold. Why that is private, in three steps.

1. The noise. The covariance b I + a 11' has the inverse (I - a / (b + a d) 11') / b. So moving s of the numbers is as
   visible as moving the mean of one standard Gaussian by mu, where mu^2 = (s - a s^2 / (b + a d)) / b. As a function of
   s that has its top at s = (b + a d) / (2 a); hence, whatever s is,

       mu^2 <= m(d),    m(d) = (b + a d) / (4 a b), or d / (b + a d) if the top is beyond d.

   m grows with d, and fewer numbers are a part of all. With a = b / sqrt(d) each number has the deviation
   (sqrt(d) + 1) / (2 mu), where independent noise needs sqrt(d) / mu: nearly twice as much. (C. J. Lebeda, "Better
   Gaussian Mechanism using Correlated Noise", SOSA 2025.)

2. The keys. Let j of the moved numbers be odd keys, of counter 1 in the one and absent in the other, and D(e, mu) =
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
   a real Y, everywhere: what is drawn is, with this probability, the mechanism of steps 1 and 2, and else something
   that may tell all. So 2 kappa is added to delta; t = 1/(2 mu) for every d, and 2.25 steps make it 2e-43.

With a = 0 the noise is independent. That has the lower threshold only where a delta of some per cent is spent on a
handful of counters; from public numbers the better one is taken.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import log_ndtr, ndtri

from dpsieve.accounting.gaussian import gaussian_curve, gaussian_delta, gaussian_sigma
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import Ball, ball, minimise, precision, smallest, upper
from dpsieve.types import Floats, Ints

_STEPS = 2.25  # t in steps, at least
_BLOCK = 16  # a block ends at most 1/16 after its start
_FOR_ROUNDING = 1 - 1e-9  # what the search leaves, so that the proof ends below delta
_BITS = 192


@dataclass(frozen=True)
class SharedNoise:
    """The noise for k counters and one more number, and the threshold.

    Attributes:
        counters: k.
        shared, own: the deviations sqrt(a) of the noise that all share, and sqrt(b) of that which each has for itself.
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
        """Return a proven bound on delta, tight where it is about `aim`: the largest of all blocks of j."""
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
        """How visible one unit is in the noisy numbers, rounded up."""
        return upper(lambda: _moved(self._a, self._b, self.counters + 1).sqrt())

    @cached_property
    def leak(self) -> float:
        """The probability that everything is told, beside a Gaussian of `mu`, rounded up; see the end of step 2."""
        near = gaussian_delta(1.0, 0.0, self.mu)
        if near == 1:
            return 1.0
        return min(1.0, upper(lambda: self._shown(self.counters) / (1 - ball(near)) + self._grid_loss))

    @property
    def _reach(self) -> float:
        """How far noise must reach to show a counter of 1: rounding may add half a step."""
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
        """Enclose the probability that a key of counter 1 shows, of this many with independent noise."""
        return -((-_tail(ball(self._reach) / (self._a + self._b).sqrt())).log1p() * keys).expm1()


@lru_cache(maxsize=64)
def shared_noise(epsilon: float, delta: float, counters: int) -> SharedNoise:
    """Return the noise of the lowest threshold that is (epsilon, delta)-private: with a shared part, or without.

    >>> shared_noise(1.0, 1e-8, 1000)
    SharedNoise(counters=1000, shared=14.5..., own=81.9..., digits=0, least=560)
    """
    ways = [_calibrated(epsilon, delta, counters, share) for share in (1 / math.sqrt(counters + 1), 0.0)]
    best = min(ways, key=lambda way: (way.threshold, way.deviation))
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


def _calibrated(epsilon: float, delta: float, counters: int, share: float) -> SharedNoise:
    """Return the noise with a = share * b that has the lowest threshold."""
    d, aim = counters + 1, delta * _FOR_ROUNDING
    first, last = blocks(counters)
    each = -math.expm1(math.log1p(-aim) / counters)  # how often each of k keys may show
    moves = np.sqrt(_moves(share, d - first))

    def kept(own: float, reach: float) -> bool:
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
        near = max(0.0, -total * float(ndtri(each))) * (1 + 1e-12)  # what k keys need, which nearly always is enough
        if kept(own, near):
            return near
        return smallest(lambda u: kept(own, u), near, 60 * total, tolerance=1e-9) if kept(own, 60 * total) else math.inf

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
    """Enclose m(d), or something above it where the balls do not tell which of its two cases holds."""
    total = b + a * d
    return d / total if total >= 2 * a * d else total / (4 * a * b)


def _beyond(epsilon: float, aim: float, first: Ints, counters: int) -> Floats:
    """Return about what P[Y > y] is to be for each block: some of the room that j keys leave."""
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
