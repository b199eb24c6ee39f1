"""Pairs of neighbouring output distributions, as the losses of their outcomes; `privacy.adaptive` composes them.

Only the loss ln(P/Q) of an outcome drawn from P matters. An outcome that Q never gives has infinite loss; one that P
never gives is left out.

Exact composition of uses that are chosen adaptively: delta by dynamic programming over what is left of epsilon.

A mechanism is used several times. Each time an adversary, who has seen all results so far, chooses one of its pairs of
neighbouring output distributions (P, Q); whether P or Q is drawn from is the secret, the same in all uses. With V_m(e)
the largest hockey-stick divergence at e, of any sign, that m uses can have,

    V_0(e) = max(0, 1 - e^e),    V_(m+1)(e) = max over pairs of the sum over outcomes of P * V_m(e - ln(P/Q)),

because the adversary may look at the first result and then continue with the best plan for what is left. No smaller
delta holds for all adaptive sequences. An outcome may be the `last` one, after which both sides draw alike; after an
infinite loss V is 1.

Where all pairs are fixed before the first result (the keys of a unit, and the counts of the others), delta is the
divergence of a product. It does not depend on the order of its factors, so they may be put into any order of pairs
that we like, and a plan has only to decide when to go on to the next pair. The best adaptive plan of this kind, which
`fixed_delta` computes, is an upper bound for all products, whatever the order: for pair after pair, and k = 1..m,

    V_k = max(V_k, sum over outcomes of P * V_(k-1)(e - ln(P/Q))),    all V_k beginning with V_0.

Plans gain least if the pairs of widest or of largest loss are used last in time; both are tried.

V_m is convex in u = e^e (each term of the sum is, and so is a maximum), it falls with slope at least -1, and so
V_m - (1 - u) only grows. So between points of a grid the chord in u is an upper bound, and beyond its ends there are
bounds too: the result is an upper bound, exact when all losses are multiples of the grid. All terms are positive, so
floats keep their digits, also where delta is 1e-20; a margin at the end covers roundings.

Reference: J. Dong, D. Durfee and R. Rogers, "Optimal Differential Privacy Composition for Exponential Mechanisms",
ICML 2020, who use the recursion for the exponential mechanism.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple, cast

import numpy as np

from dpsieve import validate
from dpsieve.accounting.gaussian import gaussian_curve
from dpsieve.accounting.stages import LossLaw
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, precision
from dpsieve.types import Bools, Floats, Ints

MOST_USES = 10_000
SNAP = 1e-9  # of a grid step: losses this near to the grid are moved to it
_MOST_STEPS = 10**6  # of the grid in one loss: so many are placed with an error far below SNAP
_CELLS, _LOW, _HIGH = 64, -7, 9  # a normal density is cut into so many cells for each deviation, between these


class Outcome(NamedTuple):
    """An outcome of a pair: its probability under P, its loss ln(P/Q), and whether nothing is lost after it."""

    chance: float
    loss: float
    last: bool = False


Pair = Sequence[Outcome] | Floats
"""A pair of neighbouring output distributions: outcomes, or an array with columns chance, loss (and last)."""


def shifted_report(p: float | Fraction, q: float | Fraction, shift: float = 0.0) -> Floats:
    """Return a pair that is at least as easy to tell apart as 'report, then count' of neighbours.

    P reports with probability `p`, Q with `q`; a report shows a number with Gaussian noise, whose means differ by
    `shift` standard deviations. Pass fractions where a probability is so near to one that a float loses it.
    The normal density is cut into cells. Each keeps its mass under P, rounded up, and its loss moves to the ends of the
    cell so that its mass under Q does not grow. By convexity that adds to delta, but less than one in 1,000.

    >>> shifted_report(0.5, 0.25).round(3).tolist()
    [[0.5, 0.693], [0.5, -0.405]]
    """
    hint = "Pass probabilities, and a shift in standard deviations such as 0.1."
    shift = validate.between("shift", shift, -40.0, 40.0, hint=hint)
    validate.between("p", float(p), 0.0, 1.0, hint=hint)
    validate.between("q", float(q), 0.0, 1.0, hint=hint)
    p, q = Fraction(p), Fraction(q)
    reported, silent = _outcome(p, q), _outcome(1 - p, 1 - q)
    if shift != 0 and p * q > 0:
        tokens = _shift(abs(shift))
        reported = np.stack([tokens[:, 0] * reported[0, 0], tokens[:, 1] + reported[0, 1]], axis=1)
    both = np.concatenate([reported, silent])
    return both[both[:, 0] > 0]


def _outcome(p: Fraction, q: Fraction) -> Floats:
    # Losses that are too large become infinite, those that are too small are raised: both add to delta.
    loss = math.inf if p > 10**200 * q else math.log(max(1e-200, p / q if q > 0 else 0.0))
    return np.array([[float(p), loss]])


def _shift(mu: float) -> Floats:
    """Return chances and losses of a standard normal z against one shifted by mu: the loss is mu z + mu^2 / 2."""
    ends, masses, means, lower, upper = _normal_cells()
    # By Jensen E[e^-loss] in a cell is at least e^-(mean loss), so less mass than this part belongs to the upper end.
    part = np.minimum(1.0, np.expm1(-mu * means) / math.expm1(-mu / _CELLS))
    chances = np.append(masses * (1 - part), 0.0)
    chances[1:] += masses * part
    chances[0] += lower
    at = mu * ends + mu * mu / 2
    return np.stack([np.append(chances, upper), np.append(at, math.inf)], axis=1)


@cache
def _normal_cells() -> tuple[Floats, Floats, Floats, float, float]:
    """Return the ends of cells, their masses, how far their means are above their lower ends, and both tails."""
    count = (_HIGH - _LOW) * _CELLS
    with precision(128):
        root, turn = ball(2).sqrt(), (2 * ball(-1).acos()).sqrt()  # of 2 and of 2 pi
        at = [ball(_LOW) + ball(i) / _CELLS for i in range(count + 1)]
        above = [(z / root).erfc() / 2 for z in at]
        density = [(-z * z / 2).exp() / turn for z in at]
        masses = [above[i] - above[i + 1] for i in range(count)]
        means = [(density[i] - density[i + 1]) / masses[i] - at[i] for i in range(count)]
        tails = 1 - above[0], above[-1]
        one = [math.nextafter(float(b.upper()), 2.0) for b in (*masses, *means, *tails)]
    ends = np.arange(_LOW * _CELLS, _HIGH * _CELLS + 1) / _CELLS
    return ends, np.array(one[:count]), np.array(one[count : 2 * count]), one[-2], one[-1]


class Terms:
    """Pairs as sums over grid points: a loss between two points becomes both, by the chord in u = e^e.

    The terms of pair i are those from begins[i] to begins[i + 1]; `sure` is the chance of an infinite loss, `spreads`
    the deviations of the others in grid steps and `tops` the largest of them.
    """

    def __init__(self, pairs: Sequence[Pair], grid: float) -> None:
        self.grid = grid
        pair, chance, loss, last = _columns(pairs)
        finite = np.isfinite(loss) & (chance > 0)
        self.sure = np.bincount(pair[~finite], chance[~finite], len(pairs)).astype(float)  # of none it is whole
        pair, chance, loss, last = pair[finite], chance[finite], loss[finite], last[finite]
        self.most = math.inf if self.sure.any() else float(loss.max(initial=0.0))
        self.spreads = np.sqrt(np.bincount(pair, chance * loss * loss, len(pairs))) / grid
        self.spread = float(self.spreads.max(initial=0.0))
        self.tops = np.zeros(len(pairs))
        np.maximum.at(self.tops, pair, loss)
        place = loss / grid
        if np.abs(place).max(initial=0.0) > _MOST_STEPS:
            raise InvalidValue(f"grid={grid:g} is too fine beside the losses. Pass a larger one.")
        snapped = np.abs(place - np.rint(place)) <= SNAP
        below = np.where(snapped, np.rint(place), np.floor(place))
        part = np.where(snapped, 0.0, np.expm1((below - place) * grid) / math.expm1(-grid))
        weight, shift = np.append(chance * (1 - part), chance * part), np.append(below, below + 1).astype(np.int64)
        # Equal terms become one: sorted by pair, then by whether they are last, then by shift.
        width = 2 * _MOST_STEPS + 3
        code = np.tile(2 * pair + last, 2) * width + shift + _MOST_STEPS
        kept = weight > 0
        codes, which = np.unique(code[kept], return_inverse=True)
        self.weights = np.bincount(which, weight[kept], len(codes)).astype(float)
        self.shifts = codes % width - _MOST_STEPS
        self.last = codes // width % 2 == 1
        self.begins = np.searchsorted(codes, 2 * width * np.arange(len(pairs) + 1))
        self.up, self.down = max(1, int(self.shifts.max(initial=0))), max(1, -int(self.shifts.min(initial=0)))
        self.stay_down = -int(self.shifts[~self.last].min(initial=0))  # of outcomes after which there are more uses
        longest = 2 * int(np.bincount(pair, minlength=1).max())
        self.rounding = 1e-13 + longest * 2.0**-51  # relative, for each use

    def costs_nothing(self, uses: int, epsilon: float) -> bool:
        """Return whether no total loss is above epsilon."""
        return self.most < math.inf and Fraction(epsilon) >= uses * Fraction(self.most)


def _columns(pairs: Sequence[Pair]) -> tuple[Ints, Floats, Floats, Bools]:
    """Return the pair, chance, loss and `last` of all outcomes; raise unless the pairs are distributions."""
    tables = [np.asarray(pair, np.float64) for pair in pairs]
    if not all(table.ndim == 2 and table.shape[1] in (2, 3) for table in tables):
        raise InvalidValue("pairs holds something else than outcomes. Pass lists of Outcome(chance, loss).")
    which = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    chance, loss = np.concatenate([np.empty((0, 2)), *(table[:, :2] for table in tables)]).T
    last = np.concatenate([np.empty(0), *(table[:, 2] if table.shape[1] == 3 else 0 * table[:, 0] for table in tables)])
    usual = (np.abs(loss) <= 500) | np.isposinf(loss)
    total = np.bincount(which, chance, len(tables))
    if not (usual & (chance >= 0) & (chance <= 1 + 1e-9)).all() or (np.abs(total - 1) > 1e-9).any():
        raise InvalidValue("pairs holds one whose chances are no distribution, or with a loss that is not usable.")
    if (np.bincount(which, chance * np.exp(-loss), len(tables)) > 1 + 1e-9).any():
        raise InvalidValue("pairs holds one whose losses do not fit: the sum of chance * e^-loss must be 1.")
    return which, chance, loss, last != 0


__all__ = ["Outcome", "Pair", "adaptive_delta", "adaptive_law", "fixed_delta"]

_WIDE = 6.0  # how far the grid reaches, in standard deviations of the total loss
_MOST_POINTS, _MOST_FIXED_POINTS = 4_000_000, 40_000_000


def adaptive_delta(
    pairs: Sequence[Pair],
    uses: int,
    epsilon: float,
    *,
    grid: float,
    also: Sequence[Pair] = (),
    then: Sequence[Pair] = (),
) -> float:
    """Return the delta of `uses` adaptively chosen pairs at `epsilon`, rounded up.

    Put in the pairs in both orders where neighbours may be exchanged, and the `grid` of losses: exact if all losses
    are multiples of it; else its square decides how much is added. The time grows with uses * pairs * (range of
    losses / grid). Where each use shows two independent outcomes, `also` holds the pairs of the second one. `then`
    holds those of as many uses that follow, also after a `last` outcome of the first ones: that ends its own series.

    >>> flip = [Outcome(0.75, math.log(3)), Outcome(0.25, -math.log(3))]  # randomised response
    >>> round(adaptive_delta([flip], 2, math.log(3), grid=math.log(3)), 6)  # 9/16 - 3 * 1/16
    0.375
    """
    epsilon, terms = validate.epsilon(epsilon), _checked([*pairs, *also, *then], uses, grid)
    steps = uses * (1 + bool(also) + bool(then))
    if terms.costs_nothing(steps, epsilon):
        return 0.0
    aim, low, high = _range(terms, steps, epsilon)
    ends = [0, len(pairs), len(pairs) + len(also)] if also else [0, len(pairs)]
    series = [[ends[-1], ends[-1] + len(then)], ends] if then else [ends]  # the last in time comes first
    return _at(_adaptive_curve(terms, uses, low, high, *map(np.array, series)), aim - low, steps, terms)


def adaptive_law(pairs: Sequence[Pair], uses: int, top: float, *, grid: float, mu: float = 0.0) -> LossLaw:
    """Return a law of losses that dominates `uses` adaptively chosen pairs: its curve is nowhere below V above.

    With mu, something follows that is mu-Gaussian private whatever the uses showed: V_0 is the curve of Gaussian noise
    of this distance. An adversary cannot have one plan for each epsilon, as a product of two laws would let them.

    The curve is computed up to `top`; its value there is the leak of the law. With it, uses that may depend on the
    results of a product of other pairs are part of one account with that product (`privacy.stages`).
    """
    terms = _checked(pairs, uses, grid)
    noise = (_WIDE + mu / 2) * mu / grid  # where the grid ends is free
    low = -math.ceil(min(uses * terms.stay_down, _WIDE * math.sqrt(uses) * terms.spread) + terms.down + noise)
    high = max(0, math.ceil(min(uses * terms.up + 2 * noise, top / grid)) + 1)
    curve = _adaptive_curve(terms, uses, low, high, np.array([0, len(pairs)]), mu=mu)
    rounded = np.minimum(1.0, curve * (1 + (uses + 8) * terms.rounding) + 1e-300)
    return LossLaw.of_curve(low, grid, rounded, beyond=2 * uses * SNAP * grid)


def fixed_delta(pairs: Sequence[Pair], uses: int, epsilon: float, *, grid: float) -> float:
    """Return a delta of `uses` pairs that were fixed before the first result, at `epsilon`, rounded up.

    It is at least the divergence of every product of `uses` pairs, or fewer, of which some may be equal. Neighbours
    that may be exchanged differ in one direction in all uses: call it for the pairs, and again for their mirrors. The
    time is twice that of `adaptive_delta`, the bound often half of it.

    >>> flip = [Outcome(0.75, math.log(3)), Outcome(0.25, -math.log(3))]
    >>> leak = [Outcome(0.01, math.inf), Outcome(0.99, math.log(0.99))]
    >>> round(fixed_delta([flip, leak], 2, 2 * math.log(3), grid=math.log(3) / 8), 4)  # 1 - 0.99^2
    0.0199
    """
    epsilon, terms = validate.epsilon(epsilon), _checked(pairs, uses, grid)
    if terms.last.any():
        raise InvalidValue("pairs holds a last outcome: what follows it is not fixed. Use adaptive_delta.")
    if terms.costs_nothing(uses, epsilon):
        return 0.0
    aim, low, high = _range(terms, uses, epsilon)
    orders = np.argsort(-terms.spreads), np.argsort(-terms.tops)
    return min(_at(_ordered_curve(terms, uses, low, high, order), aim - low, uses, terms) for order in orders)


def _checked(pairs: Sequence[Pair], uses: int, grid: float) -> Terms:
    validate.whole("uses", uses, high=MOST_USES, hint="Pass how many uses are composed, such as 100.")
    validate.positive("grid", grid, hint="Pass a small part of the losses, such as grid=0.01.")
    return Terms(pairs, grid)


def _range(terms: Terms, uses: int, epsilon: float) -> tuple[float, int, int]:
    """Return the place of epsilon on the grid, and two ends beyond which hardly anything counts; any ends are right."""
    aim, spread = epsilon / terms.grid - 2 * uses * SNAP, math.sqrt(uses) * terms.spread
    low = min(math.floor(aim), -math.ceil(min(uses * terms.stay_down + terms.down, max(aim, _WIDE * spread))))
    return aim, low, math.ceil(aim + min(uses * terms.stay_down, _WIDE * spread)) + 1


def _adaptive_curve(terms: Terms, uses: int, low: int, high: int, *series: Ints, mu: float = 0.0) -> Floats:
    """Return the curve of the best adaptive plans between these points of the grid; each series has its groups."""
    from dpsieve.accounting.adaptive_loops import advance

    nothing = full = _first(terms, low, high)
    if mu:
        places = np.arange(low - terms.up, high + terms.down + 1, dtype=np.float64)
        full = np.maximum(nothing, gaussian_curve(places * terms.grid, mu))
    for groups in series:
        rest = groups, terms.begins, terms.weights, terms.shifts, terms.last, terms.sure
        full = advance(full, nothing, uses, terms.up, terms.down, *rest)
    return full[terms.up : len(full) - terms.down]


def _ordered_curve(terms: Terms, uses: int, low: int, high: int, order: Ints) -> Floats:
    """Return the curve from `low` on that bounds all products, whose factors are put into this order."""
    from dpsieve.accounting.adaptive_loops import advance_in_order

    if uses * (high - low + terms.up + terms.down) > _MOST_FIXED_POINTS:
        raise InvalidValue(f"grid={terms.grid:g} is too fine beside so many uses. Pass a larger one.")
    rest = order, terms.begins, terms.weights, terms.shifts, terms.sure
    return cast(Floats, advance_in_order(_first(terms, low, high), uses, terms.up, terms.down, *rest)[terms.up :])


def _first(terms: Terms, low: int, high: int) -> Floats:
    """Return V_0 at the grid points from `low` to `high`, and at those that are reached from there by one use."""
    if high - low > _MOST_POINTS:
        raise InvalidValue(f"grid={terms.grid:g} is too fine beside the losses. Pass a larger one.")
    with np.errstate(over="ignore"):
        first: Floats = np.maximum(0.0, -np.expm1(np.arange(low - terms.up, high + terms.down + 1) * terms.grid))
    return first


def _at(curve: Floats, place: float, uses: int, terms: Terms) -> float:
    """Return the value at a place between two points of the curve, rounded up."""
    below = math.floor(place)
    part = math.expm1((place - below) * terms.grid) / math.expm1(terms.grid)
    found = ((1 - part) * curve[below] + part * curve[below + 1]) * (1 + (uses + 8) * terms.rounding)
    return min(1.0, float(found) + 1e-300)
