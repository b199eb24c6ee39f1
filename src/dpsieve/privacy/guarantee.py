"""The privacy guarantee that every release, mechanism and ledger carries, and what one privacy unit may contribute."""

import json
import math
import sys
import warnings
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from functools import lru_cache
from typing import Annotated

from dpsieve import validate
from dpsieve.codec import Saved
from dpsieve.errors import InvalidType, InvalidValue, PrivacyWarning
from dpsieve.validate import Checked, Delta, Epsilon, Relation, is_a, is_whole

LARGE_DELTA = 1e-4  # warn above this
_HINT = "Say who is protected, such as unit='user_id' or unit='one user_id', or name several columns in a list."
_KEYS = "Pass the number of keys per unit, such as max_keys_per_unit=1."
_ROWS = "Pass the number of rows per unit and key, such as max_rows_per_key=1."
_BITS = "Pass the fractional bits of a weight, such as 30."
_LEAST = "Pass the smallest number of keys that a unit counts as, such as 1."
_MISLEADING = ("(", ")", ",", '"')
Unit = Annotated[str, lambda unit, _: unit_words(unit)]
"""The privacy unit, as named in guarantees."""


@dataclass(frozen=True)
class Guarantee(Checked, Saved):
    """(epsilon, delta)-differential privacy for one privacy unit, under a named neighbour relation.

    For all neighbouring inputs D, D' and every set of outputs T: P[M(D) in T] <= e^epsilon P[M(D') in T] + delta
    (Dwork, McSherry, Nissim, Smith 2006). Neighbours differ in one unit: 'add_remove' means that D has one unit more
    or less than D', 'replace' that one unit's data is exchanged for other data. The unit is stored as by
    `unit_words`: 'user_id' becomes 'one user_id'.

    >>> promise = Guarantee(1.0, 1e-8, unit="user_id")
    >>> print(promise)
    (1, 1e-08)-differential privacy when one user_id is added or removed.
    >>> promise.implies(Guarantee(2.0, 1e-6, unit="one user_id"))
    True
    """

    epsilon: Epsilon
    delta: Delta = 0.0
    neighbours: Relation = "add_remove"
    unit: Unit = "one row"

    def implies(self, other: "Guarantee") -> bool:
        """Return whether this guarantee is at least as strong as `other`, for the same unit.

        A guarantee for 'add_remove' is also judged as one for 'replace' (`for_replacement`); the reverse does not hold.
        """
        is_a(Guarantee, "Pass what to compare with.")(other, "other")
        if self.unit != other.unit or (self.neighbours, other.neighbours) == ("replace", "add_remove"):
            return False
        same = self.neighbours == other.neighbours
        epsilon, delta = (self.epsilon, self.delta) if same else self._grouped(2)
        return epsilon <= other.epsilon and delta <= other.delta

    def for_replacement(self) -> "Guarantee":
        """Return the guarantee under replacement of one unit: one is removed, then another added.

        (epsilon, delta) for add/remove gives (2 epsilon, (1 + e^epsilon) delta) for replacement (group privacy),
        rounded up. A delta of one or more promises nothing and is refused.
        """
        if self.neighbours == "replace":
            return self
        epsilon, delta = self._grouped(2)
        if delta >= 1 or epsilon > 500:
            raise InvalidValue(f"{self} It promises nothing under replacement. Use a smaller epsilon and delta.")
        return Guarantee(epsilon, delta, "replace", self.unit)

    def for_group(self, units: int) -> "Guarantee":
        """Return the guarantee of any `units` units together, under the same relation (group privacy).

        (epsilon, delta) for one unit gives (k epsilon, (1 + e^epsilon + ... + e^((k-1) epsilon)) delta) for k, rounded
        up: Fact 1.5 of Lebeda's thesis with a smaller delta. A delta of one or more promises nothing and is refused.

        >>> print(Guarantee(0.5, 1e-8, unit="visit").for_group(3))
        (1.5, 5.36...e-08)-differential privacy when one group of 3 x visit is added or removed.
        """
        k = validate.whole("units", units, low=1, high=10**9, hint="Pass the number of units of a group, such as 3.")
        if k == 1:
            return self
        epsilon, delta = self._grouped(k)
        if delta >= 1 or epsilon > 500:
            raise InvalidValue(f"{self} It promises nothing for {k:,} units together. Use a smaller epsilon and delta.")
        return Guarantee(epsilon, delta, self.neighbours, f"one group of {k} x {self.unit.removeprefix('one ')}")

    def _grouped(self, k: int) -> tuple[float, float]:
        if k * self.epsilon > 700 or not self.delta:
            return k * self.epsilon, 1.0 if self.delta else 0.0
        deltas = math.expm1(k * self.epsilon) / math.expm1(self.epsilon) if self.epsilon else k
        epsilon = k * self.epsilon
        if Fraction(epsilon) < k * Fraction(self.epsilon):
            epsilon = math.nextafter(epsilon, math.inf)
        return epsilon, math.nextafter(deltas * self.delta * (1 + 2**-49), 2.0)

    @property
    def best_guess(self) -> float:
        """The largest probability with which a guess is right that was right half of the time before, rounded up.

        It is about which of two neighbours the data is, such as whether one unit is in it, by anyone who knows all
        other data: (e^epsilon + delta) / (1 + e^epsilon), from the errors of a test (Kairouz, Oh and Viswanath 2015).
        Some mechanism with this guarantee reaches it. Proof: docs/background/composition.md#the-best-guess.

        >>> round(Guarantee(1.0).best_guess, 4), round(Guarantee(0.0, 0.5).best_guess, 4)
        (0.7311, 0.75)
        """
        from dpsieve.exact.balls import ball, upper

        return min(1.0, upper(lambda: 1 - (1 - ball(self.delta)) / (1 + ball(self.epsilon).exp())))

    def describe_odds(self) -> str:
        """Return what the guarantee means for a guess, in words.

        >>> Guarantee(1.0, unit="user_id").describe_odds()
        'a guess whether one user_id is in the data is right at most 73.2 % of the time, if it was 50 % before'
        """
        what = f"whether {self.unit} is in the data" if self.neighbours == "add_remove" else f"what {self.unit} holds"
        share = min(100.0, float(rounded_up(100 * self.best_guess * (1 + 1e-15), 3)))
        return f"a guess {what} is right at most {share:g} % of the time, if it was 50 % before"

    def __str__(self) -> str:
        change = "is added or removed" if self.neighbours == "add_remove" else "is replaced by another"
        epsilon, delta = rounded_up(self.epsilon, 6), rounded_up(self.delta, 6)
        name = f"({epsilon}, {delta})" if self.delta else epsilon
        return f"{name}-differential privacy when {self.unit} {change}."


def rounded_up(number: float, digits: int = 4) -> str:
    """Return a number with at most `digits` digits, rounded up: the safe side of what is promised.

    >>> rounded_up(0.0123449999), rounded_up(1e-08), rounded_up(0.3)
    ('0.01235', '1e-08', '0.3')
    """
    short = f"{number + 0.0:.{digits}g}"
    if float(short) < number:
        short = f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(number)):.{digits}g}"
    return short


def shown(number: float) -> str:
    """Return the shortest exact decimal form of a float."""
    short = f"{number + 0.0:g}"
    return short if float(short) == number else repr(number)


def warn_of_large_delta(delta: float | None) -> None:
    """Issue a PrivacyWarning at the caller of dpsieve for a delta above 1e-4."""
    if delta is None or not LARGE_DELTA < delta < 1:
        return
    warn_caller(
        f"delta={delta:.3g} is large: what one unit alone holds may be published with that probability, for about "
        f"{10_000 * delta:,.0f} of 10,000 such units. Use 1e-6 or less."
    )


def warn_caller(message: str) -> None:
    """Issue a PrivacyWarning at the caller of dpsieve."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("dpsieve"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, PrivacyWarning, stacklevel=level)


def unprotected(unit: str) -> str:
    """Return what a guarantee for single rows or items does not protect, as a sentence; empty for other units."""
    what = {"one row": "row", "one item": "item"}.get(unit)
    return "" if what is None else f"This protects single {what}s, not people: a person may have many {what}s."


def unit_words(unit: object) -> str:
    """Return the phrase for a unit from the names of its columns; one that begins with 'one' is unchanged.

    Without a column each row is a unit; a column named row is quoted. Several columns are sorted, as their order does
    not matter. Names with a comma, a bracket or a quote are quoted.

    >>> unit_words("user_id"), unit_words("one user_id"), unit_words(())
    ('one user_id', 'one user_id', 'one row')
    >>> unit_words(("user_id", "tenant")), unit_words(["tenant", "user_id"])
    ('one (tenant, user_id)', 'one (tenant, user_id)')
    >>> unit_words("row"), unit_words(["row"])
    ('one row', 'one "row"')
    """
    if isinstance(unit, str):
        return _one(unit)
    if not isinstance(unit, tuple | list):
        raise InvalidType(f"unit must be text, not {type(unit).__name__}. {_HINT}", argument="unit")
    names = sorted({validate.text("unit", name, hint=_HINT) for name in unit})
    if not names and isinstance(unit, list):
        raise InvalidValue(f"unit is an empty list. {_HINT}", argument="unit")
    if not names:
        return "one row"
    if len(names) == 1:
        return f"one {_quoted(names[0]) if names[0].startswith(_MISLEADING) or names == ['row'] else names[0]}"
    quoted = [_quoted(name) if any(mark in name for mark in _MISLEADING) else name for name in names]
    return f"one ({', '.join(quoted)})"


@lru_cache(maxsize=64)
def _one(unit: str) -> str:
    words = validate.text("unit", unit, hint=_HINT)
    return words if words.startswith("one ") else f"one {words}"


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


@dataclass(frozen=True)
class Contribution(Checked):
    """At most `keys` keys of one unit count, and at most `rows` of its rows in each of them.

    So one unit more or less changes at most `keys` frequencies, each by at most `rows`.

    `after` names what came before a count: '' where keys are reported and counted at once, otherwise the kind of way by
    which they were found (see `dpsieve.jobs.bounds`). It is no part of the bound, and is not compared.

    >>> print(Contribution(keys=3))
    at most 3 keys, once each
    """

    keys: Annotated[int, is_whole(1, 10**12, _KEYS, "max_keys_per_unit")] = 1
    rows: Annotated[int, is_whole(1, 10**12, _ROWS, "max_rows_per_key")] = 1
    after: str = field(default="", compare=False, repr=False, kw_only=True)

    def describe_change(self, earlier: "Contribution") -> str:
        """Return how units are counted now and were in an earlier release of a series; empty where that is the same.

        Counts compare only where it is.

        >>> Contribution(14, after="two_steps").describe_change(Contribution(20))
        'a unit adds at most 14 keys, once each, in two_steps; before at most 20 keys, once each, at once'
        """
        if (self, self.after) == (earlier, earlier.after):
            return ""
        now, before = (f"{each}, {f'in {each.after}' if each.after else 'at once'}" for each in (self, earlier))
        return f"a unit adds {now}; before {before}"

    def __str__(self) -> str:
        which = "1 key" if self.keys == 1 else f"{self.keys:,} keys"
        return f"at most {which}, once each" if self.rows == 1 else f"at most {which}, {self.rows:,} rows each"


@dataclass(frozen=True)
class Weight(Checked):
    """A unit that keeps d keys adds floor(2^bits / sqrt(max(d, least))) to each of them, however many rows it has.

    So the squares of what one unit adds sum to at most 4^bits: its L2 norm is at most 2^bits. Weights are integers, and
    their sums do not depend on the order of rows. The sum of a key is below 2^63 as long as at most `most_units` units
    keep the key; where more do, the data is refused.

    >>> Weight(bits=10).of_keys(4)
    (1024, 724, 591, 512)
    >>> Weight(bits=10, least=3).of_keys(4)
    (591, 591, 591, 512)
    """

    bits: Annotated[int, is_whole(1, 62, _BITS)]
    least: Annotated[int, is_whole(1, 10**6, _LEAST)] = 1

    def of_keys(self, most: int) -> tuple[int, ...]:
        """Return the weights of units that keep 1, 2, ..., `most` keys."""
        return tuple(math.isqrt(4**self.bits // max(d, self.least)) for d in range(1, most + 1))

    @property
    def most_units(self) -> int:
        """The largest number of units that may keep one key."""
        return (2**63 - 1) >> self.bits

    def too_wide(self) -> InvalidValue:
        """Return the error for data in which more units keep one key."""
        what = f"bits={self.bits} is too large where more than {self.most_units:,} units share a key"
        return InvalidValue(f"{what}. Pass fewer bits.", argument="bits")
