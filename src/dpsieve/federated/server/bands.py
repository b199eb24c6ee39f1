"""Estimates and bounds of a distribution of values, from the sampled counts of a tree of ranges.

An edge between two children of a range that survived cuts all clients in two. Both parts are unions of ranges (the
greedy decomposition of Bharadwaj and Cormode, AISTATS 2022, Section 4.2), and a client is in exactly one of these
ranges. So the sampled counts on both sides bound the share below the edge (Hoeffding 1963, Theorem 1); a range below
the threshold had at most threshold - 1 sampled clients. The bounds of all edges of the grid hold jointly. Proof:
docs/background/federated.md#bounds-of-a-distribution.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from dpsieve.federated.client.strings import Grid
from dpsieve.types import Bools, Floats, Ints

_HALVINGS = 60
_SAFE = 1 + 1e-9  # covers all rounding


@dataclass(frozen=True, eq=False)
class Bands:
    """The share of values below edges of the grid: `low` and `high` hold jointly, `estimate` is in between.

    All three grow from edge to edge, from 0 at the first edge of the grid to 1 at the last. `levels` is the
    level at which an edge first appears, 0 for both ends.
    """

    edges: Ints
    levels: Ints
    estimate: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class _Ranges:
    """Ranges of one level: sampled counts and hidden ranges on either side, and the estimated share before and in it.

    All fields except `numbers` have one row per parent and one column per child.
    """

    numbers: Ints
    count: Ints
    hidden: Ints
    left: Ints
    left_hidden: Ints
    right: Ints
    right_hidden: Ints
    before: Floats
    mass: Floats

    def select(self, which: Bools) -> "_Ranges":
        """Return these ranges in one column, as parents of the next level."""
        return _Ranges(*(getattr(self, field.name)[which][:, None] for field in fields(self)))


_NONE: Ints = np.zeros((1, 1), np.int64)
_ROOT = _Ranges(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE, np.zeros((1, 1)), np.ones((1, 1)))


class Tree:
    """The ranges that survived at each level, by number, with their sampled counts."""

    def __init__(self, grid: Grid, levels: Sequence[tuple[Ints, Ints]], threshold: int) -> None:
        self.grid, self.levels, self._most_hidden = grid, levels, threshold - 1

    @property
    def is_consistent(self) -> bool:
        """Whether these can be survivors: in order, from the threshold on, and each inside one of the level before."""
        parents = np.zeros(1, np.int64)
        for numbers, counts in self.levels:
            inside = np.isin(numbers // self.grid.branching, parents).all()
            if not inside or (np.diff(numbers) <= 0).any() or (counts <= self._most_hidden).any():
                return False
            parents = numbers
        return True

    def bands(self, miss: float) -> Bands:
        """Return estimates and bounds at all edges that survivors reach; any bound fails with probability `miss`."""
        grid, parents, inner = self.grid, _ROOT, (slice(None), slice(1, None))
        ends, zeros = np.array([0, grid.cells]), np.zeros(2, np.int64)
        parts = [(ends, zeros, ends / grid.cells, ends / grid.cells, ends / grid.cells)]
        for level, (numbers, counts) in enumerate(self.levels, 1):
            ranges = self._children(parents, numbers, counts, root=level == 1)
            tail = miss / (2 * grid.depth * self.own_edges(level))
            inside, outside = ranges.left[inner], (ranges.right + ranges.count)[inner]
            unseen_left = self._most_hidden * ranges.left_hidden[inner]
            unseen_right = self._most_hidden * (ranges.right_hidden + ranges.hidden)[inner]
            low = smallest_share(inside, outside + unseen_right, tail)
            high = largest_share(inside + unseen_left, outside, tail)
            edges = (ranges.numbers[inner] * grid.branching ** (grid.depth - level)).ravel()
            own = np.full(len(edges), level)
            parts.append((edges, own, ranges.before[inner].ravel(), low.ravel(), high.ravel()))
            parents = ranges.select(ranges.hidden == 0)
        edges, levels, estimate, low, high = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(edges)
        high = np.minimum.accumulate(high[order][::-1])[::-1]
        low = np.minimum(np.maximum.accumulate(low[order]), high)
        between = np.maximum.accumulate(np.clip(estimate[order], low, high))
        return Bands(edges[order], levels[order], between, low, high)

    def share(self, first: int, last: int, miss: float) -> tuple[float, float]:
        """Return bounds on the share of values from one reached edge to another; each fails with probability `miss`."""
        inside, hidden = self._cover(first, last)
        parts = [self._cover(0, first), self._cover(last, self.grid.cells)]
        outside, out_hidden = (sum(column) for column in zip(*parts, strict=True))
        low = smallest_share(inside, outside + self._most_hidden * out_hidden, miss)
        return float(low), float(largest_share(inside + self._most_hidden * hidden, outside, miss))

    def total(self) -> tuple[int, int]:
        """Return the least and the largest number of clients that may have been sampled at the first level."""
        count, hidden = self._cover(0, self.grid.cells)
        return count, count + self._most_hidden * hidden

    def own_edges(self, level: int) -> int:
        """Return how many edges appear first at a level."""
        return int(self.grid.branching**level - self.grid.branching ** (level - 1))

    def _children(self, parents: _Ranges, numbers: Ints, counts: Ints, *, root: bool) -> _Ranges:
        parts = self.grid.branching
        count = np.zeros((len(parents.numbers), parts), np.int64)
        hidden = np.ones_like(count)
        place = np.searchsorted(parents.numbers[:, 0], numbers // parts), numbers % parts
        count[place], hidden[place] = counts, 0
        upto, hidden_upto = np.cumsum(count, axis=1), np.cumsum(hidden, axis=1)
        # What the parent's own sample had more than the children that are seen is spread over the hidden ones.
        missing = np.clip(parents.count - upto[:, -1:], 0, self._most_hidden * hidden_upto[:, -1:]) * (not root)
        guess = count + hidden * missing / np.maximum(hidden_upto[:, -1:], 1)
        total = guess.sum(axis=1, keepdims=True)
        mass = parents.mass * np.where(total > 0, guess / np.maximum(total, 1e-9), 1 / parts)
        return _Ranges(
            parents.numbers * parts + np.arange(parts), count, hidden,
            parents.left + upto - count, parents.left_hidden + hidden_upto - hidden,
            parents.right + upto[:, -1:] - upto, parents.right_hidden + hidden_upto[:, -1:] - hidden_upto,
            parents.before + np.cumsum(mass, axis=1) - mass, mass,
        )  # fmt: skip

    def _cover(self, first: int, last: int) -> tuple[int, int]:
        """Return the sampled count of the fewest ranges that make up these cells, and how many of them are hidden."""
        count = hidden = 0
        parts, open_ = self.grid.branching, [0] if first < last else []
        for level in range(1, self.grid.depth + 1):
            width = parts ** (self.grid.depth - level)
            children = (c for p in open_ for c in range(p * parts, (p + 1) * parts))
            touched = [c for c in children if c * width < last and (c + 1) * width > first]
            inside = [c for c in touched if first <= c * width and (c + 1) * width <= last]
            open_ = sorted(set(touched) - set(inside))
            survivors = self._counts[level - 1] if level <= len(self._counts) else {}
            count += sum(survivors.get(c, 0) for c in inside)
            hidden += sum(c not in survivors for c in inside)
        return count, hidden

    @cached_property
    def _counts(self) -> list[dict[int, int]]:
        return [dict(zip(numbers.tolist(), counts.tolist(), strict=True)) for numbers, counts in self.levels]


def largest_share(inside: ArrayLike, outside: ArrayLike, miss: ArrayLike) -> Floats:
    """Return the largest share of a range that these sampled counts, inside and outside of it, leave possible.

    It is below the true share with probability at most `miss`; see the head of this module.

    >>> round(float(largest_share(50, 50, 0.05)), 3), float(largest_share(0, 0, 0.05))
    (0.621, 1.0)
    """
    s, r, budget = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (inside, outside, -np.log(miss))))
    total = np.maximum(s + r, 1.0)
    low, high = s / total, np.ones_like(total)
    with np.errstate(divide="ignore", invalid="ignore"):
        fixed = np.where(s > 0, s * np.log(s / total), 0.0) + np.where(r > 0, r * np.log(r / total), 0.0)
        for _ in range(_HALVINGS):
            f = (low + high) / 2
            cost = fixed - np.where(s > 0, s * np.log(f), 0.0) - np.where(r > 0, r * np.log1p(-f), 0.0)
            possible = cost <= budget * _SAFE
            low, high = np.where(possible, f, low), np.where(possible, high, f)
    return np.where((s + r > 0) & (r > 0), high, 1.0)


def smallest_share(inside: ArrayLike, outside: ArrayLike, miss: ArrayLike) -> Floats:
    """Return the smallest share of a range that these sampled counts, inside and outside of it, leave possible."""
    return np.asarray(1 - largest_share(outside, inside, miss), dtype=np.float64)
