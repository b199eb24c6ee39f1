"""The estimator with the smallest worst error over a range of frequencies."""

import numpy as np

from dpsieve.channels.channel import Channel
from dpsieve.errors import InvalidValue
from dpsieve.estimation.base import Estimator
from dpsieve.estimation.checks import Floats, Ints
from dpsieve.estimation.likelihood import MaximumLikelihood
from dpsieve.estimation.program import Program
from dpsieve.estimation.target import Target
from dpsieve.estimation.windows import CELLS, middles, silence, unit_breaks

WIDEST = 100_000
_ROWS = 300  # rows of the program; others get weights in between
_WIDE = 1000  # ranges up to this wide are covered whole
_GROUPS = 1500  # groups of cells of the program
_NEGLIGIBLE = 1e-12  # a relative error that is but rounding


class Minimax(Estimator):
    """An estimator whose worst normalised error, max over low <= i <= high of sqrt(MSE_i) / g(i), is nearly the least.

    It is the best estimator under a prior on the range that is nearly the hardest one (see `program`). Whatever that
    search found, these are computed from the rows, for every frequency of the range:

    - `worst`, the worst normalised error of this estimator on the range. It is at most `mle_worst`, the one of 'mle':
      if the search gained nothing, the values are those of 'mle';
    - `bound`: no estimator at all that counts 0 for unreported keys, not even one with negative values, has a worst
      error below it on the range. So worst / bound - 1 tells how far from the best it can be.

    Values are not negative. Where higher tokens always speak for higher frequencies (monotone likelihood ratio), as in
    every channel without sampling, they do not decrease on the tokens that the range leads to. On other tokens they are
    those of 'mle', kept from crossing the former. In a range longer than 1,000 frequencies and twice the reach of the
    channel, the same holds for its upper part, where the relative error is smaller.

    The error is that of one key. In a sum over many keys variances average out and biases do not: compare with
    `sum_error`. Frequencies outside the range are not looked at, and those above `high` are underestimated.

    >>> from dpsieve.channels import optimal
    >>> from dpsieve.estimation import estimator
    >>> best = estimator(optimal(1.0, 1e-8), kind="minimax", low=20, high=60)
    >>> round(best.mle_worst, 3), round(best.worst, 3), round(best.bound, 3)
    (0.358, 0.289, 0.289)
    """

    kind = "minimax"

    def __init__(self, channel: Channel, target: Target, low: int, high: int) -> None:
        super().__init__(channel, target)
        self.low, self.high = low, high
        self._mle = MaximumLikelihood(channel, target)
        self._ends: Ints = np.empty(0, np.int64)  # the first token before the table, then the last of each of its cells
        self._table: Floats = np.empty(0)
        rows = np.arange(low, high + 1)
        if not self.target(rows[:1])[0] > 0:
            raise InvalidValue("g(low) is zero, so no error is relative to it. Pass a low where g is above zero.")
        self.mle_worst, self.bound = self._worst(rows), 0.0
        if self.mle_worst > _NEGLIGIBLE:
            self.bound = self._search(low, min(high, low + max(2 * channel.reach, _WIDE)))
        self.worst = self._worst(rows)
        if not self.worst < self.mle_worst:
            self._ends, self._table, self.worst = self._ends[:0], self._table[:0], self.mle_worst

    def __repr__(self) -> str:
        return f"<minimax estimator on {self.low:,} to {self.high:,} for {self.channel!r}>"

    def _values(self, parts: Ints) -> Floats:
        values = self._mle._values(parts)
        if len(self._table):
            cell = np.searchsorted(self._ends, parts) - 1
            inside = (cell >= 0) & (cell < len(self._table))
            values[inside] = self._table[cell[inside]]
            values[cell < 0] = np.minimum(values[cell < 0], self._table[0])
            above = cell >= len(self._table)
            values[above] = np.maximum(values[above], self._table[-1])
        return values

    def _worst(self, rows: Ints) -> float:
        return float(np.sqrt((self.mse(rows) / self.target(rows) ** 2).max()))

    def _search(self, low: int, top: int) -> float:
        """Fill the table from the hardest prior on rows low to top; return the bound that this prior proves."""
        wide, unit = self.channel.reach, self.channel.resolution
        edges = unit_breaks(self.channel, max(low - wide, 0), top + wide)
        rows = np.arange(low, top + 1)
        prior = self._prior(rows, edges)
        linear, square = self._averages(rows, prior, edges)
        heard = np.flatnonzero(square > 0)
        first, last = int(heard[0]), int(heard[-1]) + 1
        self._ends = edges[first : last + 1]
        self._table = self._mle._values(middles(self._ends))
        heard -= first
        self._table[heard] = linear[heard + first] / square[heard + first]
        rising = np.maximum.accumulate(self._table)
        if np.allclose(rising, self._table, rtol=1e-9, atol=0):  # what falls by no more than rounding does not fall
            self._table = rising
        bound = float(np.sqrt(prior @ (self.mse(rows) / self.target(rows) ** 2)))
        if top < self.high:
            kept = int(np.searchsorted(self._ends, max(top - wide, 1) * unit, side="right")) - 1
            self._ends, self._table = self._ends[: kept + 1], self._table[:kept]
        return max(bound * (1 - 1e-9) - 1e-14, 0.0)  # less by more than rounding

    def _prior(self, rows: Ints, edges: Ints) -> Floats:
        """Return weights for rows, from a program over some of the rows (the lower, the denser) and groups of cells."""
        some = rows
        if len(rows) > _ROWS:
            some = rows[np.unique((np.linspace(0, 1, _ROWS) ** 2 * (len(rows) - 1)).astype(int))]
        starts = np.unique(np.linspace(0, len(edges) - 1, _GROUPS + 1).astype(int))[:-1]
        step = max(CELLS // len(edges), 1)
        parts = [self.channel.masses(some[k : k + step], edges) for k in range(0, len(some), step)]
        mass = np.concatenate([np.add.reduceat(part, starts, axis=1) for part in parts])
        mass = mass[:, mass.any(axis=0)]
        weight = Program(mass, silence(self.channel, some), self.target(some)).hardest()
        around = np.concatenate([[some[0] - 1], some, [some[-1] + 1]])
        stands_for = (around[2:] - around[:-2]) / 2  # rows
        prior = np.interp(rows, some, weight / stands_for)
        return np.asarray(prior / prior.sum())

    def _averages(self, rows: Ints, prior: Floats, edges: Ints) -> tuple[Floats, Floats]:
        """Return sum_i w_i p_i(t) / g(i) and sum_i w_i p_i(t) / g(i)^2 for each cell t."""
        wide, unit = self.channel.reach, self.channel.resolution
        linear, square = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
        truth = self.target(rows)
        for k in range(0, len(rows), 64):
            some = slice(k, k + 64)
            near = slice(*np.searchsorted(edges, [max(rows[k] - wide, 0) * unit, (rows[some][-1] + wide) * unit]))
            mass = self.channel.masses(rows[some], edges[near.start : near.stop + 1])
            linear[near] += (prior[some] / truth[some]) @ mass
            square[near] += (prior[some] / truth[some] ** 2) @ mass
        return linear, square
