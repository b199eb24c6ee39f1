"""A table of noisy values that can be read only by naming a key: one random linear equation per key.

The content of a key (`retrieval_code`) is its value with nearly geometric noise, coded so that the value 0 gives b fair
bits. A hash gives each key a window of 256 random bits that starts at a random column of a table with cells of b bits.
The table is drawn uniformly among those in which, for each key, the exclusive or of the cells at the set bits of its
window is its content. An absent key reads b fair bits, the content of the value 0.

This carries the retrieval structures of Dietzfelbinger and Walzer 2019 (windows) from sets (Patel, Persiano, Seo and
Yeo 2024) to counts. Proof, and the probability that rows depend on each other (`dependence`):
docs/background/vectors.md#proof-retrieval-tables.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import numpy as np

from dpsieve import validate
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import Ball, ball, first_whole, minimise, upper
from dpsieve.privacy.certificate import Certificate, Part, whole_unit
from dpsieve.privacy.guarantee import shown
from dpsieve.randomness.source import Source
from dpsieve.sparse.digests import KEY_WORDS, MOST_BYTES, hash_words
from dpsieve.sparse.embedding import Embedding, Errors, Flag, Relation, in_threads
from dpsieve.sparse.retrieval_code import ContentCode, content_code
from dpsieve.types import Floats, Ints, Words
from dpsieve.validate import Delta, is_positive, is_whole, positive_epsilon

WINDOW = 256
FEWEST_BITS, MOST_BITS = 8, 63
MOST_ENTRIES, MOST_VALUE = 10**9, 2**40
_BLOCKS = 3  # of two words: four of the window, one for its start, and one to spare
_CHUNK = 1 << 16
_NEAR = 1.05
_SMALL = 0.01
_LN2 = math.log(2)  # must be rounded down (it is)
_DELTA, _SPARSITY = "Pass a small probability such as delta=1e-8.", "Pass the largest number of entries."
_LARGEST, _MAKER = "Pass the largest value of an entry.", "or use the maker `retrieval`."


@register("retrieval")
@dataclass(frozen=True, repr=False)
class Retrieval(Embedding):
    """Values of keys behind a random linear system; (epsilon, delta)-private where one entry changes by 1.

    Neighbours x, x' are whole vectors that differ by 1 in one entry, one of them with at most `sparsity` entries that
    are not 0, so that together they have at most one more.

    Privacy: with probability at least 1 - delta the rows of the keys of x and x' are linearly independent, and then the
    two tables differ by the content of one key alone, whose value changes by 1, and so by a factor of at most e^epsilon
    (docs/background/vectors.md#proof-retrieval-tables).

    If the rows of the given keys are dependent, the complete table is uniform: the hash key is never redrawn, and no
    entry is dropped. With more entries than `sparsity` all this holds with `failure(entries)` in place of delta, and
    beyond about starts + 255 entries all estimates are those of absent entries.

    Attributes:
        sparsity: the largest number of entries that are not 0.
        max_value: U; values are clamped to [0, U], or to [-U, U] where `signed`.
        signed: whether values may be below 0.
        bits: b, of a content and so of a cell.
        starts: n, the number of columns at which a window may start; the table has n + 255 columns.
        unit: what one entry changes by.
    """

    neighbours: ClassVar[Relation] = "one_entry"  # type: ignore[misc]

    epsilon: Annotated[float, positive_epsilon]
    delta: Annotated[Delta, is_positive(_DELTA)]
    sparsity: Annotated[int, is_whole(1, MOST_ENTRIES, _SPARSITY)]
    max_value: Annotated[int, is_whole(1, MOST_VALUE, _LARGEST)]
    _: KW_ONLY
    signed: Flag = False
    bits: Annotated[int, is_whole(FEWEST_BITS, MOST_BITS, f"Pass the bits of a cell, {_MAKER}")]
    starts: Annotated[int, is_whole(1, 2**40, f"Pass the columns at which a window may start, {_MAKER}")]
    unit: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.code  # noqa: B018  # refuses bits that are too few

    @property
    def code(self) -> ContentCode:
        """The code from values to contents."""
        return content_code(self.epsilon, -self.max_value if self.signed else 0, self.max_value, self.bits)

    @property
    def words(self) -> int:
        return KEY_WORDS + -(-(self.starts + WINDOW - 1) // 64) * self.bits

    def failure(self, entries: int) -> float:
        """Return the delta that holds for this many entries: a bound on the chance that their rows are dependent."""
        entries = validate.whole("entries", entries, low=1, high=2**40, hint="Pass how many entries are not 0.")
        return failure(entries, self.starts)

    def certify(self) -> Certificate:
        self.code.check()
        covers = f"contents of {self.bits} bits, each step of a value up to {self.max_value:,}, and 0 is uniform"
        content = Part("one key", "kernel", covers, self.epsilon, 0.0, 0.0)
        covers = (
            f"for at most {self.sparsity:,} entries, their rows are linearly independent but with probability delta"
        )
        unit = whole_unit(self.guarantee, self.failure(self.sparsity + 1), "balls", covers)
        return Certificate(self.guarantee, (content, unit))

    def draw(self, digests: Words, values: Ints, source: Source, key: Words | None = None) -> Words:
        from dpsieve.sparse.loops import choose_starts, solve

        key = source.words(KEY_WORDS) if key is None else key
        table = source.words(self.words - KEY_WORDS)
        windows, contents = np.empty((len(digests), WINDOW // 64), np.uint64), np.empty(len(digests), np.uint64)
        starts = np.empty(len(digests), np.int64)
        for at in range(0, len(digests), _CHUNK):
            part = slice(at, at + _CHUNK)
            words = hash_words(key, digests[part], _BLOCKS)
            windows[part], starts[part] = words[:, :4], choose_starts(words[:, 4], self.starts)
            contents[part] = self.code.draw(values[part], source)
        order = np.argsort(starts)
        solve(windows[order], starts[order], contents[order], table, self.bits)
        return np.concatenate([key, table])

    def get(self, cells: Words, digests: Words) -> Floats:
        from dpsieve.sparse.loops import choose_starts, look_up

        key, table = cells[:KEY_WORDS], cells[KEY_WORDS:]
        estimates = np.empty(len(digests))

        def answer(start: int, stop: int) -> None:
            for at in range(start, stop, _CHUNK):
                part = slice(at, min(at + _CHUNK, stop))
                words = hash_words(key, digests[part], _BLOCKS)
                contents = look_up(table, self.bits, words, choose_starts(words[:, 4], self.starts))
                estimates[part] = self.code.read(contents)

        in_threads(answer, len(digests), _CHUNK)
        return estimates

    def errors(self, value: float) -> Errors:
        """Return the distribution of estimate - value for an entry of this value, if the rows are independent."""
        return self.code.errors(validate.real("value", value, hint="Pass the value of an entry, such as 3."))

    def __repr__(self) -> str:
        return (
            f"<retrieval table of {self.bits} bits an entry, epsilon={shown(self.epsilon)}, delta={shown(self.delta)}>"
        )


def retrieval(
    epsilon: float,
    delta: float,
    sparsity: int,
    max_value: int,
    *,
    signed: bool = False,
    bits: int | None = None,
    unit: str = "",
) -> Retrieval:
    """Return the smallest table that keeps the promise for up to `sparsity` entries.

    Without `bits`, they are the fewest for which the mean error of entries of value 0 and 1 is within 5 % (or 0.01) of
    that of geometric noise, and 63 if none are: such a range is too wide to distinguish all outcomes.

    >>> made = retrieval(1.0, 1e-8, 100_000, 60)
    >>> made.bits, round(made.words * 64 / made.sparsity, 1), round(made.errors(0).mean, 2)
    (16, 17.3, 0.45)
    """
    epsilon, delta = validate.positive_epsilon(epsilon), validate.positive("delta", validate.delta(delta), hint=_DELTA)
    sparsity = validate.whole("sparsity", sparsity, low=1, high=MOST_ENTRIES, hint=_SPARSITY)
    max_value = validate.whole("max_value", max_value, low=1, high=MOST_VALUE, hint=_LARGEST)
    if bits is None:
        bits = _enough_bits(epsilon, -max_value if signed else 0, max_value)
    starts = least_starts(sparsity + 1, delta)
    return Retrieval(epsilon, delta, sparsity, max_value, signed=signed, bits=bits, starts=starts, unit=unit)


def _enough_bits(epsilon: float, low: int, high: int) -> int:
    ratio = math.exp(-epsilon)

    def part(steps: int) -> float:  # the mean of geometric noise to one side, clamped
        return ratio * -math.expm1(-epsilon * steps) / (-math.expm1(-epsilon) * (1 + ratio))

    best = sum(part(high - value) + part(value - low) for value in (0, 1))

    def is_enough(bits: int) -> bool:
        code = _possible_code(epsilon, low, high, bits)
        if code is None:
            return False
        return code.errors(0, 64).mean + code.errors(1, 64).mean <= max(_NEAR * best, best + 2 * _SMALL)

    bits = first_whole(is_enough, FEWEST_BITS, MOST_BITS)
    while bits > FEWEST_BITS and _possible_code(epsilon, low, high, bits) is None:  # small epsilons: too long a table
        bits -= 1
    return bits


def _possible_code(epsilon: float, low: int, high: int, bits: int) -> ContentCode | None:
    try:
        return content_code(epsilon, low, high, bits)
    except InvalidValue:
        return None


def dependence(rows: int, starts: int, window: int = WINDOW) -> float:
    """Return an upper bound on the probability that rows depend on each other.

    >>> dependence(90, 100) < 1e-13, dependence(100, 100)
    (True, 1.0)
    """
    density = rows / starts * (1 + 1e-12)

    def exponent(theta: float) -> float:
        growth = density * math.expm1(theta)
        return growth - theta * window - math.log(-math.expm1(growth - theta)) if growth < theta else math.inf

    theta = minimise(exponent, 0.0, _LN2, rounds=40)

    def bound() -> Ball:
        growth = (ball(rows) / starts + ball(rows) / 2**64) * ball(theta).expm1()
        gap = -(growth - theta).expm1()
        return starts * (growth - ball(theta) * window).exp() / gap if gap > 0 else ball(1)

    return min(1.0, upper(bound))


def same_digests(keys: int) -> float:
    """Return an upper bound on the probability that two of the keys, texts of any length, have the same digest.

    The difference of two texts is a polynomial with at most MOST_BYTES / 7 + 1 roots, and of the 2^61 numbers that a
    point is drawn from two are 0 modulo 2^61 - 1.
    """
    return upper(lambda: ball(keys) ** 2 / 2 * ((ball(MOST_BYTES) / 7 + 2) / 2**61) ** 2)


def failure(keys: int, starts: int) -> float:
    """Return an upper bound on the probability that rows of keys depend on each other or two keys share a digest."""
    return min(1.0, upper(lambda: ball(dependence(keys, starts)) + ball(same_digests(keys))))


def least_starts(keys: int, delta: float) -> int:
    """Return the least number of starts for which the rows of keys depend on each other with probability at most delta.

    >>> least_starts(100_000, 1e-8)
    108079
    """
    limit = 1 << 50
    found = first_whole(lambda starts: failure(keys, starts) <= delta, keys, limit, step=1 + keys // 16)
    if found == limit:
        hint = "Pass a larger delta or a lower sparsity."
        raise InvalidValue(f"delta={delta:g} cannot be kept by windows of {WINDOW} bits for {keys:,} entries. {hint}")
    return found
