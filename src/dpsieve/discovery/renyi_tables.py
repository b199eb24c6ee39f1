"""Tables of reporting probabilities for Renyi selection: how likely a key with a given sum of weights is published."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.exact.words import fraction
from dpsieve.noise.report_tables import MOST_ROWS, ReportingTable, finish_table, half_crossing
from dpsieve.types import Floats

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
    (1 - t) rest. See `accounting.products` for B and for what this promise is worth.
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

    def check(self, table: ReportingTable) -> None:
        """Check the integers that are drawn from, every step to every row; raise NotCertified naming the first."""
        if len(table.high) < 2 or table.high[0] or table.low[0]:
            raise NotCertified("a key with a sum of zero could be reported")
        row, step = _broken(table, self)
        if row:
            raise NotCertified(f"sums {max(0, row - step):,} and {row:,} differ by more than a step of {step:,} may")


# A table is never changed once it is made, and a mechanism that is made again from its fields shares it.
@lru_cache(maxsize=8)
def _broken(table: ReportingTable, promise: Promise) -> tuple[int, int]:
    """Return the first row and step that break a promise, or (0, 0)."""
    from dpsieve.discovery.renyi_loops import broken

    p, rest = fraction(table.high, table.low), fraction(~table.high, ~table.low) + 2.0**-128
    p[-1], rest[-1] = 1.0, 0.0
    ends = (_cells(points) for points in (_FEW, _MANY))
    use = np.array(promise.steps, np.int64), promise.exponents, *promise.classes(), promise.epsilon, promise.power
    row, step = broken(p, rest, *use, _quick_bounds(), *ends)
    return row, step


@lru_cache(maxsize=8)
def reporting_table(promise: Promise) -> ReportingTable:
    """Return the table that reports most under this promise.

    >>> promise = Promise(1.0, 13.0, 1e-5, 1e-5, share=1.0, bits=4, steps=tuple(range(1, 17)))
    >>> table = reporting_table(promise)
    >>> promise.check(table)
    >>> table.probability(np.array([0, 16, 32, 300, 10**6])).round(6).tolist()
    [0.0, 6e-06, 2.7e-05, 0.738085, 1.0]
    """
    rows, rest = _grow(promise, 1.0, _ACCURACY, MOST_ROWS, _POINTS)
    if not len(rows):
        raise InvalidValue(f"bits={promise.bits} needs a table of more than {MOST_ROWS:,} rows. Pass fewer bits.")
    return finish_table(rows, rest)


def rough_crossing(promise: Promise, most: int) -> float:
    """Return the sum that is reported half of the time, quickly and roughly; infinity beyond `most`."""
    return half_crossing(_grow(promise, 0.5, 1e-3, most + 1, _POINTS // 2)[0])


def _grow(promise: Promise, until: float, accuracy: float, most: int, points: int) -> tuple[Floats, Floats]:
    from dpsieve.discovery.renyi_loops import grow

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
    """Return the mean of e^(-Y u) for a grid of Y and of ratios of the angle, rounded up; see `renyi_loops`.

    e^(-Y u) falls with F, so its mean over the left ends of cells is an upper bound; the last column is one.
    """
    from dpsieve.discovery.renyi_loops import FIRST, SCALE

    totals = np.expm1(np.arange(_TOTALS) / SCALE) / FIRST
    ratios = np.linspace(0.0, 1.0, _RATIOS)[:-1, None]
    tangents, lengths = _cells(_FEW)
    x = ((1 - ratios) / (1 + ratios)) ** 2 * tangents
    sines = x / (1 + x)
    means = np.stack([np.exp(-total * sines) @ lengths for total in totals]) * (1 + 1e-9)
    return np.column_stack((means, np.ones(_TOTALS)))
