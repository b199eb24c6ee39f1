"""What comes before a product of coins with weights, and what follows it, in one account.

A unit is added or removed. Three stages, each of which may depend on the results of those before it:

1. something that is mu-Gaussian private: no easier to tell apart than N(0, 1) and N(mu, 1). Noisy looks at sums;
2. a product of pairs, one for each key of the unit, with weights w_j >= 0 whose squares sum to at most `share`. The
   results of stage one may decide which pairs these are;
3. something whose loss is dominated by one law A, whatever the first two showed: Gaussian noise, picks. It has the
   weight 1 - share.

Write M_j(z) = E_P[e^(z loss)] for the pairs, with c^2 = a (a + 1), K = e^(-a epsilon) / (2 c) and T a Cauchy variable
of scale c as in `accounting.products`. A pair may declare a part l_j of an outcome of P a leak. With

    B_j = K E|M_j(a + iT)|^(1 / w_j^2),    B_A = K E|A(a + iT)|^(1 / (1 - share)),    A(z) the transform of the law,

suppose that there are numbers leak and rest such that for each pair that can occur there is a t in [0, 1] with
l_j <= t leak w_j^2 and B_j <= (1 - t) rest; stage three has one such t, for 1 - share; and K <= rest. Then

    delta <= share E max(leak, x rest) + (1 - share) max(leak, rest E x),    x = e^(a L),

for L normal with mean mu^2 / 2 and variance mu^2.

Proof. Let O be the result of stage one and x = e^(a loss of O). Given O, the curve of stages two and three is at most

    sum of l_j + E_2[C(epsilon' - loss_2)],    C(e) = E_A[(1 - e^(e - loss))+],    epsilon' = epsilon - loss of O:

leaks of a product add up at most, and after stage two, whatever it showed, no curve is above that of A. Only the law of
A enters, so the transforms of stages two and three multiply, and steps 1 and 2 of `accounting.products` bound the mean
by x K E|A M_1 ... M_n|(a + iT). Hoelder's inequality with exponents 1 / w_j^2 and 1 / (1 - share), the missing weight
with M = 1, makes that at most x times the geometric mean of the B, with weights w_j^2, hence at most x times their
mean. All together, given O: at most the mean, with weights that sum to one, of numbers t leak + x (1 - t) rest. For
pairs, which depend on O, that is at most max(leak, x rest). The t of stage three is always the same, so its mean over O
is t leak + (1 - t) rest E x, at most max(leak, rest E x). The mean over O of a convex function of the likelihood ratio
only grows if the pair of laws of O is replaced by one that is easier to tell apart, here by N(0, 1) and N(mu, 1).

Without stage one mu is 0 and leak = rest = delta. With it, leaks and the rest must not trade freely: a result of stage
one with a small x could send the weight of a unit to keys that leak, and one with a large x to others. The mean of the
maximum pays for that, for the share that can be sent.

References: J. Dong, A. Roth and W. Su, "Gaussian Differential Privacy", 2022 (mu of an adaptive sequence add up in
squares); Y. Zhu, J. Dong and Y.-X. Wang, "Optimal Accounting of Differential Privacy via Characteristic Function",
AISTATS 2022 (dominating laws of adaptive sequences multiply).
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import erfcx, expit, ndtr, ndtri

from dpsieve.exact.balls import largest
from dpsieve.types import Floats, Ints

_MARGIN = 1e-9  # relative, far above the roundings of the closed forms here
_CELLS, _FREQUENCIES = 1024, 17
_STEEP = 2.0


def exposure(power: float, leak: float, rest: float, mu: float, share: float = 1.0) -> float:
    """Return the bound on delta where pairs have this share of the weight, rounded up; see the head of this module."""
    if mu == 0:
        return max(leak, rest)
    tilt = power * (power + 1) * mu * mu / 2
    at = math.log(leak / rest) / (power * mu) - mu / 2  # x rest is above leak from here on, in deviations
    late = math.log(rest) + tilt + math.log(max(float(ndtr(power * mu - at)), 1e-300))
    sent = leak * float(ndtr(at)) + math.exp(min(late, 300.0))  # E max(leak, x rest)
    bound = share * sent + (1 - share) * max(leak, math.exp(min(math.log(rest) + tilt, 300.0)))
    return bound * (1 + _MARGIN * (1 + power * mu))


def split(power: float, delta: float, mu: float, share: float = 1.0) -> tuple[float, float]:
    """Return leak and rest with an exposure of nearly delta, and not above; how they are balanced is free."""
    ratio, growth = 1 / (1 + power * mu / 3), math.exp(-min(power * (power + 1) * mu * mu / 2, 300.0))
    scale = delta / exposure(power, ratio, growth, mu, share) * (1 - 4 * _MARGIN * (1 + power * mu))
    return ratio * scale, growth * scale


def absent(epsilon: float, power: float) -> float:
    """Return K: the number of a weight that no key has."""
    return math.exp(-power * epsilon) / (2 * math.sqrt(power * (power + 1))) * (1 + _MARGIN)


def gaussian_number(mu: float, share: float, epsilon: float, power: float) -> float:
    """Return B of Gaussian noise of distance mu that has this share of a unit's weight, rounded up.

    It is e^(x^2 - power epsilon) erfcx(x) / (2c) with x = c mu / sqrt(2 share).
    """
    c = math.sqrt(power * (power + 1))
    x = c * mu / math.sqrt(2 * share)
    number = x * x - power * epsilon + math.log(float(erfcx(x))) - math.log(2 * c)
    return math.exp(min(number, 300.0)) * (1 + _MARGIN * (1 + x))


def largest_mu(rest: float, share: float, epsilon: float, power: float) -> float:
    """Return the largest distance of Gaussian noise whose number is at most `rest`; nearly 0 where there is none."""
    return largest(lambda mu: gaussian_number(mu, share, epsilon, power) <= rest, 1e-12, 100.0)


def pure_mu(loss_range: float) -> float:
    """Return a mu, rounded up, such that every pair whose losses lie in a range of this length is mu-Gaussian private.

    Such a pair is no easier to tell apart than two coins p, q whose log-odds differ by the range, and these than two
    Gaussians of distance ndtri(p) - ndtri(q). With p = expit(x) that is largest where p = 1 - q: ndtri(expit(x)) is odd
    and concave for x > 0. (epsilon, 0)-privacy has the range 2 epsilon, a pick of monotone scores the range epsilon.
    """
    return 2 * float(ndtri(expit(loss_range / 2))) * (1 + _MARGIN)


class LossLaw(NamedTuple):
    """A law of losses that dominates a mechanism: masses at low, low + 1, ... times a grid, and an infinite loss.

    True losses may be larger by up to `beyond`.
    """

    low: int
    grid: float
    masses: Floats
    leak: float
    beyond: float = 0.0

    @classmethod
    def of_curve(cls, low: int, grid: float, deltas: Floats, beyond: float = 0.0) -> "LossLaw":
        """Return a law whose curve is nowhere below one with these deltas at low, low + 1, ... times the grid.

        The curve of a mechanism is convex in u = e^epsilon and 1 at u = 0, so its chords are upper bounds. The lower
        hull of the points is convex, and the changes of its slope are masses over u. Beyond the last point the curve
        is at most its last value, which is the leak.
        """
        u = np.append(0.0, np.exp(np.arange(low, low + len(deltas)) * grid))
        v = np.append(1.0, np.minimum.accumulate(deltas))
        hull = _lower_hull(u, v - v[-1])
        slopes = np.append(np.diff(v[hull]) / np.diff(u[hull]), 0.0)
        masses = np.zeros(len(deltas))
        masses[hull[1:] - 1] = np.maximum(0.0, np.diff(slopes)) * u[hull[1:]] * (1 + _MARGIN)
        return cls(low, grid, masses, float(v[-1]), beyond)

    @property
    def losses(self) -> Floats:
        """The finite losses."""
        return np.asarray(np.arange(self.low, self.low + len(self.masses), dtype=np.float64) * self.grid)

    def reversed(self) -> "LossLaw":
        """Return the law for neighbours the other way round."""
        masses = (self.masses * np.exp(-self.losses))[::-1]
        leak = max(self.leak, 1 - float(masses.sum()))  # what this law lacks on the other side
        return LossLaw(-self.low - len(masses) + 1, self.grid, masses, leak, self.beyond)

    def number(self, share: float, epsilon: float, power: float) -> float:
        """Return B of this law with this share of the weight, rounded up.

        The transform has the period 2 pi / grid, modulo which T has a wrapped Cauchy density. At the frequencies of a
        discrete Fourier transform the transform is exact; half a step away it is larger by at most half a step times
        the largest slope.
        """
        c, size = math.sqrt(power * (power + 1)), 1 << max(_FREQUENCIES, (4 * len(self.masses)).bit_length())
        weights = self.masses * np.exp(power * self.losses)
        total, step = weights.sum(), 2 * math.pi / (size * self.grid)
        slope = float(weights @ np.abs(self.losses - weights @ self.losses / total))
        sizes = np.minimum(np.abs(np.fft.rfft(weights, size)) + slope * step / 2 + 1e-12 * total, total)
        near = np.maximum(0.0, (np.arange(len(sizes)) - 0.5) * step)
        ratio = math.exp(-c * self.grid)
        spread = (1 - ratio) ** 2 + 4 * ratio * np.sin(np.minimum(near * self.grid, math.pi) / 2) ** 2
        chances = step * self.grid / (2 * math.pi) * (1 - ratio**2) / spread * np.where(near > 0, 2.0, 1.0)
        logs = np.log(sizes) + power * self.beyond
        number = math.log(float(chances @ np.exp((logs - logs[0]) / share))) + logs[0] / share
        return math.exp(min(number - power * epsilon - math.log(2 * c), 300.0)) * (1 + _MARGIN / share)


def _lower_hull(x: Floats, y: Floats) -> Ints:
    """Return the places of the lower convex hull; x rises."""
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[i] - x[b]) < (y[i] - y[b]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return np.array(hull)


def steepest(epsilon: float, delta: float) -> float:
    """Return the steepness up to which a mechanism may follow a private choice; see `raised_by_range`."""
    return _STEEP * math.log(1 / delta) / epsilon + 1.5


def raised_by_range(loss_range: float, steepness: float) -> float:
    """Return by which factor a choice whose losses lie in a range of this length raises the delta of what follows.

    A mechanism has the steepness A at (epsilon, delta) if its curve is at most delta from epsilon on and at most
    delta e^(A t) at epsilon - t, for all t >= 0. Let every mechanism that can be chosen have it. A pair of losses in
    [t - r, t] is dominated by the two outcomes t and t - r, of which t has the probability
    p(t) = (1 - e^(t - r)) / (1 - e^-r) under P. So the whole has at most delta times the largest, over t in [0, r], of
    p(t) e^(A t) + 1 - p(t). In each cell of t, p is taken at its left end and the power at its right one.
    """
    ends = np.linspace(0.0, loss_range, _CELLS + 1)
    chance = np.expm1(ends[:-1] - loss_range) / math.expm1(-loss_range)
    return float((1 + chance * np.expm1(np.minimum(steepness * ends[1:], 300.0))).max()) * (1 + _MARGIN)
