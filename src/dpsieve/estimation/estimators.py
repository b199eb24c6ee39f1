"""Estimators: a value of g(w) per token, with exact errors per true frequency w.

`estimator` selects one by name. Messages never contain a frequency, a count or a token.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpsieve.channels.channel import ReportedCounts, Target, checked_frequencies, whole_tokens
from dpsieve.channels.law import LARGEST_FREQUENCY, TokenLaw
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.types import Floats, Ints

LIMIT = 10**6  # units: the largest token of the biased-down estimator
_BLOCK = 64  # units of tokens, and rows, per block
_SAFE = 1 - 1e-11  # outweighs rounding, so that E_i <= g(i) holds for the floats themselves
_LARGEST = 1e150  # squares must stay finite
_FIX = "Use kind='mle', or dpsieve.papers.weighted_sampling.minimax with a range of frequencies."


def estimator(channel: ReportedCounts, g: Callable[[Floats], Floats] | None = None, kind: str = "mle") -> "Estimator":
    """Return an estimator of g(w), for the true frequency w of a key, from the token that the channel reported.

    The sum of its values over the reported keys estimates the sum of g(w) over all keys; unreported keys count 0.

    Args:
        channel: the channel of the tokens.
        g: a non-decreasing function of an array of frequencies with g(0) = 0; by default g(w) = w.
        kind: 'mle' (unbiased for the likeliest frequency), 'biased_down' (never too large on average, for any
            frequency) or 'unbiased' (for every frequency, with huge variance). For sampled counts 'mle' only.

    `dpsieve.papers.weighted_sampling` has more: `minimax`, `noisy_count` and, for sampled counts, `scaled`.

    >>> from dpsieve.channels.optimal_channels import optimal
    >>> mle = estimator(optimal(1.0, 1e-8))
    >>> mle.value([0, 0.5, 100]).round(2).tolist()
    [0.0, 24.59, 118.0]
    >>> mle.bias([5, 20, 100]).round(2).tolist()
    [-5.0, 0.92, 0.0]
    """
    kinds: dict[str, Callable[[ReportedCounts, Target], Estimator]]
    kinds = {"mle": MaximumLikelihood, "biased_down": BiasedDown, "unbiased": Unbiased}
    if not isinstance(kind, str) or kind not in kinds:
        raise InvalidValue("kind is not known. Choose 'mle', 'biased_down' or 'unbiased'.")
    if check_channel(channel).sampling_rate < 1 and kind != "mle":
        fix = "Use kind='mle', or dpsieve.papers.weighted_sampling.scaled, which is token / rate"
        raise InvalidValue(f"kind={kind!r} is not offered for sampled counts. {fix}.")
    return kinds[kind](channel, Target(g))


@dataclass(frozen=True, eq=False)
class Moments:
    """The first two moments of an estimate, each an array with one entry per true frequency."""

    expectation: Floats
    bias: Floats
    variance: Floats
    mse: Floats


class Estimator(ABC):
    """An estimate of g(w) per key from its token: a(token), and 0 for a key that is not reported.

    With p_i(t) the probability of token t for true frequency i, s_i that of 'nothing', and pi_i = 1 - s_i:

        E_i    = sum_t p_i(t) a(t)
        Bias_i = E_i - g(i)                  = sum_t p_i(t) (a(t) - g(i)) - s_i g(i)
        Var_i  = s_i E_i^2 + sum_t p_i(t) (a(t) - E_i)^2
        MSE_i  = s_i g(i)^2 + sum_t p_i(t) (a(t) - g(i))^2 = Var_i + Bias_i^2

    (Cohen, Geri, Sarlos, Stemmer 2021, section 7.1.) They are summed over the row, not sampled, in the forms on the
    right, which are accurate for keys that are reported almost never or almost always.
    """

    kind: ClassVar[str]

    def __init__(self, channel: ReportedCounts, target: Target) -> None:
        self.channel, self.target = channel, target

    def __repr__(self) -> str:
        return f"<{self.kind} estimator for {self.channel!r}>"

    def value(self, tokens: ArrayLike) -> Floats:
        """Return the estimate of g(w) for each token; a token of 0 is 'nothing' and counts 0."""
        parts = whole_tokens(self.channel, tokens, nothing=True)
        values, reported = np.zeros(len(parts)), parts > 0
        if reported.any():
            values[reported] = self.values(parts[reported])
        return values

    def moments(self, i: ArrayLike) -> Moments:
        """Return expectation, bias, variance and MSE for a true frequency i, or an array of them, in one pass.

        Each has the shape of i. Time and memory grow with the number of different frequencies, not with their size.
        """
        shaped = check_frequencies("i", i)
        rows, place = np.unique(shaped.ravel(), return_inverse=True)
        moments = np.empty((4, len(rows)))
        for part, edges in self.channel.rows.bands(rows):
            moments[:, part] = self._sums(rows[part], edges)
        return Moments(*moments[:, place].reshape(4, *shaped.shape))

    def expectation(self, i: ArrayLike) -> Floats:
        """Return E_i, the expected estimate of a key of true frequency i."""
        return self.moments(i).expectation

    def bias(self, i: ArrayLike) -> Floats:
        """Return E_i - g(i)."""
        return self.moments(i).bias

    def variance(self, i: ArrayLike) -> Floats:
        """Return the variance of the estimate of a key of true frequency i."""
        return self.moments(i).variance

    def mse(self, i: ArrayLike) -> Floats:
        """Return the expected squared error of the estimate of a key of true frequency i."""
        return self.moments(i).mse

    @abstractmethod
    def values(self, parts: Ints) -> Floats:
        """Return the estimates of tokens in their integer form, all above zero."""

    def _sums(self, rows: Ints, edges: Ints) -> Floats:
        """Return the four moments of some rows whose tokens lie between edges."""
        mass = self.channel.rows.cell_probabilities(rows, edges)
        possible = mass.any(axis=0)
        mass, values = mass[:, possible], self.values(middles(edges)[possible])
        truth, silent = self.target(rows), self.channel.rows.withheld(rows)
        expectation = (mass * values).sum(axis=1)
        away = values - truth[:, None]
        bias = (mass * away).sum(axis=1) - silent * truth
        mse = (mass * away**2).sum(axis=1) + silent * truth**2
        away -= bias[:, None]
        variance = (mass * away**2).sum(axis=1) + silent * expectation**2
        return np.array([expectation, bias, variance, mse])


class MaximumLikelihood(Estimator):
    """The value g(i) / pi_i, for the frequency i under which the token is likeliest.

    (Cohen, Geri, Sarlos, Stemmer 2021, (9).) It is unbiased for that frequency, and biased in either direction for
    others. Its values fall at first, where the reporting probability of the likeliest frequency grows fast.
    """

    kind = "mle"

    def values(self, parts: Ints) -> Floats:
        """Return g(i) / pi_i for each token."""
        likeliest, _ = self.channel.rows.likeliest(parts)
        reported = self.channel.rows.reported(np.minimum(likeliest, LARGEST_FREQUENCY))
        if not reported.all():
            raise InvalidValue("tokens holds one that no frequency leads to. Pass tokens drawn from this channel.")
        return self.target(likeliest) / reported


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
            hint = "Use kind='mle' for larger ones."
            raise InvalidValue(f"kind='biased_down' is limited to tokens and frequencies up to {LIMIT:,}. {hint}")
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
            raise InvalidValue(f"kind='unbiased' exceeds {_LARGEST:g} for these tokens or frequencies. {_FIX}")
        return values

    def _solve(self, start: int) -> Floats:
        """Return the values of the units after `start`; once one is too large, all are."""
        if start and not abs(self._values[-1]) <= _LARGEST:
            raise InvalidValue(f"kind='unbiased' exceeds {_LARGEST:g} for these tokens or frequencies. {_FIX}")
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
            raise InvalidValue(f"kind='unbiased' needs {needed}. {_FIX}")
        with np.errstate(over="ignore", invalid="ignore"):
            right = self.target(rows) - mass[:, : start - low] @ self._values[low:start]
            return np.asarray(solve_triangular(own, right, lower=True, check_finite=False), dtype=np.float64)


def check_channel(channel: object) -> ReportedCounts:
    """Return the channel, or raise unless it is one."""
    if not isinstance(channel, ReportedCounts):
        hint = "Pass one such as dpsieve.channels.optimal(epsilon=1.0, delta=1e-8)."
        raise InvalidType(f"channel must be a Channel, not {type(channel).__name__}. {hint}")
    return channel


def check_estimator(value: object) -> Estimator:
    """Return the estimator, or raise unless it is one."""
    if not isinstance(value, Estimator):
        hint = "Make one with dpsieve.estimation.estimator(channel)."
        raise InvalidType(f"estimator must be an Estimator, not {type(value).__name__}. {hint}")
    return value


def check_frequencies(name: str, values: ArrayLike) -> Ints:
    """Return true frequencies, 1 to 10^12, in their shape."""
    hint = f"Pass whole numbers from 1 to 10^12, such as {name}=20."
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidType(f"{name} must be a whole number or an array of them. {hint}") from None
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidType(f"{name} must be a whole number or an array of them. {hint}")
    return checked_frequencies(array.ravel(), name, hint).reshape(array.shape)


def histogram(frequencies: ArrayLike, counts: ArrayLike | None) -> tuple[Ints, Floats]:
    """Return increasing distinct frequencies and the number of keys of each; without counts, one key per entry.

    Counts may be fractions, as in an expected histogram. Frequencies without keys are dropped.
    """
    rows = checked_frequencies(frequencies)
    hint = "Pass the number of keys for each frequency: zero or more, and some above zero."
    try:
        keys = np.ones(len(rows)) if counts is None else np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidType(f"counts must be numbers. {hint}") from None
    if keys.shape != rows.shape:
        raise InvalidValue(f"counts and frequencies differ in length. {hint}")
    if not (np.isfinite(keys) & (keys >= 0)).all() or not keys.any():
        raise InvalidValue(f"counts holds a number that is negative or not finite, or no key at all. {hint}")
    distinct, place = np.unique(rows[keys > 0], return_inverse=True)
    return distinct, np.bincount(place, weights=keys[keys > 0]).astype(np.float64)


def unit_edges(rows: TokenLaw, low: int, high: int) -> Ints:
    """Return the cell edges of the rows and every whole unit."""
    return np.union1d(rows.cell_edges(low, high), np.arange(low, high + 1) * rows.resolution)


def middles(edges: Ints) -> Ints:
    """Return a token inside each cell; all tokens of a cell are equivalent.

    A middle one stays in its cell when rounded to a float, also where floats are sparser than tokens.
    """
    return (edges[:-1] + edges[1:] + 1) // 2
