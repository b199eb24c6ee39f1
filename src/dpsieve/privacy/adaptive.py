"""Exact composition of uses that are chosen adaptively: delta by dynamic programming over what is left of epsilon.

A mechanism is used several times. Each time an adversary, who has seen all results so far, chooses one of its pairs of
neighbouring output distributions (P, Q); whether P or Q is drawn from is the secret, the same in all uses. With V_m(e)
the largest hockey-stick divergence at e, of any sign, that m uses can have,

    V_0(e) = max(0, 1 - e^e),    V_(m+1)(e) = max over pairs of the sum over outcomes of P * V_m(e - ln(P/Q)),

because the adversary may look at the first result and then continue with the best plan for what is left. No smaller
delta holds for all adaptive sequences. An outcome may be the `last` one, after which both sides draw alike.

V_m is convex in u = e^e (each term of the sum is, and so is a maximum), it falls with slope at least -1, and so
V_m - (1 - u) only grows. So between points of a grid the chord in u is an upper bound, and beyond its ends there are
bounds too: the result is an upper bound, exact when all losses are multiples of the grid. All terms are positive, so
floats keep their digits, also where delta is 1e-20; a margin at the end covers roundings.

References: J. Dong, D. Durfee and R. Rogers, "Optimal Differential Privacy Composition for Exponential Mechanisms", ICML
2020, who use the recursion for the exponential mechanism.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue

MOST_USES = 10_000
_SNAP = 1e-9  # of a grid step: losses this near to the grid are moved to it, and epsilon is lowered by as much
_SPREADS = 8.0  # how far the grid reaches, in standard deviations of the total loss
_ROUNDING = 1e-13  # relative, for each use
_MOST_POINTS = 4_000_000


class Outcome(NamedTuple):
    """An outcome of a pair: its probability under P, its loss ln(P/Q), and whether nothing is lost after it."""

    chance: float
    loss: float
    last: bool = False


Pair = Sequence[Outcome]
"""A pair of neighbouring output distributions."""


def adaptive_delta(pairs: Sequence[Pair], uses: int, epsilon: float, *, grid: float) -> float:
    """Return the delta of `uses` adaptively chosen pairs at `epsilon`, rounded up.

    Put in the pairs in both orders where neighbours may be exchanged, and the `grid` of losses: exact if all losses
    are multiples of it; else its square decides how much is added. The time grows with uses * pairs * (range of
    losses / grid).

    >>> flip = [Outcome(0.75, math.log(3)), Outcome(0.25, -math.log(3))]  # randomised response
    >>> round(adaptive_delta([flip], 2, math.log(3), grid=math.log(3)), 9)  # 9/16 - 3 * 1/16
    0.375
    """
    uses = validate.whole("uses", uses, high=MOST_USES, hint="Pass how many uses are composed, such as 100.")
    epsilon = validate.epsilon(epsilon)
    grid = validate.positive("grid", grid, hint="Pass a small part of the losses, such as grid=0.01.")
    for pair in pairs:
        _check(pair)
    most = max((outcome.loss for pair in pairs for outcome in pair), default=0.0)
    if Fraction(epsilon) >= uses * Fraction(most):
        return 0.0
    terms = _Terms(pairs, grid)
    aim = epsilon / grid - uses * _SNAP
    reach = _SPREADS * math.sqrt(uses) * (terms.up + terms.down) / 2
    low = min(0, math.floor(max(-uses * terms.stay_down - terms.down, aim - uses * terms.up, -reach - terms.down)))
    high = max(0, math.floor(aim) + 1, math.ceil(min(uses * terms.up, aim + min(uses * terms.stay_down, reach))))
    if high - low > _MOST_POINTS:
        raise InvalidValue(f"grid={grid:g} is too fine beside the losses. Pass a larger one.")
    from dpsieve.privacy.adaptive_loops import advance

    at = np.arange(low - terms.up, high + terms.down + 1) * grid
    with np.errstate(over="ignore"):
        first = np.maximum(0.0, -np.expm1(at))
    curve = advance(first, uses, terms.up, terms.down, terms.begins, terms.weights, terms.shifts, terms.last)
    below = math.floor(aim)
    part = math.expm1((aim - below) * grid) / math.expm1(grid)
    left, right = curve[below - low + terms.up : below - low + terms.up + 2]
    found = ((1 - part) * left + part * right) * (1 + (uses + 8) * _ROUNDING)
    return min(1.0, float(found) + 1e-300)


class _Terms:
    """The pairs as sums over grid points: losses between two points become both, by the chord in u."""

    def __init__(self, pairs: Sequence[Pair], grid: float) -> None:
        rows = [list(_on_grid(pair, grid)) for pair in pairs]
        flat = [term for row in rows for term in row]
        self.begins = np.cumsum([0, *map(len, rows)])
        self.weights = np.array([weight for weight, _, _ in flat], np.float64)
        self.shifts = np.array([shift for _, shift, _ in flat], np.int64)
        self.last = np.array([last for _, _, last in flat], np.bool_)
        self.up, self.down = max(1, int(self.shifts.max())), max(1, -int(self.shifts.min()))
        self.stay_down = -int(self.shifts[~self.last].min(initial=0))  # of outcomes after which there are more uses


def _on_grid(pair: Pair, grid: float) -> list[tuple[float, int, bool]]:
    terms = []
    for chance, loss, last in pair:
        place = loss / grid
        near = round(place)
        if abs(place - near) <= _SNAP:
            terms.append((chance, near, last))
            continue
        below = math.floor(place)
        part = math.expm1((below - place) * grid) / math.expm1(-grid)
        terms += [(chance * (1 - part), below, last), (chance * part, below + 1, last)]
    return [term for term in terms if term[0] > 0]


def _check(pair: Pair) -> None:
    """Raise unless the probabilities of both sides add up."""
    finite = all(math.isfinite(loss) and abs(loss) <= 500 and 0 <= chance <= 1 + 1e-9 for chance, loss, _ in pair)
    if not finite or abs(sum(one.chance for one in pair) - 1) > 1e-9:
        raise InvalidValue("pairs holds one whose chances are no distribution, or whose losses are not finite.")
    if abs(sum(one.chance * math.exp(-one.loss) for one in pair) - 1) > 1e-9:
        raise InvalidValue("pairs holds one whose losses do not fit: the sum of chance * e^-loss must be 1.")
