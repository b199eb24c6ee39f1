"""Rows with a sampling scheme, each computed from the previous one (see `advance`), in blocks, as needed.

Once the scheme is constant, the rows settle: eventually each is the previous one shifted up by one unit, and the last
row represents all later ones. The kernel checks this, too. Rows are never all in memory: the row before each block is
stored, and a block is recomputed when needed.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpsieve.channels import stepwise_loops as blocks
from dpsieve.channels.law import LARGEST_FREQUENCY, Windows
from dpsieve.channels.rows import FACTOR_BITS, SAFE, Rows, Steps
from dpsieve.channels.stepwise_loops import advance
from dpsieve.errors import NotCertified
from dpsieve.exact import floor_words, fraction
from dpsieve.exact.balls import first_whole
from dpsieve.privacy.kernel import Block
from dpsieve.randomness.coins import uniform_below
from dpsieve.randomness.source import Source
from dpsieve.sampling.schemes import Scheme
from dpsieve.types import Floats, Ints, Words

MOST_ROWS = 1 << 20


@dataclass(frozen=True)
class RaggedRows:
    """Consecutive rows, each with its own cells.

    Row first + r has the cells starts[r]:starts[r+1], and cell t has the tokens left[t] + 1 to right[t].
    """

    first: int
    starts: Ints
    left: Ints
    right: Ints
    high: Words
    low: Words
    reported: Words  # (rows, 2)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def part(self, first: int, last: int) -> "RaggedRows":
        """Return the rows of the frequencies first to last."""
        a, b = first - self.first, last - self.first + 1
        starts = self.starts[a : b + 1]
        cells = slice(starts[0], starts[-1])
        left, right, high, low = self.left[cells], self.right[cells], self.high[cells], self.low[cells]
        return RaggedRows(first, starts - starts[0], left, right, high, low, self.reported[a:b])

    def shift(self, first: int, count: int, resolution: int) -> "RaggedRows":
        """Return `count` rows from `first` on, each a copy of this single row shifted to its frequency."""
        cells = len(self.left)
        shift = np.repeat((first - self.first + np.arange(count)) * resolution, cells)
        high, low, reported = np.tile(self.high, count), np.tile(self.low, count), np.tile(self.reported, (count, 1))
        left, right = np.tile(self.left, count) + shift, np.tile(self.right, count) + shift
        return RaggedRows(first, np.arange(count + 1) * cells, left, right, high, low, reported)


class SampledRows(Rows):
    """Rows that report a key of frequency i with probability at most q_i of a scheme.

    `loss` ignores one token of a new unit, delta / resolution.
    """

    scheme: Scheme

    def draw(self, frequencies: Ints, source: Source, *, already_sampled: bool = False) -> Ints:
        """Return the token of each frequency on which a uniform number U in [0, 2^128) falls.

        A key that was already sampled with probability q_i has U < q_i 2^128, where q_i is that of the true frequency,
        also where rows share a reporting probability pi below it: then q_i P[reported | sampled] = pi, as required. A
        key with q_i below 2^-128 is never reported.
        """
        order = np.argsort(frequencies, kind="stable")
        high, low = source.words(len(order)), source.words(len(order))
        if already_sampled:
            limit_high, limit_low = floor_words(self.scheme.inclusion(frequencies[order]))
            possible = (limit_high | limit_low) > 0
            high[~possible] = low[~possible] = ~np.uint64(0)
            high[possible], low[possible] = uniform_below(limit_high[possible], limit_low[possible], source)
        tokens = np.empty(len(order), np.int64)
        tokens[order] = self.find_tokens(frequencies[order], high, low)
        return tokens

    @abstractmethod
    def find_tokens(self, frequencies: Ints, high: Words, low: Words) -> Ints:
        """Return the tokens on which the numbers fall, 0 for none; frequencies are sorted."""


class StepRows(SampledRows):
    """Rows that report a key of frequency i with probability at most q_i, up to `spread` units below i.

    They start with row 1, or after a given row: then row i has the limit of the frequency i + ahead, and `settle` rows
    are computed after the scheme has become constant.
    """

    last: int

    def __init__(
        self,
        steps: Steps,
        resolution: int,
        spread: int,
        scheme: Scheme,
        *,
        before: RaggedRows | None = None,
        ahead: int = 0,
        settle: int | None = None,
    ) -> None:
        self.resolution, self.spread, self.scheme = resolution, spread, scheme
        self._base, self._ahead = (0, 0) if before is None else (before.first, ahead)
        self._constant = max(
            constant_from(scheme, LARGEST_FREQUENCY if ahead else MOST_ROWS) - self._ahead, self._base + 1
        )
        constant_q, largest_q = scheme.inclusion(
            [min(self._constant + self._ahead, LARGEST_FREQUENCY), LARGEST_FREQUENCY]
        ).tolist()
        self.loss = 1 - constant_q / largest_q if constant_q < largest_q else 0.0
        self.last = self._constant + (2 * spread if settle is None else settle)
        self.table_rows = self.last - self._base
        self._capacity = 4 * spread + 64  # cells of a row
        self._height = 1 << max(0, min(8, ((1 << 20) // self._capacity).bit_length() - 1))  # rows of a block
        self.piece = min(64, self._height)
        bits = steps.factor.bit_length() - 64
        mantissa, shift = steps.factor >> bits, FACTOR_BITS - bits
        inverse = -((-1 << 64 + FACTOR_BITS) // steps.factor) + 1
        delta = steps.delta >> 64, steps.delta & (2**64 - 1)
        self._parameters = np.array([mantissa, shift, inverse, *delta, resolution], dtype=np.uint64)
        place, mass, reported = np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros((1, 2), np.uint64)
        nothing = RaggedRows(0, np.zeros(2, np.int64), place, place, mass, mass, reported)
        self._before = [nothing if before is None else before]  # row 0 is 'nothing'
        self._cached_limits: dict[int, Words] = {}
        self._cached_totals = np.empty((0, 2), np.uint64)
        self._latest_block: tuple[int, RaggedRows] | None = None

    def block(self, first: int, count: int) -> Block:
        """Return consecutive rows over shared cells; tokens of a cell (left, right] are left + 1 to right."""
        rows = next(self.ragged(first, first + count - 1))
        edges = blocks.common_edges(rows.starts, rows.left, rows.right)
        if not len(edges):
            return Block(np.array([1, 2]), *np.zeros((2, count, 1), np.uint64))
        return Block(edges + 1, *blocks.lay_over(rows.starts, rows.left, rows.right, rows.high, rows.low, edges))

    def likeliest(self, tokens: Ints) -> tuple[Ints, Floats]:
        shift = np.maximum(0, (tokens - self.last * self.resolution - 1) // self.resolution)
        values, place = np.unique(tokens - shift * self.resolution, return_inverse=True)
        best, frequency = np.zeros(len(values)), np.ones(len(values), np.int64)
        if len(values):
            first = max(self._base + 1, int(values[0]) // self.resolution - self.spread)
            for rows in self.ragged(first, int(values[-1]) // self.resolution + self.spread + 1):
                density = fraction(rows.high, rows.low)
                blocks.likeliest(rows.starts, rows.left, rows.right, density, rows.first, values, best, frequency)
        return frequency[place] + shift, best[place]

    def windows(self, first: int, last: int, level: float) -> Windows:
        nearest, farthest = np.zeros((2, last - first + 1), np.int64)
        for rows in self.ragged(first, last):
            part = slice(rows.first - first, rows.first - first + len(rows))
            density, heavier = fraction(rows.high, rows.low), min(1.0, level * (1 + SAFE))
            blocks.windows(
                rows.starts, rows.left, rows.right, density, rows.first, self.resolution, heavier,
                nearest[part], farthest[part],
            )  # fmt: skip
        return Windows(self.resolution, nearest, farthest, first, settled=last == self.last)

    def find_tokens(self, frequencies: Ints, high: Words, low: Words) -> Ints:
        """Return the tokens on which the numbers fall, block by block; frequencies are sorted."""
        tokens = np.zeros(len(frequencies), np.int64)
        rows = np.minimum(frequencies, self.last)
        start = 0
        while start < len(rows):
            index = self._block_of(int(rows[start]))
            stop = int(np.searchsorted(rows, self._base + (index + 1) * self._height, side="right"))
            block = self._rows_of_block(index)
            blocks.draw(
                block.starts, block.left, block.right, block.high, block.low, block.reported,
                rows[start:stop] - block.first, high[start:stop], low[start:stop], tokens[start:stop],
            )  # fmt: skip
            start = stop
        return tokens + np.where(tokens > 0, (frequencies - rows) * self.resolution, 0)

    def ragged(self, first: int, last: int) -> Iterator[RaggedRows]:
        """Yield the rows from first to last, in blocks; rows beyond `last` are that row shifted up."""
        row = first
        while row <= min(last, self.last):
            index = self._block_of(row)
            stop = min(last, self.last, self._base + (index + 1) * self._height)
            yield self._rows_of_block(index).part(row, stop)
            row = stop + 1
        if row <= last:
            tail = self._rows_of_block(self._block_of(self.last)).part(self.last, self.last)
            for start in range(row, last + 1, self._height):
                yield tail.shift(start, min(last - start + 1, self._height), self.resolution)

    def _rows_of_block(self, index: int) -> RaggedRows:
        """Return one block of rows; blocks before it are computed first, once."""
        latest = self._latest_block
        if latest is not None and latest[0] == index:
            return latest[1]
        while True:
            at = min(index, len(self._before) - 1)
            rows = self._advance(self._before[at], self._limits(at))
            self._check_spread(rows)
            if at + 1 == len(self._before):
                last = rows.first + len(rows) - 1
                end = rows.part(last, last).shift(last, 1, self.resolution)  # a copy, not a view
                self._before[at + 1 : at + 2] = [end]  # no append: another thread may have stored the same row
            if at == index:
                self._latest_block = index, rows
                return rows

    def _advance(self, before: RaggedRows, limits: Words) -> RaggedRows:
        """Return the rows after a single row, one per (high, low) limit q_i on the reported mass."""
        cells, room = len(before.left), len(limits) * self._capacity
        edges, state = np.zeros(self._capacity + 1, np.int64), np.zeros((2, self._capacity), np.uint64)
        edges[: cells + 1] = np.append(before.left, before.right[-1:]) if cells else 0
        state[:, :cells] = before.high, before.low
        starts, reported = np.zeros(len(limits) + 1, np.int64), np.zeros((len(limits), 2), np.uint64)
        (left, right), (high, low) = np.empty((2, room), np.int64), np.empty((2, room), np.uint64)
        done = advance(
            self._parameters, edges, *state, np.array([before.first, cells]), before.reported[0].copy(), limits,
            starts, left, right, high, low, reported,
        )  # fmt: skip
        if not done:
            raise MemoryError("a row has more cells than were allocated")
        end = starts[-1]
        return RaggedRows(before.first + 1, starts, left[:end], right[:end], high[:end], low[:end], reported)

    def _check_spread(self, rows: RaggedRows) -> None:
        """Raise NotCertified if a row spreads further than `spread`."""
        filled = np.flatnonzero(np.diff(rows.starts))
        lowest = rows.left[rows.starts[filled]]
        if ((rows.first + filled) * self.resolution - lowest > self.spread * self.resolution).any():
            raise NotCertified("a row spreads over more units than any scheme should cause. Use another scheme.")

    def _limits(self, index: int) -> Words:
        """Return q on the grid for the rows of a block, rounded down; constant from `_constant` on.

        Each value is evaluated once, so the rows that are drawn from are those that were certified.
        """
        if index not in self._cached_limits:
            first = self._base + index * self._height + 1
            last = min(first + self._height - 1, self.last)
            ends = min(first, self._constant) + self._ahead, min(last, self._constant) + self._ahead
            q = self.scheme.inclusion_range(*ends)
            q = np.append(q, np.full(last - first + 1 - len(q), q[-1]))
            self._cached_limits[index] = np.column_stack(floor_words(q))
        return self._cached_limits[index]

    def _totals(self, frequencies: Ints) -> tuple[Words, Words]:
        rows = np.minimum(frequencies, self.last) - self._base
        known, last = self._cached_totals, int(rows.max(initial=1))
        if len(known) < last:
            more = self.ragged(self._base + len(known) + 1, self._base + last)
            known = np.concatenate([known, *(rows.reported for rows in more)])
            self._cached_totals = known
        return known[rows - 1, 0], known[rows - 1, 1]

    def _block_of(self, row: int) -> int:
        """Return the block of a row."""
        return (row - self._base - 1) // self._height


def constant_from(scheme: Scheme, limit: int = MOST_ROWS) -> int:
    """Return the frequency from which rows take q as constant: where it becomes so, but at most `limit`.

    A function does not state where it becomes constant; as it never decreases, that is where it reaches its last value.
    """
    settled = scheme.constant_from()
    if settled is not None:
        return max(1, min(settled, limit))
    last = scheme.inclusion(limit)
    return first_whole(lambda frequency: bool(scheme.inclusion(frequency) == last), 1, limit)
