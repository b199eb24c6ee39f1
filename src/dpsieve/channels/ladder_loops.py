"""Numba: stairs below a sampling scheme, the places c and b of each row on the ladder, and windows of rows.

**Stairs** are runs of frequencies that share a reporting probability. A stair begins where q has grown by the factor
1 + height since the last one, and has the q of its first frequency as its level. So levels are at most q, above
q / (1 + height), and never decrease. Where stairs would be shorter than the rows they take to settle, every frequency
is its own stair, without loss. The last stair begins where 1 - q is `end`: closer to one, 'nothing' would have little
more mass than a token.

**Places** are those of the corrected Algorithm 5 on whole tokens, with constant work per row (see
`privacy.ladder_kernel` for the resulting table). The guarantee does not depend on these floats, as the kernel checks
the places with integers. How: docs/background/channels.md#rows-of-a-ladder.

**Windows.** A row reuses the window of the previous row if that still holds the level, and exceeds it by at most a
fiftieth of the allowed miss. So most rows cost one walk over the cells of a window.
"""

import math
from dataclasses import dataclass

import numpy as np

from dpsieve.channels.law import LARGEST_FREQUENCY
from dpsieve.channels.stepwise_loops import windows
from dpsieve.compiled.jit import jit
from dpsieve.privacy.ladder_kernel import first_above, next_cell
from dpsieve.sampling.schemes import Scheme
from dpsieve.types import Floats, Ints

HEIGHT, MOST_ROWS = 9e-4, 1 << 23
_FREE = 3  # from this row of a stair on, c moves by one unit at least
_MARGIN = 0.01  # excess mass of a new window, relative to its allowed miss; a reused window may have twice that


@dataclass(frozen=True, eq=False)
class Stairs:
    """Stair k has the frequencies starts[k] to starts[k+1] - 1 and the level levels[k], q of its first frequency."""

    starts: Ints
    levels: Floats
    height: float


def stairs_below(scheme: Scheme, settle: int, end: float) -> Stairs:
    """Return the lowest stairs that need at most MOST_ROWS rows, if each takes `settle` rows at most."""
    height = HEIGHT
    while True:
        starts = _starts(scheme, height, end)
        gaps = np.diff(starts, append=LARGEST_FREQUENCY + 1)
        if np.minimum(gaps, settle).sum() <= MOST_ROWS or height > 1:
            break
        height *= 2
    # Split short stairs into one stair per frequency.
    often = np.where(gaps < settle, gaps, 1)
    first = np.cumsum(often) - often
    starts = np.repeat(starts - first, often) + np.arange(often.sum())
    return Stairs(starts, scheme.inclusion(starts), height)


def _starts(scheme: Scheme, height: float, end: float) -> Ints:
    """Return where stairs of this height begin: the first frequency that reaches each of some levels."""
    first, last = scheme.inclusion([1, LARGEST_FREQUENCY]).tolist()
    last, least = min(last, 1 - end), max(first, 1e-30)
    up = least * np.exp(np.arange(max(0.0, math.log(last / least)), step=math.log1p(height)) if last > 0 else [])
    targets = np.append(up, last)
    low, high = np.ones(len(targets), np.int64), np.full(len(targets), LARGEST_FREQUENCY)
    while (low < high).any():
        middle = (low + high) // 2
        reached = scheme.inclusion(middle) >= targets
        low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
    return np.unique(np.append(1, low))


@jit()
def make_places(starts, levels, numbers, masses, sums, birth, parts, c, b, first, reported):
    """Fill c, b and the reported mass of each row, and the first row of each stair; return the last row.

    Stair k has the frequencies starts[k] to starts[k+1] - 1 and the target levels[k]. `numbers` are delta, e^epsilon
    and e^-epsilon. `sums[k]` is the sum of k rungs from birth on. The result is 0 if a row does not fit on the ladder.
    """
    delta, up, down = numbers[0], numbers[1], numbers[2]
    new = masses[birth] * parts
    row, peak, run = np.int64(0), np.int64(1), np.int64(0)  # one type for all: each is a compilation
    pi, left = 0.0, 0.0
    for k in range(len(levels)):
        first[k] = row + 1
        for n in range(1, starts[k + 1] - starts[k] + 1):
            row += 1
            if row >= len(c):
                return 0
            target = min(levels[k], 1 - (1 - pi) * down)
            old_c, old_b, top = c[row - 1], b[row - 1], (row - 1) * parts
            if target <= new:  # new tokens alone suffice
                b[row] = c[row] = max(old_c, row * parts - np.int64(target / masses[birth]))
                left = 0.0
            elif old_b == old_c and (target - new) * down >= pi:  # every old token grows
                b[row] = c[row] = old_b
            else:
                low, lost, next_peak = _vanish(c, parts, row - 1, old_b, peak, masses, birth, delta)
                if n >= _FREE and low > old_b + parts:
                    low, lost, next_peak = _upto(c, parts, row - 1, old_b, old_b + parts, peak, masses, birth)
                above = (target - new) * down  # U_i, if all that is left of c vanishes
                if above < pi - lost:
                    above = (target - new - down * (pi - lost)) / (up - down)
                place = max(old_c, _place(sums, masses, birth, parts, top, above))
                if n >= _FREE:
                    place = max(place, old_c + parts)
                place = min(place, top)
                if low > place:
                    low, lost, next_peak = _upto(c, parts, row - 1, old_b, place, peak, masses, birth)
                c[row], b[row], peak = place, low, next_peak
                left = down * max(0.0, pi - lost - _above(sums, masses, birth, parts, row - 1, place))
                if low == place:
                    left = 0.0
            pi = left + _above(sums, masses, birth, parts, row, c[row])
            reported[row] = pi
            # Settled: c and b moved by one unit, and every token left of c had its peak since c began to.
            if c[row] != old_c + parts:
                run = row
            elif n > _FREE and b[row] == old_b + parts and c[run] <= old_b:
                break
    first[len(levels)] = row + 1
    return row


@jit()
def _above(sums, masses, birth, parts, row, place):
    """Return the mass of a row above a place at or right of its c."""
    rung = row - place // parts - 1
    if rung < 0:
        return 0.0
    return parts * sums[rung] + masses[birth + rung] * (parts - place % parts)


@jit()
def _place(sums, masses, birth, parts, top, above):
    """Return the lowest place above which a row that ends at `top` has no more than this mass, if c is left of it."""
    rung = first_above(sums, above / parts, len(sums)) - 1
    if above <= 0 or rung < 0:
        return top
    rung = min(rung, len(sums) - 3)
    offset = min(parts, np.int64((above - parts * sums[rung]) / masses[birth + rung]))
    return max(0, top - rung * parts - offset)


@jit()
def _vanish(c, parts, row, place, peak, masses, birth, free):
    """Return the highest place up to which a row has no more than `free` above `place`, that mass, and the row p."""
    lost = 0.0
    while place < row * parts:
        end, rung, peak = next_cell(c, parts, row, place, peak)
        mass = masses[max(0, birth + rung)]
        if lost + mass * (end - place) > free:
            tokens = np.int64((free - lost) / mass)
            return place + tokens, lost + tokens * mass, peak
        lost += mass * (end - place)
        place = end
    return place, lost, peak


@jit()
def _upto(c, parts, row, place, stop, peak, masses, birth):
    """Return `stop`, the mass of a row from `place` to there, and the row p of what comes next."""
    lost = 0.0
    while place < stop:
        end, rung, peak = next_cell(c, parts, row, place, peak)
        end = min(end, stop)
        lost += masses[max(0, birth + rung)] * (end - place)
        place = end
    return stop, lost, peak


@jit()
def most_lost(numbers, token, reported, q, repeated, last_q):
    """Return the largest relative shortfall of a row from the largest pi_i that the scheme and privacy allow.

    That is pi_i = min(q_i, e^eps pi_(i-1) + delta, 1 - e^-eps (1 - pi_(i-1) - delta)). `last_q` is q at the last
    frequency that a repeated row represents. A shortfall below a token of a new unit does not count.
    """
    delta, up, down = numbers[0], numbers[1], numbers[2]
    most, lost = 0.0, 0.0
    for row in range(len(q)):
        most = min(q[row], up * most + delta, 1 - down * (1 - most - delta))
        if repeated[row]:
            most = last_q[row]
        if most > 0:
            lost = max(lost, (most - token - reported[row]) / most)
    return lost


@jit()
def widest(c, b, masses, sums, birth, parts, reported, factor):
    """Return the largest divergence of adjacent rows at a factor below e^epsilon, in floats.

    Upwards new tokens and those that grow add to it, downwards those that shrink or vanish, and 'nothing' either way.
    """
    worst, peak = 0.0, np.int64(1)
    for row in range(1, len(c)):
        top = (row - 1) * parts
        _, lost, peak = _upto(c, parts, row - 1, b[row - 1], max(b[row - 1], min(b[row], top)), peak, masses, birth)
        old = _above(sums, masses, birth, parts, row - 1, c[row])
        new = _above(sums, masses, birth, parts, row, max(c[row], top))
        grown = _above(sums, masses, birth, parts, row, c[row]) - new
        silent, before = 1 - reported[row], 1 - reported[row - 1]
        up = new + max(0.0, grown - factor * old) + max(0.0, silent - factor * before)
        down = lost + max(0.0, before - factor * silent)
        if b[row] < c[row]:
            down += max(0.0, reported[row - 1] - lost - old - factor * (reported[row] - grown - new))
        worst = max(worst, up, down)
    return worst


@jit()
def fill_windows(c, b, parts, masses, birth, reported, rows, level, room, nearest, farthest):
    """Fill the windows of the given rows, in increasing order, as lags; no row has more than `room` cells."""
    left, right, density = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    starts = np.zeros(2, np.int64)
    margin = _MARGIN * (1 - level)
    for k in range(len(rows)):
        row = rows[k]
        if k > 0 and level < 1:
            nearest_lag, farthest_lag = nearest[rows[k - 1]], farthest[rows[k - 1]]
            mass = _between(c, b, parts, masses, birth, row, nearest_lag, farthest_lag)
            if level * reported[row] <= mass <= (level + 2 * margin) * reported[row]:
                nearest[row], farthest[row] = nearest_lag, farthest_lag
                continue
        place, peak, n = b[row], first_above(c, b[row], row + 1), 0
        while place < row * parts:
            end, rung, peak = next_cell(c, parts, row, place, peak)
            left[n], right[n], density[n] = place, end, masses[birth + rung]
            place, n = end, n + 1
        starts[1] = n
        single = slice(row, row + 1)
        windows(starts, left, right, density, row, parts, level + margin, nearest[single], farthest[single])


@jit()
def _between(c, b, parts, masses, birth, row, near, far):
    """Return the mass of a row at the lags from near to far."""
    place, stop, mass = max(row * parts - far - 1, b[row]), row * parts - near, 0.0
    peak = first_above(c, place, row + 1)
    while place < stop:
        end, rung, peak = next_cell(c, parts, row, place, peak)
        end = min(end, stop)
        mass += masses[birth + rung] * (end - place)
        place = end
    return mass
