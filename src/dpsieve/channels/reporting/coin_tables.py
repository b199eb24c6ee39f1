"""The coins that show keys: a table in which each row is the largest that its unit's other keys allow, and its check.

A unit is added or removed. It holds at most m keys, fixed before anything is drawn. For a key that i others hold, the
unit changes the coin p(i) to p(i + 1); from row `first` on it also moves the mean of a count with Gaussian noise by up
to one step of `distance` deviations, which shows where the coin does. To show it elsewhere too would be another
mechanism, so nothing is lost: this is a pair of reports as `privacy.products` has them. There, no product of m pairs
costs more than the largest number of a pair, for m equal ones. So all rows may grow until each number is delta.

Rows count in steps of `max_rows`: a unit that adds up to as many rows to a key moves it by one step, or not at all,
and its count by at most the distance. Both are dominated by a whole step, and a count alone by the last pair.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpsieve.channels.grid import fraction
from dpsieve.channels.reporting.reporting_tables import ReportingTable, table_of
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.privacy.products import product_deltas
from dpsieve.types import Floats

_SPARE = 0.99  # of delta, for which tables are grown: for few points of the integrals there, and in the check
_POINTS, _CHECKED, _CHUNK = 128, 512, 256
LONGEST = 120_000


class Coins(NamedTuple):
    """What a table is grown for: public numbers. `distance` is what one step adds to a count, in deviations."""

    keys: int
    epsilon: float
    delta: float
    power: float
    first: int
    distance: float


@lru_cache(maxsize=8)
def coin_table(coins: Coins) -> ReportingTable:
    """Return the table of p(0), p(1), ... on the 2^-128 grid; the last row stands for one."""
    # The last row is `first`, or for slow coins less than three times that: what is longer is no saved one.
    rows, rest = grown(coins, 1.0, min(LONGEST, 4 * coins.first + 64))
    if not len(rows):
        raise InvalidValue("power, first and sigma lead to no table for this epsilon and delta. Pass the saved ones.")
    return table_of(rows, rest)


def grown(coins: Coins, until: float, most: int, points: int = _POINTS) -> tuple[Floats, Floats]:
    """Return p(0), p(1), ... up to the first row of at least `until`, and 1 - p; empty where there is no such row."""
    from dpsieve.channels.reporting.coin_loops import grow_coins

    rows, rest = np.empty(most), np.empty(most)
    tangents = np.tan((np.arange(points) + 0.5) * (math.pi / 2 / points)) ** 2
    keys, epsilon, delta, power, first, distance = coins
    count = grow_coins(keys, epsilon, power, delta * _SPARE, first, distance, until, tangents, rows, rest)
    return rows[:count].copy(), rest[:count].copy()


@lru_cache(maxsize=64)
def certified(coins: Coins) -> float:
    """Return the bound on delta of the table for these coins; raise where there is none, or it breaks the promise."""
    return worst_number(coin_table(coins), coins)


@lru_cache(maxsize=64)
def of_one_key(coins: Coins) -> float:
    """Return the bound on delta of a single key; it is far below delta, so few points say enough."""
    return worst_number(coin_table(coins), coins._replace(keys=1), points=_CHECKED // 4)


def noise_number(coins: Coins, *, rough: bool = False) -> float:
    """Return the number of a key that always shows: that of its noise."""
    sure = np.array([[1.0, 0.0]])
    distance, use = np.array([coins.distance]), (coins.keys, coins.epsilon)
    return float(product_deltas(sure, sure, distance, *use, power=coins.power, rough=rough)[0])


def worst_number(table: ReportingTable, coins: Coins, points: int = _CHECKED) -> float:
    """Return the largest number of all pairs of neighbouring rows, in both directions, from the integers drawn from.

    It bounds delta of a whole unit. A table that falls somewhere, or shows a key that nobody holds, is refused.
    """
    high, low, last = table.high, table.low, table.last
    falls = (high[1:] < high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] < low[:-1]))
    if high[0] or low[0] or falls[:-1].any():
        raise NotCertified("a key that nobody holds could be shown, or a more frequent one shows less often")
    shown = fraction(high, low)
    silent = fraction(~high, ~low) + 2.0**-128
    shown[last], silent[last] = 1.0, 0.0
    rows = np.column_stack((shown, silent))
    shifts = np.where(np.arange(last) >= coins.first, coins.distance, 0.0)
    worst = noise_number(coins)
    for start in range(0, last, _CHUNK):
        part = slice(start, min(start + _CHUNK, last))
        pair = rows[part], rows[start + 1 : part.stop + 1]
        for ours, theirs in (pair, pair[::-1]):
            found = _numbers(ours, theirs, shifts[part], coins, points)
            if (found > coins.delta).any():
                at = start + int(np.argmax(found > coins.delta))
                raise NotCertified(f"the coins of rows {at:,} and {at + 1:,} differ by more than a step may")
            worst = max(worst, float(found.max()))
    return worst


def _numbers(ours: Floats, theirs: Floats, shifts: Floats, coins: Coins, points: int) -> Floats:
    """Return the numbers of some pairs: by few points, and those that are not clearly below delta by more."""
    found = np.full(len(shifts), math.inf)
    for finer in (points, 16 * points):
        some = np.flatnonzero(found > coins.delta)
        if len(some):
            use = (shifts[some], coins.keys, coins.epsilon)
            found[some] = product_deltas(ours[some], theirs[some], *use, power=coins.power, points=finer)
    return found
