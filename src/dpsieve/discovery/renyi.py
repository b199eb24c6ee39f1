"""Selection by coins: a key is published with a probability that depends on its sum of weights, without any noise.

**One round.** A unit that keeps d keys adds the weight w = 2^bits / sqrt(max(d, least)), rounded down, to each of them.
A key with the sum h is published with probability p(h), independently of the others. p is the largest function for
which every step from p(h - w) to p(h) keeps the promise of `discovery.renyi_tables`: p(0) = 0, and each p(h) is limited
by all steps to it.

Proof of privacy. Neighbours differ by one unit; it changes the coin of each of its keys by one step and no other coin.
Coins are independent, so neighbours are a product of pairs whose weights u = w / 2^bits have squares that sum to at
most one, and rounding a weight down only lowers that sum. Whatever the sums of other units are, each pair is a step of
the table. So `accounting.products` bounds delta by the exposure of leak and rest: delta itself if nothing precedes.
With a share below one, a mechanism that follows may have the rest of the weight.

**Two rounds.** Round one adds Gaussian noise of standard deviation sigma, rounded to integers, to the sum of weights of
every key, with the weights above. It is not published. In round two each unit redistributes its weight: none for keys
that looked hopeless, less for keys that looked safe. A key is then published with the probability p(h) of its sum h of
round two.

Proof of privacy. Round one: one unit moves the vector of the sums of all keys of the universe by at most 2^bits in l2
norm. Sums are integers, so rounding the noise is rounding the noisy sum: post-processing of a Gaussian mechanism of
distance mu = 2^bits / sigma. The noise of keys that nobody holds affects nobody, so it need not be drawn. Round two,
given any outcome of round one: what a unit adds depends only on its own keys and that outcome, so one more unit changes
the coins of its own keys and no other, each by a step w of at most `heaviest`, and its w^2 sum to at most 4^bits. The
table allows every integer step, so this is stage two of `accounting.products` after a stage one of distance mu, and
delta is at most the exposure of leak and rest. Dropping the outcome of round one is post-processing. So the guarantee
covers the noisy sums of round one too, if a later step uses them.

References: D. Desfontaines, J. Voss, B. Gipson and C. Mandayam, "Differentially private partition selection", PoPETs
2022, for one key per unit; `accounting.products` for the account.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.accounting.curves import gaussian_sigma, spread_orders
from dpsieve.accounting.products import absent, exposure, split
from dpsieve.accounting.spends import Approximate, Renyi, Spend
from dpsieve.codec import register
from dpsieve.discovery.renyi_tables import MOST_BITS, Promise, best_power, finest_bits, reporting_table
from dpsieve.discovery.selector import Selector, WeightSelector
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, upper
from dpsieve.noise.report_tables import ReportingTable
from dpsieve.privacy.certificate import Certificate, Part, whole_unit
from dpsieve.privacy.guarantee import Weight
from dpsieve.randomness import rounded_gaussian
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Floats, Ints
from dpsieve.validate import check_budget, check_max_keys

_SAVED = "Pass the saved one."
_ORDERS = 8  # at which costs are stated; computing one takes as long as a certificate
_FIRST = 0.1  # the part of round one in 1/sigma^2 of a Gaussian mechanism of the same share, epsilon and delta
_FEWER = 28  # from experiments with real and synthetic sets of 3 to 34 keys per unit
_FULL = 1000  # the largest importance
_ALMOST_SURE = 0.8
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
    """Return the selector that needs the fewest units per key where units hold several keys.

    Args:
        epsilon, delta: the guarantee of one unit.
        max_keys: the number of keys that a unit keeps.
        typical_keys: the typical number of keys per unit, such as the median: a public number. Units with fewer keys
            weigh as if they had this number, so all other units count more.
        share: the part of a unit's weight for selection; the rest is left for a mechanism that follows.
        power: of the account; chosen by default.
        lower: a factor for the chosen power, below one if what follows has a longer tail than noise.
        unit: the protected unit, as text.

    >>> chosen = renyi_selection(1.0, 1e-5, 10, typical_keys=10)
    >>> round(chosen.users_needed(10), 1)  # units with ten keys each, for a probability of one half
    37.6
    """
    epsilon, delta = check_budget(epsilon, delta)
    max_keys = check_max_keys(max_keys)
    least = min(max_keys, round(check_typical_keys(typical_keys)))

    def make(least: int) -> RenyiSelection:
        lightest = 1 / math.sqrt(max(max_keys, least))
        chosen, half = choose_power(epsilon, delta, share, 0.0, lightest, least, power)
        if absent(epsilon, chosen * lower) < delta / 4:
            chosen *= lower
        bits, limits = finest_bits(half, least, max_keys, every=False), split(chosen, delta, 0.0)
        return RenyiSelection(epsilon, delta, max_keys, chosen, *limits, share, bits, least, unit=unit)

    return make_shorter(make, least)


def two_rounds(
    epsilon: float,
    delta: float,
    max_keys: int,
    *,
    typical_keys: float | None = None,
    share: float = 1.0,
    power: float | None = None,
    unit: str = "one row",
) -> "TwoRounds":
    """Return the selector that publishes most keys where units hold 2 to 15 keys; arguments as `renyi_selection`.

    It reads all units twice, so it needs an engine that reads units.

    >>> two_rounds(1.0, 1e-5, 100, typical_keys=8)
    <renyi_two_rounds selector of at most 100 keys per unit, (1, 1e-05)-differential privacy when ...>
    """
    epsilon, delta = check_budget(epsilon, delta)
    max_keys = check_max_keys(max_keys)
    typical = min(max_keys, check_typical_keys(typical_keys))
    # In round two fewer keys of a unit matter, so its weights may be larger than in one round.
    least = max(1, round(min(typical, typical**2 / _FEWER)))

    def make(least: int) -> TwoRounds:
        mu = (_FIRST * share) ** 0.5 / gaussian_sigma(epsilon, delta)
        chosen, half = choose_power(epsilon, delta, share, mu, 0.0, least, power)
        bits = finest_bits(half, least, max_keys, every=True)
        sigma = 2**bits / mu * (1 + 1e-12)
        limits = split(chosen, delta, mu, share)
        return TwoRounds(epsilon, delta, max_keys, chosen, *limits, share, bits, least, sigma, unit=unit)

    return make_shorter(make, least)


def make_shorter(make: Callable[[int], _R], least: int) -> _R:
    """Return the selector for `least`, or for less where a grid of such light weights would need too long a table.

    That happens for tiny epsilons, where keys need hundreds of thousands of units.
    """
    while True:
        try:
            selector = make(least)
            selector.table  # noqa: B018  # raises if it is too long
        except InvalidValue:
            if least == 1:
                raise
            least = max(1, least // 4)
        else:
            return selector


def check_typical_keys(typical_keys: float | None) -> float:
    """Return the typical number of keys per unit; one if it is unknown."""
    hint = "Pass the typical number of keys per unit, such as typical_keys=8."
    return 1.0 if typical_keys is None else validate.between("typical_keys", typical_keys, 1, 10_000, hint=hint)


def choose_power(
    epsilon: float, delta: float, share: float, mu: float, lightest: float, least: int, power: float | None
) -> tuple[float, float]:
    """Return the power of the account, and roughly the sum, in units of 2^bits, that is reported half of the time."""
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


@dataclass(frozen=True, repr=False)
class RenyiSelector(Selector):
    """A selector by a table of coins; the cost of one unit is that of a weighted product.

    With a floor, the table sees the sum less `floor`, or 0 (`above_floor`). The coins of neighbours are then p(h) and
    p(max(0, h - w)), or nearer ones: steps that the table covers, whose weight is at most w.

    Attributes:
        power: of the account; see `accounting.products`.
        leak, rest: the largest leak, and the largest B, of a step of the table.
        share: the part of a unit's weight for selection; what follows may have the rest.
        bits: weights are integers in units of 2^-bits.
        least: no weight is above 1 / sqrt(least).
    """

    supports_floor = True

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
        bits = validate.whole("bits", self.bits, low=1, high=MOST_BITS, hint=_SAVED)
        least = validate.whole("least", self.least, low=1, high=10_000, hint=_SAVED)
        validate.store(self, **numbers, power=power, share=share, bits=bits, least=least)
        if not self.heaviest:
            raise InvalidValue(f"bits={bits} leaves no weight for least={least}. Pass the saved ones.")

    def _check_cost(self) -> None:
        if self.cost > self.delta or absent(self.epsilon, self.power) > self.rest:
            raise InvalidValue("power, leak and rest break epsilon and delta. Pass the saved ones.")

    @property
    def weight(self) -> Weight:
        """The weight that a unit adds to each of its keys; in a second round, if all are of the same importance."""
        return Weight(self.bits, self.least)

    @property
    def heaviest(self) -> int:
        """The largest weight."""
        return self.weight.of_keys(1)[0]

    @property
    def floor(self) -> int:
        """The largest sum of weights of fewer than `min_units` units."""
        return (self.min_units - 1) * self.heaviest

    @property
    def look_mu(self) -> float:
        """The distance, in deviations, by which a unit moves the noise of an earlier round; 0 without one."""
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
        """The promise that the table of reporting probabilities keeps."""
        return Promise(self.epsilon, self.power, self.leak, self.rest, self.share, self.bits, self.steps)

    @cached_property
    def table(self) -> ReportingTable:
        """The reporting probability of each sum of weights."""
        return reporting_table(self.promise)

    def users_needed(self, keys: int, probability: float = 0.5) -> float:
        """Return the number of units, with this number of keys each, that publish a key with this probability."""
        keys = validate.whole("keys", keys, low=1, high=self.max_keys, hint="Pass the number of keys per unit.")
        hint = "Pass a probability below one, such as 0.5."
        target = validate.between("probability", probability, 1e-12, 1 - 1e-12, hint=hint)
        weight = self.weight.of_keys(keys)[-1]
        return self.table.crossing(target, weight) + self.floor / weight if weight else math.inf

    def spends(self) -> tuple[Spend, ...]:
        """Return the cost of a unit at some Renyi orders, and its leak."""
        return self._spent

    @cached_property
    def _spent(self) -> tuple[Spend, ...]:
        orders, leak = spread_orders(self.power + 1, _ORDERS), upper(lambda: ball(self.leak) * ball(self.share))
        rho = upper(lambda: ball(self.look_mu) ** 2 / 2)

        def tau(order: float, coins: float) -> float:
            return upper(lambda: ball(coins) + ball(order) * ball(rho))

        return Renyi(
            orders, tuple(map(tau, orders, self.table.taus(orders, leak, bits=self.bits, steps=self.steps)))
        ), Approximate(0.0, leak)

    @property
    @abstractmethod
    def covers(self) -> str:
        """What the cost of a unit covers, as text."""

    def certify(self) -> Certificate:
        """Return the certificate, after checking all integers of the table; raise NotCertified if one is wrong."""
        return self._certificate

    @cached_property
    def _certificate(self) -> Certificate:
        self.promise.check(self.table)
        # One key of the largest weight; the remaining weight is that of absent keys.
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

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_cost()

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The weights of units of 1 to `max_keys` keys."""
        return tuple(sorted({step for step in self.weight.of_keys(self.max_keys) if step}))

    @property
    def covers(self) -> str:
        """What the cost of a unit covers, as text."""
        return f"units of at most {self.max_keys:,} keys whose squared weights sum to {self.share:.4g}"

    def select_by_weights(self, weights: Ints, source: Source) -> Bools:
        """Return which keys are published, given the sum of weights of each."""
        return self.table.select(self.above_floor(weights, self.heaviest), source)

    def reporting_probability(self, weights: ArrayLike) -> Floats:
        """Return the probability that keys with these sums of weights, in units of 2^-bits, are published."""
        sums = validate.integers("weights", weights, hint="Pass sums of weights, integers from 0 on.")
        return self.table.probability(self.above_floor(np.asarray(sums, np.int64), self.heaviest))


@register("renyi_two_rounds")
@dataclass(frozen=True, repr=False)
class TwoRounds(RenyiSelector):
    """See `two_rounds`, and the head of this module for the proof.

    Attributes:
        sigma: the standard deviation of the noise of round one, in units of 2^-bits.
    """

    sigma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.store(self, sigma=validate.between("sigma", self.sigma, 1.0, 1e9, hint="Pass the saved one."))
        self._check_cost()

    @cached_property
    def look_mu(self) -> float:
        """The distance, in deviations, by which a unit moves the noisy sums of round one, rounded up."""
        return upper(lambda: ball(2**self.bits) / ball(self.sigma))

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Every integer weight."""
        return tuple(range(1, self.heaviest + 1))

    @property
    def covers(self) -> str:
        """What the cost of a unit covers, as text."""
        first = f"rounded Gaussian noise of sigma {self.sigma:.4g} on all sums"
        return f"{first}, then units whose squared weights sum to {self.share:.4g}"

    def select(self, pairs: Pairs, source: Source) -> Bools:
        """Return which keys are published."""
        return self.select_and_rank(pairs, source)[0]

    def select_and_rank(self, pairs: Pairs, source: Source) -> tuple[Bools, Ints]:
        """Return which keys are published, and the noisy sums of all keys, which the guarantee covers too."""
        first = self.sums(pairs, np.ones(pairs.keys.num_rows, np.int64))
        noisy = first + rounded_gaussian(self.sigma, len(first), source=source)
        second = self.above_floor(self.sums(pairs, self.importance(noisy)), self.heaviest)
        return self.table.select(second, source), noisy

    def sums(self, pairs: Pairs, importance: Ints) -> Ints:
        """Return the sum of weights of each key if units divide their weight by importance."""
        from dpsieve.discovery.loops import add_weights

        longest = pairs.sizes.max(initial=0)

        def add(begin: int, stop: int, sums: Ints) -> None:
            starts, room = pairs.starts[begin : stop + 1], np.empty(longest, np.int64)
            add_weights(starts, pairs.key_numbers, importance, self.bits, self.heaviest, room, sums[0])

        return np.asarray(pairs.add_up(add)[0])

    def importance(self, noisy: Ints) -> Ints:
        """Return the importance, from 0 to 1,000, of keys with these noisy sums in round one.

        With X the sum that is published with probability 0.8, and s the deviation of the noise, it rises from 0 at
        -0.8 s to 1,000 at 0.5 s, and falls like 1 / sum from 0.3 X + s on, to no less than 30. A floor raises the rise
        by half of it, as weights of round two may be larger, and the fall by all. Every rule is private; this one
        performed well on baskets, places and lines of text.
        """
        low, high = (self.floor / 2 + part * self.sigma for part in (-0.8, 0.5))
        safe = 0.3 * self._almost_sure + self.sigma + self.floor
        rising = np.clip((noisy - low) / (high - low), 0.0, 1.0)
        falling = np.clip(safe / np.maximum(noisy, safe), 0.03, 1.0)
        return np.asarray(np.rint(_FULL * np.minimum(rising, falling)), np.int64)

    @cached_property
    def _almost_sure(self) -> int:
        return round(self.table.crossing(_ALMOST_SURE))
