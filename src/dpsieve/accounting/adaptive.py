"""Exact composition of adaptively chosen uses: delta by dynamic programming over the remaining epsilon.

A pair of neighbouring output distributions (P, Q) enters as the losses ln(P/Q) of outcomes drawn from P. An outcome
that Q never gives has infinite loss; one that P never gives is omitted. A mechanism is used several times, each time
with the pair that an adversary chooses who has seen all results so far. With V_m(e) the largest hockey-stick divergence
at e, of any sign, that m uses can have,

    V_0(e) = max(0, 1 - e^e),    V_(m+1)(e) = max over pairs of the sum over outcomes of P * V_m(e - ln(P/Q)).

An outcome may be the `last` one, after which both sides draw alike; after an infinite loss V is 1. Between points of a
grid V is bounded by its chord in u = e^e, so the result is an upper bound, exact when all losses are multiples of the
grid. All terms are positive, so floats keep their digits; a margin at the end covers rounding. For pairs fixed before
the first result, `accounting.products` has smaller bounds. Proof:
docs/background/composition.md#adaptively-chosen-uses.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dpsieve import validate
from dpsieve.accounting.curves import gaussian_curve
from dpsieve.accounting.products import LossLaw
from dpsieve.errors import InvalidValue
from dpsieve.types import Bools, Floats, Ints

MOST_USES = 10_000
SNAP = 1e-9  # losses this close to a grid point, in steps, are moved to it
_MOST_STEPS = 10**6  # the largest loss in grid steps: placed with an error far below SNAP
_WIDE = 6.0  # reach of the grid, in standard deviations of the total loss
_MOST_POINTS = 4_000_000


class Outcome(NamedTuple):
    """An outcome of a pair: its probability under P, its loss ln(P/Q), and whether nothing is lost after it."""

    chance: float
    loss: float
    last: bool = False


Pair = Sequence[Outcome] | Floats
"""A pair of neighbouring output distributions: outcomes, or an array with columns chance, loss (and last)."""


class Terms:
    """Pairs as sums over grid points: a loss between two points becomes both, by the chord in u = e^e.

    The terms of pair i are those from begins[i] to begins[i + 1]; `sure` is the chance of an infinite loss, `spread`
    the largest standard deviation of the finite losses, in grid steps.
    """

    def __init__(self, pairs: Sequence[Pair], grid: float) -> None:
        self.grid = grid
        pair, chance, loss, last = _columns(pairs)
        finite = np.isfinite(loss) & (chance > 0)
        self.sure = np.bincount(pair[~finite], chance[~finite], len(pairs)).astype(float)
        pair, chance, loss, last = pair[finite], chance[finite], loss[finite], last[finite]
        self.most = math.inf if self.sure.any() else float(loss.max(initial=0.0))
        spreads = np.sqrt(np.bincount(pair, chance * loss * loss, len(pairs))) / grid
        self.spread = float(spreads.max(initial=0.0))
        place = loss / grid
        if np.abs(place).max(initial=0.0) > _MOST_STEPS:
            raise InvalidValue(f"grid={grid:g} is too fine for the losses. Pass a larger one.", argument="grid")
        snapped = np.abs(place - np.rint(place)) <= SNAP
        below = np.where(snapped, np.rint(place), np.floor(place))
        part = np.where(snapped, 0.0, np.expm1((below - place) * grid) / math.expm1(-grid))
        weight, shift = np.append(chance * (1 - part), chance * part), np.append(below, below + 1).astype(np.int64)
        # Merge equal terms: sorted by pair, then by whether they are last, then by shift.
        width = 2 * _MOST_STEPS + 3
        code = np.tile(2 * pair + last, 2) * width + shift + _MOST_STEPS
        positive = weight > 0
        codes, which = np.unique(code[positive], return_inverse=True)
        self.weights = np.bincount(which, weight[positive], len(codes)).astype(float)
        self.shifts = codes % width - _MOST_STEPS
        self.last = codes // width % 2 == 1
        self.begins = np.searchsorted(codes, 2 * width * np.arange(len(pairs) + 1))
        self.up, self.down = max(1, int(self.shifts.max(initial=0))), max(1, -int(self.shifts.min(initial=0)))
        self.stay_down = -int(self.shifts[~self.last].min(initial=0))  # of outcomes that more uses may follow
        longest = 2 * int(np.bincount(pair, minlength=1).max())
        self.rounding = 1e-13 + longest * 2.0**-51  # relative, per use

    def costs_nothing(self, uses: int, epsilon: float) -> bool:
        """Return whether no total loss is above epsilon."""
        return self.most < math.inf and Fraction(epsilon) >= uses * Fraction(self.most)


def _columns(pairs: Sequence[Pair]) -> tuple[Ints, Floats, Floats, Bools]:
    """Return the pair, chance, loss and `last` of all outcomes; raise unless the pairs are distributions."""
    tables = [np.asarray(pair, np.float64) for pair in pairs]
    if not all(table.ndim == 2 and table.shape[1] in (2, 3) for table in tables):
        raise InvalidValue("pairs must hold lists of outcomes. Pass lists of Outcome(chance, loss).", argument="pairs")
    which = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    chance, loss = np.concatenate([np.empty((0, 2)), *(table[:, :2] for table in tables)]).T
    last = np.concatenate([np.empty(0), *(table[:, 2] if table.shape[1] == 3 else 0 * table[:, 0] for table in tables)])
    usual = (np.abs(loss) <= 500) | np.isposinf(loss)
    total = np.bincount(which, chance, len(tables))
    if not (usual & (chance >= 0) & (chance <= 1 + 1e-9)).all() or (np.abs(total - 1) > 1e-9).any():
        fix = "Pass chances that sum to 1."
        raise InvalidValue(
            f"pairs has chances that are not a distribution, or a loss above 500. {fix}", argument="pairs"
        )
    if (np.bincount(which, chance * np.exp(-loss), len(tables)) > 1 + 1e-9).any():
        fix = "The sum of chance * e^-loss must be at most 1. Pass ln(P/Q)."
        raise InvalidValue(f"pairs has losses that do not fit. {fix}", argument="pairs")
    return which, chance, loss, last != 0


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

    The time grows with uses * pairs * (range of losses / grid).

    Args:
        pairs: in both orders where neighbours may be exchanged.
        uses: how many uses are composed.
        epsilon: at which delta is computed.
        grid: of losses. Exact if all losses are multiples of it; else the excess grows with its square.
        also: the pairs of a second independent outcome of each use.
        then: the pairs of as many uses that follow, also after a `last` outcome: that ends its own series only.

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

    With mu, a mu-Gaussian private mechanism follows, whatever the uses showed: V_0 is the curve of Gaussian noise of
    this distance. An adversary cannot have one plan per epsilon, as a product of two laws would allow.

    The curve is computed up to `top`; its value there is the leak of the law. With it, uses that may depend on the
    results of a product of other pairs are part of one account with that product (`accounting.products`).
    """
    terms = _checked(pairs, uses, grid)
    noise = (_WIDE + mu / 2) * mu / grid  # any ends of the grid are sound
    low = -math.ceil(min(uses * terms.stay_down, _WIDE * math.sqrt(uses) * terms.spread) + terms.down + noise)
    high = max(0, math.ceil(min(uses * terms.up + 2 * noise, top / grid)) + 1)
    curve = _adaptive_curve(terms, uses, low, high, np.array([0, len(pairs)]), mu=mu)
    rounded = np.minimum(1.0, curve * (1 + (uses + 8) * terms.rounding) + 1e-300)
    return LossLaw.of_curve(low, grid, rounded, beyond=2 * uses * SNAP * grid)


def _checked(pairs: Sequence[Pair], uses: int, grid: float) -> Terms:
    validate.whole("uses", uses, high=MOST_USES, hint="Pass how many uses are composed, such as 100.")
    validate.positive("grid", grid, hint="Pass a small part of the losses, such as grid=0.01.")
    return Terms(pairs, grid)


def _range(terms: Terms, uses: int, epsilon: float) -> tuple[float, int, int]:
    """Return the place of epsilon on the grid, and two ends with negligible mass beyond them; any ends are sound."""
    aim, spread = epsilon / terms.grid - 2 * uses * SNAP, math.sqrt(uses) * terms.spread
    low = min(math.floor(aim), -math.ceil(min(uses * terms.stay_down + terms.down, max(aim, _WIDE * spread))))
    return aim, low, math.ceil(aim + min(uses * terms.stay_down, _WIDE * spread)) + 1


def _adaptive_curve(terms: Terms, uses: int, low: int, high: int, *series: Ints, mu: float = 0.0) -> Floats:
    """Return the curve of the best adaptive plans between these points of the grid; each series has its groups."""
    from dpsieve.accounting.loops import advance

    nothing = full = _first(terms, low, high)
    if mu:
        places = np.arange(low - terms.up, high + terms.down + 1, dtype=np.float64)
        full = np.maximum(nothing, gaussian_curve(places * terms.grid, mu))
    for groups in series:
        columns = groups, terms.begins, terms.weights, terms.shifts, terms.last, terms.sure
        full = advance(full, nothing, uses, terms.up, terms.down, *columns)
    return full[terms.up : len(full) - terms.down]


def _first(terms: Terms, low: int, high: int) -> Floats:
    """Return V_0 at the grid points from `low` to `high`, and at those within reach of one use."""
    if high - low > _MOST_POINTS:
        raise InvalidValue(f"grid={terms.grid:g} is too fine for the losses. Pass a larger one.", argument="grid")
    with np.errstate(over="ignore"):
        first: Floats = np.maximum(0.0, -np.expm1(np.arange(low - terms.up, high + terms.down + 1) * terms.grid))
    return first


def _at(curve: Floats, place: float, uses: int, terms: Terms) -> float:
    """Return the value at a place between two points of the curve, rounded up."""
    below = math.floor(place)
    part = math.expm1((place - below) * terms.grid) / math.expm1(terms.grid)
    value = ((1 - part) * curve[below] + part * curve[below + 1]) * (1 + (uses + 8) * terms.rounding)
    return min(1.0, float(value) + 1e-300)
