"""Plans for several levels: which rate and threshold to use where a server asks a trie or a tree level by level.

There are three protocols, all with one threshold for every level:

* 'rounds': every client tosses a coin anew at each level. One client may answer at all of them, and the whole is the
  composition of L mechanisms, charged by the exact pairs of their rows (`federated.plans.round_pairs`). A trie is
  `pruned`: it asks a client only while the prefixes of its string survive, and is charged for that alone.
* 'cohorts': every client draws one level, each with probability 1/L, and tosses its coin there only. The whole costs
  (epsilon, delta) once. Proof: fix the levels of all clients, which do not depend on their values. With one client
  more, the levels before its own are the same, its own is one sample-and-threshold histogram with one client more, and
  later levels depend on earlier outputs and on other clients' data alone: post-processing. So each choice of levels
  is (epsilon, delta)-private, and by convexity so is their mixture. Nothing else is used, so levels may be known
  to anyone. When a client replaces its value it keeps its level, and the same argument leaves one histogram in which
  one client is replaced: so the promise under 'replace' is that of one histogram under 'replace', once. (Lemma 7 of
  Bharadwaj and Cormode, AISTATS 2022, charges L times.)
  With `secret_levels`, who sees the release knows no client's level, and the others hide a client better. Proof: let p
  be the coin and r = (p/L) / (1 - p + p/L). By convexity, tell the level l of the one client, and then, of every other
  client, whether it reported at another level than l, and what. Nothing else at those levels depends on the client.
  The others each report at level l with probability r, on their own: of those who reported at no other level, a
  share of 1 - p is silent and p/L reports at l. So the client's cell there has k - 1 coins of r, against these and one
  of p: `channels.binomial.add_remove` has the exact delta of that, for the worst k. The smaller of both charges is
  taken; under 'replace' secret levels are charged as known ones. A level that depends on the value is never covered.
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
from dpsieve.channels.binomial.add_remove import add_remove
from dpsieve.channels.binomial.rows import SMALLEST_RATE, BinomialRows, checked_rate, checked_threshold, exact_delta
from dpsieve.channels.channel import Channel, checked_frequencies
from dpsieve.errors import InvalidType, InvalidValue
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
        pruned: whether a client is asked only while all prefixes of its string survived, as by a trie.
        secret_levels: with 'cohorts', whether nobody who sees the release knows the level of any client.
    """

    protocol: Protocol
    levels: int
    coin: float
    threshold: int
    neighbours: Neighbours = "add_remove"
    unit: str = field(default="one client", kw_only=True)
    pruned: bool = field(default=False, kw_only=True)
    secret_levels: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_secrecy(checked_protocol(self.protocol), self.secret_levels)
        if not isinstance(self.pruned, bool):
            raise InvalidType("pruned must be True or False. Pass True for a trie.")
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

    @property
    def exposure(self) -> float:
        """The probability that a client sends any report, at most: what a device's budget is charged."""
        return -math.expm1(math.log1p(-self.coin) * (self.levels if self.protocol == "rounds" else 1))

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
        return self._cost.delta(epsilon, self.coin, self.threshold, relation)

    @property
    def _cost(self) -> "_Cost":
        return _Cost(self.protocol, self.levels, self.pruned, self.secret_levels)

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
    """What may be chosen about a plan; see `level_plan`."""

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
    """Return the plan that finds the rarest strings within (epsilon, delta), for a number of levels and a protocol.

    Args:
        epsilon, delta: the budget of all levels together.
        levels: how many levels there are; with 'one_round' there is one.
        protocol: 'rounds', 'cohorts' or 'one_round'; see the head of this module.
        coin, threshold: to choose these instead; what they cost is checked.
        neighbours: 'add_remove' (one client more or less) or 'replace' (one client has another value).
        unit: who is protected, in words.
        secret_levels: with 'cohorts', True where nobody who sees the release can know at which level a client may
            answer: each draws its level itself, and silent clients send padded messages. It costs less.
        pruned: whether a client is asked only while all prefixes of its string survived, as by `TrieHeavyHitters` and
            `Quantiles`, which pass it themselves.

    >>> level_plan(1.0, 1e-8, 10).half, level_plan(1.0, 1e-8, 10, pruned=True).half
    (131, 118)
    >>> [level_plan(1.0, 1e-8, 10, protocol="cohorts", secret_levels=secret).half for secret in (False, True)]
    [1075, 590]
    """
    epsilon, delta = validate.positive_epsilon(epsilon), positive_delta(delta)
    relation, protocol = validate.neighbours(neighbours), checked_protocol(protocol)
    levels = validate.whole("levels", levels, low=1, high=MOST_LEVELS, hint="Pass how many levels there are.")
    _check_secrecy(protocol, secret_levels)
    levels = 1 if protocol == "one_round" else levels
    cost = _Cost(protocol, levels, pruned, secret_levels)
    if cost.is_one_histogram(relation):
        found = plan(epsilon, delta, rate=coin, threshold=threshold, neighbours=relation, unit=unit)
        coin, threshold = found.rate, found.threshold
        epsilon, delta = found.guarantee.epsilon, found.guarantee.delta
    search = _Search(epsilon, delta, relation, cost)
    if coin is not None and threshold is not None:
        coin, threshold = checked_rate(coin), checked_threshold(threshold)
    elif coin is not None:
        coin, threshold = search.smallest_threshold(checked_rate(coin))
    elif threshold is not None:
        coin, threshold = search.largest_coin(checked_threshold(threshold))
    else:
        coin, threshold = _best(epsilon, delta, relation, cost)
    made = LevelPlan(
        epsilon, delta, protocol, levels, coin, threshold, relation,
        unit=unit, pruned=pruned, secret_levels=secret_levels,
    )  # fmt: skip
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
    plans = (level_plan(epsilon, delta, levels, protocol=p, neighbours=neighbours, pruned=True) for p in PROTOCOLS)
    return Comparison(*plans)


def levels_of(max_length: int, step: int) -> int:
    """Return how many levels strings of up to max_length symbols have, with `step` symbols a level."""
    hint = "Pass how long strings may be, such as max_length=20."
    length = validate.whole("max_length", max_length, low=1, high=MOST_LEVELS, hint=hint)
    step = validate.whole("step", step, low=1, high=length, hint="Pass how many symbols a level adds, such as step=1.")
    return -(-length // step)


def _check_secrecy(protocol: Protocol, secret_levels: object) -> None:
    if not isinstance(secret_levels, bool):
        raise InvalidType("secret_levels must be True or False. Pass True where nobody knows the level of a client.")
    if secret_levels and protocol != "cohorts":
        raise InvalidValue(f"secret_levels belongs to 'cohorts', not to {protocol!r}. Leave it out.")


class _Cost(NamedTuple):
    """What the levels of a protocol cost, for any coin and threshold."""

    protocol: Protocol
    levels: int
    pruned: bool
    secret_levels: bool

    def is_one_histogram(self, neighbours: Neighbours) -> bool:
        """Return whether all levels cost exactly what one histogram with the same coin does."""
        secret = self.secret_levels and neighbours == "add_remove"
        return self.levels == 1 or (self.protocol != "rounds" and not secret)

    def delta(self, epsilon: float, coin: float, threshold: int, neighbours: Neighbours) -> float:
        """Return a delta for all levels together, rounded up."""
        if self.protocol == "rounds" and self.levels > 1:
            return _rounded_up(rounds_delta(epsilon, coin, threshold, self.levels, neighbours, self.pruned))
        known = exact_delta(epsilon, coin, threshold, neighbours)
        if self.is_one_histogram(neighbours):
            return known
        return min(known, _rounded_up(secret_levels_delta(epsilon, coin, threshold, self.levels)))

    def rough(self, epsilon: float, coin: float, threshold: int, neighbours: Neighbours) -> float:
        """Return about the same, for rounds in a tenth of the time."""
        if self.protocol == "rounds":
            return rough_rounds_delta(epsilon, coin, threshold, self.levels, neighbours, self.pruned)
        return secret_levels_delta(epsilon, coin, threshold, self.levels)


def secret_levels_delta(epsilon: float, coin: float, threshold: int, levels: int) -> float:
    """Return a delta of cohorts for one client more or less, if levels are secret; the head of this module proves it.

    >>> round(secret_levels_delta(1.0, 0.3, 2, 2), 4), round(exact_delta(1.0, 0.3, 2, "add_remove"), 4)  # secret, known
    (0.0529, 0.09)
    """
    share = coin / levels
    others = math.nextafter(share / (1 - coin + share) * (1 + 4 * _ULP), 1.0)  # delta grows with it
    return add_remove(epsilon, others, threshold, coin)[0]


def _rounded_up(delta: float) -> float:
    return min(1.0, float(_UP.create_decimal(max(delta, 1e-300))))


class _Search:
    """Looks along the curve of (coin, threshold) that just keep a promise at several levels.

    As for one round, neither a higher threshold nor a lower coin raises delta: both are post-processing of each round.
    For secret levels a lower coin also lowers the rate of the others, which is a mixture over fewer of them.
    """

    def __init__(self, epsilon: float, delta: float, neighbours: Neighbours, cost: _Cost) -> None:
        self._epsilon, self._delta, self._neighbours, self._cost = epsilon, delta, neighbours, cost
        self._near: float = cost.levels**-0.25

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

        return float(gammainccinv(threshold, 1 - 0.5 ** (1 / self._cost.levels)))

    def _crossing(self, threshold: int) -> float:
        """Return about the largest coin for a threshold; that of one threshold is near that of the next."""
        self._near = last_rate(lambda coin: self._roughly(coin, threshold), self._near, threshold, 0.01)
        return self._near

    def _excess(self, coin: float, threshold: int) -> float:
        """Return the logarithm of delta over the promised one, above zero exactly if it is larger."""
        return self._over(self._cost.delta(self._epsilon, coin, threshold, self._neighbours))

    def _roughly(self, coin: float, threshold: int) -> float:
        """Return about the same, in a tenth of the time."""
        return self._over(self._cost.rough(self._epsilon, coin, threshold, self._neighbours))

    def _over(self, delta: float) -> float:
        found = math.log(max(delta, 1e-300) / self._delta)
        return max(found, _ULP) if delta > self._delta else found


@lru_cache(maxsize=256)
def _best(epsilon: float, delta: float, neighbours: Neighbours, cost: _Cost) -> tuple[float, int]:
    return _Search(epsilon, delta, neighbours, cost).best()
