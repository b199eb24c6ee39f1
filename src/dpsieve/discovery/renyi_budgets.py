"""How to divide (epsilon, delta) for Renyi selection: the order, what may leak, and the grid of weights."""

import math
from dataclasses import dataclass
from functools import lru_cache

from dpsieve.channels.reporting.reporting_tables import MOST_ROWS, Promise, rough_crossing
from dpsieve.errors import InvalidValue
from dpsieve.exact.search import minimise, smallest
from dpsieve.privacy.contribution import Weight
from dpsieve.privacy.curves.renyi import renyi_tau

MOST_BITS = 12
_BELOW = 1 - 1e-9  # both parts of delta together stay below it, whatever is rounded
_ROUGH, _ROUGH_ROWS = 5, 2500  # the search works with this number of weights, and tables about this long
_RATIO, _ORDERS = 1.35, 13  # the orders that are tried first
_WORK, _SOLVE = 3_000_000, 30  # how many steps a table may take; finding a row costs as much as 30 of them
_FINE, _COARSE = 100, 3  # a light weight need not be above the first, and should not be below the second
_MANY = 20  # a unit with this number of times the least keys has a light weight


@dataclass(frozen=True)
class Budget:
    """An order, the whole tau that epsilon and delta leave at it, and the leak.

    A mechanism whose cost beyond the leak is (order, tau)-Renyi privacy is (epsilon, delta)-private. `half` is roughly
    the sum of weights, in units of 2^bits, that is reported half of the time where selection spends a share of tau.
    """

    order: float
    tau: float
    leak: float
    half: float


@lru_cache(maxsize=64)
def best_budget(
    epsilon: float, delta: float, share: float, lightest: float, heaviest: float, order: float | None
) -> Budget:
    """Return a good budget for weights from `lightest` to `heaviest`, where selection spends this share of tau.

    The guarantee holds for every order and leak, so how good they are is never proven. The search minimises the sum
    that is reported half of the time, on a rough grid.
    """
    scale = math.log(1 / delta) / epsilon  # half of the time is a little above this
    shorter = _ROUGH_ROWS * heaviest / 2 / scale
    if shorter < 1 and order is None:
        return _from_larger_epsilon(
            best_budget(epsilon / shorter, delta, share, lightest, heaviest, None), epsilon, delta, shorter
        )
    grid = 1 if lightest == heaviest else min(_ROUGH, max(2, int(2 * shorter)))
    steps = tuple(range(max(1, math.ceil(grid * lightest / heaviest)), grid + 1))
    point, most = heaviest / grid, math.ceil(20 * _ROUGH_ROWS / min(1.0, shorter))

    def half(order: float, kept: float) -> float:
        tau = _tau(order, epsilon, delta * kept)
        if not tau > 0.02 * epsilon:
            return math.inf
        rough = Promise(order, tau * share * point**2, delta * (1 - kept) * point**2, 0, steps)
        return rough_crossing(rough, most) * point

    def best_kept(order: float) -> float:
        return minimise(lambda kept: half(order, kept), 0.01, 0.95, rounds=6)

    if order is None:
        base = (1 + scale) / 2
        near = min((base * _RATIO**k for k in range(_ORDERS)), key=lambda x: min(half(1 + x, 0.1), half(1 + x, 0.6)))
        around = math.log(near / _RATIO), math.log(near * _RATIO)
        order = 1 + math.exp(minimise(lambda x: half(1 + math.exp(x), best_kept(1 + math.exp(x))), *around, rounds=5))
    kept = best_kept(order)
    if math.isinf(found := half(order, kept)):
        text = (
            f"order={order:.4g} and share={share:.4g} leave too little at epsilon={epsilon:.4g} and delta={delta:.4g}."
        )
        raise InvalidValue(f"{text} Raise one of them, or leave the order out.")
    return Budget(order, renyi_tau(order, epsilon, delta * kept * _BELOW), delta * (1 - kept) * _BELOW, found)


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


def _from_larger_epsilon(found: Budget, epsilon: float, delta: float, ratio: float) -> Budget:
    """Return a budget for a small epsilon: what leaks, and tau / epsilon, hardly depend on epsilon there."""
    kept = 1 - found.leak / _BELOW / delta
    order = smallest(lambda order: _tau(order, epsilon, delta * kept) >= found.tau * ratio, 1.001, 1e8, tolerance=1e-6)
    return Budget(order, renyi_tau(order, epsilon, delta * kept * _BELOW), found.leak, found.half * ratio**-0.9)


def _tau(order: float, epsilon: float, delta: float) -> float:
    """Return `renyi_tau` in floats, also where it is below zero."""
    t = order - 1
    return epsilon + (math.log(delta) - t * math.log(t) + (1 + t) * math.log1p(t)) / t
