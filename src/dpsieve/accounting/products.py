"""Products of pairs that are fixed in advance, and what comes before and after them, in one account.

**Products of m pairs**: the worst is at most a bound for m equal pairs, for any m.

A report is a pair: P reports with probability p and Q with q, and a report shows a number with Gaussian noise whose
means differ by `shift` deviations. The m keys of a unit are m such pairs, of any kinds, and their losses add up. Write
M_j(z) = E_P[e^(z loss)] for pair j. With any power a > 0 and c^2 = a (a + 1), delta of the product is at most the
largest of the numbers

    B_j = e^(-a epsilon) / (2 c) * E|M_j(a + i T)|^m,    T a Cauchy variable of scale c,

one for each kind j. Proof, in four steps.

1. (1 - e^-x)+ is the integral of e^(zx) / (2 pi i z (z + 1)) along Re z = a (residues at 0 and -1). With x the total
   loss minus epsilon, and means taken, delta is the integral of e^(-z epsilon) M_1(z) ... M_m(z) / (2 pi i z (z + 1)).
2. At z = a + it, |z (z + 1)| >= a (a + 1) + t^2 = c^2 + t^2 by Cauchy and Schwarz, and c / (pi (c^2 + t^2)) is the
   density of T. So delta is at most e^(-a epsilon) / (2 c) * E|M_1 ... M_m|(a + iT).
3. By Hoelder's inequality E|M_1 ... M_m| <= product of (E|M_j|^m)^(1/m): delta is at most the geometric mean of the
   B_j, and thus at most the largest. Fewer keys are pairs with M = 1.
4. A part of an outcome of P may be declared a leak: another outcome, which Q never gives. Leaks add up to the mean of
   m * leak_j over the pairs of a product, and the geometric mean of the B_j of the rest is at most their mean. So delta
   is at most the largest m * leak_j + B_j, and for each kind the best part is taken.

Renyi accounts use |M_j(a)| in place of |M_j(a + iT)|. Taking the spread of the total into account made delta three to
five times smaller in our measurements. The time does not grow with m.

How B_j is computed, never too low. Reports and silence weigh R and S in M_j(a), and their losses differ by s. A shift
mu adds mu^2 (2a + 1) / 2 to s, and g = e^(-mu^2 t^2 / 2) shrinks R, so |M_j|^2 = R^2 g^2 + S^2 + 2 R S g cos(s t).
Without a shift only s T modulo 2 pi matters, which has the wrapped Cauchy distribution: tan(s T / 2) is distributed
like tanh(c s / 2) tan(F / 2), up to its sign, with F uniform on [0, pi]. |M_j| falls with F, so the mean over the left
ends of cells is an upper bound. With a shift, |T| is c tan(F / 2), and in each cell g and the cosine are bounded.

**Stages.** A unit is added or removed. Three stages, each of which may depend on the results of those before it:

1. a mu-Gaussian private mechanism: no easier to distinguish than N(0, 1) and N(mu, 1). Noisy looks at sums;
2. a product of pairs, one for each key of the unit, with weights w_j >= 0 whose squares sum to at most `share`. The
   results of stage one may decide which pairs these are;
3. a mechanism whose loss is dominated by one law A, whatever the first two showed: Gaussian noise, picks. It has the
   weight 1 - share.

With M_j, a, c and T as above, let K = e^(-a epsilon) / (2 c). A pair may declare a part l_j of an outcome of P a leak.
With

    B_j = K E|M_j(a + iT)|^(1 / w_j^2),    B_A = K E|A(a + iT)|^(1 / (1 - share)),    A(z) the transform of the law,

suppose that there are numbers leak and rest such that for each pair that can occur there is a t in [0, 1] with
l_j <= t leak w_j^2 and B_j <= (1 - t) rest; stage three has one such t, for 1 - share; and K <= rest. Then

    delta <= share E max(leak, x rest) + (1 - share) max(leak, rest E x),    x = e^(a L),

for L normal with mean mu^2 / 2 and variance mu^2.

Proof. Let O be the result of stage one and x = e^(a loss of O). Given O, the curve of stages two and three is at most

    sum of l_j + E_2[C(epsilon' - loss_2)],    C(e) = E_A[(1 - e^(e - loss))+],    epsilon' = epsilon - loss of O:

leaks of a product add up at most, and after stage two, whatever it showed, no curve is above that of A. Only the law of
A enters, so the transforms of stages two and three multiply, and steps 1 and 2 above bound the mean
by x K E|A M_1 ... M_n|(a + iT). Hoelder's inequality with exponents 1 / w_j^2 and 1 / (1 - share), the missing weight
with M = 1, makes that at most x times the geometric mean of the B, with weights w_j^2, hence at most x times their
mean. In total, given O: at most the mean, with weights that sum to one, of numbers t leak + x (1 - t) rest. For
pairs, which depend on O, that is at most max(leak, x rest). The t of stage three is always the same, so its mean over O
is t leak + (1 - t) rest E x, at most max(leak, rest E x). The mean over O of a convex function of the likelihood ratio
only grows if the pair of laws of O is replaced by one that is easier to distinguish, here by N(0, 1) and N(mu, 1).

Without stage one mu is 0 and leak = rest = delta. With it, leak and rest cannot be exchanged freely: a result of stage
one with a small x could move the weight of a unit to keys that leak, and one with a large x to others. The mean of the
maximum covers that, for the share that can be moved.

References: J. Dong, A. Roth and W. Su, "Gaussian Differential Privacy", 2022 (mu of an adaptive sequence add up in
squares); Y. Zhu, J. Dong and Y.-X. Wang, "Optimal Accounting of Differential Privacy via Characteristic Function",
AISTATS 2022 (dominating laws of adaptive sequences multiply).
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
        raise InvalidValue("ours and theirs must have two columns, reports and silence, and a row for each shift.")
    if any((x < 0).any() or (np.abs(x.sum(axis=1) - 1) > 1e-12).any() for x in (ours, theirs)):
        raise InvalidValue(
            "ours or theirs has a row that is not a distribution. Pass probabilities that add up to one."
        )
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

    Such a pair is no easier to distinguish than two coins p, q whose log-odds differ by the range, and these than two
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
        """Return the law of the reversed pair."""
        masses = (self.masses * np.exp(-self.losses))[::-1]
        leak = max(self.leak, 1 - float(masses.sum()))  # mass that is missing under Q
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
    delta e^(A t) at epsilon - t, for all t >= 0. Let every mechanism that can be chosen have it. A pair of losses in
    [t - r, t] is dominated by the two outcomes t and t - r, of which t has the probability
    p(t) = (1 - e^(t - r)) / (1 - e^-r) under P. So both together have at most delta times the largest, over t in
    [0, r], of p(t) e^(A t) + 1 - p(t). In each cell of t, p is taken at its left end and the power at its right one.
    """
    ends = np.linspace(0.0, loss_range, _CELLS + 1)
    chance = np.expm1(ends[:-1] - loss_range) / math.expm1(-loss_range)
    return float((1 + chance * np.expm1(np.minimum(steepness * ends[1:], 300.0))).max()) * (1 + _MARGIN)
