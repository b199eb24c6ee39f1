"""Report first, then count: a coin reports the key, and only then a token is drawn, with Gaussian noise.

For units with several keys, this reports far rarer keys than noise and a threshold.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np
from scipy.special import ndtr, ndtri

from dpsieve.accounting.curves import spread_orders
from dpsieve.accounting.spends import Approximate, Renyi, Spend
from dpsieve.channels.channel import UnknownKeys
from dpsieve.channels.law import CELLS, LARGEST_FREQUENCY, TokenLaw
from dpsieve.channels.rows import SAFE
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact import fraction
from dpsieve.exact.balls import ball, first_whole, upper
from dpsieve.noise.report_tables import (
    GOALS,
    LONGEST,
    Coins,
    Goal,
    ReportingTable,
    certify_coins,
    choose_coins,
    coin_table,
    delta_of_noise,
    delta_of_one_key,
)
from dpsieve.privacy.certificate import Certificate, Part, whole_unit
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.randomness.noise import rounded_gaussian
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import check_budget, check_max_keys, check_max_rows, is_between, is_whole

_REACH = 13.2  # in deviations: noise beyond has a probability below 2^-128, which rows leave out
_SAVED = "Pass the saved value."
_ORDERS = 16
_TOGETHER = 128  # tokens whose likeliest frequencies are looked for among the same steps


class ReportThenCountLaw(TokenLaw):
    """Row x is reported with the probability of its step, ceil(x / step); then the token is max(x, start) plus noise.

    So a token below or around `start` means 'at most about start'. `offset` is added to keep tokens above zero. The
    noise is a Gaussian rounded to whole numbers.
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
        return self.table.probability(-(-frequencies // self.step))

    def withheld(self, frequencies: Ints) -> Floats:
        """Return the probability of 'nothing' for each frequency; zero once a key is always reported."""
        rows = np.clip(-(-frequencies // self.step), 0, self.table.last)
        complement = fraction(~self.table.high[rows], ~self.table.low[rows]) + 2.0**-128
        return np.where(rows == self.table.last, 0.0, complement)

    def cell_probabilities(self, frequencies: Ints, edges: Ints) -> Floats:
        middles = np.maximum(frequencies, self.start) + self.offset
        return self.reported(frequencies)[:, None] * self._noise(edges[1:] - middles[:, None])

    def likeliest(self, tokens: Ints) -> tuple[Ints, Floats]:
        """Return the likeliest frequency of each token, and its probability there; zero if no row has the token.

        Among the frequencies of a step that nearest to the token is likeliest. All frequencies up to `start` share the
        noise of `start`.
        """
        counts, place = np.unique(tokens - self.offset, return_inverse=True)
        frequencies, best = counts.copy(), self._noise(np.zeros_like(counts))
        steps = np.arange(self.start // self.step, self.table.last)
        low = np.append(np.maximum((steps - 1) * self.step + 1, self.start), self.last)
        high = np.append(np.maximum(steps * self.step, self.start), LARGEST_FREQUENCY + self.reach)
        uncertain = np.flatnonzero(counts < self.last + self.reach)  # other rows are always reported
        together = min(_TOGETHER, max(1, CELLS // len(low)))
        for part in filter(len, np.array_split(uncertain, 1 + len(uncertain) // together)):
            near = self._near(counts[part], low, high)
            nearest = np.clip(counts[part, None], low[near], high[near])
            probability = self.reported(high[near]) * self._noise(counts[part, None] - nearest)
            at = np.arange(len(part)), probability.argmax(axis=1)
            frequencies[part], best[part] = nearest[at], probability[at]
        return frequencies[place], best[place]

    def _near(self, counts: Ints, low: Ints, high: Ints) -> slice:
        """Return the steps, from `low` to `high`, that may be likeliest for some of these increasing counts.

        Earlier ones are reported less often and lie farther away. Later ones, were they always reported, are less
        likely than the step of a count.
        """
        first, last = np.minimum(np.searchsorted(high, counts[[0, -1]]), len(high) - 1)
        own = np.minimum(np.searchsorted(high, counts), len(high) - 1)
        least = (self.reported(high[own]) * self._noise(counts - np.clip(counts, low[own], high[own]))).min()
        likely = np.flatnonzero(self._noise(np.maximum(low[last:] - counts[-1], 0)) >= least)
        return slice(int(first), int(last + likely[-1]) + 1)

    def interval(self, tokens: Ints, level: float) -> tuple[Ints, Ints]:
        """Return the confidence interval of each token: all x for which max(x, start) is within the noise of it.

        Given a report the token is max(x, start) plus noise, so the level holds for every x.
        """
        counts, width = tokens - self.offset, self._width(level)
        low = np.where(counts - width <= self.start, 1, counts - width)
        return low, np.maximum(counts + width, self.start)

    def draw(self, frequencies: Ints, source: Source, *, already_sampled: bool = False) -> Ints:
        """Return a token for each frequency, 0 for 'nothing': toss the coins, then add noise to what is reported."""
        tokens = np.zeros(len(frequencies), np.int64)
        reported = np.flatnonzero(self.table.select(-(-frequencies // self.step), source))
        noise = rounded_gaussian(self.sigma, len(reported), source=source)
        # Clipped at 1: noise beyond `reach` could otherwise yield the token of 'nothing'.
        tokens[reported] = np.maximum(np.maximum(frequencies[reported], self.start) + noise + self.offset, 1)
        return tokens

    def _width(self, level: float) -> int:
        """Return the half-width of the noise at a level."""
        guess = math.ceil(-self.sigma * float(ndtri((1 - min(level * (1 + SAFE), 1 - 1e-15)) / 2)) + 0.5)

        def is_covered(width: int) -> bool:
            return 1 - 2 * float(ndtr(-(width + 0.5) / self.sigma)) >= level * (1 + SAFE)

        return min(self.reach, first_whole(is_covered, max(0, guess - 3), guess + 3))

    def _noise(self, values: Ints) -> Floats:
        """Return the probability of each noise, precise in the tails; zero if it is below 2^-128."""
        distance = np.abs(values)
        mass = ndtr((0.5 - distance) / self.sigma) - ndtr((-0.5 - distance) / self.sigma)
        return np.where(distance <= self.reach, mass, 0.0)


def report_then_count(
    epsilon: float, delta: float, max_keys: int, max_rows: int = 1, *, goal: Goal = "counts", unit: str = "one row"
) -> "ReportThenCount":
    """Return the mechanism that first reports a key by a coin and then counts it, for units with several keys.

    A key of frequency i is reported with probability p(i), where p(0) = 0 and p(i + 1) is the largest probability for
    which `max_keys` pairs of the coins p(i) and p(i + 1) are (epsilon, delta)-private. A reported key gets the token
    max(i, first) plus Gaussian noise: below `first` it means only 'at most about first', which costs nothing; from
    there on it is a noisy count. So rare keys pay for being reported, common keys for being counted. The guarantee, for
    units of at most `max_keys` keys with `max_rows` rows each, added or removed, is proven in `accounting.products` and
    `noise.report_tables`.

    Args:
        epsilon, delta: the budget of a whole unit.
        max_keys: keys per unit.
        max_rows: the largest change of the frequency of a key by one unit.
        goal: 'counts' (counts begin where nine of ten keys are reported), or 'keys' (they begin where all are, and a
            few more keys are reported).
        unit: the privacy unit, as named in the guarantee.

    >>> channel = report_then_count(1.0, 1e-8, max_keys=10)
    >>> channel.reporting_probability([1, 60, 70, 100]).round(2).tolist()
    [0.0, 0.39, 0.67, 0.97]
    """
    epsilon, delta = check_budget(epsilon, delta)
    keys, rows = check_max_keys(max_keys), check_max_rows(max_rows)
    if keys == 1:
        raise InvalidValue(
            "max_keys=1 has a better channel: use optimal, or rows_of_units. Pass 2 or more here.", argument="max_keys"
        )
    if goal not in GOALS:
        raise InvalidValue(f"goal is not known. Pass one of {', '.join(map(repr, GOALS))}.", argument="goal")
    power, first, sigma = choose_coins(epsilon, delta, keys, goal)
    return ReportThenCount(epsilon, delta, keys, rows, power, first, sigma * rows, unit=unit)


@register("report_then_count")
@dataclass(frozen=True, repr=False)
class ReportThenCount(UnknownKeys):
    """See `report_then_count`.

    Attributes:
        max_keys, max_rows: the contribution of a unit.
        power: of the bound on products of pairs; see `accounting.products`.
        first: the first row whose tokens count, in units of `max_rows`.
        sigma: the deviation of their noise.
    """

    max_keys: Annotated[int, check_max_keys]
    max_rows: Annotated[int, check_max_rows]
    power: Annotated[float, is_between(1e-3, 1e7, _SAVED)]
    first: Annotated[int, is_whole(1, LONGEST, _SAVED)]
    sigma: Annotated[float, is_between(1e-3, 1e9, _SAVED)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if delta_of_noise(self.coins) > self.delta_:
            raise InvalidValue("power and sigma do not satisfy epsilon and delta. Pass the saved values.")

    @cached_property
    def coins(self) -> Coins:
        """The parameters of the table of coins."""
        distance = upper(lambda: ball(self.max_rows) / ball(self.sigma))
        return Coins(self.max_keys, self.epsilon, self.delta_, self.power, self.first, distance)

    @cached_property
    def rows(self) -> ReportThenCountLaw:
        certify_coins(self.coins)  # never draw from a table that breaks the promise
        return ReportThenCountLaw(coin_table(self.coins), self.first, self.sigma, self.max_rows)

    @property
    def each_key(self) -> Guarantee:
        return replace(self.guarantee, delta=delta_of_one_key(self.coins))

    @cached_property
    def _certificate(self) -> Certificate:
        table, each = self.rows.table, self.each_key
        key = Part(
            "one key", "formula", f"{table.last:,} coins, and Gaussian noise", each.epsilon, each.delta, each.delta
        )
        together = f"all pairs of coins, and noise, for units of at most {self.max_keys:,} keys"
        unit = whole_unit(self.guarantee, certify_coins(self.coins), "formula", together)
        return Certificate(self.guarantee, (key, unit))

    def spends(self) -> tuple[Spend, ...]:
        """Return the Renyi cost of a unit at several orders, and its leak.

        A rare key costs its coin, a common key its coin and the noise of its count; each key is charged the larger of
        both at each order. The leak of a key is that of its first and last coin.
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

        unit_leak = upper(lambda: -((-ball(leak)).log1p() * self.max_keys).expm1())
        return Renyi(orders, tuple(map(tau, orders, rare, slow))), Approximate(0.0, unit_leak)
