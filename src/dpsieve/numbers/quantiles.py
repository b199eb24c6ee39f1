"""Private quantiles: the exponential mechanism on gaps, recursive halving for many, and the choice of the mechanism.

One quantile q (Smith 2011): the point k of the grid is drawn with probability proportional to e^(-c u(k)), where u(k)
is its rank error (`grid_quantiles`). Between two neighbouring rows u is constant, so a gap of L points has the weight
L e^(-c u), a row itself the weight e^(-c u); one of these is drawn, then a point of it. Many quantiles (Kaplan, Schnapp
and Stemmer 2022): first the middle one, from all rows; then those below it from the rows below its point, those above
from the rows above it, and so on. A row takes part in one pick per level, at one of 2^20 random parts of its point; the
private points are rounded down to the grid.

Notation (c, s, e, levels), privacy, and what a replaced row costs: docs/background/means.md#gaps-and-halving.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, get_args

import numpy as np

from dpsieve import validate
from dpsieve.accounting.curves import positive_delta, zcdp_epsilon, zcdp_rho
from dpsieve.accounting.spends import BoundedRange, Spend, ZeroConcentrated
from dpsieve.codec import register
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import ball, lower, upper
from dpsieve.numbers.estimate import Estimate, describe_contribution
from dpsieve.numbers.grid_quantiles import UNCERTAIN, GridQuantiles, check_quantiles, sensitivity
from dpsieve.numbers.search import QuantileSearch
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import shown
from dpsieve.randomness.picks import uniform_integers, weighted_pick
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import Neighbours, QuantileMethod

METHODS: tuple[QuantileMethod, ...] = get_args(QuantileMethod)
USUAL_DELTA = 1e-6
"""The delta at which a zCDP budget is stated by default."""
INVENTED = np.zeros(8)  # the column of a rehearsal
_BUDGET = "Pass epsilon=1.0, or epsilon and delta, or rho=0.1 for zero-concentrated privacy."
PARTS_BITS = 20
"""The base-2 logarithm of the number of parts of a point, for many quantiles."""
_FINEST_PART = 10**8
_GROWTH = 9 / 8  # of the budget from level to level; its powers up to the 16th are floats


class Node(NamedTuple):
    """One pick of the recursive halving.

    Attributes:
        level: from 0 on.
        place: the number of its quantile.
        left, right: the numbers of the quantiles between which its rows lie; -1 and the number of quantiles for none.
        share: q', the quantile among those rows.
        alone: whether it is the only one of its level.
    """

    level: int
    place: int
    left: int
    right: int
    share: Fraction
    alone: bool

    def sensitivity(self, neighbours: str) -> int:
        """Return D = s B for this pick, B the denominator of its share."""
        if neighbours == "replace" and not self.alone:
            return 2 * sensitivity(self.share, "add_remove")
        return sensitivity(self.share, neighbours)  # type: ignore[arg-type]


@register("gap_quantiles")
@dataclass(frozen=True, repr=False)
class GapQuantiles(GridQuantiles):
    """Quantiles by the exponential mechanism on gaps: one pick, or recursive halving; see the head of this module.

    Attributes:
        levels: L, the number of picks per row.
        pick_epsilons: e per level, the range of the loss of all its picks.
        pure_epsilon: their sum, the epsilon at delta 0.

    >>> mechanism = GapQuantiles(1.0, (0.25, 0.5, 0.75), 0.0, 100.0)
    >>> mechanism.levels, [round(e, 3) for e in mechanism.pick_epsilons], mechanism.rank_errors
    (2, [0.471, 0.529], (161.0, 85.0, 161.0))
    """

    @property
    def levels(self) -> int:
        """The number of picks that a row takes part in."""
        return len(self.shares).bit_length()

    @cached_property
    def pick_epsilons(self) -> tuple[float, ...]:
        """The range of the loss of each level."""
        weights = [_GROWTH**level for level in range(self.levels)]
        if self.rho:
            cost = self.rho_of(weights)
            first = lower(lambda: (ball(self.rho) * cost.denominator / cost.numerator).sqrt())
        else:
            first = lower(lambda: ball(self.epsilon) / ball(sum(weights)))
        return tuple(_multiply_down(first, weight) for weight in weights)

    def rho_of(self, picks: Sequence[float]) -> Fraction:
        """Return the zCDP cost of levels whose losses have these ranges; see docs/background/means.md."""
        squares = [Fraction(e) ** 2 for e in picks]
        plain = sum(squares, Fraction(0)) / 8
        if self.neighbours != "replace" or self.rows_per_unit > 1:
            return plain
        single = {node.level: max(node.share, 1 - node.share) ** 2 / 8 for node in self.nodes if node.alone}
        apart, shared = Fraction(0), squares[-1] / 8
        for level in reversed(range(1, len(squares))):
            apart += squares[level] * single.get(level, Fraction(1, 16))
            shared = max(apart + 5 * squares[level - 1] / 32, shared + squares[level - 1] / 32)
        return min(plain, shared)

    @cached_property
    def pure_epsilon(self) -> float:
        """The epsilon at delta 0."""
        return upper(lambda: sum((ball(e) for e in self.pick_epsilons), ball(0)))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The picks, level by level."""
        shares, nodes = self.shares, []
        ends = {-1: Fraction(0), len(shares): Fraction(1), **dict(enumerate(shares))}
        level, depth = [(-1, len(shares))], 0
        while level:
            for left, right in level:
                place = (left + right) // 2
                part = (ends[place] - ends[left]) / (ends[right] - ends[left])
                share = part.limit_denominator(_FINEST_PART)
                nodes.append(Node(depth, place, left, right, share, len(level) == 1))
            halves = [half for a, b in level for half in ((a, (a + b) // 2), ((a + b) // 2, b))]
            level, depth = [(a, b) for a, b in halves if b - a > 1], depth + 1
        return tuple(nodes)

    @cached_property
    def rank_errors(self) -> tuple[float, ...]:
        """Bounds on the rank errors, all of them with probability 0.95.

        Proof, and the rows that are not counted: docs/background/means.md#rank-errors.
        """
        log_size = math.log(self.grid.size) + self._parts * math.log(2)
        errors = self._accumulate(log_size + math.log(len(self.shares) / UNCERTAIN))
        return tuple(float(math.ceil(error)) for error in errors)

    @property
    def typical_error(self) -> float:
        """The usual rank error where rows are spread: a pick has a mean error of 1/c there."""
        return max(self._accumulate(1.0))

    def _accumulate(self, miss: float) -> list[float]:
        """Return the rank error of each value if every pick has an error of miss/c.

        Without the rows at earlier points, a node adds at most the larger error of both ends.
        """
        errors = {-1: 0.0, len(self.shares): 0.0}
        for node in self.nodes:
            rate = self.pick_epsilons[node.level] / 2 * node.share.denominator / self._change(node)
            errors[node.place] = miss / rate + max(errors[node.left], errors[node.right])
        return [errors[place] for place in range(len(self.shares))]

    @property
    def _parts(self) -> int:
        return PARTS_BITS if len(self.shares) > 1 else 0

    def spends(self) -> tuple[Spend, ...]:
        """Return the zCDP budget, or the range of the loss of each level; a replaced row may cost less (`rho_of`)."""
        if self.rho:
            return super().spends()
        rho = self.rho_of(self.pick_epsilons)
        if rho < sum(Fraction(e) ** 2 for e in self.pick_epsilons) / 8:
            return (ZeroConcentrated(upper(lambda: ball(rho.numerator) / rho.denominator)),)
        return tuple(BoundedRange(e) for e in self.pick_epsilons)

    def certify(self) -> Certificate:
        """Return the certificate: the picks are drawn exactly, and their losses composed by bounds rounded up."""
        is_kept = self.rho and self.rho_of(self.pick_epsilons) <= Fraction(self.rho)
        worst = 0.0 if self.pure_epsilon <= self.epsilon else self.delta_at_epsilon() if is_kept else 1.0
        return formula(self.guarantee, worst, "balls", f"{self.levels:,} picks by the exponential mechanism")

    def draw_sorted(self, rows: Ints, source: Source) -> Ints:
        size = self.grid.size << self._parts
        if self._parts:
            spare = np.uint64(64 - self._parts)
            rows = np.sort((rows << self._parts) + (source.words(len(rows)) >> spare).view(np.int64))
        points = {-1: 0, len(self.shares): size - 1}
        for node in self.nodes:
            # The rows between the points to the left and to the right, without those at them; at the ends, all.
            start = 0 if node.left < 0 else int(np.searchsorted(rows, points[node.left], "right"))
            last = node.right == len(self.shares)
            stop = len(rows) if last else max(start, int(np.searchsorted(rows, points[node.right], "left")))
            ends, epsilon = (points[node.left], points[node.right]), self.pick_epsilons[node.level]
            points[node.place] = pick_point(rows[start:stop], ends, node.share, epsilon, self._change(node), source)
        return np.array([points[place] for place in range(len(self.shares))]) >> self._parts

    def _change(self, node: Node) -> int:
        """Return m D of a pick."""
        return node.sensitivity(self.neighbours) * self.rows_per_unit


def _multiply_down(a: float, b: float) -> float:
    return lower(lambda: ball(a) * ball(b))


def pick_point(rows: Ints, ends: tuple[int, int], share: Fraction, epsilon: float, change: int, source: Source) -> int:
    """Return a point between both ends by the exponential mechanism, from sorted rows there.

    A unit moves B u(k) by at most `change`, for B the denominator of the share; then the loss has a range of epsilon.
    """
    starts, lengths, misses = segments(rows, *ends, share)
    at = weighted_pick(lengths, misses, epsilon, 2 * change, source)
    return int(starts[at] + uniform_integers(1, int(lengths[at]), source)[0])


def segments(rows: Ints, low: int, high: int, share: Fraction) -> tuple[Ints, Ints, Ints]:
    """Divide the points low, ..., high into gaps and rows: return the start of each, its length, and B u there.

    `rows` are sorted points within; B times the target is A times their number. A segment may have the length 0; the
    others cover each point once.

    >>> [part.tolist() for part in segments(np.array([2, 2, 5]), 0, 9, Fraction(1, 2))]
    [[0, 3, 6, 2, 5], [2, 2, 4, 1, 1], [3, 1, 3, 0, 1]]
    """
    last = np.flatnonzero(np.append(rows[1:] != rows[:-1], True)) if len(rows) else np.empty(0, np.int64)
    values, upto = rows[last], np.append(0, last + 1)
    starts = np.append(low, values + 1)
    lengths = np.append(values, high + 1) - starts
    a, b = share.numerator, share.denominator
    above = upto * b - a * len(rows)  # B (rank - t), in each gap
    misses = np.maximum(np.maximum(above[:-1], -above[1:]), 0)
    ones = np.ones(len(values), np.int64)
    return (
        np.concatenate([starts, values]), np.concatenate([lengths, ones]), np.concatenate([np.abs(above), misses])
    )  # fmt: skip


def draw_quantiles(values: Floats, mechanism: GridQuantiles, source: Source, *, reason: str, single: bool) -> Estimate:
    """Return the quantiles of floats without NaN, drawn by a mechanism of `choose_quantiles`; charges no ledger."""
    points = mechanism.draw(values, source)
    names = [shown(q) for q in mechanism.quantiles]
    adds = describe_contribution(mechanism.rows_per_unit)
    return Estimate.of(mechanism, points, names, source=source, reason=reason, contribution=adds, single=single)


def choose_quantiles(
    q: Any, *, bounds: Any, neighbours: Neighbours, epsilon: float | None = None, delta: float | None = None,
    rho: float | None = None, method: QuantileMethod = "auto", **options: Any,
) -> tuple[GridQuantiles, str]:  # fmt: skip
    """Return the mechanism of private quantiles, made from public numbers alone, and the reason for choosing it.

    The values are points of a public grid of at most 2^steps points between the bounds (`DyadicGrid`). The column
    `rank_error` of the result bounds the number of rows between a value and its rank q n, for all quantiles together
    with probability 0.95. It depends on public numbers alone, and counts rows as the grid points they round up to.

    The arguments are those of `dpsieve.quantile`, and `options` those of `GridQuantiles`: scale, steps, rows_per_unit
    and unit. 'gaps' and 'halving' do much better than their bound where rows are spread over the range. 'search' has
    the lower bound with a rho or a delta, and suits columns of few different values.
    """
    q = q.tolist() if isinstance(q, np.ndarray | np.generic) else q
    listed = q if isinstance(q, Sequence) and not isinstance(q, str) else [q]
    quantiles = check_quantiles([x.item() if isinstance(x, np.ndarray) and x.size == 1 else x for x in listed])
    mechanisms = _mechanisms(quantiles, bounds, method, _budgets(epsilon, delta, rho), neighbours=neighbours, **options)
    best = min(mechanisms, key=lambda mechanism: mechanism.typical_error)
    reason = f"typically off by about {best.typical_error:.2g} rows, the least of all methods"
    return best, reason if method == "auto" else "requested by the caller"


def _mechanisms(
    quantiles: tuple[float, ...], bounds: Any, method: Any, budgets: list[dict[str, float]], **options: Any
) -> list[GridQuantiles]:
    """Return all mechanisms of a method that keep the budget."""
    if not isinstance(method, str) or method not in METHODS:
        raise InvalidValue(f"method is not known. Choose one of {', '.join(METHODS)}.")
    if method == "gaps" and len(set(quantiles)) > 1:
        raise InvalidValue("method='gaps' finds one quantile. Pass method='halving' for many.")
    if not isinstance(bounds, Sequence | np.ndarray) or len(bounds) != 2:
        raise InvalidType("bounds must be two numbers. Pass public bounds of the values, such as bounds=(0, 100).")
    validate.neighbours(options["neighbours"])
    kinds: dict[str, list[type[GridQuantiles]]]
    kinds = {"search": [QuantileSearch], "auto": [QuantileSearch, GapQuantiles]}
    mechanisms: list[GridQuantiles] = []
    refused = None
    for budget in budgets:
        for kind in kinds.get(method, [GapQuantiles]):
            try:
                mechanism = kind(quantiles=quantiles, low=bounds[0], high=bounds[1], **budget, **options)  # type: ignore[arg-type]
            except InvalidValue as error:  # noise too large for this kind alone, or an argument that no kind takes
                refused = error
                continue
            if isinstance(mechanism, GapQuantiles) and mechanism.rho and mechanism.pure_epsilon <= mechanism.epsilon:
                mechanism = replace(mechanism, epsilon=mechanism.pure_epsilon, delta=0.0)  # it needs no delta
            mechanisms.append(mechanism)
    if not mechanisms and refused is not None:
        raise refused
    return mechanisms


def _budgets(epsilon: float | None, delta: float | None, rho: float | None) -> list[dict[str, float]]:
    """Return the ways to spend a budget: as a pure epsilon, and as a rho with the epsilon and delta it implies."""
    if (epsilon is None) == (rho is None):
        raise InvalidValue(f"epsilon or rho must be given, and not both. {_BUDGET}")
    if rho is not None:
        rho = validate.between("rho", rho, 1e-12, 1e6, hint=_BUDGET)
        stated = positive_delta(USUAL_DELTA if delta is None else delta)
        implied = zcdp_epsilon(rho, stated)
        if implied > 500:
            raise InvalidValue(f"rho={rho:g} is beyond every epsilon up to 500. {_BUDGET}")
        return [{"epsilon": implied, "delta": stated, "rho": rho}]
    epsilon, delta = validate.positive_epsilon(epsilon), validate.delta(0.0 if delta is None else delta)
    pure = {"epsilon": epsilon, "delta": 0.0, "rho": 0.0}
    return [pure, {"epsilon": epsilon, "delta": delta, "rho": zcdp_rho(epsilon, delta)}] if delta else [pure]
