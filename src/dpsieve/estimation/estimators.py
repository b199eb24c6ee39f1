"""Estimators: a value of g(w) per token, with exact errors per true frequency w; and the errors of estimated sums.

The exact bias and variance of a sum are sums of L(x) Bias_w and L(x)^2 Var_w over all keys, with true frequencies w
(Cohen, Geri, Sarlos, Stemmer 2021, 7.1). Both are linear statistics, and they are estimated as g is: by Bias_i / pi_i
and Var_i / pi_i over the reported keys, for the likeliest frequency i (equation 9). For few keys an interval covers the
sum over the reported keys with at least its level; for many, it is the normal one around the estimate minus its bias.
How: docs/background/estimation.md#how-intervals-of-sums-are-made.

Messages never contain a frequency, a count or a token. `dpsieve.papers.weighted_sampling` has further estimators.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpsieve.channels.channel import ReportedCounts, Target, checked_frequencies, reported_tokens
from dpsieve.channels.law import LARGEST_FREQUENCY
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.estimation.estimated_sums import HIGHEST_LEVEL, MOST_TERMS, ErrorLaw, Term, sum_margins
from dpsieve.privacy.mechanism import check_tokens
from dpsieve.types import Floats, Ints

_FEW = 16  # keys near the threshold, up to which the interval is for reported ones
_SETTLED, _NEAR = 1e-3, 0.2  # of the probability to miss, for frequencies that are treated as impossible
_SURE = 0.999  # the inclusion probability from which a key represents itself only
_CELLS = 1 << 23  # of a table of possible rows
_LOWEST, _SPREAD = 64, 192  # frequencies at which moments are computed: the lowest ones, and evenly spaced logarithms


def estimator(channel: ReportedCounts, g: Callable[[Floats], Floats] | None = None) -> "Estimator":
    """Return the estimator of g(w), for the true frequency w of a key, from the token that the channel reported.

    It is unbiased for the likeliest frequency. The sum of its values over the reported keys estimates the sum of g(w)
    over all keys; unreported keys count 0.

    Args:
        channel: the channel of the tokens.
        g: a non-decreasing function of an array of frequencies with g(0) = 0; by default g(w) = w.

    >>> from dpsieve.channels.unknown_keys import optimal
    >>> channel = optimal(1.0, 1e-8)
    >>> mle = estimator(channel)
    >>> mle.value([0, channel.resolution // 2, 100 * channel.resolution]).round(2).tolist()
    [0.0, 24.59, 118.0]
    >>> mle.bias([5, 20, 100]).round(2).tolist()
    [-5.0, 0.92, 0.0]
    """
    return MaximumLikelihood(check_channel(channel), Target(g))


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
        parts = reported_tokens(self.channel, tokens, nothing=True)
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
        likeliest, _ = self.channel.rows.likeliest(parts)
        reported = self.channel.rows.reported(np.minimum(likeliest, LARGEST_FREQUENCY))
        if not reported.all():
            raise InvalidValue("tokens holds one that no frequency leads to. Pass tokens drawn from this channel.")
        return self.target(likeliest) / reported


def check_channel(channel: object) -> ReportedCounts:
    """Return the channel, or raise unless it is one."""
    if not isinstance(channel, ReportedCounts):
        hint = "Pass one such as dpsieve.channels.optimal(epsilon=1.0, delta=1e-8)."
        raise InvalidType(f"channel must be a Channel, not {type(channel).__name__}. {hint}")
    return channel


def check_frequencies(name: str, values: ArrayLike) -> Ints:
    """Return true frequencies, 1 to 10^12, in their shape."""
    hint = f"Pass whole numbers from 1 to 10^12, such as {name}=20."
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidType(f"{name} must be a whole number or an array of them. {hint}", argument=name) from None
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidType(f"{name} must be a whole number or an array of them. {hint}", argument=name)
    return checked_frequencies(array.ravel(), name, hint).reshape(array.shape)


def middles(edges: Ints) -> Ints:
    """Return a token inside each cell; all tokens of a cell are equivalent."""
    return (edges[:-1] + edges[1:] + 1) // 2


def likely_errors(estimator: Estimator, tokens: ArrayLike, weights: Floats) -> tuple[float, float]:
    """Return the estimated bias and variance of the sum of weights times estimates, over reported keys.

    With up to 256 different likeliest frequencies the moments of each are summed over its row; with more, those of 256
    of them, and others are interpolated, which changes the result by less than 1 %.
    """
    channel: ReportedCounts = estimator.channel
    likeliest = np.minimum(channel.likeliest(tokens), LARGEST_FREQUENCY)
    bias, variance = errors_of_keys(estimator, likeliest)
    return float(weights @ bias), float(weights**2 @ variance)


def errors_of_keys(estimator: Estimator, likeliest: Ints) -> tuple[Floats, Floats]:
    """Return Bias_i / pi_i and Var_i / pi_i for each likeliest frequency i."""
    rows, place = np.unique(likeliest, return_inverse=True)
    if not len(rows):
        return np.empty(0), np.empty(0)
    nodes = _nodes(rows)
    moments, reported = estimator.moments(nodes), estimator.channel.rows.reported(nodes)
    bias = np.interp(rows, nodes, moments.bias / reported)
    deviation = np.interp(rows, nodes, np.sqrt(moments.variance / reported))
    return bias[place], deviation[place] ** 2


def _nodes(rows: Ints) -> Ints:
    """Return a selection of increasing frequencies, including the first and the last."""
    if len(rows) <= _LOWEST + _SPREAD:
        return rows
    spread = np.searchsorted(rows, np.geomspace(rows[0], rows[-1], _SPREAD)[1:-1])
    return np.asarray(rows[np.unique(np.concatenate([np.arange(_LOWEST), spread, [len(rows) - 1]]))])


def reported_sum_interval(
    channel: ReportedCounts, tokens: ArrayLike, weights: Floats, g: Callable[[Floats], Floats] | None, level: float
) -> tuple[float, float] | None:
    """Return an interval for the sum of weights times g(true frequency) of reported keys, given that they are reported.

    None where only the normal approximation is offered: see the head of this module.
    """
    given = check_tokens(tokens)
    if not len(given) or (g is not None and len(given) > 1) or _is_sampled(channel, given):
        return None
    if len(given) == 1 or level > HIGHEST_LEVEL:
        return _united(channel, given, weights, g, level)
    ranges, level_left = _ranges(channel, given, level)
    groups, counts = np.unique(np.column_stack([ranges, weights]), axis=0, return_counts=True)
    if (groups[:, 0] > 0).sum() >= MOST_TERMS:
        return None
    laws: dict[tuple[int, int], ErrorLaw] = {}
    for first, end in np.unique(ranges, axis=0).tolist():
        law = _error_law(channel, np.arange(first, end + 1) if first else np.array([channel.rows.last]))
        if law is None:
            return _united(channel, given, weights, g, level)
        laws[first, end] = law
    spreads = [law.spread for law in laws.values()]
    if (ranges[:, 0] > 0).sum() > _FEW and max(spreads) ** 2 > 2 * min(spreads) ** 2:
        return None
    terms = [
        Term(laws[int(first), int(end)], weight, count)
        for (first, end, weight), count in zip(groups.tolist(), counts.tolist(), strict=True)
    ]
    terms.sort(key=lambda term: (term.law is laws.get((0, 0)), -term.spread))  # unsettled terms first
    value = float(weights @ np.minimum(channel.likeliest(given), LARGEST_FREQUENCY))
    below, above = sum_margins(terms, level_left)
    return value - below, value + above


def _is_sampled(channel: ReportedCounts, tokens: Ints) -> bool:
    """Return whether a scheme may have left out keys of these frequencies."""
    scheme = channel.scheme
    return scheme is not None and bool((scheme.inclusion(channel.likeliest(tokens)) < _SURE).any())


def _united(
    channel: ReportedCounts, tokens: Ints, weights: Floats, g: Callable[[Floats], Floats] | None, level: float
) -> tuple[float, float]:
    """Return the sum of the intervals of all keys, with this probability for all of them together."""
    target, ends = Target(g), channel.interval(tokens, 1 - (1 - level) / len(tokens))
    both = weights * np.array([target(np.minimum(end, LARGEST_FREQUENCY)) for end in ends])
    return float(both.min(axis=0).sum()), float(both.max(axis=0).sum())


def _ranges(channel: ReportedCounts, tokens: Ints, level: float) -> tuple[Ints, float]:
    """Return possible frequencies for each key, (0, 0) where its row is settled, and the level that they leave.

    Many different ranges are merged with their neighbours.
    """
    missed, last, ranges = 1 - level, channel.rows.last, np.zeros((len(tokens), 2), np.int64)
    sure = 0.0 if last is None else _SETTLED * missed
    unsettled = np.arange(len(tokens))
    if last is not None:
        unsettled = np.flatnonzero(channel.interval(tokens, 1 - sure / len(tokens))[0] < last)
    if not len(unsettled):
        return ranges, level + sure
    low, high = channel.interval(tokens[unsettled], 1 - _NEAR * missed / len(unsettled))
    high = np.maximum(np.minimum(high, LARGEST_FREQUENCY if last is None else last), low)
    order = np.lexsort((high, low))
    different = len(np.unique(low + 1j * high))
    for chunk in np.array_split(order, min(len(order), MOST_TERMS - 1)) if different >= MOST_TERMS else order[:, None]:
        ranges[unsettled[chunk]] = low[chunk].min(), high[chunk].max()
    return ranges, level + sure + _NEAR * missed


def _error_law(channel: ReportedCounts, rows: Ints) -> ErrorLaw | None:
    """Return a law of the likeliest frequency less the true one that bounds those of all rows; None if it is long."""
    bands, reported = [], channel.rows.reported(rows)
    for part, edges in channel.rows.bands(rows):
        if len(rows) * len(edges) > _CELLS:
            return None
        mass = channel.rows.cell_probabilities(rows[part], edges) / reported[part, None]
        possible = mass.any(axis=0)
        likeliest, _ = channel.rows.likeliest(middles(edges)[possible])
        errors = likeliest - rows[part, None]
        first, width = int(errors.min()), int(np.ptp(errors)) + 1
        places = errors - first + np.arange(len(errors))[:, None] * width
        each = np.bincount(places.ravel(), mass[:, possible].ravel(), len(errors) * width).reshape(-1, width)
        up, down = (np.cumsum(side, axis=1).min(axis=0) for side in (each, each[:, ::-1]))
        bands += [(first, up, down)]
    reach = max(max(-first, first + len(up) - 1) for first, up, _ in bands)
    least = np.ones((2, 2 * reach + 1))
    for first, up, down in bands:
        for side, start, values in ((0, first, up), (1, 1 - first - len(down), down)):
            bound = np.full(2 * reach + 1, values[-1])
            bound[: start + reach] = 0.0
            bound[start + reach : start + reach + len(values)] = values
            least[side] = np.minimum(least[side], bound)
    return ErrorLaw(1.0, -reach, *np.diff(least, prepend=0.0))
