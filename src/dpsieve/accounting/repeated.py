"""Optimal composition of k mechanisms that are each (epsilon0, delta0)-DP.

The mechanisms may be chosen adaptively and must share one relation of neighbours. With

    leak = 1 - (1 - delta0)^k
    pure(epsilon) = (1 + e^epsilon0)^-k
                    * sum over l = 0..k of C(k, l) * max(0, e^((k-l) epsilon0) - e^(epsilon + l epsilon0))

all together are (epsilon, delta)-DP for delta = leak + (1 - leak) * pure(epsilon), and no smaller delta holds for all
such mechanisms: the worst case reveals everything with probability delta0 and is randomised response otherwise.

References: P. Kairouz, S. Oh and P. Viswanath, "The Composition Theorem for Differential Privacy", ICML 2015,
Theorem 3.3; in the form above J. Murtagh and S. Vadhan, "The Complexity of Computing the Optimal Composition of
Differential Privacy", TCC 2016. Basic composition, (k epsilon0, k delta0), is never better: pure vanishes at
k epsilon0.
"""

from fractions import Fraction
from math import ceil, floor, inf
from typing import NamedTuple

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import Ball, ball, largest, lower, upper
from dpsieve.types import Floats

_ULP = 2.0**-52


class Share(NamedTuple):
    """The guarantee that each of k mechanisms may have."""

    epsilon: float
    delta: float


def repeated_delta(k: int, epsilon: float, *, each_epsilon: float, each_delta: float) -> float:
    """Return the delta of k mechanisms, each (each_epsilon, each_delta)-DP, at `epsilon`, rounded up.

    `k` is from 1 to 1,000,000, both epsilons in [0, 500] and `each_delta` in [0, 1). The result is an upper bound with
    a relative error below k * 1e-13, also where delta is 1e-20.

    >>> f"{repeated_delta(100, 3.0, each_epsilon=0.1, each_delta=1e-10):.3g}"
    '0.00136'
    """
    each_epsilon, each_delta = validate.epsilon(each_epsilon, "each_epsilon"), validate.delta(each_delta, "each_delta")
    return _delta(_repeats(k), validate.epsilon(epsilon), each_epsilon, each_delta)


def repeated_share(
    k: int, epsilon: float, delta: float, *, each_delta: float | None = None, delta_for_keys: float = 0.5
) -> Share:
    """Return the guarantee that each of k mechanisms may have so that together they are (epsilon, delta)-DP.

    The epsilon is the largest for its delta, rounded down, and never below epsilon / k. The delta is `each_delta`, or
    the largest with 1 - (1 - delta0)^k <= delta_for_keys * delta: that fraction of `delta` pays for the leaks of the
    mechanisms (in dpsieve, rare keys), the remainder for a larger epsilon. One half is within a few percent of the best
    epsilon, which depends on delta only through its logarithm, and leaves each mechanism half of its largest delta.

    >>> share = repeated_share(100, 1.0, 1e-6)
    >>> f"{share.epsilon:.4f} {share.delta:.2g}"
    '0.0232 5e-09'
    """
    k, epsilon, delta = _repeats(k), validate.epsilon(epsilon), validate.delta(delta)
    hint = "Pass a fraction such as delta_for_keys=0.5."
    part = validate.between("delta_for_keys", delta_for_keys, 0.0, 1.0, hint=hint)
    if each_delta is not None:
        each_delta = validate.delta(each_delta, "each_delta")
    elif part * delta == 0:
        each_delta = 0.0
    else:
        each_delta = max(0.0, lower(lambda: -((-ball(part) * ball(delta)).log1p() / k).expm1()))
    if _delta(k, inf, 0.0, each_delta) > delta:
        raise InvalidValue(f"each_delta={each_delta:g} is too large for delta={delta:g}. Pass at most delta / {k}.")
    least = lower(lambda: ball(epsilon) / k)
    each_epsilon = largest(lambda each: _delta(k, epsilon, each, each_delta) <= delta, least, 500.0)
    if each_epsilon == 0:
        raise InvalidValue(f"epsilon={epsilon:g} leaves nothing to share. Pass a budget such as epsilon=1.0.")
    return Share(each_epsilon, each_delta)


def _delta(k: int, epsilon: float, each_epsilon: float, each_delta: float) -> float:
    # The last l that counts, exactly: (k - l) each_epsilon > epsilon + l each_epsilon.
    last = -1
    if epsilon < inf and each_epsilon > 0:
        last = ceil((k - Fraction(epsilon) / Fraction(each_epsilon)) / 2) - 1
    if last < 0:
        # The second bound is exact for k = 1, where the first is rounded.
        return min(1.0, upper(lambda: 1 - _no_leak(k, each_delta)), upper(lambda: ball(each_delta) * k))
    # l has a binomial distribution: each of the k answers is a lie with probability 1 / (1 + e^each_epsilon).
    lie = upper(lambda: 1 / (1 + ball(each_epsilon).exp()))
    anchor = min(last, floor(k * lie))
    total = _relative_sum(k, epsilon, each_epsilon, anchor, last)

    def expression() -> Ball:
        ways = (ball(k + 1).lgamma() - ball(anchor + 1).lgamma() - ball(k - anchor + 1).lgamma()).exp()
        mass = ways * (-ball(each_epsilon) * anchor - k * (-ball(each_epsilon)).exp().log1p()).exp()
        return 1 - _no_leak(k, each_delta) * (1 - ball(total) * mass)

    return min(1.0, upper(expression))


def _no_leak(k: int, each_delta: float) -> Ball:
    return (k * (-ball(each_delta)).log1p()).exp()


def _relative_sum(k: int, epsilon: float, each_epsilon: float, anchor: int, last: int) -> float:
    """Return the sum of P[l] * (1 - e^-(loss of l - epsilon)) over l <= last, divided by P[anchor], as an upper bound.

    P is the binomial mass and l lies have the loss (k - 2l) each_epsilon. Away from the anchor, which is the mode or
    `last`, P falls: products of ratios lose at most four roundings per step and vanish only below 2^-1000; both errors
    are added back.
    """
    grow, shrink = upper(lambda: ball(each_epsilon).exp()), upper(lambda: (-ball(each_epsilon)).exp())
    # The smallest excess of loss over epsilon may cancel, so it comes from a ball; the others only add to it.
    closest = upper(lambda: ball(each_epsilon) * (k - 2 * last) - ball(epsilon))
    down, up = np.arange(anchor, 0, -1.0), np.arange(anchor, float(last))
    mass: Floats = np.concatenate(
        [[1.0], np.cumprod(down / (k - down + 1) * grow), np.cumprod((k - up) / (up + 1) * shrink)]
    )
    lies = np.concatenate([[float(anchor)], down - 1, up + 1])
    gain = -np.expm1(-(closest + 2 * (last - lies) * each_epsilon))
    return (float(np.sum(mass * gain)) + 2.0**-1000 * k) * (1 + 4 * (last + 16) * _ULP)


def _repeats(k: int) -> int:
    return validate.whole("k", k, low=1, high=10**6, hint="Pass how many mechanisms are composed, such as k=10.")
