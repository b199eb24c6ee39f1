"""Bernoulli and binomial draws, uniform numbers below a limit, and the outcomes of Gaussian tests, all exact.

A rate is a float, hence a dyadic rational, and is taken as it is. A trial succeeds when a uniform number in [0, 1) is
below the rate; the bits of all trials of an entry are compared together, and Binomial(m, 1/2) of those that still agree
have 0 as their next bit. Blocks of 2^20 and of 2^12 such trials are drawn from exact tables, one word each, so that
10^12 trials cost about two million words. A Gaussian test draws the answer alone, by the first 64 bits and the value of
Phi in floating point with a margin far above its error, and within the margin in ball arithmetic. Proof:
docs/background/randomness.md#coins-and-binomial-draws.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from flint import arb
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact import below
from dpsieve.exact.balls import upper
from dpsieve.randomness.source import Source, resolve
from dpsieve.randomness.tables import ExactTable, FallingSums, LazyUniform
from dpsieve.types import Bools, Floats, Ints, Words

MOST_TRIALS = 10**12
_BLOCKS = (20, 12)  # a table of 2^20 trials has 9,500 entries, close to the most that a table may have
_CHUNK = 1 << 18  # draws made at a time: memory stays bounded for any number of draws
_CACHED = 1 << 15  # comparisons made at a time: their arrays fit into the processor's cache
_MEAN = 4096.0  # of a part of the trials: its table has about 1,200 rows
_WORD, _TOP = 64, 2.0**64 - 2.0**11
_MARGIN = 2.0**-40  # relative; where Phi is at least 2^-70 its floating-point value is right to 2^-44


def binomial(counts: ArrayLike, rate: float, *, source: Source | None = None) -> Ints:
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
        raise InvalidValue(f"counts holds a number below 0 or above 10^12. {hint}", argument="counts")
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


def coins(count: int, rate: float, *, source: Source | None = None) -> Bools:
    """Return `count` independent coins, each True with probability exactly `rate`; one word decides nearly every one.

    >>> coins(3, 1.0).tolist(), coins(2, 0.0).tolist()
    ([True, True, True], [False, False])
    """
    count = validate.whole("count", count, high=10**9, hint="Pass how many coins to toss, a billion at most.")
    p, source, heads = float(_exact(rate)), resolve(source), np.zeros(count, np.bool_)
    if p in (0.0, 1.0):
        return ~heads if p else heads
    for start in range(0, count, _CHUNK):
        heads[start : start + _CHUNK] = bernoulli(np.full(min(_CHUNK, count - start), p), source)
    return heads


def bernoulli(probabilities: Floats, source: Source) -> Bools:
    """Return for each probability in [0, 1] whether a uniform number is below it; the floats are taken as exact."""
    heads = np.empty(len(probabilities), np.bool_)
    for start in range(0, len(heads), _CACHED):
        part = probabilities[start : start + _CACHED]
        heads[start : start + _CACHED] = _compare(_digits(part), source) | (part == 1.0)
    return heads


def bernoulli_words(high: Words, low: Words, source: Source) -> Bools:
    """Return for each 128-bit number whether a uniform one is below it."""
    return _compare((high, low), source)


def uniform_below(high: Words, low: Words, source: Source) -> tuple[Words, Words]:
    """Return a uniform number below each 128-bit limit above zero, by rejection sampling."""
    drawn = np.array([high, low])
    open_ = np.arange(len(high))
    while len(open_):
        top, bottom = high[open_], low[open_]
        proposed = source.words(2 * len(open_)).reshape(2, -1)
        proposed &= np.array([_mask(top), np.where(top > 0, ~np.uint64(0), _mask(bottom))])
        drawn[:, open_] = proposed
        open_ = open_[~below(proposed[0], proposed[1], top, bottom)]
    return drawn[0], drawn[1]


def gaussian_test(values: Floats, threshold: float, sigma: float, *, source: Source | None = None) -> Bools:
    """Return, for each finite value v, whether v + N(0, sigma^2) >= threshold, drawn exactly and independently.

    The floats are taken as the numbers that they are. Sigma is above 0.

    >>> gaussian_test(np.array([-50.0, 50.0]), 1.0, 1.0).tolist()
    [False, True]
    """
    source, passed = resolve(source), np.zeros(len(values), np.bool_)
    for start in range(0, len(values), _CHUNK):
        _test(values[start : start + _CHUNK], threshold, sigma, passed[start : start + _CHUNK], source)
    return passed


def _test(values: Floats, threshold: float, sigma: float, passed: Bools, source: Source) -> None:
    from scipy.special import ndtr

    words = source.words(len(values))
    uniform = words * 2.0**-_WORD
    chance = ndtr((values - threshold) / sigma)
    margin = chance * _MARGIN + 2.0**-50 * uniform + 2.0**-63
    np.less(uniform, chance, out=passed)
    for i in np.flatnonzero(np.abs(uniform - chance) <= margin):
        drawn = LazyUniform(source, int(words[i]), _WORD)
        passed[i] = drawn.below(partial(_phi, float(values[i]), threshold, sigma))


def _phi(value: float, threshold: float, sigma: float) -> arb:
    return ((arb(threshold) - arb(value)) / arb(sigma) / arb(2).sqrt()).erfc() / 2


def _compare(digits: Iterable[Words], source: Source) -> Bools:
    """Return whether uniform numbers are below those with these digits, 64 bits at a time while they tie."""
    heads, tied = np.zeros(0, np.bool_), np.zeros(0, np.int64)
    for k, digit in enumerate(digits):
        if k == 0:
            heads, tied = np.zeros(len(digit), np.bool_), np.arange(len(digit))
        words = source.words(len(tied))
        heads[tied[words < digit[tied]]] = True
        tied = tied[words == digit[tied]]
        if not len(tied):
            break
    return heads


def _digits(probabilities: Floats) -> Iterator[Words]:
    """Yield the binary digits of probabilities, 64 at a time, while any are left; 1 has the largest digits."""
    while True:
        scaled = probabilities * 2.0**_WORD  # exact: a change of exponent
        digits = np.minimum(np.floor(scaled), _TOP)
        yield digits.astype(np.uint64)
        probabilities = np.where(probabilities < 1, scaled - digits, 0.0)
        if not probabilities.any():
            return


def _mask(limit: Words) -> Words:
    """Return 2^b - 1 for each word of bit length b."""
    mask = limit.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        mask |= mask >> np.uint64(shift)
    return mask


def _exact(rate: float) -> Fraction:
    return Fraction(validate.between("rate", rate, 0.0, 1.0, hint="Pass a probability such as rate=0.1."))


def _halves(trials: Ints, source: Source) -> Ints:
    """Return a draw of Binomial(m, 1/2) for each m > 0."""
    heads, remaining = np.zeros(len(trials), np.int64), trials
    for bits in _BLOCKS:
        _add_up(heads, remaining >> bits, partial(_blocks, bits, source))
        remaining = remaining & ((1 << bits) - 1)
    _add_up(heads, remaining >> 6, lambda count: np.bitwise_count(source.words(count)))
    short = np.flatnonzero(remaining & 63)
    spare = (_WORD - (remaining[short] & 63)).astype(np.uint64)
    heads[short] += np.bitwise_count(source.words(len(short)) >> spare)
    return heads


def _blocks(bits: int, source: Source, count: int) -> Ints:
    return _fair_coins(bits).draw(count, source)


def _add_up(totals: Ints, lengths: Ints, draw: Callable[[int], NDArray[np.integer]]) -> None:
    """Add to each entry the sum of `length` draws."""
    entries = np.flatnonzero(lengths)
    ends = np.cumsum(lengths[entries])
    begins = ends - lengths[entries]
    for start in range(0, int(ends[-1]) if len(ends) else 0, _CHUNK):
        stop = min(start + _CHUNK, int(ends[-1]))
        first, last = np.searchsorted(ends, start, side="right"), np.searchsorted(begins, stop, side="left")
        places = np.maximum(begins[first:last] - start, 0)
        totals[entries[first:last]] += np.add.reduceat(draw(stop - start), places, dtype=np.int64)


@lru_cache(maxsize=len(_BLOCKS))
def _fair_coins(bits: int) -> ExactTable:
    """Return the table of the number of heads among n = 2^bits fair coins, which is symmetric about n / 2."""
    n, half = 1 << bits, 1 << (bits - 1)
    lower = FallingSums(  # P[X < n/2 - k]
        lambda k: arb.bin_uiui(n, half - 1 - k) * arb(2) ** -n if k < half else arb(0),
        lambda mass, k: mass * (half - 1 - k) / (half + 2 + k),
    )
    return ExactTable(lambda k: 1 - lower(k - half) if k >= half else lower(half - 1 - k), near=half)


def draw_binomial(trials: int, rate: Callable[[], arb], source: Source) -> int:
    """Return a draw of Binomial(trials, q), exactly; `rate` encloses q, 0 < q < 1, at the precision in force.

    It is meant for an irrational q such as the tail of a noise: cumulative probabilities must not be whole multiples of
    2^-64, on which no ball decides.

    >>> draw_binomial(2**64, lambda: (-arb(40)).exp(), resolve(None)) < 300
    True
    """
    parts = max(1, math.ceil(trials * upper(rate) / _MEAN))
    size, longer = divmod(trials, parts)
    return sum(
        int(_binomial_table(length, rate).draw(count, source).sum())
        for length, count in ((size, parts - longer), (size + 1, longer))
        if length and count
    )


def _binomial_table(trials: int, rate: Callable[[], arb]) -> ExactTable:
    """Return the table of Binomial(trials, q), from weights that are 1 at its mean."""
    middle = math.floor(trials * upper(rate))

    def odds() -> arb:
        q = rate()
        return q / (1 - q)

    def up(k: int) -> arb:  # P[middle + k] / P[middle]
        if k > trials - middle:
            return arb(0)
        return _rising(trials - middle - k + 1, k) / _rising(middle + 1, k) * odds() ** k

    def down(k: int) -> arb:  # P[middle - 1 - k] / P[middle]
        if k >= middle:
            return arb(0)
        return _rising(middle - k, k + 1) / _rising(trials - middle + 1, k + 1) / odds() ** (k + 1)

    above = FallingSums(up, lambda weight, k: weight * (trials - middle - k) / (middle + k + 1) * odds())
    under = FallingSums(down, lambda weight, k: weight * (middle - 1 - k) / (trials - middle + 2 + k) / odds())

    def cdf(k: int) -> arb:
        everything = above(0) + (under(0) if middle else 0)
        if k >= middle:
            return 1 - above(k - middle + 1) / everything
        return under(middle - 1 - k) / everything if middle else arb(0)

    return ExactTable(cdf, near=middle)


def _rising(start: int, count: int) -> arb:
    """Enclose start (start + 1) ... (start + count - 1)."""
    product = arb(1)
    for factor in range(start, start + count):
        product *= factor
    return product
