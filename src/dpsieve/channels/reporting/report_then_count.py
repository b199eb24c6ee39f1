"""Report first, then count: for units with several keys, far rarer keys come out than with noise and a threshold."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpsieve import validate
from dpsieve.channels.channel import Channel
from dpsieve.channels.makers import most_keys, most_rows, unknown_domain
from dpsieve.channels.reporting.coin_choice import GOALS, chosen_coins
from dpsieve.channels.reporting.coin_tables import LONGEST, Coins, certified, coin_table, noise_number, of_one_key
from dpsieve.channels.reporting.counted_rows import CountedRows
from dpsieve.errors import InvalidValue
from dpsieve.exact.search import ball, upper
from dpsieve.privacy import Approximate, Certificate, Guarantee, Renyi, Spend
from dpsieve.privacy.certificate import Part, whole_unit
from dpsieve.privacy.curves.renyi import spread_orders
from dpsieve.privacy.registry import register

_SAVED = "Pass the saved one."
_ORDERS = 16


def report_then_count(
    epsilon: float, delta: float, max_keys: int, max_rows: int = 1, *, goal: str = "counts", unit: str = "one row"
) -> "ReportThenCount":
    """Return the channel that shows a key by a coin first and counts it then, for units with several keys.

    A key of frequency i shows with probability p(i), where p(0) = 0 and p(i + 1) is the largest probability for which
    `max_keys` pairs of the coins p(i) and p(i + 1) keep (epsilon, delta). A key that shows gets the token max(i, first)
    with Gaussian noise: below `first` it says only 'at most about first', which costs nothing; from there on it is a
    noisy count. So rare keys pay for being reported, and common ones for being counted. The guarantee, for units of at
    most `max_keys` keys with `max_rows` rows each, added or removed, is proven in `privacy.products` and
    `channels.reporting.coin_tables`; all parameters are chosen from these numbers.

    Args:
        epsilon, delta: the budget of a whole unit.
        max_keys: how many keys a unit may have.
        max_rows: by how much a unit may change the frequency of each.
        goal: 'counts' (counts begin where nine of ten keys are reported), or 'keys' (they begin where all are, and a
            few more keys come out).
        unit: who is protected, in words.

    >>> channel = report_then_count(1.0, 1e-8, max_keys=10)
    >>> channel.reporting_probability([1, 60, 70, 100]).round(2).tolist()
    [0.0, 0.39, 0.67, 0.97]
    """
    epsilon, delta = unknown_domain(epsilon, delta)
    keys, rows = most_keys(max_keys), most_rows(max_rows)
    if keys == 1:
        raise InvalidValue("max_keys=1 has a better channel: use optimal, or rows_of_units. Pass 2 or more here.")
    if goal not in GOALS:
        raise InvalidValue(f"goal is not known. Pass one of {', '.join(map(repr, GOALS))}.")
    power, first, sigma = chosen_coins(epsilon, delta, keys, goal)
    return ReportThenCount(epsilon, delta, keys, rows, power, first, sigma * rows, unit=unit)


@register("report_then_count")
@dataclass(frozen=True, repr=False)
class ReportThenCount(Channel):
    """See `report_then_count`.

    Attributes:
        max_keys, max_rows: what a unit may add.
        power: at which products of pairs are bounded; see `privacy.products`.
        first: the row from which on tokens count, in units of `max_rows`.
        sigma: the deviation of their noise.
    """

    max_keys: int
    max_rows: int
    power: float
    first: int
    sigma: float

    def __post_init__(self) -> None:
        unknown_domain(self.epsilon, self.delta_)
        super().__post_init__()
        self._set(
            max_keys=most_keys(self.max_keys),
            max_rows=most_rows(self.max_rows),
            power=validate.between("power", self.power, 1e-3, 1e7, hint=_SAVED),
            first=validate.whole("first", self.first, low=1, high=LONGEST, hint=_SAVED),
            sigma=validate.between("sigma", self.sigma, 1e-3, 1e9, hint=_SAVED),
        )
        if noise_number(self.coins) > self.delta_:
            raise InvalidValue("power and sigma do not keep epsilon and delta. Pass the saved ones.")

    @property
    def coins(self) -> Coins:
        """What the table of coins is grown for."""
        distance = upper(lambda: ball(self.max_rows) / ball(self.sigma))
        return Coins(self.max_keys, self.epsilon, self.delta_, self.power, self.first, distance)

    @cached_property
    def rows(self) -> CountedRows:
        """A coin, and a count with noise where it shows."""
        certified(self.coins)  # so that nothing is drawn from a table that breaks the promise
        return CountedRows(coin_table(self.coins), self.first, self.sigma, self.max_rows)

    @property
    def table_rows(self) -> None:
        """Unknown before they are made; there are few."""
        return None

    @property
    def each_key(self) -> Guarantee:
        """What is promised for one key of a unit."""
        return replace(self.guarantee, delta=of_one_key(self.coins))

    @cached_property
    def _certificate(self) -> Certificate:
        table, each = self.rows.table, self.each_key
        one = Part(
            "one key", "formula", f"{table.last:,} coins, and Gaussian noise", each.epsilon, each.delta, each.delta
        )
        together = f"all pairs of coins, and noise, for units of at most {self.max_keys:,} keys"
        whole = whole_unit(self.guarantee, certified(self.coins), "formula", together)
        return Certificate(self.guarantee, (one, whole))

    def spends(self) -> tuple[Spend, ...]:
        """Return what a whole unit costs at some orders, and what it may leak.

        A key is rare, and costs its coin, or common, and costs its coin and the noise of its count: at each order the
        larger of both, for all keys. The leak of a key is that of its first and last coin.
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

    def delta(self, epsilon: float, neighbours: str = "add_remove") -> float:
        """Refuse: what is known of a whole unit is a bound, which the certificate has."""
        validate.epsilon(epsilon), validate.neighbours(neighbours)
        hint = "Use channel.certify() for the promised epsilon, or channel.guarantee."
        raise InvalidValue(f"epsilon has no exact delta for units with several keys in this channel. {hint}")
