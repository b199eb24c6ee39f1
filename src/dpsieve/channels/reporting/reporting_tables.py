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
_TIGHTER = 1 - 1e-6  # tables are made for a little less than is allowed, which covers all rounding
_ACCURACY = 1e-11


@dataclass(frozen=True)
class Promise:
    """What a table must keep: for every step w of `steps` and every sum h, the coins p(h - w) and p(h) are close.

    With u = w / 2^bits they are (leak u^2)-approximately (order, tau u^2)-Renyi private, in both directions: but for a
    probability of leak u^2 on either side, their Renyi divergence of this order is at most tau u^2.
    """

    order: float
    tau: float
    leak: float
    bits: int
    steps: tuple[int, ...]

    @property
    def squares(self) -> Floats:
        """The squares of the steps, in units of 4^bits."""
        return np.asarray((np.array(self.steps, np.float64) / 2.0**self.bits) ** 2)

    @property
    def leaks(self) -> list[Fraction]:
        """What each step may leak."""
        return [Fraction(self.leak) * step**2 / 4**self.bits for step in self.steps]

    def limits(self, part: float = 1.0) -> Floats:
        """Return e^((order - 1) tau u^2) - 1 for each step, with this part of tau; at most e^700."""
        return np.asarray(np.expm1(np.minimum(700.0, (self.order - 1) * self.tau * part * self.squares)))


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

    def taus(self, orders: Sequence[float], promise: Promise, start: int = 1, stop: int = 2 * MOST_ROWS) -> list[float]:
        """Return, for each order, the least tau, rounded up, with which the steps and leaks of a promise are kept.

        The rows from `start` on, and before `stop`, are compared with those a step below them.
        """
        return list(_taus(self, tuple(orders), promise, start, stop))


# A table is never changed once it is made, and a mechanism that is made again from its fields shares it.
@lru_cache(maxsize=8)
def _broken(table: ReportingTable, promise: Promise) -> tuple[int, int]:
    """Return the first row and step that break a promise, or (0, 0)."""
    from dpsieve.channels.reporting.renyi_tables import ERROR, broken

    leaks = [math.floor(leak * ONE) for leak in promise.leaks]
    steps, limits = np.array(promise.steps, np.int64), promise.limits() * (1 - ERROR)
    high, low = table.high.copy(), table.low.copy()
    row, step = broken(high, low, steps, max(promise.steps), *words(leaks), limits, promise.order)
    return row, step


@lru_cache(maxsize=16)
def _taus(
    table: ReportingTable, orders: tuple[float, ...], promise: Promise, start: int, stop: int
) -> tuple[float, ...]:
    from dpsieve.channels.reporting.renyi_tables import widest

    steps, worst = np.array(promise.steps, np.int64), np.empty((len(promise.steps), len(orders)))
    leaks = words([math.floor(leak * ONE) for leak in promise.leaks])
    widest(table.high.copy(), table.low.copy(), steps, *leaks, np.array(orders), start, stop, worst)

    def tau(order: float, step: int, sum_: float) -> float:
        return upper(lambda: ball(sum_).log1p() / (ball(order) - 1) * 4**promise.bits / step**2)

    return tuple(
        max(map(partial(tau, order), promise.steps, column))
        for order, column in zip(orders, worst.T.tolist(), strict=True)
    )


@lru_cache(maxsize=8)
def reporting_table(promise: Promise) -> ReportingTable:
    """Return the table that reports most under this promise.

    >>> promise = Promise(order=16.0, tau=0.4, leak=4e-6, bits=4, steps=tuple(range(1, 17)))
    >>> table = reporting_table(promise)
    >>> table.check(promise)
    >>> table.probability(np.array([0, 16, 32, 300, 10**6])).round(6).tolist()
    [0.0, 3e-06, 1.3e-05, 0.578485, 1.0]
    """
    rows, rest = _grown(promise, 1.0, _ACCURACY, MOST_ROWS)
    if not len(rows):
        raise InvalidValue(f"bits={promise.bits} needs a table of more than {MOST_ROWS:,} rows. Pass fewer bits.")
    low_half, high_half = floor_words(rows), floor_words(rest)
    above = rows > 0.5
    # p = 1 - c rounded down is 2^128 - 1 - floor(c 2^128) on the grid.
    high, low = (np.where(above, ~b, a) for a, b in zip(low_half, high_half, strict=True))
    for one in (high, low):
        one.flags.writeable = False
    return ReportingTable(high, low)


def rough_rows(promise: Promise, until: float, most: int) -> Floats:
    """Return the probabilities p(0), p(1), ... up to the first that is at least `until`, quickly and roughly.

    Empty where that needs more than `most` rows.
    """
    return _grown(promise, until, 1e-4, most + 1)[0]


def rough_crossing(promise: Promise, most: int) -> float:
    """Return the sum that is reported half of the time, quickly and roughly; infinity beyond `most`."""
    rows = rough_rows(promise, 0.5, most)
    return len(rows) - 1 - float((rows[-1] - 0.5) / (rows[-1] - rows[-2])) if len(rows) else math.inf


def _grown(promise: Promise, until: float, accuracy: float, most: int) -> tuple[Floats, Floats]:
    from dpsieve.channels.reporting.renyi_tables import grow

    rows, rest = np.empty(most), np.empty(most)
    leaks = promise.leak * _TIGHTER * promise.squares
    steps = np.array(promise.steps, np.int64)
    count = grow(steps, leaks, promise.limits(_TIGHTER), promise.order, until, accuracy, rows, rest)
    return rows[:count].copy(), rest[:count].copy()
