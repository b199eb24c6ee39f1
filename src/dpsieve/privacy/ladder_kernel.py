"""The certificate kernel for rows made of a ladder of masses: long tables, with constant work per row.

Like `privacy.kernel`, this module is part of what a reader has to trust. It uses only 128-bit sums and products.

A **ladder** is a list of masses T[0] <= T[1] <= ..., integers on the 2^-128 grid, one of which, T[birth], is the mass
of a token that is new. A table has rows 0, 1, 2, ..., `parts` tokens for each unit of frequency, and for each row two
places b_i <= c_i; both never decrease. Row i has the tokens x with b_i < x <= i parts. Token x belongs to the unit
s = ceil(x / parts), and p is the first row with c_p >= x. Its mass in row i is

    T[birth + i - s]             if x > c_i: one rung up per row since its birth in row s,
    T[birth + 2 (p - 1) - s - i] if x <= c_i: one rung down per row since row p - 1, its peak.

'Nothing' has the rest. `next_cell` is this definition in code. The check walks over the table with it, and `expand`,
which every draw uses, too.

**What is checked**, with integers alone:

1. T never decreases and T[k+1] <= e^epsilon T[k]; parts T[birth] <= delta; T[k] = ceil(T[k+1] inverse / 2^64).
2. b_i <= c_i, both never decrease, and c_i <= (i - 1) parts unless b_i = c_i <= i parts.
3. What vanishes at row i, the mass v_i of the tokens in (b_(i-1), b_i] in row i - 1, is at most delta.
4. 'Nothing' changes by a factor of e^epsilon at most, either way, from each row to the next.
5. Every rung that is used is on the ladder, and no row sums to more than one.

**This is enough.** From row i - 1 to row i a token above (i - 1) parts is new; all new ones have at most
parts T[birth] <= delta. A token x <= (i - 1) parts above c_i is above c_(i-1) as well: one rung up. One in (b_i, c_i]
was above c_(i-1), then p = i and it is one rung down from i - 1 - s; or it was not, then p is the same and it is one
rung down again. One in (b_(i-1), b_i] vanishes, and these have v_i <= delta. By 1 a rung is a factor in
[1, e^epsilon], so tokens that neither are born nor vanish add nothing to the divergence, nor does 'nothing' by 4. So it
is at most parts T[birth] upwards and v_i downwards, both at most delta.

**Rows that repeat.** A row that is the previous one shifted up by one unit may be repeated any number of times, each
time shifted up by one unit more: those pairs have the divergence of the pair that was checked. Row j is the shift of
row j - 1 if b_j = b_(j-1) + parts and c_i = c_(i-1) + parts for all i from some r + 1 to j, with c_r <= b_(j-1). Why,
and how totals are bounded without adding up rows: docs/background/channels.md#the-check-of-a-ladder.

**Which row serves a frequency.** Stair k has the frequencies starts[k] to starts[k+1] - 1, the last one those below
`stop`, and the rows first[k] to first[k+1] - 1: one after the other, the last of them as often as there are frequencies
left (`rows_for`). So adjacent frequencies are served by adjacent rows, or by one that is repeated. Checked: stairs
begin with frequency 1 and row 1, use all rows, and have no more rows than frequencies; where they have fewer, their
last row is a shifted one.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpsieve.compiled.jit import jit
from dpsieve.compiled.words import add, less, mul, mul_shift_down, mul_word_up, sub
from dpsieve.privacy.kernel import GRID, GUARD, Verdict, exp_floor

_ZERO = np.uint64(0)


@jit()
def first_above(values, bound, stop):
    """Return the first place below `stop` whose value is above a bound, else `stop`; values do not decrease."""
    low = 0
    while low < stop:
        middle = (low + stop) // 2
        if values[middle] > bound:
            stop = middle
        else:
            low = middle + 1
    return low


@jit()
def next_cell(c, parts, row, place, peak):
    """Return the last token of the cell of a row that begins after `place`, its rung above birth, and its row p.

    `peak` is at most that row p: where to begin to look for it.
    """
    while peak <= row and c[peak] <= place:
        peak += 1
    unit = place // parts + 1
    if peak <= row:
        return min(unit * parts, c[peak]), 2 * (peak - 1) - unit - row, peak
    return unit * parts, row - unit, peak


@jit()
def expand_rows(c, b, words, birth, parts, rows, starts, left, right, high, low, reported):
    """Write the cells of some rows and the sum of each row."""
    at = 0
    for k in range(len(rows)):
        row = rows[k]
        place, peak = b[row], first_above(c, b[row], row + 1)
        total_high, total_low = _ZERO, _ZERO
        while place < row * parts:
            end, rung, peak = next_cell(c, parts, row, place, peak)
            if not 0 <= birth + rung < words.shape[1] or at >= len(left):
                raise IndexError("a token leaves the ladder, or a row its room")
            left[at], right[at] = place, end
            high[at], low[at] = words[0, birth + rung], words[1, birth + rung]
            _, more_high, more_low = mul(high[at], low[at], np.uint64(end - place))
            total_high, total_low = add(total_high, total_low, more_high, more_low)
            place, at = end, at + 1
        starts[k + 1] = at
        reported[k, 0], reported[k, 1] = total_high, total_low


@jit()
def _above(words, sums, birth, parts, row, place):
    """Return the mass of a row above a place that is at or right of its c; 2^128 - 1 if it is more than that."""
    rung = row - place // parts - 1
    if rung < 0:
        return _ZERO, _ZERO
    _, whole_high, whole_low = mul(sums[0, rung], sums[1, rung], np.uint64(parts))
    top, high, low = mul(words[0, birth + rung], words[1, birth + rung], np.uint64(parts - place % parts))
    high, low = add(high, low, whole_high, whole_low)
    if top != _ZERO or less(high, low, whole_high, whole_low):
        return ~_ZERO, ~_ZERO
    return high, low


@jit()
def _vanishing(c, words, birth, parts, row, place, stop, peak):
    """Return the mass of a row from `place` to `stop`, the row p of what comes next, and whether a rung is missing."""
    high, low = _ZERO, _ZERO
    stop = min(stop, row * parts)
    while place < stop:
        end, rung, peak = next_cell(c, parts, row, place, peak)
        if not 0 <= birth + rung < words.shape[1]:
            return high, low, peak, True
        width = min(end, stop) - place
        _, more_high, more_low = mul(words[0, birth + rung], words[1, birth + rung], np.uint64(width))
        high, low = add(high, low, more_high, more_low)
        place += width
    return high, low, peak, False


@jit()
def _covers(limits, a_high, a_low, b_high, b_low):
    """Return whether e^epsilon (2^128 - a) >= 2^128 - b, for a and b that are at most one."""
    high, low = mul_shift_down(~a_high, ~a_low, limits[0], limits[1])
    return not less(high, low, ~b_high, ~b_low)


@jit()
def walk(c, b, words, sums, birth, parts, limits, totals):
    """Check 3, 4 and 5; fill in an upper bound on each total; return (fault, row, worst high, worst low)."""
    worst_high, worst_low, peak, most = _ZERO, _ZERO, np.int64(1), words.shape[1] - birth
    least_high, least_low, last_high, last_low = _ZERO, _ZERO, _ZERO, _ZERO  # the last total is between these
    for row in range(1, len(c)):
        lost_high, lost_low, peak, missing = _vanishing(c, words, birth, parts, row - 1, b[row - 1], b[row], peak)
        if missing or row - c[row] // parts > most:
            return 1, row, worst_high, worst_low
        if less(limits[3], limits[4], lost_high, lost_low):
            return 2, row, worst_high, worst_low
        if less(worst_high, worst_low, lost_high, lost_low):
            worst_high, worst_low = lost_high, lost_low
        high, low = _above(words, sums, birth, parts, row, c[row])
        total_high, total_low, under_high, under_low = high, low, high, low
        if b[row] < c[row]:  # what the last row had on (b, c], one rung down
            gone_high, gone_low = _above(words, sums, birth, parts, row - 1, c[row])
            gone_high, gone_low = add(gone_high, gone_low, lost_high, lost_low)
            if not less(least_high, least_low, gone_high, gone_low):
                left_high, left_low = sub(least_high, least_low, gone_high, gone_low)
                whole_high, whole_low, _ = mul(left_high, left_low, limits[2])
                under_high, under_low = add(high, low, whole_high, whole_low)
            left_high, left_low = sub(last_high, last_low, gone_high, gone_low)
            left_high, left_low = mul_word_up(left_high, left_low, limits[2])
            left_high, left_low = add(left_high, left_low, _ZERO, np.uint64(c[row] - b[row]))
            total_high, total_low = add(high, low, left_high, left_low)
        if less(total_high, total_low, high, low) or high == ~_ZERO:
            return 3, row, worst_high, worst_low
        enough = _covers(limits, total_high, total_low, least_high, least_low)
        if not enough or not _covers(limits, last_high, last_low, under_high, under_low):
            return 4, row, worst_high, worst_low
        least_high, least_low, last_high, last_low = under_high, under_low, total_high, total_low
        totals[row, 0], totals[row, 1] = total_high, total_low
    row = len(c) - 1
    _, _, _, missing = _vanishing(c, words, birth, parts, row, b[row], c[row], peak)
    return (1 if missing else 0), row, worst_high, worst_low


_REASONS = {
    1: "a token leaves the ladder",
    2: "more than delta vanishes",
    3: "a row sums to more than one",
    4: "'nothing' changes by more than e^epsilon",
}


@dataclass(frozen=True, eq=False)
class LadderTable:
    """The table; see the head of this module. `c` and `b` begin with row 0, where both are 0."""

    masses: tuple[int, ...]
    birth: int
    inverse: int  # e^-epsilon, or a little more, in units of 2^-64
    parts: int
    c: NDArray[np.int64]
    b: NDArray[np.int64]
    starts: NDArray[np.int64]
    first: NDArray[np.int64]  # one more than starts
    stop: int

    @property
    def repeated(self) -> NDArray[np.int64]:
        """The rows that serve several frequencies: the last ones of stairs with more frequencies than rows."""
        long = np.diff(self.first) < np.diff(self.starts, append=self.stop)
        return self.first[1:][long] - 1

    @cached_property
    def words(self) -> NDArray[np.uint64]:
        """The masses in two rows of words, high and low."""
        return np.array([[mass >> 64 for mass in self.masses], [mass & (2**64 - 1) for mass in self.masses]], np.uint64)

    @cached_property
    def floats(self) -> NDArray[np.float64]:
        """The masses as probabilities."""
        return np.array([mass / 2**GRID for mass in self.masses])


@dataclass(frozen=True, eq=False)
class Expanded:
    """Rows cell by cell: row k has the cells starts[k] to starts[k+1] - 1, each with the tokens left + 1 to right."""

    starts: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    reported: NDArray[np.uint64]  # (rows, 2): the sum of each row


def rows_for(frequencies: NDArray[np.int64], starts: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row that serves each frequency, shifted up by their difference."""
    stair = np.searchsorted(starts, frequencies, side="right") - 1
    rows: NDArray[np.int64] = np.minimum(first[stair] + frequencies - starts[stair], first[stair + 1] - 1)
    return rows


def expand(table: LadderTable, rows: NDArray[np.int64]) -> Expanded:
    """Return some rows of a table; all must be in it."""
    bottom = table.b[rows]
    peaks = np.maximum(rows + 1 - np.searchsorted(table.c, bottom, "right"), 0)
    room = int((rows - bottom // table.parts + peaks).sum()) + 1  # a cell ends with a unit, or at a c
    starts, (left, right) = np.zeros(len(rows) + 1, np.int64), np.empty((2, room), np.int64)
    (high, low), reported = np.empty((2, room), np.uint64), np.zeros((len(rows), 2), np.uint64)
    expand_rows(
        table.c, table.b, table.words, table.birth, table.parts, rows, starts, left, right, high, low, reported
    )  # fmt: skip
    end = starts[-1]
    return Expanded(starts, left[:end], right[:end], high[:end], low[:end], reported)


def examine_ladder(table: LadderTable, epsilon: float, delta: float) -> tuple[Verdict, NDArray[np.uint64]]:
    """Check a table; also return an upper bound on the sum of each row, as (high, low) words."""
    rows, totals = len(table.c) - 1, np.zeros((len(table.c), 2), np.uint64)
    allowed = int(Fraction(delta) * 2**GRID)
    inside = 0 < epsilon <= 40 and 0 <= delta < 1
    reason = "" if inside else "epsilon or delta is out of range"
    reason = reason or _ladder_fault(table, epsilon, allowed) or _places_fault(table) or _stairs_fault(table)
    worst = table.parts * table.masses[table.birth]
    if not reason:
        factor = exp_floor(epsilon)
        more = factor.bit_length() - 64
        limits = np.array(
            [factor >> more, GUARD - more, table.inverse, allowed >> 64, allowed & (2**64 - 1)], np.uint64
        )
        sums = [0]
        for mass in table.masses[table.birth : -1]:
            sums.append(sums[-1] + mass)
        summed = np.array([[total >> 64 for total in sums], [total & (2**64 - 1) for total in sums]], np.uint64)
        fault, row, high, low = walk(table.c, table.b, table.words, summed, table.birth, table.parts, limits, totals)
        worst = max(worst, int(high) << 64 | int(low))
        reason = f"row {row}: {_REASONS[fault]}" if fault else ""
    return Verdict(not reason, rows, min(worst / 2**GRID, delta), reason), totals


def _ladder_fault(table: LadderTable, epsilon: float, allowed: int) -> str:
    masses, factor = table.masses, exp_floor(epsilon)
    if not (0 <= table.birth < len(masses) and 1 <= table.parts <= 2**30 and 0 < table.inverse < 2**64):
        return "birth, parts or inverse is out of range"
    if min(masses) < 1 or masses[-1] >= 2**GRID or sum(masses[table.birth : -1]) * table.parts >= 2**GRID:
        return "the ladder has a mass below one, or too much mass"
    if any(not low <= high or high << GUARD > factor * low for low, high in pairwise(masses)):
        return "a rung is more than e^epsilon above the one below"
    if any(low != -(-high * table.inverse >> 64) for low, high in pairwise(masses)):
        return "a rung is not the one above times inverse, rounded up"
    return "" if table.parts * masses[table.birth] <= allowed else "new tokens have more than delta"


def _places_fault(table: LadderTable) -> str:
    c, b, top = table.c, table.b, np.arange(len(table.c)) * table.parts
    if c.shape != b.shape or len(c) < 2 or c.dtype != np.int64 or b.dtype != np.int64 or c[0] != 0 or b[0] != 0:
        return "c and b do not fit together"
    if (c[1:] < c[:-1]).any() or (b[1:] < b[:-1]).any():
        return "c or b decreases"
    inside = (b < c) & (c <= top - table.parts) | (b == c) & (c <= top)
    return "" if inside.all() else "c or b is not where it may be"


def _stairs_fault(table: LadderTable) -> str:
    """Return an error message unless adjacent frequencies map to adjacent rows, or to a row shifted up by one unit."""
    starts, first = table.starts, table.first
    if len(starts) < 1 or len(first) != len(starts) + 1 or starts.dtype != np.int64 or first.dtype != np.int64:
        return "starts and first do not fit together"
    if starts[0] != 1 or first[0] != 1 or first[-1] != len(table.c):
        return "the stairs do not begin with row 1 and end with the last one"
    if min(starts.min(), first.min()) < 1 or max(starts.max(), first.max(), table.stop) >= 2**62:
        return "a stair is out of range"
    rows, frequencies = np.diff(first), np.diff(starts, append=table.stop)
    if (rows < 1).any() or (frequencies < rows).any():
        return "a stair has no row, or more rows than frequencies"
    repeated = table.repeated
    if not len(repeated):
        return ""
    if repeated.min() < 2:
        return "row 1 is repeated"
    whole = np.diff(table.c, prepend=-1) == table.parts  # whether c_i = c_(i-1) + parts
    begins = np.maximum.accumulate(np.where(whole, 0, np.arange(len(whole))))[repeated]
    before = repeated - 1
    moved = whole[repeated] & (table.b[repeated] == table.b[before] + table.parts)
    return "" if (moved & (table.c[begins] <= table.b[before])).all() else "a repeated row is not a shifted one"
