"""Tables for Renyi selection: the reporting probability of each sum of weights, and good parameters for them."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpsieve.accounting.products import largest_mu, split
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.exact import fraction
from dpsieve.exact.balls import minimise
from dpsieve.noise.report_tables import MOST_ROWS, ReportingTable, finish_table, half_crossing
from dpsieve.privacy.guarantee import Weight
from dpsieve.types import Floats

_PARTS = np.array([0.0, 0.02, 0.06, 0.14, 0.25, 0.4, 0.55, 0.7, 0.85, 0.95])  # of the leak, besides all of it
_SPARE = 0.985  # of the rest, for which tables are grown: for the few points of the means there
_ACCURACY = 1e-4  # of a step
_POINTS, _FEW, _MANY = 32, 384, 8192  # of the means: to grow, to check, and to check what is not clearly allowed
_TOTALS, _RATIOS = 128, 65  # the grid of quick upper bounds
MOST_BITS = 12
_ROUGH, _ROUGH_ROWS = 5, 1500  # the search uses this number of weights, and tables of about this length
_GUESS, _RATIO, _STEPS = 1.2, 1.25, 8  # of the power, in units of ln(1/delta) / epsilon, and steps to either side
_ABOVE = 0.08  # times what follows, added to the best power: hardly worse, and the bound is closer to the exact delta
_WORK, _SOLVE = 2_000_000, 60  # the largest number of steps of a table; finding a row costs as much as 60 of them
_FINE, _COARSE = 100, 3  # a light weight need not be above the first, and should not be below the second
_LIGHT = 20  # a unit with this multiple of the least number of keys has a light weight


@dataclass(frozen=True)
class Promise:
    """What a table guarantees: for every step w of `steps` and every sum h, the coins p(h - w) and p(h) are close.

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
        """Return leaks and limits of B for some t; at the largest only a first report is possible."""
        absent = math.exp(-self.power * self.epsilon) / (2 * math.sqrt(self.power * (self.power + 1)))
        most = min(0.999, 1 - absent * (1 + 1e-6) / (self.rest * _SPARE))
        parts = np.append(_PARTS[most > _PARTS], most) if most > 0 else np.zeros(1)
        return parts * self.leak, (1 - parts) * self.rest * spare

    def check(self, table: ReportingTable) -> None:
        """Check the integers of a table, every step to every row; raise NotCertified with the first that is wrong."""
        if len(table.high) < 2 or table.high[0] or table.low[0]:
            raise NotCertified("a key with a sum of zero could be reported")
        row, step = _find_broken(table, self)
        if row:
            raise NotCertified(f"sums {max(0, row - step):,} and {row:,} differ by more than a step of {step:,} may")


# Tables are immutable, and a mechanism that is restored from its fields shares its table.
@lru_cache(maxsize=8)
def _find_broken(table: ReportingTable, promise: Promise) -> tuple[int, int]:
    """Return the first row and step that break a promise, or (0, 0)."""
    from dpsieve.discovery.loops import find_broken

    p, rest = fraction(table.high, table.low), fraction(~table.high, ~table.low) + 2.0**-128
    p[-1], rest[-1] = 1.0, 0.0
    ends = (_cells(points) for points in (_FEW, _MANY))
    use = np.array(promise.steps, np.int64), promise.exponents, *promise.classes(), promise.epsilon, promise.power
    row, step = find_broken(p, rest, *use, _quick_bounds(), *ends)
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
    """Return a quick estimate of the sum that is reported half of the time; infinity beyond `most`."""
    return half_crossing(_grow(promise, 0.5, 1e-3, most + 1, _POINTS // 2)[0])


@lru_cache(maxsize=64)
def best_power(
    epsilon: float, delta: float, share: float, mu: float, lightest: float, heaviest: float
) -> tuple[float, float]:
    """Return a good power for weights from `lightest` to `heaviest`, and the sum that is reported half of the time.

    Selection has this share of the budget, after a first stage of distance mu. Every power is sound; the search works
    on a rough grid. It minimises the sum that is reported half of the time to the power of `share`, over the distance
    left for noise that follows to the power of 1 - share. A larger share lowers the sum like 1 / sqrt(share) and the
    distance like sqrt(1 - share): to first order, no other power and share have both a smaller sum and less noise. A
    smaller epsilon has nearly the same best power in units of 1/epsilon, and only longer tables.
    """
    shorter = _ROUGH_ROWS * heaviest / 2 * epsilon / math.log(1 / delta)
    if shorter < 1:
        best, enough = best_power(epsilon / shorter, delta, share, mu / shorter, lightest, heaviest)
        return best / shorter, enough / shorter
    grid = 1 if lightest == heaviest else min(_ROUGH, max(2, int(2 * shorter)))
    steps = tuple(range(max(1, math.ceil(grid * lightest / heaviest)), grid + 1))
    point = heaviest / grid

    def half(x: float) -> float:
        power = math.exp(x)
        rough = Promise(epsilon, power, *split(power, delta, mu, share), share * point**2, 0, steps)
        return rough_crossing(rough, 20 * _ROUGH_ROWS) * point

    def score(x: float) -> float:
        if share == 1:
            return half(x)
        left = largest_mu(split(math.exp(x), delta, mu, share)[1], 1 - share, epsilon, math.exp(x))
        return share * math.log(half(x)) - (1 - share) * math.log(left)

    guess, step = math.log(_GUESS * (1 + math.log(1 / delta)) / epsilon), math.log(_RATIO)
    start, least = 0, score(guess)
    for direction in (1, -1):  # downhill
        i = start + direction
        while abs(i) <= _STEPS and ((found := score(guess + i * step)) < least or math.isinf(least)):
            start, least, i = i, found, i + direction
    near = guess + start * step
    x = minimise(score, near - step, near + step, rounds=6) + math.log1p(_ABOVE * (1 - share))
    if math.isinf(found := half(x)):
        budget = f"epsilon={epsilon:.4g} and delta={delta:.4g}"
        raise InvalidValue(f"share={share:.4g} leaves too little at {budget}. Raise one of them.")
    return math.exp(x), found


def finest_bits(half: float, least: int, max_keys: int, *, every: bool) -> int:
    """Return the bits of a grid on which rounding weights costs little and whose table takes well under a second.

    The table covers `every` step, or only those of whole units of up to `max_keys` keys.
    """
    for bits in range(1, MOST_BITS):
        weights = Weight(bits + 1, least).of_keys(max_keys)
        lightest = weights[min(max_keys, _LIGHT * least) - 1]
        rows = 2 * half * 2 ** (bits + 1)
        work = rows * (_SOLVE + (weights[0] if every else len(set(weights))))
        if lightest >= 2 * _FINE or (lightest >= 2 * _COARSE and work > _WORK) or rows > MOST_ROWS / 2:
            return bits
    return MOST_BITS


def _grow(promise: Promise, until: float, accuracy: float, most: int, points: int) -> tuple[Floats, Floats]:
    from dpsieve.discovery.loops import grow_rows

    rows, rest = np.empty(most), np.empty(most)
    use = np.array(promise.steps, np.int64), promise.exponents, *promise.classes(_SPARE)
    middles = np.stack((_tangents((np.arange(points) + 0.5) / points), np.full(points, 1 / points)))
    count = grow_rows(*use, promise.epsilon, promise.power, until, accuracy, _quick_bounds(), middles, rows, rest)
    return rows[:count].copy(), rest[:count].copy()


def _tangents(parts: Floats) -> Floats:
    """Return tan^2(F/2) at these parts of the way of F from 0 to pi."""
    return np.asarray(np.tan(parts * (math.pi / 2)) ** 2)


def _cells(count: int) -> Floats:
    """Return tan^2(F/2) at the left ends of cells of F, shorter near 0, and their lengths; rounded up."""
    parts = (np.arange(count + 1) / count) ** 3
    return np.stack((_tangents(parts[:-1]) * (1 - 1e-12), np.diff(parts) * (1 + 1e-12)))


@lru_cache(maxsize=1)
def _quick_bounds() -> Floats:
    """Return the mean of e^(-Y u) for a grid of Y and of ratios of the angle, rounded up; see `discovery.loops`.

    e^(-Y u) falls with F, so its mean over the left ends of cells is an upper bound; the last column is one.
    """
    from dpsieve.discovery.loops import FIRST, SCALE

    totals = np.expm1(np.arange(_TOTALS) / SCALE) / FIRST
    ratios = np.linspace(0.0, 1.0, _RATIOS)[:-1, None]
    tangents, lengths = _cells(_FEW)
    x = ((1 - ratios) / (1 + ratios)) ** 2 * tangents
    sines = x / (1 + x)
    means = np.stack([np.exp(-total * sines) @ lengths for total in totals]) * (1 + 1e-9)
    return np.column_stack((means, np.ones(_TOTALS)))
