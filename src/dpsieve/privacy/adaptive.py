"""Exact composition of uses that are chosen adaptively: delta by dynamic programming over what is left of epsilon.

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
from typing import cast

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.privacy.loss_pairs import MOST_USES, SNAP, Outcome, Pair, Terms
from dpsieve.privacy.stages import LossLaw
from dpsieve.types import Floats, Ints

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


def adaptive_law(pairs: Sequence[Pair], uses: int, top: float, *, grid: float) -> LossLaw:
    """Return a law of losses that dominates `uses` adaptively chosen pairs: its curve is nowhere below V above.

    The curve is computed up to `top`; its value there is the leak of the law. With it, uses that may depend on the
    results of a product of other pairs are part of one account with that product (`privacy.stages`).
    """
    terms = _checked(pairs, uses, grid)
    low = -math.ceil(min(uses * terms.stay_down, _WIDE * math.sqrt(uses) * terms.spread) + terms.down)
    high = max(0, math.ceil(min(uses * terms.up, top / grid)) + 1)
    curve = _adaptive_curve(terms, uses, low, high, np.array([0, len(pairs)]))
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


def _adaptive_curve(terms: Terms, uses: int, low: int, high: int, *series: Ints) -> Floats:
    """Return the curve of the best adaptive plans between these points of the grid; each series has its groups."""
    from dpsieve.privacy.adaptive_loops import advance

    nothing = full = _first(terms, low, high)
    for groups in series:
        rest = groups, terms.begins, terms.weights, terms.shifts, terms.last, terms.sure
        full = advance(full, nothing, uses, terms.up, terms.down, *rest)
    return full[terms.up : len(full) - terms.down]


def _ordered_curve(terms: Terms, uses: int, low: int, high: int, order: Ints) -> Floats:
    """Return the curve from `low` on that bounds all products, whose factors are put into this order."""
    from dpsieve.privacy.adaptive_loops import advance_in_order

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
