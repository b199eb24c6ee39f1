"""The two other estimators of the paper: never too large on average, and unbiased."""

from collections.abc import Callable

import numpy as np

from dpsieve.channels.channel import ReportedCounts, Target
from dpsieve.channels.law import TokenLaw
from dpsieve.errors import InvalidValue
from dpsieve.estimation.estimators import Estimator, check_channel
from dpsieve.types import Floats, Ints

LIMIT = 10**6  # units: the largest token of the biased-down estimator
_BLOCK = 64  # units of tokens, and rows, per block
_SAFE = 1 - 1e-11  # outweighs rounding, so that E_i <= g(i) holds for the floats themselves
_LARGEST = 1e150  # squares must stay finite
_FIX = "Use dpsieve.estimation.estimator, or minimax with a range of frequencies."


def biased_down(channel: ReportedCounts, g: Callable[[Floats], Floats] | None = None) -> "BiasedDown":
    """Return the estimator that is never too large on average, for any frequency; see `BiasedDown`.

    >>> from dpsieve.channels.unknown_keys import optimal
    >>> biased_down(optimal(1.0, 1e-3)).bias([5, 20, 100]).round(2).tolist()
    [-4.21, -2.73, -2.7]
    """
    return BiasedDown(_check_unsampled(channel), Target(g))


def unbiased(channel: ReportedCounts, g: Callable[[Floats], Floats] | None = None) -> "Unbiased":
    """Return the estimator that is right on average for every frequency, with huge variance; see `Unbiased`.

    >>> from dpsieve.channels.unknown_keys import simple
    >>> unbiased(simple(1.0, 1e-2)).value([1, 2, 3]).round().tolist()
    [100.0, -72.0, -244.0]
    """
    return Unbiased(_check_unsampled(channel), Target(g))


def _check_unsampled(channel: object) -> ReportedCounts:
    if check_channel(channel).sampling_rate < 1:
        fix = "Use dpsieve.estimation.estimator, or scaled, which is token / rate"
        raise InvalidValue(f"channel samples counts, which this estimator does not support. {fix}.")
    return check_channel(channel)


class BiasedDown(Estimator):
    """The largest estimates, cell by cell from the lowest token on, that keep E_i <= g(i) for every frequency i.

    With p_i(t) the probability of cell t for frequency i (Cohen, Geri, Sarlos, Stemmer 2020, (12)):

        a_t = min over i of  r_i(t) = (g(i) - sum_{h<t} a_h p_i(h)) / (pi_i - sum_{h<t} p_i(h)).

    The minimum is over every row that may reach the cell, also beyond the largest frequency in the data.

    E_i <= g(i): the last cell of row i takes at most the remainder of g(i). Non-decreasing: as a_t <= r_i(t),

        r_i(t+1) = r_i(t) + (r_i(t) - a_t) p_i(t) / sum_{h>t} p_i(h) >= r_i(t),

    and a row joins the minimum a unit before its first token, with r_i = g(i) / pi_i; so the values do not decrease
    as long as g(i) / pi_i does not for rows beyond the spread of the rows. It never does where pi_i stays the same
    there, as without sampling. The code uses this form of r_i, whose terms are not negative: E_i <= g(i) holds up
    to a relative error of the number of cells times 1e-16, and a factor of 1 - 1e-11 more than covers that.

    Values are computed in order, up to the largest token needed, and cached. Tokens may be at most 10^6.
    """

    kind = "biased_down"

    def __init__(self, channel: ReportedCounts, target: Target) -> None:
        super().__init__(channel, target)
        self._spread = channel.rows.spread + 1
        self._ends: Ints = np.empty(0, np.int64)  # the last token of each cell
        self._values: Floats = np.empty(0)
        self._ratios: dict[int, Floats] = {}  # r_i of groups of rows, after the cells computed so far
        self._above: dict[int, tuple[int, Floats]] = {}  # a block, and the mass of each row from there on, per block

    def values(self, parts: Ints) -> Floats:
        """Return the value of the cell of each token."""
        largest = int(parts.max(initial=1))
        if largest > LIMIT * self.channel.resolution:
            hint = "Use dpsieve.estimation.estimator for larger ones."
            raise InvalidValue(f"biased_down is limited to tokens and frequencies up to {LIMIT:,}. {hint}")
        if not len(self._ends) or largest > self._ends[-1]:
            self._extend(largest)
        return _SAFE * self._values[np.searchsorted(self._ends, parts)]

    def _extend(self, token: int) -> None:
        """Compute the values of all cells up to a token, and some more, so that small steps do not add up."""
        size = _BLOCK * self.channel.resolution
        first = int(self._ends[-1]) // size if len(self._ends) else 0
        last = max(-(-token // size), first + first // 4)
        ends, values = [self._ends], [self._values]
        for block in range(first, last):
            edges = self.channel.rows.cell_edges(block * _BLOCK, (block + 1) * _BLOCK)
            ends.append(edges[1:])
            values.append(self._solve(block, edges))
        self._ends, self._values = np.concatenate(ends), np.concatenate(values)

    def _solve(self, block: int, edges: Ints) -> Floats:
        """Return the values of the cells of one block, and advance the ratios of its rows past it."""
        groups = range(*_span(block, self._spread))
        for old in [group for group in self._ratios if group < groups.start]:
            del self._ratios[old], self._above[old]
        for new in [group for group in groups if group not in self._ratios]:
            self._enter(new)
        rows = np.concatenate([_rows(group) for group in groups])
        ratio = np.concatenate([self._ratios[group] for group in groups])
        beyond = np.concatenate([self._beyond(group, block) for group in groups])
        mass = self.channel.rows.cell_probabilities(rows, edges).T
        above = np.cumsum(np.vstack([beyond, mass[:0:-1]]), axis=0)[::-1]  # the mass of each row above each cell
        step = np.divide(mass, above, out=np.zeros_like(mass), where=above > 0)
        units = -(-edges[1:] // self.channel.resolution)
        joins = (mass + above > 0) & (rows <= units[:, None] + self._spread)
        values = np.empty(len(mass))
        for cell in range(len(mass)):
            values[cell] = ratio.min(where=joins[cell], initial=np.inf)
            ratio += (ratio - values[cell]) * step[cell]
        for group, part in zip(groups, np.split(ratio, len(groups)), strict=True):
            self._ratios[group] = part
        return values

    def _enter(self, group: int) -> None:
        """Start a group of rows: their ratios, and their mass from each block on."""
        rows = _rows(group)
        first, stop = _span(group, self._spread)
        edges = unit_edges(self.channel.rows, first * _BLOCK, stop * _BLOCK)
        starts = np.searchsorted(edges, np.arange(first, stop) * _BLOCK * self.channel.resolution)
        blocks = np.add.reduceat(self.channel.rows.cell_probabilities(rows, edges), starts, axis=1)
        onwards = np.cumsum(blocks[:, ::-1], axis=1)[:, ::-1]
        self._above[group] = first, np.hstack([onwards, np.zeros((len(rows), 1))])
        reported = self.channel.rows.reported(rows)
        self._ratios[group] = np.divide(self.target(rows), reported, out=np.zeros(len(rows)), where=reported > 0)

    def _beyond(self, group: int, block: int) -> Floats:
        """Return the mass of each row of a group above a block."""
        first, above = self._above[group]
        return above[:, min(max(block + 1 - first, 0), above.shape[1] - 1)]


def _rows(group: int) -> Ints:
    return np.arange(group * _BLOCK + 1, (group + 1) * _BLOCK + 1)


def _span(block: int, spread: int) -> tuple[int, int]:
    """Return the range of the groups of rows that reach a block of tokens, and vice versa."""
    return max((block * _BLOCK - spread) // _BLOCK, 0), ((block + 1) * _BLOCK + spread) // _BLOCK + 1


class Unbiased(Estimator):
    """The only estimator that is constant on each unit of tokens (j - 1, j] and has E_i = g(i) for every i.

    With p_ij the probability of unit j <= i for frequency i (Cohen, Geri, Sarlos, Stemmer 2021, 7.1):

        a_i = (g(i) - sum_{j<i} p_ij a_j) / p_ii.

    As p_ii is at most delta, values start at g(1)/delta, take both signs, and grow by a factor of about 1/delta every L
    units (L is the frequency reported half of the time); no unbiased estimator avoids negative values (2020, appendix
    D). Standard deviations are as large. It is for study, and for large delta.

    Accuracy: substitution leaves |E_i - g(i)| <= n 1e-16 sum_j p_ij |a_j|, with n the number of units in a row, which
    is at most n 1e-16 root mean squares of the estimate. So E_i has few correct digits from i = 2L on, while this error
    is always far below the noise. Values above 1e150 are refused.
    """

    kind = "unbiased"

    def __init__(self, channel: ReportedCounts, target: Target) -> None:
        super().__init__(channel, target)
        self._spread = channel.rows.spread
        self._values: Floats = np.empty(0)  # the value of each unit

    def values(self, parts: Ints) -> Floats:
        """Return the value of the unit of each token."""
        units = -(-parts // self.channel.resolution)
        while len(self._values) < units.max(initial=0):
            self._values = np.append(self._values, self._solve(len(self._values)))
        values = self._values[units - 1]
        if not (np.abs(values) <= _LARGEST).all():
            raise InvalidValue(f"unbiased exceeds {_LARGEST:g} for these tokens or frequencies. {_FIX}")
        return values

    def _solve(self, start: int) -> Floats:
        """Return the values of the units after `start`; once one is too large, all are."""
        if start and not abs(self._values[-1]) <= _LARGEST:
            raise InvalidValue(f"unbiased exceeds {_LARGEST:g} for these tokens or frequencies. {_FIX}")
        from scipy.linalg import solve_triangular

        rows = np.arange(start + 1, start + _BLOCK + 1)
        low = max(start + 1 - self._spread, 0)
        edges = unit_edges(self.channel.rows, low, start + _BLOCK + self._spread)
        starts = np.searchsorted(edges, np.arange(low, start + _BLOCK + self._spread) * self.channel.resolution)
        mass = np.add.reduceat(self.channel.rows.cell_probabilities(rows, edges), starts, axis=1)
        own = mass[:, start - low : start - low + _BLOCK]
        above = np.triu(own, 1).any() or mass[:, start - low + _BLOCK :].any()
        if above or not own.diagonal().all():
            needed = "a channel that reports every frequency, and no token above it"
            raise InvalidValue(f"unbiased needs {needed}. {_FIX}")
        with np.errstate(over="ignore", invalid="ignore"):
            right = self.target(rows) - mass[:, : start - low] @ self._values[low:start]
            return np.asarray(solve_triangular(own, right, lower=True, check_finite=False), dtype=np.float64)


def unit_edges(rows: TokenLaw, low: int, high: int) -> Ints:
    """Return the cell edges of the rows and every whole unit.

    >>> from dpsieve.channels.unknown_keys import simple
    >>> unit_edges(simple(1.0, 1e-2).rows, 3, 6).tolist()
    [3, 4, 5, 6]
    """
    return np.union1d(rows.cell_edges(low, high), np.arange(low, high + 1) * rows.resolution)
