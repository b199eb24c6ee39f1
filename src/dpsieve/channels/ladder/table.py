"""A table on a ladder for one scheme: rows for every frequency up to 10^12, from a few hundred thousand."""

import math
from dataclasses import dataclass, replace

import numpy as np

from dpsieve.channels.grid import FACTOR_BITS, ONE, Steps, floor_words
from dpsieve.channels.ladder.climb import make_places, most_lost, widest
from dpsieve.channels.ladder.stairs import MOST_ROWS, Stairs, stairs_below
from dpsieve.channels.rows import LARGEST_FREQUENCY
from dpsieve.channels.stepwise.rows import constant_from
from dpsieve.errors import NotCertified
from dpsieve.privacy.ladder_kernel import LadderTable, examine_ladder
from dpsieve.sampling.schemes import Scheme
from dpsieve.types import Floats, Words

_SURE = 1e-5  # 'nothing' keeps at least this much on the ladder
_TAIL = 1 << 25  # cells: a longer way from all but certain to certain is not gone
_MOST_BITS = (2**63 // LARGEST_FREQUENCY).bit_length() - 1  # of the parts of a unit
_BELOW = 1 - 1e-12  # wanted masses are lowered by more than floats may be off


@dataclass(frozen=True, eq=False)
class Made:
    """A table up to the frequency `stop` - 1.

    From there on, if `sure`, q stays as it is and is all but one, and other rows follow; else there is no such
    frequency. `levels` are those of the stairs; `loss` is that of `SampledRows`.
    """

    table: LadderTable
    sure: bool
    levels: Words
    loss: float
    height: float

    def examined(self, epsilon: float, delta: float) -> tuple[float, Words]:
        """Return the worst divergence, and an upper bound on the reported mass of each row, in words."""
        verdict, totals = examine_ladder(self.table, epsilon, delta)
        if not verdict.accepted:
            raise NotCertified(verdict.reason)
        if not self.sure and len(self.table.c) - 1 not in self.table.repeated:
            raise NotCertified("the last row has not settled")
        stair = np.searchsorted(self.table.first, np.arange(1, len(totals)), side="right") - 1
        high, low = self.levels[stair, 0], self.levels[stair, 1]
        if ((totals[1:, 0] > high) | (totals[1:, 0] == high) & (totals[1:, 1] > low)).any():
            raise NotCertified("a key is reported more often than it is sampled")
        return verdict.worst, totals

    def divergence(self, epsilon: float, reported: Floats) -> float:
        """Return the largest divergence of adjacent rows at an epsilon below that of the table, in floats."""
        masses = self.table.floats
        sums = np.append(0.0, np.cumsum(masses[self.table.birth :]))
        places, birth, parts = (self.table.c, self.table.b), self.table.birth, self.table.parts
        return float(widest(*places, masses, sums, birth, parts, reported, math.exp(epsilon)))


def made_table(epsilon: float, delta: float, spread: int, scheme: Scheme) -> Made | None:
    """Return a table for a scheme, None where it has no place on the ladder."""
    steps, parts = Steps(epsilon, delta), _parts(epsilon, delta, spread)
    masses, inverse = _rungs(steps, parts, spread)
    settle = math.ceil(math.log1p(math.expm1(epsilon) / delta) / epsilon) + 1
    end = max(_SURE, 8 * math.tanh(epsilon / 2) / parts)
    stairs = stairs_below(scheme, settle, end)
    nothing = np.zeros(1, np.int64)
    empty = LadderTable(masses, spread, inverse, parts, c=nothing, b=nothing, starts=nothing, first=nothing, stop=1)
    return _made(steps, empty, stairs, end, scheme)


def _made(steps: Steps, empty: LadderTable, stairs: Stairs, end: float, scheme: Scheme) -> Made | None:
    """Fill in the places of an empty table."""
    sure, stop = bool(stairs.levels[-1] >= 1 - end) and empty.birth**2 <= _TAIL, 2 * LARGEST_FREQUENCY
    if sure:
        stop = max(int(stairs.starts[-1]) + 1, constant_from(scheme, LARGEST_FREQUENCY))
    ends, birth = np.append(stairs.starts, stop), empty.birth
    masses = empty.floats
    numbers = np.array([steps.delta / ONE * _BELOW, 2.0**64 / empty.inverse, empty.inverse / 2.0**64])
    sums = np.append(0.0, np.cumsum(masses[birth:]))
    room = int(min(np.minimum(np.diff(ends), 4 * birth).sum(), 4 * MOST_ROWS)) + 2
    (c, b), reported, first = np.zeros((2, room), np.int64), np.zeros(room), np.zeros(len(ends), np.int64)
    last = make_places(
        ends, stairs.levels * _BELOW, numbers, masses, sums, birth, empty.parts, c, b, first, reported
    )  # fmt: skip
    if last == 0 or (np.arange(last + 1) - b[: last + 1] // empty.parts > birth).any():  # which is the spread
        return None
    c, b = c[: last + 1].copy(), b[: last + 1].copy()
    table = replace(empty, c=c, b=b, starts=stairs.starts, first=first, stop=stop)
    stair = np.repeat(np.arange(len(ends) - 1), np.diff(first))
    q = scheme.inclusion(np.minimum(stairs.starts[stair] + np.arange(1, last + 1) - first[stair], LARGEST_FREQUENCY))
    is_last = np.append(stair[1:] != stair[:-1], True) & (np.diff(first) < np.diff(ends))[stair]
    last_q = q.copy()
    last_q[is_last] = scheme.inclusion(np.minimum(ends[1:] - 1, LARGEST_FREQUENCY))[stair[is_last]]
    loss = most_lost(numbers, masses[birth], reported[1 : last + 1], q, is_last, last_q)
    return Made(table, sure, np.column_stack(floor_words(stairs.levels)), loss, stairs.height)


def _parts(epsilon: float, delta: float, spread: int) -> int:
    """Return how many parts a unit is cut into: the more, the higher the rungs are, which a whole token may lose.

    A new token keeps 40 bits, a row stays below 2^30 tokens, and those of the largest frequency are 64-bit numbers.
    """
    wanted = min(_MOST_BITS, 20 + max(0, math.ceil(epsilon / math.log(2)) - 7))
    return 1 << max(0, math.floor(min(wanted, math.log2(delta) + 88, 30 - math.log2(spread))))


def _rungs(steps: Steps, parts: int, below: int) -> tuple[tuple[int, ...], int]:
    """Return a ladder whose rung `below` is the mass of a new token, and the factor from each rung to the one below."""
    inverse = -((-1 << 64 + FACTOR_BITS) // steps.factor) + 1
    top, total, above = steps.delta // parts, 0, 0
    while (total + top) * parts < ONE:
        total, top, above = total + top, (top << 64) // inverse, above + 1
    masses = [top]
    for _ in range(above + below):
        masses.append(-(-masses[-1] * inverse >> 64))
    return tuple(masses[::-1]), inverse
