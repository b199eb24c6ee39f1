"""Products of m pairs that are fixed in advance, for any m: the worst is no worse than a bound for m equal pairs.

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

Other exponents do as well: `privacy.stages` has pairs with weights, and what comes before and after them.

Renyi accounts put |M_j(a)| in place of |M_j(a + iT)|; here a product is charged for how its total spreads, too, which
made delta three to five times smaller where it was tried, and no plan of an adversary is paid for. The time does not
grow with m.

How B_j is computed, never too low. Reports and silence weigh R and S in M_j(a), and their losses differ by s. A shift
mu adds mu^2 (2a + 1) / 2 to s, and g = e^(-mu^2 t^2 / 2) shrinks R, so |M_j|^2 = R^2 g^2 + S^2 + 2 R S g cos(s t).
Without a shift only s T modulo 2 pi matters, which has the wrapped Cauchy distribution: tan(s T / 2) is distributed
like tanh(c s / 2) tan(F / 2) with F uniform on [0, pi], but for its sign. |M_j| falls with F, so the mean over the left
ends of cells is an upper bound. With a shift, |T| is c tan(F / 2), and in each cell g and the cosine are bounded.
"""

import math

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.types import Floats


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

    Put in an array with rows (probability of a report, of silence) for P, one for Q, the shifts in deviations, and the
    power a > 0: that at which the largest number is smallest is about (order - 1) of a good Renyi account. Neighbours
    that may be exchanged differ in one direction in all uses: call it for both directions. More `points` make the
    numbers tighter.

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
        raise InvalidValue("ours or theirs holds a row that is no distribution. Pass probabilities that add up to one.")
    from dpsieve.accounting.adaptive_loops import product_deltas_of

    best = np.empty(count)
    still, moving = (np.tan(np.arange(cells) * (math.pi / 2 / cells)) ** 2 for cells in (points, 2 * points))
    product_deltas_of(ours, theirs, shifts, uses, epsilon, power, still, moving, best)
    absent = math.exp(-power * epsilon) / (2 * math.sqrt(power * (power + 1)))  # of keys that are not there
    most: Floats = np.minimum(1.0, np.maximum(best, absent) * (1 + 1e-12))
    return most
