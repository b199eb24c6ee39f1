"""Rows are bands: a key of frequency i comes out near i. So tables are made piece by piece, never whole."""

from collections.abc import Iterator

import numpy as np

from dpsieve.channels.channel import Channel
from dpsieve.estimation.checks import Floats, Ints

CELLS = 1 << 20  # entries of one piece of a table
_TINY = 1e-6


def windows(channel: Channel, rows: Ints) -> Iterator[tuple[slice, Ints]]:
    """Cut increasing rows into runs; yield each with token edges that span all tokens of its rows."""
    wide, start = channel.reach, 0
    while start < len(rows):
        stop = int(np.searchsorted(rows, rows[start] + max(wide // 2, 16), side="right"))
        edges = channel.breaks(max(int(rows[start]) - wide, 0), int(rows[stop - 1]) + wide)
        step = max(CELLS // len(edges), 1)
        for first in range(start, stop, step):
            yield slice(first, min(first + step, stop)), edges
        start = stop


def unit_breaks(channel: Channel, low: int, high: int) -> Ints:
    """Return the breaks of the channel and every whole unit."""
    return np.union1d(channel.breaks(low, high), np.arange(low, high + 1) * channel.resolution)


def middles(edges: Ints) -> Ints:
    """Return a token inside each cell; all tokens of a cell are alike.

    A middle one stays in its cell when it is rounded to a float, also where a float no longer tells every part.
    """
    return (edges[:-1] + edges[1:] + 1) // 2


def silence(channel: Channel, rows: Ints) -> Floats:
    """Return the probability of 'nothing' for each row, with all its digits also where it is tiny."""
    silent = 1.0 - channel.reporting_probability(rows)
    tiny = np.flatnonzero(silent < _TINY)
    if len(tiny):
        asked, last = rows[tiny], getattr(channel, "last_row", None)
        if last is not None and last < asked.max():  # rows settle there, so one stands for all that look the same
            settled = (asked > last) & (silent[tiny] == 1.0 - channel.reporting_probability([last]))
            asked = np.where(settled, last, asked)
        known, place = np.unique(asked, return_inverse=True)
        silent[tiny] = np.array([channel.row(int(i)).silent for i in known])[place]
    return np.asarray(silent, dtype=np.float64)
