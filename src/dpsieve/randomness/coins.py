"""Binomial counts and biased coins, drawn exactly: a rate is a float, hence a dyadic rational, and is taken as it is.

A trial succeeds when a uniform number U in [0, 1) is below the rate p. Compare the two bit by bit, for all trials of
an entry together. Of m trials that agree with p so far, Z ~ Binomial(m, 1/2) have 0 as their next bit. Where the bit
of p is 1, those Z are below p and succeed, and the others still agree; where it is 0, the m - Z others are above p and
fail, and Z still agree. It ends when no trial agrees any more, or when p has no further bits: what agrees then is
not below p. So the count has exactly the distribution Binomial(n, p).

Binomial(m, 1/2) is the number of ones among m random bits. Whole blocks of 2^20 and of 2^12 trials are drawn from exact
tables instead, one word each, so that 10^12 trials cost about two million words.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from flint import arb
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import current_precision
from dpsieve.randomness.source import Source, resolve
from dpsieve.randomness.tables import ExactTable

Integers = NDArray[np.int64]

MOST_TRIALS = 10**12
_BLOCKS = (20, 12)  # a table of 2^20 trials has 9,500 entries, close to the most that a table may have
_CHUNK = 1 << 18  # draws made at a time: memory is bounded whatever is asked for
_WORD = 64


def binomial(counts: ArrayLike, rate: float, *, source: Source | None = None) -> Integers:
    """Return, for each n in `counts`, an independent draw of Binomial(n, rate), exactly.

    Args:
        counts: numbers of trials, each from 0 to 10^12.
        rate: the probability of success of each trial, from 0 to 1; the float is taken as the number that it is.
        source: randomness for tests.

    >>> binomial([5, 0, 10**12], 1.0).tolist()
    [5, 0, 1000000000000]
    >>> abs(int(binomial([10**12], 0.25)[0]) - 25 * 10**10) < 10**8
    True
    """
    hint = "Pass numbers of trials from 0 to 10^12."
    trials = validate.integers("counts", counts, hint=hint)
    if len(trials) and not 0 <= int(trials.min()) <= int(trials.max()) <= MOST_TRIALS:
        raise InvalidValue(f"counts holds a number below 0 or above 10^12. {hint}")
    p, source = _exact(rate), resolve(source)
    if p == 1:
        return trials.copy()
    successes = np.zeros(len(trials), np.int64)
    active = np.flatnonzero(trials)
    tied = trials[active]
    while p and len(active):
        p *= 2
        zeros = _halves(tied, source)
        if p >= 1:
            p -= 1
            successes[active] += zeros
            tied = tied - zeros
        else:
            tied = zeros
        still = np.flatnonzero(tied)
        active, tied = active[still], tied[still]
    return successes


def coins(count: int, rate: float, *, source: Source | None = None) -> NDArray[np.bool_]:
    """Return `count` independent coins, each True with probability exactly `rate`; one word decides nearly every one.

    >>> coins(3, 1.0).tolist(), coins(2, 0.0).tolist()
    ([True, True, True], [False, False])
    """
    count = validate.whole("count", count, high=10**9, hint="Pass how many coins to toss, a billion at most.")
    p, source = _exact(rate), resolve(source)
    if p == 1:
        return np.ones(count, np.bool_)
    heads = np.zeros(count, np.bool_)
    for start in range(0, count, _CHUNK):
        _toss(heads[start : start + _CHUNK], p, source)
    return heads


def _toss(heads: NDArray[np.bool_], p: Fraction, source: Source) -> None:
    """Set the coins whose uniform number is below p < 1, comparing 64 bits at a time while they tie."""
    open_ = np.arange(len(heads))
    while p and len(open_):
        p *= 1 << _WORD
        edge = np.uint64(int(p))
        words = source.words(len(open_))
        heads[open_[words < edge]] = True
        open_, p = open_[words == edge], p - int(p)


def _exact(rate: float) -> Fraction:
    return Fraction(validate.between("rate", rate, 0.0, 1.0, hint="Pass a probability such as rate=0.1."))


def _halves(trials: Integers, source: Source) -> Integers:
    """Return a draw of Binomial(m, 1/2) for each m > 0."""
    found, rest = np.zeros(len(trials), np.int64), trials
    for bits in _BLOCKS:
        _add_up(found, rest >> bits, partial(_blocks, bits, source))
        rest = rest & ((1 << bits) - 1)
    _add_up(found, rest >> 6, lambda count: np.bitwise_count(source.words(count)))
    short = np.flatnonzero(rest & 63)
    spare = (_WORD - (rest[short] & 63)).astype(np.uint64)
    found[short] += np.bitwise_count(source.words(len(short)) >> spare)
    return found


def _blocks(bits: int, source: Source, count: int) -> Integers:
    return _fair_coins(bits).draw(count, source)


def _add_up(found: Integers, lengths: Integers, draw: Callable[[int], NDArray[np.integer]]) -> None:
    """Add to each entry the sum of as many draws as its length says."""
    some = np.flatnonzero(lengths)
    ends = np.cumsum(lengths[some])
    begins = ends - lengths[some]
    for start in range(0, int(ends[-1]) if len(ends) else 0, _CHUNK):
        stop = min(start + _CHUNK, int(ends[-1]))
        first, last = np.searchsorted(ends, start, side="right"), np.searchsorted(begins, stop, side="left")
        places = np.maximum(begins[first:last] - start, 0)
        found[some[first:last]] += np.add.reduceat(draw(stop - start), places, dtype=np.int64)


@lru_cache(maxsize=len(_BLOCKS))
def _fair_coins(bits: int) -> ExactTable:
    """Return the table of the number of heads among 2^bits fair coins."""
    return ExactTable(_Heads(1 << bits).cdf, near=1 << (bits - 1))


class _Heads:
    """The distribution function of Binomial(n, 1/2), n even, in balls."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._sums: tuple[int, list[arb]] = (0, [])

    def cdf(self, k: int) -> arb:
        """Enclose P[X <= k]; the distribution is symmetric about n / 2."""
        if 2 * k >= self._n:
            return 1 - self._lower(self._n - 1 - k)
        return self._lower(k)

    def _lower(self, k: int) -> arb:
        """Enclose P[X <= k] for k < n / 2."""
        if k < 0:
            return arb(0)
        if self._sums[0] != current_precision():
            self._sums = (current_precision(), self._below_the_middle())
        depth = self._n // 2 - 1 - k
        return self._sums[1][depth] if depth < len(self._sums[1]) else self._beyond(k, self._mass(k))

    def _below_the_middle(self) -> list[arb]:
        """Return P[X < n/2], P[X < n/2 - 1], and so on until they are negligible."""
        k = self._n // 2 - 1
        masses = [self._mass(k)]
        while k > 0 and not masses[-1] < arb(2) ** -current_precision():
            masses.append(masses[-1] * k / (self._n - k + 1))
            k -= 1
        sums = [self._beyond(k, masses.pop())]
        for mass in reversed(masses):
            sums.append(sums[-1] + mass)
        return sums[::-1]

    def _beyond(self, k: int, mass: arb) -> arb:
        """Enclose P[X <= k], given P[X = k]: the ratio of neighbours falls, so a geometric series bounds the sum."""
        return mass.union(mass / (1 - arb(k) / (self._n - k + 1)))

    def _mass(self, k: int) -> arb:
        return arb.bin_uiui(self._n, k) * arb(2) ** -self._n
