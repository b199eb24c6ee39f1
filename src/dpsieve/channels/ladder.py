"""Rows of the optimal channel at small sampling rates: every frequency up to 10^12, from a table on a ladder.

The table has a few hundred thousand rows (see `privacy.ladder_kernel`). Close to saturation, where 'nothing' has little
more mass than a token, whole tokens are too coarse. So once the scheme is constant and close to one, the remaining rows
are computed one at a time (see `channels.stepwise`) until they become shift-invariant.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import nextafter

import numpy as np

from dpsieve.channels import stepwise_loops as blocks
from dpsieve.channels.ladder_loops import (
    HEIGHT,
    MOST_ROWS,
    fill_windows,
    make_places,
    most_lost,
    stairs_below,
    widest,
)
from dpsieve.channels.law import LARGEST_FREQUENCY, Windows
from dpsieve.channels.rows import FACTOR_BITS, ONE, SAFE, Steps
from dpsieve.channels.stepwise import RaggedRows, SampledRows, StepRows, constant_from
from dpsieve.errors import NotCertified
from dpsieve.exact import floor_words, fraction
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.kernel import Block, examine
from dpsieve.privacy.ladder_kernel import LadderTable, examine_ladder, expand, rows_for
from dpsieve.sampling.schemes import Scheme
from dpsieve.types import Floats, Ints, Words
from dpsieve.validate import Neighbours

_STEPWISE = 1 << 19  # cells: a table up to this size is computed row by row, without loss
_ROWS = 512  # rows expanded at a time
_ROUNDING = 1e-14  # above the error of sums of floats
_UNKNOWN = np.iinfo(np.int64).min
_SURE = 1e-5  # the least mass of 'nothing' on the ladder
_TAIL = 1 << 25  # cells: the longest tail
_MOST_BITS = (2**63 // LARGEST_FREQUENCY).bit_length() - 1  # of the parts of a unit
_BELOW = 1 - 1e-12  # lowers target masses by more than the error of floats


@dataclass(frozen=True, eq=False)
class StairTable:
    """A table up to the frequency `stop` - 1.

    With `sure`, q is constant and close to one from `stop` on, and a tail of rows follows; without it the table covers
    all frequencies. `levels` are those of the stairs; see `SampledRows` for `loss`.
    """

    table: LadderTable
    sure: bool
    levels: Words
    loss: float
    height: float

    def examine(self, epsilon: float, delta: float) -> tuple[float, Words]:
        """Return the worst divergence, and an upper bound on the reported mass of each row, as (high, low) words."""
        verdict, totals = examine_ladder(self.table, epsilon, delta)
        if not verdict.accepted:
            raise NotCertified(verdict.reason)
        if not self.sure and len(self.table.c) - 1 not in self.table.repeated:
            raise NotCertified("the last row has not settled")
        stair = np.searchsorted(self.table.first, np.arange(1, len(totals)), side="right") - 1
        high, low = self.levels[stair, 0], self.levels[stair, 1]
        if ((totals[1:, 0] > high) | (totals[1:, 0] == high) & (totals[1:, 1] > low)).any():
            raise NotCertified("a key is reported more often than it is sampled")
        return verdict.worst, totals

    def divergence(self, epsilon: float, reported: Floats) -> float:
        """Return the largest divergence of adjacent rows at an epsilon below that of the table, in floats."""
        masses = self.table.floats
        sums = np.append(0.0, np.cumsum(masses[self.table.birth :]))
        places, birth, parts = (self.table.c, self.table.b), self.table.birth, self.table.parts
        return float(widest(*places, masses, sums, birth, parts, reported, math.exp(epsilon)))


def make_table(epsilon: float, delta: float, spread: int, scheme: Scheme) -> StairTable | None:
    """Return a table for a scheme; None if it does not fit on the ladder."""
    steps, parts = Steps(epsilon, delta), _parts(epsilon, delta, spread)
    masses, inverse = _rungs(steps, parts, spread)
    settle = math.ceil(math.log1p(math.expm1(epsilon) / delta) / epsilon) + 1
    end = max(_SURE, 8 * math.tanh(epsilon / 2) / parts)
    stairs = stairs_below(scheme, settle, end)
    nothing = np.zeros(1, np.int64)
    empty = LadderTable(masses, spread, inverse, parts, c=nothing, b=nothing, starts=nothing, first=nothing, stop=1)
    sure, stop = bool(stairs.levels[-1] >= 1 - end) and empty.birth**2 <= _TAIL, 2 * LARGEST_FREQUENCY
    if sure:
        stop = max(int(stairs.starts[-1]) + 1, constant_from(scheme, LARGEST_FREQUENCY))
    ends, birth, floats = np.append(stairs.starts, stop), empty.birth, empty.floats
    numbers = np.array([steps.delta / ONE * _BELOW, 2.0**64 / inverse, inverse / 2.0**64])
    sums = np.append(0.0, np.cumsum(floats[birth:]))
    room = int(min(np.minimum(np.diff(ends), 4 * birth).sum(), 4 * MOST_ROWS)) + 2
    (c, b), reported, first = np.zeros((2, room), np.int64), np.zeros(room), np.zeros(len(ends), np.int64)
    last = make_places(
        ends, stairs.levels * _BELOW, numbers, floats, sums, birth, parts, c, b, first, reported
    )  # fmt: skip
    if last == 0 or (np.arange(last + 1) - b[: last + 1] // parts > birth).any():  # beyond the spread
        return None
    c, b = c[: last + 1].copy(), b[: last + 1].copy()
    table = replace(empty, c=c, b=b, starts=stairs.starts, first=first, stop=stop)
    stair = np.repeat(np.arange(len(ends) - 1), np.diff(first))
    q = scheme.inclusion(np.minimum(stairs.starts[stair] + np.arange(1, last + 1) - first[stair], LARGEST_FREQUENCY))
    is_last = np.append(stair[1:] != stair[:-1], True) & (np.diff(first) < np.diff(ends))[stair]
    last_q = q.copy()
    last_q[is_last] = scheme.inclusion(np.minimum(ends[1:] - 1, LARGEST_FREQUENCY))[stair[is_last]]
    loss = most_lost(numbers, floats[birth], reported[1 : last + 1], q, is_last, last_q)
    return StairTable(table, sure, np.column_stack(floor_words(stairs.levels)), loss, stairs.height)


def _parts(epsilon: float, delta: float, spread: int) -> int:
    """Return the parts of a unit; higher rungs, which lose more to whole tokens, need more parts.

    A new token has 40 bits, a row stays below 2^30 tokens, and tokens of the largest frequency fit into 64 bits.
    """
    bits = min(_MOST_BITS, 20 + max(0, math.ceil(epsilon / math.log(2)) - 7))
    return 1 << max(0, math.floor(min(bits, math.log2(delta) + 88, 30 - math.log2(spread))))


def _rungs(steps: Steps, parts: int, below: int) -> tuple[tuple[int, ...], int]:
    """Return a ladder whose rung `below` is the mass of a new token, and the factor from each rung to the one below."""
    inverse = -((-1 << 64 + FACTOR_BITS) // steps.factor) + 1
    top, total, above = steps.delta // parts, 0, 0
    while (total + top) * parts < ONE:
        total, top, above = total + top, (top << 64) // inverse, above + 1
    masses = [top]
    for _ in range(above + below):
        masses.append(-(-masses[-1] * inverse >> 64))
    return tuple(masses[::-1]), inverse


def first_past(table: LadderTable, places: Ints, tokens: Ints) -> Ints:
    """Return the first frequency whose place (c, or b) is at or past each token; `stop` if that is later."""
    parts, first, last = table.parts, table.first[:-1], table.first[1:] - 1
    ahead = table.starts - first
    stair = np.maximum(np.searchsorted(places[first] + ahead * parts, tokens) - 1, 0)
    relative = tokens - ahead[stair] * parts
    repeats = np.maximum(0, -((places[last[stair]] - relative) // parts))  # of the last row of the stair
    row = np.where(repeats > 0, last[stair] + repeats, np.searchsorted(places, relative))
    frequencies: Ints = np.minimum(ahead[stair] + row, np.append(table.starts[1:], table.stop)[stair])
    return frequencies


def likeliest_on_ladder(table: LadderTable, tokens: Ints) -> tuple[Ints, Floats]:
    """Return the likeliest frequency of each token, and its probability there; zero if no row has the token.

    A token moves up the ladder until c passes it, and down afterwards, so it is the last frequency before that.
    """
    frequencies = first_past(table, table.c, tokens) - 1
    rung = frequencies + (-tokens // table.parts)  # above that of a new token
    possible = (rung >= 0) & (rung < len(table.masses) - table.birth)
    chance = np.where(possible, table.floats[table.birth + np.where(possible, rung, 0)], 0.0)
    return np.where(possible, frequencies, 1), chance


def sampled_rows(epsilon: float, delta: float, parts: int, spread: int, scheme: Scheme) -> SampledRows:
    """Return the rows of the optimal channel with a scheme; they spread over `spread` units at most.

    A table of up to 2^19 cells is computed row by row, with `parts` tokens per unit, without loss. Larger tables use a
    ladder, with a loss of at most 0.1 % (more only where a small epsilon needs higher stairs to stay below 2^23 rows).
    Where a ladder would lose more, as after jumps of a scheme, rows are computed one by one, with q held constant from
    frequency 2^20 on, unless that would lose even more.
    """
    rows = StepRows(Steps(epsilon, delta), parts, spread, scheme)
    if constant_from(scheme) * spread > _STEPWISE:
        table = make_table(epsilon, delta, spread, scheme)
        if table is not None and table.loss <= max(1.11 * max(table.height, HEIGHT), rows.loss):
            return LadderRows(epsilon, delta, spread, scheme, table)
    return rows


class LadderRows(SampledRows):
    """The rows of a table on a ladder, the last of each stair repeated, then the tail: rows computed step by step."""

    longest = 0  # no method passes over all rows
    last: int

    def __init__(self, epsilon: float, delta: float, spread: int, scheme: Scheme, stairs: StairTable) -> None:
        self.resolution, self.spread, self.scheme, self.loss = stairs.table.parts, spread, scheme, stairs.loss
        self._promise, self._stairs, self._table = (epsilon, delta), stairs, stairs.table
        table, self._end = self._table, len(self._table.c) - 1
        self._starts, self._first, self._ahead = table.starts, table.first, table.stop - self._end - 1
        if stairs.sure:
            self._starts = np.append(table.starts, table.stop)
            self._first = np.append(table.first, self._tail.last + 1)
        self._last_row = int(self._first[-1]) - 1
        self.last = int(self._starts[-1] + self._last_row - self._first[-2])

    @cached_property
    def _tail(self) -> StepRows:
        """The rows after those of the table; row r represents the frequency r + ahead."""
        row = expand(self._table, np.array([self._end]))
        before = RaggedRows(self._end, row.starts, row.left, row.right, row.high, row.low, row.reported)
        steps, spread = Steps(*self._promise), self.spread
        return StepRows(steps, self.resolution, spread, self.scheme, before=before, ahead=self._ahead, settle=spread)

    def block(self, first: int, count: int) -> Block:
        rows = list(self.single_rows(np.arange(first, first + count)))
        edges = np.unique(np.concatenate([row.edges for row in rows]))
        high, low = np.zeros((2, count, len(edges) - 1), np.uint64)
        for k, row in enumerate(rows):
            cell = np.searchsorted(row.edges, edges[:-1], side="right") - 1
            inside = (cell >= 0) & (cell < len(row.edges) - 1)
            high[k, inside], low[k, inside] = row.high[0, cell[inside]], row.low[0, cell[inside]]
        return Block(edges, high, low)

    def single_rows(self, frequencies: Ints) -> Iterator[Block]:
        for i, row in zip(frequencies.tolist(), self._rows_of(frequencies).tolist(), strict=True):
            cells = expand(self._table, np.array([row])) if row <= self._end else next(self._tail.ragged(row, row))
            if len(cells.left):
                edges = np.append(cells.left, cells.right[-1]) + 1 + (i - row) * self.resolution
                yield Block(edges, cells.high[None], cells.low[None])
            else:
                yield Block(np.array([1, 2]), *np.zeros((2, 1, 1), np.uint64))

    def cell_edges(self, low: int, high: int) -> Ints:
        """Return edges between which every row is even: whole units, and the places c and b of the rows in reach."""
        frequencies = np.arange(max(1, low - self.spread), high + self.spread + 1)
        rows, parts, table = self._rows_of(frequencies), self.resolution, self._table
        on = rows <= self._end
        shift = (frequencies - rows)[on] * parts
        pieces = [
            np.arange(low, high + 1) * parts,
            *(place[rows[on]] + shift for place in (table.c, table.b)),
        ]
        if not on.all():
            tail = self._tail.ragged(*(frequencies[~on][[0, -1]] - self._ahead).tolist())
            pieces += [np.append(cells.left, cells.right) + self._ahead * parts for cells in tail]
        edges = np.unique(np.concatenate(pieces))
        return edges[(edges >= low * parts) & (edges <= high * parts)]

    def likeliest(self, tokens: Ints) -> tuple[Ints, Floats]:
        frequencies, chance = likeliest_on_ladder(self._table, tokens)
        reached = tokens > (self._ahead + self._end - self.spread) * self.resolution
        if self._last_row > self._end and reached.any():
            tail_frequencies, best = self._tail.likeliest(tokens[reached] - self._ahead * self.resolution)
            better = best > chance[reached]
            frequencies[reached] = np.where(better, tail_frequencies + self._ahead, frequencies[reached])
            chance[reached] = np.maximum(best, chance[reached])
        return frequencies, chance

    def interval(self, tokens: Ints, level: float) -> tuple[Ints, Ints]:
        """Return the confidence interval of each token, from the windows of the rows that can have it."""
        if not len(tokens):
            return tokens, tokens
        tokens, place = np.unique(tokens, return_inverse=True)
        own, table = -(-tokens // self.resolution), self._table
        vanishes = first_past(table, table.b, tokens)  # no row has the token from there on
        reach = np.where(vanishes < table.stop, np.maximum(vanishes, own), own + self.spread)
        first, last = self._rows_of(own), np.maximum.accumulate(self._rows_of(reach))
        cuts = np.flatnonzero(first[1:] > last[:-1] + 1) + 1
        ends = zip(first[np.append(0, cuts)], last[np.append(cuts - 1, len(last) - 1)], strict=True)
        nearest, farthest = self._windows_of(np.concatenate([np.arange(a, b + 1) for a, b in ends]), level)
        low, high = np.empty((2, len(tokens)), np.int64)
        stairs, parts = (self._starts, self._first), self.resolution
        blocks.interval_ends(tokens, reach, *stairs, nearest, farthest, parts, low, high)
        return low[place], high[place]

    def windows(self, first: int, last: int, level: float) -> Windows:
        rows = self._rows_of(np.arange(first, last + 1))
        nearest, farthest = self._windows_of(np.unique(rows), level)
        return Windows(self.resolution, nearest[rows], farthest[rows], first, settled=last == self.last)

    def find_tokens(self, frequencies: Ints, high: Words, low: Words) -> Ints:
        """Return the tokens on which the numbers fall; frequencies do not decrease."""
        tokens, rows = np.zeros(len(frequencies), np.int64), self._rows_of(frequencies)
        split = int(np.searchsorted(rows, self._end, side="right"))
        candidates = np.flatnonzero(high[:split] <= self._sums[rows[:split], 0])
        distinct, place = np.unique(rows[candidates], return_inverse=True)
        for start in range(0, len(distinct), _ROWS):
            part = slice(*np.searchsorted(place, [start, start + _ROWS]))
            cells, drawn = expand(self._table, distinct[start : start + _ROWS]), np.zeros_like(candidates[part])
            blocks.draw(
                cells.starts, cells.left, cells.right, cells.high, cells.low, cells.reported,
                place[part] - start, high[candidates[part]], low[candidates[part]], drawn,
            )  # fmt: skip
            tokens[candidates[part]] = drawn
        if split < len(rows):
            tokens[split:] = self._tail.find_tokens(rows[split:], high[split:], low[split:])
        return tokens + np.where(tokens > 0, (frequencies - rows) * self.resolution, 0)

    def certify(self, guarantee: Guarantee) -> Certificate:
        """Return the certificate of both kernels, or raise NotCertified."""
        promise = guarantee.epsilon, guarantee.delta
        worst = max(self._examined(*promise)[0], self._after(*promise))
        return formula(guarantee, worst, "kernel", f"{self._last_row:,} rows, for every frequency")

    def delta(self, epsilon: float, neighbours: Neighbours) -> float:
        """Return the largest divergence of adjacent rows; in floats, rounded up, below the epsilon of the promise."""
        if neighbours == "replace":
            return super().delta(epsilon, neighbours)
        worst = self._examined(*self._promise)[0]
        if epsilon < self._promise[0]:
            worst = self._stairs.divergence(epsilon, self._reported) + _ROUNDING
        return max(worst, self._after(epsilon, nextafter(1, 0)))

    def _after(self, epsilon: float, delta: float) -> float:
        """Return the largest divergence of the tail, and of its first row from the last one before."""
        if self._last_row == self._end:
            return 0.0
        row = expand(self._table, np.array([self._end]))
        before = Block(np.append(row.left, row.right[-1]) + 1, row.high[None], row.low[None])
        pieces = range(self._end + 1, self._last_row + 1, self._tail.piece)
        tail = (self._tail.block(r, min(self._tail.piece, self._last_row + 1 - r)) for r in pieces)
        verdict = examine(tail, epsilon, delta, self.resolution, before=before)
        if not verdict.accepted:
            raise NotCertified(f"after row {self._end}: {verdict.reason}")
        return verdict.worst

    @property
    def _sums(self) -> Words:
        """The reported mass of each row of the table, rounded up a little, as (high, low) words."""
        return self._examined(*self._promise)[1]

    @cached_property
    def _reported(self) -> Floats:
        """The reported mass of each row of the table as probabilities."""
        return fraction(*self._sums.T)

    @cached_property
    def _examined(self) -> Callable[[float, float], tuple[float, Words]]:
        return lru_cache(maxsize=2)(self._stairs.examine)

    def _rows_of(self, frequencies: Ints) -> Ints:
        return rows_for(frequencies, self._starts, self._first)

    def _totals(self, frequencies: Ints) -> tuple[Words, Words]:
        rows = self._rows_of(frequencies)
        high, low = self._sums[np.minimum(rows, self._end)].T.copy()
        later = rows > self._end
        if later.any():
            high[later], low[later] = self._tail._totals(rows[later])
        return high, low

    def _windows_of(self, rows: Ints, level: float) -> tuple[Ints, Ints]:
        """Return the windows of all rows as lags; those of the given rows are computed and cached."""
        nearest, farthest = self._cached_windows(level)
        new = rows[nearest[rows] == _UNKNOWN]
        inside, after = new[new <= self._end], new[new > self._end]
        table, heavier, room = self._table, min(1.0, level * (1 + SAFE)), 4 * self.spread + 64
        fill_windows(
            table.c, table.b, table.parts, table.floats, table.birth, self._reported, inside, heavier, room,
            nearest, farthest,
        )  # fmt: skip
        if len(after):
            tail = self._tail.windows(self._end + 1, self._last_row, level)
            nearest[self._end + 1 :], farthest[self._end + 1 :] = tail.nearest, tail.farthest
        return nearest, farthest

    @cached_property
    def _cached_windows(self) -> Callable[[float], tuple[Ints, Ints]]:
        unknown = np.full(self._last_row + 1, _UNKNOWN)
        return lru_cache(maxsize=4)(lambda level: (unknown.copy(), unknown.copy()))
