"""Contribution bounds: how much one privacy unit may add. Shared by plans, engines, mechanisms and messages."""

import math
from dataclasses import dataclass

from dpsieve import validate
from dpsieve.errors import InvalidValue


@dataclass(frozen=True)
class Contribution:
    """At most `keys` keys of one unit count, and at most `rows` of its rows in each of them.

    So one unit more or less changes at most `keys` frequencies, each by at most `rows`.

    >>> print(Contribution(keys=3))
    at most 3 keys, once each
    """

    keys: int = 1
    rows: int = 1

    def __post_init__(self) -> None:
        hint = "Pass the number of keys per unit, such as max_keys_per_unit=1."
        object.__setattr__(self, "keys", validate.whole("max_keys_per_unit", self.keys, low=1, high=10**12, hint=hint))
        hint = "Pass the number of rows per unit and key, such as max_rows_per_key=1."
        object.__setattr__(self, "rows", validate.whole("max_rows_per_key", self.rows, low=1, high=10**12, hint=hint))

    def __str__(self) -> str:
        which = "1 key" if self.keys == 1 else f"{self.keys:,} keys"
        return f"at most {which}, once each" if self.rows == 1 else f"at most {which}, {self.rows:,} rows each"


@dataclass(frozen=True)
class Weight:
    """A unit that keeps d keys adds floor(2^bits / sqrt(max(d, least))) to each of them, however many rows it has.

    So the squares of what one unit adds sum to at most 4^bits: its L2 norm is at most 2^bits. Weights are integers, and
    their sums do not depend on the order of rows. The sum of a key is below 2^63 as long as at most `most_units` units
    keep the key; where more do, the data is refused.

    >>> Weight(bits=10).of_keys(4)
    (1024, 724, 591, 512)
    >>> Weight(bits=10, least=3).of_keys(4)
    (591, 591, 591, 512)
    """

    bits: int
    least: int = 1

    def __post_init__(self) -> None:
        hint = "Pass the fractional bits of a weight, such as 30."
        object.__setattr__(self, "bits", validate.whole("bits", self.bits, low=1, high=62, hint=hint))
        hint = "Pass the smallest number of keys that a unit counts as, such as 1."
        object.__setattr__(self, "least", validate.whole("least", self.least, low=1, high=10**6, hint=hint))

    def of_keys(self, most: int) -> tuple[int, ...]:
        """Return the weights of units that keep 1, 2, ..., `most` keys."""
        return tuple(math.isqrt(4**self.bits // max(d, self.least)) for d in range(1, most + 1))

    @property
    def most_units(self) -> int:
        """The largest number of units that may keep one key."""
        return (2**63 - 1) >> self.bits

    def too_wide(self) -> InvalidValue:
        """Return the error for data in which more units keep one key."""
        many = f"more than {self.most_units:,} units"
        return InvalidValue(f"bits={self.bits} is too large where {many} share a key. Pass fewer bits.")
