"""Plans for several levels: which rate and threshold to use where a trie or a tree of ranges is asked for by levels.

Three ways to ask, all with one threshold for every level:

* 'rounds': every client tosses a coin anew at each level. One client may answer at all of them, and the whole is the
  composition of L mechanisms, charged by their exact curve (`federated.composed_rounds`).
* 'cohorts': every client draws one level, each with probability 1/L, and tosses its coin there only. The whole costs
  (epsilon, delta) once. Proof: fix the levels of all clients, which do not depend on their values. With one client
  more, the levels before its own are the same, its own is one sample-and-threshold histogram with one client more, and
  later levels only ask what earlier outputs and other clients' data decide: post-processing. So each choice of levels
  is (epsilon, delta)-private, and by convexity so is their mixture. Nothing else is used, so levels may be known
  to anyone. When a client replaces its value it keeps its level, and the same argument leaves one histogram in which
  one client is replaced: so the promise under 'replace' is that of one histogram under 'replace', once. (Lemma 7 of
  Bharadwaj and Cormode, AISTATS 2022, charges L times.)
* 'one_round': the last level only, in one histogram. The least privacy cost, but the server sees rare strings in full.
"""

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, Context
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.channels.binomial.rows import (
    LARGEST_RATE,
    SMALLEST_RATE,
    SampleThreshold,
    checked_rate,
    checked_threshold,
    exact_delta,
)
from dpsieve.channels.channel import checked_frequencies
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.binomial import at_least
from dpsieve.federated.composed_rounds import rough_rounds_delta, rounds_delta
from dpsieve.federated.plan import plan
from dpsieve.privacy import Certificate, Guarantee
from dpsieve.privacy.certificate import by_formula
from dpsieve.privacy.curves.gaussian import positive_delta
from dpsieve.validate import Neighbours

Way = Literal["rounds", "cohorts", "one_round"]

MOST_LEVELS = 1000
_HIGHEST = 1 << 14  # thresholds that a search tries
_UP = Context(prec=8, rounding=ROUND_CEILING)
_ULP = 2.0**-52


class LevelPlan(SampleThreshold):
    """What is asked at every level, what the whole costs, and how the sampled counts are read.

    As a channel it is that of one level: a node that i clients share has a token X ~ Binomial(i, rate) there, reported
    if X reaches the threshold. Its guarantee, `delta` and certificate are those of all levels together.

    Attributes:
        way: 'rounds', 'cohorts' or 'one_round'.
        levels: how many levels are asked.
        coin: the probability with which a client answers a question that is put to it.
        rate: the share of all clients that answer at one level: coin, or coin / levels with cohorts.
        threshold: the least sampled count that is reported.
        guarantee: what all levels together promise.
    """

    name = "sample and threshold by levels"

    def __init__(self, way: Way, levels: int, coin: float, threshold: int, guarantee: Guarantee) -> None:
        super().__init__(coin / levels if way == "cohorts" else coin, threshold, guarantee)
        self.way, self.levels, self.coin = way, levels, coin
        self.parameters = {
            "mechanism": "levels", "way": way, "levels": levels, "coin": coin, "threshold": threshold,
            **guarantee.to_json(),
        }  # fmt: skip

    def __repr__(self) -> str:
        asked = {"rounds": "each client at every level", "cohorts": "each client at one level"}.get(self.way, "once")
        return f"<{self.levels} levels, {asked}, coin={self.coin:g}, threshold={self.threshold}, {self.guarantee}>"

    @property
    def reports(self) -> float:
        """How many reports a client is expected to send, at most."""
        return self.coin * (self.levels if self.way == "rounds" else 1)

    @cached_property
    def half(self) -> int:
        """The lowest frequency at which a string is found half of the time, if it shares its prefixes with no other.

        For tiny rates it may be above 10^12, more clients than any count can have.
        """
        low, high = self.threshold - 1, self.threshold
        while self._found(high) < 0.5:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._found(middle) >= 0.5 else (middle, high)
        return high

    def found(self, frequencies: ArrayLike) -> NDArray[np.float64]:
        """Return, for each frequency, the probability that a string which shares no prefix survives all levels.

        Exact but for cohorts: there the counts of the levels are parts of one multinomial, and the answer, their
        product, is a little above the exact one.
        """
        return self._found(checked_frequencies(frequencies))

    def _found(self, frequencies: ArrayLike) -> NDArray[np.float64]:
        return at_least(frequencies, self.threshold, self.rate) ** self.levels

    def delta(self, epsilon: float, neighbours: str = "add_remove") -> float:
        """Return a delta at which all levels together are (epsilon, delta)-private: the least that is known."""
        epsilon, relation = validate.epsilon(epsilon), validate.neighbours(neighbours)
        return _delta(self.way, self.levels, epsilon, self.coin, self.threshold, relation)

    @cached_property
    def _certificate(self) -> Certificate:
        each = {
            "rounds": f"the composed curve of {self.levels} sampled histograms with a threshold",
            "cohorts": "the exact divergence of one sampled histogram with a threshold, one level for each client",
            "one_round": "the exact divergence of a sampled histogram with a threshold",
        }
        return by_formula(self.guarantee, self.delta(self.guarantee.epsilon, self.guarantee.neighbours), each[self.way])


class Comparison(NamedTuple):
    """The three ways side by side."""

    rounds: LevelPlan
    cohorts: LevelPlan
    one_round: LevelPlan

    def __str__(self) -> str:
        lines = [f"{self.one_round.guarantee}", "way        levels    rate  threshold  found half of the time at"]
        lines += [f"{p.way:<10} {p.levels:>6} {p.rate:>7.4f} {p.threshold:>10} {p.half:>18,} clients" for p in self]
        return "\n".join(lines)


def level_plan(
    epsilon: float,
    delta: float,
    levels: int,
    *,
    way: Way = "rounds",
    coin: float | None = None,
    threshold: int | None = None,
    neighbours: Neighbours = "add_remove",
    unit: str = "one client",
) -> LevelPlan:
    """Return the plan that finds the rarest strings within (epsilon, delta), for so many levels and one way to ask.

    Args:
        epsilon, delta: the budget of all levels together.
        levels: how many levels there are; with 'one_round' there is one.
        way: 'rounds', 'cohorts' or 'one_round'; see the head of this module.
        coin, threshold: to choose these instead; what they cost is checked.
        neighbours: 'add_remove' (one client more or less) or 'replace' (one client has another value).
        unit: who is protected, in words.

    >>> level_plan(1.0, 1e-8, 10).half, level_plan(1.0, 1e-8, 10, way="cohorts").half
    (151, 1075)
    """
    epsilon = validate.positive("epsilon", validate.epsilon(epsilon), hint="Pass a budget such as epsilon=1.0.")
    delta, relation, way = positive_delta(delta), validate.neighbours(neighbours), checked_way(way)
    levels = validate.whole("levels", levels, low=1, high=MOST_LEVELS, hint="Pass how many levels there are.")
    if way != "rounds" or levels == 1:
        levels = 1 if way == "one_round" else levels
        found = plan(epsilon, delta, rate=coin, threshold=threshold, neighbours=relation, unit=unit)
        return LevelPlan(way, levels, found.rate, found.threshold, found.guarantee)
    search = _Search(epsilon, delta, levels, relation)
    if coin is not None and threshold is not None:
        coin, threshold = checked_rate(coin), checked_threshold(threshold)
    elif coin is not None:
        coin, threshold = search.smallest_threshold(checked_rate(coin))
    elif threshold is not None:
        coin, threshold = search.largest_coin(checked_threshold(threshold))
    else:
        coin, threshold = _best(epsilon, delta, levels, relation)
    made = LevelPlan(way, levels, coin, threshold, Guarantee(epsilon, delta, relation, unit))
    made.certify()
    return made


def compare(
    epsilon: float, delta: float, *, max_length: int, step: int = 1, neighbours: Neighbours = "add_remove"
) -> Comparison:
    """Return the plans of the three ways to find heavy strings of up to max_length symbols, `step` of them a level.

    Nothing but these public numbers is used, and nothing is spent.

    >>> print(compare(1.0, 1e-8, max_length=10))
    (1, 1e-08)-differential privacy when one client is added or removed.
    way        levels    rate  threshold  found half of the time at
    ...
    """
    levels = levels_of(max_length, step)
    ways: tuple[Way, ...] = get_args(Way)
    return Comparison(*(level_plan(epsilon, delta, levels, way=way, neighbours=neighbours) for way in ways))


def levels_of(max_length: int, step: int) -> int:
    """Return how many levels strings of up to max_length symbols have, with `step` symbols a level."""
    length = validate.whole(
        "max_length", max_length, low=1, high=MOST_LEVELS, hint="Pass how long strings may be, such as max_length=20."
    )
    step = validate.whole("step", step, low=1, high=length, hint="Pass how many symbols a level adds, such as step=1.")
    return -(-length // step)


def checked_way(way: object) -> Way:
    """Return one of the three ways."""
    for known in get_args(Way):
        if way == known:
            return known  # type: ignore[no-any-return]
    raise InvalidValue("way is not known. Choose 'rounds', 'cohorts' or 'one_round'.")


def from_json(data: Mapping[str, Any]) -> LevelPlan:
    """Make the plan again whose `to_json` is given; anything else is refused."""
    hint = "Pass what to_json returned."
    fields = {"mechanism", "way", "levels", "coin", "threshold", "epsilon", "delta", "neighbours", "unit"}
    if not isinstance(data, Mapping):
        raise InvalidType(f"data must be a mapping. {hint}")
    if set(data) != fields or data["mechanism"] != "levels":
        raise InvalidValue(f"data has other fields than a plan of levels. {hint}")
    way, levels = checked_way(data["way"]), validate.whole("levels", data["levels"], low=1, high=MOST_LEVELS, hint=hint)
    guarantee = Guarantee(data["epsilon"], data["delta"], data["neighbours"], data["unit"])
    return LevelPlan(way, levels, checked_rate(data["coin"]), checked_threshold(data["threshold"]), guarantee)


def _delta(way: Way, levels: int, epsilon: float, coin: float, threshold: int, neighbours: Neighbours) -> float:
    if way != "rounds" or levels == 1:
        return exact_delta(epsilon, coin, threshold, neighbours)
    found = rounds_delta(epsilon, coin, threshold, levels, neighbours)
    return min(1.0, float(_UP.create_decimal(max(found, 1e-300))))


class _Search:
    """Looks along the curve of (coin, threshold) that just keep a promise in several rounds.

    As for one round, neither a higher threshold nor a lower coin raises delta: both are post-processing of each round.
    """

    def __init__(self, epsilon: float, delta: float, levels: int, neighbours: Neighbours) -> None:
        self._epsilon, self._delta, self._levels, self._neighbours = epsilon, delta, levels, neighbours
        self._near = -0.25 * math.log(levels)

    def smallest_threshold(self, coin: float) -> tuple[float, int]:
        """Return the coin, and the smallest threshold for it."""
        too_low, enough = 0, 1
        while self._roughly(coin, enough) > 0:
            too_low, enough = enough, 2 * enough
            if enough > _HIGHEST:
                raise InvalidValue(f"coin={coin:g} needs a huge threshold. Pass a lower one, or a larger budget.")
        while enough - too_low > 1:
            middle = (too_low + enough) // 2
            too_low, enough = (middle, enough) if self._roughly(coin, middle) > 0 else (too_low, middle)
        while self._excess(coin, enough) > 0:
            enough += 1
        while enough > 1 and self._excess(coin, enough - 1) <= 0:
            enough -= 1
        return coin, enough

    def largest_coin(self, threshold: int) -> tuple[float, int]:
        """Return the largest coin for a threshold, to about half a percent of it, and the threshold."""
        near = math.log(self._crossing(threshold))
        found = _last(lambda at: self._excess(_rounded_down(math.exp(at)), threshold), near, threshold, 0.005)
        coin = _rounded_down(math.exp(found))
        if coin <= 2 * SMALLEST_RATE:
            raise InvalidValue(f"threshold={threshold} is too low for any coin of use. Pass a higher one.")
        return coin, threshold

    def best(self) -> tuple[float, int]:
        """Return the coin and the threshold for which about threshold / coin is least."""
        one = plan(self._epsilon, self._delta)
        self._near += math.log(one.rate)
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
        self._near = _last(lambda at: self._roughly(math.exp(at), threshold), self._near, threshold, 0.01)
        return math.exp(self._near)

    def _excess(self, coin: float, threshold: int) -> float:
        """Return the logarithm of delta over the promised one, above zero exactly if it is larger."""
        return self._over(_delta("rounds", self._levels, self._epsilon, coin, threshold, self._neighbours))

    def _roughly(self, coin: float, threshold: int) -> float:
        """Return about the same, in a tenth of the time."""
        return self._over(rough_rounds_delta(self._epsilon, coin, threshold, self._levels, self._neighbours))

    def _over(self, delta: float) -> float:
        found = math.log(max(delta, 1e-300) / self._delta)
        return max(found, _ULP) if delta > self._delta else found


def _last(excess: Callable[[float], float], start: float, slope: float, close: float) -> float:
    """Return about the largest logarithm of a coin at which `excess` is not above zero; without any, the least of all.

    `excess` grows with it, by `slope` more or less. Each step goes where the last two points say that zero is, or a
    little before; where that is outside of what is left, half-way through it. What is returned was tried.
    """
    low, high = math.log(SMALLEST_RATE), math.log(LARGEST_RATE)
    at, before = min(max(start, low), high), None
    while high - low > close:
        value = excess(at)
        low, high = (at, high) if value <= 0 else (low, at)
        if before is not None and value != before[1]:
            slope = (value - before[1]) / (at - before[0])
        if -close * slope < value <= 0:
            break
        before, at = (at, value), at - value / slope - close / 4
        if not low < at < high:
            at = (low + high) / 2
    return low


@lru_cache(maxsize=256)
def _best(epsilon: float, delta: float, levels: int, neighbours: Neighbours) -> tuple[float, int]:
    return _Search(epsilon, delta, levels, neighbours).best()


def _rounded_down(number: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(number)) - 3)
    return float(f"{math.floor(number / unit) * unit:.4g}")
