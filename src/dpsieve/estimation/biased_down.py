"""The biased-down estimator: non-decreasing, and never too large on average."""

import numpy as np

from dpsieve.channels.channel import Channel
from dpsieve.errors import InvalidValue
from dpsieve.estimation.base import Estimator
from dpsieve.estimation.checks import Floats, Ints
from dpsieve.estimation.target import Target
from dpsieve.estimation.windows import reach

LIMIT = 10**6  # units
_BLOCK = 64  # units that are worked on together
_SAFE = 1 - 1e-11  # more than what rounding may add, so that E_i <= g(i) holds for the numbers themselves


class BiasedDown(Estimator):
    """The largest estimates, cell by cell from the lowest token on, that keep E_i <= g(i) for every frequency i.

    With p_i(t) the probability of cell t for frequency i (Cohen, Geri, Sarlos, Stemmer 2020, (12)):

        a_t = min over all i with p_i(t) > 0 of  r_i(t) = (g(i) - sum_{h<t} a_h p_i(h)) / (pi_i - sum_{h<t} p_i(h)).

    The minimum is over every row that reaches the cell, also those beyond any frequency in the data. r_i(t) never
    decreases in t, as r_i(t+1) = r_i(t) + (r_i(t) - a_t) p_i(t) / sum_{h>t} p_i(h) and a_t <= r_i(t); so the values
    do not decrease either. That form is used here: it adds only what is not negative, so E_i <= g(i) holds up to a
    relative rounding error of the number of cells times 1e-16, which a factor of 1 - 1e-11 more than covers.

    Values are found in order, up to the largest token asked for, and kept. Tokens may be at most 10^6.
    """

    kind = "biased_down"

    def __init__(self, channel: Channel, target: Target) -> None:
        super().__init__(channel, target)
        self._reach = reach(channel)
        self._ends: Ints = np.empty(0, np.int64)  # the last token of each cell
        self._found: Floats = np.empty(0)
        self._ratios: dict[int, Floats] = {}  # r_i of the rows of each block, as far as the cells have been found
        self._tails: dict[int, tuple[int, Floats]] = {}

    def _values(self, parts: Ints) -> Floats:
        largest = int(parts.max(initial=0))
        if largest > LIMIT * self.channel.resolution:
            hint = "Use kind='mle' for larger ones: both hardly differ there."
            raise InvalidValue(f"tokens holds one above {LIMIT:,}, and kind='biased_down' goes so far only. {hint}")
        if not len(self._ends) or largest > self._ends[-1]:
            self._extend(largest)
        return _SAFE * self._found[np.searchsorted(self._ends, parts)]

    def _extend(self, token: int) -> None:
        """Find the values of all cells up to a token, and some more, so that small steps do not add up."""
        size = _BLOCK * self.channel.resolution
        first = int(self._ends[-1]) // size if len(self._ends) else 0
        last = max(-(-token // size), first + first // 4)
        ends, found = [self._ends], [self._found]
        for block in range(first, last):
            edges = self.channel.breaks(block * _BLOCK, (block + 1) * _BLOCK)
            ends.append(edges[1:])
            found.append(self._solve(block, edges))
        self._ends, self._found = np.concatenate(ends), np.concatenate(found)

    def _solve(self, block: int, edges: Ints) -> Floats:
        """Return the values of the cells of one block, and move the ratios of its rows past it."""
        groups = range(max((block * _BLOCK - self._reach) // _BLOCK, 0), _group(block, self._reach) + 1)
        for old in [group for group in self._ratios if group < groups.start]:
            del self._ratios[old], self._tails[old]
        for new in [group for group in groups if group not in self._ratios]:
            self._enter(new)
        rows = np.concatenate([_rows(group) for group in groups])
        ratio = np.concatenate([self._ratios[group] for group in groups])
        after = np.concatenate([self._after(group, block) for group in groups])
        mass = self.channel.masses(rows, edges).T
        rest = np.cumsum(np.vstack([after, mass[:0:-1]]), axis=0)[::-1]  # what each row has above each cell
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where((mass > 0) & (rest > 0), mass / rest, 0.0)
        values, present = np.empty(len(mass)), mass > 0
        for cell in range(len(mass)):
            least = ratio.min(where=present[cell], initial=np.inf)
            values[cell] = least
            if np.isfinite(least):
                ratio += (ratio - least) * step[cell]
        for group, part in zip(groups, np.split(ratio, len(groups)), strict=True):
            self._ratios[group] = part
        return _filled(values)

    def _enter(self, group: int) -> None:
        """Start the rows of a group: their ratios, and what mass they have above each block."""
        rows = _rows(group)
        first, last = max((int(rows[0]) - self._reach) // _BLOCK, 0), _group(group, self._reach)
        edges = self.channel.breaks(first * _BLOCK, (last + 1) * _BLOCK)
        starts = np.searchsorted(edges, np.arange(first, last + 1) * _BLOCK * self.channel.resolution)
        blocks = np.add.reduceat(self.channel.masses(rows, edges), starts, axis=1)
        above = np.cumsum(blocks[:, :0:-1], axis=1)[:, ::-1]
        self._tails[group] = first, np.hstack([above, np.zeros((len(rows), 1))])
        reported = self.channel.reporting_probability(rows)
        self._ratios[group] = np.divide(self.target(rows), reported, out=np.zeros(len(rows)), where=reported > 0)

    def _after(self, group: int, block: int) -> Floats:
        """Return the mass that each row of a group has above a block."""
        first, above = self._tails[group]
        return above[:, min(max(block - first, 0), above.shape[1] - 1)]


def _rows(group: int) -> Ints:
    return np.arange(group * _BLOCK + 1, (group + 1) * _BLOCK + 1)


def _group(block: int, wide: int) -> int:
    """Return the last group of rows that reaches a block; also the last block that a group reaches."""
    return ((block + 1) * _BLOCK + wide) // _BLOCK


def _filled(values: Floats) -> Floats:
    """Give cells that no row reaches the value before them."""
    return np.maximum.accumulate(np.where(np.isfinite(values), values, 0.0))
