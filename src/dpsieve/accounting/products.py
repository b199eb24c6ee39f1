"""Products of pairs that are fixed in advance, and what comes before and after them, in one account.

The m keys of a unit are m pairs (P, Q), of any kinds: P reports with probability p, Q with q, and a report shows a
number with Gaussian noise whose means differ by `shift` deviations. With M_j(z) = E_P[e^(z loss)] for pair j, any power
a > 0 and c^2 = a (a + 1), delta of every product is at most the largest of the numbers, one for each kind j,

    B_j = e^(-a epsilon) / (2 c) * E|M_j(a + i T)|^m,    T a Cauchy variable of scale c.

A part of an outcome of P may be declared a leak. In three stages, a mu-Gaussian private mechanism may come first and
decide which pairs follow, and a mechanism whose loss is dominated by one law may come last: delta is then at most the
`exposure` of two numbers, leak and rest, that bound leaks and the B of all pairs and of the law, in parts of a unit's
weight. Proofs: docs/background/composition.md#products-of-pairs, #stages.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import erfcx, expit, ndtr, ndtri

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import largest
from dpsieve.types import Floats, Ints

_MARGIN = 1e-9  # relative, far above the rounding errors of the closed forms here
_CELLS, _FREQUENCIES = 1024, 17
_STEEP = 2.0


def product_deltas(
    ours: Floats,
    theirs: Floats,
    shifts: Floats,
    uses: int,
    epsilon: float,
    *,
    power: float,
    points: int = 2048,
) -> Floats:
    """Return a number for each kind of report: no product of `uses` of them costs more than the largest, rounded up.

    Neighbours that may be exchanged differ in one direction in all uses: call it for both directions.

    Args:
        ours, theirs: rows (probability of a report, of silence) under P and under Q.
        shifts: of the means, in standard deviations.
        uses: the number of pairs in a product.
        epsilon: at which delta is bounded.
        power: a > 0. The largest number is smallest at about (order - 1) of a good Renyi account.
        points: more of them make the numbers tighter.

    >>> ours, theirs = np.array([[0.11, 0.89], [1.0, 0.0]]), np.array([[0.1, 0.9], [1.0, 0.0]])
    >>> [f"{delta:.2g}" for delta in product_deltas(ours, theirs, np.array([0.0, 1 / 16]), 10, 1.0, power=22.0)]
    ['1.9e-10', '2.1e-08']
    """
    uses = validate.whole("uses", uses, low=1, high=10**6, hint="Pass how many keys a unit has, such as 10.")
    epsilon, power = validate.epsilon(epsilon), validate.positive("power", power, hint="Pass a power such as 20.")
    ours, theirs, shifts = (np.asarray(part, np.float64) for part in (ours, theirs, shifts))
    count = len(shifts)
    if not (ours.shape == theirs.shape == (count, 2) and all(np.isfinite(x).all() for x in (ours, theirs, shifts))):
        fix = "Pass two columns, reports and silence, and a row for each shift."
        raise InvalidValue(f"ours or theirs has another shape. {fix}", argument="ours")
    if any((x < 0).any() or (np.abs(x.sum(axis=1) - 1) > 1e-12).any() for x in (ours, theirs)):
        fix = "Pass probabilities that add up to one."
        raise InvalidValue(f"ours or theirs has a row that is not a distribution. {fix}", argument="ours")
    from dpsieve.accounting.loops import product_deltas_of

    deltas = np.empty(count)
    still, moving = (np.tan(np.arange(cells) * (math.pi / 2 / cells)) ** 2 for cells in (points, 2 * points))
    product_deltas_of(ours, theirs, shifts, uses, epsilon, power, still, moving, deltas)
    most: Floats = np.minimum(1.0, np.maximum(deltas, _absent(epsilon, power)) * (1 + 1e-12))
    return most


def exposure(power: float, leak: float, rest: float, mu: float, share: float = 1.0) -> float:
    """Return the bound on delta where pairs have this share of the weight, rounded up; see the head of this module."""
    if mu == 0:
        return max(leak, rest)
    tilt = power * (power + 1) * mu * mu / 2
    at = math.log(leak / rest) / (power * mu) - mu / 2  # x rest exceeds leak beyond this, in deviations
    tail = math.log(rest) + tilt + math.log(max(float(ndtr(power * mu - at)), 1e-300))
    moved = leak * float(ndtr(at)) + math.exp(min(tail, 300.0))  # E max(leak, x rest)
    bound = share * moved + (1 - share) * max(leak, math.exp(min(math.log(rest) + tilt, 300.0)))
    return bound * (1 + _MARGIN * (1 + power * mu))


def split(power: float, delta: float, mu: float, share: float = 1.0) -> tuple[float, float]:
    """Return leak and rest with an exposure just below delta; any balance between them is sound."""
    ratio, growth = 1 / (1 + power * mu / 3), math.exp(-min(power * (power + 1) * mu * mu / 2, 300.0))
    scale = delta / exposure(power, ratio, growth, mu, share) * (1 - 4 * _MARGIN * (1 + power * mu))
    return ratio * scale, growth * scale


def absent(epsilon: float, power: float) -> float:
    """Return K, the number of weight that no key uses, rounded up."""
    return _absent(epsilon, power) * (1 + _MARGIN)


def _absent(epsilon: float, power: float) -> float:
    return math.exp(-power * epsilon) / (2 * math.sqrt(power * (power + 1)))


def gaussian_number(mu: float, share: float, epsilon: float, power: float) -> float:
    """Return B of Gaussian noise of distance mu with this share of a unit's weight, rounded up.

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

    (epsilon, 0)-privacy has the range 2 epsilon, a pick of monotone scores the range epsilon. Proof:
    docs/background/composition.md#kinds-of-spends.
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

        See docs/background/composition.md#laws-of-curves.
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
        """Return the law of the reversed pair."""
        masses = (self.masses * np.exp(-self.losses))[::-1]
        leak = max(self.leak, 1 - float(masses.sum()))  # mass that is missing under Q
        return LossLaw(-self.low - len(masses) + 1, self.grid, masses, leak, self.beyond)

    def number(self, share: float, epsilon: float, power: float) -> float:
        """Return B of this law with this share of the weight, rounded up.

        How the transform is bounded: docs/background/composition.md#laws-of-curves.
        """
        c, size = math.sqrt(power * (power + 1)), 1 << max(_FREQUENCIES, (4 * len(self.masses)).bit_length())
        weights = self.masses * np.exp(power * self.losses)
        total, step = weights.sum(), 2 * math.pi / (size * self.grid)
        slope = float(weights @ np.abs(self.losses - weights @ self.losses / total))
        sizes = np.minimum(np.abs(np.fft.rfft(weights, size)) + slope * step / 2 + 1e-12 * total, total)
        lowest = np.maximum(0.0, (np.arange(len(sizes)) - 0.5) * step)
        ratio = math.exp(-c * self.grid)
        spread = (1 - ratio) ** 2 + 4 * ratio * np.sin(np.minimum(lowest * self.grid, math.pi) / 2) ** 2
        chances = step * self.grid / (2 * math.pi) * (1 - ratio**2) / spread * np.where(lowest > 0, 2.0, 1.0)
        logs = np.log(sizes) + power * self.beyond
        number = math.log(float(chances @ np.exp((logs - logs[0]) / share))) + logs[0] / share
        return math.exp(min(number - power * epsilon - math.log(2 * c), 300.0)) * (1 + _MARGIN / share)


def _lower_hull(x: Floats, y: Floats) -> Ints:
    """Return the indices of the lower convex hull; x increases."""
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
    """Return the largest steepness of a mechanism that may follow a private choice; see `raised_by_range`."""
    return _STEEP * math.log(1 / delta) / epsilon + 1.5


def raised_by_range(loss_range: float, steepness: float) -> float:
    """Return the factor by which a choice of this loss range raises the delta of what follows.

    A mechanism has the steepness A at (epsilon, delta) if its curve is at most delta from epsilon on and at most
    delta e^(A t) at epsilon - t, for all t >= 0. Every mechanism that can be chosen must have it. In each cell of t,
    the probability is taken at its left end and the power at its right one. Proof:
    docs/background/composition.md#a-choice-of-small-range.
    """
    ends = np.linspace(0.0, loss_range, _CELLS + 1)
    chance = np.expm1(ends[:-1] - loss_range) / math.expm1(-loss_range)
    return float((1 + chance * np.expm1(np.minimum(steepness * ends[1:], 300.0))).max()) * (1 + _MARGIN)
