"""Order: whether tokens rank keys as their true frequencies do, which keys come out on top, and quantiles.

Corollary 6.1 of Cohen, Geri, Sarlos and Stemmer (2021): for a pair, for a set in its true order and for one key against
all others, the optimal channel makes the true order as likely as any private channel that reports as often. All
functions compute exact sums over the rows.

'Nothing' ranks below every token, and ties are broken by a fair coin. Rows are even within a cell, so two tokens of one
cell are in either order with probability 1/2, ties included, and so are two keys without a token: within a cell, and
within 'nothing', each key has a place u that is uniform on [0, 1], and the larger place is above. So 'nothing' is one
more cell, below all others. Of r keys in one cell any order has probability 1 / r!.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.channel import ReportedCounts
from dpsieve.channels.law import CELLS, LARGEST_FREQUENCY, TokenLaw, in_steps
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.estimation.estimators import check_channel, check_frequencies
from dpsieve.papers.weighted_sampling.forecasts import histogram
from dpsieve.types import Floats, Ints

_NEVER, _ALWAYS = -50.0, -1e-15  # logarithms of probabilities that are as good as 0 and as 1
_STEEP = 30.0  # a factor of e^30 is integrated in one piece
_NODES = 32
_MOST_KEYS = 1000
Keys = Literal["reported", "all"]
_KEYS = get_args(Keys)


def concordance(channel: ReportedCounts, i1: ArrayLike, i2: ArrayLike) -> Floats:
    """Return the probability that keys of true frequencies i1 and i2 come out in their true order.

    For i1 < i2, with independent tokens T1 and T2 ('nothing' is the lowest): P[T1 < T2] + P[T1 = T2] / 2 (Cohen, Geri,
    Sarlos, Stemmer 2021, section 6). It is symmetric in i1 and i2, which must differ; arrays are paired up as numpy
    does. Without a scheme no private channel has a larger one for any pair than `channels.optimal` (Corollary 6.1);
    with one, none that reports as often.

    >>> from dpsieve.channels.unknown_keys import optimal
    >>> concordance(optimal(1.0, 1e-8), [10, 20, 30], [11, 25, 60]).round(4).tolist()
    [0.5001, 0.9888, 1.0]
    """
    channel = check_channel(channel)
    first, second = check_frequencies("i1", i1), check_frequencies("i2", i2)
    try:
        first, second = np.broadcast_arrays(first, second)
    except ValueError:
        raise InvalidValue("i1 and i2 differ in shape. Pass two numbers, or arrays of the same length.") from None
    if (first == second).any():
        raise InvalidValue("i1 and i2 hold equal frequencies, which have no order. Pass different ones.")
    below, above = np.minimum(first, second).ravel(), np.maximum(first, second).ravel()
    leads = [_lead(channel.rows, int(low), int(high)) for low, high in zip(below, above, strict=True)]
    return (0.5 + 0.5 * np.array(leads)).reshape(first.shape)


def kendall_tau(channel: ReportedCounts, frequencies: ArrayLike, counts: ArrayLike | None = None) -> float:
    """Return the expected Kendall tau between the order of tokens and the order of true frequencies.

    Over all pairs of keys with different true frequencies, (concordant - discordant) / pairs, where a tie, also between
    two unreported keys, counts 0:

        tau = sum_{i<k} n_i n_k (2 concordance(i, k) - 1) / sum_{i<k} n_i n_k,     n_i keys of frequency i.

    Exact, without sampling. One pass over the rows in increasing order keeps the tokens of all lower keys as one
    cumulative distribution, so the time grows with the number of different frequencies, not with that of pairs.

    >>> from dpsieve.channels.unknown_keys import optimal, simple
    >>> zipf = [1000 // rank for rank in range(1, 40)]
    >>> round(kendall_tau(optimal(1.0, 1e-8), zipf), 4), round(kendall_tau(simple(1.0, 1e-8), zipf), 4)
    (0.9792, 0.9775)
    """
    channel = check_channel(channel)
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


def top_k_recall(channel: ReportedCounts, frequencies: ArrayLike, counts: ArrayLike | None, k: int) -> float:
    """Return the expected fraction of the true top k that come out above every key outside the true top k.

    Such a key has fewer than k keys above it, so it is among the k largest tokens: the expected overlap of the released
    and the true top k is at least k times this number. With F_y(z) the probability that key y comes out at z or below
    ('nothing' is below every token):

        (1/k) sum_{x in top} integral of prod_{y not in top} F_y(z) dF_x(z).

    Ties are broken by a fair coin, so z runs evenly through each cell of tokens. If several keys share the k-th
    frequency, any choice among them gives the same number. Counts must be whole.

    Nothing is sampled. Within a cell the product is the exponential of a concave function of z, which a Gauss rule of
    32 nodes on short parts integrates: right to 1e-12.

    >>> from dpsieve.channels.unknown_keys import optimal
    >>> frequencies, counts = [500, 200, 100, 90, 30], [1, 4, 5, 10, 900]
    >>> [round(top_k_recall(optimal(1.0, 1e-8), frequencies, counts, k), 4) for k in (5, 10, 20)]
    [1.0, 0.9995, 1.0]
    """
    channel = check_channel(channel)
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
        edges = channel.rows.spanning_edges(int(rows[ahead[0]]), int(rows[ahead[-1]]))
        mass = sum(top[ahead[part]] @ some for part, some in _masses(channel.rows, rows[ahead], edges))
        wins -= float(mass @ (1 - _beaten(channel.rows, rows[behind], rest[behind], edges)))
    return wins / k


def frequency_quantiles(
    channel: ReportedCounts,
    tokens: ArrayLike,
    quantiles: ArrayLike = (0.25, 0.5, 0.75),
    *,
    keys: Keys = "reported",
) -> Ints:
    """Return estimated quantiles of the true frequencies of keys, from the tokens of the reported ones.

    Each token stands for its likeliest frequency c, with weight 1 for keys='reported', or 1 / pi_c for keys='all'. The
    q-quantile is the smallest c up to which at least a share q of the weight lies.

    What to expect. Each count is off by about 1/epsilon, so quantiles are as sharp as that, and differences smaller
    than that are washed out: the noise is not deconvolved. keys='all' makes up for keys of medium frequency that were
    not reported, in proportion to those that were. It knows nothing of rarer ones: a token never has a likeliest
    frequency that is reported less than about half of the time, so keys below that (about ln(epsilon/delta)/epsilon)
    are nearly absent, whatever their number.

    >>> from dpsieve.channels.unknown_keys import optimal
    >>> channel = optimal(1.0, 1e-8)
    >>> tokens = [noisy * channel.resolution // 2 for noisy in (11, 62, 63, 160, 800)]
    >>> frequency_quantiles(channel, tokens, [0.1, 0.5, 0.9]).tolist()
    [24, 50, 418]
    """
    channel = check_channel(channel)
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


@dataclass(frozen=True)
class KeysAbove:
    """How many keys come out above one key: the mean, and the variance around it."""

    expectation: float
    variance: float


def subset_concordance(channel: ReportedCounts, frequencies: ArrayLike) -> float:
    """Return the probability that keys of these true frequencies all come out in their true order.

    Frequencies must differ; at most 1,000 of them. For two keys it is `concordance`. One pass over the cells, from
    'nothing' up: with G_k the probability that the k lowest keys are in the cells so far, in order, and m_j that of key
    j in the next cell,

        G_k becomes the sum over r = 0, 1, ... of G_(k-r) m_(k-r+1) ... m_k / r!.

    >>> from dpsieve.channels.unknown_keys import optimal
    >>> round(subset_concordance(optimal(1.0, 1e-8), [20, 25, 30, 60]), 4)
    0.9777
    """
    channel = check_channel(channel)
    rows = np.sort(check_frequencies("frequencies", frequencies).ravel())
    if (np.diff(rows) == 0).any():
        raise InvalidValue("frequencies holds equal ones, which have no order. Pass different ones.")
    if not 2 <= len(rows) <= _MOST_KEYS:
        raise InvalidValue(f"frequencies must hold from 2 to {_MOST_KEYS:,} keys.")
    placed = _joined(np.append(1.0, np.zeros(len(rows))), channel.rows.withheld(rows))
    wide = channel.rows.spread
    for some in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows) >= 2 * wide) + 1):
        first, last = some[0], some[-1] + 1
        edges = channel.rows.spanning_edges(int(rows[first]), int(rows[last - 1]))
        step = max(CELLS // len(some), 1)
        for start in range(0, len(edges) - 1, step):
            for mass in channel.rows.cell_probabilities(rows[first:last], edges[start : start + step + 1]).T:
                held = np.flatnonzero(mass)
                if len(held):
                    a, b = first + held[0], first + held[-1] + 1
                    placed[a : b + 1] = _joined(placed[a : b + 1], mass[held[0] : held[-1] + 1])
    return float(placed[-1])


def key_concordance(channel: ReportedCounts, i: int, frequencies: ArrayLike, counts: ArrayLike | None = None) -> float:
    """Return the probability that a key of true frequency i comes out in its true order with every other key.

    `counts[t]` other keys have frequency `frequencies[t]`; those of frequency i have no order with it and are left out.
    With over_k(u) the probability that a key of frequency k is above place u of a cell, which falls evenly with u, it
    is the sum over cells, with the mass of key i, of

        integral over u of  prod_{k<i} (1 - over_k(u))^n_k  prod_{k>i} over_k(u)^n_k  du.

    The integrand is the exponential of a concave function, which a Gauss rule of 32 nodes on short parts integrates:
    exact where there are fewer than 64 keys, and right to 1e-12 otherwise.

    >>> from dpsieve.channels.unknown_keys import optimal
    >>> round(key_concordance(optimal(1.0, 1e-8), 30, [20, 25, 60], [100, 1, 1]), 4)
    0.9833
    """
    channel, rows, keys, i = _others(channel, i, frequencies, counts)
    rows, keys = rows[rows != i], keys[rows != i]
    own, above, inside = _cells(channel.rows, i, rows)
    lower = (rows < i)[:, None]

    def log_in_order(cell: Ints, places: Floats) -> Floats:
        heights = np.empty_like(places)
        for node, place in enumerate(places):
            over = above[:, cell] + (1 - place) * inside[:, cell]
            heights[node] = keys @ np.log(np.clip(np.where(lower, 1 - over, over), 1e-300, 1.0))
        return heights

    cells = np.flatnonzero(own)
    return float(own[cells] @ _integrate(log_in_order, cells))


def keys_above(channel: ReportedCounts, i: int, frequencies: ArrayLike, counts: ArrayLike | None = None) -> KeysAbove:
    """Return how many of the other keys come out above a key of true frequency i: its rank is one more than that.

    `counts[t]` other keys have frequency `frequencies[t]`. Given the cell and the place u of the key, others are above
    it independently, so mean and variance are sums of polynomials in u over the cells.

    >>> from dpsieve.channels.unknown_keys import optimal
    >>> keys_above(optimal(1.0, 1e-8), 100, [30, 99, 500], [50, 3, 7])
    KeysAbove(expectation=7.806..., variance=0.983...)
    """
    channel, rows, keys, i = _others(channel, i, frequencies, counts)
    own, above, inside = _cells(channel.rows, i, rows)
    a, b = keys @ above, keys @ inside
    square = above**2 + above * inside + inside**2 / 3  # the mean of over_k(u)^2
    expectation = float(own @ (a + b / 2))
    spread = float(own @ (keys @ (above + inside / 2 - square)))
    return KeysAbove(expectation, spread + float(own @ ((a + b / 2 - expectation) ** 2 + b**2 / 12)))


def _lead(rows: TokenLaw, low: int, high: int) -> float:
    """Return P[T_low < T_high] - P[T_low > T_high]."""
    pair, wide = np.array([low, high]), rows.spread
    (shown_low, shown_high), (silent_low, silent_high) = rows.reported(pair), rows.withheld(pair)
    if high - low >= 2 * wide:
        return float(shown_high - silent_high * shown_low)
    edges = rows.spanning_edges(low, high)
    lower, upper = rows.cell_probabilities(pair, edges)
    sums = np.append(0.0, np.cumsum(lower))
    return float(silent_low * shown_high - silent_high * shown_low + upper @ (sums[:-1] + sums[1:] - sums[-1]))


def _before(values: Floats) -> Floats:
    """Return, at each place, the sum of all entries before it along the first axis."""
    return np.asarray(np.cumsum(values, axis=0) - values)


def _masses(rows: TokenLaw, frequencies: Ints, edges: Ints) -> Iterator[tuple[slice, Floats]]:
    """Yield the cell probabilities of some frequencies at a time."""
    for part, _ in in_steps(0, len(frequencies), edges):
        yield part, rows.cell_probabilities(frequencies[part], edges)


def _beaten(rows: TokenLaw, frequencies: Ints, keys: Floats, edges: Ints) -> Floats:
    """Return, for a token that is even in each cell, the probability that all keys come out below it."""
    least, at_edges = rows.withheld(frequencies), np.zeros(len(edges))
    for part, mass in _masses(rows, frequencies, edges):
        at_edges += keys[part] @ _log_below(_over(mass), least[part, None])
    undecided = np.flatnonzero((at_edges[1:] > _NEVER) & (at_edges[:-1] < _ALWAYS))

    def log_below(cell: Ints, places: Floats) -> Floats:
        total = np.zeros_like(places)
        for part, mass in _masses(rows, frequencies, edges):
            over = _over(mass)[:, 1:]
            for row, key, silent in zip(range(len(mass)), keys[part], least[part], strict=True):
                total += key * _log_below(over[row, cell] + (1 - places) * mass[row, cell], silent)
        return total

    beaten = np.exp(at_edges[1:])
    beaten[undecided] = _integrate(log_below, undecided)
    return np.asarray(beaten)


def _integrate(height: Callable[[Ints, Floats], Floats], cells: Ints) -> Floats:
    """Return, for each cell, the integral over u from 0 to 1 of e^height(u), for heights that are concave in u.

    `height` takes the cell of each part and places u in it, one row for each point. Parts are halved until the height
    changes by less than 30 on each, and a Gauss rule of 32 nodes does the rest: right to 1e-12. Parts on which the
    height cannot exceed -50 count as they are.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    points, weights = np.concatenate([[0.0], (nodes + 1) / 2, [1.0]])[:, None], weights / 2
    total, of_cell = np.zeros(len(cells)), np.arange(len(cells))
    left, width = np.zeros(len(cells)), np.ones(len(cells))
    while len(of_cell):
        heights = height(cells[of_cell], left + width * points)
        peak, inner = _peak(points, heights), heights[1:-1]
        steep = (peak - inner.min(axis=0) > _STEEP) & (peak > _NEVER) & (width > 2.0**-40)
        integral = np.where(steep, 0.0, width * (weights @ np.exp(inner)))
        total += np.bincount(of_cell, integral, len(cells))
        of_cell, left, width = (part[steep] for part in (of_cell, left, width))
        of_cell, left = np.tile(of_cell, 2), np.concatenate([left, left + width / 2])
        width = np.tile(width / 2, 2)
    return total


def _peak(points: Floats, heights: Floats) -> Floats:
    """Return an upper bound of concave functions from their values: no chord's extension lies below them."""
    gaps = np.diff(points, axis=0)
    slopes = np.diff(heights, axis=0) / gaps
    bounds = np.full_like(slopes, np.inf)
    bounds[1:] = heights[1:-1] + slopes[:-1] * gaps[1:]
    bounds[:-1] = np.minimum(bounds[:-1], heights[1:-1] - slopes[1:] * gaps[:-1])
    return np.asarray(np.maximum(bounds, np.maximum(heights[:-1], heights[1:])).max(axis=0))


def _over(mass: Floats) -> Floats:
    """Return the mass of each row above each edge."""
    return np.cumsum(np.pad(mass, ((0, 0), (0, 1)))[:, ::-1], axis=1)[:, ::-1]


def _log_below(over: Floats, least: Floats | float) -> Floats:
    """Return log(1 - over), where 1 - over is at least the probability of 'nothing'."""
    return np.where(over < 0.5, np.log1p(-np.minimum(over, 0.5)), np.log(np.maximum(1 - over, least)))


def _others(
    channel: ReportedCounts, i: int, frequencies: ArrayLike, counts: ArrayLike | None
) -> tuple[ReportedCounts, Ints, Floats, int]:
    hint = "Pass the true frequency of one key, such as i=20."
    i = validate.whole("i", i, low=1, high=LARGEST_FREQUENCY, hint=hint)
    return check_channel(channel), *histogram(frequencies, counts), i


def _cells(rows: TokenLaw, i: int, others: Ints) -> tuple[Floats, Floats, Floats]:
    """Return the mass of key i in each cell, 'nothing' first; and of each other key that above and that inside."""
    wide = rows.spread
    edges = rows.spanning_edges(i, i + 2 * wide)
    near, far = np.abs(others - i) < 2 * wide, others >= i + 2 * wide
    cells = np.zeros((len(others), len(edges)))  # the last column is all that lies above
    cells[near, :-1] = rows.cell_probabilities(others[near], edges)
    cells[far, -1] = rows.reported(others[far])
    over = np.cumsum(cells[:, ::-1], axis=1)[:, ::-1]
    own = rows.cell_probabilities(np.array([i]), edges)[0]
    some = np.flatnonzero(own)
    above = np.column_stack([rows.reported(others), over[:, 1:][:, some]])
    inside = np.column_stack([rows.withheld(others), cells[:, some]])
    return np.append(rows.withheld(np.array([i])), own[some]), above, inside


def _joined(placed: Floats, mass: Floats) -> Floats:
    """Return the probabilities that the first 0, 1, 2, ... keys are in order, with one more cell of these masses."""
    total, term = placed.copy(), placed
    for r in range(1, len(mass) + 1):
        term = np.append(0.0, term[:-1] * mass / r)
        if not term.any():
            break
        total += term
    return total
