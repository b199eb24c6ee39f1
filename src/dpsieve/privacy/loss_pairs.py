"""Pairs of neighbouring output distributions, as the losses of their outcomes; `privacy.adaptive` composes them.

Only the loss ln(P/Q) of an outcome drawn from P matters. An outcome that Q never gives has infinite loss; one that P
never gives is left out.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact.search import ball, precision
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
