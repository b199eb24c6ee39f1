"""The top k: how many of the truly most frequent keys come out on top."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.channel import Channel
from dpsieve.errors import InvalidValue
from dpsieve.estimation.checks import Floats, Ints, a_channel, histogram
from dpsieve.estimation.windows import CELLS, silence

_NEVER, _ALWAYS = -45.0, -1e-15  # logarithms of probabilities that are as good as 0 and as 1
_NODES = 32


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
    wins = float(top @ channel.reporting_probability(rows))
    ahead, behind = np.flatnonzero(top), np.flatnonzero(rest)
    if len(behind):
        wide = channel.reach
        ahead = ahead[rows[ahead] < rows[behind[-1]] + 2 * wide]
        behind = behind[rows[behind] > rows[np.flatnonzero(top)[0]] - 2 * wide]
    if len(ahead) and len(behind):
        edges = channel.breaks(max(int(rows[ahead[0]]) - wide, 0), int(rows[ahead[-1]]) + wide)
        mass = sum(top[ahead[part]] @ some for part, some in _masses(channel, rows[ahead], edges))
        wins -= float(mass @ (1 - _beaten(channel, rows[behind], rest[behind], edges)))
    return wins / k


def _masses(channel: Channel, rows: Ints, edges: Ints) -> Iterator[tuple[slice, Floats]]:
    """Yield the masses of rows between edges, some rows at a time."""
    step = max(CELLS // len(edges), 1)
    for start in range(0, len(rows), step):
        yield slice(start, start + step), channel.masses(rows[start : start + step], edges)


def _beaten(channel: Channel, rows: Ints, keys: Floats, edges: Ints) -> Floats:
    """Return, for a token that is even in each cell, the probability that all keys come out below it."""
    least = silence(channel, rows)
    at_edges, slope = np.zeros(len(edges)), np.zeros(len(edges) - 1)
    for part, mass in _masses(channel, rows, edges):
        over = _over(mass)
        at_edges += keys[part] @ _log_below(over, least[part, None])
        slope += keys[part] @ (mass / np.maximum(1 - over[:, 1:], least[part, None]))
    beaten = np.exp(at_edges[1:])
    open_ = np.flatnonzero((at_edges[1:] > _NEVER) & (at_edges[:-1] < _ALWAYS))
    width = np.minimum(1.0, -_NEVER / np.maximum(slope[open_], 1e-9))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    depth = width[:, None] * (nodes + 1) / 2  # how far below the upper end of the cell
    inside = np.zeros_like(depth)
    for part, mass in _masses(channel, rows, edges):
        over = _over(mass)[:, 1:]
        for row, key, quiet in zip(range(len(mass)), keys[part], least[part], strict=True):
            reached = over[row, open_, None] + depth * mass[row, open_, None]
            inside += key * _log_below(reached, quiet)
    beaten[open_] = np.exp(inside) @ weights / 2 * width
    return np.asarray(beaten)


def _over(mass: Floats) -> Floats:
    """Return the mass of each row above each edge."""
    return np.cumsum(np.pad(mass, ((0, 0), (0, 1)))[:, ::-1], axis=1)[:, ::-1]


def _log_below(over: Floats, least: Floats | float) -> Floats:
    """Return log(1 - over), where 1 - over is at least the probability of 'nothing'."""
    return np.where(over < 0.5, np.log1p(-np.minimum(over, 0.5)), np.log(np.maximum(1 - over, least)))
