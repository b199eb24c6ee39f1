"""Exact draws from any distribution on the integers whose cumulative probabilities can be enclosed in balls.

For a uniform U in [0, 1), the least k with F(k) > U has the distribution function F. The table keeps floor(F(k) 2^64).
A word u is the first 64 bits of U, so it decides k unless u equals one of the table's entries; then (with probability
below 2^-50, as a table has at most 2^14 entries) more bits of U are drawn and F is evaluated more precisely until one
comparison is certain. So what is drawn follows F exactly, and one word decides almost every draw.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import first_whole, floor_bounds, precision
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Ints, Words

Cdf = Callable[[int], arb]

CHUNK = 1 << 15  # draws made at a time: their arrays stay in the processor's cache
LARGEST = 1 << 14
_GUIDE_BITS = 16
SPARE_BITS = 64 - _GUIDE_BITS
_TOP, _WORDS = 2**64 - 1, arb(2**64)
_CDF = "Return a ball that narrows as the precision grows, and an exact one where F(k) 2^64 is whole."
_BITS = 128  # the precision that settles nearly every entry


class ExactTable:
    """Draws integers from the distribution function `cdf`, exactly.

    `cdf(k)` returns a ball that contains F(k) = P[X <= k] for any integer k, evaluated at the current precision; the
    higher the precision, the narrower it must be. `near` is any integer of ordinary probability.

    >>> coin = ExactTable(lambda k: arb(0) if k < 0 else arb(1) / 2 if k == 0 else arb(1), near=0)
    >>> sorted(set(coin.draw(200).tolist()))
    [0, 1]
    """

    def __init__(self, cdf: Cdf, *, near: int = 0) -> None:
        if not callable(cdf):
            raise InvalidType(f"cdf must be a function of an integer, not {type(cdf).__name__}. {_CDF}", argument="cdf")
        self._cdf = cdf
        near = validate.whole("near", near, low=-(2**62), high=2**62, hint="Pass an integer of ordinary probability.")
        with precision(_BITS):
            self.first = _first_true(lambda k: _word(cdf, k) == 0, near, -1)
            last = _first_true(lambda k: _word(cdf, k) == _TOP, near, +1)
            if last - self.first >= LARGEST:
                fix = "Draw from wider cells instead."
                raise InvalidValue(f"cdf is spread over more than {LARGEST} integers. {fix}", argument="cdf")
            entries = [_word(cdf, k) for k in range(self.first, last + 1)]
        if any(a > b for a, b in pairwise(entries)):
            raise InvalidValue("cdf decreases. Pass a cumulative distribution function.", argument="cdf")
        self._entries = np.array(entries, dtype=np.uint64)
        self.guide = self._make_guide()

    def __len__(self) -> int:
        return len(self._entries)

    def draw(self, count: int, source: Source | None = None) -> Ints:
        """Return `count` independent draws."""
        count = validate.whole("count", count, high=10**9, hint="Pass how many draws to make, a billion at most.")
        source, out = resolve(source), np.empty(count, np.int64)
        for start in range(0, count, CHUNK):
            words = source.words(min(CHUNK, count - start))
            index = self.guide.take((words >> np.uint64(SPARE_BITS)).view(np.int64))
            part = out[start : start + len(words)]
            np.add(index, self.first, out=part, dtype=np.int64)
            unclear = np.flatnonzero(index == len(self))
            part[unclear] = self.search(words[unclear], source)
        return out

    def search(self, words: Words, source: Source) -> Ints:
        """Return the integer of each word, drawing more bits where 64 are not enough."""
        place = np.searchsorted(self._entries, words, side="right")
        values = place + self.first
        for tie in np.flatnonzero(self._entries[np.maximum(place, 1) - 1] == words):
            values[tie] = self._refine(int(words[tie]), source)
        return values

    def _make_guide(self) -> NDArray[np.int32]:
        """Return the index that each value of a word's top bits decides, or len(self) where they are not enough."""
        starts = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << np.uint64(SPARE_BITS)
        before = np.searchsorted(self._entries, starts, side="left")
        after = np.searchsorted(self._entries, starts | np.uint64((1 << SPARE_BITS) - 1), side="right")
        return np.where(before == after, after, len(self)).astype(np.int32)

    def _refine(self, word: int, source: Source) -> int:
        """Return the least k with F(k) > U for the uniform U that begins with the 64 bits of `word`."""
        uniform = LazyUniform(source, word, 64)
        start = self.first + int(np.searchsorted(self._entries, np.uint64(word), side="left"))
        if uniform.below(lambda: self._cdf(start)):
            return _first_true(lambda k: not uniform.below(lambda: self._cdf(k)), start, -1) + 1
        return _first_true(lambda k: uniform.below(lambda: self._cdf(k)), start, +1)


class LazyUniform:
    """A uniform number in [0, 1) whose bits are drawn only when a comparison needs them."""

    def __init__(self, source: Source, value: int = 0, bits: int = 0) -> None:
        self._source, self._value, self.bits = source, value, bits

    def below(self, bound: Callable[[], arb]) -> bool:
        """Return whether the number is below the real number that `bound` encloses at every precision."""
        extra = 64
        while True:
            with precision(self.bits + extra):
                low, high = self.ends()
                ball = bound()
                if high <= ball:
                    return True
                if low >= ball:
                    return False
            extra *= 2
            self.extend()

    def ends(self) -> tuple[arb, arb]:
        """Return exact balls for the ends of the interval known to hold the number."""
        with precision(self.bits + 2):
            scale = arb(2) ** -self.bits
            return arb(self._value) * scale, arb(self._value + 1) * scale

    def extend(self) -> None:
        """Draw 64 more bits."""
        self._value = self._value << 64 | int(self._source.words(1)[0])
        self.bits += 64


class FallingSums:
    """The sums of positive weights w(k), k = 0, 1, ..., from each place on, in balls.

    `weight(k)` encloses w(k), and `following(w(k), k)` encloses w(k+1), at the current precision. The ratio of
    neighbours does not grow with k (w is log-concave), so a geometric series bounds the tail.
    """

    def __init__(self, weight: Callable[[int], arb], following: Callable[[arb, int], arb]) -> None:
        self._weight, self._following = weight, following
        self._sums: tuple[int, list[arb]] = (0, [])

    def __call__(self, start: int) -> arb:
        """Enclose the sum of w(k) over k >= start."""
        bits, sums = self._sums
        if bits != ctx.prec:
            self._sums = _, sums = ctx.prec, self._leading_sums()
        return sums[start] if start < len(sums) else self._beyond(start, self._weight(start))

    def _leading_sums(self) -> list[arb]:
        """Return the sums from 0 on, from 1 on, and so on until they are negligible."""
        weights = [self._weight(0)]
        negligible = weights[0] * arb(2) ** -ctx.prec
        while not weights[-1] < negligible:
            weights.append(self._following(weights[-1], len(weights) - 1))
        sums = [self._beyond(len(weights) - 1, weights.pop())]
        for weight in reversed(weights):
            sums.append(sums[-1] + weight)
        return sums[::-1]

    def _beyond(self, start: int, first: arb) -> arb:
        return first.union(first / (1 - self._following(first, start) / first)) if first > 0 else first


def _word(cdf: Cdf, k: int) -> int:
    """Return floor(F(k) 2^64), at most 2^64 - 1, proven; the current precision settles nearly every one."""
    ball: object = cdf(k)  # a caller's function may return anything
    bits = _BITS
    floor = (ball * _WORDS).floor().unique_fmpz() if isinstance(ball, arb) else None
    if floor is not None:
        return min(max(int(floor), 0), _TOP)
    while True:
        with precision(bits):
            ball = cdf(k)
            if not isinstance(ball, arb) or not ball.is_finite():
                raise InvalidType(f"cdf must return finite balls. {_CDF}", argument="cdf")
            low, high = (min(max(end, 0), _TOP) for end in floor_bounds(ball * arb(2) ** 64))
        if low == high:
            return low
        if bits > 1 << 16:
            raise InvalidValue(f"cdf({k}) stays too wide. {_CDF}", argument="cdf")
        bits *= 2


def _first_true(wanted: Callable[[int], bool], near: int, direction: int) -> int:
    """Return the first k, going from `near` in `direction`, with wanted(k); once true, it stays true further out."""
    away = first_whole(lambda steps: wanted(near + direction * steps), 0, 1 << 62)
    if away == 1 << 62:
        fix = "Pass the distribution function of an integer variable."
        raise InvalidValue(f"cdf does not reach 0 and 1. {fix}", argument="cdf")
    return near + direction * away
