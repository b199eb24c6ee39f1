"""Good parameters for selection by sums of weights: the power of its account, and the grid of weights."""

import math
from functools import lru_cache

from dpsieve.channels.reporting.reporting_tables import MOST_ROWS, Promise, rough_crossing
from dpsieve.errors import InvalidValue
from dpsieve.exact.search import minimise
from dpsieve.privacy.contribution import Weight
from dpsieve.privacy.stages import largest_mu, split

MOST_BITS = 12
_ROUGH, _ROUGH_ROWS = 5, 1500  # the search works with this number of weights, and tables about this long
_GUESS, _RATIO, _WAY = 1.2, 1.25, 8  # of the power, in units of ln(1/delta) / epsilon, and steps to either side
_WORK, _SOLVE = 2_000_000, 60  # how many steps a table may take; finding a row costs as much as 60 of them
_FINE, _COARSE = 100, 3  # a light weight need not be above the first, and should not be below the second
_MANY = 20  # a unit with this number of times the least keys has a light weight


@lru_cache(maxsize=64)
def best_power(
    epsilon: float, delta: float, share: float, mu: float, lightest: float, heaviest: float
) -> tuple[float, float]:
    """Return a good power for weights from `lightest` to `heaviest`, and the sum that is reported half of the time.

    Selection has this share of the budget, after a first stage of distance mu. Every power is sound; the search
    minimises the sum that is reported half of the time, on a rough grid, over the distance that is left for noise which
    follows, to the power of its share. A smaller epsilon has nearly the same best
    power in units of 1/epsilon, and only longer tables.
    """
    shorter = _ROUGH_ROWS * heaviest / 2 * epsilon / math.log(1 / delta)
    if shorter < 1:
        best, enough = best_power(epsilon / shorter, delta, share, mu / shorter, lightest, heaviest)
        return best / shorter, enough / shorter
    grid = 1 if lightest == heaviest else min(_ROUGH, max(2, int(2 * shorter)))
    steps = tuple(range(max(1, math.ceil(grid * lightest / heaviest)), grid + 1))
    point = heaviest / grid

    def half(x: float) -> float:
        power = math.exp(x)
        rough = Promise(epsilon, power, *split(power, delta, mu), share * point**2, 0, steps)
        return rough_crossing(rough, 20 * _ROUGH_ROWS) * point

    def score(x: float) -> float:
        left = largest_mu(split(math.exp(x), delta, mu)[1], 1 - share, epsilon, math.exp(x)) if share < 1 else 1.0
        return half(x) / left ** (1 - share)

    guess, step = math.log(_GUESS * (1 + math.log(1 / delta)) / epsilon), math.log(_RATIO)
    start, least = 0, score(guess)
    for way in (1, -1):  # downhill
        i = start + way
        while abs(i) <= _WAY and ((found := score(guess + i * step)) < least or math.isinf(least)):
            start, least, i = i, found, i + way
    near = guess + start * step
    x = minimise(score, near - step, near + step, rounds=6)
    if math.isinf(found := half(x)):
        budget = f"epsilon={epsilon:.4g} and delta={delta:.4g}"
        raise InvalidValue(f"share={share:.4g} leaves too little at {budget}. Raise one of them.")
    return math.exp(x), found


def finest_bits(half: float, least: int, max_keys: int, *, every: bool) -> int:
    """Return a grid on which rounding weights costs little and whose table is made in well under a second.

    The table is for steps of every size, or for those alone that whole units of up to `max_keys` keys make.
    """
    for bits in range(1, MOST_BITS):
        weights = Weight(bits + 1, least).of_keys(max_keys)
        lightest = weights[min(max_keys, _MANY * least) - 1]
        rows = 2 * half * 2 ** (bits + 1)
        work = rows * (_SOLVE + (weights[0] if every else len(set(weights))))
        if lightest >= 2 * _FINE or (lightest >= 2 * _COARSE and work > _WORK) or rows > MOST_ROWS / 2:
            return bits
    return MOST_BITS
