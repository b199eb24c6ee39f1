"""Rows are bands: a key of frequency i comes out near i. So tables are made piece by piece, never whole."""

from collections.abc import Iterator

import numpy as np

from dpsieve.channels.channel import Channel
from dpsieve.estimation.checks import Floats, Ints

CELLS = 1 << 20  # entries of one piece of a table
_NEARLY_ONE = 1e-6


def reach(channel: Channel) -> int:
    """Return the number of units such that row i has all its tokens in (i - reach, i + reach]."""
    return int(getattr(channel, "reach", getattr(channel, "last_row", 0) + 1))


def windows(channel: Channel, rows: Ints) -> Iterator[tuple[slice, Ints]]:
    """Cut increasing rows into runs; yield each with token edges that span all tokens of its rows."""
    wide, start = reach(channel), 0
    while start < len(rows):
        stop = int(np.searchsorted(rows, rows[start] + max(wide // 2, 16), side="right"))
        edges = channel.breaks(max(int(rows[start]) - wide, 0), int(rows[stop - 1]) + wide)
        step = max(CELLS // len(edges), 1)
        for first in range(start, stop, step):
            yield slice(first, min(first + step, stop)), edges
        start = stop


def middles(edges: Ints) -> Ints:
    """Return a token inside each cell; all tokens of a cell are alike.

    A middle one stays in its cell when it is rounded to a float, also where a float no longer tells every part.
    """
    return (edges[:-1] + edges[1:] + 1) // 2


def silence(channel: Channel, rows: Ints) -> Floats:
    """Return the probability of 'nothing' for each row, with all its digits also where it is tiny."""
    silent = 1.0 - channel.reporting_probability(rows)
    repeats = int(getattr(channel, "last_row", 0)) or None  # from this row on all rows are alike but for their place
    tiny = np.flatnonzero(silent < _NEARLY_ONE)
    known, place = np.unique(np.minimum(rows[tiny], repeats) if repeats else rows[tiny], return_inverse=True)
    silent[tiny] = np.array([channel.row(int(i)).silent for i in known])[place] if len(tiny) else 0.0
    return np.asarray(silent, dtype=np.float64)
