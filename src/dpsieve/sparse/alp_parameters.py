"""Makers of ALP: how far apart levels are, how many places a column has, and how often bits are flipped."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.sparse.alp import FLIP_BITS, MOST_COLUMNS, Alp, checked_sparsity, least_flips, level_edges, level_grid
from dpsieve.sparse.embedding import Relation, relation

SHAPES = ("even", "geometric")
_ALPHAS = {"even": (0.7, 12.0), "geometric": (2.5, 20.0)}  # Section 2.6: the best additive, multiplicative error
_TRIED = 12


def alp(
    epsilon: float,
    sparsity: int,
    max_value: float,
    *,
    neighbours: Relation,
    alpha: float | None = None,
    bits: float = 300.0,
    shape: str = "even",
    signed: bool = False,
    unit: str | None = None,
) -> Alp:
    """Return the ALP mechanism for about `sparsity` entries of at most `max_value`, at `bits` bits an entry.

    Args:
        epsilon: the budget.
        sparsity: the number of entries; where only a bound on their total is known, that total divided by
            the distance of levels, which is the number of ones in the fullest column.
        max_value: the largest value; larger ones are clamped.
        neighbours: 'l1' or 'one_entry'.
        alpha: the distance of levels times epsilon, under 'one_entry' rounded to whole distances. Default: the
            least expected error, by public numbers alone.
        bits: stored for each entry. More bits mean fewer collisions; with fewer than two for each column there are
            less places in it than twice the entries, which still works, with a larger error.
        shape: 'even', for an error that is the same for all values, or 'geometric', for one in proportion to them.
        signed: whether values may be below 0.
        unit: in words, what is added or removed.

    >>> made = alp(1.0, 100_000, 60, neighbours="one_entry")
    >>> made.gap, made.levels, made.places, [round(error, 1) for error in made.expected_error()]
    (2.0, 30, 1000000, [2.4, 1.5])
    """
    epsilon, name = validate.positive_epsilon(epsilon), relation(neighbours)
    count = checked_sparsity(sparsity)
    top = validate.between("max_value", max_value, 2.0**-100, 2.0**50, hint="Pass the largest value, such as 60.")
    bits = validate.between("bits", bits, 1.0, 10_000.0, hint="Pass how many bits to store for an entry, such as 300.")
    if not isinstance(shape, str) or shape not in SHAPES:
        raise InvalidValue("shape is not known. Choose 'even' or 'geometric'.")
    if not isinstance(signed, bool):
        raise InvalidType("signed must be True or False. Pass signed=True for values below 0.")
    if alpha is not None:
        alpha = validate.between("alpha", alpha, 1e-3, 1e6, hint="Pass a factor such as alpha=3.0.")
        made = _with_gap(epsilon, name, count, top, _gap(alpha / epsilon, name), bits, shape, signed)
    else:
        made = _searched(epsilon, name, count, top, bits, shape, signed)
    return made if unit is None else replace(made, unit=unit)


@lru_cache(maxsize=256)
def _searched(
    epsilon: float, neighbours: Relation, sparsity: int, top: float, bits: float, shape: str, signed: bool
) -> Alp:
    """Return the mechanism of the least expected error over a grid of distances between levels."""
    most = bits / (4 if signed else 2)  # so that there are two places in a column for each entry
    widest = max(top, 1.0) if neighbours == "one_entry" else top
    least, largest = _ALPHAS[shape]
    first = min(widest, max(least / epsilon, top / most if shape == "even" else 0.0))
    last = min(widest, max(largest / epsilon, 4 * first))
    tried = first * (last / first) ** np.linspace(0, 1, _TRIED)
    gaps = sorted({_gap(float(gap), neighbours) for gap in tried})
    made = [_with_gap(epsilon, neighbours, sparsity, top, gap, bits, shape, signed) for gap in gaps]
    return min(made, key=_score)


def _score(made: Alp) -> float:
    """Return the mean error, where every other entry that is asked about is there."""
    return sum(made.expected_error()) / 2


def _with_gap(
    epsilon: float, neighbours: Relation, sparsity: int, top: float, gap: float, bits: float, shape: str, signed: bool
) -> Alp:
    flips = least_flips(epsilon, neighbours, Fraction(gap))
    if flips >= 1 << FLIP_BITS - 1:
        raise InvalidValue("epsilon is too small for so close levels. Pass a larger epsilon, or a larger alpha.")
    p = flips / 2**FLIP_BITS
    ratio = (4 * p * (1 - p)) ** -0.25 if shape == "geometric" else 1.0
    levels = math.ceil(math.log1p(top * (ratio - 1) / gap) / math.log(ratio) if ratio > 1 else top / gap)
    if levels > MOST_COLUMNS:
        raise InvalidValue("alpha needs more than 2^16 levels. Pass a larger alpha, or a smaller max_value.")
    levels = max(levels, 1)
    while (edges := level_edges(gap, ratio, levels, neighbours))[-1] < top:
        levels += 1
    flips = least_flips(epsilon, neighbours, Fraction(float(np.diff(edges).min())))
    places = max(int(bits * sparsity / (2 * levels if signed else levels)), 1)
    return Alp(epsilon, neighbours, sparsity, levels, places, flips, gap, ratio, signed=signed)


def _gap(wanted: float, neighbours: Relation) -> float:
    """Return the nearest distance of levels that is whole, or that has few binary digits."""
    grid = level_grid(wanted, neighbours)
    return max(math.floor(wanted / grid + 0.5), 1) * grid
