"""The compiled part of `privacy.ladder_kernel`: what a row is, and the walk over a table. To be trusted as well."""

import numpy as np

from dpsieve.exact.jit import jit
from dpsieve.exact.wide import add, less, mul, mul_shift_down, mul_word_up, sub

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
                _, whole_high, whole_low = _times(left_high, left_low, limits[2])
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


@jit()
def _times(high, low, factor):
    """Return floor(a factor / 2^64), after a zero."""
    top, middle, _ = mul(high, low, factor)
    return _ZERO, top, middle
