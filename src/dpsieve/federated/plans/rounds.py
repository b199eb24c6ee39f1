"""The cost of several rounds of sample-and-threshold in which one client may answer each time.

**Pairs of rows.** In each round the client's cell holds some k clients with it, and its row is k instead of k - 1; k
may depend on earlier answers. `accounting.adaptive` composes the pairs of all k. That is less than composing the curve
that is the worst over all k at every epsilon, as no k is the worst everywhere: a tenth of the delta at ten rounds.

A trie asks a client only while the cell of its string survives: after 'nothing' both sides answer alike, as the client
is not asked again. With `pruned` that outcome is the last one. Most rounds below the threshold have it, so ten rounds
cost about as much as one. When a client is replaced, its old string and its new one each have their own series of
cells, which end independently: the cells of one level are disjoint, and all of them were fixed before the first
question, so the two series are independent and may be taken one after the other.

Finitely many k are enough. Below the threshold both rows are 'nothing'. Without a threshold, rows k + 1 and k are rows
k and k - 1 with an independent coin added, which is post-processing, and so is a threshold: the pair of the last k
without a threshold stands for all later ones, and ends no series, which would only show less.

**The curve of one round**, where pairs are too many, as at rates below one in a hundred. One round has a whole curve
delta(epsilon), not one point of it: most of its losses are far below epsilon, and composing points would charge epsilon
for each round. So the curve is composed. Let P be the output with one client more, Q without it, and H(z) the largest
divergence of P from z Q over all inputs, z >= 0. With the A and B of `noise.sample_threshold_delta`, for one client
more ('appearing') and one less ('vanishing'),

    H(z) = A(z) for z >= 1,  and  H(z) = 1 - z + z B(1/z) for z < 1,

the second since sum (P - zQ)+ = 1 - z + z sum (Q - P/z)+. The other direction is the same with A and B exchanged.

1. A measure of losses whose curve D(z) = E[(1 - z e^-loss)+] is nowhere below H stands for the round: losses of rounds
   add, also if a question depends on earlier answers (Zhu, Dong and Wang, AISTATS 2022, Theorem 10). The proof sums
   over one round at a time and needs neither that D is attained nor that its measure adds up to one.
2. H is convex. So is the lower hull of upper bounds u_i >= H(z_i) at z_i = e^(i step), which stays above H between
   them. Its kinks are the losses ("Connect the Dots", Doroshenko et al., PETS 2022). Mass beyond the last
   point counts as an infinite loss.
3. Floats make the kinks, and D is then summed again at every point, from positive terms: where it is below u_i, all
   masses are raised. So rounding in between does not matter.
4. What rounding adds to a mass of one may be taken from losses up to zero. Let the mass be M, and that of the mirror
   image, the other output, no more: then D(z) - H(z) >= (M - 1)(1 - z) for z <= 1, and taking M - 1 there costs at most
   that, and nothing for z >= 1. So a round has the mass M = 1, up to the last digits, and n rounds have M^n, of which
   M^n - (M - lost)^n <= M^n (1 - (1 - lost)^n) is at infinity.
5. A client that replaces its value changes two cells, one of which loses a client while the other one gains one. Both
   directions together are a bound for it, as the samples of two cells are independent.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from typing import NamedTuple

import numpy as np

from dpsieve.accounting.adaptive import Pair, adaptive_delta
from dpsieve.accounting.loss_distributions import Losses, either
from dpsieve.exact.balls import Ball, ball
from dpsieve.exact.binomial import at_least, below, masses, window
from dpsieve.noise.sample_threshold_delta import appearing, vanishing
from dpsieve.types import Floats, Ints
from dpsieve.validate import Neighbours

_ULP = 2.0**-52
_FINE, _COARSE = 512, 128  # points of a curve
_MOST_ROWS = 3000
_FINE_GRID, _ROUGH_GRID = 6.0, 3.0
_WRONG = 1e-11  # relative error of a mass, at most
_FAR, _RARE = 60.0, 1e-26  # tokens with masses below e^-60, about 1e-26, are joined


@lru_cache(maxsize=1024)
def rounds_delta(
    epsilon: float, rate: float, threshold: int, rounds: int, neighbours: Neighbours, pruned: bool = False
) -> float:
    """Return a delta at which `rounds` rounds, each with this rate and threshold, are (epsilon, delta)-private.

    An upper bound by the pairs of rows; where these are too many, from the curve of one round, pruned or not.

    >>> f"{rounds_delta(1.0, 0.1, 12, 1, 'add_remove'):.3g}", f"{rounds_delta(1.0, 0.1, 12, 10, 'add_remove'):.3g}"
    ('4.56e-10', '4.58e-09')
    """
    if last_row(rate, threshold) <= _MOST_ROWS:
        return pairs_delta(epsilon, rate, threshold, rounds, neighbours, pruned=pruned)
    return _compose_rounds(epsilon, _Curves(rate, threshold), _FINE, rounds, neighbours)


def rough_rounds_delta(
    epsilon: float, rate: float, threshold: int, rounds: int, neighbours: Neighbours, pruned: bool = False
) -> float:
    """Return about the same as `rounds_delta`, mostly more, in a tenth of the time, without proof: for searches."""
    if last_row(rate, threshold) <= _MOST_ROWS:
        return pairs_delta(epsilon, rate, threshold, rounds, neighbours, pruned=pruned, rough=True)
    points = round(_COARSE * min(max(1.0, epsilon), 8.0))  # many small losses need small steps at any epsilon
    return _compose_rounds(epsilon, _RoughCurves(rate, threshold), points, rounds, neighbours)


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


def _compose_rounds(epsilon: float, curves: "_Curves", points: int, rounds: int, neighbours: Neighbours) -> float:
    more, less, step = _both(epsilon, curves, points)
    together = [(more, less)] if neighbours == "replace" else [(more,), (less,)]
    return max(_delta(_total(sides, rounds), step, epsilon) for sides in together)


def _total(sides: tuple[Losses, ...], rounds: int) -> Losses:
    lost = reduce(either, [side.lost for side in sides * rounds])
    if lost > 1 - 1e-12:  # the finite part is negligible
        return Losses(0, np.zeros(1), 1.0, 0.0)
    finite = reduce(Losses.plus, [replace(side, lost=0.0).times(rounds) for side in sides])
    heavier = math.prod(max(1.0, float(side.mass.sum()) + side.lost) + 32 * _ULP for side in sides) ** rounds
    return replace(finite, lost=finite.lost + lost * heavier)


@dataclass(frozen=True)
class _Curves:
    """A(e^at) and B(e^at) of one round, rounded up."""

    rate: float
    threshold: int

    def gained(self, at: Floats) -> Floats:
        return np.array([appearing(partial(_exp, e), self.rate, self.threshold)[0] for e in at.tolist()])

    def lost(self, at: Floats) -> Floats:
        return np.array([vanishing(partial(_exp, e), self.rate, self.threshold)[0] for e in at.tolist()])


class _RoughCurves(_Curves):
    """The same by differences of tails in floats."""

    def gained(self, at: Floats) -> Floats:
        z, p, t = np.exp(at), self.rate, self.threshold
        k = np.maximum(np.ceil((t - 1) / (1 - (1 - p) / z)), t)
        return np.maximum(at_least(k, t, p) - z * at_least(k - 1, t, p), 0.0)

    def lost(self, at: Floats) -> Floats:
        z, p, t = np.exp(at), self.rate, self.threshold
        edge = 1 - (1 - p) * z
        k = np.maximum(np.ceil((t - 1) / np.where(edge > 0, edge, 1.0)), 1)
        return np.where(edge > 0, np.maximum(below(k - 1, t, p) - z * below(k, t, p), 0.0), 0.0)


class _Side(NamedTuple):
    """The losses above zero of one direction: mass[i] at (i + 1) steps, and `lost` at infinity."""

    mass: Floats
    lost: float


def _both(epsilon: float, curves: _Curves, points: int) -> tuple[Losses, Losses, float]:
    """Return the losses of a round for one client more and for one less, and the step between them."""
    ends = np.array([1.25, 1.5, 1.75, 2.0, 2.5, 3.0]) * max(epsilon, curves.rate)
    rare = curves.gained(ends) <= 1e-4 * curves.gained(np.array([epsilon]))
    last = float(ends[np.argmax(rare)] if rare.any() else 4 / 3 * ends[-1])
    step = 2.0 ** math.floor(math.log2(last / points))
    most = -math.log1p(-curves.rate)  # the largest loss of one client less
    gained = curves.gained(np.arange(0.0, math.ceil(last / step) + 1) * step)
    lost = curves.lost(np.arange(0.0, math.ceil(most / step) + 1) * step)
    gained[0] = lost[0] = max(gained[0], lost[0])
    up, down = _side(gained, step), _side(lost, step)
    return _join(up, down, step), _join(down, up, step), step


def _side(values: Floats, step: float) -> _Side:
    """Return losses whose curve is nowhere below the hull of upper bounds at 0, step, 2 step, and so on."""
    above = np.expm1(np.arange(len(values)) * step)  # z - 1, whose digits are kept where steps are tiny
    corners = _hull(above, values)
    slopes = np.append(np.diff(values[corners]) / np.diff(above[corners]), 0.0)
    mass = np.zeros(len(values))
    mass[corners[1:]] = (1 + above[corners[1:]]) * np.maximum(np.diff(slopes), 0.0)
    lost = values[-1]
    curve = _curve(mass[1:], step) + lost
    raised = max(1.0, float(np.max(values / np.maximum(curve, 1e-300)))) * (1 + _rounding(len(values)))
    return _Side(mass[1:] * raised, lost * raised)


def _curve(mass: Floats, step: float) -> Floats:
    """Return the sum over j > i of mass_j (1 - e^-(j-i) step), for i = 0, 1, ..., with mass_1 the first."""
    gain = -np.expm1(-np.arange(1, len(mass) + 1) * step)
    return np.append(np.convolve(mass[::-1], gain)[: len(mass)][::-1], 0.0)


def _join(up: _Side, down: _Side, step: float) -> Losses:
    """Return the losses of a direction: `up` above zero; `down`, of the other direction, mirrored; the rest at zero.

    Its mass is one, rounded up, and at least that of the other output, as D(z) >= 1 - z + z B(1/z) requires.
    """
    mine, other = (float(_curve(side.mass, step)[0]) + side.lost for side in (up, down))
    short = other * (1 + _rounding(len(up.mass) + len(down.mass))) / max(mine, 1e-300)
    first, lost = up.mass * max(1.0, short), up.lost * max(1.0, short)
    mirrored = down.mass * np.exp(-np.arange(1, len(down.mass) + 1) * step)
    over = math.fsum([*first.tolist(), *mirrored.tolist(), lost, -1.0])
    if over > 0:
        mirrored *= 1 - over / max(mirrored.sum(), over)
    at_zero = max(0.0, -over) + 16 * _ULP
    error = 64 * (len(first) + len(mirrored)) * _ULP
    return Losses(-len(mirrored), np.concatenate([mirrored[::-1], [at_zero], first]), lost, error)


def _rounding(terms: int) -> float:
    """Return about twice the largest relative error of a sum of positive products, and what comes after it."""
    return (terms + 64) * _ULP


def _exp(exponent: float) -> Ball:
    return ball(exponent).exp()


def _hull(x: Floats, y: Floats) -> Ints:
    """Return which points are on the lower convex hull, from the first to the last."""
    corners: list[int] = []
    for i in range(len(x)):
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            corners.pop()
        corners.append(i)
    return np.array(corners)


def _delta(losses: Losses, step: float, epsilon: float) -> float:
    at = (losses.first + np.arange(len(losses.mass))) * step
    over = int(np.searchsorted(at, epsilon, side="right"))
    delta = float(losses.mass[over:] @ -np.expm1(epsilon - at[over:]))
    return min(1.0, (delta * (1 + 2 * losses.error + 2 * len(at) * _ULP) + losses.lost) * (1 + 4 * _ULP))
