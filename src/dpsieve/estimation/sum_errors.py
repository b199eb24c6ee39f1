"""The error of an estimated sum, estimated from the tokens.

The exact bias and variance of a sum are sums of L(x) Bias_w and L(x)^2 Var_w over all keys, with true frequencies w
(Cohen, Geri, Sarlos, Stemmer 2021, 7.1). Both are linear statistics, with Bias and Var in place of g, and they are
estimated as g is: by Bias_i / pi_i and Var_i / pi_i over the reported keys, for the likeliest frequency i (equation 9).

The quality of these estimates is a sum over the rows. From the frequency that is reported in 95 % of the cases in
which it is sampled, the expected variance was between 0.98 and 3.3 times the true one, in ten channels, and soon equals
it. Keys that are reported less often are underrepresented, and keys that are never reported are not accounted for.

**Intervals.** For few keys an interval covers the sum over the reported keys of L(x) w, given which keys were reported,
with at least its level. For one key it is L g of the ends of the interval of its token (`channels.rows.Windows`), as g
does not decrease. For several, let D be the likeliest frequency of a token less the true one. Given that a key of
frequency i is reported, the law of D is row i over pi_i. It is the same for all rows from `last` on: so keys that are
no rarer (except with a thousandth of 1 - level) have a known law. For others, take the interval of the token at a level
so high that it misses any of the keys with a fifth of 1 - level. The law whose distribution function is the
smallest over all rows in it is no less likely to exceed any point than the true one, and so is the convolution of such
laws (`estimation.estimated_sums`), whose quantiles make the interval. Keys are drawn independently of each other, also
given which of them are reported.

Where very many rows are possible, intervals of single keys are added up instead, each at 1 - (1 - level) / n: wider,
with at least the same coverage. Keys that a scheme may have left out represent others, and where more than 16 keys are
near the threshold the interval is for the sum of all of them, reported or not: there it is the normal one around the
estimate minus its bias.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from dpsieve.channels.channel import ReportedCounts, Target
from dpsieve.channels.law import LARGEST_FREQUENCY
from dpsieve.estimation.estimated_sums import HIGHEST_LEVEL, MOST_TERMS, ErrorLaw, Term, sum_margins
from dpsieve.estimation.estimators import Estimator, middles
from dpsieve.privacy.mechanism import check_tokens
from dpsieve.types import Floats, Ints

_FEW = 16  # keys near the threshold, up to which the interval is for reported ones
_SETTLED, _NEAR = 1e-3, 0.2  # of the probability to miss, for frequencies that are treated as impossible
_SURE = 0.999  # the inclusion probability from which a key represents itself only
_CELLS = 1 << 23  # of a table of possible rows
_LOWEST, _SPREAD = 64, 192  # frequencies at which moments are computed: the lowest ones, and evenly spaced logarithms


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
