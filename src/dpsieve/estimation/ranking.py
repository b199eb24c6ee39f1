"""Order: whether tokens rank keys as their true frequencies do, which come out on top, and quantiles of frequencies.

'Nothing' ranks below every token, and ties are broken by a fair coin. Rows are even within a cell, so two tokens of the
same cell are in either order with probability 1/2, ties included.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.channel import Channel
from dpsieve.channels.rows import LARGEST_FREQUENCY, Rows, in_steps
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.estimation.estimators import a_channel, histogram, true_frequencies
from dpsieve.types import Floats, Ints

_NEVER, _ALWAYS = -45.0, -1e-15  # logarithms of probabilities that are as good as 0 and as 1
_NODES = 32
_KEYS = ("reported", "all")


def concordance(channel: Channel, i1: ArrayLike, i2: ArrayLike) -> Floats:
    """Return the probability that keys of true frequencies i1 and i2 come out in their true order.

    For i1 < i2, with independent tokens T1 and T2 ('nothing' is the lowest): P[T1 < T2] + P[T1 = T2] / 2 (Cohen, Geri,
    Sarlos, Stemmer 2021, section 6). It is symmetric in i1 and i2, which must differ; arrays are paired up as numpy
    does. Without a scheme no private channel has a larger one for any pair than `channels.optimal` (Corollary 6.1);
    with one, none that reports as often.

    >>> from dpsieve.channels import optimal
    >>> concordance(optimal(1.0, 1e-8), [10, 20, 30], [11, 25, 60]).round(4).tolist()
    [0.5001, 0.9888, 1.0]
    """
    channel = a_channel(channel)
    first, second = true_frequencies("i1", i1), true_frequencies("i2", i2)
    try:
        first, second = np.broadcast_arrays(first, second)
    except ValueError:
        raise InvalidValue("i1 and i2 differ in shape. Pass two numbers, or arrays of the same length.") from None
    if (first == second).any():
        raise InvalidValue("i1 and i2 hold equal frequencies, which have no order. Pass different ones.")
    below, above = np.minimum(first, second).ravel(), np.maximum(first, second).ravel()
    leads = [_lead(channel.rows, int(low), int(high)) for low, high in zip(below, above, strict=True)]
    return (0.5 + 0.5 * np.array(leads)).reshape(first.shape)


def kendall_tau(channel: Channel, frequencies: ArrayLike, counts: ArrayLike | None = None) -> float:
    """Return the expected Kendall tau between the order of tokens and the order of true frequencies.

    Over all pairs of keys with different true frequencies, (concordant - discordant) / pairs, where a tie, also between
    two unreported keys, counts 0:

        tau = sum_{i<k} n_i n_k (2 concordance(i, k) - 1) / sum_{i<k} n_i n_k,     n_i keys of frequency i.

    Exact, without sampling. One pass over the rows in increasing order keeps the tokens of all lower keys as one
    cumulative distribution, so the time grows with the number of different frequencies, not with that of pairs.

    >>> from dpsieve.channels import optimal, simple
    >>> zipf = [1000 // rank for rank in range(1, 40)]
    >>> round(kendall_tau(optimal(1.0, 1e-8), zipf), 4), round(kendall_tau(simple(1.0, 1e-8), zipf), 4)
    (0.9792, 0.9775)
    """
    channel = a_channel(channel)
    rows, keys = histogram(frequencies, counts)
    pairs = float(keys @ (np.cumsum(keys) - keys))
    if pairs == 0:
        raise InvalidValue("frequencies has no two keys that differ, so no pair has an order. Add another frequency.")
    reported, silent = channel.rows.reported(rows), channel.rows.withheld(rows)
    lead = _before(keys * silent) * reported - _before(keys * reported) * silent  # pairs with a key that is silent
    edges, total = np.zeros(1, np.int64), np.zeros(1)  # the lower keys that come out at a token up to each edge
    for part, span in channel.rows.bands(rows):
        mass = channel.rows.cell_probabilities(rows[part], span)
        lower = np.interp(span, edges, total)
        weighted = keys[part, None] * mass
        under = np.zeros((len(mass), len(span)))
        np.cumsum(_before(weighted), axis=1, out=under[:, 1:])
        under += lower
        known = total[-1] + _before(weighted.sum(axis=1))
        lead[part] += (mass * (under[:, :-1] + under[:, 1:] - known[:, None])).sum(axis=1)
        edges, total = span, lower + np.append(0.0, np.cumsum(weighted.sum(axis=0)))
    return float(keys @ lead) / pairs


def top_k_recall(channel: Channel, frequencies: ArrayLike, counts: ArrayLike | None, k: int) -> float:
    """Return the expected fraction of the true top k that come out above every key outside the true top k.

    Such a key has fewer than k keys above it, so it is among the k largest tokens: the expected overlap of the released
    and the true top k is at least k times this number. With F_y(z) the probability that key y comes out at z or below
    ('nothing' is below every token):

        (1/k) sum_{x in top} integral of prod_{y not in top} F_y(z) dF_x(z).

    Ties are broken by a fair coin, so z runs evenly through each cell of tokens. If several keys share the k-th
    frequency, any choice among them gives the same number. Counts must be whole.

    Nothing is sampled. Within a cell the product is the exponential of a concave function of z; a Gauss rule of 32
    nodes is put on the part where it may exceed e^-45 times its largest value, which leaves an error below 1e-9.

    >>> from dpsieve.channels import optimal
    >>> frequencies, counts = [500, 200, 100, 90, 30], [1, 4, 5, 10, 900]
    >>> [round(top_k_recall(optimal(1.0, 1e-8), frequencies, counts, k), 4) for k in (5, 10, 20)]
    [1.0, 0.9995, 1.0]
    """
    channel = a_channel(channel)
    rows, keys = histogram(frequencies, counts)
    if (keys != np.rint(keys)).any():
        raise InvalidValue("counts holds fractions, and the top k are whole keys. Round them first.")
    k = validate.whole("k", k, low=1, hint="Pass how many keys are on top, such as k=10.")
    if k > keys.sum():
        raise InvalidValue("k is larger than the number of keys. Pass a smaller one.")
    above = np.cumsum(keys[::-1])[::-1] - keys
    top = np.clip(k - above, 0.0, keys)
    rest = keys - top
    wins = float(top @ channel.rows.reported(rows))
    ahead, behind = np.flatnonzero(top), np.flatnonzero(rest)
    if len(behind):
        wide = channel.rows.spread
        ahead = ahead[rows[ahead] < rows[behind[-1]] + 2 * wide]
        behind = behind[rows[behind] > rows[np.flatnonzero(top)[0]] - 2 * wide]
    if len(ahead) and len(behind):
        edges = channel.rows.cell_edges(max(int(rows[ahead[0]]) - wide, 0), int(rows[ahead[-1]]) + wide)
        mass = sum(top[ahead[part]] @ some for part, some in _masses(channel.rows, rows[ahead], edges))
        wins -= float(mass @ (1 - _beaten(channel.rows, rows[behind], rest[behind], edges)))
    return wins / k


def frequency_quantiles(
    channel: Channel, tokens: ArrayLike, quantiles: ArrayLike = (0.25, 0.5, 0.75), *, keys: str = "reported"
) -> Ints:
    """Return estimated quantiles of the true frequencies of keys, from the tokens of the reported ones.

    Each token stands for its likeliest frequency c, with weight 1 for keys='reported', or 1 / pi_c for keys='all'. The
    q-quantile is the smallest c up to which at least a share q of the weight lies.

    What to expect. Each count is off by about 1/epsilon, so quantiles are as sharp as that, and differences smaller
    than that are washed out: the noise is not deconvolved. keys='all' makes up for keys of medium frequency that were
    not reported, in proportion to those that were. It knows nothing of rarer ones: a token never has a likeliest
    frequency that is reported less than about half of the time, so keys below that (about ln(epsilon/delta)/epsilon)
    are nearly absent, whatever their number.

    >>> from dpsieve.channels import optimal
    >>> frequency_quantiles(optimal(1.0, 1e-8), [5.5, 31.0, 31.5, 80.0, 400.0], [0.1, 0.5, 0.9]).tolist()
    [24, 50, 418]
    """
    channel = a_channel(channel)
    hint = "Pass shares from 0 to 1, such as quantiles=[0.5, 0.9]."
    try:
        shares = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
    except (TypeError, ValueError):
        raise InvalidType(f"quantiles must be numbers. {hint}") from None
    if shares.ndim != 1 or not ((shares >= 0) & (shares <= 1)).all():
        raise InvalidValue(f"quantiles holds a number outside 0 to 1. {hint}")
    if keys not in _KEYS:
        raise InvalidValue("keys is not known. Choose 'reported' or 'all'.")
    if np.size(tokens) == 0:
        raise InvalidValue("tokens is empty, so there is no quantile. Pass the tokens of a release with some keys.")
    counts = np.sort(np.minimum(channel.likeliest(tokens), LARGEST_FREQUENCY))
    weights = np.ones(len(counts)) if keys == "reported" else 1 / channel.rows.reported(counts)
    share = np.cumsum(weights)
    place = np.searchsorted(share, shares * share[-1] * (1 - 1e-12), side="left")
    return np.asarray(counts[np.minimum(place, len(counts) - 1)])


def _lead(rows: Rows, low: int, high: int) -> float:
    """Return P[T_low < T_high] - P[T_low > T_high]."""
    pair, wide = np.array([low, high]), rows.spread
    (shown_low, shown_high), (silent_low, silent_high) = rows.reported(pair), rows.withheld(pair)
    if high - low >= 2 * wide:
        return float(shown_high - silent_high * shown_low)
    edges = rows.cell_edges(max(low - wide, 0), high + wide)
    lower, upper = rows.cell_probabilities(pair, edges)
    sums = np.append(0.0, np.cumsum(lower))
    return float(silent_low * shown_high - silent_high * shown_low + upper @ (sums[:-1] + sums[1:] - sums[-1]))


def _before(values: Floats) -> Floats:
    """Return, at each place, the sum of all entries before it along the first axis."""
    return np.asarray(np.cumsum(values, axis=0) - values)


def _masses(rows: Rows, frequencies: Ints, edges: Ints) -> Iterator[tuple[slice, Floats]]:
    """Yield the cell probabilities of some frequencies at a time."""
    for part, _ in in_steps(0, len(frequencies), edges):
        yield part, rows.cell_probabilities(frequencies[part], edges)


def _beaten(rows: Rows, frequencies: Ints, keys: Floats, edges: Ints) -> Floats:
    """Return, for a token that is even in each cell, the probability that all keys come out below it."""
    least = rows.withheld(frequencies)
    at_edges, slope = np.zeros(len(edges)), np.zeros(len(edges) - 1)
    for part, mass in _masses(rows, frequencies, edges):
        over = _over(mass)
        at_edges += keys[part] @ _log_below(over, least[part, None])
        slope += keys[part] @ (mass / np.maximum(1 - over[:, 1:], least[part, None]))
    beaten = np.exp(at_edges[1:])
    open_ = np.flatnonzero((at_edges[1:] > _NEVER) & (at_edges[:-1] < _ALWAYS))
    width = np.minimum(1.0, -_NEVER / np.maximum(slope[open_], 1e-9))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    depth = width[:, None] * (nodes + 1) / 2  # how far below the upper end of the cell
    inside = np.zeros_like(depth)
    for part, mass in _masses(rows, frequencies, edges):
        over = _over(mass)[:, 1:]
        for row, key, silent in zip(range(len(mass)), keys[part], least[part], strict=True):
            reached = over[row, open_, None] + depth * mass[row, open_, None]
            inside += key * _log_below(reached, silent)
    beaten[open_] = np.exp(inside) @ weights / 2 * width
    return np.asarray(beaten)


def _over(mass: Floats) -> Floats:
    """Return the mass of each row above each edge."""
    return np.cumsum(np.pad(mass, ((0, 0), (0, 1)))[:, ::-1], axis=1)[:, ::-1]


def _log_below(over: Floats, least: Floats | float) -> Floats:
    """Return log(1 - over), where 1 - over is at least the probability of 'nothing'."""
    return np.where(over < 0.5, np.log1p(-np.minimum(over, 0.5)), np.log(np.maximum(1 - over, least)))
