"""Report first, then count: a coin reports the key, and only then a token is drawn, with Gaussian noise.

For units with several keys, far rarer keys are reported than with noise and a threshold.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from dpsieve import validate
from dpsieve.accounting.renyi import spread_orders
from dpsieve.channels.budget import check_budget, check_max_keys, check_max_rows
from dpsieve.channels.channel import UnknownKeys
from dpsieve.channels.law import CELLS, LARGEST_FREQUENCY, TokenLaw
from dpsieve.channels.rows import SAFE
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, first_whole, upper
from dpsieve.exact.words import fraction
from dpsieve.noise.report_tables import (
    GOALS,
    LONGEST,
    Coins,
    ReportingTable,
    certify_coins,
    choose_coins,
    coin_table,
    delta_of_noise,
    delta_of_one_key,
)
from dpsieve.privacy import Approximate, Certificate, Guarantee, Renyi, Spend
from dpsieve.privacy.certificate import Part, whole_unit
from dpsieve.privacy.registry import register
from dpsieve.randomness.noise import rounded_gaussian
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints

_REACH = 13.2  # in deviations: noise beyond has a probability below 2^-128, which is left out of rows
_SAVED = "Pass the saved one."
_ORDERS = 16


class ReportThenCountLaw(TokenLaw):
    """Row x is reported with the probability of its step, ceil(x / step); then the token is max(x, start) plus noise.

    So a token below `start`, or around it, means 'at most about start'. Tokens are moved up, where needed, to be above
    zero; `offset` is by how much. The noise is a Gaussian rounded to whole numbers.
    """

    last: int

    def __init__(self, table: ReportingTable, first: int, sigma: float, step: int) -> None:
        self.table, self.sigma, self.step = table, sigma, step
        self.start = first * step
        self.reach = math.ceil(_REACH * sigma) + 1
        self.offset = max(0, self.reach + 1 - self.start)
        self.last = max((table.last - 1) * step + 1, self.start)
        self.spread = self.reach + self.start + self.offset

    def reported(self, frequencies: Ints) -> Floats:
        """Return the probability of a report for each frequency."""
        return self.table.probability(-(-frequencies // self.step))

    def withheld(self, frequencies: Ints) -> Floats:
        """Return the probability of 'nothing' for each frequency; zero once a key always shows."""
        rows = np.clip(-(-frequencies // self.step), 0, self.table.last)
        rest = fraction(~self.table.high[rows], ~self.table.low[rows]) + 2.0**-128
        return np.where(rows == self.table.last, 0.0, rest)

    def cell_probabilities(self, frequencies: Ints, edges: Ints) -> Floats:
        """Return the probability of each token; see `TokenLaw.cell_probabilities`."""
        middles = np.maximum(frequencies, self.start) + self.offset
        return self.reported(frequencies)[:, None] * self._noise(edges[1:] - middles[:, None])

    def likeliest(self, tokens: Ints) -> tuple[Ints, Floats]:
        """Return the frequency under which each token has its largest probability, and that; zero if no row has it.

        Among the frequencies of one step the best is the one nearest to the token. All up to `start` have its law.
        """
        counts, place = np.unique(tokens - self.offset, return_inverse=True)
        found, best = counts.copy(), self._noise(np.zeros_like(counts))
        steps = np.arange(self.start // self.step, self.table.last)
        low = np.append(np.maximum((steps - 1) * self.step + 1, self.start), self.last)
        high = np.append(np.maximum(steps * self.step, self.start), LARGEST_FREQUENCY + self.reach)
        near = np.flatnonzero(counts < self.last + self.reach)  # all others are from rows that always show
        for some in np.array_split(near, 1 + len(near) * len(low) // CELLS):
            each = np.clip(counts[some, None], low, high)
            chance = self.reported(high) * self._noise(counts[some, None] - each)
            at = np.arange(len(some)), chance.argmax(axis=1)
            found[some], best[some] = each[at], chance[at]
        return found[place], best[place]

    def interval(self, tokens: Ints, level: float) -> tuple[Ints, Ints]:
        """Return the confidence interval of each token: all x for which max(x, start) is within the noise of it.

        Given a report the token is max(x, start) plus noise, so the level holds for every x.
        """
        near, width = tokens - self.offset, self._width(level)
        low = np.where(near - width <= self.start, 1, near - width)
        return low, np.maximum(near + width, self.start)

    def draw(self, frequencies: Ints, source: Source, *, already_sampled: bool = False) -> Ints:
        """Return a token for each frequency, 0 for 'nothing': the coin first, and noise where it shows."""
        tokens = np.zeros(len(frequencies), np.int64)
        shown = np.flatnonzero(self.table.select(-(-frequencies // self.step), source))
        noise = rounded_gaussian(self.sigma, len(shown), source=source)
        # Without a cut at one, noise beyond `reach` could make a token that says 'nothing'.
        tokens[shown] = np.maximum(np.maximum(frequencies[shown], self.start) + noise + self.offset, 1)
        return tokens

    def _width(self, level: float) -> int:
        """Return how far off noise is at most, at a level."""
        wide = math.ceil(-self.sigma * float(ndtri((1 - min(level * (1 + SAFE), 1 - 1e-15)) / 2)) + 0.5)

        def held(width: int) -> bool:
            return 1 - 2 * float(ndtr(-(width + 0.5) / self.sigma)) >= level * (1 + SAFE)

        return min(self.reach, first_whole(held, max(0, wide - 3), wide + 3))

    def _noise(self, values: Ints) -> Floats:
        """Return the probability of each noise, with its digits in the tails; zero where that is below 2^-128."""
        far = np.abs(values)
        mass = ndtr((0.5 - far) / self.sigma) - ndtr((-0.5 - far) / self.sigma)
        return np.where(far <= self.reach, mass, 0.0)


def report_then_count(
    epsilon: float, delta: float, max_keys: int, max_rows: int = 1, *, goal: str = "counts", unit: str = "one row"
) -> "ReportThenCount":
    """Return the mechanism that reports a key by a coin first and counts it then, for units with several keys.

    A key of frequency i is reported with probability p(i), where p(0) = 0 and p(i + 1) is the largest probability for
    which `max_keys` pairs of the coins p(i) and p(i + 1) keep (epsilon, delta). A reported key gets the token
    max(i, first) plus Gaussian noise: below `first` it means only 'at most about first', which costs nothing; from
    there on it is a noisy count. So rare keys pay for being reported, and common ones for being counted. The guarantee,
    for units of at most `max_keys` keys with `max_rows` rows each, added or removed, is proven in
    `accounting.products` and `noise.report_tables`; all parameters are chosen from these numbers.

    Args:
        epsilon, delta: the budget of a whole unit.
        max_keys: how many keys a unit may have.
        max_rows: by how much a unit may change the frequency of each.
        goal: 'counts' (counts begin where nine of ten keys are reported), or 'keys' (they begin where all are, and a
            few more keys are reported).
        unit: the privacy unit, as words for the guarantee.

    >>> channel = report_then_count(1.0, 1e-8, max_keys=10)
    >>> channel.reporting_probability([1, 60, 70, 100]).round(2).tolist()
    [0.0, 0.39, 0.67, 0.97]
    """
    epsilon, delta = check_budget(epsilon, delta)
    keys, rows = check_max_keys(max_keys), check_max_rows(max_rows)
    if keys == 1:
        raise InvalidValue("max_keys=1 has a better channel: use optimal, or rows_of_units. Pass 2 or more here.")
    if goal not in GOALS:
        raise InvalidValue(f"goal is not known. Pass one of {', '.join(map(repr, GOALS))}.")
    power, first, sigma = choose_coins(epsilon, delta, keys, goal)
    return ReportThenCount(epsilon, delta, keys, rows, power, first, sigma * rows, unit=unit)


@register("report_then_count")
@dataclass(frozen=True, repr=False)
class ReportThenCount(UnknownKeys):
    """See `report_then_count`.

    Attributes:
        max_keys, max_rows: what a unit may add.
        power: at which products of pairs are bounded; see `accounting.products`.
        first: the row from which on tokens count, in units of `max_rows`.
        sigma: the deviation of their noise.
    """

    max_keys: int
    max_rows: int
    power: float
    first: int
    sigma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.store(
            self,
            max_keys=check_max_keys(self.max_keys),
            max_rows=check_max_rows(self.max_rows),
            power=validate.between("power", self.power, 1e-3, 1e7, hint=_SAVED),
            first=validate.whole("first", self.first, low=1, high=LONGEST, hint=_SAVED),
            sigma=validate.between("sigma", self.sigma, 1e-3, 1e9, hint=_SAVED),
        )
        if delta_of_noise(self.coins) > self.delta_:
            raise InvalidValue("power and sigma do not keep epsilon and delta. Pass the saved ones.")

    @property
    def coins(self) -> Coins:
        """What the table of coins is grown for."""
        distance = upper(lambda: ball(self.max_rows) / ball(self.sigma))
        return Coins(self.max_keys, self.epsilon, self.delta_, self.power, self.first, distance)

    @cached_property
    def rows(self) -> ReportThenCountLaw:
        """A coin, and a count with noise where it reports."""
        certify_coins(self.coins)  # nothing is drawn from a table that breaks the promise
        return ReportThenCountLaw(coin_table(self.coins), self.first, self.sigma, self.max_rows)

    @property
    def each_key(self) -> Guarantee:
        """What is promised for one key of a unit."""
        return replace(self.guarantee, delta=delta_of_one_key(self.coins))

    @cached_property
    def _certificate(self) -> Certificate:
        table, each = self.rows.table, self.each_key
        one = Part(
            "one key", "formula", f"{table.last:,} coins, and Gaussian noise", each.epsilon, each.delta, each.delta
        )
        together = f"all pairs of coins, and noise, for units of at most {self.max_keys:,} keys"
        whole = whole_unit(self.guarantee, certify_coins(self.coins), "formula", together)
        return Certificate(self.guarantee, (one, whole))

    def spends(self) -> tuple[Spend, ...]:
        """Return the Renyi cost of a whole unit at some orders, and its leak.

        A rare key costs its coin, a common key its coin and the noise of its count: at each order the larger of both,
        for all keys. The leak of a key is that of its first and last coin.
        """
        return self._spent

    @cached_property
    def _spent(self) -> tuple[Spend, ...]:
        table, after, order = self.rows.table, self.first + 1, self.power + 1
        ends = np.array([1, table.last - 1]) * self.max_rows
        leak = float(max(self.rows.reported(ends)[0], self.rows.withheld(ends)[1])) * (1 + 1e-12)
        orders = spread_orders(order, _ORDERS)
        rare, slow = table.taus(orders, leak, stop=after), table.taus(orders, leak, start=after)

        def tau(order: float, rare: float, slow: float) -> float:
            common = upper(lambda: ball(slow) + ball(order) * (ball(self.max_rows) / ball(self.sigma)) ** 2 / 2)
            return upper(lambda: ball(max(rare, common)) * self.max_keys)

        shown = upper(lambda: -((-ball(leak)).log1p() * self.max_keys).expm1())
        return Renyi(orders, map(tau, orders, rare, slow)), Approximate(0.0, shown)
