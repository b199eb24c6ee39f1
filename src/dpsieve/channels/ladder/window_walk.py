"""Windows of rows on a ladder, compiled: a row takes the window of the one before wherever that still fits.

Rows next to each other have nearly the same shape. A window that holds a little more than the level, by up to a
fiftieth of what it may miss, is kept; so most rows cost a walk over the cells of one window.
"""

import numpy as np

from dpsieve.channels.stepwise.blocks import windows
from dpsieve.exact.jit import jit
from dpsieve.privacy.ladder_walk import first_above, next_cell

_MORE = 0.01  # of what a window may miss, it holds more when it is new, and twice that when it is kept


@jit()
def fill_windows(c, b, parts, masses, birth, reported, rows, level, room, nearest, farthest):
    """Fill in the windows of some rows, in increasing order, as lags; no row has more than `room` cells."""
    left, right, density = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    starts = np.zeros(2, np.int64)
    more = _MORE * (1 - level)
    for k in range(len(rows)):
        row = rows[k]
        if k > 0 and level < 1:
            near, far = nearest[rows[k - 1]], farthest[rows[k - 1]]
            held = _between(c, b, parts, masses, birth, row, near, far)
            if level * reported[row] <= held <= (level + 2 * more) * reported[row]:
                nearest[row], farthest[row] = near, far
                continue
        place, peak, n = b[row], first_above(c, b[row], row + 1), 0
        while place < row * parts:
            end, rung, peak = next_cell(c, parts, row, place, peak)
            left[n], right[n], density[n] = place, end, masses[birth + rung]
            place, n = end, n + 1
        starts[1] = n
        one = slice(row, row + 1)
        windows(starts, left, right, density, row, parts, level + more, nearest[one], farthest[one])


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
