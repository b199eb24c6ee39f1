"""Plans for several levels: which rate and threshold to use where a server asks a trie or a tree level by level.

There are three protocols, all with one threshold for every level:

* 'rounds': every client tosses a coin anew at each level. One client may answer at all of them, and the whole is the
  composition of L mechanisms, charged by the exact pairs of their rows (`federated.plans.round_pairs`).
* 'cohorts': every client draws one level, each with probability 1/L, and tosses its coin there only. The whole costs
  (epsilon, delta) once. Proof: fix the levels of all clients, which do not depend on their values. With one client
  more, the levels before its own are the same, its own is one sample-and-threshold histogram with one client more, and
  later levels depend on earlier outputs and on other clients' data alone: post-processing. So each choice of levels
  is (epsilon, delta)-private, and by convexity so is their mixture. Nothing else is used, so levels may be known
  to anyone. When a client replaces its value it keeps its level, and the same argument leaves one histogram in which
  one client is replaced: so the promise under 'replace' is that of one histogram under 'replace', once. (Lemma 7 of
  Bharadwaj and Cormode, AISTATS 2022, charges L times.)
* 'one_round': the last level only, in one histogram. The least privacy cost, but the server sees rare strings in full.
"""

import math
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from functools import cached_property, lru_cache
from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.binomial.rows import SMALLEST_RATE, BinomialRows, checked_rate, checked_threshold, exact_delta
from dpsieve.channels.channel import Channel, checked_frequencies
from dpsieve.errors import InvalidValue
from dpsieve.exact.binomial import at_least
from dpsieve.exact.search import first_whole
from dpsieve.federated.client.questions import PROTOCOLS, Protocol, checked_protocol
from dpsieve.federated.client.strings import MOST_LEVELS
from dpsieve.federated.plans.composed_rounds import rough_rounds_delta, rounds_delta
from dpsieve.federated.plans.histogram_plan import last_rate, plan, rounded_down
from dpsieve.privacy import Certificate, Guarantee
from dpsieve.privacy.certificate import Method, formula
from dpsieve.privacy.curves.gaussian import positive_delta
from dpsieve.privacy.registry import register
from dpsieve.types import Floats
from dpsieve.validate import Neighbours

_HIGHEST = 1 << 14  # thresholds that a search tries
_UP = Context(prec=8, rounding=ROUND_CEILING)
_ULP = 2.0**-52
_NEVER = 1 << 80  # clients; threshold / rate is below it


@register("levels")
@dataclass(frozen=True, repr=False)
class LevelPlan(Channel):
    """What is asked at every level, what the whole costs, and how the sampled counts are read.

    As a channel it is that of one level: a node that i clients share has a token X ~ Binomial(i, rate) there, reported
    if X reaches the threshold. Its guarantee, `delta` and certificate are those of all levels together.

    Attributes:
        protocol: 'rounds', 'cohorts' or 'one_round'.
        levels: how many levels there are.
        coin: the probability with which a client answers a question that is put to it.
        threshold: the least sampled count that is reported.
        epsilon, delta_, neighbours, unit: what all levels together promise.
    """

    protocol: Protocol
    levels: int
    coin: float
    threshold: int
    neighbours: Neighbours = "add_remove"
    unit: str = field(default="one client", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_protocol(self.protocol)
        levels = validate.whole("levels", self.levels, low=1, high=MOST_LEVELS, hint="Pass how many levels there are.")
        self._set(levels=levels, coin=checked_rate(self.coin), threshold=checked_threshold(self.threshold))

    @cached_property
    def guarantee(self) -> Guarantee:
        """What all levels together promise."""
        return Guarantee(self.epsilon, self.delta_, self.neighbours, self.unit)

    @property
    def rate(self) -> float:
        """The share of all clients that answer at one level: coin, or coin / levels with cohorts."""
        return self.coin / self.levels if self.protocol == "cohorts" else self.coin

    @cached_property
    def rows(self) -> BinomialRows:
        """The rows of one level."""
        return BinomialRows(self.rate, self.threshold)

    def __repr__(self) -> str:
        each = {"rounds": "each client at every level", "cohorts": "each client at one level", "one_round": "once"}
        asked = each[self.protocol]
        return f"<{self.levels} levels, {asked}, coin={self.coin:g}, threshold={self.threshold}, {self.guarantee}>"

    @property
    def reports(self) -> float:
        """How many reports a client is expected to send, at most."""
        return self.coin * (self.levels if self.protocol == "rounds" else 1)

    @cached_property
    def half(self) -> int:
        """The lowest frequency at which a string is found half of the time, if it shares its prefixes with no other.

        For tiny rates it may be above 10^12, more clients than any count can have.
        """
        return first_whole(lambda count: bool(self._found(count) >= 0.5), self.threshold, _NEVER)

    def found(self, frequencies: ArrayLike) -> Floats:
        """Return, for each frequency, the probability that a string which shares no prefix survives all levels.

        Exact but for cohorts: there the counts of the levels are parts of one multinomial, and the answer, their
        product, is a little above the exact one.
        """
        return self._found(checked_frequencies(frequencies))

    def _found(self, frequencies: ArrayLike) -> Floats:
        return at_least(frequencies, self.threshold, self.rate) ** self.levels

    def delta(self, epsilon: float, neighbours: str = "add_remove") -> float:
        """Return a delta at which all levels together are (epsilon, delta)-private: the least that is known."""
        epsilon, relation = validate.epsilon(epsilon), validate.neighbours(neighbours)
        return _delta(self.protocol, self.levels, epsilon, self.coin, self.threshold, relation)

    @cached_property
    def _certificate(self) -> Certificate:
        each = {
            "rounds": f"the composed rows of {self.levels} sampled histograms with a threshold",
            "cohorts": "the exact divergence of one sampled histogram with a threshold, one level for each client",
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
    """What may be chosen about a plan; see `level_plan`."""

    protocol: Protocol
    coin: float | None
    threshold: int | None
    neighbours: Neighbours
    unit: str


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
) -> LevelPlan:
    """Return the plan that finds the rarest strings within (epsilon, delta), for a number of levels and a protocol.

    Args:
        epsilon, delta: the budget of all levels together.
        levels: how many levels there are; with 'one_round' there is one.
        protocol: 'rounds', 'cohorts' or 'one_round'; see the head of this module.
        coin, threshold: to choose these instead; what they cost is checked.
        neighbours: 'add_remove' (one client more or less) or 'replace' (one client has another value).
        unit: who is protected, in words.

    >>> level_plan(1.0, 1e-8, 10).half, level_plan(1.0, 1e-8, 10, protocol="cohorts").half
    (131, 1075)
    """
    epsilon, delta = validate.positive_epsilon(epsilon), positive_delta(delta)
    relation, protocol = validate.neighbours(neighbours), checked_protocol(protocol)
    levels = validate.whole("levels", levels, low=1, high=MOST_LEVELS, hint="Pass how many levels there are.")
    if protocol != "rounds" or levels == 1:
        levels = 1 if protocol == "one_round" else levels
        found = plan(epsilon, delta, rate=coin, threshold=threshold, neighbours=relation, unit=unit)
        kept = found.guarantee
        return LevelPlan(kept.epsilon, kept.delta, protocol, levels, found.rate, found.threshold, relation, unit=unit)
    search = _Search(epsilon, delta, levels, relation)
    if coin is not None and threshold is not None:
        coin, threshold = checked_rate(coin), checked_threshold(threshold)
    elif coin is not None:
        coin, threshold = search.smallest_threshold(checked_rate(coin))
    elif threshold is not None:
        coin, threshold = search.largest_coin(checked_threshold(threshold))
    else:
        coin, threshold = _best(epsilon, delta, levels, relation)
    made = LevelPlan(epsilon, delta, protocol, levels, coin, threshold, relation, unit=unit)
    made.certify()
    return made


def compare(
    epsilon: float, delta: float, *, max_length: int, step: int = 1, neighbours: Neighbours = "add_remove"
) -> Comparison:
    """Return the plans of the three protocols for heavy strings of up to max_length symbols, `step` of them a level.

    Nothing but these public numbers is used, and nothing is spent.

    >>> print(compare(1.0, 1e-8, max_length=10))
    (1, 1e-08)-differential privacy when one client is added or removed.
    protocol   levels    rate  threshold  found half of the time at
    ...
    """
    levels = levels_of(max_length, step)
    return Comparison(*(level_plan(epsilon, delta, levels, protocol=p, neighbours=neighbours) for p in PROTOCOLS))


def levels_of(max_length: int, step: int) -> int:
    """Return how many levels strings of up to max_length symbols have, with `step` symbols a level."""
    hint = "Pass how long strings may be, such as max_length=20."
    length = validate.whole("max_length", max_length, low=1, high=MOST_LEVELS, hint=hint)
    step = validate.whole("step", step, low=1, high=length, hint="Pass how many symbols a level adds, such as step=1.")
    return -(-length // step)


def _delta(
    protocol: Protocol, levels: int, epsilon: float, coin: float, threshold: int, neighbours: Neighbours
) -> float:
    if protocol != "rounds" or levels == 1:
        return exact_delta(epsilon, coin, threshold, neighbours)
    found = rounds_delta(epsilon, coin, threshold, levels, neighbours)
    return min(1.0, float(_UP.create_decimal(max(found, 1e-300))))


class _Search:
    """Looks along the curve of (coin, threshold) that just keep a promise in several rounds.

    As for one round, neither a higher threshold nor a lower coin raises delta: both are post-processing of each round.
    """

    def __init__(self, epsilon: float, delta: float, levels: int, neighbours: Neighbours) -> None:
        self._epsilon, self._delta, self._levels, self._neighbours = epsilon, delta, levels, neighbours
        self._near: float = levels**-0.25

    def smallest_threshold(self, coin: float) -> tuple[float, int]:
        """Return the coin, and the smallest threshold for it."""
        enough = first_whole(lambda threshold: self._roughly(coin, threshold) <= 0, 1, _HIGHEST + 1)
        if enough > _HIGHEST:
            raise InvalidValue(f"coin={coin:g} needs a huge threshold. Pass a lower one, or a larger budget.")
        while self._excess(coin, enough) > 0:
            enough += 1
        while enough > 1 and self._excess(coin, enough - 1) <= 0:
            enough -= 1
        return coin, enough

    def largest_coin(self, threshold: int) -> tuple[float, int]:
        """Return the largest coin for a threshold, to about half a percent of it, and the threshold."""
        near = self._crossing(threshold)
        found = last_rate(lambda coin: self._excess(rounded_down(coin, 4), threshold), near, threshold, 0.005)
        coin = rounded_down(found, 4)
        if coin <= 2 * SMALLEST_RATE:
            raise InvalidValue(f"threshold={threshold} is too low for any coin of use. Pass a higher one.")
        return coin, threshold

    def best(self) -> tuple[float, int]:
        """Return the coin and the threshold for which about threshold / coin is least."""
        one = plan(self._epsilon, self._delta)
        self._near *= one.rate
        grid = np.geomspace(max(one.threshold * 0.5, 2), 4 * one.threshold + 8, 8)
        costs: dict[int, float] = {}
        for _ in range(3):
            for t in np.unique(np.rint(grid).astype(int)).tolist():
                if t not in costs:
                    costs[t] = self._needed(t) / self._crossing(t)
            order = sorted(costs)
            place = order.index(min(order, key=costs.__getitem__))
            grid = np.linspace(order[max(place - 1, 0)], order[min(place + 1, len(order) - 1)], 5)
        return self.largest_coin(min(costs, key=costs.__getitem__))

    def _needed(self, threshold: int) -> float:
        """Return about the mean of a sampled count that reaches the threshold at every level half of the time."""
        from scipy.special import gammainccinv

        return float(gammainccinv(threshold, 1 - 0.5 ** (1 / self._levels)))

    def _crossing(self, threshold: int) -> float:
        """Return about the largest coin for a threshold; that of one threshold is near that of the next."""
        self._near = last_rate(lambda coin: self._roughly(coin, threshold), self._near, threshold, 0.01)
        return self._near

    def _excess(self, coin: float, threshold: int) -> float:
        """Return the logarithm of delta over the promised one, above zero exactly if it is larger."""
        return self._over(_delta("rounds", self._levels, self._epsilon, coin, threshold, self._neighbours))

    def _roughly(self, coin: float, threshold: int) -> float:
        """Return about the same, in a tenth of the time."""
        return self._over(rough_rounds_delta(self._epsilon, coin, threshold, self._levels, self._neighbours))

    def _over(self, delta: float) -> float:
        found = math.log(max(delta, 1e-300) / self._delta)
        return max(found, _ULP) if delta > self._delta else found


@lru_cache(maxsize=256)
def _best(epsilon: float, delta: float, levels: int, neighbours: Neighbours) -> tuple[float, int]:
    return _Search(epsilon, delta, levels, neighbours).best()
