"""Tables of reporting probabilities by frequency, on the 2^-128 grid: growth, check and choice of parameters.

A unit is added or removed. It holds at most m keys, fixed before anything is drawn. For a key that i others hold, the
unit changes the coin p(i) to p(i + 1); from row `first` on it also moves the mean of a count with Gaussian noise, which
is published if the coin reports, by up to one step of `distance` deviations. Each row grows until the bound of m equal
pairs (`accounting.products`) is delta. Rows count in steps of `max_rows`.

Parameters are searched from public numbers; any result is valid, only accuracy depends on it. What the search
minimises for both goals, and proofs: docs/background/many_keys.md#the-guarantee-with-its-proof.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.special import erfcx, ndtr

from dpsieve.accounting.curves import gaussian_sigma
from dpsieve.accounting.products import product_deltas
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.exact import floor_words, fraction, split_words
from dpsieve.exact.balls import ball, minimise, smallest, upper
from dpsieve.randomness.coins import bernoulli_words
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Floats, Ints, Words

MOST_ROWS = 1 << 20
_SPARE = 0.99  # share of delta that tables use; the remainder covers the coarse integrals
_POINTS, _CHECKED = 128, 512
LONGEST = 120_000
Goal = Literal["counts", "keys"]
GOALS: tuple[Goal, ...] = get_args(Goal)
_FROM = 0.9  # counts begin where this share of keys is reported
_LEAST = 0.5  # smaller epsilons have nearly the same best power, in units of 1/epsilon, and longer tables
_NEVER = 1 << 40
_MOST, _ROUGH = 1 << 15, 32  # rows of a rough table, and points of its integrals
_NOISES = (1.02, 1.04, 1.07, 1.1, 1.15, 1.2, 1.4)  # relative to the least
_STEPS = 8  # on either side of the first guess of a power
_SPARE_SHARE = 0.995  # share of delta; the check rounds up


@dataclass(frozen=True, eq=False)
class ReportingTable:
    """p(h) for h = 0, 1, ..., on the 2^-128 grid; sums from the last row on are always reported, a sum of 0 never."""

    high: Words
    low: Words

    @cached_property
    def last(self) -> int:
        """The smallest sum that is always reported."""
        return len(self.high) - 1

    def select(self, sums: Ints, source: Source) -> Bools:
        """Draw which keys are reported, each with exactly the probability of its sum."""
        rows = np.minimum(sums, self.last)
        selected = np.asarray(rows == self.last)
        uncertain = np.flatnonzero((rows > 0) & ~selected)
        selected[uncertain] = bernoulli_words(self.high[rows[uncertain]], self.low[rows[uncertain]], source)
        return selected

    def probability(self, sums: Ints) -> Floats:
        """Return the reporting probabilities of keys with these sums."""
        rows = np.clip(sums, 0, self.last)
        return np.where(rows == self.last, 1.0, self._floats[rows])

    @cached_property
    def _floats(self) -> Floats:
        return fraction(self.high, self.low)

    def crossing(self, probability: float, step: int = 1) -> float:
        """Return the number of steps to a sum with this reporting probability, by linear interpolation."""
        floats = self.probability(np.arange(0, self.last + step, step))
        at = int(np.searchsorted(floats, probability))
        return at - float((floats[at] - probability) / (floats[at] - floats[at - 1]))

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


# Tables are immutable and cached, so equal mechanisms share results.
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
    from dpsieve.noise.report_loops import widest

    worst = np.empty((len(steps), len(orders)))
    leaks = split_words([math.floor(Fraction(leak) * step**2 / 4**bits * 2**128) for step in steps])
    widest(table.high.copy(), table.low.copy(), np.array(steps, np.int64), *leaks, np.array(orders), start, stop, worst)

    def tau(order: float, step: int, sum_: float) -> float:
        return upper(lambda: ball(sum_).log1p() / (ball(order) - 1) * 4**bits / step**2)

    return tuple(
        max(map(partial(tau, order), steps, column)) for order, column in zip(orders, worst.T.tolist(), strict=True)
    )


def finish_table(rows: Floats, complements: Floats) -> ReportingTable:
    """Return the table of these probabilities, rounded down to the grid, given their complements to one."""
    # p = 1 - c rounded down is 2^128 - 1 - floor(c 2^128) on the grid.
    pairs = zip(floor_words(rows), floor_words(complements), strict=True)
    high, low = (np.where(rows > 0.5, ~b, a) for a, b in pairs)
    for words in (high, low):
        words.flags.writeable = False
    return ReportingTable(high, low)


def half_crossing(rows: Floats) -> float:
    """Return where rows, which end at the first probability of 1/2 or more, cross 1/2; infinity for no rows."""
    return len(rows) - 1 - float((rows[-1] - 0.5) / (rows[-1] - rows[-2])) if len(rows) > 1 else math.inf


class Coins(NamedTuple):
    """The public parameters of a table. `distance` is the change of a count per step, in deviations."""

    keys: int
    epsilon: float
    delta: float
    power: float
    first: int
    distance: float


@lru_cache(maxsize=8)
def coin_table(coins: Coins) -> ReportingTable:
    """Return the table of p(0), p(1), ... on the 2^-128 grid; the last row stands for one."""
    # The last row is `first`, or below 3 * `first` for slow coins: longer tables are never saved.
    rows, complements = grow_table(coins, 1.0, min(LONGEST, 4 * coins.first + 64))
    if not len(rows):
        raise InvalidValue("power, first and sigma lead to no table for this epsilon and delta. Pass the saved ones.")
    return finish_table(rows, complements)


def grow_table(coins: Coins, until: float, most: int, points: int = _POINTS) -> tuple[Floats, Floats]:
    """Return p(0), p(1), ... up to the first row of at least `until`, and 1 - p; empty where there is no such row."""
    from dpsieve.noise.report_loops import grow_coins

    rows, complements = np.empty(most), np.empty(most)
    tangents = np.tan((np.arange(points) + 0.5) * (math.pi / 2 / points)) ** 2
    keys, epsilon, delta, power, first, distance = coins
    count = grow_coins(keys, epsilon, power, delta * _SPARE, first, distance, until, tangents, rows, complements)
    return rows[:count].copy(), complements[:count].copy()


@lru_cache(maxsize=64)
def certify_coins(coins: Coins) -> float:
    """Return the bound on delta of the table for these coins; raise where there is none, or it breaks the promise."""
    return worst_delta(coin_table(coins), coins)


@lru_cache(maxsize=64)
def delta_of_one_key(coins: Coins) -> float:
    """Return the bound on delta of a single key; it is far below delta, so few points suffice."""
    return worst_delta(coin_table(coins), coins._replace(keys=1), points=_CHECKED // 4)


def delta_of_noise(coins: Coins) -> float:
    """Return the delta bound for keys that are always reported: that of their noise."""
    sure, distance = np.array([[1.0, 0.0]]), np.array([coins.distance])
    return float(product_deltas(sure, sure, distance, coins.keys, coins.epsilon, power=coins.power)[0])


def worst_delta(table: ReportingTable, coins: Coins, points: int = _CHECKED) -> float:
    """Return the largest bound of all pairs of neighbouring rows, in both directions, from the integer table.

    It bounds delta of a whole unit. A table that decreases, or reports a key that no unit holds, is refused.
    """
    high, low, last = table.high, table.low, table.last
    falls = (high[1:] < high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] < low[:-1]))
    if high[0] or low[0] or falls[:-1].any():
        raise NotCertified("a key that no unit holds could be reported, or a more frequent key less often")
    reported = fraction(high, low)
    silent = fraction(~high, ~low) + 2.0**-128
    reported[last], silent[last] = 1.0, 0.0
    rows = np.column_stack((reported, silent))
    shifts = np.where(np.arange(last) >= coins.first, coins.distance, 0.0)
    worst = delta_of_noise(coins)
    for ours, theirs in ((rows[:-1], rows[1:]), (rows[1:], rows[:-1])):
        deltas = np.full(last, math.inf)
        for finer in (points, 16 * points):  # more points only for pairs that are not clearly below delta
            left = np.flatnonzero(deltas > coins.delta)
            arguments = (shifts[left], coins.keys, coins.epsilon)
            deltas[left] = product_deltas(ours[left], theirs[left], *arguments, power=coins.power, points=finer)
        if (deltas > coins.delta).any():
            at = int(np.argmax(deltas > coins.delta))
            raise NotCertified(f"the coins of rows {at:,} and {at + 1:,} differ by more than a step may")
        worst = max(worst, float(deltas.max()))
    return worst


@lru_cache(maxsize=64)
def choose_coins(epsilon: float, delta: float, keys: int, goal: str) -> tuple[float, int, float]:
    """Return the power, the first row whose tokens count, and the deviation of their noise."""
    rough = max(epsilon, _LEAST)
    search, real = _Search(rough, delta, keys), _Search(epsilon, delta, keys)
    power = search.power()
    if 2 * search.half(power) * rough / epsilon > LONGEST:
        raise InvalidValue(
            f"epsilon={epsilon:g} needs too long a table for {keys:,} keys. Use mechanism 'gaussian'.",
            argument="epsilon",
        )
    real_power = power * rough / epsilon
    sigma, choices = real.sigma(real_power), [1.0]
    if goal == "counts":
        least = search.sigma(power)
        choices = [*sorted(_NOISES, key=lambda noise: search.cost(power, noise * least)), 1.0]
    for noise in choices:
        first = real.first(real_power, counts=noise > 1)
        with suppress(InvalidValue, NotCertified):  # rough floats may miss the limit
            if first > 0:
                certify_coins(Coins(keys, epsilon, delta, real_power, first, upper(lambda: 1 / ball(sigma * noise))))  # noqa: B023
                return real_power, first, sigma * noise
    raise InvalidValue(
        f"epsilon={epsilon:g} leaves no room for {keys:,} keys. Use mechanism 'gaussian'.", argument="epsilon"
    )


@lru_cache(maxsize=64)
def rough_half(epsilon: float, delta: float, keys: int) -> float:
    """Return the approximate frequency at which keys are reported half of the time."""
    search = _Search(max(epsilon, _LEAST), delta, keys)
    return search.half(search.power(rounds=2)) * search.epsilon / epsilon


@dataclass(frozen=True)
class _Search:
    """A search for parameters, given a budget and the keys per unit."""

    epsilon: float
    delta: float
    keys: int

    @lru_cache(maxsize=64)  # noqa: B019 - a search is a value, and holds nothing
    def rows(
        self, power: float, first: int = _NEVER, sigma: float = math.inf, until: float = 0.5, most: int = _MOST
    ) -> Floats:
        """Return the coins; empty if there is no table of that length."""
        points = {} if most == LONGEST else {"points": _ROUGH}
        return grow_table(Coins(self.keys, self.epsilon, self.delta, power, first, 1 / sigma), until, most, **points)[0]

    def half(self, power: float, most: int = _MOST) -> float:
        """Return the frequency reported half of the time; infinity if that takes more than `most` rows."""
        return half_crossing(self.rows(power, most=most))

    def power(self, rounds: int = 8) -> float:
        """Return the power with about the lowest crossing of 1/2; few rounds suffice for the crossing itself."""
        guess = 1.4 * math.log(1 / self.delta) / self.epsilon

        def half(x: float, most: float = math.inf) -> float:
            return self.half(guess * math.exp(x), int(min(_MOST, most)))

        start, best = 0, math.inf
        for direction in (1, -1):  # descend in steps of 0.2; tables longer than the best are cut
            x = start if best == math.inf else start + direction
            while abs(x) <= _STEPS and ((crossing := half(x / 5, best + 3)) < best or best == math.inf):
                start, best, x = x, crossing, x + direction
        return guess * math.exp(minimise(half, start / 5 - 0.2, start / 5 + 0.2, rounds=rounds))

    def sigma(self, power: float) -> float:
        """Return the least deviation of the noise of keys that are always reported.

        For a Gaussian pair of distance mu, the bound of `accounting.products` for m keys is
        e^(x^2 - power epsilon) erfcx(x) / (2c) with x = c mu sqrt(m/2).
        """
        c = math.sqrt(power * (power + 1))

        def is_private(sigma: float) -> bool:
            x = c * math.sqrt(self.keys / 2) / sigma
            log_delta = x * x - power * self.epsilon + math.log(erfcx(x)) - math.log(2 * c)
            return log_delta <= math.log(self.delta * _SPARE_SHARE)

        least = gaussian_sigma(self.epsilon, self.delta, count=self.keys)
        return smallest(is_private, 0.99 * least, 100 * least, tolerance=1e-9) if is_private(100 * least) else math.inf

    def first(self, power: float, *, counts: bool = True, most: int = LONGEST) -> int:
        """Return the first row whose tokens count: where 9 of 10 keys, or all, are reported; -1 if there is none."""
        return len(self.rows(power, until=_FROM if counts else 1.0, most=most)) - 1

    def cost(self, power: float, sigma: float) -> float:
        """Return the expected error of the published counts."""
        first = self.first(power, most=_MOST)
        rows = self.rows(power, first, sigma, until=1.0, most=_MOST) if first > 0 else np.empty(0)
        return expected_error(rows, first, sigma) if len(rows) else math.inf


def expected_error(rows: Floats, first: int, sigma: float) -> float:
    """Return the expected error of the published counts: the mean over frequencies i, weighted by 1/i^2 (Zipf's law).

    A key that is not reported counts with i, others with the error of their token. `rows` are the reporting
    probabilities of frequencies 0, 1, ...; from the last one on all keys are reported.
    """
    i = np.arange(1, 4 * len(rows))
    reported = np.append(rows[1:], np.ones(len(i) - len(rows) + 1))
    shortfall = np.maximum(first - i, 0) / sigma
    error = sigma * (math.sqrt(2 / math.pi) * np.exp(-(shortfall**2) / 2) + shortfall * (1 - 2 * ndtr(-shortfall)))
    later = sigma * math.sqrt(2 / math.pi) / (4 * len(rows))
    return float((((1 - reported) * i + reported * error) / i**2).sum()) + later
