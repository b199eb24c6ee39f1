"""Zeros of a huge vector that noise lifts over a threshold: how many there are, and where, drawn without visiting all.

Each of n zeros is lifted with probability q, independently (Cormode, Procopiuc, Srivastava and Tran 2012). So their
number is Binomial(n, q), and given their number every set of places is equally likely. Both are drawn exactly, for n up
to 2^64: q is a ball that narrows with the precision, and the number comes from exact tables of its distribution, where
a large n is cut into parts of a moderate mean.
"""

import math
from collections.abc import Callable

import numpy as np

from dpsieve.exact.balls import Ball, ball, upper
from dpsieve.randomness.source import Source
from dpsieve.randomness.tables import ExactTable, FallingSums
from dpsieve.types import Words

_MEAN = 4096.0  # of a part: its table has about 1,200 rows


def binomial_of_rare(trials: int, rate: Callable[[], Ball], source: Source) -> int:
    """Return a draw of Binomial(trials, q), exactly; `rate` encloses q, 0 < q < 1, at the precision in force.

    It is meant for an irrational q such as the tail of a noise: cumulative probabilities must not be whole multiples of
    2^-64, on which no ball decides.

    >>> from dpsieve.randomness import SystemSource
    >>> binomial_of_rare(2**64, lambda: (-ball(40)).exp(), SystemSource()) < 300
    True
    """
    parts = max(1, math.ceil(trials * upper(rate) / _MEAN))
    size, longer = divmod(trials, parts)
    return sum(
        int(_table(length, rate).draw(count, source).sum())
        for length, count in ((size, parts - longer), (size + 1, longer))
        if length and count
    )


def distinct_places(count: int, below: int, excluded: Words, source: Source) -> Words:
    """Return `count` distinct numbers of [0, below), below <= 2^64, without the `excluded` sorted ones, each set alike.

    They are drawn as ranks among the numbers that are not excluded.
    """
    ranks = _distinct(count, below - len(excluded), source)
    before = excluded - np.arange(len(excluded), dtype=np.uint64)  # how many numbers are free before each
    return ranks + np.searchsorted(before, ranks, side="right").astype(np.uint64)


def _distinct(count: int, below: int, source: Source) -> Words:
    """Return a uniform set of numbers, sorted: repeated ones are dropped, and as many drawn again."""
    if 2 * count > below:
        rest = _distinct(below - count, below, source)
        return np.setdiff1d(np.arange(below, dtype=np.uint64), rest, assume_unique=True)
    found = np.empty(0, np.uint64)
    while len(found) < count:
        found = np.unique(np.concatenate([found, _uniform(count - len(found), below, source)]))
    return found


def _uniform(count: int, below: int, source: Source) -> Words:
    spare, last = np.uint64(64 - max(1, (below - 1).bit_length())), np.uint64(below - 1)
    found = np.empty(0, np.uint64)
    while len(found) < count:
        words = source.words(2 * (count - len(found)) + 16) >> spare
        found = np.concatenate([found, words[words <= last]])
    return found[:count]


def _table(trials: int, rate: Callable[[], Ball]) -> ExactTable:
    """Return the table of Binomial(trials, q), from weights that are 1 at its mean."""
    middle = math.floor(trials * upper(rate))

    def odds() -> Ball:
        q = rate()
        return q / (1 - q)

    def up(k: int) -> Ball:  # P[middle + k] / P[middle]
        if k > trials - middle:
            return ball(0)
        return _rising(trials - middle - k + 1, k) / _rising(middle + 1, k) * odds() ** k

    def down(k: int) -> Ball:  # P[middle - 1 - k] / P[middle]
        if k >= middle:
            return ball(0)
        return _rising(middle - k, k + 1) / _rising(trials - middle + 1, k + 1) / odds() ** (k + 1)

    above = FallingSums(up, lambda weight, k: weight * (trials - middle - k) / (middle + k + 1) * odds())
    under = FallingSums(down, lambda weight, k: weight * (middle - 1 - k) / (trials - middle + 2 + k) / odds())

    def cdf(k: int) -> Ball:
        whole = above(0) + (under(0) if middle else 0)
        if k >= middle:
            return 1 - above(k - middle + 1) / whole
        return under(middle - 1 - k) / whole if middle else ball(0)

    return ExactTable(cdf, near=middle)


def _rising(start: int, count: int) -> Ball:
    """Enclose start (start + 1) ... (start + count - 1)."""
    product = ball(1)
    for factor in range(start, start + count):
        product *= factor
    return product
