"""The top k: how many of the truly most frequent keys come out on top."""

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.channel import Channel
from dpsieve.errors import InvalidValue
from dpsieve.estimation.checks import Floats, Ints, a_channel, histogram
from dpsieve.estimation.windows import CELLS, reach, silence, windows

_NEVER, _ALWAYS = -45.0, -1e-15  # logarithms of probabilities that count as 0 and as 1
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


def top_k_recall(channel: Channel, frequencies: ArrayLike, counts: ArrayLike | None, k: int) -> float:
    """Return the expected fraction of the true top k that come out above every key that is not in the true top k.

    A key counts if it is reported with a token above those of all other keys but the true top k. Then fewer than k keys
    are above it, so it is among the k largest tokens: the expected overlap of the released and the true top k is at
    least k times this number. With F_y(z) the probability that key y comes out at z or below ('nothing' is below all):

        (1/k) sum_{x in top} integral of prod_{y not in top} F_y(z) dF_x(z),

    ties broken by a fair coin, so z runs evenly through each cell of tokens. If the k-th frequency is that of several keys, any
    choice among them gives the same number. Cells are integrated by a Gauss rule of 32 nodes over the part that
    matters; the error is below 1e-9. Tokens are independent, so none is sampled.

    >>> from dpsieve.channels import optimal
    >>> round(top_k_recall(optimal(1.0, 1e-8), [500, 200, 100, 40, 20, 5], [1, 4, 5, 10, 80, 900], k=10), 6)
    1.0
    >>> round(top_k_recall(optimal(1.0, 1e-8), [500, 200, 100, 40, 20, 5], [1, 4, 5, 10, 80, 900], k=20), 4)
    0.0
    """
    channel = a_channel(channel)
    rows, keys = histogram(frequencies, counts)
    k = validate.whole("k", k, low=1, hint="Pass how many keys are on top, such as k=10.")
    if k > keys.sum():
        raise InvalidValue("k is larger than the number of keys. Pass a smaller one.")
    over = np.append(np.cumsum(keys[::-1])[::-1], 0.0)  # keys of each frequency or a larger one
    top = np.clip(k - over[1:], 0.0, keys)
    rest = keys - top
    chosen = np.flatnonzero(top)
    wins = channel.reporting_probability(rows[chosen])
    others = np.flatnonzero(rest)
    if len(others):
        wide = reach(channel)
        contested = chosen[rows[chosen] < rows[others[-1]] + 2 * wide]
        near = others[rows[others] > rows[chosen[0]] - 2 * wide]
        edges = channel.breaks(max(int(rows[chosen[0]]) - wide, 0), int(rows[contested[-1]]) + wide)
        mass = _column_sums(channel, rows[contested], top[contested], edges)
        clear = top[chosen] @ wins - mass.sum()
        return float(clear + mass @ _beaten(channel, rows[near], rest[near], edges, mass > 0)) / k
    return float(top[chosen] @ wins) / k
