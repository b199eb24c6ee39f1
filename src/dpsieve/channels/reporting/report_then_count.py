"""Report first, then count: for units with several keys, far rarer keys come out than with noise and a threshold."""

from dataclasses import dataclass, replace
from functools import cached_property

from dpsieve import validate
from dpsieve.channels.channel import Channel
from dpsieve.channels.makers import most_keys, most_rows, unknown_domain
from dpsieve.channels.reporting.coin_choice import GOALS, chosen_coins
from dpsieve.channels.reporting.coin_tables import check_coins, coin_table
from dpsieve.channels.reporting.counted_rows import CountedRows
from dpsieve.channels.reporting.reporting_tables import MOST_ROWS
from dpsieve.channels.reporting.several_keys import Coins, unit_delta
from dpsieve.errors import InvalidValue
from dpsieve.exact.search import ball, upper
from dpsieve.privacy import Certificate, Guarantee
from dpsieve.privacy.certificate import Part, whole_unit
from dpsieve.privacy.curves.renyi import checked_order
from dpsieve.privacy.registry import register

_SAVED = "Pass the saved one."


def report_then_count(
    epsilon: float, delta: float, max_keys: int, max_rows: int = 1, *, goal: str = "counts", unit: str = "one row"
) -> "ReportThenCount":
    """Return the channel that shows a key by a coin first and counts it then, for units with several keys.

    A key of frequency i shows with probability p(i), where p(0) = 0 and p(i + 1) is the largest probability whose coin
    is close to that of p(i) in Renyi divergence of one order. A key that shows gets the token max(i, first) with
    Gaussian noise: below `first` it says only 'at most about first', which costs nothing; from there on it is a noisy
    count. So rare keys pay for being reported, common ones for being counted, and none for both. The guarantee, for
    units of at most `max_keys` keys with `max_rows` rows each, added or removed, is proven in
    `channels.reporting.several_keys`; all parameters are chosen from these numbers.

    Args:
        epsilon, delta: the budget of a whole unit.
        max_keys: how many keys a unit may have.
        max_rows: by how much a unit may change the frequency of each.
        goal: 'counts' (counts begin where nine of ten keys are reported), or 'keys' (they begin where all are, and a
            few more keys come out).
        unit: who is protected, in words.

    >>> channel = report_then_count(1.0, 1e-8, max_keys=10)
    >>> channel.reporting_probability([1, 60, 70, 100]).round(2).tolist()
    [0.0, 0.23, 0.51, 0.94]
    """
    epsilon, delta = unknown_domain(epsilon, delta)
    keys, rows = most_keys(max_keys), most_rows(max_rows)
    if keys == 1:
        raise InvalidValue("max_keys=1 has a better channel: use optimal, or rows_of_units. Pass 2 or more here.")
    if goal not in GOALS:
        raise InvalidValue(f"goal is not known. Pass one of {', '.join(map(repr, GOALS))}.")
    coins, first, sigma = chosen_coins(epsilon, delta, keys, goal)
    return ReportThenCount(epsilon, delta, keys, rows, *coins, first, sigma * rows, unit=unit)


@register("report_then_count")
@dataclass(frozen=True, repr=False)
class ReportThenCount(Channel):
    """See `report_then_count`.

    Attributes:
        order, step, slow, leak: what the coins of rows i and i + 1 keep; see `channels.reporting.several_keys`.
        first: the row from which on tokens count, in units of `max_rows`.
        sigma: the deviation of their noise.
    """

    max_keys: int
    max_rows: int
    order: float
    step: float
    slow: float
    leak: float
    first: int
    sigma: float

    def __post_init__(self) -> None:
        unknown_domain(self.epsilon, self.delta_)
        super().__post_init__()
        step = validate.between("step", self.step, 1e-15, 1e3, hint=_SAVED)
        self._set(
            max_keys=most_keys(self.max_keys),
            max_rows=most_rows(self.max_rows),
            order=checked_order(self.order),
            step=step,
            slow=validate.between("slow", self.slow, 0.0, step, hint=_SAVED),
            leak=validate.between("leak", self.leak, 1e-30, self.delta_, hint=_SAVED),
            first=validate.whole("first", self.first, low=1, high=MOST_ROWS, hint=_SAVED),
            sigma=validate.between("sigma", self.sigma, 1e-3, 1e9, hint=_SAVED),
        )
        if self._delta(self.max_keys) > self.delta_:
            raise InvalidValue("order, step, slow, leak and sigma do not keep epsilon and delta. Pass the saved ones.")

    @property
    def coins(self) -> Coins:
        """What the coins of one key keep."""
        return Coins(self.order, self.step, self.slow, self.leak)

    @cached_property
    def rows(self) -> CountedRows:
        """A coin, and a count with noise where it shows."""
        return CountedRows(coin_table(self.coins, self.first), self.first, self.sigma, self.max_rows)

    @property
    def each_key(self) -> Guarantee:
        """What is promised for one key of a unit."""
        return replace(self.guarantee, delta=self._delta(1))

    @cached_property
    def _certificate(self) -> Certificate:
        table, each = self.rows.table, self.each_key
        check_coins(table, self.coins, self.first)
        covers = f"{table.last:,} coins of Renyi order {self.order:.4g}, checked one by one, and Gaussian noise"
        one = Part("one key", "balls", covers, each.epsilon, each.delta, each.delta)
        together = f"coins and noise composed, for units of at most {self.max_keys:,} keys"
        return Certificate(
            self.guarantee, (one, whole_unit(self.guarantee, self._delta(self.max_keys), "balls", together))
        )

    def delta(self, epsilon: float, neighbours: str = "add_remove") -> float:
        """Refuse: what is known of a whole unit is a bound, which the certificate has."""
        validate.epsilon(epsilon), validate.neighbours(neighbours)
        hint = "Use channel.certify() for the promised epsilon, or channel.guarantee."
        raise InvalidValue(f"epsilon has no exact delta for units with several keys in this channel. {hint}")

    def _delta(self, keys: int) -> float:
        distance = upper(lambda: ball(self.max_rows) / ball(self.sigma))
        return unit_delta(keys, self.epsilon, self.coins, distance)
