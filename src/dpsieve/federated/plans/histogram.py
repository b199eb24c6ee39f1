"""Plans for one histogram: the rate and the threshold, from exact or bounded deltas; and searches for both.

Neither a higher threshold nor a lower rate ever raises delta: both are post-processing of each round (for one histogram
see `noise.sample_threshold_delta`). For secret levels a lower coin also lowers the rate of the others, which is a
mixture over fewer of them. So each rate has a smallest threshold, each threshold a largest rate, and the best plan is
on that curve.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Literal

import numpy as np

from dpsieve import validate
from dpsieve.accounting.curves import positive_delta
from dpsieve.channels.law import LARGEST_FREQUENCY
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import first_whole
from dpsieve.exact.binomial import at_least, below
from dpsieve.noise.sample_threshold import LARGEST_RATE, SMALLEST_RATE
from dpsieve.noise.sample_threshold_delta import add_remove, replace
from dpsieve.types import Floats
from dpsieve.validate import Neighbours

from dpsieve.noise.sample_threshold import (  # isort: skip
    SampleThreshold, check_rate, check_threshold, rounded_delta, sample_threshold,
)  # fmt: skip

_ULP = 2.0**-52

Delta = Callable[[float, int], float]  # of a rate and a threshold
Goal = Literal["reach", "error"]

Cost = Callable[[float, int], float]  # of a rate and a threshold

_HIGHEST = 1 << 17  # thresholds that a search tries
_PASSES = 64
_NEVER = 1 << 80


class Search:
    """Searches along the curve of (rate, threshold) pairs that just keep a promise.

    Args:
        delta: what is promised.
        exact: the delta of a rate and a threshold.
        rough: about the same, faster.
        highest: the largest threshold that is tried.
        most: the largest rate.
        looser: the search of a promise that is implied by this one: it bounds rates and thresholds.
        name: of the rate, for errors.
    """

    def __init__(
        self,
        delta: float,
        exact: Delta,
        rough: Delta,
        highest: int,
        *,
        most: float = LARGEST_RATE,
        looser: "Search | None" = None,
        name: str = "rate",
    ) -> None:
        self._delta, self._exact, self._rough, self._highest = delta, exact, rough, highest
        self._most, self._looser, self._name = most, looser, name
        self.crossing = lru_cache(maxsize=None)(self._crossing)

    def smallest_threshold(self, rate: float) -> int:
        start = 1 if self._looser is None else self._looser.smallest_threshold(rate)
        enough = self._low_threshold(rate, start)
        while not self._holds(rate, enough):
            enough += 1
        while enough > 1 and self._holds(rate, enough - 1):
            enough -= 1
        return enough

    def largest_rate(self, threshold: int) -> float:
        """Return the largest rate for a threshold, rounded down to six digits, or the highest that is allowed."""
        rate: float = self.crossing(threshold)
        if rate == self._most and self._holds(rate, threshold):
            return rate
        rate = round_down(rate, 6)
        while rate > SMALLEST_RATE and not self._holds(rate, threshold):
            rate = round_down(rate * 0.999, 6)
        return self._check_useful(rate, threshold, SMALLEST_RATE)

    def rough_rate(self, threshold: int, start: float) -> float:
        """Return about the largest rate for a threshold, to one percent; the search begins at `start`."""
        return last_rate(lambda rate: self._over(self._rough(rate, threshold)), start, threshold, 0.01)

    def near_largest_rate(self, threshold: int, start: float) -> float:
        """Return the largest rate for a threshold, to about half a percent and rounded down to four digits."""

        def excess(rate: float) -> float:
            return self._over(self._exact(round_down(rate, 4), threshold))

        largest = last_rate(excess, self.rough_rate(threshold, start), threshold, 0.005)
        return self._check_useful(round_down(largest, 4), threshold, 2 * SMALLEST_RATE)

    def _check_useful(self, rate: float, threshold: int, useless: float) -> float:
        if rate <= useless:
            raise InvalidValue(f"threshold={threshold} is too low for any {self._name} of use.", argument="threshold")
        return rate

    def _holds(self, rate: float, threshold: int) -> bool:
        return self._exact(rate, threshold) <= self._delta

    def _over(self, delta: float) -> float:
        """Return the logarithm of delta over the promised one, above zero exactly if it is larger."""
        excess = math.log(max(delta, 1e-300) / self._delta)
        return max(excess, _ULP) if delta > self._delta else excess

    def _low_threshold(self, rate: float, start: int) -> int:
        """Return the smallest threshold at which the rough excess is not above zero."""
        highest = self._highest
        enough = first_whole(lambda t: self._over(self._rough(rate, t)) <= 0, start, highest + 1)
        if enough > highest:
            fix = f"Pass a larger epsilon or delta, or a lower {self._name}."
            raise InvalidValue(f"{self._name}={rate:g} needs a threshold above {highest:,}. {fix}")
        return enough

    def _crossing(self, threshold: int) -> float:
        """Return the rate at which the rough excess crosses zero; or a limit of the rate."""
        most = self._most if self._looser is None else self._looser.crossing(threshold)
        return last_rate(lambda rate: self._over(self._rough(rate, threshold)), most, threshold, 1e-5, most)


def least_costly(grid: Floats, cost: Callable[[int], float], points: int, passes: int) -> int:
    """Return the threshold of the least cost; the grid is refined around the best one until nothing is new."""
    costs: dict[int, float] = {}
    for _ in range(passes):
        fresh = set(np.rint(grid).astype(int).tolist()) - set(costs)
        if not fresh:
            break
        costs |= {threshold: cost(threshold) for threshold in sorted(fresh)}
        order = sorted(costs)
        place = order.index(min(order, key=costs.__getitem__))
        grid = np.linspace(order[max(place - 1, 0)], order[min(place + 1, len(order) - 1)], points)
    return min(sorted(costs), key=costs.__getitem__)


def last_rate(
    excess: Callable[[float], float], start: float, slope: float, close: float, most: float = LARGEST_RATE
) -> float:
    """Return about the largest rate up to `most` at which `excess` is not above zero, or SMALLEST_RATE without any.

    `excess` grows with the logarithm of the rate, nearly linearly, by about `slope`. Secant steps aim at the zero or
    slightly below; outside of the remaining interval they are replaced by bisection. The returned rate was evaluated,
    and the logarithm of the true one is higher by about `close` at most.
    """
    low, high = math.log(SMALLEST_RATE), math.log(most)
    at, before, best = min(math.log(start), high), None, SMALLEST_RATE
    while high - low > close:
        rate = most if at >= high else math.exp(at)
        value = excess(rate)
        if value <= 0:
            low, best = at, rate
        elif at <= low:
            break
        else:
            high = at
        if before is not None and value != before[1]:
            slope = (value - before[1]) / (at - before[0])
        if -close * slope < value <= 0:
            break
        before, at = (at, value), at - value / slope - close / 4
        if not low < at < high:
            at = low if at <= low and best == SMALLEST_RATE else (low + high) / 2
    return best


def round_down(number: float, digits: int) -> float:
    """Return a positive number rounded down to some digits."""
    unit = 10.0 ** (math.floor(math.log10(number)) - digits + 1)
    rounded = float(f"{math.floor(number / unit) * unit:.{digits}g}")
    return rounded if rounded <= number else float(f"{(math.floor(number / unit) - 1) * unit:.{digits}g}")


def plan(
    epsilon: float,
    delta: float | None = None,
    *,
    rate: float | None = None,
    threshold: int | None = None,
    neighbours: Neighbours = "add_remove",
    goal: Goal = "reach",
    frequency: int | None = None,
    contacted: int | None = None,
    population: int | None = None,
    hostile: int = 0,
    unit: str = "one client",
) -> SampleThreshold:
    """Return the sample-and-threshold mechanism with the best rate and threshold for (epsilon, delta).

    With both given, they are checked; without delta, the exact one is promised. With a rate alone, the threshold is the
    smallest that keeps the promise; with a threshold alone, the rate is the largest one, to about a thousandth of it.
    With neither, they are the best for a goal. The exact delta is `certify().worst`. Goals:

    * 'reach': the lowest frequency that is reported with probability one half, for finding which values occur.
    * 'error': the least mean square error of a count, token / rate or 0 if not reported, at its worst over all values
      that up to `frequency` clients have. It weighs what sampling costs, frequency (1 - rate) / rate at the top,
      against what the threshold hides, which grows with the rate.

    Args:
        epsilon: the budget, above zero.
        delta: the budget's delta; needed unless rate and threshold are both given.
        rate: the probability with which each client is sampled.
        threshold: the least sampled count that is reported.
        neighbours: 'add_remove' (one client more or less) or 'replace' (one client has another value).
        goal: 'reach' or 'error'.
        frequency: for the goal 'error', how many clients the most frequent values of interest have.
        contacted, population: the most clients to contact, on average, and how many there are: they limit the rate.
        hostile: how many reports those who see the release may have made up: the threshold is raised by as many.
        unit: who is protected, for the guarantee.

    >>> best = plan(1.0, 1e-8)
    >>> round(best.rate, 2), best.threshold
    (0.24, 19)
    >>> plan(1.0, 1e-8, rate=0.2).threshold
    17
    >>> plan(1.0, rate=0.3, threshold=24).guarantee.delta
    9.656612843e-09
    """
    epsilon, relation = validate.positive_epsilon(epsilon), validate.neighbours(neighbours)
    most = _most(contacted, population)
    cost = _cost(goal, frequency)
    if rate is not None:
        rate = check_rate(rate)
        if rate > most:
            raise InvalidValue(f"rate={rate:g} contacts more clients than `contacted`.", argument="rate")
    hostile = validate.whole("hostile", hostile, high=10**9, hint="Pass how many reports may be made up, such as 5.")
    if threshold is not None:
        threshold = check_threshold(threshold) - hostile
        if threshold < 1:
            raise InvalidValue(f"hostile={hostile} reports reach the threshold. Pass a higher one.", argument="hostile")
    if rate is None or threshold is None:
        if delta is None:
            raise InvalidValue("delta is missing. Pass it, or both a rate and a threshold.", argument="delta")
        delta = positive_delta(delta)
        search = _search(epsilon, delta, relation, most)
        if rate is not None:
            threshold = search.smallest_threshold(rate)
        elif threshold is not None:
            rate = search.largest_rate(threshold)
        else:
            rate, threshold = _best(epsilon, delta, relation, most, cost)
            if frequency is not None and half_frequency(rate, threshold) > frequency:
                rarest = half_frequency(*_best(epsilon, delta, relation, most, _cost("reach", None)))
                hint = f"No plan reports values of fewer than {rarest} clients half of the time."
                why = f"frequency={frequency} is too low for goal='error'"
                raise InvalidValue(f"{why}. {hint} Pass a higher one.", argument="frequency")
    if hostile:
        honest = sample_threshold(rate, threshold, epsilon=epsilon, delta=delta, neighbours=relation, unit=unit)
        delta, threshold = honest.guarantee.delta, threshold + hostile
    return sample_threshold(rate, threshold, epsilon=epsilon, delta=delta, neighbours=relation, unit=unit)


@lru_cache(maxsize=32)
def _search(epsilon: float, delta: float, neighbours: Neighbours, most: float) -> Search:
    """Return the search of a budget, which caches what it has tried."""

    def exact(rate: float, threshold: int) -> float:
        return rounded_delta(epsilon, rate, threshold, neighbours)

    if neighbours == "add_remove":
        return Search(delta, exact, lambda rate, t: add_remove(epsilon, rate, t)[0], _HIGHEST, most=most)
    looser = _search(epsilon, delta, "add_remove", most)  # replacing needs no less
    return Search(delta, exact, partial(replace, epsilon), _HIGHEST, most=most, looser=looser)


def _best(epsilon: float, delta: float, neighbours: Neighbours, most: float, cost: Cost) -> tuple[float, int]:
    search, grid = _search(epsilon, delta, neighbours, most), np.geomspace(1, _HIGHEST, 20)
    if neighbours == "replace":  # each step is slower, and the best is not far from that of add/remove
        start = _best(epsilon, delta, "add_remove", most, cost)[1]
        grid = np.geomspace(max(start * 0.7, 1), start * 3 + 2, 7)

    def cost_at(threshold: int) -> float:
        rate = search.crossing(threshold)
        return cost(rate, threshold) if rate > SMALLEST_RATE else math.inf

    threshold = least_costly(grid, cost_at, points=7, passes=_PASSES)
    rate = search.largest_rate(threshold)
    return rate, search.smallest_threshold(rate) if rate == most else threshold


def _cost(goal: str, frequency: int | None) -> Cost:
    if goal == "reach":
        if frequency is not None:
            raise InvalidValue("frequency belongs to goal='error'. Pass that, or neither.", argument="frequency")
        return lambda rate, threshold: (threshold - 1 / 3) / rate  # about where one half is reached
    if goal != "error":
        raise InvalidValue("goal is not known. Choose 'reach' or 'error'.", argument="goal")
    hint = "For goal='error', pass how many clients frequent values have, such as frequency=1000."
    if frequency is None:
        raise InvalidValue(f"goal='error' needs a frequency too. {hint}", argument="goal")
    most = validate.whole("frequency", frequency, low=1, high=LARGEST_FREQUENCY, hint=hint)
    return lambda rate, threshold: _worst_error(rate, threshold, most)


def _worst_error(rate: float, threshold: int, most: int) -> float:
    """Return the mean square error of token / rate, or 0 if not reported, at its worst over frequencies w up to `most`.

    It is w (1-p) / p + E[2 w X/p - (X/p)^2; X < t] for X ~ Binomial(w, p), and the restricted moments of X are
    E[X; X < t] = w p P[X_(w-1) < t-1] and E[X (X-1); X < t] = w (w-1) p^2 P[X_(w-2) < t-2].
    """
    low, high, worst = float(min(threshold, most)), float(min(4 * threshold / rate, most)), 0.0
    for _ in range(3):  # refine around the worst one
        w = np.append(np.rint(np.geomspace(low, high, 48)), most)
        once = below(np.maximum(w - 1, 0), threshold - 1, rate) if threshold > 1 else np.zeros(len(w))
        twice = below(np.maximum(w - 2, 0), threshold - 2, rate) if threshold > 2 else np.zeros(len(w))
        error = w * (1 - rate) / rate + (2 * w - 1 / rate) * w * once - w * (w - 1) * twice
        place = int(np.argmax(error[:-1]))
        low, high = w[max(place - 1, 0)], w[min(place + 1, 47)]
        worst = max(worst, float(error.max()))
    return worst


def _most(contacted: int | None, population: int | None) -> float:
    if contacted is None and population is None:
        return LARGEST_RATE
    hint = "Pass both, such as contacted=10_000 and population=1_000_000."
    if contacted is None or population is None:
        given, needed = ("population", "contacted") if contacted is None else ("contacted", "population")
        raise InvalidValue(f"{needed} is missing, which {given} needs. {hint}")
    clients = validate.whole("population", population, low=1, high=LARGEST_FREQUENCY, hint=hint)
    limit = validate.whole("contacted", contacted, low=1, high=clients, hint=hint)
    return min(LARGEST_RATE, max(SMALLEST_RATE, limit / clients))


def half_frequency(rate: float, threshold: int, levels: int = 1) -> int:
    """Return the lowest frequency that reaches the threshold at all levels with probability one half or more."""
    enough = math.ceil((threshold + 1) / rate) if levels == 1 else _NEVER
    return first_whole(lambda count: float(at_least(count, threshold, rate)) ** levels >= 0.5, threshold, enough)
