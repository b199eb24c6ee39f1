"""Good parameters for 'report first, then count', from public numbers; every choice that is made here is sound.

The order of the Renyi divergence and the leak are searched such that keys of the lowest frequency show half of the time
(goal 'keys'). For the goal 'counts' tokens begin where nine of ten keys show, coins are slow from there on, and the
expected error of what is published is made small: the sum over frequencies i, weighted by 1/i^2 (Zipf's law), of i
where a key does not show, and of the error of its token where it does.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from dpsieve.channels.reporting.reporting_tables import Promise, reporting_table, rough_rows
from dpsieve.channels.reporting.several_keys import Coins, rough_step, unit_delta
from dpsieve.errors import InvalidValue
from dpsieve.exact.search import ball, minimise, upper
from dpsieve.privacy.curves.gaussian import gaussian_sigma
from dpsieve.types import Floats

GOALS = ("counts", "keys")
_FROM = 0.9  # counts begin where this share of keys shows
_LEAST = 0.3  # a smaller epsilon has nearly the choice of this one at the same delta/epsilon, with longer tables
_MOST = 1 << 15  # rows of a rough table
_LONGEST = 200_000  # rows that are checked one by one in some ten seconds
_LEAKS = (0.35, 0.2, 0.5)  # of delta, for all keys together
_NOISES = (1.03, 1.05, 1.08, 1.12, 1.16)  # over the least deviation of Gaussian noise
_SLOW = (0.05, 0.1, 0.2)  # of the step
_NEARLY = 0.98


@dataclass(frozen=True)
class _Choice:
    """The order, the leak of each key, the noise over the least that there is, and the slow share of a step."""

    order: float
    leak: float
    noise: float = 1.05
    slow: float = 0.0


@lru_cache(maxsize=64)
def chosen_coins(epsilon: float, delta: float, keys: int, goal: str) -> tuple[Coins, int, float]:
    """Return what coins keep, the row from which on tokens count, and the deviation of their noise."""
    times = max(1.0, _LEAST / epsilon)
    rough = _Search(epsilon * times, min(delta * times, max(delta, 0.1)), keys)
    best = rough.best_for_keys()
    if 2 * rough.half(best) * times > _LONGEST:
        raise InvalidValue(f"epsilon={epsilon:g} needs too long a table for {keys:,} keys. Use mechanism 'gaussian'.")
    if goal == "counts":
        best = rough.best_for_counts(best)
    search = _Search(epsilon, delta, keys)
    choice = replace(best, order=1 + (best.order - 1) * times, leak=best.leak * (delta / rough.delta))
    if times > 1:
        more = [replace(choice, noise=noise) for noise in _NOISES if noise >= best.noise]
        enough = _NEARLY * max(map(search.step, more))
        choice = next((one for one in more if search.step(one) >= enough), choice)
    if choice.slow and search.step(choice) <= 0:
        return chosen_coins(epsilon, delta, keys, "keys")
    coins, sigma = search.proven(choice), choice.noise * search.least
    table = reporting_table(Promise(coins.order, coins.step, coins.leak, 0, (1,)))
    first = int(np.searchsorted(table.probability(np.arange(table.last)), _FROM)) if coins.slow else table.last
    return coins, first, sigma


class _Search:
    """A budget for units of some keys, and what choices make of it."""

    def __init__(self, epsilon: float, delta: float, keys: int) -> None:
        self.epsilon, self.delta, self.keys = epsilon, delta, keys
        self.least = gaussian_sigma(epsilon, delta, count=keys)

    def best_for_keys(self) -> _Choice:
        """Return a choice that shows keys of low frequency."""
        guess, leaks = 2 * math.log(1 / self.delta) / self.epsilon, [self.delta / self.keys * one for one in _LEAKS]

        def at(x: float) -> _Choice:
            return _Choice(1 + guess * math.exp(x), leaks[0])

        start = min(np.linspace(-1.5, 1.5, 13), key=lambda x: self.half(at(x)))
        found = at(minimise(lambda x: self.half(at(x)), start - 0.25, start + 0.25, rounds=7))
        return min((replace(found, leak=leak) for leak in leaks), key=self.half)

    def best_for_counts(self, found: _Choice) -> _Choice:
        """Return a choice near `found` with a small expected error; `found` itself where none has room."""
        orders = [found.order * more for more in (0.87, 1.0, 1.15)]
        counts = [_Choice(a, found.leak, noise, slow) for a in orders for noise in _NOISES for slow in _SLOW]
        best = min(counts, key=self.cost)
        return best if math.isfinite(self.cost(best)) else found

    def step(self, choice: _Choice) -> float:
        """Return the largest step that keeps delta, but for the last digits."""
        shape = Coins(choice.order, 0.0, choice.slow, choice.leak)
        return rough_step(self.keys, self.epsilon, self.delta, shape, 1 / (choice.noise * self.least))

    def half(self, choice: _Choice) -> float:
        """Return the frequency at which keys show half of the time."""
        rows = _rows(choice, self.step(choice), 0.5)
        return len(rows) - 1 - float((rows[-1] - 0.5) / (rows[-1] - rows[-2])) if len(rows) else math.inf

    def cost(self, choice: _Choice) -> float:
        """Return the expected error of what is published."""
        step = self.step(choice)
        rows, later = _rows(choice, step, 1.0), _rows(choice, step * choice.slow, 1.0)
        first = int(np.searchsorted(rows, _FROM))
        if not (len(later) and 0 < first < len(rows) - 1):
            return math.inf
        rows = np.append(rows[:first], later[np.searchsorted(later, rows[first], side="right") - 1 :])
        return expected_error(rows, first, choice.noise * self.least)

    def proven(self, choice: _Choice) -> Coins:
        """Return coins that keep delta, by proven bounds."""
        distance, most, less = upper(lambda: 1 / ball(choice.noise * self.least)), self.step(choice), 1e-9
        while less < 1e-2 and most > 0:
            step = most * (1 - less)
            coins = Coins(choice.order, step, step * choice.slow, choice.leak)
            if unit_delta(self.keys, self.epsilon, coins, distance) <= self.delta:
                return coins
            less *= 8
        raise InvalidValue(f"epsilon={self.epsilon:g} leaves no room for {self.keys:,} keys. Pass a larger one.")


def _rows(choice: _Choice, step: float, until: float) -> Floats:
    return rough_rows(Promise(choice.order, step, choice.leak, 0, (1,)), until, _MOST) if step > 0 else np.empty(0)


def expected_error(rows: Floats, first: int, sigma: float) -> float:
    """Return the expected error of what is published where frequencies follow Zipf's law; see the head of this module.

    `rows` are the probabilities that keys of frequency 0, 1, ... show; from the last one on all do.
    """
    i = np.arange(1, 4 * len(rows))
    shown = np.append(rows[1:], np.ones(len(i) - len(rows) + 1))
    off = np.maximum(first - i, 0) / sigma
    error = sigma * (math.sqrt(2 / math.pi) * np.exp(-(off**2) / 2) + off * (1 - 2 * ndtr(-off)))
    later = sigma * math.sqrt(2 / math.pi) / (4 * len(rows))
    return float((((1 - shown) * i + shown * error) / i**2).sum()) + later
