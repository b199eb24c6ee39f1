"""Searches for the rate and the threshold of a plan.

Neither a higher threshold nor a lower rate ever raises delta: both are post-processing of each round (for one histogram
see `noise.sample_threshold_delta`). For secret levels a lower coin also lowers the rate of the others, which is a
mixture over fewer of them. So each rate has a smallest threshold, each threshold a largest rate, and the best plan is
on that curve.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import first_whole
from dpsieve.noise.sample_threshold import LARGEST_RATE, SMALLEST_RATE
from dpsieve.types import Floats

_ULP = 2.0**-52

Delta = Callable[[float, int], float]  # of a rate and a threshold


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
