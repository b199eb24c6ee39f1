"""Lower bounds on epsilon from counted events, each with a stated confidence.

**Rates.** An event happened in k of n independent runs on some data, and in j of m on its neighbour. Let p and q be
Clopper-Pearson bounds of the first rate from below and of the second from above, each at half of the error probability.
An (epsilon, delta)-private mechanism has p <= e^epsilon q + delta, so epsilon >= ln((p - delta) / q).

**One run** (Steinke, Nasr, Jagielski, "Privacy auditing with one (1) training run", 2023, Theorem 5.2). Each of m parts
of the data is one of two alternatives, by a fair coin. Whoever sees the output of an (epsilon, delta)-private mechanism
and guesses at most r of the coins has at least v correct guesses with probability at most

    P[W >= v] + 2 m delta max over i of P[v - i <= W < v] / i,      W ~ Binomial(r, e^epsilon / (1 + e^epsilon)).

The largest epsilon for which this is below the error probability is a lower bound. No independence is assumed within
the output, so private choices that all parts share cannot cause a false alarm.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from dpsieve.exact.binomial import at_least, masses
from dpsieve.types import Floats

MOST_EPSILON = 30.0
_ROUNDS = 50


def rate_low(successes: ArrayLike, trials: ArrayLike, error: float) -> Floats:
    """Return lower Clopper-Pearson bounds, each above the true rate with probability at most `error`."""
    from scipy.special import betaincinv

    k, n = np.asarray(successes, np.float64), np.asarray(trials, np.float64)
    low = betaincinv(np.maximum(k, 1), n - np.maximum(k, 1) + 1, error)
    return np.asarray(np.where(k == 0, 0.0, low), dtype=np.float64)


def rate_high(successes: ArrayLike, trials: ArrayLike, error: float) -> Floats:
    """Return upper Clopper-Pearson bounds, each below the true rate with probability at most `error`."""
    return 1.0 - rate_low(np.asarray(trials) - np.asarray(successes), trials, error)


def epsilon_from_rates(
    more: ArrayLike, runs: ArrayLike, less: ArrayLike, neighbour_runs: ArrayLike, delta: float, level: float
) -> Floats:
    """Return lower bounds on epsilon, with confidence `level` each; 0 where the rates show nothing.

    >>> float(epsilon_from_rates(600, 1000, 100, 1000, 0.0, 0.95).round(2))
    1.55
    """
    error = (1 - level) / 2
    gain = rate_low(more, runs, error) - delta
    base = rate_high(less, neighbour_runs, error)
    return np.maximum(np.log(np.maximum(gain, 1e-300) / base), 0.0)


def p_value_of_guesses(parts: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Return the largest probability of so many correct guesses under (epsilon, delta)-privacy."""
    if correct <= 0:
        return 1.0
    accuracy = 1 / (1 + math.exp(-epsilon))
    tail = float(at_least(guesses, correct, accuracy))
    if not delta:
        return tail
    steps = np.arange(1, correct + 1)
    within = np.cumsum(masses(guesses, correct - steps, accuracy))
    return min(1.0, tail + 2 * parts * delta * float((within / steps).max()))


def epsilon_from_guesses(parts: int, guesses: int, correct: int, delta: float, level: float) -> float:
    """Return a lower bound on epsilon, with confidence `level`, from correct guesses of fair coins.

    >>> round(epsilon_from_guesses(1000, 1000, 731, 1e-9, 0.95), 2)
    0.88
    """
    return _last(lambda epsilon: p_value_of_guesses(parts, guesses, correct, epsilon, delta) <= 1 - level)


def detectable_by_rates(runs: int, neighbour_runs: int, epsilon: float, delta: float, level: float) -> float:
    """Return the least epsilon of a mechanism that so many runs expose, with its best event and the rates expected."""
    shares = np.concatenate([np.geomspace(1e-6, 0.5, 200), 1 - np.geomspace(0.5, 1e-6, 200)[1:]])

    def exposed(true: float) -> bool:
        more = np.minimum(math.exp(true) * shares + delta, 1 - (1 - shares - delta) * math.exp(-true))
        shown = epsilon_from_rates(
            np.rint(more * runs), runs, np.rint(shares * neighbour_runs), neighbour_runs, delta, level
        )
        return bool(shown.max() > epsilon)

    return _first(exposed)


def detectable_by_guesses(parts: int, guesses: int, epsilon: float, delta: float, level: float) -> float:
    """Return the least epsilon of a mechanism that so many guesses expose, where each guess is as good as possible."""

    def exposed(true: float) -> bool:
        correct = math.floor(guesses / (1 + math.exp(-true)))
        return p_value_of_guesses(parts, guesses, correct, epsilon, delta) < 1 - level

    return _first(exposed)


def _first(holds: Callable[[float], bool]) -> float:
    """Return the least epsilon for which a monotone statement holds; infinity where none does."""
    if not holds(MOST_EPSILON):
        return math.inf
    low, high = 0.0, MOST_EPSILON
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _last(holds: Callable[[float], bool]) -> float:
    """Return the largest epsilon for which a statement holds that is true for small ones; 0 where none is."""
    if not holds(0.0):
        return 0.0
    first_failure = _first(lambda epsilon: not holds(epsilon))
    return min(first_failure, MOST_EPSILON)
