"""The cost of several rounds of sample-and-threshold from the pairs of rows themselves, by the adaptive recursion.

In each round the client's cell holds some k clients with it, and its row is k instead of k - 1; which k may depend on
earlier answers. `privacy.adaptive` composes the pairs of all k. That is less than composing the curve that is the worst
over all k at every epsilon (`composed_rounds`), as no k is the worst everywhere: a tenth of the delta at ten rounds.

A trie asks a client only while the cell of its string survives: after 'nothing' both sides answer alike, as the client
is not asked again. With `pruned` that outcome is the last one. It is the one that most rounds below the threshold have,
so that ten rounds cost about as much as one. When a client is replaced, its old string and its new one each have their
own series of cells, which end on their own: the cells of one level are disjoint, and all of them were fixed before the
first question, so the two series are independent and may be taken one after the other.

Finitely many k are enough. Below the threshold both rows are 'nothing'. Without a threshold, rows k + 1 and k are rows
k and k - 1 with an independent coin added, which is post-processing, and so is a threshold: the pair of the last k
without a threshold stands for all later ones, and ends no series, which would only show less.
"""

import math
from collections.abc import Iterator

import numpy as np

from dpsieve.exact.binomial import at_least, below, masses, window
from dpsieve.privacy.adaptive import Pair, adaptive_delta
from dpsieve.types import Floats, Ints
from dpsieve.validate import Neighbours

MOST_ROWS = 3000
_FINE, _ROUGH = 6.0, 3.0
_WRONG = 1e-11  # relative error of a mass, at most
_FAR, _RARE = 60.0, 1e-26  # tokens with masses below e^-60, about 1e-26, are joined


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

    With `pruned`, nothing is asked after 'nothing'. With `rough` it is about that, from some of the rows, and may be
    too low: it is for searches.

    >>> [f"{pairs_delta(1.0, 0.1, 12, rounds, 'add_remove'):.3g}" for rounds in (1, 10)]
    ['4.56e-10', '4.58e-09']
    >>> f"{pairs_delta(1.0, 0.1, 12, 10, 'add_remove', pruned=True):.3g}"
    '5.1e-10'
    """
    more, less = _pairs(rate, threshold, rough, pruned)
    # Parts of the deviation of a loss near the threshold, or of epsilon.
    grid = min(rate / math.sqrt(threshold * (1 - rate)), max(epsilon, rate)) / (_ROUGH if rough else _FINE)
    if neighbours == "replace":  # one cell loses a client, another gains one
        found = adaptive_delta(more, rounds, epsilon, grid=grid, **({"then": less} if pruned else {"also": less}))
    else:
        found = max(adaptive_delta(pairs, rounds, epsilon, grid=grid) for pairs in (more, less))
    return min(1.0, found * (1 + 2 * rounds * _WRONG))


def _pairs(rate: float, threshold: int, rough: bool, pruned: bool) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs (row k, row k - 1) and (row k - 1, row k) of all k that count, or of some of them."""
    end = last_row(rate, threshold)
    some = np.unique(np.rint(np.geomspace(threshold, end, 40)).astype(int)) if rough else np.arange(threshold, end + 1)
    tokens = np.arange(window(end, rate, _FAR)[1] + 1)
    if rough:
        rows, before = (masses(ks[:, None], tokens, rate) for ks in (some, some - 1))
    else:
        all_rows = masses(np.arange(threshold - 1, end + 1)[:, None], tokens, rate)
        rows, before = all_rows[1:], all_rows[:-1]
    pairs = [*_both(some, threshold, rows, before, rate, pruned), *_both(some[-1:], 0, rows[-1:], before[-1:], rate)]
    return [more for more, _ in pairs], [less for _, less in pairs]


def _both(
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
            some = silent_before[i] > _RARE
            fall = math.log1p(-rate * before[i, least - 1] / silent_before[i]) if some else 0.0
            more[-1] = silent[i], fall, pruned
            less[-1] = silent_before[i], -fall if some else math.inf, pruned  # of next to nothing
        yield more[more[:, 0] > 0], less[less[:, 0] > 0]
