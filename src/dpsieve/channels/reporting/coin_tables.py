"""The coins that show keys: a table that grows by one step up to some row and slowly after it, made and checked."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np

from dpsieve.channels.grid import ONE, integers
from dpsieve.channels.reporting.reporting_tables import Promise, ReportingTable, reporting_table
from dpsieve.channels.reporting.several_keys import Coins
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.exact.search import Ball, ball, precision

_BITS = 192


def coin_table(coins: Coins, first: int) -> ReportingTable:
    """Return the rows p(0), p(1), ... whose steps up to row `first` keep `coins.step`, and later ones `coins.slow`.

    Without a slow part `first` is the first row that always shows. With one, the table goes over to the rows of the
    slow table at the highest of them that is not above its own row `first`; that step is smaller than is allowed.
    """
    table = _table(coins, coins.step)
    if not coins.slow:
        if first != table.last:
            raise InvalidValue("first is not the first row that always shows, though slow is 0. Pass the saved ones.")
        return table
    if first >= table.last:
        raise InvalidValue("first is beyond the rows, though slow is above 0. Pass the saved ones.")
    later = _table(coins, coins.slow)
    rows = integers(later.high, later.low)
    limit = int(table.high[first]) << 64 | int(table.low[first])
    start = int(np.searchsorted(np.array(rows[:-1], dtype=object), limit, side="right")) - 1
    high, low = (np.append(a[:first], b[start:]) for a, b in ((table.high, later.high), (table.low, later.low)))
    return ReportingTable(high, low)


def check_coins(table: ReportingTable, coins: Coins, first: int) -> None:
    """Check, by proven bounds on the integers that are drawn from, what `Coins` promises; else raise NotCertified.

    The coins of rows i and i + 1 are q and p. Where p - q is at most the leak, both can be made the same coin. Else
    P = (p - leak) / (1 - leak) and Q = q / (1 - leak) are compared: P^a Q^(1-a) + (1-P)^a (1-Q)^(1-a), and the same
    with P and Q exchanged, must be at most e^((a-1) t). The last row is one, and within the leak of the one before.
    """
    rows = [*integers(table.high, table.low)[:-1], ONE]
    if rows[0]:
        raise NotCertified("a key that nobody holds could be shown")
    leak = math.floor(Fraction(coins.leak) * ONE)
    with precision(_BITS):
        a, rest = ball(coins.order), ball(ONE - leak)
        limits = [((a - 1) * ball(t)).exp() for t in (coins.step, coins.slow)]
        for i, (q, p) in enumerate(pairwise(rows)):
            if p < q or (p - q > leak and not _close(a, leak, rest, q, p, limits[i >= first])):
                raise NotCertified(f"the coins of rows {i:,} and {i + 1:,} differ by more than a step may")


def _close(a: Ball, leak: int, rest: Ball, q: int, p: int, limit: Ball) -> bool:
    if not q or p == ONE:
        return False
    x, not_x = ball(p - leak) / rest, ball(ONE - p) / rest
    y, not_y = ball(q) / rest, ball(ONE - leak - q) / rest
    up, down = (x / y).log(), (not_x / not_y).log()
    there = y * (a * up).exp() + not_y * (a * down).exp()
    back = x * (-a * up).exp() + not_x * (-a * down).exp()
    return bool(there <= limit and back <= limit)


def _table(coins: Coins, tau: float) -> ReportingTable:
    return reporting_table(Promise(coins.order, tau, coins.leak, 0, (1,)))
