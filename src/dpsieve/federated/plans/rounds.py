"""The cost of several rounds of sample-and-threshold in which one client may answer each time.

In each round the client's cell holds some k clients with it, and its row is k instead of k - 1; k may depend on earlier
answers. `accounting.adaptive` composes the pairs of all k; finitely many are enough, and at low rates the pairs of a
higher rate stand for them. A trie is `pruned`: it asks a client only while the cell of its string survives, so the
outcome 'nothing' is the last one. Proof: docs/background/federated.md#the-cost-of-rounds.
"""

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from dpsieve.accounting.adaptive import Pair, adaptive_delta
from dpsieve.exact.binomial import at_least, below, masses, window
from dpsieve.noise.sample_threshold import rounded_delta
from dpsieve.types import Floats, Ints
from dpsieve.validate import Neighbours

_MOST_ROWS = 4000
_FINE_GRID, _ROUGH_GRID = 6.0, 3.0
_WRONG = 1e-11  # relative error of a mass, at most
_FAR, _RARE = 60.0, 1e-26  # tokens with masses below e^-60, about 1e-26, are joined


@lru_cache(maxsize=1024)
def rounds_delta(
    epsilon: float,
    rate: float,
    threshold: int,
    rounds: int,
    neighbours: Neighbours,
    pruned: bool = False,
    rough: bool = False,
) -> float:
    """Return a delta at which `rounds` rounds, each with this rate and threshold, are (epsilon, delta)-private.

    It is an upper bound. With `rough` it is approximate and takes a tenth of the time, for searches.

    >>> f"{rounds_delta(1.0, 0.1, 12, 1, 'add_remove'):.3g}", f"{rounds_delta(1.0, 0.1, 12, 10, 'add_remove'):.3g}"
    ('4.56e-10', '4.58e-09')
    """
    lowest = last_row(1.0, threshold) / _MOST_ROWS
    if rate >= lowest:
        return pairs_delta(epsilon, rate, threshold, rounds, neighbours, pruned=pruned, rough=rough)
    part, relation = epsilon / rounds * (1 - 2.0**-50), "add_remove" if rough else neighbours  # 'replace' is slow
    summed = min(1.0, rounds * rounded_delta(part, rate, threshold, relation))
    if lowest >= 1:
        return summed
    return min(summed, pairs_delta(epsilon, lowest, threshold, rounds, neighbours, pruned=pruned, rough=rough))


def last_row(rate: float, threshold: int) -> int:
    """Return a k beyond which a threshold hardly matters."""
    return math.ceil((2 * threshold + 16) / rate)


def pairs_delta(
    epsilon: float,
    rate: float,
    threshold: int,
    rounds: int,
    neighbours: Neighbours,
    *,
    pruned: bool = False,
    rough: bool = False,
) -> float:
    """Return a delta at which `rounds` rounds are (epsilon, delta)-private, rounded up and a few percent above.

    With `pruned`, nothing is asked after 'nothing'. With `rough` it is approximate, from some of the rows, and may be
    too low: for searches.

    >>> [f"{pairs_delta(1.0, 0.1, 12, rounds, 'add_remove'):.3g}" for rounds in (1, 10)]
    ['4.56e-10', '4.58e-09']
    >>> f"{pairs_delta(1.0, 0.1, 12, 10, 'add_remove', pruned=True):.3g}"
    '5.1e-10'
    """
    more, less = _pairs(rate, threshold, rough, pruned)
    # Parts of the deviation of a loss near the threshold, or of epsilon.
    grid = min(rate / math.sqrt(threshold * (1 - rate)), max(epsilon, rate)) / (_ROUGH_GRID if rough else _FINE_GRID)
    if neighbours == "replace":  # one cell loses a client, another gains one
        delta = adaptive_delta(more, rounds, epsilon, grid=grid, **({"then": less} if pruned else {"also": less}))
    else:
        delta = max(adaptive_delta(pairs, rounds, epsilon, grid=grid) for pairs in (more, less))
    return min(1.0, delta * (1 + 2 * rounds * _WRONG))


def _pairs(rate: float, threshold: int, rough: bool, pruned: bool) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs (row k, row k - 1) and (row k - 1, row k) of all k that count, or of some of them."""
    end = last_row(rate, threshold)
    counts = np.arange(threshold, end + 1)
    if rough:
        counts = np.unique(np.rint(np.geomspace(threshold, end, 40)).astype(int))
    tokens = np.arange(window(end, rate, _FAR)[1] + 1)
    if rough:
        rows, before = (masses(ks[:, None], tokens, rate) for ks in (counts, counts - 1))
    else:
        all_rows = masses(np.arange(threshold - 1, end + 1)[:, None], tokens, rate)
        rows, before = all_rows[1:], all_rows[:-1]
    last = _row_pairs(counts[-1:], 0, rows[-1:], before[-1:], rate)
    pairs = [*_row_pairs(counts, threshold, rows, before, rate, pruned), *last]
    return [more for more, _ in pairs], [less for _, less in pairs]


def _row_pairs(
    ks: Ints, least: int, rows: Floats, before: Floats, rate: float, pruned: bool = False
) -> Iterator[tuple[Floats, Floats]]:
    """Yield both directions of rows k against rows k - 1, with 'nothing' below the token `least`, last if pruned."""
    last = np.maximum(least, rows.shape[1] - 1 - np.argmax(rows[:, ::-1] > _RARE, axis=1))
    # Rare tokens beyond the last one count as an infinite loss, or as the small one of the last token.
    beyond, beyond_before = at_least(ks, last + 1, rate), at_least(ks - 1, last + 1, rate)
    silent, silent_before = (below(ks - j, max(least, 1), rate) for j in (0, 1))
    for i, (k, end) in enumerate(zip(ks.tolist(), last.tolist(), strict=True)):
        with np.errstate(divide="ignore"):
            losses = np.log(k * (1 - rate) / (k - np.arange(least, end + 1)))
        more, less = np.zeros((len(losses) + 2, 3)), np.zeros((len(losses) + 1, 3))
        more[:-2, 0], more[:-2, 1], more[-2] = rows[i, least : end + 1], losses, (beyond[i], math.inf, 0)
        less[:-1, 0], less[:-1, 1] = before[i, least : end + 1], -losses
        less[-2, 0] += beyond_before[i]
        if least > 0:
            is_likely = silent_before[i] > _RARE
            fall = math.log1p(-rate * before[i, least - 1] / silent_before[i]) if is_likely else 0.0
            more[-1] = silent[i], fall, pruned
            less[-1] = silent_before[i], -fall if is_likely else math.inf, pruned  # a negligible mass
        yield more[more[:, 0] > 0], less[less[:, 0] > 0]
