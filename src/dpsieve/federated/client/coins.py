"""The randomness of one client: exact coins, levels and nonces from the operating system, without other libraries.

A float is a whole number n over a power of two 2^k. So a coin that is below n, out of 2^k equally likely whole numbers,
has exactly the probability of the float. A level is drawn by rejection: of 2^k equally likely whole numbers,
those that are too large are drawn again, and the others stay equally likely.

`source` is for tests: any object whose `words(n)` returns n random words of 64 bits, such as
`dpsieve.testing.insecure_source(1)`.
"""

import os
from collections.abc import Iterable
from typing import Any, Protocol

from dpsieve.errors import InvalidType

NONCE_BITS = 128


class RandomWords(Protocol):
    """A source of random words of 64 bits."""

    def words(self, count: int, /) -> Iterable[Any]:
        """Return `count` words."""


def random_bits(bits: int, source: RandomWords | None = None) -> int:
    """Return a whole number below 2^bits, each equally likely."""
    if source is None:
        return int.from_bytes(os.urandom((bits + 7) // 8), "little") >> (-bits % 8)
    if not callable(getattr(source, "words", None)):
        raise InvalidType(f"source is no random source: {type(source).__name__}. Leave it out.", argument="source")
    count = (bits + 63) // 64
    words = sum(int(word) << (64 * place) for place, word in enumerate(source.words(count)))
    return words >> (64 * count - bits)


def coin(rate: float, source: RandomWords | None = None) -> bool:
    """Return True with probability exactly `rate`, a float from 0 to 1.

    >>> coin(1.0), coin(0.0)
    (True, False)
    """
    numerator, denominator = rate.as_integer_ratio()
    return random_bits(denominator.bit_length() - 1, source) < numerator


def uniform(count: int, source: RandomWords | None = None) -> int:
    """Return one of 0, 1, ..., count - 1, each equally likely."""
    bits = (count - 1).bit_length()
    while (drawn := random_bits(bits, source)) >= count:
        pass
    return drawn


def new_nonce(source: RandomWords | None = None) -> str:
    """Return 128 random bits in hexadecimal."""
    return f"{random_bits(NONCE_BITS, source):032x}"


def is_nonce(nonce: object) -> bool:
    """Return whether this is a nonce, or '' for none."""
    return isinstance(nonce, str) and (nonce == "" or (len(nonce) == 32 and set(nonce) <= set("0123456789abcdef")))
