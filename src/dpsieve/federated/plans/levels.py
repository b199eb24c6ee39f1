"""Plans for several levels: the rate and the threshold where a server asks a trie or a tree level by level.

There are three protocols, all with one threshold for every level:

* 'rounds': every client tosses a new coin at each level; the whole is a composition (`federated.plans.rounds`). A trie
  is `pruned`: it asks a client only while the prefixes of its string survive, and is charged for these questions only.
* 'cohorts': every client draws one level, each with probability 1/L, and tosses its coin there only. The whole costs
  (epsilon, delta) once, and less with `secret_levels`. A level that depends on the value is never covered.
* 'one_round': the last level only, in one histogram. The least privacy cost, but the server sees rare strings in full.

Proof: docs/background/federated.md#cohorts-and-secret-levels.
"""

import math
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from functools import cached_property, lru_cache
from typing import Annotated, NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.accounting.curves import positive_delta
from dpsieve.channels.channel import ReportedCounts
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.federated.client.questions import PROTOCOLS, Protocol
from dpsieve.federated.client.strings import MOST_LEVELS
from dpsieve.federated.plans.histogram import Search, half_frequency, least_costly, plan
from dpsieve.federated.plans.rounds import rounds_delta
from dpsieve.noise.sample_threshold import BinomialLaw, check_rate, check_threshold, rounded_delta
from dpsieve.noise.sample_threshold_delta import add_remove
from dpsieve.privacy.certificate import Certificate, Method, formula
from dpsieve.types import Floats
from dpsieve.validate import Neighbours, Relation, is_choice, is_whole

_HIGHEST = 1 << 14  # thresholds that a search tries
_UP = Context(prec=8, rounding=ROUND_CEILING)
_ULP = 2.0**-52
_check_levels = is_whole(1, MOST_LEVELS, "Pass how many levels there are.")


@register("levels")
@dataclass(frozen=True, repr=False)
class LevelPlan(ReportedCounts):
    """A collection by levels: what is asked at every level, its guarantee, and how the sampled counts are read.

    A node that i clients share has a token X ~ Binomial(i, rate) at its level, reported if X reaches the threshold:
    tokens are drawn and read by the rows of one level. Guarantee, `delta` and certificate are those of all levels
    together.

    Attributes:
        epsilon, delta_, neighbours, unit: the promise of all levels together.
        protocol: 'rounds', 'cohorts' or 'one_round'.
        levels: the number of levels.
        coin: the probability with which a client answers a question that it receives.
        threshold: the least sampled count that is reported.
        pruned: whether a client is asked only while all prefixes of its string survived, as by a trie.
        secret_levels: with 'cohorts', whether no reader of the release knows the level of any client.
    """

    unit: str = field(default="one client", kw_only=True)
    protocol: Annotated[Protocol, is_choice(*PROTOCOLS)]
    levels: Annotated[int, _check_levels]
    coin: Annotated[float, check_rate]
    threshold: Annotated[int, check_threshold]
    neighbours: Relation = "add_remove"
    pruned: Annotated[bool, is_choice(False, True)] = field(default=False, kw_only=True)
    secret_levels: Annotated[bool, is_choice(False, True)] = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_secrecy(self.protocol, self.secret_levels)

    @property
    def rate(self) -> float:
        """The share of all clients that answer at one level: coin, or coin / levels with cohorts."""
        return self.coin / self.levels if self.protocol == "cohorts" else self.coin

    @property
    def sampling_rate(self) -> float:
        return self.rate

    @cached_property
    def rows(self) -> BinomialLaw:
        return BinomialLaw(self.rate, self.threshold)

    def __repr__(self) -> str:
        each = {"rounds": "each client at every level", "cohorts": "each client at one level", "one_round": "once"}
        asked = each[self.protocol]
        return f"<{self.levels} levels, {asked}, coin={self.coin:g}, threshold={self.threshold}, {self.guarantee}>"

    @property
    def reports(self) -> float:
        """The largest expected number of reports of a client."""
        return self.coin * (self.levels if self.protocol == "rounds" else 1)

    @property
    def exposure(self) -> float:
        """The largest probability that a client sends any report: what a device's budget is charged."""
        return -math.expm1(math.log1p(-self.coin) * (self.levels if self.protocol == "rounds" else 1))

    @cached_property
    def half(self) -> int:
        """The lowest frequency at which a string is found half of the time, if it shares its prefixes with no other.

        For tiny rates it may be above 10^12, more clients than any count can have.
        """
        return half_frequency(self.rate, self.threshold, self.levels)

    def reporting_probability(self, frequencies: ArrayLike) -> Floats:
        """Return, for each frequency, the probability that a string which shares no prefix survives all levels.

        Exact except for cohorts: there the counts of the levels are parts of one multinomial, and the answer, their
        product, is slightly above the exact one.
        """
        return super().reporting_probability(frequencies) ** self.levels

    def delta(self, epsilon: float, neighbours: Neighbours = "add_remove") -> float:
        epsilon, relation = validate.epsilon(epsilon), validate.neighbours(neighbours)
        cost = _Cost(self.protocol, self.levels, self.pruned, self.secret_levels, epsilon, relation)
        return cost.delta(self.coin, self.threshold)

    @cached_property
    def _certificate(self) -> Certificate:
        each = {
            "rounds": f"the composed rows of {self.levels} sampled histograms with a threshold"
            f"{', each asked for what survived the one before' if self.pruned else ''}",
            "cohorts": "the exact divergence of one sampled histogram with a threshold, one "
            f"{'secret ' if self.secret_levels else ''}level for each client",
            "one_round": "the exact divergence of a sampled histogram with a threshold",
        }
        worst = self.delta(self.epsilon, self.neighbours)
        method: Method = "formula" if self.protocol == "rounds" and self.levels > 1 else "balls"
        return formula(self.guarantee, worst, method, each[self.protocol])


class Comparison(NamedTuple):
    """The three protocols side by side."""

    rounds: LevelPlan
    cohorts: LevelPlan
    one_round: LevelPlan

    def __str__(self) -> str:
        lines = [f"{self.one_round.guarantee}", "protocol   levels    rate  threshold  found half of the time at"]
        lines += [
            f"{p.protocol:<10} {p.levels:>6} {p.rate:>7.4f} {p.threshold:>10} {p.half:>18,} clients" for p in self
        ]
        return "\n".join(lines)


class LevelOptions(TypedDict, total=False):
    """Options of `level_plan`."""

    protocol: Protocol
    coin: float | None
    threshold: int | None
    neighbours: Neighbours
    unit: str
    secret_levels: bool


def level_plan(
    epsilon: float,
    delta: float,
    levels: int,
    *,
    protocol: Protocol = "rounds",
    coin: float | None = None,
    threshold: int | None = None,
    neighbours: Neighbours = "add_remove",
    unit: str = "one client",
    secret_levels: bool = False,
    pruned: bool = False,
) -> LevelPlan:
    """Return the plan that finds the rarest strings within (epsilon, delta).

    Args:
        epsilon, delta: the budget of all levels together.
        levels: the number of levels; 1 with 'one_round'.
        protocol: 'rounds', 'cohorts' or 'one_round'; see docs/background/federated.md#heavy-hitters-and-quantiles.
        coin, threshold: chosen values; their cost is checked.
        neighbours: 'add_remove' (one client more or less) or 'replace' (one client has another value).
        unit: who is protected, for the guarantee.
        secret_levels: with 'cohorts', True where no reader of the release can know at which level a client may
            answer: each draws its level itself, and silent clients send padded messages. It costs less.
        pruned: whether a client is asked only while all prefixes of its string survived, as by `TrieHeavyHitters` and
            `Quantiles`, which pass it themselves.

    >>> level_plan(1.0, 1e-8, 10).half, level_plan(1.0, 1e-8, 10, pruned=True).half
    (131, 118)
    >>> [level_plan(1.0, 1e-8, 10, protocol="cohorts", secret_levels=secret).half for secret in (False, True)]
    [1075, 590]
    """
    epsilon, delta = validate.positive_epsilon(epsilon), positive_delta(delta)
    relation, protocol = validate.neighbours(neighbours), validate.choice("protocol", protocol, PROTOCOLS)
    _check_secrecy(protocol, secret_levels)
    levels = _check_levels(levels, "levels")
    levels = 1 if protocol == "one_round" else levels
    cost = _Cost(protocol, levels, pruned, secret_levels, epsilon, relation)
    if cost.is_one_histogram:
        histogram = plan(epsilon, delta, rate=coin, threshold=threshold, neighbours=relation, unit=unit)
        coin, threshold = histogram.rate, histogram.threshold
        epsilon, delta = histogram.guarantee.epsilon, histogram.guarantee.delta
    if coin is not None and threshold is not None:
        coin, threshold = check_rate(coin), check_threshold(threshold)
    elif coin is not None:
        coin = check_rate(coin)
        threshold = _search(delta, cost).smallest_threshold(coin)
    elif threshold is not None:
        threshold = check_threshold(threshold)
        coin = _search(delta, cost).near_largest_rate(threshold, start=levels**-0.25)
    else:
        coin, threshold = _best(delta, cost)
    chosen = LevelPlan(
        epsilon, delta, protocol, levels, coin, threshold, relation,
        unit=unit, pruned=pruned, secret_levels=secret_levels,
    )  # fmt: skip
    chosen.certify()
    return chosen


def compare(
    epsilon: float, delta: float, *, max_length: int, step: int = 1, neighbours: Neighbours = "add_remove"
) -> Comparison:
    """Return the plans of the three protocols for strings of up to max_length symbols, `step` per level.

    >>> print(compare(1.0, 1e-8, max_length=10))
    (1, 1e-08)-differential privacy when one client is added or removed.
    protocol   levels    rate  threshold  found half of the time at
    ...
    """
    levels = count_levels(max_length, step)
    plans = (level_plan(epsilon, delta, levels, protocol=p, neighbours=neighbours, pruned=True) for p in PROTOCOLS)
    return Comparison(*plans)


def count_levels(max_length: int, step: int) -> int:
    """Return the number of levels of strings of up to max_length symbols, `step` per level."""
    hint = "Pass how long strings may be, such as max_length=20."
    length = validate.whole("max_length", max_length, low=1, high=MOST_LEVELS, hint=hint)
    step = validate.whole("step", step, low=1, high=length, hint="Pass how many symbols a level adds, such as step=1.")
    return -(-length // step)


def _check_secrecy(protocol: Protocol, secret_levels: bool) -> None:
    if validate.choice("secret_levels", secret_levels, (False, True)) and protocol != "cohorts":
        why = f"secret_levels belongs to 'cohorts', not to {protocol!r}"
        raise InvalidValue(f"{why}. Leave it out.", argument="secret_levels")


class _Cost(NamedTuple):
    """The cost of a protocol, for any coin and threshold."""

    protocol: Protocol
    levels: int
    pruned: bool
    secret_levels: bool
    epsilon: float
    neighbours: Neighbours

    @property
    def is_one_histogram(self) -> bool:
        """Whether all levels cost exactly what one histogram with the same coin does."""
        secret = self.secret_levels and self.neighbours == "add_remove"
        return self.levels == 1 or (self.protocol != "rounds" and not secret)

    def delta(self, coin: float, threshold: int) -> float:
        """Return a delta for all levels together, rounded up."""
        if self.protocol == "rounds" and self.levels > 1:
            return _round_up(rounds_delta(self.epsilon, coin, threshold, self.levels, self.neighbours, self.pruned))
        known = rounded_delta(self.epsilon, coin, threshold, self.neighbours)
        if self.is_one_histogram:
            return known
        return min(known, _round_up(secret_levels_delta(self.epsilon, coin, threshold, self.levels)))

    def rough(self, coin: float, threshold: int) -> float:
        """Return about the same, for rounds in a tenth of the time."""
        if self.protocol == "rounds":
            return rounds_delta(self.epsilon, coin, threshold, self.levels, self.neighbours, self.pruned, rough=True)
        return secret_levels_delta(self.epsilon, coin, threshold, self.levels)


def secret_levels_delta(epsilon: float, coin: float, threshold: int, levels: int) -> float:
    """Return a delta of cohorts for one client more or less, if levels are secret.

    Proof: docs/background/federated.md#cohorts-and-secret-levels.

    >>> round(secret_levels_delta(1.0, 0.3, 2, 2), 4), round(rounded_delta(1.0, 0.3, 2, "add_remove"), 4)
    (0.0529, 0.09)
    """
    share = coin / levels
    others = math.nextafter(share / (1 - coin + share) * (1 + 4 * _ULP), 1.0)  # delta grows with it
    return add_remove(epsilon, others, threshold, coin)[0]


def _round_up(delta: float) -> float:
    return min(1.0, float(_UP.create_decimal(max(delta, 1e-300))))


def _search(delta: float, cost: _Cost) -> Search:
    return Search(delta, cost.delta, cost.rough, _HIGHEST, name="coin")


@lru_cache(maxsize=256)
def _best(delta: float, cost: _Cost) -> tuple[float, int]:
    from scipy.special import gammainccinv

    search, once = _search(delta, cost), plan(cost.epsilon, delta)
    start = cost.levels**-0.25 * once.rate

    def clients_needed(threshold: int) -> float:
        nonlocal start
        start = search.rough_rate(threshold, start)  # rates of close thresholds are close
        # The mean of a sampled count that reaches the threshold at every level half of the time.
        return float(gammainccinv(threshold, 1 - 0.5 ** (1 / cost.levels))) / start

    grid = np.geomspace(max(once.threshold * 0.5, 2), 4 * once.threshold + 8, 8)
    threshold = least_costly(grid, clients_needed, points=5, passes=3)
    return search.near_largest_rate(threshold, start), threshold
