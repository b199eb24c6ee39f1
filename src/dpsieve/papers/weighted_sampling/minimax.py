"""The estimator with the smallest worst error over a range of frequencies, from the hardest prior on the range.

The hardest prior solves a small concave program. An estimator a, constant on token cells, has for row k the normalised
squared error

    f_k(a) = s_k + sum_t p_k(t) (a_t / g_k - 1)^2,            s_k the probability of 'nothing'.

For weights w on the rows, the a that minimises sum_k w_k f_k(a) is known cell by cell,

    a_t = (sum_k w_k p_k(t) / g_k) / (sum_k w_k p_k(t) / g_k^2),

and its value h(w) is concave, with gradient f(a). By duality max_w h(w) = min_a max_k f_k(a). Newton steps climb
h(w) + mu sum_k log w_k on the simplex, for falling mu. On that path max_k f_k - h <= K mu, so the gap is seen at
every step. The last mu is not tiny: rows that do not bind keep a weight of about mu / slack, which makes a
good estimator for them too.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpsieve import validate
from dpsieve.channels.channel import ReportedCounts, Target
from dpsieve.channels.law import CELLS, LARGEST_FREQUENCY
from dpsieve.errors import InvalidValue
from dpsieve.estimation.estimators import Estimator, MaximumLikelihood, check_channel, middles
from dpsieve.papers.weighted_sampling.other_estimators import unit_edges
from dpsieve.types import Floats, Ints

WIDEST = 100_000
_ROWS = 300  # rows of the program; others get weights in between
_WIDE = 1000  # ranges up to this wide are covered whole
_GROUPS = 1500  # groups of cells of the program
_NEGLIGIBLE = 1e-12  # a relative error that is but rounding
_GAP = 1e-3  # of the largest error; its root is then within 0.05 % of the best
_STEPS = 200


def minimax(channel: ReportedCounts, g: Callable[[Floats], Floats] | None = None, *, low: int, high: int) -> "Minimax":
    """Return the estimator of g(w) with nearly the smallest worst error, relative to g, for frequencies low to high.

    Args:
        channel: the channel that the tokens were drawn from; not one of sampled counts.
        g: a non-decreasing function of an array of frequencies with g(0) = 0; without it, g(w) = w.
        low, high: the range of frequencies, at most 100,000 apart.

    See `Minimax` for the bounds that it states.

    >>> from dpsieve.channels.unknown_keys import optimal
    >>> best = minimax(optimal(1.0, 1e-8), low=20, high=60)
    >>> round(best.mle_worst, 3), round(best.worst, 3), round(best.bound, 3)
    (0.358, 0.289, 0.289)
    """
    if check_channel(channel).sampling_rate < 1:
        raise InvalidValue("channel samples counts, for which there is no minimax estimator. Use its 'mle' estimator.")
    hint = "Pass the range of true frequencies to do well on, such as low=20, high=500."
    first = validate.whole("low", low, low=1, high=LARGEST_FREQUENCY, hint=hint)
    last = validate.whole("high", high, low=first, high=LARGEST_FREQUENCY, hint=hint)
    if last - first > WIDEST:
        raise InvalidValue(f"low and high are more than {WIDEST:,} apart. Pass a smaller high.")
    return Minimax(channel, Target(g), first, last)


class Minimax(Estimator):
    """An estimator whose worst normalised error, max over low <= i <= high of sqrt(MSE_i) / g(i), is nearly the least.

    It is the best estimator under a prior on the range that is nearly the hardest one (see the head of this module).
    Whatever the result of that search, these are computed from the rows, for every frequency of the range:

    - `worst`, the worst normalised error of this estimator on the range. It is at most `mle_worst`, the one of 'mle':
      if the search gained nothing, the values are those of 'mle';
    - `bound`: no estimator at all that counts 0 for unreported keys, not even one with negative values, has a worst
      error below it on the range. So worst / bound - 1 bounds the distance from the best.

    Values are not negative. Where higher tokens always speak for higher frequencies (monotone likelihood ratio), as in
    every channel without sampling, they do not decrease on the tokens that the range leads to. On other tokens they are
    those of 'mle', kept from crossing the former. In a range longer than 1,000 frequencies and twice the spread of the
    rows, the same holds for its upper part, where the relative error is smaller.

    The error is that of one key. In a sum over many keys variances average out and biases do not: compare with
    `sum_error`. Frequencies outside the range are ignored, and those above `high` are underestimated.
    """

    kind = "minimax"

    def __init__(self, channel: ReportedCounts, target: Target, low: int, high: int) -> None:
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
            self.bound = self._search(low, min(high, low + max(2 * channel.rows.spread, _WIDE)))
        self.worst = self._worst(rows)
        if not self.worst < self.mle_worst:
            self._ends, self._table, self.worst = self._ends[:0], self._table[:0], self.mle_worst

    def __repr__(self) -> str:
        return f"<minimax estimator on {self.low:,} to {self.high:,} for {self.channel!r}>"

    def values(self, parts: Ints) -> Floats:
        """Return the value of each token, from the table or by 'mle'."""
        values = self._mle.values(parts)
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
        wide, unit = self.channel.rows.spread, self.channel.resolution
        edges = unit_edges(self.channel.rows, max(low - wide, 0), top + wide)
        rows = np.arange(low, top + 1)
        prior = self._prior(rows, edges)
        linear, square = self._averages(rows, prior, edges)
        reported = np.flatnonzero(square > 0)
        first, last = int(reported[0]), int(reported[-1]) + 1
        self._ends = edges[first : last + 1]
        self._table = self._mle.values(middles(self._ends))
        reported -= first
        self._table[reported] = linear[reported + first] / square[reported + first]
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
        parts = [self.channel.rows.cell_probabilities(some[k : k + step], edges) for k in range(0, len(some), step)]
        mass = np.concatenate([np.add.reduceat(part, starts, axis=1) for part in parts])
        mass = mass[:, mass.any(axis=0)]
        weight = Program(mass, self.channel.rows.withheld(some), self.target(some)).hardest()
        around = np.concatenate([[some[0] - 1], some, [some[-1] + 1]])
        stands_for = (around[2:] - around[:-2]) / 2  # rows
        prior = np.interp(rows, some, weight / stands_for)
        return np.asarray(prior / prior.sum())

    def _averages(self, rows: Ints, prior: Floats, edges: Ints) -> tuple[Floats, Floats]:
        """Return sum_i w_i p_i(t) / g(i) and sum_i w_i p_i(t) / g(i)^2 for each cell t."""
        wide, unit = self.channel.rows.spread, self.channel.resolution
        linear, square = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
        truth = self.target(rows)
        for k in range(0, len(rows), 64):
            some = slice(k, k + 64)
            near = slice(*np.searchsorted(edges, [max(rows[k] - wide, 0) * unit, (rows[some][-1] + wide) * unit]))
            mass = self.channel.rows.cell_probabilities(rows[some], edges[near.start : near.stop + 1])
            linear[near] += (prior[some] / truth[some]) @ mass
            square[near] += (prior[some] / truth[some] ** 2) @ mass
        return linear, square


@dataclass(frozen=True, eq=False)
class Program:
    """TokenLaw with their mass on each cell (rows x cells), their silent mass, and g; all g above zero."""

    mass: Floats
    silent: Floats
    g: Floats

    def best(self, weight: Floats) -> Floats:
        """Return the values that minimise the weighted error; every cell must have mass under some row."""
        return ((weight / self.g) @ self.mass) / ((weight / self.g**2) @ self.mass)

    def errors(self, values: Floats) -> Floats:
        """Return f_k for each row."""
        return np.asarray(self.silent + (self.mass * (values / self.g[:, None] - 1) ** 2).sum(axis=1))

    def hardest(self) -> Floats:
        """Return weights whose best estimator has a worst error within 0.1 % of the least possible."""
        weight = np.full(len(self.g), 1 / len(self.g))
        values = self.best(weight)
        errors = self.errors(values)
        mu = float(errors.max()) / len(weight)
        for _ in range(_STEPS):
            try:
                weight, decrement = self._climb(weight, values, errors, mu)
            except np.linalg.LinAlgError:  # what is left to gain is rounding
                break
            values = self.best(weight)
            errors = self.errors(values)
            if errors.max() - weight @ errors <= _GAP * errors.max():
                break
            if decrement < mu:
                mu *= 0.3
        return weight

    def _climb(self, weight: Floats, values: Floats, errors: Floats, mu: float) -> tuple[Floats, float]:
        """Take one damped Newton step; return the new weights and how much the step promised to gain.

        The Hessian of h is -2 V diag(1/c) V', with V_kt = p_k(t)/g_k (1 - a_t/g_k) and c_t = sum_k w_k p_k(t)/g_k^2.
        The system is solved for the relative change z = d / w, where the barrier adds mu times the identity.
        """
        curve = (weight / self.g**2) @ self.mass
        slope = (weight / self.g)[:, None] * self.mass * (1 - values / self.g[:, None]) / np.sqrt(curve)
        gain = weight * errors + mu
        system = 2 * slope @ slope.T + mu * np.eye(len(weight))
        plain, toward = np.linalg.solve(system, np.array([gain, weight]).T).T
        relative = plain - (weight @ plain) / (weight @ toward) * toward
        decrement = float(gain @ relative)
        step, before = min(1.0, 0.9 / max(float(-relative.min()), 1e-12)), self._height(weight, mu)
        while step > 1e-6:
            moved = weight * (1 + step * relative)
            moved /= moved.sum()
            if self._height(moved, mu) >= before + 0.1 * step * decrement:
                return moved, decrement
            step /= 2
        return weight, 0.0

    def _height(self, weight: Floats, mu: float) -> float:
        return float(weight @ self.errors(self.best(weight)) + mu * np.log(weight).sum())
