"""Quantiles by the exponential mechanism on the gaps between sorted rows, and by recursive halving for many.

One quantile q (Smith 2011): the point k of the grid is drawn with probability proportional to e^(-c u(k)), where u(k)
is how many rows it is off (`grid_quantiles`). Between two neighbouring rows u is constant, so a gap of L points has the
weight L e^(-c u), a row itself the weight e^(-c u); one of these is drawn, then a point of it.

Privacy. One row moves every u(k) by at most s = D/B, up for some points and down for others (a row below the target
makes points between it and the target better, those above the target worse). So ln P'(k)/P(k) ranges over at most
2 s c: the factor 2 is needed. With c = e/(2 s) the pick is e-private, and as its loss has a range of e, it is
e^2/8-zCDP (Durfee and Rogers 2019; Cesar and Rogers 2021).

Many quantiles (Kaplan, Schnapp and Stemmer 2022): first the middle one, from all rows; then those below it from the
rows up to the found point, those above from the other rows, and so on. Between the found points for q_a and q_b, the
quantile q becomes q' = (q - q_a)/(q_b - q_a) of the rows there. A row takes part in one pick of each level, so a row
that is added costs L = log2(m) + 1 picks. A row that is replaced may leave one node and enter another of its level.
There s = 2 max(q', 1 - q') is enough: each of both picks has a range of 2 c s/2 = e/2; and if it stays in its node, the
range is 2 c = e/s <= e. Which node a row is in depends on points found before and on the row alone, so levels compose:
L e, or L e^2/8 under zCDP.

A unit of at most m rows moves every u(k) by m s at most (`grid_quantiles`), and its rows may be in several nodes of a
level: added or removed one by one, each row has a range of 2 c s in one of them. So with c = e/(2 m s) the ranges of a
level add up to e. If a unit is replaced, in a level of several nodes, at most m rows leave and m enter, each with a
range of 2 c s/2 = e/(2 m): e in all.

Equal rows would all go to one side. So for many quantiles each point is divided into 2^20, and each row is put to
a random one of its own, whatever the other rows are; the private points are then rounded down to the grid.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dpsieve.exact.search import ball, lower, upper
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.registry import register
from dpsieve.randomness.order import uniform_integers
from dpsieve.randomness.source import Source
from dpsieve.randomness.weighted_pick import weighted_pick
from dpsieve.types import Ints
from dpsieve.vectors.means.grid_quantiles import UNCERTAIN, GridQuantiles, sensitivity

PARTS_BITS = 20
"""Into how many parts (as a power of two) a point is divided for many quantiles."""
_FINEST_PART = 10**8


class Node(NamedTuple):
    """One pick of the recursive halving.

    Attributes:
        place: which quantile it finds.
        left, right: which quantiles, found before, its rows lie between; -1 and the number of quantiles for none.
        share: q', the quantile among those rows.
        alone: whether its level has no other.
    """

    place: int
    left: int
    right: int
    share: Fraction
    alone: bool

    def sensitivity(self, neighbours: str) -> int:
        """Return D = s B for this pick, B the denominator of its share."""
        if neighbours == "replace" and not self.alone:
            return 2 * sensitivity(self.share, "add_remove")
        return sensitivity(self.share, neighbours)  # type: ignore[arg-type]


@register("gap_quantiles")
@dataclass(frozen=True, repr=False)
class GapQuantiles(GridQuantiles):
    """Quantiles by the exponential mechanism on gaps: one pick, or recursive halving; see the head of this module.

    Attributes:
        levels: L, how many picks a row takes part in.
        pick_epsilon: e, the range of the loss of all picks of one level; L e <= epsilon, or L e^2/8 <= rho.
        pure_epsilon: L e, which is kept without any delta.

    >>> made = GapQuantiles(1.0, (0.25, 0.5, 0.75), 0.0, 100.0)
    >>> made.levels, made.pick_epsilon, made.rank_errors
    (2, 0.5, (160.0, 80.0, 160.0))
    """

    @property
    def levels(self) -> int:
        """How many picks a row takes part in."""
        return len(self.shares).bit_length()

    @cached_property
    def pick_epsilon(self) -> float:
        """The range of the loss of one level."""
        if self.rho:
            return lower(lambda: (ball(self.rho) * 8 / self.levels).sqrt())
        return lower(lambda: ball(self.epsilon) / self.levels)

    @cached_property
    def pure_epsilon(self) -> float:
        """The epsilon that is kept without any delta."""
        return upper(lambda: ball(self.pick_epsilon) * self.levels)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The picks, level by level."""
        shares, found = self.shares, []
        ends = {-1: Fraction(0), len(shares): Fraction(1), **dict(enumerate(shares))}
        level = [(-1, len(shares))]
        while level:
            for left, right in level:
                place = (left + right) // 2
                part = (ends[place] - ends[left]) / (ends[right] - ends[left])
                found.append(Node(place, left, right, part.limit_denominator(_FINEST_PART), len(level) == 1))
            halves = [half for a, b in level for half in ((a, (a + b) // 2), ((a + b) // 2, b))]
            level = [(a, b) for a, b in halves if b - a > 1]
        return tuple(found)

    @cached_property
    def rank_errors(self) -> tuple[float, ...]:
        """How many rows each value is off at most, all of them with probability 0.95.

        Some point has u = 0, so one pick among G points misses by r or more with probability at most G e^(-c r).
        """
        log_size = math.log(self.grid.size) + self._parts * math.log(2)
        off = self._added_up(log_size + math.log(len(self.shares) / UNCERTAIN))
        return tuple(float(math.ceil(one)) for one in off)

    @property
    def typical_error(self) -> float:
        """About how many rows the values are off where rows are spread: a pick has a mean error of 1/c there."""
        return max(self._added_up(1.0))

    def _added_up(self, miss: float) -> list[float]:
        """Return how far each value is off if every pick misses by miss/c.

        A target between two found points lies between what these are off, so a node adds the larger of both.
        """
        off = {-1: 0.0, len(self.shares): 0.0}
        for node in self.nodes:
            rate = self.pick_epsilon / 2 * node.share.denominator / self._change(node)
            off[node.place] = miss / rate + max(off[node.left], off[node.right])
        return [off[place] for place in range(len(self.shares))]

    @property
    def _parts(self) -> int:
        return PARTS_BITS if len(self.shares) > 1 else 0

    def certify(self) -> Certificate:
        """Return the certificate: the picks are drawn exactly, and their losses composed by bounds rounded up."""
        worst = 0.0 if self.pure_epsilon <= self.epsilon else self.delta_at_epsilon() if self.rho else 1.0
        return formula(self.guarantee, worst, "balls", f"{self.levels:,} picks by the exponential mechanism")

    def draw_sorted(self, rows: Ints, source: Source) -> Ints:
        """Return a point for each of `shares`, in order, from the sorted points of the rows."""
        size = self.grid.size << self._parts
        if self._parts:
            spare = np.uint64(64 - self._parts)
            rows = np.sort((rows << self._parts) + (source.words(len(rows)) >> spare).view(np.int64))
        found = {-1: 0, len(self.shares): size - 1}
        for node in self.nodes:
            # The rows above the point to the left, up to the one to the right; at the ends, all.
            start = 0 if node.left < 0 else int(np.searchsorted(rows, found[node.left], "right"))
            stop = int(np.searchsorted(rows, found[node.right], "right"))
            found[node.place] = self._pick(rows[start:stop], found[node.left], found[node.right], node, source)
        return np.array([found[place] for place in range(len(self.shares))]) >> self._parts

    def _change(self, node: Node) -> int:
        """Return m D of a pick."""
        return node.sensitivity(self.neighbours) * self.rows_per_unit

    def _pick(self, rows: Ints, low: int, high: int, node: Node, source: Source) -> int:
        return pick_point(rows, (low, high), node.share, self.pick_epsilon, self._change(node), source)


def pick_point(rows: Ints, ends: tuple[int, int], share: Fraction, epsilon: float, change: int, source: Source) -> int:
    """Return a point between both ends by the exponential mechanism, from sorted rows there.

    A unit moves B u(k) by at most `change`, for B the denominator of the share; then the loss has a range of epsilon.
    """
    starts, lengths, misses = segments(rows, *ends, share)
    at = weighted_pick(lengths, misses, epsilon, 2 * change, source)
    return int(starts[at] + uniform_integers(1, int(lengths[at]), source)[0])


def segments(rows: Ints, low: int, high: int, share: Fraction) -> tuple[Ints, Ints, Ints]:
    """Cut the points low, ..., high into gaps and rows: return where each starts, its length, and B u there.

    `rows` are sorted points within. A segment may have the length 0; the points of all others are all points, once.

    >>> [part.tolist() for part in segments(np.array([2, 2, 5]), 0, 9, Fraction(1, 2))]
    [[0, 3, 6, 2, 5], [2, 2, 4, 1, 1], [3, 1, 3, 0, 1]]
    """
    last = np.flatnonzero(np.append(rows[1:] != rows[:-1], True)) if len(rows) else np.empty(0, np.int64)
    values, upto = rows[last], np.append(0, last + 1)
    starts = np.append(low, values + 1)
    lengths = np.append(values, high + 1) - starts
    a, b = share.numerator, share.denominator
    above = upto * b - a * len(rows)  # B (rank - t), in each gap
    misses = np.maximum(np.maximum(above[:-1], -above[1:]), 0)
    ones = np.ones(len(values), np.int64)
    return (
        np.concatenate([starts, values]), np.concatenate([lengths, ones]), np.concatenate([np.abs(above), misses])
    )  # fmt: skip
