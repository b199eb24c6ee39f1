"""Tables of reporting probabilities: how likely a key with a given sum of weights is published, made and checked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np

from dpsieve.channels.grid import ONE, below, floor_words, fraction, words
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.exact.search import ball, upper
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Floats, Ints, Words

MOST_ROWS = 1 << 20
_PARTS = np.array([0.0, 0.02, 0.06, 0.14, 0.25, 0.4, 0.55, 0.7, 0.85, 0.95])  # of the leak, besides all of it
_SPARE = 0.985  # of the rest, for which tables are grown: for the few points of the means there
_ACCURACY = 1e-4  # of a step
_POINTS, _FEW, _MANY = 32, 384, 8192  # of the means: to grow, to check, and to check what is not clearly allowed
_TOTALS, _RATIOS = 128, 65  # the grid of quick upper bounds


@dataclass(frozen=True)
class Promise:
    """What a table must keep: for every step w of `steps` and every sum h, the coins p(h - w) and p(h) are close.

    With v = share (w / 2^bits)^2 the part of a unit's weight: in both directions there is a t in [0, 1] such that, once
    t leak v of the outcome of larger loss is declared a leak, B of the pair with the exponent 1/v is at most
    (1 - t) rest. See `privacy.stages` for B and for what this promise is worth.
    """

    epsilon: float
    power: float
    leak: float
    rest: float
    share: float
    bits: int
    steps: tuple[int, ...]

    @property
    def exponents(self) -> Floats:
        """1/v of each step."""
        return np.asarray(4.0**self.bits / (self.share * np.array(self.steps, np.float64) ** 2))

    def classes(self, spare: float = 1.0) -> tuple[Floats, Floats]:
        """Return leaks and limits of B for some t; at the largest no report but a first one is possible."""
        absent = math.exp(-self.power * self.epsilon) / (2 * math.sqrt(self.power * (self.power + 1)))
        most = min(0.999, 1 - absent * (1 + 1e-6) / (self.rest * _SPARE))
        parts = np.append(_PARTS[most > _PARTS], most) if most > 0 else np.zeros(1)
        return parts * self.leak, (1 - parts) * self.rest * spare


@dataclass(frozen=True, eq=False)
class ReportingTable:
    """p(h) for h = 0, 1, ..., on the 2^-128 grid. The last row stands for one: sums from there on are always reported.

    p(h) is the largest probability that every step allows, given the rows before it; a sum of zero is never reported.
    """

    high: Words
    low: Words

    @property
    def last(self) -> int:
        """The smallest sum that is always reported."""
        return len(self.high) - 1

    def select(self, sums: Ints, source: Source) -> Bools:
        """Return which keys are reported, each with exactly the probability of its sum."""
        rows = np.minimum(sums, self.last)
        chosen = np.asarray(rows == self.last)
        open_ = np.flatnonzero((rows > 0) & ~chosen)
        high, at = source.words(len(open_)), rows[open_]
        low = np.zeros(len(open_), np.uint64)
        tied = np.flatnonzero(high == self.high[at])
        low[tied] = source.words(len(tied))
        chosen[open_] = below(high, low, self.high[at], self.low[at])
        return chosen

    def probability(self, sums: Ints) -> Floats:
        """Return how likely keys with these sums are reported."""
        rows = np.clip(sums, 0, self.last)
        return np.where(rows == self.last, 1.0, fraction(self.high[rows], self.low[rows]))

    def crossing(self, probability: float, step: int = 1) -> float:
        """Return how many steps make a sum that is reported with this probability; a straight line joins the steps."""
        floats = self.probability(np.arange(0, self.last + step, step))
        at = int(np.searchsorted(floats, probability))
        return at - float((floats[at] - probability) / (floats[at] - floats[at - 1]))

    def check(self, promise: Promise) -> None:
        """Check the integers that are drawn from, every step to every row; raise NotCertified naming the first."""
        if len(self.high) < 2 or self.high[0] or self.low[0]:
            raise NotCertified("a key with a sum of zero could be reported")
        row, step = _broken(self, promise)
        if row:
            raise NotCertified(f"sums {max(0, row - step):,} and {row:,} differ by more than a step of {step:,} may")

    def taus(
        self,
        orders: Sequence[float],
        leak: float,
        *,
        bits: int = 0,
        steps: tuple[int, ...] = (1,),
        start: int = 1,
        stop: int = 2 * MOST_ROWS,
    ) -> list[float]:
        """Return, for each order, the least tau, rounded up, such that all steps are approximately Renyi private.

        With u = w / 2^bits, the coins p(h - w) and p(h) are (leak u^2)-approximately (order, tau u^2)-Renyi private, in
        both directions. The rows from `start` on, and before `stop`, are compared with those a step below them.
        """
        return list(_taus(self, tuple(orders), leak, bits, steps, start, stop))


# A table is never changed once it is made, and a mechanism that is made again from its fields shares it.
@lru_cache(maxsize=8)
def _broken(table: ReportingTable, promise: Promise) -> tuple[int, int]:
    """Return the first row and step that break a promise, or (0, 0)."""
    from dpsieve.channels.reporting.weight_loops import broken

    p, rest = fraction(table.high, table.low), fraction(~table.high, ~table.low) + 2.0**-128
    p[-1], rest[-1] = 1.0, 0.0
    ends = (_cells(points) for points in (_FEW, _MANY))
    use = np.array(promise.steps, np.int64), promise.exponents, *promise.classes(), promise.epsilon, promise.power
    row, step = broken(p, rest, *use, _quick_bounds(), *ends)
    return row, step


@lru_cache(maxsize=16)
def _taus(
    table: ReportingTable,
    orders: tuple[float, ...],
    leak: float,
    bits: int,
    steps: tuple[int, ...],
    start: int,
    stop: int,
) -> tuple[float, ...]:
    from dpsieve.channels.reporting.weight_loops import widest

    worst = np.empty((len(steps), len(orders)))
    leaks = words([math.floor(Fraction(leak) * step**2 / 4**bits * ONE) for step in steps])
    widest(table.high.copy(), table.low.copy(), np.array(steps, np.int64), *leaks, np.array(orders), start, stop, worst)

    def tau(order: float, step: int, sum_: float) -> float:
        return upper(lambda: ball(sum_).log1p() / (ball(order) - 1) * 4**bits / step**2)

    return tuple(
        max(map(partial(tau, order), steps, column)) for order, column in zip(orders, worst.T.tolist(), strict=True)
    )


@lru_cache(maxsize=8)
def reporting_table(promise: Promise) -> ReportingTable:
    """Return the table that reports most under this promise.

    >>> promise = Promise(1.0, 13.0, 1e-5, 1e-5, share=1.0, bits=4, steps=tuple(range(1, 17)))
    >>> table = reporting_table(promise)
    >>> table.check(promise)
    >>> table.probability(np.array([0, 16, 32, 300, 10**6])).round(6).tolist()
    [0.0, 6e-06, 2.7e-05, 0.738085, 1.0]
    """
    rows, rest = _grown(promise, 1.0, _ACCURACY, MOST_ROWS, _POINTS)
    if not len(rows):
        raise InvalidValue(f"bits={promise.bits} needs a table of more than {MOST_ROWS:,} rows. Pass fewer bits.")
    return table_of(rows, rest)


def table_of(rows: Floats, rest: Floats) -> ReportingTable:
    """Return the table of these probabilities, rounded down to the grid, given what is left to one as well."""
    # p = 1 - c rounded down is 2^128 - 1 - floor(c 2^128) on the grid.
    pairs = zip(floor_words(rows), floor_words(rest), strict=True)
    high, low = (np.where(rows > 0.5, ~b, a) for a, b in pairs)
    for one in (high, low):
        one.flags.writeable = False
    return ReportingTable(high, low)


def rough_crossing(promise: Promise, most: int) -> float:
    """Return the sum that is reported half of the time, quickly and roughly; infinity beyond `most`."""
    rows = _grown(promise, 0.5, 1e-3, most + 1, _POINTS // 2)[0]
    return len(rows) - 1 - float((rows[-1] - 0.5) / (rows[-1] - rows[-2])) if len(rows) > 1 else math.inf


def _grown(promise: Promise, until: float, accuracy: float, most: int, points: int) -> tuple[Floats, Floats]:
    from dpsieve.channels.reporting.weight_loops import grow

    rows, rest = np.empty(most), np.empty(most)
    use = np.array(promise.steps, np.int64), promise.exponents, *promise.classes(_SPARE)
    middles = np.stack((_tangents((np.arange(points) + 0.5) / points), np.full(points, 1 / points)))
    count = grow(*use, promise.epsilon, promise.power, until, accuracy, _quick_bounds(), middles, rows, rest)
    return rows[:count].copy(), rest[:count].copy()


def _tangents(parts: Floats) -> Floats:
    """Return tan^2(F/2) at these parts of the way of F from 0 to pi."""
    return np.asarray(np.tan(parts * (math.pi / 2)) ** 2)


def _cells(count: int) -> Floats:
    """Return tan^2(F/2) at the left ends of cells of F, which are shorter near 0, and their lengths; rounded up."""
    parts = (np.arange(count + 1) / count) ** 3
    return np.stack((_tangents(parts[:-1]) * (1 - 1e-12), np.diff(parts) * (1 + 1e-12)))


@lru_cache(maxsize=1)
def _quick_bounds() -> Floats:
    """Return the mean of e^(-Y u) for a grid of Y and of ratios of the angle, rounded up; see `weight_loops`.

    e^(-Y u) falls with F, so its mean over the left ends of cells is an upper bound; the last column is one.
    """
    from dpsieve.channels.reporting.weight_loops import FIRST, SCALE

    totals = np.expm1(np.arange(_TOTALS) / SCALE) / FIRST
    ratios = np.linspace(0.0, 1.0, _RATIOS)[:-1, None]
    tangents, lengths = _cells(_FEW)
    x = ((1 - ratios) / (1 + ratios)) ** 2 * tangents
    sines = x / (1 + x)
    means = np.stack([np.exp(-total * sines) @ lengths for total in totals]) * (1 + 1e-9)
    return np.column_stack((means, np.ones(_TOTALS)))
