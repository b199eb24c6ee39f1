"""Plans for one histogram: which rate and which threshold to use, from the exact delta instead of a bound.

Neither a higher threshold nor a lower rate ever raises delta (see `channels.binomial.add_remove`). So each rate has a
smallest threshold, each threshold a largest rate, and the best plan is on that curve.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.binomial.add_remove import add_remove
from dpsieve.channels.binomial.replacement import roughly_replace

from dpsieve.channels.binomial.rows import (  # isort: skip
    LARGEST_RATE, SMALLEST_RATE, SampleThreshold, checked_rate, checked_threshold, exact_delta, sample_threshold,
)  # fmt: skip
from dpsieve.channels.rows import LARGEST_FREQUENCY
from dpsieve.errors import InvalidValue
from dpsieve.exact.binomial import at_least, below
from dpsieve.exact.search import first_whole
from dpsieve.privacy import Guarantee
from dpsieve.privacy.curves.gaussian import positive_delta
from dpsieve.types import Floats
from dpsieve.validate import Neighbours

Goal = Literal["reach", "error"]

_HIGHEST = 1 << 17  # thresholds that a search tries
_HINT = "Pass a larger epsilon or delta, or a lower rate."


@dataclass(frozen=True)
class Plan:
    """A rate and a threshold, and what they do.

    Attributes:
        rate: the probability with which each client is sampled; also the share of clients expected to be contacted.
        threshold: the least sampled count that is reported.
        guarantee: what is promised.
        exact_delta: the least delta at its epsilon, at most the one that is promised; under replacement at very small
            rates or epsilons a bound on it (see `channels.binomial.replacement.replace`).
        half: the lowest frequency that is reported with probability one half or more.
    """

    rate: float
    threshold: int
    guarantee: Guarantee
    exact_delta: float
    half: int

    @property
    def channel(self) -> SampleThreshold:
        """The channel that reads the reported counts back; see `dpsieve.channels.binomial.rows`."""
        kept = self.guarantee
        return SampleThreshold(kept.epsilon, kept.delta, self.rate, self.threshold, kept.neighbours, unit=kept.unit)

    @property
    def exposure(self) -> float:
        """The probability that a client sends a report: what a device's budget is charged."""
        return self.rate

    def contacted(self, population: int) -> float:
        """Return how many clients of a population are expected to be sampled."""
        hint = "Pass how many clients there are, such as population=1_000_000."
        return self.rate * validate.whole("population", population, hint=hint)

    def reporting_probability(self, frequencies: ArrayLike) -> Floats:
        """Return, for each number of clients with a value, the probability that the value is reported."""
        return self.channel.reporting_probability(frequencies)

    def __str__(self) -> str:
        what = f"sample {self.rate:.4g} of the clients, report values that {self.threshold} or more of them sent"
        return f"Plan: {what}; a value of {self.half:,} clients is reported half of the time. {self.guarantee}"


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
) -> Plan:
    """Return a rate and a threshold that are (epsilon, delta)-private.

    With both given, they are checked; without delta, the exact one is promised. With a rate alone, the threshold is the
    smallest that keeps the promise; with a threshold alone, the rate is the largest one, to a thousandth of it or so.
    With neither, they are the best for a goal:

    * 'reach': the lowest frequency that is reported with probability one half, for finding which values occur.
    * 'error': the least mean square error of a count, token / rate or 0 if not reported, at its worst over all values
      that up to `frequency` clients have. It weighs what sampling costs, frequency (1 - rate) / rate at the top,
      against what the threshold hides, which grows with the rate; only a given frequency lets one weigh the two.

    Args:
        epsilon: the budget, above zero.
        delta: the budget's delta; needed unless rate and threshold are both given.
        rate: the probability with which each client is sampled.
        threshold: the least sampled count that is reported.
        neighbours: 'add_remove' (one client more or less) or 'replace' (one client has another value).
        goal: 'reach' or 'error'.
        frequency: for the goal 'error', how many clients the most frequent values of interest have.
        contacted, population: the most clients to contact, on average, and how many there are: they limit the rate.
        hostile: how many reports those who see the release may have made up: the promise is kept with the threshold
            less these, and the threshold is higher by as many.
        unit: who is protected, in words.

    >>> print(plan(1.0, 1e-8))
    Plan: ...
    >>> plan(1.0, 1e-8, rate=0.2).threshold
    17
    >>> plan(1.0, rate=0.3, threshold=24).exact_delta
    9.656612843e-09
    """
    epsilon, relation = validate.positive_epsilon(epsilon), validate.neighbours(neighbours)
    most = _most(contacted, population)
    cost = _cost(goal, frequency)
    if rate is not None:
        rate = checked_rate(rate)
        if rate > most:
            raise InvalidValue(f"rate={rate:g} contacts more clients than `contacted`. Leave one of them out.")
    hostile = validate.whole("hostile", hostile, high=10**9, hint="Pass how many reports may be made up, such as 5.")
    if threshold is not None:
        threshold = checked_threshold(threshold) - hostile
        if threshold < 1:
            raise InvalidValue(f"hostile={hostile} reports reach the threshold by themselves. Pass a higher threshold.")
    if rate is None or threshold is None:
        if delta is None:
            raise InvalidValue("delta is missing. Pass it, such as delta=1e-8, or both a rate and a threshold.")
        search = _search(epsilon, positive_delta(delta), relation, most)
        if rate is not None:
            threshold = search.smallest_threshold(rate)
        elif threshold is not None:
            rate = search.largest_rate(threshold)
        else:
            rate, threshold = search.best(cost)
            if frequency is not None and _half(rate, threshold) > frequency:
                rarest = _half(*search.best(_cost("reach", None)))
                hint = f"No plan reports values of fewer than {rarest} clients half of the time."
                raise InvalidValue(f"frequency={frequency} is too low for goal='error'. {hint} Pass a higher one.")
    if hostile:
        kept = sample_threshold(rate, threshold, epsilon=epsilon, delta=delta, neighbours=relation, unit=unit)
        delta, threshold = kept.guarantee.delta, threshold + hostile
    channel = sample_threshold(rate, threshold, epsilon=epsilon, delta=delta, neighbours=relation, unit=unit)
    return Plan(rate, threshold, channel.guarantee, channel.certify().worst, _half(rate, threshold))


@lru_cache(maxsize=32)
def _search(epsilon: float, delta: float, neighbours: Neighbours, most: float) -> "_Search":
    """Return the search of a budget, which remembers what it has tried."""
    return _Search(epsilon, delta, neighbours, most)


class _Search:
    """Looks along the curve of (rate, threshold) that just keep a promise."""

    def __init__(self, epsilon: float, delta: float, neighbours: Neighbours, most: float) -> None:
        self._epsilon, self._delta, self._neighbours, self._most = epsilon, delta, neighbours, most
        self._rate = lru_cache(maxsize=None)(self._crossing)
        self._alone = None if neighbours == "add_remove" else _search(epsilon, delta, "add_remove", most)

    def smallest_threshold(self, rate: float) -> int:
        """Return the smallest threshold for a rate."""
        enough = self._low_threshold(rate)
        if self._neighbours == "replace":
            enough = self._low_threshold(rate, self._error(rate, enough))
        while not self._holds(rate, enough):
            enough += 1
        while enough > 1 and self._neighbours == "replace" and self._holds(rate, enough - 1):
            enough -= 1
        return enough

    def largest_rate(self, threshold: int) -> float:
        """Return the largest rate for a threshold, rounded down to six digits, or the highest that is allowed."""
        found = self._rate(threshold)
        if self._neighbours == "replace" and found > SMALLEST_RATE:
            found = self._rate(threshold, self._error(found, threshold))
        if found == self._most and self._holds(found, threshold):
            return found
        rate = rounded_down(found, 6)
        while rate > SMALLEST_RATE and not self._holds(rate, threshold):
            rate = rounded_down(rate * 0.999, 6)
        if rate <= SMALLEST_RATE:
            raise InvalidValue(f"threshold={threshold} is too low for any rate of use. Pass a higher one.")
        return rate

    def best(self, cost: Callable[[float, int], float]) -> tuple[float, int]:
        """Return the rate and the threshold of the least cost; thresholds are tried until both neighbours were."""
        grid = np.geomspace(1, _HIGHEST, 20)
        if self._alone is not None:  # where each step is slower, and the best is not far from that of add/remove
            near = self._alone.best(cost)[1]
            grid = np.geomspace(max(near * 0.7, 1), near * 3 + 2, 7)
        tried: dict[int, float] = {}
        while fresh := set(np.rint(grid).astype(int).tolist()) - set(tried):
            for value in fresh:
                rate = self._rate(value)
                tried[value] = cost(rate, value) if rate > SMALLEST_RATE else math.inf
            order = sorted(tried)
            best = min(order, key=lambda value: tried[value])
            place = order.index(best)
            grid = np.linspace(order[max(place - 1, 0)], order[min(place + 1, len(order) - 1)], 7)
        rate = self.largest_rate(best)
        return rate, self.smallest_threshold(rate) if rate == self._most else best

    def _holds(self, rate: float, threshold: int) -> bool:
        return exact_delta(self._epsilon, rate, threshold, self._neighbours) <= self._delta

    def _excess(self, rate: float, threshold: int) -> float:
        """Return the logarithm of delta over the promised one: exact for add/remove, above it for replacement."""
        if self._neighbours == "add_remove":
            found, _ = add_remove(self._epsilon, rate, threshold)
        else:
            found = roughly_replace(self._epsilon, rate, threshold)
        return math.log(max(found, 1e-300) / self._delta)

    def _error(self, rate: float, threshold: int) -> float:
        """Return what the excess lacks: it changes little from here to places near by."""
        exact = exact_delta(self._epsilon, rate, threshold, self._neighbours)
        return math.log(max(exact, 1e-300) / self._delta) - self._excess(rate, threshold)

    def _low_threshold(self, rate: float, error: float = 0.0) -> int:
        """Return the smallest threshold at which the excess, with its error added, is not above zero."""
        too_low = 0 if self._alone is None else self._alone.smallest_threshold(rate) - 1  # replacing needs no less
        enough = first_whole(lambda t: self._excess(rate, t) + error <= 0, too_low + 1, _HIGHEST + 1)
        if enough > _HIGHEST:
            raise InvalidValue(f"rate={rate:g} needs a threshold above {_HIGHEST:,}. {_HINT}")
        return enough

    def _crossing(self, threshold: int, error: float = 0.0) -> float:
        """Return the rate at which the excess, with its error added, is zero, or just below; or a limit of the rate."""
        most = self._most if self._alone is None else self._alone._rate(threshold)  # replacing allows no more
        return last_rate(lambda rate: self._excess(rate, threshold) + error, most, threshold, 1e-5, most)


def _cost(goal: str, frequency: int | None) -> Callable[[float, int], float]:
    if goal == "reach":
        if frequency is not None:
            raise InvalidValue("frequency belongs to goal='error'. Leave it out, or pass that goal.")
        return lambda rate, threshold: (threshold - 1 / 3) / rate  # about where one half is reached, without steps
    if goal != "error":
        raise InvalidValue("goal is not known. Choose 'reach' or 'error'.")
    hint = "For goal='error', pass how many clients frequent values have, such as frequency=1000."
    if frequency is None:
        raise InvalidValue(f"goal='error' needs a frequency too. {hint}")
    most = validate.whole("frequency", frequency, low=1, high=LARGEST_FREQUENCY, hint=hint)
    return lambda rate, threshold: _worst_error(rate, threshold, most)


def _worst_error(rate: float, threshold: int, most: int) -> float:
    """Return the mean square error of token / rate, or 0 if not reported, at its worst over frequencies w up to `most`.

    It is w (1-p) / p + E[2 w X/p - (X/p)^2; X < t] for X ~ Binomial(w, p), and the restricted moments of X are
    E[X; X < t] = w p P[X_(w-1) < t-1] and E[X (X-1); X < t] = w (w-1) p^2 P[X_(w-2) < t-2].
    """
    low, high, worst = float(min(threshold, most)), float(min(4 * threshold / rate, most)), 0.0
    for _ in range(3):  # finer and finer about the worst one
        w = np.append(np.rint(np.geomspace(low, high, 48)), most)
        once = below(np.maximum(w - 1, 0), threshold - 1, rate) if threshold > 1 else np.zeros(len(w))
        twice = below(np.maximum(w - 2, 0), threshold - 2, rate) if threshold > 2 else np.zeros(len(w))
        error = w * (1 - rate) / rate + (2 * w - 1 / rate) * w * once - w * (w - 1) * twice
        place = int(np.argmax(error[:-1]))
        low, high = w[max(place - 1, 0)], w[min(place + 1, 47)]
        worst = max(worst, float(error.max()))
    return worst


def _most(contacted: int | None, population: int | None) -> float:
    """Return the highest rate that is allowed."""
    if contacted is None and population is None:
        return LARGEST_RATE
    hint = "Pass both, such as contacted=10_000 and population=1_000_000."
    if contacted is None or population is None:
        given, needed = ("population", "contacted") if contacted is None else ("contacted", "population")
        raise InvalidValue(f"{needed} is missing, which {given} needs. {hint}")
    clients = validate.whole("population", population, low=1, high=LARGEST_FREQUENCY, hint=hint)
    limit = validate.whole("contacted", contacted, low=1, high=clients, hint=hint)
    return min(LARGEST_RATE, max(SMALLEST_RATE, limit / clients))


def _half(rate: float, threshold: int) -> int:
    """Return the lowest frequency that is reported with probability one half or more."""
    enough = math.ceil((threshold + 1) / rate)
    return first_whole(lambda count: float(at_least(count, threshold, rate)) >= 0.5, threshold, enough)


def last_rate(
    excess: Callable[[float], float], start: float, slope: float, close: float, most: float = LARGEST_RATE
) -> float:
    """Return about the largest rate up to `most` at which `excess` is not above zero, or SMALLEST_RATE without any.

    `excess` grows with the logarithm of the rate, nearly straight, by about `slope`. Each step goes where the last two
    points put the zero, or a little before; where that is outside of the interval that is left, to its middle. The
    answer was tried, and the logarithm of the true one is higher by about `close` at most.
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


def rounded_down(number: float, digits: int) -> float:
    """Return a positive number rounded down to some digits."""
    unit = 10.0 ** (math.floor(math.log10(number)) - digits + 1)
    rounded = float(f"{math.floor(number / unit) * unit:.{digits}g}")
    return rounded if rounded <= number else float(f"{(math.floor(number / unit) - 1) * unit:.{digits}g}")
