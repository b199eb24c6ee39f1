"""Delta of a unit with several keys, each shown by a private coin first and counted with Gaussian noise then.

A unit is added or removed. It holds at most m keys, each in one of two states, fixed before anything is drawn:

- rare: its coin, p(i) without the unit and p(i + 1) with it, decides whether the key shows, and the law of its token is
  the same with and without the unit. But for a leak of probability d on either side, the Renyi divergence of order a of
  both coins is at most t, in both directions;
- common: the token moves too, by at most one, under Gaussian noise of deviation sigma; the coins are as above with
  `slow` in place of t. To show the token also where the coin does not is post-processing backwards, so such a key costs
  no more than its coin and a Gaussian pair of distance 1 together.

Let j keys be rare. The Gaussian pairs of the others are one pair of distance mu = sqrt(m - j) / sigma, whose exact
curve is g(e) = Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu) for e of any sign. All coins together have a privacy loss L
whose moment E[e^((a-1) L)], where nothing leaks, is at most e^((a-1) c), c = j t + (m - j) slow. The losses of coins
and of noise are independent, so that both together have the delta E[g(epsilon - L)]. With the peak

    K = max over e of g(e) e^((a-1) e),    g(epsilon - L) <= K e^((a-1) (L - epsilon)),

so E[g(epsilon - L)] <= K e^((a-1) (c - epsilon)), and

    delta <= d (keys with a coin) + max over j of K_j e^((a-1) (c_j - epsilon));

where no key has a coin, g(epsilon) itself stands for all of it. With j = m, K is (1 - 1/a)^(a-1) / a, which is the
usual conversion of Renyi privacy; with j = 0 this is the Gaussian mechanism. Nothing here is chosen adaptively: that is
what makes it better than adding up Renyi divergences of coins and noise.

The peak is known in closed form. In x = e/mu - mu/2, the derivative of ln(g) + (a-1) e vanishes where

    M(x + mu) / M(x) = (a-1) / a,    M(x) = (1 - Phi(x)) / phi(x) (Mills' ratio),

and nowhere else, as M is log-convex: the left side grows with x. There K = (1 - Phi(x)) / a * e^((a-1) mu (x + mu/2)).

Only the smallest and the largest j need be looked at, as the bound is convex in j: d j and c_j are linear, and ln K is
convex in s = mu^2. For g solves dg/ds = (g'' - g') / 2 (a prime is d/de), so the peak moves by d ln(K)/ds =
(g'' - g') / (2 g) = a / (2 mu M(x)), and this grows: with v = 1/M(x) - x and w = 1/M(x + mu) - (x + mu), the derivative
of mu M(x) by mu is at most zero if and only if 1/w - 1/v <= mu. And 1/v grows by at most one for each one of x: that is
v (1/M(x) + v) >= 1, the convexity of 1/M (M. Sampford, "Some inequalities on Mill's ratio", 1953).
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpsieve.exact.search import Ball, ball, upper
from dpsieve.privacy.curves.gaussian import gaussian_curve, gaussian_delta
from dpsieve.types import Floats

_ROOT2 = math.sqrt(2)
_NEAR = 1e-12


class Coins(NamedTuple):
    """What the coins of one key keep: see the head of this module."""

    order: float
    step: float
    slow: float
    leak: float


@lru_cache(maxsize=64)
def unit_delta(keys: int, epsilon: float, coins: Coins, distance: float) -> float:
    """Return the delta of a unit with up to this number of keys, by proven bounds, rounded up.

    `distance` is what one unit adds to a count over the deviation of the noise, rounded up.

    >>> f"{unit_delta(10, 1.0, Coins(23.0, 0.0345, 0.0, 3.5e-10), 1 / 16.94):.3g}"
    '1.25e-08'
    """
    return min(1.0, max(_bound(keys, rare, epsilon, coins, distance) for rare in _ends(keys, coins)))


def _ends(keys: int, coins: Coins) -> tuple[int, ...]:
    """Return the numbers of rare keys to look at; where common keys have no coin, none of them is a case of its own."""
    return (0, keys) if coins.slow else (0, 1, keys)


def _bound(keys: int, rare: int, epsilon: float, coins: Coins, distance: float) -> float:
    """Return the bound for one number of rare keys."""
    mu = upper(lambda: ball(keys - rare).sqrt() * ball(distance))
    tossed = keys if coins.slow else rare
    if not tossed:
        return gaussian_delta(1.0, epsilon, mu)
    near = float(_peak_places(np.array([mu]), coins.order)[0]) if mu else 0.0

    def expression() -> Ball:
        a, cost = ball(coins.order), ball(rare) * ball(coins.step) + ball(keys - rare) * ball(coins.slow)
        return tossed * ball(coins.leak) + _peak(a, mu, near) * ((a - 1) * (cost - ball(epsilon))).exp()

    return upper(expression)


def _peak(a: Ball, mu: float, near: float) -> Ball:
    """Enclose a number just above K; `near` is where it is attained, roughly."""
    if not mu:
        return (1 - 1 / a) ** (a - 1) / a
    root, step = ball(2).sqrt(), ball(mu)

    def beyond(x: Ball) -> Ball:
        """Enclose something of the sign of M(x + mu) / M(x) - (a-1) / a."""
        moved = (step * x + step**2 / 2).exp() * ((x + step) / root).erfc()
        return moved / (x / root).erfc() - (a - 1) / a

    for width in (_NEAR * (1 + abs(near)) * 8.0**k for k in range(12)):
        low, high = ball(near - width), ball(near + width)
        if beyond(low) < 0 < beyond(high):
            # The first factor of K falls with x, the second grows.
            return (low / root).erfc() / 2 / a * ((a - 1) * step * (high + step / 2)).exp()
    return ball(math.inf)  # with these bits; numbers that need very many of them are of no use


def rough_step(keys: int, epsilon: float, delta: float, coins: Coins, distance: float) -> float:
    """Return nearly the largest step that keeps delta with the order and leak of `coins`; at most zero if none does.

    `coins.slow` is read as a share of the step.
    """
    order = coins.order
    if not coins.slow and gaussian_curve(np.array([epsilon]), math.sqrt(keys) * distance)[0] > delta:
        return 0.0
    rare = np.array([j for j in _ends(keys, coins) if j or coins.slow])
    mu: Floats = np.sqrt(keys - rare) * distance
    peaks = np.full(len(rare), (order - 1) * math.log1p(-1 / order) - math.log(order))
    some = mu > 0
    peaks[some] = _log_peaks(mu[some], order)
    left = delta - coins.leak * np.where(coins.slow, keys, rare)
    if not (left > 0).all():
        return 0.0
    steps = (epsilon + (np.log(left) - peaks) / (order - 1)) / (rare + coins.slow * (keys - rare))
    return float(steps.min())


def _log_peaks(mu: Floats, order: float) -> Floats:
    from scipy.special import log_ndtr

    x = _peak_places(mu, order, rounds=32)  # the derivative is zero there: the last digits do not matter
    return np.asarray(log_ndtr(-x) - math.log(order) + (order - 1) * mu * (x + mu / 2))


def _peak_places(mu: Floats, order: float, rounds: int = 60) -> Floats:
    """Return x with M(x + mu) / M(x) = (order - 1) / order, for each mu above zero, by bisection.

    As 1/M(x) - x, by which ln M falls, is between max(0, -x) and 1/x, x is between the ends that are taken here.
    """
    target = math.log1p(-1 / order)
    low, high = target / mu - mu, order * mu
    for _ in range(rounds):
        middle = (low + high) / 2
        before = _log_ratio(middle, mu) < target
        low, high = np.where(before, middle, low), np.where(before, high, middle)
    return np.asarray((low + high) / 2)


def _log_ratio(x: Floats, mu: Floats) -> Floats:
    """Return ln M(x + mu) / M(x)."""
    from scipy.special import erfcx, log_ndtr

    right = np.maximum(x, 0)
    there = np.log(erfcx((right + mu) / _ROOT2) / erfcx(right / _ROOT2))
    return np.asarray(np.where(x > 0, there, log_ndtr(-x - mu) - log_ndtr(-x) + mu * (x + mu / 2)))
