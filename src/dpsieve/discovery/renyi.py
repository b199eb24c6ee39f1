"""Selection by coins: a key is published with a probability that depends on its sum of weights, without any noise.

A unit that keeps d keys adds the weight w = 2^bits / sqrt(max(d, least)), rounded down, to each of them. A key with the
sum h is published with probability p(h), independently of the others. p is the largest function for which every step
from p(h - w) to p(h) keeps the promise of `discovery.renyi_tables`: p(0) = 0, and each p(h) is limited by
all steps to it.

Proof of privacy. Neighbours differ by one unit; it changes the coin of each of its keys by one step and no other coin.
Coins are independent, so neighbours are a product of pairs whose weights u = w / 2^bits have squares that sum to at
most one, and rounding a weight down only lowers that sum. Whatever the sums of other units are, each pair is a step of
the table. So `privacy.stages` bounds delta by the exposure of leak and rest: delta itself, where nothing comes before.
With a share below one, something that follows may have the rest of the weight.

References: D. Desfontaines, J. Voss, B. Gipson and C. Mandayam, "Differentially private partition selection", PoPETs
2022, for one key per unit; `privacy.stages` for the account.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.accounting.products import absent, exposure, largest_mu, split
from dpsieve.accounting.renyi import spread_orders
from dpsieve.accounting.spends import Approximate, Renyi, Spend
from dpsieve.channels.budget import check_budget, check_max_keys
from dpsieve.discovery.renyi_tables import Promise, reporting_table, rough_crossing
from dpsieve.discovery.selector import Selector, WeightSelector
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, minimise, upper
from dpsieve.noise.report_tables import MOST_ROWS, ReportingTable
from dpsieve.privacy.certificate import Certificate, Part, whole_unit
from dpsieve.privacy.contribution import Weight
from dpsieve.privacy.registry import register
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Floats, Ints

_SAVED = "Pass the saved one."
_ORDERS = 8  # at which costs are stated; computing one takes as long as a certificate
_MOST_BITS = 12
_ROUGH, _ROUGH_ROWS = 5, 1500  # the search works with this number of weights, and tables about this long
_GUESS, _RATIO, _WAY = 1.2, 1.25, 8  # of the power, in units of ln(1/delta) / epsilon, and steps to either side
_WORK, _SOLVE = 2_000_000, 60  # how many steps a table may take; finding a row costs as much as 60 of them
_FINE, _COARSE = 100, 3  # a light weight need not be above the first, and should not be below the second
_MANY = 20  # a unit with this number of times the least keys has a light weight
_R = TypeVar("_R", bound="RenyiSelector")


def renyi_selection(
    epsilon: float,
    delta: float,
    max_keys: int,
    *,
    typical_keys: float | None = None,
    share: float = 1.0,
    power: float | None = None,
    lower: float = 1.0,
    unit: str = "one row",
) -> "RenyiSelection":
    """Return the selector that needs the fewest units behind a key where units hold several keys.

    Args:
        epsilon, delta: what is promised to one unit.
        max_keys: how many keys a unit keeps.
        typical_keys: how many keys a typical unit has, such as their median: a public number. Units with fewer keys
            weigh as if they had this number, which lets all others reach further.
        share: the part of a unit's weight that selection has; the rest is left for a mechanism that follows.
        power: of the account; chosen here where it is left out.
        lower: a factor for the power that is chosen, below one where what follows has a longer tail than noise.
        unit: who is protected, in words.

    >>> chosen = renyi_selection(1.0, 1e-5, 10, typical_keys=10)
    >>> round(chosen.users_needed(10), 1)  # this number of units with ten keys each give an even chance
    37.6
    """
    epsilon, delta = check_budget(epsilon, delta)
    max_keys = check_max_keys(max_keys)
    least = min(max_keys, round(checked_typical(typical_keys)))

    def make(least: int) -> RenyiSelection:
        lightest = 1 / math.sqrt(max(max_keys, least))
        chosen, half = chosen_power(epsilon, delta, share, 0.0, lightest, least, power)
        if absent(epsilon, chosen * lower) < delta / 4:
            chosen *= lower
        bits, limits = finest_bits(half, least, max_keys, every=False), split(chosen, delta, 0.0)
        return RenyiSelection(epsilon, delta, max_keys, chosen, *limits, share, bits, least, unit=unit)

    return fitting(make, least)


def fitting(make: Callable[[int], _R], least: int) -> _R:
    """Return what is made for `least`, or for less where a grid of such light weights would need too long a table.

    That is so for tiny epsilons, where keys need hundreds of thousands of units.
    """
    while True:
        try:
            selector = make(least)
            selector.table  # noqa: B018  # refuses to be too long
        except InvalidValue:
            if least == 1:
                raise
            least = max(1, least // 4)
        else:
            return selector


def checked_typical(typical_keys: float | None) -> float:
    """Return how many keys a typical unit has; one where nothing is known."""
    hint = "Pass how many keys a typical unit has, such as typical_keys=8."
    return 1.0 if typical_keys is None else validate.between("typical_keys", typical_keys, 1, 10_000, hint=hint)


def chosen_power(
    epsilon: float, delta: float, share: float, mu: float, lightest: float, least: int, power: float | None
) -> tuple[float, float]:
    """Return the power of the account and about the sum of weights, in units of 2^bits, with an even chance."""
    hint = "Pass the part of a unit's weight for selection, such as share=0.5."
    share, heaviest = validate.between("share", share, 0.001, 1.0, hint=hint), 1 / math.sqrt(least)
    if power is None:
        return best_power(epsilon, delta, share, mu, lightest, heaviest)
    power = validate.between("power", power, 1e-3, 1e9, hint="Pass the power of the account, such as power=13.")
    if absent(epsilon, power) >= split(power, delta, mu, share)[1]:
        raise InvalidValue(
            f"power={power:.4g} leaves nothing at epsilon={epsilon:.4g} and delta={delta:.4g}. Raise it."
        )
    return power, 2 * math.log(1 / delta) / epsilon


@lru_cache(maxsize=64)
def best_power(
    epsilon: float, delta: float, share: float, mu: float, lightest: float, heaviest: float
) -> tuple[float, float]:
    """Return a good power for weights from `lightest` to `heaviest`, and the sum that is reported half of the time.

    Selection has this share of the budget, after a first stage of distance mu. Every power is sound; the search
    minimises the sum that is reported half of the time, on a rough grid, over the distance that is left for noise which
    follows, to the power of its share. A smaller epsilon has nearly the same best
    power in units of 1/epsilon, and only longer tables.
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
        rest = split(math.exp(x), delta, mu, share)[1]
        left = largest_mu(rest, 1 - share, epsilon, math.exp(x)) if share < 1 else 1.0
        return half(x) / math.pow(left, 1 - share)

    guess, step = math.log(_GUESS * (1 + math.log(1 / delta)) / epsilon), math.log(_RATIO)
    start, least = 0, score(guess)
    for way in (1, -1):  # downhill
        i = start + way
        while abs(i) <= _WAY and ((found := score(guess + i * step)) < least or math.isinf(least)):
            start, least, i = i, found, i + way
    near = guess + start * step
    x = minimise(score, near - step, near + step, rounds=6)
    if math.isinf(found := half(x)):
        budget = f"epsilon={epsilon:.4g} and delta={delta:.4g}"
        raise InvalidValue(f"share={share:.4g} leaves too little at {budget}. Raise one of them.")
    return math.exp(x), found


def finest_bits(half: float, least: int, max_keys: int, *, every: bool) -> int:
    """Return a grid on which rounding weights costs little and whose table is made in well under a second.

    The table is for steps of every size, or for those alone that whole units of up to `max_keys` keys make.
    """
    for bits in range(1, _MOST_BITS):
        weights = Weight(bits + 1, least).of_keys(max_keys)
        lightest = weights[min(max_keys, _MANY * least) - 1]
        rows = 2 * half * 2 ** (bits + 1)
        work = rows * (_SOLVE + (weights[0] if every else len(set(weights))))
        if lightest >= 2 * _FINE or (lightest >= 2 * _COARSE and work > _WORK) or rows > MOST_ROWS / 2:
            return bits
    return _MOST_BITS


@dataclass(frozen=True, repr=False)
class RenyiSelector(Selector):
    """A selector by a table of coins, whose cost for one unit is that of a product with weights.

    Attributes:
        power: of the account; see `privacy.stages`.
        leak, rest: the largest leak, and the largest B, of a step of the table.
        share: the part of a unit's weight that selection has; what follows may have the rest.
        bits: weights are whole numbers in units of 2^-bits.
        least: no weight is above 1 / sqrt(least).
    """

    power: float
    leak: float
    rest: float
    share: float
    bits: int
    least: int

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = {name: validate.positive(name, getattr(self, name), hint=_SAVED) for name in ("leak", "rest")}
        power = validate.between("power", self.power, 1e-3, 1e9, hint=_SAVED)
        share = validate.between("share", self.share, 0.001, 1.0, hint=_SAVED)
        bits = validate.whole("bits", self.bits, low=1, high=_MOST_BITS, hint=_SAVED)
        least = validate.whole("least", self.least, low=1, high=10_000, hint=_SAVED)
        self._set(**numbers, power=power, share=share, bits=bits, least=least)
        if not self.heaviest:
            raise InvalidValue(f"bits={bits} leaves no weight for least={least}. Pass the saved ones.")

    def _check_cost(self) -> None:
        if self.cost > self.delta or absent(self.epsilon, self.power) > self.rest:
            raise InvalidValue("power, leak and rest do not keep epsilon and delta. Pass those that were saved.")

    @property
    def heaviest(self) -> int:
        """The largest weight."""
        return Weight(self.bits, self.least).of_keys(1)[0]

    @property
    def look_mu(self) -> float:
        """The distance, in deviations, by which a unit moves noise that was drawn before the coins; most draw none."""
        return 0.0

    @property
    def cost(self) -> float:
        """The delta of one unit at epsilon, rounded up."""
        return exposure(self.power, self.leak, self.rest, self.look_mu, self.share)

    @property
    def steepness(self) -> float:
        """At epsilon - t delta is at most e^(power t) times as large."""
        return self.power

    @property
    @abstractmethod
    def steps(self) -> tuple[int, ...]:
        """All weights that a unit may add to a key."""

    @property
    def promise(self) -> Promise:
        """What the table of reporting probabilities must keep."""
        return Promise(self.epsilon, self.power, self.leak, self.rest, self.share, self.bits, self.steps)

    @cached_property
    def table(self) -> ReportingTable:
        """The reporting probability of each sum of weights."""
        return reporting_table(self.promise)

    def spends(self) -> tuple[Spend, ...]:
        """Return what a unit costs at some Renyi orders, and what it may leak."""
        return self._spent

    @cached_property
    def _spent(self) -> tuple[Spend, ...]:
        orders, leak = spread_orders(self.power + 1, _ORDERS), upper(lambda: ball(self.leak) * ball(self.share))
        rho = upper(lambda: ball(self.look_mu) ** 2 / 2)

        def tau(order: float, coins: float) -> float:
            return upper(lambda: ball(coins) + ball(order) * ball(rho))

        return Renyi(
            orders, map(tau, orders, self.table.taus(orders, leak, bits=self.bits, steps=self.steps))
        ), Approximate(0.0, leak)

    @property
    @abstractmethod
    def covers(self) -> str:
        """What adds up to the cost of a unit, in words."""

    def certify(self) -> Certificate:
        """Return the certificate, after checking the integers that are drawn from; raise NotCertified if one is off."""
        return self._certificate

    @cached_property
    def _certificate(self) -> Certificate:
        self.promise.check(self.table)
        # Of one key of the largest weight; all other weight is that of keys that are not there.
        part = self.share * self.heaviest**2 / 4**self.bits * (1 + 1e-12)
        nobody = absent(self.epsilon, self.power)
        missing = exposure(self.power, nobody / 1000, nobody, self.look_mu)
        each = min(self.cost, part * exposure(self.power, self.leak, self.rest, self.look_mu) + missing)
        rows = f"{self.table.last:,} rows of reporting probabilities, {len(self.steps):,} steps to each"
        one_key = Part("one key", "formula", rows, self.epsilon, each, each)
        return Certificate(self.guarantee, (one_key, whole_unit(self.guarantee, self.cost, "formula", self.covers)))


@register("renyi")
@dataclass(frozen=True, repr=False)
class RenyiSelection(RenyiSelector, WeightSelector):
    """See `renyi_selection`, and the head of this module for the proof."""

    @property
    def weight(self) -> Weight:
        """What a unit adds to each of its keys."""
        return Weight(self.bits, self.least)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_cost()

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The weights of units of 1 to `max_keys` keys."""
        return tuple(sorted({step for step in self.weight.of_keys(self.max_keys) if step}))

    @property
    def covers(self) -> str:
        """What adds up to the cost of a unit, in words."""
        return f"units of at most {self.max_keys:,} keys whose squared weights sum to {self.share:.4g}"

    def select_by_weights(self, weights: Ints, source: Source) -> Bools:
        """Return which keys are published, given the sum of weights of each."""
        return self.table.select(weights, source)

    def reporting_probability(self, weights: ArrayLike) -> Floats:
        """Return how likely keys with these sums of weights are published; sums are in units of 2^-bits."""
        sums = validate.integers("weights", weights, hint="Pass sums of weights, whole numbers from 0 on.")
        return self.table.probability(np.asarray(sums, np.int64))

    def users_needed(self, keys: int, probability: float = 0.5) -> float:
        """Return how many units with this number of keys each publish a key with this probability."""
        keys = validate.whole("keys", keys, low=1, high=self.max_keys, hint="Pass how many keys a unit has.")
        hint = "Pass a probability below one, such as 0.5."
        wanted = validate.between("probability", probability, 1e-12, 1 - 1e-12, hint=hint)
        weight = self.weight.of_keys(keys)[-1]
        return self.table.crossing(wanted, weight) if weight else math.inf
