"""Good parameters for 'report first, then count', from public numbers; every choice that is made here is sound.

The power is searched such that keys of the lowest frequency show half of the time; the noise is then the least that it
allows (goal 'keys'). For the goal 'counts' tokens begin where nine of ten keys show, and more noise leaves room for the
coins from there on: the expected error of what is published is made small, that is the sum over frequencies i, weighted
by 1/i^2 (Zipf's law), of i where a key does not show, and of the error of its token where it does.
"""

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import erfcx, ndtr

from dpsieve.channels.reporting.coin_tables import LONGEST, Coins, certified, grown
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.exact.search import ball, minimise, smallest, upper
from dpsieve.privacy.curves.gaussian import gaussian_sigma
from dpsieve.types import Floats

GOALS = ("counts", "keys")
_FROM = 0.9  # counts begin where this share of keys shows
_LEAST = 0.5  # a smaller epsilon has nearly the same best power, in units of 1/epsilon; its tables are only longer
_NEVER = 1 << 40
_MOST, _ROUGH = 1 << 15, 32  # rows of a rough table, and points of its integrals
_NOISES = (1.02, 1.04, 1.07, 1.1, 1.15, 1.2, 1.4)  # over the least
_STEPS = 8  # to either side of the first guess of a power
_SPARE = 0.995  # of delta, for what the check rounds up


@lru_cache(maxsize=64)
def chosen_coins(epsilon: float, delta: float, keys: int, goal: str) -> tuple[float, int, float]:
    """Return the power, the row from which on tokens count, and the deviation of their noise."""
    rough = max(epsilon, _LEAST)
    search, real = _Search(rough, delta, keys), _Search(epsilon, delta, keys)
    power = search.power()
    if 2 * search.half(power) * rough / epsilon > LONGEST:
        raise InvalidValue(f"epsilon={epsilon:g} needs too long a table for {keys:,} keys. Use mechanism 'gaussian'.")
    real_power = power * rough / epsilon
    sigma, choices = real.sigma(real_power), [1.0]
    if goal == "counts":
        least = search.sigma(power)
        choices = [*sorted(_NOISES, key=lambda noise: search.cost(power, noise * least)), 1.0]
    for noise in choices:
        rows, first = real.counted(real_power, sigma * noise, counts=noise > 1)
        with suppress(InvalidValue, NotCertified):  # floats may miss the limit in some far corner
            if len(rows):
                certified(Coins(keys, epsilon, delta, real_power, first, upper(lambda: 1 / ball(sigma * noise))))  # noqa: B023
                return real_power, first, sigma * noise
    raise InvalidValue(f"epsilon={epsilon:g} leaves no room for {keys:,} keys. Use mechanism 'gaussian'.")


@lru_cache(maxsize=64)
def rough_half(epsilon: float, delta: float, keys: int) -> float:
    """Return nearly the frequency at which keys show half of the time."""
    search = _Search(max(epsilon, _LEAST), delta, keys)
    return search.half(search.power()) * search.epsilon / epsilon


@dataclass(frozen=True)
class _Search:
    """A budget for units of some keys, and what choices make of it."""

    epsilon: float
    delta: float
    keys: int

    def rows(
        self, power: float, first: int = _NEVER, sigma: float = math.inf, until: float = 0.5, most: int = _MOST
    ) -> Floats:
        """Return the coins; none where there is no table of that length."""
        points = {} if most == LONGEST else {"points": _ROUGH}
        return grown(Coins(self.keys, self.epsilon, self.delta, power, first, 1 / sigma), until, most, **points)[0]

    def half(self, power: float, most: int = _MOST) -> float:
        """Return the frequency at which keys show half of the time; infinity where that needs more than `most` rows."""
        rows = self.rows(power, most=most)
        return len(rows) - 1 - float((rows[-1] - 0.5) / (rows[-1] - rows[-2])) if len(rows) else math.inf

    def power(self) -> float:
        """Return a good power."""
        guess = 1.4 * math.log(1 / self.delta) / self.epsilon

        def half(x: float, most: float = math.inf) -> float:
            return self.half(guess * math.exp(x), int(min(_MOST, most)))

        start, best = 0, math.inf
        for way in (1, -1):  # downhill in steps of 0.2, and no table longer than the best one is of use
            x = start if best == math.inf else start + way
            while abs(x) <= _STEPS and ((found := half(x / 5, best + 3)) < best or best == math.inf):
                start, best, x = x, found, x + way
        return guess * math.exp(minimise(half, start / 5 - 0.2, start / 5 + 0.2, rounds=8))

    def sigma(self, power: float) -> float:
        """Return the least deviation of noise that keys which always show may have.

        For a Gaussian pair of distance mu, the number of `privacy.products` for m keys is
        e^(x^2 - power epsilon) erfcx(x) / (2c) with x = c mu sqrt(m/2).
        """
        c = math.sqrt(power * (power + 1))

        def kept(sigma: float) -> bool:
            x = c * math.sqrt(self.keys / 2) / sigma
            number = x * x - power * self.epsilon + math.log(erfcx(x)) - math.log(2 * c)
            return number <= math.log(self.delta * _SPARE)

        least = gaussian_sigma(self.epsilon, self.delta, count=self.keys)
        return smallest(kept, 0.99 * least, 100 * least, tolerance=1e-9) if kept(100 * least) else math.inf

    def counted(self, power: float, sigma: float, *, counts: bool = True, most: int = LONGEST) -> tuple[Floats, int]:
        """Return the coins, and the row from which on tokens count: where nine of ten keys show, or else all do."""
        if not counts:
            rows = self.rows(power, until=1.0, most=most)
            return rows, len(rows) - 1
        first = len(self.rows(power, until=_FROM, most=most)) - 1
        return (self.rows(power, first, sigma, until=1.0, most=most), first) if first > 0 else (np.empty(0), 0)

    def cost(self, power: float, sigma: float) -> float:
        """Return the expected error of what is published."""
        rows, first = self.counted(power, sigma, most=_MOST)
        return expected_error(rows, first, sigma) if len(rows) else math.inf


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
