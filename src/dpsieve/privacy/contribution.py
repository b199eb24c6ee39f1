"""Contribution: how much one privacy unit may add. Plans, engines, mechanisms and messages share this one value."""

from dataclasses import dataclass

from dpsieve import validate


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
        hint = "Pass how many keys a unit may add, such as max_keys_per_unit=1."
        object.__setattr__(self, "keys", validate.whole("max_keys_per_unit", self.keys, low=1, high=10**12, hint=hint))
        hint = "Pass how many rows of a unit count in one key, such as max_rows_per_key=1."
        object.__setattr__(self, "rows", validate.whole("max_rows_per_key", self.rows, low=1, high=10**12, hint=hint))

    def __str__(self) -> str:
        which = "1 key" if self.keys == 1 else f"{self.keys:,} keys"
        return f"at most {which}, once each" if self.rows == 1 else f"at most {which}, {self.rows:,} rows each"
