"""Channels with a sampling scheme: every row is made from the one before (see `recurrence`), in blocks, as needed.

From the frequency on at which the scheme is constant, the rows settle: after a while each is the one before moved up by
one unit, and from there the last row stands for all. The kernel checks this with the rest. Rows are never all held:
states are kept at the start of each block, and a block is made again when it is needed.
"""

import math
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.channels.channel import Channel, Tokens, checked_frequencies
from dpsieve.channels.grid import ONE, Steps, Words, floor_words, fraction
from dpsieve.channels.lag.windows import LagWindows
from dpsieve.channels.row import Row
from dpsieve.channels.stepwise import blocks
from dpsieve.channels.stepwise.recurrence import Block, State, advance
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.privacy import Certificate, Guarantee, Rows, certify
from dpsieve.privacy.kernel import examine
from dpsieve.randomness.source import Source
from dpsieve.sampling.schemes import Scheme

MOST_ROWS = 1 << 20
_STACK = 64


class SteppedChannel(Channel):
    """A channel that reports a key of frequency i with probability at most q_i, made row by row."""

    scheme: Scheme

    def __init__(self, name: str, guarantee: Guarantee, resolution: int, reach: int, scheme: Scheme) -> None:
        self.name, self.guarantee, self.resolution, self.scheme = name, guarantee, resolution, scheme
        self._reach = reach
        self._constant = _constant_from(scheme)
        self.last_row = self._constant + 2 * reach
        capacity = 4 * reach + 64
        self._rows = max(1, min(256, (1 << 20) // capacity))
        self._states = {0: State.start(Steps(guarantee.epsilon, guarantee.delta), resolution, capacity)}
        self._frozen: dict[int, Words] = {}
        self._known = np.empty((0, 2), np.uint64)
        self._windows: dict[float, LagWindows] = {}

    @property
    def reach(self) -> int:
        """Units: a row i has all its reported tokens in (i - reach, i + reach]."""
        return self._reach

    def reporting_probability(self, frequencies: ArrayLike) -> NDArray[np.float64]:
        """Return, for each true frequency, the probability that its key is reported."""
        rows = np.minimum(checked_frequencies(frequencies), self.last_row)
        reported = self._reported(int(rows.max(initial=1)))
        return fraction(reported[rows - 1, 0], reported[rows - 1, 1])

    def row(self, frequency: int) -> Row:
        """Return the row of one true frequency; see `Row`."""
        i = validate.whole("frequency", frequency, high=10**12, hint="Pass a true frequency, such as row(20).")
        if i == 0:
            return Row(1.0, np.empty(0), np.empty(0), np.empty(0))
        block = next(self._blocks(i, i))
        left, right = block.left / self.resolution, block.right / self.resolution
        mass = fraction(block.high, block.low) * (block.right - block.left)
        silent = (ONE - (int(block.reported[0, 0]) << 64 | int(block.reported[0, 1]))) / ONE
        if self.resolution > 1 or not len(left):
            return Row(silent, left, right, mass)
        tokens = np.concatenate([np.arange(a + 1, b + 1) for a, b in zip(block.left, block.right, strict=True)])
        single = np.repeat(fraction(block.high, block.low), block.right - block.left)
        return Row(silent, tokens.astype(float), tokens.astype(float), single)

    def delta(self, epsilon: float, neighbours: str = "add_remove") -> float:
        """Return the least delta for which this channel is (epsilon, delta)-private, from the integers it draws from.

        Only for 'add_remove'; for replacement use `guarantee.for_replacement()`, which holds for every channel.
        """
        if validate.neighbours(neighbours) == "replace":
            hint = "Use channel.guarantee.for_replacement(), or a channel without a scheme."
            raise InvalidValue(f"neighbours='replace' has no exact curve for a channel with a scheme. {hint}")
        return examine(self._stacks(), validate.epsilon(epsilon), math.nextafter(1, 0), self.resolution).worst

    def certify(self) -> Certificate:
        """Return the certificate for the promised (epsilon, delta), for every frequency."""
        return self._certificate

    @cached_property
    def _certificate(self) -> Certificate:
        promise = self.guarantee
        return certify(self._stacks(), epsilon=promise.epsilon, delta=promise.delta, shift=self.resolution)

    def breaks(self, low: int, high: int) -> Tokens:
        """Return token edges between which every row is even; see `Channel.breaks`."""
        ends = np.array([low, high]) * self.resolution
        found = [ends]
        for block in self._blocks(low + 1, high + self.reach):
            inside = (block.left > ends[0]) & (block.left < ends[1])
            found.append(np.unique(block.left[inside]))
        return np.unique(np.concatenate(found))

    def masses(self, frequencies: ArrayLike, edges: Tokens) -> NDArray[np.float64]:
        """Return the probability of each cell between edges under each frequency; see `Channel.masses`."""
        wanted = checked_frequencies(frequencies)
        values, place = np.unique(wanted, return_inverse=True)
        out = np.zeros((len(values), len(edges) - 1))
        for k, row in enumerate(self._single_rows(values)):
            if len(row.left):
                cell = np.searchsorted(row.right, edges[1:], side="left")
                inside = (cell < len(row.right)) & (edges[1:] > row.left[0])
                density = np.append(fraction(row.high, row.low), 0.0)
                out[k] = np.where(inside, density[np.where(inside, cell, -1)], 0.0) * np.diff(edges)
        return out[place]

    def _single_rows(self, frequencies: Tokens) -> Iterator[Block]:
        """Yield the row of each of the increasing frequencies; a block is made once for all its rows."""
        at, block = -1, None
        for i in frequencies.tolist():
            row = min(i, self.last_row)
            index = (row - 1) // self._rows
            if block is None or index != at:
                at, block = index, self._block(index)
            single = _part(block, row - block.first, row - block.first + 1)
            yield single if i == row else _moved(single, i, 1, self.resolution)

    def _blocks(self, first: int, last: int) -> Iterator[Block]:
        """Yield the rows from first to last, in blocks, those beyond the last one made being that one moved up."""
        row = first
        while row <= min(last, self.last_row):
            index, offset = divmod(row - 1, self._rows)
            block = self._block(index)
            take = min(last, self.last_row, (index + 1) * self._rows) - row + 1
            yield _part(block, offset, offset + take)
            row += take
        if row <= last:
            tail = _last(self._block((self.last_row - 1) // self._rows), self.last_row)
            while row <= last:
                take = min(last - row + 1, self._rows)
                yield _moved(tail, row, take, self.resolution)
                row += take

    def _block(self, index: int) -> Block:
        """Make one block of rows, and the states before it that were not made yet."""
        while True:
            at = min(index, len(self._states) - 1)
            state = self._states[at].resumed()
            block = advance(state, self._limits(at))
            self._check_reach(block)
            if at + 1 not in self._states:
                self._states[at + 1] = state.trimmed()
            if at == index:
                return block

    def _check_reach(self, block: Block) -> None:
        """Refuse a row that spreads further than `reach`, which others rely on."""
        some = np.flatnonzero(np.diff(block.starts))
        lowest = block.left[block.starts[some]]
        if ((block.first + some) * self.resolution - lowest > self._reach * self.resolution).any():
            raise NotCertified("a row spreads over more units than any scheme should cause. Use another scheme.")

    def _limits(self, index: int) -> Words:
        """Return q on the grid for the rows of a block, rounded down; beyond the constant part, its last value.

        Each is asked for once and kept, so that what is drawn from is what was certified whatever the scheme answers.
        """
        if index not in self._frozen:
            first = index * self._rows + 1
            last = min(first + self._rows - 1, self.last_row)
            q = self.scheme.inclusion_range(min(first, self._constant), max(1, min(last, self._constant)))
            q = np.append(q, np.full(last - first + 1 - len(q), q[-1]))
            self._frozen[index] = np.column_stack(floor_words(q))
        return self._frozen[index]

    def _reported(self, last: int) -> Words:
        """Return the reported mass (high, low) of the rows 1 to at least `last`."""
        known = self._known
        if len(known) < last:
            known = np.concatenate([known, *(block.reported for block in self._blocks(len(known) + 1, last))])
            self._known = known
        return known

    def _stacks(self) -> Iterator[Rows]:
        """Yield all rows for the kernel; tokens t of a cell (left, right] are the integers left + 1 to right."""
        for block in self._blocks(1, self.last_row):
            for first in range(0, len(block), _STACK):
                last = min(first + _STACK, len(block))
                edges = blocks.common_edges(block.starts, block.left, block.right, first, last)
                if len(edges) < 2:
                    empty = np.zeros((last - first, 1), np.uint64)
                    yield Rows(np.array([1, 2]), empty, empty)
                    continue
                masses = blocks.lay_over(
                    block.starts, block.left, block.right, block.high, block.low, first, last, edges
                )
                yield Rows(edges + 1, *masses)

    def _draw(self, frequencies: Tokens, source: Source, already_sampled: bool) -> Tokens:
        tokens = np.zeros(len(frequencies), np.int64)
        order = np.argsort(frequencies, kind="stable")
        rows = np.minimum(frequencies[order], self.last_row)
        high, low = self._uniform(frequencies[order], source, already_sampled)
        start = 0
        while start < len(rows):
            index = (int(rows[start]) - 1) // self._rows
            stop = int(np.searchsorted(rows, (index + 1) * self._rows, side="right"))
            block = self._block(index)
            part = tokens[start:stop]
            blocks.draw(
                block.starts, block.left, block.right, block.high, block.low, block.reported,
                rows[start:stop] - block.first, high[start:stop], low[start:stop], part,
            )  # fmt: skip
            start = stop
        tokens += np.where(tokens > 0, (frequencies[order] - rows) * self.resolution, 0)
        out = np.empty_like(tokens)
        out[order] = tokens
        return out

    def _uniform(self, frequencies: Tokens, source: Source, already_sampled: bool) -> tuple[Words, Words]:
        """Return numbers uniform on [0, 2^128), or below q_i 2^128 for keys that were sampled with probability q_i.

        Here q_i is that of the true frequency, also where rows beyond the last one made share its reporting
        probability pi: then q_i P[reported | sampled] = pi, as it must be. A key with q_i below 2^-128 stays silent.
        """
        high, low = source.words(len(frequencies)), source.words(len(frequencies))
        if not already_sampled:
            return high, low
        limit_high, limit_low = floor_words(self.scheme.inclusion(frequencies))
        never = (limit_high | limit_low) == 0
        high[never] = low[never] = ~np.uint64(0)
        again = np.flatnonzero(~never)
        while len(again):
            top, bottom = limit_high[again], limit_low[again]
            mask = _ones_below(top)
            high[again] = source.words(len(again)) & mask
            low[again] = source.words(len(again)) & np.where(top > 0, ~np.uint64(0), _ones_below(bottom))
            fits = (high[again] < top) | ((high[again] == top) & (low[again] < bottom))
            again = again[~fits]
        return high, low

    def _likeliest(self, tokens: Tokens) -> Tokens:
        units = np.maximum(0, (tokens - self.last_row * self.resolution - 1) // self.resolution)
        near, place = np.unique(tokens - units * self.resolution, return_inverse=True)
        best, frequency = np.zeros(len(near)), np.ones(len(near), np.int64)
        if len(near):
            first = max(1, int(near[0]) // self.resolution - self.reach)
            for block in self._blocks(first, int(near[-1]) // self.resolution + self.reach + 1):
                density = fraction(block.high, block.low)
                blocks.likeliest(block.starts, block.left, block.right, density, block.first, near, best, frequency)
        return frequency[place] + units

    def _interval(self, tokens: Tokens, level: float) -> tuple[Tokens, Tokens]:
        if level not in self._windows:
            nearest, farthest = np.zeros((2, self.last_row), np.int64)
            for block in self._blocks(1, self.last_row):
                part = slice(block.first - 1, block.first - 1 + len(block))
                density = fraction(block.high, block.low)
                asked = min(1.0, level * (1 + 1e-11))
                blocks.windows(
                    block.starts, block.left, block.right, density, block.first, self.resolution, asked,
                    nearest[part], farthest[part],
                )  # fmt: skip
            self._windows[level] = LagWindows(self.resolution, nearest, farthest)
        return self._windows[level].interval(tokens)


def _constant_from(scheme: Scheme) -> int:
    """Return the frequency from which on the rows may take q as constant: where it is, or MOST_ROWS.

    A function does not say where it becomes constant; as it never decreases, it is from where it has its last value on.
    """
    settled = scheme.constant_from()
    if settled is not None:
        return max(1, min(settled, MOST_ROWS))
    low, high, last = 0, MOST_ROWS, scheme.inclusion(MOST_ROWS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if scheme.inclusion(middle) == last else (middle, high)
    return high


def _ones_below(limit: Words) -> Words:
    """Return 2^b - 1 for each word, with b its length in bits."""
    mask = limit.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        mask |= mask >> np.uint64(shift)
    return mask


def _part(block: Block, first: int, last: int) -> Block:
    starts = block.starts[first : last + 1]
    a, b = starts[0], starts[-1]
    return Block(
        block.first + first, starts - a, block.left[a:b], block.right[a:b], block.high[a:b], block.low[a:b],
        block.reported[first:last],
    )  # fmt: skip


def _last(block: Block, row: int) -> Block:
    return _part(block, row - block.first, row - block.first + 1)


def _moved(row: Block, first: int, count: int, resolution: int) -> Block:
    """Return `count` rows from `first` on, each being `row` moved up to its frequency."""
    cells = len(row.left)
    moves = np.repeat((first - row.first + np.arange(count)) * resolution, cells)
    high, low, reported = np.tile(row.high, count), np.tile(row.low, count), np.tile(row.reported, (count, 1))
    left, right = np.tile(row.left, count) + moves, np.tile(row.right, count) + moves
    return Block(first, np.arange(count + 1) * cells, left, right, high, low, reported)
