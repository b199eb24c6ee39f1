"""The biased-down estimator: non-decreasing, and never too large on average."""

import numpy as np

from dpsieve.channels.channel import Channel, Target
from dpsieve.errors import InvalidValue
from dpsieve.estimation.estimators import Estimator, unit_edges
from dpsieve.types import Floats, Ints

LIMIT = 10**6  # units
_BLOCK = 64  # units of tokens, and rows, that are worked on together
_SAFE = 1 - 1e-11  # takes off more than rounding may add, so that E_i <= g(i) holds for the numbers themselves


class BiasedDown(Estimator):
    """The largest estimates, cell by cell from the lowest token on, that keep E_i <= g(i) for every frequency i.

    With p_i(t) the probability of cell t for frequency i (Cohen, Geri, Sarlos, Stemmer 2020, (12)):

        a_t = min over i of  r_i(t) = (g(i) - sum_{h<t} a_h p_i(h)) / (pi_i - sum_{h<t} p_i(h)).

    The minimum is over every row that may reach the cell, also beyond the largest frequency in the data.

    E_i <= g(i): the last cell of row i takes at most what is left of g(i). Non-decreasing: as a_t <= r_i(t),

        r_i(t+1) = r_i(t) + (r_i(t) - a_t) p_i(t) / sum_{h>t} p_i(h) >= r_i(t),

    and a row joins the minimum a unit before its first token, with r_i = g(i) / pi_i; so the values do not decrease
    as long as g(i) / pi_i does not for rows beyond the spread of the rows. It never does where pi_i stays the same
    there, as without sampling. The code uses this form of r_i, which only adds what is not negative: E_i <= g(i)
    holds up to the number of cells times 1e-16, relatively, and a factor of 1 - 1e-11 more than covers that.

    Values are found in order, up to the largest token needed, and kept. Tokens may be at most 10^6.
    """

    kind = "biased_down"

    def __init__(self, channel: Channel, target: Target) -> None:
        super().__init__(channel, target)
        self._spread = channel.rows.spread + 1
        self._ends: Ints = np.empty(0, np.int64)  # the last token of each cell
        self._found: Floats = np.empty(0)
        self._ratios: dict[int, Floats] = {}  # r_i of groups of rows, as far as the cells have been found
        self._above: dict[int, tuple[int, Floats]] = {}  # a block, and what each row has from there on, block by block

    def values(self, parts: Ints) -> Floats:
        """Return the value of the cell of each token."""
        largest = int(parts.max(initial=1))
        if largest > LIMIT * self.channel.resolution:
            hint = "Use kind='mle' for larger ones."
            raise InvalidValue(f"kind='biased_down' is limited to tokens and frequencies up to {LIMIT:,}. {hint}")
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
            edges = self.channel.rows.cell_edges(block * _BLOCK, (block + 1) * _BLOCK)
            ends.append(edges[1:])
            found.append(self._solve(block, edges))
        self._ends, self._found = np.concatenate(ends), np.concatenate(found)

    def _solve(self, block: int, edges: Ints) -> Floats:
        """Return the values of the cells of one block, and move the ratios of its rows past it."""
        groups = range(*_span(block, self._spread))
        for old in [group for group in self._ratios if group < groups.start]:
            del self._ratios[old], self._above[old]
        for new in [group for group in groups if group not in self._ratios]:
            self._enter(new)
        rows = np.concatenate([_rows(group) for group in groups])
        ratio = np.concatenate([self._ratios[group] for group in groups])
        beyond = np.concatenate([self._beyond(group, block) for group in groups])
        mass = self.channel.rows.cell_probabilities(rows, edges).T
        rest = np.cumsum(np.vstack([beyond, mass[:0:-1]]), axis=0)[::-1]  # what each row has above each cell
        step = np.divide(mass, rest, out=np.zeros_like(mass), where=rest > 0)
        units = -(-edges[1:] // self.channel.resolution)
        joins = (mass + rest > 0) & (rows <= units[:, None] + self._spread)
        values = np.empty(len(mass))
        for cell in range(len(mass)):
            values[cell] = ratio.min(where=joins[cell], initial=np.inf)
            ratio += (ratio - values[cell]) * step[cell]
        for group, part in zip(groups, np.split(ratio, len(groups)), strict=True):
            self._ratios[group] = part
        return values

    def _enter(self, group: int) -> None:
        """Start a group of rows: their ratios, and what mass they have from each block on."""
        rows = _rows(group)
        first, stop = _span(group, self._spread)
        edges = unit_edges(self.channel.rows, first * _BLOCK, stop * _BLOCK)
        starts = np.searchsorted(edges, np.arange(first, stop) * _BLOCK * self.channel.resolution)
        blocks = np.add.reduceat(self.channel.rows.cell_probabilities(rows, edges), starts, axis=1)
        from_there_on = np.cumsum(blocks[:, ::-1], axis=1)[:, ::-1]
        self._above[group] = first, np.hstack([from_there_on, np.zeros((len(rows), 1))])
        reported = self.channel.rows.reported(rows)
        self._ratios[group] = np.divide(self.target(rows), reported, out=np.zeros(len(rows)), where=reported > 0)

    def _beyond(self, group: int, block: int) -> Floats:
        """Return the mass that each row of a group has above a block."""
        first, above = self._above[group]
        return above[:, min(max(block + 1 - first, 0), above.shape[1] - 1)]


def _rows(group: int) -> Ints:
    return np.arange(group * _BLOCK + 1, (group + 1) * _BLOCK + 1)


def _span(block: int, wide: int) -> tuple[int, int]:
    """Return the first and one past the last group of rows that reach a block of tokens, and the other way round."""
    return max((block * _BLOCK - wide) // _BLOCK, 0), ((block + 1) * _BLOCK + wide) // _BLOCK + 1
