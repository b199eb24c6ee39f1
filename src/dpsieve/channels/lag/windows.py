"""Exact confidence intervals for the true frequency, by inverting the rows.

For each frequency i take the shortest window of tokens that holds a reported key of frequency i with probability at
least `level` (given that it is reported). The interval of a token spans the frequencies whose window holds it. So for
every i: P[i lies in the interval | a key of frequency i is reported] >= level (Neyman's construction).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsieve.channels.lag.optimal import Lag

Ints = NDArray[np.int64]
_EDGES = 2048
_ROWS = 4096  # with more rows, neighbours whose reported mass differs by less than 2 % share a window
_ALIKE = 0.02
_SAFE = 1e-11  # windows are made this much heavier than asked, relatively, which covers all rounding


@dataclass(frozen=True)
class LagWindows:
    """The windows of an additive channel: row i has lags nearest[i-1] to farthest[i-1]; the last serves all beyond."""

    resolution: int
    nearest: Ints
    farthest: Ints

    @classmethod
    def of(cls, lag: Lag, resolution: int, rows: int, level: float) -> "LagWindows":
        """Find the shortest windows for rows 1 to `rows`."""
        edges = np.array(lag.edges, dtype=np.float64)
        mass = np.array([m / 2**128 for m in lag.masses])
        sums = np.concatenate([[0.0], np.cumsum(mass * np.diff(edges))])
        # Where the window of the whole lag fits into a row, it holds the level there, too, and more need not be sought.
        whole = _shortest(edges, sums, int(edges[-1]), level)
        fits = min(rows, int(whole[1]) // resolution + 1)
        below = np.interp(np.arange(1, fits + 1) * resolution, edges, sums)
        groups = np.arange(fits) if fits <= _ROWS else np.floor(np.log(np.maximum(below, 1e-300)) / _ALIKE)
        first = np.flatnonzero(np.diff(groups, prepend=-np.inf))
        last = np.append(first[1:], fits) - 1
        # With (1 - l) P[lag < last] = (1 - level) P[lag < first], a window of the last row at level l serves its group.
        missing = (1 - level) * below[first] / np.maximum(below[last], 1e-300)
        ends = zip(((last + 1) * resolution).tolist(), (1 - missing).tolist(), strict=True)
        found = np.array([_shortest(edges, sums, top, high) for top, high in ends], dtype=np.int64).reshape(-1, 2)
        spans = np.concatenate([np.repeat(found, last - first + 1, axis=0), np.full((rows - fits, 2), whole)])
        return cls(resolution, spans[:, 0].copy(), spans[:, 1].copy())

    def interval(self, tokens: Ints) -> tuple[Ints, Ints]:
        """Return the lowest and the highest frequency whose window holds each token."""
        rows = len(self.nearest)
        own = np.arange(1, rows + 1) * self.resolution
        tops = np.maximum.accumulate(own - self.nearest)
        bottoms = np.minimum.accumulate((own - self.farthest)[::-1])[::-1]
        near, far = int(self.nearest[-1]), int(self.farthest[-1])
        low = 1 + np.searchsorted(tops, tokens, side="left")
        beyond = -(-(tokens + near) // self.resolution)
        low = np.where(low > rows, np.maximum(beyond, rows), low)
        high = (tokens + far) // self.resolution
        inside = np.searchsorted(bottoms, tokens, side="right")
        return low, np.maximum(np.where(high >= rows, high, inside), low)


def _shortest(edges: NDArray[np.float64], sums: NDArray[np.float64], top: int, level: float) -> tuple[int, int]:
    """Return the first and last lag of the shortest window, within lags below `top`, that holds `level` of their mass.

    A shortest window begins or ends at an edge of a cell, as mass is even in between.
    """
    end = min(float(top), edges[-1])
    if level >= 1 or end <= edges[0]:
        return int(edges[0]), int(end) - 1
    whole = np.interp(end, edges, sums)
    # With very many cells only some edges are tried, at which a window may begin and end: longer by a two-thousandth.
    step = 1 + len(edges) // _EDGES
    keep = np.flatnonzero(edges < end)[::step]
    edges, sums = np.append(edges[keep], end), np.append(sums[keep], whole)
    need = min(level * (1 + _SAFE), 1.0) * whole
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
