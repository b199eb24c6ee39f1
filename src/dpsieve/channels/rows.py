"""The rows of a channel: integer masses on the 2^-128 grid, and everything derived from them.

A row lists the masses of tokens; 'nothing' has the remainder. See `channels.law` for frequencies and tokens.

Tables are computed from tightened parameters: e^epsilon is lowered by 2^-46 and delta by 2^-36, both relative. That
changes a reporting probability by less than 1e-9 and lets the kernel clear a pair of rows in floating point.
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
from dpsieve.exact import below, fraction, join_words, split_words
from dpsieve.privacy.certificate import Certificate, certify
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.kernel import GRID, GUARD, Block, examine, exp_floor
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints, Words
from dpsieve.validate import Neighbours

ONE = 1 << GRID
FACTOR_BITS = GUARD
_NEAR = 2.0**-16  # a proposed place is right to 2^-18, as there are at most 2^31 of them in a cell
SAFE = 1e-11  # relative excess mass of windows, which covers all rounding
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

    A uniform number in [0, 2^128) is two words. Cell t has the numbers from start[t] on, mass[t] for each of its
    places. Comparisons are exact: a floating-point quotient close to an integer is recomputed with integers.
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
        left_low = low - start_low
        left_high = high - start_high - (low < start_low)
        mass_high, mass_low = self.masses[0][cell], self.masses[1][cell]
        offset = (left_high * 2.0**64 + left_low) / (mass_high * 2.0**64 + mass_low)
        steps: Ints = np.floor(offset).astype(np.int64)
        for k in np.flatnonzero(np.abs(offset - np.rint(offset)) < _NEAR):
            offset_mass, mass = (int(a[k]) << 64 | int(b[k]) for a, b in ((left_high, left_low), (mass_high, mass_low)))
            steps[k] = offset_mass // mass
        return np.asarray(self.edges[cell] + steps)


@dataclass(frozen=True)
class Chain:
    """Rows whose neighbours in the list are neighbours in the data, for the kernel; see `privacy.certify`."""

    blocks: Iterable[Block]
    shift: int
    floor: int | None = None


class Rows(WindowedLaw):
    """Integer rows in blocks over shared cells, which the kernel certifies; every other method is derived from `block`.

    Subclasses may override a derived method by a faster one; tests/common/test_rows.py compares the two. Rows with
    last=None must set `spread`.

    Attributes:
        step: the largest change of a key's frequency by one unit.
        piece: rows per cached block.
        longest: the largest `last` for which divergences and windows are computed over all rows.
        table_rows: how many rows the kernel will check, where rows are computed one by one.
        loss: the largest relative shortfall of a reporting probability from the largest possible one.
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
        reach = 0
        for i, row in enumerate(self.single_rows(np.arange(1, self.last + 1)), 1):
            cells = np.flatnonzero(row.high[0] | row.low[0])
            if len(cells):
                lowest, highest = int(row.edges[cells[0]]), int(row.edges[cells[-1] + 1]) - 1
                reach = max(reach, i * self.resolution - lowest + 1, highest - i * self.resolution)
        return -(-reach // self.resolution)

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
        if frequency == 0:
            return super().row(0)
        only = np.array([frequency])
        block = next(self.single_rows(only))
        edges, mass = block.edges - 1, fraction(block.high[0], block.low[0])
        if self.resolution == 1:
            edges, mass = np.arange(edges[0], edges[-1] + 1), np.repeat(mass, np.diff(edges))
        return Row.of(float(self.withheld(only)[0]), edges, mass * np.diff(edges))

    def reported(self, frequencies: Ints) -> Floats:
        return fraction(*self._totals(frequencies))

    def withheld(self, frequencies: Ints) -> Floats:
        high, low = self._totals(frequencies)
        return fraction(~high, ~low) + 2.0**-128

    def cell_edges(self, low: int, high: int) -> Ints:
        ends = np.array([low, high]) * self.resolution
        edges = [ends]
        for _, block in self.pieces(max(1, low - self.spread), max(1, high + self.spread)):
            edges.append(block.edges[(block.edges - 1 > ends[0]) & (block.edges - 1 < ends[1])] - 1)
        return np.unique(np.concatenate(edges))

    def cell_probabilities(self, frequencies: Ints, edges: Ints) -> Floats:
        values, place = np.unique(frequencies, return_inverse=True)
        probabilities = np.zeros((len(values), len(edges) - 1))
        for k, row in enumerate(self.single_rows(values)):
            probabilities[k] = mass_of(row, edges[1:])[0] * np.diff(edges)
        return probabilities[place]

    def likeliest(self, tokens: Ints) -> tuple[Ints, Floats]:
        shift = np.zeros_like(tokens)
        if self.last is not None:
            shift = np.maximum(0, (tokens - 1) // self.resolution - self.last - self.spread)
        values, place = np.unique(tokens - shift * self.resolution, return_inverse=True)
        best, frequency = np.zeros(len(values)), np.ones(len(values), np.int64)
        for run in runs(values, 2 * self.spread * self.resolution):
            part = values[run]
            first = max(1, int(part[0]) // self.resolution - self.spread)
            for start, block in self.pieces(first, int(part[-1]) // self.resolution + self.spread + 1):
                mass = mass_of(block, part)
                row = mass.argmax(axis=0)
                largest = mass[row, np.arange(len(part))]
                better = largest > best[run]
                best[run] = np.where(better, largest, best[run])
                frequency[run] = np.where(better, start + row, frequency[run])
        return frequency[place] + shift, best[place]

    def interval(self, tokens: Ints, level: float) -> tuple[Ints, Ints]:
        if self.last is not None and self.last <= self.longest:
            return self._all_windows(level).interval(tokens)
        return super().interval(tokens, level)

    def windows(self, first: int, last: int, level: float) -> Windows:
        """Return the shortest windows of rows first to last."""
        rows = np.arange(first, last + 1)
        spans = []
        for block in self.single_rows(rows):
            mass = fraction(block.high[0], block.low[0]) * np.diff(block.edges)
            cells = np.flatnonzero(mass)
            if not len(cells):
                spans.append((1, 0))
                continue
            edges = block.edges[cells[0] : cells[-1] + 2].astype(np.float64)
            spans.append(shortest(edges, np.append(0.0, np.cumsum(mass[cells[0] : cells[-1] + 1])), edges[-1], level))
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
            reported = group[below(high[group], low[group], *split_words([_total(row)]))]
            inverse = Inverse.of(row.edges.tolist(), join_words(row.high[0], row.low[0]))
            tokens[reported] = inverse.places(high[reported], low[reported])
        return tokens

    def chains(self) -> Iterator[Chain]:
        """Yield the chains to certify: for each s up to `step` and each r up to s, rows r, r + s, r + 2s, ..."""
        if self.last is None:
            raise InvalidValue("rows that keep changing have no end to check. Use a scheme that becomes constant.")
        yield Chain((block for _, block in self.pieces(1, self.last)), self.resolution)
        for s in range(2, self.step + 1):
            for r in range(1, s + 1):
                yield Chain(self.single_rows(np.arange(r, self.last + s, s)), s * self.resolution)

    def certify(self, guarantee: Guarantee) -> Certificate:
        """Return the kernel's certificate for one key, or raise NotCertified."""
        certificates = [certify(each.blocks, guarantee, shift=each.shift, floor=each.floor) for each in self.chains()]
        return max(certificates, key=lambda certificate: certificate.worst)

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
        """Return the row that represents each frequency."""
        return frequencies if self.last is None else np.minimum(frequencies, self.last)

    def _totals(self, frequencies: Ints) -> tuple[Words, Words]:
        """Return the reported mass of each row, in high and low words."""
        rows, place = np.unique(self._settled(frequencies), return_inverse=True)
        high, low = split_words([_total(row) for row in self.single_rows(rows)])
        return high[place], low[place]

    @cached_property
    def _piece(self) -> Callable[[int], Block]:
        """Return a cached function of the index: rows 1 to `piece`, the next `piece` rows, ..."""

        def make_piece(index: int) -> Block:
            first = index * self.piece + 1
            last = first + self.piece - 1 if self.last is None else min(first + self.piece - 1, self.last)
            return self.block(first, last - first + 1)

        return lru_cache(maxsize=16)(make_piece)

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
    """Return the first and last place of the shortest window below `top` with `level` of the mass there.

    Cell t has the places edges[t] to edges[t+1] - 1, and `sums` is the mass up to each edge. Mass is even within a
    cell, so some shortest window begins or ends at an edge.
    """
    end = min(top, edges[-1])
    if level >= 1 or end <= edges[0]:
        return int(edges[0]), int(end) - 1
    total = np.interp(end, edges, sums)
    # With very many cells only every `step`-th edge is tried: a window is longer by a two-thousandth.
    step = 1 + len(edges) // _EDGES
    keep = np.flatnonzero(edges < end)[::step]
    edges, sums = np.append(edges[keep], end), np.append(sums[keep], total)
    need = min(level * (1 + SAFE), 1.0) * total
    fits = np.append(sums + need <= total, sums >= need)
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
