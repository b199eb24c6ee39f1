"""The exact delta of sample-and-threshold when one client replaces its value by another one.

Two cells change at once: one from k to k-1 clients, another one from l to l+1. With the rows P of
`channels.binomial.divergence` and z = e^epsilon, delta is the supremum over k >= 1 and l >= 0 of

    H(k, l) = sum over x, y of max(0, P_k(x) P_l(y) - z P_(k-1)(x) P_(l+1)(y))
            = sum over x of P_k(x) G(l, z P_(k-1)(x) / P_k(x)),
    G(l, s) = sum over y of max(0, P_l(y) - s P_(l+1)(y)).

Both directions are covered, since the pair (k-1, l+1) -> (k, l) is of the same kind. G is B of `sampled_divergence`,
at the frequency l+1 and the slope s: it does not fall up to its peak l*(s) = ceil((t-1) / (1 - (1-p) s)) - 1, does not
grow after it, and is zero for s (1-p) >= 1. In s it falls. In the same way H does not grow with k from
(t-1) / (1 - 1/z) on. Rows k < t are all 'nothing', and leave G(l, z), whose largest value is that of a client that
leaves.

The largest one is found in `channels.binomial.pairs`, which bounds H over rectangles of pairs; for a single pair the
bound is H(k, l). The rectangle with the largest bound is cut in two until it is one pair: no other pair has more.

What is returned is never below the exact value, and mostly above it by less than 1e-8 of it. At low rates the safe side
of the differences in G costs more: among three thousand settings 5e-8 was seen at a rate of 0.001, and 7.4e-6 at the
worst, for a delta of 1e-52. Where `replace` says that it is a bound, it may be further away.
"""

import heapq
import math
from collections.abc import Callable

from dpsieve.channels.binomial.divergence import add_remove, appearing, vanishing
from dpsieve.channels.binomial.pairs import Pairs
from dpsieve.exact.search import Ball, ball, lower

_LARGEST = 1 << 20  # rows in the table of one cell
_MOST_CUTS = 10_000  # some hundreds are enough, but thousands for an epsilon of 0.003, or rates next to one


def replace(epsilon: float, rate: float, threshold: int) -> float:
    """Return the least delta at epsilon when one client's value is replaced, rounded up.

    Where the search would need rows beyond 2^20 (threshold / epsilon above 10^6, or rates below
    (threshold + sqrt(2 d threshold) + 2 d) / 2^20 with d = 30 + ln(1 / delta), mostly 1e-4 to 1e-3), or too many cuts
    (rates within 1e-7 of one, or epsilon 0.003 with a threshold above 100), the answer is an upper bound instead: what
    the cuts have led to, or the smaller of two, of which 1.5 times the exact delta was seen. A cell that gains a client
    adds at most ln(1/(1-p)) to the loss: so it is at most what appears at the slope (1-p) e^epsilon, which is close for
    small rates. And one client leaves, then another one comes: (1 + e^(epsilon/2)) delta(epsilon/2).

    >>> f"{replace(1.0, 0.3, 24):.4g}"
    '1.257e-08'
    """
    return _search(epsilon, rate, threshold, lambda pairs: _largest(pairs, rate))


def roughly_replace(epsilon: float, rate: float, threshold: int) -> float:
    """Return an upper bound on `replace`, mostly within a third of it (2.2 times it was seen), in less time."""
    return _search(epsilon, rate, threshold, lambda pairs: pairs.bound(*pairs.whole))


def _search(epsilon: float, rate: float, threshold: int, how: Callable[[Pairs], float]) -> float:
    least, _ = add_remove(epsilon, rate, threshold)
    bound = max(least, _bounded(epsilon, rate, threshold))
    depth = 30.0 - math.log(max(least, 1e-300))
    last_l = (threshold + math.sqrt(2 * threshold * depth) + 2 * depth) / rate  # P[X_l < t] <= e^-depth (Chernoff)
    last_k = (threshold - 1) / max(-math.expm1(-epsilon), 1e-12) + 2
    if bound <= least * (1 + 1e-9) or max(last_k, last_l) > _LARGEST:
        return bound
    gone, _ = vanishing(lambda: ball(epsilon).exp(), rate, threshold)
    pairs = Pairs(math.exp(epsilon), rate, threshold, math.ceil(last_k), math.ceil(last_l), math.exp(-depth))
    return min(bound, max(gone, how(pairs)))


def _largest(pairs: Pairs, rate: float) -> float:
    """Return the largest H(k, l) over all k from the threshold on and all l, or up to 1e-9 of it more.

    After many cuts it is the bound that they have led to, which is above all H(k, l) as well.
    """
    heap, seen = [(-pairs.bound(*pairs.whole), pairs.whole)], 0.0
    for _ in range(_MOST_CUTS):
        bound, (k1, k2, l1, l2) = heapq.heappop(heap)
        k, place = (k1 + k2) // 2, (l1 + l2) // 2
        if k1 == k2:
            seen = max(seen, pairs.bound(k, k, place, place))
        if -bound <= seen * (1 + 1e-9):
            return -bound
        parts = [(k1, k, l1, l2), (k + 1, k2, l1, l2)]
        if l2 - l1 > max(16, 8 / rate) * (k2 - k1):  # where l is what makes the bound loose
            parts = [(k1, k2, l1, place), (k1, k2, place + 1, l2)]
        for part in parts:
            heapq.heappush(heap, (max(-pairs.bound(*part), bound), part))
    return -heap[0][0]


def _bounded(epsilon: float, rate: float, threshold: int) -> float:
    """Return the smaller of the two bounds that `replace` names."""
    half, _ = add_remove(epsilon / 2, rate, threshold)
    twice = min(1.0, half * (1 + math.exp(epsilon / 2)) * (1 + 2.0**-50))

    def steepest() -> Ball:
        return ball(epsilon).exp() * (1 - ball(rate))

    return min(twice, appearing(steepest, rate, threshold)[0]) if lower(steepest) > 1 else twice
