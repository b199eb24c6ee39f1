"""Order: whether tokens rank keys as their true frequencies do.

'Nothing' ranks below every token, and ties are broken by a fair coin. Rows are even within a cell, so two tokens of the
same cell are in either order with probability 1/2, ties included.
"""

import numpy as np
from numpy.typing import ArrayLike

from dpsieve.channels.channel import Channel
from dpsieve.errors import InvalidValue
from dpsieve.estimation.checks import Floats, a_channel, histogram, true_frequencies
from dpsieve.estimation.windows import silence, windows


def concordance(channel: Channel, i1: ArrayLike, i2: ArrayLike) -> Floats:
    """Return the probability that keys of true frequencies i1 and i2 come out in their true order.

    For i1 < i2, with independent tokens T1 and T2 ('nothing' is the lowest): P[T1 < T2] + P[T1 = T2] / 2 (Cohen, Geri,
    Sarlos, Stemmer 2021, section 6). It is symmetric in i1 and i2, which must differ; arrays are paired up as numpy
    does. No private channel has a larger one for any pair than `channels.optimal` (Corollary 6.1).

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
    leads = [_lead(channel, int(low), int(high)) for low, high in zip(below, above, strict=True)]
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
    reported, silent = channel.reporting_probability(rows), silence(channel, rows)
    lead = _before(keys * silent) * reported - _before(keys * reported) * silent  # pairs with a key that is silent
    edges, total = np.zeros(1, np.int64), np.zeros(1)  # the lower keys that come out at a token up to each edge
    for part, span in windows(channel, rows):
        mass = channel.masses(rows[part], span)
        lower = np.interp(span, edges, total)
        weighted = keys[part, None] * mass
        under = np.zeros((len(mass), len(span)))
        np.cumsum(_before(weighted), axis=1, out=under[:, 1:])
        under += lower
        known = total[-1] + _before(weighted.sum(axis=1))
        lead[part] += (mass * (under[:, :-1] + under[:, 1:] - known[:, None])).sum(axis=1)
        edges, total = span, lower + np.append(0.0, np.cumsum(weighted.sum(axis=0)))
    return float(keys @ lead) / pairs


def _lead(channel: Channel, low: int, high: int) -> float:
    """Return P[T_low < T_high] - P[T_low > T_high]."""
    rows = np.array([low, high])
    (below, above), (quiet, mute) = channel.reporting_probability(rows), silence(channel, rows)
    wide = channel.reach
    if high - low >= 2 * wide:
        return float(above - mute * below)
    edges = channel.breaks(max(low - wide, 0), high + wide)
    lower, upper = channel.masses(rows, edges)
    sums = np.append(0.0, np.cumsum(lower))
    return float(quiet * above - mute * below + upper @ (sums[:-1] + sums[1:] - sums[-1]))


def _before(values: Floats) -> Floats:
    """Return, at each place, the sum of all entries before it along the first axis."""
    return np.asarray(np.cumsum(values, axis=0) - values)
