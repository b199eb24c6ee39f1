"""Stairs below a sampling scheme: frequencies that share one reporting probability, and how much that loses.

A stair begins where q has grown by the factor 1 + height since the last one, and keeps the q of its first frequency. So
its level is at most q, never decreases, and is above q / (1 + height). Where stairs would be shorter than the rows they
take to settle, every frequency is a stair of its own, and nothing is lost. The last one begins where 1 - q is `end`:
closer to one, 'nothing' would have little more than a token.
"""

import math
from dataclasses import dataclass

import numpy as np

from dpsieve.channels.rows import LARGEST_FREQUENCY
from dpsieve.sampling.schemes import Scheme
from dpsieve.types import Floats, Ints

HEIGHT, MOST_ROWS = 9e-4, 1 << 23


@dataclass(frozen=True, eq=False)
class Stairs:
    """Stair k has the frequencies starts[k] to starts[k+1] - 1 and the level levels[k], q of its first frequency."""

    starts: Ints
    levels: Floats
    height: float


def stairs_below(scheme: Scheme, settle: int, end: float) -> Stairs:
    """Return the lowest stairs of which no more than MOST_ROWS rows are made, if each takes `settle` rows at most."""
    height = HEIGHT
    while True:
        starts = _starts(scheme, height, end)
        gaps = np.diff(starts, append=LARGEST_FREQUENCY + 1)
        if np.minimum(gaps, settle).sum() <= MOST_ROWS or height > 1:
            break
        height *= 2
    # Short stairs are filled up: start, start + 1, ..., one for each frequency.
    often = np.where(gaps < settle, gaps, 1)
    first = np.cumsum(often) - often
    starts = np.repeat(starts - first, often) + np.arange(often.sum())
    return Stairs(starts, scheme.inclusion(starts), height)


def _starts(scheme: Scheme, height: float, end: float) -> Ints:
    """Return where stairs of this height begin: the first frequency that reaches each of some levels."""
    first, last = scheme.inclusion([1, LARGEST_FREQUENCY]).tolist()
    last, least = min(last, 1 - end), max(first, 1e-30)
    up = least * np.exp(np.arange(max(0.0, math.log(last / least)), step=math.log1p(height)) if last > 0 else [])
    wanted = np.append(up, last)
    low, high = np.ones(len(wanted), np.int64), np.full(len(wanted), LARGEST_FREQUENCY)
    while (low < high).any():
        middle = (low + high) // 2
        reached = scheme.inclusion(middle) >= wanted
        low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
    return np.unique(np.append(1, low))
