"""The rows of a channel: integers on the 2^-128 grid, and everything derived from them.

Masses are those of tokens; 'nothing' has the remainder to one. See `channels.law` for frequencies and tokens.

Every table is made from slightly tightened parameters: the step between rows is e^epsilon lowered by 2^-46, and delta
is lowered by 2^-36, both relative. That moves a reporting probability by less than 1e-9 and leaves the kernel room to
clear a pair of rows in floating point.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import nextafter

import numpy as np

from dpsieve.channels.law import Row, WindowedLaw, Windows, runs
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.exact.words import below, fraction, join_words, split_words
from dpsieve.privacy import Block, Certificate, Guarantee, certify
from dpsieve.privacy.kernel import GRID, GUARD, examine, exp_floor
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints, Words
from dpsieve.validate import Neighbours

ONE = 1 << GRID
FACTOR_BITS = GUARD
_NEAR = 2.0**-16  # a proposed place is right to 2^-18, as there are at most 2^31 of them in a cell
SAFE = 1e-11  # windows are made this much heavier than needed, relatively, which covers all rounding
_EDGES = 2048


class Steps:
    """The tightened parameters of a table: multiply by e^epsilon rounding down, divide by it rounding up."""

    def __init__(self, epsilon: float, delta: float) -> None:
        self.factor = exp_floor(epsilon) * (2**46 - 1) >> 46
        self.delta = int(Fraction(delta) * (1 - Fraction(1, 2**36)) * ONE)

    def grow(self, mass: int) -> int:
        """Return at most e^epsilon times the mass."""
        return mass * self.factor >> FACTOR_BITS

    def shrink(self, mass: int) -> int:
        """Return at least e^-epsilon times the mass."""
        return -((-mass << FACTOR_BITS) // self.factor)


@dataclass(frozen=True)
class Inverse:
    """The inverse of a cumulative distribution over cells of integer places.

    A uniform number in [0, 2^128) is two words. Cell t has the numbers from start[t] on, `mass[t]` for each of its
    places. Every comparison is exact; floating point only proposes a place, and a proposal near the border of two
    places is settled with integers.
    """

    edges: Ints
    ends: tuple[Words, Words]  # the cumulative mass up to the end of each cell
    starts: tuple[Words, Words]
    masses: tuple[Words, Words]

    @classmethod
    def of(cls, edges: Sequence[int], masses: Sequence[int]) -> "Inverse":
        """Lay the cells out one after the other; their masses must sum to less than 2^128."""
        sums = [0]
        for left, right, mass in zip(edges, edges[1:], masses, strict=False):
            sums.append(sums[-1] + (right - left) * mass)
        return cls(np.array(edges), split_words(sums[1:]), split_words(sums[:-1]), split_words(masses))

    def places(self, high: Words, low: Words) -> Ints:
        """Return the place on which each number high * 2^64 + low falls; all must be below the total mass."""
        cell = np.searchsorted(self.ends[0], high, side="left")
        while len(tied := np.flatnonzero((self.ends[0][cell] == high) & (self.ends[1][cell] <= low))):
            cell[tied] += 1
        start_high, start_low = self.starts[0][cell], self.starts[1][cell]
        rest_low = low - start_low
        rest_high = high - start_high - (low < start_low)
        mass_high, mass_low = self.masses[0][cell], self.masses[1][cell]
        offset = (rest_high * 2.0**64 + rest_low) / (mass_high * 2.0**64 + mass_low)
        whole: Ints = np.floor(offset).astype(np.int64)
        for k in np.flatnonzero(np.abs(offset - np.rint(offset)) < _NEAR):
            rest, mass = (int(a[k]) << 64 | int(b[k]) for a, b in ((rest_high, rest_low), (mass_high, mass_low)))
            whole[k] = rest // mass
        return np.asarray(self.edges[cell] + whole)


@dataclass(frozen=True)
class Chain:
    """Rows whose neighbours in the list are neighbours in the data, for the kernel; see `privacy.certify`."""

    blocks: Iterable[Block]
    shift: int
    floor: int | None = None


class Rows(WindowedLaw):
    """Rows of integers in blocks over shared cells, which the kernel certifies. Everything else is derived here, once.

    A faster form of a derived method may override it; tests/common/test_rows.py compares the two. Rows with last=None
    must set `spread`.

    Attributes:
        step: by how much one unit may change the frequency of a key.
        piece: how many rows a block has, as blocks are made and kept here.
        longest: up to this `last`, divergences and windows are computed over all rows.
        table_rows: how many rows the kernel will check, where these are made one by one.
        loss: a reporting probability is at most this much below the largest possible one, relatively.
    """

    step: int = 1
    piece: int = 64
    longest: int = 1 << 22
    table_rows: int | None = None
    loss: float = 0.0

    @abstractmethod
    def block(self, first: int, count: int) -> Block:
        """Return rows first to first + count - 1 over shared cells; none is above `last`.

        Cell t has the tokens edges[t] to edges[t+1] - 1, and `high * 2^64 + low` is the mass of each of them.
        """

    @cached_property
    def spread(self) -> int:  # type: ignore[override]
        """A row i has all its tokens in (i - spread, i + spread], in units of frequency."""
        if self.last is None:
            raise InvalidValue("rows with last=None keep changing. Give them `spread`, the units that a row reaches.")
        far = 0
        for i, row in enumerate(self.single_rows(np.arange(1, self.last + 1)), 1):
            some = np.flatnonzero(row.high[0] | row.low[0])
            if len(some):
                lowest, highest = int(row.edges[some[0]]), int(row.edges[some[-1] + 1]) - 1
                far = max(far, i * self.resolution - lowest + 1, highest - i * self.resolution)
        return -(-far // self.resolution)

    def single_rows(self, frequencies: Ints) -> Iterator[Block]:
        """Yield the row of each frequency, as a block of its own."""
        for i, row in zip(frequencies.tolist(), self._settled(frequencies).tolist(), strict=True):
            piece, k = self._piece((row - 1) // self.piece), (row - 1) % self.piece
            yield Block(piece.edges + (i - row) * self.resolution, piece.high[[k]], piece.low[[k]])

    def pieces(self, first: int, last: int) -> Iterator[tuple[int, Block]]:
        """Yield blocks that hold the rows first to last, each with the frequency of its first row."""
        row, settled = first, int(self._settled(np.array([last]))[0])
        while row <= settled:
            piece, k = self._piece((row - 1) // self.piece), (row - 1) % self.piece
            stop = min(len(piece.high), k + settled - row + 1)
            yield row, Block(piece.edges, piece.high[k:stop], piece.low[k:stop])
            row += stop - k
        yield from enumerate(self.single_rows(np.arange(row, last + 1)), row)

    def row(self, frequency: int) -> Row:
        """Return one row; with a resolution of one, token by token."""
        if frequency == 0:
            return super().row(0)
        block = next(self.single_rows(np.array([frequency])))
        width, each = np.diff(block.edges), fraction(block.high[0], block.low[0])
        silent = float(self.withheld(np.array([frequency]))[0])
        if self.resolution == 1:
            tokens, mass = np.arange(block.edges[0], block.edges[-1]), np.repeat(each, width)
            right = tokens[mass > 0].astype(np.float64)
            return Row(silent, right, right.copy(), mass[mass > 0])
        some = each > 0
        left, right = ((edges[some] - 1) / self.resolution for edges in (block.edges[:-1], block.edges[1:]))
        return Row(silent, left, right, (width * each)[some])

    def reported(self, frequencies: Ints) -> Floats:
        """Return the probability of a report for each frequency."""
        return fraction(*self._totals(frequencies))

    def withheld(self, frequencies: Ints) -> Floats:
        """Return the probability of 'nothing' for each frequency, with all its digits also where it is tiny."""
        high, low = self._totals(frequencies)
        return fraction(~high, ~low) + 2.0**-128

    def cell_edges(self, low: int, high: int) -> Ints:
        """Return edges from low to high units, as tokens, between which every row spreads its mass evenly.

        They go from low * resolution to high * resolution; cell t has the tokens edges[t] + 1 to edges[t+1].
        """
        ends = np.array([low, high]) * self.resolution
        found = [ends]
        for _, block in self.pieces(max(1, low - self.spread), max(1, high + self.spread)):
            found.append(block.edges[(block.edges - 1 > ends[0]) & (block.edges - 1 < ends[1])] - 1)
        return np.unique(np.concatenate(found))

    def cell_probabilities(self, frequencies: Ints, edges: Ints) -> Floats:
        """Return the probability of each cell between `edges` (a column) under each frequency (a row).

        `edges` come from `cell_edges`; digits are kept down to the smallest probabilities.
        """
        values, place = np.unique(frequencies, return_inverse=True)
        found = np.zeros((len(values), len(edges) - 1))
        for k, row in enumerate(self.single_rows(values)):
            found[k] = mass_of(row, edges[1:])[0] * np.diff(edges)
        return found[place]

    def likeliest(self, tokens: Ints) -> tuple[Ints, Floats]:
        """Return the frequency under which each token has its largest probability, and that; zero if no row has it."""
        shift = np.zeros_like(tokens)
        if self.last is not None:
            shift = np.maximum(0, (tokens - 1) // self.resolution - self.last - self.spread)
        near, place = np.unique(tokens - shift * self.resolution, return_inverse=True)
        best, frequency = np.zeros(len(near)), np.ones(len(near), np.int64)
        for run in runs(near, 2 * self.spread * self.resolution):
            some = near[run]
            first = max(1, int(some[0]) // self.resolution - self.spread)
            for start, block in self.pieces(first, int(some[-1]) // self.resolution + self.spread + 1):
                mass = mass_of(block, some)
                row = mass.argmax(axis=0)
                most = mass[row, np.arange(len(some))]
                better = most > best[run]
                best[run] = np.where(better, most, best[run])
                frequency[run] = np.where(better, start + row, frequency[run])
        return frequency[place] + shift, best[place]

    def interval(self, tokens: Ints, level: float) -> tuple[Ints, Ints]:
        """Return the confidence interval of each token; see `Windows`."""
        if self.last is not None and self.last <= self.longest:
            return self._all_windows(level).interval(tokens)
        return super().interval(tokens, level)

    def windows(self, first: int, last: int, level: float) -> Windows:
        """Return the shortest windows of rows first to last."""
        rows = np.arange(first, last + 1)
        spans = []
        for block in self.single_rows(rows):
            mass = fraction(block.high[0], block.low[0]) * np.diff(block.edges)
            some = np.flatnonzero(mass)
            if not len(some):
                spans.append((1, 0))
                continue
            edges = block.edges[some[0] : some[-1] + 2].astype(np.float64)
            spans.append(shortest(edges, np.append(0.0, np.cumsum(mass[some[0] : some[-1] + 1])), edges[-1], level))
        lowest, highest = np.array(spans).T
        own = rows * self.resolution
        return Windows(self.resolution, own - highest, own - lowest, first, settled=last == self.last)

    def draw(self, frequencies: Ints, source: Source, *, already_sampled: bool = False) -> Ints:
        """Return a token for each frequency; without a scheme every key counts as already sampled."""
        tokens = np.zeros(len(frequencies), np.int64)
        high, low = source.words(len(tokens)), source.words(len(tokens))
        distinct, place = np.unique(frequencies, return_inverse=True)
        order = np.argsort(place, kind="stable")
        groups = np.split(order, np.searchsorted(place[order], np.arange(1, len(distinct))))
        for row, group in zip(self.single_rows(distinct), groups, strict=False):
            shown = group[below(high[group], low[group], *split_words([_total(row)]))]
            inverse = Inverse.of(row.edges.tolist(), join_words(row.high[0], row.low[0]))
            tokens[shown] = inverse.places(high[shown], low[shown])
        return tokens

    def chains(self) -> Iterator[Chain]:
        """Yield what the kernel has to see: for each s up to `step` and each r up to s, rows r, r + s, r + 2s, ..."""
        if self.last is None:
            raise InvalidValue("rows that keep changing have no end to check. Use a scheme that becomes constant.")
        yield Chain((block for _, block in self.pieces(1, self.last)), self.resolution)
        for s in range(2, self.step + 1):
            for r in range(1, s + 1):
                yield Chain(self.single_rows(np.arange(r, self.last + s, s)), s * self.resolution)

    def certify(self, guarantee: Guarantee) -> Certificate:
        """Return the kernel's certificate for one key, or raise NotCertified."""
        found = [certify(each.blocks, guarantee, shift=each.shift, floor=each.floor) for each in self.chains()]
        return max(found, key=lambda certificate: certificate.worst)

    def delta(self, epsilon: float, neighbours: Neighbours) -> float:
        """Return the largest divergence of adjacent rows at epsilon, from the integers; only for 'add_remove'."""
        if neighbours == "replace":
            hint = "Use channel.guarantee.for_replacement(), or a channel without a scheme."
            raise InvalidValue(f"neighbours='replace' has no exact curve for this channel. {hint}")
        if self.last is None or self.last > self.longest:
            hint = "Use channel.guarantee, or a scheme that becomes constant sooner."
            raise InvalidValue(f"epsilon has no exact delta here: the rows of this channel keep changing. {hint}")
        verdicts = [examine(each.blocks, epsilon, nextafter(1, 0), each.shift, each.floor) for each in self.chains()]
        if wrong := [verdict.reason for verdict in verdicts if not verdict.accepted]:
            raise NotCertified(wrong[0])
        return max(verdict.worst for verdict in verdicts)

    def _settled(self, frequencies: Ints) -> Ints:
        """Return the row that stands for each frequency."""
        return frequencies if self.last is None else np.minimum(frequencies, self.last)

    def _totals(self, frequencies: Ints) -> tuple[Words, Words]:
        """Return the reported mass of each row, in high and low words."""
        rows, place = np.unique(self._settled(frequencies), return_inverse=True)
        high, low = split_words([_total(row) for row in self.single_rows(rows)])
        return high[place], low[place]

    @cached_property
    def _piece(self) -> Callable[[int], Block]:
        """Return the blocks of rows 1 to 64, 65 to 128, ..., of which some are kept."""

        def made(index: int) -> Block:
            first = index * self.piece + 1
            last = first + self.piece - 1 if self.last is None else min(first + self.piece - 1, self.last)
            return self.block(first, last - first + 1)

        return lru_cache(maxsize=16)(made)

    @cached_property
    def _all_windows(self) -> Callable[[float], Windows]:
        return lru_cache(maxsize=16)(lambda level: self.windows(1, self.last or 1, level))


def _total(row: Block) -> int:
    """Return the reported mass of a single row, exactly; it must be below one."""
    widths, masses = np.diff(row.edges).tolist(), join_words(row.high[0], row.low[0])
    total: int = sum(width * mass for width, mass in zip(widths, masses, strict=True))
    if total >= ONE:
        raise InvalidValue("a row has a mass of one or more. Round its masses down, to leave some to 'nothing'.")
    return total


def mass_of(block: Block, tokens: Ints) -> Floats:
    """Return the probability of each token (a column) in each row of a block."""
    cell = np.searchsorted(block.edges, tokens, side="right") - 1
    inside = (cell >= 0) & (cell < len(block.edges) - 1)
    cell = np.where(inside, cell, 0)
    return np.where(inside, fraction(block.high[:, cell], block.low[:, cell]), 0.0)


def shortest(edges: Floats, sums: Floats, top: float, level: float) -> tuple[int, int]:
    """Return the first and last place of the shortest window, among places below `top`, with `level` of their mass.

    Cell t has the places edges[t] to edges[t+1] - 1, and `sums` is the mass up to each edge. A shortest window begins
    or ends at an edge of a cell, as mass is even in between.
    """
    end = min(top, edges[-1])
    if level >= 1 or end <= edges[0]:
        return int(edges[0]), int(end) - 1
    whole = np.interp(end, edges, sums)
    # With very many cells a window may begin and end at some of the edges only: longer by a two-thousandth.
    step = 1 + len(edges) // _EDGES
    keep = np.flatnonzero(edges < end)[::step]
    edges, sums = np.append(edges[keep], end), np.append(sums[keep], whole)
    need = min(level * (1 + SAFE), 1.0) * whole
    fits = np.append(sums + need <= whole, sums >= need)
    if step == 1:
        starts = np.append(edges, np.interp(sums - need, sums, edges))
        stops = np.append(np.interp(sums + need, sums, edges), edges)
    else:
        starts = np.append(edges, edges[np.maximum(np.searchsorted(sums, sums - need, "right") - 1, 0)])
        stops = np.append(edges[np.minimum(np.searchsorted(sums, sums + need), len(edges) - 1)], edges)
    starts, stops = np.floor(starts + 1e-9), np.ceil(stops - 1e-9)
    if not fits.any():
        return int(edges[0]), int(end) - 1
    best = int(np.argmin(np.where(fits, stops - starts, np.inf)))
    return int(starts[best]), int(stops[best]) - 1
